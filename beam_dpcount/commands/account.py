"""What runs over one set of rows cost in all: make an account, or print one.

--create makes the file, once, with the most that all runs may cost together. Commands that count
then take --account FILE: they add what they cost before they count, and are refused where it would
exceed the total. A run that fails counts too, unless it is certain that nothing was released. A run
with the same secret, options and rows as one before releases the same numbers, and costs nothing.
By --epsilon (and --delta) the total is a sum of epsilons (and of deltas). By --rho it is a sum of
rhos, which allows more runs of small budgets; a run by --epsilon costs the rho of its noise.
An account is for one set of rows: whoever's rows they are, runs over other rows have their own, and
all runs over these, by whomever, one. It is for one row; with --user COLUMN for one person, and
then takes only runs with --user COLUMN. With --per 1d as well it is for one person's rows of any
one day. It then says what 7, 30 and all days of one person cost, too; runs with other periods, or a
bound over the whole clock, cost two changes for each that a day meets.
Each run's line says which columns it publishes (keys, times, and :presence, that a row exists) and
which it protects. A run that publishes what another one protects is refused, unless --allow-public
says otherwise. The account then says what still holds for a row, or a person. Columns are compared
by name only: a copy under another name, nested or computed, is not detected.
The file is PRIVATE, with mode 0600: it has the size and a digest of each input, by which a guess at
the input could be tested. Keep it as you keep the data. This command spends nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from beam_dpcount.arguments.argument import parsed
from beam_dpcount.arguments.table import applying
from beam_dpcount.budget.account import AccountPeriods
from beam_dpcount.budget.account_file import check_local, create, read_account
from beam_dpcount.budget.account_text import statement
from beam_dpcount.budget.budgets import weakness
from beam_dpcount.commands import options as opt
from beam_dpcount.commands.files.formats import InputError
from beam_dpcount.counters.periods import account_periods

EXAMPLE = "beam-dpcount account out/account.jsonl --create --epsilon 3 --delta 1e-5"

OWN = parsed(
    "account",
    """
    create: switch
        make it, with a budget; without, it is printed
    user COLUMN: keys
        with --create: it is for one person, and this column says whose a row is (default: it is for
        one row)
    per TIME: text
        with --user: it is for one person's rows of any one period of this length, such as 1d (with
        {zone}: local days), as runs with {per} are, and not for all rows of a person
    timestamp COLUMN ...: times
        with {per}: the column of the time by which rows lie in periods, which runs name too
    zone NAME: text
        with {per}: days and weeks are those of this time zone, such as Europe/Paris
    start TIME: text
        with {per}: when one of the periods begins (default: a Monday's midnight, in {zone} or UTC)
    """,
)


_OF_PERIODS = ("per", "timestamp", "zone", "start")


def _periods(options: argparse.Namespace) -> AccountPeriods | None:
    """The periods that an account is for, if it is for any."""
    if options.per is None:
        for name in _OF_PERIODS:
            if name in options.given:
                raise InputError(f"{opt.option(name)} is about periods: give e.g. --per 1d too")
        return None
    for name in ("user", "timestamp"):
        if getattr(options, name) is None:
            raise InputError(f"--per needs {opt.option(name)} COLUMN, which runs then name too")
    return account_periods(options.per, options.timestamp, options.zone, options.start)


def arguments() -> opt.Parser:
    titles = {"budget": "privacy budget, for all releases of all runs together; with --create"}
    parser = opt.Parser("account", __doc__, EXAMPLE, applying("", OWN), titles)
    parser.add_argument("file", metavar="FILE", help="the account, a file of JSON lines")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command; mistakes in the options or the file are ValueErrors."""
    options = arguments().parse_ours(argv)
    with opt.named_as_options(options):
        check_local(options.file)
    if options.create:
        budget = opt.budget_of(options)
        if weak := weakness(budget):
            print(f"warning: {weak}")
        with opt.named_as_options(options):
            print(statement(create(options.file, budget, options.user, _periods(options))))
        return
    for name in ("epsilon", "delta", "rho", "user", *_OF_PERIODS):
        if name in options.given:
            raise InputError(f"{opt.option(name)} goes with --create; an account keeps its total")
    with opt.named_as_options(options):
        print(statement(read_account(options.file)))

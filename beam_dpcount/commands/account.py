"""What runs over one set of rows cost in all: make an account, or print one.

--create makes the file, once, with the most that all runs may cost together. Commands that count
then take --account FILE: they add what they cost before they count, and are refused where it would
exceed the total. A run that fails counts too, unless it is certain that nothing was released. A run
with the same secret, options and rows as one before releases the same numbers, and costs nothing.
By --epsilon (and --delta) the total is a sum of epsilons (and of deltas). By --rho it is a sum of
rhos, which allows more runs of small budgets; a run by --epsilon costs the rho of its noise.
An account is for one set of rows: whoever's rows they are, runs over other rows have their own, and
all runs over these, by whomever, one. It is for one row; with --user COLUMN for one person, and
then takes only runs with --user COLUMN.
Each run's line says which columns it publishes (keys, times, and :presence, that a row exists) and
which it protects. A run that publishes what another one protects is refused, unless --allow-public
says otherwise. The account then says what still holds for a row, or a person. Columns are compared
by name only: a copy under another name, nested or computed, is not detected.
The file is PRIVATE, with mode 0600: it has the size and a digest of each input, by which a guess at
the input could be tested. Keep it as you keep the data. This command spends nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from beam_dpcount.budget.account_file import check_local, create, read_account
from beam_dpcount.budget.account_text import statement
from beam_dpcount.budget.budgets import weakness
from beam_dpcount.commands import options as opt
from beam_dpcount.commands.files.formats import InputError

EXAMPLE = "beam-dpcount account out/account.jsonl --create --epsilon 3 --delta 1e-5"


def arguments() -> opt.Parser:
    parser = opt.Parser("account", __doc__, EXAMPLE)
    parser.add_argument("file", metavar="FILE", help="the account, a file of JSON lines")
    table = """
        --create: make it, with a budget; without, it is printed
        --user COLUMN: with --create: it is for one person, and this column says whose a row is
          (default: it is for one row)
    """
    opt.add(parser.add_argument_group("a new account"), table)
    opt.add_budget(parser, "all releases of all runs together; with --create")
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
            print(statement(create(options.file, budget, options.user)))
        return
    for name in ("epsilon", "delta", "rho", "user"):
        if name in options.given:
            raise InputError(f"{opt.option(name)} goes with --create; an account keeps its total")
    with opt.named_as_options(options):
        print(statement(read_account(options.file)))

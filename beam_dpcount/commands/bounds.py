"""PRIVATE: what bounds on each person (--per-user) leave out of counts at a clock, and their noise.

For several bounds, best first: the shares of events, people and keys that are left out; the bias,
which is the root mean square over keys of what the last count lacks; the largest standard deviation
of the noise at this budget; and the root of the sum of their squares, by which they are compared.
It prints facts about the rows without any noise: do not publish them. If you choose a bound by the
rows that you then count, the guarantee of that count does not cover the choice: give public rows
here, or those of another period. Rows are read as `ticks` reads them. Nothing is written or spent.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import Any

import beam_dpcount as dp
from beam_dpcount.arguments import groups
from beam_dpcount.arguments.argument import parsed
from beam_dpcount.arguments.table import ALL_KEYS, Changes, applying
from beam_dpcount.budget.budgets import weakness
from beam_dpcount.checks import check_whole
from beam_dpcount.commands import options as opt
from beam_dpcount.commands.files import formats

EXAMPLE = r"""
beam-dpcount bounds --input out/demo/events.csv --key page \
  --keys /home /cart /deals --user session --timestamp timestamp \
  --tick 1h --start 2026-01-15T00:00:00Z \
  --stop 2026-01-16T00:00:00Z --epsilon 1 --delta 1e-6
"""


OWN = (
    *parsed(
        "input",
        """
        user COLUMN: keys, required
            whose a row is; an empty cell is no person
        """,
    ),
    *parsed(
        "tried",
        """
        per_user K ...: wholes, example=5 10
            the most rows of a person that count (default 1 2 5 10 20 50 100)
        max_keys M ...: wholes, example=3
            the most keys of a person (default: as many as rows)
        per_key J ...: wholes, example=2
            the most rows of a person in one key; beyond --per-user, as many as that (default: 1,
            and as many as --per-user)
        gap TIME ...: durations, example=1h
            the least time between two rows of a person (default: none)
        per TIME ...: texts, example=1d
            bound each person anew in each such period; none is the whole clock (default: none)
        sample SHARE: number, default=1, example=0.1
            the share of all people whose rows these are (default 1): what is left out is divided by
            it; sample people, with all their rows, and not rows
        """,
    ),
)
_CHANGES: Changes = {
    "key": {"required": True},
    "keys": {"required": True},
    "mechanism": {"help": "as for ticks"},
    "relation": {"help": "what is protected: that a person is there, or which one is"},
}


def arguments() -> opt.Parser:
    taken = applying("files calibrated ticks numbers", OWN, _CHANGES)
    parser = opt.Parser("bounds", __doc__, EXAMPLE, taken, {"budget": ALL_KEYS})
    parser.set_defaults(output=None, plot=None, report=None)
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command; mistakes in the options or files are ValueErrors or TypeErrors."""
    options = arguments().parse_ours(argv)
    budget = opt.budget_of(options)
    opt.check_bounds(options)
    # Here: it imports Beam.
    from beam_dpcount.commands.files.events import notes, ready
    from beam_dpcount.commands.files.inputs import files_of
    from beam_dpcount.commands.files.read import all_events
    from beam_dpcount.commands.looks import Unread
    from beam_dpcount.transforms.ticks import TickNumbers

    source = ready(source_of(options))
    files, unread = files_of(source), Unread()
    with opt.named_as_options(options):
        keys = opt.public_list("keys", options, [source.label(data.path) for data in files])
        tried = tried_of(options)
        count = TickNumbers(
            budget,
            **groups.clock(vars(options)),
            keys=keys,
            mechanism=options.mechanism,
            bounds=tuple(options.bounds),
            unit=options.unit,
            relation=options.relation,
        )
        found = dp.suggest_bounds(
            rows(all_events(source, unread)), count, sample=options.sample, **tried
        )
    if weak := weakness(budget):
        print(f"warning: {weak}")
    if noted := notes(source, files):
        print(*noted, sep="\n")
    if unread.reasons:
        print(*unread.lines(), sep="\n")
    ticks = f"{count.counter.horizon:,} ticks"
    print(f"{found}\n\nnoise at {budget}, {ticks}, {len(keys):,} keys, {options.relation}")
    print(f"least error (private, as it is chosen by the rows): {as_options(found.best.users)}")


def source_of(options: argparse.Namespace) -> formats.Source:
    """The rows as `ticks` reads them."""
    columns, measure = formats.counted(options.value, options.where)
    how = {name: getattr(options, name) for name in formats.SOURCE_OPTIONS}
    return formats.Source(options.input, columns=columns, measure=measure, per_tick=True, **how)


def tried_of(options: argparse.Namespace) -> dict[str, Any]:
    """The values to try, by the names of the library; a ParameterError for numbers out of range."""
    for name in ("per_user", "max_keys", "per_key"):
        for given in getattr(options, name) or ():
            check_whole(name, given)
    named = {"events": "per_user", "keys": "max_keys", "per_key": "per_key", "gap": "gap"}
    found = {name: x for name, given in named.items() if (x := getattr(options, given)) is not None}
    if options.per is not None:
        found["per"] = [None if text == "none" else text for text in options.per]
    return found


def rows(events: Iterator[Any]) -> Iterator[tuple[Any, ...]]:
    """(person, key, time, value) of each row of the files."""
    for timed in events:
        key, event = timed.value
        yield event.person, key, timed.timestamp, event.value


def as_options(users: Any) -> str:
    """A bound, as the commands that count take it."""
    given = f"--per-user {users.events} --per-key {users.per_key}"
    given += "" if users.keys is None else f" --max-keys {users.keys}"
    given += "" if users.per is None else f" --per {users.per}"
    return given + (f" --gap {users.micros / 10**6:.10g}" if users.micros else "")

"""The errors to expect, before any data: every mechanism that takes a budget, best first.

For counts after every row (--horizon), or at the ticks of a clock (--ticks), as `ticks`
chooses among them. With --relation, --bounds, --unit and --max-per-tick as they will be there.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace

import beam_dpcount as dp
from beam_dpcount.budget.budgets import Budget
from beam_dpcount.checks import check_whole
from beam_dpcount.commands import options as opt
from beam_dpcount.commands.files.formats import InputError
from beam_dpcount.counters.change import RELATIONS, Change, TickChange, check_unit
from beam_dpcount.dofns.clock import default_most

EXAMPLE = "beam-dpcount choose --horizon 20000 --epsilon 1 --delta 1e-6"

_BUDGETS: tuple[Budget, ...] = (dp.PureDP(1.0), dp.ApproxDP(1.0, 1e-6), dp.ZCDP(0.5))
_HORIZONS = (1_000, 100_000, 10_000_000)


def arguments() -> opt.Parser:
    parser = opt.Parser("choose", __doc__, EXAMPLE)
    opt.add_budget(parser, "all releases of one key (--ticks: of all keys) together")
    count = parser.add_argument_group("counting")
    length = """
        --horizon T: the most elements of a key
        --ticks N: the number of ticks of the clock
    """
    opt.add(count.add_mutually_exclusive_group(), length)
    opt.add_bounds(count)
    counting = f"""
        --relation {{{",".join(RELATIONS)}}}: what is protected (default replace_one; with --ticks
          add_remove)
        --max-per-tick N: with --ticks: the sum of a key's rows in one tick is clipped to N times
          the largest value (default 2^20, or less where 64 bits would not hold all sums)
        --max-items B: with --ticks: the most keys that one row counts under (default 1)
    """
    opt.add(count, counting)
    choice = """
        --objective {max,mean}: compare the largest or the mean variance of a release (default max)
        --max-state N: the most numbers kept per key (default: any)
        --replays: only mechanisms that a streaming run may use, whose runner replays work
        --markdown: print the table of docs/choosing.md
    """
    opt.add(parser.add_argument_group("choice"), choice, objective={"default": "max"})
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command; mistakes in the options are ValueErrors or TypeErrors."""
    options = arguments().parse_ours(argv)
    if options.markdown:
        print(table())
        return
    steps = options.horizon if options.ticks is None else options.ticks
    if steps is None:
        raise InputError("give --horizon, the most elements that any key will have, or --ticks")
    budget = opt.budget_of(options)
    with opt.named_as_options(options):
        change = change_of(options)
        how = options.objective, options.max_state, options.replays
        choice = dp.choose(steps, budget, *how, change, unit=options.unit)
    what = "horizon" if options.ticks is None else "ticks"
    print(f"{budget}, {what} {steps:,}, {change}; standard deviations of a release")
    print(choice)
    print()
    print(choice.explain())


def change_of(options: argparse.Namespace) -> Change:
    """What one row can change."""
    low, high = options.bounds
    given = [n for n in ("ticks", "max_per_tick", "max_items") if getattr(options, n) is not None]
    if options.ticks is None:
        for name in given:
            raise InputError(f"{opt.option(name)} goes with --ticks, not --horizon")
        change = Change(low, high, options.relation or "replace_one")
        check_unit(options.unit, change)
        return change
    for name in given:
        check_whole(name, getattr(options, name))
    items = 1 if options.max_items is None else options.max_items
    ticks = TickChange(low, high, options.relation or "add_remove", max_items=items)
    unit = check_unit(options.unit, ticks)
    most = options.max_per_tick
    if most is None:
        most = default_most(ticks.magnitude(unit), options.ticks)
    return replace(ticks, most=most)


def table() -> str:
    """The best mechanism by budget and horizon, as Markdown."""
    rows = [["budget", *(f"horizon {h:,}" for h in _HORIZONS)]]
    for budget in _BUDGETS:
        best = [dp.choose(horizon, budget).rows[0] for horizon in _HORIZONS]
        rows.append([f"{budget}", *(f"{b.mechanism.name} {b.max_stddev:.3g}" for b in best)])
    head, *lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([head, "|---|" + "---|" * len(_HORIZONS), *lines])

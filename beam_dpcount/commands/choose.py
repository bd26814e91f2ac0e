"""The errors to expect, before any data: every mechanism that takes a budget, best first.

For counts after every row (--horizon), or at the ticks of a clock (--ticks), as `ticks`
chooses among them. With --relation, --bounds, --unit and --max-per-tick as they will be there.
"""

from __future__ import annotations

from collections.abc import Sequence

import beam_dpcount as dp
from beam_dpcount.arguments.argument import parsed
from beam_dpcount.arguments.table import applying
from beam_dpcount.budget.budgets import Budget
from beam_dpcount.commands import changes
from beam_dpcount.commands import options as opt

EXAMPLE = "beam-dpcount choose --horizon 20000 --epsilon 1 --delta 1e-6"

_BUDGETS: tuple[Budget, ...] = (dp.PureDP(1.0), dp.ApproxDP(1.0, 1e-6), dp.ZCDP(0.5))
_HORIZONS = (1_000, 100_000, 10_000_000)


OWN = (
    *changes.STEPS,
    *parsed(
        "choice",
        """
        objective {max,mean}: text, default=max
            compare the largest or the mean variance of a release (default max)
        max_state N: whole, example=1000
            the most numbers kept per key (default: any)
        replays: switch
            only mechanisms that a streaming run may use, whose runner replays work
        markdown: switch
            print the table of docs/choosing.md
        """,
    ),
)


def arguments() -> opt.Parser:
    covers = "privacy budget, for all releases of one key (--ticks: of all keys) together"
    return opt.Parser("choose", __doc__, EXAMPLE, applying("numbers", OWN), {"budget": covers})


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command; mistakes in the options are ValueErrors or TypeErrors."""
    options = arguments().parse_ours(argv)
    if options.markdown:
        print(table())
        return
    steps = changes.steps_of(options)
    budget = opt.budget_of(options)
    with opt.named_as_options(options):
        change = changes.change_of(options)
        how = options.objective, options.max_state, options.replays
        choice = dp.choose(steps, budget, *how, change, unit=options.unit)
    what = "horizon" if options.ticks is None else "ticks"
    print(f"{budget}, {what} {steps:,}, {change}; standard deviations of a release")
    print(choice)
    print()
    print(choice.explain())


def table() -> str:
    """The best mechanism by budget and horizon, as Markdown."""
    rows = [["budget", *(f"horizon {h:,}" for h in _HORIZONS)]]
    for budget in _BUDGETS:
        best = [dp.choose(horizon, budget).rows[0] for horizon in _HORIZONS]
        rows.append([f"{budget}", *(f"{b.mechanism.name} {b.max_stddev:.3g}" for b in best)])
    head, *lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([head, "|---|" + "---|" * len(_HORIZONS), *lines])

"""The errors to expect, before any data: every mechanism that takes a budget, best first."""

from __future__ import annotations

from collections.abc import Sequence

import beam_dpcount as dp
from beam_dpcount import cli
from beam_dpcount.budget import Budget

_BUDGETS: tuple[Budget, ...] = (dp.PureDP(1.0), dp.ApproxDP(1.0, 1e-6), dp.ZCDP(0.5))
_HORIZONS = (1_000, 100_000, 10_000_000)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command."""
    parser = cli.Parser(prog="python -m pipelines.choose", description=__doc__, allow_abbrev=False)
    cli.add_budget_arguments(parser)
    parser.add_argument("--horizon", type=cli.whole, metavar="T", help="the most elements of a key")
    parser.add_argument(
        "--objective",
        choices=("max", "mean"),
        default="max",
        help="compare the largest or the mean variance of a release (default max)",
    )
    parser.add_argument(
        "--max-state", type=int, metavar="N", help="the most numbers kept per key (default: any)"
    )
    parser.add_argument("--markdown", action="store_true", help="print the README's table instead")
    options = parser.parse_args(argv)
    if options.markdown:
        print(table())
        return
    if options.horizon is None:
        raise ValueError("give --horizon, the most elements that any key will have")
    budget = cli.budget_of(options)
    choice = dp.choose(options.horizon, budget, options.objective, options.max_state)
    print(f"{budget}, horizon {options.horizon:,}; standard deviations of a release")
    print(choice)


def table() -> str:
    """The best mechanism by budget and horizon, as Markdown."""
    lines = [
        "| budget | " + " | ".join(f"horizon {h:,}" for h in _HORIZONS) + " |",
        "|---|" + "---|" * len(_HORIZONS),
    ]
    for budget in _BUDGETS:
        cells = []
        for horizon in _HORIZONS:
            best = dp.choose(horizon, budget).rows[0]
            cells.append(f"{best.mechanism.name} {best.max_stddev:.3g}")
        lines.append(f"| {budget} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    cli.run_main(main)

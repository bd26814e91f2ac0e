"""Comparisons of the mechanisms, as tables and pictures: each experiment writes a CSV and PNGs.

Exact where errors have closed forms; measured on made-up data for the time-bounded mechanisms.
A new experiment is one entry in EXPERIMENTS: rows, pictures of them, and a headline.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

import beam_dpcount as dp
from beam_dpcount import cli
from beam_dpcount.budget import Budget
from beam_dpcount.mechanisms import (
    BinaryTree,
    Honaker,
    KAry,
    Mechanism,
    Simple1,
    Simple2,
    SmoothBinary,
    TwoLevel,
)
from pipelines import plots

T = TypeVar("T")
Row = dict[str, Any]
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Picture:
    """One PNG: what `plots.lines` draws. Its file is <experiment><suffix>.png."""

    series: Mapping[str, Sequence[npt.ArrayLike]]
    title: str
    xlabel: str
    ylabel: str
    footer: str | None = None
    suffix: str = ""
    logx: bool = False
    logy: bool = False

    def save(self, path: str) -> None:
        """Write the PNG."""
        plots.lines(
            self.series,
            path,
            xlabel=self.xlabel,
            ylabel=self.ylabel,
            title=self.title,
            logx=self.logx,
            logy=self.logy,
            footer=self.footer,
        )


@dataclass(frozen=True)
class Experiment:
    """One comparison, in pure functions, but for the noise of those that measure.

    Args:
      rows: from whether a quick run is wanted to the table, all rows with the same columns.
      pictures: from the table to its pictures.
      headline: from the table to the figure worth a line.
    """

    rows: Callable[[bool], list[Row]]
    pictures: Callable[[list[Row]], list[Picture]]
    headline: Callable[[list[Row]], str]


def progress(items: Sequence[T], what: str) -> Iterator[T]:
    """The items one by one; on a terminal, shows how many of them are done."""
    for done, item in enumerate(items):
        _status(f"{what}: {done}/{len(items)}")
        yield item
    _status("")


def _status(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r{text:<60}\r", end="", file=sys.stderr, flush=True)


def select(rows: list[Row], **wanted: Any) -> list[Row]:
    """The rows that have these values."""
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


def distinct(rows: list[Row], name: str) -> list[Any]:
    """The values of a column, each once, as they come."""
    return list(dict.fromkeys(row[name] for row in rows))


def curves(rows: list[Row], label: str, *columns: str) -> dict[str, list[FloatArray]]:
    """The series of `plots.lines`: one for each value of the column `label`."""
    lines = {}
    for name in distinct(rows, label):
        own = select(rows, **{label: name})
        lines[name] = [np.array([row[column] for row in own], np.float64) for column in columns]
    return lines


_EPSILON = 1.0
_TRIALS = 25
_BLOCKS = (10, 25, 50, 100)
_WINDOWS = 100


def event_dp(quick: bool) -> list[Row]:
    """Time-bounded event-DP: measured errors of its four mechanisms, and TwoLevel's blocks."""
    rows = []
    for horizon in (1000,) if quick else (1000, 10_000):
        default = TwoLevel(horizon).size
        members: list[Mechanism] = [Simple2(horizon), BinaryTree(horizon)]
        members += [TwoLevel(horizon, block) for block in sorted({*_BLOCKS, default})]
        members.append(Simple1(horizon))  # last, so that pictures without it keep all colours
        for mechanism in progress(members, f"event-dp, T = {horizon:,}"):
            label = mechanism.name
            if isinstance(mechanism, TwoLevel):
                label += f", B = {mechanism.size}"
                label += " (default)" if mechanism.size == default else ""
            for window in measured(dp.PureDP(_EPSILON), mechanism):
                rows.append({"horizon": horizon, "mechanism": label, **window})
    return rows


def measured(budget: Budget, mechanism: Mechanism) -> Iterator[Row]:
    """Absolute errors on random bits, averaged over windows of steps and over trials."""
    horizon = mechanism.horizon
    # Made-up data, hence the fixed seed. Noise comes from release(): the system's entropy.
    bits = np.random.default_rng(2011).integers(0, 2, (horizon, _TRIALS))
    # The trials are the coordinates of a vector stream. They are separate runs, each on a stream
    # of its own, so an event changes one of them, and one gets the noise that it would get alone.
    # A vector that one event can fill would need all coordinates.
    counter = dp.calibrate(mechanism, budget, dp.Change(coordinates=1), dimension=_TRIALS)
    errors = np.abs(counter.release(bits) - np.cumsum(bits, axis=0))
    # Neighbouring steps share noise, trials do not: the spread is that of the trials.
    size = horizon // _WINDOWS
    averages = errors.reshape(_WINDOWS, size, _TRIALS).mean(axis=1)
    variances = (counter.stddevs(horizon) ** 2).reshape(_WINDOWS, size).mean(axis=1)
    for i, trials in enumerate(averages):
        p10, p90 = np.quantile(trials, [0.1, 0.9]).tolist()
        yield {
            "first_step": i * size + 1,
            "last_step": (i + 1) * size,
            "mean_absolute_error": float(trials.mean()),
            "standard_error": float(trials.std(ddof=1) / np.sqrt(_TRIALS)),
            "p10": p10,
            "p90": p90,
            "exact_stddev": float(np.sqrt(variances[i])),
        }


def event_dp_pictures(rows: list[Row]) -> list[Picture]:
    """Three for each horizon: the four mechanisms, the same without Simple1, TwoLevel's blocks."""
    pictures = []
    for horizon in distinct(rows, "horizon"):
        at = select(rows, horizon=horizon)
        averages = curves(at, "mechanism", "last_step", "mean_absolute_error", "standard_error")
        size = horizon // _WINDOWS
        four: dict[str, list[FloatArray]] = {}
        blocks: dict[str, list[FloatArray]] = {}
        # Within a block errors rise from the step at its end: averaged away, to compare blocks.
        wide = max(100, horizon // 20) // size
        for name, (steps, error, spread) in averages.items():
            if name.startswith("TwoLevel"):
                blocks[name] = [steps[wide - 1 :: wide], error.reshape(-1, wide).mean(axis=1)]
            # Of TwoLevel, the blog's B = 10 and the default, which [CSS11] recommends.
            if not name.startswith("TwoLevel") or name.endswith(("B = 10", "(default)")):
                four[name] = [steps, error, 1.96 * spread]
        near = {name: curve for name, curve in four.items() if name != "Simple1"}
        setting = f"T = {horizon:,}, epsilon = {_EPSILON:g} (pure), {_TRIALS} trials"
        title = f"Time-bounded event-DP: {setting}"
        axes = ("time t (steps)", "mean absolute error (counts)")
        footer = "Measured on random bits; each point averages the {:,} steps before it.".format
        bands = footer(size) + " Bands: 1.96 standard errors of the average over trials."
        pictures += [
            Picture(four, title, *axes, bands, f"-{horizon}", logy=True),
            Picture(near, title, *axes, bands, f"-{horizon}-without-simple1"),
            Picture(
                blocks,
                f"TwoLevel, blocks of B items: {setting}",
                *axes,
                footer(size * wide),
                f"-{horizon}-blocks",
            ),
        ]
    return pictures


def event_dp_headline(rows: list[Row]) -> str:
    """Errors averaged over all steps of the longest horizon."""
    horizon = rows[-1]["horizon"]
    lines = curves(select(rows, horizon=horizon), "mechanism", "mean_absolute_error")
    errors = sorted((float(y.mean()), name) for name, (y,) in lines.items())
    shown = "; ".join(f"{name} {error:.4g}" for error, name in errors)
    return f"mean absolute error at T = {horizon:,}: {shown}"


_HALF = dp.ZCDP(0.5)  # then sigma^2 = Delta_2^2
_TREES: dict[str, Callable[[int], Mechanism]] = {
    "BinaryTree": BinaryTree,
    "SmoothBinary": SmoothBinary,
    "SmoothBinary, balanced": lambda horizon: SmoothBinary(horizon, balanced=True),
    "Honaker": Honaker,
}
_VARIANCE = "variance (counts²)"


def over_time(quick: bool) -> list[Row]:
    """Exact variance of each release of the binary trees at T = 250, rho = 1/2."""
    horizon = 250
    rows = []
    for name, tree in _TREES.items():
        counter = dp.calibrate(tree(horizon), _HALF)
        for step in range(1, horizon + 1):
            rows.append({"mechanism": name, "step": step, "variance": counter.variance(step)})
    return rows


def over_time_pictures(rows: list[Row]) -> list[Picture]:
    """Three over all steps, and all four over the first of them."""
    three = curves(
        [row for row in rows if row["mechanism"] != "Honaker"], "mechanism", "step", "variance"
    )
    first = curves([row for row in rows if row["step"] <= 64], "mechanism", "step", "variance")
    title = "Variance of each release: T = 250, rho = 1/2 (zCDP)"
    axes = ("time t (steps)", _VARIANCE, "Exact, not measured.")
    return [
        Picture(three, title, *axes),
        Picture(first, title + ", first 64 steps", *axes, "-first"),
    ]


def over_time_headline(rows: list[Row]) -> str:
    """The range of each."""
    lines = curves(rows, "mechanism", "variance")
    return "variances " + "; ".join(
        f"{n} {y.min():.4g} to {y.max():.4g}" for n, (y,) in lines.items()
    )


_AP23_HORIZON = 10_400_599  # the last T of the figure in [AP23]: C(26, 13) - 1


def against_horizon(quick: bool) -> list[Row]:
    """Exact largest variance of the binary trees against T, rho = 1/2."""
    horizons = {_AP23_HORIZON, *np.rint(np.geomspace(2, 1 << 24, 50 if quick else 400)).tolist()}
    horizons |= {(1 << i) - below for i in range(2, 25) for below in (0, 1)}
    rows = []
    for horizon in progress(sorted(map(int, horizons)), "variance-against-horizon"):
        for name, tree in _TREES.items():
            variance = dp.calibrate(tree(horizon), _HALF).max_variance()
            rows.append({"mechanism": name, "horizon": horizon, "largest_variance": variance})
    return rows


def against_horizon_pictures(rows: list[Row]) -> list[Picture]:
    """All in one."""
    series = curves(rows, "mechanism", "horizon", "largest_variance")
    title = "Largest variance of a release: rho = 1/2 (zCDP)"
    axes = ("horizon T (steps)", "largest " + _VARIANCE, "Exact, not measured.")
    return [Picture(series, title, *axes, logx=True)]


def against_horizon_headline(rows: list[Row]) -> str:
    """How much balancing saves, at the horizon for which [AP23] says 3.27."""
    at = {row["mechanism"]: row["largest_variance"] for row in select(rows, horizon=_AP23_HORIZON)}
    ratio = at["BinaryTree"] / at["SmoothBinary, balanced"]
    return f"at T = {_AP23_HORIZON:,} BinaryTree has {ratio:.2f} x the balanced tree's variance"


_LARGEST_ARITY = 61
_UNIFORM = ("one k, with subtraction", "one k, without subtraction")
_MIXED = "mixed radices (default)"


def arity(quick: bool) -> list[Row]:
    """Mean squared error × epsilon² of k-ary trees against k, for continuous Laplace noise."""
    rows = []
    for horizon in (1000, 1_000_000):
        for k in range(2, _LARGEST_ARITY + 1):
            trees: dict[str, Mechanism] = {
                _UNIFORM[1]: KAry(horizon, k, subtraction=False),
                _MIXED: KAry(horizon),
                "BinaryTree": BinaryTree(horizon),
            }
            if k % 2:
                trees[_UNIFORM[0]] = KAry(horizon, k)
            for name, tree in trees.items():
                # Laplace noise of scale Delta_1 / epsilon has variance 2 (Delta_1 / epsilon)^2.
                error = 2 * tree.l1_sensitivity**2 * tree.mean_row_norm2()
                rows.append({"horizon": horizon, "tree": name, "arity": k, "error": error})
    return rows


def arity_pictures(rows: list[Row]) -> list[Picture]:
    """One for each horizon."""
    return [
        Picture(
            curves(select(rows, horizon=horizon), "tree", "arity", "error"),
            f"k-ary trees: T = {horizon:,}, pure epsilon",
            "arity k (children of a node)",
            "mean squared error × ε² (counts²)",
            f"Exact, for continuous Laplace noise. {_best_arity(rows, horizon).capitalize()}.",
            f"-{horizon}",
        )
        for horizon in distinct(rows, "horizon")
    ]


def arity_headline(rows: list[Row]) -> str:
    """The best arity, and what mixing radices saves."""
    horizons = distinct(rows, "horizon")
    return "; ".join(f"T = {horizon:,}: {_best_arity(rows, horizon)}" for horizon in horizons)


def _best_arity(rows: list[Row], horizon: int) -> str:
    at = select(rows, horizon=horizon)
    best = min((row for row in at if row["tree"] in _UNIFORM), key=lambda row: row["error"])
    mixed, binary = (select(at, tree=name)[0]["error"] for name in (_MIXED, "BinaryTree"))
    return (
        f"best single arity {best['arity']}, error {best['error']:.2f} "
        f"(mixed radices {mixed:.2f}, binary tree {binary:.2f})"
    )


_BUDGETS: dict[str, Budget] = {
    "pure": dp.PureDP(1.0),
    "approximate": dp.ApproxDP(1.0, 1e-6),
    "zcdp": dp.ZCDP(0.5),
}


def members(quick: bool) -> list[Row]:
    """Exact largest standard deviation of every mechanism against T, for three budgets."""
    horizons = [round(2 ** (e / 2)) for e in (range(4, 33, 4) if quick else range(2, 41))]
    rows = []
    for name, budget in _BUDGETS.items():
        for horizon in progress(horizons, f"members, {budget}"):
            for row in dp.choose(horizon, budget).rows:
                rows.append(
                    {
                        "budget": name,
                        "mechanism": row.mechanism.name,
                        "noise": type(row.counter.law).__name__,
                        "horizon": horizon,
                        "max_stddev": row.max_stddev,
                        "mean_stddev": row.mean_stddev,
                        "state_size": row.state_size,
                    }
                )
    return rows


def members_pictures(rows: list[Row]) -> list[Picture]:
    """One for each budget; a mechanism looks the same in all, so absent ones hold their place."""
    footer = "Exact, with each mechanism's default parameters and the better of its noise laws."
    pictures = []
    for name, budget in _BUDGETS.items():
        taking = curves(select(rows, budget=name), "mechanism", "horizon", "max_stddev")
        series: dict[str, Sequence[npt.ArrayLike]] = {}
        for kind in dp.mechanisms.ALL:
            if kind.__name__ in taking:
                series[kind.__name__] = taking[kind.__name__]
            else:
                series[f"({kind.__name__})"] = ([], [])
        pictures.append(
            Picture(
                series,
                f"Largest error of a release: {budget}",
                "horizon T (steps)",
                "largest standard deviation (counts)",
                footer + " In brackets: does not take this budget." * (len(taking) < len(series)),
                f"-{name}",
                logx=True,
                logy=True,
            )
        )
    return pictures


def members_headline(rows: list[Row]) -> str:
    """The best at the longest horizon."""
    horizon = max(row["horizon"] for row in rows)
    parts = []
    for name, budget in _BUDGETS.items():
        best = min(select(rows, budget=name, horizon=horizon), key=lambda row: row["max_stddev"])
        parts.append(f"{best['mechanism']} {best['max_stddev']:.4g} for {budget}")
    return f"least largest standard deviation at T = {horizon:,}: " + "; ".join(parts)


EXPERIMENTS = {
    "event-dp": Experiment(event_dp, event_dp_pictures, event_dp_headline),
    "variance-over-time": Experiment(over_time, over_time_pictures, over_time_headline),
    "variance-against-horizon": Experiment(
        against_horizon, against_horizon_pictures, against_horizon_headline
    ),
    "arity": Experiment(arity, arity_pictures, arity_headline),
    "members": Experiment(members, members_pictures, members_headline),
}


def run(name: str, directory: str, quick: bool) -> str:
    """Run one experiment and write its files: a line with the headline and their paths."""
    experiment = EXPERIMENTS[name]
    rows = experiment.rows(quick)
    paths = [os.path.join(directory, f"{name}.csv")]
    with open(paths[0], "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    for picture in progress(experiment.pictures(rows), f"{name}, pictures"):
        paths.append(os.path.join(directory, f"{name}{picture.suffix}.png"))
        picture.save(paths[-1])
    return f"{name}: {experiment.headline(rows)} [{' '.join(paths)}]"


def arguments() -> argparse.ArgumentParser:
    """The options of the command."""
    table = "\n".join(f"  {name:<26}{e.rows.__doc__}" for name, e in EXPERIMENTS.items())
    parser = argparse.ArgumentParser(
        prog="python -m pipelines.compare",
        description=__doc__,
        epilog=f"experiments:\n{table}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--quick", action="store_true", help="fewer points, in seconds")
    parser.add_argument("--directory", default="out/compare", help="default %(default)s")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="only these experiments")
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command.

    Raises:
      ValueError: an unknown experiment, or a directory that cannot be written to.
    """
    options = arguments().parse_args(argv)
    names = list(dict.fromkeys(options.only or EXPERIMENTS))
    for name in names:
        if name not in EXPERIMENTS:
            raise ValueError(f"unknown experiment {name!r}: choose from {', '.join(EXPERIMENTS)}")
    try:
        os.makedirs(options.directory, exist_ok=True)
        with tempfile.TemporaryFile(dir=options.directory):
            pass
    except OSError as error:
        reason = error.strerror or "not possible"
        raise ValueError(f"cannot write to --directory {options.directory!r}: {reason}") from None
    for name in names:
        print(run(name, options.directory, options.quick), flush=True)


if __name__ == "__main__":
    cli.run_main(main)

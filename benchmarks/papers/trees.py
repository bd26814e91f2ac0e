"""Comparisons of the mechanisms whose noise is added to nodes of trees, or to items and blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

import beam_dpcount as dp
from beam_dpcount.budget.budgets import Budget
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
from benchmarks.papers import base
from benchmarks.papers.base import HALF, VARIANCE, FloatArray, Output, Row

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
        for mechanism in base.progress(members, f"event-dp, T = {horizon:,}"):
            label = mechanism.name
            if isinstance(mechanism, TwoLevel):
                label += f", B = {mechanism.size}"
                label += " (default)" if mechanism.size == default else ""
            windows = measured(dp.PureDP(_EPSILON), mechanism)
            rows += [{"horizon": horizon, "mechanism": label, **window} for window in windows]
    return rows


def measured(budget: Budget, mechanism: Mechanism) -> Iterator[Row]:
    """Absolute errors on random bits, averaged over windows of steps and over trials."""
    horizon = mechanism.horizon
    # Made-up data, hence the fixed seed. Noise comes from release(): the system's entropy.
    bits = np.random.default_rng(2011).integers(0, 2, (horizon, _TRIALS))
    # The trials are the coordinates of a vector stream, yet separate runs: an event changes only
    # one of them, so each gets the noise that it would get alone.
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


def event_dp_pictures(rows: list[Row]) -> list[Output]:
    """Three for each horizon: the four mechanisms, the same without Simple1, TwoLevel's blocks."""
    pictures = []
    for horizon in base.distinct(rows, "horizon"):
        at, columns = base.select(rows, horizon=horizon), ("mean_absolute_error", "standard_error")
        averages = base.curves(at, "mechanism", "last_step", *columns)
        size = horizon // _WINDOWS
        four, blocks = dict[str, list[FloatArray]](), dict[str, list[FloatArray]]()
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
            base.picture(four, title, *axes, bands, f"-{horizon}", logy=True),
            base.picture(near, title, *axes, bands, f"-{horizon}-without-simple1"),
        ]
        texts = (f"TwoLevel, blocks of B items: {setting}", *axes, footer(size * wide))
        pictures.append(base.picture(blocks, *texts, f"-{horizon}-blocks"))
    return pictures


def event_dp_headline(rows: list[Row]) -> str:
    """Errors averaged over all steps of the longest horizon."""
    horizon = rows[-1]["horizon"]
    lines = base.curves(base.select(rows, horizon=horizon), "mechanism", "mean_absolute_error")
    errors = sorted((float(y.mean()), name) for name, (y,) in lines.items())
    shown = "; ".join(f"{name} {error:.4g}" for error, name in errors)
    return f"mean absolute error at T = {horizon:,}: {shown}"


_TREES: dict[str, Callable[[int], Mechanism]] = {
    "BinaryTree": BinaryTree,
    "SmoothBinary": SmoothBinary,
    "SmoothBinary, balanced": lambda horizon: SmoothBinary(horizon, balanced=True),
    "Honaker": Honaker,
}


def over_time(quick: bool) -> list[Row]:
    """Exact variance of each release of the binary trees at T = 250, rho = 1/2."""
    horizon = 250
    counters = {name: dp.calibrate(tree(horizon), HALF) for name, tree in _TREES.items()}
    return [
        {"mechanism": name, "step": step, "variance": counter.variance(step)}
        for name, counter in counters.items()
        for step in range(1, horizon + 1)
    ]


def over_time_pictures(rows: list[Row]) -> list[Output]:
    """Three over all steps, and all four over the first of them."""
    all_steps = base.curves(rows, "mechanism", "step", "variance")
    three = {name: line for name, line in all_steps.items() if name != "Honaker"}
    first = {name: [column[:64] for column in line] for name, line in all_steps.items()}
    title = "Variance of each release: T = 250, rho = 1/2 (zCDP)"
    axes = ("time t (steps)", VARIANCE, "Exact, not measured.")
    return [
        base.picture(three, title, *axes),
        base.picture(first, title + ", first 64 steps", *axes, "-first"),
    ]


def over_time_headline(rows: list[Row]) -> str:
    """The range of each."""
    lines = base.curves(rows, "mechanism", "variance")
    ranges = (f"{name} {y.min():.4g} to {y.max():.4g}" for name, (y,) in lines.items())
    return "variances " + "; ".join(ranges)


_AP23_HORIZON = 10_400_599  # the last T of the figure in [AP23]: C(26, 13) - 1


def against_horizon(quick: bool) -> list[Row]:
    """Exact largest variance of the binary trees against T, rho = 1/2."""
    horizons = {_AP23_HORIZON, *np.rint(np.geomspace(2, 1 << 24, 50 if quick else 400)).tolist()}
    horizons |= {(1 << i) - below for i in range(2, 25) for below in (0, 1)}
    rows = []
    for horizon in base.progress(sorted(map(int, horizons)), "variance-against-horizon"):
        for name, tree in _TREES.items():
            variance = dp.calibrate(tree(horizon), HALF).max_variance()
            rows.append({"mechanism": name, "horizon": horizon, "largest_variance": variance})
    return rows


def against_horizon_pictures(rows: list[Row]) -> list[Output]:
    """All in one."""
    series = base.curves(rows, "mechanism", "horizon", "largest_variance")
    title = "Largest variance of a release: rho = 1/2 (zCDP)"
    axes = ("horizon T (steps)", "largest " + VARIANCE, "Exact, not measured.")
    return [base.picture(series, title, *axes, logx=True)]


def against_horizon_headline(rows: list[Row]) -> str:
    """How much balancing saves, at the horizon for which [AP23] says 3.27."""
    own = base.select(rows, horizon=_AP23_HORIZON)
    at = {row["mechanism"]: row["largest_variance"] for row in own}
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


def arity_pictures(rows: list[Row]) -> list[Output]:
    """One for each horizon."""
    pictures, axes = [], ("arity k (children of a node)", "mean squared error × ε² (counts²)")
    for horizon in base.distinct(rows, "horizon"):
        series = base.curves(base.select(rows, horizon=horizon), "tree", "arity", "error")
        best = _best_arity(rows, horizon).capitalize()
        title = f"k-ary trees: T = {horizon:,}, pure epsilon"
        footer = f"Exact, for continuous Laplace noise. {best}."
        pictures.append(base.picture(series, title, *axes, footer, f"-{horizon}"))
    return pictures


def arity_headline(rows: list[Row]) -> str:
    """The best arity, and what mixing radices saves."""
    horizons = base.distinct(rows, "horizon")
    return "; ".join(f"T = {horizon:,}: {_best_arity(rows, horizon)}" for horizon in horizons)


def _best_arity(rows: list[Row], horizon: int) -> str:
    at = base.select(rows, horizon=horizon)
    best = min((row for row in at if row["tree"] in _UNIFORM), key=lambda row: row["error"])
    mixed, binary = (base.select(at, tree=name)[0]["error"] for name in (_MIXED, "BinaryTree"))
    return (
        f"best single arity {best['arity']}, error {best['error']:.2f} "
        f"(mixed radices {mixed:.2f}, binary tree {binary:.2f})"
    )

"""Errors of TickCount's quantiles and means beside other ways to the same, at one budget.

Quantiles: at the end of a stream, of 1,000 ticks at each of which they are released, beside a tree
of buckets that is released once, when all is over: of the shape that PipelineDP has (Google's
quantile tree: 16 children, 4 levels; found from the top, negative counts taken for 0), and of our
own. Means: beside a sum and a count that get half of the budget each. Noise is the library's own.

    python -m benchmarks.aggregates
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

import beam_dpcount as dp
from beam_dpcount.budget.budgets import noise_laws
from beam_dpcount.mechanisms import BinaryTree
from beam_dpcount.mechanisms.base import FloatArray
from beam_dpcount.statistics.metrics import Mean, Quantiles
from beam_dpcount.statistics.metrics.joint import Joint

TICKS, HIGH = 1000, 5.0
Q = (0.5, 0.95)
SIZES = (1_000, 10_000, 100_000)
BUDGETS: dict[str, Any] = {
    "epsilon 1, delta 1e-6": dp.ApproxDP(1.0, 1e-6),
    "rho 0.1": dp.ZCDP(0.1),
    "epsilon 1": dp.PureDP(1.0),
}
RUNS = 200
CHILDREN, LEVELS = 16, 4


def latencies(n: int) -> FloatArray:
    """Made up: a gamma law, in seconds, as most services have."""
    return np.clip(np.random.default_rng(1).gamma(2, 0.3, n), 0, HIGH)


def noise_of(budget: Any, levels: int) -> Any:
    """The law of one draw where an event is in so many buckets, once."""

    laws = noise_laws(budget, Fraction(levels), Fraction(levels), BinaryTree(1).laws)
    return min(laws, key=lambda law: law.variance)


def one_shot(xs: FloatArray, budget: Any) -> Callable[[], list[float]]:
    """Quantiles of a tree of 16^4 leaves that is released once, from the top down."""
    leaves = np.minimum((xs / HIGH * CHILDREN**LEVELS).astype(np.int64), CHILDREN**LEVELS - 1)
    counts = [
        np.bincount(leaves // CHILDREN ** (LEVELS - level), minlength=CHILDREN**level)
        for level in range(1, LEVELS + 1)
    ]
    law = noise_of(budget, LEVELS)

    def released() -> list[float]:
        noisy = [np.maximum(count + law.sample(len(count)), 0) for count in counts]
        return [walked(noisy, q) for q in Q]

    return released


def walked(noisy: list[Any], q: float) -> float:
    node, rank = 0, q
    for count in noisy:
        children = count[node * CHILDREN : (node + 1) * CHILDREN]
        total = children.sum()
        if total == 0:
            break
        upto = np.cumsum(children) / total
        child = int(np.searchsorted(upto, rank))
        child = min(child, CHILDREN - 1)
        before = upto[child - 1] if child else 0.0
        share = children[child] / total
        rank = min(max((rank - before) / share, 0.0), 1.0) if share else 0.5
        node = node * CHILDREN + child
        level_size = len(count)
    return float((node + rank) / level_size * HIGH)


def sums_of(joint: Joint, xs: FloatArray) -> Any:
    total = np.zeros(joint.width, dtype=np.int64)
    for x in xs.tolist():
        for place, amount in joint.additions({"x": x}):
            total[place] += amount
    return total


def ours(xs: FloatArray, budget: Any, ticks: int) -> tuple[Callable[[], list[float]], Any]:
    """Quantiles at the last tick of a TickCount, with one release at each of so many."""
    made = dp.TickCount(budget, dp.Clock(1, 0, ticks), Quantiles("x", 0, HIGH, Q), keys=["a"])
    joint, counter = made.engine.joint, made.counter
    exact, stddev = sums_of(joint, xs), counter.stddevs(ticks)[-1]

    def released() -> list[float]:
        # A sum of many draws is as good as normal, and this is no release of anyone's data.
        noisy = exact + stddev * np.random.default_rng().standard_normal((1, len(exact)))
        said = joint.measure(noisy, np.array([stddev]), lambda level: np.zeros(1), 0.5)
        return [float(x) for x in said.values[0]]

    return released, joint.metrics[0]


def rank_errors(xs: FloatArray, released: Callable[[], list[float]]) -> list[float]:
    """Root mean squares of how many events a quantile is off, of each."""
    ordered = np.sort(xs)
    found = np.array([released() for _ in range(RUNS)])
    ranks = np.searchsorted(ordered, np.nan_to_num(found))
    return [float(np.sqrt(np.mean((ranks[:, i] - q * len(xs)) ** 2))) for i, q in enumerate(Q)]


def quantiles() -> None:
    print("| budget | events | quantile | one-shot, 16^4 | one-shot, ours | ours | factor |")
    print("|---|---|---|---|---|---|---|")
    for name, budget in BUDGETS.items():
        for n in SIZES:
            xs = latencies(n)
            once = rank_errors(xs, one_shot(xs, budget))
            own = rank_errors(xs, ours(xs, budget, 1)[0])
            ticking = rank_errors(xs, ours(xs, budget, TICKS)[0])
            for i, q in enumerate(Q):
                figures = f"{once[i]:.0f} | {own[i]:.0f} | {ticking[i]:.0f}"
                factor = ticking[i] / once[i]
                print(f"| {name} | {n:,} | {q:g} | {figures} | {factor:.1f} |")


def stddev_of_mean(budget: Any, at: float) -> tuple[float, float]:
    """Of n events, times n: of Mean at this mean, and of a sum over a count from equal shares.

    To first order, for a count that is known well: noise of the sum, and of the count times how far
    the mean is from the centre.
    """
    clock = dp.Clock(1, 0, TICKS)
    mean_of = dp.TickCount(budget, clock, Mean("x", 0, HIGH), keys=["a"])
    joint = mean_of.engine.joint
    count, total = (
        mean_of.counter.stddevs(TICKS)[-1] / multiplier for multiplier in joint.multipliers
    )
    (mean,) = (metric for metric in joint.metrics if isinstance(metric, Mean))
    one = math.hypot(total * mean.step, (at - mean.centre * mean.step) * count)
    ledger = dp.Ledger(budget)
    both = [
        dp.TickCount(ledger.share(0.5), clock, what, keys=["a"]).counter.stddevs(TICKS)[-1]
        for what in (dp.Count(), dp.Sum(low=0, high=HIGH, unit=mean.step))
    ]
    return one, math.hypot(both[1], at * both[0])


def means() -> None:
    print("| budget | mean | Mean | Sum / Count | Sum / Count over Mean |")
    print("|---|---|---|---|---|")
    for name, budget in BUDGETS.items():
        for at in (0.0, 1.25, 2.5, 3.75, 5.0):
            one, two = stddev_of_mean(budget, at)
            print(f"| {name} | {at:g} | {one:.1f} | {two:.1f} | {two / one:.2f} |")


def main() -> None:
    quantiles()
    print()
    means()


if __name__ == "__main__":
    main()

"""The counter of `Sparse`, its error bound, and the choice of its segments."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from beam_dpcount.budget.budgets import ZCDP, ApproxDP, Budget, PureDP
from beam_dpcount.budget.costs import Cost, pure_cost
from beam_dpcount.checks import check_whole
from beam_dpcount.counters.change import Change, SegmentChange
from beam_dpcount.counters.counter import Counter, LatticeCounter, calibrate, calibrated
from beam_dpcount.counters.errors import check_level
from beam_dpcount.counters.largest import largest_error
from beam_dpcount.counters.unbounded import Part
from beam_dpcount.mechanisms.base import MAX_HORIZON, FloatArray, IntArray, State
from beam_dpcount.mechanisms.sparse import Sparse
from beam_dpcount.noise.entropy import Noise
from beam_dpcount.noise.laws import DiscreteLaplace


@dataclass(frozen=True)
class SparseCounter(LatticeCounter):
    """A calibrated `Sparse`, for scalar streams. Frozen; made by `calibrate`, not by hand."""

    mechanism: Sparse  # `law` is that of its thresholds
    comparison: DiscreteLaplace
    inner: Counter  # of segments

    horizon = None  # there is no last step, though there is a last segment

    @property
    def counters(self) -> int:
        return 3 + self.inner.counters  # t, draws, segments done, and the inner's

    def state_types(self, n: int) -> Sequence[str]:
        c, types = self.inner.counters, self.inner.state_types(n - 6)
        return [*"qqq", *types[:c], *"qqd", *types[c:]]

    @property
    def fingerprint(self) -> str:
        return repr((self.mechanism, self.law, self.inner.fingerprint))

    @property
    def state_size(self) -> int:
        """The most numbers kept per key, the step count included."""
        return 6 + self.inner.state_size

    def init(self) -> State:
        inner, c = self.inner.init(), self.inner.counters
        # Then the threshold (drawn at the first step), the gathered count, the last release.
        return (0, 0, 0, *inner[:c], 0, 0, 0.0, *inner[c:])

    def step_lattice(self, state: State, x: object, noise: Noise) -> tuple[State, Any]:
        c = self.counters
        t, drawn, done = state[0] + 1, state[1], state[2]
        threshold, gathered, out = state[c], state[c + 1] + x, state[c + 2]
        inner = (*state[3:c], *state[c + 3 :])
        if done < self.mechanism.segments:
            if t == 1:
                drawn += 1
                threshold = self._threshold(noise, drawn)
            drawn += 1
            if gathered + noise.for_law(self.comparison).one(drawn) >= threshold:
                before = drawn - self.inner.mechanism.draws(done)  # the inner counts its own from 1
                part = Part(noise.for_law(self.inner.law), before)
                most = self.inner.change.largest(self.unit)
                sums = min(max(gathered, -most), most)
                inner, value = self.inner.step_units(inner, sums, part)
                out, gathered, done = float(value), 0, done + 1
                drawn += part.drawn + 1
                threshold = self._threshold(noise, drawn)
        heads = c - 3
        state = (t, drawn, done, *inner[:heads], threshold, gathered, out, *inner[heads:])
        return state, float(out * self.unit)

    def _threshold(self, noise: Noise, coordinate: int) -> int:
        segment = round(self.mechanism.segment / self.unit)
        return int(segment + noise.for_law(self.law).one(coordinate))

    def release_lattice(self, xs: IntArray, noise: Noise) -> FloatArray:
        state, values = self.init(), np.zeros(len(xs))
        for i, x in enumerate(xs.tolist()):
            state, values[i] = self.step_lattice(state, x, noise)
        return values

    def variance(self, t: int) -> float:
        raise ValueError("Sparse has no exact variance: see error_bound(steps, level)")

    def stddevs(self, n: int) -> FloatArray:
        """NaN: a release's error is not only noise; see `error_bound`."""
        return np.full(n, math.nan)

    def stddevs_between(self, first: int, last: int) -> list[float]:
        return [math.nan] * (last + 1 - first)

    def stddev_at(self, state: State) -> float:
        return math.nan

    def slack(self, steps: int, level: float = 0.95) -> float:
        """The most that noise of thresholds and comparisons adds up to, with probability `level`.

        A union bound over `steps` comparisons and the thresholds, in the values' units.
        """
        miss = (1 - level) / 2
        return self.unit * (
            self.law.scale * math.log(2 * (self.mechanism.segments + 1) / miss)
            + self.comparison.scale * math.log(2 * steps / miss)
        )

    def error_bound(self, steps: int, level: float = 0.95) -> float:
        """A bound on the errors of the first `steps` releases at once, with probability `level`.

        It is segment + slack + the largest error of the counter of segments. It holds while
        segments last: for at least segments * (segment - slack) ones.
        """
        half = 1 - (1 - level) / 2
        of_segments = largest_error(self.inner, level=half)
        return self.mechanism.segment + self.slack(steps, half) + of_segments

    def costs(self) -> list[Cost]:
        epsilon = self.change.magnitude(self.unit) / self.comparison.parameter
        return [pure_cost(epsilon), *self.inner.costs()]

    def describe(self) -> Mapping[str, str]:
        segments = f"{self.mechanism.segments} segments of about {self.mechanism.segment}"
        return {
            **super().describe(),
            "mechanism": f"{self.mechanism.name}, {segments}",
            "noise": f"comparisons: DiscreteLaplace of scale {self.comparison.scale * self.unit:g}",
        }


@calibrated.register
def _(
    mechanism: Sparse, budget: Budget, change: Change, dimension: int | None, unit: float
) -> SparseCounter:
    if dimension is not None:
        raise ValueError("Sparse counts single numbers: leave dimension out")
    if type(change) is not Change:  # others may touch two segments, or change one by more
        raise ValueError(f"Sparse takes a plain Change, got {change!r}: use another mechanism")
    shares = [mechanism.share, 1 - mechanism.share]
    rest: Budget
    if isinstance(budget, ZCDP):
        first, rest = budget.split(shares)
        epsilon = math.sqrt(2 * first.rho) * (1 - 1e-12)  # epsilon-DP is epsilon^2/2-zCDP
    else:
        pure, rest = PureDP(budget.epsilon).split(shares)
        epsilon = pure.epsilon
        if isinstance(budget, ApproxDP):
            rest = ApproxDP(rest.epsilon, budget.delta)
    m = change.magnitude(unit)
    # Why these scales are enough: docs/proofs/unbounded_and_sparse.md, "Sparse".
    law = comparison = DiscreteLaplace(m / Fraction(epsilon))
    # Sums of segments exceed their threshold by little. Clipping one keeps its sensitivity.
    most = 16 * (math.ceil(mechanism.segment / unit) + m) + 64 * math.ceil(law.scale)
    sums = SegmentChange(change.low, change.high, change.relation, most=most)
    inner = calibrate(mechanism.counter(mechanism.segments), rest, sums, None, unit)
    return SparseCounter(mechanism, budget, law, change, None, unit, comparison, inner)


def sparse_for(
    ones: int, steps: int, budget: Budget, level: float = 0.95, share: float = 0.5
) -> Sparse:
    """The `Sparse` of least error bound for about this many ones.

    With probability `level` no segment has fewer than half its ones, so they suffice for `ones`.

    Args:
      ones: how many ones to expect; a public guess, not a count of the data.
      steps: how many steps, at least `ones`.
      budget: for the whole stream of one key; share: of it for finding the ends of segments.
      level: the probability with which the bound should hold.

    Raises:
      ValueError: ones is below 1, or above steps.
    """
    check_whole("steps", steps, MAX_HORIZON, "steps")
    check_whole("ones", ones, steps, "steps")
    check_level(level)

    def bound(segment: int) -> tuple[float, Sparse]:
        made = Sparse(segment, -(-2 * ones // segment), share=share)
        counter = calibrate(made, budget)
        safe = counter.slack(steps, level) <= segment / 2
        return (counter.error_bound(steps, level) if safe else math.inf), made

    # With one segment of twice its slack, and of all ones twice, a safe one is in the grid.
    slack = calibrate(Sparse(1, 1, share=share), budget).slack(steps, level)
    candidates = [bound(segment) for segment in _grid(4 * ones + math.ceil(4 * slack) + 10)]
    return min(candidates, key=lambda pair: pair[0])[1]


def _grid(top: int) -> list[int]:
    """Whole numbers up to `top`, 5 % apart."""
    grid, value = [], 1.0
    while value <= top:
        grid.append(round(value))
        value = max(value + 1, value * 1.05)
    return grid

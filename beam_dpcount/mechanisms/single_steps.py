"""Each step alone: what it counts, with fresh noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from beam_dpcount.mechanisms.base import FloatArray, IntArray, Mechanism, State
from beam_dpcount.mechanisms.workload import LastSteps, Workload
from beam_dpcount.noise.entropy import Noise


@dataclass(frozen=True)
class SingleSteps(Mechanism):
    """Fresh noise on every step, which is released alone: a sum over the last step.

    Guarantee: R = L = I, so that Delta_1 = Delta_2 = 1, and columns of two steps share nothing.
      Takes every budget. Variance of a release: that of one draw, however many steps there are.

    Source: by definition.
    """

    l1_sensitivity, l2_sensitivity_squared, state_size = 1, 1, 1
    unit_weights = goes_on = True

    @property
    def workload(self) -> Workload:
        return LastSteps(window=1)

    def lag_bounds(self, n: int) -> tuple[float, ...]:
        """Exact: two steps share nothing."""
        return tuple(int(d == 0) for d in range(n))

    def spaced_bounds(self, gap: int, n: int) -> tuple[float, ...]:
        return self.lag_bounds(n)

    def draws(self, n: int) -> int:
        return n

    def init(self, dimension: int | None = None) -> State:
        return (0,)

    def state_types(self, n: int) -> Sequence[str]:
        return "q" * n

    def step(self, state: State, x: IntArray, noise: Noise) -> tuple[State, IntArray]:
        t = self.next_step(state)
        return (t,), x + noise.one(t)

    def steps(self, state: State, xs: IntArray, noise: Noise) -> tuple[State, FloatArray]:
        t = self.check_steps(state[0] + len(xs))
        return (t,), (xs + noise.draw(state[0] + 1, len(xs))).astype(np.float64)

    def after(self, n: int, noise: Noise, dimension: int | None = None) -> State:
        return (self.check_steps(n),)

    def release(self, xs: IntArray, noise: Noise) -> IntArray:
        return np.asarray(xs + noise.draw(1, self.check_steps(len(xs))))

    def encoder(self, n: int) -> FloatArray:
        return np.eye(self.check_steps(n))

    def decoder(self, n: int) -> FloatArray:
        return np.eye(self.check_steps(n))

    def products(self, s: IntArray, lag: int) -> FloatArray:
        return np.zeros(len(s))

    def row_norm2(self, t: int) -> float:
        return 1

    def row_norms2(self, n: int) -> FloatArray:
        return np.ones(self.check_steps(n))

    def row_norms2_between(self, first: int, last: int) -> FloatArray:
        return np.ones(last - first + 1)

    def max_row_norm2(self) -> float:
        return 1

    def mean_row_norm2(self) -> float:
        return 1

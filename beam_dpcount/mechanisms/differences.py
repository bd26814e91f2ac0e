"""Sums over the last W steps as differences of prefix sums, under every budget."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from beam_dpcount.mechanisms.base import (
    FloatArray,
    IntArray,
    Mechanism,
    State,
    UnsupportedHorizonError,
    zero,
)
from beam_dpcount.mechanisms.simple import Simple2
from beam_dpcount.mechanisms.sliding_blt import check_window
from beam_dpcount.mechanisms.workload import LastSteps, Workload
from beam_dpcount.noise.entropy import Noise

_LONGEST = 1 << 12  # steps whose variances are computed one by one

# Of these are differences taken on clocks too long to compare all: their errors are in closed form.
LONG_INNERS: tuple[type[Mechanism], ...] = (Simple2,)


def sums_of_steps(horizon: int, window: int | None = None) -> Mechanism:
    """Sums of single steps, each with a draw of its own: of all so far, or the last W."""
    every = Simple2(horizon)
    return every if window is None else Differences(horizon, window, every)


@dataclass(frozen=True)
class Differences(Mechanism):
    """Sums over the last W steps: a prefix sum of another mechanism, less that W steps before.

    Args:
      horizon: that of `inner`.
      window: W, from 1 to 2^20 steps. Public.
      inner: the mechanism of prefix sums. A state holds its last W releases, too.

    Guarantee: R and the noise are those of `inner`, which all releases are made of. Takes the
      budgets that `inner` does. Variance of release t: that of one draw times the squared norm of
      the difference of rows t and t - W of the decoder of `inner`.

    Source: post-processing of the noised vector.
    """

    window: int
    inner: Mechanism

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "window", check_window(self.window))
        given: object = self.inner
        if not isinstance(given, Mechanism):
            raise TypeError(f"inner must be a mechanism, got {given!r}: give e.g. Simple2(horizon)")
        if type(self.inner) is not Simple2 and self.horizon > _LONGEST:
            raise UnsupportedHorizonError(
                f"Differences of {self.inner.name} take up to {_LONGEST:,} steps, got "
                f"{self.horizon:,}: give inner=Simple2(horizon), whose variance has a limit"
            )
        if self.inner.horizon != self.horizon or not self.inner.workload.is_prefix_sums:
            raise ValueError(
                f"inner must be a mechanism of prefix sums of horizon {self.horizon}, got "
                f"{self.inner!r}: give one of mechanisms.ALL"
            )

    @property
    def workload(self) -> Workload:
        return LastSteps(window=self.window)

    # What protects is that of `inner`.

    @property
    def fingerprint(self) -> str:
        return f"Differences({self.window}, {self.inner.fingerprint})"

    @property
    def laws(self) -> frozenset[str]:
        return self.inner.laws

    @property
    def draws_early(self) -> bool:
        return self.inner.draws_early

    @property
    def is_nonnegative(self) -> bool:  # type: ignore[override]
        return self.inner.is_nonnegative

    @property
    def counters(self) -> int:  # type: ignore[override]
        return self.inner.counters

    @property
    def is_quick(self) -> bool:
        return self.inner.is_quick

    @property
    def unit_weights(self) -> bool:  # type: ignore[override]
        return type(self.inner) is Simple2  # the last W draws, once each

    @property
    def l1_sensitivity(self) -> float:
        return self.inner.l1_sensitivity

    @property
    def l2_sensitivity_squared(self) -> float:
        return self.inner.l2_sensitivity_squared

    def draws(self, n: int) -> int:
        return self.inner.draws(n)

    def resolution(self, magnitude: int, largest: int | None = None) -> int:
        return self.inner.resolution(magnitude, largest)

    def within(self, largest: int, noise: float) -> Mechanism:
        return Differences(self.horizon, self.window, self.inner.within(largest, noise))

    def norms(self, magnitude: int, largest: int | None = None) -> tuple[Fraction, Fraction]:
        return self.inner.norms(magnitude, largest)

    def slack(self, largest: int) -> tuple[float, float]:
        return self.inner.slack(largest)

    def lag_bounds(self, n: int) -> tuple[float, ...]:
        return self.inner.lag_bounds(n)

    def spaced_bounds(self, gap: int, n: int) -> tuple[float, ...]:
        return self.inner.spaced_bounds(gap, n)

    def replay_safe(self) -> Mechanism:
        return Differences(self.horizon, self.window, self.inner.replay_safe())

    def encoder(self, n: int) -> FloatArray:
        return self.inner.encoder(n)

    # Its state is that of `inner`, and behind it the last W releases, that of step s at place
    # (s - 1) mod W.

    @property
    def _kept(self) -> int:
        return min(self.window, self.horizon)

    @property
    def state_size(self) -> int:
        return self.inner.state_size + self._kept

    def init(self, dimension: int | None = None) -> State:
        nothing = zero(dimension)
        empty = 0.0 if dimension is None else nothing.astype(np.float64)
        return (*self.inner.init(dimension), *(empty,) * self._kept)

    def state_types(self, n: int) -> Sequence[str]:
        return [*self.inner.state_types(n - self._kept), *"d" * self._kept]

    def step(self, state: State, x: Any, noise: Noise) -> tuple[State, Any]:
        before, last = state[: -self._kept], state[-self._kept :]
        after, value = self.inner.step(before, x, noise)
        place = (after[0] - 1) % self.window
        value = value * 1.0
        old = last[place]
        return (*after, *last[:place], value, *last[place + 1 :]), value - old

    def release(self, xs: IntArray, noise: Noise) -> Any:
        return self._differences(np.asarray(self.inner.release(xs, noise), dtype=np.float64))

    def decoder(self, n: int) -> FloatArray:
        return self._differences(self.inner.decoder(n))

    def _differences(self, sums: FloatArray) -> FloatArray:
        later = sums[self.window :] - sums[: -self.window]
        return np.concatenate([sums[: self.window], later])

    def _norms2(self, t: IntArray) -> FloatArray:
        if type(self.inner) is Simple2:  # the noise of the last W steps
            return np.minimum(t, self.window).astype(np.float64)
        norm: Callable[[int], float] = self.inner.row_norm2
        norms = np.array([norm(step) for step in t.tolist()], dtype=np.float64)
        both = t > self.window
        s = t[both] - self.window
        if len(s):
            earlier = np.array([norm(step) for step in s.tolist()], dtype=np.float64)
            norms[both] += earlier - 2 * self.inner.products(s, self.window)
        return np.maximum(norms, 0)

    def row_norm2(self, t: int) -> float:
        return float(self._norms2(np.array([t], dtype=np.int64))[0])

    def row_norms2(self, n: int) -> FloatArray:
        return self._norms2(np.arange(1, self.check_steps(n) + 1, dtype=np.int64))

    def max_row_norm2(self) -> float:
        if type(self.inner) is Simple2:
            return self._kept
        return float(self.row_norms2(self.horizon).max())

    def mean_row_norm2(self) -> float:
        if type(self.inner) is Simple2:
            return self._kept - self._kept * (self._kept - 1) / (2 * self.horizon)
        return float(self.row_norms2(self.horizon).mean())

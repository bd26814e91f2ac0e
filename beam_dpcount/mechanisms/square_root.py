"""The square-root factorization [FHU22, HUU23]: the best Toeplitz error, at memory O(T)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, ClassVar

import numpy as np

from beam_dpcount.mechanisms.base import (
    FloatArray,
    IntArray,
    State,
    UnsupportedHorizonError,
    owned,
    zero,
)
from beam_dpcount.mechanisms.rounded import ULP, WeightedMechanism, lag_bounds, to_integers
from beam_dpcount.mechanisms.workload import Workload, toeplitz
from beam_dpcount.noise.entropy import Noise

_BLOCK = 1024  # products are summed in blocks of it: errors grow with _BLOCK + T / _BLOCK


@lru_cache(maxsize=16)
def coefficients(workload: Workload, n: int) -> FloatArray:
    """r_0 .. r_(n-1), the first column of the square root of the workload's matrix. [AP24, Fact 2]

    r_j = sum over i <= j of f(i) alpha^i f(j-i) beta^(j-i), f(0) = 1, f(j) = f(j-1) (2j-1)/(2j).
    """
    j = np.arange(1, max(n, 1))
    r = f = np.cumprod(np.append(1.0, (2 * j - 1) / (2 * j)))[:n]
    if not workload.is_prefix_sums:
        # Products one after the other, not powers, whose last bit depends on the processor.
        slow = f * np.cumprod(np.append(1.0, np.full(len(j), workload.decay)))[:n]
        fast = f * np.cumprod(np.append(1.0, np.full(len(j), workload.momentum)))[:n]
        r = np.zeros(n)
        for i in range(int(np.count_nonzero(fast > 1e-40))):  # terms below it cannot be seen
            r[i:] += fast[i] * slow[: n - i]
    r.flags.writeable = False
    return r


@dataclass(frozen=True)
class SquareRoot(WeightedMechanism):
    """L = R = the square root of the workload's matrix A: Toeplitz, with coefficients r_j.

    A state holds all inputs and noisy encoded values so far: 2T + 1 numbers a key (16 MB at
    T = 2^20). A step reads them all (O(t) work). Take `NormalizedBLT` unless T is small.

    Args:
      horizon: number of steps T, in use up to 2^20.
      momentum, decay: beta and alpha, 0 <= beta < alpha <= 1: the release at t is W_t, where
        V_t = beta V_(t-1) + x_t and W_t = alpha W_(t-1) + V_t. Default: prefix sums.

    Guarantee: Delta_2^2 = sum of r_j^2 over j < T (the first column), and what rounding adds (at
      most 1e-4, see RoundedMechanism). Gaussian noise: takes zero-concentrated and approximate
      budgets. Variance of release t: that of one draw times sum of r_j^2 over j < t.

    Source: [FHU22, Theorem 2] with every z_i drawn once; [HUU23, Theorem 1]; [AP24, Fact 2].
    """

    momentum: float = 0.0
    decay: float = 1.0

    @property
    def falling_products(self) -> bool:
        return self.decay == 1 and not self.momentum  # Toeplitz, with falling entries

    longest: ClassVar[int] = 1 << 20  # a state of 2^21 numbers

    @cached_property
    def _r(self) -> FloatArray:
        if self.horizon > self.longest:
            problem = f"SquareRoot keeps all steps, too many for horizon {self.horizon}"
            raise UnsupportedHorizonError(f"{problem}: use NormalizedBLT")
        return coefficients(self.workload, self.horizon)

    @property
    def l1_sensitivity(self) -> float:
        return float(self._r.sum()) * (1 + 1e-9)

    @property
    def l2_sensitivity_squared(self) -> float:
        return float((self._r**2).sum()) * (1 + 1e-9)

    def lag_bounds(self, n: int) -> tuple[float, ...]:
        """Sums over k < T - d of r_k r_(k+d): the product of the first two columns d apart.

        r_j = E U^j for an arcsine U on [beta, alpha] within [0, 1], so r is positive and falls:
        of all pairs d or more apart, the first two columns have the largest product.
        """
        # Computed r may not fall: the least falling sequence above them does.
        r = np.maximum.accumulate(self._r[::-1])[::-1]
        products = [np.dot(r[:-d], r[d:]) for d in range(1, min(n, self.horizon))]
        return lag_bounds(self.l2_sensitivity_squared, products, n)

    @property
    def encoding_error(self) -> float:
        # A product, and the additions of a block and of blocks, at most one rounding each.
        roundings = min(self.horizon, _BLOCK) + self.horizon // _BLOCK + 3
        return roundings * ULP * self.l1_sensitivity

    @property
    def state_size(self) -> int:
        return 1 + 2 * self.horizon

    def init(self, dimension: int | None = None) -> State:
        return (0,)  # then the inputs, oldest first, and as many noisy encoded values

    def step(self, state: State, x: Any, noise: Noise) -> tuple[State, Any]:
        t = self.next_step(state)
        xs, ys = [*state[1:t], x + 0], state[t:]
        y = to_integers(_convolved(self._r, xs)) + noise.one(t)
        return (t, *xs, *ys, y), _convolved(self._r, [*ys, y])

    def after(self, n: int, noise: Noise, dimension: int | None = None) -> State:
        z = noise.draw(1, self.check_steps(n))
        return (n, *[zero(dimension)] * n, *map(owned, z))

    def release(self, xs: IntArray, noise: Noise) -> Any:
        z = noise.draw(1, self.check_steps(len(xs)))
        return _all_convolved(self._r, to_integers(_all_convolved(self._r, xs)) + z)

    def encoder(self, n: int) -> FloatArray:
        return toeplitz(self._r[: self.check_steps(n)])

    def decoder(self, n: int) -> FloatArray:
        return self.encoder(n)

    def products(self, s: IntArray, lag: int) -> FloatArray:
        return _lagged(self, lag)[s - 1]

    @cached_property
    def _row_norms2(self) -> FloatArray:
        return np.cumsum(self._r**2)


@lru_cache(maxsize=8)
def _lagged(mechanism: SquareRoot, lag: int) -> FloatArray:
    return np.cumsum(mechanism._r[:-lag] * mechanism._r[lag:])


def _convolved(r: FloatArray, xs: list[Any]) -> Any:
    """The sum of r_j times the j-th last of xs."""
    terms = np.array(xs[::-1], dtype=np.float64)
    terms *= r[: len(terms)].reshape(-1, *[1] * (terms.ndim - 1))
    blocks = [terms[i : i + _BLOCK] for i in range(0, len(terms), _BLOCK)]
    # accumulate adds in order, as `_all_convolved` does; sum() may not.
    ends = np.stack([np.add.accumulate(block)[-1] for block in blocks])
    total = np.add.accumulate(ends)[-1]
    return float(total) if terms.ndim == 1 else total


def _all_convolved(r: FloatArray, xs: Any) -> Any:
    """`_convolved` of every prefix, with the same additions in the same order."""
    values = np.asarray(xs, dtype=np.float64)
    total, n = np.zeros_like(values), len(values)
    for first in range(0, n, _BLOCK):
        part = np.zeros_like(values)
        for j in range(first, min(first + _BLOCK, n)):
            part[j:] += r[j] * values[: n - j]
        total += part
    return total

"""The square root with equal weights on bins of columns [AP24]: few numbers in place of T."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from beam_dpcount.checks import check_real
from beam_dpcount.mechanisms import binned_tables as tables
from beam_dpcount.mechanisms.base import (
    FloatArray,
    IntArray,
    State,
    UnsupportedHorizonError,
    owned,
    zero,
)
from beam_dpcount.mechanisms.doubles import multiply_add, two_sum
from beam_dpcount.mechanisms.rounded import (
    ULP,
    WeightedMechanism,
    lag_bounds,
    left_dot,
    to_integers,
)
from beam_dpcount.mechanisms.workload import Workload
from beam_dpcount.noise.entropy import Noise


@dataclass(frozen=True)
class Binned(WeightedMechanism):
    """L is the square root of the workload with rows made constant on bins of columns; R = L^-1 A.

    A bin of row t is a union of bins of row t - 1, or t alone. So a stream keeps two sums a bin:
    of the rounded encoded values q, which the encoder (forward substitution) needs, and of
    y = q + z, which releases weigh. As integers are fed back, rounding does not build up.

    Args:
      horizon: number of steps T, in use up to 2^14.
      c: neighbouring bins are merged while L falls by less than this factor from end to end;
        0 < c < 1, default 6/7. Larger values make more bins.
      tau: entries of L below it (or 2^-64) share one bin; 0 <= tau < 1, default 1/T.
      momentum, decay: beta and alpha, as for `SquareRoot`. Default: prefix sums.

    Guarantee: Delta_2 = the largest L2 norm of a column of R, over all columns (it is not the
      first's), with a proved bound on what its computation lost, and what rounding adds (at most
      1e-4, see RoundedMechanism): q = R x + L^-1 e, |e_t| <= 1/2, so that `rounding`, the most
      that it adds to the difference of two streams in a row, is the largest absolute row sum of
      L^-1, some 2. Bins are public. Gaussian noise: takes zero-concentrated and approximate
      budgets. Variance of release t: that of one draw times sum of weight^2 * width over its bins.

    Source: [AP24, Algorithm 1, Definition 7], and Theorem 1 for its error.
    """

    c: float | None = None
    tau: float | None = None
    momentum: float = 0.0
    decay: float = 1.0

    longest: ClassVar[int] = tables.LONGEST
    quick: ClassVar[int] = 1 << 12
    is_nonnegative = False  # R has negative entries for small c

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, least, example in (("c", "0 <", 0.85), ("tau", "0 <=", 0.001)):
            value: Any = getattr(self, name)
            if value is None:
                continue
            remedy = f"give e.g. {name}={example}, or leave it out"
            number = check_real(name, value, remedy)
            if not (0 <= number < 1 and (number or name == "tau")):
                raise ValueError(f"{name} must satisfy {least} {name} < 1, got {value!r}: {remedy}")
            object.__setattr__(self, name, number)

    @property
    def _key(self) -> tuple[int, float, float, Workload]:
        c = 6 / 7 if self.c is None else self.c
        return self.horizon, c, 1 / self.horizon if self.tau is None else self.tau, self.workload

    @property
    def fingerprint(self) -> str:
        return f"{self!r} with c = {self._key[1]!r} and tau = {self._key[2]!r}"

    @cached_property
    def _rows(self) -> tuple[tables.Row, ...]:
        return tables.schedule(*self._key)

    @cached_property
    def _norms(self) -> tables.Norms:
        return tables.search(*self._key)

    @property
    def l1_sensitivity(self) -> float:
        return self._norms.l1

    @property
    def l2_sensitivity_squared(self) -> float:
        return self._norms.l2_squared

    def lag_bounds(self, n: int) -> tuple[float, ...]:
        """Of columns less than 128 apart all products are computed; those of others are bounded."""
        bounds = tables.lag_products(*self._key)
        products = [bounds[min(d, len(bounds)) - 1] for d in range(1, min(n, self.horizon))]
        return lag_bounds(self.l2_sensitivity_squared, products, n)

    @property
    def rounding(self) -> float:
        # e_t of two streams differ by at most 1, and by what `encoding_error` counts.
        return self._norms.inverse

    @property
    def encoding_error(self) -> float:
        # For |x| <= m, m >= 1: |W| <= m (row sum of A), and |q| <= m (row sums of R and L^-1)
        # as long as |e| <= m. So all terms of W - (sum of weight * sum of q) are together at most
        # m * reach, and each meets one rounding in becoming a double (W three, from a pair of
        # doubles that itself lost less than 2^-53), in its product, in as many additions as there
        # are bins, and in the subtraction. e is at most 1/2 plus this error, far below m / 2 as
        # `search` checks, which closes the induction; L^-1 spreads it.
        return (self.space + 8) * ULP * self._norms.reach * self._norms.inverse * (1 + 1e-9)

    @property
    def space(self) -> int:
        """The largest number of bins in a row."""
        return max(len(row.lefts) for row in self._rows)

    def bins(self, t: int) -> tuple[tuple[int, int], ...]:
        """The bins of row t, from 1, as (first, last) columns from 1, from right to left."""
        if not 1 <= t <= self.horizon:
            raise ValueError(f"t must be from 1 to the horizon {self.horizon}, got {t}")
        lefts = self._rows[t - 1].lefts
        return ((t, t), *((left, near - 1) for near, left in pairwise(lefts)))

    def resolution(self, magnitude: int, largest: int | None = None) -> int:
        fine = super().resolution(magnitude, largest)
        if self.horizon * (largest or magnitude) * fine * self._norms.l1 > 2**62:
            sums = f"sums of {self.horizon} inputs of up to {largest or magnitude} units"
            raise UnsupportedHorizonError(f"{sums} exceed 64 bits: use a larger unit, or BLT")
        return fine

    # The state: t; the sum of all inputs, or V and W as pairs of doubles; for each bin, from
    # right to left, the sum of its q; then the sums of its y: 64 bits hold them, see `resolution`.

    @property
    def _head(self) -> int:
        return 2 if self.workload.is_prefix_sums else 5

    @property
    def state_size(self) -> int:
        return self._head + 2 * self.space

    def init(self, dimension: int | None = None) -> State:
        empty = zero(dimension)
        return (0, empty) if self.workload.is_prefix_sums else (0, *[empty * 1.0] * 4)

    def state_types(self, n: int) -> str:
        return ("qq" if self.workload.is_prefix_sums else "qdddd") + "q" * (n - self._head)

    def step(self, state: State, x: Any, noise: Noise) -> tuple[State, Any]:
        return self._advance(state, x, noise.one(self.next_step(state)))

    def after(self, n: int, noise: Noise, dimension: int | None = None) -> State:
        start = self.init(dimension)
        if self.check_steps(n) == 0:
            return start
        z = noise.draw(1, n)
        sums = np.concatenate([np.zeros_like(z[:1]), np.cumsum(z, axis=0)])
        bins = self.bins(n)
        y = [owned(sums[last] - sums[first - 1]) for first, last in bins]
        return (n, *start[1:], *[zero(dimension)] * len(bins), *y)

    def release(self, xs: IntArray, noise: Noise) -> Any:
        n, tail = self.check_steps(len(xs)), np.shape(xs)[1:]
        state, values = self.init(*tail), []
        # Python's numbers give the same bits as arrays, and are faster one by one.
        inputs, draws = (v if tail else v.tolist() for v in (xs, noise.draw(1, n)))
        for x, draw in zip(inputs, draws, strict=True):
            state, value = self._advance(state, x, draw)
            values.append(value)
        return np.array(values, dtype=np.float64).reshape(np.shape(xs))

    def _advance(self, state: State, x: Any, z: Any) -> tuple[State, Any]:
        t, head = state[0], self._head
        _, merges, weights = self._rows[t]
        bins = (len(state) - head) // 2
        q, y = _merged(state[head : head + bins], merges), _merged(state[head + bins :], merges)
        sums: tuple[Any, ...]
        if head == 2:
            exact = state[1] + x
            sums = (exact,)
        else:
            v = multiply_add((self.momentum, 0.0), state[1:3], x * 1.0)
            w = multiply_add((self.decay, 0.0), state[3:5], v[0])
            w = two_sum(w[0], w[1] + v[1])
            sums, exact = (*v, *w), w[0]
        encoded = to_integers(exact - left_dot(weights, q))
        noisy = encoded + z
        return (t + 1, *sums, encoded, *q, noisy, *y), noisy + left_dot(weights, y)

    def encoder(self, n: int) -> FloatArray:
        rows = tables.encode(self._rows[: self.check_steps(n)], self.workload, 0, n)
        return np.array([*rows]).reshape(n, n)

    def decoder(self, n: int) -> FloatArray:
        matrix = np.zeros((self.check_steps(n), n))
        for t, row in enumerate(self._rows[:n]):
            matrix[t, t::-1] = row.entries
        return matrix

    def products(self, s: IntArray, lag: int) -> FloatArray:
        # From right to left: the first `lag` columns of the later row are not in the other.
        rows = ((self._rows[t - 1], self._rows[t + lag - 1]) for t in s.tolist())
        return np.array([float(row.entries @ later.entries[lag:]) for row, later in rows])

    @cached_property
    def _row_norms2(self) -> FloatArray:
        return np.array([1 + np.dot(np.square(r.weights), r.widths[1:]) for r in self._rows])


def _merged(sums: Sequence[Any], merges: list[tuple[int, int]]) -> list[Any]:
    kept = list(sums)
    for at, count in merges:
        kept[at : at + count] = [sum(kept[at : at + count])]  # of integers
    return kept

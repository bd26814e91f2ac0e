"""What a `SlidingBLT` knows of itself: its fitted poles, and the variance of each release.

L = (1 - z^W) A / R. With e and a the distances of poles from 1, as in blt_tables.py,

  r_j = sum of c_i (1-a_i)^j,  i = 1 .. d,
  l_0 = 1,  l_j = w_d + sum of w_i (1-e_i)^(j-1)  for 0 < j < W,  i = 1 .. d-1,
  l_W = w_d + sum of w_i (1-e_i)^(W-1) - 1,  l_j = -sum of u_i (1-e_i)^(j-W-1)  for j > W,

u_i = w_i (1 - (1-e_i)^W). 0 < a_d < e_(d-1) < ... < a_1 < 1 makes all c, w and u positive, so that
every norm below is a sum of positive terms.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib import resources
from typing import Any

import numpy as np

from beam_dpcount.mechanisms.base import FloatArray, IntArray
from beam_dpcount.mechanisms.blt_tables import POLE_BITS, geometric, powers

LARGEST_LOG = 20  # log2 of the longest window that was fitted
WEIGHT_BITS = 47  # behind the point of c and w
_LOG_BLOCK = 10  # variances are made in blocks of 2^_LOG_BLOCK steps


@dataclass(frozen=True)
class WindowPoles:
    """Dyadic numbers: e and a of POLE_BITS digits, w and c multiples of 2^-WEIGHT_BITS.

    Shapes: e (d-1,), a and c (d,), w (d,), of which the last is that of the pole at 1.
    """

    e: FloatArray
    w: FloatArray
    a: FloatArray
    c: FloatArray

    @property
    def buffers(self) -> int:
        """d, the number of poles of R."""
        return len(self.a)


@lru_cache(maxsize=1)
def _fits() -> Any:
    source = resources.files("beam_dpcount.mechanisms") / "sliding_parameters.json"
    return json.loads(source.read_text())["windows"]


@lru_cache(maxsize=64)
def window_poles(window: int) -> WindowPoles:
    """The fit of the nearest window, by ratio; of two as near the longer one."""
    fitted = sorted(map(int, _fits()))
    place = bisect_left(fitted, window)
    above, below = fitted[place], fitted[max(place - 1, 0)]
    fit = _fits()[str(below if below * above > window * window else above)]
    e, a = _dyadic(fit["zeros"]), _dyadic(fit["poles"])
    w, c = _residues(np.append(e, 0.0), a), _residues(a, e)
    w, c = (np.rint(np.ldexp(each, WEIGHT_BITS)) / 2.0**WEIGHT_BITS for each in (w, c))
    return WindowPoles(e, w, a, c)


def _dyadic(x: list[float]) -> FloatArray:
    mantissa, exponent = np.frexp(np.array(x, dtype=np.float64))
    return np.asarray(np.ldexp(np.rint(np.ldexp(mantissa, POLE_BITS)), exponent - POLE_BITS))


def _residues(at: FloatArray, zeros: FloatArray) -> FloatArray:
    gaps = at[None, :] - at[:, None]
    np.fill_diagonal(gaps, 1.0)
    return np.asarray(np.prod(zeros[None, :] - at[:, None], axis=1) / np.prod(gaps, axis=1))


def _pairs(x: FloatArray) -> FloatArray:
    """1 - (1-x_i)(1-x_j)."""
    return np.asarray(x[:, None] + x[None, :] - x[:, None] * x[None, :])


def floors(p: WindowPoles, horizon: int) -> float:
    """What the encoder's floors add to a row at most, in units of 2^-F."""
    return float(p.c @ np.minimum(horizon, 1 / p.a)) * (1 + 1e-12)


def column_products(p: WindowPoles, horizon: int, lags: IntArray) -> FloatArray:
    """The sums over k < T - d of r_k r_(k+d), for these lags d < T, rounded up, shape (n,)."""
    total, x = np.zeros(len(lags)), _pairs(p.a)
    for i in range(p.buffers):
        for j in range(p.buffers):
            faded = p.c[i] * p.c[j] * powers(p.a[j], lags)
            total += faded * geometric(x[i, j], horizon - lags)
    return total * (1 + 1e-12)


def column_sum(p: WindowPoles, horizon: int) -> float:
    """r_0 + ... + r_(T-1), rounded up."""
    return float(p.c @ geometric(p.a, horizon)) * (1 + 1e-12)


@dataclass(frozen=True)
class _Rise:
    """A variance that rises with n = 0, 1, ...: base + slope n + sum of single_i (1 - x_i)
    + sum over j <= i of double_ij (1 - x_i x_j), x_i = (1-e_i)^n.
    """

    e: FloatArray
    base: float
    slope: float
    single: FloatArray
    double: FloatArray

    @cached_property
    def _powers(self) -> FloatArray:
        """(1-e_i)^n for the n of a block, shape (d-1, 2^_LOG_BLOCK)."""
        return powers(self.e[:, None], np.arange(1 << _LOG_BLOCK))

    def block(self, number: int) -> FloatArray:
        """The values of n = number 2^_LOG_BLOCK and what follows, shape (2^_LOG_BLOCK,).

        Always of whole blocks and by the same operations, so that one value and many are the same
        floats.
        """
        first = number << _LOG_BLOCK
        faded = [math.exp(max(first * math.log1p(-e), -700)) for e in self.e.tolist()]
        x = self._powers * np.array(faded)[:, None]
        values = self.base + self.slope * (first + np.arange(1 << _LOG_BLOCK, dtype=np.float64))
        for i in range(len(x)):
            values += self.single[i] * (1 - x[i])
            for j in range(i + 1):
                values += self.double[i, j] * (1 - x[i] * x[j])
        return np.asarray(values)

    def sum(self, count: int) -> float:
        """The sum of the first so many values."""
        pairs = _pairs(self.e)
        total = count * self.base + self.slope * (count * (count - 1) / 2)
        total += float((self.single * (count - geometric(self.e, count))).sum())
        return total + float((self.double * (count - geometric(pairs, count))).sum())


class Variances:
    """The variances of releases of one window, in units of a draw's: exact, and rising."""

    def __init__(self, window: int) -> None:
        self._window, p = window, window_poles(window)
        self._p, pairs = p, _pairs(p.e)
        w, last = p.w[:-1], float(p.w[-1])
        twice = np.tril(2 - np.eye(len(w)))
        within = _Rise(p.e, 1.0, last * last, 2 * last * w / p.e, twice * np.outer(w, w) / pairs)
        u = w * -np.expm1(window * np.log1p(-p.e))
        # From W on the first draw's weight is l_W = 1 less than it would be.
        self._turn = last + float(w @ powers(p.e, window - 1)) - 1
        steps, place = divmod(window - 1, 1 << _LOG_BLOCK)
        base = float(within.block(steps)[place]) + self._turn**2
        after = _Rise(p.e, base, 0.0, np.zeros(len(w)), twice * np.outer(u, u) / pairs)
        self._rises = within, after
        nothing = np.zeros(p.buffers)
        # Where l_j begins to be a sum of coefficients times (1-e_i)^(j-start), e_d = 0, and which.
        self._pieces = [
            (0, _last(nothing, 1.0)),
            (1, p.w),
            (window, _last(nothing, self._turn)),
            (window + 1, np.append(-u, 0.0)),
        ]

    def of(self, n: int) -> FloatArray:
        """Those of releases 1 .. n, shape (n,)."""
        within, after = self._rises
        parts = [_first(within, min(n, self._window)), _first(after, max(n - self._window, 0))]
        return np.concatenate(parts)

    def of_one(self, t: int) -> float:
        """That of release t, from 1, the same float as in `of`."""
        late = t > self._window
        number, place = divmod(t - 1 - late * self._window, 1 << _LOG_BLOCK)
        return float(_block(self._window, late, number)[place])

    def sum(self, n: int) -> float:
        """The sum of those of releases 1 .. n."""
        within, after = self._rises
        return within.sum(min(n, self._window)) + after.sum(max(n - self._window, 0))

    def coefficients(self, n: int) -> FloatArray:
        """l_0 .. l_(n-1)."""
        made, e = np.zeros(n), np.append(self._p.e, 0.0)
        for start, weights in self._pieces:
            made[start:] = powers(e, np.arange(max(n - start, 0))[:, None]) @ weights
        return made

    def products(self, s: IntArray, lag: int) -> FloatArray:
        """The sums over j < s of l_j l_(j+lag), shape (n,)."""
        total, e = np.zeros(len(s)), np.append(self._p.e, 0.0)
        pairs = _pairs(e)
        starts = [start for start, _ in self._pieces]
        cuts = sorted({0, *starts, *(start - lag for start in starts if start > lag)})
        for first, end in zip(cuts, [*cuts[1:], int(s.max(initial=0))], strict=True):
            n = np.maximum(np.minimum(end, s) - first, 0)
            both = np.outer(self._weights(first), self._weights(first + lag))
            for i in range(len(e)):
                for j in range(len(e)):
                    total += both[i, j] * geometric(pairs[i, j], n)
        return total

    def _weights(self, j: int) -> FloatArray:
        """Coefficients of l from j on, as far as one piece goes."""
        start, weights = [piece for piece in self._pieces if piece[0] <= j][-1]
        return np.asarray(weights * powers(np.append(self._p.e, 0.0), j - start))


@lru_cache(maxsize=64)
def variances(window: int) -> Variances:
    """The variances of one window, with the tables that they made."""
    return Variances(window)


@lru_cache(maxsize=256)
def _block(window: int, late: bool, number: int) -> FloatArray:
    return variances(window)._rises[late].block(number)


def _first(rise: _Rise, n: int) -> FloatArray:
    blocks = range(-(-n // (1 << _LOG_BLOCK)))
    return np.concatenate([np.zeros(0), *map(rise.block, blocks)])[:n]


def _last(weights: FloatArray, value: float) -> FloatArray:
    return np.append(weights[:-1], value)

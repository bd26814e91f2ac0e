"""What a BLT knows of itself: its fitted poles, column norms, and the variance of each release.

With e_i = 1 - theta_i and a_i = 1 - lambda_i, interlaced as e_1 < a_1 < e_2 < ... < a_d <= 1, all
residues are positive: w of L's generating function, and c of R's. So every norm below is a sum of
positive terms. The textbook forms cancel, and lose all digits from T = 2^14 on.
"""

from __future__ import annotations

import json
import math
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib import resources
from itertools import accumulate
from operator import mul
from typing import Any, NamedTuple

import numpy as np

from beam_dpcount.mechanisms.base import FloatArray, IntArray, UnsupportedHorizonError

LEAST_LOG, LARGEST_LOG = 4, 30  # log2 of the horizons that were fitted
BUFFERS = (2, 8)
_ENOUGH = 1.005  # fewer buffers are taken if their MaxSE is at most this many times the least

# Column scales are constant while the steps left agree in their first _DIGITS binary digits.
_DIGITS = 10
POLE_BITS = 31  # of a pole's distance from 1, from its first binary digit on
# Of weights, at least; F is so much more than what the encoder's floors may add; and so much, less
# the logarithm of the horizon, where streams are short.
BITS = _WEIGHTS, _BEYOND, _FINE = 47, 9, 36
_EXACT = 1 << 22  # the longest horizon whose largest variance is searched exactly

_LEAST = 1e-147  # powers below it are taken as 0: products that underflow are slow
_DIGIT = 10  # bits of a digit of an exponent
# Variances of single steps are kept in blocks of 2^_LOG_BLOCK steps, _BLOCKS of them: 8 MB. A block
# costs as much as some 50 steps one by one, and is made once _PAYS of them were asked for.
_LOG_BLOCK, _BLOCKS, _PAYS = 12, 256, 64


@dataclass(frozen=True, eq=False)
class Poles:
    """L's coefficients are 1, sum w_i (1-e_i)^(j-1); those of R sum c_i (1-a_i)^j.

    The pole at 1 of L R is in R, a_0 = 0, or where R fades in L, e_0 = 0: the others are positive.
    All are dyadic: e and a have POLE_BITS digits, and w and c are multiples of 2^-bits.
    """

    e: FloatArray
    w: FloatArray
    a: FloatArray
    c: FloatArray
    bits: int

    @property
    def buffers(self) -> int:
        """d, the number of poles of L."""
        return len(self.e)

    @property
    def lead(self) -> int:
        """How many poles of R do not fade: 1, or 0."""
        return len(self.a) - len(self.e)


class Stretches(NamedTuple):
    """Scales of columns, and weights of rows, that stay the same over stretches of steps.

    Fields:
      fraction: F.
      starts: the first step of each stretch, in order of time; the first is 1.
      columns: V, in units of 2^-F: what inputs are multiplied by.
      weights: p, in units of 2^-weight_bits: what rows are multiplied by; at most 1.
    """

    fraction: int
    starts: tuple[int, ...]
    columns: tuple[int, ...]
    weights: tuple[int, ...]
    weight_bits: int = 0

    @property
    def scales(self) -> FloatArray:
        """D = 1 / V, by stretch."""
        return np.asarray(2.0**self.fraction / np.array(self.columns))


@lru_cache(maxsize=1)
def _fits() -> Any:
    source = resources.files("beam_dpcount.mechanisms") / "blt_parameters.json"
    return json.loads(source.read_text())


@lru_cache(maxsize=256)
def poles(kind: str, horizon: int, buffers: int | None) -> Poles:
    """The fit of the next power of two, with these buffers or with the fewest that do."""
    log = max(LEAST_LOG, horizon_log(horizon))
    fits = _fits()[kind][str(log)]  # "blt" or "normalized_blt"
    if buffers is None:
        least = min(fit["max_se"] for fit in fits.values())
        buffers = min(int(d) for d, fit in fits.items() if fit["max_se"] <= _ENOUGH * least)
    e, a = _dyadic(fits[str(buffers)]["zeros"]), _dyadic(fits[str(buffers)]["poles"])
    # prod(x - zeros) / prod(x - poles), in distances from 1, is w's generating function for poles
    # e and zeros a, and c's the other way round.
    w, c = _residues(e, a), np.append(np.prod(e / a), -_residues(a, e) / a)
    # c_0, of order T^-1/2, counts what came long ago: so its digits grow with T.
    bits = max(_WEIGHTS, 20 + log)
    w, c = (np.rint(np.ldexp(weights, bits)) / 2.0**bits for weights in (w, c))
    return Poles(e, w, np.append(0.0, a), c, bits)


def horizon_log(horizon: int) -> int:
    """Which power of two it fits, or an UnsupportedHorizonError."""
    log = (horizon - 1).bit_length()
    if log > LARGEST_LOG:
        problem = f"BLTs are fitted for horizons up to 2^{LARGEST_LOG}, got {horizon}"
        raise UnsupportedHorizonError(f"{problem}: use SmoothBinary")
    return log


def _dyadic(x: list[float]) -> FloatArray:
    mantissa, exponent = np.frexp(x)
    return np.asarray(np.ldexp(np.rint(np.ldexp(mantissa, POLE_BITS)), exponent - POLE_BITS))


def floors(p: Poles, horizon: int) -> float:
    """What the encoder's floors add to a row at most, in units of 2^-F; k_0 has none."""
    c, a = p.c[p.lead :], p.a[p.lead :]
    return float(c @ np.minimum(horizon, 1 / a)) * (1 + 1e-12)


@lru_cache(maxsize=256)
def stretches(p: Poles, horizon: int, normalized: bool) -> Stretches:
    """F, and V in units of 2^-F. The plain BLT has V = 1.

    V is rounded down, so that no normalized column is longer than 1. F is so large that the
    encoder's floors add at most 2^-9 to what rounding does to a row.
    """
    fine = math.ceil(math.log2(floors(p, horizon))) + _BEYOND
    fraction = max(_FINE - horizon.bit_length(), fine)
    if not normalized:
        return Stretches(fraction, (1,), (1 << fraction,), (1,))
    norms = np.sqrt(column_norms2(p, scale_nodes(scale_index(horizon) + 1)[::-1]))
    ratios = map(float.as_integer_ratio, norms.tolist())
    columns = tuple([(below << fraction) // above for above, below in ratios])
    starts = _starts_of(len(columns), horizon)
    return Stretches(fraction, tuple(starts.tolist()), columns, (1,) * len(columns))


def _starts_of(scales: int, horizon: int) -> IntArray:
    """The first step of each of so many scales, in order of time."""
    return np.asarray((horizon + 1 - np.minimum(scale_nodes(scales), horizon))[::-1].copy())


def _residues(at: FloatArray, zeros: FloatArray) -> FloatArray:
    gaps = at[None, :] - at[:, None]
    np.fill_diagonal(gaps, 1.0)
    return np.asarray(np.prod(zeros[None, :] - at[:, None], axis=1) / np.prod(gaps, axis=1))


def powers(x: FloatArray, n: Any) -> FloatArray:
    """(1 - x)^n, and 0 where it is about _LEAST or below."""
    logs = n * np.log1p(-x)
    return np.where(logs < -340, 0.0, np.exp(np.maximum(logs, -340)))


def geometric(x: FloatArray, n: Any) -> FloatArray:
    """The sum over k < n of (1 - x)^k."""
    safe = np.where(x == 0, 1.0, x)
    with np.errstate(divide="ignore"):
        return np.asarray(np.where(x == 0, n, -np.expm1(n * np.log1p(-x)) / safe))


def _pairs(x: FloatArray) -> FloatArray:
    """1 - (1-x_i)(1-x_j)."""
    return np.asarray(x[:, None] + x[None, :] - x[:, None] * x[None, :])


def kernel(e: FloatArray) -> FloatArray:
    """The sums over k from 0 of (1-e_i)^k (1-e_j)^k; 0 where they have no end."""
    x = _pairs(e)
    return np.asarray(np.where(x == 0, 0.0, 1 / np.where(x == 0, 1.0, x)))


def column_sums(p: Poles, n: IntArray) -> FloatArray:
    """r_0 + ... + r_(n-1)."""
    total = np.zeros(len(n))
    for c, a in zip(p.c, p.a, strict=True):
        total += c * geometric(a, n)
    return total


def column_norms2(p: Poles, n: IntArray) -> FloatArray:
    """r_0^2 + ... + r_(n-1)^2, rounded up."""
    total, x = np.zeros(len(n)), _pairs(p.a)
    for i in range(len(p.c)):
        for j in range(i + 1):
            total += (1 + (i != j)) * p.c[i] * p.c[j] * geometric(x[i, j], n)
    return total * (1 + 1e-12)


def column_products(p: Poles, n: IntArray, lags: Sequence[int]) -> FloatArray:
    """The sums over k < n of r_k r_(k+d) for these lags d, shape (len(n), len(lags))."""
    x = _pairs(p.a)
    # By c_j (1-a_j)^d: the sums over k < n of r_k (1-a_j)^k.
    sums = np.zeros((len(n), len(p.c)))
    for i in range(len(p.c)):
        for j in range(i + 1):
            both = geometric(x[i, j], n)
            sums[:, j] += p.c[i] * both
            if i != j:
                sums[:, i] += p.c[j] * both
    return np.asarray(sums @ (p.c[:, None] * powers(p.a[:, None], np.array(lags))))


def scale_index(left: int) -> int:
    """Which scale a step has that is the first of `left` steps; left from 1."""
    k = max((left - 1).bit_length() - _DIGITS, 0)
    return (k << _DIGITS - 1) + ((left - 1) >> k)


def scale_indices(left: IntArray) -> IntArray:
    """`scale_index` of each, shape (n,)."""
    k = np.maximum(np.frexp(left - 1)[1] - _DIGITS, 0)
    return np.asarray((k << _DIGITS - 1) + ((left - 1) >> k))


def scale_nodes(count: int) -> IntArray:
    """The most steps left for which each index stands."""
    i = np.arange(count, dtype=np.int64)
    k = np.maximum((i >> _DIGITS - 1) - 1, 0)
    return np.asarray((i - (k << _DIGITS - 1) + 1) << k)


class _Variances:
    """Var n_t of `Tables`, of many steps and of one: the same floats, to the last bit.

    A key that is counted step by step shows the standard deviations of one that is counted at once.
    Both ways take the same numbers from the same tables, and multiply and add them in one order:
    there are no exponentials, no products of matrices, and no sums whose order is another's choice.
    """

    def __init__(
        self,
        p: Poles,
        horizon: int,
        starts: IntArray,
        D: FloatArray,
        q: FloatArray,
        V: FloatArray,
        rows: tuple[IntArray, FloatArray, FloatArray],
        rise: float,
    ) -> None:
        self._starts, self._V, self._D2 = starts, V, D * D
        self._q = np.ascontiguousarray((2 * D[:, None] * q * p.w).T)
        # Var b_t = most + rise n - sum of k_ij u_i u_j over j <= i, u_i = theta_i^n, n = t - since.
        self._since, self._k, self._most = rows
        self._rise = rise
        self._first, self._first_row = starts.tolist(), self._since.tolist()
        # theta^n as a product over the digits of n, the last digit first.
        count = -(-horizon.bit_length() // _DIGIT)
        places = np.arange(count)[:, None, None] * _DIGIT
        self._digits = powers(p.e[:, None], np.arange(1 << _DIGIT) << places)

    def of(self, t: IntArray) -> FloatArray:
        """Var n_t for these steps, shape (n,)."""
        j = np.searchsorted(self._starts, t, side="right") - 1
        d = self._k.shape[1]
        h: Any = 0
        if len(self._since) > 1:
            h = np.searchsorted(self._since, t, side="right") - 1
        u, sums = self._powers(t - self._since[h]), np.zeros((d, len(t)))
        for i, x in enumerate(u):
            k = self._k[h, i:, i]
            sums[i:] += (k[:, None] if k.ndim == 1 else k.T) * x
        B, held = self._most[h] + self._rise * (t - self._since[h]), self._V[j]
        for x, y in zip(u, sums, strict=True):
            B -= x * y
        for q, x in zip(self._q, self._powers(t - self._starts[j]), strict=True):
            held += q[j] * x
        return np.asarray(self._D2[j] * B + held, dtype=np.float64)

    def _powers(self, n: IntArray) -> FloatArray:
        mask = (1 << _DIGIT) - 1
        made: FloatArray = self._digits[0].take(n & mask, axis=1)
        for digits in self._digits[1:]:
            n = n >> _DIGIT
            made *= digits.take(n & mask, axis=1)
            if made.min(initial=1.0) < _LEAST:
                made[made < _LEAST] = 0.0
        return made

    def of_one(self, t: int) -> float:
        """Var n_t."""
        j, h = bisect_right(self._first, t) - 1, bisect_right(self._first_row, t) - 1
        u = self._powers_of_one(t - self._first_row[h])
        B: float = float(self._most[h]) + self._rise * (t - self._first_row[h])
        held = float(self._V[j])
        for i, (x, row) in enumerate(zip(u, self._k[h].tolist(), strict=True), start=1):
            y = 0.0
            for z in map(mul, row[:i], u):  # sum() compensates, from Python 3.12 on
                y += z
            B -= x * y
        for z in map(mul, self._q[:, j].tolist(), self._powers_of_one(t - self._first[j])):
            held += z
        return float(self._D2[j]) * B + held

    def _powers_of_one(self, n: int) -> list[float]:
        mask = (1 << _DIGIT) - 1
        made: list[float] = self._digits[0][:, n & mask].tolist()
        for digits in self._digits[1:]:
            n >>= _DIGIT
            products = map(mul, made, digits[:, n & mask].tolist())
            made = [0.0 if z < _LEAST else z for z in products]
        return made


class Tables:
    """Variances of the releases, for one horizon and these scales of columns.

    D(t) >= ||r_0 .. r_(T-t)|| is the scale of column t, 1 for the plain BLT. It falls at few
    steps only, by delta_t = D_t - D_(t+1); n_t = D_t b_t + E_t, E_t = sum of delta_k b_k, k < t,
    where b = L y. With q_i = Cov(E_t, buffer i) and V = Var E_t,

      q_i(t+1) = theta_i q_i(t) + delta_t (1 + theta_i (C_t w)_i),   C_t = Cov(buffers)
      V(t+1)   = V(t) + 2 delta_t w.q(t) + delta_t^2 Var b_t
      Var n_t  = D_t^2 Var b_t + 2 D_t w.q(t) + V(t),

    so variances are known exactly from the steps where D falls.
    """

    def __init__(self, p: Poles, horizon: int, by: Stretches) -> None:
        scales = by.scales
        self.scales = scales[::-1].tolist()  # by scale_index of the steps left; or one for all
        self._set_up(p, horizon, np.array(by.starts), scales)

    def _set_up(self, p: Poles, horizon: int, starts: IntArray, D: FloatArray) -> None:
        """From the first step of each scale, in order of time, and the scales."""
        self._p, self._horizon, self._starts, self._D = p, horizon, starts, D
        self._kernel = kernel(p.e)
        lasts, falls = starts[1:] - 1, D[:-1] - D[1:]
        Cw, B = self._buffers(lasts)
        gained = falls[:, None] * (self._own(lasts) + (1 - p.e) * Cw)
        faded = powers(p.e, np.diff(self._starts)[:, None])
        q = np.zeros((len(self._starts), p.buffers))
        for i in range(p.buffers):
            both = zip(faded[:, i].tolist(), gained[:, i].tolist(), strict=True)
            q[:, i] = [*accumulate(both, lambda held, s: held * s[0] + s[1], initial=0.0)]
        at_last = q[:-1] * powers(p.e, (lasts - self._starts[:-1])[:, None])
        added = 2 * falls * (at_last @ p.w) + falls**2 * B
        self._q, self._V = q, np.append(0.0, np.cumsum(added))
        # By number of the block: its variances; how many of them were asked for without, and which
        # one last.
        self._blocks: dict[int, array[float]] = {}
        self._asked: dict[int, tuple[int, int]] = {}

    def _buffers(self, t: IntArray) -> tuple[FloatArray, FloatArray]:
        """C_t w, shape (n, d), and Var b_t, shape (n,)."""
        p = self._p
        u = powers(p.e, (t - 1)[:, None])
        Cw = p.w @ self._kernel - u * ((u * p.w) @ self._kernel)
        Cw += (t - 1)[:, None] * np.where(p.e == 0, p.w, 0.0)
        return Cw, 1 + Cw @ p.w

    def _own(self, t: IntArray) -> Any:
        """The variance that step t adds by itself, 1; or shape (n, 1)."""
        return 1

    @cached_property
    def _variances(self) -> _Variances:
        p, many = self._p, (self._starts, self._D, self._q, self._V)
        rise = float(np.sum(p.w[p.e == 0] ** 2))
        return _Variances(p, self._horizon, *many, self._rows(), rise)

    def _rows(self) -> tuple[IntArray, FloatArray, FloatArray]:
        """For `_Variances`: the steps from which rows have other weights, k, and most."""
        p = self._p
        k = np.tril(p.w[:, None] * p.w * kernel(p.e)) * (2 - np.eye(p.buffers))
        return np.array([1]), k[None], np.array([1 + math.fsum(k.ravel().tolist())])

    def row_norms2(self, t: IntArray) -> FloatArray:
        """Var n_t for these steps, shape (n,)."""
        size = 1 << _LOG_BLOCK  # few enough to stay in the processor's cache
        starts = range(0, max(len(t), 1), size)
        return np.concatenate([self._variances.of(t[start : start + size]) for start in starts])

    def row_norm2(self, t: int) -> float:
        """Var n_t, the same float as in `row_norms2`."""
        block = self._blocks.get(t - 1 >> _LOG_BLOCK)
        if block is None:
            return self._row_norm2(t)
        return block[t - 1 & (1 << _LOG_BLOCK) - 1]

    def _row_norm2(self, t: int) -> float:
        """`row_norm2` where its block is not kept: by itself, until the block pays.

        It does where a step follows the one before, as of a key that goes on; else after _PAYS
        steps. Where these are of so many blocks that each would soon make room for another, as of
        many keys far apart, none is made.
        """
        b = t - 1 >> _LOG_BLOCK
        asked, last = self._asked.get(b, (0, -1))
        if t - 1 != last and asked + 1 < _PAYS:
            if len(self._asked) > _BLOCKS:
                self._asked.clear()
            self._asked[b] = asked + 1, t
            return self._variances.of_one(t)
        self._asked.pop(b, None)
        first, size = b << _LOG_BLOCK, 1 << _LOG_BLOCK
        norms = self.row_norms2(np.arange(first + 1, min(first + size, self._horizon) + 1))
        if len(self._blocks) >= _BLOCKS:
            # A copy, as other threads may add and remove blocks meanwhile.
            self._blocks.pop(next(iter(self._blocks.copy())), None)
        self._blocks[b] = block = array("d", norms.tobytes())
        return block[t - 1 - first]

    def products(self, s: IntArray, lag: int) -> FloatArray:
        """Cov(n_s, n_t), t = s + lag, of these steps s, shape (n,).

        n_s = D_s b_s + E_s, and m_i(s+1) is what buffer i holds of it then. G_i = Cov(n_s,
        m_i(s+1)) fades by theta_i a step, and all of n_t that n_s has a part in is E_(s+1), the
        b_k of the falls s < k < t, and b_t.
        """
        p, t = self._p, s + lag
        j, after, then = (
            np.searchsorted(self._starts, step, side="right") - 1 for step in (s, s + 1, t)
        )
        D = self._D[j]
        q = self._q[j] * powers(p.e, (s - self._starts[j])[:, None])
        Cw, B = self._buffers(s)
        wq = q @ p.w
        wG = p.w * (D[:, None] * (self._own(s) + (1 - p.e) * Cw) + (1 - p.e) * q)
        faded = powers(p.e, np.full((len(s), 1), lag - 1))
        falls = self._coming_falls(s + 1) - faded * self._coming_falls(t)
        held = D * wq + self._V[j] + (D - self._D[after]) * (D * B + wq)
        return np.asarray(held + (wG * (self._D[then][:, None] * faded + falls)).sum(axis=1))

    def _coming_falls(self, t: IntArray) -> FloatArray:
        """The sum of theta^(k-t) times the fall of D at k, over k >= t, shape (n, buffers)."""
        lasts, sums = self._falls
        place = np.searchsorted(lasts, t)
        steps = np.append(lasts, 0)[place] - t
        return sums[place] * powers(self._p.e, np.maximum(steps, 0)[:, None])

    @cached_property
    def _falls(self) -> tuple[IntArray, FloatArray]:
        """The steps where D falls, and `_coming_falls` of them, then 0."""
        lasts, falls = self._starts[1:] - 1, self._D[:-1] - self._D[1:]
        sums = np.zeros((len(lasts) + 1, self._p.buffers))
        gaps = powers(self._p.e, np.diff(lasts, append=lasts[-1:])[:, None])
        for n in range(len(lasts) - 1, -1, -1):
            sums[n] = falls[n] + gaps[n] * sums[n + 1]
        return lasts, sums

    def lag_products(self, lags: Sequence[int]) -> list[float]:
        """Bounds on the products of normalized columns d or more apart, for each lag d.

        With m steps left at the later it is S(m, d) / (D D'), S(m, d) the sum over k < m of
        r_k r_(k+d), D' the scale of the earlier, with m + d left. r is positive and falls and D'
        grows with d, so d stands for all larger lags. S grows with m: for all m of one scale D it
        is at most that of the largest m, and D' at least that of the least.
        """
        scales, most = np.array(self.scales), scale_nodes(len(self.scales))
        least = np.append(1, most[:-1] + 1)
        sums = column_products(self._p, np.minimum(most, self._horizon), lags)
        bounds = []
        for d, products in zip(lags, sums.T, strict=True):
            some = least + d <= self._horizon
            earlier = scales[scale_indices(least[some] + d)]
            bounds.append(float((products[some] / (scales[some] * earlier)).max()))
        return bounds

    def _cells(self) -> tuple[IntArray, IntArray, IntArray]:
        """Spans of steps of one scale and of nearly one variance: first, last, scale's place."""
        finer = np.unique(np.geomspace(1, self._horizon, 4096).astype(np.int64))
        first = np.union1d(self._starts, finer)
        last = np.append(first[1:] - 1, self._horizon)
        return first, last, np.searchsorted(self._starts, first, side="right") - 1

    def max_row_norm2(self) -> float:
        """The largest variance: exact up to 2^22 steps, beyond them an upper bound."""
        first, last, j = self._cells()
        # Within a cell Var b grows, w.q falls, and the rest is constant.
        B = self._buffers(last)[1]
        wq = (self._q[j] * powers(self._p.e, (first - self._starts[j])[:, None])) @ self._p.w
        D = self._D[j]
        bounds = D * D * B + 2 * D * wq + self._V[j]
        if self._horizon > _EXACT:
            return float(bounds.max())
        best = 0.0
        for k in np.argsort(-bounds):
            if bounds[k] <= best:
                break
            best = max(best, float(self.row_norms2(np.arange(first[k], last[k] + 1)).max()))
        return best

    def mean_row_norm2(self) -> float:
        """The mean variance."""
        p, (first, last, j) = self._p, self._cells()
        n, D = last - first + 1, self._D[j]
        u = powers(p.e, (first - 1)[:, None])
        total = float((n * (D * D + self._V[j])).sum())
        faded = geometric(p.e, n[:, None]) * powers(p.e, (first - self._starts[j])[:, None])
        total += float((2 * D * ((self._q[j] * faded) @ p.w)).sum())
        # Var b - 1 is a sum over pairs of (1 - x^(t-1)) / (1 - x): its value at the cell's first
        # step, and what is gained after it.
        x, pairs = _pairs(p.e), kernel(p.e)
        lengths, which = np.unique(n, return_inverse=True)
        total += float((D * D * n * (self._buffers(first)[1] - 1)).sum())
        for i in range(p.buffers):
            for k in range(i + 1):
                rise = ((lengths - geometric(x[i, k], lengths)) * pairs[i, k])[which]
                if x[i, k] == 0:
                    rise = n * (n - 1) / 2
                both = (1 + (i != k)) * p.w[i] * p.w[k]
                total += both * float((D * D * u[:, i] * u[:, k] * rise).sum())
        return total / self._horizon


@lru_cache(maxsize=32)
def tables(p: Poles, horizon: int, normalized: bool) -> Tables:
    """The tables of one BLT: made once, whatever inputs and noise it computes with."""
    return Tables(p, horizon, stretches(p, horizon, normalized))

"""What mechanisms whose encoders fade know of themselves: their poles, and variances of releases.

With e and a the distances of poles from 1, as in blt_tables.py, r_j = sum of c_i (1-a_i)^j. Sums
over W steps have L = (1 - z^W) A / R:

  l_0 = 1,  l_j = w_d + sum of w_i (1-e_i)^(j-1)  for 0 < j < W,  i = 1 .. d-1,
  l_W = w_d + sum of w_i (1-e_i)^(W-1) - 1,  l_j = -sum of u_i (1-e_i)^(j-W-1)  for j > W,

u_i = w_i (1 - (1-e_i)^W). Sums with a decay have l_0 = 1, l_j = sum of w_i (1-e_i)^(j-1), e_d =
1 - decay. e_d < a_d < e_(d-1) < ... < a_1 makes all c, w and u positive, so that every norm below
is a sum of positive terms.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib import resources
from typing import Any

import numpy as np

from beam_dpcount.mechanisms.base import FloatArray, IntArray
from beam_dpcount.mechanisms.blt_tables import POLE_BITS, geometric, powers

LARGEST_LOG = 20  # log2 of the longest window that was fitted, and of 1 / (1 - decay)
WEIGHT_BITS = 47  # behind the point of c and w
# A comb (1 - beta z^W) / (1 - alpha z^W): alpha and beta in units of 2^-4, and 4. Its R fades by
# gamma = 1 - FADE / W besides. Within 0.3 % of the best for every window from 2 steps on.
COMB = (4, 11, 4)
FADE = 0.15
FADED = 160  # windows, after which nothing is left of a column
_FINE = 30  # bits of products of columns, relative to the largest
_LOG_BLOCK = 10  # variances are made in blocks of 2^_LOG_BLOCK steps


@dataclass(frozen=True)
class FadingPoles:
    """Dyadic numbers: e and a of POLE_BITS digits, w and c multiples of 2^-WEIGHT_BITS.

    Shapes: a, c and w (d,), and e (d,) too; or (d-1,), where the last w is that of the pole at 1.
    An e_d that is 1 - decay has all its digits.
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
    source = resources.files("beam_dpcount.mechanisms") / "fading_parameters.json"
    return json.loads(source.read_text())


@lru_cache(maxsize=64)
def window_poles(window: int) -> FadingPoles:
    """The fit of the nearest window, by ratio; of two as near the longer one."""
    fits = _fits()["windows"]
    fitted = sorted(map(int, fits))
    place = bisect_left(fitted, window)
    above, below = fitted[place], fitted[max(place - 1, 0)]
    fit = fits[str(below if below * above > window * window else above)]
    e, a = _dyadic(fit["zeros"]), _dyadic(fit["poles"])
    return FadingPoles(e, *_weights(np.append(e, 0.0), a))


@lru_cache(maxsize=64)
def decay_poles(decay: float) -> FadingPoles:
    """The fit of the nearest decay, by the ratio of 1 - decay, with all poles times this decay."""
    halves = round(min(max(-2 * math.log2(1 - decay), 1), 2 * LARGEST_LOG))
    e, a = _decaying(halves, decay)
    e = np.append(e, 1 - decay)
    return FadingPoles(e, *_weights(e, a))


def faded_poles(halves: int, decay: float) -> FadingPoles:
    """The R of a decay of 1 - 2^(-halves / 2) times this one, and L with a pole at 1, e_d = 0."""
    e, a = _decaying(halves, decay)
    e = np.append(e, 0.0)
    return FadingPoles(e, *_weights(e, a))


@lru_cache(maxsize=64)
def comb_poles(window: int) -> FadingPoles:
    """Those of R without its comb, and of sums over so many steps."""
    decay = 1 - FADE / window
    halves = round(min(max(-2 * math.log2(1 - decay), 1), 2 * LARGEST_LOG))
    p = faded_poles(halves, decay)
    return FadingPoles(p.e[:-1], p.w, p.a, p.c)


def _decaying(halves: int, decay: float) -> tuple[FloatArray, FloatArray]:
    """Zeros and poles of the fit of R for a decay of 1 - 2^(-halves / 2), all times this decay."""
    fit = _fits()["decays"][str(halves)]
    zeros, poles = (1 - decay * (1 - np.array(fit[name])) for name in ("zeros", "poles"))
    return _dyadic(zeros.tolist()), _dyadic(poles.tolist())


def _weights(e: FloatArray, a: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """w, a and c."""
    both = _residues(e, a), _residues(a, e[:-1])
    w, c = (np.rint(np.ldexp(each, WEIGHT_BITS)) / 2.0**WEIGHT_BITS for each in both)
    return w, a, c


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


def floors(p: FadingPoles, horizon: int) -> float:
    """What the encoder's floors add to a row at most, in units of 2^-F."""
    return float(p.c @ np.minimum(horizon, 1 / p.a)) * (1 + 1e-12)


def column_products(p: FadingPoles, horizon: int, lags: IntArray) -> FloatArray:
    """The sums over k < T - d of r_k r_(k+d), for these lags d < T, rounded up, shape (n,)."""
    total, x = np.zeros(len(lags)), _pairs(p.a)
    for i in range(p.buffers):
        for j in range(p.buffers):
            faded = p.c[i] * p.c[j] * powers(p.a[j], lags)
            total += faded * geometric(x[i, j], horizon - lags)
    return total * (1 + 1e-12)


def column_sum(p: FadingPoles, horizon: int) -> float:
    """r_0 + ... + r_(T-1), rounded up."""
    return float(p.c @ geometric(p.a, horizon)) * (1 + 1e-12)


@dataclass(frozen=True, eq=False)
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
    """The variances of releases, in units of a draw's: exact, and rising.

    Args:
      e: of all poles of A / R, with one at 1, shape (d,).
      rises: from which step on each holds, the first from 1.
      pieces: where l_j begins to be a sum of weights times (1-e_i)^(j-start), and which.
    """

    def __init__(
        self,
        e: FloatArray,
        rises: Sequence[tuple[int, _Rise]],
        pieces: Sequence[tuple[int, FloatArray]],
    ) -> None:
        self._e, self._rises, self._pieces = e, rises, pieces

    def of(self, n: int) -> FloatArray:
        """Those of releases 1 .. n, shape (n,)."""
        parts = [np.zeros(0)]
        for rise, count in self._until(n):
            blocks = range(-(-count // (1 << _LOG_BLOCK)))
            parts.append(np.concatenate([np.zeros(0), *map(rise.block, blocks)])[:count])
        return np.concatenate(parts)

    def of_one(self, t: int) -> float:
        """That of release t, from 1, the same float as in `of`."""
        start, rise = [each for each in self._rises if each[0] <= t][-1]
        number, place = divmod(t - start, 1 << _LOG_BLOCK)
        return float(_block(rise, number)[place])

    def sum(self, n: int) -> float:
        """The sum of those of releases 1 .. n."""
        return sum(rise.sum(count) for rise, count in self._until(n))

    def _until(self, n: int) -> list[tuple[_Rise, int]]:
        """Each rise, and for how many of n releases it holds."""
        ends = [start - 1 for start, _ in self._rises[1:]] + [n]
        both = zip(self._rises, ends, strict=True)
        return [(rise, max(0, min(end, n) - start + 1)) for (start, rise), end in both]

    def coefficients(self, n: int) -> FloatArray:
        """l_0 .. l_(n-1)."""
        made = np.zeros(n)
        for start, weights in self._pieces:
            made[start:] = powers(self._e, np.arange(max(n - start, 0))[:, None]) @ weights
        return made

    def products(self, s: IntArray, lag: int) -> FloatArray:
        """The sums over j < s of l_j l_(j+lag), shape (n,)."""
        total, pairs = np.zeros(len(s)), _pairs(self._e)
        starts = [start for start, _ in self._pieces]
        cuts = sorted({0, *starts, *(start - lag for start in starts if start > lag)})
        for first, end in zip(cuts, [*cuts[1:], int(s.max(initial=0))], strict=True):
            n = np.maximum(np.minimum(end, s) - first, 0)
            both = np.outer(self._weights(first), self._weights(first + lag))
            for i in range(len(pairs)):
                for j in range(len(pairs)):
                    total += both[i, j] * geometric(pairs[i, j], n)
        return total

    def _weights(self, j: int) -> FloatArray:
        """Weights of l from j on, as far as one piece goes."""
        start, weights = [piece for piece in self._pieces if piece[0] <= j][-1]
        return np.asarray(weights * powers(self._e, j - start))


@lru_cache(maxsize=64)
def window_variances(window: int) -> Variances:
    """The variances of sums over so many steps, with the tables that they made."""
    p = window_poles(window)
    w, last = p.w[:-1], float(p.w[-1])
    within = _Rise(p.e, 1.0, last * last, 2 * last * w / p.e, _double(p.e, w))
    u = w * -np.expm1(window * np.log1p(-p.e))
    # From W on the first draw's weight is l_W = 1 less than it would be.
    turn = last + float(w @ powers(p.e, window - 1)) - 1
    number, place = divmod(window - 1, 1 << _LOG_BLOCK)
    base = float(within.block(number)[place]) + turn**2
    after = _Rise(p.e, base, 0.0, np.zeros(len(w)), _double(p.e, u))
    pieces = [
        (0, _only(p, 1.0)),
        (1, p.w),
        (window, _only(p, turn)),
        (window + 1, np.append(-u, 0.0)),
    ]
    return Variances(np.append(p.e, 0.0), [(1, within), (window + 1, after)], pieces)


@lru_cache(maxsize=64)
def decay_variances(decay: float) -> Variances:
    """The variances of sums with this decay, with the tables that they made."""
    p = decay_poles(decay)
    rise = _Rise(p.e, 1.0, 0.0, np.zeros(p.buffers), _double(p.e, p.w))
    return Variances(p.e, [(1, rise)], [(0, _only(p, 1.0)), (1, p.w)])


class Comb:
    """Columns of R and L with a comb, entry by entry, until nothing is left of them.

    It has what Variances has: exact but for rounding, and rising.
    """

    def __init__(self, window: int, n: int) -> None:
        p = comb_poles(window)
        alpha, beta = (math.ldexp(number, -COMB[2]) for number in COMB[:2])
        j = np.arange(n)
        encoder, decoder = np.zeros(n), np.where(j == 0, 1.0, 0.0)
        for c, a in zip(p.c.tolist(), p.a.tolist(), strict=True):
            encoder += c * powers(np.array(a), j)
        for w, e in zip(p.w.tolist(), [*p.e.tolist(), 0.0], strict=True):
            decoder[1:] += w * powers(np.array(e), j[:-1])
        decoder[window:] -= decoder[:-window].copy()
        self.encoder = _combed(encoder, beta, alpha, window)
        self._l = _combed(decoder, alpha, beta, window)
        self._sums = np.cumsum(np.square(self._l))

    def coefficients(self, n: int) -> FloatArray:
        """l_0 .. l_(n-1)."""
        return np.append(self._l, np.zeros(max(0, n - len(self._l))))[:n]

    def of(self, n: int) -> FloatArray:
        """The variances of releases 1 .. n, shape (n,)."""
        return np.asarray(self._sums[np.minimum(np.arange(n), len(self._l) - 1)])

    def of_one(self, t: int) -> float:
        return float(self._sums[min(t, len(self._l)) - 1])

    def sum(self, n: int) -> float:
        more = max(0, n - len(self._l)) * float(self._sums[-1])
        return float(self._sums[:n].sum()) + more

    def products(self, s: IntArray, lag: int) -> FloatArray:
        """The sums over j < s of l_j l_(j+lag), shape (n,)."""
        both = np.cumsum(np.append(0.0, self._l[: max(0, len(self._l) - lag)] * self._l[lag:]))
        return np.asarray(both[np.minimum(s, len(both) - 1)])

    @cached_property
    def lags(self) -> FloatArray:
        """Bounds on the absolute values of products of columns so far apart, or farther.

        Sums of |r_k r_(k+d)|, whatever the horizon; the last is for all lags beyond.
        """
        n = len(self.encoder)
        spectrum = np.fft.rfft(np.abs(self.encoder), 2 * n)
        sums = np.append(np.fft.irfft(np.square(np.abs(spectrum)), 2 * n)[:n], 0.0)
        fine = np.ceil(np.ldexp(sums / sums[0], _FINE) + 2.0**-8)
        falling = np.maximum.accumulate(np.ldexp(fine, -_FINE)[::-1])[::-1]
        return np.asarray(falling * sums[0] * (1 + 4e-12))


@lru_cache(maxsize=8)
def comb(window: int, n: int) -> Comb:
    """For up to n steps; FADED windows are enough for any number."""
    return Comb(window, n)


def _combed(x: FloatArray, num: float, den: float, window: int) -> FloatArray:
    """x through (1 - num z^W) / (1 - den z^W)."""
    rows = np.append(x, np.zeros(-len(x) % window)).reshape(-1, window)
    made = rows.copy()
    for i in range(1, len(rows)):
        made[i] += den * made[i - 1] - num * rows[i - 1]
    return made.ravel()[: len(x)]


def _double(e: FloatArray, w: FloatArray) -> FloatArray:
    return np.asarray(np.tril(2 - np.eye(len(w))) * np.outer(w, w) / _pairs(e))


def _only(p: FadingPoles, value: float) -> FloatArray:
    """Weights of one step alone."""
    return np.append(np.zeros(p.buffers - 1), value)


@lru_cache(maxsize=256)
def _block(rise: _Rise, number: int) -> FloatArray:
    return rise.block(number)

"""Exact noise laws on the integers, sampled exactly from uniform random bytes.

Small scales are sampled by inversion: a uniform real U in [0, 1), known only through its leading
bits, falls between two values of the cumulative distribution. A 16-bit look-up decides almost
every draw, 64 bits almost all of the rest; a draw that still lies on a boundary takes more bits
until certified interval arithmetic decides it. Large scales put a draw together from such tables
and uniform bits, and may reject it, just as exactly. No probability is ever rounded and no tail
is cut, so the law that privacy is proved for is the law that is drawn.
"""

from __future__ import annotations

import decimal
import itertools
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, cast

import numpy as np
import numpy.typing as npt

RandomBytes = Callable[[int], bytes]
IntArray = npt.NDArray[np.int64]

# Tables are used up to this scale; beyond it laws are put together from smaller ones.
_TABLE_SCALE = 512
_ROUNDED_TABLE_SCALE = 8  # its table costs ten times as much to make
_MAX_SCALE = 2**33
_DIGIT = 512  # the base of a geometric's digits
_CHUNK = 1 << 15  # proposals at a time, few enough to stay in the processor's cache
_UNDECIDED = np.iinfo(np.int32).min
_BELOW, _ABOVE = 1 - 2.0**-40, 1 + 2.0**-40  # the margins of floats


def exp_negative(r: Fraction, bits: int) -> int:
    """exp(-r) * 2^bits for r >= 0, within 2 of the true value."""
    if r > (bits + 2) * 0.6931472:
        return 0
    # Decimal's exp is correctly rounded, so the only errors are half a unit in the last digit
    # of the quotient and of the power, and the final truncation.
    with decimal.localcontext(decimal.Context(prec=int(bits * 0.30103) + 15)):
        power = (decimal.Decimal(-r.numerator) / decimal.Decimal(r.denominator)).exp()
        return int(power * (1 << bits))


class ScaleError(ValueError):
    """A budget so small, for so fine a lattice, that its noise is out of range."""


@dataclass(frozen=True)
class Law(ABC):
    """A symmetric law of integer noise. Immutable, hashable, picklable; holds no randomness."""

    @property
    @abstractmethod
    def variance(self) -> float:
        """The law's own variance (not its parameter), in squared lattice units."""

    @property
    @abstractmethod
    def scale(self) -> float:
        """Its parameter, as a length in lattice units."""

    @abstractmethod
    def pmf(self, x: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Probabilities of the integers `x`, to double precision."""

    @abstractmethod
    def sample(self, n: int, random_bytes: RandomBytes = os.urandom) -> IntArray:
        """`n` independent draws, shape (n,), from a source of uniform random bytes.

        The source is the operating system's entropy; a seeded source is for tests.
        """

    def first(self) -> Callable[[bytes], int | None]:
        """A function that makes the draw that `sample(1)` makes of a source that begins so.

        It takes 16 bytes or more, and gives None where they do not decide the draw, or where it
        would take no less time to sample.
        """
        return lambda data: None


def _check_scale(parameter: Fraction, power: int) -> None:
    """Raise ScaleError unless 0 < parameter^(1/power) <= 2^33."""
    if not 0 < parameter <= _MAX_SCALE**power:
        try:
            shown = f"{float(parameter) ** (1 / power):.3g}"
        except OverflowError:
            shown = "10^150 and more"
        raise ScaleError(
            f"this budget needs noise of scale {shown} lattice units, outside (0, 2^33]: raise "
            "the budget, shorten the horizon or choose a larger unit"
        )


@dataclass(frozen=True)
class DiscreteLaplace(Law):
    """P(x) proportional to exp(-|x| / parameter), x an integer; the parameter an exact rational."""

    parameter: Fraction

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameter", Fraction(self.parameter))
        _check_scale(self.parameter, 1)

    @property
    def scale(self) -> float:
        return float(self.parameter)

    @property
    def variance(self) -> float:
        half = 1 / (2 * self.scale)
        return 0.0 if half > 350 else 1 / (2 * math.sinh(half) ** 2)

    def pmf(self, x: npt.ArrayLike) -> npt.NDArray[np.float64]:
        return np.asarray(math.tanh(0.5 / self.scale) * np.exp(-np.abs(x) / self.scale))

    def sample(self, n: int, random_bytes: RandomBytes = os.urandom) -> IntArray:
        if self.parameter <= _TABLE_SCALE:
            return _table(self).sample(n, random_bytes)
        # The difference of two geometrics B Q + R, whose digits Q and R are independent:
        # B (Q1 - Q2) + (R1 - R2), and Q1 - Q2 is again discrete Laplace, of scale s / B.
        high = DiscreteLaplace(self.parameter / _DIGIT).sample(n, random_bytes)
        low = _table(_TruncatedGeometric(self.parameter, _DIGIT)).sample(2 * n, random_bytes)
        return high * _DIGIT + low[:n] - low[n:]

    def first(self) -> Callable[[bytes], int | None]:
        if self.parameter <= _TABLE_SCALE:
            return _table(self).first
        if self.parameter > _TABLE_SCALE * _DIGIT:
            return lambda data: None
        high = _table(DiscreteLaplace(self.parameter / _DIGIT))
        low = _table(_TruncatedGeometric(self.parameter, _DIGIT))

        def first(data: bytes) -> int | None:
            digits = high.first(data), low.first(data, 2), low.first(data, 4)
            if None in digits:
                return None
            h, plus, minus = cast(tuple[int, int, int], digits)
            return h * _DIGIT + plus - minus

        return first

    def tails(self, bits: int) -> list[tuple[int, int]]:
        """Bounds of P(|X| >= m) * 2^bits for m = 1, 2, ... until they cannot matter."""
        q, one = exp_negative(1 / self.parameter, bits), 1 << bits
        bounds, power, error = [], q, 2
        while True:
            low = ((2 * (power - error)) << bits) // (one + q + 2)
            high = -(((-2 * (power + error)) << bits) // (one + q - 2))
            bounds.append((max(low, 0), high))
            if power <= error:
                return bounds
            power, error = (power * q) >> bits, error + 3


@dataclass(frozen=True)
class _Gaussian(Law):
    sigma2: Fraction

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma2", Fraction(self.sigma2))
        _check_scale(self.sigma2, 2)

    @property
    def scale(self) -> float:
        return math.sqrt(self.sigma2)

    @property
    def variance_proxy(self) -> float:
        """v with E exp(a X) <= exp(a^2 v / 2) for all a; sigma2 for the discrete [CKS20, 22]."""
        return float(self.sigma2)


@dataclass(frozen=True)
class DiscreteGaussian(_Gaussian):
    """P(x) proportional to exp(-x^2 / (2 sigma2)), x an integer; sigma2 an exact rational.

    Its variance is below sigma2, noticeably so for sigma2 < 1 [CKS20].
    """

    def _weights(self) -> npt.NDArray[np.float64]:
        top = int(40 * self.scale) + 1
        return np.exp(-(np.arange(top + 1.0) ** 2) / (2 * float(self.sigma2)))

    @property
    def variance(self) -> float:
        if self.sigma2 >= 100:  # differs from sigma2 by a factor 1 - exp(-2 pi^2 sigma2)
            return float(self.sigma2)
        weights = self._weights()
        squares = np.arange(len(weights), dtype=float) ** 2
        return float(2 * (squares * weights).sum() / (2 * weights.sum() - 1))

    def pmf(self, x: npt.ArrayLike) -> npt.NDArray[np.float64]:
        if self.sigma2 >= 100:
            total = math.sqrt(2 * math.pi * float(self.sigma2))
        else:
            total = float(2 * self._weights().sum() - 1)
        return np.asarray(np.exp(-(np.square(x, dtype=float)) / (2 * float(self.sigma2))) / total)

    def sample(self, n: int, random_bytes: RandomBytes = os.urandom) -> IntArray:
        if self.sigma2 <= _TABLE_SCALE**2:
            return _table(self).sample(n, random_bytes)
        return _from_blocks(self.sigma2, False, n, random_bytes)

    def first(self) -> Callable[[bytes], int | None]:
        if self.sigma2 <= _TABLE_SCALE**2:
            return _table(self).first
        return _first_of_blocks(self.sigma2, False)

    def tails(self, bits: int) -> list[tuple[int, int]]:
        """Bounds of P(|X| >= m) * 2^bits for m = 1, 2, ... until they cannot matter."""
        return _gaussian_tails(self.sigma2, 2, bits)


def _gaussian_tails(sigma2: Fraction, sides: int, bits: int) -> list[tuple[int, int]]:
    """Bounds of P(X >= m) * 2^bits, X = 0, 1, ... of weights 1, sides * exp(-x^2 / (2 sigma2))."""
    top = math.isqrt(int(2 * sigma2 * (bits + 2))) + 1  # exp(-top^2/2s2) < 2^-bits
    weights = [exp_negative(j * j / (2 * sigma2), bits) for j in range(1, top + 1)]
    # 2 a term, and the integral of the tail beyond `top`.
    error = 2 * top + int(sigma2 / top) + 2
    total = (1 << bits) + sides * sum(weights)
    bounds, tail = [], 0
    for weight in reversed(weights):
        tail += weight
        low = ((sides * (tail - error)) << bits) // (total + sides * error)
        high = -(((-sides * (tail + error)) << bits) // (total - sides * error))
        bounds.append((max(low, 0), high))
    return bounds[::-1]


@dataclass(frozen=True)
class RoundedGaussian(_Gaussian):
    """The law of round(Y), Y a real of law N(0, sigma2); sigma2 an exact rational.

    P(|X| >= m) = erfc((m - 1/2) / sqrt(2 sigma2)) for m >= 1. Its variance is nearly sigma2 + 1/12.

    Guarantee: n + X is round(n + Y) for every integer n, so what is proved of the continuous
      Gaussian mechanism on integers holds for this law, by post-processing: the analytic
      calibration [Balle, Wang 2018], and Delta_2^2 / (2 sigma2)-zCDP.
    """

    @property
    def variance(self) -> float:
        if self.sigma2 >= 9:  # up to 40 exp(-2 pi^2 sigma2), by Poisson's summation
            return float(self.sigma2) + 1 / 12
        cuts = np.arange(0.5, 40 * self.scale + 1)
        return float((2 * cuts * self._beyond(cuts)).sum())

    @property
    def variance_proxy(self) -> float:
        # By Poisson's summation E exp(a X) is exp(a^2 sigma2 / 2) sinh(a/2)/(a/2), nearly, and
        # less than what 1/4 in place of 1/12 allows for, small sigma2 included: see the test.
        return float(self.sigma2) + 1 / 4

    def _beyond(self, cuts: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """P(|Y| >= cut) of each cut >= 0."""
        z = cuts / math.sqrt(2 * float(self.sigma2))
        return np.array([math.erfc(c) for c in z.ravel().tolist()]).reshape(z.shape)

    def pmf(self, x: npt.ArrayLike) -> npt.NDArray[np.float64]:
        y = np.abs(np.asarray(x, dtype=np.float64))
        if self.sigma2 < 16:  # so steep that differences lose little
            beyond = self._beyond(np.maximum(y - 0.5, 0)) - self._beyond(y + 0.5)
            return np.asarray(beyond / np.where(y > 0, 2, 1))
        # So flat on each cell that the rule of Gauss and Legendre is exact, to double precision.
        nodes, weights = np.polynomial.legendre.leggauss(16)
        density = np.exp(-((y[..., None] + nodes / 2) ** 2) / (2 * float(self.sigma2)))
        return np.asarray(density @ weights / math.sqrt(8 * math.pi * float(self.sigma2)))

    def sample(self, n: int, random_bytes: RandomBytes = os.urandom) -> IntArray:
        if self.sigma2 <= _ROUNDED_TABLE_SCALE**2:
            return _table(self).sample(n, random_bytes)
        return _from_blocks(self.sigma2, True, n, random_bytes)

    def first(self) -> Callable[[bytes], int | None]:
        if self.sigma2 <= _ROUNDED_TABLE_SCALE**2:
            return _table(self).first
        return _first_of_blocks(self.sigma2, True)

    def tails(self, bits: int) -> list[tuple[int, int]]:
        """Bounds of P(|X| >= m) * 2^bits for m = 1, 2, ... until they cannot matter."""
        digits, bounds = int(bits * 0.30103) + 15, list[tuple[int, int]]()
        # Decimal's operations are correctly rounded, and but for 1 - erf there are only positive
        # sums and products, of fewer than 100 * digits numbers: they err by far less than 2^-bits.
        with decimal.localcontext(decimal.Context(prec=digits)):
            whole = _error_integral(decimal.Decimal(3 * digits))  # short by exp(-3 digits) at most
            while True:
                r = (2 * len(bounds) + 1) ** 2 / (8 * self.sigma2)
                if r > (bits + 2) * 0.6931472:  # erfc(sqrt(r)) <= exp(-r)
                    return [*bounds, (0, 1)]
                part = _error_integral(decimal.Decimal(r.numerator) / r.denominator)
                tail = int((1 - part / whole) * (1 << bits))
                bounds.append((max(tail - 1, 0), tail + 2))


def _error_integral(r: decimal.Decimal) -> decimal.Decimal:
    """The integral of exp(-s^2) over s from 0 to sqrt(r), to the digits of the context.

    It is exp(-r) sqrt(r) (1 + 2r/3 + (2r)^2/(3*5) + ...), all of whose terms are positive. From
    the 2r-th on each is below half of the one before.
    """
    total = term = decimal.Decimal(1)
    twice, settled = 2 * r, int(2 * r)
    for n in itertools.count(1):
        term *= twice / (2 * n + 1)
        if n > settled and total + term == total:
            break
        total += term
    return (-r).exp() * r.sqrt() * total


@dataclass(frozen=True)
class _TruncatedGeometric:
    """P(x) proportional to exp(-x / parameter) on 0 .. size-1: a digit of a geometric."""

    parameter: Fraction
    size: int

    def tails(self, bits: int) -> list[tuple[int, int]]:
        one = 1 << bits
        powers = [exp_negative(m / self.parameter, bits) for m in range(1, self.size + 1)]
        last = powers[-1]
        return [
            (
                (max(power - last - 4, 0) << bits) // (one - last + 2),
                -((-(power - last + 4) << bits) // (one - last - 2)),
            )
            for power in powers[:-1]
        ]


class InverseTable:
    """Inversion of P(M >= m), with a look-up for the first bits and certified refinement.

    Args:
      tails: `tails(bits)` bounds P(M >= m) * 2^bits from below and above for m = 1, 2, ...
      signed: give M a uniform sign (the law of a symmetric X from that of |X|).
      cell_bits, word_bits: bits decided by the look-up and by the binary search. Smaller ones
        give the same law, refined more often; tests use that.
    """

    def __init__(
        self,
        tails: Callable[[int], Sequence[tuple[int, int]]],
        signed: bool,
        cell_bits: int = 15,
        word_bits: int = 64,
    ) -> None:
        self._tails, self._signed = tails, signed
        self._cell_bits, self._word_bits = cell_bits, word_bits
        words = self._thresholds()
        self._words = np.array(words[::-1], dtype=np.uint64)  # ascending: of m = len .. 1
        self._cell_mask = np.uint16((1 << cell_bits) - 1)

        cells = 1 << cell_bits
        shift = word_bits - cell_bits
        starts = np.array([w >> shift for w in words[::-1]], dtype=np.int64)
        # Where no threshold lies in a cell, all of its reals have the same image.
        guide = len(words) - np.searchsorted(starts, np.arange(cells), side="right")
        guide = guide.astype(np.int32)
        mirrored = -guide if signed else guide.copy()
        guide[starts] = mirrored[starts] = _UNDECIDED
        both = np.empty(1 << 16, dtype=np.int32)
        halves = both.reshape(2, -1, cells)
        halves[0], halves[1] = guide, mirrored
        self._guide = both

    def _thresholds(self) -> list[int]:
        bits = self._word_bits + 64
        while True:  # a second pass has a chance of about 2^-50
            shift = bits - self._word_bits
            words = []
            for low, high in self._tails(bits):
                if low >> shift != high >> shift:
                    break
                words.append(low >> shift)
                if words[-1] == 0:
                    return words
            else:
                return [*words, 0]
            bits += 64

    def sample(self, n: int, random_bytes: RandomBytes) -> IntArray:
        first = np.frombuffer(random_bytes(2 * n), dtype="<u2")
        values: IntArray = self._guide[first].astype(np.int64)
        undecided = np.flatnonzero(values == _UNDECIDED)
        if undecided.size:
            values[undecided] = self._search(first[undecided], random_bytes)
        return values

    def first(self, data: bytes, at: int = 0) -> int | None:
        """A single draw from two bytes; None: they do not decide it."""
        value = int(self._guide[data[at] | data[at + 1] << 8])
        return None if value == _UNDECIDED else value

    def _search(self, first: npt.NDArray[np.uint16], random_bytes: RandomBytes) -> IntArray:
        more_bits = np.uint64(self._word_bits - self._cell_bits)
        more = np.frombuffer(random_bytes(8 * first.size), dtype="<u8") >> (
            np.uint64(64) - more_bits
        )
        words = ((first & self._cell_mask).astype(np.uint64) << more_bits) | more
        above = np.searchsorted(self._words, words, side="right")
        magnitudes = (len(self._words) - above).astype(np.int64)
        on_boundary = np.flatnonzero(self._words[np.maximum(above - 1, 0)] == words)
        for i in on_boundary:
            magnitudes[i] = self._refine(int(words[i]), random_bytes)
        if self._signed:
            magnitudes[first >> 15 == 1] *= -1
        return magnitudes

    def _refine(self, prefix: int, random_bytes: RandomBytes) -> int:
        """The value for a U that begins with `prefix`, drawing further bits until it is sure."""
        length = self._word_bits
        while True:
            prefix = (prefix << 64) | int.from_bytes(random_bytes(8), "little")
            length += 64
            bits = length + 64
            low_u, high_u = prefix << 64, (prefix + 1) << 64  # U * 2^bits is in [low_u, high_u)
            bounds = [*self._tails(bits), (0, 0)]
            # The last low bound of an unbounded law is 0, so `sure` never reaches past it.
            sure = sum(1 for low, _ in bounds if high_u <= low)
            if low_u >= max(bounds[sure][1], 1):
                return sure


@lru_cache(maxsize=64)
def _table(law: Any) -> InverseTable:
    return InverseTable(law.tails, signed=isinstance(law, Law))


@dataclass(frozen=True)
class _Block:
    """P(h) proportional to exp(-h^2 / (2 tau2)) on 0, 1, 2, ...: the block that a draw lies in."""

    tau2: Fraction

    def tails(self, bits: int) -> list[tuple[int, int]]:
        return _gaussian_tails(self.tau2, 1, bits)


def _from_blocks(sigma2: Fraction, rounded: bool, n: int, random_bytes: RandomBytes) -> IntArray:
    """Draws of the rounded or of the discrete Gaussian, of scale 8 or more, by rejection.

    With blocks of B = 2^shift and tau = sigma / B, a proposal is +-y, y = B (h + u): a block h
    that comes with probability proportional to exp(-h^2 / (2 tau^2)), a place u in it, and a
    sign. It is kept with probability exp(-u (2h + u) / (2 tau^2)), together exp(-y^2 / (2
    sigma^2)). So if u is uniform on [0, 1), +-y is N(0, sigma^2), and its rounding is drawn. If u
    is uniform on 0/B .. (B-1)/B for the sign +, and on 1/B .. B/B for the sign -, every integer
    is proposed by one (h, u, sign) only, and the discrete law is drawn. About 0.4 / tau of the
    proposals are rejected; each place in the output is proposed for anew until one is kept.
    """
    shift, tau2 = _blocks(sigma2)
    drawn = np.empty(n, dtype=np.int64)
    for start in range(0, n, _CHUNK):
        part = drawn[start : start + _CHUNK]
        places = np.arange(part.size)
        while places.size:
            part[places], rejected = _propose(tau2, shift, rounded, places.size, random_bytes)
            places = places[rejected]
    return drawn


def _first_of_blocks(sigma2: Fraction, rounded: bool) -> Callable[[bytes], int | None]:
    """Makes a single draw of `_from_blocks`, where floats decide what is kept."""
    shift, tau2 = _blocks(sigma2)
    table, twice = _table(_Block(tau2)), 2 * float(tau2)
    slope = -(-65536 // tau2)
    limit = 65535 - (slope + 1) // 2
    bits, width = (31, 2.0**-31) if rounded else (shift, 0.0)

    def first(data: bytes) -> int | None:  # each step as in `_propose`
        for at in range(0, len(data) - 7, 8):
            h = table.first(data, at)
            if h is None:
                return None
            word = int.from_bytes(data[at + 2 : at + 6], "little")
            v = data[at + 6] | data[at + 7] << 8
            negative, u = word >> 31, word & 0x7FFFFFFF
            if not rounded:
                u = (u >> (31 - shift)) + negative
            if v + slope * h > limit:
                least = math.ldexp(u, -bits)
                most = least + width
                if v >= 2.0**16 * math.exp(-least * (2 * h + least) / twice) * _ABOVE + 1e-9:
                    continue  # rejected: the next proposal follows
                if v + 1 > 2.0**16 * math.exp(-most * (2 * h + most) / twice) * _BELOW:
                    return None
            y = ((((h << 31) + u) >> (30 - shift)) + 1) >> 1 if rounded else (h << shift) + u
            return -y if negative else y
        return None

    return first


def _blocks(sigma2: Fraction) -> tuple[int, Fraction]:
    """The blocks' size as a power of two, and tau^2."""
    shift = math.isqrt(int(sigma2)).bit_length() - 5  # so that tau is from 16 to 32
    return shift, sigma2 / Fraction(4) ** shift


def _propose(
    tau2: Fraction, shift: int, rounded: bool, n: int, random_bytes: RandomBytes
) -> tuple[IntArray, IntArray]:
    """`n` proposals of `_from_blocks`, and the indices of those that are rejected.

    Kept is what has V < exp(-u (2h + u) / (2 tau2)), V a uniform real that begins with 16 bits v.
    """
    h = _table(_Block(tau2)).sample(n, random_bytes)
    words = np.frombuffer(random_bytes(4 * n), dtype="<u4")
    negative = (words >> 31).astype(np.int64)
    u = (words & 0x7FFFFFFF).astype(np.int64)  # 31 bits: more than `shift`, by 2 or more
    if rounded:  # half a unit is a whole number of 2^-31 blocks: no further bit can matter
        y = ((((h << 31) + u) >> (30 - shift)) + 1) >> 1
    else:
        u = (u >> (31 - shift)) + negative
        y = (h << shift) + u
    v = np.frombuffer(random_bytes(2 * n), dtype="<u2")
    # u <= 1 and exp(-r) >= 1 - r: (v + 1) / 2^16 <= 1 - (2h + 1) / (2 tau2) is enough.
    slope = -(-65536 // tau2)
    unsure = np.flatnonzero(v + slope * h > 65535 - (slope + 1) // 2)

    h, v = h[unsure], v[unsure].astype(np.float64)
    bits, width = (31, 2.0**-31) if rounded else (shift, 0.0)
    u = u[unsure]
    least = np.ldexp(u.astype(np.float64), -bits)  # u, or what its further bits add to
    # Floats, with a margin of 2^-40, decide where they err by less than 2^-45: for exponents up to
    # 40. Beyond them 2^16 exp(-r) is below 1e-9, and v = 0 is left undecided.
    high, low = (
        2.0**16 * np.exp(-r * (2 * h + r) / (2 * float(tau2))) for r in (least, least + width)
    )
    kept = v + 1 <= low * _BELOW
    for i in np.flatnonzero(~kept & (v < high * _ABOVE + 1e-9)):
        place, further = Fraction(int(u[i]), 1 << bits), Fraction(width)
        kept[i] = _is_kept(int(h[i]), place, further, tau2, int(v[i]), random_bytes)
    return np.where(negative, -y, y), unsure[~kept]


def _is_kept(
    h: int, u: Fraction, width: Fraction, tau2: Fraction, v: int, random_bytes: RandomBytes
) -> bool:
    """Whether V < exp(-U (2h + U) / (2 tau2)), V from 16 bits v on, U from u to u + width.

    Further bits of both are drawn until it is sure.
    """
    length = 16
    while True:
        low, high = (
            exp_negative(end * (2 * h + end) / (2 * tau2), length + 8) for end in (u + width, u)
        )
        if (v + 1) << 8 <= low - 2:
            return True
        if v << 8 >= high + 2:
            return False
        v = (v << 64) | int.from_bytes(random_bytes(8), "little")
        length += 64
        if width:
            width /= 1 << 64
            u += width * int.from_bytes(random_bytes(8), "little")

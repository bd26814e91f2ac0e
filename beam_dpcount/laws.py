"""Exact noise laws on the integers, sampled exactly from uniform random bytes.

Every law is sampled by inversion: a uniform real U in [0, 1), known only through its leading
bits, falls between two values of the cumulative distribution. A 16-bit look-up decides almost
every draw, 64 bits almost all of the rest; a draw that still lies on a boundary takes more bits
until certified interval arithmetic decides it. No probability is ever rounded and no tail is
cut, so the law that privacy is proved for is the law that is drawn.
"""

from __future__ import annotations

import decimal
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

RandomBytes = Callable[[int], bytes]
IntArray = npt.NDArray[np.int64]

# Tables are used up to this scale; beyond it laws are put together from smaller ones.
_TABLE_SCALE = 512
_MAX_SCALE = 2**33
_UNDECIDED = np.iinfo(np.int32).min


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
        base = 512
        high = DiscreteLaplace(self.parameter / base).sample(n, random_bytes)
        low = _table(_TruncatedGeometric(self.parameter, base)).sample(2 * n, random_bytes)
        return high * base + low[:n] - low[n:]

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
class DiscreteGaussian(Law):
    """P(x) proportional to exp(-x^2 / (2 sigma2)), x an integer; sigma2 an exact rational.

    Its variance is below sigma2, noticeably so for sigma2 < 1 [CKS20].
    """

    sigma2: Fraction

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma2", Fraction(self.sigma2))
        _check_scale(self.sigma2, 2)

    @property
    def scale(self) -> float:
        return math.sqrt(self.sigma2)

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
        return _rejection(self.sigma2, n, random_bytes)

    def tails(self, bits: int) -> list[tuple[int, int]]:
        """Bounds of P(|X| >= m) * 2^bits for m = 1, 2, ... until they cannot matter."""
        top = math.isqrt(int(2 * self.sigma2 * (bits + 2))) + 1  # exp(-top^2/2s2) < 2^-bits
        weights = [exp_negative(j * j / (2 * self.sigma2), bits) for j in range(1, top + 1)]
        # 2 a term, and the integral of the tail beyond `top`.
        error = 2 * top + int(self.sigma2 / top) + 2
        total = (1 << bits) + 2 * sum(weights)
        bounds, tail = [], 0
        for weight in reversed(weights):
            tail += weight
            low = ((2 * (tail - error)) << bits) // (total + 2 * error)
            high = -(((-2 * (tail + error)) << bits) // (total - 2 * error))
            bounds.append((max(low, 0), high))
        return bounds[::-1]


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


def _rejection(sigma2: Fraction, n: int, random_bytes: RandomBytes) -> IntArray:
    """Discrete Gaussian draws from discrete Laplace ones [CKS20, Algorithm 3], vectorised.

    A proposal y is kept with probability exp(-(|y| - sigma2/t)^2 / (2 sigma2)). The test against
    a 53-bit uniform is made in floating point where rounding cannot decide it (wherever the
    scaled probability exceeds 1, gamma < 37 and the relative error is below 2^-44, against a
    margin of 2^-40), and in interval arithmetic elsewhere: it is exact.
    """
    t = math.isqrt(int(sigma2))  # any t > 0 will do; near sigma it keeps 3 in 4
    proposal = DiscreteLaplace(Fraction(t))
    centre, twice = float(sigma2 / t), 2 * float(sigma2)
    parts: list[IntArray] = []
    missing = n
    while missing > 0:
        m = missing + missing // 2 + 16
        y = proposal.sample(m, random_bytes)
        words = np.frombuffer(random_bytes(8 * m), dtype="<u8") >> np.uint64(11)
        gamma = (np.abs(y) - centre) ** 2 / twice
        scaled = np.exp(-gamma) * 2.0**53
        u = words.astype(np.float64)
        kept = u + 1 <= scaled * (1 - 2.0**-40)
        unsure = ~kept & (u < scaled * (1 + 2.0**-40) + 1e-9)
        for i in np.flatnonzero(unsure):
            exact = (abs(int(y[i])) - sigma2 / t) ** 2 / (2 * sigma2)
            kept[i] = _bernoulli_exp(exact, int(words[i]), 53, random_bytes)
        chosen = y[kept][:missing]
        parts.append(chosen)
        missing -= chosen.size
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)


def _bernoulli_exp(gamma: Fraction, prefix: int, length: int, random_bytes: RandomBytes) -> bool:
    """Whether a uniform real beginning with `prefix` (of `length` bits) is below exp(-gamma)."""
    while True:
        threshold = exp_negative(gamma, length + 8)
        if (prefix + 1) << 8 <= threshold - 2:
            return True
        if prefix << 8 >= threshold + 2:
            return False
        prefix = (prefix << 64) | int.from_bytes(random_bytes(8), "little")
        length += 64

"""Tables that laws are sampled from by inversion, and Gaussian draws put together from blocks."""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

RandomBytes = Callable[[int], bytes]
Tails = Callable[[int], Sequence[tuple[int, int]]]
IntArray = npt.NDArray[np.int64]

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


def exp_powers(r: Fraction, n: int, bits: int) -> list[int]:
    """exp(-r m) * 2^bits for m = 1 .. n and r >= 0, each within 2 of the true value.

    A table's exponentials are products of one: see docs/proofs/noise.md, "Products".
    """
    guard = n.bit_length() + 3
    scale = bits + guard
    q = exp_negative(r, scale)
    power, powers = 1 << scale, []
    for _ in range(n):
        power = power * q >> scale
        powers.append(power >> guard)
    return powers


def exp_squares(r: Fraction, n: int, bits: int) -> list[int]:
    """exp(-r m^2) * 2^bits for m = 1 .. n and r >= 0, each within 2 of the true value.

    By (m + 1)^2 = m^2 + (2m + 1): the same page.
    """
    guard = 2 * n.bit_length() + 5
    scale = bits + guard
    odd = exp_negative(r, scale)  # exp(-r (2m + 1))
    q2 = odd * odd >> scale
    square, squares = 1 << scale, []
    for _ in range(n):
        square = square * odd >> scale
        odd = odd * q2 >> scale
        squares.append(square >> guard)
    return squares


class InverseTable:
    """Inversion of P(M >= m), with a look-up for the first bits and certified refinement.

    Args:
      tails: `tails(bits)` bounds P(M >= m) * 2^bits from below and above for m = 1, 2, ...
      signed: give M a uniform sign (the law of a symmetric X from that of |X|).
      cell_bits, word_bits: bits decided by the look-up and by the binary search. With fewer, as
        in tests, the law is the same, refined more often.
    """

    def __init__(
        self, tails: Tails, signed: bool, cell_bits: int = 15, word_bits: int = 64
    ) -> None:
        self._tails, self._signed = tails, signed
        self._cell_bits, self._word_bits = cell_bits, word_bits
        words = self._thresholds()
        self._words = np.array(words[::-1], dtype=np.uint64)  # ascending: of m = len .. 1
        self._cell_mask = np.uint16((1 << cell_bits) - 1)
        cells, shift = 1 << cell_bits, word_bits - cell_bits
        starts = np.array([w >> shift for w in words[::-1]], dtype=np.int64)
        # Where no threshold lies in a cell, all of its reals have the same image.
        guide = len(words) - np.searchsorted(starts, np.arange(cells), side="right")
        guide = guide.astype(np.int32)
        mirrored = -guide if signed else guide.copy()
        guide[starts] = mirrored[starts] = _UNDECIDED
        repeats = (1 << 15) // cells
        self._guide = np.concatenate([np.tile(guide, repeats), np.tile(mirrored, repeats)])

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
        more = np.frombuffer(random_bytes(8 * first.size), dtype="<u8")
        more = more >> np.uint64(64) - more_bits
        words = ((first & self._cell_mask).astype(np.uint64) << more_bits) | more
        above = np.searchsorted(self._words, words, side="right")
        magnitudes = (len(self._words) - above).astype(np.int64)
        for i in np.flatnonzero(self._words[np.maximum(above - 1, 0)] == words):  # on a boundary
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
def inverse_table(law: Any) -> InverseTable:
    return InverseTable(law.tails, law.signed)


@dataclass(frozen=True)
class TruncatedGeometric:
    """P(x) proportional to exp(-x / parameter) on 0 .. size-1: a digit of a geometric."""

    parameter: Fraction
    size: int

    signed: ClassVar[bool] = False

    def tails(self, bits: int) -> list[tuple[int, int]]:
        one = 1 << bits
        powers = exp_powers(1 / self.parameter, self.size, bits)
        last = powers[-1]
        lows = [(max(power - last - 4, 0) << bits) // (one - last + 2) for power in powers[:-1]]
        highs = [-((-(power - last + 4) << bits) // (one - last - 2)) for power in powers[:-1]]
        return [*zip(lows, highs, strict=True)]


@dataclass(frozen=True)
class Block:
    """P(h) proportional to exp(-h^2 / (2 tau2)) on 0, 1, 2, ...: the block that a draw lies in."""

    tau2: Fraction

    signed: ClassVar[bool] = False

    def tails(self, bits: int) -> list[tuple[int, int]]:
        return gaussian_tails(self.tau2, 1, bits)


def from_blocks(sigma2: Fraction, rounded: bool, n: int, random_bytes: RandomBytes) -> IntArray:
    """Draws of the rounded or of the discrete Gaussian, of scale 8 or more, by rejection.

    With blocks of B = 2^shift and tau = sigma / B, a proposal is +-y, y = B (h + u): a block h
    with probability proportional to exp(-h^2 / (2 tau^2)), a place u in it, and a sign. It is kept
    with probability exp(-u (2h + u) / (2 tau^2)), together exp(-y^2 / (2 sigma^2)). For u uniform
    on [0, 1), +-y is N(0, sigma^2), and its rounding is drawn. For u uniform on 0/B .. (B-1)/B
    with the sign +, and on 1/B .. B/B with the sign -, every integer has one (h, u, sign) only,
    and the discrete law is drawn. About 0.4 / tau of the proposals are rejected, and made anew.
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


def first_of_blocks(sigma2: Fraction, rounded: bool) -> Callable[[bytes], int | None]:
    """Makes a single draw of `from_blocks`, where floats decide what is kept."""
    shift, tau2 = _blocks(sigma2)
    table, twice = inverse_table(Block(tau2)), 2 * float(tau2)
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
    """`n` proposals of `from_blocks`, and the indices of those that are rejected."""
    h = inverse_table(Block(tau2)).sample(n, random_bytes)
    words = np.frombuffer(random_bytes(4 * n), dtype="<u4")
    negative = (words >> 31).astype(np.int64)
    u = (words & 0x7FFFFFFF).astype(np.int64)  # 31 bits: more than `shift`, by 2 or more
    if rounded:  # half a unit is a whole number of 2^-31 blocks: no further bit can matter
        y = ((((h << 31) + u) >> (30 - shift)) + 1) >> 1
    else:
        u = (u >> (31 - shift)) + negative
        y = (h << shift) + u
    # Kept is what has V < exp(-u (2h + u) / (2 tau2)), V a uniform real that begins with bits v.
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
    ends = least, least + width
    high, low = (2.0**16 * np.exp(-r * (2 * h + r) / (2 * float(tau2))) for r in ends)
    kept = v + 1 <= low * _BELOW
    for i in np.flatnonzero(~kept & (v < high * _ABOVE + 1e-9)):
        place, further = Fraction(int(u[i]), 1 << bits), Fraction(width)
        kept[i] = _is_kept(int(h[i]), place, further, tau2, int(v[i]), random_bytes)
    return np.where(negative, -y, y), unsure[~kept]


def _is_kept(
    h: int, u: Fraction, width: Fraction, tau2: Fraction, v: int, random_bytes: RandomBytes
) -> bool:
    """Whether V < exp(-U (2h + U) / (2 tau2)), by further bits of V, from v, and U, from u."""
    length = 16
    while True:
        rates = (end * (2 * h + end) / (2 * tau2) for end in (u + width, u))
        low, high = (exp_negative(rate, length + 8) for rate in rates)
        if (v + 1) << 8 <= low - 2:
            return True
        if v << 8 >= high + 2:
            return False
        v = (v << 64) | int.from_bytes(random_bytes(8), "little")
        length += 64
        if width:
            width /= 1 << 64
            u += width * int.from_bytes(random_bytes(8), "little")


def gaussian_tails(sigma2: Fraction, sides: int, bits: int) -> list[tuple[int, int]]:
    """Bounds of P(X >= m) * 2^bits, X = 0, 1, ... of weights 1, sides * exp(-x^2 / (2 sigma2))."""
    top = math.isqrt(int(2 * sigma2 * (bits + 2))) + 1  # exp(-top^2/2s2) < 2^-bits
    weights = exp_squares(1 / (2 * sigma2), top, bits)
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

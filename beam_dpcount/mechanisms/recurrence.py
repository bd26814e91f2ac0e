"""The recurrences of a BLT in whole numbers: how streams are encoded, noised and decoded.

All constants are integers over powers of two, so the encoder is known exactly, and every machine
computes the same numbers. With scales V_t of the columns, and weights p_t <= 1 of the rows, which
both stay the same over stretches of steps (see blt.py), step t of an input x is

  encoder   v = x V_t,  k_i <- k_i + v - floor(k_i a_i)
            q = round(p_t floor(2^24 sum of c_i k_i / 2^F) / 2^24),  y = q + z
  decoder   u = floor(2^G y / p_t),  b = u + floor(sum of w_i m_i),  m_i <- m_i + u - floor(m_i e_i)
            n = floor(D_t b) + E,  E <- E + floor((D_t - D_(t+1)) b),  D_t = 2^F / V_t

and the release is n / 2^G. One pole does not fade: a_0 = 0, or where all of R fade, e_d = 0. What
is summed there is exact. Most have p_t = 1: q is then (sum of c_i k_i) / 2^F, rounded once.
What the floors do to q: docs/proofs/real_encoders.md. Those behind y are post-processing.
`Recurrence.step` is the definition; a compiled twin, where it could be built, does the same, some
20 times as fast [test_recurrence.py: byte for byte].
"""

from __future__ import annotations

import logging
import math
import operator
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from beam_dpcount.mechanisms.base import FloatArray
from beam_dpcount.mechanisms.blt_tables import POLE_BITS, Poles, Stretches, geometric, powers

try:
    import beam_dpcount.mechanisms._blt as _blt  # type: ignore[import-not-found]
except ImportError:  # no compiler was there, or none with integers of 128 bits
    _blt = None
twin: Any = _blt

_LOGGER = logging.getLogger(__name__)

_POINT = 24  # bits behind the point of a row's sum, before its weight
_INVERSE = 44  # bits of 1 / p: what undoes a weight of 1 is 2^44, exactly
_UP = 1 + 1e-6
_WIDEST = 126  # bits of an absolute value that the compiled twin takes
_SPLIT = 24  # bits that its products may have beyond: it multiplies low bits separately

CONSTANTS = _POINT, _INVERSE, _UP, _WIDEST  # that a state depends on

# k_0 (unless all fade) .. k_d, E, m_1 .. m_d, as above.
Numbers = tuple[int, ...]


@dataclass(frozen=True)
class Recurrence:
    """The recurrences of one BLT, for inputs and noise of limited size.

    Args:
      p: its poles.
      stretches: V and p, and F.
      horizon: T.
      largest: a bound on the absolute values of inputs.
      noise: the largest absolute value of a draw that matters: of sums beyond it y is clamped,
        which is post-processing.
      kept: bits behind the point of a release that the decoder's floors leave.
      scale_bits: those of D; the scales of all steps must agree so well.
    """

    p: Poles
    stretches: Stretches
    horizon: int
    largest: int
    noise: int
    kept: int
    scale_bits: int

    @cached_property
    def a(self) -> list[tuple[int, int]]:
        """Decays of the encoder where it fades: factors, and the bits to shift products by."""
        return [_dyadic(a) for a in self.p.a[self.p.lead :].tolist()]

    @cached_property
    def e(self) -> list[tuple[int, int]]:
        """Decays of the decoder."""
        return [_dyadic(e) for e in self.p.e.tolist()]

    @cached_property
    def c(self) -> list[int]:
        """Weights of the encoder, in units of 2^-P."""
        return [int(math.ldexp(c, self.p.bits)) for c in self.p.c.tolist()]

    @cached_property
    def w(self) -> list[int]:
        """Weights of the decoder, in units of 2^-P."""
        return [int(math.ldexp(w, self.p.bits)) for w in self.p.w.tolist()]

    @cached_property
    def scales(self) -> list[int]:
        """D of each stretch: exactly what undoes the columns' V, but for its last bit."""
        one = 1 << self.stretches.fraction + self.scale_bits
        return [(2 * one + v) // (2 * v) for v in self.stretches.columns]

    @cached_property
    def inverses(self) -> list[int]:
        """What undoes the weights of rows, in units of 2^-44, but for its last bit."""
        one = 1 << self.stretches.weight_bits + _INVERSE
        return [(2 * one + weight) // (2 * weight) for weight in self.stretches.weights]

    @cached_property
    def decoder_bits(self) -> int:
        """G, so that the decoder's floors lose no more than they may."""
        weights = zip(self.p.e.tolist(), self.p.w.tolist(), strict=True)
        floors = sum(w * min(self.horizon, 1 / e) for e, w in weights if e)
        return max(0, math.ceil(math.log2(floors)) + self.kept)

    @cached_property
    def clamp_log(self) -> int:
        """Of y: the logarithm of what no encoded sum and noise exceed."""
        return (self._most_encoded + self.noise).bit_length()

    def _peaks(self, values: FloatArray, gaps: FloatArray) -> FloatArray:
        """The largest sums over s <= t of value_s (1 - gap)^(t-s), t in each stretch, for each gap.

        `values` are positive, and given by stretch: sums go up or down within one.
        """
        lengths = np.diff([*self.stretches.starts, self.horizon + 1])
        largest = np.empty((len(gaps), len(values)))
        for i, gap in enumerate(gaps):
            faded, gained = powers(gap, lengths).tolist(), values * geometric(gap, lengths)
            both = zip(faded, gained.tolist(), strict=True)
            ends = [*accumulate(both, lambda held, s: held * s[0] + s[1], initial=0.0)]
            largest[i] = np.maximum(ends[1:], ends[:-1])
        return largest * _UP

    @cached_property
    def _held(self) -> FloatArray:
        """Bounds on the encoder's sums of inputs of 1, shape (d + 1, stretches), without floors."""
        return self._peaks(np.array(self.stretches.columns, dtype=float), self.p.a)

    @cached_property
    def _most(self) -> list[int]:
        """Bounds on the absolute values of the encoder's sums."""
        by, steps = self.stretches, self.horizon
        if by.weight_bits:
            peaks = map(int, self._held.max(axis=1).tolist())
            return [(peak + 1) * self.largest + steps for peak in peaks]
        v = max(by.columns) * self.largest + 1
        return [v * steps] * self.p.lead + [v * _most_steps(steps, *a) for a in self.a]

    @cached_property
    def _most_encoded(self) -> int:
        by = self.stretches
        if by.weight_bits:
            rows = (self.p.c @ self._held) * np.array(by.weights, dtype=float)
            most = math.ldexp(float(rows.max()) * _UP, -by.fraction - by.weight_bits)
            return (int(most) + 1) * self.largest + 2
        return (_dot(self.c, self._most) >> by.fraction + self.p.bits) + 1

    @cached_property
    def _bounds(self) -> tuple[list[int], int, int, int]:
        """Bounds on the absolute values of all numbers, of all that a step computes, of products in
        it that are shifted afterwards, which the compiled twin may split, and of what a brief one
        has in 64 bits: the numbers, b and n."""
        clamp, G = 1 << self.clamp_log, self.decoder_bits
        y, steps = ((clamp * max(self.inverses) << G) >> _INVERSE) + 1, self.horizon
        held = [(y + 1) * _most_steps(steps, *e) for e in self.e]
        if self.stretches.weight_bits:
            peaks = self._peaks(np.ldexp(np.array(self.inverses, dtype=float), -_INVERSE), self.p.e)
            held = [((int(peak) + 1) * clamp << G) + steps for peak in peaks.max(axis=1).tolist()]
        b = y + (_dot(self.w, held) >> self.p.bits) + 1
        # All changes of D together, which are at most D where it only falls; each adds at most 1 by
        # its floor.
        changes = sum(abs(D - following) for D, following in pairwise(self.scales))
        earlier = (b * max(*self.scales, changes) >> self.scale_bits) + len(self.scales)
        numbers = [*self._most, earlier, *held]
        # n is floor(D b) + E, and each of the two is within `earlier`.
        brief = max(*numbers, b, 2 * earlier)
        computed = [
            *(2 * number for number in (*numbers, b)),
            self._most_encoded << 2 + _POINT + self.stretches.weight_bits,
            2 * clamp * max(self.inverses) << max(0, self.decoder_bits - _INVERSE),
        ]
        products = [
            2 * _dot(self.c, self._most),
            2 * _dot(self.w, held),
            2 * b * max(self.scales),
            *(2 * k * a for k, (a, _) in zip(self._most[self.p.lead :], self.a, strict=True)),
            *(2 * m * e for m, (e, _) in zip(held, self.e, strict=True)),
        ]
        return numbers, max(computed), max(products), brief

    @cached_property
    def is_narrow(self) -> bool:
        """Whether all that a step computes fits the compiled twin, if products are split."""
        _, computed, products, _ = self._bounds
        return computed.bit_length() <= _WIDEST and products.bit_length() <= _WIDEST + _SPLIT

    @cached_property
    def is_brief(self) -> bool:
        """Whether numbers, b and n fit 64 bits, and no product needs to be split.

        What the twin adds up of them may then wrap around on the way: sums modulo 2^64 are right
        where the last one fits. A stream has 8 bytes or more, as numbers are read 8 at a time.
        """
        _, computed, products, brief = self._bounds
        narrow = max(computed, products).bit_length() <= _WIDEST
        return narrow and brief.bit_length() < 64 and self.size >= 8

    @cached_property
    def widths(self) -> list[int]:
        """How many bytes each number takes."""
        return [number.bit_length() // 8 + 1 for number in self._bounds[0]]

    @cached_property
    def size(self) -> int:
        """How many bytes all numbers take."""
        return sum(self.widths)

    def stretch_of(self, t: int) -> int:
        """Which stretch step t is in, from 1; what follows the last step is in that of it."""
        return bisect_right(self.stretches.starts, t) - 1

    def encode(self, k: Numbers, t: int, x: int) -> tuple[Numbers, int]:
        """The encoder's sums after step t, from 1, and q."""
        i, by = self.stretch_of(t), self.stretches
        v = x * by.columns[i]
        lead = self.p.lead
        fading = zip(k[lead:], self.a, strict=True)
        k = (*[h + v for h in k[:lead]], *[h + v - (h * a >> shift) for h, (a, shift) in fading])
        row = _dot(self.c, k) >> by.fraction + self.p.bits - _POINT
        half = 1 << _POINT + by.weight_bits - 1
        return k, row * by.weights[i] + half >> _POINT + by.weight_bits

    def decode(self, E: int, m: Numbers, t: int, y: int) -> tuple[int, Numbers, int]:
        """E and the decoder's sums after step t, and n."""
        i, following = self.stretch_of(t), self.stretch_of(t + 1)
        limit, G = 1 << self.clamp_log, self.decoder_bits
        y = min(max(y, -limit), limit) * self.inverses[i]
        y = y >> _INVERSE - G if G <= _INVERSE else y << G - _INVERSE
        b = y + (_dot(self.w, m) >> self.p.bits)
        fading = zip(m, self.e, strict=True)
        m = tuple([h + y - (h * e >> shift) for h, (e, shift) in fading])
        D = self.scales[i]
        n = (b * D >> self.scale_bits) + E
        if following != i:
            E += b * (D - self.scales[following]) >> self.scale_bits
        return E, m, n

    def step(self, numbers: Numbers, t: int, x: int, z: int) -> tuple[Numbers, int]:
        """The numbers after step t, from 1, and n."""
        middle = len(self.p.a)
        k, q = self.encode(numbers[:middle], t, x)
        E, m, n = self.decode(numbers[middle], numbers[middle + 1 :], t, q + z)
        return (*k, E, *m), n

    def value(self, n: int) -> float:
        """n as a release, on the lattice of the inputs."""
        return n / (1 << self.decoder_bits)

    def pack(self, numbers: Numbers) -> bytes:
        """Numbers as bytes."""
        parts = zip(numbers, self.widths, strict=True)
        return b"".join([number.to_bytes(n, "little", signed=True) for number, n in parts])

    def unpack(self, data: bytes) -> Numbers:
        """The numbers that were packed."""
        if len(data) != self.size:
            raise ValueError("bytes of another length were expected")
        return tuple(int.from_bytes(data[a:b], "little", signed=True) for a, b in self._places)

    @cached_property
    def _places(self) -> list[tuple[int, int]]:
        return [*pairwise(accumulate(self.widths, initial=0))]

    def check(self, x: int) -> int:
        """x, or an OverflowError: larger inputs than were promised would not fit the bytes."""
        if abs(x) > self.largest:
            raise OverflowError("an input is larger than this mechanism was made for")
        return x


class InPython:
    """Runs recurrences on packed numbers."""

    def __init__(self, recurrence: Recurrence) -> None:
        self._made = recurrence

    def step(self, packed: bytes, t: int, x: int, z: int) -> tuple[bytes, float]:
        """One stream: what is kept after step t, from 1, and its release."""
        made = self._made
        numbers, n = made.step(made.unpack(packed), t, made.check(int(x)), int(z))
        return made.pack(numbers), made.value(n)

    def run(
        self, packed: bytes, t: int, n: int, streams: int, xs: bytes | None, zs: bytes, wanted: bool
    ) -> tuple[bytes, bytes | None]:
        """n steps from step t on, of streams side by side.

        Args:
          packed: of all streams, one behind the other.
          xs, zs: int64 of shape (n, streams); None stands for zeros.
          wanted: whether to return the releases too, float64 of the same shape.
        """
        made, shape = self._made, (n, streams)
        inputs = np.zeros(shape, np.int64) if xs is None else np.frombuffer(xs, np.int64)
        noise, values = np.frombuffer(zs, np.int64).reshape(shape), np.zeros(shape)
        inputs, kept = inputs.reshape(shape), []
        for j in range(streams):
            numbers = made.unpack(packed[j * made.size : (j + 1) * made.size])
            both = zip(inputs[:, j].tolist(), noise[:, j].tolist(), strict=True)
            for i, (x, z) in enumerate(both):
                numbers, given = made.step(numbers, t + i, made.check(x), z)
                values[i, j] = made.value(given)
            kept.append(made.pack(numbers))
        return b"".join(kept), values.tobytes() if wanted else None


def compiled(recurrence: Recurrence) -> Any:
    """The compiled twin of `InPython`; None where there is none, or numbers are too wide for it.

    Nor is one taken that does otherwise, as one that was left by another version may.
    """
    made, by = recurrence, recurrence.stretches
    constants = [made.largest, *made.c, *made.w, *by.columns, *made.scales, *by.weights]
    narrow = max(map(abs, [*constants, *made.inverses])) < 1 << 63
    if twin is None or not made.is_narrow or not narrow:
        return None
    # Passed only if needed: twins of earlier versions do not take them.
    wide, brief = made._bounds[2].bit_length() > _WIDEST, made.is_brief
    how = (wide, brief) if brief else (wide,) * wide
    try:
        found = twin.Recurrence(
            *(made.p.buffers, by.fraction + made.p.bits - _POINT, made.p.bits, made.decoder_bits),
            *(made.scale_bits, _POINT + by.weight_bits, _INVERSE),
            *(made.horizon, made.largest, made.clamp_log),
            *zip(*made.a, strict=True),
            *zip(*made.e, strict=True),
            *(made.c, made.w, made.widths),
            *(by.starts, by.columns, made.scales, by.weights, made.inverses),
            *how,
        )
        if _agree(InPython(made), found):
            return found
    except Exception:  # noqa: S110  (whatever it raises, it is none of this version)
        pass
    _warn_of_twin()
    return None


def _agree(ours: InPython, theirs: Any) -> bool:
    """Whether two take some steps alike: the first, at a border of stretches, and the last."""
    made = ours._made
    border, n = made.stretches.starts[-1], made.horizon
    packed, x, z = bytes(made.size), made.largest, 1 << 40
    for t in sorted({1, max(1, border - 1), border, n}):
        step = ours.step(packed, t, x, z)
        if theirs.step(packed, t, x, z) != step:
            return False
        packed, x, z = step[0], -x, -3 * z
    how = bytes(made.size), n, 1, 1, x.to_bytes(8, "little", signed=True), bytes(8), True
    return bool(ours.run(*how) == theirs.run(*how))


@lru_cache
def _warn_of_twin() -> None:
    """Once a worker."""
    _LOGGER.warning(
        "the compiled part of beam_dpcount does not do what its Python does, so it is of another "
        "version: it is left out, which changes no release but is slower; install the package anew"
    )


def _most_steps(steps: int, decay: int, shift: int) -> int:
    """A bound on what a sum of so many ones has at most, with this decay."""
    return min(steps, (1 << shift) // decay + 1) if decay else steps


def _dyadic(fraction: float) -> tuple[int, int]:
    """(m, s) with m / 2^s the fraction, which has POLE_BITS digits."""
    mantissa, exponent = math.frexp(fraction)
    return int(math.ldexp(mantissa, POLE_BITS)), POLE_BITS - exponent


def _dot(weights: Sequence[int], numbers: Sequence[int]) -> int:
    return sum(map(operator.mul, weights, numbers))

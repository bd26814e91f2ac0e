"""Sums over the last W steps, for a stream that goes on: a BLT whose encoder forgets."""

from __future__ import annotations

import hashlib
import math
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, ClassVar

import numpy as np

from beam_dpcount.checks import check_whole
from beam_dpcount.mechanisms import sliding_tables as tables
from beam_dpcount.mechanisms.base import (
    FloatArray,
    IntArray,
    Mechanism,
    State,
    UnsupportedHorizonError,
)
from beam_dpcount.mechanisms.blt_tables import POLE_BITS, powers
from beam_dpcount.mechanisms.rounded import RoundedMechanism, lag_bounds
from beam_dpcount.mechanisms.sliding_tables import WEIGHT_BITS, WindowPoles
from beam_dpcount.mechanisms.workload import LastSteps, Workload, toeplitz
from beam_dpcount.noise.entropy import Noise

# Draws beyond so many standard deviations are clamped: of Gaussian ones, less than exp(-2000).
_TAIL = 64
# F is so much more than what the encoder's floors may add: Gamma <= 2^-9; more in short streams.
_BEYOND, _FINE = 9, 36
# Streams longer than that have a lattice so much coarser.
_LONG, _COARSER = 1 << 20, 8
# The decoder's floors lose 2^-17 of a count or so; less in short streams.
_KEPT, _KEPT_OF_SHORT = 17, 52


@dataclass(frozen=True)
class SlidingBLT(RoundedMechanism):
    """Sums over the last W steps, whose variance rises to a limit, however long the stream is.

    R is a sum of d exponentials, all of which fade, fitted for W, and L = (1 - z^W) A / R. A state
    holds the last W noised numbers (some 7 bytes each), which every step writes anew.

    Args:
      horizon: number of steps T, up to 2^30: a ceiling, which costs no more noise than fewer steps.
      window: W, from 1 to 2^20 steps. Public.

    Guarantee: Delta_2^2 = sum of r_j^2 over j < T (the first column), by a sum of positive terms;
      to it comes what rounding adds in each of T rows (see RoundedMechanism: at most 1e-4, and 8e-4
      beyond 2^20 steps, where a lattice as fine would be out of reach of weak budgets' noise).
      Gaussian noise: takes zero-concentrated and approximate budgets. Variance of release t: that
      of one draw times sum of l_j^2 over j < t, exact; it rises, so that the last is the largest.

    Source: docs/proofs/sliding.md; the recurrences are those of [DMPST24].
    """

    window: int
    # The largest input and noise that it computes with, see `within`: they do not tell two apart.
    limits: tuple[int, int] | None = field(default=None, init=False, repr=False, compare=False)

    longest: ClassVar[int] = 1 << 30
    widest: ClassVar[int] = 1 << tables.LARGEST_LOG
    encoding_error: ClassVar[float] = 0.0  # all arithmetic is of whole numbers

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "window", check_window(self.window))

    @property
    def workload(self) -> Workload:
        return LastSteps(window=self.window)

    @property
    def fingerprint(self) -> str:
        if self.horizon > self.longest:
            return repr(self)
        p = self._poles
        exact = [made.tolist() for made in (p.e, p.a, p.c, p.w)]
        digest = hashlib.sha256(ascii(exact).encode()).hexdigest()[:16]
        bits = _KEPT, _KEPT_OF_SHORT, _BEYOND, _FINE
        return f"{self!r} of {digest} up to {self.limits} in {bits} bits"

    @cached_property
    def _poles(self) -> WindowPoles:
        if self.horizon > self.longest:
            raise UnsupportedHorizonError(
                f"SlidingBLT takes up to 2^30 steps, got a horizon of {self.horizon}: give fewer, "
                "and start anew after them, with a budget of its own"
            )
        return tables.window_poles(self.window)

    @cached_property
    def _variances(self) -> tables.Variances:
        return tables.variances(self.window)

    @property
    def l1_sensitivity(self) -> float:
        return tables.column_sum(self._poles, self.horizon)

    @cached_property
    def l2_sensitivity_squared(self) -> float:
        return float(tables.column_products(self._poles, self.horizon, np.array([0]))[0])

    def lag_bounds(self, n: int) -> tuple[float, ...]:
        """Sums over k < T - d of r_k r_(k+d): r falls, so the first two columns d apart."""
        lags = np.arange(1, min(n, self.horizon), dtype=np.int64)
        products = tables.column_products(self._poles, self.horizon, lags)
        return lag_bounds(self.l2_sensitivity_squared, products.tolist(), n)

    @property
    def rounding(self) -> float:
        lost = math.ldexp(tables.floors(self._poles, self.horizon), -self._fraction)
        return (1 + lost) * (1 + 1e-12)

    @cached_property
    def _fraction(self) -> int:
        """F."""
        fine = math.ceil(math.log2(tables.floors(self._poles, self.horizon))) + _BEYOND
        return max(_FINE - self.horizon.bit_length(), fine)

    def resolution(self, magnitude: int, largest: int | None = None) -> int:
        fine = super().resolution(magnitude, largest)
        return fine if self.horizon <= _LONG else max(1, fine // _COARSER)

    @property
    def state_size(self) -> int:
        return 2 * self._poles.buffers + 1 + min(self.window, self.horizon)

    # The state: t, and all other numbers packed: bytes, or an array of them for vector streams.

    def within(self, largest: int, noise: float) -> Mechanism:
        made = replace(self)
        limits = max(1, math.ceil(largest)), 1 << math.ceil(math.log2(_TAIL * max(noise, 16)))
        object.__setattr__(made, "limits", limits)
        return made

    @cached_property
    def _recurrence(self) -> SlidingRecurrence:
        fine = self.resolution(1)
        limits = self.limits or (fine << 26, fine << 26)
        kept = max(_KEPT, _KEPT_OF_SHORT - 2 * self.horizon.bit_length())
        kept -= fine.bit_length() - 1
        window = min(self.window, self.horizon)  # a shorter stream is never longer than that
        return SlidingRecurrence(self._poles, window, self._fraction, self.horizon, *limits, kept)

    def init(self, dimension: int | None = None) -> State:
        size = self._recurrence.size
        return (0, bytes(size) if dimension is None else np.zeros(dimension, f"V{size}"))

    def state_types(self, n: int) -> Sequence[str]:
        return ("q", f"{self._recurrence.size}s")

    def step(self, state: State, x: Any, noise: Noise) -> tuple[State, Any]:
        t, packed = self.next_step(state), state[1]
        z = noise.one(t)
        if type(packed) is bytes:
            packed, values = self._recurrence.run(packed, t, (int(x),), (int(z),))
            return (t, packed), values[0]
        packed, made = self._run(packed, t, z[None], x[None])
        return (t, packed), made[0]

    def steps(self, state: State, xs: IntArray, noise: Noise) -> tuple[State, FloatArray]:
        n, t = len(xs), state[0]
        if not n or t + n > self.horizon:
            return super().steps(state, xs, noise)
        packed, values = self._run(state[1], t + 1, noise.draw(t + 1, n), xs)
        return (t + n, packed), values

    def after(self, n: int, noise: Noise, dimension: int | None = None) -> State:
        packed = self.init(dimension)[1]
        if self.check_steps(n):
            z = noise.draw(1, n)
            packed, _ = self._run(packed, 1, z, np.zeros(z.shape, dtype=np.int64))
        return (n, packed)

    def release(self, xs: IntArray, noise: Noise) -> Any:
        n = self.check_steps(len(xs))
        z = noise.draw(1, n)
        if not xs.size:
            return np.zeros(np.shape(xs))
        return self._run(self.init(None if xs.ndim == 1 else xs.shape[1])[1], 1, z, xs)[1]

    def _run(self, packed: Any, t: int, z: IntArray, xs: IntArray) -> tuple[Any, FloatArray]:
        """What is kept after steps from t on, and the releases."""
        run = self._recurrence.run
        if type(packed) is bytes:
            packed, values = run(packed, t, xs.tolist(), z.tolist())
            return packed, np.array(values)
        kept, made = np.empty(packed.shape, packed.dtype), np.empty(z.shape)
        for j in range(len(packed)):
            one, values = run(packed[j].tobytes(), t, xs[:, j].tolist(), z[:, j].tolist())
            kept[j], made[:, j] = np.void(one), values
        return kept, made

    def draws(self, n: int) -> int:
        return n

    def encoder(self, n: int) -> FloatArray:
        p, j = self._poles, np.arange(self.check_steps(n))[:, None]
        return toeplitz(powers(p.a, j) @ p.c)

    def decoder(self, n: int) -> FloatArray:
        return toeplitz(self._variances.coefficients(self.check_steps(n)))

    def products(self, s: IntArray, lag: int) -> FloatArray:
        return self._variances.products(s, lag)

    def row_norm2(self, t: int) -> float:
        return self._variances.of_one(t)

    def row_norms2(self, n: int) -> FloatArray:
        return self._variances.of(self.check_steps(n))

    def max_row_norm2(self) -> float:
        return self.row_norm2(self.horizon)

    def mean_row_norm2(self) -> float:
        return self._variances.sum(self.horizon) / self.horizon


def check_window(window: Any) -> int:
    """`window` as an int, or an error that says what to pass."""
    return check_whole("window", window, SlidingBLT.widest)


@dataclass(frozen=True)
class SlidingRecurrence:
    """The recurrences of one SlidingBLT in whole numbers, for inputs and noise of limited size.

    Step t of an input x, D and y whole numbers, P = WEIGHT_BITS:

      encoder   k_i <- k_i + x 2^F - floor(k_i a_i),  q = round((sum of c_i k_i) / 2^F),  y = q + z
      decoder   D = y_t - y_(t-W),  n = D 2^G + floor(p w_d 2^G + sum of w_i m_i),
                m_i <- m_i + D 2^G - floor(m_i e_i),  p <- p + D

    and the release is n / 2^G. p sums whole numbers, so nothing is lost in it however long it runs;
    all else fades.

    Args:
      p: its poles.
      window: W.
      fraction: F.
      horizon: T.
      largest: a bound on the absolute values of inputs.
      noise: the largest absolute value of a draw that matters: of sums beyond it y is clamped,
        which is post-processing.
      kept: bits behind the point of a release that the decoder's floors leave.
    """

    p: WindowPoles
    window: int
    fraction: int
    horizon: int
    largest: int
    noise: int
    kept: int

    @cached_property
    def _a(self) -> list[tuple[int, int]]:
        return [_dyadic(a) for a in self.p.a.tolist()]

    @cached_property
    def _e(self) -> list[tuple[int, int]]:
        return [_dyadic(e) for e in self.p.e.tolist()]

    @cached_property
    def _weights(self) -> tuple[list[int], list[int]]:
        """c, and w, in units of 2^-P."""
        made = [[int(math.ldexp(x, WEIGHT_BITS)) for x in some] for some in (self.p.c, self.p.w)]
        return made[0], made[1]

    @cached_property
    def decoder_bits(self) -> int:
        """G, so that the decoder's floors lose no more than they may."""
        lost = 1 + float(self.p.w[:-1] @ np.minimum(self.horizon, 1 / self.p.e))
        return max(0, math.ceil(math.log2(lost)) + self.kept)

    @cached_property
    def _most(self) -> list[int]:
        """Bounds on the absolute values of the encoder's sums."""
        v = (self.largest << self.fraction) + 1
        return [v * min(self.horizon, (1 << shift) // a + 1) for a, shift in self._a]

    @cached_property
    def clamp_log(self) -> int:
        """Of y: the logarithm of what no encoded sum and noise exceed."""
        c, _ = self._weights
        encoded = (_dot(c, self._most) >> self.fraction + WEIGHT_BITS) + 1
        return (encoded + self.noise).bit_length()

    @cached_property
    def _widths(self) -> list[int]:
        """How many bytes k_1 .. k_d, p, m_1 .. m_(d-1) take, and last one y."""
        y = 1 << self.clamp_log
        D = 2 * (y << self.decoder_bits) + 1
        held = [D * min(self.horizon, (1 << shift) // e + 1) for e, shift in self._e]
        most = [*self._most, y * self.window, *held, y]
        return [number.bit_length() // 8 + 1 for number in most]

    @cached_property
    def size(self) -> int:
        """How many bytes all numbers take."""
        return sum(self._widths[:-1]) + self._widths[-1] * self.window

    @cached_property
    def _places(self) -> list[tuple[int, int]]:
        """Where the numbers are, but for the last y, and where those begin."""
        return [*pairwise(accumulate(self._widths[:-1], initial=0))]

    def run(
        self, packed: bytes, t: int, xs: Iterable[int], zs: Iterable[int]
    ) -> tuple[bytes, list[float]]:
        """Steps from t on: what is kept after them, and the releases.

        Args:
          packed: what was kept before; of the last y, that of step s is at place (s - 1) mod W.

        Raises:
          OverflowError: an input is larger than was promised, and would not fit the bytes.
        """
        numbers = [int.from_bytes(packed[i:j], "little", signed=True) for i, j in self._places]
        last, width, d = bytearray(packed[self._places[-1][1] :]), self._widths[-1], len(self._a)
        k, p, m = numbers[:d], numbers[d], numbers[d + 1 :]
        a, e, (c, w) = self._a, self._e, self._weights
        w, one = w[:-1], w[-1]
        F, G, limit = self.fraction, self.decoder_bits, 1 << self.clamp_log
        bits, half = F + WEIGHT_BITS, 1 << F + WEIGHT_BITS - 1
        scale, from_bytes = 1 << G, int.from_bytes
        values, place = [], (t - 1) % self.window * width
        for x, z in zip(xs, zs, strict=True):
            if abs(x) > self.largest:
                raise OverflowError("an input is larger than this mechanism was made for")
            v = x << F
            k = [h + v - (h * f >> s) for h, (f, s) in zip(k, a, strict=True)]
            y = (sum(map(operator.mul, c, k)) + half >> bits) + z
            y = min(max(y, -limit), limit)
            end = place + width
            D = y - from_bytes(last[place:end], "little", signed=True)
            last[place:end] = y.to_bytes(width, "little", signed=True)
            place = end if end < len(last) else 0
            v = D << G
            values.append(
                (v + (sum(map(operator.mul, w, m)) + (p * one << G) >> WEIGHT_BITS)) / scale
            )
            m = [h + v - (h * f >> s) for h, (f, s) in zip(m, e, strict=True)]
            p += D
        made = zip([*k, p, *m], self._widths, strict=False)
        return b"".join(
            [*(n.to_bytes(size, "little", signed=True) for n, size in made), last]
        ), values


def _dyadic(fraction: float) -> tuple[int, int]:
    """(m, s) with m / 2^s the fraction, which has POLE_BITS digits."""
    mantissa, exponent = math.frexp(fraction)
    return int(math.ldexp(mantissa, POLE_BITS)), POLE_BITS - exponent


def _dot(weights: Sequence[int], numbers: Sequence[int]) -> int:
    return sum(map(operator.mul, weights, numbers))

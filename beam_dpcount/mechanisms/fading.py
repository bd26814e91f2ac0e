"""What SlidingBLT and DecayedBLT share: encoders that fade, run in whole numbers."""

from __future__ import annotations

import hashlib
import math
import operator
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, ClassVar

import numpy as np

from beam_dpcount.mechanisms import fading_tables as tables
from beam_dpcount.mechanisms.base import (
    FloatArray,
    IntArray,
    Mechanism,
    State,
    UnsupportedHorizonError,
)
from beam_dpcount.mechanisms.blt_tables import powers
from beam_dpcount.mechanisms.fading_tables import COMB, WEIGHT_BITS, FadingPoles
from beam_dpcount.mechanisms.rounded import RoundedMechanism, lag_bounds
from beam_dpcount.mechanisms.workload import toeplitz
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
class FadingBLT(RoundedMechanism):
    """A BLT without a pole at 1: what it encodes of an item fades, and the variance has a limit.

    Guarantee: Delta_2^2 = sum of r_j^2 over j < T (the first column), by a sum of positive terms;
      to it comes what rounding adds in each of T rows (see RoundedMechanism: at most 1e-4, and 4e-4
      beyond 2^20 steps, where a lattice as fine would be out of reach of weak budgets' noise).
    """

    # The largest input and noise that it computes with, see `within`: they do not tell two apart.
    limits: tuple[int, int] | None = field(
        default=None, init=False, repr=False, compare=False, kw_only=True
    )

    longest: ClassVar[int] = 1 << 30
    encoding_error: ClassVar[float] = 0.0  # all arithmetic is of whole numbers

    @property
    @abstractmethod
    def _fitted(self) -> FadingPoles:
        """Its poles, for any horizon."""

    @property
    @abstractmethod
    def _variances(self) -> tables.Variances | tables.Comb:
        """Of its releases."""

    @property
    def _kept_steps(self) -> int:
        """How many noised numbers a state holds."""
        return 0

    @property
    def _comb(self) -> bool:
        """Whether both ends have a pole in z^W too."""
        return False

    @property
    def _floors(self) -> float:
        """What the encoder's floors add to a row at most, in units of 2^-F."""
        return tables.floors(self._poles, self.horizon)

    @property
    def fingerprint(self) -> str:
        if self.horizon > self.longest:
            return repr(self)
        p = self._poles
        exact = [made.tolist() for made in (p.e, p.a, p.c, p.w)]
        digest = hashlib.sha256(ascii(exact).encode()).hexdigest()[:16]
        bits = _TAIL, _BEYOND, _FINE, _LONG, _COARSER, _KEPT, _KEPT_OF_SHORT, WEIGHT_BITS
        return f"{self!r} of {digest} up to {self.limits} in {bits} bits"

    @property
    def _poles(self) -> FadingPoles:
        if self.horizon > self.longest:
            raise UnsupportedHorizonError(
                f"{self.name} takes up to 2^30 steps, got a horizon of {self.horizon}: give fewer, "
                "and start anew after them, with a budget of its own"
            )
        return self._fitted

    @property
    def l1_sensitivity(self) -> float:
        return tables.column_sum(self._poles, self.horizon)

    @cached_property
    def l2_sensitivity_squared(self) -> float:
        return float(tables.column_products(self._poles, self.horizon, np.array([0]))[0])

    def lag_bounds(self, n: int) -> tuple[float, ...]:
        """Sums over k < T - d of r_k r_(k+d): r falls, so the first two columns d apart."""
        return self.spaced_bounds(1, n)

    def spaced_bounds(self, gap: int, n: int) -> tuple[float, ...]:
        most = -(-self.horizon // gap)  # of larger lags there are no columns
        lags = gap * np.arange(1, min(n, most), dtype=np.int64)
        products = tables.column_products(self._poles, self.horizon, lags)
        return lag_bounds(self.l2_sensitivity_squared, products.tolist(), n)

    @property
    def rounding(self) -> float:
        lost = math.ldexp(self._floors, -self._fraction)
        return (1 + lost) * (1 + 1e-12)

    @cached_property
    def _fraction(self) -> int:
        """F."""
        fine = math.ceil(math.log2(self._floors)) + _BEYOND
        return max(_FINE - self.horizon.bit_length(), fine)

    def resolution(self, magnitude: int, largest: int | None = None) -> int:
        fine = super().resolution(magnitude, largest)
        return fine if self.horizon <= _LONG else max(1, fine // _COARSER)

    @property
    def state_size(self) -> int:
        return 2 * self._poles.buffers + 1 + self._kept_steps

    # The state: t, and all other numbers packed: bytes, or an array of them for vector streams.

    def within(self, largest: int, noise: float) -> Mechanism:
        made = replace(self)
        limits = max(1, math.ceil(largest)), 1 << math.ceil(math.log2(_TAIL * max(noise, 16)))
        object.__setattr__(made, "limits", limits)
        return made

    @cached_property
    def _recurrence(self) -> FadingRecurrence:
        fine = self.resolution(1)
        limits = self.limits or (fine << 26, fine << 26)
        kept = max(_KEPT, _KEPT_OF_SHORT - 2 * self.horizon.bit_length())
        kept -= fine.bit_length() - 1
        sizes = self._kept_steps, self._fraction, self.horizon
        return FadingRecurrence(self._poles, *sizes, *limits, kept, self._comb)

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


@dataclass(frozen=True)
class FadingRecurrence:
    """The recurrences of one FadingBLT in whole numbers, for inputs and noise of limited size.

    Step t of an input x, D and y whole numbers, P = WEIGHT_BITS:

      encoder   k_i <- k_i + x 2^F - floor(k_i a_i),  q = round((sum of c_i k_i) / 2^F),  y = q + z
      decoder   D = y_t - y_(t-W),  n = D 2^G + floor(p w_d 2^G + sum of w_i m_i),
                m_i <- m_i + D 2^G - floor(m_i e_i),  p <- p + D

    and the release is n / 2^G. p sums whole numbers, so nothing is lost in it however long it runs;
    all else fades. Without a window D = y_t, and there is no p: all d buffers are m.

    With a comb r = floor(sum of c_i k_i), and n as above without its point, go through poles in
    z^W, whose numbers of the last W steps are kept too; alpha, beta and beta - alpha as COMB:

      encoder   q = round((r - floor((beta - alpha) s_(t-W))) / 2^F),
                s_t = r + floor(alpha s_(t-W))
      decoder   n + floor((beta - alpha) h_(t-W)) is released,
                h_t = n + floor(beta h_(t-W))

    Args:
      p: its poles.
      window: W; 0: there is none.
      fraction: F.
      horizon: T.
      largest: a bound on the absolute values of inputs.
      noise: the largest absolute value of a draw that matters: of sums beyond it y is clamped,
        which is post-processing.
      kept: bits behind the point of a release that the decoder's floors leave.
      comb: whether both ends have a pole in z^W too.
    """

    p: FadingPoles
    window: int
    fraction: int
    horizon: int
    largest: int
    noise: int
    kept: int
    comb: bool = False

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
        e = self.p.e
        lost = 1 + float(self.p.w[: len(e)] @ np.minimum(self.horizon, 1 / e))
        return max(0, math.ceil(math.log2(lost)) + self.kept + 2 * self.comb)

    @cached_property
    def _most(self) -> list[int]:
        """Bounds on the absolute values of the encoder's sums."""
        v = (self.largest << self.fraction) + 1
        return [v * min(self.horizon, (1 << shift) // a + 1) for a, shift in self._a]

    @cached_property
    def _most_delayed(self) -> int:
        """A bound on the absolute values of s, which is at most r / (1 - alpha), and its floors."""
        return 2 * (_dot(self._weights[0], self._most) >> WEIGHT_BITS) + 4

    @cached_property
    def clamp_log(self) -> int:
        """Of y: the logarithm of what no encoded sum and noise exceed."""
        c, _ = self._weights
        encoded = (_dot(c, self._most) >> self.fraction + WEIGHT_BITS) + 1
        encoded += (self._most_delayed >> self.fraction) + 1 if self.comb else 0
        return (encoded + self.noise).bit_length()

    @cached_property
    def _widths(self) -> list[int]:
        """How many bytes k, m, p, and one s, h and y take."""
        y = 1 << self.clamp_log
        D = 2 * (y << self.decoder_bits) + 1
        held = [D * min(self.horizon, (1 << shift) // e + 1) for e, shift in self._e]
        most = [*self._most, *held, *([y * self.window] if self.window else [])]
        if self.comb:  # h is at most n / (1 - beta), and its floors
            n = D + (_dot(self._weights[1], [*held, y * self.window << self.decoder_bits])) + 1
            most += [self._most_delayed, 4 * (D + (n >> WEIGHT_BITS) + 2)]
        most += [y]
        return [number.bit_length() // 8 + 1 for number in most]

    @cached_property
    def size(self) -> int:
        """How many bytes all numbers take."""
        return self._places[-1][1] + self.window * sum(width for _, width in self._lines)

    @cached_property
    def _places(self) -> list[tuple[int, int]]:
        """Where the numbers are, but for those of the last W steps, and where these begin."""
        lines = 3 if self.comb else 1
        return [*pairwise(accumulate(self._widths[:-lines], initial=0))]

    @cached_property
    def _lines(self) -> list[tuple[int, int]]:
        """Behind those: where the last s, h and y begin, and how many bytes one takes."""
        widths = self._widths[len(self._places) :]
        starts = accumulate((self.window * width for width in widths[:-1]), initial=0)
        return [*zip(starts, widths, strict=True)]

    def run(
        self, packed: bytes, t: int, xs: Iterable[int], zs: Iterable[int]
    ) -> tuple[bytes, list[float]]:
        """Steps from t on: what is kept after them, and the releases.

        Args:
          packed: what was kept before; of the last s, h and y, one behind the other, those of step
            t are at place (t - 1) mod W.

        Raises:
          OverflowError: an input is larger than was promised, and would not fit the bytes.
        """
        numbers = [int.from_bytes(packed[i:j], "little", signed=True) for i, j in self._places]
        last, d = bytearray(packed[self._places[-1][1] :]), len(self._a)
        a, e, (c, w) = self._a, self._e, self._weights
        k, m = numbers[:d], numbers[d : d + len(e)]
        p, one = (numbers[-1], w[-1]) if last else (0, 0)
        w, F, G, limit = w[: len(e)], self.fraction, self.decoder_bits, 1 << self.clamp_log
        bits, half = F + WEIGHT_BITS, 1 << F + WEIGHT_BITS - 1
        scale, lines, (alpha, beta, point) = 1 << G, self._lines, COMB

        def earlier_number(place: slice) -> int:
            return int.from_bytes(last[place], "little", signed=True)

        def keep(place: slice, number: int) -> None:
            last[place] = number.to_bytes(place.stop - place.start, "little", signed=True)

        values, at = [], (t - 1) % max(1, self.window)
        for x, z in zip(xs, zs, strict=True):
            if abs(x) > self.largest:
                raise OverflowError("an input is larger than this mechanism was made for")
            v = x << F
            k = [h + v - (h * f >> s) for h, (f, s) in zip(k, a, strict=True)]
            places = [slice(i + at * width, i + (at + 1) * width) for i, width in lines]
            D = sum(map(operator.mul, c, k))
            if self.comb:
                r, s = D >> WEIGHT_BITS, earlier_number(places[0])
                keep(places[0], r + (s * alpha >> point))
                D = r - (s * (beta - alpha) >> point) << WEIGHT_BITS
            D = (D + half >> bits) + z
            D = min(max(D, -limit), limit)
            earlier = p * one
            if last:
                y, D = D, D - earlier_number(places[-1])
                keep(places[-1], y)
                p += D
                at = at + 1 if at + 1 < self.window else 0
            v = D << G
            n = v + (sum(map(operator.mul, w, m)) + (earlier << G) >> WEIGHT_BITS)
            if self.comb:
                h = earlier_number(places[1])
                keep(places[1], n + (h * beta >> point))
                n += h * (beta - alpha) >> point
            values.append(n / scale)
            m = [h + v - (h * f >> s) for h, (f, s) in zip(m, e, strict=True)]
        made = zip([*k, *m, *([p] if last else [])], self._widths, strict=False)
        kept = (number.to_bytes(size, "little", signed=True) for number, size in made)
        return b"".join([*kept, last]), values


def _dyadic(fraction: float) -> tuple[int, int]:
    """(m, s) with m / 2^s the fraction."""
    m, power = fraction.as_integer_ratio()
    return m, power.bit_length() - 1


def _dot(weights: Sequence[int], numbers: Sequence[int]) -> int:
    return sum(map(operator.mul, weights, numbers))

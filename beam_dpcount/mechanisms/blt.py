"""Buffered linear Toeplitz factorizations, plain and normalized [DMPST24]: constant state."""

from __future__ import annotations

import hashlib
import math
import operator
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from beam_dpcount.mechanisms import blt_tables as tables
from beam_dpcount.mechanisms.base import FloatArray, IntArray, Mechanism, State
from beam_dpcount.mechanisms.blt_tables import BUFFERS, Poles, Stretches, Tables, powers
from beam_dpcount.mechanisms.recurrence import CONSTANTS, InPython, Recurrence, compiled
from beam_dpcount.mechanisms.rounded import RoundedMechanism, lag_bounds
from beam_dpcount.mechanisms.workload import toeplitz
from beam_dpcount.noise.entropy import Noise

# Draws beyond so many standard deviations are clamped: of Gaussian ones, less than exp(-2000).
_TAIL = 64
# The decoder's floors lose 2^-17 of a count or so; less in short streams, whose states have room.
_KEPT, _KEPT_OF_SHORT = 17, 52
_SCALE_BITS = 44
_FEW = 8  # steps that are quicker one by one
_AT_ONCE = 1 << 16  # numbers that are bytes at a time


@dataclass(frozen=True)
class ExponentialSums(RoundedMechanism):
    """Encoders and decoders of few exponentials, columns perhaps scaled: all are run alike."""

    # The largest input and noise that it computes with, see `within`: they do not tell two apart.
    limits: tuple[int, int] | None = field(
        default=None, init=False, repr=False, compare=False, kw_only=True
    )

    longest: ClassVar[int] = 1 << tables.LARGEST_LOG
    goes_on: ClassVar[bool] = True
    encoding_error: ClassVar[float] = 0.0  # all arithmetic is of whole numbers
    _normalized: ClassVar[bool] = False  # whether columns are scaled to one norm

    @property
    @abstractmethod
    def _poles(self) -> Poles:
        """Those of R and of L."""

    @property
    def _stretches(self) -> Stretches:
        return tables.stretches(self._poles, self.horizon, self._normalized)

    @cached_property
    def _tables(self) -> Tables:
        return tables.tables(self._poles, self.horizon, self._normalized)

    @property
    def fingerprint(self) -> str:
        if self.horizon > self.longest:
            return repr(self)
        bits = _KEPT, _KEPT_OF_SHORT, _SCALE_BITS, *CONSTANTS, *tables.BITS
        return f"{self!r} of {self._constants} up to {self.limits} in {bits} bits"

    @cached_property
    def _constants(self) -> str:
        """A digest of all that the recurrence computes with, which another libm may round apart."""
        p = self._poles
        exact = [made.tolist() for made in (p.e, p.a, p.c, p.w)], *self._stretches
        return hashlib.sha256(ascii(exact).encode()).hexdigest()[:16]

    @property
    def l1_sensitivity(self) -> float:
        """Of column t: (r_0 + ... + r_left) / D. It grows with `left` where D is constant."""
        scales = self._tables.scales
        most = tables.scale_nodes(len(scales)) if self._normalized else np.array([self.horizon])
        sums = tables.column_sums(self._poles, np.minimum(most, self.horizon))
        return float((sums / scales).max()) * (1 + 1e-12)

    @property
    def l2_sensitivity_squared(self) -> float:
        if self._normalized:
            return 1.0
        return float(tables.column_norms2(self._poles, np.array([self.horizon]))[0])

    def lag_bounds(self, n: int) -> tuple[float, ...]:
        """Sums over k < T - d of r_k r_(k+d): r falls, so the first two columns d apart.

        Of scaled columns bounds within 0.1 % or so, over stretches of one scale: see Tables.
        """
        return self.spaced_bounds(1, n)

    def spaced_bounds(self, gap: int, n: int) -> tuple[float, ...]:
        most = -(-self.horizon // gap)  # of larger lags there are no columns
        lags = [gap * i for i in range(1, min(n, most))]
        return lag_bounds(self.l2_sensitivity_squared, self._lag_products(lags), n)

    def _lag_products(self, lags: Sequence[int]) -> Sequence[float]:
        if self._normalized:
            return self._tables.lag_products(lags)
        parts = [
            tables.column_products(self._poles, np.array([self.horizon - d]), [d]) for d in lags
        ]
        return [float(part[0, 0]) for part in parts]

    def aged_norm2(self, age: int) -> float:
        """Where weights of rows never rise: by stretches of columns, and of rows at the first's."""
        by, most = self._stretches, self.l2_sensitivity_squared
        if age >= self.horizon or any(a < b for a, b in pairwise(by.weights)):
            return most
        firsts = np.array(by.starts)
        some = firsts <= max(1, self.horizon // 2)
        edges = np.append(np.arange(min(age + 1, 64)), age + 1)
        if age > 64:
            edges = np.union1d(edges, np.geomspace(64, age + 1, 128).astype(np.int64))
        sums = np.append(0.0, tables.column_norms2(self._poles, edges[1:]))
        rows = firsts[some][:, None] + edges[:-1]
        weights = np.ldexp(np.array(by.weights, dtype=float), -by.weight_bits)
        held = weights[np.searchsorted(firsts, rows, side="right") - 1]
        squared = np.square(held) @ np.diff(sums) / np.square(by.scales[some])
        return min(float(squared.max()) * (1 + 1e-9), most)

    @property
    def rounding(self) -> float:
        lost = math.ldexp(tables.floors(self._poles, self.horizon), -self._stretches.fraction)
        return (1 + lost) * (1 + 1e-12)

    @property
    def state_size(self) -> int:
        return len(self._poles.a) + self._poles.buffers + 2

    # The state: t, and all other numbers packed: bytes, or an array of them for vector streams.

    def within(self, largest: int, noise: float) -> Mechanism:
        made = replace(self)
        limits = max(1, math.ceil(largest)), 1 << math.ceil(math.log2(_TAIL * max(noise, 16)))
        object.__setattr__(made, "limits", limits)
        return made

    @cached_property
    def _recurrence(self) -> Recurrence:
        fine = self.resolution(1)
        limits = self.limits or (fine << 26, fine << 26)
        kept = max(_KEPT, _KEPT_OF_SHORT - 2 * self.horizon.bit_length())
        bits = kept - fine.bit_length() + 1, _SCALE_BITS
        return Recurrence(self._poles, self._stretches, self.horizon, *limits, *bits)

    @property
    def is_quick(self) -> bool:
        return self._recurrence.is_narrow

    @cached_property
    def _runner(self) -> Any:
        return compiled(self._recurrence) or InPython(self._recurrence)

    def init(self, dimension: int | None = None) -> State:
        size = self._recurrence.size
        return (0, bytes(size) if dimension is None else np.zeros(dimension, f"V{size}"))

    def state_types(self, n: int) -> Sequence[str]:
        return ("q", f"{self._recurrence.size}s")

    def step(self, state: State, x: Any, noise: Noise) -> tuple[State, Any]:
        t, packed = state[0] + 1, state[1]
        if t > self.horizon:
            self.next_step(state)
        z = noise.one(t)
        if type(packed) is bytes:
            packed, value = self._runner.step(packed, t, x, z)
            return (t, packed), value
        packed, values = self._run(packed, t, z[None], x[None])
        return (t, packed), values[0]

    def steps(self, state: State, xs: IntArray, noise: Noise) -> tuple[State, FloatArray]:
        n = len(xs)
        if n < _FEW or state[0] + n > self.horizon:
            return super().steps(state, xs, noise)
        first = state[0] + 1
        packed, values = self._run(state[1], first, noise.draw(first, n), xs)
        return (state[0] + n, packed), values

    def after(self, n: int, noise: Noise, dimension: int | None = None) -> State:
        packed = self.init(dimension)[1]
        if self.check_steps(n):
            packed, _ = self._run(packed, 1, noise.draw(1, n))
        return (n, packed)

    def release(self, xs: IntArray, noise: Noise) -> Any:
        n = self.check_steps(len(xs))
        z = noise.draw(1, n)
        if not xs.size:
            return np.zeros(np.shape(xs))
        _, packed = self.init(None if xs.ndim == 1 else xs.shape[1])
        return self._run(packed, 1, z, xs)[1]

    def _run(self, packed: Any, t: int, z: IntArray, xs: IntArray | None = None) -> tuple[Any, Any]:
        """What is kept after steps from t on, and the releases if there are inputs."""
        streams = 1 if z.ndim == 1 else z.shape[1]
        kept = packed if isinstance(packed, bytes) else packed.tobytes()
        values = None if xs is None else np.empty(z.shape)
        rows = max(1, _AT_ONCE // max(1, streams))
        for first in range(0, len(z), rows):  # in parts, as bytes are copies
            some = slice(first, first + rows)
            inputs = None if xs is None else np.asarray(xs[some], np.int64).tobytes()
            part = np.asarray(z[some], np.int64)
            how = len(part), streams, inputs, part.tobytes(), xs is not None
            kept, found = self._runner.run(kept, t + first, *how)
            if values is not None:
                values[some] = np.frombuffer(found).reshape(part.shape)
        return kept if isinstance(packed, bytes) else np.frombuffer(kept, packed.dtype), values

    def _column_scales(self, n: int) -> FloatArray:
        """D of steps 1 .. n; step T + 1 has that of T."""
        by = self._stretches
        steps = np.arange(1, n + 1, dtype=np.int64)
        return np.asarray(by.scales[np.searchsorted(by.starts, steps, side="right") - 1])

    def _row_weights(self, n: int) -> FloatArray:
        """The weights of rows 1 .. n."""
        by = self._stretches
        steps = np.arange(1, n + 1, dtype=np.int64)
        units = np.array(by.weights)[np.searchsorted(by.starts, steps, side="right") - 1]
        return np.asarray(np.ldexp(units.astype(float), -by.weight_bits))

    def encoder(self, n: int) -> FloatArray:
        p, j = self._poles, np.arange(self.check_steps(n))[:, None]
        return toeplitz(powers(p.a, j) @ p.c) / self._column_scales(n)

    def decoder(self, n: int) -> FloatArray:
        p, j = self._poles, np.arange(self.check_steps(n) - 1)[:, None]
        plain = toeplitz(np.append(np.ones(min(n, 1)), powers(p.e, j) @ p.w))
        scales = self._column_scales(n + 1)
        falls = np.tri(n, n, -1) * (scales[:-1] - scales[1:])
        return np.asarray((np.diag(scales[:n]) + falls) @ plain)

    def products(self, s: IntArray, lag: int) -> FloatArray:
        return self._tables.products(s, lag)

    def row_norm2(self, t: int) -> float:
        return self._tables.row_norm2(t)

    def row_norms2(self, n: int) -> FloatArray:
        return self._tables.row_norms2(np.arange(1, self.check_steps(n) + 1))

    def row_norms2_between(self, first: int, last: int) -> FloatArray:
        return self._tables.row_norms2(np.arange(first, last + 1))

    def max_row_norm2(self) -> float:
        return self._tables.max_row_norm2()

    def mean_row_norm2(self) -> float:
        return self._tables.mean_row_norm2()


@dataclass(frozen=True)
class BLT(ExponentialSums):
    """A square root whose coefficients are sums of few exponentials, so that state is constant.

    L and R = L^-1 A are Toeplitz with coefficients l_0 = 1, l_j = sum w_i theta_i^(j-1), and
    r_j = sum c_i lambda_i^j, lambda_0 = 1: both are run by a recurrence of d or d + 1 numbers.

    Args:
      horizon: number of steps T, in use up to 2^30.
      buffers: d, from 2 to 8; None (default) takes the fewest within half a percent of the best.

    Guarantee: Delta_2^2 = sum of r_j^2 over j < T (the first column), by a sum of positive terms
      for the declared horizon; to it comes what rounding adds (at most 1e-4, see
      RoundedMechanism). Gaussian noise: takes zero-concentrated and approximate budgets.
      Variance of release t: that of one draw times sum of l_j^2 over j < t.

    Source: [DMPST24]; the optimum that it comes within 1 % of is the square root's [FHU22].
    """

    buffers: int | None = None

    _kind: ClassVar[str] = "blt"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.buffers is None:
            return
        problem = f"buffers must be None or a whole number from {BUFFERS[0]} to {BUFFERS[1]}"
        try:
            d = operator.index(self.buffers)
        except TypeError:
            raise TypeError(f"{problem}, got {self.buffers!r}") from None
        if isinstance(self.buffers, bool) or not BUFFERS[0] <= d <= BUFFERS[1]:
            raise ValueError(f"{problem}, got {self.buffers!r}")
        object.__setattr__(self, "buffers", d)

    @cached_property
    def _poles(self) -> Poles:
        return tables.poles(self._kind, self.horizon, self.buffers)


@dataclass(frozen=True)
class NormalizedBLT(BLT):
    """A BLT whose encoder's columns are scaled to one norm: the least error of all that stream.

    R_n = R D^-1 and L_n = A D R^-1, D_t >= the norm of R's column t, which has T - t + 1 entries.
    All items cost the same; in a plain BLT the last ones cost less. Arguments are those of `BLT`.

    Guarantee: no column of R_n is longer than 1, so Delta_2 = 1, and what rounding adds (at most
      1e-4, see RoundedMechanism). D_t is kept constant while the number of steps left agrees in
      its first ten binary digits, and rounded up. Gaussian noise: takes zero-concentrated and
      approximate budgets. Variance of release t: exact, see `row_norm2`; largest near 0.55 T. For
      horizons above 2^22 `max_row_norm2` is an upper bound, a tenth of a percent above.

    Source: docs/proofs/real_encoders.md; the plain BLT is [DMPST24].
    """

    _kind: ClassVar[str] = "normalized_blt"
    _normalized: ClassVar[bool] = True

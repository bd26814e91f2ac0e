"""Buffered linear Toeplitz factorizations, plain and normalized [DMPST24]: constant state."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from beam_dpcount.mechanisms import blt_tables as tables
from beam_dpcount.mechanisms.base import FloatArray, IntArray, State, owned, zero
from beam_dpcount.mechanisms.blt_tables import BUFFERS, Poles, Steps, Tables, powers
from beam_dpcount.mechanisms.doubles import multiply_add
from beam_dpcount.mechanisms.rounded import (
    RoundedMechanism,
    lag_bounds,
    left_dot,
    left_sum,
    to_integers,
)
from beam_dpcount.mechanisms.workload import toeplitz
from beam_dpcount.noise.entropy import Noise


@dataclass(frozen=True)
class BLT(RoundedMechanism):
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

    longest: ClassVar[int] = 1 << tables.LARGEST_LOG
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

    @property
    def _normalized(self) -> bool:
        return self._kind == "normalized_blt"

    @property
    def fingerprint(self) -> str:
        if self.horizon > self.longest:
            return repr(self)
        p = self._poles
        return f"{self!r} at {p.e.tolist()} and {p.a[1:].tolist()} in blocks of {self._block}"

    @cached_property
    def _poles(self) -> Poles:
        return tables.poles(self._kind, self.horizon, self.buffers)

    @cached_property
    def _tables(self) -> Tables:
        return Tables(self._poles, self.horizon, self._normalized)

    @cached_property
    def _block(self) -> int:
        # Long blocks make `release` fast, and rounding errors grow with block * horizon.
        log = (self.horizon - 1).bit_length()
        return 1 << max(0, min(10, (log + 1) // 2, 35 - log))

    @property
    def l1_sensitivity(self) -> float:
        return float(tables.column_sums(self._poles, np.array([self.horizon]))[0]) * (1 + 1e-12)

    @property
    def l2_sensitivity_squared(self) -> float:
        return float(tables.column_norms2(self._poles, np.array([self.horizon]))[0])

    def lag_bounds(self, n: int) -> tuple[float, ...]:
        """Sums over k < T - d of r_k r_(k+d): r falls, so the first two columns d apart."""
        lags = range(1, min(n, self.horizon))
        left = self.horizon - np.array(lags)
        products = tables.column_products(self._poles, left, lags).diagonal()
        return lag_bounds(self.l2_sensitivity_squared, products, n)

    @property
    def encoding_error(self) -> float:
        return tables.encoding_error(self._poles, self.horizon, self._block)

    @property
    def state_size(self) -> int:
        return 5 * self._poles.buffers + 5

    # A stream is cut into blocks of `_block` steps. In each, the encoder's sums start from zero,
    # and what they were before is kept as pairs of doubles: rounding errors do not grow with the
    # stream, and blocks can be computed side by side. The state: t, E of the normalized BLT, d + 1
    # local sums, high and low parts of those at the block's start, then d local buffers of the
    # decoder, and those at the block's start.

    def init(self, dimension: int | None = None) -> State:
        return (0, *[zero(dimension) * 1.0] * (self.state_size - 1))

    def state_types(self, n: int) -> str:
        return "q" + "d" * (n - 1)

    @cached_property
    def _steps(self) -> Steps:
        return Steps(self._poles, self._block)

    def step(self, state: State, x: Any, noise: Noise) -> tuple[State, Any]:
        t = self.next_step(state)
        run, d = self._steps, self._poles.buffers
        scale = following = 1.0
        if self._normalized:
            scales, left = self._tables.scales, self.horizon - t + 1
            scale = scales[tables.scale_index(left)]
            following = scales[tables.scale_index(left - 1)] if left > 1 else scale
        place = (t - 1) % self._block

        v = x / scale
        local = [h - a * h + c * v for h, a, c in zip(state[2 : d + 3], run.a, run.c, strict=True)]
        high, low = [*state[d + 3 : 2 * d + 4]], [*state[2 * d + 4 : 3 * d + 5]]
        y = to_integers(left_dot(run.encode[place], high) + left_sum(local)) + noise.one(t)

        buffers, before = [*state[3 * d + 5 : 4 * d + 5]], [*state[4 * d + 5 :]]
        b = y + (left_dot(run.decode[place], before) + left_sum(buffers))
        buffers = [m - e * m + w * y for m, e, w in zip(buffers, run.e, run.w, strict=True)]
        value = scale * b + state[1]
        earlier = state[1] if following == scale else state[1] + (scale - following) * b

        if place == self._block - 1:
            sums = zip(run.faded, zip(high, low, strict=True), local, strict=True)
            closed = [multiply_add(f, pair, h) for f, pair, h in sums]
            high, low = [pair[0] for pair in closed], [pair[1] for pair in closed]
            local = [h * 0.0 for h in local]
            before = [f * m + k for f, m, k in zip(run.forgot, before, buffers, strict=True)]
            buffers = [m * 0.0 for m in buffers]
        return (t, earlier, *local, *high, *low, *buffers, *before), value

    def after(self, n: int, noise: Noise, dimension: int | None = None) -> State:
        if self.check_steps(n) == 0:
            return self.init(dimension)
        run, tail = self._steps, () if dimension is None else (dimension,)
        cut = _Cut(n, self._block, tail)
        y = cut.blocks(noise.draw(1, n))  # of zeros the encoder's sums stay 0
        local, before, buffers = self._run_decoder(cut, y)

        # E takes up b at the steps where D falls; the others need no b.
        scales = self._column_scales(n + 1)
        falls = np.flatnonzero(scales[:-1] != scales[1:])

        def spread(numbers: Any) -> Any:
            return np.reshape(numbers, (*np.shape(numbers), *[1] * len(tail)))

        k, place = np.divmod(falls, self._block)
        decode = spread(np.array(run.decode).T[:, place])
        b = y[place, k] + (left_dot(decode, before[:, k]) + local[place, k])
        terms = spread(scales[falls] - scales[falls + 1]) * b
        earlier = np.cumsum(np.concatenate([np.zeros((1, *tail)), terms]), axis=0)[-1]

        start = before[:, -1]
        if n % self._block == 0:  # the block is over; 0 has the sign that `step` gives it
            start, buffers = spread(run.forgot) * start + buffers, buffers * 0.0
        sums = [zero(dimension) * 1.0] * (3 * len(run.a))
        return (n, owned(earlier), *sums, *map(owned, buffers), *map(owned, start))

    def release(self, xs: IntArray, noise: Noise) -> Any:
        n = self.check_steps(len(xs))
        z = noise.draw(1, n)
        if n == 0:
            return np.zeros(np.shape(xs))
        run, tail = self._steps, np.shape(xs)[1:]
        cut = _Cut(n, self._block, tail)

        scales = self._column_scales(n + 1).reshape(-1, *[1] * len(tail))
        v = cut.blocks(xs / scales[:n])
        local = np.zeros_like(v)
        a, c = cut.spread(run.a), cut.spread(run.c)
        ends = np.zeros((len(run.a), *v.shape[1:]))
        for place in range(cut.places):
            ends = ends - a * ends + c * v[place]
            local[place] = left_sum(ends)
        before = np.zeros_like(ends)
        for i, faded in enumerate(run.faded):
            pair: tuple[Any, Any] = (np.zeros(tail), np.zeros(tail))
            for k in range(cut.count):
                before[i, k] = pair[0]
                pair = multiply_add(faded, pair, ends[i, k])
        encode = [cut.spread(column) for column in zip(*run.encode[: cut.places], strict=True)]
        y = cut.join(to_integers(left_dot(encode, before) + local)) + z

        v = cut.blocks(y)
        local, before, _ = self._run_decoder(cut, v)
        decode = [cut.spread(column) for column in zip(*run.decode[: cut.places], strict=True)]
        b = cut.join(v + (left_dot(decode, before) + local))
        falls = (scales[:-1] - scales[1:]) * b
        earlier = np.cumsum(np.concatenate([np.zeros_like(falls[:1]), falls[:-1]]), axis=0)
        return scales[:-1] * b + earlier

    def _run_decoder(self, cut: _Cut, y: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """The decoder's buffers, of all blocks side by side.

        Returns:
          The sum of the local ones before each step, shaped as y; those at the start of each block,
          shape (d, blocks, ...); the local ones after the last step, shape (d, ...).
        """
        run, local = self._steps, np.zeros_like(y)
        e, w = cut.spread(run.e), cut.spread(run.w)
        ends = np.zeros((len(run.e), *y.shape[1:]))
        last = ends[:, -1]
        for place in range(cut.places):
            local[place] = left_sum(ends)
            ends = ends - e * ends + w * y[place]
            if place == cut.last:
                last = ends[:, -1]
        before = np.zeros_like(ends)
        for i, forgot in enumerate(run.forgot):
            for k in range(cut.count - 1):
                before[i, k + 1] = forgot * before[i, k] + ends[i, k]
        return local, before, last

    def _column_scales(self, n: int) -> FloatArray:
        """D of steps 1 .. n, as `step` takes them; step T + 1 has that of T."""
        if not self._normalized:
            return np.ones(n)
        scales = np.array(self._tables.scales)
        left = np.maximum(self.horizon - np.arange(n, dtype=np.int64), 1)
        return np.asarray(scales[tables.scale_indices(left)])

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

    def max_row_norm2(self) -> float:
        return self._tables.max_row_norm2()

    def mean_row_norm2(self) -> float:
        return self._tables.mean_row_norm2()


class _Cut:
    """n > 0 steps cut into blocks that are computed side by side; `tail` is the shape of a step."""

    def __init__(self, n: int, block: int, tail: tuple[int, ...]) -> None:
        self.n, self.block, self.tail = n, block, tail
        self.count = -(-n // block)
        self.places = min(block, n)
        self.last = (n - 1) % block  # the place of step n

    def blocks(self, values: Any) -> FloatArray:
        """Shape (places, blocks, ...), contiguous for a step of all of them, from (n, ...)."""
        padded = np.zeros((self.count * self.block, *self.tail))
        padded[: self.n] = values
        cut = padded.reshape(self.count, self.block, *self.tail)
        return np.moveaxis(cut, 1, 0)[: self.places].copy()

    def join(self, cut: Any) -> Any:
        """Shape (n, ...) again."""
        whole = np.zeros((self.count, self.block, *self.tail), dtype=cut.dtype)
        whole[:, : self.places] = np.moveaxis(cut, 0, 1)
        return whole.reshape(-1, *self.tail)[: self.n]

    def spread(self, numbers: Any) -> FloatArray:
        """Numbers for the first axis, the same for all blocks and streams."""
        return np.reshape(numbers, (-1, *[1] * (1 + len(self.tail))))


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
    l2_sensitivity_squared = 1.0

    @property
    def l1_sensitivity(self) -> float:
        # Of column t: (r_0 + ... + r_left) / D. It grows with `left` where D is constant.
        nodes = np.minimum(tables.scale_nodes(len(self._tables.scales)), self.horizon)
        sums = tables.column_sums(self._poles, nodes)
        return float((sums / self._tables.scales).max()) * (1 + 1e-12)

    def lag_bounds(self, n: int) -> tuple[float, ...]:
        """Bounds within 0.1 % or so, over stretches of columns of one scale: see Tables."""
        lags = range(1, min(n, self.horizon))
        return lag_bounds(self.l2_sensitivity_squared, self._tables.lag_products(lags), n)

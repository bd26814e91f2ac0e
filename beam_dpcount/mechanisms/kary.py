"""k-ary trees [Andersson, Pagh, Torkamani 2024]: mixed radices, with and without subtraction."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, cast

import numpy as np

from beam_dpcount.checks import check_flag
from beam_dpcount.mechanisms.base import FloatArray, IntArray, Mechanism, State, zero
from beam_dpcount.mechanisms.digits import digits, largest_cost, total_cost
from beam_dpcount.noise.entropy import Noise


@dataclass(frozen=True)
class KAry(Mechanism):
    """k-ary tree: release t combines, at each level, as many blocks as t's digit says.

    With weights w_0 = 1, w_{i+1} = w_i k_i, block b of level i covers items b w_i + 1 .. (b+1) w_i.
    Let q_i = (t - lower digits) / w_i and a_i be q_i without its own digit d_i. Level i adds the
    blocks a_i .. q_i - 1 if d_i > 0 and, with subtraction, takes away q_i .. a_i - 1 if d_i < 0.

    Args:
      arity: k for all levels, odd with subtraction; or one radix per level, lowest first. None
        (default) takes the radices of least mean variance under Laplace noise, mixed ones
        included, so it is never worse than any single k.
      subtraction: digits are balanced, -(k-1)/2 .. (k-1)/2, which nearly halves the variance. A
        block is then used, and its noise drawn, before all of its items have come. Under pure DP
        that is safe for a run whose releases are seen once. It is refused on the streaming path,
        where replays may diverge, and takes no Gaussian noise.

    Guarantee: an item lies in at most one block of each of h levels: Delta_1 = h and
      Delta_2 = sqrt(h), exactly (item 1). Variance of release t: sum of |d_i| draws. Laplace
      noise; without subtraction, Gaussian noise too.

    Source: [APT24, Algorithms 1 and 2]. Mixed radices: docs/proofs/trees.md.
    """

    arity: int | Sequence[int] | None = None
    subtraction: bool = True

    counters: ClassVar[int] = 2  # t, and the number of coordinates drawn
    unit_weights = True  # blocks are added or taken away whole

    def __post_init__(self) -> None:
        super().__post_init__()
        check_flag("subtraction", self.subtraction)
        if isinstance(self.arity, Sequence) and not isinstance(self.arity, str | bytes):
            object.__setattr__(self, "arity", tuple(self.arity))
        if self.arity is None:
            return
        for k in self.arity if isinstance(self.arity, tuple) else (self.arity,):
            if isinstance(k, bool) or not isinstance(k, int):
                raise TypeError(f"arity must be whole numbers, got {self.arity!r}")
            if k < 2 or (self.subtraction and k % 2 == 0):
                what = "odd and at least 3 with subtraction" if self.subtraction else "at least 2"
                raise ValueError(f"arity must be {what}, got {self.arity!r}")
        reach = _reach(self.radices, self.subtraction)
        if reach < self.horizon:
            problem = f"radices {self.arity} reach {reach} steps, not the horizon {self.horizon}"
            raise ValueError(f"{problem}: add a level or leave arity out")

    @property
    def laws(self) -> frozenset[str]:
        # Blocks used before they are complete rule out Gaussian noise.
        return frozenset({"laplace"}) if self.subtraction else super().laws

    @property
    def draws_early(self) -> bool:
        return self.subtraction

    def draws(self, n: int) -> int:
        total = 0
        for k, weight, shift, half in self._levels():
            cycles, rest = divmod((n + shift) // weight, k)
            up = half or k - 1  # positive digits, a block each; then `half` blocks at once
            total += cycles * (k - 1) + min(rest, up) + (half if rest > half else 0)
        return total

    @property
    def radices(self) -> tuple[int, ...]:
        """k_0, k_1, ... of the levels, lowest first."""
        if isinstance(self.arity, tuple):
            return self.arity
        return _radices(self.horizon, cast("int | None", self.arity), self.subtraction)

    def _levels(self) -> Iterator[tuple[int, int, int, int]]:
        """Of each level k and w, and what centres the digits: (t + shift) // w, (q + half) % k."""
        weight = 1
        for k in self.radices:
            yield (k, weight, *((weight // 2, k // 2) if self.subtraction else (0, 0)))
            weight *= k

    def _used(self) -> list[int]:
        """The weights of levels with blocks: block 0, of item 1, is the first that is used."""
        return [w for _, w, shift, _ in self._levels() if w - shift <= self.horizon]

    @property
    def l1_sensitivity(self) -> int:
        return len(self._used())

    def lag_bounds(self, n: int) -> tuple[float, ...]:
        """Exact: items d apart share no block of w <= d items, and 1 and 1 + d all larger ones."""
        used = self._used()
        return tuple(sum(w > d for w in used) if d < self.horizon else 0 for d in range(n))

    @property
    def l2_sensitivity_squared(self) -> int:
        return self.l1_sensitivity

    @property
    def state_size(self) -> int:
        return 4 + int(self.max_row_norm2())

    def init(self, dimension: int | None = None) -> State:
        # t, coordinates drawn, exact sum, sum of noises, then the noises held by each level.
        return (0, *super().init(dimension), super().init(dimension)[1])

    def step(self, state: State, x: Any, noise: Noise) -> tuple[State, Any]:
        t = self.next_step(state)
        drawn, total, noises, held = state[1], state[2] + x, state[3], 4
        changed: list[Any] = []
        rest = t
        for k in self.radices:
            half = k // 2 if self.subtraction else 0
            rest, digit = divmod(rest, k)
            if digit > half and self.subtraction:
                rest, digit = rest + 1, digit - k
            over = digit == -half  # over the top: the next level's digit goes up as well
            before = k - 1 - half if over else digit - 1
            level = state[held : held + abs(before)]
            held += abs(before)
            if digit > 0:
                drawn += 1
                z = noise.one(drawn)
                level, noises = (*level, z), noises + z
            elif over:
                noises = noises - sum(level)
                level = tuple(noise.one(drawn + n) for n in range(1, half + 1))
                drawn += half
                noises = noises - sum(level)
            else:
                noises = noises + level[0]
                level = level[1:]
            changed += level
            if not over:
                break
        return (t, drawn, total, noises, *changed, *state[held:]), total + noises

    def after(self, n: int, noise: Noise, dimension: int | None = None) -> State:
        held = self._held(self.check_steps(n))
        z = {coordinate: noise.one(coordinate) for coordinate in sorted(c for c, _ in held)}
        noises = sum((sign * z[c] for c, sign in held), zero(dimension))
        return (n, self.draws(n), zero(dimension), noises, *[z[c] for c, _ in held])

    def _held(self, n: int) -> list[tuple[int, int]]:
        """The coordinate and sign of each block in the state after n steps, in its order."""
        held, below = [], 0  # what the levels below draw in a step in which this one changes
        for k, weight, shift, half in self._levels():
            q = (n + shift) // weight
            digit = (q + half) % k - half
            for change in range(q - digit + 1, q + 1):  # the last one drawn in its step
                held.append((self.draws(change * weight - shift), 1))
            if digit < 0:  # the last ones of `half` that were drawn at once
                step = (q - digit - half) * weight - shift
                last = self.draws(step - 1) + below + half
                held += [(c, -1) for c in range(last + digit + 1, last + 1)]
            below += half
        return held

    def release(self, xs: IntArray, noise: Noise) -> IntArray:
        levels, rows = self._layout(self.check_steps(len(xs)))
        z = noise.draw(1, rows)
        values = np.array(np.cumsum(xs, axis=0))
        for q, start, coordinates in levels:
            # Blocks that are never used have coordinate 0.
            mask = (coordinates > 0).reshape(-1, *[1] * (z.ndim - 1))
            used = np.where(mask, z[coordinates - 1], 0) if rows else z
            sums = np.concatenate([np.zeros((1, *z.shape[1:]), np.int64), np.cumsum(used, axis=0)])
            values += sums[q] - sums[start]
        return values

    def _layout(self, n: int) -> tuple[list[tuple[IntArray, IntArray, IntArray]], int]:
        """For each level q and a of t = 1 .. n, and the coordinates of its blocks; all rows."""
        t = np.arange(1, n + 1, dtype=np.int64)
        within = np.zeros(n + 1, dtype=np.int64)  # draws of a step, level by level
        parts: list[tuple[IntArray, IntArray, IntArray, IntArray]] = []
        for k, weight, shift, half in self._levels():
            q = (t + shift) // weight
            changes = np.arange(1, (n + shift) // weight + 1, dtype=np.int64)
            when = changes * weight - shift
            digit = (changes + half) % k - half
            # Of each block the step that draws it (0: none), and its place among that step's draws.
            steps, places = np.zeros((2, len(changes) + k), dtype=np.int64)
            up, over = digit > 0, digit == -half
            steps[changes[up] - 1], places[changes[up] - 1] = when[up], within[when[up]]
            within[when[up]] += 1
            blocks = changes[over][:, None] + np.arange(half)  # none without subtraction
            steps[blocks] = when[over][:, None]
            places[blocks] = within[when[over]][:, None] + np.arange(half)
            within[when[over]] += half
            parts.append((q, (q + half) // k * k, steps, places))
        first = np.concatenate([[0], np.cumsum(within)])  # coordinates drawn before each step
        levels = [
            (q, start, np.where(steps > 0, first[steps] + places + 1, 0))
            for q, start, steps, places in parts
        ]
        return levels, int(within.sum())

    def encoder(self, n: int) -> FloatArray:
        levels, rows = self._layout(self.check_steps(n))
        matrix = np.zeros((rows, n))
        for (_, weight, _, _), (_, _, coordinates) in zip(self._levels(), levels, strict=True):
            for block in np.flatnonzero(coordinates):
                matrix[coordinates[block] - 1, block * weight : (block + 1) * weight] = 1
        return matrix

    def decoder(self, n: int) -> FloatArray:
        levels, rows = self._layout(self.check_steps(n))
        matrix = np.zeros((n, rows))
        for q, start, coordinates in levels:
            for t in range(n):
                matrix[t, coordinates[start[t] : q[t]] - 1] = 1
                matrix[t, coordinates[q[t] : start[t]] - 1] = -1
        return matrix

    def products(self, s: IntArray, lag: int) -> FloatArray:
        total = np.zeros(len(s))
        for k, weight, shift, half in self._levels():
            ends = [(step + shift) // weight for step in (s, s + lag)]
            starts = [(end + half) // k * k for end in ends]
            low = np.maximum(*(np.minimum(a, q) for a, q in zip(starts, ends, strict=True)))
            high = np.minimum(*(np.maximum(a, q) for a, q in zip(starts, ends, strict=True)))
            signs = np.sign(ends[0] - starts[0]) * np.sign(ends[1] - starts[1])
            total += signs * np.maximum(high - low, 0)
        return total

    def replay_safe(self) -> KAry:
        return replace(self, subtraction=False)

    def row_norm2(self, t: int) -> float:
        return sum(map(abs, digits(t, self.radices, self.subtraction)))

    def row_norms2(self, n: int) -> FloatArray:
        t, norms = np.arange(1, self.check_steps(n) + 1, dtype=np.int64), np.zeros(n)
        for k, weight, shift, half in self._levels():
            norms += np.abs(((t + shift) // weight + half) % k - half)
        return norms

    def max_row_norm2(self) -> float:
        return largest_cost(self.horizon, self.radices, self.subtraction)

    def mean_row_norm2(self) -> float:
        return total_cost(self.horizon, self.radices, self.subtraction) / self.horizon

    def state_row_norm2(self, state: State) -> float:
        return len(state) - 4


def _reach(radices: tuple[int, ...], subtraction: bool) -> int:
    return (math.prod(radices) - 1) // (2 if subtraction else 1)


@lru_cache(maxsize=256)
def _radices(horizon: int, arity: int | None, subtraction: bool) -> tuple[int, ...]:
    if arity is not None:
        same = ((arity,) * levels for levels in itertools.count(1))
        return next(radices for radices in same if _reach(radices, subtraction) >= horizon)

    def cost(radices: tuple[int, ...]) -> int:
        return len(radices) ** 2 * total_cost(horizon, radices, subtraction)

    return min(_candidates(horizon, subtraction), key=cost)


def _candidates(horizon: int, subtraction: bool) -> Iterator[tuple[int, ...]]:
    """For every number of levels the least radix that fits, some larger, and mixtures of both."""
    by, least = (2, 3) if subtraction else (1, 2)
    for levels in itertools.count(1):
        # Real root first, then exactly; a level's radix is odd with subtraction.
        k = max(least, int((by * horizon + 1) ** (1 / levels)) - 3 * by)
        k += subtraction and k % 2 == 0
        while _reach((k,) * levels, subtraction) < horizon:
            k += by
        if k > 4096:  # so few levels of thousands of blocks are never best
            continue
        for larger in range(k, k + 4 * by, by):
            yield (larger,) * levels
        for down in range(k - by, max(least, k - 4 * by) - 1, -by):
            for few in range(1, levels):
                low, high = (down,) * few, (k,) * (levels - few)
                if _reach(low + high, subtraction) >= horizon:
                    yield low + high
                    yield high + low
        if k == least:
            return

"""The bridged k-ary tree: what lies between two releases leans on both of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from beam_dpcount.mechanisms.base import (
    FloatArray,
    IntArray,
    Mechanism,
    State,
    owned,
    zero,
)
from beam_dpcount.mechanisms.bridges import Tree, largest_variance, rounded, tree_of
from beam_dpcount.mechanisms.smooth_laplace import SmoothLaplace
from beam_dpcount.noise.entropy import Noise


@dataclass(frozen=True)
class BridgedKAry(Mechanism):
    """k-ary tree whose blocks bridge two releases: the one they start from, and the one they reach.

    Nodes are those of `KAry`: with w_0 = 1, w_{i+1} = w_i k_i, node j of level i covers the items
    j w_i + 1 .. (j+1) w_i, up to the horizon. Nodes of the top level are added up. Let a node of
    any other level but the lowest lie between two releases with errors E_0 and E_1, and W_d be the
    noise of the first d of its k children. Release d among them errs by

      E(d) = (1 - b_d) (E_0 + W_d) + b_d (E_1 - (W_k - W_d)),

    from the start forward and from the end backward. b_d is near the best weight, b_0 = 0, b_k = 1.
    Children bridge E(d) and E(d+1) in the same way, down to the items.

    Args:
      arity: k for all levels but the top one, which takes what is left, at most k nodes; or one
        radix per level below the top, lowest first, () for none. None (default) takes the radices
        of least mean variance among uniform ones and mixtures of two neighbours.

    Guarantee: an item lies in one node of each of h levels: Delta_1 = h and Delta_2 = sqrt(h),
      exactly. Laplace noise only. A node is used, and its noise drawn, before all of its items have
      come: pure DP is kept by a run whose releases are seen once, adaptive inputs included. It is
      refused on the streaming path, where replays may diverge; by name it is `SmoothLaplace` there.
      Weights are multiples of 1/64, sums are of whole numbers, and a release is rounded once, at
      the end: it is a function of the exact noised nodes.

    Source: docs/proofs/trees.md, "BridgedKAry". Nodes: [APT24, Algorithm 1].

    Example:
      >>> import beam_dpcount as dp
      >>> bridged = dp.mechanisms.BridgedKAry(horizon=1000)
      >>> bridged.radices, bridged.l1_sensitivity
      ((15, 15, 5), 3)
      >>> for mechanism in (bridged, dp.mechanisms.KAry(horizon=1000)):
      ...     counter = dp.calibrate(mechanism, dp.PureDP(1.0))
      ...     print(round(counter.mean_variance()), round(counter.max_variance()))
      120 187
      169 321
    """

    arity: int | Sequence[int] | None = None

    counters = 2  # t, and the number of coordinates drawn
    laws = frozenset({"laplace"})  # nodes are used before they are complete
    draws_early = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.arity, Sequence) and not isinstance(self.arity, str | bytes):
            object.__setattr__(self, "arity", tuple(self.arity))
        if self.arity is None:
            return
        for k in self.arity if isinstance(self.arity, tuple) else (self.arity,):
            if isinstance(k, bool) or not isinstance(k, int):
                raise TypeError(f"arity must be whole numbers, got {self.arity!r}")
            if k < 2:
                raise ValueError(f"arity must be at least 2, got {self.arity!r}")
        # With fewer items than below one node, levels would cost and add nothing.
        if isinstance(self.arity, tuple) and math.prod(self.arity) > max(self.horizon, 1):
            problem = f"radices {self.arity} need {math.prod(self.arity)} steps for one top node"
            rule = f"more than the horizon {self.horizon}"
            raise ValueError(f"{problem}, {rule}: leave out a level, or arity")

    @property
    def radices(self) -> tuple[int, ...]:
        """k_0, k_1, ... of the levels, lowest first; of the top level how many nodes it has."""
        return (*self._tree.radices, self._tree.nodes[-1])

    @property
    def _tree(self) -> Tree:
        return tree_of(self.horizon, self.arity)

    def draws(self, n: int) -> int:
        return int(self._tree.draws(n))

    @property
    def l1_sensitivity(self) -> int:
        return len(self._tree.spans)

    @property
    def l2_sensitivity_squared(self) -> int:
        return self.l1_sensitivity  # entries of R are 0 or 1

    def lag_bounds(self, n: int) -> tuple[float, ...]:
        """Exact: items d apart share no node of w <= d items, and 1 and 1 + d all larger ones."""
        spans = self._tree.spans
        return tuple(sum(w > d for w in spans) if d < self.horizon else 0 for d in range(n))

    @property
    def state_size(self) -> int:
        tree = self._tree  # the first step opens a block of every level
        return 5 + sum(tree.children(i, 0) + 1 for i in range(len(tree.radices)))

    # A state is t, the coordinates drawn and the exact sum; then, of each level below the top,
    # lowest first, W_d .. W_k of the block and its child d that hold item t; then the sum of the
    # noises of the top level before its node of item t, and with it.

    def init(self, dimension: int | None = None) -> State:
        return (0, *super().init(dimension))

    def step(self, state: State, x: Any, noise: Noise) -> tuple[State, Any]:
        tree, t = self._tree, self.next_step(state)
        drawn, total, u, held = state[1], state[2] + x, t - 1, 3
        parts: list[tuple[Any, ...]] = []
        for i, k in enumerate(tree.radices):
            block, child = u // tree.spans[i + 1], u // tree.spans[i]
            if u % tree.spans[i + 1] == 0:
                held += 2 if u else 0  # of the block before only W_{k-1} and W_k are left
                children = tree.children(i, block)
                sums = np.cumsum(noise.draw(drawn + 1, children), axis=0)
                parts.append((0 * total, *map(owned, sums)))
                drawn += children
            else:
                before = (u - 1) // tree.spans[i]
                size = tree.children(i, block) - (before - block * k) + 1
                parts.append(state[held + child - before : held + size])
                held += size
        top = state[held:]
        if u % tree.spans[-1] == 0:
            drawn += 1
            last = top[1] if top else 0 * total
            top = (last, last + noise.one(drawn))
        value = tree.release(u, total, parts, top)
        return (t, drawn, total, *itertools.chain(*parts), *top), value

    def after(self, n: int, noise: Noise, dimension: int | None = None) -> State:
        tree, u, nothing = self._tree, self.check_steps(n) - 1, zero(dimension)
        if n == 0:
            return self.init(dimension)
        held = []
        for i, (k, span) in enumerate(zip(tree.radices, tree.spans[1:], strict=True)):
            first = u // span * k
            block = np.arange(first, first + tree.children(i, u // span))
            held.append(tree.coordinates(i, block))
        held.append(tree.coordinates(len(tree.radices), np.arange(u // tree.spans[-1] + 1)))
        z = {c: noise.one(c) for c in sorted(itertools.chain(*(c.tolist() for c in held)))}
        kept: list[Any] = []
        for i, coordinates in enumerate(held):
            sums = list(itertools.accumulate((z[c] for c in coordinates.tolist()), initial=nothing))
            if i == len(tree.radices):
                kept += sums[-2:]
            else:
                kept += sums[u // tree.spans[i] - u // tree.spans[i + 1] * tree.radices[i] :]
        return (n, self.draws(n), nothing, *kept)

    def release(self, xs: IntArray, noise: Noise) -> FloatArray:
        n = self.check_steps(len(xs))
        z = noise.draw(1, self.draws(n))
        return rounded(np.asarray(np.cumsum(xs, axis=0)), self._tree.errors(z, n), self._tree.bits)

    def encoder(self, n: int) -> FloatArray:
        tree, rows = self._tree, self.draws(self.check_steps(n))
        matrix = np.zeros((rows, n))
        for i, span in enumerate(tree.spans):
            for j, c in enumerate(tree.coordinates(i, np.arange(tree.drawn(i, n))).tolist()):
                matrix[c - 1, j * span : (j + 1) * span] = 1
        return matrix

    def decoder(self, n: int) -> FloatArray:
        rows = self.draws(self.check_steps(n))
        errors = self._tree.errors(np.eye(rows, dtype=np.int64), n)
        return np.asarray(errors / (1 << self._tree.bits), dtype=np.float64)

    def row_norm2(self, t: int) -> float:
        return float(self._tree.variance(t - 1))

    def row_norms2(self, n: int) -> FloatArray:
        return self._tree.variances(self.check_steps(n))

    def max_row_norm2(self) -> float:
        return largest_variance(self._tree)[0]

    def mean_row_norm2(self) -> float:
        return self._tree.total() / self.horizon

    def weights(self, t: int | None) -> tuple[FloatArray, FloatArray]:
        return self._tree.row(largest_variance(self._tree)[1] if t is None else t - 1)

    def products(self, s: IntArray, lag: int) -> FloatArray:
        return self._tree.covariances(s - 1, s - 1 + lag)

    def replay_safe(self) -> Mechanism:
        """`SmoothLaplace`, the best of those for Laplace noise that draw late."""
        return SmoothLaplace(self.horizon)

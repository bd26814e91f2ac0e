"""The tree of `BridgedKAry` for one horizon: its shape, its weights, and its errors."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from beam_dpcount.mechanisms.base import FloatArray, IntArray

_BITS = 6  # of a weight: more lower the variance by less than 1e-4 of it
_ONE = 1 << _BITS
_EXACT = 2**53  # up to it doubles hold every integer
_ROOM = 2**62
_WIDEST = 64  # wider trees are worse than those of a level more


# Of the errors at the ends of a node only Var E_0 =: V, -Cov(E_0, E_1 - E_0) =: g and
# Var(E_1 - E_0) =: v matter, in units of one draw's variance. With s = v + k,
#   Var E(d) = V + d - 2 b_d (g + d) + b_d^2 s,
# least at b_d = (g + d) / s, and for child d, with c = b_{d+1} - b_d,
#   g' = c (g + d) + b_d (1 - c s),   v' = 1 - 2 c + c^2 s.
# All three are affine in V, g and v, and V only adds to what follows.


def _between(V: Any, g: Any, v: Any, b: Any, c: Any, d: Any, k: Any) -> tuple[Any, Any, Any]:
    """V, g and v of child d, b_d = b and b_{d+1} - b_d = c."""
    s, e = v + k, g + d
    return V + d + b * (b * s - 2 * e), c * e + b * (1 - c * s), 1 + c * (c * s - 2)


class Tree(NamedTuple):
    """The shape and the weights of a tree for one horizon.

    Blocks of a level, the children of one node, have the same weights, which are best for the mean
    g and v of these nodes; but for the last block, which may have fewer children.
    """

    horizon: int
    radices: tuple[int, ...]  # k_0 .. k_{h-2}, lowest first
    spans: tuple[int, ...]  # w_0 .. w_{h-1}
    nodes: tuple[int, ...]  # how many nodes each level has
    weights: tuple[tuple[int, ...], ...]  # of each level below the top: 64 b_0 .. 64 b_k
    last: tuple[tuple[int, ...], ...]  # the same of its last block

    @property
    def bits(self) -> int:
        """How many binary places errors have."""
        return _BITS * len(self.radices)

    def children(self, i: int, block: int) -> int:
        """How many nodes of level i a block has."""
        return min(self.radices[i], self.nodes[i] - block * self.radices[i])

    def drawn(self, i: int, n: int) -> int:
        """How many nodes of level i are drawn in n steps."""
        opened = -(-n // self.spans[min(i + 1, len(self.spans) - 1)])
        return opened if i == len(self.radices) else min(opened * self.radices[i], self.nodes[i])

    def draws(self, n: Any) -> Any:
        """How many coordinates n steps draw, n a number or an array of them."""
        below = zip(self.radices, self.spans[1:], self.nodes, strict=False)
        total = -(-n // self.spans[-1])
        for k, span, nodes in below:
            total = total + np.minimum(-(-n // span) * k, nodes)
        return total

    def coordinates(self, i: int, nodes: IntArray) -> IntArray:
        """The coordinates of nodes of level i: within a step those of lower levels come first."""
        k = self.radices[i] if i < len(self.radices) else 1
        blocks = nodes // k
        first = blocks * self.spans[min(i + 1, len(self.spans) - 1)]  # items before the block
        before = self.draws(first) + 1
        for span, radix, of_level in zip(self.spans[:i], self.radices, self.nodes, strict=False):
            before = before + np.minimum(radix, of_level - first // span)
        return np.asarray(before + nodes - blocks * k)

    # Releases, exactly: errors are whole numbers of 2^-bits.

    def release(self, u: int, total: Any, parts: Sequence[tuple[Any, ...]], top: Any) -> Any:
        """The private prefix sum of the items 0 .. u, from what a state keeps."""
        if np.ndim(total):
            used = (p for part in (*parts, top) for p in (*part[:2], part[-1]))
            size = max(int(np.abs(sums).max()) for sums in used)
            if self._reach(2 * size) >= _ROOM:
                parts = [tuple(p.astype(object) for p in part) for part in parts]
                top = tuple(p.astype(object) for p in top)
        error, rise, places = top[0], top[1] - top[0], 0
        for i in range(len(self.radices) - 1, -1, -1):
            block, part = u // self.spans[i + 1], parts[i]
            d = u // self.spans[i] - block * self.radices[i]
            weights = self.last[i] if block == self.nodes[i + 1] - 1 else self.weights[i]
            apart = rise - (part[-1] << places)  # E_1 - E_0 - W_k
            error = (error + (part[0] << places) << _BITS) + weights[d] * apart
            places += _BITS
            rise = (part[1] - part[0] << places) + (weights[d + 1] - weights[d]) * apart
        if np.ndim(total):
            return rounded(total, error + rise, places)
        return ((total << places) + error + rise) / (1 << places)  # correctly rounded

    def errors(self, z: IntArray, n: int) -> Any:
        """The errors of releases 1 .. n in multiples of 2^-bits, int64 or, where large, object."""
        tail, h = z.shape[1:], len(self.spans)
        if self._reach(int(np.abs(z).max(initial=0))) >= _ROOM:
            z = z.astype(object)
        rise = z[self.coordinates(h - 1, np.arange(self.drawn(h - 1, n))) - 1]
        error, places = np.cumsum(rise, axis=0) - rise, 0
        for i in range(h - 2, -1, -1):
            blocks, k, count = len(rise), self.radices[i], self.drawn(i, n)
            own = np.zeros((blocks * k, *tail), dtype=z.dtype)  # the last block may have fewer
            own[:count] = z[self.coordinates(i, np.arange(count)) - 1]
            own = own.reshape(blocks, k, *tail)
            sums = np.cumsum(own, axis=1)
            apart = (rise - (sums[:, -1] << places))[:, None]
            weights = self._weights(i, blocks).astype(z.dtype)
            weights = weights.reshape(*weights.shape, *[1] * len(tail))
            error = ((error[:, None] + (sums - own << places)) << _BITS) + weights[:, :-1] * apart
            places += _BITS
            rise = (own << places) + np.diff(weights, axis=1) * apart
            error, rise = (a.reshape(blocks * k, *tail)[:count] for a in (error, rise))
        return (error + rise)[:n]

    def _reach(self, size: int) -> int:
        """A bound on all that `errors` computes from draws of up to this size."""
        rise, error = size, self.nodes[-1] * size
        for k in self.radices:
            apart = rise + k * size
            error, rise = error + k * size + apart, size + apart
        return (2 * error + rise) << self.bits

    def _weights(self, i: int, blocks: int) -> IntArray:
        """64 b_0 .. 64 b_k of the first blocks of level i, shape (blocks, k + 1) or (1, k + 1)."""
        made = np.array([self.weights[i]], dtype=np.int64)
        if blocks < self.nodes[i + 1]:
            return made
        made = np.repeat(made, blocks, axis=0)
        made[-1, : len(self.last[i])] = self.last[i]
        made[-1, len(self.last[i]) :] = _ONE  # children beyond the horizon
        return made

    # Variances

    def variance(self, u: int) -> float:
        """The variance of release u + 1."""
        V, g, v = float(u // self.spans[-1]), 0.0, 1.0
        for i in range(len(self.radices) - 1, -1, -1):
            block = u // self.spans[i + 1]
            d = u // self.spans[i] - block * self.radices[i]
            weights = self.last[i] if block == self.nodes[i + 1] - 1 else self.weights[i]
            b, c, k = weights[d] / _ONE, (weights[d + 1] - weights[d]) / _ONE, len(weights) - 1
            V, g, v = _between(V, g, v, b, c, d, k)
        return V - 2 * g + v

    def row(self, u: int) -> tuple[FloatArray, FloatArray]:
        """The weights in release u + 1, and how many nodes have each."""
        # It is E_0 + a (E_1 - E_0) at the ends of every node above, for some a of each.
        a, weights, counts = 1.0, [], []
        for i in range(len(self.radices)):
            block = u // self.spans[i + 1]
            d = u // self.spans[i] - block * self.radices[i]
            of_block = self.last[i] if block == self.nodes[i + 1] - 1 else self.weights[i]
            above = (of_block[d] + a * (of_block[d + 1] - of_block[d])) / _ONE
            weights += [1 - above, a - above, -above]
            counts += [d, 1, len(of_block) - 2 - d]
            a = above
        return np.array([*weights, a, 1.0]), np.array([*counts, 1.0, u // self.spans[-1]])

    def variances(self, n: int) -> FloatArray:
        """The variances of releases 1 .. n, shape (n,)."""
        h = len(self.spans)
        V = np.arange(self.drawn(h - 1, n), dtype=np.float64)
        g, v = np.zeros_like(V), np.ones_like(V)
        for i in range(h - 2, -1, -1):
            blocks, k = len(V), self.radices[i]
            weights = self._weights(i, blocks) / _ONE
            sizes = np.full((blocks, 1), k)
            if blocks == self.nodes[i + 1]:
                sizes[-1] = len(self.last[i]) - 1
            b, c = weights[:, :-1], np.diff(weights, axis=1)
            made = _between(V[:, None], g[:, None], v[:, None], b, c, np.arange(k), sizes)
            V, g, v = (np.ravel(np.broadcast_to(a, (blocks, k)))[: self.drawn(i, n)] for a in made)
        return np.asarray(V - 2 * g + v)[:n]

    def total(self) -> float:
        """The sum of the variances of all releases."""
        # Of the w releases in a node, w V + a + p g + r v.
        sums = [(0.0, -2.0, 1.0)]
        for i, weights in enumerate(self.weights):
            a, p, r = sums[-1]
            w, A, P, R = self.spans[i], 0.0, 0.0, 0.0
            for V0, Vg, Vv, g0, gg, gv, v0, vv in _affine(weights):
                A += w * V0 + a + p * g0 + r * v0
                P += w * Vg + p * gg
                R += w * Vv + p * gv + r * vv
            sums.append((A, P, R))
        top, whole = self.nodes[-1] - 1, self.spans[-1]
        a, _, r = sums[-1]
        total = whole * (top * (top - 1) / 2) + top * (a + r)
        V, g, v = float(top), 0.0, 1.0
        for i in range(len(self.radices) - 1, -1, -1):
            *others, (V, g, v) = _children(V, g, v, self.last[i])
            a, p, r = sums[i]
            total += sum(self.spans[i] * one[0] + a + p * one[1] + r * one[2] for one in others)
        return total + V - 2 * g + v

    def covariances(self, s: IntArray, t: IntArray) -> FloatArray:
        """The covariances of releases s + 1 and t + 1, s <= t, shape (n,)."""
        # Of (E_0, E_1 - E_0) at the two nodes, which are one as long as s and t share them.
        top, other = s // self.spans[-1], t // self.spans[-1]
        same = (top == other).astype(np.float64)
        x = [[top.astype(np.float64), np.zeros(len(s))], [1 - same, same]]
        for i in range(len(self.radices) - 1, -1, -1):
            k, ways = self.radices[i], []
            table = np.ones((2, k + 1))
            table[0] = np.array(self.weights[i]) / _ONE
            table[1, : len(self.last[i])] = np.array(self.last[i]) / _ONE
            for u in (s, t):
                block = u // self.spans[i + 1]
                is_last = (block == self.nodes[i + 1] - 1).astype(np.int64)
                d = u // self.spans[i] - block * k
                ways.append((d, table[is_last, d], table[is_last, d + 1]))
            size = np.where(is_last, len(self.last[i]) - 1, k)
            same = same * (s // self.spans[i + 1] == t // self.spans[i + 1])
            (d, b0, b1), (e, f0, f1) = ways
            # Cov(E(p), E(q)), less what child noise adds within one block.
            ends = [
                [
                    (x[0][0] + b * x[1][0] + f * (x[0][1] + b * x[1][1]))
                    + same * (np.minimum(p, q) - f * p - b * q + b * f * size)
                    for q, f in ((e, f0), (e + 1, f1))
                ]
                for p, b in ((d, b0), (d + 1, b1))
            ]
            (a, b), (c, f) = ends
            x = [[a, b - a], [c - a, f - c - b + a]]
        return np.asarray(x[0][0] + x[0][1] + x[1][0] + x[1][1])


def rounded(totals: IntArray, errors: Any, bits: int) -> FloatArray:
    """totals + errors / 2^bits, rounded once, to the nearest double."""
    if errors.dtype != object and bits <= 53 and totals.size:
        whole = totals + (errors >> bits)
        if max(abs(int(whole.min())), abs(int(whole.max()))) < _EXACT:
            # Both terms are exact, so that the sum rounds alone.
            return np.asarray(whole + (errors & ((1 << bits) - 1)) / (1 << bits), dtype=np.float64)
    scale = 1 << bits
    pairs = zip(totals.ravel().tolist(), errors.ravel().tolist(), strict=True)
    exact = [(total * scale + error) / scale for total, error in pairs]
    return np.array(exact, dtype=np.float64).reshape(totals.shape)


def _children(
    V: float, g: float, v: float, weights: Sequence[int]
) -> Iterator[tuple[float, float, float]]:
    """V, g and v of each child."""
    k = len(weights) - 1
    for d in range(k):
        b, c = weights[d] / _ONE, (weights[d + 1] - weights[d]) / _ONE
        yield _between(V, g, v, b, c, d, k)


def _affine(weights: Sequence[int]) -> Iterator[tuple[float, ...]]:
    """Of each child d: V' = V + V0 + Vg g + Vv v, g' = g0 + gg g + gv v, v' = v0 + vv v."""
    k = len(weights) - 1
    for d in range(k):
        b, c = weights[d] / _ONE, (weights[d + 1] - weights[d]) / _ONE
        V0, g0, v0 = _between(0.0, 0.0, 0.0, b, c, d, k)
        yield V0, -2 * b, b * b, g0, c, -b * c, v0, c * c


@lru_cache(maxsize=64)
def largest_variance(tree: Tree) -> tuple[float, int]:
    """The largest variance of a release, and one u of a release u + 1 that has it."""
    # Within a node the largest is V plus the maximum of affine functions of g and v, of which few
    # are ever the largest for any g and v that occur.
    boxes, lasts = _boxes(tree)
    tops = [np.array([[0.0, -2.0, 1.0]])]
    for i, weights in enumerate(tree.weights):
        a, p, r = tops[-1].T
        found = [
            np.stack([V0 + a + p * g0 + r * v0, Vg + p * gg, Vv + p * gv + r * vv], axis=1)
            for V0, Vg, Vv, g0, gg, gv, v0, vv in _affine(weights)
        ]
        tops.append(_undominated(np.concatenate(found), boxes[i + 1]))

    def best(i: int, nodes: list[Moments], first: int) -> tuple[float, int, int, Moments]:
        """Of nodes of level i that are no last ones the largest, its level and its number."""
        largest = [V + float((tops[i] @ np.array([1.0, g, v])).max()) for V, g, v in nodes]
        place = largest.index(max(largest))
        return largest[place], i, first + place, nodes[place]

    _, i, number, node = max(
        (best(i, nodes, first) for i, nodes, first in lasts if nodes), key=lambda one: one[0]
    )
    while i:
        i -= 1
        children = list(_children(*node, tree.weights[i]))
        _, _, number, node = best(i, children, number * tree.radices[i])
    return tree.variance(number), number


Moments = tuple[float, float, float]


def _boxes(
    tree: Tree,
) -> tuple[list[tuple[float, ...]], list[tuple[int, list[Moments], int]]]:
    """Of each level the ranges of g and v; and the nodes in its last block, but for the last node.

    With these comes the number of the first one. The last item stands by itself at the end.
    """
    h = len(tree.spans)
    V, g, v = float(tree.nodes[-1] - 1), 0.0, 1.0
    # Nodes of the top level differ by V alone: of all but the last one, the last is the largest.
    lasts = [(h - 1, [(V - 1, g, v)] if V else [], tree.nodes[-1] - 2)]
    boxes: list[tuple[float, ...]] = [(0.0, 0.0, 1.0, 1.0)]
    for i in range(h - 2, -1, -1):
        low_g, high_g, low_v, high_v = boxes[-1]
        corners = itertools.product((low_g, high_g), (low_v, high_v))
        inside = [one for a, b in corners for one in _children(0.0, a, b, tree.weights[i])]
        *others, (V, g, v) = _children(V, g, v, tree.last[i])
        lasts.append((i, others, (tree.nodes[i + 1] - 1) * tree.radices[i]))
        gs, vs = ([one[j] for one in (*inside, *others)] for j in (1, 2))
        boxes.append((min(gs), max(gs), min(vs), max(vs)))
    lasts.append((0, [(V, g, v)], tree.horizon - 1))
    return boxes[::-1], lasts


def _undominated(functions: FloatArray, box: tuple[float, ...]) -> FloatArray:
    """Those of (1, g, v) that no other is above in all of the box."""
    low_g, high_g, low_v, high_v = box
    corners = [(1.0, g, v) for g in (low_g, high_g) for v in (low_v, high_v)]
    values = functions @ np.array(corners).T
    order = np.argsort(-values.sum(axis=1), kind="stable")
    functions, values = functions[order], values[order]
    kept: list[int] = []
    for i, value in enumerate(values):
        if not kept or not (values[kept] >= value).all(axis=1).any():
            kept.append(i)
    return functions[kept]


@lru_cache(maxsize=256)
def tree_of(horizon: int, arity: int | tuple[int, ...] | None) -> Tree:
    if arity is None:
        return best_tree(horizon)
    if isinstance(arity, tuple):
        return tree_of_radices(horizon, arity)
    levels = 0
    while arity ** (levels + 1) < horizon:
        levels += 1
    return tree_of_radices(horizon, (arity,) * levels)


def tree_of_radices(horizon: int, radices: tuple[int, ...]) -> Tree:
    spans = tuple(itertools.accumulate(radices, lambda a, b: a * b, initial=1))
    nodes = tuple(-(-horizon // span) for span in spans)
    weights, last = [], []
    (g, v), (G, V) = (0.0, 1.0), (0.0, 1.0)
    for i in range(len(radices) - 1, -1, -1):
        k = radices[i]
        weights.append(_best_weights(g, v, k))
        last.append(_best_weights(G, V, nodes[i] - (nodes[i + 1] - 1) * k))
        made = list(_children(0.0, g, v, weights[-1]))
        g, v = sum(one[1] for one in made) / k, sum(one[2] for one in made) / k
        *_, (_, G, V) = _children(0.0, G, V, last[-1])
    return Tree(horizon, radices, spans, nodes, tuple(weights[::-1]), tuple(last[::-1]))


def _best_weights(g: float, v: float, k: int) -> tuple[int, ...]:
    """64 b_0 .. 64 b_k, nearly those of least variance; the ends of a block are given."""
    near = (round(_ONE * (g + d) / (v + k)) for d in range(1, k))
    return (0, *(min(max(b, 0), _ONE) for b in near), _ONE)


def best_tree(horizon: int) -> Tree:
    """The tree of least mean variance under Laplace noise."""
    best: Tree | None = None
    least, worse = math.inf, 0
    for levels in itertools.count(1):
        if 2 * horizon > _WIDEST**levels > _WIDEST:
            continue
        worse += best is not None
        for radices in candidates(horizon, levels):
            tree = tree_of_radices(horizon, radices)
            cost = levels**2 * tree.total()
            if cost < least:
                best, least, worse = tree, cost, 0
        if best is not None and worse == 2:
            return best
    raise AssertionError("levels end")


def candidates(horizon: int, levels: int) -> Iterator[tuple[int, ...]]:
    """Radices below the top, the same or a and a + 1, and about a/4 to a/2 nodes at the top."""
    below = levels - 1
    if not below:
        yield ()
        return
    a = max(2, math.floor((2 * horizon) ** (1 / levels)) - 1)
    while a <= _WIDEST:
        for few in range(below, 0, -1):  # in ascending order of their products
            radices = (a,) * few + (a + 1,) * (below - few)
            product = math.prod(radices)
            nodes = -(-horizon // product)
            if product > horizon or 4 * nodes < a:
                return
            if 2 * nodes <= a + 2:
                yield radices
        a += 1

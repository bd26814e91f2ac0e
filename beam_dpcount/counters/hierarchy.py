"""A public tree of keys, and least squares over it: parents are exactly the sums of their children.

Every node has a counter with one mechanism and one law, so the noise of two levels differs by a
public factor that is the same at all ticks. Then the best estimates from all nodes of a tick are
those of its releases alone, with weights that depend on neither the tick nor the data.

Source: Hay, Rastogi, Miklau and Suciu, Boosting the accuracy of differentially private histograms
through consistency (2010), here for levels of any variances and nodes with any number of children.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from beam_dpcount.checks import ParameterError
from beam_dpcount.mechanisms.base import FloatArray, IntArray

ROOT = "all"  # the level of the one node above all others
GROWTH = 1.25  # of the variance of leaves, at most, beside the whole budget at the leaves
FINEST = 1 << 10  # the largest weight of a level, by which its sums are multiplied
_ROUNDING = 1e-3  # of a node's variance may come from the rounding of leaves, at most
_HALVINGS = 60
_LARGEST = 1 << 62


@dataclass(frozen=True)
class Hierarchy:
    """A public tree of keys, every level of which is released: a leaf is the key of an event.

    Args:
      levels: their names, below the root, the leaves' last: ["region", "city"].
      leaves: the path of each leaf, as a tuple with a text a level: [("north", "oslo"), ...].
      shares: of the budget, one a level, from the root on, in any unit; 0: a level is the sum of
        the one below. Default: as much for the levels above, in equal parts, as lets the variance
        of leaves grow by a quarter.

    Guarantee: none of its own: tree and shares are public parameters.

    Raises:
      ParameterError: levels, leaves or shares do not make a tree.

    Example:
      >>> tree = Hierarchy(["region", "city"], [("north", "oslo"), ("south", "rome")])
      >>> tree.paths
      (('', ''), ('north', ''), ('south', ''), ('north', 'oslo'), ('south', 'rome'))
      >>> [tree.level_of(path) for path in tree.paths]
      ['all', 'region', 'region', 'city', 'city']
    """

    levels: Sequence[str]
    leaves: Iterable[Sequence[str]]
    shares: Sequence[float] | None = None

    paths: tuple[tuple[str, ...], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name, given in (("levels", _check_levels(self.levels)), ("leaves", self._leaves())):
            object.__setattr__(self, name, given)
        if self.shares is not None:
            object.__setattr__(self, "shares", self._check_shares(self.shares))
        object.__setattr__(self, "paths", tuple(path for some in self._nodes for path in some))

    def _leaves(self) -> tuple[tuple[str, ...], ...]:
        example = 'give e.g. {leaves=}[("north", "oslo"), ("south", "rome")]'
        if isinstance(self.leaves, str | bytes | Mapping) or not isinstance(self.leaves, Iterable):
            raise ParameterError("leaves", f"must be a list of paths, got {self.leaves!r}", example)
        leaves, depth = list[tuple[str, ...]](), len(self.levels)
        for given in self.leaves:
            if isinstance(given, str | bytes) or not isinstance(given, Sequence):
                raise ParameterError("leaves", f"has {given!r}, which is not a path", example)
            if len(given) != depth or not all(isinstance(t, str) and t for t in given):
                problem = f"has {given!r}, and a path has {depth} texts that are not empty"
                raise ParameterError("leaves", problem, example)
            leaves.append(tuple(map(str.__str__, given)))
        if not leaves:
            raise ParameterError("leaves", "is empty", example)
        if len(set(leaves)) < len(leaves):
            raise ParameterError("leaves", "has a path twice", "give each once")
        return tuple(leaves)

    def _check_shares(self, given: Sequence[float]) -> tuple[float, ...]:
        remedy = "give one a level from the root on, the leaves' above 0, or leave {shares} out"
        is_list = isinstance(given, Sequence) and not isinstance(given, str | bytes)
        numbers = [x for x in given if isinstance(x, int | float)] if is_list else []
        fine = is_list and len(numbers) == len(given) == self.depth
        fine = fine and not any(isinstance(x, bool) for x in numbers)
        if not fine or not all(math.isfinite(x) and x >= 0 for x in numbers) or not numbers[-1]:
            raise ParameterError("shares", f"must be {self.depth} numbers, got {given!r}", remedy)
        return tuple(x / math.fsum(numbers) for x in numbers)

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """A text of each leaf, no two of them equal."""
        return tuple(map(text_of_path, self.leaves))

    @property
    def depth(self) -> int:
        """How many levels there are, with the root."""
        return len(self.levels) + 1

    @cached_property
    def _nodes(self) -> list[list[tuple[str, ...]]]:
        """The paths of each level, padded with empty texts, as they first come."""
        last = self.depth - 1
        return [
            list(dict.fromkeys((*leaf[:at], *[""] * (last - at)) for leaf in self.leaves))
            for at in range(self.depth)
        ]

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """How many nodes each level has, from the root on."""
        return tuple(map(len, self._nodes))

    @cached_property
    def parents(self) -> tuple[IntArray, ...]:
        """Of each level below the root: the place of every node's parent in the level above."""
        found = []
        for at in range(1, self.depth):
            places = {path: place for place, path in enumerate(self._nodes[at - 1])}
            pad = ("",) * (self.depth - at)
            above = [places[(*path[: at - 1], *pad)] for path in self._nodes[at]]
            found.append(np.array(above, dtype=np.int64))
        return tuple(found)

    @cached_property
    def beneath(self) -> tuple[IntArray, ...]:
        """How many leaves lie under each node, level by level."""
        return tuple(
            self.sums(np.ones((1, self.sizes[-1]), dtype=np.int64), at)[0]
            for at in range(self.depth)
        )

    @property
    def starts(self) -> tuple[int, ...]:
        """The place of the first node of each level among all, and how many there are."""
        return tuple(np.cumsum([0, *self.sizes]).tolist())

    def level_of(self, path: Sequence[str]) -> str:
        """The name of a node's level."""
        return (ROOT, *self.levels)[sum(map(bool, path))]

    def sums(self, leaves: IntArray, at: int) -> IntArray:
        """The whole numbers of a level, given those of the leaves, shape (ticks, leaves)."""
        for parents, size in zip(self.parents[at:][::-1], self.sizes[at:-1][::-1], strict=True):
            above: IntArray = np.zeros((size, len(leaves)), dtype=np.int64)
            np.add.at(above, parents, leaves.T)
            leaves = above.T
        return leaves

    def all_sums(self, leaves: IntArray) -> IntArray:
        """Those of all nodes, level by level, shape (ticks, nodes)."""
        return np.concatenate([self.sums(leaves, at) for at in range(self.depth)], axis=1)

    def weights(self, norms: Sequence[float]) -> tuple[int, ...]:
        """By what the sums of each level are multiplied before all get noise of one law.

        Args:
          norms: how far what is protected moves each level, at most: squared L2 norms.
        """
        if self.shares is not None:
            return _weights(self.shares, norms)
        low, high = 1 / self.depth, 1.0  # of the leaves
        for _ in range(_HALVINGS):
            share = (low + high) / 2
            if self._growth(share, norms) <= GROWTH:
                high = share
            else:
                low = share
        return _weights(self._with(high), norms)

    def _with(self, share: float) -> tuple[float, ...]:
        above = self.depth - 1
        return (*[(1 - share) / above] * above, share)

    def _growth(self, share: float, norms: Sequence[float]) -> float:
        weights = _weights(self._with(share), norms)
        whole = math.fsum(w * w * n for w, n in zip(weights, norms, strict=True))
        return float(Consistent(self, weights).variances[-1].max()) * whole / norms[-1]


@dataclass(frozen=True)
class Consistent:
    """The best estimates of all nodes, from a noisy number of each.

    Args:
      tree: the nodes.
      weights: of the levels, from the root on. The noise of a node's number, divided by the weight
        of its level, has the variance 1 / weight^2; 0: its number is not used.

    Guarantee: none of its own; it computes with releases and public numbers only.
    """

    tree: Hierarchy
    weights: tuple[int, ...]

    @cached_property
    def _up(self) -> tuple[list[FloatArray], list[FloatArray]]:
        """Of each level: the variances of what the nodes beneath say, and of their sums."""
        tree, known, sums = self.tree, list[FloatArray](), list[FloatArray]()
        for at in range(tree.depth - 1, -1, -1):
            precision = float(self.weights[at]) ** 2
            if at == tree.depth - 1:
                known.append(np.full(tree.sizes[at], 1 / precision))
                continue
            below: FloatArray = np.asarray(
                np.bincount(tree.parents[at], known[-1], tree.sizes[at]), dtype=np.float64
            )
            sums.append(below)
            known.append(1 / (precision + 1 / below))
        return known[::-1], sums[::-1]

    @cached_property
    def variances(self) -> tuple[FloatArray, ...]:
        """Those of the estimates, level by level."""
        known, sums = self._up
        found = [known[0]]
        for at, parents in enumerate(self.tree.parents):
            mine, part = known[at + 1], known[at + 1] / sums[at][parents]
            found.append(mine - mine * part + part**2 * found[at][parents])
        return tuple(found)

    def leaves(self, noisy: FloatArray) -> FloatArray:
        """The estimates of the leaves; those of all other nodes are their sums.

        Each tick is computed alone, in the same order of additions, however many there are.

        Args:
          noisy: numbers of all nodes, level by level, not yet divided; shape (ticks, nodes).
        """
        tree, (known, sums), starts = self.tree, self._up, self.tree.starts
        own = [
            noisy[:, first:last] / (weight or 1)
            for first, last, weight in zip(starts, starts[1:], self.weights, strict=False)
        ]
        up, below = [own[-1]], list[FloatArray]()
        for at in range(tree.depth - 2, -1, -1):
            below.append(_added(up[-1], tree.parents[at], tree.sizes[at]))
            part = known[at] * float(self.weights[at]) ** 2
            up.append(part * own[at] + (1 - part) * below[-1])
        up, below = up[::-1], below[::-1]
        best: FloatArray = up[0]
        for at, parents in enumerate(tree.parents):
            part = known[at + 1] / sums[at][parents]
            best = up[at + 1] + part * (best - below[at])[:, parents]
        return best

    def digits(self, variance: float) -> int:
        """To how many decimals leaves are rounded, so that it is not seen in any sum.

        Args:
          variance: the least of a noisy number before it is divided, over all ticks.
        """
        pairs = zip(self.variances, self.tree.beneath, strict=True)
        least = min(float((own / many).min()) for own, many in pairs)
        step = math.sqrt(12 * _ROUNDING * variance * least)
        return max(0, -math.floor(math.log10(step))) if step else 0

    def stddevs(self, variance: float, digits: int) -> FloatArray:
        """Those of all nodes' released numbers, the rounding of leaves included; shape (nodes,)."""
        rounding = 10.0 ** (-2 * digits) / 12
        pairs = zip(self.variances, self.tree.beneath, strict=True)
        squares = np.concatenate([variance * own + rounding * many for own, many in pairs])
        return np.asarray(np.sqrt(squares), dtype=np.float64)

    def release(self, noisy: FloatArray, digits: int) -> IntArray:
        """What is released of all nodes, in units of the last digit; shape (ticks, nodes).

        A leaf that 64 bits would not hold with all others is clipped.
        """
        most = float(_LARGEST // self.tree.sizes[-1])  # so that 64 bits hold the root, too
        units = np.clip(np.rint(self.leaves(noisy) * 10.0**digits), -most, most)
        whole = units.astype(np.int64)
        return self.tree.all_sums(whole)


def _added(numbers: FloatArray, parents: IntArray, size: int) -> FloatArray:
    """Sums over the children of each node, shape (ticks, size), one addition after the other."""
    ticks = len(numbers)
    places = (np.arange(ticks)[:, None] * size + parents).ravel()
    sums = np.bincount(places, numbers.ravel(), ticks * size)
    return np.asarray(sums.reshape(ticks, size), dtype=np.float64)


def _weights(shares: Sequence[float], norms: Sequence[float]) -> tuple[int, ...]:
    """Whole numbers whose squares, times the norms, are to each other as the shares."""
    ratios = [math.sqrt(share / norm) for share, norm in zip(shares, norms, strict=True)]
    fine = FINEST / max(ratios)
    # Rounded down above, so that leaves get what the others leave.
    above = [max(int(ratio > 0), math.floor(ratio * fine)) for ratio in ratios[:-1]]
    return (*above, max(1, math.ceil(ratios[-1] * fine)))


def text_of_path(path: Sequence[str]) -> str:
    """The path of a leaf as one text, as which events travel."""
    return json.dumps([*path], ensure_ascii=False)


def _check_levels(given: Sequence[str]) -> tuple[str, ...]:
    example = 'give e.g. {levels=}["region", "city"]'
    if isinstance(given, str | bytes) or not isinstance(given, Sequence) or not given:
        raise ParameterError("levels", f"must be a list of names, got {given!r}", example)
    names = tuple(given)
    if not all(isinstance(name, str) and name for name in names) or len({*names}) < len(names):
        raise ParameterError("levels", f"must be distinct names, got {given!r}", example)
    if taken := {ROOT, "key", "level", "step", "start", "timestamp", "restart"}.intersection(names):
        raise ParameterError("levels", f"has {min(taken)!r}, which is another column", example)
    return names

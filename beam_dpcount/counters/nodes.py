"""A counter of all nodes of a tree of keys together, whose releases add up at every tick."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np

from beam_dpcount.counters.counter import Counter
from beam_dpcount.counters.hierarchy import Consistent, Hierarchy
from beam_dpcount.mechanisms.base import FloatArray, IntArray, State
from beam_dpcount.noise.entropy import Noise

_TICKS = 1 << 12  # the first, of which the least noise decides on the digits
_FINEST = 6  # decimals of the unit, at most, so that 64 bits hold sums where there is little noise
_AT_ONCE = 1 << 22  # noisy numbers that are computed together


@dataclass(frozen=True)
class NodesCounter:
    """Counts a vector with a number for each node, and makes the releases of a tick consistent.

    Args:
      tree: the nodes.
      counter: of the vector, its change one of all levels (`counters/levels.py`).
      cap: a node's sum of a tick is clipped to +-cap, on the lattice.

    Guarantee: that of `counter`, whose releases alone are computed with. To clip a node's sum moves
      no two sums further apart.
    """

    tree: Hierarchy
    counter: Counter
    cap: int

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @cached_property
    def weights(self) -> tuple[int, ...]:
        """By what the sums of each level are multiplied, from the root on."""
        change: Any = self.counter.change
        weights: tuple[int, ...] = change.weights
        return weights

    @cached_property
    def _consistent(self) -> Consistent:
        return Consistent(self.tree, self.weights)

    @cached_property
    def _of_nodes(self) -> IntArray:
        """The weight of each node."""
        return np.repeat(np.array(self.weights, dtype=np.int64), self.tree.sizes)

    @cached_property
    def digits(self) -> int:
        """To how many decimals releases are rounded."""
        least = float(self.counter.stddevs(min(self.counter.horizon, _TICKS)).min())
        finest = max(0, _FINEST - math.floor(math.log10(self.counter.unit)))
        return min(self._consistent.digits(least**2), finest)

    @cached_property
    def _factors(self) -> FloatArray:
        """The variance of each node's best estimate, where that of a noisy number is 1."""
        return np.concatenate(self._consistent.variances)

    @cached_property
    def _rounding(self) -> FloatArray:
        """What the rounding of leaves adds to the variance of each node."""
        many = np.concatenate(self.tree.beneath)
        return np.asarray(many * 10.0 ** (-2 * self.digits) / 12, dtype=np.float64)

    def stddevs(self, stddev: FloatArray) -> FloatArray:
        """The standard deviations of all nodes' releases, shape (n, nodes).

        Args:
          stddev: of a number of the vector at each tick, shape (n,).
        """
        squares = np.square(stddev)[:, None] * self._factors + self._rounding
        return np.asarray(np.sqrt(squares), dtype=np.float64)

    def largest_stddevs(self) -> FloatArray:
        """The largest of each level, up to the horizon, shape (levels,)."""
        largest = np.sqrt(np.array([self.counter.max_variance()]))
        starts = self.tree.starts[:-1]
        return np.asarray(np.maximum.reduceat(self.stddevs(largest)[0], starts), dtype=np.float64)

    def half_width(self, stddev: float, level: float) -> float:
        """Half of the interval of a release with noise of this standard deviation."""
        lattice = self.counter.grid / max(self.weights)
        return NormalDist().inv_cdf((1 + level) / 2) * stddev + lattice / 2

    def vectors(self, leaves: IntArray) -> IntArray:
        """What the counter counts, given the sums of leaves, shape (n, leaves) -> (n, nodes)."""
        whole = self.tree.all_sums(np.clip(leaves, -self.cap, self.cap))
        return np.asarray(np.clip(whole, -self.cap, self.cap) * self._of_nodes)

    def init(self) -> State:
        """The state before the first tick."""
        return self.counter.init()

    def step(self, state: State, leaves: IntArray, noise: Noise) -> tuple[State, FloatArray]:
        """A tick: a new state, and the releases of all nodes, shape (nodes,)."""
        state, noisy = self.counter.step_lattice(state, self.vectors(leaves[None])[0], noise)
        return state, self._released(noisy[None])[0]

    def release(self, leaves: IntArray, noise: Noise) -> FloatArray:
        """The releases of the first n ticks at once, as those of n steps; shape (n, nodes)."""
        ticks, nodes = len(leaves), len(self._of_nodes)
        if ticks * nodes <= _AT_ONCE:
            return self._released(self.counter.release_lattice(self.vectors(leaves), noise))
        state, releases = self.init(), np.empty((ticks, nodes))
        for tick in range(ticks):
            state, releases[tick] = self.step(state, leaves[tick], noise)
        return releases

    def _released(self, noisy: FloatArray) -> FloatArray:
        whole = self._consistent.release(noisy, self.digits)
        return np.asarray(whole / 10.0**self.digits, dtype=np.float64)

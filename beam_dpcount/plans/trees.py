"""What a TickTrees counts: one number a node of a tree and tick, before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, fields
from typing import Any

import numpy as np

from beam_dpcount.budget.budgets import PureDP
from beam_dpcount.checks import ParameterError
from beam_dpcount.counters.counter import Counter
from beam_dpcount.counters.grid import Grid
from beam_dpcount.counters.hierarchy import Hierarchy
from beam_dpcount.counters.levels import (
    LevelsChange,
    LevelsUserChange,
    bounds_of,
    norms_of_levels,
)
from beam_dpcount.counters.nodes import NodesCounter
from beam_dpcount.counters.people import Users
from beam_dpcount.mechanisms.single_steps import SingleSteps
from beam_dpcount.plans.ticks import TickNumbersPlan
from beam_dpcount.states.tree_shards import TreePlan
from beam_dpcount.statistics.items import MOST_STATE

_LARGEST = 1 << 62


@dataclass(eq=False, repr=False)
class TickTreesPlan(TickNumbersPlan):
    """The arguments of `TickTrees`, and what follows from them alone.

    Args:
      tree: the public tree; `keys` are the texts of its leaves.
    """

    _: KW_ONLY
    tree: Hierarchy

    def _set_up(self) -> None:
        if isinstance(self._budget, PureDP):
            raise ParameterError(
                "budget",
                f"is {self._budget}, and all levels of a tree share Gaussian noise, which no pure "
                "budget takes",
                "give ApproxDP(epsilon, delta) or ZCDP(rho), or list the leaves as {keys}",
            )
        if self.users is not None and self.users.gap is not None:
            raise ParameterError(
                "gap",
                "is between two events of a person that count, and is not known at several levels",
                "leave {gap} out, or list the leaves as {keys}",
            )
        super()._set_up()

    def _one_event(self) -> LevelsChange:
        plain = super()._one_event()
        given: dict[str, Any] = {one.name: getattr(plain, one.name) for one in fields(plain)}
        return LevelsChange(**given, weights=self.tree.weights([1.0] * self.tree.depth))

    @property
    def _dimension(self) -> int:
        return len(self.tree.paths)

    @property
    def is_number(self) -> bool:
        return True  # of each node

    def _of_person(self, users: Users, clock: Grid) -> LevelsUserChange:
        plain = super()._of_person(users, clock)
        bounds = bounds_of(self.tree, plain, plain.restarts)
        # The same for all mechanisms, as no two events of a person are known to be apart.
        weights = self.tree.weights(norms_of_levels(plain, bounds, SingleSteps(1), self._unit))
        given: dict[str, Any] = {one.name: getattr(plain, one.name) for one in fields(plain)}
        return LevelsUserChange(**given, weights=weights, bounds=bounds)

    def _at(self, clock: Grid, *ways: bool) -> dict[bool, Counter]:
        counters = super()._at(clock, *ways)
        for counter in counters.values():
            self._check_sizes(counter)
        return counters

    def _check_sizes(self, counter: Counter) -> None:
        nodes, leaves = len(self.tree.paths), len(self._listed)
        largest = counter.state_size * nodes
        if largest > MOST_STATE:
            raise ParameterError(
                "keys",
                f"are a tree of {nodes:,} nodes, which take {largest:,} numbers of state, and at "
                f"most {MOST_STATE:,} can be rewritten at every tick",
                "give a tree of fewer leaves, or another {mechanism}",
            )
        change: Any = counter.change
        one = change.largest(self._unit) // (change.most * max(change.weights))
        if leaves * one * change.most > _LARGEST:
            raise ParameterError(
                "max_per_tick",
                f"lets {leaves:,} leaves count more in a tick than 64 bits hold",
                f"give {{max_per_tick=}}{_LARGEST // (leaves * one)} or less",
            )

    def _decides(self) -> Any:
        tree = self.tree.levels, self.tree.leaves, self.tree.shares
        return super()._decides(), tree

    @property
    def nodes(self) -> NodesCounter:
        """What counts all nodes together."""
        return self._nodes_of(self.counter)

    def _nodes_of(self, counter: Any) -> NodesCounter:
        change = counter.change
        cap = change.largest(self._unit) // max(change.weights)
        return NodesCounter(self.tree, counter, cap)

    def how(self, counter: Any, *args: Any) -> dict[str, Any]:
        nodes = self._nodes_of(counter)
        return {**super().how(counter, *args), "cap": nodes.cap}

    def _plan_of(self, counter: Any, *args: Any, **how: Any) -> TreePlan:
        return TreePlan(counter, *args, **how, nodes=self._nodes_of(counter))

    @property
    def level_stddevs(self) -> Mapping[str, float]:
        """The largest standard deviation of a release of each level, by its name."""
        tree = self.tree
        names = [tree.level_of(tree.paths[first]) for first in tree.starts[:-1]]
        return dict(zip(names, self.nodes.largest_stddevs().tolist(), strict=True))

    def _describe(self) -> dict[str, str]:
        said, tree = super()._describe(), self.tree
        levels = ", ".join(f"{name} {x:.3g}" for name, x in self.level_stddevs.items())
        sizes = zip(tree.sizes, self.level_stddevs, strict=True)
        many = ", ".join(f"{size:,} {name}" for size, name in sizes)
        said["keys"] = f"{len(tree.paths):,} nodes of a tree: {many}"
        said.pop("shards", None)  # one
        said["digits"] = str(self.nodes.digits)
        shares = np.square(self.nodes.weights) * self._level_norms()
        percents = ", ".join(f"{100 * x:.3g} %" for x in shares / shares.sum())
        said["levels"] = f"the budget is split among them, from the root on: {percents}"
        said["largest_stddev_of_columns"] = said["largest_stddev"] = levels
        return said

    def _level_norms(self) -> Any:
        """Squared L2 norms of what is protected at each level, in any unit."""
        change: Any = self.counter.change
        if isinstance(change, LevelsUserChange):
            return np.array(norms_of_levels(change, change.bounds, SingleSteps(1), self._unit))
        return np.ones(self.tree.depth)

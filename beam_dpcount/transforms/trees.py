"""TickTrees: the engine of TickCount for one number a node of a tree of keys."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from apache_beam.pvalue import PCollection

from beam_dpcount.dofns.releases import NodeRelease
from beam_dpcount.dofns.ticks import TickIntake
from beam_dpcount.dofns.trees import CountAllTrees, CountEachTree
from beam_dpcount.plans.trees import TickTreesPlan
from beam_dpcount.states.all_ticks import TickPlan
from beam_dpcount.transforms.ticks import TickNumbers


@dataclass(eq=False, repr=False)
class TickTrees(TickTreesPlan, TickNumbers):
    """A private sum of one number for each node of a tree, released at every tick of a clock.

    PCollection[KV[str, anything]] with event times, the keys texts of leaves ->
    PCollection[NodeRelease], as of TickCount, whose arguments mean the same here.

    Guarantee: as for TickNumbers, of the values of all releases of all nodes (the unit: one event,
      or with `users` all events of one person). An event counts at each level, in one node. The
      whole tree has one vector of sums, each multiplied by the public weight of its level and with
      noise of its own of one law, scaled to what is protected in all of them together:
      `counter.l2_sensitivity` (docs/proofs/hierarchy.md). All else is computed from these noisy
      sums and public parameters.
    """

    _count_each = CountEachTree
    _count_all = CountAllTrees
    _released = NodeRelease

    def _all_ticks(
        self, events: PCollection[Any], intake: TickIntake, plan: TickPlan
    ) -> PCollection[Any]:
        # One group, whatever the runner: all of a tree is computed together.
        return super()._all_ticks(events, intake, replace(plan, alone=False))

"""TickVectors: the engine of TickCount for several numbers a key and tick."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from apache_beam.pvalue import PCollection

from beam_dpcount.counters.grid import Grid
from beam_dpcount.dofns.aggregate_shards import (
    CountAllVectorShards,
    CountVectorShards,
    SumVectorShards,
)
from beam_dpcount.dofns.aggregates import (
    AggregateIntake,
    CountAllVectors,
    CountEachVector,
    ReadVectors,
    ReadyVectors,
    SumVectors,
    VectorParcels,
)
from beam_dpcount.dofns.intake import has_str_key
from beam_dpcount.dofns.releases import TickRelease
from beam_dpcount.dofns.ticks import TickIntake
from beam_dpcount.plans.vectors import TickVectorsPlan
from beam_dpcount.transforms.ticks import TickNumbers


@dataclass(eq=False, repr=False)
class TickVectors(TickVectorsPlan, TickNumbers):
    """Sums of several metrics per key as one vector, released at every tick of a public clock.

    PCollection[KV[str, anything]] with event times -> PCollection[TickRelease], as of TickCount,
    whose arguments mean the same here.

    Args:
      metrics: in the order of the columns. `weight` of each says how the budget is split.
      confidence: the level of the intervals, of each by itself.
      value: makes a mapping from fields to values of an event's value; default: it is one. Other
        events do not count at all, but where no metric reads a field (Count, People, a Rate of a
        function): there an event may be anything, and one for which `value` returns None does not
        count. Fields that are missing, or hold no number, add nothing to their own metric only.

    Guarantee: as for TickNumbers, of the values of all releases of all metrics of all keys (the
      unit: one event, or with `users` all events of one person). Each key has one vector of sums,
      each with noise of its own of one law, scaled to what one event changes in all of them
      together: `counter.l2_sensitivity` and `.l1_sensitivity` (docs/proofs/aggregates.md). All
      else, values and intervals, is computed from these noisy sums and public parameters.

    Attributes:
      joint: the metrics together, with what was chosen by error (branching).
      counter: the calibrated counter of a key's vector; its lattice is that of the noise.

    Raises:
      ValueError, TypeError: as for TickNumbers, and for metrics that do not go together.
    """

    _read_ticks = ReadVectors
    _count_each = CountEachVector
    _count_all = CountAllVectors
    _count_shards = CountVectorShards
    _count_all_shards = CountAllVectorShards
    _ready = ReadyVectors
    _released = TickRelease

    @property
    def _numbers_of(self) -> AggregateIntake:
        return AggregateIntake(self.joint, self.on_reject == "raise", self.value)

    def _intake(self, clock: Grid, until: int | None = None) -> TickIntake:
        numbers: Any = self._numbers_of
        strict = self.on_unknown == "raise"
        return TickIntake(clock, self._listed or None, numbers, strict, self.other, until)

    def parcels(self, events: PCollection[object]) -> VectorParcels:
        return VectorParcels(self._whole_intake(events), self.joint.first, self._restarts)

    def _sum_ticks(self, intake: TickIntake, keys: Sequence[str], alone: bool) -> SumVectors:
        return SumVectors(intake, keys, alone, self.joint.width)

    def _sum_shards(self, intake: TickIntake, groups: int, ticks_apart: bool) -> SumVectorShards:
        return SumVectorShards(intake, groups, ticks_apart, self.joint.width)

    @property
    def _takes_rows(self) -> bool:
        return super()._takes_rows or not self.joint.needs_mapping

    def _examine(self, event: Any) -> tuple[str | None, Any]:
        if not has_str_key(event):
            return f"the element is not a (key, value) pair but {type(event).__name__}", ()
        return self._numbers_of.examine(event[1])

    @property
    def _counts_anew(self) -> bool:
        return super()._counts_anew or bool(self.joint.first)

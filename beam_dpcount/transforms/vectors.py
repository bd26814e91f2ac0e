"""TickVectors: the engine of TickCount for several numbers a key and tick."""

from __future__ import annotations

import math
from collections import Counter as Tally
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, fields, replace
from typing import Any

import numpy as np
from apache_beam.pvalue import PCollection

from beam_dpcount.budget.budgets import PureDP
from beam_dpcount.checks import ParameterError
from beam_dpcount.counters.counter import Counter
from beam_dpcount.counters.grid import Grid
from beam_dpcount.counters.joint import JointChange, JointUserChange
from beam_dpcount.counters.people import Seen, Users
from beam_dpcount.counters.selection import JointSelection, Selection, SelectKeys, selection_of
from beam_dpcount.dofns.aggregate_shards import (
    AggregateShardPlan,
    CountAllVectorShards,
    CountVectorShards,
    SumVectorShards,
)
from beam_dpcount.dofns.aggregates import (
    AggregateIntake,
    AggregatePlan,
    CountAllVectors,
    CountEachVector,
    Reading,
    ReadVectors,
    ReadyVectors,
    SumVectors,
    VectorParcels,
)
from beam_dpcount.dofns.intake import has_str_key
from beam_dpcount.dofns.releases import TickRelease
from beam_dpcount.dofns.ticks import TickIntake
from beam_dpcount.noise.laws import ScaleError
from beam_dpcount.statistics.items import MOST_STATE
from beam_dpcount.statistics.metrics import Metric
from beam_dpcount.statistics.metrics.joint import Joint
from beam_dpcount.transforms.expected import Expected, check_events, expected_of
from beam_dpcount.transforms.ticks import TickNumbers


@dataclass(eq=False, repr=False)
class TickVectors(TickNumbers):
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

    _: KW_ONLY
    metrics: tuple[Metric, ...]
    confidence: float = 0.95

    _counts_numbers = False
    _unit = 1.0
    _count_each = CountEachVector
    _count_all = CountAllVectors
    _count_shards = CountVectorShards
    _count_all_shards = CountAllVectorShards
    _ready = ReadyVectors
    _released = TickRelease

    def _check_unlisted(self) -> None:
        super()._check_unlisted()
        if isinstance(self.keys, SelectKeys) and self.keys.at_least > 1:
            raise ParameterError(
                "at_least",
                f"is {self.keys.at_least}, and leaves the first events out of a sum, of which "
                "means and quantiles would not know",
                "leave {at_least} out",
            )

    def _one_event(self) -> JointChange:
        pure = isinstance(self._budget, PureDP)
        self.joint = joint = Joint(tuple(metric.planned(pure) for metric in self.metrics))
        return JointChange(
            relation=self.relation,
            parts=joint.parts,
            tested=0 if joint.tested is None else joint.multipliers[joint.tested],
            said=self._decides(),
        )

    @property
    def _dimension(self) -> int:
        return self.joint.width

    def _decides(self) -> str:
        read = self.inside.fingerprint
        return repr(self.joint.metrics) + ("" if read is None else f"; {read}")

    def _at(self, clock: Grid, *ways: bool) -> dict[bool, Counter]:
        try:
            counters = super()._at(clock, *ways)
        except ScaleError as error:
            if len({metric.weight for metric in self.metrics}) == 1:
                raise
            raise ScaleError(f"{error}; or give metrics weights nearer to each other") from None
        largest = max(counter.state_size for counter in counters.values()) * self.joint.width
        if largest > MOST_STATE:
            raise ParameterError(
                "metrics",
                f"have {self.joint.width} sums, which take {largest} numbers of state a key, and "
                f"at most {MOST_STATE} can be rewritten at every tick",
                "give Quantiles fewer leaves, Items fewer items, or another {mechanism}",
            )
        return counters

    def _of_person(self, users: Users, clock: Grid) -> JointUserChange:
        plain: Any = super()._of_person(users, clock)
        known = {field.name: getattr(plain, field.name) for field in fields(plain)}
        one: Any = self._change
        return JointUserChange(**known, parts=one.parts, tested=one.tested, said=one.said)

    def _selecting(self, counter: Counter) -> Selection | None:
        if self._select is None:
            return None
        delta = self._keys_delta
        return selection_of(self._select, self._whole_budget, counter, delta, JointSelection)

    def expected(self, events: Iterable[object], tick: int | None) -> Expected:
        """As for TickCount."""
        counter, joint, read, users = self.counter, self.joint, self._numbers_of, self.users
        sums, many, counted = [0] * joint.width, 0, 0
        problems: Tally[str] = Tally()
        # All events are of one key; when they were, nobody knows.
        bound = None if users is None else replace(users.bound(), gap=0)
        people: dict[str, Seen] = defaultdict(Seen)
        for payload in check_events(events):
            many += 1
            if (problem := read.examine(payload)[0]) is not None:
                problems[problem] += 1
            additions = read.number("", payload, 0)
            if not additions:
                continue
            if users is not None and bound is not None:
                person = users.person(payload)
                if not person or not bound.take(people[person], [""], 0):
                    problems["no person" if not person else "beyond a person's bound"] += 1
                    continue
                if people[person].events == 1:
                    additions = (*additions, *joint.first)
            counted += 1
            for place, amount in additions:
                sums[place] += amount
        variance = counter.max_variance() if tick is None else counter.variance(tick)
        reading = Reading(counter, joint, self.confidence, self._clock)
        noise = np.array([math.sqrt(variance)])
        exact = np.array([sums], dtype=np.float64)
        (release,) = reading.releases("", tick or 1, exact, noise, 0)
        return expected_of(release, (many, counted), problems, tick, self.confidence)

    @property
    def _numbers_of(self) -> AggregateIntake:
        return AggregateIntake(self.joint, self.on_reject == "raise", self.value)

    def _intake(self, clock: Grid, until: int | None = None) -> TickIntake:
        numbers: Any = self._numbers_of
        strict = self.on_unknown == "raise"
        return TickIntake(clock, self._listed or None, numbers, strict, self.other, until)

    def parcels(self, events: PCollection[object]) -> VectorParcels:
        return VectorParcels(self._whole_intake(events), self.joint.first, self._restarts)

    def _vectors(self, counter: Any) -> dict[str, Any]:
        most = counter.change.most
        caps = tuple(most * limit for limit in self.joint.limits)
        return {"joint": self.joint, "caps": caps, "level": self.confidence}

    def _plan(self, counter: Any, *args: Any, **how: Any) -> AggregatePlan:
        given: dict[str, Any] = {**how, **self._vectors(counter)}
        return AggregatePlan(counter, *args, **given)

    def _shard_plan(self, selection: Any, *args: Any, **how: Any) -> AggregateShardPlan:
        given: dict[str, Any] = {**how, **self._vectors(selection.counter)}
        return AggregateShardPlan(selection, *args, **given)

    def _read_ticks(self, intake: TickIntake) -> ReadVectors:
        return ReadVectors(intake, self.joint.width)

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

    def _describe(self) -> dict[str, str]:
        said = super()._describe()
        said["metrics"] = ", ".join(map(repr, self.joint.metrics))
        columns = self.expected((), None).columns
        known = [f"{each.name} {each.stddev:g}" for each in columns if each.stddev is not None]
        stddevs = ", ".join(known) or "known of counts and sums alone"
        said["largest_stddev_of_columns"] = (
            f"{stddevs} (those of the counter are on the lattice that all metrics share)"
        )
        return said

"""What a TickVectors counts: several numbers a key and tick, before anything runs."""

from __future__ import annotations

import math
from collections import Counter as Tally
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass, fields, replace
from typing import Any

import numpy as np

from beam_dpcount.budget.budgets import PureDP
from beam_dpcount.checks import ParameterError
from beam_dpcount.counters.counter import Counter
from beam_dpcount.counters.grid import Grid
from beam_dpcount.counters.joint import JointChange, JointUserChange
from beam_dpcount.counters.people import Seen, Users
from beam_dpcount.counters.selection import JointSelection, Selection, SelectKeys, selection_of
from beam_dpcount.noise.laws import ScaleError
from beam_dpcount.plans.expected import Expected, check_events, expected_of
from beam_dpcount.plans.ticks import TickNumbersPlan
from beam_dpcount.states.all_shards import AggregateShardPlan
from beam_dpcount.states.all_vectors import AggregatePlan, Reading
from beam_dpcount.statistics.items import MOST_STATE
from beam_dpcount.statistics.metrics import Metric
from beam_dpcount.statistics.metrics.contents import Contents
from beam_dpcount.statistics.metrics.joint import Joint


@dataclass(eq=False, repr=False)
class TickVectorsPlan(TickNumbersPlan):
    """The arguments of `TickVectors`, and what follows from them alone."""

    _: KW_ONLY
    metrics: tuple[Metric, ...]
    confidence: float = 0.95

    _counts_numbers = False
    _unit = 1.0

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
        counter, joint, read, users = self.counter, self.joint, self.contents, self.users
        sums, many, counted = [0] * joint.width, 0, 0
        problems: Tally[str] = Tally()
        # All events are of one key; when they were, nobody knows.
        bound = None if users is None else replace(users.bound(), gap=0)
        people: dict[str, Seen] = defaultdict(Seen)
        for payload in check_events(events):
            many += 1
            if (problem := read.examine(payload)[0]) is not None:
                problems[problem] += 1
            additions = read.added(payload)
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
        (release,) = reading.rows("", tick or 1, exact, noise, 0)
        return expected_of(release, (many, counted), problems, tick, self.confidence)

    @property
    def contents(self) -> Contents:
        """What reads the values of events."""
        return Contents(self.joint, self.value)

    def _vectors(self, counter: Any) -> dict[str, Any]:
        most = counter.change.most
        caps = tuple(most * limit for limit in self.joint.limits)
        return {"joint": self.joint, "caps": caps, "level": self.confidence}

    def _plan_of(self, counter: Any, *args: Any, **how: Any) -> AggregatePlan:
        given: dict[str, Any] = {**how, **self._vectors(counter)}
        return AggregatePlan(counter, *args, **given)

    def _shard_plan_of(self, selection: Any, clock: Grid, **how: Any) -> AggregateShardPlan:
        given: dict[str, Any] = {"shards": self._shards, **how}
        return AggregateShardPlan(selection, clock, **given, **self._vectors(selection.counter))

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

"""TickAggregate: several metrics by key under one budget, at the ticks of a public clock."""

from __future__ import annotations

import math
from collections import Counter as Tally
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, fields, replace
from typing import Any

import numpy as np
from apache_beam.pvalue import PCollection
from apache_beam.transforms.window import GlobalWindows

from beam_dpcount.budget.budgets import Budget, PureDP
from beam_dpcount.budget.shares import Share
from beam_dpcount.checks import ParameterError, check_whole
from beam_dpcount.counters.counter import Counter
from beam_dpcount.counters.grid import Grid
from beam_dpcount.counters.joint import JointChange, JointUserChange
from beam_dpcount.counters.people import Seen, Users
from beam_dpcount.counters.selection import JointSelection, Selection, SelectKeys, selection_of
from beam_dpcount.counters.total import Total
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
from beam_dpcount.mechanisms import Mechanism, sliding_blt
from beam_dpcount.noise.entropy import Entropy
from beam_dpcount.noise.laws import ScaleError
from beam_dpcount.plans.inside import Inside
from beam_dpcount.statistics.items import MOST_STATE
from beam_dpcount.statistics.metrics import Metric
from beam_dpcount.statistics.metrics.joint import Joint, check_metrics
from beam_dpcount.transforms.expected import Expected, check_events, expected_of
from beam_dpcount.transforms.of_ticks import OfTicks, RestartingTicks
from beam_dpcount.transforms.sliding import check_end, horizon_of


@dataclass(eq=False, repr=False)
class TickAggregate(OfTicks):
    """Counts, sums, means, quantiles, rates, people etc. by key, at every tick of a public clock.

    PCollection[KV[str, Mapping]] with event times -> PCollection[TickRelease]: release i of a
    key says what there was of its events with start <= time < start + i * tick. So a row is of
    all events since `start`, not of its tick alone; with `window`, of all since the window began;
    with `last`, of those of the last ticks.
    All metrics of a key share one clock, one bound on people and one budget.

    Args:
      budget, tick, start, stop, horizon: as for TickNumbers.
      keys: as for TickNumbers: the public keys, `TOTAL`, or `SelectKeys()`, which needs `Count()`.
      metrics: in the order of the columns. `weight` of each says how the budget is split.
      users: as for TickNumbers: protect all events of one person. `by` is given an event's value.
      window: in ticks; all metrics start anew after so many: with tick=3600 and window=24, those of
        the day so far, hour by hour. At most as many as the clock has.
      last: in ticks, from 1 to 2^20: all metrics are of the events of the last so many ticks, at
        every tick, as SlidingCount's. Their variance does not grow with the clock, and without stop
        and horizon it goes on as SlidingCount does. Their noise is Gaussian: pure budgets are
        refused, and so are SelectKeys and People. With `users`, of the events of a person that are
        let through over the whole clock, those in the last ticks count. For each tick alone
        `window=1` has no more noise, and takes all budgets, keys and metrics.
      confidence: the level of the intervals, of each by itself.
      value: makes a mapping from fields to values of an event's value; default: it is one. Other
        events do not count at all, but where no metric reads a field (Count, People, a Rate of a
        function): there an event may be anything, and one for which `value` returns None does not
        count. Fields that are missing, or hold no number, add nothing to their own metric only.
      max_per_tick: the sums of a key in one tick are clipped to this many times what one event may
        add to them. Default as for TickNumbers.
      on_reject: "drop" (default), or "raise" for events whose value is not a mapping although a
        metric reads a field; as for TickNumbers.
      mechanism, relation, until, late, on_unknown, path, entropy, allow_runner: as for TickNumbers.
      other: one of `keys`, under which all events with unlisted keys are counted, before people are
        bounded.

    Guarantee: as for TickNumbers, of the values of all releases of all metrics of all keys: they
      together satisfy `budget` for inputs that differ in any one event, or with `users` in all
      events of any one person. Each key has one vector of sums, each with noise of its own of one
      law, scaled to what one event changes in all of them together:
      `counter.l2_sensitivity` and `.l1_sensitivity` (docs/proofs/aggregates.md). All else, values
      and intervals, is computed from these noisy sums and public parameters. Public: what
      TickCount says, the metrics, their fields, bounds, units and weights.

    Attributes:
      columns: the names of what is released, in their order.
      metrics: as given, with what was chosen by error (branching).
      counter: the calibrated counter of a key's vector; its lattice is that of the noise.
      selection: as for TickNumbers.

    Raises:
      ValueError, TypeError: as for TickNumbers, and for metrics that do not go together.

    Example:
      >>> import apache_beam as beam
      >>> import beam_dpcount as dp
      >>> from beam_dpcount.transforms.aggregates import TickAggregate
      >>> with beam.Pipeline("FnApiRunner") as pipeline:
      ...     events = pipeline | beam.Create([("home", {"latency": 0.3}), ("home", {})])
      ...     timed = events | beam.Map(lambda e: beam.window.TimestampedValue(e, 30))
      ...     latencies = TickAggregate(
      ...         dp.ZCDP(0.5), 60, 0, horizon=1, keys=["home"],
      ...         metrics=[dp.Count(), dp.Mean("latency", 0, 5)],
      ...     )
      ...     _ = timed | latencies | beam.Map(lambda row: print(row.key, row.step, *row.names))
      home 1 count mean_latency
    """

    budget: Budget | Share
    tick: Any
    start: Any
    stop: Any = None
    _: KW_ONLY
    keys: Sequence[str] | SelectKeys | Total
    metrics: Sequence[Metric]
    users: Users | None = None
    window: int | None = None
    last: int | None = None
    confidence: float = 0.95
    value: Callable[[Any], Any] | None = None
    horizon: int | None = None
    mechanism: Mechanism | type[Mechanism] | str | None = None
    relation: str = "add_remove"
    max_per_tick: int | None = None
    until: Any = None
    late: str = "fold"
    on_unknown: str = "drop"
    on_reject: str = "drop"
    other: str | None = None
    path: str = "auto"
    entropy: Entropy | None = None
    allow_runner: bool = False

    def __post_init__(self) -> None:
        super().__init__()
        if self.window is not None:
            check_whole("window", self.window)
        if self.last is not None:
            self._check_last()
        if isinstance(self.confidence, bool) or not isinstance(self.confidence, int | float):
            raise TypeError(f"confidence must be a number, got {self.confidence!r}: give e.g. 0.95")
        if not 0 < self.confidence < 1:
            problem = f"must be between 0 and 1, got {self.confidence!r}"
            raise ParameterError("confidence", problem, "give e.g. {confidence=}0.95")
        options = {one.name: getattr(self, one.name) for one in fields(self)}
        del options["window"], options["last"]
        options["metrics"] = check_metrics(self.metrics)
        if self.last is not None:
            options["horizon"] = horizon_of(self)
        inside = Inside(restart=self.window, last=self.last)
        self._ticks: Aggregating = Aggregating(**options, inside=inside)
        self.keys, self.metrics = self._ticks.keys, self._ticks.joint.metrics
        self._fix()

    def _check_last(self) -> None:
        """Refuse what does not go with sums over the last ticks."""
        self.last = sliding_blt.check_window(self.last, "ticks", "last")
        if self.window is not None:
            problem = f"is {self.last}, beside window={self.window}, which starts anew"
            raise ParameterError("last", problem, "give one of {last} and {window}")
        if self.mechanism is not None:
            problem = f"has a mechanism of its own, got mechanism={self.mechanism!r}"
            raise ParameterError("last", problem, "leave {mechanism} out")

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of what is released, in their order."""
        return self._ticks.joint.columns

    def expected(self, events: Iterable[object], tick: int | None = None) -> Expected:
        """What would be known of a key that had these events, and how well: `print` it.

        Nothing is counted or spent, and no noise is drawn: what it returns is computed from the
        events, so give it made-up ones, or public ones.

        Args:
          events: values of events, as `value` gets them, all of one key. Of each person as many
            count as `users` lets count in a key; its gap is left out of account.
          tick: the number of the tick, from 1; default: the one with the most noise.

        Raises:
          ValueError: there is no such tick.
          TypeError: events are no list of values, but one, or a data frame.

        Example:
          >>> import beam_dpcount as dp
          >>> from beam_dpcount.transforms.aggregates import TickAggregate
          >>> latencies = TickAggregate(
          ...     dp.ApproxDP(1.0, 1e-6), 3600, 0, horizon=24, keys=["home"],
          ...     metrics=[dp.Count(), dp.Mean("latency", 0, 5)],
          ... )
          >>> found = latencies.expected([{"latency": 0.1 * (i % 9)} for i in range(1000)])
          >>> print([column.name for column in found.columns], round(found["count"].stddev))
          ['count', 'mean_latency'] 11
        """
        return self._ticks.expected(events, tick)

    def expand(self, events: PCollection[Any]) -> PCollection[TickRelease]:
        if self.last is not None:
            check_end(self, events)
        return self._apply(events)


@dataclass(eq=False, repr=False)
class Aggregating(RestartingTicks):
    """A TickCount of vectors."""

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
        if joint.first and (self.users is None or self.users.asserted):
            raise ValueError(
                "People counts each person once a key, whose first event is found while "
                "people's events are bounded: give users=Users(by, events), without asserted"
            )
        if joint.first and self.inside.last is not None:
            raise ValueError(
                "People counts a person in the tick of the first event, which says nothing of who "
                "was there in the last ticks: give window in place of last, for people since each "
                "window began"
            )
        if self._select is not None and joint.tested is None:
            raise ValueError(
                "keys are shown by their number of events: add dp.Count() to metrics, or list "
                "the keys"
            )
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

    def _windowed(self, events: PCollection[object]) -> Grid:
        is_global = isinstance(events.windowing.windowfn, GlobalWindows)
        if not is_global and (self.inside.restart is not None or self.joint.first):
            problem = f"{events.windowing.windowfn!r} would count anew in each window"
            raise ValueError(f"{problem}: use the global window, and give window, in ticks")
        return super()._windowed(events)

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

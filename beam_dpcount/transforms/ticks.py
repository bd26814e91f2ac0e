"""TickNumbers: the engine of TickCount for one number a key and tick."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from copy import copy
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, ClassVar, Self

import apache_beam as beam
from apache_beam.pvalue import PCollection
from apache_beam.transforms import window as windows

from beam_dpcount.budget.budgets import warn_if_weak
from beam_dpcount.budget.shares import Share
from beam_dpcount.checks import ParameterError, check_whole
from beam_dpcount.counters.change import TickChange, check_bounds, check_unit
from beam_dpcount.counters.choose import resolve_last
from beam_dpcount.counters.clip import ample, least_most
from beam_dpcount.counters.clock import (
    LATE,
    OUTSIDE,
    UNLISTED,
    Clock,
    Each,
    Last,
    Restart,
    check_keys,
    clock_of,
    countable,
    until_of,
)
from beam_dpcount.counters.counter import Counter
from beam_dpcount.counters.grid import Grid
from beam_dpcount.counters.moments import instant
from beam_dpcount.counters.people import Bound, Users
from beam_dpcount.counters.period_costs import PeriodCosts
from beam_dpcount.counters.periods import Periods, periods_of
from beam_dpcount.counters.selection import Selection, SelectKeys, selection_of
from beam_dpcount.counters.total import ALL, Total
from beam_dpcount.counters.users import UserChange
from beam_dpcount.dofns.intake import Intake, has_str_key
from beam_dpcount.dofns.parcels import ReadyTicks, TextParcels, TickParcels
from beam_dpcount.dofns.releases import Release
from beam_dpcount.dofns.rows import TO_VALUES, RowElementError, is_row_type
from beam_dpcount.dofns.shards import CountAllShards, CountShards, ShardPlan, SumShards
from beam_dpcount.dofns.ticks import (
    SEED,
    CountAllTicks,
    CountEachTick,
    ReadTicks,
    SeedKeys,
    SumTicks,
    TickIntake,
    TickPlan,
    ToTotal,
    check_timed,
    groups_of,
)
from beam_dpcount.dofns.users import BoundShards
from beam_dpcount.dofns.windows import windows_of, windows_of_ticks
from beam_dpcount.mechanisms import Mechanism, SlidingBLT, Sparse, Unbounded
from beam_dpcount.mechanisms.single_steps import SingleSteps
from beam_dpcount.statistics.numbers import Numbers
from beam_dpcount.transforms.bounding import bounded_events, describe_people
from beam_dpcount.transforms.checking import RowCheck, examine_person
from beam_dpcount.transforms.counting import Counting
from beam_dpcount.transforms.inputs import (
    check_choice,
    in_windows,
    once_per_window,
    use_streaming,
)
from beam_dpcount.transforms.inside import Inside
from beam_dpcount.transforms.losses import epsilon_of, together_of
from beam_dpcount.transforms.runners import jumps_to_the_end, spreads_groups

View = Clock | Each | Last | Restart
_LOGGER = logging.getLogger(__name__)
_LATE_REPLAYS = (
    "with replayable noise, a replay whose watermark moves otherwise shows whether any event was "
    "late in one run only: have no late events, or use SystemEntropy (docs/reliability.md)"
)
_POLICIES = ("drop", "raise")
_MANY_TICKS = 1 << 16  # as for `least_most`
_AHEAD = 64  # timers of a key, where all of them fire at the end of the input
COUNTS_ANEW = (
    "{windows!r} would count anew in each window: use the global window, and a clock that starts "
    "anew, clock.restart(n)"
)
GAPS = "{windows} leaves gaps between windows, or may: use the global window or FixedWindows"
NEEDS_EVENTS = (
    "is needed: only people at clock.last(n) and clock.each() go without",
    "give e.g. {events=}5",
)
FOLDS_LATE = (
    'late="fold" counts a late event at another tick, and so closer to others of its person than '
    'gap says: give late="drop", or leave gap out'
)


@dataclass(eq=False, repr=False)
class TickNumbers(Counting):
    """A private sum of one number per key, released at every tick of a public clock.

    PCollection[KV[str, anything]] with event times -> PCollection[Release], as of TickCount, whose
    arguments mean the same here. It counts so far, or as `view` says.

    Args:
      tick, start, stop: as for `Clock`. Events outside [start, stop) do not count.
      horizon: the number of ticks. Default: as many as reach `stop`. Give one of the two, or both:
        a horizon of more ticks than reach `stop` has releases beyond it.
      view: of a clock, in place of tick, start, stop and horizon.
      mechanism: as for PrefixCount. An instance has the clock's number of ticks (in FixedWindows it
        is made anew with those of a window).
      bounds: (low, high); an event's number is clipped to them. Default (0, 1).
      unit: numbers are rounded to multiples of it before they are counted. Default 1.
      max_items: under how many keys one event may be counted, where a step before gives events
        several keys. Default 1. It is your word: nothing enforces it. With `users` each key of an
        event is an event of its person.
      max_per_tick: SquareRoot and Binned compute with real numbers. Their default is 2^20 (2^36 /
        horizon beyond 2^16 ticks): they take up to 5 % more noise for a large one, and are refused
        beyond that. Beside the noise, arithmetic moves running counts beyond some 10^11 by up to
        2^-37 of themselves (less than 2^-32 beyond 2^20 ticks), which no stddev covers: see
        docs/proofs/real_encoders.md.
      until: default: now, when the transform is made; a later time is refused. The noise does not
        depend on it: under one secret, a later run over the same events repeats bit for bit what an
        earlier one released, and goes on. All ticks of the clock are charged, whatever it is.
      value: makes the number of an event's value. Default: it is one.
      inside: what the transform around it tells it.

    Guarantee: as for TickCount, of the values of all releases of all keys (the unit: one event, or
      with `users` all events of one person). In FixedWindows the clock and the count start anew in
      each window, and the budget is per window for one event, and for all windows together for a
      person. Streaming: with timers the runner chooses which key fires first at a tick, and some
      (Prism) by what arrived: sort releases by key and step before their order is seen. Replayable
      noise covers replays in which the same events are late, best none.

    Attributes:
      counter: the calibrated counter of each key; the one in use, once the transform is applied.
      selection: when keys are shown; None where they were listed. `print` it before you run.

    Raises:
      ValueError, TypeError: as for PrefixCount, and when applied, for windows other than the global
        one and FixedWindows on the grid of ticks, and for a gap with late="fold" when streaming.
      UntimedElementError, RowElementError: when run, where elements have no timestamps or are rows.
    """

    tick: Any = None
    start: Any = None
    stop: Any = None
    _: KW_ONLY
    keys: Sequence[str] | SelectKeys | Total
    horizon: int | None = None
    bounds: tuple[float, float] = (0, 1)
    unit: float = 1
    relation: str = "add_remove"
    max_items: int = 1
    max_per_tick: int | None = None
    late: str | None = None
    on_unknown: str = "drop"
    other: str | None = None
    until: Any = None

    counter: Counter = field(init=False)
    selection: Selection | None = field(init=False)
    inside: Inside = Inside()
    view: View | None = None

    _needs_events: ClassVar[bool] = True
    _on_reject = _POLICIES
    _counts_numbers = True
    _at_clock = True

    def _set_up(self) -> None:
        self._late = self._late_events()
        check_choice("on_unknown", self.on_unknown, _POLICIES)
        if self.users is not None and self.users.events is None and self._needs_events:
            raise ParameterError("events", *NEEDS_EVENTS)
        self._whole, self._clock = self._grids()
        self._periods = self._periods_of(self.users)
        known = self.inside.present if self.until is None else None
        self._until = until_of(self.until) if known is None else known
        self._streams = self.path == "streaming"
        self._check_until(self._streams)
        self._select = self.keys if isinstance(self.keys, SelectKeys) else None
        self._is_total = isinstance(self.keys, Total)
        self._listed: tuple[str, ...] = ()
        if self._select is not None:
            self._check_unlisted()
            self._whole_budget = self._budget
            self._budget, self._keys_delta = self._select.part_of(self._budget)
            if not isinstance(self.budget, Share):
                warn_if_weak(self._whole_budget, self._keys_delta)
        else:
            self.keys = self._listed = check_keys(self.keys)
            if self._is_total and self.other is None:
                self.other = ALL  # of pairs that reach it with other keys
        if self.other is not None and self.other not in self._listed:
            problem = f"must be one of keys, got {self.other!r}"
            raise ParameterError("other", problem, "add it to keys, or leave {other} out")
        change = self._one_event()
        most = self.max_per_tick
        if most is None:
            magnitude = change.largest(self._unit) // change.most
            many = _MANY_TICKS if self._last is None else SlidingBLT.longest
            most = least_most(magnitude, self._clock.steps, many)
        most = check_whole("max_per_tick", most)
        self._change = replace(change, most=most)
        self._check_mechanism()
        self._counters = self._at(self._clock, False, True)
        self.counter = self._counters[self.path == "streaming"]
        self.selection = self._selecting(self.counter)
        self._used = self._clock

    def _grids(self) -> tuple[Grid, Grid]:
        """The clock, and the same in the windows in which it starts anew."""
        if self.view is not None:
            return self.view.clock.grid, self.view.grid
        whole = clock_of(self.tick, self.start, self.stop, self.horizon)
        return whole, whole

    @property
    def _restart(self) -> int | None:
        """After how many ticks the count starts anew; None: never."""
        return self.view.ticks if isinstance(self.view, Restart) else None

    @property
    def _last(self) -> int | None:
        """Of how many ticks releases are; None: of all so far."""
        return (
            self.view.ticks if isinstance(self.view, Last) else isinstance(self.view, Each) or None
        )

    def _late_events(self) -> str:
        """What becomes of late events: as given, or dropped where the count needs it."""
        if self.late is not None:
            return check_choice("late", self.late, LATE)
        apart = self.users is not None and self.users.gap is not None
        return "drop" if apart else "fold"

    def _sentence_clock(self) -> Clock:
        """The clock as a sentence has it."""
        if self.view is not None:
            return self.view.clock
        return Clock(self.tick, self.start, self.horizon, self.stop)

    def _periods_of(self, users: Users | None) -> Periods | None:
        """The periods in each of which a bound holds; None: it holds over the whole stream."""
        if users is None or users.per is None:
            return None
        return periods_of(self._sentence_clock(), users.per)

    @property
    def _restarts(self) -> Grid | None:
        """The clock in the windows in which it starts anew, if it does."""
        return None if self._restart is None else self._clock

    @property
    def _dimension(self) -> int | None:
        """How many numbers a vector has; None: single numbers are counted."""
        return None

    def default_label(self) -> str:
        """As of the TickCount that it counts for: noise and the names of steps go by it."""
        return "TickCount"

    @property
    def clock(self) -> Grid:
        """The public grid of ticks."""
        return self._whole

    @property
    def countable(self) -> str:
        """How much of a key counts, in a tick and a second, in words."""
        change: Any = self.counter.change
        return countable(change.most, self._clock.tick)

    def _check_until(self, streaming: bool) -> None:
        if streaming and self.until is not None:
            problem = "is for bounded input: in a stream the watermark says which ticks have ended"
            raise ParameterError("until", problem, "leave {until} out")

    def _until_on(self, streaming: bool, clock: Grid) -> int | None:
        """By when ticks must have ended to be released; None: the watermark decides."""
        # The end of a tick: what workers get does not tell when the transform was made.
        return None if streaming else clock.last_end(self._until)

    @property
    def ticks_released(self) -> int:
        """How many of the clock's ticks are released, on bounded input."""
        return self._used.all_ended(self._until_on(self._streams, self._used))

    @property
    def ticks_left(self) -> int:
        """How many ticks are not released because they have not ended."""
        return self._used.ticks - self.ticks_released

    @property
    def ticks_open(self) -> int:
        """How many ticks had not ended when the transform was made, or by `until`."""
        return self._used.ticks - self._used.all_ended(self._until)

    @property
    def cutoff(self) -> str:
        """`until`; by default, the end of the last tick that has ended."""
        if self.until is not None:
            return instant(self._until)
        return instant(self._used.last_end(self._until))

    def _one_event(self) -> TickChange:
        """What one event changes, from what is counted of it."""
        low, high = check_bounds(self.bounds)
        change = TickChange(low, high, relation=self.relation, max_items=self.max_items)
        self._unit = check_unit(self.unit, change)
        self._numbers = Numbers(low, high, self._unit)
        return change

    def _check_unlisted(self) -> None:
        """Refuse what means something for keys that are listed only."""
        for name, plain in (("on_unknown", "drop"), ("other", None)):
            if getattr(self, name) != plain:
                raise ValueError(f"{name} is for keys that are listed: leave it out of SelectKeys")

    def _check_mechanism(self) -> None:
        mechanism = self.mechanism
        if isinstance(mechanism, Mechanism) and mechanism.horizon != self._clock.steps:
            raise ValueError(
                f"the mechanism was made for {mechanism.horizon} steps, but the clock has "
                f"{self._clock.steps} ticks: give the class or its name, or make it with "
                f"horizon={self._clock.steps}"
            )
        if isinstance(mechanism, Unbounded | Sparse):
            raise ValueError(
                f"{mechanism.name} counts elements without a horizon, and a clock has one: give "
                "one of mechanisms.ALL, or leave mechanism out"
            )

    def _at(self, clock: Grid, *ways: bool) -> dict[bool, Counter]:
        mechanism: Any = self.mechanism
        if isinstance(mechanism, Mechanism):
            mechanism = replace(mechanism, horizon=clock.steps)
        change = self._change if self.users is None else self._of_person(self.users, clock)
        how: dict[str, Any] = {"change": change, "dimension": self._dimension, "unit": self._unit}
        counters = self._calibrated(ways, mechanism, clock.steps, **how)
        return ample(counters) if self.max_per_tick is None else counters

    def _chosen(self, mechanism: Any, horizon: int | None, **how: Any) -> Any:
        if isinstance(self.view, Each):
            return SingleSteps(horizon or 1)
        if isinstance(self.view, Last):
            return resolve_last(horizon or 1, self.view.ticks, self._budget, **how)
        return super()._chosen(mechanism, horizon, **how)

    def _selecting(self, counter: Counter) -> Selection | None:
        """When keys that nobody listed are shown."""
        if self._select is None:
            return None
        return selection_of(self._select, self._whole_budget, counter, self._keys_delta)

    def _of_person(self, users: Users, clock: Grid) -> UserChange:
        """What all events of one person change that count."""
        one, bound, windows = self._change, users.bound(), len(clock.origins())
        keys, restarts, periods = bound.keys, 1, self._periods_of(users)
        if periods is not None and windows > 1:
            windows, _ = periods.restarts(clock)
        if self._restart is not None:  # each window of a key is another key to the bound
            known, windows, restarts = windows * len(self._listed), 1, windows
        else:
            known = len(self._listed)
        if self._listed:
            keys = min(keys, known)
        return UserChange(
            *(one.low, one.high, one.relation),
            most=one.most,
            events=bound.events,
            keys=keys,
            per_key=bound.per_key,
            gap=bound.gap // clock.tick,
            windows=windows,
            asserted=users.asserted,
            restarts=restarts,
            periods=periods,
        )

    @property
    def period_costs(self) -> PeriodCosts | None:
        """What several periods of one person cost; None: it is not periods that are protected."""
        return self._losses(self.counter)

    def _losses(self, counter: Counter) -> PeriodCosts | None:
        change = counter.change
        if not isinstance(change, UserChange) or change.periods is None:
            return None
        counts = None if self._used.window is None else self._used
        later = self._select is not None and self._select.at_least > 1
        moves = later or (self._streams and self._late == "fold")
        return PeriodCosts(counter, change, change.periods, counts, moves, self.selection)

    def epsilon_at(self, delta: float | None = None, *, periods: int | None = None) -> float:
        """As for TickCount."""
        return epsilon_of([self], delta, periods)

    def within(self, inside: Inside) -> Self:
        """A copy that knows this of the transform around it."""
        other = copy(self)
        object.__setattr__(other, "inside", inside)  # to others it is fixed
        return other

    @property
    def bounds_people(self) -> bool:
        return super().bounds_people and self.inside.bounds

    @property
    def _takes_rows(self) -> bool:
        """Whether a row is a value that may count."""
        return self.value is not None

    @property
    def _to_total(self) -> ToTotal:
        return ToTotal(self._takes_rows)

    def _check_elements(self, events: PCollection[object]) -> None:
        if self._is_total:
            if is_row_type(events.element_type) and not self._takes_rows:
                raise RowElementError(TO_VALUES)
            return
        super()._check_elements(events)

    def _fingerprint(self, bound: Bound | None) -> Any:
        """What else decides which events count, for replayable noise.

        Args:
          bound: what is bounded here; None: nothing.
        """
        inside = self.inside
        known = self._decides()
        if inside.bound_before is not None:
            known = known, inside.bound_before
        if self._listed and (self.other is not None or self.users is not None):
            # Which other keys are listed decides what counts under a key.
            known = known, self.other, self._listed
        if self._periods is not None:
            known = known, repr(self._periods.grid)
        return known if bound is None else (known, repr(bound), self._restart)

    def _decides(self) -> Any:
        """What decides which of an event's contents count."""
        return self.inside.fingerprint

    def expand(self, events: PCollection[Any]) -> PCollection[Release]:
        streaming = self._path_of(events)
        self._check_until(streaming)
        if self._is_total:
            total: Any = beam.ParDo(self._to_total)
            events = events | "Total" >> total.with_output_types(tuple[str, Any])
        clock = self._used = self._windowed(events)
        self._streams, until = streaming, self._until_on(streaming, clock)
        if streaming and self._late == "fold" and self.users is not None and self.users.micros:
            raise ValueError(FOLDS_LATE)
        known = clock == self._clock
        counter = (self._counters if known else self._at(clock, streaming))[streaming]
        selection = self._selecting(counter)
        object.__setattr__(self, "selection", selection)  # to others it is fixed
        entropy = self._use(counter, events, streaming)
        if streaming and entropy.is_replayable:
            _LOGGER.warning("%s: %s", self.label, _LATE_REPLAYS)
        intake: Any = self._intake(clock, until)
        bound = None
        if self.users is not None and self.bounds_people:
            bound = self.users.bound()
            events = bounded_events(
                *(events, self.users, bound, self.parcels(events), streaming, entropy),
                output=tuple[str, bytes],
                windowing=self._restarting(),
                by_shard=self._bound_shards,
                periods=self._periods,
            )
            intake = self._ready(clock)
        elif self._restart is not None:
            events = events | "Restart" >> beam.WindowInto(self._restarting())
        how: dict[str, Any] = {
            "cap": counter.change.largest(self._unit),
            "fold": self._late == "fold",
            "entropy": entropy,
            "counted": self._fingerprint(bound),
            "alone": spreads_groups(events.pipeline),
            "until": until,
            "names": self.inside.names,
            "numbered": self.inside.numbered,
        }
        if selection is not None and self._select is not None:
            shards = self._shard_plan(selection, clock, shards=self._select.shards, **how)
            select = self._select_each if streaming else self._select_all
            releases = select(events, intake, shards)
        else:
            # There each round of timers is a bundle, which costs some milliseconds.
            ahead = _AHEAD if streaming and jumps_to_the_end(events) else 1
            plan = self._plan(counter, clock, self._listed, ahead=ahead, **how)
            released = self._each_tick if streaming else self._all_ticks
            releases = released(events, intake, plan)
        if self._restart is None:
            return releases
        return releases | "Rejoin" >> beam.WindowInto(windows.GlobalWindows())

    def _intake(self, clock: Grid, until: int | None = None) -> TickIntake:
        numbers = Intake(self.counter, self._numbers, self.on_reject, self.value)
        strict = self.on_unknown == "raise"
        return TickIntake(clock, self._listed or None, numbers, strict, self.other, until)

    def _whole_intake(self, events: PCollection[object]) -> TickIntake:
        """Reads events before people are bounded."""
        clock = self._windowed(events) if self._restart is None else self._whole
        return self._intake(clock, self._until_on(use_streaming(events, self.path), clock))

    def parcels(self, events: PCollection[object]) -> TickParcels:
        """How events travel to their person."""
        kind = TickParcels if self._listed else TextParcels
        return kind(self._whole_intake(events), self._listed, self._restarts)

    # What is made of numbers; vectors take others.

    _bound_shards: ClassVar[Any] = BoundShards
    _ready: ClassVar[Any] = ReadyTicks
    _plan: ClassVar[Any] = TickPlan
    _shard_plan: ClassVar[Any] = ShardPlan
    _read_ticks: ClassVar[Any] = ReadTicks
    _count_each: ClassVar[Any] = CountEachTick
    _sum_ticks: ClassVar[Any] = SumTicks
    _count_all: ClassVar[Any] = CountAllTicks
    _sum_shards: ClassVar[Any] = SumShards
    _count_shards: ClassVar[Any] = CountShards
    _count_all_shards: ClassVar[Any] = CountAllShards
    _released: ClassVar[Any] = Release

    @property
    def _counts_anew(self) -> bool:
        """Whether windows of the input would start anew what starts anew already, or never does."""
        return self._restart is not None or self._last is not None

    def _restarting(self) -> Any:
        """The windows in each of which the count starts anew; None: those of the input."""
        return None if self._restart is None else windows_of(self._clock)

    def _each_tick(
        self, events: PCollection[Any], intake: TickIntake, plan: TickPlan
    ) -> PCollection[Release]:
        # In the global window, where one cell goes from window to window.
        windowing = events.windowing if plan.clock.window is None else windows.GlobalWindows()
        seed: Any = beam.ParDo(SeedKeys(plan.clock.origins()[:1]))
        seeds = (
            events.pipeline
            | "Keys" >> beam.Create(list(plan.keys), reshuffle=False)
            | "SeedKeys" >> seed.with_output_types(tuple[str, bytes])
            | "Window" >> beam.WindowInto(windowing)
        )
        read: Any = beam.ParDo(self._read_ticks(intake)).with_output_types(tuple[str, bytes])
        sums = events | "ReadTicks" >> read
        if plan.clock.window is not None:
            sums = sums | "Global" >> beam.WindowInto(windowing)
        both = (seeds, sums) | "Flatten" >> beam.Flatten()
        count: Any = beam.ParDo(self._count_each(plan)).with_output_types(self._released)
        releases = both | "CountEachTick" >> count
        if plan.clock.window is None:
            return releases
        return releases | "ByWindow" >> beam.WindowInto(events.windowing)

    def _all_ticks(
        self, events: PCollection[Any], intake: TickIntake, plan: TickPlan
    ) -> PCollection[Release]:
        groups = groups_of(len(plan.keys), plan.alone)
        made: Any = beam.Create([(group, SEED) for group in groups], reshuffle=False)
        seeds = events.pipeline | "Groups" >> made.with_output_types(tuple[int, bytes])
        read: Any = beam.ParDo(self._sum_ticks(intake, plan.keys, plan.alone))
        sums = (
            events
            | "SumTicks" >> read.with_output_types(tuple[int, bytes])
            | "Global" >> beam.WindowInto(windows.GlobalWindows())
        )
        both = (seeds, sums) | "Flatten" >> beam.Flatten()
        count: Any = beam.ParDo(self._count_all(plan))
        releases = (
            once_per_window(both, windows.GlobalWindows())
            | "GroupByKey" >> beam.GroupByKey()
            | "CountAllTicks" >> count.with_output_types(self._released)
        )
        return self._in_windows_of(events, releases, intake.clock)

    def _select_each(
        self, events: PCollection[Any], intake: TickIntake, plan: ShardPlan
    ) -> PCollection[Release]:
        seeds: Any = beam.ParDo(SeedKeys(intake.clock.origins()))
        seeds = seeds.with_output_types(tuple[int, bytes])
        seeded = (
            events.pipeline
            | "Shards" >> beam.Create(range(plan.shards), reshuffle=False)
            | "SeedShards" >> seeds
            | "Window" >> beam.WindowInto(events.windowing)
        )
        read: Any = beam.ParDo(self._sum_shards(intake, plan.shards, ticks_apart=True))
        sums = events | "SumShards" >> read.with_output_types(tuple[int, bytes])
        both = (seeded, sums) | "Flatten" >> beam.Flatten()
        count: Any = beam.ParDo(self._count_shards(plan))
        return both | "CountShards" >> count.with_output_types(self._released)

    def _select_all(
        self, events: PCollection[Any], intake: TickIntake, plan: ShardPlan
    ) -> PCollection[Release]:
        groups = plan.shards if plan.alone else 1
        read: Any = beam.ParDo(self._sum_shards(intake, groups, ticks_apart=False))
        # This group exists even without events: it reports how far the clock is.
        group: Any = beam.Create([(0, SEED)], reshuffle=False)
        seed = events.pipeline | "Groups" >> group.with_output_types(tuple[int, bytes])
        sums = (
            events
            | "SumShards" >> read.with_output_types(tuple[int, bytes])
            | "Global" >> beam.WindowInto(windows.GlobalWindows())
        )
        both = (seed, sums) | "Flatten" >> beam.Flatten()
        count: Any = beam.ParDo(self._count_all_shards(plan))
        releases = (
            once_per_window(both, windows.GlobalWindows())
            | "GroupByKey" >> beam.GroupByKey()
            | "CountAllShards" >> count.with_output_types(self._released)
        )
        return self._in_windows_of(events, releases, intake.clock)

    def _in_windows_of(
        self, events: PCollection[Any], releases: PCollection[Release], clock: Grid
    ) -> PCollection[Release]:
        """Releases that were made in the global window, in the windows of the events."""
        function = events.windowing.windowfn
        if clock.window is None:
            in_windows(releases, function)
            return releases
        return releases | "Window" >> beam.WindowInto(function)

    def tick_windows(self) -> windows.WindowFn:
        """Windows in each of which lie the releases of one tick, which ends where a tick does.

        Raises:
          ValueError: the clock is finer than Beam's windows.
        """
        return windows_of_ticks(self._whole)

    def problem(self, event: object, micros: int | None = None) -> str | None:
        """Why an event does not count as it is; see `beam_dpcount.check`."""
        return self.check_row(event, micros).problem

    def check_row(self, event: Any, micros: int | None = None) -> RowCheck:
        """What becomes of an event; see `beam_dpcount.check`."""
        if self._is_total:
            event = self._to_total.pair(event)
        problem, amount = self._examine(event)
        if not has_str_key(event):
            return RowCheck(problem, keys=())
        key, late = str.__str__(event[0]), self.problem_of_time(micros)
        name = self.other if self._listed and key not in self._listed else key
        problem, person = examine_person(self.users, event[1], problem)
        unlisted = UNLISTED if name is None else None
        return RowCheck(
            problem or unlisted or late,
            keys=(key,),
            names=() if name is None or late or not amount else (name,),
            person=person,
            counted=amount,
        )

    def _examine(self, event: object) -> tuple[str | None, Any]:
        """Why an event does not count as it is, and what it counts."""
        intake = Intake(self.counter, self._numbers, "raise", self.value)
        problem, (amount,), _ = intake.examine(event)
        return problem, amount

    def problem_of_time(self, micros: int | None) -> str | None:
        """Why an event at this time does not count; None too where no time is known."""
        if micros is not None:
            check_timed(micros)
        if micros is None:
            return None
        if not self._clock.start <= micros < self._clock.stop:
            return OUTSIDE
        # By default it is now, and the input may turn out to be unbounded.
        if self.until is not None and self.lies_in_open_tick(micros):
            return f"its tick has not ended by {self.cutoff} (until)"
        return None

    def lies_in_open_tick(self, micros: int) -> bool:
        """Whether a time lies in a tick that has not ended, and is not released for that reason."""
        until = self._until_on(self._streams, self._used)
        return until is not None and until <= micros < self._clock.stop

    def _windowed(self, events: PCollection[object]) -> Grid:
        """The clock in the input's windows."""
        function = events.windowing.windowfn
        if isinstance(function, windows.GlobalWindows):
            return self._clock
        if self._counts_anew:
            raise ValueError(COUNTS_ANEW.format(windows=function))
        if isinstance(function, windows.FixedWindows):
            return self._clock.in_windows(function.size.micros, function.offset.micros)
        raise ValueError(GAPS.format(windows=type(function).__name__))

    def _describe(self) -> dict[str, str]:
        per = "all releases of all keys"
        keys = {"keys": str(len(self._listed))}
        if self._select is not None and self.selection is not None:
            both = f"{self._whole_budget}"
            if self._select.delta is not None and self._whole_budget == self._budget:
                both += ", but for keys_delta"
            keys = {"budget": both, "keys": "selected", "shards": str(self._select.shards)}
            keys |= self.selection.describe()
        counter = dict(self.counter.describe())
        change: Any = self.counter.change
        if self._select is not None:
            del counter["also_satisfies"]  # without what keys take
        return {
            **counter,
            **self._used.describe(),
            **self._describe_last(),
            **keys,
            "ticks_ended": f"{self._used.all_ended(self._until):,} of {self._used.ticks:,}",
            **({} if self.path == "streaming" else {"until": self.cutoff}),
            "late": self._late,
            "entropy": repr(self._entropy),
            "max_per_tick": str(change.most),
            "counts": self.countable,
            **self._describe_people(),
            "budget_covers": per
            if self._used.window is None or self.users
            else f"{per} in one window",
            **self._account,
        }

    def _describe_people(self) -> dict[str, str]:
        """Whom it protects, and what several periods of one person cost."""
        said = describe_people(self.users, self._entropy.is_replayable, self.path)
        if self._periods is None:
            return said
        return said | {"periods": self._periods.describe(), "together": together_of([self])}

    def _describe_last(self) -> dict[str, str]:
        """What sums over the last ticks are of."""
        if (last := self._last) is None:
            return {}
        if self.users is None:
            return {"counted": "events"}
        capped = "capped contributions"
        if self.users.micros >= last * self._clock.tick:
            capped += ": of a person at most one in a sum"
        return {"counted": f"{capped}, not distinct people"}

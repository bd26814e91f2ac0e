"""TickNumbers: the engine of TickCount for one number a key and tick, so far or in windows."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, ClassVar

import apache_beam as beam
from apache_beam.pvalue import PCollection
from apache_beam.transforms import window as windows

from beam_dpcount.counters.clock import (
    OUTSIDE,
    UNLISTED,
)
from beam_dpcount.counters.grid import Grid
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
    ToTotal,
    check_timed,
    groups_of,
)
from beam_dpcount.dofns.users import BoundShards
from beam_dpcount.dofns.windows import windows_of, windows_of_ticks
from beam_dpcount.plans.all_ticks import TickPlan
from beam_dpcount.plans.ticks import TickNumbersPlan
from beam_dpcount.transforms.bounding import bounded_events
from beam_dpcount.transforms.checking import RowCheck, examine_person
from beam_dpcount.transforms.counting import Counting
from beam_dpcount.transforms.inputs import in_windows, once_per_window, use_streaming
from beam_dpcount.transforms.runners import jumps_to_the_end, spreads_groups

_LOGGER = logging.getLogger(__name__)
_LATE_REPLAYS = (
    "with replayable noise, a replay whose watermark moves otherwise shows whether any event was "
    "late in one run only: have no late events, or use SystemEntropy (docs/reliability.md)"
)
_AHEAD = 64  # timers of a key, where all of them fire at the end of the input
GAPS = "{windows} leaves gaps between windows, or may: use the global window or FixedWindows"
FOLDS_LATE = (
    'late="fold" counts a late event at another tick, and so closer to others of its person than '
    'gap says: give late="drop", or leave gap out'
)


@dataclass(eq=False, repr=False)
class TickNumbers(TickNumbersPlan, Counting):
    """A private running sum per public key, released at every tick of a public clock.

    PCollection[KV[str, number]] with event times -> PCollection[Release]: release i of a key, from
    1, counts its events with start <= time < start + i * tick, and none at `stop` or later. Every
    key of `keys` has a release at every tick, events or not. Release.step is i, Release.timestamp
    the end of tick i. If windows restart the count, steps continue: i is the tick of the whole
    clock, so (key, step) and (key, timestamp) are unique.

    Args:
      budget: PureDP, ApproxDP, ZCDP or a share of a `Ledger`: what all releases of all keys may
        cost together.
      tick: the time between releases: seconds, text with a unit such as "1h", or a timedelta.
      start, stop: seconds since 1970, a Timestamp, an aware datetime, or ISO 8601 text with an
        offset. Events outside [start, stop) do not count.
      horizon: the number of ticks. Default: as many as reach `stop`. Give one of the two, or both:
        a horizon of more ticks than reach `stop` has releases beyond it.
      keys: all keys, distinct texts. Public. Events with other keys do not count. A stream that is
        resumed from a savepoint takes the same list, in the same order; another one is an error.
        Or `SelectKeys()`, where nobody knows them, or which there are is private: a key then has
        releases from the first tick on at which its private count is high enough, and none before.
        Or `TOTAL`: one count of all events, whose key is "all". Events then need no key: of a pair
        the value counts whatever its key is, and all else is a value itself.
      mechanism: as for PrefixCount. An instance has the clock's number of ticks (in FixedWindows it
        is made anew with those of a window).
      bounds: (low, high); an event's number is clipped to them. Default (0, 1).
      unit: numbers are rounded to multiples of it before they are counted. Default 1.
      relation: the neighbouring relation: "add_remove" (default), one event is there or not;
        "replace_one", one event has another number, time and key, which costs up to twice as much.
      max_items: under how many keys one event may be counted, where a step before gives events
        several keys. Default 1. It is your word: nothing enforces it.
      max_per_tick: the sum of a key's events in one tick is clipped to this many times the largest
        value; `print` says what that is a second. Default 2^30, or less if 64 bits would not hold
        all sums, or noise or time would grow with it. SquareRoot and Binned compute with real
        numbers. Their default is 2^20 (2^36 / horizon beyond 2^16 ticks): they take up to 5 % more
        noise for a large one, and are refused beyond that. Beside the noise, arithmetic moves
        running counts beyond some 10^11 by up to 2^-37 of themselves (less than 2^-32 beyond 2^20
        ticks), which no stddev covers: see docs/proofs/real_encoders.md.
      until: a time, as for `start`. On bounded input only ticks that have ended by then are
        released (`print` says how many), and events of later ticks have no influence on anything.
        Default: now, when the transform is made; a later time is refused. The noise does not depend
        on it: under one secret, a later run over the same events repeats bit for bit what an
        earlier one released, and goes on. All ticks of the clock are charged, whatever `until` is.
        On unbounded input, and with path="streaming", the watermark says which ticks have ended,
        and until is refused.
      late: what happens, in streaming, to events of ticks that were released already. "fold"
        (default): they count at the next tick. "drop": they do not count.
      on_unknown: "drop" (default), or "raise": an event with an unknown key, or that is not a pair
        with a str key, stops the pipeline; that it stops is outside the guarantee. Good for trying
        a pipeline out on data that are not private: with "drop" a mistake shows as counts of 0.
      on_reject: the same for an event whose value is not a number.
      value, path, allow_runner: as for PrefixCount; on the streaming path, timers release.
      entropy: where the noise comes from; default the operating system.
      other: a key of `keys`, under which events with keys that are not listed count. Default: they
        do not count.
      users: Users(by, events): protect all events of one person, not only one. At most `events` of
        them count, `per_key` in a key, `gap` apart; the others, and events without a person, do
        not. Events with unlisted keys, outside the clock, or that count 0 take no one's place.

    Guarantee: the values of all releases of all keys together satisfy `budget` for inputs that
      differ in any one event, as `relation` says: whether an event happened at all, when within
      [start, stop), and its value are protected. In FixedWindows the clock and the count start anew
      in each window, and the budget is per window: an event lies in one, so that all windows
      together satisfy it for one event, but not for all events of a user. Public, so not protected:
      keys, clock, all parameters, and the number and timestamps of the releases, which depend on
      nothing else. Nor does their order on bounded input: by key, as `keys` are given, then by time
      (runners that spread work over machines keep none). With timers, the runner chooses which key
      fires first at a tick, and some (Prism) by what arrived: sort releases by key and step before
      their order is seen. Events outside [start, stop), with unknown keys or without numbers leave
      no trace; but one without any time, or that is a row, shows itself: it stops the pipeline.
      Streaming: the guarantee holds where the watermark's schedule and the order of arrival are
      public or fixed; a watermark that follows the events themselves can be moved by one of them,
      and then puts others into other ticks. Replayable noise (ReplayableEntropy) covers replays in
      which the same events are late, best none; if the watermark moved otherwise, only replays
      without such events are equal, which shows whether there are any. Sensitivity:
      `counter.l1_sensitivity` and `.l2_sensitivity` (docs/proofs/items_and_ticks.md, "Ticks").
      With `users`: the same for inputs that differ in all events of any one person, whoever that
      is, for all windows together (docs/proofs/people.md). It does not follow that one event is
      protected by `budget`: without it, others of its person's may count in its place, which costs
      up to 2 rho (4 rho where numbers have two signs, or R negative entries; 2 epsilon if pure).
      What does not count is missing from the releases: a bias that no stddev covers. Streaming,
      events are taken by arrival, and the promise assumes that a person's events change neither
      order nor lateness of others' events.
      With `SelectKeys` the budget is (epsilon, delta): which keys there are is protected too, and
      the delta of `selection` is a part of the budget's, or beside a budget without one. Which
      releases there are depends on the data, through releases only; on bounded input they come by
      window, key and time, where one worker has all keys. Public, in place of the keys: the shards,
      and all that `selection` says. A key's first releases were chosen for being high, so that they
      are biased upwards; stddev is that of releases at their tick, chosen or not
      (docs/proofs/selection.md).
      Noise and retries as for PrefixCount.

    Attributes:
      counter: the calibrated counter of each key; the one in use, once the transform is applied.
      selection: when keys are shown; None where they were listed. `print` it before you run.

    Raises:
      ValueError, TypeError: as for PrefixCount, and when applied, for windows other than the global
        one and FixedWindows on the grid of ticks, and for a gap with late="fold" when streaming.
      UntimedElementError, RowElementError: when run, where elements have no timestamps or are rows.

    Example:
      >>> import apache_beam as beam
      >>> import beam_dpcount as dp
      >>> from beam_dpcount.transforms.ticks import TickNumbers
      >>> with beam.Pipeline("FnApiRunner") as pipeline:
      ...     events = pipeline | beam.Create([("ERROR", 1), ("ERROR", 1)])
      ...     timed = events | beam.Map(lambda e: beam.window.TimestampedValue(e, 1_700_000_000))
      ...     count = TickNumbers(
      ...         dp.ApproxDP(1.0, 1e-6), 3600, 1_699_999_200, horizon=2, keys=["INFO", "ERROR"]
      ...     )
      ...     _ = timed | count | beam.Map(lambda release: print(release.key, release.step))
      INFO 1
      INFO 2
      ERROR 1
      ERROR 2
    """

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
        if self.inside.split is None or not self.bounds_people:
            super()._check_elements(events)

    def expand(self, events: PCollection[Any]) -> PCollection[Release]:
        streaming = self._path_of(events)
        self._check_until(streaming)
        if self._is_total:
            total: Any = beam.ParDo(self._to_total)
            events = events | "Total" >> total.with_output_types(tuple[str, Any])
        clock = self._used = self._windowed(events)
        self._streams, until = streaming, self._until_on(streaming, clock)
        if streaming and self.late == "fold" and self.users is not None and self.users.micros:
            raise ValueError(FOLDS_LATE)
        known = clock == self._clock
        counter = (self._counters if known else self._at(clock, streaming))[streaming]
        selection = self._selecting(counter)
        object.__setattr__(self, "selection", selection)  # to others it is fixed
        entropy = self._use(counter, events, streaming)
        if streaming and entropy.is_replayable:
            _LOGGER.warning("%s: %s", self.label, _LATE_REPLAYS)
        intake: Any = self._intake(clock, until)
        bound = self.bound
        if self.users is not None and bound is not None:
            events = bounded_events(
                *(events, self.users, bound, self.parcels(events), streaming),
                output=tuple[str, bytes],
                windowing=self._restarting(),
                by_shard=self._bound_shards,
                periods=self._periods,
            )
            intake = self._ready(clock)
        elif self.inside.restart is not None:
            events = events | "Restart" >> beam.WindowInto(self._restarting())
        how = self.how(counter, entropy, bound)
        how |= {"alone": spreads_groups(events.pipeline), "until": until}
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
        if self.inside.restart is None:
            return releases
        return releases | "Rejoin" >> beam.WindowInto(windows.GlobalWindows())

    def _intake(self, clock: Grid, until: int | None = None) -> TickIntake:
        numbers = Intake(self.counter, self._numbers, self.on_reject, self.value)
        strict = self.on_unknown == "raise"
        return TickIntake(clock, self._listed or None, numbers, strict, self.other, until)

    def _whole_intake(self, events: PCollection[object]) -> TickIntake:
        """Reads events before people are bounded."""
        clock = self._windowed(events) if self.inside.restart is None else self._whole
        return self._intake(clock, self._until_on(use_streaming(events, self.path), clock))

    def parcels(self, events: PCollection[object]) -> TickParcels:
        """How events travel to their person."""
        kind = TickParcels if self._listed else TextParcels
        return kind(self._whole_intake(events), self._listed, self.inside.split, self._restarts)

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

    def _restarting(self) -> Any:
        """The windows in each of which the count starts anew; None: those of the input."""
        if self.inside.restart is None:
            return None
        return windows_of(self._clock)

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

    def _windowed(self, events: PCollection[object]) -> Grid:
        """The clock in the input's windows."""
        function = events.windowing.windowfn
        if self.inside.last is not None and not isinstance(function, windows.GlobalWindows):
            problem = f"{type(function).__name__} would start anew in each of its windows"
            raise ValueError(f"{problem}: use the global window")
        if isinstance(function, windows.GlobalWindows):
            return self._clock
        if isinstance(function, windows.FixedWindows):
            return self._clock.in_windows(function.size.micros, function.offset.micros)
        raise ValueError(GAPS.format(windows=type(function).__name__))


def one(_: object) -> int:
    """What an event counts, whatever it holds."""
    return 1

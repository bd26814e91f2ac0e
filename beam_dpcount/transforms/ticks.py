"""TickNumbers: the engine of TickCount for one number a key and tick."""

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
from beam_dpcount.dofns.shards import CountAllShards, CountShards, SumShards
from beam_dpcount.dofns.ticks import (
    SEED,
    CountAllTicks,
    CountEachTick,
    ReadTicks,
    SeedShards,
    SumTicks,
    TickIntake,
    ToTotal,
    check_timed,
    groups_of,
)
from beam_dpcount.dofns.users import BoundShards
from beam_dpcount.dofns.windows import windows_of, windows_of_ticks
from beam_dpcount.plans.ticks import TickNumbersPlan
from beam_dpcount.states.all_shards import ShardPlan
from beam_dpcount.states.all_ticks import TickPlan
from beam_dpcount.transforms.bounding import bounded_events
from beam_dpcount.transforms.checking import RowCheck, examine_person
from beam_dpcount.transforms.counting import Counting
from beam_dpcount.transforms.inputs import (
    in_windows,
    once_per_window,
    use_streaming,
)
from beam_dpcount.transforms.runners import jumps_to_the_end, spreads_groups

_LOGGER = logging.getLogger(__name__)
_LATE_REPLAYS = (
    "with replayable noise, a replay whose watermark moves otherwise shows whether any event was "
    "late in one run only: have no late events, or use SystemEntropy (docs/reliability.md)"
)
_AHEAD = 64  # timers of a shard, where all of them fire at the end of the input
COUNTS_ANEW = (
    "{windows!r} would count anew in each window: use the global window, and a clock that starts "
    "anew, clock.restart(n)"
)
GAPS = "{windows} leaves gaps between windows, or may: use the global window or FixedWindows"
FOLDS_LATE = (
    'late="fold" counts a late event at another tick, and so closer to others of its person than '
    'gap says: give late="drop", or leave gap out'
)


@dataclass(eq=False, repr=False)
class TickNumbers(TickNumbersPlan, Counting):
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

    def expand(self, events: PCollection[Any]) -> PCollection[Release]:
        streaming = self._path_of(events)
        self._check_until(streaming)
        if self._is_total:
            total: Any = beam.ParDo(self._to_total)
            events = events | "Total" >> total.with_output_types(tuple[str, Any])
        clock = self._used = self._windowed(events)
        self._streams, self._path_known = streaming, True
        until = self._until_on(streaming, clock)
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
        bound = self.bound
        if self.users is not None and bound is not None:
            events = bounded_events(
                *(events, self.users, bound, self.parcels(events), streaming, entropy),
                windowing=self._restarting(),
                by_shard=self._bound_shards,
                periods=self._periods,
                **{"output": tuple[str, bytes], **(self._in_stream if streaming else {})},
            )
            intake = self._ready(clock)
        elif self._restart is not None:
            events = events | "Restart" >> beam.WindowInto(self._restarting())
        how = self.how(counter, entropy, bound)
        how |= {"alone": spreads_groups(events.pipeline), "until": until}
        # There each round of timers is a bundle, which costs some milliseconds.
        how |= {"ahead": _AHEAD if streaming and jumps_to_the_end(events) else 1}
        if selection is not None and self._select is not None:
            shards = self._shard_plan_of(selection, clock, **how)
            select = self._select_each if streaming else self._select_all
            releases = select(events, intake, shards)
        else:
            plan = self._plan_of(counter, clock, self._listed, **how)
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
    _in_stream: ClassVar[Any] = {}  # of bounded_events
    _ready: ClassVar[Any] = ReadyTicks
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
        read, count = self._read_ticks(intake, plan), self._count_each(plan)
        return self._in_shards(events, "ReadTicks", read, "CountEachTick", count)

    def _select_each(
        self, events: PCollection[Any], intake: TickIntake, plan: ShardPlan
    ) -> PCollection[Release]:
        read = self._sum_shards(intake, plan.shards, ticks_apart=True)
        return self._in_shards(events, "SumShards", read, "CountShards", self._count_shards(plan))

    def _in_shards(
        self, events: PCollection[Any], sums_label: str, read: Any, label: str, count: CountEachTick
    ) -> PCollection[Release]:
        """Events summed up by `read`, and released by `count`, from seeds of its shards on."""
        clock, function = count.plan.clock, events.windowing.windowfn
        # In the global window, where one cell goes from window to window.
        windowing = events.windowing if clock.window is None else windows.GlobalWindows()
        seed: Any = beam.ParDo(SeedShards(clock.origins()[0]))
        seeds = (
            events.pipeline
            | "Shards" >> beam.Create(range(count.plan.shards), reshuffle=False)
            | "SeedShards" >> seed.with_output_types(tuple[int, bytes])
            | "Window" >> beam.WindowInto(windowing)
        )
        sums = events | sums_label >> beam.ParDo(read).with_output_types(tuple[int, bytes])
        if clock.window is not None:
            sums = sums | "Global" >> beam.WindowInto(windowing)
        both = (seeds, sums) | "Flatten" >> beam.Flatten()
        released: Any = beam.ParDo(count).with_output_types(self._released)
        releases = both | label >> released
        if clock.window is None:
            return releases
        return releases | "ByWindow" >> beam.WindowInto(function)

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
        if isinstance(function, windows.GlobalWindows):
            return self._clock
        if self._counts_anew:
            raise ValueError(COUNTS_ANEW.format(windows=function))
        if isinstance(function, windows.FixedWindows):
            return self._clock.in_windows(function.size.micros, function.offset.micros)
        raise ValueError(GAPS.format(windows=type(function).__name__))

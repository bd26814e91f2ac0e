"""TickCount: what is counted, at which clock and in which view, for which keys, protecting whom."""

from __future__ import annotations

import threading
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.pvalue import PCollection
from apache_beam.transforms.window import GlobalWindows, WindowFn

from beam_dpcount.budget.ledger import claim
from beam_dpcount.budget.shares import Share
from beam_dpcount.checks import ParameterError
from beam_dpcount.counters.charged import JoinedSpender
from beam_dpcount.counters.clock import check_keys
from beam_dpcount.counters.moments import time_of_event
from beam_dpcount.counters.selection import SelectKeys
from beam_dpcount.counters.total import ALL, Total
from beam_dpcount.dofns.events import (
    EventReader,
    JoinAll,
    JoinEach,
    Parts,
    ReadEvents,
    ToPart,
)
from beam_dpcount.dofns.releases import TickRelease
from beam_dpcount.dofns.rows import RowElementError, is_row_type
from beam_dpcount.lanes.cells import Times
from beam_dpcount.lanes.frames import Frame
from beam_dpcount.plans.expected import Expected
from beam_dpcount.plans.sentence import TIMES_OF_STREAMS, TickCountPlan
from beam_dpcount.reading import Field
from beam_dpcount.states.all_vectors import Reading
from beam_dpcount.statistics.metrics import Rate
from beam_dpcount.statistics.metrics.base import OfField
from beam_dpcount.statistics.metrics.joint import Joint
from beam_dpcount.transforms.active import ActivePeople
from beam_dpcount.transforms.checking import RowCheck
from beam_dpcount.transforms.described import Described
from beam_dpcount.transforms.frames import read_frame, released
from beam_dpcount.transforms.inputs import (
    in_windows,
    once_per_window,
    use_streaming,
)
from beam_dpcount.transforms.ticks import COUNTS_ANEW, TickNumbers
from beam_dpcount.transforms.vectors import TickVectors

TO_KEYS = (
    "events are rows: say which field holds the public key, e.g. key='page', or make pairs before, "
    "e.g. beam.Map(lambda row: (row.page, row))"
)


@dataclass(eq=False, repr=False)
class TickCount(TickCountPlan, Described):
    """A private count of events by key, released at every tick of a public clock.

    PCollection of events with event times -> PCollection[Release], one for each key at the end of
    every tick, events or not; PCollection[TickRelease] if there are several numbers. (key, step)
    and (key, timestamp) are primary keys: step is the tick, numbered over the whole clock.

    Events are (key, payload) pairs; or rows, dicts, NamedTuples, dataclasses or objects, if `key`
    names the field of the key.

    Args:
      budget: PureDP, ApproxDP, ZCDP or a share of a `Ledger`: what all releases of all keys may
        cost together.
      clock: a `Clock`, for all events so far, or one of its views: `clock.each()`, each tick alone;
        `clock.last(n)`, the last n ticks; `clock.restart(n)`, all events since the count started
        anew, every n ticks. Or a list of them, which share the budget; people are bounded for each
        alone. A Count or Sum so far and in each tick is combined, where noise is Gaussian: both
        numbers are computed from the releases of both up to their tick, and a sum over the last n,
        up to 64, from all three.
      what: what is counted: Count() (the default), another metric of `dp.metrics`, or a list of
        them. Count() counts 1 an event, whatever its value. Metrics of a list share the budget by
        their weights.
      keys: all public keys, distinct texts; events with other keys do not count. Or
        `SelectKeys()`, where nobody knows them, or which there are is private. Or `TOTAL`: all
        events count under one key, "all".
      users: Users(by, events): protect all events of one person, not only one.
      mechanism: a name, class or instance, for a count so far or one that restarts. Default: the
        one of least exact error for the view, the budget, and what one event or person changes.
      relation: "add_remove" (default): one event (or person) is there or not; "replace_one": it is
        another one, which costs up to twice as much.
      max_per_tick: the sum of a key's events in one tick is clipped to this many times the largest
        value. Default 2^30, or less if 64 bits would not hold all sums, or noise would grow.
      until: on bounded input only ticks that have ended by then are released. Default: now.
      late: what happens, in streaming, to events of ticks that were released already: "fold": they
        count at the next tick; "drop": they do not count. Default: "drop" where the count needs it,
        as with a gap between a person's events, else "fold"; `print` says which.
      on_unknown: "drop" (default), or "raise": an event with an unknown key, or one that is not a
        pair although `key` is not given, stops the pipeline, which shows that it is there.
      on_reject: the same for an event that counts nothing because of its value.
      other: a key of `keys`, under which events with keys that are not listed count.
      confidence: the level of the intervals of a TickRelease, of each by itself.
      prefer: "so-far", "each" or "last": which of such views gets most of the budget. Default:
        shares with which none of them is much worse than alone.
      value: makes what metrics read out of an event's payload. Default: the payload itself. An
        event for which it returns None, or raises an error, does not count.
      key: the name of the field that holds the key, or a function of the event: a text or a whole
        number. An event in which it is missing or None does not count. Default: events are pairs.
      max_items: under how many keys one event counts, at most, where `key` gives a collection of
        them: of more distinct ones the first in the order of `keys` (SelectKeys: as they come). The
        noise grows with its square root (Gaussian), or with it (Laplace). With `users` each key of
        an event is an event of its person. Default: an event has one key.
      time: on bounded input, the name of the field that holds the time, or a function of the event:
        as `start` of the clock, or seconds as text. An event in which it is missing or not a time
        does not count. Default: elements carry their event time.
      path: "bounded", "streaming" or "auto", as the input is.
      entropy: where the noise comes from; default the operating system.
      allow_runner: as for PrefixCount.

    Guarantee: the values of all releases of all keys, in all columns, together satisfy `budget` for
      inputs that differ in any one event (the unit: one event), as `relation` says: whether it
      happened, when within the clock, and what it holds are protected. With `users` the unit is one
      person: inputs differ in all events of any one person, whoever that is. It does not follow
      that one event is protected by `budget` alone: without it, others of its person's may count in
      its place, which costs up to 2 rho (4 rho where numbers have two signs; 2 epsilon if pure).
      Public: keys, clock, views, all parameters, and number, order and timestamps of the releases,
      which depend on nothing else; with SelectKeys which keys are shown is released, under a part
      of delta. On bounded input releases come by key, as `keys` are given, then by time, unless a
      runner spreads them over machines. Parts of a list of views compose: their budgets add up to
      `budget`. Events that count nothing (no key, time, number or person) leave no trace, but one
      without any time, or that is a row although `key` is not given, stops the pipeline. Streaming:
      the guarantee holds where the watermark's schedule and the order of arrival are public or
      fixed, and a person's events change neither for others. What a bound on people, `max_per_tick`
      or the bounds of a metric leave out is missing from the releases: a bias that no stddev
      covers. Sensitivity: `counter.l1_sensitivity` and `.l2_sensitivity`
      (docs/proofs/items_and_ticks.md, people.md, aggregates.md, sliding.md, selection.md).

    Attributes:
      columns: the names of what is released, in their order.
      counter: the calibrated counter of each key, if there is one part.
      counters: that of each part, by its columns.
      combined: the columns that are combined, with their standard deviations; None: there are none.
      selection: when keys are shown; None if they were listed.

    Raises:
      ValueError, TypeError: an argument is out of range, or arguments do not go together; and when
        applied, for input in windows other than the global one.

    Example:
      >>> import apache_beam as beam
      >>> import beam_dpcount as dp
      >>> hours = dp.Clock("1h", start="2026-01-15T00:00:00Z", ticks=2)
      >>> count = dp.TickCount(
      ...     dp.ApproxDP(1.0, 1e-6), hours, keys=["/home", "/cart"], key="page", time="at"
      ... )
      >>> events = [{"page": "/home", "at": "2026-01-15T00:10:00Z"}]
      >>> with beam.Pipeline("FnApiRunner") as pipeline:
      ...     releases = pipeline | beam.Create(events) | count
      ...     _ = releases | beam.Map(lambda r: print(r.key, r.step, r.name))
      /home 1 count
      /home 2 count
      /cart 1 count
      /cart 2 count
      >>> views = [hours.each(), hours.last(2)]
      >>> several = [dp.Count(), dp.Mean("ms", 0, 5)]
      >>> dp.TickCount(dp.ZCDP(0.5), views, several, keys=dp.TOTAL).columns
      ('count_each', 'mean_ms_each', 'count_last_2', 'mean_ms_last_2')
    """

    _numbers_kind = TickNumbers
    _vectors_kind = TickVectors

    def __post_init__(self) -> None:
        super().__post_init__()
        self._reader = self._reading()

    # What is refused before anything runs.

    # The engines.

    def _reading(self) -> EventReader:
        key: Any = Field(self.key) if isinstance(self.key, str) else self.key
        total = ALL if isinstance(self.keys, Total) else None
        time: Any = None
        if self.time is not None:
            take = Field(self.time) if isinstance(self.time, str) else self.time
            time = MicrosOf(take, self._clock.zone)
        if self.max_items is None:
            return EventReader(key, total, time)
        listed = None if isinstance(self.keys, SelectKeys) else check_keys(self.keys)
        return EventReader(key, total, time, self.max_items, listed)

    def _active(self, options: dict[str, Any], ticks: int) -> Any:
        return ActivePeople(**options, active=ticks)

    # What it is.

    def tick_windows(self) -> WindowFn:
        """Windows in each of which lie the releases of one tick.

        Raises:
          ValueError: the clock is finer than Beam's windows.
        """
        windows: WindowFn = self._parts[0].engine.tick_windows()
        return windows

    def each_key(self, event: object) -> list[tuple[str, Any]]:
        """(key, payload) for each key under which an event may count."""
        return self._reader.pairs(event)

    def problem(self, event: object, micros: int | None = None) -> str | None:
        """Why an event does not count as it is; see `beam_dpcount.check`."""
        return self.check_row(event, micros).problem

    def check_row(self, event: object, micros: int | None = None) -> RowCheck:
        """What becomes of an event; see `beam_dpcount.check`."""
        engine, reader = self._parts[0].engine, self._reader
        pairs = reader.pairs(event)
        if not pairs and self.key is None:
            checked: RowCheck = engine.check_row(event, micros)
            return checked
        if not pairs:
            return RowCheck(f"the event has no key in {self.key!r}", keys=())
        keys = tuple(key for key, _ in pairs)
        if self.time is not None:
            micros = reader.micros(event)
            if micros is None:
                return RowCheck(f"the event has no time in {self.time!r}", keys=keys)
        found = [part.engine.check_row(pair, micros) for pair in pairs for part in self._parts]
        first: RowCheck = next((one for one in found if one.problem is not None), found[-1])
        if len(pairs) == 1:
            return first
        return first._replace(keys=keys, names=tuple(n for one in found for n in one.names))

    def expected(self, events: object, tick: int | None = None) -> Expected:
        """What would be known of a key that had these events, and how well: `print` it.

        Nothing is counted or spent, and no noise is drawn: what it returns is computed from the
        events, so give it made-up ones, or public ones.

        Args:
          events: payloads, all of one key. Of each person as many count as `users` lets count in a
            key; its gap is left out of account.
          tick: the number of the tick, from 1; default: the one with the most noise.

        Raises:
          ValueError: there is no such tick, or there are several views.
          TypeError: events are not a list of payloads, but one, or a data frame.
        """
        if len(self._views) > 1 or self.engine is None:
            raise ValueError("expected is of one view: give a TickCount of each alone")
        engine = self.engine
        if not isinstance(engine, TickVectors):
            (view,), names = self._views, tuple(self._parts[0].names)
            engine = self._engine(self._budget, view, self._metrics, names, vectors=True)
        found: Expected = engine.expected(events, tick)
        return found

    @property
    def takes_pairs(self) -> bool:
        """Whether events are (key, payload) pairs."""
        return self._reader == EventReader()

    # Where it is applied.

    def over(self, table: object, *, key: str | None = None, time: str | None = None) -> pa.Table:
        """The releases of a data frame, without a pipeline: a pyarrow Table, a row each.

        Its columns are key, step, start and timestamp (the end) of the tick, restart if the count
        starts anew, and of each metric and view its value, the stddev of its noise where that is
        public, and the ends of its interval (count, count_stddev, count_low, count_high). They are
        those of a pipeline over the rows: under replayable noise the same to the bit.

        Args:
          table: a pandas or Polars data frame, a DuckDB relation, an Arrow table, or a reader of
            record batches, which is read once. Columns are read as fields of events are: rows
            without a key, a time or a person do not count. What users and metrics read are their
            columns, by name.
          key, time: the columns of the key and the time; default: those of the count.

        Guarantee: as for the class. Each call is a release, and a cell of a notebook that runs
          twice is two. A budget that is a share of a `Ledger` is charged, once; replayable noise
          repeats itself; else a second call is refused, as it would cost the budget again. The
          table says which in its metadata, under "beam_dpcount".

        Raises:
          ParameterError: the table or the count cannot be read so; nothing is spent.

        Example:
          >>> import beam_dpcount as dp
          >>> hours = dp.Clock("1h", start=0, ticks=2)
          >>> count = dp.TickCount(dp.ZCDP(0.5), hours, keys=["/home", "/cart"])
          >>> table = pa.table({"page": ["/home", "/home", None], "ts": [10, 4000, 20]})
          >>> count.over(table, key="page", time="ts").column_names[3:]
          ['timestamp', 'count', 'count_stddev', 'count_low', 'count_high']
        """
        frame, budget = self._frame(table, key, time), self.budget
        once = not (self._parts[0].engine.noise.is_replayable or isinstance(budget, Share))
        if once and self._released_over:
            raise ParameterError("over", *_AGAIN)
        if isinstance(budget, Share) and budget.ledger.resumes:
            raise ParameterError("over", *_NO_STATE)
        read_as = self._read_by(frame.key, frame.time)
        count = copy(self)
        columns = (frame.time,)
        count._parts = [p._replace(engine=p.engine.reading(read_as, columns)) for p in self._parts]
        lane = read_frame(count, frame)
        with _RELEASING:  # now that the table was read, which may take long
            if once and self._released_over:
                raise ParameterError("over", *_AGAIN)
            self.__dict__["_released_over"] = once
        return released(count, lane)

    _released_over = False

    def _frame(self, table: object, key: str | None, time: str | None) -> Frame:
        """The data frame, and which of its columns are read."""
        if any(type(part.engine) not in (TickNumbers, TickVectors) for part in self._parts):
            raise ParameterError("over", *_ACTIVE)
        if any(isinstance(m, OfField | Rate) and not m.fields for m in self._metrics):
            raise ParameterError("what", *_NO_FIELD)
        if self.value is not None or self.path == "streaming" or self._strict:
            raise ParameterError("over", *_PLAIN)
        if self._clock.is_endless and self.until is None:
            raise ParameterError("until", "is missing: the clock has no end", "give {until}")
        zone, total = self._clock.zone, isinstance(self.keys, Total)
        fields = dict.fromkeys(field for metric in self._metrics for field in metric.fields)
        return Frame(
            table,
            key=None if total else _column("key", self.key if key is None else key),
            time=_column("time", self.time if time is None else time),
            user=None if self.users is None else _column("users", self.users.by),
            fields=[*fields],
            times=Times(MicrosOf(_itself, zone), None, zone == "UTC"),
        )

    @property
    def _strict(self) -> bool:
        return "raise" in (self.on_unknown, self.on_reject)

    def expand(self, events: PCollection[Any]) -> PCollection[Any]:
        streaming = self._check_input(events)
        reader = self._reader
        if reader != EventReader():
            pairs: Any = beam.ParDo(ReadEvents(reader, self._clock.grid))
            events = events | "ReadEvents" >> pairs.with_output_types(tuple[str, Any])
        self._parts = [p._replace(engine=p.engine.on_path(streaming)) for p in self._parts]
        if self.engine is not None:
            releases: PCollection[Any] = events | "TickCount" >> self._parts[0].engine
            self._show_applied(events.pipeline)
            return releases
        if len(self._parts) > 1:  # else the one that there is claims the budget
            applied = events.pipeline.transforms_stack[-1].full_label
            engines = [part.engine for part in self._parts]
            spenders = [engine.spender(engine.counter, applied) for engine in engines]
            claim(self.budget, by=applied, spender=JoinedSpender(spenders))
        rows = self._joined(events, streaming)
        self._show_applied(events.pipeline)
        return rows

    def _check_input(self, events: PCollection[Any]) -> bool:
        """Whether it is counted on the streaming path; or an error that says what is wrong."""
        function = events.windowing.windowfn
        if not isinstance(function, GlobalWindows):
            raise ValueError(COUNTS_ANEW.format(windows=function))
        pairs = self.key is None and not isinstance(self.keys, Total)
        if pairs and is_row_type(events.element_type):
            raise RowElementError(TO_KEYS)
        streaming = use_streaming(events, self.path)
        if streaming and self.time is not None:
            raise ValueError(TIMES_OF_STREAMS)
        if events.is_bounded and self._clock.is_endless and self.until is None:
            raise ValueError(
                f"the input is bounded, and the clock has no end, so that {self._clock.grid.steps} "
                "ticks might be released: give the clock ticks or stop, or until (only ticks that "
                "have ended by then are released)"
            )
        return streaming

    def _joined(self, events: PCollection[Any], streaming: bool) -> PCollection[TickRelease]:
        """One row a key and tick of all parts."""
        keys = self._parts[0].engine.keys
        combined = self.combined
        parts = Parts(self._clock.grid, self.columns, len(self._parts), keys, combined)
        places = None if streaming else {key: place for place, key in enumerate(keys)}
        kind: Any = tuple[str, bytes] if streaming else tuple[int, bytes]
        made = []
        for number, part in enumerate(self._parts):
            releases = events | f"Part {part.label}" >> part.engine
            reading = None
            if not isinstance(part.engine, TickVectors):
                joint = Joint(part.metrics)
                reading = Reading(part.engine.counter, joint, self.confidence, parts.clock)
            to_part: Any = beam.ParDo(ToPart(number, reading, parts.clock.ticks, places))
            made.append(releases | f"Part{number + 1}" >> to_part.with_output_types(kind))
        together = tuple(made) | "Flatten" >> beam.Flatten()
        if streaming:
            join: Any = beam.ParDo(JoinEach(parts))
            rows: Any = together | "Join" >> join.with_output_types(TickRelease)
            return rows
        join = beam.ParDo(JoinAll(parts))
        grouped = once_per_window(together, GlobalWindows()) | "GroupByKey" >> beam.GroupByKey()
        rows = grouped | "Join" >> join.with_output_types(TickRelease)
        in_windows(rows, GlobalWindows())
        return rows


_AGAIN = (
    "has released once, and a second release costs the budget again",
    "make the count with a share of a Ledger for each, or with entropy=ReplayableEntropy(...)",
)
_RELEASING = threading.Lock()
_NO_STATE = (
    "begins anew in each call, and the ledger takes runs for those that go on: a second one would "
    "cost nothing",
    "make the Ledger without {resumes}",
)
_ACTIVE = (
    "does not count who was active in the last ticks",
    "count in a pipeline, or people of each tick in a clock.restart(n)",
)
_NO_FIELD = (
    "has a metric that reads whole events, and rows of a table are none",
    'name its column: e.g. {what=}dp.Sum("ms", 0, 500), or dp.Rate("level = ERROR")',
)
_PLAIN = (
    "reads columns, of bounded input, and lets no row stop it",
    "leave value, path, on_unknown and on_reject out",
)


@dataclass(frozen=True)
class MicrosOf:
    """The time of an event in microseconds, from a field or a function.

    Args:
      take: what holds it.
      zone: of times without an offset; None: they are not times.
    """

    take: Callable[[Any], Any]
    zone: str | None

    def __call__(self, event: object) -> int:
        return time_of_event(self.take(event), self.zone)


def _itself(cell: object) -> object:
    """What a column holds."""
    return cell


def _column(name: str, given: object) -> str:
    """The name of a column of a data frame."""
    if not isinstance(given, str):
        raise ParameterError(name, f"names no column of the table, got {given!r}", "name one")
    return given


__all__ = ["TickCount"]

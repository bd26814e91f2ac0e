"""The DoFns that count at the ticks of a clock: by timers, or all ticks of a key at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.coders import BytesCoder
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import (
    BagStateSpec,
    ReadModifyWriteStateSpec,
    TimerSpec,
    on_timer,
)
from apache_beam.transforms.window import GlobalWindow, IntervalWindow, TimestampedValue
from apache_beam.utils import windowed_value
from apache_beam.utils.timestamp import MIN_TIMESTAMP, Timestamp

from beam_dpcount.counters.grid import Grid
from beam_dpcount.counters.total import ALL
from beam_dpcount.dofns.horizon import Horizon
from beam_dpcount.dofns.intake import Intake, has_str_key, is_pair
from beam_dpcount.dofns.releases import Release
from beam_dpcount.dofns.rows import TO_PAIRS, TO_VALUES, RowElementError, is_row
from beam_dpcount.dofns.versions import VersionedDoFn
from beam_dpcount.dofns.windows import origin_of, window_from
from beam_dpcount.errors import Error
from beam_dpcount.states.all_ticks import TickPlan, name_of, restart_of, values_of
from beam_dpcount.states.pending import placed
from beam_dpcount.states.tick_shards import KeyShard, TickShard
from beam_dpcount.states.wire import PAIR, add_up, pack_sums

SEED = b""  # an event of weight 0, which makes a key known
_UNTIMED = MIN_TIMESTAMP.micros
GATHERED = 1 << 17  # events that a bundle sums up before it passes the sums on

# Aliases, because the declared defaults are Beam's markers and not of the parameters' types.
_Key: Any = beam.DoFn.KeyParam
_Window: Any = beam.DoFn.WindowParam
_WindowedValue: Any = beam.DoFn.WindowedValueParam
# TimestampedValue would assign the window anew, which costs more than all the rest.
_placed: Any = windowed_value.create


class UntimedElementError(Error, ValueError):
    """An element carries no event time; the error shows that it is there.

    It is a mistake in the pipeline: usually no element has one, and the count would be of nothing.
    """


class UnknownKeyError(Error, ValueError):
    """A key was refused under on_unknown="raise"; its presence in the data is thereby shown."""


def check_timed(micros: int) -> None:
    """Refuse the time that Beam gives to elements without one."""
    if micros <= _UNTIMED:
        raise UntimedElementError(
            "elements carry no timestamps, and a clock counts by event time: before, add "
            "beam.Map(lambda event: beam.window.TimestampedValue(event, event_time)), with the "
            "time in seconds since 1970"
        )


class ToTotal(VersionedDoFn):
    """Anything to (ALL, value), of TOTAL: of a pair its value, whatever its key.

    `takes_rows`: a row is a value too; else it is an error.
    """

    def __init__(self, takes_rows: bool) -> None:
        self._takes_rows = takes_rows

    def process(self, element: Any) -> list[tuple[str, Any]]:
        return [self.pair(element)]

    def pair(self, element: Any) -> tuple[str, Any]:
        if is_pair(element):
            return ALL, element[1]
        if not self._takes_rows and is_row(element):
            raise RowElementError(TO_VALUES)
        return ALL, element


class TickIntake:
    """Reads events: the tick in which one falls, and its value on the lattice.

    `numbers` makes a number of a value; `keys`: those that count, None: all that are text;
    `strict`: unknown keys are errors; `other`: they count under this key; `until`: events of ticks
    that have not ended by then do not count.
    """

    def __init__(
        self,
        clock: Grid,
        keys: Iterable[str] | None,
        numbers: Intake,
        strict: bool = False,
        other: str | None = None,
        until: int | None = None,
    ) -> None:
        self.clock, self._until = clock, until
        self._keys: Any = _Texts() if keys is None else frozenset(keys)
        self._numbers, self._strict, self._other = numbers, strict, other
        self._window: Any = None  # the last one seen
        self._step_at: Callable[[int], int] = _never
        self.origin = 0  # when the count of that window starts

    def read(self, element: Any, micros: int, windows: Any) -> tuple[str, int, int] | None:
        """Key, tick and value of an event; None if it counts nothing.

        An event in several windows, or none, as a Flatten of mixed ones can have, counts nothing:
        it would count in each of them, and so would all that a bundle gathers with it.
        """
        if micros <= _UNTIMED:
            check_timed(micros)
        if type(element) is tuple and len(element) == 2 and type(element[0]) is str:
            known, key = True, element[0]
        else:
            known = has_str_key(element)
            if not known and is_row(element):
                raise RowElementError(TO_PAIRS)
            # A plain text: a subclass may compare unlike what it encodes to.
            key = str.__str__(element[0]) if known else ""
        if known and self._other is not None and key not in self._keys:
            key = self._other
        if not known or key not in self._keys:
            if self._strict:
                remedy = 'add all public keys, or leave such events out with on_unknown="drop"'
                raise UnknownKeyError(f"an event's key is not among `keys`: {remedy}")
            return None
        if len(windows) != 1:
            return None
        if windows[0] is not self._window:
            self._enter(windows[0])
        step = self._step_at(micros)
        if not step:
            return None
        x = self._numbers.number(key, element[1], micros)
        return (key, step, x) if x else None

    def _enter(self, window: object) -> None:
        """Find out what counts in a window."""
        self._window, self._step_at = window, _never
        if has_count(self.clock, window):
            self.origin = origin_of(self.clock, window)
            self._step_at = self.clock.steps_from(self.origin, self._until)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_window": None, "_step_at": _never}


def _never(micros: int) -> int:
    """Of a window without a count."""
    return 0


class _Texts:
    """All texts that UTF-8 can hold: others would stop a runner, with a message that shows them."""

    def __contains__(self, key: str) -> bool:
        if key.isascii():
            return True
        try:
            key.encode()
        except UnicodeEncodeError:
            return False
        return True


def has_count(clock: Grid, window: object) -> bool:
    """Whether a window is one of the clock's, with releases even without events.

    Beam cuts times to milliseconds after it has given them a window, and a Flatten may mix windows:
    an event may come in a window without releases, and would be seen if it made some.
    """
    if clock.window is None:
        return isinstance(window, GlobalWindow)
    return (
        isinstance(window, IntervalWindow)
        and window.start.micros in clock.origins()
        and window.end.micros == clock.closing(window.start.micros)
    )


class SeedShards(VersionedDoFn):
    """Streaming: a SEED of each shard at the start of a clock, for keys without events."""

    def __init__(self, start: int) -> None:
        self._start = start

    def process(self, shard: int) -> Iterator[Any]:
        yield TimestampedValue((shard, SEED), Timestamp(micros=self._start))


class ReadTicks(VersionedDoFn):
    """Streaming: (key, value) to (shard, sums of its keys), packed, one a tick and bundle.

    Ticks are those of all windows, numbered one after the other: see `Grid.passed_at`. A sum has a
    place, as those of vectors do: a shard's are the numbers of each of its keys in turn.

    So a key with most of the events is summed where they are read, by many workers, before one cell
    takes them. Sums have the time of their earliest event, and each tick its own: together with a
    late event, those that are in time would have its time, and might become late themselves.

    Args:
      intake: what reads events.
      plan: which keys there are, in which shards.
    """

    def __init__(self, intake: TickIntake, plan: TickPlan) -> None:
        self._intake, self._width = intake, plan.width
        self._places = {key: divmod(place, plan.shards) for place, key in enumerate(plan.keys)}
        self._sizes = [len(plan.keys_of(shard)) * plan.width for shard in range(plan.shards)]

    def start_bundle(self) -> None:
        self._gathered = 0
        # By origin of the window, shard and tick: the windows, the earliest time, and the sums.
        self._sums: dict[tuple[int, int, int], list[Any]] = {}

    def process(self, element: Any, windowed: Any = _WindowedValue) -> Iterable[Any]:
        windows, micros = windowed.windows, windowed.timestamp_micros
        read = self._intake.read(element, micros, windows)
        if read is None:
            return ()
        rank, shard = self._places[read[0]]
        place = self._intake.origin, shard, read[1]
        found = self._sums.get(place)
        if found is None:
            found = self._sums[place] = [windows, micros, {}]
        elif micros < found[1]:
            found[1] = micros
        self._add(found[2], rank, read[2])
        self._gathered += 1
        return self._flushed() if self._gathered >= GATHERED else ()

    def _add(self, sums: dict[int, int], rank: int, x: Any) -> None:
        """Add what an event counts of the key of this rank in its shard."""
        sums[rank] = sums.get(rank, 0) + x

    def finish_bundle(self) -> Iterable[windowed_value.WindowedValue]:
        return self._flushed()

    def _flushed(self) -> list[windowed_value.WindowedValue]:
        passed_at, sizes = self._intake.clock.passed_at, self._sizes
        made = []
        for (origin, shard, step), (windows, micros, sums) in self._sums.items():
            packed = placed(sums, passed_at(origin) + step, sizes[shard])
            made.append(_placed((shard, packed), micros, windows))
        self.start_bundle()
        return made


class SumTicks(VersionedDoFn):
    """Bounded: (key, value) to (group of keys, sums of one key's ticks), one a key and bundle.

    Sums are packed behind the place of their key in `keys` and the origin of their count. `alone`
    is as for `groups_of`.
    """

    def __init__(self, intake: TickIntake, keys: Sequence[str], alone: bool) -> None:
        self._intake, self._alone = intake, alone
        self._places = {key: place for place, key in enumerate(keys)}

    def start_bundle(self) -> None:
        self._gathered = 0
        # By the origin of a window: the window, and each key's ticks.
        self._sums: dict[int, tuple[Any, dict[str, dict[int, int]]]] = {}

    def process(self, element: Any, windowed: Any = _WindowedValue) -> Iterable[Any]:
        intake, windows = self._intake, windowed.windows
        read = intake.read(element, windowed.timestamp_micros, windows)
        if read is None:
            return ()
        key, step, x = read
        origin = intake.origin
        _, ticks = self._sums.setdefault(origin, (windows, {}))
        self._add(ticks.setdefault(key, {}), step, x)
        self._gathered += 1
        return self._flushed() if self._gathered >= GATHERED else ()

    def _add(self, sums: dict[int, int], step: int, x: Any) -> None:
        """Add what an event counts in a tick to the sums of its key."""
        sums[step] = sums.get(step, 0) + x

    def finish_bundle(self) -> Iterable[windowed_value.WindowedValue]:
        return self._flushed()

    def _flushed(self) -> list[windowed_value.WindowedValue]:
        made = []
        for origin, (windows, keys) in self._sums.items():
            for key, sums in keys.items():
                place = self._places[key]
                packed = PAIR.pack(place, origin) + pack_sums(sums)
                made.append(_placed((place if self._alone else 0, packed), origin, windows))
        self.start_bundle()
        return made


def groups_of(keys: int, alone: bool) -> range:
    """The groups in which so many keys are released, on the bounded path.

    One for all, so that releases come in the order of the keys: a grouping by key gives out first
    the keys that had events. With `alone` each key is a group of its own, for runners that spread
    groups over workers and whose collections have no order.
    """
    return range(keys if alone else 1)


class CountEachTick(VersionedDoFn):
    """Streaming: a release of each key at each tick, by one cell of state and one timer a shard.

    In the global window, whatever the windows of the clock: their counts follow one another, and
    the one cell goes from each to the next. A cell for each window would have to be there from the
    start, with a timer of its own, since nothing but a public seed may start it.

    The cell is large, and is read once a tick: what arrives goes to a bag that is only added to.
    Another bag holds what is pending of a backlog, and else is not touched.

    With `ahead`, timers of so many ticks to come are set, and each sets the one that far off. The
    nth of them to fire releases the nth of these ticks, in whatever order they do: as many ticks
    have ended.
    """

    ARRIVED = BagStateSpec("arrived", BytesCoder())
    STATE = ReadModifyWriteStateSpec("ticks", BytesCoder())
    LATER = BagStateSpec("later", BytesCoder())
    TIMER = TimerSpec("tick", TimeDomain.WATERMARK)

    def __init__(self, plan: Any) -> None:
        self._plan = plan

    @property
    def plan(self) -> Any:
        """What counts which events of which shards."""
        return self._plan

    def setup(self) -> None:
        plan, self._draws = self._plan, self._plan.draws("streaming")
        self._horizon = Horizon(plan.clock)
        self._shards: dict[int, TickShard] = {}

    def process(
        self,
        element: tuple[int, bytes],
        arrived: Any = beam.DoFn.StateParam(ARRIVED),
        cell: Any = beam.DoFn.StateParam(STATE),
        timer: Any = beam.DoFn.TimerParam(TIMER),
    ) -> None:
        shard, data = element
        if data != SEED:
            arrived.add(data)
            return
        mine, before = self._of(shard), cell.read()
        if before is None:
            # Only a seed starts a clock: an event that comes after state was cleared must not
            # start it again, and spend its budget a second time.
            before = mine.begin()
            cell.write(before)
        # Of a count that had come to an earlier stop, too.
        first = mine.released(before) + 1
        for tick in range(first, first + self._plan.ahead):
            self._set(timer, tick)

    @on_timer(TIMER)
    def release(
        self,
        shard: Any = _Key,
        window: Any = _Window,
        arrived: Any = beam.DoFn.StateParam(ARRIVED),
        cell: Any = beam.DoFn.StateParam(STATE),
        timer: Any = beam.DoFn.TimerParam(TIMER),
        later: Any = beam.DoFn.StateParam(LATER),
    ) -> Iterator[Any]:
        of_tick = self._of(shard).next(cell.read() or b"", arrived.read(), later)
        if of_tick is None:
            return
        arrived.clear()
        # State first: what is yielded must never be ahead of what is remembered.
        cell.write(of_tick.data)
        tick, micros, stddev = of_tick.number, of_tick.micros, of_tick.stddev
        self._set(timer, tick + self._plan.ahead)
        if shard == 0:  # all shards have the same ticks
            self._horizon.passed(tick)
        window = window_from(self._plan.clock, of_tick.origin)
        at, windows = min(micros, window.max_timestamp().micros), (window,)
        for key, value in of_tick.values:
            yield _placed(self._made(key, tick, micros, value, stddev), at, windows)

    def _of(self, shard: int) -> TickShard:
        """What counts a shard, on this worker."""
        if shard not in self._shards:
            self._shards[shard] = self._shard(shard)
        return self._shards[shard]

    def _set(self, timer: Any, tick: int) -> None:
        """Set the timer of a tick, numbered as for `Grid.passed_at`, if there is one."""
        place = self._plan.clock.place_of(tick)
        if place is None:
            return
        moment = Timestamp(micros=self._plan.clock.alarm(*place))
        if self._plan.ahead > 1:
            timer.set(moment, dynamic_timer_tag=str(tick))
        else:
            timer.set(moment)

    # What of it is of listed keys, and of numbers.

    def _shard(self, shard: int) -> TickShard:
        return KeyShard(self._plan, shard, self._draws)

    def _made(self, key: str, step: int, micros: int, value: Any, stddev: float) -> Any:
        """A release; its step is numbered over the whole clock."""
        plan = self._plan
        return Release(key, step, micros, value, stddev, name_of(plan), restart_of(plan, step))


class CountAllTicks(VersionedDoFn):
    """Bounded, after the grouping: all releases of a group's keys, a key in one vectorised call.

    By key, in the public order, then by time. The input is in the global window, so that no window
    comes first because it had events.
    """

    def __init__(self, plan: TickPlan) -> None:
        self._plan = plan

    def setup(self) -> None:
        plan, clock = self._plan, self._plan.clock
        self._draws = plan.draws("bounded")
        most = min(clock.steps, clock.all_ended(plan.until))  # of any count
        self._stddevs = plan.counter.stddevs(most).tolist()
        self._horizon = Horizon(clock)

    def process(self, element: tuple[int, Iterable[bytes]]) -> Iterator[Any]:
        (group, everything), plan = element, self._plan
        if group == 0:
            self._horizon.reached(plan.clock.all_ended(plan.until))
        found: dict[tuple[int, int], list[bytes]] = {}
        for packed in everything:
            if packed != SEED:
                found.setdefault(PAIR.unpack_from(packed), []).append(packed[PAIR.size :])
        for place in (group,) if plan.alone else range(len(plan.keys)):
            for origin in plan.clock.origins():
                if steps := plan.clock.ended(origin, plan.until):
                    sums = found.pop((place, origin), [])
                    yield from self._released(plan.keys[place], origin, sums, steps)

    def _released(
        self, key: str, origin: int, packed: Iterable[bytes], steps: int
    ) -> Iterator[Any]:
        """The first `steps` releases of a key's count."""
        clock, window = self._plan.clock, window_from(self._plan.clock, origin)
        xs = add_up(packed, steps, self._plan.cap)
        values = values_of(self._plan.counter, self._draws, key, window, xs)
        last, windows = window.max_timestamp().micros, (GlobalWindow(),)
        passed, name = clock.passed_at(origin), name_of(self._plan)
        restart = restart_of(self._plan, passed + 1)
        # A later count may have fewer.
        for step, (value, stddev) in enumerate(zip(values, self._stddevs, strict=False), start=1):
            micros = clock.end(origin, step)
            made = Release(key, passed + step, micros, value, stddev, name, restart)
            yield _placed(made, min(micros, last), windows)

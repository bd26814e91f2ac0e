"""The DoFns that count at the ticks of a clock: by timers, or all ticks of a key at once."""

from __future__ import annotations

import struct
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
from beam_dpcount.dofns.pending import add_pending, take_pending
from beam_dpcount.dofns.releases import Release
from beam_dpcount.dofns.rows import TO_PAIRS, TO_VALUES, RowElementError, is_row
from beam_dpcount.dofns.versions import VersionedDoFn
from beam_dpcount.errors import Error
from beam_dpcount.noise.replay import NO_ID
from beam_dpcount.states.all_ticks import TickPlan, name_of, restart_of, values_of
from beam_dpcount.states.codecs import tick_codec
from beam_dpcount.states.wire import PAIR, add_up, pack_sums

SEED = b""  # an event of weight 0, which makes a key known
_UNTIMED = MIN_TIMESTAMP.micros
_PASSED = struct.Struct("<q")
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


def origin_of(clock: Grid, window: Any) -> int:
    """When the count of a window starts, in microseconds."""
    return clock.start if clock.window is None else window.start.micros


def window_from(clock: Grid, origin: int) -> Any:
    """The window whose count starts at `origin`."""
    if clock.window is None:
        return GlobalWindow()
    return IntervalWindow(Timestamp(micros=origin), Timestamp(micros=clock.closing(origin)))


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


class SeedKeys(VersionedDoFn):
    """Streaming: a SEED of each key at each of these times, for keys without events."""

    def __init__(self, origins: Sequence[int]) -> None:
        self._origins = origins

    def process(self, key: str) -> Iterator[Any]:
        for origin in self._origins:
            yield TimestampedValue((key, SEED), Timestamp(micros=origin))


class ReadTicks(VersionedDoFn):
    """Streaming: (key, value) to (key, tick and sum, packed into 16 bytes), one a tick and bundle.

    Ticks are those of all windows, numbered one after the other: see `Grid.passed_at`.

    So a key with most of the events is summed where they are read, by many workers, before its one
    cell takes them. A sum has the time of its earliest event, and each tick its own: together with
    a late event, those that are in time would have its time, and might become late themselves.
    """

    def __init__(self, intake: TickIntake) -> None:
        self._intake = intake

    def start_bundle(self) -> None:
        self._gathered = 0
        # By origin of the window, key and tick: the windows, the earliest time, and the sum.
        self._sums: dict[tuple[int, str, int], list[Any]] = {}

    def process(self, element: Any, windowed: Any = _WindowedValue) -> Iterable[Any]:
        windows, micros = windowed.windows, windowed.timestamp_micros
        read = self._intake.read(element, micros, windows)
        if read is None:
            return ()
        place = self._intake.origin, read[0], read[1]
        found = self._sums.get(place)
        if found is None:
            self._sums[place] = [windows, micros, read[2]]
        else:
            found[2] += read[2]
            if micros < found[1]:
                found[1] = micros
        self._gathered += 1
        return self._flushed() if self._gathered >= GATHERED else ()

    def finish_bundle(self) -> Iterable[windowed_value.WindowedValue]:
        return self._flushed()

    def _flushed(self) -> list[windowed_value.WindowedValue]:
        passed_at = self._intake.clock.passed_at
        made = [
            _placed((key, pack_sums({passed_at(origin) + step: x})), micros, windows)
            for (origin, key, step), (windows, micros, x) in self._sums.items()
        ]
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
        sums = ticks.setdefault(key, {})
        sums[step] = sums.get(step, 0) + x
        self._gathered += 1
        return self._flushed() if self._gathered >= GATHERED else ()

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
    """Streaming: a release of each key at each tick, by one cell of state and one timer a key.

    In the global window, whatever the windows of the clock: their counts follow one another, and
    the one cell goes from each to the next. A cell for each window would have to be there from the
    start, with a timer of its own, since nothing but a public seed may start it.

    A bag holds what is pending of a backlog, and else is not touched.

    With `ahead`, timers of so many ticks to come are set, and each sets the one that far off. The
    nth of them to fire releases the nth of these ticks, in whatever order they do: as many ticks
    have ended.
    """

    STATE = ReadModifyWriteStateSpec("ticks", BytesCoder())
    LATER = BagStateSpec("later", BytesCoder())
    TIMER = TimerSpec("tick", TimeDomain.WATERMARK)

    def __init__(self, plan: TickPlan) -> None:
        self._plan = plan

    def setup(self) -> None:
        plan, self._draws = self._plan, self._plan.draws("streaming")
        self._codec = tick_codec(plan.counter, plan.clock, plan.keys, self._draws.digest_size)
        self._horizon = Horizon(plan.clock)

    def process(
        self,
        element: tuple[str, bytes],
        windowed: Any = _WindowedValue,
        cell: Any = beam.DoFn.StateParam(STATE),
        timer: Any = beam.DoFn.TimerParam(TIMER),
        later: Any = beam.DoFn.StateParam(LATER),
    ) -> None:
        plan, codec = self._plan, self._codec
        data = before = cell.read()
        if data is None:
            origin = plan.clock.origins()[0]
            digest = self._draws.begin(element[0], window_from(plan.clock, origin))
            front = self._front(plan.clock.passed_at(origin))
            data = codec.encode(plan.counter.init(), digest, front)
        released, _ = codec.open(data)
        passed, memory = self._parted(codec.memory_of(data))
        if element[1] == SEED:
            # Only a seed starts a clock: an event that comes after state was cleared must not
            # start it again, and spend its budget a second time.
            if before is None:
                cell.write(data)
            # Of a count that had come to an earlier stop, too.
            first = passed + released + 1
            for step in range(first, first + plan.ahead):
                self._set(timer, step)
            return
        step = self._tick_of(element[1])
        if step <= passed + released:
            # No later tick counts what belongs to another window.
            is_over = released >= plan.clock.steps_of(plan.clock.origin_after(passed))
            if not plan.fold or step <= passed or is_over:
                return
            step = passed + released + 1
        memory = self._noted(memory, step, element[1], later)
        cell.write(codec.with_memory(data, self._front(passed) + memory))

    @on_timer(TIMER)
    def release(
        self,
        key: Any = _Key,
        window: Any = _Window,
        cell: Any = beam.DoFn.StateParam(STATE),
        timer: Any = beam.DoFn.TimerParam(TIMER),
        later: Any = beam.DoFn.StateParam(LATER),
    ) -> Iterator[Any]:
        plan, codec, draws = self._plan, self._codec, self._draws
        clock, counter, data = plan.clock, plan.counter, cell.read() or b""
        state, digest = codec.decode(data), codec.digest_of(data)
        passed, memory = self._parted(codec.memory_of(data))
        steps = clock.steps_of(clock.origin_after(passed))
        if state[0] >= steps:  # the count of the next window
            passed += steps
            if clock.place_of(passed + 1) is None:
                return
            state = counter.init()
            digest = draws.begin(key, window_from(clock, clock.origin_after(passed)))
        origin, step = clock.origin_after(passed), state[0] + 1
        counted = window_from(clock, origin)
        x, said, memory = self._taken(memory, passed, step, later)
        digest = draws.follow(digest, NO_ID, said)
        state, value = counter.step_lattice(state, x, draws.noise(key, counted, digest))
        # State first: what is yielded must never be ahead of what is remembered.
        cell.write(codec.encode(state, digest, self._front(passed) + memory))
        self._set(timer, passed + step + plan.ahead)
        if key == plan.keys[0]:  # all keys have the same ticks
            self._horizon.passed(passed + step)
        micros = clock.end(origin, step)
        made = self._made(key, passed + step, micros, value, counter.stddev_at(state))
        yield _placed(made, min(micros, counted.max_timestamp().micros), (window,))

    # What of it is of numbers.

    def _tick_of(self, data: bytes) -> int:
        """The tick that sums are of, numbered as for `Grid.passed_at`."""
        step: int = PAIR.unpack_from(data)[0]
        return step

    def _noted(self, memory: bytes, step: int, data: bytes, later: object) -> bytes:
        """What is remembered with sums added to what is pending for a tick."""
        return add_pending(memory, step, PAIR.unpack(data)[1], later)

    def _taken(self, memory: bytes, passed: int, step: int, later: Any) -> tuple[Any, bytes, bytes]:
        """What a tick counts, the same for its history, and what remains to be remembered."""
        x, memory = take_pending(memory, passed + step, self._plan.cap, later)
        return x, PAIR.pack(step, x), memory

    def _made(self, key: str, step: int, micros: int, value: Any, stddev: float) -> Any:
        """A release; its step is numbered over the whole clock."""
        plan = self._plan
        return Release(key, step, micros, value, stddev, name_of(plan), restart_of(plan, step))

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

    def _front(self, passed: int) -> bytes:
        """What is before pending sums, where there are windows: which one the state is of."""
        return b"" if self._plan.clock.window is None else _PASSED.pack(passed)

    def _parted(self, memory: bytes) -> tuple[int, bytes]:
        """How many ticks there were in windows before, and what is pending."""
        if self._plan.clock.window is None:
            return 0, memory
        return _PASSED.unpack_from(memory)[0], memory[_PASSED.size :]


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

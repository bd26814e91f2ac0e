"""Counts at ticks and windows of local days, through pipelines, against the calendar."""

from __future__ import annotations

import datetime as dt
import pickle
from collections.abc import Iterator
from operator import itemgetter
from typing import Any
from zoneinfo import ZoneInfo

import apache_beam as beam
import pytest
from apache_beam.transforms.window import GlobalWindow, IntervalWindow
from apache_beam.utils.timestamp import Timestamp

import beam_dpcount as dp
from beam_dpcount.counters.clock import Clock, Restart, View
from beam_dpcount.counters.grid import Runs
from beam_dpcount.dofns.ticks import CountEachTick, has_count
from beam_dpcount.dofns.windows import UnevenWindows, window_from, windows_of, windows_of_ticks
from beam_dpcount.states.all_ticks import TickPlan
from beam_dpcount.states.codecs import tick_codec
from beam_dpcount.states.envelope import StateError
from beam_dpcount.states.pending import placed
from beam_dpcount.transforms.ticks import TickNumbers
from benchmarks.cells import TickShards
from tests.runners import SECOND, Row, each_path, feed, run, run_stream

EXACT = dp.ApproxDP(1e9, 1e-6)
PARIS = ZoneInfo("Europe/Paris")
HOUR = 3600 * SECOND
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
PEOPLE = dp.Users(itemgetter("who"), 10_000, per_key=60)


def at(text: str) -> int:
    """A time in Paris, in microseconds."""
    moment = dt.datetime.fromisoformat(text).replace(tzinfo=PARIS)
    return (moment - EPOCH) // dt.timedelta(microseconds=1)


# Clocks go back on 26 October 2025, and forward on 30 March.
DAYS = Clock("1d", start="2025-10-24", ticks=5, zone="Europe/Paris")
HOURS = Clock("1h", start="2025-03-29T05:00", stop="2025-03-31T09:00", zone="Europe/Paris")
AUTUMN = Clock("2h", start="2025-10-25T00:00", ticks=20, zone="UTC")
VIEWS: dict[str, Clock | View] = {
    "days": DAYS,
    "pairs of days": DAYS.restart(2),
    "hours of a day": HOURS.restart("1d"),
}
# Windows, by the calendar: when each begins, and its ends of ticks.
WINDOWS = {
    "days": [(at("2025-10-24"), [at(f"2025-10-{day}") for day in range(25, 30)])],
    "pairs of days": [
        (at("2025-10-24"), [at("2025-10-25"), at("2025-10-26")]),
        (at("2025-10-26"), [at("2025-10-27"), at("2025-10-28")]),
        (at("2025-10-28"), [at("2025-10-29"), at("2025-10-30")]),
    ],
    "hours of a day": [
        (begin, [begin + hour * HOUR for hour in range(1, hours + 1)])
        for begin, hours in (
            (at("2025-03-29T05:00"), 19),
            (at("2025-03-30"), 23),
            (at("2025-03-31"), 24),
        )
    ],
}


def rows_of(name: str) -> list[Row]:
    """Events every 47 minutes, from before the clock until after it."""
    grid = VIEWS[name].clock.grid
    times = range(grid.start - 5 * HOUR, grid.stop + 5 * HOUR, 47 * 60 * SECOND)
    return [
        ("ab"[i % 3 == 0], {"who": f"p{i % 5}", "n": 1}, micros) for i, micros in enumerate(times)
    ]


def by_hand(name: str, key: str, distinct: bool = False) -> Iterator[tuple[int, int, int]]:
    """Step, end and count of each release."""
    grid, step = VIEWS[name].clock.grid, 0
    for begin, ends in WINDOWS[name]:
        for end in ends:
            step += 1
            there = [
                row[1]["who"]
                for row in rows_of(name)
                if row[0] == key and begin <= row[2] < min(end, grid.stop)
            ]
            yield step, end, len(set(there)) if distinct else len(there)


def counting(view: Clock | View, kind: str, path: str, keys: Any, **more: Any) -> Any:
    """A count at the ticks of a view."""
    several = [dp.Count(), dp.Rate("n > 0")]
    what, users = {
        "numbers": (dp.Count(), None),
        "people's": (dp.Count(), PEOPLE),
        "vectors": (several, None),
        "people's vectors": (several, PEOPLE),
        "distinct": (dp.People(), dp.Users("who", 99)),
    }[kind]
    given: dict[str, Any] = {"budget": EXACT, "keys": keys, "users": users, "path": path}
    return dp.TickCount(clock=view, what=what, **given | more)


@each_path
@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("kind", ["numbers", "people's", "vectors", "people's vectors", "distinct"])
def test_each_local_day_is_counted(path: str, name: str, kind: str) -> None:
    count = counting(VIEWS[name], kind, path, ["a", "b"])
    seen = run(lambda p: p | feed(rows_of(name)) | count).outputs[0]
    expected = [
        (key, *numbers) for key in "ab" for numbers in by_hand(name, key, kind == "distinct")
    ]
    releases = [one.value for one in seen]
    if "vectors" in kind:
        starts = [begin for begin, ends in WINDOWS[name] for begin in [begin, *ends[:-1]]]
        assert [release.start for release in releases] == 2 * starts
        found = [(r.key, r.step, r.timestamp, round(r.values["count"])) for r in releases]
    else:
        found = [(r.key, r.step, r.timestamp, round(r.value)) for r in releases]
    assert found == expected
    assert {one.window for one in seen} == {str(GlobalWindow())}
    assert count.counter.horizon == max(len(ends) for _, ends in WINDOWS[name])


@pytest.mark.long
@each_path
@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("kind", ["numbers", "vectors", "people's"])
def test_keys_that_nobody_listed(path: str, name: str, kind: str) -> None:
    count = counting(VIEWS[name], kind, path, dp.SelectKeys(shards=1))
    releases = run(lambda p: p | feed(rows_of(name)) | count).releases
    found = {
        (r.key, r.step, r.timestamp): round(r.values["count"] if kind == "vectors" else r.value)
        for r in releases
    }
    expected = {(key, *n[:2]): n[2] for key in "ab" for n in by_hand(name, key)}
    assert found.items() <= expected.items()
    enough = 2 if kind != "people's" else 100 if name == "days" else 10_000
    assert found.keys() >= {place for place, value in expected.items() if value > enough}


@pytest.mark.parametrize("name", VIEWS)
def test_only_ticks_that_have_ended_are_released(name: str) -> None:
    ends = [end for _, window in WINDOWS[name] for end in window]
    until = ends[len(ends) // 2] + HOUR // 2
    count = counting(VIEWS[name], "numbers", "bounded", ["a", "b"], until=Timestamp(micros=until))
    releases = run(lambda p: p | feed(rows_of(name)) | count).releases
    ended = len(ends) // 2 + 1
    assert (count.ticks_released, count.ticks_left) == (ended, len(ends) - ended)
    assert [(r.key, r.step, round(r.value)) for r in releases] == [
        (key, step, value)
        for key in "ab"
        for step, end, value in by_hand(name, key)
        if end <= until
    ]


@pytest.mark.parametrize("keys", [["a", "b"], dp.SelectKeys(shards=1)], ids=["listed", "selected"])
@pytest.mark.parametrize("name", VIEWS)
def test_a_later_run_repeats_what_an_earlier_one_released(
    monkeypatch: pytest.MonkeyPatch, name: str, keys: Any
) -> None:
    """Under one secret, and whatever until is."""
    monkeypatch.setenv("COUNTING_SECRET", "0123456789abcdef" * 4)
    grid = VIEWS[name].grid

    def released(until: int) -> dict[tuple[str, int], float]:
        entropy = dp.ReplayableEntropy("COUNTING_SECRET", run_id="x")
        how: dict[str, Any] = {"until": Timestamp(micros=until), "entropy": entropy}
        how["budget"] = dp.ApproxDP(10, 1e-6)
        count = counting(VIEWS[name], "numbers", "bounded", keys, **how)
        found = run(lambda p: p | feed(rows_of(name)) | count).releases
        return {(r.key, r.step): r.value for r in found}

    borders = grid.borders(1, grid.ticks)
    whole, part = released(borders[-1]), released(borders[-3])
    assert part
    assert part == {place: value for place, value in whole.items() if place[1] <= grid.ticks - 2}


# In a stream


class Bench:
    """A CountEachTick of one key at a view, without a runner."""

    def __init__(self, view: Clock | View, ahead: int = 1) -> None:
        self.count = TickNumbers(EXACT, 1, 0, horizon=view.grid.steps, keys=["a"])
        counter: Any = self.count.counter
        cap = counter.change.largest(counter.unit)
        entropy = self.count._entropy
        plan = TickPlan(counter, view.grid, ["a"], cap, True, entropy, ahead=ahead)
        self.shard = TickShards(CountEachTick(plan))
        (self.cell,), (self.timer,) = self.shard.cells, self.shard.timers
        self.shard.seed()

    def event(self, tick: int, x: int) -> None:
        self.shard.take((0, placed({0: x}, tick, 1)))

    def fire(self) -> list[Any]:
        return self.shard.release()


def test_no_event_of_a_short_window_counts_in_the_next() -> None:
    """The window of 30 March has 23 ticks. Its counter, made for 24, has one more step."""
    bench = Bench(HOURS.restart("1d"))
    for _ in range(19 + 23):
        bench.fire()
    bench.event(19 + 23, 5)  # too late for the last tick of that window
    bench.event(19 + 24, 2)
    (first,) = bench.fire()
    assert (first.step, first.timestamp, round(first.value)) == (43, at("2025-03-31T01:00"), 2)
    releases = [release for _ in range(23) for release in bench.fire()]
    assert [release.step for release in releases] == list(range(44, 67))
    assert [round(release.value) for release in releases] == [2] * 23
    assert bench.fire() == []


@pytest.mark.parametrize("name", VIEWS)
def test_a_timer_fires_at_each_end_and_after_none(name: str) -> None:
    bench = Bench(VIEWS[name])
    for begin, ends in WINDOWS[name]:
        assert begin < ends[0]
        for end in ends:
            # Some runners refuse timers beyond the last millisecond of a window.
            last = end == ends[-1] and isinstance(VIEWS[name], Restart)
            assert bench.timer.at == end - 1000 * last
            bench.timer.at = None
            assert [release.timestamp for release in bench.fire()] == [end]
    assert bench.timer.at is None


def test_a_state_of_another_calendar_is_refused() -> None:
    bench = Bench(DAYS.restart(2))
    counter: Any = bench.count.counter
    for grid in (DAYS.grid, HOURS.restart("1d").grid):
        with pytest.raises(StateError, match="belongs to another clock"):
            tick_codec(counter, grid, ["a"]).decode(bench.cell.data)
    assert tick_codec(counter, DAYS.restart("2d").grid, ["a"]).decode(bench.cell.data)[0] == 0


def test_a_stream_over_a_change_of_clocks() -> None:
    """Late events of a day count at the next tick of its window, or not at all."""
    count = counting(DAYS.restart(2), "numbers", "auto", ["a"])
    parts: list[Any] = [
        ("a", {"n": 1}, at("2025-10-26T12:00")),
        at("2025-10-26T23:30") // SECOND,
        ("a", {"n": 1}, at("2025-10-26T23:45")),  # an hour later than without the change
        at("2025-10-27T00:30") // SECOND,
        ("a", {"n": 1}, at("2025-10-26T13:00")),  # late: folded into 27 October
        at("2025-10-28T00:30") // SECOND,
        ("a", {"n": 1}, at("2025-10-27T13:00")),  # too late for its window
        ("a", {"n": 1}, at("2025-10-28T13:00")),
        at("2025-10-30T01:00") // SECOND,
    ]
    releases = run_stream(count, *parts).releases
    assert [(r.step, round(r.value)) for r in releases] == [
        *((1, 0), (2, 0), (3, 2), (4, 3), (5, 1), (6, 1))
    ]


# Windows


def test_windows_lie_between_their_borders() -> None:
    grid = HOURS.restart("1d").grid
    windows: Any = windows_of(grid)
    again = pickle.loads(pickle.dumps(windows))
    assert again == windows == UnevenWindows(Runs.of([*grid.origins(), at("2025-04-01")]))
    assert hash(again) == hash(windows)
    assert windows != windows_of(DAYS.restart(2).grid)
    coder = windows.get_window_coder()
    for begin, ends in WINDOWS["hours of a day"]:
        window = IntervalWindow(Timestamp(micros=begin), Timestamp(micros=ends[-1]))
        assert coder.decode(coder.encode(window)) == window == window_from(grid, begin)
        assert has_count(grid, window)
        for micros in (begin, ends[-1] - 1):
            assert assigned(again, micros) == [window]
    for micros in (grid.start - 1, at("2025-04-01")):
        assert assigned(windows, micros) == []
    early = IntervalWindow(Timestamp(micros=grid.start), Timestamp(micros=grid.start + 24 * HOUR))
    assert not has_count(grid, early)
    assert not has_count(grid, GlobalWindow())


def assigned(windows: Any, micros: int) -> list[Any]:
    context = beam.transforms.window.WindowFn.AssignContext(Timestamp(micros=micros))
    found: list[Any] = windows.assign(context)
    return found


@pytest.mark.parametrize("view", [DAYS, HOURS.restart("1d"), AUTUMN], ids=["1d", "1h", "2h"])
def test_the_release_of_a_tick_lies_in_its_window(view: Clock | View) -> None:
    grid, windows = view.grid, windows_of_ticks(view.grid)
    ends = list(grid.borders(1, grid.ticks))
    found = [assigned(windows, end) for end in ends[1:]]
    assert len({window for (window,) in found}) == len(ends) - 1
    fine = Clock(0.0005, start=0, ticks=90_000, zone="Europe/Paris").grid
    with pytest.raises(ValueError, match=r"whole milliseconds, but ticks are of 0.0005 s"):
        windows_of_ticks(fine)


def test_releases_can_be_grouped_by_their_local_day() -> None:
    count = counting(DAYS, "numbers", "streaming", ["a", "b"])

    def built(pipeline: beam.Pipeline) -> Any:
        releases = pipeline | feed(rows_of("days")) | count
        ticks = releases | beam.WindowInto(count.tick_windows()) | beam.Map(lambda r: (0, r.key))
        return ticks | beam.GroupByKey() | beam.MapTuple(lambda _, keys: "".join(sorted(keys)))

    assert run(built).releases == ["ab"] * 5


def test_windows_of_beam_do_not_follow_local_days() -> None:
    count = counting(DAYS, "numbers", "bounded", ["a"]).engine
    windowed = beam.WindowInto(beam.transforms.window.FixedWindows(86_400))
    with pytest.raises(ValueError, match="do not follow 1d in Europe/Paris: use the global window"):
        run(lambda p: p | feed(rows_of("days")) | windowed | count)


def test_what_is_printed_says_that_ticks_are_local_days() -> None:
    count = counting(DAYS, "numbers", "bounded", ["a"])
    assert "clock: 5 ticks of 1d in Europe/Paris from 2025-10-23T22:00:00Z" in str(count)
    count = counting(HOURS.restart("1d"), "numbers", "bounded", ["a"])
    assert count.display_data()["window"] == "up to 24 ticks, 1d in Europe/Paris"


def test_a_gap_is_of_ticks_of_the_longest_length() -> None:
    """Two events 49 hours apart may lie in neighbouring days of 24 and 25 hours, or two apart."""
    for hours, ticks in ((49, 1), (50, 2), (24, 0), (25, 1)):
        people = dp.Users("who", 3, per_key=3, gap=3600 * hours)
        count = counting(DAYS, "numbers", "auto", ["a"], users=people)
        assert count.counter.change.gap == ticks

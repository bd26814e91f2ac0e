"""Clock and its views, against the time zone database and against definitions."""

from __future__ import annotations

import datetime as dt
import itertools
import pickle
from operator import lt
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import beam_dpcount as dp
from beam_dpcount.counters import clock as clocks
from beam_dpcount.counters.clock import Clock, clock_of
from beam_dpcount.counters.grid import Grid, Runs, UnevenGrid, grid_of
from beam_dpcount.counters.moments import instant, time_of_event

examples = settings(max_examples=100, deadline=None, derandomize=True, database=None)
HOUR = 3_600_000_000
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)

# Three years of each: clocks changed at midnight, or over it, by half an hour, offsets of 30 and 45
# minutes, days left out, changes given up, Ramadan.
ZONES = {
    "Europe/Paris": "2025-01-01",
    "America/New_York": "2023-01-01",
    "America/Sao_Paulo": "2017-01-01",  # at midnight, until 2019
    "Asia/Beirut": "2021-06-01",  # at midnight
    "America/Havana": "2024-01-01",  # from 1:00 back to midnight, which comes twice
    "America/St_Johns": "2009-01-01",  # at 0:01, so that the day before comes back
    "Australia/Lord_Howe": "2024-01-01",
    "Asia/Kathmandu": "2024-01-01",
    "Pacific/Apia": "2010-01-01",  # 30 December 2011 is left out
    "Africa/Casablanca": "2024-01-01",
    "America/Toronto": "1918-01-01",  # in 1919 from 23:30 to 0:30
    "UTC": "2024-01-01",
}


def local_dates(zone: str, start: int, stop: int, step: int) -> tuple[np.ndarray, list[dt.date]]:
    """Times between two, and the day that clocks in a zone show at each."""
    times = np.arange(start, stop, step)
    tzinfo = ZoneInfo(zone)
    shown = [(EPOCH + dt.timedelta(microseconds=at)).astimezone(tzinfo) for at in times.tolist()]
    return times, [moment.date() for moment in shown]


def numbered(dates: list[dt.date]) -> list[int]:
    """Of each of some times, which of the days so far it is in; a day that comes back is none."""
    latest = list(itertools.accumulate(dates, max))
    return list(itertools.accumulate(map(lt, latest, latest[1:]), initial=1))


@pytest.mark.parametrize("zone", ZONES)
def test_ticks_of_days_are_those_of_the_calendar(zone: str) -> None:
    """Every 15 minutes of three years."""
    first = dt.date.fromisoformat(ZONES[zone])
    stop = first.replace(year=first.year + 3).isoformat()
    days = Clock("1d", start=ZONES[zone], stop=stop, zone=zone)
    times, dates = local_dates(zone, days.grid.start, days.grid.stop, HOUR // 4)
    assert days.tick_of(times).tolist() == numbered(dates)
    assert days.grid.steps == len(set(dates))
    assert [days.tick_of(at) for at in times[:500].tolist()] == numbered(dates)[:500]
    # Weeks are every seventh day, whatever is left out.
    weeks = Clock("1w", start=ZONES[zone], stop=stop, zone=zone)
    found = weeks.tick_of(times).tolist()
    latest = list(itertools.accumulate(dates, max))
    assert found == [1 + (date - first).days // 7 for date in latest]


@pytest.mark.long
@pytest.mark.parametrize("zone", ZONES)
def test_counts_start_anew_at_local_midnights(zone: str) -> None:
    """From a time within a day, every 15 minutes of 13 months: ticks of a quarter of an hour."""
    start = Clock("1d", start=ZONES[zone], ticks=1, zone=zone).grid.start + 8 * HOUR
    count = 400 * 96
    view = Clock("15m", start=start // 1_000_000, ticks=count, zone=zone).restart("1d")
    grid = view.grid
    times, dates = local_dates(zone, grid.start, grid.stop, HOUR // 4)
    windows = numbered(dates)
    origins = list(grid.origins())
    assert len(origins) == windows[-1]
    seen: dict[int, int] = {}
    for at, window in zip(times.tolist(), windows, strict=True):
        origin = origins[window - 1]
        seen[window] = seen.get(window, 0) + 1
        assert origin <= at < grid.closing(origin)
        assert grid.step_at(at, origin) == seen[window]
        if window > 1:
            assert grid.step_at(at, origins[window - 2]) <= grid.steps_of(origins[window - 2])
    assert grid.steps == view.ticks == max(map(grid.steps_of, origins))
    del seen[windows[-1]]  # it goes on beyond the clock's end
    assert all(grid.steps_of(origins[window - 1]) == many for window, many in seen.items())
    assert 96 <= grid.steps <= 100
    assert view.name == "restart 1d"
    assert view.suffix == ""


def test_hourly_ticks_of_days_with_23_to_25_hours() -> None:
    hours = Clock("1h", start="2026-03-28", stop="2026-10-27", zone="Europe/Paris")
    view = hours.restart("1d")
    many = [view.grid.steps_of(origin) for origin in view.grid.origins()]
    assert (many[0], many[1], many[-1], many[-2]) == (24, 23, 24, 25)
    assert set(many[2:-2]) == {24}
    assert view.ticks == view.grid.steps == 25
    assert hours.grid == clock_of(3600, "2026-03-27T23:00:00Z", "2026-10-26T23:00:00Z")


def test_a_day_that_a_zone_left_out_has_no_tick() -> None:
    days = Clock("1d", start="2011-12-28", ticks=4, zone="Pacific/Apia")
    shown = [
        (EPOCH + dt.timedelta(microseconds=days.end_of(tick))).astimezone(ZoneInfo("Pacific/Apia"))
        for tick in range(5)
    ]
    assert [moment.day for moment in shown] == [28, 29, 31, 1, 2]
    with pytest.raises(ValueError, match="that Pacific/Apia left out: give start='2011-12-31'"):
        Clock("1d", start="2011-12-30", ticks=4, zone="Pacific/Apia")


def test_a_day_begins_when_clocks_first_show_it() -> None:
    for zone, day, first in (
        ("America/Sao_Paulo", "2018-11-04", "2018-11-04T01:00:00-02:00"),
        ("America/Toronto", "1919-03-31", "1919-03-31T00:30:00-04:00"),
        ("America/Havana", "2024-11-03", "2024-11-03T00:00:00-04:00"),
        ("America/St_Johns", "2010-11-07", "2010-11-07T00:00:00-02:30"),
    ):
        day_of = Clock("1d", start=day, ticks=1, zone=zone)
        assert day_of.grid == Clock("1d", start=first, ticks=1, zone=zone).grid


# Whatever the clock


@st.composite
def grids(draw: st.DrawFn) -> Grid:
    """Uneven grids of milliseconds, with and without windows."""
    lengths = draw(st.lists(st.integers(1, 9).map(lambda n: 1000 * n), min_size=2, max_size=30))
    start = 1000 * draw(st.integers(-(10**6), 10**6))
    bounds = [start, *(start + total for total in itertools.accumulate(lengths))]
    starts = sorted({start, *draw(st.lists(st.sampled_from(bounds[:-1]), max_size=5))})
    last = bounds[bounds.index(starts[-1]) + 1]
    stop = draw(st.integers(last - 999, bounds[-1]))
    return grid_of(start, stop, bounds, starts, "test")


@examples
@given(grids(), st.integers(0, 10**9), st.integers(-(10**6), 10**6))
def test_every_time_is_in_one_tick(grid: Grid, part: int, apart: int) -> None:
    length = grid.stop - grid.start
    micros = grid.start + part % length
    (origin,) = (at for at in grid.origins() if at <= micros < grid.closing(at))
    step, tick = grid.step_at(micros, origin), grid.tick_of(micros)
    assert 1 <= step <= grid.steps_of(origin) <= grid.steps
    assert grid.end(origin, step - 1) <= micros < grid.end(origin, step)
    assert tick == grid.passed_at(origin) + step
    assert grid.place_of(tick) == (origin, step)
    assert grid.origin_after(grid.passed_at(origin)) == origin
    assert list(grid.borders(tick, 1)) == [grid.end(origin, step - 1), grid.end(origin, step)]
    for outside in (grid.start - 1 - abs(apart), grid.stop + abs(apart)):
        assert grid.tick_of(outside) == 0 == grid.step_at(outside, origin)
    ended = grid.ended(origin, micros)
    assert ended == step - 1
    assert grid.all_ended(micros) == tick - 1
    assert grid.last_end(micros) == grid.end(origin, step - 1)
    until = grid.steps_from(origin, micros)
    assert until(micros) == 0
    alarm = grid.alarm(origin, step)
    if grid.window is None:
        assert 0 <= alarm - grid.end(origin, step) < 1000
    else:
        assert alarm == min(grid.end(origin, step), grid.closing(origin) - 1000)


@examples
@given(grids())
def test_counts_follow_one_another(grid: Grid) -> None:
    origins = list(grid.origins())
    assert [grid.closing(at) for at in origins[:-1]] == origins[1:]
    assert sum(map(grid.steps_of, origins)) == grid.ticks == grid.all_ended(None)
    assert max(map(grid.steps_of, origins)) == grid.steps
    places = [grid.place_of(tick) for tick in range(grid.ticks + 2)]
    assert places == [
        None,
        *((at, step) for at in origins for step in range(1, grid.steps_of(at) + 1)),
        None,
    ]
    ends = [grid.end(at, step) for at, step in places[1:-1] if at is not None]  # type: ignore[misc]
    assert list(grid.borders(1, grid.ticks)) == [grid.start, *ends]
    assert max(b - a for a, b in itertools.pairwise([grid.start, *ends])) == grid.tick
    times = np.arange(grid.start - 2000, grid.stop + 2000, 500)
    assert grid.ticks_of(times).tolist() == [grid.tick_of(at) for at in times.tolist()]
    again = pickle.loads(pickle.dumps(grid))
    assert again == grid
    assert (again.fingerprint, repr(again)) == (grid.fingerprint, repr(grid))


@examples
@given(st.lists(st.integers(-50, 200), unique=True, min_size=1).map(sorted), st.integers(-60, 210))
def test_runs_are_their_numbers(numbers: list[int], x: int) -> None:
    runs = Runs.of(numbers)
    assert list(runs) == numbers == [runs[i] for i in range(len(runs))]
    assert (runs[-1], len(runs), runs[1:3]) == (numbers[-1], len(numbers), tuple(numbers[1:3]))
    assert runs.rank(x) == sum(number <= x for number in numbers) == runs.ranks(np.array([x]))[0]
    assert (x in runs) == (x in numbers)
    if len(numbers) > 1:
        assert runs.longest == max(b - a for a, b in itertools.pairwise(numbers))
    with pytest.raises(IndexError):
        runs[len(numbers)]
    assert Runs.of(range(numbers[0], numbers[0] + 30, 3)) == Runs.of(
        list(range(numbers[0], numbers[0] + 30, 3))
    )


def test_a_clock_without_a_zone_is_the_grid_of_before() -> None:
    """To the bit: the text under which noise is drawn, and the fingerprint of states."""
    hours = Clock("1h", start="1970-01-02T00:00:00Z", ticks=48)
    assert hours.grid == clock_of(3600, 86_400, horizon=48)
    assert hours.grid == Clock(3600, 86_400, stop=86_400 * 3).grid
    assert repr(hours.grid) == (
        "Clock(tick=3600000000, start=86400000000, stop=259200000000, steps=48, window=None, "
        "offset=0)"
    )
    assert hours.grid.fingerprint == "(3600000000, 86400000000, None, 0, 48)"
    anew = hours.restart("1d").grid
    assert anew == hours.grid.in_windows(24 * HOUR, 24 * HOUR)
    assert repr(anew) == (
        "Clock(tick=3600000000, start=86400000000, stop=259200000000, steps=24, "
        "window=86400000000, offset=0)"
    )
    # A zone whose days are equally long costs nothing.
    plain = Clock("1d", start="1970-01-02T00:00:00Z", ticks=48, zone="UTC")
    assert type(plain.grid) is Grid
    assert plain.grid == Clock(86_400, 86_400, ticks=48).grid


@examples
@given(st.integers(-(10**12), 10**12), st.integers(1, 10**7), st.integers(1, 500), st.data())
def test_ticks_of_arrays_and_of_single_times_agree(
    start: int, tick: int, ticks: int, data: st.DataObject
) -> None:
    grid = Grid(tick, start, start + ticks * tick - tick // 2, ticks)
    times = data.draw(st.lists(st.integers(start - tick, start + (ticks + 1) * tick), min_size=1))
    expected = [grid.step_at(at, start) for at in times]
    assert grid.ticks_of(np.array(times)).tolist() == expected
    assert [grid.tick_of(at) for at in times] == expected


# Data, not the database


def test_a_clock_asks_no_database_once_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    days = Clock("1d", start="2026-03-01", ticks=60, zone="Europe/Paris")
    anew = Clock("1h", start="2026-03-01", ticks=1400, zone="Europe/Paris").restart("1d")
    packed = pickle.dumps((days, anew, anew.grid))
    assert len(packed) < 1500

    def absent(*_: Any) -> Any:
        raise AssertionError("asked")

    monkeypatch.setattr(clocks, "zone_of", absent)
    monkeypatch.setattr(clocks, "local_time", absent)
    monkeypatch.setattr(clocks, "day_starts", absent)
    again, view, grid = pickle.loads(packed)
    assert (again, view, grid) == (days, anew, anew.grid)
    assert [again.end_of(tick) for tick in range(61)] == [days.end_of(tick) for tick in range(61)]
    assert again.last("1w").ticks == 7
    assert repr(view.grid) == repr(anew.grid)


def test_another_database_is_another_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its states and its noise are refused, as its ticks may have other events."""

    def made() -> tuple[Grid, Grid]:
        days = Clock("1d", start="2026-03-01", ticks=60, zone="Europe/Athens")
        hours = Clock("1h", start="2026-03-01", ticks=1400, zone="Europe/Athens")
        return days.grid, hours.restart("1d").grid

    before = made()
    # Its clocks are changed two days earlier.
    monkeypatch.setattr(clocks, "zone_of", lambda name: ZoneInfo("Asia/Jerusalem"))
    for old, new in zip(before, made(), strict=True):
        assert isinstance(old, UnevenGrid)
        assert (old.start, old.ticks, old.steps) == (new.start, new.ticks, new.steps)
        assert old.fingerprint != new.fingerprint
        assert repr(old) != repr(new)


def test_fingerprints_tell_uneven_grids_apart() -> None:
    def grid(**options: Any) -> Grid:
        given = {"tick": "1h", "start": "2026-03-28", "ticks": 100, "zone": "Europe/Paris"}
        return Clock(**{**given, **options}).restart("1d").grid

    others = [
        grid(),
        grid(zone="Europe/Athens", start="2026-03-28T00:00:00+01:00"),
        grid(tick="30m", ticks=200),
        grid(ticks=150),
        grid(start="2026-03-28T05:00"),
        Clock("1d", start="2026-03-28", ticks=5, zone="Europe/Paris").grid,
        Clock("1d", start="2026-03-28", ticks=5, zone="Europe/Paris").restart(2).grid,
    ]
    assert len({made.fingerprint for made in others}) == len(others)
    assert grid().fingerprint == grid(ticks=99).fingerprint  # the last window goes on to its end
    assert repr(grid()) != repr(grid(ticks=99))


# Without an end


def test_a_clock_without_an_end() -> None:
    hours = Clock("1h", start="2026-01-15T00:00:00Z")
    assert hours.is_endless
    assert hours.horizon is None
    assert hours.each().name == "each"
    assert hours.last(1000).ticks == 1000
    for view in (hours.restart(24), hours.restart(1000), hours.restart("1w")):
        grid = view.grid
        assert instant(grid.closing(grid.origins()[-1])) <= "9999-12-31T23:00:00Z"
        assert grid.ticks > 10**7
    days = Clock("1d", start="2026-01-15", zone="Europe/Paris")
    assert days.grid.steps == 36_525
    assert len(pickle.dumps(days)) < 10_000  # a century in runs
    daily = Clock("1m", start="2026-01-15", zone="Europe/Paris").restart("1d")
    assert daily.ticks == 25 * 60
    assert len(daily.grid.origins()) == 36_525
    assert not Clock("1h", start=0, stop=7200).is_endless
    assert Clock("1h", start=0, stop=7200).horizon == 2


# Views


HOURS = Clock("1h", start="2026-01-15T00:00:00Z", ticks=48)
PARIS = Clock("1h", start="2026-03-28", ticks=480, zone="Europe/Paris")
DAYS = Clock("1d", start="2026-03-28", ticks=48, zone="Europe/Paris")
WEEKS = Clock("2w", start="2026-03-28", ticks=48, zone="Europe/Paris")


def test_views_have_names() -> None:
    views = (HOURS, HOURS.each(), HOURS.last(7), HOURS.restart(24))
    assert [view.name for view in views] == ["so far", "each", "last 7", "restart 24"]
    assert [view.suffix for view in views] == ["", "_each", "_last_7", ""]
    assert all(view.clock is HOURS for view in views)
    assert dp.Clock is Clock
    assert repr(HOURS) == "Clock(tick='1h', start='2026-01-15T00:00:00Z', ticks=48)"


@pytest.mark.parametrize(
    ("clock", "length", "ticks"),
    [
        (HOURS, 7, 7),
        (HOURS, np.int64(7), 7),
        (HOURS, "7", 7),
        (HOURS, "7h", 7),
        (HOURS, "420m", 7),
        (HOURS, "1d", 24),
        (HOURS, dt.timedelta(days=1), 24),
        (PARIS, "24h", 24),
        (PARIS, dt.timedelta(hours=36), 36),
        (DAYS, "7d", 7),
        (DAYS, "1w", 7),
        (DAYS, 7, 7),
        (WEEKS, "4w", 2),
        (WEEKS, "28d", 2),
        (Clock(3600, 0, 48), "2h", 2),
    ],
    ids=str,
)
def test_one_rule_of_units(clock: Clock, length: Any, ticks: int) -> None:
    assert clock.ticks_in(length, "gap") == ticks
    assert clock.last(length) == clock.last(ticks)
    assert clock.last(length).name == f"last {ticks}"


@pytest.mark.parametrize(
    ("clock", "length", "reason"),
    [
        (HOURS, 0, r"gap must be a whole number of ticks from 1, got 0: give gap=7, or"),
        (HOURS, -1, "whole number of ticks from 1, got -1"),
        (HOURS, 2.5, r"got 2.5: give gap=7, or as a duration such as gap=.1d."),
        (HOURS, True, "got True"),
        (HOURS, None, "got None"),
        (HOURS, "2.5", "got '2.5'"),
        (HOURS, "seven", "must be a positive time of whole microseconds, got 'seven'"),
        (HOURS, "90m", "is '90m', which is not a whole number of ticks of 1h"),
        (HOURS, dt.timedelta(minutes=1), "not a whole number of ticks"),
        (PARIS, "1d", "days of Europe/Paris, not all of which have as many ticks.*gap=.24h."),
        (PARIS, "1.5d", "is '1.5d', which is not a whole number of days of Europe/Paris"),
        (PARIS, dt.timedelta(days=1), r"days of 24 hours, or of Europe/Paris\?"),
        (DAYS, "24h", "ticks are days of Europe/Paris, of 23 to 25 hours"),
        (WEEKS, "3w", "is '3w', which is not a whole number of ticks of 14d in"),
    ],
    ids=str,
)
def test_other_lengths_are_refused(clock: Clock, length: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        clock.ticks_in(length, "gap")
    with pytest.raises(ValueError, match=reason.replace("gap", "n")):
        clock.last(length)


def test_views_longer_than_the_clock_are_refused() -> None:
    assert HOURS.last(48).ticks == HOURS.restart(48).ticks == 48
    for view in (HOURS.last, HOURS.restart):
        with pytest.raises(ValueError, match="is of 49 ticks, but the clock has 48: give at most"):
            view(49)
    with pytest.raises(ValueError, match=r"'restart 30d' is of .* ticks, but the clock has 480"):
        PARIS.restart("30d")


@pytest.mark.parametrize("view", [HOURS.each(), HOURS.last(2), HOURS.restart(2)], ids=str)
def test_a_view_has_no_views(view: Any) -> None:
    for call in (view.each, lambda: view.last(2), lambda: view.restart(2)):
        with pytest.raises(ValueError, match=r"is a view, and has no view .*as a list: \[\.\.\., "):
            call()


def test_midnights_off_the_ticks_are_refused() -> None:
    howe = Clock("1h", start="2026-01-01", ticks=9000, zone="Australia/Lord_Howe")
    with pytest.raises(ValueError, match="midnight in Australia/Lord_Howe, which is not a border"):
        howe.restart("1d")
    halves = Clock("30m", start="2026-01-01", ticks=18_000, zone="Australia/Lord_Howe")
    assert halves.restart("1d").ticks == 49
    kolkata = Clock("1h", start="2026-01-01T00:00:00Z", ticks=100, zone="Asia/Kolkata")
    with pytest.raises(ValueError, match="not a border of ticks of 1h"):
        kolkata.restart("1d")


def test_restarting_days() -> None:
    weeks = DAYS.restart("1w")
    assert weeks.grid == DAYS.restart(7).grid
    assert weeks.name == "restart 7"
    assert [weeks.grid.steps_of(origin) for origin in weeks.grid.origins()] == [7] * 7
    assert weeks.grid.ticks == 49  # the last window goes on to its end
    assert weeks.grid.closing(weeks.grid.start) - weeks.grid.start == (7 * 24 - 1) * HOUR
    fine = Clock("0.0005s", 0, ticks=4, zone="Europe/Paris")
    with pytest.raises(ValueError, match="whole milliseconds"):
        fine.restart(3)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"zone": "Mars"}, "unknown time zone 'Mars': give zone a name"),
        ({"zone": 5}, "unknown time zone 5"),
        ({"tick": "1.5d", "zone": "Europe/Paris"}, "tick is '1.5d', which is not a whole number"),
        ({"tick": 86_400, "zone": "Europe/Paris"}, r"give text: tick=.1d. or tick=.24h."),
        ({"start": "2026-03-28"}, "start has no time zone"),
        (
            {"start": "2026-03-29T02:30", "zone": "Europe/Paris"},
            "in Europe/Paris never show",
        ),
        ({"start": "2026-10-25T02:30", "zone": "Europe/Paris"}, r"show twice: give start=.*02:00"),
        ({"stop": "2026-10-25T02:30", "zone": "Europe/Paris"}, "stop is .*show twice"),
        (
            {"tick": "1d", "start": "2026-03-28T08:00", "zone": "Europe/Paris"},
            r"not a local midnight in Europe/Paris.*give start='2026-03-28' \(2026-03-27T23:00",
        ),
        ({"ticks": 0}, "ticks must be a whole number from 1"),
        ({"ticks": 2.5}, "ticks must be a whole number from 1"),
        ({"ticks": 3, "stop": 86_400}, "ticks is 3, but there are 24 .*: give ticks=24 or more"),
        ({"stop": 24}, "for 24 ticks give ticks=24"),
        ({"stop": 0}, "stop must be after start, got start=0 and stop=0"),
        ({"ticks": 10**9}, "end after the year 9999: give a smaller ticks"),
        (
            {"tick": "1d", "start": "9990-01-01", "ticks": 9999, "zone": "Europe/Paris"},
            "end after the year 9999",
        ),
        (
            {"tick": "1d", "start": "2026-03-28", "ticks": 2, "stop": "2026-04-01", "zone": "UTC"},
            "ticks is 2, but there are 4 .*: give ticks=4 or more",
        ),
    ],
    ids=str,
)
def test_clocks_that_make_no_sense(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Clock(**{"tick": "1h", "start": 0, **options})


def test_times_without_an_offset_are_local() -> None:
    for start in ("2026-03-28", "2026-03-28T00:00", dt.date(2026, 3, 28), dt.datetime(2026, 3, 28)):
        made = Clock("1h", start=start, ticks=3, zone="Europe/Paris")
        assert made == Clock("1h", start="2026-03-27T23:00:00Z", ticks=3, zone="Europe/Paris")
    cut = Clock("1d", start="2026-03-28", stop="2026-03-30T12:00", zone="Europe/Paris")
    assert cut.horizon == 3
    assert cut.tick_of(cut.grid.stop) == 0
    more = Clock("1d", start="2026-03-28", stop="2026-03-30T12:00", ticks=5, zone="Europe/Paris")
    assert (more.horizon, more.grid.stop) == (5, cut.grid.stop)


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_text_that_is_a_number_is_seconds_of_an_event_alone(zone: str | None) -> None:
    assert time_of_event("10800.5", zone) == time_of_event(10_800.5) == 10_800_500_000
    for text, said in {"0.0000001": "whole microseconds", "1e999": "the years 1 to 9999"}.items():
        with pytest.raises(ValueError, match=said):
            time_of_event(text, zone)
    with pytest.raises(ValueError, match="start is not an ISO 8601 time"):
        Clock("1h", start="3600", ticks=2, zone=zone)

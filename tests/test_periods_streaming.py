"""Person-periods in a stream: one rule a period, closed at a public time, and then forgotten."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.testing.test_stream import TestStream
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils import windowed_value

import beam_dpcount as dp
from beam_dpcount.counters.people import NO_PERIOD, Bound, Seen
from beam_dpcount.counters.periods import Periods, periods_of
from beam_dpcount.dofns import users as dofns
from beam_dpcount.dofns.periods import BoundPeriods
from beam_dpcount.dofns.ticks import SEED
from beam_dpcount.dofns.users import SendToShards
from beam_dpcount.states import people as states
from beam_dpcount.states.envelope import StateError
from beam_dpcount.states.people import OTHER_BOUND
from beam_dpcount.states.placement import Placement
from benchmarks.cells import PeopleShards, Timer
from tests.messages import says
from tests.people import tick_count
from tests.people_shards import PAIRS, bundles, crowd, shown
from tests.runners import SECOND, feed, run, run_stream

CLOCK = dp.Clock(10, start=0, ticks=100)
PERIODS = periods_of(CLOCK, 10)  # ten of 100 seconds
BOUND = Bound(2, 2, 2, 0)


def event(key: str, who: str | None, second: int) -> Any:
    return windowed_value.create((key, {"who": who}), second * SECOND, (GlobalWindow(),))


def stages(
    bound: Bound, periods: Periods = PERIODS, shards: int = 3
) -> tuple[SendToShards, BoundPeriods]:
    users, placement = dp.Users(lambda payload: payload["who"], bound.events), Placement(shards)
    sending = SendToShards(users, PAIRS, placement, True)
    return sending, BoundPeriods(bound, PAIRS, placement, periods)


def shards_of(bound: Bound, **more: Any) -> PeopleShards:
    found = PeopleShards(*stages(bound, **more))
    for shard in range(more.get("shards", 3)):
        found.take((shard, SEED))
    return found


def closed_at(moment: int) -> int:
    """How many periods are closed at a time: by default one after the end of each."""
    return max(0, moment // 100 - 1)


@pytest.mark.parametrize("most", [1, 9, 60])
@pytest.mark.parametrize(
    "bound", [Bound(1, 1, 1, 0), BOUND, Bound(5, 2, 3, 0), Bound(4, 4, 2, 30 * SECOND)]
)
def test_the_rule_starts_afresh_in_each_period(
    bound: Bound, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the bundles, merges and workers: late events of an open period count, and no others.

    Events arrive in no order of time at all, and the watermark moves between them.
    """
    monkeypatch.setattr(dofns, "MERGED", 4)
    monkeypatch.setattr(states, "PIECE", 5)
    chance, late = random.Random(f"{bound} {most}"), 0
    for _ in range(3):
        found, seen = shards_of(bound), defaultdict[Any, Seen](Seen)
        moment, made, want = 0, list[Any](), list[Any]()
        for bundle in bundles(crowd(chance, 150), most, chance):
            moment += chance.randrange(20 * most)
            found.advance(moment * SECOND)
            bundle = [
                event(one.value[0], one.value[1]["who"], one.timestamp_micros) for one in bundle
            ]
            made += found.bundle(bundle)
            for one in bundle:
                key, payload = one.value
                period = one.timestamp_micros // (100 * SECOND)
                counts = payload["who"] and period >= closed_at(moment)
                late += bool(payload["who"]) and not counts
                place = payload["who"], period
                if counts and bound.take(seen[place], [key], one.timestamp_micros):
                    want.append((one.value, one.timestamp_micros))
            if chance.random() < 0.3:
                found.resume(*stages(bound))
        assert sorted(shown(made), key=repr) == sorted(want, key=repr)
    assert late > 20


def test_a_closed_period_is_over_for_those_who_were_not_there_too() -> None:
    """Whether anything is remembered of somebody decides nothing."""
    for before in ([], [event("a", "ann", 5), event("a", "ann", 6)]):
        found = shards_of(BOUND)
        assert len(found.bundle(before)) == len(before)
        found.advance(200 * SECOND)  # the first period is closed
        assert not found.bundle([event("a", "ann", 7), event("a", "bob", 8)])
        assert len(found.bundle([event("a", "ann", 150), event("a", "ann", 250)])) == 2


# State


def rows_in(found: PeopleShards) -> int:
    return sum(len(piece) for bag in found.bags.values() for piece in bag.entries)


@pytest.mark.parametrize(
    "bound", [Bound(1, 1, 1, 0), Bound(3, 3, 3, 0), Bound(3, 3, 3, SECOND // 2)], ids=str
)
def test_what_is_kept_stays_as_large_as_a_period(bound: Bound) -> None:
    """Of other people in every period, and of the same: after ten periods at most a tenth more."""
    for names in (lambda i, p: f"p{i}", lambda i, p: f"p{i} of {p}"):
        found, peaks, after = shards_of(bound), [], []
        for period in range(10):
            some = [event("a", names(i, period), 100 * period + i) for i in range(90)]
            for at in range(0, 90, 10):
                assert len(found.bundle(some[at : at + 10])) == 10
            peaks.append(found.size)
            found.advance(100 * (period + 1) * SECOND)
            after.append(found.size)
        assert max(after) <= 1.1 * after[0]
        assert max(peaks[1:]) <= 1.1 * peaks[1]  # a period, and the one before
        found.advance(1100 * SECOND)
        assert rows_in(found) == 0  # the last is closed
        assert {timer.at for timer in found.timers.values()} == {None}


def test_a_savepoint_at_any_time_goes_on() -> None:
    """Bytes of a cell, a bag and a timer, given to other workers between any two bundles."""
    events = [event("a", f"p{i % 3}", 7 * i) for i in range(140)]
    for at in range(0, 140, 10):
        found, other = shards_of(BOUND), shards_of(BOUND)
        made, want = [], []
        for first in range(0, 140, 10):
            if first == at:
                fresh = PeopleShards(*stages(BOUND))
                fresh.cells, fresh.bags, fresh.timers = other.cells, other.bags, other.timers
                other = fresh
                for shard in range(3):  # the seeds of the new job
                    assert not list(other.take((shard, SEED)))
            for each, into in ((found, want), (other, made)):
                each.advance(7 * first * SECOND)
                into += each.bundle(events[first : first + 10])
        assert shown(made) == shown(want)


@pytest.mark.parametrize(
    "periods",
    [
        None,
        periods_of(CLOCK, 5),
        periods_of(CLOCK, 10, 7),
        periods_of(dp.Clock(10, start=10, ticks=100), 10),
    ],
)
def test_a_resume_with_other_periods_is_refused_by_name(periods: Periods | None) -> None:
    found = shards_of(BOUND)
    codec = states.PeopleCodec(BOUND, 3, "unkeyed", periods)
    with pytest.raises(StateError, match=says(OTHER_BOUND)):
        codec.mark(found.cells[0].data)
    longer = periods_of(dp.Clock(10, start=0, ticks=200), 10)
    assert states.PeopleCodec(BOUND, 3, "unkeyed", longer).mark(found.cells[0].data).closed == 0


def test_digests_of_one_person_differ_from_period_to_period() -> None:
    """So that a state does not tell who came back."""
    found = shards_of(BOUND, shards=1)
    found.bundle([event("a", "ann", 100 * period) for period in range(5)])
    (piece,) = found.bags[0].entries
    assert len({piece[12 + 16 * i :][:16] for i in range(10)}) == 10


# Timers


def test_timers_are_the_clocks_and_only_a_seed_sets_the_first() -> None:
    at: list[list[Any]] = []
    for events in ([], [event("a", "ann", 5)], [event("a", f"p{i}", i) for i in range(990)]):
        found, times = PeopleShards(*stages(BOUND, shards=1)), list[Any]()
        found._bounding.start_bundle()
        found.timers[0] = Timer()
        if events:
            found.take((0, b"\0\0\0\0"))  # before the seed
        assert found.timers[0].at is None
        found.cells.clear()
        found.bags.clear()
        found.take((0, SEED))
        found.bundle(events)
        while found.timers[0].at is not None:
            times.append(found.timers[0].at)
            found.advance(found.timers[0].at)
        at.append(times)
    assert at[0] == at[1] == at[2] == [100 * n * SECOND for n in range(2, 12)]


def test_periods_close_by_local_days_and_lateness() -> None:
    hours = dp.Clock("1h", start="2026-03-28", ticks=72, zone="Europe/Paris")
    for lateness, extra in ((None, None), ("6h", 6), (90, 0.025)):
        users = dp.Users("u", 1, per="1d", lateness=lateness)
        periods = periods_of(hours, "1d", users.late_micros)
        first = hours.grid.start
        starts, ends = [0, 24, 47], [24, 47, 71]  # 29 March has 23 hours
        for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
            late = end - start if extra is None else extra
            assert periods.closes(number) == first + (end + late) * 3600 * SECOND
        assert periods.closes(4) is None


def test_lateness_is_public_and_in_every_sentence() -> None:
    with pytest.raises(ValueError, match=says(NO_PERIOD[0])):
        dp.Users("u", 1, lateness="1h")
    with pytest.raises(ValueError, match="lateness must be positive"):
        dp.Users("u", 1, per="1d", lateness=0)
    users = dp.Users("u", 1, per=2, lateness=30)
    count = tick_count(users, path="streaming")
    said = "events of each period of 2 ticks count until 30 s after its end"
    assert said in count.display_data()["closing"]
    assert "in a stream: events of each" in str(count)
    assert "closing" not in tick_count(users, path="bounded").display_data()
    plain = tick_count(dp.Users("u", 1, per=2), path="streaming")
    assert plain._fingerprint(plain.bound) != count._fingerprint(count.bound)


# Pipelines


ROWS = [
    ("a", {"who": name, "n": 1}, int(at) * SECOND)
    for name, times in [("ann", "1 2 15 21 22 61 85 118"), ("bob", "12 47 48 117")]
    for at in times.split()
]
ROWS.sort(key=lambda row: row[2])
DAYS = dp.Users(lambda payload: payload["who"], 1, per=2)  # of 20 seconds


def values_of(outcome: Any) -> list[tuple[str, int, float]]:
    return sorted((r.key, r.step, round(r.value)) for r in outcome.releases)


@pytest.mark.parametrize("runner", ["fn", "bundles"])
def test_streams_count_what_files_do(runner: str) -> None:
    """Of events in their order: someone counts in every period, as on bounded input."""
    bounded = run(lambda p: p | feed(ROWS) | tick_count(DAYS, path="bounded"))
    if runner == "fn":
        made = run(lambda p: p | feed(ROWS) | tick_count(DAYS, path="streaming"))
    else:
        parts = [x for row in ROWS for x in (row, row[2] // SECOND)]
        made = run_stream(tick_count(DAYS, path="streaming"), *parts, 125)
    assert values_of(made) == values_of(bounded)
    assert [v for key, _, v in values_of(made) if key == "a"][-1] == 8


def test_events_of_a_closed_period_do_not_count_in_a_pipeline() -> None:
    """A late one of an open period counts at the next tick; one of a closed period never."""
    rows = [("a", {"who": name, "n": 1}, at * SECOND) for name, at in [("ann", 5), ("bob", 6)]]
    late = [("a", {"who": name, "n": 1}, 7 * SECOND) for name in ("cyd", "ann", "dan")]
    count = tick_count(DAYS, path="streaming")
    made = run_stream(count, *rows, 25, *late[:2], 45, late[2], 125)
    assert [v for key, _, v in values_of(made) if key == "a"] == [2, 2, 3, *[3] * 9]
    short = tick_count(dp.Users(DAYS.by, 1, per=2, lateness=1), path="streaming")
    made = run_stream(short, *rows, 25, *late[:2], 45, late[2], 125)
    assert [v for key, _, v in values_of(made) if key == "a"] == [2] * 12


@pytest.mark.parametrize("late", ["fold", "drop"])
def test_a_restart_takes_nobody_over(late: str) -> None:
    """An event too late for its window, though its period is open, counts in no other."""
    clock = dp.Clock(10, start=0, ticks=12)
    users = dp.Users(lambda payload: payload["who"], 1, per=2)
    count = dp.TickCount(
        *(dp.ZCDP(1e12), clock.restart(2)),
        keys=["a"], users=users, path="streaming", late=late,
    )  # fmt: skip
    behind = [("a", {"who": name}, at * SECOND) for name, at in [("bob", 6), ("cyd", 15)]]
    first, second = (("a", {"who": "ann"}, at * SECOND) for at in (5, 27))
    made = run_stream(count, first, 22, behind[0], 28, second, 32, behind[1], 125)
    assert [v for _, _, v in values_of(made)][:6] == [1, 1, 1, 1, 0, 0]


def test_several_periods_of_a_stream_that_folds_cost_more() -> None:
    """Late events of several periods may meet in one tick: n^2, and the sentence says so."""

    def costs(late: str) -> float:
        count = dp.TickCount(
            *(dp.ApproxDP(1.0, 1e-6), dp.Clock(10, start=0, ticks=400)),
            keys=["a"], users=dp.Users(DAYS.by, 1, per=100), path="streaming", late=late,
        )  # fmt: skip
        return count.epsilon_at(1e-6, periods=3)

    assert costs("fold") > costs("drop")


@pytest.mark.pipeline
def test_a_ledger_is_told_what_periods_cost_in_a_stream() -> None:
    """Of several views, too, which learn that it is one only where they are applied."""
    clock = dp.Clock(10, start=0, ticks=400)
    ledger = dp.Ledger(dp.ZCDP(0.05))
    count = dp.TickCount(
        *(ledger.share(1.0), [clock, clock.each()]),
        keys=["a"], users=dp.Users(DAYS.by, 1, per=100),
    )  # fmt: skip
    bounded = count.epsilon_at(1e-6, periods=3)
    assert "(in a stream: " in str(count)
    pipeline = beam.Pipeline("BundleBasedDirectRunner")
    nothing: Any = TestStream().advance_watermark_to_infinity()
    _ = pipeline | nothing.with_output_types(tuple[str, Any]) | count
    told = ledger.epsilon_at(1e-6, unit="period", periods=3)
    assert told >= count.epsilon_at(1e-6, periods=3) * (1 - 1e-9) > bounded
    assert "(in a stream: " not in str(count)

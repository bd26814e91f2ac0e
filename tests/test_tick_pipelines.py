"""TickCount inside pipelines: the same numbers on every runner and path, and nothing else."""

from __future__ import annotations

import contextlib
import datetime as dt
import logging
import math
import pickle
import random
import re
from collections import Counter as Tally
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.pvalue import PCollection
from apache_beam.transforms import trigger
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import TimerSpec, on_timer
from apache_beam.transforms.window import (
    FixedWindows,
    GlobalWindow,
    GlobalWindows,
    IntervalWindow,
    Sessions,
    SlidingWindows,
    TimestampedValue,
    WindowFn,
)
from apache_beam.utils import windowed_value
from apache_beam.utils.timestamp import Timestamp

import beam_dpcount as dp
from beam_dpcount.budget.ledger import Ledger
from beam_dpcount.budget.shares import ClaimedError
from beam_dpcount.counters.change import TOO_COARSE
from beam_dpcount.counters.clock import NO_END, clock_of
from beam_dpcount.counters.counter import TAKES_GAUSSIAN
from beam_dpcount.counters.grid import OFF_GRID, Grid
from beam_dpcount.dofns import ticks as tick_dofns
from beam_dpcount.dofns.intake import RejectedElementError
from beam_dpcount.dofns.releases import Release
from beam_dpcount.dofns.ticks import (
    SEED,
    CountEachTick,
    ReadTicks,
    UnknownKeyError,
    UntimedElementError,
)
from beam_dpcount.mechanisms import BinaryTree, KAry, NormalizedBLT, SmoothBinary, SmoothLaplace
from beam_dpcount.noise.entropy import Entropy
from beam_dpcount.noise.laws import Law
from beam_dpcount.states import all_ticks
from beam_dpcount.states.all_ticks import TickPlan, shards_of
from beam_dpcount.states.codecs import OTHER_KEYS, tick_codec
from beam_dpcount.states.envelope import StateError
from beam_dpcount.states.pending import placed, tick_of
from beam_dpcount.states.wire import PAIR
from beam_dpcount.transforms import ticks as tick_transforms
from beam_dpcount.transforms.inputs import BOUNDED_PATH, MERGING_WINDOWS, SEVERAL_WINDOWS
from beam_dpcount.transforms.ticks import GAPS, TickNumbers
from benchmarks.cells import Bag, TickShards
from benchmarks.jobs import dofns_of
from tests.messages import says
from tests.real_data import real_rows
from tests.runners import (
    RUNNERS,
    SECOND,
    Outcome,
    Row,
    Seen,
    each_path,
    each_runner_and_path,
    failure,
    feed,
    run,
    run_stream,
    stream,
)
from tests.scripted import KeyedScript, ScriptedEntropy

BUDGET = dp.ApproxDP(1.0, 1e-6)
EXACT = dp.ZCDP(1e12)  # its noise is 0
SECRET, SECRET_TEXT = 77_431, "s3cr3t"


pytestmark = pytest.mark.usefixtures("no_state_cache")


def scripted(keys: Sequence[str] = ("a", "b", "c"), **options: Any) -> TickNumbers:
    """Ten-second ticks over two minutes, with noise the tests know."""
    given: dict[str, Any] = {
        "budget": BUDGET,
        "tick": 10,
        "start": 0,
        "horizon": 12,
        "entropy": ScriptedEntropy(),
        **options,
    }
    return TickNumbers(keys=keys, **given)


def exact(keys: Sequence[str] = ("a", "b", "c"), **options: Any) -> TickNumbers:
    """The same without noise."""
    return scripted(
        keys, **{"budget": EXACT, "mechanism": "SmoothBinary", "entropy": None, **options}
    )


def by_hand(
    count: TickNumbers,
    rows: Sequence[Row],
    keys: Sequence[str] = ("a", "b", "c"),
    window: Any = None,
    origin: int = 0,
    tick: int = 10 * SECOND,
) -> list[Release]:
    """The releases of one window from their definition, one Counter.step_lattice at a time."""
    counter, window = count.counter, GlobalWindow() if window is None else window
    cap = counter.change.largest(counter.unit)
    releases = []
    for key in sorted(keys):
        noise, state = KeyedScript(key, window, None, 50), counter.init()
        for step in range(1, counter.horizon + 1):
            total = 0
            for other, x, micros in rows:
                if other == key and (step - 1) * tick <= micros - origin < step * tick:
                    with contextlib.suppress(dp.errors.NotANumberError):
                        total += counter.quantise(x)
            total = min(max(total, -cap), cap)
            state, value = counter.step_lattice(state, total, noise)
            stddev = pytest.approx(math.sqrt(counter.variance(step)), rel=1e-12)
            releases.append(Release(key, step, origin + step * tick, value, stddev))
    return releases


def some_rows(n: int, values: Sequence[Any] = (0, 1), seed: int = 1, until: int = 120) -> list[Row]:
    """Events of keys a and b (c has none) out of order, and some that do not count."""
    chance = random.Random(seed)
    rows: list[Row] = [
        (chance.choice("aab"), chance.choice(values), chance.randrange(until * SECOND))
        for _ in range(n)
    ]
    rows += [("a", 1, -1), ("a", 1, until * SECOND), ("z", 1, 5), ("b", 1, -(10**12))]
    chance.shuffle(rows)
    return rows


def values_of(outcome: Outcome, key: str) -> list[float]:
    return [release.value for release in outcome.releases if release.key == key]


# The same numbers everywhere

# 12 ticks of what was counted.
EVERY = [*(kind(12) for kind in dp.mechanisms.ALL), SmoothBinary(12, balanced=True)]


@pytest.mark.parametrize("mechanism", EVERY, ids=str)
@each_path
def test_releases_equal_steps_by_hand(mechanism: Any, path: str) -> None:
    if mechanism.draws_early and path == "streaming":
        mechanism = KAry(12, subtraction=False)
    rows = some_rows(150, [0, 1, 2, -0.4, 0.75, 9, -9, None, "1"])
    count = scripted(mechanism=mechanism, bounds=(-1, 2), unit=0.5, path=path)
    outcome = run(lambda p: p | feed(rows) | count)
    expected = by_hand(count, rows)
    assert len(expected) == 36
    assert outcome.releases == expected
    # Downstream windows go by the time stamped on the element.
    assert all(seen.micros == seen.value.timestamp for seen in outcome.outputs[0])


@each_runner_and_path
def test_the_same_releases_on_every_runner(runner: str, path: str) -> None:
    rows = some_rows(100, [0, 1, 3])
    count = scripted(mechanism="SmoothBinary", bounds=(0, 2), path=path)
    outcome = run(lambda p: p | feed(rows) | count, runner)
    assert outcome.releases == by_hand(count, rows)


def test_the_same_releases_of_a_stream() -> None:
    rows = sorted(some_rows(100, [0, 1, 3]), key=lambda row: row[2])
    count = scripted(mechanism="SmoothBinary", bounds=(0, 2))
    parts: list[Any] = []
    for seconds in range(-10, 140, 10):
        parts += [seconds, *(r for r in rows if seconds <= r[2] / SECOND < seconds + 10)]
    outcome = run_stream(count, *parts, 150)
    assert outcome.releases == by_hand(count, rows)


@each_path
def test_the_order_of_arrival_does_not_matter(path: str) -> None:
    rows = some_rows(60)
    count = scripted(path=path)
    outcomes = []
    for seed in range(3):
        random.Random(seed).shuffle(rows)
        outcomes.append(run(lambda p: p | feed(rows) | count).releases)
    assert outcomes[0] == outcomes[1] == outcomes[2] == by_hand(count, rows)


@pytest.mark.exhaustive("path")
@each_runner_and_path
def test_keys_without_events_have_releases(runner: str, path: str) -> None:
    count = scripted(path=path)
    outcome = run(lambda p: p | feed([]) | count, runner)
    assert outcome.releases == by_hand(count, [])
    assert not outcome.metrics()


@pytest.mark.parametrize("horizon", [1, 2])
@each_path
def test_a_clock_of_one_tick(path: str, horizon: int) -> None:
    rows: list[Row] = [("a", 1, 0), ("a", 1, 9_999_999), ("a", 1, 10_000_000), ("b", 1, -1)]
    count = scripted(horizon=horizon, path=path)
    assert run(lambda p: p | feed(rows) | count).releases == by_hand(count, rows)


@each_path
def test_stop_cuts_the_last_tick_short(path: str) -> None:
    rows: list[Row] = [("a", 1, 24_999_999), ("a", 1, 25_000_000), ("a", 1, 29_000_000)]
    count = exact(stop=25, horizon=None, path=path)
    outcome = run(lambda p: p | feed(rows) | count)
    assert values_of(outcome, "a") == [0, 0, 1]
    assert outcome.releases[2].timestamp == 30 * SECOND
    # A horizon beyond stop has releases beyond it, which count no more.
    longer = exact(stop=25, horizon=5, path=path)
    assert values_of(run(lambda p: p | feed(rows) | longer), "a") == [0, 0, 1, 1, 1]


@each_path
def test_times_before_1970_and_ticks_of_microseconds(path: str) -> None:
    """Ticks of 400 us: timers, which know milliseconds, fire late but in order."""
    rows: list[Row] = [("a", 1, -5_001 + 130 * i) for i in range(40)]
    count = scripted(tick=0.0004, start=-0.005, path=path, mechanism="BinaryTree")
    outcome = run(lambda p: p | feed(rows) | count)
    assert outcome.releases == by_hand(count, rows, origin=-5000, tick=400)


@each_path
def test_start_and_stop_in_other_forms(path: str) -> None:
    rows: list[Row] = [("a", 1, 1_704_067_200 * SECOND + i * 3600 * SECOND) for i in range(-1, 30)]
    forms: list[tuple[Any, Any]] = [
        (1_704_067_200, Timestamp(1_704_153_600)),
        ("2024-01-01T00:00:00Z", "2024-01-02T02:00:00+02:00"),
        (
            dt.datetime(2024, 1, 1, tzinfo=dt.timezone.utc),
            dt.datetime(2024, 1, 2, tzinfo=dt.timezone.utc),
        ),
    ]
    for start, stop in forms:
        tick = dt.timedelta(hours=8)
        count = scripted(["a"], tick=tick, start=start, stop=stop, horizon=None, path=path)
        outcome = run(lambda p, count=count: p | feed(rows) | count)
        assert outcome.releases == by_hand(
            count, rows, ["a"], origin=1_704_067_200 * SECOND, tick=8 * 3600 * SECOND
        )


def test_system_entropy_is_the_default_and_new_in_every_run() -> None:
    count = TickNumbers(dp.ZCDP(1e-4), 10, 0, horizon=20, keys=["a", "b"])
    values = [[r.value for r in run(lambda p: p | feed([]) | count).releases] for _ in range(2)]
    assert values[0] != values[1]  # equal with a probability below 1e-50


@each_path
def test_a_transform_can_be_applied_and_run_again(path: str) -> None:
    rows = some_rows(30)
    count = scripted(path=path)

    def twice(pipeline: beam.Pipeline) -> tuple[PCollection[Any], ...]:
        events = pipeline | feed(rows)
        return events | "One" >> count, events | "Two" >> count

    for outcome in (run(twice), run(twice)):
        assert [[seen.value for seen in output] for output in outcome.outputs] == [
            by_hand(count, rows)
        ] * 2


@each_path
def test_many_events_of_a_key_pass_a_bundle_at_a_time(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tick_dofns, "GATHERED", 7)
    rows = some_rows(100)
    count = scripted(path=path)
    assert run(lambda p: p | feed(rows) | count).releases == by_hand(count, rows)


# Values


@each_path
@pytest.mark.parametrize("mechanism", ["SmoothBinary", "NormalizedBLT"])
def test_the_sum_of_a_tick_is_clipped(mechanism: str, path: str) -> None:
    """Ups and downs cancel first; what is left is clipped."""
    rows: list[Row] = [("a", 2, i) for i in range(20)] + [("a", -1, 50 + i) for i in range(8)]
    rows += [("b", -1, 10 * SECOND + i) for i in range(40)] + [("c", 2, i) for i in range(5)]
    options: dict[str, Any] = {"bounds": (-1, 2), "max_per_tick": 5, "path": path}
    count = scripted(mechanism=mechanism, **options)
    assert run(lambda p: p | feed(rows) | count).releases == by_hand(count, rows)
    outcome = run(lambda p: p | feed(rows) | exact(horizon=3, **options))
    assert values_of(outcome, "a") == [10, 10, 10]
    assert values_of(outcome, "b") == [0, -10, -10]
    assert values_of(outcome, "c") == [10, 10, 10]


@each_path
@pytest.mark.parametrize(("bounds", "unit"), [((0, 1), 1), ((-2.5, 2), 0.5), ((-1, 1), 0.001)])
def test_numbers_are_clipped_and_rounded(
    bounds: tuple[float, float], unit: float, path: str
) -> None:
    given = [10**400, -(10**400), math.inf, 0.24, -0.75, 1.25, True, np.float32(0.5), np.int8(-3)]
    rows: list[Row] = [("a", x, i * SECOND) for i, x in enumerate(given)]
    count = exact(bounds=bounds, unit=unit, path=path)
    expected = 0.0
    for x in given:
        clipped = min(max(x, bounds[0]), bounds[1])
        expected += round(float(clipped) / unit) * unit
    outcome = run(lambda p: p | feed(rows) | count)
    assert values_of(outcome, "a") == pytest.approx([expected] * 12, abs=1e-9)


NOT_NUMBERS: list[Any] = [None, "1", SECRET_TEXT, math.nan, 1j, [1], {"x": 1}, {}]


@pytest.mark.exhaustive("path")
@each_runner_and_path
def test_what_is_no_number_counts_nothing(runner: str, path: str) -> None:
    rows: list[Row] = [("a", 1, 0), *(("a", bad, 5) for bad in NOT_NUMBERS), ("b", None, 7)]
    count = scripted(path=path)
    outcome = run(lambda p: p | feed(rows) | count, runner)
    assert outcome.releases == by_hand(count, [("a", 1, 0)])
    assert not outcome.metrics()  # how many were dropped is private


@each_path
def test_a_value_is_taken_out_of_an_element(path: str) -> None:
    rows: list[Row] = [("a", {"x": "1"}, 0), ("a", {}, 1), ("a", {"x": "s3cr3t"}, 2)]
    count = scripted(path=path, value=lambda d: float(d["x"]))
    outcome = run(lambda p: p | feed(rows) | count)
    assert outcome.releases == by_hand(count, [("a", 1, 0)])


@each_path
def test_unknown_keys_and_what_is_no_pair_count_nothing(path: str) -> None:
    bad = [("zz", 1), (7, 1), (None, 1), ([1], 1), (b"a", 1), "text", ("a", 1, 1), ["a", 1], 5]
    count = scripted(path=path)

    def build(pipeline: beam.Pipeline) -> Any:
        events = pipeline | beam.Create([*bad, ("a", 1)])
        stamped: Any = beam.Map(lambda e: TimestampedValue(e, 5)).with_output_types(Any)
        return events | stamped | count

    assert run(build).releases == by_hand(count, [("a", 1, 5 * SECOND)])


@each_path
def test_keys_may_be_any_text(path: str) -> None:
    keys = ["", " ", "ä", "漢字", "👩‍👩‍👧", "\U0010fffd", "\x00", "a\nb", "'\"", "x" * 5000]
    rows: list[Row] = [(key, 1, i * SECOND) for i, key in enumerate(keys)]
    count = scripted(keys, path=path, horizon=3)
    assert run(lambda p: p | feed(rows) | count, "grpc").releases == by_hand(count, rows, keys)


# Streams


@pytest.mark.long
def test_a_jump_of_the_watermark_releases_each_missed_tick_once() -> None:
    count = exact()
    rows: list[Row] = [("a", 1, s * SECOND) for s in (5, 15, 15, 44, 119)]
    for marks in ([120], [40, 1000], [5, 41, 42, 43, 130], [-100, 0, 119, 120]):
        outcome = run_stream(count, *rows, *marks)
        assert values_of(outcome, "a") == [1, 3, 3, 3, 4, 4, 4, 4, 4, 4, 4, 5]
        assert values_of(outcome, "b") == [0] * 12
        assert [r.step for r in outcome.releases] == [*range(1, 13)] * 3


_order: list[Any] = []


def note(seen: Any) -> None:
    _order.append((seen.step, seen.value) if isinstance(seen, Release) else "event")


def test_releases_come_in_order_and_at_their_time() -> None:
    """In this runner's own process: events downstream show how far the clock was."""
    _order.clear()

    def build(pipeline: beam.Pipeline) -> Any:
        events = pipeline | stream(
            ("a", 1, 5 * SECOND), 9, ("a", 1, 9 * SECOND), 10, ("a", 1, 12 * SECOND), 47, 120
        )
        _ = events | "Events" >> beam.Map(note)
        return events | exact(["a"]) | "Releases" >> beam.Map(note)

    run(build, "bundles", ["--streaming"])
    steps = [one for one in _order if one != "event"]
    assert steps == [(1, 2), *((i, 3) for i in range(2, 13))]
    assert _order.index((1, 2)) > _order.index("event", 1)  # not before tick 1 had ended
    assert "event" in _order[_order.index((1, 2)) :]  # nor only at the end


@pytest.mark.parametrize("late", ["fold", "drop"])
def test_late_events(late: str) -> None:
    """Of ticks 1 and 2 after 25 s; of tick 3 in time; of tick 12 after the end."""
    count = exact(["a"], late=late)
    parts = [("a", 1, 5 * SECOND), 25, ("a", 1, 7 * SECOND), ("a", 1, 19 * SECOND)]
    parts += [("a", 1, 22 * SECOND), 60, ("a", 1, 22 * SECOND), 130, ("a", 1, 119 * SECOND)]
    outcome = run_stream(count, *parts)
    folded = [1, 1, 4, 4, 4, 4, 5, 5, 5, 5, 5, 5]
    in_time = [1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2]
    assert values_of(outcome, "a") == (folded if late == "fold" else in_time)


def test_events_of_later_ticks_wait() -> None:
    count = exact(["a"])
    outcome = run_stream(count, ("a", 1, 95 * SECOND), ("a", 1, 33 * SECOND), 31, 61, 130)
    assert values_of(outcome, "a") == [0, 0, 0, 1, 1, 1, 1, 1, 1, 2, 2, 2]


def test_unbounded_input_streams_and_bounded_input_is_grouped() -> None:
    def labels(source: Any, **options: Any) -> set[str]:
        pipeline = beam.Pipeline()
        releases = pipeline | source | scripted(**options)
        assert releases.is_bounded == isinstance(source, beam.Create)
        parts = pipeline.to_runner_api().components.transforms.values()
        return {part.unique_name.rsplit("/", 1)[-1] for part in parts}

    assert labels(beam.Create([("a", 1)])) >= {"SumTicks", "CountAllTicks"}
    assert labels(beam.Create([("a", 1)]), path="streaming") >= {"ReadTicks", "CountEachTick"}
    assert labels(stream(5)) >= {"ReadTicks", "CountEachTick"}
    with pytest.raises(ValueError, match=says(BOUNDED_PATH)):
        _ = beam.Pipeline() | stream(5) | scripted(path="bounded")


@each_path
@pytest.mark.parametrize("runner", RUNNERS)
def test_an_event_in_several_windows_counts_nothing(path: str, runner: str) -> None:
    """A Flatten may mix windows. Sums of a bundle once went to all windows of its first event."""
    if runner == "bundles" and path == "streaming":
        pytest.skip("timers of a bounded input do not fire there")
    rows: list[Row] = [("a", 1, at * SECOND) for at in range(60, 119)]

    def releases(more: Sequence[Row]) -> dict[tuple[str, int, str], float]:
        def build(pipeline: beam.Pipeline) -> Any:
            fixed = pipeline | "Rows" >> feed(rows) | "Fixed" >> beam.WindowInto(FixedWindows(60))
            sliding = "Sliding" >> beam.WindowInto(SlidingWindows(60, 30))
            other = pipeline | "More" >> feed(more) | sliding
            mixed = (other, fixed) | beam.Flatten()
            mixed._windowing = fixed.windowing  # as a Flatten in the other order declares it
            counts = TickNumbers(EXACT, 60, 0, 180, keys=["a", "b"], path=path)
            return mixed | counts

        return {
            (s.value.key, s.value.timestamp, s.window): round(s.value.value)
            for s in run(build, runner).outputs[0]
        }

    without, also = releases([]), releases([("b", 1, 65 * SECOND)])
    assert also == without
    assert len(also) == 6


@each_path
def test_an_event_in_no_window_counts_nothing(path: str) -> None:
    """SlidingWindows may leave gaps. That an event fell into one stops nothing."""

    def build(pipeline: beam.Pipeline) -> Any:
        gaps = "Gaps" >> beam.WindowInto(SlidingWindows(30, 60))
        other = pipeline | "More" >> feed([("b", 1, 40 * SECOND)]) | gaps
        fixed = pipeline | "Rows" >> feed([("a", 1, 65 * SECOND)])
        mixed = (fixed | beam.WindowInto(FixedWindows(60)), other) | beam.Flatten()
        return mixed | TickNumbers(EXACT, 60, 0, 180, keys=["a", "b"], path=path)

    assert sorted(round(r.value) for r in run(build).releases) == [0, 0, 0, 0, 0, 1]


@pytest.mark.parametrize("windowed", [False, True])
def test_groups_of_one_key_release_the_same(
    windowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runners that spread groups over workers have one for each key."""
    rows: list[Row] = [(key, 1, at * SECOND) for at, key in enumerate("abbazab" * 5)]

    def outcome() -> Any:
        windows = beam.WindowInto(FixedWindows(20)) if windowed else beam.Map(lambda pair: pair)
        return run(lambda p: p | feed(rows) | windows | scripted(keys=["b", "c", "a"]))

    together = outcome()
    monkeypatch.setattr(tick_transforms, "spreads_groups", lambda _: True)
    alone = outcome()
    assert together.outputs == alone.outputs
    assert len(together.releases) == 36


# Windows


def by_hand_in_windows(
    count: TickNumbers,
    rows: Sequence[Row],
    size: int,
    windows: Sequence[int],
    keys: Sequence[str] = ("a", "b", "c"),
) -> list[Seen]:
    """Every window anew, from its own budget; the last release is stamped within it."""
    seen = []
    for start in windows:
        window = IntervalWindow(start, start + size)
        inside = [r for r in rows if start * SECOND <= r[2] < (start + size) * SECOND]
        for release in by_hand(count, inside, keys, window=window, origin=start * SECOND):
            micros = min(release.timestamp, (start + size) * SECOND - 1)
            # Steps go on from window to window.
            ticks = (start - windows[0]) * SECOND // count._clock.tick
            whole = release._replace(step=ticks + release.step)
            seen.append(Seen(whole, micros, str(window)))
    return sorted(seen, key=lambda item: (item.value.key, item.value.step, item.window))


def sorted_seen(outcome: Outcome) -> list[Seen]:
    return sorted(outcome.outputs[0], key=lambda s: (s.value.key, s.value.step, s.window))


def assert_same(given: list[Seen], expected: list[Seen]) -> None:
    assert [(seen.value, seen.window) for seen in given] == [
        (seen.value, seen.window) for seen in expected
    ]
    for seen, hand in zip(given, expected, strict=True):
        assert hand.micros - 1000 < seen.micros <= hand.micros  # some runners cut to milliseconds


@pytest.mark.exhaustive("path")
@each_runner_and_path
def test_each_fixed_window_starts_anew(runner: str, path: str) -> None:
    rows = some_rows(120, [0, 1, 5])
    count = scripted(path=path, bounds=(0, 5), mechanism="SmoothBinary")
    outcome = run(lambda p: p | feed(rows) | beam.WindowInto(FixedWindows(40)) | count, runner)
    assert count.counter.horizon == 4
    kept = [row for row in rows if 0 <= row[2] < 120 * SECOND]
    assert_same(sorted_seen(outcome), by_hand_in_windows(count, kept, 40, [0, 40, 80]))


def test_windows_of_a_stream() -> None:
    rows = sorted(some_rows(60), key=lambda row: row[2])
    count = scripted(mechanism="SmoothBinary")
    parts: list[Any] = []
    for seconds in range(-10, 140, 10):
        parts += [seconds, *(r for r in rows if seconds <= r[2] / SECOND < seconds + 10)]
    outcome = run_stream(count, *parts, 150, windows=FixedWindows(60))
    kept = [row for row in rows if 0 <= row[2] < 120 * SECOND]
    assert_same(sorted_seen(outcome), by_hand_in_windows(count, kept, 60, [0, 60]))


@each_path
def test_windows_that_start_or_stop_cuts_are_whole(path: str) -> None:
    """All windows with a part in [start, stop) have all their ticks; what is outside is dropped."""
    rows = some_rows(100)
    count = scripted(start=30, stop=95, horizon=None, path=path)
    outcome = run(lambda p: p | feed(rows) | beam.WindowInto(FixedWindows(40, 20)) | count)
    kept = [row for row in rows if 30 * SECOND <= row[2] < 95 * SECOND]
    assert_same(sorted_seen(outcome), by_hand_in_windows(count, kept, 40, [20, 60]))


@each_path
def test_a_mechanism_is_made_anew_for_windows(path: str) -> None:
    fixed = beam.WindowInto(FixedWindows(30))
    for given in (BinaryTree(12), BinaryTree, "BinaryTree"):
        count = scripted(mechanism=given, path=path)
        assert count.counter.mechanism == BinaryTree(12)
        _ = beam.Pipeline() | feed([]) | fixed | count
        assert count.counter.mechanism == BinaryTree(3)
    best = scripted(path=path, horizon=1200)
    _ = beam.Pipeline() | feed([]) | beam.WindowInto(FixedWindows(600)) | best
    change = best.counter.change
    chosen = dp.choose(60, BUDGET, replays=path == "streaming", change=change).mechanism
    assert best.counter.mechanism == chosen
    odd = scripted(mechanism=KAry(12, 3, subtraction=False), path=path)
    _ = beam.Pipeline() | feed([]) | fixed | odd
    assert odd.counter.mechanism == KAry(3, 3, subtraction=False)


@each_path
@pytest.mark.parametrize(
    ("windows", "reason"),
    [
        (Sessions(10), MERGING_WINDOWS),
        (SlidingWindows(20, 10), SEVERAL_WINDOWS),
        (SlidingWindows(20, 20), GAPS),
        (FixedWindows(25), OFF_GRID),
        (FixedWindows(20, 5), OFF_GRID),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else "",
)
def test_other_windows_are_refused(windows: Any, reason: str, path: str) -> None:
    with pytest.raises(ValueError, match=says(reason)):
        _ = beam.Pipeline() | feed([("a", 1, 0)]) | beam.WindowInto(windows) | scripted(path=path)


@pytest.mark.parametrize("windows", [None, 40], ids=["global", "fixed"])
@each_path
def test_each_tick_is_released_once_whatever_the_trigger(windows: int | None, path: str) -> None:
    rows = some_rows(60)
    windowing = beam.WindowInto(
        beam.transforms.window.GlobalWindows() if windows is None else FixedWindows(windows),
        trigger=trigger.Repeatedly(trigger.AfterCount(1)),
        accumulation_mode=trigger.AccumulationMode.ACCUMULATING,
        allowed_lateness=1000,
    )
    count = scripted(path=path)
    outcome = run(lambda p: p | feed(rows) | windowing | count)
    if windows is None:
        assert outcome.releases == by_hand(count, rows)
    else:
        kept = [row for row in rows if 0 <= row[2] < 120 * SECOND]
        assert_same(sorted_seen(outcome), by_hand_in_windows(count, kept, 40, [0, 40, 80]))


# What is read of a bundle


def sums_of(
    count: TickNumbers, rows: Sequence[Row], window: Any = None, flush: int | None = None
) -> list[tuple[str, int, int, int, Any]]:
    """Key, tick, sum, time and window of what ReadTicks gives of one bundle."""
    dofn, plan = reading(count)
    dofn.start_bundle()
    made = []
    for key, x, micros in rows:
        where = GlobalWindow() if window is None else next(iter(window.assign(at(micros))))
        made += dofn.process((key, x), windowed_value.create((key, x), micros, (where,)))
        assert flush is not None or not made
    made += dofn.finish_bundle()
    assert dofn.finish_bundle() == []
    found = []
    for value in made:
        shard, data = value.value
        keys, where = plan.keys_of(shard), (value.timestamp.micros, *value.windows)
        for place, x in PAIR.iter_unpack(data):
            step = tick_of(place, len(keys))
            found.append((keys[place - (step - 1) * len(keys) - 1], step, x, *where))
    return found


def reading(count: TickNumbers, *keys: str) -> tuple[ReadTicks, TickPlan]:
    """What reads the events of a count in a stream, and what it knows."""
    plan = TickPlan(count.counter, count._clock, keys or count._listed, 1, True, count._entropy)
    return ReadTicks(count._intake(count._clock), plan), plan


def packed(tick: int, x: int) -> bytes:
    """What arrives at a shard of one key."""
    return placed({0: x}, tick, 1)


def at(micros: int) -> Any:
    return WindowFn.AssignContext(Timestamp(micros=micros))


def test_a_bundle_gives_one_sum_a_key_and_tick_at_its_earliest_time() -> None:
    """Ticks apart: with a late event, one in time would have its time, and be late itself."""
    rows: list[Row] = [("a", 1, 15 * SECOND), ("b", 1, 3), ("a", 1, 12 * SECOND), ("a", 1, 7)]
    rows += [("a", 1, 19 * SECOND), ("z", 1, 5), ("a", None, 0), ("b", 1, 999 * SECOND)]
    everything = GlobalWindow()
    assert sums_of(exact(), rows) == [
        ("a", 2, 3, 12 * SECOND, everything),
        ("b", 1, 1, 3, everything),
        ("a", 1, 1, 3, everything),
    ]
    assert sums_of(exact(), []) == []


def test_a_bundle_gives_sums_of_each_window_apart() -> None:
    """Their ticks are numbered one after the other."""
    count = exact(stop=120)
    count._clock = count._clock.in_windows(20 * SECOND, 0)
    first = count._clock.passed_at(0) + 1
    rows: list[Row] = [("a", 1, second * SECOND) for second in (35, 15, 31, 12, 5)]
    assert sums_of(count, rows, FixedWindows(20)) == [
        ("a", first + 3, 2, 31 * SECOND, IntervalWindow(20, 40)),
        ("a", first + 1, 2, 12 * SECOND, IntervalWindow(0, 20)),
        ("a", first, 1, 5 * SECOND, IntervalWindow(0, 20)),
    ]


def test_a_bundle_of_many_events_gives_sums_before_its_end(monkeypatch: Any) -> None:
    monkeypatch.setattr(tick_dofns, "GATHERED", 4)
    sums = sums_of(exact(), [("a", 1, 9 - i) for i in range(10)], flush=4)
    assert [(x, micros) for _, _, x, micros, _ in sums] == [(4, 6), (4, 2), (2, 0)]


def test_sums_of_a_bundle_fit_64_bits() -> None:
    count = exact(bounds=(0, 2**31), max_per_tick=1)
    dofn, _ = reading(count)
    dofn.start_bundle()
    dofn._sums[0, 0, 1] = [(GlobalWindow(),), 5, {0: 2**70}]
    (made,) = dofn.finish_bundle()
    assert PAIR.unpack(made.value[1]) == (1, 2**62)


_taken: list[Any] = []


def take(element: Any) -> Any:
    _taken.append(element)
    return element


class CountTaken(CountEachTick):
    """Counts what reaches the cells, by their seeds and sums."""

    AGAIN = TimerSpec("tick", TimeDomain.WATERMARK)

    def process(
        self,
        element: Any,
        arrived: Any = beam.DoFn.StateParam(CountEachTick.ARRIVED),
        cell: Any = beam.DoFn.StateParam(CountEachTick.STATE),
        timer: Any = beam.DoFn.TimerParam(AGAIN),
    ) -> None:
        super().process(take(element), arrived, cell, timer)

    @on_timer(AGAIN)
    def release(
        self,
        shard: Any = beam.DoFn.KeyParam,
        window: Any = beam.DoFn.WindowParam,
        arrived: Any = beam.DoFn.StateParam(CountEachTick.ARRIVED),
        cell: Any = beam.DoFn.StateParam(CountEachTick.STATE),
        timer: Any = beam.DoFn.TimerParam(AGAIN),
        later: Any = beam.DoFn.StateParam(CountEachTick.LATER),
    ) -> Iterator[Any]:
        yield from super().release(shard, window, arrived, cell, timer, later)


def test_a_hot_key_reaches_its_cell_once_a_tick_and_bundle(monkeypatch: Any) -> None:
    monkeypatch.setattr(tick_transforms.TickNumbers, "_count_each", CountTaken)
    _taken.clear()
    count = scripted(path="streaming")
    rows: list[Row] = [("aab"[i % 3], 1, i * SECOND // 20) for i in range(2400)]
    outcome = run(lambda p: p | feed(rows) | count)
    assert outcome.releases == by_hand(count, rows)
    sums = [element for element in _taken if element[1] != SEED]
    ticks = {(shard, tick_of(PAIR.unpack_from(data)[0], 3)) for shard, data in sums}
    assert len(sums) == len(ticks) == 12


# The stateful step by itself


class Cell:
    """A state cell that remembers how often it was read and written."""

    def __init__(self) -> None:
        self.data: bytes | None = None
        self.reads = self.writes = 0

    def read(self) -> bytes | None:
        self.reads += 1
        return self.data

    def write(self, data: bytes) -> None:
        self.writes += 1
        self.data = data


class Timer:
    def __init__(self) -> None:
        self.at: float | None = None
        self.tagged: dict[str, float] = {}

    def set(self, moment: Timestamp, dynamic_timer_tag: str = "") -> None:
        self.at = moment.micros / SECOND
        if dynamic_timer_tag:
            assert dynamic_timer_tag not in self.tagged
            self.tagged[dynamic_timer_tag] = self.at


class Bench:
    """A CountEachTick of one key, without a runner."""

    def __init__(
        self,
        count: TickNumbers,
        fold: bool = True,
        window: int | None = None,
        ahead: int = 1,
        horizon: int = 12,
    ) -> None:
        clock = clock_of(10, 0, horizon=horizon)
        if window is not None:
            clock = clock.in_windows(window * SECOND, 0)
        self.passed = clock.passed_at(0)
        cap = count.counter.change.largest(count.counter.unit)
        plan = TickPlan(count.counter, clock, ["a"], cap, fold, count._entropy, ahead=ahead)
        self.dofn = CountEachTick(plan)
        self.dofn.setup()
        self.cell, self.timer = Cell(), Timer()
        self.arrived, self.bag = Bag(), Bag()

    def event(self, data: bytes) -> None:
        self.dofn.process((0, data), self.arrived, self.cell, self.timer)

    def fire(self) -> list[Release]:
        self.timer.at = None
        states = self.arrived, self.cell, self.timer, self.bag
        return [value.value for value in self.dofn.release(0, GlobalWindow(), *states)]


def test_a_count_in_windows_goes_on_beyond_an_earlier_stop() -> None:
    """Seeds of the job that goes on find a count whose last timer has fired."""
    count = exact(["a"], horizon=3)
    first = Bench(count, window=30, horizon=6)
    first.event(SEED)
    assert [len(first.fire()) for _ in range(6)] == [1] * 6
    assert first.timer.at is None
    longer = Bench(count, window=30, horizon=12)
    longer.cell.data = first.cell.data
    longer.event(packed(longer.passed + 8, 5))
    assert longer.timer.at is None  # no event starts a clock
    longer.event(SEED)
    assert longer.timer.at == 70
    made = [release for _ in range(6) for release in longer.fire()]
    assert [release.step for release in made] == [7, 8, 9, 10, 11, 12]
    assert [round(release.value) for release in made] == [0, 5, 5, 0, 0, 0]
    assert longer.timer.at is None


def test_a_tick_reads_once_and_writes_once_and_an_event_does_neither() -> None:
    bench = Bench(scripted(["a"]))
    for data in (SEED, packed(1, 1), packed(12, 1)):
        bench.event(data)
        assert (bench.cell.reads, bench.cell.writes) == (1, 1)
    for i in range(2, 14):
        assert len(bench.fire()) == 1
        assert (bench.cell.reads, bench.cell.writes) == (i, i)
    assert bench.fire() == []  # and nothing after the last tick
    assert bench.cell.writes == 13


def test_only_a_seed_starts_the_clock() -> None:
    """Else an event that outlives its window's state would start count and budget anew."""
    bench = Bench(exact(["a"]))
    bench.event(packed(1, 1))
    assert bench.timer.at is None
    bench.event(SEED)
    assert bench.timer.at == 10
    assert [r.value for r in bench.fire()] == [1]
    assert bench.timer.at == 20
    bench.timer.at = None
    bench.event(packed(2, 1))
    assert bench.timer.at is None
    bench.event(SEED)  # a second one sets the timer that is set already, and changes nothing else
    assert bench.timer.at == 20
    assert [r.value for r in bench.fire()] == [2]


def test_the_last_tick_sets_no_timer() -> None:
    bench = Bench(scripted(["a"]))
    bench.event(SEED)
    alarms = []
    for _ in range(12):
        alarms.append(bench.timer.at)
        bench.fire()
    assert alarms == [10 * i for i in range(1, 13)]
    assert bench.timer.at is None


@pytest.mark.parametrize("fold", [True, False])
def test_one_cell_goes_from_window_to_window(fold: bool) -> None:
    """What is late for one window counts in no other; what is early waits for its own."""
    count = exact(["a"], horizon=4)
    bench = Bench(count, fold, window=40)
    released: list[tuple[int, float]] = []

    def go(events: Sequence[int], alarm: int | None) -> None:
        for tick in events:
            bench.event(packed(bench.passed + tick, 1))
        released.extend((r.timestamp // SECOND, r.value) for r in bench.fire())
        assert bench.timer.at == alarm

    bench.event(SEED)
    assert bench.timer.at == 10
    go([1, 2, 6, 12], 20)
    go([1, 1], 30)  # late for tick 1
    go([], 39.999)  # within the window
    go([4], 50)
    late = 2 * fold
    assert released == [(10, 1), (20, 2 + late), (30, 2 + late), (40, 3 + late)]
    released.clear()
    go([1, 4, 4, 5], 60)  # three events too late for their window
    go([4], 70)
    go([7, 9], 79.999)
    go([], 90)
    assert released == [(50, 1), (60, 2), (70, 3), (80, 3)]
    released.clear()
    for alarm in (100, 110, 119.999, None, None):
        go([], alarm)
    assert released == [(90, 1), (100, 1), (110, 1), (120, 2)]
    assert bench.bag.entries == []


@pytest.mark.parametrize("window", [None, 40])
@pytest.mark.parametrize("ahead", [2, 5, 64])
def test_timers_that_are_set_ahead_release_each_tick_once(ahead: int, window: int | None) -> None:
    """In any order of those that are due, and never before so many ticks have ended."""
    count = scripted(["a"], horizon=12 if window is None else 4)
    one, many = Bench(count, window=window), Bench(count, window=window, ahead=ahead)
    for bench in (one, many):
        for data in (SEED, *(packed(bench.passed + tick, 1) for tick in (1, 5, 5, 12))):
            bench.event(data)
    chance, now, made = random.Random(ahead), 0.0, []
    timers = many.timer.tagged
    while timers:
        assert len(timers) <= ahead
        now = max(now, chance.choice([*timers.values()]))
        due = [tag for tag, at in timers.items() if at <= now]
        for tag in chance.sample(due, len(due)):
            del timers[tag]
            made += many.fire()
            assert made[-1].timestamp <= 10 * SECOND * math.ceil(now / 10)
    assert made == [release for _ in range(12) for release in one.fire()]
    assert many.fire() == []


class CountBundles(CountTaken):
    def start_bundle(self) -> None:
        take("bundle")


@pytest.mark.parametrize("windows", [None, 20])
def test_a_clock_that_is_tried_out_takes_few_bundles(windows: int | None, monkeypatch: Any) -> None:
    """The local runner makes one for each round of timers, which costs more than all else."""
    monkeypatch.setattr(tick_transforms.TickNumbers, "_count_each", CountBundles)
    _taken.clear()
    count = exact(["a", "b"], horizon=640, path="streaming")
    rows: list[Row] = [("a", 1, 5 * SECOND), ("b", 1, 6400 * SECOND - 1)]

    def build(pipeline: beam.Pipeline) -> Any:
        events = pipeline | feed(rows)
        return (events if windows is None else events | beam.WindowInto(FixedWindows(windows))) | (
            count
        )

    outcome = run(build)
    assert len(outcome.releases) == 1280
    assert sum(release.value for release in outcome.releases) == (641 if windows is None else 3)
    assert _taken.count("bundle") <= 640 / 64 + 3


def test_a_stream_sets_one_timer_at_a_time() -> None:
    """So that a runner which fires all as the first of them is due releases none too early."""
    for source, ahead in ((stream(("a", 1, 5)), 1), (feed([("a", 1, 5)]), 64)):
        pipeline = beam.Pipeline(runner=RUNNERS["fn"]())
        found: list[Any] = []

        class Visitor(beam.pipeline.PipelineVisitor):
            def visit_transform(self, node: Any) -> None:
                found.append(getattr(node.transform, "dofn", None))  # noqa: B023

        _ = pipeline | source | scripted(path="streaming")
        pipeline.visit(Visitor())
        (dofn,) = [one for one in found if isinstance(one, CountEachTick)]
        assert dofn._plan.ahead == ahead


def test_windows_have_as_many_seeds_as_shards(monkeypatch: Any) -> None:
    """And not one for each window, which may be a year of hours, with a cell and a timer each."""
    monkeypatch.setattr(tick_transforms.TickNumbers, "_count_each", CountTaken)
    _taken.clear()
    count = scripted(path="streaming", mechanism="SmoothBinary")
    rows = [row for row in some_rows(40) if 0 <= row[2] < 120 * SECOND]
    outcome = run(lambda p: p | feed(rows) | beam.WindowInto(FixedWindows(20)) | count)
    starts = [*range(0, 120, 20)]
    assert_same(sorted_seen(outcome), by_hand_in_windows(count, rows, 20, starts))
    assert [shard for shard, data in _taken if data == SEED] == [0]


@pytest.mark.long
@pytest.mark.parametrize("late", ["fold", "drop"])
def test_events_of_later_windows_wait_for_them_in_a_stream(late: str) -> None:
    parts = [("a", 1, 95 * SECOND), ("a", 1, 33 * SECOND), 31, ("a", 1, 5 * SECOND), 61]
    parts += [("a", 1, 33 * SECOND), ("a", 1, 45 * SECOND), ("a", 1, 70 * SECOND)]

    def build(pipeline: beam.Pipeline, marks: list[int]) -> Any:
        windowed = pipeline | stream(*parts, *marks) | beam.WindowInto(FixedWindows(40))
        # The test's own grouping would lack what this runner gives out after a window's end.
        return windowed | exact(["a"], late=late) | "All" >> beam.WindowInto(GlobalWindows())

    for marks in ([130], [85, 130], [62, 75, 79, 80, 81, 130]):
        outcome = run(lambda p, marks=marks: build(p, marks), "bundles", ["--streaming"])
        made = {seen.value.timestamp // SECOND: seen.value.value for seen in outcome.outputs[0]}
        # The event at 5 s is late within its window, that at 45 s too; that at 33 s is after it.
        first, second = (2, 2) if late == "fold" else (1, 1)
        expected = [0, 0, 0, first, 0, 0, second - 1, second, 0, 1, 1, 1]
        assert made == {10 * i: value for i, value in enumerate(expected, start=1)}


@pytest.mark.parametrize("mechanism", [SmoothBinary(12), NormalizedBLT(12)], ids=str)
def test_a_clock_resumed_from_its_bytes_goes_on_as_if_never_stopped(mechanism: Any) -> None:
    chance = random.Random(4)
    events = [(chance.randrange(1, 13), 1) for _ in range(40)]
    count = scripted(["a"], mechanism=mechanism)
    whole, resumed = Bench(count), Bench(count)
    releases: list[tuple[Release, Release]] = []
    whole.event(SEED)
    resumed.event(SEED)
    for i, event in enumerate(events):
        whole.event(packed(*event))
        resumed.event(packed(*event))
        before, resumed = resumed, Bench(pickle.loads(pickle.dumps(count)))
        resumed.cell.data = before.cell.data
        resumed.arrived.entries += before.arrived.entries
        resumed.bag.entries += before.bag.entries
        if i % 4 == 3 and len(releases) < 12:
            releases += zip(whole.fire(), resumed.fire(), strict=True)
    assert len(releases) == 10
    assert all(one == other for one, other in releases)
    assert whole.cell.data == resumed.cell.data


def test_work_that_failed_before_it_was_kept_is_done_again() -> None:
    """State is written before anything is yielded, and made anew, never changed in place."""
    bench = Bench(scripted(["a"]))
    bench.event(SEED)
    before = bench.cell.data
    first = bench.fire()
    bench.cell.data = before  # the bundle failed, and its state was rolled back
    assert bench.fire() == first


def resumable(names: Sequence[str]) -> Any:
    """The DoFn of a streaming count under replayable noise, as a worker gets it."""
    entropy = dp.ReplayableEntropy("COUNTING_SECRET", run_id="lists of keys")
    options: dict[str, Any] = {"horizon": 12, "value": itemgetter(0), "path": "streaming"}
    options |= {"entropy": entropy, "keys": names}
    made = "Count" >> TickNumbers(dp.ZCDP(0.5), 10, 0, **options)
    dofn = dofns_of(made)[CountEachTick]
    dofn.setup()
    return dofn


@pytest.mark.parametrize("names", [["a", "b", "c"], ["b"], ["b", "a"]], ids=str)
def test_a_list_of_keys_that_changed_stops_the_clock(
    names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else an added key would have no clock, and no release ever; a removed one would go on."""
    monkeypatch.setenv("COUNTING_SECRET", "0123456789abcdef" * 4)
    bench = Bench(scripted(["a"]))
    bench.dofn = resumable(["a", "b"])
    bench.event(SEED)
    bench.event(packed(1, 1))
    assert len(bench.fire()) == 2
    kept, bench.dofn = bench.cell.data, resumable(names)
    bench.event(packed(2, 1))  # which waits for its tick
    for go_on in (bench.fire, lambda: bench.event(SEED)):
        with pytest.raises(StateError, match=says(OTHER_KEYS)):
            go_on()
        assert bench.cell.data == kept
    bench.dofn = resumable(["a", "b"])
    assert len(bench.fire()) == 2


def test_a_key_that_is_added_changes_no_other_keys_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTING_SECRET", "0123456789abcdef" * 4)

    def releases(names: list[str]) -> list[Release]:
        bench = Bench(scripted(["a"]))
        bench.dofn = resumable(names)
        bench.event(SEED)
        return [release for _ in range(12) for release in bench.fire() if release.key == "a"]

    assert releases(["a"]) == releases(["c", "a", "b"])


def cell_of(clock: Grid, keys: Sequence[str]) -> bytes:
    """What a key of `damaged` keeps at the start, at another clock or among other keys."""
    counter = scripted(["a"], bounds=(0, 10**6)).counter
    codec = tick_codec(counter, clock, keys)
    return codec.encode(replace(counter, dimension=len(keys)).init())


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:30] + bytes([data[30] ^ 1]) + data[31:],
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
        lambda data: data[:-3],
        lambda data: b"",
        lambda data: b"\xff" * 64,
        lambda data: cell_of(clock_of(5, 0, horizon=12), ["a"]),
        lambda data: cell_of(clock_of(10, 0, horizon=12), ["b"]),
    ],
    ids=["pairs", "state", "cut", "empty", "other", "other clock", "other keys"],
)
def test_damaged_state_stops_the_clock(damage: Callable[[bytes], bytes]) -> None:
    bench = Bench(scripted(["a"], bounds=(0, 10**6)))
    bench.event(SEED)
    bench.event(packed(3, SECRET))
    assert bench.cell.data is not None
    bench.cell.data = damage(bench.cell.data)
    with pytest.raises(StateError, match=r"checkpoint|resume") as caught:
        bench.fire()
    assert str(SECRET) not in str(caught.value)


# Keys in shards


@pytest.mark.parametrize("windows", [None, 40], ids=["global", "fixed"])
@pytest.mark.parametrize("runner", [name for name in RUNNERS if name != "bundles"])
def test_keys_in_several_shards_are_counted_alike(
    windows: int | None, runner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(all_ticks, "PER_SHARD", 2)
    chance = random.Random(7)
    keys = [f"key {i}" for i in range(5)]
    rows: list[Row] = [(chance.choice(keys), 1, chance.randrange(120 * SECOND)) for _ in range(80)]
    count = scripted(keys, path="streaming", horizon=12)
    windowing = beam.WindowInto(GlobalWindows() if windows is None else FixedWindows(windows))
    outcome = run(lambda p: p | feed(rows) | windowing | count, runner)
    if windows is None:
        assert outcome.releases == by_hand(count, rows, keys)
    else:
        starts = [*range(0, 120, windows)]
        assert_same(sorted_seen(outcome), by_hand_in_windows(count, rows, windows, starts, keys))


def test_how_many_shards_keys_have() -> None:
    """One for few, up to 64 for many, and more where their states would be large."""
    given = [(1, 1), (1, 10**6), (1024, 1), (1025, 1), (100, 100), (10**6, 1), (10**7, 1)]
    assert [shards_of(*each) for each in given] == [1, 1, 1, 2, 10, 64, 306]


def test_the_state_of_another_shard_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(all_ticks, "PER_SHARD", 1)
    shards = TickShards(dofns_of(exact(["a", "b"], path="streaming"))[CountEachTick])
    shards.seed()
    shards.cells[0].data = shards.cells[1].data
    with pytest.raises(StateError, match=says(OTHER_KEYS)):
        shards.release(0)
    assert [release.key for release in shards.release(1)] == ["b"]


# Retries


_attempts: Tally[Any] = Tally()


class Flaky(Entropy):
    """Noise that fails at some coordinates when they are first drawn."""

    def source(self, law: Law, dimension: int | None) -> Any:
        return lambda key, window: FlakyNoise(key, window, None, 50)


class FlakyNoise(KeyedScript):
    def __init__(self, key: str, *rest: Any) -> None:
        super().__init__(key, *rest)
        self._key = key

    def one(self, coordinate: int) -> int:
        _attempts[self._key, coordinate] += 1
        if _attempts[self._key, coordinate] == 1 and coordinate in (2, 7):
            raise ConnectionError("the worker went away")
        return super().one(coordinate)


@pytest.fixture
def attempts() -> Iterator[Tally[Any]]:
    _attempts.clear()
    yield _attempts
    _attempts.clear()


def test_retried_bundles_lose_and_repeat_nothing(attempts: Tally[Any]) -> None:
    """This runner retries a bundle three times, its state and timers rolled back."""
    rows: list[Row] = [("a", i % 2, i * SECOND) for i in range(120)]
    count = scripted(["a"], mechanism="SmoothBinary", entropy=Flaky())
    outcome = run_stream(count, *rows, *range(5, 130, 5))
    assert attempts["a", 2] >= 2  # it did fail
    assert outcome.releases == by_hand(count, rows, ["a"])


# Real files


def timed(name: str, key: str, time: str, delimiter: str) -> list[Row]:
    return [(row[key], 1, int(row[time]) * SECOND) for row in real_rows(name, delimiter)]


def running_counts(
    rows: Sequence[Row], keys: Sequence[str], origin: int, tick: int, steps: int
) -> list[tuple[str, int, float]]:
    """Exact counts, straight from the rows."""
    of_key: dict[str, list[int]] = {key: [] for key in keys}
    for key, _, micros in rows:
        if key in of_key:
            of_key[key].append(micros)
    found = []
    for key in sorted(keys):
        moments, at = sorted(of_key[key]), 0
        for step in range(1, steps + 1):
            while at < len(moments) and moments[at] < origin + step * tick:
                at += 1
            found.append((key, step, float(at)))
    return found


@pytest.mark.exhaustive
@each_path
def test_exact_counts_of_bgl_by_day(path: str) -> None:
    rows = timed("bgl_2k.csv", "Level", "Timestamp", ",")
    assert len(rows) == 2000
    day, keys = 86_400 * SECOND, sorted({row[0] for row in rows})
    first = min(row[2] for row in rows) // day * day
    last = max(row[2] for row in rows)
    steps = (last - first) // day + 1
    count = TickNumbers(
        EXACT,
        dt.timedelta(days=1),
        Timestamp(micros=first),
        Timestamp(micros=last + 1),
        keys=keys,
        mechanism="SmoothBinary",
        path=path,
    )
    random.Random(1).shuffle(rows)
    outcome = run(lambda p: p | feed(rows) | count)
    given = [(r.key, r.step, r.value) for r in outcome.releases]
    assert given == running_counts(rows, keys, first, day, steps)
    assert sum(r.value for r in outcome.releases if r.step == steps) == 2000


@pytest.mark.exhaustive
@each_path
def test_exact_counts_of_collegemsg_by_hour(path: str) -> None:
    """Half a million releases of the 100 busiest."""
    rows = timed("collegemsg.txt", "src", "time", " ")
    assert len(rows) == 59_835
    keys = [key for key, _ in Tally(row[0] for row in rows).most_common(100)]
    hour, first = 3600 * SECOND, min(row[2] for row in rows)
    steps = (max(row[2] for row in rows) - first) // hour + 1
    count = TickNumbers(
        EXACT,
        3600,
        Timestamp(micros=first),
        horizon=steps,
        keys=keys,
        mechanism="SmoothBinary",
        path=path,
    )
    # In one list: to keep every release by itself takes longer than the count.
    outcome = run(lambda p: p | feed(rows) | count | beam.Map(plain) | beam.combiners.ToList())  # type: ignore[attr-defined]
    (given,) = outcome.releases
    assert sorted(given) == running_counts(rows, keys, first, hour, steps)


def plain(release: Release) -> tuple[str, int, float]:
    return release.key, release.step, release.value


# What the outside sees


@pytest.mark.parametrize(
    ("options", "row", "kind", "remedy"),
    [
        ({"on_reject": "raise"}, ("a", SECRET_TEXT, 1), RejectedElementError, 'on_reject="drop"'),
        ({"on_unknown": "raise"}, (SECRET_TEXT, SECRET, 1), UnknownKeyError, 'on_unknown="drop"'),
        ({"on_unknown": "raise"}, (7, SECRET, 1), UnknownKeyError, "add all public keys"),
    ],
    ids=["value", "key", "no text"],
)
@each_path
def test_raise_tells_what_to_do_and_shows_no_data(
    options: dict[str, Any],
    row: Row,
    kind: type[Exception],
    remedy: str,
    path: str,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    error = failure(lambda p: p | feed([("a", 1, 0), row], Any) | scripted(path=path, **options))
    assert isinstance(error, kind)
    assert remedy in str(error)
    printed = capfd.readouterr()
    for text in (str(error), caplog.text, printed.out, printed.err):
        assert SECRET_TEXT not in text
        assert str(SECRET) not in text
    # Nothing else is refused.
    rows = some_rows(20, [0, 1, 2.5])
    rows = [row for row in rows if row[0] != "z"]
    count = scripted(path=path, **options)
    assert run(lambda p: p | feed(rows) | count).releases == by_hand(count, rows)


@each_path
def test_elements_without_timestamps_are_refused(path: str) -> None:
    """Whatever their keys and values: that is not a fact about the data."""
    for element in (("a", SECRET), ("z", 1), ("a", None)):
        error = failure(lambda p, element=element: p | beam.Create([element]) | scripted(path=path))
        assert isinstance(error, UntimedElementError)
        assert "TimestampedValue" in str(error)
        assert str(SECRET) not in str(error)


@pytest.mark.long
@pytest.mark.parametrize("late", [[], [-500], [-1], [500, -999]], ids=str)
def test_no_event_makes_a_window_of_releases(late: list[int]) -> None:
    """Beam cuts times to milliseconds, towards 0, after windows are assigned: 500 us before the
    start an event keeps the window before it, which has no releases, but the time of the start."""
    rows: list[Row] = [("a", 1, 500_000), *(("a", 1, micros) for micros in late)]
    count = exact(["a", "b"], tick=1, horizon=4, path="bounded")

    def build(pipeline: beam.Pipeline) -> Any:
        windowed = pipeline | feed(rows) | beam.WindowInto(FixedWindows(2))
        return windowed | beam.Reshuffle() | count

    outcome = run(build)
    assert {(r.key, r.step, r.timestamp) for r in outcome.releases} == {
        (key, step, step * SECOND) for key in "ab" for step in (1, 2, 3, 4)
    }
    assert values_of(outcome, "a")[:1] == [1.0 + (500 in late)]


def test_events_of_other_windows_than_the_declared_ones_leave_no_trace() -> None:
    """A Flatten of differently windowed inputs declares the windows of the first."""

    def build(pipeline: beam.Pipeline, second: Any) -> Any:
        first = pipeline | "A" >> feed([("a", 1, 0)]) | "WA" >> beam.WindowInto(FixedWindows(4))
        other = pipeline | "B" >> feed([("a", 1, SECOND)]) | "WB" >> beam.WindowInto(second)
        return (first, other) | beam.Flatten() | exact(["a"], tick=1, horizon=8)

    for second in (SlidingWindows(8, 2), FixedWindows(8)):
        outcome = run(lambda p, second=second: build(p, second))
        assert len(outcome.releases) == 8
        assert [r.value for r in outcome.releases if r.timestamp == SECOND] == [1.0]


class Shouting(str):
    """A key that is another text than its hash says."""

    __slots__ = ()

    def __hash__(self) -> int:
        return hash(self.upper())

    def __eq__(self, other: object) -> bool:
        return self.upper() == other


@each_path
def test_keys_of_a_subclass_count_by_their_text(path: str) -> None:
    count = exact(["a", "A"], path=path, horizon=1)
    outcome = run(lambda p: p | feed([(Shouting("a"), 1, 0)], Any) | count)
    assert (values_of(outcome, "a"), values_of(outcome, "A")) == ([1.0], [0.0])


class Pretending(str):
    """A key that passes for "a" where it is compared, and is written as what it is."""

    __slots__ = ()

    def __hash__(self) -> int:
        return hash("a")

    def __eq__(self, other: object) -> bool:
        return other == "a"


@each_path
def test_keys_that_pass_for_others_count_nothing(path: str) -> None:
    """Or a private text would be released as a key, with a count of its own."""
    count = exact(["a", "b"], path=path, horizon=1)
    rows: list[Row] = [("b", 1, 0), (Pretending(SECRET_TEXT), 1, 0)]
    outcome = run(lambda p: p | feed(rows, Any) | count)
    assert [(r.key, r.value) for r in outcome.releases] == [("a", 0.0), ("b", 1.0)]


@each_path
def test_declared_keys_of_another_type_are_refused_at_construction(path: str) -> None:
    with pytest.raises(TypeError, match=r"keys are .*int.*str\(key\)"):
        _ = beam.Pipeline() | feed([(7, 1, 0)], tuple[int, int]) | scripted(path=path)


def test_a_share_of_a_ledger_is_spent_once_and_only_where_applied() -> None:
    whole = Ledger(dp.ZCDP(1.0))
    share = whole.share(0.25, "clicks")
    count = scripted(budget=share)
    assert count.counter.budget == dp.ZCDP(0.25)
    assert "25 %" in count.display_data()["ledger"]
    with pytest.raises(ValueError, match=says(OFF_GRID)):
        _ = beam.Pipeline() | feed([]) | beam.WindowInto(FixedWindows(25)) | count
    assert share.claimed_by is None
    events = beam.Pipeline() | feed([])
    _ = events | count
    assert share.claimed_by == "TickCount"
    with pytest.raises(ClaimedError):
        _ = events | "Again" >> count


@each_path
def test_pipelines_carry_no_noise(path: str) -> None:
    """Two pipelines with the default entropy are the same, but for what names their steps."""

    def dofn_bytes() -> list[bytes]:
        pipeline = beam.Pipeline()
        _ = pipeline | feed([]) | TickNumbers(BUDGET, 10, 0, horizon=12, keys=["a"], path=path)
        steps = pipeline.to_runner_api().components.transforms.values()
        return sorted(
            t.spec.payload
            for t in steps
            if re.search(
                "TickCount/(SeedShards|ReadTicks|SumTicks|Count(Each|All)Tick)", t.unique_name
            )
        )

    assert len(dofn_bytes()) == {"bounded": 2, "streaming": 3}[path]
    assert dofn_bytes() == dofn_bytes()


# Arguments


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"on_reject": "collect"}, "on_reject must be one of drop, raise, got 'collect'"),
        ({"start": "2024-01-01"}, "start has no time zone"),
        ({"horizon": None}, says(NO_END)),
        ({"stop": 1001}, "horizon is 100, but there are 101 ticks"),
        ({"mechanism": BinaryTree(99)}, "made for 99 steps, but the clock has 100 ticks"),
        (
            {"mechanism": dp.mechanisms.Unbounded(BinaryTree)},
            "Unbounded.* counts .* give one of mechanisms",
        ),
        ({"mechanism": dp.mechanisms.Sparse(9, 9)}, "Sparse.* counts .* give one of mechanisms"),
        ({"mechanism": "SmoothBinary", "budget": dp.PureDP(1.0)}, says(TAKES_GAUSSIAN)),
        ({"max_per_tick": 2**60}, "exceeds 2\\^62 lattice units"),
        ({"unit": 5}, says(TOO_COARSE)),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_constructor_refusals(options: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {
        "budget": BUDGET,
        "tick": 10,
        "start": 0,
        "horizon": 100,
        "keys": ["a"],
        **options,
    }
    with pytest.raises((ValueError, TypeError), match=message):
        TickNumbers(**given)


def test_the_change_is_that_of_ticks() -> None:
    count = TickNumbers(dp.ZCDP(0.5), 10, 0, horizon=200, keys=["a"], mechanism=BinaryTree)
    assert count.counter.l2_sensitivity == pytest.approx(math.sqrt(8))
    replaced = TickNumbers(
        dp.ZCDP(0.5), 10, 0, horizon=200, keys=["a"], mechanism=BinaryTree, relation="replace_one"
    )
    assert replaced.counter.l2_sensitivity == pytest.approx(4)
    best = TickNumbers(dp.ZCDP(0.5), 10, 0, horizon=200, keys=["a"])
    assert (
        best.counter.mechanism == dp.choose(200, dp.ZCDP(0.5), change=best.counter.change).mechanism
    )


@pytest.mark.parametrize("mechanism", ["KAry", KAry, None])
def test_streaming_takes_the_variant_that_is_safe_under_replays(mechanism: Any) -> None:
    count = scripted(mechanism=mechanism, budget=dp.PureDP(1), path="streaming", horizon=10**6)
    safe = SmoothLaplace(10**6) if mechanism is None else KAry(10**6, subtraction=False)
    assert count.counter.mechanism == safe
    early = scripted(mechanism=KAry(12), budget=dp.PureDP(1), path="streaming")
    with pytest.raises(ValueError, match="subtraction=False"):
        _ = beam.Pipeline() | feed([]) | early

"""PrefixCount inside pipelines: the same numbers on every runner and path, and nothing else."""

from __future__ import annotations

import logging
import math
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from itertools import groupby
from operator import itemgetter
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.coders.coders import IntervalWindowCoder, SingletonCoder
from apache_beam.pvalue import PCollection
from apache_beam.runners.direct.direct_runner import BundleBasedDirectRunner
from apache_beam.testing import test_stream
from apache_beam.transforms import trigger
from apache_beam.transforms.window import (
    FixedWindows,
    GlobalWindow,
    IntervalWindow,
    NonMergingWindowFn,
    SlidingWindows,
    TimestampedValue,
)
from apache_beam.utils import windowed_value
from apache_beam.utils.timestamp import MIN_TIMESTAMP, Timestamp

import beam_dpcount as dp
from beam_dpcount.counters.change import TOO_COARSE, TOO_FINE
from beam_dpcount.counters.choose import PURE_NEEDS_HORIZON
from beam_dpcount.counters.counter import TAKES_GAUSSIAN
from beam_dpcount.dofns.gathered import CountGathered
from beam_dpcount.dofns.intake import NOT_PAIRS, RejectedElementError
from beam_dpcount.dofns.releases import Rejected, Release
from beam_dpcount.dofns.windows import OTHER_WINDOWS
from beam_dpcount.mechanisms import BinaryTree, KAry, SmoothBinary, Sparse, Unbounded
from beam_dpcount.noise.entropy import Entropy
from beam_dpcount.noise.laws import Law
from beam_dpcount.plans.counting import ON_REJECT
from beam_dpcount.states.codecs import StateCodec
from beam_dpcount.states.envelope import StateError
from beam_dpcount.states.wire import PAIR
from beam_dpcount.transforms.inputs import SEVERAL_WINDOWS
from benchmarks.cells import Cell
from benchmarks.jobs import dofns_of
from tests.hostile import Unshowable
from tests.messages import says
from tests.runners import RUNNERS, Row, Seen, failure, feed, run
from tests.scripted import KeyedScript, ScriptedEntropy

PATHS = ("bounded", "streaming")
BUDGET = dp.ApproxDP(1.0, 1e-6)
EXACT = dp.ZCDP(1e12)  # its noise is 0
SECOND = 1_000_000
# A number and a text that turn up nowhere by chance.
SECRET, SECRET_TEXT = 77_431, "s3cr3t"

each_path = pytest.mark.parametrize("path", PATHS)
each_runner = pytest.mark.parametrize("runner", RUNNERS)


def scripted(horizon: int = 256, **options: Any) -> dp.PrefixCount:
    """A transform whose noise the tests know."""
    options = {"budget": BUDGET, "entropy": ScriptedEntropy(), **options}
    return dp.PrefixCount(horizon=horizon, **options)


def by_hand(
    counter: dp.Counter, rows: Sequence[Row], path: str, window: Any = None
) -> list[Release]:
    """The releases of the rows of one window, one Counter.step at a time."""
    if path == "bounded":
        rows = sorted(rows, key=lambda row: row[2])
    window = GlobalWindow() if window is None else window
    releases = []
    for key, mine in groupby(sorted(rows, key=lambda row: row[0]), key=lambda row: row[0]):
        noise = KeyedScript(key, window, None, 50)
        state = counter.init()
        for step, (_, x, micros) in enumerate(mine, start=1):
            if step > counter.mechanism.horizon:
                break
            try:
                state, value = counter.step(state, x, noise)
            except dp.errors.NotANumberError:
                state, value = counter.step(state, 0, noise)
            stddev = math.sqrt(counter.variance(step))
            releases.append(Release(key, step, micros, value, pytest.approx(stddev, rel=1e-12)))
    return releases


def some_rows(counts: dict[str, int], values: Sequence[Any], seed: int = 1) -> list[Row]:
    """Rows with keys mixed, out of order in time, with ties in time."""
    chance = random.Random(seed)
    keys = [key for key, n in counts.items() for _ in range(n)]
    chance.shuffle(keys)
    return [(key, chance.choice(values), chance.randrange(60) * SECOND) for key in keys]


def steps_of(releases: Sequence[Release]) -> list[tuple[str, int]]:
    return [(release.key, release.step) for release in releases]


# The same numbers everywhere


BALANCED = SmoothBinary(256, balanced=True)
EVERY = [*(kind(256) for kind in dp.mechanisms.ALL), BALANCED]


@each_path
@pytest.mark.parametrize(
    ("runner", "mechanism"),
    [("fn", mechanism) for mechanism in EVERY]
    + [(runner, m) for runner in ("bundles", "grpc") for m in (BinaryTree(256), BALANCED)],
    ids=str,
)
def test_releases_equal_steps_by_hand(mechanism: Any, path: str, runner: str) -> None:
    # 130 elements take the vectorised release, 20 the loop.
    rows = some_rows({"many": 130, "few": 20, "one": 1}, [0, 1, 2, -0.4, 0.75, 9, -9, None, "1"])
    if mechanism.draws_early and path == "streaming":
        mechanism = KAry(256, subtraction=False)  # see test_noise_drawn_early_is_refused...
    count = scripted(mechanism=mechanism, bounds=(-1, 2), unit=0.5, path=path)
    outcome = run(lambda p: p | feed(rows) | count, runner)
    assert outcome.releases == by_hand(count.counter, rows, path)
    # Downstream windows go by the time stamped on the element.
    assert all(seen.micros == seen.value.timestamp for seen in outcome.outputs[0])


@each_path
def test_microseconds_are_kept(path: str) -> None:
    times = [1_700_000_000_123_456, 1_700_000_000_123_457, -5_000_001]
    outcome = run(lambda p: p | feed([("k", 1, t) for t in times]) | scripted(path=path))
    given = sorted(times) if path == "bounded" else times
    assert [release.timestamp for release in outcome.releases] == given
    assert [seen.micros for seen in outcome.outputs[0]] == given


@each_path
def test_elements_without_timestamps_count_in_order_of_arrival(path: str) -> None:
    xs = [1, 0, 1, 1, 0, 1] * 10
    count = scripted(path=path)
    outcome = run(lambda p: p | beam.Create([("k", x) for x in xs], reshuffle=False) | count)
    rows = [("k", x, MIN_TIMESTAMP.micros) for x in xs]
    assert outcome.releases == by_hand(count.counter, rows, path)


@each_path
def test_releases_window_downstream_by_their_times(path: str) -> None:
    rows = [("k", 1, t * SECOND) for t in (3, 14, 5, 27)]
    outcome = run(
        lambda p: p | feed(rows) | scripted(path=path) | "Down" >> beam.WindowInto(FixedWindows(10))
    )
    for seen in outcome.outputs[0]:
        start = seen.value.timestamp // (10 * SECOND) * 10
        assert seen.window == str(IntervalWindow(start, start + 10))


@each_path
@pytest.mark.parametrize("size", [5, 100], ids=["loop", "vectorised"])
def test_ties_go_by_element_id_on_the_bounded_path(path: str, size: int) -> None:
    ids = list(range(size))
    random.Random(2).shuffle(ids)
    rows = [("k", {"id": i, "x": i % 3}, (i // 50) * SECOND) for i in ids]
    count = scripted(bounds=(0, 2), path=path, value=lambda d: d["x"], element_id=lambda d: d["id"])
    outcome = run(lambda p: p | feed(rows) | count)
    ordered = sorted(rows, key=lambda row: row[1]["id"]) if path == "bounded" else rows
    plain = [(key, payload["x"], micros) for key, payload, micros in ordered]
    assert outcome.releases == by_hand(count.counter, plain, path)


@each_path
def test_ties_go_by_arrival_without_an_id(path: str) -> None:
    rows = [("k", x, SECOND) for x in [1, 0, 0, 1, 1, 1, 0] * 12]
    count = scripted(path=path, on_reject="collect")
    outcome = run(lambda p: p | feed(rows) | count)
    assert outcome.releases == by_hand(count.counter, rows, path)
    assert outcome.rejected == []


def test_ids_of_later_elements_do_not_overrule_time() -> None:
    rows = [("k", {"id": 5 - i, "x": i % 2}, i * SECOND) for i in range(5)]
    count = scripted(value=lambda d: d["x"], element_id=lambda d: d["id"])
    outcome = run(lambda p: p | feed(rows) | count)
    assert [release.timestamp for release in outcome.releases] == [i * SECOND for i in range(5)]


@each_path
def test_a_transform_can_be_applied_and_run_again(path: str) -> None:
    rows = some_rows({"a": 9, "b": 3}, [0, 1])
    count = scripted(path=path)

    def twice(pipeline: beam.Pipeline) -> tuple[PCollection[Any], ...]:
        events = pipeline | feed(rows)
        return events | "One" >> count, events | "Two" >> count

    first, second = run(twice), run(twice)
    expected = by_hand(count.counter, rows, path)
    for outcome in (first, second):
        assert [[seen.value for seen in output] for output in outcome.outputs] == [expected] * 2


@each_path
def test_system_entropy_is_the_default_and_new_in_every_run(path: str) -> None:
    rows = [("k", 1, 0)] * 30
    count = dp.PrefixCount(dp.ZCDP(1e-4), 30, path=path)
    values = [[r.value for r in run(lambda p: p | feed(rows) | count).releases] for _ in range(2)]
    assert values[0] != values[1]  # equal with a probability below 1e-50


# Unbounded input


def stream(rows: Sequence[Row], element_type: Any = tuple[str, Any]) -> test_stream.TestStream:
    """An unbounded source of the rows, in this order."""
    source = test_stream.TestStream()
    for key, payload, micros in rows:
        source.add_elements([TimestampedValue((key, payload), Timestamp(micros=micros))])
        source.advance_processing_time(1)
    return source.advance_watermark_to_infinity()


def typed(source: beam.PTransform) -> beam.PTransform:
    return source | "Typed" >> beam.Map(lambda e: e).with_output_types(tuple[str, Any])


@pytest.mark.parametrize("path", ["auto", "streaming"])
@pytest.mark.parametrize("declare", [True, False], ids=["typed", "untyped"])
def test_unbounded_input_streams(path: str, declare: bool) -> None:
    rows = some_rows({"a": 9, "b": 3}, [0, 1, None])
    count = scripted(path=path)

    def build(pipeline: beam.Pipeline) -> PCollection[Any]:
        events = pipeline | (typed(stream(rows)) if declare else stream(rows))
        releases = events | count
        assert not releases.is_bounded
        return releases

    outcome = run(build, BundleBasedDirectRunner(), ["--streaming"])
    assert outcome.releases == by_hand(count.counter, rows, "streaming")
    assert all(seen.micros == seen.value.timestamp for seen in outcome.outputs[0])


def test_unbounded_input_comes_out_before_its_end() -> None:
    """A release does not wait for the watermark, as a grouping would."""
    source = test_stream.TestStream()
    source.add_elements([TimestampedValue(("k", 1), Timestamp(5))])
    source.advance_processing_time(1)
    source.advance_watermark_to(7)
    source.add_elements([TimestampedValue(("late", 1), Timestamp(3))])  # behind the watermark
    source.advance_watermark_to_infinity()
    outcome = run(lambda p: p | source | scripted(), BundleBasedDirectRunner(), ["--streaming"])
    assert steps_of(outcome.releases) == [("k", 1), ("late", 1)]


def test_auto_is_grouped_on_bounded_input() -> None:
    assert labels(lambda p: p | feed([("k", 1, 0)]) | scripted()) >= {"CountWholeKey"}
    assert labels(lambda p: p | typed(stream([("k", 1, 0)])) | scripted()) >= {"CountGathered"}


def labels(build: Callable[[beam.Pipeline], Any]) -> set[str]:
    pipeline = beam.Pipeline()
    build(pipeline)
    transforms = pipeline.to_runner_api().components.transforms.values()
    return {transform.unique_name.rsplit("/", 1)[-1] for transform in transforms}


# Windows


WINDOWED = some_rows({"a": 40, "b": 9, "c": 1}, [0, 1, 5, None], seed=3)


def by_hand_in_windows(counter: dp.Counter, path: str, size: int = 10) -> list[Seen]:
    """Every window anew, from its own budget."""
    seen = []
    for start in range(0, 60, size):
        window = IntervalWindow(start, start + size)
        rows = [row for row in WINDOWED if start <= row[2] // SECOND < start + size]
        for release in by_hand(counter, rows, path, window):
            seen.append(Seen(release, release.timestamp, str(window)))
    return sorted(seen, key=lambda item: (item.value.key, item.value.step, item.window))


@each_runner
@each_path
def test_each_fixed_window_starts_anew(path: str, runner: str) -> None:
    count = scripted(path=path, bounds=(0, 5))
    outcome = run(lambda p: p | feed(WINDOWED) | beam.WindowInto(FixedWindows(10)) | count, runner)
    given = sorted(outcome.outputs[0], key=lambda s: (s.value.key, s.value.step, s.window))
    assert given == by_hand_in_windows(count.counter, path)


@pytest.mark.parametrize("runner", ["fn", "bundles"])
@pytest.mark.parametrize(
    "fires",
    [
        trigger.Repeatedly(trigger.AfterCount(1)),
        trigger.AfterWatermark(
            early=trigger.AfterProcessingTime(0), late=trigger.Repeatedly(trigger.AfterCount(1))
        ),
    ],
    ids=["count", "early and late"],
)
@pytest.mark.parametrize("windows", [None, 10], ids=["global", "fixed"])
def test_bounded_input_releases_once_whatever_the_trigger(
    windows: int | None, fires: Any, runner: str
) -> None:
    windowing = beam.WindowInto(
        beam.transforms.window.GlobalWindows() if windows is None else FixedWindows(windows),
        trigger=fires,
        accumulation_mode=trigger.AccumulationMode.ACCUMULATING,
        allowed_lateness=1000,
    )
    count = scripted(path="bounded", bounds=(0, 5))
    outcome = run(lambda p: p | feed(WINDOWED) | windowing | count, runner)
    given = sorted(outcome.outputs[0], key=lambda s: (s.value.key, s.value.step, s.window))
    if windows is None:
        assert outcome.releases == by_hand(count.counter, WINDOWED, "bounded")
    else:
        assert given == by_hand_in_windows(count.counter, "bounded")


@each_path
@pytest.mark.parametrize("period", [10, 15])
def test_sliding_windows_that_do_not_overlap_are_taken(path: str, period: int) -> None:
    count = scripted(path=path)
    sliding = beam.WindowInto(SlidingWindows(10, period))
    outcome = run(lambda p: p | feed(WINDOWED) | sliding | count)
    covered = [row for row in WINDOWED if row[2] // SECOND % period < 10]
    starts = [row[2] // SECOND // period * period for row in covered]
    expected = [
        Seen(release, release.timestamp, str(IntervalWindow(start, start + 10)))
        for start in sorted(set(starts))
        for release in by_hand(
            count.counter,
            [row for row, at in zip(covered, starts, strict=True) if at == start],
            path,
            IntervalWindow(start, start + 10),
        )
    ]
    given = sorted(outcome.outputs[0], key=lambda s: (s.value.key, s.value.step, s.window))
    assert given == sorted(expected, key=lambda s: (s.value.key, s.value.step, s.window))


class TwoWindows(NonMergingWindowFn):
    """A window function of the user's own."""

    def assign(self, assign_context: Any) -> list[Any]:
        return [GlobalWindow(), GlobalWindow()]

    def get_window_coder(self) -> Any:
        return SingletonCoder(GlobalWindow())


class BothMinutes(NonMergingWindowFn):
    """Puts elements into two windows that FixedWindows(60) has, too."""

    def assign(self, assign_context: Any) -> list[Any]:
        return [IntervalWindow(0, 60), IntervalWindow(60, 120)]

    def get_window_coder(self) -> Any:
        return IntervalWindowCoder()


@each_path
def test_windows_of_their_own_are_refused(path: str) -> None:
    two = beam.WindowInto(TwoWindows())
    with pytest.raises(ValueError, match=says(SEVERAL_WINDOWS)):
        _ = beam.Pipeline() | feed([("k", 1, 0)]) | two | scripted(path=path)


@each_path
@pytest.mark.parametrize(
    "second",
    [SlidingWindows(8, 2), FixedWindows(8), SlidingWindows(4, 2), FixedWindows(4, offset=1)],
    ids=["many", "one", "many as long", "one apart"],
)
def test_elements_of_other_windows_than_the_declared_ones_are_refused(
    second: Any, path: str
) -> None:
    """A Flatten of differently windowed inputs declares the windows of the first."""

    def build(pipeline: beam.Pipeline) -> Any:
        first = pipeline | "A" >> feed([("k", 1, 0)]) | "WA" >> beam.WindowInto(FixedWindows(4))
        other = pipeline | "B" >> feed([("k", 1, 1)]) | "WB" >> beam.WindowInto(second)
        return (first, other) | beam.Flatten() | scripted(path=path)

    with pytest.raises(Exception, match=says(OTHER_WINDOWS)):
        run(build)


@each_path
def test_an_element_in_two_of_the_declared_windows_is_refused(path: str) -> None:
    """It would be released in both, and spend the budget of both."""

    def build(pipeline: beam.Pipeline) -> Any:
        first = pipeline | "A" >> feed([("k", 1, 0)]) | "WA" >> beam.WindowInto(FixedWindows(60))
        twice = "WB" >> beam.WindowInto(BothMinutes())
        other = pipeline | "B" >> feed([("k", 1, 70 * 10**6)]) | twice
        return (first, other) | beam.Flatten() | scripted(path=path)

    with pytest.raises(Exception, match=says(OTHER_WINDOWS)):
        run(build)


# Elements that are refused


NOT_NUMBERS: list[Any] = [
    None,
    "1",
    SECRET_TEXT,
    math.nan,
    np.float64("nan"),
    Decimal("nan"),
    Decimal("snan"),
    1j,
    [1],
    {"x": 1},
    np.array([1, 2]),
    Unshowable(),
    {},  # the field is missing
]


@each_runner
@each_path
def test_drop_takes_the_step_with_0(path: str, runner: str) -> None:
    rows = [("k", 1, 0), *(("k", bad, 0) for bad in NOT_NUMBERS), ("k", 1, 0), ("b", None, 0)]
    count = scripted(path=path)
    outcome = run(lambda p: p | feed(rows) | count, runner)
    assert outcome.releases == by_hand(count.counter, rows, path)
    assert len(outcome.releases) == len(rows)
    assert not outcome.metrics()  # how many were dropped is private


@each_path
@pytest.mark.parametrize("on_reject", ["drop", "collect"])
@pytest.mark.parametrize("with_ids", [False, True], ids=["plain", "ids"])
@pytest.mark.parametrize("size", [9, 60])  # taken one by one, and all at once
def test_what_is_no_number_takes_a_step_like_any_other(
    size: int, with_ids: bool, on_reject: str, path: str
) -> None:
    """Wherever it stands, of one key only refused values, and some beyond the horizon."""
    bad = [math.nan, None, SECRET_TEXT, np.float64("nan"), Decimal("nan"), {}]
    mixed = [1, *bad[:3], 0.6, *bad[3:], True]
    values = {"a": [mixed[i % 9] for i in range(size)], "b": [bad[i % 6] for i in range(size)]}
    rows = [(key, values[key][i], i * SECOND) for i in range(size) for key in values]
    count = scripted(
        horizon=size - 2,
        path=path,
        on_reject=on_reject,
        value=itemgetter(1) if with_ids else None,
        element_id=itemgetter(0) if with_ids else None,
    )
    given = [(key, (micros, x) if with_ids else x, micros) for key, x, micros in rows]
    outcome = run(lambda p: p | feed(given) | count)
    assert steps_of(outcome.releases) == [(k, i + 1) for k in values for i in range(size - 2)]
    assert outcome.releases == by_hand(count.counter, rows, path)
    assert outcome.metrics() == {"past_horizon": 4}
    if on_reject == "collect":
        within = [x for key in values for x in values[key][: size - 2]]
        refused = sum(not isinstance(x, int | float) or x != x for x in within)
        assert len(outcome.rejected) == refused + 4


@each_path
def test_a_missing_field_is_no_number(path: str) -> None:
    rows = [("k", {"x": 1}, 0), ("k", {}, 1), ("k", {"x": 1}, 2)]
    count = scripted(path=path, value=lambda d: d.get("x"))
    outcome = run(lambda p: p | feed(rows) | count)
    plain = [("k", 1, 0), ("k", None, 1), ("k", 1, 2)]
    assert outcome.releases == by_hand(count.counter, plain, path)


MIXED: list[tuple[Any, Row]] = [
    (None, ("k", 1, 0)),
    ("not a number", ("k", None, 1000)),
    (None, ("k", 0.6, 2000)),
    ("not a number", ("k", SECRET_TEXT, 3000)),
    ("horizon", ("k", 5, 4000)),
    ("horizon", ("k", SECRET, 5000)),
    (None, ("other", True, 6000)),
    ("key", (7, 1, 7000)),
    ("key", (None, SECRET, 8000)),
    ("key", (b"k", 1, 9000)),
]


@each_runner
@each_path
def test_collect_loses_nothing(path: str, runner: str) -> None:
    rows = [row for _, row in MIXED]
    count = scripted(horizon=4, path=path, on_reject="collect")
    outcome = run(lambda p: p | feed(rows, Any) | count, runner)
    counted = [row for reason, row in MIXED if reason in (None, "not a number")]
    assert outcome.releases == by_hand(count.counter, counted, path)

    refused = {rejected.timestamp: rejected for rejected in outcome.rejected}
    assert len(refused) == len(outcome.rejected)
    expected = {row[2]: (reason, row) for reason, row in MIXED if reason is not None}
    assert refused.keys() == expected.keys()
    for micros, (reason, (key, payload, _)) in expected.items():
        rejected = refused[micros]
        assert isinstance(rejected, Rejected)
        assert reason in rejected.reason
        assert SECRET_TEXT not in rejected.reason
        assert str(SECRET) not in rejected.reason
        assert rejected.id is None
        if reason == "key":
            assert rejected.element == repr((key, payload))
        else:
            assert (rejected.key, rejected.element) == (key, repr(payload))
    gone = [r for r in outcome.rejected if "horizon" in r.reason or "key" in r.reason]
    assert len(outcome.releases) + len(gone) == len(rows)
    assert outcome.metrics() == {"past_horizon": 2}


@each_path
def test_rejected_elements_keep_their_times(path: str) -> None:
    rows = [row for _, row in MIXED]
    count = scripted(horizon=4, path=path, on_reject="collect")
    outcome = run(lambda p: p | feed(rows, Any) | count)
    assert [seen.micros for seen in outcome.outputs[1]] == [r.timestamp for r in outcome.rejected]


@each_path
def test_collect_names_ids(path: str) -> None:
    rows = [("k", ("e1", 1), 0), ("k", ("e2", "bad"), 1), ("k", ("e3", 1), 2)]
    count = scripted(
        horizon=2,
        path=path,
        on_reject="collect",
        value=lambda v: v[1],
        element_id=lambda v: v[0],
    )
    outcome = run(lambda p: p | feed(rows) | count)
    assert [(r.id, r.element) for r in outcome.rejected] == [
        ("e2", "('e2', 'bad')"),
        ("e3", "('e3', 1)"),
    ]


@each_path
def test_collect_gives_each_element_once(path: str) -> None:
    """An element past the horizon was not read: it is not also refused for its value."""
    rows = [("k", 1, 0), ("k", 1, 1), ("k", "bad", 2)]
    count = scripted(horizon=2, path=path, on_reject="collect")
    outcome = run(lambda p: p | feed(rows) | count)
    assert [(r.timestamp, "horizon" in r.reason) for r in outcome.rejected] == [(2, True)]


@each_path
@pytest.mark.parametrize("declare", [tuple[str, Any], Any], ids=["typed", "untyped"])
def test_collect_without_refusals(path: str, declare: Any) -> None:
    rows = some_rows({"a": 3}, [1])
    count = scripted(path=path, on_reject="collect")
    outcome = run(lambda p: p | feed(rows, declare) | count)
    assert (len(outcome.releases), outcome.rejected) == (3, [])


@pytest.mark.parametrize("runner", ["fn", "bundles"])
@each_path
@pytest.mark.parametrize("with_ids", [True, False], ids=["ids", "no ids"])
def test_raise_names_the_element_and_not_its_value(path: str, with_ids: bool, runner: str) -> None:
    rows = [("k", ("e-1", 1), 0), ("k", ("e-2", SECRET_TEXT), 1), ("k", ("e-3", 1), 2)]
    count = scripted(
        path=path,
        on_reject="raise",
        value=lambda v: v[1],
        element_id=(lambda v: v[0]) if with_ids else None,
    )
    error = failure(lambda p: p | feed(rows) | count, runner)
    assert isinstance(error, RejectedElementError)
    text = str(error)
    assert "not a number" in text
    assert 'on_reject="drop"' in text
    assert ("e-2" in text) == with_ids
    assert SECRET_TEXT not in text
    assert "e-1" not in text


@each_path
def test_raise_lets_numbers_pass(path: str) -> None:
    rows = some_rows({"a": 60, "b": 4}, [0, 1, 7, -3, 0.5, True, np.int32(1), Fraction(1, 3)])
    count = scripted(path=path, on_reject="raise")
    outcome = run(lambda p: p | feed(rows) | count)
    assert outcome.releases == by_hand(count.counter, rows, path)


BAD_ELEMENTS: list[Any] = [(7, SECRET), (None, SECRET), (b"k", SECRET)]
BAD_ELEMENTS += [SECRET_TEXT, ("k", SECRET, 1), ["k", SECRET]]


@each_path
@pytest.mark.parametrize(
    ("bad", "on_reject"),
    [((7, SECRET), "raise"), *((bad, "drop") for bad in BAD_ELEMENTS)],
    ids=repr,
)
def test_bad_keys_are_errors(bad: Any, on_reject: str, path: str) -> None:
    count = scripted(path=path, on_reject=on_reject)
    error = failure(
        lambda p: p | beam.Create([bad]) | beam.Map(lambda e: e).with_output_types(Any) | count
    )
    text = str(error)
    assert isinstance(error, TypeError)
    assert re.search(says(NOT_PAIRS), text)
    assert SECRET_TEXT not in text
    assert str(SECRET) not in text


@each_path
def test_messages_about_elements_that_are_no_pairs_say_so(path: str) -> None:
    """Of ("k", 1, 2) the key is a str: that it is not one would mislead."""
    bad = ("k", SECRET, 1)

    def build(pipeline: beam.Pipeline, on_reject: str) -> Any:
        events = pipeline | beam.Create([bad]) | beam.Map(lambda e: e).with_output_types(Any)
        return events | scripted(path=path, on_reject=on_reject)

    (rejected,) = run(lambda p: build(p, "collect")).rejected
    assert rejected.element == repr(bad)
    for text in (str(failure(lambda p: build(p, "drop"))), rejected.reason):
        assert "pair" in text
        assert not re.search("one of str|but str", text)


@each_path
@pytest.mark.parametrize("on_reject", ON_REJECT)
def test_declared_keys_of_another_type_are_refused_at_construction(
    on_reject: str, path: str
) -> None:
    with pytest.raises(TypeError, match=r"keys are .*int.*str\(key\)"):
        _ = beam.Pipeline() | feed([(7, 1, 0)], tuple[int, int]) | scripted(path=path)


# Past the horizon


@each_path
@pytest.mark.parametrize(
    ("runner", "on_reject"), [("fn", "raise"), *((runner, "drop") for runner in RUNNERS)]
)
def test_nothing_is_released_past_the_horizon(on_reject: str, path: str, runner: str) -> None:
    rows = some_rows({"a": 70, "b": 60, "c": 3}, [0, 1])
    count = scripted(horizon=60, path=path, on_reject=on_reject)
    outcome = run(lambda p: p | feed(rows) | count, runner)
    assert outcome.releases == by_hand(count.counter, rows, path)
    assert steps_of(outcome.releases)[59:61] == [("a", 60), ("b", 1)]
    assert outcome.metrics() == {"past_horizon": 10}


@each_path
def test_a_horizon_of_one(path: str) -> None:
    rows = [("k", 1, i) for i in range(5)]
    count = scripted(horizon=1, path=path, on_reject="collect")
    outcome = run(lambda p: p | feed(rows) | count)
    assert outcome.releases == by_hand(count.counter, rows, path)
    assert [r.timestamp for r in outcome.rejected] == [1, 2, 3, 4]


# Keys and values


@each_runner
@each_path
def test_keys_may_be_any_text(path: str, runner: str) -> None:
    keys = [
        "",
        " ",
        "a",
        "ä",
        "漢字",
        "🙂",
        "👩‍👩‍👧",
        "\U0010fffd",
        "\x00",
        "a\nb",
        "'\"",
        "x" * 5000,
    ]
    rows = [(key, i % 2, i) for i in range(3) for key in keys]
    count = scripted(path=path)
    outcome = run(lambda p: p | feed(rows) | count, runner)
    assert outcome.releases == by_hand(count.counter, rows, path)


@pytest.mark.exhaustive
@each_path
def test_many_keys(path: str) -> None:
    rows = [(f"key{i % 400}", i % 2, i) for i in range(1200)]
    count = scripted(horizon=3, path=path)
    outcome = run(lambda p: p | feed(rows) | count)
    assert outcome.releases == by_hand(count.counter, rows, path)


VALUES = [10**400, -(10**400), math.inf, -math.inf, 0.24, 0.26, -0.75, 1.25, 2.4, True]
VALUES += [Decimal("0.5"), Fraction(3, 2), np.int8(-3), np.float32(0.5), np.bool_(True)]


@each_path
@pytest.mark.parametrize(
    ("bounds", "unit", "relation"),
    [
        ((0, 1), 1, "replace_one"),
        ((-2.5, 2), 0.5, "replace_one"),
        ((-3, -1), 1, "add_remove"),
        ((5, 7), 0.5, "add_remove"),
        ((-1, 1), 0.001, "replace_one"),
    ],
)
def test_values_are_clipped_and_rounded(
    bounds: tuple[float, float], unit: float, relation: str, path: str
) -> None:
    rows = [("k", x, i) for i, x in enumerate(VALUES)]
    options: dict[str, Any] = {"bounds": bounds, "unit": unit, "relation": relation, "path": path}
    noisy, exact = scripted(budget=EXACT, **options), dp.PrefixCount(EXACT, 256, **options)

    def both(pipeline: beam.Pipeline) -> tuple[PCollection[Any], ...]:
        events = pipeline | feed(rows)
        return events | "Noisy" >> noisy, events | "Exact" >> exact

    outcome = run(both)
    assert outcome.releases == by_hand(noisy.counter, rows, path)
    values = [seen.value.value for seen in outcome.outputs[1]]
    total = Fraction(0)
    for x, value in zip(VALUES, values, strict=True):
        clipped = min(max(x if not isinstance(x, Decimal) else float(x), bounds[0]), bounds[1])
        total += round(float(clipped) / unit)
        assert value == pytest.approx(float(total) * unit, abs=1e-9)


# Failures


def flip_a_bit(encode: Callable[..., bytes], self: StateCodec, *state: Any) -> bytes:
    data = bytearray(encode(self, *state))
    data[len(data) // 2] ^= 1
    return bytes(data)


@pytest.mark.parametrize(
    "damage",
    [
        flip_a_bit,
        lambda encode, self, *state: encode(self, *state)[:-3],
        lambda encode, self, *state: b"",
        lambda encode, self, *state: b"\xff" * 64,
        lambda encode, self, *state: encode(
            StateCodec(scripted(bounds=(0, 2), path="streaming").counter), *state
        ),
    ],
    ids=["flipped", "cut", "empty", "other", "other counter"],
)
def test_damaged_state_stops_the_stream(
    damage: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    encode = StateCodec.encode
    monkeypatch.setattr(StateCodec, "encode", lambda self, *state: damage(encode, self, *state))
    count = scripted(bounds=(0, 100_000), path="streaming", entropy=ScriptedEntropy(0))
    counting, cell = dofns_of(count)[CountGathered], Cell()  # which makes bytes at every write
    counting.setup()
    counting.start_bundle()
    placed = windowed_value.create(("k", PAIR.pack(0, SECRET)), 0, (GlobalWindow(),))
    assert len([*counting.process(placed.value, placed, cell)]) == 1
    with pytest.raises(StateError) as caught:
        list(counting.process(placed.value, placed, cell))
    assert str(SECRET) not in str(caught.value)
    assert re.search("checkpoint|resume", str(caught.value))


_attempts: dict[Any, int] = {}


@dataclass(frozen=True)
class Flaky(Entropy):
    """Noise that fails at some coordinates when they are first drawn, and is new each time."""

    failing: tuple[int, ...]
    fresh: bool
    drawn: list[Any] = field(default_factory=list)

    def source(self, law: Law, dimension: int | None) -> Any:
        return lambda key, window: FlakyNoise(self, key, window)


class FlakyNoise(KeyedScript):
    def __init__(self, entropy: Flaky, key: str, window: Any) -> None:
        super().__init__(key, window, None, 50)
        self._entropy, self._key = entropy, key

    def one(self, coordinate: int) -> int:
        place = self._key, coordinate
        attempt = _attempts[place] = _attempts.get(place, 0) + 1
        if attempt == 1 and coordinate in self._entropy.failing:
            raise ConnectionError("the worker went away")
        return super().one(coordinate) + (1000 * attempt if self._entropy.fresh else 0)


@pytest.fixture
def attempts() -> Iterator[dict[Any, int]]:
    _attempts.clear()
    yield _attempts
    _attempts.clear()


@each_path
def test_retried_bundles_lose_and_repeat_nothing(path: str, attempts: dict[Any, int]) -> None:
    """This runner retries a bundle three times, its state rolled back."""
    rows = [("k", i % 2, i * SECOND) for i in range(40)]
    count = scripted(path=path, entropy=Flaky((3, 17, 30), fresh=False))
    outcome = run(lambda p: p | feed(rows) | count, "bundles")
    assert attempts["k", 3] >= 2  # it did fail
    assert outcome.releases == by_hand(count.counter, rows, path)


@each_path
@pytest.mark.parametrize("mechanism", [BinaryTree, SmoothBinary])
def test_retries_that_draw_anew_are_consistent(
    mechanism: Any, path: str, attempts: dict[Any, int]
) -> None:
    """Whatever an attempt drew, all releases are of one stream: each coordinate has one noise."""
    rows = [("k", i % 2, i * SECOND) for i in range(40)]
    count = scripted(
        mechanism=mechanism, path=path, budget=dp.ZCDP(1.0), entropy=Flaky((2, 21), fresh=True)
    )
    releases = run(lambda p: p | feed(rows) | count, "bundles").releases
    assert steps_of(releases) == [("k", step) for step in range(1, 41)]
    exact = np.cumsum([x for _, x, _ in rows])
    noise = np.array([release.value for release in releases]) - exact
    drawn = np.linalg.lstsq(count.counter.mechanism.decoder(40), noise, rcond=None)[0]
    script = KeyedScript("k", GlobalWindow(), None, 50)
    for coordinate, z in enumerate(drawn.tolist(), start=1):
        attempt = (z - script.one(coordinate)) / 1000
        assert attempt == pytest.approx(round(attempt), abs=1e-6)
        assert 1 <= round(attempt) <= attempts["k", coordinate]
    assert max(attempts.values()) > 1


_failed: set[Any] = set()


def fail_once(release: Release) -> Release:
    """Fails at the first sight of some releases."""
    place = release.key, release.step
    if release.step in (1, 8, 13) and place not in _failed:
        _failed.add(place)
        raise ConnectionError("the sink went away")
    return release


@each_path
def test_retried_bundles_after_the_count(path: str) -> None:
    rows = [("k", i % 2, i * SECOND) for i in range(20)]
    count = scripted(path=path)
    _failed.clear()
    try:
        outcome = run(lambda p: p | feed(rows) | count | beam.Map(fail_once), "bundles")
        assert _failed == {("k", 1), ("k", 8), ("k", 13)}
    finally:
        _failed.clear()
    assert outcome.releases == by_hand(count.counter, rows, path)


# What the outside sees


@pytest.mark.parametrize("runner", ["fn", "bundles"])
@each_path
def test_a_failing_pipeline_logs_no_data(
    path: str,
    runner: str,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    rows: list[Row] = [("k", SECRET, 0), ("k", SECRET_TEXT, 1)]
    count = scripted(path=path, on_reject="raise", bounds=(0, 10**6))
    failure(lambda p: p | feed(rows) | count, runner)
    printed = capfd.readouterr()
    for text in (caplog.text, printed.out, printed.err):
        assert SECRET_TEXT not in text
        assert str(SECRET) not in text


@each_path
def test_pipelines_carry_no_noise(path: str) -> None:
    """Two pipelines with the default entropy are the same, but for what names their steps."""

    def dofn_bytes() -> list[bytes]:
        pipeline = beam.Pipeline()
        count = dp.PrefixCount(BUDGET, 64, path=path)
        _ = pipeline | feed([("k", 1, 0)]) | count
        parts = pipeline.to_runner_api().components.transforms.values()
        return sorted(t.spec.payload for t in parts if "Count" in t.unique_name)

    assert dofn_bytes() == dofn_bytes()


# Arguments


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mechanism": "SmoothBinary", "budget": dp.PureDP(1.0)}, says(TAKES_GAUSSIAN)),
        ({"horizon": None, "budget": dp.PureDP(1.0)}, says(PURE_NEEDS_HORIZON)),
        ({"unit": 5}, says(TOO_COARSE)),
        ({"unit": 1e-12}, says(TOO_FINE)),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_constructor_refusals(options: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"budget": BUDGET, "horizon": 100, **options}
    with pytest.raises((ValueError, TypeError), match=message):
        dp.PrefixCount(**given)


def test_constructor_takes_instances_classes_and_names() -> None:
    for mechanism in (BinaryTree(100), BinaryTree, "BinaryTree"):
        assert dp.PrefixCount(BUDGET, 100, mechanism=mechanism).counter.mechanism == BinaryTree(100)
    best = dp.choose(100, BUDGET).mechanism
    assert dp.PrefixCount(BUDGET, 100).counter.mechanism == best


@each_path
def test_a_callable_that_fails_on_a_value_rejects_it(path: str) -> None:
    """float("s3cr3t") shows its argument, and that it failed is a fact about the data."""
    rows = [("k", "1", 0), ("k", "s3cr3t", 1), ("k", "1", 2)]
    outcome = run(lambda p: p | feed(rows) | scripted(horizon=9, path=path, value=float))
    assert [r.step for r in outcome.releases] == [1, 2, 3]
    collected = scripted(horizon=9, path=path, value=float, on_reject="collect")
    outcome = run(lambda p: p | feed(rows) | collected)
    assert [r.reason for r in outcome.rejected] == ["the value could not be taken as a number"]
    with pytest.raises(Exception, match="could not be taken as a number") as caught:
        run(
            lambda p: (
                p | feed(rows) | scripted(horizon=9, path=path, value=float, on_reject="raise")
            )
        )
    assert "s3cr3t" not in str(caught.value)


def early_later(horizon: int) -> KAry:
    return KAry(horizon, 3, subtraction=horizon > 4)


EARLY = [KAry(99), KAry(99, 5), Unbounded(KAry), Unbounded(early_later), Sparse(9, 9, KAry)]


@pytest.mark.parametrize("mechanism", EARLY, ids=lambda m: m.name)
def test_noise_drawn_early_is_refused_in_streaming(mechanism: Any) -> None:
    """A replay of other data from one checkpoint would differ by exact data."""
    horizon = 99 if isinstance(mechanism, KAry) else None
    count = dp.PrefixCount(dp.PureDP(1), horizon, mechanism=mechanism, path="streaming")
    with pytest.raises(ValueError, match="subtraction=False"):
        _ = beam.Pipeline() | feed([("k", 1, 0)]) | count


@pytest.mark.parametrize("mechanism", ["KAry", KAry])
def test_by_name_streaming_takes_the_variant_that_is_safe(mechanism: Any) -> None:
    count = dp.PrefixCount(dp.PureDP(1), 10**6, mechanism=mechanism, path="streaming")
    assert count.counter.mechanism == KAry(10**6, subtraction=False)


@pytest.mark.parametrize(
    ("mechanism", "path", "runs"),
    [
        ("BridgedKAry", "streaming", "SmoothLaplace(horizon=50"),
        (KAry, "streaming", "KAry(horizon=50, arity=None, subtraction=False"),
        ("BridgedKAry", "bounded", None),
        ("SmoothLaplace", "streaming", None),
        (None, "streaming", None),
    ],
)
def test_what_runs_in_place_of_a_mechanism_is_said(
    mechanism: Any, path: str, runs: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    count = dp.PrefixCount(dp.PureDP(1), 50, mechanism=mechanism, path=path)
    assert not caplog.records
    _ = beam.Pipeline() | feed([("k", 1, 0)]) | count
    said = [record.message for record in caplog.records if "draws noise early" in record.message]
    assert len(said) == (runs is not None)
    if runs is not None:
        assert said[0].startswith(
            f"PrefixCount: {mechanism if type(mechanism) is str else 'KAry'}("
        )
        assert f"{runs}" in said[0].partition("here: ")[2]


def test_so_it_is_where_noise_is_replayable(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COUNTING_SECRET", "0123456789abcdef" * 4)
    entropy = dp.ReplayableEntropy("COUNTING_SECRET", run_id="x")
    how: dict[str, Any] = {"mechanism": "KAry", "entropy": entropy, "element_id": str}
    count = dp.PrefixCount(dp.PureDP(1), 50, path="bounded", **how)
    _ = beam.Pipeline() | feed([("k", 1, 0)]) | count
    assert "work may be replayed here: KAry(horizon=50" in caplog.text


def test_left_out_streaming_takes_the_best_of_those_that_are_safe() -> None:
    count = dp.PrefixCount(dp.PureDP(1), 10**6, path="streaming")
    assert count.counter.mechanism == dp.mechanisms.SmoothLaplace(10**6)


@pytest.mark.parametrize("on_reject", ["raise", "collect"])
def test_an_id_that_cannot_be_taken_shows_no_value(on_reject: str) -> None:
    """The error of the value would be chained to that of the id, and with it the value."""
    count = dp.PrefixCount(
        dp.ZCDP(1),
        9,
        value=lambda payload: float(payload["x"]),
        element_id=lambda payload: payload["id"],
        on_reject=on_reject,
    )
    intake = count._intake()
    with pytest.raises(KeyError) as caught:
        intake.codes("k", {"x": "secret"}, 0)
    assert caught.value.__context__ is None

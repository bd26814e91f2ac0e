"""The clock as users meet it: windows are said in ticks, and steps are numbered over all of it."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.transforms.window import FixedWindows

import beam_dpcount as dp
from beam_dpcount.checks import ParameterError
from beam_dpcount.transforms.aggregates import TickAggregate
from beam_dpcount.transforms.distinct import DistinctUsers
from beam_dpcount.transforms.sliding import SlidingCount
from beam_dpcount.transforms.ticks import TickNumbers
from tests.runners import SECOND, Row, each_path, feed, run

BUDGET = dp.ApproxDP(1.0, 1e-6)
EXACT = dp.ApproxDP(1e9, 1e-6)
WEEK: dict[str, Any] = {"tick": 86_400, "start": 0, "horizon": 7, "keys": ["a"]}
WHO = dp.Users(itemgetter("who"), 3, per_key=1)
TICK, TICKS = 10, 6
ROWS: list[Row] = [
    (key, {"who": who, "n": 1}, at * SECOND)
    for at, (key, who) in enumerate(zip("abbabaab" * 7, "uvwxy" * 12, strict=False))
]

DOORS = {
    "TickAggregate": lambda window: TickAggregate(
        BUDGET, **WEEK, metrics=[dp.Count()], window=window
    ),
    "SlidingCount": lambda window: SlidingCount(BUDGET, **WEEK, window=window),
    "DistinctUsers": lambda window: DistinctUsers(BUDGET, **WEEK, users=WHO, window=window),
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("window", [8, 86_400])
def test_a_window_is_not_longer_than_the_horizon(door: str, window: int) -> None:
    """It counts ticks: a day of seconds was taken for as many days, with their noise."""
    with pytest.raises(ParameterError) as found:
        DOORS[door](window)
    said = str(found.value)
    assert f"window is {window} ticks, but the clock has 7" in said
    assert ("for 86400 s give window=1" in said) == (window == 86_400)
    assert found.value.name == "window"


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("window", [1, 7])
def test_a_window_may_be_as_long_as_the_horizon(door: str, window: int) -> None:
    made: Any = DOORS[door](window)
    assert made.counter.horizon in (window, 7)


def _clock(path: str, keys: Any) -> dict[str, Any]:
    return {"tick": TICK, "start": 0, "horizon": TICKS, "keys": keys, "path": path}


def _windowed(keys: Any, path: str) -> dict[str, Any]:
    clock = _clock(path, keys)
    count, people = [dp.Count()], dp.Users(itemgetter("who"), 40, per_key=1)
    counted: dict[str, Any] = {
        "restarting": TickAggregate(EXACT, **clock, metrics=count, window=2),
        "people's": TickAggregate(EXACT, **clock, metrics=count, window=2, users=people),
        "distinct": DistinctUsers(EXACT, **clock, users=people, window=2),
    }
    windowed: dict[str, Any] = {
        "numbers": TickNumbers(EXACT, **clock, value=itemgetter("n")),
        "vectors": TickAggregate(EXACT, **clock, metrics=count),
    }
    for name, made in windowed.items():
        counted[name] = beam.WindowInto(FixedWindows(2 * TICK)) | made
    return counted


@each_path
@pytest.mark.parametrize("keys", [["a", "b"], dp.SelectKeys()], ids=["listed", "selected"])
@pytest.mark.parametrize("name", ["restarting", "people's", "distinct", "numbers", "vectors"])
def test_steps_are_numbered_over_the_whole_clock(path: str, keys: Any, name: str) -> None:
    """So (key, step) is unique, and says when: windows of two ticks had steps 1 and 2 alone."""
    releases = run(lambda p: p | feed(ROWS) | _windowed(keys, path)[name]).releases
    places = sorted((release.key, release.step) for release in releases)
    assert places == [(key, step) for key in "ab" for step in range(1, TICKS + 1)]
    for release in releases:
        assert release.timestamp == release.step * TICK * SECOND


@each_path
def test_what_follows_knows_the_steps_of_windows(path: str) -> None:
    """A difference reaches back within its window, and knows the errors of its counter."""
    count = TickNumbers(EXACT, **_clock(path, ["a"]), value=itemgetter("n"))
    windows = beam.WindowInto(FixedWindows(3 * TICK))

    def built(pipeline: beam.Pipeline) -> Any:
        releases = pipeline | feed(ROWS) | windows | count
        return (
            releases | "Last" >> dp.post.SlidingSum(2, count.counter, path=path),
            releases | "Average" >> dp.post.RunningAverage(count.counter),
            releases | "Isotonic" >> dp.post.Isotonic(count.counter, path=path),
        )

    # What windows forget is only known once the transform is applied.
    with beam.Pipeline() as pipeline:
        _ = pipeline | feed(ROWS) | windows | count
    found = run(built)
    exact = [
        sum(row[0] == "a" and row[2] // (TICK * SECOND) == i for row in ROWS) for i in range(6)
    ]
    sums, averages, fitted = (
        {seen.value.step: seen.value for seen in output} for output in found.outputs
    )
    assert sorted(sums) == sorted(averages) == sorted(fitted) == [1, 2, 3, 4, 5, 6]
    for step in range(1, 7):
        place, first = (step - 1) % 3, (step - 1) // 3 * 3
        since = exact[max(first, step - 2) : step]
        assert round(sums[step].value) == sum(since)
        so_far = sum(exact[first:step])
        assert averages[step].value == pytest.approx(so_far / (place + 1), abs=0.01)
        assert round(fitted[step].value) == so_far

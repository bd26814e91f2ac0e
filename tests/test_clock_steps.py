"""Steps are numbered over all of a clock, whatever starts anew."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.transforms.window import FixedWindows

import beam_dpcount as dp
from beam_dpcount.transforms.ticks import TickNumbers
from tests.runners import SECOND, Row, each_path, feed, run
from tests.sentences import counted

EXACT = dp.ApproxDP(1e9, 1e-6)
TICK, TICKS = 10, 6
ROWS: list[Row] = [
    (key, {"who": who, "n": 1}, at * SECOND)
    for at, (key, who) in enumerate(zip("abbabaab" * 7, "uvwxy" * 12, strict=False))
]


def _clock(path: str, keys: Any) -> dict[str, Any]:
    return {"tick": TICK, "start": 0, "horizon": TICKS, "keys": keys, "path": path}


def _windowed(keys: Any, path: str) -> dict[str, Any]:
    clock = _clock(path, keys)
    count, people = [dp.Count(), dp.Rate("n > 0")], dp.Users(itemgetter("who"), 40, per_key=1)
    counts: dict[str, Any] = {
        "restarting": counted(EXACT, count, **clock, restart=2),
        "people's": counted(EXACT, count, **clock, restart=2, users=people),
        "distinct": counted(EXACT, dp.People(), **clock, users=people, restart=2),
    }
    windowed: dict[str, Any] = {"numbers": TickNumbers(EXACT, **clock, value=itemgetter("n"))}
    for name, made in windowed.items():
        counts[name] = beam.WindowInto(FixedWindows(2 * TICK)) | made
    return counts


@each_path
@pytest.mark.parametrize("keys", [["a", "b"], dp.SelectKeys()], ids=["listed", "selected"])
@pytest.mark.parametrize("name", ["restarting", "people's", "distinct", "numbers"])
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

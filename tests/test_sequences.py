"""SubstringCount and EpisodeCount in pipelines: what counts, what is refused, and real logs."""

from __future__ import annotations

from collections import Counter as Tally
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.transforms.window import FixedWindows

import beam_dpcount as dp
from beam_dpcount.statistics.letters import EITHER
from beam_dpcount.transforms.elements import NEEDS_HORIZON
from tests.episodes import occurrences
from tests.messages import says
from tests.real_data import real_rows
from tests.runners import Row, feed, run

EXACT = dp.ZCDP(1e12)
SECRET = "s3cr3t"

each_path = pytest.mark.parametrize("path", ["bounded", "streaming"])


pytestmark = pytest.mark.usefixtures("no_state_cache")


# Windows


@each_path
def test_each_fixed_window_starts_anew(path: str) -> None:
    rows = [("x", letter, 1_000_000 * i) for i, letter in enumerate("aaaaaa")]
    count = dp.SubstringCount(EXACT, 9, [*"ab"], words=["aa"], mechanism="BinaryTree", path=path)
    outcome = run(lambda p: p | feed(rows) | beam.WindowInto(FixedWindows(3)) | count)
    assert sorted(r.value[0] for r in outcome.releases) == [0, 0, 1, 1, 2, 2]


@each_path
def test_top_words_are_post_processing(path: str) -> None:
    rows = [("x", letter, 1_000_000 * i) for i, letter in enumerate("abababb")]
    count = dp.SubstringCount(EXACT, 9, [*"ab"], 2, mechanism="BinaryTree", path=path, every=7)
    outcome = run(lambda p: p | feed(rows) | count | dp.post.TopK(2, count))
    assert [(r.items, r.values) for r in outcome.releases] == [(["b", "a"], [4.0, 3.0])]


# Real sequences


def healthapp() -> list[str]:
    return [row["EventId"] for row in real_rows("healthapp_2k.csv")]


@each_path
@pytest.mark.parametrize("rest", ["other", None], ids=["letter", "empty"])
def test_words_of_healthapp_equal_brute_force(path: str, rest: str | None) -> None:
    """Words of up to 3 of the 12 commonest events; the others are one letter, or no event."""
    events = healthapp()
    common = [event for event, _ in Tally(events).most_common(12)]
    letters = [event if event in common else rest for event in events]
    alphabet = common if rest is None else [*common, rest]
    count = dp.SubstringCount(
        EXACT, 2000, alphabet, 3, mechanism="SmoothBinary", path=path, every=100
    )
    rows = [("log", letter, 1_000_000 * i) for i, letter in enumerate(letters)]
    outcome = run(lambda p: p | feed(rows) | count)
    assert [release.step for release in outcome.releases] == list(range(100, 2001, 100))
    seen: Tally[str] = Tally()
    for step in range(1, 2001):
        for length in (1, 2, 3):
            word = letters[max(step - length, 0) : step]
            if len(word) == length and None not in word:
                seen[" ".join(map(str, word))] += 1
        if step % 100 == 0:
            release = outcome.releases[step // 100 - 1]
            assert {w: n for w, n in zip(count.labels, release.value, strict=True) if n} == seen
    assert len(seen) > 100


@each_path
@pytest.mark.parametrize("span", [None, 6])
def test_episodes_of_healthapp_equal_their_definition(path: str, span: int | None) -> None:
    events = healthapp()
    common = [event for event, _ in Tally(events).most_common(4)]
    letters = [event if event in common else None for event in events]
    count = dp.EpisodeCount(
        EXACT, 2000, common, 2, max_span=span, mechanism="SmoothBinary", path=path, every=500
    )
    rows = [("log", letter, 1_000_000 * i) for i, letter in enumerate(letters)]
    outcome = run(lambda p: p | feed(rows) | count)
    for release in outcome.releases:
        some = letters[: release.step]
        for name, value in zip(count.labels, release.value, strict=True):
            assert value == occurrences(name.split(" "), some, span)
    assert len(outcome.releases) == 4


@each_path
def test_the_last_release_of_every_tick(path: str) -> None:
    rows = [("x", "a", 1_000_000 * t) for t in (0, 1, 2, 5, 6, 14)]
    rows += [("y", "b", 1_000_000 * t) for t in (3, 9)]
    count = dp.SubstringCount(EXACT, 9, [*"ab"], 1, mechanism="BinaryTree", path=path)
    seen = {}
    for start in (0, 2):
        outcome = run(lambda p, start=start: p | feed(rows) | count | dp.post.LastPerTick(5, start))
        seen[start] = [(r.key, r.step, r.timestamp // 1_000_000) for r in outcome.releases]
    assert seen[0] == [("x", 3, 2), ("x", 5, 6), ("x", 6, 14), ("y", 1, 3), ("y", 2, 9)]
    assert seen[2] == [("x", 2, 1), ("x", 5, 6), ("x", 6, 14), ("y", 1, 3), ("y", 2, 9)]
    number = dp.PrefixCount(EXACT, 9, mechanism="BinaryTree", value=lambda letter: 1, path=path)
    outcome = run(lambda p: p | feed(rows) | number | dp.post.LastPerTick(100))
    assert [(r.key, r.value) for r in outcome.releases] == [("x", 6.0), ("y", 2.0)]
    with pytest.raises(ValueError, match="tick"):
        dp.post.LastPerTick(0)


# Letters that are refused


@each_path
@pytest.mark.parametrize("bad", ["z", SECRET, 7, ["a"], float("nan")], ids=repr)
def test_what_is_no_letter_takes_an_empty_step(path: str, bad: Any) -> None:
    rows = [("x", letter, 1_000_000 * i) for i, letter in enumerate(["a", bad, "b", "a", "b"])]
    options: dict[str, Any] = {"mechanism": "BinaryTree", "path": path}
    count = dp.SubstringCount(EXACT, 9, [*"ab"], words=["ab", "b"], **options)
    outcome = run(lambda p: p | feed(rows, tuple[str, Any]) | count)
    assert [r.value for r in outcome.releases] == [[0, 0], [0, 0], [0, 1], [0, 1], [1, 2]]
    collecting = dp.SubstringCount(EXACT, 9, [*"ab"], words=["ab"], on_reject="collect", **options)
    outcome = run(lambda p: p | feed(rows, tuple[str, Any]) | collecting)
    assert len(outcome.releases) == 5
    (rejected,) = outcome.rejected
    assert rejected.timestamp == 1_000_000
    assert SECRET not in rejected.reason
    raising = dp.SubstringCount(EXACT, 9, [*"ab"], words=["ab"], on_reject="raise", **options)
    with pytest.raises(Exception, match="letter") as caught:
        run(lambda p: p | feed(rows, tuple[str, Any]) | raising)
    assert SECRET not in str(caught.value)


@each_path
def test_a_failing_callable_is_an_empty_step_and_shows_nothing(path: str) -> None:
    count = dp.EpisodeCount(
        EXACT, 9, [*"ab"], 1, mechanism="BinaryTree", path=path, value=lambda row: row["letter"]
    )
    rows: list[Row] = [("x", {"letter": "a"}, 0), ("x", {SECRET: 1}, 1_000_000)]
    outcome = run(lambda p: p | feed(rows) | count)
    assert [r.value for r in outcome.releases] == [[1, 0], [1, 0]]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: dp.SubstringCount(EXACT, 9, [*"ab"]), says(EITHER)),
        (lambda: dp.SubstringCount(EXACT, 9, [*"ab"], 2, words=["a"]), says(EITHER, noun="words")),
        (lambda: dp.SubstringCount(EXACT, 9, [chr(i) for i in range(100, 200)], 4), "101,010,100"),
        (
            lambda: dp.SubstringCount(
                EXACT, 9, [chr(i) for i in range(100, 200)], 2, mechanism="SquareRoot"
            ),
            None,
        ),
        (
            lambda: dp.SubstringCount(
                EXACT, 10**4, [chr(i) for i in range(100, 200)], 2, mechanism="SquareRoot"
            ),
            "count shorter words",
        ),
        (
            lambda: dp.SubstringCount(EXACT, None, [*"ab"], 2),
            says(NEEDS_HORIZON),
        ),
        (
            lambda: dp.SubstringCount(
                EXACT, 9, [*"ab"], 2, mechanism=dp.mechanisms.Unbounded(dp.mechanisms.BinaryTree)
            ),
            says(NEEDS_HORIZON),
        ),
        (lambda: dp.SubstringCount(EXACT, 9, [*"ab"], 2, every=10), "nothing would be released"),
        (lambda: dp.SubstringCount(EXACT, 9, [*"ab"], 2, pathh="x"), "pathh"),  # type: ignore[call-arg]
        (lambda: dp.SubstringCount(EXACT, 9, "home", 2), r"domain .* give \['home'\], or list"),
        (
            lambda: dp.SubstringCount(EXACT, 9, [*"ab"], 2, max_span=3),  # type: ignore[call-arg]
            "SubstringCount.* unexpected keyword argument 'max_span'",
        ),
        (lambda: dp.EpisodeCount(EXACT, 9, [*"ab"], 2, max_span=1), "max_span=1"),
        (lambda: dp.EpisodeCount(EXACT, 9, [*"ab"]), says(EITHER)),
    ],
)
def test_constructor_refusals(make: Any, message: str | None) -> None:
    if message is None:
        make()
        return
    with pytest.raises((ValueError, TypeError), match=message):
        make()

"""A source of many partitions: late events count as the rule says, and one changes what it may."""

from __future__ import annotations

import random
import re
from pathlib import Path

import numpy as np
import pytest

from benchmarks import partitions
from benchmarks.partitions import EVER, TICK, Engine, Event, Moment

PAGE = Path(__file__).resolve().parents[1] / "docs" / "scale.md"
TICKS, KEYS, MANY = 20, 3, 60
LATE = ("fold", "drop")


def script(idle: int | None) -> list[Moment]:
    found = partitions.arrivals(MANY, 30, TICKS, KEYS, seed=2)
    return [*partitions.moments(found, MANY, idle)]


@pytest.mark.parametrize("late", LATE)
@pytest.mark.parametrize("idle", [None, 90])
def test_releases_are_what_the_rule_promises(idle: int | None, late: str) -> None:
    names, moments = partitions.names(KEYS), script(idle)
    promise = partitions.promised(moments, TICKS, names, late)
    assert Engine(partitions.count_of(TICKS, names, late)).run(moments) == promise.totals
    folded, last = sum(promise.later.values()), sum(each[-1] for each in promise.totals.values())
    assert promise.late == folded + promise.dropped
    assert last == promise.events - promise.dropped
    assert len(promise.delays) == TICKS
    assert (promise.dropped == promise.late) == (late == "drop" or not promise.late)
    if idle is not None:  # else the stuck partition holds the watermark, and nothing is late
        assert promise.late > 50


def test_a_stuck_partition_holds_all_releases_unless_it_counts_as_idle() -> None:
    most = {
        idle: max(partitions.promised(script(idle), TICKS, partitions.names(KEYS), "fold").delays)
        for idle in (None, 90)
    }
    assert most[None] > 10 * TICK
    assert most[90] < 5 * TICK


def test_the_watermark_is_the_least_of_those_that_are_not_idle() -> None:
    found = [
        (0, 0, Event("a", 100)),
        (1, 1, Event("a", 50)),
        (2, 0, Event("a", 90)),  # out of order, which moves nothing
        (5, 0, Event("a", 200)),
        (9, 1, Event("a", 60)),
        (10, 1, Event("a", 61)),
    ]
    held = [moment.watermark for moment in partitions.moments(found, 2, None)]
    assert held == [0, 30, 30, 30, 30, 30, 30, 30, 30, 40, EVER]
    # The second is left out from second 5 on; it comes back behind, and time does not go back.
    idle = [moment.watermark for moment in partitions.moments(found, 2, 3)]
    assert idle == [0, 30, 30, 30, 30, 180, 180, 180, 180, 180, EVER]


@pytest.mark.parametrize(
    ("late", "totals"),
    [("fold", {"a": [2, 3, 5], "b": [0, 0, 1]}), ("drop", {"a": [2, 2, 3], "b": [0, 0, 1]})],
)
def test_a_stream_by_hand(late: str, totals: dict[str, list[int]]) -> None:
    moments = [
        Moment(0, [Event("a", 0), Event("a", TICK - 1)], TICK - 1),
        Moment(1, [Event("b", 2 * TICK)], TICK),  # release 1
        Moment(2, [Event("a", 5)], 2 * TICK - 1),  # late by one tick
        Moment(3, [], 2 * TICK),  # release 2
        Moment(4, [Event("a", 0), Event("a", 3 * TICK - 1)], 2 * TICK),  # late by two, and in time
        Moment(5, [], EVER),  # release 3
        Moment(6, [Event("a", 2 * TICK)], EVER),  # after the last one
    ]
    promise = partitions.promised(moments, 3, ["a", "b"], late)
    assert promise.totals == totals
    assert (promise.events, promise.late) == (7, 3)
    assert promise.delays == [1 - TICK, 3 - 2 * TICK, 5 - 3 * TICK]
    assert dict(promise.later) == ({1: 1, 2: 1} if late == "fold" else {})
    assert Engine(partitions.count_of(3, ["a", "b"], late)).run(moments) == totals


@pytest.mark.parametrize("late", LATE)
@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
@pytest.mark.parametrize("mechanism", [None, "NormalizedBLT", "BinaryTree"])
def test_one_event_changes_what_noise_is_for(
    mechanism: str | None, relation: str, late: str
) -> None:
    """Whatever its lateness, the watermark being what it was; and no less than that."""
    found = partitions.worst(late, relation, False, mechanism)
    places = 2 if relation == "replace_one" else 1
    assert found.is_covered
    assert found.most.cells == places
    if mechanism is None:  # bound and truth meet
        assert found.most.l2 == pytest.approx(found.l2_sensitivity)


@pytest.mark.parametrize("late", LATE)
@pytest.mark.parametrize("seed", range(4))
def test_no_stream_has_an_event_that_changes_more(seed: int, late: str) -> None:
    """Bundles and watermarks at random, the last one after all ticks."""
    rng, now, script = random.Random(seed), 0, []
    for _ in range(6):
        now = min(now + rng.randrange(2), partitions.SMALL_TICKS)
        some = [
            (rng.choice(partitions.SMALL_KEYS), rng.randrange(partitions.SMALL_TICKS))
            for _ in range(rng.randrange(4))
        ]
        script.append((some, now))
    script.append(([], EVER))
    for relation, places in (("add_remove", 1), ("replace_one", 2)):
        found = partitions.worst(late, relation, False, script=script)
        assert found.is_covered
        assert found.most.cells == places


@pytest.mark.parametrize("late", LATE)
def test_a_watermark_that_follows_the_events_is_not_covered(late: str) -> None:
    found = partitions.worst(late, "add_remove", True)
    assert found.most.cells > 1
    assert not found.is_covered


def test_neighbours_are_all_of_them() -> None:
    """A bundle gets any of 8 events, or loses one; or one of 6 becomes any."""
    events = sum(len(some) for some, _ in partitions.SMALL)
    assert events == 6
    found = [repr(one) for one in partitions.neighbours("add_remove")]
    assert len(found) == len(partitions.SMALL) * 8 + events
    assert len([*partitions.neighbours("replace_one")]) == events * 8


def test_a_change_is_that_of_sums() -> None:
    encoder = np.array([[1.0, 0.0], [1.0, 2.0]])
    before = {"a": [1, 1], "b": [0, 3]}
    assert partitions.change(before, before, encoder) == (0, 0, 0)
    found = partitions.change(before, {"a": [2, 1], "b": [0, 3]}, encoder)
    assert found == (2, 2, pytest.approx(2**0.5))  # 1 more, then 1 less: R x = (1, -1)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_the_page_shows_what_a_run_prints(capsys: pytest.CaptureFixture[str]) -> None:
    assert partitions.main([]) == 0
    printed = capsys.readouterr().out.strip().splitlines()
    text = PAGE.read_text(encoding="utf-8")
    (shown,) = re.findall(r"<!-- partitions -->\n(.*?)\n<!-- /partitions -->", text, re.DOTALL)
    assert [line for line in shown.splitlines() if line.startswith("|")] == [
        line for line in printed if line
    ]

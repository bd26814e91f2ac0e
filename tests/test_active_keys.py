"""Keys that nobody listed, by how many people are active in them: in every door, and refusals."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.testing.util import assert_that, equal_to

import beam_dpcount as dp
from beam_dpcount.commands import ticks
from tests.command_lines import command
from tests.runners import RUNNERS

TICKS = 12
DAYS = dp.Clock("1d", start=0, ticks=TICKS)
DAILY = dp.Users("user", keys=2, per="1d")
EXACT = dp.ZCDP(1e12)  # its noise is 0
KEYS = dp.SelectKeys(delta=1e-9)


def log() -> list[dict[str, Any]]:
    """Many people in a, and for three days; a few in b; one in c; nobody in between."""
    chance, rows = random.Random(5), []
    for key, people, days in (("a", 9, (1, 2, 9)), ("b", 3, (0, 6)), ("c", 1, range(12))):
        rows += [
            {"user": f"{key}{n}", "page": key, "at": 86_400 * day + chance.randrange(86_400)}
            for day in days
            for n in range(people)
        ]
    chance.shuffle(rows)
    return rows


def active(window: int, users: dp.Users) -> dict[str, list[int]]:
    """How many people are active, from the words; each person has one key."""
    found: dict[str, list[set[str]]] = defaultdict(lambda: [set() for _ in range(TICKS)])
    for row in log():
        day = int(row["at"]) // 86_400
        for tick in range(day, min(day + window, TICKS)):
            found[row["page"]][tick].add(row["user"])
    assert users.changes in (None, 8)  # all that anybody has
    return {key: [len(people) for people in ticks] for key, ticks in found.items()}


def made(view: Any, users: Any = DAILY, budget: Any = EXACT, **more: Any) -> dp.TickCount:
    how = {"keys": KEYS, "key": "page", "time": "at", "users": users, "path": "bounded", **more}
    return dp.TickCount(budget, view, dp.People(), **how)


@pytest.mark.parametrize("window", [1, 3])
@pytest.mark.parametrize("users", [DAILY, dp.Users("user", changes=8)], ids=["periods", "changes"])
@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.exhaustive("runner", "users", "window")
def test_keys_are_shown_once_enough_people_are_active(
    window: int, users: dp.Users, runner: str
) -> None:
    """And from then on for good, also while nobody is."""
    view = DAYS.each() if window == 1 else DAYS.last(window)
    count = made(view, users)
    assert count.selection is not None
    levels, expected = count.selection.thresholds, []
    for key, people in active(window, users).items():
        reached = [t for t, n in enumerate(people) if n >= levels[t]]
        if reached:
            expected += [(key, t + 1, people[t]) for t in range(reached[0], TICKS)]
    assert {key for key, _, _ in expected} == {"a", "b"}  # one person is never enough
    assert 0 in {n for _, _, n in expected}
    with beam.Pipeline(runner=RUNNERS[runner]()) as pipeline:
        seen = pipeline | beam.Create(log()) | count
        seen = seen | beam.Map(lambda r: (r.key, r.step, round(r.value)))
        assert_that(seen, equal_to(expected))


def test_few_people_stay_hidden() -> None:
    count = made(DAYS.last(3), budget=dp.ApproxDP(1.0, 1e-6), keys=dp.SelectKeys())
    assert min(count.selection.thresholds) > 10  # type: ignore[union-attr]
    with beam.Pipeline("FnApiRunner") as pipeline:
        assert_that(pipeline | beam.Create(log()) | count, equal_to([]))


def test_thresholds_are_those_of_one_person_in_so_many_keys() -> None:
    """Whatever a person does in a day: 1 and the noise, for two keys; or for half the changes."""
    for users, keys in ((DAILY, 2), (dp.Users("user", changes=8), 4)):
        count = made(DAYS.last(7), users, dp.ApproxDP(1.0, 1e-6), keys=dp.SelectKeys())
        change: Any = count.counter.change
        assert change.touched(count.counter.mechanism)[:2] == (keys, 1)
        assert count.selection is not None
        assert count.selection.shown(1) * keys <= count.selection.delta * 1.01


def test_what_is_printed_names_people() -> None:
    count = made(DAYS.last(7), budget=dp.ApproxDP(1.0, 1e-6), keys=dp.SelectKeys(delta=1e-8))
    assert "and has so many active people from then on is shown" in str(count.selection)
    assert "one person's events of any one day" in str(count).replace(
        "any one person", "one person"
    )
    week = count.epsilon_at(periods=7)
    assert week > count.epsilon_at()


def test_a_week_takes_seven_times_the_delta_for_keys() -> None:
    ledger = dp.Ledger(dp.ZCDP(0.1), keys_delta=1e-8)
    count = made(DAYS.last(7), budget=ledger.rest(), keys=dp.SelectKeys(delta=1e-8))
    _ = beam.Pipeline() | beam.Create(log()) | count
    (share,) = ledger.shares
    unit = ledger.standing.units[0]
    taken = share.protects.delta_of(share.keys_delta, unit, 7)
    assert float(taken) == pytest.approx(7e-8)


def test_what_is_refused_names_the_remedy() -> None:
    with pytest.raises(ValueError, match=r"at_least leaves out .*: leave at_least out"):
        made(DAYS.last(3), keys=dp.SelectKeys(delta=1e-9, at_least=3))
    with pytest.raises(ValueError, match=r"keys are selected .* on bounded input alone: .* list"):
        made(DAYS.last(3), path="streaming", time=None)
    with pytest.raises(ValueError, match=re.escape("count dp.People() alone")):
        dp.TickCount(
            EXACT, DAYS.last(3), keys=KEYS, key="page", users=dp.Users("user", 2), time="at"
        )
    with pytest.raises(ValueError, match="events"):
        made(DAYS)
    with pytest.raises(ValueError, match="needs a clock that ends"):
        made(dp.Clock("1d", start=0).last(3), until=86_400 * 5)
    ledger = dp.Ledger(dp.ZCDP(1.0), keys_delta=1e-8)
    count = made(DAYS.last(3), budget=ledger.rest(), path="auto", time=None)
    pipeline = beam.Pipeline()
    stream = pipeline | beam.Create([{}]) | beam.Map(print).with_output_types(dict[str, Any])
    stream.is_bounded = False
    with pytest.raises(ValueError, match="or count files"):
        _ = stream | count
    assert ledger.shares[0].claimed_by is None


def test_commands_select_keys_of_active_people(tmp_path: Path) -> None:
    path, out = tmp_path / "log.csv", tmp_path / "out.csv"
    lines = [f"{row['at']},{row['user']},{row['page']}" for row in log()]
    path.write_text("\n".join(["at,user,page", *lines]))
    ended = command(
        *("--input", path, "--key", "page", "--select-keys", "--timestamp", "at", "--tick", "1d"),
        *("--start", 0, "--horizon", TICKS, "--user", "user", "--per", "1d", "--max-keys", 2),
        *("--metric", "people", "--view", "last 3", "--rho", 1e12, "--select-delta", 1e-9),
        *("--output", out),
        main=ticks.main,
    )
    assert ended.status == 0, ended.err
    header, *rows = [line.split(",") for line in out.read_text().splitlines()]
    place = header.index("people_last_3")
    found = {(row[0], int(row[1])): round(float(row[place])) for row in rows}
    people = active(3, DAILY)
    assert found
    assert all(people[key][step - 1] == n for (key, step), n in found.items())
    assert {key for key, _ in found} == {"a", "b"}  # one person is never enough
    assert "one person's rows of any one day" in ended.out

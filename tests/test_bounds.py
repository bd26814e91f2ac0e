"""What bounds on each person leave out, against the rule by hand and against what is counted."""

from __future__ import annotations

import datetime as dt
import math
import random
import re
from collections import Counter as Tally
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import beam_dpcount as dp
from beam_dpcount.commands import bounds
from beam_dpcount.counters.people import Users
from beam_dpcount.transforms.ticks import TickNumbers
from tests import command_lines
from tests.command_lines import SECRET, SECRET_TEXT
from tests.real_data import real
from tests.runners import feed, run

EXACT = dp.ZCDP(1e12)
BUDGET = dp.ApproxDP(1.0, 1e-6)
KEYS = ["a", "b", "c"]

Row = tuple[str, str, int, int]


def some_rows(n: int = 300, seed: int = 1) -> list[Row]:
    """Person, key, second and number: ties, unlisted keys, rows off the clock, of nobody, of 0."""
    rng = random.Random(seed)
    people, keys = ["", *(f"u{i}" for i in range(12))], [*KEYS, "zoe"]
    return [
        (rng.choice(people), rng.choice(keys), rng.randrange(-5, 70), rng.randrange(-1, 4))
        for _ in range(n)
    ]


def clocked(**more: Any) -> TickNumbers:
    given = {"keys": KEYS, "mechanism": "SmoothBinary", "bounds": (-1, 3), **more}
    return TickNumbers(given.pop("budget", EXACT), 10, 0, horizon=6, **given)


def kept(rows: Sequence[Row], users: Users) -> list[Row]:
    """The rule, row by row: by time, then key, then value, those below 0 last."""
    accepted: dict[str, list[Row]] = {}
    counted = [row for row in rows if row[1] in KEYS and 0 <= row[2] < 60 and row[3] and row[0]]
    for row in sorted(counted, key=lambda row: (row[2], row[1], row[3] < 0, row[3])):
        mine = accepted.setdefault(row[0], [])
        keys = Tally(other[1] for other in mine)
        events = users.bound().events
        most = events if users.keys is None else users.keys
        if (
            len(mine) < events
            and keys[row[1]] < (users.per_key or events)
            and (row[1] in keys or len(keys) < most)
            and all(abs(row[2] - other[2]) >= (users.gap or 0) for other in mine)
        ):
            mine.append(row)
    return [row for mine in accepted.values() for row in mine]


def test_what_is_left_out_is_what_the_rule_leaves_out() -> None:
    rows = some_rows()
    grid: dict[str, Any] = {
        "events": (1, 3, 8, 1000),
        "keys": (None, 1, 2),
        "per_key": (1, 2, None),
        "gap": (None, 7),
    }
    found = dp.suggest_bounds(rows, clocked(), **grid)
    counted = [row for row in rows if row[1] in KEYS and 0 <= row[2] < 60 and row[3]]
    mine = {row[0] for row in counted if row[0]}
    nobody = sum(not row[0] for row in counted)
    assert (found.events, found.people, found.keys) == (len(counted), len(mine), 3)
    assert found.nobody == nobody > 5
    assert len(found.rows) == 1 + 3 * 3 * 3 * 2  # of one event there is but one bound
    for row in found.rows:
        left = kept(rows, row.users)
        lost = {key: sum_of(counted, key) - sum_of(left, key) for key in KEYS}
        of_people = Tally(one[0] for one in counted if one[0])
        cut = sum(n > Tally(one[0] for one in left)[who] for who, n in of_people.items())
        assert row.kept_events == len(left)
        assert row.events == pytest.approx(1 - len(left) / len(counted))
        assert row.people == pytest.approx(cut / len(mine))
        assert row.kept_keys == len({one[1] for one in left})
        assert row.bias == pytest.approx(math.sqrt(sum(x * x for x in lost.values()) / 3))
        assert row.error == pytest.approx(math.hypot(row.bias, row.stddev))
    assert [row.error for row in found.rows] == sorted(row.error for row in found.rows)


def sum_of(rows: Sequence[Row], key: str) -> int:
    return sum(row[3] for row in rows if row[1] == key)


@pytest.mark.pipeline
@pytest.mark.parametrize("path", ["bounded", "streaming"])
@pytest.mark.parametrize(
    "given", [{"events": 3}, {"events": 6, "keys": 2, "per_key": 3}, {"events": 5, "gap": 7}]
)
def test_what_is_kept_is_what_a_pipeline_counts(path: str, given: dict[str, Any]) -> None:
    """Streaming, in the order of arrival, which is that of time here."""
    rows = sorted(some_rows(), key=lambda row: (row[2], row[1], row[3] < 0, row[3]))
    # In order, so that each person's events come by time, key and value.
    count = clocked(path=path, late="drop", value=lambda pair: pair[1])
    (row,) = dp.suggest_bounds(
        rows, count, **{name: [value] for name, value in {"per_key": 1, **given}.items()}
    ).rows
    counted = replace(count, users=replace(row.users, by=lambda pair: pair[0]))
    events = [(key, (who, x), time * 10**6) for who, key, time, x in rows]
    outcome = run(lambda p: p | feed(events) | counted)
    totals = {release.key: release.value for release in outcome.releases if release.step == 6}
    lacking = [sum_of(rows_within(rows), key) - totals[key] for key in KEYS]
    assert row.bias == pytest.approx(math.sqrt(sum(x * x for x in lacking) / 3))


def rows_within(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if 0 <= row[2] < 60]


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("given", "events", "keys"),
    [
        ({"events": [5], "per_key": [5]}, 5548, 1049),
        ({"events": [20], "per_key": [20]}, 16248, 1411),
        ({"events": [20], "per_key": [1]}, 12215, 1589),
    ],
)
def test_collegemsg(given: dict[str, Any], events: int, keys: int) -> None:
    path = real("collegemsg.txt")
    lines = [line.split() for line in path.read_text(encoding="utf-8").splitlines()[1:]]
    start = int(lines[0][2]) // 86_400 * 86_400
    listed = sorted({dst for _, dst, _ in lines})
    count = TickNumbers(BUDGET, 86_400, start, horizon=195, keys=listed)
    rows = ((src, dst, int(time)) for src, dst, time in lines)
    (row,) = dp.suggest_bounds(rows, count, **given).rows
    assert (row.kept_events, row.kept_keys) == (events, keys)


def test_noise_is_that_of_the_count() -> None:
    count = clocked(budget=BUDGET, bounds=(0, 1))
    found = dp.suggest_bounds([("ann", "a", 5)], count, events=[1, 4], per_key=[1, None])
    for row in found.rows:
        counter = replace(count, users=row.users, value=lambda _: 1).counter
        assert row.stddev == math.sqrt(counter.max_variance())
        assert row.bias == row.events == row.people == row.keys == 0
    assert [(row.users.events, row.users.per_key) for row in found.rows] == [(1, 1), (4, 1), (4, 4)]
    # In one key four events have four times the norm of one.
    assert found.rows[2].stddev == pytest.approx(4 * found.rows[0].stddev, rel=0.02)
    assert found.best is found.rows[0]


def test_the_best_bound_weighs_bias_and_noise() -> None:
    """More people: the same shares, a larger bias, the same noise."""
    count = clocked(budget=BUDGET, mechanism=None, bounds=(0, 1))
    best = []
    for people in (5, 500):
        rows = [(f"u{i}", "a", j) for i in range(people) for j in range(4)]
        found = dp.suggest_bounds(rows, count, events=[1, 4])
        best.append(found.best.users.events)
        (one,) = (row for row in found.rows if row.users.events == 1)
        assert one.bias == pytest.approx(3 * people / math.sqrt(3))
        (scaled,) = dp.suggest_bounds(rows, count, events=[1], sample=0.1).rows
        assert scaled.bias == pytest.approx(10 * one.bias)
        assert scaled.stddev == one.stddev
    assert best == [1, 4]


def test_times_in_any_form() -> None:
    moment = dt.datetime(1970, 1, 1, 0, 0, 15, tzinfo=dt.timezone.utc)
    times = [15, 15.0, moment, "1970-01-01T00:00:15Z"]
    rows = [(f"u{n}", "a", time) for n, time in enumerate(times)]
    found = dp.suggest_bounds(rows, clocked(), events=[1])
    assert found.best.kept_events == 4


def test_other_keys_are_mapped_before_they_are_bounded() -> None:
    rows = [("ann", f"k{n}", 5) for n in range(9)]
    (row,) = dp.suggest_bounds(rows, clocked(other="c"), events=[9], per_key=[1]).rows
    assert (row.kept_events, row.kept_keys) == (1, 1)
    assert dp.suggest_bounds(rows, clocked(), events=[9]).events == 0


@pytest.mark.parametrize("histogram", [False, True])
def test_after_every_element_all_rows_take_part(histogram: bool) -> None:
    """Rows of 0 use a place up; without times rows are in their order."""
    count: Any = dp.PrefixCount(EXACT, 100, mechanism="SmoothBinary")
    if histogram:
        count = dp.Histogram(EXACT, 100, ["x"], mechanism="SmoothBinary")
    rows = [("ann", "a", None, 0), ("ann", "a", None, 1), ("bob", "b", None, 1), ("", "b", None, 1)]
    (row,) = dp.suggest_bounds(rows, count, events=[1]).rows
    assert (row.kept_events, row.kept_keys) == (2, 2)
    assert row.bias == 1
    late = [("ann", "a", 9, 1), ("ann", "b", 5, 1)]
    (row,) = dp.suggest_bounds(late, count, events=[1]).rows
    assert (row.keys, row.kept_keys) == (0.5, 1)


def test_it_says_that_it_is_private_and_hides_itself() -> None:
    found = dp.suggest_bounds(some_rows(), clocked())
    said = str(found)
    assert said.startswith("PRIVATE: computed from the rows, without noise. Do not publish it.")
    assert "outside the guarantee" in said
    assert re.search(r"1\d\d events of 12 people in 3 keys, and \d+ of nobody", said)
    shown = f"{found!r} {found.rows!r}"
    assert "private" in shown
    for number in (found.events, found.nobody, found.best.kept_events, found.best.bias):
        assert str(number) not in shown.replace("13 bounds", "")
    assert len(found.rows) == 13
    assert not re.search(r"\bu\d", said + shown)  # no person


def test_without_rows() -> None:
    found = dp.suggest_bounds([], clocked())
    assert {(row.events, row.people, row.keys, row.bias) for row in found.rows} == {(0, 0, 0, 0)}
    assert found.best.users.events == 1


@pytest.mark.parametrize(
    "row",
    [
        ([SECRET], "a", 5),
        ("ann", SECRET, 5),
        ("ann", "a", SECRET_TEXT),
        ("ann", "a", float("nan")),
        ("ann", "a", None),
        ("ann", "a", 5, 1, SECRET),
        (SECRET_TEXT,),
        SECRET,
    ],
)
def test_rows_that_cannot_be_read(row: Any) -> None:
    with pytest.raises((ValueError, TypeError), match=r"^row 2[: ]") as caught:
        dp.suggest_bounds([("ann", "a", 5), row], clocked())
    text = f"{caught.value!r} {caught.value.__cause__!r}"
    assert SECRET_TEXT not in text
    assert str(SECRET) not in text


def test_people_are_texts_or_whole_numbers_as_for_users() -> None:
    rows = [(7, "a", 5), ("7", "b", 5), (8, "a", 5), (None, "a", 5), ("", "a", 5)]
    found = dp.suggest_bounds(rows, clocked(), events=[1])
    assert (found.people, found.nobody) == (2, 2)


def test_other_counts_are_refused() -> None:
    joint = dp.TickCount(BUDGET, dp.Clock(10, 0, 6), [dp.Count(), dp.Rate("n > 1")], keys=["a"])
    with pytest.raises(TypeError, match="give a TickCount whose keys are its items"):
        dp.suggest_bounds([], joint)
    with pytest.raises(ValueError, match="leave gap out"):
        dp.suggest_bounds([], dp.PrefixCount(BUDGET, 10), events=[2], gap=[5])


# The command


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.csv"
    rows = [f"{t},{p},{k},{x}" for p, k, t, x in some_rows()]
    path.write_text("\n".join(["time,who,page,n", *rows]) + "\n")
    return path


def arguments(log: Path, *more: object) -> list[object]:
    return [
        *("--input", log, "--key", "page", "--keys", *KEYS, "--user", "who", "--timestamp", "time"),
        *("--tick", 10, "--start", 0, "--horizon", 6, "--epsilon", 1, "--delta", 1e-6, *more),
    ]


def test_the_command_prints_what_the_library_finds(log: Path) -> None:
    tried = ("--per-user", 2, 8, "--max-keys", 1, 2, "--per-key", 1, 3, "--gap", "7s")
    values = ("--value", "n", "--bounds", -1, 3, "--sample", 0.5)
    out = command_lines.succeed(*arguments(log, *tried, *values), main=bounds.main)
    found = dp.suggest_bounds(
        some_rows(),
        clocked(budget=BUDGET, mechanism=None),
        **{"events": [2, 8], "keys": [1, 2], "per_key": [1, 3], "gap": [7]},
        sample=0.5,
    )
    assert out.startswith(f"{found}\n\nnoise at epsilon = 1, delta = 1e-06, 6 ticks, 3 keys, ")
    best = re.search(r"least error \(private, .*\): (--per-user.*)\n", out)
    assert best
    assert best[1].endswith(" --gap 7")
    assert [path.name for path in log.parent.iterdir()] == ["log.csv"]


def test_the_command_counts_rows_or_a_condition(log: Path) -> None:
    out = command_lines.succeed(*arguments(log), main=bounds.main)
    within = [row for row in some_rows() if row[0] and row[1] in KEYS and 0 <= row[2] < 60]
    assert f"\n{len(within):,} events of 12 people in 3 keys, and " in out
    assert len(re.findall(r"(?m)^ +\d+ ", out)) == 13
    out = command_lines.succeed(*arguments(log, "--where", "n=3"), main=bounds.main)
    assert f"\n{sum(row[3] == 3 for row in within):,} events of " in out

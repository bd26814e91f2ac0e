"""Counts of bounded people inside pipelines: who counts, on each path, and what shows it."""

from __future__ import annotations

import base64
import bz2
import logging
import random
from collections.abc import Sequence
from dataclasses import replace
from operator import itemgetter
from types import SimpleNamespace
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.internal import pickler
from apache_beam.transforms.window import (
    GlobalWindow,
    GlobalWindows,
    IntervalWindow,
    SlidingWindows,
    TimestampedValue,
)
from apache_beam.utils import windowed_value
from apache_beam.utils.timestamp import Timestamp

import beam_dpcount as dp
from beam_dpcount.budget.ledger import Ledger
from beam_dpcount.counters.users import UserChange
from beam_dpcount.dofns.intake import Intake, Lost
from beam_dpcount.dofns.parcels import ElementParcels, StepParcels
from beam_dpcount.dofns.users import SendToShards
from beam_dpcount.dofns.windows import WindowCheck
from beam_dpcount.states.all_ticks import TickPlan
from beam_dpcount.states.placement import Placement
from beam_dpcount.states.wire import time_of, timed
from beam_dpcount.statistics.numbers import Numbers
from beam_dpcount.transforms import ticks as tick_transforms
from beam_dpcount.transforms.ticks import FOLDS_LATE, TickNumbers
from tests.messages import says
from tests.people import (
    CLOCK,
    EXACT,
    FEW,
    KEYS,
    TICK,
    TICKS,
    check,
    crowd,
    kept,
    listed,
    number,
    people,
    several,
    sums,
    tick_count,
    values,
    who,
)
from tests.real_data import real_rows
from tests.runners import (
    PATHS,
    RUN_AT_ONCE,
    SECOND,
    Row,
    each_path,
    each_runner_and_path,
    feed,
    run,
    run_stream,
    stream,
)
from tests.sentences import counted
from tests.side_doors import _noted_updates, listening, outside  # noqa: F401

MINUTE = 60 * SECOND


pytestmark = pytest.mark.usefixtures("no_state_cache")


@pytest.mark.exhaustive("path")
@each_runner_and_path
def test_a_person_with_a_thousand_events_counts_k_times(runner: str, path: str) -> None:
    busy = [row for row in crowd(1000) if row[1].get("who") == "busy"]
    assert len(busy) == 1000
    for events, per_key in ((20, 20), (20, 5), (2, 1)):
        count = tick_count(people(events, per_key=per_key), bounds=(0, 1), path=path)
        releases = run(lambda p, count=count: p | feed(busy) | count, runner).releases
        assert sum(r.value for r in releases if r.step == TICKS) == min(events, 3 * per_key)


@pytest.mark.long
@pytest.mark.exhaustive("path")
@each_runner_and_path
def test_who_counts_is_what_the_rule_says(runner: str, path: str) -> None:
    """On every path and runner, for all that count people at a clock."""
    rows = crowd()
    names: list[str] = []

    def build(pipeline: beam.Pipeline) -> Any:
        made = several(pipeline | feed(rows), path)
        names[:] = made
        return tuple(made.values())

    check(run(build, runner), names, rows)


@pytest.mark.exhaustive
def test_people_of_a_stream_whose_watermark_moves() -> None:
    """What bundles cannot run at once."""
    rows, names = crowd(30, 10), []

    def build(pipeline: beam.Pipeline) -> Any:
        parts: list[Any] = []
        for seconds in range(0, 130, 10):
            parts += [seconds, *(r for r in rows if seconds <= r[2] / SECOND < seconds + 10)]
        made = several(pipeline | stream(*parts), "streaming")
        names[:] = made
        return tuple(made.values())

    check(run(build, "bundles", ["--streaming"]), names, rows)
    assert ("bundles", "streaming") not in RUN_AT_ONCE


def test_on_the_bounded_path_the_earliest_events_count() -> None:
    """Whatever the order of arrival; streaming, the first to arrive."""
    rows = crowd()
    arrived = random.Random(5).sample(rows, len(rows))
    count = {path: tick_count(people(3, per_key=2), path=path) for path in PATHS}
    by_time, by_arrival = (
        values(run(lambda p, path=path: p | feed(arrived) | count[path]).outputs[0])
        for path in PATHS
    )
    assert by_time == sums(kept(listed(rows), 3, per_key=2))
    assert by_arrival == sums(kept(listed(arrived), 3, per_key=2))
    assert by_time != by_arrival


def test_ties_are_by_key_and_value_and_not_by_arrival() -> None:
    rows: list[Row] = [(key, {"who": "p", "n": n}, 5) for key in "cba" for n in (2, 1)]
    for seed in range(3):
        random.Random(seed).shuffle(rows)
        made = run(lambda p: p | feed(rows) | tick_count(people(1))).outputs[0]
        assert {key: xs[-1] for key, xs in values(made).items()} == {"a": 1, "b": 0, "c": 0}


@each_path
def test_a_gap_is_to_both_sides(path: str) -> None:
    """Of events in any order: 30, then 50 and 10 are far enough, and nothing between."""
    seconds = [30, 41, 19, 50, 10, 31, 69, 70, 0]
    count = tick_count(people(9, per_key=9, gap=20), path=path, late="drop", keys=["a"])
    rows: list[Row] = [("a", {"who": "p", "n": 1}, at * SECOND) for at in seconds]
    (found,) = values(run(lambda p: p | feed(rows) | count).outputs[0]).values()
    taken = [0, 30, 50, 70] if path == "bounded" else [30, 50, 10, 70]
    if path == "bounded":  # by time: 0, 19 is too near, 30, 50, 70
        assert [at for at in sorted(seconds) if at in taken] == taken
    assert found == [sum(at // TICK <= tick for at in taken) for tick in range(TICKS)]


# Late events, and a gap


@pytest.mark.exhaustive
def test_a_gap_needs_that_late_events_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Folded, two events that are 30 s apart count at one tick: more than noise was made for."""
    users = people(2, per_key=2, gap=30)
    rows: list[Row] = [("a", {"who": "p", "n": 1}, at * SECOND) for at in (5, 39)]
    other: Row = ("a", {"who": "q", "n": 1}, 1 * SECOND)
    parts = [other, 31, *rows, 50, 130]  # the first of p's is late, by 3 ticks

    def change(count: Any) -> np.ndarray:
        """What p's events change, tick by tick."""
        with_p, without = (
            values(run_stream(count, *given).outputs[0])["a"]
            for given in (parts, [other, 31, 50, 130])
        )
        return np.round(np.diff(np.array(with_p) - without, prepend=0), 3)

    def size(count: Any, x: np.ndarray) -> float:
        mechanism = count.counter.mechanism
        return float(np.square(mechanism.encoder(TICKS) @ x).sum())

    given = {"keys": ["a"], "bounds": (0, 1), "mechanism": "NormalizedBLT", "max_per_tick": 4}
    with pytest.raises(ValueError, match=says(FOLDS_LATE)):
        _ = beam.Pipeline() | stream(5) | tick_count(users, late="fold", **given)
    assert tick_count(users, **given).display_data()["late"] == "drop"  # by default
    count = tick_count(users, late="drop", **given)
    assert change(count).tolist() == [0, 0, 0, 1] + [0] * 8
    limit = UserChange(events=2, per_key=2, gap=3, most=4).norms(count.counter.mechanism, 1, None)
    fine = count.counter.mechanism.resolution(1, 4)
    assert size(count, change(count)) <= float(limit[1]) / fine**2

    def folding(*arguments: Any, fold: bool, **options: Any) -> Any:
        return TickPlan(*arguments, fold=True, **options)

    mutant = staticmethod(folding)
    monkeypatch.setattr(tick_transforms.TickNumbers, "_plan_of", mutant)
    assert change(count).tolist() == [0, 0, 0, 2] + [0] * 8
    assert size(count, change(count)) > float(limit[1]) / fine**2 * 1.01


def test_a_late_event_takes_its_place_whether_it_counts_or_not() -> None:
    """The bound knows no watermark: it reads a person's own events only."""
    first: Row = ("a", {"who": "p", "n": 1}, 5 * SECOND)
    second: Row = ("b", {"who": "p", "n": 1}, 55 * SECOND)
    for late, at in (("drop", None), ("fold", 4)):
        outcome = run_stream(tick_count(people(1), late=late), 42, first, second, 130)
        found = values(outcome.outputs[0])
        assert found["b"] == [0] * TICKS
        assert found["a"] == [float(at is not None and tick >= at) for tick in range(TICKS)]


# After every element


def elements(n: int = 60, seed: int = 3) -> list[Row]:
    chance = random.Random(seed)
    rows = []
    for i in range(n):
        name = chance.choice(["p", "p", "q", "r", None])
        payload: dict[str, Any] = {"who": name, "id": i}
        payload["n"] = chance.choice([1, 2, -1, None, "x"])
        payload["items"] = chance.choice(["x", "y", ["x", "y"], "no", None])
        rows.append((chance.choice("ab"), payload, i * SECOND))
    return rows


def each(path: str, kind: str, **options: Any) -> Any:
    given: dict[str, Any] = {"budget": EXACT, "horizon": 40, "path": path, "users": people(9)}
    given |= {"mechanism": "SmoothBinary", **options}
    if kind == "PrefixCount":
        return dp.PrefixCount(**{"value": number, "bounds": (-1, 2), **given})
    return dp.Histogram(**{"value": lambda p: p["items"], "domain": ["x", "y"], **given})


def element_sums(rows: Sequence[Row], kind: str, **bound: Any) -> dict[str, list[Any]]:
    """Running sums after each element of a key, of which some count 0."""
    counted = {id(row) for row, _ in kept(rows, **bound)}
    running: dict[str, Any] = {}
    found: dict[str, list[Any]] = {}
    for row in rows:
        x: Any = np.zeros(1 if kind == "PrefixCount" else 2)
        if id(row) in counted and kind == "PrefixCount":
            n = row[1]["n"]
            x += n if isinstance(n, int) else 0
        elif id(row) in counted:
            taken = row[1]["items"] or []
            single = [i for i, item in enumerate("xy") if item in taken][:1]
            x[single] += 1
        running[row[0]] = running.get(row[0], 0) + x
        found.setdefault(row[0], []).append(running[row[0]].tolist())
    return found


@each_runner_and_path
@pytest.mark.parametrize("kind", ["PrefixCount", "Histogram"])
def test_elements_beyond_the_bound_take_their_step_and_count_0(
    kind: str, runner: str, path: str
) -> None:
    """Those that are rejected have used up their place; so the contents decide nothing."""
    rows = elements()
    outcome = run(lambda p: p | feed(rows) | each(path, kind, users=people(9, per_key=6)), runner)
    found: dict[str, list[Any]] = {}
    for release in outcome.releases:
        value = release.value if kind == "Histogram" else [release.value]
        found.setdefault(release.key, []).append(np.round(value, 6).tolist())
    assert found == element_sums(rows, kind, events=9, per_key=6)
    assert [r.timestamp for r in outcome.releases if r.key == "a"] == [
        row[2] for row in rows if row[0] == "a"
    ]


@each_path
def test_elements_in_windows_are_bounded_over_all_of_them(path: str) -> None:
    """Between windows nothing counts, nor takes a place."""
    rows: list[Row] = [("a", {"who": "p", "n": 1}, i * SECOND) for i in range(30)]
    windows = beam.WindowInto(SlidingWindows(size=3, period=10))
    made = each(path, "PrefixCount", users=people(5, per_key=5))
    outcome = run(lambda p: p | feed(rows) | windows | made)
    found = sorted((s.value.timestamp // SECOND, s.value.value) for s in outcome.outputs[0])
    expected = [(0, 1), (1, 2), (2, 3), (10, 1), (11, 2), (12, 2), (20, 0), (21, 0), (22, 0)]
    assert found == expected


@each_path
def test_refused_elements_are_collected_with_what_they_held(path: str) -> None:
    """Of elements that count; one that is left out is not looked at."""
    rows: list[Row] = [("a", {"who": "p", "n": n, "id": i}, i) for i, n in enumerate(["x", "y"])]
    rows.append((7, {"who": "p", "n": 1, "id": 2}, 2))
    made = each(
        path, "PrefixCount", users=people(1), on_reject="collect", element_id=lambda p: p["id"]
    )
    outcome = run(lambda p: p | feed(rows, tuple[Any, Any]) | made)
    assert [r.value for r in outcome.releases] == [0, 0]
    assert {(r.key, r.id) for r in outcome.rejected} == {("a", "0"), ("", None)}


@each_path
def test_elements_that_are_no_pairs_are_refused_behind_a_bound(path: str) -> None:
    """Ids and people are asked for of pairs only."""

    def build(pipeline: beam.Pipeline) -> Any:
        given: list[Any] = [5, "text", ("a", {"who": "p", "n": 1, "id": 3}), (7, 8), [1]]
        stamped: Any = beam.Map(lambda e: TimestampedValue(e, 5)).with_output_types(Any)
        events = pipeline | beam.Create(given, reshuffle=False) | stamped
        options = {"element_id": lambda p: p["id"], "on_reject": "collect"}
        return events | each(path, "PrefixCount", users=people(2), **options)

    outcome = run(build)
    assert [(r.key, r.step, r.value) for r in outcome.releases] == [("a", 1, 1)]
    assert sorted(r.element for r in outcome.rejected) == sorted(["5", "'text'", "(7, 8)", "[1]"])


def test_ties_of_elements_are_by_id() -> None:
    """Of one time: the smallest id counts, whatever it holds and whenever it came."""
    ids = random.Random(2).sample(range(8), 8)
    rows: list[Row] = [("a", {"who": "p", "n": 2 - i % 2, "id": i}, 5) for i in ids]
    made = each("bounded", "PrefixCount", users=people(1), element_id=lambda p: p["id"])
    found = [r.value for r in run(lambda p: p | feed(rows) | made).releases]
    assert found == [2] * 8


@each_path
def test_ties_of_elements_without_ids_are_by_arrival(path: str) -> None:
    """By contents, one of them would decide on the step at which another counts."""
    for first, second in ((1, 2), (2, 1)):
        rows: list[Row] = [("a", {"who": "p", "n": n}, 5) for n in (first, second)]
        made = each(path, "PrefixCount", users=people(1))
        found = [round(r.value) for r in run(lambda p, m=made, r=rows: p | feed(r) | m).releases]
        assert found == [first, first]


# Replayable noise


@pytest.fixture
def replayable(monkeypatch: pytest.MonkeyPatch) -> dp.ReplayableEntropy:
    monkeypatch.setenv("PEOPLE_SECRET", "0123456789abcdef" * 4)
    return dp.ReplayableEntropy("PEOPLE_SECRET", run_id="people")


@pytest.mark.long
@pytest.mark.parametrize("kind", ["PrefixCount", "Histogram"])
def test_replayable_noise_is_one_on_both_paths(kind: str, replayable: dp.ReplayableEntropy) -> None:
    rows = elements()
    how = {"budget": dp.ZCDP(0.1), "entropy": replayable, "element_id": lambda p: p["id"]}
    found = [
        run(lambda p, path=path: p | feed(rows) | each(path, kind, **how)).releases
        for path in (*PATHS, "streaming")
    ]
    assert found[0] == found[1] == found[2]
    exact = run(lambda p: p | feed(rows) | each("bounded", kind)).releases
    assert [r.value for r in found[0]] != [r.value for r in exact]


@pytest.mark.filterwarnings("ignore")
@each_path
def test_replayable_noise_at_ticks(path: str, replayable: dp.ReplayableEntropy) -> None:
    """The same again for the same events that count, even if others are there that do not."""
    rows, options = crowd(), {"budget": dp.ZCDP(0.1), "entropy": replayable, "path": path}

    def releases(rows: list[Row], users: dp.Users) -> list[Any]:
        return run(lambda p: p | feed(rows) | "X" >> tick_count(users, **options)).releases

    one = releases(rows, people(4))
    fewer = [row for row, _ in kept(listed(rows), 4)]
    assert one == releases(rows, people(4)) == releases(fewer, people(4))
    assert one != releases(rows, people(4, per_key=2))  # another bound, other noise


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore")
def test_bounds_for_several_counts_have_noise_of_their_own(
    replayable: dp.ReplayableEntropy,
) -> None:
    """Else equal releases of two bounds, of one noise scale, would show that they kept the same."""
    options = {"budget": dp.ZCDP(0.1), "entropy": replayable}

    def releases(users: dp.Users, keys: Sequence[str] = KEYS) -> dict[str, Any]:
        counts: dict[str, Any] = {
            "count": tick_count(None, **options),
            "people": counted(what=dp.People(), **options, **CLOCK, keys=KEYS, users=people(2)),
            "others": tick_count(None, keys=keys),
        }

        def build(pipeline: beam.Pipeline) -> Any:
            made = pipeline | feed(STAYS) | "Bound" >> dp.BoundUsers(users, counts)
            return tuple(made.values())

        outputs = run(build).outputs
        return {name: [s.value for s in seen] for name, seen in zip(counts, outputs, strict=True)}

    one = releases(people(4))
    assert one == releases(people(4))
    for other in (
        releases(people(4, keys=5)),
        releases(people(4, gap=2)),
        releases(people(4), keys=[*KEYS, "d"]),
    ):
        for name in ("count", "people"):
            assert one[name] != other[name], name


# collegemsg: who wrote to whom


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(
    ("events", "per_key", "left", "keys"),
    [
        (5, 5, 5_548, 1_049),
        pytest.param(20, 20, 16_248, 1_411, marks=pytest.mark.exhaustive),
        pytest.param(20, 1, 12_215, 1_589, marks=pytest.mark.exhaustive),
    ],
)
def test_exact_counts_of_collegemsg(events: int, per_key: int, left: int, keys: int) -> None:
    """Rows of one second are a microsecond apart, so that ties are by the file."""
    read = real_rows("collegemsg.txt", " ")
    assert len(read) == 59_835
    rows: list[Row] = [
        (row["dst"], {"who": row["src"]}, int(row["time"]) * SECOND + place)
        for place, row in enumerate(read)
    ]
    first = min(micros for *_, micros in rows)
    days = (max(micros for *_, micros in rows) - first) // (86_400 * SECOND) + 1
    count = TickNumbers(
        *(EXACT, 86_400 * days, Timestamp(micros=first)),
        horizon=1,
        keys=sorted({row[0] for row in rows}),
        mechanism="SmoothBinary",
        value=lambda _: 1,
        users=people(events, per_key=per_key),
        path="bounded",
    )
    found = [r.value for r in run(lambda p: p | feed(rows) | count).releases]
    assert (sum(found), sum(x > 0 for x in found)) == (left, keys)


# What tells nothing

GLOBAL = beam.WindowInto(GlobalWindows())
PERSON, OTHER_PERSON = "person-4711-who", "person-0815-who"
TELLING: list[Row] = [
    *(
        ("abz"[i % 3], {"who": PERSON, "n": 1, "items": ["x", "y"][: 1 + i % 2]}, i * SECOND)
        for i in range(110)
    ),
    ("a", {"who": PERSON, "n": None, "items": None}, 7),
    ("a", {"who": OTHER_PERSON, "n": 2, "items": ["x"]}, -5),
    ("b", {"n": 1, "items": ["z"]}, 5 * SECOND),
]
FEWER: list[list[Row]] = [[], TELLING[:1], TELLING[:2], TELLING[::7]]
STAYS: list[Row] = [("c", {"who": "q", "n": 1, "items": ["z"]}, i * 30 * SECOND) for i in (0, 1)]


@pytest.mark.exhaustive
@pytest.mark.usefixtures("_noted_updates")
@each_path
def test_whose_events_count_leaves_by_no_side_door(
    path: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Neighbours in all events of one person: nothing but values differs, nor their order."""

    def build(pipeline: beam.Pipeline, rows: list[Row]) -> dict[str, Any]:
        made = several(pipeline | feed(rows), path)
        del made["asserted"]
        return {name: releases | f"All {name}" >> GLOBAL for name, releases in made.items()}

    found = [outside(lambda p, r=r: build(p, STAYS + r), capfd) for r in (TELLING, *FEWER[:2])]
    # "shared again" has one key.
    assert sorted(found[0].counts.values()) == [TICKS, *[len(KEYS) * TICKS] * 8]
    for other in found[1:]:
        assert found[0] == other
    for one in found:
        for text in (PERSON, "4711", "0815"):
            assert text not in repr(one)


@pytest.mark.long
@pytest.mark.usefixtures("_noted_updates")
@each_path
def test_which_contents_count_leaves_by_no_side_door(
    path: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """After every element: all contents of one person's elements differ."""

    def build(pipeline: beam.Pipeline, n: Any, items: Any) -> dict[str, Any]:
        rows = [
            (key, {**payload, "n": n, "items": items} if payload["who"] == "p" else payload, at)
            for key, payload, at in elements()
        ]
        events = pipeline | feed(rows)
        made = {kind: events | kind >> each(path, kind) for kind in ("PrefixCount", "Histogram")}
        collected = events | "Collect" >> each(path, "PrefixCount", on_reject="collect")
        return {**made, "collect": collected[0]}

    found = [
        outside(lambda p, c=c: build(p, *c), capfd) for c in ((1, "x"), (None, "no"), ("s", 7))
    ]
    assert found[0] == found[1] == found[2]
    assert set(found[0].counts) == {"PrefixCount", "Histogram", "collect"}


@pytest.mark.exhaustive
def test_the_order_of_releases_is_the_same_for_neighbours() -> None:
    """As they come, of two runs that differ in a person."""

    def order(rows: list[Row], path: str) -> list[Any]:
        came: list[Any] = []

        def build(pipeline: beam.Pipeline) -> Any:
            made = several(pipeline | feed(rows), path)
            for name, releases in made.items():
                _ = releases | f"Note {name}" >> beam.Map(_note, name)
            return made["k"]

        _came.clear()
        run(build)
        came += _came
        return came

    for path in PATHS:
        with_person, without = order(STAYS + TELLING, path), order(STAYS, path)
        assert sorted(with_person) == sorted(without)
        for name in {name for name, *_ in without}:
            ones, others = ([r for r in found if r[0] == name] for found in (with_person, without))
            assert ones == others, (path, name)


_came: list[Any] = []


def _note(release: Any, name: str) -> None:
    _came.append((name, release.key, release.step, release.timestamp))


def applied() -> list[Any]:
    made = [
        tick_count(people(3, per_key=2, gap=20), late="drop"),
        counted(EXACT, dp.People(), **CLOCK, keys=KEYS, users=FEW, restart=4),
        each("auto", "PrefixCount"),
        each("auto", "Histogram"),
    ]
    bound = dp.BoundUsers(people(3), {"a": tick_count(None)})
    return [*made, bound._counts["a"]]


@pytest.mark.parametrize("what", [[dp.Count(), dp.Rate("a = b")], dp.People()], ids=repr)
def test_behind_a_bound_each_count_is_one_number(what: Any) -> None:
    clock, users = dp.Clock(10, start=0, ticks=12), dp.Users("who", 3)
    view: Any = clock.last(3) if isinstance(what, dp.People) else clock
    count = dp.TickCount(EXACT, view, what, keys=["a"], users=users)
    with pytest.raises(TypeError, match="a tree of keys, or people of the last ticks"):
        dp.BoundUsers(users, {"a": count})


@pytest.mark.parametrize("place", range(5))
def test_what_a_transform_says_of_people_is_public(place: int) -> None:
    """It names the bound, and holds nothing of data, pickled or not, once it has run."""
    made = applied()[place]
    said = {**made.display_data(), **made.annotations()}
    assert said["users"].partition(";")[0] == str(made.users)
    assert "person" in said["neighbouring_relation"]
    assert f"at most {made.users.events} " in said["neighbouring_relation"]
    rows = STAYS + TELLING
    with listening() as records:
        outcome = run(lambda p: p | feed(rows) | made)
    shown = [*map(str, said.values()), repr(made), str(vars(made))]
    shown += [record.getMessage() for record in records]
    shown += map(str, outcome.outputs[0])
    assert not [text for text in shown if "4711" in text]
    # Beam compresses pickles: what one holds does not show in its bytes.
    assert b"4711" not in bz2.decompress(base64.b64decode(pickler.dumps(made)))


@pytest.mark.exhaustive
@each_runner_and_path
def test_people_whom_utf_8_cannot_name_are_nobody(runner: str, path: str) -> None:
    """As of JSON's escapes. Else the runner stops, and shows who it was."""

    def escaped(payload: Any) -> str:
        return "\ud800" + PERSON if payload["who"] == PERSON else payload["who"]

    rows: list[Row] = [("a", {"who": PERSON, "n": 1}, i) for i in range(3)]
    count = tick_count(dp.Users(escaped, 2, per_key=1), path=path)
    outcome = run(lambda p: p | feed([*rows, STAYS[0]]) | count, runner)
    assert values(outcome.outputs[0]) == sums([(STAYS[0], ["c"])])


def test_people_are_named_in_no_error(caplog: pytest.LogCaptureFixture) -> None:
    """What `by` says of an event shows nowhere, even if it fails."""

    def failing(payload: Any) -> str:
        raise ValueError(payload["who"])

    caplog.set_level(logging.DEBUG)
    count = tick_count(dp.Users(failing, 3, per_key=1))
    outcome = run(lambda p: p | feed(TELLING) | count)
    assert not any(r.value for r in outcome.releases)  # they are nobody's
    assert "4711" not in caplog.text


def test_a_gap_behind_one_bound_for_several_needs_the_same() -> None:
    made = dp.BoundUsers(people(2, gap=30), {"a": tick_count(None, late="fold")})
    with pytest.raises(ValueError, match=says(FOLDS_LATE)):
        _ = beam.Pipeline() | stream(5) | made


# One bound for several counts


def test_bound_users_refuses_what_promises_something_about_one_event() -> None:
    users = people(3)
    for count in (
        dp.PrefixCount(EXACT, 4),
        dp.Histogram(EXACT, 4, ["a"]),
        dp.EdgeCount(EXACT, 4, 5, max_degree=2),
        beam.Map(print),
    ):
        with pytest.raises(TypeError, match="an event less lets others"):
            dp.BoundUsers(users, {"a": count})
    with pytest.raises(ValueError, match="asserted users need no bound"):
        dp.BoundUsers(people(3, asserted=True), {"a": tick_count(None)})
    # One event less lets others through, which such a count would not charge for.
    with pytest.raises(ValueError, match="a has asserted users, and behind a bound one event less"):
        dp.BoundUsers(users, {"a": tick_count(people(3, asserted=True))})
    with pytest.raises(TypeError, match="counts must map names to counts"):
        dp.BoundUsers(users, {})
    made = dp.BoundUsers(users, {"a": tick_count(None)})
    assert made._counts["a"].counter.change.person == "one person with at most 3 events"


def test_shares_of_a_ledger_behind_a_bound_are_of_people() -> None:
    ledger = Ledger(dp.ApproxDP(1.0, 1e-6))
    members = {
        "count": tick_count(None, budget=ledger.share(0.5, "count")),
        "people": counted(
            ledger.share(0.5, "people"), dp.People(), **CLOCK, keys=KEYS, users=people(2)
        ),
    }
    run(lambda p: tuple((p | feed(STAYS) | dp.BoundUsers(people(3), members)).values()))
    protects = {share.name: share.protects for share in ledger.shares}
    assert protects["count"].person == "one person with at most 3 events"
    assert protects["people"].person == "one person with at most 2 events"
    assert {p.event_cost for p in protects.values()} == {2}
    assert ledger.epsilon_at(unit="person") < 1.000001 < ledger.epsilon_at(unit="event")


def device(payload: Any) -> Any:
    return payload["device"]


def test_a_member_protects_the_same_people_as_its_bound() -> None:
    """One person may have many devices: what is left of that person's events is any one's."""
    outer = people(20, per_key=20)
    inner = counted(EXACT, dp.People(), **CLOCK, keys=KEYS, users=dp.Users(device, 1))
    with pytest.raises(ValueError, match="the other: give both the same field or function"):
        dp.BoundUsers(outer, {"devices": inner})
    mine = counted(EXACT, dp.People(), **CLOCK, keys=KEYS, users=people(2))
    bound = dp.BoundUsers(outer, {"people": mine})
    rows = [("a", {"who": "u", "n": 1}, i * SECOND) for i in range(9)]
    built = lambda p: (p | feed(rows) | bound)["people"]  # noqa: E731
    assert max(release.value for release in run(built).releases) == 1


@pytest.mark.long
def test_noise_behind_a_bound_follows_what_its_other_counts_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What one of them counts takes a place, and so decides what others are left."""
    monkeypatch.setenv("COUNTING_SECRET", "0123456789abcdef" * 4)
    rows: list[Row] = [("a", {"who": "v", "n": 1, "paid": 1}, 65 * SECOND)]

    def found(**paid: Any) -> list[float]:
        entropy = dp.ReplayableEntropy("COUNTING_SECRET", run_id="r")
        some = {"tick": 60, "start": 0, "horizon": 6, "entropy": entropy}
        budget, one = dp.ZCDP(0.1), lambda payload: 1
        counts = {
            "n": TickNumbers(budget, **some, keys=["a"], value=one),
            "paid": TickNumbers(budget, **some, keys=["b"], value=itemgetter("paid"), **paid),
        }
        bound = dp.BoundUsers(people(1), counts)
        made = run(lambda p: (p | feed(rows) | bound)["n"])
        return [release.value for release in made.releases]

    assert found() == found()
    assert found() != found(unit=0.1)
    assert found() != found(bounds=(0, 2))


def test_what_was_given_to_a_bound_is_as_it_was() -> None:
    """Applied elsewhere, a member bounds nobody, and so claims an event's protection only."""
    count = tick_count(None)
    before = count.counter
    bound = dp.BoundUsers(people(5, per_key=5), {"a": count})
    assert count.counter is before
    assert count.users is None
    assert bound.counters["a"].change.person == "one person with at most 5 events"
    assert not hasattr(bound, "counts")


def test_a_count_behind_a_bound_pays_for_what_can_pass_only() -> None:
    users = dp.Users(who, 20, keys=2, per_key=3)
    plain = tick_count(None)
    bound = dp.BoundUsers(users, {"a": replace(plain, other="a")})
    assert bound.counters["a"].l2_sensitivity == pytest.approx(6 * plain.counter.l2_sensitivity)


class Unpicklable:
    def __reduce__(self) -> Any:
        raise TypeError(SECRET_NAME)


SECRET_NAME = "n4me"


def test_contents_that_no_coder_takes_stop_nothing() -> None:
    """Not here; upstream, Beam's own coders may."""
    odd = ("a", {"who": "u", "n": 1, "odd": Unpicklable()})
    steps = StepParcels(WindowCheck(None), None)
    parcel = steps.wrap(odd, 0, (GlobalWindow(),))
    assert parcel is not None
    assert steps.names(parcel) == [b"a"]
    assert steps.unwrap(parcel, [0]) == [("a", Lost())]  # it counts 0, and takes its step

    several = ElementParcels([SimpleNamespace(wrap=lambda *_: b"")])
    assert several.wrap(odd, 0, (GlobalWindow(),)) is None
    assert several.wrap(("a", {"who": "u"}), 0, (GlobalWindow(),)) is not None


class UnreadableError(Exception):
    """It pickles, and does not come back: what is pickled is its message, of its two arguments."""

    def __init__(self, row: int, text: str) -> None:
        super().__init__(text)


def bad(payload: Any) -> Any:
    """What a parser makes of a row that it cannot read."""
    return payload if payload["n"] else UnreadableError(3, SECRET_NAME)


def name_of(payload: Any) -> str:
    return payload["who"] if isinstance(payload, dict) else "somebody"


@each_path
def test_contents_that_do_not_come_back_stop_nothing(path: str) -> None:
    """As without `users`: they count nothing at a clock, and take their step after elements."""
    users = dp.Users(name_of, 3, per_key=3)
    rows: list[Row] = [("a", {"who": "u", "n": n}, i * SECOND) for i, n in enumerate((1, 0, 2))]
    parsed = beam.Map(lambda element: (element[0], bad(element[1]))).with_output_types(
        tuple[str, Any]
    )
    one = lambda payload: 1 if isinstance(payload, dict) else "no number"  # noqa: E731
    clock = tick_count(None, value=one, path=path)
    steps = dp.PrefixCount(EXACT, 9, value=one, users=users, path=path)
    bound = dp.BoundUsers(users, {"n": clock})

    def build(pipeline: beam.Pipeline) -> Any:
        ours, again = pipeline | feed(rows), pipeline | "Again" >> feed(rows)
        return ours | "ParseSteps" >> parsed | steps, (again | "ParseTicks" >> parsed | bound)["n"]

    outcome = run(build)
    elements, ticks = ([seen.value for seen in output] for output in outcome.outputs)
    assert [round(release.value, 6) for release in elements] == [1, 1, 2]
    assert round(max(release.value for release in ticks), 6) == 2


def test_ids_of_contents_that_do_not_come_back_are_read_before() -> None:
    """Else the user's function would be given something else, and stop the pipeline."""
    number = lambda payload: payload["id"] if isinstance(payload, dict) else 7  # noqa: E731
    for odd in (UnreadableError(3, SECRET_NAME), Unpicklable()):
        steps = StepParcels(WindowCheck(None), number)
        parcel = steps.wrap(("a", odd), 0, (GlobalWindow(),))
        assert parcel is not None
        assert steps.names(parcel) == [b"a"]
        assert steps.unwrap(parcel, [0]) == steps.unwrap(parcel, []) == [("a", Lost(7))]
        others = [("a", {"who": "u", "id": place}) for place in (9, 2)]
        entries = [timed(0, steps.wrap(other, 0, (GlobalWindow(),)) or b"") for other in others]
        ordered = steps.ordered([timed(0, parcel), *entries])
        assert [steps._place(entry)[-1] for entry in ordered] == [2, 7, 9]
        intake = Intake(dp.calibrate(dp.mechanisms.BinaryTree(4), EXACT), Numbers(0, 1, 1))
        intake.element_id = number
        assert intake.identity(Lost(7)) == 7
    # What has no key is refused for that, as if it had come back.
    parcel = steps.wrap(UnreadableError(3, SECRET_NAME), 0, (GlobalWindow(),))
    assert parcel is not None
    assert steps.unwrap(parcel, []) == [None]


def test_check_says_who_has_no_person() -> None:
    rows = [TimestampedValue(("a", {"id": 7.0}), 1)]
    numbers = tick_count(
        dp.Users(lambda payload: payload["id"], 3, per_key=1), value=lambda payload: 1
    )
    assert "no person" in str(dp.check(numbers, rows))


@pytest.mark.parametrize(
    "make", [tick_count, lambda users, value: dp.PrefixCount(EXACT, 9, users=users)]
)
def test_what_counts_is_to_be_said_where_values_hold_people(make: Any) -> None:
    """Or each would be no number, and all counts 0."""
    with pytest.raises(ValueError, match="say what counts"):
        make(people(3), value=None)


def test_times_that_beam_has_cut_stay_in_their_window_and_people_in_their_shard() -> None:
    """Else the count of another window would get them, or a person would be bounded twice."""
    parcels: Any = SimpleNamespace(
        wrap=lambda *_: b"", person=lambda by, element: element, keeps_all=False
    )
    window = IntervalWindow(0, 10)
    send = SendToShards(people(1), parcels, Placement(1024))
    for micros, found in ((-1, 0), (0, 0), (5, 5), (10_000_000, 9_999_999)):
        element = windowed_value.create("ann", micros, (window,))
        _, entry = send.read("ann", element) or ("", b"")
        assert time_of(entry) == found
    send.setup()
    send.start_bundle()
    for name in ("ann", "\u00e4nn", "ann"):
        assert not send.process(name, windowed_value.create(name, 5, (window,)))
    # As they were found elsewhere: on every worker, and from one version to the next.
    assert {made.value[0] for made in send.finish_bundle()} == {627, 318}

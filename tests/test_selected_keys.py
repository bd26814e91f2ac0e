"""Keys that nobody listed, in pipelines: the same on all paths, and what one event can change.

The guarantee is audited exactly in test_selected_keys_audit.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.transforms.window import FixedWindows, GlobalWindow

import beam_dpcount as dp
from beam_dpcount.counters.clock import clock_of
from beam_dpcount.counters.columns import Sums, all_ticks
from beam_dpcount.counters.selection import Selection
from beam_dpcount.dofns.shards import CountShards
from beam_dpcount.dofns.ticks import SEED
from beam_dpcount.states.all_shards import ShardPlan, shard_of
from beam_dpcount.states.wire import pack_batch
from beam_dpcount.transforms.ticks import TickNumbers
from benchmarks.cells import Bag, Cell, Timer
from benchmarks.jobs import dofns_of
from tests.runners import RUN_AT_ONCE, SECOND, Row, feed, run, run_stream
from tests.scripted import ScriptedEntropy, SeededNoise
from tests.sentences import counted

BUDGET = dp.ApproxDP(5.0, 1e-2)  # so weak that keys of a few events are shown
TICK, TICKS = 10, 9
CLOCK: dict[str, Any] = {"tick": TICK, "start": 0, "horizon": TICKS}
DEFAULT = "NormalizedBLT"
MECHANISMS = ("NormalizedBLT", "BinaryTree", "SmoothBinary", "Honaker", "Simple2")

# Keys of a few events and of many, one that comes late, and one whose name is not ASCII.
ROWS: list[Row] = sorted(
    [
        *(("often", 1, i * SECOND) for i in range(0, 90, 2)),
        *(("sometimes", 1, i * SECOND) for i in range(3, 90, 7)),
        *((f"rare {i}", 1, (11 * i % 90) * SECOND) for i in range(12)),
        *(("late", 1, i * SECOND) for i in range(60, 80)),
        *(("n\u00e4\u00efve", 1, i * SECOND) for i in range(1, 40, 3)),
    ],
    key=lambda row: row[2],
)


def count(**options: Any) -> TickNumbers:
    given = {"keys": dp.SelectKeys(shards=3), "entropy": ScriptedEntropy(6), **CLOCK, **options}
    return TickNumbers(given.pop("budget", BUDGET), **given)


def seen_of(
    transform: Any, rows: Iterable[Row] = ROWS, runner: str = "fn", windows: Any = None
) -> Any:
    def build(pipeline: beam.Pipeline) -> Any:
        events = pipeline | feed(rows, Any)
        return (events if windows is None else events | beam.WindowInto(windows)) | transform

    return run(build, runner).outputs[0]


def by_ticks(rows: Iterable[Row], ticks: int = TICKS) -> list[Any]:
    """The parts of a stream whose watermark follows the events."""
    parts: list[Any] = []
    for tick in range(ticks):
        parts += [row for row in rows if tick * TICK <= row[2] // SECOND < (tick + 1) * TICK]
        parts.append((tick + 1) * TICK)
    return parts


pytestmark = pytest.mark.usefixtures("no_state_cache")


# The rule's numbers


@pytest.mark.parametrize(("horizon", "theta"), [(100, 59.7), (1000, 82.9), (10_000, 108.35)])
def test_largest_thresholds(horizon: int, theta: float) -> None:
    made = TickNumbers(
        dp.ApproxDP(1.0, 1e-6),
        1,
        0,
        horizon=horizon,
        keys=dp.SelectKeys(),
        mechanism="NormalizedBLT",
    )
    assert made.selection is not None
    assert made.selection.delta == 5e-7
    assert made.selection.thresholds.max() == pytest.approx(theta, rel=1e-3)


PERSON = [
    ((5, 5, 1), 30, 192),
    ((5, 5, 5), 67, 427),
    ((20, 20, 1), 60, 395),
    ((20, 4, 5), 134, 853),
    ((20, 20, 20), 268, 1762),
]


@pytest.mark.parametrize(("bound", "sigma", "theta"), PERSON)
def test_thresholds_for_people(bound: tuple[int, int, int], sigma: float, theta: float) -> None:
    """At most 2 % above the worst allocation of events to keys."""
    events, keys, per_key = bound
    made = TickNumbers(
        dp.ApproxDP(1.0, 1e-6),
        **{**CLOCK, "horizon": 1000},
        keys=dp.SelectKeys(),
        mechanism="NormalizedBLT",
        value=lambda event: 1,
        users=dp.Users(lambda event: "", events, keys, per_key),
    )
    assert made.selection is not None
    assert made.counter.stddevs(1000).max() == pytest.approx(sigma, rel=0.02)
    assert theta * 0.998 <= made.selection.thresholds.max() <= theta * 1.02


@pytest.mark.long
@pytest.mark.parametrize(
    ("mechanism", "least"),
    [
        ("NormalizedBLT", 0.5e-2),
        pytest.param("SmoothBinary", 0.5e-2, marks=pytest.mark.exhaustive),
        pytest.param("BinaryTree", 0.4e-2, marks=pytest.mark.exhaustive),
    ],
)
def test_how_often_a_key_of_one_event_appears(mechanism: str, least: float) -> None:
    """In 100,000 trials, each a column; and that a threshold without that event would show."""
    horizon, trials, at_once = 100, 100_000, 20_000
    budget: Any = dp.PureDP(3.0) if mechanism == "BinaryTree" else dp.ApproxDP(3.0, 2e-2)
    made = TickNumbers(
        budget, 1, 0, horizon=horizon, keys=dp.SelectKeys(delta=1e-2), mechanism=mechanism
    )
    selection = made.selection
    assert selection is not None
    low = Selection(made.counter, 1e-2)
    low.__dict__["lattice_thresholds"] = selection.lattice_thresholds - 1
    noise = SeededNoise(made.counter.law, 3, at_once)
    columns = np.arange(at_once)
    sums = Sums(columns, np.ones_like(columns), np.ones_like(columns))

    def rate(rule: Selection) -> float:
        parts = (len([*all_ticks(rule, sums, at_once, noise)]) for _ in range(trials // at_once))
        return sum(parts) / trials

    shown, wrong = rate(selection), rate(low)
    assert least <= shown <= 1.06e-2
    # Crossings of a Laplace tree come together: there a union over ticks leaves more room.
    assert wrong > (1.3 * shown if mechanism == "BinaryTree" else 1.06e-2)


def test_delays_and_bias_are_those_measured() -> None:
    made = TickNumbers(
        dp.ApproxDP(1.0, 1e-6), 1, 0, horizon=1000, keys=dp.SelectKeys(), mechanism="NormalizedBLT"
    )
    assert made.selection is not None
    one, ten, hundred = made.selection.outlook()
    assert one.delay == pytest.approx(73, rel=0.1)
    assert ten.delay == pytest.approx(8, abs=1)
    assert hundred.delay == 0
    assert one.bias == pytest.approx(12, abs=2.5)
    assert one.bias_later == pytest.approx(1.4, abs=2)
    said = str(made.selection)
    assert "a key is shown at the first tick at which its private count reaches" in said
    assert "82.87" in said
    assert said.count("after ") == 3


def test_what_a_clock_has_no_time_to_tell_is_not_said() -> None:
    """Ten ticks later there would be those alone that are shown early, for their noise."""
    budget = dp.ApproxDP(1.0, 1e-6)
    made = TickNumbers(budget, 1, 0, horizon=24, keys=dp.SelectKeys(), mechanism="NormalizedBLT")
    assert made.selection is not None
    one, seven, hundred = made.selection.outlook((1, 7, 100))
    assert one.delay is None
    assert seven.delay is not None
    assert seven.bias_later is None
    assert hundred.bias_later is not None


def test_laplace_noise_leaves_all_of_delta() -> None:
    made = count(mechanism="BinaryTree", budget=dp.ApproxDP(1.0, 1e-6), entropy=None)
    assert made.selection is not None
    assert made.counter.law.__class__.__name__ == "DiscreteLaplace"
    assert made.selection.delta == 1e-6
    gauss = count(mechanism="SmoothBinary", budget=dp.ApproxDP(1.0, 1e-6), entropy=None)
    assert gauss.selection is not None
    assert gauss.selection.delta == 5e-7
    assert gauss.counter.budget == dp.ApproxDP(1.0, 5e-7)


# The same on all paths


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"keys": dp.SelectKeys(at_least=3, every=2, shards=2)},
        {"bounds": (-1, 2), "keys": dp.SelectKeys(shards=1)},
        {"relation": "replace_one", "late": "drop"},
    ],
    ids=["plain", "at least 3, every 2", "negative", "replace_one"],
)
def test_both_paths_show_the_same(mechanism: str, options: dict[str, Any]) -> None:
    rows = [
        (k, -1 if i % 5 == 0 and "bounds" in options else 1, t) for i, (k, _, t) in enumerate(ROWS)
    ]
    made = [
        seen_of(count(mechanism=mechanism, path=p, **options), rows)
        for p in ("bounded", "streaming")
    ]
    assert made[0] == made[1]
    shown = {seen.value.key for seen in made[0]}
    assert "often" in shown
    assert len(shown) < len({row[0] for row in ROWS})


@pytest.mark.parametrize(("runner", "path"), [case for case in RUN_AT_ONCE if case[0] != "fn"])
def test_all_runners_show_the_same(runner: str, path: str) -> None:
    assert seen_of(count(path=path), runner=runner) == seen_of(count(path="bounded"))


@pytest.mark.exhaustive
@pytest.mark.parametrize("late", ["fold", "drop"])
def test_a_live_stream_shows_the_same(late: str) -> None:
    live = run_stream(count(late=late), *by_ticks(ROWS))
    assert live.outputs[0] == seen_of(count(path="bounded"))


def test_windows_start_anew() -> None:
    options = {"horizon": 8, "keys": dp.SelectKeys(shards=2)}
    made = [
        seen_of(count(path=path, **options), windows=FixedWindows(40))
        for path in ("bounded", "streaming")
    ]
    assert made[0] == made[1]
    assert {seen.value.step for seen in made[0]} <= {*range(1, 9)}  # of the whole clock
    assert len({seen.window for seen in made[0]}) == 2


def payload(row: Row, number: int) -> Row:
    return row[0], {"who": f"p{number % 17}"}, row[2]


def who(event: Any) -> str:
    return str(event["who"])


PEOPLE = [payload(row, number) for number, row in enumerate(ROWS)]


@pytest.mark.parametrize(
    "make",
    [
        lambda path: count(
            path=path, value=lambda e: 1, users=dp.Users(lambda e: e["who"], 6, per_key=3)
        ),
        lambda path: counted(
            *(BUDGET, dp.People()),
            **CLOCK,
            restart=3,
            keys=dp.SelectKeys(shards=2),
            users=dp.Users(who, 6),
            path=path,
            entropy=ScriptedEntropy(1),
        ),
    ],
    ids=["TickCount", "people"],
)
def test_people_on_both_paths(make: Any) -> None:
    made = [seen_of(make(path), PEOPLE) for path in ("bounded", "streaming")]
    assert made[0] == made[1]
    assert made[0]


@pytest.mark.long
def test_one_bound_for_several_counts() -> None:
    both = dp.BoundUsers(
        dp.Users(who, 40, per_key=20),
        {
            "events": count(value=lambda e: 1),
            "people": counted(
                BUDGET, dp.People(), **CLOCK, keys=dp.SelectKeys(), users=dp.Users(who, 5)
            ),
        },
    )
    assert both.counters["events"].change.events == 40

    def build(pipeline: beam.Pipeline) -> Any:
        made = pipeline | feed(PEOPLE, Any) | both
        return made["events"], made["people"]

    run(build)


def test_the_largest_of_a_tick() -> None:
    """Of those that are shown; of equal ones the first in order."""
    tops = []
    for path in ("bounded", "streaming"):
        counting = count(path=path)
        tops.append(seen_of(counting | dp.post.TopKPerTick(2, counting, path), ROWS))
    assert tops[0] == tops[1]
    made = seen_of(count(path="bounded"))
    for top in (seen.value for seen in tops[0]):
        shown = {s.value.key: s.value.value for s in made if s.value.step == top.step}
        assert list(top.items) == sorted(shown, key=lambda key: (-shown[key], key))[:2]


@pytest.mark.exhaustive
def test_the_largest_of_a_live_stream() -> None:
    live, bounded = count(path="streaming"), count(path="bounded")
    found = run_stream(live | dp.post.TopKPerTick(2, live), *by_ticks(ROWS)).outputs[0]
    assert found == seen_of(bounded | dp.post.TopKPerTick(2, bounded, "bounded"), ROWS)


def test_the_largest_of_windows_that_start_anew() -> None:
    """Steps come again in each: what is shown at a time goes together."""

    def people(path: str) -> Any:
        return counted(
            *(dp.ApproxDP(1e3, 1e-1), dp.People()),
            **{**CLOCK, "horizon": 8},
            restart=4,
            keys=dp.SelectKeys(shards=2),
            users=dp.Users(who, 40),
            path=path,
        )

    tops = []
    for path in ("bounded", "streaming"):
        count_people = people(path)
        found = seen_of(count_people | dp.post.TopKPerTick(1, count_people, path), PEOPLE)
        tops.append([(s.value.timestamp, s.value.step, round(s.value.values[0])) for s in found])
    assert sorted(tops[0]) == sorted(tops[1])
    assert [step for _, step, _ in sorted(tops[0])] == [*range(1, 9)]


# What one event changes


# In short: test_selected_keys_shards.py, without a runner.
@pytest.mark.exhaustive
@pytest.mark.parametrize("late", ["fold", "drop"])
@pytest.mark.parametrize("mechanism", ["NormalizedBLT", "BinaryTree"])
def test_a_late_first_event_changes_one_column(late: str, mechanism: str) -> None:
    """An event of a key's second tick, come after its fifth, is treated alike whoever is there."""
    extra = ("late", 1, 15 * SECOND)
    parts = by_ticks(ROWS)
    place = parts.index(50) + 1
    kept: list[dict[str, list[Any]]] = []
    for rows in (parts, [*parts[:place], extra, *parts[place:]]):
        live = run_stream(count(late=late, mechanism=mechanism), *rows)
        found: dict[str, list[Any]] = {}
        for seen in live.outputs[0]:
            found.setdefault(seen.value.key, []).append(seen)
        kept.append(found)
    without, with_it = kept
    others = [{k: v for k, v in found.items() if k != "late"} for found in kept]
    assert others[0] == others[1]
    moved = {
        a.value.step: b.value.value - a.value.value
        for a, b in zip(without["late"], with_it["late"][-len(without["late"]) :], strict=True)
    }
    if late == "drop":
        assert without == with_it
    else:
        assert all(change == pytest.approx(1, abs=1e-4) for change in moved.values())


@pytest.mark.parametrize(
    "mechanism",
    [m if m == DEFAULT else pytest.param(m, marks=pytest.mark.exhaustive) for m in MECHANISMS],
)
def test_columns_are_those_of_a_key_that_is_alone(mechanism: str) -> None:
    """To the last bit, whatever keys there are beside it."""
    everyone = seen_of(count(mechanism=mechanism, keys=dp.SelectKeys(shards=1)))
    for key in ("often", "late"):
        alone = seen_of(
            count(mechanism=mechanism, keys=dp.SelectKeys(shards=1)),
            [row for row in ROWS if row[0] == key],
        )
        assert alone == [seen for seen in everyone if seen.value.key == key]


@pytest.mark.exhaustive
def test_replays_repeat_a_shard_and_others_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTING_SECRET", "0123456789abcdef" * 4)
    entropy = dp.ReplayableEntropy("COUNTING_SECRET", run_id="keys")
    keys = dp.SelectKeys(shards=4)
    mine = shard_of("often", 4)
    extra = next(f"new {i}" for i in range(99) if shard_of(f"new {i}", 4) == mine)
    for path in ("bounded", "streaming"):

        def made(rows: list[Row], path: str = path) -> Any:
            counted = count(entropy=entropy, keys=keys, path=path, mechanism=DEFAULT)
            return seen_of("n" >> counted, rows)

        first, again, other = made(ROWS), made(ROWS), made([*ROWS, (extra, 1, 0)])
        assert first == again
        changed = {s.value.key for s in first} & {s.value.key for s in other}
        for key in changed:
            a, b = ([s.value.value for s in out if s.value.key == key] for out in (first, other))
            assert (a == b) is (shard_of(key, 4) != mine)


@pytest.mark.long
@pytest.mark.parametrize("path", ["bounded", "streaming"])
def test_replayable_noise_of_a_shard_follows_what_counts(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One more event, whose key is in each tick anyway, changes it from its tick on."""
    monkeypatch.setenv("COUNTING_SECRET", "0123456789abcdef" * 4)
    entropy = dp.ReplayableEntropy("COUNTING_SECRET", run_id="keys")
    names, at = [f"key {i}" for i in range(8)], 5
    rows: list[Row] = [(key, 1, i * 90 * SECOND // 800) for i in range(800) for key in names]
    counted = count(
        budget=dp.ZCDP(0.1), keys=dp.SelectKeys(0.1, shards=4), entropy=entropy, path=path
    )
    one, other = (
        {(s.value.key, s.value.step): s.value.value for s in seen_of("n" >> counted, some)}
        for some in (rows, [*rows, (names[0], 1, (at * TICK - 5) * SECOND)])
    )
    for key in names:
        steps = [step for name, step in one if name == key]
        assert steps == [step for name, step in other if name == key]
        assert steps[-5:] == [5, 6, 7, 8, 9]
        changes = np.array([other[key, step] - one[key, step] for step in steps])
        assert not changes[:-5].any()
        if shard_of(key, 4) != shard_of(names[0], 4):
            assert not changes.any()
        else:  # of the noise, too, even if not in each release
            assert len(set(changes[-5:].tolist())) > 1


def as_they_come(rows: list[Row], path: Path) -> list[Any]:
    """All releases, in the order in which they came."""
    path.touch()

    def note(release: Any) -> None:
        with path.open("a") as file:
            file.write(json.dumps(tuple(release)) + "\n")

    with beam.Pipeline("FnApiRunner") as pipeline:
        _ = pipeline | feed(rows) | count(path="bounded") | "Note" >> beam.Map(note)
    found = [json.loads(line) for line in path.read_text().splitlines()]
    path.unlink()
    return found


def test_releases_come_by_key_and_time_whatever_came_first(tmp_path: Path) -> None:
    found = as_they_come(ROWS, tmp_path / "out")
    assert found == sorted(found)
    for rows in (ROWS[::-1], [("zzz", 1, 1), *ROWS], [("aaa", 1, 80 * SECOND), *ROWS]):
        other = as_they_come(rows, tmp_path / "out")
        assert [row for row in other if row[0] not in ("aaa", "zzz")] == found


# The DoFn and its state


def plan(**options: Any) -> ShardPlan:
    made = count(**options)
    assert made.selection is not None
    clock = clock_of(TICK, 0, None, TICKS)
    return ShardPlan(made.selection, clock, 5, True, ScriptedEntropy(6), 3)


def test_one_timer_a_shard_and_one_cell() -> None:
    dofn: Any = CountShards(plan())
    dofn.setup()
    bag, cell, timer, later = Bag(), Cell(), Timer(), Bag()
    dofn.process((0, SEED), bag, cell, timer)
    assert timer.at == TICK * 1_000_000
    before = cell.data
    for key in ("a", "b"):
        dofn.process((0, pack_batch({(key, 2): 3})), bag, cell, timer)
    dofn.process((0, SEED), bag, cell, timer)  # a second one changes nothing
    assert cell.data == before
    assert len(bag.entries) == 2
    for step in range(1, TICKS + 1):
        list(dofn.release(0, GlobalWindow(), bag, cell, timer, later))
        assert bag.entries == []
        columns, pending = dofn._of(0).codec.decode(cell.data)
        assert (columns.step, list(pending)) == (step, [2] if step == 1 else [])
        assert list(columns.names) == (["a", "b"] if step > 1 else [])
    assert timer.at == TICK * TICKS * 1_000_000
    assert list(dofn.release(0, GlobalWindow(), bag, cell, timer, later)) == []


@pytest.mark.parametrize("name", ["each", "restart"])
def test_a_clock_without_an_end_shows_keys_of_each_window_anew(name: str) -> None:
    """One cell goes from window to window; it holds those of one, and what waits for the next."""

    def view(clock: dp.Clock) -> Any:
        return clock.each() if name == "each" else clock.restart(3)

    steps = 1 if name == "each" else 3
    keys, entropy = dp.SelectKeys(shards=1), ScriptedEntropy(6)
    counting = dp.TickCount(
        *(BUDGET, view(dp.Clock(TICK, start=0))), keys=keys, entropy=entropy, path="streaming"
    )
    said = f"clock: ticks of {TICK} s from 1970-01-01T00:00:00Z, without an end\n"
    assert said in str(counting)
    dofn: Any = dofns_of(counting.engine)[CountShards]
    dofn.setup()
    bag, cell, timer, later = Bag(), Cell(), Timer(), Bag()
    dofn.process((0, SEED), bag, cell, timer)
    empty = cell.data
    sums = {("a", 1): 60, ("b", 2): 60, ("a", 4): 40, ("c", 5): 90, ("late", 1): 70}
    for (key, tick), x in list(sums.items())[:4]:  # some come long before their tick
        dofn.process((0, pack_batch({(key, tick): x})), bag, cell, timer)
    found = list[tuple[str, int, int | None]]()
    for tick in range(1, 13):
        last = SECOND // 1000 if tick % steps == 0 else 0  # of a window: its last millisecond
        assert timer.at == tick * TICK * SECOND - last
        if tick == 4:  # of a window that is over
            dofn.process((0, pack_batch({("late", 1): 70})), bag, cell, timer)
        for windowed in dofn.release(0, GlobalWindow(), bag, cell, timer, later):
            release = windowed.value
            found.append((release.key, release.step, release.restart))
    shown = {(key, tick) for key, tick, _ in found}
    expected = {
        (key, tick)
        for key, first in (("a", 1), ("b", 2), ("a", 4), ("c", 5))
        for tick in range(first, (first - 1) // steps * steps + steps + 1)
    }
    assert shown == expected
    assert len(cell.data or b"") == len(empty or b"")
    starts = {(tick, restart) for _, tick, restart in found}
    assert starts == {(t, None if name == "each" else (t - 1) // steps + 1) for t, _ in starts}


@pytest.mark.parametrize("name", ["each", "restart"])
def test_files_of_a_clock_without_an_end_are_those_of_one_that_ends(name: str) -> None:
    def releases(clock: dp.Clock) -> Any:
        view = clock.each() if name == "each" else clock.restart(3)
        counting = dp.TickCount(
            *(dp.ApproxDP(1e6, 1e-2), view), keys=dp.SelectKeys(shards=3), until=TICK * TICKS
        )
        found = run(lambda p: p | feed(ROWS) | counting).releases
        return sorted((r.key, r.step, r.restart, round(r.value)) for r in found)

    found = releases(dp.Clock(TICK, start=0))
    assert found == releases(dp.Clock(TICK, start=0, ticks=TICKS))
    assert len(found) > TICKS


def test_a_backlog_waits_beside_the_cell() -> None:
    """All of 600 ticks come at once: releases are those of events in time, from a small cell."""
    ticks = 600
    clock = dp.Clock(TICK, start=0, ticks=ticks)
    counting = dp.TickCount(
        *(BUDGET, clock.each()),
        keys=dp.SelectKeys(shards=1),
        entropy=ScriptedEntropy(6),
        path="streaming",
    )
    sums = {(f"key {tick % 7}", tick): 60 + tick for tick in range(1, ticks + 1)}
    found = []
    for early in (False, True):
        dofn: Any = dofns_of(counting.engine)[CountShards]
        dofn.setup()
        bag, cell, timer, later = Bag(), Cell(), Timer(), Bag()
        dofn.process((0, SEED), bag, cell, timer)
        places, rows, most = [*sums], list[Any](), 0
        if early:
            for place in places[::-1]:
                dofn.process((0, pack_batch({place: sums[place]})), bag, cell, timer)
        for tick in range(1, ticks + 1):
            if not early:
                place = places[tick - 1]
                dofn.process((0, pack_batch({place: sums[place]})), bag, cell, timer)
            made = dofn.release(0, GlobalWindow(), bag, cell, timer, later)
            rows += [windowed.value for windowed in made]
            most = max(most, len(cell.data or b""))
        assert later.entries == []
        assert most < 5000
        found.append([(r.key, r.step, r.value) for r in rows])
    assert found[0] == found[1]
    assert len(found[0]) > ticks // 2


@pytest.mark.parametrize("name", ["each", "restart"])
def test_data_frames_of_a_clock_without_an_end(name: str) -> None:
    clock = dp.Clock(TICK, start=0)
    view = clock.each() if name == "each" else clock.restart(3)
    counting = dp.TickCount(
        dp.ApproxDP(1e6, 1e-2), view, keys=dp.SelectKeys(shards=3), until=TICK * TICKS
    )
    table = pa.table({"k": [k for k, _, _ in ROWS], "t": [at // SECOND for _, _, at in ROWS]})
    rows = counting.over(table, key="k", time="t").to_pylist()
    bounded = run(lambda p: p | feed(ROWS) | counting).releases
    assert sorted((r["key"], r["step"]) for r in rows) == sorted((r.key, r.step) for r in bounded)


# Ledgers


def test_a_share_takes_its_delta_when_it_is_applied() -> None:
    ledger = dp.Ledger(dp.ApproxDP(1.0, 1e-6), keys_delta=4e-7)
    with pytest.raises(ValueError, match="keys_delta"):
        TickNumbers(ledger.share(0.5, "none"), **CLOCK, keys=dp.SelectKeys())
    made = TickNumbers(
        ledger.rest("people"),
        **CLOCK,
        keys=dp.SelectKeys(delta=4e-7),
        value=lambda event: 1,
        users=dp.Users(who, 5, per_key=1),
    )
    assert ledger.delta_for_keys() == 0
    _ = beam.Pipeline("FnApiRunner") | feed(PEOPLE, Any) | made
    assert ledger.delta_for_keys() == pytest.approx(4e-7)
    assert "for one person" in str(ledger)
    assert ledger.delta_for_keys(unit="event") == pytest.approx(8e-7)


# Wrong inputs


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"budget": dp.PureDP(1.0)}, "has no delta"),
        ({"budget": dp.ZCDP(0.1)}, "SelectKeys\\(delta=1e-7\\)"),
        ({"keys": dp.SelectKeys(delta=0.5)}, "takes all of"),
        ({"on_unknown": "raise"}, "on_unknown is for keys that are listed"),
        ({"other": "rest"}, "other is for keys that are listed"),
        ({"bounds": (-1, 1), "keys": dp.SelectKeys(at_least=2)}, "not negative"),
        ({"keys": dp.SelectKeys(every=10)}, "no key is seen"),
        (
            {"bounds": (0, 100), "unit": 10, "keys": dp.SelectKeys(at_least=5)},
            "leaves nothing out of sums in multiples of 10",
        ),
        ({"mechanism": dp.mechanisms.SquareRoot(TICKS, momentum=0.9)}, "leave out momentum"),
        ({"mechanism": dp.mechanisms.Binned(TICKS, decay=0.9)}, "leave out momentum and decay"),
        (
            {
                "keys": dp.SelectKeys(at_least=2),
                "value": int,
                "users": dp.Users(str, 2, gap=TICK, per_key=2),
            },
            "gap",
        ),
    ],
)
def test_what_does_not_go_together(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        count(**options)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"shards": 1 << 20}, "shards must be at most"),
    ],
)
def test_arguments_out_of_range(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        dp.SelectKeys(**given)


def test_the_budget_is_shown_whole() -> None:
    said = count(budget=dp.ApproxDP(1.0, 1e-6)).display_data()
    assert said["budget"] == "epsilon = 1, delta = 1e-06"
    assert said["keys"] == "selected"
    assert "also_satisfies" not in said
    pure = count(budget=dp.PureDP(1.0), keys=dp.SelectKeys(delta=1e-7)).display_data()
    assert pure["budget"] == "epsilon = 1 (pure), but for keys_delta"
    assert pure["keys_delta"] == "1e-07"


def test_keys_that_no_coder_takes_leave_no_trace() -> None:
    """A runner would stop at one, with a message that shows it."""
    intake = count()._intake(clock_of(TICK, 0, None, TICKS))
    where = (5 * SECOND, (GlobalWindow(),))
    assert intake.read(("n\u00e4", 1), *where) == ("n\u00e4", 1, 1)
    for key in ("\ud800", "a\udfff", None, 7):
        assert intake.read((key, 1), *where) is None

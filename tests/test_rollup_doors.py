"""Rollups as they are released: both lanes, both paths, and what noise hides of one event."""

from __future__ import annotations

import csv
import itertools
import math
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.pvalue import Row
from apache_beam.transforms.window import TimestampedValue

import beam_dpcount as dp
from beam_dpcount.budget.account_file import create
from beam_dpcount.checks import ParameterError
from beam_dpcount.commands import sentence, ticks
from beam_dpcount.counters.nodes import NodesCounter
from beam_dpcount.lanes.parts import PartsLane
from beam_dpcount.noise.laws import DiscreteLaplace
from beam_dpcount.plans.sentence import TickCountPlan
from beam_dpcount.rows import TickCountRows
from beam_dpcount.states.count_state import CountState
from beam_dpcount.states.tree_shards import TreeShard
from beam_dpcount.states.windows import window_from
from tests.audit.exact import keeps_budget
from tests.command_lines import command, fail, succeed
from tests.person_audit import SECOND, TICK, Sums, audit, universe
from tests.scripted import ScriptedEntropy

TREE = dp.Hierarchy(
    ["region", "city"],
    [("north", "oslo"), ("north", "bergen"), ("south", "rome"), ("south", 'a", "b'), ("east", "x")],
)
HOURS = dp.Clock("1h", start=0, ticks=4)
BUDGET = dp.ApproxDP(1.0, 1e-6)
PLACES: list[tuple[Any, Any]] = [
    *TREE.leaves,
    ("north", "rome"),  # no leaf
    ("north", None),
    (None, "oslo"),
    ("", ""),
    ("north", ""),
]
ROWS: list[dict[str, Any]] = [
    {"region": PLACES[row % 10][0], "city": PLACES[row % 10][1], "ts": 300 * (row % 47) + row}
    | {"who": f"u{row % 9}" if row % 11 else None, "ms": row % 5 - 1.5}
    for row in range(300)
]
COUNTS: dict[str, dict[str, Any]] = {
    "count": {},
    "sum": {"what": dp.Sum("ms", -1, 2, unit=0.5)},
    "shares": {"keys": dp.Hierarchy(TREE.levels, TREE.leaves, shares=[1, 1, 2])},
    "rho": {"budget": dp.ZCDP(0.1), "mechanism": "SmoothBinary"},
    "people": {"users": dp.Users("who", events=5, per_key=2)},
    "periods": {"users": dp.Users("who", events=3, per="2h")},
    "each": {"clock": HOURS.each()},
    "last": {"clock": HOURS.last(2), "users": dp.Users("who", events=3)},
    "restart": {"clock": HOURS.restart(2), "users": dp.Users("who", 4, per_key=1)},
    "other one": {"relation": "replace_one"},
}
RELEASED: list[Any] = []


@pytest.fixture(autouse=True)
def _secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROLLUPS", "0123456789abcdef" * 4)


def count(name: str = "count", **more: Any) -> dp.TickCount:
    given = {"budget": BUDGET, "clock": HOURS, "keys": TREE, **COUNTS[name], **more}
    return dp.TickCount(**given)


def replayable() -> dp.ReplayableEntropy:
    return dp.ReplayableEntropy("ROLLUPS", run_id="r")


def table(rows: Sequence[dict[str, Any]] = ROWS) -> pa.Table:
    return pa.Table.from_pylist([*rows])


def released(transform: Any, rows: Sequence[Any], timed: bool = False) -> list[Any]:
    RELEASED.clear()
    with beam.Pipeline("FnApiRunner") as pipeline:
        events = pipeline | beam.Create(rows, reshuffle=False)
        if timed:
            events = events | beam.Map(lambda e: TimestampedValue(e, e["ts"]))
        _ = events | transform | "Keep" >> beam.Map(_keep)
    return [*RELEASED]


def _keep(release: Any) -> None:
    RELEASED.append(release)  # of this module: what is pickled is its name


def by_place(found: Sequence[Any]) -> dict[tuple[Any, int], Any]:
    made = {(tuple(one.key), one.step): one for one in found}
    assert len(made) == len(found) == len(TREE.paths) * 4
    return made


# Both lanes and both paths


@pytest.mark.parametrize("name", COUNTS)
def test_a_frame_has_the_releases_of_a_pipeline_to_the_bit(name: str) -> None:
    for entropy in (replayable(), ScriptedEntropy(500)):
        named = count(name, entropy=entropy, key=TREE.levels, time="ts")
        found = released(named, ROWS)
        column = named.columns[0]
        mine = named.over(table()).to_pylist()
        names = ("region", "city", "level", "step", column, "restart")
        assert [tuple(row.get(name) for name in names) for row in mine] == [
            (*one.key, one.level, one.step, one.value, one.restart) for one in found
        ]
        assert [row[f"{column}_stddev"] for row in mine] == [one.stddev for one in found]
        assert [tuple(one.key) for one in found] == [p for p in TREE.paths for _ in range(4)]


@pytest.mark.parametrize("name", COUNTS)
def test_a_stream_has_the_releases_of_bounded_input_under_the_same_noise(name: str) -> None:
    how: dict[str, Any] = {"entropy": ScriptedEntropy(500), "key": TREE.levels}
    stream, whole = count(name, **how, path="streaming"), count(name, **how, path="bounded")
    rows = sorted(ROWS, key=lambda row: row["ts"])  # whose events count as they come
    ahead, behind = (by_place(released(one, rows, timed=True)) for one in (stream, whole))
    assert stream.columns == whole.columns
    for place, one in behind.items():
        assert ahead[place]._replace(stddev=one.stddev) == one
        assert math.isclose(ahead[place].stddev, one.stddev, rel_tol=1e-12)
    # A stream at a tick knows all nodes: they come out together.
    assert {one.timestamp for one in ahead.values()} == {3_600_000_000 * t for t in (1, 2, 3, 4)}


@pytest.mark.parametrize("path", ["bounded", "streaming"])
@pytest.mark.parametrize("name", ["count", "sum", "restart"])
def test_parents_are_the_sums_of_their_children_at_every_tick(name: str, path: str) -> None:
    named = count(name, key=TREE.levels, path=path)
    found, digits = by_place(released(named, ROWS, timed=True)), named.engine.nodes.digits
    for step in range(1, 5):
        whole = {node: round(found[node, step].value * 10**digits) for node in TREE.paths}
        assert all(found[node, step].value == x / 10**digits for node, x in whole.items())
        for node in TREE.paths[: TREE.starts[-2]]:
            assert whole[node] == sum(whole[child] for child in TREE.paths if _over(child) == node)


def _over(path: Sequence[str]) -> tuple[str, ...] | None:
    """The parent of a node; None of the root."""
    depth = sum(map(bool, path))
    return (*path[: depth - 1], *[""] * (len(path) - depth + 1)) if depth else None


@pytest.mark.parametrize("path", ["bounded", "streaming"])
def test_without_noise_every_node_has_its_events(path: str) -> None:
    named = count(key=TREE.levels, path=path, entropy=ScriptedEntropy(0))
    found = by_place(released(named, ROWS, timed=True))
    for node, step in found:
        mine = [
            row
            for row in ROWS
            if (row["region"], row["city"]) in TREE.leaves
            and row["ts"] < 3600 * step
            and all(text in ("", row[level]) for text, level in zip(node, TREE.levels, strict=True))
        ]
        assert found[node, step].value == len(mine)
        assert found[node, step].level == ("all", "region", "city")[sum(map(bool, node))]


def test_pairs_have_the_path_for_a_key() -> None:
    def pairs(row: dict[str, Any]) -> Any:
        key: Any = (row["region"], row["city"])
        return key if row["ms"] < 0 else [*key], row

    rows = [pairs(row) for row in ROWS]
    rows += [("north", {}), (7, {}), (("north",), {}), (("north", "oslo", "x"), {}), "ab"]
    function = count(key=lambda event: event[0], entropy=ScriptedEntropy(9), time=_time)
    plain = count(entropy=ScriptedEntropy(9), time=_time)
    assert plain.takes_pairs is False
    found = [released(one, rows) for one in (function, plain)]
    assert found[0] == found[1]
    assert found[0][3].value > 100


def _time(event: Any) -> Any:
    return event[1].get("ts")


def test_a_frame_names_the_columns_of_the_path() -> None:
    plain = count(entropy=ScriptedEntropy()).over(table(), time="ts")
    renamed = table().rename_columns(["r", "c", "ts", "who", "ms"])
    assert plain.equals(count(entropy=ScriptedEntropy()).over(renamed, key=["r", "c"], time="ts"))
    for wrong in ("r", ["r"], [1, 2], 7):
        with pytest.raises(ParameterError, match=r"^key "):
            count().over(renamed, key=wrong, time="ts")  # type: ignore[arg-type]


def test_intervals_hold_for_each_node() -> None:
    """At 95 %, of 400 releases a node: the share within is 5 standard errors from it at most."""
    clock = dp.Clock("1h", start=0, ticks=400).each()
    found = dp.TickCount(dp.ZCDP(0.02), clock, keys=TREE).over(table().slice(0, 0), time="ts")
    data = {name: np.array(found[name].to_pylist()) for name in found.column_names}
    inside = (data["count_each_low"] <= 0) & (data["count_each_high"] >= 0)
    for node in range(len(TREE.paths)):
        mine = slice(400 * node, 400 * node + 400)
        assert abs(inside[mine].mean() - 0.95) < 5 * math.sqrt(0.95 * 0.05 / 400)
        ratio = data["count_each"][mine].std() / data["count_each_stddev"][mine][0]
        assert abs(ratio - 1) < 5 / math.sqrt(2 * 400)


def test_a_stream_goes_on_from_its_bytes() -> None:
    """A cell that is packed and read at every tick is that of a run without stops."""
    plan = count(entropy=replayable())._parts[0].engine.on_bounded_input("x")
    whole, draws = [], plan.draws("streaming")
    shard, cell = TreeShard(plan, 0, draws), TreeShard(plan, 0, draws).begin()
    leaves = np.arange(20).reshape(4, 5)
    for tick in range(4):
        shard = TreeShard(plan, 0, plan.draws("streaming"))  # on another worker
        due = np.stack((tick * 5 + 1 + np.arange(5), leaves[tick]), axis=1).astype("<i8")
        of_tick = shard.next(cell, [due.tobytes()], None)
        assert of_tick is not None
        cell = of_tick.data
        whole.append([value for _, (value, _) in of_tick.values])
    assert np.array_equal(plan.releases(draws, _window(plan), leaves), np.array(whole))


def _window(plan: Any) -> Any:
    return window_from(plan.clock, plan.clock.origins()[0])


def test_other_trees_have_other_noise() -> None:
    """Under one secret: else equal releases would show that two trees have equal counts."""
    renamed = dp.Hierarchy(TREE.levels, [(region, f"{city}!") for region, city in TREE.leaves])
    moved = dp.Hierarchy(TREE.levels, [*TREE.leaves][::-1])
    counts = [count(keys=tree, entropy=replayable()) for tree in (TREE, renamed, moved)]
    values = [one.over(table().slice(0, 0), time="ts")["count"].to_pylist() for one in counts]
    assert values[0] != values[1] != values[2] != values[0]


# How well it is known


def test_leaves_pay_a_quarter_at_most() -> None:
    paths = [(f"r{i}", f"c{j}") for i in range(30) for j in range(30)]
    tree, flat = dp.Hierarchy(["region", "city"], paths), [f"{r}/{c}" for r, c in paths]
    alone = TickCountPlan(dp.ZCDP(0.1), HOURS, keys=flat, mechanism="SmoothBinary")
    whole = TickCountPlan(dp.ZCDP(0.1), HOURS, keys=tree, mechanism="SmoothBinary")
    one = alone.engine.counter.max_variance()
    found = [x**2 / one for x in whole.engine.level_stddevs.values()]
    assert all(x <= bar for x, bar in zip(found, (9.6, 7.6, 1.25), strict=True)), found
    said = ", ".join(f"{name} {x:.3g}" for name, x in whole.engine.level_stddevs.items())
    assert f"error: the largest standard deviation: {said}" in str(whole)
    assert "931 nodes of a tree: 1 all, 30 region, 900 city" in str(whole)


@pytest.mark.parametrize("bound", [{"events": 5}, {"events": 5, "per_key": 1}])
def test_leaves_pay_a_quarter_for_people_too(bound: dict[str, int]) -> None:
    paths = [(f"r{i}", f"c{j}") for i in range(6) for j in range(6)]
    tree, flat = dp.Hierarchy(["region", "city"], paths), [f"{r}/{c}" for r, c in paths]
    how: dict[str, Any] = {"mechanism": "SmoothBinary", "users": dp.Users("who", **bound)}
    alone = TickCountPlan(dp.ZCDP(0.1), HOURS, keys=flat, **how)
    whole = TickCountPlan(dp.ZCDP(0.1), HOURS, keys=tree, **how)
    *_, leaf = whole.engine.level_stddevs.values()
    assert 1.24 < leaf**2 / alone.engine.counter.max_variance() < 1.255


def test_noise_is_gaussian_where_laplace_noise_would_be_less_for_leaves() -> None:
    """Levels share Gaussian noise: under Laplace noise leaves would pay for parents twice."""
    leaf = TickCountPlan(BUDGET, HOURS.each(), keys=["a"])
    assert isinstance(leaf.engine.counter.law, DiscreteLaplace)
    assert not isinstance(count(clock=HOURS.each()).counter.law, DiscreteLaplace)
    with pytest.raises(ValueError, match="all levels of a tree take Gaussian noise"):
        count(mechanism="SmoothLaplace")


# What noise hides

SMALL = dp.Hierarchy(["region", "city"], [("n", "a"), ("n", "b"), ("s", "c")])
THREE = dp.Clock(TICK, start=0, ticks=3)
LAWS: dict[str, tuple[Any, Any]] = {
    "rho": (dp.ZCDP(0.1), "SmoothBinary"),
    "epsilon, delta": (dp.ApproxDP(1.0, 1e-4), "BinaryTree"),
    "rounded": (dp.ZCDP(0.1), "NormalizedBLT"),
}


def audited(law: str, **given: Any) -> Any:
    budget, mechanism = LAWS[law]
    given.setdefault("clock", THREE)
    clock = given.pop("clock")
    return dp.TickCount(
        budget, clock, keys=SMALL, mechanism=mechanism, max_per_tick=8, value=_payload, **given
    )


def _payload(payload: Any) -> Any:
    return {"x": payload[1]}


def _person(payload: Any) -> str:
    return payload[0]


class TreeSums(Sums):
    """What is counted of all nodes, of events that are read and bounded as the door does."""

    def __init__(self, count: Any, path: str) -> None:
        super().__init__(count, path)
        self.nodes = NodesCounter(SMALL, self.counter, 8)
        self.counter = replace(self.counter, dimension=None)  # each node has one like it

    def rows(self, events: Any) -> list[tuple[Any, int]]:
        return [
            (pair, tick * TICK * SECOND)
            for key, payload, tick in events
            for pair in self.count.each_key((key, payload))
        ]

    def __call__(self, events: Any) -> tuple[tuple[int, ...], ...]:
        leaves = np.array(super().__call__(events)).reshape(len(SMALL.leaves), -1)
        whole = self.nodes.vectors(leaves.T).T.reshape(-1, self.ticks)
        return tuple(map(tuple, whole.tolist()))


BOUNDS: dict[str, dict[str, Any]] = {
    "two events": {"events": 2},
    "one a city": {"events": 2, "per_key": 1},
    "one city": {"events": 2, "keys": 1},
    "three in two cities": {"events": 3, "keys": 2, "per_key": 2},
}
LEAVES = [*SMALL.leaves, ("n", "z")]


@pytest.mark.parametrize("path", ["bounded", "streaming"])
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
@pytest.mark.exhaustive("law", "bound", "relation", "path")
def test_a_person_is_hidden_at_all_levels(bound: str, relation: str, law: str, path: str) -> None:
    """Of all events that a person may have, and those that count as the DoFns say, exactly."""
    given = audited(law, relation=relation, users=dp.Users(_person, **BOUNDS[bound]))
    assert audit(TreeSums(given, path), universe(LEAVES, [0, 1], [1]), 3)


@pytest.mark.parametrize("path", ["bounded", "streaming"])
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.exhaustive("law", "bound", "path")
def test_a_person_is_hidden_where_counts_start_anew(bound: str, law: str, path: str) -> None:
    """A node is another one in each window, at every level."""
    clock = dp.Clock(TICK, start=0, ticks=4).restart(2)
    given = audited(law, clock=clock, users=dp.Users(_person, **BOUNDS[bound]))
    assert audit(TreeSums(given, path), universe([*SMALL.leaves], [0, 1, 2], [1]), 3)


@pytest.mark.parametrize("per_key", [1, 2])
@pytest.mark.parametrize("events", [1, 2])
def test_several_periods_of_a_person_are_charged_at_all_levels(events: int, per_key: int) -> None:
    """Two periods of two ticks each, in each of which the bound holds by itself."""
    clock, per_key = dp.Clock(TICK, start=0, ticks=4), min(events, per_key)
    users = dp.Users(_person, events=events, per_key=per_key, per="20s")
    given = audited("rho", clock=clock, users=users)
    counter, change = given.counter, given.counter.change
    R = np.asarray(counter.mechanism.encoder(4), dtype=float)
    nodes = NodesCounter(SMALL, counter, 8)
    worst = 0.0
    places = [(tick, leaf) for tick in range(2) for leaf in range(3)]
    of_period = [
        some
        for n in range(events + 1)
        for some in itertools.combinations_with_replacement(places, n)
        if np.bincount([leaf for _, leaf in some] or [0]).max() <= per_key
    ]
    for first, second in itertools.product(of_period, of_period):
        leaves = np.zeros((4, 3), dtype=np.int64)
        for tick, leaf in (*first, *((2 + tick, leaf) for tick, leaf in second)):
            leaves[tick, leaf] += 1
        worst = max(worst, float(np.square(R @ nodes.vectors(leaves)).sum()))
    reach = change.reach_of_periods(counter.mechanism, counter.unit, 2, 2)
    assert worst <= float(reach.l2_squared) * (1 + 1e-9)
    one = change.reach(counter.mechanism, counter.unit)
    assert worst > float(one.l2_squared)  # more than one period costs
    assert given.epsilon_at(1e-6, periods=2) > given.epsilon_at(1e-6, periods=1)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
@pytest.mark.parametrize("what", [dp.Count(), dp.Sum("x", -1, 2), dp.Sum("x", 0, 3)])
def test_an_event_is_hidden_at_all_levels(what: Any, relation: str, law: str) -> None:
    given = audited(law, what=what, relation=relation)
    counter = given.counter
    assert keeps_budget(counter, [*_differences(given)])
    spent = max(float(np.square(x.astype(float)).sum()) for x in _differences(given))
    _, squared = counter.change.norms(counter.mechanism, counter.unit, counter.dimension)
    assert spent <= float(squared) * (1 + 1e-9)
    if law != "rounded" and relation == "add_remove":
        assert spent == pytest.approx(float(squared))


def _differences(count: Any) -> Iterator[Any]:
    """R x of all nodes with an event less R x without it, or with another one in its place."""
    engine, counter = count.engine, count.counter
    nodes = NodesCounter(SMALL, counter, engine.nodes.cap)
    R = np.asarray(counter.mechanism.encoder(3), dtype=float) * counter.resolution
    singles = [np.zeros((3, 3), dtype=np.int64)]
    for leaf, tick, x in itertools.product(LEAVES, range(3), (-1, 1, 2, 3)):
        for text, _ in count.each_key((leaf, ("p", x))):
            if text in engine.keys:
                one = np.zeros((3, 3), dtype=np.int64)
                content = x if isinstance(count._metrics[0], dp.Sum) else 1
                one[tick, engine.keys.index(text)] = engine.number(content)
                singles.append(one)
    singles = [*{one.tobytes(): one for one in singles}.values()]
    others = singles[:1] if counter.change.relation == "add_remove" else singles
    for one, other in itertools.product(singles, others):
        moved = nodes.vectors(one) - nodes.vectors(other)
        yield np.rint(R @ moved).astype(np.int64).ravel() if _is_whole(R) else _rounded(R, moved)


def _is_whole(R: np.ndarray) -> bool:
    return bool(np.array_equal(R, np.rint(R)))


def _rounded(R: np.ndarray, moved: np.ndarray) -> np.ndarray:
    """Each entry rounded as far up as its slack allows: what noise has to hide at worst."""
    exact = R @ moved
    return np.sign(exact).astype(np.int64) * np.ceil(np.abs(exact)).astype(np.int64)


# What is refused

WIDE = dp.Hierarchy(["leaf"], [(str(leaf),) for leaf in range(2000)])
REFUSED: dict[str, tuple[str, dict[str, Any]]] = {
    "a pure budget": ("budget", {"budget": dp.PureDP(1.0)}),
    "several metrics": ("what", {"what": [dp.Count(), dp.Sum("ms", 0, 1)]}),
    "means": ("what", {"what": dp.Mean("ms", 0, 1)}),
    "people": ("what", {"what": dp.People(), "users": dp.Users("who", events=2)}),
    "several views": ("clock", {"clock": [HOURS, HOURS.each()]}),
    "a gap": ("gap", {"users": dp.Users("who", events=2, gap=60)}),
    "another key": ("other", {"other": "x"}),
    "several keys": ("max_items", {"key": TREE.levels, "max_items": 2}),
    "unknown keys": ("on_unknown", {"on_unknown": "raise"}),
    "one field": ("key", {"key": "region"}),
    "three fields": ("key", {"key": ["a", "b", "c"]}),
    "a column twice": ("levels", {"keys": dp.Hierarchy(["count"], [("a",)])}),
    "a column of an interval": ("levels", {"keys": dp.Hierarchy(["count_low"], [("a",)])}),
    "too many to sum": (
        "max_per_tick",
        {"max_per_tick": 2**52, "clock": dp.Clock(1, 0, 1), "keys": WIDE},
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_known_of_a_tree_is_refused_by_name(name: str) -> None:
    parameter, given = REFUSED[name]
    with pytest.raises(ValueError, match=rf"\b{parameter}\b") as raised:
        count(**given)
    assert ":" in str(raised.value)  # and what to do


def test_other_doors_refuse_a_tree() -> None:
    tree = count()
    with pytest.raises(ValueError, match="a Hierarchy has many"):
        tree.expected([])
    with pytest.raises(ParameterError, match=r"^keys are a tree"):
        dp.Alarm(tree, 10)
    with pytest.raises(TypeError, match="tree"):
        dp.BoundUsers(dp.Users("who", events=2), {"tree": tree})
    with pytest.raises(TypeError, match="one number"):
        dp.post.ShrinkAcrossKeys(tree)
    with pytest.raises(TypeError, match="sequence of str"):
        dp.post.TopKPerTick(1, tree)
    with pytest.raises(TypeError, match="TickCount"):
        dp.suggest_bounds(tree, [], sample=1)  # type: ignore[call-arg]
    with pytest.raises(ParameterError, match=r"^keys are a tree"):
        PartsLane(count(entropy=replayable(), late="drop"), "x", state=CountState())


@pytest.mark.parametrize("users", [None, dp.Users("who", events=2)])
def test_age_is_refused_as_no_step_alone_changes(users: Any) -> None:
    """What an age leaves out is known of one counter, and an event changes several."""
    given = count(users=users, budget=dp.ZCDP(0.1))
    assert given.epsilon_at(1e-6) > 0
    with pytest.raises(ParameterError, match=r"^age is for one event"):
        given.epsilon_at(1e-6, age=1)
    with pytest.raises(ParameterError, match=r"^age is for one event"):
        given.counter.epsilon_at(1e-6, age=1)


# Rows with a schema


def rows_of(**more: Any) -> Any:
    given = {"tick": "1h", "start": 0, "horizon": 4, "timestamp": "ts", "epsilon": 1, "delta": 1e-6}
    given |= {"hierarchy": [[*leaf] for leaf in TREE.leaves], "key": ["region", "city"], **more}
    return TickCountRows(**given)


def as_rows() -> list[Any]:
    return [Row(**row) for row in ROWS]


def test_rows_of_a_schema_have_a_field_a_level() -> None:
    rows, whole = rows_of(rho=1e12, epsilon=None, delta=None), count(budget=dp.ZCDP(1e12))
    found = released(rows, as_rows())
    exact = whole.over(table(), time="ts").to_pylist()
    names = ["region", "city", "level", "step", "count"]
    assert [tuple(getattr(row, name) for name in names) for row in found] == [
        tuple(row[name] for name in names) for row in exact
    ]
    assert [*found[0]._asdict()][:6] == [*names[:4], "start", "timestamp"]
    assert rows.check_row(as_rows()[0]).problem is None
    assert rows.check_row(as_rows()[6]).problem is not None  # a null city


def test_rows_take_shares_and_trees_of_one_level() -> None:
    shared = rows_of(level_shares=["1", "1", 2]).count.keys
    assert shared == dp.Hierarchy(TREE.levels, TREE.leaves, [1, 1, 2])
    flat = rows_of(
        key="region", hierarchy=[["north"], ["south"]], rho=1e12, epsilon=None, delta=None
    )
    found = released(flat, as_rows())
    assert {(row.region, row.level) for row in found} == {
        *(("", "all"), ("north", "region"), ("south", "region"))
    }
    last = {row.region: row.count for row in found if row.step == 4}
    assert last[""] == last["north"] + last["south"] > 150


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"hierarchy": None}, "key names region and city, the levels of a tree"),
        ({"key": None}, "hierarchy needs key"),
        ({"keys": ["a"]}, "give either keys or hierarchy"),
        ({"hierarchy": [["north"]]}, "hierarchy has .* 2 texts"),
        ({"hierarchy": "north"}, "hierarchy must be a list of lists"),
        ({"level_shares": [1, 2]}, "level_shares must be 3 numbers"),
        (
            {"key": "region", "hierarchy": None, "keys": ["a"], "level_shares": [1]},
            "needs hierarch",
        ),
        ({"key": ["region", "level"]}, "key has 'level'"),
        ({"key": []}, "key must be one column"),
        ({"other": "x"}, "other is for listed keys"),
        ({"alarm": 5}, "alarm cannot be: keys are a tree"),
    ],
)
def test_rows_refuse_what_does_not_go_with_a_tree(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        rows_of(**given)


# The command line


def words_of(log: Path) -> tuple[object, ...]:
    return (
        *("--input", log / "in.csv", "--output", log / "out.csv", "--timestamp", "ts"),
        *("--key", "region", "city", "--hierarchy-file", log / "leaves.csv"),
        *("--tick", "1h", "--start", 0, "--horizon", 4),
    )


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log, and a table of all leaves, as a program would write them."""
    with (tmp_path / "in.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ["region", "city", "ts", "who", "ms"])
        writer.writeheader()
        writer.writerows(ROWS)
    with (tmp_path / "leaves.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("id", "city", "region")])
        csv.writer(file).writerows((f"{n}", b, a) for n, (a, b) in enumerate(TREE.leaves))
    return tmp_path


def written(log: Path, *words: object) -> list[dict[str, str]]:
    succeed(*words_of(log), *words, main=ticks.main)
    with (log / "out.csv").open(newline="") as file:
        return [*csv.DictReader(file)]


def test_a_file_has_a_column_a_level_and_decimals_that_add_up(log: Path) -> None:
    rows = written(log, "--epsilon", 1, "--delta", "1e-6")
    names = ["region", "city", "level", "step", "start", "timestamp", "count", "count_stddev"]
    assert [*rows[0]] == [*names, "count_low", "count_high"]
    nodes = {(row["region"], row["city"]): row["level"] for row in rows}
    assert nodes == {path: TREE.level_of(path) for path in TREE.paths}
    assert [*nodes][:3] == [("", ""), ("north", ""), ("north", "oslo")]  # each above its own
    for step in "1234":
        mine = [row for row in rows if row["step"] == step]
        values: dict[tuple[str, ...], Decimal] = {
            (row["region"], row["city"]): Decimal(row["count"]) for row in mine
        }
        for node in TREE.paths[: TREE.starts[-2]]:
            below = [x for path, x in values.items() if _over(path) == node]
            assert values[node] == sum(below)  # to the last digit


def test_a_total_has_as_many_digits_as_its_leaves(log: Path) -> None:
    """Though its noise is larger, so that alone it would have fewer."""
    (log / "leaves.csv").write_text("\n".join(["region", "north", "south", *map(str, range(600))]))
    rows = written(log, "--key", "region", "--epsilon", 0.8, "--delta", "1e-6", "--view", "each")
    first = [row for row in rows if row["step"] == "1"]
    total, *leaves = (Decimal(row["count_each"]) for row in first)
    assert first[0]["level"] == "all"
    assert float(first[0]["count_each_stddev"]) > 10
    assert any(x % 1 * 100 % 10 for x in leaves)
    assert total == sum(leaves)


@pytest.mark.parametrize("view", ["so-far", "each", "last 2", "restart 3"])
def test_what_is_drawn_beside_it_is_exact(
    view: str, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """--show-truth counts a row in all nodes over it; without noise that is what is written."""
    found: list[Any] = []
    exact = sentence.Sentence.exact

    def kept(self: Any, *args: Any) -> Any:
        found.append((exact(self, *args), self._rows_drawn()))
        return found[-1][0]

    monkeypatch.setattr(sentence.Sentence, "exact", kept)
    written(log, "--rho", "1e12", "--view", view, "--show-truth", "--plot", log / "out.png")
    ((truth, drawn),) = found
    assert set(truth) == {sentence.node_name(path) for path in TREE.paths}
    for name, values in truth.items():
        mine = [x for key, x in zip(drawn["key"], drawn["value"], strict=True) if key == name]
        assert all(abs(x - y) < 0.01 for x, y in zip(mine, values, strict=True))
    assert sum(truth["all"]) > 100


def test_a_table_has_the_path_and_the_time_for_its_key(log: Path) -> None:
    path = log / "out.db"
    words = (*words_of(log), "--output", f"sqlite:///{path}?table=t", "--rho", 0.1)
    succeed(*words, main=ticks.main, overwrite=False)
    with closing(sqlite3.connect(path)) as database:
        columns = database.execute("pragma table_info(t)").fetchall()
        found = database.execute("select region, city, count from t where step = 4").fetchall()
    assert [name for _, name, *_, place in columns if place] == ["region", "city", "timestamp"]
    assert {(region, city) for region, city, _ in found} == set(TREE.paths)


def test_a_count_that_goes_on_takes_no_tree_yet(log: Path) -> None:
    words = (*words_of(log), "--epsilon", 1, "--delta", "1e-6", "--state", log / "state")
    said = fail(*words, run=partial(command, main=ticks.main))
    assert "--hierarchy-file does not go with --state: a state knows listed keys only" in said
    assert not (log / "state").exists()


def test_nodes_have_names_of_their_own() -> None:
    paths = [("", ""), ("all", ""), ('"all"', ""), ("a,b", ""), ("a", "b"), ('a"', "b")]
    names = [sentence.node_name(path) for path in paths]
    assert names == ["all", '"all"', '"""all"""', '"a,b"', "a,b", '"a""",b']


def test_a_run_is_repeated_only_with_the_same_leaves(log: Path) -> None:
    create(str(log / "account"), dp.ApproxDP(3.0, 1e-5), None)
    noise = ("--secret-env", "ROLLUPS", "--run-id", "r", "--account", log / "account")
    words = (*words_of(log), "--epsilon", 1, "--delta", "1e-6")
    first = succeed(*words, *noise, main=ticks.main)
    assert "this is run 1 again" in succeed(*words, *noise, main=ticks.main)
    before = (log / "out.csv").read_text()
    renamed = (log / "leaves.csv").read_text().replace("rome", "lima")
    (log / "leaves.csv").write_text(renamed)
    again = succeed(*words, *noise, main=ticks.main)
    assert "this is run 1 again" not in first + again
    assert (log / "out.csv").read_text().replace("lima", "rome") != before

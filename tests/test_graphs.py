"""Statistics of graphs in pipelines: what counts, what is refused, and networkx's numbers."""

from __future__ import annotations

import random
from collections import Counter as Tally
from collections.abc import Callable
from functools import lru_cache, partial
from math import comb
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.transforms.window import FixedWindows

import beam_dpcount as dp
from beam_dpcount.statistics import cut_values
from tests.real_data import real
from tests.runners import Row, feed, run

EXACT: dict[str, Any] = {"budget": dp.ZCDP(1e18), "mechanism": "SmoothBinary"}  # no noise at all
SECRET = "s3cr3t"
VERTICES = 1900  # of the real data, which number theirs from 1

each_path = pytest.mark.parametrize("path", ["bounded", "streaming"])


pytestmark = pytest.mark.usefixtures("no_state_cache")


NAMES = ("ann", "bob", "cem", "dan", "eve", "fay", "gil")


def _applied(rows: list[Row], count: Any, pipeline: beam.Pipeline) -> Any:
    return pipeline | feed(rows, tuple[str, Any]) | count


# Windows


@each_path
def test_each_fixed_window_starts_a_new_graph(path: str) -> None:
    edges = [(0, 1), (0, 1), (1, 2), (0, 1), (1, 2), (0, 2)]
    rows: list[Row] = [("x", edge, 1_000_000 * i) for i, edge in enumerate(edges)]
    options: dict[str, Any] = {**EXACT, "horizon": 9, "vertices": 3, "path": path}

    def build(pipeline: beam.Pipeline) -> Any:
        windowed = pipeline | feed(rows) | beam.WindowInto(FixedWindows(3))
        return (
            windowed | dp.EdgeCount(**options),
            windowed | dp.TriangleCount(**options, max_degree=2),
            windowed | dp.CutGraph(**options),
        )

    outcome = run(build)
    edge_counts, triangles, weights = (
        sorted((seen.value.timestamp // 1_000_000, seen.value.value) for seen in output)
        for output in outcome.outputs
    )
    assert edge_counts == [(0, 1), (1, 1), (2, 2), (3, 1), (4, 2), (5, 3)]
    assert triangles == [(0, 0), (1, 0), (2, 0), (3, 0), (4, 0), (5, 1)]
    assert [weights[2][1], weights[5][1]] == [[2, 0, 1], [1, 1, 1]]


@each_path
def test_past_the_horizon_nothing_is_released(path: str) -> None:
    rows: list[Row] = [("x", (0, 1 + i), 1_000_000 * i) for i in range(5)]
    count = dp.EdgeCount(**EXACT, horizon=3, vertices=9, path=path, on_reject="collect")
    outcome = run(lambda p: p | feed(rows) | count)
    assert [r.value for r in outcome.releases] == [1, 2, 3]
    assert [r.timestamp for r in outcome.rejected] == [3_000_000, 4_000_000]
    assert {r.reason for r in outcome.rejected} == {
        "step beyond the horizon of 3: declare a larger one"
    }
    assert outcome.metrics()["past_horizon"] == 2


@each_path
def test_the_order_of_the_ends_and_the_kind_of_the_numbers_do_not_matter(path: str) -> None:
    edges = [(0, 1), [1, 0], (np.int64(1), np.int32(2)), (2, 1, 1)]
    rows: list[Row] = [("x", edge, 1_000_000 * i) for i, edge in enumerate(edges)]
    options: dict[str, Any] = {**EXACT, "horizon": 9, "vertices": 3, "path": path}
    forest = dp.SpanningForestCost(**options, max_weight=1)
    cut = dp.CutGraph(**options)

    def build(pipeline: beam.Pipeline) -> Any:
        elements = pipeline | feed(rows, tuple[str, Any])
        return elements | forest, elements | cut

    outcome = run(build)
    assert [r.value for r in outcome.releases] == [1, 1, 2, 2]
    assert outcome.outputs[1][-1].value.value == [2, 0, 2]


# What is refused


RUBBISH: dict[str, Any] = {
    "loop": ("ann", "ann"),
    "unknown vertex": ("ann", SECRET),
    "number for a name": ("ann", 1),
    "null": ("ann", None),
    "text": SECRET,
    "nothing": None,
    "one end": ("ann",),
    "four": ("ann", "bob", 1, 1),
    "mapping": {"ann": SECRET},
    "nan": float("nan"),
    "unhashable": (["ann"], {}),
}


def refused(make: Any, bad: dict[str, Any], path: str, good: list[Any]) -> list[Any]:
    """The values released of a good, a bad and a good element, whatever the bad one is.

    Nothing shows what was refused.
    """
    rows = [
        (name, edge, 1_000_000 * i)
        for name, one in bad.items()
        for i, edge in enumerate([good[0], one, good[1]])
    ]
    counts = {on: make(path=path, on_reject=on) for on in ("drop", "collect")}

    def build(pipeline: beam.Pipeline) -> Any:
        edges = pipeline | feed(rows, tuple[str, Any])
        releases, rejected = edges | "collect" >> counts["collect"]
        return releases, rejected, edges | "drop" >> counts["drop"]

    outcome = run(build)
    assert {r.key: r.timestamp for r in outcome.rejected} == dict.fromkeys(bad, 1_000_000)
    assert len(outcome.rejected) == len(bad)
    assert SECRET not in str([(r.reason, repr(r)) for r in outcome.rejected])
    assert outcome.releases == [seen.value for seen in outcome.outputs[2]]
    assert [r.step for r in outcome.releases] == [1, 2, 3] * len(bad)
    for refusal in outcome.rejected[-2:]:
        chosen = [row for row in rows if row[0] == refusal.key]
        raising = make(path=path, on_reject="raise")
        with pytest.raises(Exception) as caught:
            run(partial(_applied, chosen, raising))
        assert refusal.reason in str(caught.value)
        assert SECRET not in str(caught.value)
    first, *others = (
        [r.value for r in outcome.releases[at : at + 3]] for at in range(0, 3 * len(bad), 3)
    )
    assert all(other == first for other in others)
    return first


@each_path
def test_what_is_no_edge_takes_an_empty_step(path: str) -> None:
    def make(**given: Any) -> Any:
        return dp.HighDegreeCount(**EXACT, horizon=9, vertices=NAMES, threshold=1, **given)

    assert refused(make, RUBBISH, path, [("ann", "bob"), ("bob", "cem")]) == [2, 2, 3]


@each_path
def test_what_is_no_update_takes_an_empty_step(path: str) -> None:
    def make(**given: Any) -> Any:
        return dp.CutGraph(**EXACT, horizon=9, vertices=NAMES[:3], **given)

    values = refused(make, RUBBISH, path, [("ann", "bob"), ("bob", "cem")])
    assert values == [[1, 0, 0], [1, 0, 0], [1, 0, 1]]


@pytest.mark.long
@each_path
def test_weights_out_of_range_take_an_empty_step(path: str) -> None:
    def make(**given: Any) -> Any:
        return dp.SpanningForestCost(**EXACT, horizon=9, vertices=9, max_weight=9, **given)

    bad = {repr(weight): (0, 5, weight) for weight in (0, 10, -1, 1.5, "3", None, True, 2**62)}
    assert refused(make, bad, path, [(0, 1, 9), (0, 2, 3)]) == [9, 9, 12]


@each_path
def test_statistics_without_weights_refuse_them(path: str) -> None:
    """A deletion is refused in its own words."""

    def make(**given: Any) -> Any:
        return dp.EdgeCount(**EXACT, horizon=9, vertices=9, **given)

    bad = {repr(weight): (0, 1, weight) for weight in (1, -1, 0.5)}
    assert refused(make, bad, path, [(0, 1), (0, 2)]) == [1, 1, 2]
    for edge in bad.values():
        _, reason = make().statistic.read(edge)
        assert ("deletions are not supported" in reason) == (edge[2] == -1)


@each_path
def test_weights_of_cuts_are_refused_not_clipped(path: str) -> None:
    def make(**given: Any) -> Any:
        return dp.CutGraph(**EXACT, horizon=9, vertices=3, unit=0.25, **given)

    weights = (1.01, -7, float("nan"), float("inf"), "1", None, True)
    bad = {repr(weight): (0, 1, weight) for weight in weights}
    values = refused(make, bad, path, [(0, 1), (2, 0, -0.25)])
    assert values == [[1, 0, 0], [1, 0, 0], [1, -0.25, 0]]


@each_path
def test_a_failing_callable_is_an_empty_step_and_shows_nothing(path: str) -> None:
    def make(**given: Any) -> Any:
        value = lambda row: (row["u"], row["v"])  # noqa: E731
        return dp.EdgeCount(**EXACT, horizon=9, vertices=9, value=value, **given)

    good = [{"u": 0, "v": 1}, {"u": 1, "v": 2}]
    assert refused(make, {"key": {SECRET: 1}, "type": SECRET}, path, good) == [1, 1, 2]


# Arguments


def unbounded() -> Any:
    return dp.mechanisms.Unbounded(dp.mechanisms.BinaryTree)


B = dp.ZCDP(1)
api: Any = dp  # as a type checker would not let it be called


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: api.TriangleCount(B, 9, 5), "max_degree"),
        (lambda: api.TriangleCount(B, 9, 5, max_degree=1), "max_degree must be from 2 to 4, got 1"),
        (lambda: api.TriangleCount(B, 9, 5, max_degree=5), "max_degree must be from 2 to 4, got 5"),
        (lambda: api.TriangleCount(B, 9, 2, max_degree=2), "needs 3 vertices or more, got 2"),
        (lambda: api.KStarCount(B, 9, 5, 2), "max_degree"),
        (lambda: api.DegreeHistogram(B, 9, 5), "max_degree"),
        (lambda: api.EdgeCount(B, 9, 5, asserted=True), "give max_degree"),
        (lambda: api.EdgeCount(B, 9, 5, relation="node"), "max_degree and asserted=True"),
        (lambda: api.EdgeCount(B, 9, 5, max_degree=2, relation="node"), "asserted=True"),
        (lambda: api.EdgeCount(B, 9, 5, relation="replace_one"), "'edge' or 'node', got 'replace_"),
        (lambda: api.CutGraph(B, 9, 5, relation="edge"), "replace_one, add_remove, got 'edge'"),
        (lambda: api.KStarCount(B, 9, 5, 4, max_degree=3), "k must be from 1 to 3, got 4"),
        (lambda: api.KStarCount(B, 9, 5000, 20, max_degree=3000), "smaller max_degree or k"),
        (lambda: api.HighDegreeCount(B, 9, 5, 3, max_degree=2), "threshold must be from 1 to 2"),
        (lambda: api.SpanningForestCost(B, 9, 2**25, 3), "up to 2\\^24 vertices"),
        (lambda: api.CutGraph(B, 9, 5, unit=0.3), "unit must divide 1"),
        (lambda: api.CutGraph(B, 9, 5, unit=2), "unit must be from 2\\^-31 to 1"),
        (lambda: api.CutGraph(B, 9, ["a", "b-c", "a-b", "c"]), "two pairs .* same label"),
        (lambda: api.CutGraph(B, 9, 5, max_degree=3), "max_degree"),
        (lambda: api.CutGraph(B, 9, 2000), "1,999,000 pairs: give at most 1,000 vertices"),
        (lambda: api.EdgeCount(B, None, 5), "EdgeCount needs a horizon"),
        (lambda: api.EdgeCount(B, 9, 5, mechanism=unbounded()), "EdgeCount needs a horizon"),
        (lambda: api.EdgeCount(B, 9, 5, every=10), "nothing would be released"),
        (lambda: api.EdgeCount(B, 9, 5, pathh="x"), "pathh"),
    ],
)
def test_constructor_refusals(make: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        make()


@pytest.mark.parametrize("path", ["streaming", "bounded"])
def test_degrees_that_are_asserted_in_vain_stop_no_job(path: str) -> None:
    """An error would tell that two vertices have more neighbours in common than was said."""
    edges = [(u, v) for v in range(2, 9) for u in (0, 1)] + [(0, 1)]
    every: dict[str, Any] = {"max_degree": 3, "asserted": True, "path": path}
    for relation in ("edge", "node"):
        count = dp.TriangleCount(dp.ZCDP(1e9), 15, 9, relation=relation, **every)
        rows: list[Row] = [("x", edge, i) for i, edge in enumerate(edges)]
        seen = run(partial(_applied, rows, count))
        assert round(seen.releases[-1].value) == 2


# Real edges


class Edge(NamedTuple):
    u: int
    v: int
    weight: int


def networkx() -> Any:
    return pytest.importorskip(
        "networkx", reason="networkx is not installed: nothing to compare to"
    )


@lru_cache(maxsize=1)
def messages() -> list[Edge]:
    """The first 5,000 messages as undirected edges, in the order of the file."""
    path = real("collegemsg.txt")
    lines = path.read_text(encoding="utf-8").splitlines()[1:5001]
    numbers = [tuple(map(int, line.split())) for line in lines]
    return [Edge(u, v, 1 + time % 9) for u, v, time in numbers]


@lru_cache(maxsize=300)
def graph_after(t: int, D: int | None) -> Any:
    """networkx's graph of the first t messages; with D, of the edges that the rule leaves.

    A vertex takes the first D others that it is named with, and an edge needs both ends to take it.
    """
    nx = networkx()
    graph = nx.Graph()
    graph.add_nodes_from(range(VERTICES))
    taken: dict[int, list[int]] = {}
    for u, v, weight in messages()[:t]:
        if graph.has_edge(u, v):
            continue
        for x, y in ((u, v), (v, u)):
            others = taken.setdefault(x, [])
            if y not in others and (D is None or len(others) < D):
                others.append(y)
        if v in taken[u] and u in taken[v]:
            graph.add_edge(u, v, weight=weight)
    return graph


def degrees_after(t: int, D: int | None = None) -> list[int]:
    return [degree for _, degree in graph_after(t, D).degree()]


def histogram_after(t: int, most: int) -> list[int]:
    tally = Tally(min(degree, most) for degree in degrees_after(t))
    return [tally[degree] for degree in range(1, most + 1)]


def triangles_after(t: int, D: int | None = None) -> int:
    return int(sum(networkx().triangles(graph_after(t, D)).values())) // 3


def forest_after(t: int, D: int | None = None) -> int:
    return int(networkx().minimum_spanning_tree(graph_after(t, D)).size(weight="weight"))


ALL: dict[str, Any] = {"max_degree": VERTICES - 1, "asserted": True}
# The transform, its parameters, and its value after t messages.
REAL: dict[str, tuple[Any, dict[str, Any], Callable[[int], Any]]] = {
    "edges": (dp.EdgeCount, {}, lambda t: graph_after(t, None).number_of_edges()),
    "edges, 9": (
        dp.EdgeCount,
        {"max_degree": 9},
        lambda t: graph_after(t, 9).number_of_edges(),
    ),
    "triangles": (dp.TriangleCount, ALL, triangles_after),
    "triangles, 9": (dp.TriangleCount, {"max_degree": 9}, lambda t: triangles_after(t, 9)),
    "triangles, 40": (dp.TriangleCount, {"max_degree": 40}, lambda t: triangles_after(t, 40)),
    "3-stars": (
        dp.KStarCount,
        {"k": 3, **ALL},
        lambda t: sum(comb(degree, 3) for degree in degrees_after(t)),
    ),
    "2-stars, 9": (
        dp.KStarCount,
        {"k": 2, "max_degree": 9},
        lambda t: sum(comb(min(degree, 9), 2) for degree in degrees_after(t)),
    ),
    "high": (
        dp.HighDegreeCount,
        {"threshold": 5},
        lambda t: sum(degree >= 5 for degree in degrees_after(t)),
    ),
    "high, 9": (
        dp.HighDegreeCount,
        {"threshold": 5, "max_degree": 9},
        lambda t: sum(degree >= 5 for degree in degrees_after(t, 9)),
    ),
    "degrees": (
        dp.DegreeHistogram,
        {"max_degree": 250, "asserted": True},
        lambda t: histogram_after(t, 250),
    ),
    "degrees, 9": (dp.DegreeHistogram, {"max_degree": 9}, lambda t: histogram_after(t, 9)),
    "forest": (dp.SpanningForestCost, {"max_weight": 9}, forest_after),
    "forest, 9": (
        dp.SpanningForestCost,
        {"max_weight": 9, "max_degree": 9},
        lambda t: forest_after(t, 9),
    ),
}


@pytest.mark.long
@pytest.mark.parametrize(
    ("path", "length", "every"), [("bounded", 5000, 100), ("streaming", 1500, 150)]
)
@pytest.mark.parametrize(
    "what",
    [
        name if name.endswith(", 9") else pytest.param(name, marks=pytest.mark.exhaustive)
        for name in REAL
    ],
)
def test_messages_equal_networkx_at_checkpoints(
    what: str, path: str, length: int, every: int
) -> None:
    make, parameters, recomputed = REAL[what]
    count = make(**EXACT, **parameters, horizon=5000, vertices=VERTICES, every=every, path=path)
    assert count.counter.max_variance() < 1e-6
    rows: list[Row] = [
        ("g", tuple(edge) if what.startswith("forest") else (edge.u, edge.v), 1_000_000 * i)
        for i, edge in enumerate(messages()[:length])
    ]
    outcome = run(lambda p: p | feed(rows) | count)
    assert [release.step for release in outcome.releases] == list(range(every, length + 1, every))
    for release in outcome.releases:
        assert release.value == recomputed(release.step)


@pytest.mark.slow
def test_the_rule_and_the_checkpoints_tell_statistics_apart() -> None:
    """What is compared above is neither empty nor all alike."""
    assert triangles_after(5000, 9) < triangles_after(5000, 40) < triangles_after(5000)
    assert graph_after(5000, 9).number_of_edges() < graph_after(5000, None).number_of_edges()
    assert 40 < max(degrees_after(5000)) <= 250
    assert max(degrees_after(5000, 9)) == 9
    repeated = [(min(edge[:2]), max(edge[:2])) for edge in messages()]
    assert len(set(repeated)) < len(repeated)


def updates() -> tuple[list[int], list[Any]]:
    """The 30 busiest vertices, and updates of weights: never below 0 in all; others are refused."""
    busy = Tally(end for edge in messages() for end in edge[:2])
    names = [vertex for vertex, _ in busy.most_common(30)]
    total: Tally[frozenset[int]] = Tally()
    made: list[Any] = []
    for u, v, number in messages():
        pair, weight = frozenset((u, v)), 0.25 * (1 + number % 4)
        if number == 9 and total[pair] >= 1:
            weight = -1.0
        total[pair] += weight  # type: ignore[assignment]
        made.append((str(u), str(v), weight))
    return names, made


@pytest.mark.long
@each_path
def test_cuts_of_messages_equal_recomputation(path: str) -> None:
    nx = networkx()
    chance, (names, weighted) = random.Random(5), updates()
    vertices = list(map(str, names))
    options: dict[str, Any] = {**EXACT, "unit": 0.25, "every": 100, "path": path}
    count = dp.CutGraph(horizon=5000, vertices=vertices, **options)
    rows: list[Row] = [("g", update, 1_000_000 * i) for i, update in enumerate(weighted)]
    outcome = run(lambda p: p | feed(rows) | count)
    assert [release.step for release in outcome.releases] == list(range(100, 5001, 100))
    graph = nx.Graph()
    graph.add_nodes_from(vertices)
    done, removed = 0, 0
    for release in outcome.releases:
        for u, v, weight in weighted[done : release.step]:
            if u in graph and v in graph:
                before = graph.get_edge_data(u, v, {"weight": 0})["weight"]
                graph.add_edge(u, v, weight=before + weight)
                removed += weight < 0
        done = release.step
        for _ in range(10):
            mixed = chance.sample(vertices, 30)
            first, last = sorted(chance.sample(range(1, 31), 2))
            side, other = mixed[:first], mixed[first:last]
            between = nx.cut_size(graph, side, other, weight="weight")
            assert cut_values.cut(release.value, vertices, side, other) == between
            against_all = nx.cut_size(graph, side, weight="weight")
            assert cut_values.cut(release.value, vertices, side) == against_all
        least = cut_values.minimum_cut(release.value, vertices)
        assert least.value == nx.cut_size(graph, least.side, weight="weight")
        # The least of the maximum flows from one vertex to the others, another algorithm's word.
        if done % 1000 == 0:
            flows = [
                nx.maximum_flow_value(graph, vertices[0], vertex, capacity="weight")
                for vertex in vertices[1:]
            ]
            assert least.value == min(flows)
    assert graph.number_of_edges() > 50
    assert removed > 3
    assert least.value > 0


def test_edges_without_a_key_are_refused() -> None:
    """Their first vertex would be the public key."""
    for edges in ([("ann", "bob"), ("bob", "cy")], [("k", 1)]):
        count = api.TriangleCount(B, 9, ["ann", "bob", "cy"], max_degree=2)
        with pytest.raises(TypeError, match="give edges a key"):
            _ = beam.Pipeline() | beam.Create(edges) | count

"""Statistics of growing graphs: what they count, and that one pair or vertex changes no more."""

from __future__ import annotations

import itertools
import pickle
import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from math import comb
from typing import Any

import numpy as np
import pytest

import beam_dpcount as dp
from beam_dpcount.mechanisms import (
    BinaryTree,
    Binned,
    NormalizedBLT,
    Simple2,
    SmoothBinary,
    SquareRoot,
)
from beam_dpcount.statistics import graph as graphs
from beam_dpcount.statistics.graph import CodeSet, Graph
from beam_dpcount.statistics.graph_change import GraphChange
from beam_dpcount.statistics.graph_counts import (
    DELETION,
    LOOP,
    NO_PAIR,
    UNKNOWN,
    UNWEIGHTED,
    WEIGHT,
    Degrees,
    Edges,
    GraphStatistic,
    HighDegree,
    KStars,
    SpanningForest,
    Triangles,
)
from tests.real_data import real

Row = tuple[int, int, int]  # u, v, weight
Stream = tuple[Row, ...]
E: Row = (0, 1, 1)  # the pair that neighbours differ in: any other is this one renamed


# Exhaustive: all streams with the pair {0, 1}, up to renaming the other vertices


@lru_cache(maxsize=2)
def streams(n: int, length: int, repeats: bool, weights: tuple[int, ...]) -> tuple[Stream, ...]:
    """Streams of up to `length` insertions; vertices from 2 on are new in their order."""
    pairs = list(itertools.combinations(range(n), 2))

    def grow(stream: Stream, used: frozenset[tuple[int, int]], seen: int) -> Iterator[Stream]:
        if stream:
            yield stream
        if len(stream) == length:
            return
        for u, v in pairs:
            if not repeats and (u, v) in used:
                continue
            first = seen + 1 if u == seen else seen
            if u > seen or v > first:
                continue
            for weight in weights:
                now = max(seen, u + 1, v + 1)
                yield from grow((*stream, (u, v, weight)), used | {(u, v)}, now)

    return tuple(grow((), frozenset(), 2))


class Runs:
    """What the elements of streams add, each prefix computed once."""

    def __init__(self, statistic: GraphStatistic) -> None:
        self.statistic = statistic
        self.known: dict[Stream, tuple[Any, tuple[Any, ...]]] = {(): (statistic.init(), ())}

    def __call__(self, stream: Stream) -> tuple[Any, ...]:
        return self._run(stream)[1]

    def _run(self, stream: Stream) -> tuple[Any, tuple[Any, ...]]:
        if stream not in self.known:
            memory, before = self._run(stream[:-1])
            after, additions = self.statistic.step(memory, stream[-1])
            self.known[stream] = after, (*before, self.statistic.vector(additions))
        return self.known[stream]


def degrees(stream: Stream) -> dict[int, int]:
    count: dict[int, int] = defaultdict(int)
    for u, v in {row[:2] for row in stream}:
        count[u] += 1
        count[v] += 1
    return count


def differences(
    statistic: GraphStatistic,
    length: int,
    *,
    repeats: bool = False,
    weights: tuple[int, ...] = (1,),
    node: bool = False,
) -> np.ndarray:
    """All that one pair (or vertex 0) changes, each once: shape (cases, length, dimension)."""
    run, found = Runs(statistic), set()
    for stream in streams(statistic.n, length, repeats, weights):
        if not any(row[0] == 0 and (node or row[1] == 1) for row in stream):
            continue
        if statistic.asserted and max(degrees(stream).values()) > (statistic.max_degree or 0):
            continue
        hit = [row[0] == 0 and (node or row[1] == 1) for row in stream]
        rest = iter(run(tuple(row for row, out in zip(stream, hit, strict=True) if not out)))
        zero = np.zeros(statistic.dimension or 1, dtype=np.int64)
        change = [
            np.atleast_1d(x) - (zero if out else next(rest))
            for x, out in zip(run(stream), hit, strict=True)
        ]
        change += [zero] * (length - len(stream))
        found.add(np.array(change, dtype=np.int64).tobytes())
    shape = (len(found), length, statistic.dimension or 1)
    return np.frombuffer(b"".join(sorted(found)), dtype=np.int64).reshape(shape)


@dataclass(frozen=True, eq=False)
class Arbitrary:
    """Any matrix, as much of a mechanism as a change asks for."""

    matrix: Any
    horizon: int = 99
    falling_products = False

    @property
    def is_nonnegative(self) -> bool:
        return bool((self.matrix >= 0).all())

    @property
    def l1_sensitivity(self) -> float:
        return float(np.abs(self.matrix).sum(axis=0).max())

    @property
    def l2_sensitivity_squared(self) -> float:
        return float((self.matrix**2).sum(axis=0).max())

    def lag_bounds(self, n: int) -> tuple[float, ...]:
        return (self.l2_sensitivity_squared,) * n

    def encoder(self, n: int) -> Any:
        return self.matrix[:, :n]


T = 24
RANDOM = np.random.default_rng(5)
ENCODERS: list[Any] = [
    Simple2(T),
    BinaryTree(T),
    SmoothBinary(T),
    SquareRoot(T),
    NormalizedBLT(T),
    Arbitrary(RANDOM.random((6, T))),
    Arbitrary(RANDOM.random((6, T)) ** 9),
    Arbitrary(RANDOM.choice([-1.0, 1.0], (1, T))),
]


def places(length: int) -> list[list[int]]:
    """Where the insertions stand among T steps: at once, and with empty steps between."""
    gaps = [list(range(length)), list(range(1, 2 * length, 2))]
    rng = random.Random(length)
    return gaps + [sorted(rng.sample(range(T), length)) for _ in range(2)]


def within(change: GraphChange, found: np.ndarray) -> list[str]:
    """Which of the change's bounds these differences exceed."""
    exceeded = []
    bound = change.spread(ENCODERS[0]).l1
    if np.abs(found).sum(axis=(1, 2)).max() > bound:
        exceeded.append("l1")
    for mechanism in ENCODERS:
        R, spread = mechanism.encoder(T), change.spread(mechanism)
        longest = float(mechanism.l1_sensitivity)
        for at in places(found.shape[1]):
            image = np.tensordot(found, R[:, at], axes=(1, 1))
            if (image**2).sum(axis=(1, 2)).max() > float(spread.l2_squared) * (1 + 1e-9):
                exceeded.append(f"l2 {mechanism}")
            if np.abs(image).sum(axis=(1, 2)).max() > longest * spread.l1 * (1 + 1e-9):
                exceeded.append(f"image {mechanism}")
    changed = (found != 0).any(axis=1).sum(axis=1).max()
    if changed > change.spread(ENCODERS[0]).touched:
        exceeded.append("touched")
    return exceeded


def reached(found: np.ndarray) -> tuple[int, int, int]:
    """The largest L1 norm, sum of squares, and sum of squared masses."""
    gained, lost = np.maximum(found, 0).sum(axis=1), np.maximum(-found, 0).sum(axis=1)
    l1, squares = np.abs(found).sum(axis=(1, 2)), (found**2).sum(axis=(1, 2))
    return int(l1.max()), int(squares.max()), int((gained**2 + lost**2).sum(axis=1).max())


def claimed(change: GraphChange) -> tuple[int, int, int]:
    whole = sum(p**2 + q**2 for p, q in change.masses)
    squares = whole if change.squares is None else change.squares
    return change.spread(Simple2(T)).l1, squares, whole


def family(n: int) -> list[GraphStatistic]:
    """Statistics for which relation "edge" is claimed."""
    members: list[GraphStatistic] = [Edges(n), *(HighDegree(n, h) for h in range(1, 4))]
    for D in range(1, 4):
        members += [Edges(n, max_degree=D), SpanningForest(n, 1, max_degree=D)]
        members += [Degrees(n, max_degree=D), Degrees(n, max_degree=D, asserted=True)]
        members += [HighDegree(n, h, max_degree=D) for h in range(1, D + 1)]
        for sure in (False, True):
            members += [KStars(n, k, max_degree=D, asserted=sure) for k in range(1, D + 1)]
            if D > 1:
                members.append(Triangles(n, max_degree=D, asserted=sure))
    return members


@pytest.mark.slow
@pytest.mark.parametrize("statistic", family(4), ids=str)
def test_no_order_of_four_vertices_exceeds_the_bounds(statistic: GraphStatistic) -> None:
    change = statistic.change("edge")
    assert within(change, differences(statistic, 6)) == []
    assert within(change, differences(statistic, 4, repeats=True)) == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("statistic", family(5), ids=str)
def test_no_order_of_five_vertices_exceeds_the_bounds(statistic: GraphStatistic) -> None:
    length = 5 if statistic.limit is None else 6
    assert within(statistic.change("edge"), differences(statistic, length)) == []


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(
    ("weights", "length", "repeats"),
    [
        pytest.param((1, 2), 6, False, marks=pytest.mark.exhaustive),
        ((1, 2, 4), 4, False),
        ((1, 3), 4, True),
    ],
)
@pytest.mark.parametrize("D", [None, 1, 2])
def test_no_weights_exceed_the_bounds(
    weights: tuple[int, ...], length: int, repeats: bool, D: int | None
) -> None:
    statistic = SpanningForest(4, max(weights), max_degree=D)
    found = differences(statistic, length, repeats=repeats, weights=weights)
    assert within(statistic.change("edge"), found) == []
    if D is None:
        assert reached(found) == claimed(statistic.change("edge"))


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("D", [1, 2, 3])
def test_no_vertex_exceeds_the_bounds_where_degrees_are_asserted(D: int) -> None:
    asserted: dict[str, Any] = {"max_degree": D, "asserted": True}
    members: list[GraphStatistic] = [Edges(4, **asserted), Degrees(4, **asserted)]
    members += [KStars(4, k, **asserted) for k in range(1, D + 1)]
    members += [HighDegree(4, h, **asserted) for h in range(1, D + 1)]
    members += [Triangles(4, **asserted)] if D > 1 else []
    for statistic in members:
        assert within(statistic.change("node"), differences(statistic, 6, node=True)) == []
    forest = SpanningForest(4, 2, **asserted)
    found = differences(forest, 4, weights=(1, 2), node=True)
    assert within(forest.change("node"), found) == []


# What is attained


def one(statistic: GraphStatistic, stream: list[tuple[int, int]]) -> np.ndarray:
    """What the pair {0, 1} changes in one stream."""
    rows = tuple((u, v, 1) for u, v in stream)
    run, kept = Runs(statistic), [row[:2] != (0, 1) for row in rows]
    rest = iter(run(tuple(row for row, keep in zip(rows, kept, strict=True) if keep)))
    pairs = zip(run(rows), kept, strict=True)
    return np.array([[np.atleast_1d(x) - (next(rest) if keep else 0) for x, keep in pairs]])


def around(D: int) -> list[tuple[int, int]]:
    """The pair first, then D - 1 neighbours of their own for either end."""
    mine = [(0, 2 + i) for i in range(D - 1)]
    return [(0, 1), *mine, *((1, 1 + D + i) for i in range(D - 1))]


@pytest.mark.parametrize("D", range(1, 7))
def test_bounds_of_degrees_are_attained(D: int) -> None:
    n = 2 * D + 3
    more = [(0, 2 * D), (1, 2 * D + 1)]
    sure = Degrees(n, max_degree=D, asserted=True)
    assert reached(one(sure, around(D))) == claimed(sure.change("edge"))
    loose = Degrees(n, max_degree=D)
    assert reached(one(loose, around(D) + more)) == claimed(loose.change("edge"))
    high = HighDegree(n, D)
    last = [*around(D)[1:], (0, 1), *more]
    assert reached(one(high, last)) == claimed(high.change("edge")) == (4, 6, 8)
    for k in range(1, D + 1):
        stars = KStars(n, k, max_degree=D)
        assert reached(one(stars, last)) == claimed(stars.change("edge"))
        asserted = KStars(n, k, max_degree=D, asserted=True)
        assert reached(one(asserted, last[:-2])) == claimed(asserted.change("edge"))


def crossed(D: int) -> list[tuple[int, int]]:
    """0 and 1 share D - 1 neighbours, 2 .. D; of D+1 and D+2, one waits for a place at either."""
    shared = range(2, D + 1)
    ends = [(end, z) for z in shared for end in (0, 1)]
    waiting = [(z, w) for z in shared for w in (D + 1, D + 2)]
    return [*ends, *waiting, (0, 1), (0, D + 1), (1, D + 2)]


@pytest.mark.parametrize("D", range(2, 7))
def test_bounds_of_triangles_are_attained(D: int) -> None:
    """With the rule from D = 4."""
    sure, M = Triangles(D + 3, max_degree=D, asserted=True), D - 1
    ends = [(end, z) for z in range(2, D + 1) for end in (0, 1)]
    assert reached(one(sure, [*ends, (0, 1)])) == claimed(sure.change("edge")) == (M, M**2, M**2)
    ruled = Triangles(D + 3, max_degree=D)
    at_most = claimed(ruled.change("edge"))
    found = reached(one(ruled, crossed(D)))
    assert all(a <= b for a, b in zip(found, at_most, strict=True))
    assert (found == at_most) == (D >= 4)
    assert at_most[0] == 3 * M
    assert at_most[2] == 5 * M**2


@pytest.mark.parametrize("D", [1, 2, 3])
def test_bounds_of_edges_are_attained_with_the_rule(D: int) -> None:
    n, own = 2 * D + 3, around(D)
    ruled = Edges(n, max_degree=D)
    found = one(ruled, [*own, (0, 2 * D), (1, 2 * D + 1)])
    assert reached(found) == claimed(ruled.change("edge")) == (3, 3, 5)


def exchanged(D: int, h: int) -> list[tuple[int, int]]:
    """0 and 1 come to h neighbours by their pair, and else later; 2 and 3 by what it displaces.

    Without the pair, 0 accepts {0, 3} and 1 accepts {1, 2}: 2 and 3 come to h earlier then. Two
    gain at once at {0, 1} and at {2, 3}, two lose at once at {0, 2}.
    """
    fresh = itertools.count(4)

    def grow(end: int, n: int) -> list[tuple[int, int]]:
        return [(end, next(fresh)) for _ in range(n)]

    ends = [*grow(0, h - 1), *grow(1, h - 1), (0, 1)]
    one_full = [*grow(1, D - h), *grow(2, h - 2), (1, 2)]
    both_full = [(0, 2), *grow(0, D - h - 1), *grow(3, h - 1), (0, 3)]
    return [*ends, *one_full, *both_full, (2, 3)]


@pytest.mark.parametrize(("D", "h"), [(3, 2), (4, 2), (4, 3), (6, 4)])
def test_bounds_of_high_degrees_are_attained_with_the_rule(D: int, h: int) -> None:
    """But for the squares of single steps: 14, which is more than the 12 of three pairs of ends."""
    stream = exchanged(D, h)
    ruled = HighDegree(1 + max(map(max, stream)), h, max_degree=D)
    l1, squares, masses = reached(one(ruled, stream))
    most = claimed(ruled.change("edge"))
    assert (l1, masses) == (most[0], most[2]) == (8, 32)
    assert squares == 14 <= most[1]
    # As an encoder meets it: one whose columns are orthogonal, and one that adds gains up.
    image = np.where(one(ruled, stream)[0, :, 0] > 0, 1, 0)
    both = np.vstack([image, 1 - image])
    assert ((both @ one(ruled, stream)[0]) ** 2).sum() == 32
    assert ruled.change("edge").spread(Arbitrary(both)).l2_squared == 32


@pytest.mark.long
def test_bounds_of_a_vertex_are_attained() -> None:
    D = 3
    asserted: dict[str, Any] = {"max_degree": D, "asserted": True}
    for statistic in (Edges(4, **asserted), Triangles(4, **asserted), KStars(4, 2, **asserted)):
        found = differences(statistic, 6, node=True)
        assert reached(found)[0] == claimed(statistic.change("node"))[0]


@pytest.mark.parametrize(
    ("transform", "make", "shown"),
    [
        (dp.HighDegreeCount, lambda **rule: HighDegree(5, 2, **rule), "{}"),
        (dp.SpanningForestCost, lambda **rule: SpanningForest(5, 1, **rule), "{} W"),
    ],
)
def test_what_the_docstrings_say_one_pair_changes(transform: Any, make: Any, shown: str) -> None:
    """With the rule, which acts wherever max_degree is given and not asserted, it is more."""
    free, ruled = (sum(map(sum, counted.of_edge()[0])) for counted in (make(), make(max_degree=3)))
    said = " ".join((transform.__doc__ or "").split())
    words = f"changes the steps by {shown} in all, and by {shown} with the rule"
    assert words.format(free, ruled) in said
    assert "whatever the degrees" not in said


def test_the_norm_of_the_change_is_no_bound_on_its_image() -> None:
    """[FHU22], Corollary 3, takes sqrt(sum of squares) times c: 6 c^2 here."""
    statistic, mechanism = HighDegree(6, 2), Simple2(T)
    last = [(0, 2), (1, 3), (0, 1), (0, 4), (1, 5)]
    found = one(statistic, last)
    rows = np.zeros((1, 5))
    rows[0, :] = found[0, :, 0] > 0
    both = np.vstack([rows, 1 - rows])  # gains into one coordinate, losses into the other
    assert ((both @ found[0]) ** 2).sum() == 8 > reached(found)[1]
    assert statistic.change("edge").spread(Arbitrary(both)).l2_squared == 8
    assert statistic.change("edge").spread(mechanism).l2_squared == 6


# The mutant: a pair is dropped because an end is full of accepted edges


def truncated(graph: Graph, u: int, v: int, limit: int | None) -> Graph:
    way, back = u * graph.n + v, v * graph.n + u
    if graph.edges.has(way) or (limit and max(graph.degree(u), graph.degree(v)) >= limit):
        return graph
    return graph._replace(edges=graph.edges.add(way, back))


@pytest.mark.slow
@pytest.mark.parametrize("statistic", [Edges(5, max_degree=1)], ids=str)
def test_truncation_by_current_degree_is_caught(
    statistic: GraphStatistic, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert within(statistic.change("edge"), differences(statistic, 5)) == []
    monkeypatch.setattr(Graph, "offer", truncated)
    caught = within(statistic.change("edge"), differences(statistic, 5))
    assert {"l1", "l2 Simple2(horizon=24)"} <= set(caught)


@pytest.mark.parametrize(
    "statistic",
    [
        Edges(50, max_degree=3),
        HighDegree(50, 3, max_degree=3),
        Triangles(50, max_degree=3),
        SpanningForest(50, 1, max_degree=1),
    ],
    ids=str,
)
def test_truncation_by_current_degree_is_unbounded(
    statistic: GraphStatistic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path whose edges decide about each other, each of them over a wedge of its own."""
    path = [(i, i + 1) for i in range(24)]
    wedges = [(end, 25 + i) for i in range(24) for end in (i, i + 1)]
    stream = path if statistic.max_degree == 1 else wedges + path
    at_most = claimed(statistic.change("edge"))
    assert all(a <= b for a, b in zip(reached(one(statistic, stream)), at_most, strict=True))
    monkeypatch.setattr(Graph, "offer", truncated)
    found = reached(one(statistic, stream))
    assert found[0] >= 24 > at_most[0]
    assert found[2] > at_most[2]


# Recomputation


def accepted(pairs: list[tuple[int, int]], D: int) -> list[tuple[int, int]]:
    """The edges that the rule accepts, from its words."""
    offered: dict[int, list[tuple[int, int]]] = defaultdict(list)
    distinct = list(dict.fromkeys((min(pair), max(pair)) for pair in pairs))
    for pair in distinct:
        for end in pair:
            offered[end].append(pair)
    return [p for p in distinct if p in offered[p[0]][:D] and p in offered[p[1]][:D]]


def recomputed(statistic: GraphStatistic, rows: list[Row]) -> Any:
    """The statistic of the whole stream, by networkx."""
    nx = pytest.importorskip("networkx", reason="networkx is not installed: nothing to compare to")
    weights: dict[tuple[int, int], int] = {}
    for u, v, weight in rows:
        weights.setdefault((min(u, v), max(u, v)), weight)
    edges, D = list(weights), statistic.max_degree
    if statistic.limit is not None:
        edges = accepted([row[:2] for row in rows], statistic.limit)
    graph = nx.Graph()
    graph.add_nodes_from(range(statistic.n))
    graph.add_weighted_edges_from((u, v, weights[u, v]) for u, v in edges)
    found = [degree for _, degree in graph.degree()]
    if isinstance(statistic, Edges):
        return graph.number_of_edges()
    if isinstance(statistic, Triangles):
        return sum(nx.triangles(graph).values()) // 3
    if isinstance(statistic, KStars):
        return sum(comb(min(degree, D or 0), statistic.k) for degree in found)
    if isinstance(statistic, HighDegree):
        return sum(degree >= statistic.threshold for degree in found)
    if isinstance(statistic, Degrees):
        count = Counter(min(degree, D or 0) for degree in found)
        return [count[d] for d in range(1, (D or 0) + 1)]
    return nx.minimum_spanning_tree(graph).size(weight="weight")


def assorted(n: int, D: int) -> list[GraphStatistic]:
    return [
        Edges(n),
        Edges(n, max_degree=D),
        Triangles(n, max_degree=D),
        Triangles(n, max_degree=n - 1, asserted=True),
        KStars(n, 2, max_degree=D),
        KStars(n, 3, max_degree=n - 1, asserted=True),
        HighDegree(n, 3),
        HighDegree(n, 2, max_degree=D),
        Degrees(n, max_degree=D),
        Degrees(n, max_degree=min(n - 1, 200), asserted=True),
        SpanningForest(n, 9),
        SpanningForest(n, 9, max_degree=D),
    ]


def random_rows(n: int, length: int, seed: int) -> list[Row]:
    rng = random.Random(seed)
    return [(*sorted(rng.sample(range(n), 2)), rng.randint(1, 9)) for _ in range(length)]


@pytest.mark.parametrize("recent", [4, 512])
@pytest.mark.parametrize("place", range(12))
def test_every_step_equals_recomputation(
    place: int, recent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graphs, "RECENT", recent)
    for seed, (n, D) in enumerate([(6, 2), (9, 3), (14, 4)]):
        statistic = assorted(n, D)[place]
        rows = random_rows(n, 60, seed)
        _, added = statistic.all(statistic.init(), np.array(rows))
        for t, total in enumerate(np.cumsum(added, axis=0).tolist(), start=1):
            assert total == recomputed(statistic, rows[:t])


@pytest.mark.slow
@pytest.mark.parametrize("every", [1000, pytest.param(100, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("place", range(12))
def test_messages_equal_recomputation_at_checkpoints(place: int, every: int) -> None:
    lines = real("collegemsg.txt").read_text(encoding="utf-8").splitlines()[1:5001]
    numbers = [[int(field) for field in line.split()] for line in lines]
    rows = [(u, v, 1 + time % 9) for u, v, time in numbers]
    statistic = assorted(1900, 12)[place]
    if isinstance(statistic, SpanningForest):
        codes = [statistic.read(row)[0] for row in rows]
    else:
        codes = [statistic.read(row[:2])[0] for row in rows]
    _, added = statistic.all(statistic.init(), np.array(codes))
    totals = np.cumsum(added, axis=0)
    for t in range(every, 5001, every):
        assert totals[t - 1].tolist() == recomputed(statistic, rows[:t])


# Memory


@pytest.mark.parametrize("recent", [4, 512])
@pytest.mark.parametrize("statistic", assorted(8, 2), ids=str)
def test_what_is_packed_goes_on_as_if_it_never_was(
    statistic: GraphStatistic, recent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(graphs, "RECENT", recent)
    rows = [*random_rows(8, 25, 3), statistic.empty, *random_rows(8, 15, 4)]
    whole, memory, kept = [], statistic.init(), [statistic.pack(statistic.init())]
    for row in rows:
        memory, additions = statistic.step(memory, row)
        whole.append(np.array(statistic.vector(additions)).tolist())
        kept.append(statistic.pack(memory))
    for t, data in enumerate(kept):
        again = statistic.unpack(data)
        assert statistic.pack(again) == data
        for row, expected in zip(rows[t:], whole[t:], strict=True):
            again, additions = statistic.step(again, row)
            assert np.array(statistic.vector(additions)).tolist() == expected
        assert statistic.pack(again) == kept[-1]
        assert statistic.pack(statistic.unpack(data)) == data  # nothing was changed in place


def test_a_set_of_codes_merges_and_finds_all() -> None:
    rng, codes, known = random.Random(1), CodeSet(), []
    for code in rng.sample(range(4000), 1500):
        codes = codes.add(code)
        known.append(code)
    assert len(codes.new) < graphs.RECENT < len(codes.old)
    assert sorted([*codes.old, *codes.new]) == sorted(known)
    assert all(codes.has(code) == (code in set(known)) for code in range(4000))
    assert codes.within(100, 900) == sum(100 <= code < 900 for code in known)
    assert sorted(codes.between(100, 900)) == sorted(c for c in known if 100 <= c < 900)
    assert codes.common(np.arange(3990, 4010)) == sum(c >= 3990 for c in known)
    assert codes.common(np.arange(0)) == CodeSet().common(np.arange(9)) == 0


def test_the_rule_remembers_pairs_that_only_one_end_has_room_for() -> None:
    graph = Graph(5)
    for u, v in [(0, 1), (0, 2), (2, 3), (2, 4)]:
        graph = graph.offer(u, v, 1)
    assert sorted(graph.edges.new) == [0 * 5 + 1, 1 * 5 + 0]
    assert sorted(graph.halves.new) == [2 * 5 + 0, 3 * 5 + 2, 4 * 5 + 2]
    for u, v in [(0, 1), (0, 2), (2, 3), (2, 4), (3, 4), (1, 2)]:
        assert graph.offer(u, v, 1) is graph


@pytest.mark.parametrize("data", [b"", b"1234567", b"\x00" * 24, b"\xff" * 64, b"\x01" * 80])
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        Edges(5).unpack(data)


def test_statistics_survive_pickling_without_their_caches() -> None:
    for statistic in (*assorted(8, 2), Edges(("a", "b"))):
        statistic.read(("a", "b"))
        again = pickle.loads(pickle.dumps(statistic))
        assert again == statistic
        assert repr(again) == repr(statistic)
        assert "_places" not in again.__dict__


# What is read


def test_pairs_are_read_in_either_direction() -> None:
    assert Edges(5).read((3, 1)) == ((1, 3, 1), None)
    assert Edges(5).read([np.int64(1), 3]) == ((1, 3, 1), None)
    assert Edges(("b", "a", "c")).read(("c", "b")) == ((0, 2, 1), None)
    assert SpanningForest(5, 7).read((3, 1, 7)) == ((1, 3, 7), None)
    assert SpanningForest(5, 7).read((3, 1)) == ((1, 3, 1), None)


SECRET = "secret-name"


@pytest.mark.parametrize(
    ("statistic", "payload", "reason"),
    [
        (Edges(5), None, NO_PAIR),
        (Edges(5), "01", NO_PAIR),
        (Edges(5), (1,), NO_PAIR),
        (Edges(5), (1, 2, 1, 1), NO_PAIR),
        (Edges(5), {1: 2, 3: 4}, NO_PAIR),
        (Edges(5), (1, 5), UNKNOWN),
        (Edges(5), (-1, 1), UNKNOWN),
        (Edges(5), (1, 2.0), UNKNOWN),
        (Edges(5), (1, True), UNKNOWN),
        (Edges(5), (1, "2"), UNKNOWN),
        (Edges(("a", "b")), ("a", SECRET), UNKNOWN),
        (Edges(("a", "b")), ("a", 1), UNKNOWN),
        (Edges(("a", "b")), ("a", ["b"]), UNKNOWN),
        (Edges(5), (2, 2), LOOP),
        (Edges(5), (1, 2, 1), UNWEIGHTED),
        (Edges(5), (1, 2, "x"), UNWEIGHTED),
        (Triangles(5, max_degree=2), (1, 2, -1), DELETION),
        (SpanningForest(5, 3), (1, 2, -2), DELETION),
        (SpanningForest(5, 3), (1, 2, 0), WEIGHT),
        (SpanningForest(5, 3), (1, 2, 4), WEIGHT),
        (SpanningForest(5, 3), (1, 2, 1.5), WEIGHT),
        (SpanningForest(5, 3), (1, 2, None), WEIGHT),
        (SpanningForest(5, 3), (1, 2, True), WEIGHT),
    ],
)
def test_what_is_no_edge_is_an_empty_step(
    statistic: GraphStatistic, payload: Any, reason: str
) -> None:
    codes, said = statistic.read(payload)
    assert (codes, said) == ((-1, -1, 0), reason)
    memory = statistic.init()
    assert statistic.step(memory, codes) == (memory, ())
    assert len(codes) == statistic.width


# Arguments


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: Edges(2**31 + 1), ValueError, "from 2 to"),
        (lambda: Edges(5, asserted=True), ValueError, "give max_degree"),
        (lambda: Edges(5, max_degree=5), ValueError, "from 1 to 4, got 5"),
        (lambda: Triangles(5), TypeError, "max_degree must be a whole number, got None"),
        (lambda: Triangles(5, max_degree=1), ValueError, "from 2 to 4, got 1"),
        (lambda: Triangles(2, max_degree=1), ValueError, "3 vertices or more"),
        (lambda: KStars(5, 3, max_degree=2), ValueError, "k must be from 1 to 2, got 3"),
        (lambda: KStars(9999, 5, max_degree=900), ValueError, "beyond 2^31"),
        (lambda: HighDegree(5, 5), ValueError, "threshold must be from 1 to 4"),
        (lambda: HighDegree(5, 3, max_degree=2), ValueError, "from 1 to 2, got 3"),
        (lambda: SpanningForest(2**25, 1), ValueError, "2^24 vertices"),
    ],
)
def test_arguments_outside_their_range_are_refused(make: Any, error: Any, says: str) -> None:
    with pytest.raises(error) as info:
        make()
    assert says in str(info.value)


@pytest.mark.parametrize("statistic", assorted(8, 2), ids=str)
def test_relations_say_which_they_are(statistic: GraphStatistic) -> None:
    for relation in ("replace_one", "add_remove"):
        with pytest.raises(ValueError, match="must be 'edge' or 'node', got"):
            statistic.change(relation)
    if statistic.asserted:
        assert statistic.change("node").relation == "node"
    else:
        with pytest.raises(ValueError, match="asserted=True, or take relation 'edge'"):
            statistic.change("node")
    change = statistic.change("edge")
    assert change == pickle.loads(pickle.dumps(change))
    assert "any one pair of vertices" in str(change)
    with pytest.raises(ValueError, match="one of edge, node"):
        GraphChange(relation="replace_one")


def test_vertices_are_counted_in_summaries_and_named_in_reprs() -> None:
    statistic = Degrees(["x", "y", "z"], max_degree=2)
    assert "'x'" in repr(statistic)
    assert statistic.summary == "Degrees(vertices=3, max_degree=2, asserted=False)"
    assert statistic.labels == ("1", "2+")
    assert Degrees(3, max_degree=2, asserted=True).labels == ("1", "2")
    assert Edges(3).labels is None


@pytest.mark.slow
@pytest.mark.parametrize("statistic", assorted(8, 3), ids=str)
def test_no_element_adds_more_than_the_bounds(statistic: GraphStatistic) -> None:
    change = statistic.change("edge")
    for seed in range(20):
        rows = np.array(random_rows(8, 60, seed))
        _, added = statistic.all(statistic.init(), rows)
        assert change.low <= added.min()
        assert added.max() <= change.high


def test_no_edge_adds_more_where_degrees_are_asserted_in_vain() -> None:
    """What is more than counters were made for would stop a job, and tell of the degrees."""
    statistic = Triangles(9, max_degree=3, asserted=True)
    memory, most = statistic.init(), statistic.change("edge").high
    for edge in [*((u, v) for v in range(2, 9) for u in (0, 1)), (0, 1)]:
        memory, x = statistic.count(memory, statistic.read(edge)[0])
    assert x == most == 2  # of the seven triangles that the last edge closes


def test_where_columns_may_point_apart_masses_do_not_separate() -> None:
    assert not Binned(16).is_nonnegative
    column = Fraction(Binned(16).l2_sensitivity_squared)
    assert HighDegree(9, 2).change("edge").spread(Binned(16)).l2_squared == 16 * column
    assert Degrees(9, max_degree=2).change("edge").spread(Binned(16)).l2_squared == 80 * column
    assert HighDegree(9, 2).change("edge").spread(Simple2(1)).l2_squared == 6


def test_published_rows() -> None:
    """In columns, and in c^2 where all products of columns may be c^2."""
    equal = Arbitrary(np.ones((1, T)))
    D, rows = 5, {}
    for statistic in assorted(12, D):
        spread = statistic.change("edge").spread(equal)
        rows[str(statistic)] = spread.l1, int(spread.l2_squared)
    assert list(rows.values()) == [
        (1, 1),
        (3, 5),
        (3 * (D - 1), 5 * (D - 1) ** 2),
        (10, 100),
        (4 * comb(D - 1, 1), 8 * comb(D - 1, 1) ** 2),
        (2 * comb(10, 2), (2 * comb(10, 2)) ** 2),
        (4, 8),
        (8, 32),
        (8 * D - 4, 24 * D - 16),
        (8 * 11 - 8, 24 * 11 - 24),
        (18, 162),
        (54, 18 * 81),
    ]


def test_large_increments_have_the_mechanisms_of_small_ones() -> None:
    """A lattice that is fine against the whole change; it once was against 1, and too fine."""
    change = KStars(50, 5, max_degree=20).change("edge")
    chosen = dp.choose(1000, dp.ZCDP(0.5), change=change)
    assert chosen.mechanism.name == "ProfiledBLT"
    one = dp.choose(1000, dp.ZCDP(0.5), change=Edges(50).change("edge")).rows[0].max_stddev
    factor = 8**0.5 * comb(19, 4)
    assert chosen.rows[0].max_stddev == pytest.approx(factor * one, rel=0.1)
    assert chosen.rows[0].max_stddev <= factor * one * 1.001


@pytest.mark.parametrize("asserted", [False, True])
@pytest.mark.parametrize("D", [1, 2, 3, 6])
@pytest.mark.parametrize("kind", [SquareRoot, NormalizedBLT, BinaryTree], ids=lambda k: k.__name__)
def test_degrees_by_signs_are_no_more_than_claimed(kind: Any, D: int, asserted: bool) -> None:
    """Through R, in the orders of neighbours of either end: with gaps between them, and without.

    Most is changed where both ends get theirs in turns, far from the next: nearly what is claimed
    where products of columns far apart are small.
    """
    change = Degrees(40, max_degree=D, asserted=asserted).change("edge")
    more = D - 1 if asserted else D + 1
    whole, rng = 0.0, np.random.default_rng(D)
    for trial in range(40):
        horizon = 32 * more + 3 if trial < 2 else int(rng.choice((2 * more + 1, 40)))
        mechanism = kind(horizon)
        claimed = float(change.spread(mechanism).l2_squared)
        plain = replace(change, alternating=None).spread(mechanism).l2_squared
        assert claimed <= float(plain)
        signs = change.alternating * mechanism.l2_sensitivity_squared
        assert claimed == pytest.approx(min(float(plain), signs), rel=1e-6)
        steps = np.sort(rng.choice(horizon - 1, 2 * more, replace=False) + 1)
        first = np.sort(rng.permutation(2 * more)[:more])
        ends = [steps[first], np.delete(steps, first)]
        starts = int(rng.integers(0, horizon)) if rng.random() < 0.5 else 0
        if trial < 2:
            ends, starts = [np.arange(more) * 32 + 1 + end for end in (0, 1)], 0
        total = np.zeros((D + 1, horizon))
        for at in ends:
            x = np.searchsorted(at, np.arange(horizon), side="right")  # degrees without the pair
            for t in range(starts, horizon):
                with_it, without = min(x[t] + 1, D), min(x[t], D)
                total[with_it, t] += 1
                total[without, t] -= 1
        changed = np.diff(total[1:], axis=1, prepend=0)
        norm = float(((mechanism.encoder(horizon) @ changed.T) ** 2).sum())
        assert norm <= claimed * (1 + 1e-9)
        whole = max(whole, norm / claimed)
    assert whole > 0.3


def test_degrees_cost_less_by_signs() -> None:
    for kind, least, most in ((SquareRoot, 0.8, 0.9), (NormalizedBLT, 0.8, 0.9)):
        change = Degrees(40, max_degree=10).change("edge")
        plain = replace(change, alternating=None)
        one, other = (each.spread(kind(1000)).l2_squared for each in (change, plain))
        assert least < float(one / other) < most
    assert change.spread(Simple2(9)).l2_squared == 12 * 10 - 6

"""The spanning forest that grows by insertions: always one of least cost."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable

import numpy as np
import pytest

from beam_dpcount.statistics.spanning_forest import Forest

Row = tuple[int, int, int]


def grown(n: int, rows: Iterable[Row]) -> tuple[Forest, list[int]]:
    forest, costs, total = Forest.empty(n), [], 0
    for u, v, weight in rows:
        forest, amount = forest.insert(u, v, weight)
        total += amount
        costs.append(total)
    return forest, costs


def kruskal(n: int, rows: Iterable[Row]) -> int:
    trees, cost = list(range(n)), 0
    for weight, u, v in sorted((w, u, v) for u, v, w in rows):
        a, b = trees[u], trees[v]
        if a != b:
            trees = [a if tree == b else tree for tree in trees]
            cost += weight
    return cost


def check(forest: Forest, cost: int) -> None:
    """Rooted trees without cycles, of this cost."""
    n = len(forest.parents)
    assert forest.weights.sum() == cost
    assert ((forest.weights == 0) == (forest.parents == -1)).all()
    for u in range(n):
        for _ in range(n):
            u = int(forest.parents[u]) if u >= 0 else u
        assert u == -1


def test_all_orders_and_weights_of_four_vertices() -> None:
    pairs = list(itertools.combinations(range(4), 2))
    for order in itertools.permutations(range(1, 7)):
        rows = [(u, v, w) for (u, v), w in zip(pairs, order, strict=True)]
        forest, costs = grown(4, rows)
        assert costs == [kruskal(4, rows[:t]) for t in range(1, 7)]
        check(forest, costs[-1])
    for weights in itertools.product((1, 2), repeat=6):
        rows = [(v, u, w) for (u, v), w in zip(pairs, weights, strict=True)]
        assert grown(4, rows)[1] == [kruskal(4, rows[:t]) for t in range(1, 7)]


@pytest.mark.parametrize("most", [1, 3, 100])
def test_random_graphs_equal_networkx_at_every_step(most: int) -> None:
    nx = pytest.importorskip("networkx", reason="networkx is not installed: nothing to compare to")
    for seed, n in enumerate((3, 8, 30)):
        rng = random.Random(seed)
        pairs = rng.sample(list(itertools.combinations(range(n), 2)), min(120, n * (n - 1) // 2))
        rows = [(*rng.sample(pair, 2), rng.randint(1, most)) for pair in pairs]
        graph, (_, costs) = nx.Graph(), grown(n, rows)
        for (u, v, weight), cost in zip(rows, costs, strict=True):
            graph.add_edge(u, v, weight=weight)
            assert nx.minimum_spanning_tree(graph).size(weight="weight") == cost


def test_larger_graphs_equal_recomputation() -> None:
    rng = random.Random(7)
    pairs = rng.sample(list(itertools.combinations(range(200), 2)), 3000)
    rows = [(u, v, rng.randint(1, 50)) for u, v in pairs]
    forest, costs = grown(200, rows)
    assert costs[-1] == kruskal(200, rows)
    assert costs[500] == kruskal(200, rows[:501])
    check(forest, costs[-1])


def test_long_paths_are_turned_over() -> None:
    n = 300
    path = [(i, i + 1, n - i) for i in range(n - 1)]
    forest, costs = grown(n, [*path, (n - 1, 0, 1), (5, n - 3, 2)])
    assert costs[-1] == kruskal(n, [*path, (n - 1, 0, 1), (5, n - 3, 2)])
    check(forest, costs[-1])


def test_nothing_is_changed_in_place() -> None:
    forest, amount = Forest.empty(4).insert(0, 1, 5)
    assert amount == 5
    for array in forest:
        array.flags.writeable = False
    kept = [array.copy() for array in forest]
    for u, v, weight in [(1, 2, 3), (2, 3, 1), (0, 3, 2)]:
        forest.insert(u, v, weight)
    assert all(np.array_equal(a, b) for a, b in zip(forest, kept, strict=True))
    assert forest.insert(1, 0, 5) == (forest, 0)
    assert forest.insert(1, 0, 6)[0] is forest

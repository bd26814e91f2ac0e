"""Rollups: least squares over a public tree, and the joint change of all its levels."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from beam_dpcount.checks import ParameterError
from beam_dpcount.counters.hierarchy import Consistent, Hierarchy
from beam_dpcount.counters.levels import LevelsChange, LevelsUserChange, bounds_of
from beam_dpcount.counters.users import UserChange
from beam_dpcount.mechanisms import SmoothBinary


def tree_of(*fans: int) -> Hierarchy:
    paths: list[tuple[str, ...]] = [()]
    for fan in fans:
        paths = [(*path, f"{'.'.join(path)}{i}") for path in paths for i in range(fan)]
    return Hierarchy([f"level{i}" for i in range(len(fans))], paths)


UNEVEN = Hierarchy(
    ["a", "b"], [("x", "1"), ("y", "1"), ("y", "2"), ("z", "1"), ("x", "2"), ("x", "3")]
)


def dense(tree: Hierarchy) -> np.ndarray:
    """Which leaves are under which nodes."""
    return tree.all_sums(np.eye(tree.sizes[-1], dtype=np.int64)).T


@pytest.mark.parametrize("tree", [UNEVEN, tree_of(3, 2, 4), tree_of(5), tree_of(1, 3)])
def test_it_is_least_squares(tree):
    rng = np.random.default_rng(1)
    weights = tuple(int(w) for w in rng.integers(1, 9, tree.depth))
    of = Consistent(tree, weights)
    w = np.repeat(weights, tree.sizes).astype(float)
    counts = dense(tree)
    covariance = np.linalg.inv((counts.T * w**2) @ counts)
    noisy = rng.normal(size=(4, len(counts)))
    wanted = covariance @ counts.T @ (w[:, None] * noisy.T)
    np.testing.assert_allclose(of.leaves(noisy), wanted.T, atol=1e-12)
    variances = np.einsum("ij,jk,ik->i", counts, covariance, counts)
    np.testing.assert_allclose(np.concatenate(of.variances), variances, rtol=1e-12)


def test_a_level_without_a_share_is_the_sum_of_the_one_below():
    tree = Hierarchy(UNEVEN.levels, UNEVEN.leaves, shares=[0, 0, 1])
    of = Consistent(tree, tree.weights([1, 1, 1]))
    alone = of.variances[-1][0]
    for own, beneath in zip(of.variances, tree.beneath, strict=True):
        np.testing.assert_allclose(own, alone * beneath)


@pytest.mark.parametrize(
    ("fans", "most"),
    [((30, 30), (9.6, 7.6, 1.25)), ((6, 30, 25), (14.6, 14.4, 12.7, 1.25))],
)
def test_the_bars(fans, most):
    tree = tree_of(*fans)
    norms = [1.0] * tree.depth
    weights = tree.weights(norms)
    whole = sum(w * w for w in weights)
    found = [float(own.max()) * whole for own in Consistent(tree, weights).variances]
    assert all(x <= bar for x, bar in zip(found, most, strict=True)), found
    assert found[-1] > 1.24  # the quarter is used


@pytest.mark.parametrize("tree", [UNEVEN, tree_of(3, 4)])
def test_parents_are_the_sums_of_their_children_and_a_tick_is_computed_alone(tree):
    of, rng = Consistent(tree, tree.weights([1.0] * tree.depth)), np.random.default_rng(2)
    noisy = rng.normal(0, 1e5, (200, sum(tree.sizes)))
    digits = of.digits(1e4)
    whole = of.release(noisy, digits)
    starts = tree.starts
    for at, parents in enumerate(tree.parents):
        for node in range(tree.sizes[at]):
            children = whole[:, starts[at + 1] + np.flatnonzero(parents == node)]
            assert np.array_equal(whole[:, starts[at] + node], children.sum(axis=1))
    one_by_one = np.concatenate([of.release(row[None], digits) for row in noisy])
    assert np.array_equal(whole, one_by_one)


def test_sums_that_64_bits_do_not_hold_are_clipped():
    tree = tree_of(2, 3)
    of = Consistent(tree, tree.weights([1.0] * 3))
    weights = np.repeat(of.weights, tree.sizes)
    noisy = np.outer([1e30, -1e30], [6, 3, 3, *[1] * 6] * weights)
    whole = of.release(noisy, 6)
    assert np.array_equal(whole, tree.all_sums(whole[:, -6:]))
    assert (whole[0] > 0).all()
    assert (whole[1] < 0).all()


def test_the_stddev_of_every_node_is_that_of_what_is_released():
    tree, rng = UNEVEN, np.random.default_rng(3)
    of, sigma, runs = Consistent(tree, tree.weights([1.0] * 3)), 2000.0, 40_000
    digits = of.digits(sigma**2)
    noisy = rng.normal(0, sigma, (runs, sum(tree.sizes)))
    found = (of.release(noisy, digits) / 10**digits).std(axis=0)
    wanted = of.stddevs(sigma**2, digits)
    # Five standard errors; a wrong one by a sixteenth would be seen.
    assert np.all(np.abs(found / wanted - 1) < 5 / np.sqrt(2 * runs))
    exact = sigma * np.sqrt(np.concatenate(of.variances))
    assert np.all((wanted >= exact) & (wanted < 1.001 * exact))


def moved(tree, weights, rows, events, matrix):
    """||R d||^2 over all nodes, of events (leaf, tick)."""
    leaves = np.zeros((matrix.shape[1], tree.sizes[-1]), dtype=np.int64)
    for leaf, tick in events:
        leaves[tick, leaf] += 1
    xs = tree.all_sums(leaves) * np.repeat(weights, tree.sizes)
    return float(np.square(matrix @ xs).sum())


@pytest.mark.parametrize("tree", [UNEVEN, tree_of(2, 2)])
def test_no_event_changes_more(tree):
    weights, mechanism = (2, 3, 5), SmoothBinary(horizon=3)
    matrix = np.asarray(mechanism.encoder(3), dtype=float)
    change = LevelsChange(weights=weights)
    _, squared = change.norms(mechanism, 1.0, None)
    found = max(
        moved(tree, weights, 3, [(leaf, tick)], matrix)
        for leaf in range(tree.sizes[-1])
        for tick in range(3)
    )
    assert found == pytest.approx(float(squared))


CASES = [(1, 1, 1), (3, 3, 1), (3, 1, 3), (3, 2, 2), (4, 2, 1), (2, 9, 9), (3, 2, 3)]


@pytest.mark.parametrize("tree", [UNEVEN, tree_of(2, 2)])
@pytest.mark.parametrize(("events", "keys", "per_key"), CASES)
def test_no_person_changes_more(tree, events, keys, per_key):
    weights, mechanism, ticks = (2, 3, 5), SmoothBinary(horizon=2), 2
    matrix = np.asarray(mechanism.encoder(ticks), dtype=float)
    plain = UserChange(events=events, keys=min(keys, tree.sizes[-1]), per_key=min(per_key, events))
    bounds = bounds_of(tree, plain)
    change = LevelsUserChange(
        events=plain.events, keys=plain.keys, per_key=plain.per_key, weights=weights, bounds=bounds
    )
    l1, squared = change.norms(mechanism, 1.0, None)
    worst = 0.0
    cells = list(product(range(tree.sizes[-1]), range(ticks)))
    for many in range(1, events + 1):
        for some in product(cells, repeat=many):
            if list(some) != sorted(some):
                continue
            of_leaf = np.bincount([leaf for leaf, _ in some])
            if np.count_nonzero(of_leaf) <= keys and of_leaf.max() <= per_key:
                worst = max(worst, moved(tree, weights, ticks, some, matrix))
    assert worst <= float(squared) * (1 + 1e-12)
    # Tight where all events may lie under one region.
    total = min(plain.events, plain.keys * plain.per_key)
    if bounds[1][1] == total:
        assert worst == pytest.approx(float(squared))
    assert l1 > 0


def test_the_root_is_calibrated_to_its_own_allocation():
    tree, mechanism = tree_of(4, 4), SmoothBinary(horizon=4)
    plain = UserChange(events=5, keys=5, per_key=1)
    bounds = bounds_of(tree, plain)
    column = Fraction(mechanism.l2_sensitivity_squared)
    for weights, wanted in (((1, 0, 0), 25), ((0, 1, 0), 17), ((0, 0, 1), 5)):
        change = LevelsUserChange(events=5, keys=5, per_key=1, weights=weights, bounds=bounds)
        assert change.reach(mechanism, 1.0).l2_squared == wanted * column


@pytest.mark.parametrize(
    ("levels", "leaves", "shares", "said"),
    [
        ([], [("a",)], None, "levels"),
        (["x", "x"], [("a", "b")], None, "distinct"),
        (["level"], [("a",)], None, "another column"),
        (["x"], [], None, "empty"),
        (["x"], ["a"], None, "not a path"),
        (["x"], [("a", "b")], None, "has 1 texts"),
        (["x"], [("a",), ("a",)], None, "twice"),
        (["x"], [("",)], None, "not empty"),
        (["x"], [("a",)], [1], "must be 2 numbers"),
        (["x"], [("a",)], [1, 0], "above 0"),
    ],
)
def test_what_is_no_tree_is_refused(levels, leaves, shares, said):
    with pytest.raises(ParameterError, match=said):
        Hierarchy(levels, leaves, shares)

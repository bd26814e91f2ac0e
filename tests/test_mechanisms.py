"""Facts about single mechanisms: published errors, shapes, and rules followed from definitions."""

from __future__ import annotations

import itertools
from math import comb

import numpy as np
import pytest

import beam_dpcount as dp
from beam_dpcount.mechanisms import BinaryTree, SmoothBinary
from tests.scripted import Script, random_script


def errors(mechanism):
    """Largest and mean variance at rho = 1/2, where sigma^2 is the squared sensitivity."""
    counter = dp.calibrate(mechanism, dp.ZCDP(0.5))
    return counter.max_variance(), counter.mean_variance()


# Reference errors


@pytest.mark.parametrize(
    ("horizon", "largest", "mean"),
    [(2**10, 110, 55.0), (2**16, 272, 136.0), (2**20, 420, 210.0)],
)
def test_reference_errors_of_the_binary_tree(horizon, largest, mean):
    seen = errors(BinaryTree(horizon))
    assert seen[0] == pytest.approx(largest, rel=1e-9)
    assert seen[1] == pytest.approx(mean, abs=0.05)


def test_reference_errors_of_the_smooth_binary_mechanism():
    largest, mean = errors(SmoothBinary(2**10))
    assert largest == pytest.approx(40, rel=1e-9)
    assert mean == pytest.approx(35.1, abs=0.05)
    assert errors(SmoothBinary(2**20))[0] == pytest.approx(130, rel=1e-9)


def test_every_release_of_the_balanced_variant_has_the_same_variance():
    counter = dp.calibrate(SmoothBinary(2**10, balanced=True), dp.ZCDP(0.5))
    by_step = [counter.variance(t) for t in range(1, 2**10 + 1)]
    assert by_step == pytest.approx([49] * 2**10, rel=1e-9)
    assert counter.stddevs(2**10) == pytest.approx([7] * 2**10, rel=1e-9)
    assert errors(counter.mechanism) == pytest.approx((49, 49), rel=1e-9)
    assert errors(SmoothBinary(2**20, balanced=True))[0] == pytest.approx(144, rel=1e-9)


def test_the_published_ratio_of_largest_variances():
    horizon = 10_400_599  # the last below C(26, 13)
    tree, smooth = BinaryTree(horizon), SmoothBinary(horizon, balanced=True)
    assert smooth.shape == (26, 13)
    assert errors(tree)[0] / errors(smooth)[0] == pytest.approx(3.27, abs=0.005)
    assert SmoothBinary(horizon + 1, balanced=True).shape == (28, 14)


def test_closed_forms_need_no_pass_over_the_horizon():
    """At 2^40 a pass would never end. Values from the definition of the popcount and of (h, k)."""
    tree, smooth = BinaryTree(2**40), SmoothBinary(2**40)
    assert tree.l1_sensitivity == tree.l2_sensitivity_squared == 41
    assert tree.max_row_norm2() == 40
    assert tree.mean_row_norm2() == pytest.approx(20 + 1 / 2**40, rel=1e-15)
    assert tree.row_norm2(2**40 - 1) == 40
    assert tree.row_norm2(2**40) == 1
    assert tree.state_size == 42
    h, k = smooth.shape
    assert smooth.max_row_norm2() == h - k
    assert h - k - 2 < smooth.mean_row_norm2() < h - k
    assert smooth.row_norm2(h - k) == h - k
    assert smooth.row_norm2(comb(h - 1, k - 1)) == 1


# Shapes of the smooth binary mechanism


@pytest.mark.parametrize(
    ("horizon", "shape"), [(1, (2, 1)), (5, (4, 2)), (2**10, (13, 8)), (2**20, (23, 13))]
)
def test_shapes(horizon, shape):
    assert SmoothBinary(horizon).shape == shape


def test_shapes_are_the_true_minimum_of_the_largest_variance():
    """min k (h-k) subject to C(h, k) >= T+1, ties to the larger k, by trying every pair."""
    pairs = [
        (k * (h - k), -k, h, comb(h, k))
        for h in range(2, 3002)
        for k in range(1, h)
        if k * (h - k) <= 64
    ]
    pairs.sort()
    for horizon in range(1, 3001):
        product, minus_k, h, _ = next(p for p in pairs if p[3] >= horizon + 1)
        assert SmoothBinary(horizon).shape == (h, -minus_k), (horizon, product)


def test_shapes_of_the_balanced_variant_are_the_least_even_heights():
    for horizon in range(1, 3001):
        h, k = SmoothBinary(horizon, balanced=True).shape
        assert h == 2 * k
        assert comb(h, k) >= horizon + 1
        assert k == 1 or comb(h - 2, k - 1) < horizon + 1


@pytest.mark.slow
def test_the_balanced_variant_declares_at_least_its_exact_sensitivity():
    """It keeps the paper's k, which is exact if and only if the first subtree is filled."""
    below = 0
    for horizon in (*range(1, 65), 100, 257, 1000, 1715, 1716):
        mechanism = SmoothBinary(horizon, balanced=True)
        h, k = mechanism.shape
        R = mechanism.encoder(horizon)
        assert set(np.unique(R)) <= {0, 1}
        exact = R.sum(axis=0).max()
        assert mechanism.l1_sensitivity == mechanism.l2_sensitivity_squared == k
        assert exact <= k
        assert (exact == k) == (horizon >= comb(h - 1, k - 1)), horizon
        below += exact < k
    assert below > 0


# Rules


def names(mechanism, n):
    """The coordinates in each of the first n releases, seen by scripts of single noises."""
    drawn = mechanism.decoder(n).shape[1]
    nothing = np.zeros((n, drawn), dtype=np.int64)
    seen = mechanism.release(nothing, Script(np.eye(drawn)))
    assert set(np.unique(seen)) <= {0, 1}
    return [tuple(np.flatnonzero(row) + 1) for row in seen]


def test_the_worked_example_of_the_smooth_binary_mechanism():
    """T = 5, (h, k) = (4, 2), leaves 0011 0101 0110 1001 1010 1100."""
    assert names(SmoothBinary(5), 5) == [(1,), (1, 2), (3,), (3, 4), (3, 5)]


def test_the_worked_example_of_the_binary_tree():
    assert names(BinaryTree(8), 8) == [(1,), (2,), (2, 3), (4,), (4, 5), (4, 6), (4, 6, 7), (8,)]


def by_definition(horizon, shape, balanced):
    """Terms of every release, from the list of all leaves: (items of the node, coordinate).

    Release t has one term for every 1-bit i of v_{t+1}: the node of all leaves v with
    v >> i = (v_{t+1} >> i) - 1. A node's coordinate is given when it is first used; those of the
    nodes without items come first, low bits first.
    """
    h, k = shape
    leaves = sorted(sum(1 << b for b in ones) for ones in itertools.combinations(range(h), h - k))
    items = {}
    for i in range(h):
        for position, v in enumerate(leaves, start=1):
            items.setdefault((i, v >> i), []).append(position)
    coordinates, releases = {}, []
    for t in range(1, horizon + 1):
        v = leaves[t]
        nodes = [(i, (v >> i) - 1) for i in range(h) if v >> i & 1]
        filled = [node for node in nodes if node in items]
        empty = [node for node in nodes if node not in items] if balanced else []
        assert sorted(itertools.chain(*(items[node] for node in filled))) == list(range(1, t + 1))
        for node in (*empty, *filled):
            assert node not in empty or node not in coordinates
            coordinates.setdefault(node, len(coordinates) + 1)
        releases.append([coordinates[node] for node in (*empty, *filled)])
    return releases


@pytest.mark.parametrize("balanced", [False, True])
def test_steps_follow_the_definition_of_the_smooth_binary_mechanism(balanced):
    for horizon in (*range(1, 40), 70, 127, 128, 251, 252, 300):
        mechanism = SmoothBinary(horizon, balanced)
        releases = by_definition(horizon, mechanism.shape, balanced)
        drawn = max(map(max, releases))
        noise = random_script(drawn, seed=horizon)
        state, total = mechanism.init(), 0
        for t, terms in enumerate(releases, start=1):
            total += t % 7
            state, value = mechanism.step(state, t % 7, noise)
            assert value == total + sum(int(noise.z[c - 1]) for c in terms), (horizon, t)
            assert mechanism.row_norm2(t) == len(terms)
            assert noise.drawn == list(range(1, max(map(max, releases[:t])) + 1))


def test_the_balanced_variant_keeps_the_contract_too():
    """`ALL` makes the default; the paper's variant is checked here in the same ways."""
    for horizon in (*range(1, 41), 257):
        mechanism = SmoothBinary(horizon, balanced=True)
        h, k = mechanism.shape
        for n in {1, horizon // 2, horizon} - {0}:
            L, R = mechanism.decoder(n), mechanism.encoder(n)
            assert np.array_equal(L @ R, np.tri(n))
            assert np.array_equal(mechanism.row_norms2(n), np.square(L).sum(axis=1))
            assert (np.square(L).sum(axis=1) == h - k).all()
            xs = np.random.default_rng(n).integers(-9, 10, (n, 2))
            stepped, whole = (random_script(L.shape[1], 2, seed=n) for _ in range(2))
            released = mechanism.release(xs, whole)
            assert np.array_equal(released - np.cumsum(xs, axis=0), L @ whole.z)
            state = mechanism.init(2)
            for t in range(n):
                state, value = mechanism.step(state, xs[t], stepped)
                assert np.array_equal(value, released[t])
                assert len(state) <= mechanism.counters + 1 + min(horizon, h - k)
                assert mechanism.state_row_norm2(state) == h - k
            assert stepped.drawn == whole.drawn == list(range(1, L.shape[1] + 1))


def test_only_the_default_smooth_mechanism_is_the_default():
    assert SmoothBinary(9) == SmoothBinary(9, balanced=False) != SmoothBinary(9, balanced=True)
    assert eval(repr(SmoothBinary(9, balanced=True))) == SmoothBinary(9, balanced=True)


@pytest.mark.parametrize("horizon", [1, 2, 3, 7, 8, 100, 1023, 1024])
def test_the_height_of_the_binary_tree_counts_the_nodes_of_an_item(horizon):
    """ceil(log2(T+1)): the item in most of the nodes [t - lowbit(t) + 1, t], counted one by one."""
    nodes = [(t - (t & -t), t) for t in range(1, horizon + 1)]
    most = max(sum(a < s <= b for a, b in nodes) for s in range(1, horizon + 1))
    assert BinaryTree(horizon).l1_sensitivity == BinaryTree(horizon).l2_sensitivity_squared == most

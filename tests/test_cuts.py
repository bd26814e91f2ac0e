"""CutWeights: what an update counts and can change; values of cuts, and bounds on their error."""

from __future__ import annotations

import itertools
import math
import pickle
import sys
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import beam_dpcount as dp
from beam_dpcount.budget.budgets import Budget
from beam_dpcount.mechanisms import BLT, BinaryTree, KAry, SquareRoot
from beam_dpcount.mechanisms.rounded import RoundedMechanism
from beam_dpcount.noise.laws import DiscreteLaplace
from beam_dpcount.statistics.cut_values import (
    Cut,
    cut,
    cut_error_bound,
    maximum_cut,
    minimum_cut,
    stddev_of_cut,
)
from beam_dpcount.statistics.cuts import (
    LOOP,
    NOT_A_NUMBER,
    NOT_AN_UPDATE,
    OUT_OF_RANGE,
    UNKNOWN,
    CutChange,
    CutWeights,
    pair_place,
)
from tests.audit import exact as audits
from tests.audit.exact import audit
from tests.hostile import Unshowable

NAMES = CutWeights(["ann", "bob", "cem"], unit=0.25)
NUMBERS = CutWeights(4, unit=0.01)
SECRET = "s3cr3t"


# What an update counts

READ: list[tuple[CutWeights, Any, tuple[int, int, int], str | None]] = [
    (NAMES, ("ann", "bob"), (0, 1, 4), None),
    (NAMES, ("cem", "ann"), (0, 2, 4), None),
    (NAMES, ["bob", "cem", -1], (1, 2, -4), None),
    (NAMES, ("bob", "cem", 0.3), (1, 2, 1), None),
    (NAMES, ("bob", "cem", Decimal("0.5")), (1, 2, 2), None),
    (NAMES, ("bob", "cem", Fraction(-1, 2)), (1, 2, -2), None),
    (NAMES, ("bob", "cem", np.float32(1)), (1, 2, 4), None),
    (NAMES, np.array(["ann", "bob"]), (0, 1, 4), None),
    (NAMES, ("ann", "bob", 0), (0, 1, 0), None),
    (NAMES, ("ann", "ann"), (0, 0, 0), LOOP),
    (NAMES, ("ann", "dan", 1), (0, 0, 0), UNKNOWN),
    (NAMES, (0, 1), (0, 0, 0), UNKNOWN),
    (NAMES, (Unshowable(), "bob"), (0, 0, 0), UNKNOWN),
    (NAMES, ("ann", "bob", 1.0001), (0, 0, 0), OUT_OF_RANGE),
    (NAMES, ("ann", "bob", -math.inf), (0, 0, 0), OUT_OF_RANGE),
    (NAMES, ("ann", "bob", 10**400), (0, 0, 0), OUT_OF_RANGE),
    (NAMES, ("ann", "bob", math.nan), (0, 0, 0), NOT_A_NUMBER),
    (NAMES, ("ann", "bob", Decimal("nan")), (0, 0, 0), NOT_A_NUMBER),
    (NAMES, ("ann", "bob", True), (0, 0, 0), NOT_A_NUMBER),
    (NAMES, ("ann", "bob", "1"), (0, 0, 0), NOT_A_NUMBER),
    (NAMES, ("ann", "bob", None), (0, 0, 0), NOT_A_NUMBER),
    (NAMES, ("ann", "bob", Unshowable()), (0, 0, 0), NOT_A_NUMBER),
    (NAMES, ("ann",), (0, 0, 0), NOT_AN_UPDATE),
    (NAMES, ("ann", "bob", 1, 1), (0, 0, 0), NOT_AN_UPDATE),
    (NAMES, "ab", (0, 0, 0), NOT_AN_UPDATE),
    (NAMES, {"ann", "bob"}, (0, 0, 0), NOT_AN_UPDATE),
    (NAMES, None, (0, 0, 0), NOT_AN_UPDATE),
    (NUMBERS, (3, 1, -0.5), (1, 3, -50), None),
    (NUMBERS, (np.int64(0), 1), (0, 1, 100), None),
    (NUMBERS, np.array([0, 2, 1]), (0, 2, 100), None),
    (NUMBERS, (0, 4), (0, 0, 0), UNKNOWN),
    (NUMBERS, (-1, 0), (0, 0, 0), UNKNOWN),
    (NUMBERS, (True, 0), (0, 0, 0), UNKNOWN),
    (NUMBERS, (0.0, 1), (0, 0, 0), UNKNOWN),
    (NUMBERS, ("0", 1), (0, 0, 0), UNKNOWN),
]


@pytest.mark.parametrize("case", range(len(READ)))
def test_what_an_update_counts(case: int) -> None:
    statistic, payload, codes, reason = READ[case]
    given = statistic.read(payload)
    assert given == (codes, reason)
    assert all(type(code) is int for code in given[0])


def test_coordinates() -> None:
    assert NAMES.labels == ("ann-bob", "ann-cem", "bob-cem")
    assert NUMBERS.labels == ("0-1", "0-2", "0-3", "1-2", "1-3", "2-3")
    assert (NUMBERS.dimension, NUMBERS.width, NUMBERS.empty) == (6, 3, (0, 0, 0))
    for n in (2, 3, 7):
        pairs = itertools.combinations(range(n), 2)
        assert [pair_place(n, u, v) for u, v in pairs] == list(range(n * (n - 1) // 2))
    assert NUMBERS.summary == "weights of the 6 pairs of 4 vertices"
    assert pickle.loads(pickle.dumps(NAMES)) == NAMES
    assert NAMES.vertices == ("ann", "bob", "cem")
    assert "0.25" in repr(NAMES)
    assert NAMES.unpack(NAMES.pack(NAMES.init())) is None  # type: ignore[func-returns-value]
    with pytest.raises(ValueError, match="remember nothing"):
        NAMES.unpack(b"x")


def test_many_steps_are_those_of_each() -> None:
    rng = np.random.default_rng(1)
    pairs = np.array(list(itertools.combinations(range(4), 2)))
    codes = np.column_stack([pairs[rng.integers(0, 6, 50)], rng.integers(-100, 101, 50)])
    codes[::7] = NUMBERS.empty
    memory, added = NUMBERS.all(None, codes)
    assert memory is None
    assert added.dtype == np.int64
    single = [NUMBERS.vector(NUMBERS.step(None, tuple(row))[1]) for row in codes.tolist()]
    assert np.array_equal(added, single)
    assert NUMBERS.all(None, np.zeros((0, 3), dtype=np.int64))[1].shape == (0, 6)


@pytest.mark.parametrize(
    ("vertices", "unit", "message"),
    [
        (["a", "a-b", "b-c", "c"], 1, "same label"),
        (3, 0.3, "must divide 1"),
        (3, 2, "from 2"),
    ],
)
def test_bad_arguments(vertices: Any, unit: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        CutWeights(vertices, unit)
    assert CutWeights(["a-b", "c-d"]).labels == ("a-b-c-d",)  # one pair, whatever it is called


def test_changes() -> None:
    assert NAMES.change("add_remove") == CutChange(unit=NAMES.unit)
    with pytest.raises(ValueError, match="neighbouring relation"):
        NAMES.change("other")
    with pytest.raises(ValueError, match=r"weights lie in \(-1, 1\)"):
        CutChange(low=0)
    with pytest.raises(ValueError, match="leave coordinates out"):
        CutChange(coordinates=1)
    assert "whether any one update is there" in str(CutChange())


# What one update can change, by brute force


def updates(n: int, weights: tuple[float, ...]) -> list[tuple[float, ...]]:
    """All that one step can count, as vectors."""
    pairs = n * (n - 1) // 2
    return [tuple(np.eye(pairs)[pair] * weight) for pair in range(pairs) for weight in weights]


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
@pytest.mark.parametrize("kind", [BinaryTree, KAry, SquareRoot, BLT])
@pytest.mark.parametrize("n", [2, 3])
def test_norms_are_what_all_pairs_of_neighbours_reach(n: int, kind: Any, relation: str) -> None:
    mechanism, change, unit = kind(3 if n == 2 else 2), CutChange(relation=relation, unit=0.5), 0.5
    pairs = n * (n - 1) // 2
    l1, l2_squared = change.norms(mechanism, unit, pairs)
    law = DiscreteLaplace(Fraction(1))
    counter = dp.Counter(mechanism, dp.ZCDP(1.0), law, change, pairs, unit)
    found = audits.differences(counter, updates(n, (-1, -0.5, 0.5, 1)))
    reached = max(int(size.sum()) for size in found), max(int(size @ size) for size in found)
    if isinstance(mechanism, RoundedMechanism):
        assert 0.999 * l1 <= reached[0] <= l1
        assert 0.999 * l2_squared <= reached[1] <= l2_squared
    else:
        assert reached == (l1, l2_squared)


@pytest.mark.parametrize("budget", [dp.PureDP(1.0), dp.ZCDP(0.3), dp.ApproxDP(1.0, 1e-3)])
@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
def test_the_exact_loss_keeps_the_budget(relation: str, budget: Budget) -> None:
    values = updates(3, (-1, 1))
    kinds = [BinaryTree] if isinstance(budget, dp.PureDP) else [BinaryTree, SquareRoot]
    for kind in kinds:
        counter = dp.calibrate(kind(2), budget, NAMES.change(relation), 3, NAMES.unit)
        assert audit(counter, values) == []
    # The mutant: noise for updates that come or go, data that are replaced.
    counter = dp.calibrate(BinaryTree(2), budget, CutChange(unit=0.25), 3, 0.25)
    replaced = dp.Counter(
        *(counter.mechanism, budget, counter.law),
        *(CutChange(relation="replace_one", unit=0.25), 3, 0.25),
    )
    assert audit(replaced, values) == ["budget"]


def test_the_noise_does_not_depend_on_the_unit() -> None:
    coarse, fine = (
        dp.calibrate(BLT(100), dp.ZCDP(0.1), CutChange(unit=unit), 3, unit) for unit in (1, 0.01)
    )
    assert math.isclose(coarse.max_variance(), fine.max_variance(), rel_tol=1e-3)
    assert math.isclose(fine.l2_sensitivity**2, BLT(100).l2_sensitivity_squared, rel_tol=1e-3)


def test_releases_are_the_weights() -> None:
    counter = dp.calibrate(BinaryTree(3), dp.ZCDP(1e12), NAMES.change("add_remove"), 3, 0.25)
    stream = [("ann", "bob", 0.75), ("ann", "dan", 1), ("cem", "bob", -0.25)]
    codes = np.array([NAMES.read(payload)[0] for payload in stream])
    released = counter.release(NAMES.all(None, codes)[1] * NAMES.unit)
    assert released.tolist() == [[0.75, 0, 0], [0.75, 0, 0], [0.75, 0, -0.25]]


# Values of cuts


def brute(weights: Any, n: int, side: Any, other: Any) -> float:
    pairs = itertools.combinations(range(n), 2)
    return sum(
        weight
        for weight, (u, v) in zip(weights, pairs, strict=True)
        if (u in side and v in other) or (v in side and u in other)
    )


def test_cuts() -> None:
    rng = np.random.default_rng(2)
    weights = rng.normal(size=10).tolist()
    for assignment in itertools.product(range(3), repeat=5):
        side, other, _ = ({v for v in range(5) if assignment[v] == k} for k in range(3))
        if side and other:
            assert math.isclose(
                cut(weights, 5, side, other), brute(weights, 5, side, other), abs_tol=1e-12
            )
            if len(side | other) == 5:
                assert cut(weights, 5, side) == cut(weights, 5, side, other)
    named = cut([1.0, 2.0, 4.0], ["ann", "bob", "cem"], ["cem"], {"ann"})
    assert named == 2.0
    assert stddev_of_cut(3.0, 2, 8) == 12.0


@pytest.mark.parametrize(
    ("side", "other", "message"),
    [
        ([0], [0, 1], "share a vertex"),
        ([], None, "side is empty"),
        ([0, 1, 2], None, "other is empty"),
        ([5], None, "holds 5"),
        ("01", None, "must be a collection"),
        ([True], None, "holds True"),
    ],
)
def test_bad_cuts(side: Any, other: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cut([1.0, 2.0, 4.0], 3, side, other)
    with pytest.raises(ValueError, match="3 pairs, but weights have shape"):
        cut([1.0], 3, [0])
    with pytest.raises(ValueError, match="side must be a number"):
        stddev_of_cut(1.0, 0, 1)


def all_cuts(weights: Any, n: int) -> list[Cut]:
    found = []
    for inside in itertools.product((False, True), repeat=n - 1):
        side = (0, *(v for v in range(1, n) if inside[v - 1]))
        other = tuple(v for v in range(n) if v not in side)
        if other:
            found.append(Cut(brute(weights, n, side, other), side, other))
    return found


@pytest.mark.parametrize("n", [2, 3, 6, 8])
def test_least_and_largest_cuts(n: int) -> None:
    pytest.importorskip("networkx")
    rng = np.random.default_rng(n)
    for shift in (0.0, 0.5):
        weights = rng.normal(size=n * (n - 1) // 2) + shift
        least = min(all_cuts(np.maximum(weights, 0), n))
        found = minimum_cut(weights, n)
        assert math.isclose(brute(np.maximum(weights, 0), n, *found[1:]), least.value, abs_tol=1e-9)
        assert math.isclose(found.value, brute(weights, n, *found[1:]))
        largest = max(all_cuts(weights, n))
        found = maximum_cut(weights, n)
        assert found[1:] == largest[1:]
        assert math.isclose(found.value, largest.value)


def test_a_large_cut_of_many_vertices() -> None:
    pytest.importorskip("networkx")
    rng = np.random.default_rng(3)
    names = [f"v{i}" for i in range(24)]
    planted = np.array([(u < 12) != (v < 12) for u, v in itertools.combinations(range(24), 2)])
    weights = planted + rng.normal(size=len(planted)) * 0.2
    found = maximum_cut(weights, names)
    assert found == maximum_cut(weights, names)
    assert found.side == tuple(names[:12])
    assert found.value == cut(weights, names, names[:12])
    noise = rng.normal(size=len(planted))
    clipped = np.maximum(noise, 0)
    assert cut(clipped, names, maximum_cut(noise, names).side) >= clipped.sum() / 2


def test_without_networkx(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "networkx", None)
    with pytest.raises(ImportError, match=r"pip install 'beam-dpcount\[graphs\]'"):
        minimum_cut([1.0, 2.0, 4.0], 3)
    assert maximum_cut([1.0, 2.0, 4.0], 3) == Cut(6.0, (0, 1), (2,))


# Bounds on their error


def sided(n: int, s: int, p: int) -> np.ndarray:
    """Which pairs cross, for all pairs of disjoint sets of these sizes: shape (pairs, cuts)."""
    columns = []
    for side in itertools.combinations(range(n), s):
        rest = [v for v in range(n) if v not in side]
        for other in itertools.combinations(rest, p):
            if s < p or side < other:
                crossing = [
                    (u in side and v in other) or (v in side and u in other)
                    for u, v in itertools.combinations(range(n), 2)
                ]
                columns.append(crossing)
    return np.array(columns, dtype=float).T


@pytest.mark.parametrize("kind", [BinaryTree, BLT])
@pytest.mark.parametrize(("s", "p"), [(1, 1), (2, 3), (1, 5)])
def test_the_bound_holds_as_often_as_it_says(s: int, p: int, kind: Any) -> None:
    """False alarm: a binomial of 300 at 1/3 exceeds 130 with probability below 3e-4."""
    n, steps, runs = 6, 8, 300
    counter = dp.calibrate(kind(steps), dp.ZCDP(0.5), CutChange(unit=0.25), n * (n - 1) // 2, 0.25)
    crossing = sided(n, s, p)
    counted = math.comb(n, s) * math.comb(n - s, p) // (2 if s == p else 1)
    assert crossing.shape == (counter.dimension, counted)
    silence = np.zeros((steps, n * (n - 1) // 2))
    errors = np.array([np.abs(counter.release(silence) @ crossing).max() for _ in range(runs)])
    bound = cut_error_bound(counter, s, p)
    assert (errors > bound).sum() <= 130
    assert (errors > bound / 2).mean() > 1 / 3  # it is no more than that too large
    one = cut_error_bound(counter, s, p, t=3, every=False)
    assert one < cut_error_bound(counter, s, p, t=3) <= bound
    deviation = math.sqrt(counter.variance(3)) * math.sqrt(s * p)
    assert math.isclose(deviation, stddev_of_cut(counter.stddevs(3)[2], s, p))
    assert 1 < one / deviation < 2.1  # sqrt(2 ln 6) = 1.89, and what the unit adds


def test_bounds_with_laplace_noise() -> None:
    counter = dp.calibrate(BinaryTree(8), dp.PureDP(1.0), CutChange(unit=0.5), 15, 0.5)
    silence, crossing = np.zeros((8, 15)), sided(6, 3, 3)
    errors = [np.abs(counter.release(silence) @ crossing).max() for _ in range(200)]
    bound = cut_error_bound(counter, 3, 3, 0.05)
    assert np.mean(np.array(errors) > bound) < 0.12
    assert np.median(errors) > bound / 3


def test_the_published_bound_cannot_hold_for_all_cuts() -> None:
    """[FHU22, Corollary 1], one vertex against one, T = 1: n does not enter, but n^2 noises do."""
    psi = 1.0  # of one step: R = L = 1
    published = 3 * psi * math.sqrt(2 * math.log(2) * math.log(6))  # in standard deviations
    pairs = 1000 * 999 // 2
    above = math.erfc(published / math.sqrt(2))
    assert 1 - (1 - above) ** pairs > 1 / 3


def test_bad_bounds() -> None:
    counter = dp.calibrate(BinaryTree(8), dp.ZCDP(1), CutChange(unit=0.5), 15, 0.5)
    for s, p, beta, message in (
        (0, 1, 0.1, "side must be"),
        (1, True, 0.1, "other must be"),
        (4, 3, 0.1, "more than the 6"),
        (1, 1, 0, "beta must be"),
    ):
        with pytest.raises(ValueError, match=message):
            cut_error_bound(counter, s, p, beta)
    with pytest.raises(ValueError, match="t must be"):
        cut_error_bound(counter, 1, 1, t=9)
    with pytest.raises(ValueError, match="are not the pairs"):
        cut_error_bound(dp.calibrate(BinaryTree(8), dp.ZCDP(1), CutChange(unit=0.5), 4, 0.5), 1, 1)


class Large(float):
    """A small number that becomes a large one."""

    def __float__(self) -> float:
        return 1e6


def test_a_type_cannot_say_that_its_numbers_are_small() -> None:
    (_, _, units), reason = CutWeights(5, 0.25).read((0, 1, Large(0.5)))
    assert (units, reason) == (0, OUT_OF_RANGE)


def test_a_counter_of_another_unit_is_refused() -> None:
    """One update would be 100 units, of which the noise would know 1."""
    statistic = CutWeights(3, 0.01)
    with pytest.raises(ValueError, match=r"unit must be that of the weights, 0\.01, got 1"):
        dp.calibrate(BinaryTree(4), dp.PureDP(1.0), statistic.change("add_remove"), 3)

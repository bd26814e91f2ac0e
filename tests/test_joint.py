"""What one event, or one person, changes in several metrics: every event, every subset, exactly."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

import beam_dpcount as dp
from beam_dpcount import mechanisms
from beam_dpcount.counters.joint import JointChange, JointUserChange, worst_allocation
from beam_dpcount.counters.users import column_cost, worst
from beam_dpcount.mechanisms.rounded import RoundedMechanism
from beam_dpcount.statistics.metrics.joint import Joint
from tests.audit.exact import keeps_budget

m = dp.metrics
# Small lattices, so that all events can be tried: x from -2 to 3, y from 0 to 4.
X, Y = (-2, 3, 1), (0, 4, 1)
FIELDS: dict[str, list[Any]] = {
    "x": [None, -2, -1, 0, 1, 2, 3],
    "y": [None, 0, 1, 2, 3, 4],
    "z": [None, "a", ["a", "b"], ["c", "d", "q"], ["b", "d"], list("abcd"), "q"],
}
METRICS: list[Any] = [
    m.Count(weight=0.5),
    m.Sum("x", *X, weight=2),
    m.Mean("y", *Y),
    m.Variance("x", *X),
    m.Quantiles("y", 0, 4, [0.5], leaves=4, branching=2),
    m.People(weight=1.5),
]
RATE, ITEMS = m.Rate("y >= 3", weight=0.7), m.Items("x", ["-2", "3", "1"], weight=3)
SEVERAL = m.Items("z", list("abcd"), max_items=2, weight=0.4)
THREE = m.Items("z", list("abc"), max_items=2)
BESIDE = [(RATE,), (ITEMS,), (SEVERAL,), (THREE,), (RATE, ITEMS), (METRICS[2], RATE, SEVERAL)]
SUBSETS = [s for n in range(1, 6) for s in itertools.combinations(METRICS[:5], n)]
SUBSETS += [*BESIDE, (*METRICS[:3], RATE, ITEMS)]
names = pytest.mark.parametrize(
    "chosen", SUBSETS, ids=lambda s: "+".join(type(metric).__name__ for metric in s)
)


def joint_of(chosen: Any) -> Joint:
    return Joint(tuple(metric.planned(False) for metric in chosen))


def events(joint: Joint) -> Iterator[dict[str, Any]]:
    """All that differ in what metrics read."""
    names = {name for metric in joint.metrics for name in metric.fields}
    for values in itertools.product(*(FIELDS[name] for name in names)):
        given = dict(zip(names, values, strict=True))
        yield {name: value for name, value in given.items() if value is not None}


def vectors(joint: Joint) -> np.ndarray:
    """What all events add, each vector once; the last is nothing."""
    found = set()
    for event in events(joint):
        vector = [0] * joint.width
        for place, amount in joint.additions(event):
            vector[place] += amount
        found.add(tuple(vector))
    return np.array([*found, (0,) * joint.width])


def change_of(joint: Joint, relation: str, **more: Any) -> JointChange:
    return JointChange(relation=relation, parts=joint.parts, most=4, **more)


@lru_cache(maxsize=16)
def gram(mechanism: Any) -> np.ndarray:
    R = mechanism.encoder(mechanism.horizon)
    return R.T @ R


def without_slack(change: Any, mechanism: Any, joint: Joint, touched: int) -> float:
    """The calibrated Delta_2^2, without what it has for rounding, in the joint's lattice."""
    squared = change.norms(mechanism, 1, joint.width)[1]
    fine = mechanism.resolution(change.magnitude(1), change.largest(1))
    slack = mechanism.slack(change.largest(1) * fine)[1] * math.sqrt(touched)
    return ((math.sqrt(squared) - slack) / fine) ** 2


@names
def test_every_event_is_within_the_norms_and_one_attains_them(chosen: Any) -> None:
    joint = joint_of(chosen)
    v = vectors(joint)
    l1, l2 = np.abs(v).sum(axis=1).max(), np.square(v).sum(axis=1).max()
    parts = joint.parts
    assert l2 <= sum(part.l2_squared for part in parts)
    assert l1 <= sum(part.l1 for part in parts)
    assert (np.abs(v) <= joint.limits).all()
    # Of one field, Sum and Variance have their largest at the same number; others are of y.
    assert l2 == sum(part.l2_squared for part in parts)
    assert l1 == sum(part.l1 for part in parts)
    touched = (v != 0).sum(axis=1).max()
    assert touched == sum(part.touched for part in parts)
    apart = np.square(v[:, None] - v[None]).sum(axis=2).max()
    assert apart <= sum(part.span_squared for part in parts)
    for metric, part in zip(joint.metrics, parts, strict=True):
        alone = vectors(replace_one(joint, metric))
        # Alone each metric's spans are exact, but those of Variance, whose sum and squares are not
        # furthest apart for the same two.
        apart = np.square(alone[:, None] - alone[None]).sum(axis=2).max()
        exact = apart == part.span_squared
        assert exact or (isinstance(metric, m.Variance) and apart > part.span_squared / 2)
        assert part.signed == bool((alone < 0).any() and (alone > 0).any())


@dataclass(frozen=True)
class Either(dp.metrics.Metric):
    """One of two sums, of sizes whose multipliers do not come out even."""

    width, touched, limits, spans, columns = 2, 1, (3, 5), (3, 5), ("either", "or")

    def additions(self, event: Any) -> Any:
        return ((0, 3),) if event["either"] else ((1, 5),)

    def measure(self, sums: Any, errors: Any, level: float) -> Any:
        raise NotImplementedError


def test_of_the_sums_that_an_event_may_touch_the_largest_counts() -> None:
    joint = Joint((Either(),))
    added = [joint.additions({"either": either}) for either in (False, True)]
    sizes = sorted(abs(amount) for ((_, amount),) in added)
    assert sizes == [80, 81]  # multiplied by 27 and 16
    (part,) = joint.parts
    assert (part.l1, part.l2_squared, part.largest) == (81, 81**2, 81)
    assert part.span_squared >= 80**2 + 81**2


def replace_one(joint: Joint, metric: Any) -> Any:
    """The joint of one metric, with the multipliers it has beside the others."""
    at = joint.metrics.index(metric)
    alone = Joint((metric,))
    mine = joint.multipliers[joint.starts[at] : joint.starts[at + 1]]
    object.__setattr__(alone, "multipliers", mine)
    return alone


def name_of(kind: Any) -> str:
    return str(kind.__name__)


KINDS: list[Any] = [
    mechanisms.SmoothBinary,
    mechanisms.BinaryTree,
    mechanisms.Honaker,
    mechanisms.NormalizedBLT,
    mechanisms.SquareRoot,
    lambda horizon: mechanisms.SquareRoot(horizon, momentum=0.5, decay=0.9),
    lambda horizon: mechanisms.SlidingBLT(horizon, 2),
]


@pytest.mark.parametrize("kind", KINDS, ids=[*map(name_of, KINDS[:5]), "momentum", "last"])
@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
@names
@pytest.mark.exhaustive("kind", "relation")
def test_no_pair_of_streams_exceeds_the_norms(chosen: Any, kind: Any, relation: str) -> None:
    """Of one event, at any two ticks, in one key or in two: every pair of what it may be."""
    joint, mechanism = joint_of(chosen), kind(4)
    g, v = gram(mechanism), vectors(joint)
    products = (v @ v.T).astype(float)
    own = np.diag(products)
    columns = np.diag(g)
    found = own.max() * columns.max()
    if relation == "replace_one":
        found *= 2  # in two keys
        for s, t in itertools.product(range(4), repeat=2):
            same = columns[s] * own[:, None] + columns[t] * own[None] - 2 * g[s, t] * products
            found = max(found, same.max())
    change = change_of(joint, relation)
    touched = sum(part.touched for part in joint.parts) * (1 + (relation == "replace_one"))
    bound = without_slack(change, mechanism, joint, touched)
    assert found <= bound * (1 + 1e-6)
    if relation == "add_remove":
        assert found == pytest.approx(bound, rel=1e-4)
    else:
        # Variance's spans are not exact; nor 4 where columns have negative products.
        assert found >= bound * (0.6 if mechanism.is_nonnegative else 0.5) * (1 - 1e-6)


@pytest.mark.parametrize("budget", [dp.ZCDP(0.5), dp.PureDP(1.0), dp.ApproxDP(1.0, 1e-6)])
@names
@pytest.mark.exhaustive("budget")
def test_the_exact_loss_of_every_event_keeps_the_budget(chosen: Any, budget: Any) -> None:
    """By the law's definition, and no bound on it; and noise of a little less scale breaks it."""
    joint = joint_of(chosen)
    kind = mechanisms.BinaryTree
    change = change_of(joint, "add_remove")
    counter = dp.calibrate(kind(2), budget, change, joint.width)
    R = counter.mechanism.encoder(2)
    changes = [np.outer(R[:, t], vector).ravel() for t in range(2) for vector in vectors(joint)]
    rounded = [each.astype(np.int64) for each in changes]
    assert keeps_budget(counter, rounded)
    law: Any = counter.law
    if isinstance(budget, dp.PureDP):
        less = type(law)(law.parameter * Fraction(98, 100))
    elif hasattr(law, "parameter"):
        return  # Laplace noise, under a budget that it does not use up
    else:
        less = type(law)(law.sigma2 * Fraction(95, 100))
    assert not keeps_budget(replace(counter, law=less), rounded)


@pytest.mark.parametrize("budget", [dp.ZCDP(0.5), dp.PureDP(1.0)], ids=["zCDP", "pure"])
@pytest.mark.parametrize("chosen", [(RATE,), (ITEMS,), (THREE,), (RATE, METRICS[0])])
def test_the_exact_loss_of_every_replacement_keeps_the_budget(chosen: Any, budget: Any) -> None:
    """One event leaves a sum, and another, or the same one at another tick, enters any."""
    joint = joint_of(chosen)
    change = change_of(joint, "replace_one")
    counter = dp.calibrate(mechanisms.BinaryTree(2), budget, change, joint.width)
    R = counter.mechanism.encoder(2)
    streams = [np.outer(R[:, t], vector).ravel() for t in range(2) for vector in vectors(joint)]
    changes = [(a - b).astype(np.int64) for a, b in itertools.product(streams, repeat=2)]
    assert keeps_budget(counter, changes)
    apart = [
        np.concatenate([a, -b]).astype(np.int64) for a, b in itertools.product(streams, streams)
    ]
    assert keeps_budget(counter, apart)  # in two keys
    law: Any = counter.law
    pure = isinstance(budget, dp.PureDP)
    less = law.parameter * Fraction(98, 100) if pure else law.sigma2 * Fraction(95, 100)
    assert not keeps_budget(replace(counter, law=type(law)(less)), [*changes, *apart])


# People


def cost_of(squared: int, once: int, mechanism: Any, gap: int) -> Any:
    column = Fraction(mechanism.l2_sensitivity_squared)
    return lambda k: squared * column_cost(mechanism, k, gap) + once * column


@pytest.mark.parametrize("once", [0, 1, 3, 40])
@pytest.mark.parametrize("gap", [0, 2])
def test_the_worst_allocation_is_the_worst_of_all(once: int, gap: int) -> None:
    mechanism = mechanisms.NormalizedBLT(12)
    cost = cost_of(2, once, mechanism, gap)
    for total, counters, each in itertools.product(range(1, 8), range(1, 5), range(1, 5)):
        if each > total:
            continue
        parts = itertools.product(range(each + 1), repeat=counters)
        brute = max(sum(cost(k) for k in p if k) for p in parts if sum(p) <= total)
        found = worst_allocation(total, counters, each, cost)
        assert found == pytest.approx(float(brute), rel=1e-12), (total, counters, each)
        if not once and counters * each >= total:
            plain = worst(total, each, lambda k: cost(k) if k else Fraction(0))
            assert plain == pytest.approx(float(found), rel=1e-12)


def test_the_figure_of_the_facts() -> None:
    """(5, 5, 2) with 1 for each event and 10 for a person: 55, where n D(j) + D(rest) has 39."""

    def cost(k: int) -> Fraction:
        return Fraction(k * k + 10)

    assert worst_allocation(5, 5, 2, cost) == 55
    assert 2 * cost(2) + cost(1) == 39


OF_NUMBERS = [METRICS[0], m.Mean("y", 0, 2, 1), METRICS[5]]
OF_ONES = [m.Rate("y >= 3"), m.Items("y", ["0", "4"], weight=2), METRICS[5]]


@pytest.mark.parametrize("gap", [1, 2])
@pytest.mark.parametrize("window", [1, 2, 5])
def test_no_person_exceeds_the_norms_of_sums_over_the_last_ticks(window: int, gap: int) -> None:
    """All placements of up to four events, in one tick, or `gap` apart, in one window or not."""
    mechanism, joint = mechanisms.SlidingBLT(7, window), joint_of([m.Rate("y >= 3"), METRICS[0]])
    g, most = gram(mechanism), [0.0] * 5
    squared = sum(part.l2_squared for part in joint.parts)
    for k in range(1, 5):
        for ticks in itertools.combinations_with_replacement(range(7), k):
            apart = all(b - a >= gap for a, b in itertools.pairwise(ticks))
            x = np.bincount(ticks, minlength=7)
            if apart:
                most[k] = max(most[k], float(x @ g @ x) * squared)
            alone = JointUserChange(parts=joint.parts, most=8, events=k, per_key=k)
            limit = without_slack(alone, mechanism, joint, 2 * k)
            assert float(x @ g @ x) * squared <= limit * (1 + 1e-6)
            assert len(set(ticks)) > 1 or ticks[0] or x @ g @ x * squared > limit * (1 - 1e-4)
        spaced = JointUserChange(parts=joint.parts, most=8, events=k, per_key=k, gap=gap)
        assert most[k] <= without_slack(spaced, mechanism, joint, 2 * k) * (1 + 1e-6)
        if 1 + (k - 1) * gap <= 7:
            assert most[k] > 0.8 * without_slack(spaced, mechanism, joint, 2 * k)


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
@pytest.mark.parametrize("bound", [(2, 2, 1), (2, 2, 2), (3, 2, 2)])
@pytest.mark.parametrize(
    "kind",
    [mechanisms.SmoothBinary, mechanisms.NormalizedBLT, KINDS[-1]],
    ids=["tree", "blt", "last"],
)
@pytest.mark.parametrize("chosen", [OF_NUMBERS, OF_ONES], ids=["numbers", "ones"])
@pytest.mark.exhaustive("kind", "relation", "bound", "chosen")
def test_no_person_exceeds_the_norms(chosen: Any, kind: Any, bound: Any, relation: str) -> None:
    """All ticks, keys and kinds of up to three events, and the person counted once a key."""
    k, keys, each = bound
    joint = joint_of(chosen)
    mechanism = kind(3)
    root = np.linalg.cholesky(gram(mechanism) + 1e-12 * np.eye(3)).T
    v = vectors(joint)
    v = v[np.abs(v).sum(axis=1) > 0]
    v = v[np.square(v).sum(axis=1) >= np.square(v).sum(axis=1).max() - 1]  # the largest ones
    kinds = [*itertools.product(range(keys), range(3), range(len(v)))]
    people, extremes = set(), [np.zeros((keys, 3, joint.width))]
    for n in range(1, k + 1):
        for chosen in itertools.combinations_with_replacement(kinds, n):
            of_key = [[c for c in chosen if c[0] == key] for key in range(keys)]
            if any(len(mine) > each for mine in of_key):
                continue
            # The first that comes is any of a key's.
            for firsts in itertools.product(*([c[1] for c in mine] or [-1] for mine in of_key)):
                x = np.zeros((keys, 3, joint.width))
                for key, tick, what in chosen:
                    x[key, tick] += v[what]
                for key, tick in enumerate(firsts):
                    if tick >= 0:
                        for place, amount in joint.first:
                            x[key, tick, place] += amount
                if x.tobytes() not in people:
                    people.add(x.tobytes())
                    extremes.append(x)
    stacked = np.array([root @ x for x in np.array(extremes)]).reshape(len(extremes), -1)
    found = np.square(stacked).sum(axis=1)
    if relation == "replace_one":
        most = max(
            (found[at : at + 500, None] + found - 2 * stacked[at : at + 500] @ stacked.T).max()
            for at in range(0, len(found), 500)
        )
    else:
        most = found.max()
    change = JointUserChange(
        relation=relation, parts=joint.parts, most=8, events=k, keys=keys, per_key=each
    )
    counters = min(k, keys)
    sums = sum(
        part.touched * (counters if part.once else min(k, keys * each)) for part in joint.parts
    )
    touched = (1 + (relation == "replace_one")) * sums
    limit = without_slack(change, mechanism, joint, touched)
    assert most <= limit * (1 + 1e-6)
    if relation == "add_remove":
        assert most == pytest.approx(limit, rel=1e-4)
    else:
        # Not tight: docs/proofs/aggregates.md, "People".
        assert most >= 0.25 * limit * (1 - 1e-6)


def test_a_person_of_one_event_costs_what_an_event_costs() -> None:
    joint, mechanism = joint_of(METRICS[:5]), mechanisms.SmoothBinary(8)
    person = JointUserChange(parts=joint.parts, most=4)
    event = change_of(joint, "add_remove")
    assert person.norms(mechanism, 1, joint.width) == event.norms(mechanism, 1, joint.width)


# The split


def test_weights_say_how_the_budget_is_split() -> None:
    joint = joint_of(METRICS[:5])
    shares = np.array([part.l2_squared for part in joint.parts], dtype=float)
    weights = np.array([metric.weight**2 for metric in joint.metrics])
    assert shares / shares.sum() == pytest.approx(weights / weights.sum(), rel=0.15)
    fine = Joint((m.Count(), m.Mean("x", 0, 5, weight=3), m.Sum("y", 0, 100)))
    shares = np.array([part.l2_squared for part in fine.parts], dtype=float)
    assert shares / shares.sum() == pytest.approx([1 / 11, 9 / 11, 1 / 11], rel=0.05)


def test_metrics_alike_need_no_multipliers() -> None:
    assert Joint((m.Count(), m.People())).multipliers == (1, 1)


@pytest.mark.parametrize("kind", KINDS[:5])
def test_noise_of_each_sum_is_one_draw_of_its_own(kind: Any) -> None:
    """Vectors go through the mechanism coordinate by coordinate, as numbers do."""
    from tests.scripted import Script

    joint = joint_of(METRICS[:5])
    counter = dp.calibrate(kind(6), dp.ZCDP(0.5), change_of(joint, "add_remove"), joint.width)
    rng = np.random.default_rng(3)
    z = rng.integers(-500, 500, (60, joint.width))
    xs = rng.integers(-20, 20, (6, joint.width))
    together = counter.release_lattice(xs, Script(z))
    alone = replace(counter, dimension=None)
    for place in range(joint.width):
        own = alone.release_lattice(xs[:, place], Script(z[:, place]))
        assert own.tolist() == pytest.approx(together[:, place].tolist(), rel=1e-12, abs=1e-9)
    assert isinstance(counter.mechanism, RoundedMechanism) or counter.resolution == 1

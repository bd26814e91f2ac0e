"""Metrics by themselves: what they read of an event, and what they make of noisy sums."""

from __future__ import annotations

import itertools
import math
import pickle
import warnings
from decimal import Decimal
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

import beam_dpcount as dp
from beam_dpcount.counters.errors import chernoff
from beam_dpcount.counters.grid import Grid
from beam_dpcount.counters.lattice import Lattice
from beam_dpcount.reading import read
from beam_dpcount.states.all_vectors import Reading
from beam_dpcount.statistics.metrics.base import Errors, ratio
from beam_dpcount.statistics.metrics.joint import Joint, check_metrics
from beam_dpcount.statistics.metrics.quantiles import estimated, known_errors
from tests.sentences import counted

m = dp.metrics
RUNS = 4000


def z(level: float) -> np.ndarray:
    return np.full(RUNS, NormalDist().inv_cdf((1 + level) / 2))


def sums(metric: Any, xs: Any) -> np.ndarray:
    total = np.zeros(metric.width)
    for x in xs:
        for place, amount in metric.additions({"x": x}):
            total[place] += amount
    return total


def measured(metric: Any, xs: Any, noise: float, level: float = 0.9) -> Any:
    """Of RUNS releases with normal noise, of each sum as its limit asks for."""
    stddevs = np.tile(noise * np.array(metric.limits, dtype=float), (RUNS, 1))
    noisy = sums(metric, xs) + stddevs * np.random.default_rng(7).standard_normal(stddevs.shape)
    return metric.measure(noisy, Errors(stddevs, z), level)


def covered(found: Any, truth: float, column: int = 0) -> float:
    """How often an interval holds the truth, or there is none."""
    low, high = found.lows[:, column], found.highs[:, column]
    return float(np.mean(np.isnan(low) | ((low <= truth) & (truth <= high))))


DRAWN = np.clip(np.random.default_rng(1).gamma(2, 0.4, 2000), 0, 5).round(3)
ERROR = 3.3 * math.sqrt(0.9 * 0.1 / RUNS)  # false alarms: 1 in 1000


@pytest.mark.parametrize("n", [20, 200, 2000])
def test_fiellers_interval_holds_as_often_as_it_says(n: int) -> None:
    xs = DRAWN[:n]
    found = measured(m.Mean("x", 0, 5, 0.001), xs, 8.0)
    seen = covered(found, float(xs.mean()))
    assert seen > 0.9 - ERROR
    if n == 20:  # often there is none, which no truth is outside of
        return
    assert seen < 0.9 + ERROR
    # Noise of three quarters of what is said would hold too often, and of four thirds too rarely.
    for wrong, side in ((0.75, 1), (4 / 3, -1)):
        stddevs = np.tile(8.0 * np.array([1.0, 2500.0]), (RUNS, 1))
        drawn = np.random.default_rng(8).standard_normal(stddevs.shape)
        metric = m.Mean("x", 0, 5, 0.001)
        noisy = sums(metric, xs) + wrong * stddevs * drawn
        seen = covered(metric.measure(noisy, Errors(stddevs, z), 0.9), float(xs.mean()))
        assert side * (seen - 0.9) > ERROR


@pytest.mark.parametrize("part", [0.02, 0.3, 1.0])
@pytest.mark.parametrize("n", [30, 200, 2000])
def test_the_interval_of_a_rate_holds_as_often_as_it_says(n: int, part: float) -> None:
    """And noise of three quarters or four thirds of what is said would be noticed."""
    xs = [1.0] * round(part * n) + [0.0] * (n - round(part * n))
    metric, truth = m.Rate("x = 1"), round(part * n) / n
    for wrong in (1, 0.75, 4 / 3):
        stddevs = np.full((RUNS, 2), 8.0)
        noise = wrong * stddevs * np.random.default_rng(9).standard_normal(stddevs.shape)
        found = metric.measure(sums(metric, xs) + noise, Errors(stddevs, z), 0.9)
        seen = covered(found, truth)
        there = ~np.isnan(found.lows)
        assert (found.lows[there] <= found.values[there]).all()
        assert (found.values[there] <= found.highs[there]).all()
        assert found.lows[there].min() >= 0
        assert found.highs[there].max() <= 1
        if wrong == 1:
            assert seen > 0.9 - ERROR
        elif n > 30 and part < 1:  # else there is often no interval, or it ends at 1
            assert (wrong < 1) == (seen > 0.9)
            assert abs(seen - 0.9) > ERROR
        if wrong == 1 and n > 30 and part == 0.3:
            assert seen < 0.9 + ERROR


def test_a_rate_has_two_sums_that_no_event_shares() -> None:
    """So that the noise of both makes that of the number of events."""
    rate = m.Rate("x = 1")
    assert sums(rate, [1, 1, 0, 1, None]).tolist() == [3, 1]
    one = np.ones(1)
    for r in np.linspace(0, 1, 11):  # var(S - r N), of independent sums of variance 4
        value, low, high = ratio(
            *(300 * r * one, 300 * one, 2 * one, math.sqrt(8) * one, 2 * one, 4 * one)
        )
        assert low < value < high
        for end in (low, high):
            gap = (300 * r - 300 * end) ** 2
            assert gap == pytest.approx(4 * 4 * ((1 - end) ** 2 + end**2))


def test_below_its_floor_a_rate_is_not_given() -> None:
    """The private number of events decides, and not how many there are."""
    rate = m.Rate(lambda event: True, floor=100)
    noisy = np.array([[99.5, 0.0], [60.0, 41.0], [110.0, -20.0], [-1.0, 200.0]])
    stddevs = np.full((4, 2), 3.0)
    found = rate.measure(noisy, Errors(stddevs, lambda level: np.full(4, 1.96)), 0.95)
    assert np.isnan(found.values[:, 0]).tolist() == [True, False, True, False]
    assert (np.isnan(found.values) == np.isnan(found.lows)).all()
    assert np.isnan(found.stddevs).all()
    loose = m.Rate(lambda event: True)
    few = np.array([[8.0, 0.0], [8.5, 0.0]])  # 1.96 sqrt(2) 3 is 8.3
    found = loose.measure(few, Errors(stddevs[:2], lambda level: np.full(2, 1.96)), 0.95)
    assert np.isnan(found.values[:, 0]).tolist() == [True, False]


@pytest.mark.parametrize("n", [200, 2000])
@pytest.mark.parametrize("unit", [0.01, 0.001])
def test_the_interval_of_a_variance_holds_at_least_as_often(n: int, unit: float) -> None:
    xs = (DRAWN[:n] / unit).round() * unit
    found = measured(m.Variance("x", 0, 5, unit), xs, 8.0)
    assert covered(found, float(xs.var())) > 0.9 - ERROR
    assert np.nanmedian(found.highs - found.lows) < 40 * 8.0 / n * 6.25


@pytest.mark.parametrize("n", [100, 2000])
@pytest.mark.parametrize("scale", ["linear", "log"])
def test_the_intervals_of_quantiles_hold_at_least_as_often(n: int, scale: str) -> None:
    q = (0.1, 0.5, 0.95)
    metric: Any = m.Quantiles("x", 0.001, 5, q, leaves=64, scale=scale).planned(False)
    xs = np.clip(DRAWN[:n], 0.001, 5)
    found = measured(metric, xs, 6.0)
    for i, each in enumerate(q):
        exact = float(np.quantile(xs, each, method="inverted_cdf"))
        assert covered(found, exact, i) > 0.9 - ERROR
    if n == 2000:
        assert np.nanmedian(found.highs[:, 1] - found.lows[:, 1]) < 1


def test_quantiles_intervals_would_fail_with_more_noise_than_is_said() -> None:
    metric: Any = m.Quantiles("x", 0, 5, [0.5], leaves=1024, branching=4).planned(False)
    noisy = sums(metric, DRAWN) + 40.0 * np.random.default_rng(3).standard_normal(
        (RUNS // 4, metric.width)
    )
    truth = float(np.quantile(DRAWN, 0.5, method="inverted_cdf"))
    stddevs = np.full((RUNS // 4, 1), 20.0)
    found = metric.measure(noisy, Errors(stddevs, lambda level: z(level)[: RUNS // 4]), 0.9)
    assert covered(found, truth) < 0.85


@pytest.mark.parametrize(("branching", "levels"), [(2, 3), (3, 2), (4, 2), (5, 1)])
def test_estimates_and_their_errors_are_those_of_least_squares(branching: int, levels: int) -> None:
    leaves = branching**levels
    rows = [
        [1.0 if leaf // branching ** (levels - level) == bucket else 0.0 for leaf in range(leaves)]
        for level in range(1, levels + 1)
        for bucket in range(branching**level)
    ]
    a = np.array(rows)
    g = np.linalg.inv(a.T @ a)
    y = np.random.default_rng(1).normal(size=(4, len(a)))
    assert estimated(y, branching, levels) == pytest.approx(y @ a @ g)
    c = np.tril(np.ones((leaves + 1, leaves)), -1)
    covariances = c @ g @ c.T
    below, both, whole = known_errors(branching, levels)
    assert below == pytest.approx(np.diag(covariances), abs=1e-12)
    assert both == pytest.approx(covariances[:, -1], abs=1e-12)
    assert whole == pytest.approx(covariances[-1, -1])


def test_the_branching_is_that_of_the_least_error() -> None:
    metric = m.Quantiles("x", 0, 5, [0.5, 0.95])
    for pure in (False, True):
        chosen: Any = metric.planned(pure)
        assert len(chosen.edges) - 1 >= 256
        for other in (2, 4, 16, 256):
            levels = round(math.log(256, other))
            mine = metric._error((chosen.branching, chosen.touched), pure)
            assert mine <= metric._error((other, levels), pure) * (1 + 1e-9)
    assert m.Quantiles("x", 0, 5, branching=7).planned(True).branching == 7


@pytest.mark.parametrize("bounds", [(0, 5), (-1, 3), (-2, 2), (1, 4), (-9, -3)])
def test_a_mean_has_no_more_error_than_a_sum_over_a_count(bounds: Any) -> None:
    """From two equal shares; at every mean, to first order."""
    low, high = bounds
    metric = m.Mean("x", low, high, 0.01)
    joint = Joint((metric,))
    norm2 = joint.parts[0].l2_squared
    of_count, of_sum = (math.sqrt(norm2) / multiplier for multiplier in joint.multipliers)
    largest = max(abs(low), abs(high))
    for mean in np.linspace(low, high, 21):
        mine = math.hypot(of_sum * 0.01, (mean - metric.centre * 0.01) * of_count)
        theirs = math.sqrt(2) * math.hypot(largest, mean)
        assert mine <= theirs * (1 + 1e-3)
    middle = math.hypot(of_sum * 0.01, 0)
    if low >= 0:
        assert middle < 0.5 * math.sqrt(2) * math.hypot(largest, (low + high) / 2)


def test_of_so_few_events_nothing_is_said() -> None:
    for metric in (m.Mean("x", 0, 5), m.Variance("x", 0, 5), m.Quantiles("x", 0, 5).planned(True)):
        found = measured(metric, [1.0, 2.0], 20.0, 0.95)
        assert np.isnan(found.values).mean() > 0.9
        assert (np.isnan(found.values) == np.isnan(found.lows)).all()
        none = measured(metric, [], 1e-9)
        assert np.isnan(none.values).all()


def test_a_ratio_whose_interval_has_no_end_is_not_given() -> None:
    one = np.ones(1)
    assert np.isnan(ratio(one, 1.9 * one, one, one, 2 * one)).all()
    value, low, high = ratio(one, 2.1 * one, one, one, 2 * one)
    assert low < value < high


# What is read of an event


@pytest.mark.parametrize("metric", [m.Sum, m.Mean, m.Variance, m.Quantiles])
def test_what_is_no_number_adds_nothing(metric: Any) -> None:
    made = metric("x", 0, 5).planned(False)
    for event in ({}, {"y": 1}, *({"x": bad} for bad in (None, "1", math.nan, [1], 1j, b"1"))):
        assert made.additions(event) == ()
        assert "x" in made.problem(event)
    assert "clipped" in made.problem({"x": 6})
    assert made.problem({"x": 3}) is None
    for same in (3, 3.0, Decimal(3), np.float32(3), np.int64(3)):
        assert made.additions({"x": same}) == made.additions({"x": 3})
    for beyond in (5.1, math.inf, 10**400, Decimal("1e999")):
        assert made.additions({"x": beyond}) == made.additions({"x": 5})
    assert made.additions({"x": -math.inf}) == made.additions({"x": 0})


HOLDS: list[tuple[str, Any, bool | None]] = [
    *(("x = ERROR", "ERROR", True), ("x = ERROR", "INFO", False), ("x = ERROR", None, None)),
    *(("x = 'a b'", "a b", True), ('x != ""', "", False), ("x != a", "b", True)),
    *(("x = 500", 500, True), ("x = 500", "500", True), ("x = 500", 500.0, True)),
    *(("x = 500", Decimal(500), True), ("x = 5", True, False), ("x = 1", True, True)),
    *(("x = true", True, True), ("x = True", np.False_, False), ("x = true", "true", True)),
    *(("x > 1.5", 2, True), ("x > 1.5", "2", None), ("x >= 2", np.int8(2), True)),
    *(("x < 2", 2, False), ("x <= 2", 2, True), ("x <= 2", math.nan, None)),
    *(("x = nan", math.nan, None), ("x = a", math.nan, None), ("x = a", ["a"], None)),
    *(("x > -inf", -math.inf, False), ("x = a", b"a", None), ("x = 10", "1e1", False)),
]


@pytest.mark.parametrize(("where", "x", "holds"), HOLDS, ids=[f"{h[0]}, {h[1]!r}" for h in HOLDS])
def test_a_text_says_for_which_events_a_rate_holds(where: str, x: Any, holds: bool | None) -> None:
    rate = m.Rate(where)
    expected = {True: ((0, 1),), False: ((1, 1),), None: ()}[holds]
    assert rate.additions({"x": x}) == expected
    assert rate.additions({}) == ()
    assert (rate.problem({"x": x}) is None) == (holds is not None)
    assert "no such field" in str(rate.problem({}))
    assert rate.fields == ("x",)


@pytest.mark.parametrize("result", [None, "yes", 2, -1, math.nan, [1], np.array([1, 0])], ids=repr)
def test_what_is_neither_true_nor_false_counts_for_no_rate(result: Any) -> None:
    rate = m.Rate(lambda event: result)
    assert rate.additions(7) == ()
    assert "neither True nor False" in str(m.Rate(lambda event: None).problem(7))


def test_a_rate_reads_whatever_an_event_is() -> None:
    rate = m.Rate(lambda event: event > 3)
    assert rate.additions(4) == rate.additions(np.float32(4)) == ((0, 1),)
    assert rate.additions(2) == ((1, 1),)
    assert read(rate.additions, "4") == ()  # an error of the function is data
    for same in (1, 1.0, np.True_, np.int8(1)):
        assert m.Rate(lambda event, same=same: same).additions(None) == ((0, 1),)


def test_an_address_is_in_no_description_of_a_rate() -> None:
    """It differs from process to process, and replayable noise must not."""
    assert repr(m.Rate(test_columns_have_names)).startswith("Rate(where=test_columns_have_names, ")
    assert "0x" not in repr(m.Rate(lambda event: True))
    assert "0x" not in repr(m.Rate(Decimal(7).compare))
    assert repr(m.Rate("level=ERROR")).startswith("Rate(where='level = ERROR', ")


def test_items_of_an_event_are_those_of_the_domain() -> None:
    items = m.Items("x", ["b", "a", "7"], max_items=2)
    for x, expected in [
        *(("a", {1}), ("c", set()), (7, {2}), (["a", "a"], {1}), ({"a", "b"}, {0, 1})),
        *((["7", "a", "b"], {0, 1}), ([7, "z"], {2}), (None, set()), (7.0, set())),
        *((b"a", set()), ({"a": 1}, set()), ([], set()), (iter("ab"), {0, 1})),
    ]:
        assert items.additions({"x": x}) == tuple((place, 1) for place in sorted(expected)), x
    assert items.additions({}) == ()
    endless = itertools.repeat("a")
    assert items.additions({"x": endless}) == ()
    assert "longer than 65,536 items" in str(items.problem({"x": endless}))
    assert items.columns == ("count_b", "count_a", "count_7")
    assert m.Items("x", ["a"], name="seen").columns == ("seen_a",)
    for x, said in [("a", None), ("c", "not in the domain"), (["a", "b", "7"], "max_items")]:
        assert (
            (items.problem({"x": x}) is None)
            if said is None
            else said in str(items.problem({"x": x}))
        )
    assert "no such field" in str(items.problem({}))


KINDS = ("float16", "float32", "float64", "longdouble")
NUMPYS = [
    *(
        (kind, text)
        for kind in KINDS
        for text in ("inf", "-inf", "nan", "60000", "-1e-7", "1e4000")
    ),
    *(("longdouble", text) for text in ("1e-4000", "-1e4000")),
]
WIDE = [
    *(m.Count(), m.Sum("x", -1e300, 1e300), m.Sum("x", 0, 5), m.Mean("x", -1e300, 1e300)),
    *(m.Mean("x", 0, 1e-300), m.Variance("x", 0, 5), m.Rate("x > 7"), m.Rate("x = 1e-300")),
    *(m.Quantiles("x", 0, high, branching=4) for high in (1e-300, 5, 1e300)),
]


@pytest.mark.parametrize(("kind", "text"), NUMPYS)
def test_no_number_of_numpy_gives_a_warning(kind: str, text: str) -> None:
    """Which would tell that there is such a number; and it adds what Python's own adds."""
    with np.errstate(all="ignore"):
        number = getattr(np, kind)(text)
        plain = float(number)
    count = dp.PrefixCount(dp.ZCDP(0.1), 9, bounds=(-1e20, 1e20), unit=1e15)
    lattices = [Lattice(0, 5, 1), Lattice(-1e300, 1e300, 1e290), Lattice(0, 1e-300, 1e-303)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for metric in WIDE:
            assert metric.additions({"x": number}) == metric.additions({"x": plain})
            assert metric.problem({"x": number}) == metric.problem({"x": plain})
        assert count.problem(("k", number)) == count.problem(("k", plain))
        for lattice in [] if plain != plain else lattices:
            assert lattice.one(number) == lattice.one(plain) == lattice.all([number], None)[0]


def test_numbers_are_clipped_and_then_rounded() -> None:
    assert m.Sum("x", 0, 100).step == 0.01
    assert m.Mean("x", 0, 5).step == 0.0001
    assert m.Sum("x", -1, 2, 0.5).additions({"x": 1.3}) == ((0, 3),)
    assert m.Sum("x", -1, 2, 0.5).additions({"x": -7}) == ((0, -2),)
    assert m.Mean("x", 1, 4, 1).additions({"x": 4}) == ((0, 1), (1, 2))
    assert m.Mean("x", 1, 4, 1).limits == (1, 2)
    leaves: Any = m.Quantiles("x", 1, 16, leaves=4, scale="log", branching=2)
    assert leaves.edges == pytest.approx([1, 2, 4, 8, 16])
    assert [leaves.code({"x": x}) for x in (0, 1, 2, 3.99, 8, 16, 99)] == [0, 0, 1, 1, 3, 3, 3]
    assert leaves.additions({"x": 5}) == ((2 + 2, 1), (1, 1))


WRONG: list[tuple[Any, str]] = [
    (
        lambda: check_metrics([m.Count(weight=1e300), m.Sum("x", 0, 5)]),
        r"weight is 1e\+300 beside 1.0: they may differ by a factor of 10\^6: give metrics a",
    ),
    (lambda: check_metrics([m.Count(), m.Sum("x", 0, 5, weight=5e-324)]), "factor of 10"),
    (lambda: check_metrics([m.Count(weight=1e6 + 1), m.Sum("x", 0, 5)]), "factor of 10"),
    (lambda: m.Quantiles("x", 0, 5, [0.5, 1]), "q must be between 0 and 1"),
    (lambda: m.Quantiles("x", 0, 5, [0.5], leaves=10**6), "leaves must be at most 4096"),
    (lambda: m.Quantiles("x", 0, 5, [0.5], scale="log"), "low must be positive"),
    (lambda: m.Rate("level"), "where must be a field, a sign and a value, got 'level'"),
    (lambda: m.Rate("a == b"), "where takes one ="),
    (lambda: m.Rate("a < b"), "where compares with a number, got 'b'"),
    (lambda: m.Rate(True), "where must be a function or a text, got True"),  # type: ignore[arg-type]
    (lambda: m.Rate(bool), "where must be a function"),
    (lambda: m.Rate("a = b", -1), "floor must be a number of events from 0, got -1"),
    (lambda: m.Rate("a = b", math.nan), "floor must be a number of events from 0"),
    (lambda: m.Rate("a = b", "9"), "floor must be a number"),  # type: ignore[arg-type]
    (lambda: m.Items(7, ["a"]), "Items needs the name of a field"),  # type: ignore[arg-type]
    (lambda: m.Items("x", []), "domain is empty"),
    (lambda: m.Items("x", "ab"), "domain must be a sequence of str"),
    (lambda: m.Items("x", ["a", "a"]), "domain names 'a' twice"),
    (lambda: m.Items("x", ["a"], 2), "max_items must be a whole number from 1 to 1"),
    (lambda: check_metrics([m.Rate("a = b"), m.Rate("a = c")]), "two columns called 'rate'"),
    (lambda: check_metrics([]), "metrics are empty"),
    (lambda: check_metrics(m.Count()), "must be a list"),
    (lambda: check_metrics(["count"]), "it holds 'count'"),
    (lambda: check_metrics([m.Count(), m.Count()]), "two columns called 'count'"),
]


@pytest.mark.parametrize(("make", "said"), WRONG, ids=[said for _, said in WRONG])
def test_wrong_arguments_are_refused(make: Any, said: str) -> None:
    with pytest.raises((ValueError, TypeError), match=said):
        make()


def test_columns_have_names() -> None:
    given = check_metrics(
        [m.Count(), m.Quantiles("x", 0, 1, [0.5, 0.999]), m.Mean("x", 0, 1, name="mine")]
    )
    assert Joint(given).metrics == given
    names = [name for metric in given for name in metric.columns]
    assert names == ["count", "p50_x", "p99_9_x", "mine"]


def test_each_is_a_name_of_the_package() -> None:
    named = [kind.__name__ for kind in m.ALL if kind.__name__ in dp.__all__]
    assert len(named) >= 8
    assert all(getattr(dp, name) is getattr(m, name) for name in named)
    assert m.People().columns == ("people",)


def test_metrics_travel() -> None:
    joint = Joint(tuple(k.planned(False) for k in (m.Count(), m.Variance("x", 0, 5))))
    _ = joint.multipliers, joint.parts
    again = pickle.loads(pickle.dumps(joint))
    assert again == joint
    assert again.multipliers == joint.multipliers
    assert "multipliers" not in again.__getstate__()


# What releases say of their noise


@pytest.mark.parametrize("budget", [dp.ZCDP(0.1), dp.PureDP(1.0)])
def test_intervals_have_the_multiple_of_their_noise(budget: Any) -> None:
    clock: dict[str, Any] = {"tick": 1, "start": 0, "horizon": 50}
    made = counted(budget, [m.Count(), m.Sum("x", 0, 9)], **clock, keys=["a"])
    counter, joint = made.counter, made.engine.joint
    reading = Reading(counter, joint, 0.9, Grid(10, 0, 500, 50))
    stddevs = counter.stddevs(50)
    releases = [*reading.rows("a", 1, np.zeros((50, 2)), stddevs, 3)]
    assert [(r.step, r.start, r.timestamp) for r in releases[:2]] == [(1, 0, 10), (2, 10, 20)]
    for i, release in enumerate(releases):
        count = stddevs[i] / joint.multipliers[0]
        assert release.stddevs["count"] == pytest.approx(count)
        if i < 3:
            assert {*release.lows.values(), *release.highs.values()} == {None}
            assert {*release.notes.values()} == {"just shown"}
            continue
        assert release.highs["count"] is not None
        multiple = release.highs["count"] / count
        if isinstance(budget, dp.PureDP):
            norm2 = counter.mechanism.row_norm2(i + 1)
            bound = chernoff(counter.law, norm2, math.log(20)) * counter.grid
            assert multiple == pytest.approx(bound / stddevs[i])
            assert multiple > 1.7
        else:
            assert multiple == pytest.approx(1.645, abs=0.02)


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.999])
def test_intervals_of_sums_are_exact_where_draws_have_the_weight_1(level: float) -> None:
    """Of a Laplace draw they are half as wide as Chernoff's, which metrics of several sums take."""
    clock = dp.Clock(1, start=0, ticks=50)
    what = [m.Count(), m.Sum("x", 0, 9), m.Mean("x", 0, 9)]
    counted = dp.TickCount(dp.PureDP(1.0), clock.each(), what, keys=["a"])
    counter, joint = counted.counter, counted.engine.joint
    reading = Reading(counter, joint, level, clock.grid)
    sums = np.tile(1000.0 * np.array(joint.multipliers), (2, 1))
    (row, _) = reading.rows("a", 1, sums, counter.stddevs(2), 0)
    alpha = math.exp(-1 / counter.law.scale)
    reach = next(n for n in itertools.count() if 2 * alpha ** (n + 1) / (1 + alpha) <= 1 - level)
    for name, place in (("count", 0), ("sum_x", 1)):
        metric = joint.metrics[place]
        unit = getattr(metric, "step", 1) * counter.grid / joint.multipliers[place]
        half = float(row.highs[name] or 0) - float(row.values[name] or 0)
        assert reach * unit * (1 - 1e-9) <= half <= reach * unit * 1.02  # wide laws are stretched
        assert half < chernoff(counter.law, 1.0, math.log(2 / (1 - level))) * unit


def test_every_metric_of_a_transform_is_described() -> None:
    for kind, word in itertools.product(m.ALL, ("weight", "name")):
        assert word in kind.__dataclass_fields__

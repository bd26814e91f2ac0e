"""Calibration, and what happens to a value before it is counted: clipped, rounded, or refused."""

from __future__ import annotations

import copy
import math
import pickle
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import beam_dpcount as dp
from beam_dpcount.budget.budgets import noise_laws
from beam_dpcount.budget.conversions import gaussian_sigma
from beam_dpcount.counters.change import TOO_COARSE, TOO_FINE
from beam_dpcount.counters.counter import TAKES_GAUSSIAN, UnsupportedBudgetError
from beam_dpcount.mechanisms import BinaryTree, SmoothBinary
from beam_dpcount.noise.entropy import SystemNoise
from beam_dpcount.noise.laws import DiscreteGaussian, DiscreteLaplace, RoundedGaussian
from tests.messages import says
from tests.scripted import Script, SeededNoise

TREE = BinaryTree(100)  # 7 levels
examples = settings(max_examples=200, deadline=None, derandomize=True, database=None)


def counter_of(change=None, dimension=None, unit=1.0, mechanism=TREE, budget=None):
    return dp.calibrate(mechanism, budget or dp.ZCDP(0.5), change, dimension, unit)


# Values on the lattice


@pytest.mark.parametrize(
    ("bounds", "unit", "value", "multiple"),
    [
        ((0, 1), 1, 0.4, 0),
        ((0, 1), 1, 0.6, 1),
        ((0, 1), 1, 7, 1),
        ((0, 1), 1, -7, 0),
        ((0, 1), 1, True, 1),
        ((0, 1), 1, np.True_, 1),
        ((0, 1), 0.1, 0.3, 3),
        ((0, 1), 0.1, 0.26, 3),
        ((0, 1), 0.1, 1.7, 10),
        ((0, 1), 0.1, Decimal("0.7"), 7),
        ((0, 1), 0.1, Fraction(3, 10), 3),
        ((-1, 1), 1, -0.4, 0),
        ((-1, 1), 1, -3.5, -1),
        ((-1, 1), 0.25, -0.3, -1),
        ((5, 10), 1, 0, 5),
        ((5, 10), 1, 7.4, 7),
        ((5, 10), 1, 11, 10),
        ((-10, -5), 1, 0, -5),
        ((0, 1000), 1, np.int8(7), 7),
        ((0, 1000), 1, np.uint64(2**63), 1000),
        ((0, 1000), 1, np.float32(2.5), 2),  # halves to even, as for a whole stream
        ((0, 1000), 1, 3.5, 4),
        ((0, 1000), 10, 994.9, 99),
    ],
)
def test_values_are_clipped_then_rounded(bounds, unit, value, multiple):
    scalar = counter_of(dp.Change(*bounds), unit=unit)
    assert scalar.quantise(value) == multiple
    assert type(scalar.quantise(value)) is int
    assert scalar.quantise_all([value]).tolist() == [multiple]
    vector = counter_of(dp.Change(*bounds), dimension=2, unit=unit)
    assert vector.quantise([value, value]).tolist() == [multiple, multiple]
    released = scalar.release([value], Script([0]))
    assert released.tolist() == [multiple * scalar.unit]
    assert scalar.step(scalar.init(), value, Script([0]))[1] == multiple * scalar.unit


HUGE = (10**400, math.inf, 1e308, Decimal("1e999"), Decimal("Infinity"), Fraction(10**400), 2**63)


@pytest.mark.parametrize("value", HUGE, ids=lambda v: f"{type(v).__name__}-{str(v)[:8]}")
@pytest.mark.parametrize("unit", [1, 0.5])
def test_values_beyond_the_bounds_are_clipped_however_large(value, unit):
    counter = counter_of(dp.Change(-3, 4), unit=unit)
    assert counter.quantise(value) == round(4 / unit)
    assert counter.quantise(-value) == round(-3 / unit)
    assert counter.quantise_all([value, -value]).tolist() == [4 / unit, -3 / unit]
    vector = counter_of(dp.Change(-3, 4), dimension=2, unit=unit)
    assert vector.quantise([value, -value]).tolist() == [4 / unit, -3 / unit]
    assert counter.release([value] * 3, Script([0] * 3)).tolist() == [4, 8, 12]


@pytest.mark.parametrize(
    "dtype",
    [bool, np.int8, np.uint8, np.int64, np.uint64, np.float16, np.float32, np.longdouble, object],
)
@pytest.mark.parametrize("unit", [1, 0.5])
def test_arrays_of_every_type_of_number_are_counted(dtype, unit):
    counter = counter_of(dp.Change(-1000, 1000), unit=unit)
    assert counter.quantise_all(np.array([0, 1, 1], dtype)).tolist() == [0, 1 / unit, 1 / unit]
    assert counter.quantise_all(np.array([0, 1, 1], dtype)).dtype == np.int64
    assert [counter.quantise(x) for x in np.array([0, 1], dtype)] == [0, 1 / unit]


NO_NUMBERS = (
    math.nan,
    np.float32("nan"),
    Decimal("NaN"),
    Decimal("sNaN"),
    None,
    "secret 4711",
    "4711",
    b"4711",
    4711 + 0j,
    [4711],
    {"a": 4711},
    np.datetime64("4711-01-01"),
    object(),
)


@pytest.mark.parametrize("value", NO_NUMBERS, ids=lambda v: f"{type(v).__name__}-{str(v)[:6]}")
@pytest.mark.parametrize("dimension", [None, 1, 2])
def test_what_is_no_number_is_refused_without_showing_it(value, dimension):
    counter = counter_of(dimension=dimension)
    noise = Script(np.zeros(3) if dimension is None else np.zeros((3, dimension)))
    element = value if dimension is None else [value] * dimension
    state = counter.init()
    for attempt in (
        lambda: counter.quantise(element),
        lambda: counter.step(state, element, noise),
    ):
        with pytest.raises(dp.errors.NotANumberError) as caught:
            attempt()
        shown = f"{caught.value} {caught.value!r}"
        assert "4711" not in shown
        assert "secret" not in shown
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__ or caught.value.__context__ is None
    assert noise.drawn == []
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("value", [v for v in NO_NUMBERS if not isinstance(v, list | dict)])
def test_streams_with_something_that_is_no_number_are_refused_without_showing_it(value):
    noise = Script(np.zeros(3))
    for xs in ([0, value, 1], [value]):
        with pytest.raises(dp.errors.NotANumberError) as caught:
            counter_of().release(xs, noise)
        assert "4711" not in str(caught.value)
        assert "secret" not in str(caught.value)
    assert noise.drawn == []


@pytest.mark.parametrize("values", [("a", "a much longer text"), (b"x", b"xyz")])
def test_messages_do_not_depend_on_the_value(values):
    """Not even on its length, which numpy's name for a type of strings would show."""
    messages = set()
    for value in values:
        with pytest.raises(dp.errors.NotANumberError) as caught:
            counter_of().release([value])
        messages.add(str(caught.value))
    assert len(messages) == 1, messages


@pytest.mark.parametrize("value", [1.0, [1.0], [1.0] * 4, [[1.0] * 3], [[1.0], [1.0, 2.0]], None])
def test_vectors_of_another_shape_are_refused(value):
    with pytest.raises(dp.errors.NotANumberError, match="not 3 numbers"):
        counter_of(dimension=3).quantise(value)


@pytest.mark.parametrize(
    ("xs", "dimension"),
    [
        (1.0, None),
        ([[1.0]], None),
        ([[1.0], [1.0, 2.0]], None),
        ([1.0, 2.0], 2),
        ([[1.0, 2.0, 3.0]], 2),
        ([[[1.0, 2.0]]], 2),
        (7.0, 2),
    ],
)
def test_streams_of_another_shape_are_refused(xs, dimension):
    with pytest.raises(ValueError, match=r"must have shape \(n") as caught:
        counter_of(dimension=dimension).release(xs)
    assert "1.0" not in str(caught.value)


numbers = st.one_of(
    st.floats(allow_nan=False),
    st.floats(-20, 20),
    st.integers(),
    st.booleans(),
    st.fractions(-20, 20),
    st.decimals(allow_nan=False),
)
lattices = st.tuples(
    st.tuples(st.integers(-40, 40), st.integers(-40, 40)).filter(lambda b: b[0] < b[1]),
    st.sampled_from([1, 0.1, 0.25, 1 / 3, 2, 7.5]),
)


@pytest.mark.slow
@examples
@given(values=st.lists(numbers, min_size=1, max_size=6), lattice=lattices)
def test_single_values_and_whole_streams_are_rounded_alike(values, lattice):
    (low, high), unit = lattice
    change = dp.Change(low / 2, high / 2)
    if change.magnitude(unit) == 0:
        with pytest.raises(ValueError, match=says(TOO_COARSE)):
            counter_of(change, unit=unit)
        return
    counter = counter_of(change, unit=unit)
    one_by_one = [counter.quantise(x) for x in values]
    assert counter.quantise_all(values).tolist() == one_by_one
    vector = counter_of(change, dimension=len(values), unit=unit)
    assert vector.quantise(values).tolist() == one_by_one
    assert vector.quantise_all([values, values]).tolist() == [one_by_one] * 2
    # Nothing leaves what the sensitivity was computed for, and nothing is moved further than
    # half a unit from where clipping puts it.
    for x, multiple in zip(values, one_by_one, strict=True):
        assert (
            abs(multiple)
            <= change.magnitude(unit)
            == max(round(high / 2 / unit), 0) - min(round(low / 2 / unit), 0)
        )
        clipped = min(max(Fraction(x) if math.isfinite(x) else x, change.low), change.high)
        assert abs(multiple * unit - float(clipped)) <= unit / 2 * (1 + 1e-9)


@pytest.mark.parametrize("number", [np.float32, np.float64, np.longdouble, Fraction, float])
@pytest.mark.parametrize("parts", [123_456_781, 123_456_787, 2**31 - 1])
def test_the_sensitivity_covers_every_value_whatever_type_the_bounds_have(number, parts):
    """Dividing a 32-bit bound by the unit in 32 bits loses up to 11 of these parts."""
    change = dp.Change(number(0), number(1))
    counter = counter_of(change, unit=1 / parts)
    largest = max(counter.quantise(1.0), int(counter.quantise_all([1.0, 5.0]).max()))
    assert largest <= change.magnitude(counter.unit)
    assert counter.l1_sensitivity >= 7 * largest * counter.unit


# Sensitivities


@pytest.mark.parametrize(
    ("bounds", "relation", "unit", "magnitude"),
    [
        ((0, 1), "replace_one", 1, 1),
        ((0, 1), "add_remove", 1, 1),
        ((-1, 1), "replace_one", 1, 2),
        ((-1, 1), "add_remove", 1, 1),
        ((5, 10), "replace_one", 1, 10),  # a rejected element counts 0
        ((5, 10), "add_remove", 1, 10),
        ((-10, -5), "replace_one", 1, 10),
        ((-3, 10), "replace_one", 1, 13),
        ((-3, 10), "add_remove", 1, 10),
        ((0, 1), "replace_one", 0.1, 10),
        ((0, 0.4), "replace_one", 0.3, 1),
        ((-0.6, 0.4), "replace_one", 1, 1),
    ],
)
def test_sensitivities_are_the_magnitude_times_the_columns_of_the_encoder(
    bounds, relation, unit, magnitude
):
    change = dp.Change(*bounds, relation)
    assert change.magnitude(unit) == magnitude
    if relation == "replace_one":
        low, high = (round(b / unit) for b in bounds)
        assert magnitude == max(high, 0) - min(low, 0)
    counter = counter_of(change, unit=unit)
    assert counter.l1_sensitivity == pytest.approx(7 * magnitude * unit)
    assert counter.l2_sensitivity == pytest.approx(math.sqrt(7) * magnitude * unit)


@pytest.mark.parametrize(("coordinates", "touched"), [(None, 5), (1, 1), (3, 3), (9, 5)])
def test_vector_counters_allow_for_every_coordinate_that_one_event_can_change(coordinates, touched):
    change = dp.Change(-1, 2, coordinates=coordinates)
    counter = counter_of(change, dimension=5, unit=0.5)
    assert counter.l1_sensitivity == pytest.approx(7 * touched * 3)
    assert counter.l2_sensitivity == pytest.approx(math.sqrt(7 * touched) * 3)
    assert counter.law == DiscreteGaussian(Fraction(7 * touched * 6**2))
    pure = counter_of(change, dimension=5, unit=0.5, budget=dp.PureDP(2))
    assert pure.law == DiscreteLaplace(Fraction(7 * touched * 6, 2))


def test_scalar_counters_ignore_the_number_of_coordinates():
    assert counter_of(dp.Change(coordinates=4)).law == counter_of().law


# Laws


def test_calibration_follows_the_definitions():
    assert counter_of(budget=dp.ZCDP(0.25)).law == DiscreteGaussian(Fraction(7) / Fraction(0.5))
    assert counter_of(budget=dp.PureDP(0.3)).law == DiscreteLaplace(Fraction(7) / Fraction(0.3))
    smooth = SmoothBinary(2**10)
    assert counter_of(mechanism=smooth).law == DiscreteGaussian(Fraction(8))


@pytest.mark.parametrize("horizon", [1, 100, 2**10 - 1, 2**10, 2**20])
@pytest.mark.parametrize(("epsilon", "delta"), [(1, 1e-6), (0.1, 1e-9), (3, 1e-3)])
def test_approximate_budgets_take_the_law_of_smaller_variance(horizon, epsilon, delta):
    budget, h = dp.ApproxDP(epsilon, delta), horizon.bit_length()
    gaussian = h * gaussian_sigma(epsilon, delta) ** 2 + 1 / 12
    assert gaussian < 0.96 * h / (2 * budget.to_zcdp().rho)
    laplace = 1 / (2 * math.sinh(epsilon / h / 2) ** 2)
    counter = counter_of(mechanism=BinaryTree(horizon), budget=budget)
    assert counter.law.variance == pytest.approx(min(gaussian, laplace), rel=1e-6)
    assert isinstance(counter.law, DiscreteLaplace) == (laplace < gaussian)


def test_laplace_noise_wins_in_short_trees():
    kinds = [
        type(counter_of(mechanism=BinaryTree(2**h - 1), budget=dp.ApproxDP(1, 1e-6)).law)
        for h in range(1, 16)
    ]
    assert kinds == [DiscreteLaplace] * 8 + [RoundedGaussian] * 7


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"unit": 3}, ValueError, says(TOO_COARSE)),
        ({"unit": 1e-10}, ValueError, says(TOO_FINE)),
        ({"unit": 1e-310}, ValueError, says(TOO_FINE)),
        (
            {"mechanism": BinaryTree(2**40), "unit": 2.0**-24},
            ValueError,
            r"exceeds 2\^62 lattice units: choose a larger unit",
        ),
        (
            {"budget": dp.PureDP(1e-10)},
            ValueError,
            r"noise of scale 7e\+10 lattice units.*raise the budget",
        ),
    ],
)
def test_calibration_refuses_what_makes_no_sense(arguments, error, message):
    with pytest.raises(error, match=message):
        dp.calibrate(**{"mechanism": TREE, "budget": dp.ZCDP(0.5), **arguments})


def test_gaussian_mechanisms_refuse_pure_budgets_and_name_one_that_takes_them():
    refusal = says(TAKES_GAUSSIAN, mechanism="SmoothBinary", budget=dp.PureDP(0.7))
    with pytest.raises(UnsupportedBudgetError, match=refusal) as caught:
        dp.calibrate(SmoothBinary(100), dp.PureDP(0.7))
    assert isinstance(caught.value, ValueError)


def test_a_law_out_of_range_does_not_hide_another_within_it():
    """Amounts to six decimals in 1000 coordinates: Laplace noise is too wide, Gaussian is not."""
    budget, unit = dp.ApproxDP(1, 1e-6), 2.0**-20
    counter = dp.calibrate(BinaryTree(2**20), budget, dimension=1000, unit=unit)
    assert isinstance(counter.law, RoundedGaussian)
    assert counter.law.scale * unit == pytest.approx(
        math.sqrt(21_000) * gaussian_sigma(1, 1e-6), rel=1e-9
    )


@pytest.mark.parametrize(
    ("mechanism", "allowed"),
    [(TREE, {DiscreteLaplace, RoundedGaussian}), (SmoothBinary(9), {RoundedGaussian})],
)
def test_a_mechanism_is_given_only_laws_that_it_allows(mechanism, allowed):
    laws = noise_laws(dp.ApproxDP(1, 1e-6), 7, 7, mechanism.laws)
    assert {type(law) for law in laws} == allowed


# Noise


def test_every_release_draws_anew():
    xs = np.ones(100)
    counter = counter_of(dp.Change(0, 10))  # a standard deviation of 26: equal once in 10^100
    first, second = counter.release(xs), counter.release(xs)
    assert first.shape == (100,)
    assert not np.array_equal(first, second)
    assert not np.array_equal(first, np.cumsum(xs))
    vectors = counter_of(dp.Change(0, 10), dimension=3)
    first, second = vectors.release(np.ones((100, 3))), vectors.release(np.ones((100, 3)))
    assert first.shape == (100, 3)
    assert not np.array_equal(first, second)
    assert not np.array_equal(first[:, 0], first[:, 1])


def test_counters_show_and_hold_no_noise():
    counter = counter_of(dp.Change(0, 10))
    fresh = pickle.dumps(counter_of(dp.Change(0, 10)))
    shown = repr(counter)
    counter.max_variance(), counter.quantise(3)
    before = pickle.dumps(counter)
    counter.release(np.arange(100) % 7)
    noise, state = SystemNoise(counter.law), counter.init()
    for x in range(50):
        state, _ = counter.step(state, x, noise)
    assert repr(counter) == str(counter) == shown
    assert pickle.dumps(counter) == before
    assert len(before) < len(fresh) + 200
    for known in ("BinaryTree(horizon=100)", "ZCDP(rho=0.5)", "DiscreteGaussian", "replace_one"):
        assert known in shown
    assert copy.deepcopy(counter) == counter


def test_counters_are_frozen():
    with pytest.raises(AttributeError):
        counter_of().unit = 2.0
    assert counter_of() == counter_of(dp.Change(0, 1))
    assert counter_of() != counter_of(dp.Change(0, 2))
    assert len({counter_of(), counter_of(), counter_of(dp.Change(0, 2))}) == 2


@pytest.mark.slow
def test_steps_from_system_noise_are_of_the_calibrated_size():
    """Mean square of 4000 first releases: 6 standard errors, so one false alarm in 10^8."""
    counter = counter_of(budget=dp.ZCDP(0.5))
    for scale, accepted in ((1, True), (Fraction(3, 2), False), (Fraction(2, 3), False)):
        law = DiscreteGaussian(counter.law.sigma2 * scale**2)
        noise = SeededNoise(law, seed=5)
        values = [counter.step(counter.init(), 0, noise)[1] for _ in range(4000)]
        error = abs(np.square(values).mean() / counter.variance(1) - 1)
        assert (error < 6 * math.sqrt(2 / 4000)) == accepted


def test_a_rejected_element_can_still_take_its_step():
    scalar, vector = counter_of(dp.Change(5, 10)), counter_of(dp.Change(5, 10), dimension=2)
    assert scalar.quantise_nothing() == 0
    assert vector.quantise_nothing().tolist() == [0, 0]
    assert vector.quantise_nothing().dtype == np.int64


def test_the_description_holds_the_public_parameters():
    counter = counter_of(dp.Change(-1, 2), unit=0.5)
    described = counter.describe()
    assert described["budget"] == "rho = 0.5 (zCDP)"
    assert described["mechanism"] == "BinaryTree"
    assert described["horizon"] == "100"
    assert "values in [-1, 2]" in described["neighbouring_relation"]
    assert described["neighbouring_relation"].startswith("replace_one")
    assert f"{math.sqrt(7) * 3:g}" in described["noise"]
    assert float(described["largest_stddev"]) == pytest.approx(
        math.sqrt(counter.max_variance()), rel=1e-4
    )


@pytest.mark.parametrize("number", [np.float16, np.float32, np.float64, np.longdouble, float])
@pytest.mark.parametrize(
    ("bounds", "unit"), [((0, 0.3), 0.2), ((0, 1.4999), 1), ((0, 1000.3), 0.01), ((-0.3, 0.3), 0.2)]
)
def test_numbers_of_less_precision_stay_within_the_lattice(number, bounds, unit):
    """numpy compares a float32 with a bound in 32 bits, where 0.3 passes for at most 0.3."""
    change = dp.Change(*bounds)
    counter = counter_of(change, unit=unit)
    low, high = change.lattice_bounds(unit)
    for value in (*bounds, np.nextafter(number(bounds[1]), number(9e3)), 7e3):
        one = counter.quantise(number(value))
        assert low <= one <= high
        assert counter.quantise_all(np.array([value], dtype=number)).tolist() == [one]


def test_noise_that_is_drawn_early_is_accounted_for_by_its_pure_budget_alone():
    """Inputs may follow noise already seen: what composes by zCDP is not proved of it."""
    for subtraction in (True, False):
        mechanism = dp.mechanisms.KAry(4096, arity=3, subtraction=subtraction)
        counter = dp.calibrate(mechanism, dp.PureDP(0.5))
        for delta in (1e-9, 0.1):
            known = counter.epsilon_at(delta)
            assert known == pytest.approx(0.5) if subtraction or delta < 0.1 else known < 0.1


def test_a_counter_of_another_version_is_refused(monkeypatch):
    """Its noise was calibrated to other constants of the encoder, and may be too little."""
    counter = dp.calibrate(SmoothBinary(100), dp.ZCDP(0.5))
    data = pickle.dumps(counter)
    assert pickle.loads(data) == counter
    monkeypatch.setattr(SmoothBinary, "fingerprint", "SmoothBinary of the next version")
    with pytest.raises(RuntimeError, match="another version of beam_dpcount: install the same"):
        pickle.loads(data)

"""What encoders with real entries share: exact transformations of doubles, sums in one order, and
what rounding adds to a sensitivity."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import beam_dpcount as dp
from beam_dpcount.counters.change import SpreadChange
from beam_dpcount.counters.counter import TAKES_GAUSSIAN
from beam_dpcount.mechanisms import (
    BLT,
    Binned,
    FadedBLT,
    NormalizedBLT,
    ProfiledBLT,
    SquareRoot,
)
from beam_dpcount.mechanisms.base import UnsupportedHorizonError
from beam_dpcount.mechanisms.doubles import double_double, multiply_add, two_product, two_sum
from beam_dpcount.mechanisms.rounded import (
    ARITHMETIC,
    SLACK,
    left_dot,
    left_sum,
    round_up,
    to_integers,
)
from beam_dpcount.statistics.episodes import Episodes
from beam_dpcount.statistics.graph_change import GraphChange
from beam_dpcount.statistics.graph_counts import Degrees, Edges
from beam_dpcount.statistics.words import Words
from tests.messages import says
from tests.neighbours import neighbours
from tests.rounding import ROUNDED

examples = settings(max_examples=300, deadline=None, derandomize=True, database=None)


def bits(values):
    return np.asarray(values, dtype="<f8").tobytes()


def doubles(n, low, high, seed, signed=True):
    """Doubles of full and of few digits, with exponents from low to high."""
    rng = np.random.default_rng(seed)
    digits = rng.integers(2**52, 2**53, n)
    digits[::3] &= -(1 << 40)
    digits[1::7] = 2**53 - 1
    digits[2::11] = 2**52 + 1
    values = np.ldexp(digits.astype(float), rng.integers(low - 52, high - 52, n))
    return values * rng.choice([-1.0, 1.0], n) if signed else values


def exact(*values):
    return sum(map(Fraction, values))


# Pairs of doubles


@pytest.mark.parametrize("spread", [1, 60, 900])
def test_two_sum_is_exact(spread):
    a, b = doubles(3000, -spread, spread, 1), doubles(3000, -spread, spread, 2)
    b[::5] = -a[::5]
    b[1::5] = np.nextafter(-a[1::5], 0)
    total, rest = two_sum(a, b)
    for x, y, s, r in zip(a.tolist(), b.tolist(), total.tolist(), rest.tolist(), strict=True):
        assert two_sum(x, y) == (s, r)
        assert s == x + y
        assert exact(s, r) == exact(x, y)
    assert rest.any()


def test_two_sum_is_exact_at_the_ends_of_the_range():
    tiny = 5e-324
    for x, y in (
        (2.0**1022, -tiny),
        (tiny, tiny),
        (2.0**-1022, -tiny),
        (1.5 * 2.0**1022, 2.0**969),
        (0.0, 1.0),
    ):
        assert exact(*two_sum(x, y)) == exact(*two_sum(y, x)) == exact(x, y)


@pytest.mark.parametrize("spread", [1, 60, 440])
def test_two_product_is_exact(spread):
    a, b = doubles(3000, -spread, spread, 3), doubles(3000, -spread, spread, 4)
    product, error = two_product(a, b)
    for x, y, p, e in zip(a.tolist(), b.tolist(), product.tolist(), error.tolist(), strict=True):
        assert two_product(x, y) == (p, e)
        assert p == x * y
        assert exact(p, e) == Fraction(x) * Fraction(y)
    assert error.any()


def test_two_product_is_exact_up_to_the_magnitude_that_is_stated():
    for x, y in (
        (2.0**990 - 2.0**937, 1 + 2.0**-52),
        (1 - 2.0**-53, 2.0**990 - 2.0**937),
        (2.0**-800 * (1 + 2.0**-52), 3.0),
        (0.0, 2.0**990),
    ):
        assert exact(*two_product(x, y)) == Fraction(x) * Fraction(y)


@pytest.mark.parametrize("value", [Fraction(1, 3), Fraction(-2, 7), Fraction(0), Fraction(5)])
def test_double_double_is_the_closest_pair(value):
    high, low = double_double(value)
    assert high == float(value)
    assert abs(exact(high, low) - value) <= abs(value) * Fraction(1, 2**106)
    assert high + low == high


@pytest.mark.slow
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("spread", [1, 30, 120])
def test_multiply_add_has_a_relative_error_below_2_to_the_minus_100(spread, sign):
    n = 2000
    rng = np.random.default_rng(spread)
    x = sign * doubles(n, -spread, spread, 6, signed=False)
    x[::9] = 0.0
    largest = Fraction(0)
    factors, pairs, results = [], [], []
    for i in range(n):
        factor = double_double(1 - Fraction(float(rng.uniform(0, 1))) ** int(rng.integers(1, 9)))
        numerator = int(rng.integers(2**62)) << 62 | int(rng.integers(2**62))
        pair = double_double(sign * Fraction(numerator, 2 ** int(rng.integers(60, 124))))
        result = multiply_add(factor, pair, float(x[i]))
        assert result[0] + result[1] == result[0]
        value = exact(*factor) * exact(*pair) + Fraction(float(x[i]))
        if value:
            largest = max(largest, abs(exact(*result) - value) / abs(value))
        factors.append(factor)
        pairs.append(pair)
        results.append(result)
    assert Fraction(1, 2**112) < largest < Fraction(1, 2**100)
    arrays = multiply_add(
        tuple(np.array(factors).T.copy()), tuple(np.array(pairs).T.copy()), x.copy()
    )
    assert bits(arrays) == bits(np.array(results).T)


def test_multiply_add_keeps_what_a_double_would_lose():
    pair = (0.0, 0.0)
    for x in (1.0, 2.0**-80, 2.0**-80):
        pair = multiply_add((1.0, 0.0), pair, x)
    assert exact(*pair) == 1 + Fraction(1, 2**79)
    # Halving 40 times what is no double, and adding 1 each time.
    third = double_double(Fraction(1, 3))
    value, pair = Fraction(0), (0.0, 0.0)
    for _ in range(40):
        value, pair = value * exact(*third) + 1, multiply_add(third, pair, 1.0)
    assert abs(exact(*pair) - value) < value * Fraction(1, 2**100)


# Norms rounded up


@examples
@given(st.floats(1e-200, 1e200))
def test_round_up_is_never_below_and_little_above(value):
    rounded = round_up(value)
    assert Fraction(value) <= Fraction(rounded)
    assert rounded <= value * (1 + 1.001e-9) * (1 + 2.0**-27)
    digits = math.frexp(rounded)[0] * 2**28
    assert digits == int(digits)
    # Once more moves it by one unit of the 28th digit.
    assert rounded < round_up(rounded) <= rounded * (1 + 2.0**-27)


def test_round_up_of_values_that_differ_in_last_digits_is_one_number():
    """All but for those that lie at a boundary; never for numbers of few digits, such as 1."""
    rng = np.random.default_rng(7)
    values = np.exp(rng.uniform(-50, 50, 20_000)).tolist()
    moved = 0
    for value in values:
        near = [value * (1 + k * 2.0**-50) for k in (-4, -1, 0, 1, 4)]
        moved += len(set(map(round_up, near))) > 1
    assert moved < 10
    for value in (*range(1, 200), 2.0**40, 0.125, 3 * 2.0**-30, 12345.5):
        near = [value * (1 + k * 1e-10) for k in (-9, -1, 0, 1, 9)]
        assert len(set(map(round_up, near))) == 1
    assert round_up(1.0) == 1 + 2.0**-27
    assert round_up(0.0) == 0


# Sums in one order


def random_columns(seed):
    rng = np.random.default_rng(seed)
    size = int(rng.integers(1, 12))
    exponents = rng.integers(-30, 31, (2, size, 50))
    return np.ldexp(rng.standard_normal((2, size, 50)), exponents)


@pytest.mark.parametrize("seed", range(20))
def test_sums_of_numbers_and_of_arrays_are_the_same_bits(seed):
    weights, values = random_columns(seed)
    given_values = values.copy()
    dots, sums = left_dot(weights, values), left_sum(values)
    columns = list(zip(weights.T.tolist(), values.T.tolist(), strict=True))
    assert bits(dots) == bits([left_dot(w, v) for w, v in columns])
    assert bits(sums) == bits([left_sum(v) for _, v in columns])
    one_by_one = []
    for w, v in columns:
        total = w[0] * v[0]
        for i in range(1, len(w)):
            total += w[i] * v[i]
        one_by_one.append(total)
    assert bits(dots) == bits(one_by_one)
    assert np.array_equal(values, given_values)  # not summed in place


def test_sums_go_from_left_to_right():
    assert left_sum([1e16, 1.0, -1e16]) == 0.0  # Python's own sum() is 1.0 from 3.12 on
    assert left_sum([1e16, -1e16, 1.0]) == 1.0
    assert left_dot([1e8, 1.0, 1e8], [1e8, 1.0, -1e8]) == 0.0
    assert left_sum(iter([2.0])) == 2.0
    assert left_sum([]) == left_dot([], []) == 0.0
    with pytest.raises(ValueError, match="zip"):
        left_dot([1.0, 2.0], [1.0])


def test_integers_of_numbers_and_of_arrays_are_the_same():
    values = [k / 2 for k in range(-9, 10)]
    values += [0.49999999999999994, 2.0**52 + 1, -(2.0**53), 2.0**62, 1e15 + 0.5, 1e15 + 1.5, -0.0]
    rng = np.random.default_rng(8)
    values += (rng.standard_normal(2000) * 2.0 ** rng.integers(-3, 50, 2000)).tolist()
    each = [to_integers(value) for value in values]
    together = to_integers(np.array(values))
    assert all(type(k) is int for k in each)
    assert together.dtype == np.int64
    assert together.tolist() == each
    assert each[:8] == [-4, -4, -4, -3, -2, -2, -2, -1]  # halves to even
    for value, k in zip(values, each, strict=True):
        assert abs(exact(k) - exact(value)) <= Fraction(1, 2)


# What rounding adds to a sensitivity


@dataclass(frozen=True)
class Inexact(SquareRoot):
    """A mechanism that states any error, and any amplification of rounding."""

    error: float = 0.0
    amplified: float = 1.0

    @property
    def encoding_error(self) -> float:
        return self.error

    @property
    def rounding(self) -> float:
        return self.amplified


def largest_error(mechanism):
    """The largest error that is not refused."""
    return ARITHMETIC / 2 * math.sqrt(mechanism.l2_sensitivity_squared / mechanism.horizon)


@pytest.mark.parametrize("amplified", [1.0, 2.3, 7.0])
@pytest.mark.parametrize("share", [0.0, 0.3, 1 - 1e-12])
@pytest.mark.parametrize("magnitude", [1, 3, 1000, 2**20 + 1, 2**31])
@pytest.mark.parametrize("times", [None, 1, 50])
def test_rounding_adds_what_is_stated_and_at_most_one_part_in_ten_thousand(
    amplified, share, magnitude, times
):
    """Arithmetic errors are those of the largest inputs, which one step need not change by."""
    largest = times and times * magnitude
    for horizon in (1, 2, 7, 100, 4096):
        error = share * largest_error(SquareRoot(horizon)) / (times or 1)
        mechanism = Inexact(horizon, error=error, amplified=amplified)
        fine = mechanism.resolution(magnitude, largest)
        assert fine & fine - 1 == 0
        l1, l2_squared = mechanism.norms(magnitude * fine, largest and largest * fine)
        per_row = Fraction(amplified) + 2 * (largest or magnitude) * fine * Fraction(error)
        column = Fraction(magnitude * fine) * Fraction(mechanism.l1_sensitivity)
        assert 1 <= l1 / (column + per_row * horizon) <= 1 + Fraction(1, 10**8)
        column = magnitude * fine * math.sqrt(mechanism.l2_sensitivity_squared)
        norm = column + float(per_row) * math.sqrt(horizon)
        seen = math.sqrt(l2_squared)
        assert norm <= seen <= norm * (1 + 1e-8)
        assert column < seen <= column * (1 + SLACK / 2 + ARITHMETIC + 1e-8)
        # No finer than it need be: half of it would not do.
        assert fine == 1 or amplified * math.sqrt(horizon) > SLACK / 4 * column * (1 - 1e-12)


@pytest.mark.parametrize("kind", [SquareRoot, Binned, BLT, NormalizedBLT])
def test_rounding_of_single_events_adds_no_more_than_a_ten_thousandth(kind):
    for horizon in (1, 10, 1000, 2**14, 2**20, 2**30):
        if horizon <= kind.longest and (kind is not Binned or horizon <= 1000):
            mechanism = kind(horizon)
            fine = mechanism.resolution(1)
            _, l2_squared = mechanism.norms(fine)
            assert l2_squared <= (1 + SLACK) ** 2 * fine**2 * mechanism.l2_sensitivity_squared


@pytest.mark.parametrize("times", [1, 50])
@pytest.mark.parametrize("magnitude", [1, 1000, 2**31])
def test_an_error_that_would_take_more_than_its_share_is_refused(magnitude, times):
    for horizon in (1, 40, 4096):
        error = largest_error(SquareRoot(horizon)) / times
        largest = times * magnitude
        assert Inexact(horizon, error=error * (1 - 1e-12)).resolution(magnitude, largest) >= 1
        refused = Inexact(horizon, error=error * (1 + 1e-12))
        with pytest.raises(UnsupportedHorizonError, match="too many digits for Inexact") as caught:
            refused.resolution(magnitude, largest)
        for part in (f"up to {largest} units", f"a horizon of {horizon} ", "use SmoothBinary"):
            assert part in str(caught.value)
        if times == 1:
            with pytest.raises(UnsupportedHorizonError, match="a shorter horizon"):
                dp.calibrate(refused, dp.ZCDP(0.5))


@pytest.mark.parametrize("kind", ROUNDED)
def test_larger_changes_need_coarser_lattices(kind):
    mechanism = kind(1000)
    fine = [mechanism.resolution(m) for m in (1, 2, 1024, 2**20, 2**26, 2**31)]
    assert fine[1:3] == [fine[0] // 2, fine[0] // 1024]
    assert fine == sorted(fine, reverse=True)
    assert fine[-1] == 1
    for magnitude, parts in zip((1, 2**31), (fine[0], 1), strict=True):
        slack = math.sqrt(mechanism.norms(magnitude * parts)[1])
        slack /= magnitude * parts * math.sqrt(mechanism.l2_sensitivity_squared)
        assert 1 < slack <= 1 + 1e-4


# What rounding adds to changes that reach several steps and coordinates


@dataclass(frozen=True)
class Faint(SquareRoot):
    """Prefix sums times a weight, on a lattice so coarse that most of a change is rounding."""

    weight: float = 0.26
    parts: int = 1
    error: float = 0.0

    def resolution(self, magnitude, largest=None):
        return self.parts

    @property
    def encoding_error(self):
        return self.error

    @property
    def l1_sensitivity(self):
        return self.weight * self.horizon

    @property
    def l2_sensitivity_squared(self):
        return self.weight**2 * self.horizon

    def lag_bounds(self, n):
        return (self.l2_sensitivity_squared,) * n

    def encoder(self, n):
        return self.weight * np.tril(np.ones((n, n)))


def rounded_norms(mechanism: Faint, change: SpreadChange, x, other):
    """The largest L1 and L2 norm of round(R x) - round(R x'), arithmetic as wrong as is stated.

    Args:
      x, other: neighbours, shape (pairs, steps, coordinates).
    """
    fine = mechanism.resolution(1)
    steps = x.shape[1]
    sums, others = (
        np.einsum("rs,nsw->nrw", fine * mechanism.encoder(steps), v) for v in (x, other)
    )
    wrong = fine * change.largest(1) * mechanism.encoding_error
    apart = [np.rint(sums + e) - np.rint(others - e) for e in (wrong, -wrong)]
    same = np.logical_and.accumulate(x == other, axis=1)  # equal inputs, equal errors
    d = np.where(same, 0, np.max(np.abs(apart), axis=0))
    return d.sum(axis=(1, 2)).max(), math.sqrt((d**2).sum(axis=(1, 2)).max())


FAINT = [
    *({"weight": weight} for weight in (0.26, 0.51, 0.7)),
    {"weight": 0.4, "parts": 4},
    {"weight": 0.065, "parts": 4, "error": 0.375},
    {"weight": 0.26, "error": 1.5},
]


@pytest.mark.parametrize("touched", [1, 2, 4, 9])
@pytest.mark.parametrize("given", FAINT, ids=str)
def test_each_coordinate_that_changes_is_rounded_apart(given, touched):
    """All streams of 0 and 1 to which one step adds 1, in each of so many coordinates alike."""
    T = 6
    mechanism = Faint(T, **given)
    change = GraphChange(0, 1, "edge", masses=((1, 0),) * touched)
    l1, l2_squared = change.norms(mechanism, 1, None)
    streams = np.array(list(itertools.product((0, 1), repeat=T)))
    x = np.repeat(streams, T, axis=0)
    other = x + np.tile(np.eye(T, dtype=np.int64), (len(streams), 1))
    copies = [np.repeat(v[:, :, None], touched, axis=2) for v in (x, other)]
    seen_l1, seen_l2 = rounded_norms(mechanism, change, *copies)
    assert seen_l1 <= l1
    assert seen_l2 <= math.sqrt(l2_squared)

    # No bound would hold without it, nor with that of one coordinate.
    fine = mechanism.resolution(1)
    slack_l1, slack_l2 = mechanism.slack(fine)
    if touched >= 4 and given["weight"] < 0.3:
        alone = fine * math.sqrt(mechanism.l2_sensitivity_squared * touched)
        assert seen_l2 > alone + slack_l2
        assert seen_l1 > fine * touched * mechanism.l1_sensitivity + slack_l1
        # Errors of arithmetic grow with the inputs, so with the resolution.
        if mechanism.parts > 1:
            assert seen_l2 > alone + math.sqrt(touched) * mechanism.slack(1)[1]


@pytest.mark.slow
@pytest.mark.parametrize("given", FAINT, ids=str)
@pytest.mark.parametrize(
    ("statistic", "relation", "letters", "steps"),
    [
        *((Words("ab", 2), relation, 2, 5) for relation in ("replace_one", "add_remove")),
        (Words("abcd", 1), "replace_one", 4, 4),
        *((Episodes("ab", 2), relation, 2, 5) for relation in ("replace_one", "add_remove")),
        (Degrees(4, max_degree=2), "edge", 6, 4),
        (Edges(4, max_degree=1), "edge", 6, 4),
    ],
    ids=str,
)
def test_no_event_changes_a_rounded_statistic_by_more(statistic, relation, letters, steps, given):
    mechanism, change = Faint(steps, **given), statistic.change(relation)
    l1, l2_squared = change.norms(mechanism, 1, statistic.dimension)
    x, other = neighbours(statistic, letters, steps, relation)
    seen_l1, seen_l2 = rounded_norms(mechanism, change, x, other)
    assert 0 < seen_l1 <= l1
    assert seen_l2 <= math.sqrt(l2_squared)
    if mechanism.encoding_error:  # then no bound holds that leaves a coordinate's rounding out
        fine, reach = mechanism.resolution(1), change.spread(mechanism)
        alone = fine * math.sqrt(reach.l2_squared)
        slack = mechanism.slack(change.largest(1) * fine)[1] if reach.touched > 1 else 0
        assert seen_l2 > alone + slack


@pytest.mark.parametrize("kind", ROUNDED)
def test_noise_is_calibrated_to_the_sensitivity_with_rounding(kind):
    """Not to R's columns alone, and on the lattice that the releases are on."""
    mechanism = kind(64)
    counter = dp.calibrate(mechanism, dp.ZCDP(0.5), dp.Change(0, 3), unit=0.5)
    fine = mechanism.resolution(6)
    assert counter.grid == 0.5 / fine
    assert counter.law.sigma2 == mechanism.norms(6 * fine)[1]
    alone = 36 * fine**2 * Fraction(mechanism.l2_sensitivity_squared)
    assert 1 < counter.law.sigma2 / alone < 1 + Fraction(2, 10**4) + Fraction(1, 10**7)
    coarse = mechanism.norms(6)[1] / (36 * Fraction(mechanism.l2_sensitivity_squared))
    assert coarse > (1 + 8 / (6 * math.sqrt(mechanism.l2_sensitivity_squared))) ** 2 - 1e-6


def test_all_rounded_kinds_take_gaussian_noise_alone():
    assert {SquareRoot, Binned, BLT, NormalizedBLT, ProfiledBLT, FadedBLT} == set(ROUNDED)
    for kind in ROUNDED:
        assert kind(10).laws == {"gaussian"}
        with pytest.raises(ValueError, match=says(TAKES_GAUSSIAN)):
            dp.calibrate(kind(10), dp.PureDP(1))

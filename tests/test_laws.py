"""The noise laws, against exact probabilities that are computed here by other means."""

import functools
import inspect
import itertools
import math
import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import FrozenInstanceError
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal, localcontext
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import opendp.prelude as dp
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

from beam_dpcount.noise import laws, tables
from beam_dpcount.noise.laws import DiscreteGaussian, DiscreteLaplace, Law, RoundedGaussian
from beam_dpcount.noise.tables import (
    Block,
    InverseTable,
    TruncatedGeometric,
    _is_kept,
    _propose,
    exp_negative,
    exp_powers,
    exp_squares,
    inverse_table,
)
from tests.scripted import SeededBytes

# The false-alarm rate of every single statistical assertion, were its seed drawn at random.
ALARM = 1e-6
# Samples of a law whose scale is wrong by 1.5 must be this implausible: no seed can hide it.
REJECT = 1e-12
WRONG = (Fraction(3, 2), Fraction(2, 3))
N = 200_000

SMALL = [
    DiscreteLaplace(Fraction(1, 5)),
    DiscreteLaplace(Fraction(7, 3)),
    DiscreteGaussian(Fraction(1, 5)),
    DiscreteGaussian(Fraction(30)),
    RoundedGaussian(Fraction(1, 5)),
    RoundedGaussian(Fraction(30)),
]
TABLE = [
    *SMALL,
    DiscreteLaplace(Fraction(512)),
    DiscreteGaussian(Fraction(262143, 17)),
    DiscreteGaussian(Fraction(512**2)),
    RoundedGaussian(Fraction(8**2)),
]
COMPOSED = [  # beyond the table limit, small enough to add up all probabilities
    DiscreteLaplace(Fraction(512) + Fraction(1, 10**9)),
    DiscreteLaplace(Fraction(123457, 100)),
    DiscreteGaussian(Fraction(512**2 + 1)),
    DiscreteGaussian(Fraction(7 * 600**2 + 3, 7)),
    DiscreteGaussian(Fraction(2**20)),
    RoundedGaussian(Fraction(8**2) + Fraction(1, 10**9)),  # blocks of half an integer
    RoundedGaussian(Fraction(16**2)),
    RoundedGaussian(Fraction(4321, 3)),
    RoundedGaussian(Fraction(2**20)),
]
HUGE = [
    DiscreteLaplace(Fraction(2**20) + Fraction(1, 3)),
    DiscreteLaplace(Fraction(2**33)),
    DiscreteGaussian(Fraction(2**40) + Fraction(1, 3)),
    DiscreteGaussian(Fraction(2**48)),
    DiscreteGaussian(Fraction(2**66)),
    RoundedGaussian(Fraction(2**40) + Fraction(1, 3)),
    RoundedGaussian(Fraction(2**48)),
    RoundedGaussian(Fraction(2**66)),
]
LAWS = [*TABLE, *COMPOSED, *HUGE]


def name(law: Any) -> str:
    return f"{type(law).__name__}-{float(next(iter(law.__dict__.values()))):.6g}"


def every(laws: Sequence[Any]) -> Callable[[Any], Any]:
    return pytest.mark.parametrize("law", laws, ids=name)


# --- Exact probabilities -------------------------------------------------------------------------

DIGITS = Context(prec=260)
HALVES = (-mpmath.mpf(1) / 2, mpmath.mpf(1) / 2)
DEEPEST = Decimal(10) ** -130  # below 2^-431


def decimal(r: Fraction) -> Decimal:
    return Decimal(r.numerator) / Decimal(r.denominator)


@functools.cache
def exact_tails(law: Any) -> list[Decimal]:
    """P(|X| >= m) for m = 0, 1, ... while above 10^-130, good to 200 digits."""
    with localcontext(DIGITS):
        if isinstance(law, TruncatedGeometric):
            q = (-1 / decimal(law.parameter)).exp()
            powers = [q**m for m in range(law.size)]
            whole = sum(powers)
            return [sum(powers[m:]) / whole for m in range(law.size)]
        if isinstance(law, RoundedGaussian):
            return [Decimal(1), *rounded_tails(law)]
        weights = [Decimal(1)]
        sides = 1 if isinstance(law, Block) else 2
        if isinstance(law, DiscreteLaplace):
            q = (-1 / decimal(law.parameter)).exp()
            while weights[-1] > DEEPEST:
                weights.append(weights[-1] * q)
            beyond = weights[-1] * q / (1 - q)
        else:
            sigma2 = law.tau2 if isinstance(law, Block) else law.sigma2
            ratio = (-1 / (2 * decimal(sigma2))).exp()  # exp(-(2 j + 1) / (2 sigma2))
            square = ratio * ratio
            while weights[-1] > DEEPEST**2:  # what lies beyond does not show in 200 digits
                weights.append(weights[-1] * ratio)
                ratio *= square
            beyond = Decimal(0)
        tails = []
        for weight in reversed(weights):
            beyond += weight
            tails.append(sides * beyond)
        tails.reverse()
        whole = tails[0] - (sides - 1)
        return [Decimal(1), *(t / whole for t in tails[1:] if t > DEEPEST)]


def rounded_tails(law: RoundedGaussian) -> Iterator[Decimal]:
    """P(|X| >= m) for m = 1, 2, ... while above 10^-130, by another library's erfc."""
    with mpmath.workdps(280):
        root = mpmath.sqrt(8 * mpmath.mpf(law.sigma2.numerator) / law.sigma2.denominator)
        for odd in itertools.count(1, 2):
            tail = Decimal(mpmath.nstr(mpmath.erfc(odd / root), 220))
            if tail <= DEEPEST:
                return
            yield tail


def exact_floor(tail: Decimal, bits: int) -> int:
    with localcontext(DIGITS):
        return int((tail * 2**bits).to_integral_value(ROUND_FLOOR))


@functools.cache
def exact_pmf(law: Law) -> tuple[np.ndarray, np.ndarray]:
    """All integers of probability above 10^-19, and their probabilities in double precision."""
    reach = int(45 * law.scale) + 45
    x = np.arange(-reach, reach + 1)
    if isinstance(law, DiscreteLaplace):
        weights = np.exp(-np.abs(x) / float(law.parameter))
    elif isinstance(law, RoundedGaussian):
        cuts = (np.abs(x) + np.array([[-0.5], [0.5]])) / law.scale
        weights = -np.diff(stats.norm.sf(cuts), axis=0)[0]
    else:
        weights = np.exp(-(x.astype(float) ** 2) / (2 * float(law.sigma2)))  # type: ignore[attr-defined]
    return x, weights / weights.sum()


def cdf(law: Law, x: np.ndarray) -> np.ndarray:
    """P(X <= x), to 10^-12, for scales of 2^20 and more."""
    if not isinstance(law, DiscreteLaplace):
        # Exact for the rounded law; the discrete one's error is about phi''/(24 sigma2), by
        # Euler and Maclaurin.
        return np.asarray(stats.norm.cdf((x + 0.5) / law.scale))
    p = 1 / (1 + math.exp(-1 / law.scale))  # q^-x / (1 + q) below 0
    return np.where(x < 0, p * np.exp(x / law.scale), 1 - p * np.exp(-(x + 1) / law.scale))


# --- Statistics ----------------------------------------------------------------------------------


def chi_square(observed: np.ndarray, expected: np.ndarray, least: float = 25) -> float:
    """The p-value of Pearson's statistic; adjacent cells are pooled to `least` expected or more."""
    starts, gathered, left = [0], 0.0, float(expected.sum())
    for i, e in enumerate(expected.tolist(), 1):
        gathered, left = gathered + e, left - e
        if gathered >= least <= left:
            starts.append(i)
            gathered = 0.0
    o, e = np.add.reduceat(observed, starts), np.add.reduceat(expected, starts)
    assert len(starts) > 2
    return float(stats.chi2.sf(((o - e) ** 2 / e).sum(), len(starts) - 1))


def fit(law: Law, draws: np.ndarray) -> float:
    """The p-value of `draws` under exactly this law, over fine cells and over about 40."""
    if law.scale < 2000:
        x, p = exact_pmf(law)
        observed = np.bincount(np.clip(draws, x[0], x[-1]) - x[0], minlength=len(x))
    else:
        edges = (np.linspace(-9, 9, 600) * law.scale).astype(np.int64)
        observed = np.bincount(np.searchsorted(edges, draws), minlength=len(edges) + 1)
        p = np.diff(cdf(law, edges), prepend=0.0, append=1.0)
    expected = len(draws) * p
    if law.scale < 5:
        return chi_square(observed, expected)
    return 2 * min(chi_square(observed, expected, least) for least in (25, len(draws) / 40))


def wrong(law: Any, factor: Fraction) -> Law:
    if isinstance(law, DiscreteLaplace):
        return DiscreteLaplace(law.parameter * factor)
    return type(law)(law.sigma2 * factor**2)


def neighbours(law: Law) -> list[Law]:
    return [wrong(law, f) for f in WRONG if law.scale * f <= 2**33]


@functools.cache
def draws_of(law: Law) -> np.ndarray:
    return law.sample(N, SeededBytes(LAWS.index(law)))


@pytest.mark.slow
@every(LAWS)
def test_samples_follow_the_law_and_no_other(law: Law) -> None:
    draws = draws_of(law)
    assert draws.dtype == np.int64
    assert draws.shape == (N,)
    assert fit(law, draws) > ALARM
    for other in neighbours(law):
        assert fit(other, draws) < REJECT


@every([law for law in LAWS if law.scale > 1])
def test_tails_have_their_weight(law: Law) -> None:
    magnitudes = np.abs(draws_of(law))

    def p_value(claimed: Law, expected: float) -> float:
        """Exceedances of the level that `expected` draws of the law itself should exceed."""
        if law.scale < 2000:
            x, p = exact_pmf(law)
            tails = 2 * np.cumsum(p[x > 0][::-1])[::-1]
            level = 1 + int(np.argmax(tails <= expected / N))
        elif isinstance(law, DiscreteLaplace):
            level = int(-law.scale * math.log(expected / N))
        else:
            level = int(-law.scale * stats.norm.ppf(expected / N / 2))
        if claimed.scale < 2000:
            x, p = exact_pmf(claimed)
            tail = float(p[np.abs(x) >= level].sum())
        else:
            tail = 2 * float(cdf(claimed, np.array([-level]))[0])
        count = int((magnitudes >= level).sum())
        return 2 * min(stats.binom.cdf(count, N, tail), stats.binom.sf(count - 1, N, tail))

    for expected in (300.0, 30.0, 3.0):
        assert p_value(law, expected) > ALARM
    for other in neighbours(law):
        assert p_value(other, 300.0) < REJECT


@every(LAWS)
def test_sample_moments(law: Law) -> None:
    draws = draws_of(law).astype(float)

    def deviations(claimed: Law) -> tuple[float, float]:
        """Mean and variance of the sample in standard errors of `claimed`."""
        variance, kurtosis = claimed.variance, 6 if isinstance(law, DiscreteLaplace) else 3
        if claimed.scale < 2000:
            x, p = exact_pmf(claimed)
            kurtosis = (x.astype(float) ** 4 * p).sum() / variance**2
        error = variance * math.sqrt((kurtosis - 1) / N)
        mean = draws.mean() / math.sqrt(variance / N)
        return abs(float(mean)), abs(float((draws**2).mean()) - variance) / error

    mean, variance = deviations(law)
    assert mean < 4.9  # two-sided 1e-6
    assert variance < 4.9
    assert deviations(wrong(law, WRONG[1]))[1] > 8
    for other in neighbours(law):
        assert deviations(other)[1] > 8


@every(HUGE)
def test_every_digit_of_a_large_draw_is_right(law: Law) -> None:
    """X mod 2^18, of which the 18 bits come from two digits of base 512 (or from one proposal)."""
    modulus = 2**18
    r = np.arange(modulus, dtype=float)
    if isinstance(law, DiscreteLaplace):
        p = np.exp(-r / law.scale) + np.exp((r - modulus) / law.scale)
        p[0] = 1 + math.exp(-modulus / law.scale)
        p /= p.sum()
    else:  # uniform, up to exp(-2 pi^2 (sigma / modulus)^2) < 10^-137
        p = np.full(modulus, 1 / modulus)
    digits = p.reshape(512, 512)
    x = draws_of(law) % modulus
    assert chi_square(np.bincount(x % 512, minlength=512), N * digits.sum(0)) > ALARM
    assert chi_square(np.bincount(x // 512, minlength=512), N * digits.sum(1)) > ALARM
    assert chi_square(np.bincount((x & ~1) % 512, minlength=512), N * digits.sum(0)) < REJECT


@pytest.mark.slow
@every([TABLE[1], TABLE[-1], *COMPOSED, *HUGE])
def test_draws_are_independent(law: Law) -> None:
    def p_value(a: np.ndarray, b: np.ndarray) -> float:
        quarters = np.quantile(draws_of(law), [0.25, 0.5, 0.75])
        table = np.zeros((4, 4))
        np.add.at(table, (np.searchsorted(quarters, a), np.searchsorted(quarters, b)), 1)
        table = table[table.sum(1) > 0][:, table.sum(0) > 0]
        return float(stats.chi2_contingency(table, correction=False).pvalue)

    x = draws_of(law)
    assert p_value(x[:-1:2], x[1::2]) > ALARM  # neighbours, each draw in one pair
    assert p_value(x[: N // 2], x[N // 2 :]) > ALARM
    rng = np.random.default_rng(1)
    copied = np.where(rng.random(N // 2) < 0.05, x[: N // 2], x[N // 2 :])
    assert p_value(x[: N // 2], copied) < REJECT


@pytest.mark.parametrize(
    "law",
    [
        DiscreteGaussian(Fraction(1, 10**12)),
        RoundedGaussian(Fraction(1, 10**12)),
        DiscreteLaplace(Fraction(1, 10**6)),
    ],
    ids=name,
)
def test_tiny_scales_are_silent(law: Law) -> None:
    """P(X != 0) is exp(-1e6) at most: no seed draws anything but 0."""
    assert not law.sample(N, SeededBytes(1)).any()
    assert law.pmf(0) == 1
    assert law.pmf([-1, 1]).tolist() == [0, 0]
    assert law.variance == 0
    small = DiscreteGaussian(Fraction(1, 10))  # 2 exp(-5): the same check can fail
    assert small.sample(N, SeededBytes(1)).any()


@every([TABLE[0], TABLE[-1], *COMPOSED[1::2], *HUGE[1::2]])
def test_no_draws_are_an_empty_integer_array(law: Law) -> None:
    draws = law.sample(0)
    assert draws.shape == (0,)
    assert draws.dtype == np.int64


@every(LAWS)
def test_the_default_source_is_the_operating_systems(law: Law) -> None:
    assert inspect.signature(law.sample).parameters["random_bytes"].default is os.urandom
    # 1000 draws of scale >= 1/5 coincide with a chance below 1e-6 unless the source is fixed.
    assert not np.array_equal(law.sample(1000), law.sample(1000))


# --- Exactness at the boundaries of the table ----------------------------------------------------


class Uniform:
    """The bytes that spell one uniform real U = u / 2^bits, then `fill` bits for ever."""

    def __init__(
        self, u: int, bits: int, fill: int, negative: bool, cell_bits: int, word_bits: int
    ) -> None:
        assert 0 <= u < 1 << bits
        self._u, self._left = (u << 4096) | (fill * ((1 << 4096) - 1)), bits + 4096
        self._negative, self._cell_bits, self._word_bits = negative, cell_bits, word_bits
        self.requests: list[int] = []

    def _take(self, n: int) -> int:
        self._left -= n
        return (self._u >> self._left) & ((1 << n) - 1)

    def __call__(self, n: int) -> bytes:
        self.requests.append(n)
        if len(self.requests) == 1:
            unused = 0x7FFF >> self._cell_bits << self._cell_bits
            first = self._negative << 15 | unused | self._take(self._cell_bits)
            assert n == 2
            return first.to_bytes(2, "little")
        assert n == 8
        if len(self.requests) == 2:
            spare = 64 - (self._word_bits - self._cell_bits)
            word = self._take(64 - spare) << spare | ((1 << spare) - 1)
            return word.to_bytes(8, "little")
        return self._take(64).to_bytes(8, "little")


def invert(
    table: InverseTable,
    u: int,
    bits: int,
    fill: int = 0,
    negative: bool = False,
    size: tuple[int, int] = (15, 64),
) -> int:
    (value,) = table.sample(1, Uniform(u, bits, fill, negative, *size))
    return int(value)


def table_of(law: Any, size: tuple[int, int]) -> InverseTable:
    return InverseTable(functools.cache(law.tails), isinstance(law, Law), *size)


DIGIT = TruncatedGeometric(Fraction(123457, 100), 512)
FLAT_DIGIT = TruncatedGeometric(Fraction(2**33), 512)
BLOCK = Block(Fraction(512**2 + 1, 2**10))


def magnitude(tails: list[Decimal], u: int, bits: int) -> int:
    """How many m >= 1 have u / 2^bits < P(|X| >= m)."""
    with localcontext(DIGITS):
        real = Decimal(u) / Decimal(2**bits)
        return sum(1 for t in tails[1:] if real < t)


@pytest.mark.slow
@pytest.mark.exhaustive("law", "size")
@pytest.mark.parametrize("size", [(15, 64), (3, 6)], ids=str)
@every([*SMALL, DIGIT, FLAT_DIGIT, BLOCK])
def test_values_flip_exactly_at_the_boundaries(law: Any, size: tuple[int, int]) -> None:
    """U within 2^-256 below P(|X| >= m) gives m, and within 2^-256 above it m - 1."""
    table, tails = table_of(law, size), exact_tails(law)
    depths = [2, 8, 40, 63, 65, 70, 100, 150, 180]  # -log2 of the tail; the table ends at 64
    wanted = {1, 2, 3} | {sum(1 for t in tails if t > Decimal(2) ** -d) - 1 for d in depths}
    wanted = {m for m in wanted if m > 0 and tails[m] > Decimal(2) ** -190}
    assert len(wanted) > 3
    for m in sorted(wanted):
        boundary = exact_floor(tails[m], 256)
        signs = [(False, 1), (True, -1 if isinstance(law, Law) else 1)]
        for negative, sign in signs:
            below = invert(table, boundary - 1, 256, 1, negative, size)
            above = invert(table, boundary + 1, 256, 0, negative, size)
            assert (below, above) == (sign * m, sign * (m - 1))


@pytest.mark.exhaustive
@every([DiscreteLaplace(Fraction(512)), DiscreteGaussian(Fraction(512**2))])
def test_values_flip_exactly_at_the_boundaries_of_the_largest_tables(law: Any) -> None:
    tails, table = exact_tails(law), table_of(law, (15, 64))
    for depth in (1, 66):
        m = sum(1 for t in tails if t > Decimal(2) ** -depth) - 1
        boundary = exact_floor(tails[m], 192)
        assert invert(table, boundary - 1, 192, 1) == m
        assert invert(table, boundary + 1, 192, 0) == m - 1


@pytest.mark.slow
@every(SMALL)
def test_no_tail_is_cut(law: Any) -> None:
    """Zero bits make a draw larger and larger, as far as one goes."""
    tails = exact_tails(law)
    for bits in (50, 64, 65, 128, 129, 200, 400):
        assert invert(inverse_table(law), 1, bits) == magnitude(tails, 1, bits)
        assert invert(inverse_table(law), 1, bits, negative=True) == -magnitude(tails, 1, bits)
    assert magnitude(tails, 1, 400) > magnitude(tails, 1, 200) > magnitude(tails, 1, 64)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("depth", [66, 130, 200])
def test_boundaries_next_to_a_dyadic_number_take_as_many_bits_as_they_need(
    sign: int, depth: int
) -> None:
    """P(M >= 1) = 1/2 +- 2^-depth, which bounds of 5 units cannot tell from 1/2 with less bits."""
    boundary = 2**299 + sign * 2 ** (300 - depth)

    def tails(bits: int) -> list[tuple[int, int]]:
        middle = boundary << bits >> 300
        return [(middle - 5, middle + 5), (0, 9)]

    table = InverseTable(tails, signed=False)
    for distance in (1, 2 ** (290 - depth), 2 ** (301 - depth)):
        assert invert(table, boundary - distance, 300, 0) == 1
        assert invert(table, boundary + distance, 300, 0) == 0
    for fill in (0, 1):  # 1/2 itself, or what is one bit below 2^-300 past it
        assert invert(table, 2**299, 300, fill) == (1 if sign > 0 else 0)


@pytest.mark.slow
@every([*COMPOSED[:2], DiscreteLaplace(Fraction(200_001, 2))])
def test_composed_draws_put_their_digits_together_exactly(law: Any) -> None:
    """X = 512 H + R - R', the uniform of each within 2^-59 of one of its boundaries."""
    high = exact_tails(DiscreteLaplace(law.parameter / 512))
    digit = exact_tails(TruncatedGeometric(law.parameter, 512))
    beside = [(h, r, s) for h in (1, 2, 7) for r in (1, 200, 511) for s in (1, 511)]
    for m in beside:
        for above in ((0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 1)):
            tails = (high[m[0]], digit[m[1]], digit[m[2]])
            u = [exact_floor(t, 64) + (32 if a else -32) for t, a in zip(tails, above, strict=True)]
            first = [(word >> 49).to_bytes(2, "little") for word in u]
            more = [(word << 15 & (2**64 - 1)).to_bytes(8, "little") for word in u]
            script = [first[0], more[0], first[1] + first[2], more[1] + more[2]]

            def source(n: int, script: Any = script) -> bytes:
                assert len(script[0]) == n
                return bytes(script.pop(0))

            h, r, s = (value - a for value, a in zip(m, above, strict=True))
            assert law.sample(1, source).tolist() == [512 * h + r - s]


class FirstWords:
    """Every first word once, then the same further chunks for all."""

    def __init__(self, *chunks: int) -> None:
        self._chunks, self._calls = chunks, 0

    def __call__(self, n: int) -> bytes:
        self._calls += 1
        if self._calls == 1:
            assert n == 2 << 16
            return np.arange(1 << 16, dtype="<u2").tobytes()
        chunk = self._chunks[0] if self._calls == 2 else self._chunks[1]
        return chunk.to_bytes(8, "little") * (n // 8)


@pytest.mark.slow
@pytest.mark.exhaustive("law", "word")
@pytest.mark.parametrize("word", [0, 2**64 - 1, 0x5AC3_1234_5678_9ABC], ids=hex)
@every([*TABLE, DIGIT, FLAT_DIGIT, BLOCK])
def test_every_first_word_has_its_exact_value(law: Any, word: int) -> None:
    """All 65536 of them; those that need it go on with 49 bits of `word`, then with `then`."""
    then = 0x0123_4567_89AB_CDEF
    values = inverse_table(law).sample(1 << 16, FirstWords(word, then))
    tails = exact_tails(law)
    cut = Decimal(2) ** -64
    floors = np.array([exact_floor(t, 64) for t in tails[1:] if t >= cut], dtype=np.uint64)
    firsts = np.arange(1 << 16)
    words = (firsts & 0x7FFF).astype(np.uint64) << np.uint64(49) | np.uint64(word >> 15)
    expected = len(floors) - np.searchsorted(floors[::-1], words, side="right")
    for i in np.flatnonzero(np.isin(words, np.append(floors, np.uint64(0)))):
        expected[i] = magnitude(tails, int(words[i]) << 64 | then, 128)
    if isinstance(law, Law):
        expected[firsts >> 15 == 1] *= -1
    assert np.array_equal(values, expected)
    assert (np.diff(np.abs(values[:32768])) <= 0).all()  # monotone in U
    assert len(np.unique(values)) > 2


@pytest.mark.slow
@every([*SMALL, DIGIT, BLOCK])
def test_a_tiny_table_agrees_with_exact_arithmetic_on_every_prefix(law: Any) -> None:
    """All 11-bit prefixes of a table of 2-bit cells and 4-bit words: nearly all are refined."""
    table, tails = table_of(law, (2, 4)), exact_tails(law)
    refined = 0
    for prefix in range(1 << 11):
        u, then = prefix << 53 | 0x5_1234_5678_9ABC, prefix & 1
        source = Uniform(u, 64, then, False, 2, 4)
        (value,) = table.sample(1, source)
        refined += len(source.requests) > 2
        assert value == magnitude(tails, u, 64)
    assert refined >= 128


@pytest.mark.parametrize("size", [(2, 4), (3, 6), (7, 9)], ids=str)
@every(SMALL)
def test_refined_samples_follow_the_law_and_no_other(law: Any, size: tuple[int, int]) -> None:
    draws = table_of(law, size).sample(5000 if law.scale > 1 else 60_000, SeededBytes(3))
    assert fit(law, draws) > ALARM
    for other in neighbours(law):
        assert fit(other, draws) < REJECT


# --- Exactness of the rejection step -------------------------------------------------------------

WORD = 2**64 - 1


@pytest.mark.parametrize("gamma", [Fraction(1, 3), Fraction(7, 5), Fraction(40), Fraction(99, 2)])
def test_a_draw_is_kept_exactly_below_its_probability(gamma: Fraction) -> None:
    """V within 2^-208 of exp(-gamma), gamma as (h, u) = (0, 1) and as (3, 1/4) give it."""
    with localcontext(DIGITS):
        boundary = exact_floor((-decimal(gamma)).exp(), 16 + 192)
    for h, u in ((0, Fraction(1)), (3, Fraction(1, 4))):
        tau2 = u * (2 * h + u) / (2 * gamma)
        for v, below in ((boundary - 1, True), (boundary + 1, False)):
            chunks = [(v >> shift) & WORD for shift in (128, 64, 0)] + 3 * [WORD if below else 0]
            source = iter(chunks)
            kept = _is_kept(
                h, u, Fraction(0), tau2, v >> 192, lambda n, s=source: next(s).to_bytes(n, "little")
            )
            assert kept is below
            assert len(list(source)) <= 3  # it was that close


@pytest.mark.parametrize("end", [0, 1])
@pytest.mark.parametrize("h", [0, 1, 20, 150, 10**5])
def test_a_place_in_the_block_is_refined_as_far_as_it_takes(h: int, end: int) -> None:
    """U within 2^-415 of one end of its 31 bits, V within 2^-336 of the exact probability there."""
    tau2, word = BLOCK.tau2, 0x5555_5555
    place = Fraction(word + end, 2**31)
    words = 5 + (h == 10**5) * 9  # whose probability is 2^-376
    with localcontext(Context(prec=500)):
        gamma = decimal(place * (2 * h + place) / (2 * tau2))
        boundary = int((-gamma).exp() * 2 ** (16 + 64 * words))
    # Within the interval the probability falls, so it is above the one at its upper end.
    for v, kept in ((boundary - 2**64, True), (boundary + 2**64, False)):
        script = [(v >> 64 * k) & WORD for k in range(words - 1, -1, -1)] + 9 * [WORD * (not kept)]
        served = []

        def source(n: int, script: Any = script, served: Any = served) -> bytes:
            of_u = len(served) % 2
            served.append(WORD * end if of_u else script[len(served) // 2])
            return int(served[-1]).to_bytes(n, "little")

        width = Fraction(1, 2**31)
        decided = _is_kept(h, Fraction(word, 2**31), width, tau2, v >> 64 * words, source)
        assert decided is kept
        assert len(served) >= 2 * words - 2


class Proposed:
    """A table that proposes these blocks, and the bytes for places in them and for being kept."""

    def __init__(self, h: Any, words: Any, v: Any, then: int) -> None:
        self._h = np.asarray(h, dtype=np.int64)
        self._chunks = [np.asarray(words, dtype="<u4").tobytes(), np.asarray(v, "<u2").tobytes()]
        self._then, self.refined = then, 0

    def sample(self, n: int, random_bytes: Any) -> np.ndarray:
        assert n == len(self._h)
        return self._h

    def __call__(self, n: int) -> bytes:
        if self._chunks:
            assert len(self._chunks[0]) == n
            return self._chunks.pop(0)
        assert n == 8
        self.refined += 1
        return self._then.to_bytes(8, "little")


def propose(
    monkeypatch: Any, shift: int, rounded: bool, h: Any, words: Any, v: Any, then: int = 0
) -> tuple[np.ndarray, list[int], int]:
    """What is proposed at tau2 = BLOCK.tau2, what is rejected of it, and words it takes more."""
    source = Proposed(h, words, v, then)
    monkeypatch.setattr(tables, "inverse_table", lambda law: source)
    values, rejected = _propose(BLOCK.tau2, shift, rounded, len(words), source)
    return values, rejected.tolist(), source.refined


@pytest.mark.parametrize("shift", [5, 7, 29])
def test_every_integer_is_proposed_in_one_way(monkeypatch: Any, shift: int) -> None:
    low = np.unique(np.arange(-64, 64) % 2**shift)
    h, sign, low = (a.ravel() for a in np.meshgrid(range(4), (0, 1), low))
    for filled in (0, 2 ** (31 - shift) - 1):  # bits that do not matter
        words = sign << 31 | low << 31 - shift | filled
        values, rejected, _ = propose(monkeypatch, shift, False, h, words, 0 * h)
        assert not rejected
        assert np.array_equal(values, np.where(sign, -1 - (h << shift) - low, (h << shift) + low))
        if shift == 5:
            assert sorted(values.tolist()) == list(range(-128, 128))


@pytest.mark.parametrize("shift", [-1, 0, 1, 5, 29])
def test_a_place_is_rounded_to_the_nearest_integer(monkeypatch: Any, shift: int) -> None:
    rng = np.random.default_rng(shift + 1)
    edges = np.clip((2 * np.arange(2**8) + 1) << 30 - shift, 1, 2**31 - 1)
    words = np.concatenate([rng.integers(0, 2**31, 500), edges, edges - 1, [0, 2**31 - 1]])
    h = rng.integers(0, 300, words.size)
    for sign in (0, 1):
        values, rejected, _ = propose(monkeypatch, shift, True, h, words | sign << 31, 0 * h)
        assert not rejected
        for value, block, word in zip(values.tolist(), h.tolist(), words.tolist(), strict=True):
            low, high = (
                Fraction(2) ** shift * (block + Fraction(end, 2**31)) for end in (word, word + 1)
            )
            assert abs(value) - Fraction(1, 2) <= low < high <= abs(value) + Fraction(1, 2)
            assert value * (1 - 2 * sign) >= 0


@pytest.mark.slow
@pytest.mark.parametrize("rounded", [False, True])
def test_floats_decide_only_what_is_sure(monkeypatch: Any, rounded: bool) -> None:
    """v one unit below, at and above the exact probability of hundreds of proposals.

    In two blocks far out, which come with a chance below 2^-280000, it is next to 0.
    """
    rng, shift, count = np.random.default_rng(7), 9, 800
    h = np.append(rng.integers(0, 160, count - 2), [10**4, 10**6])
    words = rng.integers(0, 2**32, count)
    words[-2:] |= 2**30
    places = words % 2**31 if rounded else (words % 2**31 >> 31 - shift) + (words >> 31)
    bits = 31 if rounded else shift
    units = []  # 2^16 times the probabilities, rounded down
    for block, place in zip(h.tolist(), places.tolist(), strict=True):
        u = Fraction(place, 2**bits)
        units.append(exp_negative(u * (2 * block + u) / (2 * BLOCK.tau2), 80) >> 64)
    k = np.array(units)
    inside = k < 65536
    for v, then, kept, refined in (
        (k - 1, 0, True, False),
        (k, 0, True, True),
        (k, WORD, False, True),
        (k + 1, 0, False, False),
    ):
        chosen = np.flatnonzero((v >= 0) & (v < 65536) & inside)
        assert len(chosen) > 750
        _, rejected, more = propose(
            monkeypatch, shift, rounded, h[chosen], words[chosen], v[chosen], then
        )
        assert rejected == ([] if kept else list(range(len(chosen))))
        # One word more for each, of its V and of its place too if that has further bits; and up to
        # a hundred for the last.
        assert more == 0 or refined
        assert not refined or 0 <= more - (1 + rounded) * len(chosen) < 300


def test_what_is_rejected_is_proposed_for_anew(monkeypatch: Any) -> None:
    """In its own place, and nothing else is drawn again."""
    rounds = [(np.array([1, 2, 3, 4]), [1, 3]), (np.array([5, 6]), [0]), (np.array([7]), [])]

    def scripted(tau2: Fraction, shift: int, rounded: bool, n: int, source: Any) -> Any:
        values, rejected = rounds.pop(0)
        assert len(values) == n
        return values, np.array(rejected, dtype=np.int64)

    monkeypatch.setattr(tables, "_propose", scripted)
    assert DiscreteGaussian(Fraction(2**48)).sample(4).tolist() == [1, 7, 3, 6]
    assert not rounds


# --- Certified bounds ----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.exhaustive("bits", "law")
@pytest.mark.parametrize("bits", [64, 128, 300])
@every(
    [
        *TABLE,
        RoundedGaussian(Fraction(20**2)),
        DiscreteGaussian(Fraction(1, 10**12)),
        RoundedGaussian(Fraction(1, 10**12)),
        DIGIT,
        BLOCK,
        Block(Fraction(16**2)),
    ]
)
def test_tails_are_certified_and_tight(law: Any, bits: int) -> None:
    bounds, tails = law.tails(bits), exact_tails(law)
    with localcontext(DIGITS):
        for (low, high), tail in zip(bounds, tails[1:], strict=False):
            assert low <= tail * 2**bits <= high
        for low, high in bounds[len(tails) - 1 :]:
            assert low == 0 <= high
        beyond = tails[len(bounds) + 1] if len(tails) > len(bounds) + 1 else Decimal(0)
        assert beyond * 2**bits < 2**20
    lows, highs = np.array(bounds, dtype=object).T
    assert max(highs - lows) < 2**20
    assert min(lows) >= 0
    # The refinement reads "U >= the last bound" as "below it by none": the last must bind nothing.
    assert lows[-1] == 0 or isinstance(law, TruncatedGeometric)


@pytest.mark.slow
@pytest.mark.parametrize("wrong", [(2,), (-2,), (2, -2), (-2, 0, 2)])
@every([*(law for law in TABLE if law.scale < 200), BLOCK])
def test_tails_are_certified_whatever_powers_err_by(
    law: Any, wrong: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By up to 2, as is promised of them, up or down: those of this machine are rounded down."""
    errors = itertools.cycle(wrong)

    def erring(r: Fraction, bits: int) -> int:
        with localcontext(Context(prec=400)):
            exact = (-decimal(r)).exp() * 2**bits
            least, most = (exact - 2).to_integral_value(ROUND_CEILING), (exact + 2) // 1
        return max(0, int({2: most, -2: least, 0: exact}[next(errors)]))

    for module in (laws, tables):
        monkeypatch.setattr(module, "exp_negative", erring)
    bounds, tails = law.tails(64), exact_tails(law)
    with localcontext(DIGITS):
        for (low, high), tail in zip(bounds, tails[1:], strict=False):
            assert low <= tail * 2**64 <= high


@pytest.mark.parametrize("bits", [64, 128, 300])
def test_tails_of_a_flat_digit_are_certified(bits: int) -> None:
    """At scale 2^33 the 512 probabilities are differences of nearly equal numbers."""
    tails = exact_tails(FLAT_DIGIT)
    bounds = FLAT_DIGIT.tails(bits)
    assert len(bounds) == len(tails) - 1 == 511
    with localcontext(DIGITS):
        assert all(
            low <= t * 2**bits <= high for (low, high), t in zip(bounds, tails[1:], strict=True)
        )
    assert max(high - low for low, high in bounds) < 2**30


@pytest.mark.slow
@given(
    st.fractions(0, 250, max_denominator=10**18) | st.fractions(0, 3),
    st.integers(1, 360),
)
@example(Fraction(0), 64)
@example(Fraction(693147180559945309417232, 10**24) * 66, 64)  # where the power is 1/4 unit
@example(Fraction(1, 10**40), 300)
@settings(derandomize=True, database=None, deadline=None, max_examples=300)
def test_exp_negative_is_within_two_units(r: Fraction, bits: int) -> None:
    with localcontext(Context(prec=400)):
        assert abs(exp_negative(r, bits) - (-decimal(r)).exp() * 2**bits) <= 2


@pytest.mark.slow
@pytest.mark.parametrize("wrong", [(0,), (2,), (-2,)])
@given(
    st.fractions(0, 3, max_denominator=10**12) | st.fractions(0, Fraction(1, 1000)),
    st.integers(1, 400),
    st.integers(1, 300),
)
@example(Fraction(0), 400, 64)
@example(Fraction(1, 10**40), 400, 1)
@example(Fraction(1, 2048), 400, 128)
@settings(derandomize=True, database=None, deadline=None, max_examples=40)
def test_products_of_exponentials_are_within_two_units(
    wrong: tuple[int], r: Fraction, n: int, bits: int
) -> None:
    """As exponentials themselves are, which may err by 2, up or down."""

    def erring(r: Fraction, bits: int) -> int:
        with localcontext(Context(prec=400)):
            exact = (-decimal(r)).exp() * 2**bits
            bound = (exact + wrong[0]).to_integral_value(
                ROUND_CEILING if wrong[0] < 0 else ROUND_FLOOR
            )
            return max(0, int(bound))

    with pytest.MonkeyPatch.context() as patch, localcontext(Context(prec=400)):
        patch.setattr(tables, "exp_negative", erring)
        powers, squares = exp_powers(r, n, bits), exp_squares(r, n, bits)
        assert len(powers) == len(squares) == n
        for m in {1, 2, 3, n // 2 + 1, n - 1, n} & set(range(1, n + 1)):
            assert abs(powers[m - 1] - (-decimal(r * m)).exp() * 2**bits) <= 2, m
            assert abs(squares[m - 1] - (-decimal(r * m * m)).exp() * 2**bits) <= 2, m


@pytest.mark.exhaustive("law")
@every([*SMALL, DiscreteLaplace(Fraction(64)), RoundedGaussian(Fraction(8**2)), DIGIT, BLOCK])
def test_tables_hold_the_first_bits_of_exact_probabilities(law: Any) -> None:
    """So whatever the bounds are made of, the same bytes give the same draws."""
    tails = exact_tails(law)
    words = table_of(law, (15, 64))._words[::-1].tolist()
    expected = [exact_floor(tail, 64) for tail in tails[1 : len(words) + 1]]
    assert words == [*expected, *[0] * (len(words) - len(expected))]


@every([DiscreteLaplace(Fraction(64)), DiscreteGaussian(Fraction(100)), DIGIT, BLOCK])
def test_a_table_takes_one_exponential(law: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0

    def counted(r: Fraction, bits: int) -> int:
        nonlocal calls
        calls += 1
        return exp_negative(r, bits)

    for module in (laws, tables):
        monkeypatch.setattr(module, "exp_negative", counted)
    law.tails(128)
    assert calls == 1


# --- Probabilities, variances, refusals ----------------------------------------------------------


@pytest.mark.slow
@every(
    [
        *TABLE,
        *COMPOSED,
        DiscreteGaussian(Fraction(100)),
        DiscreteGaussian(Fraction(9999, 100)),
        *(RoundedGaussian(Fraction(s)) for s in ("0.01", "8.999", "9", "15.999", "16")),
    ]
)
def test_pmf_and_variance_are_the_laws_own(law: Law) -> None:
    x, p = exact_pmf(law)
    np.testing.assert_allclose(law.pmf(x), p, rtol=1e-11, atol=1e-300)
    assert math.fsum(law.pmf(x)) == pytest.approx(1, abs=1e-12)
    assert float(law.pmf(-3)) == float(law.pmf([3])[0]) > 0
    assert law.variance == pytest.approx((x.astype(float) ** 2 * p).sum(), rel=1e-11)


@every(HUGE)
def test_pmf_of_huge_laws(law: Any) -> None:
    x = (np.linspace(-20, 20, 41) * law.scale).astype(np.int64)
    if isinstance(law, RoundedGaussian):
        with mpmath.workdps(50):
            cuts = [[(m + side) / mpmath.sqrt(2 * law.sigma2) for m in abs(x)] for side in HALVES]
            expected = [
                float((mpmath.erfc(a) - mpmath.erfc(b)) / 2) for a, b in zip(*cuts, strict=True)
            ]
    elif isinstance(law, DiscreteGaussian):  # the sum is the integral, up to exp(-2 pi^2 sigma2)
        expected = stats.norm.pdf(x / law.scale) / law.scale
    else:
        with localcontext(DIGITS):
            rate = -1 / decimal(law.parameter)
            peak = (1 - rate.exp()) / (1 + rate.exp())
            expected = [float(peak * (rate * abs(m)).exp()) for m in x.tolist()]
    np.testing.assert_allclose(law.pmf(x), expected, rtol=1e-12)


def test_variance_check_values() -> None:
    gaussian = DiscreteGaussian(Fraction(1, 5))
    assert gaussian.variance == pytest.approx(0.14132, abs=1e-5)
    assert gaussian.scale == pytest.approx(math.sqrt(0.2))
    for s in (Fraction(1, 20), Fraction(1, 5), Fraction(3), Fraction(10**6), Fraction(2**33)):
        law = DiscreteLaplace(s)
        with localcontext(DIGITS):
            q = (-1 / decimal(s)).exp()
            exact = float(2 * q / (1 - q) ** 2)
        assert law.variance == pytest.approx(exact, rel=1e-12)
        assert law.scale == float(s)
    assert DiscreteGaussian(Fraction(2**66)).variance == 2.0**66
    # By Poisson's summation, sigma2 + 1/12 + sum (-1)^k exp(-2 pi^2 k^2 sigma2)
    # (4 sigma2 + 1 / (pi k)^2).
    for sigma2 in (0.3, 1.0, 4.0, 8.99, 9.0, 1e6):
        exact = sigma2 + 1 / 12
        for k in range(1, 9):
            wave = math.exp(-2 * (math.pi * k) ** 2 * sigma2)
            exact += (-1) ** k * wave * (4 * sigma2 + 1 / (math.pi * k) ** 2)
        assert RoundedGaussian(Fraction(sigma2)).variance == pytest.approx(exact, rel=1e-13)


@pytest.mark.parametrize(
    "make",
    [
        lambda: DiscreteLaplace(Fraction(0)),
        lambda: DiscreteLaplace(Fraction(-1)),
        lambda: DiscreteLaplace(Fraction(2**33 + 1)),
        lambda: DiscreteGaussian(Fraction(0)),
        lambda: DiscreteGaussian(Fraction(2**66) * Fraction(101, 100)),
        lambda: DiscreteGaussian(Fraction(10**40)),
        lambda: RoundedGaussian(Fraction(0)),
        lambda: RoundedGaussian(Fraction(2**66) + Fraction(1, 10**9)),
    ],
)
def test_scales_out_of_range_are_refused(make: Callable[[], Law]) -> None:
    with pytest.raises(
        ValueError, match=r"noise of scale .* outside \(0, 2\^33\]: raise the budget"
    ):
        make()


def test_the_largest_scales_are_accepted() -> None:
    assert DiscreteLaplace(Fraction(2**33)).scale == DiscreteGaussian(Fraction(2**66)).scale


@pytest.mark.parametrize(
    "make",
    [
        lambda: DiscreteLaplace(Fraction(10**400)),
        lambda: DiscreteGaussian(Fraction(10**400)),
        lambda: RoundedGaussian(Fraction(10**400)),
    ],
)
def test_scales_beyond_floating_point_are_refused_in_the_same_words(
    make: Callable[[], Law],
) -> None:
    with pytest.raises(ValueError, match=r"outside \(0, 2\^33\]"):
        make()


@every([*TABLE, *COMPOSED, *HUGE])
def test_laws_are_frozen_hashable_values(law: Any) -> None:
    law.sample(5, SeededBytes(1))
    twin = pickle.loads(pickle.dumps(law))
    assert twin == law
    assert hash(twin) == hash(law)
    assert twin.__dict__ == law.__dict__  # it keeps nothing of what it drew
    assert len(law.__dict__) == 1
    with pytest.raises(FrozenInstanceError):
        law.parameter = Fraction(1)


# --- Others as oracles -------------------------------------------------------------------------


def homogeneity(a: np.ndarray, b: np.ndarray) -> float:
    """The p-value for two samples of one law, by chi-square over cells of 100 draws or more."""
    both = np.concatenate([a, b])
    edges = np.unique(np.quantile(both, np.linspace(0, 1, 41)[1:-1]))
    table = np.array(
        [np.bincount(np.searchsorted(edges, s), minlength=len(edges) + 1) for s in (a, b)]
    )
    table = table[:, table.sum(0) >= 100]
    return float(stats.chi2_contingency(table, correction=False).pvalue)


def opendp_draws(law: Law, n: int) -> np.ndarray:
    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T=int))
    if isinstance(law, DiscreteLaplace):
        measurement = dp.m.make_laplace(domain, dp.l1_distance(T=int), scale=law.scale)
    else:
        measurement = dp.m.make_gaussian(domain, dp.l2_distance(T=int), scale=law.scale)
    return np.array(measurement([0] * n), dtype=np.int64)


@pytest.mark.slow
@every(
    [
        DiscreteLaplace(Fraction(3, 2)),
        DiscreteLaplace(Fraction(4000)),
        DiscreteGaussian(Fraction(9, 4)),
        DiscreteGaussian(Fraction(4000**2)),
    ]
)
def test_opendp_draws_the_same_law(law: Law) -> None:
    """System entropy on both sides. False alarms: 1e-6 each; a miss of 1.5x: far below that."""
    theirs = opendp_draws(law, 20_000)
    assert homogeneity(law.sample(20_000), theirs) > ALARM
    for other in neighbours(law):
        assert homogeneity(other.sample(20_000), theirs) < REJECT


@pytest.mark.slow
@pytest.mark.parametrize("sigma", [0.7, 6.0, 9.0, 40.0, 1000.0, 2.0**24])
def test_rounding_floating_point_normals_draws_the_same_law(sigma: float) -> None:
    law = RoundedGaussian(Fraction(sigma) ** 2)
    theirs = np.rint(np.random.default_rng(5).normal(0, sigma, N)).astype(np.int64)
    assert homogeneity(law.sample(N, SeededBytes(6)), theirs) > ALARM
    for other in neighbours(law):
        assert homogeneity(other.sample(N, SeededBytes(7)), theirs) < REJECT


@pytest.mark.parametrize("kind", [DiscreteGaussian, RoundedGaussian])
@pytest.mark.parametrize("scale", ["1/20", "1/5", "2/5", "7/10", "1", "3", "20"])
def test_gaussians_are_sub_gaussian_with_the_proxy_that_they_state(kind, scale):
    law = kind(Fraction(scale) ** 2)
    x = np.arange(-40 - int(40 * law.scale), 41 + int(40 * law.scale))
    p = law.pmf(x)
    for a in np.geomspace(1e-2, min(12.0, 10 / law.scale), 60):
        seen = a * np.abs(x) < 700  # beyond, densities are below 1e-300
        log_mgf = np.log1p(p[seen] @ (np.cosh(a * x[seen]) - 1))
        assert log_mgf <= a * a * law.variance_proxy / 2 * (1 + 1e-9)

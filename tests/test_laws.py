"""The noise laws, against exact probabilities that are computed here by other means."""

import functools
import inspect
import math
import os
import pickle
from collections.abc import Callable, Sequence
from dataclasses import FrozenInstanceError
from decimal import ROUND_FLOOR, Context, Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import opendp.prelude as dp
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

from beam_dpcount.laws import (
    DiscreteGaussian,
    DiscreteLaplace,
    InverseTable,
    Law,
    _bernoulli_exp,
    _table,
    _TruncatedGeometric,
    exp_negative,
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
]
TABLE = [
    *SMALL,
    DiscreteLaplace(Fraction(512)),
    DiscreteGaussian(Fraction(262143, 17)),
    DiscreteGaussian(Fraction(512**2)),
]
COMPOSED = [  # beyond the table limit, small enough to add up all probabilities
    DiscreteLaplace(Fraction(512) + Fraction(1, 10**9)),
    DiscreteLaplace(Fraction(123457, 100)),
    DiscreteGaussian(Fraction(512**2 + 1)),
    DiscreteGaussian(Fraction(7 * 600**2 + 3, 7)),
]
HUGE = [
    DiscreteLaplace(Fraction(2**20) + Fraction(1, 3)),
    DiscreteLaplace(Fraction(2**33)),
    DiscreteGaussian(Fraction(2**40) + Fraction(1, 3)),
    DiscreteGaussian(Fraction(2**66)),
]
LAWS = [*TABLE, *COMPOSED, *HUGE]


def name(law: Any) -> str:
    return f"{type(law).__name__}-{float(getattr(law, 'parameter', None) or law.sigma2):.6g}"


def every(laws: Sequence[Any]) -> Callable[[Any], Any]:
    return pytest.mark.parametrize("law", laws, ids=name)


# --- Exact probabilities -------------------------------------------------------------------------

DIGITS = Context(prec=260)
DEEPEST = Decimal(10) ** -130  # below 2^-431


def decimal(r: Fraction) -> Decimal:
    return Decimal(r.numerator) / Decimal(r.denominator)


@functools.cache
def exact_tails(law: Any) -> list[Decimal]:
    """P(|X| >= m) for m = 0, 1, ... while above 10^-130, good to 200 digits."""
    with localcontext(DIGITS):
        if isinstance(law, _TruncatedGeometric):
            q = (-1 / decimal(law.parameter)).exp()
            powers = [q**m for m in range(law.size)]
            whole = sum(powers)
            return [sum(powers[m:]) / whole for m in range(law.size)]
        weights = [Decimal(1)]
        if isinstance(law, DiscreteLaplace):
            q = (-1 / decimal(law.parameter)).exp()
            while weights[-1] > DEEPEST:
                weights.append(weights[-1] * q)
            beyond = weights[-1] * q / (1 - q)
        else:
            ratio = (-1 / (2 * decimal(law.sigma2))).exp()  # exp(-(2 j + 1) / (2 sigma2))
            square = ratio * ratio
            while weights[-1] > DEEPEST**2:  # what lies beyond does not show in 200 digits
                weights.append(weights[-1] * ratio)
                ratio *= square
            beyond = Decimal(0)
        tails = []
        for weight in reversed(weights):
            beyond += weight
            tails.append(2 * beyond)
        tails.reverse()
        whole = tails[0] - 1
        return [Decimal(1), *(t / whole for t in tails[1:] if t > DEEPEST)]


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
    else:
        weights = np.exp(-(x.astype(float) ** 2) / (2 * float(law.sigma2)))
    return x, weights / weights.sum()


def cdf(law: Law, x: np.ndarray) -> np.ndarray:
    """P(X <= x), to 10^-12, for scales of 2^20 and more."""
    if isinstance(law, DiscreteGaussian):  # Euler-Maclaurin: the error is about phi''/(24 sigma2)
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
    return DiscreteGaussian(law.sigma2 * factor**2)


def neighbours(law: Law) -> list[Law]:
    return [wrong(law, f) for f in WRONG if law.scale * f <= 2**33]


@functools.cache
def draws_of(law: Law) -> np.ndarray:
    return law.sample(N, SeededBytes(LAWS.index(law)))


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
    "law", [DiscreteGaussian(Fraction(1, 10**12)), DiscreteLaplace(Fraction(1, 10**6))], ids=name
)
def test_tiny_scales_are_silent(law: Law) -> None:
    """P(X != 0) = 2 exp(-5e11) and 2 exp(-1e6): no seed draws anything but 0."""
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


DIGIT = _TruncatedGeometric(Fraction(123457, 100), 512)
FLAT_DIGIT = _TruncatedGeometric(Fraction(2**33), 512)


def magnitude(tails: list[Decimal], u: int, bits: int) -> int:
    """How many m >= 1 have u / 2^bits < P(|X| >= m)."""
    with localcontext(DIGITS):
        real = Decimal(u) / Decimal(2**bits)
        return sum(1 for t in tails[1:] if real < t)


@pytest.mark.parametrize("size", [(15, 64), (3, 6)], ids=str)
@every([*SMALL, DIGIT, FLAT_DIGIT])
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


@every([DiscreteLaplace(Fraction(512)), DiscreteGaussian(Fraction(512**2))])
def test_values_flip_exactly_at_the_boundaries_of_the_largest_tables(law: Any) -> None:
    tails, table = exact_tails(law), table_of(law, (15, 64))
    for depth in (1, 66):
        m = sum(1 for t in tails if t > Decimal(2) ** -depth) - 1
        boundary = exact_floor(tails[m], 192)
        assert invert(table, boundary - 1, 192, 1) == m
        assert invert(table, boundary + 1, 192, 0) == m - 1


@every(SMALL)
def test_no_tail_is_cut(law: Any) -> None:
    """Zero bits make a draw larger and larger, as far as one goes."""
    tails = exact_tails(law)
    for bits in (50, 64, 65, 128, 129, 200, 400):
        assert invert(_table(law), 1, bits) == magnitude(tails, 1, bits)
        assert invert(_table(law), 1, bits, negative=True) == -magnitude(tails, 1, bits)
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


@every([*COMPOSED[:2], DiscreteLaplace(Fraction(200_001, 2))])
def test_composed_draws_put_their_digits_together_exactly(law: Any) -> None:
    """X = 512 H + R - R', the uniform of each within 2^-59 of one of its boundaries."""
    high = exact_tails(DiscreteLaplace(law.parameter / 512))
    digit = exact_tails(_TruncatedGeometric(law.parameter, 512))
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


@pytest.mark.parametrize("word", [0, 2**64 - 1, 0x5AC3_1234_5678_9ABC], ids=hex)
@every([*TABLE, DIGIT, FLAT_DIGIT])
def test_every_first_word_has_its_exact_value(law: Any, word: int) -> None:
    """All 65536 of them; those that need it go on with 49 bits of `word`, then with `then`."""
    then = 0x0123_4567_89AB_CDEF
    values = _table(law).sample(1 << 16, FirstWords(word, then))
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


@every([*SMALL, DIGIT])
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


@pytest.mark.parametrize("gamma", [Fraction(1, 3), Fraction(7, 5), Fraction(40), Fraction(99, 2)])
def test_bernoulli_exp_flips_exactly_at_the_boundary(gamma: Fraction) -> None:
    with localcontext(DIGITS):
        boundary = exact_floor((-decimal(gamma)).exp(), 53 + 192)
    for u, below in ((boundary - 1, True), (boundary + 1, False)):
        chunks = [(u >> shift) & (2**64 - 1) for shift in (128, 64, 0)]
        fill = [2**64 - 1] * 3 if below else [0] * 3
        source = iter([c.to_bytes(8, "little") for c in chunks + fill])
        kept = _bernoulli_exp(gamma, u >> 192, 53, lambda n, s=source: next(s))
        assert kept is below


@pytest.mark.parametrize("depth", [1, 3, 16, 40, 60])
def test_a_proposal_is_kept_exactly_when_its_uniform_is_below(depth: int) -> None:
    """Gaussian draws beyond the table limit, with the uniform on the boundary of being kept.

    The first round proposes one value of the Laplace tail 2^-depth, which may be kept, and 16
    others that may not; the second round keeps what it proposes. The deepest has a chance below
    2^-1100, which is 0 in floating point.
    """
    sigma2, t, never = Fraction(512**2 + 1), 512, (2**64 - 1).to_bytes(8, "little")

    def propose(u: int) -> tuple[int, int, list[bytes]]:
        """What U = u / 2^64 and U = 15/16 propose, and the bytes that propose one and 16."""
        served = []

        def source(n: int) -> bytes:
            if n == 2 * 17:
                served.append((u >> 49).to_bytes(2, "little") + 16 * b"\0\x78")
            elif len(served) == 1:  # the look-up leaves the first one undecided
                served.append(((u << 15) % 2**64).to_bytes(8, "little"))
            else:
                served.append(b"refining")
            assert len(served[-1]) == n
            return served[-1]

        first, *others = DiscreteLaplace(Fraction(t)).sample(17, source).tolist()
        assert set(others) == {others[0]}
        return first, others[0], served

    tested, other, first_round = propose(3 << (62 - depth))
    second_round = propose(15 << 60)[2]
    assert tested > other + 50 > 50
    gamma = (tested - sigma2 / t) ** 2 / (2 * sigma2)
    with localcontext(Context(prec=700)):
        boundary = int((-decimal(gamma)).exp() * 2 ** (53 + 64 * 24))
    assert depth < 60 or math.exp(-gamma) == 0 < boundary

    for u, value in ((boundary - 1, tested), (boundary + 1, other)):
        word = (u >> 64 * 24 << 11).to_bytes(8, "little")
        script = [*first_round, word + never * 16, *second_round, bytes(8 * 17)]
        further = [((u >> 64 * k) % 2**64).to_bytes(8, "little") for k in range(23, -1, -1)]
        further += [never if value == tested else bytes(8)] * 4

        def source(n: int, script: Any = script, further: Any = further) -> bytes:
            part = (script if script and len(script[0]) == n else further).pop(0)
            assert len(part) == n
            return bytes(part)

        assert DiscreteGaussian(sigma2).sample(1, source).tolist() == [value]
        assert len(further) <= 4  # it was that close


# --- Certified bounds ----------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [64, 128, 300])
@every([*TABLE, DiscreteGaussian(Fraction(1, 10**12)), DIGIT])
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
    assert lows[-1] == 0 or not isinstance(law, Law)


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


# --- Probabilities, variances, refusals ----------------------------------------------------------


@every([*TABLE, *COMPOSED, DiscreteGaussian(Fraction(100)), DiscreteGaussian(Fraction(9999, 100))])
def test_pmf_and_variance_are_the_laws_own(law: Law) -> None:
    x, p = exact_pmf(law)
    np.testing.assert_allclose(law.pmf(x), p, rtol=1e-11, atol=1e-300)
    assert math.fsum(law.pmf(x)) == pytest.approx(1, abs=1e-12)
    assert float(law.pmf(-3)) == float(law.pmf([3])[0]) > 0
    assert law.variance == pytest.approx((x.astype(float) ** 2 * p).sum(), rel=1e-11)


@every(HUGE)
def test_pmf_of_huge_laws(law: Any) -> None:
    x = (np.linspace(-20, 20, 41) * law.scale).astype(np.int64)
    if isinstance(law, DiscreteGaussian):  # the sum is the integral, up to exp(-2 pi^2 sigma2)
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


@pytest.mark.parametrize(
    "make",
    [
        lambda: DiscreteLaplace(Fraction(0)),
        lambda: DiscreteLaplace(Fraction(-1)),
        lambda: DiscreteLaplace(Fraction(2**33 + 1)),
        lambda: DiscreteGaussian(Fraction(0)),
        lambda: DiscreteGaussian(Fraction(2**66) * Fraction(101, 100)),
        lambda: DiscreteGaussian(Fraction(10**40)),
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


# --- OpenDP as an oracle -------------------------------------------------------------------------


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

"""The largest of all errors: what none exceeds at a level, from the tails of all releases."""

from __future__ import annotations

import math
from collections import Counter as Tally
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

import numpy as np

from beam_dpcount.checks import check_whole
from beam_dpcount.counters.counter import Counter
from beam_dpcount.counters.errors import check_counter, check_level, chernoff
from beam_dpcount.counters.tails import ARITHMETIC, ERROR, TERMS, encoding, law_sums, norms1
from beam_dpcount.mechanisms.base import MAX_HORIZON, FloatArray, Mechanism
from beam_dpcount.noise.laws import DiscreteGaussian, DiscreteLaplace, Law, RoundedGaussian

_ROWS = 1 << 16  # releases that are told apart; of more each is taken as the noisiest
_FINE = 1e-3  # by how much squared norms are rounded up, so that few differ
_WORK = 1 << 31  # factors of characteristic functions that are multiplied
_BLOCK = 256  # frequencies at a time, so that products stay in the processor's cache
_LEFT = 1e-8  # what lies beyond a transform, of all rows, and more than what it rounds
_BITS = 16  # of weights behind the point
_STEPS = 60  # of a bisection

Tail = Callable[[float], FloatArray]  # x -> bounds on P(N >= x), by row


def largest_error(counter: Counter, streams: int = 1, level: float = 0.95) -> float:
    """A bound on the errors of all releases of all streams at once, with probability `level`.

    The least x for which the probabilities that release t errs by more than x, summed over all
    releases of all streams, are at most 1 - level. Each is bounded from the law of its noise, what
    encoder and decoder round included (docs/proofs/tails.md): exactly for sums of up to 64 whole
    draws, and for BridgedKAry up to some 2,000 steps; for Gaussian noise by a normal law; else, and
    wherever it is less, by Chernoff's bound. Beyond 65,536 releases each counts as the noisiest.

    With `SelectKeys` it holds for a key that was fixed beforehand: keys are shown because noise was
    high.

    Args:
      counter: of one key (and coordinate).
      streams: how many keys (times coordinates) there are, all with this counter.
      level: between 0 and 1, both excluded.
    """
    check_level(level)
    check_counter(counter)
    check_whole("streams", streams, MAX_HORIZON, "keys")
    return _largest(counter, (1 - level) / streams) * counter.grid


@lru_cache(maxsize=256)  # reports ask for the same bound several times
def _largest(counter: Counter, allowed: float) -> float:
    """In steps of the noise's lattice."""
    norms2, times = _rows(counter.mechanism)
    terms = norms2 * counter.share
    tail = tail_of(counter, terms, allowed / 4 / counter.horizon)

    def exceeded(x: float) -> float:
        """The sum over releases of P(|N| >= x)."""
        each = tail(x)
        return 2 * float(np.minimum(each, 0.5) @ times) * (1 + ERROR)

    high = least_level(counter, terms, exceeded, allowed, 2 * float(times.sum()))
    weighted = None if is_whole(counter) else weighted_level(counter, allowed)
    return high if weighted is None else min(high, weighted)


def is_whole(counter: Counter) -> bool:
    """Whether releases add up whole draws, so that errors are whole steps of the lattice."""
    return counter.mechanism.unit_weights and counter.share == 1


def tail_of(counter: Counter, terms: FloatArray, p: float) -> Tail:
    """Bounds on P(N >= x) of rows with these squared norms: the least that applies.

    Args:
      counter: whose noise it is.
      terms: squared norms of rows, times the counter's share.
      p: sums of whole draws are exact for probabilities above it.
    """
    tails = [_chernoff_tail(counter, terms), _normal_tail(counter, terms)]
    if is_whole(counter):
        tails.append(_exact_tail(counter, terms, p))
    return lambda x: np.asarray(np.min([tail(x) for tail in tails], axis=0))


def least_level(
    counter: Counter,
    terms: FloatArray,
    exceeded: Callable[[float], float],
    allowed: float,
    times: float,
) -> float:
    """The least x that the tails allow noise to be above, in steps of its lattice, rounded up.

    Args:
      counter, terms: as for `tail_of`.
      exceeded: the sum of as many as `times` tails P(N >= x); never rises.
      allowed: what it may be, above 0.
    """
    high = chernoff(counter.law, float(terms.max()), max(math.log(2 * times / allowed), 1.0))
    high += 1 + float(norms1(counter, terms).max()) * encoding(counter)
    high *= 1 + 2 * ARITHMETIC
    if is_whole(counter):  # the event is N >= m, so that errors are below it
        low, top = 0, math.ceil(high) + 1
        while top - low > 1:
            middle = (low + top) // 2
            low, top = (low, middle) if exceeded(middle) <= allowed else (middle, top)
        return float(low)
    floor = 0.0
    for _ in range(_STEPS):
        x = (floor + high) / 2
        floor, high = (floor, x) if exceeded(x) <= allowed else (x, high)
    return high


def _rows(mechanism: Mechanism) -> tuple[FloatArray, FloatArray]:
    """Squared norms of rows, rounded up, and how many rows have each."""
    if mechanism.horizon > _ROWS:
        return np.array([mechanism.max_row_norm2()]), np.array([float(mechanism.horizon)])
    norms2 = mechanism.row_norms2(mechanism.horizon)
    if not mechanism.unit_weights:
        norms2 = np.exp(np.ceil(np.log(norms2 * (1 + ERROR)) / _FINE) * _FINE)
    each, times = np.unique(norms2, return_counts=True)
    return each, times.astype(np.float64)


def _margins(counter: Counter, terms: FloatArray, of_draw: float) -> FloatArray:
    """What is not in the law: what rounding changes, and this much of each draw, times weights."""
    projected = 2 if counter.share < 1 else 1  # weights less their mean
    return projected * norms1(counter, terms / counter.share) * (of_draw + encoding(counter))


def _chernoff_tail(counter: Counter, terms: FloatArray) -> Tail:
    """exp(terms K(l) - l x) for the best of many l, K the logarithm of a draw's E exp(l z)."""
    law, margins = counter.law, _margins(counter, terms, 0.0)
    spare = ARITHMETIC * np.sqrt(law.variance * terms)
    if isinstance(law, DiscreteGaussian | RoundedGaussian):
        proxy = law.variance_proxy

        def gaussian(x: float) -> FloatArray:
            left = np.maximum(x - margins - spare, 0)
            return np.asarray(np.exp(-np.square(left) / (2 * proxy * terms)))

        return gaussian
    rates = np.linspace(0.001, 0.999, 400) / law.scale
    ratio = np.exp((rates - 1 / law.scale) / 2) * np.expm1(-rates) / np.expm1(-1 / law.scale)
    logs = -np.log1p(-(ratio**2))

    def laplace(x: float) -> FloatArray:
        exponents = np.multiply.outer(terms, logs) - np.multiply.outer(x - margins - spare, rates)
        return np.asarray(np.exp(np.minimum(exponents.min(axis=1), 0)))

    return laplace


def _normal_tail(counter: Counter, terms: FloatArray) -> Tail:
    """Of the normal law that Gaussian noise is stochastically below, but for a margin."""
    law = counter.law
    if not isinstance(law, RoundedGaussian | DiscreteGaussian):
        return lambda x: np.ones(len(terms))
    margins = _margins(counter, terms, 0.5 if isinstance(law, RoundedGaussian) else 1.0)
    stddevs = np.sqrt(float(law.sigma2) * terms)

    def tail(x: float) -> FloatArray:
        z = (x - (1 + ERROR) * margins) / stddevs - ARITHMETIC
        return np.array([math.erfc(each) for each in (z / math.sqrt(2)).tolist()]) / 2

    return tail


def _exact_tail(counter: Counter, terms: FloatArray, p: float) -> Tail:
    """Of sums of whole draws, convolved; 1 where there are too many of them."""
    counts = np.rint(terms).astype(np.int64)
    few = np.flatnonzero(counts <= TERMS)
    made = law_sums(counter.law, int(counts[few].max(initial=0)), p)
    if made is None or not len(few):
        return lambda x: np.ones(len(terms))
    sums, every = made

    def tail(x: float) -> FloatArray:
        found = np.ones(len(terms))
        for i in few.tolist():
            k = int(counts[i])
            found[i] = sums[k - 1].at_least(math.ceil((x - k * (every - 1)) / every))
        return found

    return tail


def floor_of(counter: Counter, terms: FloatArray, p: float) -> Tail:
    """Lower bounds on P(N > x), by row, from the same laws; 0 where none is known.

    Noise is symmetric: what it is stochastically below, but for a margin, it is above without it.

    Args:
      counter, terms, p: as for `tail_of`.
    """
    law = counter.law
    floors: list[Tail] = [lambda x: np.zeros(len(terms))]
    if isinstance(law, RoundedGaussian | DiscreteGaussian):
        margins = _margins(counter, terms, 0.5 if isinstance(law, RoundedGaussian) else 1.0)
        stddevs = np.sqrt(float(law.sigma2) * terms)

        def normal(x: float) -> FloatArray:
            z = (x + (1 + ERROR) * margins) / stddevs + ARITHMETIC
            return np.array([math.erfc(each) for each in (z / math.sqrt(2)).tolist()]) / 2

        floors.append(normal)
    counts = np.rint(terms).astype(np.int64)
    few = np.flatnonzero(counts <= TERMS)
    sums = law_sums(law, int(counts[few].max(initial=0)), p) if is_whole(counter) else None
    if sums is not None and len(few):
        laws, every = sums

        def exact(x: float) -> FloatArray:
            found = np.zeros(len(terms))
            for i in few.tolist():
                k = int(counts[i])
                found[i] = laws[k - 1].at_least(math.floor((x + k * (every - 1)) / every) + 1)
            return found

        floors.append(exact)
    return lambda x: np.maximum(np.max([each(x) for each in floors], axis=0) - _LEFT, 0.0)


def weighted_level(counter: Counter, allowed: float) -> float | None:
    """The least x that the sum over all rows of P(|N| >= x) allows, or None.

    From the law of all rows' sums, where weights are dyadic and known.
    """
    exceeded = None if allowed < 1e3 * _LEFT else _weighted_tails(counter)
    if exceeded is None or exceeded[0][-1] > allowed:
        return None
    tails, bits = exceeded
    return float(np.count_nonzero(tails > allowed)) / (1 << bits)


def weighted_sum(counter: Counter, x: float) -> float:
    """A bound on the sum over all rows of P(|N| >= x), in the same way; infinite if unknown."""
    exceeded = _weighted_tails(counter)
    if exceeded is None:
        return math.inf
    tails, bits = exceeded
    return float(tails[min(math.ceil(x * (1 << bits)), len(tails) - 1)]) if x >= 0 else math.inf


def _weighted_tails(counter: Counter) -> tuple[FloatArray, int] | None:
    law, mechanism = counter.law, counter.mechanism
    if counter.share < 1 or not isinstance(law, DiscreteLaplace) or mechanism.horizon > _ROWS:
        return None
    return None if mechanism.weights(1) is None else _all_tails(mechanism, law)


@lru_cache(maxsize=8)
def _all_tails(mechanism: Mechanism, law: Law) -> tuple[FloatArray, int] | None:
    """The sums over rows t of P(|N_t| >= m 2^-bits), m from 0, and bits.

    The noise of a row with dyadic weights is a whole number of steps of 2^-bits, and so periodic is
    its characteristic function, the product of 1 / (1 + (sin(w a / 2) / sinh(1 / 2s))^2) over its
    weights w. Rows are added up first, and transformed back once. What wraps around is bounded.
    """
    rows: Tally[tuple[tuple[Fraction, int], ...]] = Tally()
    bits = 0
    for t in range(1, mechanism.horizon + 1):
        weights, counts = mechanism.weights(t) or (np.zeros(0), np.zeros(0))
        row: Tally[Fraction] = Tally()
        for weight, count in zip(weights.tolist(), counts.tolist(), strict=True):
            row[abs(Fraction(weight))] += int(count)
        draws = sorted((w, count) for w, count in row.items() if w and count)
        bits = max([bits, *[w.denominator.bit_length() - 1 for w, _ in draws]])
        rows[tuple(draws)] += 1
    if bits > _BITS:
        return None
    nats = math.log(4 * mechanism.horizon / _LEFT)
    reach = chernoff(law, mechanism.max_row_norm2() * (1 + ERROR), nats)
    size = math.ceil(1.5 * reach * (1 << bits)) // 2 * 2 + 2
    if sum(count for row in rows for _, count in row) * size > _WORK:
        return None
    weights_of = sorted({w for row in rows for w, _ in row})
    units = np.array([int(w * (1 << bits)) for w in weights_of], dtype=np.int64)
    # By row the places of its weights, as often as they occur; the last place stands for none.
    place = {w: i for i, w in enumerate(weights_of)}
    drawn = [[place[w] for w, count in row for _ in range(count)] for row in rows]
    places = np.full((len(rows), max(map(len, drawn))), len(units))
    for places_of_row, some in zip(places, drawn, strict=True):
        places_of_row[: len(some)] = some
    times, transform = np.array([*rows.values()], dtype=np.float64), np.zeros(size // 2 + 1)
    for first in range(0, len(transform), _BLOCK):
        k = np.arange(first, min(first + _BLOCK, len(transform)))
        angles = np.multiply.outer(units, k) % size * (math.pi / size)
        factors = np.ones((len(units) + 1, len(k)))
        factors[:-1] += np.square(np.sin(angles) / math.sinh(1 / (2 * law.scale)))
        product = factors[places[:, 0]]
        for column in places.T[1:]:
            product *= factors[column]
        transform[k] = (times[:, None] / product).sum(axis=0)
    found = np.fft.irfft(transform, size)[: size // 3]
    inside = np.cumsum(np.append(found[0], 2 * found[1:]))
    tails = mechanism.horizon - np.append(0.0, inside[:-1])
    return np.maximum.accumulate((tails + 2 * _LEFT)[::-1])[::-1], bits

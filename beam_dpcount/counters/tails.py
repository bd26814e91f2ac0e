"""Upper tails of the noise of releases, proved from its own law and not from a normal one.

docs/proofs/tails.md has the proofs.
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import accumulate
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from beam_dpcount.counters.counter import Counter
from beam_dpcount.counters.errors import chernoff, laplace_log_mgf
from beam_dpcount.mechanisms.base import FloatArray, IntArray
from beam_dpcount.noise.laws import DiscreteGaussian, DiscreteLaplace, Law, RoundedGaussian

_TERMS = 64  # the most draws whose sum is convolved
_COARSE = 128  # discrete Laplace laws are convolved up to this scale
_FINE = 32  # and Gaussian ones up to this
_BEYOND = 50.0  # nats below the probability asked for, where arrays are cut
_ROUNDING = 1 + 1e-9  # far above that of floats in sums of positive numbers

BoolArray = npt.NDArray[np.bool_]


def quantiles(counter: Counter, p: float, n: int | None = None) -> FloatArray:
    """For each release 1 .. n (default: the horizon) an x with P(noise >= x) <= p; shape (n,).

    In multiples of the counter's unit. The noise of a release includes the encoder's rounding. The
    least of the bounds that apply: sums of whole draws are convolved (exact, but for what is said
    of large scales); sums of Gaussian draws are at most a normal variable and a margin; Chernoff's
    bound. Tight to a few percent of x at worst, where draws are many or their lattice is coarse.

    Args:
      counter: whose releases.
      p: the probability, below 1/2; 1e-300 and less will do.
      n: how many releases.
    """
    mechanism, law = counter.mechanism, counter.law
    norms2 = mechanism.row_norms2(counter.horizon if n is None else n)
    fine, nats = counter.resolution, -math.log(p)
    rounding = _encoder_rounding(counter) * _l1_norms(counter, norms2)
    best = _chernoff(law, norms2, nats) + rounding
    if isinstance(law, RoundedGaussian) or (isinstance(law, DiscreteGaussian) and law.sigma2 >= 1):
        away = 0.5 if isinstance(law, RoundedGaussian) else 1.0
        lam = -NormalDist().inv_cdf(min(p, 0.5)) * _ROUNDING
        normal = (lam + 1e-9) * law.scale * np.sqrt(norms2)  # and what floats of releases lose
        best = np.minimum(best, normal + away * _l1_norms(counter, norms2) + rounding)
    if mechanism.unit_weights:  # then the encoder's entries are whole, too
        convolved = np.array([math.inf, *(found.quantile(p) for found in _sums(law, nats))])
        terms = _terms(norms2)
        exact = np.where(terms < len(convolved), convolved[terms % len(convolved)], np.inf)
        best = np.minimum(np.ceil(best), exact)
    return np.asarray(best / fine, dtype=np.float64)


def thresholds(counter: Counter, total: float, tested: BoolArray) -> FloatArray:
    """Levels with a sum over the tested releases of P(noise >= level) of at most `total`.

    Shape (n,), in multiples of the counter's unit; infinite where there is no test. As `quantiles`
    at total / tests. But whole sums that are convolved rarely have just that probability: there the
    levels are lowered until the sum of what they do have reaches the total.

    Args:
      counter: whose releases.
      total: the probability that any noise reaches its level, at most; below 1/2.
      tested: which of the first releases are tested, shape (n,).
    """
    least = total / int(np.count_nonzero(tested))
    made = np.where(tested, quantiles(counter, least, len(tested)), np.inf)
    if not counter.mechanism.unit_weights:
        return made
    known = _sums(counter.law, -math.log(least))
    terms = _terms(counter.mechanism.row_norms2(len(tested)))
    kinds, places, counts = np.unique(terms[tested], return_inverse=True, return_counts=True)
    if kinds.max() > len(known):
        return made
    sums = [known[kind - 1] for kind in kinds.tolist()]

    def spent(p: float) -> float:
        tails = (one.tail(one.quantile(p)) for one in sums)
        return math.fsum(n * tail for n, tail in zip(counts.tolist(), tails, strict=True))

    low, high = least, total
    for _ in range(40):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if spent(middle) <= total else (low, middle)
    levels = np.array([one.quantile(low) for one in sums], dtype=np.float64)
    made[tested] = np.minimum(made[tested], levels[places.ravel()])
    return made


def _terms(norms2: FloatArray) -> IntArray:
    """How many draws a sum has; those that are not convolved have one too many."""
    return np.asarray(np.minimum(np.rint(norms2), _TERMS + 1), dtype=np.int64)


def _l1_norms(counter: Counter, norms2: FloatArray) -> FloatArray:
    """Bounds on the L1 norms of the decoder's rows (Cauchy and Schwarz)."""
    if counter.mechanism.unit_weights:
        return norms2
    return np.sqrt(counter.mechanism.draws(len(norms2)) * norms2)


def _encoder_rounding(counter: Counter) -> float:
    """The most by which rounding moves a coordinate of R x."""
    largest = counter.change.largest(counter.unit) * counter.resolution
    return counter.mechanism.slack(largest)[0] / counter.horizon


def _chernoff(law: Law, norms2: FloatArray, nats: float) -> FloatArray:
    """`chernoff` of many sums."""
    if not isinstance(law, DiscreteLaplace):
        return np.asarray(np.sqrt(norms2) * chernoff(law, 1.0, nats))
    best = np.full(len(norms2), np.inf)
    for lam, log_mgf in laplace_log_mgf(law):
        np.minimum(best, (norms2 * log_mgf + nats) / lam, out=best)
    return best


class Sum(NamedTuple):
    """The law of a sum of draws, or of one that is nearly as large at least.

    Fields:
      tails: P(sum >= m) for m from `first` on, rounded up.
      every: by how much steps of `tails` are apart.
      more: what is added to a value, to be as large at least as the sum of draws.
    """

    tails: FloatArray
    first: int
    every: int
    more: int

    def quantile(self, p: float) -> int:
        """The least m, or nearly, with P(sum >= m) <= p."""
        return self.every * (int(np.argmax(self.tails <= p)) + self.first) + self.more

    def tail(self, m: int) -> float:
        """P(sum >= m) of such an m."""
        return float(self.tails[(m - self.more) // self.every - self.first])


def _sums(law: Law, nats: float) -> tuple[Sum, ...]:
    """Sums of 1, 2, ... draws, down to probabilities of e^-nats; none where they are too wide."""
    return _convolved(law, 16 * math.ceil(nats / 16))


@lru_cache(maxsize=16)
def _convolved(law: Law, nats: int) -> tuple[Sum, ...]:
    coarse, every = law, 1
    if isinstance(law, DiscreteLaplace):
        # k X' + k - 1 is at least X, where X' has the scale s / k: digits of geometric draws.
        every = math.ceil(law.parameter / _COARSE)
        coarse = DiscreteLaplace(law.parameter / every)
    elif law.scale > _FINE:
        return ()
    beyond = nats + _BEYOND
    # Cut at `reach`, sums lose no more than paths that leave: at most 4 P(sum > reach), by Levy;
    # and draws that are cut themselves at most 2 P(draw > half) each.
    reach = math.ceil(chernoff(coarse, _TERMS, beyond)) + 1
    lost = (4 + 2 * _TERMS) * math.exp(-beyond)
    sums = np.zeros(2 * reach + 1)
    sums[reach] = 1.0
    found = []
    for terms in range(1, _TERMS + 1):
        sums = _with_another(sums, coarse, beyond)
        tails = np.cumsum(sums[::-1])[::-1] * _ROUNDING + lost
        found.append(Sum(tails, -reach, every, terms * (every - 1)))
    return tuple(found)


def _with_another(sums: FloatArray, law: Law, nats: float) -> FloatArray:
    """The probabilities of a sum and one more draw, cut where those of the sum are."""
    if isinstance(law, DiscreteLaplace):
        q = math.exp(-1 / law.scale)
        forth = [*accumulate(sums.tolist(), lambda y, x: q * y + x)]
        back = [*accumulate(sums[::-1].tolist(), lambda y, x: q * y + x)][::-1]
        return np.asarray((np.array(forth) + np.array(back) - sums) * math.tanh(0.5 / law.scale))
    # Beyond it lies less than what is added for paths that leave.
    half = min(math.ceil(chernoff(law, 1.0, nats)) + 1, len(sums) // 2)
    return np.convolve(sums, law.pmf(np.arange(-half, half + 1)), "same")

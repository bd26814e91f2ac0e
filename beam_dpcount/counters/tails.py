"""Upper tails of the noise of releases, proved from its own law and not from a normal one.

docs/proofs/tails.md has the proofs.
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import accumulate
from statistics import NormalDist

import numpy as np

from beam_dpcount.counters.counter import Counter
from beam_dpcount.counters.errors import chernoff, laplace_log_mgf
from beam_dpcount.mechanisms.base import FloatArray
from beam_dpcount.noise.laws import DiscreteGaussian, DiscreteLaplace, Law, RoundedGaussian

_TERMS = 64  # the most draws whose sum is convolved
_COARSE = 128  # discrete Laplace laws are convolved up to this scale
_FINE = 32  # and Gaussian ones up to this
_BEYOND = 50.0  # nats below the probability asked for, where arrays are cut
_ROUNDING = 1 + 1e-9  # far above that of floats in sums of positive numbers


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
        sums = np.array([math.inf, *_sum_quantiles(law, p)])
        terms = np.minimum(np.rint(norms2).astype(np.int64), _TERMS)
        exact = np.where((norms2 <= _TERMS) & (terms < len(sums)), sums[terms % len(sums)], np.inf)
        best = np.minimum(np.ceil(best), exact)
    return np.asarray(best / fine, dtype=np.float64)


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


@lru_cache(maxsize=64)
def _sum_quantiles(law: Law, p: float) -> tuple[int, ...]:
    """For sums of 1, 2, ... draws the least m, or nearly, with P(sum >= m) <= p.

    They end where a sum is no longer convolved.
    """
    coarse, every = law, 1
    if isinstance(law, DiscreteLaplace):
        # k X' + k - 1 is at least X, where X' has the scale s / k: digits of geometric draws.
        every = math.ceil(law.parameter / _COARSE)
        coarse = DiscreteLaplace(law.parameter / every)
    elif law.scale > _FINE:
        return ()
    nats = -math.log(p) + _BEYOND
    # Cut at `reach`, sums lose no more than paths that leave: at most 4 P(sum > reach), by Levy;
    # and draws that are cut themselves at most 2 P(draw > half) each.
    reach = math.ceil(chernoff(coarse, _TERMS, nats)) + 1
    lost = (4 + 2 * _TERMS) * math.exp(-nats)
    sums = np.zeros(2 * reach + 1)
    sums[reach] = 1.0
    found = []
    for terms in range(1, _TERMS + 1):
        sums = _with_another(sums, coarse, nats)
        tails = np.cumsum(sums[::-1])[::-1] * _ROUNDING + lost
        at = int(np.argmax(tails <= p)) - reach
        found.append(every * at + terms * (every - 1))
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

"""Upper bounds on the noise of releases that hold with tiny probabilities, from the law's own tail.

The normal quantile is none: for trees with Laplace noise it is exceeded thousands of times too
often. Proofs: docs/proofs/tails.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from beam_dpcount.counters.counter import Counter
from beam_dpcount.counters.errors import chernoff, chernoffs
from beam_dpcount.mechanisms.base import FloatArray
from beam_dpcount.noise.laws import DiscreteGaussian, DiscreteLaplace, Law, RoundedGaussian

# Sums of so many draws are convolved: of Gaussians up to the first scale; of discrete Laplace noise
# up to the second, and of larger ones coarsened to it.
TERMS = 64
_GAUSSIAN_SCALE = 128
_LAPLACE_SCALE = 512

_LEAST = 1e-300  # the least p
_LEAST_EXACT = 1e-200  # and the least one whose probabilities are far above underflow
_UNDERFLOW = 1e-250  # more than all that underflow loses
ERROR = 1e-9  # more than all roundings of sums of positive numbers, and of row norms
_CUT = 1e-8  # of p: what may lie beyond the arrays, where it is counted as exceeding everything
ARITHMETIC = 1e-6  # of a stddev, for the release's own floating point

BoolArray = npt.NDArray[np.bool_]


def quantiles(counter: Counter, p: float, n: int | None = None) -> FloatArray:
    """For each of the releases 1 .. n an x with P(noise >= x) <= p, shape (n,).

    The noise is release minus exact count, what the encoder rounds included, in multiples of the
    counter's unit. x is the least of the bounds that apply:

    - for releases that add or subtract up to 64 whole draws: the exact quantile, for Gaussians of
      scales up to 128 lattice units and Laplace noise up to 512; for Laplace noise of larger scales
      a little more, less than 0.3 % for p up to 1e-6;
    - for Gaussian noise: a normal quantile, and what law and encoder may differ from the normal;
    - for any noise: Chernoff's bound.

    Where releases are whole numbers, so is x.

    Args:
      counter: of any of `mechanisms.ALL`.
      p: a probability, from 1e-300 to 1/2, excluded.
      n: how many releases; default: the horizon.

    Guarantee: it holds for every stream within the bounds, and for each release by itself. Weights
      of Laplace noise must be at most 1, as in all of `mechanisms.ALL`. A millionth of a stddev is
      for a release's own floating point: measured, more than enough for counts up to 10^7 stddevs.

    Raises:
      ValueError: p is out of range.
      HorizonError: n is beyond the horizon.
      TypeError: `calibrate` does not choose this law.

    Source: docs/proofs/tails.md.

    Example:
      >>> import beam_dpcount as dp
      >>> counter = dp.calibrate(dp.mechanisms.BinaryTree(horizon=8), dp.PureDP(1.0))
      >>> quantiles(counter, 1e-9)  # one draw of scale 4, two, or three
      array([81., 81., 91., 81., 91., 91., 99., 81.])
    """
    if not _LEAST <= p < 0.5:
        raise ValueError(f"p must be from {_LEAST:g} to 1/2, excluded, got {p!r}")
    if not isinstance(counter.law, DiscreteLaplace | DiscreteGaussian | RoundedGaussian):
        raise TypeError(f"the tail of {counter.law!r} is not known: use one that calibrate chooses")
    mechanism = counter.mechanism
    norms2 = mechanism.row_norms2(mechanism.horizon if n is None else mechanism.check_steps(n))
    each, places = np.unique(norms2, return_inverse=True)
    bounds = np.min([way(counter, each, p) for way in (_exact, _normal, _chernoff)], axis=0)
    if mechanism.unit_weights:
        bounds = np.ceil(bounds)  # the same event, as releases are whole numbers
    return np.asarray(bounds[places] / counter.resolution)


# Each way takes the distinct squared norms of rows, and bounds noise in steps of its lattice.


def _exact(counter: Counter, norms2: FloatArray, p: float) -> FloatArray:
    bounds = np.full(len(norms2), np.inf)
    if not counter.mechanism.unit_weights or p < _LEAST_EXACT:
        return bounds
    terms = np.rint(norms2).astype(np.int64)
    few = terms <= TERMS
    if few.any():
        known = sum_quantiles(counter.law, int(terms[few].max()), p)
        bounds[few] = known[terms[few] - 1] + norms2[few] * encoding(counter)
    return bounds


def _normal(counter: Counter, norms2: FloatArray, p: float) -> FloatArray:
    match counter.law:
        case RoundedGaussian(sigma2):
            apart = 0.5
        case DiscreteGaussian(sigma2):
            apart = 1.0
        case _:
            return np.full(len(norms2), np.inf)
    stddevs = np.sqrt(float(sigma2) * norms2)
    margins = norms1(counter, norms2) * (apart + encoding(counter))
    return (normal_quantile(p) + ARITHMETIC) * stddevs + (1 + ERROR) * margins


def _chernoff(counter: Counter, norms2: FloatArray, p: float) -> FloatArray:
    bounds = chernoffs(counter.law, norms2, -math.log(p))
    margins = norms1(counter, norms2) * encoding(counter)
    arithmetic = ARITHMETIC * np.sqrt(counter.law.variance * norms2)
    return (1 + ERROR) * (bounds + margins) + arithmetic


def norms1(counter: Counter, norms2: FloatArray) -> FloatArray:
    """Bounds on the L1 norms of rows of L, from their squared L2 norms."""
    mechanism = counter.mechanism
    if mechanism.unit_weights:
        return norms2
    return np.sqrt(mechanism.draws(mechanism.horizon) * norms2)


def encoding(counter: Counter) -> float:
    """A bound on what rounding changes any entry of R x by, in steps of the noise's lattice."""
    largest = counter.change.largest(counter.unit) * counter.resolution
    return counter.mechanism.slack(largest)[0] / counter.horizon


def normal_quantile(p: float) -> float:
    """The least z, nearly, with P(Z >= z) <= p of a standard normal Z, never below it.

    Accurate to 1e-11 for p from 1e-300 to 1/2: what 1 - p would round is not lost.
    """
    z = -NormalDist().inv_cdf(p)
    # erfc errs by some units in the last place, and by z^2 times those of its argument.
    while math.erfc(z / math.sqrt(2)) / 2 > p * (1 - 1e-12):
        z += 1e-13 * (1 + z)
    return z


# Exact sums. All that is added and multiplied is positive, so that relative errors stay tiny.


@dataclass(frozen=True)
class _Above:
    """A law that a sum of noise is stochastically below, as P(x) for -reach <= x <= reach.

    What lies below is put at -reach; `beyond` lies above it, anywhere.
    """

    inside: FloatArray
    beyond: float

    @property
    def reach(self) -> int:
        return len(self.inside) // 2

    def quantile(self, p: float) -> float:
        """The least integer m with P(x >= m) <= p; infinite if it is out of reach."""
        tails = np.cumsum(self.inside[::-1])[::-1] + self.beyond
        m = int(np.count_nonzero(tails * (1 + ERROR) + _UNDERFLOW > p))
        return m - self.reach if m < len(tails) else math.inf

    def tail(self, m: float) -> float:
        """P(x >= m) of a quantile m."""
        if m == math.inf:
            return 0.0
        inside = float(self.inside[int(m) + self.reach :].sum())
        return (inside + self.beyond) * (1 + ERROR) + _UNDERFLOW

    @cached_property
    def _tails(self) -> FloatArray:
        return np.asarray(np.cumsum(self.inside[::-1])[::-1])

    def at_least(self, m: float) -> float:
        """P(x >= m), rounded up, of any whole m."""
        if math.isnan(m) or m <= -self.reach:
            return 1.0
        at = int(min(m, self.reach + 1)) + self.reach
        inside = float(self._tails[at]) if at < len(self._tails) else 0.0
        return min((inside + self.beyond) * (1 + ERROR) + _UNDERFLOW, 1.0)

    def cut(self, reach: int) -> _Above:
        out = self.reach - reach
        if out <= 0:
            return self
        inside = self.inside[out:-out].copy()
        inside[0] += self.inside[:out].sum()
        return _Above(inside, self.beyond + float(self.inside[-out:].sum()))


def sum_quantiles(law: Law, terms: int, p: float) -> FloatArray:
    """The least integer m with P(sum of j draws >= m) <= p, for j = 1 .. terms.

    Exact, unless a probability is within a millionth of p, for Gaussians of scales up to 128 and
    discrete Laplace noise up to 512. Beyond that it is infinite for Gaussians. A discrete Laplace X
    of scale s is at most k X' + k - 1, X' of scale s / k. p is from 1e-200 to 1/2.
    """
    made = law_sums(law, terms, p)
    if made is None:
        return np.full(terms, np.inf)
    sums, k = made
    return np.array([k * m.quantile(p) + j * (k - 1) for j, m in enumerate(sums, 1)])


def law_sums(law: Law, terms: int, p: float) -> tuple[list[_Above], int] | None:
    """Of 1 .. terms draws, and of how many steps of the law's lattice theirs is; None if too wide.

    A sum of j draws is at most k of what is returned, plus j (k - 1).
    """
    fine, k = _coarse(law)
    sums = _sums(fine, terms, p)
    return None if sums is None else (sums, k)


def _coarse(law: Law) -> tuple[Law, int]:
    """A law of a scale that is convolved, and of how many steps of the lattice its own is."""
    if not isinstance(law, DiscreteLaplace):
        return law, 1
    k = math.ceil(law.parameter / _LAPLACE_SCALE)
    return DiscreteLaplace(law.parameter / k), k


@lru_cache(maxsize=4)
def _sums(law: Law, terms: int, p: float) -> list[_Above] | None:
    """Of 1 .. terms draws; None where they are too wide to convolve."""
    if isinstance(law, DiscreteLaplace):
        return list(_laplace_sums(law, terms, p))
    return None if law.scale > _GAUSSIAN_SCALE else list(_convolved(law, terms, p))


def _reach(law: Law, terms: int, p: float) -> int:
    """The sum of `terms` draws exceeds it with a probability that does not matter beside p."""
    return math.ceil(chernoff(law, terms, math.log(terms / (_CUT * p))))


def _laplace_sums(law: DiscreteLaplace, terms: int, p: float) -> Iterator[_Above]:
    """Of 1 .. terms draws, each the difference of two geometrics."""
    reach = _reach(law, terms, p)
    inside, beyond = np.zeros(2 * reach + 1), 0.0
    inside[reach] = 1
    for _ in range(terms):
        inside, below = _plus_geometric(inside[::-1], law.scale)
        inside = inside[::-1]
        inside[0] += below
        inside, above = _plus_geometric(inside, law.scale)
        beyond += above
        yield _Above(inside, beyond)


def _plus_geometric(inside: FloatArray, scale: float) -> tuple[FloatArray, float]:
    """Probabilities of x + G, P(G = i) = (1 - q) q^i, q = exp(-1 / scale); and what leaves the end.

    y_i = (1 - q) x_i + q y_(i-1), in passes over the whole array, each for twice as many i.
    """
    total, step = inside * -math.expm1(-1 / scale), 1
    while step < len(total):
        total[step:] += math.exp(-step / scale) * total[:-step]
        step *= 2
    return total, float(inside @ np.exp(-np.arange(len(inside), 0, -1) / scale))


def _convolved(law: Law, terms: int, p: float) -> Iterator[_Above]:
    """Of 1 .. terms draws of a law whose logarithm is concave."""
    reach = _reach(law, 1, p / terms)
    draw = law.pmf(np.arange(-reach, reach + 1))
    following, after = law.pmf(np.array([reach + 1, reach + 2])).tolist()
    # Ratios of neighbours fall, so what follows is less than a geometric series.
    rest = following / (1 - after / following) if following > 0 else 0.0
    draw[0] += rest
    total = one = _Above(draw, rest)
    yield total
    for j in range(2, terms + 1):
        both = _Above(np.convolve(total.inside, one.inside), total.beyond + one.beyond)
        total = both.cut(_reach(law, j, p))
        yield total


# Levels that share a probability


def thresholds(counter: Counter, total: float, tested: BoolArray) -> FloatArray:
    """Levels of the first releases, one of which noise reaches with a probability <= total.

    By a union over the releases that are tested, shape (n,): `quantiles` at total / tests. Whole
    sums rarely have just that probability. There levels are lowered, as if for a larger one, until
    the sum of what they do have is as near to the total as one such probability for all can bring
    it.

    Args:
      counter: as for `quantiles`.
      total: above 0, below 1/2.
      tested: which releases are tested, shape (n,). The level of others is infinite.

    Raises:
      ValueError, TypeError, HorizonError: as for `quantiles`.
    """
    least = total / int(np.count_nonzero(tested))
    made = np.where(tested, quantiles(counter, least, len(tested)), np.inf)
    if not counter.mechanism.unit_weights or least < _LEAST_EXACT:
        return made
    terms = np.rint(counter.mechanism.row_norms2(len(tested))).astype(np.int64)
    kinds, places, counts = np.unique(terms[tested], return_inverse=True, return_counts=True)
    if kinds.max() > TERMS:
        return made
    law, every = _coarse(counter.law)
    sums = _sums(law, int(kinds.max()), least)
    if sums is None:
        return made
    used = [sums[kind - 1] for kind in kinds.tolist()]

    def spent(p: float) -> float:
        tails = [one.tail(one.quantile(p)) for one in used]
        return math.fsum(n * tail for n, tail in zip(counts.tolist(), tails, strict=True))

    low, high = least, total
    for _ in range(40):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if spent(middle) <= total else (low, middle)
    more = kinds * (every - 1)
    levels = np.array([one.quantile(low) for one in used]) * every + more
    made[tested] = np.minimum(made[tested], levels[places.ravel()])
    return made


# The probability of a level

_LEAST_SHOWN = 1e-30  # probabilities below it count as this one
_STEPS = 4  # of the scale of probabilities that Chernoff's bound is tried at, for a factor of e


def exceedances(counter: Counter, levels: FloatArray) -> FloatArray:
    """For each of the first releases a bound on P(noise >= level), shape (n,); at most 1.

    By the bounds of `quantiles`: exact for sums of whole draws of Laplace noise, else normal, or
    Chernoff's.

    Args:
      counter: as for `quantiles`.
      levels: in multiples of the counter's unit; shape (n,), n up to the horizon.

    Raises:
      TypeError, HorizonError: as for `quantiles`.
    """
    mechanism, law = counter.mechanism, counter.law
    norms2 = mechanism.row_norms2(mechanism.check_steps(len(levels)))
    lattice = levels * counter.resolution
    if isinstance(law, DiscreteGaussian | RoundedGaussian):
        apart = 0.5 if isinstance(law, RoundedGaussian) else 1.0
        stddevs = np.sqrt(float(law.sigma2) * norms2)
        margins = (1 + ERROR) * norms1(counter, norms2) * (apart + encoding(counter))
        z = (lattice - margins) / np.maximum(stddevs, _UNDERFLOW) - ARITHMETIC
        return np.array([_normal_tail(each) for each in z.tolist()])
    terms = np.rint(norms2).astype(np.int64)
    fine, every = _coarse(law)
    whole = mechanism.unit_weights and terms.max() <= TERMS
    sums = _sums(fine, int(terms.max()), _LEAST_SHOWN) if whole else None
    if sums is None:
        return _by_chernoff(counter, norms2, lattice)
    margins = norms2 * encoding(counter) + terms * (every - 1)
    least = np.ceil((lattice - margins) / every)
    found = [sums[j - 1].at_least(m) for j, m in zip(terms.tolist(), least.tolist(), strict=True)]
    return np.array(found)


def _by_chernoff(counter: Counter, norms2: FloatArray, lattice: FloatArray) -> FloatArray:
    found, p = np.ones(len(lattice)), 0.4
    while p > _LEAST_SHOWN:
        below = _chernoff(counter, norms2, p) <= lattice
        if not below.any():
            break
        found[below] = p
        p *= math.exp(-1 / _STEPS)
    return found


def _normal_tail(z: float) -> float:
    """P(Z >= z) of a standard normal Z, rounded up; 1 from the mean on."""
    if not z > 0:
        return 1.0
    return max(math.erfc(z / math.sqrt(2)) / 2 * (1 + ERROR), _LEAST_SHOWN)

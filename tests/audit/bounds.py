"""Lower bounds on privacy losses, with confidence, from trials of two neighbours.

A trial gives a score, by which an attacker says which of two neighbours was counted. Half of the
trials choose the event (a threshold, and on which side of it), the others count how often it
happens. Shares have Clopper and Pearson's bounds, so that a loss that they prove is one that the
mechanism has, but for a chance of MISSED.

Source: [Jagielski, Ullman, Oprea, "Auditing differentially private machine learning", 2020]; for
mu [Nasr et al., "Tight auditing of differentially private machine learning", 2023].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import betaincinv, ndtri, xlogy

from beam_dpcount.budget.budgets import ApproxDP, Budget, PureDP

MISSED = 1e-4  # the chance that a bound is above the truth
_CANDIDATES = 256  # thresholds
# Among so many events a rare one may look good by luck: they are compared by more careful bounds.
_CAREFUL = MISSED**2
# Of divergences: any orders give valid bounds.
_ORDERS = np.array([1.01, 1.1, 1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 32.0, 64.0])

FloatArray = np.ndarray
# Of lower bounds on an event's share under one neighbour, and upper ones under the other.
Measure = Callable[[FloatArray, FloatArray], FloatArray]


def at_least(hits: FloatArray, trials: int, missed: float = MISSED / 2) -> FloatArray:
    """Clopper and Pearson's lower bounds of shares."""
    k = np.asarray(hits, dtype=np.float64)
    return np.where(k > 0, betaincinv(np.maximum(k, 1), trials - k + 1, missed), 0.0)


def at_most(hits: FloatArray, trials: int, missed: float = MISSED / 2) -> FloatArray:
    """Clopper and Pearson's upper bounds of shares."""
    return 1 - at_least(trials - np.asarray(hits), trials, missed)


def epsilon(delta: float = 0.0) -> Measure:
    """The epsilon that it takes at this delta."""

    def measure(p: FloatArray, q: FloatArray) -> FloatArray:
        return np.log(np.maximum((p - delta) / q, 1.0))

    return measure


def rho(p: FloatArray, q: FloatArray) -> FloatArray:
    """The rho that it takes: the divergence of the event alone, of the best order."""
    p, q = np.maximum(p, q)[..., None], np.asarray(q)[..., None]
    a = _ORDERS
    # log(p^a q^(1-a) + (1-p)^a (1-q)^(1-a)), the larger term taken out
    with np.errstate(divide="ignore", invalid="ignore"):
        one = xlogy(a, p) + xlogy(1 - a, q)
        other = xlogy(a, 1 - p) + xlogy(1 - a, 1 - q)
    found = np.logaddexp(one, np.where(np.isnan(other), -np.inf, other)) / ((a - 1) * a)
    return np.asarray(np.maximum(found, 0.0).max(axis=-1))


def mu(p: FloatArray, q: FloatArray) -> FloatArray:
    """The mu of the Gaussian trade-off that it takes [Dong, Roth, Su 2022]."""
    return np.maximum(ndtri(p) - ndtri(q), 0.0)


def of_budget(budget: Budget) -> tuple[Measure, float]:
    """What a budget bounds, and its bound."""
    if isinstance(budget, PureDP):
        return epsilon(), budget.epsilon
    if isinstance(budget, ApproxDP):
        return epsilon(budget.delta), budget.epsilon
    return rho, budget.rho


@dataclass(frozen=True)
class Event:
    """What an attacker looks for: a score above a threshold, or not; and under whom."""

    threshold: float
    above: bool
    swapped: bool

    def bound(self, measure: Measure, ours: FloatArray, theirs: FloatArray) -> float:
        """What these trials prove, which must not have chosen the event."""
        one, other = (theirs, ours) if self.swapped else (ours, theirs)
        hits = [
            np.count_nonzero(scores > self.threshold) if self.above
            else np.count_nonzero(scores <= self.threshold)
            for scores in (one, other)
        ]  # fmt: skip
        p, q = at_least(hits[0], len(one)), at_most(hits[1], len(other))
        return float(measure(p, q))


def chosen(measure: Measure, ours: FloatArray, theirs: FloatArray) -> Event:
    """The event that would prove the most by these trials."""
    both = np.sort(np.concatenate([ours, theirs]))
    thresholds = np.unique(both[:: max(1, len(both) // _CANDIDATES)])
    thresholds = np.union1d(thresholds, both[[0, -1]])
    counts = [
        np.searchsorted(np.sort(scores), thresholds, side="right") for scores in (ours, theirs)
    ]
    best, most = Event(float(thresholds[0]), True, False), -np.inf
    for swapped in (False, True):
        one, other = (1, 0) if swapped else (0, 1)
        sizes = len(ours), len(theirs)
        for above in (False, True):
            hits = [sizes[i] - counts[i] if above else counts[i] for i in (one, other)]
            found = measure(
                at_least(hits[0], sizes[one], _CAREFUL), at_most(hits[1], sizes[other], _CAREFUL)
            )
            place = int(found.argmax())
            if found[place] > most:
                best, most = Event(float(thresholds[place]), above, swapped), found[place]
    return best


def proved(
    measure: Measure,
    choosing: tuple[FloatArray, FloatArray],
    counting: tuple[FloatArray, FloatArray],
) -> float:
    """A lower bound, by scores of trials of both neighbours: of those that choose, and others."""
    return chosen(measure, *choosing).bound(measure, *counting)

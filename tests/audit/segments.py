"""An exact audit of Sparse: the law of the whole output.

What is seen of a stream is when its segments end and the counter of segments' releases. The
former's joint probabilities are summed over every threshold (all but 1e-13 of its law) and, in
closed form, over the comparisons' noise, by running `step` itself; given them, the latter are
R g + z for the counts g of the segments.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections import defaultdict
from fractions import Fraction

import numpy as np
from scipy.special import logsumexp

import beam_dpcount as dp
from beam_dpcount.noise.laws import DiscreteLaplace
from tests.audit.exact import ALPHAS, hockey_stick, log_pmf, pure_loss, renyi


class NeedError(Exception):
    """A draw that is not determined yet."""


class Determined:
    """Noise that is given draw by draw; 0 for the counter of segments'; else says what it needs."""

    def __init__(self, counter, given, law=None, parent=None):
        self.counter, self.given, self.law = counter, given, law
        self.parent = parent or self
        self.used, self.ended = 0, False

    def for_law(self, law):
        return Determined(self.counter, self.given, law, self.parent)

    def one(self, coordinate):
        if self.law == self.counter.inner.law:
            self.parent.ended = True
            return 0
        i, self.parent.used = self.parent.used, self.parent.used + 1
        if i == len(self.given):
            raise NeedError(self.law)
        return self.given[i]


def attempt(counter, state, x, given):
    """The step's result under these draws or the law of the next draw; and if a segment ended."""
    noise = Determined(counter, given)
    try:
        state, value = counter.step(state, x, noise)
    except NeedError as need:
        return None, need.args[0], noise.ended
    return (state, value), None, noise.ended


def settled(counter, state, x, draws):
    """What becomes of these draws, a last threshold without noise if one is open; the end."""
    result, _, ended = attempt(counter, state, x, draws)
    return attempt(counter, state, x, (*draws, 0))[0] if result is None else result, ended


def outcomes(counter, state, x, given=()):
    """(probability, draws) of all that one step may come to, but for a threshold drawn at its end.

    That one is left for `with_thresholds`, as steps that differ before may be alike from there.
    """
    result, law, _ = attempt(counter, state, x, given)
    if result is not None:
        yield 1.0, given
    elif law == counter.comparison:
        # The least noise that ends the segment; more of it does too.
        cut = least(lambda v: attempt(counter, state, x, (*given, v))[2], guess(counter, state, x))
        for v, p in ((cut - 1, below(law, cut)), (cut, above(law, cut))):
            for q, draws in outcomes(counter, state, x, (*given, v)):
                yield p * q, draws
    elif attempt(counter, state, x, (*given, 0))[0] is not None:
        yield 1.0, given
    else:
        for v, p in thresholds(counter, law):
            for q, draws in outcomes(counter, state, x, (*given, v)):
                yield p * q, draws


def with_thresholds(counter, state, x, given):
    """(probability, state) after a step whose draws are given, but perhaps for a last threshold."""
    result, law, _ = attempt(counter, state, x, given)
    if result is not None:
        yield 1.0, result[0]
    else:
        for v, p in thresholds(counter, law):
            yield p, attempt(counter, state, x, (*given, v))[0][0]


def thresholds(counter, law):
    assert law == counter.law
    reach = int(31 * law.scale) + 1  # exp(-31) is 3e-14
    support = np.arange(-reach, reach + 1)
    return zip(support.tolist(), np.exp(log_pmf(law, support)).tolist(), strict=True)


def guess(counter, state, x):
    """Where the comparison's noise should decide; only a place to begin the search."""
    return int(state[counter.counters] - state[counter.counters + 1] - x)


def least(test, start):
    """The least integer that passes a monotone test, or about +-5000 if all or none do."""
    if test(start) and not test(start - 1):
        return start
    low, high = -5000, 5000
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if test(middle) else (middle, high)
    return high


def above(law, v):
    """P(X >= v)."""
    q = math.exp(-1 / law.scale)
    return q**v / (1 + q) if v > 0 else 1 - below(law, v)


def below(law, v):
    """P(X < v)."""
    q = math.exp(-1 / law.scale)
    return q ** (1 - v) / (1 + q) if v <= 0 else 1 - above(law, v)


def told_apart(counter):
    """The same counter with laws that differ by parts in 10^12, as draws are known by their law."""
    law, comparison = (
        DiscreteLaplace(law.parameter * (1 + Fraction(part, 10**12)))
        for part, law in ((1, counter.law), (2, counter.comparison))
    )
    return dataclasses.replace(counter, law=law, comparison=comparison)


def distributions(counter, values, n):
    """For every stream of n values: probability and counted sums of each pattern of ends.

    A pattern says at which steps segments ended; the sums are the releases then, without noise.
    """
    counter = told_apart(counter)
    nodes = {(): {(counter.init(), (), ()): 1.0}}
    known = {}  # many streams come to the same states

    def branches(state, x):
        """(probability, draws, the state and value then, whether a segment ended)."""
        if (state, x) not in known:
            known[state, x] = [
                (q, draws, *settled(counter, state, x, draws))
                for q, draws in outcomes(counter, state, x)
            ]
        return known[state, x]

    for t in range(1, n + 1):
        grown = {}
        for xs, before in nodes.items():
            for x in values:
                # Steps that agree under a last threshold without noise agree under any.
                alike = defaultdict(list)
                for (state, ends, sums), p in before.items():
                    for q, draws, (after, value), ended in branches(state, x):
                        here = ((*ends, t), (*sums, value)) if ended else (ends, sums)
                        alike[(after, *here)].append((p * q, state, draws))
                leaves = grown[(*xs, x)] = defaultdict(float)
                for (_, *here), steps in alike.items():
                    p, (_, state, draws) = math.fsum(step[0] for step in steps), steps[0]
                    for q, after in with_thresholds(counter, state, x, draws):
                        leaves[(after, *here)] += p * q
        nodes = grown
    found = {}
    for xs, leaves in nodes.items():
        of_pattern = defaultdict(list)
        for (_, ends, sums), p in leaves.items():
            of_pattern[ends, sums].append(p)
        assert len({ends for ends, _ in of_pattern}) == len(of_pattern)
        found[xs] = {ends: (math.fsum(ps), sums) for (ends, sums), ps in of_pattern.items()}
        assert abs(math.fsum(p for p, _ in found[xs].values()) - 1) < 1e-12
    return found


def neighbours(counter, values=(0, 1), n=4):
    """Of each pair, by pattern of ends: both probabilities, and the change of what is noised."""
    found = distributions(counter, values, n)
    mechanism, unit = counter.inner.mechanism, counter.unit
    for xs, one in found.items():
        for t, x in itertools.product(range(n), values):
            other = found[(*xs[:t], x, *xs[t + 1 :])]
            assert one.keys() == other.keys()
            parts = []
            for ends, (p, sums) in one.items():
                q, other_sums = other[ends]
                change = np.diff(np.subtract(sums, other_sums) / unit, prepend=0)
                encoded = mechanism.encoder(len(ends)) @ change if ends else np.zeros(1)
                assert np.array_equal(encoded, np.rint(encoded))
                parts.append((p, q, tuple(encoded.astype(np.int64).tolist())))
            yield parts


def worst_loss(counter, values=(0, 1), n=4):
    """The largest log-ratio of probabilities of the whole output, over all neighbours.

    With the part of it that is due to the ends of segments alone.
    """
    worst = of_ends = 0.0
    for parts in neighbours(counter, values, n):
        for p, q, change in parts:
            ratio = abs(math.log(p / q))
            loss = ratio + pure_loss(counter.inner.law, np.array(change))
            worst, of_ends = max(worst, loss), max(of_ends, ratio)
    return worst, of_ends


def largest_loss(counter, n=4):
    """How much of the budget the worst neighbours of n steps spend, as a share of it.

    Of its epsilon where all noise is Laplace; of delta where some is Gaussian; of rho. Whoever
    is told where segments ended knows no less.
    """
    budget, law = counter.budget, counter.inner.law
    if isinstance(budget, dp.ZCDP):
        return max(
            logsumexp([_log_moment(law, *part, alpha) for part in parts])
            / ((alpha - 1) * alpha * budget.rho)
            for parts in neighbours(counter, n=n)
            for alpha in ALPHAS
        )
    if isinstance(budget, dp.PureDP) or isinstance(law, DiscreteLaplace):
        return worst_loss(counter, n=n)[0] / budget.epsilon
    return max(
        math.fsum(
            p * _delta(law, change, budget.epsilon - math.log(p / q)) for p, q, change in parts
        )
        / budget.delta
        for parts in neighbours(counter, n=n)
    )


def _log_moment(law, p, q, change, alpha):
    """Of P against Q: what those of one pattern of ends add to the sum of P^alpha Q^(1 - alpha)."""
    of_ends = alpha * math.log(p) + (1 - alpha) * math.log(q)
    return of_ends + (alpha - 1) * _renyi(law, change, alpha)


@functools.cache
def _renyi(law, change, alpha):
    return renyi(law, np.array(change), alpha)


@functools.cache
def _delta(law, change, epsilon):
    delta, truncated = hockey_stick(law, np.array(change), epsilon)
    return delta + truncated

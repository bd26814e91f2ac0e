"""Counters as black boxes: what trials of two neighbours prove, beside what is exact.

A counter of vectors of which neighbours differ in one coordinate has the noise of a counter of
numbers, in every coordinate: so one release of it is as many trials as it has coordinates. Half of
them are made by `release`, half by `step`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np

import beam_dpcount as dp
from beam_dpcount import mechanisms
from beam_dpcount.budget.budgets import ZCDP, Budget
from beam_dpcount.counters.counter import Counter, LatticeCounter, UnsupportedBudgetError
from beam_dpcount.counters.sparse import SparseCounter
from beam_dpcount.noise.entropy import SystemNoise
from beam_dpcount.noise.laws import DiscreteGaussian, DiscreteLaplace, Law, RoundedGaussian
from tests.audit import bounds, epochs, exact, segments
from tests.audit.classifier import learned

BUDGETS: tuple[Budget, ...] = (
    dp.PureDP(0.5),
    dp.PureDP(1.0),
    dp.PureDP(3.0),
    dp.ZCDP(0.1),
    dp.ZCDP(0.5),
    dp.ZCDP(2.0),
    dp.ApproxDP(1.0, 1e-6),
    dp.ApproxDP(4.0, 1e-5),
)


@dataclass(frozen=True)
class Kind:
    """A mechanism to audit.

    Fields:
      make: it.
      steps: of a trial, 4 at most.
      share: of the trials that others get, where they take long.
    """

    make: Callable[[], Any]
    steps: int = 4
    share: float = 1.0


PLAIN: tuple[type[Any], ...] = (*mechanisms.ALL, mechanisms.Endless)
# Where releases hide some of what is noised, parameters under which they hide little.
KINDS: dict[str, Kind] = {
    **{kind.__name__: Kind(partial(kind, 4)) for kind in PLAIN},
    "Honaker": Kind(partial(mechanisms.Honaker, 2), 2),
    "SlidingBLT": Kind(partial(mechanisms.SlidingBLT, 4, window=2), share=0.35),
    "CombBLT": Kind(partial(mechanisms.CombBLT, 4, window=2), share=0.35),
    "DecayedBLT": Kind(partial(mechanisms.DecayedBLT, 4, decay=0.9), share=0.35),
    "Unbounded(BinaryTree)": Kind(partial(mechanisms.Unbounded, mechanisms.BinaryTree, 0.75)),
    "Unbounded(BLT)": Kind(partial(mechanisms.Unbounded, mechanisms.BLT, 0.75)),
    "Sparse": Kind(partial(mechanisms.Sparse, 1, 1, share=0.25), 2, share=0.5),
}
# Only contents of one coordinate differ: there is noise for no more.
ONE = dp.Change(coordinates=1)
# The least shares of the law's own figure that the known statistic must prove.
TIGHT = {"mu": 0.9, "epsilon": 0.7}
# Trials that count, of each neighbour: more where they are less far apart.
TRIALS = 200_000
MORE = {dp.ZCDP(0.1): 4, dp.ApproxDP(1.0, 1e-6): 6}
LAWS: dict[type[Law], str] = {
    DiscreteLaplace: "Laplace",
    DiscreteGaussian: "Gaussian",
    RoundedGaussian: "rounded Gaussian",
}
FloatArray = np.ndarray


def calibrated(name: str, budget: Budget, dimension: int | None = None) -> Any:
    """The counter of numbers, or that of so many trials; None where it takes no such budget."""
    try:
        if dimension is None:
            return dp.calibrate(KINDS[name].make(), budget)
        return dp.calibrate(KINDS[name].make(), budget, ONE, dimension)
    except UnsupportedBudgetError:
        return None


# What releases are made of


class LawTape(exact.Tape):
    """A tape that notes the law of each draw."""

    def __init__(self, z: np.ndarray, laws: list[Law], law: Law, kept: Any = None) -> None:
        super().__init__(z)
        self.laws, self.law, self.kept = laws, law, kept or self

    def draw(self, first: int, n: int) -> np.ndarray:
        self.laws += [self.law] * n
        return super().draw(first, n) if self.kept is self else self.kept.drawn(first, n)

    def drawn(self, first: int, n: int) -> np.ndarray:
        return super().draw(first, n)

    def for_law(self, law: Law) -> LawTape:
        return self if law == self.law else LawTape(self.z, self.laws, law, self.kept)


@dataclass(frozen=True)
class Anatomy:
    """Of a linear counter: releases of a stream are its mean plus W z.

    Fields:
      weights: W, shape (steps, draws).
      laws: of each draw.
      inputs: two neighbours, which differ the most for their noise.
      means: their releases without noise.
      change: what differs in what is noised, in lattice steps of the draws.
    """

    weights: FloatArray
    laws: list[Law]
    inputs: tuple[FloatArray, FloatArray]
    means: tuple[FloatArray, FloatArray]
    change: FloatArray

    @property
    def has_laplace(self) -> bool:
        return any(isinstance(law, DiscreteLaplace) for law in self.laws)

    @property
    def distance(self) -> float:
        """Of the neighbours: their mu, or with Laplace noise their largest loss."""
        parts = [abs(c) / law.scale for c, law in zip(self.change, self.laws, strict=True)]
        return math.fsum(parts) if self.has_laplace else math.hypot(*parts)

    def score(self, trials: FloatArray) -> FloatArray:
        """The log-likelihood ratio of the neighbours, of releases, shape (trials, steps).

        Where releases hide a part of what is noised, that of its least-squares estimate.
        """
        inverse = np.linalg.pinv(self.weights)
        change = inverse @ (self.weights @ self.change)
        total = np.zeros(len(trials))
        if not self.has_laplace:
            scales = np.array([law.scale for law in self.laws])
            spread = (self.weights * scales) @ (self.weights * scales).T
            direction = np.linalg.solve(spread, self.weights @ self.change)
            return np.asarray((trials - self.means[0]) @ direction)
        z = (trials - self.means[0]) @ inverse.T
        for c, law, noise in zip(change, self.laws, z.T, strict=True):
            # within an error of 1e-6 of whole numbers, which are what is added to
            total += (np.abs(noise) - np.abs(noise - c)) / law.scale
        return np.round(total, 9)


@lru_cache(maxsize=256)
def anatomy(counter: LatticeCounter, steps: int) -> Anatomy:
    """Seen from outside, with noise that is given: no formula of the mechanism's is used."""
    room = np.zeros(64 + 20 * steps, dtype=np.int64)

    def released(xs: Any, z: np.ndarray) -> tuple[FloatArray, list[Law]]:
        laws: list[Law] = []
        tape, state, values = LawTape(z, laws, counter.law), counter.init(), []
        for x in xs:
            state, value = counter.step(state, x, tape)
            values.append(value)
        return np.array(values), laws

    silent, laws = released([0] * steps, room)
    weights = np.zeros((steps, len(laws)))
    for i, law in enumerate(laws):
        loud = room.copy()
        # Decoders of whole numbers round down, which is little beside a large draw.
        loud[i] = 1 << max(20, math.ceil(math.log2(32 * law.scale)))
        weights[:, i] = (released([0] * steps, loud)[0] - silent) / loud[i]
    best: Anatomy | None = None
    for step in range(steps):
        inputs = np.zeros(steps), np.eye(steps)[step]
        other = released(inputs[1], room)[0]
        # What is noised are whole numbers.
        change = np.linalg.pinv(weights) @ (other - silent)
        found = Anatomy(weights, laws, inputs, (silent, other), change)
        if best is None or found.distance > best.distance:
            best = found
    assert best is not None
    return best


@dataclass(frozen=True)
class OneSegment:
    """Of Sparse with one segment: a release is 0 until a comparison ends it, and then its sum."""

    counter: SparseCounter
    steps: int

    has_laplace = True

    @property
    def inputs(self) -> tuple[FloatArray, FloatArray]:
        return np.zeros(self.steps), np.eye(self.steps)[0]

    def score(self, trials: FloatArray) -> FloatArray:
        """The log-likelihood ratio of the neighbours."""
        one, other = (self._likelihood(trials, np.cumsum(xs)) for xs in self.inputs)
        return np.round(np.log(other) - np.log(one), 9)

    def _likelihood(self, trials: FloatArray, sums: FloatArray) -> FloatArray:
        threshold, comparison = self.counter.law, self.counter.comparison
        reach = int(40 * max(threshold.scale, comparison.scale)) + 40
        noise = np.arange(-reach, reach + 1)
        above = np.append(np.cumsum(comparison.pmf(noise)[::-1])[::-1], 0.0)  # P(noise >= it)
        open_still, total = threshold.pmf(noise), np.zeros(len(trials))
        counted = np.rint(trials).astype(np.int64)
        for step, c in enumerate(sums.astype(int)):
            # It ends if c + noise reaches 1 + the threshold's noise.
            ends = above[np.clip(noise + 1 - c + reach, 0, 2 * reach + 1)]
            same = (counted[:, :step] == 0).all(axis=1)
            same &= (counted[:, step:] == counted[:, step : step + 1]).all(axis=1)
            value = self.counter.inner.law.pmf(counted[:, step] - c)
            total += same * value * (open_still @ ends)
            open_still = open_still * (1 - ends)
        return total + (counted == 0).all(axis=1) * open_still.sum()


# Trials


def trials(counter: Any, xs: FloatArray) -> FloatArray:
    """Releases of streams `xs`, a row a trial: by `release`, and as many by `step`.

    Two for each of the coordinates of a counter of vectors.
    """
    given = np.repeat(xs[:, None], counter.dimension, axis=1)
    noise, state, values = SystemNoise(counter.law, counter.dimension), counter.init(), []
    for x in given:
        state, value = counter.step(state, x, noise)
        values.append(value)
    both = np.stack([counter.release(given), np.array(values)], axis=2)
    return both.transpose(1, 2, 0).reshape(-1, len(xs))  # in turns


def one_by_one(counter: Any, xs: FloatArray, n: int) -> FloatArray:
    """The same of a counter that takes no vectors."""
    noise, found = SystemNoise(counter.law), np.empty((n, len(xs)))
    for row in found:
        state = counter.init()
        for i, x in enumerate(xs.tolist()):
            state, row[i] = counter.step(state, x, noise)
    return found


@dataclass(frozen=True)
class Found:
    """What is known of a counter under a budget, in the budget's units but for mu.

    Fields:
      noise: of what law; trials: of each neighbour.
      budget: epsilon or rho.
      exact: the largest loss of all neighbours, as a share of the budget (of its delta, if it has
        one and noise is Gaussian).
      known: what the log-likelihood ratio proves, mu: of Gaussian noise, and `law_mu` that of the
        calibration.
      learned: what a classifier proves that knows nothing.
    """

    name: str
    kind: Budget
    noise: str
    trials: int
    budget: float
    exact: float
    known: float
    mu: float | None
    law_mu: float | None
    learned: float

    def faults(self) -> list[str]:
        """What is wrong: a bound above the budget, or an attack that is too weak to tell."""
        said = []
        for way, proved in (("the known statistic", self.known), ("a classifier", self.learned)):
            if proved > self.budget:
                said.append(f"{self.name}, {self.kind}: {way} proves {proved:.4g}")
        if self.exact > 1 + 1e-9:
            said.append(f"{self.name}, {self.kind}: the exact loss is {self.exact:.6g} of it")
        if self.mu is not None and self.law_mu is not None:
            # At lattice points a discrete Gaussian may show more than a continuous one of its mu:
            # its rho holds. A rounded one is a continuous one, post-processed.
            if self.noise == "rounded Gaussian" and self.mu > self.law_mu:
                said.append(f"{self.name}, {self.kind}: mu is at least {self.mu:.4g}")
            if self.mu < TIGHT["mu"] * self.law_mu:
                said.append(f"{self.name}, {self.kind}: only mu = {self.mu:.4g} is proved")
        elif not isinstance(self.kind, ZCDP) and self.known < TIGHT["epsilon"] * self.budget:
            said.append(f"{self.name}, {self.kind}: only epsilon = {self.known:.4g} is proved")
        return said


def audited(
    name: str, budget: Budget, n: int | None = None, broken: Callable[[Any], Any] = lambda c: c
) -> Found | None:
    """What is known of one; None where the mechanism takes no such budget.

    Args:
      n: trials that count, of each neighbour; a quarter as many more choose the events.
      broken: what a mutant makes of the counter whose trials are made.
    """
    counter, kind = calibrated(name, budget), KINDS[name]
    if counter is None:
        return None
    seen = known_of(counter, kind.steps)
    size = int((n or TRIALS * MORE.get(budget, 1)) * kind.share)
    choosing, counting = (
        [made(name, budget, broken, xs, some) for xs in seen.inputs] for some in (size // 4, size)
    )
    measure, most = bounds.of_budget(budget)

    def proves(measure: bounds.Measure, score: Any) -> float:
        ones, others = ([score(trials) for trials in made] for made in (choosing, counting))
        return bounds.proved(measure, (ones[0], ones[1]), (others[0], others[1]))

    return Found(
        name,
        budget,
        LAWS[type(counter.law)],
        size,
        most,
        exact_loss(counter),
        proves(measure, seen.score),
        None if seen.has_laplace else proves(bounds.mu, seen.score),
        None if seen.has_laplace else law_mu(counter, kind.steps),
        proves(measure, learned(*choosing)),
    )


def exact_loss(counter: Any) -> float:
    """The largest of all neighbours, as a share of the budget."""
    if isinstance(counter, SparseCounter):
        return float(segments.largest_loss(counter))
    program: Any = exact if isinstance(counter, Counter) else epochs
    return float(program.largest_loss(counter))


def known_of(counter: Any, steps: int) -> Anatomy | OneSegment:
    """What is known of it."""
    sparse = isinstance(counter, SparseCounter)
    return OneSegment(counter, steps) if sparse else anatomy(counter, steps)


def made(name: str, budget: Budget, broken: Callable[[Any], Any], xs: Any, n: int) -> FloatArray:
    """Trials of one stream."""
    if isinstance(counter := calibrated(name, budget), SparseCounter):
        return one_by_one(broken(counter), xs, n)
    return trials(broken(calibrated(name, budget, n // 2)), xs)


def law_mu(counter: Any, steps: int) -> float:
    """Of Gaussian noise: the mu that it was calibrated to."""
    if isinstance(counter, Counter):
        return counter.l2_sensitivity / (counter.law.scale * counter.grid)
    return anatomy(counter, steps).distance

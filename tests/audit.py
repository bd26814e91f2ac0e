"""An exact audit of the privacy of a calibrated counter: no sampling, every neighbouring pair.

`audit(counter, values)` answers with the names of the checks that fail, in this order:

  pattern        the coordinates drawn do not depend on the data
  order          they are 1, 2, 3, ..., each drawn once and none before its row of Rx is complete
                 (unless the mechanism says that it draws early)
  affine         releases are A x + W z, W the weights with which `step` is seen to use its draws
  factorization  W R = A for the encoder R, so releases are W (R x + z): post-processing of Rx + z
  release        `release` gives what the steps give
  budget         for all neighbouring x, x', the exact privacy loss of Rx + z keeps the budget

Draws are told apart by the order of the calls, not by their coordinates: a coordinate that is
drawn twice gets two independent noises here, as it would from system entropy. Given the first
five, whatever the steps release is a function of Rx + z, with z independent draws of the
counter's law; and the last is computed from the law's definition alone (nothing of the package's
budget arithmetic or tables), as are the neighbours from the definition of the relation.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter as Multiset
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from beam_dpcount.budget import ApproxDP, PureDP
from beam_dpcount.counter import Counter
from beam_dpcount.laws import DiscreteGaussian, DiscreteLaplace, Law

CHECKS = ("pattern", "order", "affine", "factorization", "release", "budget")
ALPHAS = (1.001, 1.1, 1.5, 2.0, 3.0, 4.7, 8.0, 16.0, 33.3, 64.0, 128.0, 200.0)


def audit(counter: Counter, values: Sequence[Any] = (0.0, 1.0)) -> list[str]:
    """The names of the checks that fail, for streams of `values` as long as the horizon."""
    # All but the last know nothing of the law and the budget: done once for each set of others.
    kind, change, unit = type(counter), counter.change, counter.unit
    key = (kind, counter.mechanism, change, counter.dimension, unit, tuple(values))
    if key not in _known:
        _known[key] = failed_structure(counter, values), differences(counter, values)
    structure, changes = _known[key]
    return structure if keeps_budget(counter, changes) else [*structure, "budget"]


_known: dict[Any, tuple[list[str], list[np.ndarray]]] = {}


# What is drawn, and what becomes of it


class Tape:
    """Noise that answers the i-th draw with the i-th number, whatever coordinate it is for."""

    def __init__(self, z: np.ndarray) -> None:
        self.z = z
        self.coordinates: list[int] = []

    def draw(self, first: int, n: int) -> np.ndarray:
        start = len(self.coordinates)
        self.coordinates += range(first, first + n)
        return self.z[start : start + n].copy()

    def one(self, coordinate: int) -> Any:
        (z,) = self.draw(coordinate, 1)
        return int(z) if self.z.ndim == 1 else z

    def for_law(self, law: Law) -> Tape:
        return self


def steps(counter: Counter, xs: Sequence[Any], z: np.ndarray) -> tuple[np.ndarray, list[list[int]]]:
    """Releases in multiples of the unit, and the coordinates drawn by each step."""
    tape, state, releases, drawn = Tape(z), counter.init(), [], []
    for x in xs:
        before = len(tape.coordinates)
        state, value = counter.step(state, x, tape)
        releases.append(value)
        drawn.append(tape.coordinates[before:])
    return np.array(releases) / counter.unit, drawn


def failed_structure(counter: Counter, values: Sequence[Any]) -> list[str]:
    horizon, dimension = counter.mechanism.horizon, counter.dimension
    R = counter.mechanism.encoder(horizon)
    streams = list(itertools.product(values, repeat=horizon))
    tail = () if dimension is None else (dimension,)
    room = 50 + 20 * len(R)
    silence = np.zeros((room, *tail), dtype=np.int64)
    nothing = [np.zeros(tail) if dimension else 0.0] * horizon

    _, drawn = steps(counter, nothing, silence)
    draws = sum(map(len, drawn))
    failed = set()
    flat = [c for of_step in drawn for c in of_step]
    if flat != list(range(1, len(R) + 1)):
        failed.add("order")
    for t, count in enumerate(np.cumsum([len(of_step) for of_step in drawn]), start=1):
        if R[:count, t:].any() and not counter.mechanism.draws_early:
            failed.add("order")

    offset, _ = steps(counter, nothing, silence)
    weights = np.zeros((horizon, draws))
    for i in range(draws):
        unit_noise = silence.copy()
        unit_noise[i] = 1
        seen = (steps(counter, nothing, unit_noise)[0] - offset).reshape(horizon, -1)
        if not close(seen, seen[:, :1]):  # every coordinate of a vector has its own noise
            failed.add("affine")
        weights[:, i] = seen[:, 0]
    if not (weights.shape[1] == len(R) and close(weights @ R, np.tri(horizon))):
        failed.add("factorization")

    rng = np.random.default_rng(0)
    for xs in streams:
        z = rng.integers(-1000, 1001, silence.shape)
        seen, drawn_now = steps(counter, xs, z)
        if drawn_now != drawn:
            failed.add("pattern")
        exact = np.cumsum([counter.quantise(x) for x in xs], axis=0)
        if not close(seen, exact + weights @ z[:draws]):
            failed.add("affine")
        tape = Tape(z)
        if not close(counter.release(list(xs), tape) / counter.unit, seen):
            failed.add("release")
        if tape.coordinates != flat:
            failed.add("release")
    return [check for check in CHECKS if check in failed]


def close(a: np.ndarray, b: np.ndarray) -> bool:
    return bool(np.allclose(a, b, rtol=1e-9, atol=1e-9))


# Neighbours


def differences(counter: Counter, values: Sequence[Any]) -> list[np.ndarray]:
    """R (x - x'), up to sign and repetition, over all neighbouring streams of `values`.

    Every pair of streams that the counter's relation makes neighbours is formed, quantised as the
    counter quantises it, and encoded. Under replace_one an element may also become one that is
    rejected; under add_remove its step becomes empty. Both count 0.
    """
    horizon = counter.mechanism.horizon
    R = counter.mechanism.encoder(horizon)
    lattice = [np.atleast_1d(counter.quantise(v)) for v in values]
    nothing = np.atleast_1d(counter.quantise_nothing())
    found = {}
    for stream in itertools.product(lattice, repeat=horizon):
        encoded = R @ np.array(stream)
        for t in range(horizon):
            for other in replacements(counter, stream[t], lattice, nothing):
                neighbour = [*stream[:t], other, *stream[t + 1 :]]
                difference = encoded - R @ np.array(neighbour)
                if not np.array_equal(difference, np.rint(difference)):
                    raise ValueError("Rx leaves the lattice, where integer noise cannot hide it")
                key = np.abs(difference).astype(np.int64)
                found[key.tobytes()] = key.ravel()
    return list(found.values())


def replacements(
    counter: Counter, x: np.ndarray, lattice: list[np.ndarray], nothing: np.ndarray
) -> Iterator[np.ndarray]:
    """What a step that holds x may hold in a neighbouring stream."""
    others = [nothing] if counter.change.relation == "add_remove" else [*lattice, nothing]
    touched = counter.change.coordinates
    for other in others:
        if touched is None or np.count_nonzero(other != x) <= touched:
            yield other


# The loss of Rx + z


def log_pmf(law: Law, x: np.ndarray) -> np.ndarray:
    """Log-probabilities of the integers x, from the law's definition."""
    x = np.abs(np.asarray(x, dtype=np.float64))
    if isinstance(law, DiscreteLaplace):
        return -x / float(law.parameter) + np.log(np.tanh(0.5 / float(law.parameter)))
    assert isinstance(law, DiscreteGaussian)
    twice = 2 * float(law.sigma2)
    support = np.arange(1, 2 + int(40 * twice**0.5))
    return -(x**2) / twice - np.log1p(2 * np.exp(-(support**2) / twice).sum())


def law_moments(law: Law) -> tuple[float, float]:
    """The variance and the fourth moment, from the law's definition."""
    reach = 60 + int(60 * law.scale)
    x = np.arange(-reach, reach + 1.0)
    p = np.exp(log_pmf(law, x))
    return float(x**2 @ p), float(x**4 @ p)


def keeps_budget(counter: Counter, changes: Sequence[np.ndarray]) -> bool:
    """Whether the exact loss of every one of these changes of Rx is within the budget."""
    law, budget = counter.law, counter.budget
    # The noises are independent and symmetric: only the sizes of the changes matter.
    sizes = {tuple(sorted(np.abs(change[change != 0]).tolist())) for change in changes}
    for change in map(np.array, sorted(sizes)):
        if isinstance(budget, PureDP):
            if pure_loss(law, change) > budget.epsilon + 1e-12:
                return False
        elif isinstance(budget, ApproxDP):
            delta, truncated = hockey_stick(law, change, budget.epsilon)
            assert truncated < 1e-12
            if delta + truncated > budget.delta:
                return False
        else:
            for alpha in ALPHAS:
                if renyi(law, change, alpha) > alpha * budget.rho * (1 + 1e-9):
                    return False
    return True


def pure_loss(law: Law, change: np.ndarray) -> float:
    """The largest log-ratio of probabilities of Rx + z: over all outputs, coordinate by one."""
    total = 0.0
    for d, times in Multiset(np.abs(change).tolist()).items():
        y = np.arange(-500 - d, 501 + 2 * d)
        total += times * float(np.abs(log_pmf(law, y) - log_pmf(law, y - d)).max())
    return total


def renyi(law: Law, change: np.ndarray, alpha: float) -> float:
    """D_alpha of z and z + change, summed over the independent coordinates."""
    total = 0.0
    for d, times in Multiset(np.abs(change).tolist()).items():
        if d:
            reach = int(60 * law.scale + 2 * alpha * d) + 60  # the mass sits about (1-alpha) d
            y = np.arange(-reach, reach + 1)
            exponents = alpha * log_pmf(law, y) + (1 - alpha) * log_pmf(law, y - d)
            top = exponents.max()
            log_sum = top + np.log(np.exp(exponents - top).sum())
            total += times * float(log_sum) / (alpha - 1)
    return total


def hockey_stick(law: Law, change: np.ndarray, epsilon: float) -> tuple[float, float]:
    """The delta(epsilon) of z against z + change, and the probability left out of it.

    The loss of one coordinate, log p(y) - log p(y - d), is (|y-d| - |y|) / scale for Laplace
    noise and (d^2 - 2 y d) / (2 sigma^2) for Gaussian noise: on a lattice. So the distribution of
    the sum of the losses is a convolution of integers' laws, exact, without any discretisation.
    """
    sizes = [d for d in np.abs(change).tolist() if d]
    step = math.gcd(*sizes)
    laplace = isinstance(law, DiscreteLaplace)
    # Nine standard deviations of a Gaussian, or 40 scales of a Laplace, leave out under 1e-16.
    y = np.arange(-12 - int((40 if laplace else 9) * law.scale), 1)
    y = np.concatenate([y, -y[-2::-1]])
    p = np.exp(log_pmf(law, y))
    total, lowest = np.ones(1), 0
    for d in sizes:
        points = np.abs(y - d) - np.abs(y) if laplace else y * (d // step)
        total = np.convolve(total, np.bincount(points - points.min(), weights=p))
        lowest += int(points.min())
    points = lowest + np.arange(len(total))
    if laplace:
        losses = points / float(law.parameter)
    else:
        losses = (sum(d * d for d in sizes) - 2 * step * points) / (2 * float(law.sigma2))
    beyond = losses > epsilon
    delta = float(total[beyond] @ -np.expm1(epsilon - losses[beyond]))
    # Sums of rounded probabilities may exceed 1 by a few times 1e-16.
    return delta, len(sizes) * max(0.0, 1 - float(p.sum()))

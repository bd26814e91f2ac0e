"""An exact audit of the privacy of a calibrated counter: no sampling, every neighbouring pair.

`audit(counter, values)` answers with the names of the checks that fail, in this order:

  pattern        the coordinates drawn do not depend on the data
  order          they are 1, 2, 3, ..., each drawn once and none before its row of Rx is complete
                 (unless the mechanism says that it draws early)
  affine         releases are A x + W z, W the weights with which `step` is seen to use its draws
                 (where R x is rounded: W (q(x) + z), q(x) integers no further from R x than said)
  factorization  W R = A for the encoder R, so releases are W (R x + z): post-processing of Rx + z
  release        `release` gives what the steps give
  budget         for all neighbouring x, x', the exact privacy loss of Rx + z (or of the integers
                 q(x) + z) keeps the budget

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
from scipy import fft
from scipy.special import log_ndtr, ndtr

from beam_dpcount.budget.budgets import ZCDP, ApproxDP, PureDP
from beam_dpcount.counters.counter import Counter
from beam_dpcount.mechanisms.rounded import RoundedMechanism
from beam_dpcount.noise.laws import DiscreteGaussian, DiscreteLaplace, Law, RoundedGaussian

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
    """Releases in steps of the noise's lattice, and the coordinates drawn by each step."""
    tape, state, releases, drawn = Tape(z), counter.init(), [], []
    for x in xs:
        before = len(tape.coordinates)
        state, value = counter.step(state, x, tape)
        releases.append(value)
        drawn.append(tape.coordinates[before:])
    return np.array(releases) / counter.grid, drawn


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

    weights, alike = seen_weights(counter, draws)
    if not alike:
        failed.add("affine")
    if not (weights.shape[1] == len(R) and close(weights @ R, workload(counter))):
        failed.add("factorization")

    rng = np.random.default_rng(0)
    for xs in streams:
        z = rng.integers(-1000, 1001, silence.shape)
        seen, drawn_now = steps(counter, xs, z)
        if drawn_now != drawn:
            failed.add("pattern")
        lattice = np.array([counter.quantise(x) for x in xs]) * counter.resolution
        if "factorization" in failed:
            pass  # nothing to compare with
        elif isinstance(counter.mechanism, RoundedMechanism):
            q = noised(counter, xs, weights)
            bound = counter.mechanism.rounding / 2 + 1e-6
            if not (close(q, np.rint(q)) and (np.abs(q - R @ lattice) <= bound).all()):
                failed.add("affine")
            if not close(seen, weights @ (np.rint(q) + z[:draws])):  # type: ignore[index]
                failed.add("affine")
        elif not close(seen, workload(counter) @ lattice + weights @ z[:draws]):  # type: ignore[index]
            failed.add("affine")
        tape = Tape(z)
        if not close(counter.release(list(xs), tape) / counter.grid, seen):
            failed.add("release")
        if tape.coordinates != flat:
            failed.add("release")
    return [check for check in CHECKS if check in failed]


def workload(counter: Counter) -> np.ndarray:
    return counter.mechanism.workload.matrix(counter.mechanism.horizon)


def seen_weights(counter: Counter, draws: int) -> tuple[np.ndarray, bool]:
    """W, and whether every coordinate of a vector has a noise of its own."""
    horizon, dimension = counter.mechanism.horizon, counter.dimension
    tail = () if dimension is None else (dimension,)
    nothing = [np.zeros(tail) if dimension else 0.0] * horizon
    silence = np.zeros((50 + 20 * draws, *tail), dtype=np.int64)
    offset, _ = steps(counter, nothing, silence)
    # Decoders of whole numbers round down, which is little beside a large draw.
    loud = 1 << max(0, math.floor(math.log2(32 * counter.law.scale)))
    weights, alike = np.zeros((horizon, draws)), True
    for i in range(draws):
        one_noise = silence.copy()
        one_noise[i] = loud
        seen = (steps(counter, nothing, one_noise)[0] - offset).reshape(horizon, -1) / loud
        alike &= close(seen, seen[:, :1])
        weights[:, i] = seen[:, 0]
    return weights, alike


def noised(counter: Counter, xs: Sequence[Any], weights: np.ndarray) -> np.ndarray:
    """What noise is added to, where a step draws once: releases are W (it + z), W triangular."""
    tail = () if counter.dimension is None else (counter.dimension,)
    silence = np.zeros((len(xs), *tail), dtype=np.int64)
    return np.linalg.solve(weights, steps(counter, xs, silence)[0])


def close(a: np.ndarray, b: np.ndarray) -> bool:
    return bool(np.allclose(a, b, rtol=1e-9, atol=1e-9))


# Neighbours


def differences(counter: Counter, values: Sequence[Any]) -> list[np.ndarray]:
    """R (x - x') or q(x) - q(x'), up to sign and repetition, over all neighbouring streams.

    Every pair of streams that the counter's relation makes neighbours is formed, quantised as the
    counter quantises it, and encoded. Under replace_one an element may also become one that is
    rejected; under add_remove its step becomes empty. Both count 0.
    """
    horizon, rounded = counter.mechanism.horizon, isinstance(counter.mechanism, RoundedMechanism)
    R = counter.mechanism.encoder(horizon)
    W = seen_weights(counter, len(R))[0] if rounded else None
    lattice = [np.atleast_1d(counter.quantise(v)) for v in values]
    nothing = np.atleast_1d(counter.quantise_nothing())
    known: dict[bytes, np.ndarray] = {}

    def encode(stream: Sequence[np.ndarray]) -> np.ndarray:
        whole = np.array(stream)
        key = whole.tobytes()
        if key not in known:
            if W is None:
                known[key] = R @ whole
            else:
                silence = np.zeros_like(whole) if counter.dimension else np.zeros(horizon, int)
                tape, state, releases = Tape(silence), counter.init(), []
                for x in whole if counter.dimension else whole[:, 0].tolist():
                    state, value = counter.step_lattice(state, x, tape)
                    releases.append(np.atleast_1d(value))
                known[key] = np.rint(np.linalg.solve(W, np.array(releases) / counter.grid))
        return known[key]

    found = {}
    for stream in itertools.product(lattice, repeat=horizon):
        for t in range(horizon):
            for other in replacements(counter, stream[t], lattice, nothing):
                neighbour = [*stream[:t], other, *stream[t + 1 :]]
                difference = encode(stream) - encode(neighbour)
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


# The loss of Rx + z. Beyond this scale sums over a law's support are long, and theorems take over:
# a rounded Gaussian is a Gaussian, post-processed, and a discrete one loses no more than that in
# Renyi divergence [CKS20, Proposition 5]. Tests check both below it, from the definitions.

LARGE = 2000


def log_pmf(law: Law, x: np.ndarray) -> np.ndarray:
    """Log-probabilities of the integers x, from the law's definition."""
    x = np.abs(np.asarray(x, dtype=np.float64))
    if isinstance(law, DiscreteLaplace):
        return -x / float(law.parameter) + np.log(np.tanh(0.5 / float(law.parameter)))
    if isinstance(law, RoundedGaussian):  # Phi(-(x - 1/2) / sigma) - Phi(-(x + 1/2) / sigma)
        more, less = (log_ndtr(-(x + side) / float(law.sigma2) ** 0.5) for side in (-0.5, 0.5))
        return more + np.log(-np.expm1(less - more))
    assert isinstance(law, DiscreteGaussian)
    twice = 2 * float(law.sigma2)
    support = np.arange(1, 2 + int(40 * twice**0.5))
    return -(x**2) / twice - np.log1p(2 * np.exp(-(support**2) / twice).sum())


def law_moments(law: Law) -> tuple[float, float]:
    """The variance and the fourth moment, from the law's definition."""
    if law.scale > LARGE and not isinstance(law, DiscreteLaplace):
        # Sums are integrals but for exp(-2 pi^2 scale^2).
        cell = 1.0 if isinstance(law, RoundedGaussian) else 0.0
        s2 = float(law.sigma2)  # type: ignore[attr-defined]
        return s2 + cell / 12, 3 * s2**2 + cell * (s2 / 2 + 1 / 80)
    reach = 60 + int(60 * law.scale)
    x = np.arange(-reach, reach + 1.0)
    p = np.exp(log_pmf(law, x))
    return float(x**2 @ p), float(x**4 @ p)


def keeps_budget(counter: Counter, changes: Sequence[np.ndarray]) -> bool:
    """Whether the exact loss of every one of these changes of Rx is within the budget."""
    law, budget = counter.law, counter.budget
    for change in worst_of(changes):
        if isinstance(budget, PureDP):
            if pure_loss(law, change) > budget.epsilon + 1e-12:
                return False
        elif isinstance(budget, ApproxDP):
            if delta_at(law, change, budget) > budget.delta:
                return False
        else:
            for alpha in ALPHAS:
                if renyi(law, change, alpha) > alpha * budget.rho * (1 + 1e-9):
                    return False
    return True


def largest_loss(counter: Counter, values: Sequence[Any] = (0.0, 1.0)) -> float:
    """How much of the budget the worst neighbours spend, as a share.

    Of its epsilon where noise is Laplace; of delta where it is Gaussian; of rho.
    """
    law, budget, found = counter.law, counter.budget, 0.0
    for change in worst_of(differences(counter, values)):
        if isinstance(budget, ZCDP):
            loss = max(renyi(law, change, alpha) / alpha for alpha in ALPHAS) / budget.rho
        elif isinstance(budget, PureDP) or isinstance(law, DiscreteLaplace):
            loss = pure_loss(law, change) / budget.epsilon
        else:
            loss = delta_at(law, change, budget) / budget.delta
        found = max(found, loss)
    return found


def worst_of(changes: Sequence[np.ndarray]) -> Iterator[np.ndarray]:
    """The sizes of the changes that no other exceeds: noises are independent and symmetric."""
    sizes = {tuple(sorted(np.abs(change[change != 0]).tolist())) for change in changes}
    return map(np.array, largest(sizes))


def delta_at(law: Law, change: np.ndarray, budget: ApproxDP) -> float:
    """The delta at the budget's epsilon, or a bound that is close enough to tell."""
    # A rounded Gaussian's delta is bounded, within 1 % and the more tightly the finer.
    for fineness in (1e-2, 1e-3, 1e-4):
        delta, truncated = hockey_stick(law, change, budget.epsilon, fineness)
        assert truncated < 1e-12
        if not budget.delta < delta + truncated < 1.01 * budget.delta:
            break
    return delta + truncated


def largest(sizes: set[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Those that no other exceeds in every coordinate: a log-concave law's loss grows in each."""
    width = max(map(len, sizes), default=0)
    padded = np.array(sorted((0,) * (width - len(s)) + s for s in sizes)).reshape(-1, width)
    kept = [s for s in padded if not ((padded >= s).all(axis=1) & (padded > s).any(axis=1)).any()]
    return [tuple(int(d) for d in s if d) for s in kept]


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
    if law.scale > LARGE:
        return alpha * float(np.square(change, dtype=float).sum()) / (2 * float(law.sigma2))  # type: ignore[attr-defined]
    for d, times in Multiset(np.abs(change).tolist()).items():
        if d:
            reach = int(60 * law.scale + 2 * alpha * d) + 60  # the mass sits about (1-alpha) d
            y = np.arange(-reach, reach + 1)
            exponents = alpha * log_pmf(law, y) + (1 - alpha) * log_pmf(law, y - d)
            top = exponents.max()
            log_sum = top + np.log(np.exp(exponents - top).sum())
            total += times * float(log_sum) / (alpha - 1)
    return total


def losses_of(
    law: Law, sizes: Sequence[int], y: np.ndarray, p: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The values of the sum of the losses of coordinates moved by `sizes`, and their probabilities.

    The loss of one coordinate, log p(y) - log p(y - d), is (|y-d| - |y|) / scale for Laplace
    noise and (d^2 - 2 y d) / (2 sigma^2) for Gaussian noise: on a lattice. So the distribution of
    the sum of the losses is a convolution of integers' laws, exact, without any discretisation.

    Args:
      y, p: where the law is looked at, and its probabilities there.
    """
    laplace, step = isinstance(law, DiscreteLaplace), math.gcd(*sizes)
    total, lowest = np.ones(1), 0
    for d in sizes:
        points = np.abs(y - d) - np.abs(y) if laplace else y * (d // step)
        total = np.convolve(total, np.bincount(points - points.min(), weights=p))
        lowest += int(points.min())
    points = lowest + np.arange(len(total))
    if laplace:
        return points / float(law.parameter), total  # type: ignore[attr-defined]
    return (sum(d * d for d in sizes) - 2 * step * points) / (2 * float(law.sigma2)), total  # type: ignore[attr-defined]


def hockey_stick(
    law: Law, change: np.ndarray, epsilon: float, fineness: float = 1e-3
) -> tuple[float, float]:
    """The delta(epsilon) of z against z + change, and the probability left out of it.

    Exactly (see `losses_of`), but for a rounded Gaussian: see `bounded_hockey_stick`.
    """
    sizes = [d for d in np.abs(change).tolist() if d]
    if sizes and law.scale > LARGE:
        assert isinstance(law, RoundedGaussian)
        ratio = (sum(d * d for d in sizes) / float(law.sigma2)) ** 0.5
        mid = epsilon / ratio
        return float(ndtr(ratio / 2 - mid) - np.exp(epsilon + log_ndtr(-ratio / 2 - mid))), 0.0
    if isinstance(law, RoundedGaussian) and sizes:
        return bounded_hockey_stick(law, sizes, epsilon, fineness)
    # Nine standard deviations of a Gaussian, or 40 scales of a Laplace, leave out under 1e-16.
    laplace = isinstance(law, DiscreteLaplace)
    y = np.arange(-12 - int((40 if laplace else 9) * law.scale), 1)
    y = np.concatenate([y, -y[-2::-1]])
    p = np.exp(log_pmf(law, y))
    losses, total = losses_of(law, sizes, y, p)
    beyond = losses > epsilon
    delta = float(total[beyond] @ -np.expm1(epsilon - losses[beyond]))
    # Sums of rounded probabilities may exceed 1 by a few times 1e-16.
    return delta, len(sizes) * max(0.0, 1 - float(p.sum()))


def bounded_hockey_stick(
    law: Law, sizes: Sequence[int], epsilon: float, fineness: float
) -> tuple[float, float]:
    """An upper bound of delta(epsilon), whatever the losses, and what is left out of it.

    Let each coordinate y of loss l, k g <= l < (k + 1) g, come with a coin: up with probability
    w = (1 - e^(kg - l)) / (1 - e^-g) where z is released, and w e^(l - (k + 1) g) where z + change
    is. Then the loss of (y, coin) is (k + 1) g or k g, on a grid; and y alone is a function of it,
    so no delta is larger. The excess is of second order in g.
    """
    y = np.arange(-3 - int(9 * law.scale), 4 + int(9 * law.scale))
    p = np.exp(log_pmf(law, y))
    grid, size, lowest, parts = fineness * max(sizes) / law.scale, 1, 0, []
    for d, times in Multiset(sizes).items():
        losses = log_pmf(law, y) - log_pmf(law, y - d)
        k = np.floor(losses / grid).astype(np.int64)
        up = np.clip(np.expm1(k * grid - losses) / np.expm1(-grid), 0, 1)
        first = k.min()
        part = np.bincount(k - first, p * (1 - up), k.max() - first + 2)
        part += np.bincount(k + 1 - first, p * up, k.max() - first + 2)
        parts.append((part, times))
        size, lowest = size + times * (len(part) - 1), lowest + times * int(first)
    length = fft.next_fast_len(size, real=True)
    transform = math.prod(fft.rfft(part, length) ** times for part, times in parts)
    total = fft.irfft(transform, length)[:size]
    losses = grid * (lowest + np.arange(size))
    beyond = losses > epsilon
    delta = float(total[beyond] @ -np.expm1(epsilon - losses[beyond]))
    # The transforms' rounding errors stay below 1e-14, in sum.
    return delta, len(sizes) * max(0.0, 1 - float(p.sum())) + 1e-14

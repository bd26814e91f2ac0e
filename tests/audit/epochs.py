"""An exact audit of counters without a horizon: as `exact`, with a law for each epoch.

The encoder of a whole unbounded stream is put together here from the definition: in each epoch
the rows of its base, each with that epoch's law, then the row of its total, with the totals' law.
Bases that round R x are noised on finer lattices, each epoch on its own; totals on the plain one.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import defaultdict

import numpy as np
from scipy.optimize import minimize_scalar

import beam_dpcount as dp
from beam_dpcount.mechanisms.rounded import RoundedMechanism
from beam_dpcount.noise.laws import DiscreteLaplace, RoundedGaussian
from tests.audit.exact import (
    ALPHAS,
    LARGE,
    close,
    largest,
    log_pmf,
    losses_of,
    pure_loss,
    renyi,
)


def parts(n):
    """Number, first step (from 0) and length of the epochs of the first n steps."""
    return [(i, (1 << i) - 1, min(1 << i, n + 1 - (1 << i))) for i in range(n.bit_length())]


def factors(counter, n):
    """L, R and the laws of the rows of R, for the first n steps of a stream.

    Each row of R in steps of the lattice of its noise.
    """
    blocks, laws, totals = [], [], []
    L, row = np.zeros((n, 10 * n + 10)), 0
    for i, first, length in parts(n):
        base = counter.of_epoch(i)
        encoder = base.resolution * base.mechanism.encoder(length)
        decoder = base.mechanism.decoder(length) / base.resolution
        block = np.zeros((len(encoder), n))
        block[:, first : first + length] = encoder
        blocks.append(block)
        laws += [base.law] * len(encoder)
        L[first : first + length, row : row + len(encoder)] = decoder
        L[first : first + length, totals] = 1
        row += len(encoder)
        if length == 1 << i:
            total = np.zeros((1, n))
            total[0, first : first + length] = 1
            blocks.append(total)
            laws.append(counter.law)
            totals.append(row)
            row += 1
    return L[:, :row], np.concatenate(blocks), laws


def rounds(counter):
    return isinstance(counter.of_epoch(0).mechanism, RoundedMechanism)


def noised(counter, factorized, xs, silent):
    """What noise is added to: R x, or the integers q that releases without noise are made of."""
    L, R, laws = factorized
    q = R @ xs
    if rounds(counter):
        of_base = np.array([law != counter.law for law in laws])
        rest = silent - L[:, ~of_base] @ q[~of_base]
        q[of_base] = np.linalg.solve(L[:, of_base], rest)
    return q


def reaches(counter, n, most):
    """How far, in each row, q may be from R x, for inputs up to `most`."""
    found = []
    for i, _, length in parts(n):
        base, reach = counter.of_epoch(i), 0.0
        if rounds(counter):
            mechanism = base.mechanism
            reach = mechanism.rounding / 2 + mechanism.encoding_error * most * base.resolution
        found += [reach] * base.mechanism.draws(length) + [0.0] * (length == 1 << i)
    return np.array(found)


def rounded_right(q, exact, reach):
    """Whether q are integers as near to R x as they should be."""
    off = np.abs(q - exact).reshape(len(q), -1)
    return close(q, np.rint(q)) and bool((off <= reach[:, None] * (1 + 1e-9) + 1e-6).all())


class Tape:
    """Noise that answers the i-th draw with the i-th number, and notes for which law it was."""

    def __init__(self, z, log, law=None):
        self.z, self.log, self.law = z, log, law

    def draw(self, first, n):
        start = len(self.log)
        self.log += [(c, self.law) for c in range(first, first + n)]
        return self.z[start : start + n].copy()

    def one(self, coordinate):
        return int(self.draw(coordinate, 1)[0])

    def for_law(self, law):
        return Tape(self.z, self.log, law)


def run(counter, xs, z):
    """Releases, the coordinates and laws of the draws, and how many were drawn by each step."""
    log, state, releases, drawn_by = [], counter.init(), [], []
    for x in xs:
        state, value = counter.step(state, x, Tape(z, log))
        releases.append(value)
        drawn_by.append(len(log))
    return np.array(releases), log, drawn_by


SILENCE = np.zeros(500, dtype=np.int64)


def audit(counter, n=7):
    """Which of these fail, for all bit streams of n steps (see tests/audit/exact.py):

    pattern, order, laws, affine, factorization, release: as there; and each coordinate is drawn
    with the law of its row. budget: the exact loss of R x + z (or of the integers q(x) + z),
    under the laws that are seen.
    """
    _, R, laws = factors(counter, n)
    failed = set()

    nothing = [0] * n
    offset, log, drawn_by = run(counter, nothing, SILENCE)
    seen_laws = [law for _, law in log]
    if [c for c, _ in log] != list(range(1, len(R) + 1)):
        failed.add("order")
    if seen_laws != laws:
        failed.add("laws")
    draws_early = counter.of_epoch(3).mechanism.draws_early
    for t, drawn in enumerate(drawn_by, start=1):
        totals = [row for row, law in enumerate(laws[:drawn]) if law == counter.law]
        if R[totals, t:].any() or (R[:drawn, t:].any() and not draws_early):
            failed.add("order")

    # Decoders of whole numbers round down, which is little beside large draws.
    loud = [1 << max(0, math.floor(math.log2(32 * law.scale))) for law in laws]
    alone = np.eye(len(log), 500, dtype=np.int64)
    W = np.stack(
        [
            (run(counter, nothing, z * unit)[0] - offset) / z
            for z, unit in zip([*loud, *[1] * len(log)], alone, strict=False)
        ],
        1,
    )
    if not (W.shape[1] == len(R) and close(W @ R, np.tri(n))):
        failed.add("factorization")

    rng = np.random.default_rng(0)
    reach, changed = reaches(counter, n, 1), R
    vectors = {}
    if rounds(counter) and "factorization" not in failed:
        vectors = all_noised(counter, (W, R, laws), n)
        changed = differences(vectors)
    for xs in itertools.product((0, 1), repeat=n):
        z = rng.integers(-1000, 1001, 500)
        seen, log_now, drawn_now = run(counter, xs, z)
        if (log_now, drawn_now) != (log, drawn_by):
            failed.add("pattern")
        if not rounds(counter):
            if not close(seen, np.cumsum(xs) + W @ z[: len(log)]):
                failed.add("affine")
        elif xs in vectors:
            q = vectors[xs]
            if not rounded_right(q, R @ xs, reach):
                failed.add("affine")
            if not close(seen, W @ (np.rint(q) + z[: len(log)])):
                failed.add("affine")
        bulk_log = []
        if not close(counter.release(list(xs), Tape(z, bulk_log)), seen) or bulk_log != log:
            failed.add("release")
    if len(seen_laws) == len(R) and not keeps_budget(counter.budget, changed, seen_laws):
        failed.add("budget")
    return sorted(failed)


def all_noised(counter, factorized, n):
    """`noised` of all bit streams of n steps."""
    return {
        xs: noised(counter, factorized, np.array(xs), run(counter, xs, SILENCE)[0])
        for xs in itertools.product((0, 1), repeat=n)
    }


def differences(vectors):
    """As columns, what a change of each step of each stream does to the integers noised."""
    found = [
        np.rint(q) - np.rint(vectors[(*xs[:t], 1, *xs[t + 1 :])])
        for xs, q in vectors.items()
        for t in range(len(xs))
        if xs[t] == 0
    ]
    return np.array(found).T


def changes(R, laws):
    """What the columns of R do to what is noised: by law, the sizes, without repetition.

    For one law, sizes that others exceed in every coordinate are left out.
    """
    found = defaultdict(set)
    for column in np.abs(R).T:
        sizes = {law: [] for law in laws}
        for size, law in zip(column.astype(int).tolist(), laws, strict=True):
            if size:
                sizes[law].append(size)
        *rest, (law, last) = [(law, tuple(sorted(s))) for law, s in sizes.items() if s]
        found[tuple(rest), law].add(last)
    return [(*rest, (law, sizes)) for (rest, law), last in found.items() for sizes in largest(last)]


def keeps_budget(budget, R, laws):
    return all(loss <= bound for loss, bound in losses(budget, R, laws))


def losses(budget, R, laws):
    """Pairs of an exact loss and the bound that it must keep, for all changes (and orders).

    At scales above LARGE from the theorems that tests/audit/exact.py takes there.
    """
    for change in changes(R, laws):
        if isinstance(budget, dp.PureDP):
            loss = sum(_pure_loss(law, sizes) for law, sizes in change)
            yield loss, budget.epsilon + 1e-12
        elif isinstance(budget, dp.ZCDP):
            for alpha in ALPHAS:
                yield divergence(change, alpha), alpha * budget.rho * (1 + 1e-9)
        elif any(law.scale > LARGE for law, _ in change):
            yield converted(change, budget.epsilon), budget.delta * (1 + 1e-9)
        else:
            loss, p = np.zeros(1), np.ones(1)
            for law, sizes in change:
                more, q = loss_distribution(law, sizes)
                loss, p = np.add.outer(loss, more).ravel(), np.multiply.outer(p, q).ravel()
            beyond = loss > budget.epsilon
            delta = p[beyond] @ -np.expm1(budget.epsilon - loss[beyond])
            yield delta + max(0.0, 1 - p.sum()), budget.delta


@functools.cache
def _pure_loss(law, sizes):
    return pure_loss(law, np.array(sizes))


def divergence(change, alpha):
    return sum(_renyi(law, d, alpha) for law, sizes in change for d in sizes)


@functools.cache
def _renyi(law, d, alpha):
    return renyi(law, np.array([d]), alpha)


def converted(change, epsilon):
    """The least delta that Renyi divergences of any order prove [CKS20, Proposition 12]."""

    def log_delta(log_x):
        x = math.exp(log_x)  # alpha - 1
        tail = -math.log(x) - (1 + x) * math.log1p(1 / x)
        return x * (divergence(change, 1 + x) - epsilon) + tail

    return math.exp(minimize_scalar(log_delta, bounds=(-3, 7), method="bounded").fun)


@functools.cache
def loss_distribution(law, sizes):
    """The values of log P(z) - log P(z - change) and their probabilities."""
    if isinstance(law, RoundedGaussian):
        y = np.arange(-int(9 * law.scale) - 12, int(9 * law.scale) + 13)
        (d,) = sizes
        return log_pmf(law, y) - log_pmf(law, y - d), np.exp(log_pmf(law, y))
    reach = int((45 if isinstance(law, DiscreteLaplace) else 9) * law.scale) + 12
    y = np.arange(-reach, reach + 1)
    return losses_of(law, sizes, y, np.exp(log_pmf(law, y)))


def largest_loss(counter, n=7):
    """How much of the budget the worst neighbours of n steps spend, as a share of it.

    Of its epsilon where all noise is Laplace; of delta where some is Gaussian; of rho.
    """
    _, R, laws = factorized = factors(counter, n)
    changed = differences(all_noised(counter, factorized, n)) if rounds(counter) else R
    budget = counter.budget
    if isinstance(budget, dp.ApproxDP) and all(isinstance(law, DiscreteLaplace) for law in laws):
        budget = dp.PureDP(budget.epsilon)
    return max(loss / bound for loss, bound in losses(budget, changed, laws))

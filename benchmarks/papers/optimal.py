"""The least error that any factorization of the prefix sums can have, and a factorization with it.

A is the n x n matrix of prefix sums (ones on and below the diagonal). Releasing L (R x + z) for a
factorization A = L R, with Gaussian z of the variance that rho = 1/2 zCDP asks for (the square of
the largest column norm of R), release t has variance ||L_t||^2 max_j ||R_j||^2. For probability
vectors p (over releases) and q (over inputs), P = diag(p), Q = diag(q) and any A = L R,

  ||P^1/2 A Q^1/2||_tr <= ||P^1/2 L||_F ||R Q^1/2||_F <= (sum_t p_t ||L_t||^2)^1/2 max_j ||R_j||,

so the square of the left side is a lower bound: on the largest variance for every p, and on the
mean variance for p = 1/n. The best p and q leave no gap (gamma_2 duality: Lee, Shraibman, Spalek
2008, "A direct product theorem for discrepancy", section 2; for the mean, Denisov, McMahan, Rush,
Smith, Thakurta 2022, "Improved differential privacy for SGD via optimal private linear operators on
adaptive streams", Theorem 3.2). Dense, O(n^3): a yardstick, not a mechanism.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from beam_dpcount.mechanisms.base import FloatArray

OBJECTIVES = ("max", "mean")
MAX_STEPS = 2048

_SEED = 16  # up to here flat weights are a good enough start
_DEPTH = 8  # of Anderson's acceleration
_ROUNDS = 200  # a dozen are needed from flat weights, and about three from a good start
_EXACT = 1 << 12  # sums of cosecants are added up to here, and expanded beyond


@dataclass(frozen=True, eq=False)
class Optimal:
    """A factorization that is optimal up to the gap between `error` and `lower_bound`.

    Attributes:
      left, right: L and R, shape (n, n), lower triangular: row i of R x needs inputs up to i only,
        and release t rows up to t, as privacy and streaming demand. L R = A up to rounding; the
        largest column norm of R is 1.
      error: the largest ("max") or mean ("mean") variance ||L_t||^2 of a release at rho = 1/2.
      lower_bound: no factorization has a smaller error.
    """

    left: FloatArray
    right: FloatArray
    error: float
    lower_bound: float


def optimal_factorization(n: int, objective: str = "max", tolerance: float = 1e-4) -> Optimal:
    """The factorization of n prefix sums whose error is least, up to a certified tolerance.

    Fixed-point iteration on the weights of the lower bound: with U S V^T = P^1/2 A Q^1/2, the
    factors P^-1/2 U S^1/2 and S^1/2 V^T Q^-1/2 have product A, and they attain the bound once
    q = diag(V S V^T) / tr S and likewise p. For "mean", p is 1/n (Denisov et al. 2022, Theorem
    3.2). For "max", p is q reversed: A reflected across its antidiagonal is A, and the bound is
    concave in (p, q), so some best pair has that symmetry.

    Those factors are dense, and no stream could be released with them. But for orthogonal W the
    pair L W, W^T R has the same norms, and one W makes both lower triangular: W^T R is then the
    Cholesky factor of R^T R taken from the last input backwards.

    Args:
      n: the number of steps, from 1 to 2048; time grows as n^3.
      objective: "max": the largest variance of a release, so gamma_2(A)^2. "mean": the mean.
      tolerance: error <= (1 + tolerance) * lower_bound; from 1e-8 to below 1.

    Raises:
      TypeError, ValueError: an argument is outside its range.
      RuntimeError: the tolerance was not reached.
    """
    n = _checked_steps(n)
    if n > MAX_STEPS:
        remedy = "give a smaller n, or use mathias_floor(n), a lower bound for every n"
        raise ValueError(f"n must be at most {MAX_STEPS}, got {n}: {remedy}")
    if objective not in OBJECTIVES:
        raise ValueError(f'objective must be "max" or "mean", got {objective!r}')
    remedy = "give the relative gap to allow, e.g. tolerance=1e-4"
    if isinstance(tolerance, bool) or not isinstance(tolerance, int | float):
        raise TypeError(f"tolerance must be a number, got {tolerance!r}: {remedy}")
    if not 1e-8 <= tolerance < 1:
        raise ValueError(f"tolerance must be from 1e-8 to below 1, got {tolerance!r}: {remedy}")
    sizes = [n]
    while sizes[-1] > _SEED:
        sizes.append((sizes[-1] + 1) // 2)
    point = _solve(np.zeros(sizes[-1]), objective, tolerance)
    coarse = fine = point.log_weights
    for size in reversed(sizes[:-1]):
        # Weights change slowly and evenly from one doubling to the next: extrapolate the change.
        start = 2 * _stretch(fine, size) - _stretch(coarse, size)
        point = _solve(start, objective, tolerance)
        coarse, fine = fine, point.log_weights
    return _factorize(point, objective)


class _Point(NamedTuple):
    """Weights q, and the dual value there from P^1/2 A Q^1/2 = U S V^T."""

    log_weights: FloatArray  # log q, shape (n,), where q sums to 1
    singular: FloatArray  # S, shape (n,)
    vectors: FloatArray  # V, shape (n, n)
    log_ratio: FloatArray  # log(diag(V S V^T) / (q tr S)), shape (n,); 0 at the optimum


def _point(log_weights: FloatArray, objective: str) -> _Point:
    log_weights = log_weights - log_weights.max()
    log_weights = log_weights - math.log(np.exp(log_weights).sum())
    n, root = len(log_weights), np.exp(log_weights / 2)
    p = root[::-1] ** 2 if objective == "max" else np.full(n, 1 / n)
    tail = np.cumsum(p[::-1])[::-1]
    # The Gram matrix: A^T P A at (i, j) is the weight of the releases that both inputs are in.
    i = np.arange(n)
    squares, V = np.linalg.eigh(root[:, None] * tail[np.maximum(i[:, None], i)] * root)
    S = np.sqrt(np.maximum(squares, 0.0))
    return _Point(log_weights, S, V, np.log(V**2 @ S / S.sum()) - log_weights)


def _solve(log_weights: FloatArray, objective: str, tolerance: float) -> _Point:
    """The fixed point, from the given log weights, shape (n,)."""
    # Of the factors at q, R has column norms tr S * ratio (squared), and so has L rows for "max".
    power = 2 if objective == "max" else 1
    target = math.log1p(tolerance) / power
    xs: list[FloatArray] = []
    fs: list[FloatArray] = []
    for _ in range(_ROUNDS):
        point = _point(log_weights, objective)
        if point.log_ratio.max() <= target:
            return point
        xs, fs = [*xs[-_DEPTH:], point.log_weights], [*fs[-_DEPTH:], point.log_ratio]
        log_weights = _next_weights(xs, fs)
    raise RuntimeError(
        f"no factorization within {tolerance:g} of the bound after {_ROUNDS} iterations at "
        f"n = {len(log_weights)}: give a larger tolerance"
    )


def _next_weights(xs: list[FloatArray], fs: list[FloatArray]) -> FloatArray:
    """Anderson's extrapolation of the iteration x <- x + 2 f from its last points.

    At the optimum the Jacobian of f has its spectrum within (-1, 0], mostly near 0, and diag(q)
    makes it symmetric (both measured at n = 64 and 256): hence 2 f where plain iteration adds f,
    and the norm of the least squares.
    """
    x, f = xs[-1], fs[-1]
    if len(xs) == 1:
        return x + 2 * f
    dX, dF = np.diff(np.array(xs), axis=0).T, np.diff(np.array(fs), axis=0).T
    norm = np.exp(x / 2)
    mix = np.linalg.lstsq(norm[:, None] * dF, norm * f, rcond=None)[0]
    step: FloatArray = x + 2 * f - (dX + 2 * dF) @ mix
    return step


def _stretch(log_weights: FloatArray, n: int) -> FloatArray:
    """Log weights of another size at n steps, up to a constant: the same at the same log odds."""
    return np.interp(_log_odds(n), _log_odds(len(log_weights)), log_weights)


def _log_odds(n: int) -> FloatArray:
    """The log odds of the n steps' positions within the stream, scaled to end at -1 and 1."""
    k = np.arange(n) + 0.5
    odds: FloatArray = np.log(k / (n - k)) / math.log(2 * n - 1)
    return odds


def _factorize(point: _Point, objective: str) -> Optimal:
    """The lower-triangular pair at the given weights, with its error and bound."""
    root, S, V = np.exp(point.log_weights / 2), point.singular, point.vectors
    gram = (V * S) @ V.T / (root[:, None] * root)
    gram /= gram.diagonal().max()
    # A Cholesky factor of R^T R from the last input on, which makes R lower triangular.
    right = np.ascontiguousarray(np.linalg.cholesky(gram[::-1, ::-1])[::-1, ::-1].T)
    left = np.ascontiguousarray(np.linalg.solve(right.T, np.tri(len(S)).T).T, np.float64)
    rows, columns = (left**2).sum(axis=1), (right**2).sum(axis=0)
    variance = float(rows.max() if objective == "max" else rows.mean())
    return Optimal(left, right, variance * float(columns.max()), float(S.sum()) ** 2)


def mathias_floor(n: int) -> float:
    """A lower bound for the largest variance of any factorization of n prefix sums at rho = 1/2.

    ((1 + 1/n) G / 2)^2, where G is the mean of csc((2j - 1) pi / (2n)) over j = 1 .. n (Mathias
    1993, "The Hadamard operator norm of a circulant and applications", Corollary 3.5; also
    gamma_2(A) <= (1 + G) / 2). Why: N = 2A - J, with J all ones, is skew-circulant, and those
    cosecants are its singular values. Its orthogonal polar factor W is skew-circulant too; the
    constants w_k = w_(n-1-k) on its diagonals k = 0 .. n - 1 below the main one have the sum
    <N, W> / n = G. Hence (n + 1) G / 2 = sum_k (n - k) w_k = <A, W> <= ||A||_tr <= n gamma_2(A).

    Constant time: beyond 2^12 steps G is its Euler-Maclaurin expansion, exact to rounding.
    """
    n = _checked_steps(n)
    if n <= _EXACT:
        mean = float((1 / np.sin(np.arange(1, 2 * n, 2) * (math.pi / (2 * n)))).mean())
    else:
        mean = (2 / math.pi) * (math.log(8 * n / math.pi) + np.euler_gamma)
        mean += math.pi / (72 * n * n)
    return ((1 + 1 / n) * mean / 2) ** 2


def _checked_steps(n: Any) -> int:
    remedy = "give the number of steps, e.g. n=256"
    try:
        value = operator.index(n)
    except TypeError:
        raise TypeError(f"n must be a whole number, got {n!r}: {remedy}") from None
    if isinstance(n, bool) or value < 1:
        raise ValueError(f"n must be a whole number from 1, got {n!r}: {remedy}")
    return value

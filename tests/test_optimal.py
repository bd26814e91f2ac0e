"""The optimal factorization, against bounds and optimisers that know nothing of how it is found.

Errors are in units of the noise variance at rho = 1/2: of L R = A, the variance of release t is
||L_t||^2 times the largest squared column norm of R.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import pytest
from scipy.optimize import minimize

from benchmarks.papers import optimal
from benchmarks.papers.optimal import mathias_floor, optimal_factorization

SIZES = [1, 2, 3, 4, 5, 7, 16, 17, 33, 64, 128]
TOLERANCE = 1e-4  # the default

sizes = pytest.mark.parametrize("n", SIZES)
objectives = pytest.mark.parametrize("objective", ["max", "mean"])

solve = lru_cache(maxsize=None)(optimal_factorization)


def error_of(L, R, objective):
    rows = np.linalg.norm(L, axis=1) ** 2
    largest = (np.linalg.norm(R, axis=0) ** 2).max()
    return {"max": rows.max(), "mean": rows.mean()}[objective] * largest


def cosecants(n):
    """The mean of csc((2j - 1) pi / (2n)), summed; csc(pi - x) = csc(x), more exactly."""
    j = np.arange(1, n // 2 + 1)
    middle = n % 2  # csc(pi / 2) = 1
    return (2 * (1 / np.sin((2 * j - 1) * math.pi / (2 * n))).sum() + middle) / n


def square_roots(n):
    """Toeplitz(f) twice; R with columns scaled to norm 1, and its L; f itself."""
    j = np.arange(1, n)
    f = np.concatenate([[1.0], np.cumprod((2 * j - 1) / (2 * j))])
    i = np.arange(n)
    C = np.where(i[:, None] >= i, f[i[:, None] - i], 0.0)
    norms = np.linalg.norm(C, axis=0)
    return (C, C), (np.tri(n) * norms @ np.linalg.inv(C), C / norms), f


# What is returned


@pytest.mark.slow
@sizes
@objectives
def test_the_factors_and_their_error(n, objective):
    """L R = A, both lower triangular; the error is theirs, and within tolerance of the bound."""
    found = solve(n, objective)
    L, R = found.left, found.right
    assert L.shape == R.shape == (n, n)
    assert L.dtype == R.dtype == np.float64
    np.testing.assert_allclose(L @ R, np.tri(n), atol=1e-9)
    assert np.array_equal(L, np.tril(L))
    assert np.array_equal(R, np.tril(R))
    assert np.linalg.norm(R, axis=0).max() == pytest.approx(1, abs=1e-9)
    assert found.error == pytest.approx(error_of(L, R, objective), rel=1e-12)
    assert found.lower_bound * (1 - 1e-9) <= found.error
    assert found.error <= found.lower_bound * (1 + TOLERANCE + 1e-9)


@objectives
@pytest.mark.parametrize("tolerance", [0.5, 1e-2, 1e-6, 1e-8])
def test_the_tolerance_is_kept(objective, tolerance):
    found, best = solve(40, objective, tolerance), solve(40, objective, 1e-8)
    assert found.error <= found.lower_bound * (1 + tolerance + 1e-10)
    assert found.lower_bound <= best.error
    assert best.lower_bound <= found.error


@pytest.mark.exhaustive
@objectives
def test_few_decompositions_at_full_size(monkeypatch, objective):
    """Smaller sizes give the start: from flat weights it would take a dozen or more."""
    decomposed = []
    eigh = np.linalg.eigh
    monkeypatch.setattr(np.linalg, "eigh", lambda M: decomposed.append(len(M)) or eigh(M))
    optimal_factorization(256, objective)
    assert 1 <= decomposed.count(256) <= 6


@sizes
def test_for_max_the_factors_are_reflections_of_each_other(n):
    """A is symmetric about its antidiagonal, and so is the solution, up to scale."""
    found = solve(n, "max")
    mirrored = found.right[::-1, ::-1].T
    scale = np.linalg.norm(found.left) / np.linalg.norm(mirrored)
    np.testing.assert_allclose(found.left, scale * mirrored, atol=1e-9)


def test_solutions_by_hand():
    """n = 1: A = 1. n = 2: ||M||_tr^2 = ||M||_F^2 + 2 |det M|, with q = (a, 1 - a).

    "max": p = (1 - a, a) gives 4a - 3a^2, largest at 2/3. "mean": (1 + a)/2 + (a(1 - a))^1/2.
    """
    for objective in ("max", "mean"):
        one = solve(1, objective)
        assert one.error == pytest.approx(1)
        assert one.lower_bound == pytest.approx(1)
    assert solve(2, "max", 1e-8).error == pytest.approx(4 / 3, rel=2e-8)
    assert solve(2, "mean", 1e-8).error == pytest.approx((3 + math.sqrt(5)) / 4, rel=2e-8)


# Optimality


@objectives
@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_a_generic_optimiser_finds_the_same(n, objective):
    """SLSQP over lower-triangular R with unit columns; rows of L below u, and u least, for max."""
    low = np.tril_indices(n)

    def rows(x):
        R = np.zeros((n, n))
        R[low] = x
        R /= np.linalg.norm(R, axis=0)
        return (np.linalg.solve(R.T, np.tri(n).T) ** 2).sum(axis=0)

    rng = np.random.default_rng(n)
    best = math.inf
    for _ in range(5):
        x = (np.tri(n) * 0.3 + 0.7 * np.eye(n))[low] + rng.normal(0, 0.05, len(low[0]))
        if objective == "mean":
            result = minimize(lambda x: rows(x).mean(), x, method="SLSQP", tol=1e-12)
            best = min(best, rows(result.x).mean())
        else:
            result = minimize(
                lambda v: v[-1],
                [*x, rows(x).max()],
                method="SLSQP",
                constraints={"type": "ineq", "fun": lambda v: v[-1] - rows(v[:-1])},
                options={"maxiter": 500, "ftol": 1e-12},
            )
            best = min(best, rows(result.x[:-1]).max())
    found = solve(n, objective, 1e-8)
    assert best == pytest.approx(found.error, rel=1e-5)
    assert best >= found.lower_bound * (1 - 1e-9)


@objectives
@pytest.mark.parametrize("n", [2, 5, 16, 33])
def test_no_perturbation_beats_the_bound(n, objective):
    """Neither of the solution nor of the square root, and some come near: the bound is tight."""
    rng = np.random.default_rng(n)
    found = solve(n, objective, 1e-8)
    errors = []
    for R in (found.right, square_roots(n)[0][1]):
        for size in (1e-4, 1e-3, 1e-2, 0.1, 0.5):
            for _ in range(20):
                other = R @ (np.eye(n) + rng.normal(0, size / n, (n, n)))
                L = np.linalg.solve(other.T, np.tri(n).T).T
                np.testing.assert_allclose(L @ other, np.tri(n), atol=1e-7)
                errors.append(error_of(L, other, objective))
    assert min(errors) >= found.lower_bound * (1 - 1e-9)
    assert min(errors) <= found.lower_bound * 1.001


@objectives
@pytest.mark.parametrize("n", [1, 2, 3, 16, 33])
def test_weak_duality(n, objective):
    """For any weights the squared trace norm, by SVD, is below the error."""
    rng = np.random.default_rng(n)
    found = solve(n, objective, 1e-8)
    for alpha in (0.1, 1, 10, 1000):
        for _ in range(10):
            q = rng.dirichlet(np.full(n, alpha))
            p = rng.dirichlet(np.full(n, alpha)) if objective == "max" else np.full(n, 1 / n)
            weighted = np.sqrt(p)[:, None] * np.tri(n) * np.sqrt(q)
            assert np.linalg.norm(weighted, "nuc") ** 2 <= found.error * (1 + 1e-12)


@sizes
@objectives
def test_square_roots_are_no_better(n, objective):
    plain, normalized, f = square_roots(n)
    found = solve(n, objective)
    for L, R in (plain, normalized):
        np.testing.assert_allclose(L @ R, np.tri(n), atol=1e-9)
        assert found.lower_bound <= error_of(L, R, objective) * (1 + 1e-12)
        assert found.error <= error_of(L, R, objective) * (1 + TOLERANCE)
    assert error_of(*plain, "max") == pytest.approx((f**2).sum() ** 2)
    if n > 1:
        assert found.error < 0.99 * error_of(*plain, objective)


@pytest.mark.parametrize("n", [n for n in SIZES if n > 1])
def test_each_objective_is_best_at_its_own(n):
    largest, mean = solve(n, "max"), solve(n, "mean")
    assert mean.error < error_of(largest.left, largest.right, "mean")
    assert largest.error < error_of(mean.left, mean.right, "max")
    assert mean.error < largest.error


# Mathias's bound


@pytest.mark.exhaustive
def test_the_floor_is_below_the_optimum_and_mathias_ceiling_above():
    for n in [*range(2, 34), 64, 128, 256]:
        found = solve(n, "max")
        # ||A||_tr / n, with the singular values of A in closed form: flat weights.
        flat = (1 / np.sin((2 * np.arange(1, n + 1) - 1) * math.pi / (4 * n + 2))).sum() / (2 * n)
        assert mathias_floor(n) <= flat**2 * (1 + 1e-12)
        assert mathias_floor(n) <= found.lower_bound
        assert flat**2 <= found.lower_bound * (1 + TOLERANCE)
        assert found.lower_bound <= ((1 + cosecants(n)) / 2) ** 2


def test_the_floor_at_known_sizes():
    assert mathias_floor(1) == pytest.approx(1)
    assert mathias_floor(2) == pytest.approx(9 / 8)  # G = 2^1/2
    assert mathias_floor(2**10) == pytest.approx(7.237, abs=5e-4)
    assert mathias_floor(2**20) == pytest.approx(23.951, abs=5e-4)


@pytest.mark.parametrize("n", [3, 1000, 4095, 4096, 4097, 5000, 2**16 + 1, 2**20])
def test_the_floor_is_the_sum(n):
    """On both sides of 2^12, where it goes over to an expansion."""
    assert mathias_floor(n) == pytest.approx(((1 + 1 / n) * cosecants(n) / 2) ** 2, rel=1e-13)


def test_the_floor_at_the_largest_horizons():
    """It grows as (ln n / pi)^2: each doubling adds ln 2 / pi to its root."""
    roots = [math.sqrt(mathias_floor(2**k)) for k in range(24, 49)]
    np.testing.assert_allclose(np.diff(roots), math.log(2) / math.pi, rtol=1e-5)


# Errors


@pytest.mark.parametrize("function", [optimal_factorization, mathias_floor])
@pytest.mark.parametrize(
    ("n", "error"),
    [(0, ValueError), (-3, ValueError), (True, ValueError)]
    + [(n, TypeError) for n in (2.0, "4", None, [3])],
)
def test_bad_numbers_of_steps(function, n, error):
    with pytest.raises(error, match=r"n must be a whole number.*e\.g\. n=256"):
        function(n)


def test_too_many_steps():
    with pytest.raises(ValueError, match=r"at most 2048, got 2049.*mathias_floor"):
        optimal_factorization(2049)


@pytest.mark.parametrize("objective", ["MAX", "median", "", None, 1])
def test_bad_objectives(objective):
    with pytest.raises(ValueError, match='"max" or "mean", got'):
        optimal_factorization(4, objective)


@pytest.mark.parametrize(
    ("tolerance", "error"),
    [(value, ValueError) for value in (0, -1e-4, 1e-9, 1, 2.0, math.nan, math.inf)]
    + [(value, TypeError) for value in ("1e-4", None, True)],
)
def test_bad_tolerances(tolerance, error):
    with pytest.raises(error, match=r"tolerance must be .*tolerance=1e-4"):
        optimal_factorization(4, tolerance=tolerance)


def test_a_missed_tolerance_is_an_error(monkeypatch):
    monkeypatch.setattr(optimal, "_ROUNDS", 2)
    with pytest.raises(RuntimeError, match="give a larger tolerance"):
        optimal_factorization(16)


def test_numpy_integers_are_numbers():
    assert optimal_factorization(np.int64(3)).error == solve(3, "max").error
    assert mathias_floor(np.int32(3)) == mathias_floor(3)

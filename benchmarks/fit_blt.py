"""Fit buffered linear Toeplitz (BLT) parameters and write the JSON that the mechanisms load.

    python -m benchmarks.fit_blt --horizons 4:30 --buffers 2:8 --output FILE

With l(z) = 1 + sum w_i z/(1 - th_i z), L = Toeplitz(l) and R = L^-1 A. Two objectives, both at
rho = 1/2 (noise variance = squared sensitivity):
  blt             MaxSE = |r|^2 |l|^2, the last step being the worst;
  normalized_blt  MaxSE = max_t sum_s (A D R^-1)[t, s]^2 with D_t^2 = sum_{j <= T-t} r_j^2.

Everything is written in e_i = 1 - th_i and a_i = 1 - la_i (la = poles of 1/l), interlaced as
e_1 < a_1 < e_2 < ... < a_d <= 1. Then w_i > 0 and r_j = c_0 + sum c_i la_i^j has c_i > 0, so that
sums of squares are sums of positive terms: the textbook closed form's cancellation cannot occur.

The normalized release is n_t = D_t b_t + E_t, E_t = sum_{k<t} delta_k b_k, where b = L y and
delta_k = D_k - D_{k+1} >= 0. Every coefficient is positive again, and Var n_t follows from
    q_i(t+1) = th_i q_i(t) + delta_t (1 + th_i (C_t w)_i)        q_i = Cov(E_t, m_i)
    V(t+1) = V(t) + 2 delta_t w.q(t) + delta_t^2 B_t             V = Var E_t
with closed forms for C_t = Cov(m), B_t = Var b_t and delta_t. `profile` solves the two difference
equations by Radau collocation on chunks that grow geometrically away from both ends (the terms are
smooth on that scale), so a horizon of 2^30 costs milliseconds; `recurrence` walks every step.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from numpy.polynomial import legendre
from numpy.typing import NDArray
from scipy.optimize import minimize

Array = NDArray[np.float64]
Loss = Callable[[Array], Array]  # a batch (P, 2d) of free parameters -> P log losses

EXACT = 22  # up to 2^EXACT steps the stored normalized MaxSE comes from the full recurrence
STEP = 1e-5  # of the central differences
LOWEST, HIGHEST = -6.0, 2.3  # bounds on the log of a log-gap: poles neither merge nor underflow


def square_root_max_se(T: int) -> float:
    """MaxSE of the square-root factorization, the optimum over Toeplitz factorizations."""
    if T <= 1 << 16:
        j = np.arange(1, T)
        half = 1.0 + float(np.sum(np.cumprod((2 * j - 1) / (2 * j)) ** 2))
    else:  # Landau's constants; the next term is below 1e-19 here
        n = T - 0.25
        half = (math.log(n) + np.euler_gamma + math.log(16) + 11 / (192 * n * n)) / math.pi
    return float(half * half)


# --- parameters ---------------------------------------------------------------------------------


def gaps(y: Array) -> tuple[Array, Array]:
    """Free parameters -> (e, a), both from the fastest pole to the slowest."""
    s = -np.cumsum(np.exp(y), axis=-1)
    return np.exp(s[..., 1::2]), np.exp(s[..., 0::2])


def residues(poles: Array, zeros: Array) -> Array:
    """Residues of prod(x - zeros)/prod(x - poles); all arguments are distances from 1."""
    difference = poles[..., None, :] - poles[..., :, None]
    np.einsum("...ii->...i", difference)[...] = 1.0
    return np.asarray(
        np.prod(zeros[..., None, :] - poles[..., :, None], axis=-1) / np.prod(difference, axis=-1)
    )


def encoder(e: Array, a: Array) -> tuple[Array, Array]:
    """c_0 and c of r_j = c_0 + sum c_i la_i^j."""
    return np.prod(e / a, axis=-1), -residues(a, e) / a


def pair_kernel(x: Array) -> Array:
    """1/(1 - p_i p_j) for poles p = 1 - x."""
    left, right = x[..., :, None], x[..., None, :]
    return np.asarray(1.0 / (left + right - left * right))


def geometric(x: Array, n: float) -> Array:
    """sum_{k<n} (p_i p_j)^k."""
    rate = np.log1p(-x)
    return np.asarray(-np.expm1(n * (rate[..., :, None] + rate[..., None, :]))) * pair_kernel(x)


# --- losses -------------------------------------------------------------------------------------


def blt_max_se(e: Array, a: Array, T: int) -> Array:
    w = residues(e, a)
    c0, c = encoder(e, a)
    decoder = 1.0 + np.einsum("...i,...ij,...j", w, geometric(e, T - 1.0), w)
    single = -np.expm1(T * np.log1p(-a)) / a
    columns = c0 * c0 * T + 2 * c0 * np.sum(c * single, axis=-1)
    columns = columns + np.einsum("...i,...ij,...j", c, geometric(a, float(T)), c)
    return np.asarray(decoder * columns)


@dataclass(frozen=True)
class Grid:
    """Single steps at both ends of 1..T and chunks of n collocation nodes in between."""

    T: int
    head: int  # single steps 1..head
    tail: int  # single steps tail..T
    times: Array  # head steps, chunk nodes, tail steps
    eigen: NDArray[np.complex128]  # (chunks, n): of the forward difference on a chunk's nodes
    right: NDArray[np.complex128]  # (chunks, n, n)
    left: NDArray[np.complex128]
    start: Array  # (chunks, n): weight of the chunk's first value in the forward difference
    total: Array  # (chunks, n, n): inverse of the forward difference


@lru_cache(maxsize=4)
def grid(T: int, n: int, ratio: float, ends: int = 16) -> Grid:
    # Radau nodes contain the right end: stiff (fast) poles are damped, not reflected
    roots = np.sort(np.real(legendre.legroots([0.0] * (n - 1) + [-1.0, 1.0])))
    unit = np.concatenate(([0.0], (roots + 1) / 2))
    unit[-1] = 1.0
    gap = unit[:, None] - unit[None, :]
    np.fill_diagonal(gap, 1.0)
    weight = np.prod(gap, axis=1)
    derivative = weight[:, None] / weight[None, :] / gap
    np.fill_diagonal(derivative, 0.0)
    np.fill_diagonal(derivative, -derivative.sum(axis=1))
    bounds = [min(ends, T) + 1]
    while bounds[-1] < T - ends:
        t = bounds[-1]
        near = min(t, (T - t) / (1 + ratio))
        bounds.append(min(t + max(2, int(ratio * near)), T))
    if len(bounds) > 1 and bounds[-1] >= T:
        bounds.pop()
    times: list[Array] = [np.arange(1.0, bounds[0])]
    matrices, starts = [], []
    for low, high in pairwise(bounds):
        span = high - 1 - low  # nodes fill [low, high - 1]
        times.append(low + span * unit[1:])
        # the forward difference as a Taylor series: exact on polynomials, no cancellation
        power, difference = np.eye(n + 1), np.zeros((n + 1, n + 1))
        for k in range(1, n + 1):
            power = power @ derivative / (span * k)
            difference += power
        matrices.append(difference[1:, 1:])
        starts.append(difference[1:, 0])
    times.append(np.arange(float(bounds[-1]), T + 1))
    stack = np.array(matrices).reshape(-1, n, n)
    eigen, right = np.linalg.eig(stack)
    return Grid(
        T, bounds[0] - 1, bounds[-1], np.concatenate(times), np.asarray(eigen, dtype=complex),
        np.asarray(right, dtype=complex), np.asarray(np.linalg.inv(right), dtype=complex),
        np.array(starts).reshape(-1, n), np.asarray(np.linalg.inv(stack), dtype=float),
    )  # fmt: skip


def driving(e: Array, a: Array, T: int, t: Array) -> tuple[Array, Array, Array, Array]:
    """D_t, delta_t, B_t and the drive 1 + th_i (C_t w)_i of q_i at (real) times t; batch first."""
    w = residues(e, a)
    c0, c = encoder(e, a)
    kernel = pair_kernel(e)
    u = np.exp((t[:, None] - 1) * np.log1p(-e)[:, None, :])
    Cw = (kernel @ w[..., None])[:, None, :, 0] - u * ((u * w[:, None, :]) @ kernel)
    B = 1.0 + (Cw @ w[..., None])[..., 0]
    past = np.exp((T - t)[:, None] * np.log1p(-a)[:, None, :]) * c[:, None, :]
    r = c0[:, None] + past.sum(axis=-1)
    past = past * (1 - a)[:, None, :]
    kernel = pair_kernel(a)
    squared = c0[:, None] ** 2 * (T - t + 1)
    squared += 2 * c0[:, None] * np.sum((c[:, None, :] - past) / a[:, None, :], axis=-1)
    squared += np.einsum("pi,pij,pj->p", c, kernel, c)[:, None]
    squared -= np.sum((past @ kernel) * past, axis=-1)
    D = np.sqrt(squared)
    delta = r * r / (D + np.sqrt(np.maximum(squared - r * r, 0.0)))
    return D, delta, B, 1.0 + (1 - e)[:, None, :] * Cw


def profile(e: Array, a: Array, g: Grid) -> Array:
    """Var n_t at g.times for a batch (P, d) of parameters."""
    P, d = e.shape
    w, th = residues(e, a), 1.0 - e
    D, delta, B, drive = driving(e, a, g.T, g.times)
    f = delta[..., None] * drive
    C, n = g.start.shape
    middle = slice(g.head, g.head + C * n)
    q = np.empty_like(f)
    now = np.zeros((P, d))
    for k in range(g.head):
        q[:, k] = now
        now = th * now + f[:, k]
    if C:
        fc = f[:, middle].reshape(P, C, n, d)
        damp = 1.0 / (g.eigen[None, :, :, None] + e[:, None, None, :])
        forced = (g.right @ (damp * (g.left @ fc))).real
        free = (g.right @ (damp * (g.left @ g.start[..., None]))).real
        qc = q[:, middle].reshape(P, C, n, d)
        for k in range(C):
            qc[:, k] = forced[:, k] - free[:, k] * now[:, None, :]
            now = th * qc[:, k, -1] + fc[:, k, -1]
        q[:, middle] = qc.reshape(P, C * n, d)
    for k in range(g.head + C * n, len(g.times)):
        q[:, k] = now
        now = th * now + f[:, k]
    wq = (q @ w[..., None])[..., 0]
    gain = 2 * delta * wq + delta * delta * B
    V = np.empty_like(gain)
    V[:, : g.head] = np.cumsum(gain[:, : g.head], axis=1) - gain[:, : g.head]
    base = gain[:, : g.head].sum(axis=1)
    if C:
        gc = gain[:, middle].reshape(P, C, n)
        inner = np.einsum("cij,pcj->pci", g.total, gc)
        ends = np.cumsum(inner[..., -1] + gc[..., -1], axis=1)
        begin = base[:, None] + np.concatenate((np.zeros((P, 1)), ends[:, :-1]), axis=1)
        V[:, middle] = (begin[..., None] + inner).reshape(P, C * n)
        base = base + ends[:, -1]
    last = gain[:, g.head + C * n :]
    V[:, g.head + C * n :] = base[:, None] + np.cumsum(last, axis=1) - last
    return np.asarray(D * D * B + 2 * D * wq + V)


def recurrence(e: Array, a: Array, T: int, chunk: int = 1 << 14) -> tuple[float, int]:
    """(MaxSE, its step) of the normalized BLT, visiting every step 1..T."""
    from scipy.signal import lfilter

    w, th = residues(e, a), 1.0 - e
    q, V, best, where = np.zeros(len(e)), 0.0, 0.0, 0
    for low in range(1, T + 1, chunk):
        t = np.arange(low, min(low + chunk, T + 1), dtype=float)
        D, delta, B, drive = (x[0] for x in driving(e[None], a[None], T, t))
        before = np.empty_like(drive)
        for i in range(len(e)):
            out, _ = lfilter([1.0], [1.0, -th[i]], delta * drive[:, i], zi=[th[i] * q[i]])
            before[:, i] = np.concatenate(([q[i]], out[:-1]))
            q[i] = out[-1]
        wq = before @ w
        gain = 2 * delta * wq + delta * delta * B
        sums = V + np.cumsum(gain)
        variance = D * D * B + 2 * D * wq + np.concatenate(([V], sums[:-1]))
        V = float(sums[-1])
        k = int(np.argmax(variance))
        if variance[k] > best:
            best, where = float(variance[k]), int(t[k])
    return best, where


def normalized_max_se(e: Array, a: Array, T: int) -> float:
    """The true MaxSE: every step visited up to 2^EXACT. Beyond, a fine grid (near the flat maximum
    its nodes lie about T/500 apart, and a parabola through the best three mends the rest); checked
    against a plain covariance recursion at 2^23 and 2^26. An estimate, not a bound."""
    if T <= 1 << EXACT:
        return recurrence(e, a, T)[0]
    g = grid(T, 12, 0.05, ends=320)  # long chunks only: nodes closer than 1 are ill-conditioned
    values = profile(e[None], a[None], g)[0]
    k = int(np.argmax(values))
    if not 0 < k < len(values) - 1:
        return float(values[k])
    x, y = g.times[k - 1 : k + 2] - g.times[k], values[k - 1 : k + 2] - values[k]
    (slope2, slope1) = np.linalg.solve(np.stack((x[[0, 2]] ** 2, x[[0, 2]]), axis=1), y[[0, 2]])
    return float(values[k] - (slope1**2 / (4 * slope2) if slope2 < 0 else 0.0))


# --- fitting ------------------------------------------------------------------------------------


def too_slow(y: Array, T: int) -> Array:
    """Penalty on a pole slower than 1/(100 T): it gains nothing, and th near 1 loses digits."""
    return np.asarray(np.maximum(np.exp(y).sum(axis=-1) - math.log(100 * T), 0.0) ** 2)


def blt_loss(T: int) -> Loss:
    return lambda y: np.log(blt_max_se(*gaps(y), T)) + too_slow(y, T)


def normalized_loss(T: int, sharpness: float) -> Loss:
    """A smooth maximum: the p-norm over the grid's steps."""
    g = grid(T, 8, 0.5)

    def loss(y: Array) -> Array:
        logs = np.log(profile(*gaps(y), g))
        top = logs.max(axis=1, keepdims=True)
        soft = np.log(np.mean(np.exp(sharpness * (logs - top)), axis=1)) / sharpness
        return np.asarray(top[:, 0] + soft + too_slow(y, T))

    return loss


def descend(loss: Loss, y: Array, iterations: int) -> tuple[float, Array]:
    d2 = len(y)
    offsets = np.concatenate((np.zeros((1, d2)), STEP * np.eye(d2), -STEP * np.eye(d2)))

    def value_and_gradient(x: Array) -> tuple[float, Array]:
        values = loss(x + offsets)  # one batch: value and central differences
        return float(values[0]), (values[1 : d2 + 1] - values[d2 + 1 :]) / (2 * STEP)

    bounds = [(LOWEST, HIGHEST)] * d2
    options = {"maxiter": iterations, "maxcor": 40, "ftol": 1e-13, "gtol": 1e-8}
    y = np.clip(y, LOWEST, HIGHEST)
    found = minimize(
        value_and_gradient, y, jac=True, method="L-BFGS-B", bounds=bounds, options=options
    )
    return float(found.fun), np.asarray(found.x)


def spread(T: int, d: int) -> Array:
    """Poles evenly spaced in log(1 - p), down to 1/T."""
    return np.concatenate(([-1.0], np.full(2 * d - 1, math.log(math.log(2 * T) / (2 * d - 1)))))


def stretched(y: Array, T: int) -> Array:
    """A start from the fit of T/2."""
    return y + math.log(math.log(T) / math.log(T / 2))


def split(y: Array) -> Array:
    """A start from the fit with one buffer fewer: resample the ladder of poles."""
    steps = np.exp(y)
    ladder = np.cumsum(steps)
    old, new = np.linspace(0, 1, len(ladder)), np.linspace(0, 1, len(ladder) + 2)
    return np.asarray(np.log(np.maximum(np.diff(np.interp(new, old, ladder), prepend=0.0), 1e-3)))


def entry(y: Array, T: int, normalized: bool) -> dict[str, Any]:
    """The stored record. Distances from 1 keep the digits that poles near 1 would lose."""
    e, a = gaps(y)
    max_se = normalized_max_se(e, a, T) if normalized else float(blt_max_se(e, a, T))
    floor = square_root_max_se(T)
    assert normalized or max_se >= floor * (1 - 1e-11), (T, len(e), max_se, floor)
    return {"zeros": e.tolist(), "poles": a.tolist(), "max_se": max_se}


def fit(T: int, starts: list[Array], normalized: bool) -> Array:
    if not normalized:
        return min((descend(blt_loss(T), y, 2000) for y in starts), key=lambda pair: pair[0])[1]
    coarse, g = normalized_loss(T, 50.0), grid(T, 8, 0.5)
    ranked = sorted(starts, key=lambda start: float(coarse(start[None])[0]))
    tried = [descend(coarse, y, 150)[1] for y in ranked[:2]]

    def worst(y: Array) -> float:
        return float(profile(*gaps(y[None]), g).max())

    # The true maximum has kinks where two steps tie; sharpen towards it, keep the best seen
    for sharpness, iterations in ((1000.0, 150), (20000.0, 60)):
        loss = normalized_loss(T, sharpness)
        tried.append(descend(loss, min(tried, key=worst), iterations)[1])
    return min([*tried, *starts], key=worst)


HEADER = (
    "Fitted by benchmarks/fit_blt.py. objective -> log2 horizon -> buffers -> zeros 1 - theta and "
    "poles 1 - lambda of the decoder's generating function (decreasing) and max_se at rho = 1/2 "
    f"for that horizon. max_se of normalized_blt: every step visited up to 2^{EXACT}, collocation "
    "beyond; of blt: positive geometric sums."
)


def write(path: Path, table: dict[str, dict[int, dict[int, dict[str, Any]]]]) -> None:
    ordered = {
        name: {str(h): {str(d): rows[d] for d in sorted(rows)} for h, rows in sorted(fits.items())}
        for name, fits in sorted(table.items())
    }
    text = json.dumps({"header": HEADER, **ordered}, separators=(",", ":"))
    scratch = path.with_suffix(".tmp")
    scratch.write_text(text + "\n")
    scratch.replace(path)  # a reader always finds a whole file


def span(text: str) -> range:
    low, _, high = text.partition(":")
    return range(int(low), int(high or low) + 1)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--horizons", type=span, default=span("4:30"), help="log2, low:high")
    parser.add_argument("--buffers", type=span, default=span("2:8"), help="low:high")
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args(argv)
    table: dict[str, dict[int, dict[int, dict[str, Any]]]] = {"blt": {}, "normalized_blt": {}}
    best: dict[tuple[bool, int, int], Array] = {}
    for h in options.horizons:
        T = 1 << h
        for d in options.buffers:
            for normalized, name in enumerate(table):
                began = time.perf_counter()
                starts = [spread(T, d)]
                if (bool(normalized), h - 1, d) in best:
                    starts.append(stretched(best[bool(normalized), h - 1, d], T))
                if (bool(normalized), h, d - 1) in best:
                    starts.append(split(best[bool(normalized), h, d - 1]))
                if normalized:
                    starts.append(best[False, h, d])
                y = best[bool(normalized), h, d] = fit(T, starts, bool(normalized))
                row = table[name].setdefault(h, {})[d] = entry(y, T, bool(normalized))
                ratio = row["max_se"] / square_root_max_se(T)
                seconds = time.perf_counter() - began
                print(f"{name:15} 2^{h:<2} d={d} {row['max_se']:9.5f} ratio {ratio:.5f} "
                      f"{seconds:5.2f}s", flush=True)  # fmt: skip
        write(options.output, table)


if __name__ == "__main__":
    main()

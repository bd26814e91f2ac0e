"""Fit the encoders that fade, of sliding windows and of decayed sums, and write their JSON.

    python -m benchmarks.fit_fading --output FILE

R(z) = prod(1 - (1-e_i) z) / prod(1 - (1-a_i) z) with d poles and d - 1 zeros, none of them at 1.
Sums over W steps have L = (1 - z^W) A / R; sums with decay g have R(g z), and 1 / (1 - g z) in
place of A. At rho = 1/2 the variance of a release rises to the limit |r|^2 |l|^2, both over the
infinite column, which is what is minimised. Windows W are all round(2^(k/2)), decays 1 - 2^(-k/2),
up to 2^20 steps; of each, the fewest buffers within ENOUGH of the best are kept.

As in fit_blt.py all is written in distances from 1, interlaced as 0 < a_d < e_(d-1) < ... < a_1,
so that every sum of squares is one of positive terms.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

Array = NDArray[np.float64]
Limit = Callable[[Array, Array, int], float]

BUFFERS = range(1, 8)
ENOUGH = {"windows": 1.0025, "decays": 1.001}
LARGEST_LOG = 20
LOWEST, HIGHEST = -6.0, 3.0  # bounds on the log of a log-gap: poles neither merge nor underflow
HEADER = (
    "Fitted by benchmarks/fit_fading.py. windows -> W, and decays -> k, for 1 - 2^(-k/2) -> poles "
    "1 - lambda and zeros 1 - theta of the encoder's generating function (decays: of R(z), for "
    "R(g z)), and the limit of the variance at rho = 1/2."
)


def windows() -> list[int]:
    """Half octaves."""
    return sorted({round(2 ** (k / 2)) for k in range(2 * LARGEST_LOG + 1)})


def gaps(y: Array) -> tuple[Array, Array]:
    """Free parameters -> (e, a), both from the fastest pole to the slowest."""
    s = np.exp(-np.cumsum(np.exp(y)))
    return s[1::2], s[0::2]


def residues(poles: Array, zeros: Array) -> Array:
    """Of prod(x - zeros) / prod(x - poles), in distances from 1."""
    between = poles[None, :] - poles[:, None]
    np.fill_diagonal(between, 1.0)
    return np.asarray(np.prod(zeros[None, :] - poles[:, None], axis=1) / np.prod(between, axis=1))


def pairs(x: Array) -> Array:
    """1 - (1-x_i)(1-x_j)."""
    return np.asarray(x[:, None] + x[None, :] - x[:, None] * x[None, :])


def window_limit(e: Array, a: Array, W: int) -> float:
    """|r|^2 |l|^2: l_0 = 1, l_j = sum of w_i (1-e_i)^(j-1) with e_d = 0, less the same W later."""
    c = residues(a, e)
    e = np.append(e, 0.0)
    w, x = residues(e, a), pairs(e)
    logs = np.log1p(-e)
    both = (W - 1) * (logs[:, None] + logs)
    sums = np.where(x > 0, -np.expm1(both) / np.where(x > 0, x, 1.0), W - 1)
    last = 1 - float(w @ np.exp((W - 1) * logs))
    u = (w * -np.expm1(W * logs))[:-1]
    after = float(u @ (1 / x[:-1, :-1]) @ u)
    return float((1 + w @ sums @ w + last**2 + after) * (c @ (1 / pairs(a)) @ c))


def decay_limit(e: Array, a: Array, k: int) -> float:
    """|r|^2 |l|^2: all poles and zeros times g, and e_d = 0 of those of L."""
    g = 1 - 2 ** (-k / 2)
    e, a = 1 - g * (1 - np.append(e, 0.0)), 1 - g * (1 - a)
    c, w = residues(a, e[:-1]), residues(e, a)
    return float((1 + w @ (1 / pairs(e)) @ w) * (c @ (1 / pairs(a)) @ c))


LIMITS = {"windows": window_limit, "decays": decay_limit}


def ladders(steps: float, d: int) -> list[Array]:
    """Starts: poles evenly spaced in log(1 - p), on three scales."""
    spread = np.log(np.log(3 * steps + 1) / (2 * d - 1) * np.array([0.5, 1.0, 2.0]) + 0.05)
    return [np.full(2 * d - 1, start) for start in spread.tolist()]


def fit(limit: Limit, of: int, starts: list[Array]) -> tuple[float, Array]:
    """The least limit from these starts, and its free parameters."""
    bounds = [(LOWEST, HIGHEST)] * len(starts[0])
    found = [
        minimize(
            lambda y: np.log(limit(*gaps(y), of)),
            np.clip(start, LOWEST, HIGHEST),
            method="L-BFGS-B",
            bounds=bounds,
            options={"maxiter": 1000, "maxfun": 100_000, "ftol": 1e-14, "gtol": 1e-9},
        )
        for start in starts
    ]
    best = min(found, key=lambda each: float(each.fun))
    return float(np.exp(best.fun)), np.asarray(best.x)


def fits(kind: str, places: dict[int, float]) -> dict[str, Any]:
    """By window, or by k of a decay, and how many steps that is."""
    made, before, limit = {}, dict[int, Array](), LIMITS[kind]
    for of, steps in places.items():
        rows = {}
        for d in BUFFERS:
            starts = [*ladders(steps, d), *([before[d]] if d in before else [])]
            rows[d], before[d] = fit(limit, of, starts)
        enough = ENOUGH[kind] * min(rows.values())
        d = min(d for d, value in rows.items() if value <= enough)
        e, a = gaps(before[d])
        made[str(of)] = {"poles": a.tolist(), "zeros": e.tolist(), "limit": rows[d]}
        print(f"{kind} {of:8} d={d} {rows[d]:9.5f} best {min(rows.values()):9.5f}", flush=True)
    return made


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args(argv)
    table: dict[str, Any] = {"header": HEADER}
    table["windows"] = fits("windows", {W: float(W) for W in windows()})
    table["decays"] = fits("decays", {k: 2 ** (k / 2) for k in range(1, 2 * LARGEST_LOG + 1)})
    options.output.write_text(json.dumps(table, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()

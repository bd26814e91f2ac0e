"""Fits the weights of rows that ProfiledBLT has, and writes the JSON that it loads.

    python -m benchmarks.fit_profile --horizons 4:30 --output FILE

For each power of two and each objective the least largest, or least mean, variance at rho = 1/2,
over the eight numbers of `profiled_tables.profile`, by Nelder and Mead's method. It starts from the
shape that is shipped, or with `--afresh` from that of a shorter horizon, the first from a bare one.
Takes 1 to 90 seconds for each. Whatever comes out, the mechanism's norms are computed from it.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from beam_dpcount.mechanisms.blt_tables import poles
from beam_dpcount.mechanisms.profiled_tables import KIND, ProfiledTables, Shape, fitted

OBJECTIVES = ("max", "mean")
BARE: Shape = (0.28, 0.0, 0.25, 0.0, 0.0, 0.0, 0.0, 0.0)
_WIDEST = 15.0  # of any of the numbers
_POWER = 200.0  # of the mean that stands for the largest variance, smoothly


def steps(horizon: int) -> NDArray[np.int64]:
    """At which variances are looked at: close together at both ends."""
    ends = np.geomspace(1, horizon, 80).astype(np.int64)
    even = np.linspace(1, horizon, 100).astype(np.int64)
    some = np.concatenate([np.arange(1, 20), ends, horizon + 1 - ends, even])
    return np.unique(np.clip(some, 1, horizon))


def loss(shape: Sequence[float], horizon: int, objective: str) -> float:
    """The logarithm of what is to be small."""
    if max(map(abs, shape)) > _WIDEST:
        return math.inf
    tables = ProfiledTables(poles(KIND, horizon, None), horizon, tuple(shape))
    if objective == "mean":
        return math.log(tables.mean_row_norm2())
    variances = tables.row_norms2(steps(horizon))
    most = float(variances.max())
    return math.log(most) + math.log(float(((variances / most) ** _POWER).mean())) / _POWER


def fit(start: Shape, horizon: int, objective: str, evaluations: int) -> Shape:
    """The best shape that is found, to six digits."""
    found = minimize(
        loss,
        np.array(start),
        args=(horizon, objective),
        method="Nelder-Mead",
        options={"maxfev": evaluations, "adaptive": True, "xatol": 1e-4, "fatol": 1e-7},
    )
    return tuple(round(float(x), 6) for x in found.x)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fit_profile", description=__doc__)
    parser.add_argument("--horizons", default="4:30", help="logarithms, first:last")
    parser.add_argument("--objectives", nargs="+", choices=OBJECTIVES, default=OBJECTIVES)
    parser.add_argument("--evaluations", type=int, default=900, help="at most, of each fit")
    parser.add_argument("--afresh", action="store_true", help="start from a bare shape")
    parser.add_argument("--output", type=Path, help="the JSON file; default: only print")
    options = parser.parse_args(argv)
    first, last = map(int, options.horizons.split(":"))
    made: dict[str, dict[str, Shape]] = {}
    for objective in options.objectives:
        made[objective], start = {}, BARE
        for log in range(first, last + 1):
            horizon = 1 << log
            if not options.afresh:
                start = fitted(objective, horizon)
            start = made[objective][str(log)] = fit(start, horizon, objective, options.evaluations)
            tables = ProfiledTables(poles(KIND, horizon, None), horizon, start)
            largest, mean = tables.max_row_norm2(), tables.mean_row_norm2()
            print(f"2^{log}, {objective}: largest {largest:.4f}, mean {mean:.4f}", flush=True)
            if options.output is not None:
                options.output.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Comparisons of Binned with the square root that it approximates, and with buffered Toeplitz.

They follow Figures 3 and 5 of *Streaming Private Continual Counting via Binning* [AP24]. Errors
are those of the factorizations at rho = 1/2, before the 1e-4 that rounding may add to Delta_2.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import numpy as np

from beam_dpcount.mechanisms import BLT, Binned, Mechanism, NormalizedBLT, SquareRoot
from beam_dpcount.mechanisms.blt_tables import BUFFERS
from beam_dpcount.mechanisms.workload import Workload
from benchmarks.papers import base
from benchmarks.papers.base import FloatArray, Output, Row, Series

_OBJECTIVES = {"max": "largest", "mean": "mean"}
_TOEPLITZ = {
    "max": "No plain BLT reaches r = 1: of all that are Toeplitz the square root is best.",
    "mean": "By mean variance others that are Toeplitz can be better than the square root.",
}
_RATIOS = (1.0, 1.001, 1.01, 1.4)


def errors(mechanism: Mechanism) -> dict[str, float]:
    """Largest and mean variance of a release at rho = 1/2."""
    norms = {"max": mechanism.max_row_norm2(), "mean": mechanism.mean_row_norm2()}
    return {name: mechanism.l2_sensitivity_squared * norm2 for name, norm2 in norms.items()}


def root_errors(root: SquareRoot) -> dict[str, float]:
    """`errors`, but exact: the class rounds its sensitivity up, and here L = R."""
    l2_squared = root.max_row_norm2()
    return {"max": l2_squared**2, "mean": l2_squared * root.mean_row_norm2()}


def grid(horizon: int) -> list[Binned]:
    """Binned over (c, tau), those with the fewest bins first.

    The paper's c = 1 - 1/d and tau = 1/T, with d between whole numbers too; and tau near the square
    root's last entries, 1/sqrt(pi T), which puts the oldest items into one bin.
    """
    near, far = np.linspace(1.3, 3, 35).tolist(), np.linspace(3.25, 8, 20).tolist()
    divisors = [*near, *far, *range(9, 32)]
    tails = (1 / horizon, 1 / math.sqrt(horizon), 1.5 / math.sqrt(horizon))
    members = [Binned(horizon, 1 - 1 / d, tau) for d in divisors for tau in tails]
    return sorted(members, key=lambda member: member.space)


def fewest(horizon: int, members: Iterable[Binned | BLT]) -> Iterator[Row]:
    """For each ratio, the first member whose error is at most that many times the square root's."""
    reference = root_errors(SquareRoot(horizon))
    wanted = [(objective, ratio) for objective in _OBJECTIVES for ratio in _RATIOS]
    for member in members:
        if not wanted:
            return
        own = errors(member)
        for objective, ratio in list(wanted):
            if own[objective] <= ratio * reference[objective]:
                wanted.remove((objective, ratio))
                yield {
                    "objective": objective,
                    "ratio": ratio,
                    "mechanism": member.name,
                    "horizon": horizon,
                    "buffers": member.space if isinstance(member, Binned) else member.buffers,
                    "state_size": member.state_size,
                    "error_ratio": own[objective] / reference[objective],
                    "member": repr(member),
                }


def space_against_horizon(quick: bool) -> list[Row]:
    """Fewest buffers of Binned and BLTs for an error near the square root's, against T."""
    horizons = [1 << log for log in (range(4, 9, 2) if quick else range(4, 11))]
    rows: list[Row] = []
    for horizon in base.progress(horizons, "space-against-horizon"):
        rows += fewest(horizon, grid(horizon))
        for kind in (BLT, NormalizedBLT):
            rows += fewest(horizon, (kind(horizon, d) for d in range(BUFFERS[0], BUFFERS[1] + 1)))
    return rows


def space_against_horizon_pictures(rows: list[Row]) -> list[Output]:
    """Buffers and numbers in a state, for the largest and for the mean variance."""
    footer = "Exact. Least over a grid of (c, tau), and over 2 to 8 exponentials. SquareRoot keeps "
    drawn = (
        ("buffers", "Buffers", "buffers (bins, or exponentials)", "T buffers", ""),
        ("state_size", "State", "numbers in a state", "2T + 1 numbers", "-state"),
    )
    pictures = []
    for objective, word in _OBJECTIVES.items():
        for column, what, ylabel, root, suffix in drawn:
            series = _by_ratio(base.select(rows, objective=objective), column)
            title = f"{what} for a {word} variance of at most r x the square root's"
            texts = (title, "horizon T (steps)", ylabel, f"{footer}{root}. {_TOEPLITZ[objective]}")
            ending = f"-{objective}{suffix}"
            pictures.append(base.picture(series, *texts, ending, logx=True, base=2))
    return pictures


def _by_ratio(rows: list[Row], column: str) -> Series:
    """A line for each mechanism and ratio; ratios with the same line share it."""
    series = {}
    for mechanism in base.distinct(rows, "mechanism"):
        found: dict[tuple[tuple[int, int], ...], list[float]] = {}
        for ratio in sorted(base.distinct(base.select(rows, mechanism=mechanism), "ratio")):
            own = base.select(rows, mechanism=mechanism, ratio=ratio)
            line = tuple((row["horizon"], row[column]) for row in own)
            found.setdefault(line, []).append(ratio)
        for line, ratios in found.items():
            x, y = zip(*line, strict=True)
            shown = "r = " + " or ".join(f"{ratio:g}" for ratio in ratios)
            every = len(ratios) == len(_RATIOS)
            series[f"{mechanism}, {'any r' if every else shown}"] = (x, y)
    return series


def space_against_horizon_headline(rows: list[Row]) -> str:
    """The buffers at the longest horizon."""
    horizon = max(row["horizon"] for row in rows)
    parts = []
    for name in base.distinct(rows, "mechanism"):
        own = base.select(rows, mechanism=name, horizon=horizon, objective="max")
        found = {row["ratio"]: row["buffers"] for row in own}
        parts.append(f"{name} " + " / ".join(str(found.get(ratio, "none")) for ratio in _RATIOS))
    return (
        f"buffers at T = {horizon:,} for {' / '.join(f'{ratio:g}' for ratio in _RATIOS)} x the "
        f"square root's largest variance: {'; '.join(parts)}"
    )


# The paper's workloads.
_WORKLOADS = {
    "prefix sums": Workload(),
    "momentum 0.9": Workload(0.9),
    "momentum 0.95": Workload(0.95),
    "decay 0.99": Workload(decay=0.99),
    "momentum 0.95, decay 0.99": Workload(0.95, 0.99),
}
_HORIZONS = (100, 1000)
_MOST_BINS = 100
_SHOWN = 1.03  # the largest ratio in pictures


def error_against_space(quick: bool) -> list[Row]:
    """Error of Binned over the square root's against its bins, with momentum and decay too."""
    divisors = [*np.linspace(1.1, 2, 10).tolist(), *range(3, 32), *range(34, 100, 4)]
    if quick:
        divisors = divisors[::4]
    rows = []
    for horizon in _HORIZONS:
        for name in base.progress([*_WORKLOADS], f"error-against-space, T = {horizon:,}"):
            given = vars(_WORKLOADS[name])
            reference = root_errors(SquareRoot(horizon, **given))
            for d in divisors:
                member = Binned(horizon, 1 - 1 / d, 1 / horizon, **given)
                own = errors(member)
                row = {"horizon": horizon, "workload": name, "c": member.c, "bins": member.space}
                rows.append(row | {each: own[each] / reference[each] for each in own})
                if member.space > _MOST_BINS:
                    break
    return rows


def error_against_space_pictures(rows: list[Row]) -> list[Output]:
    """One for each horizon and objective."""
    pictures = []
    for horizon in base.distinct(rows, "horizon"):
        for objective, word in _OBJECTIVES.items():
            series = {
                workload: _front(base.select(rows, horizon=horizon, workload=workload), objective)
                for workload in base.distinct(rows, "workload")
            }
            ends = (min(x[0] for x, _ in series.values()), max(x[-1] for x, _ in series.values()))
            series["the square root"] = (np.array(ends), np.ones(2))
            title = f"Binned: {word} variance over the square root's, T = {horizon:,}"
            footer = (
                "Exact, not measured. Over c = 1 - 1/d, with tau = 1/T: the least with at most so "
                f"many bins; shown from {_SHOWN:g} down. The square root of the same workload "
                f"keeps {horizon:,} buffers."
            )
            texts = (title, "bins", f"{word} variance / the square root's", footer)
            pictures.append(base.picture(series, *texts, f"-{horizon}-{objective}"))
    return pictures


def _front(rows: list[Row], objective: str) -> tuple[FloatArray, FloatArray]:
    """Numbers of bins and the least ratio with at most so many, where it falls."""
    front: list[tuple[float, float]] = []
    for bins, ratio in sorted((row["bins"], row[objective]) for row in rows):
        if ratio <= _SHOWN and (not front or ratio < front[-1][1]):
            front.append((bins, ratio))
    x, y = np.array(front, np.float64).T
    return x, y


def error_against_space_headline(rows: list[Row]) -> str:
    """The bins with which Binned falls below the square root, at the longest horizon."""
    horizon = max(row["horizon"] for row in rows)
    parts = []
    for workload in base.distinct(rows, "workload"):
        own = base.select(rows, horizon=horizon, workload=workload)
        below = [row["bins"] for row in own if row["max"] < 1]
        least = min(own, key=lambda row: row["max"])
        shown = f"from {min(below)} bins" if below else "never"
        parts.append(f"{workload}: {shown} (least {least['max']:.4f} x)")
    return f"largest variance below the square root's at T = {horizon:,}: {'; '.join(parts)}"

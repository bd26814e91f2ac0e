"""The binary tree against the square root on sparse streams, as *Constant Matters* [FHU22] has it.

Its Figures 1 (error over time) and 3 (outputs), and its Table 2 (signal-to-noise), which gives no
formula. Here signal-to-noise is the true count over the standard deviation of its release, averaged
over steps; and beside it the last count over the largest error, which the paper calls "error".
All mechanisms use Gaussian noise at one budget: zCDP that implies the paper's (epsilon, delta).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

import beam_dpcount as dp
from beam_dpcount.mechanisms import BinaryTree, Mechanism, NormalizedBLT, SquareRoot
from benchmarks.papers import base
from benchmarks.papers.base import FloatArray, Output, Row, Series

_APPROXIMATE = dp.ApproxDP(0.5, 1e-10)
_BUDGET = _APPROXIMATE.to_zcdp()
_KINDS: tuple[type[Mechanism], ...] = (BinaryTree, SquareRoot, NormalizedBLT)
_NAMES = tuple(kind.__name__ for kind in _KINDS)
_EXPONENTS = range(4, 11)  # sparsities 2^-4 .. 2^-10
_WINDOWS = 128


def calibrated(horizon: int) -> dict[str, dp.Counter]:
    """The three, with Gaussian noise at one budget."""
    return {kind.__name__: dp.calibrate(kind(horizon), _BUDGET) for kind in _KINDS}


def stream(horizon: int, exponent: int) -> npt.NDArray[np.bool_]:
    """Independent bits, each 1 with probability 2^-exponent."""
    # Made-up data, hence the fixed seed. Noise comes from release(): the system's entropy.
    return np.random.default_rng(exponent).random(horizon) < 2.0**-exponent


def sparsity(quick: bool) -> list[Row]:
    """Outputs, largest errors and signal-to-noise of three mechanisms on sparse streams."""
    horizon = 1 << (12 if quick else 16)
    size = horizon // _WINDOWS
    counters = calibrated(horizon)
    deviations = {name: counter.stddevs(horizon) for name, counter in counters.items()}
    rows = []
    for exponent in base.progress(_EXPONENTS, f"sparsity, T = {horizon:,}"):
        bits = stream(horizon, exponent)
        counts = np.cumsum(bits)
        for name, counter in counters.items():
            released = counter.release(bits)
            errors = np.abs(released - counts).reshape(_WINDOWS, size).max(axis=1)
            signal = (counts / deviations[name]).reshape(_WINDOWS, size).mean(axis=1)
            windows = deviations[name].reshape(_WINDOWS, size)
            rows += [
                {
                    "sparsity": 2.0**-exponent,
                    "mechanism": name,
                    "last_step": (i + 1) * size,
                    "count": int(counts[(i + 1) * size - 1]),
                    "release": float(released[(i + 1) * size - 1]),
                    "largest_error": float(errors[i]),
                    "least_stddev": float(windows[i].min()),
                    "largest_stddev": float(windows[i].max()),
                    "signal_to_noise": float(signal[i]),
                }
                for i in range(_WINDOWS)
            ]
    return rows


def signal_table(rows: list[Row]) -> list[Row]:
    """The paper's Table 2: a row for each sparsity, with two kinds of noise."""
    table = []
    for p in base.distinct(rows, "sparsity"):
        exact, measured = {}, {}
        ones = base.select(rows, sparsity=p)[-1]["count"]
        for name in _NAMES:
            own = base.select(rows, sparsity=p, mechanism=name)
            exact[name] = float(np.mean([row["signal_to_noise"] for row in own]))
            measured[name] = ones / max(row["largest_error"] for row in own)
        row: Row = {"sparsity": p, "ones": ones}
        for kind, ratios in (("", exact), ("_of_largest_error", measured)):
            row |= {f"{name}{kind}": ratio for name, ratio in ratios.items()}
            for name in _NAMES[1:]:
                row[f"{name}_over_{_NAMES[0]}{kind}"] = ratios[name] / ratios[_NAMES[0]]
        table.append(row)
    return table


def sparsity_outputs(rows: list[Row]) -> list[Output]:
    """Errors and standard deviations over time, outputs, and signal-to-noise."""
    horizon = rows[-1]["last_step"]
    size = horizon // _WINDOWS
    note = f"Gaussian noise at {_BUDGET}, which implies {_APPROXIMATE}. Streams: independent bits."
    title = f"T = {horizon:,}, {_APPROXIMATE}"
    time, stddev = "time t (steps)", "standard deviation of a release (counts)"
    largest_error = f"largest error in {size} steps (counts)"
    signals = signal_table(rows)
    shares = [row["sparsity"] for row in signals]
    errors: dict[str, list[FloatArray]] = {}
    deviations: dict[str, list[FloatArray]] = {}
    for name in _NAMES:
        own = base.select(rows, mechanism=name)
        steps = np.array(base.distinct(own, "last_step"), np.float64)
        largest = np.array([row["largest_error"] for row in own]).reshape(len(shares), -1)
        spread = 1.96 * largest.std(axis=0, ddof=1) / np.sqrt(len(shares))
        errors[name] = [steps, largest.mean(axis=0), spread]
        one = own[: len(steps)]
        low, high = (np.array([r[end] for r in one]) for end in ("least_stddev", "largest_stddev"))
        deviations[name] = [steps, (low + high) / 2, (high - low) / 2]
    outputs = {f"1 in {1 / p:,.0f} bits is 1": _outputs(rows, p) for p in shares}
    averaged = (
        f"Measured, one release of each of {len(shares)} streams; noise does not depend on data, "
        f"so they are averaged. Bands: 1.96 standard errors. {note}"
    )
    bands = f"Exact. Bands: from the least to the largest in {size} steps, lines halfway. {note}"
    released = f"One release of each, every {size} steps. {note}"
    ratios = {name: [shares, [row[name] for row in signals]] for name in _NAMES}
    axes = ("share of 1-bits", "mean of count / standard deviation")
    texts = (f"Signal-to-noise: {title}", *axes, f"Exact. {_ratios(signals)}. {note}")
    return [
        base.picture(errors, f"Largest errors: {title}", time, largest_error, averaged, "-errors"),
        base.picture(deviations, f"Error over time: {title}", time, stddev, bands, "-stddevs"),
        base.picture(
            outputs, f"Private counts: {title}", time, "count", released, "-outputs", True
        ),
        base.picture(ratios, *texts, "-signal", logx=True, logy=True),
        base.table(signals, "-signal"),
    ]


def _outputs(rows: list[Row], p: float) -> Series:
    from beam_dpcount.commands.figures.series import EXACT  # here: matplotlib is an extra

    own = base.select(rows, sparsity=p)
    (exact,) = base.curves(own[:_WINDOWS], "sparsity", "last_step", "count").values()
    return base.curves(own, "mechanism", "last_step", "release") | {EXACT: exact}


def _ratios(table: list[Row]) -> str:
    """SquareRoot's signal-to-noise in multiples of the binary tree's."""
    column = f"{_NAMES[1]}_over_{_NAMES[0]}"
    exact = [row[column] for row in table]
    measured = np.exp(np.mean([np.log(row[f"{column}_of_largest_error"]) for row in table]))
    return (
        f"{_NAMES[1]}'s signal-to-noise is {min(exact):.2f} to {max(exact):.2f} x "
        f"{_NAMES[0]}'s by standard deviations, and {measured:.2f} x by largest errors"
    )


def sparsity_headline(rows: list[Row]) -> str:
    """What the square root gains in signal-to-noise."""
    return f"T = {rows[-1]['last_step']:,}, {_APPROXIMATE}: {_ratios(signal_table(rows))}"

"""The most frequent item by private counts at each step, as *Constant Matters* [FHU22] has it.

Its Figure 4: a histogram of 20 items that follow Zipf's law, and the private count of the largest.
Here also how much rarer the reported item is than the most frequent one.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

import beam_dpcount as dp
from beam_dpcount.budget.budgets import Budget
from beam_dpcount.counters.change import ItemsChange
from beam_dpcount.mechanisms import BinaryTree, Mechanism, NormalizedBLT, SmoothBinary, SquareRoot
from benchmarks.papers import base
from benchmarks.papers.base import FloatArray, Output, Row

HORIZON, ITEMS = 2048, 20
_EPSILONS = (0.1, 0.5)  # the paper's for this experiment, and for its others
_DELTA = 1e-10
_KINDS: tuple[type[Mechanism], ...] = (BinaryTree, SmoothBinary, SquareRoot, NormalizedBLT)
_CHANGE = ItemsChange(0, 1, "replace_one", max_items=1)
_WINDOWS = 64
_SIZE = HORIZON // _WINDOWS
_RANDOM = "any item, by chance"


def stream() -> npt.NDArray[np.int64]:
    """Items as rows with one 1, drawn independently with probabilities as 1, 1/2, 1/3 .. 1/20."""
    # Made-up data, hence the fixed seed. Noise comes from release(): the system's entropy.
    generator = np.random.default_rng(2022)
    # Shuffled, as ties of private counts go to the first item.
    weights = generator.permutation(1 / np.arange(1, ITEMS + 1))
    drawn = generator.choice(ITEMS, HORIZON, p=weights / weights.sum())
    return np.eye(ITEMS, dtype=np.int64)[drawn]


def calibrated(kind: type[Mechanism], budget: Budget) -> dp.Counter:
    """A histogram of one item a step; an event is another item at one step."""
    return dp.calibrate(kind(HORIZON), budget, _CHANGE, dimension=ITEMS)


def measured(
    release: Callable[[npt.NDArray[np.int64]], FloatArray], repetitions: int
) -> tuple[FloatArray, FloatArray]:
    """Two errors of each release of `stream` at each step, both of shape (repetitions, HORIZON).

    How far the true count of the item with the largest private count is below the largest true
    count; and how far that largest private count is from the largest true count.
    """
    xs, steps = stream(), np.arange(HORIZON)
    counts = np.cumsum(xs, axis=0)
    largest = counts.max(axis=1)
    shortfalls, errors = np.empty((2, repetitions, HORIZON))
    for shortfall, error in zip(shortfalls, errors, strict=True):
        released = release(xs)
        reported = released.argmax(axis=1)
        shortfall[:] = largest - counts[steps, reported]
        error[:] = np.abs(released[steps, reported] - largest)
    return shortfalls, errors


def top(quick: bool) -> list[Row]:
    """Measured errors of the most frequent of 20 Zipf-distributed items by private counts."""
    repetitions = 40 if quick else 400
    counts = np.cumsum(stream(), axis=0)
    largest = counts.max(axis=1)
    rows = []
    for epsilon in _EPSILONS:
        for kind in base.progress(_KINDS, f"top-1, epsilon = {epsilon:g}"):
            counter = calibrated(kind, dp.ApproxDP(epsilon, _DELTA))
            shortfall, error = (
                # Neighbouring steps share noise, repetitions do not: the spread is theirs.
                values.reshape(repetitions, _WINDOWS, _SIZE).mean(axis=2)
                for values in measured(counter.release, repetitions)
            )
            chance = (largest - counts.mean(axis=1)).reshape(_WINDOWS, _SIZE).mean(axis=1)
            signal = (largest / counter.stddevs(HORIZON)).reshape(_WINDOWS, _SIZE).mean(axis=1)
            rows += [
                {
                    "epsilon": epsilon,
                    "mechanism": kind.__name__,
                    "repetitions": repetitions,
                    "last_step": (i + 1) * _SIZE,
                    "shortfall": float(shortfall[:, i].mean()),
                    "shortfall_standard_error": _standard_error(shortfall[:, i]),
                    "shortfall_by_chance": float(chance[i]),
                    "count_error": float(error[:, i].mean()),
                    "count_error_standard_error": _standard_error(error[:, i]),
                    "signal_to_noise": float(signal[i]),
                }
                for i in range(_WINDOWS)
            ]
    return rows


def _standard_error(values: FloatArray) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values)))


def top_pictures(rows: list[Row]) -> list[Output]:
    """Two for each epsilon: how far the reported item is from the top, and its private count."""
    pictures = []
    for epsilon in base.distinct(rows, "epsilon"):
        at = base.select(rows, epsilon=epsilon)
        budget = dp.ApproxDP(epsilon, _DELTA)
        title = f"T = {HORIZON:,}, {budget}"
        note = (
            f" Each point averages the {_SIZE} steps before it in {at[0]['repetitions']} releases "
            f"of one made-up stream of {ITEMS} items by Zipf's law. Bands: 1.96 standard errors "
            f"over releases. Gaussian noise of all: the {HORIZON:,} steps of a release together "
            f"satisfy {budget}, when the item of any one step is replaced."
        )
        below, off = (
            base.curves(at, "mechanism", "last_step", column, f"{column}_standard_error")
            for column in ("shortfall", "count_error")
        )
        for line in (*below.values(), *off.values()):
            line[2] *= 1.96
        chance = base.curves(at[:_WINDOWS], "epsilon", "last_step", "shortfall_by_chance")
        of_item = (
            "Measured: how far the true count of the item with the largest private count is below "
            f"the largest true count. {_RANDOM.capitalize()}: exact, if all are equally likely."
        )
        of_count = (
            "Measured: the largest private count against the largest true count. It is the largest "
            f"of {ITEMS} noisy counts, hence rather too large than too small."
        )
        time, missing = "time t (steps)", "true count below the top item's (counts)"
        item = (f"Top-1 of {ITEMS} items: {title}", time, missing, of_item + note)
        count = (f"Count of the top-1 item: {title}", time, "mean absolute error (counts)")
        pictures += [
            base.picture(below | {_RANDOM: chance[epsilon]}, *item, f"-{epsilon:g}-item"),
            base.picture(off, *count, of_count + note, f"-{epsilon:g}-count"),
        ]
    return pictures


def top_headline(rows: list[Row]) -> str:
    """Errors averaged over all steps, and what the square root gains in signal-to-noise."""
    parts = []
    for epsilon in base.distinct(rows, "epsilon"):
        columns = ("shortfall", "count_error", "signal_to_noise")
        lines = base.curves(base.select(rows, epsilon=epsilon), "mechanism", *columns)
        means = {name: [column.mean() for column in line] for name, line in lines.items()}
        item = ", ".join(f"{name} {mean[0]:.4g}" for name, mean in means.items())
        count = ", ".join(f"{name} {mean[1]:.4g}" for name, mean in means.items())
        ratio = means[SquareRoot.__name__][2] / means[BinaryTree.__name__][2]
        parts.append(
            f"at {dp.ApproxDP(epsilon, _DELTA)} the item is short by {item}; its count is off by "
            f"{count}; SquareRoot's signal-to-noise is {ratio:.2f} x BinaryTree's"
        )
    return f"T = {HORIZON:,}, means over steps: " + "; ".join(parts)

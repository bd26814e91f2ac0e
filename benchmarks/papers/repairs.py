"""What post-processing does to errors: repairs of running counts, and counts fitted to their total.

On made-up streams; or, with `--data`, on three public data sets in that directory, of their usual
names: bgl_2k.csv and healthapp_2k.csv [Loghub], an element a line, and collegemsg.txt [SNAP], the
messages of 1,899 senders at daily ticks.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

import beam_dpcount as dp
from beam_dpcount.counters.change import ItemsChange, TickChange
from beam_dpcount.counters.counter import LatticeCounter
from beam_dpcount.counters.fitted import fit
from beam_dpcount.counters.isotonic import Block, cap, isotonic, push
from beam_dpcount.counters.shrinkage import shrunk
from beam_dpcount.mechanisms import NormalizedBLT
from beam_dpcount.noise.entropy import SystemNoise
from benchmarks.papers import base
from benchmarks.papers.base import FloatArray, Output, Row

IntArray = npt.NDArray[np.int64]

_EPSILONS = (0.1, 0.3, 1.0)
_DELTA = 1e-6
_BLOCKS = 64  # as Isotonic has it
_RELEASED, _FIT = "as released", "Histogram, fit_total"
_SHRUNK = "ShrinkAcrossKeys"


class Stream(NamedTuple):
    """A stream: its name, and what each step adds, shape (steps, keys or items)."""

    name: str
    added: IntArray
    ticks: bool = False
    histogram: bool = False


def streams(data: str | None) -> list[Stream]:
    """The streams of a directory of data, or made-up ones.

    Raises:
      ValueError: a file is not there, or has other columns.
    """
    return _made_up() if data is None else _of(Path(data))


def _made_up() -> list[Stream]:
    # Made-up data, hence the fixed seed. Noise comes from the system's entropy.
    generator = np.random.default_rng(2024)
    rare = (generator.random((1000, 1)) < 0.05).astype(np.int64)
    bursts = (generator.random((1000, 1)) < 0.9 * (np.arange(1000)[:, None] // 50 % 5 == 0)).astype(
        np.int64
    )
    rates = 1 / np.arange(1, 301)
    daily = generator.poisson(20 * rates, (100, 300)).astype(np.int64)
    items = np.eye(5, dtype=np.int64)[generator.choice(5, 1000, p=rates[:5] / rates[:5].sum())]
    return [
        Stream("1 element in 20 counts", rare),
        Stream("bursts", bursts),
        Stream("300 keys by Zipf's law, ticks", daily, ticks=True),
        Stream("histogram of 5 items", items, histogram=True),
    ]


def _of(folder: Path) -> list[Stream]:
    try:
        levels = _column(folder / "bgl_2k.csv", "Level")
        components = _column(folder / "healthapp_2k.csv", "Component")
        with open(folder / "collegemsg.txt", encoding="utf-8") as file:
            next(file)  # a header
            rows = np.array([line.split() for line in file], dtype=np.int64)
    except (OSError, KeyError, ValueError) as error:
        wanted = "bgl_2k.csv, healthapp_2k.csv and collegemsg.txt"
        raise ValueError(f"--data needs {wanted} in {str(folder)!r}: {error}") from None
    senders, times = np.unique(rows[:, :2])[:, None], rows[:, 2]
    day = (times - times.min()) * 193 // (times.max() + 1 - times.min())
    daily = np.zeros((193, len(senders)), dtype=np.int64)
    np.add.at(daily, (day, np.searchsorted(senders[:, 0], rows[:, 0])), 1)
    return [
        Stream("BGL, level FATAL", (levels[:, None] == "FATAL").astype(np.int64)),
        Stream("HealthApp, Step_SPUtils", (components[:, None] == "Step_SPUtils").astype(np.int64)),
        Stream(f"CollegeMsg, {len(senders):,} keys, daily ticks", daily, ticks=True),
        *(
            Stream(f"{name}, histogram of {len(np.unique(of))}", _one_hot(of), histogram=True)
            for name, of in (("BGL", levels), ("HealthApp", components))
        ),
    ]


def _column(path: Path, name: str) -> npt.NDArray[np.str_]:
    with open(path, newline="", encoding="utf-8") as file:
        return np.array([row[name] for row in csv.DictReader(file)])


def _one_hot(items: npt.NDArray[np.str_]) -> IntArray:
    return (items[:, None] == np.unique(items)).astype(np.int64)


def _past(values: FloatArray, stddevs: FloatArray) -> FloatArray:
    blocks: list[Block] = []
    fits = []
    for value, weight in zip(values.tolist(), _weights(stddevs), strict=True):
        push(blocks, value, weight)
        cap(blocks, _BLOCKS)
        fits.append(blocks[-1][0])
    return np.maximum(fits, 0)


def _series(values: FloatArray, stddevs: FloatArray) -> FloatArray:
    return np.maximum(isotonic(values.tolist(), _weights(stddevs)), 0)


def _weights(stddevs: FloatArray) -> list[float]:
    return list(((stddevs[0] / stddevs) ** 2).tolist())


# Each of one key's releases and their standard deviations, both of shape (steps,).
_REPAIRS: dict[str, Callable[[FloatArray, FloatArray], FloatArray]] = {
    _RELEASED: lambda values, stddevs: values,
    "NonNegative": lambda values, stddevs: np.maximum(values, 0),
    "Isotonic, past": _past,
    "Isotonic, series": _series,
}


def _squares(stream: Stream, budget: dp.ApproxDP) -> Iterator[tuple[str, float, float]]:
    """Of one release of all: each treatment's mean squared error, and what it adds at the end.

    That is, to the last releases of the 20 largest counts, which are unbiased: so it is their bias.
    """
    steps, keys = stream.added.shape
    exact, mechanism = np.cumsum(stream.added, axis=0), NormalizedBLT(steps)
    if stream.histogram:
        one, rest = ItemsChange(max_items=1), np.zeros((steps, 1), dtype=np.int64)
        # With or without a coordinate for what counts nothing, noise is of the same scale.
        counter = dp.calibrate(mechanism, budget, one, dimension=keys + 1)
        released = counter.release(np.hstack([stream.added, rest]))
        whole = fit(released, np.arange(1, steps + 1)[:, None])
        shown = {_RELEASED: released[:, :keys], _FIT: whole[:, :keys]}
    else:
        counter = dp.calibrate(mechanism, budget, TickChange() if stream.ticks else None)
        stddevs, released = counter.stddevs(steps), _released(counter, stream.added)
        shown = {
            name: np.stack([repair(values, stddevs) for values in released.T], axis=1)
            for name, repair in _REPAIRS.items()
        }
        if keys > 1:
            ticks = zip(released, stddevs.tolist(), strict=True)
            shown[_SHRUNK] = np.array([shrunk(values, stddev) for values, stddev in ticks])
    for name, values in shown.items():
        heavy = np.argsort(-exact[-1], kind="stable")[:20]
        added = values[-1, heavy] - shown[_RELEASED][-1, heavy]
        yield name, float(np.square(values - exact).mean()), float(added.mean())


def _released(counter: LatticeCounter, added: IntArray) -> FloatArray:
    """Each key has noise of its own."""
    return np.stack(
        [counter.release_lattice(key, SystemNoise(counter.law, None)) for key in added.T], axis=1
    )


def repairs(quick: bool, data: str | None = None) -> list[Row]:
    """Measured errors before and after post-processing; of real streams with --data."""
    rows = []
    for stream in base.progress(streams(data), "post-processing"):
        many = stream.added.shape[1] > 1 and not stream.histogram
        repetitions = (1 if quick else 10) if many else (4 if quick else 100)
        for epsilon in _EPSILONS:
            budget = dp.ApproxDP(epsilon, _DELTA)
            found: dict[str, list[tuple[float, float]]] = {}
            for _ in range(repetitions):
                for name, square, end in _squares(stream, budget):
                    found.setdefault(name, []).append((square, end))
            means = {name: np.mean(pairs, axis=0) for name, pairs in found.items()}
            before = float(np.sqrt(means[_RELEASED][0]))
            rows += [
                {
                    "stream": stream.name,
                    "epsilon": epsilon,
                    "treatment": name,
                    "steps": stream.added.shape[0],
                    "keys_or_items": stream.added.shape[1],
                    "repetitions": repetitions,
                    "rmse": float(np.sqrt(square)),
                    "times_released": float(np.sqrt(square)) / before,
                    "bias_of_20_largest": float(end),
                }
                for name, (square, end) in means.items()
            ]
    return rows


def repairs_outputs(rows: list[Row]) -> list[Output]:
    """A picture for each stream of running counts, and a table that sums all up."""
    outputs: list[Output] = []
    short: list[Row] = []
    for place, name in enumerate(base.distinct(rows, "stream"), start=1):
        own = base.select(rows, stream=name)
        for treatment in base.distinct(own, "treatment"):
            at = {row["epsilon"]: row for row in base.select(own, treatment=treatment)}
            figures = {f"epsilon {e:g}": f"{at[e]['rmse']:.3g}" for e in _EPSILONS}
            short.append({"stream": name, "treatment": treatment} | figures)
        if base.select(own, treatment=_FIT):
            continue  # the same factor at every epsilon
        lines = base.curves(own, "treatment", "epsilon", "rmse")
        footer = (
            f"Measured, over all {own[0]['steps']:,} releases of {own[0]['keys_or_items']:,} "
            f"key(s), {own[0]['repetitions']} time(s); delta = {_DELTA:g}, NormalizedBLT. Repairs "
            "cost nothing."
        )
        texts = (f"Post-processing: {name}", "epsilon", "root mean square error (counts)", footer)
        outputs.append(base.picture(lines, *texts, f"-{place}", logx=True, logy=True))
    return [*outputs, base.table(short, "-table")]


def repairs_headline(rows: list[Row]) -> str:
    """What each treatment does, from the best case to the worst, and the bias of shrinking."""
    parts = []
    for name in base.distinct(rows, "treatment"):
        if name != _RELEASED:
            times = [row["times_released"] for row in base.select(rows, treatment=name)]
            parts.append(f"{name} {min(times):.2f} to {max(times):.2f}")
    shrinking = [
        f"{before['rmse']:.4g} -> {row['rmse']:.4g} at epsilon {row['epsilon']:g} "
        f"(bias of the 20 largest at the end {row['bias_of_20_largest']:+.3g})"
        for row in base.select(rows, treatment=_SHRUNK)
        for before in base.select(
            rows, stream=row["stream"], epsilon=row["epsilon"], treatment=_RELEASED
        )
    ]
    said = f"errors over those of the releases: {', '.join(parts)}"
    return f"{said}; {_SHRUNK} {', '.join(shrinking)}"

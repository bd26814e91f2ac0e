"""What `make bench` measures with: CPU time, variants in turns, rows of tables, powers of sizes."""

from __future__ import annotations

import gc
import math
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

ROUNDS = 3


@dataclass(frozen=True)
class Row:
    """One figure, beside what it is compared with.

    Fields:
      what: what was measured.
      figure: what came out: a ratio, or a number of `unit`.
      most: the target; None: there is none.
      unit: "x" for ratios.
      ours, theirs: what a ratio is of, as text.
    """

    what: str
    figure: float
    most: float | None = None
    unit: str = "x"
    ours: str = ""
    theirs: str = ""

    @property
    def is_met(self) -> bool:
        return self.most is None or self.figure <= self.most


@dataclass(frozen=True)
class Growth:
    """Seconds by size."""

    what: str
    sizes: Sequence[int]
    seconds: Sequence[float]

    @property
    def slope(self) -> float:
        """The power of the size that fits best: of least squares, in logarithms."""
        return float(np.polyfit(np.log(self.sizes), np.log(self.seconds), 1)[0])

    @property
    def last(self) -> float:
        """The power from the last size but one to the last: what costs grow by in the end."""
        (a, b), (s, t) = self.sizes[-2:], self.seconds[-2:]
        return math.log(t / s) / math.log(b / a)


@dataclass(frozen=True)
class Note:
    """What could not be measured, and why."""

    said: str


Figure = Row | Growth | Note


def cpu() -> float:
    """Seconds of CPU time of this process, all threads, and of children that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def peak() -> float:
    """The largest resident memory of this process so far, in MB."""
    # Not ru_maxrss: a child begins with its parent's.
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1.024e-3 for line in file if line.startswith("VmHWM"))


def best_of(variants: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """Of each variant the least that it gave; they take turns, so that all have the same noise."""
    best = dict.fromkeys(variants, math.inf)
    for _ in range(rounds):
        for name, variant in variants.items():
            gc.collect()  # the garbage of one is not another's
            best[name] = min(best[name], variant())
    return best


def timed(work: Callable[[], Any]) -> Callable[[], float]:
    """A variant for `best_of`: the CPU time of some work."""

    def measured() -> float:
        before = cpu()
        work()
        return max(cpu() - before, 1e-9)  # the clock is too coarse for no work

    return measured


def seconds_of(work: Callable[[], Any], rounds: int = ROUNDS) -> float:
    """The least CPU time of one call."""
    return best_of({"": timed(work)}, rounds)[""]


def alone(*words: str) -> list[float]:
    """The numbers that `benchmarks.alone` prints, in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.alone", *words]
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return [float(word) for word in said.split()]


def shown(seconds: float) -> str:
    """A time, in the unit that suits it."""
    sizes = {"s": 1.0, "ms": 1e-3, "us": 1e-6}
    unit = next((unit for unit, size in sizes.items() if seconds >= size), "us")
    return f"{seconds / sizes[unit]:.3g} {unit}"


def number(figure: float, unit: str) -> str:
    """A figure with three digits, and its unit."""
    text = f"{figure:,.0f}" if figure >= 100 else f"{figure:.3g}"
    return f"{text}x" if unit == "x" else f"{text} {unit}".strip()


def markdown(figures: Sequence[Figure]) -> str:
    """Tables: of all targets, of growth, and of figures without a target; and what was skipped."""
    rows = [figure for figure in figures if isinstance(figure, Row)]
    growths = [figure for figure in figures if isinstance(figure, Growth)]
    parts = []
    if aimed := [row for row in rows if row.most is not None]:
        cells = [
            (*_measured(row), number(row.most or 0, row.unit), "met" if row.is_met else "missed")
            for row in aimed
        ]
        parts.append(table(("target", "ours", "beside", "figure", "at most", ""), cells))
    if growths:
        cells = []
        for growth in growths:
            pairs = zip(growth.sizes, growth.seconds, strict=True)
            each = ", ".join(f"{size:,}: {shown(seconds)}" for size, seconds in pairs)
            cells.append((growth.what, each, f"{growth.slope:.2f}", f"{growth.last:.2f}"))
        parts.append(table(("growth", "CPU time by size", "slope", "at the end"), cells))
    if others := [row for row in rows if row.most is None]:
        cells = [_measured(row) for row in others]
        parts.append(table(("without a target", "ours", "beside", "figure"), cells))
    if notes := [figure.said for figure in figures if isinstance(figure, Note)]:
        parts.append("\n".join(f"- {said}" for said in notes))
    return "\n\n".join(parts)


def _measured(row: Row) -> tuple[str, ...]:
    return row.what, row.ours, row.theirs, number(row.figure, row.unit)


def table(head: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *cells]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)

"""What comparisons are made of: tables of rows, and pictures of them."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

import beam_dpcount as dp
from beam_dpcount.commands.figures import series as plots

T = TypeVar("T")
Row = dict[str, Any]
FloatArray = npt.NDArray[np.float64]
Series = Mapping[str, Sequence[npt.ArrayLike]]

HALF = dp.ZCDP(0.5)  # then sigma^2 = Delta_2^2
VARIANCE = "variance (counts²)"


@dataclass(frozen=True)
class Picture:
    """One PNG: what `plots.lines` draws. Its file is <experiment><suffix>.png."""

    series: Series
    title: str
    xlabel: str
    ylabel: str
    footer: str | None = None
    suffix: str = ""
    logx: bool = False
    logy: bool = False
    base: float = 10

    @property
    def ending(self) -> str:
        """What comes after the name of the experiment."""
        return f"{self.suffix}.png"

    def save(self, path: str) -> None:
        """Write the PNG."""
        plots.lines(
            self.series,
            path,
            xlabel=self.xlabel,
            ylabel=self.ylabel,
            title=self.title,
            logx=self.logx,
            logy=self.logy,
            base=self.base,
            footer=self.footer,
        )


@dataclass(frozen=True)
class Panels:
    """One PNG of several pairs of axes: what `plots.panels` draws."""

    panels: Mapping[str, Series]
    title: str
    xlabel: str
    ylabel: str
    footer: str | None = None
    suffix: str = ""

    @property
    def ending(self) -> str:
        """What comes after the name of the experiment."""
        return f"{self.suffix}.png"

    def save(self, path: str) -> None:
        """Write the PNG."""
        plots.panels(
            self.panels,
            path,
            xlabel=self.xlabel,
            ylabel=self.ylabel,
            title=self.title,
            footer=self.footer,
        )


@dataclass(frozen=True)
class Table:
    """One CSV of rows, all with the same columns. Its file is <experiment><suffix>.csv."""

    rows: Sequence[Row]
    suffix: str = ""

    @property
    def ending(self) -> str:
        """What comes after the name of the experiment."""
        return f"{self.suffix}.csv"

    def save(self, path: str) -> None:
        """Write the CSV."""
        with open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(self.rows[0]))
            writer.writeheader()
            writer.writerows(self.rows)


Output = Picture | Panels | Table


@dataclass(frozen=True)
class Experiment:
    """One comparison, in pure functions, but for the noise of those that measure.

    Args:
      rows: from whether a quick run is wanted to the table, all rows with the same columns.
      outputs: from the table to its pictures, and to smaller tables that sum it up.
      headline: from the table to the figure worth a line.
    """

    rows: Callable[[bool], list[Row]]
    outputs: Callable[[list[Row]], Sequence[Output]]
    headline: Callable[[list[Row]], str]


def progress(items: Sequence[T], what: str) -> Iterator[T]:
    """The items one by one; on a terminal, shows how many of them are done."""
    for done, item in enumerate(items):
        _status(f"{what}: {done}/{len(items)}")
        yield item
    _status("")


def _status(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r{text:<60}\r", end="", file=sys.stderr, flush=True)


def select(rows: list[Row], **wanted: Any) -> list[Row]:
    """The rows that have these values."""
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


def distinct(rows: list[Row], name: str) -> list[Any]:
    """The values of a column, each once, as they come."""
    return list(dict.fromkeys(row[name] for row in rows))


def curves(rows: list[Row], label: str, *columns: str) -> dict[str, list[FloatArray]]:
    """The series of `plots.lines`: one for each value of the column `label`."""
    lines = {}
    for name in distinct(rows, label):
        own = select(rows, **{label: name})
        lines[name] = [np.array([row[column] for row in own], np.float64) for column in columns]
    return lines

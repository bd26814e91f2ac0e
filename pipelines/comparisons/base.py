"""What comparisons are made of: tables of rows, and pictures of them."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

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


class _File:
    """A file of an experiment: <experiment><suffix>.<kind>."""

    kind: ClassVar[str] = "png"
    suffix: str

    @property
    def ending(self) -> str:
        """What comes after the name of the experiment."""
        return f"{self.suffix}.{self.kind}"


class _Figure(_File):
    """A PNG that a function draws, of its first field and with the others."""

    draw: ClassVar[Callable[..., None]]

    def save(self, path: str) -> None:
        """Write the PNG."""
        drawn, *given = vars(self).items()
        type(self).draw(drawn[1], path, **{k: v for k, v in given if k != "suffix"})


@dataclass(frozen=True)
class Picture(_Figure):
    """What `plots.lines` draws."""

    series: Series
    title: str
    xlabel: str
    ylabel: str
    footer: str | None = None
    suffix: str = ""
    logx: bool = False
    logy: bool = False
    base: float = 10

    draw = staticmethod(plots.lines)


@dataclass(frozen=True)
class Panels(_Figure):
    """Several pairs of axes: what `plots.panels` draws."""

    panels: Mapping[str, Series]
    title: str
    xlabel: str
    ylabel: str
    footer: str | None = None
    suffix: str = ""

    draw = staticmethod(plots.panels)


@dataclass(frozen=True)
class Table(_File):
    """One CSV of rows, all with the same columns."""

    rows: Sequence[Row]
    suffix: str = ""

    kind = "csv"

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

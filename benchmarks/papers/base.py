"""What comparisons are made of: tables of rows, and pictures of them."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

import beam_dpcount as dp

T = TypeVar("T")
Row = dict[str, Any]
FloatArray = npt.NDArray[np.float64]
Series = Mapping[str, Sequence[npt.ArrayLike]]  # as `figures.series` draws

HALF = dp.ZCDP(0.5)  # then sigma^2 = Delta_2^2
VARIANCE = "variance (counts²)"


class Output(NamedTuple):
    """A file of an experiment: what comes after the experiment's name, and what writes it."""

    ending: str
    save: Callable[[str], None]


def picture(
    drawn: Series | Mapping[str, Series],
    title: str,
    xlabel: str,
    ylabel: str,
    footer: str | None = None,
    suffix: str = "",
    in_panels: bool = False,
    **axes: Any,
) -> Output:
    """A PNG of series, in one pair of axes; or in a pair each, of several sets of them."""
    texts = {"title": title, "xlabel": xlabel, "ylabel": ylabel, "footer": footer}

    def save(path: str) -> None:
        from beam_dpcount.commands.figures.series import lines  # here: matplotlib is an extra
        from benchmarks.papers.panels import panels

        draw: Callable[..., None] = panels if in_panels else lines
        draw(drawn, path, **texts, **axes)

    return Output(f"{suffix}.png", save)


def table(rows: Sequence[Row], suffix: str = "") -> Output:
    """A CSV of rows, all with the same columns."""

    def save(path: str) -> None:
        with open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)

    return Output(f"{suffix}.csv", save)


@dataclass(frozen=True)
class Experiment:
    """One comparison."""

    rows: Callable[..., list[Row]]  # all of the same columns; fewer for a quick run
    outputs: Callable[[list[Row]], Sequence[Output]]  # pictures, and tables that sum the rows up
    headline: Callable[[list[Row]], str]  # the result in one line
    takes_data: bool = False  # whether `rows` also takes a directory of real data, or None


def progress(items: Sequence[T], what: str) -> Iterator[T]:
    """The items one by one; on a terminal, shows how many of them are done."""
    for done in range(len(items) + 1):
        if sys.stderr.isatty():
            text = f"{what}: {done}/{len(items)}" if done < len(items) else ""
            print(f"\r{text:<60}\r", end="", file=sys.stderr, flush=True)
        yield from items[done : done + 1]


def select(rows: list[Row], **wanted: Any) -> list[Row]:
    """The rows that have these values."""
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


def distinct(rows: list[Row], name: str) -> list[Any]:
    """The values of a column, each once, as they come."""
    return list(dict.fromkeys(row[name] for row in rows))


def curves(rows: list[Row], label: str, *columns: str) -> dict[str, list[FloatArray]]:
    """The series of `figures.series.lines`: one for each value of the column `label`."""
    lines = {}
    for name in distinct(rows, label):
        own = select(rows, **{label: name})
        lines[name] = [np.array([row[column] for row in own], np.float64) for column in columns]
    return lines

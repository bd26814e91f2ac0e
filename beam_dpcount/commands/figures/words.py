"""Figures of the top words of sequences, written as PNG files; see `figures.series`."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib import ticker

from beam_dpcount.commands.figures.frames import (
    BAR,
    ERROR,
    GREY,
    framed,
    plain,
    save,
    say,
    shortened,
    titles,
    written,
)

_COLUMNS = 2


@dataclass(frozen=True)
class Words:
    """One panel of `top_words`: the words of a release, largest private count first.

    Args:
      name: the panel's title.
      note: what stands below the title.
      words: the words.
      values: their private counts.
      low, high: the ends of their bands.
    """

    name: str
    note: str
    words: Sequence[str]
    values: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


def top_words(
    panels: Sequence[Words], path: str | os.PathLike[str], *, title: str, guarantee: str
) -> None:
    """Draws words as horizontal bars with error bars, one panel a release, and writes a PNG.

    Each panel has its own words and its own scale.

    Args:
      panels: the releases.
      path: the PNG file to write.
      title: plain text above the figure.
      guarantee: plain text below the figure, wrapped.

    Raises:
      ValueError: words, values and bands of a panel differ in number.
    """
    columns = min(_COLUMNS, max(1, len(panels)))
    rows = max(1, math.ceil(len(panels) / columns))
    most = max((len(panel.words) for panel in panels), default=0)
    height = max(2.2, 1.2 + 0.27 * most)
    figure, body = framed((max(9, 6.2 * columns), 1.8 + height * rows), title, guarantee)
    if not panels:
        say(body.subplots(), "no words")
    grid = body.add_gridspec(rows, columns)
    for place, panel in enumerate(panels):
        values = np.asarray(panel.values, dtype=np.float64)
        low, high = (np.asarray(ends, dtype=np.float64) for ends in (panel.low, panel.high))
        if not len(panel.words) == len(values) == len(low) == len(high):
            raise ValueError(f"panel {panel.name!r} must have one count and one band for each word")
        row, column = divmod(place, columns)
        axes = body.add_subplot(grid[row, column])
        bottom_up = np.arange(len(values))[::-1]
        axes.barh(
            bottom_up,
            values,
            xerr=(values - low, high - values),
            color=BAR,
            error_kw={"ecolor": ERROR, "elinewidth": 1.2, "capsize": 3},
        )
        axes.axvline(0, color=GREY, linewidth=0.8)
        plain(axes, labelsize=10)
        axes.grid(visible=False, axis="y")
        axes.set_ylim(len(values) - most - 0.6, len(values) - 0.4)  # bars of all panels are alike
        axes.set_yticks(
            bottom_up, [shortened(word, middle=True) for word in panel.words], parse_math=False
        )
        axes.xaxis.set_major_locator(ticker.MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
        axes.xaxis.set_major_formatter(ticker.FuncFormatter(written))
        titles(axes, panel.name, panel.note)
        if place + columns >= len(panels):
            axes.set_xlabel("private count, with its 95 % band", fontsize=11)
    save(figure, path)

"""Several sets of lines, each in its own axes, in one PNG file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from matplotlib import ticker
from matplotlib.lines import Line2D

from beam_dpcount.commands.figures import frames, texts
from beam_dpcount.commands.figures.frames import Path
from beam_dpcount.commands.figures.series import Series, draw_lines, looks_of

_COLUMNS = 4


def panels(
    panels: Mapping[str, Series],
    path: Path,
    *,
    xlabel: str,
    ylabel: str,
    title: str,
    footer: str | None = None,
) -> None:
    """Draws sets of named lines, each in its own axes, and writes a PNG.

    Axes share x, not y. A label looks the same in all of them, and is once in the legend above;
    `EXACT` is a dark line as in `counts.draw`. `panels`: titles of axes -> series as in
    `series.lines`.
    """
    columns = min(_COLUMNS, max(1, len(panels)))
    inches = 3.5 * columns, 1 + 3 * max(1, math.ceil(len(panels) / columns))
    look_of = looks_of(label for series in panels.values() for label in series)
    named = [(name, "", series) for name, series in panels.items()]
    how = (columns, ("x",), "no data")
    drawn = frames.each_panel(named, path, inches, title, footer or "", *how)
    handles: dict[Any, Line2D] = {}
    for place, (axes, (*_, series), leftmost, lowest) in enumerate(drawn, start=1):
        for _, line in draw_lines(axes, series, look_of, 1.4):
            handles.setdefault(line.get_label(), line)
        frames.plain(axes)
        axes.xaxis.set_major_locator(ticker.MaxNLocator(4))
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.yaxis.set_major_locator(ticker.MaxNLocator(5))
        axes.yaxis.set_major_formatter(texts.written)
        if leftmost:
            axes.set_ylabel(ylabel, fontsize=11)
        if lowest:
            axes.set_xlabel(xlabel, fontsize=11)
        if place == len(panels):
            body: Any = axes.figure
            body.legend(
                handles=list(handles.values()), **frames.LEGEND, fontsize=11, handlelength=3
            )

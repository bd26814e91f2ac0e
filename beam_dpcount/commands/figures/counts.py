"""Draws private running counts by matplotlib, one panel a key.

Each panel has the running count above. The noise is often too small to see there, so a strip below
shows the band around zero (and the error, given a truth). All strips share one scale; if all are
alike, there is one for all panels.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import SubFigure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from beam_dpcount.commands.figures import frames, looks
from beam_dpcount.commands.figures.frames import Path
from beam_dpcount.commands.figures.running import FEW_POINTS, Counts, FloatArray, Panel

MOST = 6  # keys, where none were asked for

(_BLUE, _VERMILLION), _SKY, _DARK = looks.LIGHT[:2], frames.BAR, frames.ERROR
_DASHED: Any = (0, (4, 3))
_MARGIN = 0.04  # of the x axis


def draw(counts: Counts, path: Path, footer: str, private: bool) -> None:
    """Writes a PNG file; `private` as for `beside`."""
    rows = max(2, math.ceil(len(counts.panels) / frames.COLUMNS))
    footer = " ".join(filter(None, [footer, counts.scaled, counts.choice]))
    figure, body = frames.framed((12, 4 * rows), counts.title, footer)
    if counts.panels:
        _draw_panels(body, counts)
    else:
        frames.say(body.subplots(), counts.nothing)
    frames.save(figure, path, private=private)


def _draw_panels(body: SubFigure, counts: Counts) -> None:
    every, strips = _axes(body, counts)
    number, (_, columns) = len(every), frames.shape(len(every))
    for place, (axes, panel) in enumerate(zip(every, counts.panels, strict=True)):
        last = counts.last(panel)
        _draw_count(axes, counts, panel)
        frames.titles(axes, *((last, "") if counts.single else (panel.key, last)))
        if place < len(strips):
            _draw_strip(strips[place], counts, panel)
            strips[place].tick_params(labelleft=place % columns == 0)
    for axes in every[::columns]:
        axes.set_ylabel(counts.label, fontsize=11, parse_math=False)
    for axes in strips[::columns]:
        axes.set_ylabel("error" if counts.exact else "± band", fontsize=11)
    body.align_ylabels()
    # Below some panels is the one strip.
    above = number - columns + (counts.alike and number % columns > 0)
    lowest = every[above:] + strips if counts.alike else strips[0 if counts.own_axes else above :]
    for axes in (*every, *strips):
        axes.tick_params(labelbottom=axes in lowest)
    for axes in lowest:
        panel = counts.panels[(every if axes in every else strips).index(axes)]
        size = 10 if counts.own_axes else 11
        axes.set_xlabel(counts.x_of(panel).caption, fontsize=size)
    handles = [
        Line2D([], [], color=_BLUE, linewidth=1.6),
        Patch(color=_SKY, alpha=0.4, linewidth=0),
        Line2D([], [], color=_DARK, linewidth=1.1, linestyle=_DASHED),
        Line2D([], [], color=_VERMILLION, linewidth=1.2),
    ]
    body.legend(handles[: len(counts.legend)], counts.legend, **frames.LEGEND, fontsize=10.5)


def _axes(body: SubFigure, counts: Counts) -> tuple[list[Axes], list[Axes]]:
    """Axes for the count of each panel; and for the strip of each, or one for all if alike."""
    number, one = len(counts.panels), counts.alike
    rows, columns = frames.shape(number)
    spare = number < rows * columns
    heights = ([3] * rows + [1] * (not spare)) if one else [3, 1] * rows
    grid = body.add_gridspec(len(heights), columns, height_ratios=heights)
    strips = []
    if one:
        strips = [body.add_subplot(grid[-1, number % columns] if spare else grid[-1, :])]
        strips[0].set_title("the band of every key", loc="left", fontsize=10, color=frames.GREY)
    every = []
    for place in range(number):
        row, column = divmod(place, columns)
        if not one:
            strips.append(body.add_subplot(grid[2 * row + 1, column]))
        every.append(body.add_subplot(grid[row if one else 2 * row, column]))
    return every, strips


def _draw_count(axes: Axes, counts: Counts, panel: Panel) -> None:
    thin = panel.thinned()
    x = counts.place(thin)
    _band(axes, x, thin.value, thin.half)
    dot, cross = ("o", "x") if len(x) <= FEW_POINTS else (None, None)
    axes.plot(x, thin.value, color=_BLUE, linewidth=1.6, marker=dot, markersize=4)
    if panel.has_truth:
        axes.plot(x, thin.exact, color=_DARK, linewidth=1.1, linestyle=_DASHED, marker=cross)
    frames.scale(axes, "x", counts.x_of(panel), 5 if counts.own_axes else 7, _MARGIN)
    frames.scale(axes, "y", counts.y([panel]), 5, _MARGIN)
    frames.plain(axes)


def _draw_strip(axes: Axes, counts: Counts, panel: Panel) -> None:
    thin = panel.thinned()
    x = counts.place(thin)
    _band(axes, x, np.zeros_like(x), thin.half)
    axes.axhline(0, color=frames.GREY, linewidth=0.8)
    if panel.has_truth:
        dot, width = ("o", 1.2) if len(x) <= FEW_POINTS else (None, 0.6)
        axes.plot(x, thin.error, color=_VERMILLION, linewidth=width, marker=dot, markersize=4)
    frames.scale(axes, "x", counts.x_of(panel), 5 if counts.own_axes else 7, _MARGIN)
    frames.scale(axes, "y", counts.error, 3)
    frames.plain(axes)


def _band(axes: Axes, x: FloatArray, centre: FloatArray, half: FloatArray) -> None:
    if len(x) == 1:  # an area over one point has no width
        axes.errorbar(x, centre, half, color=_SKY, linewidth=3, capsize=8)
    else:
        axes.fill_between(x, centre - half, centre + half, color=_SKY, alpha=0.4, linewidth=0)

"""Draws the last releases of some keys by matplotlib: bars with bands, weights of pairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize

from beam_dpcount.commands.figures import frames, looks, texts
from beam_dpcount.commands.figures.charts import NOTHING, Bar, Chart, Matrix
from beam_dpcount.commands.figures.frames import Path
from beam_dpcount.commands.figures.pictures import CAPPED

_TICKS = 5
_WEIGHTS = LinearSegmentedColormap.from_list("weights", looks.WEIGHTS)


def across(charts: Sequence[Chart], path: Path, title: str, footer: str) -> None:
    """Draws horizontal bars, the first on top, and writes a PNG."""
    shared = all(chart.shared for chart in charts)
    most = max((len(chart.drawn) for chart in charts), default=0)
    rows, columns = frames.shape(len(charts), frames.COLUMNS if shared else 2)
    height = max(2.5, 1.1 + 0.28 * most) * rows
    inches = max(8, (3 + 3.2 * columns) if shared else 6.2 * columns), 1.6 + height
    how = path, inches, title, footer, columns
    drawn = frames.each_panel(_named(charts), *how, nothing=NOTHING)
    for axes, (*_, chart), leftmost, lowest in drawn:
        bottom_up = np.arange(len(chart.drawn))[::-1]
        values = [bar.value for bar in chart.drawn]
        axes.barh(bottom_up, values, xerr=_errors(chart.drawn), **_look(len(chart.drawn)))
        axes.axvline(0, color=frames.GREY, linewidth=0.8)
        names = [texts.shortened(bar.name, middle=True) for bar in chart.drawn]
        axes.set_yticks(bottom_up, names, parse_math=False)
        axes.set_ylim(len(values) - most - 0.6, len(values) - 0.4)  # bars of all panels are alike
        _finish(axes, "x", chart)
        axes.tick_params(labelleft=leftmost or not shared, labelbottom=lowest or not shared)
        if lowest:
            axes.set_xlabel(chart.axis.caption, fontsize=11)


def upright(charts: Sequence[Chart], path: Path, title: str, footer: str) -> None:
    """Draws upright bars, the first on the left, and writes a PNG."""
    rows, columns = frames.shape(len(charts))
    inches = max(9, 4.2 * columns), 1.8 + 3.4 * rows
    how = path, inches, title, footer, columns
    drawn = frames.each_panel(_named(charts), *how, nothing=NOTHING)
    for axes, (*_, chart), leftmost, lowest in drawn:
        bars = chart.drawn
        places = np.arange(1, len(bars) + 1)
        axes.bar(places, [bar.value for bar in bars], yerr=_errors(bars), **_look(len(bars)))
        axes.axhline(0, color=frames.GREY, linewidth=0.8)
        shown = texts.marks(len(bars), 20 if columns == 1 else 10)
        axes.set_xlim(0.3, len(bars) + 0.7)
        axes.set_xticks(shown, [bars[place - 1].name for place in shown], parse_math=False)
        _finish(axes, "y", chart)
        if leftmost:
            axes.set_ylabel(chart.axis.caption, fontsize=11)
        if lowest:
            axes.set_xlabel(chart.names, fontsize=11)


def _named(charts: Sequence[Chart | Matrix]) -> list[tuple[str, str, Any]]:
    return [(chart.title, chart.note, chart) for chart in charts]


def _errors(bars: Sequence[Bar]) -> Any:
    return [[bar.value - bar.low for bar in bars], [bar.high - bar.value for bar in bars]]


def _look(number: int) -> dict[str, Any]:
    few = number <= CAPPED
    errors = {"ecolor": frames.ERROR, "elinewidth": 1.2 if few else 0.6, "capsize": 3 * few}
    return {"color": frames.BAR, "error_kw": errors}


def _finish(axes: Axes, along: str, chart: Chart) -> None:
    """The scale of the counts, and a grid across it alone."""
    frames.plain(axes)
    axes.grid(visible=False, axis="y" if along == "x" else "x")
    frames.scale(axes, along, chart.axis, _TICKS)


def squares(matrices: Sequence[Matrix], path: Path, title: str, footer: str) -> None:
    """Draws weights as matrices of colours, with one scale of them, and writes a PNG."""
    n = max((len(matrix.names) for matrix in matrices), default=0)
    rows, columns = frames.shape(len(matrices))
    side = min(7.0, 3.4 + 0.09 * n) if len(matrices) == 1 else 4.2
    inches = max(7.5, 1.5 + side * columns), 1.8 + side * rows
    places = np.array(texts.marks(n, n if 0 < n <= CAPPED else 20)) - 1
    size: Any = {"fontsize": 9 if n <= CAPPED // 2 else 6.5, "parse_math": False}
    every: list[Axes] = []
    how = path, inches, title, footer, columns
    drawn = frames.each_panel(_named(matrices), *how, nothing=NOTHING)
    for axes, (*_, matrix), _, _ in drawn:
        scale = Normalize(-matrix.limit, matrix.limit)
        axes.imshow(matrix.weights, cmap=_WEIGHTS, norm=scale, interpolation="nearest")
        axes.set_facecolor(looks.NONE)  # of the diagonal, which has no weights
        names = [texts.shortened(matrix.names[place], middle=True) for place in places]
        axes.set_xticks(places, names, rotation=90, **size)
        axes.set_yticks(places, names, **size)
        every.append(axes)
        if len(every) == len(matrices):
            colours = ScalarMappable(norm=scale, cmap=_WEIGHTS)
            bar = axes.figure.colorbar(colours, ax=every, shrink=0.85, aspect=30)
            _lines(bar, matrices)


def _lines(bar: Any, matrices: Sequence[Matrix]) -> None:
    """Lines where bands of 0 end, and the caption of the widest."""
    widest = max(matrices, key=lambda matrix: matrix.half)
    for half in {matrix.half for matrix in matrices if matrix.half < matrix.limit}:
        for place in (-half, half):
            bar.ax.axhline(place, color=frames.ERROR, linewidth=1)
    frames.scale(bar.ax, "y", widest.axis, 8)
    bar.set_label(widest.axis.caption, fontsize=11)

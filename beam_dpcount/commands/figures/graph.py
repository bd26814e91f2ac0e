"""Figures of private degree histograms and weighted graphs, as PNG files; see `figures.series`."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib import ticker
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize

from beam_dpcount.commands.figures.frames import (
    BAR,
    ERROR,
    GREY,
    framed,
    plain,
    save,
    say,
    shape,
    shortened,
    titles,
    written,
)

_CAPPED = 40  # bars up to which error bars have caps, and vertices up to which all have names


@dataclass(frozen=True)
class Panel:
    """One release.

    Args:
      name: the panel's title.
      note: what stands below the title.
      values: the private counts, or weights.
      stddev: the standard deviation of the noise of each.
    """

    name: str
    note: str
    values: Sequence[float]
    stddev: float


def degrees(
    domain: Sequence[str],
    panels: Sequence[Panel],
    path: str | os.PathLike[str],
    *,
    title: str,
    guarantee: str,
    half_width: float = 1.96,
) -> None:
    """Draws private degree histograms as bars with error bars, one panel each; writes a PNG.

    Args:
      domain: the degrees, as texts, in their order.
      panels: the releases, with a count for each of them.
      path: the PNG file to write.
      title: plain text above the figure.
      guarantee: plain text below the figure, wrapped.
      half_width: half the length of an error bar, in standard deviations.

    Raises:
      ValueError: degrees and counts of a panel differ in number.
    """
    rows, columns = shape(len(panels))
    figure, body = framed((max(9, 4.2 * columns), 1.8 + 3.4 * rows), title, guarantee)
    if not panels:
        say(body.subplots(), "no releases")
    grid = body.add_gridspec(rows, columns)
    x, few = np.arange(1, len(domain) + 1), len(domain) <= _CAPPED
    first: Any = None
    for place, panel in enumerate(panels):
        values = np.asarray(panel.values, dtype=np.float64)
        if values.shape != x.shape:
            raise ValueError(
                f"panel {panel.name!r} must have one count for each of {len(domain)} degrees"
            )
        row, column = divmod(place, columns)
        axes = first = body.add_subplot(grid[row, column], sharex=first)
        axes.bar(
            x,
            values,
            yerr=half_width * panel.stddev,
            color=BAR,
            error_kw={"ecolor": ERROR, "elinewidth": 1.2 if few else 0.6, "capsize": 2 * few},
        )
        axes.axhline(0, color=GREY, linewidth=0.8)
        plain(axes, labelsize=10)
        axes.grid(visible=False, axis="x")
        axes.set_xlim(0.3, len(domain) + 0.7)
        axes.xaxis.set_major_locator(
            ticker.FixedLocator(_marks(len(domain), 20 if columns == 1 else 10))
        )
        axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda at, _: domain[round(at) - 1]))
        axes.yaxis.set_major_formatter(ticker.FuncFormatter(written))
        titles(axes, panel.name, panel.note)
        if column == 0:
            axes.set_ylabel(f"vertices ± {half_width:g} stddev", fontsize=11)
        if place + columns >= len(panels):
            axes.set_xlabel("neighbours", fontsize=11)
    save(figure, path)


def weights(
    vertices: Sequence[str],
    panels: Sequence[Panel],
    path: str | os.PathLike[str],
    *,
    title: str,
    guarantee: str,
    half_width: float = 1.96,
) -> None:
    """Draws the private weights of all pairs as matrices of colours, one a panel; writes a PNG.

    All panels share one scale, with 0 in its middle.

    Args:
      vertices: their names, in their order.
      panels: the releases, with a weight for each pair: first with second, first with third, ...
      path: the PNG file to write.
      title: plain text above the figure.
      guarantee: plain text below the figure, wrapped.
      half_width: where the scale is marked, in standard deviations.

    Raises:
      ValueError: pairs and weights of a panel differ in number.
    """
    n = len(vertices)
    rows, columns = shape(len(panels))
    size = min(7.0, 3.4 + 0.09 * n) if len(panels) == 1 else 4.2
    figure, body = framed((max(7.5, 1.5 + size * columns), 1.8 + size * rows), title, guarantee)
    if not panels:
        say(body.subplots(), "no releases")
        save(figure, path)
        return
    pairs = np.triu_indices(n, 1)
    matrices = []
    for panel in panels:
        values = np.asarray(panel.values, dtype=np.float64)
        if values.shape != pairs[0].shape:
            raise ValueError(
                f"panel {panel.name!r} must have one weight for each of {len(pairs[0])} pairs"
            )
        matrix = np.full((n, n), np.nan)
        matrix[pairs] = matrix.T[pairs] = values
        matrices.append(matrix)
    limit = max(float(np.nanmax(np.abs(matrix))) for matrix in matrices) or 1.0
    scale = Normalize(-limit, limit)
    all_axes = []
    for place, (panel, matrix) in enumerate(zip(panels, matrices, strict=True)):
        axes = body.add_subplot(rows, columns, place + 1)
        axes.imshow(matrix, cmap="RdBu", norm=scale, interpolation="nearest")
        axes.set_facecolor("#dddddd")  # of the diagonal, which has no weights
        marks = np.array(_marks(n) if n > _CAPPED else range(1, n + 1)) - 1
        names = [shortened(vertices[mark], middle=True) for mark in marks]
        labelsize = 9 if n <= _CAPPED // 2 else 6.5
        axes.set_xticks(marks, names, rotation=90, fontsize=labelsize, parse_math=False)
        axes.set_yticks(marks, names, fontsize=labelsize, parse_math=False)
        titles(axes, panel.name, panel.note)
        all_axes.append(axes)
    bar = body.colorbar(
        ScalarMappable(norm=scale, cmap="RdBu"), ax=all_axes, shrink=0.85, aspect=30
    )
    for half in {half_width * panel.stddev for panel in panels}:
        if half < limit:
            bar.ax.axhline(half, color=ERROR, linewidth=1)
            bar.ax.axhline(-half, color=ERROR, linewidth=1)
    bar.ax.yaxis.set_major_formatter(ticker.FuncFormatter(written))
    most = max(panel.stddev for panel in panels)
    bar.set_label(f"private weight (stddev {most:.3g})", fontsize=11)
    save(figure, path)


def _marks(n: int, most: int = 20) -> list[int]:
    """Which of 1 .. n have their names on an axis: about `most`, the first and the last always."""
    step = math.ceil(n / most)
    return [1, *range(1 + step, n - step + 1, step), n] if n > 1 else [1]

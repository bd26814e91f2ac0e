"""Figures of private weighted graphs, as PNG files."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
from matplotlib import ticker
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize

from beam_dpcount.commands.figures.frames import (
    CAPPED,
    ERROR,
    Panel,
    framed,
    marks,
    save,
    say,
    shape,
    shortened,
    titles,
    written,
)


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
        matrix = np.full((n, n), np.nan)
        values = panel.of(len(pairs[0]), "weight", f"{len(pairs[0])} pairs")
        matrix[pairs] = matrix.T[pairs] = values
        matrices.append(matrix)
    limit = max(float(np.nanmax(np.abs(matrix))) for matrix in matrices) or 1.0
    scale = Normalize(-limit, limit)
    all_axes = []
    for at, (panel, matrix) in enumerate(zip(panels, matrices, strict=True), start=1):
        axes = body.add_subplot(rows, columns, at)
        axes.imshow(matrix, cmap="RdBu", norm=scale, interpolation="nearest")
        axes.set_facecolor("#dddddd")  # of the diagonal, which has no weights
        places = np.array(marks(n) if n > CAPPED else range(1, n + 1)) - 1
        names = [shortened(vertices[place], middle=True) for place in places]
        labelsize = 9 if n <= CAPPED // 2 else 6.5
        axes.set_xticks(places, names, rotation=90, fontsize=labelsize, parse_math=False)
        axes.set_yticks(places, names, fontsize=labelsize, parse_math=False)
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

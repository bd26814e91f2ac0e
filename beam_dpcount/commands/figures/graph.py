"""Figures of private weighted graphs, as PNG files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize

from beam_dpcount.commands.figures import frames, pictures, texts
from beam_dpcount.commands.figures.frames import Path
from beam_dpcount.commands.figures.pictures import Panel


def weights(
    vertices: Sequence[str], panels: Sequence[Panel], path: Path, *, title: str, guarantee: str
) -> None:
    """Draws the private weights of all pairs as matrices of colours, on one scale around 0.

    Args:
      panels: with a weight for each pair (first and second, first and third ...), or a ValueError.
      path, title, guarantee: as for `bars.histograms`.
    """
    n = len(vertices)
    rows, columns = frames.shape(len(panels))
    size = min(7.0, 3.4 + 0.09 * n) if len(panels) == 1 else 4.2
    inches = max(7.5, 1.5 + size * columns), 1.8 + size * rows
    pairs = np.triu_indices(n, 1)
    noun = f"{len(pairs[0])} pairs"
    values = [panel.of(len(pairs[0]), "weight", noun) for panel in panels]
    limit = float(np.max(np.abs(values), initial=0.0)) or 1.0
    scale = Normalize(-limit, limit)
    all_axes: list[Any] = []
    drawn = frames.each_panel(panels, path, inches, title, guarantee, columns)
    for numbers, (axes, *_) in zip(values, drawn, strict=True):
        matrix = np.full((n, n), np.nan)
        matrix[pairs] = matrix.T[pairs] = numbers
        axes.imshow(matrix, cmap="RdBu", norm=scale, interpolation="nearest")
        axes.set_facecolor("#dddddd")  # of the diagonal, which has no weights
        places = np.array(texts.marks(n) if n > pictures.CAPPED else range(1, n + 1)) - 1
        names = [texts.shortened(vertices[place], middle=True) for place in places]
        labelsize = 9 if n <= pictures.CAPPED // 2 else 6.5
        axes.set_xticks(places, names, rotation=90, fontsize=labelsize, parse_math=False)
        axes.set_yticks(places, names, fontsize=labelsize, parse_math=False)
        all_axes.append(axes)
        if len(all_axes) == len(panels):
            colours = ScalarMappable(norm=scale, cmap="RdBu")
            bar = axes.figure.colorbar(colours, ax=all_axes, shrink=0.85, aspect=30)
            for half in {pictures.STDDEVS * panel.stddev for panel in panels}:
                if half < limit:
                    bar.ax.axhline(half, color=frames.ERROR, linewidth=1)
                    bar.ax.axhline(-half, color=frames.ERROR, linewidth=1)
            bar.ax.yaxis.set_major_formatter(texts.written)
            most = max(panel.stddev for panel in panels)
            bar.set_label(f"private weight (stddev {most:.3g})", fontsize=11)

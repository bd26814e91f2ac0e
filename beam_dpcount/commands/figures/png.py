"""Draws a picture as a PNG file, by matplotlib, which is an extra."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

from beam_dpcount.commands.figures import bars, graph, pictures, series
from beam_dpcount.commands.figures.frames import Path


def draw(
    picture: pictures.Picture,
    path: Path,
    said: str,
    truth: Mapping[Any, npt.ArrayLike] | None = None,
) -> None:
    """Writes a PNG file.

    Args:
      picture: what is drawn.
      path: the file to write.
      said: the text below, before the picture's own: the guarantee, or that there is none.
      truth: exact counts by key, of running counts only; see `series.prefix_counts`.
    """
    title = picture.title
    if truth is not None:
        title = title.replace("Private", "Private and exact", 1)
    how: Any = {"title": title, "guarantee": f"{said} {picture.footer}"}
    if isinstance(picture, pictures.Running):
        names = ("only", "selected", "time_axis", "zone", "sum_of", "single")
        how |= {name: getattr(picture, name) for name in names}
        how |= {} if picture.order is None else {"order": picture.order}
        series.prefix_counts(picture.columns, path, truth=truth, **how)
    elif isinstance(picture, pictures.Bars):
        how |= {"top": picture.top, "most": picture.most}
        bars.histograms(picture.items, picture.panels, path, **how)
    elif isinstance(picture, pictures.Ranked):
        bars.top_words(picture.panels, path, **how)
    elif isinstance(picture, pictures.Degrees):
        bars.degrees(picture.domain, picture.panels, path, **how)
    elif isinstance(picture, pictures.Weights):
        graph.weights(picture.vertices, picture.panels, path, **how)

"""Draws a picture as a PNG file, by matplotlib, which is an extra."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

from beam_dpcount.commands.figures import bars, charts, counts, pictures, running
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
      truth: exact counts by key, of running counts only. Not private: for demonstrations on
        made-up data.
    """
    title, footer = picture.title, " ".join(filter(None, [said, picture.footer]))
    if isinstance(picture, pictures.Running):
        drawn = running.counts_of(picture, counts.MOST, truth=truth)
        counts.draw(drawn, path, footer, private=truth is not None)
    elif isinstance(picture, pictures.Weights):
        bars.squares(charts.matrices_of(picture), path, title, footer)
    elif isinstance(picture, pictures.Degrees):
        bars.upright(charts.charts_of(picture), path, title, footer)
    else:
        bars.across(charts.charts_of(picture), path, title, footer)

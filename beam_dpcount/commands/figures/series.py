"""Figures of errors: named lines, written as PNG files."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from beam_dpcount.commands.figures import frames, looks, running
from beam_dpcount.commands.figures.frames import Path
from beam_dpcount.commands.figures.running import EXACT as EXACT

_STYLES: tuple[Any, ...] = tuple((0, dashes) if dashes else "-" for dashes in looks.DASHES)
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">", "p")  # of lines of few points
_DARK = "#222222"

FloatArray = npt.NDArray[np.float64]
Looks = Mapping[str, tuple[Any, ...]]
Series = Mapping[str, Sequence[npt.ArrayLike]]


def lines(
    series: Series,
    path: Path,
    *,
    xlabel: str,
    ylabel: str,
    title: str,
    logx: bool = False,
    logy: bool = False,
    base: float = 10,
    footer: str | None = None,
) -> None:
    """Draws named lines in one pair of axes and writes a PNG.

    The legend is beside the axes, in the order in which the lines end, highest first.

    Args:
      series: label -> `(x, y)` or `(x, y, band)`, with `y - band` to `y + band` shaded: arrays of
        one length, or a ValueError; `band` may be a scalar.
      xlabel, ylabel: may use mathtext, as labels of series may; `title` and `footer` are plain.
      base: of the powers at which a logarithmic x axis has its ticks.
    """
    figure, body = frames.framed((10, 6), title, footer or "")
    axes = body.subplots()
    ends = draw_lines(axes, series, looks_of(series), 2.0, logx, logy)
    if ends:
        if logx:
            axes.set_xscale("log", base=base)
        if not logy and all(np.all(np.mod(arrays[1], 1) == 0) for arrays in series.values()):
            axes.yaxis.set_major_locator(ticker.MaxNLocator("auto", integer=True))
        axes.set_xlabel(xlabel, fontsize=12)
        axes.set_ylabel(ylabel, fontsize=12)
        frames.plain(axes, labelsize=11)
        handles = [line for _, line in sorted(ends, key=lambda end: -end[0])]
        beside = frames.LEGEND | {"loc": "outside right upper", "ncols": 1}
        body.legend(handles=handles, **beside, fontsize=11, handlelength=3)
    else:
        frames.say(axes, "no data")
    frames.save(figure, path)


def looks_of(labels: Iterable[str]) -> Looks:
    """A colour, a line style and a marker for each label."""
    all_looks = zip(cycle(looks.LIGHT), cycle(_STYLES), cycle(_MARKERS), strict=False)
    others = dict.fromkeys(label for label in labels if label != EXACT)
    return {**dict(zip(others, all_looks, strict=False)), EXACT: (_DARK, "--", "x")}


def draw_lines(
    axes: Axes, series: Series, look_of: Looks, width: float, logx: bool = False, logy: bool = False
) -> list[tuple[float, Line2D]]:
    """Draws the series; returns the last finite value of each, and its line."""
    ends: list[tuple[float, Line2D]] = []
    for label, arrays in series.items():
        colour, style, marker = look_of[label]
        if len(arrays) not in (2, 3):
            count = len(arrays)
            raise ValueError(f"series {label!r} must be (x, y) or (x, y, band): {count} arrays")
        x, y, band = map(running.floats, (*arrays, 0.0)[:3])
        if x.shape != y.shape or x.ndim != 1:
            raise ValueError(f"series {label!r}: x has shape {x.shape}, y has shape {y.shape}")
        kept = running.kept_of(len(x), logarithmic=logx)
        x, y, band = x[kept], y[kept], np.broadcast_to(band, x.shape)[kept]
        dots = {"marker": marker if len(x) <= running.FEW_POINTS else None, "markersize": 5}
        look = {"color": colour, "linestyle": style, "linewidth": width, **dots}
        (line,) = axes.plot(x, y, **look, label=label)
        # On a log scale a band that reaches zero would stretch the axis without end.
        low = np.maximum(y - band, y / 10) if logy else y - band
        if np.any(band > 0):
            axes.fill_between(x, low, y + band, color=colour, alpha=0.18, linewidth=0)
        finite = y[np.isfinite(y)]
        ends.append((float(finite[-1]) if len(finite) else -math.inf, line))
    if ends:
        axes.set_xscale("log" if logx else "linear")
        axes.set_yscale("log" if logy else "linear")
    return ends

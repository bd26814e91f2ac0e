"""Figures of the last releases of some keys as bars with error bars, a panel each, as PNG files."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib import ticker
from matplotlib.axes import Axes

from beam_dpcount.commands.figures import frames, pictures, texts
from beam_dpcount.commands.figures.frames import Path
from beam_dpcount.commands.figures.pictures import Panel, Words

_ERRORS = {"ecolor": frames.ERROR, "elinewidth": 1.2, "capsize": 3}

FloatArray = npt.NDArray[np.float64]


def histograms(
    items: Sequence[str],
    panels: Sequence[Panel],
    path: Path,
    *,
    title: str,
    guarantee: str,
    top: int | None = None,
    most: int = 20,
) -> None:
    """Draws private histograms as horizontal bars.

    All panels show the same items in the same order, and share the axis of counts.

    Args:
      panels: with a count for each item, or a ValueError.
      path: the PNG file to write.
      title, guarantee: plain text above and below the figure.
      top: draw so many items, those of the largest totals first. They are chosen for being large,
        which biases them upwards. By default the first items, in their order.
      most: the most items to draw without `top`.
    """
    counts = [panel.of(len(items), "count", f"its {len(items)} items") for panel in panels]
    kept = np.arange(len(items))[:most]
    if top is not None:
        totals = sum(counts, np.zeros(len(items)))
        kept = np.argsort(-totals, kind="stable")[:top]
    rows, columns = frames.shape(len(panels))
    height = max(2.5, 1.1 + 0.28 * len(kept))
    size = max(8, 3 + 3.2 * columns), 1.6 + height * rows
    bottom_up = np.arange(len(kept))[::-1]
    names = [texts.shortened(items[i], middle=True) for i in kept]
    drawn = frames.each_panel(panels, path, size, title, guarantee, columns, ("x", "y"))
    for values, (axes, panel, leftmost, lowest) in zip(counts, drawn, strict=True):
        halves = pictures.STDDEVS * np.broadcast_to(panel.stddev, values.shape)
        _across(axes, bottom_up, values[kept], halves[kept])
        axes.tick_params(labelleft=leftmost, labelbottom=lowest)
        if lowest:
            axes.set_xlabel(f"private count ± {pictures.STDDEVS:g} stddev", fontsize=11)
        axes.set_yticks(bottom_up, names, parse_math=False)
        axes.xaxis.set_major_locator(ticker.MaxNLocator(5))
        axes.xaxis.set_major_formatter(texts.written)


def degrees(
    domain: Sequence[str], panels: Sequence[Panel], path: Path, *, title: str, guarantee: str
) -> None:
    """Draws private degree histograms as upright bars, of a domain of degrees as texts.

    The other arguments are as for `histograms`.
    """
    rows, columns = frames.shape(len(panels))
    size = max(9, 4.2 * columns), 1.8 + 3.4 * rows
    x, few = np.arange(1, len(domain) + 1), len(domain) <= pictures.CAPPED
    shown = ticker.FixedLocator(texts.marks(len(domain), 20 if columns == 1 else 10))
    drawn = frames.each_panel(panels, path, size, title, guarantee, columns, ("x",))
    for axes, panel, leftmost, lowest in drawn:
        axes.bar(
            x,
            panel.of(len(domain), "count", f"{len(domain)} degrees"),
            yerr=pictures.STDDEVS * panel.stddev,
            color=frames.BAR,
            error_kw={**_ERRORS, "elinewidth": 1.2 if few else 0.6, "capsize": 2 * few},
        )
        axes.axhline(0, color=frames.GREY, linewidth=0.8)
        frames.plain(axes)
        axes.grid(visible=False, axis="x")
        axes.set_xlim(0.3, len(domain) + 0.7)
        axes.xaxis.set_major_locator(shown)
        axes.xaxis.set_major_formatter(lambda at, _: domain[round(at) - 1])
        axes.yaxis.set_major_formatter(texts.written)
        if leftmost:
            axes.set_ylabel(f"vertices ± {pictures.STDDEVS:g} stddev", fontsize=11)
        if lowest:
            axes.set_xlabel("neighbours", fontsize=11)


def top_words(panels: Sequence[Words], path: Path, *, title: str, guarantee: str) -> None:
    """Draws words as `histograms` draws items, but each panel has its own words and scale."""
    columns = min(2, max(1, len(panels)))
    rows = max(1, math.ceil(len(panels) / columns))
    most = max((len(panel.rows) for panel in panels), default=0)
    size = max(9, 6.2 * columns), 1.8 + max(2.2, 1.2 + 0.27 * most) * rows
    drawn = frames.each_panel(panels, path, size, title, guarantee, columns, nothing="no words")
    for axes, panel, _, lowest in drawn:
        words = [texts.shortened(word, middle=True) for word, *_ in panel.rows]
        values, low, high = np.array([numbers for _, *numbers in panel.rows]).reshape(-1, 3).T
        bottom_up = np.arange(len(values))[::-1]
        _across(axes, bottom_up, values, (values - low, high - values))
        axes.set_ylim(len(values) - most - 0.6, len(values) - 0.4)  # bars of all panels are alike
        axes.set_yticks(bottom_up, words, parse_math=False)
        axes.xaxis.set_major_locator(ticker.MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
        axes.xaxis.set_major_formatter(texts.written)
        if lowest:
            axes.set_xlabel("private count, with its 95 % band", fontsize=11)


def _across(axes: Axes, places: Any, values: FloatArray, errors: Any) -> None:
    axes.barh(places, values, xerr=errors, color=frames.BAR, error_kw=_ERRORS)
    axes.axvline(0, color=frames.GREY, linewidth=0.8)
    frames.plain(axes)
    axes.grid(visible=False, axis="y")

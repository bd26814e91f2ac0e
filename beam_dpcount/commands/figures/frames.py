"""What figures share: their frame, titles and numbers.

Figures are built from `matplotlib.figure.Figure`, never pyplot, so that nothing here depends on
or changes global state (a display, the current figure).
"""

from __future__ import annotations

import math
import os
import textwrap
import unicodedata
import warnings
from collections.abc import Collection, Hashable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from beam_dpcount.commands.files.beside import beside

DPI = 150
COLUMNS = 3  # of panels
STDDEVS = 1.96  # half the length of an error bar
TITLE_WIDTH = 30  # narrow characters
CAPPED = 40  # bars up to which error bars have caps, and vertices up to which all have names
BAR, ERROR, GREY = "#56B4E9", "#222222", "#555555"


class Panel(NamedTuple):
    """One release.

    Fields:
      name: the panel's title.
      note: what stands below the title.
      values: the private counts, or weights.
      stddev: the standard deviation of the noise of each.
    """

    name: str
    note: str
    values: Sequence[float]
    stddev: float

    def of(self, number: int, noun: str, places: str) -> npt.NDArray[np.float64]:
        """The values of so many places, or a ValueError."""
        values = np.asarray(self.values, dtype=np.float64)
        if values.shape != (number,):
            raise ValueError(f"panel {self.name!r} must have one {noun} for each of {places}")
        return values


def each_panel(
    panels: Sequence[Any],
    path: str | os.PathLike[str],
    inches: tuple[float, float],
    title: str,
    guarantee: str,
    columns: int,
    shared: Collection[str] = (),
    nothing: str = "no releases",
) -> Iterator[tuple[Axes, Any, bool, bool]]:
    """Axes for each panel, to be drawn in, and whether they are leftmost, and lowest.

    The picture is written at the end.

    Args:
      panels: titles, notes and what more there is.
      shared: the axes, x or y, that all panels share.
      nothing: what is said where there is no panel.
    """
    figure, body = framed(inches, title, guarantee)
    if not panels:
        say(body.subplots(), nothing)
    grid = body.add_gridspec(max(1, math.ceil(len(panels) / columns)), columns)
    first: Any = None
    for place, panel in enumerate(panels):
        how = {f"share{axis}": first for axis in shared}
        axes = body.add_subplot(grid[divmod(place, columns)], **how)
        first = first or axes
        yield axes, panel, place % columns == 0, place + columns >= len(panels)
        titles(axes, panel[0], panel[1])
    save(figure, path)


def shape(panels: int) -> tuple[int, int]:
    """Rows and columns for so many panels."""
    rows = max(1, math.ceil(panels / COLUMNS))
    return rows, max(1, math.ceil(panels / rows))


def written(value: float, _: float | None) -> str:
    """A number on an axis."""
    return f"{value:,.10g}".replace("-", "\N{MINUS SIGN}")


def framed(inches: tuple[float, float], title: str, footer: str) -> tuple[Figure, SubFigure]:
    """A figure with its title and footer, and the space between them."""
    figure = Figure(inches, DPI, layout=ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.06))
    footer = footer.replace(" %", "\u00a0%")  # not to be torn apart
    title = textwrap.fill(title, int(8 * inches[0]), break_on_hyphens=False)
    figure.suptitle(title, fontsize=15, fontweight="bold", parse_math=False)
    filled = [
        textwrap.fill(line, int(13 * inches[0]), break_on_hyphens=False)
        for line in footer.splitlines()
    ]
    left = {"x": 0.01, "horizontalalignment": "left", "multialignment": "left"}
    if filled:
        text = "\n".join(filled)
        figure.supxlabel(text, **left, fontsize=10, color=GREY, parse_math=False)
    # A subfigure of its own keeps the legend from landing on the figure's title.
    return figure, figure.add_subfigure(figure.add_gridspec(1, 1)[0])


def plain(axes: Axes, labelsize: float = 10) -> None:
    """A grid behind, and no frame above and to the right."""
    axes.tick_params(labelsize=labelsize)
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def titles(axes: Axes, key: Hashable, note: str) -> None:
    """A panel's title and, below it, a note."""
    pad = 20 if note else 6
    name = shortened(key)
    axes.set_title(name, loc="left", pad=pad, fontsize=12, fontweight="bold", parse_math=False)
    axes.annotate(
        note, (0, 1), (0, 6), xycoords="axes fraction", textcoords="offset points", color=GREY
    )


def say(axes: Axes, text: str) -> None:
    """A text in place of a panel."""
    axes.set_axis_off()
    axes.text(0.5, 0.5, text, ha="center", va="center", fontsize=18, color=GREY)


def save(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Write a figure as PNG."""
    with warnings.catch_warnings():
        # A key in a script the font lacks is drawn as boxes; that is no fault of the caller's.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        warnings.filterwarnings("ignore", message="Matplotlib currently does not support")
        with beside(os.fspath(path)) as name:
            figure.savefig(name, format="png", dpi=DPI, metadata={"Software": None})


def shortened(key: Hashable, middle: bool = False) -> str:
    """The key as one line of printable text, cut to the width of a panel's title.

    In the middle: texts that begin alike often end differently.
    """
    text = key.decode("utf-8", "replace") if isinstance(key, bytes) else str(key)
    text = "".join(letter if letter.isprintable() else "\ufffd" for letter in text)
    if not text.strip():
        return repr(text)
    if _head(text, TITLE_WIDTH) == text:
        return text
    tail = _head(text[::-1], TITLE_WIDTH // 2)[::-1].lstrip() if middle else ""
    return _head(text, TITLE_WIDTH // (2 if middle else 1)).rstrip() + "…" + tail


def _head(text: str, most: int) -> str:
    """As much of a text from its start as `most` narrow characters have room for."""
    width = 0
    for position, letter in enumerate(text):
        width += 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        if width > most:
            return text[:position]
    return text


def marks(n: int, most: int = 20) -> list[int]:
    """Which of 1 .. n have their names on an axis: about `most`, the first and the last always."""
    step = math.ceil(n / most)
    return [1, *range(1 + step, n - step + 1, step), n] if n > 1 else [1]

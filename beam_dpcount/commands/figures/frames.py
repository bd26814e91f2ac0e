"""What figures share: their frame, titles and numbers.

They are made of `matplotlib.figure.Figure`, never of pyplot, so no global state is used or changed.
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

Path = str | os.PathLike[str]


class Panel(NamedTuple):
    """One release."""

    name: str  # its title
    note: str  # below the title
    values: Sequence[float]  # private counts, or weights
    stddev: float  # of the noise in each value

    def of(self, number: int, noun: str, places: str) -> npt.NDArray[np.float64]:
        """The values, so many, or a ValueError."""
        values = np.asarray(self.values, dtype=np.float64)
        if values.shape != (number,):
            raise ValueError(f"panel {self.name!r} must have one {noun} for each of {places}")
        return values


def each_panel(
    panels: Sequence[Any],
    path: Path,
    inches: tuple[float, float],
    title: str,
    guarantee: str,
    columns: int,
    shared: Collection[str] = (),
    nothing: str = "no releases",
) -> Iterator[tuple[Axes, Any, bool, bool]]:
    """Yields axes to draw in, the panel, and whether the axes are leftmost, and lowest.

    The picture is written at the end. `panels` begin with their titles and notes; `shared` are the
    axes, x or y, that all have in common; `nothing` is said where there is no panel.
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
    title = textwrap.fill(title, int(8 * inches[0]), break_on_hyphens=False)
    figure.suptitle(title, fontsize=15, fontweight="bold", parse_math=False)
    whole = footer.replace(" %", "\u00a0%").splitlines()  # never a line break before %
    width = int(13 * inches[0])
    text = "\n".join(textwrap.fill(line, width, break_on_hyphens=False) for line in whole)
    left = {"x": 0.01, "horizontalalignment": "left", "multialignment": "left"}
    if whole:
        figure.supxlabel(text, **left, fontsize=10, color=GREY, parse_math=False)
    # Without a subfigure of its own, the legend may land on the figure's title.
    return figure, figure.add_subfigure(figure.add_gridspec(1, 1)[0])


def plain(axes: Axes, labelsize: float = 10) -> None:
    """A grid, and no frame above and to the right."""
    axes.tick_params(labelsize=labelsize)
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def titles(axes: Axes, key: Hashable, note: str) -> None:
    """A panel's title and, below it, a note."""
    look: Any = {"pad": 20 if note else 6, "fontsize": 12, "fontweight": "bold"}
    axes.set_title(shortened(key), loc="left", parse_math=False, **look)
    how: Any = {"xycoords": "axes fraction", "textcoords": "offset points", "color": GREY}
    axes.annotate(note, (0, 1), (0, 6), **how)


def say(axes: Axes, text: str) -> None:
    """A text in place of a panel."""
    axes.set_axis_off()
    axes.text(0.5, 0.5, text, ha="center", va="center", fontsize=18, color=GREY)


def save(figure: Figure, path: Path) -> None:
    """Write a figure as PNG."""
    with warnings.catch_warnings():
        # A key in a script that the font lacks is drawn as boxes: not the caller's fault.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        warnings.filterwarnings("ignore", message="Matplotlib currently does not support")
        with beside(os.fspath(path)) as name:
            figure.savefig(name, format="png", dpi=DPI, metadata={"Software": None})


def shortened(key: Hashable, middle: bool = False) -> str:
    """The key as printable text, cut to the width of a panel's title at its end or in the middle.

    In the middle suits texts that begin alike: they often end differently.
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
    """The start of a text, as far as `most` narrow characters would reach."""
    width = 0
    for position, letter in enumerate(text):
        width += 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        if width > most:
            return text[:position]
    return text


def marks(n: int, most: int = 20) -> list[int]:
    """Which of 1 .. n have names on an axis: about `most`, and always the first and the last."""
    step = math.ceil(n / most)
    return [1, *range(1 + step, n - step + 1, step), n] if n > 1 else [1]

"""What figures share: their frame, titles and numbers.

They are made of `matplotlib.figure.Figure`, never of pyplot, so no global state is used or changed.
"""

from __future__ import annotations

import math
import os
import textwrap
import warnings
from collections.abc import Collection, Hashable, Iterator, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from beam_dpcount.commands.figures import fonts, texts
from beam_dpcount.commands.figures.scales import Axis
from beam_dpcount.commands.files.beside import beside

DPI = 150
COLUMNS = 3  # of panels
BAR, ERROR, GREY = "#56B4E9", "#222222", "#555555"

LEGEND: dict[str, Any] = {"loc": "outside upper center", "ncols": 4, "frameon": False}

BOXES = "Some characters are drawn as boxes: no font on the machine that drew this has them."

Path = str | os.PathLike[str]


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


def shape(panels: int, most: int = COLUMNS) -> tuple[int, int]:
    """Rows and columns, at most so many, for so many panels."""
    rows = max(1, math.ceil(panels / most))
    return rows, max(1, math.ceil(panels / rows))


def framed(inches: tuple[float, float], title: str, footer: str) -> tuple[Figure, SubFigure]:
    """A figure with its title and footer, and the space between them."""
    figure = Figure(inches, DPI, layout=ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.06))
    title = textwrap.fill(title, int(8 * inches[0]), break_on_hyphens=False)
    figure.suptitle(title, fontsize=15, fontweight="bold", parse_math=False)
    _below(figure, footer)
    # Without a subfigure of its own, the legend may land on the figure's title.
    return figure, figure.add_subfigure(figure.add_gridspec(1, 1)[0])


def _below(figure: Figure, footer: str) -> None:
    whole = footer.replace(" %", "\u00a0%").splitlines()  # never a line break before %
    width = int(13 * figure.get_figwidth())
    text = "\n".join(textwrap.fill(line, width, break_on_hyphens=False) for line in whole)
    left: Any = {"x": 0.01, "horizontalalignment": "left", "multialignment": "left"}
    if whole:
        figure.supxlabel(text, **left, fontsize=10, color=GREY, parse_math=False)


def plain(axes: Axes, labelsize: float = 10) -> None:
    """A grid, and no frame above and to the right."""
    axes.tick_params(labelsize=labelsize)
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def scale(axes: Axes, along: str, scale: Axis, most: int, margin: float = 0.0) -> None:
    """The limits and at most about so many ticks of the axis `along`, x or y.

    `margin`: a part of the length beyond both ends, for marks that stand there.
    """
    beyond = margin * (scale.high - scale.low)
    ticks = scale.ticks(most)
    axes.set(
        **{
            f"{along}lim": (scale.low - beyond, scale.high + beyond),
            f"{along}ticks": [place for place, _ in ticks],
            f"{along}ticklabels": [text for _, text in ticks],
        }
    )


def titles(axes: Axes, key: Hashable, note: str) -> None:
    """A panel's title and, below it, a note."""
    look: Any = {"pad": 20 if note else 6, "fontsize": 12, "fontweight": "bold"}
    axes.set_title(texts.shortened(key), loc="left", parse_math=False, **look)
    how: Any = {"xycoords": "axes fraction", "textcoords": "offset points", "color": GREY}
    axes.annotate(note, (0, 1), (0, 6), **how)


def say(axes: Axes, text: str) -> None:
    """A text in place of a panel."""
    axes.set_axis_off()
    axes.text(0.5, 0.5, text, ha="center", va="center", fontsize=18, color=GREY)


def save(figure: Figure, path: Path, private: bool = False) -> None:
    """Write a figure as PNG; `private` as for `beside`."""
    if fonts.cover(figure):
        _below(figure, f"{figure.get_supxlabel()}\n{BOXES}".strip())
    with warnings.catch_warnings():
        # A key in a script that no font has is drawn as boxes: the footer says so.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        warnings.filterwarnings("ignore", message="Matplotlib currently does not support")
        with beside(os.fspath(path), private=private) as name:
            figure.savefig(name, format="png", dpi=DPI, metadata={"Software": None})

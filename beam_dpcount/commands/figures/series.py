"""Figures of private running counts and of errors, written as PNG files."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from datetime import timezone, tzinfo
from itertools import cycle
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib import dates, ticker
from matplotlib.axes import Axes
from matplotlib.figure import SubFigure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from beam_dpcount.commands.figures import frames, looks, pictures, running, texts
from beam_dpcount.commands.figures.frames import Path

EXACT = "exact (shown for demonstration only)"

_BLUE, _VERMILLION, _SKY = "#0072B2", "#D55E00", "#56B4E9"
_STYLES: tuple[Any, ...] = tuple((0, dashes) if dashes else "-" for dashes in looks.DASHES)
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">", "p")  # of lines of few points
_DARK = "#222222"
_FEW_POINTS = 40  # up to here every release has a marker
_MINUTE = 1 / 1440  # in days, matplotlib's unit of time
LEGEND: dict[str, Any] = {"loc": "outside upper center", "ncols": 4, "frameon": False}

FloatArray = npt.NDArray[np.float64]
Keys = Sequence[Hashable] | None
Looks = Mapping[str, tuple[Any, ...]]
Series = Mapping[str, Sequence[npt.ArrayLike]]


def prefix_counts(
    columns: Mapping[str, Any],
    path: Path,
    *,
    title: str,
    guarantee: str,
    half_width: float = pictures.STDDEVS,
    truth: Mapping[Any, npt.ArrayLike] | None = None,
    order: Keys = None,
    only: Keys = None,
    max_panels: int = 6,
    time_axis: bool = True,
    zone: tzinfo = timezone.utc,
    sum_of: str | None = None,
    selected: bool = False,
    single: bool = False,
) -> None:
    """Draws private running counts, one panel a key, and writes a PNG.

    Each panel has the running count above. The noise is often too small to see there, so a strip
    below shows the band around zero (and the error, given `truth`). All strips share one scale; if
    all are alike, there is one for all panels.

    Keys are never chosen by their private values: bands miss more often for keys drawn for their
    noise. The text below says how they were chosen, if not all are drawn.

    Args:
      columns: one row a release, in any order: `key`, `step`, `value`, `stddev` (of the noise in
        `value`) and optionally `timestamp` (microseconds since the epoch, or None).
      path, title, guarantee: as for `bars.histograms`.
      half_width: half the width of the band, in standard deviations.
      truth: exact running counts by key, one for each of its releases in order of step. Not
        private: for demonstrations on made-up data.
      order: all keys in a public order, whose first are drawn. By default keys are ranked by their
        number of releases, which then must be public, and by name; ranks 1, 2, 4, 8, ... and the
        last are drawn.
      only: draw these keys, as far as they have releases.
      max_panels: the most keys to draw, without `only`.
      time_axis: draw against time if every release has one, else against steps.
      zone: of the times on the axis.
      sum_of: what is summed, if releases are sums and not counts.
      selected: keys are there for their own private counts, each from some release on: their
        number of releases says nothing else, so that the first by name are drawn.
      single: there is but one key, whose name says nothing and is not drawn.

    Raises:
      ValueError: columns differ in length, or `truth` and the releases of a key do.
    """
    panels = running.panels_of(columns, half_width, truth or {})
    shown, how = running.choice(panels, order, only, max_panels, selected)
    rows = max(2, math.ceil(len(shown) / frames.COLUMNS))
    timed = bool(shown) and time_axis and running.has_times(shown)
    own_axes = running.own_axes(shown, timed)
    if len(shown) > 1:
        of_time = f", and {'time' if timed else 'steps'} of its own" * own_axes
        guarantee += f" Each panel has its own scale{of_time}."
    figure, body = frames.framed((12, 4 * rows), title, guarantee + how)
    if shown:
        drawn = [panel.thinned() for panel in shown]
        _draw_panels(body, drawn, half_width, timed, zone, sum_of, own_axes, single)
    else:
        frames.say(body.subplots(), "no key was shown" if selected else "no releases")
    frames.save(figure, path, private=truth is not None)


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
        beside = LEGEND | {"loc": "outside right upper", "ncols": 1}
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
        dots = {"marker": marker if len(x) <= _FEW_POINTS else None, "markersize": 5}
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


def _draw_panels(
    body: SubFigure,
    panels: Sequence[running.Panel],
    half_width: float,
    timed: bool,
    zone: tzinfo,
    sum_of: str | None,
    own_axes: bool,
    single: bool,
) -> None:
    kind = "count" if sum_of is None else "sum"
    label = "private count" if sum_of is None else f"private sum of {texts.shortened(sum_of)}"
    counts, strips = _axes(body, panels, own_axes)
    for place, panel in enumerate(panels):
        x = _x(panel, timed)
        _draw_count(counts[place], x, panel)
        last = f"last {kind} {running.readable(panel)}"
        frames.titles(counts[place], *((last, "") if single else (panel.key, last)))
        if place < len(strips):
            _draw_strip(strips[place], x, panel)
    exact = any(panel.has_truth for panel in panels)
    _, columns = frames.shape(len(panels))
    for axes in counts[::columns]:
        axes.set_ylabel(label, fontsize=11, parse_math=False)
    for axes in strips[::columns]:
        axes.set_ylabel("error" if exact else "± band", fontsize=11)
    limit = 1.12 * max(_extent(panel) for panel in panels) or 1.0
    strips[0].set_ylim(-limit, limit)
    strips[0].yaxis.set_major_locator(ticker.MaxNLocator(3, symmetric=True))
    ends = np.array([_x(panel, timed)[[0, -1]] for panel in panels])
    body.align_ylabels()
    if own_axes:
        for axes, (low, high) in zip(strips, ends.tolist(), strict=True):
            axes.set_xlabel(_x_axis(axes, low, high, timed, zone, most=5), fontsize=10)
    else:
        below = _x_axis(strips[0], float(ends.min()), float(ends.max()), timed, zone)
        for axes in (*counts, *strips):
            if axes.xaxis.get_tick_params()["labelbottom"]:
                axes.set_xlabel(below, fontsize=11)
    body.legend(handles=_legend_handles(panels, half_width, label), **LEGEND, fontsize=10.5)


def _axes(
    body: SubFigure, panels: Sequence[running.Panel], own: bool
) -> tuple[list[Axes], list[Axes]]:
    """Axes for the count of each panel; and for the strip of each, or one for all if alike.

    `own`: each panel has its own x axis, which its count and its strip share.
    """
    rows, columns = frames.shape(len(panels))
    one = running.alike(panels)
    spare = len(panels) < rows * columns
    heights = ([3] * rows + [1] * (not spare)) if one else [3, 1] * rows
    grid = body.add_gridspec(len(heights), columns, height_ratios=heights)
    strips: list[Axes] = []
    if one:
        strips.append(body.add_subplot(grid[-1, len(panels) % columns] if spare else grid[-1, :]))
        strips[0].set_title("the band of every key", loc="left", fontsize=10, color=frames.GREY)
    counts = []
    for place in range(len(panels)):
        row, column = divmod(place, columns)
        lowest = place + columns >= len(panels) + (one and spare)
        if not one:
            first = strips[0] if strips else None
            shared = None if own else first
            strip = body.add_subplot(grid[2 * row + 1, column], sharex=shared, sharey=first)
            strip.tick_params(labelleft=column == 0, labelbottom=own or lowest)
            strips.append(strip)
        count = body.add_subplot(grid[row if one else 2 * row, column], sharex=strips[-1])
        count.tick_params(labelbottom=one and lowest)
        counts.append(count)
    return counts, strips


def _draw_count(axes: Axes, x: FloatArray, panel: running.Panel) -> None:
    axes.update_datalim([(x[0], 0.0)])  # a key that is shown late begins high
    _band(axes, x, panel.value, panel.half)
    dot, cross = ("o", "x") if len(x) <= _FEW_POINTS else (None, None)
    axes.plot(x, panel.value, color=_BLUE, linewidth=1.6, marker=dot, markersize=4)
    if panel.has_truth:
        axes.plot(x, panel.exact, color=_DARK, linewidth=1.1, linestyle=(0, (4, 3)), marker=cross)
    axes.yaxis.set_major_locator(ticker.MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    axes.yaxis.set_major_formatter(texts.written)
    frames.plain(axes)


def _draw_strip(axes: Axes, x: FloatArray, panel: running.Panel) -> None:
    _band(axes, x, np.zeros_like(x), panel.half)
    axes.axhline(0, color=frames.GREY, linewidth=0.8)
    if panel.has_truth:
        dot, width = ("o", 1.2) if len(x) <= _FEW_POINTS else (None, 0.6)
        error = panel.value - panel.exact
        axes.plot(x, error, color=_VERMILLION, linewidth=width, marker=dot, markersize=4)
    frames.plain(axes)


def _band(axes: Axes, x: FloatArray, centre: FloatArray, half: FloatArray) -> None:
    if len(x) == 1:  # an area over one point has no width
        axes.errorbar(x, centre, half, color=_SKY, linewidth=3, capsize=8)
    else:
        axes.fill_between(x, centre - half, centre + half, color=_SKY, alpha=0.4, linewidth=0)


def _legend_handles(panels: Iterable[running.Panel], half_width: float, label: str) -> list[Any]:
    handles = [
        Line2D([], [], color=_BLUE, linewidth=1.6, label=label),
        Patch(color=_SKY, alpha=0.4, linewidth=0, label=f"± {half_width:g} standard deviations"),
        Line2D([], [], color=_DARK, linewidth=1.1, linestyle=(0, (4, 3)), label=EXACT),
        Line2D([], [], color=_VERMILLION, linewidth=1.2, label="error: private − exact"),
    ]
    return handles if any(panel.has_truth for panel in panels) else handles[:2]


def _x(panel: running.Panel, timed: bool) -> FloatArray:
    if not timed:
        return panel.step
    days = dates.date2num(panel.timestamp.astype(np.int64).astype("datetime64[us]"))
    return np.asarray(days, dtype=np.float64)


def _x_axis(axes: Axes, low: float, high: float, timed: bool, zone: tzinfo, most: int = 7) -> str:
    """Places the ticks of an axis from `low` to `high`; returns its label."""
    if low == high:
        one = _MINUTE if timed else 1.0
        axes.set_xlim(low - one, high + one)
    if not timed:
        axes.xaxis.set_major_locator(ticker.MaxNLocator(most - 1, integer=True, min_n_ticks=1))
        axes.xaxis.set_major_formatter("{x:,.0f}")
        return "step"
    locator = dates.AutoDateLocator(tz=zone, minticks=3, maxticks=most)
    axes.xaxis.set_major_locator(locator)
    day = dates.num2date(low, tz=zone).date()
    # The last release of a day is often stamped with the midnight that ends it.
    if dates.num2date(max(low, high - _MINUTE), tz=zone).date() != day:
        axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator, tz=zone))
        return f"time ({zone})"
    if low == high:
        axes.xaxis.set_major_locator(ticker.FixedLocator([low]))
    pattern = "%H:%M" if high - low > 6 * _MINUTE else "%H:%M:%S"
    axes.xaxis.set_major_formatter(dates.DateFormatter(pattern, tz=zone))
    return f"time of day, {zone} ({day})"


def _extent(panel: running.Panel) -> float:
    both = np.abs(np.concatenate([panel.half, panel.value - panel.exact]))
    return float(np.max(both[np.isfinite(both)], initial=0.0))

"""Figures of private running counts and of comparisons, written as PNG files."""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from datetime import timezone, tzinfo
from itertools import cycle
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib import dates, ticker
from matplotlib.axes import Axes
from matplotlib.figure import SubFigure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from beam_dpcount.commands.figures import frames
from beam_dpcount.commands.figures.frames import Path
from beam_dpcount.commands.figures.keys import ASKED, SELECTED
from beam_dpcount.commands.files import times

MAX_POINTS = 4000
EXACT = "exact (shown for demonstration only)"

# Okabe and Ito's palette, safe for the colour-blind, without yellow, which is too pale on white.
_BLUE, _VERMILLION, _GREEN, _PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
_ORANGE, _SKY, _BLACK = "#E69F00", "#56B4E9", "#000000"
_COLOURS = (_BLUE, _VERMILLION, _GREEN, _PURPLE, _ORANGE, _SKY, _BLACK)
# Four styles against seven colours: 28 distinct pairs, and neighbours differ in both.
_STYLES = ("-", "--", "-.", ":")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")  # one more than colours: no pair repeats
_DARK = "#222222"
_WIDE_COLUMNS = 4  # of `panels`
_FEW_POINTS = 40  # up to here every release has a marker
_MINUTE = 1 / 1440  # in days, matplotlib's unit of time
_LEGEND: dict[str, Any] = {"loc": "outside upper center", "ncols": 4, "frameon": False}

FloatArray = npt.NDArray[np.float64]
Keys = Sequence[Hashable] | None
Looks = Mapping[str, tuple[Any, ...]]
Series = Mapping[str, Sequence[npt.ArrayLike]]


class _Panel(NamedTuple):
    """One key's releases in order of step; `exact` is NaN without a truth."""

    key: Hashable
    step: FloatArray
    timestamp: FloatArray
    value: FloatArray
    half: FloatArray
    exact: FloatArray

    @property
    def has_truth(self) -> bool:
        return not np.isnan(self.exact).all()

    def thinned(self) -> _Panel:
        kept = _kept(len(self.step))
        return _Panel(self.key, *(numbers[kept] for numbers in self[1:]))


def prefix_counts(
    columns: Mapping[str, Any],
    path: Path,
    *,
    title: str,
    guarantee: str,
    half_width: float = frames.STDDEVS,
    truth: Mapping[Any, npt.ArrayLike] | None = None,
    order: Keys = None,
    only: Keys = None,
    max_panels: int = 6,
    time_axis: bool = True,
    zone: tzinfo = timezone.utc,
    sum_of: str | None = None,
    selected: bool = False,
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

    Raises:
      ValueError: columns differ in length, or `truth` and the releases of a key do.
    """
    panels = _panels(columns, half_width, truth or {})
    shown, how = _choice(panels, order, only, max_panels, selected)
    rows = max(2, math.ceil(len(shown) / frames.COLUMNS))
    if len(shown) > 1:
        guarantee += " Each panel has its own scale."
    figure, body = frames.framed((12, 4 * rows), title, guarantee + how)
    if shown:
        drawn = [panel.thinned() for panel in shown]
        _draw_panels(body, drawn, half_width, time_axis, zone, sum_of)
    else:
        frames.say(body.subplots(), "no key was shown" if selected else "no releases")
    frames.save(figure, path)


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
    ends = _draw_lines(axes, series, _looks(series), 2.0, logx, logy)
    if ends:
        if logx:
            axes.set_xscale("log", base=base)
        if not logy and all(np.all(np.mod(arrays[1], 1) == 0) for arrays in series.values()):
            axes.yaxis.set_major_locator(ticker.MaxNLocator("auto", integer=True))
        axes.set_xlabel(xlabel, fontsize=12)
        axes.set_ylabel(ylabel, fontsize=12)
        frames.plain(axes, labelsize=11)
        handles = [line for _, line in sorted(ends, key=lambda end: -end[0])]
        beside = _LEGEND | {"loc": "outside right upper", "ncols": 1}
        body.legend(handles=handles, **beside, fontsize=11, handlelength=3)
    else:
        frames.say(axes, "no data")
    frames.save(figure, path)


def panels(
    panels: Mapping[str, Series],
    path: Path,
    *,
    xlabel: str,
    ylabel: str,
    title: str,
    footer: str | None = None,
) -> None:
    """Draws sets of named lines, each in its own axes, and writes a PNG.

    Axes share x, not y. A label looks the same in all of them, and is once in the legend above;
    `EXACT` is a dark line as in `prefix_counts`. `panels`: titles of axes -> series as in `lines`.
    """
    columns = min(_WIDE_COLUMNS, max(1, len(panels)))
    inches = 3.5 * columns, 1 + 3 * max(1, math.ceil(len(panels) / columns))
    looks = _looks(label for series in panels.values() for label in series)
    named = [(name, "", series) for name, series in panels.items()]
    how = (columns, ("x",), "no data")
    drawn = frames.each_panel(named, path, inches, title, footer or "", *how)
    handles: dict[Any, Line2D] = {}
    for place, (axes, (*_, series), leftmost, lowest) in enumerate(drawn, start=1):
        for _, line in _draw_lines(axes, series, looks, 1.4):
            handles.setdefault(line.get_label(), line)
        frames.plain(axes)
        axes.xaxis.set_major_locator(ticker.MaxNLocator(4))
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.yaxis.set_major_locator(ticker.MaxNLocator(5))
        axes.yaxis.set_major_formatter(frames.written)
        if leftmost:
            axes.set_ylabel(ylabel, fontsize=11)
        if lowest:
            axes.set_xlabel(xlabel, fontsize=11)
        if place == len(panels):
            body: Any = axes.figure
            body.legend(handles=list(handles.values()), **_LEGEND, fontsize=11, handlelength=3)


def _looks(labels: Iterable[str]) -> Looks:
    """A colour, a line style and a marker for each label."""
    looks = zip(cycle(_COLOURS), cycle(_STYLES), cycle(_MARKERS), strict=False)
    others = dict.fromkeys(label for label in labels if label != EXACT)
    return {**dict(zip(others, looks, strict=False)), EXACT: (_DARK, "--", "x")}


def _draw_lines(
    axes: Axes, series: Series, looks: Looks, width: float, logx: bool = False, logy: bool = False
) -> list[tuple[float, Line2D]]:
    """Draws the series; returns the last finite value of each, and its line."""
    ends: list[tuple[float, Line2D]] = []
    for label, arrays in series.items():
        colour, style, marker = looks[label]
        if len(arrays) not in (2, 3):
            count = len(arrays)
            raise ValueError(f"series {label!r} must be (x, y) or (x, y, band): {count} arrays")
        x, y, band = map(_floats, (*arrays, 0.0)[:3])
        if x.shape != y.shape or x.ndim != 1:
            raise ValueError(f"series {label!r}: x has shape {x.shape}, y has shape {y.shape}")
        kept = _kept(len(x), logarithmic=logx)
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


def _panels(
    columns: Mapping[str, Any], half_width: float, truth: Mapping[Any, npt.ArrayLike]
) -> list[_Panel]:
    """All keys' releases."""
    column = columns["key"]
    keys = column if isinstance(column, list | tuple) else column.tolist()
    step, value, stddev = (_floats(columns[name]) for name in ("step", "value", "stddev"))
    timestamp = _timestamps(columns.get("timestamp"), len(keys))
    lengths = [len(column) for column in (keys, step, timestamp, value, stddev)]
    if len(set(lengths)) > 1:
        raise ValueError(f"key, step, timestamp, value, stddev differ in length: {lengths}")
    rows: dict[Hashable, list[int]] = {}
    for row, key in enumerate(keys):
        rows.setdefault(key, []).append(row)
    panels = []
    for key, own in rows.items():
        run = np.array(own)[np.argsort(step[own], kind="stable")]
        exact = _floats(truth.get(key, np.full(len(run), np.nan)))
        if len(exact) != len(run):
            found = f"{len(exact)} counts, {len(run)} releases"
            raise ValueError(f"truth must have one count for each release of key {key!r}: {found}")
        half = half_width * stddev[run]
        panels.append(_Panel(key, step[run], timestamp[run], value[run], half, exact))
    return panels


def _choice(
    panels: Sequence[_Panel], order: Keys, only: Keys, most: int, selected: bool
) -> tuple[list[_Panel], str]:
    """The panels to draw, and a sentence on how they were chosen, if not all are drawn."""
    if only is not None:
        by_key = {panel.key: panel for panel in panels}
        asked = SELECTED if selected else ASKED
        return [by_key[key] for key in only if key in by_key], f" {asked}"
    some = f" Of {len(panels):,} keys "
    if selected:
        named = sorted(panels, key=lambda panel: str(panel.key))[:most]
        how = f"{some}that are shown the first {len(named)} by name."
        return named, how if len(named) < len(panels) else ""
    if order is not None:
        places = {key: place for place, key in enumerate(order)}
        given = sorted(panels, key=lambda panel: places.get(panel.key, len(places)))[:most]
        how = f"{some}the first {len(given)}, in the order in which they were given."
        return given, how if len(given) < len(panels) else ""
    ranked = sorted(panels, key=lambda panel: (-len(panel.step), str(panel.key)))
    ranks = _spread_ranks(len(ranked), most)
    listed = ", ".join(f"{rank:,}" for rank in ranks)
    how = f"{some}those of ranks {listed} by their number of releases (ties by name)."
    return [ranked[rank - 1] for rank in ranks], how if len(ranks) < len(ranked) else ""


def _spread_ranks(keys: int, panels: int) -> list[int]:
    """At most `panels` of the ranks 1..keys: powers of two and the last, then the best left."""
    powers = [1 << bit for bit in range(keys.bit_length()) if 1 << bit < keys]
    preferred = [*powers[: max(panels - 1, 1)], keys, *range(1, keys + 1)]
    return sorted(list(dict.fromkeys(preferred))[:panels]) if keys else []


def _draw_panels(
    body: SubFigure,
    panels: Sequence[_Panel],
    half_width: float,
    time_axis: bool,
    zone: tzinfo,
    sum_of: str | None,
) -> None:
    timed = time_axis and _has_times(panels)
    kind = "count" if sum_of is None else "sum"
    label = "private count" if sum_of is None else f"private sum of {frames.shortened(sum_of)}"
    counts, strips = _axes(body, panels)
    for place, panel in enumerate(panels):
        x = _x(panel, timed)
        _draw_count(counts[place], x, panel)
        frames.titles(counts[place], panel.key, f"last {kind} {_readable(panel)}")
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
    ends = np.concatenate([_x(panel, timed)[[0, -1]] for panel in panels])
    below = _x_axis(strips[0], float(ends.min()), float(ends.max()), timed, zone)
    body.align_ylabels()
    for axes in (*counts, *strips):
        if axes.xaxis.get_tick_params()["labelbottom"]:
            axes.set_xlabel(below, fontsize=11)
    body.legend(handles=_legend_handles(panels, half_width, label), **_LEGEND, fontsize=10.5)


def _axes(body: SubFigure, panels: Sequence[_Panel]) -> tuple[list[Axes], list[Axes]]:
    """Axes for the count of each panel; and for the strip of each, or one for all if alike."""
    rows, columns = frames.shape(len(panels))
    one = _alike(panels)
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
            strip = body.add_subplot(grid[2 * row + 1, column], sharex=first, sharey=first)
            strip.tick_params(labelleft=column == 0, labelbottom=lowest)
            strips.append(strip)
        count = body.add_subplot(grid[row if one else 2 * row, column], sharex=strips[0])
        count.tick_params(labelbottom=one and lowest)
        counts.append(count)
    return counts, strips


def _alike(panels: Sequence[_Panel]) -> bool:
    """Whether the strips of several panels would be the same."""
    first = panels[0]
    return len(panels) > 1 and all(
        not panel.has_truth
        and np.array_equal(panel.step, first.step)
        and np.array_equal(panel.timestamp, first.timestamp, equal_nan=True)
        and np.array_equal(panel.half, first.half)
        for panel in panels
    )


def _draw_count(axes: Axes, x: FloatArray, panel: _Panel) -> None:
    axes.update_datalim([(x[0], 0.0)])  # a key that is shown late begins high
    _band(axes, x, panel.value, panel.half)
    dot, cross = ("o", "x") if len(x) <= _FEW_POINTS else (None, None)
    axes.plot(x, panel.value, color=_BLUE, linewidth=1.6, marker=dot, markersize=4)
    if panel.has_truth:
        axes.plot(x, panel.exact, color=_DARK, linewidth=1.1, linestyle=(0, (4, 3)), marker=cross)
    axes.yaxis.set_major_locator(ticker.MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    axes.yaxis.set_major_formatter(frames.written)
    frames.plain(axes)


def _draw_strip(axes: Axes, x: FloatArray, panel: _Panel) -> None:
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


def _legend_handles(panels: Iterable[_Panel], half_width: float, label: str) -> list[Any]:
    handles = [
        Line2D([], [], color=_BLUE, linewidth=1.6, label=label),
        Patch(color=_SKY, alpha=0.4, linewidth=0, label=f"± {half_width:g} standard deviations"),
        Line2D([], [], color=_DARK, linewidth=1.1, linestyle=(0, (4, 3)), label=EXACT),
        Line2D([], [], color=_VERMILLION, linewidth=1.2, label="error: private − exact"),
    ]
    return handles if any(panel.has_truth for panel in panels) else handles[:2]


def _has_times(panels: Collection[_Panel]) -> bool:
    """Whether every release has a time that can be drawn, and times differ between steps."""
    stamps = np.concatenate([panel.timestamp for panel in panels])
    steps = np.concatenate([panel.step for panel in panels])
    # Beam's smallest and largest timestamps, which mean "no time", are outside the calendar.
    drawable = bool(np.all((stamps >= times.FIRST) & (stamps <= times.LAST)))
    return drawable and (np.ptp(stamps) > 0 or np.ptp(steps) == 0)


def _x(panel: _Panel, timed: bool) -> FloatArray:
    if not timed:
        return panel.step
    days = dates.date2num(panel.timestamp.astype(np.int64).astype("datetime64[us]"))
    return np.asarray(days, dtype=np.float64)


def _x_axis(axes: Axes, low: float, high: float, timed: bool, zone: tzinfo) -> str:
    """Places the ticks of an axis from `low` to `high`; returns its label."""
    if low == high:
        one = _MINUTE if timed else 1.0
        axes.set_xlim(low - one, high + one)
    if not timed:
        axes.xaxis.set_major_locator(ticker.MaxNLocator(6, integer=True, min_n_ticks=1))
        axes.xaxis.set_major_formatter("{x:,.0f}")
        return "step"
    locator = dates.AutoDateLocator(tz=zone, minticks=3, maxticks=7)
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


def _extent(panel: _Panel) -> float:
    both = np.abs(np.concatenate([panel.half, panel.value - panel.exact]))
    return float(np.max(both[np.isfinite(both)], initial=0.0))


def _readable(panel: _Panel) -> str:
    value, half = panel.value[-1], panel.half[-1]
    digits = 0 if half >= 10 or not np.isfinite(half) else 1
    shown = f"{value:,.{digits}f}"
    if not float(shown.replace(",", "")):
        shown = shown.lstrip("-")
    shown = shown.replace("-", "\N{MINUS SIGN}")
    return f"{shown} ± {half:,.{digits}f}" if np.isfinite(half) else shown


def _kept(length: int, logarithmic: bool = False) -> npt.NDArray[np.intp]:
    """Indices of at most `MAX_POINTS` of `length` points, with the first and the last."""
    if length <= MAX_POINTS:
        return np.arange(length)
    if logarithmic:
        places = np.geomspace(1, length, MAX_POINTS) - 1
    else:
        places = np.linspace(0, length - 1, MAX_POINTS)
    return np.unique(np.rint(places).astype(np.intp))


def _floats(column: Any) -> FloatArray:
    return np.asarray(column, dtype=np.float64)


def _timestamps(column: Any, length: int) -> FloatArray:
    """Microseconds since the epoch, NaN where missing."""
    moments = np.asarray([np.nan] * length if column is None else column)
    if moments.dtype.kind == "M":
        micros = moments.astype("datetime64[us]").astype(np.float64)
        moments = np.where(np.isnat(moments), np.nan, micros)
    return _floats(moments)

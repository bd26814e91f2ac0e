"""Running counts in the report: one chart of several keys, one chart a key, a table of all keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from beam_dpcount.commands.figures import pictures, running
from beam_dpcount.commands.figures.running import Panel
from beam_dpcount.commands.page import charts, markup, scales
from beam_dpcount.commands.page.charts import NARROW, WIDE, Frame, Line
from beam_dpcount.commands.page.markup import Html, el, joined, name
from beam_dpcount.commands.page.scales import Axis

TOGETHER = 11  # keys in one chart
EACH = 24  # keys with a chart of their own
LISTED = 1000  # keys in the table
POINTS, MANY_POINTS = 240, 800  # of a line, in narrow and wide charts
_ROWS = 12  # of the table below a chart


class _Shown(NamedTuple):
    """What all charts of a page have in common."""

    picture: pictures.Running
    timed: bool
    noun: str  # "private count", say

    @property
    def kind(self) -> str:
        return "count" if self.picture.sum_of is None else "sum"

    def x(self, panels: Sequence[Panel], most: int) -> Axis:
        ends = np.array([self.place(panel)[[0, -1]] for panel in panels])
        low, high = float(ends.min()), float(ends.max())
        if self.timed:
            return scales.times(low, high, most, self.picture.zone)
        return scales.steps(low, high, most)

    def y(self, panels: Sequence[Panel], most: int) -> Axis:
        drawn = [self.line(panel, 0, 0) for panel in panels]
        low = min(0.0, *(float(line.low.min()) for line in drawn))
        high = max(0.0, *(float(line.high.max()) for line in drawn))
        room = 0.03 * (high - low)
        low, high = low - room * (low < 0), high + room * (high > 0)
        return scales.numbers(low, high, most)._replace(caption=self.noun)

    def place(self, panel: Panel) -> running.FloatArray:
        return panel.timestamp if self.timed else panel.step

    def when(self, panel: Panel, row: int) -> str:
        step = f"step {panel.step[row]:,.0f}"
        if not self.timed:
            return step
        return f"{scales.when(float(panel.timestamp[row]), self.picture.zone)}, {step}"

    def line(self, panel: Panel, look: int, labelled: int) -> Line:
        """A line; `labelled` points of it, if any, can be pointed at."""
        labels = [
            f"{self.when(panel, row)}: {running.readable(panel, row)}" for row in range(labelled)
        ]
        return Line(self.place(panel), panel.value, panel.half, look, look, labels=labels)


def section(picture: pictures.Running) -> tuple[Html, Html]:
    """Charts of running counts, and a table of all keys."""
    panels = running.panels_of(picture.columns, pictures.STDDEVS, {})
    if not panels:
        said = "No key was shown." if picture.selected else "There are no releases."
        return el("p", said, class_="nothing"), Html()
    ranked, _ = running.choice(panels, picture.order, None, len(panels), picture.selected, False)
    each, chosen = running.choice(
        panels, picture.order, picture.only, EACH, picture.selected, spread=False
    )
    noun = "private count" if picture.sum_of is None else f"private sum of {picture.sum_of}"
    shown = _Shown(picture, picture.time_axis and running.has_times(each or ranked), noun)
    notes = [chosen.strip()] if chosen else []
    longest = max((len(panel.step) for panel in each), default=0)
    if longest > POINTS:
        notes.append(
            f"Lines are drawn through at most {POINTS} of a key's {longest:,} releases, or "
            f"{MANY_POINTS} where there is room, evenly spaced; the data have all of them."
        )
    told = [el("p", note, class_="note") for note in notes]
    table = Html() if len(panels) == 1 else _all(ranked, shown)
    if not each:
        nothing = el("p", "None of the keys that were asked for has releases.", class_="nothing")
        return nothing, table
    if len(each) == 1:
        figures = [
            el("h2", f"The {shown.kind} over time"),
            _figure(each[0], shown, None, alone=True),
        ]
        return joined([*figures, *told]), table
    own = running.own_axes(each, shown.timed)
    axis, alike = None if own else shown.x(each, 4), running.alike(each)
    charts_of_keys = [
        _figure(panel, shown, axis, look if look < TOGETHER else 0, strip=not alike)
        for look, panel in enumerate(each)
    ]
    many = [el("h2", "Key by key"), _select(each)]
    grid = el("div", *charts_of_keys, class_="grid", id="keys")
    parts = [
        _together(each[:TOGETHER], len(each), shown),
        *([_one_band(each[0], shown)] if alike else []),
        *many,
        grid,
        *told,
    ]
    return joined(parts), table


def _together(panels: Sequence[Panel], drawn: int, shown: _Shown) -> Html:
    """Several keys in one chart, with a legend."""
    legend = [
        el(
            "li",
            charts.sample(look),
            name(str(panel.key)),
            el("span", f" {running.readable(panel)}", class_="last"),
            data_key=str(look),
        )
        for look, panel in enumerate(panels)
    ]
    made = []
    for width, height, most, points in (
        (WIDE, 420, 8, MANY_POINTS),
        (NARROW, 300, 4, POINTS),
    ):
        lines = [shown.line(panel.thinned(points), look, 0) for look, panel in enumerate(panels)]
        title = f"Running counts of {len(panels)} keys, with bands"
        frame = Frame(width, height, title, "The same numbers are in the tables below.")
        made.append(charts.lines(frame, lines, shown.x(panels, most), shown.y(panels, 6)))
    some = f"The first {len(panels)} of them" if len(panels) < drawn else "All of them"
    caption = f"{some} on one scale; at the end ± {pictures.STDDEVS:g} standard deviations."
    return joined(
        [
            el("h2", "Together"),
            el(
                "figure",
                charts.together(made, "frame"),
                el("figcaption", el("ul", *legend, class_="legend"), el("p", caption)),
                id="together",
            ),
        ]
    )


def _select(panels: Sequence[Panel]) -> Html:
    """A choice of one key; it is hidden where the script does not run."""
    every = el("option", f"all {len(panels)} drawn here", value="")
    some = [el("option", str(panel.key), value=str(i)) for i, panel in enumerate(panels)]
    label = el("label", "Show ", el("select", every, *some, id="key"))
    return el("p", label, class_="script", hidden="hidden")


def _figure(
    panel: Panel,
    shown: _Shown,
    axis: Axis | None,
    look: int = 0,
    strip: bool = True,
    alone: bool = False,
) -> Html:
    """The chart of one key, with its last release, and a table.

    Args:
      axis: of the steps or times of all keys; None: of its own.
      look: the colour.
      strip: whether its band is drawn below, around 0: it is often too narrow to be seen above.
      alone: whether there is no other.
    """
    key = str(panel.key)
    of = "" if shown.picture.single else f" of {markup.visible(key)}"
    last = f"last {shown.kind} {running.readable(panel)}"
    title = f"Running {shown.kind}{of}: {last}"
    made = []
    sizes = [(WIDE, 400, 8, MANY_POINTS), (NARROW, 250, 4, POINTS)]
    for width, height, most, points in sizes if alone else [(NARROW, 220, 4, POINTS)]:
        thin = panel.thinned(points)
        line = shown.line(thin, look, len(thin.step))._replace(dashes=0)
        frame = Frame(width, height, title, "A table of some of its releases follows.")
        x, y = axis or shown.x([panel], most), shown.y([panel], 5)
        both = [charts.lines(frame, [line], x, y)]
        if strip:
            both.append(_strip(thin, shown, frame, x, charts.left_of(y), look))
        made.append(joined(both))
    head = [] if shown.picture.single else [el("h3", name(key))]
    return el(
        "figure",
        *head,
        el("p", last, class_="last"),
        charts.together(made, "frame") if alone else el("div", *made, class_="frame"),
        el("output", class_="script", hidden="hidden"),
        _rows(panel, shown),
        class_="key",
    )


def _strip(
    panel: Panel, shown: _Shown, frame: Frame, x: Axis, left: float = 0, look: int = 0
) -> Html:
    """A band around 0."""
    zero = panel._replace(value=np.zeros_like(panel.value))
    y = shown.y([zero], 3)._replace(caption=f"± {pictures.STDDEVS:g} standard deviations")
    told = "The band alone, around 0", "Its halves are in the tables."
    line = Line(shown.place(panel), zero.value, zero.half, look, stroke=False)
    return charts.lines(Frame(frame.width, 96, *told), [line], x._replace(caption=""), y, left)


def _one_band(panel: Panel, shown: _Shown) -> Html:
    made = []
    for width, most, points in ((WIDE, 8, MANY_POINTS), (NARROW, 4, POINTS)):
        x = shown.x([panel], most)
        made.append(_strip(panel.thinned(points), shown, Frame(width, 0, "", ""), x))
    return el("figure", el("h3", "The band of every key"), charts.together(made, "frame"))


def _rows(panel: Panel, shown: _Shown) -> Html:
    """Some releases of a key as a table."""
    kept = running.kept_of(len(panel.step), most=_ROWS).tolist()
    some = "" if len(kept) == len(panel.step) else f", {len(kept)} of {len(panel.step):,}"
    rows = [
        el(
            "tr",
            el("td", shown.when(panel, row)),
            el("td", running.readable(panel, row), class_="number"),
        )
        for row in kept
    ]
    head = el("tr", el("th", "release"), el("th", shown.noun, class_="number"))
    table = el("table", el("thead", head), el("tbody", *rows))
    return el("details", el("summary", f"In numbers{some}"), table)


def _all(ranked: Sequence[Panel], shown: _Shown) -> Html:
    """The last releases of all keys, in the public order."""
    rows = [
        el(
            "tr",
            el("td", name(str(panel.key))),
            el("td", f"{len(panel.step):,}", class_="number"),
            el("td", running.readable(panel), class_="number"),
        )
        for panel in ranked[:LISTED]
    ]
    titles = ("key", ""), ("releases", "number"), (f"last {shown.noun}", "number")
    head = el("tr", *(el("th", title, class_=kind or None) for title, kind in titles))
    left = len(ranked) - LISTED
    more = [el("p", f"{left:,} others are in the data.", class_="note")] if left > 0 else []
    table = el("table", el("thead", head), el("tbody", *rows), class_="all")
    return joined([el("h2", "All keys"), table, *more])

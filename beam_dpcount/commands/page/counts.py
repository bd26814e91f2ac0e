"""Running counts in the report: one chart of several keys, one chart a key, a table of all keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from beam_dpcount.commands.figures import pictures, running
from beam_dpcount.commands.figures.running import Counts, Panel
from beam_dpcount.commands.page import charts, markup
from beam_dpcount.commands.page.charts import WIDE, Frame, Line
from beam_dpcount.commands.page.markup import Html, el, joined, name

TOGETHER = 11  # keys in one chart
EACH = 24  # keys with a chart of their own
LISTED = 1000  # keys in the table
POINTS, MANY_POINTS = 240, 800  # of a line, in narrow and wide charts
_ROWS = 12  # of the table below a chart


def section(picture: pictures.Running) -> tuple[Html, Html]:
    """Charts of running counts, and a table of all keys."""
    counts = running.counts_of(picture, EACH, spread=False)
    each = counts.panels
    table = _all(counts) if len(counts.ranked) > 1 else Html()
    if not each:
        return el("p", counts.nothing, class_="nothing"), table
    notes = [counts.choice, counts.scaled]
    longest = max(len(panel.step) for panel in each)
    if longest > POINTS:
        notes.append(
            f"Lines are drawn through at most {POINTS} of a key's {longest:,} releases, or "
            f"{MANY_POINTS} where there is room, evenly spaced; the data have all of them."
        )
    below = [el("p", note, class_="note") for note in notes if note]
    if len(each) == 1:
        heading = el("h2", f"The {counts.kind} over time")
        return joined([heading, _figure(each[0], counts), *below]), table
    every = [
        _figure(panel, counts, look if look < TOGETHER else 0) for look, panel in enumerate(each)
    ]
    parts = [
        _together(counts),
        *([_one_band(counts)] if counts.alike else []),
        el("h2", "Key by key"),
        _select(each),
        el("div", *every, class_="grid", id="keys"),
        *below,
    ]
    return joined(parts), table


def _points(width: int) -> int:
    return MANY_POINTS if width == WIDE else POINTS


def _together(counts: Counts) -> Html:
    """Several keys in one chart, with a legend."""
    panels = counts.panels[:TOGETHER]
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

    def draw(width: int) -> Html:
        thin = [panel.thinned(_points(width)) for panel in panels]
        lines = [Line(counts.place(p), p, look, look) for look, p in enumerate(thin)]
        title = f"Running counts of {len(panels)} keys, with bands"
        frame = Frame(width, 420 if width == WIDE else 300, title, "Tables of numbers follow.")
        return charts.lines(frame, lines, counts.x(panels), counts.y(panels))

    some = "All of them" if panels == counts.panels else f"The first {len(panels)} of them"
    caption = el("p", f"{some} on one scale; at the end {counts.band}.")
    below = el("figcaption", el("ul", *legend, class_="legend"), caption)
    figure = el("figure", charts.framed(draw, alone=True), below, id="together")
    return joined([el("h2", "Together"), figure])


def _select(panels: Sequence[Panel]) -> Html:
    """A choice of one key; it is hidden where the script does not run."""
    every = el("option", f"all {len(panels)} drawn here", value="")
    some = [el("option", str(panel.key), value=str(i)) for i, panel in enumerate(panels)]
    label = el("label", "Show ", el("select", every, *some, id="key"))
    return el("p", label, class_="script", hidden="hidden")


def _figure(panel: Panel, counts: Counts, look: int = 0) -> Html:
    """The chart of one key, with its last release, its band, and a table; `look` is its colour."""
    alone, key, last = len(counts.panels) == 1, str(panel.key), counts.last(panel)
    of = "" if counts.single else f" of {markup.visible(key)}"

    def draw(width: int) -> Html:
        thin = panel.thinned(_points(width))
        height = 400 if width == WIDE else 250 if alone else 220
        labels = [
            f"{counts.when(thin, row)}: {running.readable(thin, row)}"
            for row in range(len(thin.step))
        ]
        line = Line(counts.place(thin), thin, look, labels=labels)
        frame = Frame(width, height, f"Running {counts.kind}{of}: {last}")
        x, y = counts.x_of(panel), counts.y([panel])
        chart = charts.lines(frame, [line], x, y)
        if counts.alike:
            return chart
        return joined([chart, _strip(panel, counts, width, look, charts.left_of(frame, y))])

    return el(
        "figure",
        *([] if counts.single else [el("h3", name(key))]),
        el("p", last, class_="last"),
        charts.framed(draw, alone),
        el("output", class_="script", hidden="hidden"),
        _rows(panel, counts),
        class_="key",
    )


def _strip(panel: Panel, counts: Counts, width: int, look: int = 0, left: float = 0) -> Html:
    """A band around 0, which is often too narrow to be seen around the count."""
    zero = panel.thinned(_points(width)).alone()
    x, y = replace(counts.x_of(panel), caption=""), replace(counts.error, caption=counts.band)
    line = Line(counts.place(zero), zero, look, stroke=False)
    told = "The band alone, around 0", "Its halves are in the tables."
    return charts.lines(Frame(width, 96, *told), [line], x, y, left)


def _one_band(counts: Counts) -> Html:
    strip = partial(_strip, counts.panels[0], counts)
    heading = el("h3", "The band of every key")
    return el("figure", heading, charts.framed(strip, alone=True))


def _rows(panel: Panel, counts: Counts) -> Html:
    """Some releases of a key as a table."""
    kept = running.kept_of(len(panel.step), most=_ROWS).tolist()
    rows = [(counts.when(panel, row), running.readable(panel, row)) for row in kept]
    return markup.details(("release", counts.label), rows, len(panel.step))


def _all(counts: Counts) -> Html:
    """The last releases of all keys, in the public order."""
    rows = [
        (name(str(panel.key)), f"{len(panel.step):,}", running.readable(panel))
        for panel in counts.ranked[:LISTED]
    ]
    left = len(counts.ranked) - LISTED
    more = [el("p", f"{left:,} others are in the data.", class_="note")] if left > 0 else []
    head = "key", "releases", f"last {counts.label}"
    return joined([el("h2", "All keys"), markup.table(head, rows, "all"), *more])

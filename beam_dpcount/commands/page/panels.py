"""Last releases in the report: bars of items, words and degrees, and weights of pairs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from beam_dpcount.commands.figures import pictures
from beam_dpcount.commands.figures.pictures import STDDEVS, Panel
from beam_dpcount.commands.page import charts, scales
from beam_dpcount.commands.page.charts import NARROW, WIDE, Bar, Frame
from beam_dpcount.commands.page.markup import Html, el, joined, name
from beam_dpcount.commands.page.scales import Axis

_SQUARE = 560  # the width of one matrix where there is room
_ROWS = 500  # of a table


def section(picture: pictures.Picture) -> Html:
    """Charts and tables of the last releases of some keys."""
    if isinstance(picture, pictures.Bars):
        made = _bars(picture)
    elif isinstance(picture, pictures.Ranked):
        made = [
            _of_bars(
                words.name, words.note, _ranked(words), picture.noun, None, len(picture.panels)
            )
            for words in picture.panels
        ]
    elif isinstance(picture, pictures.Degrees):
        made = _degrees(picture)
    elif isinstance(picture, pictures.Weights):
        made = _weights(picture)
    else:
        raise TypeError(f"no charts for {type(picture).__name__}")
    if not made:
        return el("p", "There are no releases.", class_="nothing")
    heading = "Last releases" if len(made) > 1 else "Last release"
    kind = "grid" if len(made) > 1 else "alone"
    return joined([el("h2", heading), el("div", *made, class_=kind)])


def _figure(title: str, note: str, chart: Html, *more: object) -> Html:
    notes = [el("p", note, class_="last")] if note else []
    return el("figure", el("h3", name(title)), *notes, chart, *more, class_="key")


def _sized(frames: Sequence[Html], panels: int) -> Html:
    """Both widths of a chart that is alone; the narrow one of several."""
    return (
        charts.together(frames, "frame") if panels == 1 else el("div", frames[-1], class_="frame")
    )


def _table(rows: Sequence[tuple[str, str]], head: tuple[str, str]) -> Html:
    made = [
        el("tr", el("td", name(first)), el("td", number, class_="number"))
        for first, number in rows[:_ROWS]
    ]
    some = f", {_ROWS} of {len(rows):,}" if len(rows) > _ROWS else ""
    titles = el("tr", el("th", head[0]), el("th", head[1], class_="number"))
    table = el("table", el("thead", titles), el("tbody", *made))
    return el("details", el("summary", f"In numbers{some}"), table)


def number(value: float, half: float) -> str:
    """A count with half the width of its band."""
    digits = 0 if half >= 10 or not np.isfinite(half) else 1 if half >= 0.5 or not half else 2
    shown = f"{value:,.{digits}f}"
    shown = shown if float(shown.replace(",", "")) else shown.lstrip("-")
    shown = shown.replace("-", "\N{MINUS SIGN}")
    return f"{shown} ± {half:,.{digits}f}" if np.isfinite(half) else shown


def _of(panel: Panel, names: Sequence[str]) -> list[Bar]:
    half = STDDEVS * panel.stddev
    values = panel.of(len(names), "count", f"{len(names)} names").tolist()
    return [
        Bar(text, value, value - half, value + half, number(value, half))
        for text, value in zip(names, values, strict=True)
    ]


def _ranked(words: pictures.Words) -> list[Bar]:
    return [Bar(w, x, low, high, number(x, (high - low) / 2)) for w, x, low, high in words.rows]


def _extent(bars: Sequence[Bar], most: int) -> Axis:
    ends = [end for bar in bars for end in (bar.low, bar.high, bar.value) if np.isfinite(end)]
    low, high = min([0.0, *ends]), max([0.0, *ends])
    room = 0.02 * (high - low)
    return scales.numbers(low - room * (low < 0), high + room * (high > 0), most)


def _bars(picture: pictures.Bars) -> list[Html]:
    panels = picture.panels
    every = [_of(panel, picture.items) for panel in panels]
    kept = list(range(len(picture.items)))[: picture.most]
    if picture.top is not None:
        totals = [sum(bars[i].value for bars in every) for i in range(len(picture.items))]
        kept = sorted(range(len(totals)), key=lambda i: -totals[i])[: picture.top]
    shown = [bar for bars in every for bar in (bars[i] for i in kept)]
    return [
        _of_bars(panel.name, panel.note, bars, "item", (kept, shown), len(panels))
        for panel, bars in zip(panels, every, strict=True)
    ]


def _of_bars(
    title: str,
    note: str,
    bars: Sequence[Bar],
    noun: str,
    among: tuple[Sequence[int], Sequence[Bar]] | None,
    panels: int,
) -> Html:
    """One panel of horizontal bars.

    `among`: the places of the bars that are drawn, and all bars that the axis is for.
    """
    kept, extent = (range(len(bars)), bars) if among is None else among
    drawn = [bars[i] for i in kept]
    made = []
    for width, most in ((WIDE, 8), (NARROW, 4)):
        axis = _extent(extent, most)._replace(caption="private count, with its 95 % band")
        told = f"{len(drawn)} bars: {title}"
        made.append(
            charts.bars(Frame(width, 0, told, "A table of the numbers follows."), drawn, axis)
        )
    table = _table([(bar.name, bar.text) for bar in bars], (noun, "private count"))
    return _figure(title, note, _sized(made, panels), table)


def _degrees(picture: pictures.Degrees) -> list[Html]:
    made = []
    for panel in picture.panels:
        bars = _of(panel, picture.domain)
        frames = []
        for width, height in ((WIDE, 380), (NARROW, 260)):
            told = f"Vertices by degree: {panel.name}"
            frame = Frame(width, height, told, "A table of the numbers follows.")
            axis = _extent(bars, 5)._replace(caption="private number of vertices")
            frames.append(charts.columns(frame, bars, axis, "neighbours"))
        table = _table([(bar.name, bar.text) for bar in bars], ("neighbours", "vertices"))
        made.append(_figure(panel.name, panel.note, _sized(frames, len(picture.panels)), table))
    return made


def _weights(picture: pictures.Weights) -> list[Html]:
    names, n = picture.vertices, len(picture.vertices)
    pairs = np.triu_indices(n, 1)
    values = [
        panel.of(len(pairs[0]), "weight", f"{len(pairs[0])} pairs") for panel in picture.panels
    ]
    limit = max([0.0, *(float(np.abs(v).max()) for v in values)]) or 1.0
    made = []
    for panel, numbers in zip(picture.panels, values, strict=True):
        square = np.full((n, n), np.nan)
        square[pairs] = square.T[pairs] = numbers
        half = STDDEVS * panel.stddev
        frames = []
        for width in (_SQUARE, NARROW):
            told = f"Weights of pairs: {panel.name}"
            frame = Frame(width, width, told, "A table of the numbers follows.")
            caption = f"private weight; lines: ± {STDDEVS:g} standard deviations"
            axis = scales.numbers(-limit, limit, 5)._replace(caption=caption)
            whole = [charts.matrix(frame, square, names, limit)]
            whole.append(charts.scale(frame, limit, [half], axis))
            frames.append(joined(whole))
        rows = [
            (f"{names[i]} – {names[j]}", number(weight, half))
            for i, j, weight in zip(
                *(p.tolist()[: _ROWS + 1] for p in pairs), numbers.tolist(), strict=False
            )
        ]
        table = _table(rows, ("pair", "private weight"))
        made.append(_figure(panel.name, panel.note, _sized(frames, len(picture.panels)), table))
    return made

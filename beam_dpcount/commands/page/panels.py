"""Last releases in the report: bars of items, words and degrees, and weights of pairs."""

from __future__ import annotations

from collections.abc import Iterable

from beam_dpcount.commands.figures import pictures
from beam_dpcount.commands.figures.charts import NOTHING, Chart, Matrix, charts_of, matrices_of
from beam_dpcount.commands.page import charts
from beam_dpcount.commands.page.charts import WIDE, Frame
from beam_dpcount.commands.page.markup import Html, details, el, joined, name

_SQUARE = 560  # the width of one matrix where there is room
_ROWS = 500  # of a table


def section(picture: pictures.Picture) -> Html:
    """Charts and tables of the last releases of some keys."""
    if isinstance(picture, pictures.Weights):
        matrices = matrices_of(picture)
        drawn = [_matrix(matrix, len(matrices) == 1) for matrix in matrices]
    else:
        bars = charts_of(picture)
        upright = isinstance(picture, pictures.Degrees)
        drawn = [_bars(chart, upright, len(bars) == 1) for chart in bars]
    if not drawn:
        return el("p", NOTHING, class_="nothing")
    heading = "Last releases" if len(drawn) > 1 else "Last release"
    kind = "grid" if len(drawn) > 1 else "alone"
    return joined([el("h2", heading), el("div", *drawn, class_=kind)])


def _bars(chart: Chart, upright: bool, alone: bool) -> Html:
    """One panel of bars."""

    def draw(width: int) -> Html:
        frame = Frame(
            width, 380 if width == WIDE else 260, f"{len(chart.drawn)} bars: {chart.title}"
        )
        return charts.columns(frame, chart) if upright else charts.bars(frame, chart)

    rows = [(bar.name, bar.text) for bar in chart.bars]
    drawn = charts.framed(draw, alone)
    return _figure(chart, drawn, (chart.names, chart.values), rows[:_ROWS], len(rows))


def _matrix(matrix: Matrix, alone: bool) -> Html:
    def draw(width: int) -> Html:
        frame = Frame(width, width, f"Weights of pairs: {matrix.title}")
        return joined([charts.matrix(frame, matrix), charts.scale(frame, matrix)])

    number = len(matrix.names) * (len(matrix.names) - 1) // 2
    drawn = charts.framed(draw, alone, _SQUARE)
    return _figure(matrix, drawn, ("pair", "private weight"), matrix.pairs(_ROWS), number)


def _figure(
    panel: Chart | Matrix,
    drawn: Html,
    head: tuple[str, str],
    rows: Iterable[tuple[str, str]],
    number: int,
) -> Html:
    """A chart with its title, its note and a table of these rows out of a number of them."""
    notes = [el("p", panel.note, class_="last")] if panel.note else []
    below = details(head, [(name(first), text) for first, text in rows], number)
    return el("figure", el("h3", name(panel.title)), *notes, drawn, below, class_="key")

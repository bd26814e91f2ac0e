"""Charts as inline SVG, from numbers alone. Colours and dashes are classes of style.css.

Lengths are in pixels of a chart as wide as a telephone, or as a page: text is not scaled down.
"""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from beam_dpcount.commands.figures import looks, texts
from beam_dpcount.commands.figures.charts import Bar, Chart, Matrix
from beam_dpcount.commands.figures.pictures import CAPPED
from beam_dpcount.commands.figures.running import FEW_POINTS, FloatArray, Panel
from beam_dpcount.commands.figures.scales import Axis
from beam_dpcount.commands.page.markup import Html, data, el, joined, visible

NARROW, WIDE = 344, 1120

_CHARACTER = 6.3  # the width of a narrow one
_BOTTOM, _TOP, _RIGHT = 40, 22, 14
_ROW = 24  # the height of a bar with the space around it


class Frame(NamedTuple):
    """The size of a chart, and its names for those who do not see it."""

    width: int
    height: int
    title: str
    description: str = "A table of the numbers follows."

    @property
    def across(self) -> int:
        """About so many ticks there is room for."""
        return 8 if self.width == WIDE else 4

    @property
    def down(self) -> int:
        return 5 if self.height > 120 else 3


class Line(NamedTuple):
    """A running count with its band, and places on the x axis."""

    x: FloatArray
    panel: Panel
    look: int = 0  # its colour
    dashes: int = 0
    stroke: bool = True  # or the band alone
    labels: Sequence[str] = ()  # of the points, for whoever points at them


def _svg(frame: Frame, *children: object, **attributes: object) -> Html:
    return el(
        "svg",
        el("title", frame.title),
        el("desc", frame.description),
        *children,
        viewBox=f"0 0 {frame.width} {frame.height}",
        role="img",
        **{"class_": "chart", **attributes},
    )


# Lines


def lines(frame: Frame, drawn: Sequence[Line], x: Axis, y: Axis, least: float = 0) -> Html:
    """Lines with bands; a single one with labels can be pointed at.

    The y axis is at `least` or further right, where its numbers need it.
    """
    left = max(least, left_of(frame, y))
    inner = left, frame.width - _RIGHT, frame.height - (_BOTTOM if x.caption else 22), _TOP
    at_x, at_y = _scale(x, inner[0], inner[1]), _scale(y, inner[2], inner[3])
    bands, strokes = [], []
    for line in drawn:
        place, value = at_x(line.x), at_y(line.panel.value)
        look = f"s{line.look % 12} d{line.dashes % 4}"
        bands.append(
            _band(place, at_y(line.panel.low), at_y(line.panel.high), f"band s{line.look % 12}")
        )
        if len(place) > 1 and line.stroke:
            strokes.append(el("path", d=_path(place, value), class_=f"line {look}"))
        if len(place) <= FEW_POINTS and line.stroke:
            strokes += [
                el("circle", cx=a, cy=b, r=2.4, class_=f"dot s{line.look % 12}")
                for a, b in zip(place.tolist(), value.tolist(), strict=True)
            ]
    more: dict[str, object] = {}
    if len(drawn) == 1 and drawn[0].labels:
        (line,) = drawn
        points = {
            "x": np.round(at_x(line.x), 1).tolist(),
            "y": np.round(at_y(line.panel.value), 1).tolist(),
            "t": [visible(label) for label in line.labels],
        }
        more = {"data_points": data(points), "tabindex": "0", "class_": "chart points"}
        strokes.append(
            el(
                "g",
                el("path", d=f"M0 {_TOP}V{inner[2]}", class_="pointer"),
                el("circle", cx=0, cy=0, r=4, class_="pointed"),
                class_="cursor",
            )
        )
    axes = _axes(frame, x, y, inner)
    return _svg(frame, axes, *bands, *strokes, **more)


def left_of(frame: Frame, y: Axis) -> float:
    """Where an axis is, to have room for its numbers."""
    return 10 + _CHARACTER * max((len(text) for _, text in y.ticks(frame.down)), default=0)


def _scale(axis: Axis, start: float, stop: float) -> Callable[[npt.ArrayLike], FloatArray]:
    """From places on an axis to places on the page."""
    by = (stop - start) / ((axis.high - axis.low) or 1.0)
    return lambda at: start + (np.asarray(at, dtype=np.float64) - axis.low) * by


def _axes(
    frame: Frame, x: Axis, y: Axis, inner: tuple[float, float, float, float], grid: bool = True
) -> Html:
    left, right, bottom, top = inner
    parts = []
    for value, text in y.ticks(frame.down):
        at = float(_scale(y, bottom, top)(value))
        kind = "zero" if value == 0 else "rule"
        parts.append(el("path", d=f"M{left:.1f} {at:.1f}H{right:.1f}", class_=kind))
        parts.append(el("text", text, x=left - 6, y=at + 4, class_="end"))
    for value, text in x.ticks(frame.across):
        at = float(_scale(x, left, right)(value))
        half = len(text) * _CHARACTER / 2
        kind = "end" if at + half > frame.width else "start" if at - half < 0 else "middle"
        if grid:
            parts.append(el("path", d=f"M{at:.1f} {bottom:.1f}v4", class_="zero"))
        parts.append(el("text", text, x=at, y=bottom + 17, class_=kind))
    if x.caption:
        middle = (left + right) / 2
        parts.append(el("text", x.caption, x=middle, y=frame.height - 5, class_="middle"))
    if y.caption:
        parts.append(el("text", y.caption, x=2, y=12, class_="start"))
    return el("g", *parts, class_="axes")


def _path(x: FloatArray, y: FloatArray) -> str:
    points = (f"{a:.1f} {b:.1f}" for a, b in zip(x.tolist(), y.tolist(), strict=True))
    return "M" + "L".join(points)


def _band(x: FloatArray, low: FloatArray, high: FloatArray, look: str) -> Html:
    if len(x) == 1:  # an area over one point has no width
        place = float(x[0])
        ends = "".join(f"M{place - 6:.1f} {float(y[0]):.1f}h12" for y in (low, high))
        return el(
            "path", d=f"M{place:.1f} {low[0]:.1f}V{high[0]:.1f}{ends}", class_=f"error {look}"
        )
    back = _path(x[::-1], low[::-1]).replace("M", "L", 1)
    return el("path", d=f"{_path(x, high)}{back}Z", class_=look)


def sample(look: int) -> Html:
    """A bit of a line, for a legend."""
    line = el("path", d="M1 6H33", class_=f"line s{look % 12} d{look % 4}")
    return el("svg", line, viewBox="0 0 34 12", class_="sample", aria_hidden="true")


# Bars


def bars(frame: Frame, chart: Chart) -> Html:
    """Horizontal bars, the first on top. The height follows from their number."""
    drawn = chart.drawn
    label = min(0.42 * frame.width, 14 + 7 * max((_width(bar.name) for bar in drawn), default=0))
    number = 8 + _CHARACTER * max((len(bar.text) for bar in drawn), default=0)
    frame = frame._replace(height=6 + _ROW * len(drawn) + _BOTTOM)
    inner = label, frame.width - number, frame.height - _BOTTOM, 6.0
    at, top = _scale(chart.axis, inner[0], inner[1]), inner[3]
    zero = float(at(0.0))
    parts = []
    for place, bar in enumerate(drawn):
        y = top + place * _ROW
        ends = sorted([zero, float(at(bar.value))])
        low, high = float(at(bar.low)), float(at(bar.high))
        middle = y + _ROW / 2
        wide = int((label - 10) / 6.6)
        error = f"M{low:.1f} {middle:.1f}H{high:.1f}"
        error += "".join(f"M{end:.1f} {middle - 4:.1f}v8" for end in (low, high))
        shown = visible(texts.shortened(bar.name, middle=True, width=wide))
        rect = {"x": ends[0], "y": y + 4, "width": ends[1] - ends[0], "height": _ROW - 8}
        label_of = el("text", shown, x=label - 6, y=middle + 4, class_="end name")
        number_of = el("text", bar.text, x=frame.width - 2, y=middle + 4, class_="end value")
        parts.append(_bar(bar, rect, error, label_of, number_of))
    axes = _axes(frame, chart.axis, Axis(0, 1, fixed=[]), inner)
    line = el("path", d=f"M{zero:.1f} {top:.1f}V{inner[2]:.1f}", class_="zero")
    return _svg(frame, axes, *parts, line)


def _bar(bar: Bar, rect: dict[str, float], error: str, *words: Html) -> Html:
    title = el("title", f"{visible(bar.name)}: {bar.text}")
    whisker = el("path", d=error, class_="whisker")
    return el("g", title, el("rect", **rect), whisker, *words, class_="bar")


def _width(text: str) -> int:
    return len(text) + sum(letter > "\u1100" for letter in text)


def columns(frame: Frame, chart: Chart) -> Html:
    """Upright bars, the first on the left."""
    drawn, y = chart.drawn, chart.axis
    left, right = left_of(frame, y), frame.width - _RIGHT
    inner = left, right, frame.height - _BOTTOM, _TOP
    at = _scale(y, inner[2], inner[3])
    each = (right - left) / max(1, len(drawn))
    parts, zero = [], float(at(0.0))
    for place, bar in enumerate(drawn):
        x, wide = left + each * (place + 0.1), each * 0.8
        ends = sorted([zero, float(at(bar.value))])
        low, high, middle = float(at(bar.low)), float(at(bar.high)), x + wide / 2
        cap = min(4.0, wide / 2) if len(drawn) <= CAPPED else 0.0
        error = f"M{middle:.1f} {low:.1f}V{high:.1f}"
        for end in (low, high):
            error += f"M{middle - cap:.1f} {end:.1f}h{2 * cap:.1f}" * (cap > 0)
        rect = {"x": x, "y": ends[0], "width": wide, "height": ends[1] - ends[0]}
        parts.append(_bar(bar, rect, error))
    shown = texts.marks(len(drawn), max(2, int((right - left) / 34))) if drawn else []
    ticks = [(i - 0.5, visible(drawn[i - 1].name)) for i in shown]
    x_axis = Axis(0, max(1, len(drawn)), chart.names, fixed=ticks)
    return _svg(frame, _axes(frame, x_axis, y, inner, grid=False), *parts)


# Weights of pairs


def matrix(frame: Frame, drawn: Matrix) -> Html:
    """A square of colours for each pair, both ways round; some names, if there is room for few."""
    names, n, wide = drawn.names, len(drawn.names), 13
    longest = max((_width(texts.shortened(name, True, wide)) for name in names), default=0)
    edge = 10 + 6.6 * min(wide, longest)
    side = frame.width - edge - 4
    frame = frame._replace(height=math.ceil(side + edge + 4))
    each = side / n
    parts = [_image(drawn.weights, drawn.limit, x=edge, y=4, width=side, height=side)]
    for i in texts.marks(n, min(n, int(side / 13))):
        shown = visible(texts.shortened(names[i - 1], middle=True, width=wide))
        middle = (i - 0.5) * each
        parts.append(el("text", shown, x=edge - 5, y=4 + middle + 4, class_="end name"))
        x, y = edge + middle + 4, 4 + side + 6
        turned = f"rotate(-90 {x:.1f} {y:.1f})"
        parts.append(el("text", shown, x=x, y=y, transform=turned, class_="end name"))
    return _svg(frame, *parts)


def scale(frame: Frame, drawn: Matrix) -> Html:
    """What the colours of `matrix` mean, and where the band of 0 ends."""
    left, right, height, limit = 14, frame.width - 14, 16, drawn.limit
    at = _scale(drawn.axis, left, right)
    steps = np.linspace(-limit, limit, 201)[None, :]
    parts = [_image(steps, limit, x=left, y=14, width=right - left, height=height)]
    for place in (-drawn.half, drawn.half) if drawn.half < limit else ():
        parts.append(el("path", d=f"M{float(at(place)):.1f} 10v24", class_="whisker"))
    for value, text in drawn.axis.ticks(5):
        parts.append(el("text", text, x=float(at(value)), y=48, class_="middle"))
    parts.append(el("text", drawn.axis.caption, x=frame.width / 2, y=66, class_="middle"))
    return _svg(frame._replace(height=72), *parts)


def _image(values: FloatArray, limit: float, **place: float) -> Html:
    how = {"preserveAspectRatio": "none", "class_": "pixels"}
    return el("image", **place, href=_png(_coloured(values, limit)), **how)


def _coloured(values: FloatArray, limit: float) -> npt.NDArray[np.uint8]:
    """Red for negative numbers, blue for positive ones; shape (rows, columns, 3)."""
    stops = np.array([list(bytes.fromhex(colour[1:])) for colour in (*looks.WEIGHTS, looks.NONE)])
    none, stops = stops[-1], stops[:-1]
    place = np.clip((np.nan_to_num(values) / limit + 1) / 2, 0, 1) * (len(stops) - 1)
    mixed = [np.interp(place, np.arange(len(stops)), stops[:, c]) for c in range(3)]
    pixels = np.rint(np.stack(mixed, axis=-1))
    pixels[np.isnan(values)] = none
    return pixels.astype(np.uint8)


def _png(pixels: npt.NDArray[np.uint8]) -> str:
    """An image as a data: link; shape (rows, columns, 3)."""
    rows, columns, _ = pixels.shape
    lines = b"".join(b"\0" + row.tobytes() for row in pixels)

    def chunk(kind: bytes, body: bytes) -> bytes:
        check = zlib.crc32(kind + body)
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", check)

    header = struct.pack(">IIBBBBB", columns, rows, 8, 2, 0, 0, 0)
    parts = chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(lines, 9)), chunk(b"IEND", b"")
    whole = b"\x89PNG\r\n\x1a\n" + b"".join(parts)
    return "data:image/png;base64," + base64.b64encode(whole).decode()


def framed(draw: Callable[[int], Html], alone: bool, wide: int = WIDE) -> Html:
    """A chart by its width: one that is `alone` in both, of which style.css shows what fits."""
    if not alone:
        return el("div", draw(NARROW), class_="frame")
    both = (wide, "frame wide"), (NARROW, "frame narrow")
    return joined(el("div", draw(width), class_=kind) for width, kind in both)

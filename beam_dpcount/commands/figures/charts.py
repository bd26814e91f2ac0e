"""Last releases as they are drawn: bars of items, words and degrees, and weights of pairs.

Plain data, from which PNG files and the report are drawn alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from beam_dpcount.commands.figures import scales, texts
from beam_dpcount.commands.figures.pictures import (
    STDDEVS,
    Bars,
    Degrees,
    Panel,
    Picture,
    Ranked,
    Weights,
    Words,
)

FloatArray = npt.NDArray[np.float64]

NOTHING = "There are no releases."


@dataclass(frozen=True)
class Bar:
    """A count with the ends of its band."""

    name: str
    value: float
    low: float
    high: float
    text: str  # the same in words


@dataclass(frozen=True)
class Chart:
    """One panel of bars."""

    title: str
    note: str
    bars: Sequence[Bar]  # all
    drawn: Sequence[Bar]
    axis: scales.Axis  # of the counts
    names: str  # what bars are of
    values: str  # what they count
    shared: bool = False  # all panels have these names and this scale


@dataclass(frozen=True, eq=False)
class Matrix:
    """One panel of weights; `limit` has the strongest colours, and lines are at ± `half`."""

    title: str
    note: str
    names: Sequence[str]  # of the vertices
    weights: FloatArray  # shape (n, n), NaN where there is none
    half: float
    axis: scales.Axis  # of the colours

    @property
    def limit(self) -> float:
        return self.axis.high

    def pairs(self, most: int) -> Iterator[tuple[str, str]]:
        """So many pairs of vertices, with their weights in words."""
        first, second = (places.tolist()[:most] for places in np.triu_indices(len(self.names), 1))
        for i, j in zip(first, second, strict=True):
            text = texts.with_band(float(self.weights[i, j]), self.half)
            yield f"{self.names[i]} – {self.names[j]}", text


def charts_of(picture: Picture) -> list[Chart]:
    """The panels of bars of a picture."""
    if isinstance(picture, Bars):
        return _histograms(picture)
    if isinstance(picture, Ranked):
        return [_words(words, picture.noun) for words in picture.panels]
    if isinstance(picture, Degrees):
        return [_degrees(panel, picture.domain) for panel in picture.panels]
    raise TypeError(f"no bars for {type(picture).__name__}")


def _histograms(picture: Bars) -> list[Chart]:
    """The same items in all panels, on one scale: the first, or the `top` by their totals."""
    every = [_bars(panel, picture.items, "items") for panel in picture.panels]
    kept = list(range(len(picture.items)))[: picture.most]
    if picture.top is not None:
        totals = [sum(bars[i].value for bars in every) for i in range(len(picture.items))]
        kept = sorted(range(len(totals)), key=lambda i: -totals[i])[: picture.top]
    drawn = [[bars[i] for i in kept] for bars in every]
    caption = f"private count ± {STDDEVS:g} stddev"
    axis = _axis([bar for bars in drawn for bar in bars], caption)
    return [
        Chart(panel.name, panel.note, bars, some, axis, "item", "private count", True)
        for panel, bars, some in zip(picture.panels, every, drawn, strict=True)
    ]


def _words(words: Words, noun: str) -> Chart:
    """Words of its own, on a scale of its own."""
    bars = [
        Bar(word, value, low, high, texts.with_band(value, (high - low) / 2))
        for word, value, low, high in words.rows
    ]
    axis = _axis(bars, "private count, with its 95 % band")
    return Chart(words.name, words.note, bars, bars, axis, noun, "private count")


def _degrees(panel: Panel, domain: Sequence[str]) -> Chart:
    bars = _bars(panel, domain, "degrees")
    axis = _axis(bars, f"vertices ± {STDDEVS:g} stddev")
    return Chart(panel.name, panel.note, bars, bars, axis, "neighbours", "vertices")


def _bars(panel: Panel, names: Sequence[str], noun: str) -> list[Bar]:
    half = STDDEVS * panel.stddev
    values = panel.of(len(names), "count", f"its {len(names)} {noun}").tolist()
    return [
        Bar(name, value, value - half, value + half, texts.with_band(value, half))
        for name, value in zip(names, values, strict=True)
    ]


def _axis(bars: Sequence[Bar], caption: str) -> scales.Axis:
    """From zero to the ends of all bands."""
    ends = [end for bar in bars for end in (bar.low, bar.high, bar.value) if np.isfinite(end)]
    return scales.numbers(min([0.0, *ends]), max([0.0, *ends]), caption, room=0.02)


def matrices_of(picture: Weights) -> list[Matrix]:
    """The weights of all pairs, both ways round, on one scale around zero."""
    n = len(picture.vertices)
    pairs = np.triu_indices(n, 1)
    number = len(pairs[0])
    values = [panel.of(number, "weight", f"{number} pairs") for panel in picture.panels]
    limit = max((float(np.abs(own).max(initial=0.0)) for own in values), default=0.0) or 1.0
    drawn = []
    for panel, own in zip(picture.panels, values, strict=True):
        square = np.full((n, n), np.nan)
        square[pairs] = square.T[pairs] = own
        caption = f"private weight; lines: ± {STDDEVS:g} stddev (stddev {panel.stddev:.3g})"
        axis, half = scales.Axis(-limit, limit, caption), STDDEVS * panel.stddev
        drawn.append(Matrix(panel.name, panel.note, picture.vertices, square, half, axis))
    return drawn

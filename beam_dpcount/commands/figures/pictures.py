"""What a command draws, as data, of which a PNG file and the report are made.

It holds releases and public facts, and nothing else: exact counts, for --show-truth, go to the PNG
file by themselves.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timezone, tzinfo
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

STDDEVS = 1.96  # half the length of an error bar, and the width of a band
CAPPED = 40  # bars up to which error bars have caps, and vertices up to which all have names


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


class Words(NamedTuple):
    """One panel of words: those of a release, largest private count first."""

    name: str
    note: str
    rows: Sequence[tuple[str, float, float, float]]  # a word, its count, the ends of its band


@dataclass(frozen=True)
class Picture:
    """What all pictures have."""

    title: str
    covers: str  # what its bands or error bars hold, and how often
    remark: str  # what no standard deviation covers
    choice: Sequence[str]  # how what is drawn was chosen: sentences
    keys: Collection[str]  # those that have releases, drawn or not

    @property
    def footer(self) -> str:
        return " ".join(filter(None, [self.covers, self.remark, *self.choice]))


@dataclass(frozen=True)
class Running(Picture):
    """Running counts or sums by key; the arguments are those of `series.prefix_counts`."""

    columns: Mapping[str, Any]
    only: Sequence[Hashable] | None = None
    order: Sequence[Hashable] | None = None
    selected: bool = False
    time_axis: bool = True
    zone: tzinfo = timezone.utc
    sum_of: str | None = None
    single: bool = False  # no column of keys was named: the one key says nothing


@dataclass(frozen=True)
class Bars(Picture):
    """The last histograms of some keys; see `bars.histograms`."""

    items: Sequence[str]
    panels: Sequence[Panel]
    top: int | None = None
    most: int = 20


@dataclass(frozen=True)
class Ranked(Picture):
    """The largest counts of the last releases of some keys; see `bars.top_words`."""

    panels: Sequence[Words]
    noun: str = "word"


@dataclass(frozen=True)
class Degrees(Picture):
    """How many vertices have which degree; see `bars.degrees`."""

    domain: Sequence[str]
    panels: Sequence[Panel]


@dataclass(frozen=True)
class Weights(Picture):
    """The weights of all pairs of vertices; see `graph.weights`."""

    vertices: Sequence[str]
    panels: Sequence[Panel]

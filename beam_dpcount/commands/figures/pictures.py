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
    """Running counts or sums by key; see `running.counts_of`.

    Attributes:
      columns: one row a release, in any order: `key`, `step`, `value`, `stddev` (of the noise in
        `value`) and optionally `timestamp` (microseconds since the epoch, or None).
      only: draw these keys, as far as they have releases.
      order: all keys in a public order, whose first are drawn. By default keys are ranked by their
        number of releases, which then must be public, and by name.
      selected: keys are there for their own private counts, each from some release on: their
        number of releases says nothing else, so that the first by name are drawn.
      time_axis: draw against time if every release has one, else against steps.
      zone: of the times on the axis.
      sum_of: what is summed, if releases are sums and not counts.
      of: what releases are, if neither.
      single: there is but one key, whose name says nothing and is not drawn.
    """

    columns: Mapping[str, Any]
    only: Sequence[Hashable] | None = None
    order: Sequence[Hashable] | None = None
    selected: bool = False
    time_axis: bool = True
    zone: tzinfo = timezone.utc
    sum_of: str | None = None
    of: str | None = None
    single: bool = False


@dataclass(frozen=True)
class Bars(Picture):
    """The last histograms of some keys, with a count for each item.

    `top` draws so many items, those of the largest totals first. They are chosen for being large,
    which biases them upwards. By default the first items are drawn, at most `most`, in their order.
    """

    items: Sequence[str]
    panels: Sequence[Panel]
    top: int | None = None
    most: int = 20


@dataclass(frozen=True)
class Ranked(Picture):
    """The largest counts of the last releases of some keys, each of words of its own."""

    panels: Sequence[Words]
    noun: str = "word"


@dataclass(frozen=True)
class Degrees(Picture):
    """How many vertices have which degree."""

    domain: Sequence[str]
    panels: Sequence[Panel]


@dataclass(frozen=True)
class Weights(Picture):
    """The weights of all pairs of vertices: first and second, first and third ..."""

    vertices: Sequence[str]
    panels: Sequence[Panel]

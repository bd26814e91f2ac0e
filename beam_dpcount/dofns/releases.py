"""What comes out: releases, and the elements that gave none.

No postponed annotations here: Beam would turn every field into a logical type.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Optional

from apache_beam.coders import RowCoder
from apache_beam.coders.typecoders import registry


class Release(NamedTuple):
    """One private count.

    Fields:
      key: whose count.
      step: the number of elements of the key counted, from 1; at a clock, the number of the tick,
        over the whole clock even if windows restart the count.
      timestamp: event time, microseconds since the epoch, UTC; at a clock, the end of the tick.
        Elements without a time have Beam's least one.
      value: the private prefix count. Unbiased, so it may be negative or fall.
      stddev: the standard deviation of the noise; public, known before any data.
      name: of the column: what is counted and, at a clock, in which view, such as "count_each".
      restart: where a count starts anew, the number of its start, from 1; else None.
    """

    key: str
    step: int
    timestamp: int
    value: float
    stddev: float
    name: str = "count"
    restart: Optional[int] = None  # noqa: UP045  (a row schema on Python 3.10)

    @property
    def values(self) -> dict[str, float]:
        """The value by its column, as a TickRelease has it."""
        return {self.name: self.value}

    @property
    def stddevs(self) -> dict[str, float]:
        """The standard deviation by its column."""
        return {self.name: self.stddev}


class NodeRelease(NamedTuple):
    """One private count of a node of a Hierarchy: as Release, but for path and level.

    At each step the value of a node is exactly the sum of those of its children, as decimals with
    the digits of the leaves.

    Fields:
      path: a text a level, from the top; empty below the node.
      level: the name of the node's level; "all" for the root.
    """

    path: Sequence[str]
    level: str
    step: int
    timestamp: int
    value: float
    stddev: float
    name: str = "count"
    restart: Optional[int] = None  # noqa: UP045  (a row schema on Python 3.10)

    @property
    def key(self) -> tuple[str, ...]:
        """The path as a key."""
        return tuple(self.path)

    @property
    def values(self) -> dict[str, float]:
        """The value by its column, as a TickRelease has it."""
        return {self.name: self.value}

    @property
    def stddevs(self) -> dict[str, float]:
        """The standard deviation by its column."""
        return {self.name: self.stddev}


class VectorRelease(NamedTuple):
    """One private count of every item of a public domain: as Release, but for two fields.

    Fields:
      value: the private counts, in the order of the domain. Each is unbiased.
      stddev: the standard deviation of the noise of each of them; public.
    """

    key: str
    step: int
    timestamp: int
    value: Sequence[float]
    stddev: float


class TickRelease(NamedTuple):
    """What is private and known of the events of one key, at one tick: several numbers.

    (key, timestamp) is the primary key, and so is (key, step).

    Fields:
      key: whose events.
      step: the number of the tick, from 1, over the whole clock, also where a count starts anew.
      start, timestamp: when the tick begins and ends; event time, microseconds since the epoch,
        UTC. What is released is of the events of a view, not only of this tick.
      restart: where a count starts anew, the number of its start, from 1; else None.
      names: the columns, in the order in which metrics and views were given.
      values: a number for each of them; None where `notes` says why.
      stddevs: the standard deviation of its noise, for counts and sums: public. None for others.
      lows, highs: its confidence interval; None where there is none.
      notes: "", or "too small": of so few events, beside the noise, nothing can be said; or "just
        shown": the key was chosen, ticks ago, for a high count, so that no interval holds.
    """

    key: str
    step: int
    start: int
    timestamp: int
    restart: Optional[int]  # noqa: UP045  (a row schema on Python 3.10)
    names: Sequence[str]
    values: Mapping[str, Optional[float]]  # noqa: UP045
    stddevs: Mapping[str, Optional[float]]  # noqa: UP045
    lows: Mapping[str, Optional[float]]  # noqa: UP045
    highs: Mapping[str, Optional[float]]  # noqa: UP045
    notes: Mapping[str, str]

    @property
    def value(self) -> Optional[float]:  # noqa: UP045
        """The value, where there is one column."""
        return self.values[self._only("value")]

    @property
    def stddev(self) -> Optional[float]:  # noqa: UP045
        """The standard deviation, where there is one column."""
        return self.stddevs[self._only("stddev")]

    def _only(self, wanted: str) -> str:
        if len(self.names) != 1:
            known = ", ".join(self.names)
            example = f"release.{wanted}s[{self.names[0]!r}]"
            raise AttributeError(f"the release has the columns {known}: take e.g. {example}")
        return self.names[0]


class TopRelease(NamedTuple):
    """The items of the largest private counts.

    Fields:
      key: whose counts; "" where keys themselves are the items.
      step, timestamp: of the release, or releases, that the items were taken from.
      items: the items, largest count first; ties in the order of the domain.
      values: their private counts. As these were chosen for being large, they are biased upwards.
      stddev: the standard deviation of a count's noise before the choice; public.
    """

    key: str
    step: int
    timestamp: int
    items: Sequence[str]
    values: Sequence[float]
    stddev: float


class Rejected(NamedTuple):
    """An element that was not counted, or not released. Private data: never publish it.

    `timestamp` is as for Release; `reason` does not show the value; `element` is Python's repr of
    it; `id` its public id, as text, if an `element_id` was given. The repr of this tuple leaves
    the element out, as runners may log what they process.
    """

    key: str
    timestamp: int
    reason: str
    element: str
    id: Optional[str]  # noqa: UP045  (a row schema on Python 3.10)

    def __repr__(self) -> str:
        return f"Rejected(key={self.key!r}, timestamp={self.timestamp}, reason={self.reason!r})"


for _row in (Release, NodeRelease, VectorRelease, TickRelease, TopRelease, Rejected):
    registry.register_coder(_row, RowCoder)

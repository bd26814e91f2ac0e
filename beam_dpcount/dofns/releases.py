"""What comes out: releases, and the elements that gave none.

No postponed annotations here: Beam would turn every field into a logical type.
"""

from collections.abc import Sequence
from typing import NamedTuple, Optional

from apache_beam.coders import RowCoder
from apache_beam.coders.typecoders import registry


class Release(NamedTuple):
    """One private count.

    Fields:
      key: whose count.
      step: the number of elements of the key counted, from 1; at a clock, the number of the tick.
      timestamp: event time, microseconds since the epoch, UTC; at a clock, the end of the tick.
        Elements without a time have Beam's least one.
      value: the private prefix count. Unbiased, so it may be negative or fall.
      stddev: the standard deviation of the noise; public, known before any data.
    """

    key: str
    step: int
    timestamp: int
    value: float
    stddev: float


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


for _row in (Release, VectorRelease, TopRelease, Rejected):
    registry.register_coder(_row, RowCoder)

"""The rows that come out, and what makes them of releases.

No postponed annotations here: Beam would turn every field into a logical type.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Optional

import apache_beam as beam
from apache_beam.coders import RowCoder
from apache_beam.coders.typecoders import registry
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.timestamp import MIN_TIMESTAMP

from beam_dpcount.dofns.versions import VersionedDoFn

# An alias, because the declared default is Beam's marker.
_Window: Any = beam.DoFn.WindowParam


class CountRow(NamedTuple):
    """One private count, as `Release`; times in microseconds since the epoch, UTC.

    Fields:
      key, step, value, stddev: as of Release.
      timestamp: of the element, or the end of the tick; None: the element had no time.
      window_start, window_end: of its window; None in the global one, which has no bounds.
    """

    key: str
    step: int
    timestamp: Optional[int]  # noqa: UP045  (a row schema on Python 3.10)
    value: float
    stddev: float
    window_start: Optional[int]  # noqa: UP045
    window_end: Optional[int]  # noqa: UP045


class ItemRow(NamedTuple):
    """One private count of an item, as CountRow.

    Fields:
      item: of the public domain. An element gives a row of each.
    """

    key: str
    step: int
    timestamp: Optional[int]  # noqa: UP045
    item: str
    value: float
    stddev: float
    window_start: Optional[int]  # noqa: UP045
    window_end: Optional[int]  # noqa: UP045


for _row in (CountRow, ItemRow):
    registry.register_coder(_row, RowCoder)


def time_of(micros: int) -> Optional[int]:  # noqa: UP045
    """A release's time; None where its element had none."""
    return None if micros <= MIN_TIMESTAMP.micros else micros


def bounds_of(window: Any) -> tuple[Optional[int], Optional[int]]:  # noqa: UP045
    """The bounds of a window in microseconds."""
    if isinstance(window, GlobalWindow):
        return None, None
    return window.start.micros, window.end.micros


class ToCountRow(VersionedDoFn):
    """From releases to rows."""

    def process(self, release: Any, window: Any = _Window) -> Iterator[CountRow]:
        key, step, micros, value, stddev = release[:5]
        yield CountRow(key, step, time_of(micros), value, stddev, *bounds_of(window))


class ToItemRows(VersionedDoFn):
    """From releases of a histogram to a row an item, in the order of the domain."""

    def __init__(self, domain: Sequence[str]) -> None:
        self._domain = tuple(domain)

    def process(self, release: Any, window: Any = _Window) -> Iterator[ItemRow]:
        key, step, micros, values, stddev = release
        bounds = bounds_of(window)
        for item, value in zip(self._domain, values, strict=True):
            yield ItemRow(key, step, time_of(micros), item, value, stddev, *bounds)

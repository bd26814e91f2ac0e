"""TickAggregate of rows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from operator import itemgetter
from typing import Any, Optional

import apache_beam as beam
from apache_beam.pvalue import Row
from apache_beam.typehints.row_type import RowTypeConstraint

from beam_dpcount.arguments import groups
from beam_dpcount.arguments.metrics import metric_of
from beam_dpcount.checks import ParameterError
from beam_dpcount.dofns.versions import VersionedDoFn
from beam_dpcount.rows.base import Rows, Values, keys_of, shared
from beam_dpcount.rows.fields import ANY, NUMBERS, Field, Mappings
from beam_dpcount.rows.releases import bounds_of
from beam_dpcount.statistics.metrics.base import OfField
from beam_dpcount.transforms.aggregates import TickAggregate

_FIELDS = itemgetter(0)  # of what is read of a row

# An alias, because the declared default is Beam's marker.
_Window: Any = beam.DoFn.WindowParam


class TickAggregateRows(Rows):
    """`TickAggregate` of rows: several private numbers per key, at every tick of a public clock.

    PCollection of rows with a schema -> PCollection of rows, one for each key at every tick: key,
    step, start and end of the tick in microseconds since the epoch (UTC), window_start, window_end,
    and of each column of a metric its value, <column>_stddev or null, <column>_low and
    <column>_high, the ends of its interval or null, and <column>_note, "" or why there is none. In
    columns of items "_" stands for whatever is not a letter or digit.

    Guarantee: that of TickAggregate, for all metrics together.

    Raises:
      ValueError, TypeError: as for TickCountRows, and for a metric that is not known, or takes no
        such argument.

    Example:
      >>> import apache_beam as beam
      >>> from beam_dpcount.rows import TickAggregateRows
      >>> count = TickAggregateRows(
      ...     "page", tick="1h", start=0, horizon=1, keys=["/home"], timestamp="at", rho="0.5",
      ...     metrics=[{"metric": "count"}, {"metric": "mean", "field": "ms", "high": "500"}],
      ... )
      >>> with beam.Pipeline("FnApiRunner") as pipeline:
      ...     rows = pipeline | beam.Create([beam.Row(page="/home", at=30, ms=120.5)])
      ...     _ = rows | count | beam.Map(lambda row: print(row.key, row.step, row.mean_ms_note))
      /home 1 too small
    """

    counts = "ticks metrics people select"
    first = ("key", "tick", "start", "stop")
    drops = True

    def transform(self, values: Values) -> TickAggregate:
        self._metrics = [metric_of(each) for each in values["metrics"]]
        given = shared(type(self), values) | groups.clock(values)
        return TickAggregate(
            groups.budget(values),
            keys=keys_of(values),
            metrics=self._metrics,
            window=values["window"],
            confidence=values["confidence"],
            value=_FIELDS,
            **given,
        )

    def more_fields(self) -> list[Field]:
        numbers = {each.field for each in self._metrics if isinstance(each, OfField)}
        return [
            Field("metrics", name, NUMBERS, "numbers")
            if name in numbers
            else Field("metrics", name, ANY, "anything")
            for name in self._read_by_metrics()
        ]

    def content(self, values: Values) -> Mappings:
        return Mappings(self._read_by_metrics(), values["user"])

    def _read_by_metrics(self) -> list[str]:
        return list(dict.fromkeys(name for each in self._metrics for name in each.fields))

    def write(self) -> ToAggregateRow:
        names = [name for name, _ in self._columns()]
        for name in names:
            if names.count(name) > 1:
                remedy = "give the metric that makes it another name"
                raise ParameterError("metrics", f"make two columns called {name!r}", remedy)
        return ToAggregateRow(_fields(self.count))

    def row_type(self) -> Any:
        return RowTypeConstraint.from_fields(self._columns())

    def _columns(self) -> list[tuple[str, Any]]:
        numbers = [(end, _NUMBER) for end in ("", *(f"_{end}" for end in _ENDS))]
        return [
            *(("key", str), ("step", int), ("start", int), ("end", int)),
            *(("window_start", _WHOLE), ("window_end", _WHOLE)),
            *(
                (f"{column}{end}", kind)
                for column in _fields(self.count)
                for end, kind in (*numbers, ("_note", str))
            ),
        ]


def _fields(count: Any) -> tuple[str, ...]:
    """Columns as names of fields, of which schemas take letters, digits and _ alone."""
    return tuple(re.sub(r"\W", "_", column) for column in count.columns)


_ENDS = ("stddev", "low", "high")
_NUMBER: Any = Optional[float]  # noqa: UP045  (row schemas on Python 3.10)
_WHOLE: Any = Optional[int]  # noqa: UP045  (row schemas on Python 3.10)


class ToAggregateRow(VersionedDoFn):
    """From releases to rows."""

    def __init__(self, columns: tuple[str, ...]) -> None:
        self._columns = columns

    def process(self, release: Any, window: Any = _Window) -> Iterator[Any]:
        first, last = bounds_of(window)
        row = {
            "key": release.key,
            "step": release.step,
            "start": release.start,
            "end": release.timestamp,
            "window_start": first,
            "window_end": last,
        }
        found = (release.values, release.stddevs, release.lows, release.highs, release.notes)
        ends = ("", *(f"_{end}" for end in _ENDS), "_note")
        for column, name in zip(self._columns, release.names, strict=True):
            row |= {f"{column}{end}": each[name] for end, each in zip(ends, found, strict=True)}
        yield Row(**row)  # type: ignore[no-untyped-call]

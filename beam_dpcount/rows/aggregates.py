"""TickAggregate of rows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from operator import itemgetter
from typing import Any, Optional

import apache_beam as beam
from apache_beam.pvalue import Row
from apache_beam.typehints.row_type import RowTypeConstraint

from beam_dpcount.checks import ParameterError
from beam_dpcount.dofns.versions import VersionedDoFn
from beam_dpcount.rows import arguments
from beam_dpcount.rows.arguments import length, number
from beam_dpcount.rows.counts import Rows, Source, users_of
from beam_dpcount.rows.fields import Mappings, any_field, number_field
from beam_dpcount.rows.releases import bounds_of
from beam_dpcount.statistics import metrics as known
from beam_dpcount.statistics.metrics.base import OfField
from beam_dpcount.transforms.aggregates import TickAggregate

_FIELDS, _PERSON = itemgetter(0), itemgetter(1)
_KINDS: dict[str, Any] = {
    "count": known.Count,
    "items": known.Items,
    "mean": known.Mean,
    "people": known.People,
    "quantiles": known.Quantiles,
    "rate": known.Rate,
    "sum": known.Sum,
    "variance": known.Variance,
}
_TEXTS = ("domain", "field", "name", "scale", "where")

# An alias, because the declared default is Beam's marker.
_Window: Any = beam.DoFn.WindowParam


class TickAggregateRows(Rows):
    """`TickAggregate` of rows: several private numbers per key, at every tick of a public clock.

    PCollection of rows with a schema -> PCollection of rows, one for each key at every tick: key,
    step, start and end of the tick in microseconds since the epoch (UTC), window_start, window_end,
    and of each column of a metric its value, <column>_stddev or null, <column>_low and
    <column>_high, the ends of its interval or null, and <column>_note, "" or why there is none. In
    columns of items "_" stands for whatever is not a letter or digit.

    Args:
      key, tick, start, stop, horizon, keys, select_keys, epsilon, delta, rho, timestamp,
        timestamp_format, timezone, user, per_user, per_key, gap, other, max_per_tick, until, late,
        relation, mechanism, path, secret_env, secret_file, run_id, allow_runner: as for
        TickCountRows.
      metrics: a list of mappings: `metric`, one of count, items, mean, people, quantiles, rate,
        sum, variance, and the arguments of that metric by their names, such as
        {metric: mean, field: latency, low: 0, high: 5} or {metric: rate, where: level = ERROR}.
      window: in ticks; all metrics start anew after so many.
      confidence: the level of the intervals.

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

    def __init__(
        self,
        key: str,
        tick: float | str,
        start: float | str,
        stop: float | str | None = None,
        *,
        metrics: list[Any],
        horizon: int | str | None = None,
        keys: list[str] | None = None,
        select_keys: Any = None,
        window: int | str | None = None,
        confidence: float | str = 0.95,
        epsilon: float | str | None = None,
        delta: float | str | None = None,
        rho: float | str | None = None,
        timestamp: str | None = None,
        timestamp_format: str | None = None,
        timezone: str = "UTC",
        user: str | None = None,
        per_user: int | str | None = None,
        per_key: int | str | None = None,
        gap: float | str | None = None,
        other: str | None = None,
        max_per_tick: int | str | None = None,
        until: float | str | None = None,
        late: str = "fold",
        relation: str = "add_remove",
        mechanism: str | None = None,
        path: str = "auto",
        secret_env: str | None = None,
        secret_file: str | None = None,
        run_id: str | None = None,
        allow_runner: bool = False,
    ) -> None:
        made = [metric_of(each) for each in _listed(metrics)]
        source = Source(key, timestamp, timestamp_format, timezone, user)
        count = TickAggregate(
            arguments.budget(epsilon, delta, rho),
            length("tick", tick),
            arguments.moment("start", start),
            arguments.moment("stop", stop),
            horizon=number("horizon", horizon),
            keys=arguments.select(keys, select_keys),
            metrics=made,
            window=number("window", window),
            confidence=number("confidence", confidence),
            users=users_of(user, per_user, per_key, gap),
            other=arguments.name(other),
            max_per_tick=number("max_per_tick", max_per_tick),
            until=arguments.moment("until", until),
            late=late,
            relation=relation,
            mechanism=mechanism,
            entropy=source.entropy(secret_env, secret_file, run_id),  # metrics say theirs
            value=_FIELDS,
            path=path,
            allow_runner=allow_runner,
        )
        read = dict.fromkeys(name for metric in made for name in metric.fields)
        numbers = {metric.field for metric in made if isinstance(metric, OfField)}
        more = tuple(
            number_field("metrics", name) if name in numbers else any_field("metrics", name)
            for name in read
        )
        content = Mappings(list(read), user)
        super().__init__(
            count, source, content, ToAggregateRow(_fields(count)), more=more, drops=True
        )
        names = [name for name, _ in self._columns()]
        for name in names:
            if names.count(name) > 1:
                remedy = "give the metric that makes it another name"
                raise ParameterError("metrics", f"make two columns called {name!r}", remedy)

    def _row(self) -> Any:
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


def metric_of(given: Any) -> known.Metric:
    """A metric from a mapping of its name and arguments; a name alone is one without arguments."""
    if isinstance(given, str):
        given = {"metric": given}
    example = "give e.g. {metric: mean, field: latency, low: 0, high: 5}"
    if not isinstance(given, Mapping) or "metric" not in given:
        raise TypeError(f"metrics must be mappings with a metric, got {given!r}: {example}")
    kind = _KINDS.get(str(given["metric"]))
    if kind is None:
        names = ", ".join(_KINDS)
        raise ValueError(f"unknown metric {given['metric']!r}: give one of {names}")
    options: dict[str, Any] = {}
    taken = [field.name for field in fields(kind) if field.init]
    for name, value in given.items():
        if name == "metric":
            continue
        if name not in taken:
            raise ValueError(
                f"metric {given['metric']!r} takes no {name!r}: it takes {', '.join(taken)}"
            )
        if name == "q" and isinstance(value, list | tuple):
            options[name] = [number("q", each) for each in value]
        else:
            options[name] = value if name in _TEXTS else number(name, value)
    if "low" in taken:
        options.setdefault("low", 0)
    try:
        made: known.Metric = kind(**options)
        return made
    except TypeError as error:
        if "required" not in str(error):
            raise
        raise TypeError(f"metric {given['metric']!r} needs more arguments: {example}") from None


def _listed(metrics: Any) -> list[Any]:
    if isinstance(metrics, str | Mapping) or not hasattr(metrics, "__iter__"):
        raise TypeError(f"metrics must be a list, got {metrics!r}")
    return list(metrics)

"""TickCount of rows: metrics and views at the ticks of a public clock."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any, ClassVar, Optional

from apache_beam.pvalue import PCollection, Row
from apache_beam.typehints.row_type import RowTypeConstraint

from beam_dpcount.arguments import groups
from beam_dpcount.arguments.metrics import metrics_of, needs_end, views_of
from beam_dpcount.arguments.table import Changes
from beam_dpcount.checks import ParameterError
from beam_dpcount.counters.hierarchy import Hierarchy
from beam_dpcount.counters.total import TOTAL
from beam_dpcount.dofns.versions import VersionedDoFn
from beam_dpcount.plans.alarms import AlarmPlan
from beam_dpcount.plans.columns import TickColumns, columns_of
from beam_dpcount.rows.base import Rows, Values, entropy_of, keys_of
from beam_dpcount.rows.fields import ANY, NUMBERS, Field, Mappings
from beam_dpcount.statistics.metrics.base import OfField
from beam_dpcount.transforms.alarms import MarkAlarms
from beam_dpcount.transforms.sentence import TickCount

_FIELDS, _PERSON = itemgetter(0), itemgetter(1)  # of what is read of a row
_SAME = (
    *("mechanism", "relation", "max_per_tick", "late", "other", "confidence", "path", "prefer"),
)


class TickCountRows(Rows):
    """`TickCount` of rows: private numbers by key, at every tick of a public clock.

    PCollection of rows with a schema -> PCollection of rows, one for each key at every tick: key
    (of a tree its levels, and level), step, start and timestamp (the end) of the tick in
    microseconds since the epoch (UTC), restart if a view restarts, and of each metric in each view
    its value, <column>_stddev if that is public, and <column>_low and <column>_high, the ends of
    its interval. A value is null where nothing can be said of so few rows. With `alarm` the last
    field is <column>_alarm. In columns of items "_" stands for whatever is not a letter or digit.

    Guarantee: that of TickCount: that a row is there is protected, with all that it says.

    Raises:
      ValueError, TypeError: at construction, as for TickCount, and for metrics and views that are
        not known; when applied, as for PrefixCountRows.

    Example:
      >>> import apache_beam as beam
      >>> from beam_dpcount.rows import TickCountRows
      >>> count = TickCountRows(
      ...     "page", tick="1h", start=0, horizon="2", keys=["/home"], timestamp="at", rho="0.5",
      ...     metrics=["count", "mean(ms, 0, 500)"], view="each",
      ... )
      >>> with beam.Pipeline("FnApiRunner") as pipeline:
      ...     rows = pipeline | beam.Create([beam.Row(page="/home", at=30, ms=120.5)])
      ...     _ = rows | count | beam.Map(lambda row: print(row.key, row.step, row.timestamp))
      /home 1 3600000000
      /home 2 7200000000
    """

    counts = "ticks sentence people select"
    first = ("key",)
    changes: ClassVar[Changes] = {
        "key": {"required": False, "help": "the {column} of the keys; default: one total, all"},
    }
    drops = True

    def transform(self, values: Values) -> TickCount:
        given = [values["view"]] if values["view"] else values["views"]
        self._metrics = metrics_of(values["metrics"])
        groups.check_people(values)
        clock = groups.sentence_clock(values, needs_end(given))
        until = groups.moment("until", values["until"], values["timezone"])
        what = [repr(each) for each in self._metrics], given
        count = TickCount(
            groups.budget(values),
            views_of(given, clock),
            self._metrics,
            keys=_keys(values),
            users=groups.people(values, _PERSON),
            until=until,
            value=_FIELDS,
            entropy=entropy_of(type(self), values, what),
            allow_runner=values["allow_runner"],
            **{name: values[name] for name in _SAME},
        )
        self._columns = columns_of(count)
        self._alarm = _alarm_of(count, values["alarm"])
        return count

    def key(self, values: Values) -> Any:
        return values["key"] if values["hierarchy"] is None else _levels(values)

    def follow(self, releases: PCollection[Any]) -> PCollection[Any]:
        if self._alarm is None:
            return releases
        marked: PCollection[Any] = releases | "Alarm" >> MarkAlarms(self._alarm)
        return marked

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

    def _read_by_metrics(self) -> dict[str, bool]:
        """The fields that metrics read, and whether as numbers alone."""
        alone: dict[str, bool] = {}
        for each in self._metrics:
            for name in each.fields:
                alone[name] = alone.get(name, True) and isinstance(each, OfField)
        return alone

    def write(self) -> ToTickRow:
        names = self._names()
        for name in names:
            if names.count(name) > 1:
                remedy = "give the metric that makes it another name"
                raise ParameterError("metrics", f"make two columns called {name!r}", remedy)
        return ToTickRow(self._columns, names, self._alarm is not None)

    def row_type(self) -> Any:
        placed: dict[str, Any] = {"step": int, "start": int, "timestamp": int, "restart": _WHOLE}
        placed |= dict.fromkeys(fields_of(self._columns.key_names), str)
        names = self._names()
        if self._alarm is not None:
            placed[names[-1]] = bool
        return RowTypeConstraint.from_fields([(name, placed.get(name, _NUMBER)) for name in names])

    def _names(self) -> tuple[str, ...]:
        """The fields of what comes out."""
        more = () if self._alarm is None else (self._alarm.zones.name,)
        return fields_of((*self._columns.names, *more))


def _alarm_of(count: TickCount, given: Any) -> AlarmPlan | None:
    """What watches the first column."""
    if given is None:
        return None
    try:
        return AlarmPlan(count, *given, column=count.columns[0], path=count.path)
    except ParameterError as error:
        problem = f"cannot be: {error}"
        raise ParameterError("alarm", problem) from None


def _keys(values: Values) -> Any:
    """The keys; without a column of keys, the total."""
    groups.check_tree(values, "hierarchy")
    if values["hierarchy"] is not None:
        try:
            return Hierarchy(_levels(values), values["hierarchy"], values["level_shares"])
        except ParameterError as error:
            name = _OF_TREE.get(error.name, error.name)
            raise ParameterError(name, error.problem) from None
    if values["key"] is not None:
        return keys_of(values)
    for name in ("keys", "select_keys"):
        if values[name]:
            raise groups.refusal(name, f"{{{name}}} needs {{key}}, which has the keys")
    groups.check_select(values)
    return TOTAL


def _levels(values: Values) -> tuple[str, ...]:
    """The fields of a path."""
    key: str | tuple[str, ...] = values["key"]
    return (key,) if isinstance(key, str) else key


_OF_TREE = {"levels": "key", "leaves": "hierarchy", "shares": "level_shares"}


def fields_of(columns: Iterable[str]) -> tuple[str, ...]:
    """Columns as names of fields, of which schemas take letters, digits and _ alone."""
    return tuple(re.sub(r"\W", "_", name) for name in columns)


_NUMBER: Any = Optional[float]  # noqa: UP045  (row schemas on Python 3.10)
_WHOLE: Any = Optional[int]  # noqa: UP045  (row schemas on Python 3.10)


class ToTickRow(VersionedDoFn):
    """From releases to rows; with alarms, from pairs of a release and whether one starts."""

    def __init__(self, columns: TickColumns, names: Sequence[str], marked: bool) -> None:
        self._columns, self._names, self._marked = columns, names, marked

    def process(self, element: Any) -> Iterator[Any]:
        release, starts = element if self._marked else (element, False)
        start = self._columns.start(release)
        cells = [*self._columns.key(release), release.step, start, release.timestamp]
        cells += [release.restart] * self._columns.numbered
        for column, found in self._columns.cells(release):
            cells += column.numbers(found)
        cells += [starts] * self._marked
        row: Any = Row  # Beam does not say its types
        yield row(**dict(zip(self._names, cells, strict=True)))

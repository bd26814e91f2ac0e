"""PrefixCount, Histogram and TickCount of rows."""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import PCollection

from beam_dpcount.counters.people import Users
from beam_dpcount.rows import arguments
from beam_dpcount.rows.arguments import length, number
from beam_dpcount.rows.fields import (
    ANY,
    Field,
    ReadRow,
    TimeOf,
    Values,
    check_fields,
    key_field,
    number_field,
    text,
    time_field,
)
from beam_dpcount.rows.releases import CountRow, ItemRow, ToCountRow, ToItemRows
from beam_dpcount.transforms.checking import RowCheck
from beam_dpcount.transforms.counts import PrefixCount
from beam_dpcount.transforms.histograms import Histogram
from beam_dpcount.transforms.ticks import TickCount

_TO_ROW: Any = ToCountRow()  # type: ignore[no-untyped-call]
_VALUE, _PERSON, _ID = itemgetter(0), itemgetter(1), itemgetter(2)


@dataclass(frozen=True)
class Source:
    """The fields that all transforms read, by argument: key, time and person."""

    key: Any
    timestamp: Any
    timestamp_format: Any
    timezone: Any
    user: Any

    def entropy(self, secret_env: Any, secret_file: Any, run_id: Any, **more: Any) -> Any:
        """As for `arguments.entropy`; `more` is what else is read."""
        read = vars(self) | more
        if self.timestamp is None:
            del read["timezone"]
        return arguments.entropy(secret_env, secret_file, run_id, read)

    def fields(self, more: tuple[Field, ...]) -> list[Field]:
        found = [key_field("key", self.key), *more]
        if self.timestamp is not None:
            found.append(time_field("timestamp", self.timestamp))
        if self.user is not None:
            found.append(key_field("user", self.user))
        return found

    def reader(self, content: Any, drops: bool) -> ReadRow:
        time_of = TimeOf(self.timestamp_format, self.timezone)
        return ReadRow(self.key, content, self.timestamp, time_of, drops=drops)


class Rows(beam.PTransform[Any, Any]):
    """What the transforms of rows share: fields are checked, read, counted, and made rows of.

    Args:
      count: the transform that counts.
      source, more: the fields that are read.
      content, drops: as for ReadRow.
      write: the DoFn that makes rows of releases.

    Attributes:
      count: as given, with its `counter`.
    """

    def __init__(
        self,
        count: Any,
        source: Source,
        content: Any,
        write: Any,
        *,
        more: tuple[Field, ...],
        drops: bool,
    ) -> None:
        super().__init__()
        self.count, self._fields = count, source.fields(more)
        self._read, self._write = source.reader(content, drops), write

    @property
    def counter(self) -> Any:
        """The calibrated counter of each key."""
        return self.count.counter

    def __str__(self) -> str:
        return repr(self)

    def __repr__(self) -> str:
        return repr(self.count).replace(type(self.count).__name__, type(self).__name__, 1)

    @property
    def users(self) -> Users | None:
        """The bound on people; None if it protects single events."""
        users: Users | None = self.count.users
        return users

    def check_row(self, row: Any, micros: int | None = None) -> RowCheck:
        """What becomes of a row; see `beam_dpcount.check`."""
        for field in self._fields:
            getattr(row, field.name)  # in a pipeline the schema is checked
        try:
            key, payload, own = self._read.read(row)
        except ValueError as error:
            return RowCheck(str(error), keys=())
        result: RowCheck = self.count.check_row((key, payload), micros if own is None else own)
        return result

    def _row(self) -> Any:
        """The type of what comes out."""
        return CountRow

    def expand(self, rows: PCollection[Any]) -> PCollection[Any]:
        check_fields(rows.element_type, self._fields)
        read: Any = beam.ParDo(self._read)  # type: ignore[no-untyped-call]
        write: Any = beam.ParDo(self._write)  # type: ignore[no-untyped-call]
        made: PCollection[Any] = (
            rows
            | "Read" >> read.with_output_types(tuple[Any, Any])
            | "Count" >> self.count
            | "Rows" >> write.with_output_types(self._row())
        )
        return made


def users_of(
    user: str | None, per_user: Any, per_key: Any, gap: Any = None, by: Any = _PERSON
) -> Users | None:
    """Whom to protect; None: one event."""
    if user is None:
        given = {"per_user": per_user, "per_key": per_key, "gap": gap}
        for name, value in given.items():
            if value is not None:
                raise ValueError(f"{name} bounds people: give user, the field that says who it is")
        return None
    if per_user is None:
        raise ValueError("user needs per_user, how many events of each person count: give e.g. 5")
    most = number("per_user", per_user)
    each = 1 if per_key is None else number("per_key", per_key)
    return Users(by, most, per_key=each, gap=length("gap", gap))


class PrefixCountRows(Rows):
    """`PrefixCount` of rows: a private running sum per key, a row after every row.

    PCollection of rows with a schema -> PCollection[CountRow]. Numbers may be given as text, such
    as "1e-6".

    Args:
      key: the field of the (public) key: texts, or whole numbers, which become text.
      value: the field that is summed: numbers; true counts 1. Null counts 0 and takes its step.
      horizon: the most rows of any key.
      epsilon, delta, rho: the budget: epsilon with delta, epsilon alone, or rho.
      low, high: values are clipped to them.
      unit: values are rounded to multiples of it.
      timestamp: the field of the event time. Default: the time that rows have already.
      timestamp_format: "iso", "unix" (seconds), "unix-ms", or a strptime format. Default: texts are
        ISO 8601, numbers are seconds.
      timezone: of texts without an offset.
      id: the field of a public, unique id; replayable noise needs it.
      user, per_user, per_key: the field that says whose a row is (null: nobody's, it counts 0), and
        how many rows of each person count, in all and in a key. See `Users`.
      every, relation, mechanism, on_reject, path, allow_runner: as for PrefixCount.
      secret_env, secret_file, run_id: replayable noise; see `ReplayableEntropy`.

    Guarantee: that of PrefixCount: what a row's value is, is protected; the keys, and number, order
      and times of the rows are public. A row whose time cannot be read stops the pipeline.

    Raises:
      ValueError, TypeError: at construction, as for PrefixCount; when applied, for input without a
        schema, fields that it does not have, and fields of other types.

    Example:
      >>> import apache_beam as beam
      >>> from beam_dpcount.rows import PrefixCountRows
      >>> with beam.Pipeline("FnApiRunner") as pipeline:
      ...     rows = pipeline | beam.Create([beam.Row(page="/home", bought=True)])
      ...     count = PrefixCountRows(key="page", value="bought", horizon=100, epsilon="1")
      ...     _ = rows | count | beam.Map(lambda row: print(row.key, row.step, row.timestamp))
      /home 1 None
    """

    def __init__(
        self,
        key: str,
        value: str,
        horizon: int | str | None = None,
        *,
        epsilon: float | str | None = None,
        delta: float | str | None = None,
        rho: float | str | None = None,
        low: float | str = 0,
        high: float | str = 1,
        unit: float | str = 1,
        timestamp: str | None = None,
        timestamp_format: str | None = None,
        timezone: str = "UTC",
        id: str | None = None,
        user: str | None = None,
        per_user: int | str | None = None,
        per_key: int | str | None = None,
        every: int | str = 1,
        relation: str = "replace_one",
        mechanism: str | None = None,
        on_reject: str = "drop",
        path: str = "auto",
        secret_env: str | None = None,
        secret_file: str | None = None,
        run_id: str | None = None,
        allow_runner: bool = False,
    ) -> None:
        source = Source(key, timestamp, timestamp_format, timezone, user)
        count = PrefixCount(
            arguments.budget(epsilon, delta, rho),
            number("horizon", horizon),
            bounds=(number("low", low), number("high", high)),
            unit=number("unit", unit),
            every=number("every", every),
            users=users_of(user, per_user, per_key),
            entropy=source.entropy(secret_env, secret_file, run_id, value=value, id=id),
            element_id=None if id is None else _ID,
            value=_VALUE,
            **_elements(relation, mechanism, on_reject, path, allow_runner),
        )
        more = (number_field("value", value), *_ids(id))
        content = Values(value, user, id)
        super().__init__(count, source, content, _TO_ROW, more=more, drops=False)


class HistogramRows(Rows):
    """`Histogram` of rows: private running counts of the items of a public domain.

    PCollection of rows with a schema -> PCollection[ItemRow]: after every row, a row for each item
    of the domain.

    Args:
      key, horizon, epsilon, delta, rho, timestamp, timestamp_format, timezone, id, user, per_user,
        per_key, every, relation, mechanism, on_reject, path, secret_env, secret_file, run_id,
        allow_runner: as for PrefixCountRows.
      item: the field of the item: texts, or whole numbers, which become text. One that is not in
        the domain, or null, counts nothing and takes its step.
      domain: the items; public.

    Guarantee: that of Histogram: what a row's item is, is protected.

    Raises:
      ValueError, TypeError: as for PrefixCountRows, and for a bad domain.

    Example:
      >>> import apache_beam as beam
      >>> from beam_dpcount.rows import HistogramRows
      >>> with beam.Pipeline("FnApiRunner") as pipeline:
      ...     rows = pipeline | beam.Create([beam.Row(page="/home", action="view")])
      ...     count = HistogramRows("page", "action", ["view", "buy"], horizon=100, epsilon=1)
      ...     _ = rows | count | beam.Map(lambda row: print(row.key, row.step, row.item))
      /home 1 view
      /home 1 buy
    """

    def __init__(
        self,
        key: str,
        item: str,
        domain: list[str],
        horizon: int | str | None = None,
        *,
        epsilon: float | str | None = None,
        delta: float | str | None = None,
        rho: float | str | None = None,
        timestamp: str | None = None,
        timestamp_format: str | None = None,
        timezone: str = "UTC",
        id: str | None = None,
        user: str | None = None,
        per_user: int | str | None = None,
        per_key: int | str | None = None,
        every: int | str = 1,
        relation: str = "replace_one",
        mechanism: str | None = None,
        on_reject: str = "drop",
        path: str = "auto",
        secret_env: str | None = None,
        secret_file: str | None = None,
        run_id: str | None = None,
        allow_runner: bool = False,
    ) -> None:
        names = arguments.texts("domain", domain)
        source = Source(key, timestamp, timestamp_format, timezone, user)
        count = Histogram(
            arguments.budget(epsilon, delta, rho),
            number("horizon", horizon),
            names,
            every=number("every", every),
            users=users_of(user, per_user, per_key),
            entropy=source.entropy(secret_env, secret_file, run_id, item=item, id=id),
            element_id=None if id is None else _ID,
            value=_VALUE,
            **_elements(relation, mechanism, on_reject, path, allow_runner),
        )
        more = (key_field("item", item), *_ids(id))
        content = Values(item, user, id, text)
        super().__init__(count, source, content, ToItemRows(names), more=more, drops=False)

    def _row(self) -> Any:
        return ItemRow


class TickCountRows(Rows):
    """`TickCount` of rows: a private running sum per key, at every tick of a public clock.

    PCollection of rows with a schema -> PCollection[CountRow], one for each key at every tick.

    Args:
      key: the field of the key: texts, or whole numbers, which become text.
      tick: the time between releases: seconds, or text with a unit, such as "15m" or "1h".
      start, stop: seconds since 1970, or ISO 8601 with an offset (in YAML in quotes).
      horizon: the number of ticks, in place of stop.
      keys: the public keys; whole numbers become text. Rows of others leave no trace, nor do those
        without a key, outside the clock, or with a time that cannot be read.
      select_keys: true, or options of `SelectKeys` by name, in place of keys.
      value: the field that is summed: numbers; null adds nothing. Default: each row counts 1.
      low, high, unit, epsilon, delta, rho, timestamp, timestamp_format, timezone, secret_env,
        secret_file, run_id, allow_runner: as for PrefixCountRows.
      user, per_user, per_key, gap: the field that says whose a row is (null: nobody's, it does not
        count), and how many rows of each person count, in all and in a key, and how far apart they
        are, at least. See `Users`.
      other: a key of keys, under which rows with unlisted keys count.
      until: a time, as for start: only ticks that have ended by then are released; see TickCount.
      relation, mechanism, max_per_tick, late, path: as for TickCount.

    Guarantee: that of TickCount: that a row is there is protected, with its key, time and value.

    Raises:
      ValueError, TypeError: at construction, as for TickCount; when applied, as for
        PrefixCountRows.

    Example:
      >>> import apache_beam as beam
      >>> from beam_dpcount.rows import TickCountRows
      >>> with beam.Pipeline("FnApiRunner") as pipeline:
      ...     rows = pipeline | beam.Create([beam.Row(page="/home", at=1_700_000_000)])
      ...     count = TickCountRows(
      ...         "page", tick="1h", start=1_700_000_000, horizon="2", keys=["/home"],
      ...         timestamp="at", epsilon=1, delta="1e-6",
      ...     )
      ...     _ = rows | count | beam.Map(lambda row: print(row.key, row.step, row.timestamp))
      /home 1 1700003600000000
      /home 2 1700007200000000
    """

    def __init__(
        self,
        key: str,
        tick: float | str,
        start: float | str,
        stop: float | str | None = None,
        *,
        horizon: int | str | None = None,
        keys: list[str] | None = None,
        select_keys: Any = None,
        value: str | None = None,
        epsilon: float | str | None = None,
        delta: float | str | None = None,
        rho: float | str | None = None,
        low: float | str = 0,
        high: float | str = 1,
        unit: float | str = 1,
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
        source = Source(key, timestamp, timestamp_format, timezone, user)
        count = TickCount(
            arguments.budget(epsilon, delta, rho),
            length("tick", tick),
            arguments.moment("start", start),
            arguments.moment("stop", stop),
            horizon=number("horizon", horizon),
            keys=arguments.select(keys, select_keys),
            bounds=(number("low", low), number("high", high)),
            unit=number("unit", unit),
            users=users_of(user, per_user, per_key, gap),
            other=arguments.name(other),
            max_per_tick=number("max_per_tick", max_per_tick),
            until=arguments.moment("until", until),
            late=late,
            relation=relation,
            mechanism=mechanism,
            entropy=source.entropy(secret_env, secret_file, run_id, value=value),
            value=_VALUE,
            path=path,
            allow_runner=allow_runner,
        )
        more = () if value is None else (number_field("value", value),)
        content = Values(value, user, None)
        super().__init__(count, source, content, _TO_ROW, more=more, drops=True)


def _elements(
    relation: str, mechanism: str | None, on_reject: str, path: str, allow_runner: bool
) -> dict[str, Any]:
    """Arguments that both per-element transforms take as they are."""
    if on_reject == "collect":
        raise ValueError('on_reject="collect" has two outputs, which rows do not: give "drop"')
    return {
        "relation": relation,
        "mechanism": mechanism,
        "on_reject": on_reject,
        "path": path,
        "allow_runner": allow_runner,
    }


def _ids(name: str | None) -> tuple[Field, ...]:
    return () if name is None else (Field("id", name, ANY, "ids"),)

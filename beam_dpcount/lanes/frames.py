"""Data frames as columns of events: whatever has Arrow's PyCapsule interface."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from beam_dpcount.checks import ParameterError
from beam_dpcount.lanes import cells
from beam_dpcount.lanes.contents import Contents, FieldCells
from beam_dpcount.lanes.ticks import Columns
from beam_dpcount.reading import UNREADABLE, read, text_of

PROBLEM = "cannot be read as columns of Arrow"
NO_COLUMN = "{name!r} is no column of the table, which has {names}"
NAIVE = "column {name!r} has times without a time zone"
_NAMES = 20  # that a message shows


@dataclass(frozen=True)
class Frame:
    """Which columns of a table say what of an event.

    Args:
      table: a pandas, Polars, DuckDB or Arrow table, or a reader of record batches, read once.
      key, time, user, value: the columns of the key, the time, the person, and of the number that
        counts; None where there is none.
      times: how times are read.
    """

    table: object
    key: str | None
    time: str
    user: str | None
    value: str | None
    times: cells.Times

    def columns(self, contents: Sequence[Contents]) -> Iterator[Columns]:
        """The events, batch by batch.

        Raises:
          ParameterError: there is no such column, or times are local ones of an unknown zone.
        """
        reader = _reader(self.table)
        self._check(reader.schema)
        while (batch := read(reader.read_next_batch)) is not UNREADABLE:
            yield from self._events(batch, contents)
        # Arrow's own message may show cells.
        if read(_is_over, reader) is not True:
            raise ParameterError("table", PROBLEM, "repair it, or convert it")

    def _events(self, batch: pa.RecordBatch, contents: Sequence[Contents]) -> Iterator[Columns]:
        """The events of a batch; what cannot be read counts nothing, whatever is beside it."""
        found = read(self._of, batch, contents)
        if found is not UNREADABLE:
            yield found
        elif len(batch) > 1:
            half = len(batch) // 2
            yield from self._events(batch[:half], contents)
            yield from self._events(batch[half:], contents)

    def _check(self, schema: pa.Schema) -> None:
        for parameter in ("key", "time", "user", "value"):
            name = getattr(self, parameter)
            if name is not None and schema.names.count(name) != 1:
                names = ", ".join(map(repr, schema.names[:_NAMES])) or "none"
                problem = NO_COLUMN.format(name=name, names=names)
                raise ParameterError(parameter, f"= {problem}", f"give {{{parameter}}} one of them")
        kind = schema.field(self.time).type
        if pa.types.is_timestamp(kind) and kind.tz is None and not self.times.in_utc:
            raise ParameterError(
                "time",
                NAIVE.format(name=self.time),
                "say it, e.g. by df['ts'].dt.tz_localize('UTC'), or give the Clock zone='UTC'",
            )

    def _of(self, batch: pa.RecordBatch, contents: Sequence[Contents]) -> Columns:
        def column(name: str) -> pa.Array:
            return _plain(batch.column(name))

        micros, known = self.times.micros(column(self.time))
        keys = None if self.key is None else cells.texts(column(self.key), text_of)
        people = None if self.user is None else cells.texts(column(self.user), text_of)
        fields = {}
        if self.value is not None:
            array = column(self.value)
            fields[self.value] = FieldCells(array, _itself, not pa.types.is_string(array.type))
        return Columns(micros, [each.of_cells(fields, known) for each in contents], keys, people)


def _itself(cell: object) -> object:
    """What an event holds in a field, given the cell."""
    return cell


def _reader(table: Any) -> pa.RecordBatchReader:
    """Reads a table, batch by batch."""
    try:
        if hasattr(table, "__arrow_c_stream__"):
            return pa.RecordBatchReader.from_stream(table)
        if hasattr(table, "__arrow_c_array__"):
            batch = pa.record_batch(table)
            return pa.RecordBatchReader.from_batches(batch.schema, [batch])
    except (pa.ArrowException, TypeError):
        pass
    raise ParameterError(
        "table",
        f"{PROBLEM}: it is {type(table).__name__}",
        "give a pandas, Polars, DuckDB or pyarrow table, or pyarrow.table({{...}})",
    )


def _is_over(reader: pa.RecordBatchReader) -> bool:
    """Whether a reader has no more batches; an error if it has, or cannot say."""
    try:
        reader.read_next_batch()
    except StopIteration:
        return True
    return False


def _plain(array: Any) -> Any:
    """Texts as plain ones, and times in microseconds or coarser, rounded down."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        array = array.dictionary_decode()
        kind = array.type
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return array.cast(pa.string())
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        micros = pc.fill_null(array.view(pa.int64()), 0).to_numpy() // 1000
        known = array.is_valid().to_numpy(zero_copy_only=False)
        return pa.array(micros, pa.int64(), mask=~known).view(pa.timestamp("us", kind.tz))
    return array

"""Data frames as columns of events: whatever has Arrow's PyCapsule interface."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from beam_dpcount.checks import ParameterError
from beam_dpcount.lanes import cells
from beam_dpcount.lanes.contents import Contents, FieldCells
from beam_dpcount.lanes.ticks import Columns
from beam_dpcount.lanes.trees import texts_of_paths
from beam_dpcount.reading import UNREADABLE, read, text_of

PROBLEM = "cannot be read as columns of Arrow"
NO_COLUMN = "{name!r} is no column of the table, which has {names}"
NAIVE = "column {name!r} has times without a time zone"
BROKE_OFF = (
    "broke off before its last row, with an error of its own, which may show cells: nothing was "
    "released or spent",
    "read it whole first, as texts where cells may not be numbers or times",
)
_NAMES = 20  # that a message shows
_ROWS = 1 << 16  # of a batch
_LARGEST_EXACT = 1 << 53  # from it on two whole numbers may be one float
Batch = Mapping[str, pa.Array | list[object]]


@dataclass(frozen=True)
class Frame:
    """Which columns of a table say what of an event.

    Args:
      table: a pandas, Polars, DuckDB or Arrow table, or a reader of record batches, read once.
      key: the column of the key, or of paths in a tree a column a level; None: there is none.
      time, user: the columns of the time and the person; None where there is none.
      fields: the columns that metrics read.
      times: how times are read.
    """

    table: object
    key: str | tuple[str, ...] | None
    time: str
    user: str | None
    fields: Sequence[str]
    times: cells.Times

    def columns(self, contents: Sequence[Contents]) -> Iterator[Columns]:
        """The events, batch by batch.

        Raises:
          ParameterError: there is no such column, times are local ones of an unknown zone, or the
            table broke off.
        """
        keys = self.key if isinstance(self.key, tuple) else (self.key,)
        read_by = [*(("key", name) for name in keys), ("time", self.time), ("user", self.user)]
        names = [(parameter, name) for parameter, name in read_by if name is not None]
        names += [("what", name) for name in self.fields]
        source: _Source = _Pandas(self.table) if _is_pandas(self.table) else _Arrow(self.table)
        for parameter, name in names:
            if source.names.count(name) != 1:
                shown = ", ".join(map(repr, source.names[:_NAMES])) or "none"
                problem = NO_COLUMN.format(name=name, names=shown)
                raise ParameterError(parameter, f"= {problem}", f"give {{{parameter}}} one of them")
        self._check_times(source)
        for batch in source.batches([*dict.fromkeys(name for _, name in names)]):
            yield from self._events(batch, contents)

    def _events(self, batch: Batch, contents: Sequence[Contents]) -> Iterator[Columns]:
        """The events of a batch; what cannot be read counts nothing, whatever is beside it."""
        found, rows = read(self._of, batch, contents), len(batch[self.time])
        if found is not UNREADABLE:
            yield found
        elif rows > 1:
            for some in (slice(rows // 2), slice(rows // 2, rows)):
                yield from self._events(
                    {name: cell[some] for name, cell in batch.items()}, contents
                )

    def _check_times(self, source: _Source) -> None:
        kind = source.kind(self.time)
        if pa.types.is_timestamp(kind) and kind.tz is None and not self.times.in_utc:
            raise ParameterError(
                "time",
                NAIVE.format(name=self.time),
                "say it, e.g. by df['ts'].dt.tz_localize('UTC'), or give the Clock zone='UTC'",
            )

    def _of(self, batch: Batch, contents: Sequence[Contents]) -> Columns:
        batch = {name: _plain(column) for name, column in batch.items()}
        micros, known = self.times.micros(batch[self.time])
        keys = None
        if isinstance(self.key, tuple):
            keys = texts_of_paths([cells.texts(batch[name], _id_of) for name in self.key])
        elif self.key is not None:
            keys = cells.texts(batch[self.key], _id_of)
        people = None if self.user is None else cells.texts(batch[self.user], _id_of)
        fields = {}
        for name in self.fields:
            array = batch[name]
            numbers = not isinstance(array, list) and not pa.types.is_string(array.type)
            fields[name] = FieldCells(array, _itself, numbers)
        return Columns(micros, [each.of_cells(fields, known) for each in contents], keys, people)


def _itself(cell: object) -> object:
    """What an event holds in a field, given the cell."""
    return cell


def _id_of(cell: object) -> str | None:
    """The text of an id. Whole numbers may be floats: pandas makes them so where one is missing."""
    if isinstance(cell, float) and cell.is_integer() and abs(cell) < _LARGEST_EXACT:
        return text_of(int(cell))
    return text_of(cell)


class _Source(ABC):
    """A table that is read."""

    names: list[str]

    @abstractmethod
    def kind(self, name: str) -> pa.DataType:
        """The type of a column."""

    @abstractmethod
    def batches(self, names: Sequence[str]) -> Iterator[Batch]:
        """Its rows: of these columns only, as others are nobody's business."""


class _Arrow(_Source):
    """A table with Arrow's interface."""

    def __init__(self, table: Any) -> None:
        # Whatever its class raises may show cells.
        reader = read(_opened, table)
        if reader is UNREADABLE or reader is None:
            raise ParameterError(
                "table",
                f"{PROBLEM}: it is {type(table).__name__}",
                "give a pandas, Polars, DuckDB or pyarrow table, or pyarrow.table({{...}})",
            ) from None
        self._reader: pa.RecordBatchReader = reader
        self.names = [*reader.schema.names]

    def kind(self, name: str) -> pa.DataType:
        return self._reader.schema.field(name).type

    def batches(self, names: Sequence[str]) -> Iterator[Batch]:
        while (batch := read(_next_of, self._reader)) is not None:
            if batch is UNREADABLE:  # what has come so far is not all
                raise ParameterError("table", *BROKE_OFF)
            yield {name: batch.column(name) for name in names}


def _opened(table: Any) -> pa.RecordBatchReader | None:
    if hasattr(table, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(table)
    if hasattr(table, "__arrow_c_array__"):
        batch = pa.record_batch(table)
        return pa.RecordBatchReader.from_batches(batch.schema, [batch])
    return None


def _next_of(reader: pa.RecordBatchReader) -> pa.RecordBatch | None:
    """The next batch; None after the last one."""
    try:
        return reader.read_next_batch()
    except StopIteration:
        return None


class _Pandas(_Source):
    """A pandas data frame. Its own way to Arrow takes the type of a column from its cells, so that
    one of them would decide over all others."""

    def __init__(self, table: Any) -> None:
        self._table, self.names = table, [*table.columns]

    def kind(self, name: str) -> pa.DataType:
        none = read(self._cells, name, slice(0))
        return none.type if isinstance(none, pa.Array) else pa.null()

    def batches(self, names: Sequence[str]) -> Iterator[Batch]:
        for first in range(0, len(self._table), _ROWS):
            rows = slice(first, first + _ROWS)
            columns = {name: read(self._cells, name, rows) for name in names}
            if any(column is UNREADABLE for column in columns.values()):  # by a class of its own
                raise ParameterError("table", *BROKE_OFF)
            yield columns

    def _cells(self, name: str, rows: slice) -> pa.Array | list[object]:
        return _cells_of(self._table[name].iloc[rows])


def _is_pandas(table: object) -> bool:
    frame = getattr(sys.modules.get("pandas"), "DataFrame", None)
    return frame is not None and isinstance(table, frame)


def _cells_of(series: Any) -> pa.Array | list[object]:
    """The cells of a column, by its type; where cells may have any, one by one."""
    if str(series.dtype) in ("object", "category", "string"):
        found: list[object] = series.astype(object).tolist()
        if all(type(cell) is str or cell is None for cell in found):
            texts = read(pa.array, found, pa.string())
            return found if texts is UNREADABLE else texts
        return found
    array = read(pa.Array.from_pandas, series)
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    return series.astype(object).tolist() if array is UNREADABLE else array


def _plain(array: Any) -> Any:
    """Texts as plain ones, and times in microseconds or coarser, rounded down."""
    if isinstance(array, list):
        return array
    kind = array.type
    if pa.types.is_dictionary(kind):
        array = array.dictionary_decode()
        kind = array.type
    if pa.types.is_float16(kind):
        return array.cast(pa.float32())
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return array.cast(pa.string())
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        micros = pc.fill_null(array.view(pa.int64()), 0).to_numpy() // 1000
        known = array.is_valid().to_numpy(zero_copy_only=False)
        return pa.array(micros, pa.int64(), mask=~known).view(pa.timestamp("us", kind.tz))
    return array

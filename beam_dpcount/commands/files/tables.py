"""Writes a bounded collection of releases to one sorted file, and reads it back.

The file is CSV, JSON lines (the columns of CSV as names of an object) or Parquet.
"""

import csv
import gzip
import io
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems
from apache_beam.pvalue import PCollection
from apache_beam.transforms.window import GlobalWindow, GlobalWindows
from apache_beam.utils import windowed_value
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.windowed_value import WindowedValue

from beam_dpcount.commands import stop
from beam_dpcount.commands.files.beside import beside
from beam_dpcount.commands.files.formats import (
    Columns,
    InputError,
    Table,
    kind_of,
    unreadable,
)
from beam_dpcount.commands.progress import Progress

SUFFIXES = (".csv", ".jsonl", ".csv.gz", ".jsonl.gz", ".parquet")
_KINDS = {str: pa.string(), int: pa.int64(), float: pa.float64()}
_NUMBERS = 1 << 18  # of a batch, rows times columns
_SLICE = 1 << 16  # rows that are written at once
_START = MIN_TIMESTAMP.micros
_NOTHING = b""  # no batch: a collection without rows makes a file too


class Last(NamedTuple):
    """The last release of a key that has rows, and the table's own cells in these."""

    step: int
    rows: list[tuple[Any, ...]]


class Output:
    """A file of releases, to be written by `WriteTable` and read back if it is local.

    Args:
      path: ends in one of SUFFIXES, on any file system that Beam knows.
      table: its columns; other ones in the file, when it is read back, are an InputError.
      about: a text for the metadata of Parquet, under the key beam_dpcount.
    """

    def __init__(self, path: str, table: Table, about: str = "") -> None:
        check_name(path)
        self._kind = kind_of(path)
        self.path, self.table, self.about = path, table, about

    def records(self) -> Iterator[tuple[Any, ...]]:
        """The rows; a timestamp that was not written is None."""
        names, kinds = zip(*self.table.schema, strict=True)
        try:
            if self._kind == "parquet":
                with pq.ParquetFile(self.path) as file:
                    for batch in file.iter_batches():
                        read = (batch[name].cast(_KINDS[kind]) for name, kind in self.table.schema)
                        yield from zip(*(column.to_pylist() for column in read), strict=True)
                return
            with _opened(self.path) as text:
                if self._kind == "jsonl":
                    for line in text:
                        found = json.loads(line)
                        yield tuple(_typed(kind, found[name]) for name, kind in self.table.schema)
                    return
                rows = csv.reader(text, strict=True)
                if tuple(next(rows, ())) != names:
                    raise ValueError
                for row in rows:
                    yield tuple(_cell(kind, cell) for kind, cell in zip(kinds, row, strict=True))
        except OSError as error:
            raise unreadable(self.path, error) from error
        except (csv.Error, pa.ArrowException, KeyError, ValueError, TypeError, EOFError):
            expected = f"a file of releases, whose columns are {', '.join(names)}"
            raise InputError(f"{self.path}: not {expected}") from None

    def columns(self) -> dict[str, list[Any]]:
        """The same, by column."""
        names = [name for name, _ in self.table.schema]
        read = list(zip(*self.records(), strict=True)) or [()] * len(names)
        return {name: list(column) for name, column in zip(names, read, strict=True)}

    def written_keys(self) -> int:
        """How many keys have rows, or an InputError. Much faster than `records`."""
        keys: set[str] = set()
        try:
            if self._kind == "jsonl":
                keys.update(key for key, *_ in self.records())
            elif self._kind == "parquet":
                with pq.ParquetFile(self.path) as file:
                    for batch in file.iter_batches(columns=["key"]):
                        keys.update(batch["key"].unique().to_pylist())
            else:
                how: dict[str, Any] = {"column_types": {"key": pa.string()}}
                how["include_columns"] = ["key"]
                quoted = pa_csv.ParseOptions(newlines_in_values=True)
                with pa_csv.open_csv(
                    self.path, parse_options=quoted, convert_options=pa_csv.ConvertOptions(**how)
                ) as batches:
                    for batch in batches:
                        keys.update(batch["key"].unique().to_pylist())
        except OSError as error:
            raise unreadable(self.path, error) from error
        return len(keys)

    @cached_property
    def last(self) -> dict[str, Last]:
        """The last release of each key, most rows first."""
        last: dict[str, Last] = {}
        for key, step, _, *cells in self.records():
            if key not in last or step > last[key].step:
                last[key] = Last(step, [])
            if step == last[key].step:
                last[key].rows.append(tuple(cells))
        return dict(sorted(last.items(), key=lambda entry: (-entry[1].step, entry[0])))


def _cell(kind: type, cell: str) -> Any:
    return None if kind is not str and not cell else kind(cell)


def _typed(kind: type, cell: Any) -> Any:
    """A value in JSON, or a ValueError for one of another type."""
    if not isinstance(cell, int | float if kind is float else kind) and cell is not None:
        raise ValueError
    return cell if cell is None else kind(cell)


def _opened(path: str) -> Any:
    how: Any = {"mode": "rt", "encoding": "utf-8", "newline": ""}
    return (gzip.open if path.lower().endswith(".gz") else open)(path, **how)


class WriteTable(beam.PTransform[PCollection[Any], PCollection[str]]):
    """Writes all releases of a bounded collection to one file, and then yields its path.

    The rows come together on one worker, in Arrow's format. They are written beside the output and
    then renamed: there is never half a file, and an existing one is replaced. They are sorted by
    their own cells, whatever order they come in.

    Args:
      timed: whether to write the timestamps; if not, their cells are empty.
    """

    def __init__(self, output: Output, timed: bool) -> None:
        super().__init__()
        self._table, self._timed, table = output.table, timed, output.table
        self._write = WriteRows(output.path, table.schema, table.order, table.keys, output.about)

    def expand(self, releases: PCollection[Any]) -> PCollection[str]:
        rows = beam.FlatMap(self._rows).with_output_types(tuple[Any, ...])
        return releases | "Row" >> rows | "Write" >> self._write

    def _rows(self, release: object) -> Iterator[tuple[Any, ...]]:
        yield from self._table.rows(release, self._timed)


class WriteRows(beam.PTransform[PCollection[tuple[Any, ...]], PCollection[str]]):
    """Writes the rows of a bounded collection to one file, see `WriteTable`; else a ValueError.

    Args:
      output: a path that ends in one of SUFFIXES.
      order: the columns, of whole numbers or text, by which rows are sorted.
      first: all texts of the first column of `order`, in their order; by default that of text.
      about: as for `Output`.
    """

    def __init__(
        self,
        output: str,
        columns: Columns,
        order: Sequence[str],
        first: Sequence[str] = (),
        about: str = "",
        private: bool = False,
    ) -> None:
        super().__init__()
        schema = pa.schema([(name, _KINDS[kind]) for name, kind in columns])
        schema = schema.with_metadata({"beam_dpcount": about} if about else None)
        self._pack, self._write = _Pack(schema), _Write(output, schema, order, first, private)

    def expand(self, rows: PCollection[tuple[Any, ...]]) -> PCollection[str]:
        if not rows.is_bounded:
            raise ValueError("one file is written at the end: the rows must be bounded")
        seed: Any = beam.Create([(0, _NOTHING)], reshuffle=False)
        packed: Any = beam.ParDo(self._pack).with_output_types(tuple[int, bytes])
        write: Any = beam.ParDo(self._write).with_output_types(str)
        batches = rows | "Global" >> beam.WindowInto(GlobalWindows()) | "Pack" >> packed
        header = rows.pipeline | "Header" >> seed.with_output_types(tuple[int, bytes])
        together = (header, batches) | "Flatten" >> beam.Flatten() | "Together" >> beam.GroupByKey()
        return together | "Write" >> write


class _Pack(beam.DoFn):
    """From rows to batches in Arrow's format, under one key."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema, self._most = schema, max(1, _NUMBERS // len(schema))

    def start_bundle(self) -> None:
        self._rows: list[tuple[Any, ...]] = []

    def process(self, row: tuple[Any, ...]) -> Iterable[tuple[int, bytes]]:
        self._rows.append(row)
        return ((0, self._packed()),) if len(self._rows) == self._most else ()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        if self._rows:
            yield windowed_value.create((0, self._packed()), _START, (GlobalWindow(),))

    def _packed(self) -> bytes:
        columns = zip(self._schema.types, zip(*self._rows, strict=True), strict=True)
        arrays = [pa.array(cells, kind) for kind, cells in columns]
        self.start_bundle()
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, self._schema) as stream:
            stream.write_batch(pa.record_batch(arrays, schema=self._schema))
        return out.getvalue().to_pybytes()


class _Write(beam.DoFn):
    def __init__(
        self,
        output: str,
        schema: pa.Schema,
        order: Sequence[str],
        first: Sequence[str],
        private: bool = False,
    ) -> None:
        self._output, self._schema, self._private = output, schema, private
        self._order, self._first = list(order), list(first)
        self._run = stop.RUN  # of the process that cleans up

    def process(self, element: tuple[int, Iterable[bytes]]) -> Iterator[str]:
        Progress.writing = True
        read = [pa.ipc.open_stream(batch).read_all() for batch in element[1] if batch]
        table = pa.concat_tables([self._schema.empty_table(), *read])
        places = self._places(table)
        # A slice at a time: a column of text may hold more than one array of Arrow's can.
        slices = (table.take(places[i : i + _SLICE]) for i in range(0, max(1, len(places)), _SLICE))
        write = {"csv": _csv, "jsonl": _json, "parquet": _parquet}[kind_of(self._output)]
        stop.writes()
        with beside(self._output, self._run, self._private) as name:
            kind = CompressionTypes.UNCOMPRESSED
            with FileSystems.create(name, "application/octet-stream", kind) as file:
                if self._output.lower().endswith(".gz"):
                    # Without a time, so that the same rows make the same file.
                    with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:
                        write(packed, self._schema, slices)
                else:
                    write(file, self._schema, slices)
        yield self._output

    def _places(self, table: pa.Table) -> Any:
        """The numbers of the rows, in order."""
        columns: list[Any] = []
        for name in self._order:
            cells, firsts = table[name], self._first if not columns else []
            if pa.types.is_string(cells.type):
                texts = firsts or sorted(cells.unique().to_pylist())
                cells = pc.index_in(cells, pa.array(texts, cells.type))
            columns.append(cells.to_numpy())
        return np.lexsort(columns[::-1])


def _parquet(file: object, schema: pa.Schema, tables: Iterable[pa.Table]) -> None:
    with pq.ParquetWriter(file, schema) as writer:
        for table in tables:
            writer.write_table(table)


def _csv(file: Any, schema: pa.Schema, tables: Iterable[pa.Table]) -> None:
    file.write(f"{csv_line(schema.names)}\n".encode())
    for table in tables:
        rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
        file.write("".join(f"{csv_line(row)}\n" for row in rows).encode())


def _json(file: Any, schema: pa.Schema, tables: Iterable[pa.Table]) -> None:
    made = json.JSONEncoder(ensure_ascii=False, allow_nan=False)
    for table in tables:
        columns = (column.to_pylist() for column in table.columns)
        rows = (dict(zip(schema.names, row, strict=True)) for row in zip(*columns, strict=True))
        file.write("".join(f"{made.encode(row)}\n" for row in rows).encode())


def csv_line(cells: Iterable[Any]) -> str:
    """A line of CSV without its end."""
    text = io.StringIO()
    # csv quotes the characters of its line end, and both kinds of newline need quotes.
    csv.writer(text, lineterminator="\r\n").writerow(cells)
    return text.getvalue()[:-2]


# Where to write


def check_name(path: str) -> str:
    """The suffix of an output, one of SUFFIXES, or an InputError."""
    suffix = next((suffix for suffix in SUFFIXES if path.lower().endswith(suffix)), "")
    if not suffix:
        raise InputError(
            "output must end in .csv, .jsonl, .csv.gz, .jsonl.gz or .parquet, or be - for "
            f"standard output, got {path!r}"
        )
    if re.search(r"[*?[]", path):  # a pattern, to Beam
        raise InputError(f"output must have none of * ? [ in its name, got {path!r}")
    return suffix


def check_output(path: str) -> None:
    """Raise InputError where `WriteTable` could not write. Remote paths pass by their names."""
    check_name(path)
    if "://" not in path:
        check_place(f"output {path!r}", path)


def check_place(what: str, path: str) -> None:
    """Raise InputError where a file of this path cannot be made."""
    if os.path.isdir(path):
        raise InputError(f"{what} is a directory; name a file in it")
    if os.path.exists(path) and not os.path.isfile(path):  # a file would take its place
        raise InputError(f"{what} is a device or a pipe; name a file")
    directory = os.path.dirname(path) or "."
    if not os.path.isdir(directory):
        raise InputError(f"{what}: there is no directory {directory!r}; create it first")
    if not os.access(directory, os.W_OK | os.X_OK):
        raise InputError(f"{what}: directory {directory!r} is not writable")

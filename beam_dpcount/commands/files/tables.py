"""One sorted file of releases: how it is written, and read back.

The file is CSV, JSON lines (the columns of CSV as names of an object) or Parquet.
"""

import csv
import gzip
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from beam_dpcount.commands import stop
from beam_dpcount.commands.files.beside import beside, created
from beam_dpcount.commands.files.formats import (
    Columns,
    InputError,
    Table,
    kind_of,
    unreadable,
)
from beam_dpcount.commands.files.rendered import Known, csv_lines, csv_rows, json_rows
from beam_dpcount.commands.progress import Progress
from beam_dpcount.counters.alarms import starts_of
from beam_dpcount.mechanisms.base import IntArray

SUFFIXES = (".csv", ".jsonl", ".csv.gz", ".jsonl.gz", ".parquet")
KINDS = {str: pa.string(), int: pa.int64(), float: pa.float64()}
SLICE = 1 << 16  # rows that are written at once


class Last(NamedTuple):
    """The last release of a key that has rows, and the table's own cells in these."""

    step: int
    rows: list[tuple[Any, ...]]


class Output:
    """A file of releases, to be written and read back if it is local.

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
                        read = (batch[name].cast(KINDS[kind]) for name, kind in self.table.schema)
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


class Target(NamedTuple):
    """A file that is written whole.

    Fields:
      path: ends in one of SUFFIXES.
      schema: its columns.
      order: those of whole numbers or text by which rows are sorted.
      first: all texts of the first of them, in their order; by default that of text.
      private: its owner alone may read it.
      run: of the process that cleans up.
      alarm: the column in which alarms start, of rows that are sorted by key and tick.
    """

    path: str
    schema: pa.Schema
    order: Sequence[str]
    first: Sequence[str] = ()
    private: bool = False
    run: str = ""
    alarm: str = ""


def target_of(output: Output) -> Target:
    """Where releases are written."""
    table, about = output.table, output.about
    schema = schema_of(table.schema, about)
    return Target(output.path, schema, table.order, table.keys, run=stop.RUN, alarm=table.alarm)


def schema_of(columns: Columns, about: str = "") -> pa.Schema:
    """The types of a file's columns, with a text for the metadata of Parquet."""
    schema = pa.schema([(name, KINDS[kind]) for name, kind in columns])
    return schema.with_metadata({"beam_dpcount": about} if about else None)


def write(target: Target, rows: pa.Table) -> None:
    """Writes rows in any order to a file, sorted. There is never half a file."""
    Progress.writing = True
    places = _places(target, rows)
    if target.alarm:
        rows = _with_alarms(rows, places, target.alarm)
    # A slice at a time: a column of text may hold more than one array of Arrow's can.
    slices = (rows.take(places[i : i + SLICE]) for i in range(0, max(1, len(places)), SLICE))
    write_sorted(target, slices)


def write_sorted(target: Target, slices: Iterable[pa.Table]) -> None:
    """The same of sorted rows, in slices of SLICE rows but for the last, which may be empty.

    Columns of numbers may be dictionaries: numbers of one that many slices share are shown once.
    A slice is asked for when those before it were written, so that not all are held at once.
    """
    following = iter(slices)
    first = next(following)  # if there is no noise to be had, nothing can have been seen
    Progress.writing = True
    path, schema = target.path, target.schema
    write = {"csv": _csv, "jsonl": _json, "parquet": _parquet}[kind_of(path)]
    stop.writes()
    with beside(path, target.run, target.private) as name, created(name) as file:
        tables = chain([first], following)
        if path.lower().endswith(".gz"):
            # Without a time, so that the same rows make the same file.
            with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:
                write(packed, schema, tables)
        else:
            write(file, schema, tables)


def _with_alarms(rows: pa.Table, places: IntArray, name: str) -> pa.Table:
    """Rows whose column of zones is 1 where an alarm starts, else 0."""
    keys = rows["key"].combine_chunks().dictionary_encode().indices.to_numpy()[places]
    starts = np.zeros(len(places), dtype=np.int64)
    starts[places] = starts_of(rows[name].to_numpy()[places], keys)
    return rows.set_column(rows.schema.get_field_index(name), name, pa.array(starts))


def _places(target: Target, rows: pa.Table) -> IntArray:
    """The numbers of the rows, in order."""
    columns: list[Any] = []
    for name in target.order:
        cells, firsts = rows[name], target.first if not columns else []
        if pa.types.is_string(cells.type):
            texts = firsts or sorted(cells.unique().to_pylist())
            cells = pc.index_in(cells, pa.array(texts, cells.type))
        columns.append(cells.to_numpy())
    order: IntArray = np.lexsort(columns[::-1])
    return order


def _parquet(file: object, schema: pa.Schema, tables: Iterable[pa.Table]) -> None:
    with pq.ParquetWriter(file, schema) as writer:
        for table in tables:
            writer.write_table(table.cast(schema))


def _csv(file: Any, schema: pa.Schema, tables: Iterable[pa.Table]) -> None:
    file.write(f"{csv_line(schema.names)}\n".encode())
    known: Known = {}
    for table in tables:
        file.writelines(csv_rows(table, known))


def _json(file: Any, schema: pa.Schema, tables: Iterable[pa.Table]) -> None:
    known: Known = {}
    for table in tables:
        file.writelines(json_rows(table, known))


def csv_line(cells: Iterable[Any]) -> str:
    """A line of CSV without its end."""
    (line,) = csv_lines([cells])
    return line


# Where to write


def check_name(path: str) -> str:
    """The suffix of an output, one of SUFFIXES, or an InputError."""
    suffix = next((suffix for suffix in SUFFIXES if path.lower().endswith(suffix)), "")
    if not suffix:
        raise InputError(
            "output must end in .csv, .jsonl, .csv.gz, .jsonl.gz or .parquet, or be - for "
            "standard output or a table, postgresql://host/db?table=NAME or "
            f"sqlite:///file.db?table=NAME; got {_without_user(path)!r}"
        )
    if re.search(r"[*?[]", path):  # a pattern, to Beam
        raise InputError(f"output must have none of * ? [ in its name, got {path!r}")
    return suffix


def _without_user(path: str) -> str:
    """A URL without what may be a password."""
    scheme, found, rest = path.partition("://")
    return scheme + found + rest.rpartition("@")[2]


def check_output(path: str) -> None:
    """Raise InputError where nothing could be written. Remote paths pass by their names."""
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

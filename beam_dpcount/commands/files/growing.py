"""Outputs that grow: each run adds the releases of its ticks, and none is ever changed.

Rows stand by tick, then by key. A file of CSV or JSON lines has the new ones at its end; a folder
has a file of Parquet for each run; into a table of a database they are inserted.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from beam_dpcount.commands.files.addresses import is_table
from beam_dpcount.commands.files.beside import beside, created
from beam_dpcount.commands.files.databases import DatabaseTable
from beam_dpcount.commands.files.formats import InputError, Table, kind_of
from beam_dpcount.commands.files.rendered import Known, csv_rows, json_rows
from beam_dpcount.commands.files.tables import check_place, csv_line, schema_of

_AGAIN = "run again: the state has the releases, and the next run writes them"


class Growing(ABC):
    """An output that runs with a state add to.

    Args:
      path: its place.
      schema: its columns.
    """

    unit = "bytes"  # of its size

    def __init__(self, path: str, schema: pa.Schema) -> None:
        self.path, self.schema = path, schema

    @property
    @abstractmethod
    def size(self) -> int:
        """How large it is, as far as that says whether all releases are there."""

    @abstractmethod
    def check_new(self) -> None:
        """Raise InputError if there is something in its place."""

    @abstractmethod
    def add(self, rows: pa.Table, size: int) -> None:
        """Have these rows, after what it had when it was that large, and nothing else.

        Raises:
          InputError: it cannot be written.
        """


def growing(path: str, table: Table, about: str, guarantee: str) -> Growing:
    """What grows in this place, by its name.

    Args:
      path: its place.
      table: its columns.
      about: a text for the metadata of Parquet.
      guarantee: of all its rows, for the comment on a table of a database.
    """
    schema = schema_of(table.schema, about)
    if is_table(path):
        return Inserted(path, schema, DatabaseTable(path, table, guarantee))
    return (Parts if is_folder(path) else Lines)(path, schema)


def is_folder(path: str) -> bool:
    """Whether an output is a folder of files."""
    return path.endswith("/") or os.path.isdir(path)


def check(path: str) -> None:
    """Raise InputError where nothing can grow."""
    if is_table(path):
        return
    if "://" in path:
        raise InputError(f"--output {path!r}: with --state it is on this machine: give a local one")
    if is_folder(path):
        folder = path.rstrip("/")
        inside = os.path.join(folder, "x") if os.path.isdir(folder) else folder
        check_place(f"--output {path!r}", inside)
        return
    if not path.lower().endswith((".csv", ".jsonl")):
        raise InputError(
            f"--output {path!r} cannot grow: with --state give a .csv or .jsonl file, a folder for "
            "files of Parquet, such as out/ticks/, or a table of postgresql:// or sqlite:///"
        )
    check_place(f"--output {path!r}", path)


class Lines(Growing):
    """A file of CSV or JSON lines."""

    @property
    def size(self) -> int:
        try:
            return os.stat(self.path).st_size
        except FileNotFoundError:
            return 0

    def check_new(self) -> None:
        if os.path.exists(self.path):
            raise _there(self.path, "--overwrite begins it anew")

    def add(self, rows: pa.Table, size: int) -> None:
        known: Known = {}
        is_csv = kind_of(self.path) == "csv"
        try:
            with open(self.path, "r+b" if size else "w+b") as file:
                file.truncate(size)
                file.seek(size)
                if is_csv and not size:
                    file.write(f"{csv_line(self.schema.names)}\n".encode())
                file.writelines((csv_rows if is_csv else json_rows)(rows, known))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise _unwritten(self.path, error) from None


class Parts(Growing):
    """A folder of Parquet, with a file for each run that is named by the ticks it has.

    The files are whole: each takes its name once it is.
    """

    size = 0  # a file is there, whole, or not

    def check_new(self) -> None:
        with suppress(FileNotFoundError):
            if any(not name.startswith((".", "_")) for name in os.listdir(self.path)):
                raise _there(self.path, "name an empty folder")

    def add(self, rows: pa.Table, size: int) -> None:
        try:
            os.makedirs(self.path, exist_ok=True)
        except OSError as error:
            raise _unwritten(self.path, error) from None
        if not len(rows):
            return
        first, last = (rows["step"][place].as_py() for place in (0, -1))
        path = os.path.join(self.path, f"ticks-{first:08}-{last:08}.parquet")
        with beside(path) as name, created(name) as file, pq.ParquetWriter(file, self.schema) as to:
            to.write_table(rows)


class Inserted(Growing):
    """A table in a database: a row that is there already stays, and must be equal.

    Rows that somebody deleted are not missed, so that old ones can go.
    """

    unit = "tables"

    def __init__(self, path: str, schema: pa.Schema, table: DatabaseTable) -> None:
        super().__init__(path, schema)
        self._table = table

    def check_new(self) -> None:
        self._table.check(grows=False)

    @property
    def size(self) -> int:
        return int(self._table.check(grows=True))

    def add(self, rows: pa.Table, size: int) -> None:
        cells = (column.to_pylist() for column in rows.columns)
        try:
            self._table.insert(zip(*cells, strict=True))
        except InputError as error:
            raise InputError(f"{error}; {_AGAIN}") from None


def _there(path: str, remedy: str) -> InputError:
    return InputError(
        f"{path!r} is there already, and a new state has a new output: {remedy}; or give the "
        "--state of the runs that wrote it"
    )


def _unwritten(path: str, error: OSError) -> InputError:
    return InputError(
        f"{path!r} cannot be written: {error.strerror or error}; make room, and {_AGAIN}"
    )


def in_order(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Rows by tick, then by key in this order; they come by key, and then by tick."""
    places: Any = pc.index_in(rows["key"], pa.array(keys, pa.string()))
    order = pa.table({"step": rows["step"], "place": places})
    sort = [("step", "ascending"), ("place", "ascending")]
    return rows.take(pc.sort_indices(order, sort))

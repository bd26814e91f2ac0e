"""Outputs that grow: each run adds the releases of its ticks, and none is ever changed.

Rows stand by tick, then by key. A file of CSV or JSON lines has the new ones at its end; a folder
has a file of Parquet for each run; into a table of a database they are inserted.
"""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from beam_dpcount.commands.files.addresses import is_table
from beam_dpcount.commands.files.beside import beside, created, sync_folder
from beam_dpcount.commands.files.databases import DatabaseTable
from beam_dpcount.commands.files.formats import InputError, Table, kind_of
from beam_dpcount.commands.files.rendered import Known, csv_rows, json_rows
from beam_dpcount.commands.files.tables import check_place, csv_line, schema_of

_DIGEST = 32
_AGAIN = "run again: the state has the releases, and the next run writes them"


class Growing(ABC):
    """An output that runs with a state add to.

    Args:
      path: its place.
      schema: its columns.
    """

    def __init__(self, path: str, schema: pa.Schema) -> None:
        self.path, self.schema = path, schema

    @abstractmethod
    def mark(self) -> tuple[int, bytes]:
        """How large it is, and a digest of it, 32 bytes, by which a change is seen."""

    @abstractmethod
    def check_new(self) -> None:
        """Raise InputError if there is something in its place."""

    @abstractmethod
    def clear(self) -> None:
        """Removes what is in its place, if that may be, before the first run."""

    @abstractmethod
    def add(self, rows: pa.Table, before: tuple[int, bytes]) -> None:
        """Adds rows, some of which a run that died may have added.

        Args:
          rows: of all ticks of a run.
          before: its mark without them.

        Raises:
          InputError: it was changed otherwise, or cannot be written.
        """

    def changed(self) -> InputError:
        """What to raise if it is not as the last run left it."""
        return InputError(
            f"{self.path!r} is not as the last run left it: restore it from a backup, as past "
            "releases never change; copies are yours to edit"
        )


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

    def mark(self) -> tuple[int, bytes]:
        data = self._read()
        return len(data), _digest(data)

    def _read(self) -> bytes:
        try:
            with open(self.path, "rb") as file:
                return file.read()
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise _unwritten(self.path, error) from None

    def check_new(self) -> None:
        if os.path.exists(self.path):
            raise _there(self.path, "--overwrite begins it anew")

    def clear(self) -> None:
        with suppress(FileNotFoundError):
            os.remove(self.path)

    def add(self, rows: pa.Table, before: tuple[int, bytes]) -> None:
        (size, digest), data = before, self._read()
        known: Known = {}
        is_csv = kind_of(self.path) == "csv"
        header = f"{csv_line(self.schema.names)}\n".encode() if is_csv and not size else b""
        lines = b"".join([header, *(csv_rows if is_csv else json_rows)(rows, known)])
        # Appends are not atomic: what a run that died has added is the beginning of these lines.
        if len(data) < size or _digest(data[:size]) != digest or not lines.startswith(data[size:]):
            raise self.changed()
        try:
            with open(self.path, "r+b" if data else "w+b") as file:
                file.truncate(size)
                file.seek(size)
                file.write(lines)
                file.flush()
                os.fsync(file.fileno())
            sync_folder(self.path)
        except OSError as error:
            raise _unwritten(self.path, error) from None


class Parts(Growing):
    """A folder of Parquet, with a file for each run that is named by the ticks it has.

    The files are whole: each takes its name once it is.
    """

    def mark(self) -> tuple[int, bytes]:
        return self._mark(self._names())

    def _names(self) -> list[str]:
        """Of the files that are there."""
        try:
            names = os.listdir(self.path)
        except FileNotFoundError:
            return []
        return sorted(n for n in names if not n.startswith((".", "_")) and not _is_unfinished(n))

    def _mark(self, names: Sequence[str]) -> tuple[int, bytes]:
        """That of some of the files."""
        digest = hashlib.blake2b(digest_size=_DIGEST)
        for name in names:
            try:
                with open(os.path.join(self.path, name), "rb") as file:
                    digest.update(name.encode() + _digest(file.read()))
            except OSError as error:
                raise _unwritten(self.path, error) from None
        return len(names), digest.digest()

    def check_new(self) -> None:
        if self._names():
            raise _there(self.path, "name an empty folder")

    def clear(self) -> None:
        """Nothing: what is in a folder is not known."""

    def add(self, rows: pa.Table, before: tuple[int, bytes]) -> None:
        try:
            os.makedirs(self.path, exist_ok=True)
        except OSError as error:
            raise _unwritten(self.path, error) from None
        first, last = (rows["step"][place].as_py() for place in (0, -1)) if len(rows) else (0, 0)
        name = f"ticks-{first:08}-{last:08}.parquet"
        path = os.path.join(self.path, name)
        if self._mark([other for other in self._names() if other != name]) != before:
            raise self.changed()
        for other in filter(_is_unfinished, os.listdir(self.path)):
            with suppress(OSError):  # of a run that was killed: this one is alone
                os.remove(os.path.join(self.path, other))
        if not len(rows):
            return
        if os.path.exists(path):  # by a run that died after it
            if not _is(path, rows):
                raise self.changed()
            return
        with (
            beside(path) as unfinished,
            created(unfinished) as file,
            pq.ParquetWriter(file, self.schema) as to,
        ):
            to.write_table(rows)
        sync_folder(path)


def _is_unfinished(name: str) -> bool:
    """Whether a run was killed while it wrote this file."""
    return name.startswith("ticks-") and name.endswith(".partial")


def _is(path: str, rows: pa.Table) -> bool:
    """Whether a file of Parquet has these rows."""
    try:
        there = pq.read_table(path).replace_schema_metadata()
    except (OSError, pa.ArrowException):
        return False
    return bool(there.equals(rows.replace_schema_metadata()))


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_DIGEST).digest()


class Inserted(Growing):
    """A table in a database: a row that is there already stays, and must be equal.

    Rows that somebody deleted are not missed, but for those of the last tick: old ones can go.
    """

    def __init__(self, path: str, schema: pa.Schema, table: DatabaseTable) -> None:
        super().__init__(path, schema)
        self._table = table

    def check_new(self) -> None:
        self._table.check(grows=False)

    def clear(self) -> None:
        """Nothing: rows of a table are never removed."""

    def mark(self) -> tuple[int, bytes]:
        """The last tick of its rows: an older state would insert some of them anew."""
        return self._table.largest("step"), bytes(_DIGEST)

    def add(self, rows: pa.Table, before: tuple[int, bytes]) -> None:
        last = max(rows["step"].to_pylist(), default=0)
        if self.mark()[0] not in (before[0], last):  # a run that died has added all, or none
            raise self.changed()
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

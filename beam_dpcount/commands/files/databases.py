"""Tables of PostgreSQL and SQLite: releases are inserted into them, and never overwritten."""

from __future__ import annotations

import datetime as dt
import importlib.util
import os
import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import islice
from typing import Any, ClassVar
from urllib.parse import quote

from beam_dpcount.commands.files import formats
from beam_dpcount.commands.files.addresses import PASSWORDS, Address, address_of
from beam_dpcount.commands.files.formats import InputError
from beam_dpcount.commands.files.tables import check_place
from beam_dpcount.counters.moments import instant

_ROWS = 300  # of a statement: older SQLite takes 999 parameters
_WAIT = 60  # seconds, while another run writes to the same file
_CONNECT = "10"  # seconds, for a server to answer
_LONGEST = 63  # bytes of a name in PostgreSQL, which cuts off the rest of it

LONG = f"output: PostgreSQL takes names of {_LONGEST} bytes, got {{name!r}}"
DRIVER = "output: a table of PostgreSQL needs psycopg: pip install 'beam-dpcount[sql]'"
FAILED = "{table}: {reason}"
ANOTHER = "name a table that is not there yet, which is then made"
COLUMNS = f"{{table}} has other columns than this output: {{which}}: change it, or {ANOTHER}"
KEY = f"{{table}} needs the primary key ({{key}}), as rows are there once: change it, or {ANOTHER}"
COMMENT = (
    "{table} has another comment than this run's guarantee, which its rows would then not have: "
    f"{ANOTHER}"
)
ROWS = (
    "{table} has rows, which new noise would contradict: go on with what wrote them, the same "
    f"--state, or the same --secret-env and --run-id, or {ANOTHER}"
)
DIFFERS = (
    "{table} has another row for {key}: {column!r} differs. Rows are never overwritten; nothing "
    "was inserted: repeat the run that wrote it, with its options, secret and rows, "
    f"or {ANOTHER}"
)

# Statements. What fills them is quoted, and all cells are parameters.
_FIRST = "SELECT 1 FROM {table} LIMIT 1"
_LARGEST = "SELECT MAX({column}) FROM {table}"
_NONE = "SELECT {columns} FROM {table} WHERE 1 = 0"
# SQLite searches an index for a join, and reads the whole table for IN.
_SELECT = "WITH k ({names}) AS (VALUES {keys}) SELECT {cells} FROM k JOIN {table} AS t ON {same}"
_INSERT = "INSERT INTO {table} ({columns}) {rows} ON CONFLICT ({key}) DO NOTHING"

Row = tuple[Any, ...]


class DatabaseTable:
    """A table in a database, and what is inserted into it: each row once, all of a run or none.

    It is made when it is missing, with typed columns, a primary key, and the guarantee as its
    comment. One that is there must have these columns, types and key, and that comment or none.

    Args:
      output: its address, see `address_of`.
      table: its columns.
      guarantee: of all its rows.

    Raises:
      InputError: see `address_of`; or it cannot be a table of this database.
    """

    def __init__(self, output: str, table: formats.Table, guarantee: str) -> None:
        address = address_of(output)
        kinds = {n: dt.datetime if n in table.times else kind for n, kind in table.schema}
        self._kinds, self._key = [*kinds.values()], table.primary_key
        self.name = ".".join(address.names)
        self._title = f"table {self.name!r}"
        self._comment = " ".join(guarantee.split())  # in one line
        self._database = database = (_Sqlite if address.sqlite else _Postgres)(address, [*kinds])
        self._columns = {name: database.types[kind] for name, kind in kinds.items()}
        self._places = [[*kinds].index(name) for name in self._key]
        self._names = {
            "table": ".".join(map(database.quoted, address.names)),
            "columns": ", ".join(map(database.quoted, kinds)),
            "key": ", ".join(map(database.quoted, self._key)),
        }

    def check(self, grows: bool) -> bool:
        """Tries all that `insert` does, but for rows, and leaves everything as it was.

        Args:
          grows: whether rows may be there: those of a run that is repeated, or goes on.

        Returns:
          Whether the table is there.

        Raises:
          InputError: rows could not be inserted; the message says why.
        """
        with self._transaction(keep=False) as cursor:
            there = self._prepare(cursor)
            cursor.execute(_FIRST.format(**self._names), ())
            if cursor.fetchone() and not grows:
                raise InputError(ROWS.format(table=self._title))
            none = _NONE.format(**self._names)
            cursor.execute(_INSERT.format(**self._names, rows=none), ())
        return there

    def largest(self, column: str) -> int:
        """The largest whole number in a column; 0 if there is no row, or no table.

        Raises:
          InputError: as for `check`.
        """
        with self._transaction(keep=False) as cursor:
            self._prepare(cursor)
            names = {**self._names, "column": self._database.quoted(column)}
            cursor.execute(_LARGEST.format(**names), ())
            return int(cursor.fetchone()[0] or 0)

    def insert(self, rows: Iterable[Row]) -> int:
        """Inserts rows in one transaction, and returns how many were not there before.

        Args:
          rows: their cells in the order of the columns, each a text, a number or None. Times are in
            microseconds since 1970 UTC, or ISO 8601.

        Raises:
          InputError: a row is there and differs in a bit, or the database failed; none of the rows
            was inserted.
        """
        inserted, remaining = 0, iter(rows)
        insert = _INSERT.format(**self._names, rows=f"VALUES {self._marks(len(self._kinds))}")
        with self._transaction() as cursor:
            self._prepare(cursor)
            while chunk := [self._cells(row) for row in islice(remaining, _ROWS)]:
                cursor.executemany(insert, chunk)
                inserted += cursor.rowcount
                self._compare(cursor, chunk)
        return inserted

    def _cells(self, row: Row) -> Row:
        return tuple(map(self._cell, self._kinds, row))

    def _cell(self, kind: type, cell: Any) -> Any:
        if kind is dt.datetime and cell is not None:
            return self._database.time(cell if isinstance(cell, str) else instant(cell))
        # Without -0.0, which SQLite does not store.
        return cell + 0.0 if kind is float and cell is not None else cell

    def _marks(self, many: int) -> str:
        """So many parameters."""
        return f"({', '.join([self._database.mark] * many)})"

    def _key_of(self, row: Row) -> Row:
        return tuple(row[place] for place in self._places)

    def _compare(self, cursor: Any, rows: Sequence[Row]) -> None:
        """Raises an InputError unless all rows are in the table, to the bit."""
        keys = [self._key_of(row) for row in rows]
        quoted = self._database.quoted
        statement = _SELECT.format(
            names=self._names["key"],
            keys=", ".join([self._marks(len(self._key))] * len(keys)),
            cells=", ".join(f"t.{quoted(name)}" for name in self._columns),
            table=self._names["table"],
            same=" AND ".join(f"t.{name} = k.{name}" for name in map(quoted, self._key)),
        )
        cursor.execute(statement, [cell for key in keys for cell in key])
        there = {self._key_of(row): row for row in cursor.fetchall()}
        for key, row in zip(keys, rows, strict=True):
            others = there.get(key, (None,) * len(row))
            for column, cell, other in zip(self._columns, row, others, strict=True):
                if _bits(cell) != _bits(other):
                    named = ", ".join(f"{n} {x}" for n, x in zip(self._key, key, strict=True))
                    raise InputError(DIFFERS.format(table=self._title, key=named, column=column))

    @contextmanager
    def _transaction(self, keep: bool = True) -> Iterator[Any]:
        """A cursor; what it changes is committed at the end of the block, or not at all."""
        database = self._database
        try:
            with closing(database.connect(keep)) as connection:
                cursor = connection.cursor()
                database.begin(cursor)
                yield cursor
                if keep:
                    connection.commit()
        except database.error as error:
            reason = database.reason(error)
        except (UnicodeError, OverflowError):
            reason = "a text or a time is none that the database can hold"
        else:
            return
        raise InputError(FAILED.format(table=self._title, reason=reason)) from None

    def _prepare(self, cursor: Any) -> bool:
        """Makes the table if it is missing, and checks it. Returns whether it was there."""
        database = self._database
        if not (there := bool(database.columns(cursor))):
            parts = [f"{database.quoted(name)} {kind}" for name, kind in self._columns.items()]
            for place in self._places:
                parts[place] += " NOT NULL"
            parts.append(f"PRIMARY KEY ({self._names['key']})")
            database.make(cursor, self._names["table"], parts, self._comment)
        columns = database.columns(cursor)
        if which := _differences(self._columns, {n: kind for n, (kind, _) in columns.items()}):
            raise InputError(COLUMNS.format(table=self._title, which=which))
        if {name for name, (_, in_key) in columns.items() if in_key} != {*self._key}:
            raise InputError(KEY.format(table=self._title, key=", ".join(self._key)))
        if database.comment(cursor) not in ("", self._comment):
            raise InputError(COMMENT.format(table=self._title))
        return there


def _bits(cell: Any) -> Any:
    """What two cells have in common if they are equal to the bit."""
    return cell.hex() if isinstance(cell, float) else cell


def _quoted(name: str) -> str:
    """A name as SQL has it."""
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def _differences(ours: Mapping[str, str], theirs: Mapping[str, str]) -> str:
    """What is different about a table's columns, in words; empty if nothing is."""
    differences = [f"{name!r} is missing" for name in ours if name not in theirs]
    differences += [f"{name!r} is not in the output" for name in theirs if name not in ours]
    both = [(name, kind, theirs[name]) for name, kind in ours.items() if name in theirs]
    differences += [f"{name!r} is {a} in place of {b}" for name, b, a in both if a != b]
    return ", ".join(differences)


class _Sqlite:
    """What differs between databases: here a file of SQLite."""

    types: ClassVar = {str: "TEXT", int: "INTEGER", float: "REAL", dt.datetime: "TIMESTAMP"}
    mark = "?"  # of a parameter
    error = sqlite3.Error  # what the driver raises

    def __init__(self, address: Address, columns: Sequence[str]) -> None:
        self._path, self._names = address.database, address.names

    def quoted(self, name: str) -> str:
        """A name in a statement, whatever is in it."""
        return _quoted(name)

    def time(self, text: str) -> Any:
        """A time in ISO 8601 as the driver takes it, and gives it back."""
        return text

    def connect(self, keep: bool) -> sqlite3.Connection:
        """A connection; `keep`: changes may be committed."""
        check_place(f"output {self._path!r}", self._path)
        there = os.path.exists(self._path)
        if there and not os.access(self._path, os.W_OK):
            raise InputError(f"output {self._path!r} is not writable")
        # A look leaves no empty file where there was none.
        file = f"file:{quote(self._path)}?mode=rwc" if there or keep else ":memory:"
        return sqlite3.connect(file, _WAIT, isolation_level=None, uri=True)

    def begin(self, cursor: Any) -> None:
        """Begins a transaction beside which no other run writes to the table."""
        cursor.execute("BEGIN IMMEDIATE")

    def columns(self, cursor: Any) -> dict[str, tuple[str, bool]]:
        """Type, and whether it is in the primary key, by column; empty if there is no table."""
        cursor.execute("SELECT name, type, pk > 0 FROM pragma_table_info(?)", self._names)
        return {name: (kind.upper(), bool(in_key)) for name, kind, in_key in cursor.fetchall()}

    def comment(self, cursor: Any) -> str:
        """The comment on the table."""
        cursor.execute(
            "SELECT sql FROM sqlite_master WHERE type = 'table' AND name = ? COLLATE NOCASE",
            self._names,
        )
        return " ".join(re.findall(r"(?m)^-- (.*)$", cursor.fetchone()[0]))

    def make(self, cursor: Any, name: str, parts: Sequence[str], comment: str) -> None:
        """Makes a table of these columns and constraints."""
        # SQLite keeps this text, and has no other place for a comment.
        cursor.execute(f"CREATE TABLE {name} (\n-- {comment}\n{', '.join(parts)}\n)")

    def reason(self, error: Any) -> str:
        """What an error says, in a line, without details that may show a row."""
        return str(error)


class _Postgres:
    """The same of PostgreSQL. All statements have parameters, so that %% is a %."""

    types: ClassVar = {
        str: "text",
        int: "bigint",
        float: "double precision",
        dt.datetime: "timestamp with time zone",
    }
    mark = "%s"

    def __init__(self, address: Address, columns: Sequence[str]) -> None:
        if importlib.util.find_spec("psycopg") is None:
            raise InputError(DRIVER)
        for name in (*address.names, *columns):
            if len(name.encode()) > _LONGEST:
                raise InputError(LONG.format(name=name))
        import psycopg  # here: it is an extra

        self.error = psycopg.Error
        self._url, self._names = address.database, address.names

    def quoted(self, name: str) -> str:
        return _quoted(name).replace("%", "%%")

    def time(self, text: str) -> Any:
        return dt.datetime.fromisoformat(text.replace("Z", "+00:00"))  # Python 3.10 takes no Z

    def connect(self, keep: bool) -> Any:
        import psycopg
        from psycopg.conninfo import conninfo_to_dict

        given: dict[str, Any] = conninfo_to_dict(self._url)
        given.setdefault("connect_timeout", os.environ.get("PGCONNECT_TIMEOUT", _CONNECT))
        given |= {"client_encoding": "utf8", "application_name": "beam-dpcount"}
        # Without prepared statements, which some poolers of connections lose.
        return psycopg.connect(**given, prepare_threshold=None)

    def begin(self, cursor: Any) -> None:
        # In local time the hour that clocks repeat is equal to nothing elsewhere.
        cursor.execute("SET LOCAL TIME ZONE 'UTC'", ())
        # There may be no table yet that could be locked.
        cursor.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", [".".join(self._names)])

    def columns(self, cursor: Any) -> dict[str, tuple[str, bool]]:
        cursor.execute(
            "SELECT attname, format_type(atttypid, atttypmod), EXISTS (SELECT FROM pg_index WHERE "
            "indrelid = attrelid AND indisprimary AND attnum = ANY (indkey)) FROM pg_attribute "
            "WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped",
            [".".join(map(_quoted, self._names))],
        )
        return {name: (kind, in_key) for name, kind, in_key in cursor.fetchall()}

    def comment(self, cursor: Any) -> str:
        table = [".".join(map(_quoted, self._names))]
        cursor.execute("SELECT obj_description(to_regclass(%s), 'pg_class')", table)
        return cursor.fetchone()[0] or ""

    def make(self, cursor: Any, name: str, parts: Sequence[str], comment: str) -> None:
        from psycopg.sql import Literal

        text = Literal(comment).as_string(cursor).replace("%", "%%")
        cursor.execute(f"CREATE TABLE {name} ({', '.join(parts)})", ())
        cursor.execute(f"COMMENT ON TABLE {name} IS {text}", ())

    def reason(self, error: Any) -> str:
        line = error.diag.message_primary or str(error).partition("\n")[0]
        hint = f" ({PASSWORDS} have it)" * ("password" in line)
        return re.sub("connection failed: |FATAL: +", "", line) + hint

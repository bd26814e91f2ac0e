"""Tables of PostgreSQL and SQLite: rows are inserted once, equal to the bit, all of a run or none.

PostgreSQL is a server of its own; where there is none these cases are skipped, and say why.
"""

from __future__ import annotations

import datetime as dt
import doctest
import importlib.util
import math
import os
import re
import shutil
import sqlite3
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing import test_stream
from apache_beam.transforms.window import TimestampedValue

import beam_dpcount as dp
from beam_dpcount.commands import account, inserts
from beam_dpcount.commands.files import addresses, databases, formats
from beam_dpcount.commands.files.addresses import address_of
from beam_dpcount.commands.files.databases import DatabaseTable
from beam_dpcount.commands.files.formats import InputError
from beam_dpcount.commands.inserts import InsertIntoTable
from tests import each_command, postgres
from tests.command_lines import SECRET_TEXT, command, fail, succeed
from tests.each_command import MAIN
from tests.messages import says

GUARANTEE = 'Guarantee: it\'s 100 % of {all};\n-- rows */ "together" \\ %s; é'
UTC = dt.timezone.utc
Row = tuple[Any, ...]


class Ticks(formats.Table):
    """Columns such as the command ticks has, with names that need quotes."""

    @property
    def schema(self) -> list[tuple[str, type]]:
        columns: dict[str, type] = {"key": str, "step": int, "timestamp": str}
        return [*columns.items(), ('%s "a" {b}; --', float), ("high", float)]

    @property
    def primary_key(self) -> tuple[str, ...]:
        return ("key", "timestamp")


TABLE = Ticks([], lambda _: ())
NAMES = [name for name, _ in TABLE.schema]


def row(key: str, step: int, value: float | None, high: float | None = 1 / 3) -> Row:
    end = dt.datetime(2026, 10, 25, tzinfo=UTC) + dt.timedelta(minutes=30 * step)
    return key, step, end.isoformat().replace("+00:00", "Z"), value, high


def rows(key: str = "a", many: int = 10) -> list[Row]:
    return [row(key, step, 0.1 * step) for step in range(1, many + 1)]


class Sqlite:
    """A file, and what is in it."""

    types = ("TEXT", "INTEGER", "TIMESTAMP", "REAL", "REAL")
    mark = "?"

    def __init__(self, folder: Path) -> None:
        self.path = folder / "the file 100%.db"

    def url(self, table: str = "counts") -> str:
        return f"sqlite:///{quote(str(self.path))}?table={quote(table)}"

    def run(self, statement: str, *cells: object) -> list[Row]:
        with closing(sqlite3.connect(self.path)) as connection, connection:
            return connection.execute(statement, cells).fetchall()

    def read(self, table: str = "counts") -> list[Row]:
        return sorted(self.run(f"SELECT * FROM {quoted(table)}"), key=repr)

    def comment(self, table: str = "counts") -> str:
        ((text,),) = self.run("SELECT sql FROM sqlite_master WHERE name = ?", table)
        return text.split("\n-- ")[1].split("\n")[0]

    def there(self) -> list[str]:
        if not self.path.exists():
            return []
        return [name for (name,) in self.run("SELECT name FROM sqlite_master WHERE type = 'table'")]


class Postgres:
    """A schema of its own, and what is in it."""

    types = ("text", "bigint", "timestamp with time zone", "double precision", "double precision")
    mark = "%s"
    many = 0

    def __init__(self, socket: str) -> None:
        Postgres.many += 1
        self.database, self.schema = f"postgresql://tester@/postgres?host={socket}", "public"
        self.schema = f"s{self.many}"
        self.run(f"CREATE SCHEMA {self.schema}")

    def url(self, table: str = "counts") -> str:
        name = quote(table)
        return f"{self.database}&options=-csearch_path%3D{self.schema}&table={name}"

    def run(self, statement: str, *cells: object) -> list[Row]:
        import psycopg

        with psycopg.connect(self.database) as connection:
            connection.execute(f"SET search_path = {self.schema}")
            done = connection.execute(statement.encode(), cells or None)
            return done.fetchall() if done.description else []

    def read(self, table: str = "counts") -> list[Row]:
        def text(cell: object) -> object:
            if not isinstance(cell, dt.datetime):
                return cell
            return cell.astimezone(UTC).isoformat().replace("+00:00", "Z")

        found = self.run(f"SELECT * FROM {quoted(table)}")
        return sorted((tuple(map(text, one)) for one in found), key=repr)

    def comment(self, table: str = "counts") -> str:
        ((text,),) = self.run("SELECT obj_description(to_regclass(%s), 'pg_class')", quoted(table))
        return text

    def there(self) -> list[str]:
        found = self.run("SELECT tablename FROM pg_tables WHERE schemaname = %s", self.schema)
        return [name for (name,) in found]


Database = Sqlite | Postgres


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    if importlib.util.find_spec("psycopg") is None:
        pytest.skip("psycopg is not installed")
    try:
        with postgres.server() as socket:
            yield socket
    except postgres.MissingError as missing:
        pytest.skip(f"no server of PostgreSQL: {missing}")


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    if request.param == "sqlite":
        return Sqlite(tmp_path)
    return Postgres(request.getfixturevalue("server"))


def table_in(database: Database, name: str = "counts", guarantee: str = GUARANTEE) -> DatabaseTable:
    return DatabaseTable(database.url(name), TABLE, guarantee)


def shown(some: Sequence[Row]) -> list[Row]:
    return sorted(some, key=repr)


def refused(message: str, run: Callable[[], object], **fields: object) -> str:
    """What is said of a run that must be refused; nothing that was raised before it is shown."""
    with pytest.raises(InputError, match=says(message, **fields)) as error:
        run()
    assert error.value.__cause__ is None
    assert error.value.__context__ is None or error.value.__suppress_context__
    return "".join(traceback.format_exception(error.value))


# What is inserted


def test_a_table_is_made_with_types_a_key_and_the_guarantee(database: Database) -> None:
    table = table_in(database)
    table.check(grows=False)
    assert database.there() == []
    assert table.insert(rows()) == 10
    assert database.read() == shown(rows())
    assert database.comment() == " ".join(GUARANTEE.split())
    if isinstance(database, Sqlite):
        found = database.run('SELECT name, type, "notnull", pk FROM pragma_table_info(?)', "counts")
    else:
        found = database.run(
            "SELECT attname, format_type(atttypid, -1), attnotnull::int, coalesce(array_position("
            "indkey::int2[], attnum), -1) + 1 FROM pg_attribute JOIN pg_index ON indrelid = "
            "attrelid WHERE attrelid = to_regclass('counts') AND attnum > 0 ORDER BY attnum"
        )
    nulls, places = (1, 0, 1, 0, 0), (1, 0, 2, 0, 0)  # places within the key
    assert found == [*zip(NAMES, database.types, nulls, places, strict=True)]


def test_equal_rows_change_nothing_and_others_are_added(database: Database) -> None:
    table = table_in(database)
    many = rows(many=700)
    assert table.insert(many[:650]) == 650
    table.check(grows=True)
    assert table.insert(many) == 50
    assert table_in(database).insert(reversed(many)) == 0
    assert table.insert([]) == 0
    assert database.read() == shown(many)


@pytest.mark.parametrize("place", [0, 299, 300, 699])
@pytest.mark.parametrize(
    "other", [math.nextafter(7.25, math.inf), math.nextafter(7.25, 0), None, -7.25]
)
def test_a_row_that_differs_in_a_bit_refuses_the_whole_run(
    database: Database, place: int, other: float | None
) -> None:
    table = table_in(database)
    there = [row("b", 1, 50.0, 7.25), row("a", 1, 1.0)]
    table.insert(there)
    run = [row("b", 1 + step, 50.0, 7.25) for step in range(1, 700)]
    run.insert(place, row("b", 1, 50.0, other))
    said = refused(
        databases.DIFFERS,
        lambda: table.insert(run),
        table="table 'counts'",
        column="high",
    )
    assert "another row for key b, timestamp 2026-10-25" in said
    assert database.read() == shown(there)
    assert "7.25" not in said  # values are in the table, and in the run's own output
    assert "tester" not in said


def test_a_row_is_never_overwritten(database: Database) -> None:
    table = table_in(database)
    table.insert([row("a", 1, 1.0)])
    refused(databases.DIFFERS, lambda: table.insert([row("a", 1, 2.0)]))
    assert database.read() == [row("a", 1, 1.0)]


def test_two_rows_of_a_run_that_differ_are_refused(database: Database) -> None:
    refused(
        databases.DIFFERS, lambda: table_in(database).insert([row("a", 1, 1.0), row("a", 1, 2.0)])
    )
    assert database.there() == []


def test_a_run_that_ends_in_the_middle_leaves_nothing(database: Database) -> None:
    def half() -> Iterator[Row]:
        yield from rows(many=650)
        raise RuntimeError("the end")

    with pytest.raises(RuntimeError, match="the end"):
        table_in(database).insert(half())
    assert database.there() == []


def test_cells_without_numbers_and_both_zeros(database: Database) -> None:
    table = table_in(database)
    table.insert([row("", 1, 0.0, None), row("東京 \u202e '\"%s", 2, -0.0, 1e-300)])
    assert table.insert([row("", 1, -0.0, None), row("東京 \u202e '\"%s", 2, 0.0, 1e-300)]) == 0
    assert database.read() == shown(
        [row("", 1, 0.0, None), row("東京 \u202e '\"%s", 2, 0.0, 1e-300)]
    )


@pytest.mark.parametrize("value", [5e-324, 1.7976931348623157e308, 0.1 + 0.2, -1 / 3, 2.0**53 + 2])
def test_numbers_come_back_to_the_bit(database: Database, value: float) -> None:
    table = table_in(database)
    table.insert([row("a", 1, value)])
    assert table.insert([row("a", 1, value)]) == 0
    assert [found[3].hex() for found in database.read()] == [value.hex()]
    near = math.nextafter(value, 0)
    refused(databases.DIFFERS, lambda: table.insert([row("a", 1, near)]))


def test_times_in_microseconds_are_the_same_as_text(database: Database) -> None:
    table = table_in(database)
    table.insert([("a", 1, 1_761_350_400_000_001, 1.0, None), ("a", 2, -1, 1.0, None)])
    ends = ["2025-10-25T00:00:00.000001Z", "1969-12-31T23:59:59.999999Z"]
    assert [found[2] for found in database.read()] == ends
    assert table.insert([("a", 1, ends[0], 1.0, None), ("a", 2, ends[1], 1.0, None)]) == 0


def test_the_hour_that_clocks_repeat(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGTZ", "Europe/Paris")  # 25 October 2026, 1:00 UTC
    table = table_in(database)
    assert [table.insert(rows()), table.insert(rows())] == [10, 0]
    assert database.read() == shown(rows())


@pytest.mark.parametrize(
    "name", ["; drop table x; --", "it's", "Counts", "select", "東京", "100% {x} %s", "a b"]
)
def test_names_are_taken_to_the_letter(database: Database, name: str) -> None:
    table = table_in(database, name)
    assert [table.insert(rows()), table_in(database, name).insert(rows())] == [10, 0]
    assert database.there() == [name]
    assert database.read(name) == shown(rows())


def test_a_text_that_a_database_cannot_hold(database: Database) -> None:
    table = table_in(database)
    table.insert(rows())
    for key in ("\ud800", "\0") if isinstance(database, Postgres) else ("\ud800",):
        bad = [row("c", 1, 1.0), row(key, 1, 1.0)]
        refused(databases.FAILED, partial(table.insert, bad), table="table 'counts'")
    assert database.read() == shown(rows())


def test_two_runs_at_once(database: Database) -> None:
    many = rows(many=2000)

    def together(*runs: list[Row]) -> list[object]:
        ended: list[object] = []

        def run(own: list[Row]) -> None:
            try:
                ended.append(table_in(database).insert(own))
            except InputError:
                ended.append("refused")

        threads = [threading.Thread(target=run, args=(one,)) for one in runs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sorted(ended, key=str)

    assert together(many, many, many[::-1]) == [0, 0, 2000]
    ours, theirs = [*many, row("b", 1, 1.0)], [*many, row("b", 1, 2.0)]
    assert together(ours, theirs) == [1, "refused"]
    assert database.read() in (shown(ours), shown(theirs))


# A table that is there

DOUBLE = {"sqlite": "REAL", "postgresql": "double precision"}
CHANGED = {
    "another column": ("ALTER TABLE counts ADD COLUMN note TEXT", databases.COLUMNS, "'note'"),
    "a missing column": ("ALTER TABLE counts DROP COLUMN high", databases.COLUMNS, "'high'"),
    "another name": (
        "ALTER TABLE counts RENAME COLUMN high TO low",
        databases.COLUMNS,
        "'high' is missing, 'low' is not in the output",
    ),
}


@pytest.mark.parametrize("change", CHANGED)
def test_a_table_with_other_columns_is_refused(database: Database, change: str) -> None:
    statement, message, which = CHANGED[change]
    table = table_in(database)
    table.insert(rows())
    database.run(statement)
    before = database.read()
    for run in (lambda: table.check(grows=True), lambda: table.insert(rows())):
        assert which in refused(message, run, table="table 'counts'")
    assert database.read() == before


def test_a_table_of_other_types_or_without_its_key_is_refused(database: Database) -> None:
    columns = [f"{quoted(name)} {kind}" for name, kind in zip(NAMES, database.types, strict=True)]
    changed = [columns[0], f"{quoted('step')} {database.types[3]}", *columns[2:]]
    for name, parts, message in [
        ("types", [*changed, 'PRIMARY KEY (key, "timestamp")'], databases.COLUMNS),
        ("no key", columns, databases.KEY),
        ("another key", [*columns, "PRIMARY KEY (key, step)"], databases.KEY),
        ("more of a key", [*columns, 'PRIMARY KEY (key, "timestamp", step)'], databases.KEY),
    ]:
        database.run(f"CREATE TABLE {quoted(name)} ({', '.join(parts)})")
        said = refused(message, lambda name=name: table_in(database, name).check(grows=False))
        assert f"table {name!r}" in said
    kind = f"'step' is {database.types[3]} in place of {database.types[1]}"
    assert kind in refused(databases.COLUMNS, partial(table_in(database, "types").insert, rows()))
    database.run("CREATE VIEW seen AS SELECT * FROM " + quoted("no key"))
    refused(databases.KEY, lambda: table_in(database, "seen").check(grows=False))


def test_a_table_that_somebody_made_takes_rows_without_a_comment(database: Database) -> None:
    columns = [f"{quoted(name)} {kind}" for name, kind in zip(NAMES, database.types, strict=True)]
    database.run(
        f'CREATE TABLE counts ({", ".join(reversed(columns))}, PRIMARY KEY ("timestamp", key))'
    )
    table = table_in(database)
    table.check(grows=False)
    assert [table.insert(rows()), table.insert(rows())] == [10, 0]
    assert database.read() == shown([found[::-1] for found in rows()])


def test_a_table_with_another_guarantee_is_refused(database: Database) -> None:
    table_in(database).insert(rows())
    other = table_in(database, guarantee="Guarantee: more")
    refused(databases.COMMENT, lambda: other.check(grows=True), table="table 'counts'")
    refused(databases.COMMENT, lambda: other.insert(rows("b")))
    assert database.read() == shown(rows())


def test_new_noise_is_not_added_to_rows(database: Database) -> None:
    table = table_in(database)
    table.insert([])
    table.check(grows=False)
    table.insert(rows())
    table.check(grows=True)
    refused(databases.ROWS, lambda: table.check(grows=False), table="table 'counts'")


def test_a_long_name_is_refused_where_it_would_be_cut_off(server: str) -> None:
    there = Postgres(server)
    long = "é" * 32
    refused(databases.LONG, lambda: table_in(there, long), name=long)
    table = formats.Table([(long, float)], lambda _: ())
    refused(databases.LONG, lambda: DatabaseTable(there.url(), table, GUARANTEE), name=long)
    assert table_in(there, "é" * 31).insert(rows()) == 10
    assert there.there() == ["é" * 31]


def test_a_user_without_rights_is_told_before_a_row_is_counted(server: str) -> None:
    there = Postgres(server)
    table_in(there).insert(rows())
    user = f"reader_{there.schema}"
    there.run(f"CREATE USER {user}")
    there.run(f"GRANT USAGE ON SCHEMA {there.schema} TO {user}")
    there.run(f"GRANT SELECT ON counts TO {user}")
    for name in ("counts", "others"):
        address = there.url(name).replace("tester@", f"{user}@")
        table = DatabaseTable(address, TABLE, GUARANTEE)
        said = refused(databases.FAILED, lambda table=table: table.check(grows=True))
        assert "permission denied" in said


# Addresses

SECRETS = [
    f"postgresql://ann:{SECRET_TEXT}@host/db?table=x",
    f"postgresql://ann:{SECRET_TEXT}@host/db",
    f"POSTGRES://ann:{SECRET_TEXT}@host/db?table=x",
    f"postgresql+psycopg://ann:{SECRET_TEXT}@/db?table=x",
    f"postgresql://ann:p#{SECRET_TEXT}@host/db?table=x",
    f"postgresql://ann:p/{SECRET_TEXT}@host/db?table=x",
    f"postgresql://ann:p?{SECRET_TEXT}@host/db?table=x",
    f"postgresql://ann:{SECRET_TEXT}@@host/db?table=x",
    f"postgresql://ann:[{SECRET_TEXT}]@host/db?table=x",
    f"postgresql://host/db?table=x&password={SECRET_TEXT}",
    f"postgresql://host/db?table=x&sslpassword={SECRET_TEXT}",
    f"postgresql://host/db?table=x&p%61ssword={SECRET_TEXT}",
]


@pytest.mark.parametrize("address", SECRETS)
def test_a_password_is_refused_and_not_repeated(address: str) -> None:
    said = refused(addresses.CREDENTIALS, lambda: address_of(address))
    assert SECRET_TEXT not in said.replace(address, "")
    for name in ("PGPASSWORD", "~/.pgpass", "PGSERVICEFILE"):
        assert name in said


WRONG = {
    "postgresql://host/db": addresses.UNNAMED,
    "postgresql://host/db/counts": addresses.UNNAMED,
    "postgresql://host/db?table=": addresses.UNNAMED,
    "postgresql://host/db?table=a&table=b": addresses.UNNAMED,
    "postgresql://host/db?table=a#b": addresses.UNNAMED,
    f"postgresql://ann:{SECRET_TEXT}/db?table=a": addresses.UNNAMED,
    "postgresql://[host/db?table=a": addresses.UNNAMED,
    "postgresql://host/db?table=a.b.c": addresses.ODD,
    "postgresql://host/db?table=.b": addresses.ODD,
    'postgresql://host/db?table="; drop': addresses.ODD,
    "postgresql://host/db?table=a%00b": addresses.ODD,
    "postgresql://host/db?table=a%0Ab": addresses.ODD,
    "sqlite://file.db?table=a": addresses.UNNAMED,
    "sqlite:///?table=a": addresses.UNNAMED,
    "sqlite:///file.db": addresses.UNNAMED,
    "sqlite:///file.db?table=a&mode=ro": addresses.UNNAMED,
    'sqlite:///file.db?table="a"': addresses.ODD,
}


@pytest.mark.parametrize("address", WRONG)
def test_a_wrong_address_says_what_one_is(address: str) -> None:
    assert addresses.is_table(address)
    said = refused(WRONG[address], lambda: address_of(address))
    assert SECRET_TEXT not in said


@pytest.mark.parametrize(
    ("address", "database", "names"),
    [
        ("postgresql://u@h:5/db?table=t", "postgresql://u@h:5/db", ("t",)),
        ("postgres:///?table=s.t", "postgresql:///", ("s", "t")),
        ("postgresql://?table=t", "postgresql://", ("t",)),
        ("postgresql://a:1,[::1]:2/db?table=t", "postgresql://a:1,[::1]:2/db", ("t",)),
        (
            "postgresql:///db?service=x&table=t&options=-c%20a%3Db",
            "postgresql:///db?service=x&options=-c%20a%3Db",
            ("t",),
        ),
        ("postgresql+psycopg://h/db?table=a%20b", "postgresql://h/db", ("a b",)),
        ("sqlite:///a/b.db?table=t", "a/b.db", ("t",)),
        ("sqlite:////a/b%3F.db?table=s.t", "/a/b?.db", ("s.t",)),
        ("sqlite:///a@b:c.db?table=t", "a@b:c.db", ("t",)),
    ],
)
def test_an_address_has_a_database_and_a_table(
    address: str, database: str, names: tuple[str, ...]
) -> None:
    found = address_of(address)
    assert (found.database, found.names) == (database, names)
    assert addresses.name_of(address) == ".".join(names)


@pytest.mark.parametrize("output", ["-", "counts.csv", "s3://b/c.csv", "sqlite.csv", "x.db"])
def test_other_outputs_are_no_tables(output: str) -> None:
    assert not addresses.is_table(output)
    assert addresses.is_file(output) == (output != "-")


# Commands

LOG = (100, 101, 105, 112, 113, 118, 129, 131, 140, 141, 142, 155)
SECRET_KEY = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NOISE", SECRET_KEY)
    monkeypatch.setenv("PGPASSWORD", SECRET_TEXT)
    return each_command.log(tmp_path / "events.csv", each_command.rows())


def words(log: Path, output: str, *more: object, kind: str = "ticks") -> list[object]:
    clock = () if "--timestamp" in each_command.MORE[kind] else ("--timestamp", "time")
    budget = ("--epsilon", 1, "--delta", "1e-6")
    return ["--input", log, *each_command.MORE[kind], *clock, *budget, "--output", output, *more]


def succeeds(*given: object, kind: str = "ticks") -> str:
    return succeed(*given, main=MAIN[kind], overwrite=False)


def fails(*given: object, kind: str = "ticks", started: bool = True) -> str:
    return fail(*given, run=partial(command, main=MAIN[kind], overwrite=False), started=started)


def charged(budget: int) -> Path:
    """A new account of this epsilon."""
    how = ("--create", "--epsilon", budget, "--delta", "3e-6")
    succeed("acc", *how, main=account.main)
    return Path("acc")


REPLAYED = ("--secret-env", "NOISE", "--run-id", "may")


@pytest.mark.parametrize("kind", each_command.MORE)
def test_a_table_has_the_rows_of_a_file(database: Database, log: Path, kind: str) -> None:
    succeeds(*words(log, "out.parquet", *REPLAYED, kind=kind), kind=kind)
    said = succeeds(*words(log, database.url(), *REPLAYED, kind=kind), kind=kind)
    file = pq.read_table("out.parquet")
    times = [name for name in file.column_names if name in ("start", "timestamp")]
    expected = [
        tuple(moment(cell) if name in times else cell for name, cell in one.items())
        for one in file.to_pylist()
    ]
    assert database.read() == shown(expected)
    assert f"new rows in the table: {len(expected):,}" in said
    assert database.comment() in said
    assert database.comment().startswith("Guarantee: ")
    assert f": {database.url()}" in said
    again = succeeds(*words(log, database.url(), *REPLAYED, kind=kind), kind=kind)
    assert "new rows in the table: 0" in again
    assert database.read() == shown(expected)
    assert SECRET_TEXT not in said + again


def moment(cell: object) -> object:
    if not isinstance(cell, int):
        return cell
    seconds = dt.datetime.fromtimestamp(cell / 1e6, UTC)
    return seconds.isoformat().replace("+00:00", "Z")


def test_a_run_goes_on_under_the_same_secret_and_is_charged_once(
    database: Database, log: Path
) -> None:
    charged(1)
    how = ("--account", "acc", *REPLAYED)
    said = succeeds(*words(log, database.url(), *how, "--until", 130))
    some = database.read()
    assert (len(some), "this run costs" in said) == (18, True)
    said = succeeds(*words(log, database.url(), *how, "--until", 150))
    assert ("at no cost" in said, "new rows in the table: 12" in said) == (True, True)
    assert [one for one in database.read() if one in some] == some
    assert len(database.read()) == 30


def test_rows_of_another_run_end_a_run_whose_counts_are_kept(database: Database, log: Path) -> None:
    succeeds(*words(log, database.url(), *REPLAYED))
    before = database.read()
    other = (*REPLAYED[:3], "june")
    said = fails(*words(log, database.url(), *other))
    assert re.search(says(databases.DIFFERS, table="table 'counts'"), said)
    assert database.read() == before
    (path,) = Path().glob("counts-*.parquet")
    assert said.endswith(f"the counts are complete, and charged: {path}\n")
    succeeds(*words(log, "june.parquet", *other))
    assert pq.read_table(path) == pq.read_table("june.parquet")


def test_new_noise_is_refused_before_it_is_charged(database: Database, log: Path) -> None:
    charged(2)
    succeeds(*words(log, database.url(), "--account", "acc"))
    before, rows_before = Path("acc").read_bytes(), database.read()
    said = fails(*words(log, database.url(), "--account", "acc"), started=False)
    assert re.search(says(databases.ROWS, table="table 'counts'"), said)
    assert (Path("acc").read_bytes(), database.read()) == (before, rows_before)


def test_a_dry_run_tries_the_table_and_makes_nothing(database: Database, log: Path) -> None:
    succeeds(*words(log, database.url(), "--dry-run"))
    assert database.there() == []
    assert not getattr(database, "path", Path("none")).exists()
    database.run("CREATE TABLE counts (key TEXT)")
    assert "other columns" in fails(*words(log, database.url(), "--dry-run"), started=False)


@pytest.mark.long
def test_pictures_and_pages_name_the_table_alone(database: Database, log: Path) -> None:
    succeeds(*words(log, database.url(), "--report", "r.html", "--plot", "p.png"))
    page = Path("r.html").read_text(encoding="utf-8")
    assert Path("p.png").stat().st_size > 1000
    assert "Private" in page
    assert "table=" not in page
    for word in ("tester", "the file", "postgresql:", "sqlite:", SECRET_TEXT):
        assert word not in page


REFUSED = {
    "sqlite:///none/x.db?table=a": "there is no directory 'none'; create it first",
    "sqlite:///folder?table=a": "'folder' is a directory; name a file in it",
    "sqlite:///events.csv?table=a": "table 'a': file is not a database",
    "postgresql://tester@127.0.0.1:1/db?table=a": "table 'a': .*127.0.0.1.*[Cc]onnection refused",
    "postgresql://tester@/db?host=/nowhere&table=a": "table 'a': .*/nowhere.*No such file",
    "postgresql:///db?table=a&hst=x": "table 'a': .*\"hst\"",
    f"postgresql://u:{SECRET_TEXT}@h/db?table=a": re.escape(addresses.CREDENTIALS),
    "postgresql://h/db": re.escape(addresses.UNNAMED),
    'postgresql://h/db?table="; drop': re.escape(addresses.ODD),
    "x.db": r"or a table, postgresql://.* or sqlite:///.*got 'x.db'",
    f"mysql://u:{SECRET_TEXT}@h/db?table=a": "or a table, postgresql://.* or sqlite:///",
}


@pytest.mark.parametrize("output", REFUSED)
def test_a_table_that_cannot_be_written_is_refused_before_a_row_is_counted(
    log: Path, output: str
) -> None:
    Path("folder").mkdir()
    charged(1)
    before = Path("acc").read_bytes()
    said = fails(*words(log, output, "--account", "acc"), started=False)
    assert re.search(REFUSED[output], said)
    assert Path("acc").read_bytes() == before
    assert sorted(os.listdir()) == ["acc", "events.csv", "folder"]


def test_a_database_that_is_not_there_is_refused(server: str, log: Path) -> None:
    said = fails(*words(log, f"postgresql://tester@/absent?host={server}&table=a"), started=False)
    assert 'database "absent" does not exist' in said
    said = fails(*words(log, Postgres(server).url("absent.a")), started=False)
    assert "table 'absent.a': schema \"absent\" does not exist" in said


def test_a_file_that_is_read_only_is_refused(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    succeeds(*words(log, "sqlite:///x.db?table=a", *REPLAYED))
    # Root may write anywhere.
    monkeypatch.setattr(os, "access", lambda path, mode: path != "x.db" or mode == os.F_OK)
    said = fails(*words(log, "sqlite:///x.db?table=a", *REPLAYED), started=False)
    assert "output 'x.db' is not writable" in said


def test_without_psycopg_a_table_of_postgresql_says_what_to_install(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "psycopg" else find(name)
    )
    assert databases.DRIVER in fails(*words(log, "postgresql:///db?table=a"), started=False)
    succeeds(*words(log, "sqlite:///x.db?table=a"))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--overwrite"], "--overwrite is for files: rows of a table are never overwritten"),
        (["--output-format", "csv"], "--output-format is for --output -"),
    ],
)
def test_options_of_files_are_refused(log: Path, more: list[str], message: str) -> None:
    assert message in fails(*words(log, "sqlite:///x.db?table=a", *more), started=False)


# Every night

NIGHTLY = ("--tick", "1d", "--start", "2026-10-01T00:00:00Z", "--horizon", 10, "--keys", "/a", "/b")


def night(
    number: int,
    output: str,
    *more: object,
    late: bool = True,
    run: Callable[..., str] = succeeds,
) -> str:
    """A run by the end of that day, over a log of all days so far; the past has rows since."""
    lines = [
        f"2026-10-{1 + day:02}T{hour:02}:00:00Z,/{'ab'[hour % 2]}"
        for day in range(number)
        for hour in range(24)
    ]
    lines += [f"2026-10-{1 + day:02}T23:30:00Z,/a" for day in range(number - 1) if late]
    Path("log.csv").write_text("\n".join(["ts,page", *lines, ""]))
    line: list[object] = ["--input", "log.csv", "--key", "page", "--timestamp", "ts", *NIGHTLY]
    line += ["--until", f"2026-10-{1 + number:02}T00:00:00Z", "--state", "s/counts.state"]
    return run(*line, "--epsilon", 1, "--delta", "1e-6", "--output", output, *more)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s").mkdir()
    return tmp_path


def test_nights_fill_a_table(database: Database, folder: Path) -> None:
    """Past rows never change, a night that is run twice adds nothing, and all are one run."""
    said = night(1, database.url())
    assert database.comment() in said
    assert "for all runs with this --state together" in said
    shutil.copytree("s", "then")
    found = [database.read()]
    for number in (2, 3, 4):
        assert f"tick {number} of 10 added" in night(number, database.url())
        found.append(database.read())
        assert "no tick has ended" in night(number, database.url())
        assert database.read() == found[-1]
    assert [len(each) for each in found] == [2, 4, 6, 8]
    assert all(row in found[-1] for each in found for row in each)
    shutil.rmtree("s")
    os.rename("then", "s")  # with its account, but without the table of then
    for late in (False, True):
        assert "is not as the last run left it" in night(4, database.url(), late=late, run=fails)
    assert database.read() == found[-1]


@pytest.mark.parametrize("after", [False, True])
def test_a_night_that_dies_as_it_inserts_is_made_whole(
    database: Database, folder: Path, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    insert = DatabaseTable.insert

    def dies(table: DatabaseTable, some: Any) -> int:
        if after:
            insert(table, some)
        raise InputError("the server is gone")

    with monkeypatch.context() as patched:
        patched.setattr(DatabaseTable, "insert", dies)
        assert "the server is gone; run again: the state has" in night(1, database.url(), run=fails)
    assert database.there() == ["counts"] * after
    night(1, database.url())
    assert len(database.read()) == 2
    night(2, database.url())
    assert len(database.read()) == 4


def test_a_night_does_not_begin_another_table(database: Database, folder: Path) -> None:
    night(1, database.url())
    night(2, database.url())
    database.run("DELETE FROM counts WHERE step = 1")  # old rows may go
    night(3, database.url())
    assert len(database.read()) == 4
    database.run("DELETE FROM counts")  # but not the last: an older state would fill them in
    assert "is not as the last run left it" in night(4, database.url(), run=fails)
    database.run("DROP TABLE counts")
    for output, more, said in [
        (database.url(), (), "is not as the last run left it: restore it"),
        (database.url("others"), (), "are in 'table=counts'"),
        (database.url(), ("--overwrite",), "rows of a table are never overwritten"),
        (database.url(), ("--plot", "p.png"), "--plot reads the output back"),
    ]:
        assert said in night(4, output, *more, run=fails)


def test_a_dry_night_tries_the_table(database: Database, folder: Path) -> None:
    assert "1 tick would be added" in night(1, database.url(), "--dry-run")
    assert database.there() == []
    night(1, database.url())
    assert "1 tick would be added" in night(2, database.url(), "--dry-run")
    database.run("ALTER TABLE counts ADD COLUMN note TEXT")
    assert "'note' is not in the output" in night(2, database.url(), "--dry-run", run=fails)


def test_a_new_state_needs_a_table_without_rows(database: Database, folder: Path) -> None:
    night(1, database.url())
    before = database.read()
    shutil.rmtree("s")
    os.mkdir("s")
    assert "go on with what wrote them, the same --state" in night(1, database.url(), run=fails)
    assert os.listdir("s") == ["counts.state.lock"]  # nothing was charged
    assert database.read() == before


def test_a_night_shows_no_password(folder: Path) -> None:
    address = f"postgresql://u:{SECRET_TEXT}@h/db?table=a"
    assert addresses.CREDENTIALS in night(1, address, run=fails)
    assert os.listdir("s") == []


# In a pipeline

STREAMING = PipelineOptions(["--streaming"])
HOUR = dp.Clock(10, start=100, ticks=6)
ROWS = [{"who": "ab"[second % 2], "at": second, "ms": second % 5} for second in LOG]


def counting(**more: Any) -> dp.TickCount:
    how = {"entropy": dp.ReplayableEntropy("NOISE", run_id="may"), "keys": ["a", "b"], **more}
    return dp.TickCount(dp.ApproxDP(1, 1e-6), HOUR, **{"key": "who", "time": "at", **how})


def piped(database: Database, count: dp.TickCount, some: Sequence[dict[str, object]] = ROWS) -> Any:
    with beam.Pipeline("FnApiRunner") as pipeline:
        releases = pipeline | beam.Create(some) | count
        return releases | InsertIntoTable(count, database.url())


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"what": [dp.Count(), dp.Mean("ms", 0, 5)]},
        {"keys": dp.SelectKeys(delta=1e-7)},
        {"users": dp.Users("ms", 3)},
    ],
    ids=["number", "several", "selected", "people"],
)
def test_a_pipeline_inserts_its_releases_and_a_retry_changes_nothing(
    database: Database, monkeypatch: pytest.MonkeyPatch, more: dict[str, Any]
) -> None:
    monkeypatch.setenv("NOISE", SECRET_KEY)
    count, some = counting(**more), ROWS * 100
    piped(database, count, some)
    found = database.read()
    expected = count.over(pa.Table.from_pylist(some))
    assert len(found) == 12
    assert [one[:2] for one in found] == [
        (one["key"], one["step"]) for one in expected.sort_by("key").to_pylist()
    ]
    piped(database, counting(**more), some)
    assert database.read() == found
    assert "together satisfy epsilon = 1, delta = 1e-06 for neighbours" in database.comment()


def test_rows_lie_in_the_order_of_keys_and_ticks(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table has no order, but shows where a row lies, and with which others it was inserted."""
    monkeypatch.setenv("NOISE", SECRET_KEY)
    count = counting()
    releases = [
        dp.Release(key, step, (100 + 10 * step) * 10**6, float(step), 1.0)
        for key in "ba"
        for step in (3, 1, 2)
    ]
    with beam.Pipeline("FnApiRunner") as pipeline:
        _ = pipeline | beam.Create(releases) | InsertIntoTable(count, database.url())
    where = "rowid, 1" if isinstance(database, Sqlite) else "ctid::text, xmin::text"
    found = database.run(f"SELECT key, step, {where} FROM counts ORDER BY 3")
    assert [one[:2] for one in found] == [(key, step) for key in "ab" for step in (1, 2, 3)]
    assert len({one[3] for one in found}) == 1


def test_a_stream_inserts_tick_by_tick(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOISE", SECRET_KEY)
    count = counting(time=None, path="streaming")
    for _ in range(2):
        script = test_stream.TestStream()
        for one in ROWS:
            script = script.advance_watermark_to(one["at"])
            script = script.add_elements([TimestampedValue(one, one["at"])])
        with beam.Pipeline("BundleBasedDirectRunner", options=STREAMING) as pipeline:
            source = pipeline | script.advance_watermark_to_infinity()
            _ = source | count | InsertIntoTable(count, database.url())
        assert [one[:2] for one in database.read()] == [
            (key, step) for key in "ab" for step in range(1, 7)
        ]


@pytest.mark.pipeline
def test_the_example_of_the_transform(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTING_SECRET", "")  # to be as it was
    assert doctest.testmod(inserts).failed == 0


def test_a_pipeline_over_other_rows_is_refused(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOISE", SECRET_KEY)
    piped(database, counting())
    before = database.read()
    with pytest.raises(Exception, match=says(databases.DIFFERS, table="table 'counts'")):
        piped(database, counting(), [*ROWS, {"who": "a", "at": 141, "ms": 1}])
    assert database.read() == before


@pytest.mark.parametrize(
    ("count", "output", "error", "message"),
    [
        (counting(entropy=None), "sqlite:///x.db?table=a", ValueError, "a retry would draw"),
        (dp.ZCDP(1), "sqlite:///x.db?table=a", TypeError, "count must be a TickCount, got a ZCDP"),
        (counting(), "x.csv", ValueError, "must be the address of a table"),
        (counting(), None, ValueError, "must be the address of a table"),
        (counting(), "sqlite:///x.db", ValueError, re.escape(addresses.UNNAMED)),
        (counting(), SECRETS[0], ValueError, re.escape(addresses.CREDENTIALS)),
    ],
)
def test_a_transform_that_could_not_insert_is_refused_when_it_is_made(
    count: Any, output: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message) as refusal:
        InsertIntoTable(count, output)
    assert SECRET_TEXT not in str(refusal.value)


def test_what_a_transform_shows_has_no_address() -> None:
    transform = InsertIntoTable(counting(), "postgresql://tester@host/db?table=a")
    assert "tester" not in f"{transform!r} {transform.display_data()}"

"""What commands read and write, as data, without Beam.

Messages about a file name the row and the column, and never show a cell.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from beam_dpcount.arguments import timestamps as times
from beam_dpcount.errors import Error

ALL = "all"  # the key of all rows where no column is named
STANDARD = "-"  # in place of a path: standard input, or standard output
STANDARD_INPUT = "standard input"  # its name in messages, and in the ids of rows
KINDS = ("csv", "jsonl", "parquet")
_SUFFIXES = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl"}
_PARQUET = (".parquet", ".pq")
_CSV = (".csv", ".tsv", ".txt")
_COMPRESSED = (".gz", ".bz2", ".zst", ".zstd", ".xz", ".lzma", ".deflate")
# Files of other programs, and what to do.
_OTHERS = {
    **dict.fromkeys((".xlsx", ".xls", ".xlsm", ".ods"), "a workbook: save its sheet as CSV"),
    **dict.fromkeys((".zip", ".tar", ".tgz", ".7z"), "an archive: unpack it, and give its files"),
    **dict.fromkeys((".arrow", ".feather", ".avro", ".orc"), "write it as Parquet"),
    **dict.fromkeys((".db", ".sqlite", ".duckdb"), "a database: export its table as Parquet"),
}
PLACED = ("key", "step", "timestamp")  # the first columns of every output
# Arguments of `Source` that options have the names of.
_ROW = ("key", "user", "timestamp")
_FILE = ("format", "delimiter", "multiline", "show_header")
SOURCE_OPTIONS = (*_ROW, "timestamp_format", "timezone", *_FILE)
Columns = Sequence[tuple[str, type]]  # names and types: str, int or float
_MAX_NUMBER = 300  # characters: no count is longer, and int() takes quadratic time
_DIGITS = re.compile(r"[0-9]{1,18}", re.ASCII)


class InputError(Error, ValueError):
    """A file or an argument that cannot be used; the message says where and why."""


def kind_of(path: str) -> str:
    """One of KINDS, by the suffix of a file's name, before that of its compression."""
    suffix = _suffix(path)
    return "parquet" if suffix in _PARQUET else _SUFFIXES.get(suffix, "csv")


def is_data(path: str) -> bool:
    """Whether a file's name has the suffix of a data file."""
    return _suffix(path) in (*_CSV, *_PARQUET, *_SUFFIXES)


def _suffix(path: str) -> str:
    """The suffix of a file's name, before that of its compression."""
    stem, suffix = os.path.splitext(path.lower())
    return os.path.splitext(stem)[1] if suffix in _COMPRESSED else suffix


def unreadable(file: str, error: OSError) -> InputError:
    return InputError(f"{file}: cannot be read: {error.strerror or error}")


# What is read


class InputFile(NamedTuple):
    """A file that is read, and its size in bytes as it is stored.

    Of one that may still be written to, a last line of text without its end counts nothing: it may
    be half of a line, and say another time than the whole will.
    """

    path: str
    size_in_bytes: int = 0
    may_grow: bool = False


class Event(NamedTuple):
    """What one row of a file says, its place, and whose it is: rows count from 1.

    A `person` that is an empty text is nobody.
    """

    value: object
    file: str
    row: int
    person: str = ""


def value_of(event: Event) -> object:
    return event.value


def person_of(event: Event) -> str:
    return event.person


@dataclass(frozen=True)
class Source:
    """Rows of CSV, JSON lines and Parquet files, as (key, Event).

    Unless `format` says otherwise a suffix .parquet or .pq means Parquet, .jsonl, .ndjson or .json
    JSON lines, and all else CSV with a header line. Both of these are in UTF-8, compressed (.gz,
    .bz2, .zst ..., or gzip under another name, see `files.lines`) or not. A row is a physical line,
    read by itself; blank lines are skipped.

    Per element a row that cannot be read is an InputError, which shows file, row and column. At a
    clock (`per_tick`) such a row counts nothing and leaves no trace. These are lines with an open
    quote, with fewer or more cells than the header (further ones may be empty), that are
    not a JSON object or not UTF-8, and rows whose key or time is null, missing, nested or
    unreadable.

    A line of JSON is an object, and is one row. Its numbers stay numbers. A null is an empty text,
    except for a key at a clock. If a row lacks a field that is counted, that is an empty text, too.
    An object or a list counts as neither a number nor a text. A name with dots (`user.id`) is a
    field of that name, or else a field within JSON objects or Parquet structs.

    Args:
      inputs: paths, patterns or folders on any file system that Beam knows; each file is read once.
        Of a folder, the files with the suffix of a data file are read. One input may be ``-``,
        standard input, if `spool` is the copy of it that is read.
      key: the column of the keys, as `text` shows them. An empty text is a key like others; a null
        in Parquet is none. None: all rows have the key "all".
      columns: what is counted. It is protected, hence neither the keys' column nor the times'.
      measure: from the cells of these columns, one argument each, to the event's value. It must not
        raise: that would reveal the cell.
      timestamp: a column of timestamps, which become the elements' own; or two, of dates and of
        times of day, which are read as one text with a blank between.
      timestamp_format, timezone: see `times.parser`.
      format: one of KINDS, of all files; default: by their names.
      delimiter: of CSV; the two characters ``\\t`` mean a tab.
      multiline: whether quoted cells of CSV may hold line breaks. Then rows are what a CSV reader
        finds in the whole file. A broken quote is an InputError at a clock, too, because the rest
        of the file could be misread.
      show_header: whether an error about a missing column may show the first line of a CSV file,
        which is data if there is no header, or the fields of a line of JSON.
      per_tick: whether events are counted per tick. Then keys, times and people are protected too,
        and may be counted.
      user: the column that says whose a row is, as `shown_person` reads it; None: nobody's.
      instead: what else to do if what is counted is public, beside naming another column.

    Raises:
      InputError: an argument is invalid, or what is counted is public.
    """

    inputs: Sequence[str]
    key: str | None
    columns: tuple[str, ...]
    measure: Callable[..., object]
    timestamp: str | tuple[str, str] | None = None
    timestamp_format: str | None = None
    timezone: str = "UTC"
    format: str | None = None
    delimiter: str = ","
    multiline: bool = False
    show_header: bool = False
    per_tick: bool = False
    instead: str = ""
    user: str | None = None
    spool: str = ""
    parse: Callable[[object], int] = field(init=False)

    def __post_init__(self) -> None:
        if not self.inputs:
            raise InputError("no input files: inputs is an empty list")
        if list(self.inputs).count(STANDARD) > 1:
            raise InputError("--input - is standard input, which can be read once; give it once")
        if len(self.times) == 2 and self.timestamp_format in ("unix", "unix-ms"):
            raise InputError(
                "--timestamp DATE TIME is read as one text with a blank between, which is no "
                "number: give --timestamp-format iso for 2024-01-31 and 23:59:59, or a strptime "
                "format such as '%d/%m/%Y %H:%M:%S'"
            )
        if "" in self.names:
            raise InputError("key, value, user and timestamp must name columns, got an empty name")
        separator = "\t" if self.delimiter == r"\t" else self.delimiter
        if len(separator) != 1 or separator in '"\r\n':
            valid = "one character, or \\t for a tab"
            raise InputError(f"delimiter must be {valid}; got {self.delimiter!r}")
        try:
            parse = times.parser(self.timestamp_format, self.timezone)
        except ValueError as error:
            raise InputError(str(error)) from None
        object.__setattr__(self, "delimiter", separator)
        object.__setattr__(self, "parse", parse)
        for column in () if self.per_tick else self.columns:
            roles: dict[str | None, str] = {self.user: "people", self.key: "keys"}
            roles |= dict.fromkeys(self.times, "times")
            if column in roles:
                role = roles[column]
                raise InputError(
                    f"column {column!r} is counted and holds the {role} as well, which are public "
                    f"per element: nothing would be protected: name another column{self.instead}"
                )

    @property
    def names(self) -> tuple[str, ...]:
        """All columns: those of the key, of what is counted, of the person and of the time."""
        every = self.key, *self.columns, self.user, *self.times
        return tuple(name for name in every if name is not None)

    @property
    def public(self) -> frozenset[str]:
        """The columns of keys and times: without them a row cannot be read."""
        return frozenset(n for n in (self.key, *self.times) if n is not None)

    @property
    def times(self) -> tuple[str, ...]:
        """The columns of timestamps: none, one or two."""
        if self.timestamp is None:
            return ()
        return (self.timestamp,) if isinstance(self.timestamp, str) else self.timestamp

    def label(self, path: str) -> str:
        """The name of a file in messages, and in the ids of its rows."""
        return STANDARD_INPUT if path == self.spool else path

    def kind(self, path: str) -> str:
        """The kind of a file, one of KINDS; an InputError for files of other programs."""
        if self.format is None and (remedy := _OTHERS.get(_suffix(path))):
            raise InputError(f"{self.label(path)}: {remedy}; or give its --format")
        return self.format or kind_of(path)


def counted(value: str | None, where: str | None) -> tuple[tuple[str, ...], Callable[..., object]]:
    """The columns and the measure of a count: of numbers, of a condition, or of rows.

    Args:
      value: a column of numbers. Anything else stays as it is, for a transform to reject.
      where: ``COLUMN=VALUE``; a row counts 1 if the column's text is VALUE, else 0.
    """
    if value is not None and where is not None:
        raise InputError("give value or where, not both: where counts the rows that match")
    if where is None:
        return ((), one) if value is None else ((value,), number)
    column, equals, text = where.partition("=")
    if not column or not equals:
        raise InputError(f"where must be COLUMN=VALUE, got {where!r}")
    return (column,), partial(shows, text)


def one() -> object:
    return 1


def number(cell: object) -> object:
    """The number that a text shows; anything else as it is."""
    if not isinstance(cell, str) or len(cell) > _MAX_NUMBER or "_" in cell:
        return cell
    try:
        return int(cell)
    except ValueError:
        try:
            return float(cell)
        except ValueError:
            return cell


def text(cell: object) -> str | None:
    """A cell as text, for keys, items, letters, vertices and people. None for a null.

    The item 007 is not a number. 7.0 is 7: a column of whole numbers with nulls often has floats in
    Parquet. Not a number is a null, as Pandas has it.
    """
    if isinstance(cell, str):
        return cell
    return None if cell is None or cell != cell else str(whole(cell))


def shown_person(cell: object) -> str:
    """Whose a row is, to the letter; an empty text for a null, which is nobody."""
    return text(cell) or ""


def whole(cell: object) -> object:
    """The whole number that a cell shows; anything else as it is."""
    if isinstance(cell, str):
        return int(cell) if _DIGITS.fullmatch(cell) else cell
    # Parquet often has floats for the integers of a column with nulls.
    return int(cell) if isinstance(cell, float) and cell.is_integer() else cell


def shows(text: str, cell: object) -> object:
    """1 if a cell is what the text says, else 0. In Parquet true may be True, and 1 may be 1.0."""
    if isinstance(cell, str):
        return int(cell == text)
    if isinstance(cell, bool):
        return int(text.lower() == str(cell).lower())
    same = cell is not None and str(cell) == text
    return int(same or (isinstance(cell, int | float) and number(text) == cell))


class Place(NamedTuple):
    """The public id of a row, which sorts in the order of the files as given."""

    number: int
    file: str
    row: int

    def __str__(self) -> str:
        return f"{self.file}, row {self.row}"


class Places:
    """The places of events in files of these paths; others come last."""

    def __init__(self, paths: Sequence[str]) -> None:
        self.paths = paths
        self._numbers = {path: number for number, path in enumerate(paths)}

    def __call__(self, event: Event) -> Place:
        return Place(self._numbers.get(event.file, len(self._numbers)), event.file, event.row)


# What is written


@dataclass(frozen=True)
class Table:
    """One or more rows per release: key, step, timestamp, and the table's own columns."""

    columns: Columns  # its own
    cells: Callable[[Any], Iterable[tuple[Any, ...]]]  # of these columns, for each row of a release
    order: tuple[str, ...] = ("key", "step")  # columns of whole numbers or text to sort rows by
    keys: Sequence[str] = ()  # all, in the order in which they are written; default: that of text

    @property
    def schema(self) -> list[tuple[str, type]]:
        return [("key", str), ("step", int), ("timestamp", int), *self.columns]

    @property
    def primary_key(self) -> tuple[str, ...]:
        """Columns whose cells no two rows have in common."""
        return self.order

    @property
    def times(self) -> tuple[str, ...]:
        """Columns of times: microseconds since 1970 UTC, or texts in ISO 8601."""
        return ("timestamp",)

    @property
    def alarm(self) -> str:
        """The column that says where alarms start; empty if there is none."""
        return ""

    def rows(self, release: Any, timed: bool) -> Iterable[tuple[Any, ...]]:
        """The rows of a release; without times their cells are empty."""
        placed = release.key, release.step, release.timestamp if timed else None
        return ((*placed, *cells) for cells in self.cells(release))


def _one_value(release: Any) -> list[tuple[Any, ...]]:
    return [(release.value, release.stddev)]


def _all_values(release: Any) -> list[tuple[Any, ...]]:
    return [(*release.value, release.stddev)]


RELEASES = Table([("value", float), ("stddev", float)], _one_value)


def vectors(domain: Sequence[str]) -> Table:
    """Releases with a count for each item of a domain, a column each."""
    for item in domain:
        if item in (*PLACED, "stddev"):
            reason = f"cannot be a column of the output beside the column {item}"
            raise InputError(f"--domain: item {item!r} {reason}; give it another name in the input")
    return Table([(name, float) for name in (*domain, "stddev")], _all_values)

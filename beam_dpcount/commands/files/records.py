"""Records of CSV and JSON lines: a record is a physical line, read by itself.

A record that cannot be read goes to a function, which ends the run or, at a clock, skips it. No
message shows a cell, see `files.formats`. Messages about a header show it only on request: without
a header, the first line is data. The same holds for the names of fields of a line of JSON, because
which fields a row has may reveal something about it.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

from beam_dpcount.arguments.meant import did_you_mean
from beam_dpcount.commands.files import lines
from beam_dpcount.commands.files.formats import InputError, InputFile, Source

csv.field_size_limit(2**31 - 1)  # stopping at a long cell would reveal it
_NAMES_SHOWN = 40
_MOST_DIGITS = 300  # of a whole number in JSON; as `formats.number` has it
_MISSING = object()
_NOT_TEXT = "not UTF-8 text; convert the file"
_OPEN = (
    "malformed CSV: a quote is open at the end of the line; cells with line breaks need --multiline"
)
_BROKEN = (
    "a quote is never closed, or does not enclose a whole cell: leave --multiline out, or have the "
    "writer double the quotes within cells"
)
_NOT_AN_OBJECT = (
    'not a JSON object, or nested too deeply; each line must be one, such as {"name": 1}'
)
_ARRAY = (
    "; it looks like a JSON array: write one object a line, e.g. by jq -c '.[]' IN.json > OUT.jsonl"
)

Record = list[str] | str  # cells, or why a line cannot be read
Rows = Iterator[tuple[int, Sequence[object]]]  # the number of each row, and its cells of all names
# Called for a row that cannot be read: with its number, the column (if it is one), and the reason.
Unread = Callable[[int, str | None, str], None]


def place(file: str, row: int | None = None, column: str | None = None) -> str:
    """Where an error is; row 0 is the header."""
    rows = [] if row is None else [f"row {row}" if row else "header"]
    columns = [] if column is None else [f"column {column!r}"]
    return ", ".join([file, *rows, *columns])


# CSV


def of_csv(source: Source, data: InputFile, unread: Unread) -> Rows:
    records = (_joined if source.multiline else _alone)(source, data)
    header = next((record for record in records if record), None)
    places, width = header_of(source, data, header)
    yield from picked(source, records, places, width, unread)


def header_of(source: Source, data: InputFile, header: Record | None) -> tuple[list[int], int]:
    """The positions of the columns, and how many cells a row has; None: there is no line."""
    file = source.label(data.path)
    if header is None:
        raise InputError(f"{file}: the file is empty; it needs a header line")
    if isinstance(header, str):
        raise InputError(f"{place(file, 0)}: {header}")
    return locate(source, file, header), len(header)


def picked(
    source: Source, records: Iterable[Record], places: Sequence[int], width: int, unread: Unread
) -> Rows:
    """The cells of these columns, of each record that can be read."""
    # At a clock no row is read in part: its cells may be under the wrong column names.
    least = width if source.per_tick else max(places, default=-1) + 1
    pick: Any = itemgetter(*places) if len(places) > 1 else partial(_few, places)
    row = 0
    for record in records:
        if not record:
            if width > 1:
                continue
            record = [""]  # of a single column, a blank line is an empty cell
        row += 1
        if isinstance(record, str):
            unread(row, None, record)
        elif len(record) < least:
            there = zip(source.names, places, strict=True)
            missing = next((name for name, at in there if at >= len(record)), None)
            unread(row, missing, f"the row is too short, {len(record)} of {width} cells")
        elif source.per_tick and any(record[width:]):
            unread(row, None, f"the row is too long, {len(record)} of {width} cells")
        else:
            yield row, pick(record)


def _alone(source: Source, data: InputFile) -> Iterator[Record]:
    read = Lines(source.delimiter)
    for line in lines.texts(data, has_header=True):
        yield read(line)


class Lines:
    """Reads lines of CSV, each by itself: their cells (none of a blank one), or why it cannot."""

    def __init__(self, delimiter: str) -> None:
        self._delimiter, self._pending = delimiter, list[str]()
        # Strict: an open quote, or one that does not enclose a whole cell, is an error.
        pending = iter(self._pending.pop, None)
        self._reader = csv.reader(pending, delimiter=delimiter, strict=True)

    def __call__(self, line: str | None) -> Record:
        """The cells of a line; None: it is not UTF-8."""
        if line is None:
            return _NOT_TEXT
        if '"' not in line:
            return line.split(self._delimiter) if line else []
        self._pending.append(line)
        try:
            return next(self._reader)
        except IndexError:  # the reader asks for another line
            return _OPEN
        except csv.Error as error:
            return f"malformed CSV: {error}"


def _joined(source: Source, data: InputFile) -> Iterator[list[str] | str]:
    """The same if cells may hold line breaks.

    Raises:
      InputError: a quote is broken. The rest of the file could be misread.
    """
    sound = True

    def joined() -> Iterator[str]:
        nonlocal sound
        for line, is_text in lines.with_ends(data):
            sound &= is_text
            yield line

    row = -1  # the last record that was read; the header is record 0
    try:
        for record in csv.reader(joined(), delimiter=source.delimiter, strict=True):
            row += bool(record)
            yield record if sound else _NOT_TEXT
            sound = True
    except csv.Error as error:
        where = None if source.per_tick else row + 1
        file = place(source.label(data.path), where)
        raise InputError(f"{file}: malformed CSV: {error}: {_BROKEN}") from None


def _few(places: Sequence[int], cells: Sequence[str]) -> Sequence[str]:
    return [cells[place] for place in places]


# Lines of JSON


def of_json(source: Source, data: InputFile, unread: Unread) -> Rows:
    public, row = source.public, 0
    columns = [
        (name, name.split("."), name in public, name in (*source.keys, source.user))
        for name in source.names
    ]
    for line in lines.texts(data, has_header=False):
        if line is not None and (not line or line.isspace()):
            continue
        row += 1
        record = None if line is None else _object(line)
        if record is None:
            problem = _NOT_TEXT if line is None else _NOT_AN_OBJECT
            if line is not None and row == 1 and line.lstrip().startswith("["):
                problem += _ARRAY
            unread(row, None, problem)
            continue
        cells: list[object] = []
        for name, path, is_public, is_named in columns:
            cell = record.get(name, _MISSING)
            if cell is _MISSING and len(path) > 1:
                cell = _within(record, path)
            if cell is _MISSING and is_public:
                unread(row, None, f"no field {name!r} {_among_fields(source, name, [*record])}")
                break
            if cell is None or cell is _MISSING:
                # Per element a null is an empty text. At a clock it is not a key, as in rows.
                cell = None if source.per_tick and name in source.keys else ""
            elif not _is_plain(cell):
                if is_public:
                    problem = "an object, a list or half a character, not text or a number"
                    unread(row, name, problem)
                    break
                cell = None
            elif is_named and isinstance(cell, bool):
                cell = str(cell).lower()  # as JSON has it
            cells.append(cell)
        else:
            yield row, cells


def _within(value: object, path: Sequence[str]) -> object:
    """The value at a dotted name, through nested objects."""
    for name in path:
        if value is None:
            return None
        if not isinstance(value, dict):
            return _MISSING
        value = value.get(name, _MISSING)
    return value


def _object(line: str) -> dict[str, object] | None:
    """The JSON object in a line; None where there is none."""
    try:
        found = json.loads(line)
    except json.JSONDecodeError:
        return None
    except RecursionError:
        return None
    except ValueError:  # a whole number of so many digits that Python takes it for an attack
        try:
            found = json.loads(line, parse_int=_whole)
        except (ValueError, RecursionError):
            return None
    return found if isinstance(found, dict) else None


def _whole(text: str) -> int | str:
    return text if len(text) > _MOST_DIGITS else int(text)


def _is_plain(cell: object) -> bool:
    """Whether a value in JSON is a number, true or false, or a text that can be written."""
    if isinstance(cell, str):
        return cell.isascii() or not re.search("[\ud800-\udfff]", cell)
    return not isinstance(cell, dict | list)


# Columns


def locate(source: Source, file: str, header: Sequence[str]) -> list[int]:
    """The positions of the columns in a first line."""
    for name in source.names:
        if name not in header:
            raise InputError(f"{place(file, 0)}: no column {name!r} {_among(source, name, header)}")
        if header.count(name) > 1:
            raise InputError(f"{place(file, 0, name)}: several columns have this name")
    return [header.index(name) for name in source.names]


def _among(source: Source, wanted: str, header: Sequence[str]) -> str:
    """What a message says about the first line of a CSV file, which may be data.

    It shows names only if the user asks. Otherwise it says how many columns there are, and whether
    the line looks like JSON or seems to have another delimiter.
    """
    hint = "; is --delimiter right?" if len(header) == 1 else ""
    if header and header[0].startswith("{"):
        hint = "; lines of JSON are read with --format jsonl"
    if not source.show_header:
        remedy = "if the first line is not data, --show-header names them"
        return f"among {len(header)}{hint}; {remedy}"
    return f"among {len(header)}: {named(wanted, header, hint)}"


def _among_fields(source: Source, wanted: str, fields: Sequence[str]) -> str:
    """The same for the fields of a line of JSON."""
    if source.per_tick:  # --check counts rows by this text
        return "in the row"
    if not source.show_header:
        return f"among {len(fields)} of the row; --show-header names them"
    return f"among {len(fields)} of the row: {named(wanted, fields)}"


def named(wanted: str, names: Sequence[str], hint: str = "") -> str:
    """Names of columns, and a hint: by default, which one may have been meant."""
    meant = did_you_mean(wanted, names).rstrip()
    shown = ", ".join(repr(name[:80]) for name in names[:_NAMES_SHOWN]) or "none"
    more = ", ..." if len(names) > _NAMES_SHOWN else ""
    return f"{shown}{more}{hint or (f'; {meant}' if meant else '')}"

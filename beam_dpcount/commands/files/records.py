"""Records of CSV and JSON lines: a record is a physical line, read by itself.

What cannot be read goes to a function that ends the run, or, at a clock, goes on. No message shows
a cell, see `files.formats`. Those about a header show it only on request: it is data if there is
none. And so with the fields of a line of JSON, as which of them a row has may say something of it.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

from apache_beam.io.fileio import ReadableFile

from beam_dpcount.commands.files import lines
from beam_dpcount.commands.files.formats import InputError, Source
from beam_dpcount.commands.meant import did_you_mean

csv.field_size_limit(2**31 - 1)  # stopping at a long cell would reveal it
_NAMES_SHOWN = 40
_MOST_DIGITS = 300  # of a whole number in JSON; as `formats.number` has it
_MISSING = object()
_NOT_TEXT = "not UTF-8 text; convert the file"
_OPEN = (
    "malformed CSV: a quote is open at the end of the line; cells with line breaks need --multiline"
)
_NOT_AN_OBJECT = (
    'not a JSON object, or nested too deeply; each line must be one, such as {"name": 1}'
)
_ARRAY = (
    "; it looks like a JSON array: write one object a line, e.g. by jq -c '.[]' IN.json > OUT.jsonl"
)

Rows = Iterator[tuple[int, Sequence[object]]]  # the number of each row, and its cells of all names
# What is done about a row that cannot be read: its number, the column if it is one, and why.
Unread = Callable[[int, str | None, str], None]


def place(file: str, row: int | None = None, column: str | None = None) -> str:
    """Where an error is; row 0 is the header."""
    rows = [] if row is None else [f"row {row}" if row else "header"]
    columns = [] if column is None else [f"column {column!r}"]
    return ", ".join([file, *rows, *columns])


# CSV


def of_csv(source: Source, readable: ReadableFile, unread: Unread) -> Rows:
    file = source.label(readable.metadata.path)
    records = (_joined if source.multiline else _alone)(source, readable)
    header = next((record for record in records if record), None)
    if header is None:
        raise InputError(f"{file}: the file is empty; it needs a header line")
    if isinstance(header, str):
        raise InputError(f"{place(file, 0)}: {header}")
    places, width, row = locate(source, file, header), len(header), 0
    # At a clock no row is read in part: its cells may stand under the wrong names.
    least = width if source.per_tick else max(places, default=-1) + 1
    pick: Any = itemgetter(*places) if len(places) > 1 else partial(_few, places)
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


def _alone(source: Source, readable: ReadableFile) -> Iterator[list[str] | str]:
    """The cells of each line, by itself; none for a blank one; or why it cannot be read."""
    delimiter, pending = source.delimiter, list[str]()
    # Strict: a quote that is open, or that is not around a whole cell, is an error.
    reader = csv.reader(iter(pending.pop, None), delimiter=delimiter, strict=True)
    for line in lines.texts(readable):
        if line is None:
            yield _NOT_TEXT
        elif '"' not in line:
            yield line.split(delimiter) if line else []
        else:
            pending.append(line)
            try:
                record: list[str] | str = next(reader)
            except IndexError:  # it asks for another line
                record = _OPEN
            except csv.Error as error:
                record = f"malformed CSV: {error}"
            yield record


def _joined(source: Source, readable: ReadableFile) -> Iterator[list[str] | str]:
    """The same where cells may hold line breaks.

    Raises:
      InputError: a quote is broken. What follows it could be read as anything.
    """
    sound = True

    def joined() -> Iterator[str]:
        nonlocal sound
        for line, is_text in lines.with_ends(readable):
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
        file = place(source.label(readable.metadata.path), where)
        raise InputError(f"{file}: malformed CSV: {error}") from None


def _few(places: Sequence[int], cells: Sequence[str]) -> Sequence[str]:
    return [cells[place] for place in places]


# Lines of JSON


def of_json(source: Source, readable: ReadableFile, unread: Unread) -> Rows:
    public, row = source.public, 0
    columns = [
        (name, name.split("."), name in public, name in (source.key, source.user))
        for name in source.names
    ]
    for line in lines.texts(readable):
        if line is not None and (not line or line.isspace()):
            continue
        row += 1
        found = None if line is None else _object(line)
        if found is None:
            problem = _NOT_TEXT if line is None else _NOT_AN_OBJECT
            if line is not None and row == 1 and line.lstrip().startswith("["):
                problem += _ARRAY
            unread(row, None, problem)
            continue
        cells: list[object] = []
        for name, path, is_public, is_named in columns:
            cell = found.get(name, _MISSING)
            if cell is _MISSING and len(path) > 1:
                cell = _within(found, path)
            if cell is _MISSING and is_public:
                unread(row, None, f"no field {name!r} {_among_fields(source, name, [*found])}")
                break
            if cell is None or cell is _MISSING:
                # Per element a null is an empty text; at a clock it is no key, as in rows.
                cell = None if source.per_tick and name == source.key else ""
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


def _within(found: object, path: Sequence[str]) -> object:
    """What a dotted name leads to, through objects."""
    for name in path:
        if found is None:
            return None
        if not isinstance(found, dict):
            return _MISSING
        found = found.get(name, _MISSING)
    return found


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
    """What to say of a first line of CSV, which may be data: no name, unless the user asks.

    How many columns it has, and whether it looks like JSON or as if it had another delimiter.
    """
    hint = "; is --delimiter right?" if len(header) == 1 else ""
    if header and header[0].startswith("{"):
        hint = "; lines of JSON are read with --format jsonl"
    if not source.show_header:
        remedy = "if the first line is no data, --show-header names them"
        return f"among {len(header)}{hint}; {remedy}"
    return f"among {len(header)}: {named(wanted, header, hint)}"


def _among_fields(source: Source, wanted: str, fields: Sequence[str]) -> str:
    """The same of the fields of a line of JSON."""
    if source.per_tick:  # --check counts rows by what is said of them
        return "in the row"
    if not source.show_header:
        return f"among {len(fields)} of the row; --show-header names them"
    return f"among {len(fields)} of the row: {named(wanted, fields)}"


def named(wanted: str, names: Sequence[str], hint: str = "") -> str:
    """Names of columns, and a hint: by default, at the one that may have been meant."""
    meant = did_you_mean(wanted, names).rstrip()
    shown = ", ".join(repr(name[:80]) for name in names[:_NAMES_SHOWN]) or "none"
    more = ", ..." if len(names) > _NAMES_SHOWN else ""
    return f"{shown}{more}{hint or (f'; {meant}' if meant else '')}"

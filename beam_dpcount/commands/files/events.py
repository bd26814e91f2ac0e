"""Rows read as events, one by one. Messages never show a cell, see `files.formats`.

Per element a row that cannot be read ends the run, as the number and order of rows are public. At a
clock it leaves no trace: only a problem of a file as a whole can stop the run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice

from beam_dpcount.commands.files import lines, parquet, streams
from beam_dpcount.commands.files.formats import (
    STANDARD,
    Event,
    InputError,
    InputFile,
    Source,
    shown_person,
    text,
    unreadable,
)
from beam_dpcount.commands.files.records import Rows, Unread, of_csv, of_json, place

_FILES_CHECKED = 100
_READ = {"csv": of_csv, "jsonl": of_json, "parquet": parquet.of_parquet}


def events(
    source: Source, data: InputFile, unread: Unread | None = None
) -> Iterator[tuple[str, Event, int | None]]:
    """Yields the key of each event of a file, the event, and its time if there is a column of them.

    At a clock an event has no place: the number of a row would reveal rows before it.

    Args:
      unread: called for a row that cannot be read. Default: raises InputError; at a clock, does
        nothing.
    """
    if unread is None:
        unread = skipped if source.per_tick else partial(_stop, source.label(data.path))
    read = reader(source, source.label(data.path), unread)
    for row, cells in _rows(source, data, unread):
        event = read(row, cells)
        if event is not None:
            yield event


def reader(
    source: Source, file: str, unread: Unread
) -> Callable[[int, Sequence[object]], tuple[str, Event, int | None] | None]:
    """What makes an event of a row, given its number and cells; None where it cannot be read."""
    parse, measure = source.parse, source.measure
    first, is_text = len(source.keys), isinstance(source.key, str)
    end = first + len(source.columns)
    whose = None if source.user is None else end
    timed, two_times, placed = (
        source.timestamp is not None,
        len(source.times) == 2,
        not source.per_tick,
    )

    def read(row: int, cells: Sequence[object]) -> tuple[str, Event, int | None] | None:
        key = text(cells[0]) if is_text else source.key_of(cells[:first])
        if key is None:
            unread(row, " and ".join(source.keys), "the key is null; an empty text would do")
            return None
        person = "" if whose is None else shown_person(cells[whose])
        value = measure(*cells[first:end])
        event = Event(value, file, row, person) if placed else Event(value, "", 0, person)
        if not timed:
            return key, event, None
        try:
            micros = parse(_joined(cells[-2], cells[-1]) if two_times else cells[-1])
        except ValueError as error:
            unread(row, " and ".join(source.times), str(error))
            return None
        return key, event, micros

    return read


def check(source: Source, files: Sequence[InputFile]) -> None:
    """Finds errors without counting: per element those up to the first event of a file.

    At a clock it finds all errors of local files, so that none comes after noise was drawn:
    compressed and Parquet files, and those with `multiline`, are read to their end. Per element,
    and of files elsewhere, only the first 100 are looked at.

    Raises:
      InputError: a file does not fit.
    """
    for number, data in enumerate(files):
        if source.per_tick and "://" not in data.path:
            _check_whole(source, data)
        elif number < _FILES_CHECKED:
            next(events(source, data), None)


def _check_whole(source: Source, data: InputFile) -> None:
    """Raise InputError if reading a file at a clock would, without making objects of rows."""
    kind = source.kind(data.path)
    if kind == "parquet":
        parquet.check(source, data)
        return
    try:
        lines.check(data, has_header=kind == "csv")
    except OSError as error:
        raise unreadable(source.label(data.path), error) from error
    if kind == "csv":
        rows = _rows(source, data, skipped)
        for _ in rows if source.multiline else islice(rows, 1):
            pass


def ready(source: Source) -> Source:
    """The same with a copy of standard input, if that is an input: to be called before the rest."""
    return replace(source, spool=streams.spooled()) if STANDARD in source.inputs else source


def notes(source: Source, files: Sequence[InputFile]) -> list[str]:
    """What to check for oneself, as no error about protected data would be private."""
    json = any(source.kind(data.path) == "jsonl" for data in files)
    names = source.names if source.per_tick else (*source.columns, source.user)
    protected = [name for name in dict.fromkeys(names) if name is not None]
    if not json or not protected:
        return []
    return [
        "warning: JSON lines have no header, and so a misspelt name counts nothing: whether rows "
        f"have {', '.join(protected)} is not checked; --check does, privately"
    ]


def _rows(source: Source, data: InputFile, unread: Unread) -> Rows:
    path = data.path
    try:
        yield from _READ[source.kind(path)](source, data, unread)
    except OSError as error:
        raise unreadable(source.label(path), error) from error


def skipped(row: int, column: str | None, problem: str) -> None:
    """Skip a row that cannot be read, at a clock."""


def _stop(file: str, row: int, column: str | None, problem: str) -> None:
    # From None: the error that led to this one shows the cell.
    raise InputError(f"{place(file, row, column)}: {problem}") from None


def _joined(date: object, time: object) -> str:
    """The text of a date and a time of day; empty if one of them is."""
    cells = ["" if cell is None else str(cell) for cell in (date, time)]
    return " ".join(cells) if all(cells) else ""

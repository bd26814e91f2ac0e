"""Events read from CSV, JSON lines and Parquet. Messages never show a cell, see `files.formats`.

Per element a row that cannot be read ends the run, as the number and order of rows are public. At a
clock it leaves no trace: only a problem of a file as a whole can stop the run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

import apache_beam as beam
from apache_beam import coders
from apache_beam.coders.typecoders import registry
from apache_beam.io.fileio import ReadableFile, ReadMatches
from apache_beam.io.filesystem import FileMetadata
from apache_beam.pvalue import PBegin, PCollection
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import Timestamp

from beam_dpcount.commands.files import lines, parquet, streams
from beam_dpcount.commands.files.formats import (
    ALL,
    STANDARD,
    Event,
    InputError,
    Source,
    shown_person,
    text,
    unreadable,
)
from beam_dpcount.commands.files.inputs import files_of
from beam_dpcount.commands.files.records import Rows, Unread, of_csv, of_json, place

_FILES_CHECKED = 100
_READ = {"csv": of_csv, "jsonl": of_json, "parquet": parquet.of_parquet}


class _EventCoder(coders.Coder):
    """Takes half the time and size of Beam's pickling when events are shuffled."""

    _fields = coders.TupleCoder(
        (
            coders.FastPrimitivesCoder(),
            coders.StrUtf8Coder(),
            coders.VarIntCoder(),
            coders.StrUtf8Coder(),
        )
    )

    def encode(self, value: Event) -> bytes:
        return self._fields.encode(tuple(value))

    def decode(self, encoded: bytes) -> Event:
        return Event(*self._fields.decode(encoded))

    def is_deterministic(self) -> bool:
        return False

    def to_type_hint(self) -> type[Event]:
        return Event


registry.register_coder(Event, _EventCoder)


class ReadEvents(beam.PTransform[PBegin, PCollection[tuple[str, Event]]]):
    """Reads (key, Event), in the order of each file's rows.

    Raises:
      InputError: a file does not fit. Beam wraps it, so call `check` first, which finds most.
    """

    def __init__(self, source: Source, files: Sequence[FileMetadata] | None = None) -> None:
        """`files` are all that are read, and no others that come later; default: now's."""
        super().__init__()
        self.source, self.files = source, files_of(source) if files is None else files

    def expand(self, pbegin: PBegin) -> PCollection[tuple[str, Event]]:
        # No Reshuffle: it would mix up the rows of a file.
        each = beam.FlatMap(iter).with_output_types(FileMetadata)
        read = beam.FlatMap(partial(events, self.source)).with_output_types(tuple[str, Event])
        return (
            pbegin
            | "Matched" >> beam.Create([list(self.files)])
            | "Each" >> each
            | "Open" >> ReadMatches()
            | "Parse" >> read
        )

    def check(self) -> None:
        """Finds errors without a pipeline: per element those up to the first event of a file.

        At a clock it finds all errors of local files, so that none comes after noise was drawn:
        compressed and Parquet files, and those with `multiline`, are read to their end. Per
        element, and of files elsewhere, only the first 100 are looked at.
        """
        for number, metadata in enumerate(self.files):
            readable = ReadableFile(metadata)
            if self.source.per_tick and "://" not in metadata.path:
                _check_whole(self.source, readable)
            elif number < _FILES_CHECKED:
                next(events(self.source, readable), None)


def _check_whole(source: Source, readable: ReadableFile) -> None:
    """Raise InputError if reading a file at a clock would, without making objects of rows."""
    kind = source.kind(readable.metadata.path)
    if kind == "parquet":
        parquet.check(source, readable)
        return
    try:
        lines.check(readable, has_header=kind == "csv")
    except OSError as error:
        raise unreadable(source.label(readable.metadata.path), error) from error
    if kind == "csv":
        rows = _rows(source, readable, _no_trace)
        for _ in rows if source.multiline else islice(rows, 1):
            pass


def ready(source: Source) -> Source:
    """The same with a copy of standard input, if that is an input: to be called before the rest."""
    return replace(source, spool=streams.spooled()) if STANDARD in source.inputs else source


def notes(source: Source, files: Sequence[FileMetadata]) -> list[str]:
    """What to check for oneself, as no error about protected data would be private."""
    json = any(source.kind(metadata.path) == "jsonl" for metadata in files)
    names = source.names if source.per_tick else (*source.columns, source.user)
    protected = [name for name in dict.fromkeys(names) if name is not None]
    if not json or not protected:
        return []
    return [
        "warning: JSON lines have no header, and so a misspelt name counts nothing: whether rows "
        f"have {', '.join(protected)} is not checked; --check does, privately"
    ]


def all_events(source: Source, unread: Unread | None = None) -> Iterator[Any]:
    """Reads all events, in the order of the files, without a pipeline; `unread` as of `events`."""
    for metadata in files_of(source):
        yield from events(source, ReadableFile(metadata), unread)


def events(source: Source, readable: ReadableFile, unread: Unread | None = None) -> Iterator[Any]:
    """Yields (key, Event) of one file, in a TimestampedValue if there is a column of timestamps.

    At a clock an event has no place: the number of a row would reveal rows before it.

    Args:
      unread: called for a row that cannot be read. Default: raises InputError; at a clock, does
        nothing.
    """
    file = source.label(readable.metadata.path)
    if unread is None:
        unread = _no_trace if source.per_tick else partial(_stop, file)
    keyed, parse, measure = source.key is not None, source.parse, source.measure
    first, end = int(keyed), int(keyed) + len(source.columns)
    whose = None if source.user is None else end
    two_times, placed = len(source.times) == 2, not source.per_tick
    for row, cells in _rows(source, readable, unread):
        key = text(cells[0]) if keyed else ALL
        if key is None:
            unread(row, source.key, "the key is null; an empty text would do")
            continue
        person = "" if whose is None else shown_person(cells[whose])
        value = measure(*cells[first:end])
        element = key, Event(value, file, row, person) if placed else Event(value, "", 0, person)
        if source.timestamp is None:
            yield element
            continue
        try:
            micros = parse(_joined(cells[-2], cells[-1]) if two_times else cells[-1])
        except ValueError as error:
            unread(row, " and ".join(source.times), str(error))
            continue
        yield TimestampedValue(element, Timestamp(micros=micros))


def _rows(source: Source, readable: ReadableFile, unread: Unread) -> Rows:
    path = readable.metadata.path
    try:
        yield from _READ[source.kind(path)](source, readable, unread)
    except OSError as error:
        raise unreadable(source.label(path), error) from error


def _no_trace(row: int, column: str | None, problem: str) -> None:
    """Skip a row that cannot be read, at a clock."""


def _stop(file: str, row: int, column: str | None, problem: str) -> None:
    # From None: the error that led to this one shows the cell.
    raise InputError(f"{place(file, row, column)}: {problem}") from None


def _joined(date: object, time: object) -> str:
    """The text of a date and a time of day; empty if one of them is."""
    cells = ["" if cell is None else str(cell) for cell in (date, time)]
    return " ".join(cells) if all(cells) else ""

"""Events read from CSV and Parquet files. Messages never show a cell, see `files.formats`.

They show the first line of a CSV file only on request: it is data if there is no header.
"""

import csv
import io
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from operator import itemgetter
from typing import Any, BinaryIO

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
from apache_beam import coders
from apache_beam.coders.typecoders import registry
from apache_beam.io.fileio import ReadableFile, ReadMatches
from apache_beam.io.filesystem import FileMetadata
from apache_beam.io.filesystems import FileSystems
from apache_beam.pvalue import PBegin, PCollection
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import Timestamp

from beam_dpcount.commands.files.formats import ALL, Event, InputError, Source, shown_person

csv.field_size_limit(2**31 - 1)  # stopping at a long cell would reveal it
_PARQUET = (".parquet", ".pq")
_FILES_CHECKED = 100
_NAMES_SHOWN = 40

Rows = Iterator[tuple[int, Sequence[object]]]  # the number of each row, and its cells of all names


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

    def __init__(self, source: Source) -> None:
        super().__init__()
        self.source = source

    def expand(self, pbegin: PBegin) -> PCollection[tuple[str, Event]]:
        # No Reshuffle: it would mix up the rows of a file.
        read = beam.FlatMap(partial(events, self.source)).with_output_types(tuple[str, Event])
        return (
            pbegin
            | "Patterns" >> beam.Create([self.source.inputs])
            | "Match" >> beam.FlatMap(_match).with_output_types(FileMetadata)
            | "Open" >> ReadMatches()
            | "Parse" >> read
        )

    def check(self) -> None:
        """Reads the header and the first event of the first 100 files, without a pipeline."""
        for metadata in _match(self.source.inputs)[:_FILES_CHECKED]:
            if not metadata.path.endswith(("/", "\\")):
                next(events(self.source, ReadableFile(metadata)), None)


def all_events(source: Source) -> Iterator[Any]:
    """Reads all events, in the order of the files, without a pipeline."""
    for metadata in _match(source.inputs):
        yield from events(source, ReadableFile(metadata))


def events(source: Source, readable: ReadableFile) -> Iterator[Any]:
    """Yields (key, Event) of one file, in a TimestampedValue if there is a column of timestamps."""
    file = readable.metadata.path
    keyed, parse, measure = source.key is not None, source.parse, source.measure
    first, end = int(keyed), int(keyed) + len(source.columns)
    whose = None if source.user is None else end
    for row, cells in (_of_parquet if _is_parquet(file) else _of_csv)(source, readable):
        key = cells[0] if keyed else ALL
        if type(key) is not str:
            if key is None:
                place = _place(file, row, source.key)
                raise InputError(f"{place}: the key is null; an empty text would do")
            key = str(key)
        person = "" if whose is None else shown_person(cells[whose])
        element = key, Event(measure(*cells[first:end]), file, row, person)
        if source.timestamp is None:
            yield element
            continue
        try:
            micros = parse(cells[-1])
        except ValueError as error:
            raise InputError(f"{_place(file, row, source.timestamp)}: {error}") from None
        yield TimestampedValue(element, Timestamp(micros=micros))


def _is_parquet(file: str) -> bool:
    return file.lower().endswith(_PARQUET)


def _of_csv(source: Source, readable: ReadableFile) -> Rows:
    file = readable.metadata.path
    row = -1  # the last record that was read; the header is record 0
    try:
        with _open_text(readable) as text:
            # Strict: else a quote that is never closed would swallow the rest of the file.
            records = filter(None, csv.reader(text, delimiter=source.delimiter, strict=True))
            header = next(records, None)
            if header is None:
                raise InputError(f"{file}: the file is empty; it needs a header line")
            row = 0
            places = _locate(source, file, header)
            last = max(places, default=-1)
            pick: Any = itemgetter(*places) if len(places) > 1 else partial(_few, places)
            for row, cells in enumerate(records, 1):
                if len(cells) <= last:
                    there = zip(source.names, places, strict=True)
                    missing = next(name for name, place in there if place >= len(cells))
                    found = f"{len(cells)} of {len(header)} cells"
                    raise InputError(f"{_place(file, row, missing)}: the row is too short, {found}")
                yield row, pick(cells)
    except csv.Error as error:
        raise InputError(f"{_place(file, row + 1)}: malformed CSV: {error}") from None
    except UnicodeDecodeError:
        row = _undecodable(source, readable, row + 1)
        raise InputError(f"{_place(file, row)}: not UTF-8 text; convert the file") from None
    except OSError as error:
        raise unreadable(file, error) from error


def _few(places: Sequence[int], cells: Sequence[str]) -> Sequence[str]:
    return [cells[place] for place in places]


def _undecodable(source: Source, readable: ReadableFile, default: int) -> int:
    """The record whose bytes are not UTF-8. (The decoder reads ahead of the records.)"""
    with suppress(csv.Error), _open_text(readable, errors="surrogateescape") as text:
        records = filter(None, csv.reader(text, delimiter=source.delimiter))
        for row, cells in enumerate(records):
            if re.search("[\udc80-\udcff]", "".join(cells)):
                return row
    return default


def _of_parquet(source: Source, readable: ReadableFile) -> Rows:
    file, names = readable.metadata.path, source.names
    row = 0
    try:
        with readable.open() as stream, pq.ParquetFile(stream) as table:
            schema = table.schema_arrow
            for place in _locate(source, file, schema.names, certain=True):
                kind = schema.types[place]
                if pa.types.is_nested(kind) or pa.types.is_fixed_size_binary(kind):
                    column = _place(file, column=schema.names[place])
                    raise InputError(f"{column}: holds {kind}, not text, numbers or times")
            for batch in table.iter_batches(columns=list(dict.fromkeys(names))):
                before = row
                cells = {
                    name: _cells(batch[name], file, before, name, name in source.public)
                    for name in batch.schema.names
                }
                columns = zip(*(cells[name] for name in names), strict=True)
                for row, values in enumerate(columns, before + 1):
                    yield row, values
    except pa.ArrowException:  # its text may show a cell
        problem = f"damaged after row {row}" if row else "not a Parquet file"
        raise InputError(f"{file}: {problem}") from None
    except OSError as error:
        raise unreadable(file, error) from error


def _locate(source: Source, file: str, header: Sequence[str], certain: bool = False) -> list[int]:
    """The positions of the columns; the names in a header that is certain are not data."""
    for name in source.names:
        if name not in header:
            among = _among(source, header, certain)
            raise InputError(f"{_place(file, 0)}: no column {name!r} {among}")
        if header.count(name) > 1:
            raise InputError(f"{_place(file, 0, name)}: several columns have this name")
    return [header.index(name) for name in source.names]


def _among(source: Source, header: Sequence[str], certain: bool) -> str:
    """What to say of the columns in the file, without a name or hint that may show data."""
    some = f"among {len(header)}"
    hint = "; is --delimiter right?" if len(header) == 1 and not certain else ""
    if not (certain or source.show_header):
        return f"{some}{hint}; if the first line is no data, --show-header names them"
    shown = ", ".join(repr(name[:80]) for name in header[:_NAMES_SHOWN]) or "none"
    return f"{some}: {shown}{', ...' if len(header) > _NAMES_SHOWN else ''}{hint}"


def _place(file: str, row: int | None = None, column: str | None = None) -> str:
    """Where an error is; row 0 is the header."""
    rows = [] if row is None else [f"row {row}" if row else "header"]
    columns = [] if column is None else [f"column {column!r}"]
    return ", ".join([file, *rows, *columns])


def _cells(array: Any, file: str, before: int, column: str, public: bool) -> list[object]:
    """The Python objects of a column, after `before` rows.

    A cell that cannot be converted stops the run if the column is public. Else it becomes None,
    which counts 0: stopping would reveal it.
    """
    if pa.types.is_timestamp(array.type):
        # Python has no nanoseconds. "+00:00", unlike "UTC", needs no time zone database.
        unit = "us" if array.type.unit == "ns" else array.type.unit
        zone = "+00:00" if array.type.tz else None
        array = array.cast(pa.timestamp(unit, zone), safe=False)
    elif pa.types.is_duration(array.type) and array.type.unit == "ns":
        array = array.cast(pa.duration("us"), safe=False)
    elif pa.types.is_time64(array.type) and array.type.unit == "ns":
        array = array.cast(pa.time64("us"), safe=False)
    elif pa.types.is_binary(array.type):
        array = array.view(pa.string())  # many writers do not mark their text as text
    with suppress(ValueError, OverflowError):
        return array.to_pylist()
    cells = []
    for row, cell in enumerate(array, before + 1):
        try:
            cells.append(cell.as_py())
        except (ValueError, OverflowError):
            if public:
                problem = "neither UTF-8 text nor a date of the years 1 to 9999"
                raise InputError(f"{_place(file, row, column)}: {problem}") from None
            cells.append(None)
    return cells


class _Stream(io.RawIOBase):
    """What io.TextIOWrapper needs, and Beam's compressed files lack."""

    def __init__(self, source: BinaryIO) -> None:
        self._source = source

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data = self._source.read(len(buffer))
        except Exception as error:  # each codec has its own
            raise OSError("the compressed data are damaged") from error
        # Beam accepts a file that was cut off; its decompressor knows better.
        if not data and not getattr(getattr(self._source, "_decompressor", None), "eof", True):
            raise OSError("the compressed data end too early")
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._source.close()
        super().close()


def _open_text(readable: ReadableFile, errors: str = "strict") -> io.TextIOWrapper:
    stream = readable.open()
    if not isinstance(stream, io.IOBase):
        stream = io.BufferedReader(_Stream(stream))
    return io.TextIOWrapper(stream, encoding="utf-8-sig", errors=errors, newline="")


def unreadable(file: str, error: OSError) -> InputError:
    return InputError(f"{file}: cannot be read: {error.strerror or error}")


def _match(inputs: Sequence[str]) -> list[FileMetadata]:
    """The files of all patterns, each file once: an event read twice would count twice."""
    files: dict[str, FileMetadata] = {}
    for pattern in inputs:
        # Beam finds nothing for a pattern with a star in its first part.
        full = f"./{pattern}" if re.match(r"[^/]*[*?[]", pattern) else pattern
        try:
            found = FileSystems.match([full])[0].metadata_list if pattern else []
        except (ValueError, OSError) as error:
            raise InputError(f"cannot look for {pattern!r}: {error}") from error
        if not found:
            raise InputError(f"no file matches {pattern!r}")
        for metadata in sorted(found, key=lambda metadata: metadata.path):
            path = metadata.path
            files.setdefault(path if "://" in path else os.path.realpath(path), metadata)
    return list(files.values())


def matched(inputs: Sequence[str]) -> list[str]:
    """The paths of all files that the patterns match."""
    return [metadata.path for metadata in _match(inputs)]

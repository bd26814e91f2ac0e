"""Events read from CSV, JSON lines and Parquet. Messages never show a cell, see `files.formats`.

They show the first line of a CSV file only on request: it is data if there is no header. And so
with the fields of a line of JSON, as which of them a row has may say something of it.
"""

import csv
import io
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
from apache_beam import coders
from apache_beam.coders.typecoders import registry
from apache_beam.io.fileio import ReadableFile, ReadMatches
from apache_beam.io.filesystem import CompressedFile, CompressionTypes, FileMetadata
from apache_beam.io.filesystems import FileSystems
from apache_beam.pvalue import PBegin, PCollection
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import Timestamp

from beam_dpcount.commands.files import streams
from beam_dpcount.commands.files.formats import (
    ALL,
    STANDARD,
    Event,
    InputError,
    Source,
    shown_person,
)
from beam_dpcount.commands.meant import did_you_mean
from beam_dpcount.commands.progress import Progress

csv.field_size_limit(2**31 - 1)  # stopping at a long cell would reveal it
_FILES_CHECKED = 100
_NAMES_SHOWN = 40
_MOST_DIGITS = 300  # of a whole number in JSON; as `formats.number` has it
_BUFFER = 1 << 16
_MISSING = object()

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
        """Reads the header and the first event of the first 100 files, without a pipeline."""
        for metadata in self.files[:_FILES_CHECKED]:
            if not metadata.path.endswith(("/", "\\")):
                next(events(self.source, ReadableFile(metadata)), None)


def ready(source: Source) -> Source:
    """The same with a copy of standard input, if that is an input: to be called before the rest."""
    return replace(source, spool=streams.spooled()) if STANDARD in source.inputs else source


def notes(source: Source, files: Sequence[FileMetadata]) -> list[str]:
    """What to check for oneself, as no error about protected data would be private."""
    lines = any(source.kind(metadata.path) == "jsonl" for metadata in files)
    protected = dict.fromkeys((*source.columns, *([source.user] if source.user else [])))
    if not lines or not protected:
        return []
    names = ", ".join(protected)
    return [
        "warning: JSON lines have no header, and so a misspelt name counts nothing: whether rows "
        f"have {names} is not checked; --check does, privately"
    ]


def all_events(source: Source) -> Iterator[Any]:
    """Reads all events, in the order of the files, without a pipeline."""
    for metadata in files_of(source):
        yield from events(source, ReadableFile(metadata))


def events(source: Source, readable: ReadableFile) -> Iterator[Any]:
    """Yields (key, Event) of one file, in a TimestampedValue if there is a column of timestamps."""
    path = readable.metadata.path
    file = source.label(path)
    keyed, parse, measure = source.key is not None, source.parse, source.measure
    first, end = int(keyed), int(keyed) + len(source.columns)
    whose = None if source.user is None else end
    two_times = len(source.times) == 2
    for row, cells in _READ[source.kind(path)](source, readable):
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
            micros = parse(_joined(cells[-2], cells[-1]) if two_times else cells[-1])
        except ValueError as error:
            place = _place(file, row, " and ".join(source.times))
            raise InputError(f"{place}: {error}") from None
        yield TimestampedValue(element, Timestamp(micros=micros))


def _joined(date: object, time: object) -> str:
    """The text of a date and a time of day; empty if one of them is."""
    cells = ["" if cell is None else str(cell) for cell in (date, time)]
    return " ".join(cells) if all(cells) else ""


def _of_csv(source: Source, readable: ReadableFile) -> Rows:
    file = source.label(readable.metadata.path)
    row = -1  # the last record that was read; the header is record 0
    try:
        with _open_text(readable) as text:
            # Strict: else a quote that is never closed would swallow the rest of the file.
            records = csv.reader(text, delimiter=source.delimiter, strict=True)
            header = next(filter(None, records), None)
            if header is None:
                raise InputError(f"{file}: the file is empty; it needs a header line")
            row = 0
            places = _locate(source, file, header)
            last = max(places, default=-1)
            pick: Any = itemgetter(*places) if len(places) > 1 else partial(_few, places)
            for row, cells in enumerate(_records(records, len(header)), 1):
                if len(cells) <= last:
                    there = zip(source.names, places, strict=True)
                    missing = next(name for name, place in there if place >= len(cells))
                    found = f"{len(cells)} of {len(header)} cells"
                    raise InputError(f"{_place(file, row, missing)}: the row is too short, {found}")
                yield row, pick(cells)
    except csv.Error as error:
        raise InputError(f"{_place(file, row + 1)}: malformed CSV: {error}") from None
    except UnicodeDecodeError:
        with suppress(csv.Error), _open_text(readable, errors="surrogateescape") as text:
            records = csv.reader(text, delimiter=source.delimiter)
            header = next(filter(None, records), [])
            if not re.search("[\udc80-\udcff]", "".join(header)):
                row = _undecodable(map("".join, _records(records, len(header))), row + 1, 1)
            else:
                row = 0
        raise InputError(f"{_place(file, row)}: not UTF-8 text; convert the file") from None
    except OSError as error:
        raise unreadable(file, error) from error


def _records(records: Iterable[list[str]], width: int) -> Iterator[list[str]]:
    """Without blank lines; of a single column they are its empty cells, and take their steps."""
    return filter(None, records) if width > 1 else (record or [""] for record in records)


def _of_json(source: Source, readable: ReadableFile) -> Rows:
    file = source.label(readable.metadata.path)
    public, row = source.public, 0
    columns = [(name, name in public, name in (source.key, source.user)) for name in source.names]
    try:
        with _open_text(readable) as text:
            for line in text:
                if line.isspace():
                    continue
                row += 1
                found = _object(line)
                if found is None:
                    problem = (
                        "not a JSON object, or nested too deeply; each line must be one, such as "
                        '{"name": 1}'
                    )
                    raise InputError(f"{_place(file, row)}: {problem}")
                cells: list[object] = []
                for name, is_public, is_named in columns:
                    cell = found.get(name, _MISSING)
                    if cell is _MISSING and is_public:
                        among = _among(source, name, [*found], False, "fields")
                        raise InputError(f"{_place(file, row)}: no field {name!r} {among}")
                    if cell is None or cell is _MISSING:
                        cell = ""
                    elif not _is_plain(cell):
                        if is_public:
                            problem = "an object, a list or half a character, not text or a number"
                            raise InputError(f"{_place(file, row, name)}: {problem}")
                        cell = None
                    elif is_named and isinstance(cell, bool):
                        cell = str(cell).lower()  # as JSON has it
                    cells.append(cell)
                yield row, cells
    except UnicodeDecodeError:
        with _open_text(readable, errors="surrogateescape") as text:
            row = _undecodable((line for line in text if not line.isspace()), row, 1)
        raise InputError(f"{_place(file, row)}: not UTF-8 text; convert the file") from None
    except OSError as error:
        raise unreadable(file, error) from error


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


def _few(places: Sequence[int], cells: Sequence[str]) -> Sequence[str]:
    return [cells[place] for place in places]


def _undecodable(records: Iterable[str], default: int, first: int = 0) -> int:
    """The record whose bytes are not UTF-8. (The decoder reads ahead of the records.)"""
    for row, text in enumerate(records, first):
        if re.search("[\udc80-\udcff]", text):
            return row
    return default


def _of_parquet(source: Source, readable: ReadableFile) -> Rows:
    file, names = source.label(readable.metadata.path), source.names
    row, share = 0, 0.0
    try:
        with readable.open() as stream, pq.ParquetFile(stream) as table:
            schema = table.schema_arrow
            for place in _locate(source, file, schema.names, certain=True):
                kind = schema.types[place]
                if pa.types.is_nested(kind) or pa.types.is_fixed_size_binary(kind):
                    column = _place(file, column=schema.names[place])
                    raise InputError(f"{column}: holds {kind}, not text, numbers or times")
            share = readable.metadata.size_in_bytes / max(1, table.metadata.num_rows)
            for batch in table.iter_batches(columns=list(dict.fromkeys(names))):
                Progress.read += round(share * len(batch))
                before = row
                cells = {
                    name: _cells(batch[name], file, before, name, name in source.public)
                    for name in batch.schema.names
                }
                columns = zip(*(cells[name] for name in names), strict=True)
                for row, values in enumerate(columns, before + 1):
                    yield row, values
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and (type(error) is not OSError or error.errno is not None):
            raise unreadable(file, error) from error
        # Arrow's own, whose text may show a cell or have two lines; or a file system's without a
        # number, which nothing tells from those.
        problem = f"damaged after row {row}" if row else "not a Parquet file, or a damaged one"
        if isinstance(error, OSError):
            problem += ", unless its storage failed"
        raise InputError(f"{file}: {problem}") from None


_READ: dict[str, Callable[[Source, ReadableFile], Rows]] = {
    "csv": _of_csv,
    "jsonl": _of_json,
    "parquet": _of_parquet,
}


def _locate(source: Source, file: str, header: Sequence[str], certain: bool = False) -> list[int]:
    """The positions of the columns; the names in a header that is certain are not data."""
    for name in source.names:
        if name not in header:
            among = _among(source, name, header, certain)
            raise InputError(f"{_place(file, 0)}: no column {name!r} {among}")
        if header.count(name) > 1:
            raise InputError(f"{_place(file, 0, name)}: several columns have this name")
    return [header.index(name) for name in source.names]


def _among(
    source: Source, wanted: str, header: Sequence[str], certain: bool, what: str = "columns"
) -> str:
    """What to say of the columns in the file, without a name that may show data.

    Of a first line of CSV, which may be data, it says how many columns it has, and whether it looks
    like JSON or as if it had another delimiter.
    """
    some = f"among {len(header)}"
    hint = "; is --delimiter right?" if len(header) == 1 and not certain else ""
    if not certain and header and header[0].startswith("{"):
        hint = "; lines of JSON are read with --format jsonl"
    if what == "fields":
        some, hint = f"among {len(header)} of the row", ""
        if not source.show_header:
            return f"{some}; --show-header names them"
    if not (certain or source.show_header):
        return f"{some}{hint}; if the first line is no data, --show-header names them"
    meant = did_you_mean(wanted, header).rstrip()
    hint = hint or (f"; {meant}" if meant else "")
    shown = ", ".join(repr(name[:80]) for name in header[:_NAMES_SHOWN]) or "none"
    return f"{some}: {shown}{', ...' if len(header) > _NAMES_SHOWN else ''}{hint}"


def _place(file: str, row: int | None = None, column: str | None = None) -> str:
    """Where an error is; row 0 is the header."""
    rows = [] if row is None else [f"row {row}" if row else "header"]
    columns = [] if column is None else [f"column {column!r}"]
    return ", ".join([file, *rows, *columns])


# Many writers do not mark their text as text.
_UNMARKED = {pa.binary(): pa.string(), pa.large_binary(): pa.large_string()}


def _cells(array: Any, file: str, before: int, column: str, public: bool) -> list[object]:
    """The Python objects of a column, after `before` rows.

    A cell that cannot be converted stops the run if the column is public. Else it becomes None,
    which counts 0: stopping would reveal it.
    """
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_timestamp(array.type):
        # Python has no nanoseconds. "+00:00", unlike "UTC", needs no time zone database.
        unit = "us" if array.type.unit == "ns" else array.type.unit
        zone = "+00:00" if array.type.tz else None
        array = array.cast(pa.timestamp(unit, zone), safe=False)
    elif pa.types.is_duration(array.type) and array.type.unit == "ns":
        array = array.cast(pa.duration("us"), safe=False)
    elif pa.types.is_time64(array.type) and array.type.unit == "ns":
        array = array.cast(pa.time64("us"), safe=False)
    elif array.type in _UNMARKED:
        array = array.view(_UNMARKED[array.type])
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
    """What io.TextIOWrapper needs, and Beam's compressed files lack; it says how far it is."""

    def __init__(self, source: Any, file: Any) -> None:
        self._source, self._file, self._at = source, file, 0

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
        before, self._at = self._at, self._file.tell()  # of what may be compressed
        Progress.read += self._at - before
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._source.close()
        super().close()


def _open_text(readable: ReadableFile, errors: str = "strict") -> io.TextIOWrapper:
    path, plain = readable.metadata.path, CompressionTypes.UNCOMPRESSED
    file = FileSystems.open(path, compression_type=plain)
    kind = CompressionTypes.detect_compression_type(path)
    source: Any = file if kind == plain else CompressedFile(file, compression_type=kind)
    stream = io.BufferedReader(_Stream(source, file), _BUFFER)
    return io.TextIOWrapper(stream, encoding="utf-8-sig", errors=errors, newline="")


def unreadable(file: str, error: OSError) -> InputError:
    return InputError(f"{file}: cannot be read: {error.strerror or error}")


def files_of(source: Source) -> list[FileMetadata]:
    """The files of a source."""
    return _match(source.inputs, source.spool)


def _identity(path: str) -> object:
    """What names of one file have in common: links, hard ones too."""
    if "://" not in path:
        with suppress(OSError):
            found = os.stat(path)
            return found.st_dev, found.st_ino
    return path


def _match(inputs: Sequence[str], spool: str) -> list[FileMetadata]:
    """The files of all patterns, each file once: an event read twice would count twice."""
    files: dict[object, FileMetadata] = {}
    for pattern in (spool if pattern == STANDARD else pattern for pattern in inputs):
        # Beam finds nothing for a pattern with a star in its first part.
        full = f"./{pattern}" if re.match(r"[^/]*[*?[]", pattern) else pattern
        try:
            found = FileSystems.match([full])[0].metadata_list if pattern else []
        except (ValueError, OSError) as error:
            raise InputError(f"cannot look for {pattern!r}: {error}") from error
        if not found:
            raise InputError(f"no file matches {pattern!r}")
        for metadata in sorted(found, key=lambda metadata: metadata.path):
            files.setdefault(_identity(metadata.path), metadata)
    return list(files.values())

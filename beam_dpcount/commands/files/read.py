"""Events read from CSV and Parquet files, and releases written to them.

Messages about a file name its row and column and never show a cell. The first line of a CSV file is
shown on request alone: where there is no header, it is data.
"""

import csv
import io
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, BinaryIO, ClassVar, NamedTuple, TypeVar

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

from beam_dpcount.commands.files import times as timestamps
from beam_dpcount.commands.files.tables import WriteTable

csv.field_size_limit(2**31 - 1)  # a long cell is no reason to stop: that would show it
_PARQUET = (".parquet", ".pq")
_FILES_CHECKED = 100
_NAMES_SHOWN = 40
_AnyReader = TypeVar("_AnyReader", bound="Reader")
_MAX_NUMBER = 300  # characters; beyond it no count is meant, and int() takes quadratic time

_SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("step", pa.int64()),
        ("timestamp", pa.int64()),
        ("value", pa.float64()),
        ("stddev", pa.float64()),
    ]
)


class InputError(ValueError):
    """A file or an argument that cannot be used; the message says where and why."""


class Event(NamedTuple):
    """What one row of a file says, and where it stands: rows count from 1, after the header."""

    value: object
    file: str
    row: int


class _EventCoder(coders.Coder):
    """Where events are shuffled Beam would pickle each, at twice the time and size."""

    _fields = coders.TupleCoder(
        (coders.FastPrimitivesCoder(), coders.StrUtf8Coder(), coders.VarIntCoder())
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


def _place(file: str, row: int | None = None, column: str | None = None) -> str:
    """Where an error is; row 0 is the header."""
    place = [file]
    if row is not None:
        place.append(f"row {row}" if row else "header")
    if column is not None:
        place.append(f"column {column!r}")
    return ", ".join(place)


@dataclass(frozen=True)
class Reader:
    """Reads the events of one file at a time: what `ReadEvents` does to each. Made by `of`.

    A subclass may take the rows (`csv_rows`, `parquet_rows`) or what they count (`measure`) in
    another way.
    """

    key: str
    value: str | None
    where: tuple[str, str] | None
    timestamp: str | None
    parse: Callable[[object], int]
    delimiter: str
    show_header: bool = False

    # What to do, beside naming another column, where what is counted is the key too.
    remedy: ClassVar[str] = "count per tick (pipelines.ticks), where keys and times are protected"

    @classmethod
    def of(
        cls: type[_AnyReader],
        key: str,
        value: str | None,
        where: str | None,
        timestamp: str | None,
        timestamp_format: str,
        timezone: str,
        delimiter: str,
        show_header: bool = False,
        per_tick: bool = False,
        **more: Any,
    ) -> _AnyReader:
        """The reader of these arguments, which are those of `ReadEvents`.

        Args:
          more: what a subclass has besides.

        Raises:
          InputError: an argument makes no sense, or what is counted is public.
        """
        if "" in (key, value, timestamp):
            raise InputError("key, value and timestamp must name columns, got an empty name")
        condition = None
        if where is not None:
            if value is not None:
                raise InputError("give value or where, not both: where counts the rows that match")
            column, equals, text = where.partition("=")
            if not column or not equals:
                raise InputError(f"where must be COLUMN=VALUE, got {where!r}")
            condition = column, text
        separator = "\t" if delimiter == r"\t" else delimiter
        if len(separator) != 1 or separator in '"\r\n':
            raise InputError(
                f"delimiter must be one character, or \\t for a tab; got {delimiter!r}"
            )
        try:
            parse = timestamps.parser(timestamp_format, timezone)
        except ValueError as error:
            raise InputError(str(error)) from None
        reader = cls(key, value, condition, timestamp, parse, separator, show_header, **more)
        if not per_tick:
            reader.check_protected()
        return reader

    def check_protected(self) -> None:
        """Raise InputError where a column that is counted is public per element."""
        for column in self.counted:
            if column not in self.public:
                continue
            role = "times" if column == self.timestamp else "keys"
            remedy = f", or {self.remedy}" if self.remedy else ""
            raise InputError(
                f"column {column!r} is counted and holds the {role} as well, which are public per "
                f"element, so that nothing would be protected: name another column{remedy}"
            )

    @property
    def counted(self) -> tuple[str, ...]:
        """The columns that a row counts by, which are to be protected."""
        value = self.where[0] if self.where else self.value
        return () if value is None else (value,)

    @property
    def columns(self) -> tuple[str, str, str]:
        """The columns of the key, the value and the time; the key's where there is no other."""
        value = self.where[0] if self.where else self.value
        return self.key, value or self.key, self.timestamp or self.key

    @property
    def public(self) -> frozenset[str]:
        """The columns whose cells may stop the run."""
        return frozenset((self.key, self.timestamp or self.key))

    def events(self, readable: ReadableFile) -> Iterator[Any]:
        """Yields (key, Event), in a TimestampedValue if there is a column of timestamps."""
        file = readable.metadata.path
        is_parquet = file.lower().endswith(_PARQUET)
        rows = self.parquet_rows(readable) if is_parquet else self.csv_rows(readable)
        for row, key, value, time in rows:
            if type(key) is not str:
                if key is None:
                    raise InputError(
                        f"{_place(file, row, self.key)}: the key is null; an empty text would do"
                    )
                key = str(key)
            element = key, Event(self.measure(value), file, row)
            if self.timestamp is None:
                yield element
                continue
            try:
                micros = self.parse(time)
            except ValueError as error:
                raise InputError(f"{_place(file, row, self.timestamp)}: {error}") from None
            yield TimestampedValue(element, Timestamp(micros=micros))

    def measure(self, cell: object) -> object:
        """What a row counts, whose cell in the column of the value this is."""
        if self.where is not None:
            return int(cell is not None and _shows(cell, self.where[1]))
        return 1 if self.value is None else _number(cell)

    def _locate(self, file: str, header: Sequence[str], certain: bool = False) -> list[int]:
        """The positions of the columns; of a certain header its names are no data."""
        for column in self.columns:
            if column not in header:
                raise InputError(
                    f"{_place(file, 0)}: no column {column!r} {self._among(header, certain)}"
                )
            if header.count(column) > 1:
                raise InputError(f"{_place(file, 0, column)}: several columns have this name")
        return [header.index(column) for column in self.columns]

    def _among(self, header: Sequence[str], certain: bool) -> str:
        """What to say of the columns that there are: no name or hint that may show data."""
        some = f"among {len(header)}"
        hint = "; is --delimiter right?" if len(header) == 1 and not certain else ""
        if not (certain or self.show_header):
            return f"{some}{hint}; if the first line is no data, --show-header names them"
        shown = ", ".join(repr(name[:80]) for name in header[:_NAMES_SHOWN]) or "none"
        return f"{some}: {shown}{', ...' if len(header) > _NAMES_SHOWN else ''}{hint}"

    def csv_rows(self, readable: ReadableFile) -> Iterator[tuple[int, object, object, object]]:
        """Yields the number of each row, and its cells of the key, the value and the time."""
        file = readable.metadata.path
        row = -1  # the last record that was read; the header is record 0
        try:
            with _open_text(readable) as text:
                # Strict, as a quote that is never closed would else swallow the rest of the file.
                records = filter(None, csv.reader(text, delimiter=self.delimiter, strict=True))
                header = next(records, None)
                if header is None:
                    raise InputError(f"{file}: the file is empty; it needs a header line")
                row = 0
                key, value, time = places = self._locate(file, header)
                last = max(places)
                for row, cells in enumerate(records, 1):
                    if len(cells) <= last:
                        missing = next(
                            column
                            for column, place in zip(self.columns, places, strict=True)
                            if place >= len(cells)
                        )
                        raise InputError(
                            f"{_place(file, row, missing)}: the row is too short to have a cell "
                            f"here, {len(cells)} of {len(header)}"
                        )
                    yield row, cells[key], cells[value], cells[time]
        except csv.Error as error:
            raise InputError(f"{_place(file, row + 1)}: malformed CSV: {error}") from None
        except UnicodeDecodeError:
            row = self._undecodable(readable, row + 1)
            raise InputError(f"{_place(file, row)}: not UTF-8 text; convert the file") from None
        except OSError as error:
            raise _unreadable(file, error) from error

    def _undecodable(self, readable: ReadableFile, default: int) -> int:
        """The record whose bytes are no UTF-8. (The decoder reads ahead of the records.)"""
        with suppress(csv.Error), _open_text(readable, errors="surrogateescape") as text:
            records = filter(None, csv.reader(text, delimiter=self.delimiter))
            for row, cells in enumerate(records):
                if re.search("[\udc80-\udcff]", "".join(cells)):
                    return row
        return default

    def parquet_rows(self, readable: ReadableFile) -> Iterator[tuple[int, object, object, object]]:
        """The same as `csv_rows`, of the other format."""
        file = readable.metadata.path
        row = 0
        try:
            with readable.open() as stream, pq.ParquetFile(stream) as table:
                schema = table.schema_arrow
                for place in self._locate(file, schema.names, certain=True):
                    kind = schema.types[place]
                    if pa.types.is_nested(kind) or pa.types.is_fixed_size_binary(kind):
                        column = _place(file, column=schema.names[place])
                        raise InputError(f"{column}: holds {kind}, not text, numbers or times")
                for batch in table.iter_batches(columns=list(dict.fromkeys(self.columns))):
                    before = row
                    cells = {
                        name: _cells(batch[name], file, before, name, name in self.public)
                        for name in batch.schema.names
                    }
                    columns = [cells[column] for column in self.columns]
                    for row, (key, value, time) in enumerate(
                        zip(*columns, strict=True), before + 1
                    ):
                        yield row, key, value, time
        except pa.ArrowException:  # its text may show a cell
            problem = f"damaged after row {row}" if row else "not a Parquet file"
            raise InputError(f"{file}: {problem}") from None
        except OSError as error:
            raise _unreadable(file, error) from error


def _cells(array: Any, file: str, before: int, column: str, public: bool) -> list[object]:
    """The Python objects of a column, of which `before` rows were read before.

    What cannot be one stops the run where the column is public. Of a value it is nothing, which
    counts 0: that the run stopped would show it.
    """
    if pa.types.is_timestamp(array.type):
        # Python knows no nanoseconds. "+00:00", unlike "UTC", needs no time zone database.
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
            if not public:
                cells.append(None)
                continue
            raise InputError(
                f"{_place(file, row, column)}: neither UTF-8 text nor a date of the years 1 to 9999"
            ) from None
    return cells


def _shows(cell: object, text: str) -> bool:
    """Whether a cell is what the text says: Parquet's true is also true, and its 1.0 also 1."""
    if isinstance(cell, bool):
        return text.lower() == str(cell).lower()
    if isinstance(cell, int | float):
        return str(cell) == text or _number(text) == cell
    return str(cell) == text


def _number(cell: object) -> object:
    """The number that text shows; everything else as it is."""
    if not isinstance(cell, str) or len(cell) > _MAX_NUMBER or "_" in cell:
        return cell
    try:
        return int(cell)
    except ValueError:
        try:
            return float(cell)
        except ValueError:
            return cell


class _Stream(io.RawIOBase):
    """Beam's compressed files lack what io.TextIOWrapper asks of a stream."""

    def __init__(self, source: BinaryIO) -> None:
        self._source = source

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data = self._source.read(len(buffer))
        except Exception as error:  # each codec has its own
            raise OSError("the compressed data are damaged") from error
        # Beam takes a file that was cut off for a short one; its decompressor knows better.
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


def _unreadable(file: str, error: OSError) -> InputError:
    return InputError(f"{file}: cannot be read: {error.strerror or error}")


def _match(inputs: Sequence[str]) -> list[FileMetadata]:
    """The files of all patterns, each file once: an event read twice would count twice."""
    files: dict[str, FileMetadata] = {}
    for pattern in inputs:
        # Beam finds nothing for a pattern that starts with its first star.
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


class ReadFiles(beam.PTransform[PBegin, PCollection[tuple[str, Event]]]):
    """Reads (key, Event) with a `Reader`, in the order of the rows of each file.

    Raises:
      InputError: there are no inputs; when the pipeline runs, a file does not fit.
    """

    def __init__(self, inputs: str | list[str], reader: Reader) -> None:
        super().__init__()
        self._inputs = [inputs] if isinstance(inputs, str) else list(inputs)
        if not self._inputs:
            raise InputError("no input files: inputs is an empty list")
        self._reader = reader

    def expand(self, pbegin: PBegin) -> PCollection[tuple[str, Event]]:
        # No Reshuffle: it would mix up the rows of a file.
        return (
            pbegin
            | "Patterns" >> beam.Create([self._inputs])
            | "Match" >> beam.FlatMap(_match).with_output_types(FileMetadata)
            | "Open" >> ReadMatches()
            | "Parse" >> beam.FlatMap(self._reader.events).with_output_types(tuple[str, Event])
        )

    def check(self) -> None:
        """Reads the header and the first event of the first files, without a pipeline."""
        for metadata in _match(self._inputs)[:_FILES_CHECKED]:
            if not metadata.path.endswith(("/", "\\")):
                next(self._reader.events(ReadableFile(metadata)), None)


class ReadEvents(ReadFiles):
    """Reads (key, Event) from CSV and Parquet files, in the order of the rows of each file.

    A suffix .parquet or .pq means Parquet; all else is CSV in UTF-8 with a header line, packed
    (.gz, .bz2, .zst ...) or not, whose blank lines are skipped. A file that several patterns
    match is read once.

    Args:
      inputs: a path or pattern, or a list of them, on any file system Beam knows.
      key: the column of the keys; in Parquet what is no text is taken as str() shows it. An empty
        text is a key like others; a null is none, and an InputError.
      value: a column of numbers. Text that shows no number is left as it is, for a later
        transform to reject, and so are nulls. Without value and where, every event counts 1.
      where: ``COLUMN=VALUE``; an event counts 1 if the column's text is VALUE, else 0.
      timestamp: a column of timestamps, which become the elements' own.
      timestamp_format, timezone: see `times.parser`.
      delimiter: of CSV; the two characters ``\\t`` mean a tab.
      show_header: whether an error about a missing column may show the first line of a CSV file,
        which is data where there is no header.
      per_tick: True if the events are counted per tick, where keys and times are protected. Per
        element they are public, and the column of value or where may be neither.

    Raises:
      InputError: an argument makes no sense; when the pipeline runs, a file does not. Then Beam
        wraps it: run `check_inputs` first to have most of them by themselves.
    """

    def __init__(
        self,
        inputs: str | list[str],
        key: str,
        value: str | None = None,
        where: str | None = None,
        timestamp: str | None = None,
        timestamp_format: str = "unix",
        timezone: str = "UTC",
        delimiter: str = ",",
        show_header: bool = False,
        per_tick: bool = False,
    ) -> None:
        how = timestamp, timestamp_format, timezone, delimiter, show_header, per_tick
        super().__init__(inputs, Reader.of(key, value, where, *how))


def check_inputs(
    inputs: str | list[str],
    key: str,
    value: str | None = None,
    where: str | None = None,
    timestamp: str | None = None,
    timestamp_format: str = "unix",
    timezone: str = "UTC",
    delimiter: str = ",",
    show_header: bool = False,
    per_tick: bool = False,
) -> None:
    """Raises the InputError that `ReadEvents` of the same arguments would meet at the start.

    It opens the first 100 files, to their first event; errors further on are left to the pipeline.
    """
    how = timestamp, timestamp_format, timezone, delimiter, show_header, per_tick
    ReadEvents(inputs, key, value, where, *how).check()


def _output_suffix(path: str) -> str:
    suffix = os.path.splitext(path)[1].lower()
    if suffix not in (".csv", ".parquet"):
        raise InputError(f"output must end in .csv or .parquet, got {path!r}")
    if re.search(r"[*?[]", path):
        # Beam would look for what matches the name.
        raise InputError(f"output must have none of * ? [ in its name, got {path!r}")
    return suffix


def check_output(path: str) -> None:
    """Raises InputError if `WriteReleases` could not write there; remote paths pass by name."""
    _output_suffix(path)
    if "://" in path:
        return
    directory = os.path.dirname(path) or "."
    if os.path.isdir(path):
        raise InputError(f"output {path!r} is a directory; name a file in it")
    if not os.path.isdir(directory):
        raise InputError(f"output {path!r}: there is no directory {directory!r}; create it first")
    if not os.access(directory, os.W_OK | os.X_OK):
        raise InputError(f"output {path!r}: directory {directory!r} is not writable")


class WriteReleases(beam.PTransform[PCollection[Any], PCollection[str]]):
    """Writes the releases of a bounded collection to one file, by key and step.

    Columns: key, step, timestamp (microseconds since the epoch, UTC), value, stddev. An existing
    file is replaced. Gives the path once it is written.

    Args:
      output: a path that ends in .csv or .parquet.
      with_timestamps: whether to write the timestamps; without, their cells are empty.
      keys: all keys in the order in which they are written; by default, that of text.

    Raises:
      InputError: the output has another suffix, or * ? [ in its name.
      ValueError: at pipeline construction, the collection is unbounded.
    """

    def __init__(self, output: str, with_timestamps: bool, keys: Sequence[str] = ()) -> None:
        super().__init__()
        _output_suffix(output)
        self._write = WriteTable(output, _SCHEMA, ("key", "step"), keys)
        self._with_timestamps = with_timestamps

    def expand(self, pcoll: PCollection[Any]) -> PCollection[str]:
        row = beam.Map(self._row).with_output_types(tuple[Any, ...])
        return pcoll | "Row" >> row | "Write" >> self._write

    def _row(self, release: Any) -> tuple[Any, ...]:
        timestamp = int(release.timestamp) if self._with_timestamps else None
        numbers = float(release.value), float(release.stddev)
        return release.key, int(release.step), timestamp, *numbers


def read_releases(path: str) -> dict[str, list[Any]]:
    """The columns of a file that `WriteReleases` wrote; a timestamp not written is None.

    Raises:
      InputError: the file cannot be read, or has other columns.
    """
    names = _SCHEMA.names
    suffix = _output_suffix(path)
    try:
        if suffix == ".parquet":
            with FileSystems.open(path) as stream:
                return pq.read_table(stream).select(names).cast(_SCHEMA).to_pydict()
        with _open_text(ReadableFile(FileMetadata(path, 0))) as text:
            header, *rows = csv.reader(text, strict=True)
        if header != names:
            raise ValueError
        columns = zip(*rows, strict=True) if rows else [()] * len(names)
        kinds: tuple[Callable[[str], Any], ...] = (str, int, _optional_int, float, float)
        return {
            name: list(map(kind, column))
            for name, kind, column in zip(names, kinds, columns, strict=True)
        }
    except OSError as error:
        raise _unreadable(path, error) from error
    except (csv.Error, pa.ArrowException, KeyError, ValueError):
        expected = ", ".join(names)
        raise InputError(f"{path}: not a file of releases, whose columns are {expected}") from None


def _optional_int(cell: str) -> int | None:
    return int(cell) if cell else None

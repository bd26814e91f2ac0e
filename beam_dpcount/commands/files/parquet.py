"""Rows of Parquet files, in batches of columns. Messages never show a cell, see `files.formats`."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from beam_dpcount.commands.files.formats import InputError, InputFile, Source, unreadable
from beam_dpcount.commands.files.records import Rows, Unread, named, place
from beam_dpcount.commands.files.unpacking import compression_of, stored
from beam_dpcount.commands.progress import Progress

# Many writers do not mark their text as text.
_UNMARKED = {pa.binary(): pa.string(), pa.large_binary(): pa.large_string()}
_UNREADABLE = "neither UTF-8 text nor a date of the years 1 to 9999"
_MAGIC, _ARROW = b"PAR1", b"ARROW:schema"


def of_parquet(source: Source, data: InputFile, unread: Unread) -> Rows:
    before = 0
    for size, arrays in batches(source, data):
        yield from rows_of(source, [*map(plain, arrays)], size, before, unread)
        before += size


def rows_of(
    source: Source, arrays: Sequence[pa.Array], size: int, before: int, unread: Unread
) -> Rows:
    """The rows of a batch, of which so many are before, as Python objects; arrays as of `plain`."""
    columns: list[list[object]] = []
    odd: dict[int, str] = {}  # rows whose cell in a column could not be converted
    for name, array in zip(source.names, arrays, strict=True):
        cells, failed = _cells(array)
        columns.append(cells)
        if name in source.public:
            odd |= dict.fromkeys(failed, name)
    rows: Iterator[Sequence[object]] = zip(*columns, strict=True) if columns else repeat((), size)
    for at, values in enumerate(rows):
        if at in odd:
            unread(before + at + 1, odd[at], _UNREADABLE)
        else:
            yield before + at + 1, values


def check(source: Source, data: InputFile) -> None:
    """Read a file to its end; an InputError if it is damaged, or lacks a column."""
    for _ in batches(source, data):
        pass


def batches(source: Source, data: InputFile) -> Iterator[tuple[int, list[Any]]]:
    """The number of rows of each batch, and its columns, in the order of the names."""
    file = source.label(data.path)
    try:
        with _seekable(data) as stream, pq.ParquetFile(stream) as table:
            schema, size = table.schema_arrow, data.size_in_bytes
            share = size / max(1, table.metadata.num_rows)
            paths = [_path(file, schema, name) for name in source.names]
            kinds = [_kind(file, schema, path) for path in paths]
            if any(map(pa.types.is_dictionary, kinds)):
                table = pq.ParquetFile(stream, metadata=_without_dictionaries(stream))
            for batch in table.iter_batches(columns=[*dict.fromkeys(map(".".join, paths))]):
                Progress.read += round(share * len(batch))
                pairs = zip(paths, kinds, strict=True)
                yield len(batch), [_column(batch, path, kind) for path, kind in pairs]
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and (type(error) is not OSError or error.errno is not None):
            raise unreadable(file, error) from error
        # An error of Arrow, whose text may show a cell or have two lines; or one of a file system
        # without a number, which looks the same. How far it was read shows how many rows there are.
        problem = "not a Parquet file, or a damaged one"
        if isinstance(error, OSError):
            problem += ", unless its storage failed"
        raise InputError(f"{file}: {problem}") from None


def _seekable(data: InputFile) -> IO[bytes]:
    """A file of columns, which are read from any place; one that is compressed as a whole, too."""
    if not (compression_of(data.path) or "://" in data.path):
        return stored(data.path)
    from apache_beam.io.filesystems import FileSystems  # here: few files are so

    unpacked: IO[bytes] = FileSystems.open(data.path)
    return unpacked


def _path(file: str, schema: Any, name: str) -> list[str]:
    """The path of a column: its name, or names of fields within structs, separated by dots."""
    if schema.names.count(name) > 1:
        raise InputError(f"{place(file, 0, name)}: several columns have this name")
    if name in schema.names:
        return [name]
    first, *rest = path = name.split(".")
    if rest and schema.names.count(first) == 1:
        kind = schema.field(first).type
        for part in rest:
            at = kind.get_field_index(part) if pa.types.is_struct(kind) else -1
            if at < 0:
                break
            kind = kind.field(at).type
        else:
            return path
    among = f"among {len(schema.names)}: {named(name, schema.names)}"
    raise InputError(f"{place(file, 0)}: no column {name!r} {among}")


def _kind(file: str, schema: Any, path: Sequence[str]) -> Any:
    """The type of a column; an InputError where it cannot be read."""
    kind = schema.field(path[0]).type
    for part in path[1:]:
        kind = kind.field(kind.get_field_index(part)).type
    if pa.types.is_nested(kind) or pa.types.is_fixed_size_binary(kind):
        problem = f"holds {kind}, not text, numbers or times"
        if pa.types.is_struct(kind) and kind.num_fields:
            problem += f"; name a field of it, such as {'.'.join([*path, kind.field(0).name])}"
        raise InputError(f"{place(file, column='.'.join(path))}: {problem}")
    return kind


def _column(batch: Any, path: Sequence[str], kind: Any) -> Any:
    array = batch.column(path[0])
    for part in path[1:]:
        array = array.flatten()[array.type.get_field_index(part)]  # null where the struct is
    # Without Arrow's schema durations are whole numbers.
    return array.cast(kind) if pa.types.is_duration(kind) else array


def _without_dictionaries(stream: Any) -> Any:
    """A file's metadata without Arrow's own schema, so that no column is read as a dictionary.

    Arrow would check the entries of a dictionary, and one that is not text would stop the run.
    """
    stream.seek(-8, io.SEEK_END)
    size = int.from_bytes(stream.read(4), "little")
    stream.seek(-8 - size, io.SEEK_END)
    footer = stream.read(size)
    before, schema, after = footer.rpartition(_ARROW)
    if schema:
        footer = before + _ARROW.lower() + after  # a name of the same length that Arrow ignores
    end = size.to_bytes(4, "little") + _MAGIC
    return pq.read_metadata(io.BytesIO(_MAGIC + footer + end))


def plain(array: Any) -> Any:
    """An array whose cells Python can hold."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_float16(array.type):  # for which Arrow lacks functions
        return array.cast(pa.float32())
    if pa.types.is_timestamp(array.type):
        # Python has no nanoseconds. "+00:00", unlike "UTC", needs no time zone database.
        unit = "us" if array.type.unit == "ns" else array.type.unit
        zone = "+00:00" if array.type.tz else None
        return array.cast(pa.timestamp(unit, zone), safe=False)
    if pa.types.is_duration(array.type) and array.type.unit == "ns":
        return array.cast(pa.duration("us"), safe=False)
    if pa.types.is_time64(array.type) and array.type.unit == "ns":
        return array.cast(pa.time64("us"), safe=False)
    return array.view(_UNMARKED[array.type]) if array.type in _UNMARKED else array


def _cells(array: Any) -> tuple[list[object], list[int]]:
    """The Python objects of an array, and which cells cannot be converted: those are None.

    An array is halved until each such cell is alone. So a few of them cost little.
    """
    try:
        return array.to_pylist(), []
    except (ValueError, OverflowError):
        if len(array) == 1:
            return [None], [0]
    half = len(array) // 2
    cells, failed = _cells(array[:half])
    more, others = _cells(array[half:])
    return cells + more, failed + [half + at for at in others]

"""Rows of files read as whole columns, per element: all of them, in their order.

Rows that every parser reads alike are converted together; where that fails each half is tried, so
that the careful reader takes few rows beside an odd one. A row that cannot be read ends the run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from beam_dpcount.arguments.timestamps import FIRST, LAST
from beam_dpcount.commands.files import lines, parquet
from beam_dpcount.commands.files.columns import Read, joined, parsed_together, text_or_nobody
from beam_dpcount.commands.files.events import events, reader
from beam_dpcount.commands.files.formats import (
    ALL,
    InputFile,
    Source,
    number,
    text,
    unreadable,
)
from beam_dpcount.commands.files.records import Lines, header_of, picked
from beam_dpcount.errors import Error
from beam_dpcount.lanes import cells
from beam_dpcount.lanes.elements import Elements
from beam_dpcount.mechanisms.base import FloatArray, IntArray

_BLOCK = 1 << 21  # bytes of lines that are parsed at once
_FEW = 1 << 12  # bytes of lines, or rows, in which an odd one is looked for no further
_ROWS = 64
_AT_ONCE = 1 << 16  # events that are read one by one, and then counted together


class Counts(Protocol):
    """What elements count."""

    def number_of(self, content: object) -> int:
        """On the lattice."""

    def numbers_of(self, values: IntArray | FloatArray) -> IntArray:
        """The same of many numbers; NaN counts 0."""


class _UnreadableRowError(Error, RuntimeError):
    """A row cannot be read."""


def elements_of(source: Source, data: InputFile, count: Counts) -> Iterator[Elements]:
    """The rows of a file.

    Raises:
      InputError: as `events`.
    """
    kind = source.kind(data.path)
    try:
        if kind == "parquet":
            for size, arrays in parquet.batches(source, data):
                yield from _of_arrays(source, [*map(parquet.plain, arrays)], size, count)
        elif kind == "csv" and not source.multiline and source.delimiter.isascii():
            yield from _of_csv(source, data, count)
        else:
            found = events(source, data)
            while some := [event for _, event in zip(range(_AT_ONCE), found, strict=False)]:
                yield _one_by_one(some, count)
    except _UnreadableRowError:
        for _ in events(source, data):  # says which row it is, and why
            pass
        raise
    except OSError as error:
        raise unreadable(source.label(data.path), error) from error


def _of_csv(source: Source, data: InputFile, count: Counts) -> Iterator[Elements]:
    places: list[int] | None = None
    width, cells_of = 0, Lines(source.delimiter)
    for block in lines.blocks(data, has_header=True, size=_BLOCK):
        rows = block
        if b"\r" in rows:
            rows = rows.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        while places is None and rows:
            line, _, rows = rows.partition(b"\n")
            if line:
                places, width = header_of(source, data, cells_of(lines.decoded(line)))
        if places is not None and rows:
            yield from _of_lines(source, rows, places, width, count)
    if places is None:
        header_of(source, data, None)


def _of_lines(
    source: Source, rows: bytes, places: Sequence[int], width: int, count: Counts
) -> Iterator[Elements]:
    """The elements of lines of CSV."""
    if (table := parsed_together(source, rows, places, width)) is not None:
        for batch in table.to_batches():
            yield from _of_arrays(source, batch.columns, len(batch), count)
        return
    cut = rows.rfind(b"\n", 0, len(rows) // 2) + 1
    if cut and len(rows) > _FEW:
        yield from _of_lines(source, rows[:cut], places, width, count)
        yield from _of_lines(source, rows[cut:], places, width, count)
        return
    read = reader(source, "", _refuse)
    some = rows.removesuffix(b"\n").split(b"\n")
    records = map(Lines(source.delimiter), map(lines.decoded, some))
    found = (read(0, row) for _, row in picked(source, records, places, width, _refuse))
    yield _one_by_one([event for event in found if event is not None], count)


def _of_arrays(
    source: Source, arrays: Sequence[pa.Array], size: int, count: Counts
) -> Iterator[Elements]:
    """The elements of arrays of cells, in the order of the names."""
    try:
        found = _together(source, arrays, size, count)
    except (pa.ArrowException, ValueError, OverflowError, NotImplementedError):
        found = None
    if found is not None:
        yield found
    elif size > _ROWS:
        half = size // 2
        yield from _of_arrays(source, [array[:half] for array in arrays], half, count)
        yield from _of_arrays(source, [array[half:] for array in arrays], size - half, count)
    else:
        read = reader(source, "", _refuse)
        rows = parquet.rows_of(source, arrays, size, 0, _refuse)
        some = [event for _, row in rows if (event := read(0, row)) is not None]
        yield _one_by_one(some, count)


def _together(
    source: Source, arrays: Sequence[pa.Array], size: int, count: Counts
) -> Elements | None:
    """All elements; None if a row cannot be read so."""
    keyed, end = source.key is not None, int(source.key is not None) + len(source.columns)
    keys = cells.texts(arrays[0], text) if keyed else pa.repeat(ALL, size)
    if keys.null_count:
        return None
    people = cells.texts(arrays[end], text) if source.user is not None else None
    micros = np.zeros(size, dtype=np.int64)
    if source.times:
        how = cells.Times(source.parse, source.timestamp_format, source.timezone == "UTC")
        micros, known = how.micros(joined(arrays[len(arrays) - len(source.times) :]))
        # Beyond the calendar, by an offset, times are cut.
        if not known.all() or (micros <= FIRST).any() or (micros >= LAST).any():
            return None
    measure = source.measure
    if not source.columns:
        xs = np.full(size, count.number_of(measure()), dtype=np.int64)
    else:
        many = count.numbers_of if measure is number else None
        xs = cells.numbers(arrays[int(keyed)], lambda x: count.number_of(measure(x)), many)
    return Elements(keys, people, micros, xs)


def _one_by_one(some: Sequence[Read], count: Counts) -> Elements:
    """Elements that were read carefully."""
    people = pa.array([text_or_nobody(event.person) for _, event, _ in some], pa.string())
    return Elements(
        pa.array([key for key, _, _ in some], pa.string()),
        people,
        np.array([micros or 0 for *_, micros in some], dtype=np.int64),
        np.fromiter((count.number_of(event.value) for _, event, _ in some), np.int64, len(some)),
    )


def _refuse(row: int, column: str | None, problem: str) -> None:
    raise _UnreadableRowError("a row cannot be read")

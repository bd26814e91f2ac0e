"""Rows of files read as whole columns, at a clock.

Cells that every parser reads alike are converted a column at a time. All others, and lines that
are not plainly cells between delimiters, go to the careful reader of `files.events`, row by row or
cell by cell. So what counts is the same, whatever the other rows are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import compress, islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from beam_dpcount.commands.files import lines, parquet
from beam_dpcount.commands.files.events import events, reader, skipped
from beam_dpcount.commands.files.formats import Event, InputFile, Source, text
from beam_dpcount.commands.files.records import Lines, header_of, picked
from beam_dpcount.lanes import cells
from beam_dpcount.lanes.contents import Contents
from beam_dpcount.lanes.ticks import Columns
from beam_dpcount.lanes.trees import texts_of_paths

_BLOCK = 1 << 22  # bytes of lines that are parsed at once
_ROWS = 1 << 16  # events that are read one by one, and then counted together
_FEW = 64  # rows in which an odd one is looked for no further

Read = tuple[str, Event, int | None]


def columns_of(source: Source, data: InputFile, contents: Sequence[Contents]) -> Iterator[Columns]:
    """The events of a file in columns, in any order.

    Args:
      source: at a clock, with times; its measure is a FieldsOfRow.
      contents: what makes columns of what is counted of rows.

    Raises:
      InputError: as `events`.
    """
    kind = source.kind(data.path)
    if kind == "parquet":
        for size, arrays in parquet.batches(source, data):
            yield from _converted(source, [*map(parquet.plain, arrays)], size, contents)
    elif kind == "csv" and not source.multiline and source.delimiter.isascii():
        yield from _of_csv(source, data, contents)
    else:
        yield from _one_by_one(source, events(source, data), contents)


def _one_by_one(
    source: Source, found: Iterator[Read], contents: Sequence[Contents]
) -> Iterator[Columns]:
    """Events that were read carefully, in columns."""
    while some := [*islice(found, _ROWS)]:
        keys, read, micros = zip(*some, strict=True)
        counted = [each.of_payloads(read) for each in contents]
        people = None
        if source.user is not None:
            people = pa.array([text_or_nobody(event.person) for event in read], pa.string())
        named = None if source.key is None else pa.array(keys, pa.string())
        yield Columns(np.array(micros, dtype=np.int64), counted, named, people)


def text_or_nobody(person: str) -> str:
    """A person's name; nobody's if UTF-8 cannot hold it."""
    try:
        person.encode()
    except UnicodeEncodeError:
        return ""
    return person


# CSV


def _of_csv(source: Source, data: InputFile, contents: Sequence[Contents]) -> Iterator[Columns]:
    places: list[int] | None = None
    width, cells_of = 0, Lines(source.delimiter)
    for block in lines.blocks(data, has_header=True, size=_BLOCK):
        text = block
        if b"\r" in text:
            text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        while places is None and text:
            line, _, text = text.partition(b"\n")
            if line:
                places, width = header_of(source, data, cells_of(lines.decoded(line)))
        if places is None or not text:
            continue
        plain, quoted, odd = _parted(text, source.delimiter)
        for some, quote in ((plain, False), (quoted, '"')):
            table, more = _parsed(source, some, quote, places, width)
            odd += more
            for batch in [] if table is None else table.to_batches():
                yield from _converted(source, batch.columns, len(batch), contents)
        records = (cells_of(lines.decoded(line)) for line in odd)
        read = reader(source, "", skipped)
        rows = picked(source, records, places, width, skipped)
        careful = (event for _, row in rows if (event := read(0, row)) is not None)
        yield from _one_by_one(source, careful, contents)
    if places is None:
        header_of(source, data, None)


def parsed_together(
    source: Source, rows: bytes, places: Sequence[int], width: int
) -> pa.Table | None:
    """The columns of lines, in their order, if all of them are sound; else None."""
    quote: str | bool = b'"' in rows and '"'
    if not _is_text(rows) or (quote and not all(_sound(rows.split(b"\n"), source.delimiter))):
        return None
    table, other = _parsed(source, rows, quote, places, width)
    return None if other else table


def _parted(text: bytes, delimiter: str) -> tuple[bytes, bytes, list[bytes]]:
    """Lines without quotes, joined; those with cells that are quoted as a whole; and the others."""
    if b'"' not in text and _is_text(text):
        return text, b"", []
    plain, others, odd = list[bytes](), list[bytes](), list[bytes]()
    for line in text.split(b"\n"):
        (odd if not _is_text(line) else others if b'"' in line else plain).append(line)
    sound = _sound(others, delimiter)
    quoted = [*compress(others, sound)]
    odd += [line for line, is_sound in zip(others, sound, strict=True) if not is_sound]
    return b"\n".join(plain), b"\n".join(quoted), odd


def _sound(rows: Sequence[bytes], delimiter: str) -> list[bool]:
    """Which lines have cells that are quoted as a whole, or not at all."""
    between = rf"\x{ord(delimiter):02x}"
    cell = rf'(?:"(?:[^"\x00]|"")*"|[^"\x00{between}]*)'
    whole = pc.match_substring_regex(pa.array(rows, pa.binary()), f"^{cell}(?:{between}{cell})*$")
    sound: list[bool] = whole.to_numpy(zero_copy_only=False).tolist()
    return sound


def _is_text(data: bytes) -> bool:
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _parsed(
    source: Source, plain: bytes, quote: str | bool, places: Sequence[int], width: int
) -> tuple[pa.Table | None, list[bytes]]:
    """The columns of sound lines, as texts; and lines with another number of cells.

    Args:
      plain: the lines.
      quote: what quotes cells; False: nothing does.
      places, width: of the columns, and how many there are.
    """
    if not plain or (width > 1 and not plain.strip(b"\n")):
        return None, []
    other: list[bytes] = []

    def skip(row: pa_csv.InvalidRow) -> str:
        other.append(row.text.encode())
        return "skip"

    names = [str(place) for place in range(width)]
    taken = [names[place] for place in dict.fromkeys(places)]
    if plain.startswith(lines.MARK):  # Arrow leaves out the first, wherever in a file these are
        plain = lines.MARK + plain
    try:
        table = pa_csv.read_csv(
            pa.BufferReader(plain),
            pa_csv.ReadOptions(use_threads=False, block_size=len(plain) + 1, column_names=names),
            pa_csv.ParseOptions(
                delimiter=source.delimiter,
                quote_char=quote,
                double_quote=bool(quote),
                ignore_empty_lines=width > 1,
                invalid_row_handler=skip,
            ),
            pa_csv.ConvertOptions(
                check_utf8=False,
                column_types=dict.fromkeys(taken, pa.string()),
                strings_can_be_null=False,
                include_columns=taken,
            ),
        )
    except pa.ArrowException:  # whatever it did not like: the careful reader reads all lines
        end = plain.endswith(b"\n")
        return None, plain.split(b"\n")[: -1 if end else None]
    return table.select([names[place] for place in places]), other


# Columns


def _converted(
    source: Source, arrays: Sequence[pa.Array], size: int, contents: Sequence[Contents]
) -> Iterator[Columns]:
    """Arrays of cells, in the order of the names, as events.

    Where they cannot be converted together, each half is tried: few rows go one by one.
    """
    try:
        found = _together(source, arrays, size, contents)
    except (pa.ArrowException, ValueError, OverflowError, NotImplementedError):
        if size > _FEW:
            half = size // 2
            yield from _converted(source, [array[:half] for array in arrays], half, contents)
            yield from _converted(source, [array[half:] for array in arrays], size - half, contents)
            return
        read = reader(source, "", skipped)
        rows = parquet.rows_of(source, arrays, size, 0, skipped)
        careful = (event for _, row in rows if (event := read(0, row)) is not None)
        yield from _one_by_one(source, careful, contents)
        return
    yield found


def _together(
    source: Source, arrays: Sequence[pa.Array], size: int, contents: Sequence[Contents]
) -> Columns:
    named = [*zip(source.names, arrays, strict=True)]
    first, whose = len(source.keys), source.user is not None
    found = [cells.texts(array, text) for array in arrays[:first]]
    keys = texts_of_paths(found) if isinstance(source.key, tuple) else found[0] if found else None
    counted = arrays[first : first + len(source.columns)]
    people = cells.texts(arrays[first + len(counted)], text) if whose else None
    times = arrays[len(named) - len(source.times) :]
    how = cells.Times(source.parse, source.timestamp_format, source.timezone == "UTC")
    micros, known = how.micros(joined(times))
    measure: Any = source.measure
    fields, there = measure.many(counted, size)
    return Columns(
        micros, [each.of_cells(fields, there & known) for each in contents], keys, people
    )


def joined(times: Sequence[pa.Array]) -> pa.Array:
    """The column of times; of dates and times of day, their texts with a blank between."""
    if len(times) == 1:
        return times[0]
    date, time = times
    if not pa.types.is_string(date.type) or not pa.types.is_string(time.type):
        raise NotImplementedError
    empty = pc.or_(pc.equal(pc.fill_null(date, ""), ""), pc.equal(pc.fill_null(time, ""), ""))
    return pc.if_else(empty, "", pc.binary_join_element_wise(date, time, " "))

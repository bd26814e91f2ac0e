"""Columns as lines of CSV or JSON: the bytes of Python's own writers, many rows at once."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

# Its offsets have 64 bits: the lines of a slice may take more than 2 GB.
_TEXT = pa.large_string()
_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False)
_LEAST, _MOST = 1e-4, 1e10  # between them no number has an exponent
# A version of Arrow that shows one of these otherwise is not used for numbers.
_SAMPLES = (
    *(0.1, -0.3, 1 / 3, 5e-4, 0.1 + 0.2, 4.35, 2.5, -1 - 2.0**-52, 9007199254740991 / 2**21),
    *(2.0**-13, 2.0**-12 + 2.0**-64, 123456.789, math.pi * 1e9, 2e9 / 3, 1e10 - 2.0**-10),
)


_REMEMBERED = 1 << 20  # numbers of a dictionary whose texts are

# Dictionaries of numbers that came before, by where they are, and their texts.
Known = dict[tuple[int, int, int], tuple[pa.Array, pa.Array]]


def csv_lines(rows: Iterable[Iterable[object]]) -> list[str]:
    """Lines of CSV without their ends."""
    file = _Lines()
    # csv quotes the characters of its line end, and both kinds of newline need quotes.
    csv.writer(file, lineterminator="\r\n").writerows(rows)
    return [line[:-2] for line in file.lines]


class _Lines:
    """A file of lines that are written one by one."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.write = self.lines.append


def csv_rows(table: pa.Table, known: Known) -> Iterator[bytes | memoryview]:
    """The rows of a table of two columns or more, the first of them text: lines and their ends."""
    for batch in table.combine_chunks().to_batches():
        # Where a line begins costs nothing in a column whose texts are shown once each.
        first = _texts(batch.columns[0], lambda cell: f"\n{_csv_cell(cell)}", "\n")
        others = [_cells(column, _csv_cell, "", known) for column in batch.columns[1:]]
        yield _joined([first, *others], ",")[1:]
        yield b"\n"


def _csv_cell(text: str) -> str:
    """A text as it stands beside others."""
    (line,) = csv_lines([(text, "")])
    return line[:-1]


def json_rows(table: pa.Table, known: Known) -> Iterator[memoryview]:
    """A JSON object a line; a ValueError if a number is not finite."""
    names = [f"{_JSON.encode(name)}: " for name in table.column_names]
    before = ["{" + names[0], *(f", {name}" for name in names[1:])]
    for batch in table.combine_chunks().to_batches():
        for column in batch.columns:
            numbers = column.dictionary if pa.types.is_dictionary(column.type) else column
            known_finite = not pa.types.is_floating(numbers.type)
            if not known_finite and not pc.all(pc.is_finite(numbers), min_count=0).as_py():
                raise ValueError("a number is not finite")
        cells = [_cells(column, _JSON.encode, "null", known) for column in batch.columns]
        pairs = zip(before, cells, strict=True)
        yield _joined([piece for pair in pairs for piece in pair] + ["}\n"], "")


def _joined(pieces: Sequence[str | pa.Array], separator: str) -> memoryview:
    """The texts of all rows, one behind the other."""
    columns = [pa.scalar(p, _TEXT) if isinstance(p, str) else p for p in (*pieces, separator)]
    _, _, data = pc.binary_join_element_wise(*columns).buffers()
    return memoryview(data)


def _cells(column: pa.Array, shown: Callable[[str], str], null: str, known: Known) -> pa.Array:
    """Cells as texts."""
    if pa.types.is_dictionary(column.type):
        numbers = column.dictionary
        if len(numbers) > _REMEMBERED:
            return floats(column.dictionary_decode())
        place = numbers.buffers()[1].address, numbers.offset, len(numbers)
        if place not in known:  # as the numbers stay, no others have their place
            known[place] = numbers, floats(numbers)
        return known[place][1].take(column.indices)
    if pa.types.is_string(column.type):
        return _texts(column, shown, null)
    texts = column.cast(_TEXT) if pa.types.is_integer(column.type) else floats(column)
    return pc.fill_null(texts, null) if column.null_count else texts


def _texts(column: pa.Array, shown: Callable[[str], str], null: str) -> pa.Array:
    """Each distinct text is shown once."""
    encoded = column.dictionary_encode("encode")
    texts = [null if text is None else shown(text) for text in encoded.dictionary.to_pylist()]
    return pa.array(texts, _TEXT).take(encoded.indices)


def floats(column: pa.Array) -> pa.Array:
    """Numbers as `repr` has them, and nulls.

    Both it and Arrow give the fewest digits that are read as the number, and the nearest of those
    that are as few. They differ in whole numbers, and in which have an exponent.
    """
    numbers = column.to_numpy(zero_copy_only=False)
    sizes = np.abs(numbers)
    alike = (sizes >= _LEAST) & (sizes < _MOST) & _arrow_agrees()
    with np.errstate(invalid="ignore"):  # NaN
        whole = alike & (numbers == np.trunc(numbers))
    others = ~alike & np.asarray(column.is_valid())
    texts = column.cast(_TEXT)
    if whole.any():
        integers = pa.array(numbers[whole].astype(np.int64)).cast(_TEXT)
        ended = pc.binary_join_element_wise(integers, *(pa.scalar(t, _TEXT) for t in (".0", "")))
        texts = pc.replace_with_mask(texts, whole, ended)
    if others.any():
        texts = pc.replace_with_mask(
            texts, others, pa.array([*map(repr, numbers[others].tolist())], _TEXT)
        )
    return texts


@lru_cache
def _arrow_agrees() -> bool:
    texts: list[str] = pa.array(_SAMPLES).cast(_TEXT).to_pylist()
    return texts == [*map(repr, _SAMPLES)]

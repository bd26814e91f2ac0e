"""Columns of cells as texts, times and numbers: many at once where all parsers agree.

What is not plain goes to the function that reads one cell, each distinct one once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from beam_dpcount.arguments.timestamps import FIRST, LAST
from beam_dpcount.mechanisms.base import FloatArray, IntArray

BoolArray = npt.NDArray[np.bool_]

_DIGITS = 15  # of a whole number that is read at once
_NUMBER = rf"^-?[0-9]{{1,{_DIGITS}}}(\.[0-9]{{1,{_DIGITS}}})?$"
_UNITS = {"s": 10**6, "ms": 1000, "us": 1}  # in microseconds
_SCALES = {None: 10**6, "unix": 10**6, "unix-ms": 1000}
_NO_TIME = FIRST - 1


def texts(array: pa.Array | list[object], one: Callable[[object], str | None]) -> pa.Array:
    """Cells as texts, null where there is none; an ArrowInvalid if some are not UTF-8.

    Args:
      array: texts, whole numbers, which are their decimal text, or others; or cells of any kind.
      one: the text of another cell.
    """
    if isinstance(array, list):
        return pa.array(_each(array, one, None), pa.string())
    if pa.types.is_string(array.type):
        array.validate(full=True)
        return array
    if pa.types.is_integer(array.type):
        return array.cast(pa.string())
    return pa.array(_each(array, one, None), pa.string())


def _each(
    array: pa.Array | list[object], function: Callable[[object], object], of_null: object
) -> list[object]:
    """The function of each cell; of an array it is called once for equal ones."""
    if isinstance(array, list):
        return [of_null if cell is None else function(cell) for cell in array]
    found, places = _distinct(array, function, of_null)
    return [found[place] for place in places.tolist()]


def _whole_numbers(
    array: pa.Array | list[object], function: Callable[[object], int], of_null: int
) -> IntArray:
    """The same of a function that gives whole numbers."""
    if isinstance(array, list):
        return np.array(_each(array, function, of_null), dtype=np.int64)
    found, places = _distinct(array, function, of_null)
    return np.array(found, dtype=np.int64)[places]


def _distinct(
    array: pa.Array, function: Callable[[object], object], of_null: object
) -> tuple[list[object], IntArray]:
    """The function of each distinct cell, and at last of null; and which of them a cell has."""
    encoded = array.dictionary_encode()
    found = [function(cell) for cell in encoded.dictionary.to_pylist()]
    return [*found, of_null], pc.fill_null(encoded.indices, len(found)).to_numpy()


# Numbers


def numbers(
    array: pa.Array | list[object],
    one: Callable[[object], int],
    many: Callable[[IntArray | FloatArray], IntArray] | None,
) -> IntArray:
    """Whole numbers of cells.

    Args:
      array: the cells.
      one: the number of one cell.
      many: the same of numbers, which are NaN in place of nulls; None: `one` asks for more.
    """
    if isinstance(array, list):
        return _whole_numbers(array, one, one(None))
    if many is not None and pa.types.is_floating(array.type):
        return many(pc.fill_null(array, math.nan).to_numpy(zero_copy_only=False))
    if many is not None and pa.types.is_integer(array.type) and not array.null_count:
        return many(array.to_numpy(zero_copy_only=False))
    if many is None or not pa.types.is_string(array.type):
        return _whole_numbers(array, one, one(None))
    plain = _bools(pc.fill_null(pc.match_substring_regex(array, _NUMBER), False))
    if plain.all():
        return many(array.cast(pa.float64()).to_numpy())
    found = np.empty(len(array), dtype=np.int64)
    found[plain] = many(array.filter(pa.array(plain)).cast(pa.float64()).to_numpy())
    odd = array.filter(pa.array(~plain))
    found[~plain] = _whole_numbers(odd, one, one(None))
    return found


# Times


@dataclass(frozen=True)
class Times:
    """How times are read.

    Args:
      parse: reads one, as microseconds since the epoch; a ValueError or TypeError if it is none.
      format: "iso" if texts are RFC 3339 or else for `parse`; "unix" or "unix-ms" if whole numbers
        and texts of them are seconds or milliseconds; None if these are seconds, and other texts
        RFC 3339.
      in_utc: whether times without an offset are UTC; else they are for `parse`.
    """

    parse: Callable[[object], int]
    format: str | None
    in_utc: bool

    def micros(self, array: pa.Array | list[object]) -> tuple[IntArray, BoolArray]:
        """Microseconds since the epoch, and which of them could be read."""
        if isinstance(array, list):
            found = _whole_numbers(array, self._one, _NO_TIME)
            return found, found >= FIRST
        found = np.full(len(array), _NO_TIME, dtype=np.int64)
        plain = self._plain(array, found)
        odd = np.flatnonzero(~plain)
        if len(odd):
            found[odd] = _whole_numbers(array.take(pa.array(odd)), self._one, _NO_TIME)
        return found, found >= FIRST

    def _one(self, cell: object) -> int:
        """One time; another than any if it is none."""
        try:
            # Beyond the calendar, by an offset: outside every clock, wherever it is.
            return min(max(self.parse(cell), FIRST), LAST)
        except (ValueError, TypeError):
            return _NO_TIME

    def _plain(self, array: pa.Array, found: IntArray) -> BoolArray:
        """Which cells are plain; their times are put into `found`."""
        kind, scale = array.type, _SCALES.get(self.format, 0)
        if pa.types.is_timestamp(kind) and kind.unit in _UNITS and (kind.tz or self.in_utc):
            return _scaled(array.view(pa.int64()), _UNITS[kind.unit], found)
        if scale and pa.types.is_signed_integer(kind):
            return _scaled(array.cast(pa.int64()), scale, found)
        none = np.zeros(len(array), dtype=np.bool_)
        if not pa.types.is_string(kind) or not len(array):
            return none
        data, starts, lengths = _bytes_of(array)
        lengths = np.where(_bools(array.is_valid()), lengths, 0)
        times = none
        if self.format in (None, "iso"):
            times = _iso_times(data, starts, lengths, self.in_utc, found)
        if not scale:
            return times
        other = np.concatenate([[0], np.cumsum(data - 48 > 9, dtype=np.int64)])
        plain: BoolArray = other[starts + lengths] == other[starts]
        plain &= (lengths > 0) & (lengths <= _DIGITS)
        rows = np.flatnonzero(plain)
        some = found[rows]
        plain[rows] = _scaled(array.take(pa.array(rows)).cast(pa.int64()), scale, some)
        found[rows] = some
        return plain | times


def _scaled(array: pa.Array, scale: int, found: IntArray) -> BoolArray:
    """Whole numbers of units of so many microseconds; those beyond the calendar are not plain."""
    numbers = pc.fill_null(array, LAST).to_numpy()
    plain: BoolArray = (numbers >= -(-FIRST // scale)) & (numbers <= LAST // scale)
    plain &= _bools(array.is_valid())
    np.multiply(numbers, scale, out=found, where=plain)
    return plain


def _bytes_of(array: pa.Array) -> tuple[npt.NDArray[np.uint8], IntArray, IntArray]:
    """The bytes of texts, where each begins, and how long it is."""
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
    ends = ends.astype(np.int64)
    whole = np.frombuffer(data or b"", np.uint8)[ends[0] : ends[-1]]
    return whole, ends[:-1] - ends[0], np.diff(ends)


# Lengths of RFC 3339 times: with how many digits of a fraction, and how long the offset is.
_LAYOUTS = {
    19 + (digits and digits + 1) + offset: (digits, offset)
    for digits in (0, 3, 6)
    for offset in (0, 1, 6)
}
_DAYS = np.array([31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31], dtype=np.int64)


def _iso_times(
    data: npt.NDArray[np.uint8], starts: IntArray, lengths: IntArray, in_utc: bool, found: IntArray
) -> BoolArray:
    plain = np.zeros(len(starts), dtype=np.bool_)
    for length, (digits, offset) in _LAYOUTS.items():
        rows = np.flatnonzero(lengths == length)
        if not len(rows) or not (offset or in_utc):
            continue
        cells = data[starts[rows][:, None] + np.arange(length)]
        micros, fits = _rfc_3339(cells, digits, offset)
        rows = rows[fits]
        found[rows], plain[rows] = micros[fits], True
    return plain


def _rfc_3339(cells: npt.NDArray[np.uint8], digits: int, offset: int) -> tuple[IntArray, BoolArray]:
    """Times of one layout, a row each, and which of them have it."""
    fits = np.isin(cells[:, 10], [ord("T"), ord(" ")])
    for place, mark in ((4, "-"), (7, "-"), (13, ":"), (16, ":")):
        fits &= cells[:, place] == ord(mark)

    def number(begin: int, size: int) -> IntArray:
        total = np.zeros(len(cells), dtype=np.int64)
        for place in range(begin, begin + size):
            digit = cells[:, place] - np.uint8(48)  # below 48 it turns around
            np.logical_and(fits, digit <= 9, out=fits)
            total = 10 * total + digit
        return total

    year, month, day = number(0, 4), number(5, 2), number(8, 2)
    hour, minute, second = number(11, 2), number(14, 2), number(17, 2)
    fits &= (year > 0) & (month > 0) & (month <= 12) & (day > 0)
    leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    fits &= day <= _DAYS[np.clip(month, 1, 12) - 1] + (leap & (month == 2))
    fits &= (hour < 24) & (minute < 60) & (second < 60)
    micros = ((_days(year, month, day) * 24 + hour) * 60 + minute) * 60 + second
    micros *= 10**6
    if digits:
        fits &= cells[:, 19] == ord(".")
        micros += number(20, digits) * 10 ** (6 - digits)
    sign = cells[:, -offset] if offset else None
    if offset == 1:
        fits &= sign == ord("Z")
    elif sign is not None:
        at = cells.shape[1] - offset
        fits &= ((sign == ord("+")) | (sign == ord("-"))) & (cells[:, at + 3] == ord(":"))
        hours, minutes = number(at + 1, 2), number(at + 4, 2)
        fits &= (hours < 24) & (minutes < 60)
        ahead = np.where(sign == ord("+"), 1, -1)
        micros -= ahead * (hours * 60 + minutes) * 60 * 10**6
    return np.clip(micros, FIRST, LAST), fits


def _days(year: IntArray, month: IntArray, day: IntArray) -> IntArray:
    """Days since 1970 of the Gregorian calendar."""
    year = year - (month <= 2)  # years that begin in March end with the leap day
    era, month = year // 400, (month + 9) % 12
    of_era = year - era * 400
    in_year = (153 * month + 2) // 5 + day - 1
    return np.asarray(
        era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + in_year - 719_468
    )


def _bools(array: Any) -> BoolArray:
    return np.asarray(array.to_numpy(zero_copy_only=False), dtype=np.bool_)

"""Which fields of a row are read, and as what; checked against the schema before anything runs."""

from __future__ import annotations

import difflib
import math
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
from apache_beam.transforms.window import TimestampedValue
from apache_beam.typehints.schemas import named_fields_from_element_type
from apache_beam.utils.timestamp import Timestamp

from beam_dpcount.arguments import timestamps as times
from beam_dpcount.counters.total import ALL
from beam_dpcount.dofns.versions import VersionedDoFn
from beam_dpcount.reading import UNREADABLE, read, text_of

NUMBERS = (int, float, np.number)
KEYS = (str, int, np.integer)
TIMES = (str, int, float, np.number, Timestamp)
ANY = (object,)

_WORD = 1 << 63  # whole numbers beyond are no keys, as no coder of rows takes them
_NO_KEY = "it is null, or neither text that UTF-8 can hold nor a whole number of 64 bits"


@dataclass(frozen=True)
class Field:
    """A field that is read.

    Args:
      argument: of the transform, which names it.
      name: of the field.
      kinds: the types that it may have; those of other fields are refused.
      said: the same in words.
    """

    argument: str
    name: str
    kinds: tuple[type, ...]
    said: str

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise TypeError(f"{self.argument} must be the name of a field, got {self.name!r}")


def check_fields(declared: Any, wanted: Sequence[Field]) -> None:
    """Refuse input whose schema lacks a field, or has it of another type.

    Raises:
      TypeError: the input has no schema, or a field has another type.
      ValueError: a field is not there.
    """
    try:
        known = dict(named_fields_from_element_type(declared))
    except (TypeError, ValueError):
        raise TypeError(
            f"the input has no schema, its elements are {declared}: make rows before, such as "
            "beam.Map(lambda e: beam.Row(page=str(e[0]), at=int(e[1]))), or beam.Select(...)"
        ) from None
    for field in wanted:
        if field.name not in known:
            close = difflib.get_close_matches(field.name, known, 1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            raise ValueError(
                f"{field.argument}: the rows have no field {field.name!r}: {hint}they have "
                f"{', '.join(known)}"
            )
        kind = _inner(known[field.name])
        unknown = kind is object or not isinstance(kind, type)  # what it holds is seen when it runs
        if kind in (bool, np.bool_):
            allowed = field.kinds in (NUMBERS, ANY)  # true counts 1
        else:
            allowed = unknown or issubclass(kind, field.kinds)
        if not allowed:
            raise TypeError(
                f"{field.argument}: field {field.name!r} is of type {kind.__name__}, and must hold "
                f"{field.said}: convert it before"
            )


def _inner(kind: Any) -> Any:
    """The type of what is there, where it may be null."""
    parts = [part for part in typing.get_args(kind) if part is not type(None)]
    optional = typing.get_origin(kind) is typing.Union or type(None) in typing.get_args(kind)
    if optional and len(parts) == 1:
        return _inner(parts[0])
    return kind if kind is not Any else object


# What goes on from a row: plain texts and numbers, which every coder takes. What else a field holds
# would stop the pipeline, at ticks by being there, and with a message that may show it.


def cell(row: Any, name: str) -> Any:
    """What a field holds; None where it cannot be read."""
    content = read(getattr, row, name)
    return None if content is UNREADABLE else content


def text(value: Any) -> str | None:
    """A key, an item or an id as text; None for what is neither text nor a whole number."""
    as_text = text_of(value)
    if as_text is None or issubclass(type(value), str):
        return as_text
    return as_text if -_WORD <= int(as_text) < _WORD else None


def plain(value: Any) -> int | float | None:
    """A number as it is counted: true is 1; None for what is none."""
    try:
        if isinstance(value, int | np.integer | np.bool_) and -_WORD <= int(value) < _WORD:
            return int(value)
        if isinstance(value, Real | Decimal):
            return float(value)
    except OverflowError:  # of whole numbers and fractions; all else is infinite already
        return math.inf if value > 0 else -math.inf
    except (TypeError, ValueError, ArithmeticError):
        pass
    return None


def simple(value: Any) -> bool | int | float | str | None:
    """What a metric reads: a number or a text, True or False; None for anything else."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    number = plain(value)
    return text(value) if number is None else number


def person(value: Any) -> str:
    """Who it is; "" is nobody."""
    return text(value) or ""


class TimeOf:
    """Microseconds since the epoch of what a field holds; a ValueError that shows none of it."""

    def __init__(self, format: Any, timezone: Any) -> None:
        if format is not None and not isinstance(format, str):
            raise TypeError(f"timestamp_format must be text, got {format!r}: give e.g. iso or unix")
        if not isinstance(timezone, str):
            raise TypeError(f"timezone must be text, got {timezone!r}: give e.g. Europe/Paris")
        self._parse = times.parser(format, timezone)

    def __call__(self, value: Any) -> int:
        micros = self._micros(value)
        if not times.FIRST <= micros <= times.LAST:
            raise ValueError("the timestamp lies outside the years 1 to 9999")
        return micros

    def _micros(self, value: Any) -> int:
        if isinstance(value, Timestamp):
            return int(value.micros)
        if isinstance(value, bool) or not isinstance(value, int | float | np.number):
            return self._parse(value)
        if isinstance(value, int) and not -_WORD <= value < _WORD:
            return value  # no text is made of thousands of digits
        return self._parse(value.item() if isinstance(value, np.generic) else value)


class ReadRow(VersionedDoFn):
    """From a row to its key and what is counted of it, at its time.

    Args:
      key: the field of the key, or the fields of a path, which is then a tuple; None: all rows have
        the one of a total.
      payload: what is counted, as a function of the row.
      timestamp: the field of the time; None: the row has one already.
      time_of: reads it.
      drops: rows of which no key or time can be read leave no trace, as that they are there is
        protected; else they stop the pipeline, which tells no more than that they are there.
    """

    def __init__(
        self,
        key: str | tuple[str, ...] | None,
        payload: Callable[[Any], Any],
        timestamp: str | None,
        time_of: TimeOf,
        drops: bool,
    ) -> None:
        self._key, self._payload, self._timestamp = key, payload, timestamp
        self._time_of, self._drops = time_of, drops

    def read(self, row: Any) -> tuple[Any, Any, int | None]:
        """The key, what is counted, and the time in microseconds; None: the row has one already.

        Raises:
          ValueError: there is no key or no time. The message shows nothing of the row.
        """
        names = self._key if isinstance(self._key, tuple) else (self._key,)
        texts = [ALL if name is None else text(cell(row, name)) for name in names]
        for name, found in zip(names, texts, strict=True):
            if found is None:
                raise ValueError(f"key, field {name!r}: {_NO_KEY}")
        key = tuple(texts) if isinstance(self._key, tuple) else texts[0]
        payload = self._payload(row)
        if self._timestamp is None:
            return key, payload, None
        try:
            return key, payload, self._time_of(cell(row, self._timestamp))
        except ValueError as error:
            problem = str(error)
        # Outside the block: errors that led to that one show the cell.
        raise ValueError(f"timestamp, field {self._timestamp!r}: {problem}")

    def process(self, row: Any) -> Iterator[Any]:
        try:
            key, payload, micros = self.read(row)
        except MemoryError:
            raise
        except Exception:
            if self._drops:  # whatever it is
                return
            raise
        pair = key, payload
        yield pair if micros is None else TimestampedValue(pair, Timestamp(micros=micros))


class Values:
    """(value, person, id) of a row; None where there is no such field."""

    def __init__(
        self,
        value: str | None,
        user: str | None,
        element_id: str | None,
        read: Callable[[Any], Any] = plain,
    ) -> None:
        self._value, self._user, self._id, self._read = value, user, element_id, read

    def __call__(self, row: Any) -> tuple[Any, Any, Any]:
        value = 1 if self._value is None else read(self._read, cell(row, self._value))
        user = None if self._user is None else person(cell(row, self._user))
        identity = None if self._id is None else cell(row, self._id)
        return None if value is UNREADABLE else value, user, identity


class Mappings:
    """(the fields that metrics read, person) of a row."""

    def __init__(self, fields: Mapping[str, bool], user: str | None) -> None:
        """`fields` says of each whether it is read as a number alone."""
        self._fields = {name: plain if number else simple for name, number in fields.items()}
        self._user = user

    def __call__(self, row: Any) -> tuple[Mapping[str, Any], Any]:
        user = None if self._user is None else person(cell(row, self._user))
        cells = {name: read(kind, cell(row, name)) for name, kind in self._fields.items()}
        return {name: None if x is UNREADABLE else x for name, x in cells.items()}, user

"""Rate: the part of the events for which something holds."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from numbers import Real
from typing import Any, ClassVar

import numpy as np

from beam_dpcount.checks import ParameterError, check_real
from beam_dpcount.counters.lattice import plain
from beam_dpcount.reading import call, class_name, read, text_of
from beam_dpcount.statistics.metrics.base import (
    MISSING,
    Additions,
    Condition,
    Errors,
    FloatArray,
    Measured,
    Metric,
    column,
    ratio,
    within,
)

_EXAMPLE = 'give a function of the event, or e.g. where="level = ERROR" or where="ms > 500"'
_PARTS = re.compile(r"\s*([^=!<>]*[^=!<>\s])\s*(!=|<=|>=|=|<|>)\s*(.*?)\s*", re.DOTALL)
NOT_KNOWN = "where is neither True nor False"


@dataclass(frozen=True)
class Comparison:
    """Whether an event's field compares so with a public value. Called with an event; `parse` it.

    "=" and "!=" compare numbers if both are numbers, else texts: whole numbers as their decimal
    text, and True and False as true and false. The others compare numbers.

    Args:
      field: its name.
      sign: one of =, !=, <, <=, >, >=.
      value: the public value, as text.
    """

    field: str
    sign: str
    value: str

    @staticmethod
    def parse(text: str) -> Comparison:
        """From e.g. "level = ERROR"; a ParameterError that says what to write."""
        parts = _PARTS.fullmatch(text)
        if parts is None:
            raise ParameterError(
                "where", f"must be a field, a sign and a value, got {text!r}", _EXAMPLE
            )
        made = Comparison(parts[1], parts[2], _unquoted(parts[3]))
        if made.sign == "=" and made.value.startswith("="):
            raise ParameterError("where", f"takes one =, got {text!r}", _EXAMPLE)
        if made.sign not in ("=", "!=") and made.number is None:
            problem = f"compares with a number, got {made.value!r} in {text!r}"
            raise ParameterError("where", problem, "give a number, or compare by = or !=")
        return made

    @cached_property
    def number(self) -> int | float | None:
        """The value as a number; None if it is not one."""
        for kind in (int, float):
            try:
                number = kind(self.value)
            except ValueError:
                continue
            return number if number == number else None
        return None

    def __call__(self, event: Any) -> bool | None:
        """Whether it holds; None if the field is missing, or cannot be compared."""
        try:
            content = plain(event[self.field])
        except LookupError:
            return None
        number = self.number
        if number is not None and isinstance(content, Real | np.bool_ | Decimal):
            return None if content != content else self._holds(content, number)
        if self.sign not in ("=", "!="):
            return None
        if isinstance(content, bool | np.bool_):
            return self._holds("true" if content else "false", self.value.lower())
        text = text_of(content)
        return None if text is None else self._holds(text, self.value)

    def _holds(self, content: Any, value: Any) -> bool:
        match self.sign:
            case "=":
                return bool(content == value)
            case "!=":
                return bool(content != value)
            case "<":
                return bool(content < value)
            case "<=":
                return bool(content <= value)
            case ">":
                return bool(content > value)
        return bool(content >= value)

    def event(self, holds: bool) -> dict[str, object]:
        """A made-up event for which it holds, or does not."""
        number = self.number
        near = () if number is None else (number, number + 1, number - 1)
        tried = ({self.field: value} for value in (self.value, f"{self.value} ", *near))
        return next((event for event in tried if self(event) is holds), {})

    def __str__(self) -> str:
        return f"{self.field} {self.sign} {self.value}"


def _unquoted(text: str) -> str:
    is_quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "'\""
    return text[1:-1] if is_quoted else text


@dataclass(frozen=True, repr=False)
class Rate(Metric):
    """The part of the events for which something holds. Its column: `rate`.

    Events for which it holds and those for which it does not are counted apart, in two sums of
    which an event changes one. The rate is the first over both, with Fieller's interval. Events
    that are neither (see `where`) are left out.

    Args:
      where: a function of the event that returns True or False, or 1 or 0. An event for which it
        returns None or anything else, or raises an error, adds nothing. Or a text that compares a
        field with a value: "level = ERROR", "ms > 500", with one of =, !=, <, <=, >, >=. An event
        whose field is missing, or is None, adds nothing.
      floor: no rate is given unless the private number of events is at least this, which is public.
        In any case it must be 1/2 or more, and more than its noise reaches at the level of the
        interval.
    """

    where: Callable[[Any], Any] | str
    floor: float = 0

    example: ClassVar[str] = "level = ERROR"

    def __post_init__(self) -> None:
        super().__post_init__()
        given: Any = self.where
        if isinstance(given, str):
            object.__setattr__(self, "where", Comparison.parse(str.__str__(given)))
        elif not callable(given) or isinstance(given, type):
            raise TypeError(f"where must be a function or a text, got {given!r}: {_EXAMPLE}")
        if not 0 <= check_real("floor", self.floor, "give e.g. floor=100") < math.inf:
            problem = f"must be a number of events from 0, got {self.floor!r}"
            raise ParameterError("floor", problem, "give e.g. {floor=}100")

    def __repr__(self) -> str:
        # The same in every process: an address would change replayable noise.
        where: Any = self.where
        if isinstance(where, Comparison):
            shown = repr(str(where))
        else:
            shown = getattr(where, "__qualname__", None) or class_name(type(where))
        return (
            f"Rate(where={shown}, floor={self.floor!r}, weight={self.weight!r}, name={self.name!r})"
        )

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.name or "rate",)

    @property
    def fields(self) -> tuple[str, ...]:
        return (self.where.field,) if isinstance(self.where, Comparison) else ()

    @property
    def numbers(self) -> tuple[str, ...]:
        where = self.where
        is_text = isinstance(where, Comparison) and where.sign in ("=", "!=")
        return () if is_text else self.fields

    @property
    def extent(self) -> float | None:
        return 1.0

    def conditions(self) -> dict[str, Condition]:
        where = self.where
        return {str(where): where} if isinstance(where, Comparison) else {}

    def invented(self, number: int) -> dict[str, object]:
        where = self.where
        return where.event(number % 2 == 0) if isinstance(where, Comparison) else {}

    @property
    def width(self) -> int:
        return 2

    @property
    def touched(self) -> int:
        return 1

    @property
    def limits(self) -> tuple[int, ...]:
        return (1, 1)

    @property
    def spans(self) -> tuple[int, ...]:
        return (1, 1)

    def _place(self, event: object) -> int | None:
        """Which of the two sums counts an event; None if neither does."""
        where: Any = self.where
        holds = where(event)
        if isinstance(holds, bool | int | float | np.bool_ | np.number) and holds in (0, 1):
            return 0 if holds else 1
        return None

    def additions(self, event: object) -> Additions:
        place = read(self._place, event)
        return ((place, 1),) if type(place) is int else ()

    def problem(self, event: Any) -> str | None:
        if self.fields and event.get(self.fields[0]) is None:
            return f"{self.columns[0]}: {MISSING}"
        place = call("where", self._place, event)
        return f"{self.columns[0]}: {NOT_KNOWN}" if place is None else None

    def measure(self, sums: FloatArray, errors: Errors, level: float) -> Measured:
        holds, n = sums[:, 0], sums.sum(axis=1)
        of_holds, of_n = errors.stddevs[:, 0], np.hypot(*errors.stddevs.T)
        found = ratio(holds, n, of_holds, of_n, errors.multiples(level), np.square(of_holds))
        value, low, high = (
            column(np.where(n >= self.floor, each, np.nan)) for each in within(*found, (0, 1))
        )
        return Measured(value, np.full_like(value, np.nan), low, high)

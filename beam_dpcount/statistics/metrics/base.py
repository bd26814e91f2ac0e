"""The contract of a metric: what an event adds to few sums, and what noisy sums say.

A metric is a vector of whole numbers for each event, and a function of the vector's noisy sums,
which is post-processing. Nothing here knows of budgets, clocks or Beam.
"""

from __future__ import annotations

import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from beam_dpcount.checks import ParameterError, check_real
from beam_dpcount.counters.change import Change, check_unit
from beam_dpcount.counters.lattice import Lattice, plain
from beam_dpcount.errors import NotANumberError

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Additions = tuple[tuple[int, int], ...]  # (coordinate from 0, amount)
Condition = Callable[[Mapping[str, object]], bool | None]

_PARTS = 4  # digits of the default lattice
_GOLDEN = (math.sqrt(5) - 1) / 2  # spreads made-up numbers evenly
MISSING = "the event has no such field"


class Errors(NamedTuple):
    """What is known of the noise of n vectors of sums.

    Fields:
      stddevs: of each sum, shape (n, width), in the sums' units.
      multiples: a function of a level that gives, shape (n,), how many standard deviations noise
        stays within with that probability: of a sum, and of any linear combination of sums.
      of_one: the same of a single sum, whose law may be known better; None: it is not.
    """

    stddevs: FloatArray
    multiples: Callable[[float], FloatArray]
    of_one: Callable[[float], FloatArray] | None = None


class Measured(NamedTuple):
    """What n vectors of noisy sums say, shape (n, columns); NaN is nothing.

    Fields:
      values: the estimates.
      stddevs: of their noise, where it is public.
      lows, highs: confidence intervals.
    """

    values: FloatArray
    stddevs: FloatArray
    lows: FloatArray
    highs: FloatArray


def _anything(*given: object) -> tuple[object, ...]:
    """Arguments as they are before they were checked."""
    return given


@dataclass(frozen=True)
class Metric(ABC):
    """One of the things that `TickCount` counts of each key. Frozen and picklable.

    Args:
      weight: how much of the budget it gets beside the others: its share of rho (or of the square
        of Delta_2) is weight^2 over the sum of all weight^2; of epsilon, where noise is Laplace,
        about weight over the sum of weights. Default 1. Twice the weight is half the noise, beside
        the others'.
      name: of its column, or columns, in releases. Default: made of the field and the metric.

    Attributes:
      width: of how many sums it is made.
      touched: to how many of them one event adds, at most.
      limits: the most that one event adds to each sum, in absolute value, shape (width,).
      spans: the most by which what two events that both add something add to a sum differs, shape
        (width,).
      once: whether it is people that it counts, each once a key.
      signed: whether an event may add to a sum, or take from it.
      columns: the names of what it releases.
      fields: the names of the fields that it reads. An event is anything if no metric reads any,
        else it must be a mapping.
      numbers: those of them that hold numbers.
      extent: by what its error is measured, such as the range of what it estimates; None: by its
        value.
      example: its arguments in a text, for help and messages: "latency, 0, 5" of Mean.
    """

    _: KW_ONLY
    weight: float = 1
    name: str | None = None

    once: ClassVar[bool] = False
    example: ClassVar[str] = ""

    def __post_init__(self) -> None:
        kind, weight, name = type(self).__name__, *_anything(self.weight, self.name)
        remedy = "give e.g. {weight=}2 for half the noise"
        number = check_real(f"weight of {kind}", weight, remedy.replace("{weight=}", "weight="))
        if not 0 < number < math.inf:
            problem = f"must be positive and finite, got {weight!r}"
            raise ParameterError("weight", problem, remedy)
        if name is not None and (not isinstance(name, str) or not name):
            raise TypeError(f"name of {kind} must be a text, got {name!r}")

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "_"}

    @property
    @abstractmethod
    def width(self) -> int: ...

    @property
    def touched(self) -> int:
        return self.width

    @property
    @abstractmethod
    def limits(self) -> tuple[int, ...]: ...

    @property
    @abstractmethod
    def spans(self) -> tuple[int, ...]: ...

    @property
    def signed(self) -> bool:
        return any(span > limit for span, limit in zip(self.spans, self.limits, strict=True))

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]: ...

    @property
    def fields(self) -> tuple[str, ...]:
        return ()

    @property
    def numbers(self) -> tuple[str, ...]:
        return ()

    @property
    def extent(self) -> float | None:
        return None

    def conditions(self) -> Mapping[str, Condition]:
        """Which events it names by public texts: a misspelt text holds for none of them."""
        return {}

    def invented(self, number: int) -> dict[str, object]:
        """The fields of one of many made-up events, for errors before there is data."""
        return {}

    @abstractmethod
    def additions(self, event: Mapping[str, object]) -> Additions:
        """What an event adds; nothing where its field is missing or is no number."""

    def problem(self, event: Mapping[str, object]) -> str | None:
        """Why an event does not count as it is, in words that do not show it."""
        return None

    def planned(self, pure: bool) -> Metric:
        """The metric with all that is chosen by error chosen; `pure`: where noise is Laplace."""
        return self

    @abstractmethod
    def measure(self, sums: FloatArray, errors: Errors, level: float) -> Measured:
        """What noisy sums, shape (n, width), say, with intervals of this level."""

    def describe(self) -> str:
        """The public parameters in a few words."""
        return repr(self)


class OfOnes(Metric):
    """A metric that is one sum itself, to which an event adds 1 or nothing."""

    @property
    def width(self) -> int:
        return 1

    @property
    def limits(self) -> tuple[int, ...]:
        return (1,)

    @property
    def spans(self) -> tuple[int, ...]:
        return (0,)

    def measure(self, sums: FloatArray, errors: Errors, level: float) -> Measured:
        return of_sum(sums, errors, level)


@dataclass(frozen=True)
class OfField(Metric):
    """A metric of the numbers in one field of the events.

    Args:
      field: its name.
      low, high: numbers are clipped to them.
    """

    field: str
    low: float
    high: float

    _prefix: ClassVar[str] = ""
    _needs_field: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        kind, given = type(self).__name__, _anything(self.field)[0]
        if not isinstance(given, str) and (given is not None or self._needs_field):
            raise TypeError(
                f"{kind} needs the name of a field, got {self.field!r}: give e.g. "
                f'{kind}("latency", 0, 5)'
            )
        checked = Change(self.low, self.high)  # raises what is wrong with the bounds
        for name in ("low", "high"):
            object.__setattr__(self, name, getattr(checked, name))

    @property
    def columns(self) -> tuple[str, ...]:
        if _anything(self.field)[0] is None:
            return (self.name or self._prefix,)
        return (self.name or f"{self._prefix}_{self.field}",)

    @property
    def fields(self) -> tuple[str, ...]:
        return () if _anything(self.field)[0] is None else (self.field,)

    @property
    def numbers(self) -> tuple[str, ...]:
        return self.fields

    @property
    def extent(self) -> float | None:
        return self.high - self.low

    def invented(self, number: int) -> dict[str, object]:
        share = (number * _GOLDEN) % 1
        return dict.fromkeys(self.fields, self.low + share * (self.high - self.low))

    @cached_property
    def lattice(self) -> Lattice:
        """On which numbers are counted."""
        raise NotImplementedError

    def code(self, event: Mapping[str, object]) -> int | None:
        """The event's number as a whole one; None where there is none."""
        try:
            return self.lattice.one(self._content(event))
        except (LookupError, NotANumberError):
            return None

    def codes(self, values: npt.NDArray[Any]) -> IntArray:
        """`code` of many numbers, none of them NaN."""
        return self.lattice.all(values, None)

    @property
    def range(self) -> tuple[int, int]:
        """The least and the largest code."""
        return self.lattice.bounds

    @abstractmethod
    def of_code(self, code: Any) -> Additions:
        """What an event of this code adds; of an array of codes, arrays of coordinates or amounts.

        Codes are up to 2^31 in size: their squares fit 64 bits.
        """

    def additions(self, event: Mapping[str, object]) -> Additions:
        code = self.code(event)
        return () if code is None else self.of_code(code)

    def _content(self, event: Any) -> Any:
        """What may be the event's number."""
        return event[self.field] if self.fields else event

    def problem(self, event: Mapping[str, object]) -> str | None:
        try:
            value = self._content(event)
        except LookupError:
            return f"{self.columns[0]}: {MISSING}"
        if self.code(event) is None:
            return f"{self.columns[0]}: the value is not a number"
        if not self.low <= plain(value) <= self.high:
            bounds = f"({self.low:g}, {self.high:g})"
            return f"{self.columns[0]}: the value lies outside the bounds {bounds} and is clipped"
        return None


@dataclass(frozen=True)
class OnLattice(OfField):
    """A metric of the numbers in one field, rounded to a lattice.

    Args:
      unit: numbers are rounded to multiples of it, after they were clipped. Default: the power of
        ten that divides the bounds into 10^4 to 10^5 parts.
    """

    unit: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        change = Change(self.low, self.high)
        if self.unit is not None:
            object.__setattr__(self, "unit", check_unit(self.unit, change))
        check_unit(self.step, change)

    @cached_property
    def step(self) -> float:
        """The step of the lattice."""
        if self.unit is not None:
            return self.unit
        return float(10.0 ** (math.floor(math.log10(self._extent)) - _PARTS))

    @property
    def _extent(self) -> float:
        """What the default lattice divides into parts."""
        return self.high - self.low

    @cached_property
    def lattice(self) -> Lattice:
        return Lattice(self.low, self.high, self.step)


def column(values: object) -> FloatArray:
    """Numbers, shape (n,), as a column, shape (n, 1)."""
    return np.asarray(values, dtype=np.float64)[:, None]


def of_sum(sums: FloatArray, errors: Errors, level: float, unit: float = 1) -> Measured:
    """What sums themselves say, shape (n, width), in multiples of a unit."""
    values, stddevs = sums * unit, errors.stddevs * unit
    half = stddevs * column((errors.of_one or errors.multiples)(level))
    return Measured(values, stddevs, values - half, values + half)


def ratio(
    above: FloatArray,
    below: FloatArray,
    stddev_above: FloatArray,
    stddev_below: FloatArray,
    multiple: FloatArray,
    covariance: FloatArray | float = 0.0,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """A ratio of two noisy numbers, and Fieller's interval for it; NaN where it has no bounds.

    With `covariance` that of their noise, the interval has all r with |above - r below| <= multiple
    * sqrt(stddev_above^2 - 2 r covariance + r^2 stddev_below^2): exact at the level of the multiple
    for normal noise. It is bounded only where `below`, a count, is that many of its standard
    deviations above 0; elsewhere it says nothing, and so does the ratio. Nor where `below` is less
    than 1/2, so that it is rather 0.

    Source: E. C. Fieller, Some problems in interval estimation, JRSS B 16 (1954).
    """
    square = np.square(multiple)
    a = np.square(below) - square * np.square(stddev_below)
    known = (a > 0) & (below >= 0.5)
    a = np.where(known, a, 1.0)
    product = above * below - square * covariance
    c = np.square(above) - square * np.square(stddev_above)
    root = np.sqrt(np.maximum(np.square(product) - a * c, 0.0))
    value = above / np.where(known, below, 1.0)
    found = value, (product - root) / a, (product + root) / a
    low, middle, high = (np.where(known, each, np.nan) for each in (found[1], found[0], found[2]))
    return middle, low, high


def within(
    value: FloatArray, low: FloatArray, high: FloatArray, bounds: tuple[float, float]
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """An estimate and its interval, cut to where the truth must lie.

    An interval that lies outside says nothing: the noise was larger than its level allows for.
    """
    first, last = bounds
    outside = (low > last) | (high < first)
    cut = (np.clip(each, first, last) for each in (value, low, high))
    value, low, high = (np.where(outside, np.nan, each) for each in cut)
    return value, low, high


def check_number(name: str, value: Any, least: int) -> int:
    """A whole number from `least`, or an error that says so."""
    try:
        found = operator.index(value)
    except TypeError:
        found = least - 1
    if isinstance(value, bool) or found < least:
        raise ParameterError(name, f"must be a whole number from {least}, got {value!r}")
    return found

"""How text becomes the value of an argument: one rule for command lines and YAML."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from fractions import Fraction
from numbers import Real
from typing import Any

from beam_dpcount import mechanisms
from beam_dpcount.arguments.meant import did_you_mean
from beam_dpcount.checks import ParameterError
from beam_dpcount.times import duration, is_number

_GROUPING = re.compile(r"(?<=\d)_(?=\d)")


@dataclass(frozen=True, eq=False)  # kinds that read alike differ in what columns hold
class Kind:
    """What the values of an argument are.

    Args:
      hint: their type, in signatures; text is converted.
      must: what they must be, after "must".
      read: the value of what was given, text or not. A ValueError of it means that `must` does not
        hold; a ParameterError says what is wrong by itself, and its name is ignored.
      remedy: what to do instead. {} is the argument, followed by its example.
    """

    hint: Any
    must: str
    read: Callable[[Any], Any]
    remedy: str = "give e.g. {}"


def plain(text: str) -> str:
    """Text without blanks around it, and without underscores between digits."""
    return _GROUPING.sub("", text.strip())


def number(given: object) -> Any:
    """A number as it is, or text that is one: 1e-6, 20_000, 0.5. Whole ones become int."""
    if isinstance(given, str):
        text = plain(given)
        if not is_number(text):
            raise ValueError
        exact = Fraction(text)
        return int(exact) if exact.denominator == 1 else float(text)
    if isinstance(given, bool) or not isinstance(given, Real):  # YAML makes true of yes and on
        raise ValueError
    return given


def _whole(given: object) -> Any:
    value = number(given)
    if isinstance(given, str) and not isinstance(value, int):
        raise ValueError
    return value


def _positive(given: object) -> Any:
    value = number(given)
    if isinstance(given, str):
        value = float(value)
    if not (0 < value < math.inf):
        raise ValueError
    return value


def _share(given: object) -> Any:
    value = _positive(given)
    if not value < 1:
        raise ValueError
    return value


def _part(given: object) -> Any:
    """A share, also in percent: 5% is 0.05."""
    if isinstance(given, str) and plain(given).endswith("%"):
        return _share(number(plain(given)[:-1]) / 100)
    return _share(given)


def _duration(given: object) -> Any:
    return duration(plain(given)) if isinstance(given, str) else given


class Length(Fraction):
    """Seconds that remember how they were written: with a time zone 1d is a day of its calendar,
    and 24h are hours."""

    text: str = ""

    def __repr__(self) -> str:
        return f"Fraction({self.numerator}, {self.denominator})"


def _length(given: object) -> Any:
    if not isinstance(given, str):
        return given
    length = Length(duration(plain(given)))
    length.text = plain(given)
    return length


def _moment(given: object) -> Any:
    """As it is, because text may need a time zone: `groups.moment` reads it."""
    if isinstance(given, date) and not isinstance(given, datetime):
        problem = f"is a day without a time, {given}"
        raise ParameterError("", problem, f'give a text such as "{given}T00:00:00Z", in quotes')
    return given


def _text(given: object) -> Any:
    if not isinstance(given, str):
        raise ValueError
    return given


def _size(given: object) -> int:
    """Bytes, of which K, M and G are powers of 1024."""
    found = re.fullmatch(r"([1-9][0-9]{0,9})([KMG]?)B?", str(given), re.ASCII | re.IGNORECASE)
    if found is None:
        raise ValueError
    return int(found[1]) << 10 * "KMG".find(found[2].upper()) + 10 * bool(found[2])


def _alarm(given: object) -> tuple[Any, ...]:
    """A level, and the most false alarms expected in so many days: 100, 100,1 or 100,1,30."""
    texts = given.split(",") if isinstance(given, str) else given
    level, *more = map(number, texts if isinstance(texts, list | tuple) else [texts])
    if len(more) > 2 or not all(map(math.isfinite, (level, *more))):
        raise ValueError
    return (level, *map(_positive, more))


def _only_text(given: object) -> Any:
    if not isinstance(given, str):  # of another type, which alone is shown
        raise ParameterError("", f"must be text, got {type(given).__name__}")
    return given


def _name(given: object) -> Any:
    """A public name; a whole number is its digits."""
    if isinstance(given, int) and not isinstance(given, bool):
        return str(given)
    return _text(given)


def _texts(given: object) -> list[str]:
    """Public names; whole numbers are their digits."""
    if isinstance(given, str | Mapping) or not isinstance(given, Sequence):
        raise ValueError
    for each in given:
        if isinstance(each, bool) or not isinstance(each, str | int):
            remedy = (
                "put it in quotes (without them YAML reads yes, no, on, off as truth values, and "
                "1.0 as a number)"
            )
            raise ParameterError("", f"must be a list of texts, but it holds {each!r}", remedy)
    return [str(each) for each in given]


def _columns(given: object) -> Any:
    if isinstance(given, str):
        return given
    if not isinstance(given, Sequence) or not 1 <= len(given) <= 2:
        raise ValueError
    return given[0] if len(given) == 1 else tuple(given)


def _path(given: object) -> Any:
    if isinstance(given, str):
        return given
    if not isinstance(given, Sequence) or not given or not all(isinstance(x, str) for x in given):
        raise ValueError
    return given[0] if len(given) == 1 else tuple(given)


def _switch(given: object) -> bool:
    if not isinstance(given, bool):
        raise ValueError
    return given


def _bounds(given: object) -> tuple[Any, Any]:
    if isinstance(given, str) or not isinstance(given, Sequence) or len(given) != 2:
        raise ValueError
    low, high = (_finite(each) for each in given)
    if not low < high:
        raise ValueError
    return low, high


def _finite(given: object) -> Any:
    value = number(given)
    if isinstance(given, str):
        value = float(value)
    if not math.isfinite(value):
        raise ValueError
    return value


def _mechanism(given: object) -> Any:
    """The name of a mechanism, given in any case."""
    names = {kind.__name__.lower(): kind.__name__ for kind in mechanisms.ALL}
    if not isinstance(given, str):
        raise ValueError
    if given.lower() in names:
        return names[given.lower()]
    known = f"{did_you_mean(given, names.values())}choose one of {', '.join(names.values())}"
    raise ParameterError("", f"unknown mechanism {given!r}", known, whole=True)


def _list(given: object) -> list[Any]:
    if isinstance(given, str | Mapping) or not isinstance(given, Sequence):
        raise ValueError
    return list(given)


def several(kind: Kind) -> Kind:
    """A list of values, each of a kind."""

    def read(given: object) -> list[Any]:
        return [kind.read(each) for each in _list(given)]

    return Kind(list[Any], kind.must, read, kind.remedy)


TEXT = Kind(str, "be text", _only_text)
NAME = Kind(str, "be text", _name)
TEXTS = Kind(list[str], "be a list of texts", _texts)
PATH, PATHS = replace(TEXT), replace(TEXTS)  # names of files, which a plan takes from its folder
LIST = Kind(list[Any], "be a list", _list)
LEAVES = replace(several(TEXTS), must="be a list of lists of texts")
SWITCH = Kind(bool, "be true or false", _switch)
WHOLE = Kind(int | str, "be a whole number", _whole)
NUMBER = Kind(float | str, "be a finite number", _finite)
POSITIVE = Kind(float | str, "be a positive, finite number", _positive)
PART = Kind(float | str, "be a share, such as 5% or 0.05", _part)
SHARE = Kind(float | str, "be positive and below 1", _share)
BOUNDS = Kind(
    list[Any],
    "be finite numbers, low < high",
    _bounds,
    "give the range that values are clipped to, e.g. {}",
)
DURATION = Kind(
    float | str,
    "be a positive time of whole microseconds",
    _duration,
    "give seconds, or a unit (s, m, h, d, w), e.g. {}",
)
TICK = replace(DURATION, read=_length)
ALARM = Kind(
    float | str,
    "be LEVEL, LEVEL,FALSE_ALARMS or LEVEL,FALSE_ALARMS,DAYS, numbers",
    _alarm,
    "give e.g. {}",
)
SIZE = Kind(int | str, "be a number of bytes", _size, "give e.g. {}")
MOMENT = Kind(float | str, "be a time", _moment)
MECHANISM = Kind(str, "be the name of a mechanism", _mechanism)
CONDITION = Kind(str, "be a condition", _text)
WHOLES, DURATIONS = several(WHOLE), several(DURATION)
AMOUNTS = replace(several(NUMBER), must="be finite numbers", remedy="give one for each level")
# Names of columns, by what the columns hold.
KEYS = Kind(str, "be the name of a column", _text)
LEVELS = Kind(Any, "be one column, or a list with a column a level", _path)
NUMBERS = Kind(str, "be the name of a column", _text)
TIMES = Kind(str, "be one column, or two, DATE TIME", _columns)
IDS = Kind(str, "be the name of a column", _text)
COLUMNS = (KEYS, LEVELS, NUMBERS, TIMES, IDS)

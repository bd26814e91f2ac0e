"""Reads events with the user's code, whose errors are data, and by the names of fields."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MemberDescriptorType
from typing import Any, Final

import numpy as np

from beam_dpcount.errors import Error

Function = Callable[[Any], Any]  # of the user, of an event

_LONGEST = 1 << 10  # bits of an id: Python writes no whole number of more than 4300 digits

# Read what every class has, past what its own class may say instead.
_bases_of: Callable[[type], tuple[type, ...]] = type.__dict__["__mro__"].__get__
_namespace_of: Callable[[type], Mapping[str, Any]] = type.__dict__["__dict__"].__get__
_name_of: Callable[[type], str] = type.__dict__["__name__"].__get__


class _Unreadable:
    """The class of UNREADABLE."""


# Stands for the result of a function that raised an error.
UNREADABLE: Final[Any] = _Unreadable()


def read(function: Callable[..., Any], *given: Any) -> Any:
    """A function's result for an event; UNREADABLE if it raises an error.

    The function is the user's, or it reads a value whose class may have code of its own. Either way
    its errors depend on the event, and to stop would show that the event exists. Use it for nothing
    else: a mistake of ours must stop the job, and not pass for data.

    This holds for functions of the event alone. An error that other events cause, such as one of a
    look-up that fails for everybody, would let one person decide whose events count. Hence
    MemoryError stops the job, and so does anything that is not an `Exception`: KeyboardInterrupt,
    SystemExit, GeneratorExit.
    """
    try:
        return function(*given)
    except MemoryError:
        raise
    except Exception:
        return UNREADABLE


class FunctionError(Error, ValueError):
    """A function of the user raised an error, on rows that are public; the error is the cause.

    Fields:
      name: the function's parameter.
      payload: what it was given.
      error: what it raised.
    """

    def __init__(self, name: str, payload: object, error: Exception) -> None:
        super().__init__(name, payload, error)  # so that it can be pickled
        self.name, self.payload, self.error = name, payload, error

    def __str__(self) -> str:
        return f"{self.name} raised {type(self.error).__name__}: {self.error}"


def call(name: str, function: Function, payload: Any) -> Any:
    """A function's result for a public event; a FunctionError if it raises an error."""
    try:
        return function(payload)
    except Exception as error:
        raise FunctionError(name, payload, error) from error


def class_attribute(kind: type, name: str) -> Any:
    """What a class, or one that it inherits from, holds under a name; None if none does.

    No code of the class's own class is run, as `getattr` and `hasattr` would.
    """
    for each in _bases_of(kind):
        namespace = _namespace_of(each)
        if name in namespace:
            return namespace[name]
    return None


def class_name(kind: type) -> str:
    """The name of a class. No code of its own class is run."""
    return str.__str__(_name_of(kind))


def text_of(value: Any) -> str | None:
    """An id as text: texts as they are, whole numbers as their decimal text; None for all else.

    No code of the value's class is run. A text that UTF-8 cannot encode (lone surrogates) gives
    None, too: it would stop a runner, with a message that shows it.
    """
    kind = type(value)  # isinstance would ask the value for its class
    if issubclass(kind, str):
        text = str.__str__(value)  # a subclass may print as another
        try:
            text.encode()
        except UnicodeEncodeError:
            return None
        return text
    if issubclass(kind, np.timedelta64):  # an integer to NumPy
        return None
    if issubclass(kind, np.integer):
        return int.__repr__(np.integer.__int__(value))
    if not issubclass(kind, int) or kind is bool or int.bit_length(value) > _LONGEST:
        return None
    return int.__repr__(value)


@dataclass(frozen=True)
class Field:
    """Reads the field of this name from an event; None if it has none.

    The field is an item of a mapping, a field of a beam.Row, NamedTuple or dataclass, or an
    attribute that another object holds itself. Properties and methods are not fields, and a
    defaultdict gets no new key.
    """

    name: str

    def __call__(self, event: Any) -> Any:
        kind, name = type(event), self.name
        if issubclass(kind, dict):
            return dict.get(event, name)
        if issubclass(kind, tuple):
            names = class_attribute(kind, "_fields") or ()
            return tuple.__getitem__(event, names.index(name)) if name in names else None
        if _is_beam_row(kind):
            return vars(event).get(name)
        if name in (class_attribute(kind, "__dataclass_fields__") or ()):
            return getattr(event, name)
        return event.get(name) if isinstance(event, Mapping) else _held(event, name)


@dataclass(frozen=True)
class PathFields:
    """Reads the fields of these names from an event, as the path of a leaf; None where it has none.

    Args:
      names: from the top on.
    """

    names: tuple[str, ...]

    def __call__(self, event: Any) -> tuple[Any, ...]:
        return tuple(Field(name)(event) for name in self.names)


def _held(event: Any, name: str) -> Any:
    """What an object holds under a name, in its dictionary or a slot; None if nothing.

    No code of its class is run.
    """
    slot = class_attribute(type(event), name)
    if type(slot) is MemberDescriptorType:
        return slot.__get__(event)
    try:
        held = object.__getattribute__(event, "__dict__")
    except AttributeError:
        return None
    return dict.get(held, name)


def field_of(event: Any, name: str) -> Any:
    """The field of this name; None if the event has none."""
    return Field(name)(event)


class Fields(Mapping[str, Any]):
    """An event with fields, as a mapping from their names; attributes are those of the event."""

    def __init__(self, event: Any) -> None:
        self._event = event

    def __getitem__(self, name: Any) -> Any:
        if not isinstance(name, str):
            return self._event[name]
        content = field_of(self._event, name)
        if content is None:
            raise KeyError(name)
        return content

    def __iter__(self) -> Iterator[str]:
        return iter(fields_of(self._event))

    def __len__(self) -> int:
        return len(fields_of(self._event))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._event, name)


def fields_of(event: object) -> list[str]:
    """The names of the fields that `Field` reads from an event."""
    kind = type(event)
    if issubclass(kind, tuple):
        return list(class_attribute(kind, "_fields") or ())
    if _is_beam_row(kind):
        return list(vars(event))
    if (declared := class_attribute(kind, "__dataclass_fields__")) is not None:
        return list(declared)
    return [name for name in event if isinstance(name, str)] if isinstance(event, Mapping) else []


def _is_beam_row(kind: type) -> bool:
    """Whether a class is Beam's Row. A program that has not loaded Beam has no rows."""
    row = getattr(sys.modules.get("apache_beam.pvalue"), "Row", None)
    return row is not None and issubclass(kind, row)

"""Reads events with the user's code, whose errors are data. Nothing here depends on Beam."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

_LONGEST = 1 << 10  # bits of an id: Python writes no whole number of more than 4300 digits


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


class FunctionError(ValueError):
    """A function of the user raised an error, on rows that are public; the error is the cause.

    Fields:
      name: the function's parameter.
      payload: what it was given.
    """

    def __init__(self, name: str, payload: Any, error: Exception) -> None:
        super().__init__(f"{name} raised {type(error).__name__}: {error}")
        self.name, self.payload = name, payload


def call(name: str, function: Callable[[Any], Any], payload: Any) -> Any:
    """A function's result for a public event; a FunctionError if it raises an error."""
    try:
        return function(payload)
    except Exception as error:
        raise FunctionError(name, payload, error) from error


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

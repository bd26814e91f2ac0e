"""Checks of arguments that several folders share, and how they report a bad one."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np

from beam_dpcount.errors import Error

_PARAMETER = re.compile(r"\{(\w+)(=?)\}")


def spelled(text: str, spell: Callable[[str], str], between: str) -> str:
    """A text in which {name} stands for a parameter, and {name=}1 for one with a value.

    Args:
      text: as above.
      spell: how the reader calls a parameter.
      between: what stands between its name and a value.
    """
    return _PARAMETER.sub(lambda match: spell(match[1]) + between * bool(match[2]), text)


class ParameterError(Error, ValueError):
    """An argument out of range, in parts: a command line says the same of the option that gave it.

    Args:
      name: the parameter.
      problem: what is wrong, continuing after the name. One that begins with "=" shows the value.
      remedy: what to do. Parameters in it are in braces: {horizon}, or {horizon=}100.
      whole: the problem is a sentence by itself, with parameters in braces too.
    """

    def __init__(self, name: str, problem: str, remedy: str = "", whole: bool = False) -> None:
        super().__init__(name, problem, remedy, whole)  # so that it can be pickled
        self.name, self.problem, self.remedy, self.whole = name, problem, remedy, whole

    def __str__(self) -> str:
        between = "" if self.problem.startswith("=") else " "
        return self._joined(f"{self.name}{between}{self.problem}", self.remedy, str, "=")

    def in_options(
        self, option: Callable[[str], str], remedies: Mapping[str, str], between: str = " "
    ) -> str:
        """The same for a command line, where `option` names a parameter's option.

        If the error has a remedy, that of its parameter in `remedies`, if any, is given instead.
        `between` stands between an option and its value.
        """
        remedy = remedies.get(self.name, self.remedy) if self.remedy else ""
        problem = self.problem.removeprefix("=")
        return self._joined(f"{option(self.name)} {problem}", remedy, option, between)

    def _joined(self, sentence: str, remedy: str, spell: Callable[[str], str], between: str) -> str:
        said = spelled(self.problem, spell, between) if self.whole else sentence
        return f"{said}: {spelled(remedy, spell, between)}" if remedy else said


def check_flag(name: str, value: object) -> bool:
    """A bool, or a TypeError: what is merely true may have been meant for another parameter."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, got {value!r}")
    return value


def check_real(name: str, value: Any, remedy: str) -> float:
    """A number as a float, infinite if it is too large for one; or a TypeError."""
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not is_number:
        raise TypeError(f"{name} must be a number, got {value!r}: {remedy}")
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def check_whole(name: str, value: object, most: int | None = None, unit: str = "") -> int:
    """A public number of items or steps, from 1 to `most`, or a ParameterError.

    `most` is the size of a domain, or else how many of a unit there may be.
    """
    if (
        isinstance(value, bool)
        or not isinstance(value, int | np.integer)
        or not 1 <= value <= (value if most is None else most)
    ):
        number = f"whole number of {unit}" if unit else "whole number"
        upper = "" if most is None else f" to {most}" + ", the size of the domain" * (not unit)
        raise ParameterError(name, f"must be a {number} from 1{upper}, got {value!r}")
    return int(value)


def check_texts(
    name: str, given: object, one: str, example: str, spread: bool = False
) -> tuple[str, ...]:
    """Public names as a tuple of distinct plain strings, in their order; or TypeError, ValueError.

    Args:
      name, given: the parameter.
      one: what each of them is.
      example: what to pass.
      spread: a str is the sequence of its characters.
    """
    # The order must be the same in every worker and run: sets have none.
    refused = isinstance(given, bytes | Mapping) or (isinstance(given, str) and not spread)
    if refused or not isinstance(given, Sequence | np.ndarray):
        raise TypeError(f"{name} must be a sequence of str, got {type(given).__name__}: {example}")
    for text in given:
        if not isinstance(text, str):
            raise TypeError(f"{name} must be a sequence of str, but it holds {text!r}: {example}")
    texts = tuple(str.__str__(text) for text in given)  # a subclass may print as another
    plural = name.endswith("s")
    if not texts:
        raise ValueError(f"{name} {'are' if plural else 'is'} empty: {example}")
    if len(set(texts)) < len(texts):
        twice = next(text for text in texts if texts.count(text) > 1)
        raise ValueError(
            f"{name} name{'' if plural else 's'} {twice!r} twice: give each {one} once"
        )
    return texts


def check_choice(name: str, given: str, choices: tuple[str, ...]) -> str:
    """`given`, or a ValueError that lists the choices."""
    if given not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {given!r}")
    return given


def check_callable(name: str, given: object) -> Any:
    """`given`, None or a function, or a TypeError that says what to pass."""
    if given is not None and not callable(given):
        problem = f"{name} must be a function of an element's value, got {given!r}"
        raise TypeError(f'{problem}: e.g. {name}=lambda event: event["id"]')
    return given

"""What is checked of arguments in more than one room, and how a bad one is told."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

_PARAMETER = re.compile(r"\{(\w+)(=?)\}")


class ParameterError(ValueError):
    """An argument out of range, in parts: a command line says the same of the option that gave it.

    Args:
      name: the parameter that it is about.
      problem: what is wrong, as it goes on after the name. One that begins with "=" shows the
        value first.
      remedy: what to do. Parameters in it are in braces: {horizon}, or {horizon=}100.
      whole: the problem is a sentence by itself, that does not go on after the name.
    """

    def __init__(self, name: str, problem: str, remedy: str = "", whole: bool = False) -> None:
        super().__init__(name, problem, remedy, whole)  # so that it can be pickled
        self.name, self.problem, self.remedy, self.whole = name, problem, remedy, whole

    def __str__(self) -> str:
        remedy = _PARAMETER.sub(r"\1\2", self.remedy)
        between = "" if self.problem.startswith("=") else " "
        return self._joined(f"{self.name}{between}{self.problem}", remedy)

    def in_options(self, option: Callable[[str], str], remedies: Mapping[str, str]) -> str:
        """The same for a command line.

        Args:
          option: from the name of a parameter to that of its option.
          remedies: what to do instead, by the parameter that an error with a remedy is about.
        """

        def spelled(match: re.Match[str]) -> str:
            return option(match[1]) + " " * bool(match[2])

        remedy = remedies.get(self.name, self.remedy) if self.remedy else ""
        problem = self.problem.removeprefix("=")
        return self._joined(f"{option(self.name)} {problem}", _PARAMETER.sub(spelled, remedy))

    def _joined(self, sentence: str, remedy: str) -> str:
        said = self.problem if self.whole else sentence
        return f"{said}: {remedy}" if remedy else said


def check_whole(name: str, value: Any, most: int | None = None) -> int:
    """A public number of items or steps from 1, at most `most`.

    Raises:
      ParameterError: it is something else.
    """
    if (
        isinstance(value, bool)
        or not isinstance(value, int | np.integer)
        or not 1 <= value <= (value if most is None else most)
    ):
        upper = "" if most is None else f" to {most}, the size of the domain"
        raise ParameterError(name, f"must be a whole number from 1{upper}, got {value!r}")
    return int(value)

"""Metrics and views as one text: `mean(delay, -20, 180)`, `rate(level = ERROR)`, `last 7`.

  metric = name [ "(" [ argument { "," argument } ] ")" ]
  argument = [ name "=" ] value
  value = text without , ( ) = or quotes at its ends, or anything in '...' or "..."
  view = "so-far" | "each" | ( "last" | "restart" ) length

A quote within quotes is doubled. Blanks around names and values do not count.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple, NoReturn

from beam_dpcount.arguments.meant import did_you_mean
from beam_dpcount.checks import ParameterError

VIEWS = ("so-far", "each", "last", "restart")
_WITH_LENGTH = ("last", "restart")

_BLANKS = re.compile(r"\s*")
_NAME = re.compile(r"[A-Za-z_][\w-]*")
_QUOTED = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*\"""")
_BARE = re.compile(r"""[^,()='"\s](?:[^,()=]*[^,()=\s])?""")


class Given(NamedTuple):
    """An argument of a metric.

    Fields:
      name: before the =; None if it is given by its place.
      value: as text, without quotes.
      column: where it begins, from 1.
    """

    name: str | None
    value: str
    column: int


class MetricText(NamedTuple):
    """A metric's name and its arguments, in their order."""

    name: str
    arguments: tuple[Given, ...]


class ViewText(NamedTuple):
    """A view's name, and its length, ticks or a duration as text; None if it has none."""

    name: str
    length: str | None


def metric(text: str, known: Collection[str]) -> MetricText:
    """The parts of a metric.

    Args:
      text: as above.
      known: the names of metrics.

    Raises:
      ParameterError: it is not a metric. The message has the column of the mistake.
    """
    reader = _Reader("metric", text)
    name = reader.name("the name of a metric", known)
    arguments: list[Given] = []
    if reader.skip("("):
        while not reader.skip(")"):
            if arguments:
                reader.demand(",", "a comma or )")
            arguments.append(reader.argument("a value" if arguments else "a value or )"))
    reader.end()
    names = [one.name for one in arguments if one.name is not None]
    for one in arguments:
        if one.name is not None and names.count(one.name) > 1:
            reader.refuse(f"{one.name} is given twice", "give it once", one.column)
    return MetricText(name, tuple(arguments))


def view(text: str) -> ViewText:
    """The parts of a view.

    Raises:
      ParameterError: it is not a view. The message has the column of the mistake.
    """
    reader = _Reader("view", text)
    name = reader.name("the name of a view", VIEWS)
    if name not in _WITH_LENGTH:
        reader.end()
        return ViewText(name, None)
    length = reader.value(f"a length, such as {name} 7 or {name} 1d")
    reader.end()
    return ViewText(name, length)


class _Reader:
    """Reads a text from its beginning, and knows where it is."""

    def __init__(self, argument: str, text: str) -> None:
        self._argument, self._text, self._at = argument, text, 0

    def _blanks(self) -> int:
        found = _BLANKS.match(self._text, self._at)
        self._at = found.end() if found else self._at
        return self._at

    def _match(self, pattern: re.Pattern[str]) -> str | None:
        found = pattern.match(self._text, self._blanks())
        if not found:
            return None
        self._at = found.end()
        return found[0]

    def refuse(self, problem: str, remedy: str = "", column: int | None = None) -> NoReturn:
        where = self._at + 1 if column is None else column
        problem = f"column {where} of {self._text!r}: {problem}"
        raise ParameterError(self._argument, problem, remedy)

    def _expected(self, what: str) -> NoReturn:
        rest = self._text[self._blanks() :]
        self.refuse(f"expected {what}, got {rest[:1]!r}" if rest else f"expected {what}")

    def skip(self, sign: str) -> bool:
        """Whether the sign comes next; it is read."""
        there = self._text.startswith(sign, self._blanks())
        self._at += len(sign) if there else 0
        return there

    def demand(self, sign: str, what: str) -> None:
        if not self.skip(sign):
            self._expected(what)

    def name(self, what: str, known: Collection[str]) -> str:
        column = self._blanks() + 1
        name = self._match(_NAME)
        if name is None:
            self._expected(what)
        if name not in known:
            remedy = f"{did_you_mean(name, known)}give one of {', '.join(known)}"
            self.refuse(f"unknown name {name!r}", remedy, column)
        return name

    def value(self, what: str) -> str:
        if quoted := self._match(_QUOTED):
            return quoted[1:-1].replace(quoted[0] * 2, quoted[0])
        bare = self._match(_BARE)
        if bare is None:
            if self._text[self._at : self._at + 1] in ("'", '"'):
                self.refuse("the quote does not end", "give the same quote after the text")
            self._expected(what)
        return bare

    def argument(self, what: str) -> Given:
        column = self._blanks() + 1
        value = self.value(what)
        if not self.skip("="):
            return Given(None, value, column)
        if not value:
            self.refuse("a name before = is empty", column=column)
        return Given(value, self.value("a value"), column)

    def end(self) -> None:
        if self._text[self._blanks() :]:
            self._expected("the end")

"""An argument: an entry of the table, and what each door derives from it."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from beam_dpcount.arguments import kinds
from beam_dpcount.arguments.kinds import Kind
from beam_dpcount.arguments.meant import did_you_mean
from beam_dpcount.checks import ParameterError, spelled

_FLAGS = (
    "required",
    "several times",
    "uncounted",
    "more",
)  # no words of counts


@dataclass(frozen=True)
class Argument:
    """What a count can be told under one name.

    Args:
      name: in YAML and Python; a command line writes --per-user for per_user.
      kind: what its values are, and how text becomes one.
      help: {name} in it is another argument, as the door spells it; {column} the door's word for a
        column.
      applies: to counts that have all these words; "" is every count.
      group: of the help, a key of `table.GROUPS`.
      metavar: on a command line. "LOW HIGH" takes two texts, "KEY ..." one or more.
      choices: the only texts, if any.
      default, required: None stands for nothing given.
      example: a value, for error messages.
      remedy: in place of the kind's.
      one_of: arguments of one command with the same word exclude each other. If one of them is
        required, one of them must be given.
      counted: False if it changes neither what is counted nor the noise of a replay.
      short: a short name on a command line.
      more: shown by --help-all alone, as few runs need it.
      repeats: whether a command line may give it several times; the value is then a list.
    """

    name: str
    kind: Kind
    help: str
    applies: str = ""
    group: str = ""
    metavar: str = ""
    choices: tuple[str, ...] = ()
    default: Any = None
    required: bool = False
    example: str = ""
    remedy: str = ""
    one_of: str = ""
    counted: bool = True
    short: str = ""
    more: bool = False
    repeats: bool = False

    def read(self, given: Any) -> Any:
        """The value of what was given, text or not; None stays None.

        Raises:
          ParameterError: it has none. The message shows what was given, which is public.
        """
        if given is None:
            return None
        if self.choices and given not in self.choices:
            meant = did_you_mean(given, self.choices) if isinstance(given, str) else ""
            problem = f"must be one of {', '.join(self.choices)}, got {given!r}"
            raise ParameterError(self.name, problem, meant.strip())
        try:
            return self.kind.read(given)
        except ParameterError as error:
            raise ParameterError(self.name, error.problem, error.remedy, error.whole) from None
        except (ValueError, TypeError, OverflowError):
            words = isinstance(given, list) and all(isinstance(each, str) for each in given)
            shown = " ".join(given) if words else repr(given)
            problem = f"must {self.kind.must}, got {shown}"
        raise ParameterError(self.name, problem, self._advice())

    def _advice(self) -> str:
        """What to do about a value that is refused."""
        remedy = self.remedy or self.kind.remedy
        if "{}" in remedy and not self.example:
            return ""
        return remedy.replace("{}", f"{{{self.name}=}}{self.example}")

    def described(self, spell: Callable[[str], str], between: str, column: str) -> str:
        """The help, as a door says it; see `spelled`."""
        return spelled(self.help.replace("{column}", column), spell, between)


def parsed(group: str, table: str, counted: bool = True) -> tuple[Argument, ...]:
    """Arguments from a table in text.

    An entry is a line `name METAVAR: kind, words, ...` and its help, indented. Metavars in braces
    are choices. After the kind come the words of counts that take it, and any of `required`,
    `several times`, `uncounted`, `more`, `default=`, `example=`, `one_of=` and `short=`. A help
    line that begins with ! is the remedy.
    """
    entries = re.split(r"\n(?=\S)", textwrap.dedent(table).strip())
    return tuple(_entry(group, entry, counted) for entry in entries)


def _entry(group: str, entry: str, counted: bool) -> Argument:
    head, *lines = entry.split("\n")
    usage, _, said = head.partition(": ")
    name, _, metavar = usage.partition(" ")
    kind_name, *words = said.split(", ")
    kind: Kind = getattr(kinds, kind_name.upper())
    texts = dict(word.split("=", 1) for word in words if "=" in word)
    applies = [word for word in words if "=" not in word and word not in _FLAGS]
    helps, _, remedy = " ".join(line.strip() for line in lines).partition(" ! ")
    choices = tuple(metavar[1:-1].split(",")) if metavar.startswith("{") else ()
    default: Any = False if kind is kinds.SWITCH else None
    if "default" in texts:
        text = texts.pop("default")
        default = kind.read(text.split() if kind is kinds.BOUNDS else text)
    return Argument(
        name,
        kind,
        helps,
        " ".join(applies),
        group,
        "" if choices else metavar,
        choices,
        default,
        "required" in words,
        remedy=remedy,
        counted=counted and "uncounted" not in words,
        more="more" in words,
        repeats="several times" in words,
        **texts,
    )

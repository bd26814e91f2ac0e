"""What the transforms of rows share: a class says what it counts, and which arguments it takes."""

from __future__ import annotations

import inspect
import textwrap
from abc import abstractmethod
from collections.abc import Mapping
from operator import itemgetter
from typing import Any, ClassVar

import apache_beam as beam
from apache_beam.pvalue import PCollection

from beam_dpcount.arguments import groups
from beam_dpcount.arguments.argument import Argument
from beam_dpcount.arguments.kinds import IDS, KEYS, LEVELS, NUMBERS, TIMES
from beam_dpcount.arguments.meant import did_you_mean
from beam_dpcount.arguments.table import Changes, applying
from beam_dpcount.counters.people import Users
from beam_dpcount.counters.selection import SelectKeys
from beam_dpcount.rows import fields
from beam_dpcount.rows.fields import Field, ReadRow, TimeOf, check_fields
from beam_dpcount.rows.releases import CountRow, ToCountRow
from beam_dpcount.transforms.checking import RowCheck
from beam_dpcount.transforms.inputs import par_do

Values = groups.Values

REQUIRED: Mapping[str, Any] = {"required": True}
# What columns hold, by the kind of the argument that names them: types, and the same in words.
_HOLD = {
    KEYS: (fields.KEYS, "texts or whole numbers"),
    LEVELS: (fields.KEYS, "texts or whole numbers"),
    NUMBERS: (fields.NUMBERS, "numbers"),
    TIMES: (fields.TIMES, "times, texts or numbers"),
    IDS: (fields.ANY, "ids"),
}
# Arguments that transforms take under the same name, as they are.
_SAME = (
    *("bounds", "unit", "every", "relation", "mechanism", "max_per_tick", "late", "other"),
    *("on_reject", "path", "allow_runner"),
)
_PERSON = itemgetter(1)  # of what `content` makes of a row


class Rows(beam.PTransform[Any, Any]):
    """A count of rows: fields are checked, read, counted, and made rows of.

    A subclass says which arguments it takes, by words of `arguments.table`. Its constructor, with
    its signature and the Args of its docstring, follows from them.

    Attributes:
      count: the transform that counts, with its `counter`.
    """

    counts: ClassVar[str]  # words of the table
    first: ClassVar[tuple[str, ...]]  # arguments that may be given by place
    changes: ClassVar[Changes] = {}  # what is otherwise here
    drops: ClassVar[bool]  # as for ReadRow
    arguments: ClassVar[tuple[Argument, ...]]

    def __init_subclass__(cls, **more: object) -> None:
        super().__init_subclass__(**more)
        if "counts" in vars(cls):
            changes = {"key": REQUIRED, **cls.changes}
            cls.arguments = applying(f"fields calibrated run {cls.counts}", changes=changes)
            cls.__doc__ = _described(cls.__doc__ or "", cls.arguments)
            kind: Any = cls
            kind.__init__ = _constructor(kind)

    def __init__(self, *given: object, **named: object) -> None:
        raise TypeError("give the class of a count, such as TickCountRows")

    @abstractmethod
    def transform(self, values: Values) -> Any:
        """The transform that counts (key, content) pairs."""

    @abstractmethod
    def content(self, values: Values) -> Any:
        """A picklable function from a row to what is counted, the person and the id."""

    def write(self) -> Any:
        """The DoFn that makes rows of releases."""
        return ToCountRow()

    def row_type(self) -> Any:
        """The type of what comes out."""
        return CountRow

    def more_fields(self) -> list[Field]:
        """Fields that are read and that no argument names."""
        return []

    def build(self, values: Values) -> None:
        """Sets up the transform from the values of its arguments."""
        self.count = self.transform(values)
        named = groups.columns(self.arguments, values)
        self._fields = [Field(one.name, name, *_HOLD[one.kind]) for one, name in named]
        self._fields += self.more_fields()
        time_of = TimeOf(values["timestamp_format"], values["timezone"])
        content = self.content(values)
        where = self.key(values), content, values["timestamp"]
        self._read, self._write = ReadRow(*where, time_of, drops=self.drops), self.write()

    def key(self, values: Values) -> Any:
        """The field of the key, or the fields of a path."""
        return values["key"]

    @property
    def counter(self) -> Any:
        """The calibrated counter of each key."""
        return self.count.counter

    def __str__(self) -> str:
        return repr(self)

    def __repr__(self) -> str:
        return repr(self.count).replace(type(self.count).__name__, type(self).__name__, 1)

    @property
    def users(self) -> Users | None:
        """The bound on people; None if it protects single events."""
        users: Users | None = self.count.users
        return users

    def check_row(self, row: object, micros: int | None = None) -> RowCheck:
        """What becomes of a row; see `beam_dpcount.check`."""
        for field in self._fields:
            getattr(row, field.name)  # in a pipeline the schema is checked
        try:
            key, payload, own = self._read.read(row)
        except ValueError as error:
            return RowCheck(str(error), keys=())
        result: RowCheck = self.count.check_row((key, payload), micros if own is None else own)
        return result

    def expand(self, rows: PCollection[Any]) -> PCollection[Any]:
        check_fields(rows.element_type, self._fields)
        releases = rows | "Read" >> par_do(self._read, tuple[Any, Any]) | "Count" >> self.count
        made: PCollection[Any] = self.follow(releases) | "Rows" >> par_do(
            self._write, self.row_type()
        )
        return made

    def follow(self, releases: PCollection[Any]) -> PCollection[Any]:
        """What is computed of releases before they are rows."""
        return releases


# From values to what transforms take


def shared(kind: type[Rows], values: Values) -> dict[str, Any]:
    """The arguments that all transforms take: people, noise, and those of the same name."""
    groups.check_people(values)
    given = {name: values[name] for name in _SAME if name in values}
    return given | {"users": groups.people(values, _PERSON), "entropy": entropy_of(kind, values)}


def keys_of(values: Values) -> list[str] | SelectKeys:
    """The listed keys, or those that are shown by their counts."""
    groups.check_select(values)
    if values["select_keys"]:
        return groups.selection(values)
    if values["keys"] is None:
        raise groups.refusal("keys", "give {keys}, or {select_keys} if nobody can list them")
    listed: list[str] = values["keys"]
    return listed


def entropy_of(kind: type[Rows], values: Values, what: object = None) -> Any:
    """Where noise comes from. Replays that read other fields, or read them otherwise, differ.

    `what` is counted, if fields do not say it all.
    """
    read = {one.name: values[one.name] for one, _ in groups.columns(kind.arguments, values)}
    read["timestamp_format"] = values["timestamp_format"]
    if values["timestamp"] is not None:
        read["timezone"] = values["timezone"]
    # Without defaults, so that arguments of later versions do not change the noise.
    given = sorted((name, value) for name, value in read.items() if value is not None)
    counted = (values["run_id"], given) if what is None else (values["run_id"], given, what)
    return groups.entropy(values, ascii(counted))


# The constructor


def _constructor(kind: type[Rows]) -> Any:
    signature = _signature(kind)

    def construct(self: Rows, *given: object, **named: object) -> None:
        known = [one.name for one in kind.arguments]
        for name in named:
            if name not in known:
                hint = did_you_mean(name, known) or f"it takes {', '.join(known)}"
                raise TypeError(f"{kind.__name__} takes no argument {name!r}: {hint.strip()}")
        try:
            bound = signature.bind(self, *given, **named)
        except TypeError as error:
            raise TypeError(f"{kind.__name__}: {error}") from None
        bound.apply_defaults()
        values = {one.name: one.read(bound.arguments[one.name]) for one in kind.arguments}
        groups.check_exclusive(kind.arguments, values)
        beam.PTransform.__init__(self)
        self.build(values)

    signed: Any = construct
    signed.__signature__ = signature
    construct.__name__, construct.__qualname__ = "__init__", f"{kind.__qualname__}.__init__"
    return construct


def _signature(kind: type[Rows]) -> inspect.Signature:
    """That of a constructor: first what may be given by place, then by name, in table order."""
    by_name = {one.name: one for one in kind.arguments}
    parameters = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
    for name in (*kind.first, *(name for name in by_name if name not in kind.first)):
        one, keyword = by_name[name], name not in kind.first
        optional = one.default is None and not one.required
        parameters.append(
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY
                if keyword
                else inspect.Parameter.POSITIONAL_OR_KEYWORD,
                default=inspect.Parameter.empty if one.required else one.default,
                annotation=one.kind.hint | None if optional else one.kind.hint,
            )
        )
    return inspect.Signature(parameters)


def _described(doc: str, arguments: tuple[Argument, ...]) -> str:
    """A docstring with its arguments before the guarantee."""
    lines = ["    Args:"]
    for one in arguments:
        said = f"{one.name}: {one.described(str, '=', 'field')}"
        if one.choices:
            said += f". One of {', '.join(one.choices)}"
        lines += textwrap.wrap(f"{said}.", 99, initial_indent=" " * 6, subsequent_indent=" " * 8)
    before, guarantee, after = doc.partition("    Guarantee:")
    return before + "\n".join(lines) + "\n\n" + guarantee + after

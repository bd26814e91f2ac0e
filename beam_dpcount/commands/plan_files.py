"""Plans: the options of a command in a YAML file, which --save-plan writes and `run` takes.

A plan has the names of the table of arguments. Its values are read as on a command line: as the
texts that stand there, so that keys such as no, 007 and 1.0 are themselves, with quotes or without.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml

from beam_dpcount import commands
from beam_dpcount.arguments import groups
from beam_dpcount.arguments.argument import Argument
from beam_dpcount.arguments.kinds import ALARM, LIST, PATH, PATHS, SWITCH, TIMES
from beam_dpcount.arguments.meant import did_you_mean
from beam_dpcount.arguments.table import ARGUMENTS
from beam_dpcount.checks import ParameterError
from beam_dpcount.commands.app import explain, say
from beam_dpcount.commands.files import tables
from beam_dpcount.commands.files.beside import beside
from beam_dpcount.commands.files.formats import STANDARD, InputError
from beam_dpcount.commands.options import Parser, option

if TYPE_CHECKING:
    from beam_dpcount.commands.task import Task

COMMAND, DEFAULT = "command", "ticks"
# What differs from run to run, and stands on the command line of `run`; the first two may stand in
# a plan as well.
OF_A_RUN = ("until", "delay", "dry_run", "check", "verbose", "overwrite")
_NOT_IN_PLANS = (*OF_A_RUN[2:], "save_plan")
# An option, and whether a value follows.
_OPTION = re.compile(r"(?<![\w-])--([a-z][a-z-]*)( (?=[0-9'\"~./<]|[A-Z]+\b))?")
_SQLITE = re.compile(r"(sqlite(?:\+\w+)?:///)([^/?][^?]*)(.*)", re.IGNORECASE)  # a path in a URL
_PASSWORD = re.compile(r"://[^/?#]*:[^/?#]*@|[?&]\w*password=", re.IGNORECASE)

ONE_RUN = "{name} is of one run, and not of a plan: give {option} on the command line"
DEEP = "no value is as deep as this"
UNKNOWN = "unknown name {name!r}: {meant}"
UNSAFE = (
    "{name} holds a password, and a plan holds no secrets: leave it to the environment, or to a "
    "file that only you can read"
)
ELSEWHERE = (
    "--save-plan {path!r}: names of files are a part of replayable noise, and from another folder "
    "they are others: name a file in this folder"
)


class Field(NamedTuple):
    """A name that a plan takes.

    Fields:
      option: the option of the command line that it stands for.
      argument: what reads its value.
    """

    option: str
    argument: Argument


class Plan(NamedTuple):
    """What a plan says.

    Fields:
      path: of the file, as it was given.
      task: the class of the command's tasks.
      values: of options, by their names.
      names: how the plan calls them.
      lines: where these names stand, from 1.
    """

    path: str
    task: type[Task]
    values: Mapping[str, Any]
    names: Mapping[str, str]
    lines: Mapping[str, int]


# Names


def task_of(name: str) -> type[Task]:
    """The class of the tasks of a command that counts."""
    task: type[Task] = import_module(f"{commands.__name__}.{name}").main.task
    return task


def fields_of(parser: Parser) -> dict[str, Field]:
    """The names that a plan takes.

    What a command line takes several times is a list under its plural, as in rows and Beam YAML.
    """
    taken: dict[str, Field] = {}
    for one in parser.arguments:
        if one.name not in _NOT_IN_PLANS:
            taken[one.name] = Field(one.name, one)
        if one.repeats:
            taken[_several(one).name] = Field(one.name, _several(one))
    return taken


def _several(one: Argument) -> Argument:
    """The argument of rows that is a list of what a command line takes several times."""
    (found,) = (other for other in ARGUMENTS if other.name == f"{one.name}s")
    return found


# Reading


def read(path: str) -> Plan:
    """A plan.

    Raises:
      InputError: it cannot be read, or says what a plan cannot say. The message has the line.
    """
    lines = _lines(path)
    at, name = lines.pop(COMMAND, (0, DEFAULT))
    if name not in commands.COUNTING:
        meant = did_you_mean(name, commands.COUNTING) if isinstance(name, str) else ""
        problem = f"{COMMAND} must be one of {', '.join(commands.COUNTING)}, got {name!r}"
        raise InputError(f"{_place(path, at)}: {problem}{': ' * bool(meant)}{meant.strip()}")
    parser = task_of(name).parser()
    known = fields_of(parser)
    values: dict[str, Any] = {}
    names: dict[str, str] = {}
    for given, (at, value) in lines.items():
        with _said_of(path, at, given, known):
            if given in _NOT_IN_PLANS:
                raise _wrong(ONE_RUN.format(name=given, option=option(given)))
            if given not in known:
                meant = did_you_mean(given, known).strip() or f"{name} takes {', '.join(known)}"
                raise _wrong(UNKNOWN.format(name=given, meant=meant))
            field = known[given]
            if field.option in names:
                raise _wrong(f"give either {names[field.option]} or {given}, not both")
            values[field.option] = _value(field, given, value)
            names[field.option] = given
    with _said_of(path, 0, "", known):
        _check_complete(parser, values)
    places = {given: at for given, (at, _) in lines.items()}
    return Plan(path, task_of(name), values, names, places)


@contextmanager
def _said_of(path: str, at: int, given: str, known: Mapping[str, Field]) -> Iterator[None]:
    """Turns errors about parameters into errors about a line of a plan."""

    def spelled(name: str) -> str:
        return given if given in known and name == known[given].argument.name else name

    try:
        yield
    except ParameterError as error:
        said = error.in_options(spelled, {}, ": ")
        raise InputError(f"{_place(path, at)}: {said}") from None


def _place(path: str, at: int) -> str:
    return f"{path}, line {at}" if at else path


def _wrong(problem: str) -> ParameterError:
    """A sentence by itself."""
    return groups.refusal("", problem)


def _lines(path: str) -> dict[str, tuple[int, Any]]:
    """The line of each name, and its value: text, or lists and mappings of texts."""
    try:
        node = yaml.compose(_read(path), Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        at = 0 if error.problem_mark is None else error.problem_mark.line + 1
        raise InputError(f"{_place(path, at)}: is not YAML: {error.problem}") from None
    except RecursionError:
        raise InputError(f"{path}: {DEEP}") from None
    except yaml.YAMLError as error:
        raise InputError(f"{path}: is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(node, yaml.MappingNode):
        raise InputError(f"{path}: a plan is lines such as `epsilon: 1`; --save-plan writes one")
    return {name: (at, _plain(path, value)) for name, at, value in _pairs(path, node)}


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8-sig") as file:
            return file.read()
    except OSError as error:
        raise InputError(f"plan {path!r} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise InputError(f"plan {path!r} is not UTF-8 text: save it as that") from None


def _pairs(path: str, node: Any) -> Iterator[tuple[str, int, Any]]:
    """The names of a mapping, their lines, and the nodes of their values."""
    seen: dict[str, int] = {}
    for key, value in node.value:
        at = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            raise InputError(f"{_place(path, at)}: a name must be a text")
        if key.value in seen:
            there = seen[key.value]
            raise InputError(
                f"{_place(path, at)}: {key.value} is there twice, also at line {there}"
            )
        seen[key.value] = at
        yield key.value, at, value


def _plain(path: str, node: Any, depth: int = 0) -> Any:
    """A value as text, or as lists and mappings of texts; None where there is none."""
    if isinstance(node, yaml.ScalarNode):
        return None if node.style is None and not node.value else node.value
    if depth == 3:  # a list of mappings of lists; and an alias may lie within itself
        raise InputError(f"{_place(path, node.start_mark.line + 1)}: {DEEP}")
    if isinstance(node, yaml.SequenceNode):
        return [_plain(path, one, depth + 1) for one in node.value]
    return {name: _plain(path, value, depth + 1) for name, _, value in _pairs(path, node)}


def _value(field: Field, name: str, given: Any) -> Any:
    """The value of a name, as its option has it."""
    one = field.argument
    if given in (None, []):
        raise ParameterError(one.name, "has no value", "give one, or leave the line out")
    if one.kind is SWITCH:
        return one.read({"true": True, "false": False}.get(str(given), given))
    words, plural = one.metavar.split(), one.name != field.option
    if plural or words[1:]:
        given = given if isinstance(given, list) else [given]
        if words[1:] not in ([], ["..."]) and len(given) != len(words):
            raise ParameterError(one.name, f"must be a list of {len(words)}, got {len(given)}")
    elif not isinstance(given, str) and one.kind is not ALARM:
        raise ParameterError(one.name, "must be one text or number, got more")
    texts = given if isinstance(given, list) else [given]
    if not all(isinstance(text, str) for text in texts) and not (plural and one.kind is LIST):
        raise ParameterError(one.name, "must be a list of texts or numbers, got more")
    if one.kind in (PATH, PATHS) and any(map(_PASSWORD.search, texts)):
        raise _wrong(UNSAFE.format(name=name))
    value = one.read(given)
    return [value] if one.repeats else value


def _check_complete(parser: Parser, values: Mapping[str, Any]) -> None:
    """Refuse a plan without what a run needs, or with what excludes each other."""
    given = {one.name: values.get(one.name) for one in parser.arguments}
    groups.check_exclusive(tuple(parser.arguments), given)
    for one in parser.arguments:
        choices = [o.name for o in parser.arguments if one.one_of and o.one_of == one.one_of]
        if one.required and all(given[name] is None for name in choices or [one.name]):
            raise _wrong(f"give {' or '.join(choices or [one.name])}: a run needs it")


# Errors in words of the plan


@contextmanager
def named_as_fields(plan: Plan, given: Collection[str]) -> Iterator[None]:
    """Turns errors about options into errors about the names of a plan, and their lines.

    `given` are options that the command line of `run` gave itself.
    """
    try:
        yield
    except (ValueError, TypeError) as error:
        text = explain(error)
        fields = fields_of(plan.task.parser()).items()
        spelled = {field.option: name for name, field in fields if field.option not in given}
        spelled |= {name: own for name, own in plan.names.items() if name not in given}
        found: list[str] = []

        def in_plan(match: re.Match[str]) -> str:
            name = spelled.get(match[1].replace("-", "_"))
            found.extend([] if name is None else [name])
            return match[0] if name is None else f"{name}{': ' * (match[2] is not None)}"

        said = _OPTION.sub(in_plan, text)
        if not found:
            raise
        at = next((plan.lines[name] for name in found if name in plan.lines), 0)
        raise InputError(f"{_place(plan.path, at)}: {said}") from None


# Writing


def save(task: Task, flags: Sequence[str]) -> None:
    """Writes the plan of a task where --save-plan says, and says so.

    Args:
      flags: options for Beam.

    Raises:
      InputError: it is no place for a plan, or a plan cannot hold all that was given.
    """
    path = task.options.save_plan
    _check_place(task, path)
    if flags:
        raise InputError(f"--save-plan: {flags[0]} goes to Beam, and a plan has no place for it")
    text = text_of(task)
    if os.path.exists(path) and not task.options.overwrite and _read(path) != text:
        raise InputError(f"{path!r} is there already: give --overwrite, or name another plan")
    with beside(path) as name, open(name, "w", encoding="utf-8") as file:
        file.write(text)
    say([f"plan: {path} (beam-dpcount run {shlex.quote(path)})"])


def _check_place(task: Task, path: str) -> None:
    options = task.options
    if not path.endswith((".yaml", ".yml")):
        raise InputError(f"--save-plan must end in .yaml, got {path!r}")
    if "://" in path:
        raise InputError(f"--save-plan {path!r} must be on this machine: give a local file")
    tables.check_place(f"--save-plan {path!r}", path)
    replays = options.secret_env is not None or options.secret_file is not None
    if replays and not _is_here(path):
        raise InputError(ELSEWHERE.format(path=path))
    for one in task.parser().arguments:
        if one.kind in (PATH, PATHS) and one.name != "save_plan":
            given = options.texts.get(one.name, ())
            for text in [given] if isinstance(given, str) else given:
                if _PASSWORD.search(text):
                    raise InputError(UNSAFE.format(name=option(one.name)))
                if os.path.realpath(text) == os.path.realpath(path):
                    raise InputError(f"--save-plan {path!r} is the file of {option(one.name)}, too")


def text_of(task: Task) -> str:
    """The plan of a task, as YAML."""
    options, parser = task.options, task.parser()
    blocks: dict[str, dict[str, Any]] = {"": {COMMAND: task.name}}
    # With a state, when ticks end is said of one run: the plan is for all nights.
    left_out = (*_NOT_IN_PLANS, "until") if task.goes_on else _NOT_IN_PLANS
    for one in parser.arguments:
        value = _given(one, options)
        if value is None or one.name in left_out:
            continue
        name = one.name
        if one.repeats:
            name, value = (name, value[0]) if len(value) == 1 else (_several(one).name, value)
        if one.kind is TIMES and len(value) == 1:
            (value,) = value
        if one.kind in (PATH, PATHS):
            value = _each(partial(_from, os.path.dirname(options.save_plan)), value)
        if one.kind.hint not in (str, list[str], bool):
            value = _each(_Number, value)
        blocks.setdefault(one.group, {})[name] = value
    said = [f"# What is counted: beam-dpcount run {os.path.basename(options.save_plan)}\n"]
    said[0] += (
        f"# The names are those of beam-dpcount {task.name} --help-all; paths are from here.\n"
    )
    how: dict[str, Any] = {"sort_keys": False, "allow_unicode": True, "width": 100}
    return "\n".join(said + [yaml.dump(block, Dumper=_Dumper, **how) for block in blocks.values()])


def _given(one: Argument, options: argparse.Namespace) -> Any:
    """What a command line gave, before it was read; None: nothing."""
    return (
        (getattr(options, one.name) or None) if one.kind is SWITCH else options.texts.get(one.name)
    )


def _each(change: Callable[[str], str], value: Any) -> Any:
    return [change(one) for one in value] if isinstance(value, list) else change(value)


def _is_here(path: str) -> bool:
    return os.path.realpath(os.path.dirname(path) or ".") == os.path.realpath(".")


def _from(folder: str, text: str) -> str:
    """A path from a folder; one that is the same from everywhere stays as it is."""
    if sqlite := _SQLITE.match(text):
        return f"{sqlite[1]}{_from(folder, sqlite[2])}{sqlite[3]}"
    if "://" in text or text == STANDARD or os.path.isabs(text) or _is_here(f"{folder}/"):
        return text
    return os.path.relpath(text, folder or ".") + "/" * text.endswith("/")


class _Number(str):
    """A text that is read as a number, and needs no quotes."""


class _Dumper(yaml.SafeDumper):
    """Short lists in a line; texts in quotes where others would read a number or a time."""


def _write_number(dumper: Any, text: str) -> Any:
    tag = dumper.resolve(yaml.ScalarNode, text, (True, False))
    if not tag.endswith((":int", ":float")):
        tag = dumper.DEFAULT_SCALAR_TAG
    return dumper.represent_scalar(tag, str(text))


def _write_list(dumper: Any, texts: Sequence[str]) -> Any:
    return dumper.represent_sequence("tag:yaml.org,2002:seq", texts, flow_style=True)


_Dumper.add_representer(_Number, _write_number)
_Dumper.add_representer(list, _write_list)

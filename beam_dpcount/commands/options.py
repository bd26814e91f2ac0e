"""The options that commands share, and checks of them before any file is opened."""

from __future__ import annotations

import argparse
import difflib
import os
import re
import sys
import textwrap
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, NoReturn

from beam_dpcount.arguments import groups
from beam_dpcount.arguments.argument import Argument
from beam_dpcount.arguments.kinds import CONDITION, SWITCH
from beam_dpcount.arguments.meant import did_you_mean
from beam_dpcount.arguments.table import DEFAULT_BOUNDS, GROUPS
from beam_dpcount.budget.budgets import Budget
from beam_dpcount.checks import ParameterError, check_whole
from beam_dpcount.commands.files.formats import STANDARD, STANDARD_INPUT, InputError
from beam_dpcount.counters.counter import UnsupportedBudgetError
from beam_dpcount.noise.entropy import Entropy, SystemEntropy


class Parser(argparse.ArgumentParser):
    """Reports errors in one line, without the usage."""

    def __init__(
        self,
        name: str,
        description: str | None,
        example: str = "",
        arguments: Sequence[Argument] = (),
        titles: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """
        Args:
          name: of the command.
          description: what is said above the options.
          example: a command line to begin with, on the log of `demo` where it reads one.
          arguments: what it takes, in the order of their groups.
          titles: of groups that have another one here.
        """
        started = getattr(getattr(sys.modules["__main__"], "__spec__", None), "name", "")
        prog = f"beam-dpcount {name}"
        if started == "beam_dpcount.__main__":
            prog = f"python -m beam_dpcount {name}"
        lines = textwrap.indent(textwrap.dedent(example).strip(), "  ")
        super().__init__(
            prog=prog,
            description=description,
            epilog=f"example:\n{lines}" if example else None,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        self.arguments = arguments
        self.texts: dict[str, Any] = {}  # what was given, before it was read
        self._more = {one.name for one in arguments if one.more}
        if self._more:
            self.add_argument("--help-all", action=HelpAll, help="show all options and exit")
        for group, (title, text) in GROUPS.items():
            members = [one for one in arguments if one.group == group]
            if members:
                titled = titles.get(group, title)
                add_all(self.add_argument_group(titled, text) if group else self, members)

    def format_help(self, everything: bool = False) -> str:
        """The help. Unless it is to have everything it leaves out the options that few runs need,
        and all paragraphs of the description but two."""
        if everything or not self._more:
            return super().format_help()
        formatter = self._get_formatter()
        needed = [action for action in self._actions if action.required]
        formatter.add_usage(None, needed, [])
        usage = f"{' '.join(formatter.format_help().split())} [options]"
        formatter = self._get_formatter()
        formatter.add_text(_wrapped((self.description or "").split("\n\n")[:2]))
        for group in self._action_groups:
            hidden = {*self._more, "help", argparse.SUPPRESS}
            shown = [one for one in group._group_actions if one.dest not in hidden]
            if shown:
                formatter.start_section(group.title)
                formatter.add_text(group.description)
                formatter.add_arguments(shown)
                formatter.end_section()
        formatter.add_text(f"{len(self._more)} more options: --help-all\n\n{self.epilog or ''}")
        usage = textwrap.fill(usage, 79, subsequent_indent=" " * 7, break_on_hyphens=False)
        return f"{usage}\n\n{formatter.format_help()}"

    def error(self, message: str) -> NoReturn:
        if meant := self._mistyped(message):
            raise ValueError(meant)
        if "required" in message and (strange := self._strange()):
            message = f"{message}; {', '.join(strange)} is no option of ours"
        if choice := re.search(r"invalid choice: '(.*)' \(", message):
            names = [str(one) for action in self._actions for one in action.choices or ()]
            message = f"{message}: {did_you_mean(choice[1], names)}".rstrip(": ")
        raise ValueError(f"{message} (see --help)")

    def _mistyped(self, message: str) -> str:
        """In place of an option that is missing, the one that was given in its place."""
        if "required" not in message:
            return ""
        ours = self.names()
        for argument in self._given:
            name = argument.split("=", 1)[0]
            if name.startswith("--") and name not in ours:
                meant = difflib.get_close_matches(name, ours, 1)
                if meant and re.search(rf"{meant[0]}(?![\w-])", message):
                    return unknown_argument(argument, ours, "ours and Beam's")
        return ""

    def _strange(self) -> list[str]:
        """The first option that was given and is none of ours, if there is one."""
        ours = self.names()
        given = (argument.split("=", 1)[0] for argument in self._given)
        return [name for name in given if name.startswith("--") and name not in ours][:1]

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Adds `given` to the options: those that differ from their defaults; `counted`: those of
        them that change what is counted, or the noise of a replay; and `texts`, as they came."""
        self._given = sys.argv[1:] if args is None else list(args)
        self.texts = {}
        options, others = super().parse_known_args(args, namespace)
        return self._compared(options), others

    def options_of(self, values: Mapping[str, Any]) -> argparse.Namespace:
        """The options of a command line that gives these values, by their names."""
        self.texts = {}
        found = {action.dest: action.default for action in self._actions}
        found |= {**self._defaults, **values}
        return self._compared(
            argparse.Namespace(**{n: x for n, x in found.items() if x is not argparse.SUPPRESS})
        )

    def _compared(self, options: argparse.Namespace) -> argparse.Namespace:
        """Options beside their defaults."""
        found = vars(options)
        options.given = {n: x for n, x in found.items() if x != self.get_default(n)}
        uncounted = {one.name for one in self.arguments if not one.counted}
        options.counted = {n: x for n, x in options.given.items() if n not in uncounted}
        options.texts = self.texts
        return options

    def names(self) -> list[str]:
        return [name for action in self._actions for name in action.option_strings]

    def parse_ours(
        self, argv: Sequence[str] | None, elsewhere: Mapping[str, str] = MappingProxyType({})
    ) -> argparse.Namespace:
        """The options of a command without a pipeline; any other is a ValueError.

        `elsewhere` has options of other commands, and what to do in place of giving them.
        """
        options, flags = self.parse_known_args(argv)
        if flags:
            name = flags[0].split("=", 1)[0]
            if name in elsewhere:
                raise ValueError(f"{name} is not an option here: {elsewhere[name]}")
            raise ValueError(unknown_argument(flags[0], self.names(), "ours"))
        return options


def unknown_argument(argument: str, names: Collection[str], whose: str) -> str:
    """An error message, with the option that may have been meant."""
    name = argument.split("=", 1)[0]
    hint = did_you_mean(name, names) if name.startswith("-") else ""
    return f"unknown argument {name}: {hint}see --help for {whose}"


def _wrapped(paragraphs: Sequence[str]) -> str:
    """For a terminal of 80 columns."""
    lines = (" ".join(one.split()) for one in paragraphs)
    return "\n\n".join(textwrap.fill(one, 79, break_on_hyphens=False) for one in lines)


class HelpAll(argparse.Action):
    """Prints the help with all options, and ends."""

    def __init__(self, option_strings: Sequence[str], dest: str, **more: Any) -> None:
        super().__init__(
            option_strings, argparse.SUPPRESS, nargs=0, default=argparse.SUPPRESS, **more
        )

    def __call__(self, parser: Any, *_: Any) -> None:
        parser._print_message(parser.format_help(everything=True), sys.stdout)
        parser.exit()


class Store(argparse.Action):
    """Stores the value of an argument of the table, as `Argument.read` has it."""

    def __init__(self, *args: Any, argument: Argument, **more: Any) -> None:
        super().__init__(*args, **more)
        self._argument = argument

    def __call__(self, parser: Any, namespace: Any, values: Any, name: Any = None) -> None:
        if self._argument.kind is CONDITION and getattr(namespace, self.dest) is not None:
            parser.error(f"argument {name}: given twice; only one condition can be counted")
        earlier = (getattr(namespace, self.dest) or []) if self._argument.repeats else None
        try:
            value = self._argument.read(values)
            setattr(namespace, self.dest, value if earlier is None else [*earlier, value])
            before = parser.texts.get(self.dest, [])
            parser.texts[self.dest] = values if earlier is None else [*before, values]
        except ParameterError as error:
            said = error.in_options(option, {}).removeprefix(f"{option(self.dest)} ")
            parser.error(f"argument {name}: {said}")


def add_all(section: Any, arguments: Sequence[Argument]) -> None:
    """Adds options to a parser or a group, those of which one excludes the others together."""
    exclusive: dict[str, Any] = {}
    members = Counter(one.one_of for one in arguments)
    for one in arguments:
        place = section
        if one.one_of and members[one.one_of] > 1:
            if one.one_of not in exclusive:
                required = any(o.required for o in arguments if o.one_of == one.one_of)
                exclusive[one.one_of] = section.add_mutually_exclusive_group(required=required)
            place = exclusive[one.one_of]
        names = [f"-{one.short}"] * bool(one.short) + [f"--{one.name.replace('_', '-')}"]
        place.add_argument(*names, **_how(one, required=one.required and place is section))


def _how(one: Argument, required: bool) -> dict[str, Any]:
    """The arguments of `add_argument`."""
    how: dict[str, Any] = {"help": one.described(option, " ", "column").replace("%", "%%")}
    how["default"] = one.default
    if one.kind is SWITCH:
        return how | {"action": "store_true"}
    how |= {"action": Store, "argument": one, "required": required}
    metavars = one.metavar.split()
    if one.choices:
        how["choices"] = one.choices
    elif metavars[1:] == ["..."]:
        how |= {"metavar": metavars[0], "nargs": "+"}
    elif metavars[1:]:
        how |= {"metavar": tuple(metavars), "nargs": len(metavars)}
    elif metavars:
        how["metavar"] = metavars[0]
    return how


# Parsed options


def budget_of(options: argparse.Namespace) -> Budget:
    """The budget, or a ValueError where there is none, more than one, or an impossible one."""
    with named_as_options(options):
        return groups.budget(vars(options))


def check_bounds(options: argparse.Namespace) -> None:
    """Raise ValueError for values without --bounds: a default would clip them unasked."""
    # By identity: the default's numbers, spelt out, pass, and give the same replayable noise.
    if options.value is not None and options.bounds is DEFAULT_BOUNDS:
        raise ValueError(
            "--value needs --bounds LOW HIGH, the (public) range that values are clipped to: the "
            "noise is made for it, and what lies beyond is lost; give e.g. --bounds 0 100"
        )


def entropy_of(options: argparse.Namespace, more: Any = ()) -> Entropy:
    """Where the noise comes from. Replayable noise depends on all options that affect the counts.

    `more` is what else may change the counts, and is neither in the options nor in the library's
    parameters. A run id without a secret, or an invalid name of a variable, is a ValueError.
    """
    # Without defaults, so that options of later versions do not change the noise.
    counted = dict(options.counted)
    if "input" in counted:
        counted["input"] = [real_path(path) for path in options.input]
    with named_as_options(options):
        entropy = groups.entropy(vars(options), repr((sorted(counted.items()), more)))
    if entropy is None:
        return SystemEntropy()
    entropy.check()
    return entropy


def real_path(path: str) -> str:
    """A local path or pattern without links, from the root; others as they are."""
    return path if "://" in path or path in (STANDARD, STANDARD_INPUT) else os.path.realpath(path)


def public_list(name: str, options: argparse.Namespace, inputs: Sequence[str]) -> list[str]:
    """Distinct public texts, from --NAME or the lines of --NAME-file without blank ones.

    An InputError where there is no text or one is there twice, and where the file cannot be read or
    is an output or an input as well.
    """
    path, place = getattr(options, f"{name}_file"), f"--{name}"
    if path is None:
        texts = getattr(options, name, None) or []
    else:
        place = f"--{name}-file {path!r}"
        for output in filter(None, (options.output, options.plot, options.report)):
            if os.path.realpath(output) == os.path.realpath(path):
                raise InputError(f"output {output!r} is the --{name}-file too; name another file")
        if os.path.realpath(path) in map(os.path.realpath, inputs):
            raise InputError(f"{place} is an input too, and data is not public; name another file")
        try:
            with open(path, encoding="utf-8-sig") as file:
                texts = [line.rstrip("\n") for line in file if line.strip()]
        except OSError as error:
            raise InputError(f"{place}: cannot be read: {error.strerror or error}") from None
        except UnicodeDecodeError:
            raise InputError(f"{place}: not UTF-8 text; convert the file") from None
    if not texts:
        raise InputError(f"{place}: it is empty; give one text per line")
    for text, times in Counter(texts).items():
        if times > 1:
            raise InputError(f"{place}: {text!r} is there twice; give it once")
    return texts


def most_items(options: argparse.Namespace, name: str, public: Sequence[str] | None) -> int:
    """--max-items, or 1; an InputError where it, --separator and the public texts do not fit.

    `public` is None where keys are not listed.
    """
    separator = options.separator
    if (separator is None) != (options.max_items is None):
        raise InputError("give --separator and --max-items together, or neither; see --help")
    if separator is None:
        return 1
    if not separator:
        raise InputError("--separator must not be empty; leave it out where a cell is one item")
    if public is None:
        return check_whole("max_items", options.max_items)
    for text in public:
        if separator in text:
            raise InputError(f"{name}: {text!r} holds the --separator {separator!r}")
    if not 1 <= options.max_items <= len(public):
        raise InputError(
            f"--max-items must be a whole number from 1 to {len(public):,}, as many as {name} has, "
            f"got {options.max_items}"
        )
    return int(options.max_items)


def check_top(options: argparse.Namespace) -> None:
    if options.top is not None and options.top < 1:
        raise InputError(f"--top must be a whole number from 1, got {options.top}")


def option(name: str) -> str:
    """The option of a parameter."""
    return "-k" if name == "k" else f"--{name.replace('_', '-')}"


@contextmanager
def named_as_options(
    options: argparse.Namespace,
    remedies: Mapping[str, str] = MappingProxyType({}),
    names: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[None]:
    """Turns errors about parameters into errors about options.

    `remedies` and `names` are by parameter: what to do, and what the option is called if not so.
    """
    try:
        yield
    except UnsupportedBudgetError:
        takes = "Laplace noise, which --rho does not allow: give --epsilon in its place"
        if options.rho is None and options.delta is None:
            takes = "Gaussian noise, which --epsilon alone (pure DP) does not allow: give --delta "
            takes += "1e-6 as well, or --mechanism BridgedKAry or SmoothLaplace"
        message = f"--mechanism {options.mechanism} takes {takes}, or leave --mechanism out"
        raise ValueError(message) from None
    except ParameterError as error:
        spelled = error.in_options(lambda name: option(names.get(name, name)), remedies)
        raise ValueError(spelled) from None

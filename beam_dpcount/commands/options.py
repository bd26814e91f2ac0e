"""The options that commands share, and checks of them before any file is opened."""

from __future__ import annotations

import argparse
import difflib
import math
import os
import re
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, NoReturn

from beam_dpcount import mechanisms
from beam_dpcount.arguments.meant import did_you_mean
from beam_dpcount.budget.budgets import ZCDP, ApproxDP, Budget, PureDP
from beam_dpcount.checks import ParameterError, check_whole
from beam_dpcount.commands.files.formats import STANDARD, STANDARD_INPUT, InputError
from beam_dpcount.counters.counter import UnsupportedBudgetError
from beam_dpcount.noise.entropy import Entropy, SystemEntropy
from beam_dpcount.noise.replay import ReplayableEntropy

# Options that do not change what is counted; all others keep replayable noise apart.
NOT_COUNTED = frozenset(
    (
        "path",
        "output",
        "plot",
        "plot_keys",
        "report",
        "rejected",
        "show_truth",
        "top",
        "all",
        "min_count",
        "until",
    )
) | {
    "secret_env",
    "secret_file",
    "show_header",
    "output_format",
    "overwrite",
    "account",
    "allow_public",
    "check",
    "dry_run",
}
# Of these, those that choose which releases are written.
CHOOSING = frozenset(("top", "all", "min_count"))
_BOUNDS = (0.0, 1.0)  # the default
_WHOLE = frozenset("BDJKMNTW")  # metavars
REQUIRED = {"required": True}

Group = argparse._ArgumentGroup


class Parser(argparse.ArgumentParser):
    """Reports errors in one line, without the usage."""

    def __init__(self, name: str, description: str | None, example: str = "") -> None:
        """`example`: a command line to begin with, on the log of `demo` where it reads one."""
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
        """Adds `given` to the options: those that differ from their defaults."""
        self._given = sys.argv[1:] if args is None else list(args)
        options, others = super().parse_known_args(args, namespace)
        found = vars(options)
        options.given = {n: x for n, x in found.items() if x != self.get_default(n)}
        return options, others

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


# Types and actions


class Once(argparse.Action):
    """Refuses an option that is given twice; argparse would take the last value."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option: Any = None) -> None:
        if getattr(namespace, self.dest) is not None:
            parser.error(f"argument {option}: given twice; only one condition can be counted")
        setattr(namespace, self.dest, values)


class Columns(argparse.Action):
    """One column, or two as a tuple."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option: Any = None) -> None:
        if len(values) > 2:
            parser.error(f"argument {option}: takes one column, or two, DATE TIME")
        setattr(namespace, self.dest, values[0] if len(values) == 1 else tuple(values))


class Bounds(argparse.Action):
    """Two finite numbers, the lower one first."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option: Any = None) -> None:
        low, high = map(_float, values)
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            parser.error(
                f"argument {option}: must be finite numbers, low < high, got {' '.join(values)}: "
                f"give the range that values are clipped to, e.g. {option} 0 1"
            )
        setattr(namespace, self.dest, (low, high))


def whole(text: str) -> int:
    """A whole number, such as 20000, 20_000 or 1e6."""
    number = float(text)
    if not number.is_integer():  # nor infinite
        raise ValueError
    return int(text) if text.lstrip("+-").replace("_", "").isdigit() else int(number)


def many(example: str) -> Callable[[str], int]:
    """A type for argparse: how many there are of something; the error gives this example."""

    def parsed(text: str) -> int:
        try:
            return whole(text)
        except ValueError:
            wrong = f"must be a whole number, got {text!r}: say how many there are, e.g. {example}"
            raise argparse.ArgumentTypeError(wrong) from None

    return parsed


def positive(example: str) -> Callable[[str], float]:
    """A type for argparse: positive, finite numbers; the error gives this example."""

    def parsed(text: str) -> float:
        number = _float(text)
        if not (math.isfinite(number) and number > 0):
            raise argparse.ArgumentTypeError(
                f"must be a positive, finite number, got {text!r}: give e.g. {example}"
            )
        return number

    return parsed


def delta(remedy: str) -> Callable[[str], float]:
    """A type for argparse: a probability; the error gives this remedy."""

    def parsed(text: str) -> float:
        number = _float(text)
        if not 0 < number < 1:
            wrong = f"must be positive and below 1, got {text!r}"
            raise argparse.ArgumentTypeError(f"{wrong}: {remedy}")
        return number

    return parsed


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def mechanism(text: str) -> str:
    """The name of a mechanism, given in any case."""
    names = {kind.__name__.lower(): kind.__name__ for kind in mechanisms.ALL}
    if text.lower() in names:
        return names[text.lower()]
    known = f"{did_you_mean(text, names.values())}choose one of {', '.join(names.values())}"
    raise argparse.ArgumentTypeError(f"unknown mechanism {text!r}: {known}")


# Groups of options


def add(group: Any, table: str, **more: dict[str, Any]) -> None:
    """Adds options from a table like their help, ``--name METAVAR: help``; longer help is indented.

    Without a metavar an option is a switch. Several metavars take as many values, ``FILE ...`` any
    number; ``{this,that}`` is a choice. B, D, J, K, M, N, T and W stand for whole numbers. `more`
    has further arguments of `add_argument`, by the name of the parsed option.
    """
    for entry in re.split(r"\n(?=\S)", textwrap.dedent(table).strip()):
        usage, _, text = entry.partition(": ")
        words = usage.split()
        names = [word for word in words if word.startswith("-")]
        values = words[len(names) :]
        how: dict[str, Any] = {"help": " ".join(text.split())}
        if not values:
            how["action"] = "store_true"
        elif values[0].startswith("{"):
            how["choices"] = tuple(values[0][1:-1].split(","))
        else:
            how |= {"type": whole} if values[0] in _WHOLE else {}
            how |= {"nargs": "+"} if values[-1] == "..." else {}
            how |= {"nargs": 2} if len(values) == 2 and "nargs" not in how else {}
            how["metavar"] = tuple(values) if how.get("nargs") == 2 else values[0]
        group.add_argument(*names, **how | more.get(names[-1].strip("-").replace("-", "_"), {}))


def add_source(parser: Parser) -> Group:
    """Returns the group of input options, for those of the command."""
    group = parser.add_argument_group("input")
    table = """
        --input FILE ...: CSV, JSON lines or Parquet files, patterns, or folders of them; - is
          standard input. A column may be a field within another: user.id
        --format {csv,jsonl,parquet}: of the files; default: by their names, such as x.jsonl.gz, and
          CSV for others and for standard input
        --delimiter DELIMITER: of CSV files (default: a comma)
        --multiline: quoted cells of CSV files may hold line breaks; default: a row ends with its
          line. With it a broken quote, in any row, ends the run before anything is counted, which
          shows that there is one
        --show-header: where a column is missing, show the first line of the CSV file, which is
          data if the file has no header, or the fields of the line of JSON
    """
    add(group, table, input=REQUIRED, delimiter={"default": ","})
    return group


def add_key(group: Group, what: str = "the (public) keys; default: one for all") -> None:
    add(group, f"--key COLUMN: {what}")


def add_value(group: Group, where: str) -> None:
    """--value and --where; `where` is the help of the latter."""
    table = f"""
        --value COLUMN: count the numbers in this column
        --where COLUMN=VALUE: {where}
    """
    add(group.add_mutually_exclusive_group(), table, where={"action": Once})


def add_public(group: Any, name: str, noun: str, what: str) -> None:
    """--NAME and --NAME-FILE, one of which lists public texts; exclusive with others of a group."""
    if not isinstance(group, argparse._MutuallyExclusiveGroup):
        group = group.add_mutually_exclusive_group(required=True)
    table = f"""
        --{name} {noun} ...: {what}
        --{name}-file FILE: the same, one per line; blank lines are skipped
    """
    add(group, table)


def add_items(group: Group, what: str, order: str = "in the order given here") -> None:
    """Options of cells that hold several keys or items, of which the first in an order count."""
    table = f"""
        --separator TEXT: what stands between the {what} of a cell that holds several, e.g. ';'
          (default: a cell is one, as a whole); needs --max-items
        --max-items B: the most {what} that one row counts: the first {order}; more of them need
          more noise; needs --separator
    """
    add(group, table)


def add_time(group: Group, required: bool = False) -> None:
    table = f"""
        --timestamp COLUMN ...: {"the rows' times" if required else "order rows by this column"};
          or two, DATE TIME, read as one text with a blank between
        --timestamp-format FORMAT: unix (seconds; default), unix-ms, iso, or a strptime format,
          in which %%L is milliseconds without padding
        --timezone NAME: of times without an offset (default UTC)
    """
    defaults = {"timestamp_format": {"default": "unix"}, "timezone": {"default": "UTC"}}
    column = {"required": required, "action": Columns, "metavar": "COLUMN"}
    add(group, table, timestamp=column, **defaults)


def add_budget(parser: Parser, covers: str = "all releases of one key together") -> None:
    """--epsilon, --delta and --rho, under a title that says what they cover."""
    table = """
        --epsilon E: alone: pure DP; with --delta: (E, D)-DP
        --delta D: e.g. 1e-6
        --rho R: zero-concentrated DP
    """
    epsilon, rho = {"type": positive("--epsilon 1")}, {"type": positive("--rho 0.1")}
    some = {"type": delta("give e.g. --delta 1e-6, or leave it out for pure DP")}
    group = parser.add_argument_group(f"privacy budget, for {covers}")
    add(group, table, epsilon=epsilon, delta=some, rho=rho)


def add_horizon(group: Group) -> None:
    add(group, "--horizon T: the most rows that a key may have", horizon=REQUIRED)


def add_mechanism(parser: Parser, group: Group) -> None:
    """--mechanism, and a group of its own on where noise comes from."""
    names = ", ".join(kind.__name__ for kind in mechanisms.ALL)
    what = f"{names}, in any case; default: the one of least largest error"
    add(group, f"--mechanism NAME: {what}", mechanism={"type": mechanism})
    noise = parser.add_argument_group(
        "replayable noise",
        "The same noise whenever the same rows of the same files are counted again with the same "
        "options and secret; default: new noise in every run. docs/reliability.md says when.",
    )
    where = """
        --secret-env NAME: the environment variable that holds the secret, on every worker
        --secret-file FILE: a file that holds it, readable on every worker
    """
    run = """
        --run-id TEXT: public; give another one whenever rows that have changed are counted again
          (files and options are told apart without)
    """
    add(noise.add_mutually_exclusive_group(), where)
    add(noise, run, run_id={"default": ""})


def add_bounds(group: Group) -> None:
    table = """
        --bounds LOW HIGH: values are clipped to them; wider bounds need more noise; no default for
          a column of values, else 0 1
        --unit U: values are rounded to multiples of it (default 1)
    """
    unit = {"type": positive("--unit 0.01"), "default": 1}
    add(group, table, bounds={"action": Bounds, "default": _BOUNDS}, unit=unit)


def add_relation(group: Group, relations: Sequence[str], what: str) -> None:
    """--relation; the first one is the default."""
    table = f"--relation {{{','.join(relations)}}}: {what}"
    add(group, table, relation={"default": relations[0]})


def add_every(group: Group, default: str) -> None:
    table = f"""
        --every M: a release after every M rows of a key; the budget is for all releases, and the
          noise does not depend on M. {default}
    """
    add(group, table)


def add_path(
    group: Group, streaming: str = "count by state and timers, as on unbounded input"
) -> None:
    table = f"--path {{auto,bounded,streaming}}: streaming: {streaming}"
    add(group, table, path={"default": "auto"})


def add_output(parser: Parser) -> Group:
    """Returns the group of output options, for those of the command."""
    group = parser.add_argument_group("output")
    table = """
        --output OUT: a .csv, .jsonl or .parquet file, or .csv.gz, .jsonl.gz; - is standard output,
          and what is said goes to standard error
        --output-format {csv,jsonl,parquet}: of --output - (default csv)
        --plot PNG: draw the counts of some keys
        --report HTML: one page to read and hand on: counts, guarantee, data; needs no network
        --plot-keys KEY ...: the keys to draw; default: chosen by public facts named in the picture
        --overwrite: replace files of these names that are there already
        --account FILE: charge this run to an account. It is refused if it costs more than is left,
          or if one run publishes a column that another protects; `beam-dpcount account` makes and
          prints such files
        --allow-public COLUMN ...: with --account: columns that may be public in one run and
          protected in another; the account then claims nothing about them. :presence is that a row
          exists, with its time; :unknown are columns of runs in an account of an earlier version
        --dry-run: count nothing, and say what a run would: what is guaranteed, and how large errors
          will be, step by step; nothing is spent or written
        --check: PRIVATE: count nothing, and say on the terminal what of the rows would not count
          as you may think, such as keys that never occur; exit status 1 if something looks wrong
    """
    add(group, table, output=REQUIRED)
    parser.set_defaults(rejected=None, on_reject="drop", show_truth=False, user=None)
    return group


SHOW_TRUTH = "--show-truth: PRIVATE: also draw exact counts, which are the data; for demonstrations"

# Parsed options


def budget_of(options: argparse.Namespace) -> Budget:
    """The budget, or a ValueError where there is none, more than one, or an impossible one."""
    if options.rho is not None:
        if options.epsilon is not None or options.delta is not None:
            raise ValueError("give either --rho or --epsilon with --delta, not both")
        return ZCDP(options.rho)
    if options.epsilon is None:
        raise ValueError("give a budget: --epsilon 1 --delta 1e-6, or --epsilon 1, or --rho 0.1")
    if options.delta is None:
        return PureDP(options.epsilon)
    return ApproxDP(options.epsilon, options.delta)


def check_bounds(options: argparse.Namespace) -> None:
    """Raise ValueError for values without --bounds: a default would clip them unasked."""
    # By identity: the default's numbers, spelt out, pass, and give the same replayable noise.
    if options.value is not None and options.bounds is _BOUNDS:
        raise ValueError(
            "--value needs --bounds LOW HIGH, the (public) range that values are clipped to: the "
            "noise is made for it, and what lies beyond is lost; give e.g. --bounds 0 100"
        )


def entropy_of(options: argparse.Namespace, more: Any = ()) -> Entropy:
    """Where the noise comes from. Replayable noise depends on all options that affect the counts.

    `more` is what else may change the counts, and is neither in the options nor in the library's
    parameters. A run id without a secret, or an invalid name of a variable, is a ValueError.
    """
    if options.secret_env is None and options.secret_file is None:
        if options.run_id:
            raise ValueError("--run-id is for replayable noise: give --secret-env or --secret-file")
        return SystemEntropy()
    # Without defaults, so that options of later versions do not change the noise.
    counted = {name: value for name, value in options.given.items() if name not in NOT_COUNTED}
    counted["input"] = [real_path(path) for path in options.input]
    run_id = repr((sorted(counted.items()), more))
    made = ReplayableEntropy(options.secret_env, key_file=options.secret_file, run_id=run_id)
    made.check()
    return made


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
        texts = getattr(options, name) or []
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

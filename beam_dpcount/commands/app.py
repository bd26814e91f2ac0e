"""What the command lines share: budget and Beam options, one-line errors, a progress line."""

from __future__ import annotations

import argparse
import difflib
import importlib
import logging
import math
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, NoReturn

import apache_beam as beam
from apache_beam.metrics.metric import Metrics, MetricsFilter
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions

from beam_dpcount import mechanisms
from beam_dpcount.budget.budgets import ZCDP, ApproxDP, Budget, PureDP, WeakBudgetWarning, weakness
from beam_dpcount.checks import ParameterError
from beam_dpcount.counters.counter import UnsupportedBudgetError
from beam_dpcount.noise.entropy import Entropy, SystemEntropy
from beam_dpcount.noise.replay import ReplayableEntropy
from beam_dpcount.transforms.runners import RunnerWarning, check_name

# Options that change nothing of what is counted; all others keep replayable noise apart.
NOT_COUNTED = frozenset(
    ("path", "output", "plot", "plot_keys", "rejected", "show_truth", "top", "all", "min_count")
) | {"secret_env", "secret_file", "show_header"}
_BOUNDS = (0.0, 1.0)  # the default
# A pipeline without --runner runs here. Beam's own default may first try to download a runner.
LOCAL_RUNNER = "FnApiRunner"

_format_warning = warnings.formatwarning


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, as every other error, without the usage."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message} (see --help)")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse does; `given` of the options has those that are not their defaults."""
        options, others = super().parse_known_args(args, namespace)
        found = vars(options)
        options.given = {n: x for n, x in found.items() if x != self.get_default(n)}
        return options, others

    def names(self) -> list[str]:
        """All options."""
        return [name for action in self._actions for name in action.option_strings]

    def parse_ours(self, argv: Sequence[str] | None) -> argparse.Namespace:
        """The options of a command that runs no pipeline, and so has no options of Beam's.

        Raises:
          ValueError: there is an argument that no option takes.
        """
        options, flags = self.parse_known_args(argv)
        if flags:
            raise ValueError(unknown_argument(flags[0], self.names(), "ours"))
        return options


def unknown_argument(argument: str, names: Collection[str], whose: str) -> str:
    """What to say of an argument that nobody takes: the option that may have been meant."""
    name = argument.split("=", 1)[0]
    meant = difflib.get_close_matches(name, names, 1) if name.startswith("-") else []
    hint = f"did you mean {meant[0]}? " if meant else ""
    return f"unknown argument {name}: {hint}see --help for {whose}"


class Once(argparse.Action):
    """Refuses an option's second value, which argparse would let win."""

    def __call__(
        self, parser: Any, namespace: argparse.Namespace, values: Any, option: Any = None
    ) -> None:
        if getattr(namespace, self.dest) is not None:
            parser.error(f"argument {option}: given twice; only one condition can be counted")
        setattr(namespace, self.dest, values)


def whole(text: str) -> int:
    """A whole number, also as 20_000 or 1e6; for argparse."""
    number = float(text)
    if not number.is_integer():  # nor infinite
        raise ValueError
    return int(text) if text.lstrip("+-").replace("_", "").isdigit() else int(number)


def positive(example: str) -> Callable[[str], float]:
    """A type for argparse: positive, finite numbers, of which the option has this example."""

    def parsed(text: str) -> float:
        number = _float(text)
        if not (math.isfinite(number) and number > 0):
            raise argparse.ArgumentTypeError(
                f"must be a positive, finite number, got {text!r}: give e.g. {example}"
            )
        return number

    return parsed


def delta(text: str) -> float:
    """The delta of a budget, for argparse."""
    number = _float(text)
    if not 0 < number < 1:
        raise argparse.ArgumentTypeError(
            f"must be positive and below 1, got {text!r}: give e.g. --delta 1e-6, or leave it out "
            "for pure DP"
        )
    return number


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


class Bounds(argparse.Action):
    """Takes two finite numbers, the lower one first."""

    def __call__(
        self, parser: Any, namespace: argparse.Namespace, values: Any, option: Any = None
    ) -> None:
        low, high = map(_float, values)
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            parser.error(
                f"argument {option}: must be finite numbers, low < high, got {' '.join(values)}: "
                f"give the range that values are clipped to, e.g. {option} 0 1"
            )
        setattr(namespace, self.dest, (low, high))


def mechanism(text: str) -> str:
    """The name of a mechanism, given in any case; for argparse."""
    names = [kind.__name__ for kind in mechanisms.ALL]
    for name in names:
        if name.lower() == text.lower():
            return name
    raise argparse.ArgumentTypeError(
        f"unknown mechanism {text!r}: choose one of {', '.join(names)}"
    )


def many(count: int, noun: str) -> str:
    """A number of things."""
    return f"{count:,} {noun}" + "s" * (count != 1)


def command(module: str, description: str | None) -> Parser:
    """The parser of a command; what it does not know is Beam's."""
    return Parser(
        prog=f"python -m {module}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def add_source_arguments(group: argparse._ArgumentGroup) -> None:
    """--input, --delimiter and --show-header."""
    group.add_argument(
        "--input",
        required=True,
        nargs="+",
        metavar="FILE",
        help="CSV or Parquet files, or patterns",
    )
    group.add_argument("--delimiter", default=",", help="of CSV files (default: a comma)")
    group.add_argument(
        "--show-header",
        action="store_true",
        help="where a column is missing, show the first line of the CSV file, which is data if the "
        "file has no header",
    )


def add_time_arguments(group: argparse._ArgumentGroup, required: bool = False) -> None:
    """--timestamp, --timestamp-format and --timezone."""
    group.add_argument(
        "--timestamp",
        required=required,
        metavar="COLUMN",
        help="the rows' times" if required else "order rows by this column",
    )
    group.add_argument(
        "--timestamp-format",
        default="unix",
        metavar="FORMAT",
        help="unix (seconds; default), unix-ms, iso, or a strptime format, in which %%L is "
        "milliseconds without padding",
    )
    group.add_argument(
        "--timezone",
        default="UTC",
        metavar="NAME",
        help="of times without an offset (default UTC)",
    )


def add_mechanism_argument(group: argparse._ArgumentGroup) -> None:
    """--mechanism."""
    names = ", ".join(kind.__name__ for kind in mechanisms.ALL)
    group.add_argument(
        "--mechanism",
        type=mechanism,
        metavar="NAME",
        help=f"{names}, in any case; default: the one of least largest error",
    )


def add_entropy_arguments(parser: argparse.ArgumentParser) -> None:
    """--secret-env, --secret-file and --run-id."""
    group = parser.add_argument_group(
        "replayable noise",
        "The same noise whenever the same rows of the same files are counted again with the same "
        "options and secret; default: new noise in every run. docs/reliability.md says when.",
    )
    where = group.add_mutually_exclusive_group()
    where.add_argument(
        "--secret-env",
        metavar="NAME",
        help="the environment variable that holds the secret, on every worker",
    )
    where.add_argument(
        "--secret-file", metavar="FILE", help="a file that holds it, readable on every worker"
    )
    group.add_argument(
        "--run-id",
        default="",
        metavar="TEXT",
        help="public; give another one whenever rows that have changed are counted again (files "
        "and options are told apart without)",
    )


def entropy_of(options: argparse.Namespace, more: Any = ()) -> Entropy:
    """Where the noise of parsed options comes from: of all of them that may change what is counted.

    Args:
      more: what else may, and neither the options nor the library's parameters hold.

    Raises:
      ValueError: a run id without a secret, or no name of a variable.
    """
    if options.secret_env is None and options.secret_file is None:
        if options.run_id:
            raise ValueError("--run-id is for replayable noise: give --secret-env or --secret-file")
        return SystemEntropy()
    # Not the defaults, so that an option that a later version adds changes no noise.
    counted = {name: value for name, value in options.given.items() if name not in NOT_COUNTED}
    counted["input"] = [real_path(path) for path in options.input]
    run_id = repr((sorted(counted.items()), more))
    made = ReplayableEntropy(options.secret_env, key_file=options.secret_file, run_id=run_id)
    made.check()
    return made


def real_path(path: str) -> str:
    """A path, or pattern, on this machine without links and from its root; others as they are."""
    return path if "://" in path else os.path.realpath(path)


def add_value_arguments(group: argparse._ArgumentGroup) -> None:
    """--bounds and --unit."""
    group.add_argument(
        "--bounds",
        action=Bounds,
        nargs=2,
        default=_BOUNDS,
        metavar=("LOW", "HIGH"),
        help="values are clipped to them, which wider bounds need more noise for; no default for a "
        "column of values, else 0 1",
    )
    group.add_argument(
        "--unit",
        type=positive("--unit 0.01"),
        default=1,
        metavar="U",
        help="values are rounded to multiples of it (default 1)",
    )


def check_bounds(options: argparse.Namespace) -> None:
    """Raise ValueError for values without --bounds: a default would clip them unasked."""
    # By identity, so that bounds which are spelt out, and equal the default, pass; and a default
    # that is equal to them makes the same replayable noise.
    if options.value is not None and options.bounds is _BOUNDS:
        raise ValueError(
            "--value needs --bounds LOW HIGH, the (public) range that values are clipped to: the "
            "noise is made for it, and what lies beyond is lost; give e.g. --bounds 0 100"
        )


def add_budget_arguments(
    parser: argparse.ArgumentParser, covers: str = "all releases of one key together"
) -> None:
    """--epsilon, --delta and --rho, under a title that says what they cover."""
    group = parser.add_argument_group(f"privacy budget, for {covers}")
    group.add_argument(
        "--epsilon",
        type=positive("--epsilon 1"),
        metavar="E",
        help="alone: pure DP; with --delta: (E, D)-DP",
    )
    group.add_argument("--delta", type=delta, metavar="D", help="e.g. 1e-6")
    group.add_argument(
        "--rho", type=positive("--rho 0.1"), metavar="R", help="zero-concentrated DP"
    )


def budget_of(options: argparse.Namespace) -> Budget:
    """The budget of parsed options.

    Raises:
      ValueError: none, or more than one, was given, or it makes no sense.
    """
    if options.rho is not None:
        if options.epsilon is not None or options.delta is not None:
            raise ValueError("give either --rho or --epsilon with --delta, not both")
        return ZCDP(options.rho)
    if options.epsilon is None:
        raise ValueError("give a budget: --epsilon 1 --delta 1e-6, or --epsilon 1, or --rho 0.1")
    if options.delta is None:
        return PureDP(options.epsilon)
    return ApproxDP(options.epsilon, options.delta)


def announce(options: argparse.Namespace, notes: Sequence[str]) -> None:
    """Print, before anything runs, that the budget is weak, if it is, and the notes."""
    weak = weakness(budget_of(options))
    print("\n".join([*([f"warning: {weak}"] if weak else []), *notes]))


def option(name: str) -> str:
    """The option of a parameter."""
    return "-k" if name == "k" else f"--{name.replace('_', '-')}"


@contextmanager
def named_as_options(
    options: argparse.Namespace, remedies: Mapping[str, str] = MappingProxyType({})
) -> Iterator[None]:
    """Errors about a parameter become errors about the option that gave it.

    Args:
      remedies: what to do in the words of the command, by the parameter that is wrong.
    """
    try:
        yield
    except UnsupportedBudgetError:
        if options.rho is None and options.delta is None:
            takes = "Gaussian noise, which --epsilon alone (pure DP) does not allow: give --delta "
            takes += "1e-6 as well, or --mechanism BinaryTree or KAry"
        else:
            takes = "Laplace noise, which --rho does not allow: give --epsilon in its place"
        raise ValueError(
            f"--mechanism {options.mechanism} takes {takes}, or leave --mechanism out"
        ) from None
    except ParameterError as error:
        raise ValueError(error.in_options(option, remedies)) from None


def beam_options(flags: Sequence[str], ours: Collection[str] = ()) -> PipelineOptions:
    """Beam's options from the flags that are not ours.

    Args:
      flags: what is left of the command line.
      ours: the names of our options, one of which may have been meant.

    Raises:
      RunnerError: the runner breaks the guarantee.
      ValueError: no option of Beam's has that name. Remote runners have options that only they
        know, so with those unknown flags pass.
    """
    options = PipelineOptions(list(flags))
    standard = options.view_as(StandardOptions)
    standard.runner = standard.runner or LOCAL_RUNNER
    check_name(standard.runner)
    if standard.runner in (LOCAL_RUNNER, "DirectRunner", "BundleBasedDirectRunner"):
        parsers: list[argparse.ArgumentParser] = []
        options.get_all_options(add_extra_args_fn=parsers.append)
        _, unknown = parsers[0].parse_known_args(flags)
        if unknown:
            names = [*ours, *parsers[0]._option_string_actions]
            raise ValueError(unknown_argument(unknown[0], names, "ours and Beam's"))
    return options


def run_main(main: Callable[[Sequence[str] | None], None]) -> None:
    """Run a command: what a user can mend ends in one line on stderr and exit status 2.

    A module that was started by `python -m` is imported anew, by its name: workers in other
    processes find nothing that is defined in __main__.
    """
    spec = sys.modules["__main__"].__spec__
    named = vars(sys.modules["__main__"]).get(main.__name__) is main  # not under a profiler
    if named and spec is not None:
        main = getattr(importlib.import_module(spec.name), main.__name__)
    warnings.filterwarnings("ignore", category=WeakBudgetWarning)  # see announce
    logging.getLogger().setLevel(logging.ERROR)
    logging.getLogger("apache_beam").setLevel(logging.CRITICAL)
    warnings.formatwarning = format_warning
    try:
        main(None)
    except KeyboardInterrupt:
        sys.exit(130)
    except (ValueError, TypeError, OSError, RuntimeError) as error:
        if os.environ.get("BEAM_DPCOUNT_TRACEBACK"):
            raise
        print(f"error: {explain(error)}", file=sys.stderr)
        sys.exit(2)


def format_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    line: str | None = None,
) -> str:
    """A warning of this library in one line, as a command's own; others as Python shows them."""
    if issubclass(category, RunnerWarning):
        return f"warning: {message}\n"
    return _format_warning(message, category, filename, lineno, line)


def explain(error: BaseException) -> str:
    """An error's own words, without Beam's wrapping."""
    # The innermost error is the first one, unless one of ours has said it better since.
    chain = [error]
    while (cause := chain[-1].__cause__) is not None:
        chain.append(cause)
    ours = [e for e in chain if type(e).__module__.split(".")[0] in ("beam_dpcount", "pipelines")]
    text = str([*chain, *ours][-1])
    if "Traceback (most recent call last)" in text:  # from a remote worker: its last line counts
        lines = [line for line in text.splitlines() if line and not line.startswith(" ")]
        text = lines[-1] if lines else text
        text = text.split(": ", 1)[-1]
    return text.split(" [while running ", 1)[0]


class Progress:
    """Counts releases as they pass, and shows how many on runs longer than a few seconds.

    Counts of releases are public wherever this is used: one per element, or per tick and key.
    """

    _seen = 0  # in this process; workers elsewhere report by the metric below

    def __init__(self, out: Any = None, after: float = 3.0, every: float = 2.0) -> None:
        self._out, self._after, self._every = out or sys.stderr, after, every
        self._done = threading.Event()
        self._result: Any = None
        self._shown = False

    def __enter__(self) -> Progress:
        Progress._seen = 0
        self._start = time.monotonic()
        self._thread = threading.Thread(target=self._show, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        if self._shown:
            print(file=self._out)

    def watch(self, result: Any) -> Any:
        """The result of a running pipeline, whose metrics count releases made elsewhere."""
        self._result = result
        return result

    def _show(self) -> None:
        wait = self._after
        while not self._done.wait(wait):
            wait = self._every
            seen = max(Progress._seen, counted(self._result, "releases"))
            elapsed = time.monotonic() - self._start
            line = f"{seen:,} releases in {elapsed:.0f} s ({seen / elapsed:,.0f}/s)"
            end = "" if self._out.isatty() else "\n"
            print(f"\r{line:<60}" if not end else line, end=end, file=self._out, flush=True)
            self._shown = not end


class CountReleases(beam.DoFn):
    """Passes releases on and counts them, for `Progress`."""

    def __init__(self) -> None:
        self._counter = Metrics.counter("beam_dpcount", "releases")

    def start_bundle(self) -> None:
        self._pending = 0

    def process(self, release: Any) -> Iterator[Any]:
        self._pending += 1
        if self._pending == 1000:
            self.finish_bundle()
        yield release

    def finish_bundle(self) -> None:
        Progress._seen += self._pending
        self._counter.inc(self._pending)
        self._pending = 0


def counted(result: Any, name: str) -> int:
    """The value of one of our public counters, 0 where the runner has no metrics."""
    try:
        ours = MetricsFilter().with_namespace("beam_dpcount").with_name(name)
        # A counter that the runner knows of but has no value for has the result None.
        return sum(metric.result or 0 for metric in result.metrics().query(ours)["counters"])
    except Exception:  # each runner fails in its own way, and none of them matters here
        return 0

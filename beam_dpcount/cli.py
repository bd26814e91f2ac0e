"""What the command lines share: budget and Beam options, one-line errors, a progress line."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import apache_beam as beam
from apache_beam.metrics.metric import Metrics, MetricsFilter
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions

from beam_dpcount import mechanisms
from beam_dpcount.budget import ZCDP, ApproxDP, Budget, PureDP

# A pipeline without --runner runs here. Beam's own default may first try to download a runner.
LOCAL_RUNNER = "FnApiRunner"


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, as every other error, without the usage."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message} (see --help)")


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


def command(module: str, description: str | None) -> Parser:
    """The parser of a command; what it does not know is Beam's."""
    return Parser(
        prog=f"python -m {module}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def add_source_arguments(group: argparse._ArgumentGroup) -> None:
    """--input and --delimiter."""
    group.add_argument(
        "--input",
        required=True,
        nargs="+",
        metavar="FILE",
        help="CSV or Parquet files, or patterns",
    )
    group.add_argument("--delimiter", default=",", help="of CSV files (default: a comma)")


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
    group.add_argument("--timezone", default="UTC", metavar="NAME", help="of times without one")


def add_mechanism_argument(group: argparse._ArgumentGroup) -> None:
    """--mechanism."""
    names = ", ".join(kind.__name__ for kind in mechanisms.ALL)
    group.add_argument(
        "--mechanism", metavar="NAME", help=f"{names}; default: the one of least largest error"
    )


def add_value_arguments(group: argparse._ArgumentGroup) -> None:
    """--bounds and --unit."""
    group.add_argument(
        "--bounds",
        type=float,
        nargs=2,
        default=(0.0, 1.0),
        metavar=("LOW", "HIGH"),
        help="values are clipped to them (default 0 1); wider bounds need more noise",
    )
    group.add_argument(
        "--unit", type=float, default=1, help="values are rounded to multiples of it (default 1)"
    )


def add_budget_arguments(
    parser: argparse.ArgumentParser, covers: str = "all releases of one key together"
) -> None:
    """--epsilon, --delta and --rho, under a title that says what they cover."""
    group = parser.add_argument_group(f"privacy budget, for {covers}")
    group.add_argument(
        "--epsilon", type=float, metavar="E", help="alone: pure DP; with --delta: (E, D)-DP"
    )
    group.add_argument("--delta", type=float, metavar="D", help="e.g. 1e-6")
    group.add_argument("--rho", type=float, metavar="R", help="zero-concentrated DP")


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


def beam_options(flags: Sequence[str]) -> PipelineOptions:
    """Beam's options from the flags that are not ours.

    Raises:
      ValueError: no option of Beam's has that name. Remote runners have options that only they
        know, so with those unknown flags pass.
    """
    options = PipelineOptions(list(flags))
    standard = options.view_as(StandardOptions)
    standard.runner = standard.runner or LOCAL_RUNNER
    if standard.runner in (LOCAL_RUNNER, "DirectRunner", "BundleBasedDirectRunner"):
        parsers: list[argparse.ArgumentParser] = []
        options.get_all_options(add_extra_args_fn=parsers.append)
        _, unknown = parsers[0].parse_known_args(flags)
        if unknown:
            name = unknown[0].split("=", 1)[0]
            raise ValueError(f"unknown argument {name}: see --help for ours and Beam's")
    return options


def run_main(main: Callable[[Sequence[str] | None], None]) -> None:
    """Run a command: what a user can mend ends in one line on stderr and exit status 2."""
    logging.getLogger().setLevel(logging.ERROR)
    logging.getLogger("apache_beam").setLevel(logging.CRITICAL)
    try:
        main(None)
    except KeyboardInterrupt:
        sys.exit(130)
    except (ValueError, TypeError, OSError, RuntimeError) as error:
        if os.environ.get("BEAM_DPCOUNT_TRACEBACK"):
            raise
        print(f"error: {explain(error)}", file=sys.stderr)
        sys.exit(2)


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
        found = result.metrics().query(MetricsFilter().with_name(name))["counters"]
        return sum(metric.result for metric in found)
    except Exception:  # each runner fails in its own way, and none of them matters here
        return 0

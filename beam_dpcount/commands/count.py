"""Private running counts of an event log, one series per key, a release after every event.

Reads CSV or Parquet, counts each row's value under the key of the row, and writes one private
count for every row: key, step, timestamp, value, stddev. Rows of a key are taken in the order of
their timestamps (ties: by file and row), or without --timestamp in the order of the files.
An empty cell is a key like others; a null of Parquet is none, and stops the command.
The keys and the number, order and times of the rows are public; what a row counts is protected.
Options that are not listed here go to Beam, e.g. --runner.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import tempfile
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, NamedTuple, cast

import apache_beam as beam
import pyarrow as pa

import beam_dpcount as dp
from beam_dpcount.commands import app as cli
from beam_dpcount.commands import estimates
from beam_dpcount.commands.figures import keys as plot_keys
from beam_dpcount.commands.files import times as timestamps
from beam_dpcount.commands.files.read import (
    Event,
    InputError,
    ReadEvents,
    WriteReleases,
    check_inputs,
    check_output,
    matched,
    read_releases,
)
from beam_dpcount.commands.files.tables import WriteTable
from beam_dpcount.counters.counter import Counter
from beam_dpcount.dofns.elements import PAST_HORIZON

SHOWN = (
    "PRIVATE: this picture shows the exact counts, that is, the data, and no guarantee is for it. "
    "Publish one without --show-truth."
)


def arguments() -> cli.Parser:
    """The options of the command."""
    parser = cli.command("pipelines.count", __doc__)
    source = parser.add_argument_group("input")
    cli.add_source_arguments(source)
    source.add_argument("--key", required=True, metavar="COLUMN", help="the (public) keys")
    what = source.add_mutually_exclusive_group()
    what.add_argument("--value", metavar="COLUMN", help="count the numbers in this column")
    what.add_argument(
        "--where",
        action=cli.Once,
        metavar="COLUMN=VALUE",
        help="count 1 where the column has this text, else 0",
    )
    cli.add_time_arguments(source)

    cli.add_budget_arguments(parser)
    count = parser.add_argument_group("counting")
    add_horizon_argument(count)
    cli.add_mechanism_argument(count)
    cli.add_entropy_arguments(parser)
    cli.add_value_arguments(count)
    count.add_argument(
        "--on-reject",
        choices=("drop", "raise"),
        default="drop",
        help="a value that is no number counts 0; raise: stop instead, which shows that there is "
        "one",
    )
    count.add_argument(
        "--path",
        choices=("auto", "bounded", "streaming"),
        default="auto",
        help="streaming: count rows as they are read, in the order of the files",
    )

    sink = parser.add_argument_group("output")
    sink.add_argument("--output", required=True, metavar="OUT", help="a .csv or .parquet file")
    sink.add_argument(
        "--rejected",
        metavar="FILE",
        help="PRIVATE: where (file, row) and why rows did not count or gave no release, as CSV",
    )
    sink.add_argument("--plot", metavar="PNG", help="draw the counts of some keys")
    plot_keys.add_argument(sink)
    sink.add_argument(
        "--show-truth",
        action="store_true",
        help="PRIVATE: draw the exact counts too, which gives away the data: for demonstrations",
    )
    return parser


def add_horizon_argument(group: argparse._ArgumentGroup) -> None:
    """--horizon, of rows."""
    group.add_argument(
        "--horizon",
        type=cli.whole,
        required=True,
        metavar="T",
        help="the most rows that a key may have",
    )


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command.

    Raises:
      ValueError, TypeError, OSError: what the user can mend, in one line each.
    """
    parser = arguments()
    options, flags = parser.parse_known_args(argv)
    source = source_of(options)
    cli.budget_of(options)
    cli.check_bounds(options)
    check_inputs(**source)
    places = checked_places(options)
    with cli.named_as_options(options):
        counts = counting(options, places)
    pipeline = beam.Pipeline(options=cli.beam_options(flags, parser.names()))
    events = pipeline | "Read" >> ReadEvents(**source)
    releases = events | "Count" >> counts
    cli.announce(options, notes(options))
    counter = cast(Counter, counts.counter)  # of the path now chosen
    if options.rejected:
        releases, rejected = releases
        write_rejected(rejected, options.rejected)
    _ = (
        releases
        | "Progress" >> beam.ParDo(cli.CountReleases()).with_output_types(dp.Release)
        | "Write" >> WriteReleases(options.output, with_timestamps=options.timestamp is not None)
    )
    with tempfile.TemporaryDirectory() as scratch:
        truth = os.path.join(scratch, "truth.parquet")
        if options.show_truth:
            exact = beam.ParDo(ExactCounts(counter, options.path != "streaming")).with_output_types(
                dp.Release
            )
            timed = events | "Timed" >> beam.ParDo(WithTime(places))
            _ = (
                timed
                | beam.GroupByKey()
                | "Exact" >> exact
                | "WriteTruth" >> WriteReleases(truth, with_timestamps=True)
            )
        result = run(pipeline, options)
        missing = []
        if options.plot:
            missing = draw(options, counter, read_releases(truth) if options.show_truth else None)
    print("\n".join([report(options, counter, result), *missing]))


def notes(options: argparse.Namespace) -> list[str]:
    """What a row counts."""
    if options.value is not None:
        return [f"note: values are {clipped(options)}"]
    if options.where is not None:
        return [
            f"note: rows count 1 where {options.where} to the letter, and 0 elsewhere",
            unchecked("the condition is", "its"),
        ]
    return [
        "note: without --value or --where every row counts 1, and the number of rows is public: "
        "nothing is left to protect"
    ]


def clipped(options: argparse.Namespace) -> str:
    """What --bounds and --unit do to values."""
    rejects = "; what is no number counts 0" if options.on_reject == "drop" else ""
    return f"{estimates.clipped(options)} (--bounds, --unit){rejects}"


def unchecked(what_is: str, whose: str) -> str:
    """A note on public names that are never found missing, as that would tell of the data."""
    return f"note: {what_is} not checked against the data: check {whose} spelling"


def source_of(options: argparse.Namespace) -> dict[str, Any]:
    """What `ReadEvents` and `check_inputs` take."""
    names = ("key", "value", "where", "timestamp", "timestamp_format", "timezone", "delimiter")
    return {
        "inputs": options.input,
        **{name: getattr(options, name) for name in (*names, "show_header")},
    }


def run(pipeline: beam.Pipeline, options: argparse.Namespace) -> Any:
    """The result of the finished pipeline; a refusal of a single value names its column."""
    try:
        with cli.Progress() as progress:
            result = progress.watch(pipeline.run())
            result.wait_until_finish()
            return result
    except Exception as error:
        reason = cli.explain(error)
        if options.on_reject == "raise" and reason.startswith("the value is not a number"):
            reason = reason.replace('on_reject="drop"', "--on-reject drop")
            raise InputError(f"column {options.value!r}: {reason}") from None
        raise


def counting(options: argparse.Namespace, places: Places) -> dp.PrefixCount:
    """The transform that the options ask for."""
    return dp.PrefixCount(
        cli.budget_of(options),
        options.horizon,
        mechanism=options.mechanism,
        bounds=tuple(options.bounds),
        unit=options.unit,
        on_reject="collect" if options.rejected else options.on_reject,
        value=value_of,
        element_id=places,
        path=options.path,
        entropy=cli.entropy_of(options),
    )


def value_of(event: Event) -> object:
    """What a row counts, as the file says it."""
    return event.value


class Place(NamedTuple):
    """The public id of a row, which sorts by the order in which the files were given."""

    number: int
    file: str
    row: int

    def __str__(self) -> str:
        return f"{self.file}, row {self.row}"


class Places:
    """The places of events in the files that were given."""

    def __init__(self, inputs: Sequence[str]) -> None:
        self.paths = matched(inputs)
        self._numbers = {path: number for number, path in enumerate(self.paths)}

    def __call__(self, event: Event) -> Place:
        return Place(self._numbers.get(event.file, len(self._numbers)), event.file, event.row)


def checked_places(options: argparse.Namespace) -> Places:
    """The places of the rows of the input, with all outputs checked against it and each other.

    Raises:
      InputError: an output cannot be written, or would overwrite an input or another output.
    """
    check_output(options.output)
    places = Places(options.input)
    check_side_outputs(options, places)
    return places


def check_side_outputs(options: argparse.Namespace, places: Places) -> None:
    """Raise InputError for outputs that would overwrite an input or each other, or cannot be."""
    outputs = [p for p in (options.output, options.rejected, options.plot) if p]
    inputs = {os.path.realpath(path) for path in places.paths}
    for path in outputs:
        if os.path.realpath(path) in inputs:
            raise InputError(f"output {path!r} is an input as well; name another file")
    if len({os.path.realpath(path) for path in outputs}) < len(outputs):
        raise InputError("--output, --rejected and --plot must be different files")
    if options.rejected and options.on_reject == "raise":
        raise InputError("give --rejected or --on-reject raise, not both")
    if options.rejected and not options.rejected.endswith(".csv"):
        raise InputError(f"--rejected must end in .csv, got {options.rejected!r}")
    if options.rejected:
        check_output(options.rejected)
    plot_keys.check(options)
    if options.show_truth and not options.plot:
        raise InputError("--show-truth needs --plot PNG")
    if options.plot:
        if importlib.util.find_spec("matplotlib") is None:
            raise InputError("--plot needs matplotlib: pip install 'beam-dpcount[plots]'")
        if not options.plot.endswith(".png"):
            raise InputError(f"--plot must end in .png, got {options.plot!r}")
        directory = os.path.dirname(options.plot) or "."
        if not os.path.isdir(directory):
            raise InputError(
                f"--plot {options.plot!r}: there is no directory {directory!r}; create it first"
            )
        if not os.access(directory, os.W_OK):
            raise InputError(f"--plot {options.plot!r}: directory {directory!r} is not writable")
        if "://" in options.output:
            raise InputError("--plot reads the output back, which must be a local file")


def write_rejected(rejected: Any, path: str) -> None:
    """Write where and why rows were rejected; never what they held."""
    schema = pa.schema([("file", pa.string()), ("row", pa.int64()), ("reason", pa.string())])
    row = beam.Map(rejected_row).with_output_types(tuple[Any, ...])
    table = WriteTable(path, schema, ("file", "row", "reason"))
    _ = rejected | "RejectedRow" >> row | "WriteRejected" >> table


def rejected_row(rejected: dp.Rejected) -> tuple[str, int | None, str]:
    """File, row, reason."""
    file, _, row = (rejected.id or "").rpartition(", row ")
    return file, int(row) if row else None, rejected.reason


class WithTime(beam.DoFn):
    """For the truth: (key, event) to (key, (time, place, value))."""

    def __init__(self, places: Places) -> None:
        self._places = places

    def process(
        self, element: tuple[str, Event], timestamp: Any = beam.DoFn.TimestampParam
    ) -> Iterator[tuple[str, tuple[int, Place, object]]]:
        key, event = element
        yield key, (timestamp.micros, self._places(event), event.value)


class ExactCounts(beam.DoFn):
    """For the truth: the exact running count of what the counter would count. Not private."""

    def __init__(self, counter: Counter, by_time: bool) -> None:
        self._counter, self._by_time = counter, by_time

    def process(self, element: tuple[str, Any]) -> Iterator[dp.Release]:
        key, steps = element
        # As the counter takes them: the streaming path in the order of the files.
        ordered = sorted(steps, key=lambda step: step[:2] if self._by_time else step[1])
        ordered = ordered[: self._counter.mechanism.horizon]
        totals = accumulate(self._number(value) for *_, value in ordered)
        for step, ((micros, *_), total) in enumerate(zip(ordered, totals, strict=True), start=1):
            yield dp.Release(key, step, micros, total * self._counter.unit, 0.0)

    def _number(self, value: object) -> int:
        try:
            return int(self._counter.quantise(value))
        except dp.NotANumberError:
            return 0


def draw(
    options: argparse.Namespace, counter: Counter, truth: dict[str, list[Any]] | None
) -> list[str]:
    """Draw the releases, and the exact counts if given, to the file that the options name.

    Returns:
      Warnings about keys that could not be drawn.
    """
    from beam_dpcount.commands.figures import (
        series as plots,  # here, because matplotlib is an extra
    )

    exact: dict[str, list[float]] | None = None
    if truth is not None:
        exact = {}
        rows = zip(truth["key"], truth["step"], truth["value"], strict=True)
        for key, _, value in sorted(rows):
            exact.setdefault(key, []).append(value)
    what = options.where or options.value or "rows"
    kind = f"{'sums' if options.value else 'counts'}: {what}"
    estimate, releases = estimates.of_rows(options), read_releases(options.output)
    plots.prefix_counts(
        releases,
        options.plot,
        title=f"Private {'and exact ' * options.show_truth}running {kind}{estimate.in_title} by "
        f"{options.key}",
        guarantee=f"{SHOWN if options.show_truth else guarantee(options, counter)} {estimate.band}",
        truth=exact,
        only=options.plot_keys,
        time_axis=options.timestamp is not None,
        zone=timestamps.zone_of(options.timezone),
        sum_of=options.value,
    )
    return plot_keys.missing(options, set(releases["key"]))


def guarantee(options: argparse.Namespace, counter: Counter) -> str:
    """The guarantee in one sentence."""
    return (
        f"Guarantee: all releases of a key together satisfy {counter.budget} for neighbours under "
        f"{counter.change}; public: the keys, and the number, order and times of their rows. It is "
        f"for one row, not for all rows of a person, and {one_run(options)}"
    )


def one_run(options: argparse.Namespace) -> str:
    """The end of a guarantee: of which runs it is."""
    if options.secret_env is None and options.secret_file is None:
        return "for this run: another run over the same rows spends the budget again."
    return (
        "for this secret and --run-id: the same rows give the same numbers again, at no cost; rows "
        "that have changed need another --run-id, and spend the budget again."
    )


def report(options: argparse.Namespace, counter: Counter, result: Any) -> str:
    """What the user reads at the end: where the output is, the guarantee, the errors to expect."""
    horizon = counter.mechanism.horizon
    lines = [
        f"private counts: {options.output}",
        *([f"picture: {options.plot}"] if options.plot else []),
        *(["note: the picture shows the exact counts: it is private"] * options.show_truth),
        *([f"rejected rows (private): {options.rejected}"] if options.rejected else []),
        guarantee(options, counter),
        estimates.errors(
            counter,
            estimates.of_rows(options),
            f"the largest of a key's {cli.many(horizon, 'release')}",
            1,
        ),
        *past_horizon(horizon, result),
    ]
    return "\n".join(lines)


def past_horizon(horizon: int, result: Any) -> list[str]:
    """A warning in a list, where rows have no release; how many rows there are is public."""
    late = cli.counted(result, PAST_HORIZON)
    if not late:
        return []
    return [
        f"warning: {late:,} rows came after row {horizon:,} of their key and have no release: "
        "raise --horizon (and expect slightly more noise)"
    ]

"""Private running histograms of an event log, one per key, a release after every event.

Reads CSV or Parquet, counts the item of each row, out of a public domain, under the key of the row,
and writes all private counts after every row: key, step, timestamp, a column for each item, stddev.
Rows of a key are taken in the order of their timestamps (ties: by file and row), or without
--timestamp in the order of the files. Without --key all rows have the key "all".
The keys, the domain and the number, order and times of the rows are public; the item of a row is
protected. A row whose item is not in the domain counts nothing, but has its release. An empty cell
is a key like others, and the item ''; a null of Parquet is no item, and as a key stops the command.
Options that are not listed here go to Beam, e.g. --runner.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, NamedTuple, cast

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
from apache_beam.io.fileio import ReadableFile
from apache_beam.pvalue import PCollection

import beam_dpcount as dp
from beam_dpcount.commands import app as cli
from beam_dpcount.commands import estimates
from beam_dpcount.commands.count import (
    Places,
    add_horizon_argument,
    checked_places,
    one_run,
    past_horizon,
    run,
    unchecked,
    value_of,
)
from beam_dpcount.commands.figures import keys as plot_keys
from beam_dpcount.commands.files.read import Event, InputError, Reader, ReadFiles
from beam_dpcount.commands.files.tables import WriteTable
from beam_dpcount.commands.ticks import (
    add_items_arguments,
    add_output_arguments,
    add_path_argument,
    most_items,
    public_list,
)
from beam_dpcount.counters.counter import Counter, LatticeCounter
from beam_dpcount.dofns.releases import VectorRelease
from beam_dpcount.transforms.histograms import Histogram

ALL = "all"  # the key of all rows where no column is named
_PLACED, _STDDEV = ("key", "step", "timestamp"), "stddev"
_BARS, _KEYS = 20, 6  # drawn


def arguments() -> cli.Parser:
    """The options of the command."""
    parser = cli.command("pipelines.histogram", __doc__)
    source = parser.add_argument_group("input")
    cli.add_source_arguments(source)
    source.add_argument("--key", metavar="COLUMN", help="the (public) keys; default: one for all")
    source.add_argument("--item", required=True, metavar="COLUMN", help="the items to count")
    domain = source.add_mutually_exclusive_group(required=True)
    domain.add_argument("--domain", nargs="+", metavar="ITEM", help="all (public) items")
    domain.add_argument(
        "--domain-file", metavar="FILE", help="the same, one per line; blank lines are skipped"
    )
    add_items_arguments(source, "items")
    cli.add_time_arguments(source)

    cli.add_budget_arguments(parser)
    count = parser.add_argument_group("counting")
    add_horizon_argument(count)
    cli.add_mechanism_argument(count)
    cli.add_entropy_arguments(parser)
    count.add_argument(
        "--relation",
        choices=("replace_one", "add_remove"),
        default="replace_one",
        help="what is protected: that any one row has any other item (default), or that its item "
        "counts or not, which takes less noise",
    )
    add_path_argument(count)
    add_output_arguments(parser)
    parser.add_argument(
        "--top",
        type=cli.whole,
        metavar="K",
        help="draw the K items of the largest private counts, added up over the keys drawn, which "
        f"biases them upwards (default: the first {_BARS} of the domain)",
    )
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command.

    Raises:
      ValueError, TypeError, OSError: what the user can mend, in one line each.
    """
    parser = arguments()
    options, flags = parser.parse_known_args(argv)
    cli.budget_of(options)
    events, places = read_items(options, options.item)
    domain = public_list("--domain", options.domain, options.domain_file, options)
    written = WriteHistograms(options.output, domain, options.timestamp is not None)
    most = most_items(options, "--domain", domain)
    with cli.named_as_options(options):
        counts = Histogram(
            cli.budget_of(options),
            options.horizon,
            domain,
            max_items=most,
            mechanism=options.mechanism,
            relation=options.relation,
            value=value_of if options.separator is None else SplitItems(options.separator),
            element_id=places,
            path=options.path,
            entropy=cli.entropy_of(options),
        )
    pipeline = beam.Pipeline(options=cli.beam_options(flags, parser.names()))
    _ = (
        pipeline
        | "Read" >> events
        | "Count" >> counts
        | "Progress" >> beam.ParDo(cli.CountReleases()).with_output_types(VectorRelease)
        | "Write" >> written
    )
    cli.announce(options, notes(options, len(domain)))
    result, missing = run(pipeline, options), []
    if options.plot:
        missing = draw(options, counts.counter, domain)
    print("\n".join([report(options, counts.counter, domain, result), *missing]))


def notes(options: argparse.Namespace, items: int) -> list[str]:
    """What a row counts."""
    domain = f"{cli.many(items, 'item')} of the domain"
    counted = (
        f"a row counts 1 for its {options.item} to the letter, if that is one of the {domain}"
        if options.separator is None
        else f"a row counts 1 for each item of its {options.item}, between {options.separator!r}, "
        f"that is one of the {domain} to the letter, and for the first {options.max_items:,} of "
        "them where it has more"
    )
    return [f"note: {counted}", unchecked("items are", "their")]


class SplitItems:
    """The items of a cell that holds several; of a null none."""

    def __init__(self, separator: str) -> None:
        self._separator = separator

    def __call__(self, event: Event) -> object:
        cell = event.value
        return cell.split(self._separator) if isinstance(cell, str) else None


# Reading


def read_items(options: argparse.Namespace, column: str) -> tuple[ReadItems, Places]:
    """The rows that the options name, with what is in one column, and the places of rows.

    Raises:
      InputError: there are none, an output would overwrite them, or --top is no number of items.
    """
    events = ReadItems(
        options.input,
        options.key,
        column,
        options.timestamp,
        options.timestamp_format,
        options.timezone,
        options.delimiter,
        options.show_header,
    )
    events.check()
    places = checked_places(options)
    if options.top is not None and options.top < 1:
        raise InputError(f"--top must be a whole number from 1, got {options.top}")
    return events, places


class _ItemReader(Reader):
    """Leaves the texts of the value column as they are: an item 007 is no number."""

    remedy: ClassVar[str] = ""

    def measure(self, cell: object) -> object:
        return cell if cell is None or isinstance(cell, str) else str(cell)


class _OneKeyReader(_ItemReader):
    """Gives every row the key `ALL`. The column that is called its key holds the items."""

    @property
    def public(self) -> frozenset[str]:
        return frozenset(filter(None, [self.timestamp]))

    def csv_rows(self, readable: ReadableFile) -> Iterator[tuple[int, object, object, object]]:
        for row, _, value, time in super().csv_rows(readable):
            yield row, ALL, value, time

    def parquet_rows(self, readable: ReadableFile) -> Iterator[tuple[int, object, object, object]]:
        for row, _, value, time in super().parquet_rows(readable):
            yield row, ALL, value, time


class ReadItems(ReadFiles):
    """`ReadEvents` whose values are the texts of a column, None where it has a null.

    Args:
      inputs, timestamp, timestamp_format, timezone, delimiter, show_header: as there.
      key: the column of the keys; None: every row has the key "all".
      item: the column of the items; in Parquet what is no text is taken as str() shows it. It is
        protected, and so neither that of the keys nor that of the times.
    """

    def __init__(
        self,
        inputs: str | list[str],
        key: str | None,
        item: str,
        timestamp: str | None = None,
        timestamp_format: str = "unix",
        timezone: str = "UTC",
        delimiter: str = ",",
        show_header: bool = False,
    ) -> None:
        column, reader = (item, _OneKeyReader) if key is None else (key, _ItemReader)
        how = timestamp, timestamp_format, timezone, delimiter, show_header
        super().__init__(inputs, reader.of(column, item, None, *how))


# Writing, and reading back


class WriteHistograms(beam.PTransform[PCollection[VectorRelease], PCollection[str]]):
    """Writes the releases of a histogram to one file, by key and step.

    Columns: key, step, timestamp (microseconds since the epoch, UTC), one for each item, stddev.

    Args:
      output: a path that ends in .csv or .parquet, as `check_output` passes it.
      domain: the items.
      with_timestamps: whether to write the timestamps; without, their cells are empty.

    Raises:
      InputError: an item has the name of another column.
    """

    def __init__(self, output: str, domain: Sequence[str], with_timestamps: bool) -> None:
        super().__init__()
        for item in domain:
            if item in (*_PLACED, _STDDEV):
                raise InputError(
                    f"--domain: item {item!r} cannot be a column of the output beside the column "
                    f"{item}; give it another name in the input"
                )
        whole, real = pa.int64(), pa.float64()
        kinds = [pa.string(), whole, whole, *[real] * (len(domain) + 1)]
        names = [*_PLACED, *domain, _STDDEV]
        schema = pa.schema(list(zip(names, kinds, strict=True)))
        self._write = WriteTable(output, schema, ("key", "step"))
        self._with_timestamps = with_timestamps

    def expand(self, pcoll: PCollection[VectorRelease]) -> PCollection[str]:
        row = beam.Map(self._row).with_output_types(tuple[Any, ...])
        return pcoll | "Row" >> row | "Write" >> self._write

    def _row(self, release: VectorRelease) -> tuple[Any, ...]:
        timestamp = release.timestamp if self._with_timestamps else None
        return release.key, release.step, timestamp, *release.value, release.stddev


class Last(NamedTuple):
    """The last release of a key."""

    step: int
    values: list[float]
    stddev: float


def last_histograms(path: str) -> dict[str, Last]:
    """The last release of each key in a local file of `WriteHistograms`, most rows first."""
    last: dict[str, Last] = {}
    for key, step, _, *values, stddev in _records(path):
        if key not in last or int(step) > last[key].step:
            last[key] = Last(int(step), list(map(float, values)), float(stddev))
    return dict(sorted(last.items(), key=lambda entry: (-entry[1].step, entry[0])))


def _records(path: str) -> Iterator[Any]:
    if path.lower().endswith(".parquet"):
        with pq.ParquetFile(path) as table:
            for batch in table.iter_batches():
                yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
        return
    with open(path, encoding="utf-8", newline="") as file:
        records = csv.reader(file, strict=True)
        next(records)
        yield from records


def draw(options: argparse.Namespace, counter: LatticeCounter, domain: Sequence[str]) -> list[str]:
    """Draw the last histograms of some keys to the file that the options name.

    Returns:
      Warnings about keys that could not be drawn.
    """
    from beam_dpcount.commands.figures import (
        series as plots,  # here, because matplotlib is an extra
    )

    last = last_histograms(options.output)
    shown, choice = plot_keys.of_most_rows(options, last, _KEYS)
    panels = []
    for key, release in shown.items():
        rows = f"after {cli.many(release.step, 'row')}"
        name = (rows, "") if options.key is None else (key, rows)
        panels.append(plots.Bars(*name, release.values, release.stddev))
    estimate = estimates.of_items(options)
    remarks = [guarantee(options, counter), estimate.bars, *_chosen(options, counter, domain)]
    plots.histograms(
        domain,
        panels,
        options.plot,
        title=f"Private histogram of {options.item}{estimate.in_title}"
        + f" by {options.key}" * bool(options.key),
        guarantee=" ".join([*remarks, *choice]),
        top=options.top,
        most=_BARS,
    )
    return plot_keys.missing(options, last)


def _chosen(
    options: argparse.Namespace, counter: LatticeCounter, domain: Sequence[str]
) -> list[str]:
    """How the items that are drawn were chosen, in a list, and what that does to their counts."""
    if options.top is None:
        first = f"Of {len(domain):,} items the first {_BARS} of the domain."
        return [first] if len(domain) > _BARS else []
    if options.top >= len(domain):
        return []
    over = "" if options.key is None else ", added up over the keys drawn"
    bound = dp.largest_error(cast(Counter, counter), len(domain))
    return [
        f"Of {len(domain):,} items the {options.top:,} of the largest private counts{over}: as "
        "they were chosen for being large, they are biased upwards, and their error bars miss more "
        f"often; ± {bound:.3g} holds for all counts{' of a key' * bool(options.key)} at once, "
        "chosen or not, with probability 95 %."
    ]


def guarantee(options: argparse.Namespace, counter: LatticeCounter) -> str:
    """The guarantee in one sentence, and what it is not for in another."""
    of, public = ("of a key ", "the keys, ") if options.key else ("", "")
    return (
        f"Guarantee: all releases {of}together satisfy {counter.budget} for neighbours under "
        f"{counter.change}; public: {public}the domain, and the number, order and times of the "
        f"rows. It is for one row, not for all rows of a person, and {one_run(options)}"
    )


def report(options: argparse.Namespace, counter: Any, domain: Sequence[str], result: Any) -> str:
    """What the user reads at the end: where the output is, the guarantee, the errors to expect."""
    horizon = counter.mechanism.horizon
    of = "all" if options.key is None else "a key's"
    every = f"the largest of {of} {cli.many(len(domain) * horizon, 'count')}"
    lines = [
        f"private histograms: {options.output}",
        *([f"picture: {options.plot}"] if options.plot else []),
        guarantee(options, counter),
        estimates.errors(counter, estimates.of_items(options), every, len(domain)),
        *past_horizon(horizon, result),
    ]
    return "\n".join(lines)

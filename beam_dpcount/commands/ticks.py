"""Private running counts of an event log, one series per key, a release at every tick of a clock.

Reads CSV or Parquet, and counts the rows of each given key whose times lie within the clock; writes
one private count for every key and tick: key, step, timestamp (the end of the tick), value, stddev.
The keys and the clock are public, and given here. That a row is there at all is protected, and so
are its time, its key and what it counts: rows with other keys, or outside the clock, leave no trace
in the output. An empty cell is a key like others, to be given as '' if it is to count. A row that
cannot be read (a time in another format; in Parquet a null key) stops the command, which does show.
Options that are not listed here go to Beam, e.g. --runner.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import apache_beam as beam
from apache_beam.utils.timestamp import Timestamp

import beam_dpcount as dp
from beam_dpcount.checks import check_whole
from beam_dpcount.commands import app as cli
from beam_dpcount.commands import estimates
from beam_dpcount.commands.count import (
    checked_places,
    clipped,
    one_run,
    run,
    source_of,
    unchecked,
    value_of,
)
from beam_dpcount.commands.figures import keys as plot_keys
from beam_dpcount.commands.files import times as timestamps
from beam_dpcount.commands.files.read import (
    Event,
    InputError,
    ReadEvents,
    WriteReleases,
    check_inputs,
    matched,
    read_releases,
)
from beam_dpcount.counters.counter import Counter
from beam_dpcount.dofns.clock import LATE
from beam_dpcount.statistics.items import places, read_items
from beam_dpcount.transforms.ticks import TickCount


def arguments() -> cli.Parser:
    """The options of the command."""
    parser = cli.command("pipelines.ticks", __doc__)
    source = parser.add_argument_group("input")
    cli.add_source_arguments(source)
    source.add_argument("--key", required=True, metavar="COLUMN", help="the keys")
    keys = source.add_mutually_exclusive_group(required=True)
    keys.add_argument(
        "--keys", nargs="+", metavar="KEY", help="all (public) keys; rows of others do not count"
    )
    keys.add_argument(
        "--keys-file", metavar="FILE", help="the same, one per line; blank lines are skipped"
    )
    add_items_arguments(source, "keys")
    what = source.add_mutually_exclusive_group()
    what.add_argument("--value", metavar="COLUMN", help="count the numbers in this column")
    what.add_argument(
        "--where",
        action=cli.Once,
        metavar="COLUMN=VALUE",
        help="count the rows where the column has this text; default: every row counts 1",
    )
    cli.add_time_arguments(source, required=True)

    clock = parser.add_argument_group("clock (public)")
    clock.add_argument(
        "--tick",
        type=tick,
        required=True,
        metavar="TIME",
        help="the time between releases: seconds, or with a unit (s, m, h, d) as 10m, 1h, 1d",
    )
    clock.add_argument(
        "--start",
        required=True,
        metavar="TIME",
        help="seconds since 1970, or ISO 8601 such as 2024-01-31T00:00:00Z (without an offset: in "
        "--timezone)",
    )
    clock.add_argument("--stop", metavar="TIME", help="rows at or after it do not count")
    clock.add_argument(
        "--horizon", type=cli.whole, metavar="N", help="the number of ticks, in place of --stop"
    )

    cli.add_budget_arguments(parser, "all releases of all keys together")
    count = parser.add_argument_group("counting")
    cli.add_mechanism_argument(count)
    cli.add_entropy_arguments(parser)
    cli.add_value_arguments(count)
    add_tick_arguments(count)
    count.add_argument(
        "--late",
        choices=LATE,
        default="fold",
        help="with --path streaming, rows that come after their tick was released: fold (default): "
        "they count at the next one; drop: they do not count",
    )
    add_path_argument(count)
    add_output_arguments(parser)
    return parser


def add_tick_arguments(group: argparse._ArgumentGroup) -> None:
    """--relation and --max-per-tick."""
    group.add_argument(
        "--relation",
        choices=("add_remove", "replace_one"),
        default="add_remove",
        help="what is protected: that any one row is there (default), or that it is any other row, "
        "which costs up to twice as much",
    )
    group.add_argument(
        "--max-per-tick",
        type=cli.whole,
        metavar="N",
        help="the sum of a key's rows in one tick is clipped to N times the largest value (default "
        "2^20, or less where 64 bits would not hold all sums); with a lower one some mechanisms "
        "take longer clocks",
    )


def add_items_arguments(group: argparse._ArgumentGroup, what: str) -> None:
    """--separator and --max-items, for cells that hold several keys or items."""
    group.add_argument(
        "--separator",
        metavar="TEXT",
        help=f"what stands between the {what} of a cell that holds several, e.g. ';' (default: a "
        "cell is one, as a whole); needs --max-items",
    )
    group.add_argument(
        "--max-items",
        type=cli.whole,
        metavar="B",
        help=f"the most {what} that one row counts, the first of them in the order in which they "
        "are given here; more noise the larger it is; needs --separator",
    )


def add_path_argument(group: argparse._ArgumentGroup) -> None:
    """--path."""
    group.add_argument(
        "--path",
        choices=("auto", "bounded", "streaming"),
        default="auto",
        help="streaming: count by state and timers, as on unbounded input",
    )


def add_output_arguments(parser: argparse.ArgumentParser) -> None:
    """--output, --plot and --plot-keys; and what `pipelines.count` has besides is not there."""
    sink = parser.add_argument_group("output")
    sink.add_argument("--output", required=True, metavar="OUT", help="a .csv or .parquet file")
    sink.add_argument("--plot", metavar="PNG", help="draw the counts of some keys")
    plot_keys.add_argument(sink)
    parser.set_defaults(rejected=None, on_reject="drop", show_truth=False)


def tick(text: str) -> Fraction:
    """The length of a tick in seconds; for argparse."""
    try:
        return timestamps.duration(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"must be a positive time of whole microseconds, got {text!r}: give seconds, or a "
            "unit (s, m, h, d), e.g. --tick 10m"
        ) from None


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command.

    Raises:
      ValueError, TypeError, OSError: what the user can mend, in one line each.
    """
    parser = arguments()
    options, flags = parser.parse_known_args(argv)
    source = {**source_of(options), "per_tick": True}
    cli.budget_of(options)
    cli.check_bounds(options)
    check_inputs(**source)
    files = checked_places(options).paths
    keys = public_list("--keys", options.keys, options.keys_file, options)
    plot_keys.check_listed(options, keys)
    counts = counting(options, keys, files)
    pipeline = beam.Pipeline(options=cli.beam_options(flags, parser.names()))
    events: Any = pipeline | "Read" >> ReadEvents(**source)
    if options.separator is not None:
        split = SplitKeys(keys, options.separator, options.max_items)
        events |= "SplitKeys" >> beam.ParDo(split).with_output_types(tuple[str, Event])
    _ = (
        events
        | "Count" >> counts
        | "Progress" >> beam.ParDo(cli.CountReleases()).with_output_types(dp.Release)
        | "Write" >> WriteReleases(options.output, with_timestamps=True, keys=keys)
    )
    cli.announce(options, notes(options, len(keys), counts.counter.mechanism.horizon))
    run(pipeline, options)
    if options.plot:
        draw(options, counts.counter, keys)
    print(report(options, counts.counter, len(keys)))


class SplitKeys(beam.DoFn):
    """An event under a cell of several keys, to the event under each of the first `most` of them.

    The first in the order of the public keys; of others there is no trace.
    """

    def __init__(self, keys: Sequence[str], separator: str, most: int) -> None:
        self._keys, self._known = keys, places(keys)
        self._separator, self._most = separator, most

    def process(self, element: tuple[str, Event]) -> Iterator[tuple[str, Event]]:
        cell, event = element
        found = cell.split(self._separator)
        codes, _ = read_items(found, self._known, self._most, removals=False)
        for code in codes:
            yield self._keys[code - 1], event


def public_list(
    name: str, given: list[str] | None, path: str | None, options: argparse.Namespace
) -> list[str]:
    """Distinct public texts, from the command line or the lines of a file; blank ones are skipped.

    Raises:
      InputError: the file cannot be read, or is an output as well; there is no text, or one twice.
    """
    if path is None:
        texts, place = given or [], name
    else:
        place = f"{name}-file {path!r}"
        for output in filter(None, (options.output, options.plot)):
            if os.path.realpath(output) == os.path.realpath(path):
                raise InputError(f"output {output!r} is the {name}-file as well; name another file")
        if os.path.realpath(path) in map(os.path.realpath, matched(options.input)):
            raise InputError(
                f"{place}: it is an input as well, and what comes from the data is not public; "
                "name another file"
            )
        try:
            with open(path, encoding="utf-8-sig") as file:
                texts = [line.rstrip("\n") for line in file if line.strip()]
        except OSError as error:
            raise InputError(f"{place}: cannot be read: {error.strerror or error}") from None
        except UnicodeDecodeError:
            raise InputError(f"{place}: not UTF-8 text; convert the file") from None
    if not texts:
        raise InputError(f"{place}: it is empty; give one text per line")
    seen: set[str] = set()
    for text in texts:
        if text in seen:
            raise InputError(f"{place}: {text!r} is there twice; give it once")
        seen.add(text)
    return texts


def most_items(options: argparse.Namespace, name: str, public: Sequence[str]) -> int:
    """--max-items, or 1; and a --separator without an end of line.

    Raises:
      InputError: one is there without the other, or they do not fit the public texts of `name`.
    """
    separator = options.separator
    if (separator is None) != (options.max_items is None):
        raise InputError(
            "give --separator and --max-items together: what stands between the items of a cell, "
            "and the most of them that one row counts"
        )
    if separator is None:
        return 1
    if not separator:
        raise InputError("--separator must not be empty; leave it out where a cell is one item")
    for text in public:
        if separator in text:
            raise InputError(f"{name}: {text!r} holds the --separator {separator!r}")
    if not 1 <= options.max_items <= len(public):
        raise InputError(
            f"--max-items must be a whole number from 1 to {len(public):,}, as many as {name} has, "
            f"got {options.max_items}"
        )
    return int(options.max_items)


def moment(name: str, text: str, timezone: str) -> Timestamp:
    """A point in time of the command line.

    Raises:
      InputError: it is neither seconds since 1970 nor ISO 8601.
    """
    number = timestamps.is_number(text)
    try:
        return Timestamp(micros=timestamps.parser("unix" if number else "iso", timezone)(text))
    except ValueError:
        example = "give seconds since 1970, or ISO 8601 such as 2024-01-31T00:00:00Z"
    if number:
        raise InputError(
            f"{name} lies outside the years 1 to 9999, got {text!r}: milliseconds? {example}"
        )
    raise InputError(f"{name} is no time, got {text!r}: {example}")


def counting(options: argparse.Namespace, keys: Sequence[str], files: Sequence[str]) -> TickCount:
    """The transform that the options ask for, of these files."""
    if options.stop is None and options.horizon is None:
        raise InputError(
            "give --stop, the time at which the count ends, or --horizon, the number of ticks"
        )
    start = moment("--start", options.start, options.timezone)
    stop = None if options.stop is None else moment("--stop", options.stop, options.timezone)
    if stop is not None and stop <= start:
        raise InputError(
            f"--stop must be after --start, got {options.stop!r} and {options.start!r}: give a "
            "later --stop, or --horizon, the number of ticks, in its place"
        )
    most = most_items(options, "--keys", keys)
    with cli.named_as_options(options):
        if options.max_per_tick is not None:
            check_whole("max_per_tick", options.max_per_tick)
        return TickCount(
            cli.budget_of(options),
            options.tick,
            start,
            stop,
            horizon=options.horizon,
            keys=keys,
            mechanism=options.mechanism,
            bounds=tuple(options.bounds),
            unit=options.unit,
            relation=options.relation,
            max_items=most,
            max_per_tick=options.max_per_tick,
            late=options.late,
            value=value_of,
            path=options.path,
            # Ticks have no ids of rows: a file more, or its keys in another order, would show.
            entropy=cli.entropy_of(options, ([*map(cli.real_path, files)], keys)),
        )


def notes(options: argparse.Namespace, keys: int, ticks: int) -> list[str]:
    """What a row counts, and how much is released; all of it public."""
    within = "of the given keys and within the clock"
    if options.value is not None:
        lines = [f"note: values of rows {within} are {clipped(options)}"]
    elif options.where is not None:
        lines = [
            f"note: rows {within} count 1 where {options.where} to the letter, and 0 elsewhere"
        ]
    else:
        lines = [f"note: every row {within} counts 1"]
    names = "keys and the condition are" if options.where else "keys are"
    lines.append(unchecked(names, "their"))
    if any(text and timestamps.lacks_offset(text) for text in (options.start, options.stop)):
        lines.append(f"note: times without an offset are taken as {options.timezone} (--timezone)")
    if options.path == "streaming" and (options.secret_env or options.secret_file):
        lines.append(
            "note: a replay in which other rows are late is not covered (docs/reliability.md)"
        )
    size = f"{cli.many(keys, 'key')} x {cli.many(ticks, 'tick')} = "
    return [*lines, size + cli.many(keys * ticks, "release")]


def draw(options: argparse.Namespace, counter: Counter, keys: Sequence[str]) -> None:
    """Draw the releases to the file that the options name."""
    from beam_dpcount.commands.figures import (
        series as plots,  # here, because matplotlib is an extra
    )

    what, estimate = options.where or options.value or "rows", estimates.of_ticks(options, counter)
    plots.prefix_counts(
        read_releases(options.output),
        options.plot,
        title=f"Private running {'sums' if options.value else 'counts'} "
        f"{timestamps.every(options.tick)}: {what}{estimate.in_title} by {options.key}",
        guarantee=f"{guarantee(options, counter)} {estimate.band}",
        order=keys,
        only=options.plot_keys,
        zone=timestamps.zone_of(options.timezone),
        sum_of=options.value,
    )


def guarantee(options: argparse.Namespace, counter: Counter) -> str:
    """The guarantee in one sentence, and what it is not for in another."""
    return (
        f"Guarantee: all releases of all keys together satisfy {counter.budget} for neighbours "
        f"under {counter.change}; public: the keys and the clock, and with them the number and "
        "times of the releases. It is for one row, not for all rows of a person, and "
        f"{one_run(options)}"
    )


def report(options: argparse.Namespace, counter: Counter, keys: int) -> str:
    """What the user reads at the end; nothing in it depends on the rows."""
    ticks = counter.mechanism.horizon
    return "\n".join(
        [
            f"private counts: {options.output} ({cli.many(keys, 'key')}, "
            f"{cli.many(ticks, 'tick')})",
            *([f"picture: {options.plot}"] if options.plot else []),
            guarantee(options, counter),
            estimates.errors(
                counter,
                estimates.of_ticks(options, counter),
                f"the largest of all {cli.many(keys * ticks, 'release')}",
                keys,
            ),
        ]
    )

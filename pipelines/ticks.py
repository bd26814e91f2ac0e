"""Private running counts of an event log, one series per key, a release at every tick of a clock.

Reads CSV or Parquet, and counts the rows of each given key whose times lie within the clock; writes
one private count for every key and tick: key, step, timestamp (the end of the tick), value, stddev.
The keys and the clock are public, and given here. That a row is there at all is protected, and so
are its time, its key and what it counts: rows with other keys, or outside the clock, leave no trace
in the output. A row that cannot be read (no key, no time) stops the command, which does show.
Options that are not listed here go to Beam, e.g. --runner.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Sequence

import apache_beam as beam

import beam_dpcount as dp
from beam_dpcount import cli
from beam_dpcount.counter import Counter
from beam_dpcount.ticks import instant
from beam_dpcount.transforms.ticks import TickCount
from pipelines import timestamps
from pipelines.count import Places, _value, check_side_outputs, large_budget, run, source_of
from pipelines.files import (
    InputError,
    ReadEvents,
    WriteReleases,
    check_inputs,
    check_output,
    read_releases,
)


def arguments() -> argparse.ArgumentParser:
    """The options of the command."""
    parser = cli.command("pipelines.ticks", __doc__)
    source = parser.add_argument_group("input")
    cli.add_source_arguments(source)
    source.add_argument("--key", required=True, metavar="COLUMN", help="the keys")
    keys = source.add_mutually_exclusive_group(required=True)
    keys.add_argument(
        "--keys", nargs="+", metavar="KEY", help="all (public) keys; rows of others do not count"
    )
    keys.add_argument("--keys-file", metavar="FILE", help="the same, one per line")
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
        "--tick", type=float, required=True, metavar="SECONDS", help="the time between releases"
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
    cli.add_value_arguments(count)
    count.add_argument(
        "--relation",
        choices=("add_remove", "replace_one"),
        default="add_remove",
        help="what is protected: that any one row is there (default), or that it is any other row, "
        "which costs up to twice as much",
    )
    add_path_argument(count)
    add_output_arguments(parser)
    return parser


def add_path_argument(group: argparse._ArgumentGroup) -> None:
    """--path."""
    group.add_argument(
        "--path",
        choices=("auto", "bounded", "streaming"),
        default="auto",
        help="streaming: count by state and timers, as on unbounded input",
    )


def add_output_arguments(parser: argparse.ArgumentParser) -> None:
    """--output and --plot; and what `pipelines.count` has besides is not there."""
    sink = parser.add_argument_group("output")
    sink.add_argument("--output", required=True, metavar="OUT", help="a .csv or .parquet file")
    sink.add_argument("--plot", metavar="PNG", help="draw the counts of some keys")
    parser.set_defaults(rejected=None, on_reject="drop", show_truth=False)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command.

    Raises:
      ValueError, TypeError, OSError: what the user can mend, in one line each.
    """
    options, flags = arguments().parse_known_args(argv)
    source = source_of(options)
    cli.budget_of(options)
    check_inputs(**source)
    check_output(options.output)
    check_side_outputs(options, Places(options.input))
    keys = public_list("--keys", options.keys, options.keys_file, options)
    counts = counting(options, keys)
    print(note(options))
    pipeline = beam.Pipeline(options=cli.beam_options(flags))
    releases = pipeline | "Read" >> ReadEvents(**source) | "Count" >> counts
    _ = (
        releases
        | "Progress" >> beam.ParDo(cli.CountReleases()).with_output_types(dp.Release)
        | "Write" >> WriteReleases(options.output, with_timestamps=True)
    )
    run(pipeline, options)
    if options.plot:
        draw(options, counts.counter)
    print(report(options, counts.counter, len(keys)))


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


def moment(name: str, text: str, timezone: str) -> str:
    """A point in time of the command line, with an offset.

    Raises:
      InputError: it is neither seconds since 1970 nor ISO 8601.
    """
    try:
        return instant(timestamps.parser("unix", timezone)(text))
    except ValueError:
        pass
    try:
        return instant(timestamps.parser("iso", timezone)(text))
    except ValueError:
        raise InputError(
            f"{name} is no time, got {text!r}: give seconds since 1970, or ISO 8601 such as "
            "2024-01-31T00:00:00Z"
        ) from None


def counting(options: argparse.Namespace, keys: Sequence[str]) -> TickCount:
    """The transform that the options ask for."""
    if options.stop is None and options.horizon is None:
        raise InputError(
            "give --stop, the time at which the count ends, or --horizon, the number of ticks"
        )
    return TickCount(
        cli.budget_of(options),
        options.tick,
        moment("--start", options.start, options.timezone),
        None if options.stop is None else moment("--stop", options.stop, options.timezone),
        horizon=options.horizon,
        keys=keys,
        mechanism=options.mechanism,
        bounds=tuple(options.bounds),
        unit=options.unit,
        relation=options.relation,
        value=_value,
        path=options.path,
    )


def note(options: argparse.Namespace) -> str:
    """What a row counts, in one line."""
    within = "of the given keys and within the clock"
    if options.value is not None:
        low, high = options.bounds
        return (
            f"note: values of rows {within} are clipped to [{low:g}, {high:g}] and rounded to "
            f"multiples of {options.unit:g} (--bounds, --unit); what is no number counts 0"
        )
    if options.where is not None:
        return f"note: rows {within} count 1 where {options.where} to the letter, and 0 elsewhere"
    return f"note: every row {within} counts 1"


def draw(options: argparse.Namespace, counter: Counter) -> None:
    """Draw the releases to the file that the options name."""
    from pipelines import plots  # here, because matplotlib is an extra

    what = options.where or options.value or "rows"
    plots.prefix_counts(
        read_releases(options.output),
        options.plot,
        title=f"Private running counts every {options.tick:,.10g} s: {what} by {options.key}",
        guarantee=guarantee(counter)
        + " Band: 1.96 standard deviations, about 95 % for each single release; "
        "errors of neighbouring releases are alike.",
    )


def guarantee(counter: Counter) -> str:
    """The guarantee in one sentence, and what it is not for in another."""
    return (
        f"Guarantee: all releases of all keys together satisfy {counter.budget} for neighbours "
        f"under {counter.change}; public: the keys and the clock, and with them the number and "
        "times of the releases. It is for one row, not for all rows of a person, and for this run: "
        "another run over the same rows spends the budget again."
    )


def report(options: argparse.Namespace, counter: Counter, keys: int) -> str:
    """What the user reads at the end; nothing in it depends on the rows."""
    ticks = counter.mechanism.horizon
    return "\n".join(
        [
            f"private counts: {options.output} ({keys:,} keys, {ticks:,} ticks)",
            *([f"picture: {options.plot}"] if options.plot else []),
            guarantee(counter),
            *large_budget(counter),
            errors(counter, f"the largest of all {keys * ticks:,} releases", keys),
        ]
    )


def errors(counter: Counter, largest: str, streams: int) -> str:
    """The errors to expect; `largest` names the releases of so many streams together."""
    return (
        f"Error to expect ({counter.mechanism.name}, {type(counter.law).__name__} noise): "
        f"typically {math.sqrt(counter.mean_variance()):.3g} (standard deviation), at most "
        f"{math.sqrt(counter.max_variance()):.3g}; the least exact single release within "
        f"{dp.largest_half_width(counter, 0.95):.3g} with probability 95 %; {largest} below "
        f"{dp.largest_error(counter, streams):.3g} with probability 95 %."
    )


if __name__ == "__main__":
    cli.run_main(main)

"""What the pipelines share: options, lines of CSV that are read, and rows that are written."""

from __future__ import annotations

import argparse
import csv
import datetime as dt
import io
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.pvalue import PCollection
from apache_beam.transforms.combiners import ToList
from apache_beam.transforms.window import TimestampedValue

csv.field_size_limit(2**31 - 1)  # a long cell is a cell like any other

RELEASE = ("key", "step", "timestamp", "value", "stddev")


class Event(NamedTuple):
    """A line of the log that `beam-dpcount demo` makes: timestamp,page,session,action."""

    page: str
    session: str
    action: str


def parser(name: str, description: str | None) -> argparse.ArgumentParser:
    """The options that all pipelines take."""
    made = argparse.ArgumentParser(
        prog=f"python -m pipelines.{name}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.add_argument("--input", required=True, help="a CSV file, with a header")
    made.add_argument("--output", required=True, help="the CSV file to write")
    made.add_argument("--epsilon", type=float, default=1.0, help="default: %(default)s")
    made.add_argument("--delta", type=float, default=1e-6, help="default: %(default)s")
    return made


def beam_options(flags: Sequence[str]) -> PipelineOptions:
    """Beam's: without --runner a pipeline runs in this process."""
    return PipelineOptions(["--runner=FnApiRunner", *flags])


def lines(path: str) -> beam.PTransform[Any, Any]:
    """The lines of a file, without its header."""
    return beam.io.ReadFromText(path, skip_header_lines=1, coder=beam.coders.BytesCoder())


def cells_of(line: bytes) -> list[str]:
    """The cells of a line, whatever its bytes are: an error would show them."""
    try:
        return next(csv.reader([line.decode("utf-8", "replace")]), [])
    except csv.Error:
        return []


def seconds_of(cell: str) -> float | None:
    """The Unix time of an ISO timestamp, in UTC if it names no zone; None if it cannot be read."""
    try:
        time = dt.datetime.fromisoformat(cell.replace("Z", "+00:00"))
    except ValueError:
        return None
    return (time if time.tzinfo else time.replace(tzinfo=dt.timezone.utc)).timestamp()


def events_of(line: bytes) -> Iterator[TimestampedValue[Event]]:
    """The event of a line, at its time. A line that cannot be read is no event, and stops nothing.

    At a clock that is private, too: no release, log line or error says that there was such a line.
    """
    cells = cells_of(line)
    time = seconds_of(cells[0]) if len(cells) == 4 else None
    if time is not None:
        yield TimestampedValue(Event(*cells[1:]), time)


def write(rows: PCollection[Sequence[Any]], path: str, columns: Iterable[str] = RELEASE) -> None:
    """Write releases, sorted: the order in which they come could tell of the events."""
    _ = (
        rows
        | "Gather" >> ToList()
        | "Sort" >> beam.FlatMap(sorted)
        | "As CSV" >> beam.Map(as_csv)
        | "Write" >> beam.io.WriteToText(path, header=",".join(columns), shard_name_template="")
    )


def as_csv(row: Sequence[Any]) -> str:
    """A line of CSV, without its end."""
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(row)
    return text.getvalue()

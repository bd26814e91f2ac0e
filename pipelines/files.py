"""What the pipelines share: options, lines of CSV that are read, and rows that are written."""

from __future__ import annotations

import argparse
import csv
import io
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.pvalue import PCollection
from apache_beam.transforms.combiners import ToList

import beam_dpcount as dp

csv.field_size_limit(2**31 - 1)  # a long cell is a cell like any other

RELEASE = ("key", "step", "timestamp", "value", "stddev")


class Event(NamedTuple):
    """A line of the log that `beam-dpcount demo` makes: its cells, as text."""

    timestamp: str
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


def events_of(line: bytes) -> Iterator[Event]:
    """The event of a line. A line with too few or too many cells is skipped, and stops nothing.

    At a clock that is private, too: no release, log line or error says that there was such a line.
    """
    cells = cells_of(line)
    if len(cells) == len(Event._fields):
        yield Event(*cells)


def write(releases: PCollection[Any], path: str, columns: Sequence[str] = RELEASE) -> None:
    """Write releases, sorted: the order in which they come could tell of the events."""
    _ = (
        releases
        | "Gather" >> ToList()
        | "Sort" >> beam.FlatMap(sorted)
        | "As CSV" >> beam.Map(as_csv, columns)
        | "Write" >> beam.io.WriteToText(path, header=",".join(columns), shard_name_template="")
    )


def as_csv(release: dp.Release | dp.TickRelease, columns: Sequence[str] = RELEASE) -> str:
    """A release as a line of CSV, without its end.

    Columns are fields of the release ("key"), or of what was counted ("mean_ms").
    """
    counted = release.values
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(
        counted[name] if name in counted else getattr(release, name) for name in columns
    )
    return text.getvalue()

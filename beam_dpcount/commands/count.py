"""Private running counts of an event log, one series per key, a release after every event.

Reads CSV, JSON lines or Parquet, counts each row's value under its key, and writes one private
count for every row: key, step, timestamp, value, stddev. Rows of a key are taken in the order of
their timestamps (ties: by file and row), or without --timestamp in the order of the files. An empty
cell is a key like others; a null in Parquet is not a key, and stops the command; in JSON it is an
empty cell.
The keys and the number, order and times of the rows are public; what a row counts is protected.
Options that --help-all does not list go to Beam, e.g. --runner.
"""

from __future__ import annotations

from typing import ClassVar

import beam_dpcount as dp
from beam_dpcount.arguments.table import Changes
from beam_dpcount.commands import report
from beam_dpcount.commands.figures.pictures import Running
from beam_dpcount.commands.files.formats import Places, Source, counted
from beam_dpcount.commands.report import Estimate, many
from beam_dpcount.commands.start import command
from beam_dpcount.commands.task import Task

TICKS = ", or count per tick (beam-dpcount ticks), where keys and times are protected"


class Count(Task):
    """Of rows, of those that meet a condition, or of numbers."""

    name, known = "count", "and the number, order and times of their rows."
    example = r"""
    beam-dpcount count --input out/demo/events.csv --key page \
      --where action=purchase --timestamp timestamp \
      --horizon 20000 --epsilon 1 --delta 1e-6 --output out/counts.csv
    """

    counts = "elements numbers people rejects truth"
    changes: ClassVar[Changes] = {
        "key": {"required": True},
        "where": {"help": "count 1 where the column has this text, else 0"},
        "path": {"help": "streaming: count rows as they are read, in the order of the files"},
        "relation": None,
    }

    def source(self) -> Source:
        return self.read(*counted(self.options.value, self.options.where), instead=TICKS)

    def transform(self, places: Places) -> dp.PrefixCount:
        options, given = self.options, self.shared(places)
        given |= {"bounds": tuple(options.bounds), "unit": options.unit}
        given["on_reject"] = "collect" if options.rejected else options.on_reject
        return dp.PrefixCount(self.given, options.horizon, **given)

    def notes(self) -> list[str]:
        return [*self._counted(), *report.of_people(self.options, self.people_are_public)]

    def _counted(self) -> list[str]:
        if self.options.value is not None:
            return [f"note: values are {report.clipping(self.options)}"]
        if self.options.where is not None:
            return [
                f"note: rows count 1 where {self.options.where} to the letter, and 0 elsewhere",
                report.unchecked("the condition is", "its"),
            ]
        alike = "warning: without --value or --where every row counts 1, and their number is public"
        return [f"{alike}: nothing is left to protect"]

    def estimate(self) -> Estimate:
        # Rows past the horizon need no mention: they have no release.
        options = self.options
        if not report.changes(options):
            return report.bounded(options, Estimate())
        values = "values" if options.value is not None else "zeros and ones"
        clipped = report.clipped(options)
        made = Estimate(f"the sum of {values} {clipped}", clipped, report.lost(options))
        return report.bounded(options, made)

    def largest(self) -> str:
        return f"the largest error of a key's {many(self.counter.mechanism.horizon, 'release')}"

    def picture(self) -> Running:
        options = self.options
        what = options.where or options.value or "rows"
        kind = f"{'sums' if options.value else 'counts'}: {what}{self.estimate().in_title}"
        return self.running(f"Private running {kind} by {options.key}", sum_of=options.value)


main = command(Count)

"""Private numbers of an event log at the ticks of a clock: counts, sums, means, people, rates.

Reads CSV, JSON lines or Parquet, and counts the rows of each given key whose times lie within the
clock; writes a row for every key and tick: key, step, start and timestamp (the end of the tick),
and for each --metric in each --view its value, standard deviation and 95 % interval. The keys and
the clock are public, and given here. That a row is there at all is protected, and so are its time,
its key and what it counts: rows with other keys, or outside the clock, leave no trace in the
output. With --select-keys no keys are given, and which ones there are is protected too: a key is
written from the tick on at which its own private count is high enough.

An empty cell is a key: give '' to count it. A row that cannot be read (a time in another format, a
null key, a line with an open quote or too few cells) counts nothing and leaves no trace; --check
tells whoever holds the rows how many there are, and why.
Options that --help-all does not list go to Beam, e.g. --runner.
"""

from __future__ import annotations

import argparse

from beam_dpcount.commands.start import command
from beam_dpcount.commands.task import Task
from beam_dpcount.commands.tick_task import TickTask


class Ticks(TickTask):
    """Of rows at the ticks of a public clock."""

    example = r"""
    beam-dpcount ticks --input out/demo/events.csv --key page \
      --keys /home /cart /deals --timestamp timestamp --tick 1h \
      --start 2026-01-15 --stop 2026-01-16 --epsilon 1 --delta 1e-6 --output out/ticks.csv
    """

    @classmethod
    def of(cls, options: argparse.Namespace) -> Task:
        from beam_dpcount.commands import sentence  # here: --help does not need it

        return sentence.Sentence(options)


main = command(Ticks)

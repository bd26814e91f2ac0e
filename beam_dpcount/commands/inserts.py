"""InsertIntoTable: the releases of a pipeline, inserted into a table of a database."""

from __future__ import annotations

from itertools import chain
from operator import itemgetter
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import PCollection, PDone
from apache_beam.transforms.combiners import ToList
from apache_beam.transforms.window import GlobalWindows

from beam_dpcount.commands.files.addresses import address_of, is_table
from beam_dpcount.commands.files.databases import DatabaseTable
from beam_dpcount.commands.tick_table import TickCells, TickTable
from beam_dpcount.noise.replay import ReplayableEntropy
from beam_dpcount.plans.columns import columns_of
from beam_dpcount.plans.sentence import TickCountPlan


class InsertIntoTable(beam.PTransform[PCollection[Any], PDone]):
    """Inserts the releases of a TickCount into a table, as `beam-dpcount ticks` does.

    PCollection of Release or TickRelease -> nothing. The table has a row for each key and tick,
    with the columns of the command's output; it is made if it is missing, with the guarantee as its
    comment. On bounded input all rows come together in one transaction, sorted by key and tick;
    else those of a bundle do.

    A row that is there is not overwritten, and must be equal to the bit. A runner that tries a
    bundle again draws its noise again: only replayable noise gives the row that may be there
    already, so that other noise is refused.

    Args:
      count: whose releases they are; give it no others, as nothing tells them apart.
      output: postgresql://user@host/db?table=NAME or sqlite:///file.db?table=NAME, without a
        password: workers take it from PGPASSWORD, ~/.pgpass or PGSERVICEFILE. A file of SQLite must
        be on the one machine of all workers.

    Guarantee: post-processing; costs nothing (the unit is that of the count). Which rows are
      inserted, and when, follows from the releases. Their order within a transaction is that of
      keys and ticks.

    Raises:
      ValueError: the count's noise is not replayable, or the output is not the address of a table;
        in workers: the database fails, or has another row. No message shows a password or a value.
      TypeError: count is not a TickCount.

    Example:
      >>> import os, tempfile
      >>> import apache_beam as beam
      >>> import beam_dpcount as dp
      >>> from beam_dpcount.commands.inserts import InsertIntoTable
      >>> os.environ["COUNTING_SECRET"] = "0123456789abcdef" * 2  # from a safe place
      >>> noise = dp.ReplayableEntropy("COUNTING_SECRET", run_id="pages")
      >>> hours = dp.Clock("1h", start=0, ticks=2)
      >>> count = dp.TickCount(
      ...     dp.ZCDP(0.5), hours, keys=["/a"], key="page", time="at", entropy=noise
      ... )
      >>> file = os.path.join(tempfile.mkdtemp(), "counts.db")
      >>> with beam.Pipeline("FnApiRunner") as pipeline:
      ...     releases = pipeline | beam.Create([{"page": "/a", "at": 5}]) | count
      ...     _ = releases | InsertIntoTable(count, f"sqlite:///{file}?table=pages")
      >>> import sqlite3
      >>> sqlite3.connect(file).execute("SELECT key, step, timestamp FROM pages").fetchall()
      [('/a', 1, '1970-01-01T01:00:00Z'), ('/a', 2, '1970-01-01T02:00:00Z')]
    """

    def __init__(self, count: TickCountPlan, output: str) -> None:
        super().__init__()
        if not isinstance(count, TickCountPlan):
            raise TypeError(f"count must be a TickCount, got a {type(count).__name__}")
        if not isinstance(count.entropy, ReplayableEntropy):
            raise ValueError(
                "a retry would draw another value for a row that is in the table already: give the "
                "count entropy=dp.ReplayableEntropy(...)"
            )
        if not isinstance(output, str) or not is_table(output):
            raise ValueError(
                "output must be the address of a table, postgresql://user@host/db?table=NAME or "
                "sqlite:///file.db?table=NAME"
            )
        address_of(output)
        self._table = TickTable([], TickCells(columns_of(count)))
        self._insert = _Insert(output, self._table, _sentence(count))

    def expand(self, releases: PCollection[Any]) -> PDone:
        rows = beam.FlatMap(self._table.rows, True).with_output_types(tuple[Any, ...])
        found: Any = releases | "Row" >> rows
        if releases.is_bounded:
            found = found | "Global" >> beam.WindowInto(GlobalWindows()) | "Together" >> ToList()
        else:
            found = found | "Alone" >> beam.Map(lambda row: [row]).with_output_types(list[Any])
        _ = found | "Insert" >> beam.ParDo(self._insert)
        return PDone(releases.pipeline)


def _sentence(count: TickCountPlan) -> str:
    """The guarantee of a count."""
    described = count._describe()
    covers = described.get("budget_covers", "all releases of all keys")
    return (
        f"Guarantee: {covers} together satisfy {described['budget']} for neighbours under "
        f"{described['neighbouring_relation']}; public: the clock, the keys unless they are "
        "selected, and with them the number and times of the releases."
    )


class _Insert(beam.DoFn):
    """Inserts the rows of a bundle."""

    def __init__(self, output: str, table: TickTable, guarantee: str) -> None:
        self._arguments = output, table, guarantee
        DatabaseTable(*self._arguments)  # refuses what no worker could do

    def setup(self) -> None:
        self._into = DatabaseTable(*self._arguments)

    def start_bundle(self) -> None:
        self._rows: list[list[tuple[Any, ...]]] = []

    def process(self, rows: list[tuple[Any, ...]]) -> None:
        self._rows.append(rows)

    def finish_bundle(self) -> None:
        if self._rows:
            # Where a row lies in a table would show in which order rows came.
            self._into.insert(sorted(chain.from_iterable(self._rows), key=itemgetter(0, 1)))

"""How a task is counted in columns, without Beam."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from beam_dpcount.commands.files import tables
from beam_dpcount.commands.files.columns import columns_of
from beam_dpcount.commands.files.elements import elements_of
from beam_dpcount.commands.files.formats import InputFile, Place, Places, Source, Table
from beam_dpcount.commands.progress import Progress
from beam_dpcount.lanes.elements import ElementsLane, Releases
from beam_dpcount.lanes.parts import PartsLane
from beam_dpcount.states.whole_keys import WholeKey

if TYPE_CHECKING:
    from beam_dpcount.commands.task import Task

LABEL = "Count"  # of the transform in a pipeline, by which noise goes
_ROWS = 1 << 16  # of the output that are made at a time


class ByColumns:
    """The lane of columns."""

    says = "rows are counted in columns, without Beam"

    def prepare(
        self, task: Task, source: Source, files: Sequence[InputFile], transform: Any
    ) -> None:
        """Has the task take over what counts."""
        self._source, self._files = source, files
        self._lane = PartsLane(transform, LABEL, task.options.memory, task.split)
        task.use(transform)

    def write(self, output: tables.Output) -> None:
        """Where the releases go."""
        self._target, self._table = tables.target_of(output), output.table

    def run(self, progress: Progress) -> int:
        """Counts; no row comes past a horizon."""
        for data in self._files:
            for columns in columns_of(self._source, data, self._lane.contents):
                self._lane.add(columns)
        tables.write(self._target, all_rows(self._lane, self._table, self._target.schema))
        return 0


def all_rows(lane: PartsLane, table: Table, schema: pa.Schema) -> pa.Table:
    """All releases as rows of the output, by key and then by tick."""
    rows, batches = lane.rows(), []
    while releases := [*islice(rows, _ROWS)]:
        batches.append(_batch(releases, table, schema))
        Progress.releases(len(releases))
    return pa.Table.from_batches(batches, schema)


def _batch(releases: Iterable[Any], table: Table, schema: pa.Schema) -> pa.RecordBatch:
    """Releases as rows of the output."""
    rows = [row for release in releases for row in table.rows(release, timed=True)]
    columns = zip(schema.types, zip(*rows, strict=True), strict=True)
    return pa.record_batch([pa.array(cells, kind) for kind, cells in columns], schema=schema)


class ByElement:
    """The lane of columns for a release per element."""

    says = "rows are counted in columns, without a pipeline"

    def prepare(
        self, task: Task, source: Source, files: Sequence[InputFile], transform: Any
    ) -> None:
        """Has the task take over what counts."""
        self._source, self._files = source, files
        counter, intake, entropy = transform.on_bounded_input(LABEL)
        whole = WholeKey(counter, intake.statistic, intake.draws(entropy))
        self._count = intake.statistic
        self._places = Places([source.label(data.path) for data in files])
        self._lane = ElementsLane(whole, counter.horizon, transform.bound, self._identity)
        self._stddevs: pa.Array | None = None  # of all steps; the slices share them
        self._ends = list[int]()  # how many rows there are, up to each file
        task.use(transform)

    def _identity(self, number: int) -> Place:
        """The place of a row, given its number over all files."""
        file = bisect_right(self._ends, number)
        row = number - (self._ends[file - 1] if file else 0) + 1
        return Place(file, self._places.paths[file], row)

    def write(self, output: tables.Output) -> None:
        """Where the releases go."""
        self._target = tables.target_of(output)

    def run(self, progress: Progress) -> int:
        """Counts, and returns how many rows came past the horizon."""
        many = 0
        for data in self._files:
            for elements in elements_of(self._source, data, self._count):
                self._lane.add(elements)
                many += len(elements.xs)
            self._ends.append(many)
        late = self._lane.past_horizon()
        tables.write_sorted(self._target, map(self._table, self._lane.releases(tables.SLICE)))
        return late

    def _table(self, releases: Releases) -> pa.Table:
        """Rows of the output."""
        keys, steps, micros, values = releases
        timed = self._source.timestamp is not None
        Progress.releases(len(steps))
        if self._stddevs is None:
            self._stddevs = pa.array(self._lane.stddevs)
        columns = {
            "key": keys,
            "step": pa.array(steps),
            "timestamp": pa.array(micros) if timed else pa.nulls(len(steps), pa.int64()),
            "value": pa.array(values, pa.float64()),
            "stddev": pa.DictionaryArray.from_arrays(steps - 1, self._stddevs),
        }
        return pa.table({name: columns[name] for name in self._target.schema.names})

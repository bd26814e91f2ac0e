"""How a task is counted in columns, without Beam."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from beam_dpcount.commands.files import tables
from beam_dpcount.commands.files.columns import columns_of
from beam_dpcount.commands.files.formats import InputFile, Source, Table
from beam_dpcount.commands.progress import Progress
from beam_dpcount.lanes.ticks import Series, TickLane

if TYPE_CHECKING:
    from beam_dpcount.commands.task import Task

_LABEL = "Count/TickCount"  # of the engine in a pipeline, by which noise goes


class ByColumns:
    """The lane of columns."""

    says = "rows are counted in columns, without Beam"

    def prepare(
        self, task: Task, source: Source, files: Sequence[InputFile], transform: Any
    ) -> None:
        """Has the task take over what counts."""
        self._source, self._files = source, files
        self._engine = transform.numbers
        self._lane = TickLane(self._engine, _LABEL, task.options.memory)
        task.use(transform)

    def write(self, output: tables.Output) -> None:
        """Where the releases go."""
        self._target, self._table = tables.target_of(output), output.table

    def run(self, progress: Progress) -> int:
        """Counts; no row comes past a horizon."""
        for data in self._files:
            for columns in columns_of(self._source, data, self._engine):
                self._lane.add(columns)
        schema, batches = self._target.schema, []
        for series in self._lane.releases():
            batches.append(_batch(series, self._table, schema))
            Progress.releases(len(series.values))
        tables.write(self._target, pa.Table.from_batches(batches, schema))
        return 0


class _Release(NamedTuple):
    """A release of one number, as the table takes it; of `dofns.releases`, which imports Beam."""

    key: str
    step: int
    timestamp: int
    value: float
    stddev: float
    restart: int | None


def _batch(series: Series, table: Table, schema: pa.Schema) -> pa.RecordBatch:
    """Releases as rows of the output."""
    placed = zip(series.steps, series.ends, series.values, series.stddevs, strict=True)
    releases = (_Release(series.key, *numbers, series.restart) for numbers in placed)
    rows = [row for release in releases for row in table.rows(release, timed=True)]
    columns = zip(schema.types, zip(*rows, strict=True), strict=True)
    return pa.record_batch([pa.array(cells, kind) for kind, cells in columns], schema=schema)

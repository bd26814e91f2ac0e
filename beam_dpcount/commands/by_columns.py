"""How a task is counted in columns, without Beam."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from beam_dpcount.commands.files import tables
from beam_dpcount.commands.files.columns import columns_of
from beam_dpcount.commands.files.formats import InputFile, Source, Table
from beam_dpcount.commands.progress import Progress
from beam_dpcount.lanes.parts import PartsLane

if TYPE_CHECKING:
    from beam_dpcount.commands.task import Task

_LABEL = "Count"  # of the transform in a pipeline, by which noise goes
_ROWS = 1 << 16  # of the output that are made at a time


class ByColumns:
    """The lane of columns."""

    says = "rows are counted in columns, without Beam"

    def prepare(
        self, task: Task, source: Source, files: Sequence[InputFile], transform: Any
    ) -> None:
        """Has the task take over what counts."""
        self._source, self._files = source, files
        self._lane = PartsLane(transform, _LABEL, task.options.memory, task.split)
        task.use(transform)

    def write(self, output: tables.Output) -> None:
        """Where the releases go."""
        self._target, self._table = tables.target_of(output), output.table

    def run(self, progress: Progress) -> int:
        """Counts; no row comes past a horizon."""
        for data in self._files:
            for columns in columns_of(self._source, data, self._lane.contents):
                self._lane.add(columns)
        schema, batches = self._target.schema, []
        rows = self._lane.rows()
        while releases := [*islice(rows, _ROWS)]:
            batches.append(_batch(releases, self._table, schema))
            Progress.releases(len(releases))
        tables.write(self._target, pa.Table.from_batches(batches, schema))
        return 0


def _batch(releases: Iterable[Any], table: Table, schema: pa.Schema) -> pa.RecordBatch:
    """Releases as rows of the output."""
    rows = [row for release in releases for row in table.rows(release, timed=True)]
    columns = zip(schema.types, zip(*rows, strict=True), strict=True)
    return pa.record_batch([pa.array(cells, kind) for kind, cells in columns], schema=schema)

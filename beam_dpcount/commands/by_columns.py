"""How a task is counted in columns, without Beam."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from beam_dpcount.commands.files import tables
from beam_dpcount.commands.files.columns import columns_of
from beam_dpcount.commands.files.formats import InputFile, Source
from beam_dpcount.commands.progress import Progress
from beam_dpcount.lanes.ticks import Series, TickLane

if TYPE_CHECKING:
    from beam_dpcount.commands.task import Task

_LABEL = "Count"  # of the transform in a pipeline, by which noise goes


class ByColumns:
    """The lane of columns."""

    says = "rows are counted in columns, without Beam"

    def prepare(
        self, task: Task, source: Source, files: Sequence[InputFile], transform: Any
    ) -> None:
        """Has the task take over what counts."""
        self._source, self._files, self._count = source, files, transform
        self._lane = TickLane(transform, _LABEL, task.options.memory)
        task.use(transform)

    def write(self, output: tables.Output) -> None:
        """Where the releases go."""
        self._target = tables.target_of(output)

    def run(self, progress: Progress) -> int:
        """Counts; no row comes past a horizon."""
        for data in self._files:
            for columns in columns_of(self._source, data, self._count):
                self._lane.add(columns)
        schema, batches = self._target.schema, []
        for series in self._lane.releases():
            batches.append(_batch(series, schema))
            Progress.releases(len(series.values))
        tables.write(self._target, pa.Table.from_batches(batches, schema))
        return 0


def _batch(series: Series, schema: pa.Schema) -> pa.RecordBatch:
    """Releases as rows of the output."""
    keys = pa.array([series.key], pa.string()).take(np.zeros(len(series.values), dtype=np.int64))
    columns = (keys, np.array(series.steps), series.ends, series.values, series.stddevs)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)]
    return pa.record_batch(arrays, schema=schema)

"""Writes a bounded collection of releases to one sorted file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.pvalue import PCollection
from apache_beam.transforms.window import GlobalWindow, GlobalWindows
from apache_beam.utils import windowed_value
from apache_beam.utils.timestamp import MIN_TIMESTAMP
from apache_beam.utils.windowed_value import WindowedValue

from beam_dpcount.commands.files import tables
from beam_dpcount.commands.files.tables import Output, Target, target_of

_NUMBERS = 1 << 18  # of a batch, rows times columns
_START = MIN_TIMESTAMP.micros
_NOTHING = b""  # no batch: a collection without rows makes a file too


class WriteTable(beam.PTransform[PCollection[Any], PCollection[str]]):
    """Writes all releases of a bounded collection to one file, and then yields its path.

    The rows come together on one worker, in Arrow's format. They are written beside the output and
    then renamed: there is never half a file, and an existing one is replaced. They are sorted by
    their own cells, whatever order they come in.

    Args:
      timed: whether to write the timestamps; if not, their cells are empty.
    """

    def __init__(self, output: Output, timed: bool) -> None:
        super().__init__()
        self._table, self._timed = output.table, timed
        self._write = WriteRows(target_of(output))

    def expand(self, releases: PCollection[Any]) -> PCollection[str]:
        rows = beam.FlatMap(self._rows).with_output_types(tuple[Any, ...])
        return releases | "Row" >> rows | "Write" >> self._write

    def _rows(self, release: object) -> Iterator[tuple[Any, ...]]:
        yield from self._table.rows(release, self._timed)


class WriteRows(beam.PTransform[PCollection[tuple[Any, ...]], PCollection[str]]):
    """Writes the rows of a bounded collection to one file, see `WriteTable`; else a ValueError."""

    def __init__(self, target: Target) -> None:
        super().__init__()
        self._pack, self._write = _Pack(target.schema), _Write(target)

    def expand(self, rows: PCollection[tuple[Any, ...]]) -> PCollection[str]:
        if not rows.is_bounded:
            raise ValueError("one file is written at the end: the rows must be bounded")
        seed: Any = beam.Create([(0, _NOTHING)], reshuffle=False)
        packed: Any = beam.ParDo(self._pack).with_output_types(tuple[int, bytes])
        write: Any = beam.ParDo(self._write).with_output_types(str)
        batches = rows | "Global" >> beam.WindowInto(GlobalWindows()) | "Pack" >> packed
        header = rows.pipeline | "Header" >> seed.with_output_types(tuple[int, bytes])
        together = (header, batches) | "Flatten" >> beam.Flatten() | "Together" >> beam.GroupByKey()
        return together | "Write" >> write


class _Pack(beam.DoFn):
    """From rows to batches in Arrow's format, under one key."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema, self._most = schema, max(1, _NUMBERS // len(schema))

    def start_bundle(self) -> None:
        self._rows: list[tuple[Any, ...]] = []

    def process(self, row: tuple[Any, ...]) -> Iterable[tuple[int, bytes]]:
        self._rows.append(row)
        return ((0, self._packed()),) if len(self._rows) == self._most else ()

    def finish_bundle(self) -> Iterator[WindowedValue]:
        if self._rows:
            yield windowed_value.create((0, self._packed()), _START, (GlobalWindow(),))

    def _packed(self) -> bytes:
        columns = zip(self._schema.types, zip(*self._rows, strict=True), strict=True)
        arrays = [pa.array(cells, kind) for kind, cells in columns]
        self.start_bundle()
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, self._schema) as stream:
            stream.write_batch(pa.record_batch(arrays, schema=self._schema))
        return out.getvalue().to_pybytes()


class _Write(beam.DoFn):
    def __init__(self, target: Target) -> None:
        self._target = target

    def process(self, element: tuple[int, Iterable[bytes]]) -> Iterator[str]:
        batches = [pa.ipc.open_stream(batch).read_all() for batch in element[1] if batch]
        tables.write(self._target, pa.concat_tables([self._target.schema.empty_table(), *batches]))
        yield self._target.path

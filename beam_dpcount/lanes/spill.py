"""Rows of people that wait until all are there: in memory, or on disk where there are too many."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from typing import IO
from zlib import crc32

import numpy as np
import pyarrow as pa

MEMORY = 1 << 30  # bytes, by default
_PARTS = 64  # files on disk, each of other people
_COPIES = 4  # how often rows are in memory while they are sorted


class Waiting:
    """Collects batches of rows, with a column "person", and gives them back by groups of people.

    All rows of a person are in one group. What does not fit is in files without a name, which only
    this user can read while they are open, and which go with the process.

    Args:
      memory: how many bytes the rows may take, with what is made of them.
    """

    def __init__(self, memory: int = MEMORY) -> None:
        self._most = max(memory // _COPIES, 1)
        self._batches: list[pa.RecordBatch] = []
        self._size = 0
        self._files: list[IO[bytes]] = []
        self._writers: list[pa.RecordBatchWriter] = []
        self._open = ExitStack()

    def add(self, batch: pa.RecordBatch) -> None:
        """Adds rows."""
        self._batches.append(batch)
        self._size += batch.nbytes
        if self._size > self._most:
            self._to_disk()

    def groups(self) -> Iterator[pa.Table]:
        """All rows, in groups; each can be taken once."""
        if not self._batches and not self._files:
            return
        if not self._files:
            yield pa.Table.from_batches(self._batches)
            return
        if self._batches:
            self._to_disk()
        with self._open:
            for writer, file in zip(self._writers, self._files, strict=True):
                writer.close()
                file.seek(0)
                group = pa.ipc.open_stream(file).read_all()
                file.close()
                if len(group):
                    yield group

    def _to_disk(self) -> None:
        for batch in self._batches:
            people = batch["person"].dictionary_encode()
            # A function of the person alone, and of whole text; what it is does not matter.
            parts = [crc32(name.encode()) % _PARTS for name in people.dictionary.to_pylist()]
            part = np.array(parts, dtype=np.int64)[people.indices.to_numpy()]
            order = np.argsort(part, kind="stable")
            ends = np.searchsorted(part[order], np.arange(_PARTS + 1))
            rows = batch.take(pa.array(order))
            if not self._files:
                opened = (tempfile.TemporaryFile() for _ in range(_PARTS))  # noqa: SIM115
                self._files = [self._open.enter_context(file) for file in opened]
                self._writers = [pa.ipc.new_stream(file, batch.schema) for file in self._files]
            for number, writer in enumerate(self._writers):
                if ends[number] < ends[number + 1]:
                    writer.write_batch(rows.slice(ends[number], ends[number + 1] - ends[number]))
        self._batches, self._size = [], 0

"""A cell of state that is not where it should be."""

from __future__ import annotations

from typing import Any

from beam_dpcount.dofns.kept import KeptCoder


class Kept:
    """A cell that is read from the DoFn."""

    def __init__(self, cells: dict[str, bytes], key: str, cell: Any) -> None:
        self._cells, self._key, self._cell = cells, key, cell

    def read(self) -> bytes | None:
        return self._cells.get(self._key)

    def write(self, data: Any) -> None:
        self._cells[self._key] = KeptCoder().encode(data)
        self._cell.write(data)

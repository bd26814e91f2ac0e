"""Cells of state: a plain one, and one that is not where it should be."""

from __future__ import annotations

from typing import Any

from beam_dpcount.dofns.states import KeptCoder


class Cell:
    """A cell of state."""

    data: Any = None

    def read(self) -> Any:
        return self.data

    def write(self, data: Any) -> None:
        self.data = data.packed() if hasattr(data, "packed") else data


class Kept:
    """A cell that is read from the DoFn."""

    def __init__(self, cells: dict[str, bytes], key: str, cell: Any) -> None:
        self._cells, self._key, self._cell = cells, key, cell

    def read(self) -> bytes | None:
        return self._cells.get(self._key)

    def write(self, data: Any) -> None:
        self._cells[self._key] = KeptCoder().encode(data)
        self._cell.write(data)


class Bag:
    """A bag of state."""

    def __init__(self) -> None:
        self.entries: list[bytes] = []

    def add(self, entry: bytes) -> None:
        self.entries.append(entry)

    def read(self) -> list[bytes]:
        return list(self.entries)

    def clear(self) -> None:
        self.entries.clear()


class Timer:
    """A timer, which knows when it is to fire, in seconds; None: it is not set."""

    at: float | None = None

    def set(self, moment: Any) -> None:
        self.at = moment.micros / 1_000_000

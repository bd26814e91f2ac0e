"""State of one key, for DoFns that are run without an engine: a cell, a bag, a timer."""

from __future__ import annotations

from typing import Any

from beam_dpcount.dofns.states import KeptCoder


class Cell:
    """A cell of state, which holds bytes as an engine's does."""

    def __init__(self) -> None:
        self.data: bytes | None = None

    def read(self) -> bytes | None:
        return self.data

    def write(self, data: Any) -> None:
        self.data = KeptCoder().encode(data)


class Bag:
    """A bag of state."""

    def __init__(self) -> None:
        self._entries: list[bytes] = []

    def add(self, entry: bytes) -> None:
        self._entries.append(entry)

    def read(self) -> list[bytes]:
        return list(self._entries)

    def clear(self) -> None:
        self._entries.clear()


class Timer:
    """A timer that is fired by hand: when it is set for, in microseconds; None: it is not."""

    at: int | None = None

    def set(self, moment: Any) -> None:
        self.at = moment.micros

"""State of one key, for DoFns that are run without an engine: a cell, a bag, a timer."""

from __future__ import annotations

from typing import Any

from apache_beam.coders import Coder

from beam_dpcount.dofns.kept import KeptCoder

_KEPT = KeptCoder()


class Cell:
    """A cell of state, which holds bytes as an engine's does."""

    def __init__(self, coder: Coder = _KEPT) -> None:
        self._coder = coder
        self.data: bytes | None = None

    def read(self) -> Any:
        return None if self.data is None else self._coder.decode(self.data)

    def write(self, data: Any) -> None:
        self.data = self._coder.encode(data)


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
    """A timer that is fired by hand: when it is set for, in microseconds; None: it is not."""

    at: int | None = None

    def set(self, moment: Any) -> None:
        self.at = moment.micros

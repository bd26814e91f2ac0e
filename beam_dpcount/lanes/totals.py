"""Exact sums of whole numbers in many cells."""

from __future__ import annotations

import numpy as np

from beam_dpcount.counters.clock import LARGEST
from beam_dpcount.mechanisms.base import IntArray


class Totals:
    """A sum in each of so many cells."""

    def __init__(self, cells: int) -> None:
        self._sums: IntArray = np.zeros(cells, dtype=np.int64)
        self._exact: dict[int, int] = {}  # what was in the cells when they were last emptied
        self._reach = 0  # no sum is further from 0

    def add(self, cells: IntArray, xs: IntArray) -> None:
        """Adds numbers to the sums of these cells."""
        reach = len(xs) * int(np.abs(xs).max(initial=0))
        if reach > LARGEST:  # one by one
            for cell, x in zip(cells.tolist(), xs.tolist(), strict=True):
                self._exact[cell] = self._exact.get(cell, 0) + x
            return
        if self._reach + reach > LARGEST:
            self._empty()
        self._reach += reach
        np.add.at(self._sums, cells, xs)

    def _empty(self) -> None:
        for cell in np.flatnonzero(self._sums).tolist():
            self._exact[cell] = self._exact.get(cell, 0) + int(self._sums[cell])
        self._sums[:], self._reach = 0, 0

    def between(self, first: int, last: int) -> IntArray:
        """The sums of these cells, from the first to before the last, clipped to 64 bits."""
        if self._exact:
            self._empty()
            for cell, total in self._exact.items():
                self._sums[cell] = min(max(total, -LARGEST), LARGEST)
            self._exact, self._reach = {}, LARGEST
        return self._sums[first:last]

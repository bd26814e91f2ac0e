"""How rows are read for metrics, and how what is released of them is written."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from beam_dpcount.commands.files import formats
from beam_dpcount.counters.moments import instant
from beam_dpcount.lanes import cells
from beam_dpcount.lanes.cells import BoolArray
from beam_dpcount.lanes.contents import MISSING, FieldCells
from beam_dpcount.plans.alarms import Zones
from beam_dpcount.plans.columns import TickColumns

if TYPE_CHECKING:
    from beam_dpcount.dofns.releases import Release, TickRelease

_DIGITS = 2  # below the leading one of a standard deviation


@dataclass(frozen=True)
class FieldsOfRow:
    """From the cells of a row to the fields that metrics read; None if the row does not count.

    Args:
      names: of the fields.
      numbers: those that hold numbers. In CSV their cells are text.
      where: COLUMN=VALUE; other rows do not count.
    """

    names: tuple[str, ...]
    numbers: frozenset[str]
    where: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns whose cells it takes, in their order."""
        known, _ = formats.counted(None, self.where)
        return (*self.names, *known)

    def __call__(self, *cells: object) -> dict[str, object] | None:
        if self.where is not None:
            _, holds = formats.counted(None, self.where)
            if not holds(cells[-1]):
                return None
        named = zip(self.names, cells, strict=False)
        return {name: self._cell(name, cell) for name, cell in named if cell != ""}

    def many(
        self, arrays: Sequence[pa.Array], size: int
    ) -> tuple[dict[str, FieldCells], BoolArray]:
        """The fields of so many rows, given arrays of cells, and which rows count."""
        there = np.ones(size, dtype=np.bool_)
        if self.where is not None:
            _, holds = formats.counted(None, self.where)
            there = cells.numbers(arrays[-1], lambda cell: int(bool(holds(cell))), None) > 0

        def field(name: str, array: pa.Array) -> FieldCells:
            def value(cell: object) -> object:
                return MISSING if cell == "" else self._cell(name, cell)

            return FieldCells(array, value, name in self.numbers)

        named = zip(self.names, arrays, strict=False)
        return {name: field(name, array) for name, array in named}, there

    def _cell(self, name: str, cell: object) -> object:
        if name in self.numbers:
            return formats.number(cell)
        return int(cell) if isinstance(cell, float) and cell.is_integer() else cell


def rounded(number: float | None, scale: float | None) -> float | None:
    """A number without the digits that its noise makes meaningless.

    It is rounded to a power of ten, from 1/100 to 1/1000 of the scale: of its standard deviation,
    or half of its interval. Rounding adds less than 1/200 of that.
    """
    if number is None or scale is None or not 0 < scale < math.inf:
        return number
    return round(float(number), _DIGITS - math.floor(math.log10(scale))) + 0.0


@dataclass(frozen=True)
class TickCells:
    """From a release to the cells of a row: times in ISO 8601, rounded numbers.

    The last cell is where it lies beside an alarm's level and threshold; `tables.write` makes of
    these where alarms start, once rows are sorted.
    """

    columns: TickColumns
    alarm: Zones | None = None

    def __call__(self, release: Release | TickRelease) -> list[tuple[object, ...]]:
        start, end = instant(self.columns.start(release)), instant(release.timestamp)
        cells: list[object] = [release.key, release.step, start, end]
        zone = 0
        cells += [release.restart] * self.columns.numbered
        for column, found in self.columns.cells(release):
            scale = found.stddev
            if scale is None and found.low is not None and found.high is not None:
                scale = (found.high - found.low) / 2
            cells += [rounded(number, scale) for number in column.numbers(found)]
            if self.alarm is not None and column.name == self.alarm.column:
                zone = self.alarm.of(release.key, found.value)
        return [(*cells, *([] if self.alarm is None else [zone]))]


@dataclass(frozen=True)
class TickTable(formats.Table):
    """A row a key and tick, with all columns."""

    @property
    def schema(self) -> list[tuple[str, type]]:
        cells: Any = self.cells
        placed: dict[str, type] = {"key": str, "step": int, "start": str, "timestamp": str}
        placed["restart"] = int
        columns = [(name, placed.get(name, float)) for name in cells.columns.names]
        return [*columns, *([(self.alarm, int)] if self.alarm else [])]

    @property
    def primary_key(self) -> tuple[str, ...]:
        return ("key", "timestamp")

    @property
    def times(self) -> tuple[str, ...]:
        return ("start", "timestamp")

    @property
    def alarm(self) -> str:
        cells: Any = self.cells
        return "" if cells.alarm is None else cells.alarm.name

    def rows(self, release: Any, timed: bool) -> Iterable[tuple[Any, ...]]:
        return self.cells(release)

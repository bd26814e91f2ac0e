"""What events count, in columns of whole numbers.

Of one number it is the number itself; of several metrics, whether the event counts, and a code for
what it adds to each. An event whose first column is 0 counts nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beam_dpcount.lanes import cells
from beam_dpcount.mechanisms.base import FloatArray, IntArray
from beam_dpcount.plans.sentence import Part
from beam_dpcount.plans.ticks import TickNumbersPlan
from beam_dpcount.plans.vectors import TickVectorsPlan
from beam_dpcount.reading import UNREADABLE, read
from beam_dpcount.statistics.metrics import Metric, Sum
from beam_dpcount.statistics.metrics.base import Additions, OfField

Items = Iterator[tuple[IntArray, IntArray]]  # a coordinate of each event, and what it adds there
MISSING: Final = object()  # in place of the value of a field that an event does not have
_BROKEN = -1  # the code of an event that no metric can read


class FieldCells(NamedTuple):
    """The cells of a field.

    Fields:
      array: of all events.
      value: what an event with such a cell holds; MISSING: no such field.
      plain: whether numbers, and texts that show them, are the numbers that events hold.
    """

    array: pa.Array
    value: Callable[[object], object]
    plain: bool = True


class Contents(ABC):
    """Makes columns of what events count, and adds them up.

    Attributes:
      width: of how many sums.
      kinds: the types that hold its columns.
      asks_first: whether it matters which event is the first of its person under a key.
    """

    width: int
    kinds: Sequence[Any]
    asks_first: bool = False

    @abstractmethod
    def of_cells(self, fields: Mapping[str, FieldCells], there: cells.BoolArray) -> list[IntArray]:
        """The columns of events, given their fields; `there`: whether they may count."""

    @abstractmethod
    def of_payloads(self, payloads: Sequence[object]) -> list[IntArray]:
        """The same of events that were read one by one."""

    @abstractmethod
    def items(self, columns: Sequence[IntArray], firsts: cells.BoolArray | None) -> Items:
        """What events add to which sums; `firsts`: which are their person's first under a key."""

    @abstractmethod
    def ties(self, columns: Sequence[IntArray]) -> list[npt.NDArray[Any]]:
        """By what events of one person and time are taken, as parcels of a pipeline sort.

        What they count, as `np.lexsort` has its keys; between the two of `ranks`.
        """

    def ranks(self, keys: Sequence[str], listed: bool) -> tuple[IntArray, IntArray]:
        """The same of each key: what sorts last, and what sorts first."""
        return np.zeros(len(keys), dtype=np.int64), _ranks_of([*map(_with_length, keys)])


def contents_of(part: Part) -> Contents:
    """What makes columns for a part of a TickCount."""
    engine = part.engine
    return Vectors(engine) if isinstance(engine, TickVectorsPlan) else Numbers(engine, part.metrics)


class Numbers(Contents):
    """One number of each event."""

    width = 1

    def __init__(self, count: TickNumbersPlan, metrics: Sequence[Metric]) -> None:
        (metric,) = metrics
        self._count, self._field = count, metric.field if isinstance(metric, Sum) else None
        self.kinds = [np.int8 if count.reach < 128 else np.int64]  # most numbers are ones

    def of_cells(self, fields: Mapping[str, FieldCells], there: cells.BoolArray) -> list[IntArray]:
        if self._field is None:
            return [there.astype(np.int64)]
        count, (array, value, plain) = self._count, fields[self._field]
        many = count.numbers_of if plain else None
        xs = cells.numbers(array, lambda cell: count.number(value(cell)), many)
        return [np.where(there, xs, 0)]

    def of_payloads(self, payloads: Sequence[object]) -> list[IntArray]:
        count, value = self._count, self._count.value
        read_all = payloads if value is None else (read(value, each) for each in payloads)
        return [np.fromiter(map(count.number, read_all), np.int64, len(payloads))]

    def items(self, columns: Sequence[IntArray], firsts: cells.BoolArray | None) -> Items:
        (xs,) = columns
        yield np.zeros(len(xs), dtype=np.int64), xs

    def ties(self, columns: Sequence[IntArray]) -> list[npt.NDArray[Any]]:
        return [columns[0].view(np.uint64)]  # as parcels sort: numbers below 0 come last

    def ranks(self, keys: Sequence[str], listed: bool) -> tuple[IntArray, IntArray]:
        if listed:
            return np.zeros(len(keys), dtype=np.int64), np.arange(len(keys))
        names = [key.encode() for key in keys]
        return _ranks_of(names), np.array([*map(len, names)], dtype=np.int64)


class Vectors(Contents):
    """The sums of several metrics."""

    def __init__(self, count: TickVectorsPlan) -> None:
        self._read, self._joint = count.contents, count.joint
        self.width, self.asks_first = self._joint.width, bool(self._joint.first)
        self._coders = [
            OfCodes(each) if isinstance(each, OfField) else OfTable(each)
            for each in self._joint.metrics
        ]
        self._multipliers = np.array(self._joint.multipliers, dtype=np.int64)
        self.kinds = [np.int8, *(coder.kind for coder in self._coders)]

    def of_cells(self, fields: Mapping[str, FieldCells], there: cells.BoolArray) -> list[IntArray]:
        return self._counted(there, [coder.of_cells(fields, len(there)) for coder in self._coders])

    def of_payloads(self, payloads: Sequence[object]) -> list[IntArray]:
        contents = [self._read.content(each) for each in payloads]
        there = np.array([each is not UNREADABLE for each in contents], dtype=np.bool_)
        codes = [
            np.fromiter((coder.of_event(each) for each in contents), np.int64, len(contents))
            for coder in self._coders
        ]
        return self._counted(there, codes)

    def _counted(self, there: cells.BoolArray, codes: list[IntArray]) -> list[IntArray]:
        for column in codes:
            there = there & (column != _BROKEN)
        codes = [np.where(there, column, 0) for column in codes]
        if not self.asks_first:  # else one that adds nothing may be a person's first
            adds = np.zeros(len(there), dtype=np.bool_)
            for _, amounts in self.items([there.astype(np.int64), *codes], None):
                adds |= amounts != 0
            there = adds
        return [there.astype(np.int64), *codes]

    def items(self, columns: Sequence[IntArray], firsts: cells.BoolArray | None) -> Items:
        for coder, start, codes in zip(self._coders, self._joint.starts, columns[1:], strict=False):
            for places, amounts in coder.items(codes):
                places = places + start
                yield places, amounts * self._multipliers[places]
        if firsts is not None:
            for place, amount in self._joint.first:
                yield np.full(len(firsts), place), np.where(firsts, amount, 0)

    def ties(self, columns: Sequence[IntArray]) -> list[npt.NDArray[Any]]:
        # As parcels sort: by the items that an event adds, one after the other.
        places, amounts = (
            np.stack(each, axis=1) for each in zip(*self.items(columns, None), strict=True)
        )
        there = amounts != 0
        order = np.argsort(~there, axis=1, kind="stable")
        places = np.take_along_axis(np.where(there, places, -1), order, axis=1)
        amounts = np.take_along_axis(amounts, order, axis=1).view(np.uint64)
        found = list[npt.NDArray[Any]]()
        for item in reversed(range(places.shape[1])):
            found += [amounts[:, item], places[:, item]]
        return found


def _with_length(key: str) -> tuple[int, bytes]:
    name = key.encode("utf-8", "surrogatepass")
    return len(name), name


def _ranks_of(names: Sequence[Any]) -> IntArray:
    """The place of each among all of them, sorted."""
    ranks = np.empty(len(names), dtype=np.int64)
    ranks[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
    return ranks


class Coder(ABC):
    """Codes of what events add to a metric's sums; 0 adds nothing."""

    kind: Any = np.int32

    def __init__(self, metric: Any) -> None:
        self.metric = metric

    @abstractmethod
    def code(self, event: Mapping[str, object]) -> int:
        """The code of one event."""

    @abstractmethod
    def items(self, codes: IntArray) -> Items:
        """What events of these codes add to which of the metric's sums."""

    # Makes codes of plain numbers, NaN is none; None: each cell is looked at.
    many: Callable[[IntArray | FloatArray], IntArray] | None = None

    def of_event(self, content: Any) -> int:
        """The code of what metrics read."""
        found = read(self.code, content)
        return _BROKEN if found is UNREADABLE else int(found)

    def of_cells(self, fields: Mapping[str, FieldCells], size: int) -> IntArray:
        """The codes of so many events."""
        if not self.metric.fields:
            return np.full(size, self.of_event({}), dtype=np.int64)
        (name,) = self.metric.fields
        array, value, plain = fields[name]

        def one(cell: object) -> int:
            content = value(cell)
            return self.of_event({} if content is MISSING else {name: content})

        return cells.numbers(array, one, self.many if plain else None)


class OfCodes(Coder):
    """Of a metric of numbers, whose codes are its own."""

    def __init__(self, metric: OfField) -> None:
        super().__init__(metric)
        self._least, most = metric.range
        self.many = self._many
        if most - self._least >= 1 << 30:
            self.kind = np.int64

    def code(self, event: Mapping[str, object]) -> int:
        code = self.metric.code(event)
        return 0 if code is None else int(code) - self._least + 1

    def _many(self, values: IntArray | FloatArray) -> IntArray:
        known = values == values  # not NaN
        codes = self.metric.codes(values if known.all() else np.where(known, values, 0))
        return np.where(known, codes - self._least + 1, 0)

    def items(self, codes: IntArray) -> Items:
        there = codes > 0
        for places, amounts in self.metric.of_code(np.where(there, codes - 1, 0) + self._least):
            yield np.broadcast_to(places, codes.shape), np.where(there, amounts, 0)


class OfTable(Coder):
    """Of a metric to which events add one of few things."""

    def __init__(self, metric: Metric) -> None:
        super().__init__(metric)
        self._known: dict[Additions, int] = {(): 0}

    def code(self, event: Mapping[str, object]) -> int:
        return self._known.setdefault(self.metric.additions(event), len(self._known))

    def items(self, codes: IntArray) -> Items:
        for item in range(max(map(len, self._known))):
            pairs = [added[item] if item < len(added) else (0, 0) for added in self._known]
            places, amounts = np.array(pairs, dtype=np.int64).T
            yield places[codes], amounts[codes]

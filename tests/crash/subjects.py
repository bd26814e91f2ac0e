"""The counts that the crash tests run: as pipelines have them, and what must come out of each.

Events are rows (key, value, time, number). What comes out is said twice: by the uninterrupted run,
step by step in memory (reference.py), and by plain sums of the rows.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import Counter as Tally
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, combinations
from operator import itemgetter
from typing import Any, ClassVar, NamedTuple

import apache_beam as beam
from apache_beam.transforms.window import FixedWindows

import beam_dpcount as dp
from beam_dpcount.counters.hierarchy import text_of_path
from beam_dpcount.dofns.elements import CountEachElement
from beam_dpcount.dofns.shards import CountShards
from beam_dpcount.dofns.ticks import CountEachTick
from beam_dpcount.dofns.trees import CountEachTree
from beam_dpcount.dofns.users import BoundArriving
from beam_dpcount.transforms.ticks import TickNumbers
from beam_dpcount.transforms.trees import TickTrees
from tests.crash import reference

LARGEST = 5  # the largest value of an event
TICK = 1_000_000  # microseconds
PER_TICK = 10  # events of all keys in one tick
PARTITIONS = 2  # ordered ones: all events of a key, and of a person, are in one of them

_WINDOW = 10  # ticks
_LATE = 4  # ticks, of one event in five of every other key
_PEOPLE = 40  # a partition

_NUMBERS: dict[str, Any] = {
    "bounds": (0, LARGEST),
    "value": itemgetter(0),
    "element_id": itemgetter(1),
}

Place = tuple[Any, ...]
Bounds = tuple[tuple[float, ...], tuple[float, ...]]  # the least and the most, by coordinate


class Row(NamedTuple):
    """One event."""

    key: str
    value: int
    micros: int
    number: int

    @classmethod
    def of(cls, line: bytes) -> Row:
        """One line of a file."""
        key, *numbers = line.decode().split(",")
        return cls(key, *map(int, numbers))

    @property
    def line(self) -> str:
        return ",".join(map(str, self)) + "\n"


@dataclass(frozen=True)
class Size:
    """How much there is to count.

    Fields:
      keys, events: how many.
      ordered: whether a key's elements arrive in one order, whatever the transforms do before. On
        an engine with several workers they do not, once they have been to their persons.
    """

    keys: int
    events: int
    ordered: bool = True

    @property
    def names(self) -> list[str]:
        return [f"key-{i}" for i in range(self.keys)]

    @property
    def ticks(self) -> int:
        """Whole windows, and later than all events."""
        return -(-(self.events // PER_TICK + 2) // _WINDOW) * _WINDOW

    def partition(self, key: str) -> int:
        return self.names.index(key) % PARTITIONS


class Subject(ABC):
    """One kind of count. Each run has two: a private one, and one with an enormous budget."""

    label: ClassVar[str]
    hides: ClassVar[bool] = False  # whether private counts decide which releases there are
    why: ClassVar[str] = ""  # releases may differ from life to life
    _common: ClassVar[dict[str, Any]] = {"path": "streaming"}

    @abstractmethod
    def transform(self, size: Size, budget: Any, **options: Any) -> Any:
        """The count; options are mechanism and entropy."""

    def payload(self, row: Row) -> Any:
        """The value of an element."""
        return row.value, row.number

    def element(self, row: Row) -> tuple[str, Any]:
        return row.key, self.payload(row)

    def apply(self, events: Any, name: str, transform: Any) -> Any:
        """The releases of events, under the label that the noise depends on."""
        return events | f"Count {name}" >> transform

    def row(self, size: Size, number: int, rng: random.Random) -> Row:
        """An event whose time is less than one tick behind those before it."""
        micros = number * TICK // PER_TICK + rng.randrange(TICK)
        return Row(rng.choice(size.names), rng.randint(0, LARGEST), micros, number)

    def place(self, release: Sequence[Any]) -> Place:
        """What names a release, of its key, step and time."""
        return tuple(release[:3])

    def may_differ(self, size: Size, place: Place) -> bool:
        """Whether two lives may give a release two values, as the documentation says."""
        return False

    @abstractmethod
    def releases(self, size: Size, dofns: Mapping[type, Any], rows: list[Row]) -> Iterable[Any]:
        """Those of an uninterrupted run, by the count's own DoFns, set up."""

    @abstractmethod
    def totals(self, size: Size, rows: list[Row]) -> dict[Place, Bounds]:
        """Between what each release lies if there is no noise; mostly that is one value."""

    def finals(self, size: Size, rows: list[Row]) -> dict[str, float]:
        """The largest release of keys of which `totals` does not say it."""
        return {}


def person(row: Row) -> str:
    """Whose event it is: of somebody all of whose events are in one partition."""
    return f"{int(row.key.split('-')[1]) % PARTITIONS}-{row.number % _PEOPLE}"


def _exactly(*values: float) -> Bounds:
    made = tuple(map(float, values))
    return made, made


# After each element


class _Elements(Subject):
    """Counts that release after each element."""

    def releases(self, size: Size, dofns: Mapping[type, Any], rows: list[Row]) -> Iterable[Any]:
        events = [(self.element(row), row.micros) for row in rows]
        return reference.of_elements(dofns[CountEachElement], events)

    def totals(self, size: Size, rows: list[Row]) -> dict[Place, Bounds]:
        found, before = {}, dict[str, list[Row]]()
        for row in rows:
            of_key = before.setdefault(row.key, [])
            of_key.append(row)
            found[row.key, len(of_key), row.micros] = _exactly(*self.total(of_key))
        return found

    @abstractmethod
    def total(self, rows: list[Row]) -> Sequence[float]:
        """What is counted of the events of a key so far."""


class Elements(_Elements):
    label = "PrefixCount"

    def transform(self, size: Size, budget: Any, **options: Any) -> Any:
        return dp.PrefixCount(budget, size.events, **_NUMBERS, **self._common, **options)

    def total(self, rows: list[Row]) -> Sequence[float]:
        return (sum(row.value for row in rows),)


class Histograms(_Elements):
    label = "Histogram"
    _domain = tuple(f"item-{value}" for value in range(LARGEST))  # one value is in none

    def transform(self, size: Size, budget: Any, **options: Any) -> Any:
        given: dict[str, Any] = {"value": _item, "element_id": itemgetter(1)}
        return dp.Histogram(budget, size.events, self._domain, **given, **self._common, **options)

    def total(self, rows: list[Row]) -> Sequence[float]:
        seen = Tally(row.value for row in rows)
        return tuple(seen[value] for value in range(LARGEST))


class TriangleCounts(_Elements):
    label = "TriangleCount"
    _vertices = 8

    def transform(self, size: Size, budget: Any, **options: Any) -> Any:
        given: dict[str, Any] = {"value": itemgetter(2), "element_id": itemgetter(1)}
        given |= {"vertices": self._vertices, "max_degree": self._vertices - 1}
        return dp.TriangleCount(budget, size.events, **given, **self._common, **options)

    def payload(self, row: Row) -> Any:
        return *super().payload(row), _edge(row, self._vertices)

    def total(self, rows: list[Row]) -> Sequence[float]:
        pairs = {frozenset(_edge(row, self._vertices)) for row in rows}
        corners = combinations(range(self._vertices), 3)
        return (sum(all(frozenset(e) in pairs for e in combinations(c, 2)) for c in corners),)


def _item(payload: Any) -> str:
    return f"item-{payload[0]}"


def _edge(row: Row, vertices: int) -> tuple[int, int]:
    """Two vertices, seldom the same, as a function of the event."""
    return row.value, (row.value * 3 + row.number // 7) % vertices


class _OfPeople(Subject):
    """Elements carry whose they are."""

    def payload(self, row: Row) -> Any:
        return *super().payload(row), person(row)


class Persons(_OfPeople, _Elements):
    """Each event takes a step, and counts if it is among the first of its person."""

    label = "PrefixCount of people"
    why = "elements come to their key from several workers, in no order"

    def transform(self, size: Size, budget: Any, **options: Any) -> Any:
        users = dp.Users(itemgetter(2), events=_most(size), keys=1, per_key=_most(size))
        return dp.PrefixCount(
            budget, size.events, users=users, **_NUMBERS, **self._common, **options
        )

    def place(self, release: Sequence[Any]) -> Place:
        # Times are distinct, so that they name an element: steps may come in another order.
        return release[0], release[2]

    def may_differ(self, size: Size, place: Place) -> bool:
        return not size.ordered

    def releases(self, size: Size, dofns: Mapping[type, Any], rows: list[Row]) -> Iterable[Any]:
        elements = map(self.element, rows)
        timed = zip(elements, (row.micros for row in rows), strict=True)
        passed = reference.of_people(dofns[BoundArriving], timed, itemgetter(2))
        return reference.of_elements(dofns[CountEachElement], passed)

    def totals(self, size: Size, rows: list[Row]) -> dict[Place, Bounds]:
        kept, sums = _first_of_each(rows, _most(size)), Tally[str]()
        finals, found = self.finals(size, rows), {}
        for row in rows:
            sums[row.key] += row.value if row in kept else 0
            place = row.key, row.micros
            if size.ordered:
                found[place] = _exactly(sums[row.key])
            else:
                own = float(row.value if row in kept else 0)
                found[place] = (own,), (finals[row.key],)
        return found

    def finals(self, size: Size, rows: list[Row]) -> dict[str, float]:
        kept, sums = _first_of_each(rows, _most(size)), Tally[str]()
        for row in kept:
            sums[row.key] += row.value
        return {row.key: float(sums[row.key]) for row in rows}

    def total(self, rows: list[Row]) -> Sequence[float]:
        raise NotImplementedError


def _most(size: Size) -> int:
    """How many events of a person count, of nearly twice as many in the first key."""
    return max(1, size.events // (16 * _PEOPLE))


def _first_of_each(rows: list[Row], most: int) -> set[Row]:
    """The first `most` events of each person, all in the person's first key."""
    first: dict[str, str] = {}
    counted, kept = Tally[str](), set[Row]()
    for row in rows:
        who = person(row)
        if first.setdefault(who, row.key) == row.key and counted[who] < most:
            counted[who] += 1
            kept.add(row)
    return kept


# At ticks


class Ticks(Subject):
    label = "TickCount"

    def transform(self, size: Size, budget: Any, **options: Any) -> Any:
        given = {"horizon": size.ticks, "keys": self._keys(size), "bounds": (0, LARGEST)}
        given |= {"value": itemgetter(0)} | self._more(size)
        return TickNumbers(budget, TICK / 1e6, 0, **given, **self._common, **options)

    def _keys(self, size: Size) -> Any:
        return size.names

    def _more(self, size: Size) -> dict[str, Any]:
        return {}

    def _counted(self, size: Size, rows: list[Row]) -> Iterable[Row]:
        return rows

    def _sums(self, size: Size, rows: Iterable[Row]) -> dict[str, list[int]]:
        found = {key: [0] * size.ticks for key in size.names}
        for row in rows:
            found[row.key][row.micros // TICK] += row.value
        return found

    def releases(self, size: Size, dofns: Mapping[type, Any], rows: list[Row]) -> Iterable[Any]:
        sums = self._sums(size, self._counted(size, rows))
        return reference.of_ticks(dofns[CountEachTick], sums)

    def totals(self, size: Size, rows: list[Row]) -> dict[Place, Bounds]:
        return {
            (key, step, step * TICK): _exactly(total)
            for key, sums in self._sums(size, self._counted(size, rows)).items()
            for step, total in enumerate(accumulate(sums), start=1)
        }


class Trees(Ticks):
    """Totals at every level: of each key, of every other key together, and of all."""

    label = "TickCount of a tree of keys"

    def _tree(self, size: Size) -> dp.Hierarchy:
        return dp.Hierarchy(
            ["half", "name"], [(f"half-{i % 2}", k) for i, k in enumerate(size.names)]
        )

    def _keys(self, size: Size) -> Any:
        return self._tree(size).texts

    def transform(self, size: Size, budget: Any, **options: Any) -> Any:
        given = {"horizon": size.ticks, "bounds": (0, LARGEST), "value": itemgetter(0)}
        given |= {"keys": self._keys(size), "tree": self._tree(size)}
        return TickTrees(budget, TICK / 1e6, 0, **given, **self._common, **options)

    def element(self, row: Row) -> tuple[str, Any]:
        half = int(row.key.split("-")[1]) % 2
        return text_of_path((f"half-{half}", row.key)), self.payload(row)

    def apply(self, events: Any, name: str, transform: Any) -> Any:
        return super().apply(events, name, transform) | f"Named {name}" >> beam.Map(_named)

    def releases(self, size: Size, dofns: Mapping[type, Any], rows: list[Row]) -> Iterable[Any]:
        sums = self._sums(size, rows)
        return map(_named, reference.of_tree(dofns[CountEachTree], [sums[k] for k in size.names]))

    def totals(self, size: Size, rows: list[Row]) -> dict[Place, Bounds]:
        found = Tally[Place]()
        for (key, *place), ((total,), _) in super().totals(size, rows).items():
            for node in (key, f"half-{int(key.split('-')[1]) % 2}", "all"):
                found[(node, *place)] += int(total)
        return {place: _exactly(total) for place, total in found.items()}


def _named(release: Any) -> dp.Release:
    """A release of a node under its own name."""
    *_, name = "all", *filter(None, release.path)
    return dp.Release(name, release.step, release.timestamp, release.value, release.stddev)


class People(_OfPeople, Ticks):
    """Of each person so many events count, in the first key."""

    label = "TickCount of people"

    def _more(self, size: Size) -> dict[str, Any]:
        most = _most(size)
        return {"users": dp.Users(itemgetter(2), events=most, keys=1, per_key=most)}

    def _counted(self, size: Size, rows: list[Row]) -> Iterable[Row]:
        # Events that count 0 take no one's place.
        return _first_of_each([row for row in rows if row.value], _most(size))


class Periods(People):
    """The same in each of a few periods."""

    label = "TickCount of people of periods"

    def _more(self, size: Size) -> dict[str, Any]:
        return {"users": dp.Users(itemgetter(2), events=1, keys=1, per_key=1, per=_WINDOW)}

    def _counted(self, size: Size, rows: list[Row]) -> Iterable[Row]:
        periods: dict[int, list[Row]] = {}
        for row in filter(itemgetter(1), rows):  # as above
            periods.setdefault(row.micros // (_WINDOW * TICK), []).append(row)
        return [row for some in periods.values() for row in _first_of_each(some, 1)]


class Selected(Ticks):
    """Nobody lists the keys: which are shown, and when, is decided by their private counts."""

    label = "TickCount of unlisted keys"
    hides = True

    def _keys(self, size: Size) -> Any:
        return dp.SelectKeys(delta=1e-6, shards=4)

    def releases(self, size: Size, dofns: Mapping[type, Any], rows: list[Row]) -> Iterable[Any]:
        return reference.of_shards(dofns[CountShards], self._sums(size, rows))


class Late(Ticks):
    """In windows; of every other key some events are late, and count at the next tick, or never.

    How late an event is depends on the watermark, which is in no checkpoint: its key's releases may
    differ from life to life. Those of the other keys may not.
    """

    label = "TickCount in windows, with late events"
    why = "keys with late events, which a watermark decides"

    def apply(self, events: Any, name: str, transform: Any) -> Any:
        window = beam.WindowInto(FixedWindows(_WINDOW * TICK / 1e6))
        return events | f"Window {name}" >> window | f"Count {name}" >> transform

    def _more(self, size: Size) -> dict[str, Any]:
        return {"late": "fold"}

    def row(self, size: Size, number: int, rng: random.Random) -> Row:
        made = super().row(size, number, rng)
        behind = _LATE * TICK * (self._may_be_late(made.key) and rng.random() < 0.2)
        return made._replace(micros=max(0, made.micros - behind))

    def _may_be_late(self, key: str) -> bool:
        return int(key.split("-")[1]) % 4 >= 2  # some in each partition

    def _is_late(self, row: Row) -> bool:
        return row.micros < row.number * TICK // PER_TICK

    def may_differ(self, size: Size, place: Place) -> bool:
        return self._may_be_late(place[0])

    def releases(self, size: Size, dofns: Mapping[type, Any], rows: list[Row]) -> Iterable[Any]:
        in_time = [row for row in rows if not self._is_late(row)]
        return reference.of_ticks(dofns[CountEachTick], self._sums(size, in_time))

    def totals(self, size: Size, rows: list[Row]) -> dict[Place, Bounds]:
        in_time = self._sums(size, (row for row in rows if not self._is_late(row)))
        at_most = self._sums(size, rows)
        # At its arrival no later tick than the next can have been released: it counts soon after.
        soon = {key: [0] * size.ticks for key in size.names}
        for row in filter(self._is_late, rows):
            tick, arrival = row.micros // TICK, row.number // PER_TICK
            if arrival + 2 < (tick // _WINDOW + 1) * _WINDOW:
                soon[row.key][arrival + 2] += row.value
        found = dict[Place, Bounds]()
        for key in size.names:
            for first in range(0, size.ticks, _WINDOW):
                part = slice(first, first + _WINDOW)
                least = accumulate(map(sum, zip(in_time[key][part], soon[key][part], strict=True)))
                most = accumulate(at_most[key][part])
                for step, (low, high) in enumerate(zip(least, most, strict=True), start=1):
                    place = key, first + step, (first + step) * TICK  # of the whole clock
                    found[place] = (float(low),), (float(high),)
        return found


SUBJECTS: dict[str, Subject] = {
    "elements": Elements(),
    "histogram": Histograms(),
    "triangles": TriangleCounts(),
    "persons": Persons(),
    "ticks": Ticks(),
    "late": Late(),
    "selected": Selected(),
    "tree": Trees(),
    "people": People(),
    "periods": Periods(),
}


def rows_of(subject: Subject, size: Size, rng: random.Random) -> Iterator[Row]:
    """The events, times a little out of order, all of them distinct.

    In whole milliseconds: between workers Beam cuts times to these, on some engines.
    """
    known = set[int]()
    for number in range(size.events):
        while True:
            row = subject.row(size, number, rng)
            row = row._replace(micros=row.micros // 1000 * 1000)
            if row.micros not in known:
                break
        known.add(row.micros)
        yield row

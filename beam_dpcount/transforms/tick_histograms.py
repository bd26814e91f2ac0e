"""TickHistogram: private running counts of items, at the ticks of a public clock."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import KW_ONLY, dataclass, fields
from typing import Any

import apache_beam as beam
from apache_beam import typehints
from apache_beam.pvalue import PCollection

from beam_dpcount.budget.budgets import Budget
from beam_dpcount.budget.shares import Share
from beam_dpcount.checks import check_callable, check_whole
from beam_dpcount.counters.people import Users
from beam_dpcount.counters.selection import SelectKeys
from beam_dpcount.dofns.releases import Release
from beam_dpcount.dofns.rows import TO_ITEMS, RowElementError, is_row, is_row_type
from beam_dpcount.dofns.ticks import check_timed
from beam_dpcount.dofns.versions import VersionedDoFn
from beam_dpcount.mechanisms import Mechanism
from beam_dpcount.noise.entropy import Entropy
from beam_dpcount.plans.inside import Inside
from beam_dpcount.reading import UNREADABLE, Function, call, read
from beam_dpcount.statistics.items import NOT_ITEMS, TOO_MANY, Items
from beam_dpcount.transforms.checking import RowCheck, examine_person
from beam_dpcount.transforms.of_ticks import OfTicks
from beam_dpcount.transforms.ticks import TickNumbers, one

# An alias, because the declared default is Beam's marker.
_WindowedValue: Any = beam.DoFn.WindowedValueParam


@dataclass(eq=False, repr=False)
class TickHistogram(OfTicks):
    """A private running count of every item of a public domain, at every tick of a public clock.

    PCollection[item or items] with event times -> PCollection[Release], whose key is an item: one
    for every item of the domain at every tick, events or not. Each item has a counter and a state
    of its own, so that work spreads over workers however large the domain is. Unlike Histogram's,
    an event has no key: it is an item (a str), or an iterable of items. Of these the first
    `max_items` distinct ones, in the order of the domain, count; other texts count nothing.

    Args:
      domain: the items, a sequence of distinct str; public. Or `SelectKeys()`, as for TickNumbers:
        all items, shown once their private count is high enough. Of an event's, the first
        `max_items` distinct ones count, as they come (those of a set: sorted).
      max_items: the most items that one event counts; enforced. The noise grows with its square
        root (Gaussian), or with it (Laplace).
      value: takes the item or items out of an event.
      budget, tick, start, stop, horizon, mechanism, relation, max_per_tick, until, late, path,
        entropy, allow_runner: as for TickNumbers.
      users: Users(by, events), as for TickNumbers: an item is a key. An event that names several
        items counts under those of them that its person's bound lets through.

    Guarantee: as for TickNumbers; an event counts 1 under at most `max_items` items.

    Attributes:
      counter: the calibrated counter of each item.
      domain: the items, as a tuple; or SelectKeys.
      selection: as for TickNumbers.

    Raises:
      ValueError, TypeError: as for TickNumbers, and for a bad domain.

    Example:
      >>> import apache_beam as beam
      >>> import beam_dpcount as dp
      >>> from beam_dpcount.transforms.tick_histograms import TickHistogram
      >>> with beam.Pipeline("FnApiRunner") as pipeline:
      ...     events = pipeline | beam.Create(["login", ["login", "logout"]])
      ...     timed = events | beam.Map(lambda e: beam.window.TimestampedValue(e, 30))
      ...     count = TickHistogram(
      ...         dp.ZCDP(0.5), 60, 0, horizon=1, domain=["login", "logout"], max_items=2
      ...     )
      ...     _ = timed | count | beam.Map(lambda release: print(release.key, release.step))
      login 1
      logout 1
    """

    budget: Budget | Share
    tick: Any
    start: Any
    stop: Any = None
    _: KW_ONLY
    domain: Sequence[str] | SelectKeys
    max_items: int = 1
    value: Callable[[Any], Any] | None = None
    horizon: int | None = None
    mechanism: Mechanism | type[Mechanism] | str | None = None
    relation: str = "add_remove"
    max_per_tick: int | None = None
    until: Any = None
    late: str = "fold"
    path: str = "auto"
    entropy: Entropy | None = None
    allow_runner: bool = False
    users: Users | None = None

    def __post_init__(self) -> None:
        super().__init__()
        check_callable("value", self.value)
        if isinstance(self.domain, SelectKeys):
            most = check_whole("max_items", self.max_items)
            self._split: _Split = _SplitTexts(most, self.value)
        else:
            items = Items(self.domain, self.max_items)  # type: ignore[arg-type]
            self.domain, most = items.domain, items.max_items
            self._split = _SplitItems(items, self.value)
        options = {one.name: getattr(self, one.name) for one in fields(self)}
        del options["domain"]
        options["value"] = None if self.users is None else one  # of each (item, 1)
        ticks = TickNumbers(**{**options, "keys": self.domain, "max_items": most})
        # The fingerprint: which of an event's items count.
        inside = Inside(split=self._split.pairs, fingerprint=(self.domain, most))
        self._ticks = ticks.within(inside)
        self._fix()

    def expand(self, events: PCollection[Any]) -> PCollection[Release]:
        if self.value is None and is_row_type(events.element_type):
            raise RowElementError(TO_ITEMS)
        types = getattr(events.element_type, "tuple_types", ())
        if self.value is None and any(kind not in (str, typehints.Any) for kind in types):
            raise TypeError(
                "events must be items or collections of items, but they are "
                f"{events.element_type}: take the item out, e.g. with value=lambda event: event[1]"
            )
        split: Any = beam.ParDo(self._split).with_output_types(tuple[str, int])
        if not self.bounds_people:  # else an event stays whole until its person is known
            events = events | "SplitItems" >> split
        return self._apply(events)

    def problem(self, event: object, micros: int | None = None) -> str | None:
        """Why an event does not count as it is; see `beam_dpcount.check`."""
        return self.check_row(event, micros).problem

    def check_row(self, event: object, micros: int | None = None) -> RowCheck:
        """What becomes of an event; see `beam_dpcount.check`."""
        problem, items = self._split.examine(event)
        problem, person = examine_person(self.users, event, problem)
        late = self._ticks.problem_of_time(micros)
        return RowCheck(problem or late, items, () if late else items, person, items)


class _Split(VersionedDoFn):
    """An event to (item, 1) for each of its items that counts."""

    def __init__(self, value: Function | None) -> None:
        self._value = value

    def process(self, event: object, windowed: Any = _WindowedValue) -> list[tuple[str, int]]:
        check_timed(windowed.timestamp_micros)  # whatever its items are
        return self.pairs(event)

    def pairs(self, event: Any) -> list[tuple[str, int]]:
        """(item, 1) for each item of an event that counts."""
        if self._value is None and is_row(event):
            raise RowElementError(TO_ITEMS)
        payload = event if self._value is None else read(self._value, event)
        items = UNREADABLE if payload is UNREADABLE else read(self.items, payload)
        # An event that cannot be read counts nothing, and nothing may show that there was one.
        return [] if items is UNREADABLE else [(item, 1) for item in items]

    def payload(self, event: object) -> Any:
        """The item or items of an event."""
        return event if self._value is None else call("value", self._value, event)

    @abstractmethod
    def items(self, payload: object) -> list[str]:
        """Those that count."""

    def examine(self, event: object) -> tuple[str | None, tuple[str, ...]]:
        """Why an event does not count as it is, and its items that count.

        If `value` raises an error, that is a FunctionError.
        """
        if self._value is None and is_row(event):
            raise RowElementError(TO_ITEMS)
        payload = self.payload(event)
        reason = self.reason(payload)
        if isinstance(payload, Iterator):  # `reason` has used it up
            payload = self.payload(event)
        items = read(self.items, payload)
        return reason, () if items is UNREADABLE else tuple(items)

    @abstractmethod
    def reason(self, payload: object) -> str | None:
        """Why something of a payload does not count."""


class _SplitItems(_Split):
    """Of a public domain."""

    def __init__(self, items: Items, value: Function | None) -> None:
        super().__init__(value)
        self._items = items

    def items(self, payload: object) -> list[str]:
        codes, _ = self._items.read(payload)
        return [self._items.domain[code - 1] for code in codes if code]

    def reason(self, payload: object) -> str | None:
        return self._items.problem(payload)


class _SplitTexts(_Split):
    """Of no known domain."""

    def __init__(self, most: int, value: Function | None) -> None:
        super().__init__(value)
        self._most = most

    def items(self, payload: object) -> list[str]:
        return self._distinct(payload)[: self._most]

    def reason(self, payload: object) -> str | None:
        if not isinstance(payload, str | Iterable) or isinstance(payload, bytes | Mapping):
            return NOT_ITEMS
        return TOO_MANY if len(self._distinct(payload)) > self._most else None

    def _distinct(self, payload: Any) -> list[str]:
        if isinstance(payload, str):
            payload = (payload,)
        elif isinstance(payload, bytes | Mapping):
            return []
        texts = dict.fromkeys(str.__str__(item) for item in payload if isinstance(item, str))
        # The order of a set differs from run to run.
        return sorted(texts) if isinstance(payload, AbstractSet) else list(texts)

"""Items: how many events name each item of a public domain."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from beam_dpcount.checks import check_whole
from beam_dpcount.reading import UNREADABLE, read, text_of
from beam_dpcount.statistics.items import check_domain, places, read_items
from beam_dpcount.statistics.metrics.base import (
    MISSING,
    Additions,
    Condition,
    Errors,
    FloatArray,
    Measured,
    Metric,
    of_sum,
)
from beam_dpcount.statistics.metrics.rates import Comparison


@dataclass(frozen=True)
class Items(Metric):
    """How many events name each item of a public domain. Its columns: `count_<item>`.

    Other items count nothing, and neither do events without the field.

    Args:
      field: the name of the field that holds an item (a text, or a whole number as its decimal
        text), or a collection of items.
      domain: the items, distinct texts; public.
      max_items: the most items that one event counts. Of more distinct items the first in the order
        of the domain count. The noise grows with its square root (Gaussian), or with it (Laplace).
      name: of its columns, in place of `count`.
    """

    field: str
    domain: Sequence[str]
    max_items: int = 1

    example: ClassVar[str] = "action, view, buy"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.field, str):
            raise TypeError(
                f"Items needs the name of a field, got {self.field!r}: give e.g. "
                'Items("action", ["view", "buy"])'
            )
        object.__setattr__(self, "domain", check_domain(self.domain))
        most = check_whole("max_items", self.max_items, len(self.domain))
        object.__setattr__(self, "max_items", most)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(f"{self.name or 'count'}_{item}" for item in self.domain)

    @property
    def fields(self) -> tuple[str, ...]:
        return (self.field,)

    def conditions(self) -> dict[str, Condition]:
        named = (Comparison(self.field, "=", item) for item in self.domain)
        return {str(each): each for each in named}

    def invented(self, number: int) -> dict[str, object]:
        return {self.field: self.domain[number % len(self.domain)]}

    @property
    def width(self) -> int:
        return len(self.domain)

    @property
    def touched(self) -> int:
        return self.max_items

    @property
    def limits(self) -> tuple[int, ...]:
        return (1,) * self.width

    @property
    def spans(self) -> tuple[int, ...]:
        return (1,) * self.width

    @cached_property
    def _places(self) -> dict[str, int]:
        return places(self.domain)

    def _read(self, event: Mapping[str, Any]) -> tuple[tuple[int, ...], str | None]:
        """The places of the items that count, from 1, and why others do not."""
        try:
            content = event[self.field]
        except LookupError:
            content = None
        if content is None:
            return (), MISSING
        text = text_of(content)
        if text is not None:
            content = text
        elif isinstance(content, Iterable) and not isinstance(content, str | bytes | Mapping):
            content = (text_of(item) for item in content)
        return read_items(content, self._places, self.max_items, removals=False)

    def additions(self, event: Mapping[str, Any]) -> Additions:
        found = read(self._read, event)
        return () if found is UNREADABLE else tuple((place - 1, 1) for place in found[0])

    def problem(self, event: Mapping[str, Any]) -> str | None:
        reason = self._read(event)[1]
        return None if reason is None else f"{self.field}: {reason}"

    def measure(self, sums: FloatArray, errors: Errors, level: float) -> Measured:
        return of_sum(sums, errors, level)

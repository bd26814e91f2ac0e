"""Items: the running counts of every item of a small public domain.

The codes of a step are the places of its items in the domain, from 1, negative where an item is
removed; 0 is no item.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from numbers import Real
from typing import Any, ClassVar

import numpy as np

from beam_dpcount.checks import ParameterError, check_flag, check_texts, check_whole
from beam_dpcount.counters.change import ItemsChange
from beam_dpcount.reading import text_of
from beam_dpcount.statistics.base import Additions, Codes, IntArray, Statistic

# The numbers in a key's state that a stream may still rewrite at every element.
MOST_STATE = 10**6

NOT_ITEMS = "the value is neither an item nor a collection of items"
NOT_SIGNED = "the value is neither items nor a mapping from items to 1 or -1"
UNKNOWN = "the value names an item that is not in the domain"
UNSIGNED = "the value maps an item to another number than 1 or -1"
TOO_MANY = "the value names more items than max_items"
MOST_READ = 1 << 16  # of one value: an iterator need not end
TOO_LONG = f"the value is longer than {MOST_READ:,} items"


def check_domain(domain: object) -> tuple[str, ...]:
    """`domain` as a tuple of distinct plain strings, or a TypeError or ValueError."""
    example = 'give the public items in a fixed order, e.g. domain=["login", "logout"]'
    return check_texts("domain", domain, "item", example)


def check_state(state_size: int, dimension: int, remedy: str) -> None:
    """Raise ParameterError if a key's state would be too large to rewrite at every element."""
    if state_size * dimension > MOST_STATE:
        raise ParameterError(
            "labels",
            f"{dimension} counts take {state_size} numbers of state each, {state_size * dimension} "
            f"a key, and at most {MOST_STATE} can be rewritten at every element",
            remedy,
            whole=True,
        )


def places(domain: Sequence[str]) -> dict[str, int]:
    """The place of each item, from 1."""
    return {item: place for place, item in enumerate(domain, start=1)}


def first_of(items: Iterable[Any]) -> list[Any] | None:
    """The items of one value; None if there are too many to read."""
    several = list(islice(items, MOST_READ + 1))
    return None if len(several) > MOST_READ else several


def keys_of(content: Any, most: int, known: Mapping[str, int] | None) -> list[str]:
    """The keys of one event, of a key or a collection of them: at most so many distinct texts.

    Args:
      known: `places` of all keys: the first in their order; None: as they come.
    """
    text = text_of(content)
    if text is not None:
        content = [text]
    if content is None or isinstance(content, bytes | Mapping):
        return []
    texts = map(text_of, first_of(content) or ())
    keys = [text for text in dict.fromkeys(texts) if text is not None]
    if known is not None:
        keys = sorted((key for key in keys if key in known), key=known.__getitem__)
    return keys[:most]


def read_items(
    payload: object, known: Mapping[str, int], most: int, removals: bool
) -> tuple[tuple[int, ...], str | None]:
    """The codes of the items of an element that count, and why the others, if any, do not.

    Args:
      payload: an item, or an iterable of items; with removals also a mapping from items to 1
        (counted up) or -1 (down).
      known: `places` of the domain.
      most: max_items. Of more distinct items of the domain the first in its order are kept; the
        rule looks at this element alone, so one element never has more than `most` codes.
      removals: whether items may be removed.

    Returns:
      Distinct codes in the order of the domain; and None or a reason that does not show the items.
    """
    if isinstance(payload, str):
        place = known.get(str.__str__(payload))  # an enum's hash is not its text's
        return ((), UNKNOWN) if place is None else ((place,), None)
    signs: dict[int, int] = {}
    reason = None
    if isinstance(payload, Mapping):
        if not removals:
            return (), NOT_ITEMS
        if (signed := first_of(payload.items())) is None:
            return (), TOO_LONG
        for item, sign in signed:
            place = known.get(str.__str__(item)) if isinstance(item, str) else None
            if place is None:
                reason = UNKNOWN
            elif isinstance(sign, bool) or not isinstance(sign, Real) or sign not in (1, -1):
                reason = UNSIGNED
            else:
                signs[place] = 1 if sign == 1 else -1
    elif isinstance(payload, bytes) or not isinstance(payload, Iterable):
        return (), NOT_SIGNED if removals else NOT_ITEMS
    elif (several := first_of(payload)) is None:
        return (), TOO_LONG
    else:
        for item in several:
            place = known.get(str.__str__(item)) if isinstance(item, str) else None
            if place is None:
                reason = UNKNOWN
            else:
                signs[place] = 1
    kept = sorted(signs)
    if len(kept) > most:
        kept, reason = kept[:most], TOO_MANY
    return tuple(place * signs[place] for place in kept), reason


def largest(values: Sequence[float], k: int) -> list[int]:
    """The places, from 0, of the k largest values, largest first; ties by place."""
    order = sorted(range(len(values)), key=values.__getitem__, reverse=True)  # it is stable
    return order[:k]


@dataclass(frozen=True)
class Items(Statistic):
    """The counts of every item of a public domain. An element is as for `read_items`.

    Args:
      domain: the items, a sequence of distinct str; public.
      max_items: the most distinct items that one element counts.
      removals: whether items may be counted down.

    Raises:
      ValueError, TypeError: an argument is out of range.
    """

    domain: tuple[str, ...]
    max_items: int = 1
    removals: bool = False

    unreadable: ClassVar[str] = "the value could not be taken as items"
    endless: ClassVar[bool] = True
    remedy: ClassVar[str | None] = (
        "use TickCount with the items as keys, or give a smaller domain (group the rare items "
        "under one name)"
    )

    def __post_init__(self) -> None:
        check_flag("removals", self.removals)
        domain = check_domain(self.domain)
        object.__setattr__(self, "domain", domain)
        object.__setattr__(self, "max_items", check_whole("max_items", self.max_items, len(domain)))

    @property
    def width(self) -> int:  # type: ignore[override]
        return self.max_items

    @property
    def labels(self) -> tuple[str, ...]:
        return self.domain

    @property
    def empty(self) -> Codes:
        return (0,) * self.max_items

    @property
    def own_step(self) -> bool:
        return type(self) in (Items, OneItem)

    @cached_property
    def _places(self) -> dict[str, int]:
        return places(self.domain)

    def read(self, payload: object) -> tuple[Codes, str | None]:
        codes, reason = read_items(payload, self._places, self.max_items, self.removals)
        return codes + (0,) * (self.max_items - len(codes)), reason

    def step(self, memory: None, codes: Codes) -> tuple[None, Additions]:
        return None, [(abs(code) - 1, 1 if code > 0 else -1) for code in codes if code]

    def all(self, memory: None, codes: IntArray) -> tuple[None, IntArray]:
        added = np.zeros((len(codes), len(self.domain) + self.adds_one), dtype=np.int64)
        for column in np.moveaxis(codes, 1, 0):
            (steps,) = np.nonzero(column)
            added[steps, np.abs(column[steps]) - 1] = np.sign(column[steps])
        return None, added

    def change(self, relation: str) -> ItemsChange:
        return ItemsChange(-1 if self.removals else 0, 1, relation, max_items=self.max_items)

    def noise_parameters(self, counter: str) -> str:
        if type(self) is not Items:  # what a class made of this one adds is in its name at least
            return super().noise_parameters(counter)
        return ascii((self.domain, self.max_items, self.removals, counter))

    def describe(self) -> Mapping[str, str]:
        removals = ", some counted down" if self.removals else ""
        return {"items": f"{len(self.domain)}, at most {self.max_items} an element{removals}"}


@dataclass(frozen=True)
class OneItem(Items):
    """Items of which an element counts one at most; what counts none is a coordinate of its own.

    So an element adds 1 to exactly one of len(domain) + 1 coordinates, whatever it names: the last
    counts what is refused, names no item, or exceeds its person's bound.

    Raises:
      ValueError: max_items is not 1, there are removals, or `change` is asked for add_remove.
    """

    adds_one: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_items != 1 or self.removals:
            problem = "the number of items that elements count is then not their number"
            remedy = "leave out max_items and removals, or fit_total"
            raise ValueError(
                f"fit_total takes one item an element, none counted down: as {problem}, {remedy}"
            )

    @property
    def empty(self) -> Codes:
        return (len(self.domain) + 1,)

    def read(self, payload: object) -> tuple[Codes, str | None]:
        codes, reason = super().read(payload)
        return (codes if any(codes) else self.empty), reason

    def change(self, relation: str) -> ItemsChange:
        if relation == "add_remove":
            problem = "whether an element counts is protected, and so is how many do"
            remedy = 'use relation="replace_one", or leave out fit_total'
            raise ValueError(f"fit_total does not go with add_remove: {problem}; {remedy}")
        return super().change(relation)

    def describe(self) -> Mapping[str, str]:
        domain = f"{len(self.domain)}, one an element or none"
        return {"items": f"{domain}; fitted to the number of elements"}

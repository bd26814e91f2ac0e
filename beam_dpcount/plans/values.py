"""What engines count of an event's payload."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from beam_dpcount.reading import Fields, field_of


@dataclass(frozen=True)
class Ones:
    """What Count counts of an event: 1; nothing if `value` returns None for it."""

    value: Callable[[Any], Any] | None = None

    def __call__(self, event: object) -> int | None:
        return None if self.value is not None and self.value(event) is None else 1


@dataclass(frozen=True)
class NumberOf:
    """What Sum counts of an event: the number in a field."""

    field: str
    value: Callable[[Any], Any] | None = None

    def __call__(self, event: object) -> Any:
        return field_of(event if self.value is None else self.value(event), self.field)


@dataclass(frozen=True)
class FieldsOf:
    """An event as a mapping from its fields, for metrics that read them."""

    value: Callable[[Any], Any] | None = None

    def __call__(self, event: object) -> Any:
        content = event if self.value is None else self.value(event)
        return content if content is None or isinstance(content, Mapping) else Fields(content)

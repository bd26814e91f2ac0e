"""What metrics read of an event's value, whose errors are data."""

from __future__ import annotations

from collections.abc import Mapping

from beam_dpcount.reading import UNREADABLE, Function, call, read
from beam_dpcount.statistics.metrics.base import Additions
from beam_dpcount.statistics.metrics.joint import Joint

NO_CONTENT = "the value is None, or cannot be read"


class Contents:
    """Makes of a value what it adds to the metrics' sums.

    Where a metric reads a field, `value` makes a mapping.

    Args:
      joint: the metrics.
      value: makes a mapping of a value. A value for which it returns None adds nothing.
    """

    def __init__(self, joint: Joint, value: Function | None = None) -> None:
        self._joint, self._value = joint, value

    def content(self, payload: object) -> object:
        """What metrics read; UNREADABLE if there is nothing that they read."""
        content = payload if self._value is None else read(self._value, payload)
        return content if content is UNREADABLE or self._takes(content) else UNREADABLE

    def added(self, payload: object) -> Additions | None:
        """What is added; None if the content is not what metrics read, or cannot be read."""
        return self._added(self.content(payload))

    def _added(self, content: object) -> Additions | None:
        if content is UNREADABLE:
            return None
        additions = read(self._joint.additions, content)
        if additions is UNREADABLE:
            return None
        # Where people are counted, an event that adds nothing itself may be one's first.
        return additions or ((0, 0),) * bool(self._joint.first)

    def _takes(self, content: object) -> bool:
        """Whether a content is what metrics read."""
        if self._joint.needs_mapping:
            return read(isinstance, content, Mapping) is True
        return content is not None or self._value is None

    def examine(self, payload: object) -> tuple[str | None, Additions]:
        """Why a value does not count as it is, and what it adds.

        `value` is called once; if it raises an error, that is a FunctionError.
        """
        content = payload if self._value is None else call("value", self._value, payload)
        if not self._takes(content):
            return NO_CONTENT, ()
        return self._joint.problem(content), self._added(content) or ()

"""Rows: elements with named fields; the first of them is not thereby the key."""

from __future__ import annotations

from apache_beam.pvalue import Row
from apache_beam.typehints.row_type import RowTypeConstraint

from beam_dpcount.errors import Error
from beam_dpcount.reading import class_attribute, read

TO_PAIRS = (
    "elements are rows, whose fields are not key and value by their place: before, add "
    "beam.Map(lambda row: (row.page, row.action)), with the field that is the public key first"
)
TO_VALUES = (
    "events are rows, of which nothing says what counts: say it, e.g. with "
    "value=lambda row: row._asdict()"
)
TO_NUMBERS = (
    "elements must be numbers, one a client, but they are rows: take the number out, e.g. with "
    "value=lambda row: row.score"
)


class RowElementError(Error, TypeError):
    """An element is a row. At ticks the error shows that one is there.

    It is a mistake in the pipeline: elements are rows because a program makes them so, whatever an
    event holds. So usually all are, and the count would be of nothing.
    """


def is_row(element: object) -> bool:
    """Whether an element is a beam.Row, a NamedTuple (a decoded row) or a dataclass.

    A dataclass that is iterable is the user's own collection.
    """
    # Not isinstance, which asks the element itself.
    return read(_are_rows, type(element)) is True


def is_row_type(declared: object) -> bool:
    """Whether elements of this type, or in a union some of them, are rows as `is_row` says."""
    if isinstance(declared, RowTypeConstraint):
        return True
    if isinstance(declared, type):
        return _are_rows(declared)
    return any(map(is_row_type, getattr(declared, "union_types", ())))


def _are_rows(kind: type) -> bool:
    """Whether instances of a class are rows; its own class may not answer for it."""
    if issubclass(kind, tuple):
        return class_attribute(kind, "_fields") is not None
    if issubclass(kind, Row):
        return True
    is_dataclass = class_attribute(kind, "__dataclass_fields__") is not None
    return is_dataclass and class_attribute(kind, "__iter__") is None

"""What was seen of a stream, over all attempts, against what a run without interruption gives.

Pure: it knows no engine. A release comes as its place and its value. The place is all that names
it, such as (count, key, step), with the window where there are several; the value all that was
released there: numbers, texts, or sequences of them.

Under one secret and run id, every release is a function of the history of its key. So not only must
no place have two values: each must have the one, to the last bit, of the uninterrupted run. State
that is lost in the same way at every step gives no place two values; only this comparison shows it.
"""

from __future__ import annotations

import struct
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any

NOT_COMPARED = "values, as system entropy draws anew in every run"

Sighting = tuple[Any, Any]


@dataclass(frozen=True)
class Verdict:
    """What `judge` has found. `faults` says what is wrong; without any all is well.

    Attributes:
      seen: how many releases, each time that one was seen.
      distinct: of how many places.
      expected: how many places the uninterrupted run has.
      missing: how many of these were not seen.
      unknown: how many places were seen that the uninterrupted run does not have.
      conflicts: how many places were seen with two values or more.
      differing: how many were seen with one value, and the uninterrupted run has another.
      equal: how many were seen with the uninterrupted run's value alone.
      unchecked: what could not be held against the uninterrupted run; empty if all was.
    """

    seen: int
    distinct: int
    expected: int
    missing: int
    unknown: int
    conflicts: int
    differing: int
    equal: int
    unchecked: str = ""

    @property
    def repeated(self) -> int:
        """How many releases were seen again."""
        return self.seen - self.distinct

    @property
    def faults(self) -> list[str]:
        """What is wrong, one text each."""
        found = [
            (self.missing, "releases missing"),
            (self.unknown, "releases that should not be"),
            (self.conflicts, "releases seen with two values"),
            (self.differing, "releases differ from the uninterrupted run"),
        ]
        return [f"{n} {text}" for n, text in found if n]


def judge(seen: Iterable[Sighting], whole: Iterable[Sighting], comparable: bool = True) -> Verdict:
    """The verdict on all releases that were seen.

    Args:
      seen: of all attempts, in any order.
      whole: of the uninterrupted run, each place once.
      comparable: whether that run was of the same secret and run id. System entropy has neither:
        then its places count, and its values do not.

    Raises:
      ValueError: a place is in `whole` twice, or nothing is.
    """
    must: dict[Hashable, bytes] = {}
    for place, value in whole:
        if place in must:
            raise ValueError(f"the uninterrupted run has {place} twice: it is none")
        must[place] = exactly(value)
    if not must:
        raise ValueError("the uninterrupted run has no release: there is nothing to compare with")
    found: dict[Hashable, set[bytes]] = {}
    sightings = 0
    for place, value in seen:
        found.setdefault(place, set()).add(exactly(value))
        sightings += 1
    known = [place for place in found if place in must]
    single = [place for place in known if len(found[place]) == 1] if comparable else []
    equal = sum(must[place] in found[place] for place in single)
    return Verdict(
        seen=sightings,
        distinct=len(found),
        expected=len(must),
        missing=len(must) - len(known),
        unknown=len(found) - len(known),
        conflicts=sum(len(values) > 1 for values in found.values()),
        differing=len(single) - equal,
        equal=equal,
        unchecked="" if comparable else NOT_COMPARED,
    )


def exactly(value: Any) -> bytes:
    """A value as bytes that are equal only for what is the same to the last bit.

    0.0 is not -0.0, 1 is not 1.0, and what is no number is equal to itself.
    """
    if isinstance(value, float):
        return b"f" + struct.pack("<d", value)
    if isinstance(value, list | tuple):
        parts = [exactly(part) for part in value]
        return b"".join([b"(", *(struct.pack("<q", len(part)) + part for part in parts)])
    if value is None or isinstance(value, bool | int | str | bytes):
        return repr(value).encode()
    raise TypeError(f"a value holds {type(value).__name__}: give numbers, texts and lists of them")

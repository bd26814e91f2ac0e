"""What a line of the log says: a request, or what time it is.

{"at": 1767225600123, "person": "p17", "service": "search", "latency": 0.21, "failed": 0}
{"clock": 1767225601000}

Times are milliseconds since 1970, UTC. A clock line says that all later requests are of this time
or after. Whoever writes the log writes one at regular times, whether or not anything happened, so
that what moves the watermark is the clock and no one's request.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any, NamedTuple, TypeGuard

NUMBERS = ("latency", "failed")  # the fields that are counted
_LONGEST = 1 << 16  # bytes of a line that is looked at
_LARGEST = 1 << 53  # milliseconds; beyond it nothing is a time


class Request(NamedTuple):
    """One line's request: when, whose, of which service, and these with NUMBERS, as fields.

    A field of NUMBERS that is missing, or is no number, is in no fields.
    """

    at: int
    person: str
    service: str
    fields: dict[str, Any]


def request_line(at: int, person: str, service: str, **fields: Any) -> bytes:
    """A request as a line."""
    return _line({"at": at, "person": person, "service": service, **fields})


def clock_line(at: int) -> bytes:
    """A clock line."""
    return _line({"clock": at})


def clock_of(line: bytes) -> int | None:
    """The time that a clock line says; None for any other line, readable or not."""
    found = _read(line) if line.startswith(b'{"clock"') else None
    return _time(found["clock"]) if found is not None and found.keys() == {"clock"} else None


def request_of(line: bytes) -> Request | None:
    """The request of a line; None where it has none, or cannot be read."""
    found = _read(line)
    if found is None:
        return None
    at, person, service = (found.get(name) for name in ("at", "person", "service"))
    at = _time(at)
    if at is None or not _is_text(person) or not _is_text(service):
        return None
    fields: dict[str, Any] = {"at": at, "person": person, "service": service}
    for name in NUMBERS:
        number = _number(found.get(name))
        if number is not None:
            fields[name] = number
    return Request(at, person, service, fields)


def between(lines: Iterable[bytes], start: int, end: int) -> list[Request]:
    """The requests of the lines between two clock lines, by time, then person.

    What cannot be read, or is not of a time from `start` to before `end`, is left out; of several
    by one person in one millisecond all but one. What is left out depends on the line and its
    person's others alone, so that nobody's line costs another's its place. The order depends on
    what is in the lines alone: engines take a person's events by milliseconds, and a replay must
    find them in the same order.
    """
    found: dict[tuple[int, str], bytes] = {}
    for line in lines:
        request = request_of(line)
        if request is not None and start <= request.at < end:
            place = request.at, request.person
            found[place] = min(line, found.get(place, line))
    read = (request_of(found[place]) for place in sorted(found))
    return [request for request in read if request is not None]


def _line(content: dict[str, Any]) -> bytes:
    return json.dumps(content).encode("ascii") + b"\n"


def _read(line: bytes) -> dict[str, Any] | None:
    if len(line) > _LONGEST:
        return None
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _time(value: Any) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST:
        return value
    return None


def _is_text(value: Any) -> TypeGuard[str]:
    """Whether it is a text that UTF-8 can hold, and so can coders."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _number(value: Any) -> float | None:
    """A number as a float; None for what is none."""
    if not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        found = math.inf if value > 0 else -math.inf
    return None if math.isnan(found) else found

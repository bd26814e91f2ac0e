"""What may have been meant by a name that is not known."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(given: str, names: Iterable[str]) -> str:
    """The name that is most like the one given, in a question; empty where none is.

    The names must be public: of columns of a file, they are not always.
    """
    spelled: dict[str, str] = {}
    for name in names:
        spelled.setdefault(_plain(name), name)
    wanted = _plain(given)
    begin = sorted((name for name in spelled if wanted and name.startswith(wanted)), key=len)
    found = begin or difflib.get_close_matches(wanted, spelled, 1)
    return f"did you mean {spelled[found[0]]}? " if found else ""


def _plain(name: str) -> str:
    """A name as it is compared: in small letters, without dashes before it."""
    return name.lower().lstrip("-").replace("_", "-")

"""What may have been meant by a name that is not known."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(given: str, names: Iterable[str]) -> str:
    """The name that is most like the one given, in a question; empty where none is.

    The names must be public: of columns of a file, they are not always.
    """
    spelled = {name.lower(): name for name in names}
    found = difflib.get_close_matches(given.lower(), spelled, 1)
    return f"did you mean {spelled[found[0]]}? " if found else ""

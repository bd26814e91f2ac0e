"""TOTAL: one count of all events, in place of public keys."""

from __future__ import annotations

from typing import Final

ALL: Final = "all"  # the key of its releases


class Total:
    """The class of TOTAL."""

    def __repr__(self) -> str:
        return "TOTAL"

    def __reduce__(self) -> str:
        return "TOTAL"  # there is one in every process


#: In place of `keys`: one total of all events, whatever their keys, or of events without keys. Its
#: releases have the key "all". A tuple of two is a (key, value) pair, whose key is ignored and of
#: which the value counts; anything else is a value itself.
TOTAL: Final = Total()

"""What is checked of arguments in more than one room."""

from __future__ import annotations

from typing import Any

import numpy as np


def check_whole(name: str, value: Any, most: int | None = None) -> int:
    """A public number of items or steps from 1, at most `most`.

    Raises:
      ValueError: it is something else.
    """
    if (
        isinstance(value, bool)
        or not isinstance(value, int | np.integer)
        or not 1 <= value <= (value if most is None else most)
    ):
        upper = "" if most is None else f" to {most}, the size of the domain"
        raise ValueError(f"{name} must be a whole number from 1{upper}, got {value!r}")
    return int(value)

"""When numbers are the same."""

from __future__ import annotations

import numpy as np


def same(a, b) -> bool:
    """Equal, where both are integers; equal to 1e-9 otherwise."""
    a, b = np.asarray(a), np.asarray(b)
    if a.shape != b.shape:
        return False
    if integral(a) and integral(b):
        return np.array_equal(a, b)
    return np.allclose(a, b, rtol=1e-9, atol=1e-9)


def integral(a) -> bool:
    return np.array_equal(a, np.rint(a))

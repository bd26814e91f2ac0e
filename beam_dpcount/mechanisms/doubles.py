"""Pairs of doubles (high, low) that stand for their sum: some 106 bits, by exact transformations.

Plain functions of floats or arrays, with the same result for both. [Dekker 1971]
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

_SPLITTER = 2.0**27 + 1


def double_double(value: Fraction) -> tuple[float, float]:
    """The pair closest to a rational number."""
    high = float(value)
    return high, float(value - Fraction(high))


def two_sum(a: Any, b: Any) -> tuple[Any, Any]:
    """a + b, exactly."""
    total = a + b
    b_part = total - a
    return total, (a - (total - b_part)) + (b - b_part)


def two_product(a: Any, b: Any) -> tuple[Any, Any]:
    """a * b, exactly: factors up to 2^990, products from 2^-969 to what a double holds."""
    product = a * b
    a_high, a_low = _halves(a)
    b_high, b_low = _halves(b)
    error = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    return product, error


def multiply_add(factor: tuple[Any, Any], pair: tuple[Any, Any], x: Any) -> tuple[Any, Any]:
    """factor * pair + x, with a relative error below 2^-100 for addends of one sign."""
    product, error = two_product(factor[0], pair[0])
    error = error + (factor[0] * pair[1] + factor[1] * pair[0])
    total, rest = two_sum(product, x)
    return two_sum(total, rest + error)


def _halves(a: Any) -> tuple[Any, Any]:
    scaled = a * _SPLITTER
    high = scaled - (scaled - a)
    return high, a - high

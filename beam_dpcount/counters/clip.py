"""How much of a tick counts: the default of max_per_tick."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from beam_dpcount.counters.counter import Counter, calibrate

MOST = 30  # log2 of the default, if that costs nothing
_LARGEST = 2**62  # sums that fit 64 bits with room to spare
_LEAST, _MANY = 2**20, 2**16

Way = TypeVar("Way")


def least_most(magnitude: int, steps: int, many: int = _MANY) -> int:
    """The smallest default: a tick may sum up to this many times the largest value.

    2^20; less if the sums of all ticks would not fit 64 bits, and beyond `many` ticks (2^16), so
    that the arithmetic of mechanisms with real entries adds little to the noise.
    """
    return max(1, min(_LEAST, _LEAST * many // steps, _LARGEST // (steps * magnitude)))


def ample(counters: Mapping[Way, Counter]) -> dict[Way, Counter]:
    """The same counters, for the largest sums of a tick up to 2^30 that cost none of them anything.

    That is: all noise distributions stay the same, all sums fit 64 bits, and no arithmetic becomes
    slow. The limit is a power of two, or what the counters were calibrated for.
    """
    originals: dict[int, Any] = {id(counter): counter for counter in counters.values()}
    least = max(counter.change.most for counter in originals.values())
    low, high = least.bit_length() - 1, MOST
    best = originals

    def at(log: int) -> dict[int, Counter] | None:
        larger = {name: _clipped(counter, 1 << log) for name, counter in originals.items()}
        return None if None in larger.values() else larger  # type: ignore[return-value]

    # If a limit is free, so are smaller ones. The highest is tried first: it mostly is.
    middle = high
    while low < high:
        larger = at(middle)
        if larger is None:
            high = middle - 1
        else:
            low, best = middle, larger
        middle = (low + high + 1) // 2
    return {way: best[id(counter)] for way, counter in counters.items()}


def _clipped(counter: Counter, most: int) -> Counter | None:
    """The counter for larger sums of a tick; None if they cost something."""
    change: Any = counter.change
    if counter.horizon * (change.largest(counter.unit) // change.most) * most > _LARGEST:
        return None
    try:
        larger = calibrate(
            counter.mechanism,
            counter.budget,
            replace(change, most=most),
            dimension=counter.dimension,
            unit=counter.unit,
        )
    except ValueError:  # too many digits for the mechanism
        return None
    return larger if larger.law == counter.law and larger.mechanism.is_quick else None

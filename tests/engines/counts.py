"""Counts at a clock that engines are given."""

from __future__ import annotations

from typing import Any

import beam_dpcount as dp
from beam_dpcount.transforms.ticks import TickNumbers
from tests.scripted import ScriptedEntropy

BUDGET = dp.ZCDP(0.5)
EXACT = dp.ZCDP(1e12)  # its noise is 0


def ticks(**given: Any) -> TickNumbers:
    """Ten-second ticks over two minutes."""
    options: dict[str, Any] = {
        "budget": BUDGET,
        "mechanism": "SmoothBinary",
        "entropy": ScriptedEntropy(),
        "bounds": (0, 2),
        "keys": ["x", "y", "empty"],
        **given,
    }
    return TickNumbers(options.pop("budget"), 10, 0, horizon=12, **options)

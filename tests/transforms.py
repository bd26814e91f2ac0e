"""Each transform that takes elements, by its name, with the least that it must be given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import beam_dpcount as dp
from beam_dpcount.transforms.ticks import TickNumbers
from tests.sentences import counted

BUDGET = dp.ZCDP(0.5)
CLOCK: dict[str, Any] = {"tick": 10, "start": 0, "stop": 30}
# Of a key, and so of pairs.
KEYED: dict[str, Callable[..., Any]] = {
    "PrefixCount": lambda **more: dp.PrefixCount(BUDGET, 8, **more),
    "Histogram": lambda **more: dp.Histogram(BUDGET, 8, ["buy", "/home"], **more),
    "SubstringCount": lambda **more: dp.SubstringCount(BUDGET, 8, ["buy", "/home"], 1, **more),
    "EpisodeCount": lambda **more: dp.EpisodeCount(BUDGET, 8, ["buy", "/home"], 1, **more),
    "EdgeCount": lambda **more: dp.EdgeCount(BUDGET, 8, 3, **more),
    "TriangleCount": lambda **more: dp.TriangleCount(BUDGET, 8, 3, max_degree=2, **more),
    "KStarCount": lambda **more: dp.KStarCount(BUDGET, 8, 3, 1, max_degree=2, **more),
    "HighDegreeCount": lambda **more: dp.HighDegreeCount(BUDGET, 8, 3, 1, **more),
    "DegreeHistogram": lambda **more: dp.DegreeHistogram(BUDGET, 8, 3, max_degree=2, **more),
    "SpanningForestCost": lambda **more: dp.SpanningForestCost(BUDGET, 8, 3, 1, **more),
    "CutGraph": lambda **more: dp.CutGraph(BUDGET, 8, 3, **more),
}
TICKS = {
    "TickCount": lambda **more: TickNumbers(BUDGET, **CLOCK, keys=["buy", "/home"], **more),
    "sentence": lambda **more: counted(BUDGET, **CLOCK, keys=["buy", "/home"], **more),
    "vectors": lambda **more: counted(
        BUDGET, [dp.Count(), dp.Rate("n > 0")], **CLOCK, keys=["buy", "/home"], **more
    ),
    "last": lambda **more: counted(BUDGET, **CLOCK, last=2, keys=["buy", "/home"], **more),
}
OTHERS = {"LocalMedian": lambda **more: dp.local.LocalMedian(BUDGET, 4, **more)}
ALL = {**KEYED, **TICKS, **OTHERS}

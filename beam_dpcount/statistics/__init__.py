"""Functions of a growing stream as running sums of what each element adds: pure algorithms."""

from beam_dpcount.statistics.base import Statistic
from beam_dpcount.statistics.cuts import CutWeights
from beam_dpcount.statistics.episodes import Episodes
from beam_dpcount.statistics.graph_counts import (
    Degrees,
    Edges,
    HighDegree,
    KStars,
    SpanningForest,
    Triangles,
)
from beam_dpcount.statistics.words import Words

__all__ = [
    "CutWeights",
    "Degrees",
    "Edges",
    "Episodes",
    "HighDegree",
    "KStars",
    "SpanningForest",
    "Statistic",
    "Triangles",
    "Words",
]

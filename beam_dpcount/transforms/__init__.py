"""The PTransforms: thin, composed of DoFns and pure functions."""

from beam_dpcount.local.transforms import LocalConvexRisk, LocalMedian
from beam_dpcount.transforms.counts import PrefixCount
from beam_dpcount.transforms.graphs import (
    CutGraph,
    DegreeHistogram,
    EdgeCount,
    HighDegreeCount,
    KStarCount,
    SpanningForestCost,
    TriangleCount,
)
from beam_dpcount.transforms.histograms import Histogram
from beam_dpcount.transforms.last import LastPerTick
from beam_dpcount.transforms.postprocess import (
    Monotone,
    NonNegative,
    Rounded,
    RunningAverage,
    SlidingSum,
    TopK,
    TopKPerTick,
)
from beam_dpcount.transforms.sequences import EpisodeCount, SubstringCount
from beam_dpcount.transforms.tick_histograms import TickHistogram
from beam_dpcount.transforms.ticks import TickCount

__all__ = [
    "CutGraph",
    "DegreeHistogram",
    "EdgeCount",
    "EpisodeCount",
    "HighDegreeCount",
    "Histogram",
    "KStarCount",
    "LastPerTick",
    "LocalConvexRisk",
    "LocalMedian",
    "Monotone",
    "NonNegative",
    "PrefixCount",
    "Rounded",
    "RunningAverage",
    "SlidingSum",
    "SpanningForestCost",
    "SubstringCount",
    "TickCount",
    "TickHistogram",
    "TopK",
    "TopKPerTick",
    "TriangleCount",
]

"""The PTransforms: thin, composed of DoFns and pure functions."""

from beam_dpcount.transforms.counts import PrefixCount
from beam_dpcount.transforms.histograms import Histogram
from beam_dpcount.transforms.postprocess import (
    Monotone,
    NonNegative,
    Rounded,
    RunningAverage,
    SlidingSum,
    TopK,
    TopKPerTick,
)
from beam_dpcount.transforms.tick_histograms import TickHistogram
from beam_dpcount.transforms.ticks import TickCount

__all__ = [
    "Histogram",
    "Monotone",
    "NonNegative",
    "PrefixCount",
    "Rounded",
    "RunningAverage",
    "SlidingSum",
    "TickCount",
    "TickHistogram",
    "TopK",
    "TopKPerTick",
]

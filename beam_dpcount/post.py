"""Post-processing: what releases may be turned into at no cost."""

from beam_dpcount.transforms.last import LastPerTick
from beam_dpcount.transforms.postprocess import (
    Isotonic,
    NonNegative,
    Rounded,
    RunningAverage,
    ShrinkAcrossKeys,
    SlidingSum,
    TopK,
    TopKPerTick,
)

__all__ = [
    "Isotonic",
    "LastPerTick",
    "NonNegative",
    "Rounded",
    "RunningAverage",
    "ShrinkAcrossKeys",
    "SlidingSum",
    "TopK",
    "TopKPerTick",
]

"""Isotonic regression: the nearest series that never falls, by pooling adjacent violators.

[ABERS55] A series that never falls is a stack of blocks, each a mean and a weight, with rising
means.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
Block = tuple[float, float]  # the weighted mean of some releases, and their weight


def push(blocks: list[Block], value: float, weight: float) -> int:
    """Add one more value to the stack: the blocks that it falls below become one with it.

    Returns:
      How many blocks were taken off before the last one was put on.
    """
    taken = 0
    while blocks and blocks[-1][0] >= value:
        mean, mass = blocks.pop()
        mass += weight
        value, weight = mean + (value - mean) * (weight / mass), mass
        taken += 1
    blocks.append((value, weight))
    return taken


def cap(blocks: list[Block], most: int) -> None:
    """Merge the two oldest blocks while there are more than `most`: means go on rising."""
    while len(blocks) > most:
        (low, light), (high, heavy) = blocks[:2]
        mass = light + heavy
        blocks[:2] = [(low + (high - low) * (heavy / mass), mass)]


def isotonic(values: Sequence[float], weights: Iterable[float]) -> FloatArray:
    """The series that never falls with the least weighted sum of squared differences, shape (n,).

    Args:
      values: n of them.
      weights: n positive numbers.
    """
    blocks: list[Block] = []
    lengths: list[int] = []
    for value, weight in zip(values, weights, strict=True):
        taken = push(blocks, value, weight)
        length = 1 + sum(lengths[len(lengths) - taken :])
        lengths[len(lengths) - taken :] = [length]
    return np.repeat([mean for mean, _ in blocks], lengths)

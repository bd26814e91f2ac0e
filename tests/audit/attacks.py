"""Attacks on how numbers are computed, which break noise of floats and must not break ours.

Each gives every release a score that depends on its last bits alone; `bounds` says what trials of
two neighbours prove by it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

import beam_dpcount as dp
from beam_dpcount.counters.counter import Counter
from tests.audit import bounds
from tests.audit.counters import trials

FloatArray = np.ndarray
_FINEST = 1100  # binary digits after the point: more than a double has

# Numbers whose last bits, size or sign have broken something somewhere; all within a unit of 1, or
# clipped to that.
HOSTILE = (
    *(0.0, -0.0, 5e-324, -5e-324, 2.0**-1022, 1e-300, 2.0**-53, 2.0**-52, 0.1 + 0.2, 0.3),
    *(math.nextafter(0.5, 0), 0.5, math.nextafter(0.5, 1), math.nextafter(1, 0), 1.0),
    *(math.nextafter(1, 2), 2.0**53, 1e300, -1e300, math.inf, -math.inf, 1.7976931348623157e308),
)


def digits(values: FloatArray) -> FloatArray:
    """How many binary digits numbers have after the point: the precision that they were made with.

    The sum of a number and of noise has the precision of the larger one, as noise alone does not
    have: a small output with more digits than 1 + noise can have was made from 0.

    Source: [HDHSH22], which calls the remedy interval refining: to release only what could have
      come of either input, as integers plus integer noise do.
    """
    mantissa, exponent = np.frexp(values)
    whole = np.ldexp(mantissa, 53).astype(np.int64)
    lowest = np.where(whole == 0, 0, np.frexp((whole & -whole).astype(np.float64))[1] - 1)
    return np.where(values == 0, 0.0, np.clip(53 - exponent - lowest, 0, _FINEST)).astype(float)


def deepest(releases: FloatArray) -> FloatArray:
    """The most digits of a trial's releases, shape (trials, steps)."""
    return np.asarray(digits(releases).max(axis=1))


def last_bit(releases: FloatArray) -> FloatArray:
    """The parity of all mantissas together."""
    whole = np.ldexp(np.frexp(releases)[0], 53).astype(np.int64)
    return np.asarray((whole & 1).sum(axis=1) % 2, dtype=float)


def refined(releases: FloatArray) -> FloatArray:
    """Whether a release is on the lattice of doubles between 1 and 2: what is not came from 0."""
    return np.asarray((digits(releases) <= 53).all(axis=1), dtype=float)


ATTACKS: dict[str, Callable[[FloatArray], FloatArray]] = {
    "digits after the point": deepest,
    "the last bit": last_bit,
    "the lattice of doubles from 1 to 2": refined,
}


def plain_float(noise: str, epsilon: float, x: float, n: int, seed: int) -> FloatArray:
    """What the attacks break: x plus noise of floats, by the textbook, shape (n, 1)."""
    rng = np.random.default_rng(seed)
    if noise == "laplace":
        u = rng.random(n) - 0.5
        z = -np.sign(u) * np.log1p(-2 * np.abs(u)) / epsilon
    else:
        z = rng.standard_normal(n) / epsilon
    return (x + z)[:, None]


def proved(
    attack: Callable[[FloatArray], FloatArray], sample: Callable[[int], FloatArray]
) -> float:
    """The epsilon, at a delta of 0, that an attack proves; `sample` gives trials of neighbour i."""
    scores = [attack(sample(i)) for i in (0, 1)]
    choosing, counting = zip(*((s[: len(s) // 4], s[len(s) // 4 :]) for s in scores), strict=True)
    return bounds.proved(bounds.epsilon(), (choosing[0], choosing[1]), (counting[0], counting[1]))


def of_counter(counter: Counter, xs: tuple[Any, Any], n: int) -> Callable[[int], FloatArray]:
    """Trials of a counter of numbers, of two streams."""
    wide = dp.calibrate(
        counter.mechanism,
        counter.budget,
        replace(counter.change, coordinates=1),
        n // 2,
        counter.unit,
    )
    assert wide.law == counter.law
    return lambda i: trials(wide, np.array(xs[i]))

"""What tests of mechanisms whose encoders fade share: streams, and R x from rational numbers."""

from __future__ import annotations

import random
from fractions import Fraction

import numpy as np

from beam_dpcount.mechanisms import fading_tables as tables


def inputs(n, dimension=None, seed=1, largest=100):
    shape = n if dimension is None else (n, dimension)
    return np.random.default_rng(seed).integers(-largest, largest + 1, shape)


def stepped(mechanism, xs, noise, dimension=None):
    state, values = mechanism.init(dimension), []
    for x in xs.tolist() if dimension is None else xs:
        state, value = mechanism.step(state, x, noise)
        values.append(value)
    return state, np.array(values)


def rational(made):
    """c and the encoder's rates as rational numbers."""
    c = [Fraction(weight, 1 << tables.WEIGHT_BITS) for weight in made._weights[0]]
    return c, [1 - Fraction(a, 1 << shift) for a, shift in made._a]


def exactly_encoded(made, xs):
    """(R x)_t, t from 1: from constants alone, in rational arithmetic."""
    c, rates = rational(made)
    sums, encoded = [Fraction(0)] * len(c), []
    for x in xs:
        sums = [held * rate + x for held, rate in zip(sums, rates, strict=True)]
        encoded.append(sum((a * b for a, b in zip(c, sums, strict=True)), Fraction(0)))
    return encoded


def encoded(made, xs):
    """q: what is kept of a window as long as the stream, without noise."""
    assert made.window == len(xs)
    packed, _ = made.run(bytes(made.size), 1, xs, [0] * len(xs))
    width = made._widths[-1]
    kept = packed[len(packed) - width * len(xs) :]
    found = range(0, len(kept), width)
    return [int.from_bytes(kept[i : i + width], "little", signed=True) for i in found]


def streams(n, m, seed=1):
    rng = random.Random(seed)
    yield "ones", [m] * n
    yield "minus ones", [-m] * n
    yield "alternating", [m if t % 2 else -m for t in range(n)]
    yield "halves", [m if t < n // 2 else -m for t in range(n)]
    yield "single", [m, *[0] * (n - 1)]
    yield "random", [rng.randint(-m, m) for _ in range(n)]
    yield "bits", [m * rng.randint(0, 1) for _ in range(n)]

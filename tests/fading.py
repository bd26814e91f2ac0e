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
    sums, encoded, delayed = [Fraction(0)] * len(c), [], [Fraction(0)] * made.window
    alpha, beta = (Fraction(number, 1 << tables.COMB[2]) for number in tables.COMB[:2])
    for x in xs:
        sums = [held * rate + x for held, rate in zip(sums, rates, strict=True)]
        encoded.append(sum((a * b for a, b in zip(c, sums, strict=True)), Fraction(0)))
        if made.comb:
            delayed.append(encoded[-1] + alpha * delayed[-made.window])
            encoded[-1] = delayed[-1] - beta * delayed[-1 - made.window]
    return encoded


def encoded(made, xs):
    """q: the last number that is kept of the window after each step, without noise."""
    packed, found = bytes(made.size), []
    first, width = made._places[-1][1] + made._lines[-1][0], made._widths[-1]
    for t, x in enumerate(xs, 1):
        packed, _ = made.run(packed, t, [x], [0])
        i = first + (t - 1) % made.window * width
        found.append(int.from_bytes(packed[i : i + width], "little", signed=True))
    return found


def streams(n, m, seed=1):
    rng = random.Random(seed)
    yield "ones", [m] * n
    yield "minus ones", [-m] * n
    yield "alternating", [m if t % 2 else -m for t in range(n)]
    yield "halves", [m if t < n // 2 else -m for t in range(n)]
    yield "single", [m, *[0] * (n - 1)]
    yield "random", [rng.randint(-m, m) for _ in range(n)]
    yield "bits", [m * rng.randint(0, 1) for _ in range(n)]

"""What others would use, or write by hand: trees of floats in a DoFn, and other libraries.

None of them is exact: noise of floats, from a generator that is not cryptographic. They say what
doing without costs. Libraries that are missing are left out, by name.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.coders import PickleCoder
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec

import beam_dpcount as dp
from benchmarks.timing import seconds_of

LEVELS = 18  # of the trees: 2^18 steps
_SCALE = 20.0
_WindowedValue: Any = beam.DoFn.WindowedValueParam


class ListTree(beam.DoFn):
    """A binary tree, as anyone would write it: lists of floats, pickled."""

    STATE = ReadModifyWriteStateSpec("tree", PickleCoder())

    def process(
        self,
        element: tuple[str, int],
        windowed: Any = _WindowedValue,
        cell: Any = beam.DoFn.StateParam(STATE),
    ) -> Iterator[dp.Release]:
        key, x = element
        none = [0.0] * (LEVELS + 1)
        t, sums, noisy = cell.read() or (0, none, none)
        t += 1
        level = (t & -t).bit_length() - 1
        sums, noisy = [*sums], [*noisy]
        total = sum(sums[:level]) + x
        for i in range(level):
            sums[i] = noisy[i] = 0.0
        sums[level], noisy[level] = total, total + random.gauss(0, _SCALE)
        cell.write((t, sums, noisy))
        yield dp.Release(key, t, windowed.timestamp_micros, sum(noisy), 0.0)


class NumPyTree(beam.DoFn):
    """The same, with arrays."""

    STATE = ReadModifyWriteStateSpec("tree", PickleCoder())

    def setup(self) -> None:
        self._rng = np.random.default_rng()

    def process(
        self,
        element: tuple[str, int],
        windowed: Any = _WindowedValue,
        cell: Any = beam.DoFn.StateParam(STATE),
    ) -> Iterator[dp.Release]:
        key, x = element
        t, tree = cell.read() or (0, np.zeros((2, LEVELS + 1)))
        t += 1
        level = (t & -t).bit_length() - 1
        total = tree[0, :level].sum() + x
        tree = tree.copy()
        tree[:, :level] = 0
        tree[:, level] = total, total + self._rng.normal(0, _SCALE)
        cell.write((t, tree))
        yield dp.Release(key, t, windowed.timestamp_micros, float(tree[1].sum()), 0.0)


class ByHand(beam.PTransform[Any, Any]):
    """One of the above, as a count."""

    def __init__(self, tree: type[beam.DoFn]) -> None:
        super().__init__()
        self._tree = tree

    def expand(self, events: Any) -> Any:
        return events | beam.ParDo(self._tree()).with_output_types(dp.Release)


BY_HAND = {"lists": ListTree, "NumPy": NumPyTree}


def opendp_draws(scale: float, single: int, many: int) -> tuple[float, float]:
    """Seconds a draw of OpenDP's discrete Gaussian: one by one, and of a vector of `many`.

    Raises:
      ImportError: it is not installed.
    """
    import opendp.prelude as odp

    odp.enable_features("contrib")
    domain = odp.atom_domain(T=int)
    one = odp.m.make_gaussian(domain, odp.absolute_distance(T=int), scale=scale)
    vector = odp.m.make_gaussian(odp.vector_domain(domain), odp.l2_distance(T=float), scale=scale)
    zeros = [0] * many

    def draw() -> None:
        for _ in range(single):
            one(0)

    return seconds_of(draw) / single, seconds_of(lambda: vector(zeros)) / many


def jax_steps(buffers: int, steps: int) -> tuple[float, float]:
    """Seconds a step of jax_privacy's BLT on one number, compiled: one by one, and in one scan.

    A step draws a normal variate and correlates it with those before. Nothing else of a count is
    in it: no sum, no state in bytes.

    Raises:
      ImportError: it is not installed.
    """
    import jax  # type: ignore[import-not-found]
    from jax_privacy.matrix_factorization import (  # type: ignore[import-not-found]
        buffered_toeplitz as toeplitz,
    )

    jax.config.update("jax_enable_x64", True)
    kind = toeplitz.BufferedToeplitz
    made = kind.from_rational_approx_to_sqrt_x(buffers, max_buf_decay=1 - 1e-6)
    matrix = made.inverse_as_streaming_matrix()

    def following(carried: Any, _: Any) -> Any:
        key, state = carried
        key, now = jax.random.split(key)
        value, state = matrix.multiply_next(jax.random.normal(now), state)
        return (key, state), value

    begin = jax.random.key(0), matrix.init_multiply(jax.numpy.zeros(()))
    step = jax.jit(following)
    scan = jax.jit(lambda carried: jax.lax.scan(following, carried, length=steps))

    def one_by_one() -> None:
        carried = begin
        for _ in range(steps):
            carried, value = step(carried, None)
            float(value)

    def all_at_once() -> None:
        jax.block_until_ready(scan(begin))

    for work in (one_by_one, all_at_once):
        work()  # compiles it
    return seconds_of(one_by_one) / steps, seconds_of(all_at_once) / steps

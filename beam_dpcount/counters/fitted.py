"""Counters of vectors that add up to the public number of steps, fitted to that number."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

from beam_dpcount.counters.counter import Counter, LatticeCounter
from beam_dpcount.counters.unbounded import UnboundedCounter
from beam_dpcount.mechanisms.base import FloatArray, IntArray, State
from beam_dpcount.noise.entropy import Noise


def fit(values: Any, total: Any) -> FloatArray:
    """The nearest vectors that add up to `total`: what is missing, spread evenly.

    Args:
      values: shape (d,) or (n, d).
      total: a number, or shape (n, 1).
    """
    # One after the other: a vectorised sum may round otherwise for a row than for a matrix, and
    # both paths are to give the same.
    sums = np.cumsum(values, axis=-1, dtype=np.float64)[..., -1:]
    return np.asarray(values - (sums - total) / values.shape[-1])


def kept(dimension: int | None) -> float:
    """The share of the noise's variance that a coordinate keeps: 1 - 1/d.

    Of d independent noises of one variance the projection I - 11'/d leaves so much in each, and
    correlates two of them by -1/(d - 1).
    """
    return 1 - 1 / (dimension or 1)


class FittedCounter(Counter):
    """A counter of vectors each of which has one 1 and is 0 elsewhere, so that t steps add up to t.

    Releases are the nearest vectors with that sum. Made by `fitted`, not by hand.

    Guarantee: as for `Counter`: t is public, so that fitting is post-processing. Variances are
      1 - 1/dimension of the others' (docs/proofs/items_and_ticks.md). Unbiased, if each step does
      have one 1, which is for the caller to see to.
    """

    @property
    def share(self) -> float:
        return kept(self.dimension)

    @property
    def fingerprint(self) -> str:
        return f"(fitted, {super().fingerprint})"

    def step_lattice(self, state: State, x: object, noise: Noise) -> tuple[State, Any]:
        state, values = super().step_lattice(state, x, noise)
        return state, fit(values, state[0])

    def release_lattice(self, xs: IntArray, noise: Noise) -> FloatArray:
        return _fit_all(super().release_lattice(xs, noise))


class FittedUnbounded(UnboundedCounter):
    """The same without a horizon."""

    @property
    def share(self) -> float:
        return kept(self.dimension)

    @property
    def fingerprint(self) -> str:
        return f"(fitted, {super().fingerprint})"

    def step_lattice(self, state: State, x: object, noise: Noise) -> tuple[State, Any]:
        state, values = super().step_lattice(state, x, noise)
        return state, fit(values, state[0])

    def release_lattice(self, xs: IntArray, noise: Noise) -> FloatArray:
        return _fit_all(super().release_lattice(xs, noise))


def _fit_all(values: FloatArray) -> FloatArray:
    return fit(values, np.arange(1, len(values) + 1)[:, None])


def fitted(counter: LatticeCounter) -> LatticeCounter:
    """A counter of vectors, fitted.

    Raises:
      ValueError: it releases other sums than those of all steps, which have another total.
    """
    mechanism: Any = counter.mechanism
    base = mechanism.of_epoch(0) if isinstance(counter, UnboundedCounter) else mechanism
    if not base.workload.is_prefix_sums:
        given = f"{base.name} releases {base.workload}"
        raise ValueError(
            f"fit_total fits counts of all elements, but {given}: leave one of them out"
        )
    kind: Any = FittedUnbounded if isinstance(counter, UnboundedCounter) else FittedCounter
    made: LatticeCounter = kind(**{one.name: getattr(counter, one.name) for one in fields(counter)})
    return made

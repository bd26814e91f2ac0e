"""Several metrics as one vector: which sums are whose, and how the budget is split among them.

Noise of one law is added to each sum of the vector. A metric gets less of it, relative to its own
size, where its sums are multiplied by more. Multipliers are whole, so that all stays on the lattice
of the noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from beam_dpcount.checks import ParameterError
from beam_dpcount.counters.joint import Part
from beam_dpcount.statistics.metrics.base import (
    Additions,
    Errors,
    FloatArray,
    Measured,
    Metric,
)
from beam_dpcount.statistics.metrics.counts import Count

_FINE = 16  # the least multiplier, so that splits are as asked for, to a few percent
_APART = 10**6  # how many times one weight may be another: beyond, multipliers leave 64 bits
_LARGEST = 1 << 24  # what sums may be multiplied up to for the sake of it


def check_metrics(metrics: object) -> tuple[Metric, ...]:
    """The metrics as a tuple, or an error that says what to pass."""
    example = 'give e.g. metrics=[dp.Count(), dp.Mean("latency", 0, 5)]'
    if isinstance(metrics, Metric) or not isinstance(metrics, Sequence):
        raise TypeError(f"metrics must be a list of metrics, got {metrics!r}: {example}")
    for metric in metrics:
        if not isinstance(metric, Metric):
            raise TypeError(
                f"metrics must be a list of metrics, but it holds {metric!r}: {example}"
            )
    if not metrics:
        raise ValueError(f"metrics are empty: {example}")
    names = [name for metric in metrics for name in metric.columns]
    for name in names:
        if names.count(name) > 1:
            remedy = "give one of them another name=..., or leave it out"
            raise ParameterError("metrics", f"have two columns called {name!r}", remedy)
    weights = [float(metric.weight) for metric in metrics]
    least, most = min(weights), max(weights)
    if most > _APART * least:
        raise ParameterError(
            "weight",
            f"is {most!r} beside {least!r}: they may differ by a factor of 10^6",
            "give metrics a {weight} nearer to each other, or leave out what is to get no budget",
        )
    return tuple(metrics)


@dataclass(frozen=True)
class Joint:
    """Metrics side by side in one vector of sums. Frozen and picklable.

    Args:
      metrics: of `check_metrics`, planned.
    """

    metrics: tuple[Metric, ...]

    def __getstate__(self) -> dict[str, Any]:
        return {"metrics": self.metrics}  # no caches

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The names of what is released."""
        return tuple(name for metric in self.metrics for name in metric.columns)

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """Where each metric's sums begin, and where the last one's end."""
        ends = np.cumsum([metric.width for metric in self.metrics]).tolist()
        return (0, *ends)

    @property
    def width(self) -> int:
        """How many sums there are."""
        return self.starts[-1]

    @cached_property
    def multipliers(self) -> tuple[int, ...]:
        """By what each sum is multiplied: weight / (sqrt(touched) limit), to one scale."""
        ideal = [
            metric.weight / (math.sqrt(metric.touched) * max(limit, 1))
            for metric in self.metrics
            for limit in metric.limits
        ]
        fine = 1
        if max(ideal) > min(ideal) * (1 + 1e-9):
            largest = max(limit for metric in self.metrics for limit in metric.limits)
            fine = max(1, min(_FINE, _LARGEST // max(largest, 1)))
        least = min(ideal)
        return tuple(max(1, round(fine * each / least)) for each in ideal)

    @cached_property
    def limits(self) -> tuple[int, ...]:
        """The most that one event adds to each sum, multiplied."""
        limits = [limit for metric in self.metrics for limit in metric.limits]
        return tuple(a * b for a, b in zip(limits, self.multipliers, strict=True))

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """What an event adds to each metric, at most."""
        made = []
        for metric, first, last in zip(self.metrics, self.starts, self.starts[1:], strict=False):
            limits, many = self.limits[first:last], self.multipliers[first:last]
            spans = [a * b for a, b in zip(metric.spans, many, strict=True)]
            # Of the sums an event may touch, the largest ones.
            largest = sorted(limits)[-metric.touched :]
            both = min(2 * metric.touched, metric.width)
            l2_squared = sum(each * each for each in largest)
            apart = sum(each * each for each in sorted(spans)[-both:])
            made.append(
                Part(
                    l1=sum(largest),
                    l2_squared=l2_squared,
                    span_squared=max(l2_squared, apart),
                    touched=metric.touched,
                    largest=max(limits),
                    signed=metric.signed,
                    once=metric.once,
                )
            )
        return tuple(made)

    @property
    def tested(self) -> int | None:
        """The place of the sum that says how many events a key has; None: there is none."""
        for metric, first in zip(self.metrics, self.starts, strict=False):
            if isinstance(metric, Count):
                return first
        return None

    @cached_property
    def needs_mapping(self) -> bool:
        """Whether events must be mappings, as a metric reads a field."""
        return any(metric.fields for metric in self.metrics)

    def additions(self, event: Any) -> Additions:
        """What an event adds to which sums, multiplied; nothing of what is once a person."""
        made = []
        for metric, first in zip(self.metrics, self.starts, strict=False):
            for place, amount in metric.additions(event):
                if amount:
                    place += first
                    made.append((place, amount * self.multipliers[place]))
        return tuple(made)

    @cached_property
    def first(self) -> Additions:
        """What a person's first event in a key adds beside it."""
        made = []
        for metric, first in zip(self.metrics, self.starts, strict=False):
            if metric.once:
                made.append((first, self.multipliers[first]))
        return tuple(made)

    def problem(self, event: Any) -> str | None:
        """Why something of an event does not count as it is."""
        problems = (metric.problem(event) for metric in self.metrics)
        return next((problem for problem in problems if problem is not None), None)

    def measure(
        self,
        sums: FloatArray,
        stddevs: FloatArray,
        multiples: Callable[[float], FloatArray],
        of_one: Callable[[float], FloatArray],
        level: float,
    ) -> Measured:
        """What noisy vectors say of all metrics, shape (n, columns).

        Args:
          sums: as they were counted, multiplied, shape (n, width).
          stddevs: of their noise, shape (n,).
          multiples, of_one: as for `Errors`.
          level: of the intervals.
        """
        scales = 1 / np.array(self.multipliers, dtype=np.float64)
        found = []
        for metric, first, last in zip(self.metrics, self.starts, self.starts[1:], strict=False):
            scale = scales[first:last]
            errors = Errors(np.multiply.outer(stddevs, scale), multiples, of_one)
            found.append(metric.measure(sums[:, first:last] * scale, errors, level))
        return Measured(*(np.concatenate(each, axis=1) for each in zip(*found, strict=True)))

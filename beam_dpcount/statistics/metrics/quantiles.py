"""Quantiles of the numbers in a field, from a hierarchy of buckets.

Each level of the hierarchy divides the buckets of the one above into as many parts, down to the
leaves; an event adds 1 to one bucket of each. There is no root. How many are below an edge is
estimated from all levels together, by least squares (Hay, Rastogi, Miklau, Suciu, Boosting the
accuracy of differentially private histograms through consistency, VLDB 2010): all sums of one
release have noise of one variance, so that nothing linear and unbiased is better.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from numbers import Real
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from beam_dpcount.checks import ParameterError
from beam_dpcount.counters.lattice import Lattice, plain
from beam_dpcount.errors import NotANumberError
from beam_dpcount.statistics.metrics.base import (
    Additions,
    Errors,
    FloatArray,
    IntArray,
    Measured,
    OfField,
    check_number,
)

MOST_LEAVES = 1 << 12
_BLOCK = 256  # functions of the leaves whose variances are computed at a time
_TIES = 1e-3  # of an event: a rank that is reached but for this is reached


@dataclass(frozen=True)
class Quantiles(OfField):
    """Quantiles of the numbers in a field, with intervals. Its columns: `p50_<field>` etc.

    The q-quantile is the least number that at least q n of the n numbers do not exceed. The value
    is interpolated within a bucket. The interval ends at edges of buckets: it leaves out those
    buckets of which noise rules out, at the level of the interval, that the quantile is in them or
    beyond them.

    Args:
      field: its name.
      low, high: numbers are clipped to them, and quantiles lie between them.
      q: the quantiles, each between 0 and 1, excluded.
      leaves: into how many buckets numbers are sorted, at least. Default 256, at most 4096.
      scale: "linear" (default): buckets are as wide; "log": as wide in the logarithm, which needs
        low > 0: quantiles are known to some percent, however small they are.
      branching: into how many parts a bucket is divided at each level. Default: that of the least
        error.
    """

    q: Sequence[float] = (0.5,)
    leaves: int = 256
    scale: str = "linear"
    branching: int | None = None

    example: ClassVar[str] = "latency, 0, 5, 0.5, 0.95"

    def __post_init__(self) -> None:
        super().__post_init__()
        example = 'give e.g. Quantiles("latency", 0, 5, [0.5, 0.95])'
        given: Any = self.q
        if isinstance(given, Real):
            given = (given,)
        if isinstance(given, str | bytes) or not isinstance(given, Sequence | np.ndarray):
            raise TypeError(f"q must be a list of numbers, got {self.q!r}: {example}")
        for each in given:
            if isinstance(each, bool) or not isinstance(each, Real):
                raise TypeError(f"q must be a list of numbers, but it holds {each!r}: {example}")
            if not 0 < float(each) < 1:
                raise ValueError(f"q must be between 0 and 1, but it holds {each!r}: {example}")
        if not len(given):
            raise ValueError(f"q is empty: {example}")
        object.__setattr__(self, "q", tuple(float(each) for each in given))
        if check_number("leaves", self.leaves, 2) > MOST_LEAVES:
            raise ParameterError("leaves", f"must be at most {MOST_LEAVES}, got {self.leaves}")
        if self.scale not in ("linear", "log"):
            raise ValueError(f"scale must be one of linear, log, got {self.scale!r}")
        if self.scale == "log" and self.low <= 0:
            problem = f"must be positive for a scale that is logarithmic, got {self.low:g}"
            raise ParameterError("low", problem, "give the least number that matters")
        if self.branching is not None:
            check_number("branching", self.branching, 2)

    @property
    def columns(self) -> tuple[str, ...]:
        of = self.name or self.field
        return tuple(f"p{_percent(q)}_{of}" for q in self.q)

    def planned(self, pure: bool) -> Quantiles:
        if self.branching is not None:
            return self
        best = min(_shapes(self.leaves), key=lambda shape: self._error(shape, pure))
        return replace(self, branching=best[0])

    def _error(self, shape: tuple[int, int], pure: bool) -> float:
        """The mean variance of F(x) - q n over edges x, for a budget that is the same."""
        levels = shape[1]
        below, both, whole = known_errors(*shape)
        variances = [np.mean(below - 2 * q * both + q * q * whole) for q in self.q]
        return float(np.mean(variances)) * (levels**2 if pure else levels)

    @cached_property
    def _shape(self) -> tuple[int, int]:
        if self.branching is None:
            raise ValueError("the branching is not chosen yet: take the metrics of the transform")
        levels = 1
        while self.branching**levels < self.leaves:
            levels += 1
        return self.branching, levels

    @cached_property
    def edges(self) -> FloatArray:
        """Those of the leaves, shape (leaves + 1,)."""
        branching, levels = self._shape
        places = np.arange(branching**levels + 1) / branching**levels
        if self.scale == "log":
            made = self.low * (self.high / self.low) ** places
        else:
            made = self.low + (self.high - self.low) * places
        made[0], made[-1] = self.low, self.high
        return np.asarray(made, dtype=np.float64)

    @cached_property
    def _inner(self) -> list[float]:
        inner: list[float] = self.edges[1:-1].tolist()
        return inner

    @cached_property
    def _firsts(self) -> tuple[tuple[int, int], ...]:
        """Of each level, from the leaves up: its first sum, and how many leaves a bucket has."""
        branching, levels = self._shape
        starts, at = [], 0
        for level in range(1, levels + 1):
            starts.append((at, branching ** (levels - level)))
            at += branching**level
        return tuple(reversed(starts))

    @property
    def width(self) -> int:
        branching, levels = self._shape
        return sum(branching**level for level in range(1, levels + 1))

    @property
    def touched(self) -> int:
        return self._shape[1]

    @property
    def limits(self) -> tuple[int, ...]:
        return (1,) * self.width

    @property
    def spans(self) -> tuple[int, ...]:
        return (1,) * self.width

    @cached_property
    def lattice(self) -> Lattice:
        return Lattice(self.low, self.high, 1)

    def code(self, event: Mapping[str, object]) -> int | None:
        """The leaf of the event's number; None where there is none."""
        try:
            value = plain(event[self.field])
            if type(value) is not float or value != value:
                self.lattice.one(value)  # whether it is a number
                value = float(min(max(value, self.low), self.high))
        except (LookupError, NotANumberError):
            return None
        return bisect_right(self._inner, value)

    def codes(self, values: npt.NDArray[Any]) -> IntArray:
        clipped = np.clip(values.astype(np.float64), self.low, self.high)
        return np.asarray(np.searchsorted(self.edges[1:-1], clipped, side="right"), dtype=np.int64)

    @property
    def range(self) -> tuple[int, int]:
        return 0, len(self.edges) - 2

    def of_code(self, code: Any) -> Additions:
        return tuple([(first + code // size, 1) for first, size in self._firsts])

    def measure(self, sums: FloatArray, errors: Errors, level: float) -> Measured:
        below = np.zeros((len(sums), len(self.edges)))
        np.cumsum(estimated(sums, *self._shape), axis=1, out=below[:, 1:])
        n, stddev = below[:, -1:], errors.stddevs[:, :1]
        multiple = errors.multiples(level)[:, None]
        of_edge, of_both, of_all = known_errors(*self._shape)
        is_known = (n > multiple * stddev * math.sqrt(of_all)) & (n >= 0.5)
        up = np.maximum.accumulate(below, axis=1)
        down = np.minimum.accumulate(below[:, ::-1], axis=1)[:, ::-1]
        rising = (up + down) / 2
        found = []
        for q in self.q:
            apart = below - q * n
            margin = multiple * stddev * np.sqrt(of_edge - 2 * q * of_both + q * q * of_all)
            # The edges before the first that is not surely below the quantile; and after the last
            # that is not surely above it.
            first = np.argmin(apart < -margin, axis=1)
            last = np.argmin((apart > margin)[:, ::-1], axis=1)
            low = self.edges[np.maximum(first - 1, 0)]
            high = self.edges[::-1][np.maximum(last - 1, 0)]
            found.append((self._inverse(rising, q * n - _TIES), low, high))
        value, low, high = (np.stack(each, axis=1) for each in zip(*found, strict=True))
        value, low, high = (np.where(is_known, each, np.nan) for each in (value, low, high))
        return Measured(value, np.full_like(value, np.nan), low, high)

    def _inverse(self, rising: FloatArray, rank: FloatArray) -> FloatArray:
        """Where counts that rise, shape (n, leaves + 1), reach a rank, shape (n, 1)."""
        after = np.clip(np.argmax(rising >= rank, axis=1), 1, None)
        rows = np.arange(len(rising))
        least, most = rising[rows, after - 1], rising[rows, after]
        gap = most - least
        part = np.clip((rank[:, 0] - least) / np.where(gap > 0, gap, 1.0), 0, 1)
        return np.asarray(self.edges[after - 1] * (1 - part) + self.edges[after] * part)


def _percent(q: float) -> str:
    """50 for 0.5, 99_9 for 0.999."""
    return f"{q * 100:.10g}".replace(".", "_")


def _shapes(leaves: int) -> list[tuple[int, int]]:
    """Hierarchies with as many leaves, or few more: their branching, and their levels."""
    shapes = []
    for levels in range(1, (leaves - 1).bit_length() + 1):
        branching = max(2, round(leaves ** (1 / levels)))
        while branching**levels < leaves:
            branching += 1
        if branching**levels <= MOST_LEAVES:
            shapes.append((branching, levels))
    return shapes


def estimated(sums: FloatArray, branching: int, levels: int) -> FloatArray:
    """The counts of the leaves, shape (n, leaves), by least squares from noisy ones of all buckets.

    Args:
      sums: shape (n, buckets), level by level from the top.
    """
    n, at, noisy = len(sums), 0, []
    for level in range(1, levels + 1):
        noisy.append(sums[:, at : at + branching**level])
        at += branching**level
    up = [noisy[-1]]
    for height, own in enumerate(reversed(noisy[:-1]), start=2):
        # Of the bucket itself, and of all below it: their mean, weighted by precision.
        below = up[-1].reshape(n, -1, branching).sum(axis=2)
        share = (branching**height - branching ** (height - 1)) / (branching**height - 1)
        up.append(share * own + (1 - share) * below)
    made = up[-1]
    for own in reversed(up[:-1]):
        parts = own.reshape(n, -1, branching)
        parts = parts + ((made - parts.sum(axis=2)) / branching)[:, :, None]
        made = parts.reshape(n, -1)
    return made


@lru_cache(maxsize=64)
def known_errors(branching: int, levels: int) -> tuple[FloatArray, FloatArray, float]:
    """Variances of the estimated number below each edge, shape (leaves + 1,), their covariances
    with that of all, and its variance; for noise of variance 1 in each bucket.

    With A the matrix of buckets and leaves, estimates are G A' y, and their covariance is G, the
    inverse of A' A. And G c is what is estimated where c is all that the leaves say.
    """
    leaves = branching**levels
    buckets = sum(branching**level for level in range(1, levels + 1))
    below, both = np.zeros(leaves + 1), np.zeros(leaves + 1)
    for first in range(0, leaves + 1, _BLOCK):
        edges = np.arange(first, min(first + _BLOCK, leaves + 1))
        said = np.zeros((len(edges), buckets))
        said[:, -leaves:] = np.arange(leaves) < edges[:, None]
        sums = np.cumsum(estimated(said, branching, levels), axis=1)
        both[edges] = sums[:, -1]
        some = edges > 0
        below[edges[some]] = sums[np.flatnonzero(some), edges[some] - 1]
    below.flags.writeable = both.flags.writeable = False
    return below, both, float(below[-1])

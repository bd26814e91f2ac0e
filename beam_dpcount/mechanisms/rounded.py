"""What encoders with real entries share: their output is rounded before it is noised."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from typing import Any, ClassVar

import numpy as np

from beam_dpcount.mechanisms.base import FloatArray, Mechanism, UnsupportedHorizonError
from beam_dpcount.mechanisms.workload import Workload

SLACK = 1e-4  # of the sensitivity: the lattice adds at most half of it
# The most that arithmetic may add, also charged for. Only sums of very many events come near it,
# and no lattice is fine enough to help: beyond this, other mechanisms are better.
ARITHMETIC = 0.05
_LARGEST = 1 << 62  # of inputs on the noise's lattice
ULP = 2.0**-53  # the relative error of one operation in double precision


@dataclass(frozen=True)
class RoundedMechanism(Mechanism):
    """A mechanism that noises q = round(R x), R real: y = q + z is integers, and L y is released.

    All after y is post-processing, in floating point. The encoder's inputs are multiplied by
    `resolution` (a power of two), so that rounding is small against the change of one item.

    Guarantee: for neighbours that differ by m in one step, of inputs within +-M, the entries of q
      differ from those of a change of R x by at most `rounding` + 2 M `encoding_error`, in at
      most T rows: Delta_2 = m max_s ||R_s||_2 + (rounding + 2 M encoding_error) sqrt(T), of which
      the second part is at most 1e-4 for M = m, and 5 % for sums of many events. Gaussian noise:
      takes zero-concentrated and approximate budgets.
    """

    slack_allowed: ClassVar[float] = SLACK
    # Gaussian noise only: columns of R are long and flat, and an L1 norm is far larger.
    laws = frozenset({"gaussian"})

    @property
    @abstractmethod
    def encoding_error(self) -> float:
        """A proved bound on |computed - exact R x| before rounding, for |x| <= 1."""

    @property
    def rounding(self) -> float:
        """The most that rounding adds to the difference of two streams in one row."""
        return 1.0

    def draws(self, n: int) -> int:
        return n

    def resolution(self, magnitude: int, largest: int | None = None) -> int:
        l2 = magnitude * math.sqrt(self.l2_sensitivity_squared)
        root, most = math.sqrt(self.horizon), largest or magnitude
        fine = 1 << max(
            0, math.ceil(math.log2(self.rounding * root / (self.slack_allowed / 2 * l2)))
        )
        if 2 * most * self.encoding_error * root > ARITHMETIC * l2 or most * fine > _LARGEST:
            raise UnsupportedHorizonError(
                f"inputs of up to {most} units over a horizon of {self.horizon} have too many "
                f"digits for {self.name}: lower the bounds (or max_per_tick), or use SmoothBinary, "
                "a larger unit or a shorter horizon"
            )
        return fine

    def norms(self, magnitude: int, largest: int | None = None) -> tuple[Fraction, Fraction]:
        slack_l1, slack_l2 = self.slack(largest or magnitude)
        l1 = magnitude * self.l1_sensitivity + slack_l1
        l2 = magnitude * math.sqrt(self.l2_sensitivity_squared) + slack_l2
        return Fraction(round_up(l1)), Fraction(round_up(l2)) ** 2

    def slack(self, largest: int) -> tuple[float, float]:
        per_row = self.rounding + 2 * largest * self.encoding_error
        return per_row * self.horizon, per_row * math.sqrt(self.horizon)


class WeightedMechanism(RoundedMechanism):
    """One of any workload, which keeps the norms of all rows of L."""

    momentum: float  # fields of derived classes
    decay: float

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("momentum", "decay"):
            object.__setattr__(self, name, getattr(self.workload, name))

    @cached_property
    def workload(self) -> Workload:
        return Workload(self.momentum, self.decay)

    @property
    @abstractmethod
    def _row_norms2(self) -> FloatArray:
        """row_norm2 of 1 .. T."""

    def row_norm2(self, t: int) -> float:
        return float(self._row_norms2[t - 1])

    def row_norms2(self, n: int) -> FloatArray:
        return self._row_norms2[: self.check_steps(n)].copy()

    def max_row_norm2(self) -> float:
        return float(self._row_norms2.max())

    def mean_row_norm2(self) -> float:
        return float(self._row_norms2.mean())


def round_up(value: float) -> float:
    """Rounded up to 28 binary digits: machines that add in another order find the same noise."""
    fraction, exponent = math.frexp(value * (1 + 1e-9))
    return math.ldexp(math.ceil(math.ldexp(fraction, 28)), exponent - 28)


def lag_bounds(largest: float, products: Iterable[float], n: int) -> tuple[float, ...]:
    """g(0) .. g(n-1) of `Mechanism.lag_bounds`: products of lags from 1 on, rounded up; then 0.

    Where rounding makes one increase, those before it are raised too; `largest` caps all.
    """
    rounded = [min(round_up(float(product)), largest) for product in products]
    falling = [*accumulate(reversed(rounded), max)][::-1]
    return (largest, *falling, *[0.0] * n)[:n]


def left_dot(weights: Iterable[Any], values: Iterable[Any]) -> Any:
    """A sum of products from left to right, of numbers or arrays, the same on all machines.

    sum() of floats varies with the Python version, and products of arrays with the processor.
    """
    return left_sum(weight * value for weight, value in zip(weights, values, strict=True))


def left_sum(values: Iterable[Any]) -> Any:
    """A sum from left to right."""
    total: Any = None
    for value in values:
        total = value if total is None else total + value
    return 0.0 if total is None else total


def to_integers(value: Any) -> Any:
    """A number, or each of an array, rounded to the nearest integer, halves to even."""
    return round(value) if isinstance(value, float) else np.rint(value).astype(np.int64)

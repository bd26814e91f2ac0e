"""Exact noise laws on the integers, sampled exactly from uniform random bytes.

Small scales are sampled by inversion: a uniform real U in [0, 1), known only through its leading
bits, falls between two values of the cumulative distribution. A 16-bit look-up decides almost
every draw, 64 bits almost all of the rest; on a boundary, more bits are drawn until certified
interval arithmetic decides. Large scales put a draw together from such tables and uniform bits,
and may reject it, just as exactly. No probability is rounded and no tail is cut: the law that is
drawn is the law that privacy is proved for.
"""

from __future__ import annotations

import decimal
import itertools
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, cast

import numpy as np
import numpy.typing as npt

from beam_dpcount.errors import Error
from beam_dpcount.noise import tables
from beam_dpcount.noise.tables import IntArray, RandomBytes, exp_negative, inverse_table

# Tables are used up to this scale; beyond it laws are put together from smaller ones.
_TABLE_SCALE = 512
_MAX_SCALE = 2**33
_DIGIT = 512  # the base of a geometric's digits


class ScaleError(Error, ValueError):
    """A budget so small, for so fine a lattice, that its noise is out of range."""


@dataclass(frozen=True)
class Law(ABC):
    """A symmetric law of integer noise. Immutable, hashable, picklable; holds no randomness."""

    signed: ClassVar[bool] = True

    @property
    @abstractmethod
    def variance(self) -> float:
        """The law's own variance (not its parameter), in squared lattice units."""

    @property
    @abstractmethod
    def scale(self) -> float:
        """Its parameter, as a length in lattice units."""

    @abstractmethod
    def pmf(self, x: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Probabilities of the integers `x`, to double precision."""

    @abstractmethod
    def sample(self, n: int, random_bytes: RandomBytes = os.urandom) -> IntArray:
        """`n` independent draws, shape (n,), from uniform random bytes; only tests seed them."""

    def first(self) -> Callable[[bytes], int | None]:
        """A function of 16 bytes or more: the draw of `sample(1)` from a source that begins so.

        It gives None where they do not decide the draw, or where sampling is as fast.
        """
        return lambda data: None


def _check_scale(parameter: Fraction, power: int) -> None:
    """Raise ScaleError unless 0 < parameter^(1/power) <= 2^33."""
    if not 0 < parameter <= _MAX_SCALE**power:
        try:
            shown = f"{float(parameter) ** (1 / power):.3g}"
        except OverflowError:
            shown = "10^150 and more"
        problem = f"this budget needs noise of scale {shown} lattice units, outside (0, 2^33]"
        remedy = "raise the budget, choose a larger unit, or shorten the horizon (or give one)"
        raise ScaleError(f"{problem}: {remedy}")


@dataclass(frozen=True)
class DiscreteLaplace(Law):
    """P(x) proportional to exp(-|x| / parameter), x an integer; the parameter an exact rational."""

    parameter: Fraction

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameter", Fraction(self.parameter))
        _check_scale(self.parameter, 1)

    @property
    def scale(self) -> float:
        return float(self.parameter)

    @property
    def variance(self) -> float:
        half = 1 / (2 * self.scale)
        return 0.0 if half > 350 else 1 / (2 * math.sinh(half) ** 2)

    def pmf(self, x: npt.ArrayLike) -> npt.NDArray[np.float64]:
        return np.asarray(math.tanh(0.5 / self.scale) * np.exp(-np.abs(x) / self.scale))

    def sample(self, n: int, random_bytes: RandomBytes = os.urandom) -> IntArray:
        if self.parameter <= _TABLE_SCALE:
            return inverse_table(self).sample(n, random_bytes)
        # The difference of two geometrics B Q + R, whose digits Q and R are independent:
        # B (Q1 - Q2) + (R1 - R2), and Q1 - Q2 is again discrete Laplace, of scale s / B.
        high = DiscreteLaplace(self.parameter / _DIGIT).sample(n, random_bytes)
        digit = tables.TruncatedGeometric(self.parameter, _DIGIT)
        low = inverse_table(digit).sample(2 * n, random_bytes)
        return high * _DIGIT + low[:n] - low[n:]

    def first(self) -> Callable[[bytes], int | None]:
        if self.parameter <= _TABLE_SCALE:
            return inverse_table(self).first
        if self.parameter > _TABLE_SCALE * _DIGIT:
            return super().first()
        high = inverse_table(DiscreteLaplace(self.parameter / _DIGIT))
        low = inverse_table(tables.TruncatedGeometric(self.parameter, _DIGIT))

        def first(data: bytes) -> int | None:
            digits = high.first(data), low.first(data, 2), low.first(data, 4)
            if None in digits:
                return None
            h, plus, minus = cast(tuple[int, int, int], digits)
            return h * _DIGIT + plus - minus

        return first

    def tails(self, bits: int) -> list[tuple[int, int]]:
        """Bounds of P(|X| >= m) * 2^bits for m = 1, 2, ... until they cannot matter."""
        q, one = exp_negative(1 / self.parameter, bits), 1 << bits
        # 2 q^m / (1 + q): the first errs by up to 4, as 2 q / (1 + q) has a slope of up to 2, and
        # by its rounding; a product by what its factors do, 2 for q, and its own rounding.
        tail, error, bounds = (2 * q << bits) // (one + q), 5, list[tuple[int, int]]()
        while True:
            bounds.append((max(tail - error, 0), tail + error))
            if tail <= error:
                return bounds
            tail, error = tail * q >> bits, error + 3


@dataclass(frozen=True)
class _Gaussian(Law):
    sigma2: Fraction

    _table_scale: ClassVar[int] = _TABLE_SCALE
    _rounded: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "sigma2", Fraction(self.sigma2))
        _check_scale(self.sigma2, 2)

    @property
    def scale(self) -> float:
        return math.sqrt(self.sigma2)

    @property
    def variance_proxy(self) -> float:
        """v with E exp(a X) <= exp(a^2 v / 2) for all a; sigma2 for the discrete [CKS20, 22]."""
        return float(self.sigma2)

    def sample(self, n: int, random_bytes: RandomBytes = os.urandom) -> IntArray:
        if self.sigma2 <= self._table_scale**2:
            return inverse_table(self).sample(n, random_bytes)
        return tables.from_blocks(self.sigma2, self._rounded, n, random_bytes)

    def first(self) -> Callable[[bytes], int | None]:
        if self.sigma2 <= self._table_scale**2:
            return inverse_table(self).first
        return tables.first_of_blocks(self.sigma2, self._rounded)


@dataclass(frozen=True)
class DiscreteGaussian(_Gaussian):
    """P(x) proportional to exp(-x^2 / (2 sigma2)), x an integer; sigma2 an exact rational.

    Its variance is below sigma2, noticeably so for sigma2 < 1 [CKS20].
    """

    def _weights(self) -> npt.NDArray[np.float64]:
        x = np.arange(int(40 * self.scale) + 2.0)
        return np.exp(-(x**2) / (2 * float(self.sigma2)))

    @property
    def variance(self) -> float:
        if self.sigma2 >= 100:  # differs from sigma2 by a factor 1 - exp(-2 pi^2 sigma2)
            return float(self.sigma2)
        weights = self._weights()
        squares = np.arange(len(weights), dtype=float) ** 2
        return float(2 * (squares * weights).sum() / (2 * weights.sum() - 1))

    def pmf(self, x: npt.ArrayLike) -> npt.NDArray[np.float64]:
        if self.sigma2 >= 100:
            total = math.sqrt(2 * math.pi * float(self.sigma2))
        else:
            total = float(2 * self._weights().sum() - 1)
        return np.asarray(np.exp(-(np.square(x, dtype=float)) / (2 * float(self.sigma2))) / total)

    def tails(self, bits: int) -> list[tuple[int, int]]:
        return tables.gaussian_tails(self.sigma2, 2, bits)


@dataclass(frozen=True)
class RoundedGaussian(_Gaussian):
    """The law of round(Y), Y a real of law N(0, sigma2); sigma2 an exact rational.

    P(|X| >= m) = erfc((m - 1/2) / sqrt(2 sigma2)) for m >= 1. Its variance is nearly sigma2 + 1/12.

    Guarantee: n + X is round(n + Y) for every integer n, so what is proved of the continuous
      Gaussian mechanism on integers holds for this law, by post-processing: the analytic
      calibration [Balle, Wang 2018], and Delta_2^2 / (2 sigma2)-zCDP.
    """

    _table_scale = 8  # its table costs ten times as much to make
    _rounded = True

    @property
    def variance(self) -> float:
        if self.sigma2 >= 9:  # up to 40 exp(-2 pi^2 sigma2), by Poisson's summation
            return float(self.sigma2) + 1 / 12
        cuts = np.arange(0.5, 40 * self.scale + 1)
        return float((2 * cuts * self._beyond(cuts)).sum())

    @property
    def variance_proxy(self) -> float:
        # By Poisson's summation E exp(a X) is exp(a^2 sigma2 / 2) sinh(a/2)/(a/2), nearly, and
        # less than what 1/4 in place of 1/12 allows for, small sigma2 included: see the test.
        return float(self.sigma2) + 1 / 4

    def _beyond(self, cuts: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """P(|Y| >= cut) of each cut >= 0."""
        z = cuts / math.sqrt(2 * float(self.sigma2))
        return np.array([math.erfc(c) for c in z.ravel().tolist()]).reshape(z.shape)

    def pmf(self, x: npt.ArrayLike) -> npt.NDArray[np.float64]:
        y = np.abs(np.asarray(x, dtype=np.float64))
        if self.sigma2 < 16:  # so steep that differences lose little
            beyond = self._beyond(np.maximum(y - 0.5, 0)) - self._beyond(y + 0.5)
            return np.asarray(beyond / np.where(y > 0, 2, 1))
        # So flat on each cell that the rule of Gauss and Legendre is exact, to double precision.
        nodes, weights = np.polynomial.legendre.leggauss(16)
        density = np.exp(-((y[..., None] + nodes / 2) ** 2) / (2 * float(self.sigma2)))
        return np.asarray(density @ weights / math.sqrt(8 * math.pi * float(self.sigma2)))

    def tails(self, bits: int) -> list[tuple[int, int]]:
        digits, bounds = int(bits * 0.30103) + 15, list[tuple[int, int]]()
        # Decimal's operations are correctly rounded, and but for 1 - erf there are only positive
        # sums and products, of fewer than 100 * digits numbers: they err by far less than 2^-bits.
        with decimal.localcontext(decimal.Context(prec=digits)):
            whole = _error_integral(decimal.Decimal(3 * digits))  # short by exp(-3 digits) at most
            while True:
                r = (2 * len(bounds) + 1) ** 2 / (8 * self.sigma2)
                if r > (bits + 2) * 0.6931472:  # erfc(sqrt(r)) <= exp(-r)
                    return [*bounds, (0, 1)]
                part = _error_integral(decimal.Decimal(r.numerator) / r.denominator)
                tail = int((1 - part / whole) * (1 << bits))
                bounds.append((max(tail - 1, 0), tail + 2))


def _error_integral(r: decimal.Decimal) -> decimal.Decimal:
    """The integral of exp(-s^2) over s from 0 to sqrt(r), to the digits of the context.

    It is exp(-r) sqrt(r) (1 + 2r/3 + (2r)^2/(3*5) + ...); terms at least halve from the 2r-th on.
    """
    total = term = decimal.Decimal(1)
    twice, settled = 2 * r, int(2 * r)
    for n in itertools.count(1):
        term *= twice / (2 * n + 1)
        if n > settled and total + term == total:
            break
        total += term
    return (-r).exp() * r.sqrt() * total

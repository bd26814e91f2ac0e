"""Non-interactive local learning: every client sends one private message, and no one sees more.

Nothing here knows of Beam. No postponed annotations: `LocalRisk` is a row of a pipeline.

[0, 1] is cut into T public cells with centres m_1 .. m_T. A client's convex loss has at m_t the
slope 2 F_t - 1, with 0 <= F_1 <= ... <= F_T <= 1; of the loss |x - w|, F_t is 1 where x <= m_t.
A message holds the private prefix sums of two counters: from left to right y_t, of F_t, and from
right to left z_t, of 1 - F_(T+1-t). Averaged over clients they give all slopes, and so the loss.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from decimal import Decimal
from fractions import Fraction
from functools import cached_property, lru_cache
from numbers import Real
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from beam_dpcount.budget.budgets import Budget, check_budget
from beam_dpcount.counters.change import Change
from beam_dpcount.counters.choose import choose, resolve
from beam_dpcount.counters.counter import Counter, calibrate
from beam_dpcount.counters.errors import chernoff
from beam_dpcount.mechanisms import Mechanism, Sparse, Unbounded
from beam_dpcount.mechanisms.rounded import RoundedMechanism, round_up
from beam_dpcount.noise.entropy import Noise, SystemNoise

MOST_CELLS = 1024
_ANYTHING = (Exception, SystemExit)  # that a client's value or function may raise
FALLBACK = 0.5  # for a client whose value is not a number
_FEW = 4096  # clients whose messages are made at a time
_SHORT = 64  # numbers of state

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Values = Sequence[Any] | npt.NDArray[Any]


class LocalRisk(NamedTuple):
    """The loss that the clients' messages give.

    Fields:
      grid: 0, 1/T, ..., 1, for T cells.
      loss: the private mean loss at these points, unbiased; linear between them. Exact for
        |x - w|; for other losses up to a constant: the mean of the values at 0 and 1 is taken as
        1/2, which it is for |x - w|.
      minimiser: the first point of the grid where it is least.
      clients: how many sent a message.
      stddev: of the noise of each value of `loss`; public.
    """

    grid: Sequence[float]
    loss: Sequence[float]
    minimiser: float
    clients: int
    stddev: Sequence[float]


@dataclass(frozen=True)
class ClientChange(Change):
    """The neighbours of the local model: all that one client holds is anything else.

    Guarantee: what a counter counts of one client is a vector u >= 0 of sum at most 1. R (u - u')
      is linear in u and in u', so its norms are largest where both are corners, 0 or unit vectors:
      the largest ||R_j|| or ||R_j - R_k|| over all pairs of columns, up to sqrt(2) times (where R
      has no negative entries), in L1 twice, that of one column, which is what [FHU22, section 5.6]
      takes.
    """

    relations: ClassVar[tuple[str, ...]] = ("replace_one",)
    takes_coordinates = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.low, self.high) != (0, 1):
            raise ValueError(f"a client counts in (0, 1), got ({self.low:g}, {self.high:g})")

    def norms(
        self, mechanism: Mechanism, unit: float, dimension: int | None
    ) -> tuple[Fraction, Fraction]:
        if dimension is not None:
            raise ValueError("a client's counters count single numbers: leave dimension out")
        m = self.magnitude(unit)
        fine = mechanism.resolution(m, m)
        l1, l2_squared = column_differences(mechanism)
        l1, l2_squared = m * fine * l1, (m * fine) ** 2 * l2_squared
        slack_l1, slack_l2 = mechanism.slack(m * fine)
        if slack_l2 == 0:
            return l1, l2_squared
        l2 = round_up(math.sqrt(l2_squared) + slack_l2)
        return Fraction(round_up(float(l1) + slack_l1)), Fraction(l2) ** 2

    def __str__(self) -> str:
        return f"{self.relation} (all data of any one client)"


@lru_cache(maxsize=64)
def column_differences(mechanism: Mechanism) -> tuple[Fraction, Fraction]:
    """The largest L1 norm and squared L2 norm of a column of R, or of two columns' difference.

    Where R is of integers the L2 norm is exact, else rounded up; the L1 norm is exact where R is of
    0 and 1, else twice a column's.
    """
    R = mechanism.encoder(mechanism.horizon)
    gram = R.T @ R
    squares = np.diag(gram)
    largest = float(max(squares.max(), (squares[:, None] + squares - 2 * gram).max()))
    twice = 2 * Fraction(mechanism.l1_sensitivity)
    if isinstance(mechanism, RoundedMechanism) or not np.array_equal(R, np.rint(R)):
        # Dense encoders are computed to some 1e-9 of their norms (Binned's, at small c, to 7e-9).
        return twice, Fraction(largest * (1 + 1e-6))
    only_bits = bool(((R == 0) | (R == 1)).all())
    return (Fraction(largest) if only_bits else twice), Fraction(largest)


@dataclass(frozen=True)
class LocalLearner(ABC):
    """The client's side, `message`, and the server's, `risk`, of local learning.

    Args:
      budget: of each client: what its message costs it, by itself.
      cells: T, from 2 to 1024. The loss is wrong by up to 1/(2T), and by noise that grows with
        log T; about epsilon * sqrt(clients) is a good choice.
      mechanism: of both counters: an instance of horizon T, a class, a name, or None for the one
        of least mean variance.

    Guarantee: the message of each client, as a random function of all that this client holds,
      satisfies `budget` for any two contents: local differential privacy. Each of its two counters
      is calibrated to half of the budget for `ClientChange`, they have independent noise, and the
      halves compose. It does not rest on the server, on other clients or on how many there are.
      Public: that a client sent a message, the cells and all other parameters. A message always has
      the same length. A client who sends several messages spends the budget for each.

    Source: [FHU22, section 5.6], after Smith, Thakurta, Upadhyay 2017; docs/proofs/local.md says
      what is derived anew, and what differs from it.

    Raises:
      ValueError, TypeError: an argument is out of range.
    """

    budget: Budget
    cells: int
    mechanism: Any = None

    unit: ClassVar[float] = 1.0  # of F_t

    def __post_init__(self) -> None:
        check_budget(self.budget)
        if (
            isinstance(self.cells, bool)
            or not isinstance(self.cells, int | np.integer)
            or not 2 <= self.cells <= MOST_CELLS
        ):
            raise ValueError(
                f"cells must be a whole number from 2 to {MOST_CELLS}, got {self.cells!r}: about "
                "epsilon * sqrt(clients) is a good choice"
            )
        object.__setattr__(self, "cells", int(self.cells))
        if isinstance(self.mechanism, Sparse | Unbounded):
            raise ValueError(f"{self.mechanism.name} has no horizon: use one of mechanisms.ALL")
        half, change = self.budget.split(2)[0], ClientChange()
        if self.mechanism is None:
            # SquareRoot is slow for long messages, and BLT within 1 % of it.
            most = max(_SHORT, self.cells)
            made = choose(self.cells, half, "mean", most, change=change, unit=self.unit).mechanism
        else:
            made = resolve(self.mechanism, self.cells, half, change)
        object.__setattr__(self, "mechanism", made)
        _ = self.counter  # refuses what the mechanism cannot take

    def __getstate__(self) -> dict[str, Any]:
        # With the counter, which refuses to be unpickled by a version with other constants.
        kept = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**kept, "counter": self.counter}

    @cached_property
    def counter(self) -> Counter:
        """For both directions, each with its own noise: calibrated to half of the budget."""
        half = self.budget.split(2)[0]
        made: Counter = calibrate(self.mechanism, half, ClientChange(), None, self.unit)
        return made

    @cached_property
    def grid(self) -> FloatArray:
        """The borders of the cells, shape (T + 1,)."""
        return np.arange(self.cells + 1) / self.cells

    @cached_property
    def centres(self) -> FloatArray:
        """The centres of the cells, shape (T,)."""
        return (np.arange(self.cells) + 0.5) / self.cells

    # The client's side

    @abstractmethod
    def profiles(self, values: Values) -> IntArray:
        """F_t of each client in multiples of `unit`, not decreasing, shape (n, T)."""

    @abstractmethod
    def problem(self, value: object) -> str | None:
        """Why a client does not count as it is; errors are not caught. Not for use on devices."""

    def message(self, value: object, noise: Noise | None = None) -> FloatArray:
        """One client's message: y_1 .. y_T and then z_1 .. z_T, shape (2T,). To be sent once.

        Any value gives one. `noise` is as for `messages`.
        """
        made: FloatArray = self.messages([value], noise)[0]
        return made

    def messages(self, values: Values, noise: Noise | None = None) -> FloatArray:
        """The messages of n clients, by what each holds, each with its own noise; shape (n, 2T).

        `noise` is for tests, of dimension 2n; by default the operating system's entropy.
        """
        step = len(values) if noise is not None else _FEW
        parts = [
            self._messages(self.profiles(values[first : first + step]), noise)
            for first in range(0, len(values), max(step, 1))
        ]
        return np.concatenate(parts) if parts else np.zeros((0, 2 * self.cells))

    def _messages(self, profiles: IntArray, noise: Noise | None) -> FloatArray:
        n = len(profiles)
        whole = round(1 / self.unit)
        # One column a counter: the clients' from left to right, then from right to left.
        both = np.concatenate([profiles, (whole - profiles)[:, ::-1]]).T
        steps = np.diff(both, axis=0, prepend=0)
        if noise is None:
            noise = SystemNoise(self.counter.law, 2 * n)
        released = self.counter.release_lattice(steps, noise)
        return np.concatenate([released[:, :n], released[:, n:]]).T

    # The server's side

    @cached_property
    def weights(self) -> FloatArray:
        """The weight of y_t against 1 - z_(T+1-t), which estimates the same: shape (T,).

        In inverse proportion to their variances; [FHU22] has 1/2 throughout.
        """
        norms = self.mechanism.row_norms2(self.cells)
        made: FloatArray = norms[::-1] / (norms + norms[::-1])
        return made

    def slopes(self, total: npt.ArrayLike, clients: int) -> FloatArray:
        """The mean slope of the loss in each cell, unbiased, shape (T,), from summed messages."""
        mean = np.asarray(total, dtype=np.float64) / clients
        if mean.shape != (2 * self.cells,):
            raise ValueError(f"messages have shape ({2 * self.cells},), got {mean.shape}")
        y, z = mean[: self.cells], mean[: self.cells - 1 : -1]
        made: FloatArray = 2 * (self.weights * y + (1 - self.weights) * (1 - z)) - 1
        return made

    def risk(self, total: npt.ArrayLike, clients: int) -> LocalRisk:
        """The loss, from the sum of all clients' messages, shape (2T,): post-processing.

        Raises:
          ValueError: there are no clients, or the sum has another shape.
        """
        if clients < 1:
            raise ValueError("there are no clients, and so no loss")
        loss = 0.5 + _centred(self.slopes(total, clients)) / self.cells
        best = self.grid[int(np.argmin(loss))]
        stddev = self.stddevs(clients)
        return LocalRisk(self.grid.tolist(), loss.tolist(), float(best), clients, stddev.tolist())

    @cached_property
    def _noise_weights(self) -> FloatArray:
        """By value of a client's loss, the weight of each draw of both counters' noise."""
        L = self.mechanism.decoder(self.cells)
        left = 2 * self.weights[:, None] * L
        right = -2 * (1 - self.weights)[:, None] * L[::-1]
        return _centred(np.concatenate([left, right], axis=1)) / self.cells

    def stddevs(self, clients: int) -> FloatArray:
        """The standard deviations of the noise of the mean loss on the grid, shape (T + 1,)."""
        per_draw = math.sqrt(self.counter.law.variance / clients) * self.counter.grid
        made: FloatArray = np.sqrt((self._noise_weights**2).sum(axis=1)) * per_draw
        return made

    @property
    def discretisation(self) -> float:
        """The most that cells, and rounding of F_t to its unit, do to the loss anywhere."""
        return 0.5 / self.cells + (0.0 if self.unit == 1 else self.unit / 2)

    def error_bound(self, clients: int, beta: float = 1 / 3) -> float:
        """A bound on |private loss - mean loss of these clients|, at once on all of [0, 1].

        It holds with probability at least 1 - beta, over the noise: Chernoff's bound, with a union
        over the T + 1 points between which the noise is linear, and `discretisation`. A loss that
        is known up to a constant has 1/2 for the mean of its values at 0 and 1, as in LocalRisk.
        The loss at the minimiser exceeds the least by at most twice the bound.

        Raises:
          ValueError: an argument is out of range.
        """
        if clients < 1:
            raise ValueError(f"clients must be at least 1, got {clients!r}")
        if not 0 < beta < 1:
            raise ValueError(f"beta must be between 0 and 1, got {beta!r}: give e.g. 0.05")
        nats = math.log(2 * (self.cells + 1) / beta)
        squares = (self._noise_weights**2).sum(axis=1)
        most = np.abs(self._noise_weights).max(axis=1)
        # Chernoff's bound is for weights of at most 1; n clients have n draws of each weight.
        widest: float = max(
            top * chernoff(self.counter.law, clients * norm / top**2, nats)
            for top, norm in set(zip(most.tolist(), squares.tolist(), strict=True))
        )
        return widest * self.counter.grid / clients + self.discretisation

    def describe(self) -> Mapping[str, str]:
        """The public parameters, for display data and annotations."""
        counter = self.counter
        return {
            "budget_of_each_client": str(self.budget),
            "message": f"{2 * self.cells} numbers, of two counters at half the budget each",
            "cells": str(self.cells),
            "mechanism": counter.mechanism.name,
            "noise": f"{type(counter.law).__name__} of scale {counter.law.scale * counter.grid:g}",
            "neighbouring_relation": str(counter.change),
        }


@dataclass(frozen=True)
class MedianLearner(LocalLearner):
    """Clients hold numbers x in [0, 1]; the loss is |x - w|, which a median minimises.

    Numbers outside [0, 1] are clipped; anything else counts as 1/2, a fixed public value.
    """

    def profiles(self, values: Values) -> IntArray:
        plain = isinstance(values, np.ndarray) and values.dtype.kind in "biuf" and values.ndim == 1
        numbers = values if plain else [_number(value) for value in values]
        xs = np.array(numbers, dtype=np.float64)
        xs = np.clip(np.where(np.isnan(xs), FALLBACK, xs), 0, 1)
        first = np.searchsorted(self.centres, xs, side="left")
        return np.asarray(np.arange(self.cells) >= first[:, None], dtype=np.int64)

    def problem(self, value: object) -> str | None:
        number = _number(value)
        if math.isnan(number):
            return "the value is not a number and counts as 1/2"
        return None if 0 <= number <= 1 else "the value lies outside [0, 1] and is clipped"

    def population_bound(self, clients: int, beta: float = 1 / 3) -> float:
        """As `error_bound`, against the mean loss of the law that clients are drawn from.

        Half of beta goes to the sample: by the inequality of Dvoretzky, Kiefer, Wolfowitz and
        Massart its distribution function, and so its loss, is within sqrt(ln(4/beta)/(2n)).
        """
        bound = self.error_bound(clients, beta / 2)
        return bound + math.sqrt(math.log(4 / beta) / (2 * clients))


@dataclass(frozen=True)
class ConvexLearner(LocalLearner):
    """Clients hold anything; `gradient` is the slope of their convex, 1-Lipschitz loss on [0, 1].

    Args:
      gradient: gives the slopes, a number or shape (T,), from what a client holds and the centres,
        shape (T,). Public and picklable. The guarantee does not rest on it: slopes are clipped to
        [-1, 1], made to increase, and rounded to 2^-11; a client for whom it raises, or gives
        anything but numbers, counts with the loss |1/2 - w|. What it prints, logs or warns of by
        itself is not hidden: have it do nothing of the kind.
    """

    gradient: Callable[[Any, FloatArray], Any] = field(kw_only=True)

    unit: ClassVar[float] = 2.0**-12

    def __post_init__(self) -> None:
        if not callable(self.gradient):
            raise TypeError(
                "gradient must be a function of a client's value and of points, got "
                f"{self.gradient!r}: give e.g. lambda x, points: np.clip(points - x, -1, 1)"
            )
        super().__post_init__()

    def profiles(self, values: Values) -> IntArray:
        return np.array([self._profile(value) for value in values]).reshape(-1, self.cells)

    def problem(self, value: object) -> str | None:
        slopes = self._slopes(value)
        if np.isnan(slopes).any():
            return "the slopes are not numbers, and the loss is taken as |1/2 - w|"
        if np.abs(slopes).max() > 1:
            return "the slopes lie outside [-1, 1] and are clipped"
        falls = (np.diff(slopes) < 0).any()
        return "the slopes decrease and are made to increase" if falls else None

    def _slopes(self, value: object) -> FloatArray:
        slopes = np.empty(self.cells)
        # A warning would show that there is such a value; NumPy's of floats are off for it, too.
        with np.errstate(all="ignore"):
            found = self.gradient(value, self.centres.copy())
            if not isinstance(found, np.ndarray) or found.dtype.kind not in "fiub":
                # One by one, as NumPy itself warns of masked and complex numbers.
                items = np.asarray(found, dtype=object)
                found = np.array([_number(x) for x in items.flat]).reshape(items.shape)
            slopes[:] = found
        return slopes

    def _profile(self, value: object) -> IntArray:
        slopes = np.full(self.cells, np.nan)
        try:
            slopes = self._slopes(value)
        except _ANYTHING:  # whatever it is, that it happened is private
            slopes[:] = np.nan
        if np.isnan(slopes).any():
            slopes = np.sign(self.centres - FALLBACK)
        shares = np.maximum.accumulate(np.clip(slopes, -1, 1) + 1) / 2
        return np.asarray(np.rint(shares / self.unit), dtype=np.int64)


def _number(value: Any) -> float:
    try:
        try:
            return float(value) if isinstance(value, Real | np.bool_ | Decimal) else math.nan
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    except _ANYTHING:  # whatever it is, that it happened is private
        return math.nan


def _centred(slopes: FloatArray) -> FloatArray:
    """Half the sum of the slopes before each border less that of those after it, (T + 1, ...)."""
    sums = np.cumsum(slopes, axis=0)
    before = np.concatenate([np.zeros_like(sums[:1]), sums])
    made: FloatArray = before - sums[-1] / 2
    return made


def merge(sums: Iterable[tuple[int, FloatArray]]) -> tuple[int, FloatArray]:
    """The clients and sums of messages of several parts."""
    parts = list(sums)
    return sum(n for n, _ in parts), np.sum([total for _, total in parts], axis=0)

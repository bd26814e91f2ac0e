"""A mechanism calibrated to a budget: what steps, releases, and knows its own error."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import cached_property, singledispatch
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import ArrayLike

from beam_dpcount.budget.budgets import Budget, PureDP, check_budget, noise_laws
from beam_dpcount.budget.costs import (
    ConcentratedCost,
    Cost,
    GaussianCost,
    PureCost,
    dp_event,
    pure_cost,
)
from beam_dpcount.checks import ParameterError, check_whole
from beam_dpcount.counters.change import Change, ItemsChange, Norms, TickChange, check_unit
from beam_dpcount.counters.lattice import Lattice
from beam_dpcount.errors import Error, NotANumberError
from beam_dpcount.mechanisms.base import FloatArray, IntArray, Mechanism, State
from beam_dpcount.mechanisms.rounded import round_up
from beam_dpcount.noise.entropy import Noise, SystemNoise
from beam_dpcount.noise.laws import DiscreteGaussian, DiscreteLaplace, Law, RoundedGaussian
from beam_dpcount.notebooks import described

if TYPE_CHECKING:
    from dp_accounting import DpEvent

_ANNOTATED = 1e-6  # the delta of the second guarantee in annotations
TAKES_GAUSSIAN = (
    "{mechanism} takes Gaussian noise, which no pure budget allows: use BridgedKAry or "
    "SmoothLaplace with {budget!r}, or give ApproxDP(epsilon, delta) or ZCDP(rho)"
)
ONE_STEP = (Change, TickChange, ItemsChange)  # one event changes one step, or a step of each key
AGE_OF_ONE = "is for one event that changes one step, but neighbours differ by {}"
TAKES_OTHER = (
    "{mechanism} takes Laplace noise, and all levels of a tree take Gaussian noise: leave "
    "mechanism out, or give SmoothBinary"
)
TAKES_LAPLACE = (
    "{mechanism} takes Laplace noise, which {budget!r} does not calibrate: give PureDP(epsilon) or "
    "ApproxDP(epsilon, delta)"
)


class UnsupportedBudgetError(Error, ValueError):
    """The mechanism's noise cannot satisfy this kind of budget."""


@dataclass(frozen=True)
class LatticeCounter(ABC):
    """What all counters share: inputs are put on a lattice, counted there, and scaled back."""

    mechanism: Any
    budget: Budget
    law: Law
    change: Change
    dimension: int | None
    unit: float

    @property
    @abstractmethod
    def horizon(self) -> int | None:
        """The most steps; None if unbounded."""

    @property
    def draws(self) -> Callable[[int], int] | None:
        """How many coordinates n steps draw; None if they are not all drawn in order."""
        return None

    @property
    @abstractmethod
    def counters(self) -> int:
        """How many plain ints a state begins with, the step count first."""

    @property
    def share(self) -> float:
        """How much of the noise's variance releases keep; below 1 where they are fitted."""
        return 1.0

    @property
    def fingerprint(self) -> str:
        """All parameters that a state depends on."""
        parameters = (self.law, self.change, self.dimension, self.unit)
        return f"({self.mechanism.fingerprint}, {repr(parameters)[1:]}"

    def __getstate__(self) -> dict[str, Any]:
        kept = {field.name: getattr(self, field.name) for field in fields(self)}  # no caches
        return {**kept, "fingerprint": self.fingerprint}

    def __setstate__(self, state: dict[str, object]) -> None:
        fingerprint = state.pop("fingerprint")
        self.__dict__.update(state)
        if self.fingerprint != fingerprint:  # the noise may be too little for these constants
            problem = "this counter was calibrated by another version of beam_dpcount"
            raise RuntimeError(f"{problem}: install the same where the pipeline is made and runs")

    @property
    def goes_on(self) -> bool:
        """Whether `steps_lattice` is as quick as `release_lattice`, so that blocks may be cut."""
        return False

    @abstractmethod
    def state_types(self, n: int) -> Sequence[str]:
        """As for a mechanism."""

    @abstractmethod
    def init(self) -> State:
        """The state before the first step."""

    @abstractmethod
    def step_lattice(self, state: State, x: object, noise: Noise) -> tuple[State, Any]:
        """`step` of a value that `quantise` has put on the lattice already."""

    def steps_lattice(
        self, state: State, xs: IntArray, noise: Noise
    ) -> tuple[State, Sequence[float]]:
        """As many steps as `step_lattice` takes them, of a counter of numbers."""
        values = []
        for x in xs.tolist():
            state, value = self.step_lattice(state, x, noise)
            values.append(value)
        return state, values

    @abstractmethod
    def release_lattice(self, xs: IntArray, noise: Noise) -> FloatArray:
        """`release` of values that `quantise` has put on the lattice already."""

    @abstractmethod
    def variance(self, t: int) -> float:
        """The exact variance of release t, t from 1, in squared units of the values."""

    @abstractmethod
    def stddevs(self, n: int) -> FloatArray:
        """The standard deviations of releases 1 .. n, shape (n,)."""

    def stddevs_between(self, first: int, last: int) -> list[float]:
        """Those of releases first .. last."""
        return [math.sqrt(self.variance(t)) for t in range(first, last + 1)]

    @abstractmethod
    def stddev_at(self, state: State) -> float:
        """The standard deviation of the release that led to `state`."""

    def describe(self) -> Mapping[str, str]:
        """The public parameters, for display data, annotations and reports."""
        return {
            "budget": str(self.budget),
            "mechanism": self.mechanism.name,
            "horizon": "none" if self.horizon is None else str(self.horizon),
            "noise": f"{type(self.law).__name__} of scale {self.law.scale * self.unit:g}",
            "neighbouring_relation": str(self.change),
        }

    def _repr_html_(self) -> str:
        return described(type(self).__name__, self.describe())

    @abstractmethod
    def costs(self) -> list[Cost]:
        """What all releases of one stream cost: parts, which compose."""

    def dp_event(self, zcdp: bool = False) -> DpEvent:
        """What all releases of one stream cost, for dp-accounting: see `costs.dp_event`."""
        return dp_event(self, zcdp)

    @cached_property
    def lattice(self) -> Lattice:
        """On which inputs are counted."""
        return Lattice(self.change.low, self.change.high, self.unit)

    def step(self, state: State, x: object, noise: Noise) -> tuple[State, Any]:
        """Take one step: a new state, and the private prefix sum (a float, or shape (dimension,)).

        Args:
          state: from `init` or from the step before; it is not changed.
          x: a number, or shape (dimension,).

        Raises:
          NotANumberError: x is not a number (the state is unchanged, the step not taken).
          HorizonError: all steps of the horizon were taken.
        """
        return self.step_lattice(state, self.quantise(x), noise)

    def release(self, xs: ArrayLike, noise: Noise | None = None) -> FloatArray:
        """All private prefix sums of a stream at once: what n steps under this noise would give.

        Each call is a release of its own: two calls over the same data cost the budget twice.

        Args:
          xs: shape (n,) or (n, dimension), n at most the horizon; the result has the same shape.
          noise: None (default) is the operating system's entropy, new at each call.

        Raises:
          NotANumberError: some entry is not a number.
          HorizonError: more steps than the horizon.
          ValueError: the shape is wrong.
        """
        if noise is None:
            noise = SystemNoise(self.law, self.dimension)
        return self.release_lattice(self.quantise_all(xs), noise)

    def scaled(self, value: Any) -> Any:
        """A lattice value in the values' units: a float, or an array of floats."""
        return value * self.unit if self.dimension else float(value * self.unit)

    def quantise(self, x: object) -> Any:
        """One input clipped to the bounds and rounded to the lattice, in multiples of the unit."""
        if self.dimension is not None:
            try:
                return self.quantise_all(np.asarray(x)[None])[0]
            except ValueError:
                raise NotANumberError(f"the value is not {self.dimension} numbers") from None
        return self.lattice.one(x)

    def quantise_nothing(self) -> Any:
        """What an empty step counts: 0, in every coordinate."""
        return 0 if self.dimension is None else np.zeros(self.dimension, dtype=np.int64)

    def quantise_all(self, xs: ArrayLike) -> IntArray:
        """A whole stream on the lattice, shape (n,) or (n, dimension)."""
        return self.lattice.all(xs, self.dimension)


@dataclass(frozen=True)
class Counter(LatticeCounter):
    """A calibrated counter. Frozen and picklable; made by `calibrate`, not by hand.

    Guarantee: the sequence of all values that `step` gives along one stream, or that one call of
      `release` gives, satisfies `budget` for neighbours that differ by `change` in one step, if
      the noise is system entropy and each state is stepped from at most once for releases that
      anyone sees. Public: the number of steps. Inputs are clipped to the bounds, then rounded to
      the lattice of `unit`, before anything else.
    """

    mechanism: Mechanism

    @property
    def draws(self) -> Callable[[int], int] | None:
        return None if self.mechanism.draws_early else self.mechanism.draws

    @property
    def goes_on(self) -> bool:
        return self.mechanism.goes_on

    @property
    def horizon(self) -> int:
        return self.mechanism.horizon

    @property
    def counters(self) -> int:
        return self.mechanism.counters

    def state_types(self, n: int) -> Sequence[str]:
        return self.mechanism.state_types(n)

    @property
    def l1_sensitivity(self) -> float:
        """Delta_1 that the noise was calibrated to, in the values' units."""
        return float(self.change.norms(self.mechanism, self.unit, self.dimension)[0]) * self.grid

    @property
    def l2_sensitivity(self) -> float:
        """Delta_2 that the noise was calibrated to, in the values' units."""
        squared = self.change.norms(self.mechanism, self.unit, self.dimension)[1]
        return math.sqrt(squared) * self.grid

    @cached_property
    def resolution(self) -> int:
        """How many steps of the noise's lattice make one unit."""
        change = self.change
        return self.mechanism.resolution(change.magnitude(self.unit), change.largest(self.unit))

    @cached_property
    def grid(self) -> float:
        """The step of the noise's lattice, in the values' units."""
        return self.unit / self.resolution

    @property
    def state_size(self) -> int:
        """The most numbers kept per key and coordinate, the step count included."""
        return self.mechanism.state_size

    @cached_property
    def noise_variance(self) -> float:
        """What a draw of weight 1 adds to the variance of a release, in squared units."""
        return self.law.variance * self.grid**2 * self.share

    def init(self) -> State:
        return self.mechanism.init(self.dimension)

    def step_units(self, state: State, x: Any, noise: Noise) -> tuple[State, Any]:
        """`step_lattice`, with the release in multiples of the unit."""
        if self.resolution == 1:
            return self.mechanism.step(state, x, noise)
        state, value = self.mechanism.step(state, x * self.resolution, noise)
        return state, value / self.resolution

    def release_units(self, xs: IntArray, noise: Noise) -> Any:
        """`release_lattice`, in multiples of the unit."""
        if self.resolution == 1:
            return self.mechanism.release(xs, noise)
        return self.mechanism.release(xs * self.resolution, noise) / self.resolution

    def step_lattice(self, state: State, x: Any, noise: Noise) -> tuple[State, Any]:
        # In one, as this is what each element waits for. The resolution is a power of two, so that
        # to multiply by unit / resolution rounds once, as to divide and then to multiply does.
        state, value = self.mechanism.step(state, x * self.resolution, noise)
        return state, value * self.grid if self.dimension else float(value * self.grid)

    def steps_lattice(
        self, state: State, xs: IntArray, noise: Noise
    ) -> tuple[State, Sequence[float]]:
        state, values = self.mechanism.steps(state, xs * self.resolution, noise)
        return state, (values * self.grid).tolist()

    def release_lattice(self, xs: IntArray, noise: Noise) -> FloatArray:
        return np.asarray(self.release_units(xs, noise) * self.unit, dtype=np.float64)

    def variance(self, t: int) -> float:
        if not 1 <= t <= self.mechanism.horizon:
            raise ValueError(f"t must be from 1 to the horizon {self.mechanism.horizon}, got {t}")
        return self.noise_variance * self.mechanism.row_norm2(t)

    def stddevs(self, n: int) -> FloatArray:
        return np.asarray(np.sqrt(self.noise_variance * self.mechanism.row_norms2(n)))

    def stddevs_between(self, first: int, last: int) -> list[float]:
        between = self.noise_variance * self.mechanism.row_norms2_between(first, last)
        stddevs: list[float] = np.sqrt(between).tolist()
        return stddevs

    def stddev_at(self, state: State) -> float:
        return math.sqrt(self.noise_variance * self.mechanism.state_row_norm2(state))

    def max_variance(self) -> float:
        """The largest variance of a release up to the horizon."""
        return self.noise_variance * self.mechanism.max_row_norm2()

    def mean_variance(self) -> float:
        """The mean variance of the releases 1 .. horizon."""
        return self.noise_variance * self.mechanism.mean_row_norm2()

    def epsilon_at(self, delta: float, *, age: int | None = None) -> float:
        """The epsilon that all releases together satisfy at this delta, whatever the budget says.

        With an `age`: the releases until so many steps after an event, for an event of any step of
        the first half of the horizon. It is less than all for those with few exponentials under
        Gaussian noise, such as Endless, and for one event that changes one step; and it grows to
        the epsilon of all. Of a person it holds for no age.

        Where a transform selects keys with it, its selection's delta comes on top: the releases are
        (epsilon_at(delta), delta + selection.delta)-DP.

        Laplace noise of scale b also satisfies Delta_2^2/(2 b^2)-zCDP, as a change of c_i in
        coordinate i costs c_i/b in pure DP. It implies Theorem 1.3 of *Count on Your Elders*, and
        numeric conversion makes it tighter.
        """
        cost = self.costs()[0] if age is None else self.aged_cost(age)
        return cost.epsilon_at(delta)

    def aged_cost(self, age: int) -> Cost:
        """What releases cost until an event has this age, as for `epsilon_at`."""
        check_whole("age", age + 1 if isinstance(age, int) else age)
        moved = isinstance(self.change, TickChange) and self.change.relation == "replace_one"
        if moved or type(self.change) not in ONE_STEP:  # moved: to an earlier tick, perhaps
            raise ParameterError("age", AGE_OF_ONE.format(self.change), "leave {age} out")
        return self.cost_of(self._aged_norms(age))

    def costs(self) -> list[Cost]:
        return [self.cost_of(self.change.norms(self.mechanism, self.unit, self.dimension))]

    def aged_part(self, age: int) -> Fraction:
        """The part of the rho of all releases that they cost until an event has this age."""
        self.aged_cost(age)  # or an error
        _, whole = self.change.norms(self.mechanism, self.unit, self.dimension)
        return self._aged_norms(age)[1] / whole

    def _aged_norms(self, age: int) -> Norms:
        """Those of the releases until an event has this age."""
        l1, l2_squared = self.change.norms(self.mechanism, self.unit, self.dimension)
        # As a part of the norm of whole columns; all of what rounding adds stays.
        most = self.change.magnitude(self.unit), self.change.largest(self.unit)
        column = math.sqrt(self.mechanism.l2_sensitivity_squared)
        slack = self.mechanism.slack(most[1] * self.resolution)[1]
        part = math.sqrt(self.mechanism.aged_norm2(age)) / column
        part += slack / (most[0] * self.resolution * column)
        return l1, l2_squared * Fraction(min(round_up(part), 1.0)) ** 2

    def cost_of(self, norms: Norms) -> Cost:
        """What all releases of one stream cost for a change of these norms."""
        l1, l2_squared = norms
        match self.law:
            case DiscreteGaussian(sigma2):
                return ConcentratedCost(l2_squared / (2 * sigma2))
            case RoundedGaussian(sigma2):
                return GaussianCost(l2_squared / sigma2)
            case DiscreteLaplace(scale):
                pure = pure_cost(l1 / scale)
                # Where noise is drawn early, inputs may follow noise already seen: pure DP only.
                if self.mechanism.draws_early:
                    return pure
                return PureCost(pure.epsilon, min(pure.rho, l2_squared / (2 * scale**2)))
        raise TypeError(f"noise of {self.law!r} has no event: use a law that calibrate chooses")

    def describe(self) -> Mapping[str, str]:
        also = self.epsilon_at(_ANNOTATED)
        return {
            "budget": str(self.budget),
            "also_satisfies": f"epsilon = {also:g}, delta = {_ANNOTATED:g}",
            "mechanism": self.mechanism.name,
            "released": str(self.mechanism.workload),
            "horizon": str(self.mechanism.horizon),
            "noise": f"{type(self.law).__name__} of scale {self.law.scale * self.grid:g}",
            "neighbouring_relation": str(self.change),
            "largest_stddev": f"{math.sqrt(self.max_variance()):g}",
        }


def check_change(change: object) -> None:
    """Raise TypeError for what is no Change."""
    if not isinstance(change, Change):
        raise TypeError(f"change must be a Change, e.g. Change(low=0, high=1), got {change!r}")


@overload
def calibrate(
    mechanism: Mechanism,
    budget: Budget,
    change: Change | None = None,
    dimension: int | None = None,
    unit: float = 1,
) -> Counter: ...


@overload
def calibrate(
    mechanism: object,
    budget: Budget,
    change: Change | None = None,
    dimension: int | None = None,
    unit: float = 1,
) -> Any: ...


def calibrate(
    mechanism: object,
    budget: Budget,
    change: Change | None = None,
    dimension: int | None = None,
    unit: float = 1,
) -> Any:
    """The counter that runs `mechanism` at exactly this budget.

    It is a `Counter`, or for `Unbounded` and `Sparse` one of their own.

    Args:
      mechanism: an instance, horizon declared.
      budget: for the whole stream of one key.
      change: what one event does to the stream; default: anything within [0, 1], at one step.
      dimension: None for a stream of numbers, d for a stream of vectors of shape (d,).
      unit: values are rounded to multiples of it before they are counted; 1 counts integers.

    Raises:
      ValueError, TypeError: an argument is outside its range, or the mechanism refuses the budget.

    Example:
      >>> import beam_dpcount as dp
      >>> counter = dp.calibrate(dp.mechanisms.BinaryTree(horizon=1000), dp.PureDP(1.0))
      >>> counter.law  # one event is in at most ten nodes of the tree
      DiscreteLaplace(parameter=Fraction(10, 1))
      >>> [round(counter.variance(t), 1) for t in (8, 7)]  # sums of one node, and of three
      [199.8, 599.5]
      >>> private = counter.release([1, 0, 1, 1])  # noisy 1, 1, 2, 3
    """
    budget = check_budget(budget)
    change = Change() if change is None else change
    check_change(change)
    if dimension is not None and (
        isinstance(dimension, bool) or not isinstance(dimension, int) or dimension < 1
    ):
        raise ValueError(f"dimension must be None or a whole number from 1, got {dimension!r}")
    return calibrated(mechanism, budget, change, dimension, check_unit(unit, change))


@singledispatch
def calibrated(
    mechanism: object, budget: Budget, change: Change, dimension: int | None, unit: float
) -> LatticeCounter:
    """`calibrate` for checked arguments; mechanisms that are not in ALL register their own."""
    raise TypeError(f"mechanism must be an instance such as BinaryTree(1000), got {mechanism!r}")


@calibrated.register
def _(
    mechanism: Mechanism, budget: Budget, change: Change, dimension: int | None, unit: float
) -> Counter:
    if mechanism.horizon * change.largest(unit) > 2**62:
        problem = "times the largest value exceeds 2^62 lattice units"
        raise ParameterError("horizon", problem, "choose a larger unit")
    l1, l2_squared = change.norms(mechanism, unit, dimension)
    allowed = mechanism.laws & change.laws
    if not allowed:
        raise UnsupportedBudgetError(TAKES_OTHER.format(mechanism=mechanism.name))
    laws = noise_laws(budget, l1, l2_squared, allowed)
    if not laws:
        problem = TAKES_GAUSSIAN if isinstance(budget, PureDP) else TAKES_LAPLACE
        raise UnsupportedBudgetError(problem.format(mechanism=mechanism.name, budget=budget))
    law = min(laws, key=lambda law: law.variance)
    largest = change.largest(unit)
    resolution = mechanism.resolution(change.magnitude(unit), largest)
    mechanism = mechanism.within(largest * resolution, math.sqrt(law.variance))
    return Counter(mechanism, budget, law, change, dimension, unit)

"""The contract of a continual-counting mechanism.

A mechanism factors the matrix A of prefix sums (A[t, s] = 1 for s <= t) as A = L R. It releases
L (R x + z). The encoder R maps the stream to coordinates. Each gets one noise z_i, drawn once,
when its row of R x is complete. The decoder L is post-processing. Privacy depends on R x + z only:
on the law of z and the largest column norms of R. Release t has variance Var(z_i) * ||L_t||^2.
Inputs and noise are integers; a real R x is rounded before noise is added (see rounded.py).
"""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import lru_cache
from inspect import isabstract
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from beam_dpcount.checks import ParameterError
from beam_dpcount.errors import Error, HorizonError
from beam_dpcount.mechanisms.workload import PREFIX_SUMS, Workload
from beam_dpcount.noise.entropy import Noise

# A flat tuple: `counters` plain ints (the first is t, the steps taken), then what is kept per
# coordinate: ints, floats or packed bytes, as `state_types` says, or arrays of shape (dimension,)
# of these for vector streams. Never changed in place.
State = tuple[Any, ...]
IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

MAX_HORIZON = 2**48
_DENSE = 4096  # the longest horizon whose decoder is held as a matrix


class UnsupportedHorizonError(Error, ValueError):
    """The horizon is longer than this mechanism's proofs, tables or memory reach."""


@dataclass(frozen=True)
class Mechanism(ABC):
    """One continual-counting mechanism for a declared horizon. Frozen; knows no budget.

    Args:
      horizon: the number T of steps that noise is calibrated for, from 1 to 2^48.

    Raises:
      ValueError, TypeError: an argument is outside its range, also of derived classes.
    """

    horizon: int

    counters: ClassVar[int] = 1
    longest: ClassVar[int] = MAX_HORIZON  # beyond it a mechanism can be named, but not used
    quick: ClassVar[int] = MAX_HORIZON  # beyond it calibration takes seconds: `choose` skips it
    # Whether R has no negative entries, so that no two of its columns point apart.
    is_nonnegative: ClassVar[bool] = True
    # Whether `steps` of many is as quick as `release`.
    goes_on: ClassVar[bool] = False
    # Whether it is for changes of several steps, and no good where only one changes.
    several_steps: ClassVar[bool] = False
    # Whether every release adds or subtracts whole draws, each with weight 1.
    unit_weights: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "horizon", check_horizon(self.horizon))

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}  # no caches

    @property
    def name(self) -> str:
        """What users call it: the name of its class."""
        return type(self).__name__

    @property
    def is_quick(self) -> bool:
        """Whether numbers as large as it was calibrated for are computed as quickly as small ones.

        It depends on constants of this version alone, so it is the same on all machines.
        """
        return True

    @property
    def workload(self) -> Workload:
        """What is released: prefix sums, but for mechanisms with momentum or decay."""
        return PREFIX_SUMS

    @property
    def fingerprint(self) -> str:
        """All that states of this mechanism depend on."""
        return repr(self)

    @property
    def laws(self) -> frozenset[str]:
        """The noise laws it can take: "laplace", "gaussian" or both."""
        return frozenset({"laplace", "gaussian"})

    @property
    def draws_early(self) -> bool:
        """Whether a noise may be drawn before its row of R x is complete (refused for replays)."""
        return False

    @abstractmethod
    def draws(self, n: int) -> int:
        """How many coordinates n steps draw."""

    @property
    @abstractmethod
    def l1_sensitivity(self) -> float:
        """Largest L1 norm of a column of R: what a change of 1 in one step can do to R x."""

    @property
    @abstractmethod
    def l2_sensitivity_squared(self) -> float:
        """Square of the largest L2 norm of a column of R."""

    def resolution(self, magnitude: int, largest: int | None = None) -> int:
        """What inputs are multiplied by, and releases divided by; 1 for integer encoders.

        Args:
          magnitude: the most that one event changes one input.
          largest: a bound on the inputs' absolute values; default: magnitude.

        Raises:
          UnsupportedHorizonError: the horizon is too long for the arithmetic.
        """
        return 1

    def within(self, largest: int, noise: float) -> Mechanism:
        """The mechanism that computes with inputs and noise of this size, and no larger ones.

        Args:
          largest: a bound on the inputs' absolute values, multiplied by the resolution.
          noise: the standard deviation of a draw.
        """
        return self

    def norms(self, magnitude: int, largest: int | None = None) -> tuple[Fraction, Fraction]:
        """The most that one event changes the noised vector: L1 norm, and L2 norm squared.

        Rounding is included. Arguments are those of `resolution`, multiplied by the resolution.
        """
        m = Fraction(magnitude)
        return m * Fraction(self.l1_sensitivity), m * m * Fraction(self.l2_sensitivity_squared)

    def slack(self, largest: int) -> tuple[float, float]:
        """What rounding alone adds to the L1 and L2 norms of any difference; 0 for integers."""
        return 0.0, 0.0

    def aged_norm2(self, age: int) -> float:
        """A bound on the squared norm of a column's first age + 1 rows, from the diagonal on.

        Of the columns of the first half of the horizon. The default is that of whole columns.
        """
        return self.l2_sensitivity_squared

    def lag_bounds(self, n: int) -> tuple[float, ...]:
        """Bounds g(0) .. g(n-1) on products of two columns of R: g(d) of those d or more apart.

        They never increase. The default is the largest squared norm of a column (Cauchy-Schwarz).
        """
        return (self.l2_sensitivity_squared,) * n

    def spaced_bounds(self, gap: int, n: int) -> tuple[float, ...]:
        """g(0), g(gap), ..., g((n-1) gap) of `lag_bounds`: override it where that is quicker."""
        return self.lag_bounds((n - 1) * gap + 1)[::gap]

    @property
    @abstractmethod
    def state_size(self) -> int:
        """The most numbers kept per key and coordinate, t counted."""

    def init(self, dimension: int | None = None) -> State:
        """The state before the first step."""
        return (0, zero(dimension))

    def state_types(self, n: int) -> Sequence[str]:
        """What each entry of a state of n entries is, in the codes of the module struct.

        "q" for an integer, "d" for a float; the last may be packed bytes, such as "100s".
        """
        return "q" * n

    @abstractmethod
    def step(self, state: State, x: Any, noise: Noise) -> tuple[State, Any]:
        """Take one step: a new state, and the private prefix sum (a number, or shape (dim,))."""

    def steps(self, state: State, xs: IntArray, noise: Noise) -> tuple[State, FloatArray]:
        """As many steps as `step` takes them: the state after them, and the releases, shape (n,).

        Of one stream of numbers, from any state on. Override it where that is quicker.
        """
        values = np.empty(len(xs))
        for i, x in enumerate(xs.tolist()):
            state, values[i] = self.step(state, x, noise)
        return state, values

    def after(self, n: int, noise: Noise, dimension: int | None = None) -> State:
        """The state after n empty steps, n from 0: as n times `step` gives it for an input of 0.

        For a key that is first seen late, whose counter must be as if it had run from the start:
        bit for bit the same state under the same noise, in one call. Coordinates are asked for in
        ascending order, each once, and only those that the state still depends on need be. Each of
        the `dimension` streams comes out as it would alone. Memory may grow with n * dimension.

        The default takes the steps. Where a state follows from few draws, or from sums of them,
        override it.

        Raises:
          HorizonError: n is beyond the horizon. Nothing is drawn then.
        """
        state, nothing = self.init(dimension), zero(dimension)
        for _ in range(self.check_steps(n)):
            state, _ = self.step(state, nothing, noise)
        return state

    @abstractmethod
    def release(self, xs: IntArray, noise: Noise) -> Any:
        """All prefix sums of `xs`, shape (n,) or (n, dim): the numbers that n steps would give."""

    @abstractmethod
    def encoder(self, n: int) -> FloatArray:
        """R for the first n steps, dense, shape (coordinates drawn by then, n)."""

    @abstractmethod
    def decoder(self, n: int) -> FloatArray:
        """L for the first n steps, dense, shape (n, coordinates drawn by then)."""

    @abstractmethod
    def row_norm2(self, t: int) -> float:
        """||L_t||^2: the variance of release t, t from 1, in units of the noise's variance."""

    @abstractmethod
    def row_norms2(self, n: int) -> FloatArray:
        """row_norm2 of 1 .. n, shape (n,)."""

    def row_norms2_between(self, first: int, last: int) -> FloatArray:
        """row_norm2 of first .. last; override it where `goes_on`."""
        return np.array([self.row_norm2(t) for t in range(first, last + 1)])

    @abstractmethod
    def max_row_norm2(self) -> float:
        """The largest row_norm2 over all steps up to the horizon."""

    @abstractmethod
    def mean_row_norm2(self) -> float:
        """The mean row_norm2 over all steps up to the horizon."""

    def state_row_norm2(self, state: State) -> float:
        """row_norm2 of the release that led to `state`."""
        return self.row_norm2(state[0])

    def products(self, s: IntArray, lag: int) -> FloatArray:
        """The products of rows s and s + lag of L, shape (n,), s from 1: covariances of releases.

        The default holds L as a matrix, and raises a ValueError for horizons above 4096.
        """
        if self.horizon > _DENSE:
            problem = f"the variance of differences is not known for {self.name}"
            limit = f"a horizon of {_DENSE}, got {self.horizon}"
            raise ValueError(f"{problem} beyond {limit}: use one of mechanisms.ALL")
        decoder = _decoder(self)
        return np.asarray(np.einsum("ij,ij->i", decoder[s - 1], decoder[s + lag - 1]))

    def weights(self, t: int | None) -> tuple[FloatArray, FloatArray] | None:
        """Entries of row t of L, and how often each occurs; None where the mechanism cannot say.

        For `half_width`, where they are not all 1 or -1 and noise is Laplace. t None asks for a row
        of norm `max_row_norm2`.
        """
        return None

    def for_objective(self, objective: str) -> Mechanism:
        """The mechanism that is best by "max" or "mean" of the variances, where they differ."""
        return self

    def for_charge(self, charge: Callable[[Mechanism], float], gap: int) -> Mechanism:
        """The one of its kind with the least charge, where it can be fitted to what changes.

        Args:
          charge: the error of a mechanism at a budget, up to a factor: it depends on the horizon
            and on what is protected, never on data.
          gap: by how many steps changes of one person are apart, at least.
        """
        return self

    def replay_safe(self) -> Mechanism:
        """The mechanism to take in its place where work may be replayed: one that draws late."""
        return self

    def cannot(self, pure: bool = False) -> tuple[str, ...]:
        """What it does not do, in words; `pure`: for whom it is chosen under a pure budget."""
        said = []
        if "laplace" not in self.laws:
            said.append("takes no pure budget")
        if "gaussian" not in self.laws and not pure:
            said.append(
                "takes no Gaussian noise, so that many releases cost more under delta or rho"
            )
        if self.draws_early:
            said.append("draws noise early: not for streaming input, or replays")
        if self.longest < MAX_HORIZON:
            said.append(f"takes at most {self.longest:,} steps")
        return tuple(said)

    def next_step(self, state: State) -> int:
        """The number of the step after `state`, or a HorizonError."""
        t: int = state[0] + 1
        if t > self.horizon:
            problem = f"step {t} is beyond the horizon of {self.horizon} steps"
            raise HorizonError(f"{problem}: declare a larger horizon")
        return t

    def check_steps(self, n: int) -> int:
        """n, or a HorizonError if it is beyond the horizon."""
        if n > self.horizon:
            problem = f"{n} steps do not fit the horizon of {self.horizon}"
            raise HorizonError(f"{problem}: declare a larger horizon")
        return n


def zero(dimension: int | None) -> Any:
    """A sum of nothing: an int, or shape (dimension,)."""
    return 0 if dimension is None else np.zeros(dimension, dtype=np.int64)


def owned(value: Any) -> Any:
    """One row of an array as a state keeps it: a Python number, or an array of its own."""
    return value.item() if np.ndim(value) == 0 else value.copy()


def is_mechanism_class(kind: Any) -> bool:
    """Whether it is a class of mechanisms, and not the abstract base of them."""
    return isinstance(kind, type) and issubclass(kind, Mechanism) and not isabstract(kind)


@lru_cache(maxsize=1)
def _decoder(mechanism: Mechanism) -> FloatArray:
    return mechanism.decoder(mechanism.horizon)


def check_horizon(horizon: Any) -> int:
    """`horizon` as an int, or an error that says what to pass."""
    remedy = "give the largest number of steps that any key will take, e.g. {horizon=}100_000"
    try:
        value = operator.index(horizon)
    except TypeError:
        example = remedy.replace("{horizon=}", "horizon=")
        raise TypeError(f"horizon must be a whole number, got {horizon!r}: {example}") from None
    if isinstance(horizon, bool) or not 1 <= value <= MAX_HORIZON:
        raise ParameterError("horizon", f"must be from 1 to 2^48, got {horizon!r}", remedy)
    return value


def check_share(share: object) -> None:
    """Raise an error unless `share` is a part of a budget."""
    if isinstance(share, bool) or not isinstance(share, int | float):
        raise TypeError(f"share must be a number between 0 and 1, got {share!r}")
    if not 0 < share < 1:
        raise ValueError(f"share must be between 0 and 1, got {share!r}: it splits the budget")

"""The choice of a mechanism: the one that a user names, or the one of least exact error."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from beam_dpcount import mechanisms
from beam_dpcount.budget.budgets import ZCDP, Budget, PureDP
from beam_dpcount.checks import ParameterError, check_flag, check_whole
from beam_dpcount.counters.active import AlternatingError
from beam_dpcount.counters.change import Change
from beam_dpcount.counters.counter import (
    Counter,
    UnsupportedBudgetError,
    calibrate,
    check_change,
)
from beam_dpcount.mechanisms.base import (
    Mechanism,
    UnsupportedHorizonError,
    check_horizon,
    is_mechanism_class,
)
from beam_dpcount.mechanisms.decayed_blt import DecayedBLT
from beam_dpcount.mechanisms.differences import LONG_INNERS, Differences
from beam_dpcount.mechanisms.profiled import Endless
from beam_dpcount.mechanisms.single_steps import SingleSteps
from beam_dpcount.mechanisms.sliding_blocks import SlidingBlocks
from beam_dpcount.mechanisms.sliding_blt import CombBLT, SlidingBLT
from beam_dpcount.mechanisms.sparse import Sparse
from beam_dpcount.mechanisms.unbounded import Unbounded
from beam_dpcount.noise.entropy import SystemNoise
from beam_dpcount.noise.laws import ScaleError
from beam_dpcount.notebooks import table

_REASONS: dict[type[Exception], str] = {
    AlternatingError: "changes of activity",
    UnsupportedBudgetError: "budget",
    UnsupportedHorizonError: "horizon",
    ScaleError: "scale of its noise",  # out of range for this one; others may need less noise
}
_COMPARED = 1 << 12  # steps up to which all mechanisms are compared for differences
_STEPS = 300  # of which the cost of one is measured
_LARGE = 1000  # numbers of state that no default takes
FOR_SEVERAL = "for several events of a person, some steps apart"
_HEADING = ("mechanism", "noise", "max stddev", "mean stddev", "state", "draws/step")
# Those that take more than a horizon, and how they are made.
_INSTANCES = {
    CombBLT: "CombBLT(horizon, window=100)",
    DecayedBLT: "DecayedBLT(horizon, decay=0.99)",
    Differences: "Differences(horizon, window=100, inner=SmoothLaplace(horizon))",
    SlidingBLT: "SlidingBLT(horizon, window=100)",
    SlidingBlocks: "SlidingBlocks(horizon, window=100)",
    Sparse: "Sparse(segment=100, segments=50)",
    Unbounded: "Unbounded(SmoothLaplace)",
}
PURE_NEEDS_HORIZON = (
    "a pure budget needs a horizon: give the largest number of steps that any key will take, or "
    "mechanism=mechanisms.Unbounded(mechanisms.SmoothLaplace), which takes none; on bounded input "
    "mechanisms.Unbounded(mechanisms.BridgedKAry) has less noise"
)


@dataclass(frozen=True)
class Row:
    """One mechanism in the table behind a choice."""

    counter: Counter
    max_stddev: float
    mean_stddev: float
    state_size: int
    draws_per_step: float

    @property
    def mechanism(self) -> Mechanism:
        return self.counter.mechanism


@dataclass(frozen=True)
class Choice:
    """The best mechanism for a horizon and a budget, and the table that shows it (`print` it)."""

    mechanism: Mechanism
    objective: str
    rows: tuple[Row, ...]
    not_listed: tuple[tuple[str, str], ...] = ()  # name, and why

    def explain(self) -> str:
        """The best and the next one in words: variance, state, the cost of a step, and limits.

        The cost is measured, here and now: CPU time of one of the first steps, noise included.
        """
        first, *others = self.rows[:2]
        lines = [_sentence(first)]
        for row in others:
            ours, theirs = (getattr(r, f"{self.objective}_stddev") ** 2 for r in (first, row))
            more = f"{theirs / ours - 1:.1%} more"
            more = "the same" if more == "0.0% more" else more
            lines.append(f"next, {more} variance: {_sentence(row)}")
        return "\n".join(lines)

    def __str__(self) -> str:
        lines = []
        for a, b, c, d, e, f in [_HEADING, *map(_cells, self.rows)]:
            lines.append(f"{a:<14}{b:<18}{c:>11}{d:>12}{e:>8}{f:>11}")
        if self.not_listed:
            lines += ["", self._missing()]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        title = f"{self.mechanism.name} has the least {self.objective} stddev"
        missing = self._missing() if self.not_listed else ""
        return table(title, map(_cells, self.rows), _HEADING, missing)

    def _missing(self) -> str:
        return "not listed: " + ", ".join(f"{n} ({why})" for n, why in self.not_listed)


def _cells(row: Row) -> tuple[str, ...]:
    """A row of the table, as `_HEADING` says."""
    law, draws = type(row.counter.law).__name__, f"{row.draws_per_step:.3g}"
    errors = f"{row.max_stddev:.4g}", f"{row.mean_stddev:.4g}"
    return row.mechanism.name, law, *errors, str(row.state_size), draws


def _sentence(row: Row) -> str:
    """What a mechanism is like."""
    counter = row.counter
    parts = [
        f"{row.mechanism.name}: largest variance {row.max_stddev**2:.4g}, "
        f"mean {row.mean_stddev**2:.4g}",
        f"{row.state_size:,} numbers a key and coordinate",
        f"{_step_seconds(counter) * 1e6:.2g} us a step",
        *row.mechanism.cannot(isinstance(counter.budget, PureDP)),
    ]
    return "; ".join(parts)


def _step_seconds(counter: Counter) -> float:
    """CPU time of one of the first steps, the least of three times a few hundred."""
    steps, best = min(_STEPS, counter.horizon), math.inf
    noise, nothing = SystemNoise(counter.law, counter.dimension), counter.quantise_nothing()
    for _ in range(3):
        state, begun = counter.init(), time.process_time()
        for _ in range(steps):
            state, _ = counter.step_lattice(state, nothing, noise)
        best = min(best, (time.process_time() - begun) / steps)
    return best


def choose(
    horizon: int,
    budget: Budget,
    objective: str = "max",
    max_state: int | None = None,
    replays: bool = False,
    change: Change | None = None,
    dimension: int | None = None,
    unit: float = 1,
) -> Choice:
    """The mechanism of least exact error for this horizon and budget.

    With it comes the table of all that take both, best first, but for Binned beyond 2^12 steps,
    where it is slow to calibrate.

    Args:
      horizon: number of steps.
      budget, change, dimension, unit: as for `calibrate`.
      objective: "max" compares the largest variance of a release, "mean" the mean.
      max_state: the most numbers that may be kept per key and coordinate; None: any.
      replays: whether steps may be replayed with other data from the same state. Then mechanisms
        that draw noise early take a form that does not (see `Mechanism.replay_safe`), or are
        left out.

    Raises:
      ValueError, TypeError: an argument is outside its range, or no mechanism fits.

    Example:
      >>> import beam_dpcount as dp
      >>> dp.choose(1000, dp.ZCDP(0.1)).mechanism
      ProfiledBLT(horizon=1000, buffers=None, objective='max')
      >>> small = dp.choose(1000, dp.ZCDP(0.1), max_state=10)
      >>> [(row.mechanism.name, round(row.max_stddev, 1)) for row in small.rows[:2]]
      [('BLT', 7.3), ('SmoothBinary', 14.1)]
    """
    if objective not in ("max", "mean"):
        raise ValueError(f'objective must be "max" or "mean", got {objective!r}')
    if horizon is None:
        raise TypeError(
            "horizon must be a whole number, got None: without one there is no largest error to "
            "compare. PrefixCount(budget) then takes mechanisms.Endless() under delta or rho, and "
            "pure budgets take mechanisms.Unbounded(mechanisms.SmoothLaplace); the variance of "
            "release t is calibrate(mechanism, budget).variance(t)"
        )
    horizon = check_horizon(horizon)
    check_flag("replays", replays)
    if max_state is not None:
        check_whole("max_state", max_state)
    if change is not None:
        check_change(change)
    rows: list[Row] = []
    missing: list[tuple[str, str]] = []
    scale_error: ScaleError | None = None
    for kind in mechanisms.ALL:
        if kind.quick < horizon <= kind.longest:
            missing.append((kind.__name__, "slow to calibrate"))
            continue
        if kind.several_steps and not _spacing(change):
            missing.append((kind.__name__, FOR_SEVERAL))
            continue
        made = _made(kind, horizon, replays)
        if type(made) is not kind:
            missing.append((kind.__name__, "draws early"))  # what replaces it has a row of its own
            continue
        try:
            aimed = _aimed(made, objective, change, dimension, unit)
            counter = calibrate(aimed, budget, change, dimension, unit)
        except tuple(_REASONS) as error:
            missing.append((kind.__name__, _REASONS[type(error)]))
            scale_error = error if isinstance(error, ScaleError) else scale_error
            continue
        largest, mean = math.sqrt(counter.max_variance()), math.sqrt(counter.mean_variance())
        draws = counter.mechanism.draws(horizon) / horizon
        rows.append(Row(counter, largest, mean, counter.state_size, draws))
    if not rows and scale_error is not None:
        raise scale_error
    by_error = sorted(rows, key=lambda r: r.max_stddev if objective == "max" else r.mean_stddev)
    fitting = [row for row in by_error if max_state is None or row.state_size <= max_state]
    if not fitting:
        least = min(row.state_size for row in rows)
        problem = f"is {max_state!r}, but the smallest state has {least} numbers"
        remedy = f"give at least {least}, or a shorter {{horizon}}"
        raise ParameterError("max_state", problem, remedy)
    dropped = [(row.mechanism.name, "state") for row in by_error if row not in fitting]
    return Choice(fitting[0].mechanism, objective, tuple(fitting), (*missing, *dropped))


def resolve(
    mechanism: Any,
    horizon: int | None,
    budget: Budget,
    change: Change | None = None,
    dimension: int | None = None,
    unit: float = 1,
    replays: bool = False,
) -> Any:
    """The mechanism that a user named: an instance, a class, a name, or None for the best.

    Without a horizon: Endless, or one that takes none.
    """
    if mechanism is None and horizon is None:
        if isinstance(budget, PureDP):
            raise ValueError(PURE_NEEDS_HORIZON)
        return Endless()
    if mechanism is Endless or mechanism == Endless.__name__:
        mechanism = Endless() if horizon is None else Endless
    if isinstance(mechanism, Endless) and horizon is None:
        return mechanism
    if mechanism is None:
        return _best(check_horizon(horizon), budget, change, dimension, unit, replays)
    if isinstance(mechanism, Unbounded | Sparse):
        if horizon is not None:
            raise ValueError(f"{mechanism.name} has no horizon, got {horizon=}: leave it out")
        return mechanism
    for kind, example in _INSTANCES.items():
        if mechanism is kind or mechanism == kind.__name__:
            remedy = f"give an instance, e.g. {example} of beam_dpcount.mechanisms"
            raise TypeError(f"mechanism {kind.__name__} is not made from a horizon alone: {remedy}")
    names = {kind.__name__: kind for kind in mechanisms.ALL}
    if isinstance(mechanism, str):
        if mechanism not in names:
            raise ValueError(f"unknown mechanism {mechanism!r}: choose one of {', '.join(names)}")
        mechanism = names[mechanism]
    if is_mechanism_class(mechanism):
        made = _made(mechanism, check_horizon(horizon), replays)
        return _aimed(made, "max", change, dimension, unit)
    if not isinstance(mechanism, Mechanism):
        one = f"one of {', '.join(names)} (an instance, the class, or its name)"
        raise TypeError(f"mechanism must be {one}, got {mechanism!r}")
    if mechanism.horizon != check_horizon(horizon):
        made_for = f"but the mechanism was made for {mechanism.horizon}"
        raise ValueError(f"horizon is {horizon}, {made_for}: give both the same")
    return mechanism


def resolve_last(
    horizon: int,
    window: int,
    budget: Budget,
    replays: bool = False,
    change: Change | None = None,
    dimension: int | None = None,
    unit: float = 1,
) -> Mechanism:
    """The mechanism of least exact error for sums over the last `window` steps.

    SlidingBLT or CombBLT, or under noise that a pure budget takes SlidingBlocks or differences of
    prefix sums.
    """
    if window == 1:
        return SingleSteps(horizon)
    made: list[Mechanism] = []
    if not isinstance(budget, PureDP):
        fading = SlidingBLT, CombBLT
        made += [kind(horizon, window) for kind in fading if window <= kind.widest]
    if not isinstance(budget, ZCDP):
        made.append(SlidingBlocks(horizon, window))
        kinds = mechanisms.ALL if horizon <= _COMPARED else LONG_INNERS
        plain = (_made(kind, horizon, replays) for kind in kinds if horizon <= kind.quick)
        made += [
            Differences(horizon, window, inner)
            for inner in plain
            if "laplace" in inner.laws and inner.state_size <= _LARGE
        ]
    best, least, problem = None, math.inf, None
    for mechanism in made:
        try:
            largest = _largest_stddev(mechanism, budget, change, dimension, unit)
        except tuple(_REASONS) as error:
            problem = error
            continue
        if largest < least:
            best, least = mechanism, largest
    if best is None:
        raise problem or ValueError(f"no mechanism takes {budget!r}")
    return best


def resolve_active(
    horizon: int,
    budget: Budget,
    replays: bool = False,
    change: Change | None = None,
    unit: float = 1,
) -> Mechanism:
    """The mechanism of least exact error for how many people are active.

    Fresh noise at every tick, or prefix sums of changes. Of these the columns are compared last.
    """
    kinds = (each for each in mechanisms.ALL if horizon <= each.quick and not each.several_steps)
    made = [_made(kind, horizon, replays) for kind in kinds]
    pure = isinstance(budget, PureDP)

    def product(mechanism: Mechanism) -> float:
        column = mechanism.l1_sensitivity**2 if pure else mechanism.l2_sensitivity_squared
        return float(column) * mechanism.max_row_norm2()

    best: Mechanism = SingleSteps(horizon)
    least = _largest_stddev(best, budget, change, None, unit)
    for mechanism in sorted((each for each in made if each.state_size <= _LARGE), key=product):
        try:
            largest = _largest_stddev(mechanism, budget, change, None, unit)
        except tuple(_REASONS):
            continue
        return mechanism if largest < least else best
    return best


def _best(
    horizon: int,
    budget: Budget,
    change: Change | None,
    dimension: int | None,
    unit: float,
    replays: bool,
) -> Mechanism:
    """The mechanism of `choose`, without what only its table shows."""
    best, least = None, math.inf
    for kind in mechanisms.ALL:
        if kind.quick < horizon <= kind.longest or (kind.several_steps and not _spacing(change)):
            continue
        made = _made(kind, horizon, replays)
        try:
            made = _aimed(made, "max", change, dimension, unit)
            if made.state_size > _LARGE:
                continue
            largest = _largest_stddev(made, budget, change, dimension, unit)
        except tuple(_REASONS):
            continue
        if largest < least:
            best, least = made, largest
    if best is None:  # the table says why
        return choose(horizon, budget, "max", _LARGE, replays, change, dimension, unit).mechanism
    return best


@lru_cache(maxsize=64)
def _largest_stddev(
    mechanism: Mechanism, budget: Budget, change: Change | None, dimension: int | None, unit: float
) -> float:
    """A number only: equal arguments may be written differently, and a counter shows them."""
    return math.sqrt(calibrate(mechanism, budget, change, dimension, unit).max_variance())


def _spacing(change: Change | None) -> int:
    return 0 if change is None else change.spacing


def _aimed(
    mechanism: Mechanism, objective: str, change: Change | None, dimension: int | None, unit: float
) -> Mechanism:
    """The best of its kind for this objective, and for a change of several steps.

    It depends on the horizon, the objective and the change alone: not on the budget, and not on
    data, of which nothing is known here.
    """
    mechanism = mechanism.for_objective(objective)
    if change is None or not change.spacing or not mechanism.several_steps:
        return mechanism
    return _fitted(mechanism, objective, change, dimension, unit)


@lru_cache(maxsize=64)
def _fitted(
    mechanism: Mechanism, objective: str, protected: Change, dimension: int | None, unit: float
) -> Mechanism:
    def charge(made: Mechanism) -> float:
        """The variance, at a budget that makes a draw's as large as the squared sensitivity."""
        most = protected.magnitude(unit), protected.largest(unit)
        squared = protected.norms(made, unit, dimension)[1] / made.resolution(*most) ** 2
        rows = made.max_row_norm2() if objective == "max" else made.mean_row_norm2()
        return float(squared) * rows

    return mechanism.for_charge(charge, protected.spacing)


def _made(kind: type[Mechanism], horizon: int, replays: bool) -> Mechanism:
    made = _plain(kind, horizon)
    return made.replay_safe() if replays else made


@lru_cache(maxsize=32)
def _plain(kind: type[Mechanism], horizon: int) -> Mechanism:
    """One instance for all, with the tables that it made."""
    return kind(horizon)

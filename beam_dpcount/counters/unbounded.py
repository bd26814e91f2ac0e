"""The counter of `Unbounded`: a calibrated base for every epoch, and a law for the totals."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from beam_dpcount.budget.budgets import ApproxDP, Budget, PureDP
from beam_dpcount.budget.costs import Cost, of_budget
from beam_dpcount.counters.change import Change
from beam_dpcount.counters.counter import (
    Counter,
    LatticeCounter,
    UnsupportedBudgetError,
    calibrate,
    calibrated,
)
from beam_dpcount.errors import HorizonError
from beam_dpcount.mechanisms.base import MAX_HORIZON, FloatArray, IntArray, State
from beam_dpcount.mechanisms.binary import BinaryTree
from beam_dpcount.mechanisms.unbounded import Unbounded
from beam_dpcount.noise.entropy import Noise
from beam_dpcount.noise.laws import Law


@dataclass(frozen=True)
class UnboundedCounter(LatticeCounter):
    """A counter without a horizon. Frozen and picklable; made by `calibrate`, not by hand.

    Guarantee: as for `Counter`, for the whole stream however long it gets: every item is charged
      by one epoch's base (`base_budget`) and one total (`total_budget`), together `budget`.
    """

    mechanism: Unbounded
    base_budget: Budget
    total_budget: Budget
    epochs: int

    @property
    def horizon(self) -> int | None:
        """None, or the last step that the base is long enough for."""
        return None if self.epochs == MAX_HORIZON.bit_length() else (1 << self.epochs) - 1

    @cached_property
    def counters(self) -> int:
        # t, the coordinates drawn before this epoch and by now, and the base's own.
        return 3 + self.mechanism.of_epoch(0).counters

    def state_types(self, n: int) -> Sequence[str]:
        c, types = self.counters - 3, self.mechanism.of_epoch(0).state_types(n - 5)
        return [*"qqq", *types[:c], *"qq", *types[c:]]

    @property
    def fingerprint(self) -> str:
        epochs = range(MAX_HORIZON.bit_length())
        bases = ", ".join(self.mechanism.of_epoch(i).fingerprint for i in epochs)
        rest = repr((self.mechanism.share, self.base_budget, self.total_budget))[1:]
        laws = repr((self.law, self.change, self.dimension, self.unit))[1:]
        return f"(([{bases}], {rest}, {laws}"

    def of_epoch(self, i: int) -> Counter:
        """The calibrated base of epoch i."""
        if i not in self._bases:
            base = self.mechanism.of_epoch(i)
            self._bases[i] = calibrate(base, self.base_budget, *self._kind)
        return self._bases[i]

    @property
    def _kind(self) -> tuple[Change, int | None, float]:
        return self.change, self.dimension, self.unit

    @cached_property
    def _bases(self) -> dict[int, Counter]:
        return {}

    def state_size(self, t: int) -> int:
        """The most numbers kept per key and coordinate up to step t, the step count included."""
        epochs = min((t + 1).bit_length(), self.epochs)
        return 5 + max(self.of_epoch(i).state_size for i in range(epochs))

    def init(self) -> State:
        base, c = self.of_epoch(0).init(), self.of_epoch(0).counters
        nothing = self.quantise_nothing()
        return (0, 0, 0, *base[:c], nothing, nothing, *base[c:])

    def step_lattice(self, state: State, x: Any, noise: Noise) -> tuple[State, Any]:
        t, c = state[0] + 1, self.counters
        before, drawn, closed, epoch_sum = state[1], state[2], state[c], state[c + 1] + x
        if self.horizon is not None and t > self.horizon:
            problem = f"step {t} is beyond the {self.horizon} steps of the base"
            raise HorizonError(f"{problem}: use one of any horizon, such as SmoothBinary")
        i, place = Unbounded.place(t)
        counter = self.of_epoch(i)
        part = Part(noise.for_law(counter.law), before)
        base, value = counter.step_units((*state[3:c], *state[c + 2 :]), x, part)
        drawn, value = drawn + part.drawn, closed + value
        if place == 1 << i:
            drawn += 1
            closed = closed + epoch_sum + noise.for_law(self.law).one(drawn)
            following = min(i + 1, self.epochs - 1)
            before, epoch_sum, base = drawn, x * 0, self.of_epoch(following).init()
        heads = c - 3
        state = (t, before, drawn, *base[:heads], closed, epoch_sum, *base[heads:])
        return state, self.scaled(value)

    def release_lattice(self, xs: IntArray, noise: Noise) -> FloatArray:
        if self.horizon is not None and len(xs) > self.horizon:
            raise HorizonError(f"{len(xs)} steps do not fit the {self.horizon} of the base")
        values = np.zeros(xs.shape)
        closed, drawn = self.quantise_nothing(), 0
        for i in range(len(xs).bit_length()):
            first, end = (1 << i) - 1, (2 << i) - 1
            counter, epoch = self.of_epoch(i), xs[first:end]
            part = Part(noise.for_law(counter.law), drawn)
            values[first:end] = closed + counter.release_units(epoch, part)
            drawn += part.drawn
            if len(xs) >= end:
                drawn += 1
                closed = closed + epoch.sum(axis=0) + noise.for_law(self.law).one(drawn)
        return np.asarray(values * self.unit)

    def variance(self, t: int) -> float:
        if t < 1:
            raise ValueError(f"t must be at least 1, got {t}")
        i, place = Unbounded.place(t)
        return self.share * (i * self._total_variance + self.of_epoch(i).variance(place))

    @property
    def _total_variance(self) -> float:
        return self.law.variance * self.unit**2

    def stddevs(self, n: int) -> FloatArray:
        parts = [np.zeros(0)]
        for i in range(n.bit_length()):
            length = min(1 << i, n + 1 - (1 << i))
            base = self.of_epoch(i).stddevs(length)
            parts.append(np.sqrt(self.share * (base**2 + i * self._total_variance)))
        return np.concatenate(parts)

    def stddev_at(self, state: State) -> float:
        return math.sqrt(self.variance(state[0]))

    def costs(self) -> list[Cost]:
        # An item lies in one epoch, and its base meets its budget.
        budget = self.base_budget
        if isinstance(budget, ApproxDP):
            bases = map(self.mechanism.of_epoch, range(self.mechanism.epochs))
            if any(base.laws != {"laplace"} for base in bases):
                problem = "has bases of several kinds of noise, which no event describes"
                remedy = "use a base of one kind, or a ZCDP or PureDP budget"
                raise TypeError(f"{self.mechanism.name} {problem}: {remedy}")
            budget = PureDP(budget.epsilon)  # what Laplace noise keeps of it, without the delta
        # And once in one total: a coordinate like that of a tree of one item.
        total = Counter(BinaryTree(1), self.total_budget, self.law, *self._kind)
        return [of_budget(budget), *total.costs()]

    def describe(self) -> Mapping[str, str]:
        described = super().describe()
        return {**described, "noise": f"totals: {described['noise']}"}


class Part:
    """The coordinates of a stream that follow the first `before`; counts those drawn."""

    def __init__(self, noise: Noise, before: int) -> None:
        self._noise, self._before, self.drawn = noise, before, 0

    def draw(self, first: int, n: int) -> Any:
        self.drawn += n
        return self._noise.draw(self._before + first, n)

    def one(self, coordinate: int) -> Any:
        self.drawn += 1
        return self._noise.one(self._before + coordinate)

    def for_law(self, law: Law) -> Noise:
        return Part(self._noise.for_law(law), self._before)


@calibrated.register
def _(
    mechanism: Unbounded, budget: Budget, change: Change, dimension: int | None, unit: float
) -> UnboundedCounter:
    whole: Budget = budget
    if isinstance(budget, ApproxDP):  # zCDP composes more tightly, but Laplace noise takes none
        with contextlib.suppress(UnsupportedBudgetError):
            calibrate(mechanism.of_epoch(0), budget.to_zcdp(), change, dimension, unit)
            whole = budget.to_zcdp()
    base, total = whole.split([mechanism.share, 1 - mechanism.share])
    # A total is one coordinate in which an item lies once: a tree of one item.
    law = calibrate(BinaryTree(1), total, change, dimension, unit).law
    calibrate(mechanism.of_epoch(0), base, change, dimension, unit)
    # Noise and digits grow with an epoch's length: what the last one bears, the others do.
    epochs = mechanism.epochs
    while epochs > 1:
        try:
            calibrate(mechanism.of_epoch(epochs - 1), base, change, dimension, unit)
            break
        except ValueError:  # ScaleError, UnsupportedHorizonError, or sums beyond 64 bits
            epochs -= 1
    return UnboundedCounter(mechanism, budget, law, change, dimension, unit, base, total, epochs)

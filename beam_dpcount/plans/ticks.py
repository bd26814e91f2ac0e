"""What a TickNumbers counts: its clock, its change and its counter, before anything runs."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, ClassVar, Self

from beam_dpcount.budget.budgets import warn_if_weak
from beam_dpcount.budget.shares import Share
from beam_dpcount.checks import ParameterError, check_choice, check_whole
from beam_dpcount.counters.change import TickChange, check_bounds, check_unit
from beam_dpcount.counters.choose import resolve_last
from beam_dpcount.counters.clip import ample, least_most
from beam_dpcount.counters.clock import (
    LATE,
    Clock,
    Each,
    Last,
    Restart,
    check_keys,
    clock_of,
    countable,
    until_of,
)
from beam_dpcount.counters.counter import Counter
from beam_dpcount.counters.grid import Grid
from beam_dpcount.counters.moments import instant
from beam_dpcount.counters.people import Bound, Users
from beam_dpcount.counters.period_costs import PeriodCosts
from beam_dpcount.counters.periods import Periods, periods_of
from beam_dpcount.counters.selection import Selection, SelectKeys, selection_of
from beam_dpcount.counters.total import ALL, Total
from beam_dpcount.counters.users import UserChange
from beam_dpcount.mechanisms import Mechanism, SlidingBLT, Sparse, Unbounded
from beam_dpcount.mechanisms.base import FloatArray, IntArray
from beam_dpcount.mechanisms.single_steps import SingleSteps
from beam_dpcount.noise.entropy import Entropy
from beam_dpcount.plans.counting import CountingPlan, describe_people, refuse_early_draws
from beam_dpcount.plans.inside import Inside
from beam_dpcount.plans.losses import epsilon_of, together_anywhere
from beam_dpcount.states.all_shards import ShardPlan
from beam_dpcount.states.all_ticks import TickPlan, shards_of
from beam_dpcount.statistics.numbers import Numbers

View = Clock | Each | Last | Restart
POLICIES = ("drop", "raise")
_MANY_TICKS = 1 << 16  # as for `least_most`
NEEDS_EVENTS = (
    "is needed: only people at clock.last(n) and clock.each() go without",
    "give e.g. {events=}5",
)


@dataclass(eq=False, repr=False)
class TickNumbersPlan(CountingPlan):
    """The arguments of `TickNumbers`, and what follows from them alone."""

    tick: Any = None
    start: Any = None
    stop: Any = None
    _: KW_ONLY
    keys: Sequence[str] | SelectKeys | Total
    horizon: int | None = None
    bounds: tuple[float, float] = (0, 1)
    unit: float = 1
    relation: str = "add_remove"
    max_items: int = 1
    max_per_tick: int | None = None
    late: str | None = None
    on_unknown: str = "drop"
    other: str | None = None
    until: Any = None

    counter: Counter = field(init=False)
    selection: Selection | None = field(init=False)
    inside: Inside = Inside()
    view: View | None = None

    _needs_events: ClassVar[bool] = True
    _selection_kind: ClassVar[type[Selection]] = Selection
    _on_reject: ClassVar[tuple[str, ...]] = POLICIES
    _counts_numbers = True
    _at_clock = True

    def _set_up(self) -> None:
        self._late = self._late_events()
        check_choice("on_unknown", self.on_unknown, POLICIES)
        if self.users is not None and self.users.events is None and self._needs_events:
            raise ParameterError("events", *NEEDS_EVENTS)
        self._whole, self._clock = self._grids()
        self._periods = self._periods_of(self.users)
        known = self.inside.present if self.until is None else None
        self._until = until_of(self.until) if known is None else known
        self._streams = self.path == "streaming"
        self._path_known = self.path != "auto"
        self._check_until(self._streams)
        self._select = self.keys if isinstance(self.keys, SelectKeys) else None
        self._is_total = isinstance(self.keys, Total)
        self._listed: tuple[str, ...] = ()
        if self._select is not None:
            self._check_unlisted()
            self._whole_budget = self._budget
            self._budget, self._keys_delta = self._select.part_of(self._budget)
            if not isinstance(self.budget, Share):
                warn_if_weak(self._whole_budget, self._keys_delta)
        else:
            self.keys = self._listed = check_keys(self.keys)
            if self._is_total and self.other is None:
                self.other = ALL  # of pairs that reach it with other keys
        if self.other is not None and self.other not in self._listed:
            problem = f"must be one of keys, got {self.other!r}"
            raise ParameterError("other", problem, "add it to keys, or leave {other} out")
        change = self._one_event()
        most = self.max_per_tick
        if most is None:
            magnitude = change.largest(self._unit) // change.most
            many = _MANY_TICKS if self._last is None else SlidingBLT.longest
            most = least_most(magnitude, self._clock.steps, many)
        most = check_whole("max_per_tick", most)
        self._change = replace(change, most=most)
        self._check_mechanism()
        self._counters = self._at(self._clock, False, True)
        self.counter = self._counters[self.path == "streaming"]
        self.selection = self._selecting(self.counter)
        self._used = self._clock

    def _grids(self) -> tuple[Grid, Grid]:
        """The clock, and the same in the windows in which it starts anew."""
        if self.view is not None:
            return self.view.clock.grid, self.view.grid
        whole = clock_of(self.tick, self.start, self.stop, self.horizon)
        return whole, whole

    @property
    def _restart(self) -> int | None:
        """After how many ticks the count starts anew; None: never."""
        return self.view.ticks if isinstance(self.view, Restart) else None

    @property
    def _last(self) -> int | None:
        """Of how many ticks releases are; None: of all so far."""
        return (
            self.view.ticks if isinstance(self.view, Last) else isinstance(self.view, Each) or None
        )

    def _late_events(self) -> str:
        """What becomes of late events: as given, or dropped where the count needs it."""
        if self.late is not None:
            return check_choice("late", self.late, LATE)
        apart = self.users is not None and self.users.gap is not None
        return "drop" if apart else "fold"

    def _sentence_clock(self) -> Clock:
        """The clock as a sentence has it."""
        if self.view is not None:
            return self.view.clock
        return Clock(self.tick, self.start, self.horizon, self.stop)

    def _periods_of(self, users: Users | None) -> Periods | None:
        """The periods in each of which a bound holds; None: it holds over the whole stream."""
        if users is None or users.per is None:
            return None
        return periods_of(self._sentence_clock(), users.per, users.late_micros)

    @property
    def _restarts(self) -> Grid | None:
        """The clock in the windows in which it starts anew, if it does."""
        return None if self._restart is None else self._clock

    @property
    def _dimension(self) -> int | None:
        """How many numbers a vector has; None: single numbers are counted."""
        return None

    @property
    def is_number(self) -> bool:
        """Whether single numbers are counted, and no vectors."""
        return self._dimension is None

    def default_label(self) -> str:
        """As of the TickCount that it counts for: noise and the names of steps go by it."""
        return "TickCount"

    @property
    def clock(self) -> Grid:
        """The public grid of ticks."""
        return self._whole

    @property
    def countable(self) -> str:
        """How much of a key counts, in a tick and a second, in words."""
        change: Any = self.counter.change
        return countable(change.most, self._clock.tick)

    def _check_until(self, streaming: bool) -> None:
        if streaming and self.until is not None:
            problem = "is for bounded input: in a stream the watermark says which ticks have ended"
            raise ParameterError("until", problem, "leave {until} out")

    def _until_on(self, streaming: bool, clock: Grid) -> int | None:
        """By when ticks must have ended to be released; None: the watermark decides."""
        # The end of a tick: what workers get does not tell when the transform was made.
        return None if streaming else clock.last_end(self._until)

    @property
    def ticks_released(self) -> int:
        """How many of the clock's ticks are released, on bounded input."""
        return self._used.all_ended(self._until_on(self._streams, self._used))

    @property
    def ticks_left(self) -> int:
        """How many ticks are not released because they have not ended."""
        return self._used.ticks - self.ticks_released

    @property
    def ticks_open(self) -> int:
        """How many ticks had not ended when the transform was made, or by `until`."""
        return self._used.ticks - self._used.all_ended(self._until)

    @property
    def cutoff(self) -> str:
        """`until`; by default, the end of the last tick that has ended."""
        if self.until is not None:
            return instant(self._until)
        return instant(self._used.last_end(self._until))

    def _one_event(self) -> TickChange:
        """What one event changes, from what is counted of it."""
        low, high = check_bounds(self.bounds)
        change = TickChange(low, high, relation=self.relation, max_items=self.max_items)
        self._unit = check_unit(self.unit, change)
        self._numbers = Numbers(low, high, self._unit)
        return change

    def _check_unlisted(self) -> None:
        """Refuse what means something for keys that are listed only."""
        for name, plain in (("on_unknown", "drop"), ("other", None)):
            if getattr(self, name) != plain:
                raise ValueError(f"{name} is for keys that are listed: leave it out of SelectKeys")

    def _check_mechanism(self) -> None:
        mechanism = self.mechanism
        if isinstance(mechanism, Mechanism) and mechanism.horizon != self._clock.steps:
            raise ValueError(
                f"the mechanism was made for {mechanism.horizon} steps, but the clock has "
                f"{self._clock.steps} ticks: give the class or its name, or make it with "
                f"horizon={self._clock.steps}"
            )
        if isinstance(mechanism, Unbounded | Sparse):
            raise ValueError(
                f"{mechanism.name} counts elements without a horizon, and a clock has one: give "
                "one of mechanisms.ALL, or leave mechanism out"
            )

    def _at(self, clock: Grid, *ways: bool) -> dict[bool, Counter]:
        mechanism: Any = self.mechanism
        if isinstance(mechanism, Mechanism):
            mechanism = replace(mechanism, horizon=clock.steps)
        change = self._change if self.users is None else self._of_person(self.users, clock)
        how: dict[str, Any] = {"change": change, "dimension": self._dimension, "unit": self._unit}
        counters = self._calibrated(ways, mechanism, clock.steps, **how)
        return ample(counters) if self.max_per_tick is None else counters

    def _chosen(self, mechanism: Any, horizon: int | None, **how: Any) -> Any:
        if isinstance(self.view, Each):
            return SingleSteps(horizon or 1)
        if isinstance(self.view, Last):
            return resolve_last(horizon or 1, self.view.ticks, self._budget, **how)
        return super()._chosen(mechanism, horizon, **how)

    def _selecting(self, counter: Counter) -> Selection | None:
        """When keys that nobody listed are shown."""
        if self._select is None:
            return None
        how = self._whole_budget, counter, self._keys_delta
        return selection_of(self._select, *how, self._selection_kind)

    def _of_person(self, users: Users, clock: Grid) -> UserChange:
        """What all events of one person change that count."""
        one, bound, windows = self._change, users.bound(), len(clock.origins())
        keys, restarts, periods = bound.keys, 1, self._periods_of(users)
        if periods is not None and windows > 1:
            windows, _ = periods.restarts(clock)
        if self._restart is not None:  # each window of a key is another key to the bound
            known, windows, restarts = windows * len(self._listed), 1, windows
        else:
            known = len(self._listed)
        if self._listed:
            keys = min(keys, known)
        return UserChange(
            *(one.low, one.high, one.relation),
            most=one.most,
            events=bound.events,
            keys=keys,
            per_key=bound.per_key,
            gap=bound.gap // clock.tick,
            windows=windows,
            asserted=users.asserted,
            restarts=restarts,
            periods=periods,
        )

    @property
    def period_costs(self) -> PeriodCosts | None:
        """What several periods of one person cost; None: it is not periods that are protected."""
        return self._losses(self.counter)

    def _losses(self, counter: Counter) -> PeriodCosts | None:
        change = counter.change
        if not isinstance(change, UserChange) or change.periods is None:
            return None
        counts = None if self._used.window is None else self._used
        later = self._select is not None and self._select.at_least > 1
        moves = later or (self._streams and self._late == "fold")
        return PeriodCosts(counter, change, change.periods, counts, moves, self.selection)

    def epsilon_at(self, delta: float | None = None, *, periods: int | None = None) -> float:
        """As for TickCount."""
        return epsilon_of([self], delta, periods)

    def on_path(self, streaming: bool) -> Self:
        """A copy that counts on the streaming path, or on the other."""
        other, counter = copy(self), self._counters[streaming]
        other._streams, other._path_known = streaming, True
        for name, value in (("counter", counter), ("selection", self._selecting(counter))):
            object.__setattr__(other, name, value)  # to others they are fixed
        return other

    def within(self, inside: Inside) -> Self:
        """A copy that knows this of the transform around it."""
        other = copy(self)
        object.__setattr__(other, "inside", inside)  # to others it is fixed
        return other

    def reading(self, how: Any, time: tuple[str, ...]) -> Self:
        """A copy that counts bounded input whose events are read so, and their time from these."""
        inside = replace(self.inside, fingerprint=how, time_columns=time)
        return self.on_path(False).within(inside)

    @property
    def _time_columns(self) -> tuple[str, ...]:
        return self.inside.time_columns

    @property
    def bounds_people(self) -> bool:
        return super().bounds_people and self.inside.bounds

    def _fingerprint(self, bound: Bound | None) -> Any:
        """What else decides which events count, for replayable noise.

        Args:
          bound: what is bounded here; None: nothing.
        """
        inside = self.inside
        known = self._decides()
        if inside.bound_before is not None:
            known = known, inside.bound_before
        if self._listed and (self.other is not None or self.users is not None):
            # Which other keys are listed decides what counts under a key.
            known = known, self.other, self._listed
        if self._periods is not None:
            known = known, repr(self._periods.grid)
            if self._periods.lateness:  # decides in a stream
                known = known, self._periods.lateness
        return known if bound is None else (known, repr(bound), self._restart)

    def _decides(self) -> Any:
        """What decides which of an event's contents count."""
        return self.inside.fingerprint

    def lies_in_open_tick(self, micros: int) -> bool:
        """Whether a time lies in a tick that has not ended, and is not released for that reason."""
        until = self._until_on(self._streams, self._used)
        return until is not None and until <= micros < self._clock.stop

    def _describe(self) -> dict[str, str]:
        per = "all releases of all keys"
        keys = {"keys": str(len(self._listed))}
        if self._streams:
            keys["shards"] = str(shards_of(len(self._listed), self.counter.dimension or 1))
        if self._select is not None and self.selection is not None:
            both = f"{self._whole_budget}"
            if self._select.delta is not None and self._whole_budget == self._budget:
                both += ", but for keys_delta"
            keys = {"budget": both, "keys": "selected", "shards": str(self._select.shards)}
            keys |= self.selection.describe()
        counter = dict(self.counter.describe())
        change: Any = self.counter.change
        if self._select is not None:
            del counter["also_satisfies"]  # without what keys take
        return {
            **counter,
            **self._used.describe(),
            **self._describe_last(),
            **keys,
            "ticks_ended": f"{self._used.all_ended(self._until):,} of {self._used.ticks:,}",
            **({} if self.path == "streaming" else {"until": self.cutoff}),
            "late": self._late,
            "entropy": repr(self._entropy),
            "max_per_tick": str(change.most),
            "counts": self.countable,
            **self._describe_people(),
            "budget_covers": per
            if self._used.window is None or self.users
            else f"{per} in one window",
            **self._account,
        }

    def _describe_people(self) -> dict[str, str]:
        """Whom it protects, and what several periods of one person cost."""
        said = describe_people(self.users, self._entropy.is_replayable, self.path)
        if self._periods is None:
            return said
        said |= {"periods": self._periods.describe(), "together": together_anywhere([self])}
        return said | ({"closing": self._periods.closing} if "people_shards" in said else {})

    def _describe_last(self) -> dict[str, str]:
        """What sums over the last ticks are of."""
        if (last := self._last) is None:
            return {}
        if self.users is None:
            return {"counted": "events"}
        capped = "capped contributions"
        if self.users.micros >= last * self._clock.tick:
            capped += ": of a person at most one in a sum"
        return {"counted": f"{capped}, not distinct people"}

    def how(self, counter: Counter, entropy: Entropy, bound: Bound | None) -> dict[str, Any]:
        """What a plan of workers takes beside counter, clock and keys; `bound` as above."""
        return {
            "cap": counter.change.largest(self._unit),
            "fold": self._late == "fold",
            "entropy": entropy,
            "counted": self._fingerprint(bound),
            "names": self.inside.names,
            "numbered": self.inside.numbered,
        }

    def on_bounded_input(self, label: str) -> TickPlan | ShardPlan:
        """What counts all ticks of all keys at once, in the global window.

        Args:
          label: of the transform, by which noise goes.
        """
        counter, clock = self._counters[False], self._clock
        if self._entropy.is_replayable:
            refuse_early_draws(counter.mechanism, replayable=True)
        how = self.how(counter, self._entropy.named(label), self.bound)
        how["until"] = self._until_on(False, clock)
        selection = self._selecting(counter)
        if selection is not None:
            return self._shard_plan_of(selection, clock, **how)
        return self._plan_of(counter, clock, self._listed, **how)

    @property
    def _shards(self) -> int:
        """Over how many shards keys that nobody listed are spread."""
        return 1 if self._select is None else self._select.shards

    def _shard_plan_of(self, selection: Selection, clock: Grid, **how: Any) -> ShardPlan:
        """The same of keys that nobody listed."""
        return ShardPlan(selection, clock, **{"shards": self._shards, **how})

    def _plan_of(self, counter: Any, *args: Any, **how: Any) -> TickPlan:
        """What counts, as workers know it."""
        return TickPlan(counter, *args, **how)

    @property
    def noise(self) -> Entropy:
        """Where the noise comes from."""
        return self._entropy

    @property
    def described(self) -> dict[str, str]:
        """The public parameters."""
        return self._describe()

    @property
    def restarts(self) -> Grid | None:
        """The clock in the windows in which it starts anew, if it does."""
        return self._restarts

    @property
    def periods(self) -> Periods | None:
        """In each of which the bound on people holds by itself; None: over the whole stream."""
        return self._periods

    @property
    def bound(self) -> Bound | None:
        """What is bounded here of people's events; None: nothing."""
        return self.users.bound() if self.users and self.bounds_people else None

    def number(self, content: object) -> int:
        """What an event of this content counts, on the lattice; 0 if it is not a number."""
        return self._numbers.number_of(content)

    def numbers_of(self, values: IntArray | FloatArray) -> IntArray:
        """`number` of many."""
        return self._numbers.numbers_of(values)

    @property
    def reach(self) -> int:
        """The largest number that an event can count, on the lattice, whatever its sign."""
        return max(map(abs, self._numbers.bounds))

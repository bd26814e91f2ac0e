"""The engines of TickCount: what counts numbers or vectors in one view of a clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, fields
from functools import partial
from typing import Any

from apache_beam.pvalue import PCollection

from beam_dpcount.checks import ParameterError
from beam_dpcount.counters.active import ActiveChange
from beam_dpcount.counters.choose import resolve_active, resolve_last
from beam_dpcount.counters.clock import Clock, Each, Last, Restart
from beam_dpcount.counters.counter import calibrate
from beam_dpcount.counters.grid import Grid
from beam_dpcount.counters.people import Users
from beam_dpcount.dofns.active import Activity, BoundActive
from beam_dpcount.mechanisms.single_steps import SingleSteps
from beam_dpcount.transforms.aggregates import Aggregating
from beam_dpcount.transforms.of_ticks import RestartingTicks

View = Clock | Each | Last | Restart


@dataclass(eq=False, repr=False)
class OfView:
    """What an engine takes from a view: its ticks, and the mechanism that is best for it.

    Args:
      view: of the clock. `inside.restart` or `inside.last` is its number of ticks.
    """

    _: KW_ONLY
    view: Any = None

    def _grids(self) -> tuple[Grid, Grid]:
        view: View = self.view
        return view.clock.grid, view.grid

    def _sentence_clock(self) -> Clock:
        clock: Clock = self.view.clock
        return clock

    def _calibrated(
        self, ways: Sequence[bool], mechanism: Any, horizon: int | None, **how: Any
    ) -> dict[bool, Any]:
        engine: Any = self
        view: View = self.view
        if isinstance(view, Each):
            fresh = calibrate(SingleSteps(horizon or 1), engine._budget, **how)
            return dict.fromkeys(ways, fresh)
        if isinstance(view, Last):
            counters: dict[bool, Any] = {}
            for streaming in ways:
                replays = streaming or engine._entropy.is_replayable
                chosen = resolve_last(horizon or 1, view.ticks, engine._budget, replays, **how)
                same = [each for each in counters.values() if each.mechanism == chosen]
                counters[streaming] = same[0] if same else calibrate(chosen, engine._budget, **how)
            return counters
        plain: Any = super()
        found: dict[bool, Any] = plain._calibrated(ways, mechanism, horizon, **how)
        return found


@dataclass(eq=False, repr=False)
class ViewNumbers(OfView, RestartingTicks):
    """Counts numbers in one view."""


@dataclass(eq=False, repr=False)
class ViewVectors(OfView, Aggregating):
    """Counts the sums of several metrics in one view."""


@dataclass(eq=False, repr=False)
class ActivePeople(ViewNumbers):
    """How many people were active in the last ticks, on bounded input.

    A person's event that counts makes the person active in its tick and in the n - 1 that follow.
    What is counted is who becomes active, and who stops (prefix sums of changes), or who is active
    in each tick, with fresh noise (SingleSteps): whichever has less.

    Guarantee: `ActiveChange`, with as many intervals of activity as
      - Users(changes=w): w / 2, the person's earliest;
      - Users(keys=K, per=): K ceil(P / (n + 1)), of K (n + P - 1) ticks, P those of the longest
        period: events of a person and period count in the first K keys;
      - Users(events=k): k, of n ticks each.
      It assumes that fewer than `max_per_tick` people, which is 2^30, change in a tick of a key.

    Args:
      view: of each tick.
      active: n, in ticks.
    """

    active: int = 1

    def _set_up(self) -> None:
        if self.max_per_tick is not None:
            raise ParameterError("max_per_tick", *UNCLIPPED)
        super()._set_up()

    @property
    def _activity(self) -> Activity:
        users, changes = self.users, not isinstance(self.counter.mechanism, SingleSteps)
        most = None if users is None or users.changes is None else users.changes // 2
        return Activity(self.active, self.view.grid.steps, most, changes)

    @property
    def _bound_shards(self) -> Any:
        return partial(BoundActive, activity=self._activity)

    def _of_person(self, users: Users, clock: Grid) -> ActiveChange:
        plain, ticks = super()._of_person(users, clock), clock.steps
        known = {one.name: getattr(plain, one.name) for one in fields(plain)}
        known |= {"low": -1.0, "high": 1.0, "gap": 0}
        n, keys, in_one, longest = self.active, plain.keys, 1, 0
        if users.changes is not None:
            many = in_one = users.changes // 2
            active = min(many, keys) * ticks
        elif plain.periods is not None:
            period = plain.periods.longest
            in_one, longest = -(-period // (n + 1)), n + period - 1
            many = min(keys * in_one, plain.events)
            active = min(keys * longest, plain.events * n)
        else:
            many = in_one = plain.events
            active, longest = plain.events * n, 0
        return ActiveChange(
            **known, intervals=many, in_one=in_one, ticks=min(active, keys * ticks), longest=longest
        )

    def _calibrated(
        self, ways: Sequence[bool], mechanism: Any, horizon: int | None, **how: Any
    ) -> dict[bool, Any]:
        replays = self._entropy.is_replayable
        given = how["change"], how["unit"]
        chosen = resolve_active(horizon or 1, self._budget, replays, *given)
        return dict.fromkeys(ways, calibrate(chosen, self._budget, **how))

    def expand(self, events: PCollection[Any]) -> PCollection[Any]:
        if self._path_of(events):
            raise ValueError(STREAMING_ACTIVE)
        return super().expand(events)


UNCLIPPED = (
    "would clip changes of activity, which then no longer alternate",
    "leave {max_per_tick} out",
)
STREAMING_ACTIVE = (
    "People of the last ticks are counted on bounded input only: in a stream, who stays active is "
    "known too late. Take people of each tick, clock.each(), or of a longer one, clock.restart(n)"
)

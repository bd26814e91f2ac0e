"""The engines of TickCount: what counts numbers or vectors in one view of a clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Any

from apache_beam.pvalue import PCollection

from beam_dpcount.counters.choose import resolve_last
from beam_dpcount.counters.clock import Clock, Each, Last, Restart
from beam_dpcount.counters.counter import calibrate
from beam_dpcount.counters.grid import Grid
from beam_dpcount.counters.people import Users
from beam_dpcount.counters.users import UserChange
from beam_dpcount.dofns.active import BoundActive
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
    Each of these ticks counts the person once, with fresh noise (SingleSteps).

    Guarantee: at most `events` of a person's events count, each of which adds 1 to at most n ticks
      of one key, where nothing else of the person is added: Delta_2^2 = Delta_1 = events * n.

    Args:
      view: of each tick.
      active: n, in ticks.
    """

    active: int = 1

    @property
    def _bound_shards(self) -> Any:
        return partial(BoundActive, active=self.active, ticks=self.view.grid.steps)

    def _of_person(self, users: Users, clock: Grid) -> UserChange:
        plain = super()._of_person(users, clock)
        ones = plain.events * self.active
        return replace(plain, events=ones, keys=ones, per_key=1)

    def expand(self, events: PCollection[Any]) -> PCollection[Any]:
        if self._path_of(events):
            raise ValueError(STREAMING_ACTIVE)
        return super().expand(events)


STREAMING_ACTIVE = (
    "People of the last ticks are counted on bounded input only: in a stream, who stays active is "
    "known too late. Take people of each tick, clock.each(), or of a longer one, clock.restart(n)"
)

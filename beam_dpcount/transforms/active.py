"""ActivePeople: the engine of TickCount for how many people were active in the last ticks."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Any

from apache_beam.pvalue import PCollection

from beam_dpcount.counters.grid import Grid
from beam_dpcount.counters.people import Users
from beam_dpcount.counters.users import UserChange
from beam_dpcount.dofns.active import BoundActive
from beam_dpcount.transforms.ticks import TickNumbers


@dataclass(eq=False, repr=False)
class ActivePeople(TickNumbers):
    """How many people were active in the last ticks, on bounded input.

    A person's event that counts makes the person active in its tick and in the n - 1 that follow.
    Each of these ticks counts the person once, with fresh noise (SingleSteps).

    Guarantee: at most `events` of a person's events count, each of which adds 1 to at most n ticks
      of one key, where nothing else of the person is added: Delta_2^2 = Delta_1 = events * n.

    Args:
      view: of each tick.
      active: n, in ticks.
    """

    _: KW_ONLY
    active: int = 1

    @property
    def _bound_shards(self) -> Any:
        return partial(BoundActive, active=self.active, ticks=self._clock.steps)

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

"""ActivePeople: the engine of TickCount for how many people were active in the last ticks."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, fields
from functools import partial
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import PCollection

from beam_dpcount.checks import ParameterError
from beam_dpcount.counters.active import ActiveChange, ActiveSelection
from beam_dpcount.counters.choose import resolve_active
from beam_dpcount.counters.grid import Grid
from beam_dpcount.counters.people import Users
from beam_dpcount.counters.selection import SelectKeys
from beam_dpcount.dofns.active import (
    ActiveShards,
    Activity,
    BoundActive,
    CountTogether,
    SendTicks,
)
from beam_dpcount.dofns.releases import Release
from beam_dpcount.mechanisms.single_steps import SingleSteps
from beam_dpcount.states.all_ticks import TickPlan
from beam_dpcount.transforms.ticks import TickNumbers


@dataclass(eq=False, repr=False)
class ActivePeople(TickNumbers):
    """How many people were active in the last ticks.

    A person's event that counts makes the person active in its tick and in the n - 1 that follow.
    What is counted is who becomes active, and who stops (prefix sums of changes), or who is active
    in each tick, with fresh noise (SingleSteps): whichever has less.

    Guarantee: `ActiveChange`, with as many intervals of activity as
      - Users(changes=w): w / 2, the person's earliest;
      - Users(keys=K, per=): K ceil(P / (n + 1)), of K (n + P - 1) ticks, P those of the longest
        period: events of a person and period count in the first K keys;
      - Users(events=k): k, of n ticks each.
      It assumes that fewer than `max_per_tick` people, which is 2^30, change in a tick of a key.
      Streaming, events count until their tick ends, and late ones never do.

    Args:
      view: of each tick.
      active: n, in ticks.
    """

    _: KW_ONLY
    active: int = 1

    _needs_events = False
    _selection_kind = ActiveSelection

    def _set_up(self) -> None:
        if isinstance(self.keys, SelectKeys):
            if self.keys.at_least > 1:
                raise ParameterError("at_least", *FALL)
            if self.path == "streaming":
                raise ParameterError("keys", *LISTED)
        if self.max_per_tick is not None:
            raise ParameterError("max_per_tick", *UNCLIPPED)
        super()._set_up()

    def _path_of(self, elements: PCollection[object]) -> bool:
        streaming = super()._path_of(elements)
        if streaming and self._select is not None:
            raise ParameterError("keys", *LISTED)
        return streaming

    def _late_events(self) -> str:
        if super()._late_events() == "fold" and self.late is not None:
            raise ParameterError("late", *UNFOLDED)
        return "drop"  # two that are folded could make two intervals of one

    def _describe_people(self) -> dict[str, str]:
        said = super()._describe_people()
        return said | ({"closing": UNTIL} if "closing" in said else {})

    @property
    def _activity(self) -> Activity:
        users, changes = self.users, not isinstance(self.counter.mechanism, SingleSteps)
        most = None if users is None or users.changes is None else users.changes // 2
        return Activity(self.active, self._clock.steps, most, changes)

    @property
    def _bound_shards(self) -> Any:
        return partial(BoundActive, activity=self._activity)

    @property
    def _in_stream(self) -> Any:
        bound: Any = partial(ActiveShards, activity=self._activity)
        return {
            "output": tuple[int, bytes],
            "sends": partial(SendTicks, clock=self._clock),
            "arriving": partial(bound, clock=self._clock, keys=self._listed),
        }

    def _each_tick(
        self, events: PCollection[Any], intake: Any, plan: TickPlan
    ) -> PCollection[Release]:
        shards = 1 if self.users is None else self.users.shards
        count: Any = beam.ParDo(CountTogether(plan, shards)).with_output_types(self._released)
        releases: PCollection[Release] = events | "CountTogether" >> count
        return releases

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

    @property
    def _last(self) -> int | None:
        return None  # what is released is summed here, or fresh

    def _chosen(self, mechanism: Any, horizon: int | None, **how: Any) -> Any:
        return resolve_active(
            horizon or 1, self._budget, how["replays"], how["change"], how["unit"]
        )


FALL = (
    "leaves out the first of a sum that grows, and numbers of active people fall, too",
    "leave {at_least} out",
)
LISTED = (
    "are selected by how many people are active on bounded input alone: in a stream, shards of "
    "people tell one counter of all keys",
    "list them: {keys}, or count files",
)
UNTIL = "events count until their tick ends, whatever lateness is, and late ones never do"
UNFOLDED = (
    "would make a person active in another tick than the event's, which people who are active do "
    "not allow",
    'give {late=}"drop", or leave {late} out',
)
UNCLIPPED = (
    "would clip changes of activity, which then no longer alternate",
    "leave {max_per_tick} out",
)

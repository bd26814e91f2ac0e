"""DistinctUsers: how many people there were, by key, at the ticks of a public clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, fields, replace
from typing import Any

from apache_beam.pvalue import PCollection
from apache_beam.transforms.window import GlobalWindows

from beam_dpcount.budget.budgets import Budget
from beam_dpcount.budget.shares import Share
from beam_dpcount.checks import check_whole
from beam_dpcount.counters.people import Users, check_users
from beam_dpcount.counters.selection import SelectKeys
from beam_dpcount.counters.total import Total
from beam_dpcount.dofns.releases import Release
from beam_dpcount.mechanisms import Mechanism
from beam_dpcount.noise.entropy import Entropy
from beam_dpcount.plans.inside import Inside
from beam_dpcount.transforms.of_ticks import OfTicks, RestartingTicks
from beam_dpcount.transforms.ticks import one


@dataclass(eq=False, repr=False)
class DistinctUsers(OfTicks):
    """How many people each key has had so far, or in a window of ticks, at every tick.

    PCollection[KV[str, anything]] with event times -> PCollection[Release], one for each key at
    every tick, as for TickNumbers. Each person counts once a key: in the tick of the first event.

    Args:
      users: `by` and `events`: a person counts in at most so many keys (of each window), which the
        noise grows with the square root of. Leave keys, per_key and gap out.
      window: in ticks; the count starts anew after so many: with tick=3600 and window=24, people of
        the day so far, hour by hour. At most as many as the clock has. A person may count in every
        window, and each time uses up one of the person's `events`: for all days of a month give
        events=31 times the keys a day. Default: people since the start.
      budget, tick, start, stop, keys, horizon, mechanism, relation, until, late, on_unknown, other,
        path, entropy, allow_runner: as for TickNumbers.

    Guarantee: the values of all releases of all keys, in all windows, together satisfy `budget` for
      inputs that differ in all events of any one person, as for TickNumbers with
      Users(by, events, per_key=1): people beyond that in a key are not counted, which no stddev
      covers. Delta_2 = sqrt(events) c.

    Raises:
      ValueError, TypeError: as for TickNumbers, and for input that is not in the global window.

    Example:
      >>> import beam_dpcount as dp
      >>> from beam_dpcount.transforms.distinct import DistinctUsers
      >>> people = DistinctUsers(
      ...     dp.ApproxDP(1.0, 1e-6), 3600, 0, horizon=720, window=24, keys=["home", "shop"],
      ...     users=dp.Users("user", events=60),
      ... )
      >>> people.counter.horizon
      24
    """

    budget: Budget | Share
    tick: Any
    start: Any
    stop: Any = None
    _: KW_ONLY
    keys: Sequence[str] | SelectKeys | Total
    users: Users
    window: int | None = None
    horizon: int | None = None
    mechanism: Mechanism | type[Mechanism] | str | None = None
    relation: str = "add_remove"
    until: Any = None
    late: str = "fold"
    on_unknown: str = "drop"
    other: str | None = None
    path: str = "auto"
    entropy: Entropy | None = None
    allow_runner: bool = False

    def __post_init__(self) -> None:
        super().__init__()
        users = check_users(self.users)
        if users.keys is not None or users.per_key not in (None, 1) or users.gap is not None:
            raise ValueError(
                "each person counts once a key: give Users(by, events) without keys, per_key or gap"
            )
        if users.asserted:
            raise ValueError(
                "each person's first events are found out while they are bounded, so that nothing "
                "is left to assert: leave asserted out"
            )
        options = {one.name: getattr(self, one.name) for one in fields(self)}
        del options["window"]
        options["users"] = replace(users, per_key=1)
        if self.window is not None:
            check_whole("window", self.window)
        self._ticks = RestartingTicks(**options, value=one, inside=Inside(restart=self.window))
        self.keys = self._ticks.keys
        self._fix()

    def expand(self, events: PCollection[Any]) -> PCollection[Release]:
        if not isinstance(events.windowing.windowfn, GlobalWindows):
            problem = f"{events.windowing.windowfn!r} would count people anew in each window"
            raise ValueError(f"{problem}: use the global window, and give window, in ticks")
        return self._apply(events)

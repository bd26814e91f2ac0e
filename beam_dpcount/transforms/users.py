"""BoundUsers: one bound on each person's events, for several counts at a clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import PCollection
from apache_beam.transforms.window import GlobalWindows

from beam_dpcount.checks import ParameterError
from beam_dpcount.counters.people import Users, check_users
from beam_dpcount.counters.periods import Periods
from beam_dpcount.dofns.parcels import ElementParcels
from beam_dpcount.plans.counting import check_entropy
from beam_dpcount.transforms.bounding import bounded_events
from beam_dpcount.transforms.inputs import use_streaming
from beam_dpcount.transforms.runners import check_workers
from beam_dpcount.transforms.ticks import TickNumbers
from beam_dpcount.transforms.vectors import TickVectors

NO_SHARED_PERIODS = (
    "bounds people anew in public periods, and the clocks of the counts have others",
    "give all of them one start, stop and zone, or a bound of their own each",
)
ONE_WINDOW = (
    "bounds people anew in periods of a clock, and windows of the input would cut them",
    "count in the global window, with a clock.restart(n)",
)


class BoundUsers(beam.PTransform[Any, Any]):
    """Bounds each person's events once, and counts those that are left in several ways.

    PCollection[KV[str, anything]] with event times -> dict of names to PCollection[Release]. The
    bounded events themselves are never given out: who is left out is private, and what is counted
    of them outside would hold for no one.

    Args:
      users: the bound. An event takes its place in it if any of the counts would count it. The
        keys of the bound are those of the events, as they come. With `per` the clocks of all counts
        have the same periods, whatever their ticks.
      counts: a TickCount of pairs by name, of one Count, Sum or People in one view (people of the
        last ticks are refused). The name is the label of each. One without `users` is calibrated to
        a person here, in a copy: `counters` has it. One with its own `users`, such as of People,
        bounds those that are left once more, and must have the same `by`: whose events are left
        says who is protected.

    Attributes:
      counters: the calibrated counter of each count, by name.

    Guarantee: each count's releases satisfy its own budget for inputs that differ in one person
      (with `per`: in one person's events of any one period), as for
      `TickCount(..., users=users)`; together they cost the sum: take shares of a `Ledger`. The
      bound reads a person's own events only. If a TickCount maps keys to `other`, all of a person's
      events may fall into one of its counters, and its noise is for that. A count that would
      promise something about one event is refused: one event less may let others of its person's
      count in its place (first k: 2 events differ; with a gap or a limit on keys: up to 2 k).

    Raises:
      ValueError, TypeError: at construction, for arguments out of range or other transforms.

    Example:
      >>> import beam_dpcount as dp
      >>> ledger = dp.Ledger(dp.ApproxDP(1.0, 1e-6))
      >>> clock = dp.Clock("1h", start=0, ticks=1000)
      >>> people = dp.Users("user", events=20, per_key=10)
      >>> spent = dp.Sum("spent", 0, 100)
      >>> bound = dp.BoundUsers(people, {
      ...     "events": dp.TickCount(ledger.share(0.5), clock, keys=["a", "b"]),
      ...     "spent": dp.TickCount(ledger.share(0.5), clock, spent, keys=["a", "b"]),
      ... })
      >>> round(bound.counters["events"].l2_sensitivity, 1)  # ten events in one key, ten in another
      14.1
    """

    def __init__(self, users: Users, counts: Mapping[str, object]) -> None:
        super().__init__()
        self.users = check_users(users)
        if users.asserted:
            raise ValueError(
                "asserted users need no bound: give users=... to each of the counts instead"
            )
        if not isinstance(counts, Mapping) or not counts:
            raise TypeError('counts must map names to counts, e.g. {"a": TickCount(...)}')
        self._bound = users.bound()
        members = {name: self._member(name, count) for name, count in counts.items()}
        self._periods = self._shared_periods([*members.values()])
        # All that decides which events are left, so far as it is known.
        before = repr((self._bound, [_counted(count) for count in members.values()]))
        if self._periods is not None:
            before += self._periods.fingerprint
        self._counts = {
            name: each.within(replace(each.inside, bound_before=before))
            for name, each in members.items()
        }

    @property
    def counters(self) -> dict[str, Any]:
        """The calibrated counter of each count, by name."""
        return {name: count.counter for name, count in self._counts.items()}

    def __str__(self) -> str:
        return repr(self)

    def __repr__(self) -> str:
        counts = [f"{name}: {count!r}" for name, count in self._counts.items()]
        inside = "\n".join(["users: " + str(self.users), *counts]).replace("\n", "\n  ")
        return f"{type(self).__name__}(\n  {inside}\n)"

    def _member(self, name: object, count: object) -> TickNumbers:
        if not isinstance(name, str):
            raise TypeError(f"counts must have names of text, got {name!r}")
        numbers = getattr(count, "numbers", None)
        if numbers is not None:
            if not getattr(count, "takes_pairs", False):
                raise ValueError(
                    f"{name} reads the key or the time of events, and behind a bound events are "
                    "pairs at their time: leave key, time and TOTAL out, and make pairs before"
                )
            count = numbers
        elif hasattr(count, "numbers"):
            raise TypeError(
                f"{name} counts several numbers, a tree of keys, or people of the last ticks, and "
                "behind a bound each count is one Count, Sum or People in one view: give a "
                "TickCount for each, with shares of a Ledger"
            )
        if not isinstance(count, TickNumbers) or isinstance(count, TickVectors):
            raise TypeError(
                f"{name} is {type(count).__name__}, which promises something about one event, and "
                "behind a bound that is not so, as an event less lets others of its person's "
                "count: give TickCounts of one number, or users=... to it alone"
            )
        if count.users is not None and count.users.asserted:
            raise ValueError(
                f"{name} has asserted users, and behind a bound one event less lets another one "
                "count, which such a count does not charge for: leave users out of it, or asserted"
            )
        if count.users is None:
            alone = replace(count, users=self._users_of(count))
            return alone.within(replace(alone.inside, bounds=False))
        if not count.users.has_same_people(self.users):
            raise ValueError(
                f"{name} has users with another `by`, and a bound on one kind of people says "
                "nothing about the other: give both the same field or function"
            )
        return count

    def _shared_periods(self, members: Sequence[TickNumbers]) -> Periods | None:
        """The periods in each of which all bounds hold; None: they hold over the whole stream."""
        known = [member.periods for member in members]
        borders = {each and (each.grid.start, each.grid.stop, each.starts) for each in known}
        if len(borders) > 1 or (known[0] is None) != (self.users.per is None):
            raise ParameterError("per", *NO_SHARED_PERIODS)
        return members[0]._periods_of(self.users)

    def _users_of(self, count: TickNumbers) -> Users:
        """How many events of a person this count may get, by its own keys."""
        if count.other is None:
            return self.users
        most = self._bound.most
        return replace(self.users, events=most, keys=None, per_key=most)

    def expand(self, events: PCollection[Any]) -> dict[str, PCollection[Any]]:
        members = self._counts.values()
        paths = {use_streaming(events, member.path) for member in members}
        if True in paths:
            check_workers(events.pipeline)
        if len(paths) > 1:
            raise ValueError("all counts must have one path: give each the same path")
        readers = [member.parcels(events) for member in members]
        (streaming,) = paths
        # Those that bound people themselves read the person once more, of what comes back.
        reads_people = any(each.bounds_people for each in members)
        by = self.users.person_of if reads_people else None
        parcels = ElementParcels(readers, by)
        # The counts may have several; one places people.
        entropies = [check_entropy(member.entropy) for member in members]
        entropy = max(entropies, key=lambda each: each.is_replayable)
        if self._periods is not None and not isinstance(events.windowing.windowfn, GlobalWindows):
            raise ParameterError("per", *ONE_WINDOW)
        how = self.users, self._bound, parcels, streaming, entropy
        left = bounded_events(events, *how, periods=self._periods)
        return {name: left | name >> count for name, count in self._counts.items()}


def _counted(count: TickNumbers) -> tuple[object, ...]:
    """Which events a count may count, and so which take their person's places: by its keys, its
    clock, and what of a number is left on its lattice."""
    said = count.display_data()
    return count.keys, count.other, said["start"], said["stop"], repr(count._numbers)

"""The base of transforms around a TickCount, which has their clock, counter and noise."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

from apache_beam.pvalue import PCollection
from apache_beam.transforms.window import WindowFn

from beam_dpcount.counters.selection import Selection
from beam_dpcount.dofns.parcels import Parcels
from beam_dpcount.plans.inside import Inside
from beam_dpcount.transforms.checking import RowCheck
from beam_dpcount.transforms.described import Described
from beam_dpcount.transforms.ticks import TickNumbers


class OfTicks(Described):
    """A transform around a TickCount, `_ticks`, which is made in `__post_init__`."""

    _ticks: TickNumbers

    @property
    def counter(self) -> Any:
        """The calibrated counter of each key; the one in use, once the transform is applied."""
        return self._ticks.counter

    @property
    def selection(self) -> Selection | None:
        """When keys that nobody listed are shown; None where they were."""
        return self._ticks.selection

    def tick_windows(self) -> WindowFn:
        """As for TickCount."""
        return self._ticks.tick_windows()

    def problem(self, event: object, micros: int | None = None) -> str | None:
        """Why an event does not count as it is; see `beam_dpcount.check`."""
        return self._ticks.problem(event, micros)

    def check_row(self, event: object, micros: int | None = None) -> RowCheck:
        """What becomes of an event; see `beam_dpcount.check`."""
        return self._ticks.check_row(event, micros)

    @property
    def bounds_people(self) -> bool:
        """Whether each person's events are bounded here."""
        return self._ticks.bounds_people

    @property
    def inside(self) -> Inside:
        """What `_ticks` knows of the transforms around it."""
        return self._ticks.inside

    def within(self, inside: Inside) -> Self:
        """A copy whose `_ticks` knows this."""
        other = copy(self)
        other._ticks = self._ticks.within(inside)
        return other

    def parcels(self, events: PCollection[object]) -> Parcels:
        """How events travel to their person."""
        return self._ticks.parcels(events)

    def _apply(self, events: PCollection[Any]) -> PCollection[Any]:
        """In `expand`, at its end."""
        self._ticks = copy(self._ticks)  # what an earlier application shows stays
        releases: PCollection[Any] = events | "TickCount" >> self._ticks
        self._show_applied(events.pipeline)
        return releases

    def _describe(self) -> Mapping[str, str]:
        return self._ticks._describe()


@dataclass(eq=False, repr=False)
class RestartingTicks(TickNumbers):
    """A TickCount that is told when it is made what it knows inside another transform.

    It is calibrated to `inside.restart` and `inside.last`; all else may come later, by `within`.
    """

    _: KW_ONLY
    inside: Inside = Inside()

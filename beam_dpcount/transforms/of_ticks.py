"""The base of transforms around a TickCount, which has their clock, counter and noise."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import KW_ONLY, dataclass
from typing import Any

from apache_beam.pvalue import PCollection
from apache_beam.transforms.window import WindowFn

from beam_dpcount.counters.selection import Selection
from beam_dpcount.transforms.checking import RowCheck
from beam_dpcount.transforms.described import Described
from beam_dpcount.transforms.ticks import TickCount


class OfTicks(Described):
    """A transform around a TickCount, `_ticks`, which is made in `__post_init__`."""

    _ticks: TickCount

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

    def problem(self, event: Any, micros: int | None = None) -> str | None:
        """Why an event does not count as it is; see `beam_dpcount.check`."""
        return self._ticks.problem(event, micros)

    def check_row(self, event: Any, micros: int | None = None) -> RowCheck:
        """What becomes of an event; see `beam_dpcount.check`."""
        return self._ticks.check_row(event, micros)

    def _renew(self, **known: Any) -> TickCount:
        """Another `_ticks`, of which this is known: what an application before shows stays."""
        self._ticks = copy(self._ticks)
        for name, value in known.items():
            setattr(self._ticks, name, value)
        return self._ticks

    def _apply(self, events: PCollection[Any], **known: Any) -> PCollection[Any]:
        """In `expand`, at its end."""
        releases: PCollection[Any] = events | "TickCount" >> self._renew(**known)
        self._show_applied(events.pipeline)
        return releases

    def _describe(self) -> Mapping[str, str]:
        return self._ticks._describe()


@dataclass(eq=False, repr=False)
class RestartingTicks(TickCount):
    """A TickCount that starts anew after so many ticks, which are windows of its own."""

    _: KW_ONLY
    restart: int | None = None

    def _set_up(self) -> None:
        self._restart = self.restart  # type: ignore[misc]
        super()._set_up()

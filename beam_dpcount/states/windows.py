"""Windows as digests of replayable noise know them: by Beam's names and bounds, without Beam."""

from __future__ import annotations

from typing import NamedTuple

from beam_dpcount.counters.grid import Grid

# Of Beam's global window, in microseconds.
_FIRST, _LAST = -9_223_372_036_854_775_000, 9_223_371_950_454_775_000


class Instant(NamedTuple):
    """A time in microseconds since the epoch."""

    micros: int


class GlobalWindow(NamedTuple):
    """The window of all time."""

    start: Instant
    end: Instant


class IntervalWindow(NamedTuple):
    """A window of one count of a clock that starts anew."""

    start: Instant
    end: Instant


EVERYWHERE = GlobalWindow(Instant(_FIRST), Instant(_LAST))


def window_from(clock: Grid, origin: int) -> GlobalWindow | IntervalWindow:
    """The window whose count starts at `origin`."""
    if clock.window is None:
        return EVERYWHERE
    return IntervalWindow(Instant(origin), Instant(clock.closing(origin)))

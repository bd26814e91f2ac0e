"""Windows of unequal lengths; and checks that elements lie in those that are declared."""

from __future__ import annotations

from typing import Any

from apache_beam.coders.coders import Coder, IntervalWindowCoder
from apache_beam.transforms.window import (
    FixedWindows,
    GlobalWindow,
    IntervalWindow,
    NonMergingWindowFn,
    WindowFn,
)
from apache_beam.utils.timestamp import Duration, Timestamp

from beam_dpcount.counters.grid import Grid, Runs, UnevenGrid
from beam_dpcount.counters.moments import instant, seconds
from beam_dpcount.errors import Error

_MILLISECOND = 1000  # to which Beam cuts the bounds of windows
OTHER_WINDOWS = (
    "an element lies in other windows than its PCollection declares, and would spend the budget in "
    "several: apply one beam.WindowInto to all inputs of a Flatten"
)


class UnexpectedWindowError(Error, ValueError):
    """An element lies in other windows than its PCollection declares; windows are public."""


class UnevenWindows(NonMergingWindowFn):
    """Windows between public times, as local days are. Other times are in none.

    Args:
      borders: when windows begin, and the last one ends, in microseconds. They travel as data.
    """

    def __init__(self, borders: Runs) -> None:
        self._borders = borders

    def assign(self, assign_context: Any) -> list[IntervalWindow]:
        following = self._borders.rank(assign_context.timestamp.micros)
        if not 0 < following < len(self._borders):
            return []
        bounds = self._borders[following - 1 : following + 1]
        return [IntervalWindow(*(Timestamp(micros=at) for at in bounds))]

    def get_window_coder(self) -> Coder:
        return IntervalWindowCoder()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UnevenWindows) and self._borders == other._borders

    def __hash__(self) -> int:
        return hash(self._borders)


def windows_of(clock: Grid) -> WindowFn:
    """The windows in which a clock starts anew."""
    if isinstance(clock, UnevenGrid):
        return UnevenWindows(Runs.of([*clock.starts, clock.bounds[-1]]))
    return FixedWindows(Duration(micros=clock.window or 0), Timestamp(micros=clock.offset))


def windows_of_ticks(clock: Grid) -> WindowFn:
    """Windows in each of which lies the release of one tick, made at its end.

    Raises:
      ValueError: the clock is finer than Beam's windows.
    """
    bounds = clock.bounds if isinstance(clock, UnevenGrid) else None
    runs = ((clock.start, clock.tick, 2),) if bounds is None else bounds.runs
    if any(first % 1000 or (count > 1 and step % 1000) for first, step, count in runs):
        raise ValueError(
            f"windows are of whole milliseconds, but ticks are of {seconds(clock.tick)} from "
            f"{instant(clock.start)}: give such a tick and start"
        )
    # The release at the end of a tick is the last millisecond of its window.
    if bounds is not None:
        return UnevenWindows(Runs((first + 1000, step, count) for first, step, count in runs))
    offset = Timestamp(micros=(clock.start + 1000) % clock.tick)
    return FixedWindows(Duration(micros=clock.tick), offset)


def origin_of(clock: Grid, window: Any) -> int:
    """When the count of a window starts, in microseconds."""
    return clock.start if clock.window is None else int(window.start.micros)


def window_from(clock: Grid, origin: int) -> GlobalWindow | IntervalWindow:
    """The window whose count starts at `origin`."""
    if clock.window is None:
        return GlobalWindow()
    return IntervalWindow(Timestamp(micros=origin), Timestamp(micros=clock.closing(origin)))


class WindowCheck:
    """Checks that elements lie in one declared window each; else they could count in several.

    A Flatten of differently windowed inputs declares the windows of the first one only.

    Args:
      size: of FixedWindows, in microseconds; None for the global window.
      period, offset: of the grid on which windows start; default: size, and 0.
    """

    def __init__(self, size: int | None, period: int | None = None, offset: int = 0) -> None:
        self._size, self._period, self._offset = size, period or size, offset
        self._seen: Any = None

    def __call__(self, windows: Any) -> None:
        if windows is self._seen:
            return
        if len(windows) <= 1 and all(map(self._declared, windows)):  # none: a gap between windows
            self._seen = windows
            return
        raise UnexpectedWindowError(OTHER_WINDOWS)

    def _declared(self, window: object) -> bool:
        if self._size is None or self._period is None:
            return isinstance(window, GlobalWindow)
        if not isinstance(window, IntervalWindow):
            return False
        # Windows as long as declared that start elsewhere overlap the declared ones.
        beyond = (window.start.micros - self._offset) % self._period
        is_on_grid = min(beyond, self._period - beyond) < _MILLISECOND
        return is_on_grid and window.end.micros - window.start.micros == self._size

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_seen": None}

"""Checks that elements lie in the windows that their PCollection declares."""

from __future__ import annotations

from typing import Any

from apache_beam.transforms.window import GlobalWindow, IntervalWindow

from beam_dpcount.checks import Error

_MILLISECOND = 1000  # to which Beam cuts the bounds of windows
OTHER_WINDOWS = (
    "an element lies in other windows than its PCollection declares, and would spend the budget in "
    "several: apply one beam.WindowInto to all inputs of a Flatten"
)


class UnexpectedWindowError(Error, ValueError):
    """An element lies in other windows than its PCollection declares; windows are public."""


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

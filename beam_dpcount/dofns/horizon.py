"""Metrics and log lines that tell operators how many ticks of a clock are left.

They depend on the clock and on how far the watermark or `until` is, never on keys or events. Work
that is repeated reports again, which is harmless.
"""

from __future__ import annotations

import logging

from apache_beam.metrics.metric import Metrics

from beam_dpcount.counters.grid import Grid
from beam_dpcount.counters.moments import instant

NAMESPACE = "beam_dpcount"
RELEASED, LEFT = "ticks_released", "ticks_left"

_LOGGER = logging.getLogger(__name__)


class Horizon:
    """Reports how many ticks of a clock are released, in a worker."""

    def __init__(self, clock: Grid) -> None:
        self._ticks = clock.ticks
        self._end = instant(clock.closing(clock.origins()[-1]))
        self._last = max(1, self._ticks // 10)  # the last tenth
        self._released = Metrics.gauge(NAMESPACE, RELEASED)
        self._left = Metrics.gauge(NAMESPACE, LEFT)

    def passed(self, released: int) -> None:
        """Streaming: one more tick is released."""
        left = self._show(released)
        if left == 0:
            _LOGGER.warning(
                "the last of %s ticks is released: events from %s on do not count",
                *(f"{self._ticks:,}", self._end),
            )
        elif left == self._last:
            self._warn(left)

    def reached(self, released: int) -> None:
        """Bounded: so many ticks are released, all at once. Reaching the end is no warning."""
        left = self._show(released)
        if 0 < left <= self._last:
            self._warn(left)
        elif left == 0:
            _LOGGER.info("all %s ticks of the clock are released", f"{self._ticks:,}")

    def _show(self, released: int) -> int:
        left = self._ticks - released
        self._released.set(released)
        self._left.set(left)
        return left

    def _warn(self, left: int) -> None:
        _LOGGER.warning(
            "the last tenth of the clock has begun: %s of %s ticks are left, and events from %s on "
            "do not count: plan the next clock, with a budget of its own",
            *(f"{left:,}", f"{self._ticks:,}", self._end),
        )

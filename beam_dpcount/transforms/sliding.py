"""SlidingCount: how many events there were in the last ticks, at every tick of a public clock."""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, fields
from typing import Any

import numpy as np
from apache_beam.pvalue import PCollection
from apache_beam.transforms.window import GlobalWindows

from beam_dpcount.budget.budgets import Budget
from beam_dpcount.budget.shares import Share
from beam_dpcount.counters.clock import check_keys, check_window, clock_of, ticks_left
from beam_dpcount.counters.counter import UnsupportedBudgetError
from beam_dpcount.counters.moments import duration_of, seconds
from beam_dpcount.counters.people import Users
from beam_dpcount.counters.sliding import difference_variances
from beam_dpcount.counters.total import Total
from beam_dpcount.dofns.releases import Release
from beam_dpcount.mechanisms import sliding_blt
from beam_dpcount.mechanisms.sliding_blt import SlidingBLT
from beam_dpcount.noise.entropy import Entropy
from beam_dpcount.plans.inside import Inside
from beam_dpcount.transforms.of_ticks import OfTicks, RestartingTicks
from beam_dpcount.transforms.ticks import TickNumbers

_LOGGER = logging.getLogger(__name__)

_COMPARED = 1 << 12  # ticks; of longer streams SlidingSum has less noise for hardly any window
_BOTH = ("bounded", "streaming")
NO_PURE_BUDGET = (
    "SlidingCount takes Gaussian noise, which no pure budget allows: take SlidingSum of a "
    "TickCount, or give ApproxDP(epsilon, delta) or ZCDP(rho)"
)


@dataclass(eq=False, repr=False)
class SlidingCount(OfTicks):
    """A private sum over the last `window` ticks, per public key, at every tick of a public clock.

    PCollection[KV[str, number]] with event times -> PCollection[Release]: release i of a key, from
    1, counts its events with start + (i - window) * tick <= time < start + i * tick, and none
    before `start`. It has a mechanism of its own, `mechanisms.SlidingBLT`: its variance rises to a
    limit, however long the stream is, where that of a count grows. `SlidingSum` of a TickCount
    gives counts and any number of windows for one budget, and takes pure budgets; for one window it
    has more noise, except

    - where the window is nearly the whole stream, and
    - under ApproxDP in short streams, where a TickCount takes Laplace noise: at (1, 1e-6) bounded
      input of up to 200 ticks, but none from 400 on, and unbounded input of up to 30
      (docs/choosing.md has a table).

    The log says so when it is made, of streams of up to 4,096 ticks.

    Args:
      window: in ticks, a whole number from 1 to 2^20, at most as many as the clock has. Public. The
        state of a key holds so many numbers, of some 7 bytes each, and is written at every tick.
      stop, horizon: the end, or the number of ticks; see TickNumbers. One of them, or `until`, is
        needed on bounded input.
        Default: 2^30 ticks, or up to the year 9999, as an endless stream has; beyond them nothing
        is released. So many cost the same noise as fewer do, but weak budgets may need fewer: an
        error says so. Without an end, cancel the pipeline to stop it: where it is drained, or its
        source ends, all ticks to come would be released at once.
      max_per_tick: as for TickNumbers.
      budget: ApproxDP, ZCDP or a share of a `Ledger`: for all releases of all keys, for ever. The
        noise is Gaussian: pure budgets are refused.
      users: Users(by, events, gap=...), as for TickNumbers, with a gap of at least the window: of a
        person at most one event counts in each release, and at most `events` in all. What is
        released are capped contributions, not how many people were there: who comes again before
        the gap is over does not count anew, and is missing once the earlier event has left the
        window; and after `events` of them a person never counts again. Distinct people of the last
        ticks cannot be had this way.
      tick, start, keys, bounds, unit, relation, max_items, until, late, on_unknown, on_reject,
        other, value, path, entropy, allow_runner: as for TickNumbers; keys are listed.

    Guarantee: as for TickNumbers: the values of all releases of all keys, however many there are,
      together satisfy `budget` for inputs that differ in any one event (with `users`: in all events
      of any one person), as `relation` says. An event is in `window` sums, all of which are linear
      functions of one noised vector, so that it is charged once. Sensitivity:
      `counter.l2_sensitivity`, of the encoder's columns, and what rounding may add in each of the
      horizon's rows (docs/proofs/sliding.md). Noise: exact, on integers. Public: the keys, the
      clock, `window`, and number and timestamps of the releases.

    Attributes:
      counter: the calibrated counter of each key; the one in use, once the transform is applied.

    Raises:
      ValueError, TypeError: as for TickNumbers; and for a window out of range, `SelectKeys`, users
        whose gap is shorter than the window, and when applied, bounded input without an end, or
        windows other than the global one.

    Example:
      >>> import apache_beam as beam
      >>> import beam_dpcount as dp
      >>> from beam_dpcount.transforms.sliding import SlidingCount
      >>> count = SlidingCount(  # of a day, every hour for 30 days
      ...     dp.ApproxDP(1.0, 1e-6), 3600, 1_699_999_200, horizon=720, window=24, keys=["a"]
      ... )
      >>> with beam.Pipeline("FnApiRunner") as pipeline:
      ...     events = pipeline | beam.Create([("a", 1), ("a", 1)])
      ...     timed = events | beam.Map(lambda e: beam.window.TimestampedValue(e, 1_700_000_000))
      ...     last = timed | count | beam.Filter(lambda release: release.step > 718)
      ...     _ = last | beam.Map(lambda release: print(release.key, release.step))
      a 719
      a 720
      >>> endless = SlidingCount(dp.ZCDP(0.5), 60, 0, window=100, keys=["a"])
      >>> round(endless.counter.max_variance(), 1)  # of any of 2^30 releases
      9.5
    """

    budget: Budget | Share
    tick: Any
    start: Any
    stop: Any = None
    _: KW_ONLY
    window: int
    keys: Sequence[str] | Total
    horizon: int | None = None
    bounds: tuple[float, float] = (0, 1)
    unit: float = 1
    relation: str = "add_remove"
    max_items: int = 1
    max_per_tick: int | None = None
    until: Any = None
    late: str = "fold"
    on_unknown: str = "drop"
    on_reject: str = "drop"
    other: str | None = None
    value: Callable[[Any], Any] | None = None
    path: str = "auto"
    entropy: Entropy | None = None
    allow_runner: bool = False
    users: Users | None = None

    def __post_init__(self) -> None:
        super().__init__()
        options = {one.name: getattr(self, one.name) for one in fields(self)}
        del options["window"]
        width = sliding_blt.check_window(self.window, "ticks")
        if self.users is not None:
            self._check_users(self.users, width)
        options["horizon"] = horizon_of(self)
        check_window(width, clock_of(self.tick, self.start, self.stop, options["horizon"]))
        try:
            self._ticks = RestartingTicks(**options, inside=Inside(last=width))
        except UnsupportedBudgetError:
            raise UnsupportedBudgetError(NO_PURE_BUDGET) from None
        self._compare(options, width)
        self.window, self.keys = width, check_keys(self.keys)
        self._fix()

    def _check_users(self, users: object, width: int) -> None:
        """Refuse users of whom more than one event may be in a window."""
        least = width * duration_of(self.tick)
        if isinstance(users, Users) and users.micros < least:
            given = f"a gap of {seconds(users.micros)}" if users.micros else "no gap"
            enough = f"Users(by, events, gap={seconds(least)[:-2]})"
            raise ValueError(
                f"users has {given}, so that a person may count several times in one window of "
                f"{seconds(least)}: give {enough} or more. What is released are then capped "
                "contributions, not distinct people"
            )

    def _compare(self, options: dict[str, Any], width: int) -> None:
        """Log where a plain count's SlidingSum has less noise on both paths; known without data."""
        own = self.counter
        if own.horizon > _COMPARED:
            return
        steps = np.arange(1, own.horizon + 1)
        with contextlib.suppress(ValueError):  # it cannot be had under this budget
            plain = (TickNumbers(**{**options, "path": path}).counter for path in _BOTH)
            other = max(difference_variances(counter, steps, width).max() for counter in plain)
            if other < own.max_variance():
                _LOGGER.warning(
                    "SlidingCount: of %d ticks SlidingSum(%d, count.counter) of a TickCount has "
                    "less noise: a largest standard deviation of %.3g, where this has %.3g",
                    *(own.horizon, width, math.sqrt(other), math.sqrt(own.max_variance())),
                )

    def expand(self, events: PCollection[Any]) -> PCollection[Release]:
        if not isinstance(events.windowing.windowfn, GlobalWindows):
            name = type(events.windowing.windowfn).__name__
            problem = f"{name} would start anew in each of its windows"
            raise ValueError(f"{problem}: use the global window, and give window, in ticks")
        check_end(self, events)
        return self._apply(events)


def horizon_of(count: Any) -> int | None:
    """The number of ticks; without an end as many as SlidingBLT and the calendar allow."""
    if count.stop is not None or count.horizon is not None:
        known: int | None = count.horizon
        return known
    return max(1, min(SlidingBLT.longest, ticks_left(count.tick, count.start)))


def check_end(count: Any, events: PCollection[Any]) -> None:
    """Refuse bounded input without an end, of which all ticks would be released at once."""
    if events.is_bounded and count.stop is None and count.horizon is None and count.until is None:
        raise ValueError(
            f"the input is bounded, and without an end {count.counter.horizon} ticks might be "
            "released: give stop (the end of the count), horizon (the number of ticks) or "
            "until (only ticks that have ended by then are released)"
        )

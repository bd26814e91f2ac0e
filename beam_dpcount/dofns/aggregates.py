"""The DoFns that count vectors at the ticks of a clock, and say what metrics make of them.

A sum has a place, (tick - 1) * width + coordinate + 1, so that vectors of few sums travel and wait
as the sums of single ticks do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils import windowed_value

from beam_dpcount.counters.grid import Grid
from beam_dpcount.dofns.intake import RejectedElementError
from beam_dpcount.dofns.parcels import ReadyTicks, TickParcels
from beam_dpcount.dofns.releases import TickRelease
from beam_dpcount.dofns.ticks import (
    CountAllTicks,
    CountEachTick,
    ReadTicks,
    SumTicks,
    TickIntake,
)
from beam_dpcount.dofns.windows import origin_of, window_from
from beam_dpcount.reading import Function
from beam_dpcount.states.all_vectors import AggregatePlan, vectors_of
from beam_dpcount.states.pending import clipped
from beam_dpcount.states.wire import (
    add_all,
    after_key,
    epoch_of,
    items_of,
    key_of,
    more_items,
    pack_items,
    pack_keyed,
    step_of,
)
from beam_dpcount.statistics.metrics.base import Additions
from beam_dpcount.statistics.metrics.contents import NO_CONTENT, Contents
from beam_dpcount.statistics.metrics.joint import Joint

# Aliases, because the declared defaults are Beam's markers and not of the parameters' types.
_placed: Any = windowed_value.create


class AggregateIntake(Contents):
    """Makes of a value what it adds to the metrics' sums. `strict`: one unlike events is an error.

    What it makes nothing of adds nothing.
    """

    def __init__(self, joint: Joint, strict: bool = False, value: Function | None = None) -> None:
        super().__init__(joint, value)
        self._strict = strict

    def number(self, key: str, payload: object, micros: int) -> Additions:
        """What a value adds, as `TickIntake` asks for it."""
        additions = self.added(payload)
        if additions is None and self._strict:
            remedy = 'fix the input, or count such elements as nothing with on_reject="drop"'
            raise RejectedElementError(f"{NO_CONTENT}: {remedy}")
        return additions or ()


class ReadVectors(ReadTicks):
    """Streaming: (key, value) to (shard, sums of its keys), as ReadTicks."""

    def _add(self, sums: dict[int, int], rank: int, x: Any) -> None:
        add_all(sums, x, rank * self._width)


class SumVectors(SumTicks):
    """Bounded: (key, value) to (group of keys, sums of one key), as SumTicks."""

    def __init__(self, intake: TickIntake, keys: Sequence[str], alone: bool, width: int) -> None:
        super().__init__(intake, keys, alone)
        self._width = width

    def _add(self, sums: dict[int, int], step: int, x: Any) -> None:
        add_all(sums, x, (step - 1) * self._width + 1)


class VectorParcels(TickParcels):
    """Events on their way to their person: the key, the tick and what they add to which sums.

    Args:
      intake, restart: as for TickParcels.
      first: what a person's first event that counts under a key adds beside it.
    """

    asks_first = True

    def __init__(self, intake: TickIntake, first: Additions, restart: Grid | None = None) -> None:
        super().__init__(intake, (), restart)
        self._first = first

    def _packed(self, step: int, epoch: int, key: str, x: Any) -> bytes:
        return pack_keyed(key, pack_items(step, epoch, x))

    def names(self, parcel: bytes) -> Sequence[bytes]:
        if self._restart is None:
            return (key_of(parcel),)
        return (epoch_of(after_key(parcel)) + key_of(parcel),)

    def unwrap_first(self, parcel: bytes, kept: Sequence[int], first: Sequence[bool]) -> list[Any]:
        (is_first,) = first
        key, data = key_of(parcel).decode("utf-8", "surrogatepass"), after_key(parcel)
        return [(key, more_items(data, self._first) if is_first else data)]


class ReadyVectors(ReadyTicks):
    """Reads what VectorParcels made, as TickIntake reads events."""

    def read(self, element: Any, micros: int, windows: Any) -> tuple[str, int, Any]:
        if windows[0] is not self._window:
            self._window, self.origin = windows[0], origin_of(self.clock, windows[0])
        return element[0], step_of(element[1]), items_of(element[1])


class CountEachVector(CountEachTick):
    """Streaming: an TickRelease of each key at each tick, as CountEachTick."""

    _plan: AggregatePlan

    def _made(self, key: str, step: int, micros: int, value: Any, stddev: float) -> Any:
        (made,) = self._plan.reading.rows(key, step, value[None], np.array([stddev]), 0)
        return TickRelease(*made)


class CountAllVectors(CountAllTicks):
    """Bounded, after the grouping: all releases of a group's keys, as CountAllTicks."""

    _plan: AggregatePlan

    def _released(
        self, key: str, origin: int, packed: Iterable[bytes], steps: int
    ) -> Iterator[Any]:
        plan = self._plan
        clock, window = plan.clock, window_from(plan.clock, origin)
        last, windows = window.max_timestamp().micros, (GlobalWindow(),)
        xs = clipped(packed, steps, plan.limits)
        stddevs = np.array(self._stddevs[:steps])
        values = vectors_of(plan.counter, self._draws, key, window, xs)
        first = clock.passed_at(origin) + 1
        for made in plan.reading.rows(key, first, values, stddevs, 0):
            yield _placed(TickRelease(*made), min(made.timestamp, last), windows)

"""State is written before anything is yielded: what is seen is never ahead of what is remembered.

An engine may hand on what a DoFn yields before the DoFn is done. If state came after it, work that
stops between the two would be done again, from a state that knows nothing of the release: one
coordinate would be drawn twice.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from apache_beam.transforms.window import GlobalWindow

import beam_dpcount as dp
from beam_dpcount.dofns.elements import CountEachElement
from beam_dpcount.dofns.gathered import CountGathered
from beam_dpcount.dofns.shards import CountShards
from beam_dpcount.dofns.ticks import SEED, CountEachTick
from beam_dpcount.states.wire import pack_batch
from beam_dpcount.transforms.ticks import TickNumbers
from benchmarks.cells import Bag, Cell, Timer
from benchmarks.jobs import dofns_of

BUDGET, GLOBAL = dp.ApproxDP(1e6, 1e-6), GlobalWindow()
CLOCK: dict[str, Any] = {"tick": 10, "start": 0, "horizon": 4, "path": "streaming"}


class Placed:
    """Where an element is."""

    windows = (GLOBAL,)
    timestamp_micros = 0


def each_element(cell: Cell) -> Iterator[Any]:
    dofn = dofns_of(dp.PrefixCount(BUDGET, 9, on_reject="collect", path="streaming"))
    dofn[CountEachElement].setup()
    yield from dofn[CountEachElement].process(("a", 1), Placed(), cell)


def each_refused_element(cell: Cell) -> Iterator[Any]:
    dofn = dofns_of(dp.PrefixCount(BUDGET, 9, on_reject="collect", path="streaming"))
    dofn[CountEachElement].setup()
    yield from dofn[CountEachElement].process(("a", None), Placed(), cell)


def gathered(cell: Cell) -> Iterator[Any]:
    dofn = dofns_of(dp.PrefixCount(BUDGET, 9, path="streaming"))[CountGathered]
    dofn.setup()
    yield from dofn.process(("a", struct.pack("<2q", 0, 1)), Placed(), cell)


def each_tick(cell: Cell) -> Iterator[Any]:
    dofn = dofns_of(TickNumbers(BUDGET, keys=["a"], **CLOCK))[CountEachTick]
    dofn.setup()
    arrived, timer, later = Bag(), Timer(), Bag()
    dofn.process((0, SEED), arrived, cell, timer)
    yield from dofn.release(0, GLOBAL, arrived, cell, timer, later)


def shards(cell: Cell) -> Iterator[Any]:
    count = TickNumbers(BUDGET, keys=dp.SelectKeys(shards=1), **CLOCK)
    dofn, timer, bag = dofns_of(count)[CountShards], Timer(), Bag()
    later = Bag()
    dofn.setup()
    dofn.process((0, SEED), bag, cell, timer)
    dofn.process((0, pack_batch({("a", 1): 1000})), bag, cell, timer)
    yield from dofn.release(0, GLOBAL, bag, cell, timer, later)


@pytest.mark.parametrize("first", [each_element, each_refused_element, gathered, each_tick, shards])
def test_a_step_is_remembered_before_it_is_seen(first: Callable[[Cell], Iterator[Any]]) -> None:
    cell = Cell()
    assert next(first(cell)) is not None  # and then work stops
    assert cell.data is not None
    assert struct.unpack_from("<q", cell.data, 16) == (1,)

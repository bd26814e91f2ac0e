"""The releases of a data frame, as a table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pyarrow as pa

from beam_dpcount.budget.ledger import claim
from beam_dpcount.budget.shares import Share
from beam_dpcount.counters.charged import JoinedSpender
from beam_dpcount.lanes.frames import Frame
from beam_dpcount.lanes.parts import PartsLane
from beam_dpcount.plans.columns import PLACED, columns_of
from beam_dpcount.plans.sentence import TickCountPlan

LABEL = "TickCount"  # of the transform in a pipeline, by which noise goes
REPEATS = "the noise follows from the secret: over the same rows the same releases, at no cost"
CHARGED = "charged to {ledger}: another release takes another share of it"
ANEW = "noise is new in each run: to run this again is a second release, which costs as much again"
_TIME = pa.timestamp("us", "UTC")
_ROWS = 1 << 16  # of a batch


def read_frame(count: TickCountPlan, frame: Frame) -> PartsLane:
    """The rows of a frame, counted.

    Args:
      count: what counts them, on bounded input.
      frame: the rows.

    Raises:
      ParameterError: the frame cannot be read. Then nothing is spent.
    """
    lane = PartsLane(count, LABEL)
    for columns in frame.columns(lane.contents):
        lane.add(columns)
    return lane


def released(count: TickCountPlan, lane: PartsLane) -> pa.Table:
    """The releases of what was counted; the budget is spent."""
    budget, engines = count.budget, [part.engine for part in count._parts]
    place = f"{LABEL}/TickCount" if count.engine is not None else LABEL
    spenders = [engine.spender(engine.counter, place) for engine in engines]
    spender = spenders[0] if len(spenders) == 1 else JoinedSpender(spenders)
    claim(budget, by="over", spender=spender)
    again = ANEW
    if isinstance(budget, Share):
        again = CHARGED.format(ledger=budget.ledger.name or "a ledger")
    if engines[0].noise.is_replayable:
        again = REPEATS
    about = json.dumps({**count._describe(), "again": again}, ensure_ascii=False)
    columns = columns_of(count)
    kinds: dict[str, Any] = dict.fromkeys(columns.names, pa.float64())
    kinds |= dict(zip(PLACED, (pa.string(), pa.int64(), _TIME, _TIME), strict=True))
    kinds |= {"restart": pa.int64()} if columns.numbered else {}
    schema = pa.schema([*kinds.items()], metadata={"beam_dpcount": about})

    def row(release: Any) -> tuple[Any, ...]:
        place = release.key, release.step, columns.start(release), release.timestamp
        numbers = [x for one, cells in columns.cells(release) for x in one.numbers(cells)]
        return (*place, *[release.restart] * columns.numbered, *numbers)

    def batches() -> Iterator[pa.RecordBatch]:
        rows = map(row, lane.rows())
        while some := [*islice(rows, _ROWS)]:
            cells = zip(schema.types, zip(*some, strict=True), strict=True)
            yield pa.record_batch([pa.array(each, kind) for kind, each in cells], schema=schema)

    return pa.Table.from_batches(batches(), schema)

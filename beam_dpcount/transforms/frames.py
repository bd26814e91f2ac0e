"""The releases of a data frame, as a table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from beam_dpcount.budget.ledger import claim
from beam_dpcount.budget.shares import Share
from beam_dpcount.lanes.contents import contents_of
from beam_dpcount.lanes.frames import Frame
from beam_dpcount.lanes.ticks import ListedLane
from beam_dpcount.plans.sentence import Part
from beam_dpcount.plans.ticks import TickNumbersPlan

LABEL = "TickCount/TickCount"  # of the engine in a pipeline, by which noise goes
REPEATS = "the noise follows from the secret: over the same rows the same releases, at no cost"
CHARGED = "charged to {ledger}: another release takes another share of it"
ANEW = "noise is new in each run: to run this again is a second release, which costs as much again"
_TIME = pa.timestamp("us", "UTC")


def read_frame(part: Part, frame: Frame) -> ListedLane:
    """The rows of a frame, counted.

    Args:
      part: what counts them: one number.
      frame: the rows.

    Raises:
      ParameterError: the frame cannot be read. Then nothing is spent.
    """
    contents = contents_of(part)
    lane = ListedLane(part.engine, contents, LABEL)
    for micros, (counted,), keys, people in frame.columns([contents]):
        lane.add(micros, counted, keys, people)
    return lane


def released(lane: ListedLane, name: str) -> pa.Table:
    """The releases of what was counted; the budget is spent.

    Args:
      lane: what counted.
      name: of the column of values.
    """
    engine = lane.count
    entropy = engine.noise
    claim(engine.budget, by="over", spender=engine.spender(engine.counter, LABEL))
    again = ANEW
    if isinstance(engine.budget, Share):
        again = CHARGED.format(ledger=engine.budget.ledger.name or "a ledger")
    if entropy.is_replayable:
        again = REPEATS
    about = json.dumps({**engine.described, "again": again}, ensure_ascii=False)
    numbered = engine.inside.numbered
    kinds: dict[str, Any] = {"key": pa.string(), "step": pa.int64(), "start": _TIME}
    kinds |= {"timestamp": _TIME, **({"restart": pa.int64()} if numbered else {})}
    kinds |= {name: pa.float64(), f"{name}_stddev": pa.float64()}
    schema = pa.schema([*kinds.items()], metadata={"beam_dpcount": about})
    return pa.Table.from_batches(_batches(lane, schema, engine), schema)


def _batches(
    lane: ListedLane, schema: pa.Schema, engine: TickNumbersPlan
) -> Iterator[pa.RecordBatch]:
    for series in lane.releases():
        many = len(series.values)
        starts = [*engine.clock.borders(series.steps[0], many)][:many]
        columns = [[series.key] * many, [*series.steps], starts, series.ends]
        columns += [[series.restart] * many] * engine.inside.numbered
        columns += [series.values, series.stddevs]
        arrays = [pa.array(c, kind) for c, kind in zip(columns, schema.types, strict=True)]
        yield pa.record_batch(arrays, schema=schema)

"""A growing log as an unbounded source, whose watermark is the log's own clock."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
from apache_beam.io.restriction_trackers import OffsetRange, OffsetRestrictionTracker
from apache_beam.io.watermark_estimators import ManualWatermarkEstimator
from apache_beam.pvalue import PBegin, PCollection
from apache_beam.transforms.core import RestrictionProvider
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import Duration, Timestamp

from examples.live.lines import between, clock_of

WAIT = Duration(micros=200_000)  # until the end of the log is looked at again
_END = 1 << 62  # of a file that has none
_AT_ONCE = 1 << 18  # bytes between two reports of the watermark, once it has been read so far


class TailLog(beam.PTransform[Any, Any]):
    """The requests of a log that grows, with their times: PCollection[KV[service, fields]].

    The watermark is what the last clock line says, so when ticks fire depends on clock lines alone.
    A request that cannot be read, or does not lie between the clock lines that it stands between,
    is left out, and nothing tells. So no request is late.

    Requests come between two clock lines at a time, in order of time. The log is read from its
    start by every job: under replayable noise, the same log gives the same releases.

    Args:
      path: of the log, which may not exist yet. It must only grow.
      stop: milliseconds since 1970: the source ends at the first clock line from there on.
    """

    def __init__(self, path: str, stop: int) -> None:
        super().__init__()
        self._path, self._stop = path, stop

    def expand(self, begin: PBegin) -> PCollection[Any]:
        reading: Any = beam.ParDo(ReadLog(self._stop)).with_output_types(tuple[str, Any])
        path: Any = beam.Create([self._path], reshuffle=False)
        requests: PCollection[Any] = begin | "Path" >> path | "ReadLog" >> reading
        return requests


class _Bytes(RestrictionProvider):
    """All bytes of a log, which nobody splits: its clock is read in order."""

    def initial_restriction(self, path: str) -> OffsetRange:
        return OffsetRange(0, _END)

    def create_tracker(self, restriction: OffsetRange) -> OffsetRestrictionTracker:
        return _Whole(restriction)

    def restriction_size(self, path: str, restriction: OffsetRange) -> int:
        return 1  # what is left to be read is nobody's business

    def truncate(self, path: str, restriction: OffsetRange) -> None:
        return None  # a drained job reads no further


class _Whole(OffsetRestrictionTracker):
    """Stops where it was claimed up to, and nowhere else."""

    def try_split(self, fraction_of_remainder: float) -> Any:
        return super().try_split(0) if fraction_of_remainder == 0 else None

    def is_bounded(self) -> bool:
        return False


class ReadLog(beam.DoFn):
    """The splittable DoFn of TailLog: what it claims is the last byte of a clock line."""

    def __init__(self, stop: int) -> None:
        self._stop = stop

    @beam.DoFn.unbounded_per_element()
    def process(
        self,
        path: str,
        tracker: Any = beam.DoFn.RestrictionParam(_Bytes()),
        watermark: Any = beam.DoFn.WatermarkEstimatorParam(
            ManualWatermarkEstimator.default_provider()
        ),
    ) -> Iterator[Any]:
        begun = tracker.current_restriction().start
        known = watermark.current_watermark()
        clock = None if known is None else known.micros // 1000
        for end, time, lines in _parts(path, begun, clock):
            if not tracker.try_claim(end - 1):
                return
            if clock is not None:  # before the first clock line no time is known
                for request in between(lines, clock, time):
                    at = Timestamp(micros=request.at * 1000)
                    yield TimestampedValue((request.service, request.fields), at)
            clock = time
            if clock >= self._stop:
                tracker.try_claim(_END)  # there is no more
                return
            watermark.set_watermark(Timestamp(micros=clock * 1000))
            if end - begun > _AT_ONCE:
                tracker.defer_remainder(Duration(0))
                return
        tracker.defer_remainder(WAIT)


def _parts(path: str, offset: int, clock: int | None) -> Iterator[tuple[int, int, list[bytes]]]:
    """What lies between clock lines from an offset on: where it ends, the time then, the lines.

    A clock line that goes back, or stands still, is none. What follows the last one waits.
    """
    if not os.path.exists(path):
        return
    with open(path, "rb") as log:
        if log.seek(0, os.SEEK_END) < offset:
            raise RuntimeError("the log is shorter than it was: it may only grow")
        log.seek(offset)
        lines: list[bytes] = []
        for line in log:
            if not line.endswith(b"\n"):
                return  # the rest of it is still to come
            offset += len(line)
            time = clock_of(line)
            if time is None or (clock is not None and time <= clock):
                lines.append(line)
                continue
            yield offset, time, lines
            clock, lines = time, []

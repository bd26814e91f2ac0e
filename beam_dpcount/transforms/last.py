"""LastPerTick: of many releases the last one of every tick of a clock; post-processing."""

from __future__ import annotations

from typing import Any

import apache_beam as beam
from apache_beam import typehints
from apache_beam.pvalue import PCollection
from apache_beam.transforms.window import FixedWindows
from apache_beam.utils.timestamp import Duration, Timestamp

from beam_dpcount.counters.moments import duration_of, micros_of


class LastPerTick(beam.PTransform[Any, Any]):
    """The last release of each key in each tick of event time, in which it has one.

    PCollection of Release or VectorRelease -> the same, in FixedWindows of a tick. For per-element
    counts that release more than a dashboard needs: state and noise stay the same. The last release
    is the one of the largest step.

    Args:
      tick: the length of a tick, in seconds, or a timedelta.
      start: a border of the grid of ticks, as for TickCount. Default 0: 1970.

    Guarantee: post-processing; costs nothing. Which releases come is a function of the keys and
      times of the elements, which are public per element.

    Raises:
      ValueError, TypeError: tick is not positive, or start is not a time.

    Example:
      >>> import apache_beam as beam
      >>> import beam_dpcount as dp
      >>> with beam.Pipeline("FnApiRunner") as pipeline:
      ...     events = pipeline | beam.Create([("/home", 1), ("/home", 0)])
      ...     timed = events | beam.Map(lambda e: beam.window.TimestampedValue(e, 30))
      ...     releases = timed | dp.PrefixCount(dp.ZCDP(0.5), 1000)
      ...     _ = releases | dp.post.LastPerTick(60) | beam.Map(lambda release: print(release.step))
      2
    """

    def __init__(self, tick: object, start: object = 0) -> None:
        super().__init__()
        length, first = duration_of(tick), micros_of(start, "start")
        self._windows: Any = FixedWindows(Duration(micros=length), Timestamp(micros=first % length))

    def expand(self, releases: PCollection[Any]) -> PCollection[Any]:
        declared: Any = releases.element_type or typehints.Any
        keyed: Any = beam.Map(lambda release: (release.key, release))
        pairs = typehints.KV[str, declared]
        last: Any = beam.CombinePerKey(_last)
        return (
            releases
            | "Ticks" >> beam.WindowInto(self._windows)
            | "Key" >> keyed.with_output_types(pairs)
            | "Last" >> last.with_output_types(pairs)
            | "Values" >> beam.Values().with_output_types(declared)
        )


def _last(releases: Any) -> Any:
    return max(releases, key=lambda release: release.step)

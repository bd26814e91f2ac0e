"""Alarm: the releases at which a private count rises above what noise explains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from apache_beam.pvalue import PCollection

from beam_dpcount.dofns.folds import FirstCrossings, MarkedCrossings
from beam_dpcount.dofns.releases import Release, TickRelease
from beam_dpcount.plans.alarms import AlarmPlan
from beam_dpcount.plans.sentence import TickCountPlan
from beam_dpcount.transforms.described import Described
from beam_dpcount.transforms.last import LastPerTick
from beam_dpcount.transforms.postprocess import (
    FoldedReleases,
    OneRelease,
    ShrinkAcrossKeys,
    TopKPerTick,
)

_SMOOTH = (OneRelease, FoldedReleases, ShrinkAcrossKeys, TopKPerTick, LastPerTick)


@dataclass(eq=False, repr=False)
class Alarm(AlarmPlan, Described):
    """The releases at which a count rises above a level by more than noise explains.

    PCollection of Release or TickRelease -> the same: of each key the first release above its
    threshold, and then none until a release was at or below the level, from which on the next one
    above the threshold is given again. The threshold is the least for which the expected number of
    releases above it, of all watched keys and all ticks of `days` days in a row, is at most
    `false_alarms` while the true numbers are at or below the level: from the exact tails of the
    noise, tick by tick. An interval of 95 % for each tick is no such threshold: of 1,440 minutes of
    a sliding hour 36 a day lie above it by noise alone.

    The level is what ends an alarm, and not the threshold, around which noise would start it again
    and again. A count that stays between the two is still in its alarm; a count so far, which never
    falls, raises one. The true number is what the count counts: what bounds on people, or
    `max_per_tick`, leave out is in no release, and raises none.

    Args:
      count: the TickCount whose releases are watched, of listed keys or TOTAL.
      level: the most that is normal, in the numbers released: one for all keys, or {key: level};
        then keys without one are not watched, and not in the promise.
      false_alarms: how many are expected at most, of all keys together.
      days: in so many days: those in a row with the most noise; at most all of the clock.
      column: which one, if the count releases several, such as "count_last_7".
      path: "auto" (default) follows `is_bounded` of the input; "streaming" keeps two numbers a key
        in state, and takes releases in the order in which they come: one that comes after a later
        one, or again, gives nothing; "bounded" groups by key and sorts by step.

    Guarantee: post-processing; costs nothing (the unit of what it says is that of the count). Which
      alarms there are, and when, follows from the releases and public parameters alone.

    Attributes:
      threshold: above what a release raises an alarm; by key, if levels are.
      thresholds: the same, always by key.
      margin: how far above the level it is.
      expected: the expected number of false alarms, at most.

    Source: docs/proofs/tails.md.

    Raises:
      ValueError: keys are selected (those that are shown were chosen for high noise), the column is
        not a number with noise of its own, or an argument is out of range; and when applied, to
        what post-processing gives, whose errors are others.
      TypeError: count is not a TickCount, or the input is declared to hold something else.

    Example:
      >>> import apache_beam as beam
      >>> import beam_dpcount as dp
      >>> hours = dp.Clock("1h", start=0, ticks=48)
      >>> count = dp.TickCount(dp.ZCDP(0.5), hours.each(), keys=["/a", "/b"], key="page", time="at")
      >>> alarm = dp.Alarm(count, level=10)
      >>> alarm.threshold
      12.0
      >>> events = [{"page": "/a", "at": 3600 + i} for i in range(90)]
      >>> with beam.Pipeline("FnApiRunner") as pipeline:
      ...     alarms = pipeline | beam.Create(events) | count | alarm
      ...     _ = alarms | beam.Map(lambda release: print(release.key, release.step))
      /a 2
    """

    def expand(self, releases: PCollection[Any]) -> PCollection[Any]:
        _check_unsmoothed(releases)
        self._show_applied(releases.pipeline)
        found: PCollection[Any] = releases | "Crossings" >> _Crossings(self, FirstCrossings)
        return found


class _Crossings(FoldedReleases):
    takes = (Release, TickRelease)
    hint = ": give releases of a TickCount"

    def __init__(self, alarm: AlarmPlan, kind: type[FirstCrossings]) -> None:
        variances = [watch.counter.max_variance() for watch in alarm._watches]
        zones = alarm.zones
        super().__init__(kind(zones.places, zones.column, max(variances) ** 0.5), alarm.path)


class MarkAlarms(_Crossings):
    """All releases, as pairs with whether an alarm starts at them.

    PCollection of Release or TickRelease -> PCollection[(release, bool)].

    Args:
      alarm: what is watched.
    """

    gives = tuple[Any, bool]

    def __init__(self, alarm: AlarmPlan) -> None:
        super().__init__(alarm, MarkedCrossings)


def _check_unsmoothed(releases: PCollection[Any]) -> None:
    """Raise ValueError if post-processing is known to lie between a count and its releases."""
    ahead: list[Any] = [releases.producer]
    while ahead:
        applied = inner = ahead.pop()
        while applied is not None and applied.transform is not None:
            kind = type(applied.transform)
            if issubclass(kind, TickCountPlan):
                break
            if issubclass(kind, _SMOOTH):
                raise ValueError(
                    f"{kind.__name__} gives numbers whose errors are not the noise of the count, "
                    "so that no promise about false alarms would hold: apply Alarm to the count's "
                    "own releases"
                )
            applied = applied.parent
        else:
            if inner is not None:
                ahead += [pcoll.producer for pcoll in inner.inputs]

"""What an alarm watches, its thresholds, and how long a rise goes unseen, before anything runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from typing import Any

from beam_dpcount.arguments.meant import did_you_mean
from beam_dpcount.checks import ParameterError, check_choice, check_real
from beam_dpcount.counters.alarms import (
    Delay,
    Watch,
    above,
    margin_of,
    percent,
    ticks_in_days,
    ticks_unseen,
    zone_of,
)
from beam_dpcount.counters.selection import SelectKeys
from beam_dpcount.counters.summed_views import SummedViews
from beam_dpcount.noise.laws import DiscreteGaussian, DiscreteLaplace, RoundedGaussian
from beam_dpcount.plans.counting import PATHS
from beam_dpcount.plans.described import Plan
from beam_dpcount.plans.sentence import Part, TickCountPlan
from beam_dpcount.statistics.metrics import Count, People, Sum

_RISES = (1.5, 2, 3)  # margins, of which it is shown how long they go unseen
_NUMBERS = (Count, Sum, People)


@dataclass(eq=False, repr=False)
class AlarmPlan(Plan):
    """The arguments of `Alarm`, and what follows from them alone."""

    count: Any
    level: float | Mapping[str, float]
    false_alarms: float = 1
    days: float = 30
    _: KW_ONLY
    column: str | None = None
    path: str = "auto"

    # Where the column is a sum of releases: of which, and its place there.
    _sums: tuple[SummedViews, int] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        super().__init__()
        self._count = _check_count(self.count)
        self._part = self._watched_part()
        self.column = self._part.names[0]
        self._levels = self._checked_levels()
        self.level = self.level if self._same else dict(self._levels)
        for name in ("false_alarms", "days"):
            given = check_real(name, getattr(self, name), f"give e.g. {name}=1")
            if not 0 < given < math.inf:
                raise ParameterError(name, f"must be positive, got {given:g}", f"give {{{name}=}}1")
        check_choice("path", self.path, PATHS)
        self._margin = max(margin_of(watch, self.false_alarms) for watch in self._watches)
        self._fix()

    def default_label(self) -> str:
        return "Alarm"

    # What is watched

    def _watched_part(self) -> Part:
        """The part of the count that releases the column."""
        count, column = self._count, self.column
        if isinstance(count.keys, SelectKeys):
            raise ValueError(
                "keys that SelectKeys shows were chosen for high noise, so that no promise about "
                "false alarms would hold: list the keys to watch, keys=[...], in a TickCount of "
                "their own with a share of the Ledger"
            )
        names: Sequence[str] = count.columns
        if column is None:
            if len(names) > 1:
                raise ParameterError(
                    "column",
                    f"is needed, as the count releases {', '.join(names)}",
                    f"say which to watch, e.g. {{column=}}{names[0]!r}",
                )
            column = names[0]
        if column not in names:
            raise ParameterError(
                "column",
                f"is {column!r}, but the count releases {', '.join(names)}",
                f"{did_you_mean(str(column), names)}give one of them",
            )
        part: Part = next(part for part in count._parts if column in part.names)
        own = "give it a TickCount of its own, with a share of a Ledger, and watch that"
        combined = count.combined
        if combined is not None and column in combined.names:
            if not isinstance(combined.views, SummedViews):
                problem = f"{column!r} is computed from several releases, and has no exact tail"
                raise ParameterError("column", problem, own)
            self._sums = combined.views, combined.names.index(column)
            (metric,) = part.metrics
            view = next(view for view in count._views if column in count._named(view, metric))
            return part._replace(view=view, names=(column,))
        metric = next(m for m in part.metrics if column in count._named(part.view, m))
        if not isinstance(metric, _NUMBERS):
            raise ParameterError(
                "column",
                f"{column!r} has noise without an exact tail, as it depends on the events",
                "watch a Count, a Sum or People",
            )
        if not part.engine.is_number:
            problem = f"{column!r} is counted in one vector with {', '.join(part.names)}"
            problem += ", whose coordinates have no exact tails of their own"
            raise ParameterError("column", problem, own)
        law = part.engine.counter.law
        if not isinstance(law, DiscreteLaplace | DiscreteGaussian | RoundedGaussian):
            raise ParameterError("count", f"has noise without an exact tail, {law!r}", own)
        return part

    @property
    def _watches(self) -> list[Watch]:
        """The noise that is watched; on either path, unless it is known which the count takes."""
        view, engine = self._part.view, self._part.engine
        ticks = ticks_in_days(view, self.days)
        counters = [engine.counter] if engine._path_known else engine._counters.values()
        grid, many = engine._restarts or engine.clock, len(self._levels)
        if self._sums is not None:
            views, place = self._sums
            counters = [replace(views, each=counter).counters[place] for counter in counters]
            grid = view.grid
        return [Watch(counter, grid, ticks, many) for counter in counters]

    def _checked_levels(self) -> Mapping[str, float]:
        keys: Sequence[str] = self._part.engine._listed
        if not isinstance(self.level, Mapping):
            return dict.fromkeys(keys, _check_level("level", self.level))
        if not self.level:
            raise ParameterError("level", "is empty", "give a number for each key to watch")
        for key in self.level:
            if key not in keys:
                problem = f"names {key!r}, which is not one of keys"
                remedy = f"{did_you_mean(str(key), keys)}give a level for keys that are counted"
                raise ParameterError("level", problem, remedy)
        return {key: _check_level(f"level of {key!r}", x) for key, x in self.level.items()}

    @property
    def _same(self) -> bool:
        return not isinstance(self.level, Mapping)

    # What follows

    @property
    def margin(self) -> float:
        """How far above the level the threshold is: the same for all keys."""
        return self._margin

    @cached_property
    def thresholds(self) -> Mapping[str, float]:
        """By key, above what a release raises an alarm."""
        return {key: above(level, self.margin) for key, level in self._levels.items()}

    @property
    def threshold(self) -> float | Mapping[str, float]:
        """Above what a release raises an alarm; by key, if levels are by key."""
        return next(iter(self.thresholds.values())) if self._same else self.thresholds

    @property
    def zones(self) -> Zones:
        """Where releases lie beside levels and thresholds."""
        places = {key: (level, self.thresholds[key]) for key, level in self._levels.items()}
        return Zones(str(self.column), places)

    @property
    def expected(self) -> float:
        """The expected number of false alarms in `days`, at most: of all keys together."""
        return max(watch.false_alarms(self.margin) for watch in self._watches)

    def delay(self, rise: float) -> Delay:
        """How long a rise goes unseen: when the expected number crosses the threshold.

        A rise is of the number that is released, from the level: of one tick; of the last n ticks,
        where it comes in n equal parts; of a count that restarts, by its end, where the level comes
        in equal parts, too, and ticks are counted from the restart. Counts so far rise at once.

        Args:
          rise: how far above the level the number comes, in its units.

        Returns:
          ticks: at which tick of the rise the expected number lies above the threshold; None if
            never. Of levels by key, of the key for which it is latest.
          seen: a lower bound on the probability that the release lies above the threshold at the
            first tick at which the rise is whole.

        Example:
          >>> import beam_dpcount as dp
          >>> hours = dp.Clock("1h", start=0, ticks=2160)
          >>> count = dp.TickCount(dp.ZCDP(0.1), hours.each(), keys=["/home", "/cart"])
          >>> alarm = dp.Alarm(count, 100)
          >>> alarm.threshold
          107.0
          >>> alarm.delay(15)
          Delay(expected at tick 1, probability at the whole rise >= 99.9 %)
        """
        given = check_real("rise", rise, "give e.g. 100")
        view, margin = self._part.view, self.margin
        found = [ticks_unseen(view, level, margin, given) for level in set(self._levels.values())]
        ticks = None if None in found else max(tick for tick in found if tick is not None)
        return Delay(ticks, min(watch.seen(margin, given) for watch in self._watches))

    # What is shown

    def describe(self) -> Mapping[str, str]:
        """All of it in words."""
        return self._describe()

    def _describe(self) -> Mapping[str, str]:
        keys = len(self._levels)
        of = f"{keys:,} keys" if keys > 1 else repr(next(iter(self._levels)))
        releases = self._watches[0].releases
        return {
            "watches": f"{self.column} of {of}, at every tick ({self._part.view.name})",
            "threshold": f"{self._thresholds_in_words()} ({self.margin:.6g} above the level)",
            "false_alarms": (
                f"at most {self.expected:.3g} expected in {self.days:g} days, of {releases:,} "
                "releases in all, while the true numbers are at or below the level"
            ),
            "ends": "when a release is at or below the level; until then it is silent",
            "unseen": "; ".join(self._delays_in_words()),
        }

    def _thresholds_in_words(self) -> str:
        if self._same:
            return f"above {self.threshold:.10g}"
        shown = [f"{key!r} above {x:.10g}" for key, x in [*self.thresholds.items()][:5]]
        more = len(self.thresholds) - len(shown)
        return ", ".join(shown) + f" and {more:,} more" * (more > 0)

    def _delays_in_words(self) -> list[str]:
        lines = [f"a rise of {self.margin:.4g} or less is not expected to raise an alarm"]
        for rise in (float(f"{self.margin * times:.3g}") for times in _RISES):
            ticks, chance = self.delay(rise)
            if ticks is not None:
                seen = f"with {percent(chance)} or more once it is whole"
                lines.append(f"one of {rise:g} is at its tick {ticks:,}, {seen}")
        return lines

    def __repr__(self) -> str:
        shown = (f"  {name.replace('_', ' ')}: {text}" for name, text in self._describe().items())
        return "\n".join(("Alarm(", *shown, ")"))


@dataclass(frozen=True)
class Zones:
    """Where releases lie beside an alarm's levels and thresholds. Picklable.

    Args:
      column: that is watched.
      places: by key, its level and its threshold; others are not watched.
    """

    column: str
    places: Mapping[str, tuple[float, float]]

    @property
    def name(self) -> str:
        """The column that says where alarms start."""
        return f"{self.column}_alarm"

    def of(self, key: str, value: float | None) -> int:
        """`zone_of` a release."""
        place = self.places.get(key)
        return 0 if place is None else zone_of(value, *place)


def _check_count(given: Any) -> TickCountPlan:
    given = getattr(given, "transform", given)  # that of "Name" >> count
    if isinstance(given, TickCountPlan):
        return given
    kind = type(given).__name__
    if type(given).__module__.startswith(_POST):
        raise TypeError(
            f"count is {kind}, whose numbers have other errors than the noise of releases: give "
            "the TickCount itself, and apply the alarm to its own releases"
        )
    raise TypeError(f"count must be the TickCount whose releases are watched, got {kind}")


_POST = ("beam_dpcount.transforms.postprocess", "beam_dpcount.transforms.last")


def _check_level(name: str, given: Any) -> float:
    level = check_real(name, given, "give e.g. 100, the most that is normal")
    if not math.isfinite(level):
        raise ParameterError("level", f"must be finite, got {level}", "give e.g. {level=}100")
    return level

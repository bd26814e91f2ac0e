"""What a TickCount counts: its engines, and what follows from its arguments alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from fractions import Fraction
from typing import Any, ClassVar, NamedTuple

from beam_dpcount.budget.budgets import Budget, PureDP
from beam_dpcount.budget.ledger import Ledger, plain_budget
from beam_dpcount.budget.shares import Share
from beam_dpcount.checks import ParameterError, check_callable, check_choice, check_whole
from beam_dpcount.counters.clock import Clock, Each, Last, Restart, now
from beam_dpcount.counters.grid import Grid
from beam_dpcount.counters.people import Users, check_users
from beam_dpcount.counters.periods import Periods, periods_of
from beam_dpcount.counters.selection import Selection, SelectKeys
from beam_dpcount.counters.summed_views import MOST_SUMMED, SummedViews, can_sum
from beam_dpcount.counters.total import ALL, Total
from beam_dpcount.counters.views import (
    MOST_LAGS,
    MOST_TICKS,
    CombinedColumns,
    CombinedViews,
    can_combine,
)
from beam_dpcount.mechanisms import Mechanism
from beam_dpcount.noise.entropy import Entropy
from beam_dpcount.plans.described import ENDLESS, Plan, configured
from beam_dpcount.plans.inside import Inside
from beam_dpcount.plans.losses import epsilon_of, together_anywhere
from beam_dpcount.plans.ticks import NEEDS_EVENTS, TickNumbersPlan, View
from beam_dpcount.plans.values import FieldsOf, NumberOf, Ones
from beam_dpcount.plans.vectors import TickVectorsPlan
from beam_dpcount.statistics.metrics import Count, Metric, People, Sum
from beam_dpcount.statistics.metrics.joint import Joint, check_metrics

_NUMBERS = (Count, Sum, People)
_SHOWS_KEYS = Count(name="(number of events that shows keys)")
# Arguments that engines take as they are.
_OF_ENGINES = (
    *("users", "mechanism", "relation", "max_per_tick", "until", "late", "on_unknown"),
    *("on_reject", "other", "path", "entropy", "allow_runner"),
)
# Of the budget of "so far", "each" and "last" where they are combined, without and with "last".
_PERCENTS: tuple[dict[str | None, tuple[int, ...]], ...] = (
    {None: (60, 40), "so-far": (90, 10), "each": (30, 70)},
    {None: (40, 30, 30), "so-far": (70, 15, 15), "each": (20, 60, 20), "last": (20, 20, 60)},
)
_PREFERABLE: dict[str, Any] = {"so-far": Clock, "each": Each, "last": Last}
_KEYS = (
    "give keys=[...] with the public keys, keys=dp.SelectKeys() if they are private, or "
    "keys=dp.TOTAL for one total"
)


class Part(NamedTuple):
    """One engine, and what it counts.

    Fields:
      view: of the clock.
      metrics: which it counts.
      names: their columns, and those that are sums of them.
      share: of the budget.
      engine: what counts them.
    """

    view: View
    metrics: tuple[Metric, ...]
    names: tuple[str, ...]
    share: Fraction
    engine: Any

    @property
    def label(self) -> str:
        return f"{', '.join(self.names)}"


@dataclass(eq=False, repr=False)
class TickCountPlan(Plan):
    """The arguments of `TickCount`, and what follows from them alone.

    Alone it counts one number, of listed keys or TOTAL, in one view.
    """

    budget: Budget | Share
    clock: Clock | Each | Last | Restart | Sequence[Any]
    what: Metric | Sequence[Metric] = Count()
    _: KW_ONLY
    keys: Sequence[str] | SelectKeys | Total | None = None
    users: Users | None = None
    mechanism: Mechanism | type[Mechanism] | str | None = None
    relation: str = "add_remove"
    max_per_tick: int | None = None
    until: Any = None
    late: str | None = None
    on_unknown: str = "drop"
    on_reject: str = "drop"
    other: str | None = None
    confidence: float = 0.95
    prefer: str | None = None
    value: Callable[[Any], Any] | None = None
    key: str | Callable[[Any], Any] | None = None
    max_items: int | None = None
    time: str | Callable[[Any], Any] | None = None
    path: str = "auto"
    entropy: Entropy | None = None
    allow_runner: bool = False

    columns: tuple[str, ...] = field(init=False)

    _numbers_kind: ClassVar[Any] = TickNumbersPlan  # the engine of one number
    _vectors_kind: ClassVar[Any] = TickVectorsPlan  # that of several

    def __post_init__(self) -> None:
        super().__init__()
        self._views = _check_views(self.clock)
        self._metrics = _check_what(self.what)
        check_callable("value", self.value)
        _check_confidence(self.confidence)
        if self.prefer is not None:
            check_choice("prefer", self.prefer, tuple(_PREFERABLE))
        self._check_keys()
        self._check_people()
        self._check_views_of_keys()
        self._present = now()  # once: parts that read it by themselves would release unlike ticks
        self._budget, self._account = plain_budget(self.budget)
        self._parts = self._made_parts()
        self._check_prefer()
        names = [self._named(view, metric) for view in self._views for metric in self._metrics]
        self.columns = _check_columns([name for some in names for name in some])
        self._fix()

    def default_label(self) -> str:
        """What it is called, also where noise goes by it."""
        return "TickCount"

    def _check_keys(self) -> None:
        if self.keys is None:
            problem = "key names the field of the key, but" if self.key is not None else "there are"
            raise ValueError(f"{problem} no keys: {_KEYS}")
        if isinstance(self.keys, type) and issubclass(self.keys, Total):
            raise TypeError("keys is the class Total: give keys=dp.TOTAL")
        if isinstance(self.keys, Total):
            for name, plain in (("key", None), ("other", None), ("on_unknown", "drop")):
                if getattr(self, name) != plain:
                    raise ValueError(f"{name} is for events of several keys: leave it out of TOTAL")
        if self.max_items is not None:
            self._check_items()
        for name in ("key", "time"):
            given = getattr(self, name)
            if given is not None and not callable(given) and not (isinstance(given, str) and given):
                raise TypeError(
                    f"{name} must be the name of a field or a function of the event, got {given!r}:"
                    f' e.g. {name}="{"page" if name == "key" else "at"}"'
                )
        if self.time is not None and self.path == "streaming":
            raise ValueError(TIMES_OF_STREAMS)

    def _check_items(self) -> None:
        check_whole("max_items", self.max_items)
        if self.key is None or (self.other, self.on_unknown) != (None, "drop"):
            raise ParameterError("max_items", *ONE_KEY)
        if self.users is None and not self._is_number(self._metrics):
            raise ParameterError("max_items", *ONE_NUMBER)

    def _check_people(self) -> None:
        people = any(isinstance(metric, People) for metric in self._metrics)
        if self.users is None:
            if people:
                raise ValueError(
                    "People counts each person once a key, and needs to know who they are: give "
                    "users=Users(by, events)"
                )
            return
        users = check_users(self.users)
        self._check_uncapped(users)
        if not people:
            return
        if users.asserted:
            raise ValueError(
                "each person's first events are found while people's events are bounded, so that "
                "nothing is left to assert: leave asserted out"
            )
        alone = len(self._metrics) == 1
        lasts = any(self._active_ticks(view) for view in self._views)
        if users.per is not None:
            self._check_people_of_periods(users)
        if (alone or lasts) and (users.per_key not in (None, 1) or users.gap is not None):
            raise ValueError(
                "People counts each person once a key: give Users(by, events), no per_key or gap"
            )

    def _check_uncapped(self, users: Users) -> None:
        """Refuse people without a cap on their events where more than their activity counts."""
        of_activity = all(isinstance(view, Last | Each) for view in self._views)
        alone = all(isinstance(metric, People) for metric in self._metrics)
        if users.events is None and not (alone and of_activity):
            raise ParameterError("events", *NEEDS_EVENTS)

    def _check_people_of_periods(self, users: Users) -> None:
        """Refuse views in which a person of several periods would count several times."""
        for view in self._views:
            if isinstance(view, Each | Last):
                continue
            many = 2
            if isinstance(view, Restart):
                periods = periods_of(self._clock, users.per)
                _, many = periods.restarts(view.grid)
            if many > 1:
                problem = f"count a person once a period, and {view.name!r} is of several"
                remedy = "take clock.each(), or clock.restart(n) within a period"
                raise ParameterError("per", f"makes People {problem}", remedy)

    def _check_views_of_keys(self) -> None:
        views = self._views
        if isinstance(self.keys, SelectKeys):
            if len(views) > 1:
                raise ValueError(
                    "SelectKeys with a list of views would show other keys in each: give one view, "
                    "or a TickCount for each of them"
                )
            if isinstance(views[0], Last) and not all(isinstance(m, People) for m in self._metrics):
                raise ValueError(
                    "SelectKeys shows keys by counts that only grow, or by people who are active, "
                    "and other sums over the last ticks fall too: count dp.People() alone, list "
                    "the keys, or take clock.each() or clock.restart(n)"
                )
            active = self.users is not None and self._active_ticks(views[0]) is not None
            if views[0].clock.is_endless and active and counts_people(self._metrics):
                raise ValueError(
                    "SelectKeys by people who are active needs a clock that ends: give Clock(..., "
                    "ticks=...) or stop"
                )
        for view in views:
            if isinstance(view, Clock) and view.is_endless:
                raise ValueError(
                    "a count of all events so far needs a clock that ends: give Clock(..., "
                    "ticks=...) or stop, or count clock.each(), .last(n) or .restart(n)"
                )
        plain = len(views) == 1 and not isinstance(views[0], Each | Last)
        if self.mechanism is not None and not plain:
            raise ParameterError(
                "mechanism",
                "is for one count, so far or one that restarts, as other views have their own",
                "leave {mechanism} out",
            )

    @property
    def _read_as(self) -> str | None:
        """How keys and times are read, for replayable noise and accounts; None: pairs, timed."""
        return self._read_by(self.key, self.time)

    def _read_by(self, key: Any, time: Any) -> str | None:
        """The same where these are what holds keys and times."""
        if self.max_items is not None:
            return configured((key, time, self.max_items))
        return None if key is time is None else configured((key, time))

    @property
    def _clock(self) -> Clock:
        return self._views[0].clock

    @property
    def _key_texts(self) -> Any:
        return (ALL,) if isinstance(self.keys, Total) else self.keys

    def _named(self, view: View, metric: Metric) -> tuple[str, ...]:
        suffix = view.suffix
        if isinstance(view, Restart) and any(isinstance(other, Clock) for other in self._views):
            suffix = f"_{view.name.replace(' ', '_')}"  # beside the count so far
        return tuple(name + suffix for name in metric.columns)

    def _made_parts(self) -> list[Part]:
        shares = self._shares_of_combined()
        parts = self._parts_with(shares)
        if shares and self._combined_of(parts) is None:
            parts = self._parts_with({})
        summed = self._summed_parts()
        return summed if summed and self._are_better(summed, parts) else parts

    @property
    def _summable(self) -> list[View]:
        """The views, "each" first, if the others are sums of it; else none."""
        views = sorted(self._views, key=lambda view: not isinstance(view, Each))
        kinds = [type(view) for view in views]
        if len(views) == 1 or kinds[0] is not Each:
            return []
        if Restart in kinds and self.users is not None:
            return []  # people are bounded by each window anew
        if not self._is_number(self._metrics) or counts_people(self._metrics):
            return []
        most = max((view.ticks for view in views if isinstance(view, Last)), default=0)
        return views if most <= MOST_SUMMED and not self._is_too_long(views) else []

    def _is_too_long(self, views: Sequence[View]) -> bool:
        """Whether a count so far has more ticks than intervals are computed of."""
        return any(isinstance(view, Clock) for view in views) and self.grid.ticks > MOST_TICKS

    def _summed_parts(self) -> list[Part]:
        """One part, which counts each tick under the whole budget, and of which others are sums."""
        views = self._summable
        if not views:
            return []
        each, some = views[0], self._metrics
        names = tuple(
            name for view in views for metric in some for name in self._named(view, metric)
        )
        engine = self._engine(self.budget, each, some, names[:1])
        if not can_sum(engine.counter):
            return []
        return [Part(each, some, names, Fraction(1), engine)]

    def _are_better(self, summed: Sequence[Part], parts: Sequence[Part]) -> bool:
        """Whether sums of each tick lose less against shares of the budget than these against them;
        and no precision of the number that is preferred."""
        of_sums, of_split = self._stddevs_of(summed), self._stddevs_of(parts)
        if self.prefer is not None:
            column = next(iter(self._columns_of(self.prefer)), None)
            if column is None or of_sums[column] > of_split[column]:
                return False
        pairs = [(of_sums[name], of_split[name]) for name in of_sums]
        lost = max(_ratio(sums, split) for sums, split in pairs)
        return lost <= max(_ratio(split, sums) for sums, split in pairs)

    def _stddevs_of(self, parts: Sequence[Part]) -> dict[str, float]:
        """The largest standard deviation of each column."""
        combined = self._combined_of(parts)
        of_parts = [largest_stddevs(part, combined) for part in parts]
        return {name: stddev for each in of_parts for name, stddev in each.items()}

    def _columns_of(self, prefer: str) -> list[str]:
        """The columns of the view that may be preferred by this name."""
        kind = _PREFERABLE[prefer]
        some = [view for view in self._views if isinstance(view, kind)]
        return [name for view in some for m in self._metrics for name in self._named(view, m)]

    def _parts_with(self, of_views: Mapping[View, Fraction]) -> list[Part]:
        """The parts, of whose budget views get these shares, by default equal ones."""
        groups = [(view, some) for view in self._views for some in self._groups(view)]
        pure, equal = isinstance(self._budget, PureDP), Fraction(1, len(self._views))
        weights = [_weight(some, pure) / _weight(self._metrics, pure) for _, some in groups]
        shares = [
            weight * of_views.get(view, equal)
            for (view, _), weight in zip(groups, weights, strict=True)
        ]
        budgets = _split(self._budget, self.budget, shares)
        parts = []
        for (view, some), share, budget in zip(groups, shares, budgets, strict=True):
            names = tuple(name for metric in some for name in self._named(view, metric))
            parts.append(Part(view, some, names, share, self._engine(budget, view, some, names)))
        return parts

    @property
    def combinable(self) -> dict[str, Any]:
        """Views of one sum of events whose numbers tell of one another, by name.

        At least "so-far" and "each", or none.
        """
        if not self._is_number(self._metrics) or counts_people(self._metrics):
            return {}
        found: dict[str, Any] = {}
        for name, kind in _PREFERABLE.items():
            some = [view for view in self._views if isinstance(view, kind)]
            if some:
                found[name] = some[0]
        if not {"so-far", "each"} <= found.keys() or self.grid.ticks > MOST_TICKS:
            return {}
        if "last" in found and found["last"].ticks > MOST_LAGS:
            del found["last"]
        return found

    def _shares_of_combined(self) -> dict[View, Fraction]:
        """Of the budget, those of views that are combined."""
        views = self.combinable
        if not views:
            return {}
        percents = _PERCENTS["last" in views]
        of_each = percents.get(self.prefer) or percents[None]
        whole = Fraction(len(views), len(self._views))
        return {
            view: whole * Fraction(percent, 100)
            for view, percent in zip(views.values(), of_each, strict=True)
        }

    def _combined_of(self, parts: Sequence[Part]) -> CombinedColumns | None:
        if len(parts) == 1 < len(self._views):
            (part,), ticks = parts, None if self._clock.is_endless else self.grid.ticks
            windows = tuple(_window_of(view) for view in self._summable)
            summed = SummedViews(part.engine.counter, windows, ticks)
            return CombinedColumns(summed, part.names, self.confidence)
        views = self.combinable
        if not views:
            return None
        of = {part.view: part for part in parts}
        so_far, each, *more = (of[view].engine.counter for view in views.values())
        last = more[0] if more else None
        ticks, window = self.grid.ticks, views["last"].ticks if "last" in views else 0
        if not can_combine(so_far, each, ticks, window):
            return None
        names = tuple(name for view in views.values() for name in of[view].names)
        combined = CombinedViews(so_far, each, last, ticks, window)
        return CombinedColumns(combined, names, self.confidence)

    @property
    def combined(self) -> CombinedColumns | None:
        """The columns that are combined; None: none are."""
        return self._combined_of(self._parts)

    def _check_prefer(self) -> None:
        if self.prefer is None:
            return
        if self.prefer not in self.preferable:
            problem = f"weighs views that are combined, and here {self._apart()}"
            raise ParameterError("prefer", problem, "leave {prefer} out")

    @property
    def preferable(self) -> list[str]:
        """The views of which `prefer` may name one."""
        if self._summable:
            return [name for name in _PREFERABLE if self._columns_of(name)]
        return [*self.combinable] if self.combined is not None else []

    def _apart(self) -> str:
        """Why the view that is preferred is not combined with others."""
        kinds = [type(view) for view in self._views]
        if not {Clock, Each} <= set(kinds):
            return "they are not: they need the count so far and each tick alone"
        if not self._is_number(self._metrics) or counts_people(self._metrics):
            return "they are not, as not one Count or Sum of events is counted"
        if self.grid.ticks > MOST_TICKS:
            return f"they are not, as the clock has more than {MOST_TICKS:,} ticks"
        if self.prefer == "last":
            return f"no sum over the last {MOST_LAGS} or fewer ticks is"
        return "they are not, as the noise is not Gaussian: take a budget with rho or a delta"

    def _groups(self, view: View) -> list[tuple[Metric, ...]]:
        """The metrics that one engine counts in a view."""
        people = tuple(metric for metric in self._metrics if isinstance(metric, People))
        others = tuple(metric for metric in self._metrics if not isinstance(metric, People))
        if isinstance(view, Last) and people and others:
            return [others, people]
        return [self._metrics]

    def _engine(
        self,
        budget: Budget | Share,
        view: View,
        metrics: tuple[Metric, ...],
        names: Sequence[str],
        vectors: bool = False,
    ) -> Any:
        """What counts these metrics in a view; as vectors even if they are one number."""
        numbered, users = isinstance(view, Restart), self.users
        active = self._active_ticks(view) if counts_people(metrics) else None
        if active is not None:
            view = view.clock.each()
        elif isinstance(view, Each) and (
            counts_people(metrics) or isinstance(self.keys, SelectKeys)
        ):
            view = view.clock.restart(1)  # whose counts bound people, and show keys, anew
        options = {name: getattr(self, name) for name in _OF_ENGINES}
        inside = Inside(
            names=tuple(names),
            numbered=numbered,
            time_columns=(self.time,) if isinstance(self.time, str) else (),
            fingerprint=self._read_as,
            present=self._present,
        )
        options |= {"budget": budget, "keys": self._key_texts, "view": view, "inside": inside}
        if vectors or not self._is_number(metrics):
            return self._vectors(options, metrics)
        (metric,) = metrics
        if isinstance(metric, Sum):
            options |= {"bounds": (metric.low, metric.high), "unit": metric.step}
            options["value"] = self._number_of(metric)
        else:
            options["value"] = Ones(self.value)
        if users is None and self.max_items is not None:
            options["max_items"] = self.max_items
        if active is not None:
            return self._active(options, active)
        if isinstance(metric, People) and users is not None:
            options["users"] = replace(users, per_key=1)
        return self._numbers_kind(**options)

    def _active_ticks(self, view: View) -> int | None:
        """For how many ticks an event makes a person active; None: people count once a window."""
        if isinstance(view, Last):
            ticks: int = view.ticks
            return ticks
        uncapped = self.users is not None and self.users.events is None
        return 1 if isinstance(view, Each) and uncapped else None

    def _is_number(self, metrics: tuple[Metric, ...]) -> bool:
        if len(metrics) > 1 or type(metrics[0]) not in _NUMBERS:
            return False
        return not (isinstance(self.keys, SelectKeys) and isinstance(metrics[0], Sum))

    def _number_of(self, metric: Sum) -> Callable[[Any], Any] | None:
        if metric.field is not None:
            return NumberOf(metric.field, self.value)
        if self.value is None and self.users is not None and not self.users.asserted:
            raise ValueError(
                "Sum without a field sums what events hold, which users takes the person out of: "
                'give the field, e.g. Sum("amount", 0, 100), or value=lambda event: event["amount"]'
            )
        return self.value

    @property
    def engine(self) -> Any:
        """The engine, if there is one."""
        return self._parts[0].engine if len(self._parts) == 1 == len(self._views) else None

    @property
    def counter(self) -> Any:
        """The calibrated counter of each key, if there is one part; see `counters`."""
        if self.engine is None:
            raise AttributeError("there are several counters: take .counters, by their columns")
        return self.engine.counter

    @property
    def counters(self) -> dict[str, Any]:
        """The calibrated counter of each part, by its columns."""
        return {part.label: part.engine.counter for part in self._parts}

    @property
    def selection(self) -> Selection | None:
        """When keys are shown; None if they were listed."""
        found: Selection | None = self._parts[0].engine.selection
        return found

    def epsilon_at(
        self, delta: float | None = None, *, periods: int | None = None, age: int | None = None
    ) -> float:
        """The epsilon that all releases together satisfy at this delta.

        Args:
          delta: in all, with what showing keys that nobody listed takes of it; default: that of
            the budget, else 1e-6.
          periods: with `Users(per=...)`: for so many periods of one person together, whichever they
            are. Default: one of them. Before it is applied it is known of bounded input, or with
            path="streaming" of a stream, where late events of two periods may meet in one tick.
          age: of the releases until so many ticks after one event, of the first half of the clock
            (of each window, where a view restarts), as for `Counter.epsilon_at`. Default: of all.

        Raises:
          ValueError: no epsilon holds at this delta; or periods is of people who are not protected
            period by period; or age is of people, or of an event that changes several numbers.

        Example:
          >>> import beam_dpcount as dp
          >>> days = dp.Clock("1d", start=0, ticks=365)
          >>> users = dp.Users("user", events=5, per="1d")
          >>> budget = dp.ApproxDP(1.0, 1e-6)
          >>> count = dp.TickCount(budget, days, keys=dp.TOTAL, users=users)
          >>> [round(count.epsilon_at(1e-6, periods=n), 1) for n in (1, 7, 30)]
          [1.0, 7.8, 45.3]
        """
        return epsilon_of([part.engine for part in self._parts], delta, periods, age)

    @property
    def _periods(self) -> Periods | None:
        found: Periods | None = self._parts[0].engine._periods
        return found

    @property
    def grid(self) -> Any:
        """All ticks, as data."""
        return self._clock.grid

    @property
    def ticks_released(self) -> int:
        """How many of the clock's ticks are released, on bounded input."""
        return int(self._parts[0].engine.ticks_released)

    @property
    def ticks_left(self) -> int:
        """How many ticks are not released because they have not ended."""
        return int(self._parts[0].engine.ticks_left)

    @property
    def numbers(self) -> Any:
        """The engine, if there is one and it counts numbers; else None."""
        engine = self.engine
        return engine if type(engine) is self._numbers_kind else None

    def _describe(self) -> Mapping[str, str]:
        first = dict(self._parts[0].engine._describe())
        first |= {"what": ", ".join(map(repr, self._metrics)), "columns": ", ".join(self.columns)}
        first["views"] = ", ".join(view.name for view in self._views)
        first["ticks"] = ENDLESS if self._clock.is_endless else str(self._clock.grid.steps)
        if self.users is not None:
            norms = norms_of(self._parts)
            first["users"] = f"{first['users']}; L2 norm of what a person changes: {norms}"
            if "together" in first:
                first["together"] = together_anywhere([part.engine for part in self._parts])
        if isinstance(self.keys, Total):
            first["keys"] = "one total"
        if self.engine is not None:
            return first
        for name in ("mechanism", "noise", "horizon", "also_satisfies", "window"):
            first.pop(name, None)
        first |= {"budget": str(self._budget), **self._account}
        if len(self._parts) > 1:
            first["views"] += f": the budget is split among them, {shares_of(self._parts)}"
        for part in self._parts:
            own = part.engine._describe()
            known = ("budget", "mechanism", "noise", "neighbouring_relation")
            first[f"part {part.label}"] = ", ".join(f"{name}: {own[name]}" for name in known)
        combined = self.combined
        if combined is not None:
            first["views"] += f"; {combined.said}"
        largest = (_largest_of(part, combined) for part in self._parts)
        first["largest_stddev_of_columns"] = ", ".join(largest)
        return first

    # Engines of other numbers.

    def _vectors(self, options: dict[str, Any], metrics: tuple[Metric, ...]) -> Any:
        """What counts several numbers as one vector."""
        if isinstance(self.keys, SelectKeys) and not any(isinstance(m, Count) for m in metrics):
            metrics = (*metrics, _SHOWS_KEYS)
        value: Any = FieldsOf(self.value) if Joint(metrics).needs_mapping else self.value
        return self._vectors_kind(
            **options, metrics=check_metrics(metrics), confidence=self.confidence, value=value
        )

    def _active(self, options: dict[str, Any], ticks: int) -> Any:
        """What counts people of the last ticks."""
        raise NotImplementedError


ON_LATTICE = ", on the lattice that several metrics share"
ONE_KEY = (
    "is for events whose key is a collection",
    "give key, the field that holds it, without other and on_unknown, or leave {max_items} out",
)
ONE_NUMBER = (
    "is for one Count or Sum, as a vector of several numbers counts under one key",
    "give each metric a TickCount of its own, with shares of a Ledger, or users, of whom each key "
    "of an event is an event",
)
TIMES_OF_STREAMS = (
    "time is for bounded input, as events of a stream carry their time: leave it out, and give "
    "elements their timestamps where they are read"
)


def _check_views(given: object) -> tuple[View, ...]:
    views = tuple(given) if isinstance(given, list | tuple) else (given,)
    example = 'give dp.Clock("1h", start="2026-01-15T00:00:00Z", ticks=24) or one of its views'
    for view in views:
        if not isinstance(view, Clock | Each | Last | Restart):
            raise TypeError(
                f"clock must be a Clock, a view of one or a list, got {view!r}: {example}"
            )
    if not views:
        raise ValueError(f"clock is an empty list: {example}")
    for view in views:
        if views.count(view) > 1:
            raise ValueError(f"clock has the view {view.name!r} twice: give it once")
    if sum(isinstance(view, Restart) for view in views) > 1:
        raise ValueError(
            "clock has two views that restart, and a row has one number of its restart: give each "
            "a TickCount of its own, with a share of a Ledger"
        )
    if any(view.clock != views[0].clock for view in views):
        raise ValueError("views are of different clocks: take them of one clock")
    return views


def _ratio(one: float, other: float) -> float:
    """How many times as large one is; of two that are 0, once."""
    if one == other:
        return 1.0
    return one / other if other else math.inf


def _window_of(view: View) -> int | Grid | None:
    """Of which ticks a view is the sum, as for `SummedViews`."""
    if isinstance(view, Last):
        return int(view.ticks)
    if isinstance(view, Restart):
        return view.grid
    return 1 if isinstance(view, Each) else None


def _check_what(given: object) -> tuple[Metric, ...]:
    example = 'give e.g. dp.Count(), or [dp.Count(), dp.Mean("ms", 0, 5)]'
    some = tuple(given) if isinstance(given, list | tuple) else (given,)
    for metric in some:
        if not isinstance(metric, Metric):
            hint = ", with brackets" if isinstance(metric, type) else ""
            raise TypeError(f"what must be a metric or a list, got {metric!r}: {example}{hint}")
    if not some:
        raise ValueError(f"what is an empty list: {example}")
    return check_metrics(some)


def _check_confidence(given: object) -> None:
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise TypeError(f"confidence must be a number, got {given!r}: give e.g. 0.95")
    if not 0 < given < 1:
        problem = f"must be between 0 and 1, got {given!r}"
        raise ParameterError("confidence", problem, "give e.g. {confidence=}0.95")


def _check_columns(names: Sequence[str]) -> tuple[str, ...]:
    for name in names:
        if names.count(name) > 1:
            raise ValueError(
                f"two columns are called {name!r}: give a metric another name=..., or a TickCount "
                "of its own, with a share of a Ledger"
            )
    return tuple(names)


def counts_people(metrics: Sequence[Metric]) -> bool:
    return any(isinstance(metric, People) for metric in metrics)


def _weight(metrics: Sequence[Metric], pure: bool) -> Fraction:
    """What metrics get of a budget, beside others."""
    return sum((Fraction(m.weight) ** (1 if pure else 2) for m in metrics), Fraction(0))


def _split(budget: Budget, given: Budget | Share, shares: Sequence[Fraction]) -> list[Any]:
    """The budgets of parts: what was given, if there is one part; their sum is at most it."""
    if len(shares) == 1:
        return [given]
    ledger = Ledger(budget)
    return [ledger.share(share).budget for share in shares]


def shares_of(parts: Sequence[Part]) -> str:
    """How much of the budget each part gets, in words."""
    return ", ".join(f"{part.label} {float(100 * part.share):.3g} %" for part in parts)


def _largest_of(part: Part, combined: CombinedColumns | None) -> str:
    known = [f"{name} {x:.3g}" for name, x in largest_stddevs(part, combined).items()]
    return ", ".join(known) or f"{part.label}: not public"


def largest_stddevs(part: Part, combined: CombinedColumns | None) -> dict[str, float]:
    """The largest standard deviations of a part's columns, where they are public."""
    engine = part.engine
    if combined is not None and part.names[0] in combined.names:
        return {name: combined.largest[name][0] for name in part.names}
    if engine.is_number:
        return {part.names[0]: math.sqrt(engine.counter.max_variance())}
    columns = zip(part.names, engine.expected((), None).columns, strict=False)
    return {name: column.stddev for name, column in columns if column.stddev is not None}


def norms_of(parts: Sequence[Part]) -> str:
    """The L2 norm of what a person changes in the sums of each part."""
    lattice = "" if all(part.engine.is_number for part in parts) else ON_LATTICE
    return ", ".join(f"{part.engine.counter.l2_sensitivity:.3g}" for part in parts) + lattice

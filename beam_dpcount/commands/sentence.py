"""What `ticks` does: metrics and views of a clock, under one budget."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import beam_dpcount as dp
from beam_dpcount.arguments import groups
from beam_dpcount.arguments import metrics as given_metrics
from beam_dpcount.arguments import timestamps as times
from beam_dpcount.arguments.metrics import metrics_of, views_of
from beam_dpcount.budget.budgets import PureDP
from beam_dpcount.commands import options as opt
from beam_dpcount.commands import report, select
from beam_dpcount.commands.figures import keys as plot_keys
from beam_dpcount.commands.figures.pictures import STDDEVS, Running
from beam_dpcount.commands.files import formats
from beam_dpcount.commands.files.formats import InputError
from beam_dpcount.commands.report import LEVEL, Estimate, many, rule_of_thumb, table
from beam_dpcount.commands.task import Listed, described
from beam_dpcount.commands.tick_table import FieldsOfRow, TickCells, TickTable
from beam_dpcount.commands.tick_task import TickTask
from beam_dpcount.commands.truth import Truth
from beam_dpcount.counters.charged import CounterSpender, JoinedSpender
from beam_dpcount.counters.clock import now
from beam_dpcount.counters.counter import Counter
from beam_dpcount.counters.grid import Grid
from beam_dpcount.counters.moments import zone_of
from beam_dpcount.counters.people import Seen
from beam_dpcount.counters.periods import time_columns
from beam_dpcount.counters.selection import Selection
from beam_dpcount.counters.users import UserChange
from beam_dpcount.noise.entropy import SystemEntropy
from beam_dpcount.noise.laws import DiscreteLaplace
from beam_dpcount.plans.alarms import AlarmPlan
from beam_dpcount.plans.columns import columns_of
from beam_dpcount.plans.losses import together_of
from beam_dpcount.plans.sentence import (
    Part,
    TickCountPlan,
    largest_stddevs,
    norms_of,
    shares_of,
)
from beam_dpcount.statistics.items import keys_of, places
from beam_dpcount.statistics.metrics import Metric, People
from beam_dpcount.statistics.metrics.base import OfField
from beam_dpcount.times import every

_ERRORS = (
    "how far off {names} may be depends on how many rows there are: each release has its interval "
    "(`beam-dpcount errors --metric ... --events N` says how wide it is)"
)


class Sentence(TickTask):
    """Of rows at the ticks of a public clock: metrics and views."""

    remedies: Mapping[str, str] = {
        "max_items": "give each --metric a run of its own, or --user, of whom each key is a row"
    }
    reads: KeysOf | None = None  # the keys of a cell that holds several

    @cached_property
    def metrics(self) -> list[Metric]:
        """What is counted."""
        return metrics_of(self.options.metric)

    def check(self) -> None:
        options = self.options
        self._check_keys()
        for metric in self.metrics:
            if isinstance(metric, OfField) and not metric.fields:
                raise InputError("--metric sum needs a column: give e.g. --metric 'sum(X, 0, 100)'")
            if isinstance(metric, People) and options.user is None:
                raise InputError(
                    "--metric people needs --user COLUMN and --per-user K, which say who they are"
                )
        super().check()

    def _check_keys(self) -> None:
        options = self.options
        which = ("keys", "keys_file", "select_keys", "separator")
        given = [name for name in which if getattr(options, name) not in (None, False)]
        if options.key is None and given:
            raise InputError(
                f"{opt.option(given[0])} needs --key COLUMN, which has the keys; without --key all "
                "rows are one count"
            )
        if options.key is not None and given in ([], ["separator"]):
            raise InputError(
                f"--key {options.key} needs the keys: give --keys KEY ... or --keys-file FILE if "
                "they are public, or --select-keys; without --key all rows are one count"
            )

    def source(self) -> formats.Source:
        measure = FieldsOfRow(tuple(self._columns), self._numbers, self.options.where)
        return self.read(measure.columns, measure, per_tick=True)

    @property
    def _columns(self) -> list[str]:
        """The columns that metrics read."""
        return list(dict.fromkeys(name for metric in self.metrics for name in metric.fields))

    @property
    def _numbers(self) -> frozenset[str]:
        """Those of them that hold numbers."""
        return frozenset(name for metric in self.metrics for name in metric.numbers)

    def transform(self, places: formats.Places) -> Any:
        options, values = self.options, vars(self.options)
        self.keys: list[str] = []
        if options.key is None:
            self.keys = [formats.ALL]
        elif not options.select_keys:
            self.keys = self.listed_texts("keys", places.paths)
        if self.keys:
            plot_keys.check_listed(options, self.keys)
        entropy = self.state_entropy
        if entropy is None:
            entropy = opt.entropy_of(options, ([*map(opt.real_path, places.paths)], self.keys))
        most = opt.most_items(options, "--keys", self.keys or None)
        how: dict[str, Any] = {"value": formats.value_of}
        by: Callable[[Any], str] = formats.person_of
        if options.separator is not None:
            self.reads = KeysOf(options.separator)
            how |= {"key": self.reads, "max_items": most}
            if not self.by_columns:  # there an event is what `Source` reads, without its key
                how["value"], by = _value_of, _person_of
        people = groups.people(values, by)
        if people is not None and options.per_key is None:  # for what is said of people
            alone = all(isinstance(metric, People) for metric in self.metrics)
            options.per_key = 1 if alone else options.per_user
        clock = groups.sentence_clock(values, given_metrics.needs_end(options.view))
        until = groups.until(values)
        if until is None and clock.is_endless and options.path != "streaming":
            until = Fraction(now(), 10**6)
        self.views = views_of(options.view, clock)
        keys: Any = self.keys or groups.selection(values)
        self.count: Any = self._kind(
            self.given,
            self.views,
            self.metrics,
            keys=dp.TOTAL if options.key is None else keys,
            users=people,
            until=until,
            entropy=entropy,
            **how,
            **{
                name: values[name]
                for name in ("mechanism", "relation", "max_per_tick", "path", "prefer")
            },
            # Rows that come for a tick that is released count nothing, in a run that goes on.
            late="drop" if self.goes_on else values["late"],
        )
        self.use(self.count)
        self.alarm = self._alarm()
        return self.count

    def _alarm(self) -> AlarmPlan | None:
        """What --alarm watches: the first column."""
        if self.options.alarm is None:
            return None
        try:
            return AlarmPlan(self.count, *self.options.alarm, column=self.count.columns[0])
        except ValueError as error:
            raise InputError(f"--alarm: {error}") from None

    @property
    def _kind(self) -> type[TickCountPlan]:
        """The class of what counts."""
        if self.by_columns:
            return TickCountPlan
        from beam_dpcount.transforms.sentence import TickCount  # here: it imports Beam

        return TickCount

    @property
    def most(self) -> int:
        """The most rows of a key and tick that count."""
        return int(self.counts_with.change.most)

    @property
    def parts(self) -> Sequence[Part]:
        """What counts: one engine, or several that share the budget."""
        parts: Sequence[Part] = self.count._parts
        return parts

    def use(self, transform: TickCountPlan) -> None:
        self.counter = self.parts[0].engine.counter
        self.entropy = transform.entropy or SystemEntropy()

    @property
    def fingerprint(self) -> str:
        return str(self.spender.fingerprint)

    @property
    def spender(self) -> CounterSpender | JoinedSpender:
        how = self.entropy, True, self.options.user
        time = time_columns(self.options.timestamp)
        spenders = [
            CounterSpender(part.engine.counter, *how, "", part.engine.period_costs, time)
            for part in self.parts
        ]
        return spenders[0] if len(spenders) == 1 else JoinedSpender(spenders)

    @property
    def selection(self) -> Selection | None:
        """When keys are shown, in what is in use; None where they are listed."""
        found: Selection | None = self.engine.selection
        return found

    @property
    def _lists_keys(self) -> bool:
        """Whether rows of other keys are left out."""
        return self.options.key is not None and self.selection is None

    @property
    def split(self) -> Callable[[str], Sequence[str]] | None:
        reads, most = self.reads, self.options.max_items
        if reads is None:
            return None
        known = places(self.keys) if self.keys else None
        return lambda cell: keys_of(reads((cell, None)), most, known)

    def keys_of(self, element: Any) -> list[Any]:
        if self.split is None:
            return [element]
        return [(key, element[1]) for key in self.split(element[0])]

    # What is guaranteed

    def budget(self) -> str:
        if self.selection is None:
            return str(self.given)
        return select.budget_in_words(self.given, self.selection)

    def covers(self) -> str:
        if self.options.key is None:
            return ""
        return f"of all keys{', and which keys have any,' if self.selection else ''} "

    def public(self) -> str:
        if self.options.key is None:
            return "the clock, and with it the number and times of the releases."
        if self.selection is None:
            return self.known
        return "the clock, and which private counts show a key, but not which keys there are."

    # What is written

    def listed(self) -> Listed | None:
        if not self.keys or self.options.key is None:
            return None
        reads = self.reads

        def keys(key: str, _: formats.Event) -> list[str]:
            return [key] if reads is None else reads((key, None))

        return Listed("--keys", self.keys, keys, self.options.max_items)

    def written(self) -> str:
        keys = len(self.keys) if self.selection is None else self._shown
        if keys is None:
            return f"{super().written()} ({self._ticks()})"
        shown = "" if self.selection is None else " shown"
        return f"{super().written()} ({many(keys, 'key')}{shown}, {self._ticks()})"

    @cached_property
    def _shown(self) -> int | None:
        """How many keys were written, as whoever has the file can tell; None where it is afar."""
        try:
            return self.output.written_keys()
        except InputError:
            return None

    @property
    def releases_nothing(self) -> bool:
        return self.options.path != "streaming" and not self.count.ticks_released

    @property
    def ticks_released(self) -> int | None:
        return None if self.options.path == "streaming" else self.count.ticks_released

    def findings(self) -> list[str]:
        if self.releases_nothing:
            return ["no tick has ended yet, so none is written: run again once one has"]
        if self.selection is None or self._shown != 0:
            return []
        return ["no key was shown: the private count of none was high enough"]

    def table(self) -> formats.Table:
        columns = columns_of(self.count)
        for name in columns.names:
            if columns.names.count(name) > 1:
                raise InputError(
                    f"--metric: two columns of the output are called {name!r}: give a metric "
                    "another name, such as 'mean(X, 0, 5, name=average)'"
                )
        zones = None if self.alarm is None else self.alarm.zones
        if zones is not None and zones.name in columns.names:
            raise InputError(f"--alarm: a column of the output is called {zones.name!r} already")
        return TickTable([], TickCells(columns, zones), keys=self.keys)

    # What is said

    def notes(self) -> list[str]:
        options, selection = self.options, self.selection
        where = "" if options.where is None else f" where {options.where} to the letter"
        names = ", ".join(self.count.columns)
        lines = [f"note: of rows{where} within the clock: {names}; {self.engine.countable}"]
        lines += [
            "note: an empty cell is a missing value, and counts nothing in metrics of its column"
        ] * bool(self._columns)
        lines += report.of_people(options, self.people_are_public)
        lines += self._of_periods()
        lines += self._norms()
        if self.alarm is not None:
            for name, said in self.alarm.describe().items():
                lines.append(f"note: alarm, {name.replace('_', ' ')}: {said}")
        if len(self.parts) > 1 and len(self.views) > 1:
            shares = shares_of(self.parts)
            bounded = "; people are bounded in each" * (options.user is not None)
            lines.append(f"note: the views share the budget, {shares}{bounded}")
        if self.count.combined is not None:
            lines.append(f"note: {self.count.combined.said}")
        if selection is not None:
            lines += select.notes(options, selection)
        named = ["metrics and --where name" if options.where else "metrics name"]
        if self._columns or options.where:
            lines.append(report.unchecked(f"texts that {named[0]} are", "their"))
        if options.key is not None and selection is None:
            lines.append(report.unchecked("keys are", "their", self.keys))
        return [*lines, *self._notes_on_times()]

    def _norms(self) -> list[str]:
        """How much one person changes, and limits on people that leave rows out for nothing."""
        if self.options.user is None:
            return []
        norms = norms_of(self.parts)
        lines = [f"note: noise is for a person who changes all sums together by {norms} (L2 norm)"]
        return [*lines, *self._useless_limits()]

    def _of_periods(self) -> list[str]:
        """A note on what several periods of one person cost together."""
        if self.options.per is None:
            return self._of_one_bound()
        said = together_of([part.engine for part in self.parts])
        return [f"note: the budget is for one {report.period(self.options)} of a person: {said}"]

    def _of_one_bound(self) -> list[str]:
        """A warning that people fade from a count which goes on under one bound."""
        most = self.options.per_user
        if not self.goes_on or most is None:
            return []
        return [
            f"warning: a person counts with {many(most, 'row')} of the whole clock (--per-user), "
            "and with none after these: numbers fall as people get there. --per 1d bounds each "
            "day by itself, and the guarantee is then for a person's rows of one day"
        ]

    def _useless_limits(self) -> list[str]:
        options, counter = self.options, self.counter
        change = counter.change
        if len(self.parts) > 1 or options.per_user is None or not isinstance(change, UserChange):
            return []
        lines, most = [], change.total(counter.mechanism)
        if most < options.per_user:
            if most == change.keys * change.per_key:
                why, remedy = f"{many(change.keys, 'key')}, {change.per_key:,} a key", "--per-key"
            else:
                why, remedy = f"{self._ticks()}, {change.gap:,} apart", "--horizon"
            lines.append(
                f"note: in {why}, no more than {many(most, 'row')} of a person can count: for "
                f"--per-user {options.per_user:,} give a larger {remedy}"
            )
        if options.gap is not None and self._same_without_gap(change):
            why = "give a longer one"
            if not change.gap:
                why = "it is shorter than a tick"
            elif change.per_key == 1:
                why = "a person has one row a key, and each key noise of its own"
            elif isinstance(counter.law, DiscreteLaplace):
                why = "Laplace noise, which is taken here, goes by the number of rows alone"
            lines.append(
                f"note: --gap leaves rows out, and makes no noise smaller: {why}; leave it out "
                "where nothing else needs it"
            )
        return lines

    def _same_without_gap(self, change: UserChange) -> bool:
        counter, every = self.counter, replace(change, gap=0)
        without = dp.calibrate(counter.mechanism, counter.budget, every, unit=counter.unit)
        return bool(without.law == counter.law)

    def _notes_on_times(self) -> list[str]:
        """What is said of rows' times, the clock and how many releases there are."""
        options = self.options
        zone = f"{options.zone} (--zone)" if options.zone else f"{options.timezone} (--timezone)"
        unlike = "are neither seconds since 1970 nor ISO 8601"
        if options.timestamp_format is not None:
            unlike = f"do not fit --timestamp-format {options.timestamp_format}"
        lines = [f"note: rows whose times {unlike} count nothing (--check says how many)"]
        given = [options.start, options.stop, options.until]
        if any(isinstance(text, str) and text and times.lacks_offset(text) for text in given):
            lines.append(f"note: times without an offset are taken as {zone}")
        if options.path == "streaming" and (options.secret_env or options.secret_file):
            uncovered = "a replay in which other rows are late is not covered"
            lines.append(f"note: {uncovered} (docs/reliability.md)")
        lines += self._not_ended()
        if self.selection is not None:
            return [*lines, f"{self._ticks()}; how many keys are shown depends on their counts"]
        size = f"{many(len(self.keys), 'key')} x {self._ticks()}"
        releases = many(len(self.keys) * self.count.ticks_released, "release")
        return [*lines, f"{size} = {releases}"]

    def outlook(self) -> list[str]:
        return select.outlook(self.selection) if self.selection is not None else []

    def _not_ended(self) -> list[str]:
        """A note on ticks that are not released because they have not ended."""
        if self.goes_on:
            return []
        left, open_ticks = self.count.ticks_left, self.engine.ticks_open
        if left and self.steps > 1 and self.is_endless:
            return [f"note: ticks that have ended by {self.engine.cutoff} (--until) are written"]
        if self.options.path == "streaming" and open_ticks:
            ticks = self.steps
            return [
                "warning: --path streaming takes the end of the files for the end of the clock: "
                f"all {many(ticks, 'tick')} are written, also those that have not ended "
                f"({ticks - open_ticks:,} have); leave it out to write only those that have"
            ]
        if not left:
            return []
        notes = [
            f"warning: {left:,} of {many(self.steps, 'tick')} have not ended by "
            f"{self.engine.cutoff} (--until): they are not written, but charged"
        ]
        if self.options.secret_env is not None or self.options.secret_file is not None:
            notes.append(
                "note: a later run over the same rows repeats these ticks and adds those that have "
                "ended since, at no cost"
            )
        return notes

    @property
    def counts_with(self) -> Any:
        """The calibrated counter."""
        return self.engine.counter

    @property
    def grid(self) -> Grid:
        """All ticks of the clock."""
        grid: Grid = self.engine.clock
        return grid

    @property
    def engine(self) -> Any:
        return self.parts[0].engine

    @property
    def is_endless(self) -> bool:
        return bool(self.views[0].clock.is_endless)

    @property
    def steps(self) -> int:
        return self.grid.steps

    def _ticks(self) -> str:
        if self.is_endless:
            return f"{many(self.count.ticks_released, 'tick')} that have ended"
        if not self.count.ticks_left:
            return many(self.steps, "tick")
        return f"{self.count.ticks_released:,} of {many(self.steps, 'tick')}"

    def estimate(self) -> Estimate:
        options = self.options
        selected = self.selection is not None
        beyond = f"what a key has beyond {self.most:,} rows a tick (--max-per-tick)"
        left_out = [
            f"rows that are outside the clock{', of other keys' * self._lists_keys} or unreadable",
            *([select.HIDDEN] if selected else []),
            beyond,
        ]
        if self._numbers:
            left_out.append("what of numbers is beyond the bounds of a metric or rounded off")
        if self.count.ticks_left and not self.is_endless:
            left_out.insert(0, "rows of ticks that have not ended (--until)")
        if options.separator is not None:
            left_out.append(f"keys of a cell beyond its first {options.max_items:,} (--max-items)")
        if options.path == "streaming":
            late = self.engine._late
            until = "" if late == "drop" else ", until the next tick"
            left_out.append(f"late rows{until} (--late {late})")
        views = " and ".join(view.name for view in self.views)
        what = f"the same number of the rows within the clock ({views})"
        of, chosen = "", ""
        if selected:
            of, chosen = " of a key named beforehand (shown or not)", select.CHOSEN
        made = Estimate(what, views, left_out, of, chosen)
        if options.max_per_tick is None:
            made = replace(made, unlikely=beyond)
        return report.bounded(options, made)

    def errors(self, estimate: Estimate) -> str:
        lines = [f"{name}: {said}" for name, said in self.stddevs().items()]
        unknown = self._unknown()
        if unknown:
            lines.append(_ERRORS.format(names=", ".join(unknown)))
        names = dict.fromkeys(part.engine.counter.mechanism.name for part in self.parts)
        how = f"{' and '.join(names)}, {self.drawn_by} noise"
        if largest := self._largest():
            lines.append(f"{largest} with probability 95 %")
        said = f"Error to expect{estimate.of} ({how}): {'; '.join(lines)}."
        return f"{said} {estimate.remark}".rstrip()

    def _largest(self) -> str:
        """How large the errors of all releases of one number so far are; empty for all others."""
        counter, (view, *more) = self.counts_with, self.views
        if more or not isinstance(view, dp.Clock) or not self.engine.is_number:
            return ""
        releases, keys = many(len(self.keys) * self.steps, "release"), len(self.keys)
        if self.selection is not None:
            releases, keys = f"{many(self.steps, 'release')} of such a key", 1
        return f"the largest error of all {releases} below {dp.largest_error(counter, keys):.3g}"

    def error(self) -> str:
        of = self.estimate().of
        lines = [f"{name}{of} is within {half:.3g}" for name, (half, _) in self._halves().items()]
        unknown = self._unknown()
        if unknown:
            lines.append(f"{', '.join(unknown)}: see the interval of each release")
        lines += filter(None, [self._largest()])
        chosen = " The first releases of a shown key are too high." * (self.selection is not None)
        return f"{', '.join(lines)}.{chosen}"

    def _halves(self) -> dict[str, tuple[float, float]]:
        """Of each column within what it is 95 % of the time, and its largest standard deviation."""
        found, combined = {}, self.count.combined
        for part in self.parts:
            for name, stddev in largest_stddevs(part, combined).items():
                half = stddev * half_widths(part.engine.counter)
                if combined is not None and name in combined.names:
                    _, half = combined.largest[name]
                found[name] = half, stddev
        return {name: found[name] for name in self.count.columns if name in found}

    def stddevs(self) -> dict[str, str]:
        """The largest standard deviation of each column, where it is public, in words."""
        return {
            name: f"95 % of the time within {half:.3g}, the standard deviation at most {stddev:.3g}"
            for name, (half, stddev) in self._halves().items()
        }

    def _unknown(self) -> list[str]:
        known = self.stddevs()
        return [name for name in self.count.columns if name not in known]

    def foretold(self) -> list[str]:
        lines = [*self.statements(), ""]
        for part in self.parts:
            counter = part.engine.counter
            lines.append(f"{part.label}: {counter.mechanism.name}, {type(counter.law).__name__}")
            combined = self.count.combined
            if combined is not None and part.names[0] in combined.names:
                halves = {name: combined.largest[name][1] for name in part.names}
                within = ", ".join(f"{name} ± {half:.4g}" for name, half in halves.items())
                lines += [f"with what the releases say of one another: 95 % within {within}", ""]
            elif part.engine.is_number:
                lines += [table(counter), rule_of_thumb(counter), ""]
        return lines

    def mechanism(self) -> Mapping[str, object]:
        return {part.label: described(part.engine.counter) for part in self.parts}

    @property
    def drawn_by(self) -> str:
        laws = dict.fromkeys(type(part.engine.counter.law).__name__ for part in self.parts)
        return " and ".join(laws)

    @property
    def mechanisms(self) -> str:
        names = dict.fromkeys(part.engine.counter.mechanism.name for part in self.parts)
        return f"{' and '.join(names)}, {self._ticks()}"

    def released_ticks(self) -> dict[str, Any]:
        if self.options.path == "streaming":
            return {}
        of = None if self.is_endless else self.steps
        return {
            "until": self.engine.cutoff,
            "ticks": {"released": self.count.ticks_released, "of": of},
        }

    def meaning(self, name: str) -> str | None:
        """What a column of the output holds."""
        placed = {
            "step": "which tick of the clock it is at the end of, from 1",
            "start": "when that tick begins, ISO 8601",
            "timestamp": "when that tick ends, ISO 8601",
            "restart": "which start of the count it is, from 1",
        }
        if self.alarm is not None:
            column = self.alarm.zones
            placed[column.name] = f"1 where an alarm of {column.column} starts, else 0"
        if name in placed:
            return placed[name]
        parts = {
            "_stddev": "the standard deviation of the noise in {}; public",
            "_low": "the lower end of the 95 % interval of {}; empty if there is none",
            "_high": "the upper end of it",
        }
        for end, text in parts.items():
            if name.removesuffix(end) in self.count.columns and name.endswith(end):
                return text.format(name.removesuffix(end))
        if name in self.count.columns:
            return f"the private value of {name}; empty if there are too few rows beside the noise"
        return None

    # What a private look at the rows finds

    def beyond_bounds(self, events: Sequence[tuple[str, str, int | None, object]]) -> int:
        bound, restarts = self.count.users.bound(), self.engine._restarts
        periods = self.engine._periods
        seen: dict[tuple[str, int], Seen] = defaultdict(Seen)
        beyond = 0
        for person, key, micros, _ in sorted(events, key=lambda event: event[2] or 0):
            window = restarts.count_of(restarts.tick_of(micros))[0] if restarts else 0
            period = 0 if periods is None or micros is None else periods.of(micros)
            mine = seen[person, period]
            taken = person and bound.take(mine, [(key, window)], micros or 0)
            beyond += not taken
        return beyond

    def row_counts(self, transform: Any, element: object, micros: int | None) -> bool:
        # What is wrong with it for one metric may be right for another.
        return bool(transform.check_row(element, micros).names)

    def never(self, values: Iterable[Any]) -> list[str]:
        wanted = {
            f"{said} (--metric {type(metric).__name__.lower()})": where
            for metric in self.metrics
            for said, where in metric.conditions().items()
        }
        for value in values:
            for name in [name for name, where in wanted.items() if where(value or {})]:
                del wanted[name]
        return [f"no row has {name}: is its spelling right?" for name in wanted]

    # What is drawn

    @property
    def _drawn(self) -> str:
        """The column that is drawn: the first."""
        return str(self.count.columns[0])

    def _rows_drawn(self) -> dict[str, list[Any]]:
        """Its releases. Those without a value are left out."""
        columns, name = self.output.columns(), self._drawn
        kept = [row for row, value in enumerate(columns[name]) if value is not None]
        values, lows, highs = ([columns[f"{name}{end}"][row] for row in kept] for end in _ENDS)
        halves = [
            math.inf if low is None or high is None else max(high - x, x - low) / STDDEVS
            for x, low, high in zip(values, lows, highs, strict=True)
        ]
        ends = [times.parser("iso", "UTC")(columns["timestamp"][row]) for row in kept]
        return {
            "key": [columns["key"][row] for row in kept],
            "step": [columns["step"][row] for row in kept],
            "timestamp": ends,
            "value": values,
            "stddev": halves,
        }

    def picture(self) -> Running:
        options, estimate = self.options, self.estimate()
        columns = self._rows_drawn()
        by = "" if options.key is None else f" by {options.key}"
        title = f"Private {self._drawn} {every(options.tick)}{by}"
        chosen: dict[str, Any] = {"order": self.keys}
        if self.selection is not None:
            chosen = {"selected": True}
        others = self.count.columns[1:]
        choice = [f"Drawn: {self._drawn}; {', '.join(others)} are in the data."] if others else []
        return Running(
            title=title,
            covers=f"Band: the 95 % interval of each release{estimate.of} by itself, or wider.",
            remark=estimate.remark,
            choice=choice,
            keys=set(columns["key"]),
            columns=columns,
            only=options.plot_keys,
            zone=zone_of(options.zone or options.timezone),
            single=options.key is None,
            of=self._drawn,
            **chosen,
        )

    def exact(self, events: Iterable[Any], _: formats.Places) -> dict[str, list[float]]:
        """What is drawn, of all rows within the clock; people are not bounded."""
        columns, view, grid = self._rows_drawn(), self.views[0], self.grid
        pure = isinstance(self.given, PureDP)
        metric = self.metrics[0].planned(pure)
        last = self.count.ticks_released
        truth = Truth(metric, view, last, self.most)
        for element in events:
            step = grid.tick_of(element.timestamp.micros)
            for key, event in self.keys_of(element.value):
                if 0 < step <= last and event.value is not None:
                    truth.add(key, step, event)
        found: dict[str, list[float]] = {key: [] for key in dict.fromkeys(columns["key"])}
        for key, step in zip(columns["key"], columns["step"], strict=True):
            found[key].append(truth.at(key, step))
        return found


@dataclass(frozen=True)
class KeysOf:
    """The keys of a row whose cell holds several; it goes to the workers.

    Replayable noise goes by its text, which is the same in every process.
    """

    separator: str

    def __call__(self, element: tuple[str, object]) -> list[str]:
        return element[0].split(self.separator)


def _value_of(element: tuple[str, formats.Event]) -> object:
    return element[1].value


def _person_of(element: tuple[str, formats.Event]) -> str:
    return element[1].person


_ENDS = ("", "_low", "_high")


def half_widths(counter: Counter) -> float:
    """Within how many standard deviations noise is 95 % of the time, at the noisiest tick."""
    stddev = math.sqrt(counter.max_variance())
    return dp.largest_half_width(counter, LEVEL) / stddev if stddev else 0.0

"""What `ticks` does without metrics and views: running counts and sums at the ticks of a clock."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import islice
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

import beam_dpcount as dp
from beam_dpcount.arguments import groups
from beam_dpcount.arguments import timestamps as times
from beam_dpcount.arguments.table import ALL_KEYS, Changes
from beam_dpcount.commands import options as opt
from beam_dpcount.commands import report, select, truth
from beam_dpcount.commands.figures import keys as plot_keys
from beam_dpcount.commands.figures.pictures import Running
from beam_dpcount.commands.files import formats
from beam_dpcount.commands.files.formats import InputError
from beam_dpcount.commands.report import Estimate, many
from beam_dpcount.commands.task import Listed, Task
from beam_dpcount.counters.grid import Grid
from beam_dpcount.counters.users import UserChange
from beam_dpcount.noise.laws import DiscreteLaplace
from beam_dpcount.plans.losses import together_of
from beam_dpcount.plans.ticks import TickNumbersPlan
from beam_dpcount.statistics.items import places as places_of
from beam_dpcount.statistics.items import read_items
from beam_dpcount.times import every

if TYPE_CHECKING:
    from beam_dpcount.counters.selection import Selection


class RunningTicks(Task):
    """Of the rows of public keys, or of keys that nobody listed, at the ticks of a public clock."""

    name = "ticks"
    known = "the keys and the clock, and with them the number and times of the releases."
    people_are_public = False
    names: ClassVar[Mapping[str, str]] = select.NAMES

    counts = "ticks numbers sentence several people select truth"
    changes: ClassVar[Changes] = {
        "key": {"help": "the keys; default: one count of all rows"},
        "value": {"more": True},  # --metric says it, and more
        "bounds": {"more": True},
    }
    titles: ClassVar[Mapping[str, str]] = {"budget": ALL_KEYS}

    @property
    def engine(self) -> Any:
        """What counts, or one of several that do."""
        return self.count

    @property
    def counts_with(self) -> Any:
        """The calibrated counter."""
        return self.engine.counter

    @property
    def grid(self) -> Grid:
        """All ticks of the clock."""
        grid: Grid = self.engine.clock
        return grid

    def check(self) -> None:
        self._check_keys()
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
        return self.read(*formats.counted(self.options.value, self.options.where), per_tick=True)

    def transform(self, places: formats.Places) -> TickNumbersPlan:
        options, paths = self.options, places.paths
        self.keys: list[str] = []
        if options.key is None:
            self.keys = [formats.ALL]
        elif not options.select_keys:
            self.keys = self.listed_texts("keys", paths)
        most = opt.most_items(options, "--keys", self.keys or None)
        # Ticks have no ids of rows: a file more, or its keys in another order, would show.
        entropy = opt.entropy_of(options, ([*map(opt.real_path, paths)], self.keys))
        if self.keys:
            plot_keys.check_listed(options, self.keys)
        values = vars(options)
        clock, people = groups.clock(values), groups.people(values, formats.person_of)
        if options.separator is not None and self.keys:
            self.split = SplitKeys(self.keys, options.separator, most)
        elif options.separator is not None:
            self.split = SplitCells(options.separator, most)
        if options.user is not None:
            most = 1  # each key of a row is an event of its person
        named = ("bounds", "mechanism", "unit", "relation", "max_per_tick", "late", "path")
        self.count = self._kind(
            self.given,
            keys=self.keys or groups.selection(values),
            max_items=most,
            value=formats.value_of,
            users=people,
            entropy=entropy,
            **clock,
            **{name: values[name] for name in named},
        )
        return self.count

    @property
    def _kind(self) -> type[TickNumbersPlan]:
        """The class of what counts."""
        if self.by_columns:
            return TickNumbersPlan
        from beam_dpcount.transforms.ticks import TickNumbers  # here: it imports Beam

        return TickNumbers

    @property
    def selection(self) -> Selection | None:
        """When keys are shown, in what is in use; None where they are listed."""
        return self.count.selection

    @property
    def parts(self) -> Sequence[Any]:
        """What counts: here one engine."""
        return [SimpleNamespace(engine=self.count)]

    @property
    def _lists_keys(self) -> bool:
        """Whether rows of other keys are left out."""
        return self.options.key is not None and self.selection is None

    def table(self) -> formats.Table:
        return replace(formats.RELEASES, keys=self.keys)

    def listed(self) -> Listed | None:
        if not self.keys or self.options.key is None:
            return None
        separator, most = self.options.separator, self.options.max_items

        def keys(key: str, _: formats.Event) -> list[str]:
            return [key] if separator is None else key.split(separator)

        return Listed("--keys", self.keys, keys, most)

    def notes(self) -> list[str]:
        options, selection = self.options, self.selection
        within = (
            "of the given keys and within the clock" if self._lists_keys else "within the clock"
        )
        if options.value is not None:
            lines = [f"note: values of rows {within} are {report.clipping(options)}"]
        elif options.where is not None:
            counted = f"count 1 where {options.where} to the letter, and 0 elsewhere"
            lines = [f"note: rows {within} {counted}"]
        else:
            lines = [f"note: every row {within} counts 1"]
        lines[0] += f"; a key counts {self.count.countable} (--max-per-tick)"
        lines += report.of_people(options, self.people_are_public)
        lines += self._of_periods()
        lines += self._useless_limits()
        if selection is not None:
            lines += select.notes(options, selection)
            if options.where is not None:
                lines.append(report.unchecked("the condition is", "its"))
        elif options.key is None:
            if options.where is not None:
                lines.append(report.unchecked("the condition is", "its"))
        else:
            names = "keys and the condition are" if options.where else "keys are"
            lines.append(report.unchecked(names, "their", self.keys))
        return [*lines, *self._notes_on_times(f"{options.timezone} (--timezone)")]

    def _notes_on_times(self, zone: str) -> list[str]:
        """What is said of rows' times, the clock and how many releases there are.

        Args:
          zone: in which times without an offset are.
        """
        options = self.options
        fit = f"--timestamp-format {options.timestamp_format}"
        lines = [f"note: rows whose times do not fit {fit} count nothing (--check says how many)"]
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
        left, open_ticks = self.count.ticks_left, self.engine.ticks_open
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

    def _of_periods(self) -> list[str]:
        """A note on what several periods of one person cost together."""
        if self.options.per is None:
            return []
        said = together_of([part.engine for part in self.parts])
        return [f"note: the budget is for one {report.period(self.options)} of a person: {said}"]

    def _useless_limits(self) -> list[str]:
        """Notes on limits on people that leave rows out, or cost noise, for nothing."""
        options, change = self.options, self.counter.change
        if not isinstance(change, UserChange):
            return []
        lines, most = [], change.total(self.counter.mechanism)
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
            elif isinstance(self.counter.law, DiscreteLaplace):
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

    def _ticks(self) -> str:
        """How many ticks are released, in words."""
        if not self.count.ticks_left:
            return many(self.counter.mechanism.horizon, "tick")
        return f"{self.count.ticks_released:,} of {many(self.counter.mechanism.horizon, 'tick')}"

    def _releases(self) -> int:
        return len(self.keys) * self.counter.mechanism.horizon

    @cached_property
    def _shown(self) -> int | None:
        """How many keys were written, as whoever has the file can tell; None where it is afar."""
        try:
            return self.output.written_keys()
        except InputError:
            return None

    def estimate(self) -> Estimate:
        options, change = self.options, self.counter.change
        low, _ = options.bounds
        most = f"{'±' * (low < 0)}{change.largest(self.counter.unit) * self.counter.unit:,.10g}"
        of = "the" if options.key is None else "a key's"
        what, title = f"the count so far of {of} rows within the clock", ["within the clock"]
        if report.changes(options):
            clipped = report.clipped(options)
            title = [clipped, "within the clock"]
            what = f"the sum so far of {of} values within the clock, {clipped}"
        elif options.where is not None:
            what += " that meet the condition"
        selected = self.selection is not None
        clipped_ticks = f"what a tick has beyond {most} (--max-per-tick)"
        left_out = [
            f"rows that are outside the clock{', of other keys' * self._lists_keys} or unreadable",
            *([select.HIDDEN] if selected else []),
            clipped_ticks,
            *report.lost(options),
        ]
        if self.count.ticks_left:
            left_out.insert(0, "rows of ticks that have not ended (--until)")
        if options.max_per_tick is not None:
            title.append(f"at most {most} a tick")
        if options.separator is not None:
            title.append(f"under the first {options.max_items:,} keys of a cell")
            left_out.append(f"keys of a cell beyond its first {options.max_items:,} (--max-items)")
        if options.path == "streaming":
            until = "" if options.late == "drop" else ", until the next tick"
            left_out.append(f"late rows{until} (--late {options.late})")
        what = f"{what}, each tick's part clipped to {most}"
        made = Estimate(what, ", ".join(title), left_out)
        if options.max_per_tick is None:
            made = replace(made, unlikely=clipped_ticks)
        if selected:
            named = " of a key named beforehand, shown or not,"
            title.append("only keys of high counts")
            made = replace(made, title=", ".join(title), of=named, chosen=select.CHOSEN)
        return report.bounded(options, made)

    def budget(self) -> str:
        if self.selection is None:
            return super().budget()
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

    def written(self) -> str:
        keys = len(self.keys) if self.selection is None else self._shown
        if keys is None:
            return f"{super().written()} ({self._ticks()})"
        shown = "" if self.selection is None else " shown"
        return f"{super().written()} ({many(keys, 'key')}{shown}, {self._ticks()})"

    def released_ticks(self) -> dict[str, Any]:
        count = self.count
        if self.options.path == "streaming":
            return {}
        ticks = {"released": count.ticks_released, "of": count.counter.mechanism.horizon}
        return {"until": count.cutoff, "ticks": ticks}

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

    def streams(self) -> int:
        return 1 if self.selection is not None else len(self.keys)

    def largest(self) -> str:
        if self.selection is not None:
            of = many(self.counter.mechanism.horizon, "count")
            return f"the largest error of all {of} of such a key"
        return f"the largest error of all {many(self._releases(), 'release')}"

    def exact(self, events: Iterable[Any], _: formats.Places) -> dict[str, list[float]]:
        return truth.of_ticks(
            *(events, self.split, self.counter, self.count.clock, self.output.columns())
        )

    def picture(self) -> Running:
        options = self.options
        what = options.where or options.value or "rows"
        kind = f"{'sums' if options.value else 'counts'} {every(options.tick)}"
        by = "" if options.key is None else f" by {options.key}"
        title = f"Private running {kind}: {what}{self.estimate().in_title}{by}"
        chosen = {"selected": True} if self.selection is not None else {"order": self.keys}
        return self.running(title, sum_of=options.value, **chosen)


class SplitKeys:
    """From an event under a cell of several keys to the event under each of them.

    At most the first `most` in the order of the public keys; others leave no trace.
    """

    def __init__(self, keys: Sequence[str], separator: str, most: int) -> None:
        self._keys, self._known = keys, places_of(keys)
        self._separator, self._most = separator, most

    def __call__(self, element: tuple[str, formats.Event]) -> Iterator[tuple[str, formats.Event]]:
        cell, event = element
        codes, _ = read_items(cell.split(self._separator), self._known, self._most, removals=False)
        return ((self._keys[code - 1], event) for code in codes)


class SplitCells:
    """From an event under a cell of several keys to the event under each of them.

    At most the first `most` of the cell, each once.
    """

    def __init__(self, separator: str, most: int) -> None:
        self._separator, self._most = separator, most

    def __call__(self, element: tuple[str, formats.Event]) -> Iterator[tuple[str, formats.Event]]:
        cell, event = element
        keys = dict.fromkeys(cell.split(self._separator))
        return ((key, event) for key in islice(keys, self._most))

"""Private running counts of an event log, one series per key, a release at every tick of a clock.

Reads CSV, JSON lines or Parquet, and counts the rows of each given key whose times lie within the
clock; writes one private count for every key and tick: key, step, timestamp (the end of the tick),
value, stddev. The keys and the clock are public, and given here. That a row is there at all is
protected, and so are its time, its key and what it counts: rows with other keys, or outside the
clock, leave no trace in the output. With --select-keys no keys are given, and which ones there are
is protected too: a key is written from the tick on at which its own private count is high enough.
An empty cell is a key like others: give '' to count it. A row that cannot be read (a time in
another format, a null key, a line with an open quote or too few cells) counts nothing and leaves no
trace; --check tells whoever holds the rows how many there are, and why.
Options that are not listed here go to Beam, e.g. --runner.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import beam_dpcount as dp
from beam_dpcount.arguments import groups
from beam_dpcount.arguments import timestamps as times
from beam_dpcount.arguments.table import ALL_KEYS, Changes
from beam_dpcount.commands import options as opt
from beam_dpcount.commands import report, select, truth
from beam_dpcount.commands.at_ticks import AtTicks, SplitCells, SplitKeys
from beam_dpcount.commands.figures import keys as plot_keys
from beam_dpcount.commands.figures.pictures import Running
from beam_dpcount.commands.files import formats
from beam_dpcount.commands.report import Estimate, many
from beam_dpcount.commands.start import command
from beam_dpcount.commands.task import Task
from beam_dpcount.counters.users import UserChange
from beam_dpcount.noise.laws import DiscreteLaplace
from beam_dpcount.times import every

if TYPE_CHECKING:
    pass


class Ticks(AtTicks):
    """Of the rows of public keys, or of keys that nobody listed, at the ticks of a public clock."""

    example = r"""
    beam-dpcount ticks --input out/demo/events.csv --key page \
      --keys /home /cart /deals --timestamp timestamp --timestamp-format iso \
      --tick 1h --start 2026-01-15T00:00:00Z --stop 2026-01-16T00:00:00Z \
      --epsilon 1 --delta 1e-6 --output out/ticks.csv
    """
    counts = "ticks numbers sentence several people select truth"
    changes: ClassVar[Changes] = {"key": {"help": "the keys; default: one count of all rows"}}
    titles: ClassVar[Mapping[str, str]] = {"budget": ALL_KEYS}

    @classmethod
    def of(cls, options: argparse.Namespace) -> Task:
        from beam_dpcount.commands import sentence  # here: it imports Beam, and --help does not

        return sentence.Sentence(options) if sentence.given(options) else cls(options)

    def check(self) -> None:
        self._check_keys()
        super().check()

    def source(self) -> formats.Source:
        return self.read(*formats.counted(self.options.value, self.options.where), per_tick=True)

    def transform(self, places: formats.Places) -> dp.TickCount:
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
        self.count = dp.TickCount(
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

    def table(self) -> formats.Table:
        return replace(formats.RELEASES, keys=self.keys)

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
        fit = f"--timestamp-format {options.timestamp_format}"
        lines.append(
            f"note: rows whose times do not fit {fit} count nothing (--check says how many)"
        )
        if any(
            text and times.lacks_offset(text)
            for text in (options.start, options.stop, options.until)
        ):
            zone = f"{options.timezone} (--timezone)"
            lines.append(f"note: times without an offset are taken as {zone}")
        if options.path == "streaming" and (options.secret_env or options.secret_file):
            uncovered = "a replay in which other rows are late is not covered"
            lines.append(f"note: {uncovered} (docs/reliability.md)")
        if selection is not None:
            shown = "how many keys are shown depends on their counts"
            return [*lines, *self._not_ended(), f"{self._ticks()}; {shown}"]
        size = f"{many(len(self.keys), 'key')} x {self._ticks()}"
        releases = many(len(self.keys) * self.count.ticks_released, "release")
        return [*lines, *self._not_ended(), f"{size} = {releases}"]

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

    def _releases(self) -> int:
        return len(self.keys) * self.counter.mechanism.horizon

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
        left_out = [
            f"rows outside the clock{' or of other keys' * self._lists_keys}",
            *([select.HIDDEN] if selected else []),
            f"what a tick has beyond {most} (--max-per-tick)",
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
        if selected:
            named = " of a key named beforehand, shown or not,"
            title.append("only keys of high counts")
            made = replace(made, title=", ".join(title), of=named, chosen=select.CHOSEN)
        return report.bounded(options, made)

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


main = command(Ticks)

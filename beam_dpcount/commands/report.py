"""What commands say of a count, in words that depend only on their options and public facts.

A standard deviation is of the noise. What a command leaves out before it counts (values beyond
their bounds, edges beyond a cap, rows outside the clock) is not noise. Hence reports and pictures
name what is estimated and what can be left out: no stated error claims more than it covers.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

import beam_dpcount as dp
from beam_dpcount.counters.counter import Counter
from beam_dpcount.counters.people import period_name, remaining
from beam_dpcount.times import every

VISIBLE = 10  # standard deviations
LEVEL = 0.95
WARNING = "warning: "  # begins what a user should act on; all else is a note
_ALL_TRIED = 1 << 17  # steps


@dataclass(frozen=True)
class Estimate:
    """What a release estimates."""

    what: str = "the true count"  # within a sentence
    title: str = ""  # in brackets in a picture's title; empty where the title says it anyway
    left_out: Sequence[str] = ()  # what the command can leave out
    of: str = ""  # whose stated errors are, after "a release"; empty: of any
    chosen: str = ""  # a sentence on releases that are there for being high
    unlikely: str = ""  # that of `left_out` which takes rows beyond number; no summary names it

    @property
    def in_title(self) -> str:
        return f" ({self.title})" if self.title else ""

    @property
    def remark(self) -> str:
        """What no standard deviation covers; empty where there is nothing of the kind."""
        uncovered = "What is left out is not noise, and no standard deviation covers it: "
        left_out = f"{uncovered}{'; '.join(self.left_out)}." if self.left_out else ""
        return _joined(self.chosen, left_out)

    @property
    def band(self) -> str:
        """What the band of a picture of running counts covers."""
        return (
            f"Band: 1.96 standard deviations; at each single release{self.of} it holds, with a "
            f"probability of about 95 %, {self.what}; errors of neighbouring releases are alike."
        )

    @property
    def bars(self) -> str:
        """What the error bars of a picture cover."""
        return (
            "Error bars: 1.96 standard deviations; each single one holds, with a probability of "
            f"about 95 %, {self.what}."
        )


def errors(counter: Counter, estimate: Estimate, largest: str, streams: int) -> str:
    """The errors to expect; `largest` names all releases of so many streams."""
    half_width = dp.largest_half_width(counter, LEVEL)
    mean, most = (f"{math.sqrt(v):.3g}" for v in (counter.mean_variance(), counter.max_variance()))
    about = f"typically {mean} (standard deviation), at most {most}"
    if mean == most:
        about = f"a standard deviation of {most}"
    return _joined(
        f"Error to expect ({counter.mechanism.name}, {type(counter.law).__name__} noise): "
        f"{about}; where noise is largest, a single count{estimate.of} is 95 % of the time "
        f"within {half_width:.3g} of {estimate.what}; "
        f"{largest} is below {dp.largest_error(counter, streams):.3g} with probability 95 %.",
        estimate.remark,
    )


def steps_shown(horizon: int) -> list[int]:
    """1, 10, 100, ... and the horizon."""
    return sorted({10**n for n in range(len(str(horizon)))} | {horizon})


def table(counter: Counter, every: int = 1) -> str:
    """The errors at some steps, that of the most noise among them where they can all be tried.

    Args:
      counter: whose releases they are.
      every: after every so many steps there is one.
    """
    rows = [("step", "standard deviation", "95 % within ±")]
    horizon = counter.mechanism.horizon
    last = horizon // every * every
    steps = {min(-(-step // every) * every, last) for step in steps_shown(horizon)}
    if horizon <= _ALL_TRIED:
        steps.add(every * (1 + int(np.argmax(counter.stddevs(horizon)[every - 1 :: every]))))
    for step in sorted(steps):
        half = dp.half_width(counter, step, LEVEL)
        rows.append((f"{step:,}", f"{math.sqrt(counter.variance(step)):.4g}", f"{half:.4g}"))
    wide = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(f"{cell:>{width}}" for cell, width in zip(row, wide, strict=True)) for row in rows
    )


def rule_of_thumb(counter: Counter) -> str:
    """From which counts on there is more count than noise, in words."""
    largest = math.sqrt(counter.max_variance())
    return (
        f"Rule of thumb: counts below some ten standard deviations, here {VISIBLE * largest:.3g}, "
        "are unreliable: one of that size is off by a fifth or more one time in twenty, and a true "
        f"count of 0 may well be released as {largest:.3g}."
    )


def _joined(*sentences: str) -> str:
    return " ".join(filter(None, sentences))


def many(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + "s" * (count != 1)


def how_often(options: argparse.Namespace) -> str:
    """How often there is a release; for a note."""
    rows = "row" if options.every == 1 else many(options.every, "row")
    return (
        f"a release after every {rows} of a key (--every), up to "
        f"{options.horizon // options.every:,}; rows after the last of them have none"
    )


def unchecked(what_is: str, whose: str, listed: Sequence[str] = ()) -> str:
    """A warning about public names. No report says that one is missing: that would reveal data.

    What of the `listed` may have been meant as several can be seen without data.
    """
    note = f"warning: {what_is} not checked against the data (--check does): check {whose} spelling"
    if len(listed) == 1 and re.search(r"\w[,;|]\s*\S", listed[0]):
        note += f" ({listed[0]!r} is one text: several are given with spaces between)"
    return note


def one_run(options: argparse.Namespace) -> str:
    """The end of a guarantee: which runs it is for."""
    if getattr(options, "state", None) is not None:
        return (
            "for all runs with this --state together: another count of the same rows spends the "
            "budget again."
        )
    if options.secret_env is None and options.secret_file is None:
        return "for this run: another run over the same rows spends the budget again."
    return (
        "for this secret and --run-id: the same rows give the same numbers again, at no cost; rows "
        "that have changed need another --run-id, and spend the budget again."
    )


def past_horizon(horizon: int, late: int) -> list[str]:
    """A warning where so many rows have no release; their number is public."""
    warning = (
        f"warning: {late:,} rows came after row {horizon:,} of their key and have no release: "
        "raise --horizon (and expect slightly more noise)"
    )
    return [warning] if late else []


def unlabelled(note: str) -> str:
    """A note or a warning without the word in front, for a list of them."""
    return note.removeprefix("note: ").removeprefix(WARNING).strip()


# People

UNBOUNDED = (
    "the exact counts include what bounding people leaves out (--user): they are apart from the "
    "private ones by more than noise"
)


def period(options: argparse.Namespace) -> str:
    """In which period a bound on people holds; empty: over the whole clock."""
    per = getattr(options, "per", None)
    if per is None:
        return ""
    text = getattr(per, "text", "") or per
    zone = getattr(options, "zone", None)
    local = zone is not None and str(text)[-1:] in ("d", "w")
    return f"{period_name(text)} in {zone}" if local else period_name(text)


def most_rows(options: argparse.Namespace, of: str = " of a person") -> str:
    """How many rows of a person count."""
    if getattr(options, "changes", None) is not None:
        return f"at most {options.changes:,} changes of a person's activity"
    if options.per_user is None:
        return f"all rows in each {period(options)}, in at most {many(options.max_keys, 'key')}"
    per_key = options.per_user if options.per_key is None else options.per_key
    each = period(options)
    each = (f" and {each}" if of else f" in each {each}") if each else ""
    limits = [f"{many(options.per_user, 'row')}{of}{each}", f"{per_key:,} a key"]
    if options.max_keys is not None:
        limits.append(f"in {many(options.max_keys, 'key')}")
    if getattr(options, "gap", None) is not None:
        length = every(options.gap).removeprefix("every ")
        limits.append(f"{length if length[0].isdigit() else f'1 {length}'} apart")
    return f"at most {', '.join(limits)}"


def protected(options: argparse.Namespace, steps: bool) -> str:
    """What a guarantee for a person protects; `steps`: rows that do not count take a step."""
    most, empty = most_rows(options), f"an empty cell of {options.user}"
    if steps:
        return (
            f"what all rows of one person say, where {most}, count (the rest of a person's rows, "
            f"and rows without a person, {empty}, count 0 and have a release)"
        )
    whom = "one person with all rows"
    if each := period(options):
        whom = f"one person's rows of any one {each}, not for a person with all rows"
    return (
        f"{whom}, where {most}, count (the rest of a person's rows do not count, "
        f"nor do rows without a person, {empty})"
    )


def of_people(options: argparse.Namespace, steps: bool) -> list[str]:
    """Notes on --user."""
    if options.user is None:
        return []
    several = not steps and options.separator is not None
    each = " (each key of a row as a row)" * several
    return [
        f"note: {most_rows(options)}, count{each}; a person is a cell of {options.user} to "
        "the letter: one who is spelt in two ways is two people, and protected as two",
        "note: how many rows of people do not count is private: a bias that no stated error covers "
        "(beam-dpcount bounds shows it, of a sample)",
        *_limits_above_all(options),
        *_fading(options, steps),
    ]


def _fading(options: argparse.Namespace, steps: bool) -> list[str]:
    """A note on how little of people who come back counts, under one bound over the whole clock."""
    if steps or options.per is not None or options.per_user is None:
        return []
    shares = (f"{remaining(options.per_user, 1, days):.0%}" for days in (30, 90, 360))
    first, third, twelfth = shares
    return [
        f"note: the bound is over the whole clock: of someone with a row a day, {first} of the "
        f"rows of the first month count, {third} of the third and {twelfth} of the twelfth (--per "
        "1d bounds each day by itself, and protects less)"
    ]


def _limits_above_all(options: argparse.Namespace) -> list[str]:
    """Notes on limits of a person that are above the one on all rows, and so limit nothing."""
    most = options.per_user
    if most is None:
        return []
    return [
        f"note: of a person {many(most, 'row')} count{'s' * (most == 1)} in all (--per-user "
        f"{most:,}), so that {name} {given:,} is the same as {name} {most:,}"
        for name, given in (("--per-key", options.per_key), ("--max-keys", options.max_keys))
        if given is not None and given > most
    ]


def bounded(options: argparse.Namespace, made: Estimate) -> Estimate:
    """What a release estimates where rows of people are left out."""
    if options.user is None:
        return made
    most = most_rows(options)
    left_out = "further rows of a person, and rows without one (--user)"
    title = ", ".join(filter(None, [made.title, most]))
    what = f"{made.what}, with {most}"
    return replace(made, what=what, title=title, left_out=[*made.left_out, left_out])


# Clipped numbers


def clipped(options: argparse.Namespace) -> str:
    """What --bounds and --unit do to values."""
    low, high = options.bounds
    return f"clipped to [{low:g}, {high:g}] and rounded to multiples of {options.unit:g}"


def clipping(options: argparse.Namespace) -> str:
    """The same in a note, with what becomes of values that are not numbers."""
    rejects = "; what is not a number counts 0" if options.on_reject == "drop" else ""
    return f"{clipped(options)} (--bounds, --unit){rejects}"


def changes(options: argparse.Namespace) -> bool:
    """Whether --bounds and --unit can change what a row counts; 0 and 1 mostly stay."""
    if options.value is not None:
        return True
    low, high = options.bounds
    kept = [round(min(max(x, low), high) / options.unit) * options.unit for x in (0, 1)]
    return not (math.isclose(kept[0], 0, abs_tol=1e-9) and math.isclose(kept[1], 1))


def lost(options: argparse.Namespace) -> list[str]:
    """What of values is left out."""
    if not changes(options):
        return []
    some = ["what is beyond the bounds or rounded off"]
    if options.value is not None and options.on_reject == "drop":
        some.append("values that are not numbers, which count 0")
    return some

"""What the releases of each command estimate, in words that depend on its options alone.

A standard deviation is of the noise. What a command leaves out before it counts (values beyond
their bounds, edges beyond a cap, rows outside the clock) is no noise. So that no stated error
claims more than it covers, reports and pictures name what is estimated, and what can be left out.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import beam_dpcount as dp
from beam_dpcount.counters.counter import Counter


@dataclass(frozen=True)
class Estimate:
    """What a release estimates.

    Args:
      what: it, in a sentence.
      title: the same in a picture's title, in brackets; empty where the title says it anyway.
      left_out: what the command can leave out of it.
    """

    what: str = "the true count"
    title: str = ""
    left_out: Sequence[str] = ()

    @property
    def in_title(self) -> str:
        """What to append to the thing that is counted."""
        return f" ({self.title})" if self.title else ""

    @property
    def remark(self) -> str:
        """What no standard deviation covers; empty where nothing can be left out."""
        if not self.left_out:
            return ""
        return (
            "What is left out is not noise, and no standard deviation covers it: "
            f"{'; '.join(self.left_out)}."
        )

    @property
    def band(self) -> str:
        """What the band of a picture of running counts holds."""
        return _joined(
            "Band: 1.96 standard deviations; at each single release it holds, with a probability "
            f"of about 95 %, {self.what}; errors of neighbouring releases are alike.",
            self.remark,
        )

    @property
    def bars(self) -> str:
        """What the error bars of a picture hold."""
        return _joined(
            "Error bars: 1.96 standard deviations; each single one holds, with a probability of "
            f"about 95 %, {self.what}.",
            self.remark,
        )


def errors(counter: Counter, estimate: Estimate, largest: str, streams: int) -> str:
    """The errors to expect; `largest` names the releases of so many streams together."""
    return _joined(
        f"Error to expect ({counter.mechanism.name}, {type(counter.law).__name__} noise): "
        f"typically {math.sqrt(counter.mean_variance()):.3g} (standard deviation), at most "
        f"{math.sqrt(counter.max_variance()):.3g}; 95 % of the time even the noisiest single "
        f"count is within {dp.largest_half_width(counter, 0.95):.3g} of {estimate.what}; "
        f"{largest} below {dp.largest_error(counter, streams):.3g} with probability 95 %.",
        estimate.remark,
    )


def _joined(*sentences: str) -> str:
    return " ".join(filter(None, sentences))


def clipped(options: argparse.Namespace) -> str:
    """What --bounds and --unit do to values."""
    low, high = options.bounds
    return f"clipped to [{low:g}, {high:g}] and rounded to multiples of {options.unit:g}"


def _changes(options: argparse.Namespace) -> bool:
    """Whether --bounds and --unit can change what a row counts: 0 and 1 mostly stay as they are."""
    if options.value is not None:
        return True
    low, high = options.bounds
    kept = [round(min(max(x, low), high) / options.unit) * options.unit for x in (0, 1)]
    return not (math.isclose(kept[0], 0, abs_tol=1e-9) and math.isclose(kept[1], 1))


def _values(options: argparse.Namespace) -> list[str]:
    """What of values is left out."""
    if not _changes(options):
        return []
    lost = ["what is beyond the bounds or rounded off"]
    if options.value is not None and options.on_reject == "drop":
        lost.append("values that are no numbers, which count 0")
    return lost


def of_rows(options: argparse.Namespace) -> Estimate:
    """Of `pipelines.count`. Rows past the horizon have no release that could be wrong by them."""
    if not _changes(options):
        return Estimate()
    values = "values" if options.value is not None else "zeros and ones"
    return Estimate(f"the sum of {values} {clipped(options)}", clipped(options), _values(options))


def of_ticks(options: argparse.Namespace, counter: Counter) -> Estimate:
    """Of `pipelines.ticks`, whose counter this is."""
    low, _ = options.bounds
    most = f"{'±' * (low < 0)}{counter.change.largest(counter.unit) * counter.unit:,.10g}"
    what, title = "the count of a key's rows within the clock", ["within the clock"]
    if _changes(options):
        title = [clipped(options), "within the clock"]
        what = f"the sum of a key's values within the clock, {clipped(options)}"
    elif options.where is not None:
        what += " that meet the condition"
    left_out = [
        "rows outside the clock or of other keys",
        f"what a tick has beyond {most} (--max-per-tick)",
        *_values(options),
    ]
    if options.max_per_tick is not None:
        title.append(f"at most {most} a tick")
    if options.separator is not None:
        title.append(f"under the first {options.max_items:,} keys of a cell")
        left_out.append(f"keys of a cell beyond its first {options.max_items:,} (--max-items)")
    if options.path == "streaming":
        until = "" if options.late == "drop" else ", until the next tick"
        left_out.append(f"late rows{until} (--late {options.late})")
    return Estimate(f"{what}, each tick's part clipped to {most}", ", ".join(title), left_out)


def of_items(options: argparse.Namespace) -> Estimate:
    """Of `pipelines.histogram`."""
    left_out = ["items that are not of the domain"]
    if options.separator is None:
        what = "the true count of an item of the domain"
        return Estimate(what, "items of the domain", left_out)
    first = f"the first {options.max_items:,} items of the domain in a row"
    left_out.append(f"those of a row beyond its first {options.max_items:,} (--max-items)")
    return Estimate(f"the count of {first}", first, left_out)


def of_words(options: argparse.Namespace) -> Estimate:
    """Of `pipelines.sequences`."""
    what, title = "the count of a word in letters of the alphabet", "in letters of the alphabet"
    left_out = ["texts that are not of the alphabet"]
    if options.episodes:
        what = "the count of an episode's minimal occurrences in letters of the alphabet"
    if options.rest is not None:
        title += f", others as {options.rest!r}"
        left_out = [f"what texts say that count as {options.rest!r} (--rest)", "cells without text"]
    if options.max_span is not None:
        span = f"within {options.max_span:,} rows"
        what, title = f"{what} {span}", f"{title}, {span}"
        left_out.append(f"occurrences that are not {span} (--max-span)")
    return Estimate(what, title, left_out)


def of_graph(options: argparse.Namespace, noun: str) -> Estimate:
    """Of `pipelines.graph`, where `noun` is what --what counts."""
    what = noun if options.what == "forest" else f"number of {noun}"
    title, left_out = [], ["rows that name another vertex"]
    degree = "" if options.max_degree is None else f"{options.max_degree:,}"
    if options.what == "kstars":
        title.append(f"of a vertex's first {degree} neighbours")
        left_out.append(f"neighbours of a vertex beyond its first {degree} (--max-degree)")
    elif degree and options.what != "degrees" and not options.asserted:
        title.append(f"capped at {degree} pairs a vertex")
        left_out.append(f"edges beyond the first {degree} pairs of a vertex (--max-degree)")
    if options.weight is not None and options.what == "forest":
        title.append(f"of weights from 1 to {options.max_weight:,}")
        left_out.append(f"rows of other weights than 1 to {options.max_weight:,}")
        left_out.append("a pair's weights after its first")
    elif options.weight is not None:
        title.append(f"of weights from -1 to 1 rounded to multiples of {options.unit or 1:g}")
        left_out.append("rows of weights beyond -1 or 1")
        left_out.append("what of a weight is rounded off")
    of_all = f"the {what} of the graph on the given vertices"
    if options.what == "cuts":
        of_all = "the weight of a pair of the given vertices"
    estimate = Estimate(of_all, ", ".join(title), left_out)
    return replace(estimate, what=of_all + estimate.in_title)

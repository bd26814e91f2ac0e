"""Exact running counts for --show-truth. PRIVATE: they are the data, without noise."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any

import beam_dpcount as dp
from beam_dpcount.commands.files.formats import Places
from beam_dpcount.counters.counter import Counter
from beam_dpcount.counters.grid import Grid


def of_elements(
    events: Iterable[Any], places: Places, counter: Counter, by_time: bool
) -> dict[str, list[float]]:
    """The running count after each event of a key.

    The grouped path counts by time; the streaming one in the order of the files.
    """
    steps: dict[str, list[Any]] = {}
    for element in events:
        timed = hasattr(element, "timestamp")
        key, event = element.value if timed else element
        micros = element.timestamp.micros if timed and by_time else 0
        steps.setdefault(key, []).append((micros, places(event), event.value))
    truth = {}
    for key in sorted(steps):
        ordered = sorted(steps[key], key=lambda step: step[:2])[: counter.mechanism.horizon]
        totals = accumulate(_quantised(counter, value) for *_, value in ordered)
        truth[key] = [total * counter.unit for total in totals]
    return truth


def of_ticks(
    events: Iterable[Any],
    split: Callable[[Any], Iterable[Any]] | None,
    counter: Counter,
    clock: Grid,
    columns: Mapping[str, Sequence[Any]],
) -> dict[str, list[float]]:
    """The running count of a key at each of its releases, which are the rows of `columns`.

    It clips the sum of each tick, as the counter does. It does not bound a person's events.
    """
    step_at = clock.steps_from(clock.start)
    keys = dict.fromkeys(columns["key"])
    sums = {key: [0] * clock.steps for key in keys}
    for element in events:
        for key, event in (element.value,) if split is None else split(element.value):
            step = step_at(element.timestamp.micros)
            if step and key in sums:
                sums[key][step - 1] += _quantised(counter, event.value)
    most = counter.change.largest(counter.unit)
    totals = {
        key: [*accumulate(min(max(x, -most), most) for x in of_key)] for key, of_key in sums.items()
    }
    truth: dict[str, list[float]] = {key: [] for key in keys}
    for key, step in zip(columns["key"], columns["step"], strict=True):
        truth[key].append(totals[key][step - 1] * counter.unit)
    return truth


def _quantised(counter: Counter, value: object) -> int:
    try:
        return int(counter.quantise(value))
    except dp.errors.NotANumberError:
        return 0

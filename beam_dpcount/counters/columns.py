"""The counters of many keys side by side: one state of vectors, with a column a key.

What happens in a column depends on nothing in the others: neighbours that differ in one key are
equal in all others to the last bit. So it is elementwise arithmetic only, and keys are never
ordered by what came first where that could be seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from beam_dpcount.counters.selection import Selection
from beam_dpcount.mechanisms.base import FloatArray, IntArray, State
from beam_dpcount.noise.entropy import Noise

_AT_ONCE = 1 << 22  # numbers, of some arrays

BoolArray = npt.NDArray[np.bool_]
# The noise of these keys' counters, a column each.
NoiseOf = Callable[[Sequence[str]], Noise]


class Columns(NamedTuple):
    """What is known of the keys of one shard after some ticks. Never changed in place.

    Fields:
      step: the ticks released.
      names: the keys, in the order of their columns.
      state: of the mechanism, as if all had been there from the first tick on; () without keys.
      shown: whether each is shown.
      waiting: of keys that are not there yet, as too little of them came: their sums.
    """

    step: int = 0
    names: Sequence[str] = ()
    state: State = ()
    shown: BoolArray = np.zeros(0, dtype=np.bool_)
    waiting: Mapping[str, int] = {}


def advance(
    selection: Selection, columns: Columns, sums: Mapping[str, int], noise: NoiseOf
) -> tuple[Columns, list[tuple[str, float]]]:
    """One tick: the columns after it, and the releases of the keys that are shown, by key.

    Args:
      selection: when keys are shown.
      columns: before the tick.
      sums: what the tick adds to keys, on the lattice, clipped.
      noise: the counters' noise at this tick; of new keys, also that of the ticks before.
    """
    counter, step, names = selection.counter, columns.step + 1, columns.names
    mechanism, state, shown = counter.mechanism, columns.state, columns.shown
    places = {name: place for place, name in enumerate(names)} if sums else {}
    x = np.zeros(len(names), dtype=np.int64)
    born, waiting = dict[str, int](), dict(columns.waiting)
    for name, value in sums.items():
        if name in places:
            x[places[name]] = value
            continue
        total = waiting.pop(name, 0) + value
        if selection.skipped and total <= selection.skipped:
            waiting[name] = total
        else:
            born[name] = total - selection.skipped
    if born:
        new = sorted(born)
        state = beside(state, mechanism.after(step - 1, noise(new), len(new)), mechanism.counters)
        names = [*names, *new]
        x = np.concatenate([x, [born[name] for name in new]])
        shown = np.concatenate([shown, np.zeros(len(new), dtype=np.bool_)])
    if not names:
        return Columns(step, waiting=waiting), []
    state, y = counter.step_units(state, x, noise(names))
    shown = shown | (y >= selection.lattice_thresholds[step - 1])
    values = released(selection, y)
    releases = sorted((names[i], float(values[i])) for i in np.flatnonzero(shown).tolist())
    return Columns(step, names, state, shown, waiting), releases


def beside(state: State, new: State, counters: int) -> State:
    """The columns of a state and those of a new one, of the same step."""
    if not state:
        return new
    pairs = zip(state[counters:], new[counters:], strict=True)
    return (*new[:counters], *(np.concatenate(pair) for pair in pairs))


def released(selection: Selection, y: Any) -> FloatArray:
    """Private counts of what is counted, as releases have them."""
    return np.asarray((y + selection.skipped) * selection.counter.unit, dtype=np.float64)


class Sums(NamedTuple):
    """What ticks add to keys: arrays of one length, sorted by key, then tick; each pair once.

    Fields:
      places: of the keys, from 0.
      steps: the ticks, from 1.
      xs: on the lattice, clipped.
    """

    places: IntArray
    steps: IntArray
    xs: IntArray


def counted(sums: Sums, skipped: int) -> Sums:
    """What is left of sums that are not negative, without the first `skipped` of each key's."""
    if not skipped:
        return sums
    places, steps, xs = sums
    # Sums of one key fit 64 bits, and so do differences of those of all keys, modulo 2^64.
    totals = np.cumsum(xs)
    first = np.searchsorted(places, places)
    totals = totals - (totals[first] - xs[first])
    left = np.maximum(totals - skipped, 0)
    added = left - np.maximum(totals - xs - skipped, 0)
    there = left > 0
    return Sums(places[there], steps[there], added[there])


def all_ticks(
    selection: Selection, sums: Sums, keys: int, noise: Noise, steps: int | None = None
) -> Iterator[tuple[int, int, FloatArray]]:
    """Of each key that is shown: its place, the tick, and its releases from then on.

    What `advance` gives tick by tick, of so many keys at once.

    Args:
      selection: when keys are shown.
      sums: of `counted`; each key has some.
      keys: how many there are.
      noise: of their counters, a column each.
      steps: how many ticks are released; the sums are of these. Default: all.
    """
    counter = selection.counter
    steps = counter.horizon if steps is None else steps
    _, starts = np.unique(sums.places, return_index=True)
    first = sums.steps[starts]
    order = np.argsort(sums.steps, kind="stable")
    places, xs = sums.places[order], sums.xs[order]
    ends = np.searchsorted(sums.steps[order], np.arange(steps + 1), side="right")
    # What comes before is made at once, so far as the noise of that many ticks fits the memory.
    begin = min(int(first.min()), 1 + _AT_ONCE // keys)
    state = counter.mechanism.after(begin - 1, noise, keys)
    shown, thresholds = np.zeros(keys, dtype=np.bool_), selection.lattice_thresholds
    seen: IntArray = np.zeros(0, dtype=np.int64)  # those shown, in the order in which they were
    since, rows = list[int](), list[FloatArray]()
    for step in range(begin, steps + 1):
        x = np.zeros(keys, dtype=np.int64)
        now = slice(ends[step - 1], ends[step])
        x[places[now]] = xs[now]
        state, y = counter.step_units(state, x, noise)
        found = (y >= thresholds[step - 1]) & ~shown & (first <= step)
        if found.any():
            new = np.flatnonzero(found)
            seen, shown = np.concatenate([seen, new]), shown | found
            since += [step] * len(new)
        rows.append(released(selection, y[seen]))
    for i in np.argsort(seen, kind="stable").tolist():
        at = since[i]
        series = np.array([row[i] for row in rows[at - begin :]])
        yield int(seen[i]), at, series

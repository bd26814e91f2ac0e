"""The counters of many keys side by side, where each key has a vector of sums: see `columns`.

A state of vectors holds the sums of one key next to each other. One of them, the number of events,
is what shows a key. A key that is shown knows for how many ticks: what it was chosen by is high at
first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt

from beam_dpcount.counters.columns import Columns, NoiseOf, Sums, beside
from beam_dpcount.counters.selection import Selection
from beam_dpcount.mechanisms.base import FloatArray, IntArray
from beam_dpcount.noise.entropy import Noise

LONG = 255  # ticks that are counted since a key was shown

Shown = npt.NDArray[np.uint8]  # since how many ticks, this one included; 0: it is hidden


def no_keys() -> Columns:
    """The columns of a shard before its first tick."""
    return Columns(shown=np.zeros(0, dtype=np.uint8))


def advance(
    selection: Selection, columns: Columns, sums: Mapping[str, IntArray], noise: NoiseOf, place: int
) -> tuple[Columns, list[tuple[str, tuple[FloatArray, int]]]]:
    """One tick: the columns after it, and of the keys that are shown, by key, noisy sums and since
    how many ticks.

    Args:
      selection: when keys are shown.
      columns: before the tick.
      sums: what the tick adds to keys' vectors, clipped.
      noise: the counters' noise at this tick; of new keys, also that of the ticks before.
      place: of the sum that shows a key.
    """
    counter, step, names = selection.counter, columns.step + 1, columns.names
    width, mechanism = counter.dimension or 1, counter.mechanism
    state, shown = columns.state, columns.shown
    known = set(names)
    new = sorted(name for name in sums if name not in known)
    if new:
        after = mechanism.after(step - 1, noise(new), len(new) * width)
        state = beside(state, after, mechanism.counters)
        names = [*names, *new]
        shown = np.concatenate([shown, np.zeros(len(new), dtype=np.uint8)])
    if not names:
        return Columns(step, shown=shown), []
    x = np.zeros((len(names), width), dtype=np.int64)
    if sums:
        places = {name: i for i, name in enumerate(names)}
        for name, vector in sums.items():
            x[places[name]] = vector
    state, y = counter.step_units(state, x.ravel(), noise(names))
    y = y.reshape(x.shape)
    is_shown = (shown > 0) | (y[:, place] >= selection.lattice_thresholds[step - 1])
    shown = np.where(is_shown, np.minimum(shown, LONG - 1) + 1, 0).astype(np.uint8)
    values = np.asarray(y * counter.unit, dtype=np.float64)
    there = np.flatnonzero(shown).tolist()
    releases = sorted((names[i], (values[i], int(shown[i]))) for i in there)
    return Columns(step, names, state, shown), releases


def all_ticks(
    selection: Selection,
    sums: Sums,
    keys: int,
    noise: Noise,
    place: int,
    steps: int | None = None,
) -> Iterator[tuple[int, int, FloatArray]]:
    """Of each key that is shown: its place, the tick, and its noisy sums from then on.

    What `advance` gives tick by tick, of so many keys at once.

    Args:
      selection, place: as for `advance`.
      steps: as for `columns.all_ticks`.
      sums: what ticks add, sorted by key, then tick; a step is (tick - 1) * width + sum + 1.
      keys: how many there are; each has some.
      noise: of their counters.
    """
    counter = selection.counter
    steps = counter.horizon if steps is None else steps
    width = counter.dimension or 1
    ticks, columns = np.divmod(sums.steps - 1, width)
    first = np.full(keys, steps + 1, dtype=np.int64)
    np.minimum.at(first, sums.places, ticks + 1)
    order = np.argsort(ticks, kind="stable")
    cells, xs = (sums.places * width + columns)[order], sums.xs[order]
    ends = np.searchsorted(ticks[order], np.arange(steps + 1), side="left")
    begin = int(first.min())
    state = counter.mechanism.after(begin - 1, noise, keys * width)
    since = np.zeros(keys, dtype=np.int64)
    rows = list[FloatArray]()
    for step in range(begin, steps + 1):
        x = np.zeros(keys * width, dtype=np.int64)
        now = slice(ends[step - 1], ends[step])
        x[cells[now]] = xs[now]
        state, y = counter.step_units(state, x, noise)
        y = y.reshape(keys, width)
        high = y[:, place] >= selection.lattice_thresholds[step - 1]
        since[high & (since == 0) & (first <= step)] = step
        rows.append(np.asarray(y * counter.unit, dtype=np.float64))
    for i in np.flatnonzero(since).tolist():
        at = int(since[i])
        yield i, at, np.stack([row[i] for row in rows[at - begin :]])

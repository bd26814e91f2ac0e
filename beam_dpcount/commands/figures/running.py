"""Running counts of keys as they are drawn: their releases in order, and which keys are shown.

What is here needs no matplotlib: the report is drawn from it as well as the pictures.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from beam_dpcount.commands.figures.keys import ASKED, SELECTED
from beam_dpcount.commands.files import times

MAX_POINTS = 4000  # of a line in a picture

FloatArray = npt.NDArray[np.float64]
Keys = Sequence[Hashable] | None


class Panel(NamedTuple):
    """One key's releases in order of step; `exact` is NaN without a truth."""

    key: Hashable
    step: FloatArray
    timestamp: FloatArray
    value: FloatArray
    half: FloatArray
    exact: FloatArray

    @property
    def has_truth(self) -> bool:
        return not np.isnan(self.exact).all()

    def thinned(self, most: int = MAX_POINTS) -> Panel:
        kept = kept_of(len(self.step), most=most)
        return Panel(self.key, *(numbers[kept] for numbers in self[1:]))


def panels_of(
    columns: Mapping[str, Any], half_width: float, truth: Mapping[Any, npt.ArrayLike]
) -> list[Panel]:
    """All keys' releases."""
    column = columns["key"]
    keys = column if isinstance(column, list | tuple) else column.tolist()
    step, value, stddev = (floats(columns[name]) for name in ("step", "value", "stddev"))
    timestamp = timestamps(columns.get("timestamp"), len(keys))
    lengths = [len(column) for column in (keys, step, timestamp, value, stddev)]
    if len(set(lengths)) > 1:
        raise ValueError(f"key, step, timestamp, value, stddev differ in length: {lengths}")
    rows: dict[Hashable, list[int]] = {}
    for row, key in enumerate(keys):
        rows.setdefault(key, []).append(row)
    panels = []
    for key, own in rows.items():
        run = np.array(own)[np.argsort(step[own], kind="stable")]
        exact = floats(truth.get(key, np.full(len(run), np.nan)))
        if len(exact) != len(run):
            found = f"{len(exact)} counts, {len(run)} releases"
            raise ValueError(f"truth must have one count for each release of key {key!r}: {found}")
        half = half_width * stddev[run]
        panels.append(Panel(key, step[run], timestamp[run], value[run], half, exact))
    return panels


def choice(
    panels: Sequence[Panel],
    order: Keys,
    only: Keys,
    most: int,
    selected: bool,
    spread: bool = True,
) -> tuple[list[Panel], str]:
    """The panels to draw, and a sentence on how they were chosen, if not all are drawn.

    `spread`: of keys that are ranked, some of few releases too.
    """
    if only is not None:
        by_key = {panel.key: panel for panel in panels}
        asked = SELECTED if selected else ASKED
        return [by_key[key] for key in only if key in by_key], f" {asked}"
    some = f" Of {len(panels):,} keys "
    if selected:
        named = sorted(panels, key=lambda panel: str(panel.key))[:most]
        how = f"{some}that are shown the first {len(named)} by name."
        return named, how if len(named) < len(panels) else ""
    if order is not None:
        places = {key: place for place, key in enumerate(order)}
        given = sorted(panels, key=lambda panel: places.get(panel.key, len(places)))[:most]
        how = f"{some}the first {len(given)}, in the order in which they were given."
        return given, how if len(given) < len(panels) else ""
    ranked = sorted(panels, key=lambda panel: (-len(panel.step), str(panel.key)))
    if not spread:
        how = f"{some}the {most:,} of most releases (ties by name)."
        return ranked[:most], how if most < len(ranked) else ""
    ranks = spread_ranks(len(ranked), most)
    listed = ", ".join(f"{rank:,}" for rank in ranks)
    how = f"{some}those of ranks {listed} by their number of releases (ties by name)."
    return [ranked[rank - 1] for rank in ranks], how if len(ranks) < len(ranked) else ""


def spread_ranks(keys: int, panels: int) -> list[int]:
    """At most `panels` of the ranks 1..keys: powers of two and the last, then the best left."""
    powers = [1 << bit for bit in range(keys.bit_length()) if 1 << bit < keys]
    preferred = [*powers[: max(panels - 1, 1)], keys, *range(1, keys + 1)]
    return sorted(list(dict.fromkeys(preferred))[:panels]) if keys else []


def has_times(panels: Collection[Panel]) -> bool:
    """Whether every release has a time that can be drawn, and times differ between steps."""
    stamps = np.concatenate([panel.timestamp for panel in panels])
    steps = np.concatenate([panel.step for panel in panels])
    # Beam's smallest and largest timestamps, which mean "no time", are outside the calendar.
    drawable = bool(np.all((stamps >= times.FIRST) & (stamps <= times.LAST)))
    return drawable and (np.ptp(stamps) > 0 or np.ptp(steps) == 0)


def own_axes(panels: Sequence[Panel], timed: bool) -> bool:
    """Whether some key has less than half of the time, or steps, of all: a shared axis squeezes it.

    Times and numbers of releases are public, or released.
    """
    if len(panels) < 2:
        return False
    ends = np.array([(panel.timestamp if timed else panel.step)[[0, -1]] for panel in panels])
    return bool(2 * np.ptp(ends, axis=1).min() < np.ptp(ends))


def alike(panels: Sequence[Panel]) -> bool:
    """Whether the bands of several panels are the same, at the same times."""
    first = panels[0]
    return len(panels) > 1 and all(
        not panel.has_truth
        and np.array_equal(panel.step, first.step)
        and np.array_equal(panel.timestamp, first.timestamp, equal_nan=True)
        and np.array_equal(panel.half, first.half)
        for panel in panels
    )


def readable(panel: Panel, row: int = -1) -> str:
    """A release, the last one by default, with half the width of its band."""
    value, half = panel.value[row], panel.half[row]
    digits = 0 if half >= 10 or not np.isfinite(half) else 1
    shown = f"{value:,.{digits}f}"
    if not float(shown.replace(",", "")):
        shown = shown.lstrip("-")
    shown = shown.replace("-", "\N{MINUS SIGN}")
    return f"{shown} ± {half:,.{digits}f}" if np.isfinite(half) else shown


def kept_of(length: int, logarithmic: bool = False, most: int = MAX_POINTS) -> npt.NDArray[np.intp]:
    """Indices of at most so many of `length` points, evenly spaced, with the first and the last."""
    if length <= most:
        return np.arange(length)
    if logarithmic:
        places = np.geomspace(1, length, most) - 1
    else:
        places = np.linspace(0, length - 1, most)
    return np.unique(np.rint(places).astype(np.intp))


def floats(column: Any) -> FloatArray:
    return np.asarray(column, dtype=np.float64)


def timestamps(column: Any, length: int) -> FloatArray:
    """Microseconds since the epoch, NaN where missing."""
    moments = np.asarray([np.nan] * length if column is None else column)
    if moments.dtype.kind == "M":
        micros = moments.astype("datetime64[us]").astype(np.float64)
        moments = np.where(np.isnat(moments), np.nan, micros)
    return floats(moments)

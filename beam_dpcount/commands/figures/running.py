"""Running counts as they are drawn: which keys, their releases in order, scales and labels.

Plain data, from which PNG files and the report are drawn alike.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from beam_dpcount.arguments import timestamps as times
from beam_dpcount.commands.figures import pictures, scales, texts
from beam_dpcount.commands.figures.keys import ASKED, SELECTED

MAX_POINTS = 4000  # of a line in a picture
FEW_POINTS = 40  # up to here every release has a dot
EXACT = "exact (shown for demonstration only)"
ERROR = "error: private − exact"

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

    @property
    def low(self) -> FloatArray:
        """The lower ends of the bands; of one without end, the count."""
        return self.value - np.nan_to_num(self.half, posinf=0)

    @property
    def high(self) -> FloatArray:
        return self.value + np.nan_to_num(self.half, posinf=0)

    @property
    def error(self) -> FloatArray:
        return self.value - self.exact

    def alone(self) -> Panel:
        """Its band around zero, where it can be seen: it is often too narrow around the count."""
        return self._replace(value=np.zeros_like(self.value))

    def thinned(self, most: int = MAX_POINTS) -> Panel:
        kept = kept_of(len(self.step), most=most)
        return Panel(self.key, *(numbers[kept] for numbers in self[1:]))


@dataclass(frozen=True, eq=False)
class Counts:
    """Running counts with their scales and labels.

    Keys are never chosen by their private values: bands miss more often for keys drawn for their
    noise. `choice` says how they were chosen, if not all are drawn.
    """

    title: str
    panels: Sequence[Panel]  # those that are drawn, in order
    ranked: Sequence[Panel]  # all, in the public order
    choice: str  # a sentence, or empty
    nothing: str  # what is said if none is drawn
    kind: str  # "count" or "sum"
    label: str  # what a line shows
    band: str  # what its band shows
    single: bool  # the one key says nothing, and is not named
    timed: bool  # against time, or else against steps
    zone: tzinfo
    exact: bool  # exact counts are drawn, too
    alike: bool  # all bands are the same, and need be drawn but once
    own_axes: bool  # each panel has an x axis of its own
    error: scales.Axis  # of all bands around zero

    @property
    def legend(self) -> list[str]:
        """Names of a line, of its band, and of the exact counts and errors, if there are any."""
        return [self.label, self.band, *[EXACT, ERROR] * self.exact]

    @property
    def scaled(self) -> str:
        """A sentence on the scales of several panels."""
        if len(self.panels) < 2:
            return ""
        of_time = f", and {'time' if self.timed else 'steps'} of its own" * self.own_axes
        return f"Each panel has its own scale{of_time}."

    def place(self, panel: Panel) -> FloatArray:
        """Where its releases are on the x axis."""
        return panel.timestamp if self.timed else panel.step

    def x(self, panels: Sequence[Panel]) -> scales.Axis:
        """The x axis that these panels share."""
        low, high = _range(*(self.place(panel)[[0, -1]] for panel in panels))
        return scales.times(low, high, self.zone) if self.timed else scales.steps(low, high)

    def x_of(self, panel: Panel) -> scales.Axis:
        """The x axis of one of the panels: all share one, unless it would squeeze some."""
        return self.x([panel] if self.own_axes else self.panels)

    def y(self, panels: Sequence[Panel]) -> scales.Axis:
        """The y axis that these panels share: from zero, so that no key seems to begin late."""
        ends = [[panel.low, panel.high, panel.exact] for panel in panels]
        low, high = _range(0.0, *(end for three in ends for end in three))
        return scales.numbers(low, high, self.label, room=0.03)

    def when(self, panel: Panel, row: int) -> str:
        """The time and the step of a release."""
        step = f"step {panel.step[row]:,.0f}"
        if not self.timed:
            return step
        return f"{scales.when(float(panel.timestamp[row]), self.zone)}, {step}"

    def last(self, panel: Panel) -> str:
        return f"last {self.kind} {readable(panel)}"


def counts_of(
    picture: pictures.Running,
    most: int,
    *,
    spread: bool = True,
    truth: Mapping[Any, npt.ArrayLike] | None = None,
) -> Counts:
    """What is drawn of a picture.

    Args:
      picture: the releases, and how they are shown.
      most: the most keys to draw, where none were asked for.
      spread: as for `choice`.
      truth: exact running counts by key, one for each of its releases in order of step.

    Raises:
      ValueError: columns differ in length, or `truth` and the releases of a key do.
    """
    panels = panels_of(picture.columns, truth)
    asked = picture.order, picture.only, most, picture.selected
    drawn, how = choice(panels, *asked, spread)
    ranked, _ = choice(panels, picture.order, None, len(panels), picture.selected, spread=False)
    summed = None if picture.sum_of is None else texts.shortened(picture.sum_of)
    some = "None of the keys that were asked for has releases."
    none = "No key was shown." if picture.selected else "There are no releases."
    errors = [abs(numbers) for panel in drawn for numbers in (panel.half, panel.error)]
    limit = 1.12 * _range(0.0, *errors)[1] or 1.0
    timed = bool(drawn or panels) and picture.time_axis and has_times(drawn or panels)
    title = picture.title
    return Counts(
        title=title if truth is None else title.replace("Private", "Private and exact", 1),
        panels=drawn,
        ranked=ranked,
        choice=how,
        nothing=some if panels else none,
        kind=picture.of or ("count" if summed is None else "sum"),
        label=f"private {picture.of or 'count'}" if summed is None else f"private sum of {summed}",
        band=f"± {pictures.STDDEVS:g} standard deviations",
        single=picture.single,
        timed=timed,
        zone=picture.zone,
        exact=any(panel.has_truth for panel in drawn),
        alike=alike(drawn),
        own_axes=own_axes(drawn, timed),
        error=scales.Axis(-limit, limit),
    )


def readable(panel: Panel, row: int = -1) -> str:
    """A release, the last one by default, with half the width of its band."""
    return texts.with_band(float(panel.value[row]), float(panel.half[row]))


def _range(*numbers: Any) -> tuple[float, float]:
    """The smallest and the largest of all finite numbers."""
    every = np.concatenate([np.atleast_1d(some) for some in numbers])
    finite = every[np.isfinite(every)]
    return float(finite.min()), float(finite.max())


def panels_of(
    columns: Mapping[str, Any], truth: Mapping[Any, npt.ArrayLike] | None = None
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
        exact = floats((truth or {}).get(key, np.full(len(run), np.nan)))
        if len(exact) != len(run):
            found = f"{len(exact)} counts, {len(run)} releases"
            raise ValueError(f"truth must have one count for each release of key {key!r}: {found}")
        half = pictures.STDDEVS * stddev[run]
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
        return [by_key[key] for key in only if key in by_key], asked
    some = f"Of {len(panels):,} keys "
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
    return len(panels) > 1 and all(
        not panel.has_truth
        and np.array_equal(panel.step, panels[0].step)
        and np.array_equal(panel.timestamp, panels[0].timestamp, equal_nan=True)
        and np.array_equal(panel.half, panels[0].half)
        for panel in panels
    )


def kept_of(length: int, logarithmic: bool = False, most: int = MAX_POINTS) -> npt.NDArray[np.intp]:
    """Indices of at most so many of `length` points, evenly spaced, with the first and the last."""
    if length <= most:
        return np.arange(length)
    if logarithmic:
        places = np.geomspace(1, length, most) - 1
    else:
        places = np.linspace(0, length - 1, most)
    return np.unique(np.rint(places).astype(np.intp))


def floats(column: object) -> FloatArray:
    return np.asarray(column, dtype=np.float64)


def timestamps(column: object, length: int) -> FloatArray:
    """Microseconds since the epoch, NaN where missing."""
    moments = np.asarray([np.nan] * length if column is None else column)
    if moments.dtype.kind == "M":
        micros = moments.astype("datetime64[us]").astype(np.float64)
        moments = np.where(np.isnat(moments), np.nan, micros)
    return floats(moments)

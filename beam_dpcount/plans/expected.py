"""Expected: what metrics would say of made-up events, and how well; before anything is counted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from beam_dpcount.states.all_vectors import TickRow

_HEAD = ("column", "without noise", "standard deviation", "interval")


@dataclass(frozen=True)
class ExpectedColumn:
    """One column of `TickCount.expected`.

    Fields:
      name: of the column.
      value: what would be released if the noise happened to be 0; None where `note` says why.
      stddev: the standard deviation of its noise, for counts and sums; None for others.
      low, high: the confidence interval around `value`; those that are released are about as wide.
      note: "", or "too small": of so few events, beside the noise, nothing could be said.
    """

    name: str
    value: float | None
    stddev: float | None
    low: float | None
    high: float | None
    note: str

    def __repr__(self) -> str:
        return f"ExpectedColumn({self.name!r}; the rest is as private as the events)"


@dataclass(frozen=True)
class Expected:
    """What a TickCount would say of a key that had some events; as private as these are.

    Fields:
      columns: an ExpectedColumn for each column, in their order.
      events: how many events there were.
      counted: how many of them count: not those of nobody, and beyond their person's bound.
      problems: what of them does not count as it is, and of how many.
      tick: the tick that it is of; None: the one with the most noise.
      confidence: the level of the intervals.
    """

    columns: tuple[ExpectedColumn, ...]
    events: int
    counted: int
    problems: tuple[tuple[str, int], ...]
    tick: int | None
    confidence: float

    def __getitem__(self, name: str) -> ExpectedColumn:
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)

    def __repr__(self) -> str:
        return f"Expected(of {len(self.columns)} columns; print it to see it)"

    def __str__(self) -> str:
        when = "the noisiest tick" if self.tick is None else f"tick {self.tick:,}"
        rows = [_HEAD, *(_row(column) for column in self.columns)]
        wide = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
        lines = [
            "  ".join(
                f"{cell:{'<' if place == 0 else '>'}{width}}"
                for place, (cell, width) in enumerate(zip(cells, wide, strict=True))
            )
            for cells in rows
        ]
        of = f"{self.events:,} such events"
        if self.counted < self.events:
            of += f", of which {self.counted:,} count"
        lines.append(
            f"of a key with {of}, at {when}; intervals of {100 * self.confidence:.10g} %, each by "
            "itself. Computed without noise: as private as these events are"
        )
        if any(column.note for column in self.columns):
            lines.append("too small: so few events, beside the noise, that nothing would be said")
        for problem, many in self.problems:
            lines.append(f"{many:,} event{'s' * (many != 1)}: {problem}")
        return "\n".join(lines)


def check_events(events: Any) -> Iterable[Any]:
    """Values of events, or a TypeError that says what to pass."""
    if isinstance(events, str | bytes | Mapping) or hasattr(events, "to_dict"):
        remedy = 'give a list of events\' values, e.g. [{"latency": 0.3}, {"latency": 0.5}]'
        if hasattr(events, "to_dict"):
            remedy = 'give its rows: events.to_dict("records")'
        raise TypeError(f"events must be many, got one {type(events).__name__}: {remedy}")
    found: Iterable[Any] = events
    return found


def expected_of(
    release: TickRow,
    events: tuple[int, int],
    problems: Mapping[str, int],
    tick: int | None,
    confidence: float,
) -> Expected:
    """`Expected` of what is released where the noise is 0; of so many events so many count."""
    found = (release.values, release.stddevs, release.lows, release.highs)
    columns = []
    for name in release.names:
        value, stddev, low, high = (numbers[name] for numbers in found)
        columns.append(ExpectedColumn(name, value, stddev, low, high, release.notes[name]))
    return Expected(tuple(columns), *events, tuple(problems.items()), tick, confidence)


def _row(column: ExpectedColumn) -> tuple[str, ...]:
    return (column.name, *_cells(column))


def _cells(column: ExpectedColumn) -> Iterator[str]:
    for number in (column.value, column.stddev):
        yield "-" if number is None else f"{number:.6g}"
    if column.low is None or column.high is None:
        yield column.note or "-"
    else:
        yield f"{column.low:.6g} to {column.high:.6g}"

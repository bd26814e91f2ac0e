"""What people ask of a log, as words of a command and of Beam YAML, and the true answers."""

from __future__ import annotations

import csv
import datetime as dt
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Event = dict[str, Any]
Answer = dict[str, float | None]
# Releases by key and number of the day.
Answers = dict[tuple[str, int], dict[str, Any]]
TOTAL = "all"


@dataclass(frozen=True)
class Log:
    """A log and what is asked of it.

    Its file has the columns `time`, `key`, `person`, `number`, `kind` and, for releases of copies
    beside each other, `site`.

    Fields:
      path: the file, of CSV.
      first: the day that the clock starts on.
      days: its ticks.
      keys: the public keys.
      bounds: the least and largest number, whole.
      kinds: two of the kinds, the first of which the rate is of.
    """

    path: Path
    first: dt.date
    days: int
    keys: Sequence[str]
    bounds: tuple[int, int]
    kinds: tuple[str, str]

    @property
    def start(self) -> str:
        return f"{self.first}T00:00:00Z"

    def rows(self) -> Iterator[Event]:
        with self.path.open(newline="") as file:
            yield from csv.DictReader(file)

    def events(self) -> list[Event]:
        """Its rows, with the number of their day."""
        events = [*self.rows()]
        for event in events:
            event["day"] = (dt.date.fromisoformat(event["time"][:10]) - self.first).days + 1
            event["number"] = int(event["number"])
        return events

    def copied(self, path: Path, sites: int) -> Log:
        """The same rows at several sites: a key or a person of one is another than of the next."""
        copies = (
            {**row, **{name: f"{row[name]} of {site}" for name in ("key", "person")}, "site": site}
            for row in self.rows()
            for site in range(sites)
        )
        write(path, copies)
        keys = [f"{key} of {site}" for key in self.keys for site in range(sites)]
        return Log(path, self.first, self.days, keys, self.bounds, self.kinds)


def write(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    with path.open("w", newline="") as file:
        columns = ["time", "key", "person", "number", "kind", "site"]
        writer = csv.DictWriter(file, columns, restval="all")
        writer.writeheader()
        writer.writerows(rows)


@dataclass(frozen=True)
class Question:
    """One question.

    Fields:
      asked: in words.
      config: of a step of YAML, without the clock, the keys and the budget.
      answer: what plain Python says of some events, by column.
      since: the first day that a release of a day is of.
      keyed: by key, or in all.
      selected: nobody lists the keys.
    """

    asked: str
    config: dict[str, Any]
    answer: Callable[[Sequence[Event]], Answer]
    since: Callable[[int], int] = lambda day: 1
    keyed: bool = False
    selected: bool = False

    def place(self, log: Log, sites: int | None = None) -> dict[str, Any]:
        """What is said of keys; without any, of copies by their site."""
        if self.selected:
            return {"key": "key", "select_keys": True}
        if self.keyed:
            return {"key": "key", "keys": [*log.keys]}
        return {"key": "site", "keys": [*map(str, range(sites))]} if sites else {}

    def words(self, place: Mapping[str, Any]) -> Iterator[object]:
        """Those of a command that say the same as YAML."""
        for name, value in {**place, **self.config}.items():
            flag = {"metrics": "--metric", "views": "--view"}.get(name)
            if flag:
                yield from (word for one in value for word in (flag, one))
            else:
                yield f"--{name.replace('_', '-')}"
                yield from value if isinstance(value, list) else [] if value is True else [value]

    def truth(self, log: Log) -> Answers:
        """What plain Python says, by key and day."""
        by_key: dict[str, dict[int, list[Event]]] = {}
        for event in log.events():
            key = event["key"] if self.keyed or self.selected else TOTAL
            by_key.setdefault(key, {}).setdefault(event["day"], []).append(event)
        keys = log.keys if self.keyed else [*by_key] if self.selected else [TOTAL]
        return {
            (key, day): self.answer(
                [
                    event
                    for one in range(self.since(day), day + 1)
                    for event in by_key.get(key, {}).get(one, ())
                ]
            )
            for key in keys
            for day in range(1, log.days + 1)
        }


def people(events: Iterable[Event]) -> int:
    return len({event["person"] for event in events})


def quantile(events: Sequence[Event], q: float) -> float | None:
    """The least number that at least q n of the n numbers do not exceed."""
    numbers = sorted(event["number"] for event in events)
    return numbers[math.ceil(q * len(numbers)) - 1] if numbers else None


def questions(log: Log) -> dict[str, Question]:
    """The eight that a team asks first, and what one of several numbers is."""
    low, high = log.bounds
    kind, other = log.kinds
    whose = {"user": "person", "per_user": log.days, "metrics": ["people"]}
    quantiles = f"quantiles(number, {low}, {high}, 0.5, 0.95, leaves={high - low})"
    measures = [f"mean(number, {low}, {high})", quantiles, f"rate(kind = {kind})"]
    numbers = ["count", f"sum(number, {low}, {high})", f"items(kind, {kind}, {other})"]

    def measured(events: Sequence[Event]) -> Answer:
        found = [event["number"] for event in events]
        return {
            "mean_number_each": sum(found) / len(found) if found else None,
            "p50_number_each": quantile(events, 0.5),
            "p95_number_each": quantile(events, 0.95),
            "rate_each": sum(e["kind"] == kind for e in events) / len(events) if found else None,
        }

    def added(events: Sequence[Event]) -> Answer:
        return {
            "count": len(events),
            "sum_number": sum(event["number"] for event in events),
            f"count_{kind}": sum(event["kind"] == kind for event in events),
            f"count_{other}": sum(event["kind"] == other for event in events),
        }

    return {
        "so far": Question(
            "how many so far, by key, at the end of each day?",
            {"metrics": ["count"]},
            lambda events: {"count": len(events)},
            keyed=True,
        ),
        "each": Question(
            "how many on each day?",
            {"views": ["each"]},
            lambda events: {"count_each": len(events)},
            lambda day: day,
            keyed=True,
        ),
        "people of a day": Question(
            "how many people were active each day?",
            {**whose, "views": ["each"]},
            lambda events: {"people_each": people(events)},
            lambda day: day,
        ),
        "people of a week": Question(
            "how many people were active in the last 7 days?",
            {**whose, "views": ["last 7d"]},
            lambda events: {"people_last_7": people(events)},
            lambda day: max(1, day - 6),
        ),
        "people of a month": Question(
            "how many people were active in the last 30 days?",
            {**whose, "views": ["last 30d"]},
            lambda events: {"people_last_30": people(events)},
            lambda day: max(1, day - 29),
        ),
        "measures": Question(
            "what were the mean, the median, p95 and the rate of a kind on each day?",
            {"metrics": measures, "views": ["each"]},
            measured,
            lambda day: day,
        ),
        "several": Question(
            "several numbers at once, of the week so far?",
            {"metrics": numbers, "views": ["restart 7"]},
            added,
            lambda day: (day - 1) // 7 * 7 + 1,
            keyed=True,
        ),
        "unlisted": Question(
            "which keys, if nobody listed them?",
            {"metrics": ["count"]},
            lambda events: {"count": len(events)},
            selected=True,
        ),
    }


NAMES = (
    *("so far", "each", "people of a day", "people of a week", "people of a month"),
    *("measures", "several", "unlisted"),
)

"""Events of people, all that counts them at a clock, and what it should say, from the rule."""

from __future__ import annotations

import random
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.transforms.window import FixedWindows

import beam_dpcount as dp
from beam_dpcount.transforms.ticks import TickNumbers
from tests.runners import SECOND, Outcome, Row
from tests.sentences import counted

EXACT = dp.ZCDP(1e12)  # its noise is 0

TICK, TICKS = 10, 12
CLOCK: dict[str, Any] = {"tick": TICK, "start": 0, "horizon": TICKS}
KEYS = ("a", "b", "c")


def who(payload: Any) -> Any:
    return payload["who"]


def number(payload: Any) -> Any:
    return payload["n"]


def people(events: int, **options: Any) -> dp.Users:
    return dp.Users(who, events, **{"per_key": 1, **options})


def tick_count(users: dp.Users | None, **options: Any) -> TickNumbers:
    given: dict[str, Any] = {"budget": EXACT, "mechanism": "SmoothBinary", "keys": KEYS, **CLOCK}
    given |= {"value": number, "bounds": (0, 2), "users": users, **options}
    return TickNumbers(**given)


def crowd(busy: int = 100, others: int = 60) -> list[Row]:
    """A busy person, some with a few events, and events of nobody; by time, all distinct."""
    chance = random.Random(1)
    names = ["busy"] * busy + [f"p{chance.randrange(20)}" for _ in range(others)]
    names += [None, "", 7, "7", 7.5, True, []]  # 7 is "7", and nobody else somebody
    chance.shuffle(names)
    times, rows = sorted(chance.sample(range(118 * SECOND), len(names))), []
    for name, micros in zip(names, times, strict=True):
        payload = {
            "who": name,
            "n": chance.choice([1, 2]),
            "items": chance.sample(["x", "y", "z", "none"], chance.randrange(1, 4)),
        }
        rows.append((chance.choice("abcd"), payload, micros))
    rows.append(("a", {"n": 1, "items": ["x"]}, 119 * SECOND))  # `who` raises
    return rows


# What is expected, from the rule's words


def kept(
    rows: Sequence[Row],
    events: int,
    keys: int | None = None,
    per_key: int = 1,
    gap: int = 0,
    names: Callable[[Row], Sequence[Any]] = lambda row: [row[0]],
) -> list[tuple[Row, list[Any]]]:
    """Rows that count, in their order, and the names under which they do."""
    seen: dict[str, list[tuple[int, list[Any]]]] = {}
    found = []
    for row in rows:
        person = row[1].get("who")
        person = str(person) if type(person) is int else person
        if not isinstance(person, str) or not person:
            continue
        mine = seen.setdefault(person, [])
        of_name = Tally(name for _, taken in mine for name in taken)
        if len(mine) >= events or any(abs(row[2] - at) < gap * SECOND for at, _ in mine):
            continue
        taken: list[Any] = []
        for name in names(row):
            known = {*of_name, *taken}
            room = name in known or len(known) < (events if keys is None else keys)
            if of_name[name] < per_key and room:
                taken.append(name)
        if taken:
            mine.append((row[2], taken))
            found.append((row, taken))
    return found


def sums(
    found: Iterable[tuple[Row, list[Any]]],
    keys: Sequence[str] = KEYS,
    amount: Callable[[Row], int] = lambda row: row[1]["n"],
    steps: int = TICKS,
) -> dict[str, list[float]]:
    """The running sums at the ticks."""
    added = {key: np.zeros(steps) for key in keys}
    for row, names in found:
        for name in names:
            added[name][row[2] // (TICK * SECOND)] += amount(row)
    return {key: np.cumsum(x).tolist() for key, x in added.items()}


def listed(rows: Sequence[Row], keys: Sequence[str] = KEYS) -> list[Row]:
    return [row for row in rows if row[0] in keys and 0 <= row[2] < TICKS * TICK * SECOND]


def values(seen: Iterable[Any]) -> dict[str, list[float]]:
    """Of one output: each key's releases, in order of time."""
    found: dict[str, list[float]] = {}
    for one in sorted(seen, key=lambda s: (s.value.key, s.value.timestamp)):
        found.setdefault(one.value.key, []).append(round(one.value.value, 6))
    return found


def several(events: Any, path: str) -> dict[str, Any]:
    """All that counts people at a clock."""
    late = {"late": "drop"}
    distinct = {"keys": KEYS, "mechanism": "SmoothBinary", "path": path, "users": FEW}
    members = {
        "shared": tick_count(None, path=path),
        "shared again": tick_count(None, path=path, keys=["d"]),
    }
    made = {
        "k": events | "K" >> tick_count(people(20, per_key=20), path=path),
        "keys": events | "Keys" >> tick_count(people(20, keys=2, per_key=7), path=path),
        "other": events | "Other" >> tick_count(people(9, per_key=5), path=path, other="c"),
        "gap": events | "Gap" >> tick_count(people(9, per_key=9, gap=15), path=path, **late),
        "asserted": events
        | "Asserted" >> tick_count(people(20, per_key=20, asserted=True), path=path),
        "distinct": events | "Distinct" >> counted(EXACT, dp.People(), **CLOCK, **distinct),
        "daily": events | "Daily" >> counted(EXACT, dp.People(), **CLOCK, **distinct, restart=4),
        "windows": events
        | beam.WindowInto(FixedWindows(4 * TICK))
        | "Windows" >> tick_count(people(20, per_key=20), path=path),
        **(events | "Several" >> dp.BoundUsers(people(20, per_key=8), members)),
    }
    return made


FEW = people(5)


def restarted(running: dict[str, list[float]], every: int) -> dict[str, list[float]]:
    """Running sums that start anew after so many ticks."""
    found = {}
    for key, xs in running.items():
        steps = np.diff(xs, prepend=0).reshape(-1, every)
        found[key] = np.cumsum(steps, axis=1).ravel().tolist()
    return found


def expected(rows: Sequence[Row]) -> dict[str, dict[str, list[float]]]:
    """Of `several`, from the rule's words. The rows are in order of time."""

    def once(_: Row) -> int:
        return 1

    def mapped(row: Row) -> list[str]:
        return [row[0] if row[0] in KEYS else "c"]

    def epoch(row: Row) -> list[Any]:
        return [(row[2] // (4 * TICK * SECOND), row[0])]

    mine, either = listed(rows), listed(rows, [*KEYS, "d"])
    shared = [row for row, _ in kept(either, 20, per_key=8)]
    day = [(row, [row[0]]) for row, _ in kept(mine, 5, names=epoch)]
    return {
        "k": sums(kept(mine, 20, per_key=20)),
        "keys": sums(kept(mine, 20, keys=2, per_key=7)),
        "other": sums(kept(rows, 9, per_key=5, names=mapped)),
        "gap": sums(kept(mine, 9, per_key=9, gap=15)),
        "asserted": sums([(row, [row[0]]) for row in mine]),
        "distinct": sums(kept(mine, 5), amount=once),
        "daily": restarted(sums(day, amount=once), 4),
        "windows": restarted(sums(kept(mine, 20, per_key=20)), 4),
        "shared": sums([(row, [row[0]]) for row in shared if row in mine]),
        "shared again": sums([(row, ["d"]) for row in shared if row not in mine], ["d"]),
    }


def check(outcome: Outcome, names: Sequence[str], rows: Sequence[Row]) -> None:
    """That it holds what is expected, and that nothing was counted by metrics."""
    for name, output in zip(names, outcome.outputs, strict=True):
        assert values(output) == expected(rows)[name], name
    assert not outcome.metrics()

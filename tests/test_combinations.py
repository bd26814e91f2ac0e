"""Counts at a clock, all options crossed at random: no neighbours differ by more than noise is for.

Options are tested one by one, and in pairs that somebody thought of. Here all are drawn together,
with neighbours who do their worst: events as near to each other as the bound allows, over the whole
clock. Whole pipelines without noise give the difference, x, and ||R x|| is what noise is made for.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.transforms.window import FixedWindows

import beam_dpcount as dp
from beam_dpcount.checks import ParameterError
from beam_dpcount.transforms.ticks import TickNumbers
from tests.runners import SECOND, Row, feed, run
from tests.scripted import ScriptedEntropy
from tests.sentences import counted

TICK = 60
BUDGET = dp.ZCDP(0.5)
BOUNDS = ((0, 1, 1), (-1, 1, 1), (-2, 1, 0.5), (0, 0.3, 0.1))
KEYS = ("a", "b", "c")
PERSON = "bob"
m = dp.metrics


@dataclass(frozen=True)
class Case:
    """A count, and what may be told apart.

    Fields:
      kind: of which transform.
      made: the transform.
      fixed: Beam's windows, in ticks; None: the global one.
      horizon: of the whole clock, in ticks.
      protects: whether a person is protected, or an event.
      gap: between a person's events, in seconds.
      relation: of neighbours.
    """

    kind: str
    made: Any
    fixed: int | None
    horizon: int
    protects: bool
    gap: float
    relation: str


def drawn(chance: random.Random) -> Case:
    """Options that go together."""
    while True:
        try:
            return _drawn(chance)
        except (ParameterError, ValueError):  # they do not
            continue


def _drawn(chance: random.Random) -> Case:
    kind = chance.choice(["count", "people", "metrics", "last", "bound"])
    horizon, keys = chance.choice([6, 8, 12]), KEYS[: chance.choice([1, 2, 3])]
    size = chance.choice([None, 2, 3, horizon // 2])
    gap = TICK * chance.choice([0, 0, 0, 1, 1.5, 2, 2.5, size or 4])
    relation = chance.choice(["add_remove", "replace_one"])
    low, high, unit = chance.choice(BOUNDS)
    numbers = {"bounds": (low, high), "unit": unit, "value": itemgetter("v")}
    other = {"other": chance.choice([None, keys[-1]])}
    clock: dict[str, Any] = {"tick": TICK, "start": 0, "horizon": horizon, "late": "drop"}
    clock |= {"relation": relation, "path": chance.choice(["bounded", "bounded", "streaming"])}
    clock |= {"entropy": ScriptedEntropy(0), "mechanism": "BinaryTree"}
    k = chance.choice([1, 2, 3, 4, 8])
    limits = {"keys": chance.choice([None, None, 1, 2]), "per_key": chance.choice([1, 2, k, k])}
    users: Any = dp.Users(itemgetter("u"), k, **limits, gap=gap or None)
    if chance.random() < 0.2 and kind not in ("people", "bound"):
        users, gap = None, 0
    made: Any
    if kind == "count":
        made = TickNumbers(BUDGET, **clock, **numbers, **other, keys=keys, users=users)
    elif kind == "people":
        users, gap = replace(users, keys=None, per_key=1, gap=None), 0
        made = counted(BUDGET, m.People(), **clock, **other, keys=keys, users=users, restart=size)
    elif kind == "metrics":
        some: list[Any] = [
            m.Count(),
            m.Sum("v", low, high, unit=unit, weight=chance.choice([1, 3])),
        ]
        some += [m.Items("i", KEYS[:2], chance.choice([1, 2]))] * (chance.random() < 0.3)
        some += [m.People()] * (users is not None and chance.random() < 0.5)
        clock |= {"restart": size if len(some) > 2 else chance.choice([size, None]), "users": users}
        own = random.Random(f"{horizon} {k} {size} {gap}")  # other draws stay as they are
        if own.random() < 0.4 and not some[-1].once:
            clock |= {"restart": None, "last": own.choice([1, 2, 3]), "mechanism": None}
        made = counted(BUDGET, some, **clock, **other, keys=keys)
    elif kind == "last":
        clock |= {"last": chance.choice([1, 2, 3]), "mechanism": None, "users": users}
        made = counted(BUDGET, m.Sum("v", low, high, unit=unit), **clock, **other, keys=keys)
    else:
        made = dp.BoundUsers(
            users,
            {
                "count": TickNumbers(BUDGET, **clock, **numbers, **other, keys=keys),
                "people": counted(
                    *(BUDGET, m.People()),
                    **clock,
                    keys=keys,
                    users=replace(users, events=min(k, 2), keys=None, per_key=1, gap=None),
                ),
            },
        )
    fixed = size if kind == "count" else None
    return Case(kind, made, fixed, horizon, users is not None, gap, relation)


def event(chance: random.Random, person: str, micros: int) -> Row:
    payload = {"u": person, "v": chance.choice([-5, 0, 1, 1, 1, 5]), "i": ["a", "b", "x"]}
    if chance.random() < 0.3:
        payload["i"] = chance.sample(["a", "b", "c", "x", "y"], 2)
    return chance.choice(["a", "a", "b", "q"]), payload, micros


def someone(chance: random.Random, case: Case) -> list[Row]:
    """All events of one: as near as they may be, all at once, or anywhere, even off the clock."""
    tick, end = TICK * SECOND, case.horizon * TICK * SECOND
    first = tick * chance.randrange(case.horizon)
    if not case.protects:
        return [event(chance, PERSON, first)]
    ways = {
        # From any moment of a tick on, where the gap may not leave it for the next but one.
        "near": range(chance.choice([0, 0, tick // 2]), end, int(case.gap * SECOND) or tick),
        "at once": [first] * 8,
        "anywhere": [chance.randrange(-tick, end + tick) for _ in range(8)],
    }
    weights = (2, 1, 1) if case.gap else (1, 3, 1)
    (way,) = chance.choices([*ways], weights)
    made = [event(chance, PERSON, micros) for micros in ways[way]]
    worst = chance.choice([None, 5, 5, -5, -5])
    if worst is None:
        return made
    items = chance.choice([["a"], ["b", "a"], ["x"]])
    return [("a", {**payload, "v": worst, "i": items}, micros) for _, payload, micros in made]


def released(case: Case, rows: list[Row]) -> dict[str, list[Any]]:
    """The releases of each count, as they came."""
    kept: dict[str, list[Any]] = {}

    def build(pipeline: beam.Pipeline) -> Any:
        events = pipeline | feed(sorted(rows, key=itemgetter(2)))
        if case.fixed is not None:
            events = events | beam.WindowInto(FixedWindows(case.fixed * TICK))
        made = events | case.made
        kept.update(dict.fromkeys(made if isinstance(made, dict) else [""]))
        return tuple(made.values()) if isinstance(made, dict) else made

    outcome = run(build)
    return {
        name: [seen.value for seen in output]
        for name, output in zip(kept, outcome.outputs, strict=True)
    }


def series(case: Case, releases: list[Any], ticks: int) -> Iterator[tuple[Any, np.ndarray]]:
    """The values of each counter, which has so many ticks; of metrics as the counter has them."""
    found: dict[Any, dict[int, float]] = {}
    for release in releases:
        origin = (release.step - 1) // ticks
        if isinstance(release, dp.Release):
            found.setdefault((release.key, origin), {})[release.step] = release.value
            continue
        joint = case.made.engine.joint
        units = [getattr(each, "step", 1) for each in joint.metrics for _ in each.columns]
        for place, value in enumerate(release.values.values()):
            one = value / units[place] * joint.multipliers[place]
            found.setdefault((release.key, place, origin), {})[release.step] = one
    for name, steps in found.items():
        yield name, np.array([steps[step] for step in sorted(steps)])


def shares(case: Case, one: list[Row], two: list[Row]) -> Iterator[tuple[float, float]]:
    """How much of its calibrated L1 and L2 sensitivity each count shows of two neighbours."""
    first, second = released(case, one), released(case, two)
    assert first.keys() == second.keys()
    for name, releases in first.items():
        counter = case.made.counters[name] if name else case.made.counter
        mechanism = counter.mechanism
        R = np.asarray(mechanism.encoder(mechanism.horizon), dtype=float)
        sums = np.asarray(mechanism.decoder(mechanism.horizon), dtype=float) @ R
        theirs = dict(series(case, second[name], mechanism.horizon))
        ours = dict(series(case, releases, mechanism.horizon))
        assert ours.keys() == theirs.keys()
        l1 = l2_squared = 0.0
        for place, values in ours.items():
            moved = R @ np.linalg.solve(sums, values - theirs[place])
            l1, l2_squared = l1 + np.abs(moved).sum(), l2_squared + np.square(moved).sum()
        yield l1 / counter.l1_sensitivity, math.sqrt(l2_squared) / counter.l2_sensitivity


def largest(seed: int, cases: int) -> float:
    """The largest share in so many cases; none is above 1."""
    chance, most = random.Random(seed), 0.0
    for _ in range(cases):
        case = drawn(chance)
        end = case.horizon * TICK * SECOND
        others = [event(chance, who, chance.randrange(end)) for who in "pqr" * 2]
        mine = someone(chance, case)
        theirs = someone(chance, case) if case.relation == "replace_one" else []
        for found in shares(case, others + mine, others + theirs):
            assert max(found) <= 1 + 1e-9, (case, mine, theirs)
            most = max(most, *found)
    return most


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_no_neighbours_differ_by_more_than_noise_is_for(seed: int) -> None:
    assert largest(seed, 8) > 0.7  # and some by nearly as much


def test_a_gap_of_parts_of_a_tick_is_rounded_down() -> None:
    """Events a tick and a half apart may lie in neighbouring ticks."""
    users = dp.Users(itemgetter("u"), 2, per_key=2, gap=1.5 * TICK)
    clock: dict[str, Any] = {"tick": TICK, "start": 0, "horizon": 3, "mechanism": "Simple1"}
    clock |= {"value": itemgetter("v"), "entropy": ScriptedEntropy(0)}
    made = TickNumbers(BUDGET, **clock, keys=["a"], users=users)
    case = Case("count", made, None, 3, True, 1.5 * TICK, "add_remove")
    mine: list[Row] = [("a", {"u": PERSON, "v": 1}, at * SECOND) for at in (0, 3 * TICK // 2)]
    (found,) = shares(case, mine, [])
    assert 0.9 < max(found) <= 1 + 1e-9


@pytest.mark.audit
@pytest.mark.parametrize("seed", range(100, 104))
def test_no_neighbours_differ_by_more_in_many_cases(seed: int) -> None:
    assert largest(seed, 60) > 0.99

"""TickCount: what can be said, and that it says what is there."""

from __future__ import annotations

import itertools
from typing import Any

import apache_beam as beam
import pytest

import beam_dpcount as dp
from beam_dpcount.transforms.sentence import TickCount
from tests import sentences as say
from tests.runners import PATHS, SECOND, feed, run

BUDGETS = {"pure": dp.PureDP(1e9), "approximate": dp.ApproxDP(1e9, 1e-6)}
KEYS: dict[str, Any] = {
    "listed": list(say.KEYS),
    "selected": dp.SelectKeys(delta=1e-9),
    "total": dp.TOTAL,
}


def refusal(thing: str, view: str, keys: str, unit: str, path: str) -> str | None:
    """Why a combination is refused; None: it is not."""
    if thing == "people" and unit == "events":
        return "give users=Users"
    if thing == "people" and view == "last" and path == "streaming":
        return "counted on bounded input only"
    if keys == "selected" and view == "last":
        return "SelectKeys shows keys by counts that only grow"
    return None


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("unit", ["events", "people"])
@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("kind", BUDGETS)
def test_every_thing_works_in_every_view(kind: str, keys: str, unit: str, path: str) -> None:
    """Only what `refusal` names is refused; all else says what plain Python counts."""
    # With few events a person, so that keys are shown early.
    rows = say.log(people=60 if keys == "selected" else 7)
    counts: dict[tuple[str, str], Any] = {}
    users = dp.Users("who", 4 if keys == "selected" else say.ALL) if unit == "people" else None
    for thing, view in itertools.product(say.THINGS, say.VIEWS):
        options: dict[str, Any] = {"keys": KEYS[keys], "users": users, "path": path}
        made = say.VIEWS[view], say.THINGS[thing]()
        said = refusal(thing, view, keys, unit, path)
        if said is not None:
            with pytest.raises(ValueError, match=said):
                TickCount(BUDGETS[kind], *made, **options)
            continue
        counts[thing, view] = TickCount(BUDGETS[kind], *made, **options)

    def build(pipeline: beam.Pipeline) -> Any:
        events = pipeline | feed(rows)
        return tuple(events | f"{n}" >> count for n, count in enumerate(counts.values()))

    outputs = run(build).outputs
    for ((thing, view), count), seen in zip(counts.items(), outputs, strict=True):
        truth = say.expected(thing, say.VIEWS[view], rows, keys == "total", users is not None)
        releases = [each.value for each in seen]
        names = {(r.key, r.step) for r in releases}
        assert len(names) == len({(r.key, r.timestamp) for r in releases}) == len(releases)
        if keys == "listed":
            assert names == set(itertools.product(say.KEYS, range(1, say.TICKS + 1)))
        elif keys == "total":
            assert names == {("total", step) for step in range(1, say.TICKS + 1)}
        else:
            assert names <= set(truth)
            assert "a" in {key for key, _ in names}
            if view == "so far":
                assert {key for key, _ in names} == {"a", "b", "c"}
        for release in releases:
            assert release.timestamp == release.step * say.TICK * SECOND
            found = truth[release.key, release.step]
            assert tuple(release.values) == tuple(found) == count.columns, (thing, view)
            for name, value in release.values.items():
                problem = (thing, view, release.key, release.step, name, value, found[name])
                assert say.is_near(thing, value, found[name]), problem
            number = (release.step - 1) // 4 + 1 if view == "restart" else None
            assert release.restart == number

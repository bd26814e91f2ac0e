"""TOTAL in place of keys: one count of all events, whatever they are."""

from __future__ import annotations

import copy
import pickle
from operator import itemgetter
from typing import Any, NamedTuple

import apache_beam as beam
import pytest

import beam_dpcount as dp
from beam_dpcount.commands.files import formats
from beam_dpcount.counters.total import ALL, Total
from beam_dpcount.transforms.ticks import TickNumbers
from tests.runners import SECOND, Row, each_path, each_runner_and_path, feed, run
from tests.scripted import ScriptedEntropy
from tests.sentences import counted

CLOCK: dict[str, Any] = {"tick": 10, "start": 0, "horizon": 6}
TOTAL: dict[str, Any] = {**CLOCK, "keys": dp.TOTAL}
LISTED: dict[str, Any] = {**CLOCK, "keys": [ALL], "other": ALL}
ROWS: list[Row] = [
    (key, {"who": who, "ms": ms}, at * SECOND)
    for key, who, ms, at in [
        *(("a", "ann", 3, 1), ("b", "bob", 9, 12), ("", "ann", 4, 14), ("all", "eve", 5, 31)),
        *(("c", "", None, 33), ("a", "ann", 7, 58), ("a", "bob", 1, 61), ("a", "bob", 1, -1)),
    ]
]
WHO = dp.Users("who", 2, per_key=2)
SOME = [dp.Count(), dp.Mean("ms", 0, 10), dp.Rate("ms > 4")]


def one(_: Any) -> int:
    return 1


def counts(**given: Any) -> dict[str, Any]:
    """Every count at a clock that takes keys."""
    budget, noise = dp.ZCDP(0.5), {"entropy": ScriptedEntropy()}
    given |= noise
    return {
        "count": TickNumbers(budget, **given, value=one),
        "people": TickNumbers(budget, **given, value=one, users=WHO),
        "metrics": counted(budget, SOME, **given),
        "metrics of people": counted(budget, [*SOME, dp.People()], **given, users=WHO),
        "each": counted(budget, SOME, **given, restart=1, users=WHO),
        "last": counted(budget, SOME, **given, last=2, users=WHO),
        "sliding": counted(budget, **given, last=2),
        "distinct": counted(budget, dp.People(), **given, users=dp.Users("who", 2)),
    }


def anything(event: Any) -> Any:
    """A pair with any key, or no pair at all."""
    key, payload = event
    return {"a": (7, payload), "b": payload, "c": (None, payload)}.get(key, event)


@each_path
@pytest.mark.parametrize("kind", counts(**TOTAL))
def test_it_is_one_listed_key_under_which_all_count(kind: str, path: str) -> None:
    """To the last bit, of pairs with any keys and of values that are not pairs."""
    total, listed = (counts(**given, path=path)[kind] for given in (TOTAL, LISTED))
    releases = run(lambda p: p | feed(ROWS) | beam.Map(anything) | total).releases
    assert releases == run(lambda p: p | feed(ROWS) | listed).releases
    assert {release.key for release in releases} == {"all"}
    assert [release.step for release in releases] == [1, 2, 3, 4, 5, 6]


@each_runner_and_path
def test_a_total_of_plain_numbers(runner: str, path: str) -> None:
    count = TickNumbers(dp.ZCDP(1e12), **TOTAL, bounds=(0, 10), path=path)
    elements: list[Any] = [3, 4.0, ("k", 2), ("k", "no number"), None, [1], (1, 2, 3), True]

    def build(pipeline: beam.Pipeline) -> Any:
        times = pipeline | feed([("", number, 5 * SECOND) for number in range(len(elements))])
        return times | beam.Map(lambda pair: elements[pair[1]]) | count

    releases = run(build, runner).releases
    assert [round(release.value, 3) for release in releases] == [10.0] * 6


@each_path
def test_values_need_not_be_mappings_if_no_field_is_read(path: str) -> None:
    metrics = [dp.Count(), dp.Rate(lambda level: level == "ERROR", name="error_rate")]
    count = counted(dp.ZCDP(1e12), metrics, **TOTAL, path=path)
    given = ["INFO", "ERROR", "INFO", None]

    def build(pipeline: beam.Pipeline) -> Any:
        times = pipeline | feed([("", place, 5 * SECOND) for place in range(len(given))])
        return times | beam.Map(lambda pair: given[pair[1]]) | count

    last = run(build).releases[-1]
    assert last.values["count"] == pytest.approx(4, abs=1e-3)
    assert last.values["error_rate"] == pytest.approx(1 / 4, abs=1e-3)


class Event(NamedTuple):
    who: str
    ms: int


def test_rows_are_read_by_their_fields() -> None:
    rows = beam.Map(lambda pair: Event(pair[1]["who"], pair[1]["ms"]))
    plain = counted(dp.ZCDP(1e12), SOME, **TOTAL)
    said = counted(dp.ZCDP(1e12), SOME, **TOTAL, value=lambda row: row._asdict())
    anyhow = counted(dp.ZCDP(1e12), **TOTAL, users=WHO)
    for count, n in ((plain, 6), (said, 6), (anyhow, 4)):
        last = run(lambda p, count=count: p | feed(ROWS) | rows | count).releases[-1]
        assert last.values["count"] == pytest.approx(n, abs=1e-3)


def test_events_can_be_checked_before() -> None:
    count = counted(dp.ZCDP(0.5), SOME, **TOTAL, users=WHO)
    rows = [
        ("k", {"who": "ann", "ms": 3}),
        {"who": "ann", "ms": 9},
        (7, {"who": "bob", "ms": 1}),
        None,
    ]
    found = dp.check(count, rows)
    assert (found.rows, found.people, found.keys, found.within) == (4, 2, 1, 3)
    assert [*found.problems] == ["the value is None, or cannot be read"]
    assert count.keys is dp.TOTAL


@pytest.mark.long
@each_path
def test_it_is_a_member_of_a_common_bound(path: str) -> None:
    """There all of a person's events may fall into the one total."""
    users = dp.Users("who", 2, per_key=1)
    given = {"value": one, "path": path}
    members = {
        "total": TickNumbers(dp.ZCDP(1e12), **TOTAL, **given),
        "listed": TickNumbers(dp.ZCDP(1e12), **CLOCK, keys=["a", "b"], **given),
    }
    bound = dp.BoundUsers(users, members)
    assert bound.counters["total"].l2_sensitivity == pytest.approx(
        2 * bound.counters["listed"].l2_sensitivity / 2**0.5, rel=1e-6
    )
    outputs = run(lambda p: tuple((p | feed(ROWS) | bound).values())).outputs
    total, listed = ([seen.value for seen in output] for output in outputs)
    assert round(total[-1].value) == 4  # two of ann's, one of bob's, one of eve's
    assert sum(round(release.value) for release in listed if release.step == 6) == 2


def test_there_is_one_total() -> None:
    assert repr(dp.TOTAL) == "TOTAL"
    for same in (pickle.loads(pickle.dumps(dp.TOTAL)), copy.copy(dp.TOTAL)):
        assert same is dp.TOTAL
    assert copy.deepcopy({"keys": dp.TOTAL})["keys"] is dp.TOTAL
    assert isinstance(dp.TOTAL, Total)
    assert formats.ALL == ALL


def test_a_total_has_no_other_keys() -> None:
    with pytest.raises(ValueError, match="other must be one of keys, got 'x'"):
        TickNumbers(dp.ZCDP(0.5), **TOTAL, other="x")


def test_a_person_reads_the_value() -> None:
    count = TickNumbers(
        dp.ZCDP(1e12),
        **TOTAL,
        value=one,
        users=dp.Users(itemgetter("who"), 1, per_key=1),
        path="bounded",
    )
    releases = run(lambda p: p | feed(ROWS) | beam.Map(anything) | count).releases
    assert [round(release.value) for release in releases] == [1, 2, 2, 3, 3, 3]

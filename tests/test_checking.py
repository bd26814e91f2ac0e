"""`check`: what a transform would make of public rows."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import MIN_TIMESTAMP

import beam_dpcount as dp
from beam_dpcount.counters.clock import OUTSIDE, UNLISTED
from beam_dpcount.rows import TickCountRows
from beam_dpcount.transforms.ticks import TickNumbers
from tests.runners import feed, run
from tests.sentences import counted

BUDGET = dp.ApproxDP(1.0, 1e-6)
CLIPPED = "the value lies outside the bounds (0, 1) and is clipped"
UNKNOWN = "the value names an item that is not in the domain"


CLOCK: dict[str, Any] = {"tick": 10, "start": 0, "horizon": 3, "keys": ["a", "b"]}


def ticks(**options: Any) -> TickNumbers:
    return TickNumbers(BUDGET, **CLOCK, **options)


def test_what_would_be_rejected_clipped_or_unknown_is_counted() -> None:
    values = [0, 1, 2, -1, 0.5, None, "1", float("nan"), 3]
    found = dp.check(dp.PrefixCount(BUDGET, 10), [("a", value) for value in values])
    rounded = "the value is rounded to a multiple of 1"
    assert found[:2] == (9, {CLIPPED: 3, rounded: 1, "the value is not a number": 3})
    assert str(found).splitlines()[0] == "2 of 9 rows count as they are"


def _slopes(x: float, at: Any) -> Any:
    return np.clip(at - x, -1, 1) if x < 5 else -at


def _pair(x: Any) -> Any:
    return "a", x


def _alone(x: Any) -> Any:
    return x


# For each transform: how it is made with `value`, elements made of contents, and what is found.
CASES: dict[str, tuple[Any, Any, list[Any], dict[str, int]]] = {
    "PrefixCount": (
        lambda v: dp.PrefixCount(BUDGET, 10, value=v, on_reject="raise", element_id=id),
        _pair,
        [1, 7, "x"],
        {CLIPPED: 1, "the value is not a number": 1},
    ),
    "Histogram": (
        lambda v: dp.Histogram(BUDGET, 10, ["x", "y"], value=v),
        _pair,
        ["x", "z", ["x", "y"], 7],
        {
            UNKNOWN: 1,
            "the value names more items than max_items": 1,
            "the value is neither an item nor a collection of items": 1,
        },
    ),
    "SubstringCount": (
        lambda v: dp.SubstringCount(BUDGET, 10, ["x", "y"], 2, value=v),
        _pair,
        ["x", "", None, "z"],
        {"the value is not in the domain": 1},
    ),
    "TriangleCount": (
        lambda v: dp.TriangleCount(BUDGET, 10, 3, max_degree=2, value=v),
        _pair,
        [(0, 1), (0, 9)],
        {"the value names a vertex that is not in the graph": 1},
    ),
    "TickCount": (
        lambda v: ticks(value=v),
        _pair,
        [1, 2],
        {CLIPPED: 1},
    ),
    "vectors": (
        lambda v: counted(BUDGET, [dp.Items("i", ["x"]), dp.Count()], **CLOCK, value=v),
        _pair,
        [{"i": "x"}, {"i": "z"}],
        {f"i: {UNKNOWN}": 1},
    ),
    "LocalMedian": (
        lambda v: dp.local.LocalMedian(BUDGET, 8, value=v),
        _alone,
        [0.5, 2, "x"],
        {
            "the value lies outside [0, 1] and is clipped": 1,
            "the value is not a number and counts as 1/2": 1,
        },
    ),
    "LocalConvexRisk": (
        lambda v: dp.local.LocalConvexRisk(BUDGET, 8, value=v, gradient=_slopes),
        _alone,
        [0.5, 5],
        {"the slopes decrease and are made to increase": 1},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_each_transform(name: str) -> None:
    make, element, contents, expected = CASES[name]
    rows = [element({"x": content}) for content in contents]
    found = dp.check(make(lambda e: e["x"]), rows)
    assert (found.rows, sum(found.problems.values())) == (len(rows), sum(expected.values()))
    assert set(found.problems.values()) == set(expected.values())
    if name not in ("SubstringCount", "TriangleCount"):  # whose words their own tests have
        assert found.problems == expected


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_mistyped_field_is_an_error(name: str) -> None:
    """In a pipeline it counts 0, or 1/2, as data can cause it, too."""
    make, element, contents, _ = CASES[name]
    rows = [element({"x": contents[0]})] * 2
    given = "; it is given the value of the (key, value) pair, not the pair"
    hint = re.escape(given) if element is _pair else ""
    with pytest.raises(
        dp.errors.CheckError, match=rf"^row 1: value raised KeyError: 'purchse'{hint}$"
    ):
        dp.check(make(lambda e: e["purchse"]), rows)
    with pytest.raises(dp.errors.CheckError, match=r"^row 1: value raised NameError"):
        dp.check(make(lambda e: purchse), rows)  # type: ignore[name-defined]  # noqa: F821


def test_in_a_pipeline_it_counts_nothing() -> None:
    """The rule that the docstring states: a KeyError is one that data can cause."""
    count = dp.PrefixCount(dp.ZCDP(1e12), 10, value=lambda e: e["purchse"])
    outcome = run(lambda p: p | feed([("a", {"purchase": 1}, 0)] * 2) | count)
    assert [round(r.value) for r in outcome.releases] == [0, 0]


def test_what_is_rounded() -> None:
    found = dp.check(dp.PrefixCount(BUDGET, 9), [("a", x) for x in (0.4, 1, 0.0, True)])
    assert found.problems == {"the value is rounded to a multiple of 1": 1}
    cents = dp.PrefixCount(BUDGET, 9, bounds=(0, 100), unit=0.01)
    found = dp.check(cents, [("a", x) for x in (3.37, 0.1 + 0.2, 99.99, 0.005)])
    assert found.problems == {"the value is rounded to a multiple of 0.01": 1}


class Click(NamedTuple):
    action: str


def test_what_stops_a_pipeline_is_an_error() -> None:
    for transform in (
        counted(BUDGET, **CLOCK),
        dp.local.LocalMedian(BUDGET, 4),
        dp.PrefixCount(BUDGET, 9),
    ):
        for row in (Click("buy"), beam.Row(action="buy")):  # type: ignore[attr-defined]
            with pytest.raises(dp.errors.CheckError, match=r"^row 1: "):
                dp.check(transform, [row])
    untimed = TimestampedValue(("a", 1), MIN_TIMESTAMP)
    with pytest.raises(dp.errors.CheckError, match=r"^row 1: UntimedElementError"):
        dp.check(ticks(), [untimed])


def test_keys_and_times_at_a_clock() -> None:
    rows = [("a", 1), ("z", 1), ("b", 7), TimestampedValue(("a", 1), 29)]
    rows += [TimestampedValue(("b", 1), at) for at in (-1, 30)]
    assert dp.check(ticks(), rows).problems == {
        UNLISTED: 1,
        CLIPPED: 1,
        OUTSIDE: 2,
    }


def test_rows_of_ticks_that_have_not_ended_do_not_count() -> None:
    rows = [TimestampedValue(("a", 1), at) for at in (0, 9, 10, 24, 30)]
    late = "its tick has not ended by 1970-01-01T00:00:15Z (until)"
    expected = {late: 2, OUTSIDE: 1}
    assert dp.check(ticks(until=15), rows).problems == expected
    people = dp.Users(lambda n: f"p{n}", 5, per_key=5)
    found = dp.check(ticks(until=15, users=people, value=lambda _: 1), rows)
    assert (found.within, found.problems) == (2, expected)


def test_rows_that_are_no_pairs() -> None:
    for transform in (dp.PrefixCount(BUDGET, 10), ticks()):
        with pytest.raises(
            dp.errors.CheckError, match=r"row 2: TypeError: elements must be .* pairs"
        ):
            dp.check(transform, [("a", 1), "ab"])
        with pytest.raises(dp.errors.CheckError, match=r"row 1: .* not a str but int"):
            dp.check(transform, [(7, 1)])


def test_errors_of_element_id_are_shown_too() -> None:
    count = dp.PrefixCount(BUDGET, 10, element_id=lambda e: e.id)
    with pytest.raises(
        dp.errors.CheckError, match=r"^row 1: element_id raised AttributeError: .*not the pair$"
    ):
        dp.check(count, [("a", 1)])


def test_an_error_of_by_says_what_it_is_given() -> None:
    rows = [("a", {"user": "ann"})]
    wrong = dp.Users(lambda pair: pair[1]["user"], 3, per_key=1)
    said = "row 1: users.by raised KeyError: 1; it is given the value of the (key, value) pair, "
    for count in (
        ticks(value=lambda _: 1, users=wrong),
        dp.PrefixCount(BUDGET, 9, value=lambda _: 1, users=wrong),
        counted(BUDGET, dp.People(), **CLOCK, users=wrong),
    ):
        with pytest.raises(dp.errors.CheckError) as caught:
            dp.check(count, rows)
        assert str(caught.value) == f"{said}not the pair"
        assert type(caught.value.__cause__) is KeyError


class Visit(NamedTuple):
    user: str
    paid: int


@pytest.mark.parametrize("payload", [{"user": "ann", "paid": 3}, Visit("ann", 3)])
def test_a_field_that_no_row_has_is_an_error(payload: Any) -> None:
    count = ticks(value=lambda _: 1, users=dp.Users("usr", 3, per_key=1))
    missing = "the event has no person: it has no field 'usr', but 'user', 'paid'"
    with pytest.raises(dp.errors.CheckError) as caught:
        dp.check(count, [("a", payload)] * 2)
    assert str(caught.value) == f"row 1: {missing}"
    found = dp.check(count, [("a", payload), ("a", {"usr": "ann"}), ("a", 7)])
    assert found.problems == {missing: 1, "the event has no person: it has no fields": 1}
    assert found.people == 1
    assert dp.check(count, [("a", payload), ("a", {"usr": None})]).people == 0


def test_a_field_within_another_needs_a_function() -> None:
    count = ticks(value=lambda _: 1, users=dp.Users("user.id", 3, per_key=1))
    with pytest.raises(dp.errors.CheckError) as caught:
        dp.check(count, [("a", {"user": {"id": "ann"}})])
    assert str(caught.value).endswith(
        "it has no field 'user.id', but 'user'; for a field within another give a function, such "
        "as by=lambda event: event['user']['id']"
    )
    assert dp.check(count, [("a", {"user.id": "ann"})]).people == 1


def test_what_counts_nothing() -> None:
    for transform in (dp.post.NonNegative(), beam.Map(print), None):
        with pytest.raises(TypeError, match=r"check takes a transform that counts"):
            dp.check(transform, [])
    assert dp.check(ticks(), []) == (0, {}, 0, None, None)


def test_nothing_is_spent() -> None:
    share = dp.Ledger(BUDGET).rest("count")
    count = dp.PrefixCount(share, 10)
    dp.check(count, [("a", 1)] * 3)
    run(lambda p: p | feed([("a", 1, 0)]) | count)


def test_a_wrong_person_stands_out() -> None:
    """`by` gets the payload: of a name, the second letter is everybody's."""
    names = [f"{letter}{vowel}{n}" for n in range(5) for letter in "bcdf" for vowel in "aeo"]
    rows = [("a", name) for name in names] * 2
    wrong, right = (
        ticks(value=lambda _: 1, users=dp.Users(by, 3, per_key=1))
        for by in (lambda pair: pair[1], str)
    )
    found = dp.check(wrong, rows)
    assert found == (120, {}, 1, 3, 3)
    assert str(found).splitlines() == [
        "120 of 120 rows count as they are",
        "3 people: the bound on each lets 3 of 120 rows count",
        "1 key",
    ]
    assert dp.check(right, rows)[2:] == (1, 60, 60)


def test_people_and_keys_are_those_that_count() -> None:
    rows: list[Any] = [("a", {"who": 7}), ("b", {"who": "7"}), ("z", {"who": "x"})]
    rows += [("a", {"who": None}), ("a", {"who": 7.0}), ("b", {"who": "y"})]
    users = dp.Users("who", 2, keys=1, per_key=1)
    made = ticks(value=lambda _: 1, users=users)
    # 7 and "7" are one person, of whom one key counts; z is not listed; two rows are nobody's.
    assert dp.check(made, rows)[2:] == (3, 3, 2)
    assert dp.check(ticks(value=lambda _: 1, users=users, other="a"), rows)[2:] == (3, 3, 3)
    elements = dp.PrefixCount(BUDGET, 9, value=lambda _: 1, users=users)
    assert dp.check(elements, rows)[2:] == (3, 3, 3)
    assert "a whole number, or a text that is not empty" in str(dp.check(elements, rows))
    distinct = counted(BUDGET, dp.People(), **CLOCK, users=dp.Users("who", 2))
    assert dp.check(distinct, rows)[2:] == (3, 3, 3)
    assert dp.check(dp.PrefixCount(BUDGET, 9), [("a", 1), ("b", 1)])[2:] == (2, None, None)
    assert dp.check(dp.local.LocalMedian(BUDGET, 4), [0.5, 0.7])[2:] == (None, None, None)


def test_a_gap_is_looked_at_where_times_are_known() -> None:
    made = ticks(value=lambda _: 1, users=dp.Users("who", 9, per_key=9, gap=5), late="drop")
    rows: list[Any] = [("a", {"who": "x"})] * 3
    assert dp.check(made, rows).within == 3
    assert dp.check(made, [TimestampedValue(row, 4 * i) for i, row in enumerate(rows)]).within == 2
    rowwise = TickCountRows(
        "page", tick=60, start=0, horizon=3, keys=["a"], rho=1, user="who", per_user=1
    )
    fields = [beam.Row(page="a", who=i % 2) for i in range(4)]  # type: ignore[attr-defined]
    assert dp.check(rowwise, fields)[2:] == (1, 2, 2)


def _first_only() -> Any:
    seen: set[Any] = set()

    def function(event: Any) -> Any:
        is_first = event["x"] not in seen
        seen.add(event["x"])
        return str(event["x"]) if is_first else None

    return function


def _counting() -> Any:
    calls = iter(range(1000))
    return lambda event: next(calls) % 2


def _failing_later() -> Any:
    calls = iter(range(1))
    return lambda event: next(calls)


@pytest.mark.parametrize("name", CASES)
def test_a_value_that_follows_from_other_events_is_an_error(name: str) -> None:
    """Here the first call gives the first content, and all others the last."""
    make, element, contents, _ = CASES[name]
    given = [contents[0]]

    def value(event: Any) -> Any:
        return given.pop() if given else contents[-1]

    with pytest.raises(dp.errors.CheckError, match=r"^row 1: what is counted differed .* alone"):
        dp.check(make(value), [element({}), element({})])


def test_functions_that_remember_are_errors() -> None:
    rows = [("a", {"x": x}) for x in (5, 6, 5)]
    people = ticks(value=lambda _: 1, users=dp.Users(_first_only(), 3, per_key=1))
    with pytest.raises(
        dp.errors.CheckError, match=r"^row \d: users.by gave another person .*look-ups"
    ):
        dp.check(people, rows)
    with pytest.raises(dp.errors.CheckError, match=r"^row \d: what is counted differed"):
        dp.check(ticks(value=_counting()), rows)
    with pytest.raises(
        dp.errors.CheckError, match=r"^row \d: value raised StopIteration: , when called again: it"
    ):
        dp.check(ticks(value=_failing_later()), rows[:1])
    ids = _counting()
    with pytest.raises(dp.errors.CheckError, match=r"^row \d: element_id gave another id"):
        dp.check(dp.PrefixCount(BUDGET, 9, value=lambda _: 1, element_id=ids), rows[:1])


def test_rows_are_taken_forwards_and_in_reverse() -> None:
    order: list[Any] = []

    def value(event: Any) -> Any:
        if not order or order[-1] != event:
            order.append(event)
        return 1

    dp.check(ticks(value=value), [("a", n) for n in range(3)])
    assert order == [0, 1, 2, 1, 0]

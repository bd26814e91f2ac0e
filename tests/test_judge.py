"""The judge of what was seen of a stream: nothing that differs passes, to the last bit."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from beam_dpcount.dofns.releases import Release, VectorRelease
from benchmarks.judge import Verdict, exactly, judge

WHOLE: list[Any] = [
    ((key, step), Release(key, step, 10 * step, random.Random(f"{key} {step}").gauss(0, 9), 1.5))
    for key in ("a", "b", "c")
    for step in range(1, 6)
]


def with_value(place: Any, value: float) -> list[Any]:
    """Seen once each, but at one place another value."""
    return [(at, r._replace(value=value) if at == place else r) for at, r in WHOLE]


def test_what_is_equal_passes_however_often_it_was_seen() -> None:
    seen = [*WHOLE, *WHOLE[3:9], WHOLE[4]]
    random.Random(1).shuffle(seen)
    assert judge(seen, WHOLE) == Verdict(22, 15, 15, 0, 0, 0, 0, 15)
    assert judge(seen, WHOLE).faults == []
    assert judge(seen, WHOLE).repeated == 7


def test_what_is_missing_unknown_or_has_two_values_is_named() -> None:
    assert judge(WHOLE[2:], WHOLE).faults == ["2 releases missing"]
    assert judge([], WHOLE).faults == ["15 releases missing"]
    unknown = [(("z", 1), WHOLE[0][1]), (("a", 6), WHOLE[0][1])]
    assert judge(WHOLE + unknown, WHOLE).faults == ["2 releases that should not be"]
    twice = [*WHOLE, *with_value(("b", 2), 0.0)]
    assert judge(twice, WHOLE).faults == ["1 releases seen with two values"]
    assert judge(twice, WHOLE).equal == 14


@pytest.mark.parametrize("place", [("a", 1), ("c", 5)])
def test_one_bit_is_enough(place: Any) -> None:
    value = dict(WHOLE)[place].value
    for other in (math.nextafter(value, math.inf), -value, math.nan):
        verdict = judge(with_value(place, other), WHOLE)
        assert verdict.faults == ["1 releases differ from the uninterrupted run"]
        assert (verdict.differing, verdict.equal, verdict.conflicts) == (1, 14, 0)
    for field in ("timestamp", "stddev"):
        seen = [(at, r._replace(**{field: 7}) if at == place else r) for at, r in WHOLE]
        assert judge(seen, WHOLE).differing == 1


def test_values_of_two_keys_that_were_swapped_differ() -> None:
    """Every place is there, once; so it was where each key went on from the other's state."""
    other = {"a": "b", "b": "a", "c": "c"}
    values = {place: release.value for place, release in WHOLE}
    seen = [(at, r._replace(value=values[other[at[0]], at[1]])) for at, r in WHOLE]
    assert judge(seen, WHOLE).faults == ["10 releases differ from the uninterrupted run"]


def test_what_is_wrong_in_the_same_way_every_time_is_caught() -> None:
    seen = [(at, r._replace(value=round(r.value))) for at, r in WHOLE]
    assert judge(seen + seen, WHOLE).faults == ["15 releases differ from the uninterrupted run"]


def test_system_entropy_is_judged_without_values_and_this_is_said() -> None:
    seen = [(at, r._replace(value=r.value + 1)) for at, r in WHOLE]
    verdict = judge(seen, WHOLE, comparable=False)
    assert verdict.faults == []
    assert verdict.equal == 0
    assert verdict.unchecked == "values, as system entropy draws anew in every run"
    faults = judge([*seen, *WHOLE[:2]], WHOLE, comparable=False).faults
    assert faults == ["2 releases seen with two values"]
    assert judge(seen[1:], WHOLE, comparable=False).faults == ["1 releases missing"]
    assert not judge(seen, WHOLE).unchecked


def test_windows_and_vectors() -> None:
    whole = [
        (("a", step, window), VectorRelease("a", step, 0, [0.0, float(window)], 1.0))
        for step in (1, 2)
        for window in (0, 60)
    ]
    assert judge(whole, whole).faults == []
    seen = [*whole[:3], (whole[3][0], whole[3][1]._replace(value=[-0.0, 60.0]))]
    assert judge(seen, whole).differing == 1
    assert judge([(at[:2], r) for at, r in whole], whole).faults == [
        "4 releases missing",
        "2 releases that should not be",
        "2 releases seen with two values",
    ]


def test_bytes_are_equal_for_equal_values_only() -> None:
    values: list[Any] = [
        *(0, 0.0, -0.0, 1, 1.0, True, "1", b"1", None, math.nan, math.inf, 5e-324),
        *([], [1], [1, 1], [[1], 1], [1, [1]], ["1"], [b"i1"], [0.0, 0.0]),
    ]
    assert len({exactly(value) for value in values}) == len(values)
    assert exactly((1, [2.0])) == exactly([1, (2.0,)])
    assert exactly(float("nan")) == exactly(math.nan)
    with pytest.raises(TypeError, match="set"):
        exactly([{1}])


def test_what_is_no_uninterrupted_run_is_refused() -> None:
    with pytest.raises(ValueError, match="twice"):
        judge(WHOLE, [*WHOLE, WHOLE[3]])
    with pytest.raises(ValueError, match="nothing to compare"):
        judge(WHOLE, [])

"""Streaming counts of numbers: what a bundle gathers of a key counts as its elements one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.transforms import window
from apache_beam.transforms.window import FixedWindows, GlobalWindow, IntervalWindow
from apache_beam.utils import windowed_value

import beam_dpcount as dp
from beam_dpcount import mechanisms
from beam_dpcount.dofns import gathered
from beam_dpcount.dofns.elements import CheckKeys, CountEachElement, StepStddevs
from beam_dpcount.dofns.gathered import CountGathered, GatherNumbers
from beam_dpcount.dofns.intake import NOT_PAIRS
from beam_dpcount.dofns.kept import Kept, KeptCoder
from beam_dpcount.dofns.windows import OTHER_WINDOWS, WindowCheck
from beam_dpcount.states import whole_keys
from benchmarks.cells import Cell
from benchmarks.jobs import dofns_of
from tests.messages import says
from tests.scripted import ScriptedEntropy

BUDGET = dp.ZCDP(0.5)
EVERYWHERE = (GlobalWindow(),)
VARIABLE = "COUNTING_SECRET"
SECRET = "0123456789abcdef" * 4


def scripted(horizon: int | None = 40, **given: Any) -> dp.PrefixCount:
    given = {"path": "streaming", "entropy": ScriptedEntropy(), "bounds": (-9, 9), **given}
    return dp.PrefixCount(given.pop("budget", BUDGET), horizon, **given)


def placed(element: Any, micros: int = 0, windows: Any = EVERYWHERE) -> Any:
    return windowed_value.create(element, micros, windows)


def gather(
    count: dp.PrefixCount, elements: Sequence[Any], windows: Any = None
) -> list[tuple[Any, int, Any]]:
    """What a bundle passes on: keys and their steps, times, and windows."""
    check = WindowCheck(None if windows is None else windows.size.micros)
    dofn: Any = GatherNumbers(count._intake(), check)
    given: list[Any] = []
    dofn.start_bundle()
    for element in elements:
        given += dofn.process(element.value, element)
    given += dofn.finish_bundle()
    assert [*dofn.finish_bundle()] == []  # each once
    return [
        ((value.value[0], steps_of(value.value[1])), value.timestamp_micros, value.windows)
        for value in given
    ]


def steps_of(packed: bytes) -> list[tuple[int, int]]:
    return [tuple(row) for row in np.frombuffer(packed, "<i8").reshape(-1, 2).tolist()]


class Streams:
    """The keys of a DoFn, bundle by bundle. A cell is live, as an engine's may be."""

    def __init__(self, dofn: Any) -> None:
        self.dofn, self.cells = dofn, dict[str, Any]()
        dofn.setup()

    def bundle(self, elements: Sequence[Any]) -> list[Any]:
        self.dofn.start_bundle()
        given: list[Any] = []
        for element in elements:
            cell = self.cells.setdefault(element.value[0], Live())
            given += self.dofn.process(element.value, element, cell)
        return [value.value if hasattr(value, "windows") else value for value in given]

    def commit(self) -> dict[str, bytes]:
        """What the cells hold, as bytes from now on."""
        for cell in self.cells.values():
            cell.data = KeptCoder().encode(cell.data)
        return {key: cell.data for key, cell in self.cells.items()}


def counting(kind: type, count: dp.PrefixCount) -> Streams:
    return Streams(kind(count._intake(), count._entropy, WindowCheck(None)))


class Live(Cell):
    def write(self, data: Any) -> None:
        self.data = data


def packed(key: str, steps: Sequence[tuple[int, int]]) -> Any:
    return placed((key, np.array(steps, "<i8").tobytes()), min(micros for micros, _ in steps))


# What a bundle gathers


def test_a_bundle_gathers_the_steps_of_each_key_in_order_of_arrival() -> None:
    elements = [("b", 3), ("a", 1), ("b", None), ("a", 99), ("b", -2)]
    timed = [placed(element, 50 - i) for i, element in enumerate(elements)]
    assert gather(scripted(), timed) == [
        (("b", [(50, 3), (48, 0), (46, -2)]), 46, EVERYWHERE),
        (("a", [(49, 1), (47, 9)]), 47, EVERYWHERE),
    ]
    assert gather(scripted(), []) == []


def test_windows_are_gathered_apart_and_what_lies_in_none_is_not() -> None:
    first, second = (IntervalWindow(0, 10),), (IntervalWindow(10, 20),)
    rows = [(1, first), (2, second), (3, (IntervalWindow(0, 10),)), (4, ())]
    elements = [placed(("k", x), x, windows) for x, windows in rows]
    assert gather(scripted(), elements, FixedWindows(10)) == [
        (("k", [(1, 1), (3, 3)]), 1, first),
        (("k", [(2, 2)]), 2, second),
    ]


def test_a_bundle_of_many_elements_passes_some_on_before_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gathered, "_GATHERED", 4)
    found = gather(scripted(), [placed(("ab"[i % 2], i)) for i in range(10)])
    assert [(key, [x for _, x in steps]) for (key, steps), _, _ in found] == [
        ("a", [0, 2]),
        ("b", [1, 3]),
        ("a", [4, 6]),
        ("b", [5, 7]),
        ("a", [8]),
        ("b", [9]),
    ]


@pytest.mark.parametrize("element", ["text", ("k",), ("k", 1, 2), (b"k", 1), ["k", 1], 5])
def test_what_is_no_pair_with_a_text_key_stops_the_count(element: Any) -> None:
    with pytest.raises(TypeError, match=says(NOT_PAIRS)):
        gather(scripted(), [placed(element)])


class TwoWindows(beam.DoFn):
    """Gives an element two windows of those declared."""

    def process(self, element: Any) -> Any:
        two = tuple(window.IntervalWindow(10 * i, 10 * i + 10) for i in range(2))
        yield windowed_value.create(element, 0, two)


@pytest.mark.parametrize("path", ["bounded", "streaming"])
def test_an_element_in_two_fixed_windows_stops_the_count(path: str) -> None:
    pipeline = beam.Pipeline("FnApiRunner")
    events = pipeline | beam.Create([("k", 1)]) | beam.WindowInto(FixedWindows(10))
    twice = events | beam.ParDo(TwoWindows()).with_output_types(tuple[str, int])
    _ = twice | dp.PrefixCount(BUDGET, 9, path=path)
    with pytest.raises(Exception, match=says(OTHER_WINDOWS)):
        pipeline.run().wait_until_finish()


def test_what_is_more_than_a_number_counts_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """For it, what is kept or given out depends on more than times and numbers."""
    monkeypatch.setenv(VARIABLE, SECRET)
    replayed = dp.ReplayableEntropy(VARIABLE, run_id="run")
    assert {GatherNumbers, CountGathered} <= set(dofns_of(scripted()))
    for given in (
        {"on_reject": "collect"},
        {"every": 2},
        {"element_id": str},
        {"element_id": str, "entropy": replayed},
    ):
        assert {CheckKeys, CountEachElement} <= set(dofns_of(scripted(**given))), given


# How it counts


COUNTS: dict[str, Any] = {
    **{kind.__name__: {"mechanism": kind.__name__} for kind in mechanisms.ALL},
    "Unbounded": {"mechanism": mechanisms.Unbounded(mechanisms.BinaryTree), "horizon": None},
    "Sparse": {"mechanism": mechanisms.Sparse(5, 9), "horizon": None, "bounds": (0, 1)},
}


def count_of(name: str) -> dp.PrefixCount:
    for budget in (dp.PureDP(1.0), BUDGET):
        try:
            return scripted(budget=budget, **COUNTS[name])
        except ValueError:  # it takes other noise
            continue
    raise AssertionError(name)


@pytest.mark.parametrize("name", COUNTS)
def test_gathered_steps_are_those_of_elements_one_by_one(name: str) -> None:
    """The same releases, and the same bytes in the cells, however bundles are cut."""
    count, rng = count_of(name), np.random.default_rng(5)
    keys, xs = rng.integers(0, 2, (2, 60)).tolist()
    rows = [("ab"[i], 10 * j, x) for j, (i, x) in enumerate(zip(keys, xs, strict=True))]
    for cut in (1, 7, 60):
        alone, together = counting(CountEachElement, count), counting(CountGathered, count)
        for at in range(0, len(rows), cut):
            some = rows[at : at + cut]
            expected = alone.bundle([placed((key, x), micros) for key, micros, x in some])
            steps = {key: [(m, x) for k, m, x in some if k == key] for key, _, _ in some}
            found = together.bundle([packed(key, made) for key, made in steps.items()])
            assert [*map(repr, sorted(found))] == [*map(repr, sorted(expected))]  # NaN included
            assert together.commit() == alone.commit()


def test_standard_deviations_of_far_steps_are_those_of_elements_one_by_one() -> None:
    steps = StepStddevs(scripted(1 << 20).counter)
    for first in (1, whole_keys.REMEMBERED - 3, whole_keys.REMEMBERED + 1, 10**6):
        expected = [steps.at((t,)) for t in range(first, first + 9)]
        assert steps.of(first, first + 8) == expected
    assert np.isnan(StepStddevs(count_of("Sparse").counter).of(10**6, 10**6 + 1)).all()


def test_steps_past_the_horizon_are_counted_and_not_released() -> None:
    streams = counting(CountGathered, scripted(5))
    counter = streams.dofn._past_horizon = Tally()
    assert len(streams.bundle([packed("a", [(i, 1) for i in range(3)])])) == 3
    assert counter.total == 0
    given = streams.bundle([packed("a", [(i, 1) for i in range(7)])])
    assert [release.step for release in given] == [4, 5]
    before = streams.commit()
    assert streams.bundle([packed("a", [(9, 1)])]) == []
    assert (counter.total, streams.commit()) == (6, before)


class Tally:
    total = 0

    def inc(self, n: int = 1) -> None:
        self.total += n


def test_a_bundle_that_fails_leaves_what_others_made() -> None:
    """It steps from what was there before, and never changes that in place."""
    streams = counting(CountGathered, scripted())
    first = streams.bundle([packed("a", [(0, 1), (1, 1)]), packed("a", [(2, 1)])])
    kept = streams.cells["a"].data
    assert (type(kept), kept.state[0]) == (Kept, 3)
    again = [streams.bundle([packed("a", [(3, 1)])]) for _ in range(1)]
    assert streams.cells["a"].data is not kept
    assert kept.state[0] == 3
    streams.cells["a"].data = kept  # as an engine has it, whose bundle failed
    assert [streams.bundle([packed("a", [(3, 1)])])] == again
    assert [release.step for release in first + again[0]] == [1, 2, 3, 4]

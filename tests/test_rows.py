"""Rows are no (key, value) pairs: every transform refuses them, and takes them as values."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import apache_beam as beam
import pytest
from apache_beam.coders import RowCoder, TupleCoder
from apache_beam.transforms.window import TimestampedValue
from apache_beam.typehints.row_type import RowTypeConstraint

import beam_dpcount as dp
from beam_dpcount.dofns.rows import (
    TO_NUMBERS,
    TO_PAIRS,
    RowElementError,
    is_row,
    is_row_type,
)
from beam_dpcount.transforms.sentence import TO_KEYS
from beam_dpcount.transforms.ticks import TickNumbers
from tests.runners import RUNNERS, root, run
from tests.sentences import counted
from tests.transforms import ALL, BUDGET, CLOCK, KEYED, OTHERS, TICKS

EXACT = dp.ZCDP(1e12)  # its noise is 0


class Visit(NamedTuple):
    """The private column comes first."""

    action: str
    page: str


@dataclasses.dataclass(frozen=True)
class Seen:
    action: str
    page: str


ROWS: dict[str, Any] = {
    "row": beam.Row(action="buy", page="/home"),  # type: ignore[attr-defined]
    "named": Visit("buy", "/home"),
    "dataclass": Seen("buy", "/home"),
}
SAID = {"LocalMedian": TO_NUMBERS}

each = pytest.mark.parametrize("name", ALL)
each_form = pytest.mark.parametrize("form", ROWS)
shuffles = pytest.mark.parametrize("reshuffled", [False, True], ids=["direct", "reshuffled"])


def stamped(pipeline: beam.Pipeline, elements: list[Any], declared: Any = Any) -> Any:
    """Elements at second 5, of a declared type; by default any, which promises nothing."""
    stamp: Any = beam.Map(lambda element: TimestampedValue(element, 5))
    made = pipeline | beam.Create(elements) | "Stamp" >> stamp.with_output_types(declared)
    return made


def refused(name: str, element: Any, runner: str = "fn", reshuffled: bool = False, **more: Any):
    """The words of the error with which a pipeline of this element, declared to be any, ends."""

    def build(pipeline: beam.Pipeline) -> Any:
        elements = stamped(pipeline, [element])
        if reshuffled:
            elements |= "Mix" >> beam.Reshuffle()
        return elements | ALL[name](**more)

    with pytest.raises(Exception) as caught:
        run(build, runner)
    return caught.value


# Refused when applied, by their type


@each_form
@each
def test_types_of_rows_are_refused_when_a_transform_is_applied(name: str, form: str) -> None:
    pipeline = beam.Pipeline(runner="FnApiRunner")
    with pytest.raises(RowElementError) as caught:
        _ = pipeline | beam.Create([ROWS[form]]) | ALL[name]()
    sentence = name in TICKS and name != "TickCount"
    assert str(caught.value) == (TO_KEYS if sentence else SAID.get(name, TO_PAIRS))


@each
def test_types_of_rows_that_a_step_before_makes(name: str) -> None:
    pipeline = beam.Pipeline(runner="FnApiRunner")
    logs = pipeline | beam.Create([("buy", "/home")])
    rows = logs | beam.MapTuple(lambda action, page: beam.Row(action=action, page=page))  # type: ignore[attr-defined]
    with pytest.raises(RowElementError):
        _ = rows | ALL[name]()
    with pytest.raises(RowElementError):
        _ = rows | beam.Reshuffle() | "Mixed" >> ALL[name]()
    with pytest.raises(RowElementError):  # some of them are rows
        _ = (logs, rows) | beam.Flatten() | "Both" >> ALL[name]()


def test_pairs_and_iterables_are_no_rows() -> None:
    class Pair(tuple):
        """A user's own, without fields."""

    @dataclasses.dataclass
    class Basket:
        items: tuple[str, ...]

        def __iter__(self) -> Any:
            return iter(self.items)

    for plain in (
        ("k", 1),
        Pair(("k", 1)),
        ["k", 1],
        "k",
        1,
        None,
        {"k": 1},
        Visit,
        Basket(("a",)),
    ):
        assert not is_row(plain)
    for kind in (tuple, tuple[str, int], Pair, str, dict, Any, None, Basket, str | None):
        assert not is_row_type(kind)


# Refused when run, by the element itself


@shuffles
@each_form
@each
def test_rows_of_no_declared_type_end_the_run(name: str, form: str, reshuffled: bool) -> None:
    error = refused(name, ROWS[form], reshuffled=reshuffled)
    assert SAID.get(name, TO_PAIRS) in str(error)
    assert isinstance(root(error), RowElementError)
    assert "buy" not in str(root(error))


@pytest.mark.exhaustive("form", "runner")
@pytest.mark.parametrize("runner", [runner for runner in RUNNERS if runner != "fn"])
@pytest.mark.parametrize("form", ["row", "named"])
@pytest.mark.parametrize("name", ["PrefixCount", "CutGraph", *TICKS, *OTHERS])
def test_on_other_runners(name: str, form: str, runner: str) -> None:
    error = refused(name, ROWS[form], runner, reshuffled=True)
    assert SAID.get(name, TO_PAIRS) in str(error)


@pytest.mark.parametrize("form", ["row", "named"])
@pytest.mark.parametrize("name", [*KEYED, *TICKS])
def test_on_the_streaming_path(name: str, form: str) -> None:
    error = refused(name, ROWS[form], path="streaming")
    assert SAID.get(name, TO_PAIRS) in str(error)


@pytest.mark.parametrize("path", ["bounded", "streaming"])
@pytest.mark.parametrize("name", KEYED)
def test_collected_rows_are_no_steps(name: str, path: str) -> None:
    """Their private column is in the private output only."""
    transform = KEYED[name](on_reject="collect", path=path)
    outcome = run(lambda p: stamped(p, [Visit("buy", "/home")]) | transform)
    assert outcome.releases == []
    (rejected,) = outcome.rejected
    assert rejected.key == ""
    assert rejected.reason == "the element is a row, not a (key, value) pair"
    assert "buy" in rejected.element


def test_a_group_of_beams_own_is_a_row() -> None:
    """What aggregate_field gives has two fields and no declared type."""
    rows = [beam.Row(action="buy", times=1), beam.Row(action="view", times=2)]  # type: ignore[attr-defined]

    def build(pipeline: beam.Pipeline) -> Any:
        grouped = beam.GroupBy("action").aggregate_field("times", sum, "times")
        return pipeline | beam.Create(rows) | grouped | dp.PrefixCount(BUDGET, 8)

    with pytest.raises(Exception, match="elements are rows"):
        run(build)


# Rows as what an element holds


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("form", ["row", "named"])
def test_rows_as_values_of_pairs(form: str, runner: str) -> None:
    def build(pipeline: beam.Pipeline) -> Any:
        pairs = stamped(pipeline, [("site", ROWS[form])], tuple[str, Any])
        pairs |= "Mix" >> beam.Reshuffle()
        bought = {"value": lambda row: row.action == "buy"}
        return (
            pairs | dp.PrefixCount(EXACT, 8, **bought),
            pairs | dp.Histogram(EXACT, 8, ["buy", "view"], value=lambda row: row.action),
            pairs | TickNumbers(EXACT, **CLOCK, keys=["site"], **bought),
        )

    prefix, histogram, ticks = run(build, runner).outputs
    assert [seen.value.value for seen in prefix] == pytest.approx([1])
    assert [list(seen.value.value) for seen in histogram] == [pytest.approx([1, 0])]
    assert [seen.value.value for seen in ticks] == pytest.approx([1, 1, 1])


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("form", ["row", "named"])
def test_rows_as_events_without_a_key(form: str, runner: str) -> None:
    """With `value`, or where a function is given that takes whatever an element is."""

    def build(pipeline: beam.Pipeline) -> Any:
        rows = pipeline | beam.Create([ROWS[form]])
        stamp: Any = beam.Map(lambda row: TimestampedValue(row, 5))
        slopes = {"gradient": lambda row, points: points * (row.action == "buy")}
        return (
            rows
            | "Stamp" >> stamp.with_output_types(Any)
            | counted(EXACT, **CLOCK, keys=["buy"], key=lambda row: row.action),
            rows | dp.local.LocalMedian(EXACT, 4, value=lambda row: len(row.action) / 4),
            rows | dp.local.LocalConvexRisk(EXACT, 4, **slopes),
        )

    ticks, median, _ = run(build, runner).outputs
    assert [seen.value.value for seen in ticks] == pytest.approx([1, 1, 1])
    assert [seen.value.clients for seen in median] == [1]


def test_the_coders_of_these_tests_make_named_tuples_of_rows() -> None:
    """What the point of a Reshuffle is here."""
    declared = RowTypeConstraint.from_fields([("action", str), ("page", str)])
    coder = TupleCoder([RowCoder.from_type_hint(declared, None)])
    (decoded,) = coder.decode(coder.encode((ROWS["row"],)))
    assert isinstance(decoded, tuple)
    assert is_row(decoded)


@pytest.mark.parametrize("path", ["bounded", "streaming"])
@pytest.mark.parametrize("declared", [tuple[str, str], tuple[str, Any]])
def test_a_row_behind_the_type_of_a_pair(path: str, declared: Any) -> None:
    """A function may promise pairs, to Beam and to mypy, and give NamedTuples."""

    def build(pipeline: beam.Pipeline) -> Any:
        made = beam.Map(lambda _: Visit("buy", "/home")).with_output_types(declared)
        return (
            pipeline
            | beam.Create([0], reshuffle=False)
            | made
            | dp.PrefixCount(BUDGET, 8, path=path)
        )

    with pytest.raises(Exception, match="elements are rows") as caught:
        run(build)
    assert "RowElementError" in repr(root(caught.value)) + str(caught.value)

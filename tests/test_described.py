"""What a pipeline says of its counts, in annotations and display data, is of the counter in use.

Under path="auto" that is known only once the input is, and so are a clock's windows.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.testing import test_stream
from apache_beam.transforms.window import FixedWindows

import beam_dpcount as dp
from beam_dpcount.dofns.elements import CountEachElement, CountWholeKey
from beam_dpcount.dofns.ticks import CountAllTicks, CountEachTick
from beam_dpcount.statistics import Words
from beam_dpcount.transforms.described import Described
from beam_dpcount.transforms.ticks import TickNumbers
from tests import notebooks
from tests.public import PUBLIC
from tests.sentences import counted

PURE = dp.PureDP(1.0)  # for which BridgedKAry is best, on the bounded path alone
STEPS = 1000
CLOCK: dict[str, Any] = {"tick": 1, "start": 0, "horizon": STEPS, "keys": ["a", "b"]}
GRAPH: dict[str, Any] = {"budget": PURE, "horizon": STEPS, "vertices": 5}
ALIKE = ("last",)  # has one mechanism, on every path
# All transforms with a counter.
MADE: dict[str, Callable[[], Any]] = {
    "PrefixCount": lambda: dp.PrefixCount(PURE, STEPS),
    "Histogram": lambda: dp.Histogram(PURE, STEPS, ["a", "b"]),
    "SubstringCount": lambda: dp.SubstringCount(PURE, STEPS, ["a", "b"], 2),
    "EpisodeCount": lambda: dp.EpisodeCount(PURE, STEPS, ["a", "b"], 2),
    "EdgeCount": lambda: dp.EdgeCount(**GRAPH),
    "TriangleCount": lambda: dp.TriangleCount(**GRAPH, max_degree=3),
    "KStarCount": lambda: dp.KStarCount(**GRAPH, k=2, max_degree=3),
    "HighDegreeCount": lambda: dp.HighDegreeCount(**GRAPH, threshold=2),
    "DegreeHistogram": lambda: dp.DegreeHistogram(**GRAPH, max_degree=3),
    "SpanningForestCost": lambda: dp.SpanningForestCost(**GRAPH, max_weight=2),
    "StatisticCount": lambda: dp.StatisticCount(PURE, STEPS, Words("ab", 2)),
    "CutGraph": lambda: dp.CutGraph(**GRAPH),
    "TickCount": lambda: TickNumbers(PURE, **CLOCK),
    "people": lambda: counted(PURE, dp.People(), **CLOCK, users=dp.Users(str, 1)),
    "vectors": lambda: counted(PURE, [dp.Count(), dp.Rate("n > 0")], **CLOCK),
    "last": lambda: counted(dp.ZCDP(0.1), **CLOCK, last=10),
    "sentence": lambda: counted(PURE, **CLOCK),
}


@pytest.mark.parametrize("name", MADE)
def test_arguments_are_fixed(name: str) -> None:
    """Else releases would be charged to a budget that their noise was not made for."""
    transform = MADE[name]()
    for argument in [field.name for field in dataclasses.fields(transform)]:
        with pytest.raises(
            AttributeError, match=f"{argument} of {transform.default_label()} is fixed"
        ):
            setattr(transform, argument, getattr(transform, argument))
    with pytest.raises(AttributeError):
        transform.counter = transform.counter
    assert ("Label" >> transform).label == "Label"


def unbounded(pipeline: beam.Pipeline) -> Any:
    return pipeline | "Unbounded" >> test_stream.TestStream()


def bounded(pipeline: beam.Pipeline) -> Any:
    # Of no declared type, as transforms differ in the one that they take.
    return pipeline | "Bounded" >> beam.Create([]).with_output_types(Any)


class Pipeline:
    """A pipeline that is not run: what it says, by the names of transforms, and what it does."""

    def __init__(self, pipeline: beam.Pipeline) -> None:
        self.texts: dict[str, list[dict[str, str]]] = {}
        for found in pipeline.to_runner_api().components.transforms.values():
            notes = {name: note.decode() for name, note in found.annotations.items()}
            ours = {
                name.removeprefix("beam_dpcount:"): note
                for name, note in notes.items()
                if name.startswith("beam_dpcount:")
            }
            if ours:
                self.texts[found.unique_name] = [ours, dict(_displayed(found))]
        self.counters: dict[str, Any] = {}
        pipeline.visit(self)

    def visit_transform(self, node: Any) -> None:
        dofn = node.transform.fn if isinstance(node.transform, beam.ParDo) else None
        if isinstance(dofn, CountEachElement | CountWholeKey):
            self.counters[node.full_label] = dofn._intake.counter
        elif isinstance(dofn, CountEachTick | CountAllTicks):
            self.counters[node.full_label] = dofn._plan.counter

    def visit_value(self, value: Any, producer: Any) -> None:
        pass

    def enter_composite_transform(self, node: Any) -> None:
        pass

    leave_composite_transform = enter_composite_transform

    def used(self, name: str) -> Any:
        """The counter in use in the transform of this name."""
        (counter,) = (c for label, c in self.counters.items() if label.startswith(f"{name}/"))
        return counter

    def check(self, name: str) -> Any:
        """All that is said of the transform of this name holds of the counter in use; it."""
        counter, said = self.used(name), 0
        for label, texts in self.texts.items():
            if label == name or label.startswith(f"{name}/"):
                for text in texts:
                    assert {part: text[part] for part in counter.describe()} == counter.describe()
                    said += 1
        assert said
        return counter


def _displayed(found: Any) -> Iterator[tuple[str, str]]:
    for item in found.display_data:
        payload = beam_runner_api_pb2.LabelledPayload.FromString(item.payload)
        yield payload.key, payload.string_value


def test_all_transforms_with_a_counter_are_here() -> None:
    described = {n for n, x in PUBLIC.items() if isinstance(x, type) and issubclass(x, Described)}
    described -= {"LocalConvexRisk", "LocalMedian"}  # theirs know no paths
    described -= {"Alarm"}  # it watches the counter of another
    assert described == {name for name in MADE if name[0].isupper()}
    for name, make in MADE.items():
        assert make().default_label() == (name if name in described else "TickCount")


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("source", [bounded, unbounded])
def test_annotations_and_display_data_are_of_the_counter_in_use(
    name: str, source: Callable[[beam.Pipeline], Any]
) -> None:
    pipeline, count = beam.Pipeline(), MADE[name]()
    before = count.annotations()["beam_dpcount:largest_stddev"]
    _ = source(pipeline) | "Count" >> count
    counter = Pipeline(pipeline).check("Count")
    assert counter == count.counter
    # What was known before is of the bounded path, so that this test can fail.
    alike = source is bounded or name in ALIKE
    assert (counter.describe()["largest_stddev"] == before) == alike


@pytest.mark.parametrize("name", MADE)
def test_notebooks_show_the_same(name: str) -> None:
    """Before it is applied, and once it is."""
    count, shown = MADE[name](), []
    for _ in range(2):
        said = {part.removeprefix("beam_dpcount:"): t for part, t in count.annotations().items()}
        shown.append(notebooks.named(count._repr_html_()))
        assert shown[-1] == said
        _ = unbounded(beam.Pipeline()) | count
    shown[1].pop("shards", None)  # of listed keys, which only a stream has
    assert (shown[0] == shown[1]) == (name in ALIKE)


@pytest.mark.parametrize("name", MADE)
def test_each_application_of_one_transform_shows_its_own(name: str) -> None:
    pipeline, count = beam.Pipeline(), MADE[name]()
    windows = beam.WindowInto(FixedWindows(100))
    if isinstance(count, dp.TickCount):  # which takes no windows
        windows = beam.Map(lambda event: event)
    _ = bounded(pipeline) | "First" >> count
    _ = unbounded(pipeline) | "Second" >> count
    _ = pipeline | beam.Create([]).with_output_types(Any) | windows | "Third" >> count
    shown = Pipeline(pipeline)
    first, second, third = (shown.check(label) for label in ("First", "Second", "Third"))
    assert (first == second) == (name in ALIKE)
    assert (first == third) == (name != "TickCount")
    assert count.counter == third


def test_the_figures_of_the_case_that_was_wrong() -> None:
    pipeline = beam.Pipeline()
    _ = unbounded(pipeline) | "Count" >> dp.PrefixCount(PURE, STEPS)
    for text in Pipeline(pipeline).texts["Count"]:
        assert float(text["largest_stddev"]) == pytest.approx(17.4, abs=0.05)
    before = dp.PrefixCount(PURE, STEPS).display_data()
    assert float(before["largest_stddev"]) == pytest.approx(13.7, abs=0.05)


def test_texts_that_are_not_ascii(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beam takes none: a run id in another script stopped the pipeline."""
    monkeypatch.setenv("COUNTING_SECRET", "0123456789abcdef" * 4)
    entropy = dp.ReplayableEntropy("COUNTING_SECRET", run_id="東京")
    pipeline = beam.Pipeline("FnApiRunner")
    count = dp.PrefixCount(dp.ZCDP(1), 4, entropy=entropy, element_id=str)
    _ = pipeline | beam.Create([("k", 1)]) | "Count" >> count
    shown = [text for text in count.annotations().values() if isinstance(text, bytes)]
    assert any("東京".encode() in text for text in shown)


def test_annotations_that_were_given_stay() -> None:
    with beam.transform_annotations(owner=b"us"):
        pipeline = beam.Pipeline()
        _ = unbounded(pipeline) | "Count" >> dp.PrefixCount(PURE, STEPS)
    found = pipeline.to_runner_api().components.transforms.values()
    (notes,) = (t.annotations for t in found if t.unique_name == "Count")
    assert notes["owner"] == b"us"
    assert "beam_dpcount:budget" in notes


BUDGET = dp.ApproxDP(0.75, 1e-7)
DAY: dict[str, Any] = {"horizon": 1440, "keys": ["a", "b"], "bounds": (-2, 3)}
# A transform, how its events are windowed, and what is said of it.
SAID: dict[str, tuple[Callable[[], Any], dict[str, str], tuple[str, ...]]] = {
    "PrefixCount": (
        lambda: dp.PrefixCount(BUDGET, 12_345, mechanism="SmoothBinary", bounds=(-2, 3)),
        {"horizon": "12345"},
        ("SmoothBinary", "replace_one", "[-2, 3]"),
    ),
    "Histogram": (
        lambda: dp.Histogram(
            BUDGET, 12_345, ["a", "b"], max_items=2, removals=True, mechanism="SmoothBinary"
        ),
        {"horizon": "12345"},
        ("SmoothBinary", "replace_one", "at most 2", "down"),
    ),
    "TickCount": (
        lambda: TickNumbers(BUDGET, 60, "2024-01-01T00:00:00Z", mechanism="SmoothBinary", **DAY),
        {
            **{"horizon": "120", "tick": "60 s", "start": "2024-01-01T00:00:00Z", "keys": "2"},
            **{"stop": "2024-01-02T00:00:00Z", "late": "fold", "max_per_tick": "1073741824"},
            "window": "fixed, of 7200 s",
        },
        ("SmoothBinary", "add_remove", "[-2, 3]", "in one window"),
    ),
    "SubstringCount": (
        lambda: dp.SubstringCount(BUDGET, 9, [*"ab"], 2, every=3, relation="add_remove"),
        {"horizon": "9", "statistic": "words of up to 2 of 2 letters",
         "released_after": "every 3 steps"},
        ("add_remove (whether any one letter is there",),
    ),
    "TriangleCount": (
        lambda: dp.TriangleCount(BUDGET, 9, ("ann", "bob", "cem"), max_degree=2, every=3),
        {"horizon": "9", "statistic": "Triangles(vertices=3, max_degree=2, asserted=False)",
         "released_after": "every 3 steps",
         "neighbouring_relation": "edge (whether any one pair of vertices is ever inserted)"},
        (),
    ),
    "CutGraph": (
        lambda: dp.CutGraph(BUDGET, 9, ["a", "b", "c"], relation="replace_one"),
        {"statistic": "weights of the 3 pairs of 3 vertices"},
        ("replace_one (the pair and the w",),
    ),
    "DegreeHistogram": (
        lambda: dp.DegreeHistogram(BUDGET, 9, 9, relation="node", max_degree=3, asserted=True),
        {},
        ("neighbouring_relation=node (",),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SAID)
def test_what_is_said_of_each(name: str) -> None:
    """Parameters, and nothing that is drawn or that lists vertices: a second one says the same."""
    make, parts, more = SAID[name]
    pipeline, count = beam.Pipeline(), make()
    events = bounded(pipeline)
    if "window" in parts:
        assert "window" not in count.display_data()["budget_covers"]
        events |= beam.WindowInto(FixedWindows(7200))
    _ = events | "Count" >> count
    for text in Pipeline(pipeline).texts["Count"]:
        assert parts.items() <= text.items()
        shown = " ".join(f"{key}={value}" for key, value in text.items())
        assert all(part in shown for part in ("0.75", "1e-07", *more))
        assert not re.search("seed|state|pool|cem", shown)
    assert make().annotations() == make().annotations()
    assert make().display_data() == make().display_data()


def test_domains() -> None:
    assert dp.SubstringCount(BUDGET, 9, [*"ab"], 2).labels == ("a", "b", "aa", "ab", "ba", "bb")
    assert dp.TriangleCount(BUDGET, 9, 7, max_degree=2).labels is None
    cut = dp.CutGraph(BUDGET, 9, ["a", "b", "c"])
    assert (cut.labels, cut.vertices) == (("a-b", "a-c", "b-c"), ("a", "b", "c"))
    node: dict[str, Any] = {"relation": "node", "asserted": True}
    assert dp.DegreeHistogram(BUDGET, 9, 9, max_degree=3, **node).labels == ("1", "2", "3")
    assert dp.DegreeHistogram(BUDGET, 9, 9, max_degree=3).labels == ("1", "2", "3+")

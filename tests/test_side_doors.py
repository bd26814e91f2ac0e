"""What leaves beside the releases is the same for neighbours, whatever transform made them.

Metrics, logs, warnings, what is printed, and of the releases all but their values. There is no skip
list: a new transform must be in the table.
"""

from __future__ import annotations

import logging
import pickle
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import apache_beam as beam
import pytest
from apache_beam.metrics.metric import Metrics
from apache_beam.testing import test_stream
from apache_beam.transforms.display import DisplayData
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import Timestamp

import beam_dpcount as dp
from beam_dpcount.dofns import elements as dofns
from tests.hostile import (
    AFTER,
    BUDGET,
    CLIENTS,
    EACH_ELEMENT,
    EACH_TICK,
    KEYED,
    LATE,
    LOCAL,
    NAN,
    OTHER_CLIENTS,
    SELECT,
    SELECTED,
    Odd,
    after,
    ticks,
)
from tests.public import PUBLIC
from tests.runners import SECOND, Row, feed
from tests.scripted import ScriptedEntropy
from tests.side_doors import SECRET, _noted_updates, outside  # noqa: F401

pytestmark = pytest.mark.usefixtures("no_state_cache")


def test_every_transform_is_in_the_table() -> None:
    exported = {
        name
        for name, kind in PUBLIC.items()
        if isinstance(kind, type) and issubclass(kind, beam.PTransform)
    }
    tables = (EACH_ELEMENT, EACH_TICK, LOCAL, AFTER)
    # Views and things of a TickCount have names in small letters.
    assert sorted(exported) == sorted(
        name for table in tables for name in table if name[0].isupper()
    )


# Neighbours


@pytest.mark.parametrize("name", EACH_ELEMENT)
def test_contents_of_elements_leave_by_no_side_door(
    name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Every key's stream has one other element: within its horizon, or beyond it."""
    case = EACH_ELEMENT[name]
    places = [(other, place) for other in case.others for place in (1, 4)]
    ways = [("bounded", "drop"), ("streaming", "collect")]
    if name == "PrefixCount":  # what the two are made of is the same for all
        ways += [("bounded", "collect"), ("streaming", "drop")]

    def given(changed: bool) -> list[Row]:
        rows = []
        for number, (other, place) in enumerate(places):
            values = list(case.usual)
            if changed:
                values[place] = other
            rows += [(f"k{number}", x, i * SECOND) for i, x in enumerate(values)]
        return rows

    def build(pipeline: beam.Pipeline, rows: list[Row]) -> dict[str, Any]:
        elements, made = pipeline | feed(rows), {}
        for path, on_reject in ways:
            count = case.make(path=path, on_reject=on_reject, entropy=ScriptedEntropy())
            releases = elements | f"{path} {on_reject}" >> count
            made[f"{path} {on_reject}"] = releases if on_reject == "drop" else releases[0]
        return made

    usual, other = (outside(lambda p, c=c: build(p, given(c)), capfd) for c in (False, True))
    assert usual.counts == {" ".join(way): 4 * len(places) for way in ways}
    assert sum("past_horizon" in key for key in usual.metrics) == len(ways)  # they are seen
    assert [text for *_, text in usual.ours if "beyond the horizon of 4" in text]
    assert usual == other


@pytest.mark.long
@pytest.mark.parametrize("name", EACH_TICK)
def test_presence_of_events_at_ticks_leaves_by_no_side_door(
    name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    make, rows, more = EACH_TICK[name]

    def build(pipeline: beam.Pipeline, rows: list[Row]) -> dict[str, Any]:
        events = pipeline | feed(rows, Any)
        return {path: events | path >> make(path=path) for path in ("bounded", "streaming")}

    usual, other, none = (
        outside(lambda p, rows=rows: build(p, rows), capfd) for rows in (rows, [*rows, *more], [])
    )
    assert usual.counts == {"bounded": 12, "streaming": 12}
    assert usual == other == none


@pytest.mark.parametrize(
    "name",
    [n if n == "TickCount" else pytest.param(n, marks=pytest.mark.exhaustive) for n in SELECTED],
)
def test_hidden_keys_leave_by_no_side_door(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    """All of them are: nothing tells how many there are, or that there is any."""
    make, rows, more = SELECTED[name]

    def build(pipeline: beam.Pipeline, rows: list[Row]) -> dict[str, Any]:
        events = pipeline | feed(rows, Any)
        return {path: events | path >> make(path=path) for path in ("bounded", "streaming")}

    usual, other, none = (
        outside(lambda p, rows=rows: build(p, rows), capfd) for rows in (rows, [*rows, *more], [])
    )
    assert usual.counts == {}
    assert usual == other == none


HIDDEN = "hidden-xyzzy"


def test_hidden_keys_are_in_no_message_and_no_parameter(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """Whatever stops a pipeline, nor in what pipelines and transforms are made of once it ran."""
    caplog.set_level(logging.DEBUG)
    said: list[str] = []
    for path in ("bounded", "streaming"):
        count = ticks(keys=SELECT, path=path, on_reject="raise")
        for bad in (NAN, None, SECRET, Odd()):
            pipeline = beam.Pipeline("FnApiRunner")
            _ = pipeline | feed([(HIDDEN, 1, 0), (HIDDEN, bad, 5 * SECOND)], Any) | count
            with pytest.raises(Exception, match="on_reject") as caught:
                pipeline.run().wait_until_finish()
            said += texts_of(caught.value)
        pipeline = beam.Pipeline("FnApiRunner")
        _ = pipeline | feed([(HIDDEN, 1, 0), ("a", 1, SECOND)]) | ticks(keys=SELECT, path=path)
        pipeline.run().wait_until_finish()
        steps = pipeline.to_runner_api().components.transforms.values()
        made = [t for t in steps if "TickCount" in t.unique_name]
        assert len(made) > 3
        said += [str(t.annotations) + str(t.display_data) + str(t.spec.payload) for t in made]
        said += [repr(count), str(count.selection), str(pickle.dumps(count))]
        said += [str(DisplayData.create_from(count).items), str(count.display_data())]
    printed = capfd.readouterr()
    assert HIDDEN not in "".join([*said, caplog.text, printed.out, printed.err])


def texts_of(error: BaseException | None) -> list[str]:
    """What an error and those that led to it say."""
    if error is None:
        return []
    return [str(error), repr(error.args), *texts_of(error.__cause__), *texts_of(error.__context__)]


LATE_ONES = {**EACH_TICK, **{f"selected, {name}": made for name, made in SELECTED.items()}}


@pytest.mark.long
@pytest.mark.parametrize("name", LATE_ONES)
def test_late_events_leave_by_no_side_door(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    """All ticks but one are over before any event comes."""
    make, rows, more = LATE_ONES[name]

    def build(pipeline: beam.Pipeline, rows: list[Row]) -> dict[str, Any]:
        events = [TimestampedValue(row[:2], Timestamp(micros=row[2])) for row in rows]
        source = test_stream.TestStream().advance_watermark_to(31)
        source = source.add_elements(events) if events else source
        source = source.advance_watermark_to(50).advance_watermark_to_infinity()
        typed = pipeline | source | beam.Map(lambda e: e).with_output_types(Any)
        return {late: typed | late >> make(late=late, path="streaming") for late in LATE}

    usual, other = (
        outside(lambda p, rows=rows: build(p, rows), capfd, True) for rows in ([], [*rows, *more])
    )
    assert usual.counts == ({} if name.startswith("selected") else dict.fromkeys(LATE, 12))
    assert usual == other


@pytest.mark.parametrize("name", LOCAL)
def test_what_clients_hold_leaves_by_no_side_door(
    name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    def build(pipeline: beam.Pipeline, clients: list[Any]) -> dict[str, Any]:
        return {name: pipeline | beam.Create(clients, reshuffle=False) | LOCAL[name]()}

    usual, other = (outside(lambda p, c=c: build(p, c), capfd) for c in (CLIENTS, OTHER_CLIENTS))
    assert usual.counts == {name: 1}
    assert usual == other


@pytest.mark.parametrize("name", AFTER)
def test_events_leave_by_no_side_door_of_what_comes_after(
    name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    def build(pipeline: beam.Pipeline, rows: list[Row]) -> dict[str, Any]:
        events = pipeline | feed(rows)
        return {path: events | f"Count {path}" >> after(AFTER[name], path) for path in paths}

    two_paths = name in ("Alarm", "Isotonic", "ShrinkAcrossKeys", "SlidingSum", "TopKPerTick")
    paths = ("bounded", "streaming") if two_paths else ("bounded",)
    changed: list[Row] = [(key, 2 - x, micros) for key, x, micros in KEYED]
    usual, other = (
        outside(lambda p, rows=rows: build(p, rows), capfd) for rows in (KEYED, changed)
    )
    assert min(usual.counts.values()) > 1
    assert usual == other


# What this would find


class Tells(beam.DoFn):
    """A mutant: passes all on, and tells of some, in one way or another."""

    WAYS: ClassVar[dict[str, Callable[[], Any]]] = {
        "counter": lambda: Metrics.counter("mutant", "refused").inc(),
        "distribution": lambda: Metrics.distribution("mutant", "sizes").update(1),
        "gauge": lambda: Metrics.gauge("mutant", "last").set(7),
        "set": lambda: Metrics.string_set("mutant", "kinds").add("text"),
        "debug": lambda: logging.getLogger("beam_dpcount.mutant").debug("refused one"),
        "another logger": lambda: logging.getLogger("other").debug("refused one"),
        "warning": lambda: warnings.warn_explicit("refused", UserWarning, dofns.__file__, 1),
        "print": lambda: print("refused one"),
        "stderr": lambda: print("refused one", file=sys.stderr),
        "no release": lambda: None,
    }

    def __init__(self, way: str) -> None:
        self._way = way

    def process(self, element: Any) -> Iterator[Any]:
        if element[1] is None:
            self.WAYS[self._way]()
        if self._way != "no release" or element[1] is not None:
            yield element


@pytest.mark.long
def test_what_tells_of_an_event_is_seen(capfd: pytest.CaptureFixture[str]) -> None:
    def build(pipeline: beam.Pipeline, value: Any, way: str) -> dict[str, Any]:
        rows: list[Row] = [("k", value, 0), ("k", 1, SECOND)]
        telling: Any = beam.ParDo(Tells(way)).with_output_types(tuple[str, Any])
        return {"": pipeline | feed(rows) | telling | dp.PrefixCount(BUDGET, 4)}

    usual = outside(lambda p: build(p, 1, "print"), capfd)
    assert usual == outside(lambda p: build(p, 0, "print"), capfd)
    for way in Tells.WAYS:
        assert outside(lambda p, way=way: build(p, None, way), capfd) != usual, way

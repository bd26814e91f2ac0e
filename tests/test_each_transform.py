"""The contract of transforms that count: checks over the tables of `hostile.py`.

What leaves beside the releases is in `test_side_doors.py`, how they are described in
`test_described.py`.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.internal import pickler
from apache_beam.testing import test_stream
from apache_beam.transforms.window import Sessions, SlidingWindows

from beam_dpcount.transforms.inputs import BOUNDED_PATH, MERGING_WINDOWS, SEVERAL_WINDOWS
from tests.hostile import EACH_ELEMENT, EACH_TICK, KEYED, ticks
from tests.messages import says
from tests.runners import RUN_AT_ONCE, RUNNERS, SECOND, Row, each_path, feed, run
from tests.scripted import ScriptedEntropy

SECRET, SECRET_TEXT = 77_431, "s3cr3t"
each_element = pytest.mark.parametrize("name", EACH_ELEMENT)


def counting(name: str, **options: Any) -> Any:
    """A transform that releases after every element."""
    return EACH_ELEMENT[name].make(entropy=ScriptedEntropy(), **options)


def elements(name: str) -> list[Row]:
    return [("k", value, i * SECOND) for i, value in enumerate(EACH_ELEMENT[name].usual)]


@pytest.mark.parametrize("name", [*EACH_ELEMENT, "TickCount", "last"])
def test_pickled_transforms_give_the_same_releases(name: str) -> None:
    """Of either pickler, whatever is done with rejected elements."""
    rows = elements(name) if name in EACH_ELEMENT else KEYED
    count = counting(name, on_reject="collect") if name in EACH_ELEMENT else EACH_TICK[name][0]()
    copies = [pickle.loads(pickle.dumps(count)), pickler.loads(pickler.dumps(count))]
    assert all(copy.counter == count.counter for copy in copies)

    def build(pipeline: beam.Pipeline) -> Any:
        events = pipeline | feed(rows)
        made = [events | str(i) >> one for i, one in enumerate([count, *copies])]
        return tuple(one[0] if name in EACH_ELEMENT else one for one in made)

    first, *others = run(build).outputs
    assert first
    assert [first] * 2 == others


@each_element
@each_path
@pytest.mark.parametrize(
    ("windows", "reason"),
    [(Sessions(10), MERGING_WINDOWS), (SlidingWindows(10, 5), SEVERAL_WINDOWS)],
    ids=["sessions", "sliding"],
)
def test_other_windows_are_refused(windows: Any, reason: str, path: str, name: str) -> None:
    with pytest.raises(ValueError, match=says(reason)):
        _ = (
            beam.Pipeline()
            | feed(elements(name))
            | beam.WindowInto(windows)
            | counting(name, path=path)
        )


@each_element
def test_the_bounded_path_refuses_unbounded_input(name: str) -> None:
    source = test_stream.TestStream().advance_watermark_to_infinity()
    with pytest.raises(ValueError, match=says(BOUNDED_PATH)):
        _ = beam.Pipeline() | source | counting(name, path="bounded")


NUMBERS: list[Row] = [("k", x, i) for i, x in enumerate([SECRET, SECRET_TEXT, *[SECRET] * 3])]
ITEMS: list[Row] = [
    ("k", x, i) for i, x in enumerate([SECRET_TEXT, [SECRET_TEXT], SECRET, 1, SECRET_TEXT])
]
EVENTS: list[Row] = [("a", SECRET, 0), ("a", SECRET_TEXT, 1), (SECRET_TEXT, 1, 2)]
EVENTS += [("a", SECRET, 10**12), ("b", SECRET, -5)]
SHOWN: dict[str, tuple[Callable[[str, str], Any], list[Row]]] = {
    "numbers": (lambda path, how: counting("PrefixCount", path=path, on_reject=how), NUMBERS),
    "items": (lambda path, how: counting("Histogram", path=path, on_reject=how), ITEMS),
    "ticks": (lambda path, how: ticks(path=path, bounds=(0, 10**6)), EVENTS),
}


@pytest.mark.parametrize(
    ("runner", "path", "how"),
    [*((r, path, "drop") for r in RUNNERS for path in ("bounded", "streaming")),
     *(("fn", path, "collect") for path in ("bounded", "streaming"))],
)  # fmt: skip
@pytest.mark.parametrize("name", SHOWN)
def test_logs_and_metrics_show_no_data(
    name: str,
    how: str,
    runner: str,
    path: str,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    if name == "ticks" and (runner, path) not in RUN_AT_ONCE:
        path = "bounded"
    caplog.set_level(logging.DEBUG)
    make, rows = SHOWN[name]
    metrics = run(lambda p: p | feed(rows, Any) | make(path, how), runner).metrics()
    printed = capfd.readouterr()
    for text in (caplog.text, printed.out, printed.err, str(metrics)):
        for secret in (SECRET_TEXT, str(SECRET), str(2 * SECRET)):
            assert secret not in text
    assert set(metrics) <= ({"past_horizon"} if name != "ticks" else set())

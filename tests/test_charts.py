"""One layer of scales, series and labels: PNG files and pages say the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from matplotlib.figure import Figure

from beam_dpcount.commands import graph, histogram, sequences
from beam_dpcount.commands.figures import frames, png, scales
from beam_dpcount.commands.task import Task
from tests.pages import DAY, Parsed, counted, page_of, task_of, ticked, written

ABOUT = "key", "step", "timestamp"
USUAL = "--horizon", 9, "--rho", 1


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that would be written."""
    caught: list[Figure] = []
    monkeypatch.setattr(frames, "save", lambda figure, *_, **__: caught.append(figure))
    return caught


def running(path: Path, lengths: Mapping[str, int], minutes: int, stddev: float) -> Task:
    rows = [
        (key, t, DAY + t * minutes * 60_000_000, 10.25 * t, stddev)
        for key, steps in lengths.items()
        for t in range(1, steps + 1)
    ]
    task = counted(path, list(lengths), max(lengths.values()))
    ticked(path / "out.csv", rows)
    return task


def tasks(path: Path) -> Iterator[tuple[str, Task]]:
    """A task of each kind of picture."""
    out = path / "out.csv"
    yield "a day", running(path, {"a": 20, "b": 20}, 60, 3.0)
    yield "days", running(path, {"a": 90, "b": 20, "c": 60}, 120, 3.0)
    yield "little noise", running(path, {"a": 20, "b": 19}, 1, 0.1)
    yield "one release", running(path, {"a": 1}, 1, 3.0)
    written(out, (*ABOUT, "x", "y", "stddev"), [("a", 9, "", 10.0, -5.0, 0.1)])
    items = "--key", "k", "--item", "i", "--domain", "x", "y"
    yield "histogram", task_of(histogram.Histogram, out, *items, *USUAL)
    columns = *ABOUT, "rank", "word", "value", "low", "high"
    written(out, columns, [("all", 9, "", 1, "ab", 7.0, 5.0, 9.0)])
    words = "--letter", "l", "--domain", "a", "b", "--max-length", 2
    yield "words", task_of(sequences.Sequences, out, *words, *USUAL)
    edge = "--edge", "u", "v", "--vertices", 3, "--what"
    written(out, (*ABOUT, "1", "2+", "stddev"), [("all", 4, "", 6.0, 3.0, 1.0)])
    yield "degrees", task_of(graph.Graph, out, *edge, "degrees", "--max-degree", 2, *USUAL)
    task = task_of(graph.Graph, out, *edge, "cuts", *USUAL)
    domain = task.labels  # type: ignore[attr-defined]
    written(out, (*ABOUT, *domain, "stddev"), [("all", 4, "", 8.0, -8.0, 0.0, 1.0)])
    yield "weights", task


def test_pictures_and_pages_have_the_same_labels(tmp_path: Path, figures: list[Figure]) -> None:
    for kind, task in tasks(tmp_path):
        png.draw(task.picture(), tmp_path / "p.png", "")
        page = Parsed(page_of(task))
        texts = {text for tag in ("text", "p", "bdi") for text in page.said(tag)}
        axes = figures[-1].axes
        captions = {label for a in axes for label in (a.get_xlabel(), a.get_ylabel())}
        titles = {a.get_title("left") for a in axes} | {
            a.texts[0].get_text() for a in axes if a.texts
        }
        # A strip has room for two words; its page's caption is in the picture's legend.
        captions -= {"± band"}
        titles -= {"the band of every key"}
        assert captions | titles - {""} <= texts | {""}, kind


def test_pictures_and_pages_have_the_same_scales(
    tmp_path: Path, figures: list[Figure], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both ask the same axes for ticks; a page also draws all keys together."""
    asked: set[tuple[float, float, str]] = set()
    ticks = scales.Axis.ticks

    def note(axis: scales.Axis, most: int) -> scales.Ticks:
        asked.add((axis.low, axis.high, axis.kind))
        return ticks(axis, most)

    monkeypatch.setattr(scales.Axis, "ticks", note)
    for kind, task in tasks(tmp_path):
        png.draw(task.picture(), tmp_path / "p.png", "")
        picture = {*asked}
        asked.clear()
        page_of(task)
        assert picture, kind
        assert picture <= asked, kind
        asked.clear()

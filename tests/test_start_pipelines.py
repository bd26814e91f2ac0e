"""The pipelines of pipelines/ count what they say, whatever files hold, and are documented."""

from __future__ import annotations

from pathlib import Path

import apache_beam as beam
import pytest

import beam_dpcount as dp
from pipelines import files, triangles
from tests.side_doors import SECRET, listening
from tests.start_pipelines import EDGES, HOSTILE, LOG, STARTS

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "guide" / "pipelines.md"


@pytest.mark.pipeline
@pytest.mark.parametrize("name", STARTS)
def test_it_counts_what_it_says(name: str, tmp_path: Path) -> None:
    start = STARTS[name]
    found = start.run(tmp_path)
    assert found.keys() == start.expected().keys()
    for place, values in start.expected().items():
        assert found[place] == pytest.approx(values, abs=0.01), place


@pytest.mark.pipeline
@pytest.mark.parametrize("name", ["count_file", "select_keys", "several_numbers"])
def test_no_line_stops_it_or_shows(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    start = STARTS[name]
    with listening() as records:
        found = start.run(tmp_path, more=HOSTILE)
    shown = capfd.readouterr()
    for text in (shown.out, shown.err, *(record.getMessage() for record in records)):
        assert SECRET not in text
    assert found.keys() == start.expected().keys()
    for place, values in start.expected().items():
        assert found[place] == pytest.approx(values, abs=0.01), place


def test_lines_of_other_widths_are_skipped() -> None:
    failed, read = [], []
    for i, line in enumerate(HOSTILE):
        try:
            read += [i for _ in files.events_of(line)]
        except Exception as error:
            failed.append((i, type(error)))
    assert failed == []
    # Of no time or another day, or of a page that nobody listed: the count skips them.
    assert read == [2, 3, 6, 7, 8, 9, 12, 13, 14]
    assert all([*files.events_of(line.encode())] for line in LOG)


@pytest.mark.pipeline
def test_releases_are_sorted(tmp_path: Path) -> None:
    """By key and step, whatever the order in which they come."""
    rows = [("b, c", 2, 7.0), ("a", 10, -1.0), ("b, c", 1, 0.5), ("a", 9, 1.0)]
    releases = [dp.Release(key, step, 5, value, 0.0) for key, step, value in rows]
    columns = ["key", "step", "count"]
    with beam.Pipeline(options=files.beam_options([])) as pipeline:
        there = pipeline | beam.Create(releases, reshuffle=False)
        files.write(there, str(tmp_path / "out"), columns)
    expected = ["key,step,count", "a,9,1.0", "a,10,-1.0", '"b, c",1,0.5', '"b, c",2,7.0', ""]
    assert (tmp_path / "out").read_text("utf-8").split("\n") == expected


def test_a_line_without_an_edge_takes_its_step() -> None:
    """The number of elements is public: left out, it would show."""
    for cells in ("", ",", "1", "1,", "1,x", "-1,2", "1e3,2", f"{SECRET},2", "9999999999,2", "²,1"):
        line = f"2026-01-15T00:00:00Z,{cells}".encode()
        assert [timed.value for timed in triangles.edges_of(line)] == [("all", None)], cells
    (timed,) = triangles.edges_of(EDGES[0].encode())
    assert timed.value == ("all", (0, 1))
    assert [*triangles.edges_of(b"no time,1,2")] == []  # times are public


@pytest.mark.parametrize(
    ("cell", "seconds"),
    [
        ("1970-01-01T00:00:01Z", 1.0),
        ("1970-01-01T00:00:01", 1.0),  # whatever zone this machine is in
        ("1970-01-01T01:00:00+01:00", 0.0),
        ("", None),
        ("soon", None),
    ],
)
def test_times_are_utc(cell: str, seconds: float | None) -> None:
    assert triangles.seconds_of(cell) == seconds


def test_they_are_short_and_documented() -> None:
    modules = {path.stem: path for path in (ROOT / "pipelines").glob("*.py")}
    assert modules.keys() == {*STARTS, "files", "__init__"}
    page, package = (path.read_text("utf-8") for path in (PAGE, modules["__init__"]))
    for name, path in modules.items():
        text = path.read_text("utf-8")
        assert len(text.splitlines()) < 100, name
        if name in STARTS:
            assert f"python -m pipelines.{name} " in text
            assert f"pipelines/{name}.py" in page
            assert f"| {name} |" in package

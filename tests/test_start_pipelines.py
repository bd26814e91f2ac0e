"""The pipelines of pipelines/ count what they say, whatever files hold, and are documented."""

from __future__ import annotations

from pathlib import Path

import apache_beam as beam
import pytest

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


def test_lines_that_cannot_be_read_are_no_events() -> None:
    failed, read = [], []
    for i, line in enumerate(HOSTILE):
        try:
            read += [i for _ in files.events_of(line)]
        except Exception as error:
            failed.append((i, type(error)))
    assert failed == []
    assert read == [7, 8, 9, 12, 13, 14]  # of other days, or of a page that nobody listed
    assert all([*files.events_of(line.encode())] for line in LOG)


@pytest.mark.pipeline
def test_releases_are_sorted(tmp_path: Path) -> None:
    """By key and step, whatever the order in which they come."""
    rows = [("b", 2, "x, y"), ("a", 10, None), ("b", 1, 0.5), ("a", 9, 1)]
    with beam.Pipeline(options=files.beam_options([])) as pipeline:
        files.write(pipeline | beam.Create(rows, reshuffle=False), str(tmp_path / "out"), "xyz")
    expected = ["x,y,z", "a,9,1", "a,10,", "b,1,0.5", 'b,2,"x, y"', ""]
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
    assert files.seconds_of(cell) == seconds


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

"""What stands beside outputs: the same for all neighbours; and outputs that are there already."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import beam_dpcount as dp
from beam_dpcount.commands import count, graph, histogram, manifest, sequences, ticks
from beam_dpcount.commands import run as running
from tests.command_lines import EXACT, command, fail, succeed

SECRET = "COUNTING_SECRET"
MAINS = {
    "count": (count, "--key page --where what=buy --horizon 20"),
    "ticks": (ticks, "--key page --keys a b --timestamp at --tick 5 --start 0 --horizon 4"),
    "select": (ticks, "--key page --select-keys --timestamp at --tick 5 --start 0 --horizon 4"),
    "histogram": (histogram, "--item what --domain buy view --horizon 20"),
    "sequences": (sequences, "--letter what --alphabet buy view --max-length 2 --horizon 20"),
    "graph": (graph, "--edge what who --vertices 9 --what degrees --max-degree 3 --horizon 20"),
}
BUDGET = ("--epsilon", "1", "--delta", "1e-6")
ROWS = "a,buy,1,0\na,view,2,5\nb,buy,3,9\n"
# As many rows of the same keys (at a clock: any), which say something else.
OTHER = {"ticks": "b,buy,3,9\n", "select": "zz,buy,3,9\n"}


def made(name: str, directory: Path, rows: str, *more: object) -> dict[str, Any]:
    """What a run leaves and says, but for noisy numbers and the time."""
    directory.mkdir()
    log, out = directory / "log.csv", directory / "out.parquet"
    log.write_text("page,what,who,at\n" + rows)
    module, words = MAINS[name]
    said = succeed(
        *("--input", log, *words.split(), *(more or BUDGET), "--output", out), main=module.main
    )
    beside = json.loads(Path(f"{out}.manifest.json").read_text())
    inside = json.loads(pq.read_schema(out).metadata[b"beam_dpcount"])
    assert inside == beside
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", beside.pop("time"))
    files = sorted(path.name for path in directory.iterdir())
    return {"files": files, "manifest": beside, "said": said.replace(str(directory), "")}


@pytest.mark.parametrize("name", MAINS)
def test_neighbours_have_the_same_manifest(name: str, tmp_path: Path) -> None:
    other = OTHER.get(name, "a,view,1,0\na,buy,7,5\nb,view,x,9\n")
    one, two = (made(name, tmp_path / n, rows) for n, rows in (("1", ROWS), ("2", other)))
    assert one["manifest"] == two["manifest"]
    assert one["files"] == two["files"] == ["log.csv", "out.parquet", "out.parquet.manifest.json"]
    about = one["manifest"]
    if name not in ("sequences", "select"):  # which say what was released
        assert one["said"] == two["said"]
    assert about["guarantee"] in one["said"]
    assert about["errors"] in one["said"]
    assert about["budget"] == {"epsilon": 1.0, "delta": 1e-6}
    assert set(about["columns"]) == {*pq.read_schema(tmp_path / "1" / "out.parquet").names}
    assert all(about["columns"].values())
    assert about["made_by"] == f"beam_dpcount {dp.__version__}"
    assert about["you_may"]
    assert about["you_may_not"][0].startswith("Count the same rows again without counting")
    assert "log.csv" not in json.dumps(about)
    assert str(tmp_path) not in json.dumps(about)
    assert about["parameters"]["horizon"] == (4 if name in ("ticks", "select") else 20)


def test_a_manifest_knows_replays_people_and_what_was_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SECRET, "0123456789abcdef" * 4)
    more = ("--user", "who", "--per-user", 2, *BUDGET, "--secret-env", SECRET, "--run-id", "may")
    about = made("count", tmp_path / "1", ROWS, *more)["manifest"]
    assert about["you_may_not"][0].startswith("Count the same rows again with other options")
    assert "at no cost" in about["guarantee"]
    assert "what all rows of one person say" in about["protects"]
    assert about["parameters"]["run_id"] == "may"
    assert "secret_env" not in about["parameters"]
    assert SECRET not in json.dumps(about)
    rho = made("count", tmp_path / "2", ROWS, *EXACT)["manifest"]
    assert rho["budget"] == {"rho": 1e12}


# Outputs that are there


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.csv"
    path.write_text("page,what,who,at\n" + ROWS)
    return path


@pytest.mark.parametrize("name", ["out.csv", "rejected.csv", "out.png", "out.csv.manifest.json"])
def test_what_is_there_is_not_replaced_unasked(name: str, log: Path) -> None:
    there = log.parent / name
    there.write_text("precious")
    files = ("--output", log.parent / "out.csv", "--plot", log.parent / "out.png")
    rejected = ("--rejected", log.parent / "rejected.csv")
    words = ("--input", log, *MAINS["count"][1].split(), *EXACT, *files, *rejected)
    ended = command(*words, overwrite=False)
    assert (ended.status, ended.out) == (2, "")
    said = (
        f"error: {str(there)!r} is there already: give --overwrite to replace it, or name another"
    )
    assert ended.err.startswith(said)
    assert there.read_text() == "precious"
    assert sorted(path.name for path in log.parent.iterdir()) == sorted(["log.csv", name])


def test_overwrite_replaces_all(log: Path) -> None:
    names = ("out.csv", "out.csv.manifest.json", "rejected.csv")
    for name in names:
        (log.parent / name).write_text("precious")
    files = ("--output", log.parent / "out.csv", "--rejected", log.parent / "rejected.csv")
    words = ("--input", log, *MAINS["count"][1].split(), *EXACT, *files, "--overwrite")
    assert command(*words, overwrite=False).status == 0
    assert not [name for name in names if (log.parent / name).read_text() == "precious"]


def test_a_manifest_is_no_input(log: Path) -> None:
    name = manifest.path_of(str(log.parent / "out.csv"))
    Path(name).write_text(log.read_text())
    words = ("--input", name, "--format", "csv", *MAINS["count"][1].split(), *EXACT)
    said = fail(*words, "--output", log.parent / "out.csv", started=False)
    assert "is an input as well" in said


def test_a_manifest_that_cannot_be_written_says_that_the_counts_are(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished = running.finished

    def then_full(*given: Any) -> Any:
        made = finished(*given)
        Path(manifest.path_of(str(log.parent / "out.csv"))).mkdir()
        return made

    monkeypatch.setattr(running, "finished", then_full)
    words = ("--input", log, *MAINS["count"][1].split(), *EXACT)
    said = fail(*words, "--output", log.parent / "out.csv")
    assert "the counts are complete: " in said
    assert (log.parent / "out.csv").exists()

"""The soak on Flink, small; and what its rows and its verdict make of samples."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from tests.engines.flink import soak as flink_soak
from tests.engines.flink.soak import Sample, rows

SMALL = ("--keys", "100", "--skewed")


def sample(releases: int, python: float = 100.0) -> Sample:
    return Sample(releases, float(releases), python, 500.0, 0)


@pytest.mark.parametrize(
    ("count", "events", "must"),
    [("elements", 4000, 4000), ("ticks", 4000, 500), ("people", 4000, 100)],
)
def test_a_small_soak_on_flink_sees_every_release(
    count: str, events: int, must: int, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--events", str(events), "--count", count, "--ticks", "4", "--cache", "10"]
    given += ["--rate", "1"]
    # Its memory says nothing: workers that have just begun still load modules.
    assert flink_soak.main((*SMALL, *given, "--checkpoint", "500")) in (0, 1)
    said = capsys.readouterr().out.splitlines()
    assert said[-1] == f"releases: {must:,} of {must:,}"
    releases, _, python_cpu, java_cpu, python, java, state = said[-4].split()
    assert 0 < int(releases.replace(",", "")) <= must
    assert float(python_cpu) >= 0
    assert float(java_cpu) >= 0
    assert float(python) > 20
    assert float(java) > 100
    assert int(state) < 3000  # of a checkpoint that may be of before the first events


def test_the_time_of_workers_that_have_ended_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a worker that ends during a row takes its time with it, and the row has less than 0."""
    alive, spent = iter([[1, 2], [1, 2], [2], [2]]), iter([3.0, 2.0, 9.0, 2.5, 9.0])
    watch: Any = flink_soak.Watch.__new__(flink_soak.Watch)
    watch._java, watch._workers, watch._spent = 9, Namespace(pids=lambda: next(alive)), {}
    states = iter(["RUNNING", "RUNNING", "FINISHED"])
    monkeypatch.setattr(watch, "state", lambda: next(states), raising=False)
    monkeypatch.setattr(watch, "_releases", lambda: 5)
    monkeypatch.setattr(watch, "_get", lambda _: {"latest": {"completed": None}}, raising=False)
    monkeypatch.setattr(flink_soak, "resident", lambda _: 1.0)
    monkeypatch.setattr(flink_soak, "_cpu", lambda _: next(spent))
    monkeypatch.setattr(flink_soak, "EVERY", 0)
    first, second, *_ = watch.samples()
    assert (first.cpu, second.cpu) == ((5.0, 9.0), (5.5, 9.0))


def test_a_row_has_the_median_of_its_tenth() -> None:
    found = [sample(5, 100), sample(8, 900), sample(9, 101), sample(25), sample(100, 102)]
    assert list(rows(found, 100)) == [sample(9, 101), sample(25), sample(100, 102)]


@pytest.mark.parametrize(
    ("last", "releases", "status"), [(102.0, 100, 0), (103.0, 100, 1), (102.0, 99, 1)]
)
def test_growth_and_loss_on_flink_are_noticed(
    last: float, releases: int, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [sample(n * 10, 100.0 if n < 10 else last) for n in range(1, 11)]
    monkeypatch.setattr(flink_soak, "soak", lambda *_: (found, releases))
    assert flink_soak.main(["--events", "100", "--keys", "10"]) == status


def test_each_key_is_in_one_file(tmp_path: Path) -> None:
    flink_soak.write(tmp_path / "files", Namespace(events=500, keys=20, skewed=True, rate=100))
    files = [path.read_text().splitlines() for path in (tmp_path / "files").iterdir()]
    keys = [{line.partition(",")[0] for line in lines} for lines in files]
    assert sum(map(len, files)) == 500
    assert len(keys[0]) + len(keys[1]) == len(keys[0] | keys[1]) == 20

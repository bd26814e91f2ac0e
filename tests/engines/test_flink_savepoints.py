"""A stream on Flink, stopped with a savepoint, and resumed by a newer version of the library.

That version is simulated: its workers write states of the next format, and read both. The releases
of all lives together must be those of a run without interruption, to the last bit. A clock that is
resumed with another list of keys is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

import beam_dpcount as dp
from benchmarks.engine_flink import Read, Show
from benchmarks.jobs import event
from engines.flink.cluster import Cluster, Workers, wait
from engines.flink.runner import Lines, OnFlink, Running
from tests.engines.conftest import SECRET, VARIABLE
from tests.runners import feed, run

LINES = [f"{'ab'[i % 3 % 2]},{i % 4},{i * 1000},{i}" for i in range(300)]
PACE = 0.02  # seconds between lines
# Python imports this first, wherever it finds it.
NEWER = """
from beam_dpcount.dofns import states as coders

decode, coders.FORMAT = coders.StateCodec.decode, 4


def decode_either(self, data):
    coders.FORMAT = data[0]
    try:
        return decode(self, data)
    finally:
        coders.FORMAT = 4


coders.StateCodec.decode = decode_either
"""


def counted() -> Any:
    given: dict[str, Any] = {
        "value": itemgetter(0),
        "element_id": itemgetter(1),
        "path": "streaming",
        "mechanism": "BLT",
        "entropy": dp.ReplayableEntropy(VARIABLE, run_id="savepoints"),
    }
    return "Count" >> dp.PrefixCount(dp.ZCDP(0.5), 400, bounds=(0, 3), **given)


def ticked(keys: list[str]) -> Any:
    """A release of each key every 10 milliseconds, so for each ten lines."""
    given: dict[str, Any] = {"value": itemgetter(0), "bounds": (0, 3), "path": "streaming"}
    entropy = dp.ReplayableEntropy(VARIABLE, run_id="savepoints")
    counting = dp.TickCount(dp.ZCDP(0.5), 0.01, 0, horizon=30, keys=keys, entropy=entropy, **given)
    return "Count" >> counting


class Lives:
    """One stream, and its lives."""

    def __init__(self, cluster: Cluster, work: Path, count: Callable[[], Any] = counted) -> None:
        self.count = count
        self._cluster, self._sink, files = cluster, work / "releases.log", work / "files"
        files.mkdir()
        (files / "lines.csv").write_text("".join(f"{line}\n" for line in LINES))
        self._files = files

    def start(self, workers: Workers, savepoint: str = "") -> Running:
        flags = [f"--flink_master=localhost:{self._cluster.rest}", *workers.flags, "--streaming"]
        if savepoint:
            flags.append(f"--savepoint_path={savepoint}")
        pipeline = beam.Pipeline(runner=OnFlink(), options=PipelineOptions(flags))
        read = beam.ParDo(Read()).with_output_types(tuple[str, tuple[int, int]])
        lines = pipeline | Lines(self._files, late=0, pace=round(PACE * 1e6))
        releases = lines | "Read" >> read | self.count()
        _ = releases | "Show" >> beam.ParDo(Show("count", self._sink))
        running: Any = pipeline.run()
        return running

    def seen(self) -> list[list[str]]:
        text = self._sink.read_text() if self._sink.exists() else ""
        return [line.split(" ")[1:-1] for line in text.splitlines() if line.endswith(" .")]

    def stop(self, running: Running, releases: int) -> str:
        """Once there are so many releases in all; where the savepoint is."""
        processes = self._cluster.job_manager, self._cluster.task_managers[-1]
        wait(lambda: len(self.seen()) >= releases, processes, f"{releases} releases")
        job = f"/jobs/{running.job_id()}"
        asked = self._cluster.ask(f"{job}/stop", {"targetDirectory": self._cluster.savepoints})
        savepoint = f"{job}/savepoints/{asked['request-id']}"
        wait(
            lambda: self._cluster.get(savepoint)["status"]["id"] == "COMPLETED",
            processes,
            "the savepoint",
        )
        running.wait_until_finish(60_000)
        return str(self._cluster.get(savepoint)["operation"]["location"])


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    """Workers with the newer library."""
    work = tmp_path_factory.mktemp("newer")
    (work / "sitecustomize.py").write_text(NEWER)
    with Workers(work, {VARIABLE: SECRET}, [work]) as pool:
        yield pool


def test_stop_upgrade_and_resume(
    cluster: Cluster,
    workers: Workers,
    newer: Workers,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lives = Lives(cluster, tmp_path)
    first = lives.stop(lives.start(workers), 80)
    before = len(lives.seen())
    assert 80 <= before < 200
    second = lives.stop(lives.start(newer, first), before + 50)
    between = len(lives.seen())
    assert before + 50 <= between < 290

    # Back to the older one: refused by name, and nothing is released.
    with pytest.raises(RuntimeError, match="in format 4, this code reads format 3: upgrade"):
        lives.start(workers, second).wait_until_finish(60_000)
    assert len(lives.seen()) == between

    lives.start(newer, second).wait_until_finish(60_000)
    seen = lives.seen()
    monkeypatch.setenv(VARIABLE, SECRET)
    rows = [(key, pair, micros) for (key, pair), micros in map(event, map(str.encode, LINES))]
    expected = run(lambda p: p | feed(rows, tuple[str, Any]) | counted()).releases
    assert len(seen) == len(LINES)  # none twice: a savepoint is no crash
    assert sorted(seen) == sorted([[r.key, str(r.step), *map(repr, r[2:])] for r in expected])


@pytest.mark.parametrize("keys", [["a", "b", "c"], ["a"]], ids=["added", "removed"])
def test_a_clock_resumed_with_another_list_of_keys_is_refused(
    keys: list[str], cluster: Cluster, workers: Workers, tmp_path: Path
) -> None:
    lives = Lives(cluster, tmp_path, lambda: ticked(["a", "b"]))
    savepoint = lives.stop(lives.start(workers), 10)
    before = lives.seen()
    lives.count = lambda: ticked(keys)
    with pytest.raises(RuntimeError, match=r"the list of keys .* resume with that list"):
        lives.start(workers, savepoint).wait_until_finish(60_000)
    assert lives.seen() == before  # and no release more

    lives.count = lambda: ticked(["a", "b"])
    lives.start(workers, savepoint).wait_until_finish(60_000)
    seen = sorted((key, int(step)) for key, step, *_ in lives.seen())
    assert seen == [(key, step) for key in "ab" for step in range(1, 31)]

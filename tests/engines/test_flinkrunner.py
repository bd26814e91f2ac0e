"""Beam's own FlinkRunner, as test_pipelines.py does not give it: all that its options combine to.

These take a jar (flinkrunner.py), and a network of loopback alone (engines/loopback.py).
"""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

import beam_dpcount as dp
from engines.servers import Server
from tests.engines import flinkrunner
from tests.engines.commands import arguments, released, run_count, write
from tests.engines.conftest import MOST_SECONDS, Engine, on_flinkrunner
from tests.engines.counts import BUDGET, ticks
from tests.runners import each_path, feed, run
from tests.scripted import ScriptedEntropy

ROWS = [("xxy"[i % 3], i % 3, i * 1_000_000) for i in range(120)]
MASTERS, ENVIRONMENTS = ("local", "cluster"), ("loopback", "external")
MODES = {"batch": (), "streaming": ("--streaming",), "checkpoints": flinkrunner.CHECKPOINTS}
DONE = {("local", "loopback", "batch"), ("cluster", "external", "checkpoints")}
OTHERS = [each for each in product(MASTERS, ENVIRONMENTS, MODES) if each not in DONE]


@pytest.fixture(scope="module", params=OTHERS, ids="-".join)
def other(request: pytest.FixtureRequest, job_server: Server) -> Engine:
    """A Flink, workers and a mode."""
    where, environment, mode = request.param
    address, parallelism = "[local]", 1
    if where == "cluster":
        address, parallelism = f"localhost:{request.getfixturevalue('flink_alone').rest}", 2
    workers: tuple[str, ...] = flinkrunner.LOOPBACK
    if environment == "external":
        workers = request.getfixturevalue("workers").flags
    return on_flinkrunner(job_server, address, parallelism, *workers, *MODES[mode])


@each_path
def test_ticks(path: str, other: Engine, job_server: Server) -> None:
    """State, timers and groups, in batch, too; the order of arrival decides nothing here."""
    build = lambda p: p | feed(ROWS) | ticks(path=path)  # noqa: E731
    with job_server.within(MOST_SECONDS):
        assert other.run(build).outputs == run(build).outputs


def test_each_element(other: Engine, job_server: Server) -> None:
    """Whole groups, which checkpoints lost without the flag."""
    made = dp.PrefixCount(BUDGET, 100, bounds=(0, 2), path="bounded", entropy=ScriptedEntropy())
    build = lambda p: p | feed(ROWS) | made  # noqa: E731
    with job_server.within(MOST_SECONDS):
        assert other.run(build).outputs == run(build).outputs


def test_beams_own_start(tmp_path: Path) -> None:
    """As users start it: a job server for one command."""
    log, out = tmp_path / "log.csv", tmp_path / "out.csv"
    expected = write(log)
    own = flinkrunner.options(flinkrunner.jar(), tmp_path, 0)
    words = arguments(log, out, "bounded", "--rho", "1e12")
    run_count(*words, "--runner", "FlinkRunner", "--flink_master", "[local]", *own)
    assert released(out) == pytest.approx(expected, abs=1e-3)

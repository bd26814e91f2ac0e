"""The JobManager dies by kill -9, and all that it knows; the job goes on from a checkpoint.

High availability, by which Flink would find the job again by itself, is not tested: a new
JobManager over the same directories is given the job anew, from the last checkpoint that was
retained. What was released after that checkpoint is released again, equal.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.judge import Verdict, judge
from tests.engines.conftest import SECRET, VARIABLE
from tests.engines.flink.cluster import Cluster, Workers
from tests.engines.flink.runner import Running
from tests.engines.lives import COUNTS, EVENTS, Lives, uninterrupted

pytestmark = pytest.mark.long  # a cluster that is stopped and started

# Checkpoints are on, and those that a test asks for the only ones: a kill finds it where it says.
RARELY = (
    "--checkpointing_interval=3600000",
    "--finish_bundle_before_checkpointing",
    "--retain_externalized_checkpoints_on_cancellation",
)
# Under another secret people are refused by name, as they would be placed elsewhere.
UNPLACED = {name: count for name, count in COUNTS.items() if name != "people"}
# What workers of mutants import first. One timer that was restored sets no other one.
TIMER_LOST = """
from beam_dpcount.dofns.ticks import CountEachTick

plain, lost = CountEachTick._set, []


def lose(self, timer, tick):
    if lost:
        plain(self, timer, tick)
    lost.append(tick)


CountEachTick._set = lose
"""


def retained(cluster: Cluster, running: Running) -> list[str]:
    """The checkpoints of a job that are on disk and complete, the last one last."""
    places = cluster.work.glob(f"checkpoints/{running.job_id()}/chk-*/_metadata")
    return [
        place.parent.as_uri()
        for place in sorted(places, key=lambda place: int(place.parent.name.removeprefix("chk-")))
    ]


def checkpoint(lives: Lives, running: Running) -> None:
    """Have one made."""
    lives.done(running, "checkpoints", {"checkpointType": "FULL"}, "checkpoints")


def begun(lives: Lives, workers: Workers) -> tuple[Running, str, str]:
    """In the middle of the stream, with its two last checkpoints, and releases after each."""
    running = lives.start(workers, "", 2, *RARELY, fast=200)
    lives.more(60)
    config = lives.cluster.get(f"/jobs/{running.job_id()}/checkpoints/config")
    assert config["externalization"] == {"enabled": True, "delete_on_cancellation": False}
    for _ in range(3):
        checkpoint(lives, running)
        lives.more(30)
    before, last = retained(lives.cluster, running)
    assert re.search("chk-2$", before)
    assert re.search("chk-3$", last)
    return running, before, last


def verdicts(lives: Lives) -> dict[str, Verdict]:
    whole = uninterrupted()
    return {name: judge(lives.seen(name), whole[name]) for name in lives.counts}


def check(lives: Lives) -> None:
    """Some were seen again; nothing is missing, nothing else, and none has two values."""
    found = verdicts(lives)
    assert [verdict.faults for verdict in found.values()] == [[]] * len(lives.counts), found
    assert found["elements"].repeated >= 30


@dataclass
class Killed:
    """A stream whose cluster has died, JobManager and TaskManager."""

    lives: Lives
    before: str
    last: str


@pytest.fixture(scope="module")
def killed(workers: Workers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Killed]:
    """And a new cluster over the same directories."""
    work = tmp_path_factory.mktemp("killed")
    with Cluster(work / "flink", restarts=1) as first:
        lives = Lives(first, work / "lives", UNPLACED)
        running, before, last = begun(lives, workers)
        first.job_manager.kill()
    running.cancel()  # what had submitted it
    assert len(lives.seen("elements")) < EVENTS
    with Cluster(work / "flink", restarts=1) as lives.cluster:
        assert lives.cluster.get("/jobs") == {"jobs": []}  # it knows of none
        yield Killed(lives, before, last)


@pytest.mark.parametrize("place", ["last", "before"])
def test_a_job_goes_on_from_a_retained_checkpoint(
    place: str, killed: Killed, workers: Workers, tmp_path: Path
) -> None:
    """From the one before the last, too, with more that is seen again."""
    lives = killed.lives.apart(tmp_path / "lives")
    lives.finish(workers, getattr(killed, place))
    check(lives)
    assert place == "last" or verdicts(lives)["elements"].repeated >= 60


def test_another_secret_is_caught(killed: Killed, tmp_path: Path) -> None:
    lives = killed.lives.apart(tmp_path / "lives")
    with Workers(tmp_path / "workers", {VARIABLE: SECRET[::-1]}) as others:
        lives.finish(others, killed.before)
    for name, verdict in verdicts(lives).items():
        assert verdict.conflicts > 0, name  # what was seen again, and
        assert verdict.differing > 0, name  # what comes after it
    assert verdicts(lives)["elements"].conflicts >= 60


def test_a_timer_that_is_lost_is_caught(killed: Killed, tmp_path: Path) -> None:
    lives = killed.lives.apart(tmp_path / "lives")
    (tmp_path / "sitecustomize.py").write_text(TIMER_LOST)
    with Workers(tmp_path / "workers", {VARIABLE: SECRET}, [tmp_path]) as others:
        lives.finish(others, killed.last)
    missing = verdicts(lives)["ticks"].missing
    assert missing > 0
    assert verdicts(lives)["ticks"].faults == [f"{missing} releases missing"]
    assert not verdicts(lives)["elements"].faults


def test_a_task_manager_that_outlives_it_serves_the_next_one(
    workers: Workers, tmp_path: Path
) -> None:
    """It goes on for seconds, with releases that no checkpoint will cover."""
    with Cluster(tmp_path / "flink", restarts=1) as cluster:
        lives = Lives(cluster, tmp_path / "lives")
        running, _, last = begun(lives, workers)
        cluster.job_manager.kill()
        running.cancel()
        before = len(lives.seen("elements"))
        cluster.add_job_manager()
        lives.until(lambda: cluster.get("/overview")["slots-available"] >= 2, "the slots")
        assert before < len(lives.seen("elements")) < EVENTS
        lives.finish(workers, last)
        assert [each.running() for each in cluster.task_managers] == [True]
    check(lives)

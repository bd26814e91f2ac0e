"""A stream on Flink, stopped with a savepoint, and resumed: by a newer library, by more workers.

All releases of all lives together must be those of a run without interruption, to the last bit.
Newer libraries are simulated: one of another version and the same format of states, and one whose
workers write the next format, and read both. A clock that is resumed with another list of keys is
refused. A drain is an end.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import beam_dpcount as dp
from beam_dpcount.dofns import versions
from beam_dpcount.states import all_ticks
from beam_dpcount.states.codecs import OTHER_KEYS
from benchmarks.judge import judge
from tests.engines.conftest import SECRET, VARIABLE
from tests.engines.flink.cluster import Cluster, Workers
from tests.engines.lives import (
    COUNTS,
    EVENTS,
    KEYS,
    TICKS,
    Lives,
    lines_read,
    of_people,
    ticked,
    uninterrupted,
)
from tests.messages import says

pytestmark = pytest.mark.long  # a cluster that is stopped and started

# Python imports this first, wherever it finds it.
NEWER = """
from beam_dpcount import version

version.__version__ = "99.0"
"""
NEWER_FORMAT = (
    NEWER
    + """
import zlib

from beam_dpcount.states import codecs, envelope

plain, codecs.FORMAT, envelope.FORMAT = envelope.Envelope.open, 5, 5


def open_either(self, data):
    if data[0] == 4 and envelope._is_checked(data):
        body = b"\\5" + data[1:-4]
        data = body + zlib.crc32(body).to_bytes(4, "little")
    return plain(self, data)


envelope.Envelope.open = open_either
"""
)
FEW_KEYS_A_SHARD = """
from beam_dpcount.states import all_ticks

all_ticks.PER_SHARD = 2
"""


@contextmanager
def workers_of(library: str, work: Path) -> Iterator[Workers]:
    """Workers that know the secret, and import this first."""
    work.mkdir()
    (work / "sitecustomize.py").write_text(library)
    with Workers(work, {VARIABLE: SECRET}, [work]) as pool:
        yield pool


def check(lives: Lives) -> None:
    """Nothing is missing, nothing else, and none twice, as a savepoint is no crash."""
    for name, whole in uninterrupted().items():
        verdict = judge(lives.seen(name), whole)
        assert (verdict.faults, verdict.repeated) == ([], 0), (name, verdict)


def test_the_uninterrupted_run_has_what_there_is_to_lose() -> None:
    whole = uninterrupted()
    assert len(whole["elements"]) == EVENTS
    assert len(whole["ticks"]) == len(whole["people"]) == len(KEYS) * TICKS
    # Keys are shown from some tick in the middle on, one after the other.
    first = dict.fromkeys(KEYS, 0)
    for (key, step), _ in reversed(whole["selected"]):
        first[key] = step
    assert 1 < min(first.values()) < max(first.values()) < TICKS


def test_stop_upgrade_and_resume(
    cluster: Cluster, workers: Workers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lives = Lives(cluster, tmp_path / "lives")
    running = lives.start(workers)
    lives.more(100)
    savepoint = lives.stop(running)

    newer = versions.HERE.replace(dp.__version__, "99.0")
    monkeypatch.setattr(versions, "HERE", newer)
    # Workers must be of the submitter's version: the older ones count nothing. They say so in their
    # log; Flink waits three minutes for what they send, which this does not.
    before = {name: lives.seen(name) for name in COUNTS}
    with workers_of("", tmp_path / "older") as older:
        running = lives.start(older, savepoint)
        refused = "but the pipeline was made by beam_dpcount 99.0"
        lives.until(lambda: refused in older.log.read_text(), "the refusal")
        lives.cancel(running)
    assert {name: lives.seen(name) for name in COUNTS} == before

    with workers_of(NEWER, tmp_path / "newer") as same_format:
        running = lives.start(same_format, savepoint)
        lives.more(60)
        savepoint = lives.stop(running)
        with workers_of(NEWER_FORMAT, tmp_path / "newest") as other_format:
            running = lives.start(other_format, savepoint)
            lives.more(60)
            savepoint = lives.stop(running)
            before = {name: lives.seen(name) for name in COUNTS}
            assert len(before["elements"]) < EVENTS

            # Back to the older format: refused by name, and nothing is released.
            with pytest.raises(RuntimeError, match="in format 5, this code reads format 4: up"):
                lives.finish(same_format, savepoint)
            assert {name: lives.seen(name) for name in COUNTS} == before
            lives.finish(other_format, savepoint)
    check(lives)


@pytest.mark.parametrize("keys", ["abcdefghi", "abcdefg"], ids=["added", "removed"])
def test_a_clock_resumed_with_another_list_of_keys_is_refused(
    keys: str, cluster: Cluster, workers: Workers, tmp_path: Path
) -> None:
    lives = Lives(cluster, tmp_path, {"ticks": ticked})
    running = lives.start(workers)
    lives.more(10, "ticks")
    savepoint = lives.stop(running)
    before = lives.seen("ticks")
    lives.counts = {"ticks": lambda: ticked(keys)}
    with pytest.raises(RuntimeError, match=says(OTHER_KEYS)):
        lives.finish(workers, savepoint)
    assert lives.seen("ticks") == before  # and no release more

    lives.counts = {"ticks": ticked}
    lives.finish(workers, savepoint)
    assert judge(lives.seen("ticks"), uninterrupted()["ticks"]).faults == []


@pytest.mark.parametrize("few", [1, 2], ids=["one and two", "two and four"])
def test_a_rescale(few: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From few subtasks to twice as many, on two TaskManagers, and back.

    Listed keys, selected ones and people are each in several shards, which move.
    """
    monkeypatch.setattr(all_ticks, "PER_SHARD", 2)
    assert all_ticks.shards_of(len(KEYS), 1) == 4
    assert of_people().transform.users.shards == 64
    with (
        workers_of(FEW_KEYS_A_SHARD, tmp_path / "workers") as workers,
        Cluster(tmp_path / "flink", slots=2, restarts=1) as cluster,
    ):
        cluster.add_task_manager()
        lives, savepoint = Lives(cluster, tmp_path / "lives", files=few), ""
        for parallelism in (few, 2 * few):
            running = lives.start(workers, savepoint, parallelism)
            lives.more(45)
            tasks = cluster.get(f"/jobs/{running.job_id()}")["vertices"]
            assert max(task["parallelism"] for task in tasks) == parallelism
            lives.more(45)
            savepoint = lives.stop(running)
        assert len(lives.seen("elements")) < EVENTS
        lives.finish(workers, savepoint, few)
    check(lives)


def test_a_drain_ends_every_clock(cluster: Cluster, workers: Workers, tmp_path: Path) -> None:
    lives = Lives(cluster, tmp_path)
    running = lives.start(workers, fast=130)
    lives.more(120)
    savepoint = lives.stop(running, drain=True)
    read = tuple(lines_read(lives.seen("elements")))
    assert 120 <= len(read) < EVENTS
    drained = {name: lives.seen(name) for name in COUNTS}
    # All ticks have been released, as of a stream that ended there.
    for name, whole in uninterrupted(read).items():
        verdict = judge(drained[name], whole)
        assert (verdict.faults, verdict.repeated) == ([], 0), (name, verdict)
    assert len(drained["ticks"]) == len(KEYS) * TICKS

    # Resumed, elements go on; what a clock had not counted by then is lost, and nothing says so.
    lives.finish(workers, savepoint)
    verdict = judge(lives.seen("elements"), uninterrupted()["elements"])
    assert (verdict.faults, verdict.repeated) == ([], 0)
    for name in ("ticks", "selected", "people"):
        assert lives.seen(name) == drained[name]
        verdict = judge(lives.seen(name), uninterrupted()[name])
        assert verdict.differing > 0

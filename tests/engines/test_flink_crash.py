"""The crash test on Flink: its TaskManager and its Python workers die by kill -9.

`python -m benchmarks.crash --engine flink` kills more often.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from benchmarks import crash, jobs
from benchmarks.engine_flink import PLACES, FlinkJob

SMALL: dict[str, Any] = {"keys": 6, "pace": 0.02}


def killed(directory: Path, kills: int, **options: Any) -> crash.Summary:
    return crash.crash(FlinkJob(str(directory), **SMALL, **options), kills, timeout=240)


@pytest.mark.parametrize(
    ("transform", "kills", "events"), [("elements", 3, 500), ("ticks", 1, 300)]
)
def test_nothing_is_lost_and_nothing_has_two_values(
    transform: str, kills: int, events: int, tmp_path: Path
) -> None:
    summary = killed(tmp_path, kills, transform=transform, events=events)
    assert summary.faults == [], str(summary)
    seen = summary.private
    assert seen.repeated > 0
    assert seen.distinct == seen.equal == summary.exact == seen.expected
    assert summary.lives.kills.total() == kills
    assert summary.lives.kills[PLACES[0]] == (kills + 1) // 2
    assert summary.lives.restarts >= kills
    assert summary.lives.checkpoints > 0


def test_other_noise_is_caught(tmp_path: Path) -> None:
    summary = killed(tmp_path, 2, entropy="system", events=400)
    seen = summary.private
    assert 0 < seen.conflicts <= seen.repeated, str(summary)
    assert summary.faults == [f"{seen.conflicts} releases seen with two values"]
    assert summary.exact == seen.expected


def test_each_key_is_in_one_file_and_in_order(tmp_path: Path) -> None:
    job = FlinkJob(str(tmp_path), events=200)
    jobs.write_input(job, random.Random(1))
    job.spread()
    rows = job.input.read_text().splitlines()
    files = [path.read_text().splitlines() for path in job.files.iterdir()]
    assert len(files) == 2
    assert sorted(line for file in files for line in file) == sorted(rows)
    for name in job.size.names:
        of_key = [line for line in rows if line.startswith(f"{name},")]
        assert of_key
        assert of_key in [[line for line in file if line in of_key] for file in files]

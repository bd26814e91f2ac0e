"""The crash test on Flink: its TaskManager and its Python workers die by kill -9.

`python -m tests.crash --engine flink` kills more often.
"""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pytest

from tests.crash import __main__ as crash
from tests.crash import jobs
from tests.crash.flink import PLACES, FlinkJob
from tests.crash.subjects import SUBJECTS

pytestmark = pytest.mark.long  # a cluster that is stopped and started

OTHERS = [name for name in SUBJECTS if name not in ("elements", "late", "selected")]
SMALL: dict[str, Any] = {"keys": 6, "pace": 0.02}


def killed(directory: Path, kills: int, **options: Any) -> crash.Summary:
    return crash.crash(FlinkJob(str(directory), **SMALL, **options), kills, timeout=240)


@pytest.mark.parametrize(
    ("transform", "kills", "events"),
    [
        ("elements", 3, 500),
        *((name, 2, 300) for name in ("late", "selected")),
        *(pytest.param(name, 2, 300, marks=pytest.mark.audit) for name in OTHERS),
    ],
)
def test_nothing_is_lost_and_nothing_has_two_values(
    transform: str, kills: int, events: int, tmp_path: Path
) -> None:
    summary = killed(tmp_path, kills, transform=transform, events=events)
    assert summary.faults == [], str(summary)
    seen, loose = summary.private, summary.loose
    assert seen.distinct == seen.equal == seen.expected
    assert summary.exact == summary.must > 100
    assert (loose is not None) == (transform in ("late", "persons"))
    if loose is not None:
        assert loose.distinct == loose.expected > 100
    assert summary.lives.kills.total() == kills
    assert summary.lives.kills[PLACES[0]] == (kills + 1) // 2
    assert summary.lives.restarts >= kills
    assert summary.lives.checkpoints > 0


# What a worker imports first, of mutants: something is wrong in each life but the first.
NOISE_LOST = """
from beam_dpcount.states.codecs import StateCodec
from tests.test_crash import without_noise

decode, begin, seen = StateCodec.decode, StateCodec.__init__, set()


def remember(self, counter, *given):
    begin(self, counter, *given)
    self.counter = counter


def forget(self, data):
    is_first = not seen
    seen.add(1)
    state = decode(self, data)
    return without_noise(self.counter, state) if is_first else state


StateCodec.__init__, StateCodec.decode = remember, forget
"""
STEP = """
from beam_dpcount.dofns.elements import CountEachElement

plain, seen = CountEachElement.process, set()


def process(self, element, windowed, cell):
    before = cell.read()
    is_first = type(before) is bytes and not seen
    yield from plain(self, element, windowed, cell)
    if is_first:
        seen.add(1)
        {wrong}


process.__defaults__ = plain.__defaults__
CountEachElement.process = process
"""
COUNTED_TWICE = STEP.format(wrong="yield from plain(self, element, windowed, cell)")
RELEASE_AHEAD = STEP.format(wrong="cell.write(before)")
TIMER_LOST = """
from beam_dpcount.dofns.ticks import CountEachTick

plain, resumed = CountEachTick._set, []


def lose(self, timer, tick):
    resumed.append(tick > 1)
    if resumed != [True]:
        plain(self, timer, tick)


CountEachTick._set = lose
"""


@pytest.mark.parametrize(
    ("mutant", "transform", "fault"),
    [
        pytest.param(NOISE_LOST, "elements", "differ from|two values", id="noise memory lost"),
        pytest.param(
            *(COUNTED_TWICE, "elements", "should not be"),
            id="counted twice",
            marks=pytest.mark.audit,
        ),
        pytest.param(
            *(RELEASE_AHEAD, "elements", "should not be|two values"),
            id="release ahead of its state",
            marks=pytest.mark.audit,
        ),
        pytest.param(TIMER_LOST, "ticks", "missing|not exact", id="timer lost"),
    ],
)
def test_mutants_are_caught(mutant: str, transform: str, fault: str, tmp_path: Path) -> None:
    library, work = tmp_path / "library", tmp_path / "work"
    library.mkdir()
    work.mkdir()
    (library / "sitecustomize.py").write_text(mutant)
    given = {"mechanism": "NormalizedBLT", "library": str(library)}
    summary = killed(work, 2, transform=transform, events=300, **given)
    assert re.search(fault, ", ".join(summary.faults)), str(summary)


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

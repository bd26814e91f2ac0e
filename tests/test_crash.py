"""Workers killed by kill -9 and started again: nothing is lost, and nothing has two values.

The engine is our own (`benchmarks.engine_own`), not Flink; `make crash` kills more often.
"""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest

from beam_dpcount.dofns.elements import CountEachElement
from beam_dpcount.dofns.states import StateCodec
from beam_dpcount.noise.entropy import SystemNoise
from beam_dpcount.noise.replay import Replay, ReplayableEntropy
from benchmarks import crash
from benchmarks.crash import examine
from benchmarks.engine_own import OwnJob, Snapshot
from benchmarks.jobs import SECRET, TICK, HarnessError, Lives, parsed, totals, write_input
from tests.cells import Kept

SMALL = {"keys": 4, "events": 300, "checkpoint": 25}


def killed(directory: Path, kills: int, **options: Any) -> crash.Summary:
    return crash.crash(OwnJob(str(directory), **{**SMALL, **options}), kills, timeout=60)


@pytest.mark.parametrize(
    "transform", ["elements", pytest.param("ticks", marks=pytest.mark.exhaustive)]
)
def test_three_kills(transform: str, tmp_path: Path) -> None:
    summary = killed(tmp_path, 3, transform=transform)
    assert summary.faults == [], str(summary)
    assert summary.lives.restarts == 3
    assert summary.lives.kills["half"] == 1
    seen = summary.private
    assert seen.repeated > 0
    assert seen.distinct == seen.equal == summary.exact == seen.expected > 120
    assert "conflicts     0" in str(summary)
    expected = f"equal         {seen.expected} of {seen.expected} as in an uninterrupted run"
    assert expected in str(summary)
    assert str(summary).endswith("kept")


# The test can fail: what must not pass, does not


MARK = b"anew"  # a digest of 16 bytes begins so by chance once in 2^32


class OneKeyAnew(Replay):
    """A mutant: the noise of one key comes from the system."""

    def begin(self, key: str, window: Any) -> bytes:
        made = super().begin(key, window)
        return MARK + made[4:] if key == "key-2" else made

    def follow(self, digest: bytes, identity: Any, value: bytes) -> bytes:
        made = super().follow(digest, identity, value)
        return MARK + made[4:] if digest.startswith(MARK) else made

    def noise(self, digest: bytes) -> Any:
        if digest.startswith(MARK):
            return SystemNoise(self._law, self._dimension)
        return super().noise(digest)


class OneKeyAnewEntropy(ReplayableEntropy):
    def replay(self, *given: Any) -> Replay:
        made = super().replay(*given)
        made.__class__ = OneKeyAnew
        return made


def one_key_anew() -> ReplayableEntropy:
    return OneKeyAnewEntropy(SECRET, run_id="crash test")


def of_the_process() -> ReplayableEntropy:
    """A mutant: something in the hash differs from worker to worker."""
    return ReplayableEntropy(SECRET, run_id=str(os.getpid()))


def state_on_self() -> ReplayableEntropy:
    """A mutant, of the worker that asks for it: what is counted is kept on the DoFn."""
    plain = CountEachElement.process

    def process(self: Any, element: Any, windowed: Any, cell: Any) -> Any:
        cells = self.__dict__.setdefault("cells", {})
        return plain(self, element, windowed, Kept(cells, element[0], cell))

    process.__defaults__ = plain.__defaults__
    CountEachElement.process = process  # type: ignore[assignment, method-assign]
    return ReplayableEntropy(SECRET, run_id="crash test")


def without_noise(counter: Any, state: Any) -> Any:
    """The state with all that its decoder remembers of noise forgotten."""
    made, packed = counter.mechanism._recurrence, state[-1]
    exact = sum(made.widths[: made.p.buffers + 1])
    return (*state[:-1], packed[:exact] + bytes(len(packed) - exact))


def noise_zeroed() -> ReplayableEntropy:
    """A mutant: the private count's noise memory is lost, in the same way in every life.

    The other count is left alone, so that its totals do not show it.
    """
    plain, begin = StateCodec.encode, StateCodec.__init__

    def remember(self: Any, counter: Any, *given: Any) -> None:
        begin(self, counter, *given)
        self.counter, self.is_private = counter, counter.budget.rho < 1e6

    def encode(self: Any, state: Any, digest: bytes = b"", memory: bytes = b"") -> bytes:
        zeroed = without_noise(self.counter, state) if self.is_private else state
        return plain(self, zeroed, digest, memory)

    StateCodec.__init__, StateCodec.encode = remember, encode  # type: ignore[assignment, method-assign]
    return ReplayableEntropy(SECRET, run_id="crash test")


def memory_lost() -> ReplayableEntropy:
    """A mutant: the first state that a worker reads comes back without its noise memory."""
    plain, begin = StateCodec.decode, StateCodec.__init__

    def remember(self: Any, counter: Any, *given: Any) -> None:
        begin(self, counter, *given)
        self.counter, self.resumed = counter, False

    def decode(self: Any, data: bytes) -> Any:
        state, first = plain(self, data), not self.resumed
        self.resumed = True
        return without_noise(self.counter, state) if first else state

    StateCodec.__init__, StateCodec.decode = remember, decode  # type: ignore[assignment, method-assign]
    return ReplayableEntropy(SECRET, run_id="crash test")


def keys_swapped() -> ReplayableEntropy:
    """A mutant: a worker that resumes mixes up the states of two keys."""
    plain = Snapshot.read.__func__  # type: ignore[attr-defined]

    def read(cls: Any, path: Path) -> Any:
        found = plain(cls, path)
        if found is not None:
            a, b = "private key-0", "private key-1"
            found.cells[a], found.cells[b] = found.cells[b], found.cells[a]
        return found

    Snapshot.read = classmethod(read)  # type: ignore[assignment, method-assign]
    return ReplayableEntropy(SECRET, run_id="crash test")


@pytest.mark.parametrize(
    ("entropy", "fault", "is_exact"),
    [
        ("system", "seen with two values", True),
        pytest.param(
            "tests.test_crash:one_key_anew",
            "seen with two values",
            True,
            marks=pytest.mark.exhaustive,
        ),
        pytest.param(
            "tests.test_crash:of_the_process",
            "seen with two values",
            True,
            marks=pytest.mark.exhaustive,
        ),
        ("tests.test_crash:state_on_self", "releases missing", False),
    ],
)
def test_other_noise_and_mutants_are_caught(
    entropy: str, fault: str, is_exact: bool, tmp_path: Path
) -> None:
    summary = killed(tmp_path, 1, entropy=entropy)
    assert fault in ", ".join(summary.faults)
    seen = summary.private
    assert (summary.exact == seen.expected) == is_exact
    if is_exact:
        assert 0 < seen.conflicts <= seen.repeated
        assert seen.missing == 0
    if "one_key" in entropy:
        assert seen.conflicts < seen.repeated
    if entropy == "system":
        assert "equal         not compared: values, as system entropy" in str(summary)
        assert seen.differing == 0


@pytest.mark.parametrize(
    ("mutant", "transform", "kills"),
    [
        pytest.param("noise_zeroed", "elements", 1, marks=pytest.mark.exhaustive),
        pytest.param("noise_zeroed", "ticks", 0, marks=pytest.mark.exhaustive),
        pytest.param("memory_lost", "elements", 1, marks=pytest.mark.exhaustive),
        ("keys_swapped", "elements", 1),
    ],
)
def test_state_that_is_lost_or_mixed_up_is_caught(
    mutant: str, transform: str, kills: int, tmp_path: Path
) -> None:
    # This mechanism remembers noise in a part of its numbers.
    given = {"transform": transform, "mechanism": "NormalizedBLT", "keys": 2, "events": 150}
    summary = killed(tmp_path, kills, entropy=f"tests.test_crash:{mutant}", **given)
    seen = summary.private
    assert seen.differing > 0
    assert f"{seen.differing} releases differ from the uninterrupted run" in summary.faults
    assert "promise       BROKEN" in str(summary)
    if mutant == "noise_zeroed":
        # All that was looked at before: each place there once, and every total exact.
        assert len(summary.faults) == 1
        assert (seen.missing, seen.unknown, seen.conflicts) == (0, 0, 0)
        assert summary.exact == seen.expected
        assert seen.differing > seen.expected // 2


@pytest.fixture
def job(tmp_path: Path) -> OwnJob:
    made = OwnJob(str(tmp_path), keys=2, events=20)
    write_input(made, random.Random(1))
    return made


def sink(job: OwnJob) -> list[str]:
    return [
        f"{name} {key} {step} 0 {float(total)!r} 1.0 ."
        for name in ("private", "exact")
        for (key, step), total in totals(job).items()
    ]


def faults(job: OwnJob, lines: list[str]) -> list[str]:
    return examine(job, Lives(), 0, lines, parsed(sink(job), "private")).faults


def test_what_was_seen_is_held_against_the_input(job: OwnJob) -> None:
    lines = sink(job)
    assert len(lines) == 40
    assert faults(job, lines) == []
    assert faults(job, lines + lines[:5] + ["", lines[7][:-1], lines[7][:-3]]) == []
    assert faults(job, lines[1:]) == ["1 releases missing"]
    assert faults(job, lines[:-1]) == ["1 totals not exact"]
    assert faults(job, [*lines, lines[3].replace(" 1.0 .", " 2.0 .")]) == [
        "1 releases seen with two values"
    ]
    assert faults(job, [*lines, "private key-0 99 0 1.0 1.0 ."]) == [
        "1 releases that should not be"
    ]
    wrong = [line.replace("exact key-1 2 0 ", "exact key-1 2 0 1") for line in lines]
    assert faults(job, wrong) == ["1 totals not exact"]
    assert faults(job, [*lines, lines[-1].replace(" 1.0 .", " 2.0 .")]) == [
        "1 releases seen with two values, of the exact count"
    ]
    rounded = [line.replace("private key-1 2 0 ", "private key-1 2 0 1") for line in lines]
    assert faults(job, rounded) == ["1 releases differ from the uninterrupted run"]
    assert examine(job, Lives(), 2, lines, parsed(lines, "private")).faults == [
        "0 kills of 2",
        "no release was seen twice, so nothing is shown",
    ]


def test_totals_of_ticks_end_with_the_sum_of_all_events(tmp_path: Path) -> None:
    job = OwnJob(str(tmp_path), "ticks", keys=3, events=100)
    write_input(job, random.Random(2))
    rows = [line.split(",") for line in job.input.read_text().splitlines()]
    found = totals(job)
    assert len(found) == 3 * job.ticks
    assert sum(found[key, job.ticks] for key in job.names) == sum(int(row[1]) for row in rows)
    assert sum(found[key, 1] for key in job.names) == sum(
        int(row[1]) for row in rows if int(row[2]) < TICK
    )


def test_checkpoints_come_back_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    assert Snapshot.read(path) is None
    made = Snapshot(3, 50, 1234, {"a k": b"\x00\x01", "b ä": b""}, {"b ä": 7})
    path.write_bytes(made.pack())
    assert Snapshot.read(path) == made
    path.write_bytes(made.pack()[:-9])
    with pytest.raises(HarnessError, match="no whole checkpoint"):
        Snapshot.read(path)


@pytest.mark.exhaustive
def test_statuses(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    small = ["--keys", "2", "--events", "60", "--checkpoint", "20", "--kills", "0"]
    assert crash.main(small) == 0
    assert "promise       kept" in capsys.readouterr().out
    assert crash.main([*small, "--timeout", "0.01"]) == 2
    assert "no result: " in capsys.readouterr().err
    with pytest.raises(HarnessError, match=r"ended by itself(.|\n)*no_such_name"):
        killed(tmp_path, 1, entropy="tests.test_crash:no_such_name")

"""Workers killed by kill -9 and started again: nothing is lost, and nothing has two values.

The engine is our own (`tests.crash.own`), not Flink; `make crash` kills more often.
"""

from __future__ import annotations

import os
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from apache_beam.transforms.window import GlobalWindow

from beam_dpcount.dofns.elements import CountEachElement
from beam_dpcount.noise.entropy import SystemNoise
from beam_dpcount.noise.replay import Replay, ReplayableEntropy
from beam_dpcount.states.codecs import StateCodec
from tests.cells import Kept
from tests.crash import __main__ as crash
from tests.crash.__main__ import examine
from tests.crash.jobs import COUNTS, SECRET, HarnessError, Lives, parsed, write_input
from tests.crash.own import OwnJob, Snapshot
from tests.crash.subjects import SUBJECTS, TICK, Late, Row, Size, rows_of

SMALL = {"keys": 4, "events": 300, "checkpoint": 25}


def killed(directory: Path, kills: int, **options: Any) -> crash.Summary:
    return crash.crash(OwnJob(str(directory), **{**SMALL, **options}), kills, timeout=60)


@pytest.mark.long
@pytest.mark.exhaustive("transform")
@pytest.mark.parametrize("transform", SUBJECTS)
def test_three_kills(transform: str, tmp_path: Path) -> None:
    summary = killed(tmp_path, 3, transform=transform)
    assert summary.faults == [], str(summary)
    assert summary.lives.restarts == 3
    assert summary.lives.kills["half"] == 1
    seen, loose = summary.private, summary.loose
    assert seen.distinct == seen.equal == seen.expected >= 80
    assert summary.exact == summary.must >= 100
    assert (loose is not None) == (transform == "late")
    if loose is not None:
        assert loose.distinct == loose.expected > 100
        assert loose.repeated + seen.repeated > 0
        assert "may differ" in str(summary)
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
    numbers = np.frombuffer(packed, np.uint8).reshape(-1, made.size).copy()  # a row a key
    numbers[:, exact:] = 0
    lost = numbers.tobytes()
    return (*state[:-1], lost if isinstance(packed, bytes) else np.frombuffer(lost, packed.dtype))


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

    def resumed(found: Snapshot, path: Path) -> None:
        slots = [slot for slot in found.cells if slot[0].startswith("Count private/")]
        a, b = (next(slot for slot in slots if slot[-1] == key) for key in ("key-0", "key-1"))
        found.cells[a], found.cells[b] = found.cells[b], found.cells[a]

    return mutant(resumed)


@pytest.mark.long
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


@pytest.mark.long
@pytest.mark.parametrize(
    ("mutant", "transform", "kills"),
    [
        pytest.param("noise_zeroed", "elements", 0, marks=pytest.mark.exhaustive),
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
    assert "promise       BROKEN" in str(summary)
    if mutant == "keys_swapped":  # and, but by chance, steps of one key at times of the other
        assert seen.differing + seen.unknown > 0
        return
    assert seen.differing > 0
    assert f"{seen.differing} releases differ from the uninterrupted run" in summary.faults
    if mutant == "noise_zeroed":
        # All that was looked at before: each place there once, and every total exact.
        assert len(summary.faults) == 1
        assert (seen.missing, seen.unknown, seen.conflicts) == (0, 0, 0)
        assert summary.exact == seen.expected
        assert seen.differing > seen.expected // 2


def read_twice() -> ReplayableEntropy:
    """A mutant of the engine: a worker that resumes reads the event before once more.

    And further ones before it, until one of them has a value: zeros, counted twice, are zeros.
    """

    def resumed(found: Snapshot, path: Path) -> None:
        lines = path.with_name("events.csv").read_bytes()[: found.offset].splitlines(keepends=True)
        while lines:
            line = lines.pop()
            found.offset -= len(line)
            if Row.of(line).value:
                break

    return mutant(resumed)


def timer_lost() -> ReplayableEntropy:
    """A mutant of the engine: of the private count a key's timer, or its shards', is lost."""

    def resumed(found: Snapshot, path: Path) -> None:
        for slot in [*found.timers]:
            if slot[0].startswith("Count private/") and slot[3] in ("key-0", *range(4)):
                del found.timers[slot]

    return mutant(resumed)


def state_behind() -> ReplayableEntropy:
    """A mutant of the engine: a checkpoint has a key's state from before its last release."""
    plain, before = Snapshot.pack, dict[Any, list[bytes]]()

    def pack(self: Snapshot) -> bytes:
        now = dict(self.cells)
        self.cells.update((slot, before[slot]) for slot in before if slot[-1] == "key-0")
        made = plain(self)
        self.cells = now
        before.update(now)
        return made

    Snapshot.pack = pack  # type: ignore[method-assign]
    return ReplayableEntropy(SECRET, run_id="crash test")


def mutant(resumed: Any) -> ReplayableEntropy:
    plain = Snapshot.read.__func__  # type: ignore[attr-defined]

    def read(cls: Any, path: Path) -> Any:
        found = plain(cls, path)
        if found is not None:
            resumed(found, path)
        return found

    Snapshot.read = classmethod(read)  # type: ignore[assignment, method-assign]
    return ReplayableEntropy(SECRET, run_id="crash test")


@pytest.mark.long
@pytest.mark.exhaustive("transform")
@pytest.mark.parametrize(
    ("mutant", "transform", "faults"),
    [
        ("state_behind", "elements", ("should not be",)),
        ("read_twice", "elements", ("should not be", "totals not exact")),
        ("read_twice", "histogram", ("should not be", "totals not exact")),
        ("read_twice", "ticks", ("two values|differ from", "totals not exact")),
        ("read_twice", "persons", ("two values", "differ from")),  # as few of a person count
        ("timer_lost", "ticks", ("releases missing",)),
        ("timer_lost", "selected", ("releases missing",)),
        ("timer_lost", "late", ("releases missing",)),
    ],
)
def test_what_an_engine_must_not_do_is_caught(
    mutant: str, transform: str, faults: tuple[str, ...], tmp_path: Path
) -> None:
    entropy = f"tests.test_crash:{mutant}"
    summary = killed(tmp_path, 2, entropy=entropy, transform=transform, keys=6)
    for fault in faults:
        assert re.search(fault, ", ".join(summary.faults)), str(summary)


@pytest.fixture
def job(tmp_path: Path) -> OwnJob:
    made = OwnJob(str(tmp_path), keys=2, events=20)
    write_input(made, random.Random(1))
    return made


def sink(job: OwnJob) -> list[str]:
    totals = job.subject.totals(job.size, job.rows())
    return [
        f"{name} {key} {step} {micros} {total!r} 1.0 ."
        for name in COUNTS
        for (key, step, micros), ((total,), _) in totals.items()
    ]


def found(job: OwnJob, lines: list[str], kills: int = 0) -> list[str]:
    whole = {name: parsed(job, sink(job), name) for name in COUNTS}
    return examine(job, Lives(), kills, lines, whole).faults


def test_what_was_seen_is_held_against_the_input(job: OwnJob) -> None:
    lines = sink(job)
    assert len(lines) == 40
    assert found(job, lines) == []
    assert found(job, lines + lines[:5] + ["", lines[7][:-1], lines[7][:-3]]) == []
    assert found(job, lines[1:]) == ["1 releases missing"]
    assert found(job, lines[:-1]) == ["1 totals not exact"]
    assert found(job, [*lines, lines[3].replace(" 1.0 .", " 2.0 .")]) == [
        "1 releases seen with two values"
    ]
    assert found(job, [*lines, "private key-0 99 0 1.0 1.0 ."]) == ["1 releases that should not be"]
    second = [line for line in lines if " key-1 2 " in line]
    (private,), (exact,) = ([line for line in second if name in line] for name in COUNTS)
    off = {line: re.sub(r" ([0-9.]+) 1.0 .$", r" 1\1 1.0 .", line) for line in second}
    wrong = [off[line] if line == exact else line for line in lines]
    assert found(job, wrong) == ["1 totals not exact"]
    assert found(job, [*lines, lines[-1].replace(" 1.0 .", " 2.0 .")]) == [
        "1 releases seen with two values, of the exact count"
    ]
    differing = [off[line] if line == private else line for line in lines]
    assert found(job, differing) == ["1 releases differ from the uninterrupted run"]
    assert found(job, lines, kills=2) == [
        "0 kills of 2",
        "no release was seen twice, so nothing is shown",
    ]


@pytest.mark.long
def test_releases_that_may_differ_are_held_between_bounds(tmp_path: Path) -> None:
    job = OwnJob(str(tmp_path), "late", keys=4, events=400)
    write_input(job, random.Random(3))
    bounds = job.subject.totals(job.size, job.rows())
    lines = [
        f"{name} {key} {step} {micros} {value[0]!r} 1.0 ."
        for name in COUNTS
        for (key, step, micros), value in {place: low for place, (low, _) in bounds.items()}.items()
    ]
    whole = {name: parsed(job, lines, name) for name in COUNTS}
    assert examine(job, Lives(), 0, lines, whole).faults == []

    def faults_with(place: Any, value: float) -> list[str]:
        key, step, micros = place
        more = f"exact {key} {step} {micros} {value!r} 1.0 ."
        return examine(job, Lives(), 0, [*lines, more], whole).faults

    may = [place for place, (low, high) in bounds.items() if high > low]
    assert len(may) > 10
    assert {place[0] for place in may} == {"key-2", "key-3"}
    for place in may:
        (low,), (high,) = bounds[place]
        assert faults_with(place, high) == []  # two values are allowed there, within bounds
        assert faults_with(place, high + 1) == ["1 totals not exact"]
        assert faults_with(place, low - 1) == ["1 totals not exact"]
    lost = [line for line in lines if not line.startswith("private key-2 3 ")]
    gone = len(lines) - len(lost)
    assert examine(job, Lives(), 0, lost, whole).faults == [
        f"{gone} releases missing, of those that may differ"
    ]


def test_totals_of_ticks_end_with_the_sum_of_all_events(tmp_path: Path) -> None:
    job = OwnJob(str(tmp_path), "ticks", keys=3, events=100)
    write_input(job, random.Random(2))
    rows, size = job.rows(), job.size
    found = job.subject.totals(size, rows)
    assert len(found) == 3 * size.ticks
    last, first = ([found[key, n, n * TICK][0][0] for key in size.names] for n in (size.ticks, 1))
    assert sum(last) == sum(row.value for row in rows)
    assert sum(first) == sum(row.value for row in rows if row.micros < TICK)


@pytest.mark.parametrize("name", SUBJECTS)
def test_inputs_have_what_their_count_is_about(name: str) -> None:
    subject, size = SUBJECTS[name], Size(6, 600)
    rows = [*rows_of(subject, size, random.Random(4))]
    assert len({row.micros for row in rows}) == size.events
    late = [row for row in rows if row.micros < row.number * TICK // 10]
    assert bool(late) == (name == "late")
    if isinstance(subject, Late):
        assert {subject.may_differ(size, (row.key,)) for row in late} == {True}
        assert len(late) > 30
    whole = subject.totals(size, rows)
    largest = max(max(high) for _, high in whole.values())
    assert largest > 10
    if name in ("people", "persons"):  # some do not count
        assert largest < max(sum(row.value for row in rows if row.key == key) for key in size.names)


def test_rows_are_lines() -> None:
    row = Row("key-1", 3, 17_000, 5)
    assert Row.of(row.line.encode().rstrip()) == row


def test_checkpoints_come_back_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    assert Snapshot.read(path) is None
    slot = "stage", "cell", GlobalWindow(), "b ä"
    made = Snapshot(3, 50, 1234, {slot: [b"\x00\x01", b""]}, {(*slot, "7"): 7})
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

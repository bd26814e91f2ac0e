"""`make crash`: a count keeps its promise when its worker is killed, again and again, by kill -9.

This is not Flink, which `--engine flink` takes (flink_crash.py). It is a small engine of our own,
one process at a time, that does to the real stateful DoFns what a streaming engine does: it reads a
durable input from where the last checkpoint on disk left off, keeps state cells and timers,
delivers every release at once, so before the checkpoint that covers it, and checkpoints every so
many events. A supervisor kills the worker at random times and at chosen places, and starts it
again, until the input has ended.

Two counts of the same events run side by side: a private one, and one with an enormous budget, of
which every release must be the exact total. Of the private one every (key, step) must be there,
none with two values, and each with that of an uninterrupted run under the same secret, to the last
bit (judge.py). Status 0: so it was; 1: it was not; 2: the test itself did not come to an end.
"""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import math
import os
import random
import secrets
import selectors
import signal
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from collections import Counter as Tally
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import accumulate
from operator import itemgetter
from pathlib import Path
from typing import Any, ClassVar

import apache_beam as beam
from apache_beam.internal import pickler
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils import windowed_value

import beam_dpcount as dp
from beam_dpcount.dofns.elements import CountEachElement
from beam_dpcount.dofns.ticks import SEED, CountEachTick, ReadTicks
from benchmarks import reference
from benchmarks.judge import Sighting, Verdict, judge

ROOT = Path(__file__).resolve().parents[1]
SECRET = "CRASH_TEST_SECRET"  # the name of an environment variable; each run makes a new secret
LARGEST = 5  # the largest value of an event
TICK = 1_000_000  # microseconds
PER_TICK = 10  # events of all keys in one tick

# Where a worker may be killed; for all but the first it stops there and waits for the blow.
PLACES = {
    "time": "at a random time",
    "half": "with half of a checkpoint written",
    "delivered": "after a release, before its checkpoint",
    "state": "after a state was written, before its release",
    "saved": "after a checkpoint, before the next event",
    "ended": "at the end of the input",
}
ORDER = ("half", "time", "delivered", "time", "state", "time", "saved", "time")
CUT_SHORT = -signal.SIGKILL


class HarnessError(RuntimeError):
    """The crash test itself could not go on; this says nothing about the counts."""


@dataclass(frozen=True)
class Job:
    """All that a worker needs to know.

    Args:
      directory: of the input, the checkpoint and the sink.
      transform: "elements" (PrefixCount) or "ticks" (TickCount).
      entropy: "replayable", "system", or "module:function", which gives an Entropy to each worker,
        whose noise is to be the replayable one's.
      keys, events: how many.
      checkpoint: events between checkpoints.
      pace: seconds to sleep after each event.
      rho: zCDP of the private count.
      mechanism: by name; None is the library's choice.
    """

    directory: str
    transform: str = "elements"
    entropy: str = "replayable"
    keys: int = 10
    events: int = 3000
    checkpoint: int = 50
    pace: float = 0.0005
    rho: float = 0.5
    mechanism: str | None = None

    timeout: ClassVar[float] = 300.0  # seconds, unless another is given

    @property
    def input(self) -> Path:
        return Path(self.directory, "events.csv")

    @property
    def saved(self) -> Path:
        return Path(self.directory, "checkpoint")

    @property
    def sink(self) -> Path:
        return Path(self.directory, "releases.log")

    @property
    def log(self) -> Path:
        return Path(self.directory, "worker.log")

    @property
    def every(self) -> str:
        """How often there is a checkpoint."""
        return f"{self.checkpoint} events"

    @property
    def ticks(self) -> int:
        return self.events // PER_TICK + 2

    @property
    def names(self) -> list[str]:
        return [f"key-{i}" for i in range(self.keys)]

    def counts(self) -> dict[str, Any]:
        """The transforms, by name, with the labels that their noise depends on."""
        entropy: Any
        if self.entropy == "replayable":
            entropy = dp.ReplayableEntropy(SECRET, run_id="crash test")
        elif self.entropy == "system":
            entropy = dp.SystemEntropy()
        else:
            module, _, name = self.entropy.partition(":")
            entropy = getattr(importlib.import_module(module), name)()
        common: dict[str, Any] = {
            "mechanism": self.mechanism,
            "bounds": (0, LARGEST),
            "value": itemgetter(0),
            "path": "streaming",
            "entropy": entropy,
        }
        budgets = {"private": dp.ZCDP(self.rho), "exact": dp.ZCDP(1e12)}  # the latter's noise is 0
        if self.transform == "ticks":
            clock: dict[str, Any] = {"horizon": self.ticks, "keys": self.names}
            return {
                name: f"Count {name}" >> dp.TickCount(budget, TICK / 1e6, 0, **clock, **common)
                for name, budget in budgets.items()
            }
        given = {"element_id": itemgetter(1), **common}
        return {
            name: f"Count {name}" >> dp.PrefixCount(budget, self.events, **given)
            for name, budget in budgets.items()
        }

    def dofns(self) -> dict[str, tuple[Any, Any]]:
        """Of each count, the DoFn that counts, set up, and the one before it, if there is one."""
        kind = CountEachTick if self.transform == "ticks" else CountEachElement
        made = {}
        for name, transform in self.counts().items():
            found = dofns_of(transform)
            found[kind].setup()
            made[name] = found[kind], found.get(ReadTicks)
        return made

    def supervised(self, kills: int, rng: random.Random, timeout: float, secret: str) -> Lives:
        """Run it to its end, with so many kills."""
        return Supervisor(self, kills, rng, timeout, secret).run()


# The input, and what must come out


def write_input(job: Job, rng: random.Random) -> None:
    """Events of several keys, one a line, times a little out of order.

    In whole milliseconds: between workers Beam cuts times to these, on some engines.
    """
    lines = []
    for row in range(job.events):
        # Less than one tick late.
        micros = row * TICK // PER_TICK + 1000 * rng.randrange(TICK // 1000)
        key, value = rng.choice(job.names), rng.randint(0, LARGEST)
        lines.append(f"{key},{value},{micros},{row}\n")
    _durable(job.input, "".join(lines).encode())


def event(line: bytes) -> tuple[Any, int]:
    """An element as the counts take them, and its time in microseconds."""
    key, value, micros, row = line.decode().split(",")
    return (key, (int(value), int(row))), int(micros)


def shown(name: str, release: Any) -> bytes:
    """What a sink gets of a release of the count `name`."""
    key, step, *rest = release
    return f"{name} {key} {step} {' '.join(map(repr, rest))} .\n".encode()


def totals(job: Job) -> dict[tuple[str, int], int]:
    """The exact value of every release that there must be, straight from the input."""
    found: dict[tuple[str, int], int] = {}
    rows = [line.split(",") for line in job.input.read_text().splitlines()]
    if job.transform == "elements":
        steps: Tally[str] = Tally()
        for key, value, _, _ in rows:
            before = found.get((key, steps[key]), 0)
            steps[key] += 1
            found[key, steps[key]] = before + int(value)
        return found
    for key, sums in _sums(job).items():
        for step, total in enumerate(accumulate(sums), start=1):
            found[key, step] = total
    return found


def _sums(job: Job) -> dict[str, list[int]]:
    """The sum of each tick, by key."""
    found = {key: [0] * job.ticks for key in job.names}
    for line in job.input.read_text().splitlines():
        key, value, micros, _ = line.split(",")
        found[key][int(micros) // TICK] += int(value)
    return found


def uninterrupted(job: Job, secret: str) -> list[Sighting]:
    """All releases of the private count as nothing has touched it; see `parsed`.

    Under system entropy only their places are those of another run.
    """
    if job.entropy != "system":
        job = replace(job, entropy="replayable")
    before = os.environ.get(SECRET)
    os.environ[SECRET] = secret
    try:
        counting, _ = job.dofns()["private"]
    finally:
        os.environ.pop(SECRET)
        if before is not None:
            os.environ[SECRET] = before
    releases: Iterable[Any]
    if job.transform == "ticks":
        releases = reference.of_ticks(counting, _sums(job))
    else:
        events = map(event, job.input.read_bytes().splitlines())
        releases = reference.of_elements(counting, events)
    return parsed((shown("private", release).decode().strip() for release in releases), "private")


# A checkpoint: plain bytes, as the DoFns' coders wrote them

_HEAD = struct.Struct("<4sQQQI")  # magic, number, events, byte offset, cells
_SLOT = struct.Struct("<HqI")  # length of a name, time of the timer or -1, length of a cell
_CHECK = struct.Struct("<I")
_MAGIC = b"DPC1"


@dataclass
class Snapshot:
    """What a worker resumes from: a place in the input, and the cell and timer of every slot.

    A slot is "count key".
    """

    number: int = 0
    events: int = 0
    offset: int = 0
    cells: dict[str, bytes] = field(default_factory=dict)
    timers: dict[str, int] = field(default_factory=dict)

    def pack(self) -> bytes:
        parts = [_HEAD.pack(_MAGIC, self.number, self.events, self.offset, len(self.cells))]
        for slot, cell in self.cells.items():
            name = slot.encode()
            parts += [_SLOT.pack(len(name), self.timers.get(slot, -1), len(cell)), name, cell]
        body = b"".join(parts)
        return body + _CHECK.pack(zlib.crc32(body))

    @classmethod
    def read(cls, path: Path) -> Snapshot | None:
        """The last one that was completed; None before the first."""
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        if _CHECK.pack(zlib.crc32(data[:-4])) != data[-4:] or data[:4] != _MAGIC:
            raise HarnessError(f"{path} is no whole checkpoint: the engine wrote it wrongly")
        _, number, events, offset, cells = _HEAD.unpack_from(data)
        made, at = cls(number, events, offset), _HEAD.size
        for _ in range(cells):
            size, timer, length = _SLOT.unpack_from(data, at)
            at += _SLOT.size
            slot = data[at : at + size].decode()
            made.cells[slot] = data[at + size : at + size + length]
            if timer >= 0:
                made.timers[slot] = timer
            at += size + length
        return made


def _durable(path: Path, data: bytes, halfway: Any = None) -> None:
    """The whole file or none of it, and on disk when this returns."""
    made = path.with_suffix(".part")
    with open(made, "wb") as file:
        file.write(data[: len(data) // 2])
        if halfway is not None:
            file.flush()
            halfway()
        file.write(data[len(data) // 2 :])
        file.flush()
        os.fsync(file.fileno())
    os.replace(made, path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


# The worker


def dofns_of(transform: Any) -> dict[type, Any]:
    """The DoFns of an applied transform, as a worker gets them: pickled and unpickled."""
    found: dict[type, Any] = {}

    class Collect(beam.pipeline.PipelineVisitor):
        def visit_transform(self, node: Any) -> None:
            if isinstance(node.transform, beam.ParDo):
                fn = node.transform.fn
                found[type(fn)] = pickler.loads(pickler.dumps(fn))

    pipeline = beam.Pipeline()
    created = beam.Create([("", (0, 0))]).with_output_types(tuple[str, tuple[int, int]])
    _ = pipeline | created | transform
    pipeline.visit(Collect())
    return found


class _Cell:
    """The one state cell of a slot."""

    def __init__(self, worker: Worker, slot: str) -> None:
        self._worker, self._slot = worker, slot

    def read(self) -> bytes | None:
        return self._worker.now.cells.get(self._slot)

    def write(self, data: bytes) -> None:
        self._worker.now.cells[self._slot] = data
        self._worker.reach("state")


class _Timer:
    """The one timer of a slot."""

    def __init__(self, worker: Worker, slot: str) -> None:
        self._worker, self._slot = worker, slot

    def set(self, moment: Any) -> None:
        self._worker.now.timers[self._slot] = moment.micros


class Worker:
    """One life of a worker: from the last checkpoint to the end of the input, or to its own.

    Args:
      job: the job.
      place, position: where to stop and wait for kill -9: at this place, once so many events of the
        input were read.
    """

    def __init__(self, job: Job, place: str, position: int) -> None:
        self._job, self._place, self._position = job, place, position
        self._counts = job.dofns()
        found = Snapshot.read(job.saved)
        self.now = Snapshot() if found is None else found
        # A watermark is in no checkpoint, and moves at other events in every life.
        self._latest, self._stride, self._unseen = -1, 1 + secrets.randbelow(5), 0
        self._sink = os.open(job.sink, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(self._sink, b"\n")  # should the last life's line have been cut short
        if found is None and job.transform == "ticks":
            for name in self._counts:
                for key in job.names:
                    self._process(name, (key, SEED), 0)

    def run(self) -> None:
        job, now = self._job, self.now
        _say("ready")
        with open(job.input, "rb") as file:
            file.seek(now.offset)
            for line in file:
                self._take(line)
                now.events += 1
                now.offset += len(line)
                if not now.events % job.checkpoint:
                    self._save()
                time.sleep(job.pace)
        self._fire(math.inf)
        self._save()
        _say("done")
        sys.stdin.read()  # until the supervisor closes it, or is gone

    def reach(self, place: str) -> None:
        """Stop here for good, if that was asked for."""
        if place == self._place and self.now.events >= self._position:
            _say(place)
            sys.stdin.read()
            os._exit(3)

    def _take(self, line: bytes) -> None:
        element, moment = event(line)
        for name, (_, reading) in self._counts.items():
            if reading is None:
                self._process(name, element, moment)
                continue
            for read in reading.process(element, _placed(element, moment)):
                self._process(name, read, moment)
        self._latest, self._unseen = max(self._latest, moment), self._unseen + 1
        if self._unseen >= self._stride:
            self._unseen = 0
            self._fire(self._latest - TICK + 1)

    def _process(self, name: str, element: Any, micros: int) -> None:
        counting, slot = self._counts[name][0], f"{name} {element[0]}"
        arguments = [_placed(element, micros), _Cell(self, slot)]
        if self._job.transform == "ticks":
            arguments.append(_Timer(self, slot))
        self._deliver(name, counting.process(element, *arguments))

    def _fire(self, watermark: float) -> None:
        """All timers that are due, in order."""
        timers = self.now.timers
        while timers:
            slot = min(timers, key=lambda slot: (timers[slot], slot))
            if timers[slot] > watermark:
                return
            del timers[slot]
            name, key = slot.split(" ")
            given = key, GlobalWindow(), _Cell(self, slot), _Timer(self, slot)
            self._deliver(name, self._counts[name][0].release(*given))

    def _deliver(self, name: str, releases: Iterable[Any] | None) -> None:
        """Visible at once: nothing waits for a checkpoint."""
        for release in releases or ():
            made = release.value if isinstance(release, windowed_value.WindowedValue) else release
            os.write(self._sink, shown(name, made))
            self.reach("delivered")

    def _save(self) -> None:
        self.now.number += 1
        _durable(self._job.saved, self.now.pack(), lambda: self.reach("half"))
        self.reach("saved")


def _placed(element: Any, micros: int) -> Any:
    return windowed_value.create(element, micros, (GlobalWindow(),))


def _say(word: str) -> None:
    print(word, flush=True)


# The supervisor


@dataclass
class Lives:
    """What was done to the workers."""

    kills: Tally[str] = field(default_factory=Tally)
    restarts: int = 0
    checkpoints: int = 0
    progressed: int = 0  # kills with a completed checkpoint since the one before
    engine: str = ""  # and its version, if it is not our own


class Supervisor:
    """Starts workers, and kills them.

    Args:
      job: the job; its input is written.
      kills: how many times.
      rng: when and where.
      timeout: seconds in all; beyond it HarnessError.
      secret: of the workers, in their environment.
    """

    def __init__(
        self, job: Job, kills: int, rng: random.Random, timeout: float, secret: str
    ) -> None:
        self._job, self._kills, self._rng = job, kills, rng
        self._deadline = time.monotonic() + timeout
        self._environment = {**os.environ, SECRET: secret}

    def run(self) -> Lives:
        lives = Lives()
        while True:
            done = sum(lives.kills.values())
            place = ORDER[done % len(ORDER)] if done < self._kills else ""
            before = Snapshot.read(self._job.saved) or Snapshot()
            share = (self._job.events - before.events) / (self._kills - done + 1)
            # The first one far enough in that releases are seen twice.
            ahead = share * (self._rng.uniform(0, 2) if done else self._rng.uniform(0.5, 1.5))
            with self._started(place, before.events + int(ahead)) as worker:
                self._expect(worker, "ready")
                if not place:
                    self._expect(worker, "done")
                    worker.stdin.close()
                    worker.wait(timeout=30)
                    lives.checkpoints = (Snapshot.read(self._job.saved) or before).number
                    return lives
                if place == "time":
                    # As long as so many events take, and a little for each checkpoint among them.
                    seconds = ahead * (self._job.pace + 0.0002)
                    at = self._said(worker, seconds) or "time"
                else:
                    at = self._said(worker, None)
                    if at not in (place, "done"):
                        raise self._failed(worker, f"said {at!r}")
                os.kill(worker.pid, signal.SIGKILL)
                if worker.wait() != CUT_SHORT:
                    raise self._failed(worker, "was not killed")
            lives.kills["ended" if at == "done" else at] += 1
            lives.restarts += 1
            after = Snapshot.read(self._job.saved) or Snapshot()
            lives.progressed += after.number > before.number

    def _started(self, place: str, position: int) -> _Process:
        words = [json.dumps(asdict(self._job)), place, str(position)]
        with open(self._job.log, "ab") as log:
            return _Process(
                [sys.executable, "-m", "benchmarks.crash", "--worker", *words],
                cwd=ROOT,
                env=self._environment,
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )

    def _expect(self, worker: Any, word: str) -> None:
        said = self._said(worker, None)
        if said != word:
            raise self._failed(worker, f"said {said!r} in place of {word!r}")

    def _said(self, worker: Any, seconds: float | None) -> str:
        """The next word of a worker; "" if it says none for so long."""
        until = self._deadline if seconds is None else time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(worker.stdout, selectors.EVENT_READ)
            while not selector.select(max(0.0, min(until, self._deadline) - time.monotonic())):
                if time.monotonic() >= self._deadline:
                    raise self._failed(worker, "did not come to an end in time")
                if time.monotonic() >= until:
                    return ""
        word = worker.stdout.readline().decode().strip()
        if not word:
            worker.wait(timeout=30)
            raise self._failed(worker, f"ended by itself, status {worker.returncode}")
        return word

    def _failed(self, worker: Any, how: str) -> HarnessError:
        last = self._job.log.read_text(errors="replace").splitlines()[-12:]
        return HarnessError("\n".join((f"worker {worker.pid} {how}; it wrote last:", *last)))


class _Process(subprocess.Popen):  # type: ignore[type-arg]
    """A child that does not outlive the block that it was started for."""

    def __exit__(self, *error: Any) -> None:
        if self.poll() is None:
            self.kill()
        super().__exit__(*error)


# What was seen


@dataclass
class Summary:
    """Of one run. `faults` says what broke the promise; without any it was kept.

    Attributes:
      private: the verdict on the private count.
      others: on the one with an enormous budget, whose values are held against the totals.
      exact: how many of these are the totals.
    """

    job: Job
    lives: Lives
    asked: int
    private: Verdict
    others: Verdict
    exact: int
    seconds: float = 0.0
    seed: int = 0

    @property
    def faults(self) -> list[str]:
        kills, expected = sum(self.lives.kills.values()), self.private.expected
        again = self.private.repeated
        found = [
            (kills < self.asked, f"{kills} kills of {self.asked}"),
            (self.asked and not again, "no release was seen twice, so nothing is shown"),
        ]
        # What is missing of the others is no exact total.
        others = [f"{text}, of the exact count" for text in replace(self.others, missing=0).faults]
        totals = [f"{expected - self.exact} totals not exact"] * (self.exact < expected)
        return [text for bad, text in found if bad] + self.private.faults + others + totals

    def __str__(self) -> str:
        job, lives, private = self.job, self.lives, self.private
        name = "TickCount" if job.transform == "ticks" else "PrefixCount"
        equal = f"{private.equal} of {private.expected} as in an uninterrupted run, to the last bit"
        unchecked = f"not compared: {private.unchecked}"
        rows = [
            ("count", f"{name}, {job.keys} keys, {job.events} events, zCDP rho {job.rho:g}"),
            ("entropy", job.entropy),
            ("kills", f"{sum(lives.kills.values())}, {lives.progressed} after a new checkpoint"),
            *(("", f"{n:3} {PLACES.get(at, at)}") for at, n in sorted(lives.kills.items())),
            ("restarts", lives.restarts),
            ("checkpoints", f"{lives.checkpoints}, one every {job.every}"),
            ("releases seen", f"{private.seen}, {private.repeated} of them again"),
            ("distinct", f"{private.distinct} of {private.expected} (key, step)"),
            ("missing", private.missing),
            ("conflicts", private.conflicts),
            ("equal", unchecked if private.unchecked else equal),
            ("exact totals", f"{self.exact} of {private.expected}, with an enormous budget"),
            *([("engine", lives.engine)] if lives.engine else []),
            ("time", f"{self.seconds:.1f} s, seed {self.seed}"),
            ("promise", f"BROKEN: {', '.join(self.faults)}" if self.faults else "kept"),
        ]
        return "\n".join(f"{name:14}{value}" for name, value in rows)


def parsed(lines: Iterable[str], count: str) -> list[Sighting]:
    """The releases of a count that a sink's lines show: (key, step), and all that follows."""
    found: list[Sighting] = []
    for line in lines:
        name, *words = line.split(" ")
        if name == count and words[-1] == ".":  # else cut short by a kill, and not seen
            key, step, *rest = words[:-1]
            found.append(((key, int(step)), tuple(rest)))
    return found


def examine(
    job: Job, lives: Lives, asked: int, lines: Sequence[str], whole: Iterable[Sighting]
) -> Summary:
    """What the sink has seen against what it must have seen.

    Args:
      whole: of the private count, uninterrupted.
    """
    must, others = totals(job), parsed(lines, "exact")
    wrong = {place for place, values in others if not _is(values[1], must.get(place))}
    return Summary(
        job,
        lives,
        asked,
        private=judge(parsed(lines, "private"), whole, comparable=job.entropy != "system"),
        others=judge(others, must.items(), comparable=False),
        exact=len((must.keys() & dict(others).keys()) - wrong),
    )


def _is(shown: str, total: int | None) -> bool:
    # Mechanisms with real entries have a lattice of their own, and stay some 10^-5 away.
    return total is not None and abs(float(shown) - total) < 0.01


def crash(job: Job, kills: int, seed: int | None = None, timeout: float | None = None) -> Summary:
    """One whole run in the job's directory, which must be empty.

    Raises:
      HarnessError: it did not come to an end.
    """
    seed, start = secrets.randbelow(10**6) if seed is None else seed, time.monotonic()
    rng, secret = random.Random(seed), secrets.token_hex(32)
    write_input(job, rng)
    lives = job.supervised(kills, rng, job.timeout if timeout is None else timeout, secret)
    lines = job.sink.read_text().splitlines()
    summary = examine(job, lives, kills, lines, uninterrupted(job, secret))
    return replace(summary, seconds=time.monotonic() - start, seed=seed)


def _from(least: float, kind: type) -> Any:
    """A type for argparse: a number of this kind that is no smaller."""

    def number(text: str) -> Any:
        if not kind(text) >= least:
            raise argparse.ArgumentTypeError(f"must be {least} or more, got {text}")
        return kind(text)

    number.__name__ = kind.__name__
    return number


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.crash",
        description="Kill the worker of a count, and look.",
        argument_default=argparse.SUPPRESS,  # each engine has its own
    )
    add = parser.add_argument
    add("--engine", choices=["own", "flink"], default="own", help="default: %(default)s")
    add("--kills", type=_from(0, int), default=20, help="how many times (default: %(default)s)")
    add("--transform", choices=["elements", "ticks"], help=f"default: {Job.transform}")
    add("--entropy", help=f"system, or module:function; default: {Job.entropy}")
    add("--keys", type=_from(1, int), help=f"default: {Job.keys}")
    add("--events", type=_from(1, int), help=f"default: {Job.events}")
    add("--checkpoint", type=_from(1, int), help=f"default: {Job.checkpoint} events; Flink 1000 ms")
    add("--rho", type=_from(1e-9, float), help=f"zCDP of the private count; default: {Job.rho}")
    add("--mechanism", help="by name; default: the library's choice")
    add("--pace", type=_from(0, float), help="seconds to sleep after each event (Flink: of a file)")
    add("--seed", type=int, default=None, help="of the input and of the kills; default: a new one")
    add("--timeout", type=float, default=None, help="seconds in all")
    return parser


def main(given: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if given is None else given)
    logging.getLogger().setLevel(logging.ERROR)  # Beam's warnings of optional packages
    if words[:1] == ["--worker"]:
        job, place, position = words[1:]
        Worker(Job(**json.loads(job)), place, int(position)).run()
        return 0
    options = vars(arguments().parse_args(words))
    kills, seed, timeout = (options.pop(name) for name in ("kills", "seed", "timeout"))
    kind = Job
    if options.pop("engine") == "flink":
        kind = importlib.import_module("benchmarks.flink_crash").FlinkJob
    with tempfile.TemporaryDirectory(prefix="crash-") as directory:
        try:
            summary = crash(kind(directory, **options), kills, seed, timeout)
        except HarnessError as error:
            print(f"no result: {error}", file=sys.stderr)
            return 2
    print(summary)
    return 1 if summary.faults else 0


if __name__ == "__main__":
    # SIGTERM as Ctrl-C: the blocks that have started processes end them.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # Under the name by which other engines import this module.
    sys.exit(importlib.import_module("benchmarks.crash").main())

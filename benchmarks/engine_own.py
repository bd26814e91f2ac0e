"""A small engine of our own, one process at a time, whose worker can be killed anywhere.

It does to the real stateful DoFns what a streaming engine does: it reads a durable input from where
the last checkpoint on disk left off, keeps state cells and timers, delivers every release at once,
so before the checkpoint that covers it, and checkpoints every so many events. A supervisor kills
the worker at random times and at chosen places, and starts it again, until the input has ended.
"""

from __future__ import annotations

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
import time
import zlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils import windowed_value

from beam_dpcount.dofns.states import KeptCoder
from beam_dpcount.dofns.ticks import SEED
from benchmarks.jobs import SECRET, TICK, HarnessError, Job, Lives, durable, event, shown

ROOT = Path(__file__).resolve().parents[1]

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


@dataclass(frozen=True)
class OwnJob(Job):
    """On the engine of our own: `checkpoint` is events, and `pace` between two of them."""

    @property
    def saved(self) -> Path:
        return Path(self.directory, "checkpoint")

    @property
    def log(self) -> Path:
        return Path(self.directory, "worker.log")

    def supervised(self, kills: int, rng: random.Random, timeout: float, secret: str) -> Lives:
        return Supervisor(self, kills, rng, timeout, secret).run()


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


# The worker


class _Cell:
    """The one state cell of a slot."""

    def __init__(self, worker: Worker, slot: str) -> None:
        self._worker, self._slot = worker, slot

    def read(self) -> bytes | None:
        return self._worker.now.cells.get(self._slot)

    def write(self, data: Any) -> None:
        self._worker.now.cells[self._slot] = KeptCoder().encode(data)
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

    def __init__(self, job: OwnJob, place: str, position: int) -> None:
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
            reading.start_bundle()
            sums = [*reading.process(element, _placed(element, moment)), *reading.finish_bundle()]
            for read in sums:
                self._process(name, read.value, moment)
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
        durable(self._job.saved, self.now.pack(), lambda: self.reach("half"))
        self.reach("saved")


def _placed(element: Any, micros: int) -> Any:
    return windowed_value.create(element, micros, (GlobalWindow(),))


def _say(word: str) -> None:
    print(word, flush=True)


def work() -> None:
    """One life; the command line has the job, the place and the position."""
    logging.getLogger().setLevel(logging.ERROR)  # Beam's warnings of optional packages
    job, place, position = sys.argv[1:]
    Worker(OwnJob(**json.loads(job)), place, int(position)).run()


# The supervisor


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
        self, job: OwnJob, kills: int, rng: random.Random, timeout: float, secret: str
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
                    worker.communicate(timeout=30)
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
                [sys.executable, "-c", f"from {__name__} import work; work()", *words],
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

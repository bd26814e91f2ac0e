"""A small engine of our own, one process at a time, whose worker can be killed anywhere.

It does to the real pipeline what a streaming engine does: it reads a durable input from where the
last checkpoint on disk left off, in bundles, keeps state cells and timers, delivers every release
at once, so before the checkpoint that covers it, and checkpoints after every so many events. A
supervisor kills the worker at random times and at chosen places, and starts it again, until the
input has ended.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import math
import os
import pickle
import random
import secrets
import selectors
import signal
import struct
import subprocess
import sys
import time
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.internal import pickler
from apache_beam.runners.common import DoFnRunner, DoFnSignature, Receiver
from apache_beam.transforms.userstate import BagStateSpec
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils import windowed_value
from apache_beam.utils.timestamp import MIN_TIMESTAMP, Timestamp

from tests.crash.jobs import SECRET, HarnessError, Job, Lives, durable, event, shown
from tests.crash.subjects import TICK

ROOT = Path(__file__).resolve().parents[2]

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


# A checkpoint

_CHECK = struct.Struct("<I")
Slot = tuple[Any, ...]  # of a cell or a timer: the stage, the state's name, the window, the key


@dataclass
class Snapshot:
    """What a worker resumes from: a place in the input, and all cells and timers.

    Fields:
      number: how many there were before, and this one.
      events, offset: how far the input was read.
      cells: what each holds, as the state's coder wrote it; of a bag, each entry.
      timers: when each is to fire, in microseconds; their slots end with the timer's tag.
    """

    number: int = 0
    events: int = 0
    offset: int = 0
    cells: dict[Slot, list[bytes]] = field(default_factory=dict)
    timers: dict[Slot, int] = field(default_factory=dict)

    def pack(self) -> bytes:
        body = pickle.dumps(self.__dict__)
        return body + _CHECK.pack(zlib.crc32(body))

    @classmethod
    def read(cls, path: Path) -> Snapshot | None:
        """The last one that was completed; None before the first."""
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        if _CHECK.pack(zlib.crc32(data[:-4])) != data[-4:]:
            raise HarnessError(f"{path} is no whole checkpoint: the engine wrote it wrongly")
        return cls(**pickle.loads(data[:-4]))


# The worker


class _Cell:
    """One cell of state, or one bag, as long as a bundle lasts."""

    def __init__(self, worker: Worker, slot: Slot, spec: Any) -> None:
        self._worker, self._slot, self._coder = worker, slot, spec.coder
        self._is_bag = isinstance(spec, BagStateSpec)
        found = worker.now.cells.get(slot, [])
        self._values = [self._coder.decode(entry) for entry in found]
        self._is_changed = False

    def read(self) -> Any:
        if self._is_bag:
            return list(self._values)
        return self._values[0] if self._values else None

    def write(self, value: Any) -> None:
        self._values, self._is_changed = [value], True
        self._worker.reach("state")

    def add(self, value: Any) -> None:
        self._values.append(value)
        self._is_changed = True

    def clear(self) -> None:
        self._values, self._is_changed = [], True

    def commit(self) -> None:
        """As a runner does at the end of a bundle: what is held becomes bytes."""
        if self._is_changed:
            made = [self._coder.encode(value) for value in self._values]
            self._worker.now.cells[self._slot] = made


class _Timer:
    """The timers of a slot, by tag."""

    def __init__(self, worker: Worker, slot: Slot) -> None:
        self._worker, self._slot = worker, slot

    def set(self, moment: Any, dynamic_timer_tag: str = "") -> None:
        self._worker.now.timers[(*self._slot, dynamic_timer_tag)] = moment.micros


class _States:
    """The state of one stage, as Beam's own invoker of DoFns asks for it."""

    def __init__(self, worker: Worker, label: str) -> None:
        self._worker, self._label, self._open = worker, label, dict[Slot, _Cell]()

    def get_state(self, spec: Any, key: Any, window: Any) -> _Cell:
        slot = self._label, spec.name, window, key
        if slot not in self._open:
            self._open[slot] = _Cell(self._worker, slot, spec)
        return self._open[slot]

    def get_timer(self, spec: Any, key: Any, window: Any, timestamp: Any, pane: Any) -> _Timer:
        return _Timer(self._worker, (self._label, spec.name, window, key))

    def commit(self) -> None:
        for cell in self._open.values():
            cell.commit()
        self._open.clear()


class _Stage:
    """One ParDo of the pipeline, run by Beam's own code for DoFns, and what it hands on to."""

    def __init__(self, worker: Worker, node: Any, consumers: Mapping[Any, list[Any]]) -> None:
        # As a worker gets it: pickled and unpickled.
        fn = pickler.loads(pickler.dumps(node.transform.fn))
        self.label, self._states = node.full_label, _States(worker, node.full_label)
        receivers = {tag: _Fork(consumers[out]) for tag, out in node.outputs.items()}
        main, signature = node.outputs[None], DoFnSignature(fn)
        states: Any = self._states if signature.is_stateful_dofn() else None
        self._runner = DoFnRunner(
            *(fn, node.transform.args, node.transform.kwargs, [], main.windowing, receivers),
            step_name=node.full_label,
            user_state_context=states,
        )
        self._timers = {spec.name: spec for spec in signature.timer_methods}
        self._runner.setup()

    def receive(self, value: Any) -> None:
        self._runner.process(value)

    def fire(self, slot: Slot, micros: int) -> None:
        """The timer of a slot."""
        _, name, window, key, tag = slot
        moment = Timestamp(micros=micros)
        self._runner.process_user_timer(self._timers[name], key, window, moment, None, tag)

    def start(self) -> None:
        self._runner.start()

    def finish(self) -> None:
        self._runner.finish()

    def commit(self) -> None:
        self._states.commit()


class _Fork(Receiver):
    """Hands each value on to all that take it."""

    def __init__(self, takers: list[Any]) -> None:
        self._takers = takers

    def receive(self, value: Any) -> None:
        for taker in self._takers:
            taker.receive(value)

    def flush(self) -> None:
        pass


class _Sink:
    """Shows releases at once: nothing waits for a checkpoint."""

    def __init__(self, worker: Worker, name: str) -> None:
        self._worker, self._name = worker, name

    def receive(self, value: Any) -> None:
        os.write(self._worker.sink, shown(self._name, value.value))
        self._worker.reach("delivered")


class Worker:
    """One life of a worker: from the last checkpoint to the end of the input, or to its own.

    It runs the pipelines of both counts as Beam has made them: ParDos, Flattens, and what is known
    at the start. Each watermark ends a bundle.

    Args:
      job: the job.
      place, position: where to stop and wait for kill -9: at this place, once so many events of the
        input were read.
    """

    def __init__(self, job: OwnJob, place: str, position: int) -> None:
        self._job, self._place, self._position = job, place, position
        self._counts = job.counts()
        found = Snapshot.read(job.saved)
        self.now = Snapshot() if found is None else found
        # A watermark is in no checkpoint, and moves at other events in every life.
        self._latest, self._stride, self._unseen = -1, 1 + secrets.randbelow(5), 0
        self.sink = os.open(job.sink, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(self.sink, b"\n")  # should the last life's line have been cut short
        self._build(is_new=found is None)

    def _build(self, is_new: bool) -> None:
        pipeline = beam.Pipeline(runner="BundleBasedDirectRunner")  # which does not run it
        created = beam.Create([("", 0)]).with_output_types(tuple[str, Any])
        events, sinks = pipeline | _EVENTS >> created, {}
        for name, transform in self._counts.items():
            sinks[self._job.subject.apply(events, name, transform)] = _Sink(self, name)
        found = _Primitives()
        pipeline.visit(found)
        # What takes each collection; those further down are made first.
        takers: dict[Any, list[Any]] = defaultdict(list)
        for collection, sink in sinks.items():
            takers[collection].append(sink)
        self._stages: list[_Stage] = []
        for node in reversed(found.nodes):
            if isinstance(node.transform, beam.ParDo):
                taker: Any = _Stage(self, node, takers)
                self._stages.insert(0, taker)
            else:
                taker = _Fork(takers[node.outputs[None]])
            for collection in node.main_inputs.values():
                takers[collection].append(taker)
        self._source = _Fork(takers[events])
        if is_new:
            with self._bundle():
                for node in found.nodes:
                    if isinstance(node.transform, beam.Impulse):
                        _Fork(takers[node.outputs[None]]).receive(_IMPULSE)

    def run(self) -> None:
        job, now = self._job, self.now
        _say("ready")
        with open(job.input, "rb") as file:
            file.seek(now.offset)
            while lines := [*itertools.islice(file, self._stride)]:
                with self._bundle():
                    for line in lines:
                        element, micros = event(line, job.transform)
                        self._source.receive(_placed(element, micros))
                        self._latest = max(self._latest, micros)
                        now.events += 1
                        now.offset += len(line)
                        time.sleep(job.pace)
                self._fire(self._latest - TICK + 1)
                if (now.events - len(lines)) // job.checkpoint < now.events // job.checkpoint:
                    self._save()
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

    @contextlib.contextmanager
    def _bundle(self) -> Iterator[None]:
        for stage in self._stages:
            stage.start()
        yield
        for stage in self._stages:
            stage.finish()
        for stage in self._stages:
            stage.commit()

    def _fire(self, watermark: float) -> None:
        """All timers that are due, in order."""
        timers = self.now.timers
        while timers:
            slot = min(timers, key=lambda slot: (timers[slot], repr(slot)))
            if timers[slot] > watermark:
                return
            micros = timers.pop(slot)
            stage = next(stage for stage in self._stages if stage.label == slot[0])
            with self._bundle():
                stage.fire(slot, micros)

    def _save(self) -> None:
        self.now.number += 1
        durable(self._job.saved, self.now.pack(), lambda: self.reach("half"))
        self.reach("saved")


_EVENTS = "Events"


class _Primitives(beam.pipeline.PipelineVisitor):
    """The primitives of a pipeline, each after those before it, but for the source of events."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []

    def visit_transform(self, node: Any) -> None:
        if node.full_label.split("/")[0] == _EVENTS:
            return
        if not isinstance(node.transform, beam.ParDo | beam.Flatten | beam.Impulse):
            raise HarnessError(f"{node.full_label} is nothing that this engine knows")
        self.nodes.append(node)


def _placed(element: Any, micros: int) -> Any:
    return windowed_value.create(element, micros, (GlobalWindow(),))


_IMPULSE = _placed(b"", MIN_TIMESTAMP.micros)


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

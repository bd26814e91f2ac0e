"""What the crash tests and the soaks of all engines share: jobs, inputs, and what must come out."""

from __future__ import annotations

import os
import pkgutil
import random
from collections import Counter as Tally
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import accumulate
from operator import itemgetter
from pathlib import Path
from typing import Any, ClassVar

import apache_beam as beam
from apache_beam.internal import pickler

import beam_dpcount as dp
from beam_dpcount.dofns.elements import CountEachElement
from beam_dpcount.dofns.ticks import CountEachTick, ReadTicks
from benchmarks import reference
from benchmarks.judge import Sighting

SECRET = "CRASH_TEST_SECRET"  # the name of an environment variable; each run makes a new secret
LARGEST = 5  # the largest value of an event
TICK = 1_000_000  # microseconds
PER_TICK = 10  # events of all keys in one tick
FLAT = 0.02  # growth of memory that counts as none

_PAGE = 4096


class HarnessError(RuntimeError):
    """The crash test itself could not go on; this says nothing about the counts."""


@dataclass
class Lives:
    """What was done to the workers."""

    kills: Tally[str] = field(default_factory=Tally)
    restarts: int = 0
    checkpoints: int = 0
    progressed: int = 0  # kills with a completed checkpoint since the one before
    engine: str = ""  # and its version, if it is not our own


@dataclass(frozen=True)
class Job:
    """All that a worker needs to know; each engine has its own kind.

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
    def sink(self) -> Path:
        return Path(self.directory, "releases.log")

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
            entropy = pkgutil.resolve_name(self.entropy)()
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
        """Run it to its end on an engine, with so many kills."""
        raise NotImplementedError


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
    durable(job.input, "".join(lines).encode())


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


def parsed(lines: Iterable[str], count: str) -> list[Sighting]:
    """The releases of a count that a sink's lines show: (key, step), and all that follows."""
    found: list[Sighting] = []
    for line in lines:
        name, *words = line.split(" ")
        if name == count and words[-1] == ".":  # else cut short by a kill, and not seen
            key, step, *rest = words[:-1]
            found.append(((key, int(step)), tuple(rest)))
    return found


def dofns_of(transform: Any) -> dict[type, Any]:
    """The DoFns of an applied transform, as a worker gets them: pickled and unpickled."""
    found: dict[type, Any] = {}

    class Collect(beam.pipeline.PipelineVisitor):
        def visit_transform(self, node: Any) -> None:
            if isinstance(node.transform, beam.ParDo):
                fn = node.transform.fn
                found[type(fn)] = pickler.loads(pickler.dumps(fn))

    # Not one that takes many timers at once: they run on engines of our own.
    pipeline = beam.Pipeline(runner="BundleBasedDirectRunner")
    created = beam.Create([("", (0, 0))]).with_output_types(tuple[str, tuple[int, int]])
    _ = pipeline | created | transform
    pipeline.visit(Collect())
    return found


def durable(path: Path, data: bytes, halfway: Any = None) -> None:
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


# Soaks


def resident(pid: int | str = "self") -> float:
    """The resident memory of a process, in MB."""
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * _PAGE / 1e6


def order(events: int, keys: int, skewed: bool) -> Iterator[int]:
    """The numbers of the events' keys."""
    # The first events are one for every key: what comes after needs no memory for new ones.
    chance = random.Random(1)
    for n in range(1, events + 1):
        if n <= keys:
            yield n - 1
        else:
            yield 0 if skewed and n % 2 else chance.randrange(keys)

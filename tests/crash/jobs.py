"""What the crash tests of all engines share: jobs, inputs, and what must come out."""

from __future__ import annotations

import contextlib
import os
import pkgutil
import random
from collections import Counter as Tally
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import beam_dpcount as dp
from beam_dpcount.noise.entropy import SystemEntropy
from benchmarks.jobs import dofns_of
from benchmarks.judge import Sighting
from tests.crash.subjects import SUBJECTS, Row, Size, Subject, rows_of

SECRET = "CRASH_TEST_SECRET"  # the name of an environment variable; each run makes a new secret
COUNTS = "private", "exact"  # the latter with an enormous budget, so without noise


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
      transform: one of SUBJECTS.
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
    ordered: ClassVar[bool] = True  # see Size

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
    def subject(self) -> Subject:
        return SUBJECTS[self.transform]

    @property
    def size(self) -> Size:
        return Size(self.keys, self.events, self.ordered)

    def rows(self) -> list[Row]:
        """The input."""
        return [Row.of(line) for line in self.input.read_bytes().splitlines()]

    def counts(self) -> dict[str, Any]:
        """The transforms, by name."""
        entropy: Any
        if self.entropy == "replayable":
            entropy = dp.ReplayableEntropy(SECRET, run_id="crash test")
        elif self.entropy == "system":
            entropy = SystemEntropy()
        else:
            entropy = pkgutil.resolve_name(self.entropy)()
        budgets = zip(COUNTS, (dp.ZCDP(self.rho), dp.ZCDP(1e12)), strict=True)
        options = {"mechanism": self.mechanism, "entropy": entropy}
        return {
            name: self.subject.transform(self.size, budget, **options) for name, budget in budgets
        }

    def supervised(self, kills: int, rng: random.Random, timeout: float, secret: str) -> Lives:
        """Run it to its end on an engine, with so many kills."""
        raise NotImplementedError


def write_input(job: Job, rng: random.Random) -> None:
    """Events of several keys, one a line."""
    lines = [row.line for row in rows_of(job.subject, job.size, rng)]
    durable(job.input, "".join(lines).encode())


def event(line: bytes, transform: str = "elements") -> tuple[Any, int]:
    """An element as the count takes them, and its time in microseconds."""
    row = Row.of(line)
    return SUBJECTS[transform].element(row), row.micros


def shown(name: str, release: Any) -> bytes:
    """What a sink gets of a release of the count `name`."""
    key, *rest = release[:5]  # without its column and restart
    words = [repr(one if isinstance(one, int | float) else [*map(float, one)]) for one in rest]
    return " ".join([name, key, *(word.replace(" ", "") for word in words), ".\n"]).encode()


def uninterrupted(job: Job, secret: str) -> dict[str, list[Sighting]]:
    """All releases of both counts as nothing has touched them; see `parsed`.

    Under system entropy only their places are those of another run.
    """
    if job.entropy != "system":
        job = replace(job, entropy="replayable")
    rows, found = job.rows(), {}
    for name, transform in job.counts().items():
        dofns = dofns_of(transform, lambda events, t, name=name: job.subject.apply(events, name, t))
        with _environment(secret):
            for dofn in dofns.values():
                dofn.setup()
        releases = job.subject.releases(job.size, dofns, rows)
        lines = (shown(name, release).decode().strip() for release in releases)
        found[name] = parsed(job, lines, name)
    return found


@contextlib.contextmanager
def _environment(secret: str) -> Iterator[None]:
    before = os.environ.get(SECRET)
    os.environ[SECRET] = secret
    try:
        yield
    finally:
        os.environ.pop(SECRET)
        if before is not None:
            os.environ[SECRET] = before


def parsed(job: Job, lines: Iterable[str], count: str) -> list[Sighting]:
    """The releases of a count that a sink's lines show: their places, and all that was shown."""
    found: list[Sighting] = []
    for line in lines:
        name, *words = line.split(" ")
        if name == count and words[-1] == ".":  # else cut short by a kill, and not seen
            key, step, micros, *rest = words[:-1]
            place = job.subject.place((key, int(step), int(micros)))
            found.append((place, (step, micros, *rest)))
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

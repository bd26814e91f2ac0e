"""One stream on a Flink cluster, and its lives: stopped or killed, and resumed.

Four counts of the same events run side by side. Each release is shown at once, before any
checkpoint that covers it; all of all lives must be those of a run without interruption under the
same secret, to the last bit.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from operator import itemgetter
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

import beam_dpcount as dp
from beam_dpcount.transforms.ticks import TickNumbers
from benchmarks.judge import Sighting
from engines.servers import wait
from tests.crash.flink import Read, Show
from tests.crash.jobs import event
from tests.engines.conftest import SECRET, VARIABLE
from tests.engines.flink.cluster import Cluster, Workers
from tests.engines.flink.runner import Lines, OnFlink, Running
from tests.runners import feed, run

KEYS = "abcdefgh"
EVENTS = 400
# A millisecond apart, in the order of their times.
LINES = tuple(f"{KEYS[i % 8]},{(i // 8 + i) % 4},{i * 1000},{i}" for i in range(EVENTS))
FILES = 2  # and each key is in one of them
PACE = 0.04  # seconds between the lines of a file
# A life that is to be stopped or killed must not end before that, however slow the machine is:
# after so many lines, each takes a second more.
FAST = 100
TICK, TICKS = 0.02, 22  # 20 lines a tick; the last two ticks have none
PATIENCE = 150.0  # seconds; a machine may have other things to do

Counts = Mapping[str, Callable[[], Any]]


def options() -> dict[str, Any]:
    entropy = dp.ReplayableEntropy(VARIABLE, run_id="lives")
    return {"value": itemgetter(0), "bounds": (0, 3), "path": "streaming", "entropy": entropy}


def counted() -> Any:
    """A release after every line."""
    more: dict[str, Any] = {"element_id": itemgetter(1), "mechanism": "BLT", **options()}
    return "Count elements" >> dp.PrefixCount(dp.ZCDP(0.5), EVENTS, **more)


def ticked(keys: str = KEYS) -> Any:
    """A release of each key at every tick."""
    clock: dict[str, Any] = {"horizon": TICKS, "keys": [*keys], **options()}
    return "Count ticks" >> TickNumbers(dp.ZCDP(0.5), TICK, 0, **clock)


def selected() -> Any:
    """The same, of keys that nobody listed, from when their counts have reached a threshold."""
    keys, budget = dp.SelectKeys(shards=6), dp.ApproxDP(4.0, 1e-3)
    return "Count selected" >> TickNumbers(budget, TICK, 0, horizon=TICKS, keys=keys, **options())


def of_people() -> Any:
    """A release of each key at every tick, of which people have a few events in a few keys."""
    # All events of a person are in one file, and in more keys than count.
    users = dp.Users(lambda pair: str(pair[1] % 14), events=9, keys=2, per_key=5)
    clock: dict[str, Any] = {"horizon": TICKS, "keys": [*KEYS], "users": users, **options()}
    return "Count people" >> TickNumbers(dp.ZCDP(0.5), TICK, 0, **clock)


COUNTS: Counts = {
    "elements": counted,
    "ticks": ticked,
    "selected": selected,
    "people": of_people,
}


@cache
def uninterrupted(lines: tuple[str, ...] = LINES) -> dict[str, list[Sighting]]:
    """What each of COUNTS releases of these lines, by the local runner."""
    rows = [(key, pair, micros) for (key, pair), micros in map(event, map(str.encode, lines))]

    def build(pipeline: beam.Pipeline) -> Any:
        events = pipeline | feed(rows, tuple[str, tuple[int, int]])
        return tuple(events | count() for count in COUNTS.values())

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, SECRET)
        outputs = run(build).outputs
    return {
        name: [
            ((seen.value.key, seen.value.step), tuple(map(repr, seen.value[2:5])))
            for seen in output
        ]
        for name, output in zip(COUNTS, outputs, strict=True)
    }


class Lives:
    """One stream, and its lives.

    Args:
      cluster: where it runs; may be changed between lives.
      work: where its lines and what is seen of it go; made if need be.
      counts: what is counted of them.
      files: how many hold its lines. A subtask reads several one after the other, and then all of
        the second are late: as many subtasks at least must read.
    """

    def __init__(
        self, cluster: Cluster, work: Path, counts: Counts = COUNTS, files: int = FILES
    ) -> None:
        self.cluster, self.counts = cluster, counts
        self._work, self._sink, self._files = work, work / "releases.log", work / "files"
        if not self._files.exists():
            self._files.mkdir(parents=True)
            for number in range(files):
                kept = [line for line in LINES if KEYS.index(line[0]) % files == number]
                (self._files / f"{number}.csv").write_text("".join(f"{x}\n" for x in kept))

    def apart(self, work: Path) -> Lives:
        """Another that has seen the same up to now."""
        shutil.copytree(self._work, work)
        return Lives(self.cluster, work, self.counts)

    def start(
        self,
        workers: Workers,
        savepoint: str = "",
        parallelism: int = FILES,
        *more: str,
        fast: int = FAST,
    ) -> Running:
        """Submit it; after `fast` lines it reads slowly, so that what is to end it comes first."""
        flags = [
            f"--flink_master=localhost:{self.cluster.rest}",
            *(*workers.flags, "--streaming", f"--parallelism={parallelism}", *more),
        ]
        if savepoint:
            flags.append(f"--savepoint_path={savepoint}")
        pipeline = beam.Pipeline(runner=OnFlink(), options=PipelineOptions(flags))
        read = beam.ParDo(Read()).with_output_types(tuple[str, tuple[int, int]])
        # The lines of another life, but for what its source has already read.
        pace, slow_from = round(PACE * 1e6), len(self.seen("elements")) + fast
        lines = pipeline | Lines(self._files, late=0, pace=pace, slow_from=slow_from)
        events = lines | "Read" >> read
        for name, count in self.counts.items():
            _ = events | count() | f"Show {name}" >> beam.ParDo(Show(name, self._sink))
        running: Any = pipeline.run()
        return running

    def finish(self, workers: Workers, savepoint: str = "", parallelism: int = FILES) -> None:
        """Its last life, to the end.

        Raises:
          RuntimeError: it failed.
        """
        self.wait_for(self.start(workers, savepoint, parallelism, fast=EVENTS))

    def wait_for(self, running: Running) -> None:
        """Wait for the end of a life.

        Raises:
          RuntimeError: it failed.
        """
        running.wait_until_finish(int(PATIENCE * 1000))

    def seen(self, name: str) -> list[Sighting]:
        """The releases of a count so far."""
        text = self._sink.read_text() if self._sink.exists() else ""
        found = (line.split(" ") for line in text.splitlines() if line.endswith(" ."))
        return [
            ((key, int(step)), tuple(rest[:-1])) for of, key, step, *rest in found if of == name
        ]

    def until(self, ready: Callable[[], bool], what: str) -> None:
        """Wait, as long as the cluster lives."""
        wait(ready, (self.cluster.job_manager, self.cluster.task_managers[-1]), what, PATIENCE)

    def more(self, releases: int = 1, name: str = "elements") -> None:
        """Wait until so many more releases of a count have been seen."""
        most = len(self.seen(name)) + releases
        self.until(lambda: len(self.seen(name)) >= most, f"{most} releases of {name}")

    def done(self, running: Running, action: str, body: Mapping[str, Any], at: str) -> Any:
        """Ask Flink for a savepoint or checkpoint of the job, and wait: what it says then."""
        job = f"/jobs/{running.job_id()}"

        def runs() -> bool:
            tasks = [each["tasks"] for each in self.cluster.get(job)["vertices"]]
            now = {state for counts in tasks for state, count in counts.items() if count}
            return now <= {"RUNNING", "FINISHED"}

        # Before every one of its tasks runs, Flink declines; releases come when the first few do.
        self.until(runs, "all tasks")
        asked = self.cluster.ask(f"{job}/{action}", dict(body))
        place, found = f"{job}/{at}/{asked['request-id']}", dict[str, Any]()

        def completed() -> bool:
            found.update(self.cluster.get(place))
            return bool(found["status"]["id"] == "COMPLETED")

        self.until(completed, at)
        said = found["operation"]
        assert "failure-cause" not in said, said
        return said

    def cancel(self, running: Running) -> None:
        """End it as it is, and wait until Flink has."""
        job = f"/jobs/{running.job_id()}"
        self.cluster.ask(job, {}, "PATCH")
        self.until(lambda: self.cluster.get(job)["state"] == "CANCELED", "the end of the job")
        running.cancel()

    def stop(self, running: Running, drain: bool = False) -> str:
        """Stop it with a savepoint: where that is."""
        body = {"targetDirectory": self.cluster.savepoints, "drain": drain}
        said = self.done(running, "stop", body, "savepoints")
        self.wait_for(running)
        return str(said["location"])


def lines_read(elements: list[Sighting]) -> Iterator[str]:
    """The lines whose releases, one for each, were seen."""
    steps = dict.fromkeys(KEYS, 0)
    for (key, step), _ in elements:
        steps[key] = max(step, steps[key])
    for line in LINES:
        if steps[line[0]]:
            steps[line[0]] -= 1
            yield line

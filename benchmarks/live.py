"""The live example, killed in the middle: `python -m benchmarks.live --seconds 600`.

Runs `python -m examples.live`, watches its page, kills all of its processes by `kill -9` halfway,
and gives the same command again. In the end the log is counted once more, without interruption,
under the same secret and run id. Status 1 unless

- every release that an engine gave in any life is the uninterrupted run's, to the last bit, and no
  life has a gap;
- the record has every tick once, in order, each with the releases that engines gave;
- the page showed what is in the record, before the kill and after it, whole ticks in order, and no
  tick before its time;
- between the two lives nothing was left running.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.judge import Sighting, judge
from engines import prism
from engines.cache import UnavailableError
from engines.servers import free_port
from examples.live.publish import DELAY
from examples.live.settings import Home, Settings, whole_lines

ROOT = Path(__file__).resolve().parents[1]
_GRACE = 120  # seconds for the end of what should have ended
Row = dict[str, Any]


class Watcher(threading.Thread):
    """A browser of the page, without a picture: all ticks that it was sent, and when."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self._address = address
        self.came: list[tuple[float, Row]] = []

    def run(self) -> None:
        end = time.monotonic() + _GRACE
        while time.monotonic() < end:
            try:
                with urllib.request.urlopen(self._address + "/events", timeout=_GRACE) as answer:
                    for line in answer:
                        if line.startswith(b'data: {"'):
                            self.came.append((time.time(), json.loads(line[6:])))
                return
            except OSError:
                if self.came:
                    return  # killed
                time.sleep(0.2)  # not there yet


def start(home: Home, options: argparse.Namespace, port: int) -> subprocess.Popen[bytes]:
    """The command, in a session of its own."""
    words = ["--output", str(home.path), "--exit", f"--port={port}", f"--tick={options.tick}"]
    words += [f"--rate={options.rate}", f"--seconds={options.seconds}"]
    command = [sys.executable, "-m", "examples.live", *words]
    return subprocess.Popen(command, cwd=ROOT, start_new_session=True)


def alive(session: int) -> list[int]:
    """The processes of a session that still run."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, of = path.read_text().rpartition(")")[2].split()[:4]
        except (OSError, ValueError):
            continue
        if int(of) == session and state != "Z":
            found.append(int(path.parent.name))
    return found


def kill(process: subprocess.Popen[bytes]) -> int:
    """`kill -9` of all processes of its session; how many there were."""
    killed = alive(process.pid)
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    process.wait()
    end = time.monotonic() + 10
    while (left := alive(process.pid)) and time.monotonic() < end:
        time.sleep(0.05)
    if left:
        raise RuntimeError(f"{len(left)} processes outlive kill -9")
    return len(killed)


def faults_of_lives(seen: Sequence[Row], whole: Sequence[Row], settings: Settings) -> Iterator[str]:
    """What is wrong with what engines gave."""
    verdict = judge(map(_sighting, seen), map(_sighting, whole))
    yield from verdict.faults
    steps: dict[tuple[str, str], list[int]] = defaultdict(list)
    for line in seen:
        steps[line["life"], line["key"]].append(line["step"])
    for (_, key), found in steps.items():
        if found != list(range(1, len(found) + 1)):
            yield f"a life has a gap, or another order, in {key}"
    if verdict.expected != settings.horizon * len(settings.services):
        yield f"the uninterrupted run has {verdict.expected} releases"
    if len({line["life"] for line in seen}) != 2 or not verdict.repeated:
        yield "there were not two lives, of which the second gave releases of the first again"


def faults_of_record(
    record: Sequence[Row], whole: Sequence[Row], settings: Settings
) -> Iterator[str]:
    """What is wrong with what was published."""
    if [tick["step"] for tick in record] != list(range(1, settings.horizon + 1)):
        yield "the record has not every tick once, in order"
    given = {(line["step"], line["key"]): line for line in whole}
    for tick in record:
        if tick["keys"] != list(settings.services):
            yield f"tick {tick['step']} has other keys, or in another order"
        for place, key in enumerate(tick["keys"]):
            line = given[tick["step"], key]
            columns = ("values", "stddevs", "lows", "highs", "notes")
            if any(repr(tick[name][place]) != repr(line[name]) for name in columns):
                yield f"tick {tick['step']} is not what the engine gave for {key}"


def faults_of_page(came: Sequence[tuple[float, Row]], record: Sequence[Row]) -> Iterator[str]:
    """What is wrong with what one browser was shown."""
    if [tick for _, tick in came] != list(record[: len(came)]):
        yield "the page did not show the record, from its start, in order"
    if any(at < tick["end"] / 1e6 + DELAY for at, tick in came):
        yield "the page showed a tick before its time"


def _sighting(line: Row) -> Sighting:
    rest = [value for name, value in line.items() if name not in ("life", "key", "step")]
    return (line["key"], line["step"]), tuple(rest)


def waits(came: Iterable[tuple[float, Row]], since: float) -> list[float]:
    """How long after their ends ticks came that ended after `since`, in seconds."""
    return [at - tick["end"] / 1e6 for at, tick in came if tick["end"] / 1e6 > since]


def run(options: argparse.Namespace, home: Home) -> int:
    """All of it; the exit status."""
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    first, before = start(home, options, port), Watcher(address)
    before.start()
    time.sleep(options.seconds / 2)
    killed = kill(first)
    print(f"killed {killed} processes by kill -9 after {len(before.came)} ticks")
    begun = time.time()
    second, after = start(home, options, port), Watcher(address)
    after.start()
    status = second.wait(options.seconds + _GRACE)
    after.join(_GRACE)
    settings = home.load()
    again = home.private / "uninterrupted.jsonl"
    again.unlink(missing_ok=True)
    command = [sys.executable, "-m", "examples.live.count", str(home.path), f"--seen={again}"]
    with home.messages("uninterrupted").open("ab") as out:
        subprocess.run(
            command, cwd=ROOT, check=True, stdout=out, stderr=out, timeout=options.seconds + _GRACE
        )
    (seen, _), (whole, _), (record, _) = (
        whole_lines(path) for path in (home.seen, again, home.record)
    )

    faults = [*faults_of_lives(seen, whole, settings), *faults_of_record(record, whole, settings)]
    faults += [*faults_of_page(before.came, record), *faults_of_page(after.came, record)]
    faults += [f"the second life ended with status {status}"] * bool(status)
    faults += ["the page showed nothing before the kill"] * (not before.came)
    faults += ["the page did not show all in the end"] * (len(after.came) != settings.horizon)
    faults += ["only one process was killed"] * (killed < 2)
    times = sorted(waits(before.came, settings.start) + waits(after.came, begun))
    print(
        f"{len(record)} ticks of {len(settings.services)} services published; {len(seen)} releases "
        f"seen in two lives, {len(whole)} in the uninterrupted run"
    )
    if times:
        print(
            f"ticks that ended while a life ran came {times[0]:.2f} to {times[-1]:.2f} s after "
            f"their end, half of them within {median(times):.2f}; after a restart it catches up"
        )
    print("\n".join(faults) or "no gap, and no changed value")
    return int(bool(faults))


def main(argv: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description="Kill the live example in the middle.")
    parser.add_argument("--seconds", type=int, default=600, help="of the whole run (default 600)")
    parser.add_argument("--tick", type=int, default=2, help="seconds (default 2)")
    parser.add_argument("--rate", type=float, default=60, help="requests a second (default 60)")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the run's files here")
    options = parser.parse_args(argv)
    try:
        prism.build()
    except UnavailableError as missing:
        print(f"Prism is needed: {missing}", file=sys.stderr)
        return 3
    with tempfile.TemporaryDirectory() as scratch:
        return run(options, Home(options.keep or Path(scratch, "live")))


if __name__ == "__main__":
    sys.exit(main())

"""Writes a made log of web requests, and its clock: `python -m examples.live.writer LOG`.

It stands for whatever writes your log. All of it is invented: most people have a request or two,
and few have many.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import time
from collections.abc import Sequence
from pathlib import Path

from examples.live.lines import clock_line, clock_of, request_line
from examples.live.settings import ENDS, SERVICES, end_with_input

STEP = 500  # milliseconds between two clock lines
_PEOPLE = 20_000
# How often each service is asked for, its typical seconds, and how often it fails.
_MADE = dict(
    zip(
        SERVICES,
        [(0.50, 0.12, 0.01), (0.30, 0.06, 0.005), (0.15, 0.20, 0.03), (0.05, 0.45, 0.08)],
        strict=True,
    )
)


def lines_of(chance: random.Random, start: int, end: int, rate: float) -> bytes:
    """Requests from `start` to `end`, in milliseconds, at so many a second, and the clock line."""
    wave = 1 + 0.5 * math.sin(start / 60_000 * 2 * math.pi)  # busier and quieter by the minute
    lines, at = [], float(start)
    while (at := at + chance.expovariate(rate * wave) * 1000) < end:
        service = chance.choices([*_MADE], [share for share, _, _ in _MADE.values()])[0]
        _, typical, fails = _MADE[service]
        person = f"p{int(_PEOPLE * chance.random() ** 3)}"
        latency = round(typical * chance.lognormvariate(0, 0.5), 4)
        failed = int(chance.random() < fails)
        lines.append(request_line(int(at), person, service, latency=latency, failed=failed))
    return b"".join([*lines, clock_line(end)])


def last_clock(log: Path) -> int | None:
    """What the last clock line of a log says that was written before, and was perhaps cut short."""
    if not log.exists():
        return None
    found = [time for line in log.read_bytes().splitlines() if (time := clock_of(line)) is not None]
    return max(found, default=None)


def write(log: Path, stop: int, rate: float) -> None:
    """Append to the log until its clock reaches `stop`, in milliseconds since 1970.

    Args:
      log: created, or appended to.
      stop: at which the clock stops.
      rate: requests a second.
    """
    chance = random.Random()
    clock = last_clock(log)
    cut_short = log.exists() and not log.read_bytes().endswith(b"\n") and log.stat().st_size
    out = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        if cut_short:
            os.write(out, b"\n")
        # What was asked for while nobody wrote the log was not written down.
        clock = max(int(time.time() * 1000), clock or 0)
        os.write(out, clock_line(clock))
        while clock < stop:
            time.sleep(max(0.0, (clock + STEP) / 1000 - time.time()))
            end = clock + STEP
            os.write(out, lines_of(chance, clock, end, rate))
            clock = end
    finally:
        os.close(out)


def main(argv: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="Write a made log of web requests.")
    parser.add_argument("log", type=Path, help="the file; appended to if it exists")
    parser.add_argument("--stop", type=int, required=True, help="milliseconds since 1970")
    parser.add_argument("--rate", type=float, default=60, help="requests a second (default 60)")
    parser.add_argument("--end-with-input", action="store_true", help=ENDS)
    options = parser.parse_args(argv)
    if options.end_with_input:
        end_with_input()
    write(options.log, options.stop, options.rate)


if __name__ == "__main__":
    main()

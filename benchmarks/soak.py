"""`make soak`: millions of events over thousands of keys; memory, state bytes and speed over time.

The streaming DoFn of `PrefixCount` itself, on one core and without an engine: its states are kept
in a dict, as bytes, and read and written once an event, as an engine does. So what grows here would
grow on every engine; what Flink adds, `python -m tests.engines.flink.soak` measures. Status 1 if
memory grew in the second half. (In the first, caches of public numbers fill, of up to 8 MB.)
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import Any

from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils import windowed_value

import beam_dpcount as dp
from beam_dpcount.dofns.elements import CountEachElement
from beam_dpcount.dofns.kept import KeptCoder
from beam_dpcount.dofns.windows import WindowCheck
from benchmarks.jobs import FLAT, order, resident


class Cell:
    """The state cell of one key at a time."""

    def __init__(self) -> None:
        self.states: dict[str, bytes] = {}
        self.key = ""

    def read(self) -> bytes | None:
        return self.states.get(self.key)

    def write(self, data: Any) -> None:
        self.states[self.key] = KeptCoder().encode(data)


def soak(events: int, keys: int, skewed: bool, count: dp.PrefixCount) -> tuple[list[Any], Cell]:
    """(events, seconds, MB, bytes of state a key) at ten times, and the states at the end."""
    dofn = CountEachElement(count._intake(), count._entropy, WindowCheck(None))
    dofn.setup()
    windows, cell = (GlobalWindow(),), Cell()
    names = [f"key{i}" for i in range(keys)]
    report, begun = [], time.perf_counter()
    for n, key in enumerate(order(events, keys, skewed), 1):
        cell.key = names[key]
        element = (cell.key, n & 1)
        placed = windowed_value.create(element, n, windows)
        for _ in dofn.process(element, placed, cell):
            pass
        if n % max(1, events // 10) == 0:
            used = sum(map(len, cell.states.values())) / len(cell.states)
            report.append((n, time.perf_counter() - begun, resident(), used))
    return report, cell


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--events", type=int, default=5_000_000)
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--skewed", action="store_true", help="one key has half of the events")
    parser.add_argument("--mechanism", default=None)
    options = parser.parse_args(argv)
    horizon = options.events
    count = dp.PrefixCount(
        dp.ApproxDP(1.0, 1e-6), horizon, mechanism=options.mechanism, path="streaming"
    )
    name = count.counter.mechanism.name  # type: ignore[attr-defined]
    print(f"{name}, horizon {horizon:,}, {options.keys:,} keys" + ", one skewed" * options.skewed)
    report, cell = soak(options.events, options.keys, options.skewed, count)
    print(f"{'events':>12}{'seconds':>9}{'us/event':>10}{'RSS, MB':>9}{'state, bytes a key':>20}")
    before = (0, 0.0)
    for n, seconds, memory, used in report:
        each = (seconds - before[1]) / (n - before[0]) * 1e6
        print(f"{n:>12,}{seconds:>9.0f}{each:>10.1f}{memory:>9.1f}{used:>20.0f}")
        before = n, seconds
    first, last = report[4][2], report[-1][2]
    largest = max(map(len, cell.states.values()))
    print(
        f"memory from {report[4][0]:,} events on: {last - first:+.1f} MB "
        f"({last / first - 1:+.1%}); largest state {largest} bytes"
    )
    return int(last > first * (1 + FLAT))


if __name__ == "__main__":
    sys.exit(main())

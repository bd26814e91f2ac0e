"""What `make bench` measures in a process of its own: peak memory, and what is only slow once.

Prints numbers, for `timing.alone`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import beam_dpcount as dp
from benchmarks import plain
from benchmarks.timing import cpu, peak


def memory(way: str, elements: int) -> list[float]:
    """The largest resident memory, in MB, of so many elements of one key, grouped."""
    plain.quiet()
    count: Any = plain.PlainBounded()
    if way == "private":
        count = dp.PrefixCount(dp.ApproxDP(1.0, 1e-6), elements, path="bounded")
    plain.seconds(elements, 1, count)
    return [peak()]


def first(horizon: int) -> list[float]:
    """Seconds: to make a PrefixCount, to make another, to draw from its law, to draw again."""
    budget, found, drawn = dp.ApproxDP(1.0, 1e-6), [], []
    for _ in range(2):
        before = cpu()
        count = dp.PrefixCount(budget, horizon)
        found.append(cpu() - before)
    for _ in range(2):
        before = cpu()
        count.counter.law.sample(1)
        drawn.append(cpu() - before)
    return found + drawn


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command: `plain` or `private` and a number of elements, or `first` and a horizon."""
    way, size = sys.argv[1:] if argv is None else argv
    print(*(first(int(size)) if way == "first" else memory(way, int(size))))
    return 0


if __name__ == "__main__":
    sys.exit(main())

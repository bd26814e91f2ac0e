"""beam-dpcount count on an engine: a log, the command, what it released."""

from __future__ import annotations

import csv
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]


def write(file: Path, n: int = 300) -> dict[tuple[str, int], int]:
    """A log in order of time, and its exact counts by (key, step)."""
    chance = random.Random(7)
    counts: dict[tuple[str, int], int] = {}
    steps: Counter[str] = Counter()
    totals: Counter[str] = Counter()
    lines = ["page,action,time\n"]
    for i in range(n):
        page, action = chance.choice(["/", "/cart", "/pay"]), chance.choice(["view", "purchase"])
        lines.append(f"{page},{action},{i}\n")
        steps[page] += 1
        totals[page] += action == "purchase"
        counts[page, steps[page]] = totals[page]
    file.write_text("".join(lines))
    return counts


def arguments(log: Path, out: Path, path: str, *more: str) -> list[str]:
    words = "--key page --where action=purchase --timestamp time --horizon 200"
    return [
        *("--input", str(log), *words.split(), "--path", path, "--output", str(out)),
        *more,
    ]


def run_count(*words: str) -> None:
    """The command, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "beam_dpcount", "count", *words],
        cwd=ROOT,
        env=os.environ | {"BEAM_DPCOUNT_TRACEBACK": "1"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def released(out: Path) -> dict[tuple[str, int], float]:
    with out.open(newline="") as file:
        rows = [(row["key"], int(row["step"]), float(row["value"])) for row in csv.DictReader(file)]
    found = {(key, step): value for key, step, value in rows}
    assert len(found) == len(rows)
    return found

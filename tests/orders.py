"""What comes out of pipelines at a clock, in the order in which it comes.

    PYTHONHASHSEED=1 python -m tests.orders fn grpc

runs neighbouring inputs on these runners, and prints all releases, as they came, as JSON: by
runner, input and transform. Words that begin with "--" are options of Prism, a runner of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.prism_runner import PrismRunner
from apache_beam.transforms.window import FixedWindows

import beam_dpcount as dp
from beam_dpcount.transforms.ticks import TickNumbers
from tests.runners import RUNNERS, feed
from tests.scripted import ScriptedEntropy
from tests.sentences import counted

ROOT = Path(__file__).parents[1]
Record = list[Any]  # key, step, value, window
Found = dict[str, dict[str, dict[str, list[Any]]]]

VARIABLE, SECRET = "COUNTING_SECRET", "0123456789abcdef" * 4
BUDGET = dp.ZCDP(0.1)
KEYS = ("dora", "bert", "carl", "anna")  # in no order that a program would make
TICKS, TICK, SECOND = 6, 10, 1_000_000

_NOISY = [(key, 1, (7 * i % 60) * SECOND) for i, key in enumerate(["bert", "anna", "bert", "zoe"])]
# Two pairs of neighbours: one event of carl's is there or not.
INPUTS: dict[str, list[Any]] = {
    "none": [],
    "one": [("carl", 1, 33 * SECOND)],
    "others": _NOISY,
    "first": [("carl", 1, 0), *_NOISY],
}
TOUCHED = "carl"
# The same where nobody listed the keys. All others are shown.
_MANY = [
    (key, 1, (7 * i % 60) * SECOND)
    for i, key in enumerate(["bert", "zoe", "bert", "anna", "zoe"] * 40)
]
SELECTED: dict[str, list[Any]] = {
    "others": _MANY,
    "first": [("carl", 1, 0), *_MANY],
    "backwards": [("carl", 1, 59 * SECOND), *_MANY[::-1]],
}


class _Note(beam.DoFn):
    """Appends what it sees to a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def process(self, release: Any, window: Any = beam.DoFn.WindowParam) -> None:
        value = [*release.items] if isinstance(release, dp.TopRelease) else release.value
        with self._path.open("a", encoding="utf-8") as file:
            record = release.key, release.step, value, str(window)
            file.write(json.dumps(record) + "\n")


def _counts(name: str, path: str, **options: Any) -> TickNumbers:
    entropy = dp.ReplayableEntropy(VARIABLE, run_id="order of releases")
    made = TickNumbers(
        BUDGET, TICK, 0, horizon=TICKS, keys=KEYS, path=path, entropy=entropy, **options
    )
    return name >> made


def releases_of(events: Any, path: str) -> dict[str, Any]:
    """All collections that are looked at, by name."""
    counts = _counts("Count", path)
    entropy = dp.ReplayableEntropy(VARIABLE, run_id="order of the last")
    clock: dict[str, Any] = {"tick": TICK, "start": 0, "horizon": TICKS}
    last = counted(BUDGET, **clock, last=3, keys=KEYS, path=path, entropy=entropy)
    made = {"counts": events | counts, "own": events | "Last" >> last}
    windowed = events | beam.WindowInto(FixedWindows(2 * TICK))
    made["windows"] = windowed | _counts("CountInWindows", path)
    again = _counts("Again", path)
    counter = again.counter
    for label, post in {
        "sliding": dp.post.SlidingSum(3, counter),
        "isotonic": dp.post.Isotonic(counter),
        "series": "Series" >> dp.post.Isotonic(counter, over="series"),
        "shrunk": dp.post.ShrinkAcrossKeys(again),
        "nonnegative": dp.post.NonNegative(),
        "top": dp.post.TopKPerTick(2, KEYS),
        "last": dp.post.LastPerTick(2 * TICK),
    }.items():
        made[label] = made["counts"] | post
    return made


def selected_of(events: Any, path: str) -> dict[str, Any]:
    """The same of keys that nobody listed. Replayed noise of a shard would follow all its keys."""
    keys, budget = dp.SelectKeys(shards=3), dp.ApproxDP(5.0, 1e-3)
    options: dict[str, Any] = {"horizon": TICKS, "path": path, "entropy": ScriptedEntropy(1)}
    count = "Select" >> TickNumbers(budget, TICK, 0, keys=keys, **options)
    windowed = events | beam.WindowInto(FixedWindows(2 * TICK))
    anew = "SelectInWindows" >> TickNumbers(budget, TICK, 0, keys=keys, **options)
    counts = events | count
    return {
        "counts": counts,
        "windows": windowed | anew,
        "nonnegative": counts | dp.post.NonNegative(),
        "isotonic": counts | dp.post.Isotonic(count.counter),
        "last": counts | dp.post.LastPerTick(2 * TICK),
        "top": counts | dp.post.TopKPerTick(2, count),
    }


def outputs(
    runner: Any,
    flags: Iterable[str],
    rows: Sequence[Any],
    path: str,
    build: Callable[[Any, str], dict[str, Any]] = releases_of,
) -> dict[str, list[Record]]:
    """Of one input, each collection in the order in which it came."""
    with tempfile.TemporaryDirectory() as scratch:
        pipeline = beam.Pipeline(runner=runner, options=PipelineOptions(list(flags)))
        made = build(pipeline | feed(rows), path)
        files = {name: Path(scratch, name) for name in made}
        for name, collection in made.items():
            files[name].touch()
            _ = collection | f"Note {name}" >> beam.ParDo(_Note(files[name]))
        pipeline.run().wait_until_finish()
        return {name: list(map(json.loads, f.open())) for name, f in files.items()}


def main(words: Sequence[str]) -> None:
    """The program."""
    os.environ[VARIABLE] = SECRET
    flags = [word for word in words if word.startswith("--")]
    runners = [word for word in words if word not in flags]
    found = {}
    for name in runners:
        make = PrismRunner if name == "prism" else RUNNERS[name]
        # Timers of a bounded input do not fire on the one that works by bundles.
        for path in ("bounded", "streaming")[: 1 if name == "bundles" else 2]:
            found[f"{name} {path}"] = {
                given: outputs(make(), flags, rows, path) for given, rows in INPUTS.items()
            }
            found[f"{name} {path} selected"] = {
                given: outputs(make(), flags, rows, path, selected_of)
                for given, rows in SELECTED.items()
            }
    json.dump(found, sys.stdout)


# What it should print


def in_a_process(seed: int, *words: str) -> str:
    """What a program printed whose strings have the hashes of this seed."""
    environment = {**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(
        [sys.executable, *words], env=environment, capture_output=True, text=True, timeout=600
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    return ended.stdout


def by_key(steps: range) -> list[list[Any]]:
    return [[key, step] for key in KEYS for step in steps]


EVERY = range(1, TICKS + 1)
EXPECTED = {
    "counts": by_key(EVERY),
    "windows": by_key(EVERY),  # steps go on from window to window
    "own": by_key(EVERY),
    "sliding": by_key(EVERY),
    "isotonic": by_key(EVERY),
    "series": by_key(EVERY),
    "shrunk": [[key, step] for step in EVERY for key in KEYS],
    "nonnegative": by_key(EVERY),
    "top": [["", step] for step in EVERY],
    # Ticks end at 10, 20, ...: releases 1; 2 and 3; 4 and 5; 6 share a window of two ticks.
    "last": [[key, step] for key in KEYS for step in (1, 3, 5, 6)],
}


def check(found: Found, names: set[str]) -> None:
    """That order and windows are the public ones, and only the touched key's values differ."""
    selected = {runner: i for runner, i in found.items() if runner.endswith(" selected")}
    check_selected(selected, names)
    for runner, inputs in found.items():
        if runner.endswith(" selected"):
            continue
        for name in names:
            made = {given: outputs[name] for given, outputs in inputs.items()}
            placed = {given: [[k, s, w] for k, s, _, w in rows] for given, rows in made.items()}
            for one, other in pairwise(placed):
                assert placed[one] == placed[other], (runner, name, one, other)
            if not runner.endswith("streaming"):
                assert [row[:2] for row in placed["none"]] == EXPECTED[name], (runner, name)
            if name in ("top", "shrunk"):  # made of all keys' values
                continue
            for one, other in (("none", "one"), ("others", "first")):
                others = [[r for r in made[given] if r[0] != TOUCHED] for given in (one, other)]
                assert others[0] == others[1], (runner, name)
                assert name != "counts" or made[one] != made[other], runner


def check_selected(found: Found, names: set[str]) -> None:
    """That outputs are the same as they come, whoever is hidden and whatever came first."""
    for runner, inputs in found.items():
        usual = inputs["others"]
        assert {key for key, *_ in usual["counts"]} == {"anna", "bert", "zoe"}, runner
        for given, name in product(inputs, names & {*usual}):
            rows = [inputs[given][name], usual[name]]
            if "streaming" in runner:  # timers of shards fire in an order of the runner's
                rows = [*map(sorted, rows)]
            assert rows[0] == rows[1], (runner, given, name)
        if "bounded" in runner:
            places = [(key, step) for key, step, _, _ in usual["counts"]]
            assert places == sorted(places), runner


if __name__ == "__main__":
    main(sys.argv[1:])

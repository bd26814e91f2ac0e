"""The transforms and pipelines.count on Prism: the numbers of the local runner.

Prism hands a key's elements to a stateful DoFn in order of time, and Beam promises no order at all:
rows here come in rising times, where order matters.
"""

from __future__ import annotations

import csv
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import worker_handlers
from apache_beam.runners.portability.prism_runner import PrismRunner
from apache_beam.testing import test_stream
from apache_beam.transforms.periodicsequence import PeriodicImpulse
from apache_beam.transforms.window import FixedWindows, TimestampedValue
from apache_beam.utils.timestamp import Timestamp

import beam_dpcount as dp
from beam_dpcount import cli
from pipelines import count
from tests.engines.conftest import OnPrism
from tests.engines.prism import Server
from tests.runners import Row, counters, feed, run
from tests.scripted import ScriptedEntropy

ROOT = Path(__file__).parents[2]
BUDGET = dp.ZCDP(0.5)
EXACT = dp.ZCDP(1e12)  # its noise is 0
SECOND = 1_000_000
VARIABLE, SECRET = "COUNTING_SECRET", "0123456789abcdef" * 4

each_path = pytest.mark.parametrize("path", ["bounded", "streaming"])


@pytest.fixture(autouse=True)
def _no_state_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    # The local runner's cache measures every state that it holds, some 1 ms a key and bundle.
    monkeypatch.setattr(worker_handlers, "STATE_CACHE_SIZE_MB", 0)


def rising(n: int, values: Sequence[Any], seed: int = 1) -> list[Row]:
    """Rows of two keys, one a second."""
    chance = random.Random(seed)
    return [(chance.choice("xxy"), chance.choice(values), i * SECOND) for i in range(n)]


def same(on_prism: OnPrism, build: Callable[[beam.Pipeline], Any], *flags: str) -> Any:
    """What came out on Prism, which is what comes out of the local runner, to the last bit."""
    given, expected = on_prism(build, *flags), run(build, "fn", flags)
    assert given.outputs == expected.outputs
    assert given.metrics() == expected.metrics()
    assert all(given.outputs)
    return given


NUMBERS = [0, 1, 2, -0.4, 0.75, None, "1"]
EDGES = [(0, 1), (1, 2), (2, 0), (2, 3), (3, 0), (0, 0), None]
# Those that release after every element: the transform, and values. 60 steps are fewer than x has.
ELEMENTS: dict[str, tuple[Any, Sequence[Any]]] = {
    "prefix": (lambda **given: dp.PrefixCount(BUDGET, 60, bounds=(-1, 2), **given), NUMBERS),
    "histogram": (lambda **given: dp.Histogram(BUDGET, 60, ["a", "b"], **given), ["a", "b", "z"]),
    "substrings": (
        lambda **given: dp.SubstringCount(BUDGET, 60, ["a", "b"], 2, **given),
        ["a", "b", 7],
    ),
    "triangles": (
        lambda **given: dp.TriangleCount(BUDGET, 60, vertices=4, max_degree=3, **given),
        EDGES,
    ),
}


# The same scripted noise, the same numbers


@each_path
@pytest.mark.parametrize("kind", ELEMENTS)
def test_each_element(kind: str, path: str, on_prism: OnPrism) -> None:
    """With elements that are rejected, and elements and a metric past the horizon."""
    make, values = ELEMENTS[kind]
    rows = rising(150, values)
    made = make(path=path, entropy=ScriptedEntropy(), on_reject="collect")
    outcome = same(on_prism, lambda p: p | feed(rows) | made)
    steps = Counter(release.key for release in outcome.releases)
    of_x = sum(key == "x" for key, *_ in rows)
    assert steps == {"x": 60, "y": 150 - of_x}
    assert outcome.metrics() == {"past_horizon": of_x - 60}
    reasons = Counter(rejected.reason for rejected in outcome.rejected)
    assert len(reasons) > 1


@each_path
@pytest.mark.parametrize("kind", ["prefix", "histogram"])
def test_fixed_windows(kind: str, path: str, on_prism: OnPrism) -> None:
    make, values = ELEMENTS[kind]
    rows = rising(60, values)
    made = make(path=path, entropy=ScriptedEntropy())
    outcome = same(on_prism, lambda p: p | feed(rows) | beam.WindowInto(FixedWindows(20)) | made)
    assert len({seen.window for seen in outcome.outputs[0]}) == 3


def test_elements_out_of_order_on_the_bounded_path(on_prism: OnPrism) -> None:
    """Time, then the id, decides; with pairs that are none."""
    ids = random.Random(3).sample(range(80), 80)
    rows: list[Row] = [("k", {"id": i, "x": i % 3}, i // 20 * SECOND) for i in ids]
    rows.insert(7, (7, {"id": 0, "x": 1}, 0))
    made = dp.PrefixCount(
        BUDGET,
        100,
        bounds=(0, 2),
        entropy=ScriptedEntropy(),
        on_reject="collect",
        value=lambda payload: payload["x"],
        element_id=lambda payload: payload["id"],
    )
    outcome = same(on_prism, lambda p: p | feed(rows, tuple[Any, Any]) | made)
    assert [release.step for release in outcome.releases] == [*range(1, 81)]


def test_the_runner_decides_the_order_of_the_streaming_path(on_prism: OnPrism) -> None:
    """Whatever it is: the releases are those of the order that their times show."""
    rows = rising(80, [0, 1])
    arrived = random.Random(4).sample(rows, 80)
    made = dp.PrefixCount(BUDGET, 100, path="streaming", entropy=ScriptedEntropy())
    releases = on_prism(lambda p: p | feed(arrived) | made).releases
    of_time = {row[2]: row for row in rows}
    ordered = [of_time[release.timestamp] for release in releases]
    assert sorted(ordered) == sorted(rows)
    assert releases == run(lambda p: p | feed(ordered) | made).releases


def ticks(**given: Any) -> dp.TickCount:
    """Ten-second ticks over two minutes."""
    options: dict[str, Any] = {
        "budget": BUDGET,
        "mechanism": "SmoothBinary",
        "entropy": ScriptedEntropy(),
        "bounds": (0, 2),
        **given,
    }
    return dp.TickCount(
        options.pop("budget"), 10, 0, horizon=12, keys=["x", "y", "empty"], **options
    )


def untidy(n: int) -> list[Row]:
    """Rows out of order, and some that do not count."""
    chance = random.Random(5)
    rows: list[Row] = [
        (chance.choice("xy"), chance.choice([0, 1, 3, None]), chance.randrange(120 * SECOND))
        for _ in range(n)
    ]
    rows += [("x", 1, -1), ("x", 1, 120 * SECOND), ("unknown", 1, 5)]
    chance.shuffle(rows)
    return rows


@each_path
def test_ticks(path: str, on_prism: OnPrism) -> None:
    rows = untidy(150)
    outcome = same(on_prism, lambda p: p | feed(rows) | ticks(path=path))
    assert Counter(r.key for r in outcome.releases) == {"x": 12, "y": 12, "empty": 12}


@each_path
def test_ticks_without_any_event(path: str, on_prism: OnPrism) -> None:
    assert len(same(on_prism, lambda p: p | feed([]) | ticks(path=path)).releases) == 36


@each_path
def test_ticks_in_fixed_windows(path: str, on_prism: OnPrism) -> None:
    rows = untidy(100)
    windows = beam.WindowInto(FixedWindows(40))
    outcome = same(on_prism, lambda p: p | feed(rows) | windows | ticks(path=path))
    assert len(outcome.releases) == 36
    assert len({seen.window for seen in outcome.outputs[0]}) == 3


@each_path
def test_ticks_of_a_histogram(path: str, on_prism: OnPrism) -> None:
    chance = random.Random(6)
    rows = [
        ("", chance.sample("abz", 2), chance.randrange(30 * SECOND))
        for _ in range(50)  # of one stream: the key goes
    ]
    made = dp.TickHistogram(
        BUDGET,
        10,
        0,
        horizon=3,
        domain=["a", "b", "c"],
        max_items=2,
        path=path,
        entropy=ScriptedEntropy(),
    )
    outcome = same(on_prism, lambda p: p | feed(rows) | beam.Values() | made)
    assert len(outcome.releases) == 9


@pytest.mark.parametrize("late", ["fold", "drop"])
def test_late_events(late: str, on_prism: OnPrism) -> None:
    """Of a tick that was released already."""
    made = ticks(budget=EXACT, entropy=None, late=late)

    def build(pipeline: beam.Pipeline) -> Any:
        source = test_stream.TestStream()
        for watermark, *seconds in ((0, 5), (25, 27, 6, 12), (45, 46, 31)):
            source.advance_watermark_to(watermark)
            for at in seconds:
                source.add_elements([TimestampedValue(("x", 1), Timestamp(at))])
        source.advance_watermark_to(130)
        source.advance_watermark_to_infinity()
        typed = beam.Map(lambda element: element).with_output_types(tuple[str, Any])
        return pipeline | source | typed | made

    releases = on_prism(build, "--streaming").releases
    # Late: 6 and 12 are of ticks 1 and 2, released at 20; 31 is of tick 4, released at 40.
    expected = {"fold": [1, 1, 4, 4, 6], "drop": [1, 1, 2, 2, 3]}[late]
    values = {r.step: r.value for r in releases if r.key == "x"}
    assert [round(values[step], 6) for step in range(1, 6)] == expected
    assert len(releases) == 36


# The same secret, the same numbers


def replayable(run_id: str = "") -> dp.ReplayableEntropy:
    return dp.ReplayableEntropy(VARIABLE, run_id=run_id)


@each_path
def test_the_same_secret_gives_the_same_releases(
    path: str, on_prism: OnPrism, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, SECRET)
    rows = rising(40, ["a", "b"])

    def build(pipeline: beam.Pipeline, run_id: str = "") -> Any:
        letters = pipeline | feed(rows)
        numbers = letters | beam.MapTuple(lambda key, x: (key, int(x == "a"))).with_output_types(
            tuple[str, int]
        )
        given: dict[str, Any] = {"path": path, "entropy": replayable(run_id)}
        return (
            numbers | dp.PrefixCount(BUDGET, 60, **given),
            letters | dp.Histogram(BUDGET, 60, ["a", "b"], **given),
            letters | dp.SubstringCount(BUDGET, 60, ["a", "b"], 2, **given),
            numbers | dp.TickCount(BUDGET, 5, 0, horizon=8, keys=["x", "y"], **given),
        )

    first = same(on_prism, build)
    other = on_prism(lambda p: build(p, "other"))
    for mine, theirs in zip(first.outputs, other.outputs, strict=True):
        assert len(mine) == len(theirs)
        assert [seen.value.value for seen in mine] != [seen.value.value for seen in theirs]


# An unbounded source


def test_releases_of_an_unbounded_source_come_while_it_runs(
    on_prism: OnPrism, tmp_path: Path
) -> None:
    """Ticks of two seconds and counts of a source of eight, with when they came."""
    start, came = int(time.time()) + 3, tmp_path / "came"
    came.mkdir()

    def note(release: Any) -> Any:
        (came / f"{release.key} {release.step}").write_text(str(time.time()))
        return release

    def build(pipeline: beam.Pipeline) -> Any:
        events = (
            pipeline
            | PeriodicImpulse(start, start + 8, 0.25)
            | beam.Map(lambda _: ("home", 1)).with_output_types(tuple[str, int])
        )
        assert not events.is_bounded
        options: dict[str, Any] = {"mechanism": "SmoothBinary"}
        return (
            events
            | dp.TickCount(EXACT, 2, start, start + 8, keys=["home", "empty"], **options)
            | "NoteTick" >> beam.Map(note),
            events
            | beam.MapTuple(lambda key, x: ("each", x)).with_output_types(tuple[str, int])
            | dp.PrefixCount(EXACT, 64, **options)
            | "NoteEach" >> beam.Map(note),
        )

    outcome = on_prism(build, "--streaming")
    ended = time.time()
    exact = {"empty": [0] * 4, "home": [8, 16, 24, 32]}
    for key, values in exact.items():
        assert [round(r.value, 6) for r in outcome.releases if r.key == key] == values
    each = [seen.value for seen in outcome.outputs[1]]
    assert [(r.step, round(r.value, 6)) for r in each] == [(i, i) for i in range(1, 33)]

    when = {path.name: float(path.read_text()) for path in came.iterdir()}
    for key in exact:
        at = [when[f"{key} {step}"] - start for step in range(1, 5)]
        assert at == sorted(at)
        assert all(2 * i - 0.5 < t for i, t in enumerate(at, start=1))  # none before its tick
        assert at[0] < 6  # nor all at the end: the first one before the source's last quarter
        assert at[0] < ended - start - 1.5
    assert when["each 1"] < start + 4


# Counters


def test_progress_is_counted(server: Server) -> None:
    options = PipelineOptions([f"--job_endpoint={server.endpoint}"])
    pipeline = beam.Pipeline(runner=PrismRunner(), options=options)
    _ = pipeline | beam.Create(range(2345)) | beam.ParDo(cli.CountReleases())
    result = pipeline.run()
    result.wait_until_finish()
    assert cli.counted(result, "releases") == 2345
    assert cli.counted(result, "past_horizon") == 0
    assert counters(result) == {"releases": 2345}


def test_counters_without_a_value_count_nothing() -> None:
    """So Prism shows counters that nothing has been added to."""

    def listed(namespace: str, value: int | None) -> Any:
        name = SimpleNamespace(namespace=namespace, name="releases")
        return SimpleNamespace(key=SimpleNamespace(metric=name), result=value)

    def answers(*found: Any) -> Any:
        metrics = SimpleNamespace(query=lambda _: {"counters": found})
        return SimpleNamespace(metrics=lambda: metrics)

    ours = answers(listed("beam_dpcount", None), listed("beam_dpcount", 5))
    assert cli.counted(ours, "releases") == 5
    assert counters(ours) == {"releases": 5}
    assert counters(answers(listed("beam", None), listed("beam", 7))) == {}


# The command


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


def command(binary: Path, *words: str) -> None:
    """pipelines.count on a Prism that Beam starts for it."""
    runner = "--runner", "PrismRunner", "--prism_location", str(binary)
    done = subprocess.run(
        [sys.executable, "-m", "pipelines.count", *words, *runner],
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


@each_path
def test_the_command_counts_exactly(path: str, binary: Path, tmp_path: Path) -> None:
    log, out = tmp_path / "log.csv", tmp_path / "out.csv"
    expected = write(log)
    command(binary, *arguments(log, out, path, "--rho", "1e12"))
    assert released(out) == pytest.approx(expected, abs=1e-3)


def test_the_command_replays(binary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On Prism and here, with the secret in the environment."""
    monkeypatch.setenv(VARIABLE, SECRET)
    log, there, here = (tmp_path / name for name in ("log.csv", "there.csv", "here.csv"))
    write(log)
    options = "--epsilon", "1", "--delta", "1e-6", "--secret-env", VARIABLE
    command(binary, *arguments(log, there, "streaming", *options))
    count.main(arguments(log, here, "streaming", *options))
    assert released(there) == released(here)
    assert len(set(released(there).values())) > 100

"""The transforms and beam-dpcount count on every engine: the numbers of the local runner.

Beam promises no order, and Prism hands a key's elements to a stateful DoFn in order of time: rows
here come in rising times, where order matters.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import worker_handlers
from apache_beam.transforms.window import FixedWindows

import beam_dpcount as dp
from beam_dpcount.commands import count, progress
from beam_dpcount.commands.pipeline import CountReleases
from beam_dpcount.transforms.ticks import TickNumbers
from tests.engines.commands import arguments, released, run_count, write
from tests.engines.conftest import SECRET, VARIABLE, Engine
from tests.engines.counts import BUDGET, ticks
from tests.runners import Row, counters, feed, run
from tests.scripted import ScriptedEntropy

SECOND = 1_000_000

# On Flink, transforms with state take its streaming mode; others run in batch.
MODE = {"bounded": (), "streaming": ("--streaming",)}
each_path = pytest.mark.parametrize("path", ["bounded", "streaming"])


@pytest.fixture(autouse=True)
def _no_state_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    # The local runner's cache measures every state that it holds, some 1 ms a key and bundle.
    monkeypatch.setattr(worker_handlers, "STATE_CACHE_SIZE_MB", 0)


def rising(n: int, values: Sequence[Any], seed: int = 1) -> list[Row]:
    """Rows of two keys, one a second."""
    chance = random.Random(seed)
    return [(chance.choice("xxy"), chance.choice(values), i * SECOND) for i in range(n)]


def same(engine: Engine, build: Callable[[beam.Pipeline], Any], path: str = "bounded") -> Any:
    """What came out of the engine: what comes out of the local runner, to the last bit."""
    given, expected = engine.run(build, *MODE[path]), run(build)
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
def test_each_element(kind: str, path: str, engine: Engine) -> None:
    """With elements that are rejected, and elements and a metric past the horizon."""
    make, values = ELEMENTS[kind]
    rows = rising(150, values)
    made = make(path=path, entropy=ScriptedEntropy(), on_reject="collect")
    outcome = same(engine, lambda p: p | feed(rows) | made, path)
    steps = Counter(release.key for release in outcome.releases)
    of_x = sum(key == "x" for key, *_ in rows)
    assert steps == {"x": 60, "y": 150 - of_x}
    assert outcome.metrics() == {"past_horizon": of_x - 60}
    reasons = Counter(rejected.reason for rejected in outcome.rejected)
    assert len(reasons) > 1


@each_path
@pytest.mark.parametrize("engine", ["flink-local"], indirect=True)
def test_each_element_on_a_flink_of_its_own(path: str, engine: Engine) -> None:
    """In CI, too."""
    make, values = ELEMENTS["prefix"]
    made = make(path=path, entropy=ScriptedEntropy())
    outcome = same(engine, lambda p: p | feed(rising(150, values)) | made, path)
    assert len(outcome.releases) > 60


@each_path
@pytest.mark.parametrize("kind", ["prefix", "histogram"])
def test_fixed_windows(kind: str, path: str, engine: Engine) -> None:
    make, values = ELEMENTS[kind]
    rows = rising(60, values)
    made, windows = make(path=path, entropy=ScriptedEntropy()), beam.WindowInto(FixedWindows(20))
    outcome = same(engine, lambda p: p | feed(rows) | windows | made, path)
    assert len({seen.window for seen in outcome.outputs[0]}) == 3


def test_elements_out_of_order_on_the_bounded_path(engine: Engine) -> None:
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
    outcome = same(engine, lambda p: p | feed(rows, tuple[Any, Any]) | made)
    assert [release.step for release in outcome.releases] == [*range(1, 81)]


def test_the_runner_decides_the_order_of_the_streaming_path(engine: Engine) -> None:
    """Whatever it is: the releases are those of the order that their times show."""
    rows = rising(80, [0, 1])
    arrived = random.Random(4).sample(rows, 80)
    made = dp.PrefixCount(BUDGET, 100, path="streaming", entropy=ScriptedEntropy())
    releases = engine.run(lambda p: p | feed(arrived) | made, "--streaming").releases
    of_time = {row[2]: row for row in rows}
    ordered = [of_time[release.timestamp] for release in releases]
    assert sorted(ordered) == sorted(rows)
    assert releases == run(lambda p: p | feed(ordered) | made).releases


@each_path
@pytest.mark.parametrize("users", ["periods", "changes"])
def test_people_who_are_active(users: str, path: str, engine: Engine) -> None:
    """In any order of arrival; on a stream and on bounded input to the last bit the same."""
    whom = {"keys": 1, "per": 3} if users == "periods" else {"changes": 4}
    rows: list[Row] = [(key, {"who": f"p{x}"}, at) for key, x, at in rising(100, range(7))]
    clock = dp.Clock(10, start=0, ticks=12)

    def made(path: str) -> dp.TickCount:
        people = dp.Users("who", **whom)
        count = BUDGET, clock.last(3), dp.People()
        return dp.TickCount(
            *count, keys=["x", "y"], users=people, path=path, entropy=ScriptedEntropy()
        )

    arrived = random.Random(6).sample(rows, len(rows))
    releases = engine.run(lambda p: p | feed(arrived) | made(path), *MODE[path]).releases
    assert releases == run(lambda p: p | feed(rows) | made("bounded")).releases
    assert len(releases) == 24


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
def test_ticks(path: str, engine: Engine) -> None:
    rows = untidy(150)
    outcome = same(engine, lambda p: p | feed(rows) | ticks(path=path), path)
    assert Counter(r.key for r in outcome.releases) == {"x": 12, "y": 12, "empty": 12}


@each_path
def test_ticks_without_any_event(path: str, engine: Engine) -> None:
    assert len(same(engine, lambda p: p | feed([]) | ticks(path=path), path).releases) == 36


@each_path
def test_ticks_in_fixed_windows(path: str, engine: Engine) -> None:
    rows = untidy(100)
    windows = beam.WindowInto(FixedWindows(40))
    outcome = same(engine, lambda p: p | feed(rows) | windows | ticks(path=path), path)
    assert len(outcome.releases) == 36
    assert len({seen.window for seen in outcome.outputs[0]}) == 3


def many_keys() -> list[Row]:
    """Rows of keys that nobody listed, of which some have many events."""
    chance = random.Random(8)
    weights = [60, 40, 20, 8, *[2] * 8]
    keys = chance.choices([f"k{i}" for i in range(12)], weights, k=250)
    return [(key, 1, chance.randrange(120 * SECOND)) for key in keys]


@each_path
@pytest.mark.parametrize("at_least", [1, 3])
def test_keys_that_nobody_listed(at_least: int, path: str, engine: Engine) -> None:
    keys = dp.SelectKeys(delta=1e-3, at_least=at_least, shards=3)
    made = ticks(budget=dp.ZCDP(0.2), keys=keys, path=path)
    outcome = same(engine, lambda p: p | feed(many_keys()) | made, path)
    shown = {release.key for release in outcome.releases}
    assert {"k0", "k1"} <= shown < {f"k{i}" for i in range(12)}


@each_path
def test_the_largest_of_keys_that_nobody_listed(path: str, engine: Engine) -> None:
    made = ticks(budget=dp.ZCDP(0.2), keys=dp.SelectKeys(delta=1e-3, shards=3), path=path)
    top = made | dp.post.TopKPerTick(2, made, path)
    outcome = same(engine, lambda p: p | feed(many_keys()) | top, path)
    assert outcome.releases[-1].step == 12


# The same secret, the same numbers


@each_path
def test_the_same_secret_gives_the_same_releases(
    path: str, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, SECRET)
    rows = [(key, (x, i), micros) for i, (key, x, micros) in enumerate(rising(40, ["a", "b"]))]

    def build(pipeline: beam.Pipeline, run_id: str = "") -> Any:
        letters = pipeline | feed(rows)
        entropy = dp.ReplayableEntropy(VARIABLE, run_id=run_id)
        given: dict[str, Any] = {"path": path, "entropy": entropy}
        each = {**given, "value": itemgetter(0), "element_id": itemgetter(1)}
        number = {"value": lambda pair: int(pair[0] == "a")}
        return (
            letters | dp.PrefixCount(BUDGET, 60, **{**each, **number}),
            letters | dp.Histogram(BUDGET, 60, ["a", "b"], **each),
            letters | dp.SubstringCount(BUDGET, 60, ["a", "b"], 2, **each),
            letters | TickNumbers(BUDGET, 5, 0, horizon=8, keys=["x", "y"], **given, **number),
        )

    first = same(engine, build, path)
    other = engine.run(lambda p: build(p, "other"), *MODE[path])
    for mine, theirs in zip(first.outputs, other.outputs, strict=True):
        assert len(mine) == len(theirs)
        assert [seen.value.value for seen in mine] != [seen.value.value for seen in theirs]


# Counters


def test_progress_is_counted(engine: Engine) -> None:
    build = lambda p: p | beam.Create(range(2345)) | beam.ParDo(CountReleases())  # noqa: E731
    result = engine.run(build).result
    assert progress.counted(result, "releases") == 2345
    assert progress.counted(result, "past_horizon") == 0
    assert counters(result) == {"releases": 2345}


# The command


@each_path
def test_the_command_counts_exactly(path: str, engine: Engine, tmp_path: Path) -> None:
    log, out = tmp_path / "log.csv", tmp_path / "out.csv"
    expected = write(log)
    run_count(*arguments(log, out, path, "--rho", "1e12"), *engine.command, *MODE[path])
    assert released(out) == pytest.approx(expected, abs=1e-3)


def test_the_command_replays(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There and here, with the secret in the environment."""
    monkeypatch.setenv(VARIABLE, SECRET)
    log, there, here = (tmp_path / name for name in ("log.csv", "there.csv", "here.csv"))
    write(log)
    options = "--epsilon", "1", "--delta", "1e-6", "--secret-env", VARIABLE
    words = arguments(log, there, "streaming", *options)
    run_count(*words, *engine.command, *MODE["streaming"])
    count.main(arguments(log, here, "streaming", *options))
    assert released(there) == released(here)
    assert len(set(released(there).values())) > 100

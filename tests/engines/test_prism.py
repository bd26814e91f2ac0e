"""What only Prism can show: events that come late by TestStream, and a source that goes on."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import apache_beam as beam
import grpc
import pytest
from apache_beam.coders import VarIntCoder
from apache_beam.testing import test_stream
from apache_beam.transforms.periodicsequence import PeriodicImpulse
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import Timestamp

import beam_dpcount as dp
from beam_dpcount.commands.progress import counted
from beam_dpcount.transforms.ticks import TickNumbers
from engines import prism
from tests import orders, people
from tests.engines.conftest import Engine
from tests.engines.counts import EXACT, ticks
from tests.runners import counters, feed, run, stream
from tests.scripted import ScriptedEntropy


@pytest.mark.parametrize("late", ["fold", "drop"])
def test_late_events(late: str, on_prism: Engine) -> None:
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

    releases = on_prism.run(build, "--streaming").releases
    # Late: 6 and 12 are of ticks 1 and 2, released at 20; 31 is of tick 4, released at 40.
    expected = {"fold": [1, 1, 4, 4, 6], "drop": [1, 1, 2, 2, 3]}[late]
    values = {r.step: r.value for r in releases if r.key == "x"}
    assert [round(values[step], 6) for step in range(1, 6)] == expected
    assert len(releases) == 36


# Its end


def ended(pid: int) -> bool:
    """Whether a process is gone, or only waits for its parent to ask how it ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in found]


def until(condition: Any, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


# Waits for as long as Prism would serve, as Beam starts it: by Popen, from the launcher's path.
WAITS = "import subprocess, sys; subprocess.Popen([sys.argv[1], '600']).wait()"


def test_a_launcher_s_program_ends_with_what_started_it(tmp_path: Path) -> None:
    stand_in = tmp_path / "stand in"  # a path with a blank
    shutil.copy(shutil.which("sleep") or "", stand_in)
    launcher = prism.launcher(stand_in)
    assert launcher == prism.launcher(stand_in)
    with subprocess.Popen([sys.executable, "-c", WAITS, str(launcher)]) as parent:
        assert until(lambda: children(parent.pid), 20)
        (child,) = children(parent.pid)
        name = Path(f"/proc/{child}/comm")
        assert until(lambda: name.read_text().strip() == "stand in", 20)
        parent.send_signal(signal.SIGKILL)
    assert until(lambda: ended(child), 5)


def test_prism_ends_with_a_submitter_that_is_killed(binary: Path, tmp_path: Path) -> None:
    """As it is started by Beam's PrismRunner, from where `python -m engines.prism` says."""
    program = (
        "import sys, time, apache_beam as beam\n"
        "flags = ['--runner=PrismRunner', f'--prism_location={sys.argv[1]}']\n"
        "with beam.Pipeline(argv=[*flags, '--environment_type=LOOPBACK']) as pipeline:\n"
        "    pipeline | beam.Create([1]) | beam.Map(lambda _: time.sleep(600))\n"
    )
    words = [sys.executable, "-c", program, str(prism.launcher(binary))]
    with (tmp_path / "log").open("wb") as log, subprocess.Popen(words, stderr=log) as submitter:

        def serving() -> list[int]:
            named = ((child, Path(f"/proc/{child}/cmdline")) for child in children(submitter.pid))
            start = os.fsencode(binary) + b"\0"
            return [child for child, words in named if words.read_bytes().startswith(start)]

        try:
            assert until(serving, 60)
            (found,) = serving()
        finally:
            submitter.send_signal(signal.SIGKILL)
    assert until(lambda: ended(found), 5)


# Order


def test_the_order_of_releases_is_public_on_prism(binary: Path) -> None:
    """At two seeds. It groups keys in an order of chance, so what groups again is left out here."""
    for seed in (1, 2):
        words = "-m", "tests.orders", "prism", f"--prism_location={binary}"
        found = json.loads(orders.in_a_process(seed, *words))
        kept = ("prism bounded", "prism bounded selected")
        grouped_once = {runner: found[runner] for runner in kept}
        orders.check(grouped_once, {"counts", "windows", "nonnegative"})


def test_bounded_releases_are_not_late_for_groupings_by_window(on_prism: Engine) -> None:
    """Their groups' times were the end of the window, and all was lost in the next one."""

    def build(pipeline: beam.Pipeline) -> Any:
        events = pipeline | feed([("home", 1, at * 1_000_000) for at in range(60)])
        counts, clock = dp.PrefixCount(EXACT, 60), TickNumbers(EXACT, 10, 0, 60, keys=["home"])
        sliding = dp.post.SlidingSum(2, counts.counter)
        each, timed = events | counts, events | clock
        return (
            each | "LastOfEach" >> dp.post.LastPerTick(10),
            each | sliding | "LastSum" >> dp.post.LastPerTick(10),
            timed | "LastTick" >> dp.post.LastPerTick(20),
        )

    outputs = on_prism.run(build).outputs
    steps = [[seen.value.step for seen in output] for output in outputs]
    assert steps == [[10, 20, 30, 40, 50, 60], [10, 20, 30, 40, 50, 60], [1, 3, 5, 6]]


# Keys that nobody listed


@pytest.mark.parametrize("late", ["fold", "drop"])
def test_keys_that_nobody_listed(late: str, on_prism: Engine) -> None:
    """The same on both paths, and as elsewhere where events come late, a key's first one too."""
    often = [("often", 1, at * 1_000_000) for at in range(90)]
    rows = [*often, *(("rare", 1, at * 1_000_000) for at in (5, 60))]

    def made(path: str, **options: Any) -> Any:
        options |= {"horizon": 9, "mechanism": "NormalizedBLT", "entropy": ScriptedEntropy(6)}
        keys, budget = dp.SelectKeys(shards=3), dp.ApproxDP(5.0, 1e-3)
        return TickNumbers(budget, 10, 0, keys=keys, path=path, **options)

    def stream(pipeline: beam.Pipeline, *late_ones: str) -> Any:
        source = test_stream.TestStream().advance_watermark_to(0)
        for tick in range(9):
            came = [row for row in rows if row[2] // 10_000_000 == tick]
            came += [(key, 1, 15_000_000) for key in late_ones if tick == 5]
            placed = [TimestampedValue(row[:2], Timestamp(micros=row[2])) for row in came]
            source = source.add_elements(placed).advance_watermark_to(10 * tick + 10)
        source = source.advance_watermark_to_infinity()
        typed = beam.Map(lambda element: element).with_output_types(tuple[str, Any])
        return pipeline | source | typed | made("streaming", late=late)

    expected = on_prism.run(lambda p: p | feed(rows) | made("bounded")).releases
    assert {release.key for release in expected} == {"often"}
    assert on_prism.run(lambda p: p | feed(rows) | made("streaming")).releases == expected
    for late_ones in ((), ("other",), ("other", "often")):
        live = on_prism.run(lambda p, keys=late_ones: stream(p, *keys), "--streaming").releases
        there = run(lambda p, keys=late_ones: stream(p, *keys), "bundles", ["--streaming"])
        assert live == there.releases
        assert (live == expected) is ("often" not in late_ones or late == "drop")


@pytest.mark.parametrize("view", ["each", "restart"])
def test_keys_of_each_window(view: str, on_prism: Engine) -> None:
    """One cell goes from window to window, and shows the keys of each by their events there."""
    clock = dp.Clock(10, start=0, ticks=9)
    shown = clock.each() if view == "each" else clock.restart(3)
    rows = [("a", 1, at * 1_000_000) for at in range(0, 30)]
    rows += [("b", 1, at * 1_000_000) for at in range(30, 85)]

    def made(path: str) -> Any:
        keys = dp.SelectKeys(delta=1e-3, shards=3)
        return dp.TickCount(dp.ApproxDP(1e6, 1e-2), shown, keys=keys, path=path)

    parts = [part for row in rows for part in (row, Timestamp(micros=row[2]))]
    live = on_prism.run(lambda p: p | stream(*parts, 90) | made("streaming"), "--streaming")
    found = sorted((r.key, r.step, r.restart, round(r.value)) for r in live.releases)
    bounded = on_prism.run(lambda p: p | feed(rows) | made("bounded")).releases
    assert found == sorted((r.key, r.step, r.restart, round(r.value)) for r in bounded)
    assert {(key, step) for key, step, *_ in found} == {
        *(("a", step) for step in range(1, 4)),
        *(("b", step) for step in range(4, 10)),
    }


def test_views_of_one_count_come_together(on_prism: Engine) -> None:
    """Rows of a key by tick, each number from all releases before it, as elsewhere."""
    clock = dp.Clock(10, start=0, ticks=12)
    rows = [(key, 1, at * 1_000_000) for at, key in enumerate("abb" * 40)]

    def made() -> Any:
        views = [clock, clock.each(), clock.last(3)]
        return dp.TickCount(dp.ZCDP(0.5), views, keys=["a", "b"], entropy=ScriptedEntropy(5))

    assert made().combined is not None
    parts = [part for row in rows for part in (row, Timestamp(micros=row[2]))]
    live = on_prism.run(lambda p: p | stream(*parts, 120) | made(), "--streaming").releases
    there = run(lambda p: p | stream(*parts, 120) | made(), "bundles", ["--streaming"]).releases
    for key in "ab":
        mine = [row for row in live if row.key == key]
        assert [row.step for row in mine] == [*range(1, 13)]
        assert mine == [row for row in there if row.key == key]


# People


@pytest.mark.parametrize("path", ["bounded", "streaming"])
def test_people_are_bounded(path: str, on_prism: Engine) -> None:
    """A person with 1000 events counts k times; and all that counts people, as the rule says."""
    mode = ("--streaming",) if path == "streaming" else ()
    busy = [row for row in people.crowd(1000) if row[1].get("who") == "busy"]
    count = people.tick_count(people.people(20, per_key=20), bounds=(0, 1), path=path)
    releases = on_prism.run(lambda p: p | feed(busy) | count, *mode).releases
    assert sum(r.value for r in releases if r.step == people.TICKS) == 20

    rows, names = people.crowd(), []
    # The first events of a person count, and a busy Prism mixes up what it may: so each one comes
    # when all before it is done.
    parts = [part for row in rows for part in (row, Timestamp(micros=(row[2] // 1000 + 1) * 1000))]
    source = stream(*parts) if path == "streaming" else feed(rows)

    def build(pipeline: beam.Pipeline) -> Any:
        made = people.several(pipeline | source, path)
        names[:] = made
        return tuple(made.values())

    people.check(on_prism.run(build, *mode), names, rows)


def test_activity_of_late_events_never_counts(on_prism: Engine) -> None:
    """What comes after its tick, while others' events of the next are under way."""
    users, clock = dp.Users("who", changes=4), dp.Clock(10, start=0, ticks=9)
    count = dp.TickCount(
        EXACT, clock.last(2), dp.People(), keys=["x"], users=users, entropy=ScriptedEntropy(0)
    )
    ann, bob, cyd = (
        ("x", {"who": who}, at * 1_000_000) for who, at in (("ann", 5), ("bob", 15), ("cyd", 6))
    )
    source = stream(ann, 10, cyd, bob, 20, 90)
    releases = on_prism.run(lambda p: p | source | count, "--streaming").releases
    assert [round(r.value) for r in releases] == [1, 2, 1, *[0] * 6]


# Slow workers


class SlowCount(beam.DoFn):
    """How many elements of its key came before, from state, and slowly."""

    STATE = ReadModifyWriteStateSpec("before", VarIntCoder())

    def process(self, element: Any, cell: Any = beam.DoFn.StateParam(STATE)) -> Any:
        before = cell.read() or 0
        time.sleep(0.4)
        cell.write(before + 1)
        yield (*element, before)


def test_a_slow_worker_keeps_its_keys(on_prism: Engine) -> None:
    """Prism split slow bundles, and gave a key to two workers at once: one lost the other's state.

    A streaming count turns that off for all of its pipeline; without one this DoFn loses counts.
    """

    def build(pipeline: beam.Pipeline) -> Any:
        rows = pipeline | feed([(f"k{i % 3}", i // 3, i * 1_000_000) for i in range(30)])
        count = ticks(budget=EXACT, entropy=None, path="streaming")
        return rows | "Count" >> count, rows | "Slow" >> beam.ParDo(SlowCount())

    slow = [seen.value for seen in on_prism.run(build, "--streaming").outputs[1]]
    assert slow == [(f"k{key}", i, i) for key in range(3) for i in range(10)]


# An unbounded source


def test_releases_of_an_unbounded_source_come_while_it_runs(
    on_prism: Engine, tmp_path: Path
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
            | TickNumbers(EXACT, 2, start, start + 8, keys=["home", "empty"], **options)
            | "NoteTick" >> beam.Map(note),
            events
            | beam.MapTuple(lambda key, x: ("each", x)).with_output_types(tuple[str, int])
            | dp.PrefixCount(EXACT, 64, **options)
            | "NoteEach" >> beam.Map(note),
        )

    outcome = on_prism.run(build, "--streaming")
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


# A job that hangs


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # Beam's
def test_a_job_that_hangs_fails_and_the_next_one_runs(on_prism: Engine) -> None:
    assert on_prism.server is not None
    with on_prism.server.within(2), pytest.raises((RuntimeError, grpc.RpcError)):
        on_prism.run(lambda p: p | beam.Create([20]) | beam.Map(time.sleep))
    with on_prism.server.within(100):
        outcome = on_prism.run(lambda p: p | beam.Create([5]))
    assert [seen.value for seen in outcome.outputs[0]] == [5]


# Counters


def test_counters_without_a_value_count_nothing() -> None:
    """So Prism shows counters that nothing has been added to."""

    def listed(namespace: str, value: int | None) -> Any:
        name = SimpleNamespace(namespace=namespace, name="releases")
        return SimpleNamespace(key=SimpleNamespace(metric=name), result=value)

    def answers(*found: Any) -> Any:
        metrics = SimpleNamespace(query=lambda _: {"counters": found})
        return SimpleNamespace(metrics=lambda: metrics)

    ours = answers(listed("beam_dpcount", None), listed("beam_dpcount", 5))
    assert counted(ours, "releases") == 5
    assert counters(ours) == {"releases": 5}
    assert counters(answers(listed("beam", None), listed("beam", 7))) == {}

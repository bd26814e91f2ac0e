"""Benchmarks: that they measure what they say."""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import apache_beam as beam
import numpy as np
import pandas as pd
import pytest
from apache_beam.coders import PickleCoder
from apache_beam.runners.portability.fn_api_runner import worker_handlers
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils import windowed_value

import beam_dpcount as dp
from beam_dpcount.commands import count, ticks
from benchmarks import bench, dp_sqlp, errors, files, keys, peers, plain, timing
from benchmarks.cells import Cell
from tests import runners
from tests.command_lines import succeed

SMALL = dp_sqlp.Data(people=3000, ticks=20, keys=400)


def counted(data: dp_sqlp.Data) -> tuple[Counter[int], int]:
    """Of each key how many people have events in it, and how many events that leaves out."""
    events = [pair for part in data.events() for pair in zip(part.people, part.keys, strict=True)]
    return Counter(int(key) for _, key in {*events}), len(events) - len({*events})


def test_people_have_their_laws() -> None:
    data = dp_sqlp.Data(people=200_000, ticks=100)
    parts = [*data.events()]
    assert len(parts) == 2
    assert [len(np.unique(part.people)) for part in parts] == [100_000] * 2
    n = np.arange(1, 100_001)
    weights = (n + 26.0) ** -6.738
    mean = float(np.minimum(n, 32) @ weights / weights.sum())
    events = sum(len(part.keys) for part in parts)
    assert events == pytest.approx(200_000 * mean, rel=0.01)
    assert max(np.bincount(part.people).max() for part in parts) == 32
    first, wide = (sum(np.count_nonzero(part.keys < n) for part in parts) for n in (1, 100_000))
    ranks = (np.arange(1, 1_000_001) + 1000.0) ** -1.4
    assert first == pytest.approx(events * ranks[0] / ranks.sum(), rel=0.2)
    assert wide == pytest.approx(events * ranks[:100_000].sum() / ranks.sum(), rel=0.01)
    ticks = np.bincount(np.concatenate([part.ticks for part in parts]))
    assert len(ticks) == 101
    assert ticks[0] == 0
    assert ticks[1:].min() > 0.9 * ticks[1:].max()


def test_the_first_of_a_person_in_a_key_is_kept() -> None:
    arrays = [[0, 0, 0, 1, 1], [7, 7, 2, 7, 7], [9, 4, 5, 3, 3]]
    kept = dp_sqlp.first_of_each(dp_sqlp.Events(*map(np.array, arrays)), 10)
    assert [array.tolist() for array in kept] == [[0, 0, 1], [2, 7, 7], [5, 4, 3]]


@pytest.mark.parametrize("way", [dp_sqlp.bulk, dp_sqlp.through_pipeline])
def test_under_an_enormous_budget_only_a_persons_later_events_are_missing(
    way: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From arrays or from a pipeline. Thresholds are always above 1: keys of one event are out."""
    monkeypatch.setattr(dp_sqlp, "BUDGET", dp.ApproxDP(1e9, 1e-9))
    (shown, _, l1, _), _ = way(SMALL)  # type: ignore[operator]
    there, missing = counted(SMALL)
    lone = sum(people == 1 for people in there.values())
    assert min(lone, missing) > 30
    assert shown == len(there) - lone
    assert l1 == pytest.approx(missing + lone, abs=2)


def test_figures_count_hidden_keys_as_nothing() -> None:
    found = dp_sqlp.figures(np.array([3, 10, 0]), np.array([np.nan, 6.0, np.nan]))
    assert found == (1, 4.0, 7.0, 5.0)


@pytest.mark.exhaustive
def test_a_tenth_of_the_benchmark_does_better_than_the_replica() -> None:
    """A tenth of people and keys, so that keys have as many events as at full size.

    A person's later events in a key are ten times as many there, so that the largest error is not
    compared: it is that of the most frequent key.
    """
    (shown, _, l1, _), _ = dp_sqlp.bulk(dp_sqlp.Data(dp_sqlp.PEOPLE // 10, 100, dp_sqlp.KEYS // 10))
    theirs = dp_sqlp.REPLICA[100]
    assert shown > 1.7 * theirs.shown / 10
    assert l1 < 0.65 * theirs.l1 / 10


def test_keys_have_a_power_law() -> None:
    events = keys.events_of(100_000)
    for n in (1, 2, 10, 100):
        assert np.mean(events >= n) == pytest.approx(n**-1.3, abs=0.004)
    assert events.max() <= 5000


@pytest.mark.parametrize("way", [*keys.PIPELINES, "noise"])
def test_every_way_runs(way: str) -> None:
    cost = keys.run(way, 60, 5, 2)
    assert cost.seconds > 0
    assert cost.memory > 10


def test_slopes_are_powers() -> None:
    assert keys.slopes([(10, 5), (100, 5), (100, 50)], [1, 10, 1000]) == "1.00, 2.00"


@pytest.mark.exhaustive
@pytest.mark.slow
def test_keys_that_are_selected_cost_about_what_listed_ones_do() -> None:
    """CPU time of whole pipelines, each in a process of its own, in turns: 1.05 times as much on a
    quiet machine, 2.1 once on a busy one. With a state a key it was more than five times less."""
    ways = [("listed", "shards")[i % 2] for i in range(4)]
    found = [keys.measure(way, 4000, 30, 1).seconds for way in ways]
    assert min(found[1::2]) < 2.5 * min(found[::2])


# make bench


@pytest.fixture
def as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Puts back what a benchmark sets for its whole process."""
    monkeypatch.setattr(worker_handlers, "STATE_CACHE_SIZE_MB", worker_handlers.STATE_CACHE_SIZE_MB)
    before = logging.root.manager.disable
    yield
    logging.disable(before)


# How many figures each section has in its quick form, with a target and in all.
FIGURES = {
    "streaming": (2, 2),
    "grpc": (2, 2),
    "prism": (2, 2),
    "bounded": (4, 4),
    "ticks": (4, 4),
    "step": (4, 4),
    "memory": (0, 1),
    "growth": (9, 18),
    "starts": (0, 2),
    "mechanisms": (0, len(dp.mechanisms.ALL) - 2),
    "peers": (0, 8),  # two of each library
    "files": (9, 16),
}


def test_every_section_is_tested() -> None:
    assert [*FIGURES] == [*bench.SECTIONS]


@pytest.mark.long
@pytest.mark.pipeline
@pytest.mark.usefixtures("as_before")
@pytest.mark.parametrize("section", FIGURES)
def test_every_section_has_its_figures(section: str, capsys: pytest.CaptureFixture[str]) -> None:
    """At sizes so small that their values say nothing."""
    assert bench.main(["--quick", "--only", section]) == 0
    shown = capsys.readouterr().out.splitlines()
    rows = [line for line in shown if line.startswith("|")]
    heads = sum(line.startswith("| ---") for line in rows)
    aimed = [line for line in rows if line.endswith(("| met |", "| missed |"))]
    # Of a library that is missing there are no figures, but a line that says so.
    missing = sum("left out: " in line for line in shown)
    aims, figures = FIGURES[section]
    if section == "prism" and missing:  # which is built outside of these tests
        aims = 0
    each = 3 if section == "files" else 2
    assert (len(aimed), len(rows) - 2 * heads + each * missing) == (aims, figures)
    assert not any(word in line for line in rows for word in ("nan", "inf "))


@pytest.mark.pipeline
@pytest.mark.usefixtures("as_before")
@pytest.mark.parametrize("task", ["ticks", "people", "count"])
def test_programs_without_privacy_count_the_same(task: str, tmp_path: Path) -> None:
    """What the command counts, under an enormous budget: else ratios compare different counts."""
    parquet, _ = files.write(tmp_path, 30_000)
    column, main = ("value", count.main) if task == "count" else ("count", ticks.main)
    words = [word.replace("{horizon}", "1500") for word in files.TASKS[task][1:]]
    out = tmp_path / "ours.csv"
    succeed(*words, "--input", parquet, "--rho", "1e14", "--output", out, main=main)
    ours = pd.read_csv(out)

    def counted(key: Any, step: Any, value: Any) -> list[tuple[str, int, int]]:
        rows = pd.DataFrame({"key": key, "step": step, "value": value.round()})
        if task == "count":  # rows of one time come in any order: what is said at its end
            rows = rows[~ours.duplicated(["key", "timestamp"], keep="last")]
        return [*rows.itertuples(index=False, name=None)]

    expected = counted(ours["key"], ours["step"], ours[column])
    for way in ("pandas", "duckdb", *["beam"] * (task != "people")):
        try:
            files.WAYS[way](parquet, task)
        except ImportError:
            continue
        theirs = pd.read_csv(f"{parquet}.{way}.csv", header=None if way == "beam" else 0)
        theirs = theirs.sort_values([*theirs.columns[:2]]).reset_index(drop=True)
        steps = theirs.iloc[:, 1] + (task != "count" and way != "beam")
        assert counted(theirs.iloc[:, 0], steps, theirs.iloc[:, -1]) == expected, way


@pytest.mark.parametrize("path", ["bounded", "streaming"])
@pytest.mark.parametrize("kind", ["elements", "ticks"])
def test_plain_counts_are_the_same_without_noise(kind: str, path: str) -> None:
    """The same keys, steps, times and sums: else ratios compare two different counts."""
    budget, keys, number = dp.ZCDP(1e14), 3, 5
    if kind == "ticks":
        private: Any = plain.ticks_of(path, keys, number, budget)
        without: Any = plain.PlainTicks(path)
    else:
        private = dp.PrefixCount(budget, 100, path=path)
        without = plain.PlainBounded() if path == "bounded" else plain.PlainStreaming()

    def releases(count: Any) -> list[Any]:
        events = plain.Events(4 * keys * number, keys, number * plain.TICK * 1_000_000)
        source = beam.ParDo(events).with_output_types(tuple[str, int])
        found = runners.run(lambda p: p | beam.Impulse() | source | "Count" >> count)
        return [
            (*seen.value[:3], round(seen.value.value), seen.micros) for seen in found.outputs[0]
        ]

    found = releases(private)
    assert found == releases(without)
    assert len(found) == keys * number * (1 if kind == "ticks" else 4)


def test_a_benchmark_that_loses_releases_is_an_error() -> None:
    """Less work is no speed."""
    with pytest.raises(AssertionError, match="1 releases too few"):
        plain.seconds(5, 1, plain.PlainStreaming(), releases=6)


@pytest.mark.parametrize("tree", peers.BY_HAND.values(), ids=peers.BY_HAND)
def test_trees_by_hand_count(tree: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "_SCALE", 1e-9)
    dofn, cell = tree(), Cell(PickleCoder())
    dofn.setup()
    placed = windowed_value.create(("a", 1), 7, (GlobalWindow(),))
    for n in range(1, 40):
        (release,) = dofn.process(("a", 1), placed, cell)
        assert release[:3] == ("a", n, 7)
        assert release.value == pytest.approx(n)


@pytest.mark.long
def test_variants_take_turns_and_the_best_counts() -> None:
    asked = list[str]()

    def variant(name: str, *seconds: float) -> Any:
        left = iter(seconds)

        def measured() -> float:
            asked.append(name)
            return next(left)

        return measured

    variants = {"a": variant("a", 3.0, 1.0, 2.0), "b": variant("b", 5.0, 6.0, 7.0)}
    assert timing.best_of(variants, 3) == {"a": 1.0, "b": 5.0}
    assert "".join(asked) == "ababab"


@pytest.mark.long
def test_time_is_that_of_the_processor() -> None:
    """Of this process and of children that have ended, and not time that passes."""
    assert timing.seconds_of(lambda: time.sleep(0.2), 1) < 0.1
    busy = "import time\nwhile time.process_time() < 0.3: pass"
    assert timing.seconds_of(lambda: subprocess.run([sys.executable, "-c", busy]), 1) > 0.25


def test_growth_is_a_power() -> None:
    found = timing.Growth("", (1, 4, 16), (2.0, 8.0, 128.0))
    assert found.last == pytest.approx(2)
    assert found.slope == pytest.approx(1.5)


def test_tables_say_what_was_missed() -> None:
    figures: list[Any] = [
        timing.Row("one", 1.25, 1.2, ours="5 us", theirs="4 us"),
        timing.Row("other", 128, 128, "bytes"),
        timing.Row("third", 1234.5, None, "ms"),
        timing.Growth("size", (1, 64), (1e-6, 6.4e-5)),
        timing.Note("left out"),
    ]
    assert timing.markdown(figures) == dedent(
        """\
        | target | ours | beside | figure | at most |  |
        | --- | --- | --- | --- | --- | --- |
        | one | 5 us | 4 us | 1.25x | 1.2x | missed |
        | other |  |  | 128 bytes | 128 bytes | met |

        | growth | CPU time by size | slope | at the end |
        | --- | --- | --- | --- |
        | size | 1: 1 us, 64: 64 us | 1.00 | 1.00 |

        | without a target | ours | beside | figure |
        | --- | --- | --- | --- |
        | third |  |  | 1,234 ms |

        - left out"""
    )


@pytest.mark.parametrize("steps", [1, 50, 5000])
def test_all_bands_have_the_errors_of_their_matrix(steps: int) -> None:
    n = min(steps, 300)
    f = np.cumprod([1.0, *(1 - 1 / (2 * np.arange(1, steps)))])
    C = np.array([[f[i - j] if i >= j else 0.0 for j in range(n)] for i in range(n)])
    norms = np.sqrt(np.cumsum(f * f)[::-1][:n])  # of columns of all steps
    rows = np.linalg.solve((C / norms).T, np.tri(n).T).T
    made = errors.normalized_root(steps)
    assert len(made) == steps
    assert made[:n] == pytest.approx((rows**2).sum(axis=1), rel=1e-4)


@pytest.mark.long
def test_simulated_streams_have_the_errors_that_are_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(errors, "_STEPS", 1 << 18)
    monkeypatch.setitem(sys.modules, "jax", None)
    assert errors.main(["--log2-horizons", "6"]) == 0
    said = capsys.readouterr()
    assert "jax_privacy was left out" in said.err
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in said.out.splitlines()]
    assert tuple(rows[0]) == errors.HEAD
    assert len(rows) == 6
    for _, name, *figures, _ in rows[2:]:
        largest, seen, mean, also = map(float, figures)
        assert largest >= mean
        assert seen == pytest.approx(largest, rel=0.12), name  # 4096 streams: 2.2 % each
        assert also == pytest.approx(mean, rel=0.08), name

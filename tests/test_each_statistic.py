"""The contract of statistics in pipelines: words, episodes and graphs, on every path and runner.

What each counts, and what it refuses, is in `test_sequences.py` and `test_graphs.py`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.transforms.window import GlobalWindow

import beam_dpcount as dp
from beam_dpcount.dofns.releases import Release, VectorRelease
from beam_dpcount.states.codecs import statistic_codec
from beam_dpcount.states.envelope import StateError
from beam_dpcount.statistics import Episodes, Words
from beam_dpcount.statistics.graph_counts import GraphStatistic
from tests.runners import RUNNERS, Row, each_path, feed, run
from tests.scripted import KeyedScript, ScriptedEntropy, random_script

BUDGET = dp.ZCDP(0.5)
COMMON: dict[str, Any] = {"budget": BUDGET, "horizon": 60}
GRAPH: dict[str, Any] = {**COMMON, "vertices": 7}
SEQUENCES: dict[str, Callable[..., Any]] = {
    "words": lambda **given: dp.SubstringCount(BUDGET, 60, [*"ab"], 2, **given),
    "dictionary": lambda **given: dp.SubstringCount(
        BUDGET, 60, [*"abc"], words=["ab", "cca", "b"], **given
    ),
    "episodes": lambda **given: dp.EpisodeCount(BUDGET, 60, [*"ab"], 2, **given),
    "spans": lambda **given: dp.EpisodeCount(
        BUDGET, 60, [*"abc"], words=["ab", "cca"], max_span=4, **given
    ),
}
GRAPHS: dict[str, Callable[..., Any]] = {
    "edges": lambda **given: dp.EdgeCount(**GRAPH, **given),
    "ruled edges": lambda **given: dp.EdgeCount(**GRAPH, max_degree=2, **given),
    "triangles": lambda **given: dp.TriangleCount(**GRAPH, max_degree=3, **given),
    "stars": lambda **given: dp.KStarCount(**GRAPH, k=2, max_degree=3, **given),
    "high": lambda **given: dp.HighDegreeCount(**GRAPH, threshold=3, **given),
    "degrees": lambda **given: dp.DegreeHistogram(**GRAPH, max_degree=4, **given),
    "node": lambda **given: dp.DegreeHistogram(
        **GRAPH, max_degree=6, asserted=True, relation="node", **given
    ),
    "forest": lambda **given: dp.SpanningForestCost(**GRAPH, max_weight=9, **given),
    "cuts": lambda **given: dp.CutGraph(**GRAPH, **given),
}
# Of the same dimension as one above: a state of one is not one of the other.
MORE: dict[str, Callable[..., Any]] = {
    "longer words": lambda **given: dp.StatisticCount(BUDGET, 60, Words("ab", 3), **given),
    "other words": lambda **given: dp.StatisticCount(
        BUDGET, 60, Words("abc", None, ("ab", "cab")), **given
    ),
    "other spans": lambda **given: dp.StatisticCount(
        BUDGET, 60, Episodes("abc", None, ("ab", "cab"), 5), **given
    ),
}
FAMILIES = {"sequences": SEQUENCES, "graphs": GRAPHS}
KINDS = {**SEQUENCES, **GRAPHS}
each_family = pytest.mark.parametrize("family", FAMILIES)


pytestmark = pytest.mark.usefixtures("no_state_cache")


def some_rows(family: str, n: int, seed: int = 1) -> list[Row]:
    """Letters or edges of few vertices, so that many come again; some of what is none."""
    chance = random.Random(seed)
    rows: list[Row] = []
    for i in range(n):
        content: Any = chance.choice("ab" if family == "sequences" else [None])
        if family == "graphs":
            content = tuple(chance.sample(range(7), 2))
        if chance.random() < 0.2:
            content = chance.choice([None, (0, 0), (0, 7), "z"])
        rows.append((chance.choice("xy"), content, 1_000_000 * i))
    return rows


def by_hand(count: Any, rows: list[Row], every: int = 1) -> list[Any]:
    """From the definitions, one step of statistic and counter at a time."""
    statistic, counter, releases = count.statistic, count.counter, []
    for key in sorted({row[0] for row in rows}):
        noise = KeyedScript(key, GlobalWindow(), counter.dimension, 50)
        memory, state = statistic.init(), counter.init()
        for other, content, micros in rows:
            if other != key or state[0] == counter.horizon:
                continue
            codes, _ = statistic.read(content)
            memory, additions = statistic.step(memory, codes)
            x = np.zeros(counter.dimension or 1, dtype=np.int64)
            for coordinate, amount in additions:
                x[coordinate] += amount
            number = x if counter.dimension else int(x[0]) * counter.unit
            state, value = counter.step(state, number, noise)
            if state[0] % every == 0:
                stddev, at = counter.variance(state[0]) ** 0.5, (key, state[0], micros)
                releases.append(
                    VectorRelease(*at, value.tolist(), stddev)
                    if counter.dimension
                    else Release(*at, value, stddev)
                )
    return releases


def check(counts: dict[str, Any], rows: list[Row], runner: str = "fn", every: int = 1) -> Any:
    """That counts in one pipeline give what is counted by hand; the outcome."""

    def build(pipeline: beam.Pipeline) -> Any:
        elements = pipeline | feed(rows)
        return tuple(elements | name >> count for name, count in counts.items())

    outcome = run(build, runner)
    for count, output in zip(counts.values(), outcome.outputs, strict=True):
        found, expected = [seen.value for seen in output], by_hand(count, rows, every)
        assert len(expected) > 10
        # All but for the last digits of the stddevs.
        assert [r[:4] for r in found] == [r[:4] for r in expected]
        stddevs = [[r.stddev for r in releases] for releases in (found, expected)]
        assert np.allclose(*stddevs, rtol=1e-12)
    return outcome


@pytest.mark.long
@each_family
@each_path
@pytest.mark.parametrize("runner", RUNNERS)
def test_releases_equal_steps_by_hand(family: str, path: str, runner: str) -> None:
    """All statistics in one pipeline, of one input, whose keys both go past the horizon."""
    rows, kinds = some_rows(family, 150), FAMILIES[family]
    counts = {kind: make(path=path, entropy=ScriptedEntropy()) for kind, make in kinds.items()}
    outcome = check(counts, rows, runner)
    assert [len(output) for output in outcome.outputs] == [120] * len(kinds)
    assert outcome.metrics()["past_horizon"] == 30 * len(kinds)


@pytest.mark.parametrize("kind", KINDS)
@each_path
def test_every_kind_of_state_is_resumed(kind: str, path: str) -> None:
    make, entropy = KINDS[kind], ScriptedEntropy()
    mechanisms = ("SmoothBinary", "Honaker", "Binned", "BLT")
    counts = {name: make(path=path, entropy=entropy, mechanism=name) for name in mechanisms}
    check(counts, some_rows("graphs" if kind in GRAPHS else "sequences", 60, seed=2))


@pytest.mark.long
@each_family
@each_path
def test_fewer_releases_of_the_same_stream(family: str, path: str) -> None:
    kinds, how = FAMILIES[family], {"path": path, "every": 7}
    counts = {kind: make(entropy=ScriptedEntropy(), **how) for kind, make in kinds.items()}
    outcome = check(counts, some_rows(family, 100), every=7)
    assert {seen.value.step % 7 for output in outcome.outputs for seen in output} == {0}


def test_a_share_is_used_once() -> None:
    ledger, ab = dp.Ledger(dp.ZCDP(0.5), "test"), [*"ab"]
    counts: dict[str, Any] = {
        "triangles": dp.TriangleCount(ledger.share(0.3, "triangles"), 9, 5, max_degree=2),
        "degrees": dp.DegreeHistogram(ledger.share(0.3, "degrees"), 9, 5, max_degree=2),
        "words": dp.SubstringCount(ledger.share(0.3, "words"), 9, ab, 2),
    }
    rows: list[Row] = [("x", (0, 1), 0)]

    def all_of(pipeline: beam.Pipeline) -> Any:
        elements = pipeline | feed(rows, tuple[str, Any])
        return tuple(elements | count for count in counts.values())

    run(all_of)
    for name, count in counts.items():
        with pytest.raises(ValueError, match=name):
            run(lambda p, count=count: p | feed(rows, tuple[str, Any]) | count)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*KINDS, *MORE])
def test_states_come_back_exactly_and_are_refused_by_others(kind: str) -> None:
    makes = {**KINDS, **MORE}
    count = makes[kind](mechanism="NormalizedBLT" if kind in SEQUENCES else None)
    statistic, counter = count.statistic, count.counter
    codec, noise = statistic_codec(counter, statistic), random_script(60, statistic.dimension)
    memory, state = statistic.init(), counter.init()
    for _, content, _ in some_rows("graphs" if kind in GRAPHS else "sequences", 60, seed=4):
        data = codec.encode(state, b"", statistic.pack(memory))
        back_state = codec.decode(data)
        back_memory = statistic.unpack(codec.memory_of(data))
        assert codec.encode(back_state, b"", statistic.pack(back_memory)) == data
        codes, _ = statistic.read(content)
        memory, additions = statistic.step(memory, codes)
        back_memory, again = statistic.step(back_memory, codes)
        assert list(again) == list(additions)
        x = statistic.vector(additions)
        state, value = counter.step_lattice(state, x, noise)
        back_state, same_value = counter.step_lattice(back_state, x, noise)
        assert np.array_equal(value, same_value)
    data = codec.encode(state, b"", statistic.pack(memory))
    broken = [data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :] for at in range(0, len(data), 7)]
    for wrong in (*broken, *(data[:cut] for cut in (0, 3, len(data) // 2, len(data) - 1))):
        with pytest.raises(StateError):
            codec.decode(wrong)
    for other, make in makes.items():
        if other != kind:
            another = make()
            with pytest.raises(StateError):
                statistic_codec(another.counter, another.statistic).decode(data)
            if another.statistic.dimension == statistic.dimension:
                with pytest.raises(StateError, match="other parameters"):
                    statistic_codec(counter, another.statistic).decode(data)


NUMBERS: dict[str, Callable[..., Any]] = {
    "numbers": lambda **given: dp.PrefixCount(**COMMON, bounds=(-1, 3), unit=0.5, **given),
    "endless numbers": lambda **given: dp.PrefixCount(BUDGET, **given),
    "items": lambda **given: dp.Histogram(**COMMON, domain=[*"abc"], max_items=2, **given),
    "fitted items": lambda **given: dp.Histogram(
        **COMMON, domain=[*"abc"], fit_total=True, **given
    ),
    "endless items": lambda **given: dp.Histogram(BUDGET, domain=[*"abc"], **given),
}

ELEMENTS = {**NUMBERS, **KINDS}


@pytest.mark.parametrize("make", ELEMENTS.values(), ids=ELEMENTS)
def test_a_named_count_is_the_count_of_its_statistic(make: Callable[..., Any]) -> None:
    named = make(every=2)
    given: dict[str, Any] = {"relation": named.relation, "every": named.every}
    plain = dp.StatisticCount(named.budget, named.horizon, named.statistic, **given)
    assert plain.counter.fingerprint == named.counter.fingerprint
    assert plain.labels == named.labels == named.statistic.labels
    of_counts = plain.annotations(), named.annotations()
    assert of_counts[0] == of_counts[1]


@pytest.mark.parametrize("make", ELEMENTS.values(), ids=ELEMENTS)
def test_the_default_relation_is_one_except_of_distinct_pairs(make: Callable[..., Any]) -> None:
    of_pairs = isinstance(make().statistic, GraphStatistic)
    if make is not GRAPHS["node"]:
        assert make().relation == ("edge" if of_pairs else "replace_one")


@pytest.mark.parametrize("make", GRAPHS.values(), ids=GRAPHS)
def test_distinct_pairs_have_no_replacement(make: Callable[..., Any]) -> None:
    statistic = make().statistic
    if isinstance(statistic, GraphStatistic):
        with pytest.raises(ValueError, match="must be 'edge' or 'node', got 'replace_one'"):
            statistic.change("replace_one")


def test_a_statistic_says_whether_it_needs_a_horizon() -> None:
    for name, make in KINDS.items():
        statistic = make().statistic
        with pytest.raises(ValueError, match="StatisticCount needs a horizon"):
            dp.StatisticCount(BUDGET, None, statistic, relation=make().relation)
        assert not statistic.endless, name
    for make in NUMBERS.values():
        assert make().statistic.endless

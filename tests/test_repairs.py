"""Isotonic regression and shrinkage across keys: against slow definitions, and in pipelines."""

from __future__ import annotations

import itertools
import math
import pickle
import random
from collections.abc import Callable, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.testing import test_stream
from apache_beam.transforms.window import FixedWindows, TimestampedValue
from apache_beam.utils.timestamp import Timestamp
from hypothesis import given, settings
from hypothesis import strategies as st

import beam_dpcount as dp
from beam_dpcount.counters.isotonic import Block, cap, isotonic, push
from beam_dpcount.counters.shrinkage import shrunk
from beam_dpcount.counters.sparse import sparse_for
from beam_dpcount.dofns.folds import IsotonicPast, IsotonicSeries, KnownStddevs, ShrunkKeys
from beam_dpcount.dofns.releases import Release, VectorRelease
from beam_dpcount.mechanisms import BinaryTree, NormalizedBLT, SquareRoot, Unbounded
from beam_dpcount.states.codecs import OTHER_FOLD, FoldCodec
from beam_dpcount.states.envelope import StateError
from beam_dpcount.transforms.ticks import TickNumbers
from tests.messages import says
from tests.runners import RUNNERS, feed, run
from tests.scripted import ScriptedEntropy
from tests.sentences import counted as at_ticks

SECOND = 1_000_000
PATHS = ("bounded", "streaming")
COUNTER = dp.calibrate(BinaryTree(64), dp.ZCDP(0.5))  # stddevs of steps differ

each_path = pytest.mark.parametrize("path", PATHS)
each_runner = pytest.mark.parametrize("runner", RUNNERS)


def releases_of(values: Sequence[Any], key: str = "k", counter: Any = COUNTER) -> list[Any]:
    """As a counter would give them."""
    made = []
    for t, value in enumerate(values, start=1):
        kind: Any = VectorRelease if isinstance(value, list) else Release
        made.append(kind(key, t, t * SECOND, value, math.sqrt(counter.variance(t))))
    return made


def weights_of(n: int) -> list[float]:
    """Not as the product makes them: 1 / variance."""
    return [1 / COUNTER.variance(t) for t in range(1, n + 1)]


def mean(values: Sequence[float], weights: Sequence[float]) -> float:
    return math.fsum(v * w for v, w in zip(values, weights, strict=True)) / math.fsum(weights)


def min_max(values: Sequence[float], weights: Sequence[float]) -> list[float]:
    """The isotonic regression by its min-max formula."""
    n = len(values)

    def between(s: int, u: int) -> float:
        return mean(values[s : u + 1], weights[s : u + 1])

    return [max(min(between(s, u) for u in range(t, n)) for s in range(t + 1)) for t in range(n)]


def past(values: Sequence[float], most: int = 10**6) -> list[float]:
    blocks: list[Block] = []
    last = []
    for value, weight in zip(values, weights_of(len(values)), strict=True):
        push(blocks, value, weight)
        cap(blocks, most)
        last.append(blocks[-1][0])
    return last


def folded(fold: Any, releases: Sequence[Any]) -> list[Any]:
    """Through the codec after every release, as on the streaming path."""
    codec, data, made = FoldCodec(fold.parameters), None, []
    for release in releases:
        state, more = fold.add(None if data is None else codec.decode(data), release)
        data = None if state is None else codec.encode(state)
        made += more
    return made


# Isotonic regression


@pytest.mark.long
def test_regressions_of_every_short_series() -> None:
    """Against the min-max formula, with three sets of weights."""
    for values in itertools.product((0.0, 1.0, 3.0, 4.0), repeat=5):
        for weights in ([1.0] * 5, [1.0, 5.0, 0.25, 2.0, 1.0], weights_of(5)):
            assert isotonic(values, weights) == pytest.approx(min_max(values, weights), rel=1e-12)
        expected = [min_max(values[:t], weights_of(t))[-1] for t in range(1, 6)]
        assert past(values) == pytest.approx(expected, rel=1e-12)


def test_the_example_of_the_docstring() -> None:
    flat = [Release("k", t, t, v, 2.0) for t, v in ((1, 5.0), (2, 1.0))]
    counter = _Flat()
    assert [r.value for r in folded(IsotonicPast(counter, 9), flat)] == [5.0, 3.0]
    assert [r.value for r in IsotonicSeries(counter).all(flat)] == [3.0, 3.0]


class _Flat:
    """A counter of which every release has the same error."""

    horizon = None

    def stddevs(self, n: int) -> Any:
        return np.full(n, 2.0)

    def variance(self, t: int) -> float:
        return 4.0


series = st.lists(st.floats(-100, 100), min_size=1, max_size=40)


@given(series, st.randoms(use_true_random=False))
@settings(max_examples=200, deadline=None)
def test_no_series_that_never_falls_is_nearer(values: list[float], chance: random.Random) -> None:
    """And whatever the exact one is, the fit is no farther from it than the releases are."""
    weights = [chance.uniform(0.1, 10) for _ in values]
    fit = isotonic(values, weights)
    assert (np.diff(fit) >= 0).all()

    def far(one: Any, other: Any) -> float:
        return float(np.dot(weights, np.square(np.asarray(one) - np.asarray(other))))

    for _ in range(5):
        exact = np.sort([chance.uniform(-100, 100) for _ in values])
        assert far(values, fit) <= far(values, exact) + 1e-6
        assert far(fit, exact) <= far(values, exact) + 1e-6


@pytest.mark.long
@pytest.mark.parametrize("most", [2, 3, 5])
def test_capped_stacks_are_the_regression_that_is_constant_where_they_were_merged(
    most: int,
) -> None:
    """The definition, computed anew at every step from all releases."""
    chance = random.Random(most)
    merged = lower = 0
    for _ in range(60):
        values = [t / 2 + chance.gauss(0, 3) for t in range(30)]
        weights = weights_of(30)
        glued, capped, exact = 1, past(values, most), past(values)
        for t in range(1, 31):
            glued = min(glued, t)
            atoms = [list(range(glued)), *([i] for i in range(glued, t))]
            means = [mean([values[i] for i in a], [weights[i] for i in a]) for a in atoms]
            masses = [math.fsum(weights[i] for i in a) for a in atoms]
            levels = min_max(means, masses)
            assert capped[t - 1] == pytest.approx(levels[-1], rel=1e-9, abs=1e-9)
            runs = [[0]]
            for i in range(1, len(levels)):
                if levels[i] > levels[i - 1] + 1e-12:
                    runs.append([i])
                else:
                    runs[-1].append(i)
            if len(runs) > most:
                glued = atoms[runs[1][-1]][-1] + 1
                merged += 1
            assert capped[t - 1] <= exact[t - 1] + 1e-9
            lower += capped[t - 1] < exact[t - 1] - 1e-9
    assert merged > 100
    assert (lower > 0) == (most < 5)


def test_the_usual_cap_changes_nothing_that_is_seen() -> None:
    """Of long streams that rise slowly, fast, in bursts, or not at all."""
    counter = dp.calibrate(NormalizedBLT(4000), dp.ApproxDP(1.0, 1e-6))
    steps = np.arange(4000)
    for xs in (steps % 20 == 0, steps >= 0, steps // 200 % 2 == 0, steps < 0):
        values = counter.release(xs.astype(np.int64)).tolist()
        stacks: list[list[Block]] = [[], []]
        for value in values:
            for blocks in stacks:
                push(blocks, value, 1.0)
            cap(stacks[0], 64)
            assert stacks[0][-1] == pytest.approx(stacks[1][-1])


# Folds


def test_the_fold_is_the_function() -> None:
    values = [math.sin(t) * 30 + t for t in range(1, 41)]
    stream = releases_of(values)
    for most in (2, 4, 64):
        made = folded(IsotonicPast(COUNTER, most), stream)
        expected = [max(x, 0.0) for x in past(values, most)]
        assert [r.value for r in made] == pytest.approx(expected, rel=1e-12)
        assert [r._replace(value=0.0) for r in made] == [r._replace(value=0.0) for r in stream]
    made = list(IsotonicSeries(COUNTER).all(stream))
    expected = np.maximum(min_max(values, weights_of(40)), 0).tolist()
    assert [r.value for r in made] == pytest.approx(expected, rel=1e-9)
    assert all(type(r.value) is float for r in made)


def test_nothing_is_below_0() -> None:
    stream = releases_of([-5.0, -1.0, -7.0, 2.0])
    for made in (folded(IsotonicPast(COUNTER, 9), stream), [*IsotonicSeries(COUNTER).all(stream)]):
        assert [r.value for r in made] == [0.0, 0.0, 0.0, 2.0]
        assert all(math.copysign(1, r.value) == 1 for r in made)


def test_each_coordinate_by_itself() -> None:
    chance = random.Random(3)
    columns = [[chance.gauss(t, 5) for t in range(25)] for _ in range(4)]
    columns[1] = [0.0] * 25  # one block
    columns[2] = [float(t) for t in range(25)]  # as many as there may be
    whole = releases_of([list(row) for row in zip(*columns, strict=True)])
    for run_all in (
        lambda stream: folded(IsotonicPast(COUNTER, 6), stream),
        lambda stream: list(IsotonicSeries(COUNTER).all(stream)),
    ):
        made = run_all(whole)
        for place, column in enumerate(columns):
            own = run_all(releases_of(column))
            assert [r.value[place] for r in made] == [r.value for r in own]
        assert all(type(r) is VectorRelease and type(r.value) is list for r in made)


def test_state_is_as_small_as_said() -> None:
    fold, state = IsotonicPast(COUNTER, 7), None
    for release in releases_of([[float(t), float(t)] for t in range(64)]):
        state, _ = fold.add(state, release)
        assert state is not None
        assert len(state[1]) <= 2 * (2 * 7 + 1)
    assert state is not None
    assert len(state[1]) == 2 * (2 * 7 + 1)


def test_releases_that_come_again_or_late_give_nothing() -> None:
    stream = releases_of([3.0, 1.0, 4.0, 1.0, 5.0])
    fold = IsotonicPast(COUNTER, 9)
    plain = folded(fold, stream)
    assert folded(fold, [release for release in stream for _ in range(2)]) == plain
    late = [stream[0], stream[2], stream[1], stream[3], stream[4]]
    without = [stream[0], *stream[2:]]
    assert folded(fold, late) == folded(fold, without)
    twice = list(IsotonicSeries(COUNTER).all([stream[0], *stream]))
    assert twice == list(IsotonicSeries(COUNTER).all(stream))


def test_states_are_for_their_own_fold() -> None:
    folds: list[Any] = [
        IsotonicPast(COUNTER, 9),
        IsotonicPast(COUNTER, 8),
        ShrunkKeys(COUNTER, ("a", "b")),
        ShrunkKeys(COUNTER, ("b", "a")),
    ]
    data = [FoldCodec(fold.parameters).encode((1, np.zeros(3))) for fold in folds]
    for i, j in itertools.permutations(range(len(folds)), 2):
        with pytest.raises(StateError, match=says(OTHER_FOLD)):
            FoldCodec(folds[i].parameters).decode(data[j])


def test_releases_of_another_counter_are_refused() -> None:
    (release,) = releases_of([3.0])
    whole = VectorRelease("", 1, SECOND, [3.0], release.stddev)
    for wrong in (release.stddev * 1.01, release.stddev / 2, math.nan):
        other = release._replace(stddev=wrong)
        with pytest.raises(ValueError, match="take Isotonic before averages"):
            folded(IsotonicPast(COUNTER, 9), [other])
        with pytest.raises(ValueError, match="take Isotonic before averages"):
            list(IsotonicSeries(COUNTER).all([other]))
        with pytest.raises(ValueError, match="take ShrinkAcrossKeys before averages"):
            ShrunkKeys(COUNTER, ("a",)).complete(whole._replace(stddev=wrong))


def test_known_stddevs_near_and_far() -> None:
    for mechanism in (BinaryTree(100_000), Unbounded(BinaryTree)):
        counter = dp.calibrate(mechanism, dp.ZCDP(1))
        known = KnownStddevs(counter)
        for t in (1, 2, 63, 64, 65, 1000, 65_536, 65_537, 100_000, 3):
            stddev = math.sqrt(counter.variance(t))
            assert known.check(Release("k", t, 0, 0.0, stddev), "x") == pytest.approx(stddev)


def test_without_noise_nothing_changes() -> None:
    counter = dp.calibrate(BinaryTree(64), dp.ZCDP(1e12))
    stream = releases_of([float(t) for t in range(20)], counter=counter)
    assert folded(IsotonicPast(counter, 64), stream) == stream
    assert list(IsotonicSeries(counter).all(stream)) == stream
    keys = ShrunkKeys(counter, ("a", "b"))
    ends = [Release(key, 1, 1, x, stream[0].stddev) for key, x in (("a", 2.0), ("b", 7.0))]
    assert [r.value for r in folded(keys, ends)] == pytest.approx([2.0, 7.0], abs=1e-3)


# Shrinkage


def slow(values: np.ndarray, stddev: float) -> np.ndarray:
    """The same by dense matrices over one grid, with densities in place of ratios."""
    top = math.ceil(max(values.max(), 0) / stddev * 4) + 200
    grid = np.arange(top) * stddev / 4
    near = np.zeros(top, dtype=bool)
    for value in values:
        first = max(math.floor(value / stddev * 4) - 24, 0)
        near[first : first + 49] = True
    prior = near / near.sum()
    density = np.exp(-0.5 * ((values[:, None] - grid) / stddev) ** 2)
    for _ in range(40):
        posterior = density * prior
        posterior /= posterior.sum(axis=1, keepdims=True)
        prior = posterior.mean(axis=0)
    posterior = density * prior
    return np.asarray((posterior / posterior.sum(axis=1, keepdims=True)) @ grid)


def test_shrinkage_is_the_dense_computation() -> None:
    generator = np.random.default_rng(1)
    for stddev in (0.5, 10.0, 300.0):
        exact = np.concatenate([np.zeros(40), generator.exponential(5 * stddev, 30), [90 * stddev]])
        values = exact + stddev * generator.normal(size=len(exact))
        assert shrunk(values, stddev) == pytest.approx(slow(values, stddev), abs=2e-3 * stddev)


def test_shrinkage_moves_with_order_and_scale() -> None:
    generator = np.random.default_rng(2)
    values = generator.normal(size=50) * 10 + np.arange(50)
    order = generator.permutation(50)
    assert shrunk(values[order], 10.0) == pytest.approx(shrunk(values, 10.0)[order])
    assert shrunk(values * 7, 70.0) == pytest.approx(7 * shrunk(values, 10.0))
    assert (np.diff(shrunk(np.sort(values), 10.0)) >= 0).all()  # ranks stay


def test_shrinkage_of_unusual_values() -> None:
    for values in ([0.0], [-1e6], [1e9], [-1e6, 1e6], [5.0] * 3, [1e15, 0.0]):
        for stddev in (1e-3, 1.0, 1e5):
            given = np.array(values)
            made = shrunk(given, stddev)
            assert np.isfinite(made).all()
            assert (made >= 0).all()
            kept = np.abs(made - np.maximum(given, 0)) <= 0.6 * stddev + 1e-9 * np.abs(given)
            assert kept[given >= 6 * stddev].all()  # alone: nothing to move it to
    assert shrunk(np.array([-3.0, 2.0]), 0.0).tolist() == [0.0, 2.0]


def test_shrinkage_lowers_the_error_and_says_its_bias() -> None:
    """300 keys, most of them near 0: less error over all, and large ones too low on average."""
    generator = np.random.default_rng(3)
    exact = np.concatenate([np.zeros(280), np.full(20, 40.0)])
    errors, raw, moved = [], [], []
    for _ in range(40):
        values = exact + 10 * generator.normal(size=300)
        made = shrunk(values, 10.0)
        errors.append(np.square(made - exact).mean())
        raw.append(np.square(np.maximum(values, 0) - exact).mean())
        moved.append((made - values).mean(where=exact > 0))
    assert np.mean(errors) < 0.5 * np.mean(raw)
    assert -7 < np.mean(moved) < -2


def test_keys_of_a_step_come_together_in_the_order_of_the_domain() -> None:
    """Every order of arrival of three keys, with others in between."""
    stddev = math.sqrt(COUNTER.variance(4))
    step = [
        Release(key, 4, 4 * SECOND, x, stddev) for key, x in (("a", 1.0), ("b", 9.0), ("c", 3.0))
    ]
    expected = shrunk(np.array([9.0, 1.0, 3.0]), stddev)
    for order in itertools.permutations([*step, Release("other", 4, 4 * SECOND, 99.0, stddev)]):
        made = folded(ShrunkKeys(COUNTER, ("b", "a", "c")), order)
        assert [r.key for r in made] == ["b", "a", "c"]
        assert [r.value for r in made] == pytest.approx(expected.tolist())
        assert {(r.step, r.timestamp, r.stddev) for r in made} == {(4, 4 * SECOND, stddev)}
        assert all(type(r) is Release and type(r.value) is float for r in made)
    for missing in itertools.combinations(step, 2):
        assert folded(ShrunkKeys(COUNTER, ("b", "a", "c")), missing) == []


# Pipelines


ROWS = [(key, i % 3 == 0, i * SECOND) for i in range(40) for key in ("x", "y")]
KEYS = ("b", "a", "c")


def counted(path: str, **options: Any) -> Any:
    entropy = ScriptedEntropy()
    given: dict[str, Any] = {"mechanism": "BinaryTree", "path": path, "entropy": entropy}
    return dp.PrefixCount(dp.ZCDP(0.5), 64, **{**given, **options})


def clock(path: str, **options: Any) -> Any:
    entropy = ScriptedEntropy()
    given: dict[str, Any] = {"mechanism": "BinaryTree", "path": path, "entropy": entropy}
    return TickNumbers(dp.ZCDP(0.5), 10, 0, horizon=4, keys=KEYS, **given, **options)


def created(releases: Sequence[Any]) -> beam.PTransform:
    stamped: Any = beam.Map(lambda r: TimestampedValue(r, Timestamp(micros=r.timestamp)))
    return beam.Create(list(releases), reshuffle=False) | stamped.with_output_types(Release)


def by_key(make: Callable[[list[Any]], list[Any]], releases: Sequence[Any]) -> list[Any]:
    made = []
    for key in sorted({release.key for release in releases}):
        own = [release for release in releases if release.key == key]
        made += make(sorted(own, key=lambda release: release.step))
    return made


@each_path
@each_runner
def test_isotonic_in_pipelines(path: str, runner: str) -> None:
    count = counted(path)

    def build(pipeline: beam.Pipeline) -> tuple[Any, ...]:
        releases = pipeline | feed(ROWS) | count
        made = [releases, releases | dp.post.Isotonic(count.counter, blocks=3, path=path)]
        if path == "bounded":
            made.append(releases | "Whole" >> dp.post.Isotonic(count.counter, "series"))
        return tuple(made)

    outputs = run(build, runner).outputs
    plain, *made = ([seen.value for seen in output] for output in outputs)
    assert made[0] == by_key(lambda own: folded(IsotonicPast(count.counter, 3), own), plain)
    if path == "bounded":
        assert made[1] == by_key(lambda own: [*IsotonicSeries(count.counter).all(own)], plain)
        assert made[0] != made[1]
    for output in outputs:
        assert len(output) == 80
        assert all(seen.micros == seen.value.timestamp for seen in output)


@each_path
@each_runner
def test_shrinkage_in_pipelines(path: str, runner: str) -> None:
    rows = [("a", 1, 3 * SECOND), ("c", 1, 13 * SECOND), ("c", 1, 14 * SECOND)]
    count = clock("bounded")
    plain = run(lambda p: p | feed(rows) | count).releases
    mixed = random.Random(5).sample(plain, len(plain))
    shrinking = dp.post.ShrinkAcrossKeys(count, path=path)
    (output,) = run(lambda p: p | created(mixed) | shrinking, runner).outputs
    made = [seen.value for seen in output]
    assert len(made) == 12
    assert all(seen.micros == seen.value.timestamp for seen in output)
    for step in range(1, 5):
        values = {r.key: r for r in plain if r.step == step}
        stddev = values["a"].stddev
        expected = shrunk(np.array([values[key].value for key in KEYS]), stddev)
        own = {r.key: r for r in made if r.step == step}
        assert [own[key].value for key in KEYS] == pytest.approx(expected.tolist())
        for key in KEYS:
            assert own[key]._replace(value=0.0) == values[key]._replace(value=0.0)


@each_path
def test_windows_are_kept_apart(path: str) -> None:
    count, ticks = counted(path), clock(path)

    def build(pipeline: beam.Pipeline) -> tuple[Any, ...]:
        windowed = pipeline | feed(ROWS) | beam.WindowInto(FixedWindows(20))
        releases = windowed | count
        return releases, releases | dp.post.Isotonic(count.counter, path=path)

    plain, made = run(build).outputs
    windows = {seen.window for seen in plain}
    assert len(windows) == 2
    for window in windows:
        mine = [seen.value for seen in plain if seen.window == window]
        expected = by_key(lambda own: folded(IsotonicPast(count.counter, 64), own), mine)
        assert [seen.value for seen in made if seen.window == window] == expected

    def build_ticks(pipeline: beam.Pipeline) -> tuple[Any, ...]:
        rows = [("a", 1, at * SECOND) for at in (1, 12, 23, 34)]
        windowed = pipeline | feed(rows) | beam.WindowInto(FixedWindows(20))
        return (windowed | ticks | dp.post.ShrinkAcrossKeys(ticks, path=path),)

    (shrunken,) = run(build_ticks).outputs
    assert len(shrunken) == 12
    for seen in shrunken:
        assert seen.window == f"[{(seen.value.timestamp // SECOND - 1) // 20 * 20}.0, " + (
            f"{(seen.value.timestamp // SECOND - 1) // 20 * 20 + 20}.0)"
        )


@pytest.mark.long
def test_every_kind_of_count_that_never_falls_is_taken() -> None:
    """Vectors, ticks of listed and of selected keys, and people."""
    budget = dp.ApproxDP(5.0, 1e-3)
    options: dict[str, Any] = {"horizon": 4, "entropy": ScriptedEntropy(1)}
    rows = [(key, "ab"[i % 2], (i % 38) * SECOND) for key in ("a", "b") for i in range(90)]
    one: Any = {"value": lambda event: 1}
    counts: list[Any] = [
        dp.Histogram(budget, 200, ["a", "b"], entropy=ScriptedEntropy(1)),
        dp.Histogram(budget, 200, ["a", "b"], fit_total=True, entropy=ScriptedEntropy(1)),
        dp.PrefixCount(
            budget, None, mechanism=Unbounded(NormalizedBLT), entropy=ScriptedEntropy(1), **one
        ),
        TickNumbers(budget, 10, 0, keys=KEYS, **options, **one),
        TickNumbers(budget, 10, 0, keys=dp.SelectKeys(shards=2), **options, **one),
    ]
    for count in counts:

        def build(pipeline: beam.Pipeline, count: Any = count) -> Any:
            releases = pipeline | feed(rows) | count
            past = releases | dp.post.Isotonic(count.counter)
            return past, releases | "Whole" >> dp.post.Isotonic(count.counter, over="series")

        outcome = run(build)
        assert len(outcome.outputs[0]) == len(outcome.outputs[1]) > 0
        for key in ("a", "b"):
            own = [seen.value for seen in outcome.outputs[1] if seen.value.key == key]
            assert (np.diff([np.atleast_1d(r.value) for r in own], axis=0) >= 0).all()


def test_a_stream_gives_each_release_as_it_comes() -> None:
    source: Any = test_stream.TestStream()
    stream = releases_of([5.0, 1.0, 7.0])
    for release in stream:
        source.add_elements([TimestampedValue(release, Timestamp(micros=release.timestamp))])
        source.advance_processing_time(1)
    source = source.advance_watermark_to_infinity()

    def build(pipeline: beam.Pipeline) -> Any:
        typed: Any = beam.Map(lambda r: r).with_output_types(Release)
        return pipeline | source | typed | dp.post.Isotonic(COUNTER)

    outcome = run(build, "bundles", ["--streaming"])
    assert outcome.releases == folded(IsotonicPast(COUNTER, 64), stream)


# Refusals


BUDGET = dp.ZCDP(0.5)


@pytest.mark.parametrize(
    ("count", "message"),
    [
        (lambda: dp.PrefixCount(BUDGET, 9, bounds=(-1, 1)), "may be negative .down to -1"),
        (lambda: dp.Histogram(BUDGET, 9, ["a"], removals=True), "may be negative"),
        (lambda: TickNumbers(BUDGET, 9, 0, horizon=2, keys=["a"], bounds=(-2, 1)), "down to -2"),
        (lambda: dp.DegreeHistogram(BUDGET, 9, 3, max_degree=2), "may be negative"),
        (lambda: dp.SpanningForestCost(BUDGET, 9, 3, 2), "may be negative"),
        (lambda: dp.CutGraph(BUDGET, 9, 3), "may be negative"),
        (
            lambda: dp.PrefixCount(BUDGET, 9, mechanism=SquareRoot(9, decay=0.9)),
            "as they may fall: leave out momentum and decay",
        ),
        (
            lambda: dp.PrefixCount(
                dp.PureDP(1.0), mechanism=sparse_for(9, 999, dp.PureDP(1.0)), horizon=None
            ),
            "releases of Sparse have no stddev",
        ),
    ],
)
def test_counts_that_may_fall_are_refused(count: Callable[[], Any], message: str) -> None:
    for over in ("past", "series"):
        with pytest.raises(ValueError, match=message):
            dp.post.Isotonic(count().counter, over)


def test_counts_that_never_fall_are_taken() -> None:
    for count in (
        dp.EdgeCount(BUDGET, 9, 3),
        dp.TriangleCount(BUDGET, 9, 3, max_degree=2),
        dp.HighDegreeCount(BUDGET, 9, 3, 1),
        dp.SubstringCount(BUDGET, 9, ["a", "b"], 1),
        dp.EpisodeCount(BUDGET, 9, ["a", "b"], 1),
        dp.PrefixCount(BUDGET, 9, bounds=(0, 5), unit=0.5),
    ):
        dp.post.Isotonic(count.counter)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: dp.post.Isotonic(COUNTER, "future"),
            "over must be one of past, series, got 'future'",
        ),
        (lambda: dp.post.Isotonic(COUNTER, blocks=1), "blocks must be at least 2, got 1"),
        (
            lambda: dp.post.Isotonic(COUNTER, blocks=0),
            "blocks must be a whole number from 1, got 0",
        ),
        (lambda: dp.post.Isotonic(COUNTER, path="fast"), "path must be one of"),
        (lambda: dp.post.Isotonic(COUNTER, "series", path="streaming"), 'use over="past"'),
        (lambda: dp.post.Isotonic(COUNTER, blocks=10**6), "at most 1000000 can be rewritten"),
        (
            lambda: dp.post.ShrinkAcrossKeys(
                TickNumbers(BUDGET, 9, 0, horizon=2, keys=["a"], bounds=(-2, 1))
            ),
            "may be negative .down to -2",
        ),
        (
            lambda: dp.post.ShrinkAcrossKeys(
                TickNumbers(dp.ApproxDP(1.0, 1e-6), 9, 0, horizon=2, keys=dp.SelectKeys())
            ),
            "keys that nobody listed are shown for being large",
        ),
        (lambda: dp.post.ShrinkAcrossKeys(clock("auto"), path="x"), "path must be one of"),
    ],
)
def test_constructor_refusals(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_arguments_of_other_types_are_refused() -> None:
    count: Any = counted("auto")
    with pytest.raises(
        TypeError, match=r"counter must be that of a transform, e\.g\. count\.count"
    ):
        dp.post.Isotonic(count)
    for other in (count, count.counter, KEYS, dp.Histogram(BUDGET, 9, ["a"])):
        with pytest.raises(TypeError, match="count must be the TickCount of one number"):
            dp.post.ShrinkAcrossKeys(other)
    pipeline = beam.Pipeline()
    vectors = pipeline | beam.Create([]).with_output_types(VectorRelease)
    with pytest.raises(TypeError, match=r"of type Release, but they are .*VectorRelease'>$"):
        _ = vectors | dp.post.ShrinkAcrossKeys(clock("auto"))


def test_unbounded_input_has_no_whole_series() -> None:
    pipeline = beam.Pipeline()
    typed: Any = beam.Map(lambda r: r).with_output_types(Release)
    made = pipeline | test_stream.TestStream() | typed
    for path in ("auto", "bounded"):
        with pytest.raises(ValueError, match='use over="past"'):
            _ = made | path >> dp.post.Isotonic(COUNTER, "series", path=path)
    with pytest.raises(ValueError, match="would wait for its end"):
        _ = made | dp.post.Isotonic(COUNTER, path="bounded")


def test_people_have_keys_too() -> None:
    clock: dict[str, Any] = {"tick": 10, "start": 0, "horizon": 2, "keys": ["a", "b"]}
    people = at_ticks(BUDGET, dp.People(), **clock, users=dp.Users(str, events=1))
    shrinking = dp.post.ShrinkAcrossKeys(people)
    assert pickle.loads(pickle.dumps(shrinking))._fold.parameters == ("shrunk", "a", "b")

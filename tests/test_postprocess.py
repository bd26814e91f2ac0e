"""Post-processing: pure functions on small inputs, exact variances, the same on every runner."""

from __future__ import annotations

import itertools
import math
import pickle
import random
import struct
import zlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.runners.direct.direct_runner import BundleBasedDirectRunner
from apache_beam.testing import test_stream
from apache_beam.transforms.window import FixedWindows, TimestampedValue
from apache_beam.utils.timestamp import Timestamp

import beam_dpcount as dp
from beam_dpcount import mechanisms
from beam_dpcount.counters.change import ItemsChange
from beam_dpcount.counters.sliding import (
    SlidingStddevs,
    difference_variance,
    difference_variances,
)
from beam_dpcount.dofns.folds import RESTARTS, Difference, TopOfKeys, top_items
from beam_dpcount.dofns.releases import Release, TopRelease, VectorRelease
from beam_dpcount.mechanisms import (
    BLT,
    BinaryTree,
    Binned,
    Honaker,
    KAry,
    NormalizedBLT,
    SlidingBLT,
    SmoothBinary,
    Sparse,
    SquareRoot,
    TwoLevel,
    Unbounded,
)
from beam_dpcount.mechanisms.trees import Forest
from beam_dpcount.states.codecs import OTHER_FOLD, FoldCodec
from beam_dpcount.states.envelope import StateError
from beam_dpcount.statistics.items import largest
from beam_dpcount.transforms.histograms import Histogram
from beam_dpcount.transforms.postprocess import (
    NonNegative,
    Rounded,
    RunningAverage,
    SlidingSum,
    TopK,
    TopKPerTick,
    non_negative,
    rounded,
    running_average,
)
from beam_dpcount.transforms.sentence import TickCount
from beam_dpcount.transforms.ticks import TickNumbers
from tests.messages import says
from tests.runners import RUNNERS, feed, root, run
from tests.scripted import ScriptedEntropy, SeededNoise

PATHS = ("bounded", "streaming")
DOMAIN = ("a", "b", "c")
SECOND = 1_000_000

each_path = pytest.mark.parametrize("path", PATHS)
each_runner = pytest.mark.parametrize("runner", RUNNERS)


def scalar(value: float, step: int = 1, key: str = "k", stddev: float = 2.0) -> Release:
    return Release(key, step, step * SECOND, value, stddev)


def vector(values: Sequence[float], step: int = 1, key: str = "k") -> VectorRelease:
    return VectorRelease(key, step, step * SECOND, list(values), 2.0)


# One release


def test_the_largest_values_and_their_ties() -> None:
    """All vectors of four small numbers, against a sort by (value down, place up)."""
    for values in itertools.product((-1.5, 0.0, 2.0), repeat=4):
        ranked = sorted(range(4), key=lambda i, v=values: (-v[i], i))
        for k in range(1, 5):
            assert largest(values, k) == ranked[:k]
            top = top_items(vector(values, 7), k, ("p", "q", "r", "s"))
            assert top == TopRelease(
                "k",
                7,
                7 * SECOND,
                ["pqrs"[i] for i in ranked[:k]],
                [values[i] for i in ranked[:k]],
                2.0,
            )


def test_a_top_of_other_labels_is_refused() -> None:
    for values in ([1.0, 2.0], [1.0] * 4):
        with pytest.raises(ValueError, match="values, but there are 3 labels: give those"):
            top_items(vector(values), 1, DOMAIN)


VALUES = [-7.5, -1.0, -0.5, -0.4, 0.0, 0.49, 0.5, 1.5, 2.0, 1e9]


def test_functions_of_one_value() -> None:
    for x in VALUES:
        for step in (1, 2, 10):
            average = running_average(scalar(x, step))
            assert average == Release("k", step, step * SECOND, x / step, 2.0 / step)
        assert non_negative(scalar(x)) == scalar(x if x > 0 else 0.0)
        for unit in (0.25, 1.0, 10.0, 3.0):
            value = rounded(scalar(x), unit).value
            assert value == pytest.approx(round(x / unit) * unit)
            assert abs(value - x) <= unit / 2
            assert math.copysign(1, value) == 1 or value < 0  # no -0.0
            assert rounded(scalar(x), unit).stddev == 2.0
    assert rounded(scalar(-0.2), 0.25).value == -0.25
    assert [rounded(scalar(x), 1.0).value for x in (0.5, 1.5, -0.5)] == [0.0, 2.0, 0.0]


def test_vectors_are_taken_coordinate_by_coordinate() -> None:
    release = vector(VALUES, 4)
    assert running_average(release) == VectorRelease(
        "k", 4, 4 * SECOND, [x / 4 for x in VALUES], 0.5
    )
    assert non_negative(release).value == [max(x, 0) for x in VALUES]
    assert rounded(release, 1.0).value == [float(round(x)) for x in VALUES]
    assert release == vector(VALUES, 4)  # nothing is changed in place
    for made in (running_average(release), non_negative(release), rounded(release, 2.0)):
        assert type(made) is VectorRelease
        assert all(type(x) is float for x in made.value)


def test_whole_numbers_are_values_too() -> None:
    assert rounded(Release("k", 1, 0, 3, 1.0), 2.0).value == 4.0
    assert non_negative(Release("k", 1, 0, -3, 1.0)).value == 0.0


# The variance of a difference


@dataclass(frozen=True)
class OwnTree(Forest):
    """A mechanism that the closed forms do not know: nodes of threes."""

    l1_sensitivity = l2_sensitivity_squared = 9
    state_size = 99

    def step(self, state: Any, x: Any, noise: Any) -> Any:
        raise NotImplementedError

    def parents(self, n: int) -> Any:
        t = np.arange(1, n + 1)
        return np.where(t % 3 == 0, t - 3, t - 1)

    def row_norm2(self, t: int) -> float:
        return t // 3 + t % 3

    def max_row_norm2(self) -> float:
        return max(map(self.row_norm2, range(1, self.horizon + 1)))

    def mean_row_norm2(self) -> float:
        return 1.0


def members(horizon: int) -> list[Any]:
    return [
        *(kind(horizon) for kind in mechanisms.ALL),
        SmoothBinary(horizon, balanced=True),
        TwoLevel(horizon, block=1),
        TwoLevel(horizon, block=horizon),
        KAry(horizon, 2, subtraction=False),
        KAry(horizon, subtraction=False),
        KAry(horizon, 3),
        KAry(horizon, 9),
        SquareRoot(horizon, momentum=0.3, decay=0.9),
        Binned(horizon, c=0.5),
        BLT(horizon, 2),
        NormalizedBLT(horizon, 4),
        OwnTree(horizon),
    ]


HORIZONS = (2, 3, 7, 8, 27, 100, 600)


@pytest.mark.slow
@pytest.mark.parametrize("place", range(len(members(2))), ids=lambda i: members(2)[i].name)
def test_difference_variances_against_dense_decoders(place: int) -> None:
    """Every pair of steps up to 27; all steps at some lags beyond."""
    for horizon in HORIZONS:
        mechanism = members(horizon)[place]
        budget = dp.PureDP(0.5) if "gaussian" not in mechanism.laws else dp.ZCDP(0.1)
        counter = dp.calibrate(mechanism, budget, dp.Change(-1, 2), unit=0.5)
        L = np.vstack([np.zeros(mechanism.draws(horizon)), mechanism.decoder(horizon)])
        each = range(1, horizon + 2)
        lags = each if horizon <= 27 else (1, 2, 9, 31, horizon // 2, horizon - 1, horizon)
        scale = counter.law.variance * counter.grid**2
        t = np.arange(1, horizon + 1)
        for lag in lags:
            rows = L[t] - L[np.maximum(t - lag, 0)]
            expected = scale * np.square(rows).sum(axis=1)
            given = difference_variances(counter, t, lag)
            assert given == pytest.approx(expected, rel=1e-11), (horizon, lag)
            assert difference_variance(counter, horizon, lag) == pytest.approx(given[-1], rel=1e-12)


def weights(mechanism: BLT, t: int) -> np.ndarray:
    """Row t of a BLT's decoder: what each y weighs in n_t = sum of D_s (b_s - b_(s-1))."""
    p, D = mechanism._poles, mechanism._column_scales(t + 1)
    of_b = np.append(D[: t - 1] - D[1:t], D[t - 1])
    row, fading = np.zeros(t), np.zeros(len(p.e))
    for k in range(t - 1, -1, -1):
        row[k] = of_b[k] + p.w @ fading
        fading = of_b[k] + (1 - p.e) * fading
    return row


@pytest.mark.slow
@pytest.mark.parametrize("kind", [BLT, NormalizedBLT])
def test_difference_variances_of_long_blts(kind: Any) -> None:
    """Beyond dense decoders: row by row, where scales are long constant and where they fall."""
    counter = dp.calibrate(kind(20_000), dp.ZCDP(0.5))
    scale = counter.law.variance * counter.grid**2
    for s, lag in ((1, 1), (500, 3), (9000, 5000), (15_000, 4999), (18_976, 1024), (19_999, 1)):
        row, before = weights(counter.mechanism, s + lag), weights(counter.mechanism, s)
        row[:s] -= before
        expected = scale * np.square(row).sum()
        assert difference_variance(counter, s + lag, lag) == pytest.approx(expected, rel=1e-11)


@pytest.mark.slow
def test_difference_variances_of_long_trees() -> None:
    """By sets of nodes, at horizons whose arrays nobody holds."""
    horizon, chance = 2**40, random.Random(1)
    for mechanism in (
        BinaryTree(horizon),
        SmoothBinary(horizon),
        KAry(horizon, 3),
        TwoLevel(horizon, block=1000),
    ):
        counter = dp.calibrate(
            mechanism, dp.PureDP(1) if isinstance(mechanism, KAry) else dp.ZCDP(1)
        )
        for _ in range(300):
            t = chance.randrange(2, 2 ** chance.randrange(2, 41))
            lag = min(t - 1, chance.randrange(1, 2 ** chance.randrange(1, 40)))
            if isinstance(mechanism, TwoLevel):
                t = t % 500_000 + 2
                lag = min(t - 1, lag)
            apart = sum(abs(n) for n in (nodes(mechanism, t) - nodes(mechanism, t - lag)).values())
            expected = apart * counter.law.variance
            assert difference_variance(counter, t, lag) == pytest.approx(expected, rel=1e-12)


class Nodes(defaultdict[Any, int]):
    """With which sign each node is in a release."""

    def __sub__(self, other: Nodes) -> Nodes:
        return Nodes(int, {n: self[n] - other[n] for n in {*self, *other}})


def nodes(mechanism: Any, t: int) -> Nodes:
    """The nodes of release t, from the words of the mechanisms' docstrings."""
    found = Nodes(int)
    if isinstance(mechanism, BinaryTree):
        for i in range(t.bit_length()):
            if t >> i & 1:
                found[i, t >> i << i] += 1
    elif isinstance(mechanism, TwoLevel):
        blocks, size = t // mechanism.size, mechanism.size
        for n in range(blocks):
            found["block", n] += 1
        for n in range(blocks * size + 1, t + 1):
            found["item", n] += 1
    elif isinstance(mechanism, KAry):
        k, rest, weight, level = 3, t, 1, 0
        while rest:
            digit = (rest + 1) % 3 - 1
            block = rest if digit < 0 else rest - 1  # q, or the one before it
            if digit:
                found[level, block] += digit
            rest, weight, level = (rest - digit) // k, weight * k, level + 1
    else:  # the 1-bits of v_(t+1) whose node has items below it
        h, zeros = mechanism.shape
        leaf = leaf_at(h, zeros, t)
        for i in range(h):
            if leaf >> i & 1:
                missing = zeros - (h - i - ((leaf >> i) - 1).bit_count())
                if 0 <= missing <= i:
                    found[i, (leaf >> i) - 1] += 1
    return found


def leaf_at(h: int, zeros: int, place: int) -> int:
    """The place-th, from 0, of the h-bit numbers with so many zeros."""
    leaf = 0
    for left in range(h - 1, -1, -1):
        below = math.comb(left, zeros - 1) if zeros else 0
        leaf *= 2
        if place >= below:
            place, leaf = place - below, leaf + 1
        else:
            zeros -= 1
    return leaf


def test_difference_variances_of_unbounded_by_its_parts() -> None:
    counter = dp.calibrate(Unbounded(BinaryTree), dp.ZCDP(0.5))
    total = counter.law.variance
    for t in range(1, 70):
        for lag in range(1, t + 3):
            if lag >= t:
                expected = counter.variance(t)
            else:
                (i, place), (j, before) = Unbounded.place(t), Unbounded.place(t - lag)
                expected = (i - j) * total
                if i == j:
                    expected += difference_variance(counter.of_epoch(i), place, lag)
                else:
                    expected += counter.of_epoch(i).variance(place)
                    expected += counter.of_epoch(j).variance(before)
            assert difference_variance(counter, t, lag) == pytest.approx(expected, rel=1e-12)


SAMPLES = 20_000  # a sample variance has a relative deviation of 1 %


@pytest.mark.slow
@pytest.mark.parametrize(
    "mechanism",
    [
        BinaryTree(60),
        SmoothBinary(60, balanced=True),
        KAry(60, 3),
        Honaker(60),
        NormalizedBLT(60),
        Binned(60),
        Unbounded(BinaryTree),
    ],
    ids=lambda m: m.name,
)
def test_sliding_sums_vary_as_said(mechanism: Any) -> None:
    """Of 20,000 streams, within 6 deviations (a false alarm in 10^8), not 10 % more or less."""
    budget = dp.PureDP(9.0) if isinstance(mechanism, KAry) else dp.ZCDP(4.0)
    counter = dp.calibrate(mechanism, budget, ItemsChange(), SAMPLES)
    noise: Any = SeededNoise(counter.law, 5, SAMPLES)
    values = counter.release(np.zeros((60, SAMPLES), dtype=np.int64), noise)
    for t, lag in ((5, 1), (40, 8), (60, 59), (33, 20), (7, 7), (16, 30)):
        sums = values[t - 1] - (values[t - lag - 1] if t > lag else 0)
        ratio = sums.var() / difference_variance(counter, t, lag)
        # Laplace noise has heavier tails: a fourth moment of 6 variances squared in place of 3.
        deviation = math.sqrt((5 if isinstance(mechanism, KAry) else 2) / SAMPLES)
        assert abs(ratio - 1) < 6 * deviation
        assert not abs(ratio * 0.8 - 1) < 6 * deviation
        assert not abs(ratio * 1.25 - 1) < 6 * deviation


def test_differences_without_an_exact_variance_are_refused() -> None:
    sparse = dp.calibrate(Sparse(5, 5), dp.PureDP(1))
    with pytest.raises(ValueError, match=r"Sparse.* is not linear.* use Unbounded"):
        difference_variance(sparse, 5, 2)
    own = dp.calibrate(OwnTree(4097), dp.ZCDP(1))
    with pytest.raises(
        ValueError, match="not known for OwnTree beyond a horizon of 4096, got 4097"
    ):
        difference_variance(own, 5, 2)
    with pytest.raises(ValueError, match="not known for OwnTree"):
        SlidingSum(3, own)
    counter = dp.calibrate(BinaryTree(9), dp.ZCDP(1))
    for t in (0, 10):
        with pytest.raises(ValueError, match="t must be from 1 to the horizon 9"):
            difference_variance(counter, t, 2)
    with pytest.raises(ValueError, match="lag must be a whole number from 1, got 0"):
        difference_variance(counter, 3, 0)


def test_stddevs_come_in_blocks() -> None:
    for mechanism in (BinaryTree(3000), Unbounded(BinaryTree)):
        counter = dp.calibrate(mechanism, dp.ZCDP(1))
        stddevs = SlidingStddevs(counter, 7)
        for t in (1, 7, 8, 1024, 1025, 3000, 2):
            own, sliding = stddevs.at(t)
            assert own == pytest.approx(math.sqrt(counter.variance(t)))
            assert sliding == pytest.approx(math.sqrt(difference_variance(counter, t, 7)))
    # More blocks than are kept; the last one is cut off by the horizon.
    counter = dp.calibrate(BinaryTree(70_000), dp.ZCDP(1))
    stddevs = SlidingStddevs(counter, 7)
    for t in (*range(1, 70_001, 1024), 70_000, 1):
        assert stddevs.at(t)[0] == pytest.approx(math.sqrt(counter.variance(t)))


# Folds, without Beam


COUNTER = dp.calibrate(BinaryTree(64), dp.ZCDP(0.5))


def releases_of(values: Sequence[float], key: str = "k") -> list[Release]:
    """As COUNTER would give them."""
    return [
        Release(key, t, t * SECOND, float(value), math.sqrt(COUNTER.variance(t)))
        for t, value in enumerate(values, start=1)
    ]


def folded(fold: Any, releases: Sequence[Any]) -> list[Any]:
    """Through the codec after every release, as on the streaming path."""
    codec, data, given = FoldCodec(fold.parameters), None, []
    for release in releases:
        state, more = fold.add(None if data is None else codec.decode(data), release)
        data = None if state is None else codec.encode(state)
        given += more
    return given


@pytest.mark.parametrize("window", [1, 2, 3, 7, 20, 30])
def test_sliding_sums_of_a_stream(window: int) -> None:
    values = [math.sin(t) * 100 for t in range(1, 21)]
    given = folded(Difference(window, COUNTER), releases_of(values))
    assert [release.step for release in given] == list(range(1, 21))
    for t, release in enumerate(given, start=1):
        before = values[t - window - 1] if t > window else 0.0
        assert release.value == values[t - 1] - before
        assert release.stddev == pytest.approx(
            math.sqrt(difference_variance(COUNTER, t, window)), rel=1e-12
        )
        assert (release.key, release.timestamp) == ("k", t * SECOND)


def test_sliding_sums_of_vectors() -> None:
    plain = releases_of(range(20))
    whole = [
        VectorRelease(r.key, r.step, r.timestamp, [r.value**2, -r.value], r.stddev) for r in plain
    ]
    given = folded(Difference(4, COUNTER), whole)
    squares = folded(Difference(4, COUNTER), [r._replace(value=r.value**2) for r in plain])
    minus = folded(Difference(4, COUNTER), [r._replace(value=-r.value) for r in plain])
    for release, first, second in zip(given, squares, minus, strict=True):
        assert release == VectorRelease(*first[:3], [first.value, second.value], first.stddev)  # type: ignore[call-arg]


def test_sliding_sums_of_every_order_of_arrival() -> None:
    """All sub-sequences and orders of five steps: what is given out is right, and once."""
    stream = releases_of([3, 1, 4, 1, 5])
    values = {release.step: release.value for release in stream}
    for size in range(6):
        for arrived in itertools.permutations(stream, size):
            for window in (1, 2, 3):
                given = folded(Difference(window, COUNTER), arrived)
                steps = [release.step for release in given]
                assert steps == sorted(set(steps))
                for release in given:
                    before = values[release.step - window] if release.step > window else 0
                    assert release.value == values[release.step] - before
                # In order, all whose partner came are given out.
                came = [release.step for release in arrived]
                if came == sorted(came):
                    assert steps == [t for t in came if t <= window or t - window in came]


def test_a_release_that_comes_again_gives_nothing() -> None:
    stream = releases_of([3, 1, 4, 1, 5, 9])
    twice = [release for release in stream for _ in range(2)]
    assert folded(Difference(2, COUNTER), twice) == folded(Difference(2, COUNTER), stream)


def test_a_release_that_comes_late_is_still_subtracted() -> None:
    one, two, three, four, five = releases_of([3, 1, 4, 1, 5])
    given = folded(Difference(2, COUNTER), [one, three, two, four, five])
    assert [(r.step, r.value) for r in given] == [(1, 3), (3, 1), (4, 0), (5, 1)]


def test_sliding_sums_of_another_counter_are_refused() -> None:
    (release,) = releases_of([3])
    for wrong in (release.stddev * 1.01, release.stddev / 2, math.nan):
        with pytest.raises(ValueError, match="give the counter of the transform"):
            folded(Difference(2, COUNTER), [release._replace(stddev=wrong)])


def test_tops_of_keys_wait_for_all_keys() -> None:
    """Every order of arrival of three keys, with others in between."""
    step = [scalar(x, 4, key) for x, key in ((1.0, "a"), (3.0, "b"), (3.0, "c"))]
    other = scalar(99.0, 4, "other")
    for order in itertools.permutations([*step, other]):
        for k in (1, 2, 3):
            (top,) = folded(TopOfKeys(k, DOMAIN), order)
            items, values = ["b", "c", "a"][:k], [3.0, 3.0, 1.0][:k]
            assert top == TopRelease("", 4, 4 * SECOND, items, values, 2.0)
    for missing in itertools.combinations(step, 2):
        assert folded(TopOfKeys(1, DOMAIN), missing) == []


def test_tops_of_keys_of_uneven_releases() -> None:
    a, b = Release("a", 1, 5, 1.0, 2.0), Release("b", 1, 9, 1.0, 3.0)
    late = Release("a", 1, 7, 8.0, 1.0)  # the same key again, before the step is complete
    (top,) = folded(TopOfKeys(2, ("a", "b")), [a, late, b])
    assert top == TopRelease("", 1, 9, ["a", "b"], [8.0, 1.0], 3.0)
    (top,) = folded(TopOfKeys(1, ("a", "b")), [a, b._replace(stddev=math.nan)])
    assert math.isnan(top.stddev)
    assert len(folded(TopOfKeys(1, ("a", "b")), [a, b, a, b])) == 2


FOLDS: list[Any] = [
    Difference(2, COUNTER),
    Difference(3, COUNTER),
    TopOfKeys(1, ("a", "b")),
    TopOfKeys(1, ("b", "a")),
    TopOfKeys(1, ("ab",)),
]


def test_states_come_back_and_only_to_their_own_fold() -> None:
    numbers = np.array([1.5, math.nan, -math.inf, 2.0**-1074])
    for fold in FOLDS:
        data = FoldCodec(fold.parameters).encode((-5, numbers))
        assert len(data) == 28 + 8 * len(numbers)
        number, back = FoldCodec(pickle.loads(pickle.dumps(fold)).parameters).decode(data)
        assert number == -5
        assert back.tobytes() == numbers.tobytes()
        back[0] = 7.0  # an array of its own
        assert FoldCodec(fold.parameters).decode(data)[1][0] == 1.5
        for other in FOLDS:
            if other is not fold:
                with pytest.raises(StateError, match=says(OTHER_FOLD)):
                    FoldCodec(other.parameters).decode(data)


def test_damaged_states_are_refused() -> None:
    codec = FoldCodec(FOLDS[0].parameters)
    data = codec.encode((3, np.array([12345.678])))
    damaged = [data[:n] for n in range(len(data))]
    damaged += [data[:i] + bytes([data[i] ^ 4]) + data[i + 1 :] for i in range(len(data))]
    for bad in [*damaged, b"", data + b"\0"]:
        with pytest.raises(StateError, match="corrupt") as caught:
            codec.decode(bad)
        assert "12345" not in str(caught.value)
    body = bytes([5]) + data[1:-4]
    with pytest.raises(StateError, match="in format 5, this code reads format 4"):
        codec.decode(body + struct.pack("<I", zlib.crc32(body)))


# Pipelines


def counted(rows: Sequence[Any], path: str, **options: Any) -> tuple[Any, Any]:
    """A scripted PrefixCount and its releases, per key in order."""
    count = dp.PrefixCount(
        dp.ZCDP(0.5), 64, mechanism="BinaryTree", path=path, entropy=ScriptedEntropy(), **options
    )
    return count, run(lambda p: p | feed(rows) | count).releases


ROWS = [(key, i % 3 == 0, i * SECOND) for i in range(40) for key in ("x", "y")]


def per_key(fold: Any, releases: Sequence[Any]) -> list[Any]:
    given = []
    for key in sorted({release.key for release in releases}):
        given += folded(fold, [release for release in releases if release.key == key])
    return given


@each_path
@each_runner
def test_folds_in_pipelines(path: str, runner: str) -> None:
    count, plain = counted(ROWS, path)

    def build(pipeline: beam.Pipeline) -> tuple[Any, ...]:
        releases = pipeline | feed(ROWS) | count
        return (releases | SlidingSum(5, count.counter, path=path),)

    (output,) = run(build, runner).outputs
    sums = [seen.value for seen in output]
    assert sums == per_key(Difference(5, count.counter), plain)
    assert len(sums) == 80
    assert all(seen.micros == seen.value.timestamp for seen in output)


@each_runner
def test_both_paths_give_identical_numbers(runner: str) -> None:
    domain = ["p", "q", "r"]
    rows = [(key, domain[i * i % 3], i * SECOND) for i in range(30) for key in ("x", "y")]

    def build(pipeline: beam.Pipeline, path: str) -> tuple[Any, ...]:
        histogram = Histogram(
            dp.ZCDP(0.5), 30, domain, mechanism="BinaryTree", path=path, entropy=ScriptedEntropy()
        )
        releases = pipeline | feed(rows) | histogram
        sums = releases | SlidingSum(6, histogram.counter, path=path)
        clean = sums | NonNegative() | Rounded(5)
        return releases, sums, sums | TopK(2, domain), clean

    given = [run(lambda p, path=path: build(p, path), runner).outputs for path in PATHS]
    assert given[0] == given[1]
    assert [len(output) for output in given[0]] == [60] * 4


def ticks(values: dict[str, Sequence[float]]) -> list[Release]:
    return [
        Release(key, step, step * SECOND, float(value), 2.0)
        for key, stream in values.items()
        for step, value in enumerate(stream, start=1)
    ]


def created(releases: Sequence[Any], kind: Any = Release) -> beam.PTransform:
    stamped: Any = beam.Map(lambda r: TimestampedValue(r, Timestamp(micros=r.timestamp)))
    return beam.Create(list(releases), reshuffle=False) | stamped.with_output_types(kind)


TICKS = {
    "a": [5, 5, 1, 0],
    "b": [1, 5, 2, 9],
    "c": [3, 6, 2],  # no fourth step
    "other": [99, 99, 99, 99],
}


@each_path
@each_runner
@pytest.mark.parametrize("order", ["by key", "by step", "mixed"])
def test_top_k_per_tick(order: str, path: str, runner: str) -> None:
    releases = ticks(TICKS)
    if order == "by step":
        releases.sort(key=lambda release: release.step)
    elif order == "mixed":
        random.Random(1).shuffle(releases)
    outcome = run(lambda p: p | created(releases) | TopKPerTick(2, DOMAIN, path=path), runner)
    assert outcome.releases == [
        TopRelease("", 1, SECOND, ["a", "c"], [5.0, 3.0], 2.0),
        TopRelease("", 2, 2 * SECOND, ["c", "a"], [6.0, 5.0], 2.0),
        TopRelease("", 3, 3 * SECOND, ["b", "c"], [2.0, 2.0], 2.0),
    ]
    assert all(seen.micros == seen.value.timestamp for seen in outcome.outputs[0])


def test_top_k_per_tick_on_a_stream_comes_as_soon_as_a_step_is_complete() -> None:
    source: Any = test_stream.TestStream()
    for release in sorted(ticks(TICKS), key=lambda r: r.step):
        source.add_elements([TimestampedValue(release, Timestamp(micros=release.timestamp))])
        source.advance_processing_time(1)
    source = source.advance_watermark_to_infinity()

    def build(pipeline: beam.Pipeline) -> Any:
        typed: Any = beam.Map(lambda r: r).with_output_types(Release)
        return pipeline | source | typed | TopKPerTick(1, DOMAIN) | Monotonic()

    outcome = run(build, BundleBasedDirectRunner(), ["--streaming"])
    assert [(top.step, top.items) for top in outcome.releases] == [
        (1, ["a"]),
        (2, ["c"]),
        (3, ["b"]),
    ]


class Monotonic(beam.PTransform):
    """Checks that what comes in is unbounded, and passes it on."""

    def expand(self, pcoll: Any) -> Any:
        assert not pcoll.is_bounded
        return pcoll | "Same" >> beam.Map(lambda x: x)


def test_bounded_input_comes_in_any_order() -> None:
    stream = releases_of([math.cos(t) * 50 for t in range(40)])
    mixed = random.Random(4).sample(stream, len(stream))

    def build(pipeline: beam.Pipeline) -> tuple[Any, ...]:
        return (pipeline | created(mixed) | SlidingSum(7, COUNTER),)

    (sums,) = run(build).outputs
    assert [seen.value for seen in sums] == folded(Difference(7, COUNTER), stream)


@each_runner
def test_a_complete_step_is_forgotten(runner: str) -> None:
    a, b = scalar(1.0, key="a"), scalar(2.0, key="b")
    top = TopKPerTick(1, ("a", "b"), path="streaming")
    outcome = run(lambda p: p | created([a, b, b, b]) | top, runner)
    assert outcome.releases == [TopRelease("", 1, SECOND, ["b"], [2.0], 2.0)]


def test_releases_stay_within_their_windows() -> None:
    """A tick may end where its window does, which is no time within it."""
    clock = TickNumbers(dp.ZCDP(1e12), 10, 0, 40, keys=["x"])
    windows = beam.WindowInto(FixedWindows(20))

    def build(pipeline: beam.Pipeline) -> tuple[Any, ...]:
        releases = pipeline | feed([("x", 1, SECOND)]) | windows | clock
        return (releases | SlidingSum(1, clock.counter),)

    made = run(build).outputs[0]
    ends = {10: 20, 20: 20, 30: 40, 40: 40}
    assert sorted(seen.value.timestamp // SECOND for seen in made) == [*ends]
    for seen in made:
        assert seen.micros < ends[seen.value.timestamp // SECOND] * SECOND


@each_path
def test_windows_are_kept_apart(path: str) -> None:
    count, _ = counted(ROWS, path)

    def build(pipeline: beam.Pipeline) -> tuple[Any, ...]:
        releases = pipeline | feed(ROWS) | beam.WindowInto(FixedWindows(10)) | count
        return (
            releases | SlidingSum(3, count.counter, path=path),
            releases | RunningAverage(count.counter),
            releases,
        )

    sums, averages, plain = run(build).outputs
    windows = {seen.window for seen in plain}
    assert len(windows) == 4
    for window in windows:
        mine = [seen.value for seen in plain if seen.window == window]
        expected = per_key(Difference(3, count.counter), mine)
        assert [seen.value for seen in sums if seen.window == window] == expected
        assert [s.value for s in averages if s.window == window] == [
            running_average(release, count.counter) for release in mine
        ]


def test_an_average_in_windows_needs_the_counter() -> None:
    """Steps go on from window to window, and the average starts anew."""
    with pytest.raises(ValueError, match=r"give RunningAverage\(count\.counter\)"):
        _ = (
            beam.Pipeline()
            | created([Release("a", 1, 0, 1.0, 1.0)], Release)
            | beam.WindowInto(FixedWindows(10))
            | RunningAverage()
        )


@each_runner
def test_functions_of_one_release_in_pipelines(runner: str) -> None:
    releases = [vector([x, -x, 2 * x], step) for step, x in enumerate(VALUES, start=1)]

    def build(pipeline: beam.Pipeline) -> tuple[Any, ...]:
        given = pipeline | created(releases, VectorRelease)
        return (
            given | TopK(1, DOMAIN),
            given | RunningAverage(),
            given | NonNegative(),
            given | Rounded(0.25),
        )

    outcome = run(build, runner)
    functions = [
        lambda r: top_items(r, 1, DOMAIN),
        running_average,
        non_negative,
        lambda r: rounded(r, 0.25),
    ]
    for output, function in zip(outcome.outputs, functions, strict=True):
        assert [seen.value for seen in output] == [function(r) for r in releases]
        assert all(seen.micros == seen.value.timestamp for seen in output)


def test_types_go_through() -> None:
    pipeline = beam.Pipeline()
    scalars = pipeline | "One" >> created([scalar(1.0)])
    whole = pipeline | "Many" >> created([vector([1.0])], VectorRelease)
    same = [RunningAverage(), NonNegative(), Rounded(), SlidingSum(2, COUNTER)]
    for i, transform in enumerate(same):
        assert (scalars | f"S{i}" >> transform).element_type == Release
        assert (whole | f"V{i}" >> transform).element_type == VectorRelease
    assert (whole | TopK(1, ["a"])).element_type == TopRelease
    assert (scalars | TopKPerTick(1, ["a"])).element_type == TopRelease


def test_releases_of_no_declared_type_are_taken() -> None:
    releases = releases_of([3, 1, 4])
    transforms = (SlidingSum(2, COUNTER, path=path) for path in PATHS)
    for transform in (*transforms, Rounded()):
        untyped: Any = beam.Map(lambda r: r).with_output_types(Any)
        outcome = run(lambda p, t=transform, u=untyped: p | created(releases) | u | t)
        assert len(outcome.releases) == 3


def test_post_processing_does_not_touch_what_it_is_given() -> None:
    """Two consumers of one collection see the same releases."""
    releases = [vector([x, -x], t) for t, x in enumerate(VALUES, start=1)]

    def build(pipeline: beam.Pipeline) -> tuple[Any, ...]:
        given = pipeline | created(releases, VectorRelease)
        made = given | NonNegative(), given | Rounded(100)
        return given, *made

    assert [seen.value for seen in run(build).outputs[0]] == releases


@pytest.mark.parametrize("path", PATHS)
def test_a_mismatch_stops_the_pipeline_in_words(path: str) -> None:
    other = dp.calibrate(SmoothBinary(64), dp.ZCDP(0.5))
    with pytest.raises(Exception, match="give the counter of the transform") as caught:
        run(lambda p: p | created(releases_of([3, 1])) | SlidingSum(1, other, path=path))
    assert isinstance(root(caught.value), ValueError)


# Arguments


VECTORS = dp.calibrate(BinaryTree(10**6), dp.ZCDP(0.5), ItemsChange(), 20)
FORGETS = dp.calibrate(SlidingBLT(64, 5), dp.ZCDP(0.5))
DECAYED = dp.calibrate(SquareRoot(64, decay=0.5), dp.ZCDP(0.5))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SlidingSum(2, dp.calibrate(Sparse(5, 5), dp.PureDP(1))), "is not linear"),
        (lambda: SlidingSum(2, DECAYED), "decay 0.5, whose differences are not sliding sums"),
        (lambda: SlidingSum(2, DECAYED), "leave out momentum and decay"),
        (lambda: SlidingSum(2, FORGETS), "sums: give the counter of a count, such as a TickCount"),
        (
            lambda: dp.post.Isotonic(FORGETS),
            "fall: give the counter of a count, such as a TickCount",
        ),
        (
            lambda: TopKPerTick(1, dp.TickCount(dp.ZCDP(1), dp.Clock(10, 0, 8), keys=dp.TOTAL)),
            "a count of TOTAL has one: give the TickCount keys=",
        ),
        (lambda: SlidingSum(50_001, VECTORS), "keeps 1000020 numbers a key, and at most 1000000"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_constructor_refusals(make: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        make()


def test_windows_up_to_the_horizon_and_beyond_are_taken() -> None:
    SlidingSum(50_000, VECTORS)
    SlidingSum(10**12, COUNTER)
    SlidingSum(1, dp.calibrate(BinaryTree(1), dp.ZCDP(1)))
    SlidingSum(1, dp.calibrate(Unbounded(BinaryTree), dp.ZCDP(1)))
    values = [3.0, 1.0, 4.0]
    outcome = run(lambda p: p | created(releases_of(values)) | SlidingSum(10**12, COUNTER))
    assert [release.value for release in outcome.releases] == values


@pytest.mark.parametrize(
    ("transform", "kind", "wanted"),
    [
        (TopK(1, DOMAIN), Release, "VectorRelease"),
        (TopKPerTick(1, DOMAIN), VectorRelease, "Release"),
        (Rounded(), TopRelease, "Release or VectorRelease"),
        (NonNegative(), int, "Release or VectorRelease"),
        (SlidingSum(2, COUNTER), tuple[str, Release], "Release or VectorRelease"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, beam.PTransform) else "",
)
def test_other_elements_are_refused(transform: Any, kind: Any, wanted: str) -> None:
    with pytest.raises(TypeError, match=f"elements must be of type {wanted}, but they are"):
        _ = beam.Pipeline() | created([], kind) | transform


@pytest.mark.parametrize(
    "transform",
    [
        SlidingSum(2, COUNTER, path="bounded"),
        TopKPerTick(1, DOMAIN, path="bounded"),
    ],
    ids=lambda t: type(t).__name__,
)
def test_the_bounded_path_refuses_unbounded_input(transform: Any) -> None:
    source = test_stream.TestStream().advance_watermark_to_infinity()
    with pytest.raises(ValueError, match='would wait for its end: use path="auto"'):
        _ = beam.Pipeline() | source | transform


def test_transforms_pickle() -> None:
    for transform in (TopK(1, DOMAIN), SlidingSum(2, COUNTER), Rounded(2)):
        copy = pickle.loads(pickle.dumps(transform))
        assert type(copy) is type(transform)


# Counts that start anew


def test_releases_of_a_view_that_restarts_are_refused() -> None:
    """Of local days: 24 and 23 hours, so that no step follows from its number."""
    hours = dp.Clock("1h", start="2026-03-28", ticks=47, zone="Europe/Paris")
    counter = TickCount(dp.ZCDP(1), hours.restart("1d"), keys=["a"]).counter
    release = Release("a", 25, hours.end_of(25), 1.0, 1.0, restart=2)
    folds: list[Any] = [dp.post.SlidingSum(3, counter)._fold, dp.post.Isotonic(counter)._fold]
    for use in folds:
        with pytest.raises(TypeError, match=says(RESTARTS)):
            use.add(None, release)
    with pytest.raises(TypeError, match=says(RESTARTS)):
        running_average(release, counter)


def test_releases_of_single_ticks_have_no_sums_over_ticks() -> None:
    clock = dp.Clock(10, 0, 8)
    people = dp.Users("who", 3)
    counter = TickCount(dp.ZCDP(1), clock.each(), dp.People(), keys=["a"], users=people).counter
    fold: Any = dp.post.SlidingSum(3, counter)._fold
    for step in (2, 8):
        with pytest.raises(TypeError, match=says(RESTARTS)):
            fold.add(None, Release("a", step, 10, 1.0, 1.0))
    events = TickCount(dp.ZCDP(1), clock.each(), keys=["a"]).counter
    with pytest.raises(ValueError, match="give the counter of a count, such as a TickCount of the"):
        dp.post.SlidingSum(3, events)

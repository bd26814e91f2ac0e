"""Histograms fitted to the number of elements: what they add up to, what one event changes."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.transforms.window import FixedWindows

import beam_dpcount as dp
from beam_dpcount import mechanisms
from beam_dpcount.counters.change import ItemsChange
from beam_dpcount.counters.errors import chernoff, normal_half_width
from beam_dpcount.counters.fitted import fit, fitted
from beam_dpcount.counters.sliding import difference_variance
from beam_dpcount.mechanisms import (
    BinaryTree,
    KAry,
    NormalizedBLT,
    SmoothBinary,
    SquareRoot,
    Unbounded,
)
from beam_dpcount.mechanisms.trees import Forest
from beam_dpcount.states.codecs import statistic_codec
from beam_dpcount.states.envelope import StateError
from beam_dpcount.statistics.items import Items, OneItem
from tests.runners import feed, run
from tests.scripted import ScriptedEntropy, SeededNoise, random_script

SECOND = 1_000_000
EXACT = dp.ZCDP(1e12)  # its noise is 0
AB = ("a", "b")
# An item, another, and what counts none: unknown, of another type, empty; then several.
PAYLOADS: list[Any] = ["a", "b", "zz", 7, None, [], ["zz"], ["b"], ["b", "a"], ["zz", "b"]]

each_path = pytest.mark.parametrize("path", ["bounded", "streaming"])


def added(statistic: Any, stream: Any) -> np.ndarray:
    codes = np.array([statistic.read(payload)[0] for payload in stream], dtype=np.int64)
    return statistic.all(None, codes)[1]


def counter_of(mechanism: Any, budget: Any = None, dimension: int = 3) -> Any:
    plain = dp.calibrate(
        mechanism, budget or dp.ZCDP(0.5), ItemsChange(max_items=1), dimension=dimension
    )
    return fitted(plain)


# What an element adds


def test_every_element_adds_one_to_one_coordinate() -> None:
    statistic = OneItem(AB)
    assert statistic.labels == AB
    assert statistic.dimension == 3
    for payload, coordinate in zip(PAYLOADS, (0, 1, 2, 2, 2, 2, 2, 1, 0, 1), strict=True):
        codes, reason = statistic.read(payload)
        plain, same = Items(AB).read(payload)
        assert reason == same
        assert codes == (plain if any(plain) else (3,))
        assert statistic.count(None, codes)[1].tolist() == np.eye(3)[coordinate].tolist()
    assert statistic.count(None, statistic.empty)[1].tolist() == [0, 0, 1]
    assert added(statistic, PAYLOADS).sum(axis=1).tolist() == [1] * len(PAYLOADS)


@pytest.mark.parametrize("domain", [("a",), AB])
def test_norms_are_what_all_pairs_of_neighbours_reach(domain: tuple[str, ...]) -> None:
    """All streams of three elements, refused ones among them, that differ in one."""
    statistic, d = OneItem(domain), len(domain) + 1
    rows = {
        stream: added(statistic, [PAYLOADS[i] for i in stream])
        for stream in itertools.product(range(len(PAYLOADS)), repeat=3)
    }
    changes = {
        tuple((rows[stream] - rows[(*stream[:s], other, *stream[s + 1 :])]).ravel().tolist())
        for stream in rows
        for s in range(3)
        for other in range(len(PAYLOADS))
    }
    assert len(changes) == 1 + 3 * d * (d - 1)
    for mechanism in (BinaryTree(3), SmoothBinary(3), KAry(3), SquareRoot(3), NormalizedBLT(3)):
        R = mechanism.encoder(3)
        moved = [R @ np.reshape(change, (3, d)) for change in changes]
        l1 = max(np.abs(m).sum() for m in moved)
        l2_squared = max(np.square(m).sum() for m in moved)
        counter: Any = fitted(
            dp.calibrate(mechanism, _any(mechanism), statistic.change("replace_one"), d)
        )
        assert l1 <= counter.l1_sensitivity * (1 + 1e-12)
        assert l2_squared <= counter.l2_sensitivity**2 * (1 + 1e-12)
        slack = 1e-12 if isinstance(mechanism, Forest) else 1e-3  # for the rounding of R x
        assert l1 == pytest.approx(counter.l1_sensitivity, rel=slack)
        assert l2_squared == pytest.approx(counter.l2_sensitivity**2, rel=slack)
        column = math.sqrt(mechanism.l2_sensitivity_squared)
        assert counter.l2_sensitivity == pytest.approx(math.sqrt(2) * column, rel=slack)


def _count(*given: Any, **options: Any) -> Any:
    return dp.Histogram(*given, **options)


def _any(mechanism: Any) -> Any:
    return dp.ZCDP(0.5) if "gaussian" in mechanism.laws else dp.PureDP(1.0)


@pytest.mark.parametrize("budget", [dp.ZCDP(0.5), dp.ApproxDP(1.0, 1e-6), dp.PureDP(1.0)])
def test_no_more_noise_is_drawn_for_two_items_or_more(budget: Any) -> None:
    for size in (2, 3, 10):
        domain = [str(i) for i in range(size)]
        plain, whole = (_count(budget, 100, domain, fit_total=on).counter for on in (False, True))
        assert whole.law == plain.law
        assert whole.costs() == plain.costs()
        ratio = whole.max_variance() / plain.max_variance()
        assert ratio == pytest.approx(1 - 1 / (size + 1), rel=1e-12)
        ends = [dict(c.describe())["largest_stddev"] for c in (plain, whole)]
        assert float(ends[1]) / float(ends[0]) == pytest.approx(math.sqrt(ratio), rel=1e-5)


# Fitting


def test_the_nearest_vector_with_that_sum() -> None:
    """Against the normal equations; a row alone is the same as in a matrix, to the last bit."""
    values = np.random.default_rng(1).normal(size=(50, 37)) * 1e3
    totals = np.arange(50.0)[:, None]
    fits = fit(values, totals)
    assert fits.sum(axis=1) == pytest.approx(totals[:, 0], abs=1e-9)
    moved = fits - values
    assert np.ptp(moved, axis=1) == pytest.approx(0, abs=1e-9)  # orthogonal to sums of 0
    for order in "CF":
        again = fit(np.asarray(values, order=order), totals)
        assert again.tobytes() == fits.tobytes()
    for row, total, whole in zip(values, totals[:, 0], fits, strict=True):
        assert fit(row, total).tobytes() == whole.tobytes()


MECHANISMS = [
    BinaryTree(9),
    NormalizedBLT(9),
    KAry(9, 3),
    Unbounded(BinaryTree),
    Unbounded(NormalizedBLT),
]


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda m: m.name)
def test_every_release_adds_up_to_its_step(mechanism: Any) -> None:
    budget = dp.PureDP(1.0) if isinstance(mechanism, KAry) else dp.ZCDP(0.5)
    counter = counter_of(mechanism, budget)
    xs = np.eye(3, dtype=np.int64)[[0, 2, 2, 1, 0, 1, 1, 2, 0]]
    noise = random_script(64, 3)
    released = counter.release(xs, noise)
    assert released.shape == (9, 3)
    assert released.sum(axis=1) == pytest.approx(np.arange(1, 10), abs=1e-9)
    state = counter.init()
    for t, (x, whole) in enumerate(zip(xs, released, strict=True), start=1):
        state, value = counter.step(state, x, noise)
        assert value == pytest.approx(whole, abs=1e-6)
        assert counter.stddev_at(state) == pytest.approx(math.sqrt(counter.variance(t)))
    exact = np.cumsum(xs, axis=0)
    assert counter.release(xs, random_script(64, 3, spread=0)) == pytest.approx(exact, abs=1e-2)


@pytest.mark.parametrize("mechanism", [BinaryTree(7), NormalizedBLT(7)])
@pytest.mark.parametrize("d", [2, 3, 5])
def test_variances_and_covariances_are_those_of_the_linear_map(mechanism: Any, d: int) -> None:
    """What each draw does to each release, one draw after the other."""
    counter, xs = counter_of(mechanism, dimension=d), np.zeros((7, d), dtype=np.int64)
    draws, one = 16, 1 << 20

    def released(z: np.ndarray) -> np.ndarray:
        return counter.release_lattice(xs, _Ones(z))

    nothing = released(np.zeros((draws, d), dtype=np.int64))
    effects = []
    for i, j in itertools.product(range(draws), range(d)):
        z = np.zeros((draws, d), dtype=np.int64)
        z[i, j] = one
        effects.append((released(z) - nothing) / one)
    A, law = np.array(effects), counter.law.variance  # (draws * d, 7, d)
    covariance = law * np.einsum("atj,atk->tjk", A, A)
    for t in range(1, 8):
        v = counter.variance(t)
        assert counter.stddevs(7)[t - 1] == pytest.approx(math.sqrt(v))
        assert np.diag(covariance[t - 1]) == pytest.approx(v, rel=1e-5)
        apart = covariance[t - 1][~np.eye(d, dtype=bool)]
        assert apart == pytest.approx(-v / (d - 1), rel=1e-5)
        for lag in range(1, t):
            moved = A[:, t - 1] - A[:, t - 1 - lag]
            own = law * np.square(moved[:, 0]).sum()
            assert difference_variance(counter, t, lag) == pytest.approx(own, rel=1e-5)


def test_differences_of_unbounded_keep_the_same_share() -> None:
    change = ItemsChange(max_items=1)
    plain = dp.calibrate(Unbounded(BinaryTree), dp.ZCDP(0.5), change, dimension=4)
    whole = fitted(plain)
    for t, lag in itertools.product(range(1, 20), (1, 2, 5, 30)):
        assert whole.variance(t) == pytest.approx(0.75 * plain.variance(t))
        own = difference_variance(whole, t, lag)
        assert own == pytest.approx(0.75 * difference_variance(plain, t, lag))
        if lag >= t:
            assert own == pytest.approx(whole.variance(t))
    assert whole.stddevs(20) == pytest.approx(np.sqrt([whole.variance(t) for t in range(1, 21)]))


class _Ones:
    """A script of given draws."""

    def __init__(self, z: np.ndarray) -> None:
        self._z = z

    def draw(self, first: int, n: int) -> np.ndarray:
        return self._z[first - 1 : first - 1 + n]

    def one(self, coordinate: int) -> Any:
        return self._z[coordinate - 1]

    def for_law(self, law: Any) -> _Ones:
        return self


@pytest.mark.long
@pytest.mark.parametrize("mechanism", [NormalizedBLT(30), Unbounded(NormalizedBLT)])
def test_measured_errors_are_as_said_and_not_of_the_unfitted(mechanism: Any) -> None:
    """A false alarm is 5 standard deviations: a sample variance of 1,000 has 1 / sqrt(500)."""
    counter = counter_of(mechanism)
    xs = np.eye(3, dtype=np.int64)[np.arange(30) % 3]
    exact = np.cumsum(xs, axis=0)
    noise = SeededNoise(counter.law, 5, 3)
    errors = np.array([(counter.release(xs, noise) - exact)[-1] for _ in range(1000)])
    said = counter.variance(30)
    tolerance = 5 / math.sqrt(500)
    for column in errors.T:
        assert column.var() / said == pytest.approx(1, abs=tolerance)
        assert column.var() / (said * 3 / 2) != pytest.approx(1, abs=tolerance)


def test_half_widths_are_those_of_what_is_left() -> None:
    for budget, mechanism in (
        (dp.ZCDP(0.001), NormalizedBLT(50)),
        (dp.PureDP(0.1), BinaryTree(50)),
    ):
        plain = dp.calibrate(mechanism, budget, ItemsChange(max_items=1), dimension=4)
        whole: Any = fitted(plain)
        assert whole.share == 0.75
        noise = SeededNoise(whole.law, 3, 4)
        xs = np.zeros((50, 4), dtype=np.int64)
        xs[:, 1] = 1
        exact, width = np.cumsum(xs, axis=0), dp.half_width(whole, 47)
        missed = np.mean([np.abs(whole.release(xs, noise) - exact)[46] > width for _ in range(400)])
        assert missed <= 0.05 + 5 * math.sqrt(0.05 / 400)
        most = dp.largest_error(plain)
        if isinstance(budget, dp.PureDP):  # what is left is no sum of whole draws: by Chernoff's
            nats = math.log(2 * 50 / 0.05)
            most = chernoff(plain.law, float(mechanism.max_row_norm2()), nats)
        assert dp.largest_error(whole) < most
        if mechanism.name == "NormalizedBLT":
            assert width == pytest.approx(dp.half_width(plain, 47) * math.sqrt(0.75), rel=0.01)
    # A release of a tree is no sum of whole draws any more.
    terms = 0.75 * whole.mechanism.row_norm2(47)
    assert width == chernoff(whole.law, terms, math.log(2 / 0.05)) * whole.grid
    whole = counter_of(BinaryTree(50), dp.ZCDP(0.001))
    expected = normal_half_width(math.sqrt(whole.variance(47))) + whole.grid / 2
    assert dp.half_width(whole, 47) == pytest.approx(expected)


def test_states_of_another_kind_are_refused() -> None:
    kinds = [dp.Histogram(dp.ZCDP(0.5), 9, AB, fit_total=on) for on in (False, True)]
    kinds.append(dp.Histogram(dp.ZCDP(0.5), 9, ["a", "b", "c"]))  # of as many coordinates
    codecs = [statistic_codec(kind.counter, kind.statistic) for kind in kinds]
    data = [
        codec.encode(kind.counter.init(), b"", b"")
        for codec, kind in zip(codecs, kinds, strict=True)
    ]
    assert len({kind.counter.fingerprint for kind in kinds}) == 3
    for i, j in itertools.permutations(range(3), 2):
        with pytest.raises(StateError):
            codecs[i].decode(data[j])


# Pipelines


ROWS = [(key, PAYLOADS[i * i % 10], i * SECOND) for i in range(60) for key in ("x", "y")]


def histogram(path: str, budget: Any = EXACT, **options: Any) -> Any:
    given = {"entropy": ScriptedEntropy(), "mechanism": "BinaryTree", "path": path, **options}
    return dp.Histogram(budget, 60, AB, fit_total=True, **given)


@each_path
@pytest.mark.parametrize("every", [1, 7])
def test_what_the_values_leave_of_the_step_is_what_counts_nothing(path: str, every: int) -> None:
    count = histogram(path, every=every, entropy=None)
    made = run(lambda p: p | feed(ROWS) | count).releases
    assert len(made) == 2 * (60 // every)
    for release in made:
        payloads = [payload for key, payload, _ in ROWS if key == release.key][: release.step]
        plain = added(Items(AB), payloads).sum(axis=0)
        assert release.value == pytest.approx(plain.tolist(), abs=1e-3)
        assert release.step % every == 0
        refused = release.step - sum(plain.tolist())
        assert release.step - sum(release.value) == pytest.approx(refused, abs=1e-3)


@pytest.mark.parametrize("every", [1, 7])
@pytest.mark.parametrize("mechanism", ["BinaryTree", "NormalizedBLT", "SquareRoot"])
def test_both_paths_give_identical_numbers(every: int, mechanism: str) -> None:
    budget = dp.ZCDP(0.5)

    def build(pipeline: beam.Pipeline, path: str) -> Any:
        count = histogram(path, budget, every=every, mechanism=mechanism)
        return pipeline | feed(ROWS) | count

    given = [run(lambda p, path=path: build(p, path)).releases for path in ("bounded", "streaming")]
    assert given[0] == given[1]
    stddevs = histogram("bounded", budget, mechanism=mechanism).counter.stddevs(60)
    for release in given[0]:
        assert len(release.value) == 2
        assert release.stddev == pytest.approx(stddevs[release.step - 1], rel=1e-12)


@each_path
def test_replays_repeat_what_was_fitted(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FITTED_SECRET", "0123456789abcdef" * 2)

    def build(pipeline: beam.Pipeline, fit_total: bool) -> Any:
        entropy = dp.ReplayableEntropy("FITTED_SECRET", run_id="fitted")
        count = dp.Histogram(
            *(dp.ZCDP(0.5), 60, AB),
            fit_total=fit_total,
            path=path,
            entropy=entropy,
            value=lambda pair: pair[1],
            element_id=lambda pair: pair[0],
        )
        rows = [(key, (i, x), at) for i, (key, x, at) in enumerate(ROWS)]
        return pipeline | feed(rows) | "Count" >> count

    first, again, plain = (
        run(lambda p, on=on: build(p, on)).releases for on in (True, True, False)
    )
    assert first == again
    assert [r.step for r in first] == [r.step for r in plain]
    # Of other noise: else the difference of the two would be what fitting took away, exactly.
    apart = {round(sum(a.value) - sum(b.value), 6) for a, b in zip(first, plain, strict=True)}
    assert len(apart) > 60


@each_path
def test_windows_start_anew_and_sliding_sums_take_what_is_fitted(path: str) -> None:
    count = histogram(path, dp.ZCDP(0.5))

    def build(pipeline: beam.Pipeline) -> tuple[Any, ...]:
        releases = pipeline | feed(ROWS) | beam.WindowInto(FixedWindows(20)) | count
        return releases, releases | dp.post.SlidingSum(5, count.counter, path=path)

    releases, sums = run(build).outputs
    assert len(releases) == len(sums) == 120
    assert {seen.value.step for seen in releases} == set(range(1, 21))
    for seen in sums:
        step = seen.value.step
        said = math.sqrt(difference_variance(count.counter, step, 5))
        assert seen.value.stddev == pytest.approx(said)


@each_path
def test_what_a_person_has_too_much_is_in_the_rest(path: str) -> None:
    """Steps are taken whoever is over the bound, and so add up to the same."""
    rows = [("k", (f"p{i % 2}", "a"), i * SECOND) for i in range(10)]
    users = dp.Users(lambda pair: pair[0], events=2, per_key=2)
    count = dp.Histogram(
        EXACT, 10, AB, fit_total=True, users=users, value=lambda pair: pair[1], path=path
    )
    made = sorted(run(lambda p: p | feed(rows) | count).releases, key=lambda r: r.step)
    assert [round(r.value[0]) for r in made] == [1, 2, 3, 4, 4, 4, 4, 4, 4, 4]
    assert [round(r.step - sum(r.value)) for r in made] == [0, 0, 0, 0, 1, 2, 3, 4, 5, 6]


@each_path
def test_collect_and_raise_are_as_without(path: str) -> None:
    def build(pipeline: beam.Pipeline, on: bool) -> Any:
        return (
            pipeline
            | feed(ROWS)
            | dp.Histogram(EXACT, 60, AB, fit_total=on, on_reject="collect", path=path)
        )

    plain, whole = (run(lambda p, on=on: build(p, on)).outputs for on in (False, True))
    assert [seen.value for seen in plain[1]] == [seen.value for seen in whole[1]]
    assert len(whole[0]) == 120


# Refusals


def test_what_has_no_public_total_is_refused() -> None:
    budget = dp.ZCDP(0.5)
    for options, said in (
        ({"relation": "add_remove"}, 'use relation="replace_one", or leave out fit_total'),
        ({"max_items": 2}, "leave out max_items and removals, or fit_total"),
        ({"removals": True}, "leave out max_items and removals, or fit_total"),
    ):
        with pytest.raises(ValueError, match=said):
            dp.Histogram(budget, 9, AB, fit_total=True, **options)  # type: ignore[arg-type]
        dp.Histogram(budget, 9, AB, **options)  # type: ignore[arg-type]


def test_parameters_are_shown_and_told_apart() -> None:
    plain, whole = (dp.Histogram(dp.ZCDP(0.5), 9, AB, fit_total=on) for on in (False, True))
    assert "fitted to the number of elements" in whole.display_data()["items"]
    assert "fitted" not in plain.display_data()["items"]
    texts = {c.statistic.noise_parameters(c.counter.fingerprint) for c in (plain, whole)}
    assert len(texts) == 2
    assert whole.domain == AB
    assert replace(whole.counter).fingerprint == whole.counter.fingerprint


@pytest.mark.parametrize(
    "mechanism",
    [
        mechanisms.SlidingBLT(100, window=10),
        mechanisms.DecayedBLT(100, decay=0.9),
        mechanisms.SquareRoot(100, decay=0.9),
    ],
)
def test_sums_that_leave_elements_out_are_not_fitted_to_their_number(mechanism: Any) -> None:
    with pytest.raises(ValueError, match="fit_total fits counts of all elements"):
        dp.Histogram(dp.ZCDP(0.1), 100, ["a", "b"], fit_total=True, mechanism=mechanism)

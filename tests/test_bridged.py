"""The bridged k-ary tree beyond the contract suite: every kind of radices, the definition followed
node by node in fractions, exactness of releases, variances, the choice of radices, refusals."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import apache_beam as beam
import numpy as np
import pytest

import beam_dpcount as dp
from beam_dpcount.counters.counter import TAKES_LAPLACE, UnsupportedBudgetError
from beam_dpcount.counters.errors import _laplace_quantile, _sum_quantile, chernoff
from beam_dpcount.mechanisms import BridgedKAry, KAry, SmoothLaplace, Unbounded
from beam_dpcount.mechanisms.bridges import candidates, tree_of_radices
from beam_dpcount.noise.laws import DiscreteLaplace
from beam_dpcount.plans.counting import DRAWS_EARLY
from tests.audit.exact import audit
from tests.messages import says
from tests.scripted import Script, SeededNoise, random_script, resumed

ARITIES = [2, 3, 7, (), (2,), (5, 3), (3, 5), (2, 2, 2, 2), (64,), (7, 9), (63,), (4, 4, 4)]
parameters = pytest.mark.parametrize("arity", ARITIES, ids=str)


# The definition


def errors_by_definition(mechanism: BridgedKAry, z: list[int]) -> list[Fraction]:
    """The error of every release, from the formula of the docstring, in fractions.

    Children bridge E_0 and E_1 with what weights the mechanism says, from node to node; noises are
    taken in the order in which a stream's steps first need them.
    """
    T, tree, h = mechanism.horizon, mechanism._tree, mechanism.l1_sensitivity
    noise: dict[tuple[int, int], int] = {}
    left = iter(z)
    for u in range(T):
        for i in range(h):
            if i < h - 1 and u % tree.spans[i + 1] == 0:
                first = u // tree.spans[i]
                last = min(first + tree.radices[i], -(-T // tree.spans[i]))
                noise |= {(i, j): next(left) for j in range(first, last)}
            elif i == h - 1 and u % tree.spans[i] == 0:
                noise[i, u // tree.spans[i]] = next(left)
    assert next(left, None) is None
    errors = {0: Fraction(0)}

    def bridge(i: int, start: int) -> None:
        """The errors within the node of level i + 1 after `start` items, whose ends are known."""
        end = min(start + tree.spans[i + 1], T)
        nodes = [start // tree.spans[i] + d for d in range(-(-(end - start) // tree.spans[i]))]
        k, own = len(nodes), [noise[i, j] for j in nodes]
        is_last = start // tree.spans[i + 1] == -(-T // tree.spans[i + 1]) - 1
        weights = (tree.last if is_last else tree.weights)[i]
        assert len(weights) == k + 1
        e0, e1 = errors[start], errors[end]
        for d in range(1, k):
            b = Fraction(weights[d], 64)
            forward, backward = e0 + sum(own[:d]), e1 - sum(own[d:])
            errors[start + d * tree.spans[i]] = (1 - b) * forward + b * backward
        if i:
            for j in nodes:
                bridge(i - 1, j * tree.spans[i])

    for a in range(-(-T // tree.spans[-1])):
        start, end = a * tree.spans[-1], min((a + 1) * tree.spans[-1], T)
        errors[end] = errors[start] + noise[h - 1, a]
        if h > 1:
            bridge(h - 2, start)
    return [errors[t] for t in range(1, T + 1)]


def made(arity: object, horizon: int) -> BridgedKAry | None:
    """Where these radices fit the horizon."""
    if isinstance(arity, tuple) and math.prod(arity) > horizon:
        return None
    return BridgedKAry(horizon, arity)  # type: ignore[arg-type]


@pytest.mark.slow
@parameters
def test_steps_and_releases_follow_the_definition(arity: object) -> None:
    for horizon in (*range(1, 20), 63, 64, 65, 100, 130):
        if (mechanism := made(arity, horizon)) is None:
            continue
        rows = mechanism.draws(horizon)
        noise = random_script(rows, seed=horizon, spread=1000)
        exact = errors_by_definition(mechanism, noise.z.tolist())
        xs = np.random.default_rng(horizon).integers(-9, 10, horizon)
        expected = [
            float(total + error)  # correctly rounded
            for total, error in zip(np.cumsum(xs).tolist(), exact, strict=True)
        ]
        assert mechanism.release(xs, Script(noise.z)).tolist() == expected, horizon
        state, stepped = mechanism.init(), Script(noise.z)
        for t, x in enumerate(xs.tolist()):
            state, value = mechanism.step(state, x, stepped)
            assert value == expected[t], (horizon, t)
            assert stepped.drawn == list(range(1, mechanism.draws(t + 1) + 1))
        # And each noise by itself gives a column of the decoder.
        L = mechanism.decoder(horizon)
        for i in range(0, rows, 1 + rows // 7):
            z = [int(j == i) for j in range(rows)]
            assert [float(e) for e in errors_by_definition(mechanism, z)] == L[:, i].tolist()


@pytest.mark.slow
@parameters
def test_the_factorization_and_what_follows_from_it(arity: object) -> None:
    """L R = A to the last bit; sensitivities and variances are those of the matrices."""
    for horizon in (*range(1, 18), 31, 32, 33, 63, 64, 65, 66, 100, 127, 130):
        if (mechanism := made(arity, horizon)) is None:
            continue
        L, R = mechanism.decoder(horizon), mechanism.encoder(horizon)
        assert R.shape == (mechanism.draws(horizon), horizon)
        assert np.array_equal(L @ R, np.tri(horizon)), horizon
        assert set(np.unique(R)) <= {0, 1}
        assert np.abs(L).max() <= 1
        assert (R.sum(axis=0) == mechanism.l1_sensitivity).all()
        norms = np.square(L).sum(axis=1)
        assert mechanism.row_norms2(horizon) == pytest.approx(norms, rel=1e-13)
        assert [mechanism.row_norm2(t) for t in range(1, horizon + 1)] == list(
            mechanism.row_norms2(horizon)
        )
        assert mechanism.max_row_norm2() == pytest.approx(norms.max(), rel=1e-13)
        assert mechanism.mean_row_norm2() == pytest.approx(norms.mean(), rel=1e-13)
        for lag in {1, 2, 5, horizon // 2} - {0}:
            s = np.arange(1, horizon - lag + 1)
            if len(s):
                products = np.einsum("ij,ij->i", L[s - 1], L[s + lag - 1])
                assert mechanism.products(s, lag) == pytest.approx(products, abs=1e-12)


@parameters
@pytest.mark.parametrize("dimension", [None, 2], ids=["scalar", "vector"])
def test_a_stream_resumed_from_bytes_after_every_step_gives_the_same_numbers(
    arity: object, dimension: int | None
) -> None:
    counter = dp.calibrate(BridgedKAry(64, arity), dp.PureDP(1), dp.Change(-9, 9), dimension)  # type: ignore[arg-type]
    z = random_script(counter.mechanism.draws(64), dimension, seed=2).z
    xs = np.random.default_rng(3).integers(-9, 10, 64 if dimension is None else (64, 2))
    states, values = resumed(counter, xs, Script(z))
    assert np.array_equal(values, counter.release(xs, Script(z)))
    assert max(map(len, states)) == counter.state_size


# Releases are exact until they are rounded, once


@pytest.mark.parametrize("spread", [2**20, 2**45, 2**55], ids=["small", "large", "object"])
@pytest.mark.parametrize("size", [2**20, 2**52, 2**60], ids=["few", "many", "beyond doubles"])
def test_values_are_the_nearest_doubles_whatever_the_size_of_inputs_and_noise(
    spread: int, size: int
) -> None:
    mechanism = BridgedKAry(30, (3, 2))
    rng = np.random.default_rng(spread % 1009)
    noise = random_script(mechanism.draws(30), 2, seed=7, spread=spread)
    xs = rng.integers(-(size // 30), size // 30 + 1, (30, 2))
    released, stepped, state = mechanism.release(xs, noise), Script(noise.z), mechanism.init(2)
    for t in range(30):
        state, value = mechanism.step(state, xs[t], stepped)
        assert np.array_equal(value, released[t])
    for column in range(2):
        errors = errors_by_definition(mechanism, noise.z[:, column].tolist())
        totals = np.cumsum(xs[:, column]).tolist()
        expected = [float(total + e) for total, e in zip(totals, errors, strict=True)]
        assert released[:, column].tolist() == expected
        alone, state = Script(noise.z[:, column]), mechanism.init()
        for t in range(30):
            state, value = mechanism.step(state, int(xs[t, column]), alone)
            assert value == expected[t]
    if size > 2**53:  # where a sum of doubles would have rounded more than once
        assert (np.abs(released) > 2**53).any()


def test_neighbours_release_the_same_doubles_where_noise_makes_up_for_their_difference() -> None:
    """Pure DP in the last bit: x and x' with z' = z + R (x - x') give equal bytes, always."""
    for horizon, arity in ((40, (5, 4)), (100, None), (81, (3, 3, 3))):
        mechanism = BridgedKAry(horizon, arity)
        R = mechanism.encoder(horizon).astype(np.int64)
        rng = np.random.default_rng(horizon)
        for _ in range(50):
            xs = rng.integers(0, 2, horizon)
            other = xs.copy()
            other[rng.integers(horizon)] ^= 1
            z = rng.integers(-30, 31, len(R))
            moved = Script(z + R @ (xs - other))
            released = mechanism.release(xs, Script(z))
            assert released.tobytes() == mechanism.release(other, moved).tobytes()


# Privacy


AUDITED = [None, 2, (2,), (3,), (2, 2), (2, 3)]


@pytest.mark.slow
@pytest.mark.exhaustive("arity", "relation")
@pytest.mark.parametrize("arity", AUDITED, ids=str)
@pytest.mark.parametrize("relation", ["replace_one", "add_remove"])
@pytest.mark.parametrize("budget", [dp.PureDP(0.3), dp.PureDP(4), dp.ApproxDP(1.0, 1e-6)], ids=str)
def test_streams_keep_the_budget(arity: object, relation: str, budget: dp.Budget) -> None:
    for horizon in range(1, 8):
        if (mechanism := made(arity, horizon)) is not None:
            counter = dp.calibrate(mechanism, budget, dp.Change(relation=relation))
            assert audit(counter) == [], horizon


class Uncounted(BridgedKAry):
    """Forgets that an item lies in a node of the top level too."""

    @property
    def l1_sensitivity(self) -> int:
        return super().l1_sensitivity - 1


class Backwards(BridgedKAry):
    """Adds the whole block's noise at its second release, where it should lean on it."""

    def step(self, state, x, noise):  # type: ignore[no-untyped-def]
        state, value = super().step(state, x, noise)
        return state, value + (state[3] if state[0] == 2 else 0)


class Forgetful(BridgedKAry):
    """Draws the top node anew at the third step."""

    def step(self, state, x, noise):  # type: ignore[no-untyped-def]
        if state[0] == 2:
            state = (*state[:-1], state[-2] + noise.one(1))
        return super().step(state, x, noise)


class Bare(BridgedKAry):
    """Ends a block at the sum of its items."""

    def step(self, state, x, noise):  # type: ignore[no-untyped-def]
        state, value = super().step(state, x, noise)
        return state, float(state[2]) if state[0] == 3 else value


@pytest.mark.parametrize(
    ("mutant", "check"),
    [
        (Uncounted, "budget"),
        (Backwards, "factorization"),
        (Forgetful, "order"),
        (Bare, "factorization"),
    ],
)
def test_mutants_are_caught(mutant: type[BridgedKAry], check: str) -> None:
    assert check in audit(dp.calibrate(mutant(6, (3,)), dp.PureDP(1)))


def test_noise_is_drawn_early_and_said_to_be() -> None:
    mechanism = BridgedKAry(9, (3,))
    assert mechanism.draws_early
    R = mechanism.encoder(9)
    # The three items of the first block, and the block, all at the first step.
    assert mechanism.draws(1) == mechanism.draws(3) == 4
    assert R[:4, :3].tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 1]]
    # Release 2 leans back from the block's end: it uses the noise of item 3.
    assert mechanism.decoder(9)[1, :4].tolist() == [0.5, 0.5, -0.5, 0.5]


@pytest.mark.parametrize("budget", [dp.ZCDP(0.5), dp.ZCDP(0.01)], ids=str)
def test_gaussian_noise_is_refused(budget: dp.Budget) -> None:
    assert BridgedKAry(9).laws == {"laplace"}
    refusal = says(TAKES_LAPLACE, mechanism="BridgedKAry", budget=budget)
    with pytest.raises(UnsupportedBudgetError, match=refusal):
        dp.calibrate(BridgedKAry(9), budget)


def test_nothing_but_the_pure_budget_is_claimed() -> None:
    counter = dp.calibrate(BridgedKAry(10**6), dp.PureDP(0.1))
    late = dp.calibrate(SmoothLaplace(10**6), dp.PureDP(0.1))
    for delta in (1e-9, 1e-2):
        assert counter.epsilon_at(delta) == pytest.approx(0.1)
    assert late.epsilon_at(1e-2) < 0.1
    assert counter.draws is None  # no replayable noise


@pytest.mark.parametrize("mechanism", [BridgedKAry(99), Unbounded(BridgedKAry)])
def test_it_is_refused_where_steps_may_be_replayed(
    mechanism: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BRIDGED_TEST_SECRET", "ab" * 32)
    horizon = 99 if isinstance(mechanism, BridgedKAry) else None
    secret = dp.ReplayableEntropy("BRIDGED_TEST_SECRET", run_id="r")
    for given in ({"path": "streaming"}, {"entropy": secret, "element_id": str}):
        with beam.Pipeline() as p:
            count = dp.PrefixCount(dp.PureDP(1), horizon, mechanism=mechanism, **given)  # type: ignore[arg-type]
            with pytest.raises(ValueError, match=says(DRAWS_EARLY)):
                _ = p | beam.Create([("k", 1)]) | count


def test_by_name_or_left_out_it_gives_way_to_one_that_draws_late() -> None:
    budget = dp.PureDP(1)
    assert BridgedKAry(1000).replay_safe() == SmoothLaplace(1000)
    for mechanism in ("BridgedKAry", None):
        count = dp.PrefixCount(budget, 1000, mechanism=mechanism, path="streaming")
        assert count.counter.mechanism == SmoothLaplace(1000)
        count = dp.PrefixCount(budget, 1000, mechanism=mechanism, path="bounded")
        assert count.counter.mechanism == BridgedKAry(1000)


# Errors


def errors(mechanism: BridgedKAry | KAry) -> tuple[float, float]:
    """Mean and largest variance times epsilon^2, if Laplace noise were continuous."""
    scale = 2 * mechanism.l1_sensitivity**2
    return scale * mechanism.mean_row_norm2(), scale * mechanism.max_row_norm2()


@pytest.mark.parametrize(
    ("horizon", "radices", "mean", "largest"),
    [
        (64, (14, 5), 34.89, 53.87),
        (256, (30, 9), 71.77, 117.94),
        (1000, (15, 15, 5), 121.38, 188.48),
        (10**6, (19, 20, 20, 20, 7), 782.77, 1210.85),
    ],
)
def test_errors(horizon: int, radices: tuple[int, ...], mean: float, largest: float) -> None:
    mechanism = BridgedKAry(horizon)
    assert mechanism.radices == radices
    assert errors(mechanism) == (pytest.approx(mean, abs=0.01), pytest.approx(largest, abs=0.01))
    whole = mechanism.row_norms2(horizon)
    assert whole.max() == mechanism.max_row_norm2()
    assert whole.mean() == pytest.approx(mechanism.mean_row_norm2(), rel=1e-12)
    # 13 to 45 % less than by subtraction.
    for new, old in zip(errors(mechanism), errors(KAry(horizon)), strict=True):
        assert 0.5 < new / old < 0.8


@pytest.mark.slow
def test_it_is_never_worse_than_by_subtraction() -> None:
    rng = np.random.default_rng(0)
    for horizon in [*range(1, 100), *(2 ** rng.uniform(7, 48, 12)).astype(int).tolist()]:
        for new, old in zip(errors(BridgedKAry(horizon)), errors(KAry(horizon)), strict=True):
            assert new <= old * (1 + 1e-12), horizon


@pytest.mark.slow
def test_the_largest_error_is_that_of_a_release_and_no_other_exceeds_it() -> None:
    for horizon in (*range(1, 150), 257, 1000, 5000, 20_000):
        mechanism = BridgedKAry(horizon)
        assert mechanism.max_row_norm2() == pytest.approx(
            mechanism.row_norms2(horizon).max(), rel=1e-13
        )


@pytest.mark.slow
def test_the_default_is_never_worse_than_one_arity() -> None:
    for horizon in (*range(1, 60), *range(100, 400, 57), 1000, 8000):
        least = BridgedKAry(horizon)
        cost = least.l1_sensitivity**2 * least.mean_row_norm2()
        for k in range(2, min(horizon, 70) + 1):
            radices: tuple[int, ...] = (k,)
            while math.prod(radices) <= horizon:
                tree = tree_of_radices(horizon, radices)
                other = (len(radices) + 1) ** 2 * tree.total() / horizon
                assert cost <= other * (1 + 1e-12), (horizon, radices)
                radices = (*radices, k)


def test_weights_are_near_the_best() -> None:
    """Of all combinations of a block's nodes and the top level's, each release's is the best."""
    mechanism = BridgedKAry(30, (6,))
    L, R = mechanism.decoder(30), mechanism.encoder(30)
    # The best releases of the second block by its own nodes and the top level's alone.
    for t in range(7, 12):
        known = R[:, :12].any(axis=1) & ~R[:, 12:].any(axis=1)
        rows = np.flatnonzero(known & ((R.sum(axis=1) == 6) | R[:, 6:12].any(axis=1)))
        target = (np.arange(30) < t).astype(float)
        best = np.linalg.lstsq(R[rows].T, target, rcond=None)[0]
        assert R[rows].T @ best == pytest.approx(target)
        norm = np.square(L[t - 1]).sum()
        assert np.square(best).sum() <= norm * (1 + 1e-12)
        assert norm < np.square(best).sum() * (1 + 2e-4)


def test_candidates_are_few() -> None:
    for horizon in (10, 1000, 10**6, 2**48):
        assert sum(len(list(candidates(horizon, levels))) for levels in range(2, 14)) < 400


def test_large_noise_reaches_releases_with_weights_of_at_most_one() -> None:
    assert np.abs(BridgedKAry(1000).decoder(300)).max() == 1


# Confidence intervals


def test_the_weights_of_a_release_are_its_row_of_the_decoder() -> None:
    for horizon in (1, 2, 9, 64, 200, 1000):
        mechanism = BridgedKAry(horizon)
        L = mechanism.decoder(horizon)
        for t in {1, 2, 3, horizon // 3, horizon // 2, horizon - 1, horizon} - {0, -1}:
            if t <= horizon:
                weights, counts = mechanism.weights(t)
                row = np.repeat(weights, counts.astype(int))
                row, expected = row[row != 0], L[t - 1][L[t - 1] != 0]
                assert np.sort(row) == pytest.approx(np.sort(expected), abs=1e-13)
    for horizon in (1, 9, 1000, 10**6, 2**48):
        mechanism = BridgedKAry(horizon)
        weights, counts = mechanism.weights(None)
        largest = np.square(weights) @ counts
        assert largest == pytest.approx(mechanism.max_row_norm2(), rel=1e-12)


@pytest.mark.parametrize("n", [1, 2, 7, 30])
@pytest.mark.parametrize("level", [0.5, 0.95, 0.999])
def test_quantiles_of_weighted_sums_are_those_of_sums(n: int, level: float) -> None:
    """Draws of weight 1, and of 1/2: against the exact law of discrete noise of a large scale."""
    law = DiscreteLaplace(Fraction(500))
    expected = _sum_quantile(law, n, level) / 500
    for weight in (1.0, -0.5):
        found = _laplace_quantile(np.array([weight, 0.0]), np.array([float(n), 3.0]), level)
        assert found == pytest.approx(abs(weight) * expected, abs=0.003)


@pytest.mark.parametrize("level", [0.5, 0.95, 0.999])
def test_quantiles_of_weighted_sums_are_found_in_few_steps(
    monkeypatch: pytest.MonkeyPatch, level: float
) -> None:
    """A dry run asks six times; fifty halvings each made it cost more than the run."""
    sizes, sin = [], np.sin

    def counting(angles: Any) -> Any:
        sizes.append(angles.size)
        return sin(angles)

    monkeypatch.setattr(np, "sin", counting)
    row = BridgedKAry(777).weights(None)
    assert row is not None
    found = {_laplace_quantile(*row, level) for _ in range(3)}
    assert len(found) == 1
    assert 1 <= len(sizes) <= 15
    (x,) = found
    below, above = (_laplace_quantile(*row, level + d) for d in (-1e-9, 1e-9))
    assert below < x < above


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_half_widths_cover_and_less_would_not(epsilon: float) -> None:
    """4000 streams: a standard error of 0.0035 at 0.95; five of them, with a fixed seed."""
    counter = dp.calibrate(BridgedKAry(100), dp.PureDP(epsilon), dp.Change(coordinates=1), 4000)
    noise = SeededNoise(counter.law, 5, 4000)
    errors = np.abs(counter.release(np.zeros((100, 4000)), noise))
    for t in (1, 10, 18, 50, 99, 100):
        width = dp.half_width(counter, t, 0.95)
        assert (errors[t - 1] <= width).mean() >= 0.95 - 0.018, t
        assert (errors[t - 1] <= 0.9 * width - 1).mean() < 0.95 - 0.018, t
    t = int(counter.stddevs(100).argmax()) + 1
    assert dp.largest_half_width(counter) == pytest.approx(dp.half_width(counter, t), rel=1e-3)


def test_half_widths_of_levels_near_1_are_chernoffs() -> None:
    counter = dp.calibrate(BridgedKAry(1000), dp.PureDP(1))
    widths = [dp.half_width(counter, 500, 1 - p) for p in (1e-3, 1e-4, 1.1e-5, 1e-6, 1e-9)]
    assert widths == sorted(widths)
    norm = counter.mechanism.row_norm2(500)
    assert widths[-1] == pytest.approx(chernoff(counter.law, norm, math.log(2e9)), rel=1e-6)


# Parameters


@pytest.mark.parametrize(
    ("arity", "error", "message"),
    [
        (1, ValueError, "at least 2, got 1"),
        ((3, 1), ValueError, r"at least 2, got \(3, 1\)"),
        ((3, 4), ValueError, r"\(3, 4\) need 12 steps .* more than the horizon 11"),
    ],
)
def test_arities_that_do_not_fit_are_refused(
    arity: object, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        BridgedKAry(11, arity)  # type: ignore[arg-type]


def test_arities_are_values() -> None:
    assert BridgedKAry(30, [3, 5]) == BridgedKAry(30, (3, 5)) != BridgedKAry(30, (5, 3))
    assert hash(BridgedKAry(30, [3, 5])) == hash(BridgedKAry(30, (3, 5)))
    assert eval(repr(BridgedKAry(30, (3, 5)))) == BridgedKAry(30, (3, 5))
    assert BridgedKAry(30, (3, 5)).radices == (3, 5, 2)
    assert BridgedKAry(30, 3).radices == (3, 3, 3, 2)
    assert BridgedKAry(30, ()).radices == (30,)

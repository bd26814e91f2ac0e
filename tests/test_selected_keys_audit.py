"""Keys that nobody listed, exactly: no sampling, all streams of three ticks and all removals.

Every path of noise is a key of the code that runs in workers: all are taken side by side. What is
shown of a stream is then a law, and laws of neighbours are held against what the proof allows: the
loss of the noised coordinates, and the probability that what one of them lacks is seen. Rules that
look right are made out of that code by changing one thing, and must fail.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache, lru_cache, partial
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

import beam_dpcount as dp
from beam_dpcount.counters import selection as rules
from beam_dpcount.counters.active import ActiveChange, ActiveSelection
from beam_dpcount.counters.change import Change, TickChange, Touched
from beam_dpcount.counters.clock import clock_of
from beam_dpcount.counters.columns import Columns, NoiseOf, advance
from beam_dpcount.counters.counter import Counter
from beam_dpcount.counters.period_costs import PeriodCosts
from beam_dpcount.counters.periods import periods_of
from beam_dpcount.counters.selection import Selection
from beam_dpcount.counters.users import UserChange
from beam_dpcount.dofns.ticks import CountEachTick
from beam_dpcount.mechanisms import BinaryTree, KAry, NormalizedBLT, SmoothBinary
from beam_dpcount.mechanisms.rounded import RoundedMechanism
from beam_dpcount.mechanisms.single_steps import SingleSteps
from beam_dpcount.noise.laws import DiscreteGaussian, DiscreteLaplace, Law, RoundedGaussian
from beam_dpcount.states.all_ticks import TickPlan
from beam_dpcount.states.pending import placed
from benchmarks.cells import TickShards
from tests.audit import exact as audit
from tests.scripted import Script, ScriptedEntropy
from tests.shards import Scripts, Shard, bounded, plan_of, streamed

TICKS, DELTA = 3, 0.06
EPSILONS = (0.5, 1.5, 3.0, 5.0)  # at the last one noise alone hides nearly all
LEFT_OUT = 1e-9  # the probability of all paths that are not taken
ROUNDING = 1e-6  # what they can add to delta, at these epsilons, and floats
LAPLACE, GAUSSIAN = DiscreteLaplace(Fraction(1, 2)), DiscreteGaussian(Fraction(1))
TREE, PEOPLE = BinaryTree, {"low": 0, "high": 1, "most": 64}
Stream = tuple[int, ...]
# Outputs, by number, and how likely each is.
Shown = tuple[np.ndarray, np.ndarray]
Rule = Callable[[Selection, Columns, Mapping[str, int], NoiseOf], Any]


class Coarse(NormalizedBLT):
    """On a lattice so coarse that its noise can be enumerated."""

    def resolution(self, magnitude: int, largest: int | None = None) -> int:
        return 1


class Paths:
    """All paths of noise of a counter, and what its keys show under each of them."""

    def __init__(self, selection: Selection) -> None:
        self.selection, counter = selection, selection.counter
        grid, self.chances = enumerated(counter.law, counter.mechanism.draws(counter.horizon))
        self.noise = grid.T.copy()  # a column a path
        self.names = [f"{i:06}" for i in range(len(grid))]
        self.rule: Rule = advance
        self.weights: Any = None
        if isinstance(counter.mechanism, RoundedMechanism):
            self.weights = audit.seen_weights(counter, len(self.noise))[0]
        self._numbers: dict[bytes, int] = {}
        self._known: dict[Any, Shown] = {}

    def columns(self, keys: Sequence[str]) -> Script:
        return Script(self.noise[:, np.array(keys, dtype=np.int64)])

    def series(self, x: Stream, selection: Selection | None = None) -> np.ndarray:
        """What is shown of a key on each path, a row a path; NaN: nothing."""
        columns, seen = Columns(), np.full((len(self.names), len(x)), np.nan)
        for step, added in enumerate(x):
            sums = dict.fromkeys(self.names, added) if added else {}
            columns, found = self.rule(selection or self.selection, columns, sums, self.columns)
            if found:
                keys, values = zip(*found, strict=True)
                seen[np.array(keys, dtype=np.int64), step] = values
        return seen

    def shown(self, x: Stream) -> Shown:
        if x not in self._known:
            self._known[x] = self.law(self.series(x))
        return self._known[x]

    def law(self, seen: np.ndarray, chances: Any = None) -> Shown:
        """Outputs, a row a path, with the same ones joined."""
        rows = np.ascontiguousarray(np.where(np.isnan(seen), -1e9, seen))
        keys, places = np.unique(rows.view(f"V{8 * rows.shape[1]}").ravel(), return_inverse=True)
        numbers = [self._numbers.setdefault(key.tobytes(), len(self._numbers)) for key in keys]
        weights = self.chances if chances is None else chances
        return np.array(numbers), np.bincount(places.ravel(), weights=weights)

    def values(self, x: Sequence[int]) -> np.ndarray:
        """All releases, shown or not, shape (paths, ticks), from the counter's steps alone."""
        counter, rows = self.selection.counter, []
        state = counter.mechanism.init(len(self.names))
        for step in skipped(x, self.selection.skipped):
            column = np.full(len(self.names), step)
            state, y = counter.step_units(state, column, Script(self.noise))
            rows.append(np.asarray(y, dtype=np.float64))
        return np.stack(rows, axis=1)

    def crosses(self, values: np.ndarray) -> np.ndarray:
        return np.asarray(values >= self.selection.lattice_thresholds)

    @lru_cache  # noqa: B019
    def q(self, k: int) -> float:
        """P(k events that are alone show their key), in the worst ticks for it."""
        ticks, found = range(self.selection.counter.horizon), [0.0]
        for places in itertools.combinations_with_replacement(ticks, k):
            x = np.bincount(np.array(places, dtype=np.int64), minlength=len(ticks))
            first = places[0] if k else 0
            x[first] += self.selection.skipped if k else 0
            shown = self.crosses(self.values(x.tolist()))[:, first:]
            found.append(float(self.chances[shown.any(axis=1)].sum()))
        return max(found)

    def loss(self, epsilon: float, *pairs: tuple[Stream, Stream]) -> float:
        """The exact delta of the noised coordinates alone, of independent counters."""
        moved = [np.abs(self.encoded(x) - self.encoded(other)) for x, other in pairs]
        sizes = np.sort(np.concatenate(moved))
        return loss_of(self.selection.counter.law, tuple(sizes[sizes > 0].tolist()), epsilon)

    def encoded(self, x: Sequence[int]) -> np.ndarray:
        """The integers that noise is added to, as the counter rounds them."""
        counter, fed = self.selection.counter, skipped(x, self.selection.skipped)
        if self.weights is None:
            return (counter.mechanism.encoder(len(x)) @ np.array(fed)).astype(np.int64)
        state, rows = counter.init(), []
        for step in fed:
            state, y = counter.step_units(state, step, Script(np.zeros(len(x))))
            rows.append(y)
        q = np.linalg.solve(self.weights, np.array(rows) * counter.resolution)
        assert np.allclose(q, np.rint(q), atol=1e-6)
        return np.rint(q).astype(np.int64)


def enumerated(law: Law, n: int) -> tuple[np.ndarray, np.ndarray]:
    """The paths of n draws, but for the least likely ones, and how likely they are."""
    z = np.arange(-60, 61)
    z = z[law.pmf(z) > LEFT_OUT**1.5]
    grid = np.stack(np.meshgrid(*[z] * n, indexing="ij"), -1).reshape(-1, n)
    chances = np.prod(law.pmf(grid), axis=1)
    order = np.argsort(chances)
    kept = np.sort(order[np.cumsum(chances[order]) > LEFT_OUT / 2])
    assert 1 - chances[kept].sum() < LEFT_OUT
    return grid[kept], chances[kept]


def skipped(x: Sequence[int], b: int) -> Stream:
    """What is fed of a stream, from the words of `at_least`."""
    fed = np.maximum(np.cumsum(x) - b, 0)
    return tuple(np.diff(fed, prepend=0).tolist())


@cache
def loss_of(law: Law, sizes: Stream, epsilon: float) -> float:
    return audit.hockey_stick(law, np.array(sizes), epsilon)[0] if sizes else 0.0


def hockey_stick(p: np.ndarray, q: np.ndarray, epsilon: float) -> float:
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


def aligned(a: Shown, b: Shown) -> tuple[np.ndarray, np.ndarray]:
    """Two laws over the same outputs."""
    numbers, places = np.unique(np.concatenate([a[0], b[0]]), return_inverse=True)
    p = np.bincount(places[: len(a[0])], a[1], len(numbers))
    return p, np.bincount(places[len(a[0]) :], b[1], len(numbers))


def together(*pairs: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Two laws of independent keys side by side; outputs of one ratio are joined, as they may."""
    whole = np.ones(1), np.ones(1)
    for p, q in pairs:
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.round(np.log(p / q), 9)
        _, places = np.unique(ratio, return_inverse=True)
        joined = (np.bincount(places.ravel(), weights=side) for side in (p, q))
        whole = tuple(  # type: ignore[assignment]
            np.multiply.outer(a, b).ravel() for a, b in zip(whole, joined, strict=True)
        )
    return whole


def removals(x: Stream, events: int = 1) -> set[Stream]:
    """The stream without so many events."""
    found = {x}
    for _ in range(events):
        found = {(*y[:s], y[s] - 1, *y[s + 1 :]) for y in found for s in range(len(y)) if y[s] > 0}
    return found


def streams(paths: Paths) -> list[Stream]:
    selection = paths.selection
    tested = selection.lattice_thresholds
    top = math.ceil(float(tested[np.isfinite(tested)].max()))
    values = {0, 1, *(v + selection.skipped for v in (top - 1, top))} | {selection.at_least}
    return list(itertools.product(sorted(values), repeat=selection.counter.horizon))


def excess(
    paths: Paths,
    events: int = 1,
    tried: Sequence[Stream] | None = None,
    proved: bool = True,
    epsilons: Sequence[float] = EPSILONS,
) -> float:
    """By how much delta is above what is allowed, at most, over all pairs and both directions.

    Allowed is the loss of the noised coordinates, and for keys what is `proved`: q_k one way and
    q_0 the other way; or else what is promised.
    """
    worst, promised = -1.0, paths.selection.delta
    one_way, other_way = (paths.q(events), paths.q(0)) if proved else (promised, promised)
    for x in streams(paths) if tried is None else tried:
        for other in removals(x, events):
            p, q = aligned(paths.shown(x), paths.shown(other))
            for epsilon in epsilons:
                loss = paths.loss(epsilon, (x, other))
                worst = max(worst, hockey_stick(p, q, epsilon) - loss - one_way)
                worst = max(worst, hockey_stick(q, p, epsilon) - loss - other_way)
    return worst


def made(kind: Any, law: Law, delta: float = DELTA, **options: Any) -> Paths:
    change = options.pop("change", TickChange(0, 1, most=64))
    counter = Counter(kind(options.pop("ticks", TICKS)), dp.ZCDP(1.0), law, change, None, 1)
    return Paths(Selection(counter, delta, **options))


def alone(paths: Paths, tick: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """The laws with one event, and with none."""
    n = paths.selection.counter.horizon
    one = tuple(int(t == tick) for t in range(n))
    return aligned(paths.shown(one), paths.shown((0,) * n))


def lowered(paths: Paths) -> Paths:
    """With thresholds of one and a half standard deviations."""
    selection, counter = replace(paths.selection), paths.selection.counter
    selection.__dict__["lattice_thresholds"] = 1 + 1.5 * counter.stddevs(counter.horizon)
    return Paths(selection)


CASES: dict[str, tuple[Any, Law]] = {
    "tree, Laplace": (TREE, LAPLACE),
    "NormalizedBLT": (Coarse, GAUSSIAN),
    "SmoothBinary": (SmoothBinary, GAUSSIAN),
    "tree, Gaussian": (TREE, GAUSSIAN),
    "k-ary, Laplace": (partial(KAry, subtraction=False), LAPLACE),
    "k-ary, Gaussian": (partial(KAry, subtraction=False), GAUSSIAN),
    "k-ary, subtraction": (KAry, LAPLACE),
    "NormalizedBLT, rounded": (Coarse, RoundedGaussian(Fraction(9, 4))),
}
each_case = pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=[] if place < 2 else pytest.mark.exhaustive)
        for place, case in enumerate(CASES)
    ],
)


@pytest.mark.long
@pytest.mark.slow
@each_case
def test_whatever_is_shown_keeps_both_deltas(case: str) -> None:
    paths = made(*CASES[case])
    assert paths.q(0) < paths.q(1) <= DELTA
    if paths.weights is not None:
        # Thresholds have margins for so coarse a lattice; the theorem holds without, too.
        paths = lowered(paths)
        assert paths.q(1) > DELTA
    assert excess(paths) <= ROUNDING


@each_case
def test_an_event_that_is_alone_costs_what_shows_it(case: str) -> None:
    """Exactly: the theorem is tight."""
    paths = made(*CASES[case])
    if paths.weights is not None:
        paths = lowered(paths)
    for epsilon in EPSILONS:
        found = max(hockey_stick(*alone(paths, t), epsilon) for t in range(TICKS))
        assert found == pytest.approx(paths.q(1), abs=1e-12)
    assert found > DELTA / 8


@pytest.mark.audit
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("delta", [0.3, 1e-3])
def test_whatever_is_shown_keeps_both_deltas_at_other_ones(case: str, delta: float) -> None:
    """And with more values."""
    kind, law = CASES[case]
    paths = made(kind, law, delta)
    top = math.ceil(float(paths.selection.lattice_thresholds.max()))
    tried = list(itertools.product(sorted({0, 1, 2, top - 2, top - 1, top}), repeat=TICKS))
    assert excess(paths, tried=tried, epsilons=(0.0, 0.1, 0.5, 1.5, 3.0)) <= ROUNDING
    assert paths.q(1) <= delta


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(
    "law", [GAUSSIAN, pytest.param(LAPLACE, marks=pytest.mark.exhaustive)], ids=repr
)
def test_two_events_of_a_person_in_one_key(law: Law) -> None:
    paths = made(TREE, law, change=UserChange(**PEOPLE, events=2, per_key=2))
    assert paths.q(2) <= DELTA
    assert excess(paths, events=2) <= ROUNDING


@pytest.mark.slow
@pytest.mark.parametrize(
    "law", [GAUSSIAN, pytest.param(LAPLACE, marks=pytest.mark.exhaustive)], ids=repr
)
def test_two_keys_of_a_person_and_an_event_that_moves(law: Law) -> None:
    """replace_one: what leaves may show a key, and what comes may, without anything in it."""
    both = UserChange(**PEOPLE, events=2, keys=2)
    paths, epsilons = made(TREE, law, change=both), (0.5, 1.5)
    assert 2 * paths.q(1) <= DELTA
    moving = TickChange(**PEOPLE, relation="replace_one")
    assert both.touched(TREE(TICKS)).counters == moving.touched(TREE(TICKS)).sides == 2
    tried = [x for x in streams(paths) if sum(v > 0 for v in x) <= 2][::5]
    known = [(x, y, aligned(paths.shown(x), paths.shown(y))) for x in tried for y in removals(x)]
    for (x, y, one), (v, w, other) in itertools.combinations_with_replacement(known, 2):
        (p, q), (r, s) = together(one, other), together(one, other[::-1])
        for epsilon in epsilons:
            loss = paths.loss(epsilon, (x, y), (v, w)) + ROUNDING
            assert hockey_stick(p, q, epsilon) <= loss + 2 * paths.q(1)
            assert hockey_stick(q, p, epsilon) <= loss + 2 * paths.q(0)
            assert hockey_stick(r, s, epsilon) <= loss + paths.q(1) + paths.q(0)


@pytest.mark.exhaustive
@pytest.mark.slow
def test_an_event_that_moves_to_another_tick() -> None:
    paths = made(TREE, LAPLACE, change=TickChange(**PEOPLE, relation="replace_one"))
    allowed = paths.q(1) + paths.q(0)
    assert allowed <= DELTA
    for x in streams(paths)[::3]:
        for y, s in itertools.product(removals(x), range(TICKS)):
            other = (*y[:s], y[s] + 1, *y[s + 1 :])
            p, q = aligned(paths.shown(x), paths.shown(other))
            for epsilon in EPSILONS:
                loss = paths.loss(epsilon, (x, other)) + ROUNDING
                assert hockey_stick(p, q, epsilon) <= loss + allowed


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(
    "law", [GAUSSIAN, pytest.param(LAPLACE, marks=pytest.mark.exhaustive)], ids=repr
)
def test_the_first_events_left_out(law: Law) -> None:
    paths = made(TREE, law, at_least=2)
    assert paths.q(1) == pytest.approx(made(TREE, law).q(1))
    assert (1, 0, 0) in streams(paths)
    assert paths.shown((1, 0, 0)) == paths.shown((0, 0, 0))
    assert excess(paths) <= ROUNDING


def test_tests_at_some_ticks_only() -> None:
    paths, plain = made(TREE, GAUSSIAN, every=2), made(TREE, GAUSSIAN)
    assert np.isinf(paths.selection.lattice_thresholds[[0, 2]]).all()
    assert paths.selection.lattice_thresholds[1] < plain.selection.lattice_thresholds[1]
    assert excess(paths) <= ROUNDING


def test_earlier_releases_would_need_the_sum() -> None:
    """Those of all ticks, from the first one on, once a key is shown: neither delta is enough."""
    paths = made(TREE, GAUSSIAN, 0.3)
    known: dict[Stream, Shown] = {}
    for x in streams(paths):
        since = begins(paths.series(x))
        everything = np.where((since < TICKS)[:, None], paths.values(x), np.nan)
        known[x] = paths.law(np.column_stack([since, everything]))
    worst, beyond = -1.0, -1.0
    for x, other in ((one, y) for one in known for y in removals(one) if y in known):
        p, q = aligned(known[x], known[other])
        for epsilon in (1.0, 2.0, 3.0):
            delta, loss = hockey_stick(p, q, epsilon), paths.loss(epsilon, (x, other))
            worst = max(worst, delta - loss - paths.q(1))
            beyond = max(beyond, delta - max(loss, paths.q(1)))
    assert worst <= ROUNDING
    assert beyond > 0.005


def begins(seen: np.ndarray) -> np.ndarray:
    """The tick from which on each path shows something; after the last one, if none."""
    there = ~np.isnan(seen)
    return np.where(there.any(axis=1), there.argmax(axis=1), seen.shape[1])


# The DoFns show what the audit audits


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    ["tree, Laplace", *(pytest.param(c, marks=pytest.mark.exhaustive) for c in [*CASES][1:])],
)
@pytest.mark.parametrize("options", [{}, {"at_least": 2}, {"every": 2}], ids=str)
@pytest.mark.exhaustive("options")
def test_dofns_show_the_same_under_all_paths(case: str, options: dict[str, Any]) -> None:
    paths = made(*CASES[case], **options)
    plan = plan_of(paths.selection, entropy=Scripts(paths.noise))
    top = math.ceil(float(paths.selection.lattice_thresholds[1]))
    for x in ((0, 0, 1), (1, 0, 0), (0, top, 0), (1, top - 1, 1), (0, 0, 0)):
        sums = {(key, t): v for t, v in enumerate(x, start=1) for key in paths.names if v}
        expected = paths.series(x)
        for made_by in (streamed, bounded):
            seen = np.full_like(expected, np.nan)
            for release in made_by(plan, sums):
                seen[int(release.key), release.step - 1] = release.value
            assert np.array_equal(seen, expected, equal_nan=True), (x, made_by)


# Mutants: rules that look right


def untested(selection: Selection, thresholds: float) -> Selection:
    """With this threshold at every tick."""
    made = replace(selection)
    made.__dict__["lattice_thresholds"] = np.full(selection.counter.horizon, thresholds)
    return made


def at_events_only(selection: Selection, columns: Columns, sums: Any, noise: NoiseOf) -> Any:
    """Tests at ticks with events."""
    return advance(selection if sums else untested(selection, np.inf), columns, sums, noise)


def forgetful(selection: Selection, columns: Columns, sums: Any, noise: NoiseOf) -> Any:
    """A hidden key is forgotten at a tick without events of its own."""
    step, names, state, shown, waiting = columns
    kept = [i for i, name in enumerate(names) if shown[i] or name in sums]
    first = selection.counter.mechanism.counters
    state = (*state[:first], *(numbers[kept] for numbers in state[first:])) if kept else ()
    columns = Columns(step, [names[i] for i in kept], state, shown[kept], waiting)
    return advance(selection, columns, sums, noise)


class OwnClock(BinaryTree):
    """A counter that begins with the key's first event."""

    def after(self, n: int, noise: Any, dimension: int | None = None) -> Any:
        return self.init(dimension)


class FromFirst(Paths):
    """Once a key is shown, its releases from its first event on come, too."""

    def series(self, x: Stream, selection: Selection | None = None) -> np.ndarray:
        right = super().series(x)
        everything = super().series(x, untested(self.selection, -np.inf))
        since = begins(right)
        shown = np.where((since < len(x))[:, None], everything, np.nan)
        return np.column_stack([since, shown])


@pytest.mark.long
@pytest.mark.parametrize("case", ["tree, Laplace", "tree, Gaussian"])
@pytest.mark.parametrize("rule", [at_events_only, forgetful, OwnClock, FromFirst])
@pytest.mark.exhaustive("rule")
def test_rules_that_are_wrong(rule: Any, case: str) -> None:
    kind, law = CASES[case]
    paths = made(rule if rule is OwnClock else kind, law)
    if rule is FromFirst:
        paths = FromFirst(paths.selection)
    elif rule is not OwnClock:
        paths.rule = rule
    assert excess(paths, proved=False, tried=streams(paths)[:32]) > 0.02


def of_touched(monkeypatch: pytest.MonkeyPatch, kind: type[Change], touched: Touched) -> None:
    monkeypatch.setattr(kind, "touched", lambda self, mechanism: touched)


def test_thresholds_without_what_can_be_in_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    of_touched(monkeypatch, TickChange, Touched(1, 0))
    for case in ("tree, Laplace", "tree, Gaussian"):
        paths = made(*CASES[case])
        assert excess(paths, proved=False, tried=[(1, 0, 0)]) > 0.02


def test_one_keys_share_taken_for_many(monkeypatch: pytest.MonkeyPatch) -> None:
    change = UserChange(**PEOPLE, events=5, keys=5)

    def delta(paths: Paths) -> float:
        """Of five events that are alone, in five keys."""
        return hockey_stick(*together(*[alone(paths)] * 5), 0.5)

    assert delta(made(TREE, LAPLACE, change=change)) <= DELTA
    of_touched(monkeypatch, UserChange, Touched(1, 1))
    wrong = made(TREE, LAPLACE, change=change)
    assert wrong.q(1) <= DELTA
    assert delta(wrong) > 1.5 * DELTA


def test_one_event_taken_for_two_in_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    of_touched(monkeypatch, UserChange, Touched(1, 1))
    paths = made(TREE, LAPLACE, change=UserChange(**PEOPLE, events=2, per_key=2))
    # Where twice the loss of one event is hidden, too.
    assert excess(paths, events=2, proved=False, tried=[(2, 0, 0)], epsilons=(8.0,)) > 0.02


def test_one_side_taken_for_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an event that moves to another key."""

    def delta(paths: Paths) -> float:
        one = alone(paths)
        return hockey_stick(*together(one, one[::-1]), 0.0) - paths.loss(0.0, *[LONE] * 2)

    change = TickChange(**PEOPLE, relation="replace_one")
    right = made(TREE, LAPLACE, change=change)
    assert right.q(0) + right.q(1) <= DELTA
    of_touched(monkeypatch, TickChange, Touched(1, 0))
    wrong = made(TREE, LAPLACE, change=change)
    assert wrong.q(0) + wrong.q(1) > DELTA
    assert delta(right) <= 0 < right.q(1)


LONE = ((1, 0, 0), (0, 0, 0))


def test_a_normal_quantile_for_laplace_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    def normal(counter: Counter, total: float, tested: Any) -> Any:
        return -NormalDist().inv_cdf(total / len(tested)) * counter.stddevs(counter.horizon)

    right = made(TREE, LAPLACE, 1e-4)
    assert excess(right, proved=False, tried=[(1, 0, 0)]) <= 0
    monkeypatch.setattr(rules, "thresholds", normal)
    assert excess(made(TREE, LAPLACE, 1e-4), proved=False, tried=[(1, 0, 0)]) > 5e-4


def test_a_threshold_that_is_one_too_low() -> None:
    paths = made(TREE, LAPLACE)
    lower = replace(paths.selection)
    lower.__dict__["lattice_thresholds"] = paths.selection.lattice_thresholds - 1
    assert excess(Paths(lower), proved=False, tried=[(1, 0, 0)]) > 0


@pytest.mark.slow
def test_fresh_noise_for_each_test() -> None:
    """Tests with noise of their own are paid for by nothing."""
    paths = made(TREE, LAPLACE, ticks=2)

    def shown(x: Stream) -> Shown:
        if not any(x):
            return paths.law(paths.series(x))
        values, first, left, laws = paths.values(x), x.index(max(x)) if not x[0] else 0, 1.0, []
        passed = paths.chances @ paths.crosses(values)  # of each tick's own noise
        for since in (*range(first, 2), 2):
            chance = left * (passed[since] if since < 2 else 1.0)
            left -= chance
            seen = np.where(np.arange(2) >= since, values, np.nan)
            laws.append(paths.law(seen, paths.chances * chance))
        return tuple(map(np.concatenate, zip(*laws, strict=True)))  # type: ignore[return-value]

    top = math.ceil(float(paths.selection.lattice_thresholds.max()))
    tried = list(itertools.product(range(top + 3), repeat=2))
    assert excess(paths, proved=False, tried=tried) <= 0
    paths._known = {x: shown(x) for x in tried}
    assert excess(paths, proved=False, tried=tried) > 0.02


# A cell a key, in place of shards: the code for listed keys, whose clocks their seeds start


LONG = 16
# The tick that is under way when an event comes, and its own; of one key.
Arrivals = Sequence[tuple[int, int]]


def open_counter() -> Selection:
    """All is shown."""
    change = TickChange(0, 1, most=64)
    counter = dp.calibrate(TREE(LONG), dp.ZCDP(0.5), change)
    return untested(Selection(counter, DELTA), -np.inf)


def by_shard(arrivals: Arrivals, fold: bool) -> np.ndarray:
    """What is fed of each tick, without noise."""
    shard = Shard(plan_of(open_counter(), fold, ScriptedEntropy(0)))
    came: list[dict[tuple[str, int], int]] = [{} for _ in range(LONG)]
    for now, tick in arrivals:
        came[now - 1]["k", tick] = came[now - 1].get(("k", tick), 0) + 1
    values = {release.step: release.value for release in shard.run(*came)}
    return fed([values.get(step, 0.0) for step in range(1, LONG + 1)])


def by_cell(arrivals: Arrivals, fold: bool) -> np.ndarray:
    """The same of a cell that the key's first event makes."""
    counter = open_counter().counter
    cap = counter.change.largest(1)
    clock = clock_of(10, 0, horizon=LONG)
    shard = TickShards(
        CountEachTick(TickPlan(counter, clock, ["k"], cap, fold, ScriptedEntropy(0)))
    )
    started, values = False, list[float]()

    def overdue(now: int) -> None:
        while started and len(values) < now - 1:
            values.extend(made.value for made in shard.release())

    for now, tick in sorted(arrivals):
        overdue(now)
        shard.take((0, placed({0: 1}, tick, 1)))
        if not started:
            shard.seed()
            started = True
    overdue(LONG + 1)
    return fed(values or [0.0] * LONG)


def fed(values: Sequence[float]) -> np.ndarray:
    return np.diff(np.array(values), prepend=0.0)


def furthest(count: Callable[[Arrivals, bool], np.ndarray], fold: bool) -> float:
    """How far one event moves R x, in terms of what it may."""
    counter, worst = open_counter().counter, 0.0
    R, most = counter.mechanism.encoder(LONG), math.sqrt(counter.mechanism.l2_sensitivity_squared)
    late = [[(5, 5), (6, 3)], [(9, 9), (10, 1)], [(4, 4), (6, 2), (8, 2)], [(7, 3)]]
    for arrivals in late:
        for i in range(len(arrivals)):
            moved = count(arrivals, fold) - count(arrivals[:i] + arrivals[i + 1 :], fold)
            worst = max(worst, float(np.linalg.norm(R @ moved)) / most)
    return worst


@pytest.mark.parametrize("fold", [True, False])
def test_a_cell_a_key_lets_one_event_move_another(fold: bool) -> None:
    """A late one counts at the next tick, or never, if its key is known; else at its own."""
    assert furthest(by_shard, fold) <= 1 + 1e-9
    assert furthest(by_cell, fold) > (1.5 if fold else 1.15)


# People who are active: counts that fall


ACTIVE: dict[str, tuple[Any, Law]] = {
    "each tick alone": (SingleSteps, GAUSSIAN),
    "each tick alone, Laplace": (SingleSteps, LAPLACE),
    "tree": (TREE, GAUSSIAN),
    "tree, Laplace": (TREE, LAPLACE),
    "rounded": (Coarse, GAUSSIAN),
}


def active(case: str, keys: int = 1, **options: Any) -> Paths:
    """People of whom one is active in one interval, in each of so many keys."""
    kind, law = ACTIVE[case]
    change = ActiveChange(-1, 1, most=64, keys=keys, intervals=keys, ticks=keys * TICKS)
    counter = Counter(kind(TICKS), dp.ZCDP(1.0), law, change, None, 1)
    paths = Paths(ActiveSelection(counter, DELTA, **options))
    return paths if paths.weights is None else lowered(paths)


def counted_of(paths: Paths, people: Sequence[int]) -> Stream:
    """What is counted of how many people are active."""
    if isinstance(paths.selection.counter.mechanism, SingleSteps):
        return tuple(people)
    return tuple(np.diff(people, prepend=0).tolist())


def seen_alone(paths: Paths, most: int = 1) -> float:
    """P(so many people who are alone show their key), in the worst ticks for it: q_1."""
    found = []
    for first in range(TICKS):
        people = [most * (t >= first) for t in range(TICKS)]
        crossed = paths.crosses(paths.values(counted_of(paths, people)))[:, first:]
        found.append(float(paths.chances[crossed.any(axis=1)].sum()))
    return max(found)


def active_pairs(paths: Paths) -> list[tuple[Stream, Stream]]:
    """With one person's interval and without, whoever else is active."""
    top = math.ceil(float(paths.selection.lattice_thresholds.max()))
    spans = [(i, j) for i in range(TICKS) for j in range(i + 1, TICKS + 1)]
    found = []
    for others in itertools.product((0, 1, top - 1, top), repeat=TICKS):
        for i, j in spans:
            people = [n + (i <= t < j) for t, n in enumerate(others)]
            found.append((counted_of(paths, people), counted_of(paths, others)))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("case", ACTIVE)
@pytest.mark.exhaustive("case")
def test_keys_of_active_people_keep_both_deltas(case: str) -> None:
    """Also where everybody is gone in between, and tests go on at a count of 0."""
    paths = active(case)
    one, nothing = seen_alone(paths), seen_alone(paths, 0)
    assert nothing < one
    assert paths.weights is not None or one <= DELTA
    worst = -1.0
    for x, other in active_pairs(paths):
        p, q = aligned(paths.shown(x), paths.shown(other))
        for epsilon in EPSILONS:
            loss = paths.loss(epsilon, (x, other))
            worst = max(worst, hockey_stick(p, q, epsilon) - loss - one)
            worst = max(worst, hockey_stick(q, p, epsilon) - loss - nothing)
    assert worst <= ROUNDING


@pytest.mark.parametrize("case", ["each tick alone", "tree"])
def test_wrong_rules_for_active_people_are_found(case: str) -> None:
    """Thresholds without the one person; those of one key, for a person in two."""
    paths = active(case)
    people = counted_of(paths, (1,) * TICKS)
    lower = replace(paths.selection)
    lower.__dict__["lattice_thresholds"] = paths.selection.lattice_thresholds - 1
    # One lattice step of fresh noise is far, so that two keys do not reach delta there.
    for wrong, keys in ((Paths(lower), 1), (paths, 2))[: 1 + (case == "tree")]:
        pair = aligned(wrong.shown(people), wrong.shown((0,) * TICKS))
        p, q = together(*[pair] * keys)
        assert hockey_stick(p, q, EPSILONS[-1]) > DELTA
    two = active(case, keys=2)
    pair = aligned(two.shown(people), two.shown((0,) * TICKS))
    assert hockey_stick(*together(pair, pair), EPSILONS[-1]) <= DELTA + ROUNDING


@pytest.mark.parametrize("many", [1, 2, 3])
def test_periods_of_a_person_are_one_person_in_a_key(many: int) -> None:
    """n periods are active in n times the keys, and in each there is one person: n delta."""
    known = periods_of(dp.Clock(1, start=0, ticks=TICKS), 1)
    for case in ("each tick alone", "tree"):
        selection = active(case).selection
        change: Any = selection.counter.change
        change = replace(change, periods=known)
        costs = PeriodCosts(selection.counter, change, known, selection=selection)
        assert costs.keys_delta(many) == many * Fraction(DELTA)
        assert many * seen_alone(active(case)) <= many * DELTA

"""Keys that nobody listed, exactly: no sampling, all streams of three ticks and all removals.

Every path of noise is a column of the code that runs in workers: all are taken side by side.
What is shown of a stream is then a law, and laws of neighbours are held against what the proof
allows: the loss of the noised coordinates, and the probability that what one of them lacks is seen.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache, partial
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

import beam_dpcount as dp
from beam_dpcount.counters import selection as rules
from beam_dpcount.counters.change import TickChange, Touched
from beam_dpcount.counters.columns import Columns, Sums, advance, all_ticks, counted
from beam_dpcount.counters.counter import Counter
from beam_dpcount.counters.selection import Selection
from beam_dpcount.counters.tails import thresholds
from beam_dpcount.counters.users import UserChange
from beam_dpcount.noise.laws import DiscreteGaussian, DiscreteLaplace, Law
from tests.scripted import Script

TICKS, DELTA = 3, 0.06
EPSILONS = (0.25, 0.5, 1.0, 1.5)
LAPLACE, GAUSSIAN = DiscreteLaplace(Fraction(1)), DiscreteGaussian(Fraction(9, 4))
KARY = partial(dp.mechanisms.KAry, subtraction=False)
Stream = tuple[int, ...]
# Keys of outputs, as bytes, and how likely each is.
Shown = tuple[np.ndarray, np.ndarray]


class Coarse(Counter):
    """A counter on the lattice of its values, so that noise can be enumerated."""

    resolution = 1


class Paths:
    """All paths of noise of a counter, and what its keys show under each of them."""

    def __init__(self, selection: Selection, half: int) -> None:
        self.selection, counter = selection, selection.counter
        n = counter.mechanism.draws(counter.horizon)
        z = np.arange(-half, half + 1)
        grid = np.stack(np.meshgrid(*[z] * n, indexing="ij"), -1).reshape(-1, n)
        self.chances = np.prod(counter.law.pmf(grid), axis=1)
        self.noise = grid.T.copy()  # a column a path
        self.names = [f"{i:08}" for i in range(len(grid))]
        self._known: dict[Any, Shown] = {}

    def values(self, x: Sequence[int]) -> np.ndarray:
        """All releases, shown or not, shape (paths, ticks), on the lattice."""
        counter, state = self.selection.counter, self.selection.counter.mechanism.init(1)
        fed, rows = skipped(x, self.selection.skipped), []
        for step in fed:
            column = np.full(len(self.names), step)
            state, y = counter.step_units(state, column, Script(self.noise))
            rows.append(np.asarray(y, dtype=np.float64))
        return np.stack(rows, axis=1)

    def shown(self, x: Stream) -> Shown:
        """What is shown of a key, by the code that runs in workers."""
        if x not in self._known:
            columns, seen = Columns(), np.full((len(self.names), len(x)), np.nan)
            for step, added in enumerate(x):
                sums = dict.fromkeys(self.names, added) if added else {}
                columns, found = advance(
                    self.selection, columns, sums, lambda names: Script(self.noise)
                )
                for name, value in found:
                    seen[int(name), step] = value
            self._known[x] = self.law(seen)
        return self._known[x]

    def law(self, seen: np.ndarray) -> Shown:
        """Outputs, a row a path (NaN: nothing), with the same ones joined."""
        rows = np.ascontiguousarray(np.where(np.isnan(seen), -1e9, seen))
        keys, places = np.unique(rows.view(f"V{8 * rows.shape[1]}").ravel(), return_inverse=True)
        return keys, np.bincount(places.ravel(), weights=self.chances)

    def q(self, k: int, ticks: int = TICKS) -> float:
        """P(k events that are alone, all in the first tick, show their key)."""
        values = self.values((k, *(0,) * (ticks - 1)))
        return float(self.chances[self.crosses(values).any(axis=1)].sum())

    def crosses(self, values: np.ndarray) -> np.ndarray:
        return np.asarray(values >= self.selection.lattice_thresholds)

    def counter_delta(self, x: Stream, other: Stream, epsilon: float) -> float:
        """The exact delta of the noised coordinates alone."""
        law, steps = self.selection.counter.law, self.selection.skipped
        moved = self.encoded(skipped(x, steps)) - self.encoded(skipped(other, steps))
        return of_shift(law, tuple(abs(int(c)) for c in moved if c), epsilon)

    def encoded(self, x: Sequence[int]) -> np.ndarray:
        mechanism = self.selection.counter.mechanism
        return np.rint(mechanism.encoder(len(x)) @ np.array(x)).astype(int)


def skipped(x: Sequence[int], b: int) -> Stream:
    """What is fed of a stream, from the words of `at_least`."""
    fed = np.maximum(np.cumsum(x) - b, 0)
    return tuple(np.diff(fed, prepend=0).tolist())


@lru_cache
def of_shift(law: Law, moved: tuple[int, ...], epsilon: float) -> float:
    z = np.arange(-45, 46)
    here = there = np.ones(1)
    for shift in moved:
        here = np.multiply.outer(here, law.pmf(z)).ravel()
        there = np.multiply.outer(there, law.pmf(z - shift)).ravel()
    return hockey_stick(here, there, epsilon)


def hockey_stick(p: np.ndarray, q: np.ndarray, epsilon: float) -> float:
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


def aligned(a: Shown, b: Shown) -> tuple[np.ndarray, np.ndarray]:
    """Two laws over the same outputs."""
    keys = np.union1d(a[0], b[0])
    p, q = np.zeros((2, len(keys)))
    p[np.searchsorted(keys, a[0])], q[np.searchsorted(keys, b[0])] = a[1], b[1]
    return p, q


def removals(x: Stream, events: int = 1) -> set[Stream]:
    """The stream without so many events."""
    found = {x}
    for _ in range(events):
        found = {(*y[:s], y[s] - 1, *y[s + 1 :]) for y in found for s in range(len(y)) if y[s] > 0}
    return found


def streams(paths: Paths, ticks: int = TICKS) -> list[Stream]:
    tested = paths.selection.lattice_thresholds
    top = math.ceil(float(tested[np.isfinite(tested)].max()))
    values = sorted({0, 1, top - 1, top})
    return list(
        itertools.product([v + (v > 1) * paths.selection.skipped for v in values], repeat=ticks)
    )


def excess(
    paths: Paths,
    shown: Callable[[Stream], Shown],
    events: int = 1,
    tried: Sequence[Stream] | None = None,
) -> float:
    """By how much delta is above what is allowed, at most, over all pairs and both directions."""
    worst, q_k, q_0 = -1.0, paths.q(events), paths.q(0)
    for x in streams(paths) if tried is None else tried:
        for other in removals(x, events):
            p, q = aligned(shown(x), shown(other))
            for epsilon in EPSILONS:
                loss = paths.counter_delta(x, other, epsilon)
                worst = max(
                    worst,
                    hockey_stick(p, q, epsilon) - loss - q_k,
                    hockey_stick(q, p, epsilon) - loss - q_0,
                )
    return worst


def made(kind: Any, law: Law, half: int = 9, ticks: int = TICKS, **options: Any) -> Paths:
    change = options.pop("change", TickChange(0, 1, most=64))
    counter = Coarse(kind(ticks), dp.ZCDP(1.0), law, change, None, 1)
    return Paths(Selection(counter, DELTA, **options), half)


CASES = [
    (dp.mechanisms.BinaryTree, LAPLACE),
    (dp.mechanisms.NormalizedBLT, GAUSSIAN),
    (dp.mechanisms.SmoothBinary, GAUSSIAN),
    (KARY, LAPLACE),
    (dp.mechanisms.BinaryTree, GAUSSIAN),
    (KARY, GAUSSIAN),
    (dp.mechanisms.KAry, LAPLACE),
]
each_case = pytest.mark.parametrize(
    ("kind", "law"),
    [
        pytest.param(*case, marks=[] if place < 2 else pytest.mark.exhaustive)
        for place, case in enumerate(CASES)
    ],
)


@each_case
def test_whatever_is_shown_keeps_both_deltas(kind: Any, law: Law) -> None:
    paths = made(kind, law)
    assert paths.q(1) <= DELTA
    assert excess(paths, paths.shown) <= 1e-9


@each_case
def test_an_event_that_is_alone_costs_what_shows_it(kind: Any, law: Law) -> None:
    """Exactly: the theorem is tight."""
    paths = made(kind, law)
    found = max(
        hockey_stick(*aligned(paths.shown(x), paths.shown((0,) * TICKS)), 1.0)
        for x in ((1, 0, 0), (0, 1, 0), (0, 0, 1))
    )
    assert found == pytest.approx(paths.q(1), abs=1e-12)
    if paths.selection.counter.mechanism.unit_weights:  # without margins for a coarse lattice
        assert found > DELTA / 8


def test_two_events_of_a_person_in_one_key() -> None:
    change = UserChange(0, 1, most=64, events=2, keys=1, per_key=2)
    paths = made(dp.mechanisms.BinaryTree, LAPLACE, change=change)
    assert paths.q(2) <= DELTA
    assert excess(paths, paths.shown, events=2) <= 1e-9


def test_two_keys_of_a_person() -> None:
    """Independent noise, so that the law of both is the product of both laws."""
    paths = made(
        dp.mechanisms.BinaryTree,
        GAUSSIAN,
        change=UserChange(0, 1, most=64, events=2, keys=2, per_key=1),
    )
    assert 2 * paths.q(1) <= DELTA
    tried = [x for x in streams(paths) if sum(v > 0 for v in x) <= 2][::4]
    pairs = [(x, y, *losses(paths, x, y)) for x in tried for y in sorted(removals(x))[:1]]
    for (x, y, p, q), (v, w, r, s) in itertools.product(pairs, pairs):
        for epsilon in (0.5, 1.5):
            moved = tuple(
                abs(int(c))
                for a, b in ((x, y), (v, w))
                for c in paths.encoded(a) - paths.encoded(b)
                if c
            )
            loss = of_shift(GAUSSIAN, moved, epsilon) if len(moved) < 4 else 0.0
            both = np.multiply.outer(p, r).ravel(), np.multiply.outer(q, s).ravel()
            if len(moved) < 4:
                assert hockey_stick(*both, epsilon) <= loss + 2 * paths.q(1) + 1e-9


def losses(paths: Paths, x: Stream, other: Stream) -> tuple[np.ndarray, np.ndarray]:
    """Two laws, outputs of one ratio joined: as far apart as before."""
    p, q = aligned(paths.shown(x), paths.shown(other))
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.round(np.where(q > 0, np.log(p / q), 99.0), 9)
    _, places = np.unique(ratio, return_inverse=True)
    return np.bincount(places.ravel(), weights=p), np.bincount(places.ravel(), weights=q)


def test_an_event_that_moves() -> None:
    """replace_one: what leaves may show a key, and what comes may, without anything in it."""
    change = TickChange(0, 1, relation="replace_one", most=64)
    paths = made(dp.mechanisms.BinaryTree, LAPLACE, change=change)
    allowed = paths.q(1) + paths.q(0)
    assert allowed <= DELTA
    for x in streams(paths)[::3]:
        for y in removals(x):
            for s in range(TICKS):
                other = (*y[:s], y[s] + 1, *y[s + 1 :])
                p, q = aligned(paths.shown(x), paths.shown(other))
                for epsilon in EPSILONS:
                    loss = paths.counter_delta(x, other, epsilon)
                    assert hockey_stick(p, q, epsilon) <= loss + allowed + 1e-9


@pytest.mark.parametrize(
    "law", [LAPLACE, pytest.param(GAUSSIAN, marks=pytest.mark.exhaustive)], ids=repr
)
def test_the_first_events_left_out(law: Law) -> None:
    paths = made(dp.mechanisms.BinaryTree, law, at_least=2)
    assert paths.q(2) == pytest.approx(made(dp.mechanisms.BinaryTree, law).q(1))
    worst, q_1 = -1.0, paths.q(2)
    for x in streams(paths):
        for other in removals(x):
            p, q = aligned(paths.shown(x), paths.shown(other))
            for epsilon in EPSILONS:
                loss = paths.counter_delta(x, other, epsilon)
                worst = max(worst, hockey_stick(p, q, epsilon) - loss - q_1)
                worst = max(worst, hockey_stick(q, p, epsilon) - loss - q_1)
    assert worst <= 1e-9


def test_tests_at_some_ticks_only() -> None:
    paths = made(dp.mechanisms.BinaryTree, LAPLACE, every=2)
    assert np.isinf(paths.selection.lattice_thresholds[[0, 2]]).all()
    plain = made(dp.mechanisms.BinaryTree, LAPLACE).selection.lattice_thresholds
    assert paths.selection.lattice_thresholds[1] < plain[1]
    assert excess(paths, paths.shown) <= 1e-9


def test_all_ticks_at_once_show_the_same() -> None:
    paths = made(dp.mechanisms.BinaryTree, LAPLACE, half=4, at_least=2)
    for x in ((1, 1, 5), (0, 7, 0), (3, 0, 4), (9, 9, 9)):
        n = len(paths.names)
        places, steps = (a.ravel() for a in np.indices((n, TICKS)))
        sums = Sums(places, steps + 1, np.tile(np.array(x), n))
        there = counted(sums, paths.selection.skipped)
        seen = np.full((n, TICKS), np.nan)
        for place, since, values in all_ticks(paths.selection, there, n, Script(paths.noise)):
            seen[place, since - 1 :] = values
        assert all(
            np.array_equal(a, b) for a, b in zip(paths.law(seen), paths.shown(x), strict=True)
        )


# Mutants: rules that look right, and that this audit must refuse


def mutated(paths: Paths, rule: str) -> Callable[[Stream], Shown]:
    """What another rule shows."""

    def shown(x: Stream) -> Shown:
        if not any(x):
            return paths.law(np.full((len(paths.names), len(x)), np.nan))
        first = next(t for t, v in enumerate(x) if v)
        values, ticks = paths.values(x), np.arange(len(x))
        tested = np.broadcast_to(ticks >= first, values.shape).copy()
        if rule == "counter from the first event":
            late = paths.values(x[first:] + (0,) * first)
            values = np.concatenate([late[:, :0], np.roll(late, first, axis=1)], axis=1)
        if rule == "tests at events only":
            tested &= np.array(x) > 0
        if rule == "an idle key is forgotten":
            alive, total, kept = False, 0, []
            for v in x:
                total, alive = (total if alive else 0) + v, v > 0
                kept.append(total if alive else 0)
            values = values - np.cumsum(x) + np.array(kept)
            tested &= np.array(x) > 0
        cross = paths.crosses(values) & tested
        begins = np.where(cross.any(axis=1), cross.argmax(axis=1), len(x))
        if rule == "earlier releases from the first event":
            begins = np.where(begins < len(x), first, begins)
        seen = np.where(ticks >= begins[:, None], values, np.nan)
        # When it was shown is seen, too, where earlier releases come with it.
        return paths.law(seen)

    return shown


@pytest.mark.parametrize(
    "rule",
    [
        "tests at events only",
        "counter from the first event",
        "earlier releases from the first event",
        "an idle key is forgotten",
    ],
)
def test_rules_that_are_wrong(rule: str) -> None:
    paths = made(dp.mechanisms.BinaryTree, LAPLACE)
    assert excess(paths, mutated(paths, "")) <= 1e-9  # the right one, written out
    assert excess(paths, mutated(paths, rule)) > 0.02


def test_thresholds_without_what_can_be_in_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    def low(self: TickChange, mechanism: Any) -> Touched:
        return Touched(1, 0)

    monkeypatch.setattr(TickChange, "touched", low)
    paths = made(dp.mechanisms.BinaryTree, LAPLACE)
    assert paths.q(1) > DELTA


def test_one_keys_share_taken_for_many(monkeypatch: pytest.MonkeyPatch) -> None:
    change = UserChange(0, 1, most=64, events=5, keys=5, per_key=1)
    paths = made(dp.mechanisms.BinaryTree, LAPLACE, half=14, change=change)
    assert 5 * paths.q(1) <= DELTA
    monkeypatch.setattr(UserChange, "touched", lambda self, mechanism: Touched(1, 1))
    wrong = made(dp.mechanisms.BinaryTree, LAPLACE, half=14, change=change)
    assert 5 * wrong.q(1) > DELTA


def test_a_normal_quantile_for_laplace_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    def normal(counter: Counter, total: float, tested: Any) -> Any:
        return -NormalDist().inv_cdf(total / len(tested)) * counter.stddevs(counter.horizon)

    monkeypatch.setattr(rules, "thresholds", normal)
    counter = Coarse(
        dp.mechanisms.BinaryTree(TICKS), dp.ZCDP(1.0), LAPLACE, TickChange(0, 1), None, 1
    )
    paths = Paths(Selection(counter, 1e-3), 14)
    assert paths.q(1) > 2e-3
    monkeypatch.setattr(rules, "thresholds", thresholds)
    assert Paths(Selection(counter, 1e-3), 14).q(1) <= 1e-3


def test_fresh_noise_for_each_test() -> None:
    """Tests with noise of their own are paid for by nothing."""
    paths = made(dp.mechanisms.BinaryTree, LAPLACE, half=7, ticks=2)
    n, levels = len(paths.names), paths.selection.lattice_thresholds

    def shown(x: Stream) -> Shown:
        if not any(x):
            return paths.law(np.full((n, 2), np.nan))
        first = next(t for t, v in enumerate(x) if v)
        values, laws = paths.values(x), list[Shown]()
        for begins in (*range(first, 2), 2):
            chance = 1.0
            for t in range(first, min(begins + 1, 2)):
                beyond = [LAPLACE.pmf(np.arange(math.ceil(levels[t] - sum(x[: t + 1])), 90))]
                cross = float(beyond[0].sum())
                chance *= cross if t == begins else 1 - cross
            keys, found = paths.law(np.where(np.arange(2) >= begins, values, np.nan))
            laws.append((keys, found * chance))
        keys = np.concatenate([law[0] for law in laws])
        return keys, np.concatenate([law[1] for law in laws])

    tried = list(itertools.product(range(math.ceil(levels.max()) + 4), repeat=2))
    worst = -1.0
    for x in tried:
        for other in removals(x):
            p, q = aligned(shown(x), shown(other))
            for epsilon in (0.5, 1.0, 2.0):
                loss = paths.counter_delta(x, other, epsilon)
                worst = max(worst, hockey_stick(p, q, epsilon) - loss - paths.q(1, 2))
    assert worst > 0.02


def test_a_cell_a_key_lets_one_event_move_another() -> None:
    """A late event that is folded if its key is known, and counts at its own tick if not."""
    mechanism = dp.mechanisms.NormalizedBLT(100)
    encoder, unit = mechanism.encoder(100), np.eye(100)
    # The late one, of tick 3, with one of tick 50 that was in time; and alone, at its own tick.
    with_it, without = encoder @ (unit[49] + unit[50]), encoder @ unit[2]
    assert np.linalg.norm(with_it - without) > 1.8 * math.sqrt(mechanism.l2_sensitivity_squared)
    by_shards = encoder @ unit[50]
    assert np.linalg.norm(with_it - by_shards) <= math.sqrt(mechanism.l2_sensitivity_squared)


def test_the_audit_sees_a_threshold_that_is_one_too_low() -> None:
    paths = made(dp.mechanisms.BinaryTree, LAPLACE)
    lower = replace(paths.selection)
    lower.__dict__["lattice_thresholds"] = paths.selection.lattice_thresholds - 1
    assert Paths(lower, 9).q(1) > DELTA

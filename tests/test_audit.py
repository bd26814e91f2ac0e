"""Every counter keeps its budget, exactly; and the audit that says so catches what breaks it."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import pytest

import beam_dpcount as dp
from beam_dpcount import mechanisms
from beam_dpcount.budget.budgets import noise_laws
from beam_dpcount.noise.laws import DiscreteGaussian, DiscreteLaplace, RoundedGaussian
from tests.audit import exact as audits
from tests.audit.exact import audit
from tests.rounding import ROUNDED, FedBackRoot, UncountedRounding, Unrounded, coarse

BUDGETS = (
    dp.PureDP(0.3),
    dp.PureDP(1.0),
    dp.PureDP(4.0),
    dp.ZCDP(0.05),
    dp.ZCDP(0.5),
    dp.ZCDP(5.0),
    dp.ApproxDP(1.0, 1e-6),
    dp.ApproxDP(0.5, 1e-2),
    dp.ApproxDP(3.0, 1e-3),
    dp.ApproxDP(0.1, 1e-9),
)

GAUSSIANS = (DiscreteGaussian, RoundedGaussian)


KINDS = (*mechanisms.ALL, mechanisms.Endless, *map(coarse, (*ROUNDED, mechanisms.Endless)))

every = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
budgets = pytest.mark.parametrize("budget", BUDGETS, ids=str)
few_budgets = pytest.mark.parametrize(
    "budget",
    [dp.PureDP(1.0), dp.ZCDP(0.5), dp.ApproxDP(1.0, 1e-6), dp.ApproxDP(3.0, 1e-3)],
    ids=str,
)
relations = pytest.mark.parametrize("relation", ["replace_one", "add_remove"])


def counters(mechanism, budget, change=None, dimension=None, unit=1.0):
    """The calibrated counter, and one for every other law that the budget would have allowed."""
    change = change or dp.Change()
    norms = change.norms(mechanism, unit, dimension)
    laws = noise_laws(budget, *norms, mechanism.laws)
    if not laws:
        with pytest.raises(ValueError, match=f"^{mechanism.name} takes"):
            dp.calibrate(mechanism, budget, change, dimension, unit)
        return []
    counter = dp.calibrate(mechanism, budget, change, dimension, unit)
    assert counter.law in laws
    return [replace(counter, law=law) for law in laws]


# Every counter keeps its budget


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.exhaustive("budget", "kind", "relation")
@every
@budgets
@relations
def test_bit_streams_keep_the_budget(kind, budget, relation):
    for horizon in range(1, 7):
        for counter in counters(kind(horizon), budget, dp.Change(relation=relation)):
            assert audit(counter) == [], (horizon, counter.law)


@pytest.mark.slow
@pytest.mark.exhaustive("budget", "kind", "relation")
@every
@few_budgets
@relations
def test_numbers_within_any_bounds_keep_the_budget(kind, budget, relation):
    """Bounds on both sides of 0 and on one, a unit that divides them and one that does not."""
    settings = [((-1.0, 2.0), 0.5), ((-2.0, -1.0), 1.0), ((0.7, 1.9), 0.3)]
    for (low, high), unit in settings:
        change = dp.Change(low, high, relation)
        values = [-math.inf, low, low / 2 + high / 2, 0.0, high, 1e9]
        for counter in counters(kind(3), budget, change, unit=unit):
            assert audit(counter, values) == [], (low, high, unit, counter.law)


@pytest.mark.slow
@pytest.mark.exhaustive("budget", "kind", "touched")
@every
@few_budgets
@pytest.mark.parametrize("touched", [None, 1])
def test_vector_streams_keep_the_budget(kind, budget, touched):
    values = list(itertools.product((0, 1), repeat=2))
    for horizon in (1, 2, 3):
        change = dp.Change(coordinates=touched)
        for counter in counters(kind(horizon), budget, change, dimension=2):
            assert audit(counter, values) == [], (horizon, counter.law)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("kind", mechanisms.ALL, ids=lambda kind: kind.__name__)
def test_the_budget_is_spent(kind):
    """The losses above are not only small enough: pure and zCDP budgets are met exactly, but for
    the 1e-4 that rounding takes, at most, of the noise's scale."""
    mechanism = kind(6)
    spared = 2.1e-4 if kind in ROUNDED else 1e-9
    for counter in counters(mechanism, dp.ZCDP(0.5)):
        changes = audits.differences(counter, (0, 1))
        worst = max(audits.renyi(counter.law, change, 4.0) for change in changes)
        assert 4.0 * 0.5 * (1 - spared) <= worst <= 4.0 * 0.5 * (1 + 1e-9)
    for counter in counters(mechanism, dp.PureDP(1.0)):
        changes = audits.differences(counter, (0, 1))
        assert max(audits.pure_loss(counter.law, c) for c in changes) == pytest.approx(1.0)
    for counter in counters(mechanism, dp.ApproxDP(1.0, 1e-6)):
        if isinstance(counter.law, RoundedGaussian):
            changes = audits.differences(counter, (0, 1))
            worst = max(audits.hockey_stick(counter.law, c, 1.0)[0] for c in changes)
            assert 8e-7 < worst < 1e-6


def test_early_draws_are_claimed_under_pure_dp_only():
    """Converted to zCDP, noise that is drawn early fails inputs chosen after its first use.

    KAry(3, arity=3) releases x1 + z1, then x1 + x2 + z3 - z2, then x1 + x2 + x3 + z3, where z2
    is on x3 alone. Who sees z3 - z2 = 0 and only then lets x3 differ faces the law of z3 given
    that: the square of a Laplace law, of half the scale, at twice the zCDP of two coordinates.
    """
    mechanism = mechanisms.KAry(3, arity=3)
    counter = dp.calibrate(mechanism, dp.PureDP(0.2))
    assert mechanism.draws_early
    assert mechanism.decoder(3).tolist() == [[1, 0, 0], [0, -1, 1], [0, 0, 1]]
    given = DiscreteLaplace(counter.law.parameter / 2)
    at_once = audits.renyi(counter.law, np.array([1, 1]), 2.0)
    assert audits.renyi(given, np.array([1]), 2.0) > 1.9 * at_once
    assert audits.pure_loss(given, np.array([1])) <= 0.2 + 1e-12
    # So nothing is claimed beyond the pure budget, also where a conversion would promise more.
    for early in (counter, dp.calibrate(mechanisms.KAry(2**40, arity=3), dp.PureDP(1))):
        for delta in (1e-6, 1e-2):
            assert early.epsilon_at(delta) == pytest.approx(early.budget.epsilon)


# The audit's own arithmetic


def test_the_audit_sees_every_neighbouring_pair():
    counter = dp.calibrate(mechanisms.BinaryTree(3), dp.PureDP(1))
    seen = {tuple(d) for d in audits.differences(counter, (0, 1))}
    # The nodes over the items 1, 2, 3; and no change, where an element counted 0 anyway.
    assert seen == {(0, 0, 0), (1, 1, 0), (0, 1, 0), (0, 0, 1)}


@pytest.mark.parametrize(
    "law",
    [DiscreteLaplace(Fraction(s)) for s in ("0.2", "1", "7.5")]
    + [kind(Fraction(s)) for s in ("0.2", "1", "61", "250") for kind in GAUSSIANS],
    ids=repr,
)
def test_the_audits_laws_are_the_packages(law):
    x = np.arange(-400, 401)
    assert np.exp(audits.log_pmf(law, x)).sum() == pytest.approx(1, abs=1e-12)
    assert law.pmf(x) == pytest.approx(np.exp(audits.log_pmf(law, x)), rel=1e-9, abs=1e-300)
    variance, fourth = audits.law_moments(law)
    assert law.variance == pytest.approx(variance, rel=1e-9)
    assert fourth >= variance**2


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 2.5])
def test_the_convolved_loss_is_that_of_the_joint_law(epsilon):
    """Two coordinates, by summing (P - e^epsilon Q)+ over all pairs of outputs."""
    change = np.array([1, 2])
    for law in (DiscreteLaplace(Fraction(3, 2)), *(kind(Fraction(5, 2)) for kind in GAUSSIANS)):
        y = np.arange(-80, 81)
        p = np.exp(np.add.outer(*(audits.log_pmf(law, y) for _ in change)))
        q = np.exp(np.add.outer(*(audits.log_pmf(law, y - d) for d in change)))
        direct = np.maximum(p - math.exp(epsilon) * q, 0).sum()
        delta, truncated = audits.hockey_stick(law, change, epsilon)
        assert truncated < 1e-12
        if isinstance(law, RoundedGaussian):
            assert direct * (1 - 1e-9) <= delta <= direct * (1 + 1e-6)
            rough, _ = audits.hockey_stick(law, change, epsilon, 0.5)
            assert direct * (1 + 1e-6) < rough < direct * 1.2
        else:
            assert delta == pytest.approx(direct, rel=1e-9, abs=1e-13)
        assert direct > 1e-6 or isinstance(law, DiscreteLaplace)  # whose largest loss is 2


def test_the_renyi_divergence_is_that_of_the_joint_law():
    change = np.array([1, 2, 0])
    for law in (DiscreteLaplace(Fraction(3, 2)), *(kind(Fraction(5, 2)) for kind in GAUSSIANS)):
        y = np.arange(-80, 81)
        p = np.add.outer(*(audits.log_pmf(law, y) for _ in range(2)))
        q = np.add.outer(*(audits.log_pmf(law, y - d) for d in (1, 2)))
        for alpha in (1.5, 2.0, 4.7):
            direct = np.log(np.exp(alpha * p + (1 - alpha) * q).sum()) / (alpha - 1)
            assert audits.renyi(law, change, alpha) == pytest.approx(direct, rel=1e-9)


# Mutants: each breaks privacy or correctness in one way, and a named check catches it


@dataclass(frozen=True)
class ShortTree(mechanisms.BinaryTree):
    """Counts one level too few, as code does that takes h = log2(T)."""

    @property
    def l1_sensitivity(self):
        return self.horizon.bit_length() - 1

    @property
    def l2_sensitivity_squared(self):
        return self.horizon.bit_length() - 1


@dataclass(frozen=True)
class ShortSmooth(mechanisms.SmoothBinary):
    """Counts one zero too few."""

    @property
    def l1_sensitivity(self):
        return self.shape[1] - 1

    @property
    def l2_sensitivity_squared(self):
        return self.shape[1] - 1


@dataclass(frozen=True)
class FreshTree(mechanisms.BinaryTree):
    """Draws the noise of every live node anew at each step, as [FHU22, Theorem 2] prints it."""

    def step(self, state, x, noise):
        t = self.next_step(state)
        total, value, node = state[1] + x, state[1] + x, t
        while node:
            value = value + noise.one(node)
            node &= node - 1
        return (t, total), value


@dataclass(frozen=True)
class RenumberedTree(FreshTree):
    """The same, under new coordinates: each is drawn once, but the nodes' noises are not kept."""

    def step(self, state, x, noise):
        t = self.next_step(state)
        drawn = sum(s.bit_count() for s in range(t))
        total = state[1] + x
        return (t, total), total + sum(noise.one(drawn + i + 1) for i in range(t.bit_count()))


@dataclass(frozen=True)
class BareTree(mechanisms.BinaryTree):
    """Releases the exact sum at step 3."""

    def step(self, state, x, noise):
        state, value = super().step(state, x, noise)
        return state, state[1] if state[0] == 3 else value


@dataclass(frozen=True)
class UndrawnTree(mechanisms.BinaryTree):
    """Takes step 3 without drawing its noise."""

    def step(self, state, x, noise):
        if state[0] == 2:
            total = state[1] + x
            return (3, total, *state[2:], 0), total + sum(state[2:])
        return super().step(state, x, noise)


@dataclass(frozen=True)
class BareWhenZeroTree(mechanisms.BinaryTree):
    """Draws no noise for a step that holds 0."""

    def step(self, state, x, noise):
        if np.any(x):
            return super().step(state, x, noise)

        class Silence:
            def one(self, coordinate):
                return 0

        return super().step(state, x, Silence())


@dataclass(frozen=True)
class SharingTree(mechanisms.BinaryTree):
    """Gives nodes 3 and 4 the draw of node 3; the fourth is drawn, and not used."""

    def step(self, state, x, noise):
        last = state[-1]
        state, value = super().step(state, x, noise)
        if state[0] == 4:
            state, value = (*state[:-1], last), value - state[-1] + last
        return state, value


@dataclass(frozen=True)
class SharingUndrawnTree(mechanisms.BinaryTree):
    """Gives node 4 the draw of node 3, without drawing a fourth."""

    def step(self, state, x, noise):
        if state[0] == 3:
            total = state[1] + x
            return (4, total, state[-1]), total + state[-1]
        return super().step(state, x, noise)


@dataclass(frozen=True)
class SameForAllTree(mechanisms.BinaryTree):
    """Gives every coordinate of a vector the noise of the first."""

    def step(self, state, x, noise):
        class First:
            def one(self, coordinate):
                z = noise.one(coordinate)
                return z if np.ndim(z) == 0 else np.full_like(z, z[0])

        return super().step(state, x, First())


@dataclass(frozen=True)
class EarlyTree(mechanisms.BinaryTree):
    """Draws two nodes' noises at a time, the second before its items are in, into the state."""

    def init(self, dimension=None):
        return (0, super().init(dimension)[1], None)

    def step(self, state, x, noise):
        class Pair:
            def one(self, coordinate):
                return pool.pop(0)

        t, _, ahead = state[0] + 1, *state[1:3]
        pool = [noise.one(t), *([noise.one(t + 1)] if t < self.horizon else [])]
        if ahead is not None:
            pool = [ahead]
        (t, total, *kept), value = super().step((*state[:2], *state[3:]), x, Pair())
        return (t, total, pool[0] if pool else None, *kept), value


@dataclass(frozen=True)
class LateTree(mechanisms.BinaryTree):
    """Leaves an item out of the release of its own step."""

    def step(self, state, x, noise):
        state, value = super().step(state, x, noise)
        return state, value - x


@dataclass(frozen=True)
class BareBulkTree(mechanisms.BinaryTree):
    """Steps as it should; its bulk release adds no noise to the last value."""

    def release(self, xs, noise):
        released = super().release(xs, noise)
        released[-1] = xs.sum(axis=0)
        return released


MUTANTS = [
    (ShortTree, "budget"),
    (ShortSmooth, "budget"),
    (FreshTree, "order"),
    (RenumberedTree, "order"),
    (BareTree, "factorization"),
    (UndrawnTree, "order"),
    (BareWhenZeroTree, "pattern"),
    (SharingTree, "factorization"),
    (SharingUndrawnTree, "order"),
    (EarlyTree, "order"),
    (LateTree, "affine"),
    (BareBulkTree, "release"),
    (Unrounded, "affine"),
    (FedBackRoot, "affine"),
    (UncountedRounding, "budget"),
]


@pytest.mark.slow
@pytest.mark.exhaustive("budget", "check", "mutant")
@budgets
@pytest.mark.parametrize(("mutant", "check"), MUTANTS, ids=lambda m: getattr(m, "__name__", m))
def test_mutants_are_caught(mutant, check, budget):
    if check == "budget" and isinstance(budget, dp.ApproxDP) and budget.delta > 1e-6:
        budget = dp.ApproxDP(budget.epsilon, 1e-6)  # larger ones leave room for a short tree
    for counter in counters(mutant(6), budget):
        assert check in audit(counter)


@every
@budgets
def test_less_noise_than_calibrated_is_caught(kind, budget):
    """Half the scale, and already 0.9 of it where the budget is met exactly."""
    exact = not isinstance(budget, dp.ApproxDP) and kind in mechanisms.ALL
    for counter in counters(kind(6), budget):
        for factor in (Fraction(1, 2), Fraction(9, 10)) if exact else (Fraction(1, 2),):
            if isinstance(counter.law, GAUSSIANS):
                less = replace(counter.law, sigma2=counter.law.sigma2 * factor**2)
            else:
                less = DiscreteLaplace(counter.law.parameter * factor)
            assert audit(replace(counter, law=less)) == ["budget"]


def test_noise_shared_by_the_coordinates_of_a_vector_is_caught():
    counter = dp.calibrate(SameForAllTree(3), dp.PureDP(1), dimension=2)
    assert "affine" in audit(counter, list(itertools.product((0, 1), repeat=2)))


def test_bounds_that_forget_rejected_elements_are_caught():
    """Within (5, 10) a replacement seems to change 5 at most; but a rejected element counts 0."""

    @dataclass(frozen=True)
    class Forgetful(dp.Change):
        def magnitude(self, unit):
            low, high = self.lattice_bounds(unit)
            return high - low

    counter = dp.calibrate(mechanisms.BinaryTree(2), dp.PureDP(1), Forgetful(5, 10))
    assert audit(counter, (5, 10)) == ["budget"]
    counter = dp.calibrate(mechanisms.BinaryTree(2), dp.PureDP(1), dp.Change(5, 10))
    assert audit(counter, (5, 10)) == []

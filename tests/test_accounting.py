"""Events for dp-accounting: they dominate what was drawn, and its accountants agree with us."""

from __future__ import annotations

import importlib.util
import math
import sys
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import pytest

import beam_dpcount as dp
from beam_dpcount import mechanisms
from beam_dpcount.budget import costs
from beam_dpcount.budget.conversions import (
    gaussian_delta,
    gaussian_epsilon,
    gaussian_sigma,
    zcdp_epsilon,
)
from beam_dpcount.budget.costs import dp_event, ledger_event
from beam_dpcount.budget.ledger import Ledger
from beam_dpcount.counters.change import ItemsChange, TickChange
from beam_dpcount.noise.laws import DiscreteGaussian, DiscreteLaplace, RoundedGaussian
from tests.audit import exact as audits

library = pytest.importorskip("dp_accounting")
rdp = pytest.importorskip("dp_accounting.rdp")
pld = pytest.importorskip("dp_accounting.pld")

# Fine enough to lose less than 1e-6 of epsilon, as in test_budget.py.
ORDERS = 1 + np.geomspace(0.011, 1e4, 20_000)
DELTAS = (1e-9, 1e-6, 1e-3)

PURE, ZCDP, APPROX = dp.PureDP(1.0), dp.ZCDP(0.5), dp.ApproxDP(1.0, 1e-6)
GAUSSIANS = (
    mechanisms.BinaryTree(1000),
    mechanisms.SmoothBinary(1000),
    mechanisms.NormalizedBLT(1000),
    mechanisms.SquareRoot(100),
    mechanisms.Honaker(7),
)
LAPLACES = (
    mechanisms.BinaryTree(1000),
    mechanisms.KAry(1000),
    mechanisms.KAry(1000, subtraction=False),
    mechanisms.BridgedKAry(1000),
    mechanisms.SmoothLaplace(1000),
    mechanisms.TwoLevel(64),
)
CHANGES = (
    None,
    dp.Change(-2.0, 1.0),
    dp.Change(0.0, 0.7),
    TickChange(0.0, 3.0, "replace_one", max_items=2),
)


def laplace(epsilon, sensitivity=1):
    return library.dp_event.DiscreteLaplaceDpEvent(epsilon, sensitivity)


def by_rdp(event, delta):
    accountant = rdp.RdpAccountant(orders=ORDERS)
    assert accountant.supports(event)
    return accountant.compose(event).get_epsilon(delta)


def by_pld(event, delta, interval=1e-4):
    accountant = pld.PLDAccountant(value_discretization_interval=interval)
    assert accountant.supports(event)
    return accountant.compose(event).get_epsilon(delta)


def named(value):
    return getattr(value, "name", str(value))


# What the installed library takes


def test_which_accountant_takes_which_event():
    """The returned kinds rest on this: when it changes, more than one choice could be better."""
    takes = {
        kind: (rdp.RdpAccountant().supports(event), pld.PLDAccountant().supports(event))
        for kind, event in {
            "zCDP": library.ZCDpEvent(0.1),
            "Gaussian": library.GaussianDpEvent(3.0),
            "discrete Laplace": laplace(0.5),
            "Laplace": library.LaplaceDpEvent(2.0),
        }.items()
    }
    assert takes == {
        "zCDP": (True, False),
        "Gaussian": (True, True),
        "discrete Laplace": (False, True),
        "Laplace": (True, True),
    }
    assert not hasattr(library.dp_event, "EpsilonDeltaDpEvent")  # as of 0.6.0


# Discrete Gaussian noise: zCDP


@pytest.mark.parametrize("mechanism", GAUSSIANS, ids=named)
@pytest.mark.parametrize("budget", [dp.ZCDP(0.01), ZCDP, dp.ZCDP(3.0)], ids=str)
def test_discrete_gaussians_are_zcdp(mechanism, budget):
    counter = dp.calibrate(mechanism, budget)
    event = dp_event(counter)
    assert isinstance(counter.law, DiscreteGaussian)
    assert event == library.ZCDpEvent(pytest.approx(budget.rho, rel=1e-15))
    assert event.rho >= budget.rho
    # From the noise that is drawn, whatever the budget says.
    less = replace(counter.law, sigma2=counter.law.sigma2 / 2)
    assert dp_event(replace(counter, law=less)).rho == pytest.approx(2 * budget.rho, rel=1e-12)


def test_events_are_rounded_to_the_safe_side():
    for epsilon in np.geomspace(0.1, 3, 50):
        mechanism = mechanisms.NormalizedBLT(100)
        counter = dp.calibrate(mechanism, dp.ApproxDP(epsilon, 1e-6))
        l2_squared = counter.change.norms(mechanism, 1.0, None)[1]
        ratio = 3 * l2_squared / counter.law.sigma2
        third = RoundedGaussian(counter.law.sigma2 / 3)
        assert Fraction(dp_event(replace(counter, law=third)).noise_multiplier) ** 2 * ratio <= 1
        third = DiscreteGaussian(counter.law.sigma2 / 3)
        assert Fraction(dp_event(replace(counter, law=third)).rho) >= ratio / 2
        pure = dp.calibrate(mechanisms.BinaryTree(100), dp.PureDP(epsilon))
        third = DiscreteLaplace(pure.law.parameter / 3)
        assert Fraction(dp_event(replace(pure, law=third)).noise_parameter) >= 3 * Fraction(epsilon)


@pytest.mark.parametrize("rho", [1e-3, 0.05, 0.5, 5.0])
@pytest.mark.parametrize("delta", DELTAS)
def test_the_rdp_accountant_agrees_on_zcdp(rho, delta):
    """Its grid of orders never finds less than the optimum, and hardly more."""
    counter = dp.calibrate(mechanisms.NormalizedBLT(100), dp.ZCDP(rho))
    theirs = by_rdp(dp_event(counter), delta)
    for ours in (counter.epsilon_at(delta), zcdp_epsilon(rho, delta)):
        assert theirs * (1 - 1e-6) <= ours <= theirs * (1 + 1e-10)


@pytest.mark.parametrize("change", CHANGES, ids=str)
@pytest.mark.parametrize("mechanism", GAUSSIANS[:3], ids=named)
def test_sensitivities_are_in_the_event(mechanism, change):
    vectors = [] if isinstance(change, TickChange) else [(1, 3)]
    for unit, dimension in ((1, None), (0.5, None), *vectors):
        counter = dp.calibrate(mechanism, ZCDP, change, dimension, unit)
        assert dp_event(counter).rho == pytest.approx(0.5, rel=1e-12)
        counter = dp.calibrate(mechanism, APPROX, change, dimension, unit)
        by_hand = counter.law.scale * counter.grid / counter.l2_sensitivity
        if isinstance(counter.law, RoundedGaussian):
            assert dp_event(counter).noise_multiplier == pytest.approx(by_hand, rel=1e-12)


def test_vectors_of_items():
    counter = dp.calibrate(mechanisms.SmoothBinary(50), ZCDP, ItemsChange(max_items=2), 10)
    assert dp_event(counter).rho == pytest.approx(0.5, rel=1e-12)


# Rounded Gaussian noise: the continuous mechanism, post-processed


@pytest.mark.slow
@pytest.mark.exhaustive("budget", "mechanism")
@pytest.mark.parametrize("mechanism", GAUSSIANS, ids=named)
@pytest.mark.parametrize("budget", [APPROX, dp.ApproxDP(0.1, 1e-9), dp.ApproxDP(4, 1e-4)], ids=str)
def test_accountants_agree_on_rounded_gaussians(mechanism, budget):
    counter = dp.calibrate(mechanism, budget)
    if not isinstance(counter.law, RoundedGaussian):  # Laplace noise is smaller
        l2_squared = counter.change.norms(mechanism, 1.0, None)[1]
        sigma = Fraction(gaussian_sigma(budget.epsilon, budget.delta))
        counter = replace(counter, law=RoundedGaussian(l2_squared * sigma**2))
    event = dp_event(counter)
    assert isinstance(event, library.GaussianDpEvent)
    for delta in {budget.delta, 1e-6}:
        ours = counter.epsilon_at(delta)
        assert ours == pytest.approx(gaussian_epsilon(1 / event.noise_multiplier, delta), rel=1e-9)
        exact = library.get_epsilon_gaussian(event.noise_multiplier, delta)
        assert ours == pytest.approx(exact, rel=1e-6)
        interval = ours / 2000
        assert ours <= by_pld(event, delta, interval) * (1 + 1e-3)
        optimistic = pld.privacy_loss_distribution.from_gaussian_mechanism(
            event.noise_multiplier,
            value_discretization_interval=interval,
            pessimistic_estimate=False,
        ).get_epsilon_for_delta(delta)
        assert optimistic * (1 - 1e-3) <= ours
        assert by_pld(event, delta, interval) == pytest.approx(ours, rel=1e-3)
        # Renyi differential privacy is less tight for one mechanism.
        assert ours < by_rdp(event, delta) < 1.15 * ours
    assert counter.epsilon_at(budget.delta) == pytest.approx(budget.epsilon, rel=1e-6)


@pytest.mark.slow
def test_several_counters_compose_more_tightly_than_their_epsilons():
    """What an accountant is for: 8 counters at (1, 1e-6) are far from (8, 8e-6)."""
    counter = dp.calibrate(mechanisms.NormalizedBLT(1000), APPROX)
    multiplier = dp_event(counter).noise_multiplier
    together = library.ComposedDpEvent([dp_event(counter)] * 8)
    ours = gaussian_epsilon(math.sqrt(8) / multiplier, 8e-6)
    assert by_pld(together, 8e-6) == pytest.approx(ours, rel=1e-3)
    assert ours < 3.1


# Discrete Laplace noise: pure


@pytest.mark.parametrize("mechanism", LAPLACES, ids=named)
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 4.0])
def test_laplace_noise_is_pure(mechanism, epsilon):
    counter = dp.calibrate(mechanism, dp.PureDP(epsilon))
    event = dp_event(counter)
    assert event == laplace(epsilon)
    assert by_pld(event, 0.0) == pytest.approx(epsilon, rel=1e-9)
    assert counter.epsilon_at(1e-15) <= epsilon
    scale = counter.law.parameter
    assert dp_event(replace(counter, law=DiscreteLaplace(scale / 3))).noise_parameter == (
        pytest.approx(3 * epsilon, rel=1e-15)
    )


def test_as_zcdp_for_the_rdp_accountant():
    counter = dp.calibrate(mechanisms.BinaryTree(1000), dp.PureDP(0.1))
    event = dp_event(counter, zcdp=True)
    h, scale = 10, float(counter.law.parameter)
    assert event == library.ZCDpEvent(pytest.approx(h / scale**2 / 2, rel=1e-12))
    assert by_rdp(event, 1e-3) == pytest.approx(zcdp_epsilon(event.rho, 1e-3), rel=1e-6)
    # Noise that is drawn early may meet inputs that follow it: only pure DP, converted, holds.
    early = dp.calibrate(mechanisms.KAry(1000), dp.PureDP(0.1))
    assert early.mechanism.draws_early
    assert dp_event(early, zcdp=True) == library.ZCDpEvent(pytest.approx(0.1**2 / 2, rel=1e-12))
    # Nothing else changes.
    for budget in (ZCDP, APPROX):
        counter = dp.calibrate(mechanisms.NormalizedBLT(100), budget)
        assert dp_event(counter, zcdp=True) == dp_event(counter)


def randomised_response(epsilon, at):
    return max(0.0, (math.exp(epsilon) - math.exp(at)) / (math.exp(epsilon) + 1))


@pytest.mark.parametrize("kind", [mechanisms.BinaryTree, mechanisms.Simple2, mechanisms.KAry])
@pytest.mark.parametrize("high", [1.0, 3.0])
def test_the_pure_event_dominates_the_exact_loss(kind, high):
    """Of every neighbouring pair, at every epsilon; and continuous Laplace noise would not."""
    counter = dp.calibrate(kind(5), dp.PureDP(1.2), dp.Change(0.0, high))
    accountant = pld.PLDAccountant().compose(dp_event(counter))
    exceeded = False
    continuous = pld.PLDAccountant(value_discretization_interval=1e-3)
    continuous.compose(library.LaplaceDpEvent(1 / 1.2))
    for at in (0.0, 0.1, 0.4, 0.8, 1.1, 1.199):
        theirs = accountant.get_delta(at)
        assert theirs == pytest.approx(randomised_response(1.2, at), rel=1e-9)
        for change in audits.differences(counter, (0.0, high)):
            delta, left_out = audits.hockey_stick(counter.law, change, at)
            assert delta + left_out <= theirs + 1e-12
            exceeded |= delta > continuous.get_delta(at) * 1.01
    assert exceeded or kind is not mechanisms.Simple2


@pytest.mark.slow
@pytest.mark.parametrize("kind", [mechanisms.BinaryTree, mechanisms.SmoothBinary, mechanisms.BLT])
def test_gaussian_events_dominate_the_exact_loss(kind):
    counter = dp.calibrate(kind(5), dp.ZCDP(0.2))
    rho = dp_event(counter).rho
    changes = audits.differences(counter, (0, 1))
    for alpha in (1.1, 2.0, 8.0, 33.3):
        worst = max(audits.renyi(counter.law, change, alpha) for change in changes)
        assert alpha * rho * (1 - 2.1e-4) <= worst <= alpha * rho * (1 + 1e-9)
    rounded = replace(counter, law=RoundedGaussian(counter.law.sigma2))
    multiplier = dp_event(rounded).noise_multiplier
    for at in (0.1, 0.5, 1.0):
        worst = max(sum(audits.hockey_stick(rounded.law, d, at, 1e-3)) for d in changes)
        assert worst <= gaussian_delta(at, 1 / multiplier) * (1 + 1e-4)


# Unbounded and Sparse


@pytest.mark.parametrize("budget", [PURE, ZCDP, APPROX], ids=str)
@pytest.mark.parametrize("share", [0.5, 0.8])
def test_unbounded_is_a_base_and_a_total(budget, share):
    """As an item lies in one epoch; and bases of all epochs cost the same."""
    counter = dp.calibrate(mechanisms.Unbounded(mechanisms.BinaryTree, share), budget)
    event = dp_event(counter)
    base, total = event.events
    if isinstance(budget, dp.PureDP):
        assert base == laplace(pytest.approx(share, rel=1e-12))
        assert total == laplace(pytest.approx(1 - share, rel=1e-12))
        assert 1 - 1e-9 <= by_pld(event, 0.0) <= 1 + 1e-9
    else:
        rho = budget.to_zcdp().rho
        assert base == library.ZCDpEvent(pytest.approx(share * rho, rel=1e-12))
        assert total == library.ZCDpEvent(pytest.approx((1 - share) * rho, rel=1e-12))
        assert by_rdp(event, 1e-6) == pytest.approx(zcdp_epsilon(rho, 1e-6), rel=1e-6)
    for i in range(20):
        cost = dp_event(counter.of_epoch(i))
        ours, its = ((getattr(e, "rho", None) or e.noise_parameter) for e in (base, cost))
        assert ours == pytest.approx(its, rel=1e-12)


def test_unbounded_with_laplace_noise_and_an_approximate_budget():
    """Split by basic composition; the base needs its epsilon only."""
    counter = dp.calibrate(mechanisms.Unbounded(mechanisms.KAry), dp.ApproxDP(1.0, 1e-6))
    base, total = dp_event(counter).events
    assert base == laplace(pytest.approx(0.5))
    assert {dp_event(counter.of_epoch(i)) for i in range(20)} == {laplace(0.5)}
    assert isinstance(counter.law, DiscreteLaplace)
    assert total == laplace(pytest.approx(0.5))
    as_zcdp = dp_event(counter, zcdp=True)
    assert as_zcdp.events == [library.ZCDpEvent(pytest.approx(0.125))] * 2


@dataclass(frozen=True)
class Changing(mechanisms.BinaryTree):
    """Takes Laplace noise for short epochs, and Gaussian noise for long ones."""

    @property
    def laws(self):
        return frozenset({"laplace"} if self.horizon < 100 else {"gaussian"})


def test_bases_of_several_kinds_of_noise_have_no_event():
    counter = dp.calibrate(mechanisms.Unbounded(Changing), dp.ApproxDP(1.0, 1e-6))
    with pytest.raises(TypeError, match=r"bases of several kinds of noise.*use a base of one kind"):
        dp_event(counter)


@pytest.mark.parametrize("budget", [PURE, ZCDP, APPROX], ids=str)
def test_sparse_is_its_comparisons_and_its_inner_counter(budget):
    sparse = mechanisms.Sparse(20, 50, mechanisms.BinaryTree, share=0.4)
    counter = dp.calibrate(sparse, budget)
    event = dp_event(counter)
    first, inner = event.events
    if isinstance(budget, dp.PureDP):
        assert first == laplace(pytest.approx(0.4, rel=1e-12))
        assert inner == laplace(pytest.approx(0.6, rel=1e-12))
        assert by_pld(event, 0.0) == pytest.approx(1, rel=1e-9)
    elif isinstance(budget, dp.ZCDP):
        assert first == library.ZCDpEvent(pytest.approx(0.2, rel=1e-9))
        assert inner == library.ZCDpEvent(pytest.approx(0.3, rel=1e-9))
        assert first.rho + inner.rho <= 0.5 * (1 + 1e-15)
    else:
        assert first == laplace(pytest.approx(0.4, rel=1e-12))
        assert isinstance(counter.inner.law, DiscreteLaplace)
        assert by_pld(event, 1e-6) <= 1 + 1e-9
        gaussian = dp.calibrate(replace(sparse, counter=mechanisms.NormalizedBLT), budget)
        first, inner = dp_event(gaussian).events
        assert first == laplace(pytest.approx(0.4, rel=1e-12))
        assert inner == dp_event(gaussian.inner)
        assert isinstance(inner, library.GaussianDpEvent)
        together = by_pld(dp_event(gaussian), 1e-6)
        assert 0.9 < together < 1  # less than 0.4 + 0.6
        assert by_rdp(dp_event(gaussian, zcdp=True), 1e-6) > together
    # Values up to 3 need noise of three times the scale, and cost the same.
    wider = dp_event(dp.calibrate(sparse, budget, dp.Change(0.0, 3.0)))
    for event, same in zip(wider.events, dp_event(counter).events, strict=True):
        ours, its = ((getattr(e, "rho", None) or e.noise_parameter) for e in (event, same))
        assert ours == pytest.approx(its, rel=1e-12)


# Ledgers


def test_the_events_of_a_ledger():
    ledger = Ledger(dp.ApproxDP(1.0, 1e-6))
    clicks, _, bursts = ledger.share(0.25), ledger.share(0.5), ledger.spend(dp.PureDP(0.05))
    assert ledger_event(ledger) == library.ComposedDpEvent([])
    clicks.claim("a")
    bursts.claim("b")
    assert ledger_event(ledger) == library.ComposedDpEvent(
        [library.ZCDpEvent(clicks.budget.rho), library.ZCDpEvent(0.05**2 / 2)]
    )
    assert len(ledger_event(ledger, claimed=False).events) == 4
    for claimed in (True, False):
        theirs = by_rdp(ledger_event(ledger, claimed), 1e-6)
        ours = ledger.epsilon_at(claimed=claimed)
        assert theirs * (1 - 1e-6) <= ours <= theirs * (1 + 1e-10)
    assert by_rdp(ledger_event(ledger, claimed=False), 1e-6) <= 1 + 1e-6
    # What transforms made of their shares is what the ledger says.
    counters = [
        dp.calibrate(mechanisms.NormalizedBLT(100), clicks.budget),
        dp.calibrate(mechanisms.KAry(100), bursts.budget),
    ]
    spent = [dp_event(counter, zcdp=True) for counter in counters]
    for event, its in zip(ledger_event(ledger).events, spent, strict=True):
        assert event.rho == pytest.approx(its.rho, rel=1e-12)


def test_the_events_of_a_pure_ledger():
    ledger = Ledger(dp.PureDP(1.0))
    ledger.share(0.25).claim("a")
    assert ledger_event(ledger) == library.ComposedDpEvent([laplace(0.25)])
    assert ledger_event(ledger, claimed=False) == library.ComposedDpEvent(
        [laplace(0.25), laplace(0.75)]
    )
    assert ledger_event(ledger, zcdp=True).events == [library.ZCDpEvent(0.25**2 / 2)]
    for claimed, epsilon in ((True, 0.25), (False, 1.0)):
        theirs = by_pld(ledger_event(ledger, claimed), 0.0)
        assert theirs == pytest.approx(epsilon, rel=1e-9)
        assert ledger.epsilon_at(claimed=claimed) == epsilon
    # At a delta a privacy loss distribution knows more than zCDP.
    many = Ledger(dp.PureDP(1.0))
    for _ in range(100):
        many.share(Fraction(1, 100)).claim("any")
    theirs = by_pld(ledger_event(many), 1e-6)
    assert theirs < many.epsilon_at(1e-6) < 1.15 * theirs


def test_the_delta_for_keys_is_in_no_event():
    ledger = Ledger(dp.ApproxDP(1.0, 1e-6), keys_delta=5e-7)
    assert ledger_event(ledger) == library.ComposedDpEvent([])  # nothing is claimed yet
    ledger.share(0.5).claim("a", keys_delta=2e-7)
    for claimed in (True, False):
        with pytest.raises(ValueError, match=r"subtract ledger\.delta_for_keys\(\) from the delta"):
            ledger_event(ledger, claimed)
        event = ledger_event(ledger, claimed, without_keys=True)
        theirs = by_rdp(event, 1e-6 - ledger.delta_for_keys(claimed))
        ours = ledger.epsilon_at(claimed=claimed)
        assert theirs * (1 - 1e-6) <= ours <= theirs * (1 + 1e-8)
    assert by_rdp(event, 1e-6) < 0.99  # which forgets them
    listed = Ledger(dp.PureDP(1.0), keys_delta=5e-7)
    listed.share(0.25).claim("a")
    assert ledger_event(listed) == library.ComposedDpEvent([laplace(0.25)])


# Refusals


def test_without_the_library(monkeypatch):
    counter = dp.calibrate(mechanisms.BinaryTree(10), PURE)
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    spec = importlib.util.find_spec(costs.__name__)
    assert spec is not None and spec.loader is not None  # noqa: PT018
    # A copy, as counters know the classes of the module that is loaded.
    spec.loader.exec_module(importlib.util.module_from_spec(spec))  # needed when an event is
    for make in (lambda: costs.dp_event(counter), lambda: ledger_event(Ledger(PURE))):
        with pytest.raises(ImportError, match=r"pip install 'beam-dpcount\[accounting\]'"):
            make()


def test_what_has_no_event():
    for wrong in (mechanisms.BinaryTree(10), PURE, None):
        with pytest.raises(TypeError, match=r"counter must be a calibrated counter.*calibrate\("):
            dp_event(wrong)
    counter = dp.calibrate(mechanisms.BinaryTree(10), PURE)

    class Silence:
        pass

    with pytest.raises(TypeError, match="has no event: use a law that calibrate chooses"):
        dp_event(replace(counter, law=Silence()))

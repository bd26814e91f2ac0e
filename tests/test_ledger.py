"""A ledger never gives out more than its budget, and says who has which part of it."""

from __future__ import annotations

import copy
import math
import pickle
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fractions import Fraction

import apache_beam as beam
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import beam_dpcount as dp
from beam_dpcount import mechanisms
from beam_dpcount.budget import ledger as module
from beam_dpcount.budget.conversions import (
    float_down,
    float_up,
    root_down,
    rounded_up,
    zcdp_epsilon,
)
from beam_dpcount.budget.ledger import Ledger, claim, plain_budget
from beam_dpcount.budget.shares import ClaimedError
from beam_dpcount.budget.spender import Protection
from beam_dpcount.errors import OverspentError
from tests.audit import exact as audits

repeatable = settings(deadline=None, derandomize=True, database=None, max_examples=200)

BUDGETS = (dp.PureDP(1.0), dp.ZCDP(0.3), dp.ApproxDP(1.0, 1e-6))
each = pytest.mark.parametrize("budget", BUDGETS, ids=str)


def amount(budget):
    """epsilon or rho, exactly."""
    return Fraction(budget.epsilon if isinstance(budget, dp.PureDP) else budget.rho)


# What is given out


@each
def test_shares_of_a_whole(budget):
    for fractions in ([0.1, 0.2, 0.7], [0.1, 0.2, 0.3, 0.4], [0.1] * 10):
        ledger = Ledger(budget)
        shares = [ledger.share(fraction) for fraction in fractions]
        exact = sum(map(Fraction, fractions))  # 1, but for a hair less or more
        assert sum(s.cost for s in shares) == min(exact, 1) * ledger.total
        assert sum(amount(s.budget) for s in shares) <= ledger.total
        assert [float(s.part) for s in shares] == pytest.approx(fractions, rel=1e-12)
        assert ledger.left == 0
    assert exact > 1
    whole = budget.epsilon if isinstance(budget, dp.PureDP) else budget.to_zcdp().rho
    assert ledger.total == Fraction(whole)
    assert Ledger(budget).share(1).budget == Ledger(budget).rest().budget
    assert Ledger(budget).share(1).budget == (
        budget if isinstance(budget, dp.PureDP) else budget.to_zcdp()
    )


@pytest.mark.exhaustive
def test_shares_that_are_rounded_down_leave_nothing_to_speak_of():
    """1/3 is a hair below itself: what three of them leave is no fourth share."""
    ledger = Ledger(dp.PureDP(1.0))
    shares = [ledger.share(1 / 3) for _ in range(3)]
    assert sum(s.cost for s in shares) < 1
    assert ledger.left == 0
    with pytest.raises(OverspentError, match="nothing is left"):
        ledger.rest()
    exactly = Ledger(dp.PureDP(1.0))
    assert sum(exactly.share(Fraction(1, 7)).cost for _ in range(7)) == 1
    for fraction in (1 / 7, 1 / 49, 0.001):
        many = Ledger(dp.PureDP(1.0))
        for _ in range(round(1 / fraction)):
            many.share(fraction)
        assert many.left == 0


asked = st.lists(
    st.one_of(
        st.tuples(st.just("share"), st.floats(1e-6, 1.0)),
        st.tuples(st.just("spend"), st.floats(1e-6, 1.0)),
        st.tuples(st.just("pure"), st.floats(1e-3, 1.0)),
        st.tuples(st.just("rest"), st.none()),
    ),
    max_size=12,
)


@pytest.mark.slow
@given(st.sampled_from(BUDGETS), asked)
@repeatable
def test_no_sequence_of_shares_overspends(budget, sequence):
    ledger = Ledger(budget, "any")
    pure = isinstance(budget, dp.PureDP)
    for kind, size in sequence:
        before, left = ledger.shares, ledger.left
        if kind == "share":
            cost, take = Fraction(size) * ledger.total, lambda s=size: ledger.share(s)
        elif kind == "rest":
            cost, take = left, ledger.rest
        else:
            given_budget = dp.PureDP(size) if pure or kind == "pure" else dp.ZCDP(size)
            cost = amount(given_budget)
            if kind == "pure" and not pure:
                cost = cost**2 / 2
            take = lambda b=given_budget: ledger.spend(b)  # noqa: E731
        try:
            share = take()
        except OverspentError:
            assert cost == 0 or cost > left
            assert ledger.shares == before
            assert ledger.left == left
        else:
            assert ledger.shares == (*before, share)
            assert cost * (1 - Fraction(1, 10**9)) <= share.cost <= min(cost, left)
            spent = amount(share.budget)
            if isinstance(share.budget, dp.PureDP) and not pure:
                spent = spent**2 / 2
            # Budgets are floats, and lose no more than that takes.
            assert share.cost * (1 - Fraction(1, 10**15)) <= spent <= share.cost
        assert sum(s.cost for s in ledger.shares) <= ledger.total


@pytest.mark.slow
@given(st.sampled_from(BUDGETS), st.lists(st.floats(0.001, 1), min_size=1, max_size=30))
@repeatable
def test_fractions_of_a_whole_always_fit(budget, weights):
    whole = math.fsum(weights)
    ledger = Ledger(budget)
    for weight in weights:
        ledger.share(weight / whole)
    assert sum(amount(s.budget) for s in ledger.shares) <= ledger.total
    assert ledger.left == 0


def test_absolute_amounts():
    zcdp = Ledger(dp.ZCDP(0.5))
    assert zcdp.spend(dp.ZCDP(0.1)).budget == dp.ZCDP(0.1)
    pure = zcdp.spend(dp.PureDP(0.3))
    assert pure.budget == dp.PureDP(0.3)
    assert pure.cost == Fraction(0.3) ** 2 / 2
    assert float(zcdp.left) == pytest.approx(0.5 - 0.1 - 0.045)
    approximate = Ledger(dp.ApproxDP(1.0, 1e-6))
    assert approximate.spend(dp.ZCDP(0.01)).budget == dp.ZCDP(0.01)
    assert approximate.spend(dp.PureDP(0.1)).budget == dp.PureDP(0.1)
    assert Ledger(dp.PureDP(1.0)).spend(dp.PureDP(1.0)).part == 1
    # 0.1 + 0.2 is a hair above 0.3, in rho and in epsilon.
    for kind in (dp.ZCDP, dp.PureDP):
        three = Ledger(kind(0.3))
        assert three.spend(kind(0.1)).budget == kind(0.1)
        last = three.spend(kind(0.2))
        assert amount(last.budget) <= Fraction(0.2)
        assert float(amount(last.budget)) == pytest.approx(0.2, rel=1e-15)
        assert three.left == 0
    # So it is where a pure amount exceeds the rest of a zCDP ledger by rounding.
    half = Ledger(dp.ZCDP(math.nextafter(0.5, 0)))
    assert half.spend(dp.PureDP(1.0)).budget == dp.PureDP(math.nextafter(1.0, 0))
    for rho in np.geomspace(0.01, 1, 50):
        whole = Ledger(dp.ZCDP(rho))
        spent = whole.spend(dp.PureDP(math.sqrt(2 * rho) * (1 + 1e-15))).budget
        assert Fraction(spent.epsilon) ** 2 / 2 <= whole.total
        assert spent.epsilon == pytest.approx(math.sqrt(2 * rho), rel=1e-15)


@pytest.mark.slow
@given(st.fractions(Fraction(1, 10**9), 10**9, max_denominator=10**30))
@repeatable
def test_rounding_is_to_the_safe_side(value):
    down, up, root = float_down(value), float_up(value), root_down(value)
    assert Fraction(down) <= value < Fraction(math.nextafter(down, math.inf))
    assert Fraction(math.nextafter(up, 0)) < value <= Fraction(up)
    assert Fraction(root) ** 2 <= value < Fraction(math.nextafter(root, math.inf)) ** 2


# What is refused, when it is asked for


def test_what_would_be_overspent_is_refused_at_once():
    ledger = Ledger(dp.ApproxDP(1.0, 1e-6), "web shop")
    ledger.share(0.25, "clicks")
    ledger.share(0.5, "purchases")
    with pytest.raises(OverspentError) as error:
        ledger.share(0.5, "searches")
    assert str(error.value) == (
        "ledger web shop would be overspent: 'searches' asks for 50 % of epsilon = 1, "
        "delta = 1e-06, but 25 % is left after clicks 25 %, purchases 50 %: take less, or rest()"
    )
    assert isinstance(error.value, ValueError)
    with pytest.raises(OverspentError, match=r"asks for 41\.06 %"):
        ledger.spend(dp.ZCDP(0.01))
    with pytest.raises(OverspentError):
        ledger.spend(dp.PureDP(1.0))
    ledger.share(0.25, "searches")
    with pytest.raises(OverspentError, match=r"nothing is left .* lower the other shares, or"):
        ledger.share(1e-9)
    with pytest.raises(OverspentError, match=r"'share 1' asks for what is left .* nothing"):
        ledger.rest()
    with pytest.raises(OverspentError, match=r"asks for 2500 % .* but 100 % is left: take less"):
        Ledger(dp.PureDP(1.0)).share(25)
    with pytest.raises(OverspentError):
        Ledger(dp.PureDP(1.0)).share(1 + 1e-8)  # more than rounding


def test_amounts_that_a_ledger_cannot_add_up():
    pure, zcdp = Ledger(dp.PureDP(1.0)), Ledger(dp.ZCDP(0.5), "feed")
    for other in (dp.ZCDP(0.1), dp.ApproxDP(0.5, 1e-6)):
        with pytest.raises(ValueError, match=r"is not pure.*spend PureDP\(epsilon\)"):
            pure.spend(other)
    with pytest.raises(ValueError, match=r"spend ApproxDP\(epsilon=0.5, delta=1e-06\).to_zcdp"):
        zcdp.spend(dp.ApproxDP(0.5, 1e-6))
    assert zcdp.spend(dp.ApproxDP(0.5, 1e-6).to_zcdp()).part < 0.02
    for wrong in (0.5, None, "1", zcdp):
        with pytest.raises(TypeError, match="budget must be PureDP, ApproxDP or ZCDP"):
            zcdp.spend(wrong)
        with pytest.raises(TypeError, match="budget must be PureDP, ApproxDP or ZCDP"):
            Ledger(wrong)


@pytest.mark.parametrize("fraction", [0, -0.1, math.inf, math.nan, np.float32(0), Fraction(0)])
def test_fractions_out_of_range(fraction):
    with pytest.raises(ValueError, match=r"fraction must be positive.*e\.g\. 0\.25"):
        Ledger(dp.PureDP(1.0)).share(fraction)


@pytest.mark.parametrize("fraction", [True, "0.5", None, 1j, dp.PureDP(0.5)])
def test_fractions_that_are_no_numbers(fraction):
    with pytest.raises(TypeError, match=r"fraction must be a number.*e\.g\. 0\.25"):
        Ledger(dp.PureDP(1.0)).share(fraction)


@pytest.mark.parametrize("fraction", [np.float64(0.5), np.float32(0.5), Fraction(1, 2)])
def test_fractions_of_any_type(fraction):
    share = Ledger(dp.PureDP(1.0)).share(fraction)
    assert share.cost == Fraction(1, 2)
    assert type(share.budget.epsilon) is float
    assert Ledger(dp.PureDP(1.0)).share(np.int64(1)).cost == 1


def test_names():
    ledger = Ledger(dp.PureDP(1.0), "feed")
    assert ledger.share(0.1).name == "share 1"
    assert ledger.share(0.1, "share 3").name == "share 3"
    assert ledger.spend(dp.PureDP(0.1)).name == "share 2"
    assert ledger.share(0.1).name == "share 4"
    with pytest.raises(
        ValueError, match="ledger feed has a share 'share 2' already: choose another name"
    ):
        ledger.share(0.1, "share 2")
    for name in ("two\nlines", " padded", "a  b"):
        with pytest.raises(ValueError, match="words on one line"):
            ledger.share(0.1, name)
        with pytest.raises(ValueError, match="words on one line"):
            Ledger(dp.PureDP(1.0), name)
    for name in (None, 1):
        with pytest.raises(TypeError, match="name must be text"):
            ledger.share(0.1, name)
        with pytest.raises(TypeError, match="name must be text"):
            Ledger(dp.PureDP(1.0), name)
    assert len(ledger.shares) == 4


# Claims


def test_a_share_is_used_once():
    ledger = Ledger(dp.ZCDP(0.5), "feed")
    share = ledger.share(0.5, "clicks")
    assert share.claimed_by is None
    line = {"ledger": "clicks: 50 % of rho = 0.5 (zCDP) (ledger feed)"}
    assert plain_budget(share) == (dp.ZCDP(0.25), line)
    assert share.claimed_by is None
    claim(share, by="PrefixCount")
    assert share.claimed_by == "PrefixCount"
    for by in ("PrefixCount", "TickCount"):
        with pytest.raises(ClaimedError, match=f"spent by 'PrefixCount' already, and '{by}' would"):
            claim(share, by)
    assert share.claimed_by == "PrefixCount"
    other = ledger.rest()
    assert other.claim("my\n  own") == other.budget
    assert other.claimed_by == "my own"  # one line of the account
    with pytest.raises(TypeError, match="by must be text"):
        claim(other, by=None)


def test_plain_budgets_pass_through():
    for budget in BUDGETS:
        assert plain_budget(budget) == (budget, {})
        claim(budget, by="PrefixCount")
        claim(budget, by="PrefixCount")
    with pytest.raises(TypeError, match=r"is a whole ledger: take ledger.share\(0.25\)"):
        plain_budget(Ledger(dp.PureDP(1.0)))
    for wrong in (0.5, None):
        with pytest.raises(TypeError, match="budget must be PureDP, ApproxDP or ZCDP"):
            plain_budget(wrong)


def test_shares_made_by_hand_are_refused():
    ledger = Ledger(dp.PureDP(1.0))
    share = ledger.share(0.1, "clicks")
    for forged in (
        replace(share, budget=dp.PureDP(100.0)),
        replace(share, name="other"),
        replace(share, ledger=Ledger(dp.PureDP(1.0))),
    ):
        with pytest.raises(ValueError, match="did not make this share"):
            claim(forged, by="PrefixCount")
    assert share.claim("PrefixCount") == dp.PureDP(0.1)


def test_of_many_threads_one_claims_a_share():
    share = Ledger(dp.PureDP(1.0)).share(1)

    def attempt(n):
        try:
            share.claim(f"thread {n}")
        except ClaimedError:
            return 0
        return 1

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(attempt, range(64))) == 1


# The account


def test_the_account_of_an_approximate_budget():
    ledger = Ledger(dp.ApproxDP(1.0, 1e-6), "web shop")
    clicks = ledger.share(0.25, "clicks")
    ledger.share(0.5, "purchases")
    bursts = ledger.spend(dp.PureDP(0.05), "bursts of clicks")
    claim(clicks, by="PrefixCount")
    claim(bursts, by="Bursts/PrefixCount")
    expected = """\
ledger web shop: epsilon = 1, delta = 1e-06; in all rho = 0.024356 (zCDP)

share                part  budget                 claimed by
clicks               25 %  rho = 0.006089 (zCDP)  PrefixCount
purchases            50 %  rho = 0.012178 (zCDP)  -
bursts of clicks  5.132 %  epsilon = 0.05 (pure)  Bursts/PrefixCount
left              19.87 %  rho = 0.004839 (zCDP)

epsilon at delta = 1e-06: 0.527282 of what is claimed, 1 of all

Shares add up: one event may count in each of them. Windows do not: the budget is per window, and
an event lies in one of FixedWindows. Nor do keys where releases come per element, as an element
has one key. Every run over the same data spends all of it again."""
    assert str(ledger) == ledger.account() == ledger.account(1e-6) == expected
    assert "epsilon at delta = 1e-09: " in ledger.account(delta=1e-9)
    assert ledger.describe() == {
        "ledger": "clicks: 25 % of epsilon = 1, delta = 1e-06; purchases: 50 % of epsilon = 1, "
        "delta = 1e-06; bursts of clicks: 5.132 % of epsilon = 1, delta = 1e-06; left: 19.87 %"
    }
    assert clicks.describe() == {
        "ledger": "clicks: 25 % of epsilon = 1, delta = 1e-06 (ledger web shop)"
    }
    assert repr(ledger) == "Ledger(ApproxDP(epsilon=1.0, delta=1e-06), name='web shop')"
    assert "ledger" not in repr(clicks)


def test_the_account_of_a_pure_budget():
    ledger = Ledger(dp.PureDP(1.0))
    ledger.share(0.5).claim("PrefixCount")
    ledger.rest("others")
    assert str(ledger).splitlines()[:8] == [
        "ledger: epsilon = 1 (pure)",
        "",
        "share    part  budget                claimed by",
        "share 1  50 %  epsilon = 0.5 (pure)  PrefixCount",
        "others   50 %  epsilon = 0.5 (pure)  -",
        "left      0 %",
        "",
        "epsilon: 0.5 of what is claimed, 1 of all",
    ]
    assert ledger.shares[0].describe() == {"ledger": "share 1: 50 % of epsilon = 1 (pure)"}


def test_the_account_of_nothing():
    epsilon = rounded_up(zcdp_epsilon(0.5, 1e-6))
    assert str(Ledger(dp.ZCDP(0.5))).splitlines()[:6] == [
        "ledger: rho = 0.5 (zCDP)",
        "",
        "share   part  budget            claimed by",
        "left   100 %  rho = 0.5 (zCDP)",
        "",
        f"epsilon at delta = 1e-06: 0 of what is claimed, {epsilon} of all",
    ]
    assert Ledger(dp.ZCDP(0.5)).describe() == {"ledger": "left: 100 %"}


def test_epsilon_of_an_account():
    ledger = Ledger(dp.ApproxDP(1.0, 1e-6))
    assert ledger.epsilon_at() == 0.0
    assert 1 - 1e-9 <= ledger.epsilon_at(claimed=False) <= 1 + 1e-9
    rho = ledger.share(0.5).claim("a").rho
    assert ledger.epsilon_at() == zcdp_epsilon(rho, 1e-6)
    assert ledger.epsilon_at(1e-3) == zcdp_epsilon(rho, 1e-3)
    # A pure part joins the zCDP of the others, or stays pure, whichever is less.
    ledger.spend(dp.PureDP(0.01)).claim("b")
    assert ledger.epsilon_at() == pytest.approx(zcdp_epsilon(rho + 0.01**2 / 2, 1e-6), rel=1e-9)
    ledger.spend(dp.PureDP(0.1)).claim("c")
    joined = zcdp_epsilon(rho + 0.01**2 / 2 + 0.1**2 / 2, 1e-6)
    apart = zcdp_epsilon(rho, 1e-6) + 0.11
    assert apart < joined
    assert ledger.epsilon_at() == pytest.approx(apart, rel=1e-9)
    alone = Ledger(dp.ZCDP(0.5))
    alone.spend(dp.PureDP(0.3)).claim("a")
    assert alone.epsilon_at() == 0.3
    alone.rest().claim("b")
    assert alone.epsilon_at() == alone.epsilon_at(claimed=False)

    pure = Ledger(dp.PureDP(1.0))
    for _ in range(100):
        pure.share(Fraction(1, 100)).claim("any")
    assert pure.epsilon_at() == pytest.approx(1, rel=1e-12)
    # 100 times 0.01 is 100 * 0.01^2 / 2 = 0.005 in zCDP.
    assert pure.epsilon_at(1e-6) == pytest.approx(zcdp_epsilon(0.005, 1e-6), rel=1e-9)
    assert pure.epsilon_at(1e-6) < 0.5


# Copies


# Whom shares protect

FIVE = Protection("one person with at most 5 events", 2)
SIGNED = Protection("one person with at most 9 events", 4)


def claimed(budget, **protections):
    """A ledger with shares of a quarter each, claimed for these; None: for an event."""
    ledger = Ledger(budget, "shop")
    for name, protects in protections.items():
        ledger.share(0.25, name).claim(by="Count", protects=protects)
    return ledger


def test_a_share_knows_whom_it_protects():
    ledger = claimed(dp.ZCDP(0.4), clicks=None, buyers=FIVE)
    ledger.share(0.25, "later")
    assert {s.name: s.protects.person for s in ledger.shares} == {
        "clicks": "",
        "buyers": FIVE.person,
        "later": "",
    }
    restored = pickle.loads(pickle.dumps(ledger.shares))
    assert restored[1] is ledger.shares[1]
    assert restored[1].protects is FIVE
    # A second claim changes nothing.
    with pytest.raises(ClaimedError):
        ledger.shares[1].claim(by="Count", protects=SIGNED)
    assert ledger.shares[1].protects is FIVE


@pytest.mark.parametrize(
    ("protects", "budget", "cost"),
    [
        (Protection(), dp.ZCDP(0.1), dp.ZCDP(0.1)),
        (FIVE, dp.ZCDP(0.1), dp.ZCDP(0.2)),
        (SIGNED, dp.ZCDP(0.1), dp.ZCDP(0.4)),
        (FIVE, dp.PureDP(0.1), dp.PureDP(0.2)),
        (SIGNED, dp.PureDP(0.1), dp.PureDP(0.2)),
        (Protection("one person, by your word", 1), dp.ZCDP(0.1), dp.ZCDP(0.1)),
    ],
)
def test_what_one_event_costs_behind_a_bound(protects, budget, cost):
    assert protects.budget_of(budget, "event") == cost


def test_epsilon_of_events_and_of_people():
    events = claimed(dp.ZCDP(0.4), clicks=None)
    assert events.epsilon_at() == events.epsilon_at(unit="event")
    with pytest.raises(ValueError, match=r"nothing holds for a person, .* an event: clicks: give"):
        events.epsilon_at(unit="person")
    with pytest.raises(ValueError, match=r"nothing holds for a person, .*none is claimed"):
        Ledger(dp.ZCDP(0.4)).epsilon_at(unit="person")
    with pytest.raises(ValueError, match='unit must be "event", "person" or "period", got'):
        events.epsilon_at(unit="user")

    people = claimed(dp.ZCDP(0.4), buyers=FIVE, flows=SIGNED)
    assert people.epsilon_at() == people.epsilon_at(unit="person")
    assert people.epsilon_at() == pytest.approx(zcdp_epsilon(0.2, 1e-6), rel=1e-9)
    of_event = zcdp_epsilon(2 * 0.1 + 4 * 0.1, 1e-6)
    assert people.epsilon_at(unit="event") == pytest.approx(of_event, rel=1e-9)

    # Both: a person has no promise, and an event's is what is said.
    both = claimed(dp.ZCDP(0.4), clicks=None, buyers=FIVE)
    assert both.epsilon_at() == both.epsilon_at(unit="event")
    assert both.epsilon_at() == pytest.approx(zcdp_epsilon(0.3, 1e-6), rel=1e-9)
    with pytest.raises(ValueError, match="nothing holds for a person"):
        both.epsilon_at(unit="person")
    with pytest.raises(ValueError, match="what is not claimed may yet protect people"):
        both.epsilon_at(claimed=False)
    both.rest("later").claim(by="Count", protects=SIGNED)
    whole = both.epsilon_at(claimed=False)
    assert whole == pytest.approx(zcdp_epsilon(0.3 + 4 * 0.2, 1e-6), rel=1e-9)

    pure = claimed(dp.PureDP(1.0), clicks=None, buyers=SIGNED)
    assert pure.epsilon_at() == pytest.approx(0.25 + 2 * 0.25)
    assert pure.epsilon_at() >= Fraction(3, 4)


def test_the_account_of_people():
    ledger = claimed(dp.ApproxDP(1.0, 1e-6), buyers=FIVE)
    ledger.share(0.25, "later")
    text = ledger.account()
    rows = dict(line.split("  ", 1) for line in text.split("\n\n")[1].splitlines())
    assert rows["buyers"].endswith("  Count, for one person with at most 5 events")
    assert rows["later"].endswith("  -")
    person, event = map(rounded_up, (ledger.epsilon_at(), ledger.epsilon_at(unit="event")))
    said = (
        f"epsilon at delta = 1e-06, for one person: {person} by buyers, 1 of all\n"
        f"epsilon at delta = 1e-06, for one event: {event} of what "
        "is claimed\n\nFor one event, what protects a person counts 2 times in rho: without "
    )
    assert said in text
    assert "nothing follows" not in text
    signed = claimed(dp.ZCDP(1.0), buyers=FIVE, flows=SIGNED).account()
    assert "counts 2 times in rho or 4 times in rho" in signed
    mixed = Ledger(dp.ZCDP(0.4))
    mixed.spend(dp.PureDP(0.1), "laplace").claim(by="Count", protects=SIGNED)
    assert "counts twice in epsilon" in mixed.account()
    pure = claimed(dp.PureDP(1.0), buyers=SIGNED).account()
    assert "counts twice in epsilon" in pure
    assert "rho:" not in pure
    asserted = claimed(dp.ZCDP(1.0), buyers=Protection("one person, by your word", 1)).account()
    assert "for one person, by your word" in asserted
    assert "without that event" not in asserted


def test_the_account_of_events_and_people():
    ledger = claimed(dp.ApproxDP(1.0, 1e-6), clicks=None, buyers=FIVE)
    text = ledger.account()
    alone = claimed(dp.ApproxDP(1.0, 1e-6), buyers=FIVE).epsilon_at()
    assert "  Count, for one event\n" in text
    assert f"1e-06, for one event: {rounded_up(ledger.epsilon_at())} of what is claimed\n" in text
    assert f"epsilon at delta = 1e-06, for one person: {alone:.6g} by buyers alone\n" in text
    assert "nothing follows from shares that protect an event: someone with n events has n" in text
    # Of events only, nobody speaks of people.
    events = claimed(dp.ApproxDP(1.0, 1e-6), clicks=None).account()
    assert "person" not in events


def test_a_copy_in_another_process_knows_them_too(monkeypatch):
    ledger = claimed(dp.ApproxDP(1.0, 1e-6), clicks=None, buyers=FIVE)
    data = pickle.dumps(ledger)
    monkeypatch.setattr(module, "_LIVE", {})
    restored = pickle.loads(data)
    assert restored is not ledger
    assert restored.account() == ledger.account()
    assert restored.epsilon_at(unit="event") == ledger.epsilon_at(unit="event")


def test_copies_are_the_same_share():
    ledger = Ledger(dp.PureDP(1.0), "feed")
    share = ledger.share(0.5, "clicks")
    for copied in (
        pickle.loads(pickle.dumps(ledger)),
        copy.deepcopy(ledger),
        copy.copy(ledger),
        pickle.loads(pickle.dumps(share)).ledger,
    ):
        assert copied is ledger
    assert pickle.loads(pickle.dumps([share, ledger]))[0] is share
    claim(copy.deepcopy(share), by="PrefixCount")
    with pytest.raises(ClaimedError):
        claim(share, by="PrefixCount")


ELSEWHERE = """
    import pickle, sys
    from beam_dpcount.budget.ledger import claim
    ledger, used, unused = pickle.load(sys.stdin.buffer)
    print(used.claimed_by, unused.claimed_by, unused.budget, used.ledger is ledger)
    for act in (ledger.rest, lambda: ledger.share(0.1), lambda: claim(unused, by="me")):
        try:
            act()
        except RuntimeError as error:
            print(error)
    print(pickle.loads(pickle.dumps(ledger)).account())
"""


def test_in_another_process_a_ledger_can_only_be_read():
    ledger = Ledger(dp.ApproxDP(1.0, 1e-6), "feed")
    used, unused = ledger.share(0.25, "clicks"), ledger.spend(dp.PureDP(0.1))
    claim(used, by="PrefixCount")
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(ELSEWHERE)],
        input=pickle.dumps((ledger, used, unused)),
        stdout=subprocess.PIPE,
        check=True,
    )
    first, *refusals, account = ran.stdout.decode().split("\n", 4)
    assert first == "PrefixCount None epsilon = 0.1 (pure) True"
    for refusal in refusals:
        assert refusal.startswith("this copy of ledger feed in another process can only be read: ")
    assert account.rstrip("\n") == ledger.account()
    assert len(ledger.shares) == 2


def test_so_it_is_in_a_forked_process(monkeypatch):
    ledger = Ledger(dp.PureDP(1.0))
    share = ledger.share(0.5)
    with monkeypatch.context() as forked:
        forked.setattr(module.os, "getpid", lambda: -1)
        with pytest.raises(RuntimeError, match="copy of ledger in another process"):
            claim(share, by="PrefixCount")
        with pytest.raises(RuntimeError, match="copy of ledger in another process"):
            ledger.rest()
    claim(share, by="PrefixCount")


# Transforms that spend shares keep the whole budget, exactly

SMALL = (
    mechanisms.BinaryTree(4),
    mechanisms.SmoothBinary(4),
    mechanisms.NormalizedBLT(4),
    mechanisms.Simple2(4),
)


def worst(counter, loss):
    """The largest loss over all neighbouring streams of bits."""
    return max(loss(counter.law, change) for change in audits.differences(counter, (0, 1)))


@pytest.mark.parametrize("budget", [dp.ZCDP(0.5), dp.ApproxDP(1.0, 1e-3)], ids=str)
def test_all_transforms_together_keep_a_zcdp_budget(budget):
    """D_alpha of independent releases adds up, whichever event of the input differs."""
    ledger = Ledger(budget)
    shares = [ledger.share(0.1), ledger.share(0.2), ledger.share(0.3)]
    pure = ledger.spend(dp.PureDP(0.05))
    counters = [
        dp.calibrate(mechanism, share.claim(mechanism.name))
        for mechanism, share in zip(SMALL, [*shares, ledger.rest()], strict=True)
    ]
    counters.append(dp.calibrate(mechanisms.KAry(4), pure.claim("KAry")))
    for alpha in (1.1, 2.0, 8.0, 33.3):
        spent = sum(worst(c, lambda law, d, a=alpha: audits.renyi(law, d, a)) for c in counters)
        whole = alpha * budget.to_zcdp().rho
        assert spent <= whole * (1 + 1e-9)
        assert spent >= whole * 0.99 * (1 - float(pure.part))


def test_all_transforms_together_keep_a_pure_budget():
    ledger = Ledger(dp.PureDP(1.0))
    kinds = (mechanisms.BinaryTree, mechanisms.KAry, mechanisms.TwoLevel, mechanisms.Honaker)
    shares = [ledger.share(f) for f in (0.1, 0.2, 0.7 / 3)]
    counters = [
        dp.calibrate(kind(4), share.claim(kind.__name__))
        for kind, share in zip(kinds, [*shares, ledger.rest()], strict=True)
    ]
    spent = sum(worst(counter, audits.pure_loss) for counter in counters)
    assert spent == pytest.approx(1.0, rel=1e-12)
    assert spent <= 1.0 + 1e-12


@pytest.mark.parametrize("budget", [dp.ApproxDP(1.0, 1e-6), dp.ApproxDP(3.0, 1e-3)], ids=str)
def test_all_transforms_together_keep_epsilon_and_delta(budget):
    """The exact delta of four trees that one event moves at once; twice as many exceed it."""
    ledger = Ledger(budget)
    shares = [ledger.share(0.25) for _ in range(4)]
    counters = [dp.calibrate(mechanisms.BinaryTree(3), s.claim("tree")) for s in shares]
    (law,) = {counter.law for counter in counters}
    changes = audits.differences(counters[0], (0, 1))
    spent, doubled = (
        max(
            sum(audits.hockey_stick(law, np.concatenate([d] * times), budget.epsilon))
            for d in changes
        )
        for times in (4, 8)
    )
    assert budget.delta / 10 < spent <= budget.delta < doubled


def test_what_an_event_has_lost_by_an_age() -> None:
    """Of each share as its counter says; of several views at most the largest part of them."""
    clock = dp.Clock("1m", start=0, ticks=300)
    ledger = dp.Ledger(dp.ZCDP(0.5))
    one = dp.TickCount(ledger.share(0.5, "one"), clock, keys=["a"], mechanism="NormalizedBLT")
    two = dp.TickCount(ledger.rest("two"), [clock, clock.each()], keys=["a"])
    for count in (one, two):
        _ = beam.Pipeline() | beam.Create([("a", 1)]) | count
    for age in (0, 5, 5000):
        parts = [one.counter, *(part.engine.counter for part in two._parts)]
        least = sum(counter.aged_cost(age).rho for counter in parts)
        found = ledger.epsilon_at(1e-6, age=age)
        assert zcdp_epsilon(least, 1e-6) * (1 - 1e-9) <= found <= ledger.epsilon_at(1e-6)
    assert ledger.epsilon_at(1e-6, age=0) < ledger.epsilon_at(1e-6)
    assert ledger.epsilon_at(1e-6, age=5000) == ledger.epsilon_at(1e-6)
    for more in ({"periods": 2}, {"unit": "person"}):
        with pytest.raises(ValueError, match="age is of one event"):
            ledger.epsilon_at(1e-6, age=3, **more)
    of_people = dp.Ledger(dp.ZCDP(0.5))
    users = dp.Users(lambda x: x, 3)
    bounded = dp.TickCount(of_people.rest(), clock, keys=["a"], users=users, value=lambda _: 1)
    _ = beam.Pipeline() | beam.Create([("a", "p")]) | bounded
    with pytest.raises(ValueError, match="age is for one event that changes one step"):
        of_people.epsilon_at(1e-6, age=3)

"""What a ledger keeps of delta for keys that nobody listed: it adds up beside epsilon and rho."""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import beam_dpcount as dp
from beam_dpcount import mechanisms
from beam_dpcount.budget import budgets, ledger_text
from beam_dpcount.budget import ledger as module
from beam_dpcount.budget.budgets import Budget
from beam_dpcount.budget.conversions import (
    float_down,
    float_up,
    rounded_up,
    zcdp_delta,
    zcdp_epsilon,
)
from beam_dpcount.budget.ledger import Ledger, claim
from beam_dpcount.budget.spender import Protection
from beam_dpcount.errors import OverspentError
from tests.audit import exact as audits

APPROXIMATE = dp.ApproxDP(1.0, 1e-6)
FIVE = Protection("one person with at most 5 events", 2)
SIGNED = Protection("one person with at most 9 events", 4)
ASSERTED = Protection("one person, by your word", 1)
OTHERS = (dp.PureDP(1.0), dp.ZCDP(0.3))


def claimed(budget: Budget, keys_delta: float, **claims: tuple[float, Protection | None]) -> Ledger:
    """A ledger with shares of a quarter each, claimed with these deltas and protections."""
    ledger = Ledger(budget, "shop", keys_delta)
    for name, (delta, protects) in claims.items():
        ledger.share(0.25, name).claim(by="Count", protects=protects, keys_delta=delta)
    return ledger


def rho(ledger: Ledger, *names: str) -> float:
    taken = [s.budget for s in ledger.shares if s.name in names]
    return float_up(sum((Fraction(b.rho) for b in taken), Fraction(0)))  # type: ignore[union-attr]


# What is set aside


def test_it_is_set_aside_before_there_are_shares() -> None:
    ledger = Ledger(APPROXIMATE, keys_delta=4e-7)
    assert ledger.keys_delta == ledger.keys_delta_left == Fraction(4e-7)
    rest = float_down(Fraction(1e-6) - Fraction(4e-7) * (1 + Fraction(1, 10**9)))
    assert ledger.total == Fraction(dp.ApproxDP(1.0, rest).to_zcdp().rho)
    assert float(ledger.total) == pytest.approx(dp.ApproxDP(1.0, 6e-7).to_zcdp().rho, rel=1e-9)
    assert ledger.total < Ledger(APPROXIMATE).total
    for budget in OTHERS:  # they have no delta that it could be taken from
        assert Ledger(budget, keys_delta=4e-7).total == Ledger(budget).total
        assert Ledger(budget, keys_delta=4e-7).keys_delta == Fraction(4e-7)
    for nothing in (Ledger(APPROXIMATE), Ledger(APPROXIMATE, keys_delta=0)):
        assert nothing.keys_delta == nothing.keys_delta_left == nothing.delta_for_keys() == 0
        assert nothing.total == Fraction(APPROXIMATE.to_zcdp().rho)
        assert "keys_delta" not in repr(nothing)
        assert "Delta for keys" not in nothing.account()
    exact = Ledger(APPROXIMATE, keys_delta=Fraction(1, 3 * 10**6))
    assert exact.keys_delta == Fraction(1, 3 * 10**6)
    assert repr(ledger) == ("Ledger(ApproxDP(epsilon=1.0, delta=1e-06), name='', keys_delta=4e-07)")


def test_claims_add_up() -> None:
    ledger = claimed(APPROXIMATE, 5e-7, pages=(2e-7, None), views=(0.0, None))
    pages, views = ledger.shares
    assert (pages.keys_delta, views.keys_delta) == (Fraction(2e-7), 0)
    assert ledger.keys_delta_left == Fraction(5e-7) - Fraction(2e-7)
    assert ledger.delta_for_keys() == 2e-7
    assert ledger.delta_for_keys(claimed=False) == 5e-7
    later = ledger.share(0.25, "later")
    assert later.keys_delta == 0
    later.claim("Count", keys_delta=Fraction(5e-7) - Fraction(2e-7))
    assert ledger.keys_delta_left == 0
    assert ledger.delta_for_keys() == 5e-7


@pytest.mark.parametrize("parts", [3, 7, 10])
@pytest.mark.parametrize("whole", [3e-7, 9.999e-7, 1e-300])
def test_sums_of_floats_fit_and_are_covered(whole: float, parts: int) -> None:
    ledger = Ledger(APPROXIMATE, keys_delta=whole)
    for _ in range(parts):  # three times 0.1 is a hair above 0.3; these are more
        ledger.share(1 / parts).claim("any", keys_delta=whole / parts * (1 + 9e-10))
    taken = sum((s.keys_delta for s in ledger.shares), Fraction(0))
    assert taken > ledger.keys_delta
    assert ledger.keys_delta_left == 0
    assert zcdp_delta(float(ledger.total), 1.0) <= Fraction(APPROXIMATE.delta) - taken
    full = claimed(APPROXIMATE, 1e-7, pages=(1e-7, None))
    with pytest.raises(OverspentError, match="but nothing of its keys_delta = 1e-07 is left after"):
        full.rest().claim("more", keys_delta=1e-15)


@given(st.lists(st.floats(0, 0.6), max_size=8), st.floats(1e-12, 0.999))
@settings(deadline=None, derandomize=True, database=None, max_examples=60)
def test_no_sequence_of_claims_overspends(fractions: list[float], part: float) -> None:
    ledger = Ledger(dp.PureDP(1.0), keys_delta=part)
    for fraction in fractions:
        share, left = ledger.share(Fraction(1, 8)), ledger.keys_delta_left
        asked = Fraction(fraction * part)
        try:
            share.claim("any", keys_delta=asked)
        except OverspentError:
            assert asked > left
            assert share.claimed_by is None
            assert ledger.keys_delta_left == left
        else:
            assert asked <= left + ledger.keys_delta / 10**9
            assert share.keys_delta == asked
    taken = sum((s.keys_delta for s in ledger.shares), Fraction(0))
    assert taken <= ledger.keys_delta * (1 + Fraction(1, 10**9))


def test_threads_do_not_overspend_it() -> None:
    ledger = Ledger(dp.PureDP(1.0), keys_delta=1e-6)
    shares = [ledger.share(Fraction(1, 64)) for _ in range(64)]

    def attempt(number: int) -> int:
        try:
            shares[number].claim("any", keys_delta=1e-7)
        except OverspentError:
            return 0
        return 1

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(attempt, range(64))) == 10


def test_plain_budgets_pass() -> None:
    for budget in (*OTHERS, APPROXIMATE):
        claim(budget, by="Count", keys_delta=1e-7)


# What is refused


def test_claims_of_more_than_there_is_say_what_to_do() -> None:
    nothing = Ledger(APPROXIMATE, "shop")
    share = nothing.share(0.5)
    with pytest.raises(OverspentError) as error:
        share.claim("Pages", keys_delta=1e-7)
    assert str(error.value) == (
        "ledger shop keeps no delta for keys, but 'Pages' shows keys that nobody listed, and asks "
        "for 1e-07 of delta: make it Ledger(budget, keys_delta=...), with what all such transforms "
        "take"
    )
    assert share.claimed_by is None
    share.claim("Pages")  # what was refused used nothing up

    ledger = claimed(APPROXIMATE, 5e-7, views=(2e-7, None), visits=(0, None))
    last = ledger.rest()
    with pytest.raises(OverspentError) as error:
        last.claim("Pages", keys_delta=4e-7)
    assert str(error.value) == (
        "ledger shop would be overspent: 'Pages' shows keys that nobody listed, and asks for 4e-07 "
        "of delta, but 3e-07 of its keys_delta = 5e-07 is left after views 2e-07: take less, or "
        "raise its keys_delta"
    )
    assert last.claimed_by is None
    last.claim("Pages", keys_delta=3e-7)
    with pytest.raises(OverspentError, match="but 5e-07 of its keys_delta = 5e-07 is left: take"):
        Ledger(APPROXIMATE, keys_delta=5e-7).rest().claim("Pages", keys_delta=6e-7)


@pytest.mark.parametrize("wrong", [-1e-9, 1, 1.5, np.inf, np.nan, Fraction(-1, 9), 10**400])
def test_deltas_out_of_range(wrong: Any) -> None:
    share = Ledger(dp.PureDP(1.0), keys_delta=0.5).share(0.5)
    for make in (
        lambda: Ledger(APPROXIMATE, keys_delta=wrong),
        lambda: share.claim("Count", keys_delta=wrong),
    ):
        with pytest.raises(ValueError, match=r"keys_delta must be from 0 to below 1, got .*5e-7"):
            make()
    assert share.claimed_by is None


@pytest.mark.parametrize("wrong", [True, "1e-7", 1j, APPROXIMATE])
def test_deltas_that_are_no_numbers(wrong: Any) -> None:
    share = Ledger(dp.PureDP(1.0), keys_delta=0.5).share(0.5)
    for make in (
        lambda: Ledger(APPROXIMATE, keys_delta=wrong),
        lambda: share.claim("Count", keys_delta=wrong),
    ):
        with pytest.raises(TypeError, match="keys_delta must be a number, got"):
            make()


def test_noise_needs_some_of_delta() -> None:
    for whole in (1e-6, 2e-6, np.nextafter(1e-6, 0)):  # the last but for rounding
        with pytest.raises(ValueError, match=r"below the budget's delta = 1e-06, .* e\.g\. 5e-07"):
            Ledger(APPROXIMATE, keys_delta=whole)
    assert Ledger(dp.ZCDP(0.3), keys_delta=0.5).keys_delta == Fraction(1, 2)


def test_a_weak_one_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budgets, "_warned", set())
    for budget in (dp.PureDP(1.0), dp.ZCDP(0.01)):
        with pytest.warns(
            dp.errors.WeakBudgetWarning, match="fail altogether with probability 0.001"
        ):
            Ledger(budget, keys_delta=1e-3)


# What holds


def test_epsilon_is_that_at_what_is_left_of_delta() -> None:
    ledger = claimed(APPROXIMATE, 5e-7, pages=(2e-7, None), views=(1e-7, None), plain=(0, None))
    together = rho(ledger, "pages", "views", "plain")
    assert ledger.epsilon_at() == pytest.approx(zcdp_epsilon(together, 7e-7), rel=1e-9)
    assert ledger.epsilon_at(1e-8 + 3e-7) == pytest.approx(zcdp_epsilon(together, 1e-8), rel=1e-6)
    assert ledger.epsilon_at(claimed=False) == pytest.approx(1, rel=1e-8)
    assert ledger.epsilon_at(claimed=False) <= 1 + 1e-10
    # Not at the whole delta; and not each share by itself, at what is left of its own.
    assert ledger.epsilon_at() > zcdp_epsilon(together, 1e-6) * (1 + 1e-3)
    alone = [zcdp_epsilon(rho(ledger, s.name), 1e-6 - float(s.keys_delta)) for s in ledger.shares]
    assert ledger.epsilon_at() < 0.7 * sum(alone)
    for delta in (1e-7, 3e-7):
        with pytest.raises(ValueError, match=r"at delta = \de-07 no epsilon holds, .* takes 3e-07"):
            ledger.epsilon_at(delta)
    with pytest.raises(ValueError, match=r"takes 5e-07 of it: give more"):
        ledger.epsilon_at(4e-7, claimed=False)


def test_epsilon_beside_budgets_without_delta() -> None:
    ledger = claimed(dp.ZCDP(0.4), 5e-7, pages=(2e-7, None))
    assert ledger.epsilon_at() == pytest.approx(zcdp_epsilon(0.1, 1e-6), rel=1e-9)
    assert ledger.epsilon_at(claimed=False) == pytest.approx(zcdp_epsilon(0.4, 1e-6), rel=1e-9)
    assert ledger.epsilon_at(1e-6) == pytest.approx(zcdp_epsilon(0.1, 8e-7), rel=1e-9)
    assert Ledger(dp.ZCDP(0.4), keys_delta=0.1).epsilon_at() == 0

    pure = claimed(dp.PureDP(1.0), 5e-7, pages=(2e-7, None))
    assert pure.epsilon_at() == pure.epsilon_at(2e-7) == pure.epsilon_at(1e-6) == 0.25
    assert pure.epsilon_at(claimed=False) == pure.epsilon_at(5e-7, claimed=False) == 1
    with pytest.raises(ValueError, match="at delta = 1e-07 no epsilon holds"):
        pure.epsilon_at(1e-7)
    many = Ledger(dp.PureDP(1.0), keys_delta=5e-7)
    for _ in range(100):
        many.share(Fraction(1, 100)).claim("any", keys_delta=5e-9)
    assert many.epsilon_at() == pytest.approx(1)
    assert many.epsilon_at(1.5e-6) == pytest.approx(zcdp_epsilon(0.005, 1e-6), rel=1e-9)
    # Where all that is claimed is pure, delta is needed for nothing but keys.
    laplace = Ledger(dp.ZCDP(0.4), keys_delta=5e-7)
    laplace.spend(dp.PureDP(0.3)).claim("any", keys_delta=2e-7)
    assert laplace.epsilon_at(2e-7) == 0.3
    laplace.spend(dp.ZCDP(0.1)).claim("any")
    with pytest.raises(ValueError, match="no epsilon holds"):
        laplace.epsilon_at(2e-7)


def test_for_an_event_it_counts_twice_behind_a_bound() -> None:
    quarter = Fraction(1e-7)
    for protects, times in ((None, 1), (ASSERTED, 1), (FIVE, 2), (SIGNED, 2)):
        ledger = claimed(APPROXIMATE, 5e-7, pages=(1e-7, protects))
        assert ledger.delta_for_keys(unit="event") == float(times * quarter)
        assert ledger.delta_for_keys() == 1e-7
        cost = 1 if protects is None else protects.event_cost
        at = zcdp_epsilon(cost * rho(ledger, "pages"), 1e-6 - times * 1e-7)
        assert ledger.epsilon_at(unit="event") == pytest.approx(at, rel=1e-9)
        assert ledger.epsilon_at() == pytest.approx(
            zcdp_epsilon(rho(ledger, "pages"), 9e-7), rel=1e-9
        )

    both = claimed(APPROXIMATE, 5e-7, clicks=(1e-7, None), buyers=(2e-7, FIVE))
    assert both.delta_for_keys() == pytest.approx(5e-7)
    together = rho(both, "clicks") + 2 * rho(both, "buyers")
    assert both.epsilon_at() == pytest.approx(zcdp_epsilon(together, 5e-7), rel=1e-9)
    with pytest.raises(ValueError, match="nothing holds for a person"):
        both.delta_for_keys(unit="person")
    with pytest.raises(ValueError, match="may yet protect people"):
        both.delta_for_keys(claimed=False)

    much = claimed(APPROXIMATE, 6e-7, buyers=(6e-7, FIVE))
    assert much.epsilon_at(unit="person") < 1
    with pytest.raises(ValueError, match=r"at delta = 1e-06 no epsilon holds, .* takes 1\.2e-06"):
        much.epsilon_at(unit="event")
    said = "delta = 1e-06, for one event: none (keys take 1.2e-06 of delta) of what is claimed\n"
    assert said in much.account()


def lone(p_with: np.ndarray, p_without: np.ndarray, shown: float, epsilon: float) -> float:
    """The delta of a count, and of a key that only one side can show, with this probability."""
    hidden = np.maximum(p_with * (1 - shown) - np.exp(epsilon) * p_without, 0).sum()
    return float(hidden) + shown


def test_exactly_what_one_event_shows() -> None:
    """One event counts under a listed key, and is the only one of a key that may be shown.

    Both of one tick. Delta is measured exactly; an epsilon at the whole delta would exceed it.
    """
    ledger = Ledger(dp.ApproxDP(1.0, 1e-3), keys_delta=9.5e-4)
    listed, selected = ledger.share(0.99), ledger.rest()
    noise = dp.calibrate(mechanisms.BinaryTree(1), selected.budget).law
    y = np.arange(-2000, 2001)
    tail = np.exp(audits.log_pmf(noise, y))[::-1].cumsum()[::-1]  # P(N >= y)
    shown = float(tail[tail <= 9.5e-4][0])
    assert shown > 9e-4
    selected.claim("Selected", keys_delta=shown)
    law = dp.calibrate(mechanisms.BinaryTree(1), listed.claim("Listed")).law
    with_it, without = (np.exp(audits.log_pmf(law, y - x)) for x in (1, 0))
    assert 5e-4 < lone(with_it, without, shown, ledger.epsilon_at()) <= 1e-3
    together = float_up(sum((s.cost for s in ledger.shares), Fraction(0)))
    assert lone(with_it, without, shown, zcdp_epsilon(together, 1e-3)) > 1e-3
    whole = dp.calibrate(mechanisms.BinaryTree(1), Ledger(dp.ApproxDP(1.0, 1e-3)).rest().budget)
    with_it, without = (np.exp(audits.log_pmf(whole.law, y - x)) for x in (1, 0))
    assert lone(with_it, without, shown, 1.0) > 1e-3  # had nothing been set aside


# What is said


def test_the_account_of_keys() -> None:
    ledger = Ledger(APPROXIMATE, "web shop", keys_delta=5e-7)
    pages = ledger.share(0.5, "pages")
    ledger.share(0.25, "views").claim("PrefixCount")
    pages.claim("TickCount", keys_delta=2e-7)
    ledger.share(0.2, "later")
    expected = f"""\
ledger web shop: epsilon = 1, delta = 1e-06; in all rho = 0.0229374 (zCDP); 5e-07 of delta kept \
for keys

share  part  budget                   delta for keys  claimed by
pages  50 %  rho = 0.0114688 (zCDP)            2e-07  TickCount
views  25 %  rho = 0.00573437 (zCDP)               -  PrefixCount
later  20 %  rho = 0.00458749 (zCDP)               -  -
left    5 %  rho = 0.00114688 (zCDP)           3e-07

epsilon at delta = 1e-06: {rounded_up(ledger.epsilon_at())} of what is claimed, 1 of all

{ledger_text._NOTE}

Delta for keys: where keys are not listed but shown once their private counts are high enough, the
probability, at most, of showing any that only one event has. It adds up over shares.
It is part of delta, and noise is made for what it leaves of that."""
    assert str(ledger) == ledger.account() == expected
    none = "none (keys take 5e-07 of delta)"
    early = (
        f"at delta = 3e-07: {rounded_up(ledger.epsilon_at(3e-7))} of what is claimed, {none} of all"
    )
    assert early in ledger.account(3e-7)
    assert ledger.describe()["ledger"].endswith("left: 5 %; delta for keys: 3e-07 of 5e-07 left")
    assert pages.describe() == {
        "ledger": "pages: 50 % of epsilon = 1, delta = 1e-06, delta for keys 2e-07 "
        "(ledger web shop)"
    }


def test_the_account_of_keys_beside_other_budgets() -> None:
    pure = claimed(dp.PureDP(1.0), 5e-7, pages=(2e-7, None)).account()
    assert pure.startswith("ledger shop: epsilon = 1 (pure); beside it delta = 5e-07 for keys\n")
    assert "\nepsilon at delta = 5e-07: 0.25 of what is claimed, 1 of all\n" in pure
    assert pure.endswith("It comes beside the budget, which holds but for it.")
    zcdp = claimed(dp.ZCDP(0.4), 5e-7, pages=(2e-7, None))
    every = f"{rounded_up(zcdp_epsilon(0.4, 1e-6))} of all\n"
    assert (
        f"at delta = 1.5e-06: {rounded_up(zcdp.epsilon_at(1.5e-6))} of what is claimed, {every}"
        in (zcdp.account())
    )


def test_the_account_of_keys_of_people() -> None:
    people = claimed(APPROXIMATE, 5e-7, buyers=(2e-7, FIVE))
    text = people.account()
    person, event = people.epsilon_at(), people.epsilon_at(unit="event")
    assert f"at delta = 1e-06, for one person: {rounded_up(person)} by buyers, 1 of all\n" in text
    assert f"at delta = 1e-06, for one event: {rounded_up(event)} of what is claimed\n" in text
    assert "which is a person's.\nIts delta for keys counts twice.\n" in text
    assert "showing any that only one event or person has" in text
    listed = claimed(APPROXIMATE, 5e-7, buyers=(0, FIVE)).account()
    assert "counts twice" not in listed
    # Of a pure budget each line says the delta at which it holds.
    pure = claimed(dp.PureDP(1.0), 5e-7, clicks=(1e-7, None), buyers=(3e-7, FIVE)).account()
    assert "epsilon at delta = 3e-07, for one person: 0.25 by buyers alone\n" in pure
    assert "epsilon at delta = 7e-07, for one event: 0.75 of what is claimed\n" in pure


# Copies


def test_copies_keep_it(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = claimed(APPROXIMATE, 5e-7, pages=(2e-7, FIVE))
    for copied in (copy.copy(ledger), copy.deepcopy(ledger), pickle.loads(pickle.dumps(ledger))):
        assert copied is ledger
    data = pickle.dumps(ledger)
    monkeypatch.setattr(module, "_LIVE", {})
    restored = pickle.loads(data)  # as in another process
    assert restored is not ledger
    assert restored.keys_delta == Fraction(5e-7)
    assert restored.keys_delta_left == ledger.keys_delta_left
    assert restored.total == ledger.total
    assert restored.shares[0].keys_delta == Fraction(2e-7)
    assert restored.account() == ledger.account()
    assert restored.epsilon_at(unit="event") == ledger.epsilon_at(unit="event")

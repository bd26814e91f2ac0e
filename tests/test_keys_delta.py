"""What keys that nobody listed take of a ledger: it adds up beside the shares."""

from __future__ import annotations

import pickle
from fractions import Fraction

import pytest

import beam_dpcount as dp
from beam_dpcount.budget.conversions import zcdp_epsilon
from beam_dpcount.budget.ledger import Protection, claim

BUDGETS = (dp.PureDP(1.0), dp.ZCDP(0.3), dp.ApproxDP(1.0, 1e-6))
each = pytest.mark.parametrize("budget", BUDGETS, ids=str)
ONE_PERSON = Protection("one person", 2)


@each
def test_it_is_set_aside_at_first(budget: dp.PureDP | dp.ZCDP | dp.ApproxDP) -> None:
    plain, ledger = dp.Ledger(budget), dp.Ledger(budget, keys_delta=4e-7)
    assert ledger.keys_delta == ledger.keys_delta_left == Fraction(4e-7)
    assert plain.keys_delta == plain.keys_delta_left == 0
    if isinstance(budget, dp.ApproxDP):
        assert ledger.total == dp.Ledger(dp.ApproxDP(1.0, 1e-6 - 4e-7)).total < plain.total
    else:
        assert ledger.total == plain.total


@each
def test_selections_take_of_it_until_nothing_is_left(
    budget: dp.PureDP | dp.ZCDP | dp.ApproxDP,
) -> None:
    ledger = dp.Ledger(budget, keys_delta=1e-7)
    for part in range(10):
        ledger.share(0.05, f"share {part}").claim("Count", keys_delta=1e-8)
    assert ledger.keys_delta_left < 1e-20
    late = ledger.share(0.1, "late")
    with pytest.raises(dp.OverspentError, match=r"'Late' selects keys .* is left: take less"):
        late.claim("Late", keys_delta=1e-9)
    assert late.claimed_by is None
    late.claim("Late")


def test_a_ledger_without_any_says_how_to_make_one() -> None:
    share = dp.Ledger(dp.ZCDP(0.1)).rest()
    with pytest.raises(dp.OverspentError, match=r"Ledger\(budget, keys_delta=\.\.\.\)"):
        claim(share, "Count", keys_delta=1e-7)


@pytest.mark.parametrize("delta", [0.0, -1e-7, 1.0, float("nan")])
def test_bad_deltas(delta: float) -> None:
    with pytest.raises(ValueError, match="delta"):
        dp.Ledger(dp.ZCDP(0.1), keys_delta=delta)


def test_all_of_a_budgets_delta_is_refused() -> None:
    with pytest.raises(ValueError, match="leaves nothing of epsilon = 1, delta = 1e-06"):
        dp.Ledger(dp.ApproxDP(1.0, 1e-6), keys_delta=1e-6)


def test_epsilon_is_converted_once_at_what_keys_leave() -> None:
    ledger = dp.Ledger(dp.ApproxDP(1.0, 1e-6), keys_delta=6e-7)
    for part, keys in ((0.3, 1e-7), (0.5, 2e-7)):
        ledger.share(part).claim("Count", keys_delta=keys)
    rho = float(ledger.total) * 0.8
    taken = zcdp_epsilon(rho, 1e-6 - 3e-7)
    assert ledger.epsilon_at() == pytest.approx(taken, rel=1e-9)
    assert zcdp_epsilon(rho, 1e-6) < taken * (1 - 1e-3)  # what forgetting them would say
    assert ledger.epsilon_at(claimed=False) == pytest.approx(1.0, rel=1e-6)
    with pytest.raises(ValueError, match="nothing follows at delta = 3e-07: ask for a larger one"):
        ledger.epsilon_at(3e-7)


def test_one_event_costs_twice_behind_a_bound_on_people() -> None:
    ledger = dp.Ledger(dp.ApproxDP(1.0, 1e-6), keys_delta=4e-7)
    share = ledger.share(0.5)
    share.claim("People", ONE_PERSON, keys_delta=3e-7)
    rho = float(ledger.total) / 2
    assert ledger.epsilon_at(unit="person") == pytest.approx(zcdp_epsilon(rho, 7e-7), rel=1e-9)
    event = zcdp_epsilon(2 * rho, 1e-6 - 2 * 3e-7)
    assert ledger.epsilon_at(unit="event") == pytest.approx(event, rel=1e-9)


def test_beside_a_budget_without_delta() -> None:
    pure = dp.Ledger(dp.PureDP(1.0), keys_delta=1e-7)
    pure.share(0.5).claim("Count", keys_delta=1e-7)
    assert pure.epsilon_at() == 0.5
    assert pure.epsilon_at(1e-6) <= 0.5
    zcdp = dp.Ledger(dp.ZCDP(0.1), keys_delta=1e-7)
    zcdp.rest().claim("Count", keys_delta=1e-7)
    assert zcdp.epsilon_at() == pytest.approx(zcdp_epsilon(0.1, 1e-6), rel=1e-6)
    assert zcdp.epsilon_at(1e-6) == pytest.approx(zcdp_epsilon(0.1, 9e-7), rel=1e-6)


def test_the_account_has_a_column_where_there_is_any() -> None:
    ledger = dp.Ledger(dp.ApproxDP(1.0, 1e-6), "shop", keys_delta=4e-7)
    ledger.share(0.25, "clicks").claim("Clicks", keys_delta=1e-7)
    lines = str(ledger).splitlines()
    assert "delta for keys 4e-07" in lines[0]
    assert "delta for keys" in lines[2]
    assert lines[3].split()[-2:] == ["1e-07", "Clicks"]
    assert lines[4].split()[-1] == "3e-07"
    assert "show what they must not" in str(ledger)
    assert "delta for keys" not in str(dp.Ledger(dp.ApproxDP(1.0, 1e-6)))


def test_copies_keep_it() -> None:
    ledger = dp.Ledger(dp.ZCDP(0.1), keys_delta=4e-7)
    ledger.rest().claim("Count", keys_delta=1e-7)
    packed = pickle.dumps(ledger)
    from beam_dpcount.budget import ledger as module

    module._LIVE.pop(ledger._token)
    other = pickle.loads(packed)
    assert other is not ledger
    assert other.keys_delta_left == Fraction(4e-7) - Fraction(1e-7)
    assert str(other) == str(ledger)


def test_transforms_take_theirs_when_they_are_applied() -> None:
    import apache_beam as beam

    ledger = dp.Ledger(dp.ApproxDP(1.0, 1e-6), keys_delta=4e-7)
    clock = {"tick": 60, "start": 0, "horizon": 10}
    with pytest.raises(ValueError, match="keys_delta"):
        dp.TickCount(ledger.share(0.5, "none"), **clock, keys=dp.SelectKeys())
    count = dp.TickCount(ledger.rest("all"), **clock, keys=dp.SelectKeys(delta=1e-7))
    assert ledger.keys_delta_left == ledger.keys_delta
    events = beam.Pipeline("FnApiRunner") | beam.Create([("a", 1)])
    _ = events | count
    assert ledger.keys_delta_left == Fraction(4e-7) - Fraction(1e-7)


@pytest.mark.parametrize(
    "ledger",
    [
        dp.Ledger(dp.ApproxDP(1.0, 1e-6), keys_delta=5e-7),
        dp.Ledger(dp.ApproxDP(1.0, 1e-6), keys_delta=7e-7),
        dp.Ledger(dp.ZCDP(0.1), keys_delta=1e-6),
        dp.Ledger(dp.PureDP(1.0), keys_delta=1e-6),
    ],
    ids=repr,
)
def test_half_of_delta_for_keys_of_people_can_be_printed(ledger: dp.Ledger) -> None:
    """For one event keys then take all of it."""
    ledger.rest("people").claim("People", ONE_PERSON, keys_delta=float(ledger.keys_delta))
    if isinstance(ledger.budget, dp.ApproxDP):
        assert "for one event: nothing follows" in str(ledger)
    else:
        assert "for one event: " in str(ledger)
    assert "for one person: " in str(ledger)
    assert f"{float(ledger.keys_delta):g}" in repr(ledger)
    assert f"{float(ledger.keys_delta):g}" in ledger.describe()["ledger"]
    assert f"{float(ledger.keys_delta):g}" in ledger.shares[0].describe()["ledger"]

"""What transforms do when they are made: each search, table and calibration once. Counts, no times.

Nothing that is remembered shows: a counter holds its own arguments, and errors come as before."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import beam_dpcount as dp
from beam_dpcount.budget import conversions
from beam_dpcount.counters import choose as choosing
from beam_dpcount.counters.choose import resolve
from beam_dpcount.mechanisms import blt_tables, square_root
from beam_dpcount.plans import counting
from beam_dpcount.transforms.ticks import TickNumbers

fresh = itertools.count(1)  # budgets and horizons that no other test has asked about


class Calls:
    def __init__(self, monkeypatch, place, name):
        self.count, function = 0, getattr(place, name)

        def counted(*args, **kwargs):
            self.count += 1
            return function(*args, **kwargs)

        monkeypatch.setattr(place, name, counted)


def unseen():
    """A budget and a horizon."""
    n = next(fresh)
    return dp.ApproxDP(0.7 + n / 1000, 1e-6), 20_000 + n


def made(budget, horizon):
    return dp.PrefixCount(budget, horizon)


def named(budget, horizon):
    return dp.PrefixCount(budget, horizon, mechanism="NormalizedBLT")


def at_ticks(budget, horizon):
    return TickNumbers(budget, 300, 0, horizon=horizon, keys=["a"])


makers = pytest.mark.parametrize("make", [made, named, at_ticks])


@makers
def test_a_budget_is_converted_once(monkeypatch, make):
    deltas, gaussian = (
        Calls(monkeypatch, conversions, name) for name in ("zcdp_delta", "gaussian_delta")
    )
    budget, horizon = unseen()
    make(budget, horizon)
    assert 0 < deltas.count <= 60  # one search, at most of rho and of epsilon
    assert 0 < gaussian.count <= 60
    before = deltas.count, gaussian.count
    make(budget, horizon + 10_000)
    assert (deltas.count, gaussian.count) == before


@makers
def test_tables_are_made_once_for_each_mechanism(monkeypatch, make):
    tables = Calls(monkeypatch, blt_tables.Tables, "__init__")
    coefficients = Calls(monkeypatch, square_root, "coefficients")
    budget, horizon = unseen()
    first = make(budget, horizon)
    assert tables.count <= (1 if make is named else 2)  # BLT and NormalizedBLT
    assert coefficients.count == 0  # of a mechanism whose state no default takes
    before = tables.count
    assert make(dp.ZCDP(0.01 + next(fresh) / 1e6), horizon).counter.mechanism is not None
    assert make(budget, horizon).counter == first.counter
    assert tables.count == before


@makers
def test_paths_of_one_mechanism_are_calibrated_once(monkeypatch, make):
    calls = Calls(monkeypatch, counting, "calibrate")
    count = make(*unseen())
    assert calls.count == 1
    assert count._counters[False] is count._counters[True] is count.counter


def test_paths_of_two_mechanisms_have_two_counters():
    """Under a pure budget, where only work that is not replayed may draw noise early."""
    count = dp.PrefixCount(dp.PureDP(1), 3000)
    bounded, streaming = (count._counters[way] for way in (False, True))
    assert bounded.mechanism == dp.choose(3000, dp.PureDP(1)).mechanism
    assert streaming.mechanism == dp.choose(3000, dp.PureDP(1), replays=True).mechanism
    assert bounded.mechanism.draws_early
    assert not streaming.mechanism.draws_early
    ticks = at_ticks(dp.PureDP(1), 20_000)
    assert ticks._counters[False].mechanism != ticks._counters[True].mechanism


CHANGES = [
    {},
    {"change": dp.Change(-3, 5), "unit": 0.5},
    {"change": dp.Change(0, 1, relation="add_remove")},
    {"change": dp.Change(0, 1, coordinates=2), "dimension": 50},
    {"change": dp.Change(0, 1), "unit": 2.0**-20, "dimension": 1000},
]


@pytest.mark.parametrize("how", CHANGES, ids=str)
@pytest.mark.parametrize("replays", [False, True])
@pytest.mark.parametrize(
    "horizon", [1, 2, 7, 100, 499, 500, 1000, 4096, 4097, 70_000, 2**20, 2**31]
)
@pytest.mark.parametrize("budget", [dp.PureDP(1), dp.ZCDP(0.5), dp.ApproxDP(1, 1e-6)], ids=str)
def test_the_default_is_the_best_of_the_table_with_a_small_state(budget, horizon, replays, how):
    expected = dp.choose(horizon, budget, max_state=1000, replays=replays, **how).mechanism
    for _ in range(2):
        assert resolve(None, horizon, budget, replays=replays, **how) == expected


def test_where_no_mechanism_fits_the_error_is_the_tables():
    narrow = {"change": dp.Change(0, 1), "unit": 2.0**-30}
    for budget, horizon in ((dp.PureDP(1e-9), 1000), (dp.ZCDP(1e-15), 10)):
        with pytest.raises(ValueError, match="lattice units") as of_table:
            dp.choose(horizon, budget, max_state=1000, **narrow)
        with pytest.raises(ValueError, match="lattice units") as of_default:
            resolve(None, horizon, budget, **narrow)
        assert str(of_default.value) == str(of_table.value)


def test_counters_hold_their_own_arguments_not_equal_ones():
    """-0.0 is 0.0 and 1 is 1.0, but states and histories depend on how they are written."""
    budget, horizon = unseen()
    for bounds, unit in (((-0.0, 1.0), 1), ((0.0, 1.0), 1.0), ((-0.0, 1.0), 1.0)):
        counter = dp.PrefixCount(budget, horizon, bounds=bounds, unit=unit).counter
        change = dp.Change(*bounds)
        alone = dp.calibrate(counter.mechanism, budget, change, unit=unit)
        assert counter.fingerprint == alone.fingerprint
        assert repr(counter) == repr(alone)
        assert math.copysign(1, counter.change.low) == math.copysign(1, bounds[0])


def test_what_is_remembered_is_refused_as_before():
    assert conversions.zcdp_rho(1.0, 1e-6) == conversions.zcdp_rho(np.float64(1), 1e-6)
    for convert in (conversions.zcdp_rho, conversions.gaussian_sigma, conversions.zcdp_epsilon):
        convert(1.0, 1e-6)
        with pytest.raises(TypeError, match="must be a number, got True"):
            convert(True, 1e-6)
        with pytest.raises(TypeError, match=r"must be a number, got \[1.0\]"):
            convert([1.0], 1e-6)
    resolve(None, 50, dp.ZCDP(0.5), dimension=1)
    with pytest.raises(ValueError, match="dimension"):
        dp.calibrate(resolve(None, 50, dp.ZCDP(0.5), dimension=True), dp.ZCDP(0.5), dimension=True)


def test_little_is_remembered():
    assert choosing._plain.cache_info().maxsize == 32
    assert choosing._largest_stddev.cache_info().maxsize == 64

"""Alarms: the margin against enumeration and simulated months, the delay, and the state machine."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

import beam_dpcount as dp
from beam_dpcount.counters.alarms import Watch, above, ticks_in_days, ticks_unseen, watched
from beam_dpcount.mechanisms import BinaryTree, SmoothBinary
from beam_dpcount.mechanisms.single_steps import SingleSteps
from tests.scripted import SeededNoise
from tests.tails import counter_of, discrete, laplace, rounded, takes, weighted

HOURS = dp.Clock("1h", start="2026-01-01T00:00:00Z", ticks=24 * 40)
EACH, LAST, DAYS = HOURS.each(), HOURS.last(24), HOURS.restart(24)
BUDGETS = (dp.PureDP(1.0), dp.ApproxDP(1.0, 1e-6), dp.ZCDP(0.1))


def watch_of(view, budget=BUDGETS[1], keys=("a", "b", "c"), days=30) -> Watch:
    count = dp.TickCount(budget, view, keys=list(keys))
    return Watch(count.counter, view.grid, ticks_in_days(view, days), len(keys))


def stddev(watch: Watch) -> float:
    return math.sqrt(watch.counter.max_variance())


# Against enumeration


def exact_sum(watch: Watch, margin: float) -> float:
    """The expected number of releases above a margin, of the worst ticks in a row, by force."""
    counter, grid, H = watch.counter, watch.grid, watch.counter.horizon
    decoder = counter.mechanism.decoder(H) / counter.resolution
    rows = []
    for row in decoder:
        values, beyond = weighted(counter.law, row)
        rows.append(beyond[np.searchsorted(values, margin + 1e-9)])
    ticks = [rows[grid.count_of(tick)[1] - 1] for tick in range(1, grid.ticks + 1)]
    starts = range(grid.ticks - watch.ticks + 1)
    return watch.keys * max(math.fsum(ticks[at : at + watch.ticks]) for at in starts)


LAWS = (laplace("0.9"), discrete("0.8"), rounded("0.7"))


@pytest.mark.parametrize(
    ("kind", "law"),
    [
        (kind, law)
        for kind in (SingleSteps, BinaryTree, SmoothBinary)
        for law in LAWS
        if takes(kind, law)
    ],
)
@pytest.mark.parametrize("restart", [None, 3])
def test_the_margin_is_the_least_whole_number_that_tails_allow(kind, law, restart):
    """All values of all draws, all windows of ticks: neither above the promise nor wasteful."""
    clock = dp.Clock("1d", start=0, ticks=6 if restart else 4)
    grid = clock.grid if restart is None else clock.restart(restart).grid
    counter = counter_of(kind, grid.steps, law)
    for ticks, keys, allowed in itertools.product((1, 2, 4), (1, 3), (0.03, 0.4)):
        watch = Watch(counter, grid, ticks, keys)
        margin = watch.margin(allowed)
        assert margin == int(margin)
        exact = exact_sum(watch, margin)
        assert exact <= allowed * (1 + 1e-6)
        assert exact_sum(watch, margin - 1) > allowed * (1 - 1e-6)
        assert watch.false_alarms(margin) == pytest.approx(exact, rel=1e-4, abs=1e-7)


@pytest.mark.parametrize("view", [HOURS, EACH, LAST, DAYS], ids=lambda view: view.name)
@pytest.mark.parametrize("budget", BUDGETS, ids=str)
def test_more_keys_days_and_fewer_false_alarms_take_a_larger_margin(view, budget):
    watch = watch_of(view, budget)
    margin = watch.margin(1.0)
    assert 2 * stddev(watch) < margin < 6 * stddev(watch)
    assert watch.false_alarms(margin) <= 1 + 1e-9
    assert watch.margin(0.01) > margin
    assert replace(watch, keys=300).margin(1.0) > margin
    assert replace(watch, ticks=watch.ticks + 100).margin(0.5) > margin
    # Of one tick alone it is far less: what a band for each tick would take.
    assert replace(watch, ticks=1, keys=1).margin(0.025) < 0.95 * margin


def test_a_band_for_each_tick_would_raise_dozens_of_false_alarms_a_day():
    """Of 1,440 minutes of a sliding hour, above 1.96 standard deviations."""
    minutes = dp.Clock("1m", start=0, ticks=1440).last(60)
    watch = watch_of(minutes, BUDGETS[2], keys=("a",), days=1)
    assert 25 < watch.false_alarms(1.96 * stddev(watch)) < 40
    assert 3 < watch.margin(1.0) / stddev(watch) < 4.5


def test_counts_of_unequal_lengths_and_long_clocks_count_as_the_noisiest():
    hours = dp.Clock("1h", start="2026-03-01", ticks=24 * 40 - 1, zone="Europe/Paris")
    uneven = watch_of(hours.restart("1d"), BUDGETS[2], keys=("a",))
    even = watch_of(dp.Clock("1h", start=0, ticks=24 * 40).restart(24), BUDGETS[2], keys=("a",))
    assert uneven.counter.mechanism == even.counter.mechanism
    assert even.margin(1.0) < uneven.margin(1.0) < 1.1 * even.margin(1.0)
    assert len(uneven._norms2) == 1
    endless = watch_of(dp.Clock("1m", start=0).each(), keys=("a",))
    assert endless.ticks == 30 * 1440
    assert endless.margin(1.0) == watch_of(
        dp.Clock("1m", start=0, ticks=43_200).each(), keys="a"
    ).margin(1)


def test_ticks_of_days():
    assert ticks_in_days(EACH, 30) == 720
    assert ticks_in_days(EACH, 1.01) == 25
    assert ticks_in_days(EACH, 1000) == 24 * 40
    local = dp.Clock("1d", start="2026-03-01", ticks=60, zone="Europe/Paris")
    assert ticks_in_days(local.each(), 30) == 30
    weeks = dp.Clock("1w", start=0, ticks=60)
    assert ticks_in_days(weeks.each(), 30) == 5
    assert ticks_in_days(weeks.each(), 1) == 1


def test_thresholds_are_rounded_up():
    assert above(100.0, 7.0) == 107
    assert above(0.1, 0.2) > 0.3
    assert above(2.0**60, 1.0) > 2.0**60
    assert above(-5.0, 3.0) == -2


# Simulated months

MONTH = dp.Clock("1h", start=0, ticks=720)
DAY = dp.Clock("1h", start=0, ticks=24)
MONTHS = 10_000


def noise_of(watch: Watch, series: int, seed: int) -> np.ndarray:
    """The noise of whole counts: L z, shape (horizon, series)."""
    counter = watch.counter
    decoder = counter.mechanism.decoder(counter.horizon)
    return decoder @ SeededNoise(counter.law, seed, series).draw(1, decoder.shape[1]) * counter.grid


def quiet_months(watch: Watch, margin: float, months: int = MONTHS) -> np.ndarray:
    """How many releases of a key in a quiet month noise alone lifts above a margin."""
    of_count, at_once = watch.ticks // watch.counter.horizon, 5000
    above = [
        (noise_of(watch, at_once, seed) > margin).sum(axis=0)
        for seed in range(months * of_count // at_once)
    ]
    return np.concatenate(above).reshape(months, of_count).sum(axis=1)


@pytest.mark.long
@pytest.mark.parametrize(
    ("view", "budget"),
    [
        (MONTH.each(), BUDGETS[0]),
        (MONTH.each(), BUDGETS[2]),
        (MONTH.last(24), BUDGETS[2]),
        (MONTH, BUDGETS[2]),
        (MONTH.restart(24), BUDGETS[0]),
        (MONTH.restart(24), BUDGETS[2]),
    ],
    ids=lambda thing: getattr(thing, "name", None) or str(thing),
)
def test_ten_thousand_quiet_months_keep_the_promise(view, budget):
    """The mean number of false alarms a month, with four standard errors; and it is not wasted."""
    watch = watch_of(view, budget, keys=("a",))
    margin = watch.margin(1.0)
    found = quiet_months(watch, margin)
    error = 4 * found.std() / math.sqrt(len(found))
    promised = watch.false_alarms(margin)
    print(f"{view.name}: margin {margin:.4g}, promised {promised:.3f}, {found.mean():.3f} a month")
    assert promised <= 1 + 1e-9
    assert found.mean() <= promised + error
    assert found.mean() >= 0.9 * promised - error  # and the bound is the expected number, nearly


@pytest.mark.long
def test_quiet_months_tell_a_margin_that_is_too_small():
    """One of one tick, and one that leaves keys out."""
    watch = watch_of(MONTH.each(), BUDGETS[2], keys=("a",))
    watch = replace(watch, keys=30)
    for less in (replace(watch, ticks=1), replace(watch, keys=1)):
        found = 30 * quiet_months(watch, less.margin(1.0), 5000)
        error = 4 * found.std() / math.sqrt(len(found))
        assert found.mean() - error > 1


# How long a rise goes unseen


@pytest.mark.parametrize("view", [HOURS, EACH, LAST, DAYS], ids=lambda view: view.name)
def test_the_delay_is_the_first_tick_at_which_the_expected_number_crosses(view):
    for level, margin, rise in itertools.product(
        (0.0, 10.0, 1000.0), (5.0, 31.0), (6.0, 32.0, 500.0)
    ):
        if isinstance(view, type(LAST)):
            expected = [level + rise * min(j, 24) / 24 for j in range(1, 49)]
        elif isinstance(view, type(DAYS)):
            expected = [(level + rise) * j / 24 for j in range(1, 25)]
        else:
            expected = [level + rise] * 24
        crossed = [j for j, x in enumerate(expected, 1) if x > level + margin + 1e-9]
        found = ticks_unseen(view, level, margin, rise)
        assert found == (crossed[0] if crossed else None)


@pytest.mark.parametrize("view", [MONTH, MONTH.each(), MONTH.last(24), MONTH.restart(24)])
@pytest.mark.parametrize("budget", BUDGETS, ids=str)
def test_a_rise_is_seen_as_often_as_is_said(view, budget):
    """Of many releases at the noisiest tick; a bound from below, which is near for Gaussians."""
    watch = watch_of(view, budget, keys=("a",))
    values = noise_of(watch, 4000, 3)
    margin = watch.margin(1.0)
    for rise in (0.0, 0.5 * margin, 0.9 * margin, margin, 1.1 * margin, 1.5 * margin, 3 * margin):
        said = watch.seen(margin, rise)
        least = float((values + rise > margin).mean(axis=1).min())
        assert 0 <= said <= 1
        assert said <= least + 4 * math.sqrt(0.25 / 4000)
        if budget == BUDGETS[2]:
            assert said >= least - 0.1
    assert watch.seen(margin, 3 * margin) > 0.99


# The alarm itself


def test_an_alarm_starts_above_the_threshold_and_ends_at_the_level():
    values = [9, 15, 16, 15, 17, 18, 11, 10, 12, 17, 30, 10, 16]
    raised, starts = False, []
    for value in values:
        raised, start = watched(raised, value, 10.0, 15.0)
        starts.append(start)
    assert [i for i, start in enumerate(starts) if start] == [2, 9, 12]

"""Views that are combined: weights and variances are those of least squares, on every path."""

from __future__ import annotations

import itertools
import json
import math
import pickle
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import apache_beam as beam
import numpy as np
import pytest

import beam_dpcount as dp
from beam_dpcount.checks import ParameterError
from beam_dpcount.counters.counter import Counter
from beam_dpcount.counters.summed_views import MOST_SUMMED, SummedViews
from beam_dpcount.counters.views import MOST_LAGS, MOST_TICKS, CombinedViews, can_combine
from beam_dpcount.dofns.events import JoinEach, Parts, ToPart
from beam_dpcount.dofns.releases import Release
from beam_dpcount.mechanisms.base import FloatArray
from beam_dpcount.mechanisms.simple import Simple2
from beam_dpcount.mechanisms.single_steps import SingleSteps
from beam_dpcount.noise.entropy import SystemNoise
from beam_dpcount.states.all_vectors import Reading
from beam_dpcount.states.envelope import StateError
from beam_dpcount.statistics.metrics.joint import Joint
from benchmarks.cells import Cell
from tests.runners import SECOND, Row, feed, run
from tests.scripted import ScriptedEntropy

T, WINDOW = 40, 7
RHO = dp.ZCDP(0.5)


def counter(mechanism: Any, rho: float) -> Counter:
    made: Counter = dp.calibrate(mechanism, dp.ZCDP(rho))
    return made


def views_of(
    kind: Any, window: int, shares: Sequence[float] = (0.4, 0.3, 0.3), ticks: int = T
) -> CombinedViews:
    last = counter(dp.mechanisms.SlidingBLT(ticks, window), 0.5 * shares[2]) if window else None
    so_far, each = (
        counter(made, 0.5 * share)
        for made, share in zip((kind(ticks), SingleSteps(ticks)), shares, strict=False)
    )
    return CombinedViews(so_far, each, last, ticks, window)


def least_squares(views: CombinedViews, t: int) -> tuple[FloatArray, FloatArray]:
    """The covariance of the best estimate of ticks 1 .. t, and what it makes of the releases of
    "so far" and "each", shape (t, 2 t): dense, by the noise of all of them."""
    decoder = views.so_far.mechanism.decoder(views.ticks)[:t, :t]
    draw = views.so_far.variance(1) / views.so_far.mechanism.row_norm2(1)
    sums = np.tri(t)
    of_sums = sums.T @ np.linalg.inv(decoder @ decoder.T * draw)
    own = np.eye(t) / views.each.variance(1)
    covariance = np.linalg.inv(of_sums @ sums + own)
    return covariance, covariance @ np.hstack([of_sums, own])


def wanted(t: int, window: int) -> FloatArray:
    """ "So far", "each" and "last" of ticks 1 .. t."""
    last = np.zeros(t)
    last[max(0, t - window) :] = 1
    return np.stack([np.ones(t), np.eye(t)[-1], last])


BLTS = (dp.mechanisms.NormalizedBLT, dp.mechanisms.ProfiledBLT, dp.mechanisms.BLT)


@pytest.mark.parametrize("window", [0, 1, WINDOW, T])
@pytest.mark.parametrize("kind", BLTS)
def test_numbers_are_those_of_least_squares(kind: Any, window: int) -> None:
    views = views_of(kind, window)
    random = np.random.default_rng(1)
    xs = random.integers(0, 50, T)
    releases = np.stack([np.cumsum(xs), xs, xs]) + random.normal(0, 5, (3, T))
    state = views.init()
    for t in range(1, T + 1):
        state, numbers = views.step(state, t, releases[:, t - 1].tolist())
        covariance, weights = least_squares(views, t)
        heard = np.concatenate([releases[0, :t], releases[1, :t]])
        best = wanted(t, window) @ weights @ heard
        variances = np.diag(wanted(t, window) @ covariance @ wanted(t, window).T).copy()
        if views.last is None:
            best, variances = best[:2], variances[:2]
        else:
            # What "last" released has noise of its own, so the two are weighed by their variances.
            own = views.last.variance(t)
            best[2] = (own * best[2] + variances[2] * releases[2, t - 1]) / (own + variances[2])
            variances[2] *= own / (own + variances[2])
        assert numbers == pytest.approx(best.tolist(), rel=1e-9, abs=1e-9)
        assert views.stddevs[t - 1] == pytest.approx(np.sqrt(variances), rel=1e-9)


@pytest.mark.parametrize("kind", BLTS)
def test_the_standard_deviations_are_those_of_the_noise(kind: Any) -> None:
    """Of the mechanisms' own noise, and whatever is counted: 4,000 keys side by side."""
    ticks, keys = 24, 4000
    views = views_of(kind, 5, ticks=ticks)
    counters = (views.so_far, views.each, views.last)
    random = np.random.default_rng(2)
    xs = random.integers(0, 2, ticks)
    truth = [np.cumsum(xs), xs, np.convolve(xs, np.ones(5, dtype=int))[:ticks]]
    errors = np.empty((keys, ticks, 3))
    for key in range(keys):
        released = [c.release(xs, SystemNoise(c.law, None)) for c in counters if c is not None]
        state = views.init()
        for t in range(1, ticks + 1):
            state, numbers = views.step(state, t, [float(each[t - 1]) for each in released])
            errors[key, t - 1] = [n - true[t - 1] for n, true in zip(numbers, truth, strict=True)]
    stddevs = errors.std(axis=0)
    assert np.abs(stddevs / views.stddevs - 1).max() < 6 / math.sqrt(2 * keys)
    assert np.abs(errors.mean(axis=0) / views.stddevs).max() < 6 / math.sqrt(keys)


def test_every_number_is_better_than_its_own_release() -> None:
    views = views_of(dp.mechanisms.ProfiledBLT, WINDOW)
    counters = (views.so_far, views.each, views.last)
    for place, one in enumerate(counters):
        assert one is not None
        assert (views.stddevs[:, place] <= np.array(one.stddevs(T)) * (1 + 1e-12)).all()
    assert views.stddevs[-1, 1] < 0.85 * views.each.stddevs(T)[-1]


# Mean standard deviations of all ticks, over those of each view alone with all of the budget:
# where "so far" is preferred, and where nothing is.
TRADES = {
    30: ((1.019, 1.434), (1.117, 1.213), (1.046, 1.109, 0.883)),
    365: ((1.029, 1.624), (1.176, 1.288), (1.108, 1.173, 0.944)),
    8760: ((1.032, 1.809), (1.202, 1.350), (1.135, 1.225, 0.988)),
}


@pytest.mark.parametrize("ticks", [30, 365, pytest.param(8760, marks=pytest.mark.long)])
def test_what_views_cost_together(ticks: int) -> None:
    """Of three views none is worse than 1.25 of its best at 60 % of the budget."""
    clock = dp.Clock("1h", start=0, ticks=ticks)
    views = [clock, clock.each(), clock.last(7)]

    def means(some: Any, prefer: str | None = None) -> Any:
        count = dp.TickCount(RHO, some, keys=dp.TOTAL, prefer=prefer)
        if count.combined is None:
            return np.array([np.mean(count.counter.stddevs(ticks))])
        assert isinstance(count.combined.views, CombinedViews)
        return count.combined.views.stddevs.mean(axis=0)

    best = np.concatenate([means(view) for view in views])
    preferred = means(views[:2], "so-far") / best[:2]
    two, three = means(views[:2]) / best[:2], means(views) / best
    for found, most in zip((preferred, two, three * math.sqrt(0.6)), TRADES[ticks], strict=True):
        assert (found <= most).all(), found
    assert (three <= 1.25 / math.sqrt(0.6)).all()


def test_the_trade_at_the_ticks_of_the_facts() -> None:
    """A fresh number a tick on a tenth of rho beside NormalizedBLT, averaged over the squares at
    T / 4, T / 2 and T. Over all ticks it is 1.64, as the last ones are better than most."""
    views = views_of(dp.mechanisms.NormalizedBLT, 0, (0.9, 0.1), 365)
    at = np.sqrt(np.mean(np.square(views.stddevs[[90, 181, 364]]), axis=0))
    alone = counter(dp.mechanisms.NormalizedBLT(365), 0.5).stddevs(365)
    assert at[0] / math.sqrt(np.mean(np.square(alone))) < 1.02
    assert at[1] < 1.52
    assert views.stddevs[:, 1].mean() == pytest.approx(1.635, abs=0.001)


def test_what_can_be_combined() -> None:
    so_far, each = counter(dp.mechanisms.NormalizedBLT(T), 0.3), counter(SingleSteps(T), 0.2)
    assert can_combine(so_far, each, T, WINDOW)
    assert not can_combine(counter(dp.mechanisms.BinaryTree(T), 0.3), each, T)
    assert not can_combine(so_far, so_far, T)
    assert not can_combine(so_far, each, T + 1)
    assert not can_combine(so_far, each, T, MOST_LAGS + 1)
    pure = dp.calibrate(SingleSteps(T), dp.PureDP(1.0))
    assert not can_combine(so_far, pure, T)
    with pytest.raises(ValueError, match="cannot be combined"):
        CombinedViews(so_far, pure, None, T)
    huge = MOST_TICKS + 1
    of_huge = counter(dp.mechanisms.NormalizedBLT(huge), 0.3), counter(SingleSteps(huge), 0.2)
    assert not can_combine(*of_huge, huge)


# In a TickCount

CLOCK = dp.Clock("10s", start=0, ticks=24)
VIEWS = [CLOCK, CLOCK.each(), CLOCK.last(5), CLOCK.last(9)]
ROWS: list[Row] = [(key, 1, at * SECOND) for at, key in enumerate("abbacab" * 30)]


def count(**options: Any) -> dp.TickCount:
    given = {"keys": ["b", "a"], "entropy": ScriptedEntropy(3), **options}
    return dp.TickCount(RHO, given.pop("views", VIEWS), **given)


def test_bounded_streaming_and_data_frames_say_the_same_of_the_same_noise() -> None:
    """Each path has its own noise: the numbers are those of the releases that were its own."""
    import pyarrow as pa

    names = ("count", "count_each", "count_last_5")
    for path in ("bounded", "streaming"):
        counting = count(path=path, prefer="so-far")
        assert counting.combined is not None
        assert counting.combined.names == names
        rows = run(lambda p, c=counting: p | feed(ROWS) | c).releases
        assert sorted((r.key, r.step) for r in rows) == [*itertools.product("ab", range(1, 25))]
        parts = {
            name: {
                (r.key, r.step): r.value
                for r in run(lambda p, e=engine: p | feed(ROWS) | e).releases
            }
            for name, engine in zip(names, (part.engine for part in counting._parts), strict=False)
        }
        last = counting._parts[3].engine
        alone = run(lambda p, e=last: p | feed(ROWS) | e).releases
        others = {(r.key, r.step): r.value for r in alone}
        combined = counting.combined
        assert isinstance(combined.views, CombinedViews)
        for key in "ab":
            state = combined.views.init()
            for row in sorted((r for r in rows if r.key == key), key=lambda r: r.step):
                released = [parts[name][key, row.step] for name in names]
                state, numbers = combined.views.step(state, row.step, released)
                assert [row.values[name] for name in names] == numbers
                stddevs = combined.views.stddevs[row.step - 1].tolist()
                assert [row.stddevs[name] for name in names] == stddevs
                halves = combined.views.half_widths_at(row.step, 0.95)
                for name, value, half in zip(names, numbers, halves, strict=True):
                    assert (row.lows[name], row.highs[name]) == (value - half, value + half)
                assert row.values["count_last_9"] == others[key, row.step]
    table = pa.table({"k": [k for k, _, _ in ROWS], "t": [at // SECOND for _, _, at in ROWS]})
    frame = count(prefer="so-far").over(table, key="k", time="t").to_pylist()
    bounded = run(lambda p: p | feed(ROWS) | count(path="bounded", prefer="so-far")).releases
    found = {(r.key, r.step): r.values["count_each"] for r in bounded}
    assert {(r["key"], r["step"]): r["count_each"] for r in frame}.keys() == found.keys()


def test_parts_may_arrive_in_any_order() -> None:
    """Rows of a key come tick by tick, and are the same, whatever waits for whom."""
    counting = count(views=VIEWS[:2])
    combined = counting.combined
    parts = Parts(CLOCK.grid, counting.columns, 2, ("a",), combined)
    made = []
    for part, name in enumerate(counting.columns):
        engine = counting._parts[part]
        reading = Reading(engine.engine.counter, Joint(engine.metrics), 0.95, CLOCK.grid)
        to_part = ToPart(part, reading, 24, None)
        for step in range(1, 5):
            release = Release("a", step, step * 10 * SECOND, 7.0 * step + part, 1.0, name, None)
            made += [(step, each) for each in to_part.process(release)]
    found = set()
    for order in itertools.islice(itertools.permutations(made), 0, None, 997):
        join, cell, rows = JoinEach(parts), Cell(), []
        for _, element in order:
            rows += [each.value for each in join.process(element, cell)]
        assert [row.step for row in rows] == [1, 2, 3, 4]
        found.add(json.dumps([[row.values, row.stddevs] for row in rows]))
    assert len(found) == 1


def test_rows_of_other_views_do_not_go_on_from_a_state() -> None:
    first, other = count(views=VIEWS[:2]), count(views=VIEWS[1::-1])
    cell, release = Cell(), Release("a", 1, 10 * SECOND, 7.0, 1.0, "count", None)
    reading = Reading(first._parts[0].engine.counter, Joint((dp.Count(),)), 0.95, CLOCK.grid)
    ((_, part),) = ToPart(0, reading, 24, None).process(release)
    made = [Parts(CLOCK.grid, one.columns, 2, ("a",), one.combined) for one in (first, other)]
    assert JoinEach(made[0]).process(("a", part), cell) == []
    with pytest.raises(StateError, match="other metrics or views"):
        JoinEach(made[1]).process(("a", part), cell)


def test_weights_are_not_pickled_and_depend_on_nothing_else() -> None:
    combined = count(prefer="so-far").combined
    assert combined is not None
    assert isinstance(combined.views, CombinedViews)
    before = len(pickle.dumps(combined))
    _ = combined.views.stddevs
    assert len(pickle.dumps(combined)) == before
    assert pickle.loads(pickle.dumps(combined)) == combined


def test_what_prefer_does() -> None:
    balanced = count(views=VIEWS[:3])
    assert [float(part.share) for part in balanced._parts] == [0.4, 0.3, 0.3]
    shares = {name: count(prefer=name, views=VIEWS[:3])._parts for name in ("so-far", "last")}
    assert [float(part.share) for part in shares["so-far"]] == [0.7, 0.15, 0.15]
    of_four = [float(part.share) for part in count(prefer="so-far")._parts]
    assert of_four == pytest.approx([0.525, 0.1125, 0.1125, 0.25])
    assert [float(x.share) for x in count(prefer="each", views=VIEWS[:3])._parts] == [0.2, 0.6, 0.2]
    assert sum(part.share for part in shares["last"]) == 1
    most = {
        n: {column: stddev for column, (stddev, _) in c.combined.largest.items()}
        for n, c in ((n, count(prefer=n, views=VIEWS[:3])) for n in shares)
        if c.combined
    }
    assert min(most, key=lambda n: most[n]["count"]) == "so-far"
    assert min(most, key=lambda n: most[n]["count_last_5"]) == "last"
    assert "count and count_each are computed from the releases of both, count_last_5" in str(
        balanced
    )
    worst, _ = balanced.combined.largest["count_each"] if balanced.combined else (0, 0)
    assert f"count_each {worst:.3g}" in str(balanced)


def test_a_count_that_restarts_may_stand_beside_the_count_so_far() -> None:
    both = count(views=[CLOCK, CLOCK.restart(6)])
    assert both.columns == ("count", "count_restart_6")
    assert both.combined is None
    rows = run(lambda p: p | feed(ROWS) | both).releases
    assert {(r.step, r.restart) for r in rows} == {(t, (t - 1) // 6 + 1) for t in range(1, 25)}
    assert CLOCK.restart(6).suffix == ""
    with pytest.raises(ValueError, match="two views that restart"):
        count(views=[CLOCK.restart(6), CLOCK.restart(4)])
    with pytest.raises(ValueError, match="has the view 'each' twice"):
        count(views=[CLOCK.each(), CLOCK, CLOCK.each()])


@pytest.mark.parametrize(
    "options",
    [
        {"prefer": "restart"},
        {"prefer": "so far"},
        {"prefer": "last", "views": VIEWS[:2]},
        {"prefer": "each", "views": VIEWS[2:]},
        {"prefer": "so-far", "views": VIEWS[1:]},
        {"prefer": "each", "views": CLOCK.each()},
        {"prefer": "each", "what": dp.Mean("ms", 0, 5)},
        {"prefer": "each", "what": [dp.Count(), dp.Sum("ms", 0, 5)]},
        {"prefer": "each", "what": dp.People(), "users": dp.Users("who", 5)},
        {"prefer": 3},
    ],
    ids=str,
)
def test_what_cannot_be_preferred_is_said(options: dict[str, Any]) -> None:
    with pytest.raises((ParameterError, ValueError), match="prefer"):
        count(**options)


def test_people_are_protected_in_combined_views_too() -> None:
    users = dp.Users(lambda event: event["who"], 3, per_key=3)
    counting = count(views=VIEWS[:3], users=users, value=lambda event: event)
    assert counting.combined is not None
    norms = [part.engine.counter.l2_sensitivity for part in counting._parts]
    assert norms[1] == pytest.approx(3)
    rows: list[Any] = [("a", {"who": f"p{i % 9}"}, i * SECOND) for i in range(60)]
    released = run(lambda p: p | feed(rows, Any) | counting).releases
    assert len(released) == 48
    assert all(isinstance(r.values["count"], float) for r in released)


# Views that are sums of one

EPSILON = dp.ApproxDP(1.0, 1e-6)


def summed(**options: Any) -> dp.TickCount:
    views = [CLOCK, CLOCK.each(), CLOCK.last(5), CLOCK.restart(6)]
    given = {"budget": EPSILON, "views": views, "keys": ["b", "a"], **options}
    return dp.TickCount(given.pop("budget"), given.pop("views"), **given)


def test_sums_take_the_whole_budget_once() -> None:
    counting = summed()
    (part,) = counting._parts
    assert part.share == 1
    assert part.engine.counter.budget == EPSILON
    alone = dp.TickCount(EPSILON, CLOCK.each(), keys=["a"])
    assert part.engine.counter.noise_variance == alone.counter.noise_variance
    assert counting.epsilon_at(1e-6) == alone.epsilon_at(1e-6) <= 1
    ledger = dp.Ledger(EPSILON)
    whole = summed(budget=ledger.share(1))
    rows = run(lambda p: p | feed(ROWS) | whole).releases
    assert len(rows) == 48
    assert ledger.left == 0
    assert ledger.epsilon_at(1e-6) <= 1 + 1e-9  # rounded up


def test_sums_are_exact_and_the_same_on_every_path() -> None:
    """Each number is the sum of the released ones of its ticks, whichever path they take."""
    import pyarrow as pa

    table = pa.table({"k": [k for k, _, _ in ROWS], "t": [at // SECOND for _, _, at in ROWS]})
    noise = ScriptedEntropy(3)
    frame = summed(entropy=noise).over(table, key="k", time="t").to_pylist()
    found = [("frame", row["key"], row["step"], row["restart"], row) for row in frame]
    for path in ("bounded", "streaming"):
        counting = summed(path=path, entropy=noise)
        for row in run(lambda p, c=counting: p | feed(ROWS) | c).releases:
            columns = dict(row.values)
            for suffix in ("stddevs", "lows", "highs"):
                named = getattr(row, suffix).items()
                columns |= {f"{name}_{suffix[:-1]}": x for name, x in named}
            found.append((path, row.key, row.step, row.restart, columns))
    assert len(found) == 3 * 48
    counter = replace(summed()._parts[0].engine.counter, mechanism=Simple2(24))
    for path, key in itertools.product(("frame", "bounded", "streaming"), "ab"):
        rows = sorted((r for r in found if r[:2] == (path, key)), key=lambda r: r[2])
        each = [row["count_each"] for *_, row in rows]
        for t, (*_, restart, row) in enumerate(rows, 1):
            first = (t - 1) // 6 * 6
            assert restart == first // 6 + 1
            windows = {"count": 0, "count_last_5": max(0, t - 5), "count_restart_6": first}
            for name, begin in {**windows, "count_each": t - 1}.items():
                assert row[name] == sum(each[begin:t])
                assert row[f"{name}_stddev"] == pytest.approx(
                    math.sqrt(counter.variance(t - begin))
                )
                half = dp.half_width(counter, t - begin)
                assert row[f"{name}_low"] == pytest.approx(row[name] - half)
                assert row[f"{name}_high"] == pytest.approx(row[name] + half)
    bounded = {r[1:3]: r[4] for r in found if r[0] == "bounded"}
    for path, key, step, _, row in found:
        if path == "frame":
            same = bounded[key, step]
            assert {name: row[name] for name in same} == same


def test_intervals_of_sums_hold_95_in_100() -> None:
    """By the whole law of a sum of three discrete Laplace draws."""
    views = SummedViews(dp.calibrate(SingleSteps(9), dp.PureDP(1.0)), (1, 3), 9)
    at = np.arange(-60, 61)
    one = np.exp(-np.abs(at) / 1.0)
    one /= one.sum()
    three = np.convolve(np.convolve(one, one), one)
    middle = len(three) // 2
    half = views.half_widths_at(9, 0.95)[1]
    inside = three[middle - int(half) : middle + int(half) + 1].sum()
    assert inside >= 0.95 > inside - 2 * three[middle + int(half)]
    assert views.largest(0.95)[1] == (pytest.approx(views.stddevs_at(9)[1]), half)


LONG = dp.Clock("1h", start=0, ticks=8760)


@pytest.mark.parametrize(
    ("budget", "views", "sums"),
    [
        (EPSILON, [LONG.each(), LONG.last(7)], True),
        (EPSILON, [LONG.each(), LONG.restart(24)], True),
        (EPSILON, [LONG, LONG.each()], False),
        (EPSILON, [CLOCK, CLOCK.each()], True),
        (dp.PureDP(1.0), [CLOCK, CLOCK.each()], True),
        (dp.PureDP(1.0), [LONG, LONG.each()], False),
        (RHO, [CLOCK, CLOCK.each()], False),
        (RHO, [CLOCK, CLOCK.last(5)], False),
        (EPSILON, [LONG.each(), LONG.last(MOST_SUMMED + 1)], False),
    ],
    ids=str,
)
def test_sums_are_taken_where_they_lose_least(budget: Any, views: Any, sums: bool) -> None:
    counting = dp.TickCount(budget, views, keys=["a"])
    assert (len(counting._parts) == 1) == sums
    apart, summable = counting._parts_with(counting._shares_of_combined()), counting._summed_parts()
    if not summable:
        return
    split, together = (counting._stddevs_of(parts) for parts in (apart, summable))
    assert (
        max(together[n] / split[n] for n in split) <= max(split[n] / together[n] for n in split)
    ) == sums


def test_what_is_preferred_decides_between_sums_and_shares() -> None:
    clock = dp.Clock("1d", start=0, ticks=365)
    views = [clock, clock.each()]
    found = {
        prefer: dp.TickCount(EPSILON, views, keys=["a"], prefer=prefer)
        for prefer in (None, "so-far", "each")
    }
    assert {prefer: len(count._parts) for prefer, count in found.items()} == {
        None: 1,
        "so-far": 2,
        "each": 1,
    }
    assert "count_each takes the whole budget, and count is a sum of its releases" in str(
        found[None]
    )


def test_people_are_bounded_by_window_where_a_count_restarts() -> None:
    """So that it is no sum of what each tick counts."""
    users = dp.Users(lambda event: event["who"], 3)
    with_restart = summed(users=users, value=lambda event: event)
    assert len(with_restart._parts) == 4
    views = [CLOCK, CLOCK.each(), CLOCK.last(5)]
    without = summed(users=users, value=lambda event: event, views=views)
    assert len(without._parts) == 1
    assert without._parts[0].engine.counter.l1_sensitivity == 3


def test_alarms_watch_sums_as_they_watch_a_count_with_that_noise() -> None:
    days = dp.Clock("1d", start=0, ticks=24)
    both = dp.TickCount(dp.PureDP(1.0), [days.each(), days.last(5)], keys=["a", "b"])
    assert len(both._parts) == 1
    alone = dp.TickCount(dp.PureDP(1.0), days.last(5), keys=["a", "b"])
    assert isinstance(alone.counter.mechanism, dp.mechanisms.Differences)
    margins = {dp.Alarm(count, 100).threshold for count in (alone,)}
    assert {dp.Alarm(both, 100, column="count_last_5").threshold} == margins
    each = dp.TickCount(dp.PureDP(1.0), days.each(), keys=["a", "b"])
    assert dp.Alarm(both, 100, column="count_each").threshold == dp.Alarm(each, 100).threshold


def test_sums_are_combined_on_their_own_unit() -> None:
    exact = dp.TickCount(
        dp.ZCDP(100), VIEWS[:3], dp.Sum("ms", -3, 5, unit=0.5), keys=["a"], key="k", time="at"
    )
    assert exact.combined is not None
    events = [{"k": "a", "at": i, "ms": (i % 7) / 2} for i in range(240)]
    found = run(lambda p: p | beam.Create(events) | exact).releases
    of_ticks = [sum((i % 7) / 2 for i in range(10 * t, 10 * t + 10)) for t in range(24)]
    for row in found:
        step = row.step
        truth = sum(of_ticks[:step]), of_ticks[step - 1], sum(of_ticks[max(0, step - 5) : step])
        for value, stddev, exactly in zip(
            row.values.values(), row.stddevs.values(), truth, strict=True
        ):
            assert 0 < stddev < 2
            assert abs(value - exactly) < 8 * stddev

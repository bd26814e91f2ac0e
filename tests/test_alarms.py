"""Alarms: the margin against enumeration and simulated months, the delay, and the state machine."""

from __future__ import annotations

import csv
import itertools
import json
import math
import pickle
from dataclasses import replace

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.typehints.row_type import RowTypeConstraint

import beam_dpcount as dp
from beam_dpcount.commands import ticks
from beam_dpcount.counters.alarms import (
    Watch,
    above,
    starts_of,
    ticks_in_days,
    ticks_unseen,
    watched,
    zone_of,
)
from beam_dpcount.dofns.folds import FirstCrossings
from beam_dpcount.dofns.releases import Release
from beam_dpcount.mechanisms import BinaryTree, SmoothBinary
from beam_dpcount.mechanisms.single_steps import SingleSteps
from beam_dpcount.rows import TickCountRows
from beam_dpcount.states.codecs import FoldCodec
from tests import command_lines
from tests.real_data import real_rows
from tests.runners import SECOND, each_runner_and_path, feed, run, stream
from tests.scripted import ScriptedEntropy, SeededNoise
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
    for many, keys, allowed in itertools.product((1, 2, 4), (1, 3), (0.03, 0.4)):
        watch = Watch(counter, grid, many, keys)
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


# The fold, and the transform


def plain(values, threshold: float, level: float) -> list[int]:
    """The steps at which an alarm starts, in plain Python."""
    found, quiet = [], True
    for step, value in enumerate(values, 1):
        if quiet and value > threshold:
            found.append(step)
        quiet = value <= level if not quiet else value <= threshold
    return found


def releases_of(key: str, values) -> list[Release]:
    return [Release(key, t, t * SECOND, float(x), 1.0) for t, x in enumerate(values, 1)]


def folded(fold, releases) -> list[int]:
    codec, data, found = FoldCodec(fold.parameters), None, []
    for release in releases:
        state, given = fold.add(None if data is None else codec.decode(data), release)
        data = None if state is None else codec.encode(state)
        found += [one.step for one in given]
    return found


CROSSINGS = FirstCrossings({"a": (2.0, 4.0)}, "count", 1.0)


def test_the_fold_says_the_same_as_plain_python():
    """Of all series of six small numbers, with a state that goes through bytes at each step."""
    for values in itertools.product((1, 2, 3, 4, 5), repeat=6):
        assert folded(CROSSINGS, releases_of("a", values)) == plain(values, 4.0, 2.0)


def test_releases_that_come_again_or_late_and_other_keys_give_nothing():
    first, second, third = releases_of("a", (9, 1, 9))
    assert folded(CROSSINGS, [first, first, second, first, third, second, third]) == [1, 3]
    assert folded(CROSSINGS, [second, first]) == []
    assert folded(CROSSINGS, releases_of("b", (9, 1, 9))) == []


def test_releases_with_more_noise_than_the_count_are_refused():
    (release,) = releases_of("a", (9,))
    for stddev in (1.01, math.nan):
        with pytest.raises(ValueError, match="apply Alarm to the count's own releases"):
            CROSSINGS.add(None, release._replace(stddev=stddev))


CLOCK = dp.Clock(10, start=0, ticks=12)
BUSY = [("a", None, 1_000_000 * t) for t in [*range(20, 30)] * 30 + [*range(70, 75)] * 60]
QUIET = [("b", None, 1_000_000 * t) for t in range(0, 120, 7)]


@each_runner_and_path
@pytest.mark.parametrize("views", [CLOCK.each(), CLOCK.restart(4), [CLOCK.each(), CLOCK.last(3)]])
def test_alarms_in_pipelines(views, runner, path):
    """A tick of 300 events, and one of 300; the same on both paths, from the same releases."""
    count = dp.TickCount(
        dp.ZCDP(0.5), views, keys=["a", "b"], path=path, entropy=ScriptedEntropy(2)
    )
    columns = count.columns
    alarm = dp.Alarm(count, {"a": 100, "b": 50}, column=columns[-1], path=path)

    def build(pipeline):
        releases = pipeline | feed(BUSY + QUIET) | count
        return releases, releases | alarm

    plain_releases, alarms = run(build, runner).outputs
    expected = []
    for key, level in (("a", 100), ("b", 50)):
        series = [seen.value for seen in plain_releases if seen.value.key == key]
        series.sort(key=lambda release: release.step)
        values = [release.values[columns[-1]] for release in series]
        expected += [series[t - 1] for t in plain(values, alarm.thresholds[key], level)]
    assert [seen.value for seen in alarms] == expected
    # Where a count restarts, the tick ends with the window: its last millisecond.
    assert all(0 <= seen.value.timestamp - seen.micros <= 1000 for seen in alarms)
    assert {release.key for release in expected} == {"a"}
    if views == CLOCK.each():
        assert [release.step for release in expected] == [3, 8]


def test_a_stream_raises_alarms_tick_by_tick():
    count = dp.TickCount(
        dp.ZCDP(0.5), CLOCK.each(), keys=["a", "b"], path="streaming", entropy=ScriptedEntropy(2)
    )
    rows = sorted(BUSY + QUIET, key=lambda row: row[2])
    parts = []
    for tick in range(12):
        parts += [row for row in rows if row[2] // (10 * SECOND) == tick]
        parts.append(10 * (tick + 1))
    alarm = dp.Alarm(count, 100)
    found = run(lambda p: p | stream(*parts) | count | alarm, "bundles", ["--streaming"]).releases
    assert [(release.key, release.step) for release in found] == [("a", 3), ("a", 8)]


# What is refused, and what is shown


def counts(what=None, views=EACH, **options) -> dp.TickCount:
    given = {"keys": ["a", "b"], **options}
    return dp.TickCount(dp.ZCDP(0.1), views, *([] if what is None else [what]), **given)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: dp.Alarm(counts(keys=dp.SelectKeys(delta=1e-7), views=HOURS), 1),
            "chosen for high noise",
        ),
        (lambda: dp.Alarm(counts(dp.Mean("ms", 0, 5)), 1), "Count, a Sum or People"),
        (
            lambda: dp.Alarm(counts([dp.Count(), dp.Mean("ms", 0, 5)]), 1, column="count_each"),
            "a TickCount of its own, with a share of a Ledger",
        ),
        (lambda: dp.Alarm(counts(views=[EACH, LAST]), 1), "column is needed"),
        (
            lambda: dp.Alarm(counts(views=[HOURS, EACH]), 1, column="count_each"),
            "'count_each' is computed from several releases, and has no exact tail",
        ),
        (lambda: dp.Alarm(counts(), 1, column="count"), "did you mean count_each"),
        (lambda: dp.Alarm(counts(), {"c": 1}), "not one of keys"),
        (lambda: dp.Alarm(counts(), {}), "level is empty"),
        (lambda: dp.Alarm(counts(), math.inf), "level must be finite"),
        (lambda: dp.Alarm(counts(), "1"), "level must be a number"),
        (lambda: dp.Alarm(counts(), 1, false_alarms=0), "false_alarms must be positive"),
        (lambda: dp.Alarm(counts(), 1, days=-1), "days must be positive"),
        (lambda: dp.Alarm(counts(), 1, path="fast"), "path must be"),
        (lambda: dp.Alarm(dp.PrefixCount(dp.ZCDP(1), 10), 1), "must be the TickCount"),
        (
            lambda: dp.Alarm(dp.post.SlidingSum(2, counts(views=HOURS).counter), 1),
            "give the TickCount itself",
        ),
    ],
)
def test_refusals(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()


@pytest.mark.parametrize(
    "smooth", [lambda c: dp.post.NonNegative(), lambda c: dp.post.Isotonic(c.counter)]
)
def test_smoothed_numbers_are_refused_by_name(smooth):
    count = counts(views=HOURS)
    post = smooth(count)
    pipeline = beam.Pipeline()
    releases = pipeline | beam.Create([], reshuffle=False).with_output_types(tuple[str, int])
    with pytest.raises(ValueError, match=f"{type(post).__name__} gives numbers .* own releases"):
        _ = releases | count | "Smooth" >> post | dp.Alarm(count, 1)
    with pytest.raises(ValueError, match=type(post).__name__):  # also further along
        _ = (
            releases
            | "Count" >> count
            | "Post" >> post
            | "Same" >> Same()
            | "Second" >> dp.Alarm(count, 1)
        )


class Same(beam.PTransform):
    def expand(self, pcoll):
        return pcoll | beam.Map(lambda release: release).with_output_types(Release)


def test_levels_by_key_leave_other_keys_out_of_the_sum():
    count = counts(keys=[str(i) for i in range(100)])
    some, every = dp.Alarm(count, {"3": 10, "7": 20}), dp.Alarm(count, 10)
    assert some.margin < every.margin
    assert some.threshold == {"3": 10 + some.margin, "7": 20 + some.margin}
    assert every.threshold == 10 + every.margin
    assert every.expected <= 1
    assert some.margin == dp.Alarm(counts(), 5).margin


def test_people_and_totals_are_watched_too():
    users = dp.Users("user", events=3)
    options = {"users": users, "keys": dp.TOTAL, "time": "at"}
    for what, view in ((dp.People(), LAST), (dp.People(), EACH), (dp.Sum("ms", 0, 5), DAYS)):
        count = counts(what, view, **options)
        alarm = dp.Alarm(count, 10)
        assert 2 < alarm.margin / math.sqrt(count.counter.max_variance()) < 6
        assert list(alarm.thresholds) == ["all"]


def test_an_alarm_holds_on_either_path():
    """Until it is known which path the count takes, the larger margin of both."""
    auto, known = counts(views=HOURS), counts(views=HOURS, path="streaming")
    assert dp.Alarm(auto, 1).margin >= dp.Alarm(known, 1).margin - 1e-9


def test_what_is_shown():
    alarm = dp.Alarm(counts(views=LAST), 100, false_alarms=0.5, days=7)
    text = repr(alarm)
    assert f"above {alarm.threshold:.10g}" in text
    assert "at most 0.5 expected in 7 days, of 336 releases in all" in text
    assert "silent" in alarm.describe()["ends"]
    with pytest.raises(AttributeError, match="level of Alarm is fixed"):
        alarm.level = 3
    assert pickle.loads(pickle.dumps(alarm)).threshold == alarm.threshold
    delay = alarm.delay(2 * alarm.margin)
    assert delay.ticks == 13
    assert delay.seen > 0.99
    assert "expected at tick 13" in repr(delay)
    assert alarm.delay(1).ticks is None


# A doubling of real data


@pytest.mark.long
def test_the_delay_to_a_doubling_of_a_real_log():
    """Lines of a week, daily: from some day on each counts twice. The level: the most of 4 weeks.

    Without privacy an alarm starts above the level; here above the threshold, moved by noise.
    """
    seconds = np.sort([int(row["Timestamp"]) for row in real_rows("bgl_2k.csv")])
    daily = np.bincount((seconds - seconds[0]) // 86_400)
    week, weeks = 7, 28
    days = dp.Clock("1d", start=0, ticks=weeks)
    watch = watch_of(days.last(week), keys=("all",))
    margin, noise = watch.margin(1.0), noise_of(watch, 400, 7)
    sums = np.convolve(daily, np.ones(week, dtype=int))[: len(daily)]
    exact, private, noisy = [], [], []
    for day in range(2 * weeks, len(daily) - weeks, 3):
        level = float(sums[day - weeks : day].max())
        doubled = daily.copy()
        doubled[day:] *= 2
        after = np.convolve(doubled, np.ones(week, dtype=int))[day : day + weeks]
        exact.append(first(after > level))
        private.append(first(after > level + margin))
        seen = after[:, None] + noise[:weeks] > level + margin
        noisy.append(np.median([first(column) for column in seen.T]))
    told = {
        name: np.median(delays)
        for name, delays in zip(("exact", "private", "noisy"), (exact, private, noisy), strict=True)
    }
    seen = {
        name: np.mean(np.array(delays) <= weeks)
        for name, delays in zip(told, (exact, private, noisy), strict=True)
    }
    print(f"margin {margin:.1f}: median days to an alarm {told}, seen within {weeks} days {seen}")
    assert all(a <= b for a, b in zip(exact, private, strict=True))
    # What is expected without noise is what noise does in the middle, but for two days.
    assert np.mean(np.abs(np.array(private) - noisy) <= 2) > 0.8


def first(crosses: np.ndarray) -> int:
    """The first tick, from 1, at which it holds; one more than there are if none."""
    return int(np.argmax(crosses)) + 1 if crosses.any() else len(crosses) + 1


# The column of alarms in a file


def test_columns_of_zones_say_what_the_fold_says():
    """Of keys in a row, among them short ones."""
    rng = np.random.default_rng(4)
    for lengths in itertools.product((1, 2, 7), repeat=3):
        series = [rng.integers(0, 6, n) for n in lengths]
        keys = np.repeat(np.arange(3), lengths)
        zones = np.array([zone_of(float(x), 2.0, 4.0) for xs in series for x in xs])
        expected = []
        for xs in series:
            starts = plain(xs, 4.0, 2.0)
            expected += [t in starts for t in range(1, len(xs) + 1)]
        assert starts_of(zones, keys).tolist() == expected
    assert starts_of(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)).tolist() == []
    assert zone_of(None, 2.0, 4.0) == 1


def log_of(path, busy=(5, 6, 20)):
    lines = ["at,page"]
    for hour in range(24):
        lines += [f"{3600 * hour + i},/a" for i in range(300 if hour in busy else 20)]
        lines.append(f"{3600 * hour},/b")
    path.write_text("\n".join(lines) + "\n")


def words(path, *more):
    return [
        *("--input", path / "log.csv", "--key", "page", "--keys", "/b", "/a", "--timestamp", "at"),
        *("--tick", "1h", "--start", 0, "--horizon", 24, "--view", "each", "--epsilon", "1"),
        *("--delta", "1e-6", "--output", path / "out.csv", *more),
    ]


succeed, _, fail = command_lines.of(ticks.main)


@pytest.mark.parametrize("lane", [(), ("--runner", "FnApiRunner")], ids=["columns", "rows"])
def test_a_command_writes_where_alarms_start(lane, tmp_path):
    log_of(tmp_path / "log.csv")
    succeed(*words(tmp_path, "--alarm", "100,0.5,7", *lane))
    with (tmp_path / "out.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0])[-1] == "count_each_alarm"
    starts = [(row["key"], row["step"]) for row in rows if row["count_each_alarm"] == "1"]
    assert starts == [("/a", "6"), ("/a", "21")]
    assert {row["count_each_alarm"] for row in rows} == {"0", "1"}
    about = json.loads((tmp_path / "out.csv.manifest.json").read_text())
    text = json.dumps(about)
    assert "alarm, threshold: above 10" in text
    assert "1 where an alarm of count_each starts, else 0" in text


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--alarm", "x"), "argument --alarm: must be LEVEL"),
        (("--alarm", "1,2,3,4"), "argument --alarm: must be LEVEL"),
        (("--alarm", "1,0"), "argument --alarm: must be LEVEL"),
        (("--alarm", "inf"), "argument --alarm: must be LEVEL"),
        (("--metric", "mean(at, 0, 5)", "--alarm", "5"), "--alarm: column 'mean_at_each'"),
    ],
)
def test_a_command_refuses_an_alarm_by_name(more, message, tmp_path):
    log_of(tmp_path / "log.csv")
    assert message in fail(*words(tmp_path, *more))
    assert not (tmp_path / "out.csv").exists()


@each_runner_and_path
def test_rows_of_yaml_say_where_alarms_start(runner, path):
    """All rows come out; the field is true where the alarm of the same releases starts."""
    count = TickCountRows(
        *("page",),
        **{"tick": 10, "start": 0, "horizon": 12, "keys": ["a", "b"], "rho": 0.5, "path": path},
        **{"view": "each", "alarm": "100,1,30"},
    )
    events = [(key, beam.Row(page=key), micros) for key, _, micros in BUSY + QUIET]

    def build(pipeline):
        rows = pipeline | feed(events) | beam.Map(lambda pair: pair[1]).with_output_types(PAGE)
        cells = beam.Map(lambda row: (row.key, row.step, row.count_each_alarm))
        return (rows | count | cells,)

    (output,) = run(build, runner).outputs
    rows = [seen.value for seen in output]
    assert [row[:2] for row in rows] == [(key, t) for key in "ab" for t in range(1, 13)]
    assert [row for row in rows if row[2]] == [("a", 3, True), ("a", 8, True)]


PAGE = RowTypeConstraint.from_fields([("page", str)])


def test_rows_refuse_an_alarm_of_selected_keys():
    with pytest.raises(ValueError, match="list the keys to watch"):
        TickCountRows(
            "page", tick=10, start=0, horizon=12, select_keys=True, epsilon=1, delta=1e-6, alarm=5
        )

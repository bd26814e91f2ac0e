"""Person-periods in every door: whose events count, the unit in every sentence, ledgers."""

from __future__ import annotations

import json
import pickle
import re
from datetime import datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import apache_beam as beam
import pytest
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.window import FixedWindows

import beam_dpcount as dp
from beam_dpcount.budget.account import AccountError
from beam_dpcount.budget.conversions import zcdp_epsilon
from beam_dpcount.commands import account, bounds, ticks
from beam_dpcount.counters.people import remaining
from beam_dpcount.counters.periods import periods_of
from beam_dpcount.plans.ticks import NEEDS_EVENTS
from beam_dpcount.rows import TickCountRows
from beam_dpcount.transforms.elements import NO_PERIODS
from beam_dpcount.transforms.users import NO_SHARED_PERIODS
from tests.command_lines import EXACT, command
from tests.people import EXACT as NO_NOISE
from tests.runners import feed, run

PARIS = ZoneInfo("Europe/Paris")
UNIT = "one person's events of any one day"
HOURS = dp.Clock("1h", start="2026-03-27", ticks=96, zone="Europe/Paris")  # 29 March has 23 hours
DAILY = dp.Users("user", events=2, per="1d")


def hourly(hours: int, user: str = "ann") -> list[dict[str, Any]]:
    """An event of a person in every hour from the start of the clock on."""
    first = datetime(2026, 3, 27, tzinfo=PARIS).timestamp()
    return [{"user": user, "at": first + 3600 * i} for i in range(hours)]


def test_days_are_local_days() -> None:
    """Of an event in each hour the first two of each local day count: at hours 0, 24, 48 and 71."""
    grid = periods_of(HOURS, "1d").grid
    assert (periods_of(HOURS, "1d").shortest, periods_of(HOURS, "1d").longest) == (23, 24)
    assert [grid.steps_of(origin) for origin in grid.origins()] == [24, 24, 23, 24, 24]
    starts = [0, 24, 48, 71, 95]
    expected = [sum(hour in (s, s + 1) for s in starts) for hour in range(96)]
    count = dp.TickCount(NO_NOISE, HOURS.each(), keys=dp.TOTAL, users=DAILY, time="at")
    with beam.Pipeline("FnApiRunner") as pipeline:
        made = pipeline | beam.Create(hourly(96)) | count
        seen = made | beam.Map(lambda r: (r.step, round(r.value)))
        assert_that(seen, equal_to(list(enumerate(expected, 1))))


def test_what_a_clock_may_have_as_periods() -> None:
    for per in ("7h", "1w", 97):
        clock = dp.Clock("2h", start=0, ticks=20) if per == "7h" else HOURS
        users = dp.Users("u", 1, per=per)
        with pytest.raises(ValueError, match=r"per= .* does not fit the clock"):
            dp.TickCount(dp.ZCDP(1), clock, keys=dp.TOTAL, users=users)
    for per in (0, "0d", "x", True):
        with pytest.raises((ValueError, TypeError), match="per must be"):
            dp.Users("u", 1, per=per)
    assert str(dp.Users("u", 2, per=timedelta(hours=6))).endswith("2 keys, 2 a key")


def test_periods_are_refused_where_there_is_no_clock() -> None:
    users = dp.Users("u", 1, per="1d")
    with pytest.raises(ValueError, match=NO_PERIODS[0]):
        dp.PrefixCount(dp.ZCDP(1), 10, users=users, value=lambda e: 1)
    with pytest.raises(ValueError, match="periods is of people"):
        dp.TickCount(dp.ZCDP(1), HOURS, keys=["a"]).epsilon_at(periods=2)


@pytest.mark.parametrize("path", ["bounded", "streaming"])
def test_several_counts_may_share_a_bound_by_period(path: str) -> None:
    """With ticks of their own: of three events of a person in an hour two count, every day."""
    days = dp.Clock("1d", start="2026-03-27", ticks=4, zone="Europe/Paris")
    hours = dp.Clock("1h", start="2026-03-27", stop=days.grid.stop // 10**6, zone="Europe/Paris")
    ledger = dp.Ledger(dp.ZCDP(2e12))
    bound = dp.BoundUsers(
        DAILY,
        {
            "days": dp.TickCount(ledger.share(0.5, "d"), days.each(), keys=["a"], path=path),
            "hours": dp.TickCount(ledger.share(0.5, "h"), hours, keys=["a", "b"], path=path),
        },
    )
    noon = [(days.end_of(n) // 10**6) + 12 * 3600 for n in range(4)]
    rows = [("a", {"user": "ann"}, at * 10**6) for at in noon for _ in range(3)]
    by_day, by_hour = run(lambda p: tuple((p | feed(rows) | bound).values())).outputs
    assert [round(seen.value.value) for seen in by_day] == [2, 2, 2, 2]
    found = [seen.value for seen in by_hour if seen.value.step == hours.grid.steps]
    assert [(one.key, round(one.value)) for one in found] == [("a", 8), ("b", 0)]
    assert UNIT in str(ledger).replace(" in Europe/Paris", "")
    assert ledger.epsilon_at(unit="period", periods=2) > ledger.epsilon_at(unit="period")
    alone = dp.TickCount(dp.ZCDP(1e12), hours, keys=["a", "b"], users=DAILY, time="at")
    assert bound.counters["hours"].l2_sensitivity == alone.counter.l2_sensitivity


def test_what_shares_no_bound_by_period() -> None:
    other = dp.Clock("1h", start="2026-03-28", ticks=96, zone="Europe/Paris")
    counts = {"a": dp.TickCount(dp.ZCDP(1), HOURS, keys=["a"])}
    mine = dp.TickCount(dp.ZCDP(1), HOURS, dp.People(), keys=["a"], users=dp.Users("user", 2))
    with pytest.raises(ValueError, match=re.escape(NO_SHARED_PERIODS[0])):
        dp.BoundUsers(DAILY, {**counts, "b": dp.TickCount(dp.ZCDP(1), other, keys=["a"])})
    with pytest.raises(ValueError, match=re.escape(NO_SHARED_PERIODS[0])):
        dp.BoundUsers(DAILY, {**counts, "people": mine})
    daily = dp.TickCount(dp.ZCDP(1), HOURS.each(), dp.People(), keys=["a"], users=DAILY)
    with pytest.raises(ValueError, match=re.escape(NO_SHARED_PERIODS[0])):
        dp.BoundUsers(dp.Users("user", 2), {**counts, "people": daily})
    dp.BoundUsers(DAILY, {**counts, "people": daily})
    pipeline = beam.Pipeline()
    events = pipeline | beam.Create([]) | beam.Map(print).with_output_types(tuple[str, Any])
    windows = events | beam.WindowInto(FixedWindows(86_400))
    with pytest.raises(ValueError, match="per bounds people anew in periods of a clock"):
        _ = windows | dp.BoundUsers(DAILY, counts)


@pytest.mark.parametrize(
    ("view", "ok"),
    [
        (HOURS.each(), True),
        (HOURS.restart("1d"), True),
        (dp.Clock("1h", start=0, ticks=96).restart(6), True),
        (HOURS.restart(6), False),  # one of them lies in two days, once clocks are changed
        (HOURS, False),
        (HOURS.restart("2d"), False),
        (HOURS.last(24), True),
    ],
    ids=lambda x: getattr(x, "name", ""),
)
def test_people_count_once_a_period(view: Any, ok: bool) -> None:
    """Views of several periods would count someone once in each."""

    def made() -> dp.TickCount:
        return dp.TickCount(dp.ZCDP(1), view, dp.People(), keys=dp.TOTAL, users=DAILY)

    if ok:
        assert UNIT in str(made()).replace(" in Europe/Paris", "")
    else:
        with pytest.raises(ValueError, match="per makes People count a person once a period"):
            made()


def test_a_restart_within_a_period_is_one_counter() -> None:
    """People of the day so far: someone is in one window, and in one key."""
    count = dp.TickCount(
        dp.ZCDP(1), HOURS.restart("1d"), dp.People(), keys=dp.TOTAL, users=DAILY, mechanism="BLT"
    )
    column = float(count.counter.mechanism.l2_sensitivity_squared) ** 0.5
    assert count.counter.l2_sensitivity == pytest.approx(column, rel=1e-3)


def test_every_sentence_names_the_unit() -> None:
    ledger = dp.Ledger(dp.ApproxDP(1.0, 1e-6))
    count = dp.TickCount(
        ledger.rest("visits"), HOURS, keys=["a"], key="page", time="at", users=DAILY
    )
    with beam.Pipeline() as pipeline:
        _ = pipeline | beam.Create([{"page": "a", **row} for row in hourly(3)]) | count
    unit = f"{UNIT} in Europe/Paris"
    texts = [str(count), json.dumps(count.display_data()), str(count.counter.change), str(ledger)]
    for text in texts:
        assert unit in text.replace("any one person's", "one person's"), text
        assert "one person with" not in text
    assert "together: of one person 1 day: epsilon 1; all 5 days: epsilon 4.56" in str(count)


def claimed(**users: dp.Users) -> dp.Ledger:
    """A ledger with a tenth for each of these counts."""
    ledger = dp.Ledger(dp.ZCDP(1.0))
    with beam.Pipeline() as pipeline:
        rows = pipeline | beam.Create([{"page": "a", **row} for row in hourly(2)])
        for name, whom in users.items():
            share = ledger.share(0.1, name)
            count = dp.TickCount(
                share, HOURS, keys=["a"], key="page", time="at", users=whom, mechanism="BinaryTree"
            )
            _ = rows | name >> count
    return ledger


def test_what_enters_a_ledger_of_person_days() -> None:
    """Its own periods once, parts of them as several, all else on people as two changes."""
    whole = dp.Users("user", events=2)
    ledger = claimed(
        days=DAILY,
        hours=dp.Users("user", 2, per=12),
        stream=whole,
        weeks=dp.Users("user", 2, per="2d"),
    )
    unit = ledger.standing.units[0]
    costs = {
        share.name: Fraction(share.protects.budget_of(share.budget, unit, 1).rho)  # type: ignore
        / Fraction(share.budget.rho)  # type: ignore[union-attr]
        for share in ledger.shares
    }
    assert costs["days"] == pytest.approx(1)
    assert costs["stream"] == pytest.approx(2)
    assert costs["weeks"] == pytest.approx(2)
    # Twelve hours from midnight on: in a day of 23 hours three of them, not all in it.
    assert costs["hours"] > 4
    assert ledger.epsilon_at() == ledger.epsilon_at(unit="period") > 0
    assert ledger.epsilon_at(periods=3) > 2 * ledger.epsilon_at()
    with pytest.raises(ValueError, match="protect one period of a person: days"):
        ledger.epsilon_at(unit="person")
    with pytest.raises(ValueError, match="of claimed shares only"):
        ledger.epsilon_at(periods=3, claimed=False)
    revived = pickle.loads(pickle.dumps(ledger))
    assert revived.epsilon_at(periods=2) == ledger.epsilon_at(periods=2)


@pytest.mark.parametrize("whom", [None, dp.Users("user", 2, asserted=True)], ids=str)
def test_what_is_refused_in_a_ledger_of_person_days(whom: dp.Users | None) -> None:
    ledger = claimed(days=DAILY, other=whom)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="nothing holds for one person's events of any one day"):
        ledger.epsilon_at(unit="period")
    assert "by days" in str(ledger)


# Commands, rows and YAML


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.csv"
    rows = [(60 * i, "ann", "a") for i in range(12)] + [(5, "bob", "a"), (8, "", "a")]
    path.write_text("\n".join(["time,who,page", *(",".join(map(str, row)) for row in rows)]))
    return path


def words(log: Path, *more: object) -> list[object]:
    return [
        *("--input", log, "--key", "page", "--keys", "a", "--timestamp", "time", "--tick", "1m"),
        *("--start", 0, "--horizon", 12, "--user", "who", *more),
    ]


def test_commands_count_by_period_and_say_so(log: Path) -> None:
    out = log.parent / "out.csv"
    how = ("--per-user", 1, "--per", "4m", "--output", out)
    ended = command(*words(log, *how, *EXACT), main=ticks.main)
    assert ended.status == 0, ended.err
    values = [float(line.split(",")[4]) for line in out.read_text().splitlines()[1:]]
    assert values == [2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4]
    said = ended.out + (log.parent / "out.csv.manifest.json").read_text()
    assert "one person's rows of any one period of 4m, not for a person with all rows" in said
    assert "the budget is for one period of 4m of a person: of one person 1 period" in said
    dry = command(*words(log, *how, "--epsilon", 1, "--delta", 1e-6, "--dry-run"), main=ticks.main)
    assert "one person's rows of any one period of 4m" in dry.out
    plain = command(*words(log, *how[:2], *how[4:], *EXACT), main=ticks.main)
    assert "3% of the rows of the first month count, 0% of the third" in plain.out


def test_an_account_of_a_person_refuses_periods(log: Path) -> None:
    """And one of rows charges two changes, as for any bound on people."""
    path, out = log.parent / "spending.jsonl", log.parent / "out.csv"
    total = ("--epsilon", 10, "--delta", 1e-4)
    assert command(path, "--create", *total, "--user", "who", main=account.main).status == 0
    how = ("--per-user", 1, "--per", "4m", "--output", out, "--account", path)
    budget = ("--epsilon", 1, "--delta", 1e-6)
    ended = command(*words(log, *how, *budget), main=ticks.main)
    assert ended.status != 0
    assert "with all rows, and this run is for one person's rows of any one period" in ended.err
    with pytest.raises(AccountError, match="nothing would follow for that: take an account"):
        _claim_in(path)


def _claim_in(path: Path) -> None:
    ledger = dp.Ledger(dp.ApproxDP(1.0, 1e-6), account=path)
    count = dp.TickCount(ledger.rest(), HOURS, keys=["a"], key="page", time="at", users=DAILY)
    pipeline = beam.Pipeline()
    _ = pipeline | beam.Create([{"page": "a", "at": 0, "user": "u"}]) | count


def test_bounds_compare_periods(log: Path) -> None:
    how = ("--per-user", 1, "--per", "none", "4m", "--epsilon", 1, "--delta", 1e-6)
    ended = command(*words(log, *how), main=bounds.main, verbose=False)
    assert ended.status == 0, ended.err
    first, *_ = [line for line in ended.out.splitlines() if line.strip().startswith("1 ")]
    assert "4m" in first
    assert "month 12" in ended.out
    assert "--per-user 1 --per-key 1 --per 4m" in ended.out


def test_rows_take_periods() -> None:
    given = {"tick": "1h", "start": "2026-03-27", "horizon": 96, "zone": "Europe/Paris"}
    count = TickCountRows(
        **given, timestamp="at", user="user", per_user=2, per="1d", epsilon=1, delta="1e-6"
    )
    assert UNIT in str(count).replace("any one person's", "one person's")
    with pytest.raises(ValueError, match="per needs user"):
        TickCountRows(**given, timestamp="at", per="1d", epsilon=1)


@pytest.mark.parametrize(
    ("how", "unit"),
    [
        (("--changes", 4), "at most 4 changes of a person's activity"),
        (("--per", "4m", "--max-keys", 1), "one person's rows (who) of any one period of 4m"),
    ],
)
def test_commands_count_active_people(how: tuple[object, ...], unit: str, log: Path) -> None:
    """Ann in all ticks, Bob in the first, and for two more."""
    out = log.parent / "out.csv"
    more = ("--metric", "people", "--view", "last 3", *how, "--output", out, "--rho", 1e12)
    ended = command(*words(log, *more), main=ticks.main)
    assert ended.status == 0, ended.err
    rows = [line.split(",") for line in out.read_text().splitlines()]
    place = rows[0].index("people_last_3")
    assert [round(float(row[place])) for row in rows[1:]] == [2, 2, 2, *[1] * 9]
    ended = command(*words(log, *more), main=ticks.main, verbose=False)
    assert unit in ended.out
    refused = command(*words(log, *how, "--output", out, *EXACT), main=ticks.main)
    assert refused.status != 0
    assert "is needed: only people" in refused.err


def test_what_is_refused_of_people_without_a_cap_on_events() -> None:
    clock = dp.Clock("1d", start=0, ticks=30)
    users = dp.Users("u", changes=4)
    for what, view in ((dp.Count(), clock.each()), (dp.People(), clock)):
        with pytest.raises(ValueError, match=re.escape(NEEDS_EVENTS[0])):
            dp.TickCount(dp.ZCDP(1), view, what, keys=dp.TOTAL, users=users)
    with pytest.raises(ValueError, match="max_per_tick would clip changes of activity"):
        dp.TickCount(
            *(dp.ZCDP(1), clock.last(7), dp.People()), keys=["a"], users=users, max_per_tick=9
        )
    for wrong in ({"changes": 3}, {"changes": 4, "events": 2}, {"changes": 4, "per": "1d"}, {}):
        with pytest.raises(
            (ValueError, TypeError), match=r"changes (must be even|caps)|events must"
        ):
            dp.Users("u", **wrong)  # type: ignore[arg-type]


# What a bound over the whole stream leaves


def test_what_still_counts_of_people_who_come_back() -> None:
    assert remaining(5, 1, 30) == pytest.approx(5 / 30)
    assert remaining(5, 1, 90) == remaining(5, 1, 360) == 0
    assert remaining(100, 1, 90) == 1
    assert remaining(100, 1, 120) == pytest.approx(10 / 30)


def test_suggested_bounds_show_how_months_fade() -> None:
    days = dp.Clock("1d", start=0, ticks=360)
    count = dp.TickCount(dp.ApproxDP(1.0, 1e-6), days, keys=["a"])
    rows = [(f"u{i}", "a", 86_400 * day) for i in range(20) for day in range(0, 360, 7)]
    found = dp.suggest_bounds(rows, count, events=[5], per_key=[None], per=[None, "1d"])
    daily, stream = found.rows
    assert (daily.users.per, stream.users.per) == ("1d", None)
    assert daily.months == (1, 1, 1)
    assert stream.months == (1, 0, 0)
    assert daily.stddev == stream.stddev


@pytest.mark.parametrize("second", [("2026-01-31", 28, "28d"), ("2026-01-29", 28, "4d")], ids=str)
def test_periods_that_run_past_the_last_day_are_two_changes(second: tuple[str, int, str]) -> None:
    """The last day ends amid one of them, so that other events of it may count in its place."""
    start, ticks, per = second
    ledger, pipeline = dp.Ledger(dp.ZCDP(0.2)), beam.Pipeline()
    empty = pipeline | beam.Create([]).with_output_types(tuple[str, Any])
    days = dp.Clock("1d", start="2026-01-01", ticks=31, zone="UTC")
    more = dp.Clock("1d", start=start, ticks=ticks, zone="UTC")
    for share, clock, length in ((ledger.share(0.1), days, "1d"), (ledger.rest(), more, per)):
        users = dp.Users("u", 1, per=length)
        _ = empty | per + length >> dp.TickCount(share, clock, keys=["k"], users=users)
    day = ledger.epsilon_at(1e-6, unit="period")
    assert day >= zcdp_epsilon(0.1 + 2 * 0.1, 1e-6) * (1 - 1e-9)
    ours, theirs = periods_of(days, "1d"), periods_of(more, per)
    assert not ours.starts_in(theirs)
    whole = dp.Clock("1d", start="2026-01-01", ticks=32, zone="UTC")
    assert periods_of(whole, "1d").starts_in(periods_of(days, "1d"))

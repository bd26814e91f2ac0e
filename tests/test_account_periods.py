"""Accounts for one person's rows of a period: what enters, what it costs, and what that rests on.

The rule is that of a ledger, `Protection.reach`. It is audited here for every list of a person's
events: an account's period is taken away, and each run counts by a bound of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import apache_beam as beam
import pytest

import beam_dpcount as dp
from beam_dpcount.budget.account import Account, AccountError
from beam_dpcount.budget.account_file import create, read_account
from beam_dpcount.budget.account_text import NO_GUARANTEE, holds, statement
from beam_dpcount.budget.charges import Charge
from beam_dpcount.budget.conversions import float_up, zcdp_epsilon
from beam_dpcount.budget.spender import Protection, Reach, Unknown
from beam_dpcount.commands import account as printing
from beam_dpcount.commands import count, ticks
from beam_dpcount.counters.people import Users
from beam_dpcount.counters.periods import account_periods, periods_of
from tests.audit.exact import keeps_budget
from tests.command_lines import command, fail, succeed
from tests.person_audit import RHO, TICK, by, lists, universe
from tests.person_periods import count_of, differences, sums_of

PURE, BOTH = dp.PureDP(1.0), dp.ApproxDP(1.0, 1e-6)
HOURS = dp.Clock("1h", start="2026-03-27T00:00:00Z", ticks=96)
PARIS = dp.Clock("1h", start="2026-03-27", ticks=96, zone="Europe/Paris")
DAYS = account_periods("1d", "at")
UNIT = "one person's rows of any one day"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "spending.jsonl"


def made(file: Path, budget: Any = BOTH, periods: Any = DAYS) -> Account:
    if isinstance(budget, dp.ApproxDP):
        budget = dp.ApproxDP(30 * budget.epsilon, 1e-3)
    return create(str(file), budget, "user", periods)


def counted(budget: Any, users: Any, clock: Any = HOURS, **more: Any) -> dp.TickCount:
    given: dict[str, Any] = {"keys": ["a"], "key": "page", "time": "at", "users": users, **more}
    return dp.TickCount(budget, clock, **given)


def apply(*counts: Any) -> None:
    """Applies each in one pipeline that is never run."""
    pipeline = beam.Pipeline()
    events = pipeline | beam.Create([]) | beam.Map(print).with_output_types(dict[str, Any])
    for number, each in enumerate(counts):
        _ = events | f"C{number}" >> each


def daily(events: int = 2, per: Any = "1d", **more: Any) -> Users:
    return Users("user", events, per=per, **more)


def spent(file: Path, several: str = "") -> Charge:
    account = read_account(str(file))
    found = account.spent_on(several) if several else account.spent
    assert found is not None
    return found


# The rule, exactly

EVENTS = universe(["a", "b"], [0, 1, 2, 3], [1])
OTHERS = {
    "its own": ({"per": 2}, 0, False),
    "halves": ({"per": 1}, 0, True),
    "others": ({"per": 3}, 0, True),
    "twice as long": ({"per": 4}, 0, True),
    "an offset": ({"per": 2}, 1, True),
    "the whole stream": ({}, 0, True),
    "people": ({"per": 3, "per_key": 1}, 0, True),
}


def unit_from(offset: int) -> Any:
    """Periods of two ticks, one of which begins so many ticks after 1970."""
    return account_periods(f"{2 * TICK}s", "at", start=offset * TICK)


def neighbours(counting: Any, offset: int) -> Iterator[Any]:
    """All pairs of sums of lists of a person's events that differ in one period of the account."""
    known: dict[Any, Any] = {}

    def summed(events: Any) -> Any:
        key = tuple(events)
        if key not in known:
            known[key] = sums_of(counting, events)
        return known[key]

    for chosen in lists(EVENTS, 4, False):
        for period in {(event[2] - offset) // 2 for event in chosen}:
            rest = [event for event in chosen if (event[2] - offset) // 2 != period]
            yield summed(chosen), summed(rest)


@pytest.mark.parametrize("name", OTHERS)
def test_a_period_of_the_account_costs_at_most_what_is_charged(name: str, file: Path) -> None:
    how, offset, more = OTHERS[name]
    counting = count_of(dp.Users(by, 2, **how))
    account = made(file, dp.ZCDP(9.0), unit_from(offset))
    spender = counting.spender(counting.counter, "here")
    (charge, replaced), why = spender.charges(RHO, 0.0, account)
    found = differences(counting, neighbours(counting, offset))
    assert found

    def kept(rho: float) -> bool:
        law = counting.counter.law
        return keeps_budget(SimpleNamespace(law=law, budget=dp.ZCDP(rho)), found)  # type: ignore

    assert kept(float_up(charge.rho))
    assert kept(RHO.rho) is not more  # charged once, it would be too little
    assert bool(why) is more
    assert replaced.rho == 4 * charge.rho or not more


@pytest.mark.parametrize("name", ["others", "the whole stream"])
def test_two_changes_cost_two_epsilon(name: str, file: Path) -> None:
    """With Laplace noise, charged by epsilon; and less is too little."""
    how, offset, _ = OTHERS[name]
    counting = count_of(dp.Users(by, 2, **how), PURE)
    account = made(file, dp.PureDP(50.0), unit_from(offset))
    (charge, _), _ = counting.spender(counting.counter, "here").charges(PURE, 0.0, account)
    found = differences(counting, neighbours(counting, offset))
    for budget, keeps in ((dp.PureDP(float(charge.epsilon)), True), (PURE, False)):
        audited: Any = SimpleNamespace(law=counting.counter.law, budget=budget)
        assert keeps_budget(audited, found) is keeps


def test_several_periods_of_the_account_cost_at_most_what_is_charged(file: Path) -> None:
    """Two periods of two ticks, where a run has periods of three."""
    counting = count_of(dp.Users(by, 1, per=3), keys=("a",))
    account = made(file, dp.ZCDP(99.0), unit_from(0))
    protects = counting.spender(counting.counter, "here").protects
    every = protects.several(RHO, 0.0, account)["all"]
    events = universe(["a"], [0, 1, 2, 3], [1])
    sums = {key: sums_of(counting, key) for key in map(tuple, lists(events, 4, False))}
    pairs = [
        (sums[chosen], sums[tuple(e for e in chosen if e[2] // 2 not in gone)])
        for chosen in sums
        for gone in ((0,), (1,), (0, 1))
    ]
    found = differences(counting, pairs)
    budget = dp.ZCDP(float_up(every.presence.rho))
    audited: Any = SimpleNamespace(law=counting.counter.law, budget=budget)
    assert keeps_budget(audited, found)


# Which periods meet which


def reach(users: Any, clock: Any, own: Any, path: Path, **more: Any) -> Reach | None:
    account = made(path, dp.ZCDP(9.0), own)
    engine = counted(dp.ZCDP(0.1), users, clock, **more).engine
    return engine.spender(engine.counter, "here").protects.reach_in(account)


@pytest.mark.parametrize(
    ("users", "clock", "own", "expected"),
    [
        (daily(), HOURS, {}, (1, 1, 1)),
        (daily(), PARIS, {"zone": "Europe/Paris"}, (1, 1, 1)),
        (daily(per="2d"), HOURS, {}, (1, 2, 2)),
        (daily(per=12), HOURS, {}, (2, 1, 1)),
        (daily(), PARIS, {}, (2, 2, 2)),  # local days and those of UTC
        (daily(), HOURS, {"zone": "Europe/Paris"}, (2, 2, 2)),
        (daily(), HOURS, {"start": "2026-01-01T06:00:00Z"}, (2, 2, 2)),
        (daily(), HOURS, {"start": "2031-01-01T00:00:00Z"}, (1, 1, 1)),  # days before it, too
        (daily(), HOURS, {"per": "2d"}, (2, 1, 1)),
        (Users("user", 2), HOURS, {}, (1, 2, 2)),
        (Users("user", 2), PARIS, {"zone": "Europe/Paris"}, (1, 2, 2)),
        (daily(), dp.Clock("1h", start="2026-03-27T05:00:00Z", ticks=96), {}, (2, 2, 2)),
        (daily(asserted=True), HOURS, {}, (1, 1, 1)),
    ],
)
def test_how_far_a_period_reaches(
    users: Any, clock: Any, own: Any, expected: Any, file: Path
) -> None:
    periods = account_periods(**{"per": "1d", "time": "at", **own})
    found = reach(users, clock, periods, file, mechanism="BinaryTree")
    assert found == Reach(*expected)


def test_a_replacement_is_one_change_of_a_whole_stream(file: Path) -> None:
    assert reach(Users("user", 2), HOURS, DAYS, file, relation="replace_one") == Reach()


@pytest.mark.parametrize("clock", [HOURS, PARIS, dp.Clock("1d", start="2026-01-01T00:00:00Z")])
def test_periods_of_an_account_cover_the_clock(clock: dp.Clock) -> None:
    """Every time of the clock lies in one, and all of them are a day's."""
    run = periods_of(clock, 1)
    for own in (DAYS, account_periods("3d", "at", "Europe/Paris"), account_periods("7h", "at")):
        unit = run.such_as(own)
        assert unit.starts[0] <= clock.grid.start < unit.starts[0] + 75 * 3_600_000_000
        assert unit.grid.closing(unit.starts[-1]) >= min(clock.grid.stop, unit.grid.stop)
        assert unit.any == own.any


# Both doors


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.csv"
    rows = [(60 * i, "ann", "a") for i in range(12)] + [(5, "bob", "a"), (8, "", "a")]
    path.write_text("\n".join(["at,user,page", *(",".join(map(str, row)) for row in rows)]))
    return path


def words(log: Path, *more: object) -> list[object]:
    return [
        *("--input", log, "--key", "page", "--keys", "a", "--timestamp", "at", "--tick", "1m"),
        *("--start", 0, "--horizon", 12, "--user", "user", "--output", log.parent / "out.csv"),
        *("--account", log.parent / "spending.jsonl", "--epsilon", 1, "--delta", 1e-6, *more),
    ]


run_ticks = partial(command, main=ticks.main)


def refused(*more: object) -> str:
    """What is said of a run that is refused before it starts."""
    return fail(*more, run=run_ticks, started=False)


def test_two_commands_and_a_pipeline_share_an_account(log: Path, file: Path) -> None:
    told = (file, "--create", "--epsilon", 9, "--delta", 1e-4, "--user", "user", "--per", "4m")
    said = succeed(*told, "--timestamp", "at", main=printing.main)
    assert "for one person's rows of any one period of 4m, the person a cell of 'user'" in said
    assert "begins at 1970-01-05T00:00:00Z; rows lie in them by the time in 'at'" in said
    per = ("--per-user", 1, "--per", "4m")
    out = succeed(*words(log, *per), main=ticks.main)
    assert "this run costs epsilon = 1, delta = 1e-06; left after it: epsilon = 8" in out
    out = succeed(*words(log, *per, "--metric", "people", "--view", "each"), main=ticks.main)
    assert "left after it: epsilon = 7" in out
    minutes = dp.Clock("1m", start=0, ticks=12)
    ledger = dp.Ledger(BOTH, account=file, protected=["page"], public=[])
    apply(counted(ledger.rest(), daily(1, "4m"), minutes))
    assert spent(file) == Charge(Fraction(3), Fraction(3, 10**6))
    printed = succeed(file, main=printing.main)
    assert printed.count("for one person's rows of any one period of 4m") == 5
    assert "satisfies epsilon = 3, delta = 3e-06 for one person's rows of any one period" in printed
    assert "that they have rows in it and what these say in at, page, user" in printed
    (several,) = [part for part in printed.split(". ") if part.startswith("Of one person")]
    assert several.startswith("Of one person, all periods of 4m: epsilon = ")
    dry = succeed(*words(log, *per, "--dry-run"), main=ticks.main)
    assert "the run would cost epsilon = 1, delta = 1e-06" in dry
    report = log.parent / "out.html"
    succeed(*words(log, *per, "--report", report), main=ticks.main)
    assert "of an account of epsilon = 9, delta = 0.0001 for one person" in report.read_text()


def test_other_bounds_cost_two_changes(log: Path, file: Path) -> None:
    made(file, periods=account_periods("4m", "at"))
    out = succeed(*words(log, "--per-user", 1, "--per", "3m"), main=ticks.main)
    assert "one meets up to 3 of the run's periods of 3m, each two changes" in out
    first = spent(file)
    assert first.epsilon > 2
    assert first.delta == Fraction(1, 10**6)
    out = succeed(*words(log, "--per-user", 1), main=ticks.main)
    assert "this run costs epsilon = 2" in out
    assert "without rows of one period others of the person may count in their place" in out
    second = spent(file) - first
    assert second == Charge(Fraction(1), Fraction(1, 10**6)).of_two()


def test_a_run_by_periods_in_an_account_of_rows_is_two_changes(log: Path, file: Path) -> None:
    create(str(file), dp.ApproxDP(9.0, 1e-4), None)
    succeed(*words(log, "--per-user", 1, "--per", "4m"), main=ticks.main)
    assert spent(file) == Charge(Fraction(1), Fraction(1, 10**6)).of_two()
    assert '"several"' not in file.read_text()


def test_elements_of_a_person_count_once(log: Path, file: Path) -> None:
    """Which of them count is public: those of a day change no other's."""
    made(file, periods=account_periods("4m", "at"))
    log.write_text("at,user,page,n\n1,ann,a,1\n300,ann,a,0\n301,bob,a,1\n")
    told = ["--input", log, "--key", "page", "--where", "n=1", "--horizon", 20, "--epsilon", 1]
    told += [
        "--user",
        "user",
        "--per-user",
        20,
        "--account",
        file,
        "--output",
        log.parent / "c.csv",
    ]
    succeed(*told, "--timestamp", "at", "--delta", 1e-6, main=count.main)
    assert spent(file).epsilon == 1


def test_what_is_refused_names_the_remedy(log: Path, file: Path) -> None:
    made(file, periods=account_periods("4m", "at"))
    per = ("--per-user", 1, "--per", "4m")
    plain = [w for w in words(log) if w not in ("--user", "user")]
    said = refused(*plain)
    assert "this run protects single events: nothing would follow" in said
    assert "give --user user with --per-user" in said
    log.write_text(log.read_text().replace("at,user", "at,who"))
    said = refused(*["who" if w == "user" else w for w in words(log, *per)])
    assert "is for one person's rows of any one period of 4m, a cell of 'user'" in said
    log.write_text(log.read_text().replace("at,who", "t,user"))
    said = refused(*["t" if w == "at" else w for w in words(log, *per)])
    assert "has periods by the time in 't', not 'at'" in said
    assert "give --timestamp at" in said
    assert not spent(file)


def test_what_is_refused_in_a_pipeline(file: Path) -> None:
    made(file)
    ledger = dp.Ledger(BOTH, account=file)
    with pytest.raises(AccountError, match=r"protects single events: .* give user=user with"):
        apply(counted(ledger.share(0.1), None))
    with pytest.raises(AccountError, match=r"rests on your word .*: let the count bound people's"):
        apply(counted(ledger.share(0.1), Users("user", 2, asserted=True)))
    with pytest.raises(AccountError, match="has periods by the time in 'when', not 'at'"):
        apply(counted(ledger.share(0.1), daily(), time="when"))
    with pytest.raises(AccountError, match="protects single events"):
        ledger.share(0.1).claim("mine")
    with pytest.raises(AccountError, match="this run has none"):
        apply(counted(ledger.share(0.1), Users(lambda e: e["user"], 2, per="1d")))
    with pytest.raises(AccountError, match="adds up epsilon, and this run has a rho"):
        dp.Ledger(RHO, account=file)
    assert not read_account(str(file)).runs


def test_an_account_of_a_person_says_which_one_takes_periods(file: Path) -> None:
    create(str(file), BOTH, "user")
    with pytest.raises(AccountError, match="or one made with per, or leave per out"):
        apply(counted(dp.Ledger(BOTH, account=file).rest(), daily()))


def test_times_without_a_name_are_the_users_word(file: Path) -> None:
    """As of a stream, whose events carry their time."""
    made(file)
    apply(counted(dp.Ledger(BOTH, account=file).rest(), daily(), time=None, path="streaming"))
    account = read_account(str(file))
    assert "This holds only if the time that run 1 read was that in 'at'." in holds(account)
    apply(counted(dp.Ledger(BOTH, account=file).rest(), daily()))
    assert "that run 1 read" in holds(read_account(str(file)))


# What several periods cost


@pytest.mark.parametrize("budget", [PURE, BOTH, dp.ZCDP(0.1)], ids=lambda b: type(b).__name__)
def test_the_account_says_of_several_days_what_the_count_says(budget: Any, file: Path) -> None:
    """7 of 40 days, 30, and all of them; applied by itself or through a ledger."""
    clock = dp.Clock("1d", start="2026-01-01T00:00:00Z", ticks=40)
    create(str(file), type(budget)(*[90.0, 1e-3][: 1 + (budget is BOTH)]), "user", DAYS)
    ledger = dp.Ledger(budget, account=file)
    count = counted(ledger.rest("days"), daily(), clock, mechanism="BinaryTree")
    apply(count)
    for name, many in (("7", 7), ("30", 30), ("all", 40)):
        charge = spent(file, name)
        if budget is PURE:
            assert charge == Charge(Fraction(many))
        elif budget is BOTH:
            assert float(charge.epsilon) == pytest.approx(ledger.epsilon_at(periods=many))
            assert charge.delta == Fraction(1, 10**6)
        else:
            delta = 1e-6
            found = zcdp_epsilon(float_up(charge.rho), delta)
            assert found == pytest.approx(ledger.epsilon_at(delta, periods=many))
    assert f"30 days: {spent(file, '30')}" in statement(read_account(str(file)))


def test_a_command_is_charged_for_its_own_noise(log: Path, file: Path) -> None:
    """In epsilon at its delta, and in rho: that of the noise, which is calibrated to both."""
    made(file, periods=account_periods("1m", "at"))
    succeed(*words(log, "--per-user", 1, "--per", "1m"), main=ticks.main)
    count = dp.TickCount(
        BOTH, dp.Clock("1m", start=0, ticks=12), keys=["a"], users=daily(1, "1m"), path="bounded"
    )
    for name, many in (("7", 7), ("all", 12)):
        expected = count.epsilon_at(1e-6, periods=many)
        assert float(spent(file, name).epsilon) == pytest.approx(expected, rel=1e-9)
    file.unlink()
    made(file, dp.ZCDP(50.0), account_periods("1m", "at"))
    succeed(*words(log, "--per-user", 1, "--per", "1m"), main=ticks.main)
    known = count.engine.period_costs
    assert known is not None
    for name, many in (("7", 7), ("all", 12)):
        assert spent(file, name).rho == known.cost(many).rho
    assert spent(file).rho == pytest.approx(float(known.cost(1).rho))


def test_selected_keys_are_shown_by_many_days(file: Path) -> None:
    """Delta grows by what keys take of many days, for each share; then there is no guarantee."""
    clock = dp.Clock("1d", start="2026-01-01T00:00:00Z", ticks=365)
    made(file)
    ledger = dp.Ledger(BOTH, keys_delta=5e-7, account=file)
    keys = dp.SelectKeys(delta=1e-7)
    counts = [
        counted(ledger.share(0.3, f"s{n}"), daily(1), clock, keys=keys, mechanism="BinaryTree")
        for n in range(2)
    ]
    apply(*counts)
    assert spent(file) == Charge(Fraction(1), Fraction(1, 10**6))
    known = counts[0].engine.period_costs
    assert known is not None
    more = 2 * (known.keys_delta(7) - known.keys_delta(1))
    assert more > 0
    assert float(spent(file, "7").delta) == pytest.approx(float(Fraction(1, 10**6) + more))
    assert spent(file, "all").delta == 1
    assert f"all days: {NO_GUARANTEE}" in holds(read_account(str(file)))


def test_a_ledger_is_charged_by_its_dearest_share(file: Path) -> None:
    """Whole in epsilon; and for a day that another grid cuts, two changes of all its noise."""
    made(file)
    ledger = dp.Ledger(BOTH, account=file)
    apply(counted(ledger.share(0.5), daily(), mechanism="BinaryTree"))
    assert spent(file) == Charge(Fraction(1), Fraction(1, 10**6))
    apply(counted(ledger.share(0.25), Users("user", 2), mechanism="BinaryTree"))
    rho = Fraction(ledger.total)
    expected = zcdp_epsilon(float_up(2 * rho), 1e-6)
    assert float(spent(file).epsilon) == pytest.approx(expected)
    assert ledger.epsilon_at(unit="period") < expected
    apply(counted(ledger.share(0.25), daily(), mechanism="BinaryTree"))
    assert float(spent(file).epsilon) == pytest.approx(expected)


def test_laplace_shares_add_up_in_epsilon_over_days(file: Path) -> None:
    """n days of a pure share have n^2 its rho, whatever its L2 norms."""
    clock = dp.Clock("1d", start="2026-01-01T00:00:00Z", ticks=40)
    made(file)
    ledger = dp.Ledger(BOTH, account=file)
    share = ledger.spend(dp.PureDP(float(ledger.total) ** 0.5))
    apply(counted(share, daily(1), clock.each()))
    least = zcdp_epsilon(float_up(Fraction(share.budget.to_zcdp().rho) * 49), 1e-6)
    assert float(spent(file, "7").epsilon) >= least


def test_an_endless_clock_has_no_cost_of_all_days(file: Path) -> None:
    clock = dp.Clock("1d", start="2026-01-01T00:00:00Z")
    made(file)
    apply(counted(dp.Ledger(BOTH, account=file).rest(), daily(), clock.each(), until=1.77e9))
    account = read_account(str(file))
    assert account.spent_on("all") is None
    assert "30 days: epsilon" in holds(account)
    assert "all days" not in holds(account)


def test_what_goes_on_costs_nothing_of_any_number_of_days(file: Path) -> None:
    made(file)
    seen: list[Charge] = []
    for resumes in (False, True):
        ledger = dp.Ledger(BOTH, account=file, run="shop", resumes=resumes)
        apply(counted(ledger.share(0.5), daily()))
        assert spent(file).epsilon == 1
        seen.append(spent(file, "7"))
    assert seen[0] == seen[1]
    apply(counted(ledger.rest(), daily()))  # and what is new costs all
    assert spent(file).epsilon == 2


def test_a_repeat_costs_nothing(log: Path, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTING_SECRET", "0123456789abcdef0123456789abcdef")
    made(file, periods=account_periods("4m", "at"))
    how = ("--per-user", 1, "--per", "3m", "--secret-env", "COUNTING_SECRET", "--run-id", "x")
    succeed(*words(log, *how), main=ticks.main)
    one, every = spent(file), spent(file, "all")
    succeed(*words(log, *how), main=ticks.main)
    assert (spent(file), spent(file, "all")) == (one, every)


# The file


def test_old_versions_refuse_the_file_and_old_files_stay_as_they_are(file: Path) -> None:
    made(file)
    assert json.loads(file.read_text().splitlines()[0])["account"] == 3  # they know 2
    account = read_account(str(file))
    assert account.periods == DAYS
    file.unlink()
    create(str(file), BOTH, "user")
    header = json.loads(file.read_text())
    assert (header["account"], "periods" in header) == (2, False)


@pytest.mark.parametrize(
    "wrong",
    [
        {"periods": None},
        {"periods": {"per": "1d"}},
        {"periods": {"per": "1d", "start": "x", "zone": None, "time": ["at"], "word": "day"}},
        {"periods": {"per": "1d", "start": 0, "zone": None, "time": "at", "word": "day"}},
    ],
)
def test_damaged_headers_are_refused(wrong: Any, file: Path) -> None:
    made(file)
    header = json.loads(file.read_text())
    file.write_text(json.dumps({**header, **wrong}) + "\n")
    with pytest.raises(AccountError, match="line 1: not a line of an account"):
        read_account(str(file))


CREATE = ("--create", "--epsilon", 1, "--user", "user", "--per", "1d", "--timestamp", "at")


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ((*CREATE[:3], "--per", "1d", "--timestamp", "at"), "--per needs --user COLUMN"),
        (CREATE[:7], "--per needs --timestamp COLUMN"),
        ((*CREATE[:5], "--timestamp", "at"), "--timestamp is about periods: give e.g. --per 1d"),
        ((*CREATE[:5], "--zone", "Europe/Paris"), "--zone is about periods"),
        ((*CREATE[:6], "7", *CREATE[7:]), "--per must be a length with a unit"),
        ((*CREATE[:6], "0d", *CREATE[7:]), "--per must be a positive time"),
        ((*CREATE, "--zone", "Mars/Base"), "unknown time zone 'Mars/Base'"),
        ((*CREATE, "--start", "noon"), "start is not an ISO 8601 time"),
        (
            (*CREATE, "--zone", "Europe/Paris", "--start", "2026-01-01T06:00:00"),
            "not a local midnight in Europe/Paris",
        ),
        (
            (*CREATE[:6], "1.5d", *CREATE[7:], "--zone", "Europe/Paris"),
            "which is not a whole number of days of Europe/Paris: give days, or leave --zone out",
        ),
        (("--per", "1d"), "--per goes with --create"),
    ],
)
def test_mistakes_take_one_line(told: Any, said: str, file: Path) -> None:
    if told[0] != "--create":
        made(file)
    assert said in fail(file, *told, run=partial(command, main=printing.main))


PROCESS = """
import sys
import apache_beam as beam
import beam_dpcount as dp
ledger = dp.Ledger(dp.PureDP(1.0), account=sys.argv[1])
days = dp.Clock("1d", start="2026-01-01T00:00:00Z", ticks=4)
users = dp.Users("user", 1, per="1d")
count = dp.TickCount(ledger.rest(), days, keys=["a"], key="page", time="at", users=users)
events = beam.Pipeline() | beam.Create([{}]) | beam.Map(print).with_output_types(dict[str, str])
sys.stdin.readline()
try:
    _ = events | count
except dp.errors.OverspentError:
    print("refused")
"""


def test_processes_at_once_do_not_overspend(file: Path) -> None:
    create(str(file), dp.PureDP(2.0), "user", DAYS)
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    started = [subprocess.Popen([sys.executable, "-c", PROCESS, str(file)], **pipes) for _ in "abc"]
    ended = sorted(process.communicate("go\n")[0] for process in started)
    assert ended == ["", "", "refused\n"]
    assert spent(file) == Charge(Fraction(2))
    assert spent(file, "all") == Charge(Fraction(8))


# In a ledger


def test_a_ledger_refuses_days_by_another_time() -> None:
    """As an account does, where both have a name."""
    ledger = dp.Ledger(dp.ZCDP(1.0))
    apply(counted(ledger.share(0.5, "days"), daily()))
    apply(counted(ledger.share(0.25, "others"), daily(), time="when"))
    with pytest.raises(ValueError, match="'others' has periods by the time in 'when', not 'at'"):
        ledger.epsilon_at(unit="period")
    assert "by days" in str(ledger)


def test_a_claim_by_hand_is_charged_by_the_same_rule(file: Path) -> None:
    account = made(file, dp.PureDP(9.0))
    for cost, expected in ((1, 1), (2, 2), (4, 2)):
        charges, _ = Unknown(Protection("one person", cost)).charges(PURE, 0.0, account)
        assert charges.presence == Charge(Fraction(expected))

"""Only ticks that have ended are released: nothing else shows in anything, and no noise knows."""

from __future__ import annotations

import json
from collections.abc import Callable
from operator import itemgetter
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.pvalue import Row as BeamRow
from apache_beam.transforms.window import FixedWindows, TimestampedValue
from apache_beam.typehints.row_type import RowTypeConstraint

import beam_dpcount as dp
from beam_dpcount.checks import ParameterError
from beam_dpcount.commands import account as account_command
from beam_dpcount.commands import ticks
from beam_dpcount.counters import clock as clocks
from beam_dpcount.plans import sentence
from beam_dpcount.rows import TickCountRows
from beam_dpcount.transforms.ticks import TickNumbers
from tests import command_lines
from tests.command_lines import succeed
from tests.runners import SECOND, Row, feed, run, run_stream
from tests.sentences import counted

BUDGET = dp.ApproxDP(1e6, 1e-6)
VARIABLE = "COUNTING_SECRET"
TICK, TICKS = 10, 8
CLOCK: dict[str, Any] = {"tick": TICK, "start": 0, "horizon": TICKS}
WHO = itemgetter("who")
USERS = dp.Users(WHO, 6, per_key=4)
COUNT = [dp.Count(), dp.Rate("n > 0")]
ROWS: list[Row] = [
    ("aabac"[at % 5], {"who": "uvwxyz"[at % 6], "n": 1, "kind": "xy"[at % 2]}, at * SECOND)
    for at in range(TICK * TICKS)
]
KEYS: dict[str, Any] = {"listed": ["a", "b"], "selected": dp.SelectKeys(delta=1e-9)}

# Each transform that releases at ticks, of keys as given.
DOORS: dict[str, Callable[[Any, Any], Any]] = {
    "numbers": lambda keys, more: TickNumbers(
        BUDGET, **CLOCK, keys=keys, value=itemgetter("n"), **more
    ),
    "people's numbers": lambda keys, more: TickNumbers(
        BUDGET, **CLOCK, keys=keys, value=itemgetter("n"), users=USERS, **more
    ),
    "vectors": lambda keys, more: counted(BUDGET, COUNT, **CLOCK, keys=keys, **more),
    "people's vectors": lambda keys, more: counted(
        BUDGET, COUNT, **CLOCK, keys=keys, users=dp.Users(WHO, 12, per_key=1), restart=4, **more
    ),
    "distinct": lambda keys, more: counted(
        BUDGET, dp.People(), **CLOCK, keys=keys, users=dp.Users(WHO, 3), **more
    ),
}
CASES = [(door, kind) for door in DOORS for kind in KEYS]
CASES_OF_ALL = [*CASES, ("sliding", "listed"), ("windows", "listed"), ("windows", "selected")]


def counting(door: str, kind: str, **more: Any) -> Any:
    if door == "sliding":
        return counted(BUDGET, **CLOCK, last=3, keys=KEYS[kind], **more)
    if door == "windows":
        return beam.WindowInto(FixedWindows(4 * TICK)) | counting("numbers", kind, **more)
    return DOORS[door](KEYS[kind], more)


def seen(rows: list[Row], door: str, kind: str, **more: Any) -> list[tuple[Any, ...]]:
    outcome = run(lambda p: p | feed(rows) | "Same" >> counting(door, kind, **more))
    return [tuple(release) for release in outcome.releases]


def step_of(release: tuple[Any, ...]) -> int:
    return int(release[1])


@pytest.fixture(autouse=True)
def _secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "0123456789abcdef" * 4)


@pytest.mark.long
@pytest.mark.exhaustive("door", "kind")
@pytest.mark.parametrize(("door", "kind"), CASES_OF_ALL)
def test_ticks_that_have_ended_are_released_as_ever(door: str, kind: str) -> None:
    """Under one secret, to the bit: a later run goes on from an earlier one."""
    entropy = dp.ReplayableEntropy(VARIABLE, run_id="nightly")
    whole = seen(ROWS, door, kind, entropy=entropy)
    assert {*map(step_of, whole)} >= {4, 5, TICKS}
    for until, ended in ((35, 3), (50, 5), (50.5, 5), (79.9, 7), (10**6, TICKS)):
        part = seen(ROWS, door, kind, entropy=entropy, until=until)
        assert part == [release for release in whole if step_of(release) <= ended], until
        assert part


def test_noise_of_keys_that_nobody_listed_does_not_know_until() -> None:
    """Where there is enough of it to be seen."""
    rows: list[Row] = [("a", 1, at % (TICK * TICKS) * SECOND) for at in range(2000)]
    entropy = dp.ReplayableEntropy(VARIABLE, run_id="noise")

    def released(until: float) -> list[Any]:
        count = TickNumbers(
            dp.ApproxDP(1, 1e-6), **CLOCK, keys=dp.SelectKeys(), entropy=entropy, until=until
        )
        return run(lambda p: p | feed(rows) | count).releases

    whole = released(80)
    assert [release.step for release in whole] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert sum(release.value != release.step * 250 for release in whole) > 2
    assert released(55) == whole[:5]


@pytest.mark.long
@pytest.mark.exhaustive("door", "kind")
@pytest.mark.parametrize(("door", "kind"), CASES_OF_ALL)
def test_rows_of_other_ticks_leave_no_trace(door: str, kind: str) -> None:
    """Not in values, nor in which keys are shown, nor in whose events take places."""
    later: list[Row] = [
        (key, {"who": who, "n": 1, "kind": "x"}, at * SECOND)
        for key in "abnew"
        for who in "uvwxyz"
        for at in (50, 55, 79)
    ]
    entropy = dp.ReplayableEntropy(VARIABLE, run_id="nightly")
    early = [row for row in ROWS if row[2] < 50 * SECOND]
    how: dict[str, Any] = {"entropy": entropy, "until": 59}
    plain = seen(early, door, kind, **how)
    assert plain
    assert seen([*later, *early], door, kind, **how) == plain


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("door", ["numbers", "people's numbers", "vectors", "windows"])
def test_before_the_first_tick_has_ended_nothing_is_released(door: str, kind: str) -> None:
    for until in (0, 9.999999, -50):
        assert seen(ROWS, door, kind, until=until) == []


def test_by_default_ticks_are_released_that_have_ended_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock of 30 days that started four days ago released four weeks to come."""
    monkeypatch.setattr(clocks, "now", lambda: 45 * SECOND)
    count = counting("numbers", "listed")
    monkeypatch.setattr(clocks, "now", lambda: 65 * SECOND)  # it was asked once
    releases = run(lambda p: p | feed(ROWS) | count).releases
    assert [release.step for release in releases] == [1, 2, 3, 4] * 2
    assert count.ticks_released == 4
    assert count.display_data()["ticks_ended"] == "4 of 8"
    # All of them are charged.
    assert count.counter.horizon == TICKS


@pytest.mark.parametrize("door", [*DOORS, "sliding"])
def test_a_time_later_than_now_is_refused(door: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clocks, "now", lambda: 45 * SECOND)
    with pytest.raises(ParameterError) as found:
        counting(door, "listed", until=45.000001)
    assert str(found.value).startswith(
        "until is 1970-01-01T00:00:45.000001Z, later than now, 1970-01-01T00:00:45Z: "
    )
    assert counting(door, "listed", until="1970-01-01T00:00:45Z")


def test_in_a_stream_the_watermark_says_which_ticks_have_ended() -> None:
    with pytest.raises(ParameterError, match="until is for bounded input: in a stream the"):
        counting("numbers", "listed", path="streaming", until=0)
    with pytest.raises(ParameterError, match="until is for bounded input"):
        run_stream(counting("numbers", "listed", until=0), *ROWS, 100)


def test_a_clock_without_an_end_ends_with_until() -> None:
    endless = counted(dp.ZCDP(0.5), tick=TICK, start=0, last=2, keys=["a"], until=47)
    assert [r.step for r in run(lambda p: p | feed(ROWS) | endless).releases] == [1, 2, 3, 4]


@pytest.mark.parametrize("metrics", [["count"], ["count", "rate(key = a)"]])
def test_rows_take_it_too(metrics: Any) -> None:
    count = TickCountRows(
        "key", **CLOCK, keys=["a"], epsilon=1, delta=1e-6, until="25", metrics=metrics
    )
    rows = [BeamRow(key="a"), BeamRow(key="a")]
    schema = RowTypeConstraint.from_fields([("key", str)])
    timed: Any = beam.Map(lambda row: TimestampedValue(row, 3))
    found = run(lambda p: p | beam.Create(rows) | timed.with_output_types(schema) | count)
    assert [row.step for row in found.releases] == [1, 2]


def test_counts_behind_one_bound_on_people_end_when_they_do() -> None:
    """What a count with a later end takes of a person takes nothing from another's ticks."""
    entropy = dp.ReplayableEntropy(VARIABLE, run_id="bound")

    def built(until: Any) -> Any:
        members = {
            "early": counting("numbers", "listed", entropy=entropy, until=until),
            "late": counting("distinct", "listed", entropy=entropy),
        }
        return lambda p: tuple((p | feed(ROWS) | dp.BoundUsers(USERS, members)).values())

    part, whole = (run(built(until)).outputs for until in (35, None))
    first, second = ([seen.value for seen in outputs[0]] for outputs in (part, whole))
    assert first == [release for release in second if release.step <= 3]
    assert part[1] == whole[1]


# The command

LOG = "time,who\n" + "".join(f"{at},{'ab'[at % 2]}\n" for at in range(0, 80, 3))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.csv"
    path.write_text(LOG)
    return path


def command(log: Path, *more: object) -> list[object]:
    flags = ["--input", log, "--key", "who", "--timestamp", "time", "--tick", TICK, "--start", 0]
    flags += ["--horizon", TICKS, "--rho", 1, "--secret-env", VARIABLE, "--keys", "a", "b"]
    return [*flags, "--output", log.parent / "out.csv", "--overwrite", *more]


def lines(log: Path) -> list[str]:
    return (log.parent / "out.csv").read_text().splitlines()[1:]


def test_the_command_writes_ticks_that_have_ended(log: Path) -> None:
    """And a later run over the same rows is the same run, to the account; over others it is not."""
    account = log.parent / "account.jsonl"
    succeed(account, "--create", "--rho", 5, main=account_command.main)
    first = succeed(*command(log, "--until", 59, "--account", account), main=ticks.main)
    assert "2 keys x 5 of 8 ticks = 10 releases" in first
    open_ticks = "warning: 3 of 8 ticks have not ended by 1970-01-01T00:00:59Z (--until): they are"
    assert f"{open_ticks} not written, but charged\n" in first
    early = lines(log)
    assert len(early) == 10
    about = json.loads((log.parent / "out.csv.manifest.json").read_text())
    assert (about["until"], about["ticks"]) == ("1970-01-01T00:00:59Z", {"released": 5, "of": 8})
    assert "rows of ticks that have not ended (--until)" in about["left_out"]
    later = succeed(*command(log, "--account", account), main=ticks.main)
    assert "at no cost" in later
    assert len(lines(log)) == 16
    assert [line for line in lines(log) if int(line.split(",")[1]) <= 5] == early
    with open(log, "a") as file:
        file.write("79,a\n")
    refused = command_lines.command(*command(log, "--account", account), main=ticks.main)
    assert "would draw the same noise as run 1, but the rows have changed since" in refused.err
    grown = succeed(*command(log, "--account", account, "--run-id", "2"), main=ticks.main)
    assert "this run costs rho = 1" in grown


@pytest.mark.parametrize("keys", [("--keys", "a"), ("--select-keys",)])
def test_a_run_that_releases_nothing_costs_nothing(log: Path, keys: tuple[object, ...]) -> None:
    """Whether a tick has ended is public; a job that starts too early must not take the budget."""
    account = log.parent / "account.jsonl"
    succeed(account, "--create", "--epsilon", 2, "--delta", 1e-5, main=account_command.main)
    words = [word for word in command(log) if word not in ("--keys", "a", "b", "--rho", 1)]
    words += ["--epsilon", 1, "--delta", 1e-6]
    for more in (("--dry-run",), ()):
        out = succeed(*words, *keys, "--account", account, "--until", 5, *more, main=ticks.main)
        assert f"account {account}: this run costs nothing, as no tick has ended" in out
    assert lines(log) == []
    assert "no runs yet" in succeed(account, main=account_command.main)
    out = succeed(*words, *keys, "--account", account, "--until", 15, main=ticks.main)
    assert "this run costs epsilon = 1" in out


@pytest.mark.parametrize("keys", [("--keys", "a"), ("--select-keys", "--select-delta", 1e-6)])
def test_the_command_says_when_no_tick_has_ended(log: Path, keys: tuple[object, ...]) -> None:
    words = [word for word in command(log) if word not in ("--keys", "a", "b")]
    pictures = "--report", log.parent / "page.html", "--plot", log.parent / "p.png"
    out = succeed(*words, *keys, *pictures, "--until", 5, main=ticks.main)
    assert "no tick has ended yet, so none is written" in out
    assert lines(log) == []
    assert (log.parent / "page.html").stat().st_size > 0


def test_the_streaming_path_says_that_all_ticks_are_written(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = command(log, "--path", "streaming", "--dry-run")
    assert "also those that have not ended" not in succeed(*words, main=ticks.main)
    monkeypatch.setattr(sentence, "now", lambda: 45 * SECOND)
    out = succeed(*words, main=ticks.main)
    assert "warning: --path streaming takes the end of the files for the end of the clock: " in out
    assert "all 8 ticks are written, also those that have not ended (4 have)" in out


def test_a_dry_run_says_that_all_ticks_are_charged(log: Path) -> None:
    out = succeed(*command(log, "--until", 59, "--dry-run"), main=ticks.main)
    assert "3 of 8 ticks have not ended" in out
    assert "they are not written, but charged" in out
    assert "2 keys x 5 of 8 ticks = 10 releases" in out
    assert not (log.parent / "out.csv").exists()

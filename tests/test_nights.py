"""Runs with --state: a week of nights is one run, whatever happens to one of them."""

from __future__ import annotations

import datetime as dt
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beam_dpcount.budget.account_file import read_account
from beam_dpcount.commands import account as account_command
from beam_dpcount.commands import nights, spending, ticks
from beam_dpcount.commands.files import growing, states
from beam_dpcount.commands.files.formats import InputError
from beam_dpcount.states.state_file import StateFile
from tests import command_lines, postgres
from tests.command_lines import ROOT, fail

NIGHTS = 7
START = dt.datetime(2026, 10, 1, tzinfo=dt.timezone.utc)
PLAIN = ("--metric", "count", "--view", "each", "--view", "so-far")
PEOPLE = ("--metric", "people", "--view", "each", "--user", "who", "--per-user", "2", "--per", "1d")
SUMS = ("--metric", "sum(ms, 0, 100)", "--metric", "count", "--user", "who", "--per-user", "30")
SQLITE = "sqlite:///out.db?table=counts"
OUTPUTS = ("out.csv", "out.jsonl", "parts/", SQLITE)


def day(number: int) -> str:
    """When a day begins, from 0."""
    return (START + dt.timedelta(days=number)).isoformat()


def rows_of(number: int, many: int = 120) -> list[str]:
    """Lines of one day."""
    rng = random.Random(number)
    times = sorted(rng.randrange(86_400) for _ in range(many))
    return [
        f"{(START + dt.timedelta(days=number, seconds=at)).isoformat()},"
        f"/{rng.choice('abc')},u{rng.randrange(9)},{rng.randrange(100)}"
        for at in times
    ]


def write(path: Path, rows: Sequence[str]) -> None:
    path.write_text("\n".join(["ts,page,who,ms", *rows, ""]))


def words(what: Sequence[str] = PLAIN, output: str = "out.csv", **given: object) -> list[object]:
    """A command line; all files are in the current folder."""
    options: dict[str, object] = {
        "input": "log.csv",
        "key": "page",
        "timestamp": "ts",
        "tick": "1d",
        "start": day(0),
        "horizon": 10,
        "state": "s/counts.state",
        "output": output,
        "epsilon": 1,
        "delta": "1e-6",
    }
    options |= given
    named = [word for name, x in options.items() if x for word in (f"--{name}", x)]
    return [*named, *what, "--keys", "/b", "/a"]


def night(number: int, *more: object, **given: object) -> str:
    """A run by the end of that day."""
    what = given.pop("what", PLAIN)
    line = words(what, **{"until": day(number), **given})  # type: ignore[arg-type]
    return command_lines.succeed(*line, *more, main=ticks.main, overwrite=False, verbose=False)


def refused(*line: object) -> str:
    run = command_lines.command
    return fail(*line, run=lambda *w: run(*w, main=ticks.main, overwrite=False, verbose=False))


def contents(output: str) -> bytes:
    """What was released, by tick and key; empty if nothing was."""
    if "://" in output:
        return "".join(f"{row}\n" for row in inserted(output)).encode()
    if not output.endswith("/"):
        if not Path(output).exists():
            return b""
        return Path(output).read_bytes()
    parts = sorted(Path(output).glob("*.parquet"))
    rows = pa.concat_tables([pq.read_table(path).replace_schema_metadata() for path in parts])
    return json.dumps(rows.to_pylist()).encode()


def inserted(output: str) -> list[Any]:
    """The rows of a table."""
    read = 'SELECT * FROM counts ORDER BY step, "key" DESC'
    if output.startswith("sqlite"):
        with closing(sqlite3.connect("out.db")) as connection:
            there = connection.execute("SELECT name FROM sqlite_master").fetchall()
            return connection.execute(read).fetchall() if there else []
    import psycopg

    with psycopg.connect(output.replace("&table=counts", "")) as server:
        there = server.execute("SELECT to_regclass('counts')").fetchall()
        return server.execute(read).fetchall() if there != [(None,)] else []


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s").mkdir()
    return tmp_path


def at_once(folder: Path, rows: Sequence[str], run: Callable[[], object], output: str) -> bytes:
    """What one run over these rows releases, from a state that is given, in a folder of its own."""
    other = folder / "once"
    shutil.copytree(folder, other)
    os.chdir(other)
    write(Path("log.csv"), rows)
    run()
    os.chdir(folder)
    return contents(str(other / output) + "/" * output.endswith("/"))


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("what", [PLAIN, PEOPLE, SUMS], ids=["plain", "people", "sums"])
def test_a_week_is_one_run_without_the_rows_that_came_late(
    folder: Path, what: Sequence[str], output: str
) -> None:
    """Past lines never change, one run is charged, and a night that is run twice adds nothing."""
    log = [row for number in range(2) for row in rows_of(number)]
    write(Path("log.csv"), log)
    night(1, what=what, output=output)
    seen = [row for row in log if row < day(1)]
    late = rows_of(99, 200)  # of days that are over, as they are dated back
    first, start = contents(output), folder / "start"
    shutil.copytree(folder, start, ignore=shutil.ignore_patterns("start"))
    for number in range(2, NIGHTS + 1):
        new = [*rows_of(number), *(rows_of(number - 2, 5))]
        seen += [row for row in log + new if day(number - 1) <= row < day(number)]
        log += new
        write(Path("log.csv"), log)
        before = contents(output)
        said = night(number, what=what, output=output)
        assert f"tick {number} of 10 added: {output}" in said
        assert contents(output)[: len(before) - 1] == before[:-1]
        after = contents(output)
        assert "no tick has ended since the last run" in night(number, what=what, output=output)
        assert contents(output) == after
    os.chdir(start)
    write(Path("log.csv"), sorted(seen, key=lambda row: row[::-1]))
    night(NIGHTS, what=what, output=output)
    whole = contents(output)
    os.chdir(folder)
    assert whole == contents(output)
    assert whole[: len(first) - 1] == first[:-1]
    assert late
    account = read_account("s/counts.state.account")
    assert [*account.runs] == [1]
    assert not account.left
    (entry,) = account.states.values()
    assert (entry.tick, entry.nights, entry.generation) == (NIGHTS, NIGHTS, NIGHTS)


def test_what_each_run_says(folder: Path) -> None:
    write(Path("log.csv"), rows_of(0))
    said = night(1, what=PEOPLE)
    assert "account: s/counts.state.account (new, private)" in said
    assert "in all runs with this --state." in said
    said = night(2, what=PEOPLE)
    assert "account" not in said
    manifest = json.loads(Path("out.csv.manifest.json").read_text())
    assert "for all runs with this --state together" in manifest["guarantee"]
    assert manifest["ticks"] == {"released": 2, "of": 10}
    assert not {"state", "account", "delay"} & manifest["parameters"].keys()
    printed = command_lines.succeed("s/counts.state.account", main=account_command.main)
    assert "run 1 goes on from a state, at no further cost: 2 ticks released so far" in printed
    assert "did not end well" not in printed
    for path in ("s/counts.state", "s/counts.state.account", "s/counts.state.lock"):
        assert os.stat(path).st_mode & 0o777 == 0o600


def test_the_end_is_said_in_time(folder: Path) -> None:
    write(Path("log.csv"), rows_of(0))
    night(1)
    assert "left: this count" not in night(8)
    assert f"1 tick of 10 is left: this count ends at {day(10)[:19]}Z" in night(9)
    assert "the clock has ended" in night(10)
    assert "no tick has ended since" in night(10)


def test_people_fade_under_one_bound_and_the_first_run_says_so(folder: Path) -> None:
    write(Path("log.csv"), rows_of(0))
    assert "warning: a person counts with 30 rows of the whole clock" in night(1, what=SUMS)
    assert "warning" not in night(2, what=SUMS)


def _stamp_of(stamps: dict[str, str], data: Any) -> tuple[str, str]:
    """As if files that were counted whole had not been written to since."""
    path = os.path.realpath(data.path)
    return path, stamps.get(path, "of later")


def test_files_that_were_counted_whole_are_not_opened_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless they were written to since; one that has a row of an open tick is read again."""
    Path("logs").mkdir()
    for number in range(4):
        write(Path(f"logs/{number}.csv"), rows_of(number))
    night(2, input="logs")
    expected = folder / "expected"
    shutil.copytree(folder, expected, ignore=shutil.ignore_patterns("expected"))
    os.chdir(expected)
    night(4, input="logs")
    os.chdir(folder)
    for number in range(2):
        size = os.stat(f"logs/{number}.csv").st_size
        with open(f"logs/{number}.csv", "r+b") as file:
            file.write(b"\0" * (size - 1))  # would be refused
    assert "no column" in refused(*words(until=day(3), input="logs"))
    stamps = dict(StateFile.unpacked(Path("s/counts.state").read_bytes()).files)
    with monkeypatch.context() as patched:
        patched.setattr(nights, "_stamp", lambda data: _stamp_of(stamps, data))
        night(4, input="logs")
    assert contents("out.csv") == contents("expected/out.csv")
    state = StateFile.unpacked(Path("s/counts.state").read_bytes())
    assert [os.path.basename(name) for name, _ in state.files] == [f"{n}.csv" for n in range(4)]


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_half_a_line_is_refused_until_it_is_whole(folder: Path, suffix: str) -> None:
    """What it says so far may be somebody else's; and left out, whether it counts would depend on
    whether a row follows."""

    def put(number: int, last: str) -> None:
        rows = [[f"{day(number)[:10]}T12:00:00Z", "/a", f"u{n}", n] for n in range(50)]
        if suffix == "csv":
            write(Path("log.csv"), [",".join(map(str, row)) for row in rows])
        else:
            lines = [
                json.dumps(dict(zip(("ts", "page", "who", "ms"), row, strict=True))) for row in rows
            ]
            Path("log.jsonl").write_text("\n".join([*lines, ""]))
        with open(f"log.{suffix}", "a") as file:
            file.write(last)

    row = f"{day(1)[:10]}T12:00:00Z,/a,u1"
    if suffix == "jsonl":
        row = json.dumps({"ts": f"{day(1)[:10]}T12:00:00Z", "page": "/a", "who": "u1", "ms": 5})
    whole = f"{row}\n" if suffix == "jsonl" else f"{row}2,5\n"
    half = row if suffix == "jsonl" else f"{row},5"
    put(0, "")
    night(1, input=f"log.{suffix}")
    before = contents("out.csv")
    put(1, half)
    assert "its last line has no line break" in refused(*words(until=day(2), input=f"log.{suffix}"))
    assert contents("out.csv") == before
    assert read_account("s/counts.state.account").states.popitem()[1].generation == 1
    put(1, whole)
    assert "tick 2 of 10" in night(2, input=f"log.{suffix}")


def test_an_older_state_is_refused(folder: Path) -> None:
    write(Path("log.csv"), rows_of(0))
    night(1)
    shutil.copy("s/counts.state", "older")
    night(2)
    shutil.copy("older", "s/counts.state")
    said = refused(*words(until=day(3)))
    assert "is not the one that the last run left (2 runs released 2 ticks): restore" in said


def test_all_restored_repeats_its_noise(folder: Path) -> None:
    """State, output and account together cannot be told from those of then: to the bit."""
    write(Path("log.csv"), rows_of(0) + rows_of(1))
    night(1)
    then = folder / "then"
    shutil.copytree(folder, then, ignore=shutil.ignore_patterns("then"))
    night(2)
    os.chdir(then)
    night(2)
    os.chdir(folder)
    assert contents("out.csv") == contents("then/out.csv")


def test_a_state_without_its_account_is_refused(folder: Path) -> None:
    write(Path("log.csv"), rows_of(0))
    night(1)
    os.rename("s/counts.state.account", "elsewhere")
    said = refused(*words(until=day(2)))
    assert "the account 's/counts.state.account' of --state 's/counts.state' is missing" in said
    assert "tick 2 of 10 added" in night(2, account="elsewhere")
    command_lines.succeed(
        "other", "--create", "--epsilon", "9", "--delta", "1e-5", main=account_command.main
    )
    assert "does not know --state" in refused(*words(until=day(3), account="other"))


def test_a_lost_state_does_not_start_anew(folder: Path) -> None:
    write(Path("log.csv"), rows_of(0))
    night(1)
    os.remove("s/counts.state")
    said = refused(*words(until=day(2)), "--overwrite")
    assert (
        "is missing, and its account 's/counts.state.account' says that it released 1 tick" in said
    )


def test_a_run_that_died_before_it_counted_goes_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was charged and nothing left; without its state nothing takes its place."""
    write(Path("log.csv"), rows_of(0))
    with monkeypatch.context() as patched:
        patched.setattr(nights, "_counted", _fails)
        refused(*words(until=day(1)))
    copy = folder / "copy"
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("copy"))
    assert "tick 1 of 10" in night(1)
    account = read_account("s/counts.state.account")
    assert [*account.runs] == [1]
    os.chdir(copy)
    os.remove("s/counts.state")
    assert "released 0 ticks: restore it" in refused(*words(until=day(1)))
    shutil.copy("../s/counts.state", "s/counts.state")  # of another generation
    assert "is not the one that the last run left" in refused(*words(until=day(1)))


def test_a_first_run_does_not_take_the_place_of_a_file_that_came_meanwhile(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(Path("log.csv"), rows_of(0))
    with monkeypatch.context() as patched:
        patched.setattr(growing.Lines, "add", _fails)
        refused(*words(until=day(1)))
    Path("out.csv").write_text("of somebody\n")
    assert "is not as the last run left it" in refused(*words(until=day(1)))
    assert Path("out.csv").read_text() == "of somebody\n"
    os.remove("out.csv")
    assert "added what the last run released before it died: out.csv" in night(1)
    assert contents("out.csv").startswith(b"key,step")


def test_an_account_that_is_there_keeps_its_promise(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether somebody made it, or a run that died before it was charged."""
    write(Path("log.csv"), rows_of(0))
    with monkeypatch.context() as patched:
        patched.setattr(spending, "charge", _fails)
        refused(*words(until=day(1)))
    before = Path("s/counts.state.account").read_bytes()
    assert not read_account("s/counts.state.account").runs
    for named in ({}, {"account": "s/counts.state.account"}):
        assert "would be overspent" in refused(*words(until=day(1), epsilon=2, **named))
        assert Path("s/counts.state.account").read_bytes() == before
    night(1)
    assert len(read_account("s/counts.state.account").runs) == 1


def test_a_table_with_later_rows_refuses_an_older_state(folder: Path) -> None:
    """Whether rows came late, and whether the later rows were deleted."""
    write(Path("log.csv"), rows_of(0) + rows_of(1))
    night(1, output=SQLITE)
    for name in ("counts.state", "counts.state.account"):
        shutil.copy(f"s/{name}", f"{name}.older")
    night(2, output=SQLITE)
    for name in ("counts.state", "counts.state.account"):
        shutil.copy(f"{name}.older", f"s/{name}")
    for late in ([], [f"{day(1)},/a,u1,5"]):
        write(Path("log.csv"), [*rows_of(0), *rows_of(1), *late])
        assert "is not as the last run left it" in refused(*words(until=day(2), output=SQLITE))
    with closing(sqlite3.connect("out.db")) as connection, connection:
        connection.execute("DELETE FROM counts WHERE step = 1 AND \"key\" = '/a'")
    assert "is not as the last run left it" in refused(*words(until=day(2), output=SQLITE))


def _fails(*_: object) -> None:
    raise OSError("the disk is gone")


@pytest.mark.parametrize("late", [False, True])
def test_of_two_copies_that_run_at_once_one_releases(folder: Path, late: bool) -> None:
    """Their locks are apart, and their account is one; and it stays so when one is late."""
    write(Path("log.csv"), rows_of(0) + rows_of(1))
    make = ("a.jsonl", "--create", "--epsilon", "1", "--delta", "1e-6")
    command_lines.succeed(*make, main=account_command.main)
    account = folder / "a.jsonl"
    night(1, account=account)
    copy = folder / "copy"
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("copy", "a.jsonl"))
    state = states.last_state("s/counts.state", str(account))
    assert state is not None
    generation = states.begin("s/counts.state", state, str(account))  # the first is counting
    os.chdir(copy)
    before = contents("out.csv")
    if late:
        night(2, account=account)
        assert contents("out.csv") != before
    else:
        states.begin("s/counts.state", state, str(account))
    os.chdir(folder)
    with pytest.raises(InputError, match="another run has begun from a copy of it"):
        states.finish("s/counts.state", state, str(account), generation)
    if late:
        line = words(until=day(2), account=account)
        assert "is not the one that the last run left" in refused(*line)
        with pytest.raises(InputError, match="is not the one that the last run left"):
            states.begin("s/counts.state", state, str(account))
    assert contents("out.csv") == before


def test_two_runs_at_once(folder: Path) -> None:
    write(Path("log.csv"), rows_of(0))
    night(1)
    with states.alone("s/counts.state"):
        assert "another run is using it" in refused(*words(until=day(2)))
    assert "tick 2 of 10" in night(2)


def test_a_clock_that_jumps(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ahead: the run asks. Back: nothing is added."""

    def now(number: float) -> None:
        at = (START + dt.timedelta(days=number)).timestamp()
        monkeypatch.setattr(time, "time_ns", lambda: int(at * 1e9))

    write(Path("log.csv"), rows_of(0))
    for number in (1, 2, 3):
        now(number)
        assert f"tick {number} of 10" in night(0, until=None)
    now(9)
    said = refused(*words(until=None))
    assert "6 ticks are due, and usually it is 1" in said
    now(2)
    assert "no tick has ended" in night(0, until=None)
    now(4.5)
    assert "no tick has ended" in night(0, until=None, delay="1d")
    assert "tick 4 of 10" in night(0, until=None, delay="2h")
    now(9)
    assert "ticks 5 to 8 of 10" in night(8)


def test_what_is_usual_is_what_the_last_seven_runs_released(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the first, which may count years."""
    write(Path("log.csv"), rows_of(0))
    night(3, horizon=40)
    for number in range(4, 11):
        night(number, horizon=40)
    night(14, horizon=40)  # four at once, which stay an exception
    state = states.last_state("s/counts.state", "s/counts.state.account")
    assert state is not None
    assert state.lately == (1, 1, 1, 1, 1, 1, 4)
    at = (START + dt.timedelta(days=17)).timestamp()
    monkeypatch.setattr(time, "time_ns", lambda: int(at * 1e9))
    assert "3 ticks are due, and usually it is 1" in refused(*words(until=None, horizon=40))


def test_the_first_run_does_not_say_what_is_usual(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(Path("log.csv"), rows_of(0))
    night(5)
    night(6)
    at = (START + dt.timedelta(days=9)).timestamp()
    monkeypatch.setattr(time, "time_ns", lambda: int(at * 1e9))
    assert "3 ticks are due, and usually it is 1" in refused(*words(until=None))


def test_a_file_with_a_row_on_the_border_is_read_again(folder: Path) -> None:
    """At its end a tick is over, and the row is of the next one."""
    Path("logs").mkdir()
    write(Path("logs/0.csv"), [*rows_of(0), *[f"{day(1)},/a,u1,5"] * 300])
    night(1, input="logs")
    night(2, input="logs", delta="1e-6")
    rows = [line.split(",") for line in Path("out.csv").read_text().splitlines()]
    last = next(row for row in rows if row[:2] == ["/a", "2"])
    assert float(last[4]) > 200


def test_a_state_may_be_named_by_another_path(folder: Path) -> None:
    write(Path("log.csv"), rows_of(0))
    os.makedirs("real/deep")
    os.symlink("real/deep", "linked")
    night(1, state="linked/counts.state")
    night(2, state="real/deep/counts.state")
    os.symlink("real/deep/counts.state", "name")
    assert "tick 3 of 10" in night(3, state="name")
    assert os.path.islink("name")
    assert "tick 4 of 10" in night(4, state="linked/counts.state")


def test_a_run_that_died_names_its_account_to_the_next(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(Path("log.csv"), rows_of(0))
    make = ("a.jsonl", "--create", "--epsilon", "1", "--delta", "1e-6")
    command_lines.succeed(*make, main=account_command.main)
    with monkeypatch.context() as patched:
        patched.setattr(states, "_rename", _fails)
        refused(*words(until=day(1), account="a.jsonl"))
    before = sorted(os.listdir("s"))
    assert "would cost nothing more" in night(1, "--dry-run")
    refused(*words(until=day(1), account="other"))
    assert sorted(os.listdir("s")) == before
    assert "tick 1 of 10" in night(1)
    assert not Path("s/counts.state.account").exists()
    assert len(read_account("a.jsonl").states) == 1


def test_a_day_without_events_may_be_an_empty_file(folder: Path) -> None:
    Path("logs").mkdir()
    write(Path("logs/0.csv"), rows_of(0))
    Path("logs/1.csv").touch()
    night(1, input="logs")
    assert "tick 2 of 10" in night(2, input="logs")


def test_parts_that_were_changed_are_refused(folder: Path) -> None:
    write(Path("log.csv"), rows_of(0))
    night(2, output="parts/")
    night(3, output="parts/")
    assert sorted(os.listdir("parts")) == [
        "ticks-00000001-00000002.parquet",
        "ticks-00000003-00000003.parquet",
    ]
    first = Path("parts/ticks-00000001-00000002.parquet")
    data = first.read_bytes()
    os.remove(first)
    assert "is not as the last run left it" in refused(*words(until=day(4), output="parts/"))
    first.write_bytes(data[:-1] + b"x")
    assert "is not as the last run left it" in refused(*words(until=day(4), output="parts/"))
    first.write_bytes(data)
    assert "tick 4 of 10" in night(4, output="parts/")


def test_output_that_was_changed_is_refused(folder: Path) -> None:
    write(Path("log.csv"), rows_of(0))
    night(1)
    before = Path("out.csv").read_bytes()
    for edited in (before + b"more\n", before[:-2] + b"x\n", before[:-1], b""):
        Path("out.csv").write_bytes(edited)
        assert "is not as the last run left it" in refused(*words(until=day(2)))
        assert contents("out.csv") == edited
        (entry,) = read_account("s/counts.state.account").states.values()
        assert entry.generation == 1  # before anything is counted
    Path("out.csv").write_bytes(before)
    night(2)
    assert Path("out.csv").read_bytes().startswith(before)


def forget(output: str) -> None:
    """Drops a table of a server: one of a file is in each folder anew."""
    if output.startswith("postgresql"):
        import psycopg

        with psycopg.connect(output.replace("&table=counts", "")) as place:
            place.execute("DROP TABLE IF EXISTS counts")


DRIVER = """
import os, signal, sys
left = int(sys.argv[1])
def counted(call):
    def run(*given, **more):
        global left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*given, **more)
    return run
from beam_dpcount.commands import ticks
from beam_dpcount.commands.app import run_main
for name in ("open", "fsync", "rename", "ftruncate", "remove"):
    setattr(os, name, counted(getattr(os, name)))
run_main(lambda _: ticks.main(sys.argv[2:]))
"""


def killed(point: int, *line: object) -> int:
    """The status of a run that is killed before so many calls of the system more."""
    run = [sys.executable, "-c", DRIVER, str(point), *map(str, line)]
    how = {"env": {**os.environ, "PYTHONPATH": str(ROOT)}, "capture_output": True}
    return subprocess.run(run, timeout=120, check=False, **how).returncode  # type: ignore[call-overload]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The address of a table of PostgreSQL."""
    try:
        with postgres.server() as place:
            yield f"postgresql://tester@/postgres?host={place}&table=counts"
    except postgres.MissingError as why:
        pytest.skip(f"no PostgreSQL: {why}")


@pytest.mark.parametrize(
    ("first", "output"),
    [
        pytest.param(True, "out.csv", id="first"),
        pytest.param(False, "out.csv", id="later"),
        pytest.param(False, "parts/", id="parts", marks=pytest.mark.long),
        pytest.param(True, SQLITE, id="sqlite-first", marks=pytest.mark.long),
        pytest.param(False, SQLITE, id="sqlite-later", marks=pytest.mark.long),
    ],
)
def test_a_night_that_is_killed_anywhere(folder: Path, first: bool, output: str) -> None:
    _killed_anywhere(folder, first, output)


@pytest.mark.long
def test_a_night_into_postgresql_that_is_killed_anywhere(folder: Path, server: str) -> None:
    _killed_anywhere(folder, True, server)


def _killed_anywhere(folder: Path, first: bool, output: str) -> None:
    """By kill -9 before each of the calls that write; then the night is run again over more rows.

    They count if nothing had left, and else they came late.
    """
    log = rows_of(0) + rows_of(1)
    write(Path("log.csv"), log)
    if not first:
        night(1, output=output)
    base = folder / "base"
    shutil.copytree(folder, base, ignore=shutil.ignore_patterns("base"))
    forget(output)
    night(2, output=output)
    whole, ends = contents(output), set[bytes]()
    for point in range(100):
        place = folder / f"killed {point}"
        shutil.copytree(base, place)
        os.chdir(place)
        forget(output)
        status = killed(point, *words(until=day(2), output=output))
        there = contents(output)
        assert first or whole.startswith(there.rstrip(b"]"))
        write(Path("log.csv"), [*log, *([f"{day(1)},/a,u1,5"] * 9)])
        night(2, output=output)
        after = contents(output)
        assert after.startswith(there.rstrip(b"]"))
        assert output == "parts/" or len(after.splitlines()) == 4 + (output == "out.csv")
        ends.add(after)
        account = read_account("s/counts.state.account")
        assert [*account.runs] == [1]
        assert [entry.tick for entry in account.states.values()] == [2]
        assert not Path("s/counts.state.next").exists()
        if status == 0:
            break
        assert status == -signal.SIGKILL
    assert point >= 10
    assert status == 0
    assert first or (len(ends) == 2 and whole in ends)


def test_an_output_that_was_half_written_is_made_whole(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Appends are not atomic: the next run cuts off what is half there."""
    write(Path("log.csv"), rows_of(0) + rows_of(1))
    night(1)
    size = len(contents("out.csv"))
    base = folder / "base"
    shutil.copytree(folder, base, ignore=shutil.ignore_patterns("base"))
    night(2)
    whole = contents("out.csv")
    os.chdir(base)

    def half(self: object, rows: object, before: object) -> None:
        Path("out.csv").write_bytes(whole[: size + 9])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(growing.Lines, "add", half)
        refused(*words(until=day(2)))
    assert contents("out.csv") != whole
    night(2)
    assert contents("out.csv") == whole


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (
            ("--epsilon", "2"),
            "--epsilon is 2.0, and --state 's/counts.state' was made with 1.0: it is fixed",
        ),
        (("--keys", "/a"), "--keys is"),
        (("--where", "page=/a"), "--where is"),
        (("--output", "b.csv"), "are in '../out.csv'"),
        (("--secret-env", "X"), "--secret-env does not go with --state"),
        (("--run-id", "X"), "--run-id does not go with --state"),
        (("--path", "streaming"), "excludes --path streaming"),
        (("--alarm", "3"), "--alarm does not go with --state"),
        (("--late", "fold"), "--late fold does not go with --state"),
        (("--output", "-"), "--output - does not go with --state"),
        (("--output", "x.parquet"), "cannot grow"),
        (("--output", "x.csv.gz"), "cannot grow"),
        (("--state", "gs://b/x"), "must be on this machine"),
        (("--state", "log.csv"), "is an input as well"),
        (("--state", "s"), "is a directory"),
        (("--state", "absent/x"), "no directory 'absent'"),
        (("--account", "out.csv"), "is an input or an output as well"),
        (("--delay", "1h"), "give either --until, a time, or --delay"),
        (("--delay", "soon"), "--delay"),
        (("--runner", "DirectRunner"), "excludes options for Beam"),
    ],
    ids=lambda given: "" if isinstance(given, str) else " ".join(given),
)
def test_what_is_refused(folder: Path, more: Sequence[str], said: str) -> None:
    write(Path("log.csv"), rows_of(0))
    night(1)
    line = list(words(until=day(2)))
    line = command_lines.without(line, more[0]) if more[0] != "--keys" else line[:-3]
    before = Path("s/counts.state.account").read_bytes()
    assert said in refused(*line, *more)
    assert Path("s/counts.state.account").read_bytes() == before


def test_a_new_state_needs_a_new_output(folder: Path) -> None:
    write(Path("log.csv"), rows_of(0))
    Path("out.csv").write_text("older\n")
    assert "--overwrite begins it anew" in refused(*words(until=day(1)))
    assert not Path("s/counts.state.account").exists()
    night(1, "--overwrite")
    assert contents("out.csv").startswith(b"key,step")
    Path("parts").mkdir()
    Path("parts/x.parquet").write_text("older")
    assert "name an empty folder" in refused(
        *words(until=day(1), state="s/b", output="parts/", account="s/counts.state.account")
    )


def test_no_tick_has_ended_yet(folder: Path) -> None:
    write(Path("log.csv"), rows_of(0))
    assert "nothing is counted or charged" in night(0)
    assert os.listdir("s") == ["counts.state.lock"]


def test_an_account_of_others(folder: Path) -> None:
    """Two states of one account are two counts; the second finds nothing left."""
    write(Path("log.csv"), rows_of(0))
    make = ("a.jsonl", "--create", "--epsilon", "1.5", "--delta", "1e-5")
    command_lines.succeed(*make, main=account_command.main)
    night(1, account="a.jsonl")
    assert "tick 2 of 10" in night(2)  # the state names its account
    line = words(until=day(1), account="a.jsonl", state="s/other", output="other.csv")
    assert "would be overspent" in refused(*line)
    assert not Path("s/other").exists()


def test_a_dry_run_and_pictures(folder: Path) -> None:
    write(Path("log.csv"), rows_of(0))
    said = night(1, "--dry-run")
    assert "1 tick would be added to out.csv" in said
    assert "a new account, s/counts.state.account" in said
    assert os.listdir("s") == []
    night(1, "--report", "page.html")
    first = Path("page.html").read_text()
    before = {name: Path("s", name).read_bytes() for name in os.listdir("s")}
    said = night(3, "--dry-run")
    assert "2 ticks would be added" in said
    assert "would cost nothing more" in said
    assert before == {name: Path("s", name).read_bytes() for name in os.listdir("s")}
    night(3, "--report", "page.html")
    assert Path("page.html").read_text() != first

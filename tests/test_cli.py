"""The command lines, end to end: real files in, files and one-line messages out."""

from __future__ import annotations

import csv
import datetime as dt
import io
import math
import os
import re
import shlex
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest

import beam_dpcount as dp
from beam_dpcount.commands import choose, demo, progress, report
from beam_dpcount.commands.pipeline import CountReleases
from beam_dpcount.transforms.ticks import TickNumbers
from tests import pictures
from tests.command_lines import (
    BUDGET,
    BUNDLES,
    EXACT,
    GRPC,
    HEALTH_TIME,
    PNG,
    ROOT,
    SECRET,
    SECRET_TEXT,
    Ended,
    Line,
    command,
    each_path,
    fail,
    health_micros,
    process,
    stddevs,
    succeed,
    written,
)
from tests.real_data import real, real_rows
from tests.runners import counters

# Key, value and microseconds of one row.
Fact = tuple[str, float, int | None]


def running_counts(facts: Sequence[Fact], by_time: bool) -> list[Line]:
    """The exact counts that the facts, in the order of the file, should give."""
    if by_time:
        facts = sorted(facts, key=lambda fact: fact[2] or 0)
    totals: dict[str, tuple[int, float]] = {}
    lines = []
    for key, value, micros in facts:
        step, total = totals.get(key, (0, 0.0))
        totals[key] = step, total = step + 1, total + value
        lines.append((key, step, micros, total))
    return sorted(lines)


# Real data


@dataclass(frozen=True)
class Data:
    """A real file, and how to count it."""

    file: str
    key: str
    time: str
    rows: int
    micros: Callable[[str], int] = lambda text: int(text) * 1_000_000
    delimiter: str = ","
    flags: tuple[str, ...] = ()
    measure: Callable[[dict[str, str]], float] = lambda row: 1

    def arguments(self) -> list[object]:
        path = real(self.file)
        return [
            *("--input", path, "--key", self.key, "--timestamp", self.time),
            *("--delimiter", self.delimiter, "--horizon", 2000, *EXACT, *self.flags),
        ]

    def expected(self, by_time: bool) -> list[Line]:
        rows = real_rows(self.file, self.delimiter)
        assert len(rows) == self.rows
        facts = [(row[self.key], self.measure(row), self.micros(row[self.time])) for row in rows]
        return running_counts(facts, by_time)


HEALTH = Data("healthapp_2k.csv", "Component", "Time", 2000, health_micros, flags=HEALTH_TIME)
SCREEN = Data(
    "healthapp_2k.csv",
    "Component",
    "Time",
    2000,
    health_micros,
    flags=(*HEALTH_TIME, "--where", "EventId=E42"),
    measure=lambda row: row["EventId"] == "E42",
)
BGL = Data("bgl_2k.csv", "Level", "Timestamp", 2000)
ALERTS = Data(
    "bgl_2k.csv",
    "Level",
    "Timestamp",
    2000,
    flags=("--where", "Label=-"),
    measure=lambda row: row["Label"] == "-",
)
# Without a value the order of the rows would not show; this noise is 0 for sums up to 2000, too.
COLLEGE = Data(
    "collegemsg.txt",
    "src",
    "time",
    59_835,
    delimiter=" ",
    flags=("--value", "dst", "--bounds", "0", "2000"),
    measure=lambda row: int(row["dst"]),
)


@each_path
@pytest.mark.parametrize(
    "data",
    [HEALTH, SCREEN, BGL, ALERTS, pytest.param(COLLEGE, marks=pytest.mark.exhaustive)],
    ids=["health", "health where", "bgl", "bgl where", "college"],
)
def test_real_data(data: Data, path: str, tmp_path: Path) -> None:
    output = tmp_path / "counts.csv"
    ended = command(*data.arguments(), "--path", path, "--output", output)
    assert ended.status == 0
    progress = r"[\d,]+ releases in \d+ s \([\d,]+/s\)\n"
    assert re.fullmatch(rf"({progress}|warning: .*\n)*", ended.err)
    # Streaming counts in the order of the file, which is the order of arrival.
    lines = written(output)
    assert len(lines) == data.rows
    assert lines == data.expected(by_time=path == "bounded")
    assert max(stddevs(output).values()) < 1e-3


@pytest.mark.long
def test_real_data_through_a_portable_job_service(tmp_path: Path) -> None:
    output = tmp_path / "counts.csv"
    portable = ("--runner", "PortableRunner", "--job_endpoint", "embed")
    succeed(*(*SCREEN.arguments(), "--output", output, *portable, "--environment_type", "LOOPBACK"))
    assert written(output) == SCREEN.expected(by_time=True)


@pytest.mark.exhaustive
def test_real_data_in_a_process_of_its_own(tmp_path: Path) -> None:
    output = tmp_path / "counts.csv"
    ended = process(*SCREEN.arguments(), "--output", output)
    assert ended.status == 0
    assert all(line.startswith("warning: ") for line in ended.err.splitlines())
    assert written(output) == SCREEN.expected(by_time=True)


# Formats


@pytest.fixture
def events(tmp_path: Path) -> Path:
    """A small file: rows out of order in time, one without a number."""
    path = tmp_path / "events.csv"
    path.write_text(
        "time,who,amount\n30,ann,2\n10,bob,1\n20,ann,5\n"
        f"40,bob,{SECRET_TEXT}\n40,bob,{SECRET}\n5,ann,0.5\n"
    )
    return path


def arguments(path: Path, *more: object) -> list[object]:
    """The usual arguments for the file of `events`, with its output beside it."""
    return [
        *("--input", path, "--key", "who", "--value", "amount", "--timestamp", "time"),
        *("--bounds", 0, 4, "--unit", 0.5, "--horizon", 10),
        *("--output", path.parent / "counts.csv", *more),
    ]


FACTS: list[Fact] = [
    ("ann", 2, 30_000_000),
    ("bob", 1, 10_000_000),
    ("ann", 4, 20_000_000),
    ("bob", 0, 40_000_000),
    ("bob", 4, 40_000_000),
    ("ann", 0.5, 5_000_000),
]


@each_path
def test_values_bounds_and_unit(events: Path, path: str) -> None:
    out = succeed(*arguments(events, *EXACT, "--path", path))
    assert written(events.parent / "counts.csv") == running_counts(FACTS, path == "bounded")
    assert f"private counts: {events.parent / 'counts.csv'}" in out
    assert "replace_one (the content of any one element, values in [0, 4])" in out
    assert "nothing is left to protect" not in out


def test_an_empty_key_is_a_key(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text('k,v\n"",1\na,1\n"",1\n')
    words = ["--input", tmp_path / "in.csv", "--key", "k", "--value", "v", "--bounds", 0, 1]
    words += ["--horizon", 10]
    succeed(*words, *EXACT, "--output", tmp_path / "out.csv")
    assert written(tmp_path / "out.csv") == [("", 1, None, 1), ("", 2, None, 2), ("a", 1, None, 1)]


def test_notes(events: Path) -> None:
    """A condition that no row meets cannot be reported: it would tell of the data."""
    words = ["--input", events, "--key", "who", "--horizon", 9, *EXACT]
    words += ["--output", events.parent / "counts.csv"]
    asked = (
        "warning: the condition is not checked against the data (--check does): check its spelling"
    )
    assert asked in succeed(*words, "--where", "amount=2").splitlines()
    assert "not checked" not in succeed(*words, "--value", "amount", "--bounds", 0, 4)


def test_mechanisms_in_any_case(events: Path) -> None:
    out = succeed(*arguments(events, "--rho", 1, "--mechanism", "binaryTREE"))
    assert "(BinaryTree, " in out


def test_one_of_something_is_no_plural() -> None:
    assert [report.many(n, "key") for n in (0, 1, 2, 1000)] == [
        "0 keys",
        "1 key",
        "2 keys",
        "1,000 keys",
    ]


def test_rows_alone_protect_nothing(events: Path) -> None:
    output = events.parent / "counts.csv"
    out = succeed("--input", events, "--key", "who", "--horizon", 9, *EXACT, "--output", output)
    assert "nothing is left to protect" in out
    assert [value for *_, value in written(output)] == [1, 2, 3, 1, 2, 3]


# Budgets and mechanisms


@pytest.mark.parametrize(
    ("flags", "budget"),
    [
        (("--epsilon", 1), dp.PureDP(1.0)),
        (("--epsilon", 1, "--delta", 1e-6), dp.ApproxDP(1.0, 1e-6)),
        (("--rho", 0.5), dp.ZCDP(0.5)),
    ],
    ids=["pure", "approximate", "concentrated"],
)
def test_the_default_mechanism_is_the_best(
    flags: tuple[object, ...], budget: Any, events: Path
) -> None:
    out = succeed(*arguments(events, *flags))
    best = dp.choose(10, budget, change=dp.Change(0, 4), unit=0.5).mechanism
    counter = dp.calibrate(best, budget, dp.Change(0, 4), unit=0.5)
    assert f"satisfy {budget} for neighbours" in out
    assert f"({best.name}, {type(counter.law).__name__} noise)" in out
    given = stddevs(events.parent / "counts.csv")
    assert len(given) == 6
    for (_, step), stddev in given.items():
        assert stddev == pytest.approx(math.sqrt(counter.variance(step)))


@pytest.mark.parametrize("horizon", [1000, 10**6])
def test_the_error_to_expect_holds_at_every_step(horizon: int, events: Path) -> None:
    """At step 2^19 - 1, say, a binary tree sums more noises than anywhere below 2^16."""
    budget = ("--rho", 0.01, "--mechanism", "BinaryTree")
    out = succeed(*arguments(events, *budget, "--horizon", horizon))
    match = re.search(r"a single count is 95 % of the time within ([\d.e+]+) of", out)
    assert match
    counter = dp.calibrate(
        dp.mechanisms.BinaryTree(horizon), dp.ZCDP(0.01), dp.Change(0, 4), unit=0.5
    )
    worst = 2 ** ((horizon + 1).bit_length() - 1) - 1
    assert counter.variance(worst) == pytest.approx(counter.max_variance())
    assert float(match[1]) >= 0.98 * dp.half_width(counter, worst, 0.95)


def test_a_run_that_stops_at_values_that_are_no_numbers_leaves_none_out(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("k,v\na,1\n")
    words = ["--input", tmp_path / "in.csv", "--key", "k", "--value", "v", "--bounds", 0, 9]
    words += ["--horizon", 9, *BUDGET, "--output", tmp_path / "out.csv", "--on-reject", "raise"]
    assert not re.search("not (a )?number", succeed(*words))


# Bad input


@pytest.mark.parametrize("runner", [(), BUNDLES], ids=["fn", "bundles"])
@each_path
def test_a_bad_value_where_it_shall_stop(runner: tuple[str, ...], path: str, events: Path) -> None:
    text = fail(*arguments(events, *BUDGET, "--on-reject", "raise", "--path", path, *runner))
    assert "the value is not a number" in text
    for place in (str(events), r"\b4\b", "column 'amount'", "drop"):
        assert re.search(place, text)
    assert "--on-reject drop" in text  # the option's name here, not the argument's in Python
    assert "(0," not in text  # no internals
    assert not (events.parent / "counts.csv").exists()


@pytest.mark.exhaustive
def test_a_bad_value_on_a_remote_worker(events: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Beam prints the worker's traceback itself; the last line is ours."""
    ended = command(*arguments(events, *BUDGET, "--on-reject", "raise", *GRPC))
    last = ended.err.splitlines()[-1]
    assert ended.status == 2
    assert last.startswith("error: column 'amount': the value is not a number")
    printed = capfd.readouterr()
    for text in (ended.err, ended.out, printed.out, printed.err):
        assert SECRET_TEXT not in text


# Rejected rows


def rejected(path: Path) -> list[list[str]]:
    """The records, header first, as a strict reader of CSV sees them."""
    with open(path, encoding="utf-8", newline="") as file:
        records = list(csv.reader(file, strict=True))
    assert len({len(record) for record in records}) == 1
    assert all(SECRET_TEXT not in cell and str(SECRET) not in cell for r in records for cell in r)
    return records


def place(records: list[list[str]], file: object, row: int) -> list[str]:
    """The reasons given for one row of one file."""
    found = []
    for *where, reason in records[1:]:
        text = " ".join(where)
        if str(file) in text and re.search(rf"\b{row}\b", text.replace(str(file), "")):
            found.append(reason)
    return found


@each_path
def test_rejected_rows_are_listed(path: str, events: Path) -> None:
    listed = events.parent / "rejected.csv"
    out = succeed(*arguments(events, *EXACT, "--rejected", listed, "--path", path))
    assert f"rejected rows (private): {listed}" in out
    records = rejected(listed)
    assert len(records) == 2
    assert place(records, events, 4) == ["the value is not a number"]
    assert written(events.parent / "counts.csv") == running_counts(FACTS, path == "bounded")


@each_path
def test_rows_past_the_horizon_are_listed(path: str, events: Path) -> None:
    listed = events.parent / "rejected.csv"
    succeed(*arguments(events, *EXACT, "--rejected", listed, "--path", path, "--horizon", 2))
    records = rejected(listed)
    late = [1, 5] if path == "bounded" else [5, 6]
    for row in late:
        (reason,) = place(records, events, row)
        assert "horizon of 2" in reason
    assert place(records, events, 4) == ["the value is not a number"]
    assert len(records) == 4


@each_path
@pytest.mark.parametrize("name", ["it's.csv", 'say "hi".csv', "a, b.csv", "both'\".csv", "ü.csv"])
def test_rejected_rows_of_files_with_odd_names(name: str, path: str, tmp_path: Path) -> None:
    file, listed = tmp_path / name, tmp_path / "rejected.csv"
    file.write_text(f"time,who,amount\n1,ann,1\n2,ann,{SECRET_TEXT}\n")
    succeed(*arguments(file, *EXACT, "--rejected", listed, "--path", path))
    records = rejected(listed)
    assert len(records) == 2
    assert place(records, file, 2) == ["the value is not a number"]


@each_path
def test_a_row_is_rejected_once(path: str, tmp_path: Path) -> None:
    file, listed = tmp_path / "events.csv", tmp_path / "rejected.csv"
    file.write_text(f"time,who,amount\n1,ann,1\n2,ann,{SECRET_TEXT}\n")
    words = arguments(file, *EXACT, "--rejected", listed, "--path", path, "--horizon", 1)
    succeed(*words)
    (reason,) = place(rejected(listed), file, 2)
    assert "horizon" in reason


def test_no_rejected_rows(tmp_path: Path) -> None:
    file, listed = tmp_path / "events.csv", tmp_path / "rejected.csv"
    file.write_text("time,who,amount\n1,ann,1\n")
    succeed(*arguments(file, *EXACT, "--rejected", listed))
    assert len(rejected(listed)) == 1


# Pictures


@pytest.mark.exhaustive
@pytest.mark.parametrize("flags", [(), ("--show-truth",)], ids=["private", "truth"])
def test_a_picture_of_the_truth_is_its_owners_alone(flags: tuple[str, ...], events: Path) -> None:
    picture = events.parent / "counts.png"
    succeed(*arguments(events, *BUDGET, "--plot", picture, *flags))
    assert picture.read_bytes().startswith(PNG)
    assert (picture.stat().st_mode & 0o077 == 0) == ("--show-truth" in flags)


def test_a_picture_of_the_truth_is_private(events: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It states no guarantee, as it shows the data."""
    drawn = pictures.caught(monkeypatch)
    words = arguments(events, *BUDGET, "--plot", events.parent / "counts.png")
    out, shown = succeed(*words), succeed(*words, "--show-truth")
    private, exact = drawn
    assert private["guarantee"].startswith("Guarantee: all releases of a key together satisfy")
    assert exact["guarantee"].startswith("PRIVATE: this picture shows the exact counts")
    assert not re.search("Guarantee|satisf|epsilon", exact["guarantee"])
    assert exact["title"].startswith("Private and exact running sums: amount (clipped")
    note = "warning: the picture shows the exact counts: it is private"
    assert note not in out
    assert note in shown.splitlines()


@each_path
@pytest.mark.parametrize("timed", [True, False], ids=["times", "steps"])
def test_the_truth_drawn_is_of_the_rows_counted(
    timed: bool, path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without noise the two curves are one: same order of rows, same clipping."""
    drawn = pictures.caught(monkeypatch)
    files = [tmp_path / "day9.csv", tmp_path / "day10.csv"]
    files[0].write_text(f"t,k,v\n3,a,4\n1,a,0.5\n2,a,{SECRET_TEXT}\n")
    files[1].write_text("t,k,v\n1,a,9\n1,a,2\n3,a,1\n")
    words = ["--input", *files, "--key", "k", "--value", "v", "--bounds", 0, 4, "--unit", 0.5]
    words += ["--timestamp", "t"] if timed else []
    words += ["--horizon", 5, "--output", tmp_path / "c.csv", "--plot", tmp_path / "c.png"]
    succeed(*words, *EXACT, "--path", path, "--show-truth")
    (how,) = drawn
    assert how["truth"] == {"a": [value for *_, value in written(tmp_path / "c.csv")]}


@pytest.mark.exhaustive
def test_the_command_needs_no_matplotlib(events: Path) -> None:
    """It is an extra, for --plot alone."""
    script = (
        "import runpy, sys\n"
        "sys.modules['matplotlib'] = None\n"
        "runpy.run_module('beam_dpcount', run_name='__main__', alter_sys=True)\n"
    )

    def without(*words: object) -> Ended:
        ended = subprocess.run(
            [sys.executable, "-c", script, "count", *map(str, words)],
            capture_output=True,
            text=True,
            timeout=60,
            cwd=ROOT,
        )
        return Ended(ended.returncode, ended.stdout, ended.stderr)

    ended = without(*arguments(events, *EXACT))
    assert (ended.status, ended.err.count("\n")) == (0, 1)
    assert ended.err.startswith("warning: weak budget: ")
    text = fail(*arguments(events, *EXACT, "--plot", events.parent / "c.png"), run=without)
    assert "matplotlib" in text


@pytest.mark.pipeline
def test_demo(tmp_path: Path) -> None:
    """It runs the mode that README recommends, and ends in three lines."""
    start = time.monotonic()
    ended = command("--directory", tmp_path / "new" / "demo", main=demo.main)
    assert time.monotonic() - start < 60
    assert ended.status == 0
    made = tmp_path / "new" / "demo"
    files = ["ticks.csv", "ticks.csv.manifest.json", "ticks.html", "ticks.png"]
    assert sorted(os.listdir(made)) == ["events.csv", *files]
    log, line, *others = ended.out.splitlines()
    assert log == f"event log (made up): {made / 'events.csv'}"
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    (readme,) = re.findall(r"(?s)\$ (beam-dpcount ticks [^`]*?[^\\])\n[`$]", page)
    for word in shlex.split(readme.replace("\\\n", " ")):
        assert word.startswith("out/") or word in shlex.split(line)
    guarantee, error, left_out = others[-3:]
    assert guarantee == (
        "Guarantee: epsilon = 1, delta = 1e-06 for one person (session) with at most 3 rows, 1 a "
        "key, over all releases of all keys in this run."
    )
    assert error.startswith("Error to expect (95 %): people is within ")
    assert left_out.endswith("unreadable; further rows of a person, and rows without one (--user).")
    assert (made / "ticks.png").read_bytes().startswith(PNG)
    assert (made / "ticks.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    # The counts follow the log: sessions that saw a page, up to three pages of a session.
    with open(made / "events.csv", encoding="utf-8", newline="") as file:
        first: dict[tuple[str, str], int] = {}
        for row in csv.DictReader(file):
            page, hour = row["page"], int(row["timestamp"][11:13])
            if page in ("/home", "/cart", "/deals"):
                first.setdefault((page, row["session"]), hour)
    seen = Counter((page, hour) for (page, _), hour in first.items())
    lines, scales = written(made / "ticks.csv"), stddevs(made / "ticks.csv")
    assert [one[:2] for one in lines] == [
        (page, step) for page in ("/cart", "/deals", "/home") for step in range(1, 25)
    ]
    errors = [
        (value - sum(seen[page, hour] for hour in range(step))) / scales[page, step]
        for page, step, _, value in lines
    ]
    # Neighbouring errors share noise: a loose check, that would notice no noise or twice as much.
    assert 0.4 < math.sqrt(sum(error * error for error in errors) / len(errors)) < 1.8


def micros_of(text: str) -> int:
    moment = dt.datetime.fromisoformat(text.replace("Z", "+00:00"))
    return round(moment.timestamp() * 1000) * 1000


# The choice


def chosen(*words: object) -> str:
    return succeed(*words, main=choose.main)


@pytest.mark.parametrize(
    ("flags", "given"),
    [
        ((), {}),
        (("--max-per-tick", 3), {"max_per_tick": 3}),
        (("--relation", "replace_one"), {"relation": "replace_one"}),
        (("--bounds", -2, 5, "--unit", 0.5), {"bounds": (-2, 5), "unit": 0.5}),
        (("--max-items", 2), {"max_items": 2}),
    ],
    ids=lambda value: "" if isinstance(value, dict) else " ".join(map(str, value)),
)
@pytest.mark.parametrize("replays", [False, True])
def test_choose_finds_what_a_clock_uses(
    replays: bool, flags: tuple[object, ...], given: dict[str, Any]
) -> None:
    out = chosen("--ticks", 100, "--rho", 0.5, *flags, *(["--replays"] if replays else []))
    path = "streaming" if replays else "auto"
    counter = TickNumbers(
        dp.ZCDP(0.5), 1, 0, horizon=100, keys=["a", "b"], path=path, **given
    ).counter
    best = out.splitlines()[2].split()
    assert best[0] == counter.mechanism.name
    assert best[2] == f"{math.sqrt(counter.max_variance()):.4g}"
    assert f"ticks 100, {counter.change};" in out


def test_choose_under_replays() -> None:
    words = ("--horizon", 1000, "--epsilon", 1)
    assert chosen(*words).splitlines()[2] != chosen(*words, "--replays").splitlines()[2]


# Processes of their own


@pytest.mark.exhaustive
def test_errors_in_a_process_of_its_own(events: Path) -> None:
    later = events.parent / "later.csv"
    later.write_text(f"time,who,amount\n1,ann,1\n{SECRET_TEXT},ann,1\n")
    assert "row 2" in fail(*arguments(later, *BUDGET), run=process)
    text = fail(*arguments(events, *BUDGET, "--on-reject", "raise"), run=process)
    assert "the value is not a number" in text
    assert "'nope'" in fail(*arguments(events, *BUDGET, "--key", "nope"), run=process)


@pytest.mark.long
def test_a_traceback_on_request(events: Path) -> None:
    ended = process(*arguments(events, *BUDGET, "--key", "nope"), BEAM_DPCOUNT_TRACEBACK="1")
    assert ended.status == 1
    assert "Traceback" in ended.err


# Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def pass_releases(batches: int, pause: float) -> Iterator[None]:
    """1000 releases at a time through the DoFn, as a worker in this process would."""
    dofn = CountReleases()
    for _ in range(batches):
        dofn.start_bundle()
        for i in range(1000):
            assert list(dofn.process(i)) == [i]
        dofn.finish_bundle()
        time.sleep(pause)
        yield


def test_progress_counts_up_on_a_terminal() -> None:
    out = Terminal()
    with progress.Progress(size=3 << 20, out=out, after=0.05, every=0.05):
        for number, _ in enumerate(pass_releases(6, 0.05)):
            progress.Progress.read = (number + 1) << 18
    text = out.getvalue()
    assert text.endswith("\n")
    assert text.count("\n") == 1
    seen = []
    for line in filter(str.strip, re.split("[\r\n]", text)):
        how = r"(?:reading [\d.]+ of 3.1 MB \(\d+%\)|counting)(?:, ([\d,]+) releases)?, \d+ s *"
        match = re.fullmatch(how, line)
        assert match, line
        seen.append(int((match[1] or "0").replace(",", "")))
    assert len(seen) >= 3
    assert seen == sorted(seen)
    assert seen[-1] >= 4000


def test_progress_is_silent_where_there_is_no_terminal() -> None:
    out = io.StringIO()
    with progress.Progress(out=out, after=0.01, every=0.01):
        list(pass_releases(6, 0.05))
    assert out.getvalue() == ""


def test_progress_is_silent_on_short_runs() -> None:
    out = Terminal()
    with progress.Progress(out=out, after=5, every=5):
        list(pass_releases(1, 0))
    assert out.getvalue() == ""


def test_progress_starts_from_0_and_ends_with_an_error() -> None:
    def failing(out: io.StringIO) -> None:
        with progress.Progress(out=out, after=0.02, every=10):
            time.sleep(0.2)
            raise KeyError

    for _ in range(2):
        out = Terminal()
        with pytest.raises(KeyError):
            failing(out)
        assert re.fullmatch(r"\rcounting, 0 s *\n", out.getvalue())
        list(pass_releases(1, 0))


def test_progress_reads_the_metric_of_other_workers() -> None:
    class Result:
        """What a runner gives while its workers elsewhere count."""

        def metrics(self) -> Any:
            return self

        def query(self, _: object) -> Any:
            return {"counters": [self, self]}

        result = 2500

    out = Terminal()
    with progress.Progress(out=out, after=0.02, every=10) as shown:
        assert isinstance(shown.watch(Result()), Result)
        time.sleep(0.2)
    assert out.getvalue().startswith("\rcounting, 5,000 releases, 0 s")
    assert progress.counted(None, "releases") == 0


def test_every_release_is_counted() -> None:
    pipeline = beam.Pipeline(runner="FnApiRunner")
    _ = pipeline | beam.Create(range(2345)) | beam.ParDo(CountReleases())
    with progress.Progress(out=io.StringIO(), after=60):
        assert counters(pipeline.run()) == {"releases": 2345}
        assert progress.Progress._seen == 2345


def test_a_directory_that_is_not_writable(events: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: mode == os.F_OK)  # root may write anywhere
    text = fail(*arguments(events, *BUDGET))
    assert f"directory {str(events.parent)!r} is not writable" in text


def test_two_runs_draw_different_noise(events: Path) -> None:
    output = events.parent / "counts.csv"
    values = []
    for _ in range(2):
        succeed(*arguments(events, "--rho", 1e-6))
        values.append(written(output))
    assert values[0] != values[1]  # equal with a probability below 1e-15
    assert [line[:3] for line in values[0]] == [line[:3] for line in values[1]]


def test_an_output_written_before_is_no_input(tmp_path: Path, monkeypatch: Any) -> None:
    """With a pattern that matches it, the second run would count the first one's releases."""
    monkeypatch.chdir(tmp_path)
    Path("in.csv").write_text("key,value\na,1\n")
    words = ["--input", "*.csv", "--key", "key", "--value", "value", "--output", "out.csv"]
    words += ["--bounds", "0", "1", "--horizon", "9"]
    succeed(*words, *EXACT)
    assert "out.csv" in fail(*words, *EXACT)


def test_two_conditions_are_refused(events: Path) -> None:
    words = ["--where", "amount=1", "--where", "who=a"]
    assert "given twice" in fail("--input", events, "--key", "who", *words)

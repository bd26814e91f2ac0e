"""Two lanes, one count: in columns, and row by row in a pipeline."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.transforms.window import GlobalWindow, IntervalWindow
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import beam_dpcount as dp
from beam_dpcount.budget.account_file import create
from beam_dpcount.commands import ticks
from beam_dpcount.commands.files import records
from beam_dpcount.commands.files.formats import Source, counted
from beam_dpcount.counters.clock import Clock
from beam_dpcount.counters.people import Bound, Seen
from beam_dpcount.dofns.ticks import window_from as beams_window
from beam_dpcount.lanes import spill
from beam_dpcount.lanes.people import counted_rows
from beam_dpcount.lanes.totals import Totals
from beam_dpcount.lanes.windows import window_from
from beam_dpcount.plans.ticks import TickNumbersPlan
from beam_dpcount.states.wire import pack_items, timed
from tests import lanes
from tests.command_lines import BUDGET, ROOT, succeed

CLOCK = ("--timestamp", "time", "--tick", 10, "--start", 100, "--horizon", 6)
SECRET = ("--secret-env", "LANES", "--run-id", "r")
KEYS = ("--key", "page", "--keys", "a", "b", "é", "")
QUIET = settings(deadline=None, suppress_health_check=[*HealthCheck])


def plan(**more: Any) -> TickNumbersPlan:
    given = {"budget": dp.ZCDP(1.0), "tick": 10, "start": 100, "horizon": 6, "keys": ["a"], **more}
    return TickNumbersPlan(**given)


def source(path: Path, value: str | None = None, where: str | None = None, **more: Any) -> Source:
    columns, measure = counted(value, where)
    given = {"timestamp": "time", "user": "user", "per_tick": True, **more}
    return Source([str(path)], given.pop("key", "page"), columns, measure, **given)


MEASURES: list[dict[str, Any]] = [{}, {"value": "ms"}, {"where": "ms=1"}, {"where": "page=a"}]
PLANS = [plan(), plan(bounds=(-2, 5), unit=0.5), plan(bounds=(0, 3))]


# Reading


@QUIET
@given(
    lanes.PAGES,
    st.lists(lanes.LINES, max_size=8),
    st.sampled_from([b"\n", b"\r\n", b"\r"]),
    st.sampled_from(MEASURES),
    st.sampled_from(PLANS),
)
def test_csv_is_read_alike(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[str, ...]],
    odd: list[bytes],
    end: bytes,
    measure: dict[str, Any],
    count: TickNumbersPlan,
) -> None:
    path = tmp_path_factory.mktemp("csv") / "in.csv"
    path.write_bytes(lanes.csv_of(rows, odd, end))
    for more in ({}, {"key": None, "user": None}, {"delimiter": "\t"}, {"multiline": True}):
        if "delimiter" in more or ("multiline" in more and odd):
            continue
        given = source(path, **measure, **more)
        assert lanes.in_columns(given, path, count) == lanes.careful(given, path, count)


def test_quoted_cells_are_read_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In columns: whole tools quote every cell."""
    lines = [f'"{100 + row}";"{"ab"[row % 2]}";"u;{row % 3}";"1"' for row in range(500)]
    path = tmp_path / "in.csv"
    path.write_text("\n".join(['"time";"page";"user";"ms"', *lines, '1;"a"";u;1', ""]))
    given = source(path, delimiter=";")
    expected = lanes.careful(given, path, plan())
    monkeypatch.setattr(records.Lines, "__call__", lambda self, line: _counted(self, line))
    assert lanes.in_columns(given, path, plan()) == expected
    assert len(CALLS) == 2


CALLS: list[str | None] = []
_read = records.Lines.__call__


def _counted(lines_: records.Lines, line: str | None) -> Any:
    CALLS.append(line)
    return _read(lines_, line)


@QUIET
@given(st.lists(lanes.ISO, max_size=30), st.sampled_from(["UTC", "Europe/Paris"]))
def test_times_are_read_alike(
    tmp_path_factory: pytest.TempPathFactory, times: list[str], zone: str
) -> None:
    path = tmp_path_factory.mktemp("iso") / "in.csv"
    path.write_bytes(lanes.csv_of([(time, "a", "u", "1") for time in times]))
    given = source(path, timestamp_format="iso", timezone=zone)
    assert lanes.in_columns(given, path, plan()) == lanes.careful(given, path, plan())


@QUIET
@given(lanes.PAGES, st.sampled_from(MEASURES), st.sampled_from(PLANS))
def test_json_and_parquet_are_read_alike(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[str, ...]],
    measure: dict[str, Any],
    count: TickNumbersPlan,
) -> None:
    folder = tmp_path_factory.mktemp("other")
    json_lines, parquet = folder / "in.jsonl", folder / "in.parquet"
    names = ("time", "page", "user", "ms")
    records = [dict(zip(names, row, strict=True)) for row in rows]
    some: list[Any] = [*records, [], 7, {"time": 110}, {"time": 110, "page": None, "user": 3}]
    json_lines.write_text(
        "\n".join(
            [*map(json.dumps, some), '{"time": 1', "\ud800".encode("utf-8", "replace").decode()]
        )
    )
    for kind in (pa.string(), pa.large_string(), pa.binary()):
        pq.write_table(lanes.as_parquet(rows, kind), parquet)
        given = source(parquet, **measure)
        assert lanes.in_columns(given, parquet, count) == lanes.careful(given, parquet, count)
    given = source(json_lines, **measure)
    assert lanes.in_columns(given, json_lines, count) == lanes.careful(given, json_lines, count)


TYPED: dict[str, pa.Array] = {
    "int": pa.array([110, None, -5, 2**62, 130], pa.int64()),
    "small": pa.array([110, None, 5, 7, 120], pa.uint8()),
    "float": pa.array([110.0, None, float("nan"), -0.0, 120.25]),
    "bool": pa.array([True, None, False, True, True]),
    "seconds": pa.array([110, None, -5, 2**50, 120], pa.timestamp("s")),
    "zoned": pa.array([110_000, None, -5, 2**61, 120_000], pa.timestamp("ms", "Europe/Paris")),
    "nanoseconds": pa.array([110_000_000_001, None, -5, 2**62, 7], pa.timestamp("ns")),
    "date": pa.array([0, None, -1, 3, 7], pa.date32()),
    "text": pa.array(["110", None, "", "7.0", "x"]),
    "broken": pa.array([b"110", None, b"\xff", b"a\xe9", b"120"], pa.binary()),
    "decimal": pa.array([110, None, 1, 2, 3]).cast(pa.decimal128(30, 2)),
}


@pytest.mark.parametrize("format", ["unix", "unix-ms", "iso"])
@pytest.mark.parametrize("zone", ["UTC", "Europe/Paris"])
def test_every_type_of_parquet_is_read_alike(format: str, zone: str, tmp_path: Path) -> None:
    """In every role, also where a few cells of a long column are odd."""
    path, texts = tmp_path / "in.parquet", pa.array(["a", "b", "a", "b", "a"])
    plain = {"time": pa.array([110, 111, 112, 113, 114]), "page": texts, "user": texts, "ms": texts}
    for name, column in TYPED.items():
        for role in plain:
            table = pa.table(plain | {role: column})
            pq.write_table(pa.concat_tables([table, table, table]), path)
            for measure in MEASURES[:3]:
                given = source(path, timestamp_format=format, timezone=zone, **measure)
                found = lanes.in_columns(given, path, PLANS[1])
                assert found == lanes.careful(given, path, PLANS[1]), (name, role)


def test_an_odd_row_does_not_send_its_batch_to_the_careful_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else one cell would make 10^5 rows slower by seconds, which whoever waits would see."""
    path, rows = tmp_path / "in.parquet", 40_000
    texts = pa.array([b"\xff" if row == 7 else b"u" for row in range(rows)], pa.binary())
    pq.write_table(pa.table({"time": [110] * rows, "page": ["a"] * rows, "user": texts}), path)
    calls: Counter[str] = Counter()
    count = plan()
    monkeypatch.setattr(TickNumbersPlan, "number", lambda self, x: calls.update("n") or 1)
    found = lanes.in_columns(source(path), path, count)
    assert sum(found.values()) == rows
    assert calls["n"] < 1000


# People


def by_taking(bound: Bound, rows: Sequence[tuple[int, int, int, int]]) -> Counter[Any]:
    """The rows (person, time, key, number) that count, by `Bound.take`."""
    found: Counter[Any] = Counter()
    seen: dict[int, Seen] = {}
    entries = sorted(
        (timed(at, pack_items(1, 0, [(key, x)])), row) for row in rows for who, at, key, x in [row]
    )
    for _, (who, at, key, x) in entries:
        if bound.take(seen.setdefault(who, Seen()), [key], at):
            found[who, at, key, x] += 1
    return found


@QUIET
@given(
    st.lists(
        st.tuples(
            st.integers(0, 3),
            st.integers(0, 12),
            st.integers(0, 3),
            st.sampled_from([1, 2, -1, -3]),
        ),
        max_size=60,
    ),
    st.integers(1, 6),
    st.integers(1, 6),
    st.integers(1, 6),
    st.sampled_from([0, 0, 1, 4]),
)
def test_people_are_bounded_alike(
    rows: list[tuple[int, int, int, int]], events: int, keys: int, per_key: int, gap: int
) -> None:
    bound = Bound(events, keys, min(per_key, events), gap)
    columns = np.array(rows, dtype=np.int64).reshape(-1, 4)
    people, micros, names, xs = (columns[:, place].copy() for place in range(4))
    left = counted_rows(bound, people, micros, names, xs)
    assert Counter(rows[row] for row in left.tolist()) == by_taking(bound, rows)
    far = micros * (1 << 57)  # people and times that do not fit one column
    if not gap:
        left = counted_rows(bound, people, far, names, xs)
        assert Counter(rows[row] for row in left.tolist()) == by_taking(bound, rows)


def test_groups_hold_all_rows_of_a_person_wherever_they_wait() -> None:
    people = [f"u{row % 97}" for row in range(1000)]
    found = []
    for memory in (1 << 30, 4000):
        waiting = spill.Waiting(memory)
        for at in range(0, 1000, 100):
            some = pa.array(people[at : at + 100])
            waiting.add(pa.RecordBatch.from_pydict({"person": some, "row": range(at, at + 100)}))
        groups = [group.to_pydict() for group in waiting.groups()]
        assert (len(groups) > 1) == (memory < 1 << 30)
        homes = {name: place for place, group in enumerate(groups) for name in group["person"]}
        for place, group in enumerate(groups):
            assert all(homes[name] == place for name in group["person"])
        found.append(
            sorted(
                (row, name) for g in groups for row, name in zip(g["row"], g["person"], strict=True)
            )
        )
    assert found[0] == found[1]


def test_files_of_people_have_no_name_and_are_private(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    waiting = spill.Waiting(1)
    waiting.add(pa.RecordBatch.from_pydict({"person": ["ann"], "row": [1]}))
    assert waiting._files
    assert [*tmp_path.iterdir()] == []


@QUIET
@given(
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from([1, -5, 2**44, -(2**44), 2**61, 2**62])))
)
def test_totals_are_exact(pairs: list[tuple[int, int]]) -> None:
    for cap in (10, 2**62):
        totals, exact = Totals(4), [0] * 4
        for cell, x in pairs:
            totals.add(np.array([cell]), np.array([x]))
            exact[cell] += x
        totals.add(
            np.array([c for c, _ in pairs], dtype=np.int64),
            np.array([x for _, x in pairs], dtype=np.int64),
        )
        exact = [2 * x for x in exact]
        assert totals.clipped(cap).tolist() == [min(max(x, -cap), cap) for x in exact]


def test_windows_are_beams_to_digests() -> None:
    grid = Clock(10, 100, 6).grid
    for clock in (grid, grid.in_windows(20_000_000, 0)):
        for origin in clock.origins():
            mine, theirs = window_from(clock, origin), beams_window(clock, origin)
            assert type(mine).__name__ == type(theirs).__name__
            assert type(theirs) in (GlobalWindow, IntervalWindow)
            assert (mine.start.micros, mine.end.micros) == (theirs.start.micros, theirs.end.micros)


# Whole commands


OPTIONS: dict[str, tuple[object, ...]] = {
    "keys": KEYS,
    "total": (),
    "values": (*KEYS, "--metric", "sum(ms, -2, 3, unit=0.5)", "--max-per-tick", 2),
    "where": ("--where", "ms=1", "--until", "1970-01-01T00:02:20Z"),
    "people": (*KEYS, "--user", "user", "--per-user", 3),
    "bounded in keys": (*KEYS, "--user", "user", "--per-user", 4, "--per-key", 2, "--max-keys", 1),
    "periods": (*KEYS, "--user", "user", "--per-user", 2, "--per", "20s"),
    "gap": ("--user", "user", "--per-user", 3, "--gap", 20, "--metric", "sum(ms, -1, 2)"),
    "stop": (*KEYS[:4], "--stop", 139, "--relation", "replace_one", "--mechanism", "BinaryTree"),
}


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    """Several files of every kind, with odd rows in each."""
    rows = [(str(100 + row), "aébx"[row % 4], f"u{row % 5}", str(row % 4)) for row in range(50)]
    lines = [b'"110","a",u1,1', b"110,a", b"\xff", b"", b"110,b,u1,1,,", b'111,"a', b"nan,a,u1,1"]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.csv.gz").write_bytes(gzip.compress(lanes.csv_of(rows, lines)))
    (tmp_path / "in" / "2.csv").write_bytes(lanes.csv_of(rows, lines, b"\r\n"))
    record = dict(zip(("time", "page", "user", "ms"), rows[0], strict=True))
    (tmp_path / "in" / "3.jsonl").write_text(json.dumps(record) + "\n{\n[]\n")
    pq.write_table(lanes.as_parquet(rows, pa.large_string()), tmp_path / "in" / "4.parquet")
    return tmp_path


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".jsonl.gz"])
@pytest.mark.parametrize("options", OPTIONS)
def test_both_lanes_write_the_same_bytes(
    options: str, suffix: str, odd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if suffix != ".csv" and options not in ("keys", "people"):
        return
    monkeypatch.setenv("LANES", "0123456789abcdef" * 4)
    if suffix == ".parquet":  # whose metadata have the time of the run
        monkeypatch.setattr("beam_dpcount.commands.manifest.text", lambda *_: '{"time": ""}')
    words = ("--input", odd / "in", *CLOCK, *BUDGET, *SECRET, *OPTIONS[options])
    first, second = lanes.both(odd, (*words, "--output", odd / f"out{suffix}"), monkeypatch)
    assert first == second


def test_accounts_do_not_tell_the_lane(odd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANES", "0123456789abcdef" * 4)
    lines = []
    for lane in ("", "for a test"):
        account = odd / f"{lane}.account"
        create(str(account), dp.ApproxDP(3.0, 1e-5), None)
        with monkeypatch.context() as patched:
            if lane:
                patched.setattr("beam_dpcount.commands.lanes._needs_rows", lambda *_, w=lane: w)
            words = ("--input", odd / "in", *CLOCK, *BUDGET, *SECRET, *KEYS, "--account", account)
            said = succeed(*words, "--output", odd / "out.csv", main=ticks.main)
            again = succeed(*words, "--output", odd / "out.csv", main=ticks.main)
            assert "this is run 1 again" in again
        records = [json.loads(line) for line in account.read_text().splitlines()]
        lines.append(
            [{n: x for n, x in r.items() if n not in ("time", "id")} for r in records]
            + [said.replace(str(account), "")]
        )
    assert lines[0] == lines[1]


def test_a_run_without_memory_gives_the_same_bytes(
    odd: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANES", "0123456789abcdef" * 4)
    words = ("--input", odd / "in", *CLOCK, *BUDGET, *SECRET, *OPTIONS["bounded in keys"])
    found = []
    for memory in ("1G", "256M", "1"):
        out = odd / "out.csv"
        succeed(*words, "--memory", memory, "--output", out, main=ticks.main)
        assert "memory" not in (odd / "out.csv.manifest.json").read_text()
        found.append(out.read_bytes())
    assert found[0] == found[1] == found[2]


def test_only_a_dry_run_tells_the_lane(odd: Path) -> None:
    words = ("--input", odd / "in", *CLOCK, *BUDGET, "--output", odd / "out.csv")
    columns, rows = "rows are counted in columns, without Beam", "rows are counted one by one"
    assert columns in succeed(*words, *KEYS, "--dry-run", main=ticks.main)
    for name, more in {
        "--select-keys": ("--key", "page", "--select-keys"),
        "--path streaming": (*KEYS, "--path", "streaming"),
        "--separator": (*KEYS, "--separator", ";", "--max-items", 1),
        "--metric": (*KEYS, "--metric", "mean(ms, 0, 5)"),
        "options for Beam": (*KEYS, "--direct_num_workers", 1),
    }.items():
        said = succeed(*words, *more, "--dry-run", main=ticks.main)
        assert f"{rows}, by a Beam pipeline ({name})" in said
    said = succeed(*words, *KEYS, main=ticks.main)
    about = (odd / "out.csv.manifest.json").read_text()
    assert not any(text in said + about for text in (columns, rows, "memory", "columns, without"))


@pytest.fixture
def hundred(tmp_path: Path) -> list[object]:
    rows = [(str(100 + row % 60), "ab"[row % 2], f"u{row}", "1") for row in range(100)]
    (tmp_path / "in.csv").write_bytes(lanes.csv_of(rows))
    words = ("--input", tmp_path / "in.csv", *CLOCK, *BUDGET, *KEYS, "--user", "user")
    return [*words, "--per-user", 2, "--overwrite", "--output", tmp_path / "out.csv"]


def test_a_run_loads_no_beam(hundred: list[object]) -> None:
    program = (
        "import sys\nfrom beam_dpcount.commands import ticks\n"
        f"ticks.main({[*map(str, hundred)]!r})\n"
        "assert 'apache_beam' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, timeout=120)


CHILD = """
import resource, subprocess, sys
subprocess.run([sys.executable, *sys.argv[1:]], check=True)
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime)
"""
LIBRARIES = "import numpy, pyarrow, pyarrow.csv, pyarrow.parquet"


@pytest.mark.slow
def test_a_hundred_rows_take_little_more_than_libraries_do(
    hundred: list[object], tmp_path: Path
) -> None:
    """CPU, with compiled files as an installation has them; in turns, the least of some runs.

    What NumPy and pyarrow take to load is 0.2 s where a hundred rows take 0.7; Beam takes 1.5 s.
    """
    env = {"PATH": "/usr/bin", "PYTHONPYCACHEPREFIX": str(tmp_path / "compiled")}
    words = {"rows": ["-m", "beam_dpcount", "ticks", *map(str, hundred)], "load": ["-c", LIBRARIES]}
    took: dict[str, list[float]] = {name: [] for name in words}
    for _ in range(6):
        for name, program in words.items():
            command = [sys.executable, "-c", CHILD, *program]
            ran = subprocess.run(
                command, cwd=ROOT, env=env, capture_output=True, text=True, check=True
            )
            took[name].append(float(ran.stdout.splitlines()[-1]))
        if min(took["rows"]) <= 4 * min(took["load"]):
            break
    assert min(took["rows"]) <= 4 * min(took["load"]), took

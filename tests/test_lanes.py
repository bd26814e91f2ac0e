"""Two lanes, one count: in columns, and row by row in a pipeline."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
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
from beam_dpcount.commands import count, ticks
from beam_dpcount.commands import lanes as lanes_of_tasks
from beam_dpcount.commands.files import formats, records
from beam_dpcount.commands.files.formats import Event, Source, value_of
from beam_dpcount.commands.tick_table import FieldsOfRow
from beam_dpcount.counters.clock import Clock
from beam_dpcount.counters.people import Bound, Seen
from beam_dpcount.dofns.windows import window_from as beams_window
from beam_dpcount.lanes import spill
from beam_dpcount.lanes.contents import Contents, Numbers, Vectors, contents_of
from beam_dpcount.lanes.people import counted_rows, firsts_of
from beam_dpcount.lanes.totals import Totals
from beam_dpcount.mechanisms.base import IntArray
from beam_dpcount.plans.sentence import TickCountPlan
from beam_dpcount.states.windows import window_from
from beam_dpcount.states.wire import pack_items, pack_keyed, timed
from beam_dpcount.statistics.numbers import Numbers as NumbersRead
from tests import command_lines, lanes
from tests.command_lines import BUDGET, ROOT, succeed

CLOCK = ("--timestamp", "time", "--tick", 10, "--start", 100, "--horizon", 6)
SECRET = ("--secret-env", "LANES", "--run-id", "r")
KEYS = ("--key", "page", "--keys", "a", "b", "é", "")
QUIET = settings(deadline=None, suppress_health_check=[*HealthCheck])


Metrics = tuple[dp.metrics.Metric, ...]


def counting(*metrics: dp.metrics.Metric) -> list[Contents]:
    """What makes columns of these metrics; alone, and each beside a count of people."""
    clock, users = dp.Clock(10, 100, 6), dp.Users("user", events=2)
    made = []
    for what in (metrics, (*metrics, dp.People())):
        given: Any = [*what]
        plan = TickCountPlan(dp.ZCDP(1.0), clock, given, keys=["a"], users=users, value=value_of)
        made += [contents_of(part) for part in plan._parts]
    return made


def source(
    path: Path, metrics: Metrics = (dp.Count(),), where: str | None = None, **more: Any
) -> Source:
    fields = dict.fromkeys(name for metric in metrics for name in metric.fields)
    numbers = frozenset(name for metric in metrics for name in metric.numbers)
    measure = FieldsOfRow(tuple(fields), numbers, where)
    given = {"timestamp": "time", "user": "user", "per_tick": True, **more}
    return Source([str(path)], given.pop("key", "page"), measure.columns, measure, **given)


def read_alike(path: Path, metrics: Metrics, **more: Any) -> None:
    """Both readers find the same events, which count the same."""
    given, contents = source(path, metrics, **more), counting(*metrics)
    assert lanes.in_columns(given, path, contents) == lanes.careful(given, path, contents)


METRICS: list[Metrics] = [
    (dp.Count(),),
    (dp.Sum("ms", -2, 5, unit=0.5),),
    (dp.Sum("ms", 0, 3, unit=1),),
    (dp.Mean("ms", -3, 4), dp.Variance("ms", 0, 2, unit=1), dp.metrics.Rate("ms > 1")),
    (
        dp.Quantiles("ms", 0, 4, [0.5, 0.9], leaves=20),
        dp.metrics.Items("page", ["a", "7", "é"]),
        dp.Quantiles("time", 1, 200, leaves=9, scale="log"),
    ),
    (dp.metrics.Rate("page = a"), dp.metrics.Rate("ms != 1", name="other")),
]
WHERE = st.sampled_from([None, "ms=1", "page=a"])


# Reading


@pytest.mark.long
@QUIET
@given(
    lanes.PAGES,
    st.lists(lanes.LINES, max_size=8),
    st.sampled_from([b"\n", b"\r\n", b"\r"]),
    st.sampled_from(METRICS),
    WHERE,
)
def test_csv_is_read_alike(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[str, ...]],
    odd: list[bytes],
    end: bytes,
    metrics: Metrics,
    where: str | None,
) -> None:
    path = tmp_path_factory.mktemp("csv") / "in.csv"
    path.write_bytes(lanes.csv_of(rows, odd, end))
    for more in ({}, {"key": None, "user": None}, {"delimiter": "\t"}, {"multiline": True}):
        if "delimiter" in more or ("multiline" in more and odd):
            continue
        read_alike(path, metrics, where=where, **more)


@QUIET
@given(
    lanes.PAGES,
    st.lists(lanes.LINES, max_size=3),
    st.sampled_from([b"\n", b"\r\n"]),
    st.sampled_from([("ms", None), (None, "ms=1"), (None, None)]),
    st.booleans(),
    st.booleans(),
)
def test_rows_per_element_are_read_alike(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[str, ...]],
    odd: list[bytes],
    end: bytes,
    measure: tuple[str | None, str | None],
    timed: bool,
    plain: bool,
) -> None:
    """In their order, or with the same words of the first that cannot be read."""
    path = tmp_path_factory.mktemp("csv") / "in.csv"
    if plain:
        rows = [(str(100 + at), *row[1:]) for at, row in enumerate(rows)]
    path.write_bytes(lanes.csv_of(rows, odd, end))
    columns, measured = formats.counted(*measure)
    how: dict[str, Any] = {"timestamp": "time" if timed else None, "user": "user"}
    given = Source([str(path)], "page", columns, measured, **how)
    count = NumbersRead(-2, 5, 0.5)
    found = [lanes.elements_read(given, path, count, columns) for columns in (True, False)]
    assert found[0] == found[1]


def test_quoted_cells_are_read_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In columns: whole tools quote every cell."""
    lines = [f'"{100 + row}";"{"ab"[row % 2]}";"u;{row % 3}";"1"' for row in range(500)]
    path = tmp_path / "in.csv"
    path.write_text("\n".join(['"time";"page";"user";"ms"', *lines, '1;"a"";u;1', ""]))
    given = source(path, delimiter=";")
    expected = lanes.careful(given, path, counting(dp.Count()))
    monkeypatch.setattr(records.Lines, "__call__", lambda self, line: _counted(self, line))
    assert lanes.in_columns(given, path, counting(dp.Count())) == expected
    assert len(CALLS) == 2


@pytest.mark.parametrize("place", [0, 1, 7])
def test_a_byte_order_mark_within_a_file_is_part_of_its_cell(place: int, tmp_path: Path) -> None:
    """Wherever lines are parsed from: else what a row counts would depend on those before it."""
    rows = [(str(100 + row), "a", "u", "1") for row in range(9)]
    lines = [",".join(row).encode() for row in rows]
    lines[place] = b"\xef\xbb\xbf" + lines[place]
    path = tmp_path / "in.csv"
    for mark in (b"", b"\xef\xbb\xbf"):
        path.write_bytes(mark + b"\n".join([b"time,page,user,ms", *lines, b""]))
        given, contents = source(path), counting(dp.Count())[:1]
        found = lanes.in_columns(given, path, contents)
        assert found == lanes.careful(given, path, contents)
        assert sum(found.values()) == len(rows) - 1
    named = b"page,time,user,ms\n" + b"".join(b"\xef\xbb\xbfa,%d,u,1\n" % (100 + n) for n in (1, 2))
    path.write_bytes(named)
    assert {key for key, *_ in lanes.in_columns(given, path, contents)} == {"\ufeffa"}


CALLS: list[str | None] = []
_read = records.Lines.__call__


def _counted(lines_: records.Lines, line: str | None) -> Any:
    CALLS.append(line)
    return _read(lines_, line)


@pytest.mark.long
@QUIET
@given(st.lists(lanes.ISO, max_size=30), st.sampled_from(["UTC", "Europe/Paris"]))
def test_times_are_read_alike(
    tmp_path_factory: pytest.TempPathFactory, times: list[str], zone: str
) -> None:
    path = tmp_path_factory.mktemp("iso") / "in.csv"
    path.write_bytes(lanes.csv_of([(time, "a", "u", "1") for time in times]))
    read_alike(path, METRICS[0], timestamp_format="iso", timezone=zone)


@pytest.mark.long
@QUIET
@given(lanes.PAGES, st.sampled_from(METRICS), WHERE)
def test_json_and_parquet_are_read_alike(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[str, ...]],
    metrics: Metrics,
    where: str | None,
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
        read_alike(parquet, metrics, where=where)
    read_alike(json_lines, metrics, where=where)


TYPED: dict[str, pa.Array] = {
    "int": pa.array([110, None, -5, 2**62, 130], pa.int64()),
    "small": pa.array([110, None, 5, 7, 120], pa.uint8()),
    "float": pa.array([110.0, None, float("nan"), -0.0, 120.25]),
    "half": pa.array([*map(np.float16, (110, 7.5, "nan", -0.0)), None], pa.float16()),
    "bool": pa.array([True, None, False, True, True]),
    "seconds": pa.array([110, None, -5, 2**50, 120], pa.timestamp("s")),
    "zoned": pa.array([110_000, None, -5, 2**61, 120_000], pa.timestamp("ms", "Europe/Paris")),
    "nanoseconds": pa.array([110_000_000_001, None, -5, 2**62, 7], pa.timestamp("ns")),
    "date": pa.array([0, None, -1, 3, 7], pa.date32()),
    "text": pa.array(["110", None, "", "7.0", "x"]),
    "broken": pa.array([b"110", None, b"\xff", b"a\xe9", b"120"], pa.binary()),
    "decimal": pa.array([110, None, 1, 2, 3]).cast(pa.decimal128(30, 2)),
}


@pytest.mark.long
@pytest.mark.parametrize("format", [None, "unix", "unix-ms", "iso"])
@pytest.mark.parametrize("zone", ["UTC", "Europe/Paris"])
def test_every_type_of_parquet_is_read_alike(format: str | None, zone: str, tmp_path: Path) -> None:
    """In every role, also where a few cells of a long column are odd."""
    path, texts = tmp_path / "in.parquet", pa.array(["a", "b", "a", "b", "a"])
    plain = {"time": pa.array([110, 111, 112, 113, 114]), "page": texts, "user": texts, "ms": texts}
    for column in TYPED.values():
        for role in plain:
            table = pa.table(plain | {role: column})
            pq.write_table(pa.concat_tables([table, table, table]), path)
            for metrics in METRICS:
                read_alike(path, metrics, timestamp_format=format, timezone=zone)


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_columns_of_floats_are_converted_together(
    kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, rows = tmp_path / "in.parquet", 500
    amounts = pa.array(np.arange(rows).astype(kind) / kind(8))
    texts = pa.array(["a"] * rows)
    pq.write_table(
        pa.table({"time": [110] * rows, "page": texts, "user": texts, "ms": amounts}), path
    )
    metrics = (dp.Sum("ms", 0, 60, unit=0.125),)
    read_alike(path, metrics)
    monkeypatch.setattr(Numbers, "of_payloads", None)
    found = lanes.in_columns(source(path, metrics), path, counting(*metrics)[:1])
    assert len(found) == 480  # amounts of 0 count nothing, and 60 and more count 60


def test_an_odd_row_does_not_send_its_batch_to_the_careful_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else one cell would make 10^5 rows slower by seconds, which whoever waits would see."""
    path, rows = tmp_path / "in.parquet", 40_000
    texts = pa.array([b"\xff" if row == 7 else b"u" for row in range(rows)], pa.binary())
    pq.write_table(pa.table({"time": [110] * rows, "page": ["a"] * rows, "user": texts}), path)
    calls: Counter[str] = Counter()
    read = Numbers.of_payloads
    monkeypatch.setattr(
        Numbers, "of_payloads", lambda self, some: calls.update(n=len(some)) or read(self, some)
    )
    contents = counting(dp.Count())[:1]
    found = lanes.in_columns(source(path), path, contents)
    assert sum(found.values()) == rows
    assert 0 < calls["n"] < 1000


# People


def by_taking(
    bound: Bound,
    rows: Sequence[tuple[int, int, Any, Any]],
    parcel: Callable[[Any, Any], bytes] = lambda key, x: pack_items(1, 0, [(key, x)]),
) -> Counter[Any]:
    """The rows (person, time, key, what counts) that count, by `Bound.take`."""
    found: Counter[Any] = Counter()
    seen: dict[int, Seen] = {}
    entries = sorted((timed(at, parcel(key, x)), row) for row in rows for who, at, key, x in [row])
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

    def ties(some: IntArray) -> list[Any]:
        return [xs[some].view(np.uint64), names[some]]

    left = counted_rows(bound, people, micros, names, ties)
    assert Counter(rows[row] for row in left.tolist()) == by_taking(bound, rows)
    far = micros * (1 << 57)  # people and times that do not fit one column
    if not gap:
        left = counted_rows(bound, people, far, names, ties)
        assert Counter(rows[row] for row in left.tolist()) == by_taking(bound, rows)


@pytest.mark.long
@QUIET
@given(
    st.lists(
        st.tuples(
            st.integers(0, 2),
            st.integers(0, 3),
            st.sampled_from(["b", "aa", "é", ""]),
            st.sampled_from([None, 0.5, 2, 3, 4.5, -1]),
            st.sampled_from([None, "a", "7"]),
        ),
        max_size=40,
    ),
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(1, 4),
    st.sampled_from([0, 2]),
)
def test_people_of_several_metrics_are_bounded_alike(
    rows: list[tuple[int, int, str, Any, Any]], events: int, keys: int, per_key: int, gap: int
) -> None:
    """Of events of one time those come first whose parcels do, whatever they add."""
    bound = Bound(events, keys, min(per_key, events), gap)
    listed = ["b", "aa", "é", ""]
    for metrics in (METRICS[3], METRICS[4], (dp.Sum("ms", -2, 2, unit=0.5), dp.Mean("ms", 1, 3))):
        vectors = counting(*metrics)[-1]
        assert isinstance(vectors, Vectors)
        payloads = [
            Event({n: x for n, x in (("ms", ms), ("page", page)) if x is not None}, "", 0)
            for *_, ms, page in rows
        ]
        contents = vectors.of_payloads(payloads)
        there = np.flatnonzero(contents[0]).tolist()
        contents = [column[there] for column in contents]
        taken = by_taking(
            bound,
            [
                (rows[row][0], rows[row][1], rows[row][2], vectors._read.added(payloads[row]))
                for row in there
            ],
            lambda key, added: pack_keyed(key, pack_items(1, 0, added)),
        )
        people, micros = (np.array([rows[row][at] for row in there], np.int64) for at in (0, 1))
        names = np.array([listed.index(rows[row][2]) for row in there], dtype=np.int64)
        ranks = vectors.ranks(listed, listed=True)

        def ties(some: IntArray, of: Any = (vectors, contents, ranks, names)) -> list[Any]:
            made, columns, (last, first), places = of
            counted = made.ties([column[some] for column in columns])
            return [last[places[some]], *counted, first[places[some]]]

        left = [there[i] for i in counted_rows(bound, people, micros, names, ties).tolist()]
        assert taken == Counter(
            (*rows[row][:3], vectors._read.added(payloads[row])) for row in left
        )


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
        found = np.clip(totals.between(0, 4), -cap, cap).tolist()
        assert found == [min(max(x, -cap), cap) for x in exact]


def test_windows_are_beams_to_digests() -> None:
    grid = Clock(10, 100, 6).grid
    for clock in (grid, grid.in_windows(20_000_000, 0)):
        for origin in clock.origins():
            mine, theirs = window_from(clock, origin), beams_window(clock, origin)
            assert type(mine).__name__ == type(theirs).__name__
            assert type(theirs) in (GlobalWindow, IntervalWindow)
            assert (mine.start.micros, mine.end.micros) == (theirs.start.micros, theirs.end.micros)


# Whole commands


VIEWS = ("--view", "each", "--view", "last 3", "--view", "restart 4")
METRICS_OF_ALL = tuple(
    word
    for metric in (
        *("count", "sum(ms, -1, 2)", "mean(ms, 0, 5, weight=2)", "variance(ms, 0, 3)"),
        *("quantiles(ms, 0, 4, 0.5, 0.9, leaves=8)", "rate(ms = 1)", "items(page, a, b)"),
    )
    for word in ("--metric", metric)
)
SELECT = ("--key", "page", "--select-keys", "--epsilon", 20, "--select-delta", "9e-7")
LEAVES = ("--hierarchy-file", "leaves.csv")
OPTIONS: dict[str, tuple[object, ...]] = {
    "keys": KEYS,
    "total": (),
    "values": (*KEYS, "--metric", "sum(ms, -2, 3, unit=0.5)", "--max-per-tick", 2),
    "where": ("--where", "ms=1", "--until", "1970-01-01T00:02:20Z"),
    "people": (*KEYS, "--user", "user", "--per-user", 3),
    "bounded in keys": (*KEYS, "--user", "user", "--per-user", 4, "--per-key", 2, "--max-keys", 1),
    "periods": (*KEYS, "--user", "user", "--per-user", 2, "--per", "20s"),
    "gap": ("--user", "user", "--per-user", 3, "--gap", 20, "--metric", "sum(ms, -1, 2)"),
    "each": (*KEYS, "--view", "each"),
    "views": (*KEYS, *VIEWS, "--user", "user", "--per-user", 3, "--per-key", 2),
    "zone": (*KEYS, "--zone", "Europe/Paris", "--view", "each"),
    "metrics": (*KEYS, *METRICS_OF_ALL),
    "clipped": (*KEYS, *METRICS_OF_ALL, "--max-per-tick", 1),
    "metrics of people": (*METRICS_OF_ALL, "--user", "user", "--per-user", 3),
    "people and others": (
        *(*KEYS, "--user", "user", "--per-user", 4, "--per-key", 2, "--view", "restart 4"),
        *("--metric", "people", "--metric", "mean(ms, 0, 5)", "--metric", "count"),
    ),
    "people once a key": (*KEYS, "--metric", "people", "--user", "user", "--per-user", 2),
    "metrics in views": (
        *(*KEYS, *METRICS_OF_ALL, *VIEWS, "--where", "page=a", "--user", "user"),
        *("--per-user", 2, "--per", "20s"),
    ),
    "a number in views": (*KEYS, *VIEWS, "--metric", "sum(ms, -2, 3, unit=0.5)", "--where", "ms=1"),
    "several keys": (*KEYS, "--separator", "1", "--max-items", 2, "--metric", "sum(ms, -2, 3)"),
    "several keys of people": (
        *(*KEYS, "--separator", "1", "--max-items", 3, "--user", "user", "--per-user", 4),
        *("--max-keys", 2, *METRICS_OF_ALL),
    ),
    "selected": (*SELECT,),
    "selected, each": (*SELECT, "--view", "each", "--at-least", 2),
    "selected, restart": (*SELECT, "--view", "restart 4", *METRICS_OF_ALL),
    "selected of people": (*SELECT, "--user", "user", "--per-user", 3, "--per-key", 2),
    "selected of people, metrics": (
        *(*SELECT, "--user", "user", "--per-user", 3, "--metric", "people"),
        *("--metric", "mean(ms, 0, 5)", "--separator", "1", "--max-items", 2, "--epsilon", 80),
    ),
    "tree": ("--key", "page", "user", *LEAVES, "--metric", "sum(ms, -1, 2)"),
    "tree of people": ("--key", "page", *LEAVES, "--user", "user", "--per-user", 3),
    "tree, restart": ("--key", "ms", "page", "user", *LEAVES, "--view", "restart 4"),
    "stop": (*KEYS[:4], "--stop", 139, "--relation", "replace_one", "--mechanism", "BinaryTree"),
}


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    """Several files of every kind, with odd rows in each."""
    pages = "a", "é1b", "b", "x1a1a1é1b"
    rows = [(str(100 + row), pages[row % 4], f"u{row % 5}", str(row % 4)) for row in range(50)]
    lines = [b'"110","a",u1,1', b"110,a", b"\xff", b"", b"110,b,u1,1,,", b'111,"a', b"nan,a,u1,1"]
    leaves = [f"{page},u{n},{n % 4}" for page in pages for n in range(5)]
    (tmp_path / "leaves.csv").write_text("\n".join(["page,user,ms", *leaves, ""]))
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
    if suffix != ".csv" and options not in ("keys", "people", "tree"):
        return
    monkeypatch.setenv("LANES", "0123456789abcdef" * 4)
    if suffix == ".parquet":  # whose metadata have the time of the run
        monkeypatch.setattr("beam_dpcount.commands.manifest.text", lambda *_: '{"time": ""}')
    given = (odd / word if word in LEAVES[1:] else word for word in OPTIONS[options])
    words = ("--input", odd / "in", *CLOCK, *BUDGET, *SECRET, *given)
    out = odd / f"out{suffix}"
    first, second = lanes.both((*words, "--output", out), monkeypatch)
    assert first == second
    if suffix == ".csv":
        assert len(out.read_text().splitlines()) > 4  # that some keys are shown


PER_ELEMENT: dict[str, tuple[object, ...]] = {
    "values": ("--value", "ms", "--bounds", -2, 3, "--unit", 0.5, "--horizon", 400),
    "where": ("--where", "ms=1", "--horizon", 400),
    "late rows": ("--value", "ms", "--bounds", 0, 3, "--horizon", 30, "--timestamp", "time"),
    "people": (
        *("--value", "ms", "--bounds", 0, 3, "--horizon", 400, "--user", "user"),
        *("--per-user", 9, "--per-key", 3, "--max-keys", 2, "--timestamp", "time"),
    ),
    "people without times": (
        "--where",
        "ms=1",
        "--horizon",
        400,
        "--user",
        "user",
        "--per-user",
        4,
    ),
    "mechanism": ("--value", "ms", "--bounds", 0, 1, "--horizon", 400, "--mechanism", "BinaryTree"),
}


@pytest.mark.parametrize("noise", ["replayed", "exact"])
@pytest.mark.parametrize("options", PER_ELEMENT)
def test_both_lanes_count_elements_alike(
    options: str, noise: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of equal times are taken in the order of files and rows, whatever they hold."""
    monkeypatch.setenv("LANES", "0123456789abcdef" * 4)
    (tmp_path / "in").mkdir()
    cells, people = ["0", "1", "2.5", "x", "", "1e1", "nan", "-7"], ["", "u", "v", "w"]
    for name, first in (("1.csv", 0), ("2.csv", 70)):
        rows = [
            (str(200 - row // 9), "abé"[row * row % 3], people[row % 4], cells[row % 8])
            for row in range(first, first + 90)
        ]
        (tmp_path / "in" / name).write_bytes(lanes.csv_of(rows))
    out = tmp_path / "out.csv"
    words = ["--input", tmp_path / "in", "--key", "page", *PER_ELEMENT[options], "--output", out]
    if noise == "replayed":
        first_, second = lanes.both((*words, *BUDGET, *SECRET), monkeypatch, count.main)
        assert first_ == second
        return
    found = []
    for needs in (lanes_of_tasks.needs_rows, lambda *_: "for a test"):
        monkeypatch.setattr(lanes_of_tasks, "needs_rows", needs)
        succeed(*words, "--rho", "1e12", "--overwrite", main=count.main)
        found.append([(k, s, at, round(v, 3)) for k, s, at, v in command_lines.written(out)])
    assert found[0] == found[1]


@pytest.mark.parametrize("noise", ["replayed", "exact"])
@pytest.mark.parametrize("timed", [True, False])
def test_blocks_of_elements_may_be_cut_anywhere(
    noise: str, timed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within a key, and between keys, whether these are released together or alone."""
    monkeypatch.setenv("LANES", "0123456789abcdef" * 4)
    names = [chr(ord("a") + row % 17) * (row % 3) for row in range(300)]
    rows = [(str(300 - row // 9), names[row], "u", str(row % 4)) for row in range(300)]
    path, out = tmp_path / "in.csv", tmp_path / "out.csv"
    path.write_bytes(lanes.csv_of(rows))
    words = ["--input", path, "--key", "page", "--value", "ms", "--bounds", 0, 3, "--output", out]
    words += ["--horizon", 9, *(["--timestamp", "time"] if timed else [])]
    words += [*BUDGET, *SECRET] if noise == "replayed" else ["--rho", "1e12"]
    found = []
    for lane, together, most in (
        ("rows", 0, 0),
        *(("", n, m) for n in (1, 20, 999) for m in (1, 7, 999)),
    ):
        with monkeypatch.context() as patched:
            if lane:
                patched.setattr(lanes_of_tasks, "needs_rows", lambda *_, w=lane: w)
            else:
                patched.setattr("beam_dpcount.lanes.elements._TOGETHER", together)
                patched.setattr("beam_dpcount.commands.files.tables.SLICE", most)
            succeed(*words, "--overwrite", main=count.main)
        written = command_lines.written(out)
        digits = 9 if noise == "replayed" else 3
        found.append([(key, step, at, round(x, digits)) for key, step, at, x in written])
    assert len(found[0]) > 200
    assert all(one == found[0] for one in found)


def test_accounts_do_not_tell_the_lane(odd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANES", "0123456789abcdef" * 4)
    lines = []
    for lane in ("", "for a test"):
        account = odd / f"{lane}.account"
        create(str(account), dp.ApproxDP(3.0, 1e-5), None)
        with monkeypatch.context() as patched:
            if lane:
                patched.setattr("beam_dpcount.commands.lanes.needs_rows", lambda *_, w=lane: w)
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
        "--path streaming": (*KEYS, "--path", "streaming"),
        "people who are active": (
            *(*KEYS, "--metric", "people", "--user", "user", "--per-user", 2),
            *("--view", "last 2"),
        ),
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


@pytest.mark.long
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


@pytest.mark.long
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


@pytest.mark.parametrize("last", [1 << 43, (1 << 44) - 1, 1 << 44, 1 << 52])
def test_codes_of_many_people_and_names_do_not_meet(last: int) -> None:
    """Products beyond 64 bits would, and one event of the last name would decide about it."""
    people = np.arange((1 << 20) + 1, dtype=np.int64)
    names = np.zeros(len(people), dtype=np.int64)
    names[5] = last
    at = np.zeros(len(people), dtype=np.int64)
    left = counted_rows(Bound(2, 2, 1, 0), people, at, names, lambda some: [])
    assert len(left) == len(people)
    assert firsts_of(people, names).all()
    once = counted_rows(Bound(2, 2, 1, 0), people // 2, at, names, lambda some: [])
    assert len(once) == (1 << 19) + 2  # one person under two names

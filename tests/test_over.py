"""Data frames: the releases of a pipeline over their rows, as a table."""

from __future__ import annotations

import json
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pytest

import beam_dpcount as dp
from beam_dpcount.checks import ParameterError
from beam_dpcount.transforms import frames

HOURS = dp.Clock("1h", start=0, ticks=4)
ROWS: list[dict[str, Any]] = [
    {"page": "ab"[row % 2], "ts": 400 * row, "who": f"u{row % 7}", "ms": row % 5 - 1.5}
    for row in range(40)
]
ROWS += [
    {"page": None, "ts": 10, "who": "u1", "ms": 1.0},
    {"page": "a", "ts": None, "who": "u1", "ms": 1.0},
    {"page": "a", "ts": 10, "who": None, "ms": 1.0},
    {"page": "a", "ts": 10, "who": "", "ms": float("nan")},
    {"page": "z", "ts": 10, "who": "u2", "ms": None},
]
COUNTS: dict[str, dict[str, Any]] = {
    "keys": {"keys": ["a", "b"]},
    "total": {"keys": dp.TOTAL},
    "other": {"keys": ["b", "x"], "other": "x"},
    "sum": {"what": dp.Sum("ms", -1, 2, unit=0.5), "keys": ["a"]},
    "people": {"keys": ["a", "b"], "users": dp.Users("who", events=3, per_key=2)},
    "apart": {"keys": ["a", "b"], "users": dp.Users("who", events=3, gap=900)},
    "periods": {"keys": ["a", "b"], "users": dp.Users("who", events=2, per="2h")},
    "each": {"clock": HOURS.each(), "keys": ["a", "b"]},
    "last": {"clock": HOURS.last(2), "keys": ["a"], "users": dp.Users("who", events=3)},
    "restart": {"clock": HOURS.restart(2), "keys": ["a"], "users": dp.Users("who", 2, per_key=1)},
    "of people": {"what": dp.People(), "keys": ["a"], "users": dp.Users("who", events=2)},
}


@pytest.fixture(autouse=True)
def _secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OVER", "0123456789abcdef" * 4)


def count(name: str = "keys", **more: Any) -> dp.TickCount:
    given = {"budget": dp.ApproxDP(1.0, 1e-6), "clock": HOURS, **COUNTS[name], **more}
    return dp.TickCount(**given)


def replayable() -> dp.ReplayableEntropy:
    return dp.ReplayableEntropy("OVER", run_id="r")


def table(rows: list[dict[str, Any]] = ROWS) -> pa.Table:
    return pa.Table.from_pylist(rows)


@pytest.mark.parametrize("name", COUNTS)
def test_releases_are_those_of_a_pipeline_to_the_bit(name: str) -> None:
    key = None if name == "total" else "page"
    named = count(name, entropy=replayable(), time="ts", key=key)
    events = beam.Create(ROWS, reshuffle=False)
    with beam.Pipeline("FnApiRunner") as pipeline:
        found: list[Any] = []
        _ = pipeline | events | named | beam.Map(lambda r: _kept(r))
    mine = named.over(table()).to_pylist()
    column = named.columns[0]
    epoch = [row["timestamp"].timestamp() for row in mine]
    assert [
        (row["key"], row["step"], round(at * 10**6), row[column], row[f"{column}_stddev"])
        for row, at in zip(mine, epoch, strict=True)
    ] == KEPT
    assert found == []


KEPT: list[Any] = []


def _kept(release: Any) -> None:
    KEPT.append((release.key, release.step, release.timestamp, release.value, release.stddev))


@pytest.fixture(autouse=True)
def _nothing_kept() -> None:
    KEPT.clear()


def test_every_kind_of_table_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    pandas = pytest.importorskip("pandas")
    plain = table()
    frame = plain.to_pandas()
    timed = frame.assign(ts=pandas.to_datetime(frame["ts"], unit="s", utc=True))
    kinds = [
        plain,
        plain.to_batches()[0],
        pa.RecordBatchReader.from_batches(plain.schema, plain.to_batches(7)),
        frame.assign(page=frame["page"].astype("category")),
        timed,
    ]
    found = [count("people", entropy=replayable()).over(t, key="page", time="ts") for t in kinds]
    assert all(each.equals(found[0]) for each in found)
    local = timed.assign(ts=timed["ts"].dt.tz_localize(None))
    with pytest.raises(ParameterError, match="times without a time zone"):
        count().over(local, key="page", time="ts")
    zoned = dp.Clock("1h", start=0, ticks=4, zone="UTC")
    assert count(clock=zoned).over(local, key="page", time="ts").num_rows == 8


def test_no_cell_stops_anything_or_moves_another_row() -> None:
    """Of texts that are not UTF-8, times beyond the calendar, and whatever else."""
    schema = table().schema
    broken = pa.array([b"\xff\xfe", b"a"], pa.binary()).view(pa.string())
    times = pa.array([10, 2**62], pa.int64())
    names = pa.array(["u1", None])
    hostile = pa.record_batch([broken, times, names, pa.array([1.0, 2.0])], schema=schema)
    whole = pa.RecordBatchReader.from_batches(schema, [hostile, *table().to_batches(), hostile])
    how = {"key": "page", "time": "ts"}
    expected = count("people", entropy=replayable()).over(table(), **how)
    assert count("people", entropy=replayable()).over(whole, **how).equals(expected)


def test_a_second_release_is_charged_repeats_or_is_refused() -> None:
    how: dict[str, Any] = {"key": "page", "time": "ts"}
    plain = count()
    about = json.loads(plain.over(table(), **how).schema.metadata[b"beam_dpcount"])
    assert about["again"] == frames.ANEW
    with pytest.raises(ParameterError, match="has released once"):
        plain.over(table(), **how)
    ledger = dp.Ledger(dp.ApproxDP(1.0, 1e-6), name="shop")
    shared = count(budget=ledger.share(0.25))
    about = json.loads(shared.over(table(), **how).schema.metadata[b"beam_dpcount"])
    assert about["again"] == frames.CHARGED.format(ledger="shop")
    with pytest.raises(ValueError, match="share"):
        shared.over(table(), **how)
    again = count(entropy=replayable())
    first, second = (again.over(table(), **how) for _ in range(2))
    assert first.equals(second)
    assert json.loads(first.schema.metadata[b"beam_dpcount"])["again"] == frames.REPEATS


def test_a_table_that_cannot_be_read_spends_nothing() -> None:
    ledger = dp.Ledger(dp.ApproxDP(1.0, 1e-6))
    shared = count(budget=ledger.share(0.25))
    for wrong, how, said in (
        (ROWS, {"key": "page", "time": "ts"}, "cannot be read as columns"),
        (table(), {"key": "pgae", "time": "ts"}, "is no column"),
        (table(), {"key": "page"}, "names no column"),
    ):
        given: Any = how
        with pytest.raises(ParameterError, match=said):
            shared.over(wrong, **given)
    assert shared.over(table(), key="page", time="ts").num_rows == 8


@pytest.mark.parametrize(
    "more",
    [
        {"keys": dp.SelectKeys()},
        {"what": [dp.Count(), dp.Mean("ms", 0, 1)]},
        {"value": len},
        {"on_unknown": "raise"},
        {"path": "streaming"},
    ],
    ids=str,
)
def test_what_over_does_not_count_is_said(more: dict[str, Any]) -> None:
    with pytest.raises(ParameterError, match="over"):
        count(**more).over(table(), key="page", time="ts")

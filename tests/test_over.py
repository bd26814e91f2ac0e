"""Data frames: the releases of a pipeline over their rows, as a table."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from traceback import format_exception
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pytest

import beam_dpcount as dp
from beam_dpcount.budget.account_file import create
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
    "selected": {"keys": dp.SelectKeys(delta=1e-7), "budget": dp.ApproxDP(20.0, 1e-6)},
}
SEVERAL: dict[str, dict[str, Any]] = {
    "metrics": {
        "what": [
            dp.Count(),
            dp.Mean("ms", -1, 2),
            dp.Rate("ms > 0"),
            dp.Quantiles("ms", -2, 3, [0.5]),
        ],
        "keys": ["a", "b"],
    },
    "items": {"what": dp.Items("page", ["a", "b"]), "keys": dp.TOTAL},
    "views": {"clock": [HOURS.each(), HOURS.last(2), HOURS.restart(2)], "keys": ["a", "b"]},
    "of both": {
        "what": [dp.People(), dp.Sum("ms", -1, 2)],
        "clock": [HOURS, HOURS.each()],
        "keys": ["a", "b"],
        "users": dp.Users("who", events=3, per_key=2),
    },
    "of selected": {
        "what": [dp.Count(), dp.Mean("ms", -1, 2)],
        "keys": dp.SelectKeys(delta=1e-7),
        "budget": dp.ApproxDP(40.0, 1e-6),
    },
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


def test_times_as_text_count_in_a_pipeline_and_in_a_frame_as_numbers_do() -> None:
    """Seconds, also decimal ones, which are read one by one; and with them times in ISO 8601."""
    numbers = [row | {"ts": None if row["ts"] is None else row["ts"] + 0.5} for row in ROWS]
    texts = [row | {"ts": None if row["ts"] is None else str(row["ts"])} for row in numbers]
    texts[3]["ts"] = "1970-01-01T00:20:00.500000+00:00"
    assert numbers[3]["ts"] == 1200.5
    named = count("apart", entropy=replayable(), time="ts", key="page")
    with beam.Pipeline("FnApiRunner") as pipeline:
        _ = pipeline | beam.Create(texts, reshuffle=False) | named | beam.Map(lambda r: _kept(r))
    mine = named.over(table(texts))
    assert [value for *_, value, _ in KEPT] == mine[named.columns[0]].to_pylist()
    assert mine.equals(named.over(table(numbers)))


@pytest.mark.parametrize("name", SEVERAL)
def test_releases_of_several_numbers_are_those_of_a_pipeline_to_the_bit(name: str) -> None:
    given = {**SEVERAL[name], "key": None if name == "items" else "page", "time": "ts"}
    named = count(entropy=replayable(), **given)
    events = beam.Create(ROWS, reshuffle=False)
    with beam.Pipeline("FnApiRunner") as pipeline:
        _ = pipeline | events | named | beam.Map(_kept_whole)
    mine = named.over(table()).to_pylist()
    assert len(mine) == len(KEPT) > 3
    for row, release in zip(mine, KEPT, strict=True):
        assert (row["key"], row["step"]) == (release.key, release.step)
        assert round(row["timestamp"].timestamp() * 10**6) == release.timestamp
        for column in named.columns:
            found = [release.values, release.lows, release.highs, release.stddevs]
            ends = ("", "_low", "_high", "_stddev")
            for end, numbers in zip(ends, found, strict=True):
                if f"{column}{end}" in row:
                    assert row[f"{column}{end}"] == numbers[column]


KEPT: list[Any] = []


def _kept_whole(release: Any) -> None:
    KEPT.append(release)


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
        frame.assign(ts=frame["ts"].astype(str)),  # seconds as text
        frame.assign(ts=timed["ts"].dt.strftime("%Y-%m-%dT%H:%M:%SZ")),
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


def test_of_two_calls_at_once_one_releases() -> None:
    """A reader may take long, and call `over` itself."""
    counting, batches = count(), table().to_batches(10)
    released = []

    def nested() -> Iterator[pa.RecordBatch]:
        yield batches[0]
        released.append(counting.over(table(), key="page", time="ts"))
        yield from batches[1:]

    reader = pa.RecordBatchReader.from_batches(table().schema, nested())
    with pytest.raises(ParameterError, match="has released once"):
        counting.over(reader, key="page", time="ts")
    assert len(released) == 1


def test_texts_beyond_their_dictionary_are_none() -> None:
    texts = pa.DictionaryArray.from_arrays(pa.array([0, 7, 0]), pa.array(["7"]), safe=False)
    broken = pa.table({"page": texts, "ts": [10] * 3, "who": [1, 2, 3]})
    assert counted(broken, keys=["7"]) == [2] * 4


def test_a_frame_of_a_class_that_raises_is_refused_without_its_words() -> None:
    pandas = pytest.importorskip("pandas")

    class Strange(pandas.DataFrame):  # type: ignore[misc,name-defined]
        def __getitem__(self, name: object) -> object:
            raise RuntimeError("a cell")

    with pytest.raises(ParameterError, match="broke off") as caught:
        counted(Strange(PLAIN))
    assert "a cell" not in "".join(format_exception(caught.value))


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


def exact(**more: Any) -> dp.TickCount:
    """Nearly without noise."""
    return count("people", budget=dp.ZCDP(1e12), **more)


def counted(frame: object, *, key: str = "page", **more: Any) -> list[int]:
    released = exact(**more).over(frame, key=key, time="ts")
    return [round(row) for row in released["count"].to_pylist()]


def test_a_reader_that_breaks_off_releases_nothing_and_spends_nothing() -> None:
    """Else one cell would take all rows behind it away."""
    batches = table().to_batches(10)

    def broken() -> Iterator[pa.RecordBatch]:
        yield batches[0]
        int("u1's secret")  # as of a reader that parses as it goes
        yield batches[1]

    counting = count()
    for _ in range(2):  # and the count may be asked again
        reader = pa.RecordBatchReader.from_batches(table().schema, broken())
        with pytest.raises(ParameterError, match="broke off") as caught:
            counting.over(reader, key="page", time="ts")
        assert "secret" not in "".join(format_exception(caught.value))
    assert counting.over(table(), key="page", time="ts").num_rows == 8


PLAIN: dict[str, list[Any]] = {"page": [7, 8] * 6, "ts": [10] * 12, "who": [1, 2, 3, 4] * 3}


@pytest.mark.parametrize(
    "row",
    [
        {"page": None},
        {"page": "x"},
        {"page": 2**70},
        {"page": 7.5},
        {"who": None},
        {"who": "ann \udc80"},
        {"who": b"7"},
        {"ts": None},
        {"ts": "soon"},
        {"ts": 2**70},
        {"note": 2**70},
        {"note": {"a": [1]}},
    ],
    ids=ascii,
)
def test_a_cell_of_pandas_decides_over_its_own_row_alone(row: dict[str, Any]) -> None:
    """Whatever type it gives its column."""
    pandas = pytest.importorskip("pandas")
    names = ("page", "ts", "who", "note")
    plain = pandas.DataFrame({**PLAIN, "note": "x"})
    own = dict(zip(names, (9, 20, 99, "x"), strict=True)) | row
    more = pandas.DataFrame(
        {name: pandas.Series([*plain[name].tolist(), own[name]]) for name in names}
    )
    listed: dict[str, Any] = {"keys": ["7", "8"], "users": dp.Users("who", events=3)}
    assert counted(more, **listed) == counted(plain, **listed) == [6] * 8


def test_whole_numbers_may_be_floats_in_frames_only_where_no_two_are_one() -> None:
    whole = pa.table({"page": [7.0, 7.0, 2.0**53, None], "ts": [10] * 4, "who": [1.0, 2.0, 3, 4]})
    assert counted(whole, keys=["7", str(2**53)]) == [2] * 4 + [0] * 4


def test_columns_are_part_of_the_noise_and_of_the_claim() -> None:
    """Else two columns that are equal up to a tick would show where they differ."""
    both = table().append_column("site", table()["page"])
    first, second = (
        count(entropy=replayable()).over(both, key=key, time="ts") for key in ("page", "site")
    )
    assert not first.equals(second)
    named = count(entropy=replayable(), key="page", time="ts")
    assert named.over(both).equals(first)


def test_a_ledger_knows_that_a_period_is_protected() -> None:
    ledger = dp.Ledger(dp.ApproxDP(1.0, 1e-6))
    share = ledger.share(0.5)
    count("periods", budget=share).over(table(), key="page", time="ts")
    assert ledger.epsilon_at(1e-6, unit="period", periods=2) > 1.5 * ledger.epsilon_at(
        1e-6, unit="period"
    )
    with pytest.raises(ValueError, match="one period of a person"):
        ledger.epsilon_at(1e-6, unit="person")


def test_a_ledger_for_jobs_that_go_on_is_refused(tmp_path: Path) -> None:
    """A call goes on from nothing, so that its noise would be new and free."""
    file = str(tmp_path / "account.jsonl")
    create(file, dp.ApproxDP(1.0, 1e-5), None)
    budget, names = dp.ApproxDP(1.0, 1e-5), ["page", "ts"]
    for resumes in (False, True):
        ledger = dp.Ledger(budget, account=file, run="r", resumes=resumes, protected=names)
        counting = count(budget=ledger.rest())
        if resumes:
            with pytest.raises(ParameterError, match="begins anew in each call"):
                counting.over(table(), key="page", time="ts")
        else:
            counting.over(table(), key="page", time="ts")


@pytest.mark.parametrize("name", ["each", "last", "restart"])
def test_a_clock_without_an_end_takes_the_memory_of_the_ticks_that_have_ended(name: str) -> None:
    endless = dp.Clock("1s", start=0)
    view = {"each": endless.each(), "last": endless.last(3), "restart": endless.restart(4)}[name]
    counting = count(clock=view, until=6, keys=["a"])
    tracemalloc.start()
    assert counting.over(table(), key="page", time="ts").num_rows == 6
    assert tracemalloc.get_traced_memory()[1] < 50e6
    tracemalloc.stop()


@pytest.mark.parametrize(
    "more",
    [
        {"what": dp.Sum(low=0, high=1)},
        {"what": dp.Rate(lambda event: True)},
        {"what": dp.People(), "clock": HOURS.last(2), "users": dp.Users("who", changes=4)},
        {"value": len},
        {"on_unknown": "raise"},
        {"path": "streaming"},
    ],
    ids=str,
)
def test_what_over_does_not_count_is_said(more: dict[str, Any]) -> None:
    with pytest.raises(ParameterError, match=r"over|what"):
        count(**more).over(table(), key="page", time="ts")

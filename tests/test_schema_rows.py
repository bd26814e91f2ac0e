"""Counts of rows: fields by name in, schema rows out, in Beam's own terms.

No postponed annotations here: Beam would turn every field into a logical type.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple, Optional

import apache_beam as beam
import numpy as np
import pyarrow.parquet as pq
import pytest
from apache_beam.coders import RowCoder
from apache_beam.coders.typecoders import registry
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.pvalue import Row

import beam_dpcount as dp
from beam_dpcount.rows import (
    CountRow,
    HistogramRows,
    ItemRow,
    PrefixCountRows,
    TickCountRows,
)
from tests.runners import run

ROOT = Path(__file__).resolve().parents[1]
SECOND = 1_000_000
EXACT = {"rho": "1e12"}  # its noise is 0
CLOCK: dict[str, Any] = {"tick": "1m", "start": "0", "horizon": "3", "keys": ["a", "b"]}
AT: dict[str, Any] = {"timestamp": "at"}


class Event(NamedTuple):
    page: Optional[str]  # noqa: UP045  (a row schema on Python 3.10)
    at: Optional[str]  # noqa: UP045
    amount: Optional[float]  # noqa: UP045
    user: Optional[int]  # noqa: UP045
    bought: bool
    number: int


registry.register_coder(Event, RowCoder)
EVENTS = [
    Event("a", "1970-01-01T00:00:10Z", 2.0, 1, True, 7),
    Event("a", "1970-01-01T00:00:20Z", 9.0, 1, False, 7),
    Event("b", "1970-01-01T00:01:30Z", None, None, True, 8),
    Event("b", "1970-01-01T00:01:40Z", float("nan"), 2, True, 8),
    Event("c", "1970-01-01T00:01:50Z", 1.0, 3, True, 9),
    Event("a", "1970-01-01T00:02:10Z", 1.0, 2, True, 9),
]
UNREADABLE = [
    Event(None, "1970-01-01T00:00:10Z", 1.0, 4, True, 1),
    Event("a", None, 1.0, 5, True, 1),
    Event("a", "yesterday", 1.0, 6, True, 1),
    Event("a", "2970-01-01T00:00:10Z", 1.0, 7, True, 1),
]


def counted(transform: Any, events: list[Event] = EVENTS) -> list[Any]:
    """What comes out, in order."""
    create = beam.Create(events, reshuffle=False).with_output_types(Event)
    return [seen.value for seen in run(lambda p: p | create | transform).outputs[0]]


def values(rows: list[Any], name: str = "value") -> dict[tuple[str, int], float]:
    return {(row.key, row.step): getattr(row, name) for row in rows}


# Counts


@pytest.mark.pipeline
def test_every_row_has_a_release() -> None:
    rows = counted(
        PrefixCountRows("page", "amount", "9", bounds=["0", "5"], unit="0.5", **AT, **EXACT)
    )
    assert {type(row) for row in rows} == {CountRow}
    assert values(rows) == {
        **{("a", 1): 2.0, ("a", 2): 7.0, ("a", 3): 8.0},
        **{("b", 1): 0.0, ("b", 2): 0.0, ("c", 1): 1.0},
    }
    assert {(row.key, row.step): row.timestamp for row in rows}["b", 2] == 100 * SECOND
    assert {(row.window_start, row.window_end) for row in rows} == {(None, None)}


@pytest.mark.pipeline
def test_rows_without_a_time_have_none() -> None:
    rows = counted(PrefixCountRows("page", "bought", 9, **EXACT))
    assert values(rows)["b", 2] == 2
    assert {row.timestamp for row in rows} == {None}


@pytest.mark.pipeline
def test_a_row_without_a_public_key_stops_the_count_of_elements() -> None:
    with pytest.raises(Exception, match="key"):
        counted(PrefixCountRows("page", "bought", 9, **EXACT), [*EVENTS, UNREADABLE[0]])


@pytest.mark.pipeline
def test_whole_numbers_are_keys_and_items_too() -> None:
    rows = counted(HistogramRows("number", "number", [7, 8], 9, **EXACT))  # type: ignore[list-item]
    assert {type(row) for row in rows} == {ItemRow}
    last = {(row.key, row.item): row.value for row in rows}
    assert last["7", "7"] == last["8", "8"] == 2
    assert last["9", "8"] == 0
    assert [row.item for row in rows[:4]] == ["7", "8"] * 2


@pytest.mark.pipeline
@pytest.mark.parametrize("path", ["bounded", "streaming"])
def test_a_clock_counts_rows_and_drops_what_cannot_be_read(path: str) -> None:
    transform = TickCountRows("page", **CLOCK, **AT, **EXACT, path=path)
    rows = counted(transform, [*EVENTS, *UNREADABLE])
    assert values(rows, "count") == {
        **{("a", 1): 2, ("a", 2): 2, ("a", 3): 3},
        **{("b", 1): 0, ("b", 2): 2, ("b", 3): 2},
    }
    assert {row.timestamp for row in rows if row.step == 3} == {180 * SECOND}


@pytest.mark.pipeline
def test_a_clock_sums_values_and_collects_other_keys() -> None:
    options = {"metrics": ["sum(amount, 0, 5)"], "other": "b", **CLOCK, **AT, **EXACT}
    rows = values(counted(TickCountRows("page", **options)), "sum_amount")
    assert (rows["a", 3], rows["b", 3]) == pytest.approx((8, 1), abs=1e-3)


@pytest.mark.pipeline
def test_people_are_bounded_and_nobody_is_left_out() -> None:
    options = {"user": "user", "per_user": "1", **CLOCK, **AT, **EXACT}
    rows = values(counted(TickCountRows("page", **options)), "count")
    assert (rows["a", 3], rows["b", 3]) == (1, 1)  # user 2 in b first; null is nobody


@pytest.mark.pipeline
def test_keys_need_not_be_listed() -> None:
    clock = {**CLOCK, "keys": None}
    transform = TickCountRows("page", **clock, **AT, **EXACT, select_keys=True, select_delta="1e-9")
    assert {row.key for row in counted(transform)} == {"a", "b"}  # one event shows no key


@pytest.mark.pipeline
def test_views_are_columns_and_a_count_needs_no_key() -> None:
    clock = {"tick": "1m", "start": "0", "horizon": "3", **AT, **EXACT}
    rows = counted(TickCountRows(views=["each", "last 2m", "restart 2"], **clock), EVENTS)
    names = ("step", "restart", "count_each", "count_last_2", "count")
    found = [(row.key, *(round(getattr(row, name), 2) for name in names)) for row in rows]
    assert found == [("all", 1, 1, 2, 2, 2), ("all", 2, 1, 3, 5, 5), ("all", 3, 2, 1, 4, 1)]
    with pytest.raises(ValueError, match="keys needs key, which has the keys"):
        TickCountRows(keys=["a"], **clock)
    with pytest.raises(ValueError, match="give either view or views, not both"):
        TickCountRows(view="each", views=["each"], **clock)


@pytest.mark.pipeline
def test_several_metrics_are_columns() -> None:
    metrics: list[Any] = [
        "count",
        {"metric": "mean", "field": "amount", "low": "0", "high": 5},
        "people",
        {"metric": "rate", "where": "bought = true"},
        {"metric": "rate", "where": "amount > 1.5", "name": "large", "floor": "1"},
        {"metric": "items", "field": "user", "domain": ["1", "2", "or else"]},
    ]
    people = {"user": "user", "per_user": 3, "per_key": 3}
    transform = TickCountRows("page", metrics=metrics, **CLOCK, **AT, **people, **EXACT)
    rows = {(row.key, row.step): row for row in counted(transform, [*EVENTS, *UNREADABLE])}
    last = rows["a", 3]
    assert (last.start, last.timestamp) == (120 * SECOND, 180 * SECOND)
    assert (last.count, last.people) == pytest.approx((3, 2), abs=1e-3)
    assert last.mean_amount == pytest.approx(8 / 3, abs=1e-3)
    assert last.mean_amount_low <= last.mean_amount <= last.mean_amount_high
    assert last.count_stddev is not None
    assert not hasattr(last, "mean_amount_stddev")
    assert (last.rate, last.large) == pytest.approx((2 / 3, 2 / 3), abs=1e-3)
    assert [last.count_1, last.count_2] == pytest.approx([2, 1], abs=1e-3)
    assert last.count_or_else == pytest.approx(0, abs=1e-3)
    assert rows["b", 2].mean_amount is None


# What is refused


class Typed(NamedTuple):
    page: str
    price: float
    word: str
    flag: bool


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "misspelt": (lambda: TickCountRows("pgae", **CLOCK, **EXACT), "did you mean 'page'?"),
    "absent": (lambda: TickCountRows("key", **CLOCK, **EXACT), "they have page, price, word"),
    "key": (lambda: TickCountRows("price", **CLOCK, **EXACT), "texts or whole numbers"),
    "flag": (lambda: TickCountRows("flag", **CLOCK, **EXACT), "texts or whole numbers"),
    "value": (lambda: PrefixCountRows("page", "word", 9, **EXACT), "must hold numbers"),
    "user": (
        lambda: TickCountRows("page", **CLOCK, **EXACT, user="price", per_user=1),
        "user: field 'price' is of type float64",
    ),
    "time": (lambda: TickCountRows("page", **CLOCK, **EXACT, timestamp="flag"), "must hold times"),
    "item": (lambda: HistogramRows("page", "price", ["a"], 9, **EXACT), "item: field 'price'"),
    "id": (lambda: PrefixCountRows("page", "price", 9, **EXACT, id="ID"), "id: the rows have no"),
    "metric": (
        lambda: TickCountRows(
            "page", **CLOCK, **EXACT, metrics=[{"metric": "sum", "field": "word", "high": 5}]
        ),
        "metrics: field 'word'",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_fields_are_refused_when_the_pipeline_is_built(name: str) -> None:
    made, message = WRONG[name]
    rows = beam.Create([Typed("a", 1.0, "b", True)]).with_output_types(Typed)
    with pytest.raises((ValueError, TypeError), match="field") as caught:
        _ = beam.Pipeline("FnApiRunner") | rows | made()
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"epsilon": "much"},
            "epsilon must be a positive, finite number, got 'much': give e.g. epsilon=1",
        ),
        ({"epsilon": True}, "epsilon must be a positive, finite number, got True"),
        ({"epsilon": 1, "rho": 1}, "not both"),
        ({}, "give a budget"),
        ({"rho": 1, "keys": "a"}, "keys must be a list"),
        ({"rho": 1, "keys": [True]}, "in quotes"),
        ({"rho": 1, "select_keys": True}, "not both"),
        (
            {"rho": 1, "keys": None, "select_keys": {"delta": 3}},
            "select_keys must be true or false",
        ),
        ({"rho": 1, "keys": None, "select_sharts": 3}, "did you mean select_shards?"),
        ({"rho": 1, "keys": None}, "give keys"),
        (
            {"rho": 1, "tick": "1 fortnight"},
            "give seconds, or a unit .s, m, h, d, w., e.g. tick=10m",
        ),
        ({"rho": 1, "start": "noon"}, "start is not a time, got 'noon': give seconds since 1970"),
        ({"rho": 1, "per_user": 3}, "per_user needs user"),
        ({"rho": 1, "user": "user"}, "user needs per_user"),
        ({"rho": 1, "run_id": "May"}, "secret_env"),
        ({"rho": 1, "secret_env": "SECRET"}, "run_id"),
        ({"rho": 1, "timestamp_format": "soon"}, "strptime"),
    ],
)
def test_wrong_arguments_are_refused_in_words(options: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        TickCountRows("page", **{**CLOCK, **options})


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        ("median", "give one of count"),
        ({"field": "amount"}, "mappings with a metric"),
        ({"metric": "mean", "feild": "amount"}, "takes no 'feild': did you mean field[?] it takes"),
        ({"metric": "mean"}, "needs more arguments"),
    ],
)
def test_wrong_metrics_are_refused_in_words(metric: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        TickCountRows("page", metrics=[metric], **CLOCK, **EXACT)


def test_input_without_a_schema_is_refused() -> None:
    with pytest.raises(TypeError, match="no schema"):
        _ = (
            beam.Pipeline("FnApiRunner")
            | beam.Create([("a", 1)])
            | PrefixCountRows("page", "price", 9, **EXACT)
        )


@pytest.mark.pipeline
def test_a_time_that_cannot_be_read_shows_nothing_of_it() -> None:
    with pytest.raises(Exception, match="timestamp, field 'at'") as caught:
        counted(PrefixCountRows("page", "bought", 9, **AT, **EXACT), [UNREADABLE[2]])
    assert "yesterday" not in str(caught.value)


# Beam's own transforms


@pytest.mark.pipeline
def test_releases_of_bounded_input_reach_steps_that_take_batches(tmp_path: Path) -> None:
    """Beam flushes what waits for one before the step in front of it has finished its bundle."""
    from apache_beam.dataframe.convert import to_dataframe

    with beam.Pipeline("FnApiRunner") as pipeline:
        counts = pipeline | beam.Create([("a", 1)] * 5) | dp.PrefixCount(dp.ZCDP(1e12), 9)
        frame: Any = to_dataframe(counts)
        frame.groupby("key").step.max().to_csv(str(tmp_path / "last.csv"))
        _ = counts | beam.io.WriteToParquet(str(tmp_path / "rows"))
    (path,) = tmp_path.glob("last*")
    assert path.read_text().splitlines()[1:] == ["a,5"]
    (path,) = tmp_path.glob("rows*")
    assert [row["value"] for row in pq.read_table(path).to_pylist()] == [1, 2, 3, 4, 5]


ROWS: dict[str, tuple[type, list[Any]]] = {
    "Release": (dp.Release, [dp.Release("a", n, n * SECOND, n / 2, 1.5) for n in (1, 2)]),
    "VectorRelease": (
        dp.VectorRelease,
        [dp.VectorRelease("a", n, n, [n / 2, 1.0], 1.5) for n in (1, 2)],
    ),
    "CountRow": (CountRow, [CountRow("a", n, None, n / 2, 1.5, 0, None) for n in (1, 2)]),
    "ItemRow": (ItemRow, [ItemRow("a", n, 1, "x", n / 2, 1.5, None, None) for n in (1, 2)]),
}


def aggregates() -> Any:
    transform = TickCountRows("page", **CLOCK, **AT, **EXACT)
    return beam.Create(EVENTS).with_output_types(Event) | transform


@pytest.fixture(params=[*ROWS, "aggregate"])
def source(request: pytest.FixtureRequest) -> Any:
    if request.param == "aggregate":
        return aggregates()
    kind, rows = ROWS[request.param]
    return beam.Create(rows).with_output_types(kind)


@pytest.mark.pipeline
def test_rows_go_into_select_and_group_by(source: Any) -> None:
    def build(pipeline: Any) -> Any:
        rows = pipeline | source
        picked = rows | beam.Select("key", number="step")
        grouped = picked | beam.GroupBy("key").aggregate_field("number", sum, "total")
        return grouped | beam.Map(lambda row: (row.key, int(row.total)))

    found = {seen.value for seen in run(build).outputs[0]}
    assert found in ({("a", 3)}, {("a", 6), ("b", 6)})


@pytest.mark.pipeline
@pytest.mark.parametrize("kind", ["Parquet", "Json", "Avro"])
def test_rows_are_written(kind: str, source: Any, tmp_path: Path) -> None:
    with beam.Pipeline("FnApiRunner") as pipeline:
        _ = pipeline | source | getattr(beam.io, f"WriteTo{kind}")(str(tmp_path / "rows"))
    (path,) = tmp_path.glob("rows*")
    if kind == "Parquet":
        table = pq.read_table(path).to_pylist()
    elif kind == "Json":
        table = [json.loads(line) for line in path.read_text().splitlines()]
    else:
        with beam.Pipeline("FnApiRunner") as pipeline:
            out = tmp_path / "read"
            found = pipeline | beam.io.ReadFromAvro(str(path), as_rows=False)
            _ = found | beam.Map(json.dumps) | beam.io.WriteToText(str(out))
        table = [json.loads(line) for each in tmp_path.glob("read*") for line in each.open()]
    assert len(table) in (2, 6)
    assert {row["key"] for row in table} <= {"a", "b"}
    assert sum(row["step"] for row in table) in (3, 12)


@pytest.mark.pipeline
def test_rows_are_a_data_frame(source: Any, tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    from apache_beam.dataframe.convert import to_dataframe

    with beam.Pipeline("FnApiRunner") as pipeline:
        frame: Any = to_dataframe(pipeline | source)
        frame.groupby("key").step.max().to_csv(str(tmp_path / "largest.csv"))
    (path,) = tmp_path.glob("largest*")
    assert path.read_text().splitlines()[1] in ("a,2", "a,3")


# Other front ends


@pytest.mark.pipeline
def test_other_languages_build_it_by_its_name() -> None:
    """What Java's PythonExternalTransform sends, by an expansion service on this machine."""
    from concurrent import futures

    import grpc
    from apache_beam.portability.api import beam_expansion_api_pb2_grpc
    from apache_beam.runners.portability import expansion_service
    from apache_beam.transforms.external import ExternalTransform, ImplicitSchemaPayloadBuilder
    from apache_beam.transforms.fully_qualified_named_transform import FullyQualifiedNamedTransform

    options = PipelineOptions(["--environment_type=beam:env:embedded_python:v1"])
    server = grpc.server(futures.ThreadPoolExecutor())
    port = server.add_insecure_port("localhost:0")
    beam_expansion_api_pb2_grpc.add_ExpansionServiceServicer_to_server(
        expansion_service.ExpansionServiceServicer(options), server
    )
    server.start()
    kwargs = {"key": "page", "value": "number", "horizon": "9", "bounds": [0, 9], "rho": "1e12"}
    payload = {"constructor": "beam_dpcount.rows.PrefixCountRows", "kwargs": Row(**kwargs)}
    built = ExternalTransform(
        "beam:transforms:python:fully_qualified_named",
        ImplicitSchemaPayloadBuilder(payload),
        f"localhost:{port}",
    )
    try:
        with FullyQualifiedNamedTransform.with_filter("beam_dpcount.rows.*"):
            create = beam.Create(EVENTS, reshuffle=False).with_output_types(Event)
            rows = [seen.value for seen in run(lambda p: p | create | built).outputs[0]]
    finally:
        server.stop(None)
    assert values(rows) == {
        **{("a", 1): 7, ("a", 2): 14, ("a", 3): 23},
        **{("b", 1): 8, ("b", 2): 16, ("c", 1): 9},
    }


@pytest.mark.long
def test_the_provider_names_every_transform_and_ships() -> None:
    import yaml  # type: ignore[import-untyped]

    path = files("beam_dpcount.rows") / "provider.yaml"
    (provider,) = yaml.safe_load(path.read_text())
    assert set(provider["transforms"].values()) == {
        f"beam_dpcount.rows.{name}"
        for name in ("PrefixCountRows", "HistogramRows", "TickCountRows")
    }
    assert '"rows/*.yaml"' in (ROOT / "pyproject.toml").read_text()
    said = subprocess.run(
        [sys.executable, "-m", "beam_dpcount.rows"], capture_output=True, text=True, check=True
    )
    assert said.stdout.strip() == str(path)


LOG = """timestamp,page,session,action
2026-01-15T00:10:00Z,/home,s1,view
2026-01-15T00:20:00Z,/home,s1,purchase
2026-01-15T01:30:00Z,/cart,s1,purchase
2026-01-15T01:40:00Z,/about,s2,view
2026-01-15T23:50:00Z,/cart,s3,purchase
"""


def pipeline_of(example: str, tmp_path: Path) -> Path:
    """What Beam YAML wrote, of an example under an enormous budget."""
    log, out = tmp_path / "events.csv", tmp_path / "out"
    log.write_text(LOG)
    provider = str(files("beam_dpcount.rows") / "provider.yaml")
    given = {"provider": provider, "input": str(log), "output": str(out), "epsilon": 1_000_000}
    words = ["--yaml_pipeline_file", str(ROOT / "examples" / "yaml" / example)]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "apache_beam.yaml.main",
            *words,
            "--jinja_variables",
            json.dumps(given),
            "--runner",
            "FnApiRunner",
        ],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (path,) = tmp_path.glob("out*")
    return path


@pytest.mark.long
@pytest.mark.pipeline
@pytest.mark.slow
def test_a_yaml_pipeline_counts_at_ticks_as_python_does(tmp_path: Path) -> None:
    pytest.importorskip("docstring_parser")  # of the extra yaml
    table = pq.read_table(pipeline_of("ticks.yaml", tmp_path)).to_pylist()
    found = {(row["key"], row["step"]): row["people"] for row in table}
    assert len(found) == 3 * 24
    last = {key: found[key, 24] for key in ("/home", "/cart", "/deals")}
    assert last == {"/home": 1, "/cart": 2, "/deals": 0}  # s1 counts once a page
    assert (found["/cart", 1], found["/cart", 2], found["/cart", 23]) == (0, 1, 1)


@pytest.mark.long
@pytest.mark.pipeline
@pytest.mark.slow
def test_a_yaml_pipeline_counts_every_row_as_python_does(tmp_path: Path) -> None:
    pytest.importorskip("docstring_parser")
    lines = pipeline_of("rows.yaml", tmp_path).read_text().splitlines()
    found = {(row["key"], row["step"]): row["value"] for row in map(json.loads, lines)}
    assert found == {
        **{("/home", 1): 0, ("/home", 2): 1, ("/cart", 1): 1},
        **{("/cart", 2): 2, ("/about", 1): 0},
    }


def test_numbers_of_numpy_are_numbers() -> None:
    made = PrefixCountRows("page", "price", np.int64(9), rho=np.float64(0.1))  # type: ignore[arg-type]
    assert made.counter.horizon == 9

from __future__ import annotations

import bz2
import csv
import datetime as dt
import gzip
import json
import math
import os
import pickle
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.coders.typecoders import registry
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from apache_beam.testing import test_stream
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.window import FixedWindows, TimestampedValue
from hypothesis import given
from hypothesis import strategies as st

from beam_dpcount.commands.count import TICKS
from beam_dpcount.commands.files import tables
from beam_dpcount.commands.files.beside import beside
from beam_dpcount.commands.files.events import check
from beam_dpcount.commands.files.formats import (
    RELEASES,
    Event,
    InputError,
    InputFile,
    Source,
    counted,
    text,
)
from beam_dpcount.commands.files.inputs import files_of
from beam_dpcount.commands.files.read import ReadEvents, all_events, events
from beam_dpcount.commands.files.tables import Output, check_output, csv_line
from beam_dpcount.commands.files.write import WriteTable
from beam_dpcount.commands.graph import named_edge
from beam_dpcount.commands.histogram import split_items
from tests import runners
from tests.real_data import real

SECRET = "s3cr3t"


def data(name: str) -> str:
    return str(real(name))


def source(
    inputs: str | list[str],
    key: str | None = "key",
    value: str | None = None,
    where: str | None = None,
    **more: Any,
) -> Source:
    """What the commands of counts read."""
    paths = [inputs] if isinstance(inputs, str) else inputs
    columns, measure = counted(value, where)
    return Source(paths, key, columns, measure, instead=TICKS, **more)


def check_inputs(*what: Any, **how: Any) -> None:
    """The errors that can be found before a pipeline runs."""
    given = source(*what, **how)
    check(given, files_of(given))


def writer(path: str, timed: bool, keys: Sequence[str] = ()) -> WriteTable:
    return WriteTable(Output(path, replace(RELEASES, keys=keys)), timed)


def read_releases(path: str) -> dict[str, list[Any]]:
    return Output(path, RELEASES).columns()


def read(path: str | os.PathLike[str], key: str = "key", **arguments: Any) -> list[Any]:
    """What the transform reads of one file, without a pipeline."""
    given = source(str(path), key, **arguments)
    return list(events(given, InputFile(str(path))))


def values(path: Path, **arguments: Any) -> list[object]:
    return [event.value for _, event in read(path, **arguments)]


def times(path: str | Path, **arguments: Any) -> list[int]:
    return [element.timestamp.micros for element in read(path, **arguments)]


def run(inputs: str | list[str], expected: Sequence[Any], key: str = "key", **rest: Any) -> None:
    """Compares what a pipeline reads with (key, value, file name, row)."""
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        events = pipeline | ReadEvents(source(inputs, key, **rest))
        rows = events | beam.MapTuple(
            lambda key, event: (key, event.value, os.path.basename(event.file), event.row)
        )
        assert_that(rows, equal_to(expected))


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def write(content: str | bytes, name: str = "events.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


@pytest.fixture
def parquet(tmp_path: Path) -> Callable[..., Path]:
    def write(columns: dict[str, Any], name: str = "events.parquet", **rest: Any) -> Path:
        path = tmp_path / name
        pq.write_table(pa.table(columns), path, **rest)
        return path

    return write


Write = Callable[..., Path]


# Reading CSV


def test_pipeline_reads_keys_values_files_and_rows(write: Write) -> None:
    path = write("time,key,n\n1,a,5\n2,b,6\n3,a,7\n")
    run(
        str(path),
        [("a", 5, "events.csv", 1), ("b", 6, "events.csv", 2), ("a", 7, "events.csv", 3)],
        value="n",
    )


def test_pipeline_sets_timestamps(write: Write) -> None:
    path = write("time,key\n1.5,a\n-1,b\n")
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        stamped = (
            pipeline
            | ReadEvents(source(str(path), "key", timestamp="time"))
            | beam.Map(lambda element, at=beam.DoFn.TimestampParam: (element[0], at.micros))
        )
        assert_that(stamped, equal_to([("a", 1_500000), ("b", -1_000000)]))


def test_pipeline_groups_events(write: Write) -> None:
    # Events cross a shuffle, and so their coder.
    path = write("key,n\na,5\nb,x\na,\n")
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        grouped = pipeline | ReadEvents(source(str(path), "key", value="n")) | beam.GroupByKey()
        assert_that(
            grouped | beam.MapTuple(lambda key, events: (key, list(events))),
            equal_to(
                [
                    ("a", [Event(5, str(path), 1), Event("", str(path), 3)]),
                    ("b", [Event("x", str(path), 2)]),
                ]
            ),
        )


@pytest.mark.parametrize("value", [1, 2.5, None, "x", Decimal("1.5"), b"x", dt.date(2020, 1, 1)])
def test_event_coder_round_trips(value: object) -> None:
    coder = registry.get_coder(Event)
    event = Event(value, "é.csv", 2**40)
    again = coder.decode(coder.encode(event))
    assert again == event
    assert type(again) is Event
    assert pickle.loads(pickle.dumps(coder)) == coder


def test_value_defaults_to_one(write: Write) -> None:
    assert read(path := write("key\na\n")) == [("a", Event(1, str(path), 1))]


def test_where_splits_at_the_first_equals_sign(write: Write) -> None:
    path = write("key,a\nk,b=c\nk,b\nk,\n")
    assert values(path, where="a=b=c") == [1, 0, 0]
    assert values(path, where="a=") == [0, 0, 1]


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("7", 7),
        ("-7", -7),
        ("2.5", 2.5),
        ("1e3", 1000.0),
        ("inf", math.inf),
        ("", ""),
        ("x", "x"),
        ("1_000", "1_000"),
        ("0x10", "0x10"),
        ("9" * 300, int("9" * 300)),
        ("9" * 301, "9" * 301),
        ("9" * 100_000, "9" * 100_000),
    ],
)
def test_values_of_text(write: Write, cell: str, expected: object) -> None:
    (value,) = values(write(f"key,n\nk,{cell}\n"), value="n")
    assert value == expected
    assert type(value) is type(expected)


def test_nan_stays_a_float(write: Write) -> None:
    (value,) = values(write("key,n\nk,nan\n"), value="n")
    assert isinstance(value, float)
    assert math.isnan(value)


def test_keys_are_text_as_it_is(write: Write) -> None:
    path = write('key\n" a "\n00\nß\u2028\x85\n"a,""b"""\n"two\r\nlines"\n')
    keys = [" a ", "00", "ß\u2028\x85", 'a,"b"', "two\r\nlines"]
    assert [key for key, _ in read(path, multiline=True)] == keys
    fails(path, "row 5", "a quote is open at the end of the line", "--multiline")


def test_records_count_not_lines(write: Write) -> None:
    path = write('\nkey,text\n\na,"1\n2\n3"\n\nb,x\n\n')
    assert [(key, event.row) for key, event in read(path, multiline=True)] == [("a", 1), ("b", 2)]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_line_ends_and_byte_order_marks(write: Write, end: str, mark: str) -> None:
    path = write(mark + end.join(["key,n", "a,1", "b,2"]))
    assert [(key, event.value) for key, event in read(path, value="n")] == [("a", 1), ("b", 2)]


@pytest.mark.parametrize(("delimiter", "given"), [("\t", r"\t"), ("\t", "\t"), (" ", " ")])
def test_delimiters(write: Write, delimiter: str, given: str) -> None:
    path = write(f"key{delimiter}n\na{delimiter}1\n", "events.txt")
    assert values(path, value="n", delimiter=given) == [1]


@pytest.mark.long
@pytest.mark.parametrize(("suffix", "pack"), [(".gz", gzip.compress), (".bz2", bz2.compress)])
def test_compressed(write: Write, suffix: str, pack: Callable[[bytes], bytes]) -> None:
    text = "key,n\n" + "".join(f"k{n},{n}\n" for n in range(50_000))
    path = write(pack(("\ufeff" + text).encode()), f"events.csv{suffix}")
    check_inputs(str(path), "key", "n")
    assert values(path, value="n") == list(range(50_000))
    small = write(pack(b"key\na\n"), f"small.csv{suffix}")
    run(str(small), [("a", 1, small.name, 1)])


def test_rows_may_lack_or_exceed_cells_not_needed(write: Write) -> None:
    assert values(write("key,n,rest\na,1\nb,2,x,y\n"), value="n") == [1, 2]


def test_header_without_rows(write: Write) -> None:
    path = write("key,n")
    check_inputs(str(path), "key", "n")
    run(str(path), [])


def test_patterns_read_each_file_once(
    write: Write, parquet: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("key\na\n", "1.csv")
    write("key\nb\n", "2.csv")
    parquet({"key": ["c"]}, "3.parquet")
    monkeypatch.chdir(tmp_path)
    everything = [("a", 1, "1.csv", 1), ("b", 1, "2.csv", 1), ("c", 1, "3.parquet", 1)]
    for inputs in ("*.*", "./?.*", [f"{tmp_path}/*.csv", "3.parquet", "1.csv", "./[12].csv"]):
        check_inputs(inputs, "key")
        run(inputs, everything)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))))
def test_csv_round_trips_any_key(keys: list[str]) -> None:
    with TemporaryDirectory() as directory:
        path = Path(directory) / "events.csv"
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerows([["key", "n"], *([key, n] for n, key in enumerate(keys))])
        read_back = [(key, event.value) for key, event in read(path, value="n", multiline=True)]
    assert read_back == [(key, n) for n, key in enumerate(keys)]


# Reading Parquet


def test_parquet_keys_become_text(parquet: Write) -> None:
    day = dt.date(2020, 1, 31)
    for keys, expected in [
        (["ß", " a"], ["ß", " a"]),
        (pa.array(["a", "b", "a"]).dictionary_encode(), ["a", "b", "a"]),
        (pa.array([b"\xc3\x9f"], pa.binary()), ["ß"]),
        (pa.array([b"\xc3\x9f"], pa.large_binary()), ["ß"]),
        (pa.array([b"\xc3\x9f"], pa.binary()).dictionary_encode(), ["ß"]),
        ([1, -2], ["1", "-2"]),
        ([True, False], ["True", "False"]),
        ([day], ["2020-01-31"]),
    ]:
        assert [key for key, _ in read(parquet({"key": keys}))] == expected


def test_parquet_values_stay(parquet: Write) -> None:
    cases: list[tuple[list[Any], list[object]]] = [
        ([1, None, -3], [1, None, -3]),
        ([1.5, None], [1.5, None]),
        ([True], [True]),
        ([Decimal("1.25")], [Decimal("1.25")]),
        (["7", "x", ""], [7, "x", ""]),
    ]
    for cells, expected in cases:
        path = parquet({"key": ["k"] * len(cells), "n": cells})
        read_back = values(path, value="n")
        assert read_back == expected
        assert list(map(type, read_back)) == list(map(type, expected))


def test_parquet_where_compares_text(parquet: Write) -> None:
    cases: list[tuple[list[Any], str, list[int]]] = [
        (["a", "b", None], "a", [1, 0, 0]),
        ([1, 2, None], "1", [1, 0, 0]),
        ([None, True], "True", [0, 1]),
        (["None", None], "None", [1, 0]),
    ]
    for cells, value, expected in cases:
        path = parquet({"key": ["k"] * len(cells), "c": cells})
        assert values(path, where=f"c={value}") == expected


def test_parquet_timestamps(parquet: Write) -> None:
    stamp = 1117838570_123456
    paris = [stamp - 7_200_000_000]
    for cells, arguments, expected in [
        (pa.array([stamp], pa.timestamp("us")), {}, [stamp]),
        (pa.array([stamp], pa.timestamp("us")), {"timezone": "Europe/Paris"}, paris),
        (pa.array([stamp], pa.timestamp("us", "Europe/Paris")), {}, [stamp]),
        (pa.array([stamp * 1000 + 789], pa.timestamp("ns")), {}, [stamp]),
        (pa.array([stamp * 1000 + 789], pa.timestamp("ns", "UTC")), {}, [stamp]),
        (pa.array([1117838570], pa.timestamp("s")), {}, [1117838570_000000]),
        (pa.array([dt.date(1970, 1, 2)]), {}, [86_400_000_000]),
        ([1117838570], {}, [1117838570_000000]),
        ([1117838570.123456], {}, [stamp]),
        ([1117838570123], {"timestamp_format": "unix-ms"}, [1117838570_123000]),
        (["1117838570.123456"], {}, [stamp]),
    ]:
        path = parquet({"key": ["k"], "time": cells})
        assert times(path, timestamp="time", **arguments) == expected


@pytest.mark.long
@pytest.mark.slow
def test_parquet_rows_run_through_batches(parquet: Write) -> None:
    n = 150_000
    path = parquet({"rest": [0] * n, "key": ["k"] * n, "n": range(n)}, row_group_size=40_000)
    events = [event for _, event in read(path, value="n")]
    assert [event.row for event in events] == list(range(1, n + 1))
    assert [event.value for event in events] == list(range(n))


def test_parquet_pipeline_and_other_suffixes(parquet: Write) -> None:
    for name in ("events.pq", "EVENTS.PARQUET"):
        path = parquet({"key": ["a", "b"], "n": [1, 2]}, name)
        check_inputs(str(path), "key", "n")
        run(str(path), [("a", 1, name, 1), ("b", 2, name, 2)], value="n")


def test_parquet_without_rows(parquet: Write) -> None:
    path = parquet({"key": pa.array([], pa.string())})
    check_inputs(str(path), "key")
    assert read(path) == []


# Errors in files


def fails(path: Path, *words: str, key: str = "key", **arguments: Any) -> str:
    with pytest.raises(InputError) as caught:
        read(path, key, **arguments)
    assert isinstance(caught.value, ValueError)
    for error in (caught.value, pickle.loads(pickle.dumps(caught.value))):
        assert type(error) is InputError
        message = str(error)
        assert message.startswith(str(path))
        assert SECRET not in message
        for word in words:
            assert word in message
    # What a traceback would print below it.
    cause = caught.value.__cause__
    assert SECRET not in str(cause)
    assert cause or caught.value.__suppress_context__ or caught.value.__context__ is None
    return message


def test_missing_columns(write: Write, parquet: Write) -> None:
    for path, how in (
        (write("a,b\n1,2\n"), {"show_header": True}),
        (parquet({"a": [1], "b": [2]}), {}),
    ):
        message = fails(path, "no column 'key' among 2: 'a', 'b'", **how)
        assert "delimiter" not in message
        assert "--show-header" not in message
        for name in ("value", "timestamp"):
            fails(path, "no column 'c'", key="a", **{name: "c"})
        fails(path, "no column 'c'", key="a", where="c=1")
    for how in ({}, {"show_header": True}):
        fails(write("key\tn\na\t1\n"), "no column 'key' among 1", "--delimiter", **how)
    many = write(",".join(f"c{n}" for n in range(1000)))
    assert len(fails(many, "'c0'", "...", show_header=True)) < 1000


def test_a_file_without_a_header_keeps_its_first_row(write: Write) -> None:
    """It is data until the user says that it is none; neither its cells nor hints at them show."""
    path = write(f"{SECRET},HIV-positive,keys\n{SECRET},2,x\n")
    for how in ({}, {"value": "HIV-positiv"}, {"where": "kex=1"}, {"timestamp": "time"}):
        message = fails(path, "no column", "among 3", "--show-header", key="key", **how)
        assert "'HIV-positive'" not in message
        assert "'keys'" not in message
    with pytest.raises(InputError, match=f"among 3: '{SECRET}', 'HIV-positive', 'keys'"):
        read(path, show_header=True)
    fails(write(f"{SECRET},{SECRET},key\n"), "no column 'c' among 3", value="c")


@pytest.mark.parametrize("use", [source, check_inputs])
def test_what_is_public_per_element_is_not_counted(
    write: Write, use: Callable[..., object]
) -> None:
    path = str(write("key,time,n\na,1,5\n"))
    for arguments, role in (
        ({"where": "key=a"}, "keys"),
        ({"value": "key"}, "keys"),
        ({"value": "time"}, "times"),
        ({"where": "time=1"}, "times"),
    ):
        with pytest.raises(InputError, match=f"holds the {role} as well, .* another column") as e:
            use(path, "key", timestamp="time", **arguments)
        assert "per tick (beam-dpcount ticks)" in str(e.value)
        use(path, "key", timestamp="time", per_tick=True, **arguments)  # there both are protected
    use(path, "key", value="time")  # no times are taken from it
    for key, item in (("key", "key"), ("key", "time"), (None, "time")):
        with pytest.raises(InputError, match=r"nothing would be protected: name another column$"):
            Source([path], key, (item,), text, "time")
    Source([path], None, ("key",), text, "time")
    for key, columns in (
        ("key", ("key", "n")),
        ("key", ("n", "key")),
        (None, ("n", "time")),
        ("key", ("n", "m", "time")),
    ):
        with pytest.raises(InputError, match=r"nothing would be protected: name another column$"):
            Source([path], key, columns, named_edge, "time")
    Source([path], None, ("key", "n"), named_edge, "time")


def test_duplicate_columns(write: Write, tmp_path: Path) -> None:
    path = write("key,n,n\na,1,2\n")
    assert len(read(path)) == 1
    fails(path, "header", "column 'n'", "several", value="n")
    table = pa.Table.from_arrays([pa.array(["a"]), pa.array([1]), pa.array([2])], ["key", "n", "n"])
    pq.write_table(table, tmp_path / "events.parquet")
    assert len(read(tmp_path / "events.parquet")) == 1
    fails(tmp_path / "events.parquet", "column 'n'", "several", value="n")


def test_short_rows(write: Write) -> None:
    path = write(f"time,key,n\n1,a,1\n2,{SECRET}\n")
    fails(path, "row 2", "column 'n'", "2 of 3", value="n")
    assert len(read(path)) == 2


def test_bad_timestamps(write: Write, parquet: Write) -> None:
    column = ["1", SECRET]
    for path in (
        write("key,time\na,1\nb," + SECRET),
        parquet({"key": ["a", "b"], "time": column}),
    ):
        fails(path, "row 2", "column 'time'", "--timestamp-format", timestamp="time")
        fails(path, "row 1", "'iso'", timestamp="time", timestamp_format="iso")
    fails(write("key,time\na,\n"), "row 1", "empty", timestamp="time")
    fails(parquet({"key": ["a"], "time": [None]}), "row 1", "column 'time'", timestamp="time")


def test_parquet_dates_beyond_the_calendar(parquet: Write) -> None:
    for unit in ("ms", "us"):
        for zone in (None, "Europe/Paris"):
            cells = pa.array([0, 2**62], pa.timestamp(unit, zone))
            path = parquet({"key": ["a", "b"], "time": cells})
            fails(path, "row 2", "column 'time'", "9999", timestamp="time")


def test_bytes_that_are_not_utf8(write: Write, parquet: Write) -> None:
    rows = "".join(f'"k\n{n}",x\n' for n in range(3000))
    for prefix in ("", "\ufeff"):
        content = f"{prefix}key,n\n{rows}".encode() + f"{SECRET},".encode() + b"\xff\nlast,1\n"
        fails(write(content), "row 3001", "not UTF-8", multiline=True)
        packed = write(gzip.compress(content), "events.csv.gz")
        fails(packed, "row 3001", "not UTF-8", multiline=True)
        content = content.replace(b"k\n", b"k")
        fails(write(content), "row 3001", "not UTF-8")
    fails(write("key,é\na,1\n".encode("latin-1")), "header", "not UTF-8")
    fails(write("key\na\n".encode("utf-16")), "header", "not UTF-8")
    keys = pa.array([b"a", SECRET.encode() + b"\xff"], pa.binary())
    fails(parquet({"key": keys}), "row 2", "column 'key'", "UTF-8")


def test_a_long_cell_does_not_stop_the_run(write: Write) -> None:
    """csv's own limit of 131,072 characters would make the run depend on what a cell holds."""
    ((_, event),) = read(write(f"key,n\na,{'9' * 140_000}\n"), "key", value="n")
    assert event.value == "9" * 140_000


def test_a_broken_quote_says_what_to_do(write: Write) -> None:
    path = write('key,n\na,1\nb,"2\nc,3\n')
    remedy = "leave --multiline out, or have the writer double the quotes within cells"
    said = fails(path, "never closed", remedy, multiline=True, per_tick=True)
    assert "row" not in said.removeprefix(str(path))
    fails(path, "row 2", "never closed", remedy, multiline=True)


def test_malformed_csv(write: Write) -> None:
    for how, at_end in ({}, "a quote is open"), ({"multiline": True}, "unexpected end"):
        fails(write(f'key,n\na,1\nb,"{SECRET}\nc,3\n'), "row 2", "malformed", at_end, **how)
        fails(write(f'key,n\na,1\n"{SECRET}"x,2\n'), "row 2", "malformed", "expected after", **how)
        fails(write(f'"{SECRET}'), "header", "malformed", **how)


@pytest.mark.parametrize("content", ["", "\ufeff", "\n\n"])
def test_files_without_a_header(write: Write, content: str) -> None:
    fails(write(content), "empty", "header")


@pytest.mark.parametrize(
    "cells",
    [
        pa.array([1, 2**30], pa.int32()).cast(pa.date32()),
        pa.array([1, 10**12], pa.int64()).cast(pa.timestamp("s")),
        pa.array([1000, 2001], pa.int64()).cast(pa.duration("ns")),
        pa.array([1000, 2001], pa.int64()).cast(pa.time64("ns")),
        pa.array([b"x", b"\xff"]),
    ],
    ids=lambda cells: str(cells.type),
)
def test_protected_cells_that_cannot_be_read_do_not_stop_the_run(
    parquet: Write, cells: pa.Array
) -> None:
    """That it stopped would show the cell; as a key or time it does."""
    path = parquet({"key": ["a", "a"], "value": cells})
    first, _ = values(path, value="value")
    assert first is not None
    items = Source([str(path)], None, ("value",), text)
    assert len(list(events(items, InputFile(str(path))))) == 2


def test_null_keys(parquet: Write) -> None:
    fails(parquet({"key": ["a", None]}), "row 2", "column 'key'", "null")


def test_columns_of_another_kind(parquet: Write) -> None:
    fails(parquet({"key": [[SECRET]]}), "column 'key'", "list")
    fails(parquet({"key": [{"x": SECRET}]}), "column 'key'", "struct")
    fails(parquet({"key": pa.array([b"1234"], pa.binary(4))}), "column 'key'", "binary")


def test_files_that_are_not_parquet(write: Write, parquet: Write) -> None:
    for content in ("", f"key\n{SECRET}\n", f"PAR1{SECRET * 10}PAR1"):
        fails(write(content, "events.parquet"), "not a Parquet file")
    path = parquet({"key": [f"{SECRET}{n}" for n in range(10_000)]}, use_dictionary=False)
    damaged = path.read_bytes()
    for junk in (b"\xff" * 5000, b"\x00" * 5000, damaged[4:8] + b"\xff" * 30):
        path.write_bytes(damaged[:4] + junk + damaged[4 + len(junk) :])
        fails(path, "events.parquet", "damaged")


def test_damaged_compression(write: Write) -> None:
    fails(write(f"key\n{SECRET}\n", "events.csv.gz"), "cannot be read", "damaged")
    content = "key\n" + "".join(f"{SECRET}{n}\n" for n in range(10_000))
    for suffix, pack in ((".gz", gzip.compress), (".bz2", bz2.compress)):
        packed = pack(content.encode())
        fails(write(packed[:-9], f"events.csv{suffix}"), "cannot be read", "too early")
        assert len(read(write(packed + pack(b"a\n"), f"events.csv{suffix}"))) == 10_001


def test_files_that_cannot_be_opened(tmp_path: Path) -> None:
    fails(tmp_path, "cannot be read")
    fails(tmp_path / "none.csv", "cannot be read")


def test_a_pipeline_fails_without_showing_cells(
    write: Write, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(f"key,time\na,1\nb,{SECRET}\n")
    with pytest.raises(Exception, match=r"events.csv, row 2, column 'time'") as caught:
        run(str(path), [], timestamp="time")
    assert "InputError" in repr(caught.value)
    assert SECRET not in repr(caught.value)
    assert SECRET not in caplog.text
    with pytest.raises(Exception, match="no file matches"):
        run(str(path) + "x", [])


# Arguments


@pytest.mark.parametrize("use", [source, check_inputs])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"inputs": []}, "no input"),
        ({"key": ""}, "empty name"),
        ({"value": ""}, "empty name"),
        ({"timestamp": ""}, "empty name"),
        ({"value": "n", "where": "n=1"}, "not both"),
        ({"where": "n"}, "COLUMN=VALUE, got 'n'"),
        ({"where": "=n"}, "COLUMN=VALUE, got '=n'"),
        ({"delimiter": ""}, "delimiter"),
        ({"delimiter": "::"}, "got '::'"),
        ({"delimiter": "\n"}, "delimiter"),
        ({"timestamp_format": "%q"}, "--timestamp-format '%q'"),
        ({"timezone": "Nowhere"}, "'Nowhere'"),
    ],
)
def test_bad_arguments(
    write: Write, use: Callable[..., object], arguments: dict[str, Any], message: str
) -> None:
    path = write("key,n\na,1\n")
    with pytest.raises(InputError, match=message):
        use(**{"inputs": str(path), "key": "key", **arguments})


def test_check_inputs(write: Write, parquet: Write, tmp_path: Path) -> None:
    good, bad = write("key,time\na,1\n"), write("time\n1\n", "bad.csv")
    check_inputs([str(good), str(parquet({"key": ["a"], "time": [1]}))], "key", timestamp="time")
    with pytest.raises(InputError, match=r"bad.csv, header: no column 'key'"):
        check_inputs([str(good), str(bad)], "key")
    with pytest.raises(InputError, match="row 1, column 'time'"):
        check_inputs(str(good), "key", timestamp="time", timestamp_format="iso")
    for pattern in ("", f"{tmp_path}/*.none", f"{tmp_path}/none/x.csv"):
        with pytest.raises(InputError, match="no file matches"):
            check_inputs([str(good), pattern], "key")
    for place, remedy in (
        ("nowhere://x", "Beam knows no file system 'nowhere'; use local files"),
        ("s3://bucket/x.csv", r"pip install 'apache-beam\[aws\]'"),
        ("gs://bucket/x.csv", r"pip install 'apache-beam\[gcp\]'"),
        ("https://here/x.csv", "use a local file"),
    ):
        with pytest.raises(InputError, match=f"^cannot look for '{place}': .*{remedy}"):
            check_inputs(place, "key")
    for name, remedy in (
        ("x.xlsx", "save its sheet as CSV"),
        ("x.zip", "unpack"),
        ("x.avro", "Parquet"),
    ):
        with pytest.raises(InputError, match=f"{name}: .*{remedy}"):
            check_inputs(str(write("key\n", name)), "key")


def test_a_folder_is_its_data_files(write: Write, parquet: Write, tmp_path: Path) -> None:
    folder = tmp_path / "a [folder]*"
    folder.mkdir()
    write("key\nb\n", f"{folder}/2.csv")
    write(gzip.compress(b"key\na\n"), f"{folder}/1.csv.gz")
    parquet({"key": ["c"]}, f"{folder}/3.parquet")
    for name in ("_SUCCESS", ".3.parquet.crc", ".hidden.csv", "_metadata", "README.md"):
        write("not rows", f"{folder}/{name}")
    (folder / "_temporary").mkdir()
    for name in (str(folder), f"{folder}/"):
        found = [(key, event.row) for key, event in all_events(source(name))]
        assert found == [("a", 1), ("b", 1), ("c", 1)]
        check_inputs(name, "key")
    both = [key for key, _ in all_events(source([f"{folder}/2.csv", str(folder)]))]
    assert both == ["b", "a", "c"]
    write("key\nd\n", f"{folder}/part-0000")
    with pytest.raises(InputError, match=r"3.parquet"):  # it is no CSV, and not left out
        list(all_events(source(str(folder), format="csv")))
    (folder / "day=1").mkdir()
    with pytest.raises(InputError, match="has subfolders"):
        check_inputs(str(folder), "key")
    with pytest.raises(InputError, match="is an empty folder"):
        check_inputs(str(folder / "day=1"), "key")
    (folder / "day=1" / "part").touch()
    with pytest.raises(InputError, match="is a folder without files named"):
        check_inputs(str(folder / "day=1"), "key")


def test_whole_numbers_are_one_text_in_a_column_with_nulls(write: Write, parquet: Write) -> None:
    """A null makes floats of the whole numbers of a Parquet column, and may be NaN."""
    numbers = {"key": [7.0, None, 8.0, math.nan, 8.5, math.inf], "n": [1, 2, 3, 4, 5, 6]}
    path = parquet({"key": pa.array(numbers["key"]), "n": numbers["n"]})
    rows = read(path, value="n", per_tick=True)
    assert [(key, event.value) for key, event in rows] == [
        ("7", 1),
        ("8", 3),
        ("8.5", 5),
        ("inf", 6),
    ]
    for cells in ([7.0, None], [7.0, math.nan]):
        fails(parquet({"key": pa.array(cells)}), "row 2, column 'key'", "null")
    lines = write('{"key": 7.0}\n{"key": NaN}\n{"key": 7}\n', "events.jsonl")
    assert [key for key, _ in read(lines, per_tick=True)] == ["7", "7"]


@pytest.mark.parametrize(
    ("cell", "shown"),
    [(7.0, "7"), (7.5, "7.5"), (7, "7"), ("7.0", "7.0"), (None, None), (math.nan, None), ("", "")],
)
def test_items_letters_and_vertices_are_texts_as_keys_are(cell: object, shown: str | None) -> None:
    assert text(cell) == shown
    assert split_items(",", cell) == (None if shown is None else [shown])
    assert named_edge(cell, cell) == (shown, shown)


def test_gzip_under_another_name(write: Write) -> None:
    path = write(gzip.compress(b"key,n\na,1\n"))
    assert values(path, value="n") == [1]
    lines = write(gzip.compress(b'{"key": "a", "n": 1}\n'), "events.jsonl")
    assert values(lines, value="n") == [1]
    fails(write(gzip.compress(b"key,n\na,1\n")[:-5]), "cannot be read", "too early")


def test_fields_within_others(write: Write, parquet: Write) -> None:
    rows: list[dict[str, Any]] = [
        {"user": {"id": "a", "more": {"n": 1}}},
        {"user": {"id": "b", "more": None}},
        {"user": {"id": "c", "more": {"n": None}}},
    ]
    lines = "".join(f"{json.dumps(row)}\n" for row in rows)
    path = write(lines, "events.jsonl")
    found = [(key, event.value) for key, event in read(path, "user.id", value="user.more.n")]
    assert found == [("a", 1), ("b", ""), ("c", "")]
    fails(path, "row 1", "no field 'user.x'", key="user.x")
    path = parquet({"user": [row["user"] for row in rows]})
    assert [key for key, _ in read(path, "user.id")] == ["a", "b", "c"]
    assert values(path, key="user.id", value="user.more.n") == [1, None, None]
    fails(path, "no column 'user.x' among 1: 'user'", key="user.x")
    fails(path, "column 'user'", "name a field of it, such as user.id", key="user")
    # A field of the whole name is meant first.
    path = parquet({"user": [{"id": "within"}], "user.id": ["whole"]})
    assert [key for key, _ in read(path, "user.id")] == ["whole"]
    path = write('{"user": {"id": "within"}, "user.id": "whole"}', "events.jsonl")
    assert [key for key, _ in read(path, "user.id")] == ["whole"]


def test_an_array_of_json_says_what_to_do(write: Write) -> None:
    for content in ('[{"key": "a"}]', '[\n  {"key": "a"},\n]'):
        fails(
            write(content, "events.json"), "row 1", "not a JSON object", "JSON array", "jq -c '.[]'"
        )


def test_check_inputs_opens_the_first_files_only(tmp_path: Path) -> None:
    for n in range(101):
        (tmp_path / f"{n:03}.csv").write_text("key\n" if n < 100 else "other\n")
    check_inputs(f"{tmp_path}/*.csv", "key")
    with pytest.raises(InputError, match=r"100.csv"):
        check_inputs([f"{tmp_path}/100.csv", f"{tmp_path}/*.csv"], "key")


def test_check_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for good in ("out.csv", "./out.CSV", f"{tmp_path}/out.parquet", "gs://bucket/none/out.csv"):
        check_output(good)
    (tmp_path / "directory.csv").mkdir()
    for bad, message in [
        ("out.txt", ".jsonl.gz or .parquet"),
        ("out", ".jsonl.gz or .parquet"),
        ("", ".jsonl.gz or .parquet"),
        ("gs://bucket/out.txt", ".jsonl.gz or .parquet"),
        ("o*t.csv", "none of"),
        ("directory.csv", "is a directory"),
        ("none/out.csv", "create it first"),
    ]:
        with pytest.raises(InputError, match=message):
            check_output(bad)
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(InputError, match="not writable"):
        check_output("out.csv")


# Releases


def release(key: str, step: int, value: float = 0.1) -> SimpleNamespace:
    return SimpleNamespace(key=key, step=step, timestamp=step * 10, value=value, stddev=1 / 3)


def written(path: Path, releases: Sequence[Any], with_timestamps: bool = True) -> dict[str, Any]:
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        _ = pipeline | beam.Create(releases) | writer(str(path), with_timestamps)
    assert os.listdir(path.parent) == [path.name]
    return read_releases(str(path))


def test_csv_as_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    written(path, [release('a,"b"', 1, 1e-7)])
    expected = 'key,step,timestamp,value,stddev\n"a,""b""",1,10,1e-07,0.3333333333333333\n'
    assert path.read_bytes() == expected.encode()
    written(path, [release("ß", 1, 2)], with_timestamps=False)
    expected = "key,step,timestamp,value,stddev\nß,1,,2.0,0.3333333333333333\n"
    assert path.read_bytes() == expected.encode()


def test_parquet_as_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "out.parquet"
    written(path, [release("ß\n", 1)])
    table = pq.read_table(path)
    assert table.schema == pa.schema(
        {
            "key": pa.string(),
            "step": pa.int64(),
            "timestamp": pa.int64(),
            "value": pa.float64(),
            "stddev": pa.float64(),
        }
    )
    row = {"key": "ß\n", "step": 1, "timestamp": 10, "value": 0.1, "stddev": 1 / 3}
    assert table.to_pylist() == [row]


@pytest.mark.parametrize("name", ["out.csv", "out.parquet"])
def test_releases_round_trip(tmp_path: Path, name: str) -> None:
    keys = ["", " ", "a", "a,b", '"', "\r", "\n", "\r\n", "\ufeff", "ß\u2028", "'", "NULL", "1"]
    releases = [release(key, n + 1, 1 / (n + 3)) for n, key in enumerate(keys)]
    for with_timestamps in (True, False):
        columns = written(tmp_path / name, releases, with_timestamps)
        assert list(columns) == ["key", "step", "timestamp", "value", "stddev"]
        rows = sorted(zip(*columns.values(), strict=True), key=lambda row: row[1])
        assert rows == [
            (r.key, r.step, r.timestamp if with_timestamps else None, r.value, r.stddev)
            for r in releases
        ]


@given(
    st.lists(
        st.tuples(
            st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
            st.integers(),
            st.integers() | st.none(),
            st.floats(allow_nan=False),
            st.floats(0, allow_infinity=False),
        )
    )
)
def test_lines_of_csv_round_trip_any_release(rows: list[tuple[Any, ...]]) -> None:
    names = ["key", "step", "timestamp", "value", "stddev"]
    with TemporaryDirectory() as directory:
        path = Path(directory) / "out.csv"
        lines = [csv_line(names), *map(csv_line, rows)]
        path.write_bytes("".join(f"{line}\n" for line in lines).encode())
        columns = read_releases(str(path))
    assert list(columns) == names
    assert list(zip(*columns.values(), strict=True)) == rows


@pytest.mark.parametrize("name", ["out.csv", "out.parquet"])
def test_no_releases(tmp_path: Path, name: str) -> None:
    columns = written(tmp_path / name, [])
    assert columns == {"key": [], "step": [], "timestamp": [], "value": [], "stddev": []}


@pytest.mark.parametrize("name", ["out.csv", "out.parquet"])
def test_windowed_releases_go_to_one_file(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    releases = [TimestampedValue(release("k", n), n * 100) for n in range(50)]
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        windowed = pipeline | beam.Create(releases) | beam.WindowInto(FixedWindows(60))
        _ = windowed | writer(str(path), True)
    assert sorted(read_releases(str(path))["step"]) == list(range(50))


def test_numpy_numbers_and_an_existing_file(tmp_path: Path) -> None:
    import numpy as np

    path = tmp_path / "out.csv"
    path.write_text("before")
    number = SimpleNamespace(
        key="k",
        step=np.int64(1),
        timestamp=np.int64(2),
        value=np.float64(0.1),
        stddev=np.float64(2),
    )
    assert written(path, [number])["value"] == [0.1]
    assert path.read_text().endswith("k,1,2,0.1,2.0\n")


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("runner", runners.RUNNERS)
def test_every_runner_writes_one_file_in_the_public_order(
    runner: str, suffix: str, tmp_path: Path
) -> None:
    path = str(tmp_path / f"out{suffix}")
    releases = [release(key, step) for key in "ab" for step in (2, 1)]
    write = writer(path, True, keys=["b", "a"])
    runners.run(lambda p: p | beam.Create(releases) | write, runner)
    assert os.listdir(tmp_path) == [f"out{suffix}"]
    columns = read_releases(path)
    places = list(zip(columns["key"], columns["step"], strict=True))
    assert places == [("b", 1), ("b", 2), ("a", 1), ("a", 2)]


def test_a_link_and_the_mode_of_a_file_stay_as_they_are(tmp_path: Path) -> None:
    """What is private stays so, and a link goes on leading to it."""
    private, link = tmp_path / "private.csv", tmp_path / "links" / "out.csv"
    link.parent.mkdir()
    private.write_text("before")
    private.chmod(0o600)
    link.symlink_to(private)
    assert written(link, [release("k", 1)])["step"] == [1]
    assert link.is_symlink()
    assert private.read_text() == link.read_text() != "before"
    assert private.stat().st_mode & 0o777 == 0o600
    with beside(str(link)) as name:
        assert os.stat(name).st_mode & 0o777 == 0o600  # while it is written, too
    assert sorted(os.listdir(tmp_path)) == ["links", "private.csv"]


def test_a_write_that_fails_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.csv"
    out.write_text("before")

    def failing(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(tables, "_csv", failing)
    target = tables.Target(str(out), pa.schema([("key", pa.string())]), ["key"])
    with pytest.raises(KeyboardInterrupt):
        tables.write(target, target.schema.empty_table())
    assert os.listdir(tmp_path) == ["out.csv"]
    assert out.read_text() == "before"


def test_refuses_outputs(tmp_path: Path) -> None:
    for bad in ("out.txt", "out", "o?t.csv", "o[u]t.parquet"):
        with pytest.raises(InputError):
            writer(bad, True)
    with pytest.raises(ValueError, match="bounded"):
        _ = beam.Pipeline() | test_stream.TestStream() | writer(str(tmp_path / "out.csv"), True)


def test_read_releases_refuses_other_files(write: Write, parquet: Write, tmp_path: Path) -> None:
    header = "key,step,timestamp,value,stddev\n"
    for path in (
        write(""),
        write("key,n\na,1\n", "1.csv"),
        write(header + f"a,{SECRET},1,2,3\n", "2.csv"),
        write(header + "a,1,2\n", "3.csv"),
        write("x", "x.parquet"),
        parquet({"key": ["a"]}),
    ):
        with pytest.raises(InputError, match="not a file of releases") as caught:
            read_releases(str(path))
        assert SECRET not in str(caught.value)
    with pytest.raises(InputError, match="cannot be read"):
        read_releases(str(tmp_path / "none.csv"))
    with pytest.raises(InputError, match=r".jsonl.gz or .parquet"):
        read_releases("out.txt")


# Real data


def test_healthapp() -> None:
    path = data("healthapp_2k.csv")
    arguments: dict[str, Any] = {"timestamp": "Time", "timestamp_format": "%Y%m%d-%H:%M:%S:%L"}
    stamps = times(path, key="Component", **arguments)
    assert len(stamps) == 2000
    assert stamps == sorted(stamps)
    assert stamps[0] == 1514067329_606000
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        counts = (
            pipeline
            | ReadEvents(source(path, "Component", **arguments))
            | beam.MapTuple(lambda key, event: (key, event.value))
            | beam.CombinePerKey(sum)
            | beam.Values()
            | beam.CombineGlobally(sum)
        )
        assert_that(counts, equal_to([2000]))


def test_bgl() -> None:
    path = data("bgl_2k.csv")
    check_inputs(path, "Level", where="Label=-", timestamp="Timestamp")
    elements = read(path, "Level", where="Label=-", timestamp="Timestamp")
    assert len(elements) == 2000
    assert elements[0].value == ("INFO", Event(1, path, 1))
    assert elements[0].timestamp.micros == 1117838570_000000
    assert {event.value for _, event in (element.value for element in elements)} == {0, 1}


@pytest.mark.long
@pytest.mark.slow
def test_collegemsg() -> None:
    path = data("collegemsg.txt")
    elements = read(path, "src", timestamp="time", delimiter=" ")
    assert len(elements) == 59_835
    assert elements[0].value == ("1", Event(1, path, 1))
    assert elements[0].timestamp.micros == 1082040961_000000

"""The same hostile rows through every door of a clock: what is seen is as without them.

Doors are the command line (CSV, JSON lines, Parquet, compressed, folders, standard input), rows,
Beam YAML and the live log. What transforms meet is in `tests/hostile.py` and `test_whole.py`.
"""

from __future__ import annotations

import gzip
import importlib.util
import io
import json
import math
import re
from collections.abc import Sequence
from importlib.resources import files as resources
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
import pyarrow.parquet as pq
import pytest

import beam_dpcount as dp
from beam_dpcount.budget import account_file
from beam_dpcount.commands import bounds, count, ticks
from beam_dpcount.commands.files.formats import InputFile, Source, counted, value_of
from beam_dpcount.commands.files.read import ReadEvents, events
from beam_dpcount.rows import TickCountRows
from beam_dpcount.transforms.ticks import TickNumbers
from examples.live import source as live
from examples.live.lines import clock_line, request_line
from tests.command_lines import EXACT, command, without, written
from tests.hostile_files import (
    AT,
    BROKEN_CSV,
    BROKEN_JSON,
    COUNTED,
    FILES,
    KEYS,
    ONE_BY_ONE,
    SOUND,
    TEXTS,
    Row,
    cells_of,
    csv_of,
    interspersed,
    json_of,
    parquet_of,
    table_of,
)
from tests.side_doors import SECRET, Outside, as_in_a_new_worker, is_ours, listening, outside
from tests.whole import temporary

WORDS = (
    *("--key", "key", "--keys", *KEYS, "--metric", "sum(n, 0, 2, unit=1)", "--timestamp", "at"),
    *("--tick", 20, "--start", AT, "--horizon", 4, *EXACT),
)
PEOPLE = ("--user", "who", "--per-user", 3, "--per-key", 3)
METRICS = tuple(
    word
    for metric in (
        *("count", "mean(n, 0, 2)", "variance(n, 0, 2)", "quantiles(n, 0, 2, 0.5, leaves=4)"),
        *("rate(n > 1)", "rate(who = u1, name=of_one)", "items(key, a, b)", "people"),
    )
    for word in ("--metric", metric)
)


def shown(path: Path, *more: object) -> dict[str, Any]:
    """All that a run shows of a file: outputs byte by byte, what is said, logs, what is left."""
    place = path.parent
    secret, account, out = place / "secret", place / "account.jsonl", place / "out.csv"
    secret.write_text("0123456789abcdef" * 4)
    account.unlink(missing_ok=True)
    account_file.create(str(account), dp.ZCDP(1e13), None)
    words = (*WORDS, *more, "--secret-file", secret, "--account", account, "--output", out)
    as_in_a_new_worker()
    with temporary() as left, listening() as records:
        ended = command("--input", path, *words, main=ticks.main)
        temporaries = sorted(str(file.relative_to(left)) for file in left.rglob("*"))
    assert ended.status == 0, ended.err

    def plain(text: str) -> str:
        return re.sub(r"\d{4}-\d\d-\d\dT[\d:.+Z]+", "#", text)

    seen = {
        "out": plain(ended.out),
        "err": plain(ended.err),
        "output": out.read_bytes(),
        "manifest": plain((place / "out.csv.manifest.json").read_text()),
        "files": sorted(file.name for file in place.iterdir()),
        "temporaries": temporaries,
        "logs": [plain(r.getMessage()) for r in records if is_ours(r) or SECRET in r.getMessage()],
    }
    assert SECRET not in str(seen)
    return seen


@pytest.mark.pipeline
@pytest.mark.exhaustive("name")
@pytest.mark.parametrize(
    "more",
    [
        *((), PEOPLE, ONE_BY_ONE, (*PEOPLE, *ONE_BY_ONE), ("--path", "streaming")),
        (*PEOPLE, *METRICS, *ONE_BY_ONE),
    ],
    ids=["", "people", "rows", "rows, people", "state", "rows, people, metrics"],
)
@pytest.mark.parametrize("name", FILES)
def test_no_row_of_a_file_is_seen(name: str, more: tuple[object, ...], tmp_path: Path) -> None:
    file, without, hostile = FILES[name]
    path = tmp_path / file
    path.write_bytes(without)
    before = shown(path, *more)
    if "people" not in more:
        rows = written(tmp_path / "out.csv")
        assert {key: [v for k, _, _, v in rows if k == key] for key in KEYS} == COUNTED
    path.write_bytes(hostile)
    assert shown(path, *more) == before
    if (
        ONE_BY_ONE[0] in more
    ):  # outputs do not tell the lane; logs of how far the clock is are Beam's
        assert {**shown(path, *more[:-2]), "logs": before["logs"]} == before


@pytest.mark.parametrize(
    "line",
    [
        b"\x1f\x8b\x08 ann",
        gzip.compress(b"ann", mtime=0),
        gzip.compress(b"ann", mtime=0)[:-9],
        gzip.compress(json_of(SOUND[:2]), mtime=0) + b"\x1f\x8b\x08",
    ],
    ids=["first bytes", "a whole one", "a part of one", "one and a half"],
)
def test_a_first_line_that_looks_like_gzip_is_a_line(line: bytes, tmp_path: Path) -> None:
    """JSON lines have no header, so their first bytes are a person's."""
    path = tmp_path / "in.jsonl"
    path.write_bytes(json_of(SOUND))
    without = shown(path, *PEOPLE)
    path.write_bytes(line + b"\n" + json_of(SOUND))
    assert shown(path, *PEOPLE) == without


@pytest.mark.pipeline
@pytest.mark.exhaustive("name")
@pytest.mark.parametrize("name", ["csv", "json", "parquet, dictionaries of them"])
def test_no_row_is_in_a_metric(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file, without, hostile = FILES[name]
    path = tmp_path / file
    source = Source([str(path)], "key", *counted("n", None), timestamp="at", per_tick=True)

    def seen(content: bytes) -> Outside:
        path.write_bytes(content)

        def build(pipeline: beam.Pipeline) -> dict[str, Any]:
            count = TickNumbers(
                dp.ZCDP(1e12), 20, AT, horizon=4, keys=KEYS, bounds=(0, 2), value=value_of
            )
            return {"": pipeline | ReadEvents(source) | count}

        return outside(build, capfd)

    assert seen(hostile) == seen(without)


@pytest.mark.parametrize("name", FILES)
def test_what_is_read_of_a_row_says_nothing_of_others(name: str, tmp_path: Path) -> None:
    """Neither its number nor anything else depends on rows that cannot be read."""
    file, without, hostile = FILES[name]
    read = []
    for content in (without, hostile):
        path = tmp_path / file
        path.write_bytes(content)
        source = Source([str(path)], "key", *counted("n", None), "at", per_tick=True, user="who")
        found = events(source, InputFile(str(path), len(content)))
        # Keys that are not listed count nothing: a text that is long, or has a null byte.
        read.append([(e.value, e.timestamp) for e in found if e.value[0] in KEYS])
    assert read[0] == read[1]
    assert len(read[0]) == len(SOUND)


def test_a_file_of_hostile_rows_alone(tmp_path: Path) -> None:
    """Headers alone, and rows none of which can be read, are the same log."""
    path = tmp_path / "in.csv"
    path.write_bytes(csv_of([]))
    before = shown(path)
    path.write_bytes(csv_of([*BROKEN_CSV, *cells_of(TEXTS)]))
    assert shown(path) == before
    path = tmp_path / "in.jsonl"
    path.write_bytes(b"")
    before = shown(path)
    path.write_bytes(json_of([*BROKEN_JSON, *cells_of(TEXTS)]))
    assert shown(path) == before


@pytest.mark.parametrize("name", ["csv", "json", "parquet, null keys"])
def test_a_private_look_counts_them_by_column_and_reason(name: str, tmp_path: Path) -> None:
    file, without, hostile = FILES[name]
    path = tmp_path / file
    words = (*WORDS, "--output", tmp_path / "out.csv", "--check")
    path.write_bytes(without)
    ended = command("--input", path, *words, main=ticks.main)
    assert (ended.status, ended.err) == (0, "")
    assert "cannot be read" not in ended.out
    path.write_bytes(hostile)
    ended = command("--input", path, *words, main=ticks.main)
    assert (ended.status, ended.err) == (1, "")
    assert ended.out.startswith("PRIVATE: ")
    assert SECRET not in re.sub(f"'{SECRET}[^']*'", "", ended.out)  # keys that are not listed
    time = "column 'at': the timestamp"
    for part in {
        "csv": [
            "4 rows cannot be read and count nothing: not UTF-8 text",
            "malformed CSV: a quote is open at the end of the line",
            f"nothing: {time} is empty",
            f"nothing: {time} has another format",
            f"nothing: {time} lies outside the years 1 to 9999",
        ],
        "json": [
            "not a JSON object",
            "2 rows cannot be read and count nothing: no field 'at' in the row",
            "column 'key': the key is null",
            "column 'at': an object, a list or half a character",
            f"{time} is neither text, nor a number, nor a date",
        ],
    }.get(name, ["4 rows cannot be read and count nothing: column 'key': the key is null"]):
        assert part in ended.out, ended.out


def test_people_whose_bytes_differ_are_not_one(tmp_path: Path) -> None:
    """Were bytes that are not text replaced, the rows of two people would be those of one."""
    path = tmp_path / "in.csv"
    path.write_bytes(csv_of([b"a,\xfe,1,1700000005", b"a,\xff,1,1700000006", *SOUND]))
    shown(path, "--user", "who", "--per-user", 1)
    assert [v for key, _, _, v in written(tmp_path / "out.csv") if key == "a"] == COUNTED["a"]


def test_a_private_look_at_parquet(tmp_path: Path) -> None:
    """Why a cell cannot be read is said as it is: bytes that are not text are not a null."""
    file, _, hostile = FILES["parquet, bytes that are not text"]
    path = tmp_path / file
    path.write_bytes(hostile)
    words = (*WORDS, "--output", tmp_path / "out.csv", "--check")
    said = command("--input", path, *words, main=ticks.main).out
    reason = "neither UTF-8 text nor a date of the years 1 to 9999"
    assert f"4 rows cannot be read and count nothing: column 'key': {reason}" in said


def test_bounds_read_rows_as_ticks_do(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    plain = (*without(WORDS, "--metric"), "--value", "n", "--bounds", 0, 2)
    words = ("--input", path, *plain, "--user", "who")
    path.write_bytes(csv_of(SOUND))
    sound = command(*words, main=bounds.main)
    path.write_bytes(csv_of(interspersed(SOUND, BROKEN_CSV)))
    ended = command(*words, main=bounds.main)
    assert (ended.status, ended.err) == (0, "")
    lines = ended.out.splitlines()
    assert [line for line in lines if "cannot be read and count" not in line] == (
        sound.out.splitlines()
    )
    assert len(lines) > len(sound.out.splitlines())


# What a file as a whole decides


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("in.csv.gz", gzip.compress(csv_of(SOUND * 5000))[:-9]),
        ("in.csv", gzip.compress(csv_of(SOUND * 5000))[:-9]),
        ("in.jsonl.gz", gzip.compress(json_of(SOUND * 5000))[:-9]),
        ("in.csv.gz", csv_of(SOUND)),
        ("in.parquet", parquet_of(table_of(SOUND * 500))[:-30]),
        ("in.parquet", b""),
    ],
    ids=["gzip", "no suffix", "json", "no gzip", "parquet", "empty"],
)
def test_a_damaged_file_stops_before_anything_is_drawn_or_charged(
    name: str, content: bytes, tmp_path: Path
) -> None:
    """Behind a hundred others, too, and without the number of a row."""
    folder, account = tmp_path / "in", tmp_path / "account.jsonl"
    folder.mkdir()
    for number in range(101):
        (folder / f"{number:03}.csv").write_bytes(csv_of(SOUND[:1]))
    (folder / name).write_bytes(content)
    _stops(folder, account, "cannot be read|damaged")


def test_a_damaged_row_group_stops_before_anything_is_drawn_or_charged(tmp_path: Path) -> None:
    out = io.BytesIO()
    table = table_of(row._replace(who=f"{SECRET}{i}") for i, row in enumerate(SOUND * 3000))
    pq.write_table(table, out, row_group_size=4000, use_dictionary=False)
    damaged, middle = out.getvalue(), len(out.getvalue()) // 2
    path = tmp_path / "in.parquet"
    path.write_bytes(damaged[:middle] + b"\xff" * 5000 + damaged[middle + 5000 :])
    _stops(path, tmp_path / "account.jsonl", "damaged", *PEOPLE)


def test_a_missing_column_stops_before_anything_is_drawn_or_charged(tmp_path: Path) -> None:
    for number in range(102):
        (tmp_path / f"{number:03}.csv").write_bytes(csv_of(SOUND[:1]))
    path = tmp_path / "101.csv"
    path.write_bytes(path.read_bytes().replace(b"at", b"when"))
    _stops(tmp_path / "*.csv", tmp_path / "account.jsonl", "101.csv, header: no column 'at'")


def _stops(path: Path, account: Path, said: str, *more: object) -> None:
    account_file.create(str(account), dp.ZCDP(1e13), None)
    before = account.read_bytes()
    words = (*WORDS, *more, "--account", account, "--output", account.parent / "out.csv")
    ended = command("--input", path, *words, main=ticks.main)
    assert (ended.status, ended.out) == (2, "")
    assert re.search(said, ended.err)
    assert "row " not in ended.err
    assert SECRET not in ended.err
    assert account.read_bytes() == before
    assert not (account.parent / "out.csv").exists()


def test_line_breaks_within_quotes(tmp_path: Path) -> None:
    """A quote that is broken stops before anything is counted: what follows could be anything."""
    path, account = tmp_path / "in.csv", tmp_path / "account.jsonl"
    broken = [b'a,"p\nq",1,1700000005', *SOUND]
    path.write_bytes(csv_of(broken))
    shown(path)
    assert [v for key, _, _, v in written(tmp_path / "out.csv") if key == "a"] == COUNTED["a"]
    shown(path, "--multiline")
    assert [v for k, _, _, v in written(tmp_path / "out.csv") if k == "a"] == [3, 4, 4, 4]
    # Rows of another length, or that are not UTF-8, count nothing, with line breaks or without.
    path.write_bytes(csv_of(interspersed(SOUND, [b'a,"\n\xff",1,1700000005', b'a,"\n",1', b"a"])))
    shown(path, "--multiline")
    assert [v for k, _, _, v in written(tmp_path / "out.csv") if k == "a"] == COUNTED["a"]
    (tmp_path / "out.csv").unlink()
    (tmp_path / "out.csv.manifest.json").unlink()
    for line in (b'a,"p,1,1700000005', b'a,"p"x,1,1700000005'):
        account.unlink(missing_ok=True)
        path.write_bytes(csv_of([*SOUND, line, *SOUND]))
        _stops(path, account, "malformed CSV", "--multiline")


def test_a_folder_is_counted_and_not_written_into(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "1.csv").write_bytes(csv_of(SOUND[:5]))
    (folder / "2.jsonl").write_bytes(json_of([*BROKEN_JSON, *SOUND[5:]]))
    (folder / "_SUCCESS").touch()
    command("--input", folder, *WORDS, "--output", tmp_path / "out.csv", main=ticks.main)
    found = {key: [v for k, _, _, v in written(tmp_path / "out.csv") if k == key] for key in KEYS}
    assert found == COUNTED
    ended = command("--input", folder, *WORDS, "--output", folder / "out.csv", main=ticks.main)
    assert (ended.status, ended.out) == (2, "")
    assert "is in a folder that is read; write it elsewhere" in ended.err
    assert sorted(path.name for path in folder.iterdir()) == ["1.csv", "2.jsonl", "_SUCCESS"]


@pytest.mark.parametrize("option", ["--input", "--output"])
def test_a_file_system_that_is_not_there_says_what_to_do(option: str, tmp_path: Path) -> None:
    pytest.importorskip("apache_beam.io.aws")
    if importlib.util.find_spec("boto3"):
        pytest.skip("boto3 is installed")
    path = tmp_path / "in.csv"
    path.write_bytes(csv_of(SOUND))
    given = {"--input": path, "--output": tmp_path / "out.csv"} | {option: "s3://bucket/x.csv"}
    words = [word for pair in given.items() for word in pair]
    ended = command(*words, *WORDS, main=ticks.main, overwrite=False)
    extra = "it needs pip install 'apache-beam[aws]' and access to it; or use local files"
    assert (ended.status, ended.out) == (2, "")
    assert ended.err == f"error: cannot look for 's3://bucket/x.csv': {extra}\n"


@pytest.mark.parametrize("name", ["csv", "json"])
def test_per_element_a_record_is_a_line_as_well_and_errors_name_it(
    name: str, tmp_path: Path
) -> None:
    line, reason = {
        "csv": (b'a,"p\nq",1,1700000005', "a quote is open at the end of the line"),
        "json": (b'{"key": "a",\n"at": 1}', "not a JSON object"),
    }[name]
    path = tmp_path / {"csv": "in.csv", "json": "in.jsonl"}[name]
    path.write_bytes({"csv": csv_of, "json": json_of}[name]([*SOUND, line]))
    words = ("--key", "key", "--value", "n", "--bounds", 0, 2, "--horizon", 20, *EXACT)
    ended = command("--input", path, *words, "--output", tmp_path / "o.csv", main=count.main)
    assert ended.status == 2
    assert f"{path.name}, row 9: " in ended.err
    assert reason in ended.err


# Rows, Beam YAML and the live log


class Loose(NamedTuple):
    """A row whose schema says nothing."""

    key: Any
    who: Any
    n: Any
    at: Any


NESTED = (
    *(Row(at=at) for at in (None, True, math.nan, math.inf, [AT], {"at": AT}, b"17", 1e300)),
    *(Row(key=key) for key in (None, True, ["a"], {"a": 1}, b"a", math.nan, 1.5)),
)
OF_ROWS: dict[str, Any] = {
    **{"key": "key", "timestamp": "at", "timestamp_format": "unix", "keys": [*KEYS]},
    **{"tick": 20, "start": AT, "horizon": 4, "metrics": ["sum(n, 0, 2)"], "rho": 1e12},
}


@pytest.mark.pipeline
@pytest.mark.parametrize("path", ["bounded", "streaming"])
def test_no_row_of_a_collection_is_seen(path: str, capfd: pytest.CaptureFixture[str]) -> None:
    def seen(rows: Sequence[Row]) -> Outside:
        def build(pipeline: beam.Pipeline) -> dict[str, Any]:
            made: Any = beam.Create([tuple(row) for row in rows], reshuffle=False)
            loose: Any = beam.MapTuple(Loose).with_output_types(Loose)
            return {"": pipeline | made | "Row" >> loose | TickCountRows(**OF_ROWS, path=path)}

        return outside(build, capfd)

    rows = interspersed(SOUND, [*cells_of(TEXTS), *NESTED])
    assert seen(rows) == seen(SOUND)


@pytest.mark.pipeline
def test_no_row_of_a_yaml_pipeline_is_seen(capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("docstring_parser")  # of the extra yaml
    import yaml  # type: ignore[import-untyped]
    from apache_beam.yaml.yaml_provider import parse_providers
    from apache_beam.yaml.yaml_transform import YamlTransform

    provider = resources("beam_dpcount.rows") / "provider.yaml"
    providers = parse_providers("", yaml.safe_load(provider.read_text()))
    config = OF_ROWS | {"metrics": ["rate(n = 1)", "count"]}

    def seen(rows: Sequence[Row]) -> Outside:
        elements = [
            {name: cell if cell is None else str(cell) for name, cell in row._asdict().items()}
            for row in rows
        ]
        steps = [("Create", {"elements": elements}), ("TickCount", config)]
        chain = [{"type": kind, "config": how} for kind, how in steps]
        text = json.dumps({"type": "chain", "transforms": chain})
        return outside(lambda p: {"": p | YamlTransform(text, providers)}, capfd)

    hostile = [*cells_of(TEXTS), Row(at=None), Row(key=None), Row(None, None, None, None)]
    seen(SOUND)  # Beam says some things once in a process
    assert seen(interspersed(SOUND, hostile)) == seen(SOUND)


def live_line(row: Row) -> bytes:
    return json.dumps({"at": row.at, "person": row.who, "service": row.key}).encode()


@pytest.mark.pipeline
def test_no_line_of_the_live_log_is_seen(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    log, clock = tmp_path / "log", (clock_line(1000), clock_line(4000))
    sound = [request_line(1000 + 300 * i, f"p{i}", KEYS[i % 2]).rstrip() for i in range(6)]
    texts = [live_line(row) for row in cells_of(TEXTS)]
    broken = [
        line.replace(b'"key"', b'"service"').replace(b"1700000005", b"1500") for line in BROKEN_JSON
    ]

    def seen(lines: Sequence[bytes]) -> Outside:
        log.write_bytes(clock[0] + b"".join(line + b"\n" for line in lines) + clock[1])

        def build(pipeline: beam.Pipeline) -> dict[str, Any]:
            count = TickNumbers(dp.ZCDP(1e12), 1, 1, 4, keys=KEYS, value=lambda _: 1)
            return {"": pipeline | live.TailLog(str(log), 4000) | count}

        return outside(build, capfd)

    assert seen(interspersed(sound, [*texts, *broken])) == seen(sound)

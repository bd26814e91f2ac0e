"""Odd files, and both lanes over them: in columns, and row by row in a pipeline."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import strategies as st

from beam_dpcount.arguments.timestamps import FIRST, LAST
from beam_dpcount.commands import lanes, manifest, ticks
from beam_dpcount.commands.files.columns import columns_of
from beam_dpcount.commands.files.elements import elements_of
from beam_dpcount.commands.files.events import events
from beam_dpcount.commands.files.formats import InputError, InputFile, Source
from beam_dpcount.lanes.contents import Contents
from beam_dpcount.statistics.numbers import Numbers
from tests import command_lines

Rows = Counter[tuple[Any, ...]]

# Cells of texts, times and numbers, most of them plain, and others that parsers read unlike.
TEXTS = st.sampled_from(
    ["a", "b", "", "é", "7", "007", " a", "a b", "null", "NA", "東", "a'b", "\t"]
)
TIMES = st.one_of(
    st.integers(95, 165).map(str),
    st.sampled_from(
        ["", "1e2", "+120", "120.5", "0120", "-5", " 120", "120 ", "1_20", "0x78", "x"]
    ),
    st.sampled_from(["1" * 14, "9" * 18, "1" * 400, "120.0000001", "٣", "nan", "120\0"]),
)
ISO = st.one_of(
    st.integers(0, 59).map(lambda s: f"1970-01-01T00:02:{s:02}Z"),
    st.sampled_from(["1970-01-01T00:02:00", "1970-01-01 00:02:10.5Z", "1970-01-01T00:02:10.500Z"]),
    st.sampled_from(
        ["1970-01-01T01:02:10+01:00", "1970-01-01T00:02:10.000001-00:00", "1970-01-01"]
    ),
    st.sampled_from(["1970-02-29T00:02:10Z", "1972-02-29T00:02:10Z", "1970-01-01T00:02:60Z", "Z"]),
    st.sampled_from(["1970-01-01T24:00:00Z", "0000-01-01T00:00:00Z", "1970-01-01T00:02:10z", ""]),
    st.sampled_from(["0001-01-01T00:00:00+23:00", "1970-13-01T00:02:10Z", "1970_01_01T00:02:10Z"]),
)
NUMBERS = st.one_of(
    st.integers(-9, 9).map(str),
    st.floats(-9, 9).map(repr),
    st.sampled_from(["", "x", "nan", "inf", "-inf", "+3", "1e1", " 2", "1_0", "٣", "5.", ".5"]),
    st.sampled_from(["1" * 14, "2" * 400, "0x2", "-0", "00002", "true", "1,5"]),
)
PAGES = st.lists(st.tuples(TIMES, TEXTS, TEXTS, NUMBERS), max_size=40)
# Lines that are not plain cells between commas.
_ODD = rb"""
"
"110","a",u,1
110,"a""b",u,1
110,"a,b",u,1
"110","a""b",u,1,,
"110","b",u,1,"x"
110,"","u",""
110,a"b,u,1
"110"x,a,u,1
110,a
110,a,u,1,,
110,a,u,1,x
# 110,a,u,1
110,a,u,\1
,"""
LINES = st.sampled_from(
    [*_ODD.split(b"\n"), b" ", b"110,\xff,u,1", b"110,a,\xe9,1", b"110,a,u,1\r110,b,u,1", b"\x00"]
)


def csv_of(rows: Sequence[Sequence[str]], odd: Sequence[bytes] = (), end: bytes = b"\n") -> bytes:
    """A CSV file of such rows, with lines between them."""
    lines = [",".join(row).encode() for row in rows]
    for place, line in enumerate(odd):
        lines.insert(3 * place, line)
    return end.join([b"time,page,user,ms", *lines, b""])


def careful(source: Source, path: Path, contents: Sequence[Contents]) -> Rows:
    """What the reader of single rows finds in a file: key, person, time and what counts."""
    found: Rows = Counter()
    for key, event, micros in events(source, InputFile(str(path))):
        counted = tuple(
            tuple(int(column[0]) for column in each.of_payloads([event])) for each in contents
        )
        # Beyond the calendar, by an offset, they lie outside every clock, wherever it is.
        row = key, event.person, min(max(micros or 0, FIRST), LAST), counted
        found[row] += any(each[0] for each in counted)
    return +found


def in_columns(source: Source, path: Path, contents: Sequence[Contents]) -> Rows:
    """The same of the reader of columns."""
    found: Rows = Counter()
    for micros, counted, keys, people in columns_of(source, InputFile(str(path)), contents):
        many = len(micros)
        named = ["all"] * many if keys is None else keys.to_pylist()
        whose = [""] * many if people is None else people.to_pylist()
        each = [zip(*(x.tolist() for x in columns), strict=True) for columns in counted]
        cells = named, [w or "" for w in whose], micros.tolist(), zip(*each, strict=True)
        rows = zip(*cells, strict=True)
        found.update(row for row in rows if any(x[0] for x in row[3]) and row[0] is not None)
    return found


def elements_read(source: Source, path: Path, count: Numbers, in_columns: bool) -> Any:
    """Key, person, time and number of all rows per element, in their order; or what is wrong."""
    data = InputFile(str(path))
    try:
        if not in_columns:
            return [
                (key, event.person, micros or 0, count.number_of(event.value))
                for key, event, micros in events(source, data)
            ]
        found: list[Any] = []
        for keys, people, micros, xs in elements_of(source, data, count):
            whose = [""] * len(xs) if people is None else people.to_pylist()
            names = [name or "" for name in whose]
            found += zip(keys.to_pylist(), names, micros.tolist(), xs.tolist(), strict=True)
        return found
    except InputError as error:
        return str(error)


def both(
    words: Sequence[object], monkeypatch: pytest.MonkeyPatch, main: Any = ticks.main
) -> list[bytes]:
    """All that a command writes, and says of it, by each lane."""
    written = []
    needs = lanes.needs_rows
    for why in ("", "for a test"):
        with monkeypatch.context() as patched:
            patched.setattr(lanes, "needs_rows", lambda *given, w=why: w or needs(*given))
            said = command_lines.succeed(*words, main=main)
        out = Path(str(words[[*words].index("--output") + 1]))
        about = json.loads(Path(manifest.path_of(str(out))).read_text())
        del about["time"]
        if "--select-keys" in words:  # of which a simulation is told, another each time
            said = ""
        written.append(out.read_bytes() + json.dumps(about).encode() + said.encode())
    return written


def as_parquet(rows: Sequence[Sequence[str]], kind: pa.DataType) -> pa.Table:
    """Such rows as a table whose texts have this type."""
    columns = [*zip(*rows, strict=True)] or [()] * 4
    names = ("time", "page", "user", "ms")
    return pa.table(
        {n: pa.array(c, pa.string()).cast(kind) for n, c in zip(names, columns, strict=True)}
    )

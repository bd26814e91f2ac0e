"""Files of events with hostile rows, and without them: CSV, JSON lines and Parquet."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from tests.side_doors import SECRET

ONE_BY_ONE = ("--direct_num_workers", 1)  # an option for Beam: the lane of rows
AT = 1_700_000_000  # when the clock begins
KEYS = ("a", "b")


class Row(NamedTuple):
    """What a row says; at: seconds from the beginning."""

    key: Any = "a"
    who: Any = "p"
    n: Any = 1
    at: Any = AT + 5


SOUND = [Row(who=f"p{i}", key=KEYS[i % 2], n=i % 3, at=AT + 7 * i) for i in range(8)]
COUNTED = {"a": [2, 3, 3, 3], "b": [1, 3, 4, 4]}  # of SOUND, by ticks of 20 seconds
# Cells that no key or time can be read from, as texts: what all doors can hold.
TEXTS: dict[str, dict[str, str]] = {
    "n/a": {"at": "n/a"},
    "empty": {"at": ""},
    "blank": {"at": " "},
    "year 10000": {"at": "253402300800"},
    "year -1": {"at": "-99999999999999"},
    "words": {"at": SECRET},
    "another format": {"at": "14/11/2023 22:13:25"},
    "nan": {"at": "nan"},
    "infinite": {"at": "1e999"},
    "long": {"at": "9" * 5000},
    "digits": {"at": "\u0661"},
    "null byte": {"at": "17000\x0000005"},
    "long key": {"key": SECRET * 40_000},
    "null byte in a key": {"key": "a\x00"},
    "delimiter": {"key": "a,b", "at": "n/a, n/a"},
    "quote": {"key": 'a"', "at": '"1700000005"'},
}


def interspersed(rows: Sequence[Any], more: Iterable[Any]) -> list[Any]:
    """Rows with others before, between and behind them."""
    more, mixed = list(more), list[Any]()
    for i, row in enumerate([*rows, None]):
        mixed += more[i :: len(rows) + 1]
        mixed += [] if row is None else [row]
    return [*more[:1], *mixed, *more[-1:]]


# Files, with and without rows that cannot be read


def csv_line(row: Row) -> bytes:
    out = io.StringIO()
    csv.writer(out, lineterminator="").writerow(row)
    return out.getvalue().encode()


BROKEN_CSV = (
    b'a,"p,1,1700000005',
    b'a,p,1,"1700000005',
    b'"',
    b'""",',
    b'a,"p"x,1,1700000005',
    b'a,"p" ,1,1700000005',
    b"a,p,1",
    b"a",
    b"a,p,1,1700000005,6",
    b"a,p,1,1700000005,,,x",
    b"a,\xff\xfe,1,1700000005",
    b"a,p,1,1700000005\xff",
    b"\xed\xa0\x80,p,1,1700000005",
    b"a,p\x85,1,17\xc2\xa000000005",
    b"key,who,n,at",
    b"\xef\xbb\xbf",
    b"a,p,\r1,1700000005",  # two lines, neither of which is a row
    b'a,"p\r\n",1,1700000005',
    b'a,"' + b"p" * 300_000 + b",1,1700000005",
    b"p" * 300_000,
    b"," * 100_000,
    b"a;p;1;1700000005",
    b'{"key": "a", "who": "p", "n": 1, "at": 1700000005}',
    b"",
    b"\r",
)  # fmt: skip


def csv_of(rows: Iterable[Row | bytes], end: bytes = b"\n") -> bytes:
    lines = [row if isinstance(row, bytes) else csv_line(row) for row in rows]
    return b"".join(line + end for line in (b"key,who,n,at", *lines))


_DEEP = b"[" * 100_000
BROKEN_JSON = (
    b"{",
    b"}",
    b"[1]",
    b"[",
    b"null",
    b"5",
    b'"a"',
    b"{}",
    _DEEP,
    b'{"key": "a", "at": 1700000005',
    b'{"key": "a", "at": 1700000005}}',
    b"{'key': 'a', 'at': 1700000005}",
    b'{"key": "a"}',
    b'{"key": "a", "At": 1700000005}',
    b'{"at": 1700000005}',
    b'{"key": null, "at": 1700000005}',
    b'{"key": "a", "at": null}',
    b'{"key": ["a"], "at": 1700000005}',
    b'{"key": {"key": "a"}, "at": 1700000005}',
    b'{"key": {}, "at": {}}',
    b'{"key": "a", "at": [1700000005]}',
    b'{"key": "a", "at": true}',
    b'{"key": "a", "at": NaN}',
    b'{"key": "a", "at": -Infinity}',
    b'{"key": "a", "at": 1e400}',
    b'{"key": "a", "at": ' + b"9" * 5000 + b"}",
    b'{"key": "a", "at": 253402300800}',
    b'{"key": "a", "at": 1700000005, "at": "n/a"}',
    b'{"key": "a", "at": 1700000005, "key": null}',
    b'{"key": "\\ud800", "at": 1700000005}',
    b'{"key": "a", "at": "\\udfff1700000005"}',
    b'{"key": "a\xff", "at": 1700000005}',
    b'{"key": "a", "at": 1700000005, "more": ' + _DEEP + b"}",
    b'{"key": "a",\r"at": 1700000005}',
    b"\xef\xbb\xbf{}",
    b"key,who,n,at",
    b"",
    b"  \t",
    b"\x00",
)  # fmt: skip


def json_of(rows: Iterable[Row | bytes], end: bytes = b"\n") -> bytes:
    lines = [row if isinstance(row, bytes) else json.dumps(row._asdict()).encode() for row in rows]
    return b"".join(line + end for line in lines)


def odd(column: str, cells: Any) -> Callable[[pa.Table], pa.Table]:
    """Rows more, with these cells in a column that has their type, and as dictionaries."""

    def add(table: pa.Table) -> pa.Table:
        size, at = len(cells), table.schema.get_field_index(column)
        kind = cells.type.value_type if pa.types.is_dictionary(cells.type) else cells.type
        usual: Any = table.column(column)
        if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            usual = pa.array([str(x).encode() for x in usual.to_pylist()], kind)
        elif pa.types.is_string(kind):
            usual = pa.array([str(x) for x in usual.to_pylist()], kind)
        elif pa.types.is_timestamp(kind):
            usual = pa.array([x * 10**6 for x in usual.to_pylist()], pa.int64()).cast(kind)
        else:
            usual = pa.array(usual.to_pylist(), kind)
        plain = cells.dictionary_decode() if pa.types.is_dictionary(cells.type) else cells
        joined = pa.chunked_array([plain, usual, plain]).combine_chunks()
        if pa.types.is_dictionary(cells.type):
            # As categories are written: small indices into texts, some of which are not text.
            indices = pa.array(range(len(joined)), pa.int8())
            joined = pa.DictionaryArray.from_arrays(indices, joined)
        rows = [Row()._asdict()] * size
        more = pa.Table.from_pylist(rows, schema=table.schema)
        return pa.concat_tables([more, table, more]).set_column(at, column, joined)

    return add


def not_text(kind: Any) -> Any:
    binary = pa.large_binary() if kind == pa.large_string() else pa.binary()
    return pa.array([b"\xff", SECRET.encode() + b"\xed\xa0\x80"], binary).view(kind)


BROKEN_PARQUET: dict[str, Callable[[pa.Table], pa.Table]] = {
    "null keys": odd("key", pa.array([None, None], pa.string())),
    "keys that are not text": odd("key", not_text(pa.string())),
    "bytes that are not text": odd("key", not_text(pa.binary())),
    "large ones": odd("key", not_text(pa.large_string())),
    "dictionaries of them": odd("key", not_text(pa.string()).dictionary_encode()),
    "null times": odd("at", pa.array([None, None], pa.int64())),
    "times beyond": odd("at", pa.array([2**62, -(2**62)])),
    "not numbers": odd("at", pa.array([float("nan"), float("-inf"), None])),
    "texts as times": odd("at", pa.array([text["at"] for text in TEXTS.values() if "at" in text])),
    "texts that are none": odd("at", not_text(pa.string())),
    "timestamps beyond": odd("at", pa.array([2**62, None], pa.int64()).cast(pa.timestamp("us"))),
    "dictionaries of times": odd("at", pa.array(["n/a", SECRET]).dictionary_encode()),
}


def table_of(rows: Iterable[Row]) -> pa.Table:
    return pa.Table.from_pylist([row._asdict() for row in rows])


def parquet_of(table: pa.Table) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out, row_group_size=3)
    return out.getvalue()


def cells_of(texts: dict[str, dict[str, str]]) -> list[Row]:
    return [Row(who=f"q {name}")._replace(**cells) for name, cells in texts.items()]


def files() -> dict[str, tuple[str, bytes, bytes]]:
    """By a name: the name of a file, what it holds, and the same with hostile rows."""
    texts = cells_of(TEXTS)
    as_csv, as_json = (interspersed(SOUND, [*texts, *more]) for more in (BROKEN_CSV, BROKEN_JSON))
    ways: dict[str, tuple[str, Callable[[list[Any]], bytes]]] = {
        "csv": ("in.csv", csv_of),
        "csv, \\r\\n": ("in.csv", lambda rows: csv_of(rows, b"\r\n")),
        "csv, marked": ("in.csv", lambda rows: b"\xef\xbb\xbf" + csv_of(rows)),
        "csv, no end": ("in.csv", lambda rows: csv_of(rows) + b'a,"p,1,1700000005'),
        "csv, packed": ("in.csv.gz", lambda rows: gzip.compress(csv_of(rows))),
        "csv, gzip without a name": ("in.csv", lambda rows: gzip.compress(csv_of(rows))),
        "csv, bz2": ("in.csv.bz2", lambda rows: bz2.compress(csv_of(rows))),
        "json": ("in.jsonl", json_of),
        "json, \\r\\n": ("in.jsonl", lambda rows: json_of(rows, b"\r\n")),
        "json, packed": ("in.json.gz", lambda rows: gzip.compress(json_of(rows))),
    }
    made = {
        name: (file, pack(SOUND), pack(as_csv if name.startswith("csv") else as_json))
        for name, (file, pack) in ways.items()
    }
    for name, add in BROKEN_PARQUET.items():
        table = table_of(SOUND)
        made[f"parquet, {name}"] = "in.parquet", parquet_of(table), parquet_of(add(table))
    return made


FILES = files()

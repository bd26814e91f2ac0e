"""Hostile bytes, values and files, made at random for as long as a test asks for them."""

from __future__ import annotations

import csv
import datetime as dt
import gzip
import io
import itertools
import math
import random
import struct
import time
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SECRET = "s3cr3t"
# Errors that a user's function, or a value's own, may raise of what data hold.
BY_DATA = (ValueError, TypeError, ZeroDivisionError, OverflowError, KeyError, IndexError)


def chances(seconds: float, least: int = 1, seed: int = 1) -> Iterator[random.Random]:
    """Sources of chance, the same ones each time: for so long, and so many at least."""
    end = time.monotonic() + seconds
    for number in itertools.count():
        if number >= least and time.monotonic() >= end:
            return
        yield random.Random(f"{seed} {number}")


# Bytes


def sealed(body: bytes) -> bytes:
    """Bytes with the checksum of a state behind them."""
    return body + struct.pack("<I", zlib.crc32(body))


def hostile_bytes(chance: random.Random, states: Sequence[bytes]) -> bytes:
    """Bytes made of some valid states, or of nothing; some have a right checksum."""
    made = chance.choice([_random, _cut, _flipped, _spliced, _version, _repeated, _numbers])(
        chance, states
    )
    return sealed(made[:-4]) if chance.random() < 0.5 else made


def _random(chance: random.Random, states: Sequence[bytes]) -> bytes:
    return chance.randbytes(chance.choice([0, 1, 4, 23, 24, 27, 28, 29, 36, 60, 200]))


def _cut(chance: random.Random, states: Sequence[bytes]) -> bytes:
    data = chance.choice(states)
    at = chance.randrange(len(data) + 1)
    return chance.choice([data[:at], data[at:], data + chance.randbytes(chance.randrange(20))])


def _flipped(chance: random.Random, states: Sequence[bytes]) -> bytes:
    data = bytearray(chance.choice(states))
    for _ in range(chance.choice([1, 1, 2, 8])):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return bytes(data)


def _spliced(chance: random.Random, states: Sequence[bytes]) -> bytes:
    one, other = chance.choice(states), chance.choice(states)
    at = chance.randrange(min(len(one), len(other)))
    return one[:at] + other[at:]


def _version(chance: random.Random, states: Sequence[bytes]) -> bytes:
    data = chance.choice(states)
    return bytes([chance.randrange(256)]) + data[1:]


def _repeated(chance: random.Random, states: Sequence[bytes]) -> bytes:
    data = chance.choice(states)
    a, b = sorted(chance.randrange(len(data) + 1) for _ in "ab")
    return data[:b] + data[a:b] * chance.choice([1, 2, 5]) + data[b:]


def _numbers(chance: random.Random, states: Sequence[bytes]) -> bytes:
    """Some whole number in it is another one: a length, a count, a step."""
    data = bytearray(chance.choice(states))
    kind, size = chance.choice([("<H", 2), ("<I", 4), ("<q", 8)])
    at = chance.randrange(max(1, len(data) - size))
    limit = 1 << 8 * size - (kind == "<q")
    number = chance.choice([0, 1, 2, 255, limit - 1, limit >> 1, chance.randrange(limit)])
    struct.pack_into(kind, data, min(at, max(0, len(data) - size)), number)
    return bytes(data)


# Values


class Text(str):
    """A text that compares, hashes and prints unlike what it holds."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0

    def __str__(self) -> str:
        return SECRET


class Number(float):
    """A number that is larger and smaller than all others."""

    def __lt__(self, other: object) -> bool:
        return True

    __gt__ = __le__ = __ge__ = __eq__ = __lt__  # type: ignore[assignment]

    def __hash__(self) -> int:
        return 0


class Whole(int):
    """A whole number that is another one as an index, and as a float."""

    def __index__(self) -> int:
        return 10**30

    def __float__(self) -> float:
        return math.inf

    def __round__(self, digits: Any = None) -> Any:
        return 10**30


class Closed(type):
    """A class that fails whenever it is asked for anything, and says what it holds."""

    def _fail(cls, *_: Any) -> Any:
        raise RuntimeError(SECRET)

    __getattr__ = __getattribute__ = __instancecheck__ = __subclasscheck__ = _fail
    __hash__ = __eq__ = __iter__ = __len__ = __contains__ = __repr__ = __dir__ = _fail  # type: ignore[assignment]


class Open(type):
    """A class that has all that it is asked for, but which is in no namespace of its own."""

    def __getattr__(cls, name: str) -> Any:
        return ()


SPECIAL = (
    *("__float__", "__int__", "__index__", "__hash__", "__eq__", "__lt__", "__gt__", "__iter__"),
    *("__len__", "__getitem__", "__bool__", "__str__", "__repr__", "__round__", "__contains__"),
)


def _raising(chance: random.Random) -> Any:
    """A value, of one of several types, of which some uses fail, and show it."""
    error = chance.choice(BY_DATA)

    def fail(*_: Any, **__: Any) -> Any:
        raise error(SECRET)

    base = chance.choice([object, float, int, str, tuple, list, dict, Fraction, Decimal])
    names = chance.sample(SPECIAL, chance.randrange(1, len(SPECIAL)))
    metaclass = chance.choice([type, Closed, Open]) if type(base) is type else type
    kind: Any = metaclass("Raising", (base,), dict.fromkeys(names, fail))
    return kind() if base in (object, str, tuple, list, dict) else base.__new__(kind, 1)


class Items(Mapping[Any, Any]):
    """A mapping that names more than it holds."""

    def __getitem__(self, item: Any) -> Any:
        return 7

    def __iter__(self) -> Iterator[Any]:
        return iter(["a", SECRET, "b"])

    def __len__(self) -> int:
        return 10**9


def _breaking() -> Iterator[Any]:
    yield "a"
    raise ValueError(SECRET)


def _closed_kinds() -> list[Callable[[], Any]]:
    """Makers of values whose classes answer no question, or every one."""
    made: list[Callable[[], Any]] = []
    for metaclass in (Closed, Open):
        kinds: list[Any] = [metaclass("Kind", (base,), {}) for base in (object, tuple, str, dict)]
        plain, pair, text, mapping = kinds
        made += [
            plain,
            lambda pair=pair: pair(("a", 1)),
            lambda pair=pair, plain=plain: pair((plain(), 1)),
            lambda text=text: text("a"),
            lambda mapping=mapping: mapping(a=1),
        ]
    return made


ATOMS: tuple[Callable[[], Any], ...] = tuple(
    (lambda value=value: value)  # type: ignore[misc]
    for value in (
        *(None, True, False, 0, 1, -1, 2, 9, -9, 2**31, 2**63, -(2**63) - 1, 10**400, 10**5000),
        *(0.0, -0.0, 0.5, 1.5, 1e300, 1e-320, math.inf, -math.inf, math.nan, 1j, complex("nan")),
        *(np.float32(1.5), np.float16("inf"), np.longdouble("1e4000"), np.float64("nan")),
        *(np.int8(-128), np.uint64(2**64 - 1), np.bool_(True), np.str_("a"), np.bytes_(b"a")),
        *(np.datetime64("NaT"), np.timedelta64(1, "s"), np.array(1), np.array([1, 2])),
        *(np.array([]), np.array(["a", "b"], dtype=object), np.ma.masked, np.void(b"ab")),
        *(Decimal(1), Decimal("1e99999"), Decimal("NaN"), Decimal("sNaN"), Decimal("-Infinity")),
        *(Fraction(1, 3), Fraction(10**400), Fraction(1, 10**400)),
        *("a", "b", "z", "", "ab", "0", "1", "\x00", "\ud800", "a\udfff", "é", SECRET),
        *("a" * 10**5, b"", b"a", b"\xff", bytearray(b"a"), memoryview(b"ab")),
        *((), [], {}, set(), frozenset("ab"), ["a", "b"], ["a", "a"], ["a", "z"], [["a"]], "abc"),
        *({"a": 1, "b": -1}, {"a": 2}, {"a": True}, {"a": math.nan}, {1: "a"}, OrderedDict(a=1)),
        *((0, 1), (1, 0), (1, 1), (0, 9), (0, 1, 1), (0, 1, -1), (0, 1, 0.5), (0, 1, 2, 3)),
        *([0, 1], np.longlong(7)),
        *(("0", "1"), (0.0, 1.0), (np.int64(0), np.uint8(1)), (True, False), (0, 1, math.nan)),
        *(range(3), object(), type, len, Ellipsis, NotImplemented, dt.date(2020, 1, 1)),
        *(make() for make in _closed_kinds()),
        *(dt.timedelta(1), Text("a"), Text("z"), Number(1), Number("nan"), Whole(1), Items()),
    )
)  # fmt: skip
MADE: tuple[Callable[[], Any], ...] = (_breaking, lambda: iter("ab"), lambda: (x for x in (1, 2)))


def hostile_value(chance: random.Random, depth: int = 0) -> Any:
    """Anything that data, or a function of the user, may give."""
    kind = chance.random()
    if kind < 0.15:
        return _raising(chance)
    if kind < 0.3 and depth < 3:
        made = [hostile_value(chance, depth + 1) for _ in range(chance.randrange(4))]
        wrap: Any = chance.choice([tuple, list, _mapping, _deep])
        return wrap(made)
    return chance.choice((*ATOMS, *MADE))()


def _mapping(values: list[Any]) -> dict[str, Any]:
    return dict(zip("abz", values, strict=False))


def _deep(values: list[Any]) -> Any:
    made: Any = values
    for _ in range(5000):
        made = [made]
    return made


# Files of events


HEADER, NAMES = (
    ("key", "who", "n", "time"),
    ("ann", "bob", "", "\u00e9 \u00df", "x" * 3000, "a,b", 'q"q'),
)


def rows_of(chance: random.Random, most: int = 12) -> list[tuple[str, ...]]:
    """Rows of a log, as text: a key, a person, a number and a time."""
    return [
        (
            chance.choice(NAMES[:4]),
            chance.choice(NAMES),
            chance.choice(["0", "1", "2", "-7", "1e400", "nan", "", SECRET, "7_0", "9" * 400]),
            str(chance.randrange(0, 40)),
        )
        for _ in range(chance.randrange(most))
    ]


def csv_of(rows: Iterable[Sequence[str]], end: str = "\n") -> bytes:
    """A file of CSV with a header."""
    text = io.StringIO()
    csv.writer(text, lineterminator=end).writerows([HEADER, *rows])
    return text.getvalue().encode()


def hostile_csv(chance: random.Random) -> tuple[str, bytes]:
    """The name and the bytes of a file of events, sound or not."""
    data = csv_of(rows_of(chance), chance.choice(["\n", "\r\n", "\r"]))
    name = chance.choice([*_WAYS])
    return f"{name}.csv", _WAYS[name](chance, data)


def _line(chance: random.Random, data: bytes, line: bytes) -> bytes:
    """With a line more, somewhere behind the header."""
    lines = data.splitlines(keepends=True)
    lines.insert(chance.randrange(1, len(lines) + 1), line)
    return b"".join(lines)


_WAYS: dict[str, Callable[[random.Random, bytes], bytes]] = {
    "sound": lambda chance, data: data,
    "with a mark": lambda chance, data: b"\xef\xbb\xbf" + data,
    "empty": lambda chance, data: b"",
    "a header alone": lambda chance, data: data.splitlines(keepends=True)[0],
    "no header": lambda chance, data: b"".join(data.splitlines(keepends=True)[1:]),
    "two headers": lambda chance, data: _line(chance, data, b"key,who,n,time\n"),
    "a column twice": lambda chance, data: data.replace(b"key,who,n", b"key,n,n", 1),
    "other text": lambda chance, data: data.decode().encode(chance.choice(["utf-16", "utf-32"])),
    "not text": lambda chance, data: _line(chance, data, b"ann,\xff\xfe%s,1,2\n" % SECRET.encode()),
    "zeros": lambda chance, data: _line(chance, data, b"ann,a\x00b,1,2\n"),
    "short": lambda chance, data: _line(chance, data, b"%s,a\n" % SECRET.encode()),
    "long": lambda chance, data: _line(chance, data, b"ann,a,1,2,3,4,5\n"),
    "blank": lambda chance, data: _line(chance, data, chance.choice([b"\n", b"\r\n\r\n"])),
    "open": lambda chance, data: _line(chance, data, b'ann,"%s,1,2\n' % SECRET.encode()),
    "quoted": lambda chance, data: _line(chance, data, b'ann,"%s"x,1,2\n' % SECRET.encode()),
    "large": lambda chance, data: _line(chance, data, b"ann,a,%s,2\n" % (b"9" * 10_000_000)),
    "no time": lambda chance, data: _line(chance, data, b"ann,a,1,%s\n" % SECRET.encode()),
    "packed": lambda chance, data: gzip.compress(data + b"ann,a,1,2\n" * 500_000, 1),
    "cut": lambda chance, data: data[: chance.randrange(len(data) + 1)],
    "flipped": lambda chance, data: _flipped(chance, [data]),
    "random": lambda chance, data: chance.randbytes(chance.randrange(300)),
}  # fmt: skip


def hostile_parquet(chance: random.Random) -> tuple[str, bytes]:
    """The same of Parquet: cut, flipped, of other types, or sound."""
    rows = rows_of(chance)
    columns = dict(zip(HEADER, zip(*rows, strict=True), strict=False)) if rows else {}
    cells: dict[str, Any] = {name: list(columns.get(name, ())) for name in HEADER}
    kind = chance.choice(["sound", "nulls", "numbers", "lists", "bytes", "cut", "flipped"])
    if kind == "nulls" and rows:
        cells[chance.choice(HEADER)][chance.randrange(len(rows))] = None
    elif kind == "numbers":
        cells["n"] = [float(i) for i in range(len(rows))]
    elif kind == "lists":
        cells["n"] = [[SECRET]] * len(rows)
    elif kind == "bytes":
        cells["n"] = [SECRET.encode() + b"\xff"] * len(rows)
    out = io.BytesIO()
    pq.write_table(pa.table(cells), out)
    data = out.getvalue()
    if kind == "cut":
        data = data[: chance.randrange(len(data))]
    elif kind == "flipped":
        data = _flipped(chance, [data])
    return f"{kind}.parquet", data

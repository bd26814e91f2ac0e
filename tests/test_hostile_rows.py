"""Counts of rows whatever their fields hold; that noise is of the fields; rows tried out."""

from __future__ import annotations

import datetime as dt
import math
import warnings
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.coders import FastPrimitivesCoder
from apache_beam.pvalue import Row
from apache_beam.transforms.window import FixedWindows, TimestampedValue
from apache_beam.utils.timestamp import MAX_TIMESTAMP, MIN_TIMESTAMP, Timestamp

import beam_dpcount as dp
from beam_dpcount.counters.clock import OUTSIDE, UNLISTED
from beam_dpcount.rows import HistogramRows, PrefixCountRows, TickCountRows
from beam_dpcount.rows.fields import ReadRow, TimeOf, plain, text
from tests.fuzz import Closed, Open
from tests.runners import each_path, root, run
from tests.side_doors import SECRET, outside


class Wild(NamedTuple):
    """A row whose schema says nothing of what its fields hold."""

    page: Any = "a"
    at: Any = 10
    amount: Any = 1.0
    user: Any = "u"
    id: Any = 0
    tip: Any = 1.0
    at2: Any = 10


class Raising:
    """What stops whoever looks at it."""

    def _raise(self, *_: Any) -> Any:
        raise RuntimeError(SECRET)

    __str__ = __repr__ = __float__ = __int__ = __eq__ = __lt__ = __reduce_ex__ = _raise  # type: ignore[assignment]
    __hash__ = _raise


class Lying(str):
    """A text that says it is another."""

    def __str__(self) -> str:
        raise RuntimeError(SECRET)


HOSTILE: dict[str, Any] = {
    "surrogate": f"{SECRET}\ud800",
    "half": "\udfff",
    "null": None,
    "huge": 10**5000,
    "huge below": -(10**5000),
    "beyond 64 bits": 2**63,
    "beyond floats": 10**400,
    "fraction": Fraction(10**400),
    "decimal": Decimal("1e999999"),
    "no decimal": Decimal("sNaN"),
    "nan": math.nan,
    "infinite": -math.inf,
    "longdouble": np.longdouble("1e4000"),
    "complex": np.complex128(1 + 1j),
    "float16": np.float16("inf"),
    "first": MIN_TIMESTAMP,
    "last": MAX_TIMESTAMP,
    "year 0": Timestamp(micros=-62_135_596_800_000_001),
    "year 10000": Timestamp(micros=253_402_300_800_000_000),
    "date": dt.date.max,
    "datetime": dt.datetime.max.replace(tzinfo=dt.timezone(-dt.timedelta(hours=23))),
    "long text": SECRET + "9" * 100_000,
    "bytes": b"\xff" + SECRET.encode(),
    "list": ["\ud800"],
    "object": Raising(),
    "closed": Closed("Kind", (), {})(),
    "open": Open("Kind", (), {})(),
    "lying": Lying(SECRET),
}
FIELDS = ("page", "at", "amount", "user")
AT: dict[str, Any] = {"timestamp": "at", "rho": "1e12"}
CLOCK: dict[str, Any] = {"tick": 60, "start": 0, "horizon": 3, **AT}
PEOPLE: dict[str, Any] = {"user": "user", "per_user": 3, "per_key": 3}
METRICS = ["count", {"metric": "sum", "field": "amount", "low": -1, "high": 5}]
MADE: dict[str, Callable[[str], Any]] = {
    "count": lambda path: TickCountRows(
        "page", **CLOCK, **PEOPLE, keys=["a", "b"], metrics=["sum(amount, 0, 1)"], path=path
    ),
    "other": lambda path: TickCountRows("page", **CLOCK, keys=["a", "b"], other="b", path=path),
    "selected": lambda path: TickCountRows(
        "page", **CLOCK, select_keys=True, select_delta=1e-9, select_shards=2, path=path
    ),
    "metrics": lambda path: TickCountRows(
        "page", **CLOCK, **PEOPLE, keys=["a", "b"], metrics=METRICS, path=path
    ),
}
TEXTS = ("long text", "lying")  # keys as others are
COUNTED = [Wild(), Wild("b", 70), Wild(at="1970-01-01T00:02:10Z", amount=2), Wild(9, 70)] * 2


class Name(str):
    """Stands for something hostile."""


class Seeming:
    """A row whose fields hold what their names stand for, for whoever reads them.

    Beam encodes a sample of all that goes from step to step, and takes it.
    """

    def __init__(self, row: Any) -> None:
        self._row = row

    def __getattr__(self, field: str) -> Any:
        if field.startswith("_"):
            raise AttributeError(field)
        held = getattr(self._row, field)
        return HOSTILE[held] if isinstance(held, Name) else held


def made(rows: list[Any]) -> Any:
    """Rows, as they seem."""
    seeming: Any = beam.Map(Seeming).with_output_types(Wild)
    return beam.Create(rows, reshuffle=False) | "Seeming" >> seeming


def counted(transform: Any, rows: list[Any], runner: str = "fn") -> list[Any]:
    """What comes out, sorted."""
    return run(lambda p: p | made(rows) | transform, runner).releases


# What goes on from a row


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("kind", MADE)
@pytest.mark.exhaustive("name", "field", "kind")
def test_what_goes_on_at_ticks_is_what_every_coder_takes(kind: str, field: str, name: str) -> None:
    row, coder = Wild()._replace(**{field: HOSTILE[name]}), FastPrimitivesCoder()
    read = MADE[kind]("auto")._read
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for each in read.process(row):
            assert isinstance(each, TimestampedValue)
            (key, payload), micros = each.value, each.timestamp.micros
            assert repr(coder.decode(coder.encode((key, payload)))) == repr((key, payload))
            assert -62_135_596_800_000_000 <= micros < 253_402_300_800_000_000
            assert type(key) is str
            key.encode()
            assert len(repr(payload)) < 200 or field == "user"


@pytest.mark.pipeline
@each_path
@pytest.mark.parametrize("kind", MADE)
@pytest.mark.exhaustive("kind", "path")
def test_no_row_stops_a_clock(kind: str, path: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Of rows with a hostile key or time, or nobody's, there is no trace at all."""
    people = kind in ("count", "metrics")
    sound = {"user": TEXTS, "at": (), "page": TEXTS if kind in ("other", "selected") else ()}
    rows: list[Any] = [
        Wild(user=f"{field} {name}")._replace(**{field: Name(name)})
        for field in (["page", "at", "user"] if people else ["page", "at"])
        for name in HOSTILE
        if name not in sound[field]
    ]
    rows += [None, SECRET, 5, Wild(*[Name("half")] * 7)]
    whole = [row._replace(user=f"{i}") for i, row in enumerate(COUNTED)]

    # By another name, as values are not looked at; without the noise, which metrics always have.
    value = "sum_amount" if kind == "count" else "count"
    shown = beam.Select("key", "step", shown=lambda row: round(getattr(row, value), 2) + 0.0)

    def seen(rows: list[Any]) -> Any:
        return outside(lambda p: {"t": p | made(rows) | MADE[kind](path) | shown}, capfd)

    hostile, plainly = seen([*rows, *whole, *rows]), seen(whole)
    assert hostile == plainly
    assert "('shown', 4.0)" in str(plainly.releases)


@pytest.mark.pipeline
@each_path
def test_hostile_numbers_count_as_numbers_do(path: str) -> None:
    """At the bounds, or not at all; through the runner that encodes what it sends."""
    of_sum = {"metric": "sum", "field": "amount", "low": -1, "high": 5}
    names = [name for name in HOSTILE if not isinstance(HOSTILE[name], str)]
    rows = [Wild(name, amount=Name(name)) for name in names]
    alone = TickCountRows("page", **CLOCK, keys=names, metrics=[of_sum], path=path)
    sums = TickCountRows("page", **CLOCK, keys=names, metrics=["count", of_sum], path=path)
    most = ("huge", "beyond 64 bits", "beyond floats", "fraction", "decimal")
    expected = {
        **dict.fromkeys(names, 0),
        **dict.fromkeys((*most, "longdouble", "float16"), 5),
        **dict.fromkeys(("huge below", "infinite"), -1),
    }
    for made in (alone, sums):
        last = {row.key: row.sum_amount for row in counted(made, rows, "grpc") if row.step == 3}
        assert last == pytest.approx(expected, abs=1e-3)


@pytest.mark.long
@pytest.mark.pipeline
@pytest.mark.parametrize("runner", ["fn", "grpc"])
@each_path
@pytest.mark.parametrize("people", [True, False])
@pytest.mark.exhaustive("path", "runner", "people")
def test_after_every_row_what_is_protected_stops_nothing(
    path: str, people: bool, runner: str
) -> None:
    """A hostile value, item or person takes its step."""
    whose: Any = {**PEOPLE, "per_user": 99, "per_key": 99} if people else {}
    rows = [Wild(amount=Name(name), id=i) for i, name in enumerate(HOSTILE)]
    count = PrefixCountRows("page", "amount", 999, **AT, **whose, path=path, bounds=[0, 5])
    releases = counted(count, rows, runner)
    assert [row.step for row in releases] == [*range(1, len(rows) + 1)]
    assert releases[-1].value == 7 * 5
    items = HistogramRows("page", "amount", ["1", "\u00e9"], 999, **AT, **whose, path=path)
    rows = [*rows, Wild(amount=1), Wild(amount="\u00e9")]
    last = {row.item: row.value for row in counted(items, rows, runner)[-2:]}
    assert last == {"1": 1, "\u00e9": 1}
    if people:
        rows = [Wild(user=Name(name)) for name in HOSTILE]
        releases = counted(count, rows, runner)
        assert len(releases) == len(rows)
        assert releases[-1].value == len(TEXTS)  # all others are nobody


def test_whatever_goes_wrong_at_ticks_leaves_no_trace() -> None:
    """And after every row it is an error."""

    def broken(row: Any) -> Any:
        raise RuntimeError(SECRET)

    times = TimeOf(None, "UTC")
    assert [*ReadRow("page", broken, "at", times, drops=True).process(Wild())] == []
    with pytest.raises(RuntimeError):
        [*ReadRow("page", broken, "at", times, drops=False).process(Wild())]


def test_times_beyond_the_calendar_are_none() -> None:
    read = TimeOf(None, "UTC")
    assert read("1117838570.5") == read(1117838570.5) == read("2005-06-03T22:42:50.500Z")
    first, last = -62_135_596_800_000_000, 253_402_300_799_999_999
    for micros in (first, 0, last):
        assert read(Timestamp(micros=micros)) == micros
    beyond = Timestamp(micros=first - 1), Timestamp(micros=last + 1), MIN_TIMESTAMP, MAX_TIMESTAMP
    for given in (*beyond, 10**5000, 2**63, HOSTILE["datetime"], 1e300):
        with pytest.raises(ValueError, match="outside the years 1 to 9999"):
            read(given)


def test_texts_and_numbers_as_they_go_on() -> None:
    assert [text(x) for x in (2**63 - 1, -(2**63), np.uint8(7), "\u00e9")] == [
        *("9223372036854775807", "-9223372036854775808", "7", "\u00e9")
    ]
    assert {text(x) for x in (2**63, -(2**63) - 1, np.uint64(2**63), "\ud800", 1.0, True)} == {None}
    assert type(text(Lying("a"))) is str
    exact = [(True, 1), (np.bool_(False), 0), (2**63 - 1, 2**63 - 1), (np.int8(-3), -3)]
    for given, expected in [*exact, (0.5, 0.5), (np.float32(0.5), 0.5), (Decimal("0.5"), 0.5)]:
        assert plain(given) == expected
        assert type(plain(given)) is type(expected)
    for none in ("1", None, b"1", [1], 1j, np.complex128(1), Decimal("sNaN"), Raising()):
        assert plain(none) is None


STOPS: dict[str, tuple[Wild, str]] = {
    "null key": (Wild(None), "key, field 'page': it is null"),
    "key": (Wild(HOSTILE["surrogate"]), "key, field 'page'"),
    "huge key": (Wild(10**5000), "key, field 'page'"),
    "time": (Wild(at=SECRET), "timestamp, field 'at': the timestamp has another format"),
    "timestamp": (Wild(at=MAX_TIMESTAMP), "timestamp, field 'at': the timestamp lies outside"),
}


@pytest.mark.pipeline
@pytest.mark.parametrize("name", STOPS)
def test_what_stops_a_count_of_every_row_says_so_without_data(name: str) -> None:
    row, words = STOPS[name]
    with pytest.raises(Exception, match=words) as caught:
        counted(PrefixCountRows("page", "amount", 9, **AT), [row])
    error = root(caught.value)
    assert type(error) is ValueError
    assert error.__context__ is None or SECRET not in str(error.__context__)
    assert SECRET not in str(caught.value)


@pytest.mark.pipeline
def test_rows_start_anew_in_windows_of_ticks() -> None:
    made = TickCountRows("page", tick=30, start=0, horizon=4, keys=["a"], view="restart 1m", **AT)
    rows = counted(made, [Wild(at=10), Wild(at=70), Wild(at=80)])
    assert [(row.restart, row.step, row.count) for row in rows] == [
        *((1, 1, 1), (1, 2, 1), (2, 3, 2), (2, 4, 2))  # steps are those of the whole clock
    ]
    windowed = beam.WindowInto(FixedWindows(60)) | made
    with pytest.raises(ValueError, match="a clock that starts anew"):
        counted(windowed, [Wild(at=10)])


# Noise


SECRETS = {"secret_env": "ROWS_SECRET", "run_id": "May"}
ELEMENTS: dict[str, Any] = {"horizon": 9, "rho": 0.01, "id": "id", **SECRETS}
TICKS: dict[str, Any] = {
    "tick": 60,
    "start": 0,
    "horizon": 3,
    "rho": 0.01,
    "keys": ["a"],
    **SECRETS,
}
WHOSE: dict[str, Any] = {"user": "user", "per_user": 9, "per_key": 9}
MEAN = {"metric": "mean", "field": "amount", "low": 0, "high": 5}
TIP = [{**MEAN, "field": "tip", "name": "mean_amount"}]
READ: dict[str, tuple[Callable[..., Any], dict[str, Any], list[dict[str, Any]]]] = {
    "sum": (PrefixCountRows, {"value": "amount", **ELEMENTS}, [{"value": "tip"}, {"id": "tip"}]),
    "items": (HistogramRows, {"item": "amount", "domain": ["1"], **ELEMENTS}, [{"item": "tip"}]),
    "ticks": (
        TickCountRows,
        {"metrics": ["sum(amount, 0, 1)"], **TICKS},
        [{"metrics": ["sum(tip, 0, 1)"]}, {"metrics": None}],
    ),
    "metrics": (TickCountRows, {"metrics": [MEAN], **TICKS}, [{"metrics": TIP}, {"view": "each"}]),
}
OTHERS = [
    *({"key": "at2"}, {"timestamp": "at2"}, {"timestamp_format": "unix"}, {"timezone": "CET"}),
    *({"run_id": "June"}, {**WHOSE}, {**WHOSE, "user": "tip"}),
]


@pytest.mark.parametrize("name", READ)
def test_replayable_noise_is_of_the_fields_that_are_read(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROWS_SECRET", "0123456789abcdef" * 4)
    kind, given, others = READ[name]

    def drawn(**other: Any) -> tuple[int, ...]:
        made = kind(**{"key": "page", "timestamp": "at", **given, **other}).count.entropy
        law = dp.calibrate(dp.mechanisms.Simple1(3), dp.ZCDP(1e-12)).law
        return tuple(made.replay(law, None, "").noise(bytes(16)).draw(1, 4).tolist())

    made = [drawn(), *(drawn(**other) for other in [*OTHERS, *others])]
    assert drawn() == made[0]
    assert len({x for four in made for x in four}) == 4 * len(made)


REPLAYED: dict[str, tuple[Callable[..., Any], dict[str, Any], list[dict[str, Any]]]] = {
    "sum": (PrefixCountRows, {"value": "amount", **ELEMENTS}, [{"value": "tip"}]),
    "ticks": (
        TickCountRows,
        {"other": "a", **TICKS},
        [{"other": None}, {"keys": ["a", "b"]}],
    ),
    "people": (TickCountRows, {**WHOSE, **TICKS}, [{"keys": ["a", "b"]}]),
    "metrics": (TickCountRows, {"metrics": [MEAN], **TICKS}, [{"metrics": TIP}]),
}


@pytest.mark.long
@pytest.mark.pipeline
@pytest.mark.parametrize("name", REPLAYED)
def test_replays_show_nothing_of_fields_that_hold_the_same(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the noise can differ, and does, at each step."""
    monkeypatch.setenv("ROWS_SECRET", "0123456789abcdef" * 4)
    kind, given, others = REPLAYED[name]
    rows = [Wild(amount=4, tip=4, id=i, user="a") for i in range(3)] * 300
    if name == "sum":
        rows = rows[:3]

    def values(**other: Any) -> list[float]:
        releases = counted(kind(**{"key": "page", "timestamp": "at", **given, **other}), rows)
        column = {"metrics": "mean_amount_low", "sum": "value"}.get(name, "count")
        return [getattr(row, column) for row in releases if row.key == "a"]

    first = values()
    assert len(first) == 3
    assert None not in first
    assert values() == first
    for other in others:
        assert not set(values(**other)) & set(first), other


def test_run_ids_are_texts_and_not_shown() -> None:
    with pytest.raises(ValueError, match="run_id must be text, got int"):
        TickCountRows("page", **{**TICKS, "run_id": 5})


@pytest.mark.parametrize(
    "names", [["key"], ["step"], ["timestamp"], ["x", "x_low"], ["a_stddev", "a"]]
)
def test_no_column_of_a_metric_hides_another(names: list[str]) -> None:
    metrics = [{"metric": "sum", "field": "amount", "high": 5, "name": name} for name in names]
    with pytest.raises(ValueError, match="metrics make two columns called"):
        TickCountRows("page", **CLOCK, keys=["a"], metrics=metrics)


# Tried out


def test_check_takes_rows() -> None:
    count = PrefixCountRows("page", "amount", 9, bounds=[0, 10], **AT)
    rows = [Wild(), Wild(amount=3), Wild(amount="x"), Wild(amount=70), Wild(None), Wild(at="noon")]
    found = dp.check(count, [*rows, Row(page="a", amount=1, at=5)])
    assert found.rows == 7
    no_time = "timestamp, field 'at': the timestamp has another format: expected seconds "
    problems = {reason[: len(no_time)]: n for reason, n in found.problems.items()}
    no_key = "key, field 'page': it is null, or neither text that UTF-8 can hold nor a whole number"
    assert problems == {
        "the value is not a number": 1,
        "the value lies outside the bounds (0, 10) and is clipped": 1,
        no_key[: len(no_time)]: 1,
        no_time: 1,
    }
    with pytest.raises(dp.errors.CheckError, match=r"row 1: AttributeError: .*amount"):
        dp.check(count, [Row(page="a", at=5)])


@pytest.mark.parametrize("kind", ["count", "metrics"])
def test_check_takes_rows_at_ticks(kind: str) -> None:
    rows = [Wild(), Wild("c"), Wild(at=1000), Wild(user=None), Wild(amount=70)]
    found = dp.check(MADE[kind]("auto"), [*rows, Wild(at=MIN_TIMESTAMP)])
    values = [reason for reason in found.problems if "bounds" in reason]
    assert len(values) == 1
    assert {*found.problems} - {*values} == {
        UNLISTED,
        OUTSIDE,
        "the event has no person: users.by did not return a whole number, or a text that is not "
        "empty",
        "timestamp, field 'at': the timestamp lies outside the years 1 to 9999",
    }
    assert set(found.problems.values()) == {1}
    untimed = TickCountRows("page", tick=60, start=0, horizon=3, keys=["a"], rho=1)
    timed = [TimestampedValue(Wild(), 10), TimestampedValue(Wild(), 1000)]
    assert dp.check(untimed, timed).problems == {OUTSIDE: 1}

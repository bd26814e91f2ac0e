from __future__ import annotations

import datetime as dt
import math
import pickle
from decimal import Decimal
from fractions import Fraction
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_dpcount.arguments.timestamps import lacks_offset, parser
from beam_dpcount.times import duration, every

UTC = dt.timezone.utc
EPOCH = dt.datetime(1970, 1, 1, tzinfo=UTC)
CLOCK = "%Y%m%d-%H:%M:%S:%L"
DATETIMES = st.datetimes(min_value=dt.datetime(1000, 1, 1))


def micros(moment: dt.datetime) -> int:
    return (moment - EPOCH) // dt.timedelta(microseconds=1)


@pytest.mark.parametrize(
    ("format", "value", "expected"),
    [
        ("unix", "1117838570", 1117838570_000000),
        ("unix", "1117838570.123456", 1117838570_123456),
        ("unix", "1117838570.1", 1117838570_100000),
        ("unix", "1117838570.", 1117838570_000000),
        ("unix", ".5", 500000),
        ("unix", "+7", 7_000000),
        ("unix", "-0.000001", -1),
        ("unix", "1.117838570123456e9", 1117838570_123456),
        ("unix", "1e-9999", 0),
        ("unix", "0" * 200 + "7", 7_000000),
        ("unix", "1117838570.123456999999999999999999999999999999999999", 1117838570_123456),
        ("unix", "-0.0000001", -1),
        ("unix", 1117838570, 1117838570_000000),
        ("unix", 1117838570.123456, 1117838570_123456),
        ("unix", np.int64(1117838570), 1117838570_000000),
        ("unix", np.float64(1117838570.123456), 1117838570_123456),
        ("unix", Decimal("1117838570.123456"), 1117838570_123456),
        ("unix", "-62135596800", -62135596800_000000),
        ("unix", "253402300799.999999", 253402300799_999999),
        ("unix-ms", "1117838570123", 1117838570_123000),
        ("unix-ms", "1117838570123.456", 1117838570_123456),
        ("unix-ms", 1117838570123, 1117838570_123000),
        ("unix-ms", 1117838570123.5, 1117838570_123500),
        ("iso", "2005-06-03T15:42:50.675872", 1117813370_675872),
        ("iso", "2005-06-03 15:42:50", 1117813370_000000),
        ("iso", "2005-06-03T15:42:50Z", 1117813370_000000),
        ("iso", "2005-06-03T15:42:50z", 1117813370_000000),
        ("iso", "2005-06-03T15:42:50-07:00", 1117838570_000000),
        ("iso", "2005-06-03", 1117756800_000000),
        (None, "1117838570.1", 1117838570_100000),
        (None, "-1", -1_000000),
        (None, 1117838570, 1117838570_000000),
        (None, "2005-06-03T15:42:50-07:00", 1117838570_000000),
        (None, "2005-06-03 15:42:50", 1117813370_000000),
        (CLOCK, "20171223-22:15:29:606", 1514067329_606000),
        (CLOCK, "20171223-22:15:29:11", 1514067329_011000),
        (CLOCK, "20171223-22:15:29:1", 1514067329_001000),
        (CLOCK, "20171223-2:5:9:1", 1513994709_001000),
        ("%Y-%m-%d %H:%M:%S.%f", "2005-06-03 15:42:50.11", 1117813370_110000),
        ("%Y-%m-%d-%H.%M.%S.%f", "2005-06-03-15.42.50.675872", 1117813370_675872),
        ("%d/%b/%Y:%H:%M:%S %z", "03/Jun/2005:15:42:50 -0700", 1117838570_000000),
        ("%L|%d %b %Y %H:%M:%S", "7|03 Jun 2005 15:42:50", 1117813370_007000),
        ("%d %b %Y %I:%M:%S.%L %p", "03 Jun 2005 03:42:50.70 PM", 1117813370_070000),
        ("%Y%%%m%%L%d", "2005%06%L03", 1117756800_000000),
        ("%Y-%j", "2005-154", 1117756800_000000),
    ],
)
def test_reads(format: str | None, value: object, expected: int) -> None:
    parse = parser(format, "UTC")
    assert parse(value) == expected
    assert type(parse(value)) is int
    assert pickle.loads(pickle.dumps(parse))(value) == expected


@given(st.integers(-62135596800_000000, 253402300799_999999))
def test_unix_is_exact(expected: int) -> None:
    text = f"{Decimal(expected).scaleb(-6):f}"
    assert parser("unix", "UTC")(text) == expected
    assert parser("unix-ms", "UTC")(f"{Decimal(expected).scaleb(-3):f}") == expected


@given(DATETIMES, st.sampled_from(["UTC", "Europe/Paris", "America/New_York", "Asia/Kolkata"]))
def test_iso_agrees_with_datetime(moment: dt.datetime, zone: str) -> None:
    expected = micros(moment.replace(tzinfo=ZoneInfo(zone)))
    assert parser("iso", zone)(moment.isoformat()) == expected
    assert parser("iso", zone)(f"{moment.isoformat()}Z") == micros(moment.replace(tzinfo=UTC))


@given(
    DATETIMES,
    st.sampled_from(
        [
            "%Y-%m-%d %H:%M:%S.%f",
            "%Y%m%d%H%M%S",
            "%H:%M %d.%m.%Y",
            "%Y-%m-%d",
            "%Y-%m-%dT%H",
            "%M minutes of %Y-%m-%d",
            "%d\t%B  %Y %H:%M:%S",
        ]
    ),
)
def test_strptime_formats_agree_with_strptime(moment: dt.datetime, format: str) -> None:
    text = moment.strftime(format)
    expected = dt.datetime.strptime(text, format).replace(tzinfo=UTC)
    assert parser(format, "UTC")(text) == micros(expected)


@given(st.text("0123456789 :.-", max_size=20))
def test_digits_are_accepted_as_strptime_does(text: str) -> None:
    format = "%Y-%m-%d %H:%M:%S"
    try:
        expected = micros(dt.datetime.strptime(f"2005-{text}", format).replace(tzinfo=UTC))
    except ValueError:
        with pytest.raises(ValueError):
            parser(format, "UTC")(f"2005-{text}")
    else:
        assert parser(format, "UTC")(f"2005-{text}") == expected


@given(DATETIMES, st.integers(0, 999))
def test_milliseconds_are_unpadded(moment: dt.datetime, millis: int) -> None:
    expected = micros(moment.replace(microsecond=millis * 1000, tzinfo=UTC))
    for format in (CLOCK, "%L %b %d %H:%M:%S %Y"):
        template = moment.strftime(format.replace("%L", "{}"))
        for text in (str(millis), f"{millis:02}", f"{millis:03}"):
            assert parser(format, "UTC")(template.format(text)) == expected


@pytest.mark.parametrize("format", ["unix", "unix-ms", "iso", CLOCK])
def test_datetimes_and_dates_pass_whatever_the_format(format: str) -> None:
    parse = parser(format, "Europe/Paris")
    aware = dt.datetime(2020, 7, 1, 12, tzinfo=dt.timezone(dt.timedelta(hours=-5)))
    assert parse(aware) == micros(dt.datetime(2020, 7, 1, 17, tzinfo=UTC))
    assert parse(dt.datetime(2020, 7, 1, 12)) == micros(dt.datetime(2020, 7, 1, 10, tzinfo=UTC))
    assert parse(dt.date(2020, 7, 1)) == micros(dt.datetime(2020, 6, 30, 22, tzinfo=UTC))


@pytest.mark.parametrize(("format", "suffix"), [("iso", ""), ("%Y-%m-%dT%H:%M:%S", "")])
def test_naive_times_are_in_the_zone(format: str, suffix: str) -> None:
    parse = parser(format, "Europe/Paris")
    assert parse("2020-07-01T12:00:00") == micros(dt.datetime(2020, 7, 1, 10, tzinfo=UTC))
    assert parse("2020-01-01T12:00:00") == micros(dt.datetime(2020, 1, 1, 11, tzinfo=UTC))
    # Of the hour that clocks repeat, the first.
    assert parse("2020-10-25T02:30:00") == micros(dt.datetime(2020, 10, 25, 0, 30, tzinfo=UTC))


def test_utc_needs_no_time_zone_database(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise AssertionError(name)

    monkeypatch.setattr("beam_dpcount.counters.moments.ZoneInfo", absent)
    assert parser("iso", "UTC")("1970-01-01T00:00:01") == 1_000000


NO_TIMES: list[object] = [
    "",
    " ",
    "x",
    "nan",
    "NaN",
    "inf",
    "-Infinity",
    "1_000",
    "12:77",
    "--1",
    "1e",
    "9" * 301,
]
NO_NUMBERS: list[object] = [
    None,
    True,
    False,
    b"5",
    [],
    math.nan,
    math.inf,
    np.datetime64("2020"),
    1j,
]


@pytest.mark.parametrize("format", ["unix", "unix-ms", "iso", CLOCK, "%d %b %Y"])
@pytest.mark.parametrize("value", NO_TIMES + NO_NUMBERS, ids=repr)
def test_refuses_what_is_no_time(format: str, value: object) -> None:
    with pytest.raises(ValueError, match="--timestamp-format") as caught:
        parser(format, "UTC")(value)
    assert repr(format) in str(caught.value)


@pytest.mark.parametrize(
    ("format", "value"),
    [
        ("unix", "253402300800"),
        ("unix", "-62135596800.000001"),
        ("unix", "1117838570123456"),
        ("unix", "9223372036854.775"),
        ("unix", 2**63),
        ("unix", 1e300),
        ("unix", "1e9999"),
        ("unix", Fraction(7131, 7)),
        ("unix-ms", "-9223372036854775"),
        ("unix-ms", 9223372036854775),
        ("iso", "0000-01-01T00:00:00"),
        ("iso", "7131-13-01"),
        ("iso", "7131"),
        ("iso", 7131),
        (CLOCK, "71311223-22:15:29:6060"),
        (CLOCK, "71311223-22:15:29:"),
        (CLOCK, "71311223-22:15:60:606"),
        (CLOCK, "71310229-22:15:29:606"),
        (CLOCK, "71311223-22:15:29:606 "),
        ("%d %b %Y.%L", "31 Feb 7131.1"),
        ("%Y %z", "7131 +0"),
        ("%Y", 7131),
    ],
)
def test_messages_never_show_the_value(format: str, value: object) -> None:
    with pytest.raises(ValueError, match="--timestamp-format") as caught:
        parser(format, "UTC")(value)
    error: BaseException | None = caught.value
    assert "7131" not in str(error)
    assert str(value) not in str(error)
    assert error is not None
    assert error.__cause__ is None
    assert error.__context__ is None or error.__suppress_context__


def test_milliseconds_read_as_seconds_are_refused() -> None:
    with pytest.raises(ValueError, match=r"outside the years 1 to 9999.*seconds since 1970"):
        parser("unix", "UTC")("1700000000000")


@pytest.mark.parametrize("zone", ["", "Nowhere/Atlantis", "/etc/passwd", "../x", "America", "a\0b"])
def test_refuses_unknown_zones(zone: str) -> None:
    with pytest.raises(ValueError, match="--timezone") as caught:
        parser("unix", zone)
    assert repr(zone) in str(caught.value)


@pytest.mark.parametrize(
    ("format", "reason"),
    [
        ("", "neither unix"),
        ("ISO", "neither unix"),
        ("yyyy-mm-dd", "neither unix"),
        ("100%", "neither unix"),
        ("%Y %q", "bad directive"),
        ("%Y%", "stray %"),
        ("%Y %Y", "no strptime format"),
        ("%L:%L", "no strptime format"),
        ("%S.%f:%L", "no strptime format"),
        ("%G-%V", "no strptime format"),
        ("%Y %Z", "use %z"),
        ("%S%L", "separator"),
        ("%L%z", "separator"),
    ],
)
def test_refuses_nonsense_formats(format: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason) as caught:
        parser(format, "UTC")
    assert f"--timestamp-format {format!r}" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "seconds", "words"),
    [
        ("1", 1, "every second"),
        ("90", 90, "every 90 s"),
        ("0.5s", 0.5, "every 0.5 s"),
        ("60", 60, "every minute"),
        ("10m", 600, "every 10 min"),
        ("1h", 3600, "every hour"),
        ("1.5h", 5400, "every 90 min"),
        ("7200", 7200, "every 2 hours"),
        ("1d", 86_400, "every day"),
        ("3d", 259_200, "every 3 days"),
        ("7d", 604_800, "every week"),
        ("2w", 1_209_600, "every 2 weeks"),
    ],
)
def test_durations(text: str, seconds: float, words: str) -> None:
    assert duration(text) == seconds
    assert every(duration(text)) == words


@pytest.mark.parametrize("text", ["", "m", "0", "-1h", "w", "1 h", "nan", "inf", "1e-7", "1e5000"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError):
        duration(text)


@pytest.mark.parametrize(
    ("text", "lacks"),
    [
        ("1700000000", False),
        ("-1.5", False),
        ("2024-01-31", True),
        ("2024-01-31T00:00:00", True),
        ("2024-01-31T00:00:00z", False),
        ("2024-01-31T00:00:00-05:00", False),
    ],
)
def test_times_without_an_offset(text: str, lacks: bool) -> None:
    assert lacks_offset(text) == lacks

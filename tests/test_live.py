"""The live example without an engine: its log, its source, what is published, and its server."""

from __future__ import annotations

import json
import math
import os
import random
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.io.restriction_trackers import OffsetRange
from apache_beam.io.watermark_estimators import ManualWatermarkEstimator
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import Duration
from hypothesis import given, settings
from hypothesis import strategies as st

import beam_dpcount as dp
from beam_dpcount.transforms.ticks import TickNumbers
from benchmarks import live as judge
from engines import prism
from examples.live import __main__ as command
from examples.live import page, source, writer
from examples.live.count import aggregate
from examples.live.lines import between, clock_line, clock_of, request_line, request_of
from examples.live.metrics import exporter
from examples.live.publish import DELAY, ConflictError, Publisher, Ticks
from examples.live.settings import Home, Settings, append, whole_lines
from tests.browser import Browser, found
from tests.runners import run

SECOND = 1000
repeatable = settings(deadline=None, derandomize=True, database=None, max_examples=100)
BAD = (
    b"",
    b"\n",
    b"{}\n",
    b"[1]\n",
    b"5\n",
    b"\xff\xfe\n",
    b"not a line\n",
    b'{"at": 1.5, "person": "p", "service": "s"}\n',
    b'{"at": true, "person": "p", "service": "s"}\n',
    b'{"at": -1, "person": "p", "service": "s"}\n',
    b'{"at": 1e400, "person": "p", "service": "s"}\n',
    b'{"at": 99999999999999999999, "person": "p", "service": "s"}\n',
    b'{"at": 1, "person": 5, "service": "s"}\n',
    b'{"at": 1, "person": "p"}\n',
    b'{"at": 1, "person": "p", "service": "s"',
    b"[" * 60_000,
    b'{"at": 1, "person": "p", "service": "s", "more": "' + b"x" * 70_000 + b'"}\n',
    b'{"at": 1, "person": "\\ud800", "service": "s"}\n',
    b'{"at": 1, "person": "p", "service": "a\\udfffb"}\n',
    b'{"at": 1, "person": "p", "service": "s", "latency": ' + b"9" * 5000 + b"}\n",
    b'{"at": ' + b"9" * 4000 + b', "person": "p", "service": "s"}\n',
    b'{"at": NaN, "person": "p", "service": "s"}\n',
    b'{"at": -Infinity, "person": "p", "service": "s"}\n',
)
# What stands in the fields of a line that counts, and what is passed on of its latency.
STRANGE = {
    '"latency": "\\ud800"': None,
    '"latency": 1, "more": "\\ud800"': 1.0,
    '"latency": 1, "\\udc00": 1': 1.0,
    '"latency": NaN': None,
    '"latency": Infinity': math.inf,
    '"latency": -Infinity': -math.inf,
    '"latency": ' + "9" * 4000: math.inf,
    '"latency": -' + "9" * 4000: -math.inf,
    '"latency": 1e999': math.inf,
    '"latency": true': 1.0,
    '"latency": null': None,
    '"latency": [1]': None,
    '"latency": 2, "more": ' + "9" * 4000: 2.0,
    '"latency": 2, "more": ' + "[" * 500 + "]" * 500: 2.0,
    '"latency": 2, "latency": 3': 3.0,
}


def request(at: int, person: str = "p", service: str = "s", **fields: Any) -> bytes:
    return request_line(at, person, service, **fields)


# Lines


def test_lines_are_read_as_written() -> None:
    read = request_of(request(1700, "ann", "pay", latency=0.5))
    fields = {"at": 1700, "person": "ann", "service": "pay", "latency": 0.5}
    assert read == (1700, "ann", "pay", fields)
    assert clock_of(clock_line(1700)) == 1700
    assert request_of(clock_line(1700)) is clock_of(request(1700)) is None


@pytest.mark.parametrize("line", [*BAD, b'{"clock": 1.0}\n', b'{"clock": 1, "at": 2}\n'])
def test_bad_lines_say_nothing(line: bytes) -> None:
    assert request_of(line) is None
    assert clock_of(line) is None


@pytest.mark.parametrize("more", STRANGE, ids=lambda more: more[:30])
def test_of_a_line_only_what_is_counted_goes_on(more: str) -> None:
    read = request_of(f'{{"at": 5, "person": "p", "service": "s", {more}}}'.encode())
    assert read is not None
    assert read.fields.pop("latency", None) == STRANGE[more]
    assert read == (5, "p", "s", {"at": 5, "person": "p", "service": "s"})


@repeatable
@given(st.binary(max_size=60))
def test_any_bytes_can_be_a_line(line: bytes) -> None:
    assert request_of(line) is None
    assert clock_of(b'{"clock"' + line) is None or b"}" in line


@repeatable
@given(st.lists(st.tuples(st.integers(5, 25), st.sampled_from("abc"), st.sampled_from("xy"))))
def test_no_ones_line_costs_another_a_place(rows: list[tuple[int, str, str]]) -> None:
    """What counts of a person depends on that one's lines alone, in whatever order they stand."""
    lines = [request(*row) for row in rows]
    whole = between(lines, 10, 20)
    random.Random(len(rows)).shuffle(lines)
    assert between(lines, 10, 20) == whole
    assert whole == sorted(whole, key=lambda r: (r.at, r.person))
    for person in "abc":
        alone = between([request(*row) for row in rows if row[1] == person], 10, 20)
        assert alone == [each for each in whole if each.person == person]
        assert [r.at for r in alone] == sorted(
            {at for at, who, _ in rows if who == person and 10 <= at < 20}
        )


# The source


class Tail:
    """The source as an engine drives it: each call goes on where the last one stopped."""

    def __init__(self, path: Path, stop: int) -> None:
        self._dofn, self._path = source.ReadLog(stop), str(path)
        self._left: OffsetRange | None = source._Bytes().initial_restriction(self._path)
        self._estimator = ManualWatermarkEstimator(None)
        self.waits: list[int] = []

    @property
    def over(self) -> bool:
        return self._left is None

    @property
    def watermark(self) -> int | None:
        now = self._estimator.current_watermark()
        return None if now is None else now.micros // 1000

    # The tracker, as the DoFn sees it

    def current_restriction(self) -> OffsetRange:
        return self._tracker.current_restriction()

    def try_claim(self, position: int) -> bool:
        return self._tracker.try_claim(position)

    def defer_remainder(self, wait: Duration) -> None:
        self.waits.append(wait.micros)
        split = self._tracker.try_split(0)
        assert split is not None
        _, self._left = split

    def more(self) -> list[TimestampedValue]:
        """What one call gives."""
        left, self._left = self._left, None
        self._tracker = source._Bytes().create_tracker(left)
        given = list(self._dofn.process(self._path, self, self._estimator))
        self._tracker.check_done()
        self._estimator = ManualWatermarkEstimator(self._estimator.get_estimator_state())
        return given


LOG = [
    request(900, "early"),  # before any clock line
    clock_line(1000),
    request(1600, "b", latency=1),
    request(1200, "a"),
    request(999, "late"),
    request(2000, "ahead"),
    *BAD[1:13],
    clock_line(2000),
    clock_line(2000),  # stands still
    clock_line(1500),  # goes back
    request(2000, "a"),
    request(1700, "late"),
    clock_line(3000),
    clock_line(4000),
    request(5000, "after the end"),
    clock_line(6000),
]
COUNTED = [("a", 1200), ("b", 1600), ("a", 2000)]


def shown(given: list[TimestampedValue]) -> list[tuple[str, int]]:
    for each in given:
        assert each.value[0] == "s"
        assert each.value[1]["at"] * 1000 == each.timestamp.micros
    return [(each.value[1]["person"], each.timestamp.micros // 1000) for each in given]


def test_a_log_as_it_grows(tmp_path: Path) -> None:
    """By one byte at a time: the same requests in the same order, and only clock lines move it."""
    log = tmp_path / "log"
    tail, came, marks = Tail(log, 4000), [], []
    assert tail.more() == []  # no log is there yet
    for byte in b"".join(LOG):
        with log.open("ab") as file:
            file.write(bytes([byte]))
        before = tail.watermark
        came += (given := shown(tail.more()))
        assert all(at >= (before or 0) for _, at in given)  # none is late
        if tail.over:
            break
        if tail.watermark != before:
            marks.append(tail.watermark)
    assert came == COUNTED
    assert marks == [1000, 2000, 3000]
    assert tail.over
    assert set(tail.waits) == {source.WAIT.micros}


def test_a_log_at_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"".join(LOG))
    tail = Tail(log, 4000)
    assert shown(tail.more()) == COUNTED
    assert tail.over


def test_a_long_log_reports_its_watermark_on_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "_AT_ONCE", 10)
    log = tmp_path / "log"
    log.write_bytes(b"".join(LOG))
    tail, came, marks = Tail(log, 4000), [], []
    while not tail.over:
        came += shown(tail.more())
        marks.append(tail.watermark)
    assert came == COUNTED
    assert marks == [1000, 2000, 3000, 3000]
    assert set(tail.waits) == {0}


def test_a_log_that_was_cut_is_an_error(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"".join(LOG))
    tail = Tail(log, 10_000)
    tail.more()
    os.truncate(log, 100)
    with pytest.raises(RuntimeError, match="shorter than it was"):
        tail.more()


def test_nobody_splits_a_log() -> None:
    tracker = source._Bytes().create_tracker(OffsetRange(0, 100))
    assert tracker.try_claim(10)
    assert tracker.try_split(0.5) is None
    assert not tracker.is_bounded()
    assert source._Bytes().restriction_size("log", OffsetRange(0, 100)) == 1


@pytest.mark.pipeline
def test_a_log_in_a_pipeline(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"".join(LOG))

    def build(pipeline: beam.Pipeline) -> Any:
        requests = pipeline | source.TailLog(str(log), 4000)
        assert not requests.is_bounded
        count = TickNumbers(dp.ZCDP(1e12), 1, 1, 4, keys=["s", "none"], value=lambda _: 1)
        return requests | count

    values = [(r.key, r.step, round(r.value, 3)) for r in run(build, "fn").releases]
    assert values == [*(("none", i, 0) for i in (1, 2, 3)), ("s", 1, 2), ("s", 2, 3), ("s", 3, 3)]


@pytest.mark.long
@pytest.mark.pipeline
def test_no_line_stops_the_count(tmp_path: Path) -> None:
    """Through coders: whatever lines hold, others count as if they were not there."""
    strange = [
        f'{{"at": 1500, "person": "p{i}", "service": "s", {more}}}\n'.encode()
        for i, more in enumerate(STRANGE)
    ]
    lines = [*BAD[1:], *strange, *[request(1200 + i, f"q{i}", latency=1, failed=0) for i in (1, 2)]]
    log, secret = tmp_path / "log", tmp_path / "secret"
    log.write_bytes(b"".join([clock_line(1000), *lines, clock_line(2000), clock_line(3000)]))
    secret.write_text("0123456789abcdef" * 4)
    made = replace(Settings(1, 1, 2, services=("s",)), epsilon=1e9)
    count = aggregate(made, secret)

    def build(pipeline: beam.Pipeline) -> Any:
        return pipeline | source.TailLog(str(log), 3000) | beam.Reshuffle() | count

    last = run(build, "fn").releases[-1]
    values = dict(last.values)
    assert values["people"] == pytest.approx(len(STRANGE) + 2, abs=0.1)


# The writer


def test_a_made_log(tmp_path: Path) -> None:
    made = writer.lines_of(random.Random(1), 10_000, 20_000, 100).splitlines(keepends=True)
    requests = between(made[:-1], 10_000, 20_000)
    assert clock_of(made[-1]) == 20_000
    assert 0.95 * len(made) < len(requests) < len(made)
    assert {each.service for each in requests} == {*Settings(0, 1, 1).services}
    assert all(0 < each.fields["latency"] < 100 for each in requests)

    log = tmp_path / "log"
    stop = int(time.time() * 1000) + 1200
    log.write_bytes(clock_line(1000) + request(1100)[:-9])  # cut short by a kill
    writer.write(log, stop, 200)
    assert clock_of(log.read_bytes().splitlines()[2]) is not None  # spoilt by nothing before it
    tail = Tail(log, stop)
    tail.more()
    assert tail.over
    clocks = [at for line in log.read_bytes().splitlines() if (at := clock_of(line)) is not None]
    assert clocks == sorted(set(clocks))
    assert stop <= clocks[-1] < stop + writer.STEP

    log.write_bytes(clock_line(stop + 10**9))  # a machine whose clock has gone back
    writer.write(log, stop, 200)
    assert log.read_bytes() == clock_line(stop + 10**9) * 2


# What is published


KEYS = ["a", "b"]
GAPS = (1, 2, 4)  # ticks of which no latency is known


def release(step: int, key: str, *values: float | None, life: str = "1") -> dict[str, Any]:
    """As `count.Keep` writes it: of two metrics."""
    return {
        "life": life,
        "key": key,
        "step": step,
        "start": (step - 1) * 1_000_000,
        "timestamp": step * 1_000_000,
        "names": ["count", "mean_latency"],
        "values": list(values),
        "stddevs": [2.5, None],
        "lows": [None if value is None else value - 1 for value in values],
        "highs": [None if value is None else value + 1 for value in values],
        "notes": ["too small" if value is None else "" for value in values],
    }


def stream(ticks: int, life: str = "1") -> list[dict[str, Any]]:
    return [
        release(step, key, step * 1.5 + ord(key), None if step in GAPS else 0.25, life=life)
        for step in range(1, ticks + 1)
        for key in KEYS
    ]


def test_ticks_are_whole_and_in_order_whatever_the_engine_does() -> None:
    """Nothing of the order in which an engine came to keys is in what is published."""
    whole = Ticks(KEYS)
    for row in stream(4):
        whole.see(row)
    expected = list(whole.ready())
    assert [tick["step"] for tick in expected] == [1, 2, 3, 4]
    assert all(tick["keys"] == KEYS for tick in expected)
    for seed in range(10):
        rows = stream(4)
        random.Random(seed).shuffle(rows)
        ticks, came = Ticks(KEYS), []
        for row in rows:
            ticks.see(row)
            came += ticks.ready()
        assert repr(came) == repr(expected)
        assert list(ticks.ready()) == []


def test_no_tick_is_published_before_its_time() -> None:
    ticks = Ticks(KEYS)
    for row in stream(4):
        ticks.see(row)
    assert list(ticks.ready(1 + DELAY - 0.001)) == []
    assert [tick["step"] for tick in ticks.ready(1 + DELAY)] == [1]
    assert [tick["step"] for tick in ticks.ready(3.5 + DELAY)] == [2, 3]


@pytest.mark.parametrize("place", range(8))
def test_a_release_that_changes_stops_all(place: int) -> None:
    first = Ticks(KEYS)
    for row in stream(4):
        first.see(row)
    resumed = Ticks(KEYS, list(first.ready()))
    for ticks in (first, resumed):
        rows = stream(4, life="2")
        for row in rows:
            ticks.see(row)
        assert list(ticks.ready()) == []
        changed = rows[place]
        changed["values"][0] = math.nextafter(changed["values"][0], math.inf)
        with pytest.raises(ConflictError, match=f"tick {changed['step']} was released before") as e:
            ticks.see(changed)
        assert str(changed["values"][0]) not in str(e.value)


def publisher(tmp_path: Path, horizon: int = 4) -> Publisher:
    return Publisher(
        *(KEYS, horizon, tmp_path / "seen", tmp_path / "record"), tmp_path / "messages"
    )


def test_a_record_goes_on_after_a_kill(tmp_path: Path) -> None:
    seen, record = tmp_path / "seen", tmp_path / "record"
    append(seen, stream(4))
    whole = publisher(tmp_path)
    whole.publish(math.inf)
    expected = record.read_bytes()
    assert whole.over
    for cut in range(len(expected) + 1):
        if cut % 97 and expected[cut - 1 : cut] != b"\n":
            continue
        record.write_bytes(expected[:cut])
        resumed = publisher(tmp_path)
        resumed.publish(math.inf)
        assert resumed.published == whole.published
        assert whole_lines(record)[0] == whole.published


def test_what_a_kill_cut_short_is_not_seen(tmp_path: Path) -> None:
    seen, rows = tmp_path / "seen", stream(2)
    append(seen, rows[:3])
    with seen.open("ab") as file:
        file.write(json.dumps(rows[3]).encode()[:-20])
    first = publisher(tmp_path)
    first.publish(math.inf)
    assert [tick["step"] for tick in first.published] == [1]
    append(seen, rows)
    first.publish(math.inf)
    assert [tick["step"] for tick in first.published] == [1, 2]


SECRET = "this is not public"


@pytest.mark.parametrize("seen", [f'"{SECRET}"', f'{{"step": "{SECRET}"}}', "[" * 100_000])
def test_what_stops_publishing_is_said_without_data(
    seen: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    made = publisher(tmp_path)
    (tmp_path / "seen").write_text(seen + "\n")
    made.start()
    made.join(30)
    assert not made.is_alive()
    assert not made.over
    assert made.failed is not None
    assert made.failed.startswith("publishing has failed: ")
    assert f"; {tmp_path / 'messages'}, which is private, says why" in made.failed
    assert "Traceback" in (tmp_path / "messages").read_text()
    assert (tmp_path / "messages").stat().st_mode & 0o077 == 0
    said = capfd.readouterr()
    assert SECRET not in made.failed + said.out + said.err
    assert made.after(0, 30) == []  # nobody waits for more


def test_a_run_that_cannot_publish_is_not_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    class Idle:
        """A process that does nothing."""

        def __init__(self) -> None:
            self.stdin = open(os.devnull, "wb")  # noqa: SIM115  (closed by what holds it)

        def poll(self) -> None: ...
        def wait(self) -> None: ...

    monkeypatch.setattr(prism, "build", lambda: None)
    monkeypatch.setattr(command, "start", lambda *_: Idle())
    home = Home(tmp_path)
    home.begin({"tick": 2, "rate": 60.0}, 60)
    home.seen.write_text(f'["{SECRET}"]\n')
    assert command.main(["--output", str(tmp_path), "--port", "0", "--exit"]) == 1
    said = capfd.readouterr()
    assert f"publishing has failed: AttributeError; {home.messages('publish')}" in said.out
    assert "over:" not in said.out
    assert SECRET not in said.out + said.err


def test_a_record_with_a_gap_is_refused(tmp_path: Path) -> None:
    ticks = Ticks(KEYS)
    for row in stream(3):
        ticks.see(row)
    first, _, third = ticks.ready()
    append(tmp_path / "record", [first, third])
    with pytest.raises(ConflictError, match="gap"):
        publisher(tmp_path)


def test_a_run_is_the_same_after_a_restart(tmp_path: Path) -> None:
    home = Home(tmp_path / "live")
    home.private.mkdir(mode=0o755, parents=True)
    made = home.begin({"tick": 2, "rate": 50.0}, 61)
    secret = home.key_file.read_text()
    assert (made.horizon, made.stop - made.start, made.start % 2) == (30, 60, 0)
    assert home.begin({"tick": 2, "rate": 50.0}, 1000) == made == home.load()
    assert home.key_file.read_text() == secret
    assert len(secret) == 65
    assert home.key_file.stat().st_mode & 0o077 == home.private.stat().st_mode & 0o077 == 0
    assert all(home.private in path.parents for path in (home.seen, home.log, home.key_file))
    with pytest.raises(ValueError, match="has tick = 2, not 3"):
        home.begin({"tick": 3}, 60)
    assert secret.strip() not in home.settings.read_text()
    other = Home(tmp_path / "other")
    other.begin({"tick": 2}, 60)
    assert other.key_file.read_text() != secret
    assert other.load().run_id != made.run_id


# The server


ABOUT = {
    "panels": [
        {"name": "count", "title": "Requests so far", "unit": ""},
        {"name": "mean_latency", "title": "Mean latency so far", "unit": "s"},
    ],
    "keys": KEYS,
    "tick": 1,
    "horizon": 6,
    "epsilon": 1.0,
    "delta": 1e-6,
    "events": 4,
    "per_key": 2,
    "confidence": 0.95,
    "parameters": {"budget": "<b>epsilon</b> = 1"},
}


class Served:
    """A page of ticks that were made up."""

    def __init__(self, directory: Path) -> None:
        append(directory / "seen", stream(6))
        self.publisher = publisher(directory, 6)
        routes = {"/metrics": exporter(self.publisher)}
        self._server = page.serve(self.publisher, ABOUT, 0, routes)
        self.host, port = self._server.server_address[:2]
        self.address = f"http://127.0.0.1:{port}"

    def get(self, path: str, **headers: str) -> str:
        asked = urllib.request.Request(self.address + path, headers=headers)
        with urllib.request.urlopen(asked, timeout=30) as answer:
            return answer.read().decode()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    made = Served(tmp_path)
    yield made
    made.close()


def events(text: str) -> list[int]:
    """The numbers of the ticks in a stream of events."""
    return [
        json.loads(line[6:])["step"] for line in text.splitlines() if line.startswith('data: {"')
    ]


def test_ticks_are_sent_as_they_come(served: Served) -> None:
    assert served.host == "127.0.0.1"
    assert json.loads(served.get("/about.json")) == ABOUT
    assert json.loads(served.get("/releases.json")) == []
    assert served.get("/metrics") == ""
    with urllib.request.urlopen(served.address + "/events", timeout=30) as answer:
        served.publisher.publish(2.5 + DELAY)
        lines: list[str] = []
        while sum(line.startswith("data: {") for line in lines) < 2:
            lines.append(answer.readline().decode())
        served.publisher.publish(math.inf)
        text = "".join(lines) + answer.read().decode()
    assert events(text) == [1, 2, 3, 4, 5, 6]
    assert text.rstrip().endswith("event: over\ndata: {}")
    assert json.loads(served.get("/releases.json")) == served.publisher.published
    # A browser that comes back says what it has.
    assert events(served.get("/events", **{"Last-Event-ID": "3"})) == [4, 5, 6]
    for last in ("-3 nonsense", "9" * 5000):
        assert events(served.get("/events", **{"Last-Event-ID": last})) == [1, 2, 3, 4, 5, 6]


def test_other_paths_are_none(served: Served) -> None:
    for path in ("/private", "/page.py", "/../settings.py", "/private/secret"):
        with pytest.raises(urllib.error.HTTPError, match="404"):
            served.get(path)


def test_prometheus_gets_what_the_page_shows_and_no_more(served: Served) -> None:
    served.publisher.publish(2.5 + DELAY)
    lines = [line for line in served.get("/metrics").splitlines() if not line.startswith("#")]
    assert lines == [
        "dp_tick 2.0",
        "dp_tick_end_seconds 2.0",
        'dp_release_value{key="a",metric="count"} 100.0',
        'dp_release_value{key="a",metric="mean_latency"} NaN',
        'dp_release_value{key="b",metric="count"} 101.0',
        'dp_release_value{key="b",metric="mean_latency"} NaN',
        'dp_release_low{key="a",metric="count"} 99.0',
        'dp_release_low{key="a",metric="mean_latency"} NaN',
        'dp_release_low{key="b",metric="count"} 100.0',
        'dp_release_low{key="b",metric="mean_latency"} NaN',
        'dp_release_high{key="a",metric="count"} 101.0',
        'dp_release_high{key="a",metric="mean_latency"} NaN',
        'dp_release_high{key="b",metric="count"} 102.0',
        'dp_release_high{key="b",metric="mean_latency"} NaN',
    ]


@pytest.mark.pipeline  # starts a process, and is none of `make unit`
@pytest.mark.skipif(found() is None, reason="no Chromium is installed")
@pytest.mark.parametrize(("width", "dark"), [(390, False), (1280, True)])
def test_the_page_in_a_browser(served: Served, tmp_path: Path, width: int, dark: bool) -> None:
    """What it draws, live; that it fits, and asks nobody else."""
    with Browser(str(found())) as browser:
        browser.open(served.address, width, 800, dark)
        browser.wait("document.querySelectorAll('.panel').length === 2")
        served.publisher.publish(2.5 + DELAY)
        browser.wait("document.body.dataset.ticks === '2'")
        assert browser.says("document.getElementById('status').textContent").startswith(
            "tick 2 of 6"
        )
        cells = "[...document.querySelectorAll('.panel td:nth-child(2)')].map(c => c.textContent)"
        assert browser.says(cells) == ["100", "101", "too small", "too small"]
        served.publisher.publish(math.inf)
        browser.wait("document.body.dataset.ticks === '6'")
        browser.wait(
            "document.getElementById('status').textContent === 'over: all 6 ticks are here'"
        )
        assert browser.says(cells) == ["106", "107", "0.250 s", "0.250 s"]
        panel = "document.querySelectorAll('.panel')"
        # A gap is a gap: of the second panel ticks 3, 5 and 6 are known, and 3 stands alone.
        sizes = "[...p.querySelectorAll('polyline')].map(l => l.points.length)"
        assert browser.says(f"[...{panel}].map(p => {sizes})") == [[6, 6], [2, 2]]
        bands = "[...p.querySelectorAll('polygon')].map(l => l.points.length)"
        assert browser.says(f"[...{panel}].map(p => {bands})") == [[12, 12], [2, 4, 2, 4]]
        promise = browser.says("document.getElementById('promise').textContent")
        assert "factor of at most e^1, which is 2.72, but for a probability of 0.000001" in promise
        assert "4 requests of a person count" in browser.says("document.body.innerText")
        assert "<b>epsilon</b>" in browser.says("document.getElementById('parameters').textContent")
        # It fits, with nothing beside the window, and each panel's drawing in its panel.
        assert browser.says("document.documentElement.scrollWidth <= window.innerWidth")
        boxes = f"[...{panel}].every(p => p.scrollWidth <= p.clientWidth)"
        assert browser.says(boxes)
        columns = f"new Set([...{panel}].map(p => p.getBoundingClientRect().left)).size"
        assert browser.says(columns) == (1 if width == 390 else 2)
        ground = browser.says("getComputedStyle(document.body).backgroundColor")
        assert ground == ("rgb(17, 22, 28)" if dark else "rgb(255, 255, 255)")
        browser.picture(tmp_path / "page.png")
        assert (tmp_path / "page.png").stat().st_size > 10_000
        assert browser.errors == []
        assert all(asked.startswith((served.address, "data:")) for asked in browser.requests)


def test_all_columns_have_titles(tmp_path: Path) -> None:
    home = Home(tmp_path / "live")
    made = home.begin({"tick": 2}, 60)
    about = command.about(made, home)
    assert [each["name"] for each in about["panels"]] == [*command.TITLES]
    assert about.keys() >= ABOUT.keys()
    shown = json.dumps(about)
    assert home.key_file.read_text().strip() not in shown
    assert str(home.path) not in shown
    assert str(home.key_file) not in shown
    assert about["parameters"].keys() > {"budget", "metrics", "users"}


# The judge


def test_the_judge_sees_what_is_wrong() -> None:
    run = replace(Settings(0, 1, 4), services=KEYS)
    whole = stream(4)
    first, second = stream(2), stream(4, life="2")
    assert list(judge.faults_of_lives([*first, *second], whole, run)) == []
    changed = release(1, "a", 99.0, None, life="2")
    for seen, fault in (
        ([*first, *second[:-1]], "1 releases missing"),
        ([*first, changed, *second[1:]], "1 releases seen with two values"),
        ([*first[1:], changed, *second[1:]], "1 releases differ from the uninterrupted run"),
        ([*first, *second[:2], *second[4:], *second[2:4]], "a life has a gap"),
        (second, "there were not two lives"),
        ([*first, *second[4:]], "there were not two lives"),
    ):
        assert any(fault in each for each in judge.faults_of_lives(seen, whole, run)), fault
    assert any(
        "the uninterrupted run has 6" in f
        for f in judge.faults_of_lives([*first, *second], whole[:6], run)
    )

    ticks = Ticks(KEYS)
    for row in whole:
        ticks.see(row)
    record = list(ticks.ready())
    assert list(judge.faults_of_record(record, whole, run)) == []
    other = json.loads(json.dumps(record))
    other[2]["values"][1][0] += 1e-12
    for wrong in (record[:3], [*record[:2], *record[3:]], record[::-1], other):
        assert list(judge.faults_of_record(wrong, whole, run))
    came = [(tick["end"] / 1e6 + DELAY, tick) for tick in record]
    assert list(judge.faults_of_page(came[:3], record)) == []
    assert list(judge.faults_of_page(came[1:], record))
    assert list(judge.faults_of_page([(at - 0.01, tick) for at, tick in came], record))
    assert list(judge.faults_of_page([(at, other[i]) for i, (at, _) in enumerate(came)], record))


@pytest.mark.pipeline
def test_the_judge_kills_all_of_a_session() -> None:
    code = "import subprocess, sys, time; subprocess.Popen(['sleep', '99']); time.sleep(99)"
    process = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    deadline = time.monotonic() + 30
    while len(judge.alive(process.pid)) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert judge.kill(process) == 2
    assert judge.alive(process.pid) == []


def test_settings_are_plain() -> None:
    made = Settings(0, 1, 4)
    assert json.loads(json.dumps(asdict(made)))["services"] == list(made.services)

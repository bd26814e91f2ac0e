"""Hostile surroundings: what docs/reliability.md says of each, and no other file tests."""

from __future__ import annotations

import ast
import errno
import itertools
import logging
import os
import pickle
import re
import resource
import shutil
import subprocess
import sys
import time
from collections import Counter as Tally
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils import windowed_value
from apache_beam.utils.timestamp import MAX_TIMESTAMP, MIN_TIMESTAMP

import beam_dpcount as dp
from beam_dpcount.commands import outputs
from beam_dpcount.commands.files.beside import beside
from beam_dpcount.commands.files.formats import InputError
from beam_dpcount.dofns import versions
from beam_dpcount.dofns.elements import CountEachElement
from beam_dpcount.dofns.versions import VersionedDoFn, VersionError
from beam_dpcount.errors import SecretError
from beam_dpcount.mechanisms import recurrence
from beam_dpcount.noise import replay
from beam_dpcount.noise.entropy import Entropy
from beam_dpcount.noise.laws import DiscreteGaussian, DiscreteLaplace, Law, RoundedGaussian
from beam_dpcount.states.codecs import StateCodec
from beam_dpcount.transforms.ticks import TickNumbers
from benchmarks.cells import Cell
from benchmarks.jobs import dofns_of
from tests.command_lines import BUDGET, ROOT, SECRET_TEXT, fail, written
from tests.runners import SECOND, Row, each_path, feed, root, run, run_stream
from tests.scripted import KeyedScript, ScriptedEntropy, random_script
from tests.sentences import counted

NOISELESS = dp.ZCDP(1e12)
PLAIN = {"mechanism": "SmoothBinary"}
PACKAGE = ROOT / "beam_dpcount"
VARIABLE = "COUNTING_SECRET"
IDS: dict[str, Any] = {"value": itemgetter(0), "element_id": itemgetter(1)}
HOUR, YEAR = 3600, 365 * 86_400


@pytest.fixture(autouse=True)
def _secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "0123456789abcdef" * 4)


FROM_0: dict[str, Any] = {"tick": 10, "start": 0, "stop": 60, "keys": ["a"]}
FROM_1000: dict[str, Any] = {"tick": 10, "start": 1000, "stop": 1030, "keys": ["a"]}


def ticks(path: str = "auto", **options: Any) -> TickNumbers:
    """Three ticks of ten seconds, without noise."""
    given = {"budget": NOISELESS, "tick": 10, "start": 1000, "stop": 1030, **PLAIN, **options}
    return TickNumbers(keys=given.pop("keys", ["a"]), path=path, **given)


def values(outcome: Any) -> list[float]:
    return [release.value for release in outcome.releases]


# Clocks that jump


CLOCKS = {
    "time": {"time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns"}
    | {"process_time", "process_time_ns", "thread_time", "localtime", "gmtime", "ctime", "sleep"},
    "datetime": {"now", "utcnow", "today"},
    "Timestamp": {"now"},
    "TimeDomain": {"REAL_TIME"},
}
# How long a run has taken, on stderr; and what a step costs, where choose explains itself.
READ = {
    "budget/account_file.py": {"now"},  # which is private, as is what spending.py adds to it
    "commands/manifest.py": {"now"},  # when a run began, which is as public as its files' times
    "commands/progress.py": {"monotonic"},
    "commands/spending.py": {"now"},
    "counters/choose.py": {"process_time"},
    "counters/clock.py": {"time_ns"},  # which ticks have ended, on bounded input: see `until`
}


def clocks_read(source: str) -> set[str]:
    """The clocks of a machine that a program names."""
    names, calls = set().union(*CLOCKS.values()), {"now", "utcnow", "today", "REAL_TIME"}
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            of_time = isinstance(node.value, ast.Name) and node.value.id == "time"
            if node.attr in calls or (of_time and node.attr in names):
                found.add(node.attr)
        elif isinstance(node, ast.ImportFrom) and node.module in ("time", "datetime"):
            found |= {alias.name for alias in node.names} & names
    return found


@pytest.mark.long
def test_nothing_that_is_released_reads_the_machines_clock() -> None:
    assert clocks_read("import time\nx = time.time()") == {"time"}
    assert clocks_read("from time import monotonic as m\ny = dt.datetime.now()") == {
        "monotonic",
        "now",
    }
    assert clocks_read("TimerSpec('t', TimeDomain.REAL_TIME)") == {"REAL_TIME"}
    found = {
        str(path.relative_to(PACKAGE)): clocks
        for path in PACKAGE.rglob("*.py")
        if (clocks := clocks_read(path.read_text("utf-8")))
    }
    assert found == READ


@pytest.mark.parametrize(
    "make",
    [
        lambda: ticks("streaming"),
        lambda: ticks("streaming", users=dp.Users(str, 2, per_key=1), value=lambda event: 1),
        lambda: ticks(
            "streaming",
            budget=dp.ApproxDP(1.0, 1e-6),
            keys=dp.SelectKeys(),
            users=dp.Users(str, 2, per_key=1),
            value=lambda event: 1,
            mechanism=None,
        ),
        lambda: counted(NOISELESS, **FROM_0, last=2, path="streaming"),
    ],
    ids=["TickCount", "users", "SelectKeys", "last"],
)
def test_all_timers_are_of_event_time(make: Callable[[], Any]) -> None:
    pipeline = beam.Pipeline(runner="FnApiRunner")
    _ = pipeline | feed([("a", 1, 0)]) | make()
    domains = []
    for one in pipeline.to_runner_api().components.transforms.values():
        if one.spec.urn == common_urns.primitives.PAR_DO.urn:
            payload = beam_runner_api_pb2.ParDoPayload.FromString(one.spec.payload)
            domains += [spec.time_domain for spec in payload.timer_family_specs.values()]
    assert domains
    assert set(domains) == {beam_runner_api_pb2.TimeDomain.EVENT_TIME}


# A thread of Beam's wakes up too early, and complains.
@pytest.mark.long
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("by", [pytest.param(HOUR, marks=pytest.mark.exhaustive), 30 * YEAR])
def test_a_machine_whose_clock_jumps_releases_the_same(
    by: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forth at one look, back beyond where it was at the next."""
    rows: list[Row] = [("a", i % 2, (1000 + 3 * i) * SECOND) for i in range(10)]
    made = [
        lambda: run_stream(ticks(entropy=ScriptedEntropy()), *rows[:3], 1009, *rows[3:], 1031),
        lambda: run(lambda p: p | feed(rows) | ticks("bounded", entropy=ScriptedEntropy())),
        lambda: run(lambda p: p | feed(rows) | dp.PrefixCount(
            dp.ZCDP(1), 40, entropy=ScriptedEntropy(), path="streaming")),
    ]  # fmt: skip
    steady = [one().releases for one in made]
    clock, looks = time.time, itertools.count()

    def jumping() -> float:
        return clock() + by * (-1) ** (n := next(looks)) * (1 + n % 3)

    with monkeypatch.context() as patched:
        patched.setattr(time, "time", jumping)
        patched.setattr(time, "time_ns", lambda: int(jumping() * 1e9))
        assert [one().releases for one in made] == steady
    assert next(looks) > 10  # the runner did look


BEYOND = GlobalWindow().max_timestamp().micros
ODD = [
    *(MIN_TIMESTAMP.micros + 1, MIN_TIMESTAMP.micros + 1000, -62_135_596_800 * SECOND, -1, 0),
    *(1000 * SECOND - 1, 1030 * SECOND, 253_402_300_800 * SECOND),
    *(BEYOND - 1, BEYOND, BEYOND + 1, MAX_TIMESTAMP.micros - 1, MAX_TIMESTAMP.micros),
]
PEOPLE: dict[str, Any] = {"users": dp.Users(itemgetter("who"), 50, per_key=1)}


@each_path
@pytest.mark.parametrize(
    "make",
    [
        ticks,
        lambda path: ticks(path, value=lambda event: 1, **PEOPLE),
        lambda path: counted(NOISELESS, dp.People(), **FROM_1000, path=path, **PEOPLE, **PLAIN),
        lambda path: counted(NOISELESS, **FROM_1000, last=3, path=path),
    ],
    ids=["TickCount", "users", "people", "last"],
)  # fmt: skip
def test_events_of_any_time_stop_nothing_and_count_in_no_other_tick(
    make: Callable[[str], Any], path: str
) -> None:
    rows: list[Row] = [("a", 1, 1005 * SECOND), ("a", 1, 1015 * SECOND)]
    odd: list[Row] = [("a", 1, micros) for micros in ODD]
    if getattr(make(path), "users", None) is not None:
        rows = [("a", {"who": f"x{i}"}, at) for i, (_, _, at) in enumerate(rows)]
        odd = [("a", {"who": f"y{i}"}, at) for i, (_, _, at) in enumerate(odd)]
    runs = [
        run(lambda p, given=given: p | feed(given) | make(path)) for given in (rows, rows + odd)
    ]
    assert np.round(values(runs[0]), 3).tolist() == [1, 2, 2]
    assert np.round(values(runs[1]), 3).tolist() == [1, 2, 2]


@each_path
def test_elements_of_any_time_take_their_step(path: str) -> None:
    rows: list[Row] = [("a", 1, micros) for micros in (MIN_TIMESTAMP.micros, *ODD)]
    count = dp.PrefixCount(NOISELESS, 40, path=path, **PLAIN)
    outcome = run(lambda p: p | feed(rows) | count)
    assert values(outcome) == [*range(1, len(rows) + 1)]
    assert [release.timestamp for release in outcome.releases] == [at for _, _, at in rows]


# Disks that fill


ROWS = 600


@pytest.fixture
def log(tmp_path: Path) -> list[object]:
    """What a command is given of a file of events, in which every value is no number."""
    file = tmp_path / "in.csv"
    lines = [f"k{i % 3},{SECRET_TEXT},{i}\n" for i in range(ROWS)]
    file.write_text("key,n,time\n" + "".join(lines))
    common = ["--input", file, "--key", "key", "--timestamp", "time", "--horizon", ROWS]
    return [*common, "--value", "n", "--bounds", "0", "1", *BUDGET]


@contextmanager
def little_room(size: int) -> Iterator[None]:
    """Within, no file grows beyond so many bytes: the system refuses the write, as a quota does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize(
    "before", ["what was there", pytest.param(None, marks=pytest.mark.exhaustive)]
)
@pytest.mark.parametrize("failing", ["out.csv", "out.parquet", "rejected.csv", "out.png"])
def test_a_file_that_cannot_be_written_is_not_there(
    failing: str, before: str | None, log: list[object], tmp_path: Path
) -> None:
    place, room = tmp_path / failing, 15_000
    options: list[object] = ["--output", place]
    if failing == "rejected.csv":
        options, room = ["--output", tmp_path / "out.parquet", "--rejected", place], 25_000
    elif failing == "out.png":
        options, room = ["--output", tmp_path / "out.csv", "--plot", place], 60_000
    elif failing == "out.parquet":
        room = 5_000
    if before is not None:
        place.write_text(before)
    with little_room(room):
        text = fail(*log, *options)
    assert f"{str(place)!r} cannot be written: File too large; make room" in text
    assert (place.read_text() if place.exists() else None) == before
    assert not [*tmp_path.glob("*.partial")]
    if failing == "out.png":  # the counts are whole, and so says the message
        assert f"the counts are complete: {tmp_path / 'out.csv'}" in text
        assert len(written(tmp_path / "out.csv")) == ROWS
    elif failing == "rejected.csv" and (tmp_path / "out.parquet").exists():
        assert len(written(tmp_path / "out.parquet")) == ROWS


@pytest.mark.long
def test_a_full_disk(log: list[object], tmp_path: Path) -> None:
    """A real one, of 16 KB, in a namespace of its own."""
    full, inside = tmp_path / "full", tmp_path / "inside"
    full.mkdir()
    mount = f"mount -t tmpfs -o size=16k none {full} && "
    alone = ["unshare", "--mount", "--user", "--map-root-user", "sh", "-c"]
    if shutil.which("unshare") is None or subprocess.run([*alone, f"{mount}true"]).returncode:
        pytest.skip("mounting a small disk in a namespace is not permitted here")
    words = " ".join(map(str, [*log, "--output", full / "out.csv"]))
    script = (
        f"{mount}{sys.executable} -m beam_dpcount count {words}; echo $?; ls -A {full} > {inside}"
    )
    ended = subprocess.run(
        [*alone, script],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert ended.stdout.endswith("2\n")
    assert "out.csv' cannot be written: No space left on device; make room" in ended.stderr
    *warnings, _ = ended.stderr.splitlines()
    assert all(line.startswith("warning: ") for line in warnings)
    assert SECRET_TEXT not in ended.stderr + ended.stdout
    assert inside.read_text() == ""


@pytest.mark.parametrize("place", ["fsync", "rename"])
def test_disks_that_complain_late(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system may find out that it is full only when it is made to write."""
    out = tmp_path / "out.csv"
    out.write_text("before")

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, place, full)
    said = r"out\.csv' cannot be written: No space left on device"
    with pytest.raises(InputError, match=said), beside(str(out)) as name:
        Path(name).write_text("whole")
    assert os.listdir(tmp_path) == ["out.csv"]
    assert out.read_text() == "before"


def test_a_run_that_is_killed_leaves_no_file_that_looks_whole(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys\n"
        "from beam_dpcount.commands.files.beside import beside\n"
        "with beside(sys.argv[1]) as name:\n"
        "    open(name, 'w').write('half')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    words = [sys.executable, "-c", program, tmp_path / "out.csv"]
    assert subprocess.run(words, cwd=ROOT, timeout=120).returncode == -9
    (left,) = os.listdir(tmp_path)
    assert left.endswith(".partial")


@pytest.mark.long
def test_a_report_that_nobody_can_read_is_an_error() -> None:
    for more in ({}, {"PYTHONUNBUFFERED": "1"}):
        with open("/dev/full", "w") as full:
            words = ["-m", "beam_dpcount", "choose", *BUDGET, "--horizon", "100"]
            ended = subprocess.run(
                [sys.executable, *words],
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                cwd=ROOT,
                timeout=120,
                env={**{k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}, **more},
            )
        assert ended.returncode == 2
        assert ended.stderr.startswith("error: ")
        assert "No space left on device" in ended.stderr
        assert len(ended.stderr.splitlines()) == 1


@pytest.mark.parametrize("option", ["--output", "--plot", "--rejected"])
def test_what_is_no_file_is_no_output(option: str, log: list[object], tmp_path: Path) -> None:
    suffix = "png" if option == "--plot" else "csv"
    directory, pipe = tmp_path / f"directory.{suffix}", tmp_path / f"pipe.{suffix}"
    directory.mkdir()
    os.mkfifo(pipe)
    other: list[object] = [] if option == "--output" else ["--output", tmp_path / "out.csv"]
    for path, said in ((directory, "is a directory"), (pipe, "is a device or a pipe")):
        text = fail(*log, *other, option, path, started=False)  # before anything is counted
        assert f"{str(path)!r} {said}" in text
    assert directory.is_dir()
    assert pipe.is_fifo()
    assert not (tmp_path / "out.csv").exists()


# What happens to the input after it was checked, and what is said then.
GONE: dict[str, str] = {
    "removed": "{}: cannot be read: No such file or directory",
    "cut short": "{}, row 300, column 'n': the row is too short, 1 of 3 cells",
}


@pytest.mark.parametrize("how", GONE)
def test_an_input_that_vanishes_leaves_no_output(
    how: str, log: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, check = tmp_path / "in.csv", outputs.check

    def checked(*given: Any) -> None:
        check(*given)
        if how == "removed":
            file.unlink()
        else:
            lines = file.read_text().splitlines(keepends=True)
            file.write_text("".join(lines[:300]) + "k1")

    monkeypatch.setattr(outputs, "check", checked)
    text = fail(*log, "--output", tmp_path / "out.csv")
    assert GONE[how].format(str(file)) in text
    assert not (tmp_path / "out.csv").exists()


# A source that delivers twice, or out of order


TWICE: list[Row] = [("a", (1, i), (1000 + i) * SECOND) for i in (0, 1, 2, 2, 11, 11)]
ONCE = [row for i, row in enumerate(TWICE) if row not in TWICE[:i]]


def numbered(path: str, **options: Any) -> Any:
    return dp.PrefixCount(NOISELESS, 9, path=path, **{**IDS, **PLAIN, **options})


@pytest.mark.parametrize("kind", ["system", "replayable", "lists"])  # which have no hash
def test_an_element_that_comes_twice_is_refused_by_its_id(kind: str) -> None:
    options: Any = {
        "system": {},
        "replayable": {"entropy": dp.ReplayableEntropy(VARIABLE, run_id="")},
        "lists": {"element_id": lambda payload: [payload[1]]},
    }[kind]
    count = numbered("bounded", **options)
    said = r"gave (2|\[2\]) for 2 elements of a key, but ids must be unique: leave out what"
    with pytest.raises(Exception, match=said):
        run(lambda p: p | feed(TWICE) | count)
    assert values(run(lambda p: p | feed(ONCE) | count)) == [1, 2, 3, 4]


@each_path
def test_an_element_that_comes_twice_counts_twice(path: str) -> None:
    """Streaming nothing can see it, nor without ids."""
    count = numbered(path, **({} if path == "streaming" else {"element_id": None}))
    assert values(run(lambda p: p | feed(TWICE) | count)) == [1, 2, 3, 4, 5, 6]


@each_path
def test_an_event_that_comes_twice_counts_twice_at_ticks(path: str) -> None:
    given: dict[str, Any] = {"value": itemgetter(0)}
    assert values(run(lambda p: p | feed(ONCE) | ticks(path, **given))) == [3, 4, 4]
    assert values(run(lambda p: p | feed(TWICE) | ticks(path, **given))) == [4, 6, 6]


@pytest.mark.long
@each_path
def test_of_people_who_come_twice_as_many_events_count_as_their_bound(path: str) -> None:
    """A duplicate takes the place of another event; no person counts for more."""
    rows: list[Row] = [("a", who, (1000 + i) * SECOND) for i, who in enumerate("xyxyzxzzyx")]
    for most, once, twice in ((50, 10, 20), (2, 6, 6)):
        users = dp.Users(str, most, per_key=most)
        count = ticks(path, users=users, value=lambda event: 1)
        for given, whole in ((rows, once), (rows * 2, twice)):
            assert values(run(lambda p, g=given, c=count: p | feed(g) | c))[-1] == whole
    users = dp.Users(str, 2)
    people = counted(NOISELESS, dp.People(), **FROM_1000, path=path, users=users, **PLAIN)
    for given in (rows, rows[::-1] + rows):
        assert values(run(lambda p, g=given: p | feed(g) | people))[-1] == 3


# Workers of several versions


def test_the_version_is_that_of_the_package() -> None:
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    assert re.findall(r'(?m)^version = "(.*)"$', project) == [dp.__version__]
    assert (
        f"beam_dpcount {dp.__version__} (noise format {replay.NOISE_FORMAT}) on Python "
        f"{sys.version_info[0]}.{sys.version_info[1]}"
    ) == versions.HERE


@pytest.mark.long
def test_every_dofn_of_a_count_knows_its_version() -> None:
    """But those of the commands, which read and write files."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef) and node.name != "VersionedDoFn":
                bases = [ast.unparse(base) for base in node.bases]
                assert "beam.DoFn" not in bases or "commands" in path.parts, (path, node.name)
    assert issubclass(CountEachElement, VersionedDoFn)


OTHERS = {
    "the library": f"beam_dpcount 0.0.9 (noise format {replay.NOISE_FORMAT}) on Python 3.11",
    "noise": f"beam_dpcount {dp.__version__} (noise format {replay.NOISE_FORMAT + 1}) on Python 3",
    "Python": versions.HERE.rpartition(".")[0] + ".9",
}


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("runner", ["fn", "bundles", "grpc"])
@each_path
def test_a_worker_of_another_version_counts_nothing(
    other: str, runner: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stamped = VersionedDoFn.__getstate__

    def made_elsewhere(self: Any) -> dict[str, Any]:
        return {**stamped(self), "_made_by": OTHERS[other]}

    monkeypatch.setattr(VersionedDoFn, "__getstate__", made_elsewhere)
    seen: list[Any] = []
    rows: list[Row] = [("a", 77_431, 1000 * SECOND)]
    for count in (dp.PrefixCount(dp.ZCDP(1), 9, path=path), ticks(path)):
        with pytest.raises(Exception, match="the pipeline was made by beam_dpcount") as caught:
            run(lambda p, c=count: p | feed(rows) | c | beam.Map(seen.append), runner)
        text = str(root(caught.value))
        assert versions.HERE in text
        assert OTHERS[other] in text
        assert "install the submitter's versions on every worker" in text
        assert "77431" not in text
    assert not seen


def test_what_was_pickled_before_there_were_stamps_is_refused() -> None:
    dofn = dofns_of(dp.PrefixCount(dp.ZCDP(1), 9, path="streaming", **IDS))[CountEachElement]
    state = {name: value for name, value in dofn.__getstate__().items() if name != "_made_by"}
    with pytest.raises(VersionError, match="made by an earlier beam_dpcount"):
        dofn.__setstate__(state)
    again = pickle.loads(pickle.dumps(versions.VersionedDoFn()))
    assert again.__dict__ == versions.VersionedDoFn().__dict__  # the stamp does not stay


class Worker:
    """A DoFn that counts elements of keys, as one worker has it, and cells that several share."""

    def __init__(self, count: Any) -> None:
        self._dofn = dofns_of(count)[CountEachElement]
        self._dofn.setup()

    def count(self, cell: Cell, value: Any, identity: int, key: str = "a") -> Any:
        element = windowed_value.create((key, (value, identity)), 0, (GlobalWindow(),))
        self._dofn.start_bundle()
        (release,) = self._dofn.process(element.value, element, cell)
        return release


def replayed(budget: Any = None, run_id: str = "", **options: Any) -> Any:
    given = {"entropy": dp.ReplayableEntropy(VARIABLE, run_id=run_id), **IDS, **PLAIN, **options}
    return dp.PrefixCount(budget or dp.ZCDP(1e-9), 20, path="streaming", **given)


def streamed(workers: Iterator[Worker], key: str = "a") -> list[float]:
    cell = Cell()
    return [next(workers).count(cell, i % 2, i, key).value for i in range(12)]


def test_another_noise_format_reads_the_state_and_has_other_noise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An upgrade in the middle of a stream: a replay of what was seen costs a second budget."""
    old = Worker(replayed())
    whole = streamed(itertools.repeat(old))
    monkeypatch.setattr(replay, "NOISE_FORMAT", replay.NOISE_FORMAT + 1)
    new = Worker(replayed())
    mixed = streamed(itertools.chain([old] * 6, itertools.repeat(new)))
    assert mixed[:6] == whole[:6]
    assert not set(mixed[6:]) & set(whole[6:])
    assert not set(streamed(itertools.repeat(new))) & set(whole)
    exact = streamed(itertools.chain([Worker(replayed(NOISELESS))] * 6, itertools.repeat(
        Worker(replayed(NOISELESS)))))  # fmt: skip
    assert exact == [(i + 1) // 2 for i in range(12)]


# A compiled twin that is missing, or another one


NATIVE = recurrence.twin


class Foreign:
    """A module in the place of the compiled one."""

    def __init__(self, make: Any) -> None:
        self.Recurrence = make


def other_numbers(*given: Any) -> Any:
    """One whose factors another version would have: one bit of one of them differs."""
    factors = list(given[10])
    factors[-1] ^= 1
    return NATIVE.Recurrence(*given[:10], tuple(factors), *given[11:])


def no_such_arguments() -> None:
    """One that is made otherwise."""


class NoSteps:
    """One that has no `step`."""

    def __init__(self, *given: Any) -> None:
        pass


FOREIGN = {"numbers": other_numbers, "arguments": no_such_arguments, "methods": NoSteps}
needs_twin = pytest.mark.skipif(NATIVE is None, reason="the compiled twin was not built")


@pytest.mark.parametrize("foreign", [pytest.param("numbers", marks=needs_twin), *[*FOREIGN][1:]])
def test_a_twin_of_another_version_is_left_out(
    foreign: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    kind = dp.mechanisms.NormalizedBLT(100)
    xs, noise = np.arange(60) % 2, random_script(60, spread=1 << 22)
    expected = dp.calibrate(kind, dp.ZCDP(0.5)).release(xs, noise).tobytes()
    monkeypatch.setattr(recurrence, "twin", Foreign(FOREIGN[foreign]))
    recurrence._warn_of_twin.cache_clear()
    counter: Any = dp.calibrate(dp.mechanisms.NormalizedBLT(100), dp.ZCDP(0.5))
    with caplog.at_level(logging.WARNING):
        assert counter.release(xs, noise).tobytes() == expected
        assert recurrence.compiled(counter.mechanism._recurrence) is None
    (warned,) = caplog.messages
    assert "is of another version: it is left out, which changes no release" in warned


@needs_twin
def test_workers_with_and_without_a_twin_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    for turns in ((NATIVE,), (None,), (NATIVE, None), (None, NATIVE, NATIVE)):
        codec, noise, data, values = None, random_script(60, spread=1 << 22), b"", []
        for i, twin in zip(range(60), itertools.cycle(turns), strict=False):
            monkeypatch.setattr(recurrence, "twin", twin)
            counter = dp.calibrate(dp.mechanisms.NormalizedBLT(100), dp.ZCDP(0.5))
            codec = StateCodec(counter)
            state = codec.decode(data) if data else counter.init()
            state, value = counter.step(state, i % 2, noise)
            data = codec.encode(state)
            values.append((value, data))
        seen.append(values)
    assert all(values == seen[0] for values in seen)


# A secret that one worker lacks, or has another one of


@pytest.mark.parametrize("secret", [None, "", "short"])
def test_the_one_worker_without_a_secret_stops(
    secret: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell, first = Cell(), Worker(replayed())
    first.count(cell, 1, 0)
    before = cell.data
    monkeypatch.delenv(VARIABLE) if secret is None else monkeypatch.setenv(VARIABLE, secret)
    with pytest.raises(SecretError, match=f"of environment variable {VARIABLE} is"):
        Worker(replayed())
    assert cell.data == before
    assert first.count(cell, 1, 1).step == 2  # others go on


def test_workers_with_two_secrets_count_right_with_two_noises(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing sees it. A replay that is shared out otherwise among them is another run."""
    pair = []
    for secret in ("0123456789abcdef" * 4, "fedcba9876543210" * 4):
        monkeypatch.setenv(VARIABLE, secret)
        pair.append([Worker(replayed()), Worker(replayed(NOISELESS))])
    noisy, exact = zip(*pair, strict=True)
    alone = streamed(itertools.repeat(noisy[0]))
    turns = streamed(itertools.cycle(noisy))
    assert turns == streamed(itertools.cycle(noisy))
    assert turns[0] == alone[0]
    assert not set(turns[1:]) & set(alone[1:])
    assert streamed(itertools.cycle(exact)) == [(i + 1) // 2 for i in range(12)]


# No entropy


LAWS = (DiscreteLaplace, DiscreteGaussian, RoundedGaussian)


def refuse(n: int) -> bytes:
    raise OSError(errno.EIO, "Input/output error")


def lack(n: int) -> bytes:
    raise NotImplementedError("/dev/urandom (or equivalent) not found")


@pytest.mark.long
@pytest.mark.parametrize("source", [refuse, lack])
@pytest.mark.parametrize("budget", [dp.PureDP(1.0), dp.ZCDP(0.5)])
def test_without_random_numbers_nothing_is_released(
    source: Any, budget: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell, worker = Cell(), Worker(replayed(budget, entropy=None, mechanism=None))
    with monkeypatch.context() as patched:
        for law in LAWS:
            patched.setattr(law.sample, "__defaults__", (source,))
        said = "gives no random numbers here .*: nothing is released without them; repair"
        with pytest.raises(RuntimeError, match=said):
            worker.count(cell, 1, 0)
        assert cell.data is None
        for count in (
            dp.PrefixCount(budget, 9, path="bounded"),
            ticks("streaming", budget=budget, mechanism=None),
        ):
            with pytest.raises(Exception, match=said):
                run(lambda p, c=count: p | feed([("a", 1, 1000 * SECOND)]) | c)
    assert [worker.count(cell, 1, i).step for i in range(3)] == [1, 2, 3]


# Memory that runs out


_asked: Tally[Any] = Tally()


class Hungry(Entropy):
    """Noise for which there is no memory, when some coordinates are first asked for."""

    def source(self, law: Law, dimension: int | None) -> Any:
        return lambda key, window: HungryNoise(key, window, dimension, 50)


class HungryNoise(KeyedScript):
    def one(self, coordinate: int) -> int:
        _asked[coordinate] += 1
        if _asked[coordinate] == 1 and coordinate in (1, 2, 8):
            raise MemoryError
        return super().one(coordinate)


def hungry(value: Any) -> Any:
    """A function of the user's, for which there is none either."""
    _asked[value] += 1
    if _asked[value] == 1 and value == 1003:
        raise MemoryError
    return value % 2


@pytest.mark.parametrize("kind", ["elements", "ticks"])
def test_bundles_without_memory_are_done_again(kind: str) -> None:
    """MemoryError is no fault of the data: the bundle fails, and the runner tries it again."""
    rows: list[Row] = [("a", 1000 + i, (1000 + 3 * i) * SECOND) for i in range(10)]

    def outcome(entropy: Any, value: Any) -> list[Any]:
        given: dict[str, Any] = {"entropy": entropy, "value": value, **PLAIN}
        count: Any = dp.PrefixCount(dp.ZCDP(1), 40, path="streaming", **given)
        if kind == "ticks":
            count = ticks("streaming", budget=dp.ZCDP(1), **given)
        return run_stream(count, *rows[:3], 1008, *rows[3:], 1020, 1031).releases

    _asked.clear()
    plain = outcome(ScriptedEntropy(), lambda value: value % 2)
    assert len(plain) == (10 if kind == "elements" else 3)
    assert outcome(Hungry(), hungry) == plain
    assert _asked[1] > 1
    assert _asked[1003] > 1


# State that is not what was written


def test_the_state_of_another_key_is_not_seen() -> None:
    """A state does not hold its key: engines keep them apart. Under replayable noise its history
    is another's, so no release repeats one."""
    worker, one, other = Worker(replayed(NOISELESS)), Cell(), Cell()
    for i in range(3):
        worker.count(one, 1, i, "a")
    worker.count(other, 0, 0, "b")
    other.data = one.data
    assert worker.count(other, 0, 1, "b").value == 3
    noisy = Worker(replayed())
    mine = streamed(itertools.repeat(noisy))
    cell = Cell()
    for i in range(3):
        noisy.count(cell, i % 2, i, "a")
    others = [noisy.count(cell, 1 - i % 2, i, "b").value for i in range(3, 12)]
    assert not set(mine) & set(others)


def test_an_old_state_is_not_seen_and_is_another_history() -> None:
    """Rolled back without its input, a key loses what it had counted since."""
    worker, cell = Worker(replayed(NOISELESS)), Cell()
    for i in range(4):
        worker.count(cell, 1, i)
        if i == 1:
            old = cell.data
    cell.data = old
    assert worker.count(cell, 1, 4).value == 3  # of five

    noisy, cell, seen = Worker(replayed()), Cell(), []
    for i in range(6):
        seen.append(noisy.count(cell, i % 2, i).value)
        if i == 1:
            old = cell.data
    cell.data = old
    again = [noisy.count(cell, i % 2, i).value for i in range(2, 6)]
    assert again == seen[2:]  # with its input: the same, at no cost
    cell.data = old
    assert not set(seen[2:]) & {noisy.count(cell, i % 2, i).value for i in range(6, 10)}


# The table


def test_the_rows_of_the_table_name_tests_that_exist() -> None:
    tests = {path.name: names_in(path) for path in (ROOT / "tests").glob("test_*.py")}
    text = (ROOT / "docs" / "reliability.md").read_text("utf-8")
    part = text.split("## Hostile surroundings\n")[1].split("\n## ")[0]
    rows = [re.split(r" ?\| ?", line)[1:-1] for line in part.splitlines() if line.startswith("| ")]
    rows = [row for row in rows[1:] if not row[0].startswith("**")]
    assert len(rows) > 25
    everywhere = set()
    for row in rows:
        assert len(row) == 4, row
        named = {*re.findall(r"`(test_\w+)`", row[3])}
        files = {Path(__file__).name, *re.findall(r"`(test_\w+\.py)`", row[3])}
        assert named, row
        assert named <= set().union(*(tests[file] for file in files)), row
        assert all(named & tests[file] for file in files if f"`{file}`" in row[3]), row
        everywhere |= named
    assert tests[Path(__file__).name] - everywhere == {
        "test_the_version_is_that_of_the_package",
        "test_what_was_pickled_before_there_were_stamps_is_refused",
        "test_the_rows_of_the_table_name_tests_that_exist",
    }


def names_in(path: Path) -> set[str]:
    return {*re.findall(r"(?m)^def (test_\w+)", path.read_text("utf-8"))}

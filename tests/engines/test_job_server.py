"""What can be seen of FlinkRunner as an engine without its jar: all but the jar itself.

A stand-in is run in place of `java -jar`. It takes what Beam's job server takes, and has no Flink.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest

import beam_dpcount as dp
from engines.cache import UnavailableError
from engines.servers import Process, Server, wait
from tests.engines import flinkrunner, stand_in
from tests.engines.commands import arguments, released, run_count, write
from tests.engines.conftest import on_flinkrunner
from tests.engines.counts import ticks
from tests.engines.flink import install
from tests.engines.flink.cluster import OPENS, Cluster
from tests.runners import feed, run

ROOT = Path(__file__).parents[2]
NAME = f"beam-runners-flink-{flinkrunner.FLINK}-job-server-2.77.0.jar"
ROWS = [("x", i % 3, i * 1_000_000) for i in range(100)]
EXTERNAL = "EXTERNAL"
CHECKED = {
    "streaming": True,
    "checkpointing_interval": "200",
    "finish_bundle_before_checkpointing": True,
    "shutdown_sources_after_idle_ms": "1000",
}
UNCHECKED = {
    "streaming": False,
    "checkpointing_interval": None,
    "finish_bundle_before_checkpointing": False,
    "shutdown_sources_after_idle_ms": None,
}


def jar(path: Path, driver: str = flinkrunner.DRIVER) -> Path:
    """What passes for a job server's jar."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(driver, b"")
        archive.writestr(flinkrunner.PROPERTIES, "name=Beam\nversion=2.77.0\n")
    return path


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stand-in")


@pytest.fixture(scope="module")
def server(work: Path) -> Iterator[Server]:
    java = str(stand_in.script(work))
    with flinkrunner.server(jar(work / NAME), work, java) as running:
        yield running


def last(work: Path) -> dict[str, Any]:
    return stand_in.lines(work / "artifacts")[-1]


# Launching


def test_it_is_started_as_beam_starts_it(server: Server, work: Path) -> None:
    started = stand_in.lines(work / "artifacts")[0]
    assert started == {
        "jvm": OPENS,
        "jar": str(work / NAME),
        "options": [
            *("--flink-master", "[local]"),
            *("--artifacts-dir", str(work / "artifacts")),
            *("--job-port", server.endpoint.rpartition(":")[2]),
            *("--artifact-port", "0"),
            *("--expansion-port", "0"),
        ],
    }


@pytest.mark.parametrize("checkpoints", [False, True])
@pytest.mark.parametrize("environment", ["LOOPBACK", EXTERNAL])
@pytest.mark.parametrize("master", ["[local]", "localhost:8081"])
def test_jobs_carry_their_options(
    master: str,
    environment: str,
    checkpoints: bool,
    server: Server,
    work: Path,
    request: pytest.FixtureRequest,
) -> None:
    """And their workers do the work."""
    workers = flinkrunner.LOOPBACK
    if environment == EXTERNAL:
        workers = request.getfixturevalue("workers").flags
    more = flinkrunner.CHECKPOINTS if checkpoints else ()
    engine = on_flinkrunner(server, master, 2, *workers, *more)
    build = lambda p: p | feed(ROWS) | ticks()  # noqa: E731
    with server.within(100), pytest.warns(dp.errors.RunnerWarning, match="FlinkRunner"):
        given = engine.run(build)
    expected = run(build)
    assert given.outputs == expected.outputs
    assert given.metrics() == expected.metrics()
    job = last(work)
    assert job["flink_master"] == master
    assert job["parallelism"] == "2"
    expected_of_job = CHECKED if checkpoints else UNCHECKED
    assert {name: job.get(name) for name in CHECKED} == expected_of_job
    # To the job server LOOPBACK is EXTERNAL, too: the submitter's own port.
    assert job["environments"] == ["beam:env:external:v1"]
    config = job.get("environment_config")
    assert config == (workers[1].partition("=")[2] if environment == EXTERNAL else None)


def test_checkpoints_that_lose_results_are_refused(server: Server) -> None:
    flags = [each for each in flinkrunner.CHECKPOINTS if "finish_bundle" not in each]
    engine = on_flinkrunner(server, "[local]", 1, *flinkrunner.LOOPBACK, *flags)
    with pytest.raises(dp.errors.RunnerError, match="finish_bundle_before_checkpointing"):
        engine.run(lambda p: p | feed(ROWS) | ticks(allow_runner=True))


def test_beams_own_start(tmp_path: Path) -> None:
    """As users start it, with the jar and all else in a command's options."""
    java = str(stand_in.script(tmp_path))
    own = flinkrunner.options(jar(tmp_path / NAME), tmp_path, 0, java)
    log, out = tmp_path / "log.csv", tmp_path / "out.csv"
    expected = write(log)
    words = arguments(log, out, "bounded", "--rho", "1e12")
    run_count(*words, "--runner", "FlinkRunner", "--flink_master", "[local]", *own)
    assert released(out) == pytest.approx(expected, abs=1e-3)
    server, job = stand_in.lines(tmp_path / "artifacts")
    assert server["jar"] == job["flink_job_server_jar"] == str(tmp_path / NAME)
    assert job["flink_master"] == "[local]"
    assert job["environments"] == ["beam:env:external:v1"]  # LOOPBACK, by default


def test_a_job_that_fails_says_why(server: Server) -> None:
    def fail(_: Any) -> None:
        raise ArithmeticError("this one")

    engine = on_flinkrunner(server, "[local]", 1, *flinkrunner.LOOPBACK)
    with server.within(100), pytest.raises(RuntimeError, match="this one"):
        engine.run(lambda p: p | beam.Create([1]) | beam.Map(fail))


# The jar


@pytest.fixture
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flinkrunner, "open_interfaces", list)


@pytest.mark.usefixtures("_alone")
def test_a_jar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(flinkrunner.VARIABLE, str(jar(tmp_path / NAME)))
    assert flinkrunner.jar() == tmp_path / NAME
    assert flinkrunner.versions() == f"FlinkRunner of Beam 2.77.0, {NAME}"
    monkeypatch.setenv(flinkrunner.VARIABLE, str(jar(tmp_path / "mine.jar")))
    assert flinkrunner.jar() == tmp_path / "mine.jar"


@pytest.mark.usefixtures("_alone")
def test_no_jar(monkeypatch: pytest.MonkeyPatch) -> None:
    for value in (None, ""):
        monkeypatch.delenv(flinkrunner.VARIABLE, raising=False)
        if value is not None:
            monkeypatch.setenv(flinkrunner.VARIABLE, value)
        with pytest.raises(UnavailableError, match=f"{flinkrunner.VARIABLE}=FILE, such as beam-"):
            flinkrunner.jar()


@pytest.mark.usefixtures("_alone")
def test_what_is_no_jar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "text.jar").write_text("PK")
    jar(tmp_path / "other.jar", "org/apache/beam/Other.class")
    jar(tmp_path / NAME.replace(flinkrunner.FLINK, "1.19"))
    for name, reason in (
        ("none.jar", "is no file"),
        (".", "is no file"),
        ("text.jar", "is no jar"),
        ("other.jar", "is no job server for Flink"),
        (NAME.replace(flinkrunner.FLINK, "1.19"), f"for Flink 1.19: {flinkrunner.FLINK} is needed"),
    ):
        monkeypatch.setenv(flinkrunner.VARIABLE, str(tmp_path / name))
        with pytest.raises(flinkrunner.JarError, match=reason) as raised:
            flinkrunner.jar()
        assert str(raised.value).startswith(f"{flinkrunner.VARIABLE} names '{tmp_path}")


def test_more_than_loopback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flinkrunner, "open_interfaces", lambda: ["eth0"])
    monkeypatch.setenv(flinkrunner.VARIABLE, str(jar(tmp_path / NAME)))
    with pytest.raises(UnavailableError, match=r"\(eth0\): .* python -m engines.loopback"):
        flinkrunner.jar()


@pytest.mark.parametrize(("given", "status"), [(None, 0), ("none.jar", 1)])
def test_these_tests_without_a_jar_and_with_a_wrong_one(given: str | None, status: int) -> None:
    """In CI: without a jar its tests skip and say so, where other engines must be there."""
    environment = os.environ | {"CI": "true", "PYTHONPATH": str(ROOT)}
    environment.pop(flinkrunner.VARIABLE, None)
    if given is not None:
        environment[flinkrunner.VARIABLE] = given
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "tests/engines/test_flinkrunner.py"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == status, said
    if given is None:
        (line,) = [line for line in said.splitlines() if flinkrunner.VARIABLE in line]
        assert line.startswith("tests/engines skipped tests: Beam's FlinkRunner needs ")
        assert "FlinkRunner of Beam" not in said
    else:
        assert f"{flinkrunner.VARIABLE} names 'none.jar', which is no file" in said


# The cluster


def test_a_cluster_of_flink_alone(tmp_path: Path) -> None:
    """Jobs bring their own Beam: neither ours, nor that of Flink's jar for Python, is there."""
    with Cluster(tmp_path, classpath=install.libraries()) as cluster:
        assert cluster.get("/overview")["slots-total"] == 2
        for process in (cluster.job_manager, *cluster.task_managers):
            words = Path(f"/proc/{process.pid}/cmdline").read_text().split("\0")
            loaded = words[words.index("-classpath") + 1]
            assert loaded == f"{install.flink()}/lib/*"
    for library in (install.flink() / "lib").iterdir():
        with zipfile.ZipFile(library) as archive:
            assert not any("org/apache/beam/" in name for name in archive.namelist())


# Servers


def serve(port: int) -> list[str]:
    return [sys.executable, "-m", "http.server", "--bind", "localhost", str(port)]


def test_a_server_that_hangs_ends_and_is_started_anew(tmp_path: Path) -> None:
    with Server("the test's", serve, tmp_path / "log") as server:
        endpoint = server.endpoint
        with server.within(60):
            assert server.running()
        with server.within(0.2):
            wait(lambda: not server.running(), (), "its end", 20)
        with server.within(2):
            assert server.running()
        time.sleep(2.5)
        assert server.running()  # a limit ends with its block
        assert server.endpoint == endpoint
    assert not server.running()


def test_a_server_that_is_being_ended_is_started_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job fails as soon as the server's sockets close, which is before it has ended."""
    ending, kill = threading.Event(), Process.kill

    def slowly(process: Process) -> None:
        ending.set()
        time.sleep(1)
        kill(process)

    with Server("the test's", serve, tmp_path / "log") as server:
        monkeypatch.setattr(Process, "kill", slowly)
        with server.within(0.2):
            assert ending.wait(20)
        monkeypatch.undo()
        with server.within(60):
            assert server.running()
            time.sleep(2)
            assert server.running()


def test_a_server_that_does_not_start(tmp_path: Path) -> None:
    wrong = lambda port: [sys.executable, "-c", f"raise SystemExit('no {port // port}')"]  # noqa: E731
    with pytest.raises(RuntimeError, match=r"the test's: a process ended; log ends in\nno 1"):
        Server("the test's", wrong, tmp_path / "log").__enter__()


def test_a_server_ends_with_the_tests(tmp_path: Path) -> None:
    """However these end."""
    code = (
        "import pathlib, sys, time; from engines.servers import Server\n"
        "command = lambda port: [sys.executable, '-m', 'http.server', str(port)]\n"
        "with Server('the test', command, pathlib.Path(sys.argv[1])) as server:\n"
        "    print(server._process.pid, flush=True)\n"
        "    time.sleep(100)"
    )
    words = [sys.executable, "-c", code, str(tmp_path / "log")]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as tests:
        assert tests.stdout is not None
        place = Path("/proc", tests.stdout.readline().strip(), "stat")
        assert place.exists()
        tests.send_signal(signal.SIGKILL)

    def ended() -> bool:
        return not place.exists() or place.read_text().rpartition(")")[2].split()[0] == "Z"

    wait(ended, (), "its end", 20)

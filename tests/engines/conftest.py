"""Engines for the tests of this directory. In CI they must be there; elsewhere tests skip.

Beam's own FlinkRunner takes a jar that not everybody can have: without it tests skip in CI, too.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apache_beam
import pytest
from apache_beam.runners.portability.flink_runner import FlinkRunner
from apache_beam.runners.portability.prism_runner import PrismRunner
from apache_beam.runners.runner import PipelineRunner

from engines import prism
from engines.cache import UnavailableError
from engines.servers import Server
from tests.engines import flinkrunner
from tests.engines.flink import install
from tests.engines.flink.cluster import Cluster, Workers
from tests.engines.flink.runner import OnFlink
from tests.runners import Outcome, run

MOST_SECONDS = 300  # of a test that sends jobs to a server; they take 1 to 20
VARIABLE, SECRET = "COUNTING_SECRET", "0123456789abcdef" * 4

MISSING, FOUND = pytest.StashKey[list[str]](), pytest.StashKey[list[str]]()
FAULT = pytest.StashKey[str]()
KEYS = {"engines missing": MISSING, "engines found": FOUND}


@dataclass(frozen=True)
class Engine:
    """What pipelines run on.

    Args:
      name: for messages.
      runner: makes Beam's runner.
      flags: of every pipeline.
      command: further flags of a command that starts a process of its own.
      server: takes the jobs; without it each has a process of its own.
    """

    name: str
    runner: Callable[[], PipelineRunner]
    flags: tuple[str, ...]
    command: tuple[str, ...]
    server: Server | None = None

    def run(self, build: Any, *flags: str) -> Outcome:
        """`tests.runners.run` on it."""
        return run(build, self.runner(), (*self.flags, *flags))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A process of pytest-xdist says what it had."""
    if (output := getattr(session.config, "workeroutput", None)) is not None:
        for name, key in KEYS.items():
            output[name] = session.config.stash.get(key, [])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """The one that started the processes puts together what they had."""
    for name, key in KEYS.items():
        known = node.config.stash.setdefault(key, [])
        known += [
            said for said in getattr(node, "workeroutput", {}).get(name, []) if said not in known
        ]


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """The versions, and what is missing, below the results."""
    for missing in config.stash.get(MISSING, []):
        terminalreporter.write_line(f"tests/engines skipped tests: {missing}")
    found = config.stash.get(FOUND, [])
    if found:
        python = f"Beam {apache_beam.__version__}, Python {platform.python_version()}"
        terminalreporter.write_line("; ".join((python, *found)))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Get the engines that are asked for, or skip what needs them."""
    ours = [item for item in items if Path(__file__).parent in item.path.parents]
    if config.option.collectonly or not ours:
        return
    config.stash[MISSING], config.stash[FOUND] = [], []
    for item in ours:
        item.add_marker(pytest.mark.xdist_group(_group_of(item.nodeid)))
    for name, get, versions in (
        ("prism", prism.build, prism.versions),
        ("flink", install.classpath, install.versions),
        ("flinkrunner", flinkrunner.jar, flinkrunner.versions),
    ):
        wanted = [item for item in ours if name in item.nodeid]
        if not wanted:
            continue
        config.get_terminal_writer().line(f"{name}: looked for, and made if need be")
        try:
            get()
            config.stash[FOUND].append(versions())
        except (flinkrunner.JarError, UnavailableError) as missing:
            # A jar that is none is no reason to skip, nor is anything in CI but that there is none.
            must = bool(os.environ.get("CI")) and name != "flinkrunner"
            if must or isinstance(missing, flinkrunner.JarError):
                said = f"tests/engines must not skip in CI: {missing}" if must else str(missing)
                for item in wanted:
                    item.stash[FAULT] = said
                continue
            config.stash[MISSING].append(str(missing))
            for item in wanted:
                item.add_marker(pytest.mark.skip(str(missing)))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Without its engine a test fails, if it may not skip."""
    if FAULT in item.stash:
        pytest.fail(item.stash[FAULT], pytrace=False)


def _group_of(name: str) -> str:
    """Of two processes, one has Flink's cluster of the session; the other has half of the work."""
    return "flink" if "flink" in name and "test_flink_crash" not in name else "others"


@pytest.fixture(scope="session")
def binary() -> Path:
    """Prism."""
    return prism.location()


@pytest.fixture(scope="session")
def server(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One Prism for all tests."""
    log = tmp_path_factory.mktemp("prism") / "prism.log"
    with prism.server(binary, log) as running:
        yield running


@pytest.fixture(scope="session")
def job_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One job server of Beam's FlinkRunner for all tests."""
    work = tmp_path_factory.mktemp("job-server")
    with flinkrunner.server(flinkrunner.jar(), work) as running:
        yield running


@pytest.fixture(autouse=True)
def _within(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test fails where its jobs hang, and the next one finds its server anew."""
    with ExitStack() as limits:
        for name in ("engine", "on_prism"):
            if name in request.fixturenames:
                server: Server | None = request.getfixturevalue(name).server
                if server is not None:
                    limits.enter_context(server.within(MOST_SECONDS))
        yield


@pytest.fixture(scope="session")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    """Python workers for Flink, who know the secret."""
    with Workers(tmp_path_factory.mktemp("workers"), {VARIABLE: SECRET}) as pool:
        yield pool


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One Flink cluster for all tests."""
    with Cluster(tmp_path_factory.mktemp("flink"), restarts=1) as running:
        yield running


@pytest.fixture(scope="session")
def flink_alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One cluster for all jobs of Beam's FlinkRunner, which bring their own Beam."""
    work = tmp_path_factory.mktemp("flink-alone")
    with Cluster(work, restarts=1, classpath=install.libraries()) as running:
        yield running


@pytest.fixture(scope="session")
def on_prism(server: Server, binary: Path) -> Engine:
    """Prism, with workers in this process."""
    started = "--runner", "PrismRunner", "--prism_location", str(prism.launcher(binary))
    return Engine("prism", PrismRunner, (f"--job_endpoint={server.endpoint}",), started, server)


def on_flink(master: str, parallelism: int, workers: Workers) -> Engine:
    """Flink at this address, with Python workers outside."""
    flags = f"--flink_master={master}", f"--parallelism={parallelism}", *workers.flags
    runner = "--runner", f"{OnFlink.__module__}.{OnFlink.__name__}"
    return Engine("flink", OnFlink, flags, (*runner, *flags))


def on_flinkrunner(server: Server, master: str, parallelism: int, *more: str) -> Engine:
    """Beam's own runner, with the Flink at this address."""
    flags = (*flinkrunner.flags(server, master, parallelism), *more)
    started = "--runner", FlinkRunner.__name__, *flags
    return Engine("flinkrunner", FlinkRunner, flags, started, server)


# A job with a Flink of its own takes 8 s to start one, and then runs as on a cluster: CI has two.
FLINK_LOCAL = pytest.param("flink-local", marks=pytest.mark.exhaustive)


# Of the session, so that all tests of one engine follow each other. Other combinations of what
# FlinkRunner is given are in test_flinkrunner.py.
@pytest.fixture(
    scope="session",
    params=["prism", FLINK_LOCAL, "flink-cluster", "flinkrunner-local", "flinkrunner-cluster"],
)
def engine(request: pytest.FixtureRequest) -> Engine:
    """Each engine in turn."""
    if request.param == "prism":
        found: Engine = request.getfixturevalue("on_prism")
        return found
    if request.param == "flinkrunner-local":
        return on_flinkrunner(
            request.getfixturevalue("job_server"), "[local]", 1, *flinkrunner.LOOPBACK
        )
    workers = request.getfixturevalue("workers")
    if request.param == "flinkrunner-cluster":
        address = f"localhost:{request.getfixturevalue('flink_alone').rest}"
        server = request.getfixturevalue("job_server")
        return on_flinkrunner(server, address, 2, *workers.flags, *flinkrunner.CHECKPOINTS)
    if request.param == "flink-local":
        return on_flink("[local]", 1, workers)
    return on_flink(f"localhost:{request.getfixturevalue('cluster').rest}", 2, workers)

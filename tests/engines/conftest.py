"""Engines for the tests of this directory. In CI they must be there; elsewhere tests skip."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apache_beam
import pytest
from apache_beam.runners.portability.flink_runner import FlinkRunner
from apache_beam.runners.portability.prism_runner import PrismRunner
from apache_beam.runners.runner import PipelineRunner

from engines import alone, flinkrunner, prism
from engines.cache import UnavailableError
from engines.flink import install
from engines.flink.cluster import Cluster, Workers
from engines.flink.runner import OnFlink
from tests.runners import Outcome, run

MOST_SECONDS = 300  # of a test, on Prism
VARIABLE, SECRET = "COUNTING_SECRET", "0123456789abcdef" * 4

MISSING, FOUND = pytest.StashKey[list[str]](), pytest.StashKey[list[str]]()
SERVERS = pytest.StashKey[list[prism.Server]]()


@dataclass(frozen=True)
class Engine:
    """What pipelines run on.

    Args:
      name: for messages.
      runner: makes Beam's runner.
      flags: of every pipeline.
      command: further flags of a command that starts a process of its own.
      streaming: further flags of streaming pipelines.
    """

    name: str
    runner: Callable[[], PipelineRunner]
    flags: tuple[str, ...]
    command: tuple[str, ...]
    streaming: tuple[str, ...] = ()

    def mode(self, path: str) -> tuple[str, ...]:
        """The flags of pipelines on this path: state takes Flink's streaming mode."""
        return ("--streaming", *self.streaming) if path == "streaming" else ()

    def run(self, build: Any, *flags: str) -> Outcome:
        """`tests.runners.run` on it."""
        return run(build, self.runner(), (*self.flags, *flags))


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
    _find_flinkrunner(config, [item for item in ours if "flinkrunner-" in item.nodeid])
    for name, get, versions in (
        ("prism", prism.build, prism.versions),
        ("flink", install.classpath, install.versions),
    ):
        wanted = [item for item in ours if name in item.nodeid]
        if not wanted:
            continue
        config.get_terminal_writer().line(f"{name}: looked for, and made if need be")
        try:
            get()
            config.stash[FOUND].append(versions())
        except UnavailableError as missing:
            if os.environ.get("CI"):
                pytest.exit(f"tests/engines must not skip in CI: {missing}", returncode=1)
            config.stash[MISSING].append(str(missing))
            for item in wanted:
                item.add_marker(pytest.mark.skip(str(missing)))


def _find_flinkrunner(config: pytest.Config, wanted: list[pytest.Item]) -> None:
    """Skip what needs it, in CI too: its jar is not to be had from package registries."""
    if not wanted:
        return
    try:
        found = flinkrunner.jar()
        if not alone.is_alone():
            raise UnavailableError(
                "FlinkRunner: only by python -m engines.alone, its ports are open"
            )
        config.stash[FOUND].append(f"FlinkRunner, by {found.name}")
    except UnavailableError as missing:
        config.stash[MISSING].append(str(missing))
        for item in wanted:
            item.add_marker(pytest.mark.skip(str(missing)))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Prism serves on: a pipeline that hangs fails, however long the tests before it took."""
    for server in item.config.stash.get(SERVERS, []):
        server.renew()


@pytest.fixture(scope="session")
def binary() -> Path:
    """Prism."""
    return prism.location()


@pytest.fixture(scope="session")
def server(
    binary: Path, tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[prism.Server]:
    """One Prism for all tests."""
    log = tmp_path_factory.mktemp("prism") / "prism.log"
    with prism.Server(binary, log, MOST_SECONDS) as running:
        pytestconfig.stash[SERVERS] = [running]
        yield running
        pytestconfig.stash[SERVERS] = []


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
def on_prism(server: prism.Server, binary: Path) -> Engine:
    """Prism, with workers in this process."""
    started = "--runner", "PrismRunner", "--prism_location", str(binary)
    return Engine("prism", PrismRunner, (f"--job_endpoint={server.endpoint}",), started)


def on_flink(master: str, parallelism: int, workers: Workers) -> Engine:
    """Flink at this address, with Python workers outside."""
    flags = f"--flink_master={master}", f"--parallelism={parallelism}", *workers.flags
    runner = "--runner", f"{OnFlink.__module__}.{OnFlink.__name__}"
    return Engine("flink", OnFlink, flags, (*runner, *flags))


@pytest.fixture(scope="session")
def on_flinkrunner_local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """Beam's own runner, with a Flink in its job server, and workers in this process."""
    with flinkrunner.JobServer("[local]", tmp_path_factory.mktemp("job-server")) as jobs:
        yield on_flinkrunner(jobs, "[local]", 1, ("--environment_type=LOOPBACK",))


@pytest.fixture(scope="session")
def on_flinkrunner_cluster(
    cluster: Cluster, workers: Workers, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engine]:
    """Beam's own runner, on the cluster, with Python workers outside."""
    master = f"http://localhost:{cluster.rest}"
    with flinkrunner.JobServer(master, tmp_path_factory.mktemp("job-server")) as jobs:
        yield on_flinkrunner(jobs, master, 2, workers.flags)


def on_flinkrunner(
    jobs: flinkrunner.JobServer, master: str, parallelism: int, workers: tuple[str, ...]
) -> Engine:
    """Beam's own runner, at this job server."""
    place = f"--job_endpoint={jobs.endpoint}", f"--flink_master={master}"
    flags = *place, f"--parallelism={parallelism}", *workers
    command = "--runner", "FlinkRunner", *flags
    return Engine("flinkrunner", FlinkRunner, flags, command, flinkrunner.STREAMING)


# Of the session, so that all tests of one engine follow each other.
@pytest.fixture(
    scope="session",
    params=["prism", "flink-local", "flink-cluster", "flinkrunner-local", "flinkrunner-cluster"],
)
def engine(request: pytest.FixtureRequest) -> Engine:
    """Each engine in turn."""
    if request.param in ("prism", "flinkrunner-local", "flinkrunner-cluster"):
        found: Engine = request.getfixturevalue(f"on_{request.param.replace('-', '_')}")
        return found
    workers = request.getfixturevalue("workers")
    if request.param == "flink-local":
        return on_flink("[local]", 1, workers)
    return on_flink(f"localhost:{request.getfixturevalue('cluster').rest}", 2, workers)

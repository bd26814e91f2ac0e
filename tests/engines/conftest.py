"""Prism for the tests of this directory. In CI it must be there; elsewhere they skip."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from apache_beam.runners.portability.prism_runner import PrismRunner

from tests.engines import prism
from tests.runners import Outcome, run

# All tests together take a minute.
MOST_SECONDS = 300

OnPrism = Callable[..., Outcome]


MISSING = pytest.StashKey[str]()


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """The versions, or what is missing, below the results."""
    if MISSING in config.stash:
        terminalreporter.write_line(f"tests/engines was skipped: {config.stash[MISSING]}")
    elif prism.location().exists():
        terminalreporter.write_line(prism.versions(prism.location()))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Build Prism, or skip the tests of this directory."""
    ours = [item for item in items if Path(__file__).parent in item.path.parents]
    if config.option.collectonly or not ours:
        return
    if shutil.which("go") and not prism.location().exists():
        config.get_terminal_writer().line("building Prism, which takes a minute or two")
    try:
        prism.build()
    except prism.UnavailableError as missing:
        if os.environ.get("CI"):
            pytest.exit(f"tests/engines must not skip in CI: {missing}", returncode=1)
        config.stash[MISSING] = str(missing)
        for item in ours:
            item.add_marker(pytest.mark.skip(str(missing)))


@pytest.fixture(scope="session")
def binary() -> Path:
    """Prism."""
    return prism.location()


@pytest.fixture(scope="session")
def server(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[prism.Server]:
    """One Prism for all tests."""
    log = tmp_path_factory.mktemp("prism") / "prism.log"
    with prism.Server(binary, log, MOST_SECONDS) as running:
        yield running


@pytest.fixture
def on_prism(server: prism.Server) -> OnPrism:
    """`tests.runners.run` on Prism, with workers in this process."""

    def run_it(build: Any, *flags: str) -> Outcome:
        return run(build, PrismRunner(), [f"--job_endpoint={server.endpoint}", *flags])

    return run_it

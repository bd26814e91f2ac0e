"""Beam's own FlinkRunner: its options, and its job server, whose jar $BEAM_FLINK_JOB_SERVER names.

A job server takes any number of jobs, for the Flink that each names: "[local]", a Flink inside the
job server, or a cluster's address. Its ports, those of artifacts and of LOOPBACK workers listen on
all interfaces, whatever their options say: see engines.loopback.
"""

from __future__ import annotations

import os
import re
import zipfile
from pathlib import Path

import apache_beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.flink_runner import FlinkJarJobServer

from engines.cache import UnavailableError
from engines.loopback import open_interfaces
from engines.servers import Server
from tests.engines.flink import install
from tests.engines.flink.cluster import OPENS

VARIABLE = "BEAM_FLINK_JOB_SERVER"
FLINK = install.VERSION.rpartition(".")[0]
DRIVER = "org/apache/beam/runners/flink/FlinkJobServerDriver.class"
PROPERTIES = "org/apache/beam/sdk/sdk.properties"

# Milliseconds. Checkpoints that cut through most bundles, and lose no results; the last option
# ends a bounded input, which would never end. Without --streaming there are no checkpoints.
CHECKPOINTS = (
    "--streaming",
    "--checkpointing_interval=200",
    "--finish_bundle_before_checkpointing",
    "--shutdown_sources_after_idle_ms=1000",
)
LOOPBACK = ("--environment_type=LOOPBACK",)  # workers in the submitter


class JarError(ValueError):
    """The variable names something else than a job server's jar."""


def jar() -> Path:
    """The jar that the variable names.

    Raises:
      UnavailableError: there is none, or more than loopback could reach what it runs.
      JarError: it is no job server for the Flink of our cluster.
    """
    given = os.environ.get(VARIABLE)
    if not given:
        name = f"beam-runners-flink-{FLINK}-job-server-{apache_beam.__version__}.jar"
        raise UnavailableError(f"Beam's FlinkRunner needs {VARIABLE}=FILE, such as {name}")
    path = Path(given).absolute()
    if not path.is_file():
        raise JarError(f"{VARIABLE} names {given!r}, which is no file")
    if not zipfile.is_zipfile(path):
        raise JarError(f"{VARIABLE} names {given!r}, which is no jar")
    with zipfile.ZipFile(path) as archive:
        if DRIVER not in archive.namelist():
            raise JarError(f"{VARIABLE} names {given!r}, which is no job server for Flink")
    named = re.search(r"flink-(\d+\.\d+)-job-server", path.name)
    if named and named[1] != FLINK:
        raise JarError(f"{VARIABLE} names {given!r}, for Flink {named[1]}: {FLINK} is needed")
    if others := open_interfaces():
        raise UnavailableError(
            f"Beam's FlinkRunner listens on all interfaces ({', '.join(others)}): give the tests "
            "loopback alone, by make test-engines or python -m engines.loopback COMMAND"
        )
    return path


def versions() -> str:
    """The job server's version of Beam, and its file, in one line."""
    path = jar()
    with zipfile.ZipFile(path) as archive:
        found = archive.read(PROPERTIES).decode() if PROPERTIES in archive.namelist() else ""
    version = re.search(r"^version=(\S+)", found, re.MULTILINE)
    return f"FlinkRunner of Beam {version[1] if version else '(unknown)'}, {path.name}"


def options(path: Path, work: Path, port: int, java: str = "java") -> list[str]:
    """Beam's options for a job server.

    Args:
      path: its jar.
      work: where artifacts go.
      port: of jobs.
      java: what runs it.
    """
    return [
        f"--flink_job_server_jar={path}",
        f"--artifacts_dir={work / 'artifacts'}",
        f"--job_port={port}",
        f"--job_server_java_launcher={java}",
        *(f"--job_server_jvm_properties={each}" for each in OPENS),
    ]


def server(path: Path, work: Path, java: str = "java") -> Server:
    """The job server, started as FlinkRunner starts it, but for all jobs to come."""

    def command(port: int) -> list[str]:
        given = PipelineOptions([*options(path, work, port, java), "--flink_master=[local]"])
        words, _ = FlinkJarJobServer(given).subprocess_cmd_and_endpoint()
        return [str(word) for word in words]

    work.mkdir(parents=True, exist_ok=True)
    return Server("Beam's job server for Flink", command, work / "job-server.log")


def flags(started: Server, master: str, parallelism: int) -> tuple[str, ...]:
    """Options of every job, for the Flink at this address: "[local]" or HOST:PORT."""
    return (
        f"--job_endpoint={started.endpoint}",
        f"--flink_master={master}",
        f"--parallelism={parallelism}",
    )

"""Beam's own FlinkRunner, where BEAM_FLINK_JOB_SERVER names its job server's jar.

The jar is Beam's `beam-runners-flink-2.0-job-server`: for the Flink that engines/flink gets.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Sequence
from pathlib import Path

from typing_extensions import Self

from engines.cache import UnavailableError
from engines.flink.cluster import Process, free_port, listening, wait

VARIABLE = "BEAM_FLINK_JOB_SERVER"
JAVA = ("java", "-Xmx1g", "-jar")


def jar() -> Path:
    """The jar.

    Raises:
      UnavailableError: none is named.
      ValueError: what is named is none.
    """
    named = os.environ.get(VARIABLE)
    if not named:
        raise UnavailableError(
            f"FlinkRunner: {VARIABLE} names no jar of Beam's job server for Flink 2.0"
        )
    path = Path(named)
    if not path.is_file() or not zipfile.is_zipfile(path):
        raise ValueError(f"{VARIABLE} is {named!r}, which is no jar: name a file, or unset it")
    return path.resolve()


class JobServer(Process):
    """Takes pipelines at `endpoint` while the block lasts.

    It listens on all interfaces: run it in a network of its own (engines/alone.py).

    Args:
      master: of the pipelines: "[local]" is a Flink in the job server, else http://HOST:PORT.
      work: where its log and the pipelines' files go; made if need be.
      command: what runs it, and is given Beam's arguments for it.
    """

    def __init__(self, master: str, work: Path, command: Sequence[str] = ()) -> None:
        self.port = free_port()
        work.mkdir(parents=True, exist_ok=True)
        words = {
            "--flink-master": master,
            "--job-host": "localhost",
            "--job-port": str(self.port),
            "--artifact-port": "0",
            "--expansion-port": "0",
            "--artifacts-dir": str(work / "artifacts"),
        }
        given = [word for pair in words.items() for word in pair]
        super().__init__([*(command or (*JAVA, str(jar()))), *given], work / "job-server.log")

    @property
    def endpoint(self) -> str:
        return f"localhost:{self.port}"

    def __enter__(self) -> Self:
        try:
            wait(lambda: listening(self.port), (self,), "the job server")
        except BaseException:
            self.kill()
            raise
        return self


# Of streaming pipelines: with checkpoints, without which nothing is to be learned of them here. The
# last is for bounded input, whose job would not end.
STREAMING = (
    "--checkpointing_interval=500",
    "--finish_bundle_before_checkpointing",
    "--shutdown_sources_after_idle_ms=2000",
)

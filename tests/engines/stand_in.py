"""Stands in for `java ... -jar JAR ...` with the jar of Beam's job server for Flink.

    python -m tests.engines.stand_in JVM_OPTIONS -jar JAR OPTIONS

takes the options that Beam's takes, and no others, and describes those of its pipelines; it listens
on all interfaces, as Beam's does. Jobs run on FnApiRunner, with the workers that they name: there
is no Flink. The command line and each job's options are a line of JSON each in artifacts.jsonl,
beside --artifacts-dir.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from apache_beam.portability.api import beam_job_api_pb2
from apache_beam.runners.job.utils import struct_to_dict
from apache_beam.runners.portability.local_job_service import LocalJobServicer
from apache_beam.utils.subprocess_server import pick_port

ROOT = Path(__file__).parents[2]
KINDS = beam_job_api_pb2.PipelineOptionType
# Those of FlinkPipelineOptions that Beam's Python asks the job server for.
DESCRIBED = {
    "checkpointing_interval": KINDS.INTEGER,
    "finish_bundle_before_checkpointing": KINDS.BOOLEAN,
    "shutdown_sources_after_idle_ms": KINDS.INTEGER,
    "max_bundle_size": KINDS.INTEGER,
    "flink_master": KINDS.STRING,  # which Python knows, too
}


class JobServer(LocalJobServicer):
    """Beam's own for its local runner, with a record of what it is asked for."""

    def __init__(self, record: Path) -> None:
        super().__init__()
        self._record = record

    def note(self, what: Any) -> None:
        with self._record.open("a") as file:
            print(json.dumps(what), file=file)

    def get_bind_address(self) -> str:
        return "0.0.0.0"

    def DescribePipelineOptions(self, *_: Any, **__: Any) -> Any:  # noqa: N802
        described = [
            beam_job_api_pb2.PipelineOptionDescriptor(name=name, type=kind, description="100% ours")
            for name, kind in DESCRIBED.items()
        ]
        return beam_job_api_pb2.DescribePipelineOptionsResponse(options=described)

    def create_beam_job(self, token: str, name: str, pipeline: Any, options: Any) -> Any:
        given = {
            option.removeprefix("beam:option:").removesuffix(":v1"): value
            for option, value in struct_to_dict(options).items()
        }
        environments = sorted({each.urn for each in pipeline.components.environments.values()})
        self.note({**given, "environments": environments})
        return super().create_beam_job(token, name, pipeline, options)


def main() -> None:
    """Serve until a signal."""
    words = sys.argv[1:]
    at = words.index("-jar")
    jvm, jar = words[:at], Path(words[at + 1])
    if not jar.is_file():
        sys.exit(f"Error: Unable to access jarfile {jar}")
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--flink-master", default="[auto]")
    parser.add_argument("--artifacts-dir", type=Path, required=True)
    parser.add_argument("--job-port", type=int, default=8099)
    parser.add_argument("--artifact-port", type=int, default=8098)
    parser.add_argument("--expansion-port", type=int, default=8097)
    given = parser.parse_args(words[at + 2 :])
    server = JobServer(given.artifacts_dir.with_suffix(".jsonl"))
    server.note({"jvm": jvm, "jar": str(jar), "options": words[at + 2 :]})
    signal.signal(signal.SIGINT, lambda *_: sys.exit(130))
    server.start_grpc_server(given.job_port or pick_port(None)[0])
    threading.Event().wait()


def script(place: Path) -> Path:
    """It as a command, to be run in place of java."""
    path = place / "java"
    command = f'exec env PYTHONPATH="{ROOT}" "{sys.executable}" -m {__spec__.name} "$@"'
    path.write_text(f"#!/bin/sh\n{command}\n")
    path.chmod(0o755)
    return path


def lines(artifacts: Path) -> list[dict[str, Any]]:
    """What was noted of the server with these artifacts: its command line, then each job."""
    record = artifacts.with_suffix(".jsonl")
    return [json.loads(line) for line in record.read_text().splitlines()]


if __name__ == "__main__":
    main()

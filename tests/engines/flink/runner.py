"""Runs Beam's pipelines on Flink, by PortablePipeline.java.

    python -m beam_dpcount count ... --runner tests.engines.flink.runner.OnFlink \
        --flink_master '[local]' --environment_type EXTERNAL --environment_config localhost:PORT

Options are Beam's own for its FlinkRunner: flink_master ("[local]" is a Flink in the submitter),
parallelism, checkpointing_interval, retain_externalized_checkpoints_on_cancellation,
max_bundle_size, max_bundle_time_mills, savepoint_path. Bundles end before a checkpoint in any case,
as on Beam's runner with finish_bundle_before_checkpointing. Without --streaming Flink runs in
batch, and takes no transform with state.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.coders.coders import serialize_coder
from apache_beam.coders.row_coder import RowCoder
from apache_beam.metrics.execution import MetricKey, MetricResult
from apache_beam.metrics.metric import MetricResults, MetricsFilter
from apache_beam.metrics.metricbase import MetricName
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions
from apache_beam.portability import common_urns, python_urns
from apache_beam.pvalue import PCollection
from apache_beam.runners.portability.portable_runner import PortableRunner
from apache_beam.runners.runner import PipelineResult, PipelineState
from apache_beam.transforms.core import Windowing
from apache_beam.transforms.window import GlobalWindows
from google.protobuf.wrappers_pb2 import BytesValue

from engines.servers import bound
from tests.engines.flink.cluster import java

LINES = "beam_dpcount:lines:v1"
OPTIONS = (
    *("parallelism", "checkpointing_interval", "max_bundle_size", "max_bundle_time_mills"),
    *("savepoint_path", "retain_externalized_checkpoints_on_cancellation"),
)


class Lines(beam.PTransform[Any, PCollection[bytes]]):
    """Lines "key,value,microseconds,row" of a directory's files, each in order; on Flink only.

    Args:
      directory: of the files, and of nothing else.
      late: milliseconds by which a line's time may lie before that of one above it.
      pace: microseconds between lines.
      slow_from: the row from which on each line takes a second more; none by default.
    """

    def __init__(self, directory: Path, late: int, pace: int, slow_from: int | None = None) -> None:
        super().__init__()
        slow = "" if slow_from is None else slow_from
        self._payload = f"{directory.resolve().as_uri()}\n{late}\n{pace}\n{slow}".encode()

    def expand(self, begin: Any) -> PCollection[bytes]:
        return PCollection(begin.pipeline, element_type=bytes, is_bounded=False)

    def get_windowing(self, inputs: Any) -> Windowing:
        return Windowing(GlobalWindows())

    def to_runner_api_parameter(self, _: Any) -> tuple[str, bytes]:
        return LINES, self._payload


class OnFlink(PortableRunner):
    """Flink, at `flink_master`, without a job server."""

    def run_pipeline(self, pipeline: beam.Pipeline, options: PipelineOptions) -> Running:
        # Beam's Python knows most of these only by asking the job server.
        given = options.get_all_options(retain_unknown_options=True)
        words = {"name": "test", **{name: given[name] for name in OPTIONS if given.get(name)}}
        master = given.get("flink_master") or "[local]"
        if master not in ("[local]", "[auto]"):
            words["rest"] = master.rpartition(":")[2]
        words["streaming"] = int(options.view_as(StandardOptions).streaming or False)
        environment = PortableRunner._create_environment(options)
        proto = pipeline.to_runner_api(default_environment=environment)
        for coder in proto.components.coders.values():
            if coder.spec.urn == common_urns.coders.ROW.urn:
                # Rows stay closed in Java: Flink's jar lacks the library that reads them.
                rows = RowCoder.from_payload(coder.spec.payload)
                opaque = BytesValue(value=serialize_coder(rows))
                coder.spec.urn = python_urns.PICKLED_CODER
                coder.spec.payload = opaque.SerializeToString()
        return Running(proto.SerializeToString(), words)


class Running(PipelineResult):
    """A job."""

    def __init__(self, pipeline: bytes, words: dict[str, Any]) -> None:
        super().__init__(PipelineState.RUNNING)
        self._scratch = tempfile.TemporaryDirectory()
        file, self._said = (Path(self._scratch.name, name) for name in ("pipeline", "said"))
        file.write_bytes(pipeline)
        given = [f"{name}={value}" for name, value in {**words, "pipeline": file}.items()]
        with self._said.open("wb") as out:
            self._process = subprocess.Popen(
                # Most jobs are too short for a compiler that takes its time.
                bound(
                    java("PortablePipeline", *given, jvm=["-Xmx512m", "-XX:TieredStopAtLevel=1"])
                ),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    def _lines(self) -> list[str]:
        return self._said.read_text(errors="replace").splitlines()

    def job_id(self) -> str | None:
        """Flink's name of it, once it has one."""
        for line in self._lines():
            if line.startswith("job "):
                return line.split()[1]
        return None

    @property
    def state(self) -> str:
        return str(self._state)

    def wait_until_finish(self, duration: int | None = None) -> str:
        """Until it ends, or `duration` milliseconds have passed.

        Raises:
          RuntimeError: it failed.
          subprocess.TimeoutExpired: it did not end in that time.
        """
        status = self._process.wait(None if duration is None else duration / 1000)
        self._state = PipelineState.DONE if status == 0 else PipelineState.FAILED
        if status:
            # The innermost cause, with a Python worker's own words, is the last.
            cause = "\n".join(self._lines()).rpartition("Caused by: ")[2]
            raise RuntimeError(f"the job on Flink failed: {cause[:20_000]}")
        return self.state

    def cancel(self) -> str:
        self._process.kill()
        self._process.wait()
        self._state = PipelineState.CANCELLED
        return self.state

    def metrics(self) -> Counters:
        """Counters, once it has ended."""
        lines = (line.split(" ") for line in self._lines() if line.startswith("counter "))
        return Counters({(namespace, name): int(value) for _, namespace, name, value in lines})


class Counters(MetricResults):
    """The counters of the pipeline's own code, by namespace and name."""

    def __init__(self, found: dict[tuple[str, str], int]) -> None:
        self._found = found

    def query(self, filter: MetricsFilter | None = None) -> dict[str, list[Any]]:
        keys = {MetricKey("", MetricName(*name)): value for name, value in self._found.items()}
        counters = [
            MetricResult(key, value, value)
            for key, value in keys.items()
            if self.matches(filter, key)
        ]
        return {self.COUNTERS: counters, self.DISTRIBUTIONS: [], self.GAUGES: []}

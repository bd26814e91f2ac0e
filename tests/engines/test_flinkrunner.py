"""What leads to Beam's own FlinkRunner, tried out without its jar.

In place of the jar is a program that takes the same arguments and serves Beam's job API, by Beam's
own service for local jobs: it runs pipelines by FnApiRunner. So all is run here but the jar itself.
"""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

import beam_dpcount as dp
from engines import flinkrunner
from engines.cache import UnavailableError
from tests.engines.conftest import on_flinkrunner
from tests.engines.counts import BUDGET
from tests.runners import Row, feed, run
from tests.scripted import ScriptedEntropy

STAND_IN = """
import json, sys
from apache_beam.runners.portability.local_job_service_main import run

words = dict(zip(sys.argv[2::2], sys.argv[3::2]))
with open(sys.argv[1], "w") as file:
    json.dump(words, file)
run(["--job_port", words["--job-port"]])
"""


@pytest.mark.parametrize("path", ["bounded", "streaming"])
def test_pipelines_go_to_the_job_server(path: str, tmp_path: Path) -> None:
    given, work = tmp_path / "given.json", tmp_path / "work"
    command = [sys.executable, "-c", STAND_IN, str(given)]
    rows: list[Row] = [("x", n % 2, n * 1_000_000) for n in range(30)]
    made = dp.PrefixCount(BUDGET, 60, path=path, entropy=ScriptedEntropy())

    def build(pipeline: beam.Pipeline) -> object:
        return pipeline | feed(rows) | made

    with flinkrunner.JobServer("[local]", work, command) as jobs:
        engine = on_flinkrunner(jobs, "[local]", 1, ("--environment_type=LOOPBACK",))
        assert engine.run(build, *engine.mode(path)).outputs == run(build).outputs
    words = json.loads(given.read_text())
    assert words["--flink-master"] == "[local]"
    assert words["--job-port"] == str(jobs.port)
    assert not jobs.running()


def test_flags_are_those_that_lose_no_results(tmp_path: Path) -> None:
    """Our transforms refuse checkpoints without the second one."""
    options = PipelineOptions(["--streaming", *flinkrunner.STREAMING])
    known = options.get_all_options(retain_unknown_options=True)
    assert known["finish_bundle_before_checkpointing"] in (True, "True", None, "")
    pipeline = beam.Pipeline(runner="FlinkRunner", options=options)
    events = pipeline | feed([("x", 1, 0)])
    with pytest.warns(dp.RunnerWarning):
        _ = events | dp.PrefixCount(BUDGET, 60, path="streaming")


def test_a_jar_that_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(flinkrunner.VARIABLE, raising=False)
    with pytest.raises(UnavailableError, match="BEAM_FLINK_JOB_SERVER names no jar"):
        flinkrunner.jar()
    text, archive = tmp_path / "text.jar", tmp_path / "archive.jar"
    text.write_text("none")
    for path in (text, tmp_path / "absent.jar", tmp_path):
        monkeypatch.setenv(flinkrunner.VARIABLE, str(path))
        with pytest.raises(ValueError, match="is no jar: name a file, or unset it"):
            flinkrunner.jar()
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr("META-INF/MANIFEST.MF", "")
    monkeypatch.setenv(flinkrunner.VARIABLE, str(archive))
    assert flinkrunner.jar() == archive.resolve()


def test_a_job_server_that_ends_says_why(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import sys; sys.exit('no port was free')"]
    with (
        pytest.raises(RuntimeError, match=r"a process ended(.|\n)*no port was free"),
        flinkrunner.JobServer("[local]", tmp_path, command),
    ):
        pass

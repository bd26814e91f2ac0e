"""The pipeline: a growing log to private releases, on Prism.

    python -m examples.live.count DIR --seen FILE

counts the log of the run that lives in DIR, from its start, and appends all releases to FILE.
Under one secret and run id they are the same each time, to the last bit.
"""

from __future__ import annotations

import argparse
import math
import secrets
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.prism_runner import PrismRunner

import beam_dpcount as dp
from engines import prism
from examples.live.settings import ENDS, Home, Settings, append, end_with_input
from examples.live.source import TailLog


def aggregate(settings: Settings, key_file: Path) -> dp.TickCount:
    """What is counted, and for whom."""
    return dp.TickCount(
        dp.ApproxDP(settings.epsilon, settings.delta),
        dp.Clock(settings.tick, start=settings.start, ticks=settings.horizon),
        [
            dp.Count(),
            dp.People(),
            dp.Mean("latency", 0, 2),
            dp.Quantiles("latency", 0.01, 10, [0.95], scale="log"),
            dp.Mean("failed", 0, 1, unit=1),
        ],
        keys=settings.services,
        users=dp.Users("person", settings.events, per_key=settings.per_key),
        path="streaming",
        entropy=dp.ReplayableEntropy(key_file=key_file, run_id=settings.run_id),
    )


class Keep(beam.DoFn):
    """Appends releases to a file, which is on disk before the bundle is done.

    Args:
      seen: the file. In it stands which key fired first at a tick, which may depend on the data:
        publish what `publish.py` makes of it, not this.
      life: names this run of the pipeline, of those over the same log.
    """

    def __init__(self, seen: str, life: str) -> None:
        self._seen, self._life = seen, life

    def start_bundle(self) -> None:
        self._lines: list[dict[str, Any]] = []

    def process(self, release: dp.TickRelease) -> None:
        given = {name: value for name, value in release._asdict().items() if name != "restart"}
        shown = {name: _plain(value) for name, value in given.items()}
        self._lines.append({"life": self._life, **shown})

    def finish_bundle(self) -> None:
        if self._lines:
            append(Path(self._seen), self._lines, mode=0o600)


def _plain(value: Any) -> Any:
    """As JSON has it, which has no number without an end."""
    if isinstance(value, str | int):
        return value
    if isinstance(value, Mapping):
        value = value.values()
    return [None if isinstance(x, float) and not math.isfinite(x) else x for x in value]


def run(home: Home, seen: Path, endpoint: str) -> None:
    """Count the log of a run until its clock ends, by a Prism at this endpoint."""
    settings, life = home.load(), f"{time.time_ns()}-{secrets.token_hex(4)}"
    flags = ["--streaming", f"--job_endpoint={endpoint}", "--environment_type=LOOPBACK"]
    with beam.Pipeline(PrismRunner(), PipelineOptions(flags)) as pipeline:
        requests = pipeline | "Log" >> TailLog(str(home.log), settings.stop * 1000)
        releases = requests | "Releases" >> aggregate(settings, home.key_file)
        _ = releases | "Keep" >> beam.ParDo(Keep(str(seen), life))


def main(argv: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="Count the log of a run, from its start.")
    parser.add_argument("directory", type=Path, help="where the run lives")
    parser.add_argument("--seen", type=Path, required=True, help="releases are appended to it")
    parser.add_argument("--end-with-input", action="store_true", help=ENDS)
    options = parser.parse_args(argv)
    home, binary = Home(options.directory), prism.build()
    with prism.server(binary, home.messages("prism")) as server:
        if options.end_with_input:
            end_with_input(server.stop)
        run(home, options.seen, server.endpoint)


if __name__ == "__main__":
    main()

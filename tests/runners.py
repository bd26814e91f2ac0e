"""One pipeline on several runners, and what came out of it."""

from __future__ import annotations

import pickle
import tempfile
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.metrics.metric import MetricsFilter
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.direct.direct_runner import BundleBasedDirectRunner
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from apache_beam.runners.runner import PipelineRunner
from apache_beam.testing import test_stream
from apache_beam.transforms import environments
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.timestamp import Timestamp

RUNNERS: dict[str, Callable[[], PipelineRunner]] = {
    "fn": FnApiRunner,
    "bundles": BundleBasedDirectRunner,
    # The one that encodes what it sends to its worker: it finds faults of coders.
    "grpc": lambda: FnApiRunner(
        default_environment=environments.EmbeddedPythonGrpcEnvironment.default()
    ),
}

PATHS = ("bounded", "streaming")

each_path = pytest.mark.parametrize("path", PATHS)
# The bundle-based runner ends before it fires timers, if its watermark jumps to the end; that pair
# is tested with streams whose watermark moves.
RUN_AT_ONCE = [
    (r, path) for r in RUNNERS for path in PATHS if (r, path) != ("bundles", "streaming")
]
each_runner_and_path = pytest.mark.parametrize(("runner", "path"), RUN_AT_ONCE)

SECOND = 1_000_000
# Key, payload, time in microseconds: of an event, before it is an element of a pipeline.
Row = tuple[Any, Any, int]


def feed(rows: Iterable[Row], element_type: Any = tuple[str, Any]) -> beam.PTransform:
    """Rows as timestamped elements, in this order."""
    stamped: Any = beam.Map(
        lambda row: TimestampedValue((row[0], row[1]), Timestamp(micros=row[2]))
    ).with_output_types(element_type)
    # A reshuffle, Create's default, would mix up the order of arrival.
    return "Feed" >> beam.Create(list(rows), reshuffle=False) | "Stamp" >> stamped


def stream(*parts: Any, element_type: Any = tuple[str, Any]) -> Any:
    """An unbounded source: rows, and whole seconds to which the watermark advances."""
    source = test_stream.TestStream()
    for part in parts:
        if isinstance(part, tuple):
            key, payload, micros = part
            source.add_elements([TimestampedValue((key, payload), Timestamp(micros=micros))])
        else:
            source.advance_watermark_to(part)
    source = source.advance_watermark_to_infinity()
    return "Stream" >> source | "Typed" >> beam.Map(lambda e: e).with_output_types(element_type)


@dataclass(frozen=True)
class Seen:
    """An element that came out, the time stamped on it, in microseconds, and its window."""

    value: Any
    micros: int
    window: str


class _Keep(beam.DoFn):
    """Writes what it sees to a file a bundle; a bundle that fails leaves nothing behind."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def start_bundle(self) -> None:
        self._seen: list[Seen] = []

    def process(
        self,
        element: Any,
        timestamp: Any = beam.DoFn.TimestampParam,
        window: Any = beam.DoFn.WindowParam,
    ) -> None:
        self._seen.append(Seen(element, timestamp.micros, str(window)))

    def finish_bundle(self) -> None:
        Path(self._directory, uuid.uuid4().hex).write_bytes(pickle.dumps(self._seen))


@dataclass(frozen=True)
class Outcome:
    """What a pipeline gave, per output sorted by value, and its result."""

    outputs: list[list[Seen]]
    result: Any

    @property
    def releases(self) -> list[Any]:
        """The first output, sorted: by key, then by step."""
        return [seen.value for seen in self.outputs[0]]

    @property
    def rejected(self) -> list[Any]:
        """The second output, sorted."""
        return [seen.value for seen in self.outputs[1]]

    def metrics(self) -> dict[str, int]:
        """All counters that the pipeline's own code has counted."""
        return counters(self.result)


def counters(result: Any) -> dict[str, int]:
    """The counters in a pipeline's result, by name; not those of the runner itself."""
    found: dict[str, int] = {}
    for metric in result.metrics().query(MetricsFilter())["counters"]:
        # Prism lists its own, in this namespace, with no value.
        if metric.key.metric.namespace != "beam":
            name = metric.key.metric.name
            found[name] = found.get(name, 0) + (metric.result or 0)
    return found


def run(
    build: Callable[[beam.Pipeline], Any],
    runner: str | PipelineRunner = "fn",
    flags: Iterable[str] = (),
) -> Outcome:
    """What the collection, or tuple of collections, that `build` returns held in the end."""
    pipeline = beam.Pipeline(
        runner=RUNNERS[runner]() if isinstance(runner, str) else runner,
        options=PipelineOptions(list(flags)),
    )
    built = build(pipeline)
    collections = built if isinstance(built, tuple) else (built,)
    with tempfile.TemporaryDirectory() as scratch:
        directories = [Path(scratch, str(i)) for i in range(len(collections))]
        for i, (collection, directory) in enumerate(zip(collections, directories, strict=True)):
            directory.mkdir()
            # The reshuffle ends the stage, so that the outputs pass through their coder.
            keep = beam.ParDo(_Keep(str(directory)))
            _ = collection | f"Part{i}" >> beam.Reshuffle() | f"Keep{i}" >> keep
        result = pipeline.run()
        result.wait_until_finish()
        outputs = [_read(directory) for directory in directories]
    return Outcome(outputs, result)


def run_stream(count: Any, *parts: Any, windows: Any = None) -> Outcome:
    def build(pipeline: beam.Pipeline) -> Any:
        events = pipeline | stream(*parts)
        if windows is not None:
            events = events | beam.WindowInto(windows)
        return events | count

    return run(build, "bundles", ["--streaming"])


def _read(directory: Path) -> list[Seen]:
    seen = [item for file in directory.iterdir() for item in pickle.loads(file.read_bytes())]
    return sorted(seen, key=lambda item: (item.value, item.window))


def root(error: BaseException) -> BaseException:
    """The error that Beam wrapped."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def failure(build: Callable[[beam.Pipeline], Any], runner: str = "fn") -> BaseException:
    """The error that stops a pipeline."""
    with pytest.raises(Exception) as caught:
        run(build, runner)
    return root(caught.value)

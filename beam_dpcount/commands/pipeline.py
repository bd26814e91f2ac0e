"""How a task is counted by a Beam pipeline, on whatever runner."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.metrics.metric import Metrics
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions

import beam_dpcount as dp
from beam_dpcount.commands import stop
from beam_dpcount.commands.app import explain
from beam_dpcount.commands.files.formats import InputError, InputFile, Source
from beam_dpcount.commands.files.read import ReadEvents
from beam_dpcount.commands.files.tables import Output, Target, schema_of
from beam_dpcount.commands.files.write import WriteRows, WriteTable
from beam_dpcount.commands.options import unknown_argument
from beam_dpcount.commands.progress import Progress, counted
from beam_dpcount.dofns.elements import PAST_HORIZON
from beam_dpcount.transforms.runners import check_name

if TYPE_CHECKING:
    from beam_dpcount.commands.task import Task

# A pipeline without --runner runs here. Beam's own default may first try to download a runner.
LOCAL_RUNNER = "FnApiRunner"
_LOCAL = (LOCAL_RUNNER, "DirectRunner", "BundleBasedDirectRunner")
_REJECTED = (("file", str), ("row", int), ("reason", str))


class Pipeline:
    """The lane of rows: each is an element, whatever the options are.

    Args:
      flags, names: as for `beam_options`.
      why: columns do not suffice.
    """

    def __init__(self, flags: Sequence[str], names: Collection[str], why: str) -> None:
        self.says = f"rows are counted one by one, by a Beam pipeline ({why})"
        self._flags, self._names = flags, names
        FileSystems.set_options(beam_options(flags, names))  # some need them even to list files

    def prepare(
        self, task: Task, source: Source, files: Sequence[InputFile], transform: Any
    ) -> None:
        """Builds the pipeline up to the releases, and has the task take over what counts them."""
        options = task.options
        self._pipeline = beam.Pipeline(options=beam_options(self._flags, self._names))
        self._options, self._timed = options, source.timestamp is not None
        _check_timers(task, self._runner)
        events: Any = self._pipeline | "Read" >> ReadEvents(source, files)
        releases = events | "Count" >> transform
        task.use(transform)
        if options.rejected:
            releases, rejected = releases
            row = beam.Map(rejected_row).with_output_types(tuple[Any, ...])
            order = [name for name, _ in _REJECTED]
            target = Target(
                options.rejected, schema_of(_REJECTED), order, private=True, run=stop.RUN
            )
            _ = rejected | "RejectedRow" >> row | "WriteRejected" >> WriteRows(target)
        counting = beam.ParDo(CountReleases()).with_output_types(releases.element_type)
        self._releases = task.finish(releases | "Progress" >> counting)

    def write(self, output: Output) -> None:
        """Where the releases go."""
        _ = self._releases | "Write" >> WriteTable(output, self._timed)

    def run(self, progress: Progress) -> int:
        """Counts, and returns how many rows came past the horizon.

        If a value was refused, the error names its column.
        """
        if self._runner not in _LOCAL:
            stop.note("job", "the job itself may go on: look where it runs")
        options = self._options
        try:
            result = progress.watch(self._pipeline.run())
            result.wait_until_finish()
        except Exception as error:
            reason, remedy = explain(error), 'on_reject="drop"'  # remote workers send only text
            if options.on_reject == "raise" and remedy in reason:
                reason = reason.replace(remedy, "--on-reject drop")
                raise InputError(f"column {options.value!r}: {reason}") from None
            raise
        return counted(result, PAST_HORIZON)

    @property
    def _runner(self) -> str:
        return str(self._pipeline.options.view_as(StandardOptions).runner)


def _check_timers(task: Task, runner: str) -> None:
    """Raise InputError where the runner would fire no tick of a file."""
    streaming = getattr(task.options, "path", None) == "streaming"
    if streaming and not task.people_are_public and runner == "BundleBasedDirectRunner":
        raise InputError(
            "--path streaming fires no ticks of files on BundleBasedDirectRunner: leave --path or "
            "--runner out"
        )


def beam_options(flags: Sequence[str], names: Collection[str] = ()) -> PipelineOptions:
    """Beam's options from the flags that are not ours.

    Args:
      flags: what is left of the command line.
      names: our options, for hints.

    Raises:
      RunnerError: the runner breaks the guarantee.
      ValueError: a flag is unknown; not with remote runners, which have options of their own.
    """
    if any(flag.split("=", 1)[0] == "--dry_run" for flag in flags):
        raise ValueError("--dry_run is Beam's, and would count: give --dry-run")
    options = PipelineOptions(list(flags))
    standard = options.view_as(StandardOptions)
    standard.runner = standard.runner or LOCAL_RUNNER
    check_name(standard.runner)
    if standard.runner in _LOCAL:
        parsers: list[argparse.ArgumentParser] = []
        options.get_all_options(add_extra_args_fn=parsers.append)
        _, unknown = parsers[0].parse_known_args(flags)
        if unknown:
            both = [*names, *parsers[0]._option_string_actions]
            raise ValueError(unknown_argument(unknown[0], both, "ours and Beam's"))
    return options


def rejected_row(rejected: dp.Rejected) -> tuple[str, int | None, str]:
    """Where and why a row was rejected: file, row, reason; never what it held."""
    file, _, row = (rejected.id or "").rpartition(", row ")
    return file, int(row) if row else None, rejected.reason


class CountReleases(beam.DoFn):
    """Passes releases on, and counts them for `Progress`."""

    def __init__(self) -> None:
        self._counter = Metrics.counter("beam_dpcount", "releases")

    def start_bundle(self) -> None:
        self._pending = 0

    def process(self, release: Any) -> Iterator[Any]:
        self._pending += 1
        if self._pending == 1000:
            self.finish_bundle()
        yield release

    def finish_bundle(self) -> None:
        Progress.releases(self._pending)
        self._counter.inc(self._pending)
        self._pending = 0

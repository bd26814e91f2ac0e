"""Which runners pass, warn or are refused, and Flink's checkpoints that lose results."""

from __future__ import annotations

import importlib.util
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.io.restriction_trackers import OffsetRange, OffsetRestrictionTracker
from apache_beam.options.pipeline_options import DebugOptions, PipelineOptions
from apache_beam.runners.direct.direct_runner import BundleBasedDirectRunner, DirectRunner
from apache_beam.runners.direct.test_direct_runner import TestDirectRunner
from apache_beam.runners.portability.flink_runner import FlinkRunner
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from apache_beam.runners.portability.kafka_streams_runner import KafkaStreamsRunner
from apache_beam.runners.portability.portable_runner import PortableRunner
from apache_beam.runners.portability.prism_runner import PrismRunner
from apache_beam.runners.portability.spark_runner import SparkRunner
from apache_beam.runners.render import RenderRunner
from apache_beam.runners.runner import PipelineRunner
from apache_beam.runners.trivial_runner import TrivialRunner
from apache_beam.testing import test_stream

import beam_dpcount as dp
from beam_dpcount.commands import app as cli
from beam_dpcount.commands import count, graph, histogram, sequences, ticks
from beam_dpcount.transforms.runners import jumps_to_the_end, spreads_groups
from beam_dpcount.transforms.ticks import TickNumbers
from tests.command_lines import command
from tests.transforms import ALL

ROOT = Path(__file__).parents[1]
BUDGET = dp.ZCDP(0.5)
TRANSFORMS: dict[str, Callable[..., Any]] = {
    **ALL,
    "LocalConvexRisk": lambda **more: dp.local.LocalConvexRisk(
        BUDGET, 4, gradient=lambda x, points: points, **more
    ),
}
each = pytest.mark.parametrize("name", TRANSFORMS)


def standing_in(path: str, base: type[PipelineRunner]) -> type[PipelineRunner]:
    """A class by the name of one of Beam's that takes what is not installed."""
    module, _, name = path.rpartition(".")
    assert importlib.util.find_spec(module) is not None
    return type(name, (base,), {"__module__": module})


DaskRunner = standing_in("apache_beam.runners.dask.dask_runner.DaskRunner", BundleBasedDirectRunner)
DataflowRunner = standing_in(
    "apache_beam.runners.dataflow.dataflow_runner.DataflowRunner", PipelineRunner
)


class Notebook(PipelineRunner):
    """As Beam's InteractiveRunner, which takes IPython, holds what it runs on."""

    def __init__(self, underlying: PipelineRunner) -> None:
        self._underlying_runner = underlying


class Patched(FnApiRunner):
    """Somebody's own, made of a tested one, as DaskRunner is."""


class OfCompany(PortableRunner):
    """Somebody's own, of Beam's portable kind."""


class Other(PipelineRunner):
    """Somebody's own."""


def applied(name: str, runner: Any, flags: Any = (), times: int = 1, **more: Any) -> beam.Pipeline:
    """A pipeline, not run, in which a transform is applied; or one such after the other."""
    options = flags if isinstance(flags, PipelineOptions) else PipelineOptions(list(flags))
    pipeline = beam.Pipeline(runner=runner, options=options)
    elements = pipeline | beam.Create([0.5 if name.startswith("Local") else ("a", 1)])
    elements |= beam.Map(lambda element: element).with_output_types(Any)
    for i in range(times):
        _ = elements | f"Count{i}" >> TRANSFORMS[name](**more)
    return pipeline


# Runners


@pytest.mark.parametrize(
    "runner",
    [
        *(FnApiRunner, BundleBasedDirectRunner, DirectRunner, TestDirectRunner, PrismRunner),
        RenderRunner,
    ],
)
def test_tested_runners_pass(runner: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", dp.errors.RunnerWarning)
        pipeline = applied("PrefixCount", runner())
    assert not spreads_groups(pipeline)


def test_a_pipeline_without_a_runner_has_beams_own() -> None:
    assert not spreads_groups(applied("TickCount", None))


@each
def test_dask_is_refused(name: str) -> None:
    with pytest.raises(
        dp.errors.RunnerError, match=r"DaskRunner mixes the outputs.*allow_runner=True"
    ):
        applied(name, DaskRunner())


@each
@pytest.mark.parametrize("runner", [Other, Patched, TrivialRunner])
def test_unknown_runners_are_refused(name: str, runner: Any) -> None:
    with pytest.raises(
        dp.errors.RunnerError, match=f"^{runner.__name__} was not tested.*allow_runner"
    ):
        applied(name, runner())


@each
@pytest.mark.parametrize("runner", [DaskRunner, Other, PortableRunner])
def test_allow_runner(name: str, runner: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", dp.errors.RunnerWarning)
        pipeline = applied(name, runner(), allow_runner=True)
    assert not spreads_groups(pipeline)


def test_a_refused_runner_uses_no_share() -> None:
    ledger = dp.Ledger(BUDGET, "all")
    made = dp.PrefixCount(ledger.share(1, "counts"), 8)
    for runner in (Other(), FnApiRunner()):
        pairs = beam.Pipeline(runner=runner) | beam.Create([("a", 1)])
        if isinstance(runner, Other):
            with pytest.raises(dp.errors.RunnerError):
                _ = pairs | made
        else:
            _ = pairs | made


@pytest.mark.parametrize(
    "runner", [FlinkRunner, PortableRunner, SparkRunner, KafkaStreamsRunner, OfCompany]
)
@pytest.mark.parametrize("name", ["PrefixCount", "TickCount", "LocalMedian"])
def test_portable_runners_warn_once_a_pipeline(name: str, runner: Any) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        pipeline = applied(name, runner(), times=3)
    (said,) = [str(w.message) for w in caught if w.category is dp.errors.RunnerWarning]
    assert ("finish_bundle_before_checkpointing" in said) == (runner is FlinkRunner)
    assert said.startswith(f"{runner.__name__} was not tested")
    assert "\n" not in said
    assert spreads_groups(pipeline) == (runner in (FlinkRunner, SparkRunner))


def test_dataflow_warns() -> None:
    pipeline = beam.Pipeline(runner="FnApiRunner")
    pipeline.runner = DataflowRunner()  # Beam makes none without an account
    pairs = pipeline | beam.Create([("a", 1)])
    with pytest.warns(dp.errors.RunnerWarning, match="^DataflowRunner was not tested"):
        _ = pairs | dp.PrefixCount(BUDGET, 8)
    assert spreads_groups(pipeline)


def test_notebooks_warn_of_what_they_run_on() -> None:
    with pytest.warns(dp.errors.RunnerWarning, match="spends the budget again"):
        pipeline = applied("PrefixCount", Notebook(DirectRunner()))
    assert not spreads_groups(pipeline)
    with pytest.raises(dp.errors.RunnerError, match="DaskRunner mixes"):
        applied("PrefixCount", Notebook(DaskRunner()))
    with pytest.raises(dp.errors.RunnerError, match="loses results"):
        applied("PrefixCount", Notebook(FlinkRunner()), ["--checkpointing_interval=10"])


# Flink's checkpoints

EVERY, FINISH = "checkpointing_interval", "finish_bundle_before_checkpointing"


class Typed(PipelineOptions):
    """Options of the user's that declare Flink's; set below, as Beam knows all that exist."""


LOSING: dict[str, Callable[[], PipelineOptions]] = {
    "one word": lambda: PipelineOptions([f"--{EVERY}=1000"]),
    "two words": lambda: PipelineOptions([f"--{EVERY}", "1000"]),
    "dashes": lambda: PipelineOptions(["--checkpointing-interval=1000"]),
    "dictionary": lambda: PipelineOptions.from_dictionary({EVERY: 1000}),
    "keyword": lambda: PipelineOptions([], **{EVERY: 1000}),
    "last one": lambda: PipelineOptions([f"--{EVERY}=0", f"--{EVERY}=5"]),
    "false": lambda: PipelineOptions([f"--{EVERY}=1000", f"--{FINISH}=false"]),
    "not true": lambda: PipelineOptions.from_dictionary({EVERY: 1000, FINISH: False}),
    # Beam drops what it does not know.
    "flag with dashes": lambda: PipelineOptions(
        [f"--{EVERY}=1000", "--finish-bundle-before-checkpointing"]
    ),
}
SAFE: dict[str, Callable[[], PipelineOptions]] = {
    "no checkpoints": lambda: PipelineOptions(["--streaming", "--parallelism=2"]),
    "off": lambda: PipelineOptions([f"--{EVERY}", "-1"]),
    "zero": lambda: PipelineOptions([f"--{EVERY}=0"]),
    "flag": lambda: PipelineOptions([f"--{EVERY}=1000", f"--{FINISH}"]),
    "flag first": lambda: PipelineOptions([f"--{FINISH}", f"--{EVERY}", "1000"]),
    "true": lambda: PipelineOptions([f"--{EVERY}=1000", f"--{FINISH}=true"]),
    "dictionary": lambda: PipelineOptions.from_dictionary({EVERY: 1000, FINISH: True}),
    "keyword": lambda: PipelineOptions([], **{EVERY: 1000, FINISH: True}),
    "no number": lambda: PipelineOptions([f"--{EVERY}=often"]),  # Beam says so
}


@each
def test_checkpoints_without_the_flag_are_refused(name: str) -> None:
    for more in ({}, {"allow_runner": True}):
        with pytest.raises(dp.errors.RunnerError, match=f"loses results.*--{FINISH}"):
            applied(name, FlinkRunner(), [f"--{EVERY}=1000"], **more)


@pytest.mark.parametrize("runner", [FlinkRunner, PortableRunner, OfCompany])
@pytest.mark.parametrize("spelling", LOSING)
def test_checkpoints_in_all_spellings(spelling: str, runner: Any) -> None:
    with pytest.raises(dp.errors.RunnerError, match=f"--{FINISH}"):
        applied("PrefixCount", runner(), LOSING[spelling](), allow_runner=True)


@pytest.mark.parametrize("spelling", SAFE)
def test_no_checkpoints_or_safe_ones_pass(spelling: str) -> None:
    applied("PrefixCount", FlinkRunner(), SAFE[spelling](), allow_runner=True)


@pytest.mark.parametrize("runner", [FnApiRunner, PrismRunner, SparkRunner])
def test_other_runners_know_no_such_checkpoints(runner: Any) -> None:
    applied("PrefixCount", runner(), [f"--{EVERY}=1000"], allow_runner=True)


def test_options_that_declare_flinks(monkeypatch: pytest.MonkeyPatch) -> None:
    def declare(parser: Any) -> None:
        parser.add_argument(f"--{EVERY}", type=int)
        parser.add_argument(f"--{FINISH}", action="store_true")

    monkeypatch.setattr(Typed, "_add_argparse_args", classmethod(lambda _, p: declare(p)))
    with pytest.raises(dp.errors.RunnerError, match="loses results"):
        applied("PrefixCount", FlinkRunner(), [f"--{EVERY}=1000"])
    applied("PrefixCount", FlinkRunner(), [f"--{EVERY}=1000", f"--{FINISH}"], allow_runner=True)


def test_every_command_line_of_the_documents_has_the_flag() -> None:
    lines = 0
    for document in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        for block in re.findall(r"^```console\n(.*?)^```", document.read_text(), re.M | re.S):
            lines += f"--{EVERY}" in block
            assert (f"--{EVERY}" in block) == (f"--{FINISH}" in block), document
    assert lines


# Commands

MAINS = {"count": count, "ticks": ticks, "histogram": histogram, "sequences": sequences}
WORDS: dict[str, tuple[object, ...]] = {
    "count": ("--key", "key", "--where", "what=a", "--horizon", 9),
    "ticks": (
        *("--key", "key", "--keys", "k", "--timestamp", "at", "--tick", 1),
        *("--start", 0, "--horizon", 3),
    ),
    "histogram": ("--key", "key", "--item", "what", "--domain", "a", "b", "--horizon", 9),
    "sequences": (
        *("--key", "key", "--letter", "what", "--domain", "a", "b"),
        *("--max-length", 1, "--horizon", 9),
    ),
    "graph": ("--edge", "key", "what", "--vertices", 3, "--what", "edges", "--horizon", 9),
}


@pytest.mark.parametrize(
    "runner", ["DaskRunner", "dask", "apache_beam.runners.dask.dask_runner.DaskRunner"]
)
@pytest.mark.parametrize("name", WORDS)
def test_commands_refuse_dask_in_one_line(name: str, runner: str, tmp_path: Path) -> None:
    source, output = tmp_path / "in.csv", tmp_path / "out.csv"
    source.write_text("key,what,at\nk,a,0\n")
    main = {**MAINS, "graph": graph}[name].main
    words = "--input", source, "--output", output, "--rho", 0.5, "--runner", runner
    ended = command(*words, *WORDS[name], main=main)
    assert ended.status == 2
    assert ended.err.startswith("error: DaskRunner mixes the outputs of a step")
    assert ended.err.count("\n") == 1
    assert not output.exists()


def test_commands_warn_in_one_line() -> None:
    text = cli.format_warning(
        dp.errors.RunnerWarning("SparkRunner was not"), dp.errors.RunnerWarning, "f.py", 1
    )
    assert text == "warning: SparkRunner was not\n"
    other = cli.format_warning(UserWarning("other"), UserWarning, "f.py", 1)
    assert other.startswith("f.py:1: UserWarning: other")


# The end of bounded input


class Offsets(beam.transforms.core.RestrictionProvider):
    """None that matter."""

    def create_tracker(self, restriction: Any) -> Any:
        return OffsetRestrictionTracker(restriction)

    def initial_restriction(self, element: Any) -> Any:
        return OffsetRange(0, 1)

    def restriction_size(self, element: Any, restriction: Any) -> Any:
        return 1


class Endless(beam.DoFn):
    """Of which Beam knows that it may never end; it is not run."""

    @beam.DoFn.unbounded_per_element()
    def process(self, element: Any, at: Any = beam.DoFn.RestrictionParam(Offsets())) -> Any:
        yield element


@pytest.mark.parametrize(
    ("runner", "jumps"),
    [
        (FnApiRunner, True),
        (PrismRunner, True),
        (DirectRunner, True),
        (BundleBasedDirectRunner, False),
        (FlinkRunner, False),
        (PortableRunner, False),
    ],
)
def test_which_runners_jump_to_the_end_of_bounded_input(runner: Any, jumps: bool) -> None:
    pipeline = beam.Pipeline(runner=runner(), options=PipelineOptions([]))
    first = pipeline | beam.Create([1])
    two = first | beam.Partition(lambda one, n: one % n, 2)
    assert jumps_to_the_end(two | beam.Flatten()) is jumps


def test_none_jumps_to_the_end_of_what_only_says_that_it_is_bounded() -> None:
    pipeline = beam.Pipeline(runner=FnApiRunner())
    assert not jumps_to_the_end(pipeline | test_stream.TestStream().advance_watermark_to_infinity())
    endless: Any = beam.ParDo(Endless())
    tagged = pipeline | beam.Create([1]) | endless.with_outputs("tagged", main="main")
    assert not jumps_to_the_end(tagged.main)
    other = tagged.tagged | beam.Map(str)
    assert other.is_bounded  # Beam's mistake
    assert not jumps_to_the_end(other)


@pytest.mark.parametrize("given", [[], ["--experiments=mine"]])
def test_prism_is_kept_from_splitting_bundles_of_state(given: list[str]) -> None:
    """It would hand one key to two workers; bounded counts keep no state."""
    known = {flag.partition("=")[2] for flag in given}
    for runner, splits in (("PrismRunner", True), ("DirectRunner", True), ("FnApiRunner", False)):
        for path in ("streaming", "bounded"):
            clock: dict[str, Any] = {"tick": 9, "start": 0, "stop": 90, "keys": ["k"], "path": path}
            people = dp.Users(str, 1, per_key=1)
            for made in (
                dp.PrefixCount(BUDGET, 9, path=path),
                TickNumbers(BUDGET, **clock, value=str, users=people),
                dp.BoundUsers(people, {"mine": TickNumbers(BUDGET, **clock, value=str)}),
            ):
                pipeline = beam.Pipeline(runner, options=PipelineOptions(given))
                _ = pipeline | beam.Create([("k", 1)]) | made
                found = {*(pipeline.options.view_as(DebugOptions).experiments or [])}
                more = {"prism_disable_sdf_split"} if splits and path == "streaming" else set()
                assert found - {"beam_fn_api"} == known | more, (runner, path, made)


@pytest.mark.parametrize("workers", [0, 2])
def test_state_on_several_local_workers_is_refused(workers: int) -> None:
    """There a state is stepped from twice; bounded counts keep none."""
    flags = [f"--direct_num_workers={workers}"]
    for runner in ("FnApiRunner", "DirectRunner"):
        for path, refused in (("streaming", True), ("bounded", False)):
            pipeline = beam.Pipeline(runner, options=PipelineOptions(flags))
            events = pipeline | beam.Create([("k", 1)])
            count = dp.PrefixCount(dp.ZCDP(0.5), 9, path=path, allow_runner=True)
            if refused:
                with pytest.raises(dp.errors.RunnerError, match="direct_num_workers"):
                    _ = events | count
            else:
                _ = events | count

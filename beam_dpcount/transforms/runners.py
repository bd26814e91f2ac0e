"""Which of Beam's runners keep the guarantee: tested ones pass, others warn or are refused.

Only the runner of the pipeline in which a transform is applied can be seen: not one that the
pipeline is handed to later, nor that of an expansion for another language.
"""

from __future__ import annotations

import warnings
from argparse import ArgumentError
from contextlib import suppress
from typing import Any
from weakref import WeakSet

from apache_beam.options.pipeline_options import DebugOptions, DirectOptions, PipelineOptions
from apache_beam.pipeline import Pipeline
from apache_beam.pvalue import PCollection

from beam_dpcount.errors import RunnerError, RunnerWarning

# By their classes in Beam: DirectRunner is another name of SwitchingDirectRunner.
LOCAL = frozenset(
    ("FnApiRunner", "BundleBasedDirectRunner", "SwitchingDirectRunner", "TestDirectRunner")
) | {"PrismRunner"}
_HARMLESS = LOCAL | {"RenderRunner"}  # which draws a pipeline, and runs nothing
# Of bounded input. The one that works by bundles does so before timers fire.
_JUMPING = LOCAL - {"BundleBasedDirectRunner", "TestDirectRunner"}
_SHARING = frozenset(("FnApiRunner", "SwitchingDirectRunner"))
_PRISM = frozenset(("PrismRunner", "SwitchingDirectRunner"))  # which may take Prism
_UNSPLIT = "prism_disable_sdf_split"
_SPREADING = frozenset(("DataflowRunner", "FlinkRunner", "SparkRunner"))
_WITHOUT_FLINK = ("PrismRunner", "SparkRunner", "KafkaStreamsRunner")

_DASK = (
    "DaskRunner mixes the outputs of a step, so that rejected elements hold releases and exact "
    "values, and loses timestamps, so that ticks count nothing"
)
_UNKNOWN = (
    "{name} was not tested, and the guarantee rests on a runner that keeps outputs, state and "
    "event times apart"
)
_REMEDY = (
    ": take one that docs/engines.md lists, such as FnApiRunner, or make the transform with "
    "allow_runner=True"
)
_UNTESTED = "{name} was not tested with these transforms: read docs/engines.md first"
_FLINK = (
    ", and where the cluster's own configuration turns checkpoints on, give "
    "--finish_bundle_before_checkpointing"
)
_INTERACTIVE = (
    "InteractiveRunner may run a count again when results are shown: each run draws new noise and "
    "spends the budget again; it also keeps private input in its cache"
)
_LOST = (
    "Beam's runner for Flink loses results when a checkpoint cuts through a bundle: with "
    "--checkpointing_interval give --finish_bundle_before_checkpointing, too (docs/engines.md)"
)
_INTERVAL, _FINISHED = "checkpointing_interval", "finish_bundle_before_checkpointing"

_warned: WeakSet[Pipeline] = WeakSet()


def check_runner(pipeline: Pipeline, allowed: bool) -> None:
    """Refuse a runner, or warn of it once a pipeline, unless `allowed`.

    Options under which Flink loses results are refused in any case.
    """
    runner = _underlying(pipeline.runner)
    kinds = _kinds(runner)
    if "PortableRunner" in kinds and kinds[0] not in _WITHOUT_FLINK:
        _check_checkpoints(pipeline.options)
    if allowed:
        return
    if "DaskRunner" in kinds:
        raise RunnerError(_DASK + _REMEDY)
    name, tested = type(runner).__name__, _is_one_of(_HARMLESS, runner)
    if not tested and not {"PortableRunner", "DataflowRunner"}.intersection(kinds):
        raise RunnerError(_UNKNOWN.format(name=name) + _REMEDY)
    if runner is not pipeline.runner:
        _warn(pipeline, _INTERACTIVE)
    elif not tested:
        _warn(pipeline, _UNTESTED.format(name=name) + _FLINK * ("FlinkRunner" in kinds))


def check_workers(pipeline: Pipeline) -> None:
    """Refuse state on several local workers, whatever is allowed; and keep Prism from splitting.

    Beam hands bundles of one key to several of them, each with a cache of its own: a state is
    stepped from twice, with new noise, and steps are released again.

    Prism splits a bundle that is slow, of state and timers too, and hands a key whose elements lie
    on both sides to two workers at once: they come in another order, more of a person's events
    count than may, and ticks fire twice. An experiment of its own turns that off.
    """
    runner = _underlying(pipeline.runner)
    if _is_one_of(_PRISM, runner):
        pipeline.options.view_as(DebugOptions).add_experiment(_UNSPLIT)
    workers = pipeline.options.view_as(DirectOptions).direct_num_workers
    if workers != 1 and _is_one_of(_SHARING, runner):
        raise RunnerError(
            f"with --direct_num_workers={workers} Beam's local runners lose the state of a key "
            "between workers, and steps are released twice: leave the option out, or count on "
            'path="bounded"'
        )


def check_name(name: str) -> None:
    """Raise RunnerError for the name of a runner that is refused, before anything loads it."""
    if name.rpartition(".")[2].lower() in ("dask", "daskrunner"):
        raise RunnerError(_DASK + _REMEDY)


def spreads_groups(pipeline: Pipeline) -> bool:
    """Whether the runner spreads groups over workers, so that outputs have no order."""
    return _is_one_of(_SPREADING, _underlying(pipeline.runner))


def jumps_to_the_end(events: PCollection[Any]) -> bool:
    """Whether the runner is a local one whose watermark jumps to the end of this input at once.

    For a tagged output Beam says that it is bounded, whatever it comes from: all before it count.
    """
    seen, ahead = set[PCollection[Any]](), [events]
    while ahead:
        one = ahead.pop()
        if one in seen:
            continue
        seen.add(one)
        made = one.producer
        outputs = made.outputs.values() if made is not None else ()
        if not all(getattr(other, "is_bounded", True) for other in (one, *outputs)):
            return False
        ahead += made.inputs if made is not None else ()
    return _is_one_of(_JUMPING, _underlying(events.pipeline.runner))


def _is_one_of(names: frozenset[str], runner: object) -> bool:
    """Itself, not a subclass: DaskRunner is a BundleBasedDirectRunner."""
    kind = type(runner)
    return kind.__name__ in names and _is_beams(kind)


def _kinds(runner: object) -> list[str]:
    """The names of a runner's classes in Beam, nearest first; none of them is imported here."""
    return [kind.__name__ for kind in type(runner).__mro__ if _is_beams(kind)] or [""]


def _is_beams(kind: type) -> bool:
    return kind.__module__.startswith("apache_beam.runners.")


def _underlying(runner: object) -> Any:
    """What a notebook's runner runs on; others themselves."""
    return getattr(runner, "_underlying_runner", runner)


def _warn(pipeline: Pipeline, text: str) -> None:
    if pipeline not in _warned:
        _warned.add(pipeline)
        warnings.warn(text, RunnerWarning, stacklevel=2)


def _check_checkpoints(options: PipelineOptions) -> None:
    """Refuse options that turn Flink's checkpoints on, but lack the one that keeps results."""
    given = options.get_all_options(add_extra_args_fn=_add_flinks, retain_unknown_options=True)
    try:
        interval = int(given.get(_INTERVAL) or 0)
    except ValueError:  # Beam refuses it
        return
    if interval > 0 and str(given.get(_FINISHED)).lower() != "true":
        raise RunnerError(_LOST)


def _add_flinks(parser: Any) -> None:
    """Options that Beam's Python only knows from a job server."""
    # Beam drops the one spelled with dashes: it must not pass for the other.
    dashed = _FINISHED.replace("_", "-")
    for name, more in (
        (_INTERVAL, {}),
        (_FINISHED, {"nargs": "?", "const": "true"}),
        (dashed, {"nargs": "?", "const": "true", "dest": f"dropped_{_FINISHED}"}),
    ):
        with suppress(ArgumentError):  # some options of the user's declare it
            parser.add_argument(f"--{name}", **more)

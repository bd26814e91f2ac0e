"""How transforms check their arguments and input, and choose a path."""

from __future__ import annotations

from typing import Any

import apache_beam as beam
from apache_beam import typehints
from apache_beam.pvalue import PCollection
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from apache_beam.transforms import window as windows
from apache_beam.transforms.core import Windowing
from apache_beam.transforms.trigger import AccumulationMode, DefaultTrigger
from apache_beam.transforms.window import TimestampCombiner

from beam_dpcount.dofns.intake import NOT_PAIRS
from beam_dpcount.dofns.rows import TO_PAIRS, RowElementError, is_row_type

MERGING_WINDOWS = (
    "{windows} merges windows, and where merged ones end depends on the data: use the global "
    "window or FixedWindows"
)
SEVERAL_WINDOWS = (
    "{windows} may put an element into several windows, each of which would spend the budget "
    "again: use the global window or FixedWindows"
)
BOUNDED_PATH = (
    'path="bounded" on an unbounded input would release steps again, with new noise, each time a '
    'trigger fires: use path="auto" or path="streaming"'
)


def par_do(dofn: beam.DoFn, output: object) -> beam.PTransform[Any, Any]:
    """A ParDo of elements of this type: Beam does not say its own types."""
    applied: beam.PTransform[Any, Any] = beam.ParDo(dofn).with_output_types(output)
    return applied


def check_windows(elements: PCollection[object]) -> None:
    """Refuse windows that would spend one event's budget more than once, or depend on data."""
    function = elements.windowing.windowfn
    if function.is_merging():
        raise ValueError(MERGING_WINDOWS.format(windows=type(function).__name__))
    if isinstance(function, windows.GlobalWindows | windows.FixedWindows):
        return
    if isinstance(function, windows.SlidingWindows) and function.size <= function.period:
        return
    raise ValueError(SEVERAL_WINDOWS.format(windows=type(function).__name__))


def check_pairs(elements: PCollection[Any], of_pairs: bool = False) -> None:
    """Refuse elements whose declared type cannot be a pair with a str key.

    `of_pairs`: values are edges. Edges without a key are refused: a vertex would be taken for it.
    """
    declared: Any = elements.element_type
    if declared in (None, typehints.Any):
        return
    if is_row_type(declared):
        raise RowElementError(TO_PAIRS)
    types: tuple[Any, ...] = getattr(declared, "tuple_types", ())
    if of_pairs and types[1:] in ((str,), (int,)):
        raise TypeError(
            f"elements must be (key, (u, v)) pairs, but they are {declared}: give edges a key, "
            'e.g. with beam.Map(lambda edge: ("graph", edge))'
        )
    if len(types) == 2 and types[0] not in (str, typehints.Any):
        remedy = "add beam.MapTuple(lambda key, value: (str(key), value)) before"
        raise TypeError(NOT_PAIRS.format(found=f"keys are {types[0]}: {remedy}"))
    if isinstance(declared, type) and not issubclass(declared, tuple):
        remedy = "add beam.Map(lambda element: (key, number)) before"
        raise TypeError(NOT_PAIRS.format(found=f"they are {declared}: {remedy}"))


def use_streaming(elements: PCollection[object], path: str) -> bool:
    """Whether to count element by element in state, rather than grouped by key."""
    if path == "bounded" and not elements.is_bounded:
        raise ValueError(BOUNDED_PATH)
    return path == "streaming" or not elements.is_bounded


def once_per_window(made: PCollection[Any], function: Any) -> PCollection[Any]:
    """Declare what was just made, in these windows, so that a grouping of it fires once in each.

    A second firing would release steps again, with new noise. A group's time is that of its first
    element: by default it is the end of its window, so releases with earlier times would be late,
    and lost in the next grouping by windows. Windows are not assigned anew: a time that was cut to
    milliseconds may lie outside its window.

    Where it is this machine's FnApiRunner that groups, for which nothing of bounded input is late,
    the global window keeps Beam's own defaults: for others that runner takes 100 microseconds a
    key.
    """
    if type(function) is windows.GlobalWindows and type(made.pipeline.runner) is FnApiRunner:
        made._windowing = Windowing(function)
        return made
    discarding, first = AccumulationMode.DISCARDING, TimestampCombiner.OUTPUT_AT_EARLIEST
    # As Beam's own Reshuffle does.
    made._windowing = Windowing(function, DefaultTrigger(), discarding, first)
    return made


def in_windows(released: PCollection[Any] | None, function: Any) -> None:
    """Declare default windowing after `once_per_window`: groupings downstream are the user's."""
    if released is not None:
        released._windowing = Windowing(function)

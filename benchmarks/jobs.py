"""What measurements and tests share: a transform's DoFns by themselves, keys of events, memory."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Iterator
from typing import Any

import apache_beam as beam
from apache_beam.internal import pickler

FLAT = 0.02  # growth of memory that counts as none

_PAGE = 4096


def dofns_of(transform: Any, apply: Callable[[Any, Any], Any] = operator.or_) -> dict[type, Any]:
    """The DoFns of an applied transform, as a worker gets them: pickled and unpickled."""
    found: dict[type, Any] = {}

    class Collect(beam.pipeline.PipelineVisitor):
        def visit_transform(self, node: Any) -> None:
            if isinstance(node.transform, beam.ParDo):
                fn = node.transform.fn
                found[type(fn)] = pickler.loads(pickler.dumps(fn))

    # Not one that takes many timers at once: they run on engines of our own.
    pipeline = beam.Pipeline(runner="BundleBasedDirectRunner")
    created = beam.Create([("", (0, 0))]).with_output_types(tuple[str, tuple[int, int]])
    _ = apply(pipeline | created, transform)
    pipeline.visit(Collect())
    return found


def resident(pid: int | str = "self") -> float:
    """The resident memory of a process, in MB."""
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * _PAGE / 1e6


def order(events: int, keys: int, skewed: bool) -> Iterator[int]:
    """The numbers of the events' keys."""
    # The first events are one for every key: what comes after needs no memory for new ones.
    chance = random.Random(1)
    for n in range(1, events + 1):
        if n <= keys:
            yield n - 1
        else:
            yield 0 if skewed and n % 2 else chance.randrange(keys)

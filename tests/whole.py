"""All that a run shows, but for the values of its releases: what neighbours must have in common.

To what `side_doors` sees it adds: in which order releases come, what the graph says of itself,
DoFns as they are once they have worked, files that are left behind, and errors.
"""

from __future__ import annotations

import base64
import bz2
import pickle
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.internal import pickler

from tests.side_doors import SECRET, Outside, is_ours, listening, outside, plain, public

Build = Callable[[beam.Pipeline], dict[str, Any]]


@dataclass(frozen=True)
class Whole:
    """What is seen.

    Fields:
      outside: of a run that ended well: releases, metrics, logs, warnings and what is printed.
      order: releases as they came, without values, by collection.
      graph: of each step, its name, annotations and display data.
      dofns: each that worked, pickled after the run; or why it cannot be.
      files: left in the directory of temporary files: names, and what is in them.
      error: what an error, and those that led to it, say; and what was logged of it by us.
    """

    outside: Outside | None
    order: dict[str, list[Any]]
    graph: list[tuple[str, str, str]]
    dofns: list[tuple[str, bytes]]
    files: list[tuple[str, bytes]]
    error: list[str]


def whole(build: Build, capfd: pytest.CaptureFixture[str], streaming: bool = False) -> Whole:
    """Run a pipeline, and look at everything."""
    graph: list[tuple[str, str, str]] = []
    with tempfile.TemporaryDirectory() as scratch, temporary() as left, worked() as dofns:

        def watched(pipeline: beam.Pipeline) -> dict[str, Any]:
            made = build(pipeline)
            for number, (name, releases) in enumerate(made.items()):
                Path(scratch, str(number)).touch()
                note = _InOrder(str(Path(scratch, str(number))))
                _ = releases | f"In order: {name}" >> beam.ParDo(note)
            graph.extend(described(pipeline))
            names.extend(made)
            return made

        names: list[str] = []
        seen, error = None, []
        with listening() as records:
            try:
                seen = outside(watched, capfd, streaming)
            except Exception as raised:
                error = [*texts_of(raised), *(r.getMessage() for r in records if is_ours(r))]
        order = {name: _read(Path(scratch, str(number))) for number, name in enumerate(names)}
        pickled = sorted((type(fn).__qualname__, _pickled(fn)) for fn in dofns)
        files = [
            (path.name, path.read_bytes()) for path in sorted(left.rglob("*")) if path.is_file()
        ]
    found = Whole(seen, order, graph, pickled, files, error)
    assert not [name for name, data in (*pickled, *files) if SECRET.encode() in data]
    assert SECRET not in "".join([*error, str(graph)])
    return found


def texts_of(error: BaseException | None) -> list[str]:
    """What an error and those that led to it say."""
    if error is None:
        return []
    said = [re.sub(r"ptransform-\d+", "#", plain(t)) for t in (str(error), repr(error.args))]
    return [*said, *texts_of(error.__cause__), *texts_of(error.__context__)]


class _InOrder(beam.DoFn):
    """Appends all of a release but its value to a file, as it comes."""

    def __init__(self, path: str) -> None:
        self._path = path

    def process(
        self,
        release: Any,
        timestamp: Any = beam.DoFn.TimestampParam,
        window: Any = beam.DoFn.WindowParam,
    ) -> None:
        with open(self._path, "ab") as file:
            pickle.dump((public(release), timestamp.micros, str(window)), file)


def _read(path: Path) -> list[Any]:
    with path.open("rb") as file:
        found = []
        while True:
            try:
                found.append(pickle.load(file))
            except EOFError:
                return found


def described(pipeline: beam.Pipeline) -> Iterator[tuple[str, str, str]]:
    """All steps of a pipeline's graph, but for the one that holds the input."""
    for step in pipeline.to_runner_api().components.transforms.values():
        if not step.unique_name.startswith(("Feed", "Create")):
            said = sorted(step.annotations.items()), sorted(map(str, step.display_data))
            annotations, shown = (plain(str(part)) for part in said)
            yield step.unique_name, annotations, shown


def _pickled(fn: beam.DoFn) -> bytes:
    """A DoFn that has worked, as Beam pickles it, if it can be."""
    try:
        return bz2.decompress(base64.b64decode(pickler.dumps(fn)))
    except TypeError as error:  # it holds what no one can, so that nobody gets it
        return str(error).encode()


@contextmanager
def temporary() -> Iterator[Path]:
    """A directory of its own for temporary files."""
    with tempfile.TemporaryDirectory() as directory:
        before, tempfile.tempdir = tempfile.tempdir, directory
        try:
            yield Path(directory)
        finally:
            tempfile.tempdir = before


@contextmanager
def worked() -> Iterator[list[beam.DoFn]]:
    """DoFns that workers are given, but Beam's own and those that only look."""
    found: list[beam.DoFn] = []
    loads = pickler.loads

    def noted(*given: Any, **options: Any) -> Any:
        made = loads(*given, **options)
        first = made[0] if isinstance(made, tuple) and made else made
        if isinstance(first, beam.DoFn) and not type(first).__module__.startswith(
            ("apache_beam", __name__, "tests.runners")
        ):
            found.append(first)
        return made

    pickler.loads = noted
    try:
        yield found
    finally:
        pickler.loads = loads

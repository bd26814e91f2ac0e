"""The way of one thing through the code is straight: few climbs, and no file entered all the time.

A walk is the calls, in their order, of functions of this package that are handed the thing itself,
and, where it is kept in the meantime, those that lead to its use, each from within the one before.
A call of another file than the last one is a move; a move to a file of a room further up, a climb.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils import windowed_value

import beam_dpcount as dp
from beam_dpcount.commands import count, graph, histogram, sequences, ticks
from beam_dpcount.dofns.elements import CountEachElement
from beam_dpcount.noise.entropy import SystemEntropy
from benchmarks.cells import Cell

PACKAGE = Path(dp.__file__).parent
ROOMS = (
    *(
        "checks.py",
        "reading.py",
        "noise",
        "budget",
        "mechanisms",
        "counters",
        "statistics",
        "dofns",
    ),
    *("plans", "lanes", "transforms", "local", "commands"),
)
CLIMBS, AGAIN = 2, 3


def walk(run: Callable[[], Any], thing: Any, used_by: str | None = None) -> list[str]:
    """The files of the package that a thing comes through; repeats left out.

    Args:
      run: what sends it on its way.
      thing: of which kind of argument: a type, or a very object.
      used_by: the name of the function by which it is used in the end, after it was kept.
    """
    handed: list[str] = []
    leading: list[str] = []

    def is_it(given: Any) -> bool:
        return isinstance(given, thing) if isinstance(thing, type) else given is thing

    def watch(frame: Any, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call":
            return
        count = code.co_argcount + code.co_kwonlyargcount
        if any(is_it(frame.f_locals.get(name)) for name in code.co_varnames[:count]):
            handed.extend(place(code))
        if code.co_name == used_by:
            leading.clear()
            while frame is not None:
                leading.extend(place(frame.f_code))
                frame = frame.f_back

    sys.setprofile(watch)
    try:
        run()
    finally:
        sys.setprofile(None)
    assert leading or used_by is None
    return [file for file, _ in groupby([*handed, *reversed(leading)])]


def place(code: Any) -> list[str]:
    """The file of some code in a list, from the package; of other code, none."""
    inside = code.co_filename.startswith(str(PACKAGE))
    return [str(Path(code.co_filename).relative_to(PACKAGE))] if inside else []


def floor(file: str) -> int:
    return ROOMS.index(Path(file).parts[0])


def climbs(files: list[str]) -> int:
    return sum(floor(after) > floor(before) for before, after in pairwise(files))


def check(files: list[str]) -> None:
    """Raise AssertionError unless the way is straight."""
    assert files
    assert climbs(files) <= CLIMBS, files
    file, visits = Counter(files).most_common(1)[0]
    assert visits - 1 <= AGAIN, (file, files)


def count_one(transform: dp.PrefixCount) -> list[Any]:
    """Apply a transform, and give its streaming DoFn one element."""
    pipeline = beam.Pipeline("FnApiRunner")
    _ = pipeline | beam.Create([("k", 1)]) | transform
    (dofn,) = dofns_of(pipeline, CountEachElement)
    dofn.setup()
    element = windowed_value.create(("k", 1), 0, (GlobalWindow(),))
    return list(CountEachElement.process(dofn, element.value, element, Cell()))


def dofns_of(pipeline: beam.Pipeline, kind: type) -> list[Any]:
    found = []

    class Visitor(beam.pipeline.PipelineVisitor):
        def visit_transform(self, node: Any) -> None:
            dofn = getattr(node.transform, "fn", None)
            if isinstance(dofn, kind):
                found.append(dofn)

    pipeline.visit(Visitor())
    return found


def test_the_way_of_value_to_the_release() -> None:
    def amount(x: int) -> int:
        return x

    released: list[Any] = []

    def run() -> None:
        released.extend(count_one(dp.PrefixCount(dp.ZCDP(1), 9, value=amount, path="streaming")))

    files = walk(run, amount, "amount")
    assert [release.step for release in released] == [1]
    check(files)
    assert files[-3:] == ["dofns/elements.py", "dofns/intake.py", "reading.py"]


def test_the_way_of_entropy_to_the_draw() -> None:
    entropy = SystemEntropy()

    def run() -> None:
        count_one(dp.PrefixCount(dp.ZCDP(1), 9, entropy=entropy, path="streaming"))

    files = walk(run, entropy, "one")
    check(files)
    assert files[-1] == "noise/entropy.py"


COUNTING = ("--epsilon", "0.5", "--horizon", "9", "--output", "out.csv", "--input", "in.csv")
COMMANDS = (count, ticks, histogram, sequences, graph)
MAINS = {module.__name__.rpartition(".")[2]: module.main for module in COMMANDS}
LINES = {
    "count": "--key k --value v --bounds 0 2 --timestamp t",
    "ticks": "--key k --keys a b --timestamp t --tick 1 --start 0",
    "histogram": "--item v --domain 1 2",
    "sequences": "--letter v --domain 1 2 --max-length 2",
    "graph": "--what edges --edge v t --vertices 9",
}


@pytest.mark.pipeline
@pytest.mark.parametrize(
    "name",
    [
        "count",
        "ticks",
        *(
            pytest.param(name, marks=pytest.mark.exhaustive)
            for name in ("histogram", "sequences", "graph")
        ),
    ],
)
def test_the_way_of_a_command_line(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is options from its first step on."""
    monkeypatch.chdir(tmp_path)
    Path("in.csv").write_text("k,v,t\na,1,1\nb,2,3\na,2,4\n")
    check(walk(lambda: MAINS[name]([*LINES[name].split(), *COUNTING]), argparse.Namespace))
    assert Path("out.csv").exists()


def test_a_way_that_is_not_straight_is_seen() -> None:
    check(["transforms/a.py", "dofns/b.py", "noise/c.py"])
    for bad in (
        ["noise/a.py", "dofns/b.py"] * 3,  # three climbs
        ["commands/a.py", "commands/b.py"] * 5,
        [],
    ):
        with pytest.raises(AssertionError):
            check(bad)

"""Whole outputs of neighbours are the same but for values, whatever streams Hypothesis makes up.

One harness for all transforms: see `tests/whole.py`. What one may meet is in `tests/hostile.py`.
"""

from __future__ import annotations

import csv
import itertools
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import apache_beam as beam
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import beam_dpcount as dp
from beam_dpcount.commands import COMMANDS
from tests.command_lines import command
from tests.each_command import KINDS, MAIN
from tests.hostile import (
    AFTER,
    BUDGET,
    EACH_ELEMENT,
    EACH_TICK,
    NAN,
    SELECTED,
    Odd,
    after,
    ticks,
)
from tests.runners import SECOND, Row, feed
from tests.scripted import ScriptedEntropy
from tests.side_doors import SECRET, _noted_updates, as_in_a_new_worker, is_ours, listening  # noqa: F401
from tests.whole import temporary, whole

WAYS = [
    ("bounded", "drop"),
    ("bounded", "collect"),
    ("streaming", "drop"),
    ("streaming", "collect"),
]
PATHS = ("bounded", "streaming")
# Of each transform, pairs of streams.
longer = pytest.mark.parametrize("pairs", [2, pytest.param(8, marks=pytest.mark.audit)])


pytestmark = pytest.mark.usefixtures("no_state_cache")


def for_pairs(pairs: int, made: st.SearchStrategy[Any], check: Callable[[Any], None]) -> None:
    """Check so many pairs of neighbours, the same ones each time."""
    quiet = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]
    phases = [Phase.explicit, Phase.generate]  # to shrink takes long: the pair is printed as it is
    options = settings(
        max_examples=pairs,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=quiet,
        phases=phases,
    )
    options(given(made)(lambda pair: check(pair)))()


@st.composite
def contents(draw: Any, name: str) -> tuple[list[Row], list[Row]]:
    """Streams of some keys, of which one element holds something else."""
    case = EACH_ELEMENT[name]
    known = [*case.usual, *case.others]
    one_of = st.integers(0, len(known) - 1)  # values may neither be compared nor hashed
    lengths = draw(st.lists(st.integers(1, 6), min_size=1, max_size=3))
    streams = [[known[draw(one_of)] for _ in range(length)] for length in lengths]
    touched = draw(st.integers(0, len(lengths) - 1))
    place = draw(st.integers(0, lengths[touched] - 1))
    others = [list(stream) for stream in streams]
    others[touched][place] = known[draw(one_of)]
    return rows_of(streams), rows_of(others)


def rows_of(streams: list[list[Any]]) -> list[Row]:
    return [
        (f"k{number}", x, i * SECOND)
        for number, stream in enumerate(streams)
        for i, x in enumerate(stream)
    ]


@st.composite
def presence(draw: Any, rows: list[Row], more: list[Row]) -> tuple[list[Row], list[Row]]:
    """Events at a clock, and the same with one more, anywhere among them."""
    known = [*rows, *more]
    chosen = draw(st.lists(st.integers(0, len(known) - 1), max_size=8))
    place = draw(st.integers(0, len(chosen)))
    extra = draw(st.integers(0, len(known) - 1))
    others = [*chosen[:place], extra, *chosen[place:]]
    return [known[i] for i in chosen], [known[i] for i in others]


@pytest.mark.pipeline
@longer
@pytest.mark.parametrize("name", EACH_ELEMENT)
def test_contents_of_elements(name: str, pairs: int, capfd: pytest.CaptureFixture[str]) -> None:
    def check(pair: tuple[list[Row], list[Row]]) -> None:
        def build(pipeline: beam.Pipeline, rows: list[Row]) -> dict[str, Any]:
            elements, made = pipeline | feed(rows), {}
            for path, rejects in WAYS:
                label = f"{path} {rejects}"
                count = EACH_ELEMENT[name].make(
                    path=path, on_reject=rejects, entropy=ScriptedEntropy()
                )
                releases = elements | label >> count
                made[label] = releases if rejects == "drop" else releases[0]
            return made

        one, other = (whole(lambda p, rows=rows: build(p, rows), capfd) for rows in pair)
        assert one.order["bounded drop"]
        assert one == other

    for_pairs(pairs, contents(name), check)


AT_TICKS = {**EACH_TICK, **{f"hidden keys, {name}": made for name, made in SELECTED.items()}}


@pytest.mark.long
@pytest.mark.pipeline
@longer
@pytest.mark.parametrize("name", AT_TICKS)
def test_presence_of_events(name: str, pairs: int, capfd: pytest.CaptureFixture[str]) -> None:
    make, rows, more = AT_TICKS[name]

    def check(pair: tuple[list[Row], list[Row]]) -> None:
        def build(pipeline: beam.Pipeline, rows: list[Row]) -> dict[str, Any]:
            events = pipeline | feed(rows, Any)
            return {path: events | path >> make(path=path) for path in PATHS}

        one, other = (whole(lambda p, rows=rows: build(p, rows), capfd) for rows in pair)
        assert bool(one.order["bounded"]) == (not name.startswith("hidden"))
        assert one == other

    for_pairs(pairs, presence(rows, more), check)


@pytest.mark.pipeline
@longer
@pytest.mark.parametrize("name", AFTER)
def test_what_comes_after(name: str, pairs: int, capfd: pytest.CaptureFixture[str]) -> None:
    """Contents are protected before it, and so after it."""
    values = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3)), min_size=1, max_size=6)

    def check(drawn: tuple[list[tuple[str, int]], int, int]) -> None:
        chosen, place, value = drawn
        place %= len(chosen)
        others = [*chosen[:place], (chosen[place][0], value), *chosen[place + 1 :]]

        def build(pipeline: beam.Pipeline, events: list[tuple[str, int]]) -> dict[str, Any]:
            rows = [(key, x, 7 * i * SECOND) for i, (key, x) in enumerate(events)]
            return {"": pipeline | feed(rows) | after(AFTER[name], "bounded")}

        one, other = (whole(lambda p, c=c: build(p, c), capfd) for c in (chosen, others))
        assert one == other

    for_pairs(pairs, st.tuples(values, st.integers(0, 5), st.integers(0, 3)), check)


@pytest.mark.pipeline
@pytest.mark.parametrize("path", PATHS)
def test_what_stops_a_pipeline_says_nothing_of_it(
    path: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """That it stops is seen; by what, is not."""
    bad = [NAN, None, SECRET, Odd()]
    seen = []
    for value in bad:
        rows: list[Row] = [("a", 1, SECOND), ("a", value, 5 * SECOND)]
        count = ticks(path=path, on_reject="raise")
        seen.append(whole(lambda p, r=rows, c=count: {"": p | feed(r, Any) | c}, capfd))
    assert seen[0].error
    assert seen[0].outside is None
    assert all(one.error == seen[0].error and one.files == seen[0].files for one in seen)


# Commands


BAD_CELLS = ("", "none", "nan", "1e999", "-5", '"a,b"', '"two\nlines"', SECRET)
# Of each command, options, and cells of the column that it protects; at a clock, whole rows.
LINES: dict[str, tuple[str, tuple[str, ...]]] = {
    "count": ("--value what --bounds 0 1", ("0", "1", *BAD_CELLS)),
    "histogram": ("--item what --domain a b", ("a", "b", *BAD_CELLS)),
    "sequences": ("--letter what --domain a b --max-length 2", ("a", "b", *BAD_CELLS)),
    "graph": ("--what edges --edge what other --vertices 4", ("0", "2", "3", "7", *BAD_CELLS)),
    "ticks": (
        "--tick 1 --start 0 --keys a b",
        ("a,0", "a,1", "b,3", "b,9", "a,-1", f"{SECRET},2", "c,2", '"two\nlines",1', ",1"),
    ),
}
# The other commands release nothing of rows, or all: which others there may be.
OTHERS = {"choose", "errors", "bounds", "account", "demo", "run"}  # run: one of them, from a plan


def written(name: str, rows: list[str], directory: Path) -> dict[str, Any]:
    """All that a run of a command shows: files byte by byte but for values, and what it says."""
    directory.mkdir()
    source, output = directory / "in.csv", directory / "out.csv"
    source.write_text("\n".join(["who,when,what,other", *rows, ""]), "utf-8")
    words = ["--key", "who", "--timestamp", "when", "--horizon", 4, *LINES[name][0].split()]
    words += ["--epsilon", 1, "--delta", 1e-6]
    as_in_a_new_worker()
    with temporary() as left, listening() as records:
        ended = command("--input", source, *words, "--output", output, main=MAIN[name])
        files = sorted(str(path.relative_to(left)) for path in left.rglob("*"))
    assert ended.status == 0, ended.err
    head, *lines = csv.reader(output.open(encoding="utf-8", newline=""))
    shown = [i for i, column in enumerate(head) if column not in KINDS[name].private]

    def said(text: str) -> str:
        """Without the directory, the time of the run, and how far a slow machine is."""
        text = re.sub(r"(?m)^[\d,]+ releases in .*\n", "", text.replace(str(directory), "#"))
        return re.sub(r"\d{4}-\d\d-\d\dT[\d:.+Z]+", "#", text)

    seen = {
        "head": head,
        "lines": [[cells[i] for i in shown] for cells in lines],
        "mode": output.stat().st_mode,
        "directory": sorted(path.name for path in directory.iterdir()),
        "beside": [said(p.read_text()) for p in sorted(directory.glob("*.json"))],
        "temporary": files,
        # The words of the last releases are shown, with bands.
        "out": re.sub(r"(?m)^ +\d+  .*$", "#", said(ended.out)),
        "err": said(ended.err),
        "logs": [said(record.getMessage()) for record in records if is_ours(record)],
    }
    assert SECRET not in str(seen)
    return seen


def numbered(rows: list[tuple[str, str]]) -> list[str]:
    return [f"{key},{i},{cell},1" for i, (key, cell) in enumerate(rows)]


def test_every_command_that_counts_is_in_the_table() -> None:
    assert {*LINES} == {*COMMANDS} - OTHERS


@pytest.mark.long
@pytest.mark.pipeline
@pytest.mark.parametrize("pairs", [3, pytest.param(15, marks=pytest.mark.audit)])
@pytest.mark.parametrize("name", LINES)
def test_commands(name: str, pairs: int, tmp_path: Path) -> None:
    numbers = itertools.count()
    cells = st.sampled_from(LINES[name][1])

    def check(drawn: tuple[list[tuple[str, str]], int, str]) -> None:
        chosen, place, other = drawn
        place %= len(chosen)
        if name == "ticks":  # a row is there or not
            usual = [f"{row},," for _, row in chosen]
            rows = usual, [*usual[:place], f"{other},,", *usual[place:]]
        else:
            changed = [*chosen[:place], (chosen[place][0], other), *chosen[place + 1 :]]
            rows = numbered(chosen), numbered(changed)
        one, two = (written(name, made, tmp_path / str(next(numbers))) for made in rows)
        assert one["lines"]
        assert one == two

    streams = st.lists(st.tuples(st.sampled_from("ab"), cells), min_size=1, max_size=6)
    for_pairs(pairs, st.tuples(streams, st.integers(0, 5), cells), check)


# What this would find, and `test_side_doors.py` would not


class Tells(beam.DoFn):
    """A mutant: passes all on, and tells of some."""

    def __init__(self, way: str) -> None:
        self._way = way
        self.seen = 0

    def process(self, element: Any) -> Iterator[Any]:
        if element[1] is None:
            self.WAYS[self._way](self)
        yield element

    def remember(self) -> None:
        self.seen += 1

    def write(self) -> None:
        Path(tempfile.gettempdir(), "refused").touch()

    def fail(self) -> None:
        raise ValueError("refused one")

    WAYS: ClassVar[dict[str, Callable[[Any], None]]] = {
        "a field": remember,
        "a temporary file": write,
        "an error": fail,
    }


class BackToFront(beam.DoFn):
    """A mutant: releases come in an order that depends on values."""

    def process(self, element: Any) -> Iterator[Any]:
        yield from sorted(element[1], key=lambda release: release.value)


@pytest.mark.long
@pytest.mark.pipeline
def test_what_tells_is_seen(capfd: pytest.CaptureFixture[str]) -> None:
    def build(pipeline: beam.Pipeline, value: Any, way: str) -> dict[str, Any]:
        rows: list[Row] = [("k", value, 0), ("k", 1, SECOND)]
        telling: Any = beam.ParDo(Tells(way)).with_output_types(tuple[str, Any])
        return {"": pipeline | feed(rows) | telling | dp.PrefixCount(BUDGET, 4)}

    for way in Tells.WAYS:
        one, same, other = (
            whole(lambda p, x=x, way=way: build(p, x, way), capfd) for x in (0, 1, None)
        )
        assert one == same
        assert one != other, way


@pytest.mark.pipeline
def test_an_order_that_depends_on_values_is_seen(capfd: pytest.CaptureFixture[str]) -> None:
    def build(pipeline: beam.Pipeline, values: list[int]) -> dict[str, Any]:
        rows: list[Row] = [("k", x, i * SECOND) for i, x in enumerate(values)]
        count = dp.PrefixCount(dp.ZCDP(1e12), 4, bounds=(-9, 9), entropy=ScriptedEntropy(0))
        releases = pipeline | feed(rows) | count
        grouped = releases | beam.WithKeys(0) | beam.GroupByKey()
        return {"": grouped | beam.ParDo(BackToFront())}

    one, other = (whole(lambda p, x=x: build(p, x), capfd) for x in ([1, 1], [1, -9]))
    assert one.outside == other.outside  # which are sorted
    assert one.order != other.order

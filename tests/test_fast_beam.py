"""What tests/fast_beam.py remembers is what Beam answers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.options import pipeline_options
from apache_beam.options.pipeline_options import DebugOptions, PipelineOptions, StandardOptions
from apache_beam.transforms import core, userstate

from beam_dpcount.dofns import aggregate_shards, aggregates, elements, shards, ticks, users
from tests import fast_beam

ROOT = Path(__file__).resolve().parents[1]
MODULES = aggregate_shards, aggregates, elements, shards, ticks, users
DOFNS = sorted(
    {
        kind
        for module in MODULES
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, beam.DoFn) and kind is not beam.DoFn
    },
    key=lambda kind: kind.__name__,
)


@pytest.fixture(name="fast")
def _fast() -> Iterator[Any]:
    """Beam's own answers, by name, while the patches are there."""
    uninstall = fast_beam.install()
    yield
    uninstall()


def plain(function: Any) -> Any:
    """Beam's own, below the patches of this process."""
    while (cell := getattr(function, "__closure__", None)) is not None:
        inner = dict(zip(function.__code__.co_freevars, cell, strict=True)).get("original")
        if inner is None:
            return function
        function = inner.cell_contents
    return function


@pytest.mark.parametrize("kind", DOFNS)
def test_specs_of_state_and_timers(fast: None, kind: type[beam.DoFn]) -> None:
    dofn = kind.__new__(kind)
    expected = plain(userstate.get_dofn_specs)(dofn)
    for _ in range(2):
        assert userstate.get_dofn_specs(dofn) == expected
    states, _ = userstate.get_dofn_specs(dofn)
    states.clear()
    assert userstate.get_dofn_specs(dofn) == expected  # nobody's copy is another's


def test_some_dofns_have_state() -> None:
    found = [plain(userstate.get_dofn_specs)(kind.__new__(kind)) for kind in DOFNS]
    assert sum(bool(states) for states, _ in found) >= 4
    assert sum(bool(timers) for _, timers in found) >= 2


def test_an_object_with_methods_of_its_own_is_asked_anew(fast: None) -> None:
    class Plain(beam.DoFn):
        def process(self, element: Any) -> Any:
            return [element]

    class Stateful(beam.DoFn):
        STATE = userstate.BagStateSpec("bag", beam.coders.BytesCoder())

        def process(self, element: Any, bag: Any = beam.DoFn.StateParam(STATE)) -> Any:
            return [element]

    usual, other = Plain(), Plain()
    other.process = Stateful().process  # type: ignore[method-assign]
    assert userstate.get_dofn_specs(usual) == (set(), set())
    assert userstate.get_dofn_specs(other) == ({Stateful.STATE}, set())
    assert userstate.get_dofn_specs(usual) == (set(), set())


def _function(a: int, b: int = 2, *c: int, d: int = 4) -> None: ...


@pytest.mark.parametrize(
    "function", [_function, beam.DoFn().process, beam.DoFn.process, len, lambda x, y=1: x]
)
def test_arguments_of_functions(fast: None, function: Any) -> None:
    try:
        expected = plain(core.get_function_args_defaults)(function)
    except ValueError:
        with pytest.raises(ValueError):
            core.get_function_args_defaults(function)
        return
    for _ in range(2):
        found = core.get_function_args_defaults(function)
        assert found == expected
        found[0].append("more")  # nobody's copy is another's


@pytest.mark.parametrize(
    "flags", [[], ["--runner", "FnApiRunner"], ["--experiments=a", "--experiments=b", "--other=1"]]
)
@pytest.mark.parametrize("kind", [PipelineOptions, StandardOptions, DebugOptions])
def test_options(fast: None, kind: type[PipelineOptions], flags: list[str]) -> None:
    def answers(init: Any) -> list[Any]:
        options: Any = kind.__new__(kind)
        init(options, flags, streaming=True)
        views = [options.view_as(view) for view in (StandardOptions, DebugOptions)]
        shown = [options.get_all_options(), *(vars(view._visible_options) for view in views)]
        if kind is DebugOptions:
            options.add_experiment("more")  # of this object alone
        return [repr(one) for one in shown]

    fast_init = pipeline_options.PipelineOptions.__init__
    expected = answers(plain(fast_init))
    assert [answers(fast_init) for _ in range(3)] == [expected] * 3


def test_flags_default_to_those_of_the_process(fast: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for runner in ("FnApiRunner", "DirectRunner"):
        monkeypatch.setattr(sys, "argv", ["program", "--runner", runner])
        for _ in range(2):
            assert PipelineOptions().view_as(StandardOptions).runner == runner


def test_a_text_of_flags_is_refused(fast: None) -> None:
    with pytest.raises(ValueError, match="single string"):
        PipelineOptions("--runner=FnApiRunner")


def test_patches_are_taken_back() -> None:
    before = userstate.get_dofn_specs, pipeline_options.PipelineOptions.__init__
    fast_beam.install()()
    assert (userstate.get_dofn_specs, pipeline_options.PipelineOptions.__init__) == before


@pytest.mark.long
@pytest.mark.pipeline
@pytest.mark.parametrize("path", ["bounded", "streaming"])
def test_a_pipeline_without_the_memory(path: str) -> None:
    """All else runs with it: releases and their errors are those of plain Beam."""
    printed = [_printed(path, install) for install in (False, True)]
    assert printed[0] == printed[1]
    assert len(printed[0]) == 6


def _printed(path: str, install: bool) -> list[str]:
    code = (
        "import apache_beam as beam, beam_dpcount as dp\n"
        "from tests import fast_beam\n"
        f"if {install}: fast_beam.install()\n"
        "secret = dp.ReplayableEntropy('FAST_BEAM_SECRET', run_id='one')\n"
        f"options = dict(path={path!r}, entropy=secret, element_id=lambda e: e)\n"
        "count = dp.PrefixCount(dp.PureDP(1.0), 9, value=lambda e: e % 2, **options)\n"
        "with beam.Pipeline('FnApiRunner') as pipeline:\n"
        "    pairs = [('ab'[i % 2], i) for i in range(6)]\n"
        "    typed = beam.Create(pairs).with_output_types(tuple[str, int])\n"
        "    pipeline | typed | count | beam.Map(print)\n"
    )
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "FAST_BEAM_SECRET": bytes(range(32)).hex(),
    }
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True
    )
    return sorted(run.stdout.splitlines())

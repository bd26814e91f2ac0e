"""What an editor and a type checker make of a user's script."""

from __future__ import annotations

import ast
import inspect
import pydoc
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import apache_beam as beam
import pytest

from tests.public import PUBLIC

ROOT = Path(__file__).resolve().parents[1]
TRANSFORMS = [
    name
    for name, given in PUBLIC.items()
    if inspect.isclass(given) and issubclass(given, beam.PTransform)
]

# Each line is right; each misspelling of one word in it is wrong.
SCRIPT = """
import beam_dpcount as dp

budget = dp.ApproxDP(epsilon=1.0, delta=1e-6)
clock = dp.Clock("1h", 0, 24)
dp.PrefixCount(budget, horizon=100, bounds=(0, 5), unit=0.5, on_reject="collect", path="auto")
dp.Histogram(budget, 100, ["a", "b"], max_items=2, removals=True, element_id=len)
dp.Histogram(budget, 100, ["a", "b"], entropy=dp.ReplayableEntropy("V", run_id="r"))
dp.Histogram(budget, 100, ["a", "b"], fit_total=True, path="auto")
dp.Clock("1h", start="2026-01-15T00:00:00Z", ticks=24, stop=None, zone="UTC")
dp.TickCount(budget, clock, keys=["a"], max_per_tick=9, late="drop", on_unknown="drop")
dp.TickCount(budget, clock.last(5), dp.Items("x", ["a"]), keys=dp.TOTAL, relation="add_remove")
dp.TickCount(budget, [clock, clock.each()], [dp.Count(weight=2)], keys=["a"], key="x", time="at")
dp.TickCount(budget, clock.restart(5), dp.Sum("x", 0, 2), keys=["a"], confidence=0.9, other="a")
dp.TickCount(budget, clock, dp.People(), keys=["a"], users=dp.Users("who", events=5, per_key=1))
dp.Quantiles("latency", 0, 5, q=[0.5], leaves=64, scale="log", branching=4, name="l")
dp.Mean("latency", 0, 5, unit=0.1, weight=2)
dp.SubstringCount(budget, 100, ["a", "b"], 2, every=10, mechanism="BinaryTree")
dp.EpisodeCount(budget, 100, ["a", "b"], words=["ab"], max_span=5, allow_runner=True)
dp.TriangleCount(budget, 100, vertices=10, max_degree=3, asserted=True, relation="node")
dp.CutGraph(budget, 100, vertices=["a", "b"], element_id=None, value=None)
dp.local.LocalMedian(budget, cells=16)
dp.choose(100, budget, objective="max", max_state=10)
dp.post.SlidingSum(5, counter=dp.PrefixCount(budget, 100).counter, path="auto")
dp.post.Isotonic(dp.PrefixCount(budget, 100).counter, over="past", blocks=9, path="auto")
dp.post.ShrinkAcrossKeys(count=dp.TickCount(budget, clock=clock, keys=["a"]), path="auto")
"""

MOST_ANY = 20  # of 100 functions of the package: those whose signature or body names Any
MOST_IGNORED = 11  # lines of the package that no type checker reads; lower it as they go


def checked(text: str, folder: Path) -> list[str]:
    """What mypy --strict says of a script."""
    script = folder / "script.py"
    script.write_text(text)
    options = ("--strict", "--no-error-summary", "--config-file", "", "--ignore-missing-imports")
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", *options, str(script)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert not ran.stderr, ran.stderr
    return [line for line in ran.stdout.splitlines() if "script.py" in line and "error:" in line]


@pytest.mark.exhaustive
def test_a_mistyped_argument_is_an_error_of_the_type_checker(tmp_path: Path) -> None:
    """Of every argument: the script's lines once as they are, and once each with all misspelt."""
    assert checked(SCRIPT, tmp_path) == []
    wrong, places = [], 0
    for line in SCRIPT.splitlines():
        names = re.findall(r"(?<=[ (])(\w+)=", line) if line.startswith("dp.") else []
        for name in names:
            wrong.append(line.replace(f"{name}=", f"{name}x=", 1))
        places += len(names)
    head = SCRIPT.split("dp.PrefixCount(", 1)[0]
    found = checked(head + "\n".join(wrong), tmp_path)
    lines = {int(said.split(":")[1]) for said in found}
    first = head.count("\n") + 1
    assert places > 30
    assert lines == set(range(first, first + places)), found


@pytest.mark.parametrize("name", TRANSFORMS)
def test_help_shows_every_argument_with_its_type_and_an_example(name: str) -> None:
    given = PUBLIC[name]
    text = pydoc.plain(pydoc.render_doc(given))
    signature = inspect.signature(given)
    kinds = {parameter.kind for parameter in signature.parameters.values()}
    assert not kinds & {inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL}
    for argument in signature.parameters.values():
        assert argument.annotation is not inspect.Parameter.empty, argument
        assert re.search(rf"\b{argument.name}: ", text), argument
        described = given.__doc__.split("Guarantee")[0]
        if "the options" not in described:  # of another class, which has them
            assert re.search(rf"\b{argument.name}\b", described), argument
    assert ">>> " in text


def test_few_lines_are_hidden_from_the_type_checker() -> None:
    """No attribute is set on another object: what an inner count knows is `Inside`."""
    lines = [
        line
        for path in sorted((ROOT / "beam_dpcount").rglob("*.py"))
        for line in path.read_text("utf-8").splitlines()
        if "# type: ignore" in line
    ]
    assert len(lines) <= MOST_IGNORED, lines
    assert not [line for line in lines if "ignore[misc]" in line]


@pytest.mark.long
def test_few_functions_know_nothing_of_a_type() -> None:
    """A value that may be anything is an `object`, which is asked what it is before it is used."""
    functions = [
        node
        for path in sorted((ROOT / "beam_dpcount").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    naming = [node.name for node in functions if "Any" in {*names_in(node)}]
    assert 100 * len(naming) <= MOST_ANY * len(functions), (len(naming), len(functions))


def names_in(node: ast.AST) -> Iterator[str]:
    """The names in a piece of code, and in the texts of casts."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name):
            yield inner.id
        elif isinstance(inner, ast.Call) and ast.unparse(inner.func) == "cast":
            yield from re.findall(r"\w+", ast.unparse(inner.args[0]))

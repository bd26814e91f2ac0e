"""Imports run one way, in no circle; names come lazily, and are the same to people and programs."""

from __future__ import annotations

import ast
import importlib
import inspect
import pickle
import re
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import beam_dpcount as dp
from tests.public import HOMES, MODULES

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "beam_dpcount"

# What all folders may import, from below.
SHARED = tuple(
    f"beam_dpcount.{name}"
    for name in ("errors", "checks", "notebooks", "reading", "times", "version")
)
# From below. A file imports from its own folder and from those before it.
FOLDERS = (
    "noise",
    "budget",
    "mechanisms",
    "counters",
    "statistics",
    "states",
    "arguments",
    "dofns",
    "plans",
    "lanes",
    "transforms",
    "local",
    "commands",
    "rows",
)
# What stands beside the package, from below.
BESIDE = ("pipelines", "engines", "examples", "benchmarks", "tests")
# Doors to the same rooms, and another model beside them: none imports another.
DOORS = ("commands", "rows", "local")
HIDING = ("import_module(", "__import__(")
PURE = tuple(name for name in FOLDERS[: FOLDERS.index("transforms")] if name != "dofns")


def modules(top: Path) -> dict[str, Path]:
    """All modules below a folder of the checkout, by name."""
    found = {}
    for path in sorted(top.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


# Where statements are; an import is one.
HOLDERS = (ast.stmt, ast.ExceptHandler, ast.match_case)


@cache
def imports_of(path: Path) -> tuple[Sequence[str], Sequence[str]]:
    """What a file imports, anywhere in it, when it runs; and for type checkers only."""
    running: list[str] = []
    typing: list[str] = []
    waiting: list[tuple[ast.AST, list[str]]] = [(ast.parse(path.read_text("utf-8")), running)]
    while waiting:
        node, names = waiting.pop()
        if isinstance(node, ast.Import):
            names.extend(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, path
            # A name may be a module; if it is none, its module is what counts.
            names.extend(f"{node.module}.{alias.name}" for alias in node.names)
        else:
            names = typing if is_for_types(node) else names
            inner = ast.iter_child_nodes(node)
            waiting.extend((child, names) for child in inner if isinstance(child, HOLDERS))
    return running, typing


def imported(path: Path, types: bool = False) -> Sequence[str]:
    """What a file imports; with `types` also for type checkers only."""
    running, typing = imports_of(path)
    return [*running, *typing] if types else running


def arrows(found: dict[str, Path], types: bool = False) -> dict[str, set[str]]:
    """From each module to those of the same collection that it imports; `types` as above."""
    made: dict[str, set[str]] = {name: set() for name in found}
    for name, path in found.items():
        for target in imported(path, types):
            if (ROOT / target.replace(".", "/")).with_suffix(".c").exists():
                continue  # compiled, and imports nothing
            inner = target if target in found else target.rpartition(".")[0]
            if inner in found and inner != name:
                made[name].add(inner)
    return made


def test_every_file_has_its_folder() -> None:
    folders = {path.name for path in PACKAGE.iterdir() if path.is_dir()} - {"__pycache__"}
    assert folders == set(FOLDERS)
    shared = {f"{name.rpartition('.')[2]}.py" for name in SHARED}
    assert {path.name for path in PACKAGE.glob("*.py")} == {
        "__init__.py",
        "__main__.py",
        "post.py",
        *shared,
    }


@pytest.mark.long
@pytest.mark.slow
def test_imports_run_downwards() -> None:
    for name, targets in arrows(modules(PACKAGE)).items():
        if name in ("beam_dpcount", *SHARED):
            below = SHARED[: SHARED.index(name)] if name in SHARED else ("beam_dpcount.version",)
            assert targets <= {*below}, name
            continue
        if name == "beam_dpcount.__main__":
            assert targets == {"beam_dpcount.commands.door"}
            continue
        if name == "beam_dpcount.post":
            assert {target.split(".")[1] for target in targets} == {"transforms"}
            continue
        floor = FOLDERS.index(name.split(".")[1])
        above = floor < FOLDERS.index("commands") and "beam_dpcount" in targets
        assert not above, f"{name} imports the package, which names all rooms: import what it needs"
        for target in targets - {"beam_dpcount", *SHARED}:
            assert FOLDERS.index(target.split(".")[1]) <= floor, f"{name} imports {target}"


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("top", ["beam_dpcount", *BESIDE])
def test_no_circles(top: str) -> None:
    tuple(TopologicalSorter(arrows(modules(ROOT / top))).static_order())


def test_no_circles_of_types() -> None:
    """Not even by what modules import for type checkers: to read one, another need not be read."""
    found = modules(PACKAGE)
    del found["beam_dpcount"]  # it names everything, and a module that imports it reads no other
    tuple(TopologicalSorter(arrows(found, types=True)).static_order())


def test_doors_do_not_know_each_other() -> None:
    crossing = {
        (name, target)
        for name, targets in arrows(modules(PACKAGE), types=True).items()
        for target in targets
        if name.split(".")[1:2] != target.split(".")[1:2]
        if {*name.split(".")[1:2], *target.split(".")[1:2]} <= {*DOORS}
        if name != "beam_dpcount" != target
    }
    assert crossing == set()


def test_what_is_drawn_knows_nothing_of_who_draws_it() -> None:
    """Scales, series and labels are plain data: no matplotlib, and no HTML."""
    names = "bars", "counts", "fonts", "frames", "png", "series"
    figures, page = (f"beam_dpcount.commands.{room}" for room in ("figures", "page"))
    by_matplotlib = tuple(f"{figures}.{name}" for name in names)
    for room in ("figures", "page"):
        for name, path in modules(PACKAGE / "commands" / room).items():
            barred = ("matplotlib", *by_matplotlib) if name not in by_matplotlib else ()
            barred += (page,) if room == "figures" else ()
            targets = {*imported(path, types=True)}
            assert not any(target.startswith(barred) for target in targets if barred), name


@pytest.mark.slow
@pytest.mark.parametrize("top", ["beam_dpcount", *BESIDE])
def test_nothing_imports_what_stands_above_it(top: str) -> None:
    above = {*BESIDE} if top == "beam_dpcount" else {*BESIDE[BESIDE.index(top) + 1 :]}
    for name, path in modules(ROOT / top).items():
        assert not above & {target.split(".")[0] for target in imported(path)}, name


@pytest.mark.slow
@pytest.mark.parametrize("top", BESIDE)
def test_tests_are_imported_by_nothing(top: str) -> None:
    """What they share is in modules beside them that hold no tests."""
    for name, path in modules(ROOT / top).items():
        for target in imported(path):
            home, *words = target.split(".")
            is_test = home == "tests" and any(word.startswith("test_") for word in words)
            assert not is_test, f"{name} imports {target}"


@pytest.mark.parametrize("top", BESIDE)
def test_no_import_is_hidden(top: str) -> None:
    for name, path in modules(ROOT / top).items():
        text = path.read_text("utf-8")
        assert name == __name__ or not any(word in text for word in HIDING), name


def test_pure_folders_know_nothing_of_beam() -> None:
    for folder in PURE:
        for name, path in modules(PACKAGE / folder).items():
            assert not any(target.startswith("apache_beam") for target in imported(path)), name
    for path in PACKAGE.glob("*.py"):
        assert not any(target.startswith("apache_beam") for target in imported(path)), path


@pytest.mark.long
def test_importing_the_package_loads_no_beam() -> None:
    """So that help and mistakes of a command come at once."""
    program = (
        "import sys, beam_dpcount as dp\n"
        "assert not {'apache_beam', 'numpy'} & {*sys.modules}\n"
        "dp.ZCDP(0.1), dp.choose, dp.mechanisms.BinaryTree(8)\n"
        "assert dp.Users('user', events=5).person({'user': 'ann'}) == 'ann'\n"
        "assert 'apache_beam' not in sys.modules\n"
        "dp.PrefixCount\n"
        "assert 'apache_beam' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, timeout=120)


@pytest.mark.parametrize(
    "first",
    [
        "dp",
        "from beam_dpcount.counters.counter import calibrate",
        "import beam_dpcount.budget.costs",
    ],
)
def test_calibrate_knows_all_counters_from_the_start(first: str) -> None:
    program = (
        f"import beam_dpcount as dp\n{first}\n"
        "from beam_dpcount.counters.sparse import sparse_for\n"
        "dp.calibrate(dp.mechanisms.Unbounded(dp.mechanisms.BinaryTree), dp.PureDP(1)).dp_event\n"
        "dp.calibrate(sparse_for(10, 1000, dp.PureDP(1)), dp.PureDP(1)).costs()"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, timeout=120)


@pytest.mark.long
def test_threads_may_ask_for_names_at_once() -> None:
    program = (
        "import random, threading, beam_dpcount as dp\n"
        "failed = []\n"
        "def ask():\n"
        "    for name in random.sample(dp.__all__, len(dp.__all__)):\n"
        "        try:\n"
        "            getattr(dp, name)\n"
        "        except Exception as error:\n"
        "            failed.append(error)\n"
        "threads = [threading.Thread(target=ask) for _ in range(16)]\n"
        "[thread.start() for thread in threads]\n"
        "[thread.join() for thread in threads]\n"
        "assert not failed, failed[:3]"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, timeout=120)


def test_the_names_are_the_same_everywhere() -> None:
    tree = ast.parse((PACKAGE / "__init__.py").read_text("utf-8"))
    (for_types,) = (node for node in tree.body if is_for_types(node))
    shown = {
        alias.name: node.module
        for node in ast.walk(for_types)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    modules = {name: f"{shown.pop(name)}.{name}" for name in sorted(MODULES)}
    assert modules == dict(sorted(dp._MODULES.items()))
    assert shown == {name: f"beam_dpcount.{home}" for name, home in dp._HOMES.items()}
    assert sorted(dp.__all__) == sorted([*shown, *MODULES])
    assert set(dp.__all__) <= set(dir(dp))
    for name in dp.__all__:
        assert getattr(dp, name) is not None
    for name in shown:
        assert getattr(dp, name).__module__ == shown[name], name


def test_the_public_names_are_few_and_the_page_has_what_moved() -> None:
    assert len(dp.__all__) <= 55
    text = (ROOT / "docs" / "names.md").read_text("utf-8")
    part = text.split("## Where names are\n")[1].split("\n## ")[0]
    rows = [line.split(" | ") for line in part.splitlines() if line.startswith("| `")]
    told = {home.strip("| `"): set(re.findall(r"`(\w+)`", names)) for home, names, *_ in rows}
    for home, module in HOMES.items():
        assert told.pop(home) == set(module.__all__), home
    for home, names in told.items():
        for name in names:
            assert getattr(importlib.import_module(home), name) is not None
            assert name not in dp.__all__


@pytest.mark.slow
def test_every_error_of_the_package_is_a_dp_error() -> None:
    """And comes back from a pickle as it was: workers send errors to the submitter."""
    values = {
        value
        for name in modules(PACKAGE)
        for value in vars(importlib.import_module(name)).values()
        if isinstance(value, type) and issubclass(value, Exception)
        if value.__module__.split(".")[0] == "beam_dpcount"
    }
    errors = {value for value in values if not issubclass(value, Warning)}
    assert len(errors) > 20
    assert {error for error in errors if not issubclass(error, dp.Error)} == set()
    assert not any(issubclass(warning, dp.Error) for warning in values - errors)
    for error in errors - {dp.Error}:
        assert issubclass(error, ValueError | TypeError | RuntimeError), error  # as they were
        names = inspect.signature(error.__init__).parameters  # self, *args, **kwargs; or its own
        raised = error(*[*names][1:]) if "args" not in names else error("what is wrong")
        back = pickle.loads(pickle.dumps(raised))
        assert type(back) is error
        assert (str(back), back.args, vars(back)) == (str(raised), raised.args, vars(raised))


def test_other_names_are_none() -> None:
    with pytest.raises(AttributeError, match="'beam_dpcount' has no attribute 'PrefixCuont'"):
        _ = dp.PrefixCuont

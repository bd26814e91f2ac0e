"""Marks tests for the commands of the Makefile; setup.cfg says what the markers mean."""

from __future__ import annotations

import logging
import sys
import zlib
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from tests import fast_beam
from tests.selection import cover, is_in, part_of, starts

# What these assert is shown as what tests assert is.
for helper in ("command_lines", "orders", "people", "side_doors"):
    pytest.register_assert_rewrite(f"tests.{helper}")

# Of these arguments each test has one value in `make test`; all tests together have them all.
TURNS = ("path", "runner")
# Of a test that runs pipelines it has at most so many cases.
MOST = 3
ALONE = {(name,) for name in TURNS}


@pytest.fixture(autouse=True)
def _loggers_stay_as_they_are() -> Iterator[None]:
    """A test that silences a logger for good would silence it in the tests that come after it."""
    before, disabled = _levels(), logging.root.manager.disable
    yield
    after, then = _levels(), logging.root.manager.disable
    logging.disable(disabled)
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)
    assert (after, then) == (before, disabled)


def _levels() -> dict[str, int]:
    names = ("root", "apache_beam", "beam_dpcount", "beam_dpcount.dofns.horizon")
    return {name: logging.getLogger(name).level for name in names}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--fuzz", type=float, default=60.0, help="seconds of each long test in tests/test_fuzz.py"
    )
    parser.addoption(
        "--plain-beam",
        action="store_true",
        help="run pipelines without tests/fast_beam.py, which halves their CPU",
    )
    parser.addoption(
        "--part",
        type=part_of,
        metavar="K/N",
        help="of the cases marked exhaustive or long only one in N, for each K < N others",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    tests: dict[Any, list[pytest.Function]] = defaultdict(list)
    known: dict[int, bool] = {}
    for item in items:
        if isinstance(item, pytest.Function):
            if any(starts(thing, known) for thing in _used(item)):
                item.add_marker("pipeline")
            tests[item.parent, item.function].append(item)
    for cases in tests.values():
        _leave(cases)
    if (part := config.getoption("part")) is not None:
        left = [item for item in items if _is_parted(item) and not is_in(part, item.nodeid)]
        config.hook.pytest_deselected(items=left)
        gone = {*map(id, left)}
        items[:] = [item for item in items if id(item) not in gone]


def _is_parted(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(name) is not None for name in ("exhaustive", "long"))


def _leave(cases: list[pytest.Function]) -> None:
    """Mark the cases of one test that are left to `make test-all`."""
    # Those that are marked by themselves are.
    cases = [case for case in cases if all(mark.args for mark in case.iter_markers("exhaustive"))]
    if not cases or not hasattr(cases[0], "callspec"):
        return
    if (mark := cases[0].get_closest_marker("exhaustive")) is not None:
        together: list[tuple[str, ...]] = [(name,) for name in mark.args]
    else:
        together = _together(cases[0])
    values = [
        {(names, *(id(case.callspec.params[name]) for name in names)) for names in together}
        for case in cases
    ]
    kept = cover(_in_turns(cases, values))
    if cases[0].get_closest_marker("pipeline") and len(kept) > MOST:
        # Some in turns: tests of one list of names do not all leave out the same.
        first = zlib.crc32(cases[0].originalname.encode())
        every = sorted(kept)
        kept = {every[(first + i * len(every) // MOST) % len(every)] for i in range(MOST)}
    for number, case in enumerate(cases):
        case.own_markers = [mark for mark in case.own_markers if mark.name != "exhaustive"]
        if number not in kept:
            case.add_marker("exhaustive")


def _in_turns(cases: list[pytest.Function], values: list[set[Any]]) -> list[set[Any]]:
    """No values for cases on other paths and runners than the ones whose turn the name makes it.

    Unless there are values that are on others only.
    """
    places = [tuple(str(case.callspec.params.get(name)) for name in TURNS) for case in cases]
    among = sorted(set(places))
    turn = among[zlib.crc32(cases[0].originalname.encode()) % len(among)]
    others = [{value for value in needed if value[0] not in ALONE} for needed in values]
    left = [
        needed | {"one case"} if place == turn else set()
        for place, needed in zip(places, others, strict=True)
    ]
    return left if set().union(*others) <= set().union(*left) else values


def _together(case: pytest.Function) -> list[tuple[str, ...]]:
    """The arguments of a case; those whose values come in one row are one."""
    rows = [mark.args[0] for mark in case.iter_markers("parametrize")]
    made = [
        tuple(name.strip() for name in row.split(",")) if isinstance(row, str) else tuple(row)
        for row in rows
    ]
    alone = case.callspec.params.keys() - {name for names in made for name in names}
    return made + [(name,) for name in sorted(alone)]


def _used(item: pytest.Function) -> Iterator[Any]:
    """The test, its arguments, and its fixtures."""
    yield item.function
    if hasattr(item, "callspec"):
        yield from item.callspec.params.values()
    for found in item._fixtureinfo.name2fixturedefs.values():
        yield found[-1].func


def pytest_collection_finish(session: pytest.Session) -> None:
    # Modules of tests have imported Beam by now, if any does: nothing else needs it here.
    if "apache_beam.pipeline" in sys.modules and not session.config.getoption("--plain-beam"):
        session.config.add_cleanup(fast_beam.install())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """So that `make unit` stays without pipelines, and quick."""
    pipelines: Any = sys.modules.get("apache_beam.pipeline")
    if pipelines is None or item.get_closest_marker("pipeline"):
        return (yield)

    def refused(*_: Any) -> None:
        raise AssertionError("runs a pipeline: mark it by pytest.mark.pipeline")

    run, pipelines.Pipeline.run = pipelines.Pipeline.run, refused
    try:
        return (yield)
    finally:
        pipelines.Pipeline.run = run


@pytest.fixture
def no_state_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of many keys: the local runner's cache measures every state, some 1 ms each."""
    from apache_beam.runners.portability.fn_api_runner import worker_handlers

    monkeypatch.setattr(worker_handlers, "STATE_CACHE_SIZE_MB", 0)

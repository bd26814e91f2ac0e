"""A pytest plugin that writes down what passed, what failed and how, for `runner.py` to judge.

It imports nothing of the package: it must not fail for what a mutant broke.
"""

from __future__ import annotations

import importlib.util
import json
import os
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

WHERE, MODULE = "MUTANTS_WITNESS", "MUTANTS_MODULE"

_ROOT = (
    Path(__file__).resolve().parents[2]
)  # not where the test is: it may be in a folder of its own
_seen: dict[str, Any] = {"passed": [], "skipped": [], "failed": []}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> Iterator[None]:
    report: Any = yield
    if report.failed and call.excinfo is not None:
        _seen["failed"].append([report.nodeid, _fault(report.when, call.excinfo.value)])
    elif report.skipped:
        _seen["skipped"].append(report.nodeid)
    elif report.when == "call":
        _seen["passed"].append(report.nodeid)
    return report


def _fault(when: str, raised: BaseException) -> str:
    """What is wrong with a failure as that of a check; empty if it is an assertion of a test."""
    name = type(raised).__name__
    if when != "call":
        return f"{name} in {when}"
    several = getattr(raised, "exceptions", None)  # a group of them, as Hypothesis raises
    if several is not None:
        return ", ".join(filter(None, (_fault(when, one) for one in several)))
    if not isinstance(raised, AssertionError | pytest.fail.Exception):
        return name
    files = [Path(frame.filename) for frame in traceback.extract_tb(raised.__traceback__)]
    ours = [file for file in files if _ROOT in file.parents]
    if not ours or ours[-1].relative_to(_ROOT).parts[0] != "tests":
        return f"{name} outside of tests"
    return ""


def pytest_sessionfinish() -> None:
    spec = importlib.util.find_spec(os.environ[MODULE])
    _seen["imported"] = None if spec is None else spec.origin
    Path(os.environ[WHERE]).write_text(json.dumps(_seen), "utf-8")

"""Every metric holds to the contract, and is in every door."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from beam_dpcount.arguments.metrics import METRICS
from tests.each_metric import CHECKS, COUNTING

Check = Callable[[str, Path], None]
each_metric = pytest.mark.parametrize("name", METRICS)


def _of(checks: tuple[Check, ...]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("check", checks, ids=[check.__name__ for check in checks])


@_of(CHECKS)
@each_metric
@pytest.mark.exhaustive("name", "check")
def test_a_metric(name: str, check: Check, tmp_path: Path) -> None:
    check(name, tmp_path)


@pytest.mark.pipeline
@_of(COUNTING)
@each_metric
def test_a_metric_is_counted(name: str, check: Check, tmp_path: Path) -> None:
    check(name, tmp_path)

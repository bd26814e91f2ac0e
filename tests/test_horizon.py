"""The end of a clock is said beforehand: metrics and log lines, of the public clock alone."""

from __future__ import annotations

import logging
from operator import itemgetter
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.transforms.window import FixedWindows

import beam_dpcount as dp
from beam_dpcount.transforms.ticks import TickNumbers
from tests.runners import SECOND, Row, each_path, feed, run
from tests.sentences import counted

TICK, TICKS = 10, 20
CLOCK: dict[str, Any] = {"tick": TICK, "start": 0, "horizon": TICKS}
KEYS: dict[str, Any] = {"listed": ["a", "b"], "selected": dp.SelectKeys()}
ROWS: list[Row] = [("ab"[at % 2], 1, at * SECOND) for at in range(200)]
BEGUN = "the last tenth of the clock has begun: 2 of 20 ticks are left, and events from "
BEGUN += "1970-01-01T00:03:20Z on do not count: plan the next clock, with a budget of its own"
ENDED = "the last of 20 ticks is released: events from 1970-01-01T00:03:20Z on do not count"


def counting(kind: str, name: str = "numbers", **more: Any) -> Any:
    if name == "vectors":
        what = [dp.Count(), dp.Rate("n > 0")]
        made: Any = counted(dp.ZCDP(1), what, **CLOCK, keys=KEYS[kind], **more)
    else:
        made = TickNumbers(dp.ApproxDP(1, 1e-6), **CLOCK, keys=KEYS[kind], **more)
    return beam.WindowInto(FixedWindows(5 * TICK)) | made if name == "windows" else made


def gauges(result: Any) -> dict[str, int]:
    found = result.metrics().query()["gauges"]
    return {
        gauge.key.metric.name: gauge.result.value
        for gauge in found
        if gauge.key.metric.namespace == "beam_dpcount"
    }


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    name = "beam_dpcount.dofns.horizon"
    return [r.getMessage() for r in caplog.records if r.name == name and r.levelname == "WARNING"]


@each_path
@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("name", ["numbers", "vectors", "windows"])
@pytest.mark.parametrize("rows", [ROWS, []], ids=["events", "none"])
def test_how_far_the_clock_is_shows_whatever_the_events(
    path: str, kind: str, name: str, rows: list[Row], caplog: pytest.LogCaptureFixture
) -> None:
    if name == "vectors" and kind == "selected":
        pytest.skip("its budget has no delta")
    with caplog.at_level(logging.INFO, "beam_dpcount"):
        outcome = run(lambda p: p | feed(rows) | counting(kind, name, path=path))
    found = gauges(outcome.result)
    assert sorted(found) == ["ticks_left", "ticks_released"]
    assert found["ticks_released"] + found["ticks_left"] == TICKS
    # Beam keeps the earliest of the values that a gauge has within one second.
    assert found["ticks_left"] == 0 or (path, kind) == ("streaming", "selected")
    assert said(caplog) == ([BEGUN, ENDED] if path == "streaming" else [])


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("rows", [ROWS, []], ids=["events", "none"])
def test_of_a_clock_that_goes_on(
    kind: str, rows: list[Row], caplog: pytest.LogCaptureFixture
) -> None:
    for until, ended in ((175, 17), (185, 18)):
        caplog.clear()
        outcome = run(lambda p, until=until: p | feed(rows) | counting(kind, until=until))
        assert gauges(outcome.result) == {"ticks_released": ended, "ticks_left": TICKS - ended}
        assert said(caplog) == ([BEGUN] if ended == 18 else [])


def test_one_worker_says_it_once_whatever_the_keys(caplog: pytest.LogCaptureFixture) -> None:
    keys = [f"k{i}" for i in range(30)]
    count = TickNumbers(dp.ZCDP(1), **CLOCK, keys=keys, path="streaming", value=itemgetter(0))
    run(lambda p: p | feed([("k3", (1,), 5 * SECOND)]) | count)
    assert said(caplog) == [BEGUN, ENDED]

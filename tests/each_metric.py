"""What every metric must do, whatever it counts: the contract suite's checks, by name.

All that a check knows of a metric is the contract: its example as a text, and made-up events.
"""

from __future__ import annotations

import io
import json
import pickle
import sys
from collections.abc import Iterable
from contextlib import redirect_stdout
from dataclasses import fields
from itertools import combinations
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

import beam_dpcount as dp
from beam_dpcount.arguments.metrics import METRICS, example, metric_of
from beam_dpcount.commands import errors, ticks
from beam_dpcount.plans.columns import columns_of
from beam_dpcount.rows import TickCountRows
from beam_dpcount.statistics.metrics.base import Errors, Metric
from tests.command_lines import succeed
from tests.runners import SECOND, Row, feed, run
from tests.sentences import counts_in

ROOT = Path(__file__).resolve().parents[1]
EXACT = {"epsilon": 1e9, "delta": 1e-6}
EVENTS, TICKS, RUNS, LEVEL = 60, 4, 4000, 0.9
CLOCK = dp.Clock(60, start=0, ticks=TICKS)
VIEWS: dict[str, Any] = {
    "so-far": CLOCK,
    "each": CLOCK.each(),
    "last 2": CLOCK.last(2),
    "restart 2": CLOCK.restart(2),
}
PERSON = "who"


def metric(name: str) -> Metric:
    return metric_of(example(name)).planned(pure=False)


def events(metric: Metric, n: int = EVENTS) -> list[dict[str, Any]]:
    return [metric.invented(i) | {PERSON: f"p{i}"} for i in range(n)]


def vectors(metric: Metric, some: Iterable[dict[str, Any]]) -> np.ndarray:
    """What each event adds to each sum; each is of another person."""
    found = np.zeros((0, metric.width))
    for event in some:
        one = np.zeros((1, metric.width))
        for place, amount in [(0, 1)] if metric.once else metric.additions(event):
            one[0, place] += amount
        found = np.vstack([found, one])
    return found


def exact(metric: Metric, some: Iterable[dict[str, Any]]) -> list[float]:
    """What is to be said of these events, without noise."""
    sums = vectors(metric, some).sum(axis=0)[None, :]
    errors = Errors(np.zeros_like(sums), lambda level: np.zeros(1))
    return [float(value) for value in metric.measure(sums, errors, 0.95).values[0]]


def users(metric: Metric) -> dp.Users | None:
    return dp.Users(PERSON, 1) if metric.once else None


def has_made_up_events_that_count(name: str, _: Path) -> None:
    one = metric(name)
    assert vectors(one, events(one)).any()
    assert all(set(one.fields) <= set(event) for event in events(one))
    assert set(one.numbers) <= set(one.fields)
    assert not any(one.problem(event) for event in events(one))


def no_event_exceeds_what_noise_is_for(name: str, _: Path) -> None:
    """Nor do two; and some event attains the largest limit."""
    one = metric(name)
    odd: list[Any] = [None, "x", "", -1e300, 1e300, float("nan"), True, [1], 10**400, b"x", {}]
    strange = [dict.fromkeys(one.fields, value) for value in odd] if one.fields else []
    found = vectors(one, [*events(one, 200), *strange, {}])
    assert (found == np.rint(found)).all()
    assert (np.abs(found) <= one.limits).all()
    if one.width == 1:
        assert np.abs(found).max() == one.limits[0]
    assert np.count_nonzero(found, axis=1).max() <= one.touched
    for a, b in combinations(found[found.any(axis=1)][-60:], 2):
        assert (np.abs(a - b) <= one.spans).all()
        assert (a * b < 0).any() <= one.signed
    if not one.signed:
        assert (found >= 0).all() or (found <= 0).all()


def intervals_hold_as_often_as_they_say(name: str, _: Path) -> None:
    """At any noise: also where the truth drowns in it."""
    one = metric(name)
    some = events(one, 2000)
    sums, truth = vectors(one, some).sum(axis=0), np.array(exact(one, some))
    limits = np.array(one.limits, dtype=float)
    for noise in (1.0, 30.0):
        stddevs = np.tile(noise * limits, (RUNS, 1))
        drawn = np.random.default_rng(7).standard_normal(stddevs.shape)
        known = Errors(stddevs, lambda at: np.full(RUNS, NormalDist().inv_cdf((1 + at) / 2)))
        found = one.measure(sums + stddevs * drawn, known, LEVEL)
        held = np.isnan(found.lows) | ((found.lows - 1e-9 <= truth) & (truth <= found.highs + 1e-9))
        assert held.mean(axis=0).min() >= LEVEL - 5 * np.sqrt(LEVEL * (1 - LEVEL) / RUNS)


def a_text_and_a_mapping_say_it(name: str, _: Path) -> None:
    one = metric_of(example(name))
    given = {field.name: getattr(one, field.name) for field in fields(one) if field.init}
    again: Any = metric_of({"metric": name, **given})
    assert repr(again) == repr(one)
    assert again.columns == one.columns
    named = metric_of({"metric": name, **given, "name": "mine"})
    assert all("mine" in column for column in named.columns)
    assert pickle.loads(pickle.dumps(one)) == one
    with pytest.raises(ValueError, match="did you mean weight"):
        metric_of({"metric": name, **given, "wight": 1})


def python_counts_it_in_every_view(name: str, _: Path) -> None:
    one = metric(name)
    some = events(one)
    rows: list[Row] = [("a", event, i * 4 * SECOND) for i, event in enumerate(some)]
    for view in VIEWS.values():
        count = dp.TickCount(dp.ApproxDP(**EXACT), view, one, keys=["a"], users=users(one))
        outcome = run(lambda p, count=count: p | feed(rows) | count)
        columns = columns_of(count)
        for seen in outcome.outputs[0]:
            tick = seen.value.step
            mine = [e for i, e in enumerate(some) if counts_in(view, i * 4 // 60 + 1, tick)]
            found = [cells.value for _, cells in columns.cells(seen.value)]
            _check(one, found, exact(one, mine))
        assert len(outcome.outputs[0]) == TICKS


def _check(one: Metric, found: list[Any], truth: list[float]) -> None:
    allowed = 1e-3 * (one.extent or 1) + 1e-3
    for value, expected in zip(found, truth, strict=True):
        if np.isnan(expected) or value is None:
            assert value is None
            continue
        assert value == pytest.approx(expected, abs=allowed, rel=1e-4)


def yaml_takes_it(name: str, _: Path) -> None:
    one = metric(name)
    count = TickCountRows(
        tick=60, start=0, horizon=TICKS, metrics=[example(name)], **EXACT, **_people(one)
    )
    assert count.count.columns == one.columns
    assert {field.name for field in count.more_fields()} == set(one.fields)
    assert example(name) in (TickCountRows.__doc__ or "").replace("\n        ", " ")


def _people(one: Metric) -> dict[str, Any]:
    return {"user": PERSON, "per_user": 1} if one.once else {}


def a_command_counts_it(name: str, place: Path) -> None:
    """From CSV, where all cells are text."""
    one = metric(name)
    some = events(one)
    names = ["at", *some[0]]
    lines = [",".join(names)]
    lines += [",".join(map(str, [i * 4, *event.values()])) for i, event in enumerate(some)]
    (place / "events.csv").write_text("\n".join(lines) + "\n")
    people = ("--user", PERSON, "--per-user", 1) if one.once else ()
    succeed(
        *("--input", place / "events.csv", "--timestamp", "at", "--tick", 60, "--start", 0),
        *("--horizon", TICKS, "--metric", example(name), "--epsilon", 1e9, "--delta", 1e-6),
        *("--output", place / "out.jsonl", *people),
        main=ticks.main,
    )
    rows = [json.loads(line) for line in (place / "out.jsonl").read_text().splitlines()]
    assert len(rows) == TICKS
    for row in rows:
        mine = some[: row["step"] * 15]
        _check(one, [row[column] for column in one.columns], exact(one, mine))


def errors_sizes_it(name: str, _: Path) -> None:
    one = metric(name)
    people = ("--people", 500, "--per-user", 1) if one.once else ()
    words = ("--metric", example(name), "--ticks", 9, "--events", 1 if one.once else 500, *people)
    out = succeed(*words, "--epsilon", 1, "--delta", 1e-6, main=errors.main)
    lines = out.splitlines()
    for column in one.columns:
        (line,) = [line for line in lines if line.startswith(f"{column} ")]
        assert "too few rows" not in line


def the_help_has_it(name: str, _: Path) -> None:
    for parser in (ticks.Ticks.parser(), errors.arguments()):
        said = io.StringIO()
        with redirect_stdout(said):
            parser.print_help()
        assert example(name) in " ".join(said.getvalue().split())


def the_reference_has_it(name: str, _: Path) -> None:
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        import conf  # type: ignore[import-not-found]

        page = [(ROOT / "docs" / "reference" / "metrics.md").read_text()]
        conf.every_metric(None, "reference/metrics", page)
    finally:
        sys.path.remove(str(ROOT / "docs"))
    kind = METRICS[name]
    home = "" if kind.__name__ in dp.__all__ else ".metrics"
    assert f".. autoclass:: beam_dpcount{home}.{kind.__name__}\n" in page[0]
    assert kind.__doc__
    of_this = [field.name for field in fields(kind) if field.init and not field.kw_only]
    assert all(f" {one}:" in kind.__doc__ or f"{one}, " in kind.__doc__ for one in of_this)


CHECKS = (
    has_made_up_events_that_count,
    no_event_exceeds_what_noise_is_for,
    intervals_hold_as_often_as_they_say,
    a_text_and_a_mapping_say_it,
    yaml_takes_it,
    errors_sizes_it,
    the_help_has_it,
    the_reference_has_it,
)
COUNTING = (python_counts_it_in_every_view, a_command_counts_it)  # in pipelines

"""errors of metrics and views: its figures are those of the transform, and enough is enough."""

from __future__ import annotations

import re
from typing import Any

import pytest

import beam_dpcount as dp
from beam_dpcount.commands import errors
from beam_dpcount.transforms.sentence import TickCount
from tests import people_needed
from tests.command_lines import fail, succeed

BUDGET = ("--epsilon", 1, "--delta", 1e-6)
HOURS = dp.Clock("1h", start=0, ticks=24)
ROW = re.compile(r"^(\w+) +([\d.e+-]+|too few rows) +([\d.e+-]+|too few rows) +(\S+(?: %)?)$", re.M)


def said(*words: object, budget: tuple[object, ...] = BUDGET) -> str:
    return succeed(*budget, *words, main=errors.main)


def halves(out: str) -> dict[str, float]:
    return {name: float(half) for name, _, half, _ in ROW.findall(out)}


METRICS: dict[str, tuple[str, Any]] = {
    "count": ("count", dp.Count()),
    "sum_x": ("sum(x, 0, 10)", dp.Sum("x", 0, 10)),
    "mean_x": ("mean(x, 0, 10)", dp.Mean("x", 0, 10)),
    "variance_x": ("variance(x, 0, 10)", dp.Variance("x", 0, 10)),
    "p50_x": ("quantiles(x, 0, 10, 0.5)", dp.Quantiles("x", 0, 10, [0.5])),
    "rate": ("rate(level = ERROR)", dp.Rate("level = ERROR")),
    "count_a": ("items(y, a)", dp.Items("y", ["a"])),
}
VIEWS: dict[str, Any] = {
    "so-far": HOURS,
    "each": HOURS.each(),
    "last 7": HOURS.last(7),
    "restart 6": HOURS.restart(6),
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("name", METRICS)
def test_the_figures_are_those_of_the_transform(name: str, view: str) -> None:
    text, metric = METRICS[name]
    out = said("--metric", text, "--view", view, "--ticks", 24, "--events", 500)
    count = TickCount(dp.ApproxDP(1.0, 1e-6), VIEWS[view], metric, keys=dp.TOTAL)
    (found,) = halves(out).items()
    assert found[0] == name + VIEWS[view].suffix
    if name in ("count", "sum_x"):
        half = dp.largest_half_width(count.counter)
    else:
        golden = (5**0.5 - 1) / 2
        some = ({"x": 10 * (i * golden % 1), "y": "a"} for i in range(500))
        levels = ("ERROR", "INFO")
        events = [event | {"level": levels[i % 2]} for i, event in enumerate(some)]
        (column,) = count.expected(events).columns
        value, low, high = column.value, column.low, column.high
        assert value is not None
        assert low is not None
        assert high is not None
        half = max(high - value, value - low)
    assert found[1] == pytest.approx(half, rel=1e-3)


def test_views_and_metrics_share_the_budget_as_they_will() -> None:
    words = ("--view", "each", "--metric", "count", "--metric", "rate(level = ERROR)", "--events")
    alone = halves(said(*words[:4], *words[6:], 1000))
    both = halves(said(*words, 1000))
    two = halves(said("--view", "last 7", *words, 1000))
    assert alone["count_each"] < both["count_each"] < two["count_each"]
    assert [*two] == ["count_last_7", "rate_last_7", "count_each", "rate_each"]


def test_what_is_wanted_is_reached_from_there_on_and_not_before() -> None:
    words: tuple[object, ...] = (
        "--metric",
        "count",
        "--metric",
        "mean(x, 0, 10)",
        "--view",
        "each",
    )
    out = said(*words, "--events", 200, "--want", "5%")
    events = int(re.findall(r"At this budget all are within 5 % from ([\d,]+) rows on", out)[0])
    epsilon = float(re.findall(r"Of these rows from epsilon = ([\d.]+) on", out)[0])
    already = "All are within 5 % already."
    assert already in said(*words, "--events", events, "--want", 0.05)
    assert already not in said(*words, "--events", events * 9 // 10, "--want", 0.05)
    enough, less = (("--epsilon", epsilon * by, "--delta", 1e-6) for by in (1, 0.9))
    assert already in said(*words, "--events", 200, "--want", "5%", budget=enough)
    assert already not in said(*words, "--events", 200, "--want", "5%", budget=less)


def test_people_are_bounded_as_they_will_be() -> None:
    words = ("--view", "each", "--people", 100, "--per-user", 3)
    out = said(*words, "--events", 5)
    assert "of 100 people with 5 rows each" in out
    assert re.search(r"^count_each +300 ", out, re.M)  # three of each count
    count = TickCount(dp.ApproxDP(1.0, 1e-6), HOURS.each(), keys=dp.TOTAL, users=dp.Users("who", 3))
    half = dp.largest_half_width(count.counter)
    assert halves(out)["count_each"] == pytest.approx(half, rel=1e-3)
    active = said(*words, "--events", 5, "--metric", "people")
    assert re.search(r"^people_each +100 ", active, re.M)
    assert halves(active)["people_each"] <= half
    more = said(*words, "--events", 5, "--want", "1%")
    assert re.search(r"from [\d,]+ people with 5 rows each on", more)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--view", "each"), "--metric and --view need --events N"),
        (("--events", 5), "give --ticks N, the number of ticks: all rows so far have an end"),
        (("--events", 0, "--view", "each"), "must be whole numbers from 1"),
        (("--events", 5, "--view", "each", "--people", 2), "--people needs --per-user K"),
        (("--events", 5, "--view", "each", "--metric", "people"), "--metric people needs --per-us"),
        (("--events", 5, "--view", "last 7d"), "give a number of ticks, as no tick has a length"),
        (("--events", 5, "--view", "each", "--unit", 2), "--unit is of a plain count: leave it"),
        (("--events", 5, "--view", "each", "--want", "5"), "must be a share, such as 5% or 0.05"),
        (("--events", 5, "--metric", "meen(x)"), "column 1 of 'meen(x)': unknown name 'meen': did"),
    ],
)
def test_what_is_refused(words: tuple[object, ...], message: str) -> None:
    assert message in fail(*BUDGET, *words, run=_run)


def _run(*words: object) -> Any:
    from tests.command_lines import command

    return command(*words, main=errors.main)


@pytest.mark.parametrize("rows", [1, pytest.param(5, marks=pytest.mark.exhaustive)])
def test_the_page_says_how_many_people_it_takes(rows: int) -> None:
    """To renew it: python -m tests.people_needed --write."""
    assert people_needed.printed(rows) == people_needed.table(rows)


def test_what_the_page_says_beside_its_tables() -> None:
    """Of budgets, of keys of a person, and of two metrics."""
    words = ("--people", 1, "--events", 1, "--want", "10%", "--view")

    def people(*more: object, budget: tuple[object, ...] = BUDGET) -> int:
        found = re.search(r"from ([\d,]+) people", said(*words, *more, budget=budget))
        assert found
        return int(found[1].replace(",", ""))

    each = ("each", "--per-user", 1, "--metric", "count")
    assert people(*each, budget=("--epsilon", 2, "--delta", 1e-6)) <= people(*each) / 2
    assert 55 <= people(*each, "--metric", "people") <= 60
    five = ("so-far", "--ticks", 365, "--metric", "count", "--per-user", 5)
    assert 490 <= people(*five, "--per-key", 1, "--keys", 5) <= 510
    assert 1100 <= people(*five) <= 1200

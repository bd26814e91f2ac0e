"""What `print` says of transforms that count: their budget, clock, keys, people and error."""

from __future__ import annotations

import datetime as dt
from operator import itemgetter
from typing import Any

import pytest

import beam_dpcount as dp
from beam_dpcount.checks import ParameterError
from beam_dpcount.rows import TickCountRows
from beam_dpcount.transforms.ticks import TickNumbers
from tests.transforms import KEYED, TICKS

BUDGET = dp.ApproxDP(1.0, 1e-6)
DAY: dict[str, Any] = {"start": "2026-01-15T00:00:00Z", "horizon": 24, "keys": ["/home", "/cart"]}


@pytest.mark.parametrize(
    ("tick", "micros"),
    [
        ("1h", 3_600_000_000),
        ("1d", 86_400_000_000),
        ("90s", 90_000_000),
        ("90", 90_000_000),
        (" 0.5s ", 500_000),
        (dt.timedelta(minutes=15), 900_000_000),
        (60, 60_000_000),
    ],
)
def test_a_tick_is_said_as_in_commands_and_rows(tick: Any, micros: int) -> None:
    count = TickNumbers(BUDGET, tick, **DAY)
    assert count._clock.tick == micros
    if not isinstance(tick, dt.timedelta):
        rows = TickCountRows("page", tick=tick, **DAY, epsilon=1, delta=1e-6)
        assert rows.count.grid == count.clock
    people = dp.Users(itemgetter("who"), 3, gap=tick, per_key=1)
    assert people.micros == micros


@pytest.mark.parametrize("tick", ["", "h", "1 hour", "-1h", "0", "1e-9s", "1y"])
def test_other_texts_are_refused(tick: str) -> None:
    for made in (
        lambda: TickNumbers(BUDGET, tick, **DAY),
        lambda: TickCountRows("page", tick=tick, **DAY, epsilon=1, delta=1e-6),
    ):
        with pytest.raises(ParameterError, match="tick must be a positive time of whole micro"):
            made()


def test_print_says_what_a_count_promises_and_how_well() -> None:
    count = TickNumbers(
        BUDGET, "1h", **DAY, users=dp.Users(itemgetter("who"), 3, per_key=1), value=lambda event: 1
    )
    assert str(count) == repr(count)
    largest = count.counter.max_variance() ** 0.5
    assert str(count).splitlines() == [
        "TickCount(",
        "  budget: epsilon = 1, delta = 1e-06",
        f"  protects: {count.counter.change}",
        "  clock: 24 ticks of 3600 s from 2026-01-15T00:00:00Z",
        "  bounded input: 24 of 24 ticks have ended by 2026-01-16T00:00:00Z, and are released",
        "  late events: in a stream they count at the next tick",
        "  counts: up to 1,073,741,824 events a tick, 298,262 a second",
        "  keys: 2",
        f"  users: {count.users}",
        f"  error: {largest:.3g}, the largest standard deviation of a release",
        ")",
    ]


def test_print_says_which_ticks_have_ended() -> None:
    until = "2026-01-15T05:30:00Z"
    said = str(TickNumbers(BUDGET, "1h", **DAY, until=until))
    assert f"  bounded input: 5 of 24 ticks have ended by {until}, and are released\n" in said
    assert "bounded input" not in str(TickNumbers(BUDGET, "1h", **DAY, path="streaming"))
    assert "bounded input" not in str(dp.PrefixCount(BUDGET, 10))


def test_print_says_it_of_every_transform_that_counts() -> None:
    for name, made in {**KEYED, **TICKS}.items():
        transform = made()
        text = str(transform)
        label = "TickCount" if name in TICKS else name
        assert text.startswith(f"{label}(\n  budget: rho = 0.5 (zCDP)\n"), name
        assert "  error: " in text, name
        assert ("  clock: 3 ticks of 10 s" in text) == (name in TICKS), name
        assert "0x" not in text


def test_print_says_it_of_rows_and_of_bounds_too() -> None:
    rows = TickCountRows("page", tick="1h", **DAY, epsilon=1, delta=1e-6)
    assert str(rows) == str(rows.count).replace("TickCount", "TickCountRows", 1)
    users = dp.Users(itemgetter("who"), 3, per_key=1)
    bound = dp.BoundUsers(users, {"a": TICKS["TickCount"](value=lambda event: 1)})
    assert str(bound).startswith(f"BoundUsers(\n  users: {users}\n  a: TickCount(\n    budget: rho")


def test_print_says_the_errors_of_columns() -> None:
    assert "  error: the largest standard deviation: count 1.79513\n" in str(TICKS["vectors"]())


def test_print_of_keys_that_nobody_listed() -> None:
    count = TickNumbers(BUDGET, "1h", **{**DAY, "keys": dp.SelectKeys()})
    assert "  keys: selected\n" in str(count)
    assert f"  budget: {BUDGET}" in str(count)


def test_print_shows_nothing_that_a_pipeline_has_read() -> None:
    secret = "0123456789abcdef" * 4
    entropy = dp.ReplayableEntropy("COUNTING_SECRET", run_id="public")
    count = TickNumbers(BUDGET, "1h", **DAY, entropy=entropy, value=lambda event: 7)
    assert secret not in str(count)
    assert "lambda" not in str(count)

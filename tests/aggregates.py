"""Events with fields, and what all metrics of them should say, from NumPy alone."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

import beam_dpcount as dp
from tests.people import who
from tests.runners import SECOND, Row
from tests.sentences import counted

EXACT = dp.ZCDP(1e30)  # its noise is 0, on lattices a million times finer, too
TICK, TICKS = 10, 12
CLOCK: dict[str, Any] = {"tick": TICK, "start": 0, "horizon": TICKS}
KEYS = ("a", "b", "c")
AMOUNT, LATENCY = (-5, 100, 0.5), (0.01, 5, 0.01)
Q = (0.05, 0.5, 0.95)

m = dp.metrics


def metrics(people: bool = False) -> list[Any]:
    """All metrics; People where people are bounded."""
    made = [
        m.Count(),
        m.Sum("amount", *AMOUNT),
        m.Mean("latency", *LATENCY),
        m.Variance("latency", *LATENCY),
        m.Quantiles("latency", 0.01, 5, Q, scale="log"),
        m.Quantiles("latency", 0, 5, Q, name="linear"),
        m.Rate("amount > 2"),
        m.Items("who", ["p1", "p2", "p"]),
    ]
    return [*made, m.People()] if people else made


def log(n: int = 400, seed: int = 1) -> list[Row]:
    """A made log of latencies, of a few people, by time; some fields are missing, some nonsense."""
    chance = random.Random(seed)
    rows: list[Row] = []
    for micros in sorted(chance.sample(range(119 * SECOND), n)):
        payload: dict[str, Any] = {"who": f"p{chance.randrange(30)}"}
        payload["amount"] = chance.choice([1, 2.5, -7, 300, 40, 0.2, None, "4"])
        if chance.random() < 0.9:
            payload["latency"] = chance.choice([chance.gammavariate(2, 0.4)] * 9 + [float("nan")])
        rows.append((chance.choice("aaaabbcd"), payload, micros))
    rows.append(("a", None, 110 * SECOND))
    return rows


def numbers(rows: Iterable[Row], field: str, low: float, high: float, unit: float) -> np.ndarray:
    """Those of a field, as they count."""
    found = [row[1].get(field) for row in rows]
    there = [x for x in found if isinstance(x, int | float) and x == x]
    return np.rint(np.clip(np.array(there, dtype=float), low, high) / unit) * unit


def said(rows: Sequence[Row], people: bool, firsts: int) -> dict[str, float | None]:
    """What is to be said of these events; NaN where there is nothing to say."""
    amounts, latencies = numbers(rows, "amount", *AMOUNT), numbers(rows, "latency", *LATENCY)
    some = len(latencies) > 0
    made: dict[str, Any] = {
        "count": len(rows),
        "sum_amount": amounts.sum(),
        "mean_latency": latencies.mean() if some else None,
        "variance_latency": latencies.var() if some else None,
    }
    given = [row[1].get("amount") for row in rows]
    large = [x > 2 for x in given if isinstance(x, int | float)]
    made["rate"] = float(np.mean(large)) if large else None
    for name in ("p1", "p2", "p"):
        made[f"count_{name}"] = sum(row[1]["who"] == name for row in rows)
    if people:
        made["people"] = firsts
    return made


def quantiles(rows: Sequence[Row]) -> list[float]:
    """The exact ones, of numbers that were not rounded."""
    latencies = numbers(rows, "latency", 0.01, 5, 2.0**-40)
    if not len(latencies):
        return []
    return [float(np.quantile(latencies, q, method="inverted_cdf")) for q in Q]


def check(
    release: dp.TickRelease,
    rows: Sequence[Row],
    people: bool = False,
    firsts: int = 0,
) -> None:
    """That a release says what these events say; intervals only if that is all but exact."""
    given = release.values
    for name, expected in said(rows, people, firsts).items():
        found: Any = given[name]
        if expected is None:
            assert found is None, name
        else:
            assert abs(found - expected) < 1e-6 * (1 + abs(expected)), (name, found, expected)
    exact, names = quantiles(rows), list(release.names)
    n = len(numbers(rows, "latency", *LATENCY))
    for first in ("p5_latency", "p5_linear"):
        start = names.index(first)
        for i, x in enumerate(exact, start=start):
            name = names[i]
            value, low, high = release.values[name], release.lows[name], release.highs[name]
            assert value is not None
            bucket = 5 / 256 if first == "p5_linear" else x * (500 ** (1 / 256) - 1)
            assert abs(value - x) <= 1.001 * bucket, (name, value, x)
            if release.notes[name] == "":
                assert low is not None
                assert high is not None
                assert low <= value <= high
                assert low - 1e-9 <= x <= high + 1e-9
                rank = Q[i - start] * n
                # Where a rank is whole, all numbers between two are quantiles.
                assert high - low <= 3.01 * bucket or abs(rank - round(rank)) < 1e-6
        if not exact:
            assert release.notes[first] == "too small"


def aggregate(people: dp.Users | None = None, **options: Any) -> dp.TickCount:
    given: dict[str, Any] = {"budget": EXACT, "keys": KEYS, **CLOCK, "users": people}
    given |= {"what": metrics(people is not None), **options}
    return counted(**given)


__all__ = ["aggregate", "check", "log", "metrics", "who"]

"""Events with fields, and what a TickCount should say of them in each view, in plain Python."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

import beam_dpcount as dp
from beam_dpcount.counters.clock import Clock, Each, Last, Restart
from tests.runners import SECOND, Row

TICK, TICKS = 10, 8
CLOCK = dp.Clock(TICK, start=0, ticks=TICKS)
KEYS = ("b", "a", "none")
ALL = 1000  # more events than anybody has
Q = (0.1, 0.5, 0.9)

THINGS: dict[str, Callable[[], Any]] = {
    "count": dp.Count,
    "sum": lambda: dp.Sum("ms", -3, 5, unit=0.5),
    "mean": lambda: dp.Mean("ms", -3, 5, unit=0.5),
    "variance": lambda: dp.Variance("ms", -3, 5, unit=0.5),
    "quantiles": lambda: dp.Quantiles("ms", -3, 5, Q, leaves=16),
    "rate": lambda: dp.Rate("level = ERROR"),
    "people": dp.People,
    "items": lambda: dp.Items("action", ["view", "buy"]),
}
VIEWS: dict[str, Any] = {
    "so far": CLOCK,
    "each": CLOCK.each(),
    "last": CLOCK.last(3),
    "restart": CLOCK.restart(4),
}


def counted(
    budget: Any,
    what: Any = THINGS["count"](),
    *,
    tick: Any,
    start: Any,
    horizon: int | None = None,
    stop: Any = None,
    last: Any = None,
    restart: Any = None,
    **options: Any,
) -> dp.TickCount:
    """A TickCount of a view of a clock: of so many last ticks, restarting, or so far."""
    clock = dp.Clock(tick, start, horizon, stop)
    view = clock if last is None else clock.last(last)
    return dp.TickCount(
        budget, view if restart is None else clock.restart(restart), what, **options
    )


def log(n: int = 120, seed: int = 1, people: int = 7) -> list[Row]:
    """Events of a few people under three keys, one of them unlisted, by time."""
    chance = random.Random(seed)
    rows: list[Row] = []
    for micros in sorted(chance.sample(range((TICKS - 1) * TICK * SECOND), n)):
        payload = {"who": f"p{len(rows) % people}", "ms": chance.choice([-5, -1, 0.3, 2, 9])}
        payload["level"] = chance.choice(["ERROR", "INFO"])
        payload["action"] = chance.choice(["view", "buy", "other"])
        del payload[chance.choice(["ms", "level", "action", "who"])]
        payload.setdefault("who", None if people > 7 or chance.random() < 0.5 else "p1")
        rows.append((chance.choice("aabc"), payload, micros))
    return rows


def counts_in(view: Any, event: int, tick: int) -> bool:
    """Whether an event of one tick counts in the release of another."""
    if isinstance(view, Clock):
        return event <= tick
    if isinstance(view, Each):
        return event == tick
    if isinstance(view, Last):
        return tick - view.ticks < event <= tick
    assert isinstance(view, Restart)
    return event <= tick and (event - 1) // view.ticks == (tick - 1) // view.ticks


def _numbers(payloads: Iterable[Mapping[str, Any]]) -> np.ndarray:
    given = [payload["ms"] for payload in payloads if "ms" in payload]
    return np.rint(np.clip(np.array(given, dtype=float), -3, 5) / 0.5) * 0.5


def exact(thing: str, payloads: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    """What there is to say of these events; None if there is nothing."""
    numbers = _numbers(payloads)
    levels = [payload["level"] == "ERROR" for payload in payloads if "level" in payload]
    actions = [payload.get("action") for payload in payloads]
    there = len(numbers) > 0
    match thing:
        case "count":
            return {"count": len(payloads)}
        case "sum":
            return {"sum_ms": numbers.sum()}
        case "mean":
            return {"mean_ms": numbers.mean() if there else None}
        case "variance":
            return {"variance_ms": numbers.var() if there else None}
        case "quantiles":
            cut = np.clip([p["ms"] for p in payloads if "ms" in p], -3, 5)
            found = [np.quantile(cut, q, method="inverted_cdf") if there else None for q in Q]
            return dict(zip(("p10_ms", "p50_ms", "p90_ms"), found, strict=True))
        case "rate":
            return {"rate": float(np.mean(levels)) if levels else None}
        case "people":
            return {"people": len({payload["who"] for payload in payloads} - {None})}
    return {f"count_{item}": actions.count(item) for item in ("view", "buy")}


def expected(
    thing: str, view: Any, rows: Sequence[Row], total: bool, people: bool
) -> dict[tuple[str, int], dict[str, float | None]]:
    """What each release should say, by key and tick."""
    found: dict[tuple[str, int], dict[str, float | None]] = {}
    for key in ("all",) if total else ("a", "b", "c", "none"):
        mine = [row for row in rows if total or row[0] == key]
        if people:
            mine = [row for row in mine if row[1]["who"] is not None]
        for tick in range(1, TICKS + 1):
            ticks = ((payload, micros // (TICK * SECOND) + 1) for _, payload, micros in mine)
            said = exact(thing, [p for p, event in ticks if counts_in(view, event, tick)])
            found[key, tick] = {name + view.suffix: value for name, value in said.items()}
    return found


def is_near(thing: str, value: float | None, truth: float | None) -> bool:
    """Whether a release says what it should; a quantile up to its bucket."""
    if truth is None or value is None:
        return truth is value
    allowed = 1.001 * 8 / 16 if thing == "quantiles" else 1e-5
    return abs(value - truth) <= allowed

"""What releases of transforms cost, beside their budget: several periods of one person."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from beam_dpcount.budget.account_text import NO_GUARANTEE
from beam_dpcount.budget.budgets import ApproxDP
from beam_dpcount.budget.conversions import USUAL_DELTA, check_delta, float_up
from beam_dpcount.checks import ParameterError
from beam_dpcount.counters.period_costs import (
    TogetherCosts,
    epsilon_left,
    refusal,
    together,
)


def costs_of(engines: Sequence[Any]) -> TogetherCosts | None:
    """What several periods of one person cost in engines that share a budget; None: it has none."""
    found = [engine.period_costs for engine in engines]
    return None if any(part is None for part in found) else TogetherCosts(tuple(found))


def usual_delta(engines: Sequence[Any]) -> float:
    """At which costs are printed: the delta of the budget, or a usual one."""
    given = getattr(engines[0], "_whole_budget", engines[0]._budget)
    if isinstance(given, ApproxDP):
        return given.delta
    return float_up(USUAL_DELTA + sum(engine._keys_delta for engine in engines))


def together_of(engines: Sequence[Any]) -> str:
    """What several periods of one person cost together, in words."""
    costs = costs_of(engines)
    ends = not engines[0]._sentence_clock().is_endless
    return "" if costs is None else costs.lines(usual_delta(engines), ends)


def together_anywhere(engines: Sequence[Any]) -> str:
    """The same; of a stream, too, where the path is not known yet and they cost more there."""
    said = together_of(engines)
    if said and not all(engine._path_known for engine in engines):
        in_a_stream = together_of([engine.on_path(True) for engine in engines])
        said += f" (in a stream: {in_a_stream})" * (in_a_stream != said)
    return said


def epsilon_of(
    engines: Sequence[Any], delta: float | None, periods: int | None, age: int | None = None
) -> float:
    """As `TickCount.epsilon_at` says."""
    if age is not None and periods is not None:
        problem = "is of one event, and periods are of one person"
        raise ParameterError("age", problem, "give one of the two")
    at = usual_delta(engines) if delta is None else check_delta(delta)
    if periods is not None:
        costs = costs_of(engines)
        if costs is None:
            raise refusal()
        found = costs.epsilon(at, periods)
    else:
        shown = [Fraction(e.selection.delta) for e in engines if e.selection is not None]
        counters = [engine.counter for engine in engines]
        cost = together([c.costs()[0] if age is None else c.aged_cost(age) for c in counters])
        found = epsilon_left(cost, Fraction(at), sum(shown, Fraction(0)))
    if found is None:
        raise ValueError(f"at delta = {at:g} there is {NO_GUARANTEE}; give a larger delta")
    return found

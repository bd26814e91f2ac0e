"""Persons per element, where each element changes a step of its own: what they change in all."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import beam_dpcount as dp
from beam_dpcount import mechanisms
from beam_dpcount.counters.users import group_of
from beam_dpcount.statistics.graph_counts import Triangles
from beam_dpcount.statistics.items import Items
from beam_dpcount.statistics.numbers import Numbers


@pytest.mark.parametrize("kind", mechanisms.ALL, ids=lambda kind: kind.__name__)
def test_elements_with_steps_of_their_own_cost_less(kind: Any) -> None:
    """Every placement of up to 4 elements in 7 steps, and all contents: bounded."""
    T = 7
    mechanism = kind(T)
    R = mechanism.encoder(T)
    for low, high, relation in ((0, 1, "replace_one"), (-1, 2, "add_remove")):
        one = dp.Change(low, high, relation)
        m = one.magnitude(1)
        for k in range(1, 5):
            change = group_of(one, k, k, False, own_step=True)
            l1, squared = change.norms(mechanism, 1, None)
            fine = mechanism.resolution(m, one.largest(1))
            found = (0.0, 0.0)
            for steps in itertools.combinations(range(T), k):
                for d in itertools.product((-m, 0, m), repeat=k):
                    moved = R[:, list(steps)] @ np.array(d)
                    found = max(found[0], np.abs(moved).sum()), max(found[1], (moved**2).sum())
            assert found[0] <= float(l1) / fine * (1 + 1e-12)
            assert found[1] <= float(squared) / fine**2 * (1 + 1e-12)
            assert squared <= group_of(one, k, k, False).norms(mechanism, 1, None)[1]
            assert k > 1 or found[1] >= float(squared) / fine**2 / (1 + 1e-3)


@pytest.mark.parametrize("relation", ["replace_one", "add_remove"])
@pytest.mark.parametrize("removals", [False, True])
def test_items_of_elements_with_steps_of_their_own(relation: Any, removals: bool) -> None:
    """Up to two items of three in each of two steps of four, before and after."""
    mechanism = mechanisms.SmoothBinary(4)
    R = mechanism.encoder(4)
    one = Items(("a", "b", "c"), 2, removals).change(relation)
    signs = (-1, 1) if removals else (1,)
    contents = {(0, 0, 0)}
    for n in (1, 2):
        for places in itertools.combinations(range(3), n):
            for sign in itertools.product(signs, repeat=n):
                row = [0, 0, 0]
                for place, s in zip(places, sign, strict=True):
                    row[place] = s
                contents.add((row[0], row[1], row[2]))
    others = contents if relation == "replace_one" else {(0, 0, 0)}
    moves = {tuple(np.subtract(a, b)) for a in contents for b in others}
    l1, squared = group_of(one, 2, 2, False, own_step=True).norms(mechanism, 1, 3)
    found = 0.0
    for steps in itertools.combinations(range(4), 2):
        for both in itertools.product(moves, repeat=2):
            moved = R[:, list(steps)] @ np.array(both)
            assert np.abs(moved).sum() <= l1
            found = max(found, float((moved**2).sum()))
    assert found <= float(squared) * (1 + 1e-12)
    assert removals or found >= 0.7 * float(squared)


def test_elements_of_which_nothing_is_proved_keep_the_square() -> None:
    """A class of the user's, and one made of ours; and what depends on other elements."""

    class Mine(Items):
        pass

    class Doubled(Numbers):
        pass

    assert Items(("a",)).own_step
    assert Numbers(0, 1, 1).own_step
    assert not Mine(("a",)).own_step
    assert not Doubled(0, 1, 1).own_step
    assert not Triangles(4, max_degree=2).own_step
    users: dict[str, Any] = {"horizon": 100, "users": dp.Users("user", 5, per_key=5)}
    plain: Any = dp.PrefixCount(dp.ZCDP(0.5), value=len, **users).counter
    items: Any = dp.Histogram(dp.ZCDP(0.5), domain=["a"], value=str, **users).counter
    edges: Any = dp.EdgeCount(dp.ZCDP(0.5), vertices=5, **users).counter
    assert plain.change.own_step
    assert items.change.own_step
    assert not edges.change.own_step

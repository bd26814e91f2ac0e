"""`Mechanism.after`: the state after empty steps, as the steps themselves make it."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import beam_dpcount as dp
from beam_dpcount.counters.counter import Counter
from beam_dpcount.dofns.states import StateCodec
from beam_dpcount.mechanisms.base import Mechanism
from beam_dpcount.noise.laws import DiscreteGaussian
from tests.scripted import Script, random_script

MADE: list[Any] = [
    *dp.mechanisms.ALL,
    lambda T: dp.mechanisms.SmoothBinary(T, balanced=True),
    lambda T: dp.mechanisms.KAry(T, subtraction=False),
    lambda T: dp.mechanisms.KAry(T, arity=3),
    lambda T: dp.mechanisms.TwoLevel(T, block=1),
    lambda T: dp.mechanisms.Binned(T, momentum=0.5, decay=0.9),
    lambda T: dp.mechanisms.SquareRoot(T, momentum=0.5, decay=0.9),
]
NAMES = [repr(make(5)) for make in MADE]
over_mechanisms = pytest.mark.parametrize("make", MADE, ids=NAMES)


def stepped(mechanism: Mechanism, n: int, noise: Any, dimension: int | None) -> Any:
    """The state after n empty steps, taken one by one."""
    return Mechanism.after(mechanism, n, noise, dimension)


def packed(mechanism: Mechanism, state: Any, dimension: int | None) -> bytes:
    counter = Counter(
        mechanism, dp.ZCDP(1.0), DiscreteGaussian(Fraction(1)), dp.Change(), dimension, 1
    )
    return StateCodec(counter).encode(state)


def same(a: Any, b: Any) -> bool:
    """Whether two states are equal in their types, too."""
    kinds = [getattr(x, "dtype", type(x)) for x in a] == [getattr(x, "dtype", type(x)) for x in b]
    return (
        kinds and len(a) == len(b) and all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))
    )


@over_mechanisms
@pytest.mark.parametrize("dimension", [None, 3])
def test_it_is_the_state_that_empty_steps_make(make: Any, dimension: int | None) -> None:
    for horizon in (1, 2, 7, 37):
        mechanism = make(horizon)
        script = random_script(mechanism.draws(horizon), dimension)
        for n in range(horizon + 1):
            found = mechanism.after(n, Script(script.z), dimension)
            expected = stepped(mechanism, n, Script(script.z), dimension)
            assert same(found, expected), (horizon, n)
            assert packed(mechanism, found, dimension) == packed(mechanism, expected, dimension)


@over_mechanisms
def test_long_ones_too_and_steps_go_on_from_there(make: Any) -> None:
    horizon = 700  # several blocks of a BLT
    mechanism = make(horizon)
    script = random_script(mechanism.draws(horizon), seed=2)
    state = mechanism.init()
    for n in range(horizon + 1):
        if n in (0, 1, 31, 32, 33, 255, 256, 511, 512, 600, 699, 700):
            assert same(mechanism.after(n, Script(script.z)), state), n
        if n < horizon:
            state, _ = mechanism.step(state, 0, Script(script.z))
    state, value = mechanism.step(mechanism.after(699, Script(script.z)), 5, Script(script.z))
    whole = mechanism.release(np.array([0] * 699 + [5]), Script(script.z))
    assert value == whole[-1]


@over_mechanisms
def test_no_noise_is_drawn_twice_or_early(make: Any) -> None:
    mechanism = make(37)
    for n in range(38):
        script = random_script(mechanism.draws(37))
        mechanism.after(n, script)
        assert len(set(script.drawn)) == len(script.drawn)
        assert max(script.drawn, default=0) <= mechanism.draws(n)


def test_a_tree_draws_what_its_state_holds() -> None:
    for kind in (dp.mechanisms.BinaryTree, dp.mechanisms.SmoothBinary):
        mechanism = kind(1000)
        for n in (0, 1, 512, 700, 1000):
            script = random_script(1000)
            state = mechanism.after(n, script)
            assert len(script.drawn) == len(state) - mechanism.counters - 1
    script = random_script(1000)
    dp.mechanisms.BinaryTree(1000).after(0b1011010, script)
    assert len(script.drawn) == 4


@over_mechanisms
def test_columns_do_not_depend_on_each_other(make: Any) -> None:
    """A column alone and among others is the same to the last bit: else it would tell of them."""
    mechanism = make(300)
    wide = random_script(mechanism.draws(300), 7).z
    for n in (1, 100, 255, 300):
        whole = mechanism.after(n, Script(wide), 7)
        alone = mechanism.after(n, Script(wide[:, 4:5]), 1)
        count = mechanism.counters
        assert whole[:count] == alone[:count]
        for all_of_it, one in zip(whole[count:], alone[count:], strict=True):
            assert all_of_it[4:5].tobytes() == one.tobytes()


@over_mechanisms
def test_the_horizon_holds(make: Any) -> None:
    with pytest.raises(dp.HorizonError):
        make(5).after(6, random_script(20))

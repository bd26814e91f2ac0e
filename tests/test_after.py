"""The state after n empty steps: as n steps of 0 leave it, bit for bit, over mechanisms.ALL.

There is no skip list: a new mechanism is covered by being listed, and by the contract's default.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import beam_dpcount as dp
from beam_dpcount import mechanisms
from beam_dpcount.errors import HorizonError
from beam_dpcount.mechanisms import (
    BLT,
    BinaryTree,
    Binned,
    BridgedKAry,
    KAry,
    Mechanism,
    NormalizedBLT,
    SmoothBinary,
    SquareRoot,
    TwoLevel,
)
from beam_dpcount.mechanisms.base import zero
from beam_dpcount.noise.replay import StepNoises
from beam_dpcount.states.codecs import StateCodec
from tests.scripted import Script, random_script

Make = Callable[[int], Mechanism]
MAKES: dict[str, Make] = {
    **{kind.__name__: kind for kind in mechanisms.ALL},
    "TwoLevel of 1": lambda horizon: TwoLevel(horizon, 1),
    "TwoLevel of all": lambda horizon: TwoLevel(horizon, horizon),
    "SmoothBinary, balanced": lambda horizon: SmoothBinary(horizon, balanced=True),
    "KAry of 3": lambda horizon: KAry(horizon, 3),
    "KAry of 9": lambda horizon: KAry(horizon, 9),
    "KAry, added": lambda horizon: KAry(horizon, subtraction=False),
    "KAry of 2, added": lambda horizon: KAry(horizon, 2, subtraction=False),
    "BridgedKAry of 2": lambda horizon: BridgedKAry(horizon, 2),
    "BridgedKAry of 9": lambda horizon: BridgedKAry(horizon, 9),
    "SquareRoot, fading": lambda horizon: SquareRoot(horizon, momentum=0.3, decay=0.9),
    "Binned, fading": lambda horizon: Binned(horizon, momentum=0.3, decay=0.9),
    "Binned, coarse": lambda horizon: Binned(horizon, c=0.3, tau=0.1),
    "BLT of 2": lambda horizon: BLT(horizon, 2),
    "NormalizedBLT of 8": lambda horizon: NormalizedBLT(horizon, 8),
}
every = pytest.mark.parametrize("name", MAKES)
DEFAULT = Mechanism.after
dimensions = pytest.mark.parametrize("dimension", [None, 3], ids=["scalar", "vector"])


def bits(state: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """All that a state's numbers are, the sign of a zero too."""
    arrays = [(value, np.asarray(value)) for value in state]
    return [(type(value), a.dtype.str, a.shape, a.tobytes()) for value, a in arrays]


def stepped(mechanism: Mechanism, noise: Script, dimension: int | None) -> Iterator[Any]:
    """The states after 0, 1, ... empty steps, up to the horizon."""
    state = mechanism.init(dimension)
    yield state
    for _ in range(mechanism.horizon):
        state, _ = mechanism.step(state, zero(dimension), noise)
        yield state


def check(mechanism: Mechanism, n: int, noise: Script, expected: Any, dimension: Any) -> Script:
    """The noise from which it made the state after n steps, which is the expected one."""
    drawn = Script(noise.z)
    state = mechanism.after(n, drawn, dimension)
    assert bits(state) == bits(expected), (mechanism, n)
    # In ascending order, as `StepNoises` needs them, none twice, and none that is yet to come.
    assert drawn.drawn == sorted(set(drawn.drawn))
    assert set(drawn.drawn) <= set(range(1, mechanism.draws(n) + 1))
    return drawn


@pytest.mark.slow
@pytest.mark.exhaustive("dimension", "name")
@every
@dimensions
def test_it_is_the_state_that_empty_steps_leave(name: str, dimension: int | None) -> None:
    for horizon in (*range(1, 10), 16, 33, 64, 100):
        mechanism = MAKES[name](horizon)
        noise = random_script(mechanism.draws(horizon), dimension, seed=horizon)
        states = stepped(mechanism, Script(noise.z), dimension)
        for n, expected in enumerate(states):
            check(mechanism, n, noise, expected, dimension)


@pytest.mark.slow
@pytest.mark.exhaustive("dimension", "name")
@every
@dimensions
def test_so_it_is_after_many_steps_and_with_large_noise(name: str, dimension: int | None) -> None:
    """About ends of a BLT's blocks (of 64 steps) and a column scale of two steps, 1024 from the
    end; with noise of more digits than a double has."""
    mechanism = MAKES[name](1500)
    rows = mechanism.draws(1500)
    noise = random_script(rows, dimension, seed=2, spread=2**54)
    noise.z[: rows // 2] >>= 30
    chosen = {1, 63, 64, 65, 128, 475, 476, 477, 478, 729, 1000, 1023, 1024, 1472, 1499, 1500}
    for n, expected in enumerate(stepped(mechanism, Script(noise.z), dimension)):
        if n in chosen:
            check(mechanism, n, noise, expected, dimension)


@pytest.mark.exhaustive  # ten thousand steps of each
@pytest.mark.parametrize("name", ["BLT", "NormalizedBLT", "Honaker", "SmoothBinary", "KAry"])
def test_so_it_is_at_long_horizons(name: str) -> None:
    mechanism = MAKES[name](10_000)
    noise = random_script(mechanism.draws(10_000), 2, seed=3)
    for n, expected in enumerate(stepped(mechanism, Script(noise.z), 2)):
        if n % 997 == 0 or n % 1280 in (0, 1) or n == 10_000:
            check(mechanism, n, noise, expected, 2)


@every
@dimensions
def test_a_stream_goes_on_from_it_as_if_it_had_run_all_along(
    name: str, dimension: int | None
) -> None:
    mechanism = MAKES[name](70)
    noise = random_script(mechanism.draws(70), dimension, seed=4)
    xs = np.random.default_rng(5).integers(-9, 10, (70, *np.shape(zero(dimension))))
    for n in (0, 1, 15, 16, 31, 50, 69, 70):
        xs[:n] = 0
        released = mechanism.release(xs, Script(noise.z))
        state, rest = mechanism.after(n, Script(noise.z), dimension), Script(noise.z)
        for t in range(n, 70):
            x = int(xs[t]) if dimension is None else xs[t]
            state, value = mechanism.step(state, x, rest)
            assert np.array_equal(value, released[t]), (n, t)
        assert rest.drawn == [*range(mechanism.draws(n) + 1, mechanism.draws(70) + 1)]
        xs = xs[::-1].copy()


@every
def test_a_stream_is_the_same_alone_and_among_others(name: str) -> None:
    for horizon, n in ((40, 39), (300, 256), (300, 271)):
        mechanism = MAKES[name](horizon)
        noise = random_script(mechanism.draws(horizon), 7, seed=6, spread=2**40)
        many = mechanism.after(n, noise, 7)
        for column in range(7):
            z = noise.z[:, [column]]
            one = mechanism.after(n, Script(z), 1)
            alone = mechanism.after(n, Script(z[:, 0]))
            of_many = [v if np.ndim(v) == 0 else v[[column]] for v in many]
            assert bits(one) == bits(tuple(of_many))
            assert bits(alone) == bits(tuple(v if np.ndim(v) == 0 else v[0].item() for v in one))


@every
@dimensions
def test_states_are_stored_as_the_same_bytes(name: str, dimension: int | None) -> None:
    mechanism = MAKES[name](40)
    budget = dp.ZCDP(0.5) if "gaussian" in mechanism.laws else dp.PureDP(1.0)
    codec = StateCodec(dp.calibrate(mechanism, budget, dimension=dimension))
    noise = random_script(mechanism.draws(40), dimension)
    for n, expected in enumerate(stepped(mechanism, Script(noise.z), dimension)):
        state = mechanism.after(n, noise, dimension)
        assert codec.encode(state) == codec.encode(expected)


@every
@dimensions
def test_nothing_is_known_or_drawn_past_the_horizon(name: str, dimension: int | None) -> None:
    for horizon in (1, 7, 8):
        mechanism = MAKES[name](horizon)
        noise = random_script(99, dimension)
        with pytest.raises(HorizonError, match=f"{horizon + 1} steps .* horizon of {horizon}"):
            mechanism.after(horizon + 1, noise, dimension)
        assert noise.drawn == []


@pytest.mark.parametrize("name", [n for n in MAKES if type(MAKES[n](9)).after is not DEFAULT])
def test_no_step_is_taken_by_those_that_know_better(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mechanism = MAKES[name](2000)
    noise = random_script(mechanism.draws(2000))
    monkeypatch.setattr(type(mechanism), "step", None)
    for n in (0, 1, 1024, 1999, 2000):
        assert mechanism.after(n, noise)[0] == n


def test_few_coordinates_are_drawn() -> None:
    held = {
        "Simple1": lambda _: 0,
        "TwoLevel": lambda state: state[0] // 10 + state[0] % 10,
        "BinaryTree": lambda state: state[0].bit_count(),
        "SmoothBinary": lambda state: len(state) - 4,
        "SmoothBinary, balanced": lambda state: len(state) - 4,
        "KAry": lambda state: len(state) - 4,
        "KAry, added": lambda state: len(state) - 4,
    }
    for name, count in held.items():
        mechanism = MAKES[name](100)
        noise = random_script(mechanism.draws(100))
        for n, state in enumerate(stepped(mechanism, Script(noise.z), None)):
            assert len(check(mechanism, n, noise, state, None).drawn) == count(state)


def test_long_streams_of_trees_cost_nothing() -> None:
    """Nobody could take 2^47 steps."""

    class Numbered:
        def one(self, coordinate: int) -> int:
            return coordinate

    mechanism, n = BinaryTree(2**48), 2**47 + 2**20 + 1
    assert mechanism.after(n, Numbered()) == (n, 0, 2**47, 2**47 + 2**20, n)  # type: ignore[arg-type]
    smooth = SmoothBinary(2**48)
    state = smooth.after(n, Numbered())  # type: ignore[arg-type]
    assert state[2:4] + state[-1:] == (n, 0, n)
    assert len(state) - 4 == smooth.row_norm2(n)


@pytest.mark.parametrize("name", [name for name in MAKES if not MAKES[name](9).draws_early])
def test_replayed_noise_serves_it(name: str) -> None:
    """Each coordinate takes the noise of its step's history, and only forwards."""
    mechanism, n = MAKES[name](60), 55

    class OfStep:
        def __init__(self, step: int) -> None:
            self.step = step

        def one(self, coordinate: int) -> int:
            return 1000 * self.step + coordinate

    def noise() -> Any:
        return StepNoises(map(OfStep, range(1, n + 1)), mechanism.draws)

    state = mechanism.init()
    whole = noise()
    for _ in range(n):
        state, _ = mechanism.step(state, 0, whole)
    assert bits(mechanism.after(n, noise())) == bits(state)

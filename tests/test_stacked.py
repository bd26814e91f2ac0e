"""Finished streams released side by side: each as it would come out alone, with its own draws."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import beam_dpcount as dp
from beam_dpcount import mechanisms
from beam_dpcount.dofns import elements
from beam_dpcount.noise.entropy import SystemNoise
from beam_dpcount.states import stacked
from beam_dpcount.states.stacked import Stream, past, released
from tests.scripted import KeyedScript, Script

BUDGET = dp.ApproxDP(1.0, 1e-6)
# What draws early draws its coordinates in another order, and is counted key by key.
KINDS = [kind for kind in mechanisms.ALL if not kind(40).draws_early]


def stream(key: str, steps: list[tuple[int, int]]) -> Stream:
    return Stream(key, None, b"".join(struct.pack("<qq", *step) for step in steps))


def some_streams(sizes: list[int], seed: int = 1) -> list[Stream]:
    rng = np.random.default_rng(seed)
    made = []
    for i, n in enumerate(sizes):
        steps = zip(range(100, 100 + n), rng.integers(0, 2, n).tolist(), strict=True)
        made.append(stream(f"k{i}", list(steps)))
    return made


def released_all(counter: Any, streams: list[Stream], noise_of: Any) -> list[Any]:
    found = released(counter, streams, noise_of, counter.draws)
    return [(stream.key, list(steps)) for stream, steps in found]


def scripted(stream: Stream) -> KeyedScript:
    return KeyedScript(stream.key, stream.window, None, 1000)


def alone(counter: Any, streams: list[Stream]) -> list[Any]:
    """Key by key, step by step."""
    made = []
    for s in streams:
        steps = sorted(struct.iter_unpack("<qq", s.packed), key=lambda step: step[0])
        state, noise, values = counter.init(), scripted(s), []
        for micros, x in steps[: counter.horizon]:
            state, value = counter.step_lattice(state, x, noise)
            values.append((micros, value))
        made.append((s.key, values))
    return made


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize(
    "sizes",
    [[1], [3, 3, 3], [1, 2, 16, 17, 5], [40, 1, 33, 38, 39, 20, 21], [0, 2, 0, 1]],
    ids=str,
)
def test_each_comes_out_as_it_would_alone(kind: Any, sizes: list[int]) -> None:
    counter = dp.calibrate(kind(40), BUDGET)
    streams = some_streams(sizes)
    assert released_all(counter, streams, scripted) == alone(counter, streams)


def test_steps_are_taken_by_time_and_those_of_one_time_as_they_come() -> None:
    counter = dp.calibrate(mechanisms.NormalizedBLT(9), BUDGET)
    streams = [
        stream("a", [(5, 1), (3, 0), (5, 0), (-2, 1)]),
        stream("b", [(1, 1), (2, 1), (2, 0)]),
        stream("c", [(0, 1)]),
    ]
    found = released_all(counter, streams, scripted)
    assert found == alone(counter, streams)
    assert [micros for micros, _ in found[0][1]] == [-2, 3, 5, 5]


def test_steps_beyond_the_horizon_give_nothing_and_draw_nothing() -> None:
    counter = dp.calibrate(mechanisms.SmoothBinary(4), BUDGET)
    streams = some_streams([7, 4, 2, 5])
    assert past(streams, 4) == (4, 4)
    assert past(streams, None) == (0, 7)
    assert past(streams, 100) == (0, 7)
    found = released_all(counter, streams, scripted)
    assert found == alone(counter, streams)
    assert [len(steps) for _, steps in found] == [4, 4, 2, 4]


def test_a_stream_says_nothing_of_another() -> None:
    """Bit for bit: with one stream longer, of other numbers, or gone, the others are the same."""
    counter = dp.calibrate(mechanisms.NormalizedBLT(100), BUDGET)
    streams = some_streams([20, 24, 19, 1, 22, 60])
    whole = dict(released_all(counter, streams, scripted))
    others = [
        [streams[0], *some_streams([24] * 2, 9)[1:], *streams[2:]],
        [streams[0], stream("k1", [(100, 1)]), *streams[2:]],
        [streams[0], *streams[2:]],
    ]
    for changed in others:
        found = dict(released_all(counter, changed, scripted))
        assert {key: found[key] for key in found if key != "k1"} == {
            key: whole[key] for key in found if key != "k1"
        }


def test_every_step_has_a_draw_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """From one pool: as many draws as steps, and none is in two releases."""
    counter = dp.calibrate(mechanisms.Simple2(50), BUDGET)  # each release adds one draw
    taken, draw = [], SystemNoise.draw

    def watched(self: SystemNoise, first: int, n: int) -> Any:
        z = draw(self, first, n) * 0 + (1 << len(taken) % 40) + np.arange(n)
        taken.append(n)
        return z

    monkeypatch.setattr(SystemNoise, "draw", watched)
    noise = SystemNoise(counter.law)
    sizes = [3, 50, 17, 20, 19, 1, 1, 48]
    streams = [stream(f"k{i}", [(t, 0) for t in range(n)]) for i, n in enumerate(sizes)]
    found = released_all(counter, streams, lambda stream: noise)
    assert sum(taken) == sum(sizes)
    seen = []
    for _, steps in found:
        seen += np.diff([0.0, *[value for _, value in steps]]).tolist()
    assert 0 not in seen  # padding has no noise; all that is released has
    assert len(seen) == sum(sizes)


def test_noise_of_one_object_for_all_is_asked_key_by_key_unless_it_is_the_systems() -> None:
    counter = dp.calibrate(mechanisms.BinaryTree(9), BUDGET)
    script = Script(np.arange(100, 109))
    found = released_all(counter, some_streams([3, 3, 3]), lambda stream: script)
    assert found[0][1] != []
    assert script.drawn == [1, 2, 3] * 3


@pytest.mark.parametrize("name", ["NormalizedBLT", "BinaryTree"])
def test_long_streams_in_blocks_are_released_as_whole_ones(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside short ones, beyond the horizon, and with as many draws, in order."""
    counter = dp.calibrate(getattr(mechanisms, name)(60), BUDGET)
    streams = some_streams([3, 70, 40, 0, 60, 9])
    script = lambda s: KeyedScript(s.key, s.window, None, 50)  # noqa: E731
    expected = released_all(counter, streams, script)
    monkeypatch.setattr(stacked, "_AT_ONCE", 8)
    assert released_all(counter, streams, script) == expected
    assert counter.goes_on == (name == "NormalizedBLT")


def test_no_more_than_some_steps_of_a_long_key_are_apart_at_a_time() -> None:
    """A runner reads them bit by bit; a list of all takes six times the memory."""
    taken: list[int] = []

    def steps() -> Iterator[bytes]:
        for i in range(3 * elements._JOINED + 5):
            taken.append(i)
            yield struct.pack("<2q", i, 1)

    found = elements._joined(steps())
    assert found == b"".join(struct.pack("<2q", i, 1) for i in taken)
    assert elements._joined(iter(())) == b""

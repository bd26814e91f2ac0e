"""What counts cost, by numbers that no other program on the machine can change.

Draws, bytes of entropy, reads and writes of state, bytes kept, and allocations: each bound is a
little above what there is, so that a change that costs more is noticed. Times are in `make bench`.
"""

from __future__ import annotations

import gc
import os
import tracemalloc
from collections import Counter as Tally
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from apache_beam.runners.portability.fn_api_runner.worker_handlers import StateServicer

import beam_dpcount as dp
from beam_dpcount.states.codecs import StateCodec
from benchmarks import plain
from benchmarks.bench import state_bytes
from tests.scripted import Script

BUDGET = dp.ApproxDP(1.0, 1e-6)
HORIZON = 2**20
POOL = 4096  # samples that a worker may hold, unassigned


def prefix(path: str = "streaming", horizon: int = HORIZON) -> Any:
    return dp.PrefixCount(BUDGET, horizon, path=path)


def growth(cost: Callable[[int], float], few: int, more: int) -> float:
    """What one element more costs: what is there whatever their number does not count."""
    return (cost(more) - cost(few)) / (more - few)


# Draws


def test_a_step_takes_one_draw_and_a_release_no_more() -> None:
    counter, n = prefix(horizon=3000).counter, 3000
    stepped, whole = Script(np.zeros(n)), Script(np.zeros(n))
    state = counter.init()
    for t in range(1, n + 1):
        state, _ = counter.step_lattice(state, 1, stepped)
        assert len(stepped.drawn) == t
    counter.release(np.ones(n), whole)
    assert stepped.drawn == whole.drawn == [*range(1, n + 1)]


@pytest.mark.parametrize(
    ("budget", "most"),
    [(BUDGET, 8.3), (dp.ZCDP(0.05), 8.3), (dp.PureDP(1.0), 2.05)],
    ids=["approximate", "concentrated", "pure"],
)
def test_a_draw_takes_few_bytes_of_entropy(budget: Any, most: float) -> None:
    """Of large Gaussian noise four look-ups of 16 bits; of small noise one."""
    asked, n = [], 50_000

    def random_bytes(size: int) -> bytes:
        asked.append(size)
        return os.urandom(size)

    dp.PrefixCount(budget, HORIZON).counter.law.sample(n, random_bytes)
    assert sum(asked) < most * n
    assert len(asked) < 50  # calls of the system


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], list[int]]:
    """Of a counter: how many samples are drawn at once, of its law and no other."""

    def watch(counter: Any) -> list[int]:
        found, sample, law = list[int](), type(counter.law).sample, counter.law

        def watched(self: Any, n: int, *source: Any) -> Any:
            if self == law:
                found.append(n)
            return sample(self, n, *source)

        monkeypatch.setattr(type(law), "sample", watched)
        return found

    return watch


SHAPES = [(400, 1), (400, 40), (400, 400)]
each_shape = pytest.mark.parametrize(("elements", "keys"), SHAPES)


@pytest.mark.parametrize("path", ["bounded", "streaming"])
@each_shape
def test_elements_draw_once_each(path: str, elements: int, keys: int, drawn: Any) -> None:
    """All keys of a worker share one pool: else few elements of a key would cost a whole one."""
    count = prefix(path)
    found = drawn(count.counter)
    plain.seconds(elements, keys, count)
    assert elements <= sum(found) <= elements + POOL


@pytest.mark.parametrize("path", ["bounded", "streaming"])
def test_ticks_draw_once_each(path: str, drawn: Any) -> None:
    count = plain.ticks_of(path, 5, 20, BUDGET)
    found = drawn(count.counter)
    plain.seconds(1000, 5, count, releases=100, ticks=20)
    assert 100 <= sum(found) <= 100 + POOL


# State


def test_a_state_is_small_and_does_not_grow() -> None:
    """128 bytes at 2^20 at most: a head, a checksum, and the numbers of the mechanism."""
    (size,) = {*state_bytes(prefix(), 3000)}
    assert size <= 128
    sizes = [max(state_bytes(prefix(horizon=2**log))) for log in (10, 20, 30)]
    assert sizes[2] <= sizes[0] + 100
    histogram = dp.Histogram(BUDGET, HORIZON, [str(i) for i in range(100)])
    assert max(state_bytes(histogram, 10, np.ones(100, dtype=np.int64))) <= 100 * size


@pytest.fixture
def traffic(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bytes, int]]:
    """What a worker asks of its runner's state: what for, the key, and how many bytes come."""
    found: list[tuple[str, bytes, int]] = []

    def watch(name: str) -> None:
        method = getattr(StateServicer, name)

        def watched(self: Any, key: Any, *given: Any) -> Any:
            if key.WhichOneof("type") == "bag_user_state":
                size = len(given[0]) if name == "append_raw" else 0
                found.append((name, key.bag_user_state.key, size))
            return method(self, key, *given)

        monkeypatch.setattr(StateServicer, name, watched)

    for name in ("get_raw", "append_raw", "clear"):
        watch(name)
    return found


@each_shape
def test_a_key_reads_and_writes_its_state_once_a_bundle(
    elements: int, keys: int, traffic: list[tuple[str, bytes, int]]
) -> None:
    """However many elements it has; these come in one bundle."""
    count = prefix()
    plain.seconds(elements, keys, count)
    asked = Tally(name for name, _, _ in traffic)
    assert asked == dict.fromkeys(("get_raw", "append_raw", "clear"), keys)
    assert len({key for _, key, _ in traffic}) == keys
    written = sum(size for _, _, size in traffic)
    assert written <= keys * (max(state_bytes(count)) + 2)  # and their number, by Beam's coder


@each_shape
def test_a_key_encodes_its_state_once_a_bundle(
    elements: int, keys: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not once an element; these come in one bundle."""
    made = Tally[str]()

    def watch(name: str) -> None:
        method = getattr(StateCodec, name)

        def watched(self: Any, *given: Any) -> Any:
            made[name] += 1
            return method(self, *given)

        monkeypatch.setattr(StateCodec, name, watched)

    watch("encode")
    watch("decode")
    plain.seconds(elements, keys, prefix())
    assert made == {"encode": keys}


# Allocations


def peak(work: Callable[[], Any]) -> int:
    """The most bytes that are allocated at any moment, beyond those before."""
    gc.collect()
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.long
@pytest.mark.slow
def test_a_long_release_takes_few_bytes_a_step() -> None:
    """37 are measured: the input and the result are 16."""
    counter = prefix().counter
    xs = np.ones(2**18, dtype=np.int64)
    counter.release(xs[: 2**12])  # makes its tables
    assert growth(lambda n: peak(lambda: counter.release(xs[:n])), 2**16, 2**18) < 45


@pytest.mark.exhaustive
def test_a_long_key_takes_few_bytes_an_element() -> None:
    """Of a whole bounded pipeline: 52 are measured, and 40 of a GroupByKey with plain sums."""

    def cost(n: int) -> float:
        return peak(lambda: plain.seconds(n, 1, prefix("bounded")))

    cost(100)
    assert growth(cost, 20_000, 50_000) < 70

"""Sums that wait for their tick: as a plain dictionary has them, at a cost that does not grow."""

from __future__ import annotations

import random
from collections import Counter as Tally
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from apache_beam.runners.portability.fn_api_runner import worker_handlers
from hypothesis import given, settings
from hypothesis import strategies as st

import beam_dpcount as dp
from beam_dpcount.counters.clock import LARGEST
from beam_dpcount.states import pending
from beam_dpcount.states.pending import NEAR, add_pending, moved, placed, take_pending, tick_of
from beam_dpcount.states.wire import PAIR, pack_sums
from beam_dpcount.transforms.ticks import TickNumbers
from benchmarks.cells import Bag
from tests.runners import RUNNERS, SECOND, Row, feed, run, run_stream
from tests.scripted import ScriptedEntropy

examples = settings(max_examples=40, deadline=None, derandomize=True, database=None)


class Metered(Bag):
    """A bag that remembers how many bytes it took in and gave out."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = self.reads = self.calls = 0

    def add(self, entry: bytes) -> None:
        super().add(entry)
        self.calls, self.bytes = self.calls + 1, self.bytes + len(entry)

    def read(self) -> list[bytes]:
        self.reads += 1
        self.bytes += sum(map(len, self.entries))
        return super().read()


WIDTH = 3
CAPS = np.array([4, LARGEST, 40], dtype=np.int64)

# Ticks from the next one on, and what is added to sums; None: the next tick is released.
FAR = 10**12
additions = st.dictionaries(st.integers(0, WIDTH - 1), st.integers(-9, 9), min_size=1)
ahead = st.integers(1, 40) | st.sampled_from([1, 90, FAR, FAR + 1])
moves = st.lists(st.none() | st.tuples(ahead, additions), max_size=60)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "added", "near"),
    [(1, 1, 1), (5, 0, 2), (1, 7, 64), (pending.MORE, pending.ADDED, pending.NEAR)],
)
@examples
@given(given=moves)
def test_what_waits_follows_a_plain_dictionary(
    more: int, added: int, near: int, given: list[Any]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pending, "MORE", more)
        patch.setattr(pending, "ADDED", added)
        patch.setattr(pending, "NEAR", near)
        patch.setattr(pending, "CHUNK", 5 * PAIR.size)
        memory, bag, released = b"", Bag(), 0
        model: dict[int, Tally[int]] = defaultdict(Tally)
        for move in [*given, *[None] * 100]:
            if move is not None:
                step = released + move[0]
                data = placed(move[1], step, WIDTH)
                assert tick_of(PAIR.unpack_from(data)[0], WIDTH) == step
                memory = add_pending(memory, step, data, WIDTH, bag)
                for place, x in move[1].items():
                    model[step][place] += x
                continue
            released += 1
            x, memory = take_pending(memory, released, b"", WIDTH, CAPS, bag)
            due = model.pop(released, Tally())
            expected = [int(np.clip(due[i], -CAPS[i], CAPS[i])) for i in range(WIDTH)]
            assert x.tolist() == expected
        x, memory = take_pending(memory, 2 * FAR, b"", WIDTH, CAPS, bag)  # all that is far off
        due = Tally[int]()
        for tally in model.values():
            due.update(tally)
        assert x.tolist() == [int(np.clip(due[i], -CAPS[i], CAPS[i])) for i in range(WIDTH)]
        assert (len(memory), memory[24:], bag.entries) == (32, bytes(8), [])


@pytest.mark.parametrize("far", [2, 3, 50, FAR])
@pytest.mark.parametrize("width", [1, 3, 300])
def test_an_event_far_off_does_not_make_cells_grow(far: int, width: int) -> None:
    """Whatever waits, 10^4 bundles of the next ticks leave as much in a cell as there are sums."""
    memory, bag, taken = b"", Bag(), 0
    caps = np.full(width, LARGEST)
    sums = min(width, 3)  # to which a bundle adds
    one = dict.fromkeys(range(sums), 1)
    for step in (far, 1):
        memory = add_pending(memory, step, placed(one, step, width), width, bag)
    x, memory = take_pending(memory, 1, b"", width, caps, bag)
    taken += int(x.sum())
    ticks = max(1, pending.NEAR // width) + 1
    most, largest = 32 + 16 * (3 * ticks * sums + pending.ADDED + sums), 0
    for bundle in range(10_000):
        step = 2 + bundle % 2
        memory = add_pending(memory, step, placed(one, step, width), width, bag)
        largest = max(largest, len(memory))
    assert largest <= most
    assert sum(map(len, bag.entries)) <= 16 * (2 * 10 * sums + 2 * pending.MORE + sums)
    for step in range(2, 60):
        x, memory = take_pending(memory, step, b"", width, caps, bag)
        taken += int(x.sum())
        assert len(memory) <= most
    expected = sums * (10_000 + 1 + (far < 60))
    assert taken == expected


def test_an_event_far_off_does_not_keep_a_backlog_in_the_cell() -> None:
    """Of 10^4 ticks to come those near stay there, though one is due long after all of them."""
    memory, bag, most = b"", Bag(), 32 + 16 * (2 * 100 + pending.ADDED + 1)
    memory = add_pending(memory, FAR, placed({0: 1}, FAR, 1), 1, bag)
    x, memory = take_pending(memory, 1, b"", 1, CAPS[1:2], bag)
    for step in range(2, 10_002):
        memory = add_pending(memory, step, placed({0: 1}, step, 1), 1, bag)
        assert len(memory) <= most
    for step in range(2, 10_002):
        x, memory = take_pending(memory, step, b"", 1, CAPS[1:2], bag)
        assert (x[0], len(memory) <= most) == (1, True)


def test_sums_of_one_tick_become_those_of_another() -> None:
    data = placed({0: 5, 2: -1}, 4, WIDTH)
    assert moved(data, 9, WIDTH) == placed({0: 5, 2: -1}, 9, WIDTH)
    assert data == pack_sums({10: 5, 12: -1})


ORDERS: dict[str, Callable[[int], list[int]]] = {
    "in order": lambda n: [*range(1, n + 1)],
    "backwards": lambda n: [*range(n, 0, -1)],
    "shuffled": lambda n: random.Random(1).sample(range(1, n + 1), n),
    "again and again": lambda n: [1 + i * 7 % (n // 8) for i in range(n)],
}


@pytest.mark.parametrize("order", ORDERS)
def test_an_event_costs_the_same_however_much_waits(order: str) -> None:
    """In bytes of the cell, which is written anew each time, and of the bag."""

    def cost(n: int) -> tuple[int, int]:
        memory, bag, cells = b"", Metered(), 0
        for step in ORDERS[order](n):
            memory = add_pending(memory, step, placed({0: 1}, step, 1), 1, bag)
            cells += len(memory)
        assert sum(map(len, bag.entries)) <= PAIR.size * (2 * n + pending.MORE)
        taken = 0
        for step in range(1, n + 1):
            x, memory = take_pending(memory, step, b"", 1, CAPS[1:2], bag)
            cells, taken = cells + len(memory), taken + int(x[0])
        assert taken == n
        assert (bag.calls < 1.1 * n, bag.reads < n / 10) == (True, True)
        return cells, bag.bytes

    small, large = cost(1000), cost(16_000)
    assert large[0] < 16**1.1 * max(small[0], 1000 * NEAR * PAIR.size)
    assert large[1] < 2 * PAIR.size * 16_000**1.5  # copied only, at some GB a second


def test_sums_of_the_same_ticks_do_not_pile_up() -> None:
    memory, bag = b"", Metered()
    for i in range(50_000):
        step = 1 + i % 400
        memory = add_pending(memory, step, placed({0: 1}, step, 1), 1, bag)
        assert sum(map(len, bag.entries)) <= PAIR.size * (2 * (400 + pending.MORE) + 2 * NEAR)
    assert bag.reads < 50


# In pipelines


@pytest.fixture
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_handlers, "STATE_CACHE_SIZE_MB", 0)
    monkeypatch.setattr(pending, "NEAR", 2)
    monkeypatch.setattr(pending, "MORE", 6)


ROWS: list[Row] = [
    (key, i % 3, second * SECOND)
    for i, second in enumerate(random.Random(3).choices(range(400), k=300))
    for key in "ab"[: 1 + i % 2]
]


def counts(path: str) -> TickNumbers:
    return TickNumbers(
        *(dp.ZCDP(0.5), 10, 0),
        horizon=40,
        keys=["a", "b"],
        mechanism="SmoothBinary",
        bounds=(0, 2),
        entropy=ScriptedEntropy(),
        path=path,
    )


@pytest.mark.usefixtures("_few")
@pytest.mark.parametrize("runner", RUNNERS)
def test_a_backlog_is_counted_alike_on_every_runner(runner: str) -> None:
    expected = run(lambda p: p | feed(ROWS) | counts("bounded")).releases
    assert len(expected) == 80
    if runner == "bundles":
        marks = [150, 170, 400, 500]
        outcome = run_stream(counts("streaming"), *ROWS, *marks)
    else:
        outcome = run(lambda p: p | feed(ROWS) | counts("streaming"), runner)
    assert outcome.releases == expected


@pytest.mark.usefixtures("_few")
def test_a_cached_backlog_is_counted_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_handlers, "STATE_CACHE_SIZE_MB", 100)
    expected = run(lambda p: p | feed(ROWS) | counts("bounded")).releases
    assert run(lambda p: p | feed(ROWS) | counts("streaming")).releases == expected

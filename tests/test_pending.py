"""Sums that wait for their tick: as a plain dictionary has them, at a cost that does not grow."""

from __future__ import annotations

import random
from collections import Counter as Tally
from collections.abc import Callable
from typing import Any

import pytest
from apache_beam.runners.portability.fn_api_runner import worker_handlers
from hypothesis import given, settings
from hypothesis import strategies as st

import beam_dpcount as dp
from beam_dpcount.counters.clock import LARGEST
from beam_dpcount.dofns import pending
from beam_dpcount.dofns.pending import NEAR, add_pending, take_pending
from beam_dpcount.states.wire import PAIR, add_to
from beam_dpcount.transforms.ticks import TickNumbers
from benchmarks.cells import Bag
from tests.runners import RUNNERS, SECOND, Row, feed, run, run_stream
from tests.scripted import ScriptedEntropy

examples = settings(max_examples=200, deadline=None, derandomize=True, database=None)
LARGE = 2**55  # so that some dozens of them are beyond 64 bits


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


# Ticks from the next one on, and their values; None: the next tick is released.
moves = st.lists(
    st.none() | st.tuples(st.integers(1, 60), st.integers(-5, 5) | st.sampled_from([LARGE])),
    max_size=150,
)


@pytest.mark.slow
@pytest.mark.parametrize(("near", "more"), [(1, 1), (2, 5), (3, 1000), (NEAR, pending.MORE)])
@examples
@given(given=moves)
def test_what_waits_follows_a_plain_dictionary(near: int, more: int, given: list[Any]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pending, "NEAR", near)
        patch.setattr(pending, "MORE", more)
        patch.setattr(pending, "CHUNK", 5 * PAIR.size)
        memory, bag, released = b"", Bag(), 0
        model: Tally[int] = Tally()
        for move in [*given, *[None] * 70]:
            if move is not None:
                step = released + move[0]
                memory = add_pending(memory, step, move[1], bag)
                model[step] += move[1]
                continue
            released += 1
            x, memory = take_pending(memory, released, LARGEST, bag)
            assert x == min(max(model.pop(released, 0), -LARGEST), LARGEST)
        assert (memory, bag.entries) == (b"", [])


def test_a_bag_is_not_touched_for_what_is_near() -> None:
    """So that a stream without a backlog has one state; it is as it was before there was a bag."""
    memory = former = b""
    for released in range(300):
        for step in range(released + 1, released + 2 * NEAR + 1):
            memory, former = add_pending(memory, step, 1, None), add_to(former, step, 1)
            assert memory == former
        x, memory = take_pending(memory, released + 1, LARGEST, None)
        assert x == min(released + 1, 2 * NEAR)
        former = memory


def test_a_backlog_that_a_cell_held_before_there_were_bags_is_taken_over() -> None:
    memory, bag = b"".join(PAIR.pack(step, step) for step in range(1, 1001)), Bag()
    memory = add_pending(memory, 500, 1, bag)
    assert len(memory) < 200 * PAIR.size
    for step in range(1, 1001):
        x, memory = take_pending(memory, step, LARGEST, bag)
        assert x == step + (step == 500)
    assert (memory, bag.entries) == (b"", [])


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
            memory = add_pending(memory, step, 1, bag)
            cells += len(memory)
        assert sum(map(len, bag.entries)) <= PAIR.size * (2 * n + pending.MORE)
        taken = 0
        for step in range(1, n + 1):
            x, memory = take_pending(memory, step, LARGEST, bag)
            cells, taken = cells + len(memory), taken + x
        assert taken == n
        assert bag.calls + bag.reads < n / 10
        return cells, bag.bytes

    small, large = cost(1000), cost(16_000)
    assert large[0] < 16**1.1 * max(small[0], 1000 * NEAR * PAIR.size)
    assert large[1] < 2 * PAIR.size * 16_000**1.5  # copied only, at some GB a second


def test_sums_of_the_same_ticks_do_not_pile_up() -> None:
    memory, bag = b"", Metered()
    for i in range(50_000):
        memory = add_pending(memory, 1 + i % 400, 1, bag)
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

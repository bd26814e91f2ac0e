"""How costs grow with each size there is; all of them are meant to be linear."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils import windowed_value

import beam_dpcount as dp
from beam_dpcount.dofns.ticks import CountEachTick, ReadTicks
from beam_dpcount.noise.entropy import SystemNoise
from benchmarks import plain
from benchmarks.cells import TickShards
from benchmarks.jobs import dofns_of
from benchmarks.timing import Growth, best_of, timed

BUDGET = dp.ApproxDP(1.0, 1e-6)
_MICROS = 1_000_000
_PER_KEY = 20
_STEPS = 50  # of a histogram, a measurement


@dataclass(frozen=True)
class Sizes:
    """The least size of each kind, and how many there are: each is four times the one before."""

    horizon: int = 2**14  # of one release
    steps: int = 2**10  # one by one
    keys: int = 2**7
    length: int = 2**11
    items: int = 2**6
    pending: int = 2**8
    many: int = 4
    rounds: int = 2

    def of(self, name: str) -> list[int]:
        return [getattr(self, name) * 4**i for i in range(self.many)]


def growths(sizes: Sizes) -> Iterator[Growth]:
    """Every table, measured as it is asked for."""
    everything: list[tuple[str, str, Callable[[int], Callable[[], float]]]] = [
        ("horizon T: a release of T steps", "horizon", whole_release),
        ("horizon T: T steps, one by one", "steps", single_steps),
        ("a Histogram's items, a step", "items", histogram_steps),
        ("pending ticks: k events, one a tick, then k releases", "pending", pending_ticks),
        ("pending ticks: as many events for the first of k ticks", "pending", late_events),
    ]
    for path in ("bounded", "streaming"):

        def keys(n: int, path: str = path) -> Callable[[], float]:
            return _pipeline(path, n * _PER_KEY, n)

        def length(n: int, path: str = path) -> Callable[[], float]:
            return _pipeline(path, n, 1)

        everything.append((f"keys of {_PER_KEY} elements, {path}", "keys", keys))
        everything.append((f"elements of one key, {path}", "length", length))
    for what, name, variant in everything:
        yield measured(what, sizes.of(name), variant, sizes.rounds)


def measured(
    what: str, sizes: Sequence[int], variant: Callable[[int], Callable[[], float]], rounds: int
) -> Growth:
    """The least CPU time at each size; sizes take turns."""
    best = best_of({str(size): variant(size) for size in sizes}, rounds)
    return Growth(what, sizes, [best[str(size)] for size in sizes])


def whole_release(horizon: int) -> Callable[[], float]:
    counter = dp.PrefixCount(BUDGET, horizon).counter
    xs = np.ones(horizon, dtype=np.int64)
    counter.release(xs[:1])  # makes its tables
    return timed(lambda: counter.release(xs))


def single_steps(horizon: int) -> Callable[[], float]:
    return timed(stepping(dp.PrefixCount(BUDGET, horizon).counter, 1, horizon))


def histogram_steps(items: int) -> Callable[[], float]:
    count = dp.Histogram(BUDGET, 20_000, [f"item-{i}" for i in range(items)])
    x = np.zeros(items, dtype=np.int64)
    x[0] = 1
    measure = timed(stepping(count.counter, x, _STEPS))
    return lambda: measure() / _STEPS


def stepping(counter: Any, x: Any, steps: int) -> Callable[[], None]:
    """So many steps of a new stream, one after the other, as the DoFn takes them."""
    noise = SystemNoise(counter.law, counter.dimension)
    counter.step_lattice(counter.init(), x, noise)  # makes its tables

    def step_all() -> None:
        state, step = counter.init(), counter.step_lattice
        for _ in range(steps):
            state, _ = step(state, x, noise)

    return step_all


def _pipeline(path: str, elements: int, keys: int) -> Callable[[], float]:
    # The mechanism's constants depend on the horizon, which is the same for all.
    return lambda: plain.seconds(elements, keys, dp.PrefixCount(BUDGET, 2**20, path=path))


class OneClock:
    """The streaming DoFns of a clock with one key, as a worker has them, without an engine."""

    def __init__(self, ticks: int) -> None:
        found = dofns_of(plain.ticks_of("streaming", 1, ticks, BUDGET))
        self._read, self._shard = found[ReadTicks], TickShards(found[CountEachTick])
        self._read.setup()
        self._shard.seed()

    def event(self, tick: int) -> None:
        """One event, in a tick from 1."""
        micros = (plain.START + (tick - 1) * plain.TICK) * _MICROS
        element = "key-00000", 1
        self._read.start_bundle()
        for read in self._read.process(element, _placed(element, micros)):
            self._shard.take(read.value)
        for read in self._read.finish_bundle():
            self._shard.take(read.value)

    def release(self) -> int:
        """The next tick: how many releases it has."""
        return len(self._shard.tick())


def _placed(element: Any, micros: int) -> Any:
    return windowed_value.create(element, micros, (GlobalWindow(),))


def pending_ticks(ticks: int) -> Callable[[], float]:
    """An event in every tick, in order of time, before any release; then every release."""

    def work(clock: OneClock) -> None:
        for tick in range(1, ticks + 1):
            clock.event(tick)
        if sum(clock.release() for _ in range(ticks)) != ticks:
            raise AssertionError

    def measured() -> float:
        clock = OneClock(ticks)  # takes longer than few ticks, and is made once
        return timed(lambda: work(clock))()

    return measured


def late_events(ticks: int) -> Callable[[], float]:
    """As many events as there are ticks, all in the first, while all of them are pending."""
    clock = OneClock(ticks)
    for tick in range(1, ticks + 1):
        clock.event(tick)

    def work() -> None:
        for _ in range(ticks):
            clock.event(1)

    return timed(work)

"""What each stage takes of a worker's CPU, without an engine: base figures of docs/scale.md.

The DoFns as their transforms make them, on cells of bytes. A bundle's first element of a key pays
for a state that is decoded and encoded, the next ones do not, so both are told apart. What an
engine takes to hand a state over comes on top.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils import windowed_value

import beam_dpcount as dp
from beam_dpcount.dofns.elements import CountEachElement
from beam_dpcount.dofns.gathered import CountGathered, GatherNumbers
from beam_dpcount.dofns.shards import CountShards, SumShards
from beam_dpcount.dofns.ticks import SEED, CountEachTick, ReadTicks
from beam_dpcount.dofns.users import BoundArriving, SendToShards
from beam_dpcount.states.placement import Placement
from beam_dpcount.states.wire import PAIR, pack_batch, pack_sums
from beam_dpcount.transforms.ticks import TickNumbers
from benchmarks import plain
from benchmarks.cells import Bag, Cell, PeopleShards, TickShards, Timer
from benchmarks.jobs import dofns_of
from benchmarks.timing import best_of, table, timed

BUDGET = dp.ApproxDP(1.0, 1e-6)
HORIZON = 525_600  # the minutes of a year
ITEMS, BUNDLE, KEYS = 10, 1000, 500
TESTED = 16_384  # keys of a shard: a million, in 64
_WINDOW = GlobalWindow()


class Stage(NamedTuple):
    """What is measured.

    Fields:
      what: in words.
      work: does it `times` times.
      times: how often.
      beside: what is not to be counted, and is measured alone; None: nothing.
    """

    what: str
    work: Callable[[], Any]
    times: int
    beside: Callable[[], Any] | None = None


class Live(Cell):
    """A cell that hands back what a bundle wrote as it is, and makes bytes of it at its end."""

    data: Any

    def write(self, data: Any) -> None:
        self.data = data

    def commit(self) -> None:
        super().write(self.data)


def placed(element: Any, micros: int = 1) -> Any:
    return windowed_value.create(element, micros, (_WINDOW,))


def ticks(keys: Any, **how: Any) -> TickNumbers:
    """A count of minutes."""
    clock: dict[str, Any] = {"tick": 60, "start": 0, "horizon": HORIZON, "path": "streaming"}
    return TickNumbers(BUDGET, **clock, keys=keys, **how)


def bundle(dofn: Any, elements: Sequence[Any]) -> Callable[[], None]:
    """A bundle of a DoFn that keeps no state."""

    def work() -> None:
        dofn.start_bundle()
        for element in elements:
            for _ in dofn.process(element.value, element):
                pass
        for _ in dofn.finish_bundle() or ():
            pass

    return work


def visits(dofn: Any, element: Any, each: int) -> Callable[[], None]:
    """A bundle with an element so many times for each of KEYS keys, each with a cell."""
    cells = [Live() for _ in range(KEYS)]

    def work() -> None:
        dofn.start_bundle()
        for cell in cells:
            for _ in range(each):
                for _ in dofn.process(element.value, element, cell) or ():
                    pass
            cell.commit()

    return work


def elements() -> Iterator[Stage]:
    """Of PrefixCount, Histogram, and the plain count."""
    arriving = [placed((f"key-{i % KEYS}", i & 1)) for i in range(BUNDLE)]
    number = dofns_of(dp.PrefixCount(BUDGET, 2**30, path="streaming"))
    counting, step = number[CountGathered], PAIR.pack(1, 1)
    counting.setup()
    yield Stage("GatherNumbers: an event", bundle(number[GatherNumbers], arriving), BUNDLE)
    first = visits(counting, placed(("key", step)), 1)
    yield Stage("CountGathered: a key and bundle", first, KEYS)
    more = visits(counting, placed(("key", step * 101)), 1)
    yield Stage("CountGathered: a step", more, KEYS * 100, first)

    domain = [f"item-{i}" for i in range(ITEMS)]
    items = dofns_of(dp.Histogram(BUDGET, 2**30, domain, path="streaming"))[CountEachElement]
    items.setup()
    item = placed(("key", domain[1]))
    first, more = visits(items, item, 1), visits(items, item, 6)
    yield Stage(f"Histogram of {ITEMS} items: a key and bundle", first, KEYS)
    yield Stage(f"Histogram of {ITEMS} items: a step", more, KEYS * 5, first)

    element = placed(("key", 1))
    first, more = visits(plain.PlainCell(), element, 1), visits(plain.PlainCell(), element, 11)
    yield Stage("plain count: a key and bundle", first, KEYS)
    yield Stage("plain count: an event", more, KEYS * 10, first)


def listed() -> Iterator[Stage]:
    """Of TickCount with listed keys: a shard of them."""
    names = [f"key-{i}" for i in range(KEYS)]
    arriving = [placed((names[i % KEYS], 1)) for i in range(BUNDLE)]
    found = dofns_of(ticks(names))
    shard = TickShards(found[CountEachTick])
    shard.seed()
    now = [1]

    def both() -> None:
        for _ in range(BUNDLE // 10):
            shard.take((0, pack_sums({(now[0] - 1) * KEYS + i + 1: 1 for i in range(10)})))
        release()

    def release() -> None:
        now[0] += 1
        shard.tick()

    yield Stage("ReadTicks: an event", bundle(found[ReadTicks], arriving), BUNDLE)
    yield Stage("CountEachTick: a sum", both, BUNDLE, release)
    yield Stage("CountEachTick: a key and tick", release, KEYS)


def selected() -> Iterator[Stage]:
    """Of TickCount with SelectKeys: a shard."""
    arriving = [placed((f"key-{i}", 1)) for i in range(BUNDLE)]
    found = dofns_of(ticks(dp.SelectKeys()))
    counting = found[CountShards]
    counting.setup()
    bag, cell, timer, later = Bag(), Cell(), Timer(), Bag()
    counting.process((0, SEED), bag, cell, timer)
    step = [1]

    def arrive(keys: int) -> None:
        batch = 0, pack_batch({(f"key-{i}", step[0]): 1 for i in range(keys)})
        counting.process(batch, bag, cell, timer)

    def release() -> None:
        step[0] += 1
        for _ in counting.release(0, _WINDOW, bag, cell, timer, later):
            pass

    def both() -> None:
        arrive(TESTED)
        release()

    yield Stage("SumShards: an event", bundle(found[SumShards], arriving), BUNDLE)
    both()  # all keys are there
    yield Stage("CountShards: a key and tick", release, TESTED)
    yield Stage("CountShards: a sum that is due", both, TESTED, release)


def people() -> Iterator[Stage]:
    """Of `users=`: bundles of one shard's people, whose events count, or do not."""
    users = dp.Users(str, events=5, per_key=5)
    found = dofns_of(ticks(["key"], users=users, value=lambda _: 1))
    parcels, one = found[SendToShards]._parcels, Placement(1)

    def started(people: int) -> PeopleShards:
        """A shard in which so many people have had one event."""
        sending = SendToShards(users, parcels, one, True)
        shard = PeopleShards(sending, BoundArriving(users.bound(), parcels, one))
        shard.take((0, SEED))
        shard.bundle([placed(("key", f"person {i}")) for i in range(people)])
        return shard

    def batch(people: int) -> Any:
        events = [placed(("key", f"person {i}")) for i in range(people)]
        full._sending.start_bundle()
        assert not [each for event in events for each in full._sending.process(event.value, event)]
        (sent,) = full._sending.finish_bundle()
        return sent.value

    full, many = started(BUNDLE), started(TESTED)
    bundled, single = batch(BUNDLE), batch(1)
    for _ in range(4):
        full.take(bundled)
    few = started(1)
    sends = bundle(full._sending, [placed(("key", f"person {i}")) for i in range(BUNDLE)])
    yield Stage("SendToShards: an event", sends, BUNDLE)
    yield Stage("BoundArriving: an event that counts", lambda: started(0).take(bundled), BUNDLE)
    yield Stage("BoundArriving: an event that does not", lambda: full.take(bundled), BUNDLE)
    yield Stage(
        "BoundArriving: a row that is read",
        lambda: many.take(single),
        TESTED,
        lambda: few.take(single),
    )


def measured(rounds: int) -> Mapping[str, float]:
    """Microseconds of CPU time, the least of so many rounds; stages take turns."""
    stages = [*elements(), *listed(), *selected(), *people()]
    works = {stage.what: timed(stage.work) for stage in stages}
    besides = {f"beside {s.what}": timed(s.beside) for s in stages if s.beside is not None}
    best = best_of({**works, **besides}, rounds)
    return {
        what: (best[what] - best.get(f"beside {what}", 0.0)) / times * 1e6
        for what, _, times, _ in stages
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stages", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10, help="of which the best counts")
    options = parser.parse_args(argv)
    plain.quiet()
    cells = [(what, f"{us:.2g}") for what, us in measured(options.rounds).items()]
    print(table(("stage", "CPU, us"), cells))
    return 0


if __name__ == "__main__":
    sys.exit(main())

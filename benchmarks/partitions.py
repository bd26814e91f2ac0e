"""A source of a thousand partitions, each with a watermark of its own, and a TickCount behind it.

The DoFns are the transform's; the source, and the engine that moves the watermark, are made up
here. Events of a partition arrive late by a lag of its own, a few of them far out of order; some
partitions fall silent for ten minutes, and one is stuck for a quarter of an hour and then delivers
all that it held. A partition's watermark is 20 seconds behind its latest event, and that of the
source is the least of them, without those that were silent for longer than the idle timeout.

The count has an enormous budget, so that releases show what was counted; each is compared with what
the rule for late events promises. Then, on a small stream, with every event more, less or moved,
what an event changes is compared with what noise is made for.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
from collections import Counter as Tally
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils import windowed_value

import beam_dpcount as dp
from beam_dpcount.dofns.ticks import CountEachTick, ReadTicks
from beam_dpcount.transforms.ticks import TickNumbers
from benchmarks.cells import TickShards
from benchmarks.jobs import dofns_of
from benchmarks.timing import table

TICK = 60  # seconds
AFTER = 30  # ticks for which the source goes on after the last one
BEHIND = 20  # seconds by which a partition's watermark is behind its latest event
LARGE = dp.ZCDP(1e12)  # noise that rounding takes away
EVER = 1 << 40  # seconds: the watermark of a source that has ended
_MICROS = 1_000_000
_WINDOW = GlobalWindow()


class Event(NamedTuple):
    """Under its key, at its time, in seconds."""

    key: str
    at: int


class Moment(NamedTuple):
    """What a second brings: the events that arrive, and then the watermark, all in seconds."""

    now: int
    events: Sequence[Event]
    watermark: int


def names(keys: int) -> list[str]:
    return [f"key-{i}" for i in range(keys)]


# The source


def arrivals(partitions: int, each: int, ticks: int, keys: int, seed: int) -> list[Any]:
    """(when it arrives, partition, event), in order of arrival.

    The source goes on for half an hour after the last tick, so that its watermark passes it.
    """
    rng, end, found = random.Random(seed), (ticks + AFTER) * TICK, list[tuple[int, int, Event]]()
    stuck = range(ticks * TICK // 3, ticks * TICK // 3 + 15 * TICK)
    for partition in range(partitions):
        lag = min(rng.paretovariate(1.2), 90)  # seconds: most have few, some have many
        silent = rng.randrange(ticks * TICK // 2) if partition % 20 == 1 else end
        # The one that is stuck has ten times as much to say.
        for _ in range((each if partition else 10 * each) * (ticks + AFTER) // ticks):
            at = rng.randrange(end)
            if silent <= at < silent + 10 * TICK:
                continue
            apart = min(rng.paretovariate(1), 20 * TICK) if rng.random() < 0.05 else rng.random()
            arrives = int(at + lag + apart)
            if not partition and arrives in stuck:
                arrives = stuck.stop
            found.append((arrives, partition, Event(f"key-{rng.randrange(keys)}", at)))
    return sorted(found)


def moments(found: Sequence[Any], partitions: int, idle: int | None) -> Iterator[Moment]:
    """What arrives second by second, and the watermark; with the last events the source ends.

    Args:
      found: of `arrivals`.
      partitions: how many.
      idle: a partition that was silent for more seconds does not hold the watermark; None: it does.
    """
    latest, heard, watermark = [-BEHIND] * partitions, [0] * partitions, 0
    by_second = {now: [*group] for now, group in itertools.groupby(found, lambda one: one[0])}
    last = found[-1][0]
    for now in range(last + 1):
        events = by_second.get(now, [])
        for _, partition, event in events:
            latest[partition], heard[partition] = max(latest[partition], event.at), now
        active = (p for p in range(partitions) if idle is None or now - heard[p] <= idle)
        least = min((latest[p] for p in active), default=watermark + BEHIND) - BEHIND
        watermark = EVER if now == last else max(watermark, least)
        yield Moment(now, [event for _, _, event in events], watermark)


# The count


class Engine:
    """The DoFns of a streaming TickCount, their states, and a watermark that is moved by hand."""

    def __init__(self, count: TickNumbers) -> None:
        found = dofns_of(count)
        self._read, self._count, self._keys = found[ReadTicks], found[CountEachTick], count._listed

    def run(self, script: Iterable[Moment]) -> dict[str, list[int]]:
        """The releases of each key, in their order, rounded."""
        self._shards = TickShards(self._count)
        self._shards.seed()
        found = {key: list[int]() for key in self._keys}
        for _, events, watermark in script:
            self.arrive(events)
            for release in self._shards.advance(watermark * _MICROS):
                found[release.key].append(round(release.value))
                if release.step != len(found[release.key]):
                    raise AssertionError("a release is missing, or there twice")
        return found

    def arrive(self, events: Iterable[Event]) -> None:
        """A bundle of events."""
        self._read.start_bundle()
        sums: list[Any] = []
        for key, at in events:
            element, micros = (key, 1), at * _MICROS
            sums += self._read.process(element, windowed_value.create(element, micros, (_WINDOW,)))
        for made in (*sums, *self._read.finish_bundle()):
            self._shards.take(made.value)


def count_of(ticks: int, keys: Sequence[str], late: str, **how: Any) -> TickNumbers:
    """Of events, each of which counts 1, from time 0."""
    clock: dict[str, Any] = {"tick": TICK, "start": 0, "horizon": ticks, "path": "streaming"}
    return TickNumbers(how.pop("budget", LARGE), **clock, keys=keys, late=late, **how)


# What the rule promises


@dataclass
class Promise:
    """What the rule for late events makes of a stream, by the documentation and without a DoFn.

    Fields:
      totals: the releases of each key.
      events, late: how many there were, and of ticks that were released already.
      later: of late events that count, how many count so many ticks after their own.
      dropped: late ones that do not count.
      delays: of each tick, the seconds from its end to its release.
    """

    totals: dict[str, list[int]]
    events: int = 0
    late: int = 0
    later: Tally[int] = field(default_factory=Tally)
    dropped: int = 0
    delays: list[int] = field(default_factory=list)


def promised(script: Iterable[Moment], ticks: int, keys: Sequence[str], late: str) -> Promise:
    """The promise for a stream."""
    found, sums, done = Promise({}), {key: [0] * ticks for key in keys}, 0
    for now, events, watermark in script:
        for key, at in events:
            own = place = at // TICK + 1
            if own > ticks:
                continue
            found.events += 1
            if own <= done:
                found.late += 1
                place = done + 1
                if late == "drop" or place > ticks:
                    found.dropped += 1
                    continue
                found.later[place - own] += 1
            sums[key][place - 1] += 1
        while done < ticks and (done + 1) * TICK <= watermark:
            done += 1
            found.delays.append(now - done * TICK)
    found.totals = {key: [*itertools.accumulate(each)] for key, each in sums.items()}
    return found


def show(found: Sequence[Any], partitions: int, ticks: int, keys: int) -> bool:
    """A table of idle timeouts and rules; whether all releases are as promised."""
    cells, kept = [], True
    for idle in (None, 120, 30):
        script = [*moments(found, partitions, idle)]
        for late in ("fold", "drop"):
            promise = promised(script, ticks, names(keys), late)
            made = Engine(count_of(ticks, names(keys), late)).run(script)
            equal = sum(
                ours == theirs
                for key, totals in promise.totals.items()
                for ours, theirs in zip(made[key], totals, strict=True)
            )
            kept = kept and equal == ticks * keys
            last, delays = sum(totals[-1] for totals in made.values()), promise.delays
            one, more = promise.later[1], sum(promise.later.values()) - promise.later[1]
            furthest = max(promise.later, default=0)
            cells.append(
                (
                    *("none" if idle is None else f"{idle} s", late, f"{promise.events:,}"),
                    *(f"{n:,}" for n in (promise.late, one, more, furthest, promise.dropped)),
                    *(f"{last:,}", f"{equal:,} of {ticks * keys:,}"),
                    f"{median(delays):.0f} s, {max(delays):,} s",
                )
            )
    head = ("idle timeout", "late", "events", "late", "next tick", "later", "furthest, ticks")
    tail = ("dropped", "last releases add up to", "as promised", "delay, median and most")
    print(table((*head, *tail), cells), flush=True)
    return kept


# What one event changes


class Change(NamedTuple):
    """Of two neighbours: how many (key, tick) sums differ, and norms of what noise is added to."""

    cells: int
    l1: float
    l2: float


def change(before: dict[str, list[int]], after: dict[str, list[int]], encoder: Any) -> Change:
    """What differs between releases, before noise."""
    cells, l1, squared = 0, 0.0, 0.0
    for key, totals in before.items():
        moved = np.diff(np.array(after[key]) - totals, prepend=0)
        noised = encoder @ moved
        cells += int(np.count_nonzero(moved))
        l1, squared = l1 + float(np.abs(noised).sum()), squared + float(noised @ noised)
    return Change(cells, l1, squared**0.5)


SMALL_TICKS, SMALL_KEYS = 4, ("a", "b")
# Bundles and watermarks, in ticks: two late events among six, the second two ticks late.
Script = Sequence[tuple[Sequence[tuple[str, int]], int]]
SMALL: Script = (
    ([("a", 0), ("b", 1)], 0),
    ([("a", 1)], 2),
    ([("a", 1), ("b", 2)], 3),
    ([("b", 1)], 3),
    ([], EVER),
)


def small(events: Sequence[Sequence[Event]], watermarks: Sequence[int]) -> list[Moment]:
    pairs = zip(events, watermarks, strict=True)
    return [Moment(now, some, watermark) for now, (some, watermark) in enumerate(pairs)]


def neighbours(relation: str, script: Script = SMALL) -> Iterator[list[list[Event]]]:
    """All streams that differ in one event: its bundle, its key and its time are any."""
    bundles = [[Event(key, tick * TICK) for key, tick in some] for some, _ in script]
    anything = [Event(key, tick * TICK) for key in SMALL_KEYS for tick in range(SMALL_TICKS)]
    for n, some in enumerate(bundles):
        if relation == "add_remove":
            ways = [[*some, event] for event in anything]
            ways += [[*some[:i], *some[i + 1 :]] for i in range(len(some))]
        else:
            ways = [
                [*some[:i], event, *some[i + 1 :]] for i in range(len(some)) for event in anything
            ]
        for changed in ways:
            yield [*bundles[:n], changed, *bundles[n + 1 :]]


def following(events: Sequence[Sequence[Event]]) -> list[int]:
    """Watermarks that follow the events: at the latest of them that has arrived."""
    latest, made = 0, []
    for some in events:
        latest = max([latest, *(event.at for event in some)])
        made.append(latest)
    return [*made[:-1], EVER]


@dataclass
class Worst:
    """Over all neighbours: how many there are, the most that one changes, and what noise is for."""

    neighbours: int
    most: Change
    l1_sensitivity: float
    l2_sensitivity: float

    @property
    def is_covered(self) -> bool:
        """Whether noise is made for as much; but for rounding of the norms."""
        return self.most.l1 <= self.l1_sensitivity * (
            1 + 1e-9
        ) and self.most.l2 <= self.l2_sensitivity * (1 + 1e-9)


def worst(
    late: str, relation: str, follows: bool, mechanism: str | None = None, script: Script = SMALL
) -> Worst:
    """What the worst neighbour of a small stream changes.

    Args:
      late, relation: of the count.
      follows: whether the watermark follows the events; else it is the script's, whatever they are.
      mechanism: by name; None is the default.
      script: the stream.
    """
    fixed = [watermark * TICK for _, watermark in script]

    count = count_of(SMALL_TICKS, SMALL_KEYS, late, relation=relation, mechanism=mechanism)
    engine, counter = Engine(count), count.counter

    def run(events: Sequence[Sequence[Event]]) -> dict[str, list[int]]:
        return engine.run(small(events, following(events) if follows else fixed))

    encoder = counter.mechanism.encoder(SMALL_TICKS)
    before = run([[Event(key, tick * TICK) for key, tick in some] for some, _ in script])
    found = [change(before, run(events), encoder) for events in neighbours(relation, script)]
    most = Change(*(max(each) for each in zip(*found, strict=True)))
    return Worst(len(found), most, counter.l1_sensitivity, counter.l2_sensitivity)


def show_changes() -> bool:
    """A table of what one event changes; whether noise covers it where the watermark is fixed."""
    cells, covered = [], True
    for follows in (False, True):
        for relation in ("add_remove", "replace_one"):
            for late in ("fold", "drop"):
                found = worst(late, relation, follows)
                covered = covered and (follows or found.is_covered)
                watermark = "follows the events" if follows else "as it was"
                cells.append(
                    (
                        *(watermark, relation, late, f"{found.neighbours}"),
                        *(f"{found.most.cells}", f"{found.most.l2:.3f}"),
                        *(f"{found.l2_sensitivity:.3f}", "yes" if found.is_covered else "**no**"),
                    )
                )
    head = ("watermark", "relation", "late", "neighbours", "sums changed", "L2, most")
    print(table((*head, "noise is for", "covered"), cells), flush=True)
    return covered


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; status 1 if a release is not as promised, or noise does not cover one."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.partitions", description=__doc__)
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--each", type=int, default=200, help="events of a partition, at most")
    parser.add_argument("--ticks", type=int, default=60, help="of a minute")
    parser.add_argument("--keys", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1, help="of the source; noise has none")
    options = parser.parse_args(argv)
    found = arrivals(options.partitions, options.each, options.ticks, options.keys, options.seed)
    kept = show(found, options.partitions, options.ticks, options.keys)
    print()
    return int(not (show_changes() and kept))


if __name__ == "__main__":
    sys.exit(main())

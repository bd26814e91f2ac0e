"""`make scale`: what it costs to bound people, beside the same work without it. Figures, no test.

Bounded: a TickCount with `users`, beside a GroupByKey of the same elements, as (person, bytes) of
the same size, and beside the count of all events. Whole pipelines on the local FnApiRunner, each in
a process of its own, in turns; people are made up inside a DoFn, so that nothing holds them.
Streaming: the DoFns themselves, without an engine, their states in a dict as bytes, as
benchmarks/soak.py has them.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import apache_beam as beam
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils import windowed_value

import beam_dpcount as dp
from beam_dpcount.dofns.ticks import CountEachTick, ReadTicks
from beam_dpcount.dofns.users import BoundArriving, SendToShards
from beam_dpcount.transforms.ticks import TickNumbers
from benchmarks.cells import PeopleShards, TickShards
from benchmarks.jobs import dofns_of
from benchmarks.timing import peak

WAYS = {
    "grouped": "GroupByKey",
    "bounded": "TickCount with users",
    "events": "TickCount",
}
EVENTS = (100_000, 1_000_000, 10_000_000)
KEYS = [f"key-{i:02}" for i in range(100)]
TICKS, TICK = 1000, 3600  # seconds
PARCEL = 36  # bytes in which an event travels to its person
_SPAN = TICKS * TICK * 1_000_000
_WINDOW = GlobalWindow()


def stream(events: int, skewed: bool) -> Iterator[tuple[int, int]]:
    """(person, time in microseconds) of each event, times in no order.

    A person has one; skewed, the first has a quarter of all, the second an eighth, and so on.
    """
    person = made = 0
    while made < events:
        number = max(events >> (person + 2), 1) if skewed else 1
        for _ in range(min(number, events - made)):
            yield person, made * 7_919_000_003 % _SPAN
            made += 1
        person += 1


class Events(beam.DoFn):
    """The events, as (key, person), at their times."""

    def __init__(self, events: int, skewed: bool) -> None:
        self._events, self._skewed = events, skewed

    def process(self, _: bytes) -> Iterator[Any]:
        for n, (person, micros) in enumerate(stream(self._events, self._skewed)):
            element = KEYS[n % 20], f"person-{person}"
            yield windowed_value.create(element, micros, (_WINDOW,))


class Sizes(beam.DoFn):
    """Looks at everything in a group."""

    def process(self, group: Any) -> Iterator[int]:
        yield sum(map(len, group[1]))


def _one(_: str) -> int:
    return 1


def count_of(path: str, keys: Sequence[str], users: dp.Users | None) -> TickNumbers:
    """The count of events, with such a bound on people; without one, of all."""
    return TickNumbers(
        *(dp.ApproxDP(1.0, 1e-6), TICK, 0),
        horizon=TICKS,
        keys=keys,
        value=_one,
        users=users,
        late="drop",
        path=path,
    )


def run(way: str, events: int, skewed: bool, k: int) -> tuple[float, float]:
    """One pipeline: seconds of CPU time, and the largest resident memory, in MB."""
    pipeline = beam.Pipeline(runner=FnApiRunner())
    source = beam.ParDo(Events(events, skewed)).with_output_types(tuple[str, str])
    elements = pipeline | beam.Impulse() | "Events" >> source
    if way == "grouped":
        parcel = bytes(PARCEL)
        pairs = beam.Map(lambda element: (element[1], parcel)).with_output_types(tuple[str, bytes])
        _ = elements | pairs | beam.GroupByKey() | beam.ParDo(Sizes())
    else:
        users = dp.Users(str, events=k, per_key=k) if way == "bounded" else None
        _ = elements | count_of("bounded", KEYS[:20], users)
    before = time.process_time()
    pipeline.run().wait_until_finish()
    return time.process_time() - before, peak()


def measure(way: str, events: int, skewed: bool, k: int) -> tuple[float, float]:
    """`run`, in a process of its own."""
    words = ["--way", way, "--events", str(events), "--k", str(k), *["--skewed"] * skewed]
    command = [sys.executable, "-m", "benchmarks.people", *words]
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    seconds, memory = map(float, said.split())
    return seconds, memory


def compare(events: int, skewed: bool, k: int, rounds: int) -> dict[str, tuple[float, float]]:
    """Of each way the least CPU time, in seconds, and its memory, in MB; the ways take turns."""
    found = [{way: measure(way, events, skewed, k) for way in WAYS} for _ in range(rounds)]
    return {way: min(one[way] for one in found) for way in WAYS}


def show_bounded(sizes: Sequence[int], k: int, rounds: int) -> None:
    """The table of the bounded path."""
    print("| events | of a person | pipeline | us an event | ratio | memory, MB |")
    print("|---|---|---|---|---|---|")
    for events in sizes:
        for skewed in (False, True):
            found = compare(events, skewed, k, rounds)
            for way, (seconds, memory) in found.items():
                kind = "1/4, 1/8, ... of all" if skewed else "one"
                each, ratio = seconds / events * 1e6, seconds / found["grouped"][0]
                cells = f"{events:,} | {kind} | {WAYS[way]} | {each:.1f} | {ratio:.2f}"
                print(f"| {cells} | {memory:,.0f} |", flush=True)


class Streaming:
    """The DoFns of a streaming TickCount, one after the other; states as bytes."""

    def __init__(self, users: dp.Users | None) -> None:
        found = dofns_of(count_of("streaming", KEYS, users))
        self.people: PeopleShards | None = None
        if users is not None:
            self.people = PeopleShards(found[SendToShards], found[BoundArriving])
        self._read, self._shards = found[ReadTicks], TickShards(found[CountEachTick])
        self._shards.seed()

    def take(self, events: Sequence[Any]) -> float:
        """Counts windowed events, a bundle; seconds of CPU time."""
        before = time.process_time()
        self._read.start_bundle()
        for left in events if self.people is None else self.people.bundle(events):
            for read in self._read.process(left.value, left):
                self._shards.take(read.value)
        for read in self._read.finish_bundle():
            self._shards.take(read.value)
        return time.process_time() - before

    def tick(self) -> None:
        """Releases a tick of all keys, so that no sums pile up."""
        self._shards.tick()


def arriving(people: int, k: int, users: dp.Users | None) -> tuple[float, float, float]:
    """Each person has 2 k events, a tick apart, in keys 1 .. k and again, of which k may count.

    Returns:
      Microseconds an event of the first k, and of those that follow; bytes of state a person.
    """
    streaming, seconds = Streaming(users), []
    for tick in range(2 * k):
        micros = tick * TICK * 1_000_000
        seconds.append(
            streaming.take(
                [
                    windowed_value.create((KEYS[tick % k], f"person-{i}"), micros, (_WINDOW,))
                    for i in range(people)
                ]
            )
        )
        streaming.tick()
    size = 0 if streaming.people is None else streaming.people.size
    each = [sum(part) / k / people * 1e6 for part in (seconds[:k], seconds[k:])]
    return each[0], each[1], size / people


def show_streaming(people: int) -> None:
    """The table of the streaming path."""
    print("\n| k | us an event that counts | that does not | without users | bytes | with a gap |")
    print("|---|---|---|---|---|---|")
    for k in (1, 5, 20, 100):
        plain, _, _ = arriving(people, k, None)
        first, rest, size = arriving(people, k, dp.Users(str, events=k, per_key=1))
        _, _, timed = arriving(people, k, dp.Users(str, events=k, gap=TICK, per_key=1))
        print(f"| {k} | {first:.1f} | {rest:.1f} | {plain:.1f} | {size:.0f} | {timed:.0f} |")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.people", description=__doc__)
    parser.add_argument("--events", type=int, nargs="+", default=EVENTS)
    parser.add_argument("--k", type=int, default=5, help="events of a person that count, bounded")
    parser.add_argument("--rounds", type=int, default=1, help="of which the best counts")
    parser.add_argument("--people", type=int, default=2000, help="streaming")
    parser.add_argument("--way", choices=WAYS, help="one pipeline: seconds of CPU time, and MB")
    parser.add_argument("--skewed", action="store_true", help="with --way")
    options = parser.parse_args(argv)
    if options.way is not None:
        print(*run(options.way, options.events[0], options.skewed, options.k))
        return 0
    show_bounded(options.events, options.k, options.rounds)
    show_streaming(options.people)
    return 0


if __name__ == "__main__":
    sys.exit(main())

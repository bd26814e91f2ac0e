"""A plan past one machine: `python -m benchmarks.plan` prints the tables of docs/scale.md.

Pure arithmetic on base figures. Those of time were measured, by the commands that stand with them;
those of bytes and timers are exact, and tests hold them against the code. A plan is an estimate:
nothing of its size was run.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from beam_dpcount.counters.people import Users
from beam_dpcount.states.all_ticks import shards_of
from benchmarks.timing import table

DAY = 86_400
Rows = list[tuple[str, ...]]

# Base figures: CPU time in microseconds, measured

STAGES = {
    "GatherNumbers: an event": 1.8,
    "CountGathered: a key and bundle": 11,
    "CountGathered: a step": 0.67,
    "Histogram of 10 items: a key and bundle": 21,
    "Histogram of 10 items: a step": 13,
    "plain count: a key and bundle": 1.4,
    "plain count: an event": 0.71,
    "ReadTicks: an event": 2.0,
    "CountEachTick: a sum": 0.52,
    "CountEachTick: a key and tick": 2.2,
    "SumShards: an event": 2.0,
    "CountShards: a key and tick": 0.54,
    "CountShards: a sum that is due": 1.4,
    "SendToShards: an event": 3.4,
    "BoundArriving: an event that counts": 8.6,
    "BoundArriving: an event that does not": 5.4,
    "BoundArriving: a row that is read": 0.024,
}
# Of `benchmarks.soak --engine flink`: by events and keys, all CPU time, in seconds; of two runs.
SOAKS = {
    (40_000, 40_000): (78.9, 83.4),
    (120_000, 40_000): (175.6, 165.4),
    (200_000, 100): (30.3,),
    (600_000, 100): (36.8,),
}
# The same with half of all events on one of 5,000 keys: the plan is tried out on these.
SKEWED_KEYS, SKEWED = 5_000, {100_000: 80.7, 300_000: 96.8}
# Each key is in one of two files. The second soak has bundles of 3,000; the last two have 40
# bundles each, which meet all keys of their file.
SOAKED_FILES, SOAKED_BUNDLE = 2, 3_000
ENGINE = {
    "an event through the engine": 16,
    "a visit to a state": 1200,
}
VISIT, ENTER = ENGINE["a visit to a state"], ENGINE["an event through the engine"]
# Bounded, whole pipelines; microseconds an event, and bytes of memory an event.
GROUPED: dict[str, tuple[float, float | None, str]] = {
    "PrefixCount": (6.1, 7.0, "bench --only bounded"),
    "TickCount, 20 listed keys": (4.7, None, "people"),
    "TickCount, SelectKeys, 10^6 keys": (7.2, 4.3, "keys"),
    "TickCount with `users`": (15.3, 8.3, "people"),
}
PERSON_EVENT = 135  # bytes of a worker's memory that an event of a shard of people takes
PEOPLE_SHARDS = 1024
# Of the first two soaks: MB of a Python worker; bytes of a checkpoint beside a state, its key too.
WORKER, BESIDE = 170, 57

# Base figures: bytes and timers, exact

ENVELOPE = 28  # of every state: head and checksum
SHARD = 16  # more, of a shard
QUEUE = 32  # more, of a shard of listed keys once it has released a tick
PENDING = 16  # a sum of a listed key that waits
SUM = 20  # of a sum that waits in a shard, and the name of its key
NAMED = 5  # of a key in a shard, and its name
WAITING = 12  # of a key in a shard that is not tested yet, and its name
PEOPLE_CELL, PEOPLE_PIECE = 84, 16  # of a shard of people, and of each piece in its bag
ROW, ONE_ROW, ROW_TIME = 33, 16, 8  # of an event that counts, or the only one; with a gap, more
HORIZONS = (1_440, 525_600, 2**30)
# The numbers of one stream, at most, by horizon; per element, and at ticks, whose sums are larger.
NUMBERS = {
    "ProfiledBLT": ((71, 99, 164), (106, 149, 221)),
    "NormalizedBLT": ((72, 97, 160), (105, 148, 228)),
    "SmoothBinary": ((72, 104, 152), (72, 104, 152)),
    "BinaryTree": ((88, 160, 248), (88, 160, 248)),
    "SmoothLaplace": ((176, 296, 320), (176, 296, 320)),
}
DEFAULT = "ProfiledBLT"
MOST = 2**30  # steps of one stream, with the default


def met(many: int, events: float) -> float:
    """How many of so many equally likely keys some events have, expected."""
    if many <= 1 or events <= 1:
        return min(many, events)
    return -many * math.expm1(events * math.log1p(-1 / many))


@dataclass(frozen=True)
class Load:
    """What arrives in a day, and how.

    Fields:
      events: of all keys.
      keys, people: that have events.
      ticks: of the clock, a day.
      bundle: events of a bundle, as a worker reads them.
      hot: the share of all events that one key has; the others have equal shares.
      shards: of SelectKeys.
      counted: events of a person that count, each in another key.
      name: bytes of a key's name.
    """

    events: int = 10**9
    keys: int = 10**6
    people: int = 10**7
    ticks: int = 1_440
    bundle: float = 1_000
    hot: float = 0.0
    shards: int = 64
    counted: int = 5
    name: int = 12

    @property
    def people_shards(self) -> int:
        """As `Users(events=counted, people=people)` has it."""
        return Users("who", self.counted, people=self.people).shards

    @property
    def listed_shards(self) -> int:
        """Over how many a clock spreads keys that are listed, of a number each."""
        return shards_of(self.keys, 1)

    @property
    def bundles(self) -> float:
        return self.events / self.bundle

    @property
    def visits(self) -> float:
        """How often a bundle has events of a key: pairs of a key and a bundle."""
        alone = min(1.0, self.bundle * self.hot)
        rest = met(self.keys - (self.hot > 0), self.bundle * (1 - self.hot))
        return self.bundles * (alone + rest)

    @property
    def passed(self) -> Load:
        """What the bound on people lets through on the first day; later it is less."""
        events = min(self.events, self.people * self.counted)
        return replace(self, events=events, bundle=self.bundle * events / self.events)


@dataclass(frozen=True)
class Cost:
    """Seconds of CPU time a day: of events, of visits to states, and of releases at ticks."""

    events: float
    visits: float
    releases: float = 0.0

    @property
    def total(self) -> float:
        return self.events + self.visits + self.releases

    @property
    def cores(self) -> int:
        """How many, half of the time busy."""
        return math.ceil(self.total / DAY / 0.5)

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.events + other.events,
            self.visits + other.visits,
            self.releases + other.releases,
        )


def soaked() -> tuple[float, float]:
    """Microseconds an event and a visit, of what the longer soaks take more than the shorter."""

    def more(longer: tuple[int, int], shorter: tuple[int, int]) -> float:
        means = [sum(SOAKS[soak]) / len(SOAKS[soak]) for soak in (longer, shorter)]
        return (means[0] - means[1]) * 1e6

    event = more((600_000, 100), (200_000, 100)) / 400_000
    bundles = 80_000 / SOAKED_BUNDLE
    visits = bundles * met(40_000 // SOAKED_FILES, SOAKED_BUNDLE)
    return event, (more((120_000, 40_000), (40_000, 40_000)) - 80_000 * event) / visits


def skewed_visits(events: int) -> float:
    """Of a soak with half of all events on one key: in 40 bundles, 30 of them of its file."""
    bundle, keys = events / 40, SKEWED_KEYS // SOAKED_FILES
    return 30 * (1 + met(keys - 1, bundle / 3)) + 10 * met(keys, bundle)


def starting() -> float:
    """Seconds of CPU time that any soak takes: one of 100 keys without its events and visits."""
    (seconds,), visits = SOAKS[200_000, 100], 40 * 100 / SOAKED_FILES
    return seconds - (200_000 * ENTER + visits * VISIT) / 1e6


# What each count takes in a day, and keeps


def _elements(load: Load, read: float, visit: float, step: float) -> Cost:
    more = load.events - load.visits
    return Cost(
        load.events * (ENTER + read) / 1e6 + more * step / 1e6,
        load.visits * (VISIT + visit) / 1e6,
    )


def plain(load: Load) -> Cost:
    """A stateful count without privacy: a step and a sum in a cell."""
    visit, step = STAGES["plain count: a key and bundle"], STAGES["plain count: an event"]
    return _elements(load, 0, visit, step)


def numbers(load: Load) -> Cost:
    """PrefixCount."""
    visit, step = STAGES["CountGathered: a key and bundle"], STAGES["CountGathered: a step"]
    return _elements(load, STAGES["GatherNumbers: an event"], visit, step)


def items(load: Load) -> Cost:
    """Histogram."""
    of = "Histogram of 10 items"
    return _elements(load, 0, STAGES[f"{of}: a key and bundle"], STAGES[f"{of}: a step"])


def listed(load: Load) -> Cost:
    """TickCount with listed keys, each of which has a release: visits as for SelectKeys."""
    batches = min(load.bundles * load.listed_shards, load.visits)
    due = load.visits * STAGES["CountEachTick: a sum"]
    releases = load.keys * load.ticks * (ENTER + STAGES["CountEachTick: a key and tick"])
    return Cost(
        load.events * (ENTER + STAGES["ReadTicks: an event"]) / 1e6,
        batches * VISIT / 1e6,
        (due + releases + load.listed_shards * load.ticks * VISIT) / 1e6,
    )


def selected(load: Load) -> Cost:
    """TickCount with SelectKeys, all keys tested: visits are to shards, by bundles and ticks."""
    batches = min(load.bundles * load.shards, load.visits)
    due = load.visits * STAGES["CountShards: a sum that is due"]
    tested = load.keys * load.ticks * STAGES["CountShards: a key and tick"]
    return Cost(
        load.events * (ENTER + STAGES["SumShards: an event"]) / 1e6,
        batches * VISIT / 1e6,
        (due + tested + load.shards * load.ticks * VISIT) / 1e6,
    )


def people(load: Load) -> Cost:
    """What `users=` adds before any of these."""
    passed = load.passed.events
    counts = passed * STAGES["BoundArriving: an event that counts"]
    others = (load.events - passed) * STAGES["BoundArriving: an event that does not"]
    each = ENTER + STAGES["SendToShards: an event"]
    visits = load.bundles * met(load.people_shards, load.bundle)
    # A visit reads all of its shard: what counts by the end of the day, as later days do.
    rows = load.people * load.counted / load.people_shards
    read = rows * STAGES["BoundArriving: a row that is read"]
    return Cost((load.events * each + counts + others) / 1e6, visits * (VISIT + read) / 1e6)


COUNTS: dict[str, Callable[[Load], Cost]] = {
    "plain stateful count": plain,
    "PrefixCount": numbers,
    "Histogram of 10 items": items,
    "TickCount, listed keys": listed,
    "TickCount, SelectKeys": selected,
}
CLOCKS = ("TickCount, listed keys", "TickCount, SelectKeys")


def cost(count: str, load: Load, users: bool = False) -> Cost:
    """Of a count in a day; with `users=`, what passes on counts.

    Per element all pass on, as empty steps if they do not count.
    """
    if not users:
        return COUNTS[count](load)
    return people(load) + COUNTS[count](load.passed if count in CLOCKS else load)


def numbers_of(count: str, horizon: int, mechanism: str = DEFAULT) -> int:
    """Bytes of the numbers of one stream: of the next horizon in the table."""
    at = next(i for i, most in enumerate(HORIZONS) if horizon <= most)
    return NUMBERS[mechanism][count in CLOCKS][at]


def state(count: str, horizon: int, name: int = 12) -> int:
    """Bytes of a key, with nothing pending."""
    if count == "plain stateful count":
        return 16
    kept = numbers_of(count, horizon)
    if count == "Histogram of 10 items":
        return ENVELOPE + 10 * kept
    if count == "TickCount, SelectKeys":
        return NAMED + name + kept
    return kept if count == "TickCount, listed keys" else ENVELOPE + kept


def states(count: str, load: Load) -> tuple[int, float]:
    """How many states there are, and bytes of all: clocks go on for a year, others to 2^30.

    At a clock with the sums of one tick.
    """
    horizon = load.ticks * 365 if count in CLOCKS else MOST
    each = state(count, horizon, load.name)
    if count == "TickCount, SelectKeys":
        waiting = load.visits / load.ticks * (SUM + load.name)
        return load.shards, load.keys * each + load.shards * (ENVELOPE + SHARD) + waiting
    if count == "TickCount, listed keys":
        shards = load.listed_shards
        return shards, load.keys * (each + PENDING) + shards * (ENVELOPE + QUEUE)
    return load.keys, load.keys * each


def persons(load: Load) -> int:
    """Bytes of the states of all people, each with as many events as count."""
    row = ONE_ROW if load.counted == 1 else ROW
    return load.people * load.counted * row + load.people_shards * PEOPLE_CELL


def timers(count: str, load: Load) -> int:
    """How many are set at any time."""
    shards = {"TickCount, listed keys": load.listed_shards, "TickCount, SelectKeys": load.shards}
    return shards.get(count, 0)


def hottest(count: str, bundle: float) -> float:
    """Events a second of one key, at most: its state is on one core, which does nothing else.

    What is before the key is spread over workers: it hands over a sum, or its steps, a bundle.
    """
    visit, step = {
        "plain stateful count": ("plain count: a key and bundle", "plain count: an event"),
        "PrefixCount": ("CountGathered: a key and bundle", "CountGathered: a step"),
        "Histogram of 10 items": (
            "Histogram of 10 items: a key and bundle",
            "Histogram of 10 items: a step",
        ),
        "TickCount, listed keys": ("CountEachTick: a sum", ""),
        "TickCount, SelectKeys": ("CountShards: a sum that is due", ""),
    }[count]
    return bundle / (VISIT + STAGES[visit] + (bundle - 1) * STAGES.get(step, 0.0)) * 1e6


def hottest_person(bundle: float) -> float:
    """Events a second of one person, at most, of whom no more count."""
    return bundle / (VISIT + bundle * STAGES["BoundArriving: an event that does not"]) * 1e6


# Tables


def short(x: float) -> str:
    """Two digits."""
    if not x:
        return "0"
    rounded = float(f"{x:.2g}")
    return f"{rounded:,.0f}" if rounded >= 10 else f"{rounded:g}"


def _bytes(n: float) -> str:
    for size, unit in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if n >= size:
            return f"{short(n / size)} {unit}"
    return f"{n:.0f} bytes"


def measured() -> Rows:
    one = STAGES["plain count: an event"]
    rows: Rows = [("stage", "CPU, us", "to an event of the plain count", "measured by")]
    for found, command in ((STAGES, "`benchmarks.stages`"), (ENGINE, "soaks on Flink")):
        rows += [(what, f"{us:g}", short(us / one), command) for what, us in found.items()]
    return rows


def tried() -> Rows:
    """What the same arithmetic says of other soaks."""
    rows: Rows = [("events", "visits", "CPU, s, by the plan", "as it was", "ratio")]
    for events, seconds in SKEWED.items():
        visits = skewed_visits(events)
        said = starting() + (events * ENTER + visits * VISIT) / 1e6
        cells = f"{events:,}", short(visits), f"{said:.0f}", f"{seconds:.0f}"
        rows.append((*cells, f"{said / seconds:.2f}"))
    return rows


def kept() -> Rows:
    """The state of a number, by mechanism."""
    rows: Rows = [("mechanism", *(f"{horizon:,}" for horizon in HORIZONS))]
    for mechanism, both in NUMBERS.items():
        pairs = zip(*both, strict=True)
        rows.append((mechanism, *(f"{ENVELOPE + a}, {ENVELOPE + b}" for a, b in pairs)))
    return rows


def each(load: Load) -> Rows:
    """What one of each costs and keeps."""
    rows: Rows = [
        (
            *("", "an event before its key, us", "first of a bundle and key, us"),
            *("each further one, us", "a release at a tick, us"),
            *("timers", "state of a key", "checkpoint, a key"),
        )
    ]
    further = {
        "plain stateful count": STAGES["plain count: an event"],
        "PrefixCount": STAGES["CountGathered: a step"],
        "Histogram of 10 items": STAGES["Histogram of 10 items: a step"],
    }
    for count in COUNTS:
        one, none = Load(1, 1, 1, 0, 1, shards=1), Load(0, 1, 1, 1, 1, shards=1)
        first, tick = COUNTS[count](one), COUNTS[count](none).releases
        clock = count in CLOCKS
        if clock:  # its shard is visited once for all keys
            tick -= VISIT / 1e6
        horizon = load.ticks * 365 if count in CLOCKS else MOST
        size, beside = state(count, horizon, load.name), 0 if clock else BESIDE
        rows.append(
            (
                *(count, short(first.events * 1e6), short((first.visits + first.releases) * 1e6)),
                *(short(further.get(count, 0)), short(tick * 1e6) if tick else "-"),
                "1 a shard" if clock else "none",
                *(f"{size} bytes", f"{size + beside} bytes"),
            )
        )
    rows.append(
        (
            "`users`, a person",
            short(ENTER + STAGES["SendToShards: an event"]),
            short(VISIT + STAGES["BoundArriving: an event that counts"]),
            f"{short(STAGES['BoundArriving: an event that does not'])} or "
            f"{short(STAGES['BoundArriving: an event that counts'])}",
            *("-", "none", *[f"{ROW} bytes an event that counts"] * 2),
        )
    )
    return rows


def day(load: Load) -> Rows:
    """The plan of a day."""
    rows: Rows = [
        (
            *("", "events, h", "visits, h", "releases, h", "cores", "to plain"),
            *("Python workers", "states", "checkpoint", "timers"),
        )
    ]
    beside = plain(load)
    for count in COUNTS:
        for users in (False, True) if count != "plain stateful count" else (False,):
            found, (many, size) = cost(count, load, users), states(count, load)
            if users:
                many, size = many + load.people_shards, size + persons(load)
            rows.append(
                (
                    count + " with `users`" * users,
                    *(short(s / 3600) for s in (found.events, found.visits, found.releases)),
                    *(f"{found.cores:,}", f"{found.total / beside.total:.2f}"),
                    *(_bytes(found.cores * WORKER * 1e6), _bytes(size)),
                    *(_bytes(size + BESIDE * many), f"{timers(count, load):,}"),
                )
            )
    return rows


def hot(load: Load) -> Rows:
    """What one key takes."""
    bundles = (100, 1_000, 10_000)
    rows: Rows = [
        (
            "events a second of one key, in bundles of",
            *(f"{n:,}" for n in bundles),
            "days to 2^30 steps, of half of all events",
        )
    ]
    for count in COUNTS:
        ends = count in ("PrefixCount", "Histogram of 10 items")
        days = f"{2 * MOST / load.events:.1f}" if ends else "-"
        rows.append((count, *(short(hottest(count, n)) for n in bundles), days))
    person = (short(hottest_person(n)) for n in bundles)
    return [*rows, ("`users`, of one person, most of whose do not count", *person, "-")]


def shards(load: Load) -> Rows:
    """What a shard of SelectKeys is, by how many there are."""
    rows: Rows = [
        (
            *("shards", "keys of one", "its state", "a tick of it, ms"),
            *("states handed over, a day", "cores"),
        )
    ]
    for many in (16, 64, 256, 1024):
        n = load.keys / many
        size = ENVELOPE + SHARD + n * state("TickCount, SelectKeys", load.ticks * 365, load.name)
        tick = VISIT + n * STAGES["CountShards: a key and tick"]
        cores = selected(replace(load, shards=many)).cores
        moved = 2 * many * size * load.ticks
        cells = (f"{many:,}", short(n), _bytes(size), short(tick / 1000), _bytes(moved))
        rows.append((*cells, f"{cores:,}"))
    return rows


def bounded(load: Load) -> Rows:
    """The same events from files."""
    rows: Rows = [
        (
            *("", "us an event", "GroupByKey, us", "ratio", "core hours"),
            *("largest group", "measured by"),
        )
    ]
    size = load.events * PERSON_EVENT / PEOPLE_SHARDS
    for count, (ours, theirs, command) in GROUPED.items():
        beside = ("-", "-") if theirs is None else (f"{theirs:g}", f"{ours / theirs:.2f}")
        rows.append(
            (
                *(count, f"{ours:g}", *beside, short(ours * load.events / 3.6e9)),
                *(_bytes(size) if count == "TickCount with `users`" else "-",),
                f"`benchmarks.{command}`",
            )
        )
    return rows


def crowds(load: Load) -> Rows:
    """What `users=` adds to an event, by how many people there are, and in how large bundles."""
    bundles = (1_000, 10_000, 100_000)
    each = (f"us an event, in bundles of {n:,}" for n in bundles)
    rows: Rows = [
        (
            *("people", "events of a person that count", "shards", "state of one"),
            *("read for a bundle of 10,000", *each),
        )
    ]
    for people_, counted in ((10**6, 1), (10**6, 5), (10**7, 1), (10**7, 5), (10**8, 5)):
        found = replace(load, people=people_, counted=counted, events=10**9)
        size = persons(found) / found.people_shards
        us = (people(replace(found, bundle=n)).total / found.events * 1e6 for n in bundles)
        shards_ = found.people_shards
        rows.append(
            (
                *(f"{people_:,}", str(counted), f"{shards_:,}", _bytes(size)),
                *(_bytes(size * met(shards_, 10_000)), *map(short, us)),
            )
        )
    return rows


TABLES: dict[str, Callable[[Load], Rows]] = {
    "measured": lambda load: measured(),
    "tried": lambda load: tried(),
    "kept": lambda load: kept(),
    "each": each,
    "day": day,
    "hot": hot,
    "shards": shards,
    "bounded": bounded,
    "people": crowds,
}
# The plans of docs/scale.md beside the first one.
PLANS = {
    "day": Load(),
    "day, half on one key": Load(hot=0.5),
    "day, hours": Load(ticks=24),
}


def tables() -> Iterator[tuple[str, Rows]]:
    """Every table of docs/scale.md, by its name there."""
    for name, made in TABLES.items():
        if name != "day":
            yield name, made(Load())
    for name, load in PLANS.items():
        yield name, day(load)


def markdown(rows: Rows) -> str:
    return table(rows[0], rows[1:])


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plan", description=__doc__)
    load = Load()
    parser.add_argument("--events", type=int, default=load.events, help="a day")
    parser.add_argument("--keys", type=int, default=load.keys)
    parser.add_argument("--people", type=int, default=load.people)
    parser.add_argument("--ticks", type=int, default=load.ticks, help="a day")
    parser.add_argument("--bundle", type=int, default=load.bundle, help="events of one")
    parser.add_argument("--hot", type=float, default=load.hot, help="the share of one key")
    parser.add_argument("--shards", type=int, default=load.shards, help="of SelectKeys")
    parser.add_argument("--counted", type=int, default=load.counted, help="events of a person")
    parser.add_argument("--name", type=int, default=load.name, help="bytes of a key's name")
    options = parser.parse_args(argv)
    given = Load(**vars(options))
    if min(value for name, value in vars(options).items() if name != "hot") < 1:
        parser.error("all numbers but --hot must be 1 or more")
    if not 0 <= given.hot <= 1:
        parser.error(f"--hot must be from 0 to 1, got {given.hot:g}")
    if given.ticks * 365 > HORIZONS[-1]:
        parser.error(f"--ticks must be at most {HORIZONS[-1] // 365:,} a day, got {given.ticks:,}")
    for name, made in TABLES.items():
        print(f"{name}\n\n{markdown(made(given))}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

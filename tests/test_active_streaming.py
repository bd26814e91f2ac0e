"""People who are active, in a stream: decided when a tick ends, released when all have spoken."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from apache_beam.transforms.window import GlobalWindow

import beam_dpcount as dp
from beam_dpcount import mechanisms
from beam_dpcount.counters import people
from beam_dpcount.counters.counter import calibrate
from beam_dpcount.dofns.active import CountTogether
from beam_dpcount.dofns.ticks import SEED
from beam_dpcount.mechanisms.single_steps import SingleSteps
from beam_dpcount.states import all_ticks
from beam_dpcount.states.all_ticks import TickPlan
from beam_dpcount.states.codecs import OTHER_KEYS
from beam_dpcount.states.envelope import CORRUPT, StateError
from beam_dpcount.states.people import OTHER_BOUND
from beam_dpcount.states.placement import Placement
from beam_dpcount.transforms.active import UNFOLDED, UNTIL
from benchmarks.cells import Bag, Cell, Timer
from tests.active import (
    MECHANISMS,
    ONE_KEY,
    PERIOD,
    TICKS,
    TWO_KEYS,
    count_of,
    differences,
    sums_of,
    with_mechanism,
)
from tests.audit.exact import keeps_budget
from tests.messages import says
from tests.person_audit import RHO, SECOND, TICK, Event, by, collection, placed, universe
from tests.runners import Row, feed, run, run_stream
from tests.scripted import ScriptedEntropy

KEYS = ("a", "b")


class Shards:
    """The DoFns of a stream, on states in memory, and what the counter is told."""

    def __init__(self, engine: Any, shards: int = 2) -> None:
        self.states = [(Cell(), Bag(), Bag(), Timer()) for _ in range(shards)]
        self.told: list[tuple[int, bytes]] = []
        self.resume(engine)
        self.seed()

    def resume(self, engine: Any) -> None:
        """Go on with other DoFns, as a worker does that a savepoint is restored on."""
        parcels, placement = engine.parcels(collection(None)), Placement(len(self.states))
        periods = () if engine._periods is None else (engine._periods,)
        how = engine._in_stream
        self._sends = how["sends"](engine.users, parcels, placement, True)
        self._shards = how["arriving"](engine.users.bound(), parcels, placement, *periods)
        self._sends.setup()
        self._shards.setup()

    def seed(self) -> None:
        for shard in range(len(self.states)):
            self._take(shard, SEED)

    def _take(self, shard: int, data: bytes) -> None:
        cell, _, arrived, timer = self.states[shard]
        assert self._shards.process((shard, data), cell, arrived, timer) is None

    def bundle(self, events: Iterable[Event]) -> None:
        self._sends.start_bundle()
        for key, payload, tick in events:
            element, micros = (key, payload), int(tick * TICK * SECOND)
            assert not self._sends.process(element, placed(element, micros, None))
        for sent in self._sends.finish_bundle():
            self._take(*sent.value)

    def advance(self, tick: float) -> None:
        """Let the watermark pass so many ticks."""
        for shard, (cell, pieces, arrived, timer) in enumerate(self.states):
            while timer.at is not None and timer.at <= tick * TICK * SECOND:
                timer.at = None
                made = self._shards.close(shard, cell, pieces, arrived, timer)
                self.told += [one.value for one in made]

    @property
    def size(self) -> int:
        bags = [bag.entries for _, *bags, _ in self.states for bag in bags]
        return sum(len(entry) for bag in bags for entry in bag)

    def sums(self, ticks: int = TICKS, keys: int = 2) -> tuple[tuple[int, ...], ...]:
        """What the counter has been told, by key and tick."""
        found = np.zeros((ticks, keys), dtype=np.int64)
        for _, message in self.told:
            step, _, *sums = np.frombuffer(message, "<i8").tolist()
            found[step - 1] += sums
        return tuple(map(tuple, found.T.tolist()))


def streamed(engine: Any, slots: Sequence[Event | None], moves: Sequence[int]) -> Any:
    """The sums of events that arrive in slots; `moves` is the watermark's tick before each."""
    stream = Shards(engine, 1)
    for slot, tick in zip(slots, moves, strict=True):
        stream.advance(tick)
        stream.bundle([] if slot is None else [slot])
    stream.advance(TICKS)
    assert len(stream.told) == TICKS
    return stream.sums(keys=len(engine.keys))


# Every arrival


# All in time; or ticks end between events, and some come late.
MOVES = [(0, 0, 0), (3, 3, 3), (0, 3, 3), (0, 0, 5), (1, 2, 3)]
WHOM = {
    "changes": (dp.Users(by, changes=2), TWO_KEYS),
    "four changes": (dp.Users(by, changes=4), ONE_KEY),
    "changes of one key": (dp.Users(by, changes=4, keys=1), TWO_KEYS),
    "periods": (dp.Users(by, keys=1, per=PERIOD), ONE_KEY),
    "one of two keys a period": (dp.Users(by, keys=1, per=PERIOD), TWO_KEYS),
    "two keys a period": (dp.Users(by, keys=2, per=PERIOD), TWO_KEYS),
    "events": (dp.Users(by, 2), TWO_KEYS),
    "events of a period": (dp.Users(by, 2, per=PERIOD), TWO_KEYS),
}


def neighbours(engine: Any, events: Sequence[Event], moves: Sequence[int]) -> Iterator[Any]:
    """Sums of streams, and of those without a person, or one person-period, slot by slot."""
    known: dict[Any, Any] = {}

    def summed(slots: Any) -> Any:
        if slots not in known:
            known[slots] = streamed(engine, slots, moves)
        return known[slots]

    for slots in itertools.permutations([*events, None], len(moves)):
        for period in (0, 1) if engine._periods is not None else (None,):
            rest = tuple(
                e if e is not None and period is not None and e[2] // PERIOD != period else None
                for e in slots
            )
            if rest != slots:
                yield summed(slots), summed(rest)


@pytest.mark.parametrize("kind", MECHANISMS)
@pytest.mark.parametrize("window", [1, 2, 3])
@pytest.mark.parametrize("whom", WHOM)
@pytest.mark.exhaustive("kind", "window", "whom")
def test_every_arrival_hides_a_person_or_a_period(whom: str, window: int, kind: str) -> None:
    """What the counter is told differs by what it is calibrated to, at most."""
    users, events = WHOM[whom]
    engine = with_mechanism(count_of(users, window), MECHANISMS[kind](horizon=TICKS))
    pairs = [pair for moves in MOVES for pair in neighbours(engine, events, moves)]
    found = differences(engine, pairs)
    assert len(found) > 3
    assert keeps_budget(engine.counter, found)


@pytest.mark.parametrize("whom", WHOM)
@pytest.mark.parametrize("window", [1, 2, 4])
@pytest.mark.parametrize("kind", ["fresh", "tree"])
@pytest.mark.exhaustive("kind", "window", "whom")
def test_a_stream_says_what_bounded_input_does(whom: str, window: int, kind: str) -> None:
    """Of a crowd in any order, in bundles of any size; late events apart, which never count.

    The watermark stands still, passes ticks while events are under way, or jumps over several; and
    workers take states over.
    """
    users, _ = WHOM[whom]
    engine = with_mechanism(count_of(users, window), MECHANISMS[kind](horizon=TICKS))
    chance, late = random.Random(f"{whom} {window} {kind}"), 0
    crowd = universe(["a", "b"], range(TICKS), [1])
    for _ in range(16):
        events: list[Event] = [
            (key, (f"p{chance.randrange(5)}", 1), tick + chance.random())
            for key, _, tick in chance.choices(crowd, k=30)
        ]
        behind = chance.choice([0.0, 1.5, 2.5, 6.0])
        events.sort(key=lambda event: event[2] + behind * chance.random())
        stream, passed, counted = Shards(engine, 3), 0.0, list[Event]()
        while events:
            many = chance.randint(1, 8)
            bundle, events = events[:many], events[many:]
            stream.bundle(bundle)
            there = [event for event in bundle if int(event[2]) >= int(passed)]
            counted, late = counted + there, late + len(bundle) - len(there)
            if behind < 6:
                passed = max(passed, bundle[-1][2] + 0.5 - chance.random())
                stream.advance(passed)
            if chance.random() < 0.3:
                stream.resume(engine)
                stream.seed()
        stream.advance(TICKS)
        assert stream.sums() == sums_of(engine, counted)
    assert late > 5


def test_activity_does_not_depend_on_arrival() -> None:
    """Two events whose ticks make one interval are one, in whatever order they come."""
    engine = with_mechanism(count_of(dp.Users(by, changes=2), 3), mechanisms.BinaryTree(TICKS))
    for ticks in itertools.permutations((0, 2, 3)):
        stream = Shards(engine)
        for tick in ticks:
            stream.bundle([("a", ("p", 1), tick)])
        stream.advance(TICKS)
        assert np.cumsum(stream.sums()[0]).tolist() == [1, 1, 1, 1, 1, 1]
    stream = Shards(engine)
    stream.advance(2)
    stream.bundle([("a", ("p", 1), 1), ("a", ("p", 1), 4)])  # the first is late
    stream.advance(TICKS)
    assert np.cumsum(stream.sums()[0]).tolist() == [0, 0, 0, 0, 1, 1]


# What is told, and when


def test_every_shard_says_one_thing_a_tick_whoever_is_there() -> None:
    """As many messages, of one length, in one order, with an event or without."""
    engine = count_of(dp.Users(by, keys=2, per=PERIOD), 2)
    shapes = set[Any]()
    crowd = [(key, (f"p{i}", 1), 0) for i in range(40) for key in KEYS]
    for events in ([], crowd[:1], crowd):
        stream = Shards(engine, 3)
        for tick in range(TICKS):
            stream.bundle(events if tick == 0 else [])
            stream.advance(tick + 1)
        shapes.add(tuple((key, message[:8], len(message)) for key, message in stream.told))
    assert len(shapes) == 1
    assert len(shapes.pop()) == 3 * TICKS


def test_what_is_kept_stays_as_large_as_a_period() -> None:
    """Of other people in every period, and of the same: after ten at most a tenth more."""
    clock = dp.Clock(TICK, start=0, ticks=100)
    users = dp.Users(by, keys=1, per=10)
    for names in (lambda i, p: f"p{i:02}", lambda i, p: f"p{i:02} of {p}"):
        count = dp.TickCount(RHO, clock.last(3), dp.People(), keys=KEYS, users=users)
        stream, sizes = Shards(count._parts[0].engine), []
        for tick in range(100):
            stream.bundle([("a", (names(i, tick // 10), 1), tick) for i in range(tick % 10, 90, 3)])
            stream.advance(tick + 1)
            sizes.append(stream.size)
        peaks = [max(sizes[at : at + 10]) for at in range(0, 100, 10)]
        assert max(peaks[1:]) <= 1.1 * peaks[1]
        assert stream.size > 0


def test_nothing_is_kept_of_people_who_can_no_longer_matter() -> None:
    clock = dp.Clock(TICK, start=0, ticks=40)
    count = dp.TickCount(
        RHO, clock.last(3), dp.People(), keys=KEYS, users=dp.Users(by, keys=1, per=10)
    )
    stream = Shards(count._parts[0].engine)
    stream.bundle([("a", (f"p{i}", 1), 9) for i in range(50)])
    for tick in range(13):
        stream.advance(tick)
        assert stream.size > 0
    stream.advance(13)  # an event of the tick before would still have gone on
    assert stream.size == 0


def test_a_backlog_is_not_written_anew_at_each_tick() -> None:
    clock = dp.Clock(TICK, start=0, ticks=64)
    users = dp.Users(by, keys=1, per=8)
    count = dp.TickCount(RHO, clock.last(2), dp.People(), keys=("a",), users=users)
    stream, written = Shards(count._parts[0].engine, 1), 0
    for tick in range(64):
        stream.bundle([("a", ("p", 1), tick)])
    arrived: Any = stream.states[0][2]
    for tick in range(64):
        before = arrived.read()
        stream.advance(tick + 1)
        written += len(arrived.entries) if arrived.read() != before else 0
    assert arrived.entries == []
    assert written <= 64  # half of what is left, each time that half is gone


# A state that others wrote


@pytest.mark.parametrize(
    "other",
    [
        lambda: count_of(dp.Users(by, keys=1, per=2), 2),
        lambda: count_of(dp.Users(by, keys=1, per=PERIOD), 3),
        lambda: count_of(dp.Users(by, changes=2), 2),
        lambda: count_of(dp.Users(by, keys=1, per=PERIOD), 2, keys=("a", "c")),
    ],
)
def test_a_resume_under_another_rule_is_refused_by_name(other: Any) -> None:
    stream = Shards(count_of(dp.Users(by, keys=1, per=PERIOD), 2))
    stream.resume(other())
    with pytest.raises(StateError, match=says(OTHER_BOUND)):
        stream.seed()


# The counter


def told(xs: np.ndarray, shards: int, chance: random.Random) -> list[list[bytes]]:
    """What each shard says of these sums, of shape (ticks, keys)."""
    parts = np.array([[[chance.randint(-9, 9) for _ in row] for row in xs] for _ in range(shards)])
    parts[-1] += xs - parts.sum(axis=0)
    return [
        [np.array([step, shard, *row]).tobytes() for step, row in enumerate(part.tolist(), 1)]
        for shard, part in enumerate(parts)
    ]


def counted(count: CountTogether, messages: Iterable[bytes], cell: Any = None) -> list[Any]:
    """What is released, with the state as bytes between any two messages."""
    cell, made = cell or Cell(), list[Any]()
    for message in messages:
        count.setup()
        made += [one.value for one in count.process((0, message), cell)]
    return made


def plan_of(counter: Any, keys: Sequence[str] = KEYS, **more: Any) -> TickPlan:
    clock = dp.Clock(TICK, start=0, ticks=counter.horizon).grid
    entropy = more.pop("entropy", ScriptedEntropy())
    return TickPlan(counter, clock, keys, 1 << 30, False, entropy, **more)


KINDS: Any = (SingleSteps, *mechanisms.ALL)
TAKEN = [kind for kind in KINDS if not kind(9).draws_early]


@pytest.mark.parametrize("kind", TAKEN, ids=lambda kind: kind.__name__)
def test_keys_side_by_side_are_each_key_alone_to_the_bit(kind: Any) -> None:
    """Whatever comes first of what shards say; a tick is released when all have spoken."""
    ticks, chance = 9, random.Random(kind.__name__)
    change = count_of(dp.Users(by, changes=2), 2).counter.change
    budget = RHO if "gaussian" in str(kind(ticks).laws) else dp.PureDP(1.0)
    counter = calibrate(kind(ticks), budget, change)
    plan = plan_of(counter, names=("people",))
    xs = np.array([[chance.randint(0, 5) for _ in KEYS] for _ in range(ticks)])
    alone = {}
    for key, column in zip(KEYS, xs.T, strict=True):
        noise = plan.draws("bounded").noise(key, GlobalWindow(), b"")
        alone[key] = counter.release_lattice(column, noise).tolist()
    for _ in range(3):
        shards = told(xs, 3, chance)
        order = [shard for shard in range(3) for _ in range(ticks)]
        chance.shuffle(order)
        releases = counted(CountTogether(plan, 3), [shards[at].pop(0) for at in order])
        assert [(r.key, r.step) for r in releases] == [
            (key, step) for step in range(1, ticks + 1) for key in KEYS
        ]
        for key in KEYS:
            assert [r.value for r in releases if r.key == key] == alone[key]
        assert [r.stddev for r in releases[::2]] == counter.stddevs(ticks).tolist()
        assert {r.name for r in releases} == {"people"}


def test_no_tick_is_released_before_all_shards_have_spoken() -> None:
    counter = calibrate(SingleSteps(3), RHO, count_of(dp.Users(by, changes=2), 2).counter.change)
    shards = told(np.zeros((3, 2), dtype=np.int64), 3, random.Random(1))
    count, cell = CountTogether(plan_of(counter), 3), Cell()
    first, second, third = shards
    assert counted(count, first) == []
    assert counted(count, [*first, *second], cell) == []
    assert [r.step for r in counted(count, third[1:], cell)] == []
    assert [r.step for r in counted(count, third[:1], cell)] == [1, 1, 2, 2, 3, 3]
    with pytest.raises(StateError, match=says(CORRUPT)):
        counted(count, third[:1], cell)
    with pytest.raises(StateError, match=says(OTHER_KEYS)):
        counted(CountTogether(plan_of(counter, ("a", "c")), 3), first, cell)


def test_a_shard_that_speaks_twice_does_not_stand_for_another() -> None:
    """Else its people would count twice, and others' changes would no longer alternate."""
    counter = calibrate(SingleSteps(3), RHO, count_of(dp.Users(by, changes=2), 2).counter.change)
    for many in (3, 62, 63, 130):
        shards = told(np.zeros((3, 2), dtype=np.int64), many, random.Random(1))
        count, cell = CountTogether(plan_of(counter), many), Cell()
        assert counted(count, [shard[0] for shard in shards[:-1]], cell) == []
        with pytest.raises(StateError, match=says(CORRUPT)):
            counted(count, shards[0][:1], cell)
        assert len(counted(count, shards[-1][:1], cell)) == 2


def test_replays_repeat_themselves_and_other_keys_have_other_noise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ACTIVE_SECRET", "0123456789abcdef" * 4)
    change = count_of(dp.Users(by, changes=2), 2).counter.change
    counter = calibrate(mechanisms.SmoothBinary(5), RHO, change)
    entropy = dp.ReplayableEntropy("ACTIVE_SECRET", run_id="r")
    xs = np.array([[3, 1], [0, 2], [1, 1], [0, 0], [2, 5]])

    def values(xs: Any, keys: Sequence[str] = KEYS, seed: int = 1) -> list[float]:
        shards = told(xs, 2, random.Random(seed))
        count = CountTogether(plan_of(counter, keys, entropy=entropy), 2)
        return [r.value for r in counted(count, [m for some in zip(*shards) for m in some])]  # noqa: B905

    assert values(xs) == values(xs, seed=2)
    changed = xs.copy()
    changed[2, 0] += 1
    there, other = np.array(values(xs)), np.array(values(changed))
    assert (there[:4] == other[:4]).all()
    assert np.abs(there - other)[4:].max() > 2
    assert np.abs(there - np.array(values(xs, ("a", "c")))).max() > 2


# Pipelines


@pytest.fixture
def few_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(people, "_FEWEST", 3)


CLOCK = dp.Clock(TICK, start=0, ticks=8)
PEOPLE = {
    "periods": dp.Users(by, keys=1, per=2),
    "changes": dp.Users(by, changes=4),
    "events": dp.Users(by, 3),
}
VIEWS = {
    "each": CLOCK.each(),
    "last": CLOCK.last(3),
    "both": [CLOCK.each(), CLOCK.last(2), CLOCK.last(5)],
}
# Where events are capped, people of each tick count in windows of one tick, as they arrive.
CASES = [case for case in itertools.product(PEOPLE, VIEWS) if case[0] != "events"]
CASES.append(("events", "last"))
# As many ticks as changes are for, and as fresh noise is for.
CHANGES = dp.Clock(TICK, start=0, ticks=40)


def rows_of(chance: random.Random, ticks: int, many: int) -> list[Row]:
    rows: list[Row] = []
    for _ in range(many):
        who, at = f"p{chance.randrange(6)}", chance.randrange(ticks * TICK * SECOND)
        rows.append((chance.choice("ab"), (who, 1), at))
    return sorted(rows, key=lambda row: row[2])


def shown(outcome: Any) -> list[Any]:
    return sorted(outcome.releases, key=lambda r: (r.key, r.step))


def parts_of(chance: random.Random, rows: Sequence[Row], ticks: int) -> list[Any]:
    """A stream of rows: each tick's in any order, and the next one's mixed with them."""
    left, parts = [*rows], list[Any]()
    for tick in range(1, ticks + 1):
        due = [row for row in left if row[2] < tick * TICK * SECOND]
        early = [row for row in left if row not in due][: chance.randrange(3)]
        some = [*due, *early]
        chance.shuffle(some)
        left = [row for row in left if row not in some]
        parts += [*some, tick * TICK]
    return parts


@pytest.mark.usefixtures("few_shards")
@pytest.mark.parametrize(("whom", "view"), CASES)
@pytest.mark.parametrize("runner", ["fn", "grpc", "bundles"])
def test_streams_release_what_files_do(whom: str, view: str, runner: str) -> None:
    """Bit for bit, in any order of arrival."""
    users = PEOPLE[whom]
    chance = random.Random(f"{whom} {view}")
    rows = rows_of(chance, 8, 40)

    def count(path: str) -> Any:
        return dp.TickCount(
            *(dp.ZCDP(0.5), VIEWS[view], dp.People()),
            keys=KEYS, users=users, path=path, entropy=ScriptedEntropy(),
        )  # fmt: skip

    bounded = run(lambda p: p | feed(rows) | count("bounded"))
    if runner == "bundles":
        made = run_stream(count("auto"), *parts_of(chance, rows, 8))
    else:
        chance.shuffle(rows)
        made = run(lambda p: p | feed(rows) | count("streaming"), runner)
    assert shown(made) == shown(bounded)
    assert len(made.releases) == 16


@pytest.mark.usefixtures("few_shards")
def test_keys_in_several_shards_have_a_counter_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(all_ticks, "PER_SHARD", 2)
    rows, keys = rows_of(random.Random(1), 8, 40), ["b", "c", "a"]
    counts = [
        dp.TickCount(
            *(dp.ZCDP(0.5), CLOCK.last(2), dp.People()),
            keys=keys, users=PEOPLE["periods"], path=path, entropy=ScriptedEntropy(),
        )
        for path in ("bounded", "streaming")
    ]  # fmt: skip
    assert counts[1].display_data()["shards"] == "2"
    bounded, made = (run(lambda p, count=count: p | feed(rows) | count) for count in counts)
    assert shown(made) == shown(bounded)


@pytest.mark.usefixtures("few_shards")
@pytest.mark.parametrize("fresh", [False, True])
def test_both_ways_of_counting_are_taken(fresh: bool) -> None:
    """Changes for long activity, and each tick afresh for short; the same noise on both paths."""
    users = dp.Users(by, keys=1, per=1)
    view = CHANGES.last(1 if fresh else 30)
    rows = rows_of(random.Random(fresh), 40, 60)
    counts = [
        dp.TickCount(
            *(RHO, view, dp.People()),
            keys=KEYS, users=users, path=path, entropy=ScriptedEntropy(),
        )
        for path in ("bounded", "streaming")
    ]  # fmt: skip
    assert isinstance(counts[1].counter.mechanism, SingleSteps) == fresh
    assert counts[0].counter.mechanism == counts[1].counter.mechanism
    bounded, made = (run(lambda p, count=count: p | feed(rows) | count) for count in counts)
    assert shown(made) == shown(bounded)


@pytest.mark.usefixtures("few_shards")
def test_late_events_never_count_in_a_pipeline() -> None:
    count = dp.TickCount(
        *(dp.ZCDP(1e6), CLOCK.last(2), dp.People()),
        keys=["a"], users=PEOPLE["changes"], entropy=ScriptedEntropy(0),
    )  # fmt: skip
    rows = [("a", (who, 1), at * SECOND) for who, at in (("ann", 5), ("bob", 15), ("cyd", 6))]
    made = run_stream(count, rows[0], 10, rows[2], rows[1], 20, 90)
    assert [round(r.value) for r in made.releases] == [1, 2, 1, 0, 0, 0, 0, 0]


# What is said


def test_late_events_cannot_be_folded() -> None:
    with pytest.raises(ValueError, match=says(UNFOLDED[0])):
        dp.TickCount(
            *(RHO, CLOCK.last(2), dp.People()),
            keys=["a"], users=PEOPLE["changes"], late="fold",
        )  # fmt: skip


def test_a_stream_says_when_events_count_and_what_periods_cost() -> None:
    users = dp.Users(by, keys=1, per=2, lateness=30)
    for path in ("auto", "streaming", "bounded"):
        count = dp.TickCount(
            dp.ApproxDP(1.0, 1e-6), CLOCK.last(2), dp.People(), keys=["a"], users=users, path=path
        )
        said = count.display_data()
        assert said["late"] == "drop"
        assert said.get("closing") == (None if path == "bounded" else UNTIL)
        assert count.epsilon_at(1e-6, periods=1) == pytest.approx(1, rel=1e-6)
        assert 1 < count.epsilon_at(1e-6, periods=3) < 3.01

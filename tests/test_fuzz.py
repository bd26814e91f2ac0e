"""Arbitrary bytes as states, hostile values as events, hostile files as input of commands.

`make test` tries each a few times, the same ones each time, `make audit` as long as `--fuzz` says.

What keeps a state whole is a checksum of 32 bits over all of it, a fingerprint of 32 bits of all
parameters, the format, and lengths that fit. Against accidents, that is: whoever can write states
can forge them, and sees exact sums anyway. So bytes with a forged checksum may be read; but then
they are what is written of what was read, to the last byte.
"""

from __future__ import annotations

import csv
import gzip
import math
import random
import re
import shutil
import struct
from collections import Counter as Tally
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from apache_beam.transforms.window import GlobalWindow

import beam_dpcount as dp
from beam_dpcount.commands import count, graph, histogram, sequences, ticks
from beam_dpcount.counters.clock import clock_of
from beam_dpcount.counters.people import Bound
from beam_dpcount.counters.selection import Selection
from beam_dpcount.counters.sparse import sparse_for
from beam_dpcount.dofns.elements import CountEachElement, ReadElements
from beam_dpcount.dofns.gathered import CountGathered, GatherNumbers
from beam_dpcount.dofns.intake import RejectedElementError
from beam_dpcount.dofns.parcels import StepParcels
from beam_dpcount.dofns.shards import SumShards
from beam_dpcount.dofns.ticks import ReadTicks, SumTicks
from beam_dpcount.dofns.users import SendToShards
from beam_dpcount.dofns.windows import WindowCheck
from beam_dpcount.local.learner import ConvexLearner, MedianLearner
from beam_dpcount.mechanisms import BinaryTree, Honaker, NormalizedBLT, SmoothBinary
from beam_dpcount.noise.entropy import SystemNoise
from beam_dpcount.states import people as shards
from beam_dpcount.states.codecs import (
    FoldCodec,
    StateCodec,
    statistic_codec,
    tick_codec,
)
from beam_dpcount.states.envelope import CORRUPT, StateError
from beam_dpcount.states.pending import tick_of
from beam_dpcount.states.people import Mark, PeopleCodec, Rows
from beam_dpcount.states.placement import Placement
from beam_dpcount.states.wire import PAIR, batches_of, pack_sums, parcel_of
from beam_dpcount.statistics import Edges, Episodes, SpanningForest, Words
from beam_dpcount.statistics.items import Items
from beam_dpcount.transforms.ticks import TickNumbers
from benchmarks.cells import Cell
from benchmarks.jobs import dofns_of
from tests.command_lines import EXACT, command, written
from tests.fuzz import (
    BY_DATA,
    SECRET,
    chances,
    hostile_bytes,
    hostile_csv,
    hostile_parquet,
    hostile_value,
    sealed,
)
from tests.messages import says
from tests.scripted import ScriptedEntropy
from tests.shards import Shard, plan_of

# A warning shows, on a worker, that there is such a value.
pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")

for_long = pytest.mark.parametrize(
    "seconds", [0.0, pytest.param(None, marks=pytest.mark.audit)], ids=["a few", "long"]
)


@pytest.fixture
def long(seconds: float | None, request: pytest.FixtureRequest) -> float:
    """How long to try."""
    return request.config.getoption("--fuzz") if seconds is None else seconds


# States


class Kind(NamedTuple):
    """States of one kind: some of them, and how they are read and written again."""

    states: list[bytes]
    again: Callable[[bytes], bytes]


def of_counter(counter: Any, digest: int = 0) -> Kind:
    codec, state, states = StateCodec(counter, digest), counter.init(), []
    noise = SystemNoise(counter.law, counter.dimension)
    for step in range(12):
        states.append(codec.encode(state, bytes([step]) * digest))
        x = 1 if counter.dimension is None else np.ones(counter.dimension)
        state, _ = counter.step(state, x, noise)
    return Kind(states, lambda data: codec.encode(codec.decode(data), codec.digest_of(data)))


def of_statistic(statistic: Any, relation: str, events: list[Any]) -> Kind:
    """Both parts of a cell: what it says of the counter, and what the statistic remembers."""
    change = statistic.change(relation)
    counter = dp.calibrate(SmoothBinary(99), dp.ZCDP(0.5), change, statistic.dimension)
    codec, states = statistic_codec(counter, statistic), []
    state, memory = counter.init(), statistic.init()
    noise = SystemNoise(counter.law, statistic.dimension)
    for event in events:
        memory, x = statistic.count(memory, statistic.read(event)[0])
        state, _ = counter.step_lattice(state, x, noise)
        states.append(codec.encode(state, b"", statistic.pack(memory)))

    def again(data: bytes) -> bytes:
        state = codec.decode(data)
        try:
            kept = statistic.unpack(codec.memory_of(data))
        except ValueError as error:  # as the contract of a statistic has it
            raise StateError from error
        return codec.encode(state, b"", statistic.pack(kept))

    return Kind(states, again)


def of_clock() -> Kind:
    counter = dp.calibrate(BinaryTree(50), dp.ZCDP(0.5))
    codec = tick_codec(counter, clock_of(10, 0, horizon=50), ["a", "b"])
    both = replace(counter, dimension=2)
    state, noise, states = both.init(), SystemNoise(counter.law, 2), []
    for step in range(12):
        waits = pack_sums({step + 1: 7, step + 3: 5})
        states.append(codec.encode(state, b"", waits))
        state, _ = both.step(state, [1, 0], noise)
    return Kind(states, lambda d: codec.encode(codec.decode(d), b"", codec.memory_of(d)))


def of_shard(mechanism: Any, **options: Any) -> Kind:
    counter = dp.calibrate(mechanism, dp.ZCDP(50.0), TickNumbers(
        dp.ZCDP(1), 10, 0, horizon=40, keys=["a"], bounds=(0, 2)).counter.change)  # fmt: skip
    plan = plan_of(Selection(counter, 0.02, **options))
    shard, states = Shard(plan), []
    shard.seed()
    shard.arrive({("first", 1): 4, ("a", 2): 400, ("b", 7): 1, ("waits", 3): 1, ("\u00e9", 9): 2})
    for _ in range(12):
        assert shard.cell.data is not None
        states.append(shard.cell.data)
        shard.fire()
    codec = shard.dofn._of(0).codec

    def again(data: bytes) -> bytes:
        columns, pending = codec.decode(data)
        return codec.encode(columns, codec.digest_of(data), pending)

    return Kind(states, again)


def of_fold() -> Kind:
    codec = FoldCodec(("a fold", 3))
    states = [codec.encode((n, np.linspace(-n, n, n))) for n in range(9)]
    return Kind(states, lambda data: codec.encode(codec.decode(data)))


def of_people() -> Kind:
    codec = PeopleCodec(Bound(2, 2, 1, 0), 64, "unkeyed")
    marks = [Mark(bytes([n]) * shards.SECRET, n, 3 * n, n, n % 2) for n in range(9)]
    return Kind([*map(codec.cell, marks)], lambda data: codec.cell(codec.mark(data)))


def of_pieces(gap: int) -> Kind:
    """One piece each, of the same shard."""
    codec, mark, states = PeopleCodec(Bound(20, 9, 9, gap), 64, "unkeyed"), Mark(bytes(32)), []
    for n in range(9):
        rows = Rows()
        for i in range(n):
            rows.add(mark.person(b"%d" % (i // 3)), mark.names(b"", [b"%d" % i, b"x"]), 10 * i)
        states.append(codec.piece(mark, codec.columns(rows))[1])
    one = mark._replace(pieces=1)
    return Kind(states, lambda data: codec.piece(mark, codec.held(one, [data]))[1])


EDGES = [(0, 1, 2), (1, 2, 1), (0, 2, 3), (3, 4, 1), (2, 3, 2), (0, 4, 1), (1, 3, 3)]
PLAIN_EDGES = [edge[:2] for edge in EDGES]
VECTORS = dp.Change(coordinates=1)
KINDS: dict[str, Callable[[], Kind]] = {
    "numbers": lambda: of_counter(dp.calibrate(BinaryTree(100), dp.ZCDP(0.5))),
    "with a history": lambda: of_counter(dp.calibrate(BinaryTree(100), dp.ZCDP(0.5)), 16),
    "numbers and estimates": lambda: of_counter(dp.calibrate(Honaker(100), dp.ZCDP(0.5))),
    "packed": lambda: of_counter(dp.calibrate(NormalizedBLT(100), dp.ZCDP(0.5))),
    "vectors": lambda: of_counter(dp.calibrate(SmoothBinary(99), dp.ZCDP(0.5), VECTORS, 3)),
    "packed vectors": lambda: of_counter(dp.calibrate(NormalizedBLT(99), dp.ZCDP(0.5), VECTORS, 3)),
    "endless": lambda: of_counter(
        dp.calibrate(dp.mechanisms.Unbounded(BinaryTree), dp.PureDP(1.0))
    ),
    "sparse": lambda: of_counter(
        dp.calibrate(sparse_for(10, 1000, dp.PureDP(1.0)), dp.PureDP(1.0))
    ),
    "words": lambda: of_statistic(Words("abc", 3), "replace_one", [*"abcacbzacabcb"]),
    "episodes": lambda: of_statistic(Episodes("abc", 2), "replace_one", [*"abcacbzacabcb"]),
    "a graph": lambda: of_statistic(Edges(5, max_degree=2), "edge", PLAIN_EDGES),
    "a forest": lambda: of_statistic(SpanningForest(5, 3), "edge", EDGES),
    "a clock": of_clock,
    "a shard": lambda: of_shard(SmoothBinary(40)),
    "a shard, packed": lambda: of_shard(NormalizedBLT(40), at_least=2),
    "a fold": of_fold,
    "a shard of people": of_people,
    "a piece of people": lambda: of_pieces(0),
    "a piece of people with a gap": lambda: of_pieces(7),
}


@for_long
def test_bytes_are_a_state_or_refused(long: float) -> None:
    """No other error, and no other state; of no kind's states is one of another kind's."""
    kinds = {name: make() for name, make in KINDS.items()}
    for kind in kinds.values():
        assert all(kind.again(data) == data for data in kind.states)
    for chance in chances(long, least=5000):
        name = chance.choice([*kinds])
        states, again = kinds[name]
        others = kinds[chance.choice([*kinds])].states if chance.random() < 0.2 else states
        data = hostile_bytes(chance, others)
        try:
            written = again(data)
        except StateError:
            assert data not in states, name
        else:
            assert _without_hints(written) == _without_hints(data), (name, data.hex())


def _without_hints(data: bytes) -> bytes:
    """Without the short fingerprints, which only choose the words of an error."""
    return data[:2] + data[8:-4]


def corrupt(kind: Kind, body: bytes) -> None:
    """A sound seal over what nothing has written, and whose error shows nothing of it."""
    with pytest.raises(StateError, match=says(CORRUPT)) as caught:
        kind.again(sealed(body))
    assert caught.value.__context__ is None or caught.value.__suppress_context__


def test_sealed_bytes_that_are_no_shard() -> None:
    kind = KINDS["a shard"]()
    body = kind.states[6][:-4]
    (size,) = struct.unpack_from("<I", body, 8)
    memory = 24 + size  # how many keys, arrays, waiting keys and pending ticks there are
    for place in range(4):
        for number in (0, 1, 100, 2**32 - 1):
            numbers = [*struct.unpack_from("<4I", body, memory)]
            if numbers[place] != number:
                numbers[place] = number
                packed = struct.pack("<4I", *numbers)
                corrupt(kind, body[:memory] + packed + body[memory + 16 :])
    corrupt(kind, body.replace(b"first", b"fir\xff\xfe"))
    later = body.index(struct.pack("<q", 9), memory)  # a pending tick, and how long its sums are
    corrupt(kind, body[: later + 8] + b"\xff" * 8 + body[later + 16 :])
    corrupt(kind, body + b"odd")


def test_sealed_bytes_that_are_no_fold_and_no_shard_of_people() -> None:
    fold, people = KINDS["a fold"](), KINDS["a shard of people"]()
    corrupt(fold, fold.states[3][:-4] + b"odd")
    body = people.states[3][:-4]
    for other in (body[:-1], body + b"\0", body[:8] + struct.pack("<I", 16) + body[12:]):
        corrupt(people, other)


# Events


class Placed:
    """Where an event is, for a DoFn that asks."""

    windows = (GlobalWindow(),)

    def __init__(self, micros: int = 5_000_000) -> None:
        self.timestamp_micros = micros


BUDGET, MANY = dp.ZCDP(0.5), 1 << 20
ELEMENTS: dict[str, Callable[..., Any]] = {
    "numbers": lambda **how: dp.PrefixCount(BUDGET, MANY, bounds=(-1, 2), **how),
    "numbers, finer": lambda **how: dp.PrefixCount(
        BUDGET, MANY, bounds=(0.25, 1.5), unit=0.25, **how
    ),
    "items": lambda **how: dp.Histogram(BUDGET, MANY, ["a", "b", "0"], max_items=2, **how),
    "items, removed": lambda **how: dp.Histogram(BUDGET, MANY, ["a", "b"], removals=True, **how),
    "one item": lambda **how: dp.Histogram(BUDGET, MANY, ["a", "b"], fit_total=True, **how),
    "words": lambda **how: dp.SubstringCount(BUDGET, MANY, ["a", "b", "ab"], 2, **how),
    "episodes": lambda **how: dp.EpisodeCount(BUDGET, MANY, ["a", "b"], 2, max_span=4, **how),
    "edges": lambda **how: dp.EdgeCount(BUDGET, MANY, 5, max_degree=2, **how),
    "triangles": lambda **how: dp.TriangleCount(BUDGET, MANY, ["0", "1", "a"], max_degree=2, **how),
    "stars": lambda **how: dp.KStarCount(BUDGET, MANY, 5, 2, max_degree=2, **how),
    "degrees": lambda **how: dp.DegreeHistogram(BUDGET, MANY, 5, max_degree=2, **how),
    "a forest": lambda **how: dp.SpanningForestCost(BUDGET, MANY, 5, 3, **how),
    "weights": lambda **how: dp.CutGraph(BUDGET, MANY, ["0", "1", "a"], **how),
}


def _nested() -> Any:
    made: Any = []
    for _ in range(100_000):
        made = [made]
    return made


class Reader:
    """What one transform makes of values: as bounded input, as a stream, and where it may refuse.

    Without noise, so that a stream's releases show what was counted.
    """

    def __init__(self, make: Callable[..., Any]) -> None:
        how: dict[str, Any] = {"entropy": ScriptedEntropy(0), "mechanism": "BinaryTree"}
        whole, stream = (make(path=path, **how) for path in ("bounded", "streaming"))
        self.counter, self.statistic = whole.counter, whole.statistic
        self.whole = self._made(whole, ReadElements)
        self.telling = {
            kind: self._made(make(path="bounded", on_reject=kind, **how), ReadElements)
            for kind in ("collect", "raise")
        }
        dofns = dofns_of(stream)
        self.gather = dofns.get(GatherNumbers)
        self.count: Any = dofns.get(CountGathered) or dofns[CountEachElement]
        self.count.setup()
        self.cell, self.memory, self.steps = Cell(), self.statistic.init(), 0
        self.sums: Any = 0

    @staticmethod
    def _made(transform: Any, kind: type) -> Any:
        dofn = dofns_of(transform)[kind]
        dofn.setup()
        return dofn

    def read(self, make: Callable[[], Any]) -> None:
        """Assert all that is promised of a value, made anew for each reading: some end by it."""
        ((_, packed),) = self.whole.process(("k", make()), Placed())
        codes = tuple(np.frombuffer(packed, "<i8").tolist()[1:])
        self.memory, x = self.statistic.count(self.memory, codes)
        low, high = self.counter.change.lattice_bounds(self.counter.unit)
        assert np.all((low <= x) & (x <= high)) or codes == self.statistic.empty
        if isinstance(self.statistic, Items):
            assert np.count_nonzero(x) <= self.statistic.max_items
        self.sums, self.steps = self.sums + x, self.steps + 1
        counted: Any = np.asarray(self.sums * self.counter.unit).tolist()
        if self.statistic.labels is not None:  # else one number
            counted = counted[: len(self.statistic.labels)]
        assert self._streamed(make()) == (self.steps, counted)
        self._told(make, codes)

    def _streamed(self, value: Any) -> tuple[int, Any]:
        element: Any = ("k", value)
        self.count.start_bundle()
        if self.gather is not None:
            self.gather.start_bundle()
            assert [*self.gather.process(element, Placed())] == []
            (element,) = (made.value for made in self.gather.finish_bundle())
        (release,) = self.count.process(element, Placed(), self.cell)
        release = getattr(release, "value", release) if self.gather is not None else release
        return release.step, release.value

    def _told(self, make: Callable[[], Any], codes: tuple[int, ...]) -> None:
        """Who asks for what is refused is told why, and never what, but in its own field."""
        ((_, step),) = self.telling["collect"].process(("k", make()), Placed())
        packed, _, _, _, refused = step
        assert tuple(np.frombuffer(packed, "<i8").tolist()[1:]) == codes
        assert refused is None or SECRET not in refused.reason
        if refused is None:
            assert len(self.telling["raise"].process(("k", make()), Placed())) == 1
            return
        with pytest.raises(RejectedElementError) as caught:
            self.telling["raise"].process(("k", make()), Placed())
        assert SECRET not in str(caught.value)
        assert caught.value.__context__ is None or caught.value.__suppress_context__


@pytest.mark.long
@for_long
def test_any_value_is_counted_within_its_bounds_or_refused(long: float) -> None:
    """On both paths alike; it stops nothing, and takes its step."""
    readers = {name: Reader(make) for name, make in ELEMENTS.items()}
    for chance in chances(long, least=200):
        seed, name = chance.random(), chance.choice([*readers])
        readers[name].read(lambda seed=seed: hostile_value(random.Random(seed)))


TEXTS = ("a", "b", "c", "", "\ud800", "é", SECRET)


def hostile_event(chance: random.Random) -> tuple[Any, Placed]:
    """Mostly pairs of a key and a value, at some time."""
    value = hostile_value(chance)
    key: Any = chance.choice(TEXTS) if chance.random() < 0.8 else hostile_value(chance)
    event = (key, value) if chance.random() < 0.9 else value
    return event, Placed(chance.choice([0, 5_000_000, -1, 10**9, 2**62, 39_999_999, 40_000_000]))


KEYS = ("a", "b", "c")
TICKS: dict[str, Any] = {"tick": 10, "start": 0, "horizon": 4, "bounds": (-1, 2)}


class Unshown:
    def __repr__(self) -> str:
        raise RuntimeError(SECRET)


@pytest.mark.parametrize("value", [Unshown(), 10**5000, _nested()], ids=["its own", "long", "deep"])
def test_a_refused_value_that_cannot_be_shown_is_collected_and_stops_nothing(value: Any) -> None:
    """Nor is one that UTF-8 cannot hold: no coder would take it."""
    dofn = dofns_of(ELEMENTS["words"](on_reject="collect", path="bounded"))[ReadElements]
    dofn.setup()
    ((_, (*_, refused)),) = dofn.process(("k", value), Placed())
    assert refused.element == f"<{type(value).__name__}>"


class Unmeasured(tuple[Any, ...]):
    def __len__(self) -> int:
        raise ValueError(SECRET)


@pytest.mark.parametrize("element", [Unmeasured(), Unmeasured(("a", 1))])
def test_a_tuple_that_reads_in_its_own_way_is_no_pair(element: Any) -> None:
    dofn = dofns_of(TickNumbers(dp.ApproxDP(1.0, 1e-6), keys=KEYS, path="bounded", **TICKS))
    sums = dofn[SumTicks]
    sums.start_bundle()
    assert not [*sums.process(element, Placed(0)), *sums.finish_bundle()]
    reads = dofns_of(ELEMENTS["words"](on_reject="collect", path="bounded"))[ReadElements]
    reads.setup()
    (refusal,) = reads.process(element, Placed())
    assert refusal.value.reason == "the element is not a (key, value) pair but Unmeasured"
    assert SECRET not in refusal.value.element


def test_a_clients_slopes_give_no_warning() -> None:
    learner = ConvexLearner(BUDGET, 4, gradient=lambda value, points: np.longdouble("1e4000"))
    assert learner.message(None).shape == (8,)


@for_long
def test_any_event_at_a_clock_is_within_its_bounds_or_nothing(long: float) -> None:
    """It stops nothing but what is known before: events of no time, and rows that are no pairs."""
    dofns = [
        dofns_of(TickNumbers(dp.ApproxDP(1.0, 1e-6), keys=keys, path=path, **TICKS))[kind]
        for keys in (KEYS, dp.SelectKeys())
        for path, kind in (
            ("bounded", SumShards if isinstance(keys, dp.SelectKeys) else SumTicks),
            ("streaming", SumShards if isinstance(keys, dp.SelectKeys) else ReadTicks),
        )
    ]
    for chance in chances(long, least=1000):
        event, place = hostile_event(chance)
        for dofn in dofns:
            dofn.start_bundle()
            made = [*dofn.process(event, place), *dofn.finish_bundle()]
            assert len(made) <= 1
            for windowed in made:
                group, data = windowed.value
                if isinstance(dofn, SumShards):
                    ((names, steps, xs),) = batches_of(data)
                    assert names == [str.__str__(event[0])]
                    ((step, x),) = zip(steps.tolist(), xs.tolist(), strict=True)
                else:
                    step, x = PAIR.unpack(data[-PAIR.size :])
                    if isinstance(dofn, ReadTicks):
                        step = tick_of(step, len(KEYS))
                    assert group == 0
                assert 1 <= step <= 4
                assert 0 <= place.timestamp_micros < 40_000_000
                assert -1 <= x <= 2


@pytest.mark.long
@for_long
def test_any_person_is_somebody_or_nobody(long: float) -> None:
    """Whatever a function gives for one, or raises of what data cause."""
    given: list[Any] = [None]
    users = dp.Users(lambda value: given[0], 2, per_key=1)

    def failing(value: Any) -> Any:
        raise given[0]

    parcels = StepParcels(WindowCheck(None), None)
    dofn = SendToShards(users, parcels, Placement(1))
    broken = SendToShards(dp.Users(failing, 2, per_key=1), parcels, Placement(1))
    for chance in chances(long, least=2000):
        given[0] = hostile_value(chance)
        person, entry = dofn.read(("k", 1), Placed())
        kind = type(given[0])
        assert type(person) is str
        assert person.encode() is not None
        if issubclass(kind, str):
            assert person in ("", str.__str__(given[0]))
        elif issubclass(kind, int | np.integer) and not (kind is bool or kind is np.timedelta64):
            assert re.fullmatch("(-?[0-9]+)?", person)
        else:
            assert person == ""
        assert parcels.unwrap(parcel_of(entry), [0]) == [("k", 1)]
        given[0] = chance.choice(BY_DATA)(SECRET)
        person, _ = broken.read(("k", 1), Placed())
        assert person == ""
        # An element that no coder takes counts 0, and takes its step.
        event, place = hostile_event(chance)
        is_pair = type(event) is tuple and len(event) == 2 and type(event[0]) is str
        if is_pair and event[0] in KEYS:
            _, entry = dofn.read(event, place)
            (passed,) = parcels.unwrap(parcel_of(entry), [0])
            assert passed[0] == event[0]


@pytest.mark.long
@for_long
def test_any_client_sends_a_message_of_its_bounds(long: float) -> None:
    given: list[Any] = [None]
    learners: list[Any] = [
        MedianLearner(BUDGET, 4),
        ConvexLearner(BUDGET, 4, gradient=lambda value, points: given[0]),
    ]
    for chance in chances(long, least=1000):
        value = given[0] = hostile_value(chance)
        for learner in learners:
            (profile,) = learner.profiles([value])
            whole = round(1 / learner.unit)
            assert profile.shape == (4,)
            assert (np.diff([0, *profile.tolist(), whole]) >= 0).all()
            assert learner.message(value).shape == (8,)


# Files


def exact_rows(data: bytes, columns: Sequence[str], clock: bool) -> list[dict[str, str]] | None:
    """The rows of a CSV file by their names; None if it is not a sound one with these columns.

    At a clock without the lines that are not rows, which elsewhere make a file unsound.
    """
    if data.startswith(b"\x1f\x8b\x08"):  # whatever its name
        data = gzip.decompress(data)
    lines = [line for line in data.removeprefix(b"\xef\xbb\xbf").splitlines() if line]
    try:
        header, *rows = [exact_row(line, clock and number > 0) for number, line in enumerate(lines)]
    except ValueError:
        return None
    if header is None or any(header.count(name) != 1 for name in columns):
        return None
    places, width = {name: header.index(name) for name in columns}, len(header)
    read = []
    for row in rows:
        if clock and (row is None or len(row) < width or any(row[width:])):
            continue
        if row is None or len(row) <= max(places.values()):
            return None
        read.append({name: row[place] for name, place in places.items()})
    return read


def exact_row(line: bytes, clock: bool) -> list[str] | None:
    try:
        (row,) = csv.reader([line.decode()], strict=True)
    except (UnicodeDecodeError, csv.Error):
        if not clock:
            raise ValueError from None
        return None
    return row


def plain_time(text: str) -> int | None:
    return int(text) if re.fullmatch(r"\d{1,9}", text) else None


def as_number(cell: str) -> float:
    """What a cell counts, within bounds of 0 and 2."""
    try:
        value = float(cell) if "_" not in cell and len(cell) <= 300 else math.nan
    except ValueError:
        return 0
    return 0 if math.isnan(value) else round(min(max(value, 0), 2))


def counts_by_row(rows: list[dict[str, str]]) -> dict[str, float] | None:
    """The last running count of each key, or None where a row has no plain time, or no release."""
    if any(plain_time(row["time"]) is None for row in rows):
        return None
    if max(Tally(row["key"] for row in rows).values(), default=0) > 99:
        return None
    sums: dict[str, float] = {}
    for row in rows:
        sums[row["key"]] = sums.get(row["key"], 0) + as_number(row["n"])
    return sums


def counts_by_tick(rows: list[dict[str, str]]) -> dict[str, float] | None:
    """The last running count of each key, or None where a time may be one, or not."""
    sums = dict.fromkeys(("ann", "bob"), 0.0)
    for row in rows:
        time = plain_time(row["time"])
        if time is None and set(row["time"]) <= set("0123456789.+-eE"):
            return None
        if time is not None and row["key"] in sums and time < 40:
            sums[row["key"]] += as_number(row["n"])
    return sums


ROWS = ("--key", "key", "--timestamp", "time", *EXACT)
CLOCK = ("--tick", "10", "--start", "0", "--horizon", "4")
METRICS = ("--metric", "mean(n, 0, 2)", "--metric", "people", "--metric", "rate(n > 0)")
WORDS = ("--domain", "ann", "bob", "--max-length", "2")
COMMANDS: dict[str, tuple[Any, tuple[object, ...], tuple[str, ...], Any]] = {
    "count": (
        count.main,
        (*ROWS, "--value", "n", "--bounds", "0", "2", "--horizon", "99"),
        ("key", "n", "time"),
        counts_by_row,
    ),
    "count of people": (
        count.main,
        (
            *(*ROWS, "--where", "n=1", "--horizon", "99", "--user", "who", "--per-user", "3"),
            *("--per-key", "1"),
        ),
        ("key", "n", "who", "time"),
        None,
    ),
    "ticks": (
        ticks.main,
        (*ROWS, "--metric", "sum(n, 0, 2, unit=1)", *CLOCK, "--keys", "ann", "bob"),
        ("key", "n", "time"),
        counts_by_tick,
    ),
    "ticks of metrics": (
        ticks.main,
        (*ROWS, *METRICS, *CLOCK, "--keys", "ann", "bob", "--user", "who", "--per-user", "2"),
        ("key", "n", "who", "time"),
        None,
    ),
    "histogram": (
        histogram.main,
        (*ROWS, "--item", "who", "--domain", "ann", "bob", "--horizon", "99"),
        ("key", "who", "time"),
        None,
    ),
    "graph": (
        graph.main,
        (*ROWS, "--what", "edges", "--edge", "who", "n", "--vertices", "9", "--horizon", "99"),
        ("key", "who", "n", "time"),
        None,
    ),
    "sequences": (
        sequences.main,
        (*ROWS, "--letter", "who", *WORDS, "--horizon", "99"),
        ("key", "who", "time"),
        None,
    ),
}


def assert_lanes_agree(words: Sequence[object], main: Any, place: Path, said: str) -> None:
    """Under one secret: rows in a pipeline, as for options for Beam, and in columns."""
    (secret := place / "secret").write_text("0123456789abcdef" * 4)
    found = []
    for more in ((), ("--direct_num_workers", "1")):
        out = place / "lane.csv"
        again = (*words, "--secret-file", secret, "--run-id", "r", "--output", out)
        ended = command(*again, *more, main=main)
        found.append((ended, out.read_bytes() if out.exists() else None))
        for path in place.glob("lane.*"):
            path.unlink()
    secret.unlink()
    assert found[0] == found[1], said


@pytest.mark.long
@for_long
def test_any_file_is_counted_right_or_refused_in_a_line(long: float, tmp_path: Path) -> None:
    """Which shows no cell; and then nothing is written."""
    for number, chance in enumerate(chances(long, least=14)):
        main, words, columns, expected = COMMANDS[chance.choice([*COMMANDS])]
        place = tmp_path / str(number)
        place.mkdir()
        is_parquet = chance.random() < 0.25
        name, data = (hostile_parquet if is_parquet else hostile_csv)(chance)
        (place / name).write_bytes(data)
        out = place / "out.csv"
        ended = command("--input", place / name, *words, "--output", out, main=main)
        said = f"{name} {words} {ended}"
        if main in (count.main, ticks.main):
            assert_lanes_agree(("--input", place / name, *words), main, place, said)
        assert SECRET not in ended.out + ended.err, said
        if ended.status:
            assert ended.status == 2, said
            *warnings, line = ended.err.splitlines()
            assert all(one.startswith("warning: ") for one in warnings), said
            assert line.startswith(f"error: {place / name}"), said
            assert [path.name for path in place.iterdir()] == [name], said
        else:
            assert {path.name for path in place.iterdir()} == {
                name,
                "out.csv",
                "out.csv.manifest.json",
            }, said
        if not is_parquet:
            rows = exact_rows(data, columns, clock=main is ticks.main)
            if rows is None:
                assert ended.status == 2, said
            elif expected is not None and (counted := expected(rows)) is not None:
                assert ended.status == 0, said
                last = {key: value for key, _, _, value in written(out)}
                assert {k: round(v) for k, v in last.items()} == counted, said
        shutil.rmtree(place)

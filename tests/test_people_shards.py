"""Shards of people: what they keep, what they refuse, and that the rule stays the rule."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import permutations
from operator import itemgetter
from types import SimpleNamespace
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.utils.timestamp import MIN_TIMESTAMP

import beam_dpcount as dp
from beam_dpcount.counters.people import Bound, Seen
from beam_dpcount.dofns import users as dofns
from beam_dpcount.dofns.intake import Excess
from beam_dpcount.dofns.parcels import ElementParcels, Parcels, StepParcels
from beam_dpcount.dofns.ticks import SEED
from beam_dpcount.dofns.users import BoundArriving, SendToShards
from beam_dpcount.dofns.windows import WindowCheck
from beam_dpcount.states import people as states
from beam_dpcount.states.envelope import CORRUPT, StateError
from beam_dpcount.states.people import DIGEST, OTHER_BOUND, OTHER_PLACEMENT, OTHER_SHARDS
from beam_dpcount.states.placement import Placement
from benchmarks.cells import Bag, PeopleShards
from tests.messages import says
from tests.people import EXACT, people, tick_count
from tests.people_shards import PAIRS, bundles, crowd, event, shown

SECRET = "PEOPLE_SECRET"
REPLAYABLE = dp.ReplayableEntropy(SECRET, run_id="r")
STEPS = StepParcels(WindowCheck(None), None)
BOUNDS = [
    Bound(1, 1, 1, 0),
    Bound(3, 3, 3, 0),
    Bound(5, 2, 3, 0),
    Bound(4, 4, 2, 50),
]


class Several(ElementParcels):
    """Events of several keys, which travel as the text of all of them."""

    def names(self, parcel: bytes) -> Sequence[bytes]:
        return super().names(parcel)[0].split()

    def unwrap(self, parcel: bytes, kept: Sequence[int]) -> list[Any]:
        (element,) = super().unwrap(parcel, kept)
        return [(element[0].split()[place], element[1]) for place in kept]


SEVERAL = Several([SimpleNamespace(wrap=lambda *_: b"")])


class Shuffled(Bag):
    """A bag without order, as bags are."""

    def read(self) -> list[bytes]:
        return random.sample(self.entries, len(self.entries))


@pytest.fixture(autouse=True)
def _secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SECRET, "0123456789abcdef" * 4)
    monkeypatch.setattr("benchmarks.cells.Bag", Shuffled)


def shards_of(
    bound: Bound, parcels: Parcels = PAIRS, placement: Placement | None = None
) -> PeopleShards:
    return PeopleShards(*stages(bound, parcels, placement or Placement(3)))


def stages(
    bound: Bound, parcels: Parcels, placement: Placement
) -> tuple[SendToShards, BoundArriving]:
    users = dp.Users(lambda payload: payload["who"], bound.events)
    sending = SendToShards(users, parcels, placement, True)
    return sending, BoundArriving(bound, parcels, placement)


def expected(bound: Bound, parcels: Parcels, events: list[Any]) -> list[tuple[Any, int]]:
    """What the pure rule lets through, in order of arrival."""
    seen: dict[str, Seen] = defaultdict(Seen)
    found: list[tuple[Any, int]] = []
    for each in events:
        key, payload = each.value
        names = key.split() if parcels is SEVERAL else [key]
        kept = []
        if payload["who"]:
            kept = bound.take(seen[payload["who"]], names, each.timestamp_micros)
        if parcels is STEPS:
            counts = payload if kept else Excess(payload)
            found.append(((key, counts), each.timestamp_micros))
        else:
            found += [((names[at], payload), each.timestamp_micros) for at in kept]
    return found


@pytest.mark.parametrize("most", [1, 7, 90])
@pytest.mark.parametrize("parcels", [PAIRS, SEVERAL, STEPS], ids=["pairs", "several", "steps"])
@pytest.mark.parametrize("bound", BOUNDS, ids=str)
def test_the_rule_is_that_of_one_person_alone(
    bound: Bound, parcels: Parcels, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the bundles, merges, order of pieces, and workers that take a state over."""
    monkeypatch.setattr(dofns, "MERGED", 4)
    monkeypatch.setattr(states, "PIECE", 5)
    chance = random.Random(f"{bound} {most}")
    for _ in range(3):
        events, made, passed = crowd(chance, 90), [], shards_of(bound, parcels)
        for bundle in bundles(events, most, chance):
            made += passed.bundle(bundle)
            if chance.random() < 0.3:
                passed.resume(*stages(bound, parcels, Placement(3)))
        want = expected(bound, parcels, events)
        if parcels is STEPS:  # in the very order, too
            assert shown(made) == want
        assert sorted(shown(made), key=repr) == sorted(want, key=repr)


def test_per_element_what_was_gathered_in_parts_keeps_its_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dofns, "_GATHERED", 10)
    events, bound = crowd(random.Random(3), 95), Bound(3, 3, 3, 0)
    assert shown(shards_of(bound, STEPS).bundle(events)) == expected(bound, STEPS, events)


def test_the_order_of_elements_does_not_tell_equal_flushes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a bundle whose batches come shard by shard, as local runners group them."""
    monkeypatch.setattr(dofns, "_GATHERED", 20)
    first = crowd(random.Random(5), 20)
    other = [*first[:-1], event("z", "p0", 7)]
    orders = []
    for second in (first, other):
        sending, bounding = stages(Bound(99, 99, 99, 0), STEPS, Placement(3))
        shards = PeopleShards(sending, bounding)
        for number in range(3):
            shards.take((number, SEED))
        sending.start_bundle()
        bounding.start_bundle()
        sent = [batch for each in [*first, *second] for batch in sending.process(each.value, each)]
        sent += sending.finish_bundle()
        batches = sorted((batch.value for batch in sent), key=itemgetter(0))
        made = [each for batch in batches for each in shards.take(batch)]
        made += bounding.finish_bundle()
        # Who, and in which of the two; all others' elements are the same.
        orders.append([each.value for each in made if each.value != other[-1].value])
    last = first[-1].value
    both, one = ([each for each in made if each != last] for made in orders)
    assert both == one


# State


def one_shard(bound: Bound, events: Iterable[Any]) -> PeopleShards:
    found = shards_of(bound, PAIRS, Placement(1))
    for each in events:
        found.bundle([each])
    return found


@pytest.mark.parametrize(
    ("bound", "width"), [(Bound(1, 9, 1, 0), 16), (Bound(9, 9, 9, 0), 33), (Bound(9, 9, 9, 1), 41)]
)
def test_what_is_kept_is_small_and_names_nobody(bound: Bound, width: int) -> None:
    found = shards_of(bound, PAIRS, Placement(1))
    found.bundle([event("a name of a key", f"person {i}", i) for i in range(100)])
    (piece,) = found.bags[0].entries
    assert len(piece) == 12 + 100 * width + 4
    assert len(found.cells[0].data) == 28 + 24 + 32
    assert b"name" not in piece
    assert b"person" not in piece


def test_digests_tell_nothing_across_shards_and_people() -> None:
    """Else equal ones would tell of equal people, or keys."""
    found = [shards_of(Bound(2, 2, 2, 0), PAIRS, Placement(1)) for _ in range(2)]
    for each in found:
        each.bundle([event("a", "ann", 0), event("a", "bob", 1)])
    pieces = [each.bags[0].entries[0] for each in found]
    digests = {piece[12 + 16 * i :][:16] for piece in pieces for i in range(4)}
    assert len(digests) == 8
    marks = [each._bounding._codec.mark(each.cells[0].data) for each in found]
    assert marks[0].secret != marks[1].secret
    assert marks[0].secret.hex() not in repr(marks[0])


def test_what_does_not_count_writes_nothing() -> None:
    found = one_shard(Bound(2, 2, 2, 0), [event("a", "ann", i) for i in range(2)])
    before = found.cells[0].data, list(found.bags[0].entries)
    for i in range(20):
        assert not found.bundle([event("a", "ann", i), event("a", None, i)])
    assert (found.cells[0].data, found.bags[0].entries) == before


FAULTS: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "a piece lost": lambda pieces: pieces[1:],
    "all lost": lambda pieces: [],
    "a piece twice": lambda pieces: [*pieces, pieces[0]],
    "one twice in place of another": lambda pieces: [pieces[0], *pieces[:-1]],
    "cut short": lambda pieces: [pieces[0][:-1], *pieces[1:]],
    "half": lambda pieces: [pieces[0][: len(pieces[0]) // 2], *pieces[1:]],
    "two in one": lambda pieces: [pieces[0] + pieces[1], *pieces[2:]],
    "nothing": lambda pieces: [b"", *pieces[1:]],
    "a bit": lambda pieces: (
        [pieces[0][:20] + bytes([pieces[0][20] ^ 1]) + pieces[0][21:], *pieces[1:]]
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("gap", [0, 5])
def test_pieces_that_are_not_what_was_written_are_refused(fault: str, gap: int) -> None:
    """Or of some people less would be known, and they would count again."""
    events = [event("a", f"p{i}", i) for i in range(5)]
    found = one_shard(Bound(2, 2, 2, gap), events)
    found.bags[0].entries = FAULTS[fault](found.bags[0].entries)
    with pytest.raises(StateError, match=says(CORRUPT)):
        found.bundle([event("a", "somebody", 99)])


def test_the_order_of_pieces_says_nothing() -> None:
    codec, written = states.PeopleCodec(Bound(2, 2, 2, 5), 1, "unkeyed"), []
    mark = codec.begin()
    for i in range(4):
        rows, who = states.Rows(), mark.person(b"p%d" % i)
        rows.add(who, mark.names(who, [b"a"]), i)
        mark, piece = codec.piece(mark, codec.columns(rows))
        written.append(piece)

    def read(pieces: Iterable[bytes]) -> Any:
        try:
            held = codec.held(mark, pieces)
        except StateError:
            return None
        return [codec.seen(held, [mark.person(b"p%d" % i)]) for i in range(5)]

    first, *others = map(read, permutations(written))
    assert first is not None
    assert [seen.events for each in first for seen in each.values()] == [1, 1, 1, 1, 0]
    assert all(other == first for other in others)


@pytest.mark.parametrize("older", [True, False])
def test_pieces_of_elsewhere_or_of_an_earlier_generation_are_refused(
    older: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dofns, "MERGED", 3)
    events = [event("a", f"p{i}", i) for i in range(6)]
    found, other = (one_shard(Bound(2, 2, 2, 0), events[:3]) for _ in range(2))
    before = list(found.bags[0].entries)
    if older:
        found.bundle(events[3:])  # which merges them
        assert len(found.bags[0].entries) == 1
        found.bags[0].entries = before[:1]
    else:
        found.bags[0].entries[1] = other.bags[0].entries[1]
    with pytest.raises(StateError, match=says(CORRUPT)):
        found.bundle([event("a", "somebody", 99)])


@pytest.mark.parametrize(
    ("bound", "placement", "refusal"),
    [
        (Bound(3, 2, 2, 0), Placement(1), OTHER_BOUND),
        (Bound(2, 2, 2, 7), Placement(1), OTHER_BOUND),
        (Bound(2, 2, 2, 0), Placement(2), OTHER_SHARDS),
        (Bound(2, 2, 2, 0), Placement(1, REPLAYABLE), OTHER_PLACEMENT),
    ],
)
def test_a_resume_with_another_rule_or_placement_is_refused_by_name(
    bound: Bound, placement: Placement, refusal: str
) -> None:
    found = one_shard(Bound(2, 2, 2, 0), [event("a", "ann", 0)])
    found.resume(*stages(bound, PAIRS, placement))
    with pytest.raises(StateError, match=says(refusal)):
        found.take((0, SEED))
    with pytest.raises(StateError, match=says(refusal)):
        found.take((0, b"an event"))


def test_another_secret_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    placement = Placement(1, REPLAYABLE)
    found = shards_of(Bound(2, 2, 2, 0), PAIRS, placement)
    found.bundle([event("a", "ann", 0)])
    # Another run of the same secret goes on.
    again = Placement(1, dp.ReplayableEntropy(SECRET, run_id="another"))
    found.resume(*stages(Bound(2, 2, 2, 0), PAIRS, again))
    assert found.bundle([event("a", "ann", 1)])
    assert not found.bundle([event("a", "ann", 2)])
    monkeypatch.setenv(SECRET, "fedcba9876543210" * 4)
    found.resume(*stages(Bound(2, 2, 2, 0), PAIRS, placement))
    with pytest.raises(StateError, match=says(OTHER_PLACEMENT)):
        found.bundle([event("a", "ann", 3)])


def test_only_a_seed_starts_a_shard() -> None:
    """Where state was lost, or of a further shard, events begin nothing: they wait for it."""
    for parcels in (PAIRS, STEPS):
        events, bound = crowd(random.Random(7), 60), Bound(2, 2, 2, 0)
        found = shards_of(bound, parcels, Placement(1))
        sent: list[Any] = []
        for at in range(0, 60, 20):
            found._sending.start_bundle()
            for each in events[at : at + 20]:
                found._sending.process(each.value, each)
            sent += found._sending.finish_bundle()
        found._bounding.start_bundle()
        for batch in sent:
            assert not list(found.take(batch.value))
        assert found.cells[0].data is None
        made = [*found.take((0, SEED)), *found._bounding.finish_bundle()]
        assert shown(made) == expected(bound, parcels, events)
        assert not list(found.take((0, SEED)))  # it was started


def test_states_stay_few_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """However small the bundles: no more pieces than since a merge, and none of any size."""
    monkeypatch.setattr(states, "PIECE", 100)
    found = shards_of(Bound(1, 1, 1, 0), PAIRS, Placement(1))
    pieces = []
    for i in range(700):
        found.bundle([event("a", f"p{i}", i)])
        pieces.append(len(found.bags[0].entries))
    assert max(pieces) <= states.MERGED + 8
    assert max(map(len, found.bags[0].entries)) <= 12 + 100 * DIGEST + 4
    assert not found.bundle([event("a", f"p{i}", 999) for i in range(700)])


def test_a_batch_has_no_time_of_its_events() -> None:
    """Or where a runner orders by time, one person's event would move others': they are as sent."""
    sending, _ = stages(BOUNDS[0], PAIRS, Placement(2))
    sending.setup()
    sending.start_bundle()
    for each in crowd(random.Random(1), 30):
        sending.process(each.value, each)
    assert {sent.timestamp for sent in sending.finish_bundle()} == {MIN_TIMESTAMP}


# Placement


def test_without_a_secret_placement_is_public_and_the_same_everywhere() -> None:
    place = Placement(1024).finder()
    assert [place(name) for name in ("ann", "\u00e4nn")] == [627, 318]
    assert Placement(9).fingerprint == "unkeyed"


def test_a_secret_places_people_and_stays_out_of_pickles() -> None:
    keyed = Placement(1024, REPLAYABLE)
    place, plain = keyed.finder(), Placement(1024).finder()
    names = [f"p{i}" for i in range(300)]
    assert sum(place(name) == plain(name) for name in names) < 10
    code = (
        "import beam_dpcount as dp; from beam_dpcount.states.placement import Placement;"
        f"f = Placement(1024, dp.ReplayableEntropy({SECRET!r}, run_id='x')).finder();"
        f"print([f(f'p{{i}}') for i in range(300)])"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert told.stdout.strip() == str([place(name) for name in names])
    sending, _ = stages(BOUNDS[0], PAIRS, keyed)
    sending.setup()
    assert "_shard_of" not in sending.__getstate__()


@pytest.mark.parametrize(
    ("events", "people", "shards"),
    [
        (1, None, 64),
        (20, None, 64),
        (1, 10**6, 64),
        (1, 10**7, 128),
        (20, 10**7, 2048),
        (100, 10**10, 1 << 16),
    ],
)
def test_the_number_of_shards_follows_from_what_is_expected(
    events: int, people: int | None, shards: int
) -> None:
    users = dp.Users("who", events, people=people)
    assert users.shards == shards
    count = tick_count(users, path="streaming")
    assert count.display_data()["people_shards"] == f"{shards}, by a hash without a secret"
    assert f"people in shards: {shards}, by a hash without a secret" in str(count)
    count = tick_count(users, path="streaming", entropy=REPLAYABLE)
    assert count.display_data()["people_shards"] == f"{shards}, by a key of the secret"
    assert "people_shards" not in tick_count(users, path="bounded").display_data()


def test_a_pipeline_has_the_shards_that_users_say(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[BoundArriving] = []

    class Look(beam.pipeline.PipelineVisitor):
        def visit_transform(self, node: Any) -> None:
            fn = getattr(node.transform, "fn", None)
            if isinstance(fn, BoundArriving):
                made.append(fn)

    pipeline = beam.Pipeline(runner="FnApiRunner")
    users = people(1, people=10**7)
    events = pipeline | beam.Create([("a", {"who": "ann", "n": 1})])
    _ = events | tick_count(users, path="streaming", entropy=REPLAYABLE)
    both = {"one": tick_count(None, path="streaming"), "two": tick_count(None, path="streaming")}
    _ = events | "Both" >> dp.BoundUsers(users, both)
    _ = events | dp.PrefixCount(EXACT, 9, users=users, value=len, path="streaming")
    pipeline.visit(Look())
    assert [fn._placement.shards for fn in made] == [128] * 3
    assert [fn._placement.fingerprint != "unkeyed" for fn in made] == [True, False, False]


# Hot spots


def test_half_of_all_events_in_one_shard_and_a_tenth_of_one_person() -> None:
    place, chance = Placement(64).finder(), random.Random(5)
    hot = [name for name in (f"hot{i}" for i in range(9000)) if place(name) == 7][:100]
    events = []
    for i in range(4000):
        who = "one" if i % 10 == 0 else chance.choice(hot) if i % 2 else f"p{chance.randrange(999)}"
        events.append(event(chance.choice("ab"), who, i))
    bound, parcels = Bound(5, 2, 3, 0), PAIRS
    for most in (1000, 4000):
        found = shards_of(bound, parcels, Placement(64))
        made = [x for at in range(0, 4000, most) for x in found.bundle(events[at : at + most])]
        assert sorted(shown(made), key=repr) == sorted(expected(bound, parcels, events), key=repr)
        assert len(found.bags[7].entries) <= 4000 // most + 1

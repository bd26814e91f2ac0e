"""Bounding many people: in shards as one by one, and at what cost beside a plain grouping."""

from __future__ import annotations

import random
from collections import Counter as Tally
from collections import defaultdict
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner.fn_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.utils import windowed_value

import beam_dpcount as dp
from beam_dpcount.counters.people import Bound, Seen
from beam_dpcount.dofns import users as bounding
from beam_dpcount.dofns.parcels import Parcels
from beam_dpcount.dofns.users import BoundArriving, BoundShards, SendToShards
from beam_dpcount.states.placement import Placement
from beam_dpcount.states.wire import record_of, records_of
from beam_dpcount.transforms.ticks import TickNumbers
from benchmarks import people
from benchmarks.cells import PeopleShards

EVENTS = 100_000


def parts(users: dp.Users) -> tuple[Parcels, Bound]:
    """What a count of twenty keys has."""
    events = beam.Pipeline() | beam.Create([("", "")])
    return people.count_of("auto", people.KEYS[:20], users).parcels(events), users.bound()


def events_of(rng: random.Random, number: int) -> list[Any]:
    """Of a few people, in order of time, at times that are all different."""
    hours = sorted(rng.sample(range(people.TICKS), number))
    return [
        windowed_value.create(
            (rng.choice(people.KEYS[:6]), f"person-{rng.randrange(5)}"),
            hour * people.TICK * 1_000_000,
            (people._WINDOW,),
        )
        for hour in hours
    ]


BOUNDS = [
    dp.Users(str, events=1, per_key=1),
    dp.Users(str, events=4, keys=2, per_key=3),
    dp.Users(str, events=9, keys=3, per_key=5, gap=20 * people.TICK),
    dp.Users(str, events=30, per_key=2, gap=5 * people.TICK),
]


@pytest.mark.parametrize("users", BOUNDS, ids=str)
def test_what_passes_is_what_the_rule_takes(users: dp.Users) -> None:
    """In shards, whose bundles are cut anywhere, and arriving; both against Bound.take alone."""
    rng = random.Random(str(users))
    placement = Placement(3)  # so that people share one
    for number in (3, 40, 150):
        events = events_of(rng, number)
        taken: list[Any] = []
        seen: dict[str, Seen] = defaultdict(Seen)
        parcels, bound = parts(users)
        for event in events:
            key, person = event.value
            if bound.take(seen[person], [key], event.timestamp_micros):
                taken.append((key, event.timestamp_micros))
        send, shards = SendToShards(users, parcels, placement), defaultdict(list)
        send.setup()
        shuffled = rng.sample(events, len(events))
        for begin in range(0, number, 17):
            send.start_bundle()
            made = [x for e in shuffled[begin : begin + 17] for x in send.process(e.value, e)]
            made += send.finish_bundle()
            earliest = min(e.timestamp_micros for e in shuffled[begin : begin + 17])
            assert {one.timestamp_micros for one in made} == {earliest}
            for one in made:
                shards[one.value[0]].append(one.value[1])
        assert len(shards) > 1 or number == 3
        left = [x for shard in shards.items() for x in BoundShards(bound, parcels).process(shard)]
        assert Tally((x.value[0], x.timestamp_micros) for x in left) == Tally(taken)

        arriving = PeopleShards(send, BoundArriving(bound, parcels, placement))
        kept = [x for at in range(0, number, 17) for x in arriving.bundle(events[at : at + 17])]
        assert sorted((x.value[0], x.timestamp.micros) for x in kept) == sorted(taken)


def test_a_bundle_passes_on_what_it_has_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before its end, so that it holds no more than so many events."""
    monkeypatch.setattr(bounding, "_GATHERED", 10)
    users = dp.Users(str, events=1, per_key=1)
    send, passed = SendToShards(users, parts(users)[0], Placement(9)), []
    send.setup()
    send.start_bundle()
    for n, event in enumerate(events_of(random.Random(1), 35), 1):
        made = list(send.process(event.value, event))
        assert bool(made) == (n % 10 == 0)
        passed += made
    passed += send.finish_bundle()
    assert sum(len(list(records_of(one.value[1]))) for one in passed) == 35
    assert list(send.finish_bundle()) == []


def test_records_come_apart_as_they_were() -> None:
    pairs = [(b"", b"x"), (b"ann", b""), ("\ud800".encode("utf-8", "surrogatepass"), b"\0" * 300)]
    assert list(records_of(b"".join(record_of(*pair) for pair in pairs))) == pairs


@pytest.mark.long
@pytest.mark.parametrize("skewed", [True, pytest.param(False, marks=pytest.mark.exhaustive)])
def test_every_person_of_very_many_counts_k_times(skewed: bool) -> None:
    """Counts that are exact, under an enormous budget, of people each of whom is made up."""
    each = Tally(person for person, _ in people.stream(EVENTS, skewed))
    total = sum(min(n, 5) for n in each.values())
    assert total == EVENTS if not skewed else total < 0.51 * EVENTS
    count = TickNumbers(
        *(dp.ZCDP(1e14), people.TICK * people.TICKS, 0),
        horizon=1,
        keys=["all"],
        value=people._one,
        users=dp.Users(str, events=5, per_key=5),
    )
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        source = beam.ParDo(people.Events(EVENTS, skewed)).with_output_types(tuple[str, str])
        events = pipeline | beam.Impulse() | source
        released = events | beam.MapTuple(lambda key, person: ("all", person)) | count
        assert_that(released | beam.Map(lambda release: round(release.value)), equal_to([total]))


@pytest.mark.exhaustive
@pytest.mark.slow
def test_bounding_costs_little_beside_a_grouping() -> None:
    """CPU time and memory of whole pipelines, each in a process of its own.

    At 10^6 people it is twice the time; here 2000 releases take part of it. A grouping by person
    takes 20 times.
    """
    found = people.compare(EVENTS, False, k=5, rounds=1)
    assert found["bounded"][0] < 4 * found["grouped"][0]
    assert found["bounded"][1] < 1.5 * found["grouped"][1]


@pytest.mark.long
def test_state_grows_with_the_events_of_a_person_that_count() -> None:
    """By a row each; cells and heads of pieces are few beside them."""
    for k, row in ((1, 16), (4, 33)):
        apart = dp.Users(str, events=k, gap=people.TICK, per_key=1)
        found = people.arriving(3000, k, dp.Users(str, events=k, per_key=1))[2]
        assert k * row < found < 1.15 * k * row + 2
        timed = people.arriving(3000, k, apart)[2]
        assert timed - found == (8 * k if k > 1 else 0)
    assert people.arriving(3, 2, None)[2] == 0

"""Keys of events that come back from their encoding as other keys: each person stays bounded."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any, NamedTuple

import apache_beam as beam
import pytest
from apache_beam.coders import FastPrimitivesCoder
from apache_beam.transforms.window import GlobalWindow

import beam_dpcount as dp
from beam_dpcount.dofns.parcels import ElementParcels, StepParcels
from beam_dpcount.dofns.windows import WindowCheck
from beam_dpcount.states.wire import pack_keyed, parcel_of, timed
from tests.people import EXACT, tick_count
from tests.runners import SECOND, Row, each_path, feed, run
from tests.sentences import counted

ABC = ("a", "b", "c", "d", "e")
EVERYWHERE = (GlobalWindow(),)
ANN = {"user": "ann"}


class Disguised(str):
    """A text that comes back as another one."""

    def __reduce__(self) -> Any:
        return str, ("a",)


class DisguisedPair(tuple[Any, ...]):
    """A pair that comes back as one of another key."""

    def __reduce__(self) -> Any:
        return tuple, (["a", self[1]],)


class Named(NamedTuple):
    """A row, as decoded rows are."""

    page: str
    payload: Any


class DisguisedRow(tuple[Any, ...]):
    """A pair that comes back as a row."""

    def __reduce__(self) -> Any:
        return Named, tuple(self)


class Keyless:
    """What has no key, and comes back as something that has one."""

    def __reduce__(self) -> Any:
        return tuple, (["a", ANN],)


def disguised_key(key: str, payload: Any) -> Any:
    return Disguised(key), payload


def disguised_pair(key: str, payload: Any) -> Any:
    return DisguisedPair((key, payload))


def disguised_row(key: str, payload: Any) -> Any:
    return DisguisedRow((key, payload))


each_disguise = pytest.mark.parametrize("disguise", [disguised_key, disguised_pair, disguised_row])


def disguises(events: Any, disguise: Any) -> Any:
    return events | "Disguise" >> beam.MapTuple(disguise).with_output_types(tuple[str, Any])


@each_disguise
@each_path
def test_each_key_at_a_clock_counts_as_often_as_the_bound_says(disguise: Any, path: str) -> None:
    rows: list[Row] = [(key, ANN, i * SECOND) for i, key in enumerate(ABC)]
    count = tick_count(None, keys=ABC, value=lambda payload: 1, path=path)
    bound = dp.BoundUsers(dp.Users("user", events=5, per_key=1), {"n": count})
    outcome = run(lambda p: (disguises(p | feed(rows), disguise) | bound)["n"])
    largest: Counter[str] = Counter()
    for release in outcome.releases:
        largest[release.key] = max(largest[release.key], round(release.value))
    assert largest == dict.fromkeys(ABC, 1)


@pytest.mark.long
@each_disguise
@each_path
def test_each_key_of_elements_counts_as_often_as_the_bound_says(disguise: Any, path: str) -> None:
    rows: list[Row] = [(key, ANN, i * SECOND) for i, key in enumerate(ABC)]
    users = dp.Users("user", events=5, per_key=1)
    count = dp.PrefixCount(EXACT, 9, value=lambda payload: 1, users=users, path=path)
    outcome = run(lambda p: disguises(p | feed(rows), disguise) | count)
    releases = [(release.key, release.step, round(release.value)) for release in outcome.releases]
    assert sorted(releases) == [(key, 1, 1) for key in ABC]


@each_disguise
@pytest.mark.parametrize("kind", ["elements", "steps"])
def test_what_comes_back_has_the_key_that_was_bounded(kind: str, disguise: Any) -> None:
    parcels: Any = StepParcels(WindowCheck(None), None)
    if kind == "elements":
        parcels = ElementParcels([SimpleNamespace(wrap=lambda *_: b"")])
    for key in ABC:
        parcel = parcels.wrap(disguise(key, ANN), 0, EVERYWHERE)
        assert parcels.names(parcel) == [key.encode()]
        (passed,) = parcels.unwrap(parcel, [0])
        assert passed == (key, ANN)
        assert type(passed) is tuple
        assert type(passed[0]) is str


def test_elements_without_a_key_stay_without_one() -> None:
    """At a clock they do not count; after elements they are refused, or nobody's."""
    several = ElementParcels([SimpleNamespace(wrap=lambda *_: b"")])
    assert several.wrap(Keyless(), 0, EVERYWHERE) is None
    assert several.wrap((7, ANN), 0, EVERYWHERE) is None
    steps = StepParcels(WindowCheck(None), None)
    assert steps.unwrap(steps.wrap((7, ANN), 0, EVERYWHERE) or b"", []) == [(7, ANN)]
    # It comes back as nothing that could count, and is refused for its missing key.
    assert steps.unwrap(steps.wrap(Keyless(), 0, EVERYWHERE) or b"", []) == [None]


def test_a_pair_that_comes_back_as_a_row_does_not_come_back() -> None:
    several = ElementParcels([SimpleNamespace(wrap=lambda *_: b"")])
    assert several.unwrap(several.wrap(("a", 1), 0, EVERYWHERE) or b"", [0]) == [("a", 1)]
    assert several.unwrap(pack_keyed("a", FastPrimitivesCoder().encode(Named("a", 1))), [0]) == []


def test_ties_are_by_contents_as_before() -> None:
    """A honest element has the bytes that it always had, and so its place among others."""
    several = ElementParcels([SimpleNamespace(wrap=lambda *_: b"")])
    steps = StepParcels(WindowCheck(None), None)
    for element in (("a", "zz"), ("b", (1, {"n": 2})), ("", b"aa"), ("a", 1.5), ("a", {3})):
        encoded = pack_keyed(element[0], FastPrimitivesCoder().encode(element))
        assert several.wrap(element, 0, EVERYWHERE) == encoded
        assert steps.wrap(element, 0, EVERYWHERE) == encoded
    entries = [timed(0, several.wrap(("a", x), 0, EVERYWHERE) or b"") for x in ("aa", "b", "c")]
    first = [several.unwrap(parcel_of(entry), [0])[0][1] for entry in several.ordered(entries)]
    assert first == ["b", "c", "aa"]


class Scattered:
    """Comes back as an event of another person each time."""

    def __init__(self, number: int) -> None:
        self.user, self._number = "ann", number

    def __reduce__(self) -> Any:
        return dict, ([("user", f"u{self._number}")],)


def user_of(payload: Any) -> Any:
    return payload.user if isinstance(payload, Scattered) else payload["user"]


@each_path
def test_people_behind_a_bound_are_those_who_were_bounded(path: str) -> None:
    """Else one person would count as several in a key, each of whom is another to the count."""
    rows: list[Row] = [("a", i, i * SECOND) for i in range(5)]
    users = dp.Users(user_of, events=5, per_key=5)
    clock: dict[str, Any] = {"tick": 60, "start": 0, "horizon": 1, "keys": ["a"], "path": path}
    count = counted(EXACT, dp.People(), **clock, users=dp.Users(user_of, 5))
    scatter = beam.MapTuple(lambda key, i: (key, Scattered(i))).with_output_types(tuple[str, Any])
    bound = dp.BoundUsers(users, {"n": count})
    outcome = run(lambda p: (p | feed(rows) | scatter | bound)["n"])
    assert max(round(release.value) for release in outcome.releases) <= 1

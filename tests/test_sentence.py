"""TickCount: what can be said, and that it says what is there."""

from __future__ import annotations

import itertools
import math
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.pvalue import Row
from apache_beam.transforms.window import FixedWindows, TimestampedValue

import beam_dpcount as dp
from beam_dpcount.counters import clock as clocks
from beam_dpcount.counters.choose import resolve_last
from beam_dpcount.dofns.events import EventReader
from beam_dpcount.dofns.rows import RowElementError
from beam_dpcount.mechanisms import SlidingBLT
from beam_dpcount.mechanisms.differences import Differences
from beam_dpcount.mechanisms.single_steps import SingleSteps
from beam_dpcount.plans import sentence
from beam_dpcount.reading import field_of
from beam_dpcount.states.codecs import StateCodec
from beam_dpcount.transforms.sentence import TickCount
from tests import sentences as say
from tests.hostile import Hidden, Odd
from tests.runners import PATHS, SECOND, each_path, feed, run
from tests.scripted import random_script

BUDGETS = {"pure": dp.PureDP(1e9), "approximate": dp.ApproxDP(1e9, 1e-6)}
KEYS: dict[str, Any] = {
    "listed": list(say.KEYS),
    "selected": dp.SelectKeys(delta=1e-9),
    "total": dp.TOTAL,
}


def refusal(thing: str, view: str, keys: str, unit: str, path: str) -> str | None:
    """Why a combination is refused; None: it is not."""
    if thing == "people" and unit == "events":
        return "give users=Users"
    if keys == "selected" and view == "last" and thing == "people":
        return "on bounded input alone" if path == "streaming" else None
    if keys == "selected" and view == "last":
        return "SelectKeys shows keys by counts that only grow"
    return None


@pytest.mark.long
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("unit", ["events", "people"])
@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("kind", BUDGETS)
def test_every_thing_works_in_every_view(kind: str, keys: str, unit: str, path: str) -> None:
    """Only what `refusal` names is refused; all else says what plain Python counts."""
    # With few events a person, so that keys are shown early.
    rows = say.log(people=60 if keys == "selected" else 7)
    counts: dict[tuple[str, str], Any] = {}
    users = dp.Users("who", 4 if keys == "selected" else say.ALL) if unit == "people" else None
    for thing, view in itertools.product(say.THINGS, say.VIEWS):
        options: dict[str, Any] = {"keys": KEYS[keys], "users": users, "path": path}
        made = say.VIEWS[view], say.THINGS[thing]()
        said = refusal(thing, view, keys, unit, path)
        if said is not None:
            with pytest.raises(ValueError, match=said):
                TickCount(BUDGETS[kind], *made, **options)
            continue
        counts[thing, view] = TickCount(BUDGETS[kind], *made, **options)

    def build(pipeline: beam.Pipeline) -> Any:
        events = pipeline | feed(rows)
        return tuple(events | f"{n}" >> count for n, count in enumerate(counts.values()))

    outputs = run(build).outputs
    for ((thing, view), count), seen in zip(counts.items(), outputs, strict=True):
        truth = say.expected(thing, say.VIEWS[view], rows, keys == "total", users is not None)
        releases = [each.value for each in seen]
        names = {(r.key, r.step) for r in releases}
        assert len(names) == len({(r.key, r.timestamp) for r in releases}) == len(releases)
        if keys == "listed":
            assert names == set(itertools.product(say.KEYS, range(1, say.TICKS + 1)))
        elif keys == "total":
            assert names == {("all", step) for step in range(1, say.TICKS + 1)}
        else:
            assert names <= set(truth)
            if view == "so far":
                assert {key for key, _ in names} == {"a", "b", "c"}
        for release in releases:
            assert release.timestamp == release.step * say.TICK * SECOND
            found = truth[release.key, release.step]
            assert tuple(release.values) == tuple(found) == count.columns, (thing, view)
            for name, value in release.values.items():
                problem = (thing, view, release.key, release.step, name, value, found[name])
                assert say.is_near(thing, value, found[name]), problem
            number = (release.step - 1) // 4 + 1 if view == "restart" else None
            assert release.restart == number


HOURS = dp.Clock("1h", start=0, ticks=720)
LISTED = ["a", "b", "c"]


@pytest.mark.parametrize("keys", [LISTED, dp.SelectKeys(delta=1e-7)], ids=["listed", "selected"])
def test_per_key_is_all_events_of_counts_and_one_of_people(keys: Any) -> None:
    """Without it a count would silently be one of people."""
    users = dp.Users("who", 4)
    count = TickCount(dp.ZCDP(0.1), HOURS, keys=keys, users=users)
    assert "4 a key" in str(count)
    assert f"{count.counter.l2_sensitivity:.3g}" in str(count).split("L2 norm")[1]
    people = TickCount(dp.ZCDP(0.1), HOURS, dp.People(), keys=keys, users=users)
    assert "1 a key" in str(people)
    assert count.counter.l2_sensitivity == pytest.approx(4, rel=1e-3)
    keys_of_one = 4 if isinstance(keys, dp.SelectKeys) else 3
    assert people.counter.l2_sensitivity == pytest.approx(math.sqrt(keys_of_one), rel=1e-3)


# Mechanisms of views


@pytest.mark.parametrize("budget", [dp.PureDP(1.0), dp.ZCDP(0.1), dp.ApproxDP(1.0, 1e-6)])
def test_each_tick_alone_has_fresh_noise(budget: Any) -> None:
    """As much as a count of one tick has, for one event and for people."""
    for users in (None, dp.Users("who", 3)):
        each = TickCount(budget, HOURS.each(), keys=LISTED, users=users)
        restarted = TickCount(budget, HOURS.restart(1), keys=LISTED, users=users)
        assert each.counter.max_variance() == pytest.approx(restarted.counter.max_variance())
    joint = TickCount(budget, HOURS.each(), [dp.Count(), dp.Mean("x", 0, 5)], keys=LISTED)
    assert isinstance(joint.counter.mechanism, SingleSteps)


@pytest.mark.parametrize("inner", [m for m in dp.mechanisms.ALL if "laplace" in m(9).laws])
@pytest.mark.parametrize(("horizon", "window"), [(1, 1), (9, 1), (40, 7), (40, 40), (40, 99)])
@pytest.mark.parametrize("dimension", [None, 3])
def test_differences_are_sums_of_the_last_steps(
    inner: Any, horizon: int, window: int, dimension: int | None
) -> None:
    """Decoder times encoder; the variance of each release; steps, releases, states to the bit."""
    mechanism = Differences(horizon, window, inner(horizon))
    L, R = mechanism.decoder(horizon), mechanism.encoder(horizon)
    assert np.allclose(L @ R, mechanism.workload.matrix(horizon), rtol=0, atol=1e-9)
    norms = np.square(L).sum(axis=1)
    assert mechanism.row_norms2(horizon) == pytest.approx(norms)
    assert mechanism.max_row_norm2() == pytest.approx(norms.max())
    assert mechanism.mean_row_norm2() == pytest.approx(norms.mean())
    counter = dp.calibrate(mechanism, dp.PureDP(1.0), dimension=dimension)
    assert counter.l1_sensitivity == (dimension or 1) * mechanism.inner.l1_sensitivity
    script = random_script(mechanism.draws(horizon), dimension)
    shape = horizon if dimension is None else (horizon, dimension)
    xs = np.random.default_rng(1).integers(0, 5, shape)
    codec, state, values = StateCodec(counter), counter.init(), []
    for x in xs:
        state, value = counter.step_lattice(state, int(x) if dimension is None else x, script)
        state = codec.decode(codec.encode(state))
        values.append(value)
    assert np.array_equal(values, counter.release_lattice(xs, script))


def test_single_steps_are_what_each_counts() -> None:
    mechanism = SingleSteps(50)
    assert np.array_equal(mechanism.decoder(50) @ mechanism.encoder(50), np.eye(50))
    assert mechanism.l1_sensitivity == mechanism.l2_sensitivity_squared == 1
    assert mechanism.lag_bounds(3) == (1, 0, 0)
    xs, script = np.arange(50), random_script(50)
    released = mechanism.release(xs, script)
    state, values = mechanism.init(), []
    for x in xs:
        state, value = mechanism.step(state, x, script)
        values.append(value)
    assert np.array_equal(values, released)
    assert np.array_equal(mechanism.steps(mechanism.init(), xs, script)[1], released)
    assert len({*released - xs}) > 20


def test_the_last_ticks_take_the_better_mechanism() -> None:
    """Laplace noise of the window for a short one and one event; Gaussian for people."""
    approximate = dp.ApproxDP(1.0, 1e-6)
    assert isinstance(resolve_last(2**40, 24, dp.PureDP(1.0)), Differences)
    assert resolve_last(720, 24, dp.ZCDP(0.1)).name == "CombBLT"
    short = TickCount(approximate, HOURS.last(24), keys=LISTED).counter
    other = dp.calibrate(SlidingBLT(720, 24), approximate, short.change)
    assert short.max_variance() < other.max_variance()
    users, keys = dp.Users("who", 30, per_key=1), [f"k{n}" for n in range(30)]
    many = TickCount(approximate, HOURS.last(24), keys=keys, users=users)
    assert many.counter.mechanism.name == "CombBLT"


def test_people_of_the_last_ticks_cost_their_ticks() -> None:
    """A person with k events is active in at most k n ticks, with fresh noise in each."""
    users = dp.Users("who", 3)
    count = TickCount(dp.PureDP(1.0), HOURS.last(7), dp.People(), keys=LISTED, users=users)
    assert count.counter.l2_sensitivity**2 == pytest.approx(21)
    assert count.counter.l1_sensitivity == pytest.approx(21)


# A list of views


@pytest.mark.long
@each_path
def test_a_list_of_views_is_one_row_a_key_and_tick(path: str) -> None:
    """One row with all columns, in the order of keys and ticks on bounded input."""
    clock, rows = say.CLOCK, say.log()
    views = [clock, clock.each(), clock.last(3)]
    what = [dp.Count(), dp.People(), dp.Sum("ms", -3, 5, unit=0.5)]
    users = dp.Users("who", say.ALL)
    count = TickCount(dp.PureDP(1e9), views, what, keys=say.KEYS, users=users, path=path)
    seen = run(lambda p: p | feed(rows) | count | beam.Map(lambda r: ("", r)) | beam.GroupByKey())
    ((_, found),) = seen.releases
    releases = [*found]
    expected = [(key, step) for key in say.KEYS for step in range(1, say.TICKS + 1)]
    assert sorted((r.key, r.step) for r in releases) == sorted(expected)
    if path == "bounded":
        assert [(r.key, r.step) for r in releases] == expected
    things = {"count": "count", "people": "people", "sum_ms": "sum"}
    for release in releases:
        assert isinstance(release, dp.TickRelease)
        assert tuple(release.names) == tuple(release.values) == count.columns
        assert (release.start, release.timestamp) == (
            (release.step - 1) * say.TICK * SECOND,
            release.step * say.TICK * SECOND,
        )
        for view, metric in itertools.product(views, what):
            thing = things[metric.columns[0]]
            truth = say.expected(thing, view, rows, False, True)[release.key, release.step]
            for name, value in truth.items():
                assert say.is_near(thing, release.values[name], value), name
                low, high = release.lows[name], release.highs[name]
                number = release.values[name]
                assert low is not None
                assert number is not None
                assert high is not None
                assert low <= number <= high
                assert release.notes[name] == ""


def test_a_list_of_views_shares_the_budget_and_says_so() -> None:
    views = [HOURS, HOURS.each()]
    count = TickCount(dp.ZCDP(0.5), views, keys=LISTED)
    alone = TickCount(dp.ZCDP(0.3), HOURS, keys=LISTED)
    assert count.counters["count"].max_variance() == pytest.approx(alone.counter.max_variance())
    assert "the budget is split among them, count 60 %, count_each 40 %; count" in str(count)
    apart = TickCount(dp.ZCDP(0.5), [HOURS, HOURS.each()], dp.Rate("level = A"), keys=LISTED)
    assert "the budget is split among them" in str(apart)
    assert [part.share for part in apart._parts] == [0.5, 0.5]
    assert "budget: rho = 0.5" in str(count)
    with pytest.raises(AttributeError, match=r"take \.counters"):
        _ = count.counter
    ledger = dp.Ledger(dp.ZCDP(0.5))
    share = ledger.share(0.5)
    of_share = TickCount(share, views, keys=LISTED)
    parts = [counter.budget.rho for counter in of_share.counters.values()]
    assert sum(parts) <= 0.25
    assert sum(parts) == pytest.approx(0.25)
    pipeline = beam.Pipeline()
    _ = pipeline | feed([("a", 1, SECOND)]) | of_share
    assert share.claimed_by == "TickCount"
    with pytest.raises(ValueError, match="is spent by"):
        _ = beam.Pipeline() | feed([("a", 1, SECOND)]) | of_share


def test_weights_split_what_one_engine_cannot_count() -> None:
    """People of the last ticks are counted apart, on the part of the budget that is theirs."""
    what = [dp.Count(weight=2), dp.People()]
    users = dp.Users("who", 2)
    count = TickCount(dp.ZCDP(0.5), HOURS.last(3), what, keys=LISTED, users=users)
    rhos = {name: counter.budget.rho for name, counter in count.counters.items()}
    assert rhos == pytest.approx({"count_last_3": 0.4, "people_last_3": 0.1})


def test_a_view_that_goes_on_beyond_the_clock_ends_with_it_in_a_list() -> None:
    views = [say.CLOCK.each(), say.CLOCK.restart(5)]
    count = TickCount(dp.PureDP(1e9), views, keys=["a"])
    releases = run(lambda p: p | feed(say.log()) | count).releases
    assert [(r.step, r.restart) for r in releases] == [(n, 1 + (n > 5)) for n in range(1, 9)]


# Beside other transforms


def test_other_transforms_take_it_as_they_take_counts_of_numbers() -> None:
    """BoundUsers, suggest_bounds, ShrinkAcrossKeys and TopKPerTick."""
    users = dp.Users("who", 100, per_key=50)
    counts = {
        "events": TickCount(dp.PureDP(1e9), say.CLOCK, keys=say.KEYS),
        "each": TickCount(dp.PureDP(1e9), say.CLOCK.each(), keys=say.KEYS),
    }
    bound = dp.BoundUsers(users, counts)
    rows = say.log()
    (last,) = run(
        lambda p: (
            (p | feed(rows) | bound)["events"]
            | dp.post.ShrinkAcrossKeys(bound._counts["events"])
            | dp.post.TopKPerTick(1, counts["events"])
            | beam.Filter(lambda top: top.step == say.TICKS)
        )
    ).releases
    assert last.items == ["a"]
    visits = [("ann", "a", 5), ("ann", "a", 70), ("bob", "b", 70)]
    found = dp.suggest_bounds(visits, counts["events"], events=[1, 3])
    assert len(found.rows) == 3
    with pytest.raises(ValueError, match="make pairs before"):
        dp.BoundUsers(users, {"x": TickCount(dp.ZCDP(1.0), say.CLOCK, keys=dp.TOTAL)})
    joint = TickCount(dp.ZCDP(1.0), say.CLOCK, [dp.Count(), dp.Mean("x", 0, 1)], keys=["a"])
    with pytest.raises(TypeError, match="give a TickCount for each"):
        dp.BoundUsers(users, {"x": joint})


# Events with fields


class Named(NamedTuple):
    page: Any
    at: Any
    who: Any = "p"
    ms: Any = 1.0


@dataclass
class Data:
    page: Any
    at: Any
    who: Any = "p"
    ms: Any = 1.0


class Plain:
    def __init__(self, page: Any, at: Any, who: Any = "p", ms: Any = 1.0) -> None:
        self.page, self.at, self.who, self.ms = page, at, who, ms


def a_dict(page: Any, at: Any, who: Any = "p", ms: Any = 1.0) -> dict[str, Any]:
    return {"page": page, "at": at, "who": who, "ms": ms}


def a_row(page: Any, at: Any, who: Any = "p", ms: Any = 1.0) -> Any:
    return Row(page=page, at=at, who=who, ms=ms)  # type: ignore[no-untyped-call]


def made_of(events: list[Any]) -> Any:
    """Events as they are, which no coder would take."""
    return "Numbers" >> beam.Create(range(len(events)), reshuffle=False) | "Events" >> beam.Map(
        lambda place: events[place]
    )


class Slots:
    __slots__ = ("at", "ms", "page", "who")

    def __init__(self, page: Any, at: Any, who: Any = "p", ms: Any = 1.0) -> None:
        self.page, self.at, self.who, self.ms = page, at, who, ms


KINDS: dict[str, Any] = {
    "slots": Slots,
    "NamedTuple": Named,
    "dataclass": Data,
    "object": Plain,
    "dict": a_dict,
    "Row": a_row,
}
FEW = dp.Clock(10, start=0, ticks=2)


@pytest.mark.parametrize("kind", KINDS)
def test_events_are_read_by_the_fields_that_are_named(kind: str) -> None:
    """Keys, times, people and numbers; what cannot be read counts nothing, and stops nothing."""
    make = KINDS[kind]
    events = [
        make("a", 5),
        make("a", "1970-01-01T00:00:15Z", ms=3.0),
        make(7, 5, who=12),
        make("a", 5, who=None),
        make(None, 5),
        make(2.5, 5),
        make("b" if kind in ("dict", "Row") else "b\ud800", 5),  # whose coders Beam tries
        make("a", None),
        make("a", "yesterday"),
        make("a", float("nan")),
        make("a", 10**40),
        make("a", -1),
        make("a", 20),
        make("a", 5, ms="x"),
        make("a", 5, ms=None),
    ]
    count = TickCount(
        dp.PureDP(1e9),
        FEW,
        [dp.Count(), dp.Mean("ms", 0, 5), dp.People()],
        keys=["a", "7"],
        users=dp.Users("who", 100),
        key="page",
        time="at",
    )
    single = TickCount(
        dp.PureDP(1e9), FEW, dp.Sum("ms", 0, 5, unit=1), keys=["a", "7"], key="page", time="at"
    )
    both = run(
        lambda p: (
            (p | made_of(events) | count),
            (p | "S" >> made_of(events) | "Sum" >> single),
        )
    )
    found = {
        (r.key, r.step): [None if x is None else round(x, 3) for x in r.values.values()]
        for r in both.releases
    }
    assert found == {
        ("a", 1): [3, 1, 1],
        ("a", 2): [4, 2, 1],
        ("7", 1): [1, 1, 1],
        ("7", 2): [1, 1, 1],
    }
    sums = {(r.key, r.step): round(r.value) for r in both.rejected}
    assert sums == {("a", 1): 2, ("a", 2): 5, ("7", 1): 1, ("7", 2): 1}


@each_path
@pytest.mark.parametrize("keys", [["a"], dp.TOTAL, dp.SelectKeys(delta=1e-7)], ids=repr)
def test_hostile_events_stop_nothing(keys: Any, path: str) -> None:
    """Whatever their own code does, wherever a field, a person or a function is read."""
    events = [
        ("a", payload, SECOND) for payload in (Hidden(), {"who": Hidden(), "ms": Odd()}, Odd(), 7)
    ]
    what = [dp.Count(), dp.Mean("ms", 0, 5), dp.Rate(lambda event: event.level == "x")]
    options: dict[str, Any] = {"keys": keys, "path": path, "users": dp.Users("who", 5)}
    counts = {
        "fields": TickCount(dp.ZCDP(0.5), FEW, what, **options),
        "value": TickCount(dp.ZCDP(0.5), FEW, value=lambda event: event["x"], **options),
        "key": TickCount(dp.ZCDP(0.5), FEW, key=None if keys is dp.TOTAL else "who", **options),
    }
    timed = beam.Map(lambda place: TimestampedValue(events[place][:2], 1)).with_output_types(Any)
    numbers = beam.Create(range(len(events)), reshuffle=False)

    def build(pipeline: beam.Pipeline) -> Any:
        given = pipeline | numbers | timed
        return tuple(given | name >> count for name, count in counts.items())

    outcome = run(build)
    assert len(outcome.outputs) == 3
    assert all(outcome.outputs) or isinstance(keys, dp.SelectKeys)


def test_code_of_an_object_is_not_a_field() -> None:
    class Sly:
        def __init__(self) -> None:
            self.__dict__["mine"] = "held"

        @property
        def who(self) -> str:
            return "computed"

        def __getattr__(self, name: str) -> str:
            return "made up"

    assert [field_of(Sly(), name) for name in ("mine", "who", "other", "__init__")] == [
        "held",
        None,
        None,
        None,
    ]


def test_a_total_takes_pairs_and_anything_else() -> None:
    events = [("x", {"ms": 2}, SECOND), (7, {"ms": 3}, SECOND)]
    count = TickCount(dp.PureDP(1e9), FEW, dp.Sum("ms", 0, 5, unit=1), keys=dp.TOTAL)
    releases = run(lambda p: p | feed(events, Any) | count).releases
    assert [(r.key, r.step, round(r.value)) for r in releases] == [("all", 1, 5), ("all", 2, 5)]
    bare = TickCount(dp.PureDP(1e9), FEW, dp.Sum("ms", 0, 5, unit=1), keys=dp.TOTAL, time="at")
    given = [{"ms": 2, "at": 3}, {"at": 3}, {"ms": 1}]
    (first, _) = run(lambda p: p | beam.Create(given) | bare).releases
    assert round(first.value) == 2


def test_count_counts_events_and_sum_their_values() -> None:
    """An event counts 1 whatever its value; `value` may say that it does not count."""
    events = [("a", 4.0, SECOND), ("a", None, SECOND), ("a", 2.0, SECOND)]
    options: dict[str, Any] = {"keys": ["a"]}
    counts = (
        TickCount(dp.PureDP(1e9), FEW, **options),
        TickCount(dp.PureDP(1e9), FEW, value=lambda x: x, **options),
        TickCount(dp.PureDP(1e9), FEW, dp.Sum(low=0, high=3, unit=1), **options),
    )
    outputs = run(
        lambda p: tuple(p | f"F{n}" >> feed(events) | f"{n}" >> c for n, c in enumerate(counts))
    ).outputs
    assert [round(seen[0].value.value) for seen in outputs] == [3, 2, 5]
    assert [seen[0].value.name for seen in outputs] == ["count", "count", "sum"]


# What comes out


def test_releases_of_one_number_have_values_too() -> None:
    release = dp.Release("a", 1, 10, 2.5, 1.5, "count_each")
    assert (release.values, release.stddevs) == ({"count_each": 2.5}, {"count_each": 1.5})
    assert dp.Release("a", 1, 10, 2.5, 1.5).name == "count"
    ones: dict[str, float | None] = {"x": 1.0}
    row = dp.TickRelease("a", 1, 0, 10, None, ["x"], ones, ones, ones, ones, {"x": ""})
    assert (row.value, row.stddev) == (1.0, 1.0)
    two = row._replace(names=["x", "y"])
    with pytest.raises(AttributeError, match=r"take e\.g\. release\.values\['x'\]"):
        _ = two.value


# Several keys an event


class Endless:
    """A value that has no end."""

    def __iter__(self) -> Any:
        return itertools.repeat("a")


@pytest.mark.long
@each_path
@pytest.mark.parametrize("keys", [["c", "a", "b"], dp.SelectKeys(delta=1e-9)], ids=repr)
def test_an_event_counts_under_its_first_keys(keys: Any, path: str) -> None:
    """In the order of the list, each once; of unlisted ones as they come."""
    tags = [["a", "b", "c", "a"], ("x", "b"), "a", {"b"}, [], None, 7, {"a": 1}, [None, "a"]]
    tags += [Endless(), b"a"]
    rows = [("k", {"tags": one}, 5 * SECOND) for one in tags for _ in range(5)]
    count = TickCount(
        BUDGETS["approximate"], say.CLOCK, keys=keys, key=_tags, max_items=2, path=path
    )
    seen = {r.key: r.value for r in run(lambda p: p | feed(rows) | count).releases if r.step == 1}
    listed = {"a": 15, "b": 10, "c": 5}
    assert {key: round(value) for key, value in seen.items()} == (
        listed if isinstance(keys, list) else {"a": 15, "b": 15, "x": 5, "7": 5}
    )


def _tags(pair: Any) -> Any:
    return pair[1]["tags"]


@pytest.mark.parametrize("view", say.VIEWS)
def test_several_keys_take_noise_for_all_of_them(view: str) -> None:
    how: dict[str, Any] = {"keys": ["a", "b", "c"], "key": "tags"}
    one, two = (
        TickCount(dp.ZCDP(0.1), say.VIEWS[view], **how, max_items=most) for most in (None, 2)
    )
    assert two.counter.change.max_items == 2
    norm = two.counter.change.norms(two.counter.mechanism, two.counter.unit, None)[1]
    alone = one.counter.change.norms(two.counter.mechanism, two.counter.unit, None)[1]
    assert float(norm) == pytest.approx(2 * float(alone))  # squared
    people = dp.Users("who", 3)
    bound = [
        TickCount(dp.ZCDP(0.1), say.VIEWS[view], **how, users=people, max_items=most)
        for most in (None, 2)
    ]
    # Each key of an event is an event of its person.
    assert bound[0].counter.fingerprint == bound[1].counter.fingerprint


def test_several_keys_are_shown_later() -> None:
    first, several = (
        TickCount(
            dp.ApproxDP(1.0, 1e-6), say.CLOCK, keys=dp.SelectKeys(), key="tags", max_items=most
        )
        for most in (None, 3)
    )
    assert first.selection is not None
    assert several.selection is not None
    assert several.selection.thresholds[-1] > first.selection.thresholds[-1]


def test_an_event_of_several_keys_is_checked() -> None:
    count = TickCount(dp.ZCDP(1.0), say.CLOCK, keys=["a", "b"], key="tags", max_items=1)
    assert count.check_row({"tags": ["b", "a"]}, 0).names == ("a",)
    assert count.check_row({"tags": ["x"]}, 0).problem is not None


# What is refused

REFUSED: list[tuple[Callable[[], Any], str]] = [
    (lambda: TickCount(dp.ZCDP(1.0), HOURS), r"there are no keys: give keys=\[\.\.\.\]"),
    (lambda: TickCount(dp.ZCDP(1.0), HOURS, key="page"), "key names the field of the key, but"),
    (lambda: TickCount(dp.ZCDP(1.0), HOURS, keys=dp.TOTAL, key="page"), "key is for events of"),
    (lambda: TickCount(dp.ZCDP(1.0), HOURS, keys=dp.TOTAL, other="x"), "other is for events of"),
    (lambda: TickCount(dp.ZCDP(1.0), HOURS, keys=["a"], key=7), "name of a field or a function"),
    (
        lambda: TickCount(dp.ZCDP(1.0), HOURS, keys=["a"], time="at", path="streaming"),
        "time is for bounded input",
    ),
    (lambda: TickCount(dp.ZCDP(1.0), 3600, keys=["a"]), "clock must be a Clock"),
    (lambda: TickCount(dp.ZCDP(1.0), [], keys=["a"]), "clock is an empty list"),
    (
        lambda: TickCount(dp.ZCDP(1.0), [HOURS, say.CLOCK.each()], keys=["a"]),
        "views are of different clocks",
    ),
    (lambda: TickCount(dp.ZCDP(1.0), HOURS, "count", keys=["a"]), "what must be a metric"),
    (lambda: TickCount(dp.ZCDP(1.0), HOURS, dp.Count, keys=["a"]), "with brackets"),
    (lambda: TickCount(dp.ZCDP(1.0), HOURS, [], keys=["a"]), "what is an empty list"),
    (
        lambda: TickCount(dp.ZCDP(1.0), [HOURS.restart(12), HOURS.restart(24)], keys=["a"]),
        "two views that restart",
    ),
    (
        lambda: TickCount(dp.ZCDP(1.0), [HOURS, HOURS.each()], keys=dp.SelectKeys(delta=1e-7)),
        "other keys in each",
    ),
    (
        lambda: TickCount(dp.ZCDP(1.0), HOURS.each(), keys=["a"], mechanism="BLT"),
        "leave mechanism out",
    ),
    (lambda: TickCount(dp.ZCDP(1.0), dp.Clock("1h", start=0), keys=["a"]), "a clock that ends"),
    (
        lambda: TickCount(
            dp.ZCDP(1.0), HOURS, dp.People(), keys=["a"], users=dp.Users("u", 4, per_key=2)
        ),
        "People counts each person once a key",
    ),
    (
        lambda: TickCount(
            dp.ZCDP(1.0), HOURS, dp.Sum(low=0, high=1), keys=["a"], users=dp.Users("u", 4)
        ),
        "Sum without a field",
    ),
    (lambda: TickCount(dp.ZCDP(1.0), HOURS, keys=["a"], max_items=2), "key is a collection"),
    (
        lambda: TickCount(
            dp.ZCDP(1.0), HOURS, [dp.Count(), dp.Rate("x = y")], keys=["a"], key="k", max_items=2
        ),
        "max_items is for one Count or Sum",
    ),
    (lambda: dp.Sum("x"), "Sum needs bounds"),
    (lambda: dp.Sum(low=0), "Sum needs bounds"),
]


@pytest.mark.parametrize(("make", "said"), REFUSED)
def test_what_does_not_go_together_is_refused(make: Callable[[], Any], said: str) -> None:
    with pytest.raises((ValueError, TypeError), match=said):
        make()


def test_input_that_cannot_be_counted_is_refused() -> None:
    """Windows of Beam, rows without key=, bounded input without an end; before anything runs."""
    count = TickCount(dp.ZCDP(1.0), FEW, keys=["a"])
    with pytest.raises(ValueError, match=r"clock\.restart\(n\)"):
        _ = beam.Pipeline() | feed([("a", 1, SECOND)]) | beam.WindowInto(FixedWindows(10)) | count
    with pytest.raises(RowElementError, match="key='page'"):
        _ = beam.Pipeline() | beam.Create([Named("a", 1)]) | count
    endless = TickCount(dp.ZCDP(1.0), dp.Clock("1h", start=0).each(), keys=["a"])
    with pytest.raises(ValueError, match="the clock has no end"):
        _ = beam.Pipeline() | feed([("a", 1, SECOND)]) | endless
    assert math.isfinite(endless.counter.max_variance())


def test_rows_can_be_checked_before() -> None:
    count = TickCount(dp.ZCDP(1.0), FEW, dp.Mean("ms", 0, 5), keys=["a"], key="page", time="at")
    events = [
        a_dict("a", 5),
        a_dict("z", 5),
        a_dict(None, 5),
        a_dict("a", None),
        a_dict("a", 5, ms="x"),
    ]
    problems = dp.check(count, events).problems
    assert [*problems] == [
        "the key is not among keys",
        "the event has no key in 'page'",
        "the event has no time in 'at'",
        "mean_ms: the value is not a number",
    ]
    assert pickle.loads(pickle.dumps(count.counter)) == count.counter


def test_parts_agree_on_the_ticks_that_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each read the clock for itself, and a tick that ended meanwhile stopped the run."""
    moments = iter(range(1, 1000))
    monkeypatch.setattr(clocks, "now", lambda: next(moments) * 10 * SECOND)
    monkeypatch.setattr(sentence, "now", clocks.now)
    views = [say.CLOCK, say.CLOCK.last(2), say.CLOCK.restart(2)]
    count = TickCount(dp.ZCDP(1), views, keys=["a"])
    assert len(count._parts) == 3
    released = {part.engine.ticks_released for part in count._parts}
    assert len(released) == 1
    assert released < {*range(1, say.TICKS)}


def test_times_of_classes_of_their_own_are_not_compared() -> None:
    class Strange(int):
        def __lt__(self, other: object) -> bool:
            raise RuntimeError("seen")

    assert EventReader(time=lambda event: Strange(5)).micros({}) is None
    assert EventReader(time=lambda event: "text").micros({}) is None  # type: ignore[arg-type,return-value]
    assert EventReader(time=lambda event: 5).micros({}) == 5

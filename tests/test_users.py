"""What all events of one person change: the calibrated norms against every placement of them."""

from __future__ import annotations

import datetime as dt
import enum
import itertools
import math
import pickle
from collections import Counter as Tally
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import pytest

import beam_dpcount as dp
from beam_dpcount import mechanisms
from beam_dpcount.commands.files.formats import shown_person
from beam_dpcount.counters.change import TickChange
from beam_dpcount.counters.users import UserChange, column_cost, group_of, worst
from beam_dpcount.dofns.parcels import TickParcels
from beam_dpcount.mechanisms import KAry, NormalizedBLT
from beam_dpcount.mechanisms.rounded import RoundedMechanism
from beam_dpcount.rows.fields import person as rows_person
from beam_dpcount.statistics.graph_counts import Degrees, Triangles
from beam_dpcount.statistics.items import Items
from beam_dpcount.transforms.ticks import TickNumbers
from tests.sentences import counted

KINDS: list[Any] = [*mechanisms.ALL, lambda horizon: KAry(horizon, subtraction=False)]
every = pytest.mark.parametrize("kind", KINDS, ids=lambda k: getattr(k, "__name__", "KAry, plain"))


def placements(ticks: int, k: int, gap: int) -> Iterator[tuple[int, ...]]:
    """All sets of up to k ticks, from 0, `gap` apart; without a gap, with repetitions."""
    if not gap:
        yield from itertools.combinations_with_replacement(range(ticks), k)
        return
    for n in range(1, k + 1):
        for chosen in itertools.combinations(range(ticks), n):
            if all(b - a >= gap for a, b in itertools.pairwise(chosen)):
                yield chosen


@lru_cache(maxsize=32)
def gram(mechanism: Any) -> np.ndarray:
    """Products of any two columns of R, whatever their sign: values may have either."""
    R = mechanism.encoder(mechanism.horizon)
    return np.abs(R.T @ R)


def change_of(mechanism: Any, ticks: tuple[int, ...]) -> float:
    """The largest squared norm of R x for events of size up to 1 at these ticks of one counter."""
    return float(gram(mechanism)[np.ix_(ticks, ticks)].sum())


@pytest.mark.slow
@pytest.mark.exhaustive("kind")
@every
@pytest.mark.parametrize("horizon", [7, 12, 16])
def test_no_placement_of_events_in_one_counter_exceeds_the_bound(kind: Any, horizon: int) -> None:
    mechanism = kind(horizon)
    for k, gap in itertools.product((1, 2, 3, 4), range(5)):
        room = 1 + (horizon - 1) // gap if gap else k
        bound = float(column_cost(mechanism, min(k, room), gap))
        found = max(change_of(mechanism, ticks) for ticks in placements(horizon, k, gap))
        assert found <= bound * (1 + 1e-6), (k, gap)
        if not gap:
            assert found == pytest.approx(bound, rel=1e-6), k
        else:  # bounds on lags are not of one column: balanced trees are furthest from them
            assert found >= 0.5 * bound, (k, gap)


def allocations(
    ticks: tuple[int, ...], keys: int, per_key: int
) -> Iterator[tuple[tuple[int, ...], ...]]:
    """All ways in which events at these ticks may fall into keys: the ticks of each key."""
    for names in itertools.product(range(keys), repeat=len(ticks)):
        if max(Tally(names).values()) <= per_key:
            parts = [[t for t, n in zip(ticks, names, strict=True) if n == i] for i in range(keys)]
            yield tuple(map(tuple, parts))


@pytest.mark.slow
@pytest.mark.exhaustive("kind")
@every
@pytest.mark.parametrize("gap", [0, 1, 2])
def test_no_allocation_to_keys_exceeds_the_norms(kind: Any, gap: int) -> None:
    """Of one person's events, over 1 to 3 keys; the worst one is attained without a gap."""
    mechanism = kind(6)
    for k, keys, per_key in [(2, 1, 2), (3, 2, 2), (3, 3, 1), (4, 2, 3), (4, 3, 2), (4, 1, 2)]:
        most = min(k, keys * per_key)
        found = max(
            sum(change_of(mechanism, part) for part in parts if part)
            for ticks in placements(6, most, gap)
            for parts in allocations(ticks, keys, per_key)
        )
        change = UserChange(events=k, keys=keys, per_key=per_key, gap=gap, most=1)
        fine = mechanism.resolution(1, 1)
        l1, l2_squared = change.norms(mechanism, 1, None)
        slack = mechanism.slack(fine)[1] * math.sqrt(min(most, keys))
        bound = (math.sqrt(l2_squared) - slack) ** 2 / fine**2
        assert found <= bound * (1 + 1e-6), (k, keys, per_key)
        if not gap:
            assert found == pytest.approx(bound, rel=1e-4), (k, keys, per_key)
            assert float(l1) >= fine * most * mechanism.l1_sensitivity * (1 - 1e-9)


def encoded(mechanism: Any, counter: dp.Counter, xs: np.ndarray) -> np.ndarray:
    """The integers that noise is added to, after any rounding, from exact real arithmetic."""
    if not isinstance(mechanism, RoundedMechanism):
        return (mechanism.encoder(mechanism.horizon) @ xs).astype(np.int64)
    return np.rint(mechanism.encoder(mechanism.horizon) @ (xs * counter.resolution)).astype(
        np.int64
    )


@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
@pytest.mark.parametrize(("low", "high"), [(0, 1), (-1, 1), (-2, 1)])
@pytest.mark.exhaustive("kind", "relation", "low")
@every
def test_whole_streams_of_two_keys_that_differ_in_a_person(
    kind: Any, relation: str, low: int, high: int
) -> None:
    """With values of any sign, others' events beside them, and rounding: every pair of streams."""
    horizon, k = 3, 2
    mechanism = kind(horizon)
    change = UserChange(low, high, relation, most=8, events=k, keys=2, per_key=2)
    budget = dp.ZCDP(0.5) if "gaussian" in mechanism.laws else dp.PureDP(1.0)
    counter = dp.calibrate(mechanism, budget, change)
    values = sorted({low, high} - {0})
    events = [*itertools.product(range(2), range(horizon), values)]
    mine = [()] + [
        chosen for n in (1, 2) for chosen in itertools.combinations_with_replacement(events, n)
    ]

    def stream(chosen: Any, base: int) -> tuple[tuple[int, ...], ...]:
        sums = np.full((2, horizon), base)
        for key, tick, x in chosen:
            sums[key, tick] += x
        return tuple(map(tuple, sums.tolist()))

    known: dict[Any, np.ndarray] = {}

    def noised(x: Any) -> np.ndarray:
        for xs in x:
            if xs not in known:
                known[xs] = encoded(mechanism, counter, np.array(xs))
        return np.concatenate([known[xs] for xs in x])

    l1, l2_squared = change.norms(mechanism, 1, None)
    best = Fraction(0)
    for base in (0, 1):
        all_of_them = [noised(stream(chosen, base)) for chosen in mine]
        others = all_of_them[:1] if relation == "add_remove" else all_of_them
        for one, other in itertools.product(all_of_them, others):
            d = one - other
            assert int(np.abs(d).sum()) <= l1
            best = max(best, Fraction(int((d * d).sum())))
    assert best <= l2_squared
    if relation == "add_remove":
        assert best >= l2_squared * Fraction(998, 1000)


def test_a_gap_costs_what_the_issue_of_it_says() -> None:
    mechanism = NormalizedBLT(1000)
    far = dp.calibrate(mechanism, dp.ZCDP(0.5), UserChange(events=20, per_key=20, gap=60))
    near = dp.calibrate(mechanism, dp.ZCDP(0.5), UserChange(events=20, per_key=20))
    one = dp.calibrate(mechanism, dp.ZCDP(0.5), TickChange())
    assert far.l2_sensitivity / one.l2_sensitivity == pytest.approx(9.07, abs=0.01)
    assert near.l2_sensitivity / one.l2_sensitivity == pytest.approx(20, rel=1e-3)
    # No more than 17 fit, 60 ticks apart.
    more = UserChange(events=10**6, per_key=10**6, gap=60)
    fit = UserChange(events=17, per_key=17, gap=60)
    assert more.norms(mechanism, 1, None) == fit.norms(mechanism, 1, None)


@pytest.mark.parametrize("total", range(1, 9))
@pytest.mark.parametrize("each", range(1, 5))
def test_the_worst_allocation_is_the_worst(total: int, each: int) -> None:
    def cost(k: int) -> Fraction:
        return Fraction(k * (k + 3), 2)

    def split(left: int, most: int) -> Iterator[Fraction]:
        if not left:
            yield Fraction(0)
        for k in range(1, min(left, most) + 1):
            yield from (cost(k) + rest for rest in split(left - k, k))

    assert worst(total, each, cost) == max(split(total, each))


def test_windows_and_items_are_counters_too() -> None:
    """Rounding is charged for every counter that a person touches."""
    mechanism = NormalizedBLT(50)

    def l2(**given: int) -> float:
        return math.sqrt(UserChange(**given).norms(mechanism, 1, None)[1])

    one = l2()
    assert l2(events=4, keys=1, per_key=4) == pytest.approx(4 * one, rel=1e-3)
    assert l2(events=4, keys=4) == pytest.approx(2 * one, rel=1e-3)
    assert l2(events=2, keys=4, max_items=2) == pytest.approx(2 * one, rel=1e-3)
    # In windows, events of one key may fall into several counters, but cost no more than in one.
    slack = mechanism.slack(mechanism.resolution(1, 1 << 20) << 20)[1]
    apart = l2(events=4, keys=1, per_key=4, windows=9) - l2(events=4, keys=1, per_key=4)
    assert apart == pytest.approx(slack * (math.sqrt(4) - 1), rel=1e-3)
    # With a gap a window has room for few, and the next one for more.
    gap = {"events": 8, "keys": 1, "per_key": 8, "gap": 20}
    assert l2(**gap, windows=2) > 1.2 * l2(**gap)


def of_windows(kind: Any, ticks: int, window: int, **bound: Any) -> Any:
    """A count that starts anew in each window of so many ticks; a bound is for all of them."""
    clock: dict[str, Any] = {"tick": 1, "start": 0, "horizon": ticks, "restart": window}
    clock |= {"mechanism": kind, "keys": ["a"]}
    users = dp.Users(lambda event: event["who"], **{"per_key": 1, **bound})
    return lambda **more: counted(dp.ApproxDP(1.0, 1e-4), **clock | more, users=users)


@pytest.mark.parametrize("kind", [mechanisms.BinaryTree, mechanisms.TwoLevel, mechanisms.Simple1])
@pytest.mark.parametrize(
    ("window", "gap"), [(2, 0), (2, 2), (2, 3), (2, 4), (3, 1), (3, 2), (3, 3), (3, 4), (4, 3)]
)
def test_what_starts_anew_in_windows_is_bounded_over_all_of_them(
    kind: Any, window: int, gap: int
) -> None:
    """A gap leaves room for so many events in all windows together, not in one."""
    ticks = 12
    for k, per_key in itertools.product((1, 2, 3, 4), (1, 2)):
        made = of_windows(kind, ticks, window, events=k, per_key=per_key, gap=gap or None)
        counter = made().counter
        mechanism = counter.mechanism
        assert mechanism.horizon == window
        l1, l2_squared = counter.change.norms(mechanism, 1, None)
        best = total = 0.0
        for places in placements(ticks, k, gap):
            parts: list[list[int]] = [[] for _ in range(ticks // window)]
            for place in places:
                parts[place // window].append(place % window)
            if max(map(len, parts)) <= per_key:
                best = max(best, sum(change_of(mechanism, tuple(part)) for part in parts if part))
                total = max(total, len(places) * mechanism.l1_sensitivity)
        assert best <= float(l2_squared) * (1 + 1e-12)
        assert total <= l1
        # Where each may be at the worst tick of a window of its own, as is said.
        if (gap and gap % window == 0) or (per_key == 1 and gap <= window):
            assert best == pytest.approx(float(l2_squared))
            assert total == l1


def test_a_person_may_show_in_each_window_of_a_key() -> None:
    made = of_windows(None, 240, 24, events=10, gap=24)
    touched = made(keys=dp.SelectKeys()).counter.change.touched(mechanisms.BinaryTree(24))
    assert (touched.counters, touched.each) == (10, 1)
    plain = of_windows(None, 240, 24, events=10)
    near, far = (each(keys=dp.SelectKeys(shards=1)) for each in (plain, made))
    assert max(far.selection.thresholds) == pytest.approx(max(near.selection.thresholds))
    assert far.counter.max_variance() == near.counter.max_variance()


class Named(str):
    def __str__(self) -> str:
        return "another"


class Level(enum.IntEnum):
    HIGH = 7

    def __str__(self) -> str:
        return "another"


NOBODY: list[Any] = [
    *("", None, b"ann", "\ud800", "ann\udfff", 7.0, float("nan"), np.float64(7), True, False),
    *(np.bool_(True), Decimal(7), Fraction(7), 7j, [7], (7,), np.array(7), dt.date(2026, 1, 1)),
    *(np.datetime64(7, "s"), np.timedelta64(7, "s"), 1 << 1024, object()),
]
SOMEBODY: list[tuple[Any, str]] = [
    *(("ann", "ann"), (" ", " "), (Named("ann"), "ann"), (np.str_("ann"), "ann"), ("007", "007")),
    *(
        (7, "7"),
        (0, "0"),
        (-7, "-7"),
        (2**63, str(2**63)),
        (2**128, str(2**128)),
        (Level.HIGH, "7"),
        ("änn", "änn"),
    ),
    *((np.int8(-7), "-7"), (np.uint64(2**64 - 1), str(2**64 - 1)), (np.int64(7), "7")),
]


def person(by: Any, payload: Any) -> str:
    parcels: Any = TickParcels(None, ("k",))  # type: ignore[arg-type]
    found: str = parcels.person(dp.Users(by, 1, per_key=1).person_of, ("k", payload))
    return found


@pytest.mark.parametrize("found", NOBODY, ids=lambda found: type(found).__name__)
def test_who_is_neither_a_text_nor_a_whole_number_is_nobody(found: Any) -> None:
    """Half a surrogate pair too: coders refuse it, and a pipeline that stops shows that it came."""
    assert person(lambda payload: payload, found) == ""
    assert "no person" in str(dp.Users(lambda payload: payload, 1, per_key=1).examine(found)[0])
    assert rows_person(found) == ""


@pytest.mark.parametrize(("found", "name"), SOMEBODY)
def test_texts_and_whole_numbers_are_people(found: Any, name: str) -> None:
    """To the letter; the same in rows and commands."""
    assert person(lambda payload: payload, found) == name
    assert dp.Users(lambda payload: payload, 1, per_key=1).examine(found) == (None, name)
    is_long = not isinstance(found, str) and not -(2**63) <= int(found) < 2**63
    assert rows_person(found) == ("" if is_long else name)  # coders of rows take 64 bits
    if isinstance(found, str) or type(found) is int:
        assert shown_person(found) == name


class Event(NamedTuple):
    page: str
    user: Any

    @property
    def secret(self) -> Any:
        return "runs code of the event"


@dataclass
class Visit:
    user: Any
    page: str = ""

    secret = Event.secret


class Stay(beam.Row):  # type: ignore[name-defined, misc]
    secret = Event.secret


class Fields(Mapping[str, Any]):
    """A mapping that is not a dict."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self._fields = fields

    def __getitem__(self, name: str) -> Any:
        return self._fields[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)


HOLDERS: dict[str, Any] = {
    "dict": lambda user: {"user": user},
    "mapping": lambda user: Fields({"user": user}),
    "row": lambda user: Stay(user=user),
    "tuple": lambda user: Event("/home", user),
    "dataclass": Visit,
}


@pytest.mark.parametrize("kind", HOLDERS)
def test_a_field_says_whose_an_event_is(kind: str) -> None:
    made = HOLDERS[kind]
    assert person("user", made("ann")) == "ann"
    assert person("user", made(7)) == "7"
    assert person("user", made(None)) == ""
    # Names that are no fields; what they name on the object is not looked at.
    for name in ("usr", "secret", "items", "count", "__class__", "as_dict"):
        assert person(name, made("ann")) == ""
    users = dp.Users("usr", 1, per_key=1)
    assert users.examine(made("ann"))[0] == (
        "the event has no person: field 'usr' does not hold a whole number, or a text that is not "
        "empty"
    )


def test_a_field_of_what_has_no_fields_is_nobodys() -> None:
    for payload in ("user", ["user"], ("user", 1), 7, None, object()):
        assert person("user", payload) == ""
    given: dict[str, str] = defaultdict(lambda: "ann")
    assert person("user", given) == ""
    assert not given


def test_users_by_a_field_are_shown_and_pickled() -> None:
    users = dp.Users("user", 3, per_key=1)
    assert pickle.loads(pickle.dumps(users)) == users
    assert repr(users).startswith("Users(by='user', events=3")
    assert "a person (field 'user')" in str(users)
    clock: dict[str, Any] = {"tick": 1, "start": 0, "horizon": 5, "keys": ["a"]}
    count = TickNumbers(dp.PureDP(1.0), **clock, value=lambda _: 1, users=users)
    assert "(field 'user')" in count.display_data()["users"]
    inner = counted(dp.PureDP(1.0), dp.People(), **clock, users=dp.Users("user", 1))
    dp.BoundUsers(users, {"people": inner})  # the same field is the same people
    with pytest.raises(ValueError, match="give both the same field or function"):
        dp.BoundUsers(dp.Users("device", 3, per_key=1), {"people": inner})


@pytest.mark.parametrize("kind", [mechanisms.SmoothBinary, NormalizedBLT])
def test_all_contents_of_a_persons_elements(kind: Any) -> None:
    """Per element: k times one element's norm in one key; keys have noise of their own."""
    mechanism = kind(6)
    for one, dimension in [
        (dp.Change(-1, 2), None),
        (Items(("a", "b"), 2).change("replace_one"), 2),
    ]:
        l1, l2_squared = one.norms(mechanism, 1, dimension)
        in_one = group_of(one, 3, 3, False).norms(mechanism, 1, dimension)
        assert in_one == (3 * l1, 9 * l2_squared)
        assert group_of(one, 3, 1, False).norms(mechanism, 1, dimension) == (3 * l1, 3 * l2_squared)
        assert group_of(one, 3, 2, False).norms(mechanism, 1, dimension) == (3 * l1, 5 * l2_squared)
    # Brute force: three elements of one key, any contents.
    R = mechanism.encoder(6)
    bound = group_of(dp.Change(-1, 2), 3, 3, False).norms(mechanism, 1, None)[1]
    fine = mechanism.resolution(3, 3)
    found = max(
        float(((R[:, list(steps)] @ np.array(d)) ** 2).sum())
        for steps in itertools.combinations(range(6), 3)
        for d in itertools.product((-3, 3), repeat=3)
    )
    assert found <= float(bound) / fine**2


@pytest.mark.long
@pytest.mark.parametrize("max_degree", [2, 3])
@pytest.mark.parametrize("make", [Triangles, Degrees], ids=lambda make: make.__name__)
def test_elements_of_a_person_in_a_graph(make: Any, max_degree: int) -> None:
    """Others may insert the same edge: an element is two changes of one."""
    mechanism, statistic = mechanisms.SmoothBinary(4), make(4, max_degree=max_degree)
    pairs = [*itertools.combinations(range(4), 2)]
    one = statistic.change("edge")
    norms = [group_of(one, k, k, False).norms(mechanism, 1, statistic.dimension) for k in (1, 2)]
    R = mechanism.encoder(4)

    @lru_cache
    def encoded(stream: tuple[Any, ...]) -> np.ndarray:
        codes = [statistic.empty if pair is None else statistic.read(pair)[0] for pair in stream]
        added = statistic.all(statistic.init(), np.array(codes))[1]
        return R @ added

    found = [0.0, 0.0]
    for stream in itertools.product(pairs, repeat=4):
        for k, (l1, l2_squared) in zip((1, 2), norms, strict=True):
            for mine in itertools.combinations(range(4), k):
                without = tuple(None if i in mine else pair for i, pair in enumerate(stream))
                d = encoded(stream) - encoded(without)
                assert np.abs(d).sum() <= l1
                assert (d * d).sum() <= l2_squared
                found[k - 1] = max(found[k - 1], float((d * d).sum()))
    assert 0 < found[0] <= found[1]

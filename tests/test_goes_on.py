"""Runs that go on, one after the other: together they are one run over the whole clock."""

from __future__ import annotations

import random
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import beam_dpcount as dp
from beam_dpcount.checks import ParameterError
from beam_dpcount.counters.people import Bound, Seen
from beam_dpcount.counters.summed_views import SummedViews
from beam_dpcount.counters.views import CombinedViews
from beam_dpcount.lanes.cells import Times
from beam_dpcount.lanes.frames import Frame
from beam_dpcount.lanes.parts import PartsLane
from beam_dpcount.lanes.resumed import ResumedLane
from beam_dpcount.noise.replay import StateEntropy
from beam_dpcount.plans.sentence import TickCountPlan
from beam_dpcount.states.count_state import CountState
from beam_dpcount.states.envelope import StateError

SECRET = bytes(range(32))
HOUR = 3600
TICKS = 12
HOURS = dp.Clock("1h", start=0, ticks=TICKS)
USERS = dp.Users("who", events=3, per_key=2)
COUNTS: dict[str, dict[str, Any]] = {
    "keys": {"keys": ["a", "b"]},
    "total": {"keys": dp.TOTAL},
    "other": {"keys": ["b", "x"], "other": "x"},
    "sum": {"what": dp.Sum("ms", -1, 2, unit=0.5), "keys": ["a"]},
    "people's events": {"keys": ["a", "b"], "users": USERS},
    "apart": {"keys": ["a", "b"], "users": dp.Users("who", events=4, gap=1.5 * HOUR)},
    "one event": {"keys": ["a", "b"], "users": dp.Users("who", events=1)},
    "few keys": {"keys": ["a", "b", "z"], "users": dp.Users("who", events=5, keys=1)},
    "periods": {"keys": ["a", "b"], "users": dp.Users("who", events=2, per="5h")},
    "each": {"clock": HOURS.each(), "keys": ["a", "b"]},
    "last": {"clock": HOURS.last(3), "keys": ["a"], "users": USERS},
    "restart": {"clock": HOURS.restart(5), "keys": ["a", "b"], "users": USERS},
    "people": {"what": dp.People(), "keys": ["a"], "users": dp.Users("who", events=2)},
    "people of ticks": {
        "what": dp.People(),
        "clock": HOURS.each(),
        "keys": ["a", "b"],
        "users": dp.Users("who", events=4, per_key=1),
    },
    "metrics": {
        "what": [dp.Count(), dp.Mean("ms", -1, 2), dp.Quantiles("ms", -2, 3, [0.5])],
        "keys": ["a", "b"],
    },
    "metrics of people": {
        "what": [dp.People(), dp.Sum("ms", -1, 2)],
        "clock": [HOURS, HOURS.each()],
        "keys": ["a", "b"],
        "users": USERS,
    },
    "combined": {
        "budget": dp.ZCDP(0.5),
        "clock": [HOURS, HOURS.each(), HOURS.last(3)],
        "keys": ["a", "b"],
        "prefer": "so-far",
    },
    "sums": {"clock": [HOURS, HOURS.each(), HOURS.last(3)], "keys": ["a", "b"]},
    "views": {"clock": [HOURS.each(), HOURS.last(2), HOURS.restart(2)], "keys": ["a"]},
    "endless": {"clock": dp.Clock("1h", start=0).restart(4), "keys": ["a", "b"]},
}
each_count = pytest.mark.parametrize("name", COUNTS)


def rows_of(seed: int, many: int = 300) -> list[dict[str, Any]]:
    """Events in any order, some of them outside of the clock or of nobody."""
    rng = random.Random(seed)
    return [
        {
            "page": rng.choice("abz"),
            "ts": rng.randrange(-HOUR, (TICKS + 1) * HOUR, 300),
            "who": rng.choice([*"uvwxy", ""]),
            "ms": rng.choice([-1.0, 0.5, 1.5]),
        }
        for _ in range(many)
    ]


def plan(name: str, hours: int, secret: bytes = SECRET, **more: Any) -> TickCountPlan:
    """The count of a run by then."""
    given = {"budget": dp.ApproxDP(1.0, 1e-6), "clock": HOURS, "late": "drop", **COUNTS[name]}
    given |= {"until": hours * HOUR, "entropy": StateEntropy(secret, "a state")}
    return TickCountPlan(**given | more)


def read_by(count: TickCountPlan, rows: Sequence[dict[str, Any]], state: CountState) -> PartsLane:
    """A run that has read all rows."""
    fields = sorted({field for metric in count._metrics for field in metric.fields})
    frame = Frame(
        pa.Table.from_pylist(list(rows)),
        None if count.keys is dp.TOTAL else "page",
        "ts",
        None if count.users is None else "who",
        fields,
        Times(lambda ts: int(str(ts)) * 10**6, None, True),
    )
    lane = PartsLane(count, "Count", state=state)
    for columns in frame.columns(lane.contents):
        lane.add(columns)
    return lane


def ran(
    count: TickCountPlan, rows: Sequence[dict[str, Any]], state: CountState
) -> tuple[list[Any], CountState]:
    """The releases of a run, and what it keeps."""
    lane = read_by(count, rows, state)
    return [*map(repr, lane.rows())], lane.state


def remembered_by(state: CountState) -> list[int]:
    """Bytes of people in each part."""
    return [
        sum(len(piece) for shard in part.people for piece in shard.pieces) for part in state.parts
    ]


def nights(
    name: str, rows: Sequence[dict[str, Any]], ends: Sequence[int]
) -> Iterator[tuple[list[Any], CountState]]:
    """Runs one after the other, each from the bytes that the one before kept."""
    state = CountState()
    for hours in ends:
        released, state = ran(plan(name, hours), rows, state)
        state = CountState.unpacked(state.packed())
        yield released, state


def test_views_are_combined_in_both_ways() -> None:
    combined, sums = (plan(name, TICKS).combined for name in ("combined", "sums"))
    assert combined is not None
    assert isinstance(combined.views, CombinedViews)
    assert sums is not None
    assert isinstance(sums.views, SummedViews)


@each_count
@pytest.mark.parametrize(
    "ends", [(3, 4, 9, 12), (*range(13),), (7, 7, 12)], ids=["few", "each", "twice"]
)
def test_runs_together_are_one(name: str, ends: Sequence[int]) -> None:
    """Bit for bit, whatever rows of later ticks a run has seen."""
    rows = rows_of(1)
    whole, kept = ran(plan(name, TICKS), rows, CountState())
    together = [row for released, _ in nights(name, rows, ends) for row in released]
    assert len(whole) >= TICKS
    assert sorted(together) == sorted(whole)
    (*_, (_, last)) = nights(name, rows, ends)
    assert [part.shards for part in last.parts] == [part.shards for part in kept.parts]
    assert last.views == kept.views


@each_count
def test_rows_that_come_after_their_tick_count_nothing(name: str) -> None:
    """The runs are one over the log without them; what was released is not read again."""
    rows, late = rows_of(2), rows_of(3)
    log, together, seen, state = list(rows), [], list(rows), CountState()
    for hours in (4, 8, 12):
        released, state = ran(plan(name, hours), log, state)
        together += released
        some, late = late[:100], late[100:]
        log += some
        seen += [row for row in some if row["ts"] >= hours * HOUR]
    whole, _ = ran(plan(name, TICKS), seen, CountState())
    assert sorted(together) == sorted(whole)


@each_count
def test_the_run_does_not_depend_on_rows_of_later_ticks(name: str) -> None:
    rows = rows_of(4)
    early = [row for row in rows if row["ts"] < 5 * HOUR]
    (released, state), (same, kept) = (
        ran(plan(name, 5), some, CountState()) for some in (rows, early)
    )
    assert released == same
    assert [part.shards for part in state.parts] == [part.shards for part in kept.parts]
    assert remembered_by(state) == remembered_by(kept)


@each_count
def test_a_restored_state_repeats_its_noise(name: str) -> None:
    """Over the same rows to the bit; over others, nothing but chance is equal."""
    rows = rows_of(5)
    _, state = ran(plan(name, 6), rows, CountState())
    first, _ = ran(plan(name, 9), rows, state)
    again, _ = ran(plan(name, 9), rows, state)
    assert first == again
    other, _ = ran(plan(name, 9, secrets.token_bytes(32)), rows, CountState())
    assert other[-len(first) :] != first


def counted(bound: Bound, rows: Sequence[tuple[str, str, int, int]]) -> list[int]:
    """By the rule, event by event: the places of those that count; an event is of a period."""
    seen: dict[tuple[str, int], Seen] = {}
    order = sorted(range(len(rows)), key=lambda place: rows[place][2])
    return [
        place
        for place in order
        if bound.take(
            seen.setdefault((rows[place][0], rows[place][3]), Seen()),
            [rows[place][1]],
            rows[place][2],
        )
    ]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(
    "users",
    [
        dp.Users("who", events=1),
        dp.Users("who", events=2, per_key=1),
        dp.Users("who", events=4, keys=1),
        dp.Users("who", events=5, keys=2, per_key=3),
        dp.Users("who", events=3, gap=2 * HOUR),
        dp.Users("who", events=2, per="4h"),
        dp.Users("who", events=3, keys=2, per_key=2, gap=HOUR, per="6h"),
    ],
    ids=str,
)
def test_the_bound_holds_over_all_runs(users: dp.Users, seed: int) -> None:
    """Which events count of a few people over random runs: by brute force, without noise."""
    rng = random.Random(seed)
    times = rng.sample(range(TICKS * 60), 40)
    rows: list[dict[str, Any]] = [
        {"page": rng.choice("ab"), "ts": 60 * at, "who": rng.choice("uvw"), "ms": 0.0}
        for at in times
    ]
    ends = sorted({*rng.sample(range(1, TICKS), 3), TICKS})
    what = {"users": users, "keys": ["a", "b"], "clock": HOURS.each()}
    found, state = np.zeros((2, TICKS), dtype=np.int64), CountState()
    for hours in ends:
        count = plan("keys", hours, **what)
        sums, state = counted_by(count, rows, state)
        found += sums
        state = CountState.unpacked(state.packed())
    periods = count._periods
    known = [
        (
            row["who"],
            row["page"],
            row["ts"] * 10**6,
            periods.of(row["ts"] * 10**6) if periods else 0,
        )
        for row in rows
    ]
    exact = np.zeros((2, TICKS), dtype=np.int64)
    for place in counted(users.bound(), known):
        exact["ab".index(rows[place]["page"]), rows[place]["ts"] // HOUR] += 1
    assert (found == exact).all()


def counted_by(
    count: TickCountPlan, rows: Sequence[dict[str, Any]], state: CountState
) -> tuple[Any, CountState]:
    """What a run counts of each key and tick, without noise, and what it keeps."""
    lane = read_by(count, rows, state)
    [*lane.rows()]
    ((_, one, _),) = lane._lanes
    assert isinstance(one, ResumedLane)
    found = np.zeros((2, TICKS), dtype=np.int64)
    sums = one._totals.between(0, 2 * one._ticks).reshape(2, -1)
    if one._ended > one._after:
        found[:, one._after : one._ended] = sums
    return found, lane.state


@pytest.mark.parametrize("name", [name for name, given in COUNTS.items() if "users" in given])
def test_people_take_few_bytes(name: str) -> None:
    """16 of one who counts once; else 33 for each event that counts, 41 with a gap; 4 a period.

    A shard adds 134 for its cell, and 16 a piece.
    """
    count = plan(name, TICKS)
    _, state = ran(count, rows_of(6, 2000), CountState())
    people, shards = 5, 64
    for part, of_part in zip(count._parts, state.parts, strict=True):
        engine = part.engine
        row = 16 if engine.bound.events == 1 else 33 + 8 * bool(engine.bound.gap)
        row += 4 * (engine.periods is not None)
        kept = [len(piece) for shard in of_part.people for piece in shard.pieces]
        cells = [len(shard.cell) for shard in of_part.people]
        assert 0 < sum(kept) - 16 * len(kept) <= row * people * engine.bound.events
        assert len(cells) == shards
        assert max(cells) <= 134


def test_periods_that_ended_are_forgotten() -> None:
    rows = rows_of(7, 2000)
    after = [remembered_by(state) for _, state in nights("periods", rows, (5, 10))]
    assert after == [[0], [0]]  # both runs end with a period


def test_people_whose_digests_end_in_zeros_are_remembered() -> None:
    """As one in 256 do; and sorting by person and time works for many people, too."""
    people = [f"p{number}" for number in range(6000)]
    first = [{"page": "a", "ts": 60, "who": who, "ms": 0.0} for who in people]
    then = [
        {"page": page, "ts": HOUR + 60, "who": who, "ms": 0.0} for who in people for page in "ba"
    ]
    more = {"users": dp.Users("who", events=5, keys=1), "clock": HOURS.each()}
    _, state = ran(plan("keys", 1, **more), first, CountState())
    sums, _ = counted_by(plan("keys", 2, **more), then, CountState.unpacked(state.packed()))
    assert sums[:, 1].tolist() == [len(people), 0]


def mutated(data: bytes, rng: random.Random) -> bytes:
    """The bytes with one change."""
    at = rng.randrange(len(data))
    kind = rng.randrange(4)
    if kind == 0:
        return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]
    if kind == 1:
        return data[:at]
    if kind == 2:
        return data[:at] + data[at + rng.randrange(1, 9) :]
    return data[:at] + rng.randbytes(rng.randrange(1, 9)) + data[at:]


def test_altered_states_are_refused() -> None:
    """10,000 of them, by one digest over all bytes; messages show nothing of them."""
    _, state = ran(plan("metrics of people", 6), rows_of(8), CountState())
    data, rng, said = state.packed(), random.Random(9), set()
    for _ in range(10_000):
        altered = mutated(data, rng)
        if altered == data:
            continue
        with pytest.raises(StateError) as refused:
            CountState.unpacked(altered)
        said.add(str(refused.value))
    assert len(said) == 2  # bytes are altered, or not of a state at all
    assert CountState.unpacked(data) == state


def test_states_of_another_count_are_refused() -> None:
    """Another budget, clock, list of keys, bound or secret, each by its name."""
    rows = rows_of(10)
    _, state = ran(plan("people's events", 6), rows, CountState())
    others: dict[str, dict[str, Any]] = {
        "counter": {"budget": dp.ApproxDP(2.0, 1e-6)},
        "clock": {"clock": replace(HOURS, ticks=13)},
        "keys": {"keys": ["b", "a"]},
        "bound": {"users": dp.Users("who", events=3, per_key=1)},
        "secret": {"entropy": StateEntropy(secrets.token_bytes(32), "a state")},
    }
    for name, more in others.items():
        with pytest.raises(StateError) as refused:
            PartsLane(plan("people's events", 9, **more), "Count", state=state)
        assert {"clock": "counter"}.get(name, name) in str(refused.value), name


def test_states_with_parts_or_shards_of_another_count_are_refused() -> None:
    _, state = ran(plan("people's events", 6), rows_of(10), CountState())
    (part,) = state.parts
    for name, parts in {
        "counter": (part, part),
        "keys": (part._replace(shards=part.shards * 2),),
        "corrupt": (part._replace(people=()),),
    }.items():
        with pytest.raises(StateError, match=name):
            PartsLane(plan("people's events", 9), "Count", state=replace(state, parts=parts))
    _, of_keys = ran(plan("keys", 6), rows_of(10), CountState())
    mixed = replace(of_keys, parts=(of_keys.parts[0]._replace(people=part.people),))
    with pytest.raises(StateError, match="corrupt"):
        PartsLane(plan("keys", 9), "Count", state=mixed)


def test_what_does_not_go_on_is_refused_by_name() -> None:
    for more, named in (
        ({"keys": dp.SelectKeys(delta=1e-7)}, "keys"),
        ({"late": "fold"}, "late"),
        ({"entropy": None}, "entropy"),
    ):
        with pytest.raises(ParameterError) as refused:
            PartsLane(plan("keys", 4, **more), "Count", state=CountState())
        assert refused.value.name == named


def test_secrets_of_states_leave_no_process() -> None:
    import pickle

    entropy = StateEntropy(SECRET, "a state")
    with pytest.raises(TypeError):
        pickle.dumps(entropy)
    _, state = ran(plan("people", 6), rows_of(11), CountState())
    for shown in (repr(entropy), repr(state), repr(state.parts), str(plan("people", 6))):
        assert SECRET.hex() not in shown
        assert repr(SECRET)[2:12] not in shown
        assert "digest" not in shown
        assert len(shown) < 3000

"""Several metrics in one TickCount: what it releases is what NumPy finds, where noise is 0."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.utils.timestamp import Timestamp

import beam_dpcount as dp
from beam_dpcount.counters.columns import Sums
from beam_dpcount.states.all_shards import AllVectorShards, shard_of
from beam_dpcount.transforms import vectors
from tests.aggregates import (
    AMOUNT,
    EXACT,
    KEYS,
    LATENCY,
    TICK,
    TICKS,
    aggregate,
    check,
    log,
    m,
    who,
)
from tests.people import kept
from tests.runners import (
    SECOND,
    Outcome,
    Row,
    each_path,
    each_runner_and_path,
    feed,
    run,
    run_stream,
)
from tests.sentences import counted

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
ROWS = log()
MAPPED = [row for row in ROWS if isinstance(row[1], dict)]


def end_of(step: int) -> int:
    return step * TICK * SECOND


def check_all(
    releases: Sequence[dp.TickRelease],
    rows: Sequence[Row],
    keys: Sequence[str] = KEYS,
    people: bool = False,
    since: Callable[[int], int] = lambda end: 0,
) -> None:
    """Every release of these keys is of the rows of its key up to its end."""
    assert [(r.key, r.timestamp) for r in sorted(releases, key=place)] == [
        (key, end_of(step)) for key in sorted(keys) for step in range(1, TICKS + 1)
    ]
    for release in releases:
        assert release.timestamp - release.start == TICK * SECOND
        first, end = since(release.start), release.timestamp
        mine = [row for row in rows if row[0] == release.key and first <= row[2] < end]
        check(release, mine, people, len({row[1]["who"] for row in mine}))


def place(release: dp.TickRelease) -> tuple[str, int]:
    return release.key, release.timestamp


def count(rows: Sequence[Row], transform: Any, runner: str = "fn") -> Outcome:
    return run(lambda p: p | feed(rows) | transform, runner)


@each_runner_and_path
def test_of_listed_keys(runner: str, path: str) -> None:
    outcome = count(ROWS, aggregate(path=path), runner)
    check_all(outcome.releases, MAPPED)
    assert not outcome.metrics()
    for release in outcome.releases:
        assert all(
            (low is None) == (value is None)
            for low, value in zip(release.lows.values(), release.values.values(), strict=True)
        )


@each_path
def test_of_people(path: str) -> None:
    """Each has up to four events, in two keys, three in each; the first in a key is one more."""
    users = dp.Users(who, 4, keys=2, per_key=3)
    outcome = count(ROWS, aggregate(users, path=path))
    mine = [row for row in MAPPED if row[0] in KEYS]
    found = [row for row, _ in kept(mine, 4, keys=2, per_key=3)]
    assert 60 < len(found) < len(mine) / 2
    check_all(outcome.releases, found, people=True)
    assert not outcome.metrics()


@each_path
def test_all_others_under_one_key(path: str) -> None:
    users = dp.Users(who, 6, per_key=3)
    outcome = count(ROWS, aggregate(users, other="c", path=path))
    mapped = [(row[0] if row[0] in KEYS else "c", *row[1:]) for row in MAPPED]
    found = [row for row, _ in kept(mapped, 6, per_key=3)]
    assert sum(row[0] == "c" for row in found) > 20
    check_all(outcome.releases, found, people=True)


@pytest.mark.long
@each_path
@pytest.mark.parametrize("users", [None, dp.Users(who, 6, per_key=2)], ids=["events", "people"])
def test_windows_of_ticks(path: str, users: dp.Users | None) -> None:
    outcome = count(ROWS, aggregate(users, restart=4, path=path))
    size = 4 * TICK * SECOND
    found = [row for row in MAPPED if row[0] in KEYS]
    if users is not None:
        names = kept(found, 6, per_key=2, names=lambda row: [(row[2] // size, row[0])])
        found = [row for row, _ in names]
    check_all(
        outcome.releases, found, people=users is not None, since=lambda start: start // size * size
    )
    assert all(end_of(r.step) == r.timestamp for r in outcome.releases)


SELECTED: list[dp.Users | None] = [None, dp.Users(who, 4, keys=2, per_key=3)]


@pytest.mark.long
@each_path
@pytest.mark.parametrize("users", SELECTED, ids=["events", "people"])
def test_of_selected_keys(path: str, users: dp.Users | None) -> None:
    """A key is shown once it has as many events as one person may have, and then at every tick."""
    keys = dp.SelectKeys(delta=1e-9, shards=2)
    transform = aggregate(users, keys=keys, path=path)
    found = MAPPED
    if users is not None:
        found = [row for row, _ in kept(MAPPED, 4, keys=2, per_key=3)]
    least = 1 if users is None else 3
    assert transform.selection is not None
    thresholds = transform.selection.thresholds
    assert thresholds == pytest.approx(least, abs=1e-3)
    releases = count(ROWS, transform).releases
    expected = []
    for key in "abcd":
        mine = [row for row in found if row[0] == key]
        for step in range(1, TICKS + 1):
            # It is a little more than `least`, for noise that is not there.
            if sum(row[2] < end_of(step) for row in mine) >= thresholds[step - 1]:
                expected.append((key, end_of(step)))
    assert [place(r) for r in releases] == expected
    since: dict[str, int] = {}
    for release in releases:
        mine = [row for row in found if row[0] == release.key and row[2] < release.timestamp]
        check(release, mine, users is not None, len({row[1]["who"] for row in mine}))
        ticks = release.step - since.setdefault(release.key, release.step)
        fresh = [note for note in release.notes.values() if note == "just shown"]
        assert bool(fresh) == (ticks < 10)
        if ticks < 10:
            assert {*release.lows.values(), *release.highs.values()} == {None}


@pytest.mark.long
def test_a_stream_whose_watermark_moves() -> None:
    """And late events count at the next tick, or not at all."""
    late: Row = ("a", {"who": "late", "amount": 9, "latency": 4.0}, 5 * SECOND)
    few = log(40)
    before = [row for row in few if row[2] < 40 * SECOND]
    after = [row for row in few if row[2] >= 40 * SECOND]
    for policy in ("fold", "drop"):
        outcome = run_stream(aggregate(late=policy), *before, 40, late, *after, 130)
        rows = [row for row in few if isinstance(row[1], dict)]
        if policy == "fold":
            rows.append((late[0], late[1], 40 * SECOND))
        check_all(outcome.releases, rows)


@pytest.mark.exhaustive
def test_a_backlog_in_a_stream_of_several_windows() -> None:
    rows = log(150, seed=2)
    outcome = run_stream(aggregate(restart=6), *rows[::-1], 130)
    size = 6 * TICK * SECOND
    mapped = [row for row in rows if isinstance(row[1], dict)]
    check_all(outcome.releases, mapped, since=lambda start: start // size * size)


# Real events


def real(name: str) -> list[dict[str, str]]:
    path = DATA / name
    if not path.exists():
        pytest.skip(f"{name} is not in ../shared/data beside the repository")
    with path.open(newline="") as file:
        return list(csv.DictReader(file, delimiter=" " if name.endswith("txt") else ","))


def apart(rows: Sequence[Row]) -> list[Row]:
    """By time; those of one second a millisecond apart, so that there are no ties."""
    made, before = list[Row](), -1
    for key, payload, micros in sorted(rows, key=lambda row: row[2]):
        before = max(micros, before + 1000)
        made.append((key, payload, before))
    return made


def messages() -> list[Row]:
    """Who is written to, who writes, and the hour of the day."""
    made: list[Row] = []
    for row in real("collegemsg.txt"):
        second = int(row["time"])
        payload = {"who": row["src"], "hour": second % 86400 / 3600}
        made.append((row["dst"], payload, second * SECOND))
    return apart(made)


def machine() -> list[Row]:
    """The level of a message, its node, and how long it is."""
    made: list[Row] = []
    for row in real("bgl_2k.csv"):
        payload = {"who": row["Node"], "hour": len(row["Content"]) / 10}
        made.append((row["Level"], payload, int(row["Timestamp"]) * SECOND))
    return apart(made)


REAL: list[Any] = [
    pytest.param(source, users, path, selected, marks=[] if few else pytest.mark.exhaustive)
    for source, users, path, selected, few in [
        (machine, None, "bounded", False, True),
        (machine, 5, "bounded", True, True),
        (machine, 5, "streaming", True, False),
        (machine, None, "streaming", False, False),
        (messages, 20, "bounded", True, False),
        (messages, None, "bounded", False, False),
        (messages, 20, "streaming", False, False),
        (messages, None, "streaming", True, False),
    ]
]


@pytest.mark.long
@pytest.mark.parametrize(("source", "people", "path", "selected"), REAL)
def test_real_events(
    source: Callable[[], list[Row]], people: int | None, path: str, selected: bool
) -> None:
    rows = source()
    if selected and path == "streaming":
        rows = rows[:3000]  # on a local runner a tick of a thousand keys takes its time
    day, first = 86400 * SECOND, min(row[2] for row in rows)
    steps = (max(row[2] for row in rows) - first) // day + 1
    names = sorted({row[0] for row in rows})
    listed = names[: 1 if selected else 40]
    many = [
        dp.Count(),
        dp.Sum("hour", 0, 24, 0.001),
        dp.Mean("hour", 0, 24, 0.001),
        dp.Variance("hour", 0, 24, 0.001),
        dp.Quantiles("hour", 0, 24, [0.5, 0.9]),
    ]
    users = None
    if people is not None:
        users = dp.Users(who, people, per_key=2)
        many.append(dp.People())
    transform = counted(
        *(EXACT, many),
        tick=86400,
        start=Timestamp(micros=first),
        horizon=steps,
        keys=dp.SelectKeys(delta=1e-9, shards=2) if selected else listed,
        users=users,
        mechanism="SmoothBinary",
        path=path,
    )
    last = beam.Filter(lambda release: release.step == steps)
    releases = run(lambda p: p | feed(rows) | transform | last).releases
    if not selected:
        rows = [row for row in rows if row[0] in listed]
    if people is not None:
        rows = [row for row, _ in kept(rows, people, per_key=2)]
    if selected:
        counts = {name: np.zeros(int(steps)) for name in names}
        for name, _, micros in rows:
            counts[name][int((micros - first) // day)] += 1
        assert transform.selection is not None
        least = transform.selection.thresholds
        listed = [name for name in names if (np.cumsum(counts[name]) >= least).any()]
        assert len(listed) > 2
    assert {r.key for r in releases} == {*listed}
    of_key: dict[str, list[Row]] = {}
    for row in rows:
        of_key.setdefault(row[0], []).append(row)
    for release in releases:
        mine = of_key.get(release.key, [])
        given = release.values
        assert given["count"] == pytest.approx(len(mine), abs=1e-6)
        if people is not None:
            who_wrote = {row[1]["who"] for row in mine}
            assert given["people"] == pytest.approx(len(who_wrote), abs=1e-6)
        if not mine:
            continue
        hours = np.array([row[1]["hour"] for row in mine])
        cut = np.rint(np.clip(hours, 0, 24) / 0.001) * 0.001
        assert given["sum_hour"] == pytest.approx(cut.sum(), abs=1e-5)
        assert given["mean_hour"] == pytest.approx(cut.mean(), abs=1e-5)
        if given["variance_hour"] is None:  # squares are rounded, to below what it is
            assert cut.var() < 1e-3
        else:
            assert given["variance_hour"] == pytest.approx(cut.var(), abs=1e-3)
        for q, name in ((0.5, "p50_hour"), (0.9, "p90_hour")):
            exact = np.quantile(np.clip(hours, 0, 24), q, method="inverted_cdf")
            assert abs(given[name] - exact) <= 24 / 256 * 1.001


# Arguments, and what is said of them

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"what": [dp.Count(), dp.People()]}, "give users=Users"),
    ({"keys": dp.SelectKeys(delta=1e-9, at_least=2)}, "leave at_least out"),
    ({"other": "z"}, "other must be one of keys"),
    (
        {"horizon": 2**16, "what": [dp.Quantiles("x", 0, 1, leaves=4096)] * 1},
        "metrics h",
    ),
]


@pytest.mark.long
@pytest.mark.parametrize(("options", "said"), WRONG, ids=[said for _, said in WRONG])
def test_wrong_arguments_are_refused(options: dict[str, Any], said: str) -> None:
    if "horizon" in options:  # that mechanism keeps all that came
        options = {**options, "mechanism": "SquareRoot", "budget": dp.ZCDP(1)}
    with pytest.raises((ValueError, TypeError), match=said):
        aggregate(**options)


def test_events_can_be_checked_before() -> None:
    transform = aggregate(dp.Users(who, 2, per_key=1))
    good = {"who": "p", "amount": 1, "latency": 0.5}
    assert transform.problem(("a", good), 5) is None
    for event, said in [
        (("a", None), "the value is None"),
        (("a", {**good, "amount": None}), "sum_amount: the value is not a number"),
        (("a", {"who": "p", "amount": 1}), "mean_latency: the event has no such field"),
        (("z", good), "not among keys"),
        (("a", {**good, "who": ["p"]}), "no person"),
        ("a", "not a (key, value) pair"),
    ]:
        assert said in str(transform.problem(event, 5)), event
    assert "outside" in str(transform.problem(("a", good), -5))


def test_bad_values_may_stop_the_pipeline_or_be_read_by_a_function() -> None:
    with pytest.raises(Exception, match="the value is None, or cannot be read"):
        count([("a", None, 5)], aggregate(on_reject="raise"))
    read = aggregate(value=lambda pair: dict([pair]))
    (release, *_) = count([("a", ("amount", 3), 5), ("a", 7, 6)], read).releases
    assert release.values["count"] == pytest.approx(1, abs=1e-6)
    assert release.values["sum_amount"] == pytest.approx(3, abs=1e-6)


@pytest.mark.long
@each_path
def test_replayable_noise_is_the_same_again(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_TESTS", "0123456789abcdefghijklmnopqrstuvwxyz")
    entropy = dp.ReplayableEntropy("SECRET_OF_TESTS", run_id="one")
    few = [dp.Count(), dp.Mean("latency", 0, 5)]
    more = [*few, dp.Mean("latency", 0, 4, name="other")]
    for keys in (KEYS, dp.SelectKeys(delta=1e-3, shards=2)):
        given: dict[str, Any] = {"keys": keys, "path": path, "entropy": entropy}
        given["budget"] = dp.ZCDP(5)
        first, second = (count(ROWS, aggregate(what=few, **given)).releases for _ in range(2))
        assert first == second
        assert first
        third = count(ROWS, aggregate(what=more, **given)).releases
        assert [r.values["count"] for r in third] != [r.values["count"] for r in first]


@each_path
@pytest.mark.parametrize("selected", [False, True], ids=["listed", "selected"])
def test_replayable_noise_follows_what_counts(
    path: str, selected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One more event, whose key is in each tick anyway, changes the noise from its tick on."""
    monkeypatch.setenv("SECRET_OF_TESTS", "0123456789abcdefghijklmnopqrstuvwxyz")
    shards, at = 2, 6
    keys = dp.SelectKeys(delta=1e-3, shards=shards) if selected else KEYS
    metrics = [dp.Count(), dp.Sum("amount", 0, 10, unit=1)]
    rows: list[Row] = [
        (key, {"amount": 3}, (i * TICK * TICKS * SECOND) // 900) for i in range(900) for key in KEYS
    ]
    entropy = dp.ReplayableEntropy("SECRET_OF_TESTS", run_id="one")
    counted = aggregate(what=metrics, budget=dp.ZCDP(5), keys=keys, path=path, entropy=entropy)
    one, other = (
        {
            (r.key, r.timestamp): np.array([*r.values.values()])
            for r in count(some, "n" >> counted).releases
        }
        for some in (rows, [*rows, ("a", {}, (end_of(at) - 5 * SECOND))])
    )
    assert len(one) > 30
    assert one.keys() == other.keys()
    for (key, end), values in one.items():
        change = other[key, end] - values
        with_it = shard_of(key, shards) == shard_of("a", shards) if selected else key == "a"
        if end < end_of(at) or not with_it:
            assert change.tolist() == [0, 0]
        else:
            assert change[0] != pytest.approx(float(key == "a"), abs=1e-9)
            assert change[1] != 0


def test_what_is_replayed_holds_what_is_there_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each key and tick few coordinates of thousands, until the tick's turn comes."""
    plans: list[Any] = []
    given: dict[str, Any] = {"keys": dp.SelectKeys(delta=1e-3), "path": "bounded"}
    metrics = [dp.Count(), dp.Quantiles("x", 0, 1, leaves=4096)]
    given |= {"what": metrics, "budget": dp.ZCDP(1)}
    monkeypatch.setattr(vectors.TickVectors, "_count_all_shards", plans.append)
    with pytest.raises(TypeError):  # nothing counts
        beam.Pipeline() | feed(ROWS[:1]) | aggregate(**given)
    counting, width = AllVectorShards(plans[0]), plans[0].joint.width
    places, ticks, coordinates = np.repeat([0, 1], 3), np.array([0, 0, 4] * 2), np.arange(6) * 7
    sums = Sums(places, ticks * width + coordinates + 1, np.arange(1, 7))
    found = list(counting._ticks_of(sums))
    assert [(place, step) for place, step, _ in found] == [(0, 1), (0, 5), (1, 1), (1, 5)]
    assert [len(kept) for *_, kept in found] == [2, 1, 2, 1]
    vector = counting._addition(found[2][2])
    assert width > 4000
    assert np.flatnonzero(vector).tolist() == [21, 28]
    assert vector.shape == (width,)


@pytest.mark.parametrize("budget", [dp.ZCDP(0.1), dp.PureDP(1.0)])
@pytest.mark.parametrize("weight", [1e300, 1e9, 1e6, 1000, 1e-6])
def test_weights_that_are_far_apart_are_refused_in_words_or_taken(
    weight: float, budget: Any
) -> None:
    def made(weight: float) -> dp.TickCount:
        metrics = [dp.Count(weight=weight), dp.Variance("x", 0, 5)]
        return counted(budget, metrics, tick=60, start=0, horizon=100, keys=["a"])

    if weight in (1000, 1e-6):
        assert made(weight).counter.l2_sensitivity > 0
    else:
        with pytest.raises(
            ValueError, match=r"give metrics (a weight|weights) nearer to each other"
        ):
            made(weight)


def test_the_budget_is_split_by_weights_and_the_noise_is_what_is_said() -> None:
    """Of 400 keys without events: each sum's noise, by the stddev given, and no two alike."""
    names = [f"k{i}" for i in range(400)]
    what = [dp.Count(weight=2), dp.Sum("x", 0, 10)]
    transform = counted(dp.ZCDP(0.5), what, tick=10, start=0, horizon=2, keys=names)
    releases = [r for r in count(ROWS[:1], transform).releases if r.step == 2]
    for name in releases[0].names:
        values = np.array([r.values[name] for r in releases], dtype=float)
        (stddev,) = {r.stddevs[name] for r in releases}
        assert stddev is not None
        assert 0.85 < values.std() / stddev < 1.17  # false alarms: 1 in 10^5
        assert len({*values}) > 200
    assert np.abs(np.corrcoef([[*r.values.values()] for r in releases], rowvar=False)[0, 1]) < 0.25  # type: ignore[arg-type]
    assert transform.counter.l2_sensitivity > 0
    first = releases[0]
    of_count, amounts, *_ = first.stddevs.values()
    assert amounts is not None
    assert of_count is not None
    # Half the noise, relative to the most that an event adds.
    assert amounts / 10 == pytest.approx(2 * of_count, rel=0.05)


# Errors beforehand


def known(numbers: Sequence[float | None]) -> list[float]:
    return [math.nan if number is None else number for number in numbers]


def close(numbers: Sequence[float | None]) -> Any:
    return pytest.approx(known(numbers), rel=1e-9, nan_ok=True)


@pytest.mark.parametrize("users", [None, dp.Users(who, 500, per_key=500)], ids=["events", "people"])
def test_what_is_expected_is_what_is_released_where_noise_is_0(users: dp.Users | None) -> None:
    transform = aggregate(users)
    releases = count(ROWS, transform).releases
    for key in KEYS:
        mine = [row for row in ROWS if row[0] == key]
        found = transform.expected([row[1] for row in mine], tick=TICKS)
        (last,) = (r for r in releases if (r.key, r.step) == (key, TICKS))
        assert [column.name for column in found.columns] == list(transform.columns)
        for name in ("value", "stddev", "low", "high"):
            said = [getattr(column, name) for column in found.columns]
            assert known(said) == close([*getattr(last, f"{name}s").values()]), (key, name)
        assert [column.note for column in found.columns] == list(last.notes.values())
        assert found.events == len(mine)


@pytest.mark.parametrize("budget", [dp.ApproxDP(1.0, 1e-6), dp.PureDP(1.0)])
def test_errors_are_known_beforehand(budget: Any) -> None:
    """As they are released, of each tick; and by default of that with the most noise."""
    some = [m.Count(), m.Sum("amount", *AMOUNT), m.Mean("latency", *LATENCY)]
    transform = aggregate(budget=budget, what=some)
    mine = [row[1] for row in ROWS if row[0] == "a"]
    expected = [transform.expected(mine, tick=step) for step in range(1, TICKS + 1)]
    stddevs = known([each["count"].stddev for each in expected])
    for release in count(ROWS, transform).releases:
        found = expected[release.step - 1].columns
        assert known([column.stddev for column in found]) == close([*release.stddevs.values()])
        # Intervals of counts and sums are as wide whatever the noise was.
        lows, highs = (known([getattr(c, end) for c in found[:2]]) for end in ("low", "high"))
        widths = np.subtract(
            *(known([*ends.values()][:2]) for ends in (release.highs, release.lows))
        )
        assert np.subtract(highs, lows).tolist() == close(widths.tolist())
    noisiest = transform.expected(mine)
    assert noisiest["count"].stddev == pytest.approx(max(stddevs), rel=1e-9)
    assert len({round(stddev, 6) for stddev in stddevs}) > 1


def test_what_is_expected_is_of_what_people_have_that_counts() -> None:
    """Of each as many events as count in a key; whatever the gap, as nobody knows the times."""
    users = dp.Users(who, 5, per_key=3, gap=100)
    transform = aggregate(users, late="drop")
    payloads = [{"who": name, "amount": 1} for name in ("u", "v", "") for _ in range(10)]
    found = transform.expected([*payloads, None])
    assert (found.events, found.counted) == (31, 6)
    assert found["count"].value == found["sum_amount"].value == 6
    assert found["people"].value == 2
    assert dict(found.problems)["beyond a person's bound"] == 14
    assert dict(found.problems)["no person"] == 10
    assert "of a key with 31 such events, of which 6 count, at the noisiest tick" in str(found)
    assert "1 event: the value is None, or cannot be read" in str(found)
    assert "30 events: mean_latency: the event has no such field" in str(found)


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ({"latency": 1}, r"events must be many, got one dict: give a list of events' values"),
        ("abc", "events must be many, got one str"),
        (SimpleNamespace(to_dict=dict), r'give its rows: events.to_dict\("records"\)'),
    ],
)
def test_what_is_expected_is_of_many_events(events: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        aggregate().expected(events)


@pytest.mark.long
def test_what_is_expected_shows_itself_when_it_is_printed_alone() -> None:
    transform = aggregate(budget=dp.ZCDP(0.5), what=[m.Count(), m.Mean("latency", *LATENCY)])
    found = transform.expected([{"latency": 0.5}] * 77_431)
    assert "77,431 such events, at the noisiest tick; intervals of 95 %" in str(found)
    assert re.search(r"^count +77431 +[\d.]+ +[\d.]+ to [\d.]+$", str(found), re.M)
    for shown in (repr(found), repr(found["count"]), str(found["count"])):
        assert "77" not in shown
    few = transform.expected([{"latency": 0.5}, None, {}], tick=2)
    assert re.search(r"^mean_latency +- +- +too small$", str(few), re.M)
    assert few["count"].value == 2
    with pytest.raises(KeyError):
        found["mean"]
    for tick in (0, TICKS + 1):
        with pytest.raises(ValueError, match="t must be from 1"):
            transform.expected([], tick=tick)


def test_it_is_described() -> None:
    said = aggregate(dp.Users(who, 2, per_key=1)).display_data()
    assert "Quantiles(" in said["metrics"]
    assert "branching=None" not in said["metrics"]
    assert "9 metrics together" in said["neighbouring_relation"]
    assert "one person" in said["neighbouring_relation"] or "person" in said["users"]


def test_errors_are_described_in_the_units_of_the_columns() -> None:
    some = [m.Count(), m.Sum("amount", *AMOUNT), m.Mean("latency", *LATENCY)]
    made = aggregate(budget=dp.ZCDP(0.5), what=some)
    found, said = made.expected(()), made.display_data()
    count, total = (f"{found[name].stddev:g}" for name in ("count", "sum_amount"))
    lattice = " (those of the counter are on the lattice that all metrics share)"
    assert said["largest_stddev_of_columns"] == f"count {count}, sum_amount {total}{lattice}"
    assert float(count) < 10 < float(total) < float(said["largest_stddev"])
    alone = aggregate(budget=dp.ZCDP(0.5), what=[m.Mean("latency", *LATENCY)])
    known = alone.display_data()["largest_stddev_of_columns"]
    assert known == f"known of counts and sums alone{lattice}"


def test_rows_have_a_schema() -> None:
    def plain(release: dp.TickRelease) -> str:
        return f"{type(release).__name__} {release.key} {release.step} {release.notes['count']!r}"

    seen = run(
        lambda p: p | feed(ROWS) | aggregate() | beam.Reshuffle() | beam.Map(plain), "grpc"
    ).releases
    assert seen[0] == "TickRelease a 1 ''"
    assert len(seen) == len(KEYS) * TICKS

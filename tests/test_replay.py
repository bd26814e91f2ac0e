"""Replayable noise: one history gives one release, and nothing else is shared."""

from __future__ import annotations

import hashlib
import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from enum import Enum
from fractions import Fraction
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.transforms.window import FixedWindows, GlobalWindow, IntervalWindow

import beam_dpcount as dp
from beam_dpcount.commands import count, histogram, ticks
from beam_dpcount.counters.sparse import sparse_for
from beam_dpcount.dofns.intake import Intake
from beam_dpcount.errors import SecretError
from beam_dpcount.noise import replay
from beam_dpcount.noise.entropy import SystemEntropy
from beam_dpcount.noise.laws import DiscreteGaussian, DiscreteLaplace, RoundedGaussian
from beam_dpcount.noise.replay import NO_ID, Expansion, Replay, ReplayableEntropy
from beam_dpcount.plans.counting import DRAWS_EARLY
from beam_dpcount.states.codecs import StateCodec
from beam_dpcount.states.envelope import OTHER_ENTROPY
from beam_dpcount.transforms.ticks import TickNumbers
from tests.messages import says
from tests.runners import RUNNERS, Row, feed, run

SECRET = "0123456789abcdef" * 4
VARIABLE = "COUNTING_SECRET"
LAWS = [
    DiscreteLaplace(Fraction(3, 10)),
    DiscreteLaplace(Fraction(40)),
    DiscreteLaplace(Fraction(10**5)),
    DiscreteLaplace(Fraction(10**7)),
    DiscreteGaussian(Fraction(50)),
    DiscreteGaussian(Fraction(10**9)),
    RoundedGaussian(Fraction(20)),
    RoundedGaussian(Fraction(10**4)),
    RoundedGaussian(Fraction(2**50)),
]
each_path = pytest.mark.parametrize("path", ["bounded", "streaming"])


@pytest.fixture(autouse=True)
def _secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, SECRET)


def entropy(run_id: str = "") -> ReplayableEntropy:
    return ReplayableEntropy(VARIABLE, run_id=run_id)


ROWS: list[Row] = [("k", value, 1_000_000 * i) for i, value in enumerate([0, 1, 1, 0, 1, 0, 0, 1])]


class Department(str, Enum):
    """Keys that print alike."""

    A = "alpha"
    B = "beta"

    def __repr__(self) -> str:
        return "Department"


# How values with a public id, as `identified` makes them, are read.
IDS: dict[str, Any] = {"value": itemgetter(0), "element_id": itemgetter(1)}


def identified(rows: list[Row]) -> list[Row]:
    return [(key, (value, i), micros) for i, (key, value, micros) in enumerate(rows)]


def counts(rows: list[Row], path: str = "bounded", runner: str = "fn", **options: Any) -> Any:
    given: dict[str, Any] = {"mechanism": "SmoothBinary", "entropy": entropy(), **IDS, **options}
    count = dp.PrefixCount(
        given.pop("budget", dp.ZCDP(0.5)), given.pop("horizon", 20), path=path, **given
    )
    outcome = run(lambda p: p | feed(identified(rows)) | count, runner)
    return [release.value for release in outcome.releases]


# What noise is a function of, one by one


def first_draws(**options: Any) -> list[Any]:
    """The noise of a stream's first element."""
    given: dict[str, Any] = {"run_id": "", "name": "", "dimension": None, "law": LAWS[1]} | options
    given = {"parameters": "", "key": "k", "window": GlobalWindow(), "id": 1, "value": b""} | given
    entropy = ReplayableEntropy(VARIABLE, run_id=given["run_id"]).named(given["name"])
    made = entropy.replay(given["law"], given["dimension"], given["parameters"])
    digest = made.begin(given["key"], given["window"])
    noise = made.noise(made.follow(digest, given["id"], given["value"]))
    return np.asarray(noise.draw(1, 8)).reshape(8, -1)[:, 0].tolist()


def test_noise_is_another_for_whatever_is_another() -> None:
    others: list[dict[str, Any]] = [
        {},
        {"run_id": "b"},
        {"name": "b"},
        {"parameters": "b"},
        {"law": DiscreteLaplace(Fraction(41))},
        {"dimension": 1},
        {"dimension": 2},
        {"key": "b"},
        {"window": IntervalWindow(0, 60)},
        {"window": IntervalWindow(30, 60)},  # of another start alone
        {"window": IntervalWindow(0, 30)},
        {"value": b"b"},
        # Written one after the other these would be the same.
        *({"id": 12}, {"value": b"1", "id": 2}, {"value": b"12", "id": NO_ID}),
        *({"id": (1, 23)}, {"id": (12, 3)}, {"id": (123,)}, {"id": ((1,), 23)}, {"id": 123}),
        *({"id": "1"}, {"id": b"1"}, {"id": True}, {"id": 1.0}),
    ]
    found = [first_draws(**options) for options in others]
    assert found[0] == first_draws()
    assert len({*map(tuple, found)}) == len(found)


# One draw from a seed is what a source that begins with it gives


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS, ids=str)
def test_the_quick_draw_is_the_sampled_one(law: Any) -> None:
    first, undecided = law.first(), 0
    for i in range(4000):
        seed = hashlib.blake2b(i.to_bytes(4, "little")).digest()
        quick = first(seed)
        if quick is None:
            undecided += 1
        else:
            assert quick == law.sample(1, Expansion(seed))[0]
    # A draw of three digits is undecided more often; beyond 2^18 it is always sampled.
    most = 60 if law.scale < 600 or "Gaussian" in str(law) else 400
    assert undecided < most or law.scale > 2**18


def test_an_expansion_gives_the_same_bytes_however_they_are_asked_for() -> None:
    seed = bytes(range(64))
    small = Expansion(seed)
    taken = b"".join(small(n) for n in (2, 4, 2, 8, 48, 1, 100))
    assert taken[:64] == seed
    assert len({taken[64 + i : 80 + i] for i in range(0, 80, 16)}) == 5
    again = Expansion(seed)
    assert b"".join(again(n) for n in (2, 4, 2, 8, 48, 1, 100)) == taken


@pytest.mark.parametrize("sizes", [[8] * 1000, [2, 4, 8] * 400, [5000, 8, 300, 300]], ids=len)
def test_an_expansion_is_of_numbered_blocks(sizes: list[int]) -> None:
    """Restated: the seed, then SHAKE256 of the seed and 0, 1, ..; none of them comes again."""
    seed, given = bytes(range(64)), Expansion(bytes(range(64)))
    taken, whole, blocks, used = [], seed, 0, 0
    for size in sizes:
        taken.append(given(size))
        if used + size > len(whole):
            made = hashlib.shake_256(seed + blocks.to_bytes(8, "little"))
            whole, blocks = whole + made.digest(max(size, 256)), blocks + 1
        used += size
    assert b"".join(taken) == whole[:used]
    pieces = [whole[i : i + 16] for i in range(0, used - 16, 16)]
    assert len(set(pieces)) == len(pieces) > 300


def test_a_vector_that_takes_many_blocks_has_no_coordinate_twice() -> None:
    law = RoundedGaussian(Fraction(2**66))
    made = entropy().replay(law, 3000, "test")
    drawn = made.noise(made.begin("k", GlobalWindow())).one(1)
    assert len(set(drawn.tolist())) == 3000  # two are equal with a chance of 2e-4


@pytest.mark.parametrize("dimension", [None, 5])
@pytest.mark.parametrize("law", [LAWS[1], LAWS[4], LAWS[7]], ids=str)
def test_laws_that_one_history_mixes_have_noise_of_their_own(
    law: Any, dimension: int | None
) -> None:
    """Of laws so alike that one seed gives both the same draws. Of equal laws they are equal."""
    field = "parameter" if isinstance(law, DiscreteLaplace) else "sigma2"
    alike = type(law)(getattr(law, field) * Fraction(10**9 + 1, 10**9))
    noise = entropy().replay(law, dimension, "test").noise(bytes(16))
    mine, twin = noise.draw(1, 200), noise.for_law(type(law)(getattr(law, field))).draw(1, 200)
    assert (mine == twin).all()
    for other in (noise.for_law(alike), noise.for_law(LAWS[0]).for_law(alike)):
        assert np.mean(mine == other.draw(1, 200)) < 0.2
    again = noise.for_law(alike).for_law(law).draw(1, 200)
    assert (mine == again).all()


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS[1::2], ids=str)
def test_draws_of_different_histories_follow_the_law(law: Any) -> None:
    """Mean and variance within 5 standard errors: a false alarm has a chance of 1e-6 for each."""
    made = entropy().replay(law, None, "test")
    digest, drawn = made.begin("k", GlobalWindow()), []
    for i in range(20_000):
        digest = made.follow(digest, NO_ID, b"x")
        drawn.append(made.noise(digest).one(i + 1))
    values = np.array(drawn, dtype=np.float64) / law.scale
    variance = law.variance / law.scale**2
    assert abs(values.mean()) < 5 * np.sqrt(variance / len(values))
    # The kurtosis is at most 6 (Laplace).
    assert abs(values.var() - variance) < 5 * variance * np.sqrt(5 / len(values))
    assert abs(values.var() - variance / 1.5) > 5 * variance * np.sqrt(5 / len(values))


# Identical histories give identical releases


MECHANISMS = [
    kind
    for kind in dp.mechanisms.ALL
    if "gaussian" in kind(20).laws and kind is not dp.mechanisms.KAry
]


@pytest.mark.long
@pytest.mark.parametrize(
    "mechanism",
    [
        # One that draws in order, one that does not, one that keeps floats, one without a horizon.
        *(
            kind
            if kind.__name__ in ("BinaryTree", "TwoLevel", "NormalizedBLT")
            else pytest.param(kind, marks=pytest.mark.exhaustive)
            for kind in MECHANISMS
        ),
        dp.mechanisms.Unbounded(dp.mechanisms.BLT),
    ],
    ids=lambda m: getattr(m, "__name__", str(m)),
)
def test_one_history_gives_one_stream_of_releases_on_both_paths(mechanism: Any) -> None:
    options: dict[str, Any] = {"mechanism": mechanism, "budget": dp.ZCDP(0.01)}
    if isinstance(mechanism, dp.mechanisms.Unbounded):
        options["horizon"] = None
    bounded = counts(ROWS, **options)
    assert bounded == counts(ROWS, **options)
    assert bounded == counts(ROWS, "streaming", **options)
    assert len(set(bounded)) > 3
    # More steps than are taken one by one: all at once on the bounded path.
    many: list[Row] = [("k", i % 3 % 2, 1_000_000 * i) for i in range(130)]
    if options.get("horizon", 0) is not None:
        options["horizon"] = 130
    assert counts(many, **options) == counts(many, "streaming", **options)


@pytest.mark.long
@pytest.mark.parametrize("runner", RUNNERS)
def test_runners_and_processes_agree(runner: str) -> None:
    code = (
        "import tests.test_replay as t; "
        "print(repr(t.counts(t.ROWS, 'streaming', mechanism='NormalizedBLT')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": "77"},
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=True,
    )
    mine = counts(ROWS, "streaming", runner, mechanism="NormalizedBLT")
    assert repr(mine) == done.stdout.strip().splitlines()[-1]


@pytest.mark.long
@each_path
def test_vectors_sequences_and_graphs_replay(path: str) -> None:
    makers = [
        lambda e: dp.Histogram(dp.ZCDP(1), 9, ["a", "b"], path=path, entropy=e, **IDS),
        lambda e: dp.SubstringCount(dp.ZCDP(1), 9, [*"ab"], 2, path=path, entropy=e, **IDS),
        lambda e: dp.DegreeHistogram(
            dp.ZCDP(1),
            9,
            5,
            max_degree=2,
            path=path,
            entropy=e,
            value=lambda pair: (0, ord(pair[0]) - 96),
            element_id=itemgetter(1),
        ),
    ]
    rows: list[Row] = [("k", letter, 1_000_000 * i) for i, letter in enumerate("abba")]
    for make in makers:
        seen = [
            run(lambda p, e=e, make=make: p | feed(identified(rows)) | make(e)).releases
            for e in (entropy(), entropy(), entropy("other"))
        ]
        assert seen[0] == seen[1]
        assert all(a.value != b.value for a, b in zip(seen[0], seen[2], strict=True))


@each_path
def test_ticks_replay_from_their_sums(path: str) -> None:
    def ticked(rows: list[Row], **options: Any) -> Any:
        count = TickNumbers(
            dp.ZCDP(0.5),
            2,
            0,
            horizon=4,
            keys=["k", "l"],
            path=path,
            entropy=options.pop("entropy", entropy()),
            **options,
        )
        return run(lambda p: p | feed(rows) | count).releases

    first = ticked(ROWS)
    assert first == ticked(ROWS[::-1])  # the order of arrival within a tick is no part of it
    assert first != ticked(ROWS, entropy=entropy("again"))
    fewer = ticked(ROWS[:-1])
    same = [a.value == b.value for a, b in zip(first, fewer, strict=True)]
    assert same == [True, True, True, False, True, True, True, True]  # of k its last tick
    assert all(a != b for a, b in zip(first[:4], first[4:], strict=True))


@each_path
@pytest.mark.parametrize("at", range(len(ROWS)))
def test_ticks_share_noise_before_the_divergence_only(path: str, at: int) -> None:
    """The noise itself: of Simple1, one coordinate a tick. An event adds 1 to its tick."""

    def noise(rows: list[Row]) -> np.ndarray:
        count = TickNumbers(
            dp.ZCDP(Fraction(1, 10**9)),
            2,
            0,
            horizon=4,
            keys=["k", "l", "m"],
            mechanism="Simple1",
            path=path,
            entropy=entropy(),
        )
        releases = run(lambda p: p | feed(rows) | count).releases
        sums = np.zeros((3, 4))
        for key, value, micros in rows:
            sums["klm".index(key), micros // 2_000_000] += value
        return np.array([r.value for r in releases]).reshape(3, 4) - np.cumsum(sums, axis=1)

    key, value, micros = ROWS[at]
    tick = micros // 2_000_000
    mine, other = noise(ROWS), noise([*ROWS[:at], (key, 1 - value, micros), *ROWS[at + 1 :]])
    assert (mine[0, :tick] == other[0, :tick]).all()
    assert (mine[0, tick:] != other[0, tick:]).all()  # equal with a chance of 1e-4 or so
    assert (mine[1:] == other[1:]).all()
    assert len(set(mine.ravel().tolist())) == 12  # of keys without events, too


def test_the_paths_of_ticks_have_noise_of_their_own() -> None:
    """An event that is late on the one is not on the other: their agreeing would show it."""
    seen = []
    for path in ("bounded", "streaming"):
        count = TickNumbers(
            dp.ZCDP(1e-7), 2, 0, horizon=4, keys=["k"], path=path, entropy=entropy()
        )
        seen += [r.value for r in run(lambda p, count=count: p | feed(ROWS) | count).releases]
    assert len(set(seen)) == 8


# Divergence: the noise is shared up to the last equal step, and not beyond


@pytest.mark.exhaustive("mechanism")
@pytest.mark.parametrize("mechanism", ["SmoothBinary", "BLT", "Honaker"])
@pytest.mark.parametrize("at", range(len(ROWS)))
def test_runs_share_what_is_before_the_divergence_only(mechanism: str, at: int) -> None:
    """Noise of Simple1 is of one coordinate a step: shown by exact subtraction."""
    changed = [*ROWS]
    changed[at] = ("k", 1 - ROWS[at][1], ROWS[at][2])
    mine, other = counts(ROWS, mechanism=mechanism), counts(changed, mechanism=mechanism)
    assert mine[:at] == other[:at]
    budget = {"budget": dp.ZCDP(Fraction(1, 10**6)), "mechanism": "Simple1"}
    truth, theirs = (np.cumsum([row[1] for row in rows]) for rows in (ROWS, changed))
    noise, others = (
        np.array(counts(ROWS, **budget)) - truth,
        np.array(counts(changed, **budget)) - theirs,
    )
    assert (noise[:at] == others[:at]).all()
    assert (noise[at:] != others[at:]).all()  # equal with a chance of 1e-5 or so


def drawn(**options: Any) -> np.ndarray:
    """The noise itself: of Simple1, whose scale is some 10^4."""
    given = {"budget": dp.ZCDP(Fraction(1, 10**6)), "mechanism": "Simple1", **options}
    rows = given.pop("rows", ROWS)
    return np.array(counts(rows, **given)) - np.cumsum([row[1] for row in rows])


@pytest.mark.long
def test_whatever_is_public_separates_the_noise() -> None:
    """Every parameter, and every public fact, is in the hash."""
    seen = {
        "base": drawn(),
        "run id": drawn(entropy=entropy("2")),
        "budget": drawn(budget=dp.ZCDP(Fraction(2, 10**6))),
        "horizon": drawn(horizon=21),
        "mechanism": drawn(mechanism="Simple2"),
        "bounds": drawn(bounds=(0, 2)),
        "relation": drawn(relation="add_remove"),
        "key": drawn(rows=[("l", *row[1:]) for row in ROWS]),
        "ids": drawn(element_id=lambda pair: pair[1] + 1),
        "text ids": drawn(element_id=lambda pair: str(pair[1])),
    }
    names = list(seen)
    for i, name in enumerate(names):
        for other in names[i + 1 :]:
            share = np.mean(seen[name] == seen[other])
            assert share == 0, (name, other)
    assert (drawn() == seen["base"]).all()


@each_path
def test_counts_of_one_pipeline_have_noise_of_their_own(path: str) -> None:
    """Or equal releases would show up to where two protected columns agree."""

    def build(pipeline: beam.Pipeline) -> Any:
        rows = pipeline | feed(identified(ROWS))
        options: dict[str, Any] = {"mechanism": "Simple1", "path": path, "entropy": entropy()}
        options |= IDS
        seen = [
            rows | label >> dp.PrefixCount(dp.ZCDP(Fraction(1, 10**6)), 20, **options)
            for label in ("bought", "sick")
        ]
        return seen | beam.Flatten()

    values = [release.value for release in run(build).releases]
    assert len(values) == 16
    assert len(set(values)) == 16  # with a chance of 1e-2 or less of the contrary


def test_windows_separate_the_noise() -> None:
    count = dp.PrefixCount(dp.ZCDP(0.5), 4, mechanism="Simple1", entropy=entropy(), **IDS)
    rows = identified([("k", 0, 1_000_000 * i) for i in range(8)])
    values = [
        r.value
        for r in run(lambda p: p | feed(rows) | beam.WindowInto(FixedWindows(4)) | count).releases
    ]
    assert len(set(values)) > 4
    made = entropy().replay(LAWS[0], None, "p")
    windows = [GlobalWindow(), IntervalWindow(0, 4), IntervalWindow(4, 8), IntervalWindow(0, 8)]
    assert len({made.begin("k", window) for window in windows}) == 4
    assert made.begin("a", windows[1]) != made.begin("b", windows[1])


# Mutants: what a wrong digest would show


def test_a_digest_without_the_current_input_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """It gives two values of one element the same noise: releases differ by exact data."""

    def late(self: Replay, digest: bytes, identity: Any, value: bytes) -> bytes:
        return hashlib.blake2b(digest, digest_size=16, key=self._histories).digest()

    changed = [*ROWS[:-1], ("k", 0, ROWS[-1][2])]
    before = np.array(counts(ROWS)) - np.array(counts(changed))
    monkeypatch.setattr(Replay, "follow", late)
    shown = np.array(counts(ROWS)) - np.array(counts(changed))
    assert shown[-1] == 1  # the exact difference
    assert before[-1] != 1 or before[-2] == 0


def test_parameters_left_out_of_the_hash_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """With them every horizon has noise of its own; without, two runs show an exact difference."""
    assert (drawn() != drawn(bounds=(0, 2))).all()
    monkeypatch.setattr(Intake, "parameters", "")
    monkeypatch.setattr(replay, "repr", lambda given: "", raising=False)
    assert (drawn(relation="add_remove") == drawn()).all()


# Replays in another order, and what is public of it


@each_path
def test_replays_in_another_order_show_nothing_of_values(path: str) -> None:
    """Without ids, releases would be equal if, and only if, the values that changed places are."""

    def of(a: int, b: int, order: str) -> Any:
        values = {"A": (a, "A"), "B": (b, "B"), "C": (1, "C")}
        rows: list[Row] = [("k", values[name], 1_000_000 * i) for i, name in enumerate(order)]
        count = dp.PrefixCount(
            dp.ZCDP(1e-7), 9, mechanism="Simple1", path=path, entropy=entropy(), **IDS
        )
        return [release.value for release in run(lambda p: p | feed(rows) | count).releases]

    for a in (0, 1):
        first, other = of(a, 0, "ABC"), of(a, 0, "BAC")
        assert all(x != y for x, y in zip(first, other, strict=True))
        assert first == of(a, 0, "ABC")


def test_ids_must_be_functions_and_sort() -> None:
    rows: list[Row] = [("k", (0, identity), 0) for identity in ("a", 1)]
    count = dp.PrefixCount(dp.ZCDP(1), 9, entropy=entropy(), **IDS)
    with pytest.raises(Exception, match="ids that sort, all of one type"):
        run(lambda p: p | feed(rows, tuple[str, Any]) | count)


def test_ids_must_be_given() -> None:
    for make in (
        lambda **given: dp.PrefixCount(dp.ZCDP(1), 9, **given),
        lambda **given: dp.Histogram(dp.ZCDP(1), 9, ["a"], **given),
        lambda **given: dp.EpisodeCount(dp.ZCDP(1), 9, ["a"], 2, **given),
        lambda **given: dp.EdgeCount(dp.ZCDP(1), 9, 3, **given),
    ):
        with pytest.raises(ValueError, match="needs element_id"):
            make(entropy=entropy())


@each_path
def test_ids_that_are_missing_or_not_unique_are_refused(path: str) -> None:
    """What is missing on the streaming path; there others are the caller's word."""

    def of(*ids: Any) -> Any:
        rows: list[Row] = [("k", (0, identity), 1_000_000 * i) for i, identity in enumerate(ids)]
        count = dp.PrefixCount(dp.ZCDP(1), 9, path=path, entropy=entropy(), **IDS)
        return run(lambda p: p | feed(rows, tuple[str, Any]) | count).releases

    assert len(of("a", "b")) == 2
    with pytest.raises(Exception, match=r"element_id gave NoneType.*give every element one"):
        of("a", None)
    if path == "bounded":
        with pytest.raises(Exception, match=r"gave 'a' for 2 elements of a key.*unique"):
            of("a", "b", "a")


def test_ids_are_told_apart_by_what_they_are() -> None:
    class Row(NamedTuple):
        file: str
        row: int

    class Masked(str):
        __slots__ = ()

        def __repr__(self) -> str:
            return "***"

    made = entropy().replay(LAWS[0], None, "p")
    start = made.begin("k", GlobalWindow())
    different = [
        *(
            NO_ID,
            1,
            1.5,
            "1",
            b"1",
            "a",
            "b",
            ("a", 1),
            ("a", "1"),
            ("a,1",),
            ("a",),
            (),
            ("a", ()),
        ),
        *((("a",), ()), "\ud800", -0.0),
    ]
    assert len({made.follow(start, identity, b"x") for identity in different}) == len(different)
    assert made.begin(Masked("k"), GlobalWindow()) == start
    for equal, other in (
        (Row("a", 1), ("a", 1)),
        (np.int64(1), 1),
        (np.str_("a"), "a"),
        (np.float64(1.5), 1.5),
        (Masked("a"), "a"),
    ):
        assert made.follow(start, equal, b"x") == made.follow(start, other, b"x")
    for bad in (None, object(), [1], {"a": 1}, Fraction(1), np.datetime64(1, "ns")):
        with pytest.raises(TypeError, match="convert it"):
            made.follow(start, bad, b"x")


@each_path
def test_keys_that_print_as_others_have_noise_of_their_own(path: str) -> None:
    rows = identified([(key, 0, 0) for key in Department])
    masked, plain = (
        run(
            lambda p, kind=kind: (
                p
                | feed([(kind(key), *row) for key, *row in rows], Any)
                | dp.PrefixCount(
                    dp.ZCDP(1e-7), 9, mechanism="Simple1", path=path, entropy=entropy(), **IDS
                )
                | beam.Map(lambda release: (str.__str__(release.key), release.value))
            )
        ).releases
        for kind in (Department, str.__str__)
    )
    assert masked == plain
    assert masked[0][1] != masked[1][1]


@each_path
def test_all_that_says_where_ticks_count_separates_their_noise(path: str) -> None:
    """Else two clocks would give equal releases if, and only if, no event falls between them."""

    def of(start: int = 0, late: str = "fold", **options: Any) -> Any:
        count = TickNumbers(
            dp.ZCDP(1e-7),
            2,
            start,
            start + 8,
            keys=["k"],
            mechanism="Simple1",
            late=late,
            path=path,
            entropy=entropy(),
            **options,
        )
        rows: list[Row] = [("k", 0, 5_000_000)]
        build = lambda p: p | feed(rows) | beam.WindowInto(FixedWindows(4)) | count  # noqa: E731
        return [release.value for release in run(build).releases][:4]

    seen = [of(), of(start=2), of(late="drop"), of(max_per_tick=7)]
    for i, one in enumerate(seen):
        for other in seen[i + 1 :]:
            assert not set(one) & set(other)
    assert of() == seen[0]


# What is counted of three short streams, for the pins below.
NUMBERS, LETTERS = [1, 0, 1, 1, 0, 1], "abbaba"
EDGES = [(0, 1), (1, 2), (0, 2), (2, 3), (0, 2), (1, 3)]
COUNTED: dict[str, tuple[Any, Sequence[Any]]] = {
    **{
        kind.__name__: (partial(dp.PrefixCount, horizon=9, mechanism=kind), NUMBERS)
        # Those of whole entries: the rounding of others may differ between machines.
        for kind in MECHANISMS
        if kind.__name__ in ("Simple1", "Simple2", "TwoLevel", "BinaryTree", "SmoothBinary")
    },
    **{
        f"TickCount, {late}{', streaming' * (path == 'streaming')}": (
            partial(  # type: ignore[call-arg]
                TickNumbers,
                tick=2,
                start=0,
                horizon=3,
                keys=["k", "l"],
                max_per_tick=1,
                late=late,
                path=path,
                element_id=None,
            ),
            NUMBERS,
        )
        for late in ("fold", "drop")
        for path in ("auto", "streaming")
    },
    "Histogram": (partial(dp.Histogram, horizon=9, domain=["a", "b"]), LETTERS),
    "SubstringCount": (
        partial(dp.SubstringCount, horizon=9, domain=["a", "b"], max_length=2),
        LETTERS,
    ),
    "EpisodeCount": (
        partial(dp.EpisodeCount, horizon=9, domain=["a", "b"], max_length=2),
        LETTERS,
    ),
    **{
        kind.__name__: (partial(kind, horizon=9, vertices=4, **options), EDGES)
        for kind, options in (
            (dp.EdgeCount, {"max_degree": 2}),
            (dp.TriangleCount, {"max_degree": 3}),
            (dp.KStarCount, {"k": 2, "max_degree": 3}),
            (dp.HighDegreeCount, {"threshold": 2}),
            (dp.DegreeHistogram, {"max_degree": 3}),
            (dp.SpanningForestCost, {"max_weight": 2}),
            (dp.CutGraph, {"relation": "add_remove"}),
        )
    },
}
# Of their releases. A change of what is counted under the same noise would show the exact
# difference to one who has both: then raise replay.NOISE_FORMAT, and pin anew.
PINNED = {
    "Simple1": "6e3ab18a90a7c1b7",
    "Simple2": "30f10787ec181b8c",
    "TwoLevel": "77174781db1a2abb",
    "BinaryTree": "f9a08fa556bb88b8",
    "SmoothBinary": "0165ff5f24cd739c",
    "TickCount, fold": "af4972b2ad50e194",
    "TickCount, fold, streaming": "ef9624222e9c4da8",
    "TickCount, drop": "1f64179c89ca1928",
    "TickCount, drop, streaming": "8c8bd9a92be17e00",
    "Histogram": "e51bb9156af8611e",
    "SubstringCount": "879b6673809d9ece",
    "EpisodeCount": "4a2c695185bf3dc1",
    "EdgeCount": "6a5d468b1fb1e7b2",
    "TriangleCount": "dab643d9f6fa9fea",
    "KStarCount": "563ea22c6fb8bf42",
    "HighDegreeCount": "cc2b46dd38de7bb1",
    "DegreeHistogram": "eecd9b70befd989a",
    "SpanningForestCost": "60bb74249848a103",
    "CutGraph": "4f81712796c9cac3",
}


# What their kinds share is tested of these; what is theirs, of all.
_SOME = ("BinaryTree", "TickCount, fold, streaming", "SubstringCount", "CutGraph")


@pytest.mark.parametrize(
    "name",
    [
        name if name in _SOME else pytest.param(name, marks=pytest.mark.exhaustive)
        for name in COUNTED
    ],
)
def test_a_history_is_counted_as_ever(name: str) -> None:
    make, values = COUNTED[name]
    rows = identified([("k", value, 1_000_000 * i) for i, value in enumerate(values)])
    given: dict[str, Any] = {"mechanism": "BinaryTree", **IDS, **make.keywords}
    if given["element_id"] is None:
        del given["element_id"]
    seen = hashlib.sha256()
    for budget in (dp.ZCDP(1e12), dp.ZCDP(0.5)):  # no noise to speak of, and that of a replay
        count = make.func(budget, entropy=entropy("pinned"), **given)
        releases = run(lambda p, count=count: p | feed(rows) | count).releases
        seen.update(repr([np.round(release.value, 4).tolist() for release in releases]).encode())
    assert seen.hexdigest()[:16] == PINNED[name]


# The secret


def test_secrets_are_read_on_the_worker_and_shown_nowhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = entropy("monthly")
    file = tmp_path / "key"
    file.write_text(SECRET + "\n")
    from_file = ReplayableEntropy(key_file=str(file), run_id="")
    assert counts(ROWS, entropy=from_file) == counts(ROWS)
    count = dp.PrefixCount(dp.ZCDP(0.5), 20, entropy=made, **IDS)
    shown = (
        repr(made),
        str(count.display_data()),
        str(count.annotations()),
        repr(count),
        str(pickle.dumps(made)),
        str(pickle.dumps(count)),
        str(vars(made)),
        repr(made.replay(LAWS[0], None, "x")),
        repr(vars(Expansion)),
    )
    for text in shown:
        assert SECRET not in text
    assert "run_id='monthly'" in count.display_data()["entropy"]
    with pytest.raises(TypeError, match="never pickled"):
        pickle.dumps(made.replay(LAWS[0], None, "x"))
    monkeypatch.setenv(VARIABLE, SECRET[::-1])
    assert counts(ROWS) != counts(ROWS, entropy=from_file)


@pytest.mark.parametrize(
    ("secret", "message"),
    [
        (None, "not set here"),
        ("tiny", "shorter than 32"),
        ("", "not set here"),
        ("tiny" * 9, "easily guessed"),
    ],
)
def test_missing_and_short_secrets_stop_the_run(
    secret: str | None, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE) if secret is None else monkeypatch.setenv(VARIABLE, secret)
    with pytest.raises(Exception, match=f"{VARIABLE} is {message}.*token_hex") as caught:
        counts(ROWS)
    assert "tiny" not in str(caught.value)
    with pytest.raises(SecretError):
        entropy().replay(LAWS[0], None, "x")
    with pytest.raises(SecretError, match="cannot be read here"):
        ReplayableEntropy(key_file="/nowhere/key", run_id="").replay(LAWS[0], None, "x")


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((), {}, "environment variable"),
        (("A",), {"key_file": "b"}, "environment variable"),
        ((SECRET,), {}, "name of an environment variable, not a secret"),
        (("abcdef" * 8,), {}, "name of an environment variable, not a secret"),
        ((), {"key_file": SECRET + "\n"}, "path of a file, not a secret"),
        ((), {"key_file": "Zm9v_" * 8 + "=="}, "path of a file, not a secret"),
        ((), {"key_file": SECRET}, "path of a file, not a secret"),
    ],
)
def test_constructor_refusals(arguments: Any, options: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message) as caught:
        ReplayableEntropy(*arguments, **{"run_id": "", **options})
    assert SECRET not in str(caught.value)


@each_path
def test_noise_that_is_drawn_early_is_refused(path: str) -> None:
    for mechanism in (dp.mechanisms.KAry(20), dp.mechanisms.Unbounded(dp.mechanisms.KAry)):
        horizon = 20 if isinstance(mechanism, dp.mechanisms.KAry) else None
        with pytest.raises(ValueError, match=says(DRAWS_EARLY)):
            counts(ROWS, path, budget=dp.PureDP(1), mechanism=mechanism, horizon=horizon)
    sparse = sparse_for(3, 20, dp.PureDP(1))
    with pytest.raises(ValueError, match="SystemEntropy"):
        counts(ROWS, path, budget=dp.PureDP(1), mechanism=sparse, horizon=None)
    # By name, or left out, the variant without subtraction is taken.
    assert counts(ROWS, path, budget=dp.PureDP(1), mechanism="KAry") == counts(
        ROWS, path, budget=dp.PureDP(1), mechanism=dp.mechanisms.KAry(20, subtraction=False)
    )


def test_a_secret_that_is_no_text_is_used_as_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An error of decoding would show all of it."""
    raw = bytes(range(128, 192))
    monkeypatch.setitem(os.environ, VARIABLE, os.fsdecode(raw))
    file = tmp_path / "key"
    file.write_bytes(raw)
    assert counts(ROWS, entropy=ReplayableEntropy(key_file=str(file), run_id="")) == counts(ROWS)


def test_replayable_noise_needs_its_history() -> None:
    with pytest.raises(TypeError, match="replay"):
        entropy().source(LAWS[0], None)
    with pytest.raises(TypeError, match="not replayable"):
        SystemEntropy().replay(LAWS[0], None, "x")


def test_states_of_another_entropy_are_refused() -> None:
    counter = dp.calibrate(dp.mechanisms.BinaryTree(9), dp.ZCDP(1))
    plain, digested = StateCodec(counter), StateCodec(counter, 16)
    with pytest.raises(ValueError, match=says(OTHER_ENTROPY)):
        digested.decode(plain.encode(counter.init()))


# From the command line


@pytest.mark.exhaustive
def test_commands_give_the_same_numbers_for_the_same_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log, out = tmp_path / "log.csv", tmp_path / "out.csv"

    def run_once(*more: str, changed: bool = False) -> list[str]:
        rows = "".join(f"k,{'ab'[i % 2]},{i}\n" for i in range(30))
        log.write_text("key,item,time\n" + (rows[:-5] + "a,29\n" if changed else rows))
        count.main(
            [
                *("--input", str(log), "--key", "key", "--where", "item=a", "--timestamp", "time"),
                *("--epsilon", "1e-4", "--delta", "1e-6", "--horizon", "40", "--output", str(out)),
                *("--overwrite", "--verbose", *more),
            ]
        )
        return sorted(out.read_text().splitlines())

    secret = ("--secret-env", VARIABLE)
    first = run_once(*secret)
    assert first == run_once(*secret) == run_once(*secret, "--path", "streaming")
    assert first != run_once(*secret, "--run-id", "2")
    assert first != run_once()
    assert len(set(first) & set(run_once(*secret, changed=True))) == 30  # and the header
    for options, message in (
        (("--run-id", "2"), "give --secret-env or --secret-file"),
        (
            ("--secret-env", "NOT_THERE"),
            r"NOT_THERE is not set here: set the one that earlier runs used, or make one with: ",
        ),
        (("--secret-file", str(tmp_path / "none")), "cannot be read"),
        (("--secret-env", SECRET), "not a secret"),
    ):
        with pytest.raises(ValueError, match=message):
            run_once(*options)
    printed = "".join(capsys.readouterr())
    assert SECRET not in printed
    assert "the same rows give the same numbers again, at no cost" in printed
    assert "another run over the same rows spends the budget again" in printed  # without a secret


@pytest.mark.exhaustive
def test_commands_tell_files_and_options_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or equal releases would show how far two columns, or two files, agree."""
    rows = [("a", 1, 1), ("b", 2, 2), ("a", 3, 5)]
    text = "key,item,created,closed\n" + "".join(f"k,{i},{a},{b}\n" for i, a, b in rows)
    east, west, out = (tmp_path / name for name in ("east.csv", "west.csv", "out.csv"))
    for log in (east, west):
        log.write_text(text)
    there = tmp_path / "there"
    there.mkdir()
    (there / "east.csv").write_text(text)
    keys = tmp_path / "keys.txt"

    def released(command: Any, log: Path, *more: str) -> set[str]:
        common = ["--epsilon", "1e-4", "--delta", "1e-6", "--key", "key", "--secret-env"]
        where = ["--output", str(out), "--overwrite"]
        command.main(["--input", str(log), *common, VARIABLE, *where, *more])
        return set(out.read_text().splitlines()[1:])

    clock = ["--tick", "1", "--start", "0", "--stop", "8", "--keys", "k", "--timestamp"]
    two = ["--max-items", "2", "--separator"]
    items = ["--item", "item", "--domain", "a", "b", "--horizon", "9", "--timestamp"]
    runs = [
        (ticks, east, *clock, "created"),
        (ticks, west, *clock, "created"),
        (ticks, east, *clock, "closed"),
        (ticks, east, *clock, "created", "--late", "drop"),
        (histogram, east, *items, "created"),
        *((histogram, east, *items, "created", *two, mark) for mark in ";|"),
        (histogram, west, *items, "created"),
    ]
    seen = [released(*given) for given in runs]
    for i, one in enumerate(seen):
        assert len(one) >= 3
        for other in seen[i + 1 :]:
            assert not one & other
    assert [released(*given) for given in runs[::4]] == seen[::4]

    # A default that is spelt out is none: an option that a later version adds changes nothing.
    assert released(ticks, east, *clock, "created", "--timestamp-format", "unix") == seen[0]

    # What the options do not show: a directory, a file more, and the order of public keys.
    monkeypatch.chdir(there)
    assert not released(ticks, Path("east.csv"), *clock, "created") & seen[0]
    monkeypatch.chdir(tmp_path)
    assert released(ticks, Path("east.csv"), *clock, "created") == seen[0]
    pattern = there / "*.csv"
    before = released(ticks, pattern, *clock, "created")
    (there / "more.csv").write_text(text.splitlines()[0] + "\n")
    assert not released(ticks, pattern, *clock, "created") & before
    split = [*clock[:-3], "--keys-file", str(keys), *two, ";", "--timestamp", "created"]
    seen = []
    for order in ("k\nl\n", "l\nk\n"):
        keys.write_text(order)
        seen.append(released(ticks, east, *split))
    assert not seen[0] & seen[1]

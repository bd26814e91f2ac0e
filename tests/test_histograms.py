"""Histogram: what an element counts, what that costs, and the same numbers on every runner."""

from __future__ import annotations

import enum
import itertools
import math
import random
import re
from collections import Counter as Multiset
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.coders.typecoders import registry
from apache_beam.runners.direct.direct_runner import BundleBasedDirectRunner
from apache_beam.testing import test_stream
from apache_beam.transforms.window import (
    FixedWindows,
    GlobalWindow,
    IntervalWindow,
    TimestampedValue,
)
from apache_beam.utils.timestamp import Timestamp

import beam_dpcount as dp
from beam_dpcount.checks import check_whole
from beam_dpcount.counters.change import ItemsChange
from beam_dpcount.counters.choose import PURE_NEEDS_HORIZON
from beam_dpcount.counters.counter import TAKES_GAUSSIAN, UnsupportedBudgetError
from beam_dpcount.dofns.intake import NOT_PAIRS, RejectedElementError
from beam_dpcount.dofns.releases import Rejected, TopRelease, VectorRelease
from beam_dpcount.mechanisms import (
    BinaryTree,
    KAry,
    NormalizedBLT,
    SmoothBinary,
    Sparse,
    SquareRoot,
    Unbounded,
)
from beam_dpcount.mechanisms.rounded import RoundedMechanism
from beam_dpcount.noise.laws import DiscreteLaplace
from beam_dpcount.states import whole_keys
from beam_dpcount.states.codecs import OTHER_STATISTIC, statistic_codec
from beam_dpcount.states.envelope import StateError
from beam_dpcount.statistics.items import (
    NOT_ITEMS,
    NOT_SIGNED,
    TOO_MANY,
    UNKNOWN,
    UNSIGNED,
    Items,
    check_domain,
    check_state,
    places,
    read_items,
)
from beam_dpcount.transforms.histograms import Histogram
from beam_dpcount.transforms.postprocess import TopK
from tests.audit import exact as audits
from tests.audit.exact import audit
from tests.hostile import Unshowable
from tests.messages import says
from tests.real_data import real_rows
from tests.runners import RUNNERS, Row, failure, feed, run
from tests.scripted import KeyedScript, ScriptedEntropy


def stable(value):
    """An id that is the same in every process: no addresses, no order of sets."""
    known = (str, int, bool, tuple, list, dict, type(None), float)
    return repr(value) if isinstance(value, known) else type(value).__name__


PATHS = ("bounded", "streaming")
BUDGET = dp.ApproxDP(1.0, 1e-6)
EXACT = dp.ZCDP(1e12)  # its noise is 0
DOMAIN = ("a", "b", "c", "d")
SECOND = 1_000_000
# A number and a text that turn up nowhere by chance.
SECRET, SECRET_TEXT = 77_431, "s3cr3t"

each_path = pytest.mark.parametrize("path", PATHS)
each_runner = pytest.mark.parametrize("runner", RUNNERS)


class Text(str, enum.Enum):
    """Equal to its text, and hashed by its name."""

    FIRST = "a"


# What an element names


READ: list[tuple[Any, int, bool, tuple[int, ...], str | None]] = [
    # payload, max_items, removals -> codes, reason
    ("a", 1, False, (1,), None),
    ("d", 1, False, (4,), None),
    ("z", 1, False, (), UNKNOWN),
    ("", 1, False, (), UNKNOWN),
    ("ab", 2, False, (), UNKNOWN),  # not its letters
    (np.str_("b"), 1, False, (2,), None),
    (Text.FIRST, 1, False, (1,), None),
    ([], 1, False, (), None),
    (["b"], 1, False, (2,), None),
    (["b", "b", "b"], 1, False, (2,), None),
    (["c", "a"], 2, False, (1, 3), None),
    (("c", "a"), 1, False, (1,), TOO_MANY),
    ({"d", "c", "b"}, 2, False, (2, 3), TOO_MANY),
    (frozenset({"d"}), 1, False, (4,), None),
    (np.array(["d", "a"]), 2, False, (1, 4), None),
    (deque(["d", "a"]), 2, False, (1, 4), None),
    ((item for item in "ab"), 2, False, (1, 2), None),
    ({"d": None}.keys(), 2, False, (4,), None),
    (["z", "a"], 1, False, (1,), UNKNOWN),
    (["z", "a", "b"], 1, False, (1,), TOO_MANY),
    ([None, 3, b"a", ["a"], Unshowable(), "a"], 1, False, (1,), UNKNOWN),
    ([Text.FIRST, "a"], 2, False, (1,), None),
    (None, 1, False, (), NOT_ITEMS),
    (3, 1, False, (), NOT_ITEMS),
    (math.nan, 1, False, (), NOT_ITEMS),
    (b"a", 1, False, (), NOT_ITEMS),
    (Unshowable(), 1, False, (), NOT_ITEMS),
    ({"a": 1}, 1, False, (), NOT_ITEMS),  # a mapping only where items can be removed
    ({"a": 1}, 1, True, (1,), None),
    ({"a": -1}, 1, True, (-1,), None),
    ({"c": 1, "a": -1}, 2, True, (-1, 3), None),
    ({"c": 1, "a": -1, "b": 1}, 2, True, (-1, 2), TOO_MANY),
    ({"a": np.int8(-1), "b": 1.0, "c": Fraction(-1)}, 3, True, (-1, 2, -3), None),
    ({"a": 0, "b": -1}, 3, True, (-2,), UNSIGNED),
    ({"a": 2, "b": -1}, 3, True, (-2,), UNSIGNED),
    ({"a": True}, 3, True, (), UNSIGNED),
    ({"a": math.nan}, 3, True, (), UNSIGNED),
    ({"a": "1"}, 3, True, (), UNSIGNED),
    ({"a": np.array([1, 2])}, 3, True, (), UNSIGNED),
    ({"a": Unshowable()}, 3, True, (), UNSIGNED),
    ({"z": 1, "b": 1}, 3, True, (2,), UNKNOWN),
    ({3: 1}, 3, True, (), UNKNOWN),
    ({}, 3, True, (), None),
    ("b", 1, True, (2,), None),
    (["b", "c"], 2, True, (2, 3), None),
    ([("b", -1)], 2, True, (), UNKNOWN),  # pairs are not how removals are written
    (7, 2, True, (), NOT_SIGNED),
]


@pytest.mark.parametrize(("payload", "most", "removals", "codes", "reason"), READ, ids=stable)
def test_what_an_element_counts(
    payload: Any, most: int, removals: bool, codes: tuple[int, ...], reason: str | None
) -> None:
    given = read_items(payload, places(DOMAIN), most, removals)
    assert given == (codes, reason)
    assert all(type(code) is int for code in given[0])


def signed(removals: bool) -> tuple[int, ...]:
    return (0, 1, -1) if removals else (0, 1)


def as_vector(codes: Sequence[int], dimension: int) -> np.ndarray:
    """What one step counts, as the statistic says."""
    items = Items(tuple(f"item {i}" for i in range(dimension)), removals=True)
    return items.count(None, tuple(codes))[1]


@pytest.mark.parametrize("removals", [False, True])
def test_what_is_kept_of_too_many_items(removals: bool) -> None:
    """All signed sets over four items: the first in the order of the domain, whatever order."""
    chance = random.Random(1)
    for most in range(1, 5):
        for signs in itertools.product(signed(removals), repeat=4):
            named = [(item, sign) for item, sign in zip(DOMAIN, signs, strict=True) if sign]
            chance.shuffle(named)
            payload = dict(named) if removals else [item for item, _ in named] * 2
            codes, reason = read_items(payload, places(DOMAIN), most, removals)
            expected = [place * sign for place, sign in enumerate(signs, start=1) if sign]
            assert list(codes) == expected[:most]
            assert (reason == TOO_MANY) == (len(expected) > most)
            vector = as_vector(codes, 4)
            assert np.abs(vector).sum() == min(most, len(expected))
            if len(expected) <= most:
                assert vector.tolist() == list(signs)


def test_vectors_of_many_steps_are_those_of_each() -> None:
    chance = random.Random(2)
    steps = []
    for _ in range(200):
        found = sorted(chance.sample(range(1, 8), chance.randrange(4)))
        codes = [place * chance.choice((1, -1)) for place in found]
        steps.append(codes + [0] * (3 - len(codes)))
    items = Items(tuple("abcdefg"), 3, removals=True)
    _, whole = items.all(None, np.array(steps))
    assert whole.dtype == np.int64
    assert np.array_equal(whole, [as_vector(codes, 7) for codes in steps])
    assert items.all(None, np.zeros((0, 3), dtype=np.int64))[1].shape == (0, 7)
    assert as_vector((), 3).tolist() == as_vector((0, 0), 3).tolist() == [0, 0, 0]


def test_domains() -> None:
    for given in (["b", "a"], ("b", "a"), np.array(["b", "a"]), deque(["b", "a"])):
        assert check_domain(given) == ("b", "a")
    (plain,) = check_domain([Text.FIRST])
    assert type(plain) is str
    assert check_domain([""]) == ("",)


def test_a_text_of_another_class_is_the_same_item() -> None:
    with pytest.raises(ValueError, match="domain names 'a' twice"):
        check_domain([Text.FIRST, "a"])


def test_whole_numbers() -> None:
    assert check_whole("k", np.int64(3), 3) == 3
    for bad in (0, -1, 4, 1.0, True, None, "1"):
        with pytest.raises(ValueError, match="k must be a whole number from 1 to 3, the size of"):
            check_whole("k", bad, 3)
    with pytest.raises(ValueError, match="window must be a whole number from 1, got 0"):
        check_whole("window", 0)


# What one element can change, by brute force


def vectors(dimension: int, most: int, removals: bool) -> list[tuple[int, ...]]:
    """All that one step can count."""
    return [
        signs
        for signs in itertools.product(signed(removals), repeat=dimension)
        if sum(map(abs, signs)) <= most
    ]


def change_of(most: int, removals: bool, relation: str = "replace_one") -> ItemsChange:
    return ItemsChange(-1 if removals else 0, 1, relation, max_items=most)


KINDS: dict[str, Callable[[int], Any]] = {
    "BinaryTree": BinaryTree,
    "SmoothBinary": SmoothBinary,
    "KAry": KAry,
    "KAry without subtraction": lambda horizon: KAry(horizon, subtraction=False),
    "SquareRoot": SquareRoot,
    "NormalizedBLT": NormalizedBLT,
}
# Coordinates, max_items, removals, steps: as long as all pairs of streams can be gone through.
CASES = [
    (1, 1, False, 4),
    (2, 1, False, 3),
    (3, 1, False, 3),
    (2, 2, False, 3),
    (3, 2, False, 2),
    (4, 2, False, 2),
    (1, 1, True, 3),
    (2, 1, True, 3),
    (3, 1, True, 2),
    (2, 2, True, 2),
    (4, 2, True, 1),
]


@pytest.mark.slow
@pytest.mark.exhaustive("kind", "relation")
@pytest.mark.parametrize("relation", ["replace_one", "add_remove"])
@pytest.mark.parametrize("kind", KINDS)
def test_norms_are_what_all_pairs_of_neighbours_reach(kind: str, relation: str) -> None:
    """Exactly reached by integer encoders, and up to rounding by real ones."""
    for dimension, most, removals, horizon in CASES:
        mechanism = KINDS[kind](horizon)
        change = change_of(most, removals, relation)
        l1, l2_squared = change.norms(mechanism, 1.0, dimension)
        counter = dp.Counter(
            mechanism, dp.ZCDP(1.0), DiscreteLaplace(Fraction(1)), change, dimension, 1.0
        )
        found = audits.differences(counter, vectors(dimension, most, removals))
        largest_l1 = max(int(size.sum()) for size in found)
        largest_l2 = max(int(np.square(size).sum()) for size in found)
        place = (dimension, most, removals, horizon)
        assert largest_l1 <= l1, place
        assert largest_l2 <= l2_squared, place
        if isinstance(mechanism, RoundedMechanism):
            assert largest_l1 >= 0.999 * l1, place
            assert largest_l2 >= 0.999 * l2_squared, place
        else:
            assert (largest_l1, largest_l2) == (l1, l2_squared), place


@pytest.mark.parametrize("kind", KINDS)
def test_the_formulas_of_the_guarantee(kind: str) -> None:
    """Delta_2 = sqrt(2b) c, 2 sqrt(b) c with removals, sqrt(b) c; Delta_1 = 2b s, 2b s, b s."""
    mechanism = KINDS[kind](50)
    s, c_squared = mechanism.norms(mechanism.resolution(1))
    for b in (1, 2, 3):
        assert change_of(b, False).norms(mechanism, 1.0, 20) == (2 * b * s, 2 * b * c_squared)
        assert change_of(b, True).norms(mechanism, 1.0, 20) == (2 * b * s, 4 * b * c_squared)
        for removals in (False, True):
            of_one_side = change_of(b, removals, "add_remove").norms(mechanism, 1.0, 20)
            assert of_one_side == (b * s, b * c_squared)


AUDITED = [(2, 1, False, 2), (3, 1, False, 2), (2, 2, False, 2), (2, 1, True, 2)]


@pytest.mark.slow
@pytest.mark.exhaustive("budget", "kind", "relation")
@pytest.mark.parametrize("budget", [dp.PureDP(1.0), dp.ZCDP(0.5), dp.ApproxDP(0.5, 1e-2)], ids=str)
@pytest.mark.parametrize("relation", ["replace_one", "add_remove"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_exact_loss_keeps_the_budget(kind: str, relation: str, budget: Any) -> None:
    """And half the noise does not."""
    for dimension, most, removals, horizon in AUDITED:
        mechanism = KINDS[kind](horizon)
        values, change = vectors(dimension, most, removals), change_of(most, removals, relation)
        try:
            counter = dp.calibrate(mechanism, budget, change, dimension)
        except UnsupportedBudgetError:
            continue
        assert audit(counter, values) == []
        law: Any = counter.law
        if isinstance(law, DiscreteLaplace):
            less: Any = replace(law, parameter=law.parameter / 2)
        else:
            less = replace(law, sigma2=law.sigma2 / 4)
        assert audit(replace(counter, law=less), values) == ["budget"]


@dataclass(frozen=True)
class AsPublished(ItemsChange):
    """The constant of [FHU22, Corollary 2] used for replace_one, which it does not cover."""

    def norms(
        self, mechanism: Any, unit: float, dimension: int | None
    ) -> tuple[Fraction, Fraction]:
        return change_of(self.max_items, False, "add_remove").norms(mechanism, unit, dimension)


def test_the_published_constant_fails_for_replace_one() -> None:
    for b, d in ((1, 2), (2, 4)):
        counter = dp.calibrate(BinaryTree(1), dp.ZCDP(0.5), AsPublished(max_items=b), d)
        assert audit(counter, vectors(d, b, False)) == ["budget"]


# The same numbers everywhere


def scripted(horizon: int | None = 256, domain: Any = DOMAIN, **options: Any) -> Histogram:
    """A transform whose noise the tests know."""
    options = {"budget": BUDGET, "entropy": ScriptedEntropy(), **options}
    return Histogram(options.pop("budget"), horizon, domain, **options)


def by_hand(
    histogram: Histogram, rows: Sequence[Row], path: str, window: Any = None
) -> list[VectorRelease]:
    """The releases of the rows of one window, one Counter.step at a time."""
    counter: Any = histogram.counter
    domain, most, removals = histogram.domain, histogram.max_items, histogram.removals
    if path == "bounded":
        rows = sorted(rows, key=lambda row: row[2])
    window = GlobalWindow() if window is None else window
    releases = []
    for key in sorted({row[0] for row in rows}):
        noise = KeyedScript(key, window, len(domain), 50)
        state = counter.init()
        mine = [row for row in rows if row[0] == key]
        for step, (_, payload, micros) in enumerate(mine[: counter.horizon], start=1):
            codes, _ = read_items(payload, places(domain), most, removals)
            state, value = counter.step(state, as_vector(codes, len(domain)), noise)
            stddev = pytest.approx(math.sqrt(counter.variance(step)), rel=1e-12)
            releases.append(VectorRelease(key, step, micros, value.tolist(), stddev))
    return releases


PAYLOADS = ["a", "b", "d", "z", "", None, 3, ["a", "b"], ["d", "d"], {"b", "c", "d"}, [], [None]]
SIGNED = [*PAYLOADS, {"a": -1}, {"a": 1, "d": -1}, {"b": -1, "c": 1, "a": 1}, {"a": 5}]


def some_rows(counts: dict[str, int], payloads: Sequence[Any], seed: int = 1) -> list[Row]:
    """Rows with keys mixed, out of order in time, with ties in time."""
    chance = random.Random(seed)
    keys = [key for key, n in counts.items() for _ in range(n)]
    chance.shuffle(keys)
    return [(key, chance.choice(payloads), chance.randrange(60) * SECOND) for key in keys]


EVERY = [*(kind(256) for kind in dp.mechanisms.ALL), SmoothBinary(256, balanced=True)]


@each_path
@pytest.mark.parametrize(
    ("runner", "mechanism"),
    [("fn", mechanism) for mechanism in EVERY]
    + [(runner, m) for runner in ("bundles", "grpc") for m in (BinaryTree(256), NormalizedBLT(256))]
    + [("fn", Unbounded(SmoothBinary))],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_releases_equal_steps_by_hand(mechanism: Any, path: str, runner: str) -> None:
    # 130 elements take the vectorised release, 20 the loop.
    rows = some_rows({"many": 130, "few": 20, "one": 1}, SIGNED)
    if mechanism.draws_early and path == "streaming":
        mechanism = KAry(256, subtraction=False)
    horizon = None if isinstance(mechanism, Unbounded) else 256
    count = scripted(horizon, mechanism=mechanism, max_items=2, removals=True, path=path)
    outcome = run(lambda p: p | feed(rows) | count, runner)
    assert outcome.releases == by_hand(count, rows, path)
    assert all(seen.micros == seen.value.timestamp for seen in outcome.outputs[0])


@each_runner
@pytest.mark.parametrize("max_items", [1, 3])
def test_both_paths_give_identical_numbers(max_items: int, runner: str) -> None:
    rows = sorted(some_rows({"x": 90, "y": 30}, PAYLOADS), key=lambda row: row[2])
    given = [
        run(
            lambda p, path=path: (
                p | feed(rows) | scripted(max_items=max_items, path=path, mechanism="BinaryTree")
            ),
            runner,
        ).releases
        for path in PATHS
    ]
    assert given[0] == given[1]
    assert len(given[0]) == 120


@each_path
def test_a_domain_of_one_item(path: str) -> None:
    rows = some_rows({"x": 60}, ["a", "b", ["a", "a"], None])
    count = scripted(domain=["a"], path=path)
    outcome = run(lambda p: p | feed(rows) | count)
    assert outcome.releases == by_hand(count, rows, path)


def test_long_streams_are_not_held_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond a size the bounded path steps, too, and gives the same."""
    rows = some_rows({"x": 150, "y": 60}, PAYLOADS)
    count = scripted(max_items=2)
    whole = run(lambda p: p | feed(rows) | count).releases
    monkeypatch.setattr(whole_keys, "_MOST", 300)
    assert (
        run(lambda p: p | feed(rows) | count).releases == whole == by_hand(count, rows, "bounded")
    )


@each_path
def test_values_and_ids_come_from_anything(path: str) -> None:
    ids = list(range(80))
    random.Random(2).shuffle(ids)
    rows = [("x", {"id": i, "items": [DOMAIN[i % 4]]}, (i // 50) * SECOND) for i in ids]
    count = scripted(path=path, value=lambda d: d["items"], element_id=lambda d: d["id"])
    outcome = run(lambda p: p | feed(rows) | count)
    ordered = sorted(rows, key=lambda row: row[1]["id"]) if path == "bounded" else rows
    plain = [(key, payload["items"], micros) for key, payload, micros in ordered]
    assert outcome.releases == by_hand(count, plain, path)


def test_unbounded_input_streams() -> None:
    rows = some_rows({"x": 9, "y": 3}, PAYLOADS)
    source = test_stream.TestStream()
    for key, payload, micros in rows:
        source.add_elements([TimestampedValue((key, payload), Timestamp(micros=micros))])
        source.advance_processing_time(1)
    source = source.advance_watermark_to_infinity()
    count = scripted()
    outcome = run(lambda p: p | source | count, BundleBasedDirectRunner(), ["--streaming"])
    assert outcome.releases == by_hand(count, rows, "streaming")


@each_path
def test_each_fixed_window_starts_anew(path: str) -> None:
    rows = some_rows({"x": 70, "y": 9}, PAYLOADS)
    count = scripted(path=path)
    outcome = run(lambda p: p | feed(rows) | beam.WindowInto(FixedWindows(20)) | count)
    expected = []
    for start in (0, 20, 40):
        mine = [row for row in rows if start <= row[2] // SECOND < start + 20]
        expected += by_hand(count, mine, path, IntervalWindow(start, start + 20))
    assert len(expected) == len(outcome.releases) == 79
    for release in outcome.releases:
        assert release in expected


# The exact histogram


def exact(rows: Sequence[Row], domain: Sequence[str]) -> list[list[float]]:
    """Running counts of the signed items that rows name."""
    totals: Multiset[str] = Multiset()
    given = []
    for _, items, _ in rows:
        for item, sign in items.items():
            totals[item] += sign
        given.append([float(totals[item]) for item in domain])
    return given


def exact_top(values: Sequence[float], domain: Sequence[str], k: int) -> list[str]:
    ranked = sorted(zip(values, domain, strict=True), key=lambda p: (-p[0], domain.index(p[1])))
    return [item for _, item in ranked[:k]]


def both(rows: Sequence[Row], count: Histogram, k: int) -> Callable[[beam.Pipeline], Any]:
    """A pipeline of a histogram, its k largest and its largest."""

    def build(pipeline: beam.Pipeline) -> tuple[Any, ...]:
        releases = pipeline | feed(rows) | count
        top = releases | "Top" >> TopK(k, count)
        return releases, top, releases | "Largest" >> TopK(1, count)

    return build


def check_exact(rows: Sequence[Row], count: Histogram, plain: Sequence[Row]) -> None:
    outcome = run(both(rows, count, 5))
    expected = exact(plain, count.domain)
    assert [release.value for release in outcome.releases] == expected
    for output, k in ((1, 5), (2, 1)):
        tops = [seen.value for seen in outcome.outputs[output]]
        assert [top.step for top in tops] == list(range(1, len(rows) + 1))
        assert [top.items for top in tops] == [exact_top(v, count.domain, k) for v in expected]
        for top, values in zip(tops, expected, strict=True):
            assert top.values == [values[count.domain.index(item)] for item in top.items]


@pytest.mark.long
@each_path
def test_an_enormous_budget_gives_the_exact_histogram_of_real_data(path: str) -> None:
    events = [row["EventId"] for row in real_rows("healthapp_2k.csv")]
    domain = sorted(set(events))
    assert (len(events), len(domain)) == (2000, 75)
    rows = [("all", event, i) for i, event in enumerate(events)]
    count = Histogram(EXACT, 2000, domain, mechanism="SmoothBinary", path=path)
    check_exact(rows, count, [(key, {event: 1}, i) for key, event, i in rows])


@each_path
@pytest.mark.parametrize("removals", [False, True])
def test_an_enormous_budget_gives_the_exact_histogram_of_sets(removals: bool, path: str) -> None:
    chance = random.Random(3)
    domain = [f"item {i}" for i in range(12)]
    rows: list[Row] = []
    plain: list[Row] = []
    for i in range(600):
        named = dict.fromkeys(chance.sample(domain, chance.randrange(4)), 1)
        if removals:
            named = {item: chance.choice((1, 1, -1)) for item in named}
        plain.append(("k", named, i))
        noisy: Any = dict(named) if removals else [*named, *named]
        if chance.random() < 0.2:  # an unknown item more
            noisy = {**noisy, "other": -1} if removals else [*noisy, "other"]
        rows.append(("k", noisy, i))
    count = Histogram(
        EXACT, 600, domain, max_items=3, removals=removals, mechanism="BinaryTree", path=path
    )
    check_exact(rows, count, plain)


def test_noise_is_there_without_a_script() -> None:
    rows = [("k", "a", 0)] * 30
    count = Histogram(dp.ZCDP(1e-4), 30, DOMAIN)
    values = [[r.value for r in run(lambda p: p | feed(rows) | count).releases] for _ in range(2)]
    assert values[0] != values[1]
    columns = np.array(values[0]).T
    assert not any(np.array_equal(a, b) for a, b in itertools.combinations(columns[1:], 2))


# Elements that are refused


@each_runner
@each_path
def test_drop_takes_every_step(path: str, runner: str) -> None:
    bad = [None, 3, "z", [1], {"a": 1}, {"a", "b", "z"}, b"a", math.nan, Decimal(1), {}, [[]]]
    rows = [("k", "a", 0), *(("k", payload, 0) for payload in bad), ("k", "b", 0), ("l", None, 0)]
    count = scripted(path=path)
    outcome = run(lambda p: p | feed(rows) | count, runner)
    assert outcome.releases == by_hand(count, rows, path)
    assert len(outcome.releases) == len(rows)
    assert not outcome.metrics()  # how many were dropped is private


MIXED: list[tuple[str | None, Row]] = [
    (None, ("k", "a", 0)),
    (NOT_ITEMS, ("k", None, 1)),
    (None, ("k", ["b", "b"], 2)),
    (UNKNOWN, ("k", SECRET_TEXT, 3)),
    (UNKNOWN, ("k", ["c", SECRET_TEXT], 4)),
    (TOO_MANY, ("k", ["a", "b"], 5)),
    ("horizon", ("k", "a", 6)),
    ("horizon", ("k", SECRET, 7)),
    ("key", (7, "a", 8)),
]


@each_runner
@each_path
def test_collect_shows_what_did_not_count(path: str, runner: str) -> None:
    rows = [row for _, row in MIXED]
    count = scripted(6, path=path, on_reject="collect")
    outcome = run(lambda p: p | feed(rows, Any) | count, runner)
    assert outcome.releases == by_hand(count, rows[:6], path)
    refused = {rejected.timestamp: rejected for rejected in outcome.rejected}
    expected = {row[2]: (reason, row) for reason, row in MIXED if reason is not None}
    assert refused.keys() == expected.keys()
    for micros, (reason, (key, payload, _)) in expected.items():
        assert reason in refused[micros].reason
        assert SECRET_TEXT not in refused[micros].reason
        if reason != "key":
            assert (refused[micros].key, refused[micros].element) == (key, repr(payload))
    # The known item of a refused element counts all the same, as it does under "drop".
    dropped = run(lambda p: p | feed(rows[:6]) | scripted(6, path=path)).releases
    assert dropped == outcome.releases


@each_path
@pytest.mark.parametrize("payload", [SECRET, SECRET_TEXT, [SECRET_TEXT, "a"], {"a": SECRET}])
def test_raise_names_the_element_and_not_its_value(payload: Any, path: str) -> None:
    rows = [("k", ("e-1", "a"), 0), ("k", ("e-2", payload), 1)]
    count = scripted(
        path=path,
        removals=True,
        on_reject="raise",
        value=lambda pair: pair[1],
        element_id=lambda pair: pair[0],
    )
    error = failure(lambda p: p | feed(rows) | count)
    assert isinstance(error, RejectedElementError)
    assert "e-2" in str(error)
    assert 'on_reject="drop"' in str(error)
    assert SECRET_TEXT not in str(error)
    assert str(SECRET) not in str(error)


@each_path
def test_raise_lets_items_pass(path: str) -> None:
    rows = some_rows({"x": 60, "y": 4}, ["a", ["b", "c"], [], ("d",)])
    count = scripted(path=path, max_items=2, on_reject="raise")
    assert run(lambda p: p | feed(rows) | count).releases == by_hand(count, rows, path)


@each_path
def test_a_callable_that_fails_on_a_value_rejects_it(path: str) -> None:
    rows = [("k", {"items": "a"}, 0), ("k", {SECRET_TEXT: "a"}, 1), ("k", {"items": ["b"]}, 2)]

    def count(on_reject: str) -> Histogram:
        return scripted(9, path=path, value=lambda d: d["items"], on_reject=on_reject)

    outcome = run(lambda p: p | feed(rows) | count("collect"))
    assert [r.step for r in outcome.releases] == [1, 2, 3]
    assert [r.reason for r in outcome.rejected] == ["the value could not be taken as items"]
    error = failure(lambda p: p | feed(rows) | count("raise"))
    assert SECRET_TEXT not in str(error)


@each_path
def test_bad_keys_are_errors(path: str) -> None:
    error = failure(lambda p: p | feed([(7, SECRET_TEXT, 0)], Any) | scripted(path=path))
    assert isinstance(error, TypeError)
    assert re.match(says(NOT_PAIRS), str(error))
    assert SECRET_TEXT not in str(error)
    with pytest.raises(TypeError, match="keys are"):
        _ = beam.Pipeline() | feed([(7, "a", 0)], tuple[int, str]) | scripted(path=path)


@each_path
def test_nothing_is_released_past_the_horizon(path: str) -> None:
    rows = some_rows({"x": 70, "y": 60, "z": 3}, PAYLOADS)
    count = scripted(60, path=path)
    outcome = run(lambda p: p | feed(rows) | count)
    assert outcome.releases == by_hand(count, rows, path)
    assert outcome.metrics() == {"past_horizon": 10}


# What the outside sees


@pytest.mark.parametrize(
    "release",
    [
        VectorRelease("k", 3, -5_000_001, [0.1, -1e300, 0.0, 2.0**-1074], 1.5),
        VectorRelease("", 2**48, 0, [1.0], 0.0),
        VectorRelease("漢字", 1, 2**53, [0.5] * 2000, math.inf),
        TopRelease("", 1, 2, ["ä", "", "a\x00b"], [3.0, 2.0, -0.5], 0.25),
        TopRelease("k", 1, 2, ["x"], [math.pi], 0.25),
    ],
    ids=lambda release: type(release).__name__,
)
def test_releases_come_back_from_their_coder(release: Any) -> None:
    coder = registry.get_coder(type(release))
    assert type(coder).__name__ == "RowCoder"
    back = coder.decode(coder.encode(release))
    assert back == release
    assert type(back) is type(release)
    assert coder.is_deterministic()


def test_schemas_are_plain() -> None:
    """No logical types: rows that any language reads."""
    for kind in (VectorRelease, TopRelease):
        schema = registry.get_coder(kind).schema  # type: ignore[attr-defined]
        text = str(schema)
        assert "logical_type" not in text
        assert [field.name for field in schema.fields] == list(kind._fields)


# Arguments


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_items": 5}, "max_items must be a whole number from 1 to 4, the size of the domain"),
        ({"mechanism": Sparse(9, 9)}, "Sparse counts single numbers, not histograms"),
        ({"mechanism": Unbounded(BinaryTree)}, "has no horizon, got horizon=100: leave it out"),
        ({"mechanism": "SmoothBinary", "budget": dp.PureDP(1.0)}, says(TAKES_GAUSSIAN)),
        ({"horizon": None, "budget": dp.PureDP(1)}, says(PURE_NEEDS_HORIZON)),
        (
            {"domain": [f"i{n}" for n in range(50_000)]},
            "use TickCount with the items as keys.* smaller domain",
        ),
    ],
    ids=lambda value: str(list(value)) if isinstance(value, dict) else "",
)
def test_constructor_refusals(options: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"budget": BUDGET, "horizon": 100, "domain": DOMAIN, **options}
    if "domain" in options:
        given["mechanism"] = "SquareRoot"  # 201 numbers a coordinate
    with pytest.raises((ValueError, TypeError), match=message):
        Histogram(given.pop("budget"), given.pop("horizon"), given.pop("domain"), **given)


@pytest.mark.slow
def test_state_is_bounded_at_a_million_numbers() -> None:
    check_state(10, 100_000, "")
    with pytest.raises(ValueError, match="1000010 a key, and at most 1000000"):
        check_state(10, 100_001, "")
    large = [f"i{n}" for n in range(50_000)]
    made = Histogram(dp.ZCDP(1.0), 1000, large, mechanism="BinaryTree")
    assert made.counter.dimension == 50_000
    for base in (BinaryTree, NormalizedBLT):  # the second has a last epoch
        with pytest.raises(ValueError, match="use TickCount with the items as keys"):
            Histogram(dp.ZCDP(1.0), None, large, mechanism=Unbounded(base))
        Histogram(dp.ZCDP(1.0), None, large[:100], mechanism=Unbounded(base))


@pytest.mark.parametrize("mechanism", [KAry(99), Unbounded(KAry)], ids=lambda m: m.name)
def test_noise_drawn_early_is_refused_in_streaming(mechanism: Any) -> None:
    horizon = 99 if isinstance(mechanism, KAry) else None
    count = Histogram(dp.PureDP(1), horizon, DOMAIN, mechanism=mechanism, path="streaming")
    with pytest.raises(ValueError, match="subtraction=False"):
        _ = beam.Pipeline() | feed([("k", "a", 0)]) | count


def test_by_name_streaming_takes_the_variant_that_is_safe() -> None:
    count = Histogram(dp.PureDP(1), 10**5, DOMAIN, mechanism="KAry", path="streaming")
    assert count.counter.mechanism == KAry(10**5, subtraction=False)


def test_the_counter_is_calibrated_to_the_change() -> None:
    count = Histogram(dp.ZCDP(0.5), 100, DOMAIN, max_items=2, mechanism="BinaryTree")
    assert count.counter.change == ItemsChange(max_items=2)
    assert count.counter.l2_sensitivity == pytest.approx(math.sqrt(4 * 7))  # type: ignore[attr-defined]
    assert count.counter.dimension == 4
    less = Histogram(
        dp.ZCDP(0.5), 100, DOMAIN, max_items=2, relation="add_remove", mechanism="BinaryTree"
    )
    assert less.counter.l2_sensitivity == pytest.approx(math.sqrt(2 * 7))  # type: ignore[attr-defined]
    assert count.domain == DOMAIN


def test_rejected_elements_are_silent() -> None:
    assert SECRET_TEXT not in repr(Rejected("k", 0, UNKNOWN, SECRET_TEXT, None))


def test_states_of_another_domain_are_refused() -> None:
    """Its places would be counts of other items."""

    def codec(*domain: str) -> Any:
        count = dp.Histogram(dp.ZCDP(1), 9, domain, path="streaming")
        return statistic_codec(count.counter, count.statistic)

    counter = dp.Histogram(dp.ZCDP(1), 9, ["a", "b"], path="streaming").counter
    data = codec("a", "b").encode(counter.init())
    assert codec("a", "b").decode(data)[0] == 0
    with pytest.raises(StateError, match=says(OTHER_STATISTIC)):
        codec("b", "a").decode(data)


# Without a horizon


def test_a_domain_may_come_without_a_horizon() -> None:
    count = dp.Histogram(BUDGET, domain=["a", "b"])
    assert count.counter.mechanism == dp.mechanisms.Endless()  # type: ignore[attr-defined]
    assert count.domain == ("a", "b")
    for missing in ((BUDGET,), (BUDGET, 9)):
        with pytest.raises(ValueError, match="domain is empty: give the public items"):
            dp.Histogram(*missing)


def test_a_fit_of_one_item_gains_nothing() -> None:
    """As the docstring says: it is as much Gaussian noise, and twice the variance of Laplace."""
    for budget, ratio in ((dp.ZCDP(0.1), 1.0), (dp.PureDP(0.1), 2.0)):
        variances = []
        for fit in (True, False):
            count = dp.Histogram(budget, 100, ["a"], fit_total=fit)
            variances.append(count.counter.max_variance())  # type: ignore[attr-defined]
        assert variances[0] / variances[1] == pytest.approx(ratio, rel=0.01)

"""Minimal occurrences of episodes: the definition, and what one letter changes, exhaustively."""

from __future__ import annotations

import itertools
import pickle
import random
from bisect import bisect_left, bisect_right
from collections import Counter
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest

from beam_dpcount.mechanisms import (
    BinaryTree,
    Binned,
    KAry,
    NormalizedBLT,
    Simple2,
    SmoothBinary,
    SquareRoot,
)
from beam_dpcount.statistics import episode_bounds
from beam_dpcount.statistics.episode_bounds import (
    NEW,
    OLD,
    OTHER,
    reach,
    reach_of_all,
    reach_of_dictionary,
)
from beam_dpcount.statistics.episodes import Episodes, EpisodesChange
from beam_dpcount.statistics.letters import EITHER
from tests.messages import says
from tests.real_data import real_rows

MECHANISMS = (BinaryTree, SmoothBinary, KAry, SquareRoot, NormalizedBLT, Simple2)
RELATIONS = ("replace_one", "add_remove")


# The definition, by enumerating windows: nothing of the implementation is used.


def holds(window: list[str], episode: tuple[str, ...]) -> bool:
    letters = iter(window)
    return all(letter in letters for letter in episode)


def minimal(stream: list[str], episode: tuple[str, ...], span: int | None) -> list[int]:
    """For each step, how many minimal occurrences end there."""
    ends = [0] * len(stream)
    for start, end in itertools.combinations_with_replacement(range(len(stream)), 2):
        if (
            (span is None or end - start + 1 <= span)
            and holds(stream[start : end + 1], episode)
            and not holds(stream[start + 1 : end + 1], episode)
            and not holds(stream[start:end], episode)
        ):
            ends[end] += 1
    return ends


def check(statistic: Episodes, stream: list[str]) -> None:
    codes = [statistic.read(letter)[0] for letter in stream]
    memory, added = statistic.all(statistic.init(), np.array(codes).reshape(-1, 1))
    memory_of_steps, rows = statistic.init(), []
    for code in codes:
        memory_of_steps, additions = statistic.step(memory_of_steps, code)
        rows.append(statistic.vector(additions))
    np.testing.assert_array_equal(added, rows)
    assert statistic.pack(memory) == statistic.pack(memory_of_steps)
    for label, column in zip(statistic.labels, added.T.tolist(), strict=True):
        episode = tuple(label) if "a" in statistic.domain else tuple(label.split(" "))
        assert column == minimal(stream, episode, statistic.max_span), label
        assert sum(column) == greedy(stream, episode, statistic.max_span), label


@pytest.mark.parametrize("span", [None, 3, 5])
def test_random_streams_have_the_occurrences_of_the_definition(span: int | None) -> None:
    draw = random.Random(5)
    every = [Episodes("abc"[:u], max_length=3, max_span=span) for u in (1, 2, 3)]
    chosen = Episodes("abc", words=["aba", "cc", "b", "cab", "abc"], max_span=span)
    for _ in range(70):
        statistic = draw.choice([*every, chosen])
        letters = ["", *statistic.domain]
        check(statistic, draw.choices(letters, k=draw.randrange(1, 15)))


def test_a_known_stream() -> None:
    # 'ab' in a a b b a b: windows [2, 3] and [5, 6]; [2, 4] and [1, 3] hold the first.
    statistic = Episodes(("a", "b"), words=["ab"])
    _, added = statistic.all(statistic.init(), np.array([[1], [1], [2], [2], [1], [2]]))
    assert added.ravel().tolist() == [0, 0, 1, 0, 0, 1]


@pytest.mark.slow
@pytest.mark.parametrize("span", [None, 10])
def test_real_events_have_the_occurrences_of_the_definition(span: int | None) -> None:
    events = [row["EventId"] for row in real_rows("healthapp_2k.csv")]
    common = [event for event, _ in Counter(events).most_common(12)]
    statistic = Episodes(common, max_length=3, max_span=span)
    stream = [event if event in common else "" for event in events]
    codes = np.array([statistic.read(letter)[0] for letter in stream])
    _, added = statistic.all(statistic.init(), codes)
    assert added.shape == (2000, 12 + 144 + 1728)
    # The definition would take hours: `check` compares the faster oracle with it.
    for label, column in zip(statistic.labels, added.T, strict=True):
        assert column.sum() == greedy(stream, tuple(label.split(" ")), span), label
    pair = Episodes(common, words=[common[:2], [*common[:2], common[0]]], max_span=span)
    check(pair, stream[300:360])


def greedy(stream: list[str], episode: tuple[str, ...], span: int | None) -> int:
    """Minimal windows, forwards to the earliest end and back from it to the latest start."""
    at: dict[str, list[int]] = {letter: [] for letter in episode}
    for step, letter in enumerate(stream):
        if letter in at:
            at[letter].append(step)
    count, start = 0, -1
    while True:
        place = start
        for letter in episode:
            place = _first_after(at[letter], place)
            if place is None:
                return count
        end, place = place, place + 1
        for letter in reversed(episode):
            place = _last_before(at[letter], place)
        start = place
        count += span is None or end - start + 1 <= span


def _first_after(steps: list[int], place: int) -> Any:
    index = bisect_right(steps, place)
    return steps[index] if index < len(steps) else None


def _last_before(steps: list[int], place: int) -> int:
    return steps[bisect_left(steps, place) - 1]


# What one letter changes.


@cache
def every_stream(statistic: Episodes, n: int) -> Any:
    """What all streams of n letters add: shape (letters + 1,) * n + (dimension, n)."""
    letters = range(len(statistic.domain) + 1)
    layer: list[tuple[Any, list[Any]]] = [(statistic.init(), [])]
    for _ in range(n):
        extended = []
        for memory, rows in layer:
            for letter in letters:
                after, additions = statistic.step(memory, (letter,))
                extended.append((after, [*rows, [place for place, _ in additions]]))
        layer = extended
    shape = (len(letters) ** n, statistic.dimension, n)
    added = np.zeros(shape, dtype=np.int8)
    for index, (_, rows) in enumerate(layer):
        for step, places in enumerate(rows):
            added[index, places, step] = 1
    return added.reshape((len(letters),) * n + shape[1:])


def neighbours(statistic: Episodes, n: int, relation: str) -> Any:
    """For each position and pair of letters, the letters and all differences."""
    added = every_stream(statistic, n)
    for position in range(n):
        for new, old in itertools.combinations(range(len(statistic.domain) + 1), 2):
            if relation == "replace_one" or new == 0:
                change = added.take(new, position) - added.take(old, position)
                yield old, new, change.reshape(-1, statistic.dimension, n)


def masses(change: Any) -> tuple[Any, Any]:
    return (change > 0).sum(axis=2, dtype=np.int16), (change < 0).sum(axis=2, dtype=np.int16)


def largest(statistic: Episodes, n: int, relation: str) -> tuple[int, int, int]:
    """The largest l1 norm, sum of P^2 + N^2 and number of episodes that change."""
    found = []
    for _, _, change in neighbours(statistic, n, relation):
        plus, minus = masses(change)
        total = plus + minus
        squares = (plus**2 + minus**2).sum(axis=1)
        found.append((total.sum(axis=1).max(), squares.max(), (total > 0).sum(axis=1).max()))
    return tuple(int(most) for most in np.max(found, axis=0))  # type: ignore[return-value]


# Letters, longest episode, steps, span; then the largest sum of P^2 + N^2 and its bound, for
# replace_one and for add_remove.
CASES = [
    ("a", 3, 7, None, (3, 7), (3, 7)),
    ("ab", 2, 8, None, (6, 7), (4, 4)),
    ("ab", 3, 9, None, (18, 34), (11, 17)),
    pytest.param("ab", 4, 9, None, (46, 117), (32, 61), marks=pytest.mark.exhaustive),
    pytest.param("abc", 2, 8, None, (10, 11), (6, 6), marks=pytest.mark.exhaustive),
    ("abc", 3, 7, None, (35, 65), (21, 34)),
    ("ab", 2, 8, 3, (12, 13), (7, 7)),
    pytest.param("ab", 3, 9, 4, (37, 53), (22, 32), marks=pytest.mark.exhaustive),
    ("ab", 3, 9, 5, (38, 53), (25, 32)),
    pytest.param("abc", 2, 8, 3, (12, 17), (7, 9), marks=pytest.mark.exhaustive),
]


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(("alphabet", "longest", "n", "span", "replaced", "removed"), CASES)
def test_no_neighbours_change_more_than_the_bound(
    alphabet: str, longest: int, n: int, span: int | None, replaced: Any, removed: Any
) -> None:
    statistic = Episodes(alphabet, max_length=longest, max_span=span)
    for relation, tightness in zip(RELATIONS, (replaced, removed), strict=True):
        found = largest(statistic, n, relation)
        bound = reach_of_all(len(alphabet), longest, relation == "replace_one", span is not None)
        assert found[0] <= bound.l1
        assert found[2] <= bound.touched
        assert found[1] <= bound.squares
        assert (found[1], bound.squares) == tightness


def marks_of(word: tuple[int, ...], old: int, new: int) -> tuple[int, ...]:
    return tuple(OLD * (letter == old) + NEW * (letter == new) for letter in word)


def words_of(statistic: Episodes) -> list[tuple[int, ...]]:
    return [tuple(statistic.read(letter)[0][0] for letter in label) for label in statistic.labels]


def check_each_episode(statistic: Episodes, n: int) -> dict[int, int]:
    """The largest P^2 + N^2 of episodes of each length; none exceeds its own bound."""
    most: dict[int, int] = {}
    limited = statistic.max_span is not None
    for old, new, change in neighbours(statistic, n, "replace_one"):
        plus, minus = masses(change)
        totals, squares = (plus + minus).max(axis=0), (plus**2 + minus**2).max(axis=0)
        for word, total, square in zip(words_of(statistic), totals, squares, strict=True):
            bound = reach(word, marks_of(word, old, new), limited)
            assert total <= bound.l1
            assert square <= bound.squares
            most[len(word)] = max(most.get(len(word), 0), int(square))
    return most


@pytest.mark.exhaustive
def test_each_episode_changes_at_most_what_is_proved_and_some_do() -> None:
    # ceil(m/2)^2 + floor(m/2)^2 for m letters: attained by 'b a .. a'.
    assert check_each_episode(Episodes("ab", max_length=4), 9) == {1: 1, 2: 2, 3: 5, 4: 8}
    assert check_each_episode(Episodes("abc", max_length=3), 7) == {1: 1, 2: 2, 3: 5}
    long = Episodes("ab", words=["baaaa", "aabaa", "babab", "abbba"])
    assert check_each_episode(long, 10) == {5: 13}


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("span", [None, 4])
def test_the_order_in_which_letters_come_next_bounds_all_episodes(span: int | None) -> None:
    n, statistic = 7, Episodes("abc", max_length=3, max_span=span)
    words = words_of(statistic)
    others = np.array(list(itertools.product(range(4), repeat=n - 1)))
    added = every_stream(statistic, n)
    for position, (old, new) in itertools.product((2, 3, 4), [(1, 2), (3, 1), (2, 0)]):
        change = added.take(new, position) - added.take(old, position)
        plus, minus = masses(change.reshape(-1, statistic.dimension, n))
        squares, tails = plus**2 + minus**2, others[:, position:]
        steps = np.stack([np.where(tails == a, range(n - 1 - position), n) for a in (1, 2, 3)])
        firsts = steps.min(axis=2) * 4 + np.array([[0], [1], [2]])  # letters that do not come: last
        for order in itertools.permutations((1, 2, 3)):
            here = (np.diff(firsts[[a - 1 for a in order]], axis=0) > 0).all(axis=0)
            for word, found in zip(words, squares[here].max(axis=0), strict=True):
                ranks = tuple(order.index(letter) + 1 for letter in word)
                marks = marks_of(word, old, new)
                assert found <= reach(ranks, marks, span is not None, ordered=True).squares


@pytest.mark.parametrize("n", range(1, 9))
def test_the_bound_of_one_episode(n: int) -> None:
    plain = [reach(w, w, False).squares for w in itertools.product((OLD, NEW), repeat=n)]
    assert max(plain) == (n // 2) ** 2 + ((n + 1) // 2) ** 2
    assert reach((1,) * n, (OLD,) * n, True)[:3] == (n, n**2, n**2)


@pytest.mark.slow
def test_within_a_span_the_square_of_the_length_is_attained() -> None:
    assert check_each_episode(Episodes("ab", max_length=3, max_span=4), 9) == {1: 1, 2: 4, 3: 9}
    for m in range(1, 9):
        statistic = Episodes("a", words=["a" * m], max_span=m)
        codes = np.ones((2 * m, 1), dtype=np.int64)
        _, whole = statistic.all(statistic.init(), codes)
        codes[m] = 0
        assert (whole - statistic.all(statistic.init(), codes)[1]).sum() == m


SMALL = [("ab", 3, 8, None), ("ab", 3, 8, 4), ("abc", 2, 6, None), ("abc", 2, 6, 3)]


def through(mechanism: Any, n: int, change: Any) -> Any:
    """L1 norms and squared L2 norms of R d, all episodes together, shape (number of changes,)."""
    rows = change.astype(np.float32) @ mechanism.encoder(n).T.astype(np.float32)
    return np.abs(rows).sum(axis=(1, 2)), np.square(rows).sum(axis=(1, 2), dtype=np.float64)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.exhaustive("alphabet", "longest", "n", "relation", "span")
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(("alphabet", "longest", "n", "span"), SMALL)
def test_no_neighbours_are_further_apart_through_an_encoder(
    alphabet: str, longest: int, n: int, span: int | None, relation: str
) -> None:
    statistic = Episodes(alphabet, max_length=longest, max_span=span)
    # Differences that many neighbours share need be looked at once.
    changes = np.concatenate([c for _, _, c in neighbours(statistic, n, relation)])
    packed = np.unique(changes.reshape(len(changes), -1), axis=0)
    changes = packed.reshape(len(packed), statistic.dimension, n)
    for kind in MECHANISMS:
        mechanism = kind(n)
        spread = statistic.change(relation).spread(mechanism)
        l1, squares = through(mechanism, n, changes)
        assert l1.max() <= spread.l1 * mechanism.l1_sensitivity * (1 + 1e-6)
        assert squares.max() <= float(spread.l2_squared) * (1 + 1e-6)


@pytest.mark.long
@pytest.mark.slow
def test_the_published_sensitivity_and_other_mutants_are_exceeded() -> None:
    statistic = Episodes("ab", max_length=2)
    _, one = statistic.all(statistic.init(), np.array([[2], [1], [1]]))  # baa
    _, other = statistic.all(statistic.init(), np.array([[2], [2], [1]]))  # bba
    found = int(((other - one) ** 2).sum())
    # [FHU22, Corollary 5] states an error for Delta_2^2 = |U|^(l-1) l; its proof has 4 times that.
    assert found == 6 > 2 ** (2 - 1) * 2
    assert found <= statistic.change("replace_one").spread(Simple2(3)).l2_squared == 7
    most = {m: largest(Episodes("ab", max_length=m), 9, "replace_one") for m in (2, 3)}
    assert most[3][1] == 18 > 2 ** (3 - 1) * 3
    # One change for each episode with the old or the new letter.
    assert most[3][1] > reach_of_all(2, 3, True, False).touched == 14
    # The bound without a limit on spans, where there is one.
    limited = largest(Episodes("ab", max_length=2, max_span=3), 8, "replace_one")
    assert limited[1] == 12 > reach_of_all(2, 2, True, False).squares
    # add_remove's for replace_one.
    assert most[2][1] == 6 > reach_of_all(2, 2, False, False).squares == 4


@pytest.mark.parametrize("pair", [True, False])
@pytest.mark.parametrize("limited", [True, False])
@pytest.mark.parametrize(("letters", "longest"), [(1, 4), (2, 5), (3, 3), (4, 3), (5, 2)])
def test_all_episodes_are_the_worst_order_of_the_letters(
    letters: int, longest: int, limited: bool, pair: bool
) -> None:
    alphabet = range(1, letters + 1)
    words = [w for m in range(1, longest + 1) for w in itertools.product(alphabet, repeat=m)]
    cases = [(a, None) for a in alphabet]
    if pair:
        cases += itertools.combinations(alphabet, 2)  # type: ignore[arg-type]
    totals = []
    for a, b in cases:
        marked = [(w, marks_of(w, a, b or -1)) for w in words]
        totals.append(np.sum([reach(w, m, limited, ordered=True) for w, m in marked], axis=0))
    assert reach_of_all(letters, longest, pair, limited) == tuple(np.max(totals, axis=0).tolist())


@pytest.mark.parametrize("limited", [True, False])
@pytest.mark.parametrize("pair", [True, False])
def test_long_episodes_have_bounds_that_are_no_smaller(
    limited: bool, pair: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = (0, OLD, NEW) if pair else (0, OLD)
    for marks in itertools.chain(*(itertools.product(kinds, repeat=m) for m in range(1, 7))):
        if any(marks):
            word = tuple({OLD: 1, NEW: 2, 0: OTHER}[mark] for mark in marks)
            exact = reach(word, marks, limited)
            simple = episode_bounds._reach_of_counts(len(word), sum(map(abs, marks)), limited)
            assert all(a <= b for a, b in zip(exact, simple, strict=True))
    exact = reach_of_all(3, 5, pair, limited)
    for name, length in (("ORDERED", 2), ("LONGEST", 3)):
        monkeypatch.setattr(episode_bounds, name, length)
        looser = reach_of_all(3, 5, pair, limited)
        assert all(a <= b for a, b in zip(exact, looser, strict=True))
        assert looser.touched == exact.touched
        exact = looser


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.exhaustive("span", "words")
@pytest.mark.parametrize("span", [None, 3])
@pytest.mark.parametrize("words", [["ab", "ba"], ["abc", "ca", "b"], ["aab", "cab", "cc"], ["aaa"]])
def test_a_dictionary_changes_no_more_than_its_bound(words: list[str], span: int | None) -> None:
    statistic = Episodes("abc", words=words, max_span=span)
    every = Episodes("abc", max_length=3).change("replace_one")
    for relation in RELATIONS:
        spread = statistic.change(relation).spread(Simple2(10))
        l1, squares, touched = largest(statistic, 7, relation)
        assert l1 <= spread.l1 <= every.spread(Simple2(10)).l1
        assert squares <= spread.l2_squared
        assert touched <= spread.touched


@pytest.mark.parametrize("limited", [True, False])
def test_the_worst_pair_of_a_dictionary_is_found(limited: bool) -> None:
    draw = random.Random(3)
    for _ in range(40):
        letters = range(1, draw.randrange(3, 9))
        words = {tuple(draw.choices(letters, k=draw.randrange(1, 5))) for _ in range(8)}
        pairs = [*itertools.combinations(letters, 2), *((a, 0) for a in letters)]
        for replaces in (True, False):
            totals = [
                np.sum([reach(w, marks_of(w, a, b), limited) for w in words], axis=0)
                for a, b in pairs
                if replaces or b == 0
            ]
            found = reach_of_dictionary(sorted(words), replaces, limited)
            assert found == tuple(np.max(totals, axis=0).tolist())


def test_where_columns_point_apart_all_changes_of_an_episode_count_as_one() -> None:
    change = Episodes("ab", max_length=2).change("replace_one")
    mechanism = Binned(20, 0.5, 0.01)
    assert not mechanism.is_nonnegative
    # Of 'ab' and 'ba' one can change twice; so can no other: 3 + (1 + 2) 1 + 2^2.
    column = Fraction(mechanism.l2_sensitivity_squared)
    assert change.spread(mechanism) == (7, 9 * column, 6)
    assert change.spread(Simple2(20)) == (7, 7, 6)
    assert change.norms(Simple2(20), 1, 6) == (7, 7)


def test_changes_say_what_they_are() -> None:
    statistic = Episodes(["open", "close"], max_length=2, max_span=9)
    assert statistic.labels == (
        *("open", "close"),
        *("open open", "open close", "close open", "close close"),
    )
    assert statistic.dimension == len(statistic.labels)
    assert statistic.summary == "episodes of up to 2 of 2 letters, within 9 steps"
    assert Episodes("abc", words=["ab", "c"]).summary == "2 episodes of 3 letters"
    assert Episodes("abc", words=[["a", "b"], "c"]).labels == ("ab", "c")
    replaced, removed = (statistic.change(relation) for relation in RELATIONS)
    assert str(replaced) == "replace_one (what any one letter is, episodes of up to 2)"
    assert "its step is empty" in str(removed)
    assert pickle.loads(pickle.dumps(statistic)) == statistic
    assert eval(repr(statistic)) == statistic
    assert isinstance(replaced, EpisodesChange)
    with pytest.raises(ValueError, match="one of replace_one, add_remove, got 'other'"):
        statistic.change("other")


@pytest.mark.parametrize(
    ("error", "message", "arguments"),
    [
        (ValueError, says(EITHER, noun="episodes"), {}),
        (ValueError, says(EITHER, noun="episodes"), {"max_length": 2, "words": ["ab"]}),
        (ValueError, "max_span=2 steps hold no episode of 3 letters: give a larger max_span",
         {"max_length": 3, "max_span": 2}),
        (ValueError, "max_span=1", {"words": ["a", "ab"], "max_span": 1}),
        (ValueError, "2 letters make 2,097,150 episodes .*at most 1,000,000.*smaller max_length",
         {"max_length": 20}),
        (ValueError, "more than 1,000,000,000,000,000,000", {"max_length": 10**9}),
    ],
)  # fmt: skip
def test_bad_arguments_are_named(error: type, message: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(error, match=message):
        Episodes(**{"domain": "ab", **arguments})


@pytest.mark.long
@pytest.mark.slow
def test_a_dictionary_has_at_most_a_million_prefixes() -> None:
    with pytest.raises(ValueError, match=r"1,000,001 different prefixes.*shorter episodes"):
        Episodes("ab", words=["a" * 10**6, "b"])


def test_what_is_no_letter_is_an_empty_step() -> None:
    statistic = Episodes("ab", max_length=1)
    assert statistic.read("b") == ((2,), None)
    assert statistic.read(None) == statistic.read("") == ((0,), None)
    for payload in ("c", 3, b"a", ["a"]):
        codes, reason = statistic.read(payload)
        assert codes == statistic.empty
        assert reason is not None


@pytest.mark.parametrize("span", [None, 4])
@pytest.mark.parametrize("which", [{"max_length": 3}, {"words": ["aba", "c", "cab"]}])
def test_a_stream_resumed_at_any_step_goes_on_as_if_uninterrupted(
    which: dict[str, Any], span: int | None
) -> None:
    statistic = Episodes("abc", **which, max_span=span)
    codes = np.random.default_rng(2).integers(0, 4, size=(300, 1))
    last, whole = statistic.all(statistic.init(), codes)
    memory = statistic.init()
    for step, code in enumerate(codes.tolist()):
        before = memory.latest.copy()
        memory, _ = statistic.step(memory, tuple(code))
        packed = statistic.pack(memory)
        resumed = statistic.unpack(packed)
        assert statistic.pack(resumed) == packed
        if step in (0, 1, 7, 254, 255, 256, 290):
            end, rest = statistic.all(resumed, codes[step + 1 :])
            np.testing.assert_array_equal(rest, whole[step + 1 :])
            assert statistic.pack(end) == statistic.pack(last)
        kept = memory.latest.copy()
        statistic.step(memory, (1,))
        statistic.all(memory, codes[:5])
        np.testing.assert_array_equal(memory.latest, kept)
        memory = resumed
        assert before.shape == kept.shape
    prefixes = 39 if "max_length" in which else 6
    assert len(packed) == 8 + prefixes * (1 if span else 2)


@pytest.mark.parametrize(
    ("data", "message"),
    [(b"", "no starts of these episodes"), (bytes(10), "no starts"), (bytes(8) + b"\1\0\0\0\0\0",
     "too long ago"), (b"\5" + bytes(7) + b"\4\0\0\0\0\0", "too long ago")],
)  # fmt: skip
def test_bytes_of_something_else_are_refused(data: bytes, message: str) -> None:
    statistic = Episodes("ab", max_length=2, max_span=4)
    with pytest.raises(ValueError, match=message):
        statistic.unpack(data)
    fine = statistic.unpack(b"\5" + bytes(7) + b"\3\0\0\0\0\0")
    assert (fine.step, fine.latest.tolist()) == (5, [0, 3, 0, 0, 0, 0, 0])

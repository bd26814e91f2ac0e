"""Words: their numbers by definition, and what one letter changes, against all small streams."""

from __future__ import annotations

import enum
import pickle
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from beam_dpcount.budget.budgets import ZCDP
from beam_dpcount.counters.counter import calibrate
from beam_dpcount.mechanisms import (
    BinaryTree,
    Binned,
    KAry,
    NormalizedBLT,
    Simple2,
    SmoothBinary,
    SquareRoot,
)
from beam_dpcount.mechanisms.base import Mechanism
from beam_dpcount.statistics import words as module
from beam_dpcount.statistics.base import Statistic
from beam_dpcount.statistics.items import places
from beam_dpcount.statistics.letters import (
    EITHER,
    NOT_A_LETTER,
    UNKNOWN,
    check_letters,
    check_words,
    read_letter,
    spell,
)
from beam_dpcount.statistics.words import Words, WordsChange
from tests.messages import says
from tests.neighbours import Alternating, differences, through
from tests.real_data import real_rows

RELATIONS = ("replace_one", "add_remove")
CASES = [(1, 5, 3), (2, 2, 3), (2, 7, 1), (2, 7, 2), (2, 7, 3), (3, 5, 3)]  # letters, steps, length
ABOVE = 1 + 1e-12  # real encoders' norms are computed in double precision


def encoders(steps: int) -> list[Mechanism]:
    return [
        Simple2(steps),
        BinaryTree(steps),
        SmoothBinary(steps),
        KAry(steps, arity=3),
        SquareRoot(steps),
        NormalizedBLT(steps),
        Binned(steps),
        Alternating(steps),
    ]


@lru_cache(maxsize=32)
def all_differences(letters: int, steps: int, longest: int, relation: str) -> np.ndarray:
    return differences(Words("abc"[:letters], longest), letters, steps, relation)


def by_definition(statistic: Words, stream: Sequence[str | None]) -> np.ndarray:
    """How often each word is a block of the first t letters, for each t; shape (steps, words)."""
    alphabet = statistic.domain
    if statistic.words is None:
        blocks = [
            block
            for j in range(1, statistic.longest + 1)
            for block in np.ndindex(*(len(alphabet),) * j)
        ]
        words = [tuple(alphabet[i] for i in block) for block in blocks]
    else:
        single = all(len(letter) == 1 for letter in alphabet)
        words = [tuple(w if single else w.split(" ")) for w in statistic.words]
    column = {word: place for place, word in enumerate(words)}
    counts = np.zeros((len(stream), len(words)), dtype=np.int64)
    for j in {len(word) for word in words}:
        for start in range(len(stream) - j + 1):
            place = column.get(tuple(stream[start : start + j]))  # an empty letter is in no word
            if place is not None:
                counts[start + j - 1 :, place] += 1
    return counts


def run(statistic: Words, stream: Sequence[Any]) -> tuple[np.ndarray, np.ndarray]:
    """Running sums, step by step; and the codes."""
    memory, sums, codes = statistic.init(), [], []
    total = np.zeros(statistic.dimension, dtype=np.int64)
    for letter in stream:
        code, reason = statistic.read(letter)
        assert reason is None
        memory, additions = statistic.step(memory, code)
        total = total + statistic.vector(additions)
        sums.append(total)
        codes.append(code)
    shape = (len(stream), statistic.dimension)
    return np.array(sums).reshape(shape), np.array(codes, dtype=np.int64).reshape(-1, 1)


def examples() -> list[tuple[Words, int]]:
    rng = random.Random(5)
    cases = [(Words("ab", 3), 40), (Words("a", 4), 30), (Words("abc", 1), 30)]
    cases.append((Words(["open", "read", "x"], 3), 60))
    cases.append((Words(["open", "x"], words=["x open x", ("open",), ["x", "x"]]), 60))
    for _ in range(20):
        alphabet = "abcd"[: rng.randint(1, 4)]
        made = {
            "".join(rng.choices(alphabet, k=rng.randint(1, 5))) for _ in range(rng.randint(1, 9))
        }
        cases.append((Words(alphabet, words=sorted(made, key=lambda w: rng.random())), 60))
    cases.append((Words("ab", words=["ab" * 40, "a"]), 200))  # beyond 64 bits
    return cases


@pytest.mark.parametrize(("statistic", "steps"), examples())
def test_counts_are_those_of_the_definition_after_every_letter(statistic: Words, steps: int):
    rng = random.Random(steps)
    letters = [*statistic.domain, None, ""]
    weights = [8] * len(statistic.domain) + [1, 1]
    streams = [rng.choices(letters, weights, k=steps) for _ in range(4)]
    streams.append(["a", "b"] * 100 if set("ab") <= set(statistic.domain) else [])
    for stream in streams:
        sums, codes = run(statistic, stream)
        np.testing.assert_array_equal(sums, by_definition(statistic, [s or None for s in stream]))
        cut = rng.randint(0, len(stream))
        memory, first = statistic.all(statistic.init(), codes[:cut])
        memory, second = statistic.all(memory, codes[cut:])
        np.testing.assert_array_equal(np.concatenate([first, second]).cumsum(axis=0), sums)
        slow, looped = Statistic.all(statistic, statistic.init(), codes)
        np.testing.assert_array_equal(looped.cumsum(axis=0), sums)
        assert memory == slow
        assert all(type(code) is int for code in memory)


@pytest.mark.slow
@pytest.mark.parametrize("rest", ["other", None])
def test_an_event_log_is_counted_as_defined(rest: str | None):
    kinds = [row["EventId"] for row in real_rows("healthapp_2k.csv")]
    common = [kind for kind, _ in Counter(kinds).most_common(12)]
    stream = [kind if kind in common else rest for kind in kinds]
    statistic = Words(common if rest is None else [*common, rest], 3)
    codes = np.array([statistic.read(letter)[0] for letter in stream])
    _, added = statistic.all(statistic.init(), codes)
    sums = added.cumsum(axis=0)
    np.testing.assert_array_equal(sums, by_definition(statistic, stream))
    np.testing.assert_array_equal(sums, run(statistic, stream)[0])
    assert len(stream) == 2000
    assert sums[-1, : len(common)].sum() == sum(kind in common for kind in kinds)


def test_labels_are_in_order_of_length_then_of_the_domain():
    assert Words("ba", 2).labels == ("b", "a", "bb", "ba", "ab", "aa")
    assert Words(["up", "down"], 2).labels[:3] == ("up", "down", "up up")
    assert Words("ab", words=["ba", "a"]).labels == ("ba", "a")
    assert Words(["up", "x"], words=[["x", "up"], "up"]).labels == ("x up", "up")
    for statistic in (Words("abc", 4), Words("abc", words=["a", "bc"])):
        assert statistic.dimension == len(statistic.labels) == len(set(statistic.labels))
        assert statistic.labels is statistic.labels


def test_an_empty_letter_breaks_words_and_clears_the_memory():
    statistic = Words("ab", 3)
    memory, _ = statistic.step((1, 2), (0,))
    assert memory == statistic.init() == ()
    assert statistic.empty == (0,)
    assert [len(statistic.step(m, (1,))[1]) for m in ((), (1,), (1, 2))] == [1, 2, 3]


# What one letter changes


@pytest.mark.exhaustive("letters", "longest", "relation", "steps")
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(("letters", "steps", "longest"), CASES)
def test_no_neighbours_differ_by_more(letters: int, steps: int, longest: int, relation: str):
    d = all_differences(letters, steps, longest, relation)
    change = Words("abc"[:letters], longest).change(relation)
    for mechanism in encoders(steps):
        reach = change.spread(mechanism)
        ratio = through(mechanism, d).max() / float(reach.l2_squared)
        print(f"{mechanism.name} {relation} {letters, steps, longest}: {ratio:.3f} of the bound")
        assert ratio <= ABOVE
        assert np.abs(d).sum(axis=(1, 2)).max() <= reach.l1
        assert (d != 0).any(axis=1).sum(axis=1).max() <= reach.touched
        if isinstance(mechanism, Simple2) and mechanism.is_nonnegative and steps >= 2 * longest - 1:
            assert ratio == 1
            assert np.abs(d).sum(axis=(1, 2)).max() == reach.l1
        l1, _ = change.norms(mechanism, 1, None)
        columns = np.abs(np.einsum("rs,nsw->nrw", mechanism.encoder(steps), d)).sum(axis=(1, 2))
        assert columns.max() <= ABOVE * float(l1) / mechanism.resolution(1, 1)


@pytest.mark.parametrize(("longest", "squared"), [(1, 2), (2, 6), (3, 12)])
def test_one_b_among_as_attains_the_bound(longest: int, squared: int):
    steps = 2 * longest - 1
    statistic = Words("ab", longest)
    ones = np.ones((steps, 1), dtype=np.int64)
    other = ones.copy()
    other[longest - 1] = 2
    d = statistic.all((), ones)[1] - statistic.all((), other)[1]
    assert np.square(d).sum() == squared
    reach = statistic.change("replace_one").spread(Simple2(steps))
    assert reach.l2_squared == squared
    assert reach.l1 == np.abs(d).sum() == longest * (longest + 1)
    assert statistic.change("add_remove").spread(Simple2(steps)).l2_squared == squared // 2
    assert longest**2 < squared  # [FHU22, Corollary 4]: l c
    root = SquareRoot(64)  # nor is c times the L2 norm of d: its columns are not orthogonal
    reached = through(root, _one_b(64, longest, 3)).max() / root.l2_sensitivity_squared
    assert reached > 1.2 * squared or longest == 1


def _one_b(steps: int, longest: int, place: int) -> np.ndarray:
    """The difference of a..a and a..aba..a, shape (1, steps, words)."""
    statistic = Words("ab", longest)
    ones = np.ones((steps, 1), dtype=np.int64)
    other = ones.copy()
    other[place] = 2
    return (statistic.all((), ones)[1] - statistic.all((), other)[1])[None]


@pytest.mark.parametrize("longest", [1, 2, 3])
def test_the_bound_is_near_at_longer_horizons(longest: int):
    d = np.concatenate([_one_b(64, longest, place) for place in range(64)])
    for mechanism in encoders(64):
        bound = WordsChange(letters=2, max_length=longest).spread(mechanism).l2_squared
        ratio = through(mechanism, d).max() / float(bound)
        print(f"{mechanism.name} length {longest}: {ratio:.3f} of the bound")
        assert 0.3 < ratio <= ABOVE


def test_letters_of_one_kind_can_only_be_there_or_not():
    spreads = [Words("a", 3).change(relation).spread(BinaryTree(9)) for relation in RELATIONS]
    assert spreads[0] == spreads[1]
    assert spreads[0].touched == 3


@pytest.mark.parametrize("longest", [1, 2, 3, 5])
@pytest.mark.parametrize("relation", RELATIONS)
def test_a_dictionary_of_all_words_costs_what_all_words_cost(longest: int, relation: str):
    every = Words("ab", longest)
    listed = Words("ab", words=every.labels)
    for mechanism in encoders(20):
        # Below where few words hold a letter: there are two words of one letter, not more.
        assert listed.change(relation).spread(mechanism) == every.change(relation).spread(mechanism)


def dictionaries(letters: int, longest: int, seed: int) -> list[list[int]]:
    rng, size = random.Random(seed), Words("abc"[:letters], longest).dimension
    sizes = [1, 1, 1, 2, 2, 3, 4, 6, 9, 14, size // 2]
    return [rng.sample(range(size), min(size, max(1, rng.choice(sizes)))) for _ in range(40)]


@pytest.mark.slow
@pytest.mark.exhaustive("letters", "longest", "relation", "steps")
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(("letters", "steps", "longest"), [(1, 7, 4), (2, 7, 4), (3, 5, 3)])
def test_no_neighbours_differ_by_more_in_a_dictionary(
    letters: int, steps: int, longest: int, relation: str
):
    every = Words("abc"[:letters], longest)
    d = all_differences(letters, steps, longest, relation)
    by_word = {
        mechanism: np.square(np.einsum("rs,nsw->nrw", mechanism.encoder(steps), d)).sum(axis=1)
        for mechanism in encoders(steps)
    }
    changed, touched = np.abs(d).sum(axis=1), (d != 0).any(axis=1)
    ratios = []
    for chosen in dictionaries(letters, longest, seed=letters):
        statistic = Words(every.domain, words=[every.labels[i] for i in chosen])
        change = statistic.change(relation)
        for mechanism, squared in by_word.items():
            reach = change.spread(mechanism)
            ratio = squared[:, chosen].sum(axis=1).max() / float(reach.l2_squared)
            ratios += [ratio] if type(mechanism) is Simple2 else []
            assert ratio <= ABOVE, (mechanism, statistic.words)
            assert changed[:, chosen].sum(axis=1).max() <= reach.l1
            assert touched[:, chosen].sum(axis=1).max() <= reach.touched
            assert reach.l2_squared <= every.change(relation).spread(mechanism).l2_squared
    print(f"Simple2: median {np.median(ratios):.3f}, least {min(ratios):.3f} of the bound")
    assert np.median(ratios) > 0.6


def test_words_that_do_not_overlap_themselves_cost_less():
    alphabet = "abcdefgh"
    listed = Words(alphabet, words=["abcd", "efgh", "hgfe", "dcba"])
    tree, every = BinaryTree(1000), Words(alphabet, 4)
    c2 = tree.l2_sensitivity_squared
    assert listed.change("replace_one").spread(tree) == (4, 4 * c2, 4)
    assert listed.change("add_remove").spread(tree) == (2, 2 * c2, 2)
    assert every.change("replace_one").spread(tree).l1 == 20
    once = Words("ab", words=["aaaa"]).change("replace_one").spread(Simple2(9))
    assert once == (4, 4, 1)


def test_bounds_of_integer_encoders_are_exact():
    for mechanism in (Simple2(100), BinaryTree(100), SmoothBinary(100), KAry(100)):
        for statistic in (Words("ab", 3), Words("ab", words=["aba", "bb"])):
            reach = statistic.change("replace_one").spread(mechanism)
            assert isinstance(reach.l2_squared, Fraction)
            assert reach.l2_squared.denominator == 1


# Bounds that are too small are found


def exceeded(statistic: Words, steps: int, mechanism: Mechanism) -> bool:
    d = differences(statistic, len(statistic.domain), steps, "replace_one")
    reach = statistic.change("replace_one").spread(mechanism)
    return bool(
        through(mechanism, d).max() > float(reach.l2_squared) * ABOVE
        or np.abs(d).sum(axis=(1, 2)).max() > reach.l1
    )


@pytest.mark.parametrize("longest", [1, 2, 3])
def test_the_published_bound_is_exceeded(longest: int):
    for mechanism in (Simple2(6), SquareRoot(6), NormalizedBLT(6)):
        worst = through(mechanism, all_differences(2, 6, longest, "replace_one")).max()
        assert worst > longest**2 * mechanism.l2_sensitivity_squared


@pytest.mark.slow
def test_a_bound_that_forgets_that_words_overlap_themselves_is_exceeded(monkeypatch):
    repeated = Words("ab", words=["aaa", "aba"])
    assert not exceeded(repeated, 7, BinaryTree(7))
    monkeypatch.setattr(module, "_packed", lambda at, apart: 1)
    module._worst.cache_clear()
    try:
        assert exceeded(repeated, 7, BinaryTree(7))
    finally:
        module._worst.cache_clear()


def test_a_bound_that_takes_columns_for_orthogonal_is_exceeded(monkeypatch):
    monkeypatch.setattr(WordsChange, "_lags", lambda change, m: (_column(m), *[Fraction(0)] * 9))
    for statistic in (Words("ab", 2), Words("ab", words=["aa", "b"])):
        assert exceeded(statistic, 5, SquareRoot(5))


def test_a_bound_that_forgets_the_new_letter_is_exceeded(monkeypatch):
    monkeypatch.setattr(WordsChange, "_sides", 1)
    for statistic in (Words("ab", 2), Words("ab", words=["aa", "b"])):
        assert exceeded(statistic, 5, Simple2(5))


def test_a_bound_that_takes_products_for_positive_is_exceeded(monkeypatch):
    monkeypatch.setattr(Alternating, "is_nonnegative", True)
    monkeypatch.setattr(Alternating, "lag_bounds", lambda m, n: (1.0,) + (0.0,) * (n - 1))
    assert exceeded(Words("ab", 2), 5, Alternating(5))


def _column(mechanism: Mechanism) -> Fraction:
    return Fraction(mechanism.l2_sensitivity_squared)


# Reading, refusing, packing


class Kind(str, enum.Enum):
    A = "a"


def test_letters_are_read_and_refused():
    known = places(("a", "b"))
    assert read_letter("b", known) == ((2,), None)
    assert read_letter(Kind.A, known) == ((1,), None)
    assert read_letter(None, known) == read_letter("", known) == ((0,), None)
    for bad in (7, 1.5, b"a", ["a"], {"a": 1}, float("nan"), object()):
        assert read_letter(bad, known) == ((0,), NOT_A_LETTER)
    assert read_letter("s3cr3t", known) == ((0,), UNKNOWN)
    assert Words("ab", 2).read("c") == ((0,), UNKNOWN)
    assert "s3cr3t" not in UNKNOWN + NOT_A_LETTER


def test_words_are_spelled_without_clashes():
    assert spell(["a", "b"], ("a", "b")) == "ab"
    assert spell(["a", "bc"], ("a", "b", "bc", "ab")) == "a bc"
    assert check_words(["a b", " b  a"], ("b", "a", " ")) == ((2, 3, 1), (3, 1, 3, 3, 2))
    assert check_words(["up x", ["x", "up"], ("up",)], ("up", "x")) == ((1, 2), (2, 1), (1,))
    assert check_words(["up\tx"], ("up\tx", "b")) == ((1,),)
    assert check_letters(" ab") == (" ", "a", "b")
    assert check_letters(np.array(["up", "x"])) == ("up", "x")
    assert check_letters([Kind.A]) == ("a",)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((["a", ""], 2), ValueError, "stands for an empty step"),
        ((["a", "log in"], 2), ValueError, "'log in' holds a space"),
        (("ab",), ValueError, says(EITHER, noun="words")),
        (("ab", 2, ["a"]), ValueError, says(EITHER, noun="words")),
        (("abcdefghijklmnopqrstuvwxyz", 5), ValueError, r"26 letters make 12,356,630 words"),
        (("ab", 10**9), ValueError, "more than 1,000,000,000,000,000,000 words"),
        (("a", 10**6 + 1), ValueError, "1 letters make 1,000,001 words"),
        (("ab", None, ["ab", ()]), ValueError, r"word \(\) is empty"),
        ((["up", "x"], None, ["upx"]), ValueError, "'upx' holds 'upx'"),
    ],
)
def test_bad_arguments_are_refused(arguments: tuple[Any, ...], error: type, message: str):
    with pytest.raises(error, match=message):
        Words(*arguments)


def test_unknown_relations_are_refused():
    with pytest.raises(ValueError, match="replace_one, add_remove"):
        Words("ab", 2).change("user")
    with pytest.raises(ValueError, match="unit must be 1"):
        Words("ab", 2).change("replace_one").norms(BinaryTree(8), 0.5, None)


@pytest.mark.parametrize(("letters", "size"), [(2, 1), (255, 1), (256, 2), (70_000, 4)])
def test_what_is_remembered_is_packed(letters: int, size: int):
    statistic = Words([f"k{i}" for i in range(letters)], words=[["k0"] * 6, ["k1"]])
    for memory in ((), (1,), (letters, 1, 2), (letters,) * 5):
        data = statistic.pack(memory)
        assert len(data) == size * 5  # whatever it is: sizes are seen by many
        assert statistic.unpack(data) == memory
    bad = [
        b"\1" * size * 4,
        b"\1" * size * 6,
        b"\1" * size + b"\0" * size + b"\1" * size * 3,  # a break among them
        (letters + 1).to_bytes(size + (letters == 255), "little").rjust(size * 5, b"\1"),
    ]
    for data in bad:
        with pytest.raises(ValueError, match="no letters of this domain"):
            statistic.unpack(data)


def test_statistics_are_values():
    for statistic in (Words("ab", 2), Words(["up", "x"], words=[["x", "up"]])):
        assert len(statistic.labels) == statistic.dimension  # fills the caches
        again = pickle.loads(pickle.dumps(statistic))
        assert again == statistic == replace(statistic) == eval(repr(statistic))
        assert set(vars(again)) == {"domain", "max_length", "words"}
        assert again.step((1,), (2,)) == statistic.step((1,), (2,))
        assert hash(again) == hash(statistic)
    assert Words("ab", 2).summary == "words of up to 2 of 2 letters"
    assert Words("ab", words=["ab"]).summary == "1 words of 2 letters"
    assert str(Words("ab", 2).change("add_remove")).startswith("add_remove (whether any one letter")


def test_a_counter_is_calibrated_to_the_change():
    statistic = Words("ab", 2)
    change = statistic.change("replace_one")
    counter = calibrate(
        BinaryTree(100), ZCDP(0.5), change=change, dimension=statistic.dimension, unit=1
    )
    reach = change.spread(BinaryTree(100))
    assert counter.l2_sensitivity == pytest.approx(float(reach.l2_squared) ** 0.5)
    assert counter.l1_sensitivity == 6 * 7
    x = statistic.all((), np.array([[1], [2], [1]]))[1]
    assert np.shape(counter.release(x)) == (3, 6)

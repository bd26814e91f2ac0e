"""Words of a stream of letters: how often each has occurred, as a block of successive letters.

Occurrences may overlap. The functions are those of [FHU22, section 5.4]; the sensitivities are not
(its l c is exceeded by words of one letter), see docs/proofs/sequences.md.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import combinations
from operator import itemgetter
from struct import pack, unpack
from typing import ClassVar

import numpy as np

from beam_dpcount.counters.change import Spread
from beam_dpcount.mechanisms.base import Mechanism
from beam_dpcount.statistics.base import Additions, Codes, IntArray
from beam_dpcount.statistics.letters import LettersChange, LetterStatistic


@dataclass(frozen=True)
class Words(LetterStatistic):
    """How often each word has occurred among the letters so far, by the letter that ends it.

    No word extends over an empty letter. A letter takes time O(the longest word), whatever the
    number of words. Args, raises: see LetterStatistic.
    """

    remedy: ClassVar[str | None] = "count shorter words, or give a list of words"

    def init(self) -> Codes:
        """The last letters that a word may yet extend: at most one less than the longest word."""
        return ()

    def step(self, memory: Codes, codes: Codes) -> tuple[Codes, Additions]:
        (letter,) = codes
        if not letter:
            return (), ()
        base, keep, lookup = self._steps
        ends = (*memory, letter)
        # A word is the number that its letters, digits 1 .. u, write in base u, the first letter
        # leading: 1, 2, 3, ... are all words in order of length, then of the domain.
        number, weight, additions = 0, 1, []
        for digit in reversed(ends):
            number += digit * weight
            weight *= base
            if lookup is None:
                additions.append((number - 1, 1))
            elif number in lookup:
                additions.append((lookup[number], 1))
        return ends if len(ends) <= keep else ends[1:], additions

    def all(self, memory: Codes, codes: IntArray) -> tuple[Codes, IntArray]:
        base, keep, lookup = self._steps
        if base**self.longest >= 2**61:  # numbers are below base / (base - 1) times that
            return super().all(memory, codes)
        letters = np.concatenate([np.array(memory, dtype=np.int64), codes[:, 0]])
        known = None if lookup is None else np.array(sorted(lookup), dtype=np.int64)
        added = np.zeros((len(codes), self.dimension), dtype=np.int64)
        ends = np.arange(len(memory), len(letters))  # of blocks without a break so far
        numbers = np.zeros(len(ends), dtype=np.int64)
        for age in range(self.longest):
            ends, numbers = ends[ends >= age], numbers[ends >= age]
            if not len(ends):
                break
            digits = letters[ends - age]
            ends, numbers = ends[digits > 0], numbers[digits > 0]
            numbers = numbers + base**age * digits[digits > 0]
            if lookup is None or known is None:
                added[ends - len(memory), numbers - 1] = 1
            else:
                found = np.isin(numbers, known)
                words = [lookup[number] for number in numbers[found].tolist()]
                added[ends[found] - len(memory), words] = 1
        last = letters[len(letters) - min(keep, len(letters)) :]
        (breaks,) = np.nonzero(last == 0)
        return tuple(last[breaks[-1] + 1 if len(breaks) else 0 :].tolist()), added

    def pack(self, memory: Codes) -> bytes:
        """One, two or four bytes a letter, by the domain's size; 0 for those before a break.

        The length never varies: a runner that reports sizes of state would show empty letters.
        """
        kept = self.longest - 1
        return pack(f"<{kept}{self._letter[0]}", *(0,) * (kept - len(memory)), *memory)

    def unpack(self, data: bytes) -> Codes:
        kind, size = self._letter
        u, keep, _ = self._steps
        if len(data) == keep * size:
            codes = unpack(f"<{keep}{kind}", data)
            memory = tuple(itertools.dropwhile(operator.not_, codes))
            if all(1 <= code <= u for code in memory):
                return memory
        raise ValueError("these bytes hold no letters of this domain and length")

    def change(self, relation: str) -> WordsChange:
        return WordsChange(relation=relation, **self._counted)

    @cached_property
    def _steps(self) -> tuple[int, int, dict[int, int] | None]:
        """The base, the letters to remember and each word's place: what a step needs."""
        u, lookup = len(self.domain), None
        if self.words is not None:
            numbers = (sum(c * u**age for age, c in enumerate(reversed(w))) for w in self.coded)
            lookup = {number: place for place, number in enumerate(numbers)}
        return u, self.longest - 1, lookup

    @property
    def _letter(self) -> tuple[str, int]:
        u = len(self.domain)
        return ("B", 1) if u < 2**8 else ("H", 2) if u < 2**16 else ("I", 4)


@dataclass(frozen=True)
class WordsChange(LettersChange):
    """What one letter changes in the numbers of occurrences of words.

    Guarantee: all words of up to l letters: Delta_2^2 is the sum over j <= l of 2 j g(0) + 2 sum
      over d < j of (j - d) g(d), g = `lag_bounds`, at most c^2 l (l + 1) (l + 2) / 3, and Delta_1
      is l (l + 1) columns; add_remove has j for 2 j, and half of Delta_1. Attained by a..a and
      a..aba..a where products of columns depend on the lag only. A dictionary: at most that, and
      less where few of its words hold one letter, or few overlap themselves. [FHU22, Corollary 4]
      has less, and fails. docs/proofs/sequences.md has the proof.
    """

    def spread(self, mechanism: Mechanism) -> Spread:
        g = self._lags(mechanism)
        if self.dictionary is not None:
            return self._among(self.dictionary, g, mechanism.is_nonnegative)
        # The Guarantee's sums over d and j, exchanged: words of a single letter may be long.
        longest = self.longest
        blocks = self._sides * longest * (longest + 1) // 2
        cross = sum((longest - d) * (longest - d + 1) * g[d] for d in range(1, longest))
        touched = blocks if self.letters > 1 else longest
        return Spread(blocks, blocks * g[0] + cross, touched)

    def _among(self, dictionary: tuple[Codes, ...], g: tuple[Fraction, ...], plus: bool) -> Spread:
        orthogonal = (Fraction(1), *(Fraction(0) for _ in g[1:]))
        l1 = int(_worst(dictionary, self._sides, orthogonal))  # where each change adds 1
        if plus or self._sides == 1:
            l2_squared = _worst(dictionary, self._sides, g)
        else:
            pairs = sum(j * (j - 1) for j in {len(word) for word in dictionary})
            l2_squared = g[0] * min(l1**2, l1 + pairs)
        return Spread(l1, l2_squared, min(l1, len(dictionary)))

    @property
    def _sides(self) -> int:
        """On how many sides there is a letter: a single letter has none to be replaced by."""
        return 2 if self.relation == "replace_one" and self.letters > 1 else 1

    def _lags(self, mechanism: Mechanism) -> tuple[Fraction, ...]:
        """Bounds on the absolute products of two columns, by their lag."""
        column, longest = Fraction(mechanism.l2_sensitivity_squared), self.longest
        if not mechanism.is_nonnegative:
            return (column,) * longest
        g = mechanism.lag_bounds(min(longest, mechanism.horizon))
        beyond = (Fraction(0),) * (longest - len(g))
        return tuple(min(column, Fraction(bound)) for bound in g) + beyond


@dataclass
class _Side:
    """What blocks of one length over a position can be, in a dictionary and given its letter there.

    Fields:
      blocks: the places that this letter can have in a block that is a word.
      pairs: a place and a lag, where that block and the one so much later can be the same word.
      apart: a bound on ||R d||_2^2, each word bounded by itself.
    """

    blocks: set[int] = field(default_factory=set)
    pairs: set[tuple[int, int]] = field(default_factory=set)
    apart: int = 0


_Letter = dict[int, _Side]  # by the length of the blocks


@lru_cache(maxsize=64)
def _worst(dictionary: tuple[Codes, ...], sides: int, g: tuple[Fraction, ...]) -> Fraction:
    """A bound on ||R d||_2^2 over all exchanges of a letter, where products are at most g, from 0.

    sides is 2 where two letters are exchanged, and 1 for a letter and the empty one: then products
    may have any sign, and g bounds their absolute values.
    """
    unit = math.lcm(*(bound.denominator for bound in g))
    whole = [int(bound * unit) for bound in g]  # whole numbers: many pairs are looked at
    letters = _letters(dictionary, whole)
    best = max(_exchange([letter], whole) for letter in letters)
    if sides == 1:
        return Fraction(best, unit)
    # Each part of an exchange's bound is at most the sum of what the two letters have alone: pairs
    # that cannot exceed the best so far are passed over, and the largest come first.
    alone = []
    for letter in letters:
        together = sum(_together(j, [side], whole) for j, side in letter.items())
        alone.append((together, sum(side.apart for side in letter.values()), letter))
    alone.sort(key=itemgetter(0, 1), reverse=True)
    for (some, apart, old), (more, further, new) in combinations(alone, 2):
        if some + more > best and apart + further > best:
            best = max(best, _exchange([old, new], whole))
    return Fraction(best, unit)


def _letters(dictionary: Sequence[Codes], g: Sequence[int]) -> list[_Letter]:
    """For each letter of a dictionary, what the blocks with it at a position can be."""
    letters: defaultdict[int, _Letter] = defaultdict(lambda: defaultdict(_Side))
    for word in dictionary:
        j = len(word)
        periods = [d for d in range(1, j) if word[d:] == word[:-d]]
        gap = periods[0] if periods else j
        for letter in set(word):
            side, at = letters[letter][j], [k for k in range(j) if word[k] == letter]
            side.blocks.update(at)
            side.pairs.update((k, d) for k in at for d in periods if k + d in at)
            n = _packed(at, gap)
            side.apart += n * g[0] + 2 * sum((n - r) * g[r * gap] for r in range(1, n))
    return list(letters.values())


def _packed(at: Sequence[int], apart: int) -> int:
    """How many of these places can be chosen, `apart` or more from one to the next."""
    count, free = 0, at[0]
    for k in at:
        if k >= free:
            count, free = count + 1, k + apart
    return count


def _exchange(letters: Sequence[_Letter], g: Sequence[int]) -> int:
    """A bound on ||R d||_2^2 if these letters, one or two, are there before or after."""
    total = 0
    for j in {j for ends in letters for j in ends}:
        ends = [ends[j] for ends in letters if j in ends]
        total += min(_together(j, ends, g), sum(side.apart for side in ends))
    return total


def _together(j: int, ends: Sequence[_Side], g: Sequence[int]) -> int:
    """A bound for all words of j letters together: blocks, and pairs of blocks that are equal."""
    lags = Counter(d for side in ends for _, d in side.pairs)
    cross = sum(min(j - d, count) * g[d] for d, count in lags.items())
    return sum(len(side.blocks) for side in ends) * g[0] + 2 * cross

"""Serial episodes in a stream of letters: how many minimal occurrences each has had.

An occurrence of an episode is a subsequence that spells it, gaps allowed. It is minimal if its
window, from its first letter to its last, holds no smaller window with an occurrence; at most one
ends at a step. The functions are those of [FHU22, section 5.5]; the sensitivities are not (those of
its Corollary 5 are exceeded by 'baa' against 'bba'), see docs/proofs/sequences.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np

from beam_dpcount.checks import ParameterError, check_whole
from beam_dpcount.counters.change import Spread
from beam_dpcount.mechanisms.base import Mechanism
from beam_dpcount.statistics.base import Additions, Codes, IntArray
from beam_dpcount.statistics.episode_bounds import Reach, reach_of_all, reach_of_dictionary
from beam_dpcount.statistics.letters import MOST_WORDS, LettersChange, LetterStatistic

_KINDS = (("<u1", 8), ("<u2", 16), ("<u4", 32))


class Starts(NamedTuple):
    """The memory: the number of steps so far, and by prefix of an episode its latest start.

    That is the latest step at which an occurrence of it started, or 0; shape (prefixes + 1,), place
    0 unused. Never changed in place.
    """

    step: int
    latest: IntArray


class _Ends(NamedTuple):
    """The prefixes that end in one letter, their parents, and their coordinates or -1."""

    prefixes: IntArray
    parents: IntArray
    coordinates: IntArray


@dataclass(frozen=True)
class Episodes(LetterStatistic):
    """How many minimal occurrences each episode has had, by the letter that ends them.

    Args:
      domain, max_length, words: as for LetterStatistic.
      max_span: count only minimal occurrences of at most this many steps, end - start + 1.

    Empty letters are gaps: time passes, and nothing ends. A letter takes time proportional to the
    number of prefixes that end in it; `step` also copies the memory, one number a prefix (with
    max_length, an episode) however long the stream.

    Raises:
      ValueError, TypeError: as for LetterStatistic; max_span is shorter than an episode, or there
        would be more than 10^6 prefixes.
    """

    max_span: int | None = None

    noun: ClassVar[str] = "episodes"
    remedy: ClassVar[str | None] = "count shorter episodes, or give a list of episodes"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.words is not None and self._prefixes > MOST_WORDS:
            raise ValueError(
                f"the dictionary's episodes have {self._prefixes:,} different prefixes, and at "
                f"most {MOST_WORDS:,} can be remembered: give fewer or shorter episodes"
            )
        if self.max_span is not None:
            object.__setattr__(self, "max_span", check_whole("max_span", self.max_span))
            if self.max_span < self.longest:
                problem = f"={self.max_span} steps hold no episode of {self.longest} letters"
                remedy = "give a larger {max_span}, or leave the longer episodes out"
                raise ParameterError("max_span", problem, remedy)

    def init(self) -> Starts:
        return Starts(0, np.zeros(self._prefixes + 1, dtype=np.int64))

    def step(self, memory: Starts, codes: Codes) -> tuple[Starts, Additions]:
        (letter,) = codes
        after = Starts(memory.step + 1, memory.latest.copy() if letter else memory.latest)
        return after, [(place, 1) for place in self._advance(after, letter).tolist()]

    def all(self, memory: Starts, codes: IntArray) -> tuple[Starts, IntArray]:
        added = np.zeros((len(codes), self.dimension), dtype=np.int64)
        latest = memory.latest.copy()
        for row, letter in enumerate(codes[:, 0].tolist(), start=1):
            added[row - 1, self._advance(Starts(memory.step + row, latest), letter)] = 1
        return Starts(memory.step + len(codes), latest), added

    def _advance(self, after: Starts, letter: int) -> IntArray:
        """Write the starts after this letter, and return the coordinates that end with it.

        The letter extends the latest occurrence of a prefix's parent. A minimal occurrence ends
        here if and only if that start is later than the prefix's own.
        """
        if not letter:
            return np.zeros(0, dtype=np.int64)
        latest = after.latest
        latest[0] = after.step  # a prefix of one letter starts here
        prefixes, parents, coordinates = self._ends[letter - 1]
        starts = latest[parents]
        ended = starts > latest[prefixes]
        latest[prefixes] = starts
        latest[0] = 0
        if self.max_span is not None:
            ended &= starts > after.step - self.max_span
        ended &= coordinates >= 0
        return coordinates[ended]

    def pack(self, memory: Starts) -> bytes:
        """The step in 8 bytes; then, in 1, 2, 4 or 8 bytes a prefix, how many steps ago it started.

        From 1; 0 is never, or with max_span, too long ago to matter.
        """
        ages = np.where(memory.latest > 0, memory.step + 1 - memory.latest, 0)[1:]
        if self.max_span is not None:
            ages[ages >= self.max_span] = 0
        return memory.step.to_bytes(8, "little") + ages.astype(self._kind(memory.step)).tobytes()

    def unpack(self, data: bytes) -> Starts:
        step = int.from_bytes(data[:8], "little")
        kind = self._kind(step)
        if len(data) != 8 + self._prefixes * np.dtype(kind).itemsize or step >= 2**62:
            raise ValueError("these bytes hold no starts of these episodes")
        ages = np.frombuffer(data[8:], dtype=kind).astype(np.int64)
        most = step if self.max_span is None else min(step, self.max_span - 1)
        if not ((ages >= 0) & (ages <= most)).all():
            raise ValueError("these bytes hold starts that are too long ago")
        latest = np.where(ages > 0, step + 1 - ages, 0)
        return Starts(step, np.concatenate([np.zeros(1, dtype=np.int64), latest]))

    def change(self, relation: str) -> EpisodesChange:
        limited = self.max_span is not None
        return EpisodesChange(relation=relation, limited=limited, **self._counted)

    @property
    def summary(self) -> str:
        span = "" if self.max_span is None else f", within {self.max_span} steps"
        return super().summary + span

    def _kind(self, step: int) -> str:
        most = step if self.max_span is None else min(step, self.max_span)
        return next((kind for kind, bits in _KINDS if most < 2**bits), "<i8")

    @cached_property
    def _tree(self) -> dict[tuple[int, int], int]:
        """All prefixes of the dictionary's episodes, from 1, by their parent and last letter."""
        tree: dict[tuple[int, int], int] = {}
        for episode in self.coded:
            node = 0
            for letter in episode:
                node = tree.setdefault((node, letter), len(tree) + 1)
        return tree

    @cached_property
    def _prefixes(self) -> int:
        return self.dimension if self.words is None else len(self._tree)

    @cached_property
    def _ends(self) -> tuple[_Ends, ...]:
        """What a letter extends, for each letter."""
        u = len(self.domain)
        if self.words is None:
            # An episode is the number that its letters, digits 1 .. u, write in base u, the first
            # letter leading: 1, 2, 3, ... are all in order of length, then of the domain.
            every = [np.arange(letter, self._prefixes + 1, u) for letter in range(1, u + 1)]
            return tuple(_Ends(p, (p - 1) // u, p - 1) for p in every)
        coordinates = np.full(self._prefixes + 1, -1, dtype=np.int64)
        for place, episode in enumerate(self.coded):
            node = 0
            for letter in episode:
                node = self._tree[node, letter]
            coordinates[node] = place
        by_letter: list[list[tuple[int, int]]] = [[] for _ in range(u)]
        for (parent, letter), node in self._tree.items():
            by_letter[letter - 1].append((node, parent))
        tables = [np.array(nodes, dtype=np.int64).reshape(-1, 2) for nodes in by_letter]
        return tuple(_Ends(t[:, 0], t[:, 1], coordinates[t[:, 0]]) for t in tables)


@dataclass(frozen=True)
class EpisodesChange(LettersChange):
    """What one letter changes in the numbers of minimal occurrences of episodes.

    Args:
      relation, letters, max_length, dictionary: as for LettersChange.
      limited: whether only occurrences within a span are counted.

    Guarantee: an episode of m letters, s of which are the old or the new one, changes at P + N <=
      min(m, 2 s) steps, up by 1 at P <= s of them and down by 1 at N <= s, which costs at most
      c^2 (P^2 + N^2) where no two columns of R have a negative product, c^2 (P + N)^2 otherwise.
      Without a limit on spans P^2 + N^2 <= ceil(m/2)^2 + floor(m/2)^2: 1, 2, 5, 8, 13, 18; with
      one, at most m^2; episodes attain both (up to m = 5, and always). Norms are sums over all
      episodes, for the worst old and new letter: as `episode_bounds` counts them, less than sums of
      these. [FHU22, Corollary 5] states less, and fails. docs/proofs/sequences.md has the proof.
    """

    limited: bool = False

    noun: ClassVar[str] = "episodes"

    def spread(self, mechanism: Mechanism) -> Spread:
        reach, column = self._reach, Fraction(mechanism.l2_sensitivity_squared)
        squares = reach.squares if mechanism.is_nonnegative else reach.l1_squares
        return Spread(reach.l1, column * squares, reach.touched)

    @cached_property
    def _reach(self) -> Reach:
        replaces = self.relation == "replace_one"
        if self.dictionary is not None:
            return reach_of_dictionary(self.dictionary, replaces, self.limited)
        return reach_of_all(self.letters, self.max_length or 1, replaces, self.limited)

"""Letters of a small public domain, and words of them: how they are read and named.

A letter is coded by its place in the domain, from 1; 0 is the empty letter: no event.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, ClassVar

import numpy as np

from beam_dpcount.checks import ParameterError, check_texts, check_whole
from beam_dpcount.counters.change import SpreadChange
from beam_dpcount.statistics.base import Codes, Statistic
from beam_dpcount.statistics.items import places

MOST_WORDS = 10**6
EMPTY = (0,)

EITHER = "give either max_length, to count all {noun} up to it, or words, to count these, not both"
NOT_A_LETTER = "the value is not a letter: not a str"
UNKNOWN = "the value is a letter that is not in the domain"


def check_letters(domain: object) -> tuple[str, ...]:
    """`domain` as a tuple of distinct plain strings. A str is the sequence of its characters.

    Raises:
      TypeError, ValueError: it is something else, or two words could have one label.
    """
    example = 'give the public letters in a fixed order, e.g. domain=["open", "read", "close"]'
    letters = check_texts("domain", domain, "letter", example, spread=True)
    if "" in letters:
        raise ParameterError("domain", 'holds "", which stands for an empty step', "leave it out")
    if not _single(letters):
        spaced = next((letter for letter in letters if " " in letter), None)
        if spaced is not None:
            problem = f"letter {spaced!r} holds a space, which separates the letters of a word"
            raise ValueError(f"{problem}: rename it, e.g. with _ in place of the space")
    return letters


def read_letter(payload: object, known: Mapping[str, int]) -> tuple[tuple[int], str | None]:
    """The code of a letter, by `places` of the domain, and why it does not count, if it does not.

    None or "" is the empty letter, which is not a rejection. The reason does not show the payload.
    """
    if payload is None:
        return EMPTY, None
    if not isinstance(payload, str):
        return EMPTY, NOT_A_LETTER
    letter = str.__str__(payload)  # an enum's hash is not its text's
    if not letter:
        return EMPTY, None
    place = known.get(letter)
    return (EMPTY, UNKNOWN) if place is None else ((place,), None)


def spell(letters: Iterable[str], domain: Sequence[str]) -> str:
    """The label of a word, which no other word of the domain has."""
    return ("" if _single(domain) else " ").join(letters)


def check_words(words: object, domain: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """Words as tuples of their letters' codes, in their order.

    A word is a str, its letters single characters or else separated by spaces, or a sequence of
    letters.

    Raises:
      TypeError, ValueError: a word is not of the domain or is there twice, or there are none.
    """
    example = 'give the ones to count in a fixed order, e.g. ["ab", "ba"] or [("open", "close")]'
    if isinstance(words, str | bytes | Mapping) or not isinstance(words, Sequence | np.ndarray):
        problem = f"words must be a sequence of words, got {type(words).__name__}"
        raise TypeError(f"{problem}: {example}")
    if not len(words):
        raise ValueError(f"there are no words: {example}")
    known = places(domain)
    coded: dict[tuple[int, ...], None] = {}
    for word in words:
        codes = _code(word, f"word {word!r}", known, _single(domain), example)
        if codes in coded:
            raise ValueError(f"word {word!r} is there twice: give each word once")
        coded[codes] = None
    return tuple(coded)


def _code(
    word: object, name: str, known: Mapping[str, int], single: bool, example: str
) -> tuple[int, ...]:
    if isinstance(word, str):
        text = str.__str__(word)
        letters = list(text) if single else [letter for letter in text.split(" ") if letter]
    elif isinstance(word, bytes | Mapping) or not isinstance(word, Sequence | np.ndarray):
        raise TypeError(f"{name} is neither a str nor a sequence of letters: {example}")
    else:
        letters = list(word)
    if not letters:
        raise ValueError(f"{name} is empty: {example}")
    for letter in letters:
        if not isinstance(letter, str):
            raise TypeError(f"{name} holds {letter!r}, which is not a str: {example}")
        if str.__str__(letter) not in known:
            problem = f"{name} holds {letter!r}, which is not in the domain"
            raise ValueError(f"{problem}: add it there, or leave the word out")
    return tuple(known[str.__str__(letter)] for letter in letters)


def _single(domain: Sequence[str]) -> bool:
    return all(len(letter) == 1 for letter in domain)


@dataclass(frozen=True)
class LetterStatistic(Statistic):
    """Counts of words of letters: of all words up to a length, or of listed ones.

    Args:
      domain: the public letters, a sequence of distinct str.
      max_length: count all words of up to this many letters, by length, then
        in the order of the domain.
      words: or count these only, in this order, as `check_words` takes them; kept as labels.

    Raises:
      ValueError, TypeError: an argument is out of range, both or neither of max_length and
        words are given, or there would be more than 10^6 words.
    """

    domain: tuple[str, ...]
    max_length: int | None = None
    words: tuple[str, ...] | None = None

    noun: ClassVar[str] = "words"

    def __post_init__(self) -> None:
        object.__setattr__(self, "domain", check_letters(self.domain))
        if (self.max_length is None) == (self.words is None):
            raise ValueError(EITHER.format(noun=self.noun))
        if self.words is not None:
            coded = check_words(self.words, self.domain)
            words = ([self.domain[code - 1] for code in word] for word in coded)
            labels = tuple(spell(letters, self.domain) for letters in words)
            object.__setattr__(self, "words", labels)
            return
        object.__setattr__(self, "max_length", check_whole("max_length", self.max_length))
        self._check_size()

    def _check_size(self) -> None:
        letters, longest = len(self.domain), self.longest
        number = longest if letters == 1 else 0
        for j in range(1, 1 if letters == 1 else longest + 1):
            number += letters**j
            if number > 10**18:
                break
        if number > MOST_WORDS:
            count = f"more than {10**18:,}" if number > 10**18 else f"{number:,}"
            raise ParameterError(
                "max_length",
                f"{letters} letters make {count} {self.noun} of 1 to {longest} letters, and at "
                f"most {MOST_WORDS:,} can be counted",
                "give a smaller {max_length}, group the rare letters under one name, or give a "
                f"list of the {self.noun} to count",
                whole=True,
            )

    @cached_property
    def labels(self) -> tuple[str, ...]:
        if self.words is not None:
            return self.words
        words = (w for j in range(1, self.longest + 1) for w in product(self.domain, repeat=j))
        return tuple(spell(word, self.domain) for word in words)

    @property
    def dimension(self) -> int:
        if self.words is not None:
            return len(self.words)
        return sum(len(self.domain) ** j for j in range(1, self.longest + 1))

    @property
    def longest(self) -> int:
        return self.max_length or max(map(len, self.coded))

    @property
    def empty(self) -> Codes:
        return EMPTY

    def read(self, payload: object) -> tuple[Codes, str | None]:
        return read_letter(payload, self._places)

    @property
    def summary(self) -> str:
        if self.words is None:
            return f"{self.noun} of up to {self.longest} of {len(self.domain)} letters"
        return f"{self.dimension} {self.noun} of {len(self.domain)} letters"

    @property
    def _counted(self) -> dict[str, Any]:
        """What is counted, as LettersChange takes it."""
        listed = None if self.words is None else self.coded
        return {"letters": len(self.domain), "max_length": self.max_length, "dictionary": listed}

    @cached_property
    def _places(self) -> dict[str, int]:
        return places(self.domain)

    @cached_property
    def coded(self) -> tuple[Codes, ...]:
        """The dictionary's words as codes of letters."""
        return check_words(self.words, self.domain)


@dataclass(frozen=True)
class LettersChange(SpreadChange):
    """What one letter changes in counts of words.

    Args:
      relation: "replace_one" (default): a letter is any other, or its step is empty. "add_remove":
        the letter is there, or its step is empty.
      letters: the size of the domain.
      max_length: all words up to it are counted.
      dictionary: or these, as codes of letters.
    """

    letters: int = 1
    max_length: int | None = None
    dictionary: tuple[Codes, ...] | None = None

    noun: ClassVar[str] = "words"

    @property
    def longest(self) -> int:
        return self.max_length or max(map(len, self.dictionary or ()))

    def __str__(self) -> str:
        what = {
            "replace_one": "what any one letter is",
            "add_remove": "whether any one letter is there or its step is empty",
        }[self.relation]
        return f"{self.relation} ({what}, {self.noun} of up to {self.longest})"

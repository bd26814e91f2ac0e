"""Letters of a small public alphabet, and words of them: how they are read and named.

A letter is coded by its place in the alphabet, from 1; 0 is the empty letter: no event.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, ClassVar

import numpy as np

from beam_dpcount.checks import ParameterError, check_texts, check_whole
from beam_dpcount.statistics.base import Codes, Statistic
from beam_dpcount.statistics.items import places

MOST_WORDS = 10**6
EMPTY = (0,)

NOT_A_LETTER = "the value is no letter: not a str"
UNKNOWN = "the value is a letter that is not in the alphabet"


def check_alphabet(alphabet: Any) -> tuple[str, ...]:
    """`alphabet` as a tuple of distinct plain strings. A str is the sequence of its characters.

    Raises:
      TypeError, ValueError: it is something else, or two words of its letters could have one label;
        the message says what to pass.
    """
    example = 'give the public letters in a fixed order, e.g. alphabet=["open", "read", "close"]'
    letters = check_texts("alphabet", alphabet, "letter", example, spread=True)
    if "" in letters:
        raise ParameterError("alphabet", 'holds "", which stands for an empty step', "leave it out")
    if not _single(letters):
        spaced = next((letter for letter in letters if " " in letter), None)
        if spaced is not None:
            raise ValueError(
                f"letter {spaced!r} holds a space, which separates the letters of a word: "
                "rename it, e.g. with _ in place of the space"
            )
    return letters


def read_letter(payload: Any, known: Mapping[str, int]) -> tuple[tuple[int], str | None]:
    """The code of a letter, and why it does not count, if it does not.

    Args:
      payload: a letter; None or "" is the empty letter, which is no rejection.
      known: `places` of the alphabet.

    Returns:
      The code, alone in a tuple; and None or the reason, which does not show the payload.
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


def spell(letters: Iterable[str], alphabet: Sequence[str]) -> str:
    """The label of a word: different words of one alphabet have different labels."""
    return ("" if _single(alphabet) else " ").join(letters)


def check_words(words: Any, alphabet: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """A dictionary as tuples of the letters' codes, in its order.

    Args:
      words: a sequence of words. A word is a str, its letters single characters or else separated
        by spaces, or a sequence of letters.
      alphabet: from `check_alphabet`.

    Raises:
      TypeError, ValueError: a word is no word of the alphabet, or is there twice, or none is there;
        the message names it.
    """
    example = 'give the words to count in a fixed order, e.g. ["ab", "ba"] or [("open", "close")]'
    if isinstance(words, str | bytes | Mapping) or not isinstance(words, Sequence | np.ndarray):
        raise TypeError(f"words must be a sequence of words, got {type(words).__name__}: {example}")
    if not len(words):
        raise ValueError(f"there are no words: {example}")
    known = places(alphabet)
    coded: dict[tuple[int, ...], None] = {}
    for word in words:
        codes = _code(word, known, _single(alphabet), example)
        if codes in coded:
            raise ValueError(f"word {word!r} is there twice: give each word once")
        coded[codes] = None
    return tuple(coded)


def _code(word: Any, known: Mapping[str, int], single: bool, example: str) -> tuple[int, ...]:
    if isinstance(word, str):
        text = str.__str__(word)
        letters = list(text) if single else [letter for letter in text.split(" ") if letter]
    elif isinstance(word, bytes | Mapping) or not isinstance(word, Sequence | np.ndarray):
        raise TypeError(f"word {word!r} is neither a str nor a sequence of letters: {example}")
    else:
        letters = list(word)
    if not letters:
        raise ValueError(f"word {word!r} is empty: {example}")
    for letter in letters:
        if not isinstance(letter, str):
            raise TypeError(f"word {word!r} holds {letter!r}, which is no str: {example}")
        if str.__str__(letter) not in known:
            raise ValueError(
                f"word {word!r} holds {letter!r}, which is not in the alphabet: add it there, "
                "or leave the word out"
            )
    return tuple(known[str.__str__(letter)] for letter in letters)


def _single(alphabet: Sequence[str]) -> bool:
    return all(len(letter) == 1 for letter in alphabet)


@dataclass(frozen=True)
class LetterStatistic(Statistic):
    """What is counted of words of an alphabet, all of them up to a length or those of a dictionary.

    Args:
      alphabet: the public letters, a sequence of distinct str.
      max_length: count all words of 1 to this many letters, in order of length, then of the
        alphabet.
      dictionary: or count these words only, in this order: each a str (its letters are separated
        by spaces, unless all letters are single characters) or a sequence of letters. It is kept
        as labels.

    Raises:
      ValueError, TypeError: an argument is outside its range, both or none of max_length and
        dictionary are given, or there would be more than 10^6 words; the message says what to do.
    """

    alphabet: tuple[str, ...]
    max_length: int | None = None
    dictionary: tuple[str, ...] | None = None

    noun: ClassVar[str] = "words"  # what they are called

    def __post_init__(self) -> None:
        object.__setattr__(self, "alphabet", check_alphabet(self.alphabet))
        if (self.max_length is None) == (self.dictionary is None):
            raise ValueError(
                f"give either max_length, to count all {self.noun} up to it, or a list of "
                f"{self.noun} to count, not both"
            )
        if self.dictionary is not None:
            coded = check_words(self.dictionary, self.alphabet)
            labels = tuple(self._spell([self.alphabet[code - 1] for code in w]) for w in coded)
            object.__setattr__(self, "dictionary", labels)
            return
        object.__setattr__(self, "max_length", check_whole("max_length", self.max_length))
        self._check_size()

    def _check_size(self) -> None:
        letters, longest = len(self.alphabet), self.longest
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

    @property
    def labels(self) -> tuple[str, ...]:
        return self._labels

    @cached_property
    def _labels(self) -> tuple[str, ...]:
        if self.dictionary is not None:
            return self.dictionary
        lengths = range(1, self.longest + 1)
        return tuple(self._spell(w) for j in lengths for w in product(self.alphabet, repeat=j))

    @property
    def dimension(self) -> int:
        if self.dictionary is not None:
            return len(self.dictionary)
        return sum(len(self.alphabet) ** j for j in range(1, self.longest + 1))

    @property
    def longest(self) -> int:
        """The length of the longest word."""
        return self.max_length or max(map(len, self.coded))

    @property
    def empty(self) -> Codes:
        return EMPTY

    def read(self, payload: Any) -> tuple[Codes, str | None]:
        return read_letter(payload, self._places)

    @property
    def summary(self) -> str:
        if self.dictionary is None:
            return f"{self.noun} of up to {self.longest} of {len(self.alphabet)} letters"
        return f"{self.dimension} {self.noun} of {len(self.alphabet)} letters"

    def _spell(self, letters: Sequence[str]) -> str:
        return spell(letters, self.alphabet)

    @cached_property
    def _places(self) -> dict[str, int]:
        return places(self.alphabet)

    @cached_property
    def coded(self) -> tuple[Codes, ...]:
        """The dictionary's words as codes of letters."""
        return check_words(self.dictionary, self.alphabet)

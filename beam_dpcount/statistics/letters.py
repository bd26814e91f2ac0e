"""Letters of a small public alphabet, and words of them: how they are read and named.

A letter is coded by its place in the alphabet, from 1; 0 is the empty letter: no event.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from beam_dpcount.items import places

__all__ = ["EMPTY", "UNKNOWN", "check_alphabet", "check_words", "places", "read_letter", "spell"]

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
    # The order must be the same in every worker and run: sets have none.
    if isinstance(alphabet, bytes | Mapping) or not isinstance(alphabet, Sequence | np.ndarray):
        raise TypeError(
            f"alphabet must be a sequence of str, got {type(alphabet).__name__}: {example}"
        )
    for letter in alphabet:
        if not isinstance(letter, str):
            raise TypeError(f"alphabet must be a sequence of str, but holds {letter!r}: {example}")
    letters = tuple(str.__str__(letter) for letter in alphabet)
    if not letters:
        raise ValueError(f"alphabet is empty: {example}")
    if "" in letters:
        raise ValueError('alphabet holds "", which stands for an empty step: leave it out')
    if len(set(letters)) < len(letters):
        twice = next(letter for letter in letters if letters.count(letter) > 1)
        raise ValueError(f"alphabet names {twice!r} twice: give each letter once")
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

"""SubstringCount and EpisodeCount: private counts of words and episodes in sequences of letters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass

from beam_dpcount.statistics import Episodes, Statistic, Words
from beam_dpcount.transforms.elements import NamedCount


@dataclass(eq=False, repr=False)
class _LetterCount(NamedCount):
    """A count of words of letters."""

    domain: Sequence[str]
    max_length: int | None = None
    _: KW_ONLY
    words: Sequence[str | Sequence[str]] | None = None

    def _build(self) -> Statistic:
        # The statistic takes a text as its letters. Here it is mostly a mistake.
        if isinstance(self.domain, str):
            raise TypeError(
                f"domain must be a sequence of letters, got the text {self.domain!r}: give "
                f"[{self.domain!r}], or list({self.domain!r}) where its characters are the letters"
            )
        return super()._build()


@dataclass(eq=False, repr=False)
class SubstringCount(_LetterCount):
    """Private running counts of the words in each key's sequence of letters.

    PCollection[KV[str, letter]] -> PCollection[VectorRelease], its value aligned to `labels`; with
    on_reject="collect", -> (releases, rejected). Order as for PrefixCount. A word counts once for
    every place where it stands, with no other letter between its own; places may overlap.

    Args:
      horizon: the most letters, empty ones included, that any key will have.
      domain: the letters, a sequence of distinct str; public. A letter may have several
        characters, as "login" has. None or "" is the empty letter: a step without an event, which
        no word reaches across.
      max_length: count all words of up to so many letters: u + u^2 + ... of u letters.
      words: or count these only: texts, spelled as in `labels`, or sequences of letters.
      relation: "replace_one" (default): a letter is any other, or the empty one. "add_remove": a
        letter is there, or its step is empty; it takes less noise.
      on_reject: as for PrefixCount, for elements that are not a letter of the domain. They count
        as the empty letter in any case.
      budget, every, mechanism, value, element_id, path, entropy, allow_runner, users: as for
        PrefixCount, without Unbounded and Sparse; `value` takes the letter out of an element's
        value.

    Guarantee: for each key, and window, the values of all its releases together satisfy `budget`
      for sequences that differ in any one letter as `relation` says. Public, so not protected: the
      keys, the domain and words, and the number, order and timestamps of the elements. One letter
      changes the words that reach over its place, at several steps: Delta_2 is not that of
      [FHU22]'s Corollary 4, which is too small, but that of docs/proofs/sequences.md, "Substrings".
      Noise and retries as for PrefixCount.

    Attributes:
      counter: as for PrefixCount, of vectors.
      labels: the words, as texts: letters joined by "", or by " " if any has several characters.

    Raises:
      ValueError, TypeError: as for PrefixCount, and at construction for unknown letters, and for
        too many words, none, or one twice.

    Example:
      >>> import beam_dpcount as dp
      >>> count = dp.SubstringCount(dp.ZCDP(0.5), 1000, ["a", "b"], 2)
      >>> count.labels
      ('a', 'b', 'aa', 'ab', 'ba', 'bb')
    """

    _kind = Words


@dataclass(eq=False, repr=False)
class EpisodeCount(_LetterCount):
    """Private running counts of serial episodes in each key's sequence of letters.

    PCollection[KV[str, letter]] -> PCollection[VectorRelease], as for SubstringCount. An episode
    is a word whose letters may have others between them. It counts once for each minimal
    occurrence: a stretch that holds its letters in order, with no shorter such stretch inside.

    To find episodes of minimum support, compare the private counts with a threshold: that is
    post-processing, and as noisy as the counts.

    Args:
      budget, horizon, domain, relation, every, on_reject and the options: as for SubstringCount,
        but the empty letter breaks nothing: time passes.
      max_length: count all episodes of up to so many letters.
      words: or count these episodes only.
      max_span: count occurrences of at most so many steps from first to last letter, both counted.

    Guarantee: as for SubstringCount; one letter changes an episode of m letters at up to m steps,
      which may lie long after its own. [FHU22]'s Corollary 5 is too small; see
      docs/proofs/sequences.md, "Episodes".

    Attributes:
      counter, domain, words, labels: as for SubstringCount.

    Raises:
      ValueError, TypeError: as for SubstringCount.

    Example:
      >>> import beam_dpcount as dp
      >>> actions = ["login", "read", "logout"]
      >>> words = [["login", "logout"]]
      >>> count = dp.EpisodeCount(dp.ZCDP(0.5), 1000, actions, words=words, max_span=20)
      >>> count.labels
      ('login logout',)
    """

    _: KW_ONLY
    max_span: int | None = None

    _kind = Episodes

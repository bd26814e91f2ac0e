"""SubstringCount and EpisodeCount: private counts of words and episodes in sequences of letters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, cast

from beam_dpcount.statistics import Episodes, Statistic, Words
from beam_dpcount.transforms.statistics import StatisticCount


@dataclass(eq=False, repr=False)
class SubstringCount(StatisticCount):
    """Private running counts of the words in each key's sequence of letters.

    PCollection[KV[str, letter]] -> PCollection[VectorRelease], its value aligned to `domain`; with
    on_reject="collect", -> (releases, rejected). Order as for PrefixCount: by event time on bounded
    input, of arrival on unbounded input. A word counts once for every place where it stands, with
    no other letter between its own; places may overlap.

    Args:
      budget: PureDP, ApproxDP, ZCDP or a share of a `Ledger`: what all releases of one key may
        cost together.
      horizon: the most letters, empty ones included, that any key will have.
      alphabet: the letters, a sequence of distinct str; public. A letter may have several
        characters, as "login" has. None or "" is the empty letter: a step without an event, which
        no word reaches across.
      max_length: count all words of up to so many letters: u + u^2 + ... of u letters.
      words: or count these only: texts, spelled as in `domain`, or sequences of letters.
      relation: "replace_one" (default): a letter is any other, or the empty one. "add_remove": a
        letter is there, or its step is empty; it takes less noise.
      every: a release after so many steps. Default 1. The state is the same, and so is the noise.
      on_reject: what happens to elements that are no letter of the alphabet. They are counted as
        the empty letter in any case. "drop" (default), "collect", "raise": as for PrefixCount.
      mechanism, value, element_id, path, entropy, allow_runner: as for PrefixCount, without
        Unbounded and Sparse; `value` takes the letter out of an element's value.

    Guarantee: for each key, and window, the values of all its releases together satisfy `budget`
      for sequences that differ in any one letter as `relation` says. Public, so not protected: the
      keys, the alphabet and words, and the number, order and timestamps of the elements. One letter
      changes the words that reach over its place, at several steps: Delta_2 is not [FHU22]'s
      Corollary 4, which is too small, but that of docs/proofs/sequences.md, "Substrings".
      Noise and retries as for PrefixCount.

    Attributes:
      counter: the calibrated vector counter; the one in use, once the transform is applied.
      domain: the words, as a tuple of texts: letters joined by "", or by " " where some letter has
        several characters.

    Raises:
      ValueError, TypeError: at construction, for arguments out of range, unknown letters, too many
        words, none or one twice; when applied, as for PrefixCount.

    Example:
      >>> import beam_dpcount as dp
      >>> count = dp.SubstringCount(dp.ZCDP(0.5), 1000, ["a", "b"], 2)
      >>> count.domain
      ('a', 'b', 'aa', 'ab', 'ba', 'bb')
    """

    _smaller = "count shorter words, or give a list of words"

    alphabet: Sequence[str]
    max_length: int | None = None
    _: KW_ONLY
    words: Sequence[str | Sequence[str]] | None = None

    statistic: Statistic = field(init=False)

    def _made(self) -> Statistic:
        return Words(_letters(self.alphabet), self.max_length, cast(Any, self.words))


@dataclass(eq=False, repr=False)
class EpisodeCount(StatisticCount):
    """Private running counts of serial episodes in each key's sequence of letters.

    PCollection[KV[str, letter]] -> PCollection[VectorRelease], as for SubstringCount. An episode
    is a word whose letters may have others between them. It counts once for each of its minimal
    occurrences: stretches of the sequence that hold its letters in order, and no shorter stretch
    within that does.

    Episodes of minimum support are post-processing: compare the private counts with a threshold.
    Which of them pass is then as private as the counts, and as noisy.

    Args:
      budget, horizon, alphabet, relation, every, on_reject and the options: as for SubstringCount,
        but the empty letter breaks nothing: time passes.
      max_length: count all episodes of up to so many letters.
      episodes: or count these only.
      max_span: count occurrences of at most so many steps from first to last letter, both counted.

    Guarantee: as for SubstringCount; one letter changes an episode of m letters at up to m steps,
      that may lie long after its own. [FHU22]'s Corollary 5 is too small; see
      docs/proofs/sequences.md, "Episodes".

    Attributes:
      counter, domain: as for SubstringCount.

    Raises:
      ValueError, TypeError: as for SubstringCount.

    Example:
      >>> import beam_dpcount as dp
      >>> actions = ["login", "read", "logout"]
      >>> episodes = [["login", "logout"]]
      >>> count = dp.EpisodeCount(dp.ZCDP(0.5), 1000, actions, episodes=episodes, max_span=20)
      >>> count.domain
      ('login logout',)
    """

    _smaller = "count shorter episodes, or give a list of episodes"

    alphabet: Sequence[str]
    max_length: int | None = None
    _: KW_ONLY
    episodes: Sequence[str | Sequence[str]] | None = None
    max_span: int | None = None

    statistic: Statistic = field(init=False)

    def _made(self) -> Statistic:
        chosen = cast(Any, self.episodes)
        return Episodes(_letters(self.alphabet), self.max_length, chosen, self.max_span)


def _letters(alphabet: Sequence[str]) -> Any:
    """As the statistics take them, who check them; but a text is more often a mistake than letters.

    Raises:
      TypeError: the alphabet is a text.
    """
    if isinstance(alphabet, str):
        raise TypeError(
            f"alphabet must be a sequence of letters, got the text {alphabet!r}: give "
            f"[{alphabet!r}], or list({alphabet!r}) where its characters are the letters"
        )
    return alphabet

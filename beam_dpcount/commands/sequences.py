"""Private running counts of words, or of episodes, in the sequences of letters of an event log.

Reads CSV, JSON lines or Parquet; the rows of a key are a sequence of letters, texts of a column out
of a public domain. Counts all words of up to so many letters, or given ones: a word counts once
for every place where its letters stand, with no other row between them; with --episodes once for
every shortest stretch of rows that holds them in order. Writes, after every so many rows of a key,
the words of the largest private counts: key, step, timestamp, rank, word, value, low, high, where
low to high is the 95 % band of a word named beforehand; it misses more often for words chosen
because they are on top. A row without a letter of the domain is a step without an event, which no
word reaches across; see --rest.
Rows of a key are taken in the order of their timestamps (ties: by file and row), or without
--timestamp in the order of the files. Without --key all rows have the key "all".
The keys, the domain, the words to count and the number, order and times of the rows are public;
the letter of a row is protected. An empty cell is a key like others; a null in Parquet stops the
command if it is a key. Options that are not listed here go to Beam, e.g. --runner.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, ClassVar

import beam_dpcount as dp
from beam_dpcount.arguments.argument import parsed
from beam_dpcount.arguments.table import Changes
from beam_dpcount.checks import ParameterError, check_whole
from beam_dpcount.commands import options as opt
from beam_dpcount.commands.figures import keys as plot_keys
from beam_dpcount.commands.figures.pictures import Ranked, Words
from beam_dpcount.commands.files.addresses import is_afar
from beam_dpcount.commands.files.formats import Event, InputError, Places, Source, Table, text
from beam_dpcount.commands.report import LEVEL, Estimate, how_often, many, unchecked
from beam_dpcount.commands.start import command
from beam_dpcount.commands.task import Listed, Task, texts_of
from beam_dpcount.counters.counter import Counter
from beam_dpcount.statistics.letters import check_letters, check_words

_TOP = 10
_RELEASES = 100  # by default, up to the horizon
_PRINTED_KEYS, _PRINTED_WORDS = 5, 10
_DRAWN_KEYS, _DRAWN_WORDS = 4, 40
_COLUMNS = [("rank", int), ("word", str), ("value", float), ("low", float), ("high", float)]


class Sequences(Task):
    """Of words or episodes of letters."""

    name = "sequences"
    known = "the domain, the words to count, and the number, order and times of the rows."
    example = r"""
    beam-dpcount sequences --input out/demo/events.csv --key page \
      --letter action --domain view purchase --max-length 2 \
      --timestamp timestamp --horizon 20000 \
      --epsilon 1 --delta 1e-6 --output out/words.csv
    """

    counts = "elements thinned"
    own = (
        *parsed(
            "input",
            """
            letter COLUMN: keys, required
                the letters
            domain LETTER ...: texts, required, one_of=domain
                all (public) letters
            domain_file FILE: path, one_of=domain, more
                the same, one per line; blank lines are skipped
            rest LETTER: text, more
                count texts that are not in the domain as this one letter of it; default: as no
                event, which cells without text always are
            """,
        ),
        *parsed(
            "count",
            """
            max_length N: whole, required, one_of=words, example=3
                count all words of up to N letters
            words WORD ...: texts, one_of=words
                count these (public) words; separate letters of several characters by spaces, as in
                'login read logout'
            words_file FILE: path, one_of=words, more
                the same, one per line; blank lines are skipped
            episodes: switch
                count minimal occurrences: other letters may stand between those of a word
            max_span N: whole, example=10, more
                with {episodes}, occurrences of at most N rows, from first to last letter
            """,
        ),
        *parsed(
            "output",
            f"""
            top K: whole, uncounted, default={_TOP}, example={_TOP}, more
                write and draw, of each release, the K words of the largest private counts (default
                {_TOP}; at most {_DRAWN_WORDS} are drawn)
            all: switch, uncounted, more
                write all words, draw K of them
            min_count C: number, uncounted, example=100, more
                leave out words of private counts below C: this is post-processing of the private
                counts, which costs no budget, and is as noisy as they are
            """,
        ),
    )
    changes: ClassVar[Changes] = {
        "key": {"help": "the (public) keys; default: one for all"},
        "every": {
            "help": "a release after every M rows of a key; the budget is for all releases, and "
            "the noise does not depend on M. No row is known to be the last, so default: "
            f"T/{_RELEASES}, or 1"
        },
        "relation": {
            "help": "what is protected: that any one row has any other letter (default), or that "
            "it has its letter or none, which takes less noise"
        },
    }

    def check(self) -> None:
        super().check()
        self.kind = "episode" if self.options.episodes else "word"
        self.remedies = {
            "labels": "give a smaller --domain or --max-length, or fewer --words",
            "max_length": "give a smaller --max-length, group the rare letters under one name "
            f"(--rest), or name with --words the {self.kind}s to count",
        }

    def source(self) -> Source:
        return self.read([self.options.letter], text)

    def transform(self, places: Places) -> dp.SubstringCount | dp.EpisodeCount:
        options, words = self.options, None
        opt.check_top(options)
        letters = self.listed_texts("domain", places.paths)
        if options.max_length is None:
            words = self.listed_texts("words", places.paths)
        check_options(letters, words)
        self.letters = letters
        if options.rest is not None and options.rest not in letters:
            raise InputError(f"--rest {options.rest!r} is not in the domain: add it to --domain")
        if options.max_span is not None and not options.episodes:
            raise InputError("--max-span is for --episodes; words have no rows between letters")
        check_whole("horizon", options.horizon)
        if options.every is None:
            options.every = max(1, options.horizon // _RELEASES)
        given: dict[str, Any] = {"relation": options.relation, "every": options.every}
        given |= self.shared(places)
        given["value"] = partial(letter_of, frozenset(letters), options.rest)
        counted = self.given, options.horizon, letters, options.max_length
        given["words"] = words
        made: dp.SubstringCount | dp.EpisodeCount = (
            dp.EpisodeCount(*counted, max_span=options.max_span, **given)
            if options.episodes
            else dp.SubstringCount(*counted, **given)
        )
        self.labels: Sequence[str] = made.labels or ()
        return made

    def finish(self, releases: Any) -> Any:
        words = len(self.labels)
        kept = words if self.options.all else min(self.options.top, words)
        return releases | "Top" >> dp.post.TopK(kept, self.labels)

    def listed(self) -> Listed:
        return Listed("--domain", self.letters, lambda _, event: texts_of(event.value))

    def table(self) -> Table:
        """The words of each release, a row each; low and high are value -/+ its `half_width`."""
        rows = Rows(self.counter, self.options.min_count)
        return Table(_COLUMNS, rows, ("key", "step", "rank"))

    def notes(self) -> list[str]:
        options = self.options
        other = f"as the letter {options.rest!r} (--rest)"
        if options.rest is None:
            then = "time passes" if options.episodes else "no word reaches across it"
            other = f"as no event: {then} (--rest counts them as a letter)"
        lines = [
            f"note: a text of {options.letter} that is not in the domain counts {other}",
            unchecked("the letters are", "their", self.letters),
            f"note: {many(len(self.labels), self.kind)}, and {how_often(options)}",
        ]
        if options.min_count is not None:
            left_out = f"private counts below {options.min_count:g} are left out (--min-count)"
            lines.append(f"note: {left_out}: post-processing, as noisy as the counts")
        return lines

    def estimate(self) -> Estimate:
        options = self.options
        what, title = "the count of a word in letters of the domain", "in letters of the domain"
        left_out = ["texts that are not of the domain"]
        if options.episodes:
            what = "the count of an episode's minimal occurrences in letters of the domain"
        if options.rest is not None:
            title += f", others as {options.rest!r}"
            others = f"what texts say that count as {options.rest!r} (--rest)"
            left_out = [others, "cells without text"]
        if options.max_span is not None:
            span = f"within {options.max_span:,} rows"
            what, title = f"{what} {span}", f"{title}, {span}"
            left_out.append(f"occurrences that are not {span} (--max-span)")
        return Estimate(what, title, left_out)

    def largest(self) -> str:
        of, words = "a key's" if self.options.key else "all", many(self.streams(), self.kind)
        rows = many(self.counter.mechanism.horizon, "row")
        return f"the largest error of {of} counts, of {words} after each of {rows},"

    def findings(self) -> list[str]:
        """The top words of the last releases of some keys; nothing for a remote output."""
        options = self.options
        if is_afar(options.output):
            return []
        last, least = self.output.last, options.min_count
        if not last:
            also = "" if least is None else f", or no count was {least:g}"
            rows = many(options.every, "row")
            return [f"nothing was written: no key has {rows} (--every){also}"]
        which = "" if least is None else f" that has one of {least:g} or more"
        lines = [f"top {self.kind}s of the last release{which}, with 95 % bands:"]
        for key, release in list(last.items())[:_PRINTED_KEYS]:
            lines.append(f"  {_printable(key)}, after {many(release.step, 'row')}:")
            shown = release.rows[: min(options.top, _PRINTED_WORDS)]
            wide = max(len(_printable(word)) for _, word, *_ in shown)
            for rank, word, value, low, high in shown:
                half = (high - low) / 2
                digits = 0 if half >= 10 or half == 0 else 1
                number = f"{value:,.{digits}f} ± {half:,.{digits}f}"
                lines.append(f"    {rank:>2}  {_printable(word):<{wide}}  {number}")
        if len(last) > _PRINTED_KEYS:
            lines.append(f"  ... and of {len(last) - _PRINTED_KEYS:,} other keys in the output")
        return [*lines, *filter(None, [self._chosen()])]

    def picture(self) -> Ranked:
        options, estimate, last = self.options, self.estimate(), self.output.last
        shown, choice = plot_keys.of_most_rows(options, last, _DRAWN_KEYS)
        most = min(options.top, _DRAWN_WORDS)
        own = ["Each panel has its own scale."] if len(shown) > 1 else []
        by = f" by {options.key}" * bool(options.key)
        return Ranked(
            title=f"Private counts of {self.kind}s of {options.letter}{estimate.in_title}{by}",
            covers=f"Error bars: each, by itself, holds with probability 95 % {estimate.what}.",
            remark=estimate.remark,
            choice=[*filter(None, [self._chosen()]), *own, *choice],
            keys=last.keys(),
            panels=[Words(name, note, [r[1:] for r in rows[:most]]) for name, note, rows in shown],
            noun=self.kind,
        )

    def _chosen(self) -> str:
        """What choosing the words does to their counts; empty if all are there."""
        options, words = self.options, len(self.labels)
        if options.top >= words and options.min_count is None:
            return ""
        return (
            f"The {self.kind}s are those of the largest private counts of {words:,}: as they were "
            "chosen for being large, they are biased upwards, and their 95 % bands miss more "
            f"often; ± {dp.largest_error(self.counter, words, LEVEL):.3g} holds for all counts"
            f"{' of a key' if options.key else ''} at once, chosen or not, with probability 95 %."
        )


def check_options(letters: Sequence[str], words: Sequence[str] | None) -> None:
    """Raise InputError, which names the option, for an invalid letter or word."""
    try:
        check_letters(letters)
    except ParameterError:
        raise
    except ValueError as error:
        raise InputError(f"--domain: {error}") from None
    for word in words or ():
        if not word.strip():
            raise InputError(f"--words: {word!r} has no letters; leave it out")
    try:
        if words is not None:
            check_words(words, letters)
    except ValueError as error:
        raise InputError(f"--words: {error}") from None


def letter_of(letters: frozenset[str], rest: str | None, event: Event) -> object:
    """The letter of a row, None where it has none; other texts count as `rest`, if given."""
    cell = event.value
    return cell if not cell or cell in letters else rest


class Rows:
    """The words of a release by rank, without those of smaller private counts than `least`."""

    def __init__(self, counter: Counter, least: float | None) -> None:
        self._counter, self._least = counter, -math.inf if least is None else least
        self._halves: dict[Any, float] = {}

    def __call__(self, release: dp.TopRelease) -> Iterator[tuple[Any, ...]]:
        norm = self._counter.mechanism.row_norm2(release.step)
        if norm not in self._halves:  # computed once for all steps of the same variance
            self._halves[norm] = dp.half_width(self._counter, release.step, LEVEL)
        half = self._halves[norm]
        ranked = enumerate(zip(release.items, release.values, strict=True), start=1)
        for rank, (word, value) in ranked:
            if value < self._least:
                return
            yield rank, word, value, value - half, value + half


def _printable(text: str) -> str:
    return text if text.isprintable() and text.strip() else repr(text)


main = command(Sequences)

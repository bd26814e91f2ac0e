"""Private running counts of words, or of episodes, in the sequences of letters of an event log.

Reads CSV or Parquet; the rows of a key are its sequence, one letter each: the text of a column, out
of a public alphabet. Counts every word of up to so many letters, or given ones: a word counts once
for every place where its letters stand, with no other row between them; with --episodes once for
every shortest stretch of rows that holds them in order. Writes, after every so many rows of a key,
the words of the largest private counts: key, step, timestamp, rank, word, value, low, high, where
low to high is the 95 % band of a word named beforehand; for words that are there because they are
on top it misses more often. A row that has no letter of the alphabet is a step without an event,
which no word reaches across; see --rest.
Rows of a key are taken in the order of their timestamps (ties: by file and row), or without
--timestamp in the order of the files. Without --key all rows have the key "all".
The keys, the alphabet, the words to count and the number, order and times of the rows are public;
the letter of a row is protected. An empty cell is a key like others; a null of Parquet stops the
command as a key. Options that are not listed here go to Beam, e.g. --runner.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
from apache_beam.pvalue import PCollection

import beam_dpcount as dp
from beam_dpcount.checks import ParameterError, check_whole
from beam_dpcount.commands import app as cli
from beam_dpcount.commands import estimates
from beam_dpcount.commands.count import (
    Places,
    add_horizon_argument,
    one_run,
    past_horizon,
    run,
    unchecked,
)
from beam_dpcount.commands.figures import keys as plot_keys
from beam_dpcount.commands.files.read import Event, InputError
from beam_dpcount.commands.files.tables import WriteTable
from beam_dpcount.commands.histogram import read_items
from beam_dpcount.commands.ticks import add_output_arguments, add_path_argument, public_list
from beam_dpcount.counters.counter import Counter
from beam_dpcount.dofns.releases import TopRelease, VectorRelease
from beam_dpcount.statistics.letters import check_alphabet, check_words
from beam_dpcount.transforms.statistics import StatisticCount

LEVEL = 0.95
_TOP = 10
_RELEASES = 100  # by default, up to the horizon
_PRINTED_KEYS, _PRINTED_WORDS = 5, 10
_DRAWN_KEYS, _DRAWN_WORDS = 4, 40

_SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("step", pa.int64()),
        ("timestamp", pa.int64()),
        ("rank", pa.int64()),
        ("word", pa.string()),
        ("value", pa.float64()),
        ("low", pa.float64()),
        ("high", pa.float64()),
    ]
)


def arguments() -> cli.Parser:
    """The options of the command."""
    parser = cli.command("pipelines.sequences", __doc__)
    source = parser.add_argument_group("input")
    cli.add_source_arguments(source)
    source.add_argument("--key", metavar="COLUMN", help="the (public) keys; default: one for all")
    source.add_argument("--letter", required=True, metavar="COLUMN", help="the letters")
    alphabet = source.add_mutually_exclusive_group(required=True)
    alphabet.add_argument("--alphabet", nargs="+", metavar="LETTER", help="all (public) letters")
    alphabet.add_argument(
        "--alphabet-file", metavar="FILE", help="the same, one per line; blank lines are skipped"
    )
    source.add_argument(
        "--rest",
        metavar="LETTER",
        help="count texts that are not in the alphabet as this one letter of it; default: as no "
        "event, as cells without text are in any case",
    )
    cli.add_time_arguments(source)

    cli.add_budget_arguments(parser)
    count = parser.add_argument_group("counting")
    words = count.add_mutually_exclusive_group(required=True)
    words.add_argument(
        "--max-length", type=cli.whole, metavar="N", help="count all words of up to N letters"
    )
    words.add_argument(
        "--words",
        nargs="+",
        metavar="WORD",
        help="count these (public) words; letters of several characters are separated by spaces, "
        "as in 'login read logout'",
    )
    words.add_argument(
        "--words-file", metavar="FILE", help="the same, one per line; blank lines are skipped"
    )
    count.add_argument(
        "--episodes",
        action="store_true",
        help="other letters may stand between those of a word: count its minimal occurrences",
    )
    count.add_argument(
        "--max-span",
        type=cli.whole,
        metavar="N",
        help="with --episodes, occurrences of at most N rows, from first to last letter",
    )
    add_horizon_argument(count)
    count.add_argument(
        "--every",
        type=cli.whole,
        metavar="M",
        help="a release after every M rows of a key; the budget is for all releases, and the noise "
        f"does not depend on M. No row is known to be the last, so default: T/{_RELEASES}, or 1",
    )
    cli.add_mechanism_argument(count)
    cli.add_entropy_arguments(parser)
    count.add_argument(
        "--relation",
        choices=("replace_one", "add_remove"),
        default="replace_one",
        help="what is protected: that any one row has any other letter (default), or that it has "
        "its letter or none, which takes less noise",
    )
    add_path_argument(count)
    add_output_arguments(parser)
    parser.add_argument(
        "--top",
        type=cli.whole,
        default=_TOP,
        metavar="K",
        help="write and draw, of each release, the K words of the largest private counts "
        f"(default {_TOP}; at most {_DRAWN_WORDS} are drawn)",
    )
    parser.add_argument("--all", action="store_true", help="write all words, draw K of them")
    parser.add_argument(
        "--min-count",
        type=number,
        metavar="C",
        help="leave words out of a release whose private count is below C: post-processing of the "
        "private counts, which costs nothing, and is as noisy as they are",
    )
    return parser


def number(text: str) -> float:
    """A finite number; for argparse."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError
    return value


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command.

    Raises:
      ValueError, TypeError, OSError: what the user can mend, in one line each.
    """
    parser = arguments()
    options, flags = parser.parse_known_args(argv)
    cli.budget_of(options)
    events, places = read_items(options, options.letter)
    counts = counting(options, places)
    domain = cast(tuple[str, ...], counts.domain)
    kept = len(domain) if options.all else min(options.top, len(domain))
    pipeline = beam.Pipeline(options=cli.beam_options(flags, parser.names()))
    releases = pipeline | "Read" >> events | "Count" >> counts
    counter = cast(Counter, counts.counter)  # of the path now chosen
    timed = options.timestamp is not None
    _ = (
        releases
        | "Progress" >> beam.ParDo(cli.CountReleases()).with_output_types(VectorRelease)
        | "Top" >> dp.TopK(kept, domain)
        | "Write" >> WriteWords(options.output, counter, timed, options.min_count)
    )
    cli.announce(options, notes(options, len(domain)))
    result = run(pipeline, options)
    last = {} if "://" in options.output else last_words(options.output, options.top)
    missing = []
    if options.plot:
        missing = draw(options, counter, len(domain), last)
    print("\n".join([report(options, counter, len(domain), last, result), *missing]))


def counting(options: argparse.Namespace, places: Places) -> StatisticCount:
    """The transform that the options ask for; it also puts the default of --every there.

    Raises:
      ValueError, TypeError: they make no sense together.
    """
    letters = public_list("--alphabet", options.alphabet, options.alphabet_file, options)
    words = None
    if options.max_length is None:
        words = public_list("--words", options.words, options.words_file, options)
    with cli.named_as_options(options):
        check_letters(letters, words)
    if options.rest is not None and options.rest not in letters:
        raise InputError(
            f"--rest {options.rest!r} is not in the alphabet, of which it is to be a letter: add "
            "it to --alphabet"
        )
    if options.max_span is not None and not options.episodes:
        raise InputError("--max-span is for --episodes; words have no rows between their letters")
    kind = _kind(options)
    remedies = {
        "domain": "give a smaller --alphabet or --max-length, or fewer --words",
        "max_length": "give a smaller --max-length, group the rare letters under one name "
        f"(--rest), or name with --words the {kind}s to count",
    }
    with cli.named_as_options(options, remedies):
        check_whole("horizon", options.horizon)
        if options.every is None:
            options.every = max(1, options.horizon // _RELEASES)
        given: dict[str, Any] = {
            "relation": options.relation,
            "mechanism": options.mechanism,
            "every": options.every,
            "value": LetterOf(letters, options.rest),
            "element_id": places,
            "path": options.path,
            "entropy": cli.entropy_of(options),
        }
        counted = cli.budget_of(options), options.horizon, letters, options.max_length
        if not options.episodes:
            return dp.SubstringCount(*counted, words=words, **given)
        return dp.EpisodeCount(*counted, episodes=words, max_span=options.max_span, **given)


def check_letters(letters: Sequence[str], words: Sequence[str] | None) -> None:
    """Raise InputError, which names the option, where a letter or a word cannot be one."""
    try:
        check_alphabet(letters)
    except ParameterError:
        raise
    except ValueError as error:
        raise InputError(f"--alphabet: {error}") from None
    for word in words or ():
        if not word.strip():
            raise InputError(f"--words: {word!r} has no letters; leave it out")
    try:
        if words is not None:
            check_words(words, letters)
    except ValueError as error:
        raise InputError(f"--words: {error}") from None


class LetterOf:
    """The letter of a row; None where it has none.

    Args:
      letters: the alphabet.
      rest: the letter of it that other texts count as; None: they stay what they are, no letters.
    """

    def __init__(self, letters: Collection[str], rest: str | None) -> None:
        self._letters, self._rest = frozenset(letters), rest

    def __call__(self, event: Event) -> object:
        cell = event.value
        return cell if not cell or cell in self._letters else self._rest


def notes(options: argparse.Namespace, words: int) -> list[str]:
    """What a row counts, and how much is released."""
    other = (
        f"as the letter {options.rest!r} (--rest)"
        if options.rest is not None
        else "as no event: "
        + ("time passes" if options.episodes else "no word reaches across it")
        + " (--rest counts them as a letter)"
    )
    most = options.horizon // options.every
    lines = [
        f"note: a text of {options.letter} that is not in the alphabet counts {other}",
        unchecked("the letters are", "their"),
        f"note: {cli.many(words, _kind(options))}, and a release after every "
        f"{'row' if options.every == 1 else cli.many(options.every, 'row')} of a key (--every), up "
        f"to {most:,}; rows after the last of them have none",
    ]
    if options.min_count is not None:
        lines.append(
            f"note: private counts below {options.min_count:g} are left out (--min-count): "
            "post-processing, as noisy as the counts"
        )
    return lines


def _kind(options: argparse.Namespace) -> str:
    return "episode" if options.episodes else "word"


# Writing, and reading back


class WriteWords(beam.PTransform[PCollection[TopRelease], PCollection[str]]):
    """Writes the words of each release to one file, a row each, by key, step and rank.

    Columns: key, step, timestamp (microseconds since the epoch, UTC), rank (from 1, by the private
    count), word, value, low, high.

    Args:
      output: a path that ends in .csv or .parquet, as `check_output` passes it.
      counter: of the releases; low and high are value -/+ its `half_width` of 95 %.
      with_timestamps: whether to write the timestamps; without, their cells are empty.
      least: words of a smaller private count are left out; None: none are.
    """

    def __init__(
        self, output: str, counter: Counter, with_timestamps: bool, least: float | None = None
    ) -> None:
        super().__init__()
        self._rows = _Rows(counter, with_timestamps, -math.inf if least is None else least)
        self._write = WriteTable(output, _SCHEMA, ("key", "step", "rank"))

    def expand(self, pcoll: PCollection[TopRelease]) -> PCollection[str]:
        rows = beam.ParDo(self._rows).with_output_types(tuple[Any, ...])
        return pcoll | "Rows" >> rows | "Write" >> self._write


class _Rows(beam.DoFn):
    def __init__(self, counter: Counter, with_timestamps: bool, least: float) -> None:
        self._counter, self._with_timestamps, self._least = counter, with_timestamps, least
        self._halves: dict[Any, float] = {}

    def process(self, release: TopRelease) -> Iterator[tuple[Any, ...]]:
        half = self._half(release.step)
        timestamp = release.timestamp if self._with_timestamps else None
        ranked = enumerate(zip(release.items, release.values, strict=True), start=1)
        for rank, (word, value) in ranked:
            if value < self._least:
                return
            cells = rank, word, value, value - half, value + half
            yield release.key, release.step, timestamp, *cells

    def _half(self, step: int) -> float:
        """Half the band of a step, computed once for all steps of the same variance."""
        norm = self._counter.mechanism.row_norm2(step)
        if norm not in self._halves:
            self._halves[norm] = dp.half_width(self._counter, step, LEVEL)
        return self._halves[norm]


class Word(NamedTuple):
    """A word of a release."""

    rank: int
    word: str
    value: float
    low: float
    high: float


class Last(NamedTuple):
    """The last release of a key that has a word, and its words by rank."""

    step: int
    words: list[Word]


def last_words(path: str, most: int) -> dict[str, Last]:
    """The last release of each key in a local file of `WriteWords`, most rows first.

    Args:
      most: the most words of each.
    """
    last: dict[str, Last] = {}
    for key, text, _, rank, word, *numbers in _records(path):
        step = int(text)
        if key not in last or step > last[key].step:
            last[key] = Last(step, [])
        if step == last[key].step and int(rank) <= most:
            last[key].words.append(Word(int(rank), word, *map(float, numbers)))
    for release in last.values():
        release.words.sort()
    return dict(sorted(last.items(), key=lambda entry: (-entry[1].step, entry[0])))


def _records(path: str) -> Iterator[Any]:
    if path.lower().endswith(".parquet"):
        with pq.ParquetFile(path) as table:
            for batch in table.iter_batches():
                yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
        return
    with open(path, encoding="utf-8", newline="") as file:
        records = csv.reader(file, strict=True)
        next(records)
        yield from records


# The report


def draw(
    options: argparse.Namespace, counter: Counter, words: int, last: Mapping[str, Last]
) -> list[str]:
    """Draw the last words of some keys to the file that the options name.

    Returns:
      Warnings about keys that could not be drawn.
    """
    from beam_dpcount.commands.figures import (
        words as plots_sequences,  # here, because matplotlib is an extra
    )

    shown, choice = plot_keys.of_most_rows(options, last, _DRAWN_KEYS)
    panels = []
    for key, release in shown.items():
        rows = f"after {cli.many(release.step, 'row')}"
        name = (rows, "") if options.key is None else (key, rows)
        texts, *columns = zip(*(row[1:] for row in release.words[:_DRAWN_WORDS]), strict=True)
        panels.append(plots_sequences.Words(*name, texts, *columns))
    estimate = estimates.of_words(options)
    remarks = [
        guarantee(options, counter),
        _chosen(options, counter, words),
        f"Error bars: each, by itself, holds with probability 95 % {estimate.what}.",
        estimate.remark,
        "Each panel has its own scale." if len(panels) > 1 else "",
        *choice,
    ]
    plots_sequences.top_words(
        panels,
        options.plot,
        title=f"Private counts of {_kind(options)}s of {options.letter}{estimate.in_title}"
        + f" by {options.key}" * bool(options.key),
        guarantee=" ".join(filter(None, remarks)),
    )
    return plot_keys.missing(options, last)


def _chosen(options: argparse.Namespace, counter: Counter, words: int) -> str:
    """What the choice of the words does to their counts; nothing where all are there."""
    if options.top >= words and options.min_count is None:
        return ""
    return (
        f"The {_kind(options)}s are those of the largest private counts of {words:,}: as they were "
        "chosen for being large, they are biased upwards, and their 95 % bands miss more often; "
        f"± {dp.largest_error(counter, words, LEVEL):.3g} holds for all counts"
        f"{' of a key' if options.key else ''} at once, chosen or not, with probability 95 %."
    )


def guarantee(options: argparse.Namespace, counter: Counter) -> str:
    """The guarantee in one sentence, and what it is not for in another."""
    of, public = ("of a key ", "the keys, ") if options.key else ("", "")
    return (
        f"Guarantee: all releases {of}together satisfy {counter.budget} for neighbours under "
        f"{counter.change}; public: {public}the alphabet, the words to count, and the number, "
        "order and times of the rows. It is for one row, not for all rows of a person, and "
        f"{one_run(options)}"
    )


def report(
    options: argparse.Namespace, counter: Counter, words: int, last: Mapping[str, Last], result: Any
) -> str:
    """What the user reads at the end: the top words, the guarantee, the errors to expect."""
    horizon = counter.mechanism.horizon
    of = "all" if options.key is None else "a key's"
    every = (
        f"the largest of {of} counts, of {cli.many(words, _kind(options))} after each of "
        f"{cli.many(horizon, 'row')},"
    )
    lines = [
        f"private counts: {options.output}",
        *([f"picture: {options.plot}"] if options.plot else []),
        *top(options, counter, words, last),
        guarantee(options, counter),
        estimates.errors(counter, estimates.of_words(options), every, words),
        *past_horizon(horizon, result),
    ]
    return "\n".join(lines)


def top(
    options: argparse.Namespace, counter: Counter, words: int, last: Mapping[str, Last]
) -> list[str]:
    """The top words of the last releases of some keys; nothing of an output far away."""
    if "://" in options.output:
        return []
    kind = _kind(options)
    if not last:
        why = f"no key has {cli.many(options.every, 'row')} (--every)"
        also = "" if options.min_count is None else f", or no count was {options.min_count:g}"
        return [f"nothing was written: {why}{also}"]
    which = "" if options.min_count is None else f" that has one of {options.min_count:g} or more"
    lines = [f"top {kind}s of the last release{which}, with 95 % bands:"]
    for key, release in list(last.items())[:_PRINTED_KEYS]:
        lines.append(f"  {_printable(key)}, after {cli.many(release.step, 'row')}:")
        shown = release.words[:_PRINTED_WORDS]
        wide = max(len(_printable(row.word)) for row in shown)
        for row in shown:
            half = (row.high - row.low) / 2
            digits = 0 if half >= 10 or half == 0 else 1
            value = f"{row.value:,.{digits}f} ± {half:,.{digits}f}"
            lines.append(f"    {row.rank:>2}  {_printable(row.word):<{wide}}  {value}")
    if len(last) > _PRINTED_KEYS:
        lines.append(f"  ... and of {len(last) - _PRINTED_KEYS:,} other keys in the output")
    return [*lines, *filter(None, [_chosen(options, counter, words)])]


def _printable(text: str) -> str:
    return text if text.isprintable() and text.strip() else repr(text)

"""beam-dpcount sequences, end to end."""

from __future__ import annotations

import csv
import re
from collections import Counter as Tally
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import beam_dpcount as dp
from beam_dpcount.commands import sequences
from tests import command_lines, pictures
from tests.command_lines import (
    EXACT,
    HEALTH_TIME,
    PNG,
    SECRET_TEXT,
    each_path,
    health_micros,
    without,
)
from tests.episodes import occurrences
from tests.real_data import real, real_rows

COLUMNS = ["key", "step", "timestamp", "rank", "word", "value", "low", "high"]


succeed, run, fail = command_lines.of(sequences.main)


Letter = str | None
# Key, step and timestamp of a release, and its words by rank: word, value, low, high.
Place = tuple[str, int, int | None]
Row = tuple[str, float, float, float]


def written(path: Path) -> dict[Place, list[Row]]:
    """The releases in a file, ranks 1, 2, ... of each."""
    if path.suffix == ".parquet":
        table = pq.read_table(path)
        names, rows = table.column_names, [list(row.values()) for row in table.to_pylist()]
    else:
        with open(path, encoding="utf-8", newline="") as file:
            names, *rows = csv.reader(file, strict=True)
    assert names == COLUMNS
    releases: dict[Place, list[tuple[int, Row]]] = {}
    for key, step, time, rank, word, *numbers in rows:
        value, low, high = map(float, numbers)
        place = key, int(step), None if time in ("", None) else int(time)
        releases.setdefault(place, []).append((int(rank), (word, value, low, high)))
    for ranked in releases.values():
        ranked.sort()
        assert [rank for rank, _ in ranked] == list(range(1, len(ranked) + 1))
    return {place: [row for _, row in ranked] for place, ranked in releases.items()}


def exact(path: Path) -> dict[Place, dict[str, float]]:
    """The counts in a file that was written without noise."""
    counts = {}
    for place, rows in written(path).items():
        assert all(value == low == high for _, value, low, high in rows)
        values = [value for _, value, *_ in rows]
        assert values == sorted(values, reverse=True)
        counts[place] = {word: value for word, value, *_ in rows}
        assert len(counts[place]) == len(rows)
    return counts


# Of a word's letters, and those of a sequence: how often it occurs, from the definition.
Occurs = Callable[[Sequence[str], Sequence[Letter]], int]


def substrings(word: Sequence[str], letters: Sequence[Letter]) -> int:
    starts = range(len(letters) - len(word) + 1)
    return sum(list(letters[i : i + len(word)]) == list(word) for i in starts)


def minimal(span: int | None = None) -> Occurs:
    """The windows that hold a word in order, and none of whose parts does."""

    def holds(word: Sequence[str], letters: Sequence[Letter]) -> bool:
        rest = iter(letters)
        return all(letter in rest for letter in word)

    def count(word: Sequence[str], letters: Sequence[Letter]) -> int:
        windows = [
            (start, end)
            for end in range(1, len(letters) + 1)
            for start in range(end)
            if span is None or end - start <= span
        ]
        return sum(
            holds(word, letters[i:j])
            and not holds(word, letters[i + 1 : j])
            and not holds(word, letters[i : j - 1])
            for i, j in windows
        )

    return count


# Time, key, letter.
Fact = tuple[int | None, str, Letter]


def running(
    facts: Sequence[Fact],
    words: Mapping[str, Sequence[str]],
    by_time: bool,
    occurs: Occurs = substrings,
    every: int = 1,
) -> dict[Place, dict[str, float]]:
    """The exact counts that the facts, in the order of the file, should give."""
    if by_time:
        facts = sorted(facts, key=lambda fact: fact[0] or 0)
    rows: dict[str, list[Letter]] = {}
    releases: dict[Place, dict[str, float]] = {}
    for micros, key, letter in facts:
        row = rows.setdefault(key, [])
        row.append(letter)
        if len(row) % every == 0:
            counts = {name: float(occurs(word, row)) for name, word in words.items()}
            releases[key, len(row), micros] = counts
    return releases


def all_words(alphabet: Sequence[str], longest: int, between: str = "") -> dict[str, Any]:
    """All words of up to so many letters, by their names."""
    lengths = range(1, longest + 1)
    return {between.join(w): w for n in lengths for w in product(alphabet, repeat=n)}


ROWS: list[tuple[int, str, str]] = [
    (30, "ann", "b"),
    (10, "bob", "a"),
    (20, "ann", "a"),
    (40, "bob", SECRET_TEXT),
    (40, "bob", "a"),
    (50, "bob", "b"),
    (5, "ann", "a"),
    (35, "ann", ""),
    (60, "ann", "b"),
    (55, "ann", "a"),
    (70, "ann", "c"),
    (65, "ann", "b"),
    (80, "bob", "b"),
    (90, "ann", "a"),
]


def facts(alphabet: str = "ab", rest: Letter = None) -> list[Fact]:
    """The rows, each with its letter: others are the rest, but for the one without text."""
    return [
        (time * 1_000_000, key, text if text in list(alphabet) else rest if text else None)
        for time, key, text in ROWS
    ]


@pytest.fixture
def events(tmp_path: Path) -> Path:
    """A small file, out of order in time, with rows that have no letter."""
    path = tmp_path / "events.csv"
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("time", "who", "what"), *ROWS])
    return path


def arguments(path: Path, *more: object) -> list[object]:
    return [
        *("--input", path, "--key", "who", "--letter", "what", "--timestamp", "time"),
        *("--domain", "a", "b", "--max-length", 2, "--horizon", 20),
        *("--output", path.parent / "counts.csv", *more),
    ]


# Exact counts


@each_path
def test_exact_counts_of_all_words(path: str, events: Path) -> None:
    target = events.parent / "counts.csv"
    out = succeed(*arguments(events, *EXACT, "--path", path, "--output", target, "--all"))
    expected = running(facts(), all_words("ab", 2), by_time=path == "bounded")
    assert exact(target) == expected
    assert f"private counts: {target}" in out
    assert "6 words, and a release after every row of a key (--every), up to 20;" in out
    assert "not in the domain counts as no event: no word reaches across it (--rest" in out
    assert "public: the keys, the domain, the words to count, and the number" in out
    assert out.startswith("warning: weak budget: ")
    last = {key: counts for (key, *_), counts in expected.items()}
    assert f"ann, after 9 rows:\n     1  a   {last['ann']['a']:.0f} ± 0\n" in out
    assert "biased" not in out  # all words are there


@each_path
@pytest.mark.parametrize("span", [None, 4])
def test_exact_counts_of_episodes(span: int | None, path: str, events: Path) -> None:
    limit = () if span is None else ("--max-span", span)
    words = without(arguments(events), "--max-length")
    given = ("--words", "aba", "ab", "bb", "a", "--episodes", *limit)
    out = succeed(*words, *given, *EXACT, "--path", path)
    spelled = {word: list(word) for word in ("aba", "ab", "bb", "a")}
    expected = running(facts(), spelled, path == "bounded", minimal(span))
    assert exact(events.parent / "counts.csv") == expected
    assert "4 episodes, and a release" in out
    assert "counts as no event: time passes" in out
    assert "top episodes of the last release" in out


def test_a_span_and_gaps_make_a_difference() -> None:
    """So that the test above would see it if they were not heeded."""
    letters = [
        letter for _, key, letter in sorted(facts(), key=lambda f: f[0] or 0) if key == "ann"
    ]
    assert len({minimal(None)("aba", letters), minimal(4)("aba", letters)}) == 2
    assert minimal(None)("bb", letters) != substrings("bb", letters)


@each_path
def test_the_rest_is_one_letter(path: str, events: Path) -> None:
    """A cell without text is no event all the same."""
    words = arguments(events, *EXACT, "--path", path, "--all")
    out = succeed(*words, "--domain", "a", "b", "z", "--rest", "z")
    expected = running(facts("ab", "z"), all_words("abz", 2), by_time=path == "bounded")
    assert exact(events.parent / "counts.csv") == expected
    assert "not in the domain counts as the letter 'z' (--rest)" in out


@each_path
def test_a_release_every_few_rows(path: str, events: Path) -> None:
    out = succeed(*arguments(events, *EXACT, "--path", path, "--all", "--every", 3))
    expected = running(facts(), all_words("ab", 2), by_time=path == "bounded", every=3)
    assert {step for _, step, _ in expected} == {3, 6, 9}
    assert exact(events.parent / "counts.csv") == expected
    assert "a release after every 3 rows of a key (--every), up to 6; rows after the last" in out


def test_a_hundredth_of_the_horizon_by_default(events: Path) -> None:
    out = succeed(*arguments(events, *EXACT, "--horizon", 450))
    assert "every 4 rows of a key (--every), up to 112;" in out
    assert {step for _, step, _ in written(events.parent / "counts.csv")} == {4, 8}


@each_path
def test_parquet_nulls_and_letters_of_several_characters(path: str, tmp_path: Path) -> None:
    source, output = tmp_path / "in.parquet", tmp_path / "counts.parquet"
    letters = [7, 10, None, 7, 10, 8, 7]
    pq.write_table(pa.table({"n": letters}), source)
    (tmp_path / "letters.txt").write_text("7\n10\n\n", encoding="utf-8")
    (tmp_path / "words.txt").write_text("7 10\n10 7\n10\n", encoding="utf-8")
    words = ["--input", source, "--letter", "n", "--domain-file", tmp_path / "letters.txt"]
    words += ["--words-file", tmp_path / "words.txt", "--horizon", 9, "--output", output]
    succeed(*words, *EXACT, "--path", path)
    rows: list[Fact] = [(None, "all", str(n) if n in (7, 10) else None) for n in letters]
    expected = running(rows, {w: w.split() for w in ("7 10", "10 7", "10")}, by_time=False)
    assert exact(output) == expected


# What is written of a release


def test_the_top_words_with_their_bands(events: Path) -> None:
    """The same words as of all, by their private counts, and the bands of the counter."""
    words = arguments(events, "--epsilon", 2, "--delta", 1e-6)
    out = succeed(*words, "--top", 3, "--every", 2)
    counter: Any = dp.SubstringCount(dp.ApproxDP(2, 1e-6), 20, [*"ab"], 2, every=2).counter
    releases = written(events.parent / "counts.csv")
    assert sorted(place[:2] for place in releases) == [
        *(("ann", step) for step in (2, 4, 6, 8)),
        *(("bob", step) for step in (2, 4)),
    ]
    for (_, step, _), rows in releases.items():
        assert len(rows) == 3
        values = [value for _, value, *_ in rows]
        assert values == sorted(values, reverse=True)
        half = dp.half_width(counter, step, 0.95)
        assert half > 5
        for _, value, low, high in rows:
            assert [low, high] == pytest.approx([value - half, value + half])
    shown = [line.split()[1] for line in out.splitlines() if re.match(r" {4} +\d", line)]
    last = {key: rows for (key, *_), rows in sorted(releases.items())}
    assert shown == [word for key in ("ann", "bob") for word, *_ in last[key]]
    assert "The words are those of the largest private counts of 6: " in out
    assert "biased upwards, and their 95 % bands miss more often" in out
    assert f"± {dp.largest_error(counter, 6):.3g} holds for all counts of a key at once" in out


def test_words_of_small_counts_are_left_out(events: Path) -> None:
    words = arguments(events, *EXACT, "--all")
    out = succeed(*words, "--min-count", 2)
    expected = running(facts(), all_words("ab", 2), by_time=True)
    kept = {
        place: frequent
        for place, counts in expected.items()
        if (frequent := {word: value for word, value in counts.items() if value >= 2})
    }
    assert 0 < len(kept) < len(expected)
    assert exact(events.parent / "counts.csv") == kept
    assert "below 2 are left out (--min-count): post-processing, as noisy as the counts" in out
    assert "top words of the last release that has one of 2 or more" in out
    assert "nothing was written: " in succeed(*words, "--min-count", 100)


def test_no_releases(events: Path) -> None:
    picture = events.parent / "counts.png"
    out = succeed(*arguments(events, *EXACT, "--every", 20, "--plot", picture))
    assert written(events.parent / "counts.csv") == {}
    assert "nothing was written: no key has 20 rows (--every)" in out
    assert picture.read_bytes().startswith(PNG)


def test_the_report_names_five_keys(tmp_path: Path) -> None:
    source, output = tmp_path / "in.csv", tmp_path / "counts.csv"
    rows = [f"{key},{'xy'[i % 2]}" for n, key in enumerate("abcdef\t", 1) for i in range(n)]
    source.write_text("\n".join(["k,l", *rows]))
    words = ["--input", source, "--key", "k", "--letter", "l", "--domain", "x", "y"]
    words += ["--words", "xy", "--horizon", 30, "--output", output]
    out = succeed(*words, *EXACT)
    assert re.findall(r"(?m)^  (\S+), after (\d+) rows", out) == [
        (key, str(n)) for key, n in (("'\\t'", 7), ("f", 6), ("e", 5), ("d", 4), ("c", 3))
    ]
    assert "... and of 2 other keys" in out


# Pictures


def test_the_last_words_of_the_keys_of_most_rows_are_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = pictures.caught(monkeypatch)
    source = tmp_path / "in.csv"
    rows = [f"{key},{'xxy'[i % 3]}" for n, key in enumerate("abcde", 3) for i in range(n)]
    source.write_text("\n".join(["k,l", *rows]))
    words = ["--input", source, "--key", "k", "--letter", "l", "--domain", "x", "y"]
    words += ["--words", "y", "xx", "x", "--top", 2, "--horizon", 30, "--all"]
    succeed(*words, "--output", tmp_path / "c.csv", "--plot", tmp_path / "c.png", *EXACT)
    (how,) = drawn
    panels = how["panels"]
    assert how["path"] == str(tmp_path / "c.png")
    assert [(panel.name, panel.note) for panel in panels] == [
        (key, f"after {n} rows") for key, n in (("e", 7), ("d", 6), ("c", 5), ("b", 4))
    ]
    assert [[row[:2] for row in panel.rows] for panel in panels] == [
        [("x", 5), ("y", 2)],
        [("x", 4), ("y", 2)],
        [("x", 4), ("xx", 2)],
        [("x", 3), ("y", 1)],
    ]
    assert all(len(set(row[1:])) == 1 for panel in panels for row in panel.rows)
    assert "Of 5 keys the 4 with most rows" in how["guarantee"]
    assert how["title"] == "Private counts of words of l (in letters of the domain) by k"
    assert "holds with probability 95 % the count of a word in letters" in how["guarantee"]
    assert "largest private counts of 3: " in how["guarantee"]


# Real data


def healthapp() -> tuple[Path, list[str], list[dict[str, str]]]:
    """The file, its events, commonest first, and its rows."""
    rows = real_rows("healthapp_2k.csv")
    return (
        real("healthapp_2k.csv"),
        [event for event, _ in Tally(r["EventId"] for r in rows).most_common()],
        rows,
    )


@pytest.mark.long
@each_path
def test_words_of_real_data(path: str, tmp_path: Path) -> None:
    """Up to 3 of the 12 commonest events and the rest, ordered by time or by the file."""
    source, common, rows = healthapp()
    common, output = common[:12], tmp_path / "counts.parquet"
    succeed(
        *("--input", source, "--letter", "EventId", "--timestamp", "Time", *HEALTH_TIME),
        *("--domain", *common, "other", "--rest", "other", "--max-length", 3),
        *("--horizon", 2000, "--every", 500, "--path", path, *EXACT, "--all"),
        *("--output", output),
    )
    if path == "bounded":
        rows.sort(key=lambda row: health_micros(row["Time"]))
    letters = [row["EventId"] if row["EventId"] in common else "other" for row in rows]
    counts = exact(output)
    times = [health_micros(row["Time"]) for row in rows]
    assert sorted(counts) == [("all", step, times[step - 1]) for step in (500, 1000, 1500, 2000)]
    for (_, step, _), found in counts.items():
        assert len(found) == 13 + 13**2 + 13**3
        blocks = (letters[i : i + n] for n in (1, 2, 3) for i in range(step - n + 1))
        assert {word: n for word, n in found.items() if n} == Tally(map(" ".join, blocks))


@each_path
def test_episodes_of_real_data(path: str, tmp_path: Path) -> None:
    """Each component is a sequence; a row of another event is none, and time passes."""
    source, common, rows = healthapp()
    common, output = common[:4], tmp_path / "counts.csv"
    succeed(
        *("--input", source, "--letter", "EventId", "--key", "Component"),
        *("--domain", *common, "--max-length", 2, "--episodes", "--max-span", 6),
        *("--horizon", 1000, "--every", 100, "--path", path, *EXACT, "--all"),
        *("--output", output),
    )
    counts = exact(output)
    most = Tally(key for key, *_ in counts).most_common(3)
    assert sorted(most, key=lambda pair: (-pair[1], pair[0])) == [
        ("Step_LSC", 7),
        ("Step_ExtSDM", 4),
        ("Step_SPUtils", 4),
    ]
    sequence: dict[str, list[Letter]] = {}
    for row in rows:
        event = row["EventId"]
        sequence.setdefault(row["Component"], []).append(event if event in common else None)
    for (key, step, _), found in counts.items():
        assert found == {
            name: occurrences(list(word), sequence[key][:step], 6)
            for name, word in all_words(common, 2, " ").items()
        }


# Bad input

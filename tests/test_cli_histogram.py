"""beam-dpcount histogram, end to end."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beam_dpcount.commands import histogram
from beam_dpcount.commands.figures.pictures import Panel
from tests import command_lines, pictures
from tests.command_lines import (
    BUDGET,
    EXACT,
    HEALTH_TIME,
    SECRET_TEXT,
    each_path,
    health_micros,
    written_vectors,
)
from tests.real_data import real, real_rows

succeed, run, fail = command_lines.of(histogram.main)


Line = tuple[str, int, int | None, tuple[float, ...]]
# Time, key, item.
Fact = tuple[int | None, str, str | None]


def running(facts: Sequence[Fact], domain: Sequence[str], by_time: bool) -> list[Line]:
    """The exact counts that the facts, in the order of the file, should give."""
    if by_time:
        facts = sorted(facts, key=lambda fact: fact[0] or 0)
    counts: dict[str, list[float]] = {}
    steps: dict[str, int] = {}
    lines: list[Line] = []
    for micros, key, item in facts:
        totals = counts.setdefault(key, [0.0] * len(domain))
        steps[key] = steps.get(key, 0) + 1
        if item in domain:
            totals[domain.index(item)] += 1
        lines.append((key, steps[key], micros, tuple(totals)))
    return sorted(lines)


DOMAIN = ("007", "buy", 'say "hi", now')
ROWS: list[tuple[int, str, str]] = [
    (30, "ann", "buy"),
    (10, "bob", "007"),
    (20, "ann", "007"),
    (40, "bob", SECRET_TEXT),
    (40, "bob", 'say "hi", now'),
    (5, "ann", "7"),
    (50, "ann", ""),
    (60, "ann", "buy"),
]
FACTS: list[Fact] = [(time * 1_000_000, key, item) for time, key, item in ROWS]


@pytest.fixture
def events(tmp_path: Path) -> Path:
    """A small file, out of order in time, with rows that are no item."""
    path = tmp_path / "events.csv"
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("time", "who", "what"), *ROWS])
    return path


def arguments(path: Path, *more: object) -> list[object]:
    return [
        *("--input", path, "--key", "who", "--item", "what", "--timestamp", "time"),
        *("--domain", *DOMAIN, "--horizon", 10, "--output", path.parent / "counts.csv", *more),
    ]


@each_path
def test_exact_counts(path: str, events: Path) -> None:
    target = events.parent / "counts.csv"
    out = succeed(*arguments(events, *EXACT, "--path", path, "--output", target))
    assert written_vectors(target, DOMAIN) == running(FACTS, DOMAIN, by_time=path == "bounded")
    assert f"private histograms: {target}" in out
    assert "public: the keys, the domain, and the number, order and times" in out
    assert out.startswith("warning: weak budget: ")


@each_path
def test_counts_fitted_to_the_number_of_rows(path: str, events: Path) -> None:
    """The same counts, with three quarters of the variance of three items."""
    words = arguments(events, "--path", path, "--fit-total")
    out = succeed(*words, *EXACT)
    expected = running(FACTS, DOMAIN, by_time=path == "bounded")
    found = written_vectors(events.parent / "counts.csv", DOMAIN)
    assert [line[:3] for line in found] == [line[:3] for line in expected]
    for line, other in zip(found, expected, strict=True):
        assert line[3] == pytest.approx(other[3], abs=1e-6)
    assert "note: fitted to the number of rows; what the counts of a line leave of its step" in out
    stddevs = []
    for given in (words, arguments(events, "--path", path)):
        assert ("note: fitted" in succeed(*given, *BUDGET)) == (given is words)
        with open(events.parent / "counts.csv", encoding="utf-8", newline="") as file:
            stddevs.append([float(row["stddev"]) for row in csv.DictReader(file)])
    for fitted, plain in zip(*stddevs, strict=True):
        assert fitted == pytest.approx(plain * (3 / 4) ** 0.5)
    assert "the largest error of a key's 30 counts is below" in out  # three items, ten rows


def test_one_item_gains_nothing_of_a_fit(events: Path) -> None:
    for domain, said in ((("buy",), True), (("buy", "007"), False)):
        words = arguments(events, "--fit-total", *BUDGET)
        at = words.index("--domain")
        words[at : at + 1 + len(DOMAIN)] = ["--domain", *domain]
        out = succeed(*words)
        assert ("note: for one item --fit-total gains nothing" in out) == said
        assert f"a key's {10 if said else 20} counts" in out


@pytest.mark.parametrize("keyed", [True, False], ids=["key", "no key"])
def test_parquet_nulls_and_numbers(keyed: bool, events: Path) -> None:
    """A null is no item, also where the item's column is read for the key; 7 is the text 7."""
    source, domain = events.parent / "in.parquet", events.parent / "domain.txt"
    pq.write_table(pa.table({"who": ["a", "a", "b", "a"], "n": [7, None, 8, 7]}), source)
    domain.write_text("7\n8\n", encoding="utf-8")
    output = events.parent / "counts.csv"
    words = ["--input", source, "--item", "n", "--domain-file", domain, "--horizon", 9]
    succeed(*words, *(["--key", "who"] if keyed else []), *EXACT, "--output", output)
    rows = (("a", "7"), ("a", None), ("b", "8"), ("a", "7"))
    facts: list[Fact] = [(None, key if keyed else "all", item) for key, item in rows]
    assert written_vectors(output, ("7", "8")) == running(facts, ("7", "8"), by_time=False)


# Pictures


def test_the_last_histograms_of_the_keys_of_most_rows_are_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = pictures.caught(monkeypatch)
    source = tmp_path / "in.csv"
    rows = [f"{key},{'xy'[i % 2]}" for n, key in enumerate("abcdefg", 1) for i in range(n)]
    source.write_text("\n".join(["k,i", *rows]))
    words = ["--input", source, "--item", "i", "--domain", "x", "y", "--horizon", 30]
    words += ["--output", tmp_path / "c.csv", "--plot", tmp_path / "c.png", "--top", 1]
    succeed(*words, "--key", "k", *EXACT)
    succeed(*words, *EXACT)
    how, other = drawn
    panels, others = how["panels"], other["panels"]
    assert list(how["items"]) == ["x", "y"]
    assert [(bars.name, bars.note) for bars in panels] == [
        (key, f"after {n} rows")
        for n, key in ((7, "g"), (6, "f"), (5, "e"), (4, "d"), (3, "c"), (2, "b"))
    ]
    assert [list(bars.values) for bars in panels] == [
        [4, 3],
        [3, 3],
        [3, 2],
        [2, 2],
        [2, 1],
        [1, 1],
    ]
    assert how["top"] == 1
    assert "Of 2 items the 1 of the largest private counts, added up over" in how["guarantee"]
    assert "Of 7 keys the 6 with most rows" in how["guarantee"]
    assert [(bars.name, bars.note) for bars in others] == [("after 28 rows", "")]
    assert "over the keys" not in other["guarantee"]
    for text in (how["guarantee"], other["guarantee"]):
        assert "biased upwards, and their error bars miss more often; ± 0 holds for all" in text


def test_keys_and_items_are_not_chosen_by_their_counts(
    events: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = pictures.caught(monkeypatch)
    many = [f"i{number}" for number in range(25)]
    words = arguments(events, *EXACT, "--plot", events.parent / "c.png")
    succeed(*words)
    succeed(*words, "--domain", *many)
    out = succeed(*words, "--plot-keys", "zoe", "bob")
    assert "warning: --plot-keys: 'zoe' has no releases, and is not drawn" in out.splitlines()
    how, more, other = drawn
    few, asked = how["panels"], other["panels"]
    assert [given["top"] for given in (how, more, other)] == [None] * 3
    assert ([bars.name for bars in few], [bars.name for bars in asked]) == (["ann", "bob"], ["bob"])
    assert "Of " not in how["guarantee"]
    assert "Of 25 items the first 20 of the domain." in more["guarantee"]
    assert "Keys as asked for" in other["guarantee"]
    assert "chosen for being large" not in how["guarantee"] + more["guarantee"]


def test_counts_and_items_must_agree(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="one count for each of its 2 items"):
        pictures.histograms(("x", "y"), [Panel("a", "", [1.0], 1.0)], tmp_path / "c.png")


# Cells of several items


@each_path
def test_cells_of_several_items(path: str, tmp_path: Path) -> None:
    """Of more than B the first in the order of the domain; an empty cell is the item ''."""
    source, output = tmp_path / "in.csv", tmp_path / "counts.csv"
    source.write_text('what\nc;a;b\nb;b\n""\nz;c\na ;b\n')
    words = ["--input", source, "--item", "what", "--domain", "a", "b", "c", "", "--horizon", 9]
    several = ("--separator", ";", "--max-items", 2)
    out = succeed(*words, *several, *EXACT, "--path", path, "--output", output)
    counts = [(1, 1, 0, 0), (1, 2, 0, 0), (1, 2, 0, 1), (1, 2, 1, 1), (1, 3, 1, 1)]
    expected = [("all", step, None, value) for step, value in enumerate(counts, start=1)]
    assert written_vectors(output, ("a", "b", "c", "")) == expected
    assert "for each item of its what, between ';'" in out
    assert "at most 2)" in out
    assert (
        "warning: items are not checked against the data (--check does): check their spelling"
        in out
    )


def test_a_null_is_no_item_of_several(tmp_path: Path) -> None:
    source, output = tmp_path / "in.parquet", tmp_path / "counts.csv"
    pq.write_table(pa.table({"what": ["a;b", None, ""]}), source)
    words = ["--input", source, "--item", "what", "--domain", "a", "b", "", "--horizon", 9]
    succeed(*words, "--separator", ";", "--max-items", 3, *EXACT, "--output", output)
    assert [value for *_, value in written_vectors(output, ("a", "b", ""))] == [
        (1, 1, 0),
        (1, 1, 0),
        (1, 1, 1),
    ]


# Real data


@each_path
@pytest.mark.parametrize(
    ("file", "key", "item", "time", "micros", "flags"),
    [
        ("healthapp_2k.csv", None, "EventId", "Time", health_micros, HEALTH_TIME),
        (
            "bgl_2k.csv",
            "Level",
            "Component",
            "Timestamp",
            lambda text: int(text) * 1_000_000,
            (),
        ),
    ],
    ids=["health", "bgl"],
)
def test_real_data(
    file: str,
    key: str | None,
    item: str,
    time: str,
    micros: Callable[[str], int],
    flags: tuple[str, ...],
    path: str,
    tmp_path: Path,
) -> None:
    source, output, listed = real(file), tmp_path / "c.parquet", tmp_path / "domain.txt"
    rows = real_rows(file)
    domain = sorted({row[item] for row in rows})[:-1]  # one is left out
    listed.write_text("\n".join(domain))
    ended = run(
        *("--input", source, "--item", item, *(["--key", key] if key else []), *flags),
        *("--timestamp", time, "--domain-file", listed, "--horizon", 2000),
        *(*EXACT, "--path", path, "--output", output),
    )
    assert ended.status == 0
    facts: list[Fact] = [(micros(r[time]), r[key] if key else "all", r[item]) for r in rows]
    assert written_vectors(output, domain) == running(facts, domain, by_time=path == "bounded")


# Bad input

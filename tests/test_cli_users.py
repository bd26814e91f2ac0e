"""--user of the commands, end to end: whose rows count, and what is said of those that do not."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beam_dpcount import mechanisms
from beam_dpcount.commands import count, histogram, ticks
from beam_dpcount.commands.files.formats import InputError, Source, one, shown_person
from tests import command_lines
from tests.command_lines import EXACT, SECRET, Ended, Line, each_path, stddevs, written

BUDGET = ("--epsilon", "1", "--delta", "1e-6")
MAINS: dict[str, Callable[..., None]] = {
    "ticks": ticks.main,
    "count": count.main,
    "histogram": histogram.main,
}
EXTRA = {
    "ticks": ("--keys", "a", "b", "--tick", 10, "--start", 100, "--stop", 130),
    "count": ("--horizon", 20, "--where", "n=1"),
    "histogram": ("--horizon", 20, "--item", "n", "--domain", "1"),
}
each_command = pytest.mark.parametrize("name", MAINS)

# Time, person, key, number: in order of time, so that both paths take them alike.
ROWS = [
    (99, "ann", "a", "1"),  # before the clock: takes no one's place there
    (101, "ann", "zoe", "1"),  # nor does a key that is not listed
    (102, "ann", "a", "1"),
    (103, "bob", "a", "1"),
    (104, "", "a", "1"),
    (105, "ann", "a", "1"),
    (106, "ann", "b", "0"),
    (114, "ann", "b", "1"),
    (115, "bob", "b", "x"),
    (121, "ann", "a", "1"),
]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.csv"
    path.write_text("\n".join(["time,who,page,n", *(",".join(map(str, row)) for row in ROWS)]))
    return path


def arguments(name: str, log: Path, *more: object) -> list[object]:
    return [
        *("--input", log, "--key", "page", "--timestamp", "time", *EXTRA[name]),
        *("--output", log.parent / "out.csv", *more),
    ]


def succeed(name: str, log: Path, *more: object) -> str:
    return command_lines.succeed(*arguments(name, log, *more), main=MAINS[name])


def fail(name: str, log: Path, *more: object) -> str:
    def run(*words: object) -> Ended:
        return command_lines.command(*words, main=MAINS[name])

    return command_lines.fail(*arguments(name, log, *more), run=run, started=False)


def series(a: Sequence[float], b: Sequence[float]) -> list[Line]:
    return [
        (key, step, (100 + 10 * step) * 10**6, float(value))
        for key, values in (("a", a), ("b", b))
        for step, value in enumerate(values, start=1)
    ]


# Exact counts


@each_path
@pytest.mark.parametrize(
    ("more", "a", "b"),
    [
        (("--per-user", 9, "--per-key", 1), (2, 2, 2), (1, 2, 2)),  # people, each once a key
        (("--per-user", 1), (2, 2, 2), (0, 0, 0)),
        (("--per-user", 9, "--per-key", 2), (3, 3, 3), (1, 3, 3)),
        (("--per-user", 9), (3, 3, 4), (1, 3, 3)),
        (("--per-user", 9, "--per-key", 9), (3, 3, 4), (1, 3, 3)),
        (("--per-user", 9, "--per-key", 9, "--max-keys", 1), (3, 3, 4), (0, 0, 0)),
        (("--per-user", 9, "--per-key", 9, "--gap", "12s"), (2, 2, 2), (0, 2, 2)),
        (("--per-user", 3, "--per-key", 3), (3, 3, 3), (1, 2, 2)),
    ],
)
def test_ticks(more: tuple[object, ...], a: Any, b: Any, path: str, log: Path) -> None:
    late = ("--late", "drop", "--path", path)
    succeed("ticks", log, *EXACT, "--user", "who", *more, *late)
    assert written(log.parent / "out.csv") == series(a, b)


@each_path
@pytest.mark.parametrize(
    ("more", "a", "b"),
    [
        (("--per-user", 9, "--per-key", 1), (1, 1, 2, 2, 2, 2), (0, 0, 0)),
        (("--per-user", 9), (1, 2, 3, 3, 4, 5), (0, 1, 1)),
        (("--per-user", 9, "--per-key", 9), (1, 2, 3, 3, 4, 5), (0, 1, 1)),
        # The rows of 0 and of no number use their places up: which rows count is public.
        (("--per-user", 5, "--per-key", 9), (1, 2, 3, 3, 4, 4), (0, 0, 0)),
        (("--per-user", 9, "--per-key", 9, "--max-keys", 2), (1, 2, 3, 3, 4, 5), (0, 0, 0)),
    ],
)
def test_counts(more: tuple[object, ...], a: Any, b: Any, path: str, log: Path) -> None:
    """Every row has its release; those of nobody, and those beyond the bound, count 0."""
    succeed("count", log, *EXACT, "--user", "who", *more, "--path", path)
    lines = written(log.parent / "out.csv")
    assert len(lines) == len(ROWS)
    assert tuple(value for key, *_, value in lines if key == "a") == a
    assert tuple(value for key, *_, value in lines if key == "b") == b


@each_path
def test_histograms(path: str, log: Path) -> None:
    words = ("--domain", "0", "1", "--user", "who", "--per-user", 9, "--per-key", 2)
    succeed("histogram", log, *EXACT, *words, "--path", path)
    with open(log.parent / "out.csv", newline="") as file:
        found = [(r["key"], float(r["0"]), float(r["1"])) for r in csv.DictReader(file)]
    assert found == [
        *(("a", 0, n) for n in (1, 2, 3, 3, 3, 3)),
        *(("b", n, m) for n, m in ((1, 0), (1, 1), (1, 1))),
        ("zoe", 0, 1),
    ]


@each_path
def test_a_person_of_a_thousand_rows_counts_k(path: str, log: Path) -> None:
    rows = [f"{101 + i % 29},ann,{'ab'[i % 2]},1" for i in range(1000)]
    log.write_text("\n".join(["time,who,page,n", *rows]))
    succeed("ticks", log, *EXACT, "--user", "who", "--per-user", 7, "--per-key", 7, "--path", path)
    last = [value for _, step, _, value in written(log.parent / "out.csv") if step == 3]
    assert sum(last) == 7


def test_each_key_of_a_row_is_a_row_of_its_person(log: Path) -> None:
    log.write_text("time,who,page\n101,ann,a;b\n112,ann,b;a\n113,bob,b;zoe\n")
    several = ("--separator", ";", "--max-items", 2, "--user", "who", "--per-user", 3)
    out = succeed("ticks", log, *EXACT, *several, "--per-key", 2)
    assert written(log.parent / "out.csv") == series((1, 2, 2), (1, 2, 2))
    assert "count (each key of a row as a row)" in out
    # Noise is for three events, not for three with two keys each.
    largest = []
    for more in (several, ("--user", "who", "--per-user", 3)):
        succeed("ticks", log, *BUDGET, *more)
        largest.append(max(stddevs(log.parent / "out.csv").values()))
    assert largest[0] == largest[1]


@pytest.mark.parametrize(
    ("cell", "person"),
    [
        *(("ann", "ann"), ("", ""), (None, ""), (float("nan"), ""), (7, "7"), (7.0, "7")),
        *((7.5, "7.5"), ("7.0", "7.0"), (" ann", " ann"), (True, "True")),
    ],
)
def test_people_are_cells_to_the_letter(cell: object, person: str) -> None:
    assert shown_person(cell) == person


def test_people_of_parquet(log: Path) -> None:
    """Whole numbers with nulls are often floats: 7 of one file is 7.0 of the next."""
    for number, people in enumerate(([7, 8, 8], [7.0, None, 9.0])):
        table = {"time": [101, 111, 121], "who": people, "page": ["a", "a", "b"]}
        pq.write_table(pa.table(table), log.parent / f"{number}.parquet")
    words = ("--input", *sorted(log.parent.glob("*.parquet")), "--user", "who", "--per-user", 9)
    words = (*words, "--metric", "people")
    succeed("ticks", log, *EXACT, *words)
    assert written(log.parent / "out.csv") == series((1, 2, 2), (0, 0, 2))


def test_the_person_may_be_the_key_or_what_is_counted(log: Path) -> None:
    """At ticks all of it is protected; after every row whose it is is public."""
    people: tuple[object, ...] = ("--user", "page", "--per-user", 2, "--per-key", 2)
    succeed("ticks", log, *EXACT, *people)
    assert written(log.parent / "out.csv") == series((2, 2, 2), (1, 2, 2))
    people = ("--user", "who", "--per-user", 9, "--per-key", 1, "--where", "who=ann")
    succeed("ticks", log, *EXACT, *people)
    assert written(log.parent / "out.csv") == series((1, 1, 1), (1, 1, 1))
    people = ("--user", "who", "--per-user", 9, "--item", "who")
    said = "'who' is counted and holds the people as well"
    assert said in fail("histogram", log, *EXACT, *people)
    with pytest.raises(InputError, match="holds the people as well"):
        Source(["x"], "key", ("who",), one, user="who")


# What is said


def test_what_is_printed_of_a_gap(log: Path) -> None:
    people = ("--user", "who", "--per-user", 3, "--per-key", 3)
    out = succeed("ticks", log, *BUDGET, *people, "--gap", "1h")
    assert "at most 3 rows of a person, 3 a key, 1 hour apart, count" in out
    assert "3 rows of a person, 3 a key, 10 s apart, " in succeed(
        "ticks", log, *BUDGET, *people, "--gap", 10
    )


@pytest.mark.long
@each_command
def test_limits_above_that_on_all_rows_of_a_person_are_noted(name: str, log: Path) -> None:
    people = ("--user", "who", "--per-user", 2)
    note = (
        "note: of a person 2 rows count in all (--per-user 2), so that {0} 9 is the same as {0} 2"
    )
    for option in ("--per-key", "--max-keys"):
        assert note.format(option) in succeed(name, log, *BUDGET, *people, option, 9)
        assert "is the same as" not in succeed(name, log, *BUDGET, *people, option, 2)


@each_command
def test_noise_is_for_all_rows_of_a_person(name: str, log: Path) -> None:
    largest = []
    for more in ((), ("--per-user", 1), ("--per-user", 4, "--per-key", 1), ("--per-user", 4)):
        people = ("--user", "who", *more) if more else ()
        succeed(name, log, *("--rho", "0.1", "--mechanism", "SmoothBinary"), *people)
        largest.append(max(stddevs(log.parent / "out.csv").values()))
    # Two keys are listed at ticks: no more than two of the four rows are in different ones.
    keys = 2 if name == "ticks" else 4
    assert largest[1] == largest[0]
    assert largest[2] == pytest.approx(keys**0.5 * largest[0], rel=0.01)
    # Rows that count in one key change a step each, and at ticks perhaps all of them the same one.
    R = np.asarray(mechanisms.SmoothBinary(20).encoder(20), dtype=float)
    worst = max(
        np.square(R[:, list(four)].sum(axis=1)).sum() for four in combinations(range(20), 4)
    )
    least = 4 if name == "ticks" else math.sqrt(worst / np.square(R).sum(axis=0).max())
    assert 0.99 * least < largest[3] / largest[0] < (4.04 if name == "ticks" else 3.7)


def test_a_gap_takes_less_noise(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one mechanism; and the default is never worse than it."""
    clock = ("--start", 0, "--stop", 1000, "--user", "who", "--per-user", 4, "--per-key", 4)
    largest = []
    for kinds in (mechanisms.ALL, (mechanisms.NormalizedBLT,)):
        monkeypatch.setattr(mechanisms, "ALL", kinds)
        for gap in ((), ("--gap", 200)):
            succeed("ticks", log, *BUDGET, *clock, *gap)
            largest.append(max(stddevs(log.parent / "out.csv").values()))
    best, best_apart, plain, plain_apart = largest
    assert plain_apart < 0.8 * plain
    assert best_apart < best <= plain
    assert best_apart <= plain_apart


@pytest.mark.exhaustive
def test_exact_counts_are_of_all_rows_and_the_picture_says_so(log: Path) -> None:
    picture = ("--plot", log.parent / "out.png", "--show-truth")
    people = ("--user", "who", "--per-user", 1)
    note = (
        "warning: the exact counts include what bounding people leaves out (--user): they are apart"
    )
    assert note in succeed("count", log, *EXACT, *people, *picture)
    assert note not in succeed("count", log, *EXACT, *picture)
    options = count.Count.parser().parse_args(
        [str(word) for word in arguments("count", log, *EXACT, *people, *picture)]
    )
    task = count.Count(options)
    assert "with at most 1 row of a person, 1 a key" in task.estimate().band


@pytest.mark.exhaustive
def test_replayable_noise_knows_the_bound(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTING_SECRET", os.urandom(32).hex())
    found = []
    for most in (5, 5, 6):
        words = ("--secret-env", "COUNTING_SECRET", "--user", "who", "--per-user", most)
        # In two keys, a row in each, either bound leaves the same counts and the same stddev.
        succeed("ticks", log, *BUDGET, *words)
        found.append(written(log.parent / "out.csv"))
    assert found[0] == found[1] != found[2]


# Mistakes


@pytest.mark.parametrize("kind", [pa.binary(), pa.dictionary(pa.int32(), pa.string())], ids=str)
def test_a_cell_of_a_person_never_stops_a_run(kind: pa.DataType, log: Path) -> None:
    """At ticks it would show that somebody came; nor does any message show one."""
    people = pa.array([b"\xff\xfe", f"{SECRET}".encode(), None], type=pa.binary())
    if kind != pa.binary():
        people = people.view(pa.string()).dictionary_encode()  # a cast would check it
    assert people.type == kind
    table = pa.table({"time": [101, 102, 103], "who": people, "page": ["a", "a", "a"]})
    pq.write_table(table, log.parent / "in.parquet")
    words = ("--input", log.parent / "in.parquet", "--user", "who", "--per-user", 5)
    out = succeed("ticks", log, *EXACT, *words)
    assert written(log.parent / "out.csv") == series((1, 1, 1), (0, 0, 0))
    assert str(SECRET) not in out

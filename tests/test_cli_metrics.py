"""ticks with --metric, --view and --zone: what is refused, written, said, drawn and repeated."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_dpcount.commands import ticks
from beam_dpcount.commands.tick_table import rounded
from tests import pictures
from tests.command_lines import BUDGET, of

succeed, command, fail = of(ticks.main)
EXACT = ("--epsilon", 1e9, "--delta", 1e-6)
CLOCK = ("--timestamp", "at", "--tick", "1h", "--start", 0)
KEYS = ("--key", "page", "--keys", "a", "b")
END = ("--horizon", 4)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Rows of two pages in the second and third of four hours; one number is not one."""
    rows = [
        *("3600,a,ann,5,ERROR", "3700,a,ann,x,INFO", "3800,a,bob,7,INFO", "7300,a,ann,3,"),
        *("7400,b,cid,1,ERROR", "7500,b,,9,ERROR", "soon,b,cid,1,INFO", "99999,b,cid,1,INFO"),
    ]
    (tmp_path / "in.csv").write_text("\n".join(["at,page,who,ms,level", *rows, ""]))
    return tmp_path


def rows(place: Path, *words: object, clock: tuple[object, ...] = CLOCK) -> list[dict[str, str]]:
    succeed("--input", place / "in.csv", *clock, "--output", place / "out.csv", *words)
    with open(place / "out.csv", newline="") as file:
        return [*csv.DictReader(file)]


# What is written


def test_rows_of_metrics_and_views(place: Path) -> None:
    words = ("--metric", "mean(ms, 0, 10)", "--metric", "rate(level = ERROR)", "--view", "each")
    found = rows(place, *EXACT, *KEYS, *END, *words)
    ends = ("", "_low", "_high")
    names = [f"{name}_each{end}" for name in ("mean_ms", "rate") for end in ends]
    assert [*found[0]] == ["key", "step", "start", "timestamp", *names]
    said = {(row["key"], row["step"]): (row["mean_ms_each"], row["rate_each"]) for row in found}
    means = {place: tuple(x and round(float(x), 3) for x in both) for place, both in said.items()}
    # What is not a number counts for no mean, and an empty cell for no rate.
    assert means["a", "2"] == (6, pytest.approx(1 / 3, abs=1e-3))
    assert means["a", "3"] == (3, "")
    assert means["b", "3"] == (5, 1)
    assert means["b", "1"] == ("", "")
    (first, *_) = found
    assert (first["start"], first["timestamp"]) == ("1970-01-01T00:00:00Z", "1970-01-01T01:00:00Z")


def test_where_leaves_rows_out_of_all_metrics(place: Path) -> None:
    words = ("--where", "level=ERROR", "--metric", "count", "--metric", "sum(ms, 0, 10)")
    (*_, last) = rows(place, *EXACT, *END, *words)
    assert (round(float(last["count"])), round(float(last["sum_ms"]))) == (3, 15)


def test_a_clock_without_an_end_ends_at_until(place: Path) -> None:
    for view in ("each", "last 2", "last 2h", "restart 2"):
        found = rows(place, *EXACT, "--view", view, "--until", 5 * 3600 + 1)
        assert [row["step"] for row in found] == ["1", "2", "3", "4", "5"]
    assert [row["restart"] for row in found] == ["1", "1", "2", "2", "3"]
    manifest = json.loads((place / "out.csv.manifest.json").read_text())
    assert manifest["ticks"] == {"released": 5, "of": None}


def test_days_of_a_zone_have_23_hours_and_24h_has_24(place: Path) -> None:
    clock = ("--timestamp", "at", "--start", "2026-03-28", "--zone", "Europe/Paris")
    found = rows(place, *EXACT, "--tick", "1d", "--horizon", 3, clock=clock)
    assert [row["start"] for row in found] == [
        "2026-03-27T23:00:00Z",
        "2026-03-28T23:00:00Z",
        "2026-03-29T22:00:00Z",
    ]
    found = rows(place, *EXACT, "--tick", "24h", "--horizon", 3, clock=clock)
    assert found[-1]["start"] == "2026-03-29T23:00:00Z"
    found = rows(
        place, *EXACT, "--tick", "1h", "--view", "restart 1d", "--horizon", 72, clock=clock
    )
    assert [row["restart"] for row in found].count("2") == 23


@given(st.floats(-1e9, 1e9), st.floats(1e-6, 1e6))
def test_numbers_are_rounded_well_below_their_noise(number: float, stddev: float) -> None:
    """It moves no number by more than 1/200 of its noise, and leaves no further digits."""
    short = rounded(number, stddev)
    assert short is not None
    assert abs(short - number) <= stddev / 200 * 1.0001 + 1e-9 * abs(number)
    assert rounded(short, stddev) == short
    assert len(repr(abs(short)).replace(".", "").strip("0")) <= 18


def test_rounding_leaves_alone_what_has_no_noise() -> None:
    assert rounded(1.23456789, 0.0) == 1.23456789
    assert rounded(None, 1.0) is None
    assert rounded(1.23456789, None) == 1.23456789
    assert (rounded(123.456, 13.2), rounded(0.98765, 0.04), rounded(-0.04, 30.0)) == (
        *(123.5, 0.9877, 0.0),
    )


# What is refused


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--metric", "people"), "--metric people needs --user COLUMN and --per-user K"),
        (("--metric", "sum"), "--metric 'sum': Sum needs bounds"),
        (("--metric", "sum(low=0, high=5)"), "--metric sum needs a column"),
        (
            ("--metric", "meen(ms)"),
            "column 1 of 'meen(ms)': unknown name 'meen': did you",
        ),
        (
            ("--metric", "mean(ms, 0, five)"),
            "column 13 of 'mean(ms, 0, five)': high of 'mean'",
        ),
        (("--view", "last 7h"), "'last 7' is of 7 ticks, but the clock has 4"),
        (("--view", "last 90m"), "which is not a whole number of ticks of 1h"),
        (("--view", "last"), "expected a length, such as last 7 or last 1d"),
        (("--view", "each", "--mechanism", "BinaryTree"), "--mechanism is for one count, so far"),
        (
            ("--metric", "mean(ms, 0, 5)", "--separator", ";", "--max-items", 2),
            "--max-items is for one Count or Sum, as a vector of several numbers counts under one",
        ),
        (
            ("--view", "each", "--zone", "Paris"),
            "--zone is not a time zone, got 'Paris'",
        ),
        (("--metric", "count", "--metric", "count"), "two columns called 'count'"),
        (("--metric", "count(name=step)"), "two columns of the output are called 'step'"),
    ],
)
def test_what_is_refused(words: tuple[object, ...], message: str, place: Path) -> None:
    before = {*place.iterdir()}
    words = (*BUDGET, *KEYS, *END, *words, "--output", place / "out.csv")
    assert message in fail("--input", place / "in.csv", *CLOCK, *words)
    assert {*place.iterdir()} == before


def test_a_count_so_far_needs_an_end(place: Path) -> None:
    words = ("--input", place / "in.csv", *CLOCK, *BUDGET, "--output", place / "out.csv")
    said = fail(*words, "--metric", "count")
    assert "give --stop, the time of the end, or --horizon, the number of ticks" in said
    assert "--view each, or another view than so-far" in said
    assert "give --stop" in fail(*words, "--view", "each", "--view", "so-far")


# What is said and drawn


def test_a_dry_run_says_the_errors_of_what_has_some(place: Path) -> None:
    words = ("--metric", "count", "--metric", "mean(ms, 0, 10)", "--view", "each", "--dry-run")
    out = succeed("--input", place / "in.csv", *CLOCK, *BUDGET, *END, *words, "--output", "x.csv")
    assert re.search(r"count_each: 95 % of the time within [\d.]+, the standard deviation at", out)
    assert "how far off mean_ms_each may be depends on how many rows there are" in out
    assert "`beam-dpcount errors --metric ... --events N`" in out
    assert not (place / "out.csv").exists()


@pytest.mark.parametrize(
    ("metric", "exact"),
    [
        ("count", [0, 3, 1, 0]),
        ("mean(ms, 0, 10)", [6, 3]),
        ("people", [0, 2, 1, 0]),
    ],
)
def test_a_picture_is_of_the_first_column_and_shows_its_truth(
    metric: str, exact: list[float], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = pictures.caught(monkeypatch)
    people = ("--user", "who", "--per-user", 5) if metric == "people" else ()
    words = ("--metric", metric, "--metric", "rate(level = ERROR)", "--view", "each", *people)
    files = ("--plot", place / "o.png", "--report", place / "o.html", "--show-truth")
    rows(place, *EXACT, *KEYS, *END, *words, *files)
    (how,) = drawn
    assert how["truth"]["a"] == pytest.approx(exact)
    page = (place / "o.html").read_text()
    assert "rate_each are in the data" in page
    assert "Each number estimates" in page


def test_a_private_look_finds_misspelt_texts(place: Path) -> None:
    metrics = ("--metric", "rate(level = EROR)", "--metric", "items(level, INFO, WARN)")
    people = ("--user", "who", "--per-user", 1, "--max-per-tick", 1)
    words = (*BUDGET, *KEYS, *END, *metrics, *people, "--check", "--output", "x.csv")
    ended = command("--input", place / "in.csv", *CLOCK, *words)
    assert ended.status == 1
    for said in (
        "LOOKS WRONG: no row has level = EROR (--metric rate): is its spelling right?",
        "LOOKS WRONG: no row has level = WARN (--metric items): is its spelling right?",
        "the limit on each (--per-user 1) leaves out 2 rows",
        "1 row of nobody",
        "2 ticks of keys have more than 1 rows (--max-per-tick)",
    ):
        assert said in ended.out
    assert "level = INFO" not in ended.out


@pytest.mark.parametrize("path", ["bounded", "streaming"])
def test_both_paths_count_the_same(path: str, place: Path) -> None:
    words = (
        "--metric",
        "count",
        "--metric",
        "mean(ms, 0, 10)",
        "--view",
        "each",
        "--view",
        "last 2",
    )
    found = rows(place, *EXACT, *KEYS, *END, *words, "--path", path)
    assert [round(float(row["count_last_2"])) for row in found] == [0, 3, 4, 1, 0, 0, 2, 2]
    assert len({(row["key"], row["timestamp"]) for row in found}) == 8


def test_a_repeat_of_several_views_is_one_and_costs_nothing(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from beam_dpcount.commands.account import main as account

    monkeypatch.setenv("COUNTING_SECRET", "0123456789abcdef" * 4)
    file = place / "shop.account"
    account([str(file), "--create", "--epsilon", "1.5", "--delta", "5e-6"])
    words: list[Any] = [*BUDGET, *KEYS, *END, "--metric", "rate(level = ERROR)", "--account", file]
    views = ("--view", "each", "--view", "last 2", "--secret-env", "COUNTING_SECRET", "--run-id")
    first = rows(place, *words, *views, "may", "--overwrite")
    given = ("--input", place / "in.csv", *CLOCK, "--output", place / "out.csv", "--overwrite")
    assert "at no cost" in succeed(*given, *words, *views, "may")
    assert rows(place, *words, *views, "may", "--overwrite") == first
    assert "would be overspent" in fail(*given, *words, *views, "june")
    record = file.read_text()
    for column in ("level", "page", "at", ":presence"):
        assert column in record

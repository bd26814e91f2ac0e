"""What commands print at the end: three short lines. The exact sentences are in the manifest."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from beam_dpcount.commands import runner as running
from tests.command_lines import BUDGET, command, fail, process
from tests.each_command import KINDS, MAIN, log, rows

SHORT = 180  # characters of a line, where a command has few limits
LONG = ("select", "triangles", "metrics of people")
PERSON = "what one person (v) says in at most 3 rows, 2 a key, in 2 keys (not whose rows they are)"
PAIR = "one pair of vertices with all its rows (not that rows are there)"
ROW = "what one row says (not that it is there)"
UNITS = {
    "count": ROW,
    "values": ROW,
    "count of people": PERSON,
    "ticks": "one row, there or not",
    "ticks of people": "one person (v) with at most 3 rows, 2 a key, in 2 keys",
    "select": "one row, there or not",
    "histogram": ROW,
    "histogram of people": PERSON,
    "sequences": ROW,
    "graph": PAIR,
    "triangles": f"{PAIR}, if no vertex has more than 4 neighbours (--asserted)",
    "degrees": PAIR,
    "forest": PAIR,
    "cuts": ROW,
    "metrics": "one row, there or not",
    "views": "one row, there or not",
    "metrics of people": "one person (v) with at most 3 rows, 2 a key, in 2 keys",
}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    log(tmp_path / "events.csv", rows())
    return tmp_path


def ended(kind: str, place: Path, *more: object, verbose: bool = False) -> tuple[Any, Any]:
    """How a command ended, and its manifest."""
    words = ("--input", place / "events.csv", *KINDS[kind].words, *BUDGET, *more)
    output = place / "out.csv"
    done = command(*words, "--output", output, main=MAIN[KINDS[kind].command], verbose=verbose)
    assert done.status == 0, done.err
    return done, json.loads(Path(f"{output}.manifest.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("kind", KINDS)
def test_a_command_ends_in_three_short_lines(kind: str, place: Path) -> None:
    done, _ = ended(kind, place)
    guarantee, error, left_out = done.out.splitlines()[-3:]
    assert guarantee.startswith("Guarantee: epsilon = 1, delta = 1e-06")
    assert f" for {UNITS[kind]}, over all releases" in guarantee
    assert guarantee.endswith(" in this run.")
    assert error.startswith("Error to expect (95 %): ")
    assert re.search(r"(a count|count\w*|people_each).* is within [\d.]+[,.]", error)
    assert left_out.startswith("Left out")
    assert max(map(len, (guarantee, error, left_out))) <= SHORT + 40 * (kind in LONG)
    assert f"manifest: {place / 'out.csv.manifest.json'} (the exact statements)" in done.out
    assert "note: " not in done.out + done.err
    assert all(line.startswith("warning: ") for line in done.err.splitlines())
    assert max(map(len, [*done.err.splitlines(), ""])) <= 120


@pytest.mark.parametrize("kind", KINDS)
def test_the_manifest_holds_what_verbose_prints(kind: str, place: Path) -> None:
    done, about = ended(kind, place, verbose=True)
    held = [about["guarantee"], about["errors"], *about["remarks"], *about["notes"]]
    printed = done.out.splitlines()
    first = next(i for i, line in enumerate(printed) if line.startswith("private "))
    guarantee = printed.index(about["guarantee"])
    lines = [*printed[:first], *printed[guarantee:], *done.err.splitlines()]
    assert lines
    for line in lines:
        if "by simulation" in line or line.startswith("  "):
            continue  # it differs from run to run
        assert line.removeprefix("note: ").removeprefix("warning: ").strip() in held, line
    short, again = ended(kind, place)
    assert again["notes"] == about["notes"]
    assert short.err == done.err


@pytest.mark.long
def test_an_output_without_a_manifest_is_explained_in_full(place: Path) -> None:
    """There is no file to look the sentences up in."""
    words = ("--input", place / "events.csv", *KINDS["ticks"].words, *BUDGET, "--output", "-")
    done = process(*words, name="ticks")
    assert done.out.startswith("key,step,")
    assert "Guarantee: all releases of all keys together satisfy" in done.err
    assert "note: " in done.err


def test_what_is_left_out_is_named(place: Path) -> None:
    def left_out(kind: str, *more: object) -> str:
        done, _ = ended(kind, place, *more)
        return str(done.out.splitlines()[-1])

    unread = "rows that are outside the clock, of other keys or unreadable"
    people = "further rows of a person, and rows without one (--user)"
    assert left_out("ticks") == f"Left out, and not in that error: {unread}."
    assert left_out("ticks of people") == f"Left out, and not in that error: {unread}; {people}."
    assert "(--max-per-tick)" in left_out("ticks", "--max-per-tick", 3)
    assert left_out("count") == "Left out: nothing; rows after row 60 of a key have no release."
    assert "keys that are not shown" in left_out("select")


def test_numbers_whose_error_is_not_public_have_intervals(place: Path) -> None:
    done, _ = ended("metrics of people", place)
    error = done.out.splitlines()[-2]
    assert "people_each is within" in error
    assert "mean_u_each, rate_each, p50_u_each: see the interval of each release" in error


def test_what_rows_alone_count_is_whether_they_count(place: Path) -> None:
    done, _ = ended("cuts", place, "--relation", "add_remove")
    assert " for whether one row counts (not that it is there), over all releases" in done.out


def test_the_word_of_the_user_is_part_of_the_guarantee(place: Path) -> None:
    done, _ = ended("triangles", place, "--relation", "node")
    assert (
        "for one vertex with all its pairs (not that rows are there), if no vertex has more than 4 "
        "neighbours (--asserted), over" in done.out
    )


def test_the_first_releases_of_a_selected_key_are_too_high(place: Path) -> None:
    done, _ = ended("select", place)
    error = done.out.splitlines()[-2]
    assert "of a key named beforehand (shown or not)" in error
    assert error.endswith("The first releases of a shown key are too high.")


def test_noise_of_a_secret_is_for_its_run_id(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTING_SECRET", "0123456789abcdef" * 4)
    done, _ = ended("ticks", place, "--secret-env", "COUNTING_SECRET")
    assert done.out.splitlines()[-3].endswith(" under this secret and --run-id.")


def test_warnings_that_ask_for_something_are_on_stderr(place: Path) -> None:
    done, _ = ended("ticks", place, "--until", 130, "--epsilon", 5)
    said = done.err.splitlines()
    assert [line.partition(":")[2][:20] for line in said] == [
        " weak budget: epsilo",
        " keys are not checke",
        " 3 of 6 ticks have n",
    ]
    assert "warning: " not in done.out


def test_the_size_is_said_before_the_run(place: Path) -> None:
    done, about = ended("ticks", place)
    assert done.out.splitlines()[0] == "6 keys x 6 ticks = 36 releases"
    assert "6 keys x 6 ticks = 36 releases" in about["notes"]


def test_a_summary_that_cannot_be_printed_says_that_the_counts_are_complete(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(lines: list[str]) -> None:
        if any(line.startswith("Guarantee") for line in lines):
            raise OSError("standard output cannot be written: No space left on device")

    monkeypatch.setattr(running, "say", full)
    words = ("--input", place / "events.csv", *KINDS["count"].words, *BUDGET)
    said = fail(*words, "--output", place / "out.csv")
    assert said == (
        "error: standard output cannot be written: No space left on device; "
        f"the counts are complete: {place / 'out.csv'}\n"
    )
    assert (place / "out.csv").exists()

"""--report, end to end: what is written, and that it holds releases alone."""

from __future__ import annotations

import html
import shutil
from pathlib import Path
from typing import Any

import pytest

import beam_dpcount as dp
from beam_dpcount.budget.account_file import create as create_account
from beam_dpcount.commands import drawing
from beam_dpcount.commands.page import write
from beam_dpcount.commands.task import Task
from tests import command_lines
from tests.command_lines import BUDGET, EXACT, fail
from tests.each_command import KEYS, MAIN, MORE, log, row, rows

VARIABLE, SECRET = "COUNTING_SECRET", "0123456789abcdef" * 4
REPLAYED = (*BUDGET, "--secret-env", VARIABLE)


@pytest.fixture
def events(tmp_path: Path) -> Path:
    return log(tmp_path / "events.csv", rows())


def reported(kind: str, events: Path, *more: object) -> tuple[str, str]:
    """The page, and what was printed."""
    out, page = events.parent / "out.csv", events.parent / "report.html"
    words = ("--input", events, *MORE[kind], "--output", out, "--report", page, *more)
    said = command_lines.succeed(*words, main=MAIN[kind])
    assert f"report: {page}" in said.splitlines()
    return page.read_text(encoding="utf-8"), said


@pytest.mark.parametrize("kind", MORE)
def test_each_command_has_a_report(kind: str, events: Path) -> None:
    """With the guarantee and the errors that are printed, and a browser's idea of a page."""
    page, said = reported(kind, events, *BUDGET)
    assert page.startswith("<!doctype html>\n<html lang=")
    (guarantee,) = (line for line in said.splitlines() if line.startswith("Guarantee: "))
    assert html.escape(guarantee) in page
    (errors,) = (line for line in said.splitlines() if line.startswith("Error to expect"))
    stated = errors.partition(" What is left out is not noise")[0].partition(" A key is shown")[0]
    assert html.escape(stated) in page
    assert (kind == "select") == ("no key was shown" in page.lower())
    assert (kind != "select") == ("<svg" in page)


# What is on the page


@pytest.mark.parametrize("kind", ["ticks", "count"])
def test_the_page_is_a_function_of_what_was_written(
    kind: str, events: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neighbours have the same page but for releases: with the other's output it is the other's."""
    monkeypatch.setenv(VARIABLE, SECRET)
    first, _ = reported(kind, events, *REPLAYED)
    kept = shutil.copy(events.parent / "out.csv", events.parent / "kept.csv")
    other = rows()
    other[3] = row(103, KEYS[3], "a")  # counted otherwise
    if kind == "ticks":
        other[3:4] = []  # or not there at all
    log(events, other)
    second, _ = reported(kind, events, *REPLAYED)
    assert second != first
    draw = drawing.draw

    def of_the_other(task: Task, warnings: Any) -> list[str]:
        shutil.copy(kept, task.options.output)
        return draw(task, warnings)

    monkeypatch.setattr(drawing, "draw", of_the_other)
    assert reported(kind, events, *REPLAYED)[0] == first


def test_what_leaves_no_trace_in_the_output_leaves_none_in_the_page(
    events: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, SECRET)
    first, _ = reported("ticks", events, *REPLAYED)
    log(events, [*rows(), row(5, "ann"), row(999, "bob"), row(101, "s3cr3t")])
    assert reported("ticks", events, *REPLAYED)[0] == first


@pytest.mark.exhaustive
def test_exact_counts_are_not_in_the_page(events: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--show-truth is for the picture alone."""
    monkeypatch.setenv(VARIABLE, SECRET)
    page, _ = reported("count", events, *REPLAYED)
    picture = ("--plot", events.parent / "p.png")
    assert reported("count", events, *REPLAYED, *picture, "--show-truth")[0] == page
    assert "exact counts" not in page
    assert "show-truth" not in page


def test_warnings_are_on_the_page(events: Path) -> None:
    page, said = reported("count", events, *EXACT, "--horizon", 3)
    weak, unchecked, past = (x for x in said.splitlines() if x.startswith("warning: "))
    assert html.escape(weak) in page
    assert html.escape(past) in page
    assert html.escape(unchecked.removeprefix("warning: t")) in page  # among the notes


def test_parquet_has_the_same_page(events: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, SECRET)
    page, _ = reported("graph", events, *REPLAYED)
    other = reported("graph", events, *REPLAYED, "--output", events.parent / "out.parquet")[0]
    assert other == page.replace("statistics (edges): out.csv", "statistics (edges): out.parquet")


# Mistakes


def test_a_page_that_cannot_be_written(events: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> str:
        raise OSError(28, "No space left on device")

    place = events.parent / "r.html"
    given = ("--input", events, *MORE["count"], *BUDGET, "--output", events.parent / "o.csv")
    monkeypatch.setattr(write, "_save", full)
    said = fail(*given, "--report", place)
    assert f"error: '{place}' cannot be written: No space left on device" in said
    assert f"the counts are complete: {events.parent / 'o.csv'}" in said
    assert not place.exists()


def test_the_report_says_what_a_run_costs_and_no_more_of_its_account(
    events: Path, tmp_path: Path
) -> None:
    file = tmp_path / "account.jsonl"
    create_account(str(file), dp.ApproxDP(30.0, 1e-3), None)
    pages = []
    for name in ("a", "b"):
        words = (*BUDGET, "--account", file, "--output", tmp_path / f"{name}.csv")
        page, _ = reported("count", events, *words)
        pages.append(html.unescape(page))
    for page in pages:  # the second one does not tell that there was a first
        assert "This run costs epsilon = 1, delta = 1e-06 of an account of epsilon = 30" in page
        assert str(file) not in page
        assert "left after it" not in page

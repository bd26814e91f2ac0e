"""The help of commands: two screens first, and everything on request."""

from __future__ import annotations

import math
from typing import Any

import pytest

from beam_dpcount.commands import bounds, choose, count, errors, graph, histogram, sequences, ticks
from beam_dpcount.commands.options import Parser
from tests.command_lines import BUDGET, command, fail
from tests.each_command import MORE

SCREEN = 50  # lines of 80 columns
TASKS = (count.Count, ticks.Ticks, histogram.Histogram, sequences.Sequences, graph.Graph)
MODULES = (bounds, choose, count, errors, graph, histogram, sequences, ticks)
MAIN: dict[str, Any] = {one.__name__.rpartition(".")[2]: one.main for one in MODULES}
PARSERS = {task.name: task.parser for task in TASKS}
PARSERS |= {"bounds": bounds.arguments, "errors": errors.arguments, "choose": choose.arguments}


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def options_in(text: str) -> set[str]:
    """The options that have an entry."""
    return {line.split()[0].rstrip(",") for line in text.splitlines() if line.startswith("  -")}


@pytest.mark.parametrize("name", PARSERS)
def test_help_fits_on_two_screens(name: str) -> None:
    parser: Parser = PARSERS[name]()
    lines = parser.format_help().splitlines()
    assert sum(max(1, math.ceil(len(line) / 80)) for line in lines) <= 2 * SCREEN
    assert lines[0].startswith("usage: ")
    assert "[options]" in "".join(lines)


@pytest.mark.parametrize("name", PARSERS)
def test_what_is_not_shown_first_is_in_help_all(name: str) -> None:
    parser: Parser = PARSERS[name]()
    first, everything = parser.format_help(), parser.format_help(everything=True)
    entries = {action.option_strings[0] for action in parser._actions}
    assert options_in(everything) == entries
    more = {f"--{one.name.replace('_', '-')}" for one in parser.arguments if one.more}
    assert options_in(first) == entries - more - {"-h", "--help-all"}
    assert f"{len(more)} more options: --help-all" in first
    # All that a run needs is shown, and all that it says of itself.
    assert all(
        action.option_strings[0] not in more for action in parser._actions if action.required
    )
    assert (parser.epilog or "") in first
    said = command("--help-all", main=MAIN[name])
    assert (said.status, said.out, said.err) == (0, everything, "")
    assert command("--help", main=MAIN[name]).out == first


def test_a_mistake_is_compared_with_all_options() -> None:
    words = ("--input", "x.csv", *MORE["select"], *BUDGET, "--output", "out.csv")
    said = fail(*words, "--select-dleta", "1e-7", run=lambda *all: command(*all, main=ticks.main))
    assert "unknown argument --select-dleta: did you mean --select-delta?" in said

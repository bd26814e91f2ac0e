"""What commands say of keys that nobody listed."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import beam_dpcount as dp

if TYPE_CHECKING:
    from beam_dpcount.budget.budgets import Budget
    from beam_dpcount.counters.selection import Selection

NAMES = {"every": "select_every"}  # of options, by parameters of SelectKeys that have others

HIDDEN = "keys that are not shown, which sums over those that are leave out"
CHOSEN = (
    "A key is shown when its count, noise included, is high: its first releases are too high on "
    "average, and no standard deviation says so."
)


def budget_in_words(budget: Budget, selection: Selection) -> str:
    """The whole budget, and how much of it is for keys.

    Args:
      budget: as it was given.
      selection: when keys are shown.
    """
    delta = f"{selection.delta:g}"
    if isinstance(budget, dp.ApproxDP):
        part = "all of" if selection.delta == budget.delta else f"{delta} of"
        return f"{budget} ({part} delta is for keys)"
    return f"{budget}, and a probability of {delta} for keys,"


def notes(options: argparse.Namespace, selection: Selection) -> list[str]:
    """What to expect, before anything runs."""
    first, *_ = str(selection).splitlines()
    said = [f"note: {first}; it has no release before, and none if it never gets there"]
    if options.at_least > 1:
        said.append(
            f"note: keys that count less than {options.at_least:,} (--at-least) are left out"
        )
    if options.select_every > 1:
        said.append(f"note: keys are tested at one tick in {options.select_every:,} only")
    several = "" if options.separator is None else f" between {options.separator!r}"
    return [
        *said,
        f"note: a key is the text of {options.key}{several} to the letter: one that is spelt in "
        "two ways is two keys, each with its own count",
    ]


def outlook(selection: Selection) -> list[str]:
    """When keys will be shown, by simulation."""
    _, *lines = str(selection).splitlines()
    return [line if line.startswith(" ") else f"note: {line}" for line in lines]

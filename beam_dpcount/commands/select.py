"""The options of keys that nobody listed, their checks, and what is said of them."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import beam_dpcount as dp
from beam_dpcount.checks import check_whole
from beam_dpcount.commands import options as opt
from beam_dpcount.commands.files.formats import InputError

if TYPE_CHECKING:
    from beam_dpcount.budget.budgets import Budget
    from beam_dpcount.counters.selection import Selection, SelectKeys

NAMES = {"every": "select_every"}  # of options, by parameters of SelectKeys that have others

_WITH_KEYS = ("select_delta", "at_least", "select_every")

HIDDEN = "keys that are not shown, which sums over those that are leave out"
CHOSEN = (
    "A key is shown when its count, noise included, is high: its first releases are too high on "
    "average, and no standard deviation says so."
)


# Parsers print it as it is.
_HELP = """\
--select-keys shows a key from the first tick on at which its private count is
  high enough, and then at every tick; how high, and how soon that is, is said
  before the run. What comes before stays hidden, as do keys that never get
  there. Just after a key is shown its releases are too high on average, as they
  were chosen for that; standard deviations and intervals are those of releases
  at their tick, chosen or not."""


def add_select(parser: opt.Parser) -> None:
    table = """
        --select-delta D: the probability that a row (--user: all rows of a person) may show in a
          key that is nobody else's, in all ticks together: a part of --delta (default: half; all
          of it where noise is Laplace); beside --rho or --epsilon alone, which need it
        --at-least N: keys that count less than N in all are left out, and never tested: of a long
          tail of rare keys most take no time; --bounds from 0, and no --min-gap (default 1)
        --select-every N: test keys at one tick in N only: they are shown from lower counts on, and
          later (default 1)
    """
    group = parser.add_argument_group("keys that nobody listed", _HELP)
    remedy = "give e.g. --select-delta 1e-7, or leave it out for half of --delta"
    more = {"select_delta": {"type": opt.delta(remedy)}}
    opt.add(group, table, **more, at_least={"default": 1}, select_every={"default": 1})


def check_select(options: argparse.Namespace) -> None:
    """Raise InputError where one of the options is there without those that it needs."""
    if not options.select_keys:
        for name in _WITH_KEYS:
            if name in options.given:
                raise InputError(
                    f"{opt.option(name)} needs --select-keys, which shows keys by their counts: "
                    "those of --keys are shown whatever they count"
                )
        return
    given, whole = options.select_delta, options.delta
    if given is None and whole is None:
        budget = "--rho" if options.rho is not None else "--epsilon alone"
        raise InputError(
            f"--select-keys needs a delta, and {budget} has none: some noise is so high that it "
            "shows a key that must not be seen; give e.g. --select-delta 1e-7, which is then "
            "beside the budget, or --epsilon 1 --delta 1e-6"
        )
    if given is not None and whole is not None and given >= whole:
        raise InputError(
            f"--select-delta {given:g} leaves nothing of --delta {whole:g} for the counts: give "
            "less, or leave it out for half"
        )


def keys_of(options: argparse.Namespace) -> SelectKeys:
    """Which keys are shown; a ParameterError for numbers out of range."""
    for name in ("at_least", "select_every"):
        check_whole(name, getattr(options, name))
    return dp.SelectKeys(options.select_delta, options.at_least, options.select_every)


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
    first, *lines = str(selection).splitlines()
    said = [f"note: {first}; it has no release before, and none if it never gets there"]
    if options.at_least > 1:
        said.append(
            f"note: keys that count less than {options.at_least:,} (--at-least) are left out"
        )
    if options.select_every > 1:
        said.append(f"note: keys are tested at one tick in {options.select_every:,} only")
    said += [line if line.startswith(" ") else f"note: {line}" for line in lines]
    several = "" if options.separator is None else f" between {options.separator!r}"
    return [
        *said,
        f"note: a key is the text of {options.key}{several} to the letter: one that is spelt in "
        "two ways is two keys, each with its own count",
    ]

"""The options of a person-level guarantee, and their checks."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import beam_dpcount as dp
from beam_dpcount.checks import check_whole
from beam_dpcount.commands import options as opt
from beam_dpcount.commands.clock import duration
from beam_dpcount.commands.files.formats import InputError, person_of

if TYPE_CHECKING:
    from beam_dpcount.counters.people import Users

_WITH_USER = ("per_user", "max_keys", "per_key", "min_gap")


def add_users(parser: opt.Parser, with_gap: bool = False) -> None:
    table = """
        --user COLUMN: protect a person, not a row: whose a row is; the budget is then for all
          releases of all keys together; an empty cell is no person, and its row does not count;
          needs --per-user
        --per-user K: the most rows of a person that count, in all keys together; more of them need
          more noise, fewer leave more out (`beam-dpcount bounds` compares them)
        --max-keys M: the most keys of a person (default: as many as rows)
        --per-key J: the most rows of a person in one key (default 1: people, each once a key;
          without --key, as many as --per-user)
    """
    gap = """
        --min-gap TIME: the least time between two rows of a person, as for --tick; with several
          rows a key, a gap of many ticks takes much less noise; needs --late drop with --path
          streaming
    """
    group = parser.add_argument_group("protecting people, each with all their rows")
    opt.add(group, table)
    if with_gap:
        opt.add(group, gap, min_gap={"type": duration("--min-gap 1h")})


def check_users(options: argparse.Namespace) -> None:
    """Raise InputError where one of the options is there without those that it needs."""
    gap = getattr(options, "min_gap", None)
    if options.user is None:
        for name in _WITH_USER:
            if name in options.given:
                raise InputError(
                    f"{opt.option(name)} needs --user COLUMN, which says whose a row is: without "
                    "it one row is protected, and not a person"
                )
        return
    if options.per_user is None:
        raise InputError(
            "--user needs --per-user K, the most rows of a person that count: the noise grows "
            "with it, and further rows are left out; give e.g. --per-user 5"
        )
    if gap is not None and options.path == "streaming" and options.late == "fold":
        raise InputError(
            "--min-gap with --path streaming needs --late drop: fold counts a late row at another "
            "tick, which may be closer to others of its person"
        )
    if gap is not None and options.separator is not None:
        raise InputError(
            "--min-gap does not go with --separator: the keys of a row have one time, so that "
            "only one of them would count; leave one of the two out"
        )


def users_of(options: argparse.Namespace) -> Users | None:
    """Whom to protect, or None: one row; a ParameterError for numbers out of range."""
    if options.user is None:
        return None
    for name in ("per_user", "max_keys", "per_key"):
        given = getattr(options, name)
        if given is not None:
            check_whole(name, given)
    gap = getattr(options, "min_gap", None)
    return dp.Users(person_of, options.per_user, options.max_keys, per_key_of(options), gap)


def per_key_of(options: argparse.Namespace) -> int:
    """The most rows of a person in one key: as given, or else 1, unless all rows are of one key."""
    default = options.per_user if options.key is None else 1
    return int(default if options.per_key is None else options.per_key)

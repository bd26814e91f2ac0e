"""What one row, or one person, can change, from the options of commands that read no rows."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

from beam_dpcount.arguments.argument import parsed
from beam_dpcount.checks import check_whole
from beam_dpcount.commands import options as opt
from beam_dpcount.commands.files.formats import InputError
from beam_dpcount.counters.change import RELATIONS, Change, TickChange, check_unit
from beam_dpcount.counters.clip import ample, least_most
from beam_dpcount.counters.users import UserChange, group_of

_AT_TICKS = ("ticks", "max_per_tick", "max_items")
_OF_PEOPLE = ("per_user", "max_keys", "per_key")


STEPS = parsed(
    "count",
    f"""
    horizon T: whole, one_of=steps, example=20000
        the most elements of a key
    ticks N: whole, one_of=steps, example=24
        the number of ticks of the clock
    relation {{{",".join(RELATIONS)}}}: text
        what is protected (default replace_one; with --ticks add_remove)
    max_per_tick N: whole, example=1000
        with --ticks: the sum of a key's rows in one tick is clipped to N times the largest value
        (default 2^30, or less if 64 bits would not hold all sums, or noise would grow with it)
    max_items B: whole, example=3
        with --ticks: the most keys that one row counts under (default 1)
    """,
)


def steps_of(options: argparse.Namespace) -> int:
    steps = options.horizon if options.ticks is None else options.ticks
    if steps is None:
        raise InputError("give --horizon, the most elements that any key will have, or --ticks")
    return int(steps)


def change_of(options: argparse.Namespace) -> Change:
    """What one row can change; with --per-user, what one person can."""
    low, high = options.bounds
    given = [n for n in _AT_TICKS if getattr(options, n) is not None]
    people = _people(options)
    if options.ticks is None:
        for name in given:
            raise InputError(f"{opt.option(name)} goes with --ticks, not --horizon")
        change = Change(low, high, options.relation or "replace_one")
        check_unit(options.unit, change)
        if not people:
            return change
        return group_of(change, people["events"], people["per_key"], False, own_step=True)
    for name in given:
        check_whole(name, getattr(options, name))
    items = 1 if options.max_items is None else options.max_items
    relation = options.relation or "add_remove"
    ticks = TickChange(low, high, relation, max_items=items)
    if people:
        ticks = UserChange(low, high, relation, max_items=items, **people)
    unit = check_unit(options.unit, ticks)
    most = options.max_per_tick
    if most is None:
        most = least_most(ticks.magnitude(unit), options.ticks)
    return replace(ticks, most=most)


def amply(options: argparse.Namespace, counter: Any) -> Any:
    """A counter of `change_of` for a clock. Without --max-per-tick it counts as much of a tick as
    costs nothing more."""
    if options.ticks is None or options.max_per_tick is not None:
        return counter
    return ample({None: counter})[None]


def _people(options: argparse.Namespace) -> dict[str, Any]:
    """The bound on a person, by the names of `UserChange`; empty where there is none."""
    given = {name: getattr(options, name, None) for name in _OF_PEOPLE}
    if given["per_user"] is None:
        for name, x in given.items():
            if x is not None:
                raise InputError(f"{opt.option(name)} needs --per-user K, the rows of a person")
        return {}
    for name, x in given.items():
        if x is not None:
            check_whole(name, x)
    events = given["per_user"]
    items = 1 if options.max_items is None else options.max_items
    keys = events * items if given["max_keys"] is None else given["max_keys"]
    if options.ticks is not None and "keys" in options.given:  # there are no more
        keys = min(keys, options.given["keys"])
    per_key = min(events if given["per_key"] is None else given["per_key"], events)
    if options.ticks is None:  # after every element a key more or less changes nothing
        return {"events": min(events, keys * per_key), "per_key": per_key}
    return {"events": events, "keys": keys, "per_key": per_key}

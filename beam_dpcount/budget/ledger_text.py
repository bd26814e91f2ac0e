"""What a ledger says in print: its shares, whom each protects, and which epsilon holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import repeat

from beam_dpcount.budget.budgets import ZCDP, PureDP
from beam_dpcount.budget.conversions import float_up, rounded_up
from beam_dpcount.budget.shares import Share, percent
from beam_dpcount.budget.standing import Standing
from beam_dpcount.notebooks import aligned, table

_NOTE = """\
Shares add up: one event may count in each of them. Windows do not: the budget is per window, and
an event lies in one of FixedWindows. Nor do keys where releases come per element, as an element
has one key. Every run over the same data spends all of it again."""

_MIXED = """\
For one person, nothing follows from shares that protect an event: someone with n events has n
times their epsilon (n^2 times their rho), and nobody bounds n there. Give users= to all counts."""
_BEHIND = """\
For one event, what protects a person counts {how}: without that event, others
of its person's may count in its place. The sum may exceed the budget, which is a person's."""

_KEYS = """\
Delta for keys: where keys are not listed but shown once their private counts are high enough, the
probability, at most, of showing any that only {whom} has. It adds up over shares.
{beside}"""

SEVERAL = (7, 30)  # periods of one person, whose cost together is shown
_COLUMNS = ("share", "part", "budget", "delta for keys", "claimed by")
_PART, _KEYS_DELTA = 1, 3  # the latter is shown where anything is kept for keys


def statement(standing: Standing, delta: float | None) -> str:
    """What was spent where, what is left, and the epsilon of what is claimed and of all."""
    lines = aligned(
        [*_rows(standing)], right=(_PART, _KEYS_DELTA) if standing.keys_delta else (_PART,)
    )
    return "\n".join([_heading(standing), "", *lines, "", _holds(standing, delta)])


def html(standing: Standing) -> str:
    """The same for a notebook."""
    heading, *rows = _rows(standing)
    return table(_heading(standing), rows, heading, _holds(standing, None))


def _heading(standing: Standing) -> str:
    heading = f"{standing.title}: {standing.budget}"
    if standing.has_delta:
        heading += f"; in all rho = {float(standing.total):g} (zCDP)"
    if standing.keys_delta:
        kept = f"{float(standing.keys_delta):g}"
        of_it = f"{kept} of delta kept" if standing.has_delta else f"beside it delta = {kept}"
        heading += f"; {of_it} for keys"
    return heading


def _rows(standing: Standing) -> Iterator[tuple[str, ...]]:
    """All shares and what is left, below `_COLUMNS`."""
    left = standing.budget_left
    rest = percent(standing.part_left), str(left or ""), f"{float(standing.keys_delta_left):g}"
    for row in (_COLUMNS, *map(_row, repeat(standing), standing.shares), ("left", *rest, "")):
        yield row if standing.keys_delta else (*row[:_KEYS_DELTA], *row[_KEYS_DELTA + 1 :])


def _row(standing: Standing, share: Share) -> tuple[str, ...]:
    by = share.claimed_by or "-"
    if standing.has_people and share.claimed_by:
        by += f", for {share.protects.person or 'one event'}"
    keys = f"{float(share.keys_delta):g}" if share.keys_delta else "-"
    return share.name, percent(share.part), str(share.budget), keys, by


def _holds(standing: Standing, delta: float | None) -> str:
    """Which epsilon holds, and what adds up."""
    said = _of_people(standing, delta) if standing.has_people else _of_events(standing, delta)
    notes = [_NOTE, "", _of_keys(standing)] if standing.keys_delta else [_NOTE]
    notes += ["", standing.entered] * bool(standing.entered)
    return "\n".join([said, "", *notes])


def _of_events(standing: Standing, delta: float | None) -> str:
    """What holds for an event, where no share protects more."""
    whole = standing.for_keys(False)
    delta = standing.usual_delta(whole) if delta is None else delta
    spent = _in_words(standing, standing.parts(True), standing.for_keys(True), delta)
    every = _in_words(standing, standing.parts(False), whole, delta)
    return f"epsilon{_where(delta)}: {spent} of what is claimed, {every} of all"


def _of_people(standing: Standing, delta: float | None) -> str:
    """What holds for a person, or a period of one, and for an event."""
    if standing.units:
        said = _of_periods(standing, delta)
        mixed = any(standing.refusal(s) != "" for s in standing.shares)
    else:
        mixed = any(s.claimed_by and not s.protects.person for s in standing.shares)
        said = [_of_person(standing, delta, mixed)]
    keys = standing.for_keys(True, "event")
    later = standing.usual_delta(keys) if delta is None else delta
    event = _in_words(standing, standing.parts(True, of="event"), keys, later)
    said.append(f"epsilon{_where(later)}, for one event: {event} of what is claimed")
    more = [s for s in standing.shares if s.protects.person and s.protects.event_cost > 1]
    ways = {
        "twice in epsilon"
        if isinstance(s.budget, PureDP)
        else f"{s.protects.event_cost} times in rho"
        for s in more
    }
    if ways:
        said += ["", _BEHIND.format(how=" or ".join(sorted(ways)))]
        said += ["Its delta for keys counts twice."] * any(s.keys_delta for s in more)
    return "\n".join(said + ["", _MIXED] * mixed)


def _of_person(standing: Standing, delta: float | None, mixed: bool) -> str:
    mine = [s for s in standing.shares if s.protects.person]
    keys = sum((s.keys_delta for s in mine), Fraction(0))
    whole = standing.for_keys(False)
    at = standing.usual_delta(keys if mixed else whole) if delta is None else delta
    person = _in_words(standing, [s.budget for s in mine], keys, at)
    names = ", ".join(s.name for s in mine)
    rest = (
        " alone" if mixed else f", {_in_words(standing, standing.parts(False), whole, at)} of all"
    )
    return f"epsilon{_where(at)}, for one person: {person} by {names}{rest}"


def _of_periods(standing: Standing, delta: float | None) -> list[str]:
    """What holds for one person's events of a period, and of several."""
    unit, said = standing.units[0], []
    mine = [s for s in standing.shares if s.claimed_by and not standing.refusal(s)]
    for many in (1, *SEVERAL):
        keys = sum((s.protects.delta_of(s.keys_delta, unit, many) for s in mine), Fraction(0))
        at = standing.usual_delta(sum((s.keys_delta for s in mine), Fraction(0)))
        at = at if delta is None else delta
        parts = [s.protects.budget_of(s.budget, unit, many) for s in mine]
        if at is None and keys:
            at = float_up(keys)
        which = unit.any if many == 1 else f"{many} {unit.plural}"
        found = _in_words(standing, parts, keys, at)
        said.append(f"epsilon{_where(at)}, for one person's events of {which}: {found}")
    said[0] += f" by {', '.join(s.name for s in mine)}"
    return said


def _of_keys(standing: Standing) -> str:
    beside = "It comes beside the budget, which holds but for it."
    if standing.has_delta:
        beside = "It is part of delta, and noise is made for what it leaves of that."
    whom = "one event or person" if standing.has_people else "one event"
    return _KEYS.format(whom=whom, beside=beside)


def _in_words(
    standing: Standing, parts: Sequence[PureDP | ZCDP], keys: Fraction, delta: float | None
) -> str:
    epsilon = standing.epsilon(parts, keys, delta)
    if epsilon is None:
        return f"none (keys take {float_up(keys):g} of delta)"
    return rounded_up(epsilon)


def _where(delta: float | None) -> str:
    return "" if delta is None else f" at delta = {delta:g}"


def in_line(standing: Standing) -> str:
    """All shares in one line, for annotations and display data."""
    parts = [f"{s.name}: {percent(s.part)} of {standing.budget}" for s in standing.shares]
    parts.append(f"left: {percent(standing.part_left)}")
    if standing.keys_delta:
        left, whole = float(standing.keys_delta_left), float(standing.keys_delta)
        parts.append(f"delta for keys: {left:g} of {whole:g} left")
    return "; ".join(parts)


def overspent(standing: Standing, name: str, cost: Fraction | None) -> str:
    """Why a share of this name and cost is refused; None: it asks for what is left."""
    asks = "what is left" if cost is None else percent(cost / standing.total)
    left, remedy = "nothing", "lower the other shares, or raise its budget"
    if standing.left:
        left, remedy = percent(standing.part_left), "take less, or rest()"
    taken = ", ".join(f"{s.name} {percent(s.part)}" for s in standing.shares)
    return (
        f"{standing.title} would be overspent: {name!r} asks for {asks} of {standing.budget}, but "
        f"{left} is left{' after ' if taken else ''}{taken}: {remedy}"
    )


def overspent_on_keys(standing: Standing, by: str, asked: Fraction) -> str:
    """Why a claim of so much delta for keys is refused."""
    asks = f"{by!r} shows keys that nobody listed, and asks for {float(asked):g} of delta"
    if not standing.keys_delta:
        remedy = "make it Ledger(budget, keys_delta=...), with what all such transforms take"
        return f"{standing.title} keeps no delta for keys, but {asks}: {remedy}"
    left, remedy = "nothing", "lower the others' delta, or raise the ledger's keys_delta"
    if standing.keys_delta_left:
        left, remedy = f"{float(standing.keys_delta_left):g}", "take less, or raise its keys_delta"
    taken = ", ".join(f"{s.name} {float(s.keys_delta):g}" for s in standing.shares if s.keys_delta)
    return (
        f"{standing.title} would be overspent: {asks}, but {left} of its keys_delta = "
        f"{float(standing.keys_delta):g} is left{' after ' if taken else ''}{taken}: {remedy}"
    )

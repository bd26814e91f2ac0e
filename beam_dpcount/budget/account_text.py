"""What an account says in print: its runs, their columns, and what holds of them together."""

from __future__ import annotations

import datetime as dt

from beam_dpcount.budget.account import DEARER, DONE, SEVERAL, Account, Run
from beam_dpcount.budget.charges import Charge
from beam_dpcount.budget.conversions import USUAL_DELTA, float_up, rounded_up, zcdp_epsilon
from beam_dpcount.budget.odometer import (
    MEANINGS,
    PRESENCE,
    UNKNOWN,
    ColumnUse,
    Odometer,
    listed,
    ordered,
    runs,
)
from beam_dpcount.notebooks import aligned

_HEADING = ("run", "time", "command", "costs", "of input", "output")
_COUNTS = "it did not end well, and counts"
NO_GUARANTEE = "no guarantee: keys that one person alone uses will be shown"
_ELSEWHERE = (
    "This is only for rows that were not counted under another account or without one. Columns are "
    "compared by name: a copy under another name, nested in another column or computed from it, is "
    "not detected."
)


def statement(account: Account) -> str:
    """What was spent on what, and what holds of all of it."""
    numbers: dict[tuple[int, str], str] = {}  # of the inputs, by size and digest
    rows, going_on = [_HEADING], {entry.run for entry in account.states.values()}
    for run in account.runs.values():
        names = [numbers.setdefault(each[1:], f"{len(numbers) + 1}") for each in run.inputs]
        where = "+".join(names) or "?"
        ends = run.end == DONE or bool(run.claim) or run.number in going_on
        number, costs = str(run.number), _costs(run, account.odometer.is_of_replacement, ends)
        output = run.output or f"pipeline {run.id}".rstrip()
        rows.append((number, run.time, run.command, costs, where, output))
    paths = {each[1:]: each[0] for run in account.runs.values() for each in run.inputs}
    inputs = [f"input {name}: {paths[key]}, {key[0]:,} bytes" for key, name in numbers.items()]
    adds = "rhos" if account.total.rho else "epsilons and deltas" * bool(account.total.delta)
    of_periods = f" for {account.unit}" * bool(account.unit)
    return "\n".join(
        [
            f"account {account.path} (private: it has digests of the input), since {account.time}",
            f"for {account.whose}{_not_for(account)}",
            *_of_periods(account),
            "",
            *(aligned(rows) if account.runs else ["no runs yet"]),
            *inputs,
            *_states(account),
            *_uses(account),
            "",
            f"total: {account.total}{of_periods}; {adds or 'epsilons'} of runs add up",
            f"spent: {account.spent}{of_periods}",
            f"left:  {account.left}{of_periods}",
            "",
            holds(account),
        ]
    )


def _not_for(account: Account) -> str:
    """What the account is not for."""
    if account.user is not None and account.periods is None:
        return ""
    return ", not for all rows of a person"


def _of_periods(account: Account) -> list[str]:
    """Which periods an account is for."""
    own = account.periods
    if own is None:
        return []
    begin = f"one of these {own.plural} begins at {_instant(own.start)}"
    by = f"the time in {' '.join(own.time)!r}, which all runs must read alike"
    return [f"{begin}; rows lie in them by {by}"]


def _instant(micros: int) -> str:
    return (dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=micros)).isoformat() + "Z"


def _several(account: Account) -> list[str]:
    """What several periods of one person cost together, in sentences."""
    own = account.periods
    if own is None:
        return []
    said, every = [], account.spent_on("all")
    for name in SEVERAL:
        spent = account.spent_on(name)
        if spent is not None and (name == "all" or spent != every):
            cost = NO_GUARANTEE if spent.delta >= 1 else _in_words(spent)
            said.append(f"{name} {own.plural}: {cost}")
    untimed = [run.number for run in account.counted if not run.time_is_known]
    sure = f"This holds only if the time that {runs(untimed)} read was that in "
    return [f"Of one person, {'; '.join(said)}."] + [f"{sure}{' '.join(own.time)!r}."] * bool(
        untimed
    )


def _costs(run: Run, of_replacement: bool, ends_well: bool) -> str:
    charged = run.charges.claimed(of_replacement)
    if run.again is not None and not charged:
        return f"nothing: run {run.again} again"
    if not run.counts:
        return f"nothing ({run.end})"
    return str(charged) if ends_well else f"{charged} ({_COUNTS})"


def _states(account: Account) -> list[str]:
    """Up to where counts that go on have come."""
    return [
        f"run {entry.run} goes on from a state, at no further cost: {_many(entry.tick, 'tick')} "
        f"released so far, in {_many(entry.nights, 'run')}, the last one at {entry.time}"
        for entry in account.states.values()
    ]


def _many(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"


def _uses(account: Account) -> list[str]:
    """Which columns which runs use."""
    same: dict[ColumnUse, list[int]] = {}
    for run in account.counted:
        same.setdefault(run.use, []).append(run.number)
    return [
        f"{runs(numbers)}: public {listed(ordered(use.public))}; "
        f"protected {listed(ordered(use.protected))}"
        for use, numbers in same.items()
    ]


def holds(account: Account) -> str:
    """What holds of all runs together."""
    odometer = account.odometer
    if not account.counted:
        return "Nothing was released yet."
    sentences = [f"Nothing is claimed for {account.whose}."]
    if odometer.claimed:
        released = f"All that these runs released satisfies {_in_words(account.spent)}"
        sentences = [f"{released} for {account.whose}: {_claim(account, odometer)}."]
        sentences += _several(account)
    if odometer.public:
        columns = listed(ordered(odometer.public - {UNKNOWN}))
        sentences.append(f"Public: {columns}.")
    for (protecting, publishing), names in odometer.lost_to.items():
        sentences.append(
            f"Nothing is claimed about {listed(names)}, which {runs(protecting)} protected and "
            f"{runs(publishing)} published."
        )
    if odometer.is_of_replacement and odometer.claimed:
        sentences.append(f"Costs are those of {DEARER}.")
    if odometer.unknown and odometer.claimed:
        sentences.append(
            f"This holds only if {runs(odometer.unknown)}, whose columns are not known, "
            "published none of these columns."
        )
    for run in account.counted:
        if run.again is not None and run.claim:
            sentences.append(
                f"This holds only if run {run.number} started from the last state of run "
                f"{run.again}, as it was said to."
            )
    return " ".join([*sentences, _ELSEWHERE])


def _in_words(spent: Charge) -> str:
    also = ""
    if spent.rho:
        epsilon = zcdp_epsilon(float_up(spent.rho), USUAL_DELTA)
        also = f" (zCDP), and so epsilon = {rounded_up(epsilon, 4)} at delta = {USUAL_DELTA:g},"
    return f"{spent}{also}"


def _claim(account: Account, odometer: Odometer) -> str:
    """What is protected about a row (or person)."""
    presence, content = (
        ("that it exists", "what it says")
        if account.user is None
        else ("that they have rows", "what these say")
    )
    if account.periods is not None:
        presence = "that they have rows in it"
    names = listed(ordered(odometer.claimed - {*MEANINGS}), "")
    cells = [f"{content} in {names}"] if names else []
    if UNKNOWN in odometer.claimed:
        cells.append(f"{content} in columns that are not known")
    if PRESENCE in odometer.claimed:
        return " and ".join([presence, *cells])
    anything = odometer.is_of_replacement or account.spent_if(True) == account.spent_if(False)
    other = "anything else" if anything else "nothing"
    if account.periods is not None:
        other += f", as long as the rows stay theirs and in their {account.periods.word}"
    return f"{' and '.join(cells)}, rather than {other}, all else equal"

"""An account: what runs over one set of rows cost in all, and which further run it refuses.

A run is charged when it starts. It is refunded only if nothing can have been released.

How charges add up is fixed when the account is made. The rule must not depend on what was seen:

- a total of epsilon, with or without delta: epsilons add up, and deltas [basic composition];
- a total of rho: rhos add up [Bun, Steinke 2016]; a run by epsilon (and delta) costs the rho of
  its noise, whatever it is.

Both hold too where the budget of a run was chosen after looking at releases of runs before it, as
long as the total is fixed [Rogers, Roth, Ullman, Vadhan 2016; Feldman, Zrnic 2021].

An account is for one row or for one person. It claims something about the columns that some run
protects and no run publishes; `odometer.py` keeps track of them. Charges never shrink: not if a run
publishes a protected column, and not if the claim becomes one of replacement.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from beam_dpcount.budget.budgets import ZCDP, Budget
from beam_dpcount.budget.charges import Charge, Charges, charge_of, written
from beam_dpcount.budget.odometer import (
    PRESENCE,
    UNKNOWN,
    ColumnUse,
    Odometer,
    runs,
    with_runs,
)
from beam_dpcount.checks import ParameterError
from beam_dpcount.errors import OverspentError

FORMAT = 2
OF_PERIODS = 3  # the format of an account for one person's periods, which earlier versions ignore
OF_STATES = 4  # that of one with a run that goes on from a state, likewise
SEVERAL = {"7": 7, "30": 30, "all": None}  # periods of one person whose cost together is kept
DONE, NOTHING = "done", "nothing was released"
DEARER = "replacing a row, as it is public that the row exists"


class AccountError(ParameterError):
    """An account that cannot be used, or a run that it refuses."""


class OverspentAccountError(AccountError, OverspentError):
    """A run that costs more than its account has left."""


def check_unit(account: Account, refusal: str, remedy: str) -> None:
    """Raise AccountError for a run of which nothing follows for what an account is for.

    Args:
      refusal: why not; empty: something does.
      remedy: what to do.
    """
    if refusal:
        raise account_error(
            f"account {account.path!r} is for {account.whose}, and this run {refusal}: nothing "
            "would follow for that",
            remedy,
        )


def account_error(problem: str, remedy: str = "", name: str = "account") -> AccountError:
    """The error of a sentence, and of the parameter that its remedy is about."""
    return AccountError(name, problem, remedy, True)


class InWords:
    """What public periods are called.

    Fields:
      word: one of them.
    """

    word: str

    @property
    def any(self) -> str:
        """Which of them, in words."""
        return f"any one {self.word}"

    @property
    def plural(self) -> str:
        first, *rest = self.word.split(" ", 1)
        return " ".join([f"{first}s", *rest])


@dataclass(frozen=True)
class AccountPeriods(InWords):
    """Public periods without an end: an account is for one person's rows of any one of them.

    Args:
      per: the length of one, as text.
      start: when one of them begins, in microseconds.
      zone: if periods are local days, whose; else None.
      time: the columns of the time by which rows lie in periods.
      word: what one of them is called.
    """

    per: str
    start: int
    zone: str | None
    time: tuple[str, ...]
    word: str


@dataclass(frozen=True)
class Run:
    """A line of an account, with what its later lines say."""

    number: int
    time: str
    command: str
    charges: Charges
    use: ColumnUse
    said: str  # the budget and what else it is about, in words
    output: str
    inputs: tuple[tuple[str, int, str], ...]  # path, bytes, digest
    again: int | None = None  # the run that it replayed
    end: str = ""
    mark: str = ""  # of what was counted, where another run would release the same
    changed: bool = False  # whether the inputs changed while it ran, so that no digest is theirs
    released: Mapping[int, str] = field(default_factory=dict)  # digests, by tick
    noise: str = ""  # of replayable noise: runs that share it draw the same from equal histories
    id: str = ""  # of a pipeline's run, as its user named it
    claim: str = ""  # a digest of what a transform of a pipeline releases; of a command: empty
    # What several periods of one person cost; a cost that is not there is that of one, and None
    # has no end.
    several: Mapping[str, Charges | None] = field(default_factory=dict)
    time_is_known: bool = True  # whether its column of times has a name

    @property
    def counts(self) -> bool:
        return self.end != NOTHING


@dataclass(frozen=True)
class StateEntry:
    """What an account says of a count that goes on from a state, run after run.

    Fields:
      id: of the state, public.
      run: the number of the line that was charged for all of its runs.
      digest: of the one state that may go on: that of the last run that finished.
      tick: up to which all is released.
      generation: the number of the last run that began.
      nights: how many runs finished.
      time: when the last of them did.
    """

    id: str
    run: int
    digest: str
    tick: int = 0
    generation: int = 0
    nights: int = 0
    time: str = ""


@dataclass
class Account:
    """An account as its file has it."""

    path: str
    total: Charge = field(default_factory=Charge)
    user: str | None = None  # the column that says whose a row is; None: it is for one row
    time: str = ""
    format: int = FORMAT
    runs: dict[int, Run] = field(default_factory=dict)
    periods: AccountPeriods | None = None  # it is for a person's rows of one; None: for all rows
    states: dict[str, StateEntry] = field(default_factory=dict)  # by their ids

    @property
    def counted(self) -> list[Run]:
        return [run for run in self.runs.values() if run.counts]

    @property
    def odometer(self) -> Odometer:
        return Odometer({run.number: run.use for run in self.counted})

    @property
    def spent(self) -> Charge:
        """What all runs cost together, for what is still claimed."""
        return self.spent_if(self.odometer.is_of_replacement)

    def spent_if(self, of_replacement: bool) -> Charge:
        """What all runs cost together, if the claim is one of replacement, or of presence."""
        return sum((run.charges.claimed(of_replacement) for run in self.counted), Charge())

    def spent_on(self, several: str) -> Charge | None:
        """What several periods of one person cost together: of SEVERAL; None: they have no end."""
        of_replacement, spent = self.odometer.is_of_replacement, Charge()
        for run in self.counted:
            charges = run.several.get(several, run.charges)
            if charges is None:
                return None
            spent += charges.claimed(of_replacement)
        return spent

    @property
    def left(self) -> Charge:
        return self.total - self.spent

    def charge(self, budget: Budget, keys_delta: float = 0.0) -> Charge:
        """A budget that is spent in full, in the unit of this account: epsilon and delta, or rho.

        Args:
          budget: what is spent.
          keys_delta: the delta of a run that shows keys nobody listed, in all.

        Raises:
          AccountError: it cannot be charged in this unit.
        """
        if self.total.rho:
            if keys_delta:
                raise account_error(
                    f"account {self.path!r} adds up rho, and has no delta for keys that nobody "
                    "listed",
                    "take an account of {epsilon} and {delta}, or list {keys}",
                )
            return charge_of(budget if isinstance(budget, ZCDP) else budget.to_zcdp())
        if isinstance(budget, ZCDP):
            raise account_error(
                f"account {self.path!r} adds up epsilon, and this run has a rho",
                "give {epsilon} and {delta} in its place, or take an account of {rho}",
            )
        charge = charge_of(budget)
        if keys_delta:
            charge = replace(charge, delta=written(keys_delta))
        if charge.delta and not self.total.delta:
            raise account_error(
                f"account {self.path!r} has no delta, and this run takes one",
                "give {epsilon} alone and listed {keys}, or take an account of {epsilon} and "
                "{delta}",
            )
        return charge

    @property
    def unit(self) -> str:
        """Whose rows of one period it is for, in few words; empty: it is for no period."""
        return "" if self.periods is None else f"one person's rows of {self.periods.any}"

    @property
    def whose(self) -> str:
        if self.user is None:
            return "one row"
        person = f"a cell of {self.user!r} to the letter"
        if self.periods is not None:
            return f"{self.unit}, the person {person}"
        return f"one person, {person}, with all rows"

    @property
    def two_changes(self) -> str:
        """Why a run behind a bound on people is two changes."""
        if self.periods is None:
            gone = "one row others may count in its place, so that for a row this run"
        else:
            gone = "rows of one period others of the person may count in their place, so that it"
        return f"without {gone} is two changes"

    def replayed(self, mark: str) -> int | None:
        """The run that released what a run of this mark would release."""
        if not mark:
            return None
        same = (n for n, run in self.runs.items() if run.mark == mark and run.end == DONE)
        return next(same, None)

    def continued(self, run_id: str, claim: str, but: Collection[int]) -> int | None:
        """The first charge of a pipeline's run for what this claim releases, but for these."""
        same = (
            number
            for number, run in self.runs.items()
            if run.id == run_id and run.claim == claim and run.again is None and number not in but
        )
        return next(same, None)

    def check_noise(self, noise: str, inputs: Sequence[Sequence[Any]]) -> None:
        """Raise AccountError where a run drew this noise for other rows, or may have.

        Releases of both then differ only where rows do: whoever has both sees which, whatever they
        cost. `inputs` are path, size and digest of each file, or none where they are not known.
        """
        files = [(size, digest) for _, size, digest in inputs]
        for run in self.counted:
            counted = None if run.changed else [(size, digest) for _, size, digest in run.inputs]
            if noise and run.noise == noise and not (files and counted == files):
                raise account_error(
                    f"account {self.path!r}: this run would draw the same noise as run "
                    f"{run.number}, but the rows have changed since, or may have: both outputs "
                    "together would show which",
                    "give another {run_id=}, which makes it a run of its own, at its full cost",
                    "run_id",
                )

    def _is_of_replacement_after(self, use: ColumnUse) -> bool:
        return self.odometer.with_run(0, use).is_of_replacement

    def price(self, charges: Charges, use: ColumnUse) -> Charge:
        """What one more run would cost, for what is still claimed after it."""
        return charges.claimed(self._is_of_replacement_after(use))

    def spent_after(self, charges: Charges, use: ColumnUse) -> Charge:
        """What all runs and one more would cost together, for what is still claimed after it."""
        after = self._is_of_replacement_after(use)
        return self.spent_if(after) + charges.claimed(after)

    def check_names(self, use: ColumnUse, allowed: Collection[str]) -> None:
        """Raise AccountError for an allowed column that neither this run nor one before it uses.

        A mistyped name would give up nothing, and seem to.
        """
        uses = [use, *(run.use for run in self.counted)]
        names = {PRESENCE, UNKNOWN}.union(*(each.public | each.protected for each in uses))
        for name in allowed:
            if name not in names:
                remedy = f"give {{allow_public=}}columns of its runs, such as {PRESENCE}"
                raise account_error(
                    f"account {self.path!r}: no run uses a column {name!r}", remedy, "allow_public"
                )

    def dearer(self, use: ColumnUse) -> str:
        """That earlier runs then cost more, if one more run makes it so; continues a sentence."""
        after = self.spent_if(self._is_of_replacement_after(use))
        if not after.exceeds(self.spent):
            return ""
        return f", and earlier runs then cost {after}, not {self.spent} ({DEARER})"

    def admit(
        self,
        charges: Charges,
        use: ColumnUse,
        user: str | None,
        allowed: Collection[str],
        why: str,
        noise: str,
        inputs: Sequence[Sequence[Any]] = (),
    ) -> None:
        """Raise AccountError for a run that may not be added, by every check there is."""
        self.check_noise(noise, inputs)
        self.check_names(use, allowed)
        self.check(charges, use, user, allowed, why)

    def check(
        self,
        charges: Charges,
        use: ColumnUse,
        user: str | None,
        allowed: Collection[str] = (),
        why: str = "",
    ) -> None:
        """Raise AccountError for a run that may not be added.

        Args:
          charges: what it costs.
          use: its columns.
          user: the column of the person it protects; None if it protects a row.
          allowed: columns about which the account may claim nothing from now on.
          why: why the run costs more than its budget, if it does.
        """
        if self.user is not None and user != self.user:
            given = "has none" if user is None else f"has {user!r}"
            rows = "" if self.periods is None else f"'s rows of {self.periods.any}"
            raise account_error(
                f"account {self.path!r} is for one person{rows}, a cell of {self.user!r}, and this "
                f"run {given}: nothing would follow for that person",
                f"give {{user=}}{self.user}, or another account",
                "user",
            )
        self._check_columns(use, allowed)
        self._check_total(charges, use, why)

    def _check_columns(self, use: ColumnUse, allowed: Collection[str]) -> None:
        conflicts = self.odometer.conflicts(use)
        refused = {name: numbers for name, numbers in conflicts.items() if name not in allowed}
        if not refused:
            return
        published = {name: numbers for name, numbers in refused.items() if name in use.public}
        protected = {name: numbers for name, numbers in refused.items() if name in use.protected}
        problems = [
            f"this run publishes what others protect: {with_runs(published)}" * bool(published),
            f"this run protects what others publish: {with_runs(protected)}" * bool(protected),
        ]
        if UNKNOWN in refused:
            which = f"{runs(refused[UNKNOWN])} used" if use.is_known else "this run uses"
            problems = [*problems, f"it is not known which columns {which}"]
        other = ", or count at a clock, where no column is public" * bool(published)
        named = "" if use.is_known else "name this run's columns by {public=} and {protected=}; or "
        raise account_error(
            f"account {self.path!r}: {'; '.join(filter(None, problems))}; no guarantee would hold "
            "for such a column",
            f"{named}give {{allow_public=}}{' '.join(map(shlex.quote, conflicts))}, and the "
            f"account claims nothing about it any more{other}",
            "allow_public",
        )

    def _check_total(self, charges: Charges, use: ColumnUse, why: str) -> None:
        if not self.spent_after(charges, use).exceeds(self.total):
            return
        left = f"only {self.left} is left" if self.left else "nothing is left"
        count = len(self.counted)
        so_far = f" after {count} run{'s' * (count != 1)}" if count else ""
        raise OverspentAccountError(
            "total",
            f"account {self.path!r} would be overspent: this run costs {self.price(charges, use)}"
            f"{why}{self.dearer(use)}, but of its {self.total} {left}{so_far}",
            "give this run less, or count nothing more of these rows (the account lists the runs); "
            "a higher total is a weaker promise, to be made by those who answer for the data",
            True,
        )

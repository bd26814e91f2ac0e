"""What a ledger enters into an account: a line for each transform, before anything runs.

A transform is a run of the account, and is charged in full when it is applied. The ledger does not
see whether the pipeline ran, nor what it released: so nothing is refunded, and the same run id is
charged again when it starts anew. Only a job that goes on from its own last state costs nothing
more. That it does is the user's word, and the account says so.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from beam_dpcount.budget.account import Account, account_error
from beam_dpcount.budget.account_file import check_local, locked, new_run, read_account
from beam_dpcount.budget.budgets import Budget, PureDP
from beam_dpcount.budget.charges import Charge, Charges
from beam_dpcount.budget.odometer import PRESENCE, UNKNOWN, ColumnUse, column, ordered, runs
from beam_dpcount.budget.spender import Spender
from beam_dpcount.checks import check_texts

_NOTHING = Charges(Charge(), Charge())


@dataclass
class Entries:
    """What one ledger enters into an account.

    Args:
      path: the account's file.
      budget: the ledger's.
      run: the id of the pipeline's run; None: that of its replayable noise, or none.
      resumes: the user's word that the job goes on from the last state of that run.
      public, protected: columns of the input, as `Ledger` says; None: they have no names.
      allow_public: columns about which the account may claim nothing from now on.
    """

    path: str
    budget: Budget
    run: str | None
    resumes: bool
    public: Sequence[str] | None
    protected: Sequence[str] | None
    allow_public: Sequence[str] | None
    numbers: list[int] = field(default_factory=list)  # of the lines that were added
    continued: list[int] = field(default_factory=list)  # of the runs that go on
    charged: Charges = _NOTHING

    @classmethod
    def of_ledger(
        cls, account: object, budget: Budget, keys_delta: float, **given: object
    ) -> Entries | None:
        """As a `Ledger` is told; None if it has no account. It must be able to take the budget."""
        run, resumes = given["run"], given["resumes"]
        if run is not None and (not isinstance(run, str) or not run.strip()):
            raise TypeError(f'run must be a text that names the run, got {run!r}: e.g. run="May"')
        if not isinstance(resumes, bool):
            raise TypeError(f"resumes must be True or False, got {resumes!r}")
        names = ("public", "protected", "allow_public")
        public, protected, allowed = (_check_columns(name, given[name]) for name in names)
        if account is None:
            for name, x in given.items():
                if x is not None and x is not False:
                    raise ValueError(
                        f"{name} is about an account, got {x!r}: give account= as well"
                    )
            return None
        path = os.fspath(account) if isinstance(account, str | os.PathLike) else account
        if not isinstance(path, str):
            example = 'give e.g. account="spending.jsonl"'
            raise TypeError(f"account must be the path of a file, got {account!r}: {example}")
        check_local(path)
        entries = cls(path, budget, run, resumes, public, protected, allowed)
        if both := {*(public or ())} & {*(protected or ())}:
            raise ValueError(f"public and protected both name {min(both)!r}: a column is one")
        read_account(path).charge(budget, keys_delta)  # in its unit, or an error
        return entries

    def use(self, spender: Spender) -> ColumnUse:
        """The columns that a count treats as public, and those that it protects."""
        public, protected = _named(self.public), _named(self.protected)
        if spender.user is not None:
            public.add(column(spender.user))
        if spender.at_clock:
            return ColumnUse(protected=frozenset({PRESENCE, *public, *protected}))
        return ColumnUse(frozenset({PRESENCE, *public}), frozenset(protected))

    def enter(self, by: str, share: Budget, keys_delta: float, spender: Spender) -> None:
        """Add a line for what spends a share, or raise AccountError; OverspentError is one.

        Args:
          by: what spends it, in words.
          share: its budget.
          keys_delta: what it takes of delta, beside its budget.
          spender: what spends it.
        """
        entropy, use, allowed = spender.entropy, self.use(spender), self.allow_public or ()
        noise = entropy.noise_mark if entropy else ""
        run_id = self.run or (entropy.run_id if entropy else "")
        claim = _digest(by, share, keys_delta, spender.fingerprint, noise, spender.user, use)
        with locked(self.path) as (account, add):
            charges, why = self._charges(account, share, keys_delta, spender)
            again = self._continued(account, run_id, claim) if self.resumes else None
            if again is None:
                account.admit(charges, use, spender.user, allowed, why, noise)
            else:
                charges = _NOTHING
            own: dict[str, Any] = {"id": run_id, "claim": claim, "said": str(share)}
            own |= {"output": "", "inputs": []} | ({} if again is None else {"again": again})
            line = new_run(account, by, charges, use, noise, allowed, **own)
            add(line)
        self.numbers.append(line["run"])
        self.continued += [] if again is None else [again]
        self.charged = Charges(*(a + b for a, b in zip(self.charged, charges, strict=True)))

    def _charges(
        self, account: Account, share: Budget, keys_delta: float, spender: Spender
    ) -> tuple[Charges, str]:
        """What a share costs, and why it is more than its budget, if it is.

        Shares of ApproxDP are zCDP, and have no epsilon that adds up: an account of epsilon is
        charged for the whole ledger by the first of them.
        """
        if account.total.rho or isinstance(self.budget, PureDP):
            return spender.charges(share, keys_delta, account)
        whole, why = spender.charges(self.budget, 0.0, account)
        return Charges(*(a - b for a, b in zip(whole, self.charged, strict=True))), why

    def _continued(self, account: Account, run_id: str, claim: str) -> int | None:
        """The charge of an earlier application that goes on; None: what is applied is new."""
        if not run_id or all(run.id != run_id for run in account.runs.values()):
            raise account_error(
                f"account {self.path!r} has no run {run_id!r} that could go on",
                "give the {run=} under which it was started, or leave {resumes} out",
                "run",
            )
        return account.continued(run_id, claim, self.continued)

    def __str__(self) -> str:
        """What was charged, in a sentence."""
        if not self.numbers:
            return f"Account {self.path!r}: nothing was charged yet."
        goes = f"; {runs(self.continued)} may go on" if self.continued else ""
        return f"Account {self.path!r}: {runs(self.numbers)} cost {self.charged.presence}{goes}."


def _check_columns(name: str, columns: object) -> tuple[str, ...] | None:
    """Names of columns, perhaps none; None if nothing is said of them."""
    if columns is None or (isinstance(columns, list | tuple) and not columns):
        return None if columns is None else ()
    return check_texts(name, columns, "column", f'e.g. {name}=["page"]')


def _named(columns: Sequence[str] | None) -> set[str]:
    """Columns by the odometer's names; they have none if nothing is said of them."""
    return {UNKNOWN} if columns is None else {column(name) for name in columns}


def _digest(*parts: object) -> str:
    """Of public parameters alone."""
    plain = [
        (ordered(part.public), ordered(part.protected)) if isinstance(part, ColumnUse) else part
        for part in parts
    ]
    return hashlib.blake2b(repr(plain).encode(), digest_size=16).hexdigest()

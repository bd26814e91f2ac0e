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
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from beam_dpcount.budget.account import SEVERAL, Account, account_error
from beam_dpcount.budget.account_file import check_local, locked, new_run, read_account
from beam_dpcount.budget.budgets import ZCDP, ApproxDP, Budget, PureDP
from beam_dpcount.budget.charges import Charge, Charges
from beam_dpcount.budget.conversions import float_down, float_up, zcdp_epsilon
from beam_dpcount.budget.odometer import PRESENCE, UNKNOWN, ColumnUse, column, ordered, runs
from beam_dpcount.budget.spender import Spender, charged
from beam_dpcount.checks import check_texts

_NOTHING = Charges(Charge(), Charge())
_Share = tuple[Charge, Fraction]


@dataclass(frozen=True)
class _Price:
    """What a share costs.

    Fields:
      charges: of one.
      why: that is more than its budget, if it is.
      several: what several periods of one person cost.
      so_far: of the ledger, once it is charged.
    """

    charges: Charges
    why: str = ""
    several: dict[str, Charges | None] = field(default_factory=dict)
    so_far: dict[str, _Share] = field(default_factory=dict)


@dataclass
class Entries:
    """What one ledger enters into an account.

    Args:
      path: the account's file.
      budget: the ledger's.
      room: what keys take of its delta.
      run: the id of the pipeline's run; None: that of its replayable noise, or none.
      resumes: the user's word that the job goes on from the last state of that run.
      public, protected: columns of the input, as `Ledger` says; None: they have no names.
      allow_public: columns about which the account may claim nothing from now on.
    """

    path: str
    budget: Budget
    room: Fraction
    run: str | None
    resumes: bool
    public: Sequence[str] | None
    protected: Sequence[str] | None
    allow_public: Sequence[str] | None
    numbers: list[int] = field(default_factory=list)  # of the lines that were added
    continued: list[int] = field(default_factory=list)  # of the runs that go on
    charged: Charges = _NOTHING
    # Of periods: the charge if all noise were the dearest share's, and what keys take beyond it.
    so_far: dict[str, _Share] = field(default_factory=dict)

    @classmethod
    def of_ledger(
        cls, account: object, budget: Budget, keys_delta: float, room: Fraction, **given: object
    ) -> Entries | None:
        """As a `Ledger` is told; None if it has no account. It must be able to take the budget.

        `room` is what keys take of its delta.
        """
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
        entries = cls(path, budget, room, run, resumes, public, protected, allowed)
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

    def enter(self, by: str, share: PureDP | ZCDP, keys_delta: float, spender: Spender) -> None:
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
            price = self._charges(account, share, keys_delta, spender)
            charges, several = price.charges, price.several
            again = self._continued(account, run_id, claim) if self.resumes else None
            if again is None:
                account.admit(charges, use, spender.user, allowed, price.why, noise)
            else:
                charges, several = _NOTHING, {}
            own: dict[str, Any] = {"id": run_id, "claim": claim, "said": str(share)}
            own |= {"output": "", "inputs": []} | ({} if again is None else {"again": again})
            if account.periods is not None:
                own["timed"] = bool(spender.protects.time or spender.protects.losses is None)
            line = new_run(account, by, charges, use, noise, allowed, several, **own)
            add(line)
        self.numbers.append(line["run"])
        self.continued += [] if again is None else [again]
        self.so_far |= price.so_far if again is None else {}
        self.charged = Charges(*(a + b for a, b in zip(self.charged, charges, strict=True)))

    def _charges(
        self, account: Account, share: PureDP | ZCDP, keys_delta: float, spender: Spender
    ) -> _Price:
        """What a share costs.

        Shares of ApproxDP are zCDP, and have no epsilon that adds up: an account of epsilon is
        charged for the whole ledger by the first of them. Of periods it is charged as if all of its
        noise were that of the dearest share.
        """
        protects, budget = spender.protects, self.budget
        if account.total.rho or not isinstance(budget, ApproxDP):
            charges, why = spender.charges(share, keys_delta, account)
            return _Price(charges, why, protects.several(share, keys_delta, account))
        if account.periods is None:
            whole, why = spender.charges(budget, 0.0, account)
            charges = Charges(*(a - b for a, b in zip(whole, self.charged, strict=True)))
            return _Price(charges, why)
        protects.check(account)
        price = _Price(_NOTHING, protects.why(account))
        left = Fraction(budget.delta) - self.room  # for noise
        rho = Fraction(ApproxDP(budget.epsilon, float_down(left)).to_zcdp().rho)
        for name in ("", *SEVERAL):
            reach = protects.reach_in(account, name)
            if reach is None:
                price.several[name] = None
                continue
            factor, noise = protects.rho_of(reach), account.charge(budget)
            if isinstance(share, PureDP):
                factor = Fraction((reach.changes * reach.periods) ** 2)
            if factor > 1:
                epsilon = zcdp_epsilon(float_up(factor * rho), float_down(left))
                noise = replace(noise, epsilon=Fraction(epsilon))
            old, more = self.so_far.get(name, (Charge(), Fraction(0)))
            before = charged(old, more) if old else _NOTHING
            noise = replace(noise, epsilon=max(noise.epsilon, old.epsilon))
            keys = Fraction(keys_delta)
            price.so_far[name] = noise, more + protects.keys_of(keys, reach) - keys
            after = charged(*price.so_far[name])
            price.several[name] = Charges(*(a - b for a, b in zip(after, before, strict=True)))
        return replace(price, charges=price.several.pop("") or _NOTHING)

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

"""One budget for a whole pipeline: what each transform takes of it, and the account of that."""

from __future__ import annotations

import os
import threading
import uuid
import weakref
from collections.abc import Mapping, Sequence
from fractions import Fraction
from numbers import Real
from typing import Any

from beam_dpcount.budget.budgets import ZCDP, ApproxDP, Budget, PureDP, check_budget, warn_if_weak
from beam_dpcount.budget.conversions import (
    float_down,
    float_up,
    positive,
    root_down,
)
from beam_dpcount.budget.entries import Entries
from beam_dpcount.budget.ledger_text import html, in_line, overspent, overspent_on_keys, statement
from beam_dpcount.budget.shares import (
    Claim,
    ClaimedError,
    Share,
)
from beam_dpcount.budget.spender import Spender, Unknown
from beam_dpcount.budget.standing import ROUNDING, Standing
from beam_dpcount.errors import OverspentError

_LOCK = threading.Lock()


class Ledger:
    """One privacy budget for all that a pipeline releases about one set of input data.

    Every transform takes a share of it: `clicks | PrefixCount(ledger.share(0.25), horizon=1000)`.
    What would overspend it is refused when the share is taken, before anything runs.
    `print(ledger)` shows what was spent where.

    Args:
      budget: PureDP: shares are PureDP, and their epsilons add up. ZCDP: shares are ZCDP, and
        their rhos add up. ApproxDP: turned into zCDP once (numeric conversion), and shares are
        ZCDP; only the account speaks of epsilon and delta again.
      name: for messages and the account; may be left out.
      keys_delta: what all transforms that show keys nobody listed may take together, as the
        probability of showing one that must not be. It is set aside first, with a billionth of it
        for sums of floats: shares of ApproxDP(epsilon, delta) are made from epsilon and the rest
        of delta. Default: nothing.
      account: the file of an account, as `beam-dpcount account FILE --create` makes it: what all
        runs over the same rows may cost together, of commands and pipelines. Each transform is
        charged there when it is applied, and refused if too little is left. Nothing is refunded:
        not if the pipeline fails, nor if it is never run. **Run each pipeline object once**: a
        second `pipeline.run()` draws new noise and is not charged, as the account does not learn
        of it. A local path, as private as the account of a command; the machine that builds the
        pipeline locks it.
      run: names this run in the account. Default: the run id of replayable noise, or nothing. A run
        that starts anew under the same name is charged anew, as its noise is new; with the same
        replayable noise it is refused, as nothing tells whether the rows are the same.
      resumes: True: your word that the job goes on from the last state (a savepoint) of the run of
        this name, and that no other job does. What it applies again, with the same labels and
        parameters, then costs nothing more; whatever is new is charged. The account says on whose
        word that rests.
      public, protected: the columns of the input that decide which elements there are, in which key
        and at which time, and those that are counted; per element the first are public, at a clock
        both are protected. An account refuses what publishes a column that another run protects.
        Default: they have no names, and conflict with all others.
      allow_public: columns about which the account may claim nothing from now on.

    Warns:
      WeakBudgetWarning: the budget, or keys_delta, is weak.

    Guarantee: all releases of all transforms that use shares of this ledger, each share once and
      in one run, together satisfy `budget`, for inputs that are neighbours in the sense of each
      transform, if one event of the input data is at most one element of what each counts. The
      shares' costs are exact fractions and never sum to more than the budget. The transforms may
      run at the same time, and each may be fed what was chosen from the releases of others. The
      budget is per window; see `account`. Deltas for keys add up, beside epsilon and rho: if the
      noisy counts of all keys, shown or not, are (epsilon, delta)-DP together, then what is
      released is (epsilon, delta + their sum)-DP. So ApproxDP holds as it is, as keys_delta was
      taken from its delta. The others hold but for d = `delta_for_keys()`: PureDP(epsilon) as
      (epsilon, d)-DP, ZCDP(rho) as (epsilon, delta + d)-DP for whatever (epsilon, delta) follows
      from rho.

    Source: composition adds up epsilon, and rho [Bun, Steinke 2016], also of mechanisms that run
      concurrently on data still to come [Vadhan, Wang 2021; Lyu 2022; Henzinger, Safavi, Vadhan
      2024]; epsilon-DP is epsilon^2/2-zCDP [Bun, Steinke 2016, Proposition 1.4].

    Pickling: unpickled (or copied) in the process that made it, a ledger is itself. In any other,
    forked ones included, it can only be read: two processes would spend the same budget twice.

    Raises:
      ValueError, TypeError: budget is none, or too small to convert; name is not one line of text;
        keys_delta is no number from 0 to below 1, or not below the budget's delta; the account
        does not exist, is not a local file, or adds up in another unit.

    Example:
      >>> import beam_dpcount as dp
      >>> ledger = dp.Ledger(dp.ZCDP(0.1), "shop")
      >>> ledger.share(0.25, "clicks").budget
      ZCDP(rho=0.025)
      >>> ledger.rest("orders").budget
      ZCDP(rho=0.075)
      >>> ledger.share(0.5, "more")  # doctest: +IGNORE_EXCEPTION_DETAIL
      Traceback (most recent call last):
      OverspentError: ledger shop would be overspent
    """

    def __init__(
        self,
        budget: Budget,
        name: str = "",
        keys_delta: float | Fraction | None = None,
        *,
        account: str | os.PathLike[str] | None = None,
        run: str | None = None,
        resumes: bool = False,
        public: Sequence[str] | None = None,
        protected: Sequence[str] | None = None,
        allow_public: Sequence[str] | None = None,
    ) -> None:
        kept = Fraction(0) if keys_delta is None else _check_keys_delta(keys_delta)
        check_budget(budget)
        entries = Entries.of_ledger(
            account,
            budget,
            float(kept),
            kept * (1 + ROUNDING),
            run=run,
            resumes=resumes,
            public=public,
            protected=protected,
            allow_public=allow_public,
        )
        self._set_up(uuid.uuid4().hex, budget, _check_line("name", name), kept, entries)
        warn_if_weak(budget, float(kept))  # a share of a weak budget may look strong
        self._home: int | None = os.getpid()
        _LIVE[self._token] = self

    def _set_up(
        self,
        token: str,
        budget: Budget,
        name: str,
        keys_delta: Fraction,
        entries: Entries | None = None,
    ) -> None:
        self._token, self._budget, self._name = token, budget, name
        self._keys_delta = keys_delta
        self._kind = PureDP if isinstance(budget, PureDP) else ZCDP  # of most shares
        self._total = _whole(budget, self._keys_room)
        self._shares: dict[str, Share] = {}
        self._claims: dict[str, Claim] = {}
        self._entries = entries

    @property
    def resumes(self) -> bool:
        """Whether its account takes what is applied for jobs that go on from their last state."""
        return self._entries is not None and self._entries.resumes

    @property
    def budget(self) -> Budget:
        """The whole budget, as it was given."""
        return self._budget

    @property
    def name(self) -> str:
        """For messages and the account."""
        return self._name

    @property
    def total(self) -> Fraction:
        """What all shares may cost: epsilon of a pure budget, else rho."""
        return self._total

    @property
    def left(self) -> Fraction:
        """What no share has taken, in the unit of `total`; no trace that rounding left."""
        left = self._total - sum((s.cost for s in self._shares.values()), Fraction(0))
        return left if left > self._total * ROUNDING else Fraction(0)

    @property
    def keys_delta(self) -> Fraction:
        """What all transforms that show keys nobody listed may take together, exactly; or 0."""
        return self._keys_delta

    @property
    def keys_delta_left(self) -> Fraction:
        """What none of them has taken; no trace that rounding left."""
        left = self._keys_delta - self._keys_taken
        return left if left > self._keys_delta * ROUNDING else Fraction(0)

    @property
    def _keys_taken(self) -> Fraction:
        return sum((c.keys_delta for c in self._claims.values()), Fraction(0))

    @property
    def _keys_room(self) -> Fraction:
        """What claims may sum to, exactly, and what a budget's delta is lowered by."""
        return self._keys_delta * (1 + ROUNDING)

    @property
    def shares(self) -> tuple[Share, ...]:
        """All shares, in the order in which they were taken."""
        return tuple(self._shares.values())

    def share(self, fraction: float | Fraction, name: str = "") -> Share:
        """A fraction of the whole budget (not of what is left).

        Args:
          fraction: above 0, at most 1; a Fraction is taken exactly. Sums that exceed 1 by no more
            than the rounding of floats, such as ten times 0.1, are taken as 1.
          name: of the share, usually what is counted; left out, it is numbered.

        Raises:
          OverspentError: less is left.
          ValueError, TypeError: the fraction is not a positive number, or the name is taken.
        """
        return self._take(_check_fraction(fraction) * self._total, name)

    def spend(self, budget: Budget, name: str = "") -> Share:
        """An absolute amount; name and errors as for `share`.

        Args:
          budget: PureDP from a pure ledger. From others ZCDP; or PureDP, which costs epsilon^2 / 2
            of rho, for mechanisms that take Laplace noise only. Other kinds are a ValueError.
        """
        match check_budget(budget), self._budget:
            case PureDP(epsilon), PureDP():
                return self._take(Fraction(epsilon), name)
            case PureDP(epsilon), _:
                return self._take(Fraction(epsilon) ** 2 / 2, name, pure=True)
            case other, PureDP():
                remedy = "spend PureDP(epsilon), or give the ledger an ApproxDP or ZCDP budget"
                raise ValueError(f"{other!r} is not pure, but {self._title()} is: {remedy}")
            case ApproxDP() as approximate, _:
                remedy = f"spend {approximate!r}.to_zcdp(), or take share(fraction)"
                raise ValueError(f"{self._title()} adds up in zCDP: {remedy}")
            case zcdp, _:
                return self._take(Fraction(zcdp.to_zcdp().rho), name)

    def rest(self, name: str = "") -> Share:
        """All that is left; an OverspentError if that is nothing."""
        return self._take(None, name)

    def _take(self, cost: Fraction | None, name: str, pure: bool = False) -> Share:
        _check_line("name", name)
        with _LOCK:
            self._check_home()
            if not name:
                numbers = (f"share {n}" for n in range(1, len(self._shares) + 2))
                name = next(n for n in numbers if n not in self._shares)
            if name in self._shares:
                raise ValueError(
                    f"{self._title()} has a share {name!r} already: choose another name"
                )
            left = self.left
            asked = left if cost is None else cost
            granted = min(asked, left)
            if not granted or asked - granted > asked * ROUNDING:
                raise OverspentError(overspent(self.standing, name, cost))
            budget = PureDP(root_down(2 * granted)) if pure else self._kind(float_down(granted))
            made = self._shares[name] = Share(budget, name, granted, self)
        return made

    def _claim(
        self,
        share: Share,
        by: str,
        spender: Spender,
        keys_delta: float | Fraction,
    ) -> None:
        asked = _check_keys_delta(keys_delta)
        if not isinstance(by, str):
            raise TypeError(f"by must be text, e.g. the transform's label, got {by!r}")
        by = " ".join(by.split())
        with _LOCK:
            self._check_home()
            if self._shares.get(share.name) is not share:
                problem = f"{self._title()} did not make this share {share.name!r}"
                raise ValueError(f"{problem}: take it with share(), spend() or rest()")
            if share.name in self._claims:
                spent = f"is spent by {share.claimed_by!r} already, and {by!r} would again"
                remedy = "take a share for each transform and each place where one is applied"
                raise ClaimedError(f"share {share.name!r} of {self._title()} {spent}: {remedy}")
            if asked and self._keys_taken + asked > self._keys_room:
                raise OverspentError(overspent_on_keys(self.standing, by, asked))
            if self._entries is not None:
                self._entries.enter(by, share.budget, float_up(asked), spender)
            self._claims[share.name] = Claim(by, spender.protects, asked)

    def _check_home(self) -> None:
        if self._home != os.getpid():
            problem = f"this copy of {self._title()} in another process can only be read"
            remedy = "take and use shares where the ledger was made"
            raise RuntimeError(f"{problem}: {remedy}, or give a new one the budget that is left")

    @property
    def standing(self) -> Standing:
        """All shares and what is left, as they are now."""
        left = self.left, self._keys_delta, self.keys_delta_left
        entered = str(self._entries) if self._entries else ""
        return Standing(self._title(), self._budget, self._total, *left, self.shares, entered)

    def epsilon_at(
        self,
        delta: float | None = None,
        claimed: bool = True,
        unit: str | None = None,
        *,
        periods: int | None = None,
        age: int | None = None,
    ) -> float:
        """The epsilon that all shares together satisfy at this delta, rounded up.

        What shows keys that nobody listed takes its part of delta first, `delta_for_keys`; epsilon
        is that of the shares' sum at what remains.

        Args:
          delta: default: the budget's own; for ZCDP 1e-6 beside `delta_for_keys`; for PureDP
            `delta_for_keys` alone, which is mostly none: pure DP.
          claimed: only shares that transforms have claimed; False: all, and what is left, which is
            taken to protect whom the claimed ones do; and all of `keys_delta`.
          unit: "event", "person" or "period": one person's events of any one period of
            `Users(per=...)`, of the share with the longest clock. Shares whose periods do not lie
            within these, and bounds over the whole stream, then count as two changes for each of
            their periods that one meets.
            Default: a period's if some claimed share protects one and none an event only; a
            person's if all protect one; else an event's.
          periods: for so many periods of one person together, whichever they are. Default: one.
          age: of the releases until so many steps of each count (its ticks, or elements) after one
            event, of the first half of its horizon (of each window, where a view restarts), as for
            `Counter.epsilon_at`. Default: of all of them.

        Raises:
          ValueError: nothing holds for a person or a period, as some shares protect less; or for
            an event, as some of what is not claimed may yet protect people. Or delta is not above
            what keys take of it.
        """
        return self.standing.epsilon_at(delta, claimed, unit, periods, age)

    def delta_for_keys(self, claimed: bool = True, unit: str | None = None) -> float:
        """What showing keys that nobody listed takes of any delta, rounded up; mostly 0.

        For one event it is up to twice as much as shares for people have claimed. Arguments and
        errors as for `epsilon_at`.
        """
        return self.standing.delta_for_keys(claimed, unit)

    def account(self, delta: float | None = None) -> str:
        """What was spent where, what is left, and `epsilon_at` of what is claimed and of all."""
        return statement(self.standing, delta)

    def _repr_html_(self) -> str:
        return html(self.standing)

    def describe(self) -> Mapping[str, str]:
        """All shares in one line, for annotations and display data."""
        return {"ledger": in_line(self.standing)}

    def _title(self) -> str:
        return f"ledger {self._name}".rstrip()

    def __str__(self) -> str:
        return self.account()

    def __repr__(self) -> str:
        keys = f", keys_delta={float(self._keys_delta)!r}" if self._keys_delta else ""
        return f"Ledger({self._budget!r}, name={self._name!r}{keys})"

    def __reduce__(self) -> tuple[Any, ...]:
        shares = [(s.budget, s.name, s.cost) for s in self.shares]
        made = self._token, self._budget, self._name, self._keys_delta
        return _revived, (*made, shares, dict(self._claims))


_LIVE: weakref.WeakValueDictionary[str, Ledger] = weakref.WeakValueDictionary()


def _revived(
    token: str,
    budget: Budget,
    name: str,
    keys_delta: Fraction,
    shares: list[Any],
    claims: dict[str, Claim],
) -> Ledger:
    """The ledger itself, where it lives in this process; else a copy that can only be read."""
    ledger = _LIVE.get(token)
    if ledger is None:
        ledger = Ledger.__new__(Ledger)
        ledger._set_up(token, budget, name, keys_delta)
        ledger._home = None
        ledger._shares = {of: Share(part, of, cost, ledger) for part, of, cost in shares}
        ledger._claims = claims
    return ledger


def plain_budget(budget: Budget | Share) -> tuple[Budget, Mapping[str, str]]:
    """What transforms are calibrated to, and lines for their annotations and display data.

    A share is not used up by it. A plain budget has no lines, and gives a WeakBudgetWarning where
    it is weak; a ledger has warned of its shares' budget.
    """
    if isinstance(budget, Share):
        return budget.budget, budget.describe()
    if isinstance(budget, Ledger):
        raise TypeError(f"{budget!r} is a whole ledger: take ledger.share(0.25), or ledger.rest()")
    plain = check_budget(budget)
    warn_if_weak(plain)
    return plain, {}


def claim(
    budget: Budget | Share,
    by: str,
    spender: Spender | None = None,
    keys_delta: float | Fraction = 0.0,
) -> None:
    """Mark a share as used, and this much of its ledger's delta for keys; a plain budget passes.

    `spender` says whom it protects, and what it is charged if its ledger has an account.

    Transforms call it once in `expand`, after all checks, with their label: every place where a
    transform is applied spends its budget, and one that is refused or never applied spends nothing.
    """
    if isinstance(budget, Share):
        budget.ledger._claim(budget, by, spender or Unknown(), keys_delta)


def _check_fraction(fraction: Any) -> Fraction:
    if isinstance(fraction, Fraction) and fraction > 0:  # exact
        return fraction
    return Fraction(positive("fraction", fraction, "give a number above 0, up to 1, e.g. 0.25"))


def _check_keys_delta(delta: float | Fraction) -> Fraction:
    given: Any = delta
    remedy = "give a probability, e.g. 5e-7; 0 where all keys are listed"
    if isinstance(given, bool) or not isinstance(given, Real):
        raise TypeError(f"keys_delta must be a number, got {given!r}: {remedy}")
    if not 0 <= delta < 1:
        raise ValueError(f"keys_delta must be from 0 to below 1, got {delta!r}: {remedy}")
    return delta if isinstance(delta, Fraction) else Fraction(float(delta))


def _whole(budget: Budget, for_keys: Fraction) -> Fraction:
    """What shares may cost, where keys take this much of delta."""
    if isinstance(budget, PureDP):
        return Fraction(budget.epsilon)
    if isinstance(budget, ApproxDP) and for_keys:
        remains = Fraction(budget.delta) - for_keys
        if remains <= 0 or not float_down(remains):
            raise ValueError(
                f"keys_delta must be below the budget's delta = {budget.delta:g}, got "
                f"{float(for_keys):g}: noise needs the rest of it; give e.g. {budget.delta / 2:g}"
            )
        budget = ApproxDP(budget.epsilon, float_down(remains))
    return Fraction(budget.to_zcdp().rho)


def _check_line(what: str, text: object) -> str:
    if not isinstance(text, str):
        raise TypeError(f"{what} must be text, got {text!r}")
    if text != " ".join(text.split()):
        raise ValueError(f"{what} must be words on one line, with single spaces, got {text!r}")
    return text

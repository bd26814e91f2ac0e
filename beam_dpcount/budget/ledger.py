"""One budget for a whole pipeline: what each transform takes of it, and the account of that."""

from __future__ import annotations

import os
import threading
import uuid
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from beam_dpcount.budget.budgets import ZCDP, ApproxDP, Budget, PureDP, check_budget, warn_if_weak
from beam_dpcount.budget.conversions import (
    check_delta,
    float_down,
    float_up,
    positive,
    root_down,
    zcdp_epsilon,
)

# Ten times 0.1 is a hair above 1 in binary. A share that exceeds what is left by this part of
# itself gets what is left, and when only this part of a budget is left, nothing is.
_ROUNDING = Fraction(1, 10**9)
_DELTA = 1e-6  # at which the account of a zCDP budget gives epsilon, unless told otherwise

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
Delta for keys is the probability that keys that nobody listed show what they must not. It adds up
beside the shares; where there is a delta, epsilon is that of what keys leave of it."""

_LOCK = threading.Lock()


class OverspentError(ValueError):
    """A share of more than is left of its ledger."""


class ClaimedError(ValueError):
    """A share that another transform has used."""


@dataclass(frozen=True)
class Protection:
    """Whom a transform protects with its budget: one event, or one person.

    Fields:
      person: whose events, in words; empty: one event is protected.
      event_cost: how many times its rho, and how often its epsilon, squared, one event may cost.
    """

    person: str = ""
    event_cost: int = 1

    def budget_of_event(self, budget: PureDP | ZCDP) -> PureDP | ZCDP:
        """What one event costs."""
        if self.event_cost == 1:
            return budget
        if isinstance(budget, PureDP):  # two sets of events, whatever their products
            return PureDP(2 * budget.epsilon)
        return ZCDP(self.event_cost * budget.rho)


@dataclass(frozen=True)
class Claim:
    """What a transform has said of a share that it spends.

    Fields:
      by: its label.
      protects: whom it protects.
      keys_delta: the delta that keys that nobody listed take beside the share.
    """

    by: str
    protects: Protection
    keys_delta: Fraction = Fraction(0)

    @property
    def keys_delta_of_event(self) -> Fraction:
        """What it is for one event: twice, where others of its person's may count in its place."""
        return self.keys_delta * (1 if self.protects.event_cost == 1 else 2)


@dataclass(frozen=True, eq=False)
class Share:
    """A part of a ledger's budget, to be passed to one transform in place of a budget.

    Made by `Ledger.share`, `.spend` and `.rest`, not by hand. It pickles and copies as a reference
    to its ledger: within a process, copies are the same share.
    """

    budget: PureDP | ZCDP  # what the transform may spend
    name: str  # unlike all others of its ledger
    cost: Fraction  # epsilon of a pure ledger or rho of others; `budget` costs at most this
    ledger: Ledger = field(repr=False)

    @property
    def part(self) -> Fraction:
        """What it is of the whole: above 0, at most 1."""
        return self.cost / self.ledger.total

    @property
    def claimed_by(self) -> str | None:
        """The transform that spends it, or None while there is none."""
        claimed = self.ledger._claims.get(self.name)
        return None if claimed is None else claimed.by

    @property
    def protects(self) -> Protection:
        """Whom the transform that spends it protects; an event while there is none."""
        claimed = self.ledger._claims.get(self.name)
        return _AN_EVENT if claimed is None else claimed.protects

    def claim(
        self, by: str, protects: Protection | None = None, keys_delta: float = 0.0
    ) -> PureDP | ZCDP:
        """The budget, for use outside of transforms: `calibrate(m, share.claim("mine"))`.

        It protects an event, unless `protects` says otherwise. `keys_delta` is what keys that
        nobody listed take of the ledger's own. A second time is a ClaimedError.
        """
        self.ledger._claim(self, by, protects or _AN_EVENT, keys_delta)
        return self.budget

    def describe(self) -> Mapping[str, str]:
        """Its line for annotations and display data."""
        of = f"{_percent(self.part)} of {self.ledger.budget}"
        if self.ledger.keys_delta:
            of += f", and keys a delta of {float(self.ledger.keys_delta):g} in all"
        where = f" (ledger {self.ledger.name})" if self.ledger.name else ""
        return {"ledger": f"{self.name}: {of}{where}"}

    def __reduce__(self) -> tuple[Any, ...]:
        return _share_of, (self.ledger, self.name)


_AN_EVENT = Protection()


def _share_of(ledger: Ledger, name: str) -> Share:
    return ledger._shares[name]


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
      keys_delta: what all transforms with `SelectKeys` may take together, each with a delta of its
        own: a part of the delta of an ApproxDP budget, so that its shares have the rest, or beside
        a budget without one. Default: none.

    Warns:
      WeakBudgetWarning: the budget is weak.

    Guarantee: all releases of all transforms that use shares of this ledger, each share once and
      in one run, together satisfy `budget`, for inputs that are neighbours in the sense of each
      transform, if one event of the input data is at most one element of what each counts. The
      shares' costs are exact fractions and never sum to more than the budget. The transforms may
      run at the same time, and each may be fed what was chosen from the releases of others. The
      budget is per window; see `account`. With `keys_delta` beside a pure or zCDP budget, all this
      holds but for a probability of `keys_delta`.

    Source: composition adds up epsilon, and rho [Bun, Steinke 2016], also of mechanisms that run
      concurrently on data still to come [Vadhan, Wang 2021; Lyu 2022; Henzinger, Safavi, Vadhan
      2024]; epsilon-DP is epsilon^2/2-zCDP [Bun, Steinke 2016, Proposition 1.4].

    Pickling: unpickled (or copied) in the process that made it, a ledger is itself. In any other,
    forked ones included, it can only be read: two processes would spend the same budget twice.

    Raises:
      ValueError, TypeError: budget is none, or too small to convert; name is not one line of text.

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

    def __init__(self, budget: Budget, name: str = "", keys_delta: float | None = None) -> None:
        keys = Fraction(0) if keys_delta is None else Fraction(check_delta(keys_delta))
        self._set_up(uuid.uuid4().hex, check_budget(budget), _check_line("name", name), keys)
        warn_if_weak(budget)  # a share of a weak budget may look strong
        self._home: int | None = os.getpid()
        _LIVE[self._token] = self

    def _set_up(self, token: str, budget: Budget, name: str, keys_delta: Fraction) -> None:
        self._token, self._budget, self._name = token, budget, name
        self._keys_delta = keys_delta
        self._kind = PureDP if isinstance(budget, PureDP) else ZCDP  # of most shares
        counts = budget
        if keys_delta and isinstance(budget, ApproxDP):
            if keys_delta >= Fraction(budget.delta):
                raise ValueError(
                    f"keys_delta = {float(keys_delta):g} leaves nothing of {budget}: give less "
                    "than its delta, e.g. half"
                )
            counts = ApproxDP(budget.epsilon, float_down(Fraction(budget.delta) - keys_delta))
        whole = counts.epsilon if isinstance(counts, PureDP) else counts.to_zcdp().rho
        self._total = Fraction(whole)
        self._shares: dict[str, Share] = {}
        self._claims: dict[str, Claim] = {}

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
    def keys_delta(self) -> Fraction:
        """What all selections of keys may take together; 0: none may."""
        return self._keys_delta

    @property
    def keys_delta_left(self) -> Fraction:
        """What no selection of keys has taken of it."""
        return self._keys_delta - self._keys_delta_of(claimed=True)

    def _keys_delta_of(self, claimed: bool, of_event: bool = False) -> Fraction:
        """What selections of keys take that are claimed; or may take."""
        if not claimed:
            return self._keys_delta * (1 + of_event)
        taken = self._claims.values()
        parts = (c.keys_delta_of_event if of_event else c.keys_delta for c in taken)
        return sum(parts, Fraction(0))

    @property
    def left(self) -> Fraction:
        """What no share has taken, in the unit of `total`; no trace that rounding left."""
        left = self._total - sum((s.cost for s in self._shares.values()), Fraction(0))
        return left if left > self._total * _ROUNDING else Fraction(0)

    @property
    def shares(self) -> tuple[Share, ...]:
        """All shares, in the order in which they were taken."""
        return tuple(self._shares.values())

    def share(self, fraction: float, name: str = "") -> Share:
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
                raise ValueError(f"{self._title()} has a share {name!r} already: choose another")
            left = self.left
            asked = left if cost is None else cost
            granted = min(asked, left)
            if not granted or asked - granted > asked * _ROUNDING:
                raise self._overspent(name, cost)
            budget = PureDP(root_down(2 * granted)) if pure else self._kind(float_down(granted))
            made = self._shares[name] = Share(budget, name, granted, self)
        return made

    def _overspent(self, name: str, cost: Fraction | None) -> OverspentError:
        asks = "what is left" if cost is None else _percent(cost / self._total)
        left, remedy = "nothing", "lower the other shares, or raise its budget"
        if self.left:
            left, remedy = _percent(self.left / self._total), "take less, or rest()"
        taken = ", ".join(f"{s.name} {_percent(s.part)}" for s in self._shares.values())
        return OverspentError(
            f"{self._title()} would be overspent: {name!r} asks for {asks} of {self._budget}, but "
            f"{left} is left{' after ' if taken else ''}{taken}: {remedy}"
        )

    def _claim(self, share: Share, by: str, protects: Protection, keys_delta: float) -> None:
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
            self._claims[share.name] = Claim(by, protects, self._granted(by, keys_delta))

    def _granted(self, by: str, asked: float) -> Fraction:
        """A delta for keys, or an OverspentError where less is left."""
        if not asked:
            return Fraction(0)
        delta, left = Fraction(check_delta(asked)), self.keys_delta_left
        if delta - left > delta * _ROUNDING:
            remedy = "make it with Ledger(budget, keys_delta=...), for all selections of keys"
            if self._keys_delta:
                remedy = f"{float(left):g} of {float(self._keys_delta):g} is left: take less"
            raise OverspentError(
                f"{by!r} selects keys with a delta of {asked:g}, which {self._title()} has not: "
                f"{remedy}"
            )
        return min(delta, left)

    def _check_home(self) -> None:
        if self._home != os.getpid():
            problem = f"this copy of {self._title()} in another process can only be read"
            remedy = "take and use shares where the ledger was made"
            raise RuntimeError(f"{problem}: {remedy}, or give a new one the budget that is left")

    def epsilon_at(
        self, delta: float | None = None, claimed: bool = True, unit: str | None = None
    ) -> float:
        """The epsilon that all shares together satisfy at this delta, rounded up.

        Args:
          delta: default: the budget's own; 1e-6, and `keys_delta`, for ZCDP; none for PureDP, which
            is pure DP, but for what keys take. Of a delta, epsilon is that of what keys leave.
          claimed: only shares that transforms have claimed; False: all, and what is left, which is
            taken to protect whom the claimed ones do.
          unit: "event" or "person". Default: a person's if all claimed shares protect one, else an
            event's.

        Raises:
          ValueError: nothing holds for a person, as some shares protect an event only; or for an
            event, as some of what is not claimed may yet protect people.
        """
        events = [s.name for s in self.shares if s.claimed_by and not s.protects.person]
        people = any(s.protects.person for s in self.shares)
        if unit not in (None, "event", "person"):
            raise ValueError(f'unit must be "event" or "person", got {unit!r}')
        if unit == "person" and (events or not people):
            named = ", ".join(events) or "none is claimed for a person"
            raise ValueError(
                f"of {self._title()} nothing holds for a person, as these shares protect an event: "
                f"{named}: give users= to what spends them"
            )
        parts = self.parts(claimed)
        if people and (events or unit == "event"):
            if not claimed and (self.left or any(s.claimed_by is None for s in self.shares)):
                raise ValueError(
                    "what is not claimed may yet protect people, which costs an event more: leave "
                    "claimed=False out"
                )
            parts = self.parts(claimed, of_event=True)
            return self._epsilon(parts, delta, self._keys_delta_of(claimed, of_event=True))
        return self._epsilon(parts, delta, self._keys_delta_of(claimed))

    def _epsilon(
        self, parts: Sequence[PureDP | ZCDP], delta: float | None, keys_delta: Fraction
    ) -> float:
        pure = [Fraction(b.epsilon) for b in parts if isinstance(b, PureDP)]
        rho = sum((Fraction(b.rho) for b in parts if isinstance(b, ZCDP)), Fraction(0))
        delta = self._delta() if delta is None else delta
        if delta is not None and keys_delta:
            left = Fraction(delta) - keys_delta
            if left <= 0:
                raise ValueError(
                    f"keys that nobody listed take a delta of {float(keys_delta):g}, and nothing "
                    f"follows at delta = {delta:g}: ask for a larger one"
                )
            delta = float_down(left)
        direct = sum(pure, Fraction(0))  # pure parts kept pure; else turned into zCDP
        if delta is None or not parts:
            return float_up(direct)
        if rho:
            direct += Fraction(zcdp_epsilon(float_up(rho), delta))
        rho += sum((epsilon**2 for epsilon in pure), Fraction(0)) / 2
        return min(float_up(direct), zcdp_epsilon(float_up(rho), delta))

    def _delta(self) -> float | None:
        if isinstance(self._budget, PureDP):
            return None
        if isinstance(self._budget, ApproxDP):
            return self._budget.delta
        return _DELTA + float_up(max(self._keys_delta, self._keys_delta_of(True, of_event=True)))

    def parts(
        self,
        claimed: bool,
        rounded: Callable[[Fraction], float] = float_down,
        of_event: bool = False,
    ) -> list[PureDP | ZCDP]:
        """The budgets of claimed shares; or of all shares, and of what is left.

        Args:
          claimed, rounded: which, and how what is left is rounded.
          of_event: what each costs for one event, where it protects a person.
        """
        shares = [s for s in self.shares if s.claimed_by is not None or not claimed]
        parts = [s.protects.budget_of_event(s.budget) if of_event else s.budget for s in shares]
        if claimed or not self.left:
            return parts
        return [*parts, self._kind(rounded(self.left))]

    def account(self, delta: float | None = None) -> str:
        """What was spent where, what is left, and `epsilon_at` of what is claimed and of all."""
        people = sorted({s.protects.person for s in self.shares} - {""})
        rows = [("share", "part", "budget", "delta for keys", "claimed by")]
        for s in self.shares:
            by = s.claimed_by or "-"
            if people and s.claimed_by:
                by += f", for {s.protects.person or 'one event'}"
            taken = self._claims[s.name].keys_delta if s.claimed_by else Fraction(0)
            keys = f"{float(taken):g}" if taken else ""
            rows.append((s.name, _percent(s.part), str(s.budget), keys, by))
        of_left = str(self._kind(float_down(self.left))) if self.left else ""
        of_keys = f"{float(self.keys_delta_left):g}"
        rows.append(("left", _percent(self.left / self._total), of_left, of_keys, ""))
        columns = list(zip(*rows, strict=True))
        if not self._keys_delta:
            del columns[3]
        *widths, _ = [max(map(len, column)) for column in columns]
        lines = [
            "  ".join(
                f"{cell:>{width}}" if place == 1 else f"{cell:<{width}}"
                for place, (cell, width) in enumerate(zip(row, [*widths, 0], strict=True))
            ).rstrip()
            for row in zip(*columns, strict=True)
        ]
        delta = self._delta() if delta is None else delta
        where = "" if delta is None else f" at delta = {delta:g}"
        heading = f"{self._title()}: {self._budget}"
        if self._keys_delta:
            heading += f"; delta for keys {float(self._keys_delta):g}"
            if not isinstance(self._budget, ApproxDP):
                heading += ", beside it"
        if isinstance(self._budget, ApproxDP):
            heading += f"; in all rho = {float(self._total):g} (zCDP)"
        if people:
            epsilons = self._of_people(delta, where)
        else:
            spent, whole = self.epsilon_at(delta), self.epsilon_at(delta, claimed=False)
            epsilons = f"epsilon{where}: {spent:.6g} of what is claimed, {whole:.6g} of all"
        said = [heading, "", *lines, "", epsilons]
        if self._keys_delta:
            said += ["", _KEYS]
        return "\n".join([*said, "", _NOTE])

    def _of_people(self, delta: float | None, where: str) -> str:
        """What holds for a person and for an event, where shares protect people."""
        mine = [s for s in self.shares if s.protects.person]
        mixed = any(s.claimed_by and not s.protects.person for s in self.shares)
        keys = sum((self._claims[s.name].keys_delta for s in mine), Fraction(0))
        person = self._epsilon([s.budget for s in mine], delta, keys)
        names = ", ".join(s.name for s in mine)
        try:
            event = f"{self.epsilon_at(delta, unit='event'):.6g} of what is claimed"
        except ValueError:  # where others may count in its place, keys take twice their delta
            event = "nothing follows, as keys take all of that delta: ask for a larger one"
        rest = " alone" if mixed else f", {self.epsilon_at(delta, claimed=False):.6g} of all"
        said = [
            f"epsilon{where}, for one person: {person:.6g} by {names}{rest}",
            f"epsilon{where}, for one event: {event}",
        ]
        more = [s for s in mine if s.protects.event_cost > 1]
        ways = {
            "twice in epsilon"
            if isinstance(s.budget, PureDP)
            else f"{s.protects.event_cost} times in rho"
            for s in more
        }
        if ways:
            said += ["", _BEHIND.format(how=" or ".join(sorted(ways)))]
        return "\n".join(said + ["", _MIXED] * mixed)

    def describe(self) -> Mapping[str, str]:
        """All shares in one line, for annotations and display data."""
        parts = [f"{s.name}: {_percent(s.part)} of {self._budget}" for s in self.shares]
        keys = [f"delta for keys: {float(self._keys_delta):g}"] if self._keys_delta else []
        return {"ledger": "; ".join([*parts, f"left: {_percent(self.left / self._total)}", *keys])}

    def _title(self) -> str:
        return f"ledger {self._name}".rstrip()

    def __str__(self) -> str:
        return self.account()

    def __repr__(self) -> str:
        keys = f", keys_delta={float(self._keys_delta):g}" if self._keys_delta else ""
        return f"Ledger({self._budget!r}, name={self._name!r}{keys})"

    def __reduce__(self) -> tuple[Any, ...]:
        shares = [(s.budget, s.name, s.cost) for s in self.shares]
        parts = (self._budget, self._name, self._keys_delta, shares, dict(self._claims))
        return _revived, (self._token, *parts)


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
    protects: Protection | None = None,
    keys_delta: float = 0.0,
) -> None:
    """Mark a share as used; a plain budget passes.

    Transforms call it once in `expand`, after all checks, with their label: every place where a
    transform is applied spends its budget, and one that is refused or never applied spends nothing.
    """
    if isinstance(budget, Share):
        budget.claim(by, protects, keys_delta)


def _check_fraction(fraction: Any) -> Fraction:
    if isinstance(fraction, Fraction) and fraction > 0:  # exact
        return fraction
    return Fraction(positive("fraction", fraction, "give a number above 0, up to 1, e.g. 0.25"))


def _percent(part: Fraction) -> str:
    return f"{float(100 * part):.4g} %"


def _check_line(what: str, text: object) -> str:
    if not isinstance(text, str):
        raise TypeError(f"{what} must be text, got {text!r}")
    if text != " ".join(text.split()):
        raise ValueError(f"{what} must be words on one line, with single spaces, got {text!r}")
    return text

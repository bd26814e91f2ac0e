"""One budget for a whole pipeline: what each transform takes of it, and the account of that."""

from __future__ import annotations

import os
import threading
import uuid
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from numbers import Real
from typing import Any, NamedTuple

from beam_dpcount.budget.budgets import ZCDP, ApproxDP, Budget, PureDP, check_budget, warn_if_weak
from beam_dpcount.budget.conversions import (
    check_delta,
    float_down,
    float_up,
    positive,
    root_down,
    rounded_up,
    zcdp_epsilon,
)
from beam_dpcount.checks import Error
from beam_dpcount.notebooks import described, table

# Ten times 0.1 is a hair above 1 in binary. A share that exceeds what is left by this part of
# itself gets what is left, and when only this part of a budget is left, nothing is. What is kept
# for keys is kept with this part more: a claim comes too late to lower a threshold's delta by it.
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
Delta for keys: where keys are not listed but shown once their private counts are high enough, the
probability, at most, of showing any that only {whom} has. It adds up over shares.
{beside}"""

_COLUMNS = ("share", "part", "budget", "delta for keys", "claimed by")
_KEYS_COLUMN = 3  # shown where anything is kept for keys

_LOCK = threading.Lock()


class OverspentError(Error, ValueError):
    """A share of more than is left of its ledger."""


class ClaimedError(Error, ValueError):
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

    def delta_of_event(self, keys_delta: Fraction) -> Fraction:
        """What one event takes of the delta for keys.

        Behind a bound one event less may lose its person some keys and gain them others. The noise
        alone crosses the thresholds of those gained with no more probability than with events that
        a person may have: twice as much in all, however many events change.
        """
        return keys_delta if self.event_cost == 1 else 2 * keys_delta


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
        return self._claimed.by

    @property
    def protects(self) -> Protection:
        """Whom the transform that spends it protects; an event while there is none."""
        return self._claimed.protects

    @property
    def keys_delta(self) -> Fraction:
        """What the transform that spends it takes of the ledger's `keys_delta`; most take 0."""
        return self._claimed.keys_delta

    @property
    def _claimed(self) -> _Claim:
        return self.ledger._claims.get(self.name, _UNCLAIMED)

    def claim(
        self, by: str, protects: Protection | None = None, keys_delta: float | Fraction = 0.0
    ) -> PureDP | ZCDP:
        """The budget, for use outside of transforms: `calibrate(m, share.claim("mine"))`.

        Args:
          by: what spends it, for the account.
          protects: whom; default: an event.
          keys_delta: where keys that nobody listed are shown, the probability of showing one that
            must not be. It is taken from the ledger's.

        Raises:
          ClaimedError: it was claimed before.
          OverspentError: the ledger has less left for keys. Then the share is not used.
          ValueError, TypeError: keys_delta is no number from 0 to below 1.
        """
        self.ledger._claim(self, by, protects or _AN_EVENT, keys_delta)
        return self.budget

    def describe(self) -> Mapping[str, str]:
        """Its line for annotations and display data."""
        of = f"{_percent(self.part)} of {self.ledger.budget}"
        where = f" (ledger {self.ledger.name})" if self.ledger.name else ""
        keys = f", delta for keys {float(self.keys_delta):g}" if self.keys_delta else ""
        return {"ledger": f"{self.name}: {of}{keys}{where}"}

    def _repr_html_(self) -> str:
        parameters = {**self.describe(), "budget": str(self.budget)}
        return described("Share", {**parameters, "claimed_by": self.claimed_by or "-"})

    def __reduce__(self) -> tuple[Any, ...]:
        return _share_of, (self.ledger, self.name)


_AN_EVENT = Protection()


class _Claim(NamedTuple):
    """Who spends a share, whom that protects, and what it takes of the delta for keys."""

    by: str | None = None
    protects: Protection = _AN_EVENT
    keys_delta: Fraction = Fraction(0)


_UNCLAIMED = _Claim()


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
      keys_delta: what all transforms that show keys nobody listed may take together, as the
        probability of showing one that must not be. It is set aside first, with a billionth of it
        for sums of floats: shares of ApproxDP(epsilon, delta) are made from epsilon and the rest
        of delta. Default: nothing.

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
        keys_delta is no number from 0 to below 1, or not below the budget's delta.

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
        self, budget: Budget, name: str = "", keys_delta: float | Fraction | None = None
    ) -> None:
        kept = Fraction(0) if keys_delta is None else _check_keys_delta(keys_delta)
        self._set_up(uuid.uuid4().hex, check_budget(budget), _check_line("name", name), kept)
        warn_if_weak(budget, float(kept))  # a share of a weak budget may look strong
        self._home: int | None = os.getpid()
        _LIVE[self._token] = self

    def _set_up(self, token: str, budget: Budget, name: str, keys_delta: Fraction) -> None:
        self._token, self._budget, self._name = token, budget, name
        self._keys_delta = keys_delta
        self._kind = PureDP if isinstance(budget, PureDP) else ZCDP  # of most shares
        self._total = _whole(budget, self._keys_room)
        self._shares: dict[str, Share] = {}
        self._claims: dict[str, _Claim] = {}

    @property
    def budget(self) -> Budget:
        """The whole budget, as it was given."""
        return self._budget

    @property
    def name(self) -> str:
        """For messages and the account."""
        return self._name

    @property
    def _has_delta(self) -> bool:
        return isinstance(self._budget, ApproxDP)

    @property
    def total(self) -> Fraction:
        """What all shares may cost: epsilon of a pure budget, else rho."""
        return self._total

    @property
    def left(self) -> Fraction:
        """What no share has taken, in the unit of `total`; no trace that rounding left."""
        left = self._total - sum((s.cost for s in self._shares.values()), Fraction(0))
        return left if left > self._total * _ROUNDING else Fraction(0)

    @property
    def keys_delta(self) -> Fraction:
        """What all transforms that show keys nobody listed may take together, exactly; or 0."""
        return self._keys_delta

    @property
    def keys_delta_left(self) -> Fraction:
        """What none of them has taken; no trace that rounding left."""
        left = self._keys_delta - self._keys_taken
        return left if left > self._keys_delta * _ROUNDING else Fraction(0)

    @property
    def _keys_taken(self) -> Fraction:
        return sum((c.keys_delta for c in self._claims.values()), Fraction(0))

    @property
    def _keys_room(self) -> Fraction:
        """What claims may sum to, exactly, and what a budget's delta is lowered by."""
        return self._keys_delta * (1 + _ROUNDING)

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
                raise ValueError(
                    f"{self._title()} has a share {name!r} already: choose another name"
                )
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

    def _claim(
        self, share: Share, by: str, protects: Protection, keys_delta: float | Fraction
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
                raise self._overspent_on_keys(by, asked)
            self._claims[share.name] = _Claim(by, protects, asked)

    def _overspent_on_keys(self, by: str, asked: Fraction) -> OverspentError:
        asks = f"{by!r} shows keys that nobody listed, and asks for {float(asked):g} of delta"
        if not self._keys_delta:
            remedy = "make it Ledger(budget, keys_delta=...), with what all such transforms take"
            return OverspentError(f"{self._title()} keeps no delta for keys, but {asks}: {remedy}")
        left, remedy = "nothing", "lower the others' delta, or raise the ledger's keys_delta"
        if self.keys_delta_left:
            left, remedy = f"{float(self.keys_delta_left):g}", "take less, or raise its keys_delta"
        taken = ", ".join(f"{s.name} {float(s.keys_delta):g}" for s in self.shares if s.keys_delta)
        return OverspentError(
            f"{self._title()} would be overspent: {asks}, but {left} of its keys_delta = "
            f"{float(self._keys_delta):g} is left{' after ' if taken else ''}{taken}: {remedy}"
        )

    def _check_home(self) -> None:
        if self._home != os.getpid():
            problem = f"this copy of {self._title()} in another process can only be read"
            remedy = "take and use shares where the ledger was made"
            raise RuntimeError(f"{problem}: {remedy}, or give a new one the budget that is left")

    def epsilon_at(
        self, delta: float | None = None, claimed: bool = True, unit: str | None = None
    ) -> float:
        """The epsilon that all shares together satisfy at this delta, rounded up.

        What shows keys that nobody listed takes its part of delta first, `delta_for_keys`; epsilon
        is that of the shares' sum at what remains.

        Args:
          delta: default: the budget's own; for ZCDP 1e-6 beside `delta_for_keys`; for PureDP
            `delta_for_keys` alone, which is mostly none: pure DP.
          claimed: only shares that transforms have claimed; False: all, and what is left, which is
            taken to protect whom the claimed ones do; and all of `keys_delta`.
          unit: "event" or "person". Default: a person's if all claimed shares protect one, else an
            event's.

        Raises:
          ValueError: nothing holds for a person, as some shares protect an event only; or for an
            event, as some of what is not claimed may yet protect people. Or delta is not above
            what keys take of it.
        """
        of_event = self._counts_for_events(claimed, unit)
        keys = self._for_keys(claimed, of_event)
        epsilon = self._epsilon(self.parts(claimed, of_event=of_event), keys, delta)
        if epsilon is None:
            raise ValueError(
                f"at delta = {self._delta(keys) if delta is None else delta:g} no epsilon holds, "
                f"as showing keys that nobody listed takes {float_up(keys):g} of it: give more"
            )
        return epsilon

    def delta_for_keys(self, claimed: bool = True, unit: str | None = None) -> float:
        """What showing keys that nobody listed takes of any delta, rounded up; mostly 0.

        For one event it is up to twice as much as shares for people have claimed. Arguments and
        errors as for `epsilon_at`.
        """
        return float_up(self._for_keys(claimed, self._counts_for_events(claimed, unit)))

    def _for_keys(self, claimed: bool, of_event: bool) -> Fraction:
        takes = [c.protects.delta_of_event(c.keys_delta) for c in self._claims.values()]
        taken = sum(takes, Fraction(0)) if of_event else self._keys_taken
        return taken if claimed else taken + self.keys_delta_left

    def _counts_for_events(self, claimed: bool, unit: str | None) -> bool:
        """Whether shares count as what they cost an event, though some protect people."""
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
        if not people or not (events or unit == "event"):
            return False
        if not claimed and (self.left or any(s.claimed_by is None for s in self.shares)):
            raise ValueError(
                "what is not claimed may yet protect people, which costs an event more: leave "
                "claimed=False out"
            )
        return True

    def _epsilon(
        self, parts: Sequence[PureDP | ZCDP], keys: Fraction, delta: float | None
    ) -> float | None:
        """Of parts that add up, once keys have taken theirs of delta; None where that is all."""
        pure = [Fraction(b.epsilon) for b in parts if isinstance(b, PureDP)]
        rho = sum((Fraction(b.rho) for b in parts if isinstance(b, ZCDP)), Fraction(0))
        delta = self._delta(keys) if delta is None else check_delta(delta)
        direct = sum(pure, Fraction(0))  # pure parts kept pure; else turned into zCDP
        if delta is None or not parts:
            return float_up(direct)
        remains = Fraction(delta) - keys
        if remains < 0 or (rho and not remains):
            return None
        if not rho and remains <= keys * _ROUNDING:
            return float_up(direct)
        delta = float_down(remains)
        if rho:
            direct += Fraction(zcdp_epsilon(float_up(rho), delta))
        rho += sum((epsilon**2 for epsilon in pure), Fraction(0)) / 2
        return min(float_up(direct), zcdp_epsilon(float_up(rho), delta))

    def _delta(self, keys: Fraction) -> float | None:
        """At which epsilon is given, unless told otherwise, where keys take this much of it."""
        if isinstance(self._budget, PureDP):
            return float_up(keys) if keys else None
        if isinstance(self._budget, ApproxDP):
            return self._budget.delta
        return float_up(Fraction(_DELTA) + keys)

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
        rows = [_COLUMNS, *self._rows()]
        x, y, z, k, _ = (max(map(len, column)) for column in zip(*rows, strict=True))
        lines = [
            f"{a:<{x}}  {b:>{y}}  {c:<{z}}  {f'{d:>{k}}  ' * bool(self._keys_delta)}{e}".rstrip()
            for a, b, c, d, e in rows
        ]
        return "\n".join([self._heading(), "", *lines, "", self._said(delta)])

    def _repr_html_(self) -> str:
        kept = [n for n, _ in enumerate(_COLUMNS) if n != _KEYS_COLUMN or self._keys_delta]
        heading, *rows = ([row[n] for n in kept] for row in (_COLUMNS, *self._rows()))
        return table(self._heading(), rows, heading, self._said(None))

    def _heading(self) -> str:
        heading = f"{self._title()}: {self._budget}"
        if self._has_delta:
            heading += f"; in all rho = {float(self._total):g} (zCDP)"
        if self._keys_delta:
            kept = f"{float(self._keys_delta):g}"
            of_it = f"{kept} of delta kept" if self._has_delta else f"beside it delta = {kept}"
            heading += f"; {of_it} for keys"
        return heading

    def _rows(self) -> Iterator[tuple[str, ...]]:
        """All shares and what is left, as `_COLUMNS` says."""
        for s in self.shares:
            by = s.claimed_by or "-"
            if self._people and s.claimed_by:
                by += f", for {s.protects.person or 'one event'}"
            keys = f"{float(s.keys_delta):g}" if s.keys_delta else "-"
            yield s.name, _percent(s.part), str(s.budget), keys, by
        of_left = str(self._kind(float_down(self.left))) if self.left else ""
        keys = f"{float(self.keys_delta_left):g}"
        yield "left", _percent(self.left / self._total), of_left, keys, ""

    @property
    def _people(self) -> bool:
        """Whether some share protects people."""
        return any(s.protects.person for s in self.shares)

    def _said(self, delta: float | None) -> str:
        """Which epsilon holds, and what adds up."""
        said = self._of_people(delta) if self._people else self._of_events(delta)
        notes = [_NOTE, "", self._of_keys(self._people)] if self._keys_delta else [_NOTE]
        return "\n".join([said, "", *notes])

    def _of_events(self, delta: float | None) -> str:
        """What holds for an event, where no share protects more."""
        whole = self._for_keys(False, False)
        delta = self._delta(whole) if delta is None else delta
        spent = self._in_words(self.parts(True), self._for_keys(True, False), delta)
        every = self._in_words(self.parts(False), whole, delta)
        return f"epsilon{_where(delta)}: {spent} of what is claimed, {every} of all"

    def _of_people(self, delta: float | None) -> str:
        """What holds for a person and for an event, where shares protect people."""
        mine = [s for s in self.shares if s.protects.person]
        mixed = any(s.claimed_by and not s.protects.person for s in self.shares)
        keys = sum((s.keys_delta for s in mine), Fraction(0))
        whole = self._for_keys(False, False)
        at = self._delta(keys if mixed else whole) if delta is None else delta
        person = self._in_words([s.budget for s in mine], keys, at)
        names = ", ".join(s.name for s in mine)
        rest = " alone" if mixed else f", {self._in_words(self.parts(False), whole, at)} of all"
        keys = self._for_keys(True, True)
        later = self._delta(keys) if delta is None else delta
        event = self._in_words(self.parts(True, of_event=True), keys, later)
        said = [
            f"epsilon{_where(at)}, for one person: {person} by {names}{rest}",
            f"epsilon{_where(later)}, for one event: {event} of what is claimed",
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
            said += ["Its delta for keys counts twice."] * any(s.keys_delta for s in more)
        return "\n".join(said + ["", _MIXED] * mixed)

    def _of_keys(self, people: bool) -> str:
        beside = "It comes beside the budget, which holds but for it."
        if self._has_delta:
            beside = "It is part of delta, and noise is made for what it leaves of that."
        whom = "one event or person" if people else "one event"
        return _KEYS.format(whom=whom, beside=beside)

    def _in_words(self, parts: Sequence[PureDP | ZCDP], keys: Fraction, delta: float | None) -> str:
        epsilon = self._epsilon(parts, keys, delta)
        if epsilon is None:
            return f"none (keys take {float_up(keys):g} of delta)"
        return rounded_up(epsilon)

    def describe(self) -> Mapping[str, str]:
        """All shares in one line, for annotations and display data."""
        parts = [f"{s.name}: {_percent(s.part)} of {self._budget}" for s in self.shares]
        parts.append(f"left: {_percent(self.left / self._total)}")
        if self._keys_delta:
            left, whole = float(self.keys_delta_left), float(self._keys_delta)
            parts.append(f"delta for keys: {left:g} of {whole:g} left")
        return {"ledger": "; ".join(parts)}

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
    claims: dict[str, _Claim],
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
    keys_delta: float | Fraction = 0.0,
) -> None:
    """Mark a share as used, and this much of its ledger's delta for keys; a plain budget passes.

    Transforms call it once in `expand`, after all checks, with their label: every place where a
    transform is applied spends its budget, and one that is refused or never applied spends nothing.
    """
    if isinstance(budget, Share):
        budget.claim(by, protects, keys_delta)


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


def _where(delta: float | None) -> str:
    return "" if delta is None else f" at delta = {delta:g}"


def _percent(part: Fraction) -> str:
    return f"{float(100 * part):.4g} %"


def _check_line(what: str, text: object) -> str:
    if not isinstance(text, str):
        raise TypeError(f"{what} must be text, got {text!r}")
    if text != " ".join(text.split()):
        raise ValueError(f"{what} must be words on one line, with single spaces, got {text!r}")
    return text

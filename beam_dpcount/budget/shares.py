"""A share: a part of a ledger's budget, and whom the transform that spends it protects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple, Protocol

from beam_dpcount.budget.budgets import ZCDP, Budget, PureDP
from beam_dpcount.budget.spender import Protection, Spender, Unknown
from beam_dpcount.errors import Error
from beam_dpcount.notebooks import described


class ClaimedError(Error, ValueError):
    """A share that another transform has used."""


class Claim(NamedTuple):
    """Who spends a share, whom that protects, and what it takes of the delta for keys."""

    by: str | None = None
    protects: Protection = Protection()
    keys_delta: Fraction = Fraction(0)


UNCLAIMED = Claim()


class Book(Protocol):
    """What a share needs of its ledger, and what it is asked for through its shares."""

    @property
    def name(self) -> str: ...

    @property
    def budget(self) -> Budget: ...

    @property
    def total(self) -> Fraction: ...

    @property
    def resumes(self) -> bool: ...

    @property
    def _claims(self) -> Mapping[str, Claim]: ...

    @property
    def _shares(self) -> Mapping[str, Share]: ...

    def epsilon_at(
        self,
        delta: float | None = None,
        claimed: bool = True,
        unit: str | None = None,
        *,
        periods: int | None = None,
        age: int | None = None,
    ) -> float: ...

    def _claim(
        self, share: Share, by: str, spender: Spender, keys_delta: float | Fraction
    ) -> None: ...


@dataclass(frozen=True, eq=False)
class Share:
    """A part of a ledger's budget, to be passed to one transform in place of a budget.

    Made by `Ledger.share`, `.spend` and `.rest`, not by hand. It pickles and copies as a reference
    to its ledger: within a process, copies are the same share.
    """

    budget: PureDP | ZCDP  # what the transform may spend
    name: str  # unlike all others of its ledger
    cost: Fraction  # epsilon of a pure ledger or rho of others; `budget` costs at most this
    ledger: Book = field(repr=False)

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
    def _claimed(self) -> Claim:
        return self.ledger._claims.get(self.name, UNCLAIMED)

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
        self.ledger._claim(self, by, Unknown(protects or Protection()), keys_delta)
        return self.budget

    def describe(self) -> Mapping[str, str]:
        """Its line for annotations and display data."""
        of = f"{percent(self.part)} of {self.ledger.budget}"
        where = f" (ledger {self.ledger.name})" if self.ledger.name else ""
        keys = f", delta for keys {float(self.keys_delta):g}" if self.keys_delta else ""
        return {"ledger": f"{self.name}: {of}{keys}{where}"}

    def _repr_html_(self) -> str:
        parameters = {**self.describe(), "budget": str(self.budget)}
        return described("Share", {**parameters, "claimed_by": self.claimed_by or "-"})

    def __reduce__(self) -> tuple[Any, ...]:
        return _share_of, (self.ledger, self.name)


def _share_of(ledger: Book, name: str) -> Share:
    return ledger._shares[name]


def percent(part: Fraction) -> str:
    """A part of a whole, in words."""
    return f"{float(100 * part):.4g} %"

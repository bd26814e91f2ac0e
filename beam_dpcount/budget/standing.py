"""What the shares of one budget cost together, as they stand: epsilon, rho and delta."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from beam_dpcount.budget.budgets import ZCDP, ApproxDP, Budget, PureDP
from beam_dpcount.budget.conversions import (
    USUAL_DELTA,
    check_delta,
    float_down,
    float_up,
    zcdp_epsilon,
)
from beam_dpcount.budget.shares import Share
from beam_dpcount.budget.spender import Unit
from beam_dpcount.checks import ParameterError, check_whole

AGE_ALONE = 'give unit="event" or leave it out, without {periods}'

# Ten times 0.1 is a hair above 1 in binary. A share that exceeds what is left by this part of
# itself gets what is left, and when only this part of a budget is left, nothing is. What is kept
# for keys is kept with this part more: a claim comes too late to lower a threshold's delta by it.
ROUNDING = Fraction(1, 10**9)


@dataclass(frozen=True)
class Standing:
    """All shares of a ledger and what is left, as they are now."""

    title: str
    budget: Budget
    total: Fraction  # what all shares may cost, in epsilon or rho
    left: Fraction  # what no share has taken
    keys_delta: Fraction
    keys_delta_left: Fraction
    shares: tuple[Share, ...]
    entered: str = ""  # what was entered into an account, in a sentence

    @property
    def part_left(self) -> Fraction:
        return self.left / self.total

    @property
    def has_delta(self) -> bool:
        return isinstance(self.budget, ApproxDP)

    @property
    def has_people(self) -> bool:
        """Whether some share protects people."""
        return any(s.protects.person for s in self.shares)

    @property
    def budget_left(self) -> PureDP | ZCDP | None:
        """What is left, rounded down."""
        return self._rest(float_down)

    def _rest(self, rounded: Callable[[Fraction], float]) -> PureDP | ZCDP | None:
        kind = PureDP if isinstance(self.budget, PureDP) else ZCDP
        return kind(rounded(self.left)) if self.left else None

    def parts(
        self,
        claimed: bool,
        rounded: Callable[[Fraction], float] = float_down,
        of: Unit | str = "",
        many: int = 1,
        age: int | None = None,
    ) -> list[PureDP | ZCDP]:
        """The budgets of claimed shares; or of all shares, and of what is left.

        Args:
          claimed, rounded: which, and how what is left is rounded.
          of: whose cost it is: "event" for one event of shares that protect a person; periods, for
            so many of one person; else what each share protects.
          many: how many periods.
          age: so many steps after one event; None: of all releases.
        """
        shares = [s for s in self.shares if s.claimed_by is not None or not claimed]
        parts = [s.protects.budget_of(s.budget, of, many) if of else s.budget for s in shares]
        if age is not None:
            parts = [s.protects.aged_budget(b, age) for s, b in zip(shares, parts, strict=True)]
        rest = None if claimed else self._rest(rounded)
        return parts if rest is None else [*parts, rest]

    def epsilon_at(
        self,
        delta: float | None,
        claimed: bool,
        unit: str | None,
        periods: int | None = None,
        age: int | None = None,
    ) -> float:
        """As `Ledger.epsilon_at` says."""
        if age is not None and (periods is not None or unit not in (None, "event")):
            raise ParameterError("age", "is of one event, not of a person or periods", AGE_ALONE)
        of, many = self.counted_for(claimed, unit, periods)
        keys = self.for_keys(claimed, of, many)
        epsilon = self.epsilon(self.parts(claimed, of=of, many=many, age=age), keys, delta)
        if epsilon is None:
            raise ValueError(
                f"at delta = {self.usual_delta(keys) if delta is None else delta:g} no epsilon "
                f"holds, as showing keys that nobody listed takes {float_up(keys):g} of it: give "
                "more"
            )
        return epsilon

    def delta_for_keys(self, claimed: bool, unit: str | None) -> float:
        """As `Ledger.delta_for_keys` says."""
        return float_up(self.for_keys(claimed, *self.counted_for(claimed, unit, None)))

    def for_keys(self, claimed: bool, of: Unit | str = "", many: int = 1) -> Fraction:
        """What showing keys takes of delta: of what is claimed, or of that and what is left."""
        takes = [
            s.protects.delta_of(s.keys_delta, of, many) if of else s.keys_delta for s in self.shares
        ]
        taken = min(sum(takes, Fraction(0)), Fraction(1))
        return taken if claimed else taken + self.keys_delta_left

    @property
    def units(self) -> list[Unit]:
        """The periods that claimed shares protect, each once; first those of the longest clock."""
        found: list[Unit] = []
        for share in self.shares:
            unit = share.protects.unit
            if share.claimed_by is not None and unit is not None and unit not in found:
                found.append(unit)
        return sorted(found, key=lambda unit: -unit.span)

    def refusal(self, share: Share) -> str:
        """Why nothing follows from a share for a period of the longest clock; empty if some does.

        As in an account of such periods.
        """
        if share.claimed_by is None:
            return ""
        unit = self.units[0]
        times = (s.protects.time for s in self.shares if s.claimed_by and s.protects.unit == unit)
        return share.protects.refusal(unit, next(times))

    def counted_for(
        self, claimed: bool, unit: str | None, periods: int | None
    ) -> tuple[Unit | str, int]:
        """Whose cost is asked for: as for `parts`, and of how many periods."""
        units, many = self.units, 1 if periods is None else check_whole("periods", periods)
        if unit not in (None, "event", "person", "period"):
            raise ValueError(f'unit must be "event", "person" or "period", got {unit!r}')
        events = [s.name for s in self.shares if s.claimed_by and not s.protects.person]
        if unit == "period" or periods is not None or (unit is None and units and not events):
            return self._period(units, claimed, many), many
        return ("event" if self._counts_for_events(claimed, unit, events) else ""), 1

    def _period(self, units: list[Unit], claimed: bool, many: int) -> Unit:
        """The periods that a cost is of: those of the longest clock."""
        if not units:
            raise ValueError(
                f"of {self.title} no share protects one person's events of a period: give "
                'users=Users(by, events, per="1d") to what spends them, or leave periods out'
            )
        if many > 1 and not claimed:
            raise ValueError(
                "what several periods cost is known of claimed shares only: leave claimed=False out"
            )
        for share in self.shares:
            if reason := self.refusal(share):
                raise ValueError(
                    f"of {self.title} nothing holds for one person's events of {units[0].any}, as "
                    f"{share.name!r} {reason}: take a ledger of its own for it"
                )
        return units[0]

    def _counts_for_events(self, claimed: bool, unit: str | None, events: Sequence[str]) -> bool:
        """Whether shares count as what they cost an event, though some protect people."""
        periods = [s.name for s in self.shares if s.claimed_by and s.protects.unit is not None]
        if unit == "person" and (events or periods or not self.has_people):
            named = ", ".join([*events, *periods]) or "none is claimed for a person"
            less = "an event" if events or not periods else "one period of a person"
            raise ValueError(
                f"of {self.title} nothing holds for a person, as these shares protect {less}: "
                f"{named}: give users= to what spends them" + ", without per" * bool(periods)
            )
        if not self.has_people or not (events or unit == "event"):
            return False
        if not claimed and (self.left or any(s.claimed_by is None for s in self.shares)):
            raise ValueError(
                "what is not claimed may yet protect people, which costs an event more: leave "
                "claimed=False out"
            )
        return True

    def epsilon(
        self, parts: Sequence[PureDP | ZCDP], keys: Fraction, delta: float | None
    ) -> float | None:
        """Of parts that add up, once keys have taken theirs of delta; None where that is all."""
        pure = [Fraction(b.epsilon) for b in parts if isinstance(b, PureDP)]
        rho = sum((Fraction(b.rho) for b in parts if isinstance(b, ZCDP)), Fraction(0))
        delta = self.usual_delta(keys) if delta is None else check_delta(delta)
        direct = sum(pure, Fraction(0))  # pure parts kept pure; else turned into zCDP
        if delta is None or not parts:
            return float_up(direct)
        remains = Fraction(delta) - keys
        if remains < 0 or (rho and not remains):
            return None
        if not rho and remains <= keys * ROUNDING:
            return float_up(direct)
        delta = float_down(remains)
        if rho:
            direct += Fraction(zcdp_epsilon(float_up(rho), delta))
        rho += sum((epsilon**2 for epsilon in pure), Fraction(0)) / 2
        return min(float_up(direct), zcdp_epsilon(float_up(rho), delta))

    def usual_delta(self, keys: Fraction) -> float | None:
        """At which epsilon is given, unless told otherwise, where keys take this much of it."""
        if isinstance(self.budget, PureDP):
            return float_up(keys) if keys else None
        if isinstance(self.budget, ApproxDP):
            return self.budget.delta
        return float_up(Fraction(USUAL_DELTA) + keys)

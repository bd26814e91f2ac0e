"""What releases cost, and as events of dp-accounting (the extra `accounting`).

For those who account for more than this package releases, or want a second opinion on it:

  accountant = dp_accounting.pld.PLDAccountant()
  accountant.compose(dp_event(counter))
  print(accountant.get_epsilon(1e-6))

Events describe the noise, not the budget. The sensitivity includes the neighbouring relation, so
accountants keep the default ADD_OR_REMOVE_ONE: REPLACE_ONE would count every change twice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Protocol

from beam_dpcount.budget.budgets import ZCDP, PureDP
from beam_dpcount.budget.conversions import float_up, gaussian_epsilon, root_down, zcdp_epsilon
from beam_dpcount.budget.ledger import Ledger

if TYPE_CHECKING:
    from dp_accounting import DpEvent

_ROUNDING = 1 + 1e-12  # far above that of the floats that fractions become


@dataclass(frozen=True)
class PureCost:
    """epsilon-DP, and rho-zCDP."""

    epsilon: Fraction
    rho: Fraction

    def epsilon_at(self, delta: float) -> float:
        """The epsilon that it satisfies at this delta."""
        return min(float_up(self.epsilon), zcdp_epsilon(float_up(self.rho), delta))


@dataclass(frozen=True)
class GaussianCost:
    """A continuous Gaussian mechanism, post-processed; (Delta_2 / sigma)^2."""

    ratio_squared: Fraction

    @property
    def rho(self) -> Fraction:
        return self.ratio_squared / 2

    def epsilon_at(self, delta: float) -> float:
        return gaussian_epsilon(math.sqrt(float(self.ratio_squared) * _ROUNDING), delta)


@dataclass(frozen=True)
class ConcentratedCost:
    """rho-zCDP."""

    rho: Fraction

    def epsilon_at(self, delta: float) -> float:
        return zcdp_epsilon(float(self.rho) * _ROUNDING, delta)


Cost = PureCost | GaussianCost | ConcentratedCost


class Costly(Protocol):
    """What has a cost: of one stream's releases, in parts that compose."""

    def costs(self) -> Sequence[Cost]: ...


def dp_event(counter: Costly, zcdp: bool = False) -> DpEvent:
    """What all releases of one stream of this counter cost together.

    Args:
      counter: from `calibrate`, or the `.counter` of a transform.
      zcdp: give what is pure as ZCDpEvent, for RdpAccountant.

    Returns:
      Discrete Gaussian noise: ZCDpEvent(Delta_2^2 / (2 sigma^2)), for RdpAccountant. Rounded
      Gaussian noise: GaussianDpEvent(sigma / Delta_2), for PLDAccountant and RdpAccountant.
      Discrete Laplace noise: DiscreteLaplaceDpEvent(Delta_1 / scale, 1), for PLDAccountant.
      Unbounded and Sparse: a ComposedDpEvent of their two parts; if one is a ZCDpEvent, which
      PLDAccountant does not take, the pure one is given as such as well.

    Guarantee: the event dominates the counter: what an accountant says of it holds for the
      releases. Numbers are rounded to the safe side. A discrete Laplace law of parameter epsilon
      and its shift by 1 have losses of epsilon and -epsilon only: they are randomised response,
      which dominates every epsilon-DP mechanism. (LaplaceDpEvent would not do: a continuous
      Laplace law reaches its largest loss less often than a discrete one.)

    Source: [Kairouz, Oh, Viswanath 2015] for pure DP as randomised response; `noise_laws` and
      docs/proofs/counters.md for the rest.

    Raises:
      ImportError: dp-accounting is not installed.
      TypeError: counter is not a calibrated counter.
    """
    if not hasattr(counter, "costs"):
        remedy = "give calibrate(mechanism, budget) or the .counter of a transform"
        raise TypeError(f"counter must be a calibrated counter, got {counter!r}: {remedy}")
    return _event(counter.costs(), zcdp)


def ledger_event(
    ledger: Ledger, claimed: bool = True, zcdp: bool = False, without_keys: bool = False
) -> DpEvent:
    """What the shares of a ledger cost together, each taken to be spent in full.

    It is a ComposedDpEvent of a ZCDpEvent (for RdpAccountant) or, in a pure ledger, of a
    DiscreteLaplaceDpEvent (for PLDAccountant) a share. ImportError as for `dp_event`.

    Args:
      ledger: the account.
      claimed: only the shares that transforms have claimed; False: all, and what is left.
      zcdp: give what is pure as ZCDpEvent; it is so anyway where some share is zCDP.
      without_keys: the event is to leave out the delta of keys that nobody listed, as you subtract
        it: `accountant.get_epsilon(delta - ledger.delta_for_keys())`, with the same `claimed`.

    Raises:
      ValueError: the ledger has a delta for keys, and `without_keys` is not given. No event of
        dp-accounting has it: it adds to delta, and a mechanism of delta alone that is composed
        with the others adds less.
    """
    keys = any(share.keys_delta for share in ledger.shares) if claimed else ledger.keys_delta
    if keys and not without_keys:
        raise ValueError(
            "no event holds what showing keys that nobody listed takes of delta: subtract "
            "ledger.delta_for_keys() from the delta that you give the accountant, and say so by "
            "without_keys=True"
        )
    parts = [of_budget(budget) for budget in ledger.standing.parts(claimed, float_up)]
    return _event(parts, zcdp, composed=True)


def of_budget(budget: PureDP | ZCDP) -> Cost:
    """What a budget costs that is spent in full."""
    if isinstance(budget, PureDP):
        return pure_cost(Fraction(budget.epsilon))
    return ConcentratedCost(Fraction(budget.rho))


def pure_cost(epsilon: Fraction) -> PureCost:
    """epsilon-DP, which is epsilon^2/2-zCDP [Bun, Steinke 2016, Proposition 1.4]."""
    return PureCost(epsilon, epsilon**2 / 2)


def _event(parts: Sequence[Cost], zcdp: bool, composed: bool = False) -> DpEvent:
    try:
        import dp_accounting as library
    except ImportError as error:
        remedy = "pip install 'beam-dpcount[accounting]'"
        raise ImportError(f"events need dp-accounting, which is not installed: {remedy}") from error
    zcdp = zcdp or any(isinstance(part, ConcentratedCost) for part in parts)

    def single(part: Cost) -> Any:
        if isinstance(part, GaussianCost):
            return library.GaussianDpEvent(root_down(1 / part.ratio_squared))
        if isinstance(part, ConcentratedCost) or zcdp:
            return library.ZCDpEvent(float_up(part.rho))
        return library.dp_event.DiscreteLaplaceDpEvent(float_up(part.epsilon), 1)

    events = [single(part) for part in parts]
    return library.ComposedDpEvent(events) if composed or len(events) > 1 else events[0]

"""Calibrated counters and ledgers as events of dp-accounting (the extra `accounting`).

For those who account for more than this package releases, or want a second opinion on it:

  accountant = dp_accounting.pld.PLDAccountant()
  accountant.compose(dp_event(counter))
  print(accountant.get_epsilon(1e-6))

Events describe what noise was drawn, from the counter's sensitivity and law; not its budget. The
sensitivity knows the neighbouring relation already, so accountants keep their default one,
ADD_OR_REMOVE_ONE: under REPLACE_ONE they would count every change twice.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from beam_dpcount.budget.budgets import ZCDP, ApproxDP, PureDP
from beam_dpcount.budget.ledger import Ledger, float_up
from beam_dpcount.counters.counter import Counter, LatticeCounter
from beam_dpcount.counters.sparse import SparseCounter
from beam_dpcount.counters.unbounded import UnboundedCounter
from beam_dpcount.mechanisms.binary import BinaryTree
from beam_dpcount.noise.laws import DiscreteGaussian, DiscreteLaplace, RoundedGaussian

if TYPE_CHECKING:
    from dp_accounting import DpEvent


@dataclass(frozen=True)
class _Pure:
    """epsilon-DP, and rho-zCDP."""

    epsilon: Fraction
    rho: Fraction


@dataclass(frozen=True)
class _Gaussian:
    """A continuous Gaussian mechanism, post-processed; (Delta_2 / sigma)^2."""

    ratio_squared: Fraction


@dataclass(frozen=True)
class _Concentrated:
    """rho-zCDP."""

    rho: Fraction


_Part = _Pure | _Gaussian | _Concentrated


def dp_event(counter: LatticeCounter, zcdp: bool = False) -> DpEvent:
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

    Guarantee: the event dominates the counter: whatever an accountant says of it holds for the
      releases. Numbers are rounded to the safe side. A discrete Laplace law of parameter epsilon
      and its shift by 1 have losses of epsilon and -epsilon only: they are randomised response,
      which dominates every epsilon-DP mechanism. (LaplaceDpEvent would not do: a continuous
      Laplace law reaches its largest loss less often than a discrete one.)

    Source: [Kairouz, Oh, Viswanath 2015] for pure DP as randomised response; `noise_laws` and
      docs/privacy.md for the rest.

    Raises:
      ImportError: dp-accounting is not installed; the message says how to install it.
      TypeError: counter is no calibrated counter.
    """
    return _event(_parts(counter), zcdp)


def ledger_event(ledger: Ledger, claimed: bool = True, zcdp: bool = False) -> DpEvent:
    """What the shares of a ledger cost together, each taken to be spent in full.

    Args:
      ledger: the account.
      claimed: only the shares that transforms have claimed; False: all, and what is left.
      zcdp: give what is pure as ZCDpEvent, for RdpAccountant; it is so anyway where some share is
        zCDP.

    Returns:
      A ComposedDpEvent of a ZCDpEvent (for RdpAccountant) or, in a pure ledger, of a
      DiscreteLaplaceDpEvent (for PLDAccountant) a share.

    Raises:
      ImportError: dp-accounting is not installed; the message says how to install it.
    """
    shares = [s for s in ledger.shares if s.claimed_by is not None or not claimed]
    budgets = [share.budget for share in shares]
    if not claimed and ledger.left:
        pure = isinstance(ledger.budget, PureDP)
        left = float_up(ledger.left)
        budgets.append(PureDP(left) if pure else ZCDP(left))
    return _event([_of_budget(budget) for budget in budgets], zcdp, composed=True)


def _parts(counter: LatticeCounter) -> list[_Part]:
    match counter:
        case Counter():
            return [_of_noise(counter)]
        case UnboundedCounter():
            return [_of_bases(counter), _of_totals(counter)]
        case SparseCounter():
            # One event moves all later counts of its segment the same way: see docs/privacy.md.
            epsilon = counter.change.magnitude(counter.unit) / counter.comparison.parameter
            return [_pure(epsilon), *_parts(counter.inner)]
    raise TypeError(
        f"counter must be a calibrated counter, got {counter!r}: give calibrate(mechanism, budget) "
        "or the .counter of a transform"
    )


def _of_noise(counter: Counter) -> _Part:
    l1, l2_squared = counter.change.norms(counter.mechanism, counter.unit, counter.dimension)
    match counter.law:
        case DiscreteGaussian(sigma2):
            return _Concentrated(l2_squared / (2 * sigma2))
        case RoundedGaussian(sigma2):
            return _Gaussian(l2_squared / sigma2)
        case DiscreteLaplace(scale):
            pure = _pure(l1 / scale)
            if counter.mechanism.draws_early:  # inputs may follow noise already seen: pure DP only
                return pure
            return _Pure(pure.epsilon, min(pure.rho, l2_squared / (2 * scale**2)))
    raise TypeError(f"noise of {counter.law!r} has no event: use a law that calibrate chooses")


def _of_bases(counter: UnboundedCounter) -> _Part:
    """What the base of any epoch costs: an item lies in one, and each meets its budget exactly."""
    budget = counter.base_budget
    if isinstance(budget, ApproxDP):
        bases = map(counter.mechanism.of_epoch, range(counter.mechanism.epochs))
        if any(base.laws != {"laplace"} for base in bases):
            raise TypeError(
                f"{counter.mechanism.name} has bases of several kinds of noise, which no event "
                "describes: use a base of one kind, or a ZCDP or PureDP budget"
            )
        budget = PureDP(budget.epsilon)  # what Laplace noise keeps of it, without the delta
    return _of_budget(budget)


def _of_totals(counter: UnboundedCounter) -> _Part:
    """What one total costs: a coordinate in which an item lies once, a tree of one item."""
    change, dimension, unit = counter.change, counter.dimension, counter.unit
    total = Counter(BinaryTree(1), counter.total_budget, counter.law, change, dimension, unit)
    return _of_noise(total)


def _of_budget(budget: PureDP | ZCDP) -> _Part:
    if isinstance(budget, PureDP):
        return _pure(Fraction(budget.epsilon))
    return _Concentrated(Fraction(budget.rho))


def _pure(epsilon: Fraction) -> _Pure:
    return _Pure(epsilon, epsilon**2 / 2)


def _event(parts: list[_Part], zcdp: bool, composed: bool = False) -> DpEvent:
    library = _library()
    zcdp = zcdp or any(isinstance(part, _Concentrated) for part in parts)

    def single(part: _Part) -> Any:
        if isinstance(part, _Gaussian):
            return library.GaussianDpEvent(_multiplier(part.ratio_squared))
        if isinstance(part, _Concentrated) or zcdp:
            return library.ZCDpEvent(float_up(part.rho))
        return library.dp_event.DiscreteLaplaceDpEvent(float_up(part.epsilon), 1)

    events = [single(part) for part in parts]
    return library.ComposedDpEvent(events) if composed or len(events) > 1 else events[0]


def _multiplier(ratio_squared: Fraction) -> float:
    """sigma / Delta_2, rounded down."""
    multiplier = math.sqrt(1 / ratio_squared)
    while Fraction(multiplier) ** 2 * ratio_squared > 1:
        multiplier = math.nextafter(multiplier, 0.0)
    return multiplier


def _library() -> Any:
    try:
        import dp_accounting
    except ImportError as error:
        raise ImportError(
            "events are those of dp-accounting, which is not installed: "
            "pip install 'beam-dpcount[accounting]'"
        ) from error
    return dp_accounting

"""Views of one count, each number from all that was released of it up to its tick.

"So far" and "each" are released under shares of one budget, with noise of their own. Both know of
the same ticks: a tick's own number corrects the running count, and the difference of two running
counts tells of the ticks between. Causal least squares gives both the linear combination of least
variance, by a filter of constant state whose weights are public; "last" then weighs what they say
and its own release by their variances. All of it has been released, so this is post-processing.

Source: Kalman, A new approach to linear filtering and prediction problems (1960), for a state that
holds the decoder's sums (see `mechanisms/recurrence.py`), the last sums and nothing of the data:
what ticks count is unknown, with no law of its own [test_views.py: weights and variances are those
of least squares over all releases].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from statistics import NormalDist
from typing import Any

import numpy as np

from beam_dpcount.counters.counter import Counter
from beam_dpcount.counters.summed_views import SummedViews
from beam_dpcount.mechanisms.base import FloatArray
from beam_dpcount.mechanisms.blt import ExponentialSums
from beam_dpcount.mechanisms.rounded import left_dot
from beam_dpcount.mechanisms.single_steps import SingleSteps
from beam_dpcount.noise.laws import DiscreteLaplace

MOST_TICKS = 1 << 14  # weights of all ticks are computed beforehand, some 30 us each
_NO_NOISE = 1e-300
MOST_LAGS = 64  # ticks of `last`, each of which is a number of the filter's state


@dataclass(frozen=True)
class CombinedViews:
    """The views "so far", "each", and perhaps "last", of one number of a key.

    Args:
      so_far, each, last: the counters of the releases; `last` is None if there is none.
      ticks: how many there are.
      window: of how many ticks `last` is the sum.

    Guarantee: none of its own; it computes with releases and public numbers only.

    Raises:
      ValueError: `can_combine` says no.

    Example:
      >>> import beam_dpcount as dp
      >>> rho = dp.ZCDP(0.25)
      >>> so_far = dp.calibrate(dp.mechanisms.NormalizedBLT(365), rho)
      >>> views = CombinedViews(so_far, dp.calibrate(SingleSteps(365), rho), None, 365)
      >>> [round(float(x), 2) for x in views.stddevs[-1, :2]]
      [3.64, 1.22]
    """

    so_far: Counter
    each: Counter
    last: Counter | None
    ticks: int
    window: int = 0

    def __post_init__(self) -> None:
        if not can_combine(self.so_far, self.each, self.ticks, self.window):
            raise ValueError("these views cannot be combined")

    @cached_property
    def grid(self) -> float:
        """The coarsest of the lattices that releases lie on."""
        return max(c.grid for c in (self.so_far, self.each, self.last) if c is not None)

    @property
    def releases(self) -> int:
        """How many are combined at a tick."""
        return 2 + (self.last is not None)

    @property
    def stddevs(self) -> FloatArray:
        """Of the numbers of each tick, in the order of the views, shape (ticks, 2 or 3)."""
        return self._filter.stddevs

    def stddevs_at(self, t: int) -> list[float]:
        """Those of one tick, from 1."""
        found: list[float] = self._filter.stddevs_at[t - 1]
        return found

    def half_widths_at(self, t: int, level: float) -> list[float]:
        """Half the widths of their intervals: noise is Gaussian, up to its lattice."""
        return [self._half_width(stddev, level) for stddev in self.stddevs_at(t)]

    def largest(self, level: float) -> list[tuple[float, float]]:
        """Of each number the largest standard deviation, and half the interval."""
        stddevs = self.stddevs.max(axis=0).tolist()
        return [(stddev, self._half_width(stddev, level)) for stddev in stddevs]

    def _half_width(self, stddev: float, level: float) -> float:
        return _quantile(level) * stddev + self.grid / 2

    def init(self) -> list[float]:
        """The state before the first tick."""
        return [0.0] * self._filter.size

    def step(
        self, state: Sequence[float], t: int, released: Sequence[float]
    ) -> tuple[list[float], list[float]]:
        """The state after a tick, and its numbers.

        Args:
          state: before it.
          t: the tick, from 1.
          released: of the views, in their order.
        """
        return self._filter.step(state, t - 1, released)

    @cached_property
    def _filter(self) -> _Filter:
        return _filter_of(self)

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


class _Filter:
    """What is computed once for all keys: the weights of all ticks.

    The state: the decoder's sums and E of `recurrence.py`, then the sums up to the ticks before. At
    a tick two numbers more are unknown: what it counts, and the draw of noise of "so far".

    Fields, of all ticks:
      rows: what the release of "so far" is of these numbers, shape (ticks, size + 2).
      gains: how a surprise in it changes them, of the same shape.
      known: the variances of "so far", "each", and "last" without its own release, (ticks, 3).
      own: the variances of the releases of "last", shape (ticks,), or (0,).
    """

    def __init__(self, views: CombinedViews) -> None:
        mechanism: Any = views.so_far.mechanism
        ticks = views.ticks
        self._fading, self._held = 1 - mechanism._poles.e, mechanism._poles.w
        self._scales = mechanism._column_scales(ticks + 1)
        self._row_weights = mechanism._row_weights(ticks)
        self._poles = len(self._held)
        self.size = self._poles + 1 + max(views.window, 1)
        draw = views.so_far.variance(1) / mechanism.row_norm2(1)
        self._weigh(ticks, draw, views.each.variance(1))
        self.own = np.zeros(0)
        if views.last is not None:
            self.own = np.square(np.array(views.last.stddevs(ticks)))
        known = self.known if len(self.own) else self.known[:, :2]
        self.stddevs = np.sqrt(known)
        self._listed()
        if self._shares:
            self.stddevs[:, 2] *= np.sqrt(self._shares)
        self.stddevs_at = self.stddevs.tolist()

    def _listed(self) -> None:
        """The same as lists, of which few numbers are read more quickly."""
        d = self._poles
        self._row_lists, self._gain_lists = self.rows[:, :d].tolist(), self.gains.tolist()
        self._held_list, self._fading_list = self._held.tolist(), self._fading.tolist()
        self._falls = (self._scales[:-1] - self._scales[1:]).tolist()
        self._row_weights = self._row_weights.tolist()
        known = self.known[: len(self.own), 2]
        self._shares = (self.own / np.maximum(known + self.own, _NO_NOISE)).tolist()

    def _weigh(self, ticks: int, draw: float, own: float) -> None:
        """`rows`, `gains` and `known`, given the variances of a draw of "so far", and of "each"."""
        n, d = self.size, self._poles
        self.rows, self.gains = np.zeros((ticks, n + 2)), np.empty((ticks, n + 2))
        self.rows[:, :d] = self._scales[:ticks, None] * self._held
        self.rows[:, [d, d + 1, n]] = 1
        self.rows[:, n + 1] = self._scales[:ticks] / self._row_weights
        self.known, covariance = np.empty((ticks, 3)), np.zeros((n, n))
        for t, row in enumerate(self.rows):
            wide = np.zeros((n + 2, n + 2))
            wide[:n, :n], wide[n, n], wide[n + 1, n + 1] = covariance, own, draw
            shared = wide @ row
            self.gains[t] = shared / max(float(row @ shared), _NO_NOISE)
            wide -= np.outer(self.gains[t], shared)
            wide = (wide + wide.T) / 2
            sums = wide[d + 1] + wide[n]
            so_far = sums[d + 1] + sums[n]
            last = so_far - 2 * sums[n - 1] + wide[n - 1, n - 1]
            self.known[t] = np.maximum((so_far, wide[n, n], last), 0)
            covariance = self._moved(self._moved(wide, t).T, t)

    def step(
        self, state: Sequence[float], t: int, released: Sequence[float]
    ) -> tuple[list[float], list[float]]:
        """As for CombinedViews, of tick t, from 0. In plain numbers: they are few."""
        d, own = self._poles, released[1]
        row, gain, held = self._row_lists[t], self._gain_lists[t], self._held_list
        known = left_dot(row, state[:d]) + state[d] + state[d + 1] + own
        surprise = released[0] - known
        *better, counted, draw = (
            x + g * surprise for x, g in zip((*state, own, 0.0), gain, strict=True)
        )
        so_far = better[d + 1] + counted
        numbers = [so_far, counted]
        if self._shares:
            share = self._shares[t]
            numbers.append(share * (so_far - better[-1]) + (1 - share) * released[2])
        draw /= self._row_weights[t]
        sums = better[:d]
        decoded = left_dot(held, sums) + draw
        after = [
            *(fading * x + draw for fading, x in zip(self._fading_list, sums, strict=True)),
            better[d] + self._falls[t] * decoded,
            *(so_far, *better[d + 1 : -1]),
        ]
        return after, numbers

    def _moved(self, wide: FloatArray, t: int) -> FloatArray:
        """The state after tick t, from 0, along the first axis."""
        n, d = self.size, self._poles
        draw = wide[n + 1] / self._row_weights[t]
        after = np.empty((n, *wide.shape[1:]))
        after[:d] = (self._fading * wide[:d].T).T + draw
        decoded = np.tensordot(self._held, wide[:d], axes=1) + draw
        after[d] = wide[d] + (self._scales[t] - self._scales[t + 1]) * decoded
        after[d + 1] = wide[d + 1] + wide[n]
        after[d + 2 :] = wide[d + 1 : n - 1]
        return after


@lru_cache
def _quantile(level: float) -> float:
    return NormalDist().inv_cdf((1 + level) / 2)


@lru_cache(maxsize=32)
def _filter_of(views: CombinedViews) -> _Filter:
    return _Filter(views)


@dataclass(frozen=True)
class CombinedColumns:
    """The columns of a row that are combined, and how.

    Args:
      views: what combines their releases.
      names: of the columns, in the order of the views; those that are released come first.
      level: of confidence intervals.
    """

    views: CombinedViews | SummedViews
    names: tuple[str, ...]
    level: float

    def row(
        self, state: Sequence[float] | None, step: int, columns: Sequence[dict[str, Any]]
    ) -> list[float]:
        """The state of a key after a tick, whose columns get the combined numbers.

        Args:
          state: before it; None before the first.
          step: the tick, from 1.
          columns: values, standard deviations, and lower and upper ends of intervals, by name.
        """
        values, *_ = columns
        before = self.views.init() if state is None else state
        released = [values[name] for name in self.names[: self.views.releases]]
        after, numbers = self.views.step(before, step, released)
        stddevs = self.views.stddevs_at(step)
        halves = self.views.half_widths_at(step, self.level)
        found = zip(self.names, numbers, stddevs, halves, strict=True)
        for name, value, stddev, half in found:
            row = value, stddev, value - half, value + half
            for column, number in zip(columns, row, strict=True):
                column[name] = number
        return after

    def restart(self, step: int) -> int | None:
        """The number of the restart that a tick is of, if a column that is computed restarts."""
        return self.views.restart(step) if isinstance(self.views, SummedViews) else None

    @property
    def said(self) -> str:
        """What is computed from what, in words."""
        first, *more = self.names
        if isinstance(self.views, SummedViews):
            sums = "is a sum" if len(more) == 1 else "are sums"
            return (
                f"{first} takes the whole budget, and {' and '.join(more)} {sums} of its releases"
            )
        each, *last = more
        both = f"{first} and {each} are computed from the releases of both"
        return both + "".join(f", {name} from those of all three" for name in last)

    @property
    def largest(self) -> dict[str, tuple[float, float]]:
        """Of each column the largest standard deviation, and within what it is then."""
        return dict(zip(self.names, self.views.largest(self.level), strict=True))


def can_combine(so_far: Counter, each: Counter, ticks: int, window: int = 0) -> bool:
    """Whether releases of these counters, and of `last` so many ticks, can be combined."""
    laws = so_far.law, each.law
    return (
        isinstance(so_far.mechanism, ExponentialSums)
        and isinstance(each.mechanism, SingleSteps)
        and not any(isinstance(law, DiscreteLaplace) for law in laws)
        and so_far.dimension is each.dimension is None
        and ticks <= min(MOST_TICKS, so_far.horizon)
        and window <= MOST_LAGS
    )

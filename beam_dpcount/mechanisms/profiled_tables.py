"""What a BLT with weighted rows knows of itself: weights, scales of columns, variances.

Weights p_t of rows are constant over stretches of steps, and so are scales D_s of columns, over
finer ones. A column's squared norm is

  N(s) = sum over pairs i, j of c_i c_j g_ij(s),   g_ij(s) = sum over t >= s of p_t^2 x_ij^(t-s),

x_ij = lambda_i lambda_j. Within a stretch that ends before step b, with weight p, each g_ij is
p^2 / (1 - x) plus a multiple of x^(b-s), or for x = 1 linear: monotone. So no column of a stretch
is longer than with every g_ij at the end of the stretch where it is larger. All terms are positive.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from functools import cached_property, lru_cache
from importlib import resources
from typing import Any

import numpy as np

from beam_dpcount.mechanisms.base import FloatArray, IntArray
from beam_dpcount.mechanisms.blt_tables import (
    BITS,
    LARGEST_LOG,
    LEAST_LOG,
    Poles,
    Stretches,
    Tables,
    floors,
    geometric,
    poles,
    powers,
)

KIND = "normalized_blt"  # whose poles these have
WEIGHT_BITS = 30
# Steps and steps left agree in their first so many binary digits where p, and D, are constant.
_ROW_DIGITS, _COLUMN_DIGITS = 6, 9
_, _BEYOND, _FINE = BITS
_EXACT = 1 << 22  # the longest horizon whose largest variance is searched exactly
_UP = 1 + 1e-12

# How p_t depends on u = t / T: see `profile`.
Shape = tuple[float, ...]


def profile(shape: Shape, horizon: int, t: Any) -> FloatArray:
    """The logarithm of p_t, up to a constant, for an array of steps.

    Rows count for more in the middle: p rises like (t + a)^k and falls like (T - t + b)^l, with
    small corrections: k, log a, l, log b, of u and u^2, and of the squares of both logarithms.
    """
    k, a, low, b, first, second, rising, falling = shape
    u = t / horizon
    x, y = np.log(u + math.exp(a) / horizon), np.log(1 - u + math.exp(b) / horizon)
    bent = rising * x * x + falling * y * y
    return np.asarray(k * x + low * y + first * u + second * u * u + bent)


@lru_cache(maxsize=1)
def _fits() -> Any:
    source = resources.files("beam_dpcount.mechanisms") / "profile_parameters.json"
    return json.loads(source.read_text())


def fitted(objective: str, horizon: int) -> Shape:
    """The fit of the next power of two."""
    log = min(max(LEAST_LOG, (horizon - 1).bit_length()), LARGEST_LOG)
    return tuple(_fits()[objective][str(log)])


def borders(horizon: int, digits: int) -> IntArray:
    """The steps from which on t, or the steps left, have other first binary digits."""
    most = horizon + 1
    count = max(most.bit_length() - digits, 0) + 1
    firsts = np.arange(1 << digits - 1, 1 << digits, dtype=np.int64)
    ups = [firsts << k for k in range(count)]
    nodes = np.concatenate([np.arange(1, 1 << digits - 1), *ups])
    both = np.concatenate([nodes, horizon + 2 - nodes])
    return np.unique(both[(both >= 1) & (both <= horizon)])


class Rows:
    """The weights of rows: the first step of each stretch, and p in units of 2^-30."""

    def __init__(self, shape: Shape, horizon: int) -> None:
        self.starts, self.horizon = borders(horizon, _ROW_DIGITS), horizon
        self.ends = np.append(self.starts[1:], horizon + 1)  # the first steps after them
        middle = [profile(shape, horizon, t - 0.5) for t in (self.starts, self.ends - 1.0)]
        logs = (middle[0] + middle[1]) / 2
        exact = np.ldexp(np.exp(logs - logs.max()), WEIGHT_BITS)
        self.units = np.maximum(np.rint(exact), 1).astype(np.int64)
        self.p = np.ldexp(self.units.astype(float), -WEIGHT_BITS)

    def of(self, t: IntArray) -> IntArray:
        """The stretches of steps."""
        return np.asarray(np.searchsorted(self.starts, t, side="right") - 1)


class Sums:
    """Sums over t >= s of p_t^power x^(t-s), for rates x = 1 - `gaps`."""

    def __init__(self, rows: Rows, gaps: FloatArray, power: int) -> None:
        self._rows, self._gaps, self._p = rows, gaps, rows.p**power
        lengths = (rows.ends - rows.starts)[:, None]
        gained, faded = self._p[:, None] * geometric(gaps, lengths), powers(gaps, lengths)
        self._after = np.zeros((len(rows.p) + 1, len(gaps)))  # at the first step of each stretch
        for h in range(len(rows.p) - 1, -1, -1):
            self._after[h] = gained[h] + faded[h] * self._after[h + 1]

    def of(self, s: IntArray, i: int) -> FloatArray:
        """Those of rate i at these steps."""
        h = self._rows.of(s)
        left, x = self._rows.ends[h] - s, self._gaps[i]
        return np.asarray(self._p[h] * geometric(x, left) + powers(x, left) * self._after[h + 1, i])

    def bounds(self, first: IntArray, last: IntArray, weights: FloatArray) -> FloatArray:
        """Bounds on all weighted sums at the steps first .. last, of one weight of rows each."""
        total = np.zeros(len(first))
        for i, weight in enumerate(weights.tolist()):
            total += weight * np.maximum(self.of(first, i), self.of(last, i))
        return total * _UP


def _pairs(x: FloatArray) -> FloatArray:
    """1 - (1-x_i)(1-x_j) for j <= i."""
    i, j = np.tril_indices(len(x))
    return np.asarray(x[i] + x[j] - x[i] * x[j])


def _products(c: FloatArray) -> FloatArray:
    """c_i c_j for j <= i, twice where they differ."""
    i, j = np.tril_indices(len(c))
    return np.asarray(c[i] * c[j] * (1 + (i != j)))


class ProfiledTables(Tables):
    """Variances of the releases, for these rows.

    As for `Tables`, but that y_t / p_t, which the decoder works with, has variance 1 / p_t^2, and
    that D may rise. Covariances of buffers follow C_ij(t+1) = theta_i theta_j C_ij(t) + 1 / p_t^2:
    within a stretch C_ij = k_ij / p^2 - (theta_i theta_j)^(t - since) H_ij, k = 1 / (1 - theta
    theta'), and H changes by k (1 / p'^2 - 1 / p^2) where p does.
    """

    def __init__(self, p: Poles, horizon: int, shape: Shape) -> None:
        rows = self.rows = Rows(shape, horizon)
        kernel = 1 / (p.e[:, None] + p.e - p.e[:, None] * p.e)
        self._own_of = own = 1 / rows.p**2
        faded = powers(p.e, (rows.ends - rows.starts)[:, None])
        held = np.zeros((len(own), p.buffers, p.buffers))
        held[0] = kernel * own[0]
        for h in range(len(own) - 1):
            both = faded[h][:, None] * faded[h]
            held[h + 1] = kernel * (own[h + 1] - own[h]) + both * held[h]
        self._held = held
        self.firsts = firsts = np.union1d(borders(horizon, _COLUMN_DIGITS), rows.starts)
        self._lasts = lasts = np.append(firsts[1:] - 1, horizon)
        norms = np.sqrt(Sums(rows, _pairs(p.a), 2).bounds(firsts, lasts, _products(p.c)))
        # What the encoder's floors add to a row, at the end of each stretch, before 2^-F.
        lost = [
            w * floors(p, t) for w, t in zip(rows.p.tolist(), (rows.ends - 1).tolist(), strict=True)
        ]
        self.floors = max(lost)
        fine = math.ceil(math.log2(self.floors)) + _BEYOND
        fraction = max(_FINE - horizon.bit_length(), fine)
        ratios = map(float.as_integer_ratio, norms.tolist())
        columns = tuple([(below << fraction) // above for above, below in ratios])
        weights = tuple(rows.units[rows.of(firsts)].tolist())
        starts = tuple(firsts.tolist())
        self.stretches = Stretches(fraction, starts, columns, weights, WEIGHT_BITS)
        self._set_up(p, horizon, firsts, self.stretches.scales)

    def _own(self, t: IntArray) -> Any:
        return self._own_of[self.rows.of(t), None]

    def _buffers(self, t: IntArray) -> tuple[FloatArray, FloatArray]:
        p, h = self._p, self.rows.of(t)
        u, own = powers(p.e, (t - self.rows.starts[h])[:, None]), self._own_of[h]
        limit = own[:, None] * (p.w @ self._kernel)
        Cw = limit - u * np.einsum("ni,nij->nj", u * p.w, self._held[h])
        return Cw, own + Cw @ p.w

    def _rows(self) -> tuple[IntArray, FloatArray, FloatArray]:
        p = self._p
        once = np.tril(p.w[:, None] * p.w) * (2 - np.eye(p.buffers))
        most = 1 + math.fsum((once * self._kernel).ravel().tolist())
        return self.rows.starts, once * self._held, most * self._own_of

    def l1_sensitivity(self) -> float:
        """The largest sum of a column's entries, which are positive."""
        p = self._p
        sums = Sums(self.rows, p.a, 1).bounds(self.firsts, self._lasts, p.c)
        return float((sums / self._D).max())

    def lag_products(self, lags: Sequence[int]) -> list[float]:
        """Bounds on the products of columns d or more apart, for each lag d.

        The product of the columns s and s - d is sum over i, j of c_i c_j lambda_j^d g_ij(s),
        divided by both scales. r falls, so that at a lag between two that follow each other here it
        is at most what the sum is at the lower one; and scales are at least the least of those that
        lie between. The last lags stand for all that are larger.
        """
        p, T = self._p, self._horizon
        i, j = np.indices((len(p.a), len(p.a)))
        gaps = (p.a[i] + p.a[j] - p.a[i] * p.a[j]).ravel()
        sums = Sums(self.rows, gaps, 2)
        parts = np.zeros((len(p.a), len(self.firsts)))  # by j
        for pair, (one, other) in enumerate(zip(i.ravel(), j.ravel(), strict=True)):
            larger = np.maximum(sums.of(self.firsts, pair), sums.of(self._lasts, pair))
            parts[other] += p.c[one] * p.c[other] * larger
        far = np.unique(np.geomspace(max(lags) + 1, max(T, max(lags) + 2), 64).astype(np.int64))
        asked = np.unique(np.concatenate([np.asarray(lags, dtype=np.int64), far]))
        asked = asked[asked < T]
        found = np.zeros(len(asked))
        for n, d in enumerate(asked.tolist()):
            upto = int(asked[n + 1]) - 1 if n + 1 < len(asked) else T - 1
            least = self._least_scales(self.firsts - upto, self._lasts - d)
            some = self._lasts > d
            product = powers(p.a, d) @ parts
            found[n] = (product[some] / (self._D[some] * least[some])).max(initial=0.0)
        largest = np.maximum.accumulate(found[::-1])[::-1] * _UP
        by_lag = dict(zip(asked.tolist(), largest.tolist(), strict=True))
        return [by_lag.get(d, 0.0) for d in lags]

    def _least_scales(self, first: IntArray, last: IntArray) -> FloatArray:
        """The least scale of the steps first .. last, as far as there are any."""
        low = np.searchsorted(self.firsts, np.maximum(first, 1), side="right") - 1
        high = np.searchsorted(self.firsts, np.maximum(last, 1), side="right") - 1
        level = np.frexp(np.maximum(high - low + 1, 1))[1] - 1
        found = np.zeros(len(low))
        for k in np.unique(level).tolist():
            some, table = level == k, self._minima[k]
            found[some] = np.minimum(table[low[some]], table[high[some] - (1 << k) + 1])
        return found

    @cached_property
    def _minima(self) -> list[FloatArray]:
        """The least of 2^k scales from each on, by k."""
        made = [self._D]
        while len(made[-1]) > 1 << len(made) - 1:
            half = 1 << len(made) - 1
            made.append(np.minimum(made[-1][:-half], made[-1][half:]))
        return made

    def _spans(self) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        """Spans of steps of one scale and one weight: first, last, and the places of both.

        Finer behind a change of weight, where what is new fades soonest.
        """
        after = [self.rows.starts + (1 << k) for k in range(self._horizon.bit_length())]
        fine = np.concatenate([a[a < self.rows.ends] for a in after])
        first = np.union1d(self._starts, fine)
        last = np.append(first[1:] - 1, self._horizon)
        j = np.searchsorted(self._starts, first, side="right") - 1
        return first, last, j, self.rows.of(first)

    def _terms(self) -> Any:
        """Of each span: its constant part, and the factors and rates of what fades from its first
        step on: Var n_t is their sum."""
        p, (first, last, j, h) = self._p, self._spans()
        since, k, most = self._rows()
        D = self._D[j]
        constant = D * D * most[h] + self._V[j]
        u = powers(p.e, (first - since[h])[:, None])
        faded = powers(p.e, (first - self._starts[j])[:, None])
        terms = [(2 * D * self._q[j, i] * p.w[i] * faded[:, i], p.e[i]) for i in range(p.buffers)]
        for i in range(p.buffers):
            for m in range(i + 1):
                gap = p.e[i] + p.e[m] - p.e[i] * p.e[m]
                terms.append((-D * D * k[h, i, m] * u[:, i] * u[:, m], gap))
        return first, last, constant, terms

    def max_row_norm2(self) -> float:
        """The largest variance: exact up to 2^22 steps, beyond them an upper bound.

        Each term of a span is monotone, and so largest at one of its ends.
        """
        first, last, bounds, terms = self._terms()
        bounds = bounds.copy()
        for factor, gap in terms:
            bounds += np.maximum(factor, factor * powers(gap, last - first))
        bounds *= 1 + 1e-9
        if self._horizon > _EXACT:
            return float(bounds.max())
        best = 0.0
        for k in np.argsort(-bounds):
            if bounds[k] <= best:
                break
            best = max(best, float(self.row_norms2(np.arange(first[k], last[k] + 1)).max()))
        return best

    def mean_row_norm2(self) -> float:
        """The mean variance."""
        first, last, constant, terms = self._terms()
        n = last - first + 1
        total = float((n * constant).sum())
        for factor, gap in terms:
            total += float((factor * geometric(gap, n)).sum())
        return total / self._horizon


@lru_cache(maxsize=32)
def profiled(shape: Shape, horizon: int, buffers: int | None) -> ProfiledTables:
    """The tables of one mechanism, made once."""
    return ProfiledTables(poles(KIND, horizon, buffers), horizon, shape)

"""What `Binned` knows of itself: its bins and their weights, and its encoder's norms."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice, pairwise
from typing import NamedTuple

import numpy as np

from beam_dpcount.mechanisms.base import FloatArray, UnsupportedHorizonError
from beam_dpcount.mechanisms.rounded import ULP, round_up
from beam_dpcount.mechanisms.square_root import coefficients
from beam_dpcount.mechanisms.workload import Workload

LONGEST = 1 << 14  # all columns of R are searched: T^2 / 2 sums of as many terms as bins
_MOST_BINS = 1 << 23  # of all rows together; some 40 bytes each
_LEAST = 2.0**-64  # nobody sees less; arithmetic near underflow is slow
_COLUMNS = 2048  # that are searched side by side
_LAGS, _ROWS = 128, 256  # columns less than _LAGS apart are multiplied, _ROWS rows at once


class Row(NamedTuple):
    """A row of L. Bins go from right to left: t alone, of weight 1, and those of row t - 1."""

    lefts: list[int]  # first column of each bin, t's own included
    merges: list[tuple[int, int]]  # (at, count), in turn: `count` bins from `at` on become one
    weights: list[float]  # of all bins but t's own

    @property
    def widths(self) -> list[int]:
        return [1, *(near - left for near, left in pairwise(self.lefts))]

    @property
    def entries(self) -> FloatArray:
        """The row itself, from its diagonal to the left."""
        return np.repeat([1.0, *self.weights], self.widths)


@lru_cache(maxsize=16)
def schedule(horizon: int, c: float, tau: float, workload: Workload) -> tuple[Row, ...]:
    """[AP24, Algorithm 1], and the weights: means of L at both ends of a bin."""
    if horizon > LONGEST:
        reach = f"Binned searches all columns of its encoder, for horizons up to {LONGEST}"
        raise UnsupportedHorizonError(f"{reach}, got {horizon}: use NormalizedBLT")
    r = coefficients(workload, horizon).tolist()
    least = max(tau, _LEAST)
    rows: list[Row] = []
    old: list[int] = []
    total = 0
    for t in range(1, horizon + 1):
        lefts, merges, i = [t], [], 0
        while i < len(old):
            first, near = i, lefts[-1]
            i += 1
            if r[t - near + 1] < least:
                i = len(old)
            top = r[t - near]
            while i < len(old) and r[t - old[i - 1]] > c * top and r[t - old[i]] >= c * c * top:
                i += 1 if r[t - old[i]] >= least else len(old) - i
            if i > first + 1:
                merges.append((len(lefts) - 1, i - first))
            lefts.append(old[i - 1])
        weights = [(r[t - left] + r[t - near + 1]) / 2 for near, left in pairwise(lefts)]
        rows.append(Row(lefts, merges, weights))
        old, total = lefts, total + len(lefts)
        if total > _MOST_BINS:
            raise UnsupportedHorizonError(
                f"Binned with c = {c!r} and tau = {tau!r} has too many bins at a horizon of "
                f"{horizon}: give a smaller c or a larger tau, or use SquareRoot or NormalizedBLT"
            )
    return tuple(rows)


def encode(rows: Sequence[Row], workload: Workload, first: int, last: int) -> Iterator[FloatArray]:
    """Rows of R from `first` on (earlier are 0 there), columns `first` to `last` - 1, from 0."""
    n, width = len(rows), last - first
    column = np.append(workload.coefficients(n)[::-1], np.zeros(width))
    size = max((len(row.lefts) for row in rows), default=0)
    sums = np.zeros((size, width))  # of R's rows, over each bin; most stay at their places
    places: list[int] = []
    spare = list(range(size))
    for t, row in enumerate(rows):
        for at, count in row.merges:
            kept, *others = places[at : at + count]
            places[at : at + count] = [kept]
            spare += others
            if t >= first:
                for other in others:
                    sums[kept] += sums[other]
        if t >= first:
            weights = np.zeros(size)
            weights[places] = row.weights
            start = n - 1 - t + first
            encoded = column[start : start + width] - weights @ sums
            sums[spare[-1]] = encoded
            yield encoded
        places.insert(0, spare.pop())


class Norms(NamedTuple):
    l1: float  # largest column norms of R
    l2_squared: float
    inverse: float  # largest absolute row sum of L^-1
    reach: float  # largest sum of absolute terms that a row of the encoder adds up


@lru_cache(maxsize=64)
def search(horizon: int, c: float, tau: float, workload: Workload) -> Norms:
    """Norms over all columns, and bounds on what double precision may have hidden of them.

    Forward substitution gives a matrix B with L B = A + G, |G| <= gamma (A + L |B|): at most T
    roundings in a sum of a bin, as many as bins in a row, and below 3 T + 8 in A's entries. So
    B - R = L^-1 G. And X = B A^-1, whose columns are b_s - (alpha+beta) b_(s+1) + alpha beta
    b_(s+2), has L X = I + G A^-1: the row sums of L^-1 are at most those of X / (1 - phi).
    """
    rows = schedule(horizon, c, tau, workload)
    alpha, beta = workload.decay, workload.momentum
    l1 = l2_squared = largest = 0.0
    encoder, inverse = np.zeros(horizon), np.zeros(horizon)
    for first in range(0, horizon, _COLUMNS):
        last = min(first + _COLUMNS, horizon) + 2
        absolute, squares, top = np.zeros((3, last - first))
        for t, row in enumerate(encode(rows, workload, first, last), start=first):
            sizes = np.abs(row)
            absolute += sizes
            squares += row * row
            np.maximum(top, sizes, out=top)
            encoder[t] += sizes[:-2].sum()
            entries = row[:-2] - (alpha + beta) * row[1:-1] + alpha * beta * row[2:]
            inverse[t] += np.abs(entries).sum()
        l1, l2_squared = max(l1, float(absolute.max())), max(l2_squared, float(squares.max()))
        largest = max(largest, float(top.max()))
    a = workload.coefficients(horizon)
    of_decoder = max(float(np.dot([1.0, *row.weights], row.widths)) for row in rows)
    of_inverse = float(inverse.max())
    reach = float(a.sum()) + of_decoder * (float(encoder.max()) + of_inverse)
    gamma = (5 * horizon + max(len(row.lefts) for row in rows) + 16) * ULP
    phi = 4 * gamma * reach
    if phi > 1 / 8:
        raise UnsupportedHorizonError(
            f"a horizon of {horizon} is too long for Binned with c = {c!r}, tau = {tau!r} and "
            f"{workload} in double precision: use NormalizedBLT, or shorten the horizon"
        )
    of_inverse *= 1 + 4 * phi
    lost = of_inverse * gamma * (float(a.max()) + of_decoder * largest)
    reach = (reach + of_decoder * of_inverse * phi) * (1 + 4 * phi)
    l2 = math.sqrt(l2_squared) + lost * math.sqrt(horizon)
    return Norms(*(round_up(v) for v in (l1 + lost * horizon, l2 * l2, of_inverse, reach)))


@lru_cache(maxsize=64)
def lag_products(horizon: int, c: float, tau: float, workload: Workload) -> tuple[float, ...]:
    """Bounds on |product| of columns of R at least 1, 2, .. _LAGS apart.

    All pairs less than _LAGS apart are multiplied. Of columns farther apart, only what the first
    has _LAGS rows or more below its top meets the other: by Cauchy-Schwarz, the norm of that part
    times the largest norm. B stands for R (see `search`): entries are off by at most `lost`.
    """
    rows, norms = schedule(horizon, c, tau, workload), search(horizon, c, tau, workload)
    near, far = np.zeros(_LAGS), 0.0
    for first in range(0, horizon, _COLUMNS):
        last = min(first + _COLUMNS, horizon)
        width = last - first
        # Of columns s and s + u: products[s // _LAGS, s % _LAGS, (s + u) - (s - s % _LAGS)].
        products = np.zeros((-(-width // _LAGS), _LAGS, 2 * _LAGS))
        below = np.zeros(width)
        chunk = np.zeros((_ROWS, (len(products) + 1) * _LAGS))
        encoded = encode(rows, workload, first, last + _LAGS)
        for start in range(first, horizon, _ROWS):
            size = 0
            for size, row in enumerate(islice(encoded, _ROWS), start=1):
                chunk[size - 1, : len(row)] = row
                deep = min(max(start + size - first - _LAGS, 0), width)
                below[:deep] += row[:deep] * row[:deep]
            for i, product in enumerate(products):
                part = chunk[:size, i * _LAGS : (i + 2) * _LAGS]
                product += part[:, :_LAGS].T @ part
        for s in range(_LAGS):
            sizes = np.abs(products[:, s, s : s + _LAGS]).max(axis=0)
            np.maximum(near, sizes, out=near)
        far = max(far, float(below.max()))
    gamma = (5 * horizon + max(len(row.lefts) for row in rows) + 16) * ULP
    # `search` bounds lost by of_inverse * gamma * (something below reach).
    lost = norms.inverse * gamma * norms.reach
    error = 2 * lost * norms.l1 + horizon * (lost * lost + 2 * ULP * norms.l2_squared)
    cross = (math.sqrt(far) + lost * math.sqrt(horizon)) * math.sqrt(norms.l2_squared)
    bounds = np.append(near[1:], cross) + error
    return tuple(np.maximum.accumulate(bounds[::-1])[::-1].tolist())

"""Measure the rounding errors of BLTs against exact arithmetic, beside the bound that is proved.

    python -m benchmarks.rounding [--log 20]

Encoder: the largest |computed - exact (R x)_t| before rounding, for |x| <= 1; `encoding_error` is
the bound, of which 2 e sqrt(T) enters the sensitivity. Decoder: the largest error of a release
without noise, of floating point alone (against L q, q the rounded encoded values) and in all
(against the prefix sums, rounding to the lattice included), in counts.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterable, Iterator
from fractions import Fraction
from itertools import accumulate
from typing import Any

import numpy as np

from beam_dpcount.mechanisms import BLT, NormalizedBLT
from beam_dpcount.mechanisms.blt_tables import Poles

BITS = 160  # of the fixed-point numbers here: a product loses 2^-160, a sum nothing
ONE = 1 << BITS


def fixed(value: float | Fraction) -> int:
    """A number as a multiple of 2^-160, rounded down."""
    numerator, denominator = value.as_integer_ratio()
    return numerator * ONE // denominator


def residues(p: Poles) -> tuple[list[Fraction], list[Fraction]]:
    """w and c as rational numbers, for the poles e and a as they are in double precision."""
    e, a = ([Fraction(x) for x in poles] for poles in (p.e.tolist(), p.a[1:].tolist()))
    c = [-r / x for r, x in zip(_residues(a, e), a, strict=True)]
    return _residues(e, a), [math.prod(e, start=Fraction(1)) / math.prod(a), *c]


def _residues(at: list[Fraction], zeros: list[Fraction]) -> list[Fraction]:
    return [
        math.prod(zero - x for zero in zeros) / math.prod(other - x for other in at if other != x)
        for x in at
    ]


def _fading(rates: Iterable[float]) -> list[tuple[int, int]]:
    """rate = numerator / 2^shift, exactly."""
    ratios = [rate.as_integer_ratio() for rate in rates]
    return [(numerator, denominator.bit_length() - 1) for numerator, denominator in ratios]


def encode(p: Poles, scales: Iterable[float], xs: Iterable[int]) -> Iterator[int]:
    """(R D^-1 x)_t for each step, in units of 2^-160."""
    rates, weights = _fading(p.a.tolist()), [fixed(c) for c in residues(p)[1]]
    sums = [0] * len(rates)
    made, gains = 0.0, [0]
    for scale, x in zip(scales, xs, strict=True):
        if scale != made:
            ((numerator, shift),) = _fading([scale])
            made, gains = scale, [(c << shift) // numerator for c in weights]
        sums = [
            h - (h * a >> shift) + gain * x
            for h, (a, shift), gain in zip(sums, rates, gains, strict=True)
        ]
        yield sum(sums)


def decode(p: Poles, scales: Iterable[float], ys: Iterable[int]) -> Iterator[int]:
    """n_t = sum over s <= t of D_s (b_s - b_(s-1)), b = L y, in units of 2^-160."""
    rates, weights = _fading(p.e.tolist()), [fixed(w) for w in residues(p)[0]]
    sums = [0] * len(rates)
    made, factor, places, before, total = 0.0, 0, 0, 0, 0
    for scale, y in zip(scales, ys, strict=True):
        if scale != made:
            made, ((factor, places),) = scale, _fading([scale])
        b = y * ONE + sum(sums)
        sums = [
            m - (m * e >> shift) + w * y
            for m, (e, shift), w in zip(sums, rates, weights, strict=True)
        ]
        total += (b - before) * factor >> places
        before = b
        yield total


class Watch:
    """Noise that is 0, and keeps what it is added to: the rounded encoded values."""

    __array_ufunc__ = None

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def draw(self, first: int, n: int) -> Any:
        return self

    def one(self, coordinate: int) -> Any:
        return self

    def __radd__(self, encoded: Any) -> Any:
        self.seen.append(encoded)
        return encoded


def largest(errors: Iterable[int]) -> float:
    """The largest absolute value, as a float."""
    return max(map(abs, errors), default=0) / ONE


def fine_scale(mechanism: BLT) -> int:
    """A power of two by which inputs may be multiplied so that encoded values stay below 2^62."""
    reach = np.minimum(mechanism.horizon, 1 / np.maximum(mechanism._poles.a, 2.0**-60))
    return 1 << 61 - math.ceil(math.log2(float(mechanism._poles.c @ reach)))


def encoding_errors(mechanism: BLT, xs: np.ndarray) -> float:
    """The largest error of (R x)_t before rounding, for xs within [-1, 1]."""
    scale, watch = fine_scale(mechanism), Watch()
    mechanism.release(xs * scale, watch)
    (computed,) = watch.seen
    columns = mechanism._column_scales(len(xs)).tolist()
    exact = encode(mechanism._poles, columns, xs.tolist())
    unit = ONE // scale
    return largest(q * unit - e for q, e in zip(computed.tolist(), exact, strict=True))


def decoding_errors(mechanism: BLT, xs: np.ndarray) -> tuple[float, float]:
    """The largest error of a release without noise, in counts: of its arithmetic, and in all."""
    resolution, watch = mechanism.resolution(1), Watch()
    released = [fixed(v) for v in mechanism.release(xs * resolution, watch).tolist()]
    (encoded,) = watch.seen
    columns = mechanism._column_scales(len(xs)).tolist()
    exact = decode(mechanism._poles, columns, encoded.tolist())
    arithmetic = largest(v - e for v, e in zip(released, exact, strict=True))
    counts = (count * resolution * ONE for count in accumulate(xs.tolist()))
    in_all = largest(v - e for v, e in zip(released, counts, strict=True))
    return arithmetic / resolution, in_all / resolution


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--log", type=int, default=20, help="log2 of the horizon, up to 30")
    horizon = 1 << parser.parse_args().log
    inputs = {
        "ones": np.ones(horizon, dtype=np.int64),
        "random bits": np.random.default_rng(2020).integers(0, 2, horizon),
    }
    print(f"T = {horizon:,}; errors of R x for |x| <= 1, of releases in counts")
    for kind in (BLT, NormalizedBLT):
        mechanism = kind(horizon)
        bound, resolution = mechanism.encoding_error, mechanism.resolution(1)
        # L is positive, so the noise-free decode of ones is the sum of each of its rows.
        ones: Any = _Ones()
        rows = mechanism.release(np.zeros(horizon, dtype=np.int64), ones)
        print(
            f"\n{mechanism.name}: {mechanism._poles.buffers} buffers, blocks of "
            f"{mechanism._block}, resolution 2^{resolution.bit_length() - 1}\n"
            f"  proved: e = {bound:.3e}, 2 e sqrt(T) = {2 * bound * horizon**0.5:.3e}, "
            f"(g/2) max ||L_t||_1 = {rows.max() / 2 / resolution:.3e}"
        )
        for name, xs in inputs.items():
            start = time.perf_counter()
            e = encoding_errors(mechanism, xs)
            arithmetic, in_all = decoding_errors(mechanism, xs)
            print(
                f"  {name:<12} encode {e:.3e} ({e / bound:.4f} of the bound)   "
                f"decode: arithmetic {arithmetic:.3e}, with rounding to the lattice {in_all:.3e}   "
                f"[{time.perf_counter() - start:.1f} s]",
                flush=True,
            )


class _Ones:
    def draw(self, first: int, n: int) -> np.ndarray:
        return np.ones(n, dtype=np.int64)


if __name__ == "__main__":
    main()

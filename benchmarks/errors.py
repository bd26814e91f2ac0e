"""Errors beside jax_privacy's: exact ones, and those of simulated streams.

    python -m benchmarks.errors
    python -m benchmarks.errors --log2-horizons 10

All are variances in counts^2 at rho = 1/2 (zCDP), where one step's value changes by 1: the noise of
a strategy has its largest column norm as standard deviation. jax_privacy's BLT is what its own
`optimize` finds. "All bands" is its square root with normalized columns, which keeps all steps.
Without jax_privacy its rows are left out, by name; nothing here needs it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.signal import fftconvolve

import beam_dpcount as dp
from beam_dpcount.mechanisms.base import FloatArray
from benchmarks.timing import table

HEAD = ("T", "mechanism", "largest", "measured", "mean", "measured", "numbers of state")
_STEPS = 1 << 27  # of all streams that are simulated for a row
_NUMBERS = 1 << 33  # the same, times the numbers of state
_MOST_STREAMS = 1 << 15
_LEAST_STREAMS = 1 << 9  # fewer say little: the deviation of a variance is 6 % of it
_DENSE = 1 << 12  # up to it jax_privacy can step through all bands
_BUFFERS = 10  # jax_privacy stops at 3 by itself, where one more gains less than 1 %


@dataclass(frozen=True)
class Errors:
    """The variances of the releases 1 .. T.

    Fields:
      mechanism: a name.
      state: how many numbers are kept between two steps.
      exact: shape (T,).
      simulate: the mean squared errors of so many streams, shape (T,); None: that takes too long.
    """

    mechanism: str
    state: int
    exact: FloatArray
    simulate: Callable[[int], FloatArray] | None

    def row(self) -> list[str]:
        """The largest and the mean, each exact and as measured; the largest where it should be."""
        steps, worst = len(self.exact), int(self.exact.argmax())
        exact, seen = [self.exact[worst], self.exact.mean()], ["", ""]
        streams = min(_MOST_STREAMS, _STEPS // steps, _NUMBERS // self.state // steps)
        if self.simulate is not None and streams >= _LEAST_STREAMS:
            squares = self.simulate(streams)
            seen = [f"{squares[worst]:.2f}", f"{squares.mean():.2f}"]
        figures = [f"{exact[0]:.3f}", seen[0], f"{exact[1]:.3f}", seen[1]]
        return [f"2^{steps.bit_length() - 1}", self.mechanism, *figures, f"{self.state:,}"]


def ours(steps: int) -> Iterator[Errors]:
    """The defaults under rho, and NormalizedBLT, which they came from."""
    of = dp.mechanisms
    made = {
        "ProfiledBLT": of.ProfiledBLT(steps),
        "ProfiledBLT for the mean": of.ProfiledBLT(steps, objective="mean"),
        "NormalizedBLT": of.NormalizedBLT(steps),
        "Endless": of.Endless(),
    }
    for name, mechanism in made.items():
        counter: Any = dp.calibrate(mechanism, dp.ZCDP(0.5))

        def simulate(streams: int, counter: Any = counter) -> FloatArray:
            nothing = np.zeros(steps, dtype=np.int64)
            return np.asarray(sum(counter.release(nothing) ** 2 for _ in range(streams)) / streams)

        yield Errors(name, mechanism.state_size, counter.stddevs(steps) ** 2, simulate)


def normalized_root(steps: int) -> FloatArray:
    """The variances of the square root with normalized columns, of all bands, shape (T,).

    C = Toep(f) diag(1/D) with f the coefficients of (1 - z)^(-1/2) and D_s the norm of column s. As
    A = Toep(f)^2, the inverse is diag(D) Toep(w), w those of (1 - z)^(1/2), and row t of A C^-1 is
    L_ts = sum over k from s to t of D_k w_(k-s).
    """
    k = np.arange(1, steps)
    f = np.concatenate([[1.0], np.cumprod(1 - 1 / (2 * k))])
    w = np.concatenate([[1.0], -f[1:] / (2 * k - 1)])
    D = np.sqrt(np.cumsum(f * f))[::-1]
    made = np.zeros(steps)
    for t in _some(steps):
        row = fftconvolve(D[: t + 1], w[t::-1])[t:]
        made[t] = row @ row
    known = np.flatnonzero(made)
    return np.interp(np.arange(steps), known, made[known])


def _some(steps: int) -> list[int]:
    """All of few steps; of many, enough to draw a line through (the row is smooth in between)."""
    if steps <= _DENSE:
        return [*range(steps)]
    ends = np.geomspace(1, steps / 2, 200).astype(int)
    return sorted({0, steps - 1, *ends.tolist(), *(steps - ends).tolist()})


def theirs(steps: int) -> Iterator[Errors]:
    """jax_privacy's BLTs, and its square root with normalized columns.

    Raises:
      ImportError: it is not installed.
    """
    import jax  # type: ignore[import-not-found]
    from jax_privacy.matrix_factorization import banded  # type: ignore[import-not-found]
    from jax_privacy.matrix_factorization import buffered_toeplitz as toeplitz

    jax.config.update("jax_enable_x64", True)
    for error in ("max", "mean") if steps <= _DENSE else ("max",):
        blt = toeplitz.optimize(n=steps, error=error, max_buffers=_BUFFERS, rtol=1.0001)
        strategy, noise = (np.asarray(b.toeplitz_coefs(steps)) for b in (blt, blt.inverse()))
        sensitivity2 = float(strategy @ strategy)
        exact = sensitivity2 * np.cumsum(np.cumsum(noise) ** 2)
        streaming = blt.inverse_as_streaming_matrix()
        name = "jax_privacy: BLT" + " for the mean" * (error == "mean")
        yield Errors(name, len(blt.buf_decay), exact, _scanned(jax, streaming, steps, sensitivity2))
    simulate = None
    if steps <= _DENSE:
        root = banded.ColumnNormalizedBanded.default(steps, steps)
        simulate = _scanned(jax, root.inverse_as_streaming_matrix(), steps, 1.0)
    yield Errors("jax_privacy: all bands", steps, normalized_root(steps), simulate)


def _scanned(jax: Any, matrix: Any, steps: int, sensitivity2: float) -> Callable[[int], FloatArray]:
    """Simulates sums of correlated noise, many streams at a time."""

    def simulate(streams: int) -> FloatArray:
        def following(carried: Any, _: Any) -> Any:
            key, state, total = carried
            key, now = jax.random.split(key)
            value, state = matrix.multiply_next(jax.random.normal(now, total.shape), state)
            total = total + value
            return (key, state, total), (total**2).mean()

        nothing = jax.numpy.zeros(streams)
        begin = jax.random.key(steps), matrix.init_multiply(nothing), nothing
        return sensitivity2 * np.asarray(jax.lax.scan(following, begin, length=steps)[1])

    return simulate


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--log2-horizons", type=int, nargs="+", default=[10, 16, 20])
    rows = []
    for log in parser.parse_args(argv).log2_horizons:
        rows += [errors.row() for errors in ours(1 << log)]
        try:
            rows += [errors.row() for errors in theirs(1 << log)]
        except ImportError as problem:
            print(f"jax_privacy was left out: {problem}", file=sys.stderr)
    print(table(HEAD, rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())

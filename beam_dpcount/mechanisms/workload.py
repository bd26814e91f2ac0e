"""What a mechanism releases: prefix sums, or sums in which older items weigh less, or nothing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from beam_dpcount.checks import check_real

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Workload:
    """The lower-triangular Toeplitz matrix A of momentum beta and decay alpha.

    A[t, s] = sum over i <= t - s of alpha^i beta^(t - s - i): the release at t is W_t, where
    V_t = beta V_(t-1) + x_t and W_t = alpha W_(t-1) + V_t. Prefix sums: beta = 0, alpha = 1.

    Args:
      momentum: beta, with 0 <= beta < decay.
      decay: alpha, at most 1.

    Source: [AP24, Fact 2].
    """

    momentum: float = 0.0
    decay: float = 1.0

    def __post_init__(self) -> None:
        for name in ("momentum", "decay"):
            number = check_real(name, getattr(self, name), f"give e.g. {name}=0.9")
            object.__setattr__(self, name, number)
        if not 0 <= self.momentum < self.decay <= 1:
            given = f"momentum={self.momentum!r}, decay={self.decay!r}"
            raise ValueError(f"parameters must satisfy 0 <= momentum < decay <= 1, got {given}")

    @property
    def is_prefix_sums(self) -> bool:
        """Whether all items weigh 1."""
        return self.momentum == 0 and self.decay == 1

    def coefficients(self, n: int) -> FloatArray:
        """The first column of A, shape (n,)."""
        if self.is_prefix_sums:
            return np.ones(n)
        # A sum of positive terms by powers of the ratio: no cancellation for beta near alpha.
        j = np.arange(n)
        ratios = np.cumsum((self.momentum / self.decay) ** j)
        return np.asarray(self.decay**j * ratios)

    def matrix(self, n: int) -> FloatArray:
        """A for n steps, shape (n, n)."""
        return toeplitz(self.coefficients(n))

    def __str__(self) -> str:
        if self.is_prefix_sums:
            return "prefix sums"
        return f"sums with momentum {self.momentum:g} and decay {self.decay:g}"


@dataclass(frozen=True)
class LastSteps(Workload):
    """The matrix A of sums over the last W steps: A[t, s] = 1 for 0 <= t - s < W, else 0.

    Args:
      window: W.
    """

    window: int = 1

    @property
    def is_prefix_sums(self) -> bool:
        return False

    def coefficients(self, n: int) -> FloatArray:
        return (np.arange(n) < self.window).astype(np.float64)

    def __str__(self) -> str:
        return f"sums over the last {self.window} steps" if self.window > 1 else "single steps"


def toeplitz(column: FloatArray) -> FloatArray:
    """The lower-triangular Toeplitz matrix with this first column."""
    n = len(column)
    lag = np.subtract.outer(np.arange(n), np.arange(n))
    return np.where(lag >= 0, column[np.maximum(lag, 0)], 0.0) if n else np.zeros((0, 0))


PREFIX_SUMS = Workload()

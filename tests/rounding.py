"""Mechanisms that round, on coarser lattices, and mutants of them that keep no budget."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from beam_dpcount import mechanisms
from beam_dpcount.mechanisms.rounded import RoundedMechanism


def coarse(kind):
    """With so coarse a lattice that rounding is a good part of the sensitivity."""
    return dataclass(frozen=True)(
        type(
            f"Coarse{kind.__name__}",
            (kind,),
            {"resolution": lambda self, magnitude, largest=None: 4},
        )
    )


ROUNDED = [kind for kind in mechanisms.ALL if issubclass(kind, RoundedMechanism)]


@dataclass(frozen=True)
class Unrounded(mechanisms.NormalizedBLT):
    """Adds integer noise to real numbers, whose fractions show through."""

    def init(self, dimension=None):
        return (0,)

    def step(self, state, x, noise):
        t = self.next_step(state)
        xs, ys = [*state[1:t], x], state[t:]
        y = self.encoder(t)[-1] @ xs + noise.one(t)
        return (t, *xs, *ys, y), self.decoder(t)[-1] @ [*ys, y]


@dataclass(frozen=True)
class FedBackRoot(mechanisms.SquareRoot):
    """Keeps of an item what the noise makes of it: what is noised is no function of the stream."""

    def step(self, state, x, noise):
        state, value = super().step(state, x, noise)
        t = state[0]
        return (t, *state[1:t], state[t] + state[-1] % 2, *state[t + 1 :]), value


@dataclass(frozen=True)
class UncountedRounding(mechanisms.SquareRoot):
    """Calibrates to R alone, on a lattice where rounding matters."""

    def resolution(self, magnitude, largest=None):
        return 1

    def norms(self, magnitude, largest=None):
        return magnitude, magnitude**2 * Fraction(self.l2_sensitivity_squared)

"""Mechanisms that round, on coarser lattices, and mutants of them that keep no budget."""

from __future__ import annotations

from dataclasses import dataclass, fields
from fractions import Fraction

from beam_dpcount import mechanisms
from beam_dpcount.mechanisms.recurrence import InPython, Recurrence
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


class Fractions(Recurrence):
    """Adds noise to encoded numbers of which it keeps some bits behind the point."""

    def step(self, numbers, t, x, z):
        middle, bits = self.p.buffers + 1, self.stretches.fraction + self.p.bits
        k, _ = self.encode(numbers[:middle], t, x)
        y = (sum(c * n for c, n in zip(self.c, k, strict=True)) >> bits - 3) + (z << 3)
        E, m, n = self.decode(numbers[middle], numbers[middle + 1 :], t, y)
        return (*k, E, *m), n

    def value(self, n):
        return super().value(n) / 8


def unrounded(kind):
    """Adds integer noise to numbers that are no integers, whose fractions show through."""

    def recurrence(self):
        made = kind._recurrence.func(self)
        return Fractions(*(getattr(made, field.name) for field in fields(made)))

    def runner(self):
        return InPython(self._recurrence)

    members = {"_recurrence": property(recurrence), "_runner": property(runner)}
    return dataclass(frozen=True)(type(f"Unrounded{kind.__name__}", (kind,), members))


Unrounded = unrounded(mechanisms.NormalizedBLT)


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

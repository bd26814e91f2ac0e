"""Numbers: the running sum of the elements themselves."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from beam_dpcount.counters.change import Change
from beam_dpcount.counters.lattice import Lattice, plain
from beam_dpcount.errors import NotANumberError
from beam_dpcount.mechanisms.base import FloatArray
from beam_dpcount.reading import UNREADABLE, read
from beam_dpcount.statistics.base import Additions, Codes, IntArray, Statistic


@dataclass(frozen=True)
class Numbers(Statistic):
    """The sum of numbers, each clipped to bounds and rounded to a lattice.

    Args:
      low, high: values are clipped to them.
      unit: values are rounded to multiples of it; to be given to `calibrate`, too.
    """

    low: float
    high: float
    unit: float

    unreadable: ClassVar[str] = "the value could not be taken as a number"
    endless: ClassVar[bool] = True
    remedy: ClassVar[str | None] = None

    def __post_init__(self) -> None:
        for name in ("low", "high", "unit"):  # NumPy's would be divided in their own precision
            object.__setattr__(self, name, float(getattr(self, name)))

    @property
    def lattice_unit(self) -> float:
        return self.unit

    @property
    def labels(self) -> None:
        return None

    @property
    def empty(self) -> Codes:
        return (0,)

    @cached_property
    def _lattice(self) -> Lattice:
        return Lattice(self.low, self.high, self.unit)

    @property
    def bounds(self) -> tuple[int, int]:
        """The least and the largest number, on the lattice."""
        return self._lattice.bounds

    def number_of(self, content: object) -> int:
        """What a content counts, on the lattice; 0 if it is not a number."""
        found = read(self.read, content)
        return 0 if found is UNREADABLE else int(found[0][0])

    def numbers_of(self, values: IntArray | FloatArray) -> IntArray:
        """`number_of` many."""
        with np.errstate(invalid="ignore"):
            known = values == values  # not NaN
        if known.all():
            return self._lattice.all(values, None)
        return np.where(known, self._lattice.all(np.where(known, values, 0), None), 0)

    def read(self, payload: object) -> tuple[Codes, str | None]:
        try:
            return (self._lattice.one(payload),), None
        except NotANumberError as error:
            return (0,), str(error)

    def problem(self, payload: Any) -> str | None:
        (x,), reason = self.read(payload)
        if reason is not None:
            return reason
        low, high, unit, payload = self.low, self.high, self.unit, plain(payload)
        if not low <= payload <= high:
            return f"the value lies outside the bounds ({low:g}, {high:g}) and is clipped"
        if math.isclose(x * unit, payload, rel_tol=1e-9, abs_tol=1e-9 * unit):
            return None
        return f"the value is rounded to a multiple of {unit:g}"

    @property
    def own_step(self) -> bool:
        return type(self) is Numbers

    def step(self, memory: None, codes: Codes) -> tuple[None, Additions]:
        return None, ((0, codes[0]),)

    def count(self, memory: None, codes: Codes) -> tuple[None, int]:
        return None, codes[0]

    def all(self, memory: None, codes: IntArray) -> tuple[None, IntArray]:
        return None, codes[:, 0]

    def change(self, relation: str) -> Change:
        return Change(self.low, self.high, relation)

    def describe(self) -> Mapping[str, str]:
        return {}

    def noise_parameters(self, counter: str) -> str:
        # The counter has all of them, but not what a class made of this one may add.
        return counter if type(self) is Numbers else super().noise_parameters(counter)

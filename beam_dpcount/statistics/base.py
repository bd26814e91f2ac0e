"""The contract of a statistic: a function of a growing stream, counted by what each element adds.

f(s_1 .. s_t) is the running sum of x_t = f(s_1 .. s_t) - f(s_1 .. s_{t-1}), so a counter over the
x_t releases it privately. One event may change many of them, in several coordinates: `change` says
how much, and docs/proofs/ why. Nothing here knows of budgets, noise or Beam.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from beam_dpcount.counters.change import Change

IntArray = npt.NDArray[np.int64]
Codes = tuple[int, ...]
Additions = Iterable[tuple[int, int]]  # (coordinate from 0, amount); several of one coordinate add


@dataclass(frozen=True)
class Statistic(ABC):
    """A function of a growing stream, computed incrementally. Frozen and picklable.

    Its repr names all parameters: states of one are refused by another. Where an element adds the
    same whatever came before, the memory is None, and `init`, `pack` and `unpack` can stay as here.

    Attributes:
      width: how many whole numbers code an element.
      of_pairs: whether an element is itself a pair, not to be taken for (key, value).
      unreadable: the reason given for an element where `read` raises.
      adds_one: whether every element, refused ones too, adds 1 to exactly one coordinate, and
        nothing else. Releases are then fitted to the number of elements, see `FittedCounter`. The
        last coordinate has no label, and is not released.
      endless: whether it can be counted without a horizon: an element changes its own step only.
      remedy: what to do if a key's state would be too large to rewrite; None if it never is.
    """

    width: ClassVar[int] = 1
    of_pairs: ClassVar[bool] = False
    unreadable: ClassVar[str] = "the value could not be read"
    adds_one: ClassVar[bool] = False
    endless: ClassVar[bool] = False
    remedy: ClassVar[str | None] = "count fewer"

    @property
    def own_step(self) -> bool:
        """Whether an element changes the sums of its own step only, whatever the others are.

        What is proved of the classes here need not hold of those that are made of them.
        """
        return False

    def __getstate__(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}  # no caches

    @property
    @abstractmethod
    def labels(self) -> tuple[str, ...] | None:
        """What the coordinates count, in their order; None where the statistic is one number."""

    @property
    def dimension(self) -> int | None:
        return None if self.labels is None else len(self.labels) + self.adds_one

    @property
    def lattice_unit(self) -> float:
        """What 1 in a coordinate is worth; the noise is calibrated in it."""
        return 1

    @property
    @abstractmethod
    def empty(self) -> Codes:
        """The codes of a step without an event."""

    @abstractmethod
    def read(self, payload: object) -> tuple[Codes, str | None]:
        """The codes of an element; `empty`, and a reason that does not show it, if it is refused.

        If it raises an error, the element counts as `empty`, for the reason `unreadable`. Only
        MemoryError stops the pipeline.
        """

    def problem(self, payload: object) -> str | None:
        """Why an element does not count as it is, in words that do not show it."""
        return self.read(payload)[1]

    def init(self) -> Any:
        """The memory before the first element."""
        return None

    @abstractmethod
    def step(self, memory: Any, codes: Codes) -> tuple[Any, Additions]:
        """The memory after an element, and what it adds. `memory` itself is not changed."""

    def pack(self, memory: Any) -> bytes:
        """The memory as bytes."""
        if memory is not None:
            raise NotImplementedError(f"{type(self).__name__} has a memory, and so needs pack")
        return b""

    def unpack(self, data: bytes) -> Any:
        """What was packed, or a ValueError for other bytes."""
        if data:
            raise ValueError("such statistics remember nothing, but there are bytes of it")

    @abstractmethod
    def change(self, relation: str) -> Change:
        """What one event changes under a relation, such as "replace_one" or "add_remove".

        Raises:
          ValueError: the relation makes no sense for the statistic; the message says which do.
        """

    @property
    def summary(self) -> str:
        """The public parameters in a few words."""
        return str(self)

    def describe(self) -> Mapping[str, str]:
        """The public parameters beside the counter's, for display data and annotations."""
        return {"statistic": self.summary}

    def noise_parameters(self, counter: str) -> str:
        """All that releases depend on, for replayable noise, from the counter's fingerprint."""
        return ascii((self, counter))

    def count(self, memory: Any, codes: Codes) -> tuple[Any, Any]:
        """As `step`; what the element adds is a number, or has shape (dimension,)."""
        memory, additions = self.step(memory, codes)
        return memory, self.vector(additions)

    def vector(self, additions: Additions) -> Any:
        """Additions as a number, or of shape (dimension,)."""
        if self.dimension is None:
            return sum(amount for _, amount in additions)
        dense = np.zeros(self.dimension, dtype=np.int64)
        for coordinate, amount in additions:
            dense[coordinate] += amount
        return dense

    def all(self, memory: Any, codes: IntArray) -> tuple[Any, IntArray]:
        """Many steps at once, of codes of shape (n, width): memory, and (n,) or (n, dimension)."""
        shape = (len(codes),) if self.dimension is None else (len(codes), self.dimension)
        added = np.zeros(shape, dtype=np.int64)
        for row, step in enumerate(codes.tolist()):
            memory, additions = self.step(memory, tuple(step))
            for coordinate, amount in additions:
                if self.dimension is None:
                    added[row] += amount
                else:
                    added[row, coordinate] += amount
        return memory, added

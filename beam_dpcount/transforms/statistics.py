"""What transforms that release a statistic of a growing stream share; see those made of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from beam_dpcount.budget.budgets import Budget
from beam_dpcount.budget.ledger import Share
from beam_dpcount.checks import ParameterError, check_whole
from beam_dpcount.counters.counter import LatticeCounter
from beam_dpcount.dofns.elements import Intake, pack_codes
from beam_dpcount.dofns.releases import Rejected, Release, VectorRelease
from beam_dpcount.dofns.states import MemoryCodec
from beam_dpcount.mechanisms import Mechanism, Sparse, Unbounded
from beam_dpcount.mechanisms.base import IntArray, check_horizon
from beam_dpcount.noise.entropy import Entropy
from beam_dpcount.statistics import Statistic
from beam_dpcount.statistics.items import check_state
from beam_dpcount.transforms.elements import EachElement


class StatisticIntake(Intake):
    """Reads elements for a statistic: `number` gives their codes.

    Args:
      counter: of as many coordinates as the statistic.
      on_reject, value, element_id: as for Intake.
      statistic: what is counted.
      every: a release for each so many steps.
    """

    def __init__(
        self,
        counter: LatticeCounter,
        on_reject: str,
        value: Callable[[Any], Any] | None,
        element_id: Callable[[Any], Any] | None,
        statistic: Statistic,
        every: int,
    ) -> None:
        super().__init__(counter, on_reject, value, element_id)
        self._statistic, self.every, self.width = statistic, every, statistic.width
        self.release_type = Release if statistic.dimension is None else VectorRelease

    def number(self, key: str, payload: Any, micros: int) -> tuple[Any, Rejected | None]:
        """The codes of an element, or of an empty step and the refusal."""
        reason: str | None
        try:
            content = payload if self._value is None else self._value(payload)
            codes, reason = self._statistic.read(content)
        except (ValueError, TypeError, ArithmeticError, LookupError):
            codes, reason = self._statistic.empty, "the value could not be read"
        if reason is None or self.on_reject == "drop":
            return codes, None
        return codes, self.refuse(key, payload, micros, reason)

    def problem(self, content: Any) -> str | None:
        try:
            return self._statistic.read(content)[1]
        except (ValueError, TypeError, ArithmeticError, LookupError):
            return "the value could not be read"

    def packer(self) -> Callable[[int, Any], bytes]:
        return pack_codes(self.width)

    def init(self) -> Any:
        return self._statistic.init()

    def all_counted(self, memory: Any, numbers: IntArray) -> tuple[Any, IntArray]:
        return self._statistic.all(memory, numbers)

    def counted(self, memory: Any, x: Any) -> tuple[Any, Any]:
        memory, additions = self._statistic.step(memory, x)
        return memory, self._statistic.vector(additions)

    def codec(self, digest_size: int) -> Any:
        return MemoryCodec(self.counter, self._statistic, digest_size)

    @property
    def parameters(self) -> str:
        return ascii((self._statistic, self.counter.fingerprint))

    def shown(self, value: Any) -> Any:
        return value if self._statistic.dimension is None else np.asarray(value).tolist()


class StatisticCount(EachElement):
    """A private statistic of each key's stream, released after every element or every few.

    Attributes:
      counter: the calibrated counter; the one in use, once the transform is applied.
      domain: what the coordinates of a release count, as a tuple of texts; None for one number.
    """

    _fewer = "count fewer"  # what to do where there are too many

    def __init__(
        self,
        budget: Budget | Share,
        horizon: int,
        statistic: Statistic,
        *,
        relation: str,
        mechanism: Mechanism | type[Mechanism] | str | None = None,
        every: int = 1,
        on_reject: str = "drop",
        value: Callable[[Any], Any] | None = None,
        element_id: Callable[[Any], Any] | None = None,
        path: str = "auto",
        entropy: Entropy | None = None,
        allow_runner: bool = False,
        unit: float = 1,
        **unknown: Any,
    ) -> None:
        super().__init__(budget, on_reject, value, element_id, path, entropy, allow_runner)
        name = type(self).__name__
        if unknown:
            raise TypeError(f"{name} takes no {', '.join(unknown)}: see help({name})")
        if horizon is None or isinstance(mechanism, Unbounded | Sparse):
            raise ValueError(
                f"{name} needs a horizon, as one event may change many steps: give one, and a "
                "mechanism of mechanisms.ALL or none"
            )
        check_horizon(horizon)
        self._statistic, self.domain = statistic, statistic.labels
        self._every = check_whole("every", every)
        if self._every > horizon:
            raise ParameterError(
                "every",
                f"is {every} steps, but the horizon has only {horizon}",
                "nothing would be released; give a smaller every",
            )
        change = statistic.change(relation)
        self._calibrate(mechanism, horizon, change, statistic.dimension, unit)
        for counter in self._counters.values():
            check_state(
                counter.state_size,  # type: ignore[attr-defined]
                statistic.dimension or 1,
                self._fewer,
            )

    def _intake(self) -> Intake:
        return StatisticIntake(self.counter, *self._element, self._statistic, self._every)

    def _describe(self) -> dict[str, str]:
        every = "every step" if self._every == 1 else f"every {self._every} steps"
        return {
            **super()._describe(),
            "statistic": self._statistic.summary,
            "released_after": every,
        }

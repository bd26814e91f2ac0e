"""What all transforms that count do when they are applied: their checks, and their account."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from apache_beam.pvalue import PCollection

from beam_dpcount.budget.ledger import claim
from beam_dpcount.noise.entropy import Entropy
from beam_dpcount.plans.counting import CountingPlan, refuse_early_draws
from beam_dpcount.transforms.described import Described
from beam_dpcount.transforms.inputs import check_pairs, check_windows, use_streaming
from beam_dpcount.transforms.runners import check_runner, check_workers

_LOGGER = logging.getLogger(__name__)


@dataclass(eq=False, repr=False)
class Counting(CountingPlan, Described):
    """A count as a transform; see PrefixCount and TickCount."""

    def _check_elements(self, elements: PCollection[object]) -> None:
        """Raise TypeError for elements of a type that is not counted."""
        check_pairs(elements, False)

    def _path_of(self, elements: PCollection[object]) -> bool:
        """Whether to count on the streaming path, once the input and its runner pass the checks."""
        check_windows(elements)
        self._check_elements(elements)
        check_runner(elements.pipeline, self.allow_runner)
        streaming = use_streaming(elements, self.path)
        if streaming:
            check_workers(elements.pipeline)
        return streaming

    def _use(self, counter: Any, elements: PCollection[Any], streaming: bool) -> Entropy:
        """Spend the budget on this counter, show it, and return where its noise comes from."""
        replayable = self._entropy.is_replayable
        if streaming or replayable:
            refuse_early_draws(counter.mechanism, replayable)
        applied = elements.pipeline.transforms_stack[-1].full_label
        spender = self.spender(counter, applied)
        # The last of the checks.
        claim(self.budget, by=applied, spender=spender, keys_delta=self._keys_delta)
        if streaming in self._instead:
            _LOGGER.warning("%s: %s", applied, self._instead[streaming])
        object.__setattr__(self, "counter", counter)  # to others it is fixed
        self._show_applied(elements.pipeline)
        return spender.entropy

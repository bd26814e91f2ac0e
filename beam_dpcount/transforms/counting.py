"""What all transforms that count share: their options, their account, and their first checks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

from apache_beam.pvalue import PCollection

from beam_dpcount.budget.budgets import Budget
from beam_dpcount.budget.ledger import claim, plain_budget
from beam_dpcount.budget.shares import Share
from beam_dpcount.counters.charged import CounterSpender
from beam_dpcount.counters.choose import resolve
from beam_dpcount.counters.counter import calibrate
from beam_dpcount.counters.people import Users
from beam_dpcount.counters.period_costs import PeriodCosts
from beam_dpcount.dofns.intake import ON_REJECT
from beam_dpcount.mechanisms import Mechanism, Sparse, Unbounded
from beam_dpcount.noise.entropy import Entropy
from beam_dpcount.transforms.bounding import check_users
from beam_dpcount.transforms.described import Described, configuration
from beam_dpcount.transforms.inputs import (
    PATHS,
    check_callable,
    check_choice,
    check_entropy,
    check_pairs,
    check_windows,
    refuse_early_draws,
    use_streaming,
)
from beam_dpcount.transforms.runners import check_allowed, check_runner, check_workers

_LOGGER = logging.getLogger(__name__)


@dataclass(eq=False, repr=False)
class Counting(Described):
    """Options that mean the same for every count; see PrefixCount and TickCount.

    They are fixed: noise was made for them. `counter` is the one in use, once it is applied.
    """

    budget: Budget | Share
    _: KW_ONLY
    mechanism: Mechanism | type[Mechanism] | str | Unbounded | Sparse | None = None
    relation: str = "replace_one"
    on_reject: str = "drop"
    value: Callable[[Any], Any] | None = None
    path: str = "auto"
    entropy: Entropy | None = None
    allow_runner: bool = False
    users: Users | None = None

    _at_clock: ClassVar[bool] = False  # whether it is protected that an event happened
    _counts_numbers: ClassVar[bool] = False  # whether what counts must be a number
    _on_reject: ClassVar[tuple[str, ...]] = ON_REJECT

    def __post_init__(self) -> None:
        super().__init__()
        check_allowed(self.allow_runner)
        check_callable("value", self.value)
        check_choice("on_reject", self.on_reject, self._on_reject)
        check_choice("path", self.path, PATHS)
        if self.users is not None:
            check_users(self.users)
            if self._counts_numbers and self.value is None and not self.users.asserted:
                raise ValueError(
                    "users takes the person out of an event's value, which is then no number: say "
                    "what counts, e.g. value=lambda event: 1"
                )
        self._entropy = check_entropy(self.entropy)
        self._budget, self._account = plain_budget(self.budget)
        self._keys_delta = 0.0  # what keys that nobody listed take of it
        self._instead: dict[bool, str] = {}  # what runs in place of the mechanism named, by path
        self._set_up()
        self._fix()

    def _set_up(self) -> None:
        """Check all other options, and calibrate."""
        raise NotImplementedError

    def _calibrated(
        self, ways: Sequence[bool], mechanism: Any, horizon: int | None, **how: Any
    ) -> dict[bool, Any]:
        """The counters of these paths: which one is taken is only known once the input is there.

        Paths that take one mechanism share one counter.

        Args:
          ways: the paths: whether it is streaming, so that it may be replayed from a checkpoint.
          mechanism, horizon: as for `resolve`.
          how: change, dimension and unit, as for `calibrate`.
        """
        made: dict[bool, Any] = {}
        for streaming in ways:
            replays = streaming or self._entropy.is_replayable
            chosen = self._chosen(mechanism, horizon, replays=replays, **how)
            if replays and isinstance(mechanism, str | type):
                named = self._chosen(mechanism, horizon, **how)
                if named != chosen:
                    self._instead[streaming] = (
                        f"{named!r} draws noise early, and work may be replayed here: {chosen!r} "
                        "runs in its place"
                    )
            same = [counter for counter in made.values() if counter.mechanism == chosen]
            made[streaming] = same[0] if same else calibrate(chosen, self._budget, **how)
        return made

    def _chosen(self, mechanism: Any, horizon: int | None, **how: Any) -> Any:
        """The mechanism that counts."""
        return resolve(mechanism, horizon, self._budget, **how)

    @property
    def bounds_people(self) -> bool:
        """Whether each person's elements are bounded here."""
        return self.users is not None and not self.users.asserted

    def _losses(self, counter: Any) -> PeriodCosts | None:
        """What several periods of one person cost, if one of them is protected."""
        return None

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
        entropy = self._entropy.named(applied)
        by = None if self.users is None else self.users.by
        user = by if isinstance(by, str) else None
        losses = self._losses(counter)
        how = entropy, self._at_clock, user, configuration(self), losses
        spender = CounterSpender(counter, *how)
        # The last of the checks.
        claim(self.budget, by=applied, spender=spender, keys_delta=self._keys_delta)
        if streaming in self._instead:
            _LOGGER.warning("%s: %s", applied, self._instead[streaming])
        object.__setattr__(self, "counter", counter)  # to others it is fixed
        self._show_applied(elements.pipeline)
        return entropy

"""What all counts share before anything runs: their options, first checks, and calibration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

from beam_dpcount.budget.budgets import Budget
from beam_dpcount.budget.ledger import plain_budget
from beam_dpcount.budget.shares import Share
from beam_dpcount.checks import check_callable, check_choice, check_flag
from beam_dpcount.counters.charged import CounterSpender
from beam_dpcount.counters.choose import resolve
from beam_dpcount.counters.counter import calibrate
from beam_dpcount.counters.people import Users, check_users
from beam_dpcount.counters.period_costs import PeriodCosts
from beam_dpcount.mechanisms import Mechanism, Sparse, Unbounded
from beam_dpcount.noise.entropy import Entropy, SystemEntropy
from beam_dpcount.plans.described import Plan, configuration

ON_REJECT = ("drop", "raise", "collect")
PATHS = ("auto", "bounded", "streaming")
DRAWS_EARLY = (
    "{mechanism} draws noise early, and a run that is replayed from a checkpoint, or again with "
    "the same secret, could then show exact data: use SmoothLaplace(horizon), KAry(horizon, "
    "subtraction=False), or leave mechanism out"
)


@dataclass(eq=False, repr=False)
class CountingPlan(Plan):
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
        check_flag("allow_runner", self.allow_runner)
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

    @property
    def _time_columns(self) -> tuple[str, ...]:
        """Those of the time of events; empty: they have no name."""
        return ()

    def spender(self, counter: Any, applied: str) -> CounterSpender:
        """What spends the budget, for a ledger and its account.

        Args:
          counter: the one in use.
          applied: the label of the place where it is applied, by which noise goes.
        """
        by = None if self.users is None else self.users.by
        user = by if isinstance(by, str) else None
        entropy = self._entropy.named(applied)
        how = entropy, self._at_clock, user, configuration(self), self._losses(counter)
        return CounterSpender(counter, *how, self._time_columns)

    def _losses(self, counter: Any) -> PeriodCosts | None:
        """What several periods of one person cost, if one of them is protected."""
        return None


def describe_people(users: Users | None, replayable: bool, path: str) -> dict[str, str]:
    """Whom a count protects, and how it keeps what counts of them in a stream."""
    if users is None:
        return {}
    if users.asserted or path == "bounded":
        return {"users": str(users)}
    by = "a key of the secret" if replayable else "a hash without a secret"
    return {"users": str(users), "people_shards": f"{users.shards}, by {by}"}


def refuse_early_draws(mechanism: Any, replayable: bool = False) -> None:
    """Refuse, for streaming and replays, noise that is drawn before the data it hides are complete.

    Checkpoints hold such noise: in a replay with other data, two releases differ by exact data.
    """
    if getattr(mechanism, "draws_early", False):
        raise ValueError(DRAWS_EARLY.format(mechanism=mechanism.name))
    if replayable and isinstance(mechanism, Sparse):
        raise ValueError(
            "Sparse keeps the noise of its threshold from step to step, and replays of other data "
            "could then show exact data: use another mechanism, or SystemEntropy"
        )


def check_entropy(entropy: Entropy | None) -> Entropy:
    """`entropy`, by default the operating system's, or a TypeError that says what to pass."""
    if entropy is None:
        return SystemEntropy()
    if not isinstance(entropy, Entropy):
        raise TypeError(f"entropy must be an Entropy such as SystemEntropy(), got {entropy!r}")
    return entropy

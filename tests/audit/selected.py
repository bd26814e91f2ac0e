"""Keys that nobody listed, as black boxes: how often a key that is one person's alone is shown.

A pipeline has one trial a person, who has keys of their own. Without the person none of them can
be shown; so the share of trials in which any is, is what neighbours are told apart by, and is at
most the delta that is for keys, whatever the noise. What shown keys release costs what it costs
where keys are listed: a row of `pipelines`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import beam_dpcount as dp
from beam_dpcount.noise.entropy import Entropy, SystemEntropy
from beam_dpcount.transforms.ticks import TickNumbers
from beam_dpcount.transforms.vectors import TickVectors
from tests.audit import bounds
from tests.audit.pipelines import CLOCK, STEPS, noted, who
from tests.runners import SECOND, Row
from tests.sentences import counted

BUDGET, DELTA = dp.ZCDP(0.5), 0.05
TRIALS = 40_000
# The least share of delta that trials must prove where all of it is spent, but for the lattice.
TIGHT = 0.8


@dataclass(frozen=True)
class Case:
    """A transform, and what of one person is in keys that nobody else has.

    Fields:
      make: of an entropy and the rule by which keys are shown.
      keys, each: how many keys a person has, and how many events in each.
      every: keys are tested at each so many ticks.
      is_spent: whether such a person has all of delta: in as many keys as may be, with as much in
        each, tested once; else thresholds keep some of it for others.
    """

    make: Callable[[Any, dp.SelectKeys], Any]
    keys: int = 1
    each: int = 1
    every: int = STEPS
    is_spent: bool = True

    def rows(self, trials: int) -> list[Row]:
        return [
            (f"{i:06}{key}", {"who": f"{i}", "n": 1}, (n + 5) * SECOND)
            for i in range(trials)
            for key in range(self.keys)
            for n in range(self.each)
        ]


def ticks(kind: Any, **more: Any) -> Callable[[Any, dp.SelectKeys], Any]:
    return lambda entropy, keys: kind(BUDGET, **CLOCK, keys=keys, entropy=entropy, **more)


def of_people(events: int, **more: Any) -> Callable[[Any, dp.SelectKeys], Any]:
    users = dp.Users(who, events, **{"per_key": 1, **more})
    return ticks(TickNumbers, value=lambda _: 1, users=users)


EVENT = ticks(TickNumbers, value=lambda _: 1)
CASES: dict[str, Case] = {
    "an event": Case(EVENT),
    "an event, tested at all ticks": Case(EVENT, every=1, is_spent=False),
    "an event, of metrics": Case(ticks(TickVectors, metrics=(dp.Count(),))),
    "a person in 2 keys": Case(of_people(2), keys=2),
    "a person with 2 events in a key": Case(of_people(2, keys=1, per_key=2), each=2),
    "a person, counted once a key": Case(
        ticks(counted, what=dp.People(), users=dp.Users(who, 2)), keys=2, each=3
    ),
}


@dataclass(frozen=True)
class Found:
    """What trials prove of delta.

    Fields:
      trials: persons or events, each alone in all of their keys.
      shown: of how many of them any key was.
      least: what that proves of delta.
    """

    name: str
    trials: int
    shown: int
    least: float

    def faults(self) -> list[str]:
        """What is wrong: a bound above delta, or one that would not have told."""
        said = f"{self.name}, alone in its keys: {self.shown} of {self.trials} are shown, which"
        if self.least > DELTA:
            return [f"{said} proves delta > {self.least:.4g}"]
        if CASES[self.name].is_spent and self.least < TIGHT * DELTA:
            return [f"{said} only proves delta > {self.least:.4g}"]
        return []


def audited(name: str, n: int = TRIALS, entropy: Entropy | None = None) -> Found:
    """What n trials prove. `entropy` is a mutant's."""
    case, rule = CASES[name], dp.SelectKeys(DELTA, every=CASES[name].every)
    seen = noted(case.rows(n), case.make(entropy or SystemEntropy(), rule))
    shown = len({key[:6] for key, *_ in seen})
    return Found(name, n, shown, float(bounds.at_least(np.array(shown), n, bounds.MISSED)))

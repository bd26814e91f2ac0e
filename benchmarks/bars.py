"""The figures that mechanisms for persons, elements and windows were made for.

    python -m benchmarks.bars

prints each beside the most it may be. Variances are the largest of a release at rho = 1/2, for
values in [0, 1].
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import beam_dpcount as dp
from beam_dpcount.counters.change import Change
from beam_dpcount.counters.users import UserChange, group_of

HALF = dp.ZCDP(0.5)
# Steps, events of a person, steps between two of them, and the most.
PERSONS = ((365, 52, 7, 3_400), (8760, 365, 24, 152_000), (365, 12, 30, 262))
# Elements, those of a person, and the most.
ELEMENTS = ((1000, 5, 190), (1000, 20, 2_510))


@dataclass(frozen=True)
class Bar:
    """One figure."""

    name: str
    value: Callable[[], float]
    most: float

    def __str__(self) -> str:
        return self.name


def bars(persons: Sequence[tuple[int, int, int, int]]) -> Iterator[Bar]:
    """The largest variance for persons whose events lie apart."""
    for horizon, events, gap, most in persons:
        change = UserChange(0, 1, events=events, keys=1, per_key=events, gap=gap)
        name = f"{horizon} steps, {events} events of a person, {gap} steps apart"

        def value(horizon: int = horizon, change: UserChange = change) -> float:
            return dp.choose(horizon, HALF, change=change).rows[0].max_stddev ** 2

        yield Bar(name, value, most)


def elements(persons: Sequence[tuple[int, int, float]]) -> Iterator[Bar]:
    """The largest variance for persons with several elements, each after a step of its own."""
    for horizon, events, most in persons:
        change = group_of(Change(), events, events, False, own_step=True)

        def value(horizon: int = horizon, change: Change = change) -> float:
            return dp.choose(horizon, HALF, change=change).rows[0].max_stddev ** 2

        yield Bar(f"{horizon} elements, {events} of a person", value, most)


def all_bars() -> list[Bar]:
    return [*bars(PERSONS), *elements(ELEMENTS)]


def main() -> None:
    for bar in all_bars():
        value = bar.value()
        print(f"{bar.name:60}{value:12.6g}{bar.most:12,}{'' if value <= bar.most else '  missed'}")


if __name__ == "__main__":
    main()

"""The figures that mechanisms for persons, elements and windows were made for.

    python -m benchmarks.bars [MESSAGES]

prints each beside the most it may be. With a file of messages, lines of a sender, a receiver and
seconds such as SNAP's CollegeMsg, also the errors of active senders. Variances are the largest of a
release at rho = 1/2, for values in [0, 1].
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

import beam_dpcount as dp
from beam_dpcount.budget.budgets import Budget
from beam_dpcount.counters.change import Change
from beam_dpcount.counters.choose import resolve_last
from beam_dpcount.counters.counter import Counter
from beam_dpcount.counters.users import UserChange, group_of
from beam_dpcount.dofns.active import Activity
from beam_dpcount.mechanisms.single_steps import SingleSteps
from beam_dpcount.noise.entropy import SystemNoise

HALF = dp.ZCDP(0.5)
# Steps, events of a person, steps between two of them, and the most.
PERSONS = ((365, 52, 7, 3_400), (8760, 365, 24, 152_000), (365, 12, 30, 262))
# Elements, those of a person, and the most.
ELEMENTS = ((1000, 5, 190), (1000, 20, 2_510))
# The window, and the most.
WINDOWS = ((10, 3.75), (100, 8.3), (1000, 14.6))
# Steps, the window, and the most.
PURE_WINDOWS = ((4000, 24, 66), (4000, 100, 152))
# Steps, the budget, and the most that the bound on all errors may be of the true quantile.
ERRORS = (
    (24, dp.ApproxDP(1.0, 1e-6), 1.16),
    (1000, dp.PureDP(1.0), 1.16),
    (365, dp.ApproxDP(1.0, 1e-6), 1.05),
    (1000, dp.ZCDP(0.1), 1.05),
)
# The last days, the changes of a person that count, and the most.
ACTIVE = ((30, 4, 25), (7, 12, 37))
RUNS = 200


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


def pure_windows(windows: Sequence[tuple[int, int, float]]) -> Iterator[Bar]:
    """The largest variance of sums over the last steps times epsilon^2, where work is replayed."""
    for horizon, window, most in windows:

        def value(horizon: int = horizon, window: int = window) -> float:
            budget = dp.PureDP(0.01)
            both = [resolve_last(horizon, window, budget, replays) for replays in (False, True)]
            return max(dp.calibrate(made, budget).max_variance() for made in both) * 1e-4

        yield Bar(f"last {window} of {horizon} steps, pure, on both paths", value, most)


def windows(settings: Sequence[tuple[int, float]]) -> Iterator[Bar]:
    """The largest variance of sums over the last steps, however long the stream is."""
    for window, most in settings:

        def value(window: int = window) -> float:
            return dp.calibrate(resolve_last(2**30, window, HALF), HALF).max_variance()

        yield Bar(f"last {window} steps of any stream", value, most)


def quantile(counter: Counter) -> float:
    """What the largest of all errors exceeds in 5 % of runs, from some thousands of them."""
    horizon, largest = counter.horizon, list[float]()
    decoder = counter.mechanism.decoder(horizon)
    for _ in range(16):
        z = counter.law.sample(500 * decoder.shape[1]).reshape(500, -1)
        largest += np.abs(z @ decoder.T).max(axis=1).tolist()
    return float(np.quantile(largest, 0.95)) * counter.grid


def largest_errors(settings: Sequence[tuple[int, Budget, float]]) -> Iterator[Bar]:
    """largest_error over the quantile of the largest error that it bounds."""
    for horizon, budget, most in settings:
        counter = dp.calibrate(dp.choose(horizon, budget).mechanism, budget)

        def value(counter: Counter = counter) -> float:
            return dp.largest_error(counter) / quantile(counter)

        yield Bar(f"largest error over its 95 % quantile, {horizon} steps, {budget}", value, most)


def all_bars() -> list[Bar]:
    return [
        *bars(PERSONS),
        *elements(ELEMENTS),
        *windows(WINDOWS),
        *pure_windows(PURE_WINDOWS),
        *largest_errors(ERRORS),
    ]


def active_senders(path: str, settings: Sequence[tuple[int, int, float]]) -> Iterator[Bar]:
    """The root mean square error of how many senders were active, noise and what is left out.

    Over all days and RUNS runs, at epsilon 1 and delta 1e-6, of whole-stream persons.
    """
    with open(path) as file:
        lines = [line.split() for line in file.read().replace(",", " ").splitlines()[1:]]
    first = min(int(line[2]) for line in lines)
    senders: dict[str, set[int]] = defaultdict(set)
    for line in lines:
        senders[line[0]].add((int(line[2]) - first) // 86_400 + 1)
    days = max(map(max, senders.values()))

    def summed(rule: Activity) -> list[int]:
        xs = [0] * days
        for ticks in senders.values():
            for interval in rule.intervals_of((tick, "") for tick in ticks):
                for tick, x in rule.counted(interval):
                    xs[tick - 1] += x
        return xs

    for window, changes, most in settings:
        users = dp.Users("sender", changes=changes)
        view = dp.Clock("1d", start=0, ticks=days).last(window)
        budget = dp.ApproxDP(1.0, 1e-6)
        counter = dp.TickCount(budget, view, dp.People(), keys=dp.TOTAL, users=users).counter

        def value(counter: Counter = counter, window: int = window, w: int = changes) -> float:
            fresh = isinstance(counter.mechanism, SingleSteps)
            xs = np.array(summed(Activity(window, days, w // 2, not fresh)))
            truth, noise = np.array(summed(Activity(window, days))), SystemNoise(counter.law, None)
            errors = [counter.release_lattice(xs, noise) - truth for _ in range(RUNS)]
            return float(np.sqrt(np.mean(np.square(errors))))

        yield Bar(f"senders of the last {window} days, {changes} changes each", value, most)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bars", description=__doc__)
    parser.add_argument("messages", nargs="?", help="a file of messages")
    messages = parser.parse_args().messages
    more = [] if messages is None else active_senders(messages, ACTIVE)
    for bar in (*all_bars(), *more):
        value = bar.value()
        print(f"{bar.name:60}{value:12.6g}{bar.most:12,}{'' if value <= bar.most else '  missed'}")


if __name__ == "__main__":
    main()

"""Made-up web event logs for demonstrations: python -m beam_dpcount.commands.eventlog OUT.csv."""

from __future__ import annotations

import argparse
import csv
import os
from collections.abc import Sequence

import numpy as np

COLUMNS = ("timestamp", "page", "session", "action", "ms")

_NAMES = (  # most popular first
    "home search products cart login account checkout deals orders reviews "
    "wishlist help shipping returns blog contact gift-cards stores careers privacy"
)
PAGES = tuple(f"/{name}" for name in _NAMES.split())

_DAY_MS = 86_400_000
_EVENTS_PER_SESSION = 4
_MEDIAN_MS, _SPREAD_MS, _LONGEST_MS = 300, 0.8, 5000  # how long a page took
_SESSION_SPREAD = 200  # events, about five minutes of the default log at midday


def page_names(keys: int) -> list[str]:
    """The names of the `keys` most popular pages, most popular first."""
    return [*PAGES[:keys], *(f"/page-{rank}" for rank in range(len(PAGES) + 1, keys + 1))]


def page_probabilities(keys: int, exponent: float = 1.0) -> np.ndarray:
    """Zipf probabilities, proportional to `1 / rank**exponent`, shape (keys,)."""
    weights = np.arange(1, keys + 1, dtype=float) ** -exponent
    return weights / weights.sum()


def _times_of_day(rng: np.random.Generator, events: int) -> np.ndarray:
    """Sorted milliseconds since midnight: a quiet night, a lunch bump, a busy evening."""
    hours = np.linspace(0, 24, 24 * 60 + 1)

    def bump(centre: float, width: float) -> np.ndarray:
        away = np.abs(hours - centre)
        away = np.minimum(away, 24 - away)  # round the clock: the curve joins up at midnight
        return np.exp(-0.5 * (away / width) ** 2)

    intensity = 0.06 + 0.5 * bump(12.5, 2.2) + bump(20.0, 1.8)
    cumulative = np.concatenate([[0.0], np.cumsum((intensity[1:] + intensity[:-1]) / 2)])
    hour = np.interp(rng.random(events), cumulative / cumulative[-1], hours)
    return np.sort(np.minimum(hour / 24 * _DAY_MS, _DAY_MS - 1).astype(np.int64))


def write(
    path: str | os.PathLike[str],
    events: int = 40_000,
    keys: int = 20,
    seed: int = 20260115,
    exponent: float = 1.0,
    day: str = "2026-01-15",
) -> None:
    """Writes a time-sorted CSV log of one UTC day, with the columns `COLUMNS`.

    Args:
      events: the number of rows after the header.
      keys: the number of distinct pages that may occur.
      seed: the same arguments and seed give the same file.
      exponent: of the pages' Zipf law; 0 makes them equally popular.
      day: the ISO date of every timestamp.

    Raises:
      ValueError: `events` is negative, `keys` is not positive or `day` is not a date.
    """
    if events < 0:
        raise ValueError(f"events must be at least 0, got {events}")
    if keys < 1:
        raise ValueError(f"keys must be at least 1, got {keys}")
    # Made-up data, hence the seed. The noise of a private release must never come from one.
    rng = np.random.default_rng(seed)
    midnight = np.datetime64(day, "D").astype("datetime64[ms]")
    milliseconds = _times_of_day(rng, events).astype("timedelta64[ms]")
    timestamps = np.datetime_as_string(midnight + milliseconds, timezone="UTC")
    page = rng.choice(keys, size=events, p=page_probabilities(keys, exponent))
    purchase_rate = rng.uniform(0.03, 0.30, size=keys)
    actions = np.where(rng.random(events) < purchase_rate[page], "purchase", "view")
    # Events near each other in time share sessions, so that a session is a short visit.
    visit = (np.arange(events) + rng.integers(_SESSION_SPREAD, size=events)) // _EVENTS_PER_SESSION
    identifiers = rng.integers(2**63, size=int(visit.max(initial=-1)) + 1)

    pages = np.array(page_names(keys))[page].tolist()
    sessions = [f"{identifier:016x}" for identifier in identifiers[visit].tolist()]
    # From a generator of its own, so that the other columns do not depend on it.
    took = np.random.default_rng([seed, 1]).lognormal(np.log(_MEDIAN_MS), _SPREAD_MS, events)
    numbers = np.minimum(took.astype(np.int64), _LONGEST_MS).tolist()
    rows = zip(timestamps.tolist(), pages, sessions, actions.tolist(), numbers, strict=True)
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(rows)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m beam_dpcount.commands.eventlog", description=__doc__
    )
    parser.add_argument("out", metavar="OUT.csv", help="file to write")
    parser.add_argument("--events", type=int, default=40_000, help="rows (default %(default)s)")
    parser.add_argument("--seed", type=int, default=20260115, help="default %(default)s")
    arguments = parser.parse_args(argv)
    write(arguments.out, events=arguments.events, seed=arguments.seed)


if __name__ == "__main__":
    main()

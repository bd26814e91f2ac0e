"""`make crash`: a count keeps its promise when its worker is killed, again and again, by kill -9.

On a small engine of our own (own.py), or on Flink with `--engine flink` (flink.py).

Two counts of the same events run side by side: a private one, and one with an enormous budget, of
which every release must be the exact total. Of the private one every (key, step) must be there,
none with two values, and each with that of an uninterrupted run under the same secret, to the last
bit (benchmarks/judge.py). Status 0: so it was; 1: it was not; 2: the test itself did not come to an
end.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import secrets
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import beam_dpcount as dp
from benchmarks.judge import Sighting, Verdict, judge
from benchmarks.timing import table
from tests.crash.flink import FlinkJob
from tests.crash.jobs import COUNTS, HarnessError, Job, Lives, parsed, uninterrupted, write_input
from tests.crash.own import PLACES, OwnJob
from tests.crash.subjects import SUBJECTS, Bounds

ENGINES: dict[str, type[Job]] = {"own": OwnJob, "flink": FlinkJob}


@dataclass
class Summary:
    """Of one run. `faults` says what broke the promise; without any it was kept.

    Attributes:
      private: the verdict on the private count.
      others: on the one with an enormous budget, whose values are held against the totals.
      exact: how many of these, with those that may differ, are what they must be, of `must`.
      loose: on releases of either that may have two values: how late an event is, or in what order
        a key's elements come from their persons, is in no checkpoint. None: there are no such ones.
    """

    job: Job
    lives: Lives
    asked: int
    private: Verdict
    others: Verdict
    exact: int
    must: int
    loose: Verdict | None = None
    seconds: float = 0.0
    seed: int = 0

    @property
    def faults(self) -> list[str]:
        kills, wrong = sum(self.lives.kills.values()), self.must - self.exact
        seen = self.private, self.others, self.loose
        again = sum(verdict.repeated for verdict in seen if verdict)
        found = [
            (kills < self.asked, f"{kills} kills of {self.asked}"),
            (self.asked and not again, "no release was seen twice, so nothing is shown"),
        ]
        # What is missing of the others is no exact total.
        others = [f"{text}, of the exact count" for text in replace(self.others, missing=0).faults]
        totals = [f"{wrong} totals not exact"] * (wrong > 0)
        loose = replace(self.loose, conflicts=0).faults if self.loose else []
        loose = [f"{text}, of those that may differ" for text in loose]
        return [text for bad, text in found if bad] + self.private.faults + others + totals + loose

    def __str__(self) -> str:
        job, lives, private, loose = self.job, self.lives, self.private, self.loose
        name = job.subject.label
        equal = f"{private.equal} of {private.expected} as in an uninterrupted run, to the last bit"
        unchecked = f"not compared: {private.unchecked}"
        rows = [
            ("count", f"{name}, {job.keys} keys, {job.events} events, zCDP rho {job.rho:g}"),
            ("entropy", job.entropy),
            ("kills", f"{sum(lives.kills.values())}, {lives.progressed} after a new checkpoint"),
            *(("", f"{n:3} {PLACES.get(at, at)}") for at, n in sorted(lives.kills.items())),
            ("restarts", lives.restarts),
            ("checkpoints", f"{lives.checkpoints}, one every {job.every}"),
        ]
        if private.expected:
            rows += [
                ("releases seen", f"{private.seen}, {private.repeated} of them again"),
                ("distinct", f"{private.distinct} of {private.expected} (key, step)"),
                ("missing", private.missing),
                ("conflicts", private.conflicts),
                ("equal", unchecked if private.unchecked else equal),
            ]
        if loose:
            said = f"{loose.distinct} of {loose.expected} there, {loose.repeated} seen again"
            rows.append(("may differ", f"{said}, {loose.conflicts} with two values"))
            rows.append(("", f"({job.subject.why})"))
        rows += [
            ("exact totals", f"{self.exact} of {self.must}, with an enormous budget"),
            *([("engine", lives.engine)] if lives.engine else []),
            ("time", f"{self.seconds:.1f} s, seed {self.seed}"),
            ("promise", f"BROKEN: {', '.join(self.faults)}" if self.faults else "kept"),
        ]
        return "\n".join(f"{name:14}{value}" for name, value in rows)


def examine(
    job: Job,
    lives: Lives,
    asked: int,
    lines: Sequence[str],
    whole: Mapping[str, Sequence[Sighting]],
) -> Summary:
    """What the sink has seen against what it must have seen.

    Args:
      whole: the releases of either count, uninterrupted.
    """
    rows, size, subject = job.rows(), job.size, job.subject
    bounds, finals = subject.totals(size, rows), subject.finals(size, rows)
    seen = {name: parsed(job, lines, name) for name in COUNTS}

    def parted(sightings: Iterable[Sighting], loose: bool) -> list[Sighting]:
        return [each for each in sightings if subject.may_differ(size, each[0]) == loose]

    def both(found: Mapping[str, Iterable[Sighting]]) -> list[Sighting]:
        pairs = ((name, parted(each, True)) for name, each in found.items())
        return [((name, *place), value) for name, some in pairs for place, value in some]

    _, others = COUNTS
    places = {place for place, _ in whole[others]}
    must = places if subject.hides else {*bounds}
    wrong = {place for place, value in seen[others] if not _is_within(value, bounds.get(place))}
    most: dict[str, float] = {}
    for (key, *_), value in seen[others]:
        most[key] = max(most.get(key, 0.0), *_numbers(value))
    short = {key for key, final in finals.items() if abs(most.get(key, 0.0) - final) > _NEAR}
    right = {place for place, _ in seen[others] if place[0] not in short} - wrong
    may_differ = both(whole)
    return Summary(
        job,
        lives,
        asked,
        private=_judged(
            parted(seen["private"], False),
            parted(whole["private"], False),
            comparable=job.entropy != "system",
        ),
        others=_judged(parted(seen[others], False), parted(whole[others], False), False),
        exact=len(must & right),
        must=len(must | places),
        loose=_judged(both(seen), may_differ, False) if may_differ else None,
    )


def _judged(seen: Sequence[Sighting], whole: Sequence[Sighting], comparable: bool) -> Verdict:
    """The verdict, also where none are left, as all releases may differ."""
    return judge(seen, whole, comparable) if seen or whole else Verdict(0, 0, 0, 0, 0, 0, 0, 0)


# Mechanisms with real entries have a lattice of their own, and stay some 10^-5 away.
_NEAR = 0.01


def _numbers(shown: Sequence[str]) -> list[float]:
    """The value of a release as it was shown, of a vector all of its coordinates."""
    found = json.loads(shown[2])
    return found if isinstance(found, list) else [found]


def _is_within(shown: Sequence[str], bounds: Bounds | None) -> bool:
    if bounds is None:
        return False
    numbers = zip(_numbers(shown), *bounds, strict=True)
    return all(low - _NEAR < x < high + _NEAR for x, low, high in numbers)


def crash(job: Job, kills: int, seed: int | None = None, timeout: float | None = None) -> Summary:
    """One whole run in the job's directory, which must be empty.

    Raises:
      HarnessError: it did not come to an end.
    """
    if job.subject.hides and job.entropy == "system":
        raise HarnessError("which keys are shown is decided by noise: it must be replayable noise")
    seed, start = secrets.randbelow(10**6) if seed is None else seed, time.monotonic()
    rng, secret = random.Random(seed), secrets.token_hex(32)
    write_input(job, rng)
    lives = job.supervised(kills, rng, job.timeout if timeout is None else timeout, secret)
    lines = job.sink.read_text().splitlines()
    summary = examine(job, lives, kills, lines, uninterrupted(job, secret))
    return replace(summary, seconds=time.monotonic() - start, seed=seed)


def _from(least: float, kind: type) -> Any:
    """A type for argparse: a number of this kind that is no smaller."""

    def number(text: str) -> Any:
        if not kind(text) >= least:
            raise argparse.ArgumentTypeError(f"must be {least} or more, got {text}")
        return kind(text)

    number.__name__ = kind.__name__
    return number


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.crash",
        description="Kill the worker of a count, and look.",
        argument_default=argparse.SUPPRESS,  # each engine has its own
    )
    add = parser.add_argument
    add("--engine", choices=[*ENGINES], default="own", help="default: %(default)s")
    add("--kills", type=_from(0, int), default=20, help="how many times (default: %(default)s)")
    add("--transform", choices=[*SUBJECTS, "all"], nargs="+", help=f"default: {Job.transform}")
    add("--entropy", help=f"system, or module:function; default: {Job.entropy}")
    add("--keys", type=_from(1, int), help=f"default: {Job.keys}")
    add("--events", type=_from(1, int), help=f"default: {Job.events}")
    add("--checkpoint", type=_from(1, int), help=f"default: {Job.checkpoint} events; Flink 1000 ms")
    add("--rho", type=_from(1e-9, float), help=f"zCDP of the private count; default: {Job.rho}")
    add("--mechanism", help="by name; default: the library's choice")
    add("--pace", type=_from(0, float), help="seconds to sleep after each event (Flink: of a file)")
    add("--seed", type=int, default=None, help="of the input and of the kills; default: a new one")
    add("--timeout", type=float, default=None, help="seconds in all")
    return parser


def main(given: Sequence[str] | None = None) -> int:
    options = vars(arguments().parse_args(given))
    kills, seed, timeout = (options.pop(name) for name in ("kills", "seed", "timeout"))
    engine, asked = options.pop("engine"), options.pop("transform", [Job.transform])
    summaries: list[Summary] = []
    for transform in [*SUBJECTS] if "all" in asked else asked:
        with tempfile.TemporaryDirectory(prefix="crash-") as directory:
            job = ENGINES[engine](directory, transform, **options)
            try:
                summaries.append(crash(job, kills, seed, timeout))
            except HarnessError as error:
                print(f"no result: {error}", file=sys.stderr)
                return 2
        print(summaries[-1], end="\n\n", flush=True)
    if len(summaries) > 1:
        print(table(HEAD, [_cells(engine, summary) for summary in summaries]))
    return 1 if any(summary.faults for summary in summaries) else 0


HEAD = (
    *("engine, count, entropy", "kills", "seen", "again", "places", "missing", "two values"),
    *("as uninterrupted", "exact totals", "may differ: places", "two values"),
)


def _cells(engine: str, summary: Summary) -> list[str]:
    """A row of docs/reliability.md."""
    job, seen, loose = summary.job, summary.private, summary.loose
    equal = "not compared" if seen.unchecked else f"{seen.equal:,} of {seen.expected:,}"
    return [
        f"{engine}, {job.subject.label}, {job.entropy}",
        str(summary.lives.kills.total()),
        *(f"{n:,}" for n in (seen.seen, seen.repeated, seen.distinct, seen.missing)),
        f"{seen.conflicts:,}",
        equal if seen.expected else "none",
        f"{summary.exact:,} of {summary.must:,}",
        *([f"{loose.distinct:,} of {loose.expected:,}", f"{loose.conflicts:,}"] if loose else "--"),
    ]


if __name__ == "__main__":
    logging.getLogger().setLevel(logging.ERROR)  # Beam's warnings of optional packages
    warnings.simplefilter("ignore", dp.errors.WeakBudgetWarning)  # of the count without noise
    # SIGTERM as Ctrl-C: the blocks that have started processes end them.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())

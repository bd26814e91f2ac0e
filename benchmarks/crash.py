"""`make crash`: a count keeps its promise when its worker is killed, again and again, by kill -9.

On a small engine of our own (engine_own.py), or on Flink with `--engine flink` (engine_flink.py).

Two counts of the same events run side by side: a private one, and one with an enormous budget, of
which every release must be the exact total. Of the private one every (key, step) must be there,
none with two values, and each with that of an uninterrupted run under the same secret, to the last
bit (judge.py). Status 0: so it was; 1: it was not; 2: the test itself did not come to an end.
"""

from __future__ import annotations

import argparse
import logging
import random
import secrets
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.engine_flink import FlinkJob
from benchmarks.engine_own import PLACES, OwnJob
from benchmarks.jobs import HarnessError, Job, Lives, parsed, totals, uninterrupted, write_input
from benchmarks.judge import Sighting, Verdict, judge

ENGINES: dict[str, type[Job]] = {"own": OwnJob, "flink": FlinkJob}


@dataclass
class Summary:
    """Of one run. `faults` says what broke the promise; without any it was kept.

    Attributes:
      private: the verdict on the private count.
      others: on the one with an enormous budget, whose values are held against the totals.
      exact: how many of these are the totals.
    """

    job: Job
    lives: Lives
    asked: int
    private: Verdict
    others: Verdict
    exact: int
    seconds: float = 0.0
    seed: int = 0

    @property
    def faults(self) -> list[str]:
        kills, expected = sum(self.lives.kills.values()), self.private.expected
        again = self.private.repeated
        found = [
            (kills < self.asked, f"{kills} kills of {self.asked}"),
            (self.asked and not again, "no release was seen twice, so nothing is shown"),
        ]
        # What is missing of the others is no exact total.
        others = [f"{text}, of the exact count" for text in replace(self.others, missing=0).faults]
        totals = [f"{expected - self.exact} totals not exact"] * (self.exact < expected)
        return [text for bad, text in found if bad] + self.private.faults + others + totals

    def __str__(self) -> str:
        job, lives, private = self.job, self.lives, self.private
        name = "TickCount" if job.transform == "ticks" else "PrefixCount"
        equal = f"{private.equal} of {private.expected} as in an uninterrupted run, to the last bit"
        unchecked = f"not compared: {private.unchecked}"
        rows = [
            ("count", f"{name}, {job.keys} keys, {job.events} events, zCDP rho {job.rho:g}"),
            ("entropy", job.entropy),
            ("kills", f"{sum(lives.kills.values())}, {lives.progressed} after a new checkpoint"),
            *(("", f"{n:3} {PLACES.get(at, at)}") for at, n in sorted(lives.kills.items())),
            ("restarts", lives.restarts),
            ("checkpoints", f"{lives.checkpoints}, one every {job.every}"),
            ("releases seen", f"{private.seen}, {private.repeated} of them again"),
            ("distinct", f"{private.distinct} of {private.expected} (key, step)"),
            ("missing", private.missing),
            ("conflicts", private.conflicts),
            ("equal", unchecked if private.unchecked else equal),
            ("exact totals", f"{self.exact} of {private.expected}, with an enormous budget"),
            *([("engine", lives.engine)] if lives.engine else []),
            ("time", f"{self.seconds:.1f} s, seed {self.seed}"),
            ("promise", f"BROKEN: {', '.join(self.faults)}" if self.faults else "kept"),
        ]
        return "\n".join(f"{name:14}{value}" for name, value in rows)


def examine(
    job: Job, lives: Lives, asked: int, lines: Sequence[str], whole: Iterable[Sighting]
) -> Summary:
    """What the sink has seen against what it must have seen.

    Args:
      whole: of the private count, uninterrupted.
    """
    must, others = totals(job), parsed(lines, "exact")
    wrong = {place for place, values in others if not _is(values[1], must.get(place))}
    return Summary(
        job,
        lives,
        asked,
        private=judge(parsed(lines, "private"), whole, comparable=job.entropy != "system"),
        others=judge(others, must.items(), comparable=False),
        exact=len((must.keys() & dict(others).keys()) - wrong),
    )


def _is(shown: str, total: int | None) -> bool:
    # Mechanisms with real entries have a lattice of their own, and stay some 10^-5 away.
    return total is not None and abs(float(shown) - total) < 0.01


def crash(job: Job, kills: int, seed: int | None = None, timeout: float | None = None) -> Summary:
    """One whole run in the job's directory, which must be empty.

    Raises:
      HarnessError: it did not come to an end.
    """
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
        prog="python -m benchmarks.crash",
        description="Kill the worker of a count, and look.",
        argument_default=argparse.SUPPRESS,  # each engine has its own
    )
    add = parser.add_argument
    add("--engine", choices=[*ENGINES], default="own", help="default: %(default)s")
    add("--kills", type=_from(0, int), default=20, help="how many times (default: %(default)s)")
    add("--transform", choices=["elements", "ticks"], help=f"default: {Job.transform}")
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
    logging.getLogger().setLevel(logging.ERROR)  # Beam's warnings of optional packages
    options = vars(arguments().parse_args(given))
    kills, seed, timeout = (options.pop(name) for name in ("kills", "seed", "timeout"))
    kind = ENGINES[options.pop("engine")]
    with tempfile.TemporaryDirectory(prefix="crash-") as directory:
        try:
            summary = crash(kind(directory, **options), kills, seed, timeout)
        except HarnessError as error:
            print(f"no result: {error}", file=sys.stderr)
            return 2
    print(summary)
    return 1 if summary.faults else 0


if __name__ == "__main__":
    # SIGTERM as Ctrl-C: the blocks that have started processes end them.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())

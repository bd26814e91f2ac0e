"""The three lines that end a run: what is guaranteed, the error to expect, what is left out.

They are short. The exact statements are in the manifest, and printed by --verbose and --dry-run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import beam_dpcount as dp
from beam_dpcount.commands import manifest
from beam_dpcount.commands.report import LEVEL

if TYPE_CHECKING:
    from beam_dpcount.commands.task import Task


def lines(task: Task) -> list[str]:
    """Where the exact statements are, and the three lines."""
    where = manifest.path_of(str(task.options.output))
    return [
        f"manifest: {where} (the exact statements)",
        guarantee(task),
        error(task),
        left_out(task),
    ]


def guarantee(task: Task) -> str:
    """The budget, whom or what it protects, and in which releases."""
    options = task.options
    replayed = options.secret_env is not None or options.secret_file is not None
    which = "under this secret and --run-id" if replayed else "in this run"
    return (
        f"Guarantee: {task.budget()} for {task.unit()}, over all releases {task.covers()}{which}."
    )


def error(task: Task) -> str:
    """How far a count, and the worst of all counts, may be from what they estimate."""
    counter, estimate = task.counter, task.estimate()
    one = dp.largest_half_width(counter, LEVEL)
    largest = dp.largest_error(counter, task.streams())
    chosen = " The first releases of a shown key are too high." * bool(estimate.chosen)
    level = f"{100 * LEVEL:g} %"
    return (
        f"Error to expect ({level}): a count{estimate.of} is within {one:.3g}, "
        f"{task.largest()} below {largest:.3g}.{chosen}"
    )


def left_out(task: Task) -> str:
    """What no stated error covers."""
    estimate, horizon = task.estimate(), task.counter.mechanism.horizon
    some = [each for each in estimate.left_out if each != estimate.unlikely]
    if not some:
        return f"Left out: nothing; rows after row {horizon:,} of a key have no release."
    return f"Left out, and not in that error: {'; '.join(some)}."

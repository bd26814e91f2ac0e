"""The three lines that end a run: what is guaranteed, the error to expect, what is left out.

They are short. The exact statements are in the manifest, and printed by --verbose and --dry-run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from beam_dpcount.commands import manifest
from beam_dpcount.commands.report import LEVEL

if TYPE_CHECKING:
    from beam_dpcount.commands.task import Task

# The first line of a --dry-run.
DRY = "Dry run: no row is counted, and nothing is spent or written. What the run would say:"


def lines(task: Task) -> list[str]:
    """Where the exact statements are, and the three lines."""
    where = manifest.path_of(str(task.options.output))
    return [
        f"manifest: {where} (the exact statements)",
        guarantee(task),
        f"Error to expect ({100 * LEVEL:g} %): {task.error()}",
        left_out(task),
    ]


def guarantee(task: Task) -> str:
    """The budget, whom or what it protects, and in which releases."""
    options = task.options
    replayed = options.secret_env is not None or options.secret_file is not None
    which = "under this secret and --run-id" if replayed else "in this run"
    if task.goes_on:
        which = "in all runs with this --state"
    return (
        f"Guarantee: {task.budget()} for {task.unit()}, over all releases {task.covers()}{which}."
    )


def left_out(task: Task) -> str:
    """What no stated error covers."""
    estimate, horizon = task.estimate(), task.steps
    some = [each for each in estimate.left_out if each != estimate.unlikely]
    if not some:
        return f"Left out: nothing; rows after row {horizon:,} of a key have no release."
    return f"Left out, and not in that error: {'; '.join(some)}."

"""Draws what a command wrote: --plot by matplotlib, --report as a page of HTML."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from beam_dpcount.commands.figures import keys
from beam_dpcount.commands.page import write
from beam_dpcount.commands.report import UNBOUNDED

if TYPE_CHECKING:
    from beam_dpcount.commands.task import Task

SHOWN = (
    "PRIVATE: this picture shows the exact counts, that is, the data, and no guarantee is for it. "
    "Publish one without --show-truth."
)


def draw(task: Task, warnings: Sequence[str]) -> list[str]:
    """Draws --plot and --report; returns warnings about keys that could not be drawn.

    The page holds `warnings`, those on the budget and the rows.
    """
    options, picture = task.options, task.picture()
    if options.plot:
        from beam_dpcount.commands.figures import png  # here: matplotlib is an extra

        below = SHOWN if options.show_truth else task.guarantee()
        if options.show_truth and options.user is not None:
            below = f"{below} Note: {UNBOUNDED}."
        png.draw(picture, options.plot, below, task.truth)
    if options.report:
        write.write(task, picture, warnings)
    return keys.missing(options, picture.keys)

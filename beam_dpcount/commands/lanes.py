"""Which lane a run takes: whole columns, without Beam, or rows, in a pipeline.

Output, manifest and account are the same to the byte, and none of them tells the lane: only a dry
run does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from beam_dpcount.arguments import texts
from beam_dpcount.arguments.metrics import metrics_of
from beam_dpcount.statistics.metrics import People

if TYPE_CHECKING:
    from beam_dpcount.commands.task import Task

# What rows are counted one by one for, in the order in which it is looked for. All of it is public.
_ONE_BY_ONE: Sequence[tuple[str, Callable[[Any], bool]]] = (
    ("--path streaming", lambda options: options.path == "streaming"),
    ("--check", lambda options: options.check),
    ("files elsewhere", lambda options: any("://" in path for path in options.input)),
    ("people who are active", lambda options: counts_activity(options)),
    ("--rejected", lambda options: options.rejected is not None),
    ("--on-reject raise", lambda options: options.on_reject == "raise"),
)


def counts_activity(options: Any) -> bool:
    """Whether people count while they are active, and not once a key."""
    given = getattr(options, "metric", None)
    if not any(isinstance(metric, People) for metric in metrics_of(given)):
        return False
    lasts = any(texts.view(view).name == "last" for view in options.view or ())
    return lasts or options.per_user is None


def lane_of(task: Task, flags: Sequence[str], names: Collection[str]) -> Any:
    """The lane of a task, by its options alone.

    Args:
      task: what is counted; it is told whether columns suffice.
      flags, names: options for Beam, and ours, as for `pipeline.beam_options`.
    """
    why = needs_rows(task, flags)
    task.by_columns = not why
    if why:
        from beam_dpcount.commands.pipeline import Pipeline  # here: it imports Beam

        return Pipeline(flags, names, why)
    from beam_dpcount.commands import by_columns  # here: few commands need it

    return by_columns.ByElement() if task.people_are_public else by_columns.ByColumns()


def needs_rows(task: Task, flags: Sequence[str]) -> str:
    """Why rows are counted one by one; empty if columns suffice."""
    if task.name not in ("count", "ticks"):
        return f"the command {task.name}"
    if flags:
        return "options for Beam"
    return next((name for name, asks in _ONE_BY_ONE if asks(task.options)), "")

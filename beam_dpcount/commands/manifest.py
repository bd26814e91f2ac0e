"""What stands beside every output: what it holds, what is guaranteed, and what one may do with it.

Of the input a manifest says nothing: it depends on options and on the time of the run alone, as
files of neighbouring inputs must not differ. No digest of the input is there, nor its name: one
who guesses the rows could test the guess by a digest, salted or not.
"""

from __future__ import annotations

import datetime as dt
import json
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import beam_dpcount as dp
from beam_dpcount.budget.budgets import Budget
from beam_dpcount.commands.files.addresses import name_of
from beam_dpcount.commands.files.beside import beside, created
from beam_dpcount.commands.files.formats import InputError
from beam_dpcount.commands.files.inputs import exists_afar, remedy
from beam_dpcount.commands.report import unlabelled

if TYPE_CHECKING:
    from beam_dpcount.commands.task import Task

# Options that say nothing of what was released, or name files.
_LEFT_OUT = frozenset(
    ("input", "output", "output_format", "plot", "plot_keys", "report", "rejected", "show_truth")
) | {
    "secret_env",
    "secret_file",
    "show_header",
    "memory",
    "overwrite",
    "account",
    "state",
    "delay",
    "save_plan",
    "check",
    "dry_run",
    "verbose",
}

_MAY = (
    "Publish the output, and keep it for as long as you like.",
    "Compute whatever you like from it, without looking at the rows: rounding, sums, differences, "
    "smoothing, plots, comparisons with public data. It costs nothing, and the guarantee stays.",
)
_MAY_NOT = (
    "Take it for exact: each value has noise, whose standard deviation is said beside it.",
    "Choose among values for being high or low, and then trust their intervals: what was chosen "
    "for it is further off than they say.",
    "Publish with it what was computed from the rows without noise (--rejected, --show-truth, "
    "--check, the command bounds).",
)
_AGAIN = (
    "Count the same rows again without counting the cost: budgets of all runs add up, and a run "
    "that publishes a column which this one protects voids its guarantee; --account detects both.",
)
_AGAIN_OF_STATE = (
    "Count the same rows again without this state, or with a copy of it, without counting the "
    "cost: budgets of all such counts add up, and one that publishes a column which this one "
    "protects voids its guarantee; --account detects both.",
)
_AGAIN_REPLAYED = (
    "Count the same rows again with other options, or rows that have changed, without counting the "
    "cost: budgets of all such runs add up, and one that publishes a column which this one "
    "protects voids its guarantee; --account detects both.",
)
_COLUMNS = {
    "rank": "the place of the word among those of the release, 1 for the largest private count",
    "word": "the word that is counted",
    "value": "the private value: what is estimated, plus noise",
    "low": "the lower end of the 95 % band of a word named beforehand",
    "high": "the upper end of it",
    "stddev": "the standard deviation of the noise in each value of the line; public",
}


def path_of(output: str) -> str:
    return f"{output.rstrip('/')}.manifest.json"


def text(task: Task, budget: Budget) -> str:
    """The manifest of a task whose transform is applied, as JSON."""
    options, counter, estimate = task.options, task.counter, task.estimate()
    again = _AGAIN
    if options.secret_env is not None or options.secret_file is not None:
        again = _AGAIN_REPLAYED
    if task.goes_on:
        again = _AGAIN_OF_STATE
    parameters = {n: x for n, x in options.given.items() if n not in _LEFT_OUT}
    about = {
        "file": name_of(options.output),
        "what": task.heading,
        "command": task.name,
        "guarantee": task.guarantee(),
        "budget": _budget(task, budget),
        "protects": task.scope(),
        "neighbours": str(counter.change),
        "public": task.public(),
        "mechanism": task.mechanism(),
        **task.released_ticks(),
        "estimates": estimate.what,
        "left_out": list(estimate.left_out),
        "errors": task.errors(estimate),
        "remarks": task.remarks(),
        "notes": [unlabelled(note) for note in task.notes()],
        "columns": {name: _meaning(task, name) for name, _ in task.table().schema},
        "parameters": {n: _plain(x) for n, x in parameters.items() if not n.endswith("_file")},
        "you_may": _MAY,
        "you_may_not": [*again, *_MAY_NOT],
        "made_by": f"beam_dpcount {dp.__version__}",
        "time": dt.datetime.now(dt.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "time_is": "the start of the run on the machine's clock, as public as the file's own time",
    }
    return json.dumps(about, indent=2, ensure_ascii=False) + "\n"


def _budget(task: Task, budget: Budget) -> dict[str, float]:
    numbers = {n: getattr(budget, n) for n in ("epsilon", "delta", "rho") if hasattr(budget, n)}
    select = getattr(task.options, "select_delta", None)
    return numbers if select is None else numbers | {"delta_for_keys": select}


def _meaning(task: Task, name: str) -> str:
    if own := task.meaning(name):
        return own
    at_clock, keyed = not task.people_are_public, task.options.key is not None
    placed = {
        "key": "what is counted apart" if keyed else 'always "all": there is one count',
        "step": "which row of the key it is after, from 1",
        "timestamp": "the time of that row, in microseconds since 1970 UTC; empty without times",
    }
    if at_clock:
        placed["step"] = "which tick of the clock it is at the end of, from 1"
        placed["timestamp"] = "the end of that tick, in microseconds since 1970 UTC"
    other = f"the private value of {name}: what is estimated, plus noise"
    return placed.get(name) or _COLUMNS.get(name) or other


def _plain(value: object) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value if isinstance(value, str | int | float | bool) else str(value)


def write(output: str, about: str) -> None:
    """Write the manifest of an output that is complete, or raise an InputError that says so."""
    path = path_of(output)
    try:
        with beside(path) as name, created(name) as file:
            file.write(about.encode())
    except InputError as error:
        raise InputError(f"{error}; the counts are complete: {output}") from None


def check_new(outputs: Sequence[str]) -> None:
    """Raise InputError where one of the outputs is there already."""
    for path in outputs:
        try:
            there = exists_afar(path) if "://" in path else os.path.exists(path)
        except Exception as error:  # each file system raises its own errors
            raise InputError(f"cannot look for {path!r}: {remedy(path, error)}") from None
        if there:
            raise InputError(
                f"{path!r} is there already: give --overwrite to replace it, or name another file; "
                "to count the same rows again spends the budget again"
            )

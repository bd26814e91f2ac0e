"""The one runner of all commands: check, read, count, write, draw and say."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from beam_dpcount.budget.budgets import weakness
from beam_dpcount.commands import manifest, outputs, spending, stop, summary
from beam_dpcount.commands.app import say, warn
from beam_dpcount.commands.files import databases, streams, tables
from beam_dpcount.commands.files.addresses import is_file, is_table
from beam_dpcount.commands.files.events import check, notes, ready
from beam_dpcount.commands.files.formats import InputError, Places
from beam_dpcount.commands.files.inputs import files_of
from beam_dpcount.commands.lanes import lane_of
from beam_dpcount.commands.options import named_as_options
from beam_dpcount.commands.progress import Progress
from beam_dpcount.commands.report import UNBOUNDED, WARNING, past_horizon
from beam_dpcount.noise.replay import ReplayableEntropy

if TYPE_CHECKING:
    from beam_dpcount.commands.task import Task

_NOTES = ("note:", "     ")  # how notes and their tables begin


def run(task: Task, flags: Sequence[str], names: Collection[str]) -> None:
    """Run a task, with flags and names as in `beam_options`.

    Raises:
      ValueError, TypeError, OSError: what the user can fix, in one line each.
    """
    options = task.options
    budget = task.given
    if task.goes_on and not options.check:
        from beam_dpcount.commands import nights  # here: few runs have a state

        nights.run(task, flags, names)
        return
    if options.check and options.dry_run:
        raise InputError(
            "give --check, which reads all rows, or --dry-run, which counts none, not both"
        )
    if options.check and options.save_plan is not None:
        raise InputError("give --check, or --save-plan with or without --dry-run, not both")
    with named_as_options(options):
        task.check()
    lane = lane_of(task, flags, names)
    source = ready(task.source())
    files = files_of(source)
    places = Places([source.label(data.path) for data in files])
    if not options.check:
        outputs.check(options, places.paths)
    with named_as_options(options, task.remedies, task.names):
        transform = task.transform(places)
    if options.check:
        from beam_dpcount.commands import looks  # here: it imports Beam

        looks.look(task, source, transform)
        return
    check(source, files)  # after the options: a mistake in one is reported before a row is read
    if options.save_plan is not None:
        from beam_dpcount.commands import plan_files  # here: few runs save one

        plan_files.save(task, flags)
    lane.prepare(task, source, files, transform)
    about = manifest.text(task, budget)
    place = streams.place_of(options.output, options.output_format)
    task.output = tables.Output(place, task.table(), about)
    table = _table(task)
    lane.write(task.output)
    weak = weakness(budget, getattr(options, "select_delta", None) or 0.0)
    warned, missing = [f"warning: {weak}"] if weak else [], []
    told = [*warned, *task.notes(), *task.outlook(), *notes(source, files)]
    warnings = [line for line in told if line.startswith(WARNING)]
    told = [line for line in told if line not in warnings]
    named = {data.path: name for data, name in zip(files, places.paths, strict=True)}
    if options.dry_run:
        foretold = [*outputs.there(options), *spending.foretold(task, named), *task.foretold()]
        say([summary.DRY, *warnings, *told, f"note: {lane.says}", *foretold])
        return
    beside = manifest.path_of(place) if is_file(options.output) else None
    made = place, beside, options.rejected, options.plot, options.report
    stop.expect(*(path for path in made if path))
    size = sum(data.size_in_bytes for data in files)
    # Without a manifest the exact sentences are nowhere else.
    verbose = options.verbose or beside is None
    with spending.entered(task, place, named, flags) as spent:
        warn(warnings)
        # How much is released is said in any case, before the budget is spent: it has no label.
        say([*(line for line in told if verbose or line[:5] not in _NOTES), *spent])
        late = finished(lane, size)
    if table is not None:
        _insert(task, table)
    elif beside is None:
        streams.give_out(place)
    else:
        manifest.write(place, about)
    past = past_horizon(task.steps, late)
    if options.plot or options.report:
        if options.show_truth:
            from beam_dpcount.commands.files.read import all_events  # here: it imports Beam

            task.truth = task.exact(all_events(source), places)
        try:
            with Progress("drawing"):
                from beam_dpcount.commands import drawing  # here: few runs draw

                missing = drawing.draw(task, [*warned, *past])
        except InputError as error:
            raise InputError(f"{error}; the counts are complete: {task.where}") from None
    warn([*past, *missing, *_of_truth(options)])
    try:
        say([*_written(task), *(task.statements() if verbose else summary.lines(task))])
    except BrokenPipeError:
        raise
    except OSError as error:
        raise InputError(f"{error}; the counts are complete: {task.where}") from None


def finished(lane: Any, size: int) -> Any:
    """Counts, and shows how far it has come; as `Pipeline.run`."""
    with Progress(size=size) as progress:
        return lane.run(progress)


def _table(task: Task) -> databases.DatabaseTable | None:
    """The table that is the output, if it is one; an InputError if it takes no rows of this run."""
    if not is_table(task.options.output):
        return None
    table = databases.DatabaseTable(task.options.output, task.table(), task.guarantee())
    table.check(grows=isinstance(task.entropy, ReplayableEntropy))
    return table


def _insert(task: Task, table: databases.DatabaseTable) -> None:
    """Inserts what was released."""
    stop.note(task.where, "the table has all rows of this run, or none")
    try:
        inserted = table.insert(task.output.records())
    except InputError as error:
        path = streams.spared(task.output.path, table.name)
        raise InputError(f"{error}; the counts are complete, and charged: {path}") from None
    stop.note(task.where, "the table has all rows of this run")
    say([f"new rows in the table: {inserted:,}"])


def _of_truth(options: argparse.Namespace) -> list[str]:
    """Warnings about a picture of the exact counts."""
    if not options.show_truth:
        return []
    unbounded = [f"{WARNING}{UNBOUNDED}"] * (options.user is not None)
    return [f"{WARNING}the picture shows the exact counts: it is private", *unbounded]


def _written(task: Task) -> list[str]:
    """What was written, and what a command found of it."""
    options = task.options
    return [
        task.written(),
        *([f"picture: {options.plot}"] if options.plot else []),
        *([f"report: {options.report}"] if options.report else []),
        *([f"rejected rows (private): {options.rejected}"] if options.rejected else []),
        *task.findings(),
    ]

"""A run with --state: it counts on where the last one ended, and all runs are one count.

What it reads, releases and writes in which order is in `files.states`.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Collection, Sequence
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from beam_dpcount.budget import account_file as accounts
from beam_dpcount.budget.account import Account, AccountPeriods
from beam_dpcount.budget.budgets import weakness
from beam_dpcount.commands import manifest, outputs, spending, stop, summary
from beam_dpcount.commands.app import say, warn
from beam_dpcount.commands.by_columns import LABEL, all_rows
from beam_dpcount.commands.files import growing, states, tables
from beam_dpcount.commands.files.addresses import is_file, is_table, name_of
from beam_dpcount.commands.files.columns import columns_of
from beam_dpcount.commands.files.events import check, notes, ready
from beam_dpcount.commands.files.formats import STANDARD, InputError, InputFile, Places, Source
from beam_dpcount.commands.files.inputs import files_of
from beam_dpcount.commands.lanes import needs_rows
from beam_dpcount.commands.options import budget_of, named_as_options, option
from beam_dpcount.commands.progress import Progress
from beam_dpcount.commands.report import WARNING, many
from beam_dpcount.counters.moments import instant
from beam_dpcount.counters.periods import account_periods
from beam_dpcount.lanes.parts import PartsLane
from beam_dpcount.noise.replay import StateEntropy
from beam_dpcount.states.state_file import StateFile

if TYPE_CHECKING:
    from beam_dpcount.commands.sentence import Sentence

_NIGHTS = 7  # whose numbers of ticks say what is usual
_SECRET = 32
_BEGAN = "{option}: the state {state!r} was made with {was}, and here it is {now}: "
_CHANGED = (
    f"{_BEGAN}a count goes on as it began; to change it give another --state and --output, whose "
    "budget is spent anew"
)
_KEYS = (
    f"{_BEGAN}a count goes on with its keys, as noise for people depends on how many there are; "
    "count new keys beside it, with a --state, --output and budget of their own"
)
# Options that a run with a state does not take, and why.
_REFUSED = {
    "secret_env": "the state has a secret of its own",
    "secret_file": "the state has a secret of its own",
    "run_id": "the state names its runs",
    "select_keys": "a state knows listed keys only: give --keys",
    "alarm": "alarms do not go on from run to run: read the output for them",
    "show_truth": "a run reads no rows of ticks that are released already",
    "output_format": "the name of OUT says it",
}


def run(task: Any, flags: Sequence[str], names: Collection[str]) -> None:
    """Count on; as `runner.run`, of a `Sentence`."""
    options = task.options
    _check(task, flags)
    options.account = states.account_of(options.state, options.account)
    with named_as_options(options):
        task.check()
    source = ready(task.source())
    files = files_of(source)
    places = Places([source.label(data.path) for data in files])
    outputs.check_table(options)
    growing.check(options.output)
    _check_places(task, places.paths)
    if options.dry_run and not os.path.exists(options.state):
        _foretell(task, source, files, places, None)
        return
    with states.alone(options.state):
        state = states.last_state(options.state, options.account)
        if options.dry_run:
            _foretell(task, source, files, places, state)
            return
        _run(task, source, files, places, state)


def _check(task: Sentence, flags: Sequence[str]) -> None:
    """Refuse what does not go with --state, by name."""
    options = task.options
    for name, why in _REFUSED.items():
        if name in options.given:
            raise InputError(f"{option(name)} does not go with --state: {why}")
    if options.given.get("late", "drop") != "drop":
        raise InputError("--late fold does not go with --state: rows of released ticks are over")
    if options.output == STANDARD:
        raise InputError("--output - does not go with --state, whose runs add to one output")
    if "://" in options.state:
        raise InputError(f"--state {options.state!r} must be on this machine: give a local file")
    task.by_columns = True
    if why := needs_rows(task, flags):
        raise InputError(f"--state counts whole columns, which excludes {why}: leave one out")
    for name in ("plot", "report"):
        whole = not is_table(options.output) and not growing.is_folder(options.output)
        if getattr(options, name) and not whole:
            raise InputError(f"--{name} reads the output back: give a .csv or .jsonl file")


def _check_places(task: Sentence, paths: Sequence[str]) -> None:
    """Refuse files that would lie in one place, or be read as rows."""
    options = task.options
    tables.check_place(f"--state {options.state!r}", options.state)
    named = *outputs.place(options), options.plot, options.report
    written = [*filter(None, named), *states.beside(options.state)]
    outputs.check_files(options, paths, written)
    with named_as_options(options):
        spending.check_place(options.account, [*paths, *written])


def _made(
    task: Sentence, source: Source, files: Sequence[InputFile], places: Places, state: StateFile
) -> PartsLane:
    """What counts on from a state."""
    options = task.options
    task.state_entropy = StateEntropy(state.secret, "state")
    with named_as_options(options, task.remedies, task.names):
        transform = task.transform(places)
    check(source, _unread(files, state))
    if state.options:
        _check_same(options, state, _asked(task))
    if options.save_plan is not None:
        from beam_dpcount.commands import plan_files  # here: few runs save one

        plan_files.save(task, ())
    with named_as_options(options):
        lane = PartsLane(transform, LABEL, options.memory, task.split, state.count)
    task.use(transform)
    return lane


def _run(
    task: Sentence,
    source: Source,
    files: Sequence[InputFile],
    places: Places,
    before: StateFile | None,
) -> None:
    options = task.options
    new = before or _new(options)
    lane = _made(task, source, files, places, new)
    about = manifest.text(task, task.given)
    output = growing.growing(options.output, task.table(), about, task.guarantee())
    ticks, made = task.count.ticks_released, list[str]()
    if before is None:
        if not ticks:
            say(["no tick has ended yet: nothing is counted or charged; run again once one has"])
            return
        if not options.overwrite:
            output.check_new()
        state, made = _created(task, replace(new, options=_asked(task)))
    else:
        state = _complete(options.state, before, output)
    task.account = spending.of_count(task, accounts.read_account(options.account))
    weak = weakness(task.given)
    warned = [f"warning: {weak}"] if weak else []
    if before is None:  # the same in each run
        warn([*warned, *(line for line in task.notes() if line.startswith(WARNING))])
    if ticks > state.ticks:
        _check_usual(options, state, ticks - state.ticks)
        stop.note(options.state, "the next run counts these ticks")
        told = [line for line in task.notes() if options.verbose and line[:5] == "note:"]
        say([*made, *told])
        state = _counted(task, source, files, lane, state, output)
        said = [f"{_ticks(task, ticks, before)} added: {options.output}"]
    else:
        said = ["no tick has ended since the last run: nothing was counted or added"]
    if is_file(options.output):
        manifest.write(options.output, about)
    missing = []
    if options.plot or options.report:
        from beam_dpcount.commands import drawing  # here: few runs draw

        task.output = tables.Output(options.output, task.table(), about)
        with Progress("drawing"):
            missing = drawing.draw(task, warned)
    warn([*missing, *_ending(task)])
    said += [f"{name}: {path}" for name in ("plot", "report") if (path := getattr(options, name))]
    # Without a manifest the exact sentences are nowhere else.
    verbose = options.verbose or not is_file(options.output)
    say([*said, *(task.statements() if verbose else summary.lines(task))])


def _ticks(task: Sentence, ticks: int, before: StateFile | None) -> str:
    """Which ticks a run released, in words."""
    first = 1 if before is None else before.ticks + 1
    which = f"tick {ticks:,}" if first == ticks else f"ticks {first:,} to {ticks:,}"
    return which if task.is_endless else f"{which} of {task.steps:,}"


def _ending(task: Sentence) -> list[str]:
    """A warning once the last tenth of the clock has begun."""
    if task.is_endless or 10 * task.count.ticks_released < 9 * task.steps:
        return []
    left, end = task.count.ticks_left, instant(task.grid.borders(task.steps, 1)[1])
    what = f"{many(left, 'tick')} of {task.steps:,} are left" if left else "the clock has ended"
    return [
        f"warning: {what}: this count ends at {end}. To go on after it give another --state and "
        "--output, with --start at that time: the new count has a budget of its own, and one who "
        "is in both is covered by the sum of the two"
    ]


# The state


def _new(options: Any) -> StateFile:
    """The state of a count that has not begun."""
    output, account = _recorded(options), states.recorded(options.state, options.account)
    return StateFile(uuid.uuid4().hex, os.urandom(_SECRET), {}, output, account)


def _recorded(options: Any) -> str:
    """How a state names its output."""
    if not is_table(options.output):
        return states.recorded(options.state, options.output)
    return f"table={name_of(options.output)}"  # a database may move


def _asked(task: Sentence) -> dict[str, str]:
    """The options that decide what is counted, as text."""
    counted = {n: x for n, x in task.options.counted.items() if n not in ("input", "keys_file")}
    counted |= task.lists  # whether they stand in a file or on the command line
    return {name: repr(value) for name, value in sorted(counted.items())}


def _claim(state: StateFile) -> str:
    """A digest of the public options of a state."""
    text = json.dumps([state.options, state.output], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _check_same(options: Any, state: StateFile, asked: dict[str, str]) -> None:
    """Refuse options that are not those with which the state was made."""
    for name in sorted({*asked, *state.options}):
        was, now = (each.get(name, "not given") for each in (state.options, asked))
        if was != now:
            said = {"option": option(name), "state": options.state, "was": was, "now": now}
            raise InputError((_KEYS if name == "keys" else _CHANGED).format(**said))
    if (here := _recorded(options)) != state.output:
        raise InputError(
            f"--output {here!r}: the releases of --state {options.state!r} are in {state.output!r} "
            "(from its folder): give that, and copy it when the run has ended"
        )


def _created(task: Sentence, state: StateFile) -> tuple[StateFile, list[str]]:
    """A new state, once it is charged for all of its runs; and what to say of that.

    Raises:
      AccountError: it costs more than is left, or uses columns as another run does not.
    """
    options, made = task.options, list[str]()
    path, own = options.account, f"{options.state}.account"
    if path == own and accounts.is_to_be_made(path):
        with named_as_options(options):
            accounts.create(path, budget_of(options), options.user, _periods(options))
        made = [f"account: {path} (new, private)"]
    claim = _claim(state)
    with named_as_options(options), accounts.locked(path) as (account, add):
        for entry in account.states.values():
            if entry.claim == claim and not entry.tick:
                # It was charged, nothing left, and its file is lost: this one takes its place.
                state = replace(state, id=entry.id)
                line = accounts.state_line(entry, entry.generation, finished=state.digest, tick=0)
                states.create(options.state, state, add, line)
                return state, [*made, f"account {path}: run {entry.run} has been charged for this"]
        if path == own and account.states:
            _refuse_lost(options, account)
        said = spending.charge(
            task,
            account,
            lambda line: states.create(options.state, state, add, line),
            state={"id": state.id, "claim": claim, "digest": state.digest},
        )
    return state, [*made, *said]


def _refuse_lost(options: Any, account: Account) -> None:
    """A better word than that nothing is left, where a state has gone."""
    (entry, *_) = account.states.values()
    raise InputError(
        f"--state {options.state!r} is missing, and its account {account.path!r} says that it "
        f"released {many(entry.tick, 'tick')}: restore it; to count the same rows anew, at their "
        "whole cost again, give another --state and --output"
    )


def _periods(options: Any) -> AccountPeriods | None:
    """The periods of a new account, if it is for any."""
    if options.per is None:
        return None
    return account_periods(options.per.text, options.timestamp, options.zone, options.start)


def _complete(path: str, state: StateFile, output: growing.Growing) -> StateFile:
    """The state, once the output has all that runs so far released."""
    if state.rows:
        output.add(_unpacked(state.rows, output.schema), state.size)
        state = replace(state, size=output.size, rows=b"")
        states.replace(path, state)
    elif output.size != state.size:
        raise InputError(
            f"{output.path!r} is not as the last run left it ({state.size:,} {output.unit}, and "
            f"now {output.size:,}): restore it, as past releases never change; copies are yours to "
            "edit"
        )
    return state


def _check_usual(options: Any, state: StateFile, new: int) -> None:
    """Refuse many more ticks than usual: a clock may have jumped, and they would be lost."""
    if options.until is None and state.lately and new > 2 * median(state.lately):
        raise InputError(
            f"{new:,} ticks have ended since the last run, and {median(state.lately):g} are usual: "
            "if this machine's clock is right, give --until TIME, by which ticks must have ended; "
            "rows that come later for a tick that is released never count"
        )


# Counting


def _counted(
    task: Sentence,
    source: Source,
    files: Sequence[InputFile],
    lane: PartsLane,
    state: StateFile,
    output: growing.Growing,
) -> StateFile:
    """Counts the rows of ticks that ended since, and has the output grow by their releases."""
    options, ticks = task.options, task.count.ticks_released
    generation = states.begin(state, options.account)
    unread = _unread(files, state)
    # At a tick's end begins the next: a file with a row from there on is read again.
    end = None if task.count.ticks_left == 0 else task.grid.borders(ticks, 1)[1]
    whole = [_name(data) for data in files if data not in unread]
    with Progress(size=sum(data.size_in_bytes for data in unread)):
        for data in unread:
            last = _take(source, data, lane)
            if data.path != source.spool and (end is None or last is None or last < end):
                whole.append(_name(data))
        rows = growing.in_order(all_rows(lane, task.table(), output.schema), task.keys)
    lately = state.lately if state.runs > 1 else ()
    following = replace(
        state,
        count=lane.state,
        runs=state.runs + 1,
        ticks=ticks,
        lately=(*lately, ticks - state.ticks)[-_NIGHTS:],
        files=tuple(whole),
        rows=_packed(rows),
    )
    states.finish(options.state, following, options.account, generation)
    stop.note(options.state, "the state has the releases, and the next run writes them")
    stop.writes()
    following = _complete(options.state, following, output)
    stop.note(options.state, "the output is complete")
    return following


def _take(source: Source, data: InputFile, lane: PartsLane) -> int | None:
    """Has a lane count a file; the time of its last row."""
    last = None
    for columns in columns_of(source, data._replace(may_grow=True), lane.contents):
        if len(columns.micros):
            at = int(columns.micros.max())
            last = at if last is None else max(at, last)
        lane.add(columns)
    return last


def _unread(files: Sequence[InputFile], state: StateFile) -> list[InputFile]:
    """Those that runs before have not counted whole."""
    known = {*state.files}
    return [data for data in files if _name(data) not in known]


def _name(data: InputFile) -> tuple[str, int]:
    """What a file that was counted whole is known by."""
    return os.path.realpath(data.path), data.size_in_bytes


def _packed(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as to:
        to.write_table(rows)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _unpacked(data: bytes, schema: pa.Schema) -> pa.Table:
    return pa.ipc.open_stream(data).read_all().cast(schema)


def _foretell(
    task: Sentence,
    source: Source,
    files: Sequence[InputFile],
    places: Places,
    state: StateFile | None,
) -> None:
    """What a run would say."""
    options = task.options
    _made(task, source, files, places, state or _new(options))
    if is_table(options.output):
        output = growing.growing(options.output, task.table(), "", task.guarantee())
        _ = output.check_new() if state is None else output.size
    ticks, so_far = task.count.ticks_released, 0 if state is None else state.ticks
    new = f"note: {many(max(ticks - so_far, 0), 'tick')} would be added to {options.output}"
    costs = ["note: the state has been charged: the run would cost nothing more"]
    if state is None:
        costs = [f"note: a new account, {options.account}, would have this run's budget"]
        if not accounts.is_to_be_made(options.account):
            costs = spending.foretold(task, {})
    weak = weakness(task.given)
    told = [*([f"warning: {weak}"] if weak else []), *task.notes(), *notes(source, files)]
    say([summary.DRY, *told, new, *costs, *task.foretold()])

"""A run with --state: it counts on where the last one ended, and all runs are one count.

What it reads, releases and writes in which order is in `files.states`.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Collection, Sequence
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from beam_dpcount.arguments.kinds import Length
from beam_dpcount.budget import account_file as accounts
from beam_dpcount.budget.account import AccountPeriods
from beam_dpcount.budget.budgets import weakness
from beam_dpcount.commands import manifest, outputs, spending, stop, summary
from beam_dpcount.commands.app import say, warn
from beam_dpcount.commands.by_columns import LABEL, all_rows
from beam_dpcount.commands.files import growing, lines, states, tables
from beam_dpcount.commands.files.addresses import is_file, is_table, name_of
from beam_dpcount.commands.files.columns import columns_of
from beam_dpcount.commands.files.events import check, notes, ready
from beam_dpcount.commands.files.formats import STANDARD, InputError, InputFile, Places, Source
from beam_dpcount.commands.files.inputs import files_of
from beam_dpcount.commands.lanes import counts_activity, needs_rows
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
_FIXED = (
    "{option} is {now}, and --state {state!r} was made with {was}: it is fixed for the life of a "
    "count. "
)
_CHANGED = (
    f"{_FIXED}To count otherwise give another --state and --output, which spend a budget of their "
    "own"
)
_KEYS = (
    f"{_FIXED}Noise for people depends on how many keys there are. Count new keys beside these, "
    "with another --state and --output, which spend a budget of their own"
)
# Options that a run with a state does not take, and why.
_REFUSED = {
    "secret_env": "the state has a secret of its own",
    "secret_file": "the state has a secret of its own",
    "run_id": "the state names its runs",
    "select_keys": "a state knows listed keys only: give --keys",
    "hierarchy_file": "a state knows listed keys only: give --keys",
    "alarm": "alarms do not go on from run to run: read the output for them",
    "show_truth": "a run reads no rows of ticks that are released already",
    "output_format": "the name of OUT says it",
}


def run(task: Any, flags: Sequence[str], names: Collection[str]) -> None:
    """Count on; as `runner.run`, of a `Sentence`."""
    options = task.options
    _check(task, flags)
    if os.path.islink(options.state):
        options.state = os.path.realpath(options.state)  # a new one takes its place
    options.account = states.account_of(options.state, options.account)
    with named_as_options(options):
        task.check()
    source = ready(task.source())
    files = [data for data in files_of(source) if data.size_in_bytes]  # a day without events
    places = Places([source.label(data.path) for data in files])
    outputs.check_table(options)
    growing.check(options.output)
    _check_places(task, places.paths)
    if options.dry_run and not states.is_there(options.state):
        _foretell(task, source, files, places, None)
        return
    with states.alone(options.state):
        state = states.last_state(options.state, options.account, options.dry_run)
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
    if counts_activity(options):
        raise InputError(
            "--metric people with --state counts each person once a key and window: give --user "
            "COLUMN and --per-user K (K = 1 is enough for one key), with --view each and --per for "
            "people of each tick; not --max-keys without --per-user, --changes or --view 'last N'"
        )
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
    unread = _unread(files, state)
    check(source, unread)
    _check_ends(source, unread)
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
        _check_not_lost(options)
        if not options.overwrite:
            output.check_new()
        state, made = _created(task, replace(new, options=_asked(task)))
    else:
        state = before
    if not state.runs:
        if options.overwrite:
            output.clear()
        output.check_new()
        size, mark = output.mark()
        state = replace(state, size=size, mark=mark)
    is_late = bool(state.rows)
    state = _complete(options.state, state, output)
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
        if is_late:
            said = [f"added what the last run released before it died: {options.output}"]
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
    verb = "is" if left == 1 else "are"
    what = f"{many(left, 'tick')} of {task.steps:,} {verb} left" if left else "the clock has ended"
    return [
        f"warning: {what}: this count ends at {end}. To go on, start a new count at that time, "
        "with another --state and --output. It has a budget of its own, and for a person in both "
        "counts the two budgets add up"
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
    return {name: _text(value) for name, value in sorted(counted.items())}


def _text(value: object) -> str:
    """A value as it was written: with a time zone a day is not 24 hours."""
    return value.text if isinstance(value, Length) and value.text else repr(value)


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
    with named_as_options(options), accounts.locked(path) as (account, add):
        said = spending.charge(
            task,
            account,
            lambda line: states.create(options.state, state, add, line),
            state={"id": state.id, "digest": state.digest},
        )
    return state, [*made, *said]


def _check_not_lost(options: Any) -> None:
    """Refuse to begin anew where the account of this state knows of one."""
    path = options.account
    if path != f"{options.state}.account" or accounts.is_to_be_made(path):
        return
    for entry in accounts.read_account(path).states.values():
        raise InputError(
            f"--state {options.state!r} is missing, and its account {path!r} says that it "
            f"released {many(entry.tick, 'tick')}: restore it from a backup; to count the same "
            "rows anew, at their whole cost again, give another --state and --output"
        )


def _periods(options: Any) -> AccountPeriods | None:
    """The periods of a new account, if it is for any."""
    if options.per is None:
        return None
    return account_periods(options.per.text, options.timestamp, options.zone, options.start)


def _complete(path: str, state: StateFile, output: growing.Growing) -> StateFile:
    """The state, once the output has all that runs so far released."""
    if state.rows:
        output.add(_unpacked(state.rows, output.schema), (state.size, state.mark))
        size, mark = output.mark()
        state = replace(state, size=size, mark=mark, rows=b"")
        states.replace(path, state)
    elif output.mark() != (state.size, state.mark):
        raise output.changed()
    return state


def _check_usual(options: Any, state: StateFile, new: int) -> None:
    """Refuse many more ticks than usual: a clock may have jumped, and they would be lost."""
    if options.until is None and state.lately and new > 2 * median(state.lately):
        raise InputError(
            f"{new:,} ticks are due, and usually it is {median(state.lately):g}: if this machine's "
            "clock is right, run again with --until TIME; ticks that end after it wait. Rows that "
            "arrive after their tick was released never count"
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
    generation = states.begin(options.state, state, options.account)
    stamps = {data.path: _stamp(data) for data in files}  # before anything is read
    unread = _unread(files, state)
    # At a tick's end begins the next: a file with a row from there on is read again.
    end = None if task.count.ticks_left == 0 else task.grid.borders(ticks, 1)[1]
    opened = {data.path for data in unread}
    whole = [stamps[data.path] for data in files if data.path not in opened]
    with Progress(size=sum(data.size_in_bytes for data in unread)):
        for data in unread:
            last = _take(source, data, lane)
            if data.path != source.spool and (end is None or last is None or last < end):
                whole.append(stamps[data.path])
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
    return [data for data in files if _stamp(data) not in known]


def _stamp(data: InputFile) -> tuple[str, str]:
    """A file's path, and what tells whether it was changed since: any write alters it."""
    path = os.path.realpath(data.path)
    about = os.stat(path)
    times = about.st_mtime_ns, about.st_ctime_ns
    return path, " ".join(map(str, (about.st_dev, about.st_ino, about.st_size, *times)))


def _check_ends(source: Source, files: Sequence[InputFile]) -> None:
    """Refuse a text file whose last line is not whole.

    Were it left out, a row more after it would decide whether it counts. Were it counted, it might
    say something else once it is whole.
    """
    for data in files:
        if source.kind(data.path) != "parquet" and not lines.ends_whole(data):
            raise InputError(
                f"{source.label(data.path)}: its last line has no line break, and may be half "
                "written: run again once it is whole, or end the file with a line break"
            )


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
        _ = output.check_new() if state is None else output.mark()
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

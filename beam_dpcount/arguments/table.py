"""The arguments of all counts, in the order in which they are shown.

An entry is `name METAVAR: kind, words, ...` with its help below; see `parsed`. The words say which
counts take it: those that have all of them.
  files, fields: a command line that reads files; a transform whose input has fields. rows: both.
  elements, ticks: a release after every row; at the ticks of a clock.
  numbers, items: what is counted. sentence: any of them, at the views of a clock.
  people, select, several, thinned, rejects: it may protect people; show keys by their counts; read
    cells that hold several texts; release after every so many rows; refuse values.
  calibrated, run, truth: its noise is calibrated; it releases; it may draw exact counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from beam_dpcount import mechanisms
from beam_dpcount.arguments.argument import Argument, parsed
from beam_dpcount.arguments.metrics import METRICS, example

Changes = Mapping[str, Mapping[str, Any] | None]

ROWS = parsed(
    "input",
    """
    input FILE ...: paths, files, required
        CSV, JSON lines or Parquet files, patterns, or folders of them; - is standard input. A
        column may be a field within another: user.id
    format {csv,jsonl,parquet}: text, files, more
        of the files; default: by their names, such as x.jsonl.gz, and CSV for others and for
        standard input
    delimiter DELIMITER: text, files, default=,, more
        of CSV files (default: a comma)
    multiline: switch, files, more
        quoted cells of CSV files may hold line breaks; default: a row ends with its line. With
        it a broken quote, in any row, ends the run before anything is counted, which shows that
        there is one
    show_header: switch, files, uncounted, more
        where a column is missing, show the first line of the CSV file, which is data if the
        file has no header, or the fields of the line of JSON
    memory SIZE: size, ticks run files, uncounted, default=1G, more
        how much rows of people may take in memory before they go to temporary files (K, M, G;
        default 1G)
    key COLUMN: keys, elements
        the {column} of the (public) keys: texts, or whole numbers, which become text
    key COLUMN ...: levels, ticks
        the {column} of the keys: texts, or whole numbers, which become text
    keys KEY ...: texts, ticks, one_of=keys
        all (public) keys; rows of others do not count, and leave no trace
    keys_file FILE: path, ticks files, one_of=keys, more
        the same, one per line; blank lines are skipped
    hierarchy_file FILE: path, sentence files, one_of=keys, more
        totals at every level of a tree: {key} names a column a level, from the top on, and this CSV
        file has all (public) leaves, in columns of these names. At every tick a total is exactly
        the sum of those below it
    hierarchy: leaves, sentence fields, one_of=keys
        totals at every level of a tree: {key} is a list with a {column} a level, from the top on,
        and this one of all (public) leaves, each a list with a text a level. At every tick a total
        is exactly the sum of those below it
    level_shares W ...: amounts, sentence, more
        of a tree, the parts of the budget that levels get, from the total of all on; 0 leaves a
        level to the sums of the one below. Default: as much above the leaves as makes their
        variance larger by a quarter
    select_keys: switch, ticks select, one_of=keys
        all keys whose private counts are high enough; see {select_delta}
    item COLUMN: keys, items, required
        the {column} of the items to count: texts, or whole numbers, which become text; one that
        is not in the domain counts nothing and takes its step
    domain ITEM ...: texts, items, required, one_of=domain
        all (public) items
    domain_file FILE: path, items files, one_of=domain, more
        the same, one per line; blank lines are skipped
    separator TEXT: text, several files, more
        what stands between the keys or items of a cell that holds several, e.g. ';' (default: a
        cell is one, as a whole); needs {max_items}
    max_items B: whole, several files, example=3, more
        the most keys or items that one row counts: the first in the order given here
        (keys that nobody listed: of the cell); more of them need more noise; needs {separator}
    value COLUMN: numbers, numbers rows, one_of=value
        count the numbers in this {column}; true is 1, and a missing one adds nothing
    where COLUMN=VALUE: condition, numbers files, one_of=value
        count the rows where the column has this text; default: every row counts 1
    where COLUMN=VALUE: condition, sentence files, more
        only rows count where the column has this text
    metrics: list, sentence fields
        what is counted (default: count): a list of texts such as METRICS, or of mappings:
        `metric`, and the arguments of that metric by their names, such as {"metric": "mean",
        "field": "latency", "low": 0, "high": 5}
    metric METRIC: text, sentence files, several times
        what is counted: METRICS; people need {user}. Each may have weight=W, its part of the
        budget beside others', and name=NAME, of its column. Give it once for each
    id COLUMN: ids, elements fields
        the {column} of a public, unique id; replayable noise needs it
    timestamp COLUMN ...: times, elements files
        order rows by this column; or two, DATE TIME, read as one text with a blank between
    timestamp COLUMN ...: times, ticks files, required
        the rows' times; or two, DATE TIME, read as one text with a blank between
    timestamp: times, fields
        the {column} of the event time. Default: the time that rows have already
    timestamp_format FORMAT: text, files
        unix, unix-ms, iso, or a strptime format (%L: milliseconds); default: seconds or ISO 8601
    timestamp_format: text, fields
        unix (seconds), unix-ms, iso, or a strptime format, in which %L is milliseconds without
        padding. Default: numbers are seconds, other texts ISO 8601
    timezone NAME: text, files, default=UTC, more
        of times without an offset (default UTC)
    timezone: text, fields, default=UTC
        of times without an offset, such as Europe/Paris
    """.replace("METRICS", ", ".join(map(example, METRICS))),
)
CLOCK = parsed(
    "clock",
    """
    tick TIME: tick, ticks, required, example=10m
        the time between releases: seconds, or with a unit (s, m, h, d, w) as in 10m
    start TIME: moment, ticks, required
        seconds since 1970, or ISO 8601: 2024-01-31T00:00:00Z (without an offset: in {timezone})
    stop TIME: moment, ticks
        rows at or after it do not count
    horizon N: whole, ticks, example=24
        the number of ticks, in place of {stop}
    until TIME: moment, ticks run, uncounted, more
        write only ticks that have ended by then (default now; not a later time); rows of later
        ticks have no influence. All ticks of the clock are charged, whatever TIME is
    delay TIME: duration, sentence run files, uncounted, example=2h, more
        how long rows may be on their way: only ticks that ended this long ago are written, in place
        of {until}. With {state}, rows that come later still count nothing, ever
    view VIEW: text, sentence files, several times
        which rows each number covers: so-far (default), each (tick alone), 'last N' (ticks, or a
        time such as 7d) or 'restart N' (starting over every N). Several share the budget. Give it
        once for each
    view: text, sentence fields, one_of=view
        which rows each number covers: so-far (default), each (tick alone), "last 7" (ticks, or
        a time such as 7d) or "restart 24" (starting over every 24)
    views: texts, sentence fields, one_of=view
        a list of them, which share the budget
    zone NAME: text, sentence, more
        days and weeks of {tick} and {view} are days of this time zone, such as Europe/Paris, of 23
        to 25 hours; {start} and {stop} without an offset are local times there
    other: name, ticks fields
        a key of {keys}, under which rows with unlisted keys count
    """,
)
SELECT = parsed(
    "select",
    """
    select_delta D: share, ticks select, example=1e-7, more
        the probability that a row ({user}: all rows of a person) may show in a key that is
        nobody else's, in all ticks together: a part of {delta} (default: half; all of it where
        noise is Laplace); beside {rho} or {epsilon} alone, which need it
        ! give e.g. {}, or leave it out for half of {delta}
    at_least N: whole, ticks select, default=1, example=10, more
        keys that count less than N in all are left out, and never tested: of a long tail of
        rare keys most take no time; {bounds} from 0, and no {gap} (default 1)
    select_every N: whole, ticks select, default=1, example=24, more
        test keys at one tick in N only: they are shown from lower counts on, and later (default
        1)
    select_shards: whole, ticks select fields, default=64, example=64
        groups over which keys are spread, by a public function of the key
    """,
)
BUDGET = parsed(
    "budget",
    """
    epsilon E: positive, example=1
        alone: pure epsilon-DP; with {delta}: (epsilon, delta)-DP
    delta D: share, example=1e-6
        with {epsilon}, e.g. 1e-6
        ! give e.g. {}, or leave it out for pure DP
    rho R: positive, example=0.1
        zero-concentrated DP
    """,
)
PEOPLE = parsed(
    "people",
    """
    user COLUMN: keys, people
        protect a person, not a row: the {column} that says whose a row is; the budget is then
        for all releases of all keys together; a row without a person does not count; needs
        {per_user}
    per_user K: whole, people, example=5
        the most rows of a person that count, in all keys together; more of them need more
        noise, fewer leave more out (`beam-dpcount bounds` compares them)
    max_keys M: whole, people, example=3, more
        the most keys of a person (default: as many as rows)
    per TIME: tick, people ticks, example=1d
        bound each person anew in each period (with {zone}: local days), for years, and protect one
        person's rows of any one period, not all of them. Default: one bound over the whole clock
    lateness TIME: duration, people ticks, example=6h, more
        with {per} and {path=}streaming: for how long after its end rows of a period still count;
        then it is forgotten. Default: for as long as the period
    changes W: whole, people ticks, example=4, more
        of people who are active (people alone, at the last ticks): how often a person may become
        active, or stop, in all; even. In place of {per_user}
    per_key J: whole, people, example=2
        the most rows of a person in one key (default: {per_user}; for people, 1)
    gap TIME: duration, people ticks, example=1h, more
        the least time between two rows of a person, as for {tick}; with several rows a key, a
        gap of many ticks takes much less noise; needs {late=}drop with {path=}streaming
    """,
)
COUNT = parsed(
    "count",
    """
    horizon T: whole, elements files, required, example=20000
        the most rows that a key may have
    horizon: whole, elements fields, example=20000
        the most rows that a key may have
    every M: whole, elements thinned, example=10, more
        a release after every M rows of a key; the budget is for all releases, and the noise
        does not depend on M
    mechanism NAME: mechanism, calibrated, more
        MECHANISMS, in any case; default: the one of least largest error
    bounds LOW HIGH: bounds, numbers, default=0 1, example=0 1
        values are clipped to them; wider bounds need more noise; no default for a column of
        values, else 0 1
    unit U: positive, numbers, default=1, example=0.01, more
        values are rounded to multiples of it (default 1)
    prefer {so-far,each,last}: text, sentence, more
        of a count so far and in each tick, which are combined, the view that gets most of the
        budget
    confidence: share, sentence fields, default=0.95, example=0.95
        the level of the intervals
    relation {replace_one,add_remove}: text, elements, default=replace_one, more
        what is protected: that any one row is any other (default), or whether it counts at all,
        which takes less noise
    relation {add_remove,replace_one}: text, ticks, default=add_remove, more
        what is protected: that any one row ({user}: a person's rows) is there (default), or
        that it is any other, which costs up to twice as much
    max_per_tick N: whole, ticks run, example=1000, more
        the sum of a key's rows in one tick is clipped to N times the largest value (default
        2^30, or less if 64 bits would not hold all sums, or noise would grow with it); with a
        lower one some mechanisms take longer clocks
    late {fold,drop}: text, ticks run, more
        with {path=}streaming, rows that come after their tick was released: fold: they count at
        the next one; drop: they do not count. Default: drop where the count needs it, as with
        {gap}, else fold
    on_reject {drop,raise}: text, elements rejects run, default=drop, more
        a value that is not a number counts 0; raise: stop instead, which shows that there is
        one
    path {auto,bounded,streaming}: text, run, uncounted, default=auto, more
        streaming: count by state and timers, as on unbounded input
    allow_runner: switch, fields
        count on a runner that was not tried; see docs/engines.md
    """.replace("MECHANISMS", ", ".join(kind.__name__ for kind in mechanisms.ALL)),
)
NOISE = parsed(
    "noise",
    """
    secret_env NAME: text, run, uncounted, one_of=secret, more
        the environment variable that holds the secret, on every worker
    secret_file FILE: path, run, uncounted, one_of=secret, more
        a file that holds it, readable on every worker
    run_id TEXT: text, run files, default=, more
        public; give another one whenever rows that have changed are counted again (files and
        options are told apart without)
    run_id: text, run fields
        public; names this count of these rows: give another one whenever rows that have changed
        are counted again
    """,
)
OUTPUT = parsed(
    "output",
    """
    output OUT: path, run files, required
        a .csv[.gz], .jsonl[.gz] or .parquet file, a table of postgresql:// or sqlite:///, or -
        (standard output)
    output_format {csv,jsonl,parquet}: text, run files, more
        of --output - (default csv)
    plot PNG: path, run files
        draw the counts of some keys
    report HTML: path, run files
        one page to read and hand on: counts, guarantee, data; needs no network
    alarm LEVEL: alarm, sentence run files, example=100,1,30, more
        with a column that is 1 where an alarm starts: where the first column is above LEVEL by
        more than noise explains, and has been back at LEVEL since the last one. 100,1,30 expects
        at most 1 false alarm in 30 days, of all keys together (the default)
    alarm: alarm, sentence run fields, example=100,1,30, more
        with a field that is true where an alarm starts: where the first column is above the level,
        100, by more than noise explains, and has been back at it since the last alarm. "100,1,30"
        expects at most 1 false alarm in 30 days, of all keys together (the default)
    plot_keys KEY ...: texts, run files, more
        the keys to draw; default: chosen by public facts named in the picture
    overwrite: switch, run files
        replace files of these names that are there already
    state FILE: path, sentence run files
        PRIVATE: count on where the last run with this FILE ended; all of them spend one budget
    account FILE: path, run files
        charge this run to an account, which refuses it if it costs more than is left, or if one
        run publishes a column that another protects
    allow_public COLUMN ...: texts, run files, more
        with --account: columns that may be public in one run and protected in another; the
        account then claims nothing about them. :presence is that a row exists, with its time;
        :unknown are columns of runs in an account of an earlier version
    verbose: switch, run files
        print the exact statements on privacy and errors, which the manifest has, too
    dry_run: switch, run files
        say what a run would guarantee, and how large errors would be; nothing is counted, spent
        or written
    check: switch, run files
        PRIVATE: count nothing, and say which rows would not count as you may think; exit status 1
        if something looks wrong
    save_plan FILE: path, run files, more
        write this command line into a plan, a YAML file that `beam-dpcount run` takes, and then run
        it; with {dry_run} it is written too, and nothing is counted
    rejected FILE: path, elements numbers run files, more
        PRIVATE: where (file, row) and why rows did not count or gave no release, as CSV
    show_truth: switch, truth run files, more
        PRIVATE: also draw exact counts, which are the data; for demonstrations
    """,
    counted=False,
)

ARGUMENTS = (*ROWS, *CLOCK, *SELECT, *BUDGET, *PEOPLE, *COUNT, *NOISE, *OUTPUT)
(DEFAULT_BOUNDS,) = (one.default for one in ARGUMENTS if one.name == "bounds")

ALL_KEYS = "privacy budget, for all releases of all keys together"
# Titles of the help, and what is said below some of them, in their order.
GROUPS: Mapping[str, tuple[str, str | None]] = {
    "": ("", None),
    "input": ("input", None),
    "clock": ("clock (public)", None),
    "select": (
        "keys that nobody listed",
        """\
--select-keys shows a key from the first tick on at which its private count is
  high enough, and then at every tick; how high, and how soon that is, is said
  before the run. What comes before stays hidden, as do keys that never get
  there. Just after a key is shown its releases are too high on average, as they
  were chosen for that; standard deviations and intervals are those of releases
  at their tick, chosen or not.""",
    ),
    "account": ("a new account", None),
    "budget": ("privacy budget, for all releases of one key together", None),
    "people": ("protecting people, each with all their rows", None),
    "tried": ("bounds to try, in all combinations", None),
    "count": ("counting", None),
    "choice": ("choice", None),
    "said": ("what is said", None),
    "noise": (
        "replayable noise",
        "The same noise whenever the same rows of the same files are counted again with the same "
        "options and secret; default: new noise in every run. docs/reliability.md says when.",
    ),
    "output": ("output", None),
}


def applying(
    counts: str,
    own: Sequence[Argument] = (),
    changes: Changes = MappingProxyType({}),
) -> tuple[Argument, ...]:
    """The arguments that a count takes.

    Args:
      counts: its words, as above.
      own: arguments of this count alone.
      changes: what is otherwise here, by the name of an argument; None leaves it out.
    """
    words = set(counts.split())
    if words & {"files", "fields"}:
        words.add("rows")
    found = [one for one in (*ARGUMENTS, *own) if words >= set(one.applies.split())]
    found = [one for one in found if changes.get(one.name, {}) is not None]
    return tuple(replace(one, **(changes.get(one.name) or {})) for one in found)

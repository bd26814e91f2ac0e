"""Which columns runs publish and protect, and what an account claims of several runs together."""

from __future__ import annotations

import csv
import itertools
import json
import math
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import beam_dpcount as dp
from beam_dpcount.budget.account import Account, AccountError, Run
from beam_dpcount.budget.account_file import create, read_account, run_line
from beam_dpcount.budget.account_text import holds
from beam_dpcount.budget.charges import Charge, Charges, charge_of
from beam_dpcount.budget.odometer import PRESENCE, UNKNOWN, ColumnUse, Odometer, column
from beam_dpcount.commands import COMMANDS, count, graph, histogram, sequences, ticks
from beam_dpcount.commands import account as printing
from beam_dpcount.commands.files.formats import Places
from beam_dpcount.commands.task import Task
from beam_dpcount.counters.change import Change, TickChange
from beam_dpcount.counters.charged import charges_of
from beam_dpcount.counters.users import UserChange
from beam_dpcount.statistics.graph_change import GraphChange
from tests.command_lines import EXACT, command, fail, succeed
from tests.each_command import MAIN, MORE, log, rows

COLUMNS = ("a", "b", "c")


def use(public: str = "", protected: str = "") -> ColumnUse:
    return ColumnUse(frozenset(public.split()), frozenset(protected.split()))


# What every command publishes and protects. docs/guide/commands.md has the same, in words.

AT = "--timestamp date time --timestamp-format iso"
CLOCK = f"{AT} --tick 1h --start 0 --horizon 3"
PERSON = "--user who --per-user 2"
TABLE: dict[str, tuple[str, ColumnUse]] = {
    f"count --horizon 9 --key page --value bought --bounds 0 1 {AT} {PERSON}": (
        "count",
        use(":presence page date time who", "bought"),
    ),
    "count --horizon 9 --key page --where what=buy": ("count", use(":presence page", "what")),
    "count --horizon 9 --key page": ("count", use(":presence page")),
    f"ticks --key page --keys a b --metric sum(bought,0,1) {CLOCK} {PERSON}": (
        "ticks",
        use("", ":presence page bought date time who"),
    ),
    f"ticks --metric mean(ms,0,5) --metric rate(what=buy) --where bought=1 --view each {CLOCK}": (
        "ticks",
        use("", ":presence ms what bought date time"),
    ),
    f"ticks --key page --select-keys --where what=buy=now {CLOCK}": (
        "ticks",
        use("", ":presence page what date time"),
    ),
    f"histogram --horizon 9 --key page --item what --domain a b {AT} {PERSON}": (
        "histogram",
        use(":presence page date time who", "what"),
    ),
    "histogram --horizon 9 --item :presence --domain a b": (
        "histogram",
        use(":presence", "::presence"),
    ),
    f"sequences --horizon 9 --key page --letter what --domain a b --max-length 1 {AT}": (
        "sequences",
        use(":presence page date time", "what"),
    ),
    f"graph --horizon 9 --key page --edge u v --weight w --vertices 5 --what cuts {AT}": (
        "graph",
        use(":presence page date time", "u v w"),
    ),
    "graph --horizon 9 --edge u v --vertices 5 --what edges": ("graph", use(":presence", "u v")),
}
COUNT_NOTHING = {"run", "choose", "errors", "bounds", "account", "demo"}
TASKS: dict[str, Any] = {
    kind.name: kind
    for kind in (count.Count, ticks.Ticks, histogram.Histogram, sequences.Sequences, graph.Graph)
}


def task_of(words: str, *more: object, budget: str = "--epsilon 1 --delta 1e-6") -> Task:
    name, *given = f"{words} {budget} --input x.csv --output o.csv".split()
    task: Task = TASKS[name].of(TASKS[name].parser().parse_args([*given, *map(str, more)]))
    return task


@pytest.mark.parametrize("words", TABLE)
def test_every_command_says_which_columns_it_uses(words: str) -> None:
    name, expected = TABLE[words]
    task = task_of(words)
    assert task.name == name
    assert task.column_use() == expected


def test_no_command_and_no_option_of_a_column_is_missing() -> None:
    """A new one must be in the table above, and its column in what the command says it uses."""
    assert {name for name, _ in TABLE.values()} == {*TASKS} == {*COMMANDS} - COUNT_NOTHING
    given: dict[str, set[str]] = {name: set() for name in TASKS}
    for words, (name, expected) in TABLE.items():
        task = task_of(words)
        for action in TASKS[name].parser()._actions:
            if "COLUMN" not in str(action.metavar) or action.dest == "allow_public":
                continue
            value = getattr(task.options, action.dest)
            if value is not None:
                given[name].add(action.dest)
            cells = [value] if isinstance(value, str) else value or []
            names = {column(str(cell).partition("=")[0]) for cell in cells}
            assert names <= expected.public | expected.protected, (words, action.dest)
    for name, kind in TASKS.items():
        actions = kind.parser()._actions
        every = {action.dest for action in actions if "COLUMN" in str(action.metavar)}
        assert given[name] == every - {"allow_public"}, name


CELLS = {"time": "111", "who": "bob", "letter": "b", "u": "1", "v": "0"}  # of the first row
KINDS = {
    **MORE,
    "people": (*MORE["ticks"], "--user", "who", "--per-user", 2),
    "elements of people": (*MORE["histogram"], "--user", "who", "--per-user", 2),
}


@pytest.mark.pipeline
@pytest.mark.parametrize("kind", KINDS)
def test_outputs_follow_what_a_command_says_of_columns(kind: str, tmp_path: Path) -> None:
    """Without noise: which releases there are shows public columns alone, and no other is used."""
    name = {"people": "ticks", "elements of people": "histogram"}.get(kind, kind)
    task = TASKS[{"select": "ticks", "metrics": "ticks", "cuts": "graph"}.get(name, name)]
    words: tuple[object, ...] = (*KINDS[kind], *EXACT)
    words += ("--select-delta", "1e-7") if kind == "select" else ()
    main, first = MAIN[name], rows()

    def released(lines: Sequence[str]) -> tuple[list[tuple[str, ...]], str]:
        out = tmp_path / "out.csv"
        events = log(tmp_path / "events.csv", list(lines))
        succeed("--input", events, *words, "--output", out, main=main)
        with open(out, encoding="utf-8", newline="") as file:
            placed = [(r["key"], r["step"], r["timestamp"]) for r in csv.DictReader(file)]
        return placed, out.read_text(encoding="utf-8")

    given = ["--input", "x.csv", *words, "--output", "o.csv"]
    used = task.of(task.parser().parse_args([*map(str, given)])).column_use()
    placed, whole = released(first)
    names, cells = [*CELLS], first[0].split(",")
    for place, name in [*enumerate(names), (-1, PRESENCE)]:
        other = [*cells[:place], CELLS.get(name, ""), *cells[place + 1 :]]
        lines = [*([",".join(other)] * (place >= 0)), *first[1:]]
        new_placed, new_whole = released(lines)
        if kind != "select" and new_placed != placed:
            assert name in used.public, name
        if new_whole != whole:
            assert name in used.public | used.protected, name
        elif name in used.protected and kind not in ("people", "elements of people"):
            pytest.fail(f"{name} changes nothing: the test would see nothing")


# Several runs


def account_of(total: Any = None, user: str | None = None) -> Account:
    return Account("acc", charge_of(total or dp.PureDP(100.0)), user, "now")


def add(
    account: Account, used: ColumnUse, *allowed: str, once: Any = 1, replaced: Any = None
) -> None:
    charges = Charges(
        Charge(Fraction(once)), Charge(Fraction(once if replaced is None else replaced))
    )
    account.check(charges, used, account.user, allowed)
    number = len(account.runs) + 1
    account.runs[number] = Run(number, "now", "any", charges, used, "", "o", (), end="done")


TICKS = use("", ":presence page at")


def test_what_one_protects_and_another_publishes_is_refused_both_ways() -> None:
    for first, second, said in (
        (use("page", "bought"), use("bought"), "this run publishes what others protect: 'bought'"),
        (use("bought"), use("page", "bought"), "this run protects what others publish: 'bought'"),
        (TICKS, use("page at", "what"), r"publishes what others protect: :presence \(that a row"),
    ):
        account = account_of()
        add(account, first)
        with pytest.raises(AccountError, match=said):
            add(account, second)
        with pytest.raises(AccountError, match="no guarantee would hold"):
            add(account, second, "other")
        add(account, second, PRESENCE, "bought", "page", "at")
        assert "bought" not in account.odometer.claimed
        assert PRESENCE not in account.odometer.claimed


def test_who_protects_a_column_that_is_public_already_is_told_each_time() -> None:
    account = account_of()
    add(account, use("page", "bought"))
    add(account, use("bought"), "bought")
    add(account, use("bought"))  # nothing is claimed about it any more
    with pytest.raises(AccountError, match=r"protects what others publish: 'bought' \(runs 2, 3\)"):
        add(account, use("page", "bought"))


def test_what_is_left_is_said() -> None:
    account = account_of()
    add(account, TICKS, replaced=2)
    assert "satisfies epsilon = 1 for one row: that it exists and what it says in at, page." in (
        holds(account)
    )
    add(account, use("at", "bought"), PRESENCE, "at")
    said = holds(account)
    assert "satisfies epsilon = 3 for one row: what it says in bought, page, rather than" in said
    assert "rather than anything else, all else equal" in said
    assert "Public: :presence, at." in said
    assert (
        "Nothing is claimed about :presence, at, which run 1 protected and run 2 published." in said
    )
    assert "Columns are compared by name: a copy under another name, nested in" in said
    add(account, use("bought page"), "bought", "page")
    assert holds(account).startswith("Nothing is claimed for one row. Public: :presence, at,")
    person = account_of(user="who")
    add(person, use("", ":presence who page"))
    assert "that they have rows and what these say in page, who" in holds(person)
    blank = account_of()
    add(blank, use("page", "what"), replaced=2)
    assert "epsilon = 1 for one row: what it says in what, rather than nothing" in holds(blank)


def test_a_run_that_released_nothing_publishes_nothing() -> None:
    account = account_of()
    add(account, TICKS, replaced=2)
    add(account, use("page", "what"), PRESENCE, "page")
    assert account.spent == Charge(Fraction(3))
    last = account.runs[2]
    account.runs[2] = replace(last, end="nothing was released")
    assert account.spent == Charge(Fraction(1))
    assert account.odometer.claimed == {PRESENCE, "page", "at"}


def test_the_total_is_of_what_is_left() -> None:
    """And is refused where that exceeds the account's, as by ticks that cost more from now on."""
    account = account_of(dp.PureDP(2.5))
    add(account, TICKS, replaced=2)
    said = "this run costs epsilon = 1, and earlier runs then cost epsilon = 2, not epsilon = 1"
    with pytest.raises(AccountError, match=said):
        add(account, use("other", "what"), PRESENCE)
    assert account.spent == Charge(Fraction(1))
    add(account, use("other", "what"), PRESENCE, once="1/2")
    assert account.spent == Charge(Fraction(5, 2))
    assert not account.left


@st.composite
def runs_of_columns(draw: Any) -> tuple[ColumnUse, Charges]:
    some = st.sets(st.sampled_from(COLUMNS))
    shown = draw(some)
    kept = draw(some) - shown
    unnamed = draw(st.sampled_from(["", "", "", "public", "protected"]))
    at_clock = draw(st.booleans())
    if at_clock:
        used = ColumnUse(protected=frozenset({PRESENCE, *shown, *kept}))
    else:
        public = {PRESENCE, *shown, *([UNKNOWN] * (unnamed == "public"))}
        used = ColumnUse(
            frozenset(public), frozenset({*kept, *([UNKNOWN] * (unnamed == "protected"))})
        )
    once = draw(st.integers(1, 3))
    times = draw(st.sampled_from([1, 2]))
    return used, Charges(Charge(Fraction(once)), Charge(Fraction(once * times)))


def in_order(
    several: Sequence[tuple[ColumnUse, Charges]], total: float, allowed: Sequence[str] | None
) -> tuple[Any, ...]:
    """What is finally claimed and spent; that a run is refused. None: runs do as they are told."""
    account = account_of(dp.PureDP(total))
    for used, charges in several:
        amounts = {"once": charges.presence.epsilon, "replaced": charges.replacement.epsilon}
        try:
            add(account, used, *(allowed or ()), **amounts)
        except AccountError as error:
            if allowed is not None:
                return ("refused",)
            told = re.search(r"give \{allow_public=\}(.*?), and", error.remedy)
            assert told
            add(account, used, *shlex.split(told[1]), **amounts)
    return account.odometer.claimed, account.odometer.public, account.spent


@pytest.mark.long
@settings(max_examples=200, deadline=None)
@given(
    st.lists(runs_of_columns(), min_size=1, max_size=4),
    st.integers(2, 20),
    st.sets(st.sampled_from([PRESENCE, UNKNOWN, *COLUMNS])),
)
def test_the_order_of_runs_does_not_matter(
    several: list[tuple[ColumnUse, Charges]], total: int, allowed: set[str]
) -> None:
    ends = {in_order(order, total, [*allowed]) for order in itertools.permutations(several)}
    assert len(ends) == 1
    told = {in_order(order, 1000, None) for order in itertools.permutations(several)}
    assert len(told) == 1


@settings(max_examples=200, deadline=None)
@given(st.lists(runs_of_columns(), min_size=1, max_size=5))
def test_nothing_that_is_claimed_is_public(several: list[tuple[ColumnUse, Charges]]) -> None:
    odometer = Odometer({n: used for n, (used, _) in enumerate(several, 1)})
    assert not odometer.claimed & odometer.public
    assert odometer.claimed <= odometer.protected
    assert odometer.lost | odometer.claimed == odometer.protected
    if PRESENCE in odometer.claimed:
        assert not odometer.public
    assert {name for names in odometer.lost_to.values() for name in names} == odometer.lost


def test_what_has_no_name_meets_everything() -> None:
    unnamed = use("page", ":unknown")
    assert unnamed.conflicts_with(use("at", "what")) == {UNKNOWN}
    assert unnamed.conflicts_with(use("", "page")) == {UNKNOWN, "page"}
    assert use("", ":unknown").conflicts_with(use("", "page")) == frozenset()
    assert use("", "page").conflicts_with(use("", "page")) == frozenset()
    account = account_of()
    add(account, unnamed)
    assert account.odometer.claimed == {UNKNOWN}
    assert "what it says in columns that are not known" in holds(account)
    add(account, use("at", "what"), UNKNOWN)
    assert account.odometer.claimed == {"what"}
    assert "Nothing is claimed about :unknown, which run 1 protected and runs 1, 2" in holds(
        account
    )


# By brute force


def losses(task: Task, counter: Any, before: Sequence[Any], after: Sequence[Any]) -> Fraction:
    """The exact loss of all releases of a task between two logs of rows (page, what, at).

    The largest ratio of the probabilities of an output is that of discrete Laplace noise of one
    parameter, moved by R (x - y): the L1 norm of it over the parameter.
    """
    mechanism = counter.mechanism
    encoder = mechanism.encoder(mechanism.horizon)

    def streams(lines: Sequence[Any]) -> dict[str, np.ndarray]:
        sums = {key: np.zeros(mechanism.horizon) for key in ("a", "b", "shop")}
        placed = sorted((line for line in lines if line is not None), key=lambda line: line[2])
        for step, (page, what, at) in enumerate(placed):
            if task.name == "count":
                sums["shop"][step] += what == "buy"
            elif page in sums:
                sums[page][at // 5] += 1
        return sums

    x, y = streams(before), streams(after)
    moved = sum(float(np.abs(encoder @ (x[key] - y[key])).sum()) for key in x)
    return Fraction(moved).limit_denominator(1000) / counter.law.parameter


def test_a_key_that_changes_loses_twice_as_brute_force_says() -> None:
    """Listed keys a and b, pure epsilon 1: from a to b a row leaves one count and enters another.

    Once ticks and a count of the same rows are public, nothing is left of the time of a row; of its
    key and its action there is, and no two logs lose more than the account says.
    """
    budget = "--epsilon 1 --mechanism BinaryTree"
    clock = task_of(
        "ticks --key page --keys a b --timestamp at --tick 5 --start 0 --horizon 3", budget=budget
    )
    each = task_of(
        "count --key shop --where what=buy --timestamp at --horizon 3",
        *("--allow-public", PRESENCE, "at"),
        budget=budget,
    )
    account = account_of(dp.PureDP(3.0))
    counters = {}
    for task in (clock, each):
        transform: Any = task.transform(Places(["x.csv"]))
        counters[task.name] = transform.counter
        charges, why = charges_of(transform.counter, dp.PureDP(1.0), 0, account)
        assert not why
        used, allowed = task.column_use(), task.options.allow_public or ()
        account.check(charges, used, None, allowed)
        number = len(account.runs) + 1
        account.runs[number] = Run(number, "", task.name, charges, used, "", "", (), end="done")
        if task is clock:
            assert account.spent == Charge(Fraction(1))
    assert account.odometer.claimed == {"page", "what"}
    assert account.spent == Charge(Fraction(3))

    cells = [*itertools.product(("a", "b", "c"), ("buy", "view"), (0, 5, 10))]

    def most(tasks: Sequence[Task], pairs: Iterator[tuple[Any, Any]]) -> Fraction:
        others = ("a", "view", 5), ("b", "buy", 5)
        return max(
            sum(losses(task, counters[task.name], [*others, x], [*others, y]) for task in tasks)
            for x, y in pairs
        )

    there = most([clock], ((cell, None) for cell in cells))
    keys = most([clock], ((x, y) for x in cells for y in cells if x[1:] == y[1:]))
    both = most([clock, each], ((x, y) for x in cells for y in cells if x[2] == y[2]))
    assert (there, keys, both) == (1, 2, 3)


@pytest.mark.parametrize(
    ("change", "of_rho", "of_pure"),
    [
        (TickChange(), 2, 4),  # one sign, no negative products
        (TickChange(-1.0, 1.0), 4, 4),
        (TickChange(-0.5, 1.0), Fraction(9, 4), 4),
        (TickChange(relation="replace_one"), 1, 1),
        (Change(), 1, 1),
        (Change(relation="add_remove"), 4, 4),
        (GraphChange(), 4, 4),
        (UserChange(events=3, keys=3), 4, 4),  # from one person to another
        (UserChange(relation="replace_one", events=3, keys=3), 4, 4),
    ],
    ids=["row", "signs", "some", "replaced", "says", "item", "edge", "people", "others"],
)
def test_a_replacement_costs_its_norm_or_two_changes(
    change: Any, of_rho: Any, of_pure: int
) -> None:
    tree = dp.mechanisms.BinaryTree(50)
    budget: Any
    for budget, factor in ((dp.ZCDP(0.02), of_rho), (dp.PureDP(0.2), of_pure)):
        counter = dp.calibrate(tree, budget, change, unit=0.5 if change.low == -0.5 else 1)
        (once, replaced), _ = charges_of(counter, budget, 0, account_of(dp.ZCDP(9.0)))
        assert float(replaced.rho / once.rho) == pytest.approx(float(factor), rel=1e-12)
        assert replaced.rho >= factor * once.rho * (1 - Fraction(1, 10**12))
    both = dp.ApproxDP(1.0, 1e-6)
    (once, replaced), _ = charges_of(
        dp.calibrate(tree, both, change), both, 0, account_of(dp.ApproxDP(9.0, 1e-3))
    )
    if of_pure == 1:
        assert replaced == once
    else:
        assert replaced.epsilon == 2 * once.epsilon
        more = 1 + math.exp(float(once.epsilon))
        assert float(replaced.delta) == pytest.approx(more * float(once.delta), rel=1e-9)
        assert replaced.delta >= Fraction(more) * once.delta * (1 - Fraction(1, 10**14))


def test_a_person_who_stays_is_replaced_at_the_norm_of_it() -> None:
    tree, person = dp.mechanisms.BinaryTree(50), account_of(dp.ZCDP(9.0), "who")
    for change, factor in (
        (UserChange(events=3, keys=3), 2),
        (UserChange(-1.0, 1.0, events=3, keys=3), 4),
        (UserChange(relation="replace_one", events=3, keys=3), 1),
    ):
        counter = dp.calibrate(tree, dp.ZCDP(0.02), change)
        (once, replaced), _ = charges_of(counter, dp.ZCDP(0.02), 0, person)
        assert replaced.rho == factor * once.rho


# From the command line


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    rows = "page,what,who,at,bought\na,buy,ann,0,1\na,view,bob,5,0\nb,buy,cid,9,1\n"
    (tmp_path / "log.csv").write_text(rows)
    create(str(tmp_path / "acc"), dp.PureDP(4.0), None)
    return tmp_path


def words_of(shop: Path, words: str, *more: object) -> list[object]:
    common = ["--input", shop / "log.csv", "--epsilon", 1, "--account", shop / "acc"]
    return [*common, *words.split(), "--output", shop / "o.csv", *more]


VALUES = "--key page --value bought --bounds 0 1 --horizon 9"
BOUGHT = "--key bought --horizon 9"
HOURS = "--key page --keys a b --timestamp at --tick 5 --start 0 --horizon 4"
ACTIONS = "--key page --where what=buy --timestamp at --horizon 9"
PUBLIC = ("--allow-public", PRESENCE, "at", "page")


def refused(shop: Path, main: Any, words: str, *more: object) -> str:
    """What a run and its dry run both say."""
    line = words_of(shop, words, *more)
    before = (shop / "acc").read_bytes()
    said = fail(*line, run=lambda *given: command(*given, main=main))
    assert fail(*line, "--dry-run", run=lambda *given: command(*given, main=main)) == said
    assert (shop / "acc").read_bytes() == before
    return said


def runs(shop: Path, main: Any, words: str, *more: object) -> str:
    """What a run and its dry run both say of the account."""
    dry = succeed(*words_of(shop, words, *more, "--dry-run"), main=main)
    out = succeed(*words_of(shop, words, *more), main=main)
    (foretold,) = re.findall(r"the run would cost (.*)", dry)
    (said,) = re.findall(r"this run costs (.*)", out)
    assert foretold == said
    return said


@pytest.mark.pipeline
def test_a_column_that_was_protected_is_not_published_unasked(shop: Path) -> None:
    runs(shop, count.main, VALUES)
    said = refused(shop, count.main, BOUGHT)
    assert "this run publishes what others protect: 'bought' (run 1)" in said
    assert "give --allow-public bought, and the account claims nothing about it any more" in said
    assert runs(shop, count.main, BOUGHT, "--allow-public", "bought").startswith("epsilon = 1;")
    printed = succeed(shop / "acc", main=printing.main)
    assert "Nothing is claimed for one row." in printed
    assert "Nothing is claimed about bought, which run 1 protected and run 2 published." in printed
    assert "run 1: public :presence, page; protected bought\n" in printed


@pytest.mark.pipeline
def test_a_count_after_ticks_publishes_that_a_row_is_there(shop: Path) -> None:
    runs(shop, ticks.main, HOURS)
    said = refused(shop, count.main, ACTIONS)
    assert "what others protect: :presence (that a row exists), 'at', 'page' (run 1)" in said
    assert "give --allow-public :presence at page, and" in said
    assert "'page' (run 1)" in refused(shop, count.main, ACTIONS, "--allow-public", PRESENCE, "at")
    assert runs(shop, count.main, ACTIONS, *PUBLIC) == (
        "epsilon = 1, and earlier runs then cost epsilon = 2, not epsilon = 1 (replacing a row, as "
        "it is public that the row exists); left after it: epsilon = 1"
    )
    printed = succeed(shop / "acc", main=printing.main)
    assert re.search(r"1    \S+  ticks    epsilon = 2  1 ", printed)
    assert (
        "satisfies epsilon = 3 for one row: what it says in what, rather than anything" in printed
    )


@pytest.mark.pipeline
def test_ticks_after_a_count_protect_what_is_public(shop: Path) -> None:
    runs(shop, count.main, ACTIONS)
    said = refused(shop, ticks.main, HOURS)
    assert "this run protects what others publish: :presence (that a row exists), 'at'" in said
    assert "or count at a clock" not in said
    assert runs(shop, ticks.main, HOURS, *PUBLIC) == "epsilon = 2; left after it: epsilon = 1"
    assert "this run costs epsilon = 2, but" in refused(shop, ticks.main, HOURS, *PUBLIC)


@pytest.mark.pipeline
def test_the_report_says_what_a_run_costs_whatever_others_did(shop: Path) -> None:
    """Which others there were may depend on their rows: of them it says nothing."""
    pages = []
    for n, before in enumerate(((), (count.main, VALUES))):
        (shop / "acc").unlink()
        create(str(shop / "acc"), dp.PureDP(4.0), None)
        if before:
            runs(shop, *before)
        page = shop / f"page{n}.html"
        more = ("--allow-public", PRESENCE, "page", "--report", page)
        succeed(*words_of(shop, HOURS, *more), main=ticks.main)
        (said,) = re.findall(r"This run costs .*?(?=<)", page.read_text())
        pages.append(said)
    assert pages[0] == pages[1]
    assert pages[0] == (
        "This run costs epsilon = 1 of an account of epsilon = 4 for one row; it protects "
        ":presence, at, page, each unless another run publishes it. If another run publishes that "
        "a row exists, this run costs epsilon = 2 and protects only what the row says in columns "
        "that no run publishes. The account claims nothing about :presence, page."
    )


@pytest.mark.pipeline
def test_accounts_of_the_format_before_take_runs_by_request_alone(shop: Path) -> None:
    file = shop / "acc"
    header = {"account": 1, "total": {"epsilon": "4"}, "user": None, "time": "then"}
    old = {"time": "then", "cost": {"epsilon": "1"}, "said": "", "output": "o.csv", "inputs": []}

    def write(*named: str) -> None:
        lines = [header]
        for n, name in enumerate(named, 1):
            lines += [{"run": n, "command": name, **old}, {"run": n, "end": "done", "time": "then"}]
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))

    write("ticks")
    printed = succeed(file, main=printing.main)
    assert "epsilon = 1 for one row: that it exists and what it says in columns that are" in (
        printed
    )
    assert "run 1: public none; protected :presence, :unknown" in printed
    write("ticks", "count")
    assert read_account(str(file)).spent == Charge(Fraction(4))  # a row in its place
    write("count")
    said = refused(shop, count.main, ACTIONS)
    assert "it is not known which columns run 1 used" in said
    assert "give --allow-public :unknown, and" in said
    runs(shop, count.main, ACTIONS, "--allow-public", UNKNOWN)
    assert "give --allow-public :unknown" in refused(
        shop, histogram.main, "--item who --domain a --horizon 9"
    )
    printed = succeed(file, main=printing.main)
    assert "satisfies epsilon = 2 for one row: what it says in what, rather than" in printed
    assert "only if run 1, whose columns are not known, published none of these" in printed
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["account"] for line in lines if "account" in line] == [1, 2]


@pytest.mark.pipeline
def test_a_mistyped_column_is_refused(shop: Path) -> None:
    """It would give up nothing, and seem to."""
    runs(shop, ticks.main, HOURS)
    for name in ("presence", "pgae"):
        said = refused(shop, count.main, ACTIONS, *PUBLIC, name)
        assert f"no run uses a column {name!r}: give --allow-public columns of its runs" in said


def test_columns_may_be_allowed_in_an_account_alone(shop: Path) -> None:
    words = words_of(shop, VALUES, "--allow-public", "page")
    at = words.index("--account")
    del words[at : at + 2]
    assert "give --account FILE as well" in fail(*words)
    assert "give --account FILE as well" in fail(*words, "--dry-run")


def test_a_line_has_what_a_run_publishes_and_protects() -> None:
    same = Charges(Charge(Fraction(1)), Charge(Fraction(1)))
    assert run_line(same, TICKS, output="o") == {
        "cost": {"epsilon": "1"},
        "public": [],
        "protected": [PRESENCE, "at", "page"],
        "output": "o",
    }
    more = run_line(same._replace(replacement=Charge(Fraction(2))), use("page"))
    assert more["replaced"] == {"epsilon": "2"}
    assert more["public"] == [PRESENCE, "page"]

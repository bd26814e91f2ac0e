"""Plans: a YAML file says what a command line says, to the value, and its mistakes are named."""

from __future__ import annotations

import argparse
import os
import re
import secrets
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from beam_dpcount import commands
from beam_dpcount.arguments import kinds
from beam_dpcount.arguments.argument import Argument
from beam_dpcount.commands import door, plan_files, run
from beam_dpcount.commands.options import option
from tests.command_lines import BUDGET, EXACT, SECRET_TEXT, Ended, command, without
from tests.each_command import CLOCK, KINDS, MODULE, TASK, log, rows

TICKS = ("--key", "who", "--keys", "ann", "bob", *CLOCK)
LARGE = ("--rho", "1e12")
OF_RUNS = {"dry_run", "check", "verbose", "overwrite", "save_plan"}


def planned(*words: object) -> Ended:
    return command(*words, main=run.main, overwrite=False, verbose=False)


def counted(*words: object, **how: Any) -> Ended:
    return command(*words, main=door.main, overwrite=False, verbose=False, **how)


def refused(*words: object, run: Callable[..., Ended] = planned) -> str:
    """What is said of a mistake, in a line."""
    ended = run(*words)
    assert (ended.status, ended.out) == (2, ""), ended
    said = re.sub(r"(?m)^warning: .*\n", "", ended.err)
    assert said.startswith("error: ")
    assert said.count("\n") == 1
    return said.removeprefix("error: ").rstrip("\n")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    log(tmp_path / "events.csv", rows())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def values(options: argparse.Namespace, *left_out: str) -> dict[str, Any]:
    """All that a run looks at."""
    found = {n: x for n, x in vars(options).items() if n not in {*OF_RUNS, "texts", *left_out}}
    for name in ("given", "counted"):
        found[name] = {n: x for n, x in found[name].items() if n not in {*OF_RUNS, *left_out}}
    return found


def round_trip(name: str, words: Sequence[object], *left_out: str) -> str:
    """The plan of a command line, once it says the same."""
    task: Any = plan_files.task_of(name)
    parser = task.parser()
    options, flags = parser.parse_known_args([*map(str, words), "--save-plan", "plan.yaml"])
    assert not flags
    text = plan_files.text_of(task.of(options))
    Path("plan.yaml").write_text(text, encoding="utf-8")
    plan = plan_files.read("plan.yaml")
    assert plan.task is task
    again = task.parser().options_of(plan.values)
    assert values(again, *left_out) == values(options, *left_out)
    for option_name, value in values(options).items():  # 1 is not 1.0, nor a text: noise tells
        if option_name not in left_out and option_name not in ("given", "counted"):
            assert repr(getattr(again, option_name)) == repr(value)
            texts = [getattr(each, "text", None) for each in (value, getattr(again, option_name))]
            assert texts[0] == texts[1]
    return text


# A plan says what a command line says


@pytest.mark.parametrize("kind", KINDS)
def test_each_command_line_is_a_plan(kind: str) -> None:
    words = ("--input", "events.csv", *KINDS[kind].words, *BUDGET, "--output", "out.csv")
    text = round_trip(TASK[KINDS[kind].command].name, words)
    assert yaml.safe_load(text)["command"] == TASK[KINDS[kind].command].name


def test_a_plan_names_each_command_that_counts() -> None:
    counting = {module.__name__.rpartition(".")[2] for module in MODULE.values()}
    assert counting == {*commands.COUNTING}
    assert all(plan_files.task_of(name).name == name for name in counting)


ODD = ["no", "007", "1.0", "~", "a: b", "# c", "12:30", "2026-01-15", "'", '"', " x ", "é", "=", "‮"]
GIVEN: dict[kinds.Kind, list[str]] = {
    kinds.TEXTS: ODD,
    kinds.LIST: ["1", "v"],
    kinds.BOUNDS: ["-20", "1e3"],
    kinds.WHOLE: ["1_0"],
    kinds.NUMBER: ["-0.5"],
    kinds.POSITIVE: ["1e-6"],
    kinds.SHARE: ["0.010"],
    kinds.TICK: ["1d"],
    kinds.DURATION: ["90m"],
    kinds.SIZE: ["2M"],
    kinds.ALARM: ["100,1,30"],
    kinds.MOMENT: ["2026-01-15T00:00:00Z"],
    kinds.MECHANISM: ["smoothbinary"],
    kinds.TIMES: ["date", "time"],
    kinds.LEVELS: ["region", "city"],
    kinds.AMOUNTS: ["0.010", "1", "2e-1"],
    kinds.PATHS: ["a b.csv", "logs/", "s3://x/*.csv", "/abs.csv"],
}


def words_of(one: Argument, number: int) -> list[list[str]]:
    """How a command line gives an argument, in ways that need care in YAML."""
    name = option(one.name)
    if one.kind is kinds.SWITCH:
        return [[name]]
    if one.choices:
        return [[name, each] for each in one.choices]
    several = GIVEN.get(one.kind)
    if len(one.metavar.split()) > 1:
        return [[name, *(several or ODD)]]
    if one.repeats:
        return [[name, "a"], [part for each in ODD for part in (name, each)]]
    return [[name, each] for each in several or [ODD[number % len(ODD)]]]


@pytest.mark.parametrize("name", commands.COUNTING)
def test_each_option_goes_into_a_plan_and_out_again(name: str) -> None:
    """Whatever it is: what fits together is checked later, and alike."""
    (kind,) = (each for each in (name,) if each in KINDS)
    base = ["--input", "events.csv", *KINDS[kind].words, *BUDGET, "--output", "out.csv"]
    arguments = plan_files.task_of(name).parser().arguments
    for number, one in enumerate(arguments):
        if one.name in OF_RUNS:
            continue
        others = [o.name for o in arguments if one.one_of and o.one_of == one.one_of]
        for words in words_of(one, number):
            left = without(base, *map(option, {one.name, *others}))
            left_out = ["until"] * (one.name == "state")
            round_trip(name, [*left, *words], *left_out)


def test_a_plan_from_elsewhere(here: Path) -> None:
    """Its paths are from its folder, from wherever it is run."""
    Path("plans").mkdir()
    words = ("--input", "events.csv", *TICKS, *EXACT, "--output", "out.csv")
    assert counted("ticks", *words, "--save-plan", "plans/p.yaml", "--dry-run").status == 0
    assert not Path("out.csv").exists()
    assert yaml.safe_load(Path("plans/p.yaml").read_text())["input"] == ["../events.csv"]
    os.chdir("/")
    ended = planned(here / "plans" / "p.yaml")
    assert (ended.status, os.getcwd()) == (0, "/")
    assert (here / "out.csv").exists()
    os.chdir(here)
    first = Path("out.csv").read_bytes()
    assert counted("ticks", *words, "--overwrite").status == 0
    assert Path("out.csv").read_bytes() == first


def test_a_plan_from_elsewhere_fills_its_table(here: Path) -> None:
    """The path of a file of SQLite stands in a URL."""
    Path("plans").mkdir()
    words = ("--input", "events.csv", *TICKS, "--view", "each", *LARGE, "--state", "c.state")
    first = (*words, "--output", "sqlite:///t.db?table=ticks", "--until", 120)
    assert counted("ticks", *first, "--save-plan", "plans/plan.yaml").status == 0
    assert "output: sqlite:///../t.db?table=ticks" in Path("plans/plan.yaml").read_text()
    os.chdir("plans")
    assert "ticks 3 to 5 of 6 added" in night(150).out
    with closing(sqlite3.connect(here / "t.db")) as connection:
        assert connection.execute("SELECT count(*) FROM ticks").fetchall() == [(10,)]


@pytest.mark.parametrize("name", ["ticks", "count"])
def test_a_plan_repeats_replayable_noise(
    name: str, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From anywhere, and no secret is in it; from another folder paths would be others."""
    secret = secrets.token_hex(32)
    monkeypatch.setenv("PLAN_SECRET", secret)
    Path("keys.txt").write_text("ann\nbob\n")
    own = {
        "ticks": (*without(TICKS, "--keys"), "--keys-file", "keys.txt"),
        "count": KINDS[name].words,
    }
    words = ["--input", "events.csv", *own[name], *BUDGET, "--output", "out.csv"]
    words += ["--secret-env", "PLAN_SECRET", "--run-id", "may"]
    Path("plans").mkdir()
    said = refused(name, *words, "--save-plan", "plans/p.yaml", run=counted)
    assert said == plan_files.ELSEWHERE.format(path="plans/p.yaml")
    assert counted(name, *words, "--save-plan", "p.yaml").status == 0
    assert secret not in Path("p.yaml").read_text()
    first = Path("out.csv").read_bytes()
    os.chdir("/")
    assert planned(here / "p.yaml", "--overwrite").status == 0
    assert (here / "out.csv").read_bytes() == first


def test_names_of_rows_and_yaml() -> None:
    """Metrics and views as Beam YAML has them; one text is a list of one."""
    Path("plan.yaml").write_text(
        "input: events.csv\nkey: who\nkeys: [ann, bob]\ntimestamp: time\ntick: 10\nstart: 100\n"
        "horizon: 6\nepsilon: 1\ndelta: 1e-6\noutput: out.csv\n"
        "metrics:\n  - count\n  - {metric: mean, field: u, low: 0, high: 4, name: average}\n"
        "  - {metric: items, field: letter, domain: [a, b]}\nviews: [each, last 2]\n"
    )
    assert planned("plan.yaml").status == 0
    names = Path("out.csv").read_text().split("\n")[0].split(",")
    assert {"count_each", "average_last_2", "count_a_each", "count_b_last_2"} <= {*names}


# Nights


def night(until: int, *words: object) -> Ended:
    return planned("plan.yaml", "--until", until, *words)


def test_nights_of_a_plan_are_those_of_the_command_line() -> None:
    words = ("--input", "events.csv", *TICKS, "--view", "each", *LARGE, "--state", "c.state")
    first = (*words, "--output", "out.csv", "--until", 120, "--save-plan", "plan.yaml")
    assert counted("ticks", *first).status == 0
    assert "until" not in Path("plan.yaml").read_text()
    assert "ticks 3 to 5 of 6 added" in night(150).out
    assert "tick 6 of 6 would be" not in night(160, "--dry-run").out
    assert "1 tick would be added" in night(160, "--dry-run").out
    assert "no tick has ended since" in night(150).out
    ended = counted("ticks", *words, "--output", "out.csv", "--until", 160)
    assert "tick 6 of 6 added" in ended.out


def test_until_on_the_line_takes_the_place_of_a_delay_in_the_plan() -> None:
    words = ("--input", "events.csv", *TICKS, *EXACT, "--output", "out.csv", "--delay", "2h")
    assert counted("ticks", *words, "--save-plan", "plan.yaml", "--dry-run").status == 0
    assert "delay: 2h" in Path("plan.yaml").read_text()
    assert "2 of 6 ticks" in night(120, "--dry-run").out
    said = refused("plan.yaml", "--until", 120, "--delay", "1h")
    assert said.startswith("give either --until, a time, or --delay")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("view: each", "view: so-far", "view is ['so-far'], and state: 'c.state' was made with "),
        (
            "view: each",
            "views: [each, last 2]",
            "views is ['each', 'last 2'], and state: 'c.state' was",
        ),
        (
            "keys: [ann, bob]",
            "keys: [ann, bob, c]",
            "Count new keys beside these, with another state and ",
        ),
        (
            "rho: 1e12",
            "rho: 1",
            "rho is 1.0, and state: 'c.state' was made with 1000000000000.0: it",
        ),
        ("output: out.csv", "output: o.csv", "output: 'o.csv': the releases of state: 'c.state'"),
    ],
)
def test_an_old_state_refuses_a_plan_that_has_changed(old: str, new: str, said: str) -> None:
    words = ("--input", "events.csv", *TICKS, "--view", "each", *LARGE, "--state", "c.state")
    first = (*words, "--output", "out.csv", "--until", 120, "--save-plan", "plan.yaml")
    assert counted("ticks", *first).status == 0
    before = {path.name: path.read_bytes() for path in Path().glob("c.state*")}
    lines = Path("plan.yaml").read_text().split("\n")
    at = lines.index(old) + 1
    Path("plan.yaml").write_text("\n".join(lines).replace(old, new))
    found = refused("plan.yaml", "--until", 160)
    assert found.startswith(f"plan.yaml, line {at}: ")
    assert said in found
    assert {path.name: path.read_bytes() for path in Path().glob("c.state*")} == before


# Mistakes

PLAN = """\
input: events.csv
key: who
keys: [ann, bob]
timestamp: time
tick: 10
start: 100
horizon: 6
epsilon: 1
delta: 1e-6
output: out.csv
"""
MISTAKES = [
    ("tick: 10", "tik: 10", "plan.yaml, line 5: unknown name 'tik': did you mean tick?"),
    ("tick: 10", "per-user: 5", "line 5: unknown name 'per-user': did you mean per_user?"),
    ("tick: 10", "edge: 5", "line 5: unknown name 'edge': ticks takes input, format,"),
    ("tick: 10", "xyz: 5", "line 5: unknown name 'xyz': ticks takes input, format, "),
    ("tick: 10", "tick: ten", "plan.yaml, line 5: tick must be a positive time of whole"),
    ("tick: 10", "tick: [10]", "plan.yaml, line 5: tick must be one text or number, got more"),
    ("tick: 10", "tick: {a: 10}", "plan.yaml, line 5: tick must be one text or number, got more"),
    ("tick: 10", "tick:", "plan.yaml, line 5: tick has no value: give one, or leave the line out"),
    ("tick: 10\n", "", "plan.yaml: give tick: a run needs it"),
    ("output: out.csv\n", "", "plan.yaml: give output: a run needs it"),
    ("horizon: 6", "tick: 5", "plan.yaml, line 7: tick is there twice, also at line 5"),
    ("horizon: 6\n", "", "plan.yaml: give stop, the time of the end, or horizon, the number of"),
    ("horizon: 6", "horizon: 1.5", "line 7: horizon must be a whole number, got '1.5': give e.g."),
    ("epsilon: 1", "epsilon: -1", "line 8: epsilon must be a positive, finite number, got '-1': "),
    ("epsilon: 1\n", "", "plan.yaml, line 8: give a budget: epsilon: 1 delta: 1e-6, or epsilo"),
    ("epsilon: 1", "epsilon: 1\nrho: 1", "plan.yaml, line 9: give either rho or epsilon with delt"),
    ("keys: [ann, bob]", "keys: [ann, {a: b}]", "line 3: keys must be a list of texts or numbers"),
    ("keys: [ann, bob]", "keys: [ann, ann]", "plan.yaml, line 3: keys: 'ann' is there twice; give"),
    ("keys: [ann, bob]", "keys: [ann]\nkeys_file: x", "give either keys or keys_file, not both"),
    ("keys: [ann, bob]", "select_keys: yes", "line 3: select_keys must be true or false, got 'yes"),
    ("keys: [ann, bob]", "select_keys: [a]", "line 3: select_keys must be true or false, got a"),
    ("keys: [ann, bob]", "keys: []", "line 3: keys has no value: give one, or leave the line out"),
    ("keys: [ann, bob]", f"keys: {'[' * 9999}", "plan.yaml: no value is as deep as this"),
    ("keys: [ann, bob]", "keys: [ann", "plan.yaml, line 4: is not YAML: expected ',' or ']', but"),
    ("keys: [ann, bob]", "keys: &k [*k]", "line 3: no value is as deep as this"),
    ("keys: [ann, bob]", "keys: [[[[[a]]]]]", "line 3: no value is as deep as this"),
    ("horizon: 6", "horizon: 6\nuser: u", "plan.yaml, line 8: user needs per_user: K, the most ro"),
    ("horizon: 6", "horizon: 6\nbounds: 1", "line 8: unknown name 'bounds'"),
    ("horizon: 6", "horizon: 6\nlate: flod", "late must be one of fold, drop, got 'flod': did you"),
    ("horizon: 6", "horizon: 6\nmechanism: kray", "unknown mechanism 'kray': did you mean KAry?"),
    ("horizon: 6", "horizon: 6\nzone: Mars", "plan.yaml, line 8: zone is not a time zone, got 'Ma"),
    ("horizon: 6", "horizon: 6\nmetric: [a, b]", "line 8: metric must be one text or number, got"),
    ("horizon: 6", "horizon: 6\nmetrics: [{field: u}]", "metrics must be texts, or mappings with"),
    ("horizon: 6", "horizon: 6\nmetrics: [{metric: mean}]", "metric 'mean' needs more arguments"),
    ("horizon: 6", "horizon: 6\nmetrics: [{metric: [a]}]", "unknown metric"),
    ("horizon: 6", "horizon: 6\nmetric: maen(u)", "column 1 of 'maen(u)': unknown name 'maen': di"),
    ("horizon: 6", "horizon: 6\nmetric: a\nmetrics: [b]", "line 9: give either metric or metrics,"),
    ("horizon: 6", "horizon: 6\ndry_run: true", "line 8: dry_run is of one run, and not of a plan"),
    ("horizon: 6", "horizon: 6\nsave_plan: x.yaml", "line 8: save_plan is of one run, and not of"),
    ("horizon: 6", "horizon: 6\nsecret: abc", "line 8: unknown name 'secret': did you mean secret"),
    ("output: out.csv", "output: pg://me:pw@host/x", "line 10: output holds a password, and a pla"),
    ("input: events.csv", "input: absent.csv", "no file matches 'absent.csv'"),
    ("input: events.csv", "command: tick", "line 1: command must be one of count, ticks, histogra"),
    ("input: events.csv", "command: [ticks]", "line 1: command must be one of count, ticks, histo"),
    (PLAN, "", "plan.yaml: a plan is lines such as `epsilon: 1`; --save-plan writes one"),
    (PLAN, "- input: x", "plan.yaml: a plan is lines such as `epsilon: 1`; --save-plan writes one"),
    (PLAN, "[1]: x", "plan.yaml, line 1: a name must be a text"),
    (PLAN, "a: 1\n---\na: 2\n", "plan.yaml, line 2: is not YAML: but found another document"),
    (PLAN, "a: \0", "plan.yaml: is not YAML: unacceptable character #x0000: special characters ar"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "said"), MISTAKES, ids=range(len(MISTAKES)))
def test_mistakes_are_named(old: str, new: str, said: str) -> None:
    assert old in PLAN
    Path("plan.yaml").write_text(PLAN.replace(old, new))
    found = refused("plan.yaml")
    assert said in found
    assert not {"out.csv"} & {path.name for path in Path().iterdir()}


def test_the_plan_of_the_mistakes_is_one() -> None:
    Path("plan.yaml").write_text(PLAN)
    assert planned("plan.yaml").status == 0
    assert Path("out.csv").exists()


def test_files_that_are_no_plans() -> None:
    assert refused("no.yaml") == "plan 'no.yaml' cannot be read: No such file or directory"
    Path("plan.yaml").write_bytes(b"keys: \xff\n")
    assert refused("plan.yaml") == "plan 'plan.yaml' is not UTF-8 text: save it as that"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "plan.yaml --epsilon 2",
            "--epsilon is not an option here: write it into the plan, which is",
        ),
        (
            "--epsilon 2 plan.yaml",
            "--epsilon is not an option here: write it into the plan, which is",
        ),
        (
            "plan.yaml --keys a b",
            "--keys is not an option here: write it into the plan, which is the ",
        ),
        (
            "plan.yaml --save-plan x.yaml",
            "--save-plan is not an option here: the plan is a file alr",
        ),
        ("plan.yaml --untl 3", "unknown argument --untl: did you mean --until?"),
        ("plan.yaml --runner Fast", "unknown argument --runner"),
        ("plan.yaml --delay x", "argument --delay: must be a positive time of whole microseconds"),
        ("plan.yaml --until soon", "--until is not a time, got 'soon'"),
        ("plan.yaml --check --dry-run", "give --check, which reads all rows, or --dry-run"),
        ("", "the following arguments are required: PLAN"),
    ],
)
def test_what_the_line_may_not_say(words: str, said: str) -> None:
    Path("plan.yaml").write_text(PLAN)
    assert said in refused(*words.split())
    assert not Path("out.csv").exists()


def test_options_that_a_command_does_not_take() -> None:
    words = ("--input", "events.csv", *KINDS["count"].words, *BUDGET, "--output", "out.csv")
    assert counted("count", *words, "--save-plan", "plan.yaml", "--dry-run").status == 0
    said = refused("plan.yaml", "--until", 3)
    assert said == "--until is not an option of count, of plan.yaml"
    assert "40 rows" not in planned("plan.yaml", "--check").err


# Writing


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--save-plan p.txt", "--save-plan must end in .yaml, got 'p.txt'"),
        ("--save-plan no/p.yaml", "there is no directory 'no'"),
        ("--save-plan s3://b/p.yaml", "--save-plan 's3://b/p.yaml' must be on this machine"),
        (
            "--save-plan there.yaml",
            "'there.yaml' is there already: give --overwrite, or name anoth",
        ),
        (
            "--save-plan p.yaml --runner DirectRunner",
            "--save-plan: --runner goes to Beam, and a pl",
        ),
        ("--save-plan p.yaml --account p.yaml", "'p.yaml' is the file of --account, too"),
        ("--save-plan p.yaml --check", "give --check, or --save-plan"),
        ("--save-plan p.yaml --tick x", "argument --tick"),
    ],
)
def test_plans_that_are_not_written(words: str, said: str) -> None:
    Path("there.yaml").write_text("mine")
    if "--account" in words:
        assert counted("account", "p.yaml", "--create", *BUDGET).status == 0
    base = ("--input", "events.csv", *TICKS, *BUDGET, "--output", "out.csv")
    names = {path.name for path in Path().iterdir()}
    assert said in refused("ticks", *base, *words.split(), run=counted)
    assert {path.name for path in Path().iterdir()} == names
    assert Path("there.yaml").read_text() == "mine"


def test_a_plan_is_written_once_and_says_where() -> None:
    """The same once more is no mistake; the manifest does not say that there is one."""
    words = ("--input", "events.csv", *TICKS, *BUDGET, "--output", "out.csv", "--save-plan")
    ended = counted("ticks", *words, "p q.yaml")
    assert "plan: p q.yaml (beam-dpcount run 'p q.yaml')" in ended.out
    assert "plan" not in Path("out.csv.manifest.json").read_text()
    assert counted("ticks", *words, "p q.yaml", "--dry-run").status == 0
    said = refused("ticks", *words, "p q.yaml", "--dry-run", "--epsilon", 2, run=counted)
    assert "is there already" in said
    assert (
        counted("ticks", *words, "p q.yaml", "--dry-run", "--epsilon", 2, "--overwrite").status == 0
    )
    assert "epsilon: 2" in Path("p q.yaml").read_text()


def test_passwords_are_not_written() -> None:
    words = ("--input", f"s3://me:{SECRET_TEXT}@b/x.csv", *TICKS, *BUDGET, "--output", "out.csv")
    options = (
        plan_files.task_of("ticks")
        .parser()
        .parse_known_args([*map(str, words), "--save-plan", "p.yaml"])[0]
    )
    with pytest.raises(ValueError, match="--input holds a password, and a plan holds no secrets"):
        plan_files.save(plan_files.task_of("ticks").of(options), [])
    assert not Path("p.yaml").exists()

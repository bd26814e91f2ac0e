"""What people ask of a log: each question is one command and one step of Beam YAML.

At an enormous budget both say what plain Python counts; at a usual one, intervals hold the truth as
often as they say.
"""

from __future__ import annotations

import csv
import datetime as dt
import json
import math
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from beam_dpcount.commands import eventlog, ticks
from tests.command_lines import succeed
from tests.questions import NAMES, TOTAL, Answers, Log, Question, questions, write
from tests.real_data import real_rows
from tests.runners import run

EXACT = {"epsilon": 1e9, "delta": 1e-6}
USUAL = {"epsilon": 1, "delta": 1e-6}
DAYS, PAGES, FIRST = 35, 4, dt.date(2026, 1, 1)


def demo(path: Path) -> Log:
    """The log of `demo`, for some weeks; people come again on other days."""
    rows: list[dict[str, str]] = []
    for day in range(DAYS):
        one = path / "day.csv"
        eventlog.write(one, 60, PAGES, seed=day, day=str(FIRST + dt.timedelta(days=day)))
        with open(one, newline="") as file:
            _, *lines = csv.reader(file)
        for number, (time, page, _, action, _) in enumerate(lines):
            person, took = f"p{(number * 7 + day * 11) % 90}", str((number * 37 + day) % 300)
            rows.append(
                {"time": time, "key": page, "person": person, "number": took, "kind": action}
            )
        one.unlink()
    write(path / "events.csv", rows)
    pages = eventlog.page_names(PAGES)
    return Log(path / "events.csv", FIRST, DAYS, pages, (0, 300), ("purchase", "view"))


def instant(seconds: str) -> str:
    return dt.datetime.fromtimestamp(int(seconds), dt.timezone.utc).isoformat()


def messages(path: Path) -> Log:
    """Private messages between students; the senders are the people, and receivers the numbers."""
    rows = [
        {
            "time": instant(row["time"]),
            "key": ("even", "odd")[int(row["dst"]) % 2],
            "person": row["src"],
            "number": row["dst"],
            "kind": "early" if int(row["src"]) < 1000 else "late",
        }
        for row in real_rows("collegemsg.txt", " ")
    ]
    write(path / "events.csv", rows)
    first = dt.date(2004, 4, 15)
    keys, bounds = ("even", "odd"), (0, 1900)
    return Log(path / "events.csv", first, 196, keys, bounds, ("early", "late"))


def machine(path: Path) -> Log:
    """Some 200 days of the lines of a computer; its nodes are the people."""
    rows = [
        {
            "time": instant(row["Timestamp"]),
            "key": row["Component"],
            "person": row["Node"],
            "number": row["LineId"],
            "kind": row["Level"],
        }
        for row in real_rows("bgl_2k.csv")
    ]
    write(path / "events.csv", rows)
    first, keys = dt.date(2005, 6, 3), ("KERNEL", "APP", "DISCOVERY", "MMCS", "HARDWARE")
    return Log(path / "events.csv", first, 217, keys, (0, 2000), ("FATAL", "INFO"))


MADE = {"demo": demo, "messages": messages, "machine": machine}
each_question = pytest.mark.parametrize("name", NAMES)


def each_log(messages: pytest.MarkDecorator) -> pytest.MarkDecorator:
    """All logs, the largest with a mark."""
    machine = pytest.param("machine", marks=pytest.mark.exhaustive)
    largest = pytest.param("messages", marks=messages)
    return pytest.mark.parametrize("log", ["demo", machine, largest], indirect=True)


@pytest.fixture(scope="module")
def log(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Log:
    name = getattr(request, "param", "demo")
    return MADE[name](tmp_path_factory.mktemp(name))


def check(found: Answers, question: Question, log: Log) -> None:
    """That all releases are there, and are the truth."""
    expected = question.truth(log)
    if question.selected:  # shown from the first days on that show them
        keys = {key for key, _ in found}
        assert keys >= {key for key in log.keys if expected[key, log.days]["count"] >= 50}
        expected = {place: expected[place] for place in found}
    assert {*found} == {*expected}
    for place, answer in expected.items():
        for name, value in answer.items():
            allowed = 1.01 if name.startswith("p") and "_number" in name else 2e-3
            assert found[place][name] == pytest.approx(value, abs=allowed), (place, name)


def commanded(log: Log, out: Path, *words: object, **budget: float) -> list[dict[str, Any]]:
    """The rows that a command writes of the log."""
    clock = ("--timestamp", "time", "--timestamp-format", "iso", "--tick", "1d")
    flags = [word for name, x in budget.items() for word in (f"--{name}", x)]
    given = ("--input", log.path, *clock, "--start", log.start, "--output", out)
    succeed(*given, *flags, *words, main=ticks.main)
    return [json.loads(line) for line in out.read_text().splitlines()]


@each_log(pytest.mark.exhaustive)
@each_question
def test_a_command_answers(name: str, log: Log, tmp_path: Path) -> None:
    question = questions(log)[name]
    words = [*question.words(question.place(log)), "--horizon", log.days]
    rows = commanded(log, tmp_path / "o.jsonl", *words, **EXACT)
    for row in rows:
        assert row["start"] == f"{log.first + dt.timedelta(days=row['step'] - 1)}T00:00:00Z"
        assert row["timestamp"] == f"{log.first + dt.timedelta(days=row['step'])}T00:00:00Z"
    check({(row["key"], row["step"]): row for row in rows}, question, log)


@pytest.mark.long
@pytest.mark.pipeline
@each_log(pytest.mark.audit)
@each_question
def test_a_step_of_yaml_answers(name: str, log: Log) -> None:
    pytest.importorskip("docstring_parser")  # of the extra yaml
    import yaml  # type: ignore[import-untyped]
    from apache_beam.yaml.yaml_provider import parse_providers
    from apache_beam.yaml.yaml_transform import YamlTransform

    question = questions(log)[name]
    clock = {"timestamp": "time", "tick": "1d", "start": log.start, "horizon": log.days}
    elements = [{n: x for n, x in event.items() if n != "day"} for event in log.events()]
    place = question.place(log)
    steps = [
        {"type": "Create", "config": {"elements": elements}},
        {"type": "TickCount", "config": {**clock, **EXACT, **place, **question.config}},
    ]
    provider = files("beam_dpcount.rows") / "provider.yaml"
    providers = parse_providers("", yaml.safe_load(provider.read_text()))
    text = json.dumps({"type": "chain", "transforms": steps})
    rows = [seen.value for seen in run(lambda p: p | YamlTransform(text, providers)).outputs[0]]
    check({(row.key, row.step): row._asdict() for row in rows}, question, log)


def test_tomorrows_rows_add_to_what_was_written(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The nightly job: the same secret, and a log that has grown; what was written stays."""
    monkeypatch.setenv("COUNTING_SECRET", "0123456789abcdef" * 4)
    replay = ("--secret-env", "COUNTING_SECRET", "--run-id", "nightly")
    listed = ("--key", "key", "--keys", *log.keys)
    metrics = ("--metric", "count", "--metric", "rate(kind = purchase)", "--view", "each")
    grown = Log(tmp_path / "events.csv", *(log.first, log.days, log.keys, log.bounds, log.kinds))
    runs = []
    for nights in (10, 20):
        last = f"{log.first + dt.timedelta(days=nights)}"
        write(grown.path, (row for row in log.rows() if row["time"] < last))
        until = ("--until", f"{last}T00:00:00Z")
        words = (*listed, *metrics, *replay, *until)
        runs.append(commanded(grown, tmp_path / "out.jsonl", *words, **USUAL))
    first, second = runs
    assert len(second) == 2 * len(first) == 20 * PAGES
    assert [row for row in second if row["step"] <= 10] == first


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "sites"),
    [
        *((name, 20) for name in ("each", "people of a week", "measures")),
        *(pytest.param(name, 200, marks=pytest.mark.audit) for name in NAMES),
    ],
)
def test_intervals_hold_the_truth_as_often_as_they_say(
    name: str, sites: int, log: Log, tmp_path: Path
) -> None:
    """At epsilon 1 a row (a person). Sites have equal rows, and noise of their own each."""
    copies = log.copied(tmp_path / "copies.csv", sites)
    question = questions(log)[name]
    words = [*question.words(question.place(copies, sites)), "--horizon", log.days]
    rows = commanded(copies, tmp_path / "out.jsonl", *words, **USUAL)
    expected, inside, all_ = question.truth(log), dict[str, int](), dict[str, int]()
    for row in rows:
        key = row["key"].partition(" of ")[0] if question.keyed or question.selected else TOTAL
        for column, value in expected[key, row["step"]].items():
            low, high = row[f"{column}_low"], row[f"{column}_high"]
            if low is None or value is None:
                continue
            all_[column] = all_.get(column, 0) + 1
            inside[column] = inside.get(column, 0) + (low - 1e-9 <= value <= high + 1e-9)
    print({column: (inside[column] / n, n) for column, n in all_.items()})
    for column, n in all_.items():
        assert n >= 5 * sites, column
        # Releases of a site are alike: as if each of them were one draw. A share of 0.95 falls
        # below this once in thousands of times.
        assert inside[column] / n >= 0.95 - 4 * math.sqrt(0.95 * 0.05 / sites), column

"""What people ask of a log: each question is one command and one step of Beam YAML.

At an enormous budget both say what plain Python counts; at a usual one, intervals hold the truth as
often as they say.
"""

from __future__ import annotations

import csv
import datetime as dt
import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from beam_dpcount.commands import eventlog, ticks
from tests.command_lines import succeed
from tests.runners import run

DAYS, PAGES, FIRST = 35, 4, dt.date(2026, 1, 1)
EXACT = {"epsilon": 1e9, "delta": 1e-6}
START = f"{FIRST}T00:00:00Z"
KEYS = eventlog.page_names(PAGES)
Event = dict[str, Any]
Said = dict[tuple[str, int], dict[str, Any]]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log of `demo`, for some weeks; people come again on other days."""
    place = tmp_path_factory.mktemp("log")
    rows: list[list[str]] = []
    for day in range(DAYS):
        one = place / "day.csv"
        date = FIRST + dt.timedelta(days=day)
        eventlog.write(one, events=60, keys=PAGES, seed=day, day=str(date))
        with open(one, newline="") as file:
            _, *found = csv.reader(file)
        for number, (at, page, _, action, _) in enumerate(found):
            person = f"p{(number * 7 + day * 11) % 90}"
            rows.append([at, page, person, action, str((number * 37 + day) % 300)])
        one.unlink()
    path = place / "events.csv"
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([["timestamp", "page", "session", "action", "ms"], *rows])
    return path


def events_of(log: Path) -> list[Event]:
    """Its rows, with the number of their day."""
    with open(log, newline="") as file:
        found: list[Event] = [*csv.DictReader(file)]
    for event in found:
        event["day"] = (dt.date.fromisoformat(event["timestamp"][:10]) - FIRST).days + 1
        event["ms"] = int(event["ms"])
    return found


@dataclass(frozen=True)
class Question:
    """One question.

    Fields:
      asked: in words.
      flags: of the command, beside the clock and the budget.
      config: the same in YAML.
      answer: what plain Python says of some events, by column.
      since: the first day that a release of a day is of.
      keyed: by page, or in all.
    """

    asked: str
    flags: Sequence[object]
    config: dict[str, Any]
    answer: Callable[[Sequence[Event]], dict[str, float | None]]
    since: Callable[[int], int] = lambda day: 1
    keyed: bool = True


def people(events: Iterable[Event]) -> int:
    return len({event["session"] for event in events})


def quantile(events: Sequence[Event], q: float) -> float | None:
    """The least number that at least q n of the n numbers do not exceed."""
    numbers = sorted(event["ms"] for event in events)
    return numbers[math.ceil(q * len(numbers)) - 1] if numbers else None


def rate(events: Sequence[Event]) -> float | None:
    held = [event["action"] == "purchase" for event in events]
    return sum(held) / len(held) if held else None


def several(events: Sequence[Event]) -> dict[str, float | None]:
    numbers = [event["ms"] for event in events]
    return {
        "mean_ms_each": sum(numbers) / len(numbers) if numbers else None,
        "p50_ms_each": quantile(events, 0.5),
        "p95_ms_each": quantile(events, 0.95),
        "rate_each": rate(events),
    }


LISTED: tuple[object, ...] = ("--key", "page", "--keys", *KEYS)
OF_KEYS: dict[str, Any] = {"key": "page", "keys": KEYS}
WHOSE: dict[str, Any] = {"user": "session", "per_user": DAYS}
PERSON: tuple[object, ...] = ("--user", "session", "--per-user", DAYS)
MEASURES = ["mean(ms, 0, 300)", "quantiles(ms, 0, 300, 0.5, 0.95, leaves=300)"]
MEASURES += ["rate(action = purchase)"]
NUMBERS = ["count", "sum(ms, 0, 300)", "items(action, view, purchase)"]


def metrics(texts: Sequence[str]) -> tuple[object, ...]:
    return tuple(word for text in texts for word in ("--metric", text))


QUESTIONS = {
    "so far": Question(
        "how many so far, by page, at the end of each day?",
        (*LISTED, "--metric", "count"),
        {**OF_KEYS, "metrics": ["count"]},
        lambda events: {"count": len(events)},
    ),
    "each": Question(
        "how many on each day?",
        (*LISTED, "--view", "each"),
        {**OF_KEYS, "view": "each"},
        lambda events: {"count_each": len(events)},
        lambda day: day,
    ),
    "people of a day": Question(
        "how many people were active each day?",
        ("--metric", "people", *PERSON, "--view", "each"),
        {"metrics": ["people"], **WHOSE, "view": "each"},
        lambda events: {"people_each": people(events)},
        lambda day: day,
        keyed=False,
    ),
    "people of a week": Question(
        "how many people were active in the last 7 days?",
        ("--metric", "people", *PERSON, "--view", "last 7d"),
        {"metrics": ["people"], **WHOSE, "view": "last 7d"},
        lambda events: {"people_last_7": people(events)},
        lambda day: max(1, day - 6),
        keyed=False,
    ),
    "people of a month": Question(
        "how many people were active in the last 30 days?",
        ("--metric", "people", *PERSON, "--view", "last 30d"),
        {"metrics": ["people"], **WHOSE, "view": "last 30d"},
        lambda events: {"people_last_30": people(events)},
        lambda day: max(1, day - 29),
        keyed=False,
    ),
    "measures": Question(
        "what were the mean, the median, p95 and the purchase rate of each day?",
        (*metrics(MEASURES), "--view", "each"),
        {"metrics": MEASURES, "view": "each"},
        several,
        lambda day: day,
        keyed=False,
    ),
    "several": Question(
        "several numbers at once, of the week so far?",
        (*LISTED, *metrics(NUMBERS), "--view", "restart 7"),
        {**OF_KEYS, "metrics": NUMBERS, "views": ["restart 7"]},
        lambda events: {
            "count": len(events),
            "sum_ms": sum(event["ms"] for event in events),
            **{
                f"count_{item}": sum(event["action"] == item for event in events)
                for item in ("view", "purchase")
            },
        },
        lambda day: (day - 1) // 7 * 7 + 1,
    ),
    "unlisted": Question(
        "which pages, if nobody listed them?",
        ("--key", "page", "--select-keys", "--metric", "count"),
        {"key": "page", "select_keys": True, "metrics": ["count"]},
        lambda events: {"count": len(events)},
    ),
}
each_question = pytest.mark.parametrize("name", QUESTIONS)


def truth(question: Question, log: Path) -> Said:
    """What plain Python says, by key and day."""
    events, found = events_of(log), {}
    for key in KEYS if question.keyed else ["all"]:
        mine = [event for event in events if key in ("all", event["page"])]
        for day in range(1, DAYS + 1):
            first = question.since(day)
            some = [event for event in mine if first <= event["day"] <= day]
            found[key, day] = question.answer(some)
    return found


def check(found: Said, question: Question, log: Path) -> None:
    expected = truth(question, log)
    if "--select-keys" in question.flags:  # which are shown from the first days on
        assert {key for key, _ in found} == {*KEYS}
        expected = {place: expected[place] for place in found}
    assert {*found} == {*expected}
    for place, answer in expected.items():
        for name, value in answer.items():
            allowed = 1.01 if name.startswith("p") and "_ms" in name else 2e-3
            assert found[place][name] == pytest.approx(value, abs=allowed), (place, name)


def commanded(log: Path, out: Path, *words: object) -> list[dict[str, Any]]:
    """The rows that a command writes of the log."""
    clock = ("--timestamp", "timestamp", "--timestamp-format", "iso", "--tick", "1d")
    given = ("--input", log, *clock, "--start", START, "--output", out)
    succeed(*given, *words, main=ticks.main)
    return [json.loads(line) for line in out.read_text().splitlines()]


@each_question
def test_a_command_answers(name: str, log: Path, tmp_path: Path) -> None:
    question = QUESTIONS[name]
    budget = [word for n, x in EXACT.items() for word in (f"--{n}", x)]
    rows = commanded(log, tmp_path / "o.jsonl", "--horizon", DAYS, *question.flags, *budget)
    for row in rows:
        assert row["start"] == f"{FIRST + dt.timedelta(days=row['step'] - 1)}T00:00:00Z"
        assert row["timestamp"] == f"{FIRST + dt.timedelta(days=row['step'])}T00:00:00Z"
    check({(row["key"], row["step"]): row for row in rows}, question, log)


@pytest.mark.pipeline
@each_question
def test_a_step_of_yaml_answers(name: str, log: Path) -> None:
    pytest.importorskip("docstring_parser")  # of the extra yaml
    import yaml  # type: ignore[import-untyped]
    from apache_beam.yaml.yaml_provider import parse_providers
    from apache_beam.yaml.yaml_transform import YamlTransform

    question = QUESTIONS[name]
    clock = {"timestamp": "timestamp", "tick": "1d", "start": START, "horizon": DAYS}
    elements = [{n: x for n, x in event.items() if n != "day"} for event in events_of(log)]
    steps = [
        {"type": "Create", "config": {"elements": elements}},
        {"type": "TickCount", "config": {**clock, **EXACT, **question.config}},
    ]
    provider = files("beam_dpcount.rows") / "provider.yaml"
    providers = parse_providers("", yaml.safe_load(provider.read_text()))
    text = json.dumps({"type": "chain", "transforms": steps})
    rows = [seen.value for seen in run(lambda p: p | YamlTransform(text, providers)).outputs[0]]
    check({(row.key, row.step): row._asdict() for row in rows}, question, log)


def test_tomorrows_rows_add_to_what_was_written(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The nightly job: the same secret, and a log that has grown; what was written stays."""
    monkeypatch.setenv("COUNTING_SECRET", "0123456789abcdef" * 4)
    whole = log.read_text().splitlines(keepends=True)
    grown = tmp_path / "events.csv"
    replay = ("--secret-env", "COUNTING_SECRET", "--run-id", "nightly")
    words = (*LISTED, *metrics(["count", MEASURES[2]]), "--epsilon", 1, "--delta", 1e-6, *replay)
    runs = []
    for nights in (10, 20):
        last = f"{FIRST + dt.timedelta(days=nights)}"
        grown.write_text("".join([whole[0], *(line for line in whole[1:] if line < last)]))
        more = ("--view", "each", "--until", f"{last}T00:00:00Z")
        runs.append(commanded(grown, tmp_path / "out.jsonl", *words, *more))
    first, second = runs
    assert len(second) == 2 * len(first) == 20 * PAGES
    assert [row for row in second if row["step"] <= 10] == first


@pytest.mark.slow
@pytest.mark.parametrize("name", ["each", "people of a week", "measures"])
def test_intervals_hold_the_truth_as_often_as_they_say(
    name: str, log: Path, tmp_path: Path
) -> None:
    """At epsilon 1 a row (a person), over all releases of some runs, each with noise of its own."""
    question = QUESTIONS[name]
    expected, inside, all_ = truth(question, log), 0, 0
    for _ in range(6):
        words = ("--horizon", DAYS, *question.flags, "--epsilon", 1, "--delta", 1e-6)
        for row in commanded(log, tmp_path / "out.jsonl", *words):
            for column, value in expected[row["key"], row["step"]].items():
                low, high = row[f"{column}_low"], row[f"{column}_high"]
                if low is None or value is None:
                    continue
                inside, all_ = inside + (low - 1e-9 <= value <= high + 1e-9), all_ + 1
    assert all_ >= 100
    # Releases of one run are alike; a rate of 0.95 falls below this once in thousands of times.
    assert inside / all_ >= 0.95 - 5 * math.sqrt(0.95 * 0.05 / all_)

"""--dry-run: it says what a run says of privacy and errors, of options alone, and does no more."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest

import beam_dpcount as dp
from beam_dpcount.budget.account_file import create as create_account
from beam_dpcount.commands.summary import DRY
from tests.command_lines import BUDGET, command, fail
from tests.each_command import MAIN, MORE, log, rows

PEOPLE = ("--user", "who", "--per-user", 3)
KINDS = {
    **{kind: (kind, MORE[kind]) for kind in MAIN},
    "people": ("ticks", (*MORE["ticks"], *PEOPLE, "--gap", "20s")),
    "fitted": ("histogram", (*MORE["histogram"], "--fit-total")),
    "after rows": ("count", (*MORE["count"], *PEOPLE, "--path", "streaming")),
}
# What a simulation says differs in its last digits from run to run.
SIMULATED = re.compile(r"^ +[\d.]+ a tick: (after|not within) .*\n", re.M)
ROW = re.compile(r"^ *([\d,]+) +([\d.e+]+) +([\d.e+]+)$", re.M)


def said(kind: str, events: Path, *more: object) -> str:
    name, words = KINDS[kind]
    out = events.parent / "out.csv"
    ended = command(
        *("--input", events, *words, *BUDGET, "--output", out, *more),
        main=MAIN[name],
        overwrite=False,
    )
    assert ended.status == 0, ended
    assert "--dry-run" not in more or not ended.err
    assert all(line.startswith("warning: ") for line in ended.err.splitlines()), ended
    return SIMULATED.sub("", ended.err + ended.out)


@pytest.mark.parametrize("kind", KINDS)
def test_it_says_what_a_run_says(kind: str, tmp_path: Path) -> None:
    """The notes before, the guarantee and the errors after, word for word; and nothing is left."""
    events = log(tmp_path / "events.csv", rows())
    before = [path.name for path in tmp_path.iterdir()]
    dry = said(kind, events, "--dry-run")
    assert [path.name for path in tmp_path.iterdir()] == before
    done = said(kind, events)
    head, *lines = dry.splitlines()
    assert head == DRY
    (lane,) = (line for line in lines if line.startswith("note: rows are counted "))
    lines.remove(lane)  # which no run tells: it might tell of odd rows
    assert lane not in done
    end = lines.index("")
    notes = [line for line in done.splitlines() if line.startswith("note: ")]
    assert [line for line in lines if line.startswith("note: ")] == notes
    for opening in ("Guarantee: ", "Error to expect"):
        (line,) = (line for line in done.splitlines() if line.startswith(opening))
        assert lines[:end].count(line) == 1
    # All that it says before the steps is in what the run says, in this order.
    place = iter(done.splitlines())
    assert all(line in place for line in lines[:end])


@pytest.mark.parametrize("kind", KINDS)
def test_it_says_nothing_of_the_rows(kind: str, tmp_path: Path) -> None:
    """The first row is looked at, as in a run; of the others nothing shows, not even an error."""
    first, *others = rows()
    many = log(tmp_path / "events.csv", [first, *others])
    dry = said(kind, many, "--dry-run")
    one = log(tmp_path / "events.csv", [first])
    assert said(kind, one, "--dry-run") == dry
    broken = log(tmp_path / "events.csv", [first, "no time,,,,", "7"])
    assert said(kind, broken, "--dry-run") == dry


def test_the_steps_are_those_of_the_counter(tmp_path: Path) -> None:
    events = log(tmp_path / "events.csv", rows())
    counter = dp.Histogram(dp.ApproxDP(1.0, 1e-6), 60, ["a", "b"], fit_total=True).counter
    found = ROW.findall(said("fitted", events, "--dry-run"))
    assert found == [
        (f"{t}", f"{math.sqrt(counter.variance(t)):.4g}", f"{dp.half_width(counter, t):.4g}")
        for t in sorted({1, 10, 60, 1 + int(np.argmax(counter.stddevs(60)))})
    ]


def test_steps_without_a_release_are_not_shown(tmp_path: Path) -> None:
    """Nor is the noise of such a step said to be the largest."""
    events = log(tmp_path / "events.csv", rows())
    found = ROW.findall(said("sequences", events, "--dry-run", "--every", 7))
    steps = [int(step) for step, *_ in found]
    assert (steps[0], steps[-1]) == (7, 56)
    assert not [step for step in steps if step % 7]


def test_an_account_says_what_a_run_would_cost_or_that_it_is_too_much(tmp_path: Path) -> None:
    events, account = log(tmp_path / "events.csv", rows()), tmp_path / "shop.account"
    assert "there is no account" in fail(
        *("--input", events, *MORE["count"], *BUDGET, "--output", tmp_path / "o.csv"),
        *("--dry-run", "--account", account),
    )
    create_account(str(account), dp.ApproxDP(1.5, 1e-5), None)
    cost = f"account {account}: the run would cost epsilon = 1, delta = 1e-06"
    dry = said("count", events, "--dry-run", "--account", account)
    assert f"{cost}; left after it: epsilon = 0.5, delta = 9e-06" in dry.splitlines()
    said("count", events, "--account", account)
    words = ("--input", events, *MORE["count"], *BUDGET, "--output", tmp_path / "o.csv")
    assert "would be overspent" in fail(*words, "--dry-run", "--account", account)


def test_nothing_is_spent(tmp_path: Path) -> None:
    events, account = log(tmp_path / "events.csv", rows()), tmp_path / "shop.account"
    create_account(str(account), dp.ApproxDP(3.0, 1e-5), None)
    before = account.read_bytes()
    said("count", events, "--dry-run", "--account", account)
    assert account.read_bytes() == before
    said("count", events, "--account", account)
    assert account.read_bytes() != before


# Limits that do nothing


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (
            ("--per-user", 3, "--per-key", 1, "--gap", "20s"),
            "one row a key, and each key noise of its own;",
        ),
        (("--per-user", 3, "--per-key", 3, "--gap", "20s"), "Laplace noise, which is taken"),
        (("--per-user", 3, "--per-key", 3, "--gap", "5s"), "it is shorter than a tick;"),
        (("--per-user", 3, "--per-key", 3, "--gap", "20s", "--mechanism", "blt"), None),
        (("--per-user", 3, "--per-key", 3), None),
    ],
)
def test_a_gap_that_makes_no_noise_smaller_is_noted(
    more: tuple[object, ...], why: str | None, tmp_path: Path
) -> None:
    out = said("ticks", log(tmp_path / "events.csv", rows()), "--dry-run", "--user", "who", *more)
    notes = [line for line in out.splitlines() if line.startswith("note: --gap leaves rows")]
    if why is None:
        assert not notes
    else:
        assert len(notes) == 1
        assert why in notes[0]


def test_rows_of_a_person_that_no_key_has_room_for_are_noted(tmp_path: Path) -> None:
    events = log(tmp_path / "events.csv", rows())
    few = said("ticks", events, "--dry-run", "--user", "who", "--per-user", 7, "--per-key", 1)
    note = "note: in 6 keys, 1 a key, no more than 6 rows of a person can count: for --per-user 7"
    assert note in few
    for enough in (("--per-user", 6, "--per-key", 1), ("--per-user", 7, "--per-key", 2)):
        assert "can count" not in said("ticks", events, "--dry-run", "--user", "who", *enough)
    assert "can count" not in said("select", events, "--dry-run", "--user", "who", "--per-user", 7)


def test_an_account_says_that_a_repeat_may_cost_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events, account = log(tmp_path / "events.csv", rows()), tmp_path / "shop.account"
    create_account(str(account), dp.ApproxDP(3.0, 1e-5), None)
    monkeypatch.setenv("COUNTING_SECRET", "0123456789abcdef" * 4)
    replayed = ("--secret-env", "COUNTING_SECRET", "--run-id", "may")
    dry = said("count", events, "--dry-run", "--account", account, *replayed)
    assert "delta = 1e-06, or nothing, if it repeats one with the same secret" in dry

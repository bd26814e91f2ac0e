"""Accounts: what a run costs in each, who is refused, what stays after a failure, and replays."""

from __future__ import annotations

import json
import math
import os
import stat
import threading
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import beam_dpcount as dp
from beam_dpcount.budget.account import Account, AccountError
from beam_dpcount.budget.account_file import create, locked, read_account
from beam_dpcount.budget.account_text import statement
from beam_dpcount.budget.charges import Charge
from beam_dpcount.budget.conversions import float_up, gaussian_epsilon, zcdp_epsilon, zcdp_rho
from beam_dpcount.budget.costs import PureCost
from beam_dpcount.budget.odometer import ColumnUse
from beam_dpcount.budget.spender import Protection
from beam_dpcount.commands import account as printing
from beam_dpcount.commands import count, graph, histogram, sequences, spending, ticks
from beam_dpcount.commands import options as opt
from beam_dpcount.commands import runner as running
from beam_dpcount.commands.files import beside
from beam_dpcount.counters.change import Change, TickChange
from beam_dpcount.counters.charged import CounterSpender, charges_of
from beam_dpcount.counters.users import UserChange, group_of
from beam_dpcount.noise.entropy import SystemEntropy
from beam_dpcount.statistics.graph_change import GraphChange
from tests.command_lines import Ended, command, succeed
from tests.command_lines import fail as failed

PURE, BOTH, RHO = dp.PureDP(1.0), dp.ApproxDP(1.0, 1e-6), dp.ZCDP(0.02)
SECRET = "0123456789abcdef0123456789abcdef"


def fail(*words: object, main: Any = count.main, started: bool = True) -> str:
    def run(*words: object) -> Ended:
        return command(*words, main=main)

    return failed(*words, run=run, started=started)


def made(path: Path, budget: Any, user: str | None = None) -> Account:
    return create(str(path), budget, user)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "shop.account"


def calibrated(budget: Any, change: Any = None, mechanism: Any = None) -> Any:
    chosen = mechanism or dp.choose(100, budget, change=change).mechanism
    return dp.calibrate(chosen, budget, change)


# What a run costs


def test_sums_take_budgets_as_they_are_written(file: Path) -> None:
    account = made(file, dp.ApproxDP(1.0, 1e-6))
    (cost, _), why = charges_of(calibrated(BOTH), dp.ApproxDP(0.1, 1e-7), 0, account)
    assert (cost, why) == (Charge(Fraction(1, 10), Fraction(1, 10**7)), "")
    ten = sum([cost] * 10, Charge())
    assert not ten.exceeds(account.total)
    assert (ten + Charge(delta=Fraction(1, 10**30))).exceeds(account.total)
    assert (ten + Charge(epsilon=Fraction(1, 10**30))).exceeds(account.total)
    (pure, _), _ = charges_of(calibrated(PURE), dp.PureDP(0.1), 1e-8, account)
    assert pure == Charge(Fraction(1, 10), Fraction(1, 10**8))


def test_an_account_of_rho_takes_the_rho_of_the_noise(file: Path) -> None:
    account = made(file, dp.ZCDP(1.0))

    def rho(budget: Any, mechanism: Any) -> Fraction:
        counter = calibrated(budget, mechanism=mechanism)
        (cost, _), _ = charges_of(counter, budget, 0, account)
        assert (cost.epsilon, cost.delta) == (0, 0)
        return cost.rho

    tree = dp.mechanisms.BinaryTree(100)
    assert rho(dp.ZCDP(0.1), tree) == Fraction(1, 10)
    for budget in (dp.PureDP(0.5), dp.ApproxDP(0.5, 1e-6)):  # Laplace noise
        counter = calibrated(budget, mechanism=dp.mechanisms.SmoothLaplace(4))
        assert type(counter.law).__name__ == "DiscreteLaplace"
        (part,) = counter.costs()
        assert rho(budget, counter.mechanism) == pytest.approx(part.rho, rel=1e-15)
        assert part.rho <= rho(budget, counter.mechanism) <= Fraction(1, 8)
    # Rounded Gaussian noise is that of (1, 1e-6) exactly, so that its rho is more than zCDP allows.
    gaussian = rho(BOTH, dp.mechanisms.NormalizedBLT(100))
    assert type(calibrated(BOTH, mechanism=dp.mechanisms.NormalizedBLT(100)).law).__name__ == (
        "RoundedGaussian"
    )
    assert gaussian > zcdp_rho(1.0, 1e-6)
    assert gaussian_epsilon(math.sqrt(2 * gaussian), 1e-6) == pytest.approx(1, rel=1e-6)
    # Discrete Gaussian noise has what zCDP allows. On a coarse lattice it is the better one.
    coarse, smooth = dp.ApproxDP(30.0, 1e-6), dp.mechanisms.SmoothBinary(100)
    assert type(calibrated(coarse, mechanism=smooth).law).__name__ == "DiscreteGaussian"
    assert 0 < float(rho(coarse, smooth)) <= float_up(Fraction(zcdp_rho(30.0, 1e-6)))


PERSON = UserChange(events=3, keys=3, per_key=1)


@pytest.mark.parametrize(
    ("change", "factor", "pure"),
    [
        (Change(), 1, 1),
        (TickChange(), 1, 1),
        (PERSON, 2, 4),  # R of BinaryTree has no negative entries
        (UserChange(-1.0, 1.0, events=3, keys=3), 4, 4),
        (UserChange(relation="replace_one", events=3, keys=3), 1, 1),
        (group_of(Change(), 3, 1, False), 1, 1),
        (GraphChange(), 4, 4),  # another row may insert the same pair
        (GraphChange(relation="node"), 4, 4),
    ],
    ids=["row", "tick", "person", "signs", "replaced", "contents", "edge", "node"],
)
def test_a_row_may_be_two_changes(change: Any, factor: int, pure: int, tmp_path: Path) -> None:
    tree, of_rho = dp.mechanisms.BinaryTree(50), made(tmp_path / "a", dp.ZCDP(9.0))
    sums = made(tmp_path / "b", dp.ApproxDP(9.0, 1e-3))
    person = made(tmp_path / "c", dp.ApproxDP(9.0, 1e-3), "who")

    def cost(budget: Any, account: Account) -> Charge:
        counter = dp.calibrate(tree, budget, change)
        return charges_of(counter, budget, 0, account)[0].presence

    assert cost(RHO, of_rho).rho == factor * Fraction(1, 50)
    (part,) = dp.calibrate(tree, PURE, change).costs()
    assert isinstance(part, PureCost)
    assert float(cost(PURE, of_rho).rho) == pytest.approx(pure * part.rho, rel=1e-15)
    whole, delta = cost(BOTH, sums).epsilon, float(cost(BOTH, sums).delta)
    assert whole == (1 if factor == 1 else 2)
    more = 1.0 if factor == 1 else 1 + math.e
    assert delta == pytest.approx(more * 1e-6, rel=1e-9)
    assert delta >= more * 1e-6 * (1 - 1e-15)
    assert cost(BOTH, person) == Charge(Fraction(1), Fraction(1, 10**6))


def test_two_changes_cost_at_least_what_the_ledger_says(tmp_path: Path) -> None:
    tree = dp.mechanisms.BinaryTree(50)
    budget: Any
    for budget, total in ((RHO, dp.ZCDP(9.0)), (PURE, dp.PureDP(9.0))):
        account = made(tmp_path / type(total).__name__, total)
        counter = dp.calibrate(tree, budget, PERSON)
        (cost, _), why = charges_of(counter, budget, 0, account)
        ledger = dp.Ledger(total)
        share: Any = ledger.spend(budget)
        share.claim("run", Protection(PERSON.person, PERSON.event_cost(tree)))
        parts: Any = ledger.standing.parts(True, of="event")
        (part,) = parts
        assert float(cost.rho or cost.epsilon) == pytest.approx(
            getattr(part, "rho", None) or part.epsilon
        )
        assert "two changes" in why


@pytest.mark.parametrize(
    ("total", "budget", "keys_delta", "said"),
    [
        (dp.PureDP(3.0), BOTH, 0, "has no delta, and this run takes one: give epsilon alone"),
        (dp.PureDP(3.0), PURE, 1e-7, "has no delta, and this run takes one"),
        (dp.PureDP(3.0), RHO, 0, "adds up epsilon, and this run has a rho"),
        (BOTH, RHO, 0, "adds up epsilon, and this run has a rho: give epsilon and delta"),
        (dp.ZCDP(1.0), BOTH, 1e-7, "adds up rho, and has no delta for keys that nobody listed"),
    ],
)
def test_other_kinds_are_refused(
    total: Any, budget: Any, keys_delta: float, said: str, file: Path
) -> None:
    with pytest.raises(AccountError, match=said):
        charges_of(calibrated(budget), budget, keys_delta, made(file, total))


# The file


def test_a_new_account_is_private_and_made_once(file: Path) -> None:
    out = succeed(file, "--create", "--epsilon", 2, "--delta", "1e-6", main=printing.main)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "total: epsilon = 2, delta = 1e-06; epsilons and deltas of runs add up" in out
    assert "for one row" in out
    assert "no runs yet" in out
    before = file.read_bytes()
    said = fail(file, "--create", "--epsilon", 9, main=printing.main)
    assert "is there already" in said
    assert file.read_bytes() == before
    assert succeed(file, main=printing.main) == out


@pytest.mark.parametrize("size", [0, 1, 11, 60])
def test_an_account_that_was_cut_off_is_made_anew(file: Path, size: int) -> None:
    """Its first line was not whole, so that no run was ever in it."""
    make = (file, "--create", "--epsilon", 2)
    succeed(*make, main=printing.main)
    file.write_bytes(file.read_bytes()[:size])
    assert "epsilon = 2" in succeed(*make, main=printing.main)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    for other in (b"no", b'{"account":2\n', b"{" * (1 << 20)):
        file.write_bytes(other)
        assert "is there already" in fail(*make, main=printing.main)
        assert file.read_bytes() == other


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["no.account"], "there is no account 'no.account': make one with"),
        (["a", "--create"], "give a budget"),
        (["a", "--epsilon", "1"], "--epsilon goes with --create"),
        (["gs://a/b", "--create", "--epsilon", "1"], "must be a local file"),
        (["nowhere/a", "--create", "--epsilon", "1"], "cannot be made: No such file"),
    ],
)
def test_mistakes_take_one_line(words: list[str], said: str) -> None:
    assert said in fail(*words, main=printing.main)


def entry(number: int, **more: Any) -> dict[str, Any]:
    plain: dict[str, Any] = {"command": "count", "cost": {"epsilon": "1/4"}, "output": "o.csv"}
    plain |= {"said": "", "public": [":presence", "page"], "protected": ["what"]}
    return {"run": number, "time": "now", **plain, "inputs": [], **more}


def add(file: Path, *lines: Any) -> None:
    with open(file, "a") as out:
        out.writelines(json.dumps(line) + "\n" for line in lines)


def test_every_run_counts_but_those_that_released_nothing(file: Path) -> None:
    made(file, PURE)
    nothing = {"run": 2, "end": "nothing was released", "time": "now"}
    add(file, entry(1), {"run": 1, "end": "done", "time": "now"}, entry(2), nothing, entry(3))
    account = read_account(str(file))
    assert account.spent == Charge(Fraction(1, 2))
    assert account.left == Charge(Fraction(1, 2))
    printed = statement(account)
    assert "epsilon = 0.25 (it did not end well, and counts)" in printed
    assert "nothing (nothing was released)" in printed
    assert "All that these runs released satisfies epsilon = 0.5 for one row" in printed


def test_a_line_that_was_cut_off_is_no_run_and_is_written_over(file: Path) -> None:
    made(file, PURE)
    add(file, entry(1))
    with open(file, "a") as out:
        out.write('{"run": 2, "cost": {"epsi')
    assert set(read_account(str(file)).runs) == {1}
    with locked(str(file)) as (_, write):
        write(entry(2))
    assert set(read_account(str(file)).runs) == {1, 2}


@pytest.mark.parametrize(
    "line",
    [
        entry(3),  # one is missing
        entry(1),
        {**entry(2), "cost": {"epsilon": "-1"}},
        {**entry(2), "cost": {"epsilon": 1}},
        {**entry(2), "cost": {"epsilon": "1/0"}},
        {**entry(2), "cost": {"sigma": "1"}},
        {**entry(2), "public": "page"},
        {**entry(2), "protected": [1]},
        {name: x for name, x in entry(2).items() if name != "public"},
        {"run": 5, "end": "done"},
        {"state": "x", "generation": 1, "begun": ""},
        {**entry(2), "state": {"id": "x"}},
        ["no", "line"],
    ],
)
def test_damaged_lines_are_refused(line: Any, file: Path) -> None:
    made(file, PURE)
    add(file, entry(1), line)
    with pytest.raises(AccountError, match="line 3: not a line of an account"):
        read_account(str(file))


def test_other_files_and_later_formats_are_refused(file: Path) -> None:
    file.write_text("key,step\na,1\n")
    assert "not a line of an account" in fail(file, main=printing.main)
    file.write_text("")
    assert "is not an account" in fail(file, main=printing.main)
    file.write_text('{"account": 5, "total": {}}\n')
    assert "is of format 5, and this version knows 4" in fail(file, main=printing.main)


def test_a_full_disk_leaves_the_account_as_it_was(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(file, PURE)
    before = file.read_bytes()
    write = os.write
    monkeypatch.setattr(os, "write", lambda at, data: write(at, data[:5]))
    with (
        pytest.raises(AccountError, match="without it nothing is counted"),
        locked(str(file)) as (_, add_line),
    ):
        add_line(entry(1))
    assert file.read_bytes() == before


# Runs


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.csv"
    path.write_text("page,what,who,at\n" + "a,buy,ann,0\na,view,bob,5\nb,buy,cid,9\n" * 5)
    return path


class Shop:
    """Runs of count over a log, with an account."""

    def __init__(self, log: Path, account: Path) -> None:
        self.log, self.account, self.runs = log, account, 0

    def words(self, *more: object) -> list[object]:
        self.runs += 1
        out = self.log.parent / f"out{self.runs}.csv"
        words = ["--input", self.log, "--key", "page", "--where", "what=buy", "--horizon", 20]
        words += ["--output", out, "--account", self.account]
        return [*words, *(more or ("--epsilon", 1))]

    def spent(self) -> Charge:
        return read_account(str(self.account)).spent

    def ends(self) -> list[str]:
        return [run.end for run in read_account(str(self.account)).runs.values()]


@pytest.fixture
def shop(log: Path, file: Path) -> Shop:
    made(file, dp.PureDP(3.0))
    return Shop(log, file)


@pytest.mark.long
def test_runs_add_up_until_nothing_is_left(shop: Shop) -> None:
    for n in (1, 2, 3):
        out = succeed(*shop.words())
        assert f"this run costs epsilon = 1; left after it: {'epsilon = ' * (n < 3)}" in out
        assert shop.spent() == Charge(Fraction(n))
    words = shop.words("--epsilon", 0.001)
    said = fail(*words, started=False)
    assert "would be overspent: this run costs epsilon = 0.001, but of its epsilon = 3" in said
    assert "epsilon = 3 nothing is left after 3 runs" in said
    assert not Path(str(words[words.index("--output") + 1])).exists()
    assert shop.spent() == Charge(Fraction(3))
    printed = succeed(shop.account, main=printing.main)
    assert printed.count("count    epsilon = 1") == 3
    assert f"input 1: {shop.log}, {shop.log.stat().st_size:,} bytes" in printed
    assert "input 2" not in printed


class Stopped(BaseException):
    """As a signal stops a run."""


def test_a_run_is_entered_before_anything_is_counted(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def finished(*given: Any) -> Any:
        seen.append((shop.spent(), shop.ends()))
        raise Stopped

    monkeypatch.setattr(running, "finished", finished)
    with pytest.raises(Stopped):
        command(*shop.words())
    assert seen == [(Charge(Fraction(1)), [""])]
    assert shop.spent() == Charge(Fraction(1))  # what was interrupted may have been seen


def test_only_a_failure_that_surely_released_nothing_is_free(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaves: list[Path] = []

    def finished(*given: Any) -> Any:
        for name in leaves:
            name.write_text("half")
        raise OSError("the disk is full")

    monkeypatch.setattr(running, "finished", finished)
    fail(*shop.words())
    assert shop.ends() == ["nothing was released"]
    assert not shop.spent()
    fail(*shop.words("--epsilon", 1, "--direct_running_mode", "multi_threading"))
    assert shop.ends() == ["nothing was released", ""]
    leaves.append(shop.log.parent / "out3.csv")
    fail(*shop.words())
    leaves[:] = [shop.log.parent / "out4.csv.0123.partial"]
    fail(*shop.words())
    assert shop.ends() == ["nothing was released", "", "", ""]
    assert shop.spent() == Charge(Fraction(3))


def test_a_run_that_began_to_write_counts(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reads what is half written has seen releases, and on-reject raise says something."""

    def full(*_: Any, **__: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(beside, "_sync", full)
    fail(*shop.words())
    assert shop.ends() == [""]
    assert shop.spent() == Charge(Fraction(1))
    monkeypatch.undo()
    words = shop.words("--epsilon", 1)
    where = words.index("--where")
    words[where : where + 2] = ["--value", "what", "--bounds", 0, 1]  # texts
    command(*words, "--on-reject", "raise")
    assert shop.ends() == ["", ""]


def test_keys_that_are_selected_count_where_the_run_fails(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the progress has shown how many releases there are."""
    shop.account.unlink()
    made(shop.account, dp.ApproxDP(3.0, 1e-5))

    def finished(*given: Any) -> Any:
        raise OSError("the disk is full")

    monkeypatch.setattr(running, "finished", finished)
    words = ["--input", shop.log, "--key", "page", "--timestamp", "at", "--tick", 5, "--start", 0]
    words += ["--horizon", 4, "--epsilon", 1, "--delta", "1e-6", "--account", shop.account]
    out = shop.log.parent / "o.csv"
    fail(*words, "--output", out, "--keys", "a", main=ticks.main)
    assert shop.ends() == ["nothing was released"]
    fail(*words, "--output", out, "--select-keys", main=ticks.main)
    assert shop.ends() == ["nothing was released", ""]
    assert shop.spent() == Charge(Fraction(1), Fraction(1, 10**6))


def test_an_account_for_people_takes_runs_for_them_alone(shop: Shop) -> None:
    shop.account.unlink()
    made(shop.account, dp.PureDP(3.0), "who")
    assert "this run has none" in fail(*shop.words(), started=False)
    limit = ("--per-user", 2, "--epsilon", 1)
    assert "has 'at': nothing would follow for that person: give --user who, or another" in fail(
        *shop.words("--user", "at", *limit), started=False
    )
    succeed(*shop.words("--user", "who", *limit))
    assert shop.spent() == Charge(Fraction(1))
    graphs = ["--edge", "page", "what", "--vertices", 9, "--what", "edges", "--horizon", 20]
    out = shop.log.parent / "g.csv"
    said = fail(
        *("--input", shop.log, "--epsilon", 1, "--output", out, "--account", shop.account, *graphs),
        main=graph.main,
        started=False,
    )
    assert "is for one person" in said


def test_the_account_is_no_input_and_no_output(shop: Shop) -> None:
    words = shop.words()
    words[words.index("--account") + 1] = shop.log
    assert "is an input or an output as well" in fail(*words, started=False)


def test_runs_at_once_do_not_overspend(file: Path, tmp_path: Path) -> None:
    """Each run reads the account and adds to it under one lock."""
    made(file, dp.PureDP(3.0))
    ended: list[str] = []
    inside = threading.Barrier(8)

    class Task:
        name = "count"
        spender = CounterSpender(calibrated(PURE), SystemEntropy(), False, None)
        entropy = SystemEntropy()
        releases_nothing = False
        options = count.Count.parser().parse_args(
            ["--input", "i", "--key", "k", "--horizon", "9", "--epsilon", "1", "--output", "o.csv"]
        )

        def guarantee(self) -> str:
            return ""

        def column_use(self) -> ColumnUse:
            return ColumnUse(protected=frozenset(["what"]))

    Task.options.account, Task.options.user = str(file), None

    def once() -> None:
        inside.wait()
        try:
            with spending.entered(Task(), "o.csv", {}, []):  # type: ignore[arg-type]
                ended.append("counted")
        except ValueError:
            ended.append("refused")

    threads = [threading.Thread(target=once) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ended) == ["counted"] * 3 + ["refused"] * 5
    assert read_account(str(file)).spent == Charge(Fraction(3))


# Replays


@pytest.fixture
def again(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Shop:
    monkeypatch.setenv("COUNTING_SECRET", SECRET)
    return shop


REPLAY = ("--epsilon", 1, "--secret-env", "COUNTING_SECRET", "--run-id", "may")


def test_a_replay_costs_nothing_and_anything_else_does(again: Shop) -> None:
    first = again.words(*REPLAY)
    succeed(*first)
    out = succeed(*again.words(*REPLAY))
    assert "this is run 1 again, with the same secret, options and rows" in out
    one, two = (again.log.parent / f"out{n}.csv" for n in (1, 2))
    assert one.read_bytes() == two.read_bytes()
    assert again.spent() == Charge(Fraction(1))
    succeed(*again.words(*REPLAY[:-1], "june"))
    assert again.spent() == Charge(Fraction(2))
    with open(again.log, "a") as file:
        file.write("b,buy,cid,9\n")
    succeed(*again.words(*REPLAY[:-1], "july"))
    assert again.spent() == Charge(Fraction(3))
    printed = succeed(again.account, main=printing.main)
    assert "nothing: run 1 again" in printed
    assert "input 2: " in printed


CLOCK = ("--key", "page", "--keys", "a", "--timestamp", "at", "--tick", 5, "--start", 0)


@pytest.mark.parametrize("main", [count.main, ticks.main], ids=["count", "ticks"])
def test_the_same_noise_is_never_drawn_for_rows_that_have_changed(
    main: Any, log: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both outputs are equal up to where the rows differ, which shows that a row came, and when.

    No account can certify that, whatever the two runs cost.
    """
    monkeypatch.setenv("COUNTING_SECRET", SECRET)
    made(file, dp.PureDP(9.0))
    how = (*CLOCK, "--horizon", 4) if main is ticks.main else ("--key", "page", "--horizon", 20)

    def words(run_id: str, *more: object) -> list[object]:
        both = ["--input", log, *how, *REPLAY[:-1], run_id, "--account", file, "--output"]
        return [*both, log.parent / "out.csv", *more]

    succeed(*words("may"), main=main)
    succeed(*words("may"), main=main)  # the same rows: a repeat
    with open(log, "a") as rows:
        rows.write("a,view,bob,16\n")
    for more in ((), ("--dry-run",)):
        said = fail(*words("may", *more), main=main, started=False)
        assert "would draw the same noise as run 1, but the rows have changed since" in said
        assert "give another --run-id" in said
    succeed(*words("june"), main=main)
    assert read_account(str(file)).spent == Charge(Fraction(2))
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert SECRET not in file.read_text()
    noises = [line["noise"] for line in lines if "noise" in line]
    assert len(noises) == 3
    assert noises[0] == noises[1] != noises[2]


def test_noise_for_files_that_are_not_here_is_drawn_once(file: Path) -> None:
    made(file, dp.PureDP(3.0)).check_noise("n", [])
    add(file, entry(1, noise="n"))
    later = read_account(str(file))
    later.check_noise("other", [])
    later.check_noise("", [])
    for inputs in ([], [["log.csv", 3, "d"]]):
        with pytest.raises(AccountError, match="the same noise as run 1"):
            later.check_noise("n", inputs)
    add(file, {"run": 1, "end": "nothing was released", "time": "t"})
    read_account(str(file)).check_noise("n", [])


def listed_by(texts: str) -> str:
    """What `<(printf ...)` is to a command: a name under which the texts can be read once."""
    reader, writer = os.pipe()
    os.write(writer, texts.encode())
    os.close(writer)
    return f"/dev/fd/{reader}"


LISTS: dict[str, tuple[Any, tuple[object, ...], tuple[str, ...]]] = {
    "keys": (
        ticks.main,
        ("--key", "page", "--timestamp", "at", "--tick", 5, "--start", 0, "--horizon", 4),
        ("a\n", "b\na\n", "a\nb\n"),
    ),
    "domain": (
        histogram.main,
        ("--item", "what", "--horizon", 20),
        ("buy\n", "view\nbuy\n", "buy\nview\n"),
    ),
    "domain of letters": (
        sequences.main,
        ("--letter", "what", "--max-length", 1, "--horizon", 20),
        ("buy\n", "view\nbuy\n", "buy\nview\n"),
    ),
    "words": (
        sequences.main,
        ("--letter", "what", "--domain", "buy", "view", "--horizon", 20),
        ("buy\n", "view\nbuy\n", "buy\nview\n"),
    ),
    "vertices": (
        graph.main,
        ("--edge", "page", "what", "--what", "edges", "--horizon", 20),
        ("a\nbuy\n", "a\nb\nbuy\n", "buy\na\n"),
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("name", LISTS)
def test_lists_that_can_be_read_once_are_told_apart(again: Shop, name: str) -> None:
    """A list through a pipe is empty when it is read again; three counts are not one."""
    again.account.unlink()
    made(again.account, dp.PureDP(9.0))
    main, words, lists = LISTS[name]
    common = ["--input", again.log, "--account", again.account, *words, *REPLAY]
    reader = -1
    for n, texts in enumerate(lists):
        if reader >= 0:
            os.close(reader)  # so that all have one name
        path = listed_by(texts)
        reader = int(path.rpartition("/")[2])
        out = again.log.parent / f"list{n}.csv"
        succeed(*common, f"--{name.split()[0]}-file", path, "--output", out, main=main)
    os.close(reader)
    runs = read_account(str(again.account)).runs
    assert [run.again for run in runs.values()] == [None] * 3
    assert all(run.charges.presence for run in runs.values())


def test_a_list_that_is_replaced_while_a_run_starts_is_what_was_read(
    again: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, read = again.log.parent / "keys.txt", opt.public_list

    def reading(name: str, *given: Any) -> list[str]:
        texts = read(name, *given)
        names.write_text("b\n")
        return texts

    monkeypatch.setattr(opt, "public_list", reading)
    main, words, _ = LISTS["keys"]
    common = ["--input", again.log, "--account", again.account, *words, *REPLAY]
    for n, (texts, repeats) in enumerate((("a\n", None), ("b\n", None), ("a\n", 1))):
        names.write_text(texts)
        out = again.log.parent / f"list{n}.csv"
        succeed(*common, "--keys-file", names, "--output", out, main=main)
        assert read_account(str(again.account)).runs[n + 1].again == repeats


def marked(log: Path, **more: Any) -> str:
    """The mark of a run of ticks."""
    task: Any = ticks.Ticks.of(
        ticks.Ticks.parser().parse_args(
            [
                *("--input", str(log), "--key", "page", "--timestamp", "at", "--tick", "5"),
                *("--start", "0", "--horizon", "4", "--epsilon", "1", "--delta", "1e-6"),
                *("--output", "o.csv", "--secret-env", "COUNTING_SECRET"),
                *more.get("words", ("--keys", "a")),
            ]
        )
    )
    engine = SimpleNamespace(counter=calibrated(BOTH), period_costs=None)
    task.entropy = SystemEntropy()
    task.count = SimpleNamespace(_parts=[SimpleNamespace(engine=engine)])
    if more.get("reads", True):
        task.listed_texts("keys", [str(log)])
    inputs = spending._looked_at({path: path for path in more.get("paths", [str(log)])})
    return spending._mark(task, inputs, more.get("flags", []))


def test_a_mark_is_of_all_that_releases_follow_from(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COUNTING_SECRET", SECRET)
    keys = tmp_path / "keys.txt"
    keys.write_text("a\n")
    plain, listed = marked(log), marked(log, words=["--keys-file", str(keys)])
    assert plain
    assert marked(log, words=["--keys", "a", "--output", "other.csv"]) == plain
    keys.write_text("b\n")
    others = [
        listed,
        marked(log, words=["--keys-file", str(keys)]),
        marked(log, words=["--keys", "a", "--relation", "replace_one"]),
    ]
    log.write_text(log.read_text().replace("ann", "amy"))
    others.append(marked(log))
    monkeypatch.setenv("COUNTING_SECRET", SECRET[::-1])
    others.append(marked(log))
    monkeypatch.setattr(dp, "__version__", "9")
    others.append(marked(log))
    assert len({plain, *others}) == 1 + len(others)
    assert not marked(log, words=["--keys", "a", "--path", "streaming"])
    assert not marked(log, flags=["--runner", "BundleBasedDirectRunner"])
    assert not marked(log, paths=["gs://afar/log.csv"])
    assert not marked(log, words=["--keys-file", str(keys)], reads=False)  # nobody knows of which
    assert SECRET not in plain


def test_an_input_that_changes_during_a_run_is_no_replay(
    again: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished, change, before = running.finished, True, again.log.read_text()

    def changing(*given: Any) -> Any:
        if change:
            with open(again.log, "a") as file:
                file.write("a,buy,ann,3\n")
        return finished(*given)

    monkeypatch.setattr(running, "finished", changing)
    succeed(*again.words(*REPLAY))
    change = False
    said = fail(*again.words(*REPLAY), started=False)  # nothing says what run 1 counted
    assert "the same noise as run 1, but the rows have changed since, or may have" in said
    after = again.log.read_text()
    again.log.write_text(before)  # what run 1 found, and what it may not have counted
    said = fail(*again.words(*REPLAY), started=False)
    assert "the same noise as run 1, but the rows have changed since, or may have" in said
    again.log.write_text(after)
    june = (*REPLAY[:-1], "june")
    succeed(*again.words(*june))
    assert again.spent() == Charge(Fraction(2))
    change = True
    said = fail(*again.words(*june))
    assert "was to repeat run 2 at no cost, but the input changed during the run: it costs" in said
    assert again.spent() == Charge(Fraction(3))


@pytest.mark.parametrize("main", [count.main, ticks.main], ids=["count", "ticks"])
def test_a_repeat_that_releases_something_else_costs_its_budget(
    main: Any, log: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the input is swapped and swapped back: both digests of it are those of run 1."""
    monkeypatch.setenv("COUNTING_SECRET", SECRET)
    made(file, dp.PureDP(9.0))
    how = (*CLOCK, "--horizon", 4) if main is ticks.main else ("--key", "page", "--horizon", 20)
    where = () if main is ticks.main else ("--where", "what=buy")
    words = ["--input", log, *how, *where, *REPLAY, "--account", file]
    words += ["--output", log.parent / "out.csv"]
    rows, finished = log.read_text(), running.finished

    def swapped(*given: Any) -> Any:
        log.write_text(rows.replace("a,view", "a,buy").replace("b,", "a,"))
        ended = finished(*given)
        log.write_text(rows)
        return ended

    succeed(*words, main=main)
    with monkeypatch.context() as patch:
        patch.setattr(running, "finished", swapped)
        said = fail(*words, main=main)
    assert "was to repeat run 1 at no cost, but it released something else: it costs" in said
    assert read_account(str(file)).spent == Charge(Fraction(2))
    assert "this is run 1 again" in succeed(*words, main=main)
    assert read_account(str(file)).spent == Charge(Fraction(2))


def test_digests_of_releases_tell_what_was_released_up_to_each_tick(
    log: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repeat may release more ticks, or fewer; one that cannot be compared is not free."""
    monkeypatch.setenv("COUNTING_SECRET", SECRET)
    made(file, dp.PureDP(9.0))
    words = ["--input", log, *CLOCK, "--horizon", 4, *REPLAY, "--account", file, "--output"]
    words += [log.parent / "out.csv"]
    succeed(*words, "--until", 15, main=ticks.main)
    for until in (20, 5, 11):
        assert "at no cost" in succeed(*words, "--until", until, main=ticks.main)
    assert read_account(str(file)).spent == Charge(Fraction(1))
    first = read_account(str(file)).runs[1]
    assert sorted(first.released) == [1, 2, 3]
    assert len({*first.released.values()}) == 3
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    (ended,) = (line for line in lines if line.get("end") and line["run"] == 1)
    for released in ({"3": ended["released"]["3"]}, {}, {"1": "0" * 32}):
        ended["released"] = released
        with open(file, "w") as out:
            out.writelines(json.dumps(line) + "\n" for line in lines[:3])
        said = fail(*words, "--until", 5, main=ticks.main)
        assert "but it released something else: it costs epsilon = 1" in said


def test_a_repeat_that_writes_other_releases_costs_its_budget(
    again: Shop,
) -> None:
    """Of all releases only what is written can be compared."""
    words = ["--input", again.log, "--item", "what", "--domain", "buy", "view", "--horizon", 20]
    words += [*REPLAY, "--account", again.account, "--output", again.log.parent / "h.csv"]
    succeed(*words, main=histogram.main)
    assert "at no cost" in succeed(*words, main=histogram.main)
    assert "this run costs epsilon = 1" in succeed(*words, "--top", 1, main=histogram.main)
    assert "at no cost" in succeed(*words, "--top", 1, main=histogram.main)
    assert again.spent() == Charge(Fraction(2))


def test_a_repeat_that_dies_costs_what_it_may_have_released(
    again: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows may have changed behind the digest, and its output may be whole: nobody knows."""
    succeed(*again.words(*REPLAY))
    finished = running.finished

    def killed(*given: Any) -> Any:
        with open(again.log, "a") as file:
            file.write("a,buy,ann,3\n")
        finished(*given)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(running, "finished", killed)
        with pytest.raises(KeyboardInterrupt):
            count.main([str(word) for word in again.words(*REPLAY)])
    assert again.spent() == Charge(Fraction(2))
    printed = succeed(again.account, main=printing.main)
    assert "nothing: run 1 again" not in printed


def test_what_a_failed_run_would_repeat_costs_again(
    again: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished = running.finished

    def failing(*given: Any) -> Any:
        raise OSError("the disk is full")

    monkeypatch.setattr(running, "finished", failing)
    fail(*again.words(*REPLAY))
    monkeypatch.setattr(running, "finished", finished)
    succeed(*again.words(*REPLAY))
    assert again.spent() == Charge(Fraction(1))


def test_an_account_of_rho_says_which_epsilon_it_is(file: Path) -> None:
    made(file, dp.ZCDP(0.1))
    add(file, entry(1, cost={"rho": "0.05"}))
    epsilon = zcdp_epsilon(0.05, 1e-6)
    said = f"rho = 0.05 (zCDP), and so epsilon = {epsilon:.4g} at delta = 1e-06, for one row"
    assert said in statement(read_account(str(file)))

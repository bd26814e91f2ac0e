"""Ledgers with an account: transforms are charged in the commands' file when they are applied."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.transforms.window import TimestampedValue

import beam_dpcount as dp
from beam_dpcount.budget.account import Account, AccountError
from beam_dpcount.budget.account_file import create, read_account
from beam_dpcount.budget.account_text import holds, statement
from beam_dpcount.budget.charges import Charge
from beam_dpcount.budget.conversions import float_up
from beam_dpcount.budget.odometer import ColumnUse
from beam_dpcount.budget.spender import Protection
from beam_dpcount.commands import account as printing
from beam_dpcount.commands import count, ticks
from beam_dpcount.transforms.ticks import TickNumbers
from tests.command_lines import command, fail, succeed
from tests.sentences import counted

SECRET = "0123456789abcdef0123456789abcdef"
PURE, BOTH, RHO = dp.PureDP(1.0), dp.ApproxDP(1.0, 1e-6), dp.ZCDP(0.1)
COLUMNS: dict[str, Any] = {"public": ["page", "at"], "protected": ["what"]}
CLOCK: dict[str, Any] = {"tick": 5, "start": 0, "horizon": 4, "keys": ["a"]}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "spending.jsonl"


@pytest.fixture
def pure(file: Path) -> Path:
    create(str(file), dp.PureDP(3.0), None)
    return file


@pytest.fixture
def secret(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COUNTING_SECRET", SECRET)
    return SECRET


def apply(*counts: Any, labels: Sequence[str] = "AB", elements: Any = tuple[str, int]) -> None:
    """Applies each in one pipeline that is never run."""
    pipeline = beam.Pipeline()
    typed = pipeline | beam.Create([]) | beam.Map(print).with_output_types(elements)
    for label, each in zip(labels, counts, strict=False):
        typed | label >> each


def spent(file: Path) -> Charge:
    return read_account(str(file)).spent


def per_element(budget: Any, **more: Any) -> Any:
    return dp.PrefixCount(budget, 20, **more)


def at_clock(budget: Any, **more: Any) -> Any:
    return TickNumbers(budget, **CLOCK, **more)


# When it is charged


@pytest.mark.parametrize("make", [per_element, at_clock])
def test_it_is_charged_when_a_transform_is_applied(make: Callable[..., Any], pure: Path) -> None:
    ledger = dp.Ledger(PURE, account=pure, run="May", **COLUMNS)
    counts = [make(ledger.share(0.25, "clicks")), make(ledger.rest())]
    assert not spent(pure)  # taking a share and making a transform is free
    apply(counts[0])
    assert spent(pure) == Charge(Fraction(1, 4))
    apply(counts[1])  # and the pipeline never runs
    assert spent(pure) == Charge(Fraction(1))
    first, second = read_account(str(pure)).runs.values()
    assert (first.command, first.id, first.inputs, first.end) == ("A", "May", (), "")
    assert second.claim != first.claim


@pytest.mark.parametrize("make", [per_element, at_clock])
def test_it_is_charged_before_anything_runs(make: Callable[..., Any], pure: Path) -> None:
    path, seen = str(pure), str(pure.with_name("seen"))

    def value(number: Any) -> int:  # runs in a worker, which has a copy of it
        with open(seen, "a") as file:
            file.write(f"{spent(Path(path))}\n")
        return 1

    share = dp.Ledger(PURE, account=pure).rest()
    with beam.Pipeline() as pipeline:
        timed = beam.Map(TimestampedValue, 1).with_output_types(tuple[str, int])
        pipeline | beam.Create([("a", 1)]) | timed | make(share, value=value)
    assert {*Path(seen).read_text().splitlines()} == {"epsilon = 1"}


def test_nothing_is_refunded(pure: Path) -> None:
    def stops(pair: Any) -> Any:
        raise ValueError("of the pipeline")

    pipeline = beam.Pipeline()
    pairs = pipeline | beam.Create([1]) | beam.Map(stops).with_output_types(tuple[str, int])
    pairs | per_element(dp.Ledger(PURE, account=pure).rest())
    with pytest.raises(Exception, match="of the pipeline"):
        pipeline.run()
    assert spent(pure) == Charge(Fraction(1))


def test_overspending_is_refused_before_anything_runs(pure: Path) -> None:
    how: Any = {"account": pure, **COLUMNS}
    apply(per_element(dp.Ledger(dp.PureDP(2.5), **how).rest()))
    ledger = dp.Ledger(PURE, **how)
    share, less = ledger.share(0.75, "clicks"), ledger.share(0.25)
    before = pure.read_bytes()
    with pytest.raises(
        dp.errors.OverspentError, match=r"costs epsilon = 0\.75, but of its epsilon = 3"
    ):
        apply(per_element(share))
    assert pure.read_bytes() == before
    assert share.claimed_by is None  # the ledger does not count it either
    apply(per_element(less))
    assert spent(pure) == Charge(Fraction(11, 4))


def test_a_share_by_hand_is_charged_too(pure: Path) -> None:
    ledger = dp.Ledger(PURE, account=pure, **COLUMNS)
    ledger.share(0.25, "mine").claim("mine")
    ledger.share(0.25, "people").claim("people", Protection("one person with 5 events", 2))
    ledger.share(0.25, "local")
    assert spent(pure) == Charge(Fraction(1, 4) + 2 * Fraction(1, 4))  # a row is two changes
    assert [run.charges.replacement.epsilon for run in read_account(str(pure)).runs.values()] == [
        Fraction(1, 2),
        Fraction(1),  # a row may go from one person to another, which is two changes of each
    ]


# What it costs, in each unit


def test_shares_of_zcdp_have_no_epsilon_so_their_ledger_is_charged_whole(file: Path) -> None:
    create(str(file), dp.ApproxDP(3.0, 1e-5), None)
    ledger = dp.Ledger(BOTH, account=file)
    clock = [at_clock(share) for share in (ledger.share(0.5), ledger.spend(dp.PureDP(0.01)))]
    apply(*clock)
    assert spent(file) == Charge(Fraction(1), Fraction(1, 10**6))
    people = dp.Users("who", events=5, per_key=1)
    apply(TickNumbers(ledger.rest(), **CLOCK, value=lambda _: 1, users=people))
    doubled = Charge(Fraction(1), Fraction(1, 10**6)).of_two()  # for a row it is two changes
    assert spent(file) == doubled
    assert [str(run.charges.presence) for run in read_account(str(file)).runs.values()] == [
        "epsilon = 1, delta = 1e-06",
        "nothing",
        str(doubled - Charge(Fraction(1), Fraction(1, 10**6))),
    ]


@pytest.mark.parametrize("budget", [PURE, BOTH, RHO], ids=str)
def test_an_account_of_rho_takes_each_share(budget: Any, file: Path) -> None:
    create(str(file), dp.ZCDP(9.0), None)
    ledger = dp.Ledger(budget, account=file)
    share = ledger.share(0.5)
    counts = at_clock(share)
    apply(counts)
    if isinstance(share.budget, dp.ZCDP):
        assert spent(file) == Charge(rho=Fraction(repr(share.budget.rho)))
    else:
        assert 0 < spent(file).rho <= Fraction(float_up(Fraction(0.5) ** 2 / 2))


def test_delta_for_keys_is_charged_beside_epsilon(file: Path) -> None:
    create(str(file), dp.ApproxDP(3.0, 1e-5), None)
    ledger = dp.Ledger(PURE, keys_delta=1e-6, account=file)
    clock = CLOCK | {"keys": dp.SelectKeys(1e-7)}
    apply(TickNumbers(ledger.share(0.5), **clock))
    assert spent(file) == Charge(Fraction(1, 2), Fraction(1, 10**7))


@pytest.mark.parametrize(
    ("total", "ledger", "said"),
    [
        (dp.PureDP(3.0), {"budget": BOTH}, "has no delta, and this run takes one"),
        (dp.PureDP(3.0), {"budget": PURE, "keys_delta": 1e-7}, "has no delta"),
        (dp.PureDP(3.0), {"budget": RHO}, "adds up epsilon, and this run has a rho"),
        (BOTH, {"budget": RHO}, "give epsilon and delta in its place, or take an account of rho"),
        (
            dp.ZCDP(1.0),
            {"budget": BOTH, "keys_delta": 1e-7},
            "no delta for keys that nobody listed",
        ),
    ],
)
def test_other_units_are_refused_when_the_ledger_is_made(
    total: Any, ledger: dict[str, Any], said: str, file: Path
) -> None:
    create(str(file), total, None)
    with pytest.raises(AccountError, match=said):
        dp.Ledger(**ledger, account=file)


PEOPLE = dp.Users("who", events=5, per_key=1)
METRICS = [dp.metrics.Count(), dp.metrics.Mean("ms", 0, 5)]


def without_end(share: Any) -> Any:
    pure = isinstance(share.budget, dp.PureDP)
    base = dp.mechanisms.SmoothLaplace if pure else dp.mechanisms.SmoothBinary
    return dp.PrefixCount(share, mechanism=dp.mechanisms.Unbounded(base))


KINDS: dict[str, tuple[Callable[[Any], Any], bool]] = {
    "PrefixCount": (per_element, False),
    "unbounded": (without_end, False),
    "people per element": (lambda x: per_element(x, value=lambda _: 1, users=PEOPLE), False),
    "Histogram": (lambda x: dp.Histogram(x, 20, ["x", "y"]), False),
    "TriangleCount": (lambda x: dp.TriangleCount(x, 20, vertices=9, max_degree=3), False),
    "SubstringCount": (lambda x: dp.SubstringCount(x, 20, ["x", "y"], max_length=2), False),
    "LocalMedian": (lambda x: dp.local.LocalMedian(x, 16, value=len), False),
    "TickCount": (at_clock, True),
    "people": (lambda x: at_clock(x, value=lambda _: 1, users=PEOPLE), True),
    "last": (lambda x: counted(x, last=2, **CLOCK), True),
    "distinct": (lambda x: counted(x, dp.People(), **CLOCK, users=PEOPLE), True),
    "vectors": (lambda x: counted(x, METRICS, **CLOCK), True),
}


@pytest.mark.parametrize("total", [PURE, BOTH, RHO], ids=["pure", "both", "rho"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_transform_is_charged(kind: str, total: Any, file: Path) -> None:
    create(str(file), type(total)(*(10 * x for x in vars(total).values())), None)
    make, at_a_clock = KINDS[kind]
    edges = tuple[str, tuple[int, int]] if kind == "TriangleCount" else tuple[str, int]
    apply(make(dp.Ledger(total, account=file).rest()), elements=edges)
    (run,) = read_account(str(file)).runs.values()
    assert run.charges.presence.exceeds(Charge())
    assert not run.charges.presence.exceeds(run.charges.replacement)
    assert (not run.use.public) == at_a_clock


# Which rows, and whose


def test_columns_that_have_no_names_conflict_with_all_others(pure: Path) -> None:
    ledger = dp.Ledger(PURE, account=pure)
    apply(at_clock(ledger.share(0.25)), at_clock(ledger.share(0.25)))  # nothing is public there
    with pytest.raises(AccountError) as error:
        apply(per_element(ledger.share(0.25)))
    assert "this run publishes what others protect: :presence (that a row exists)" in str(
        error.value
    )
    assert "it is not known which columns this run uses" in str(error.value)
    assert "name this run's columns by public= and protected=; or give allow_public=" in str(
        error.value
    )
    named = [(at_clock, ColumnUse(protected=frozenset({":presence", "page", "at", "what"})))]
    named += [(per_element, ColumnUse(frozenset({":presence", "page", "at"}), frozenset({"what"})))]
    for make, use in named:
        pure.unlink()
        create(str(pure), PURE, None)
        own = dp.Ledger(PURE, account=pure, **COLUMNS)
        apply(make(own.share(0.25)), make(own.share(0.25)))
        assert {run.use for run in read_account(str(pure)).runs.values()} == {use}


@pytest.mark.parametrize(
    ("columns", "use"),
    [
        ({"protected": ["what"]}, ColumnUse(frozenset({":presence", ":unknown"}), {"what"})),
        ({"public": ["page"]}, ColumnUse(frozenset({":presence", "page"}), {":unknown"})),
        ({"public": [], "protected": []}, ColumnUse(frozenset({":presence"}))),
        ({"public": [":presence"]}, ColumnUse(frozenset({"::presence"}), {":unknown"})),
    ],
)
def test_columns_that_nobody_names_may_be_any(columns: Any, use: ColumnUse, pure: Path) -> None:
    apply(per_element(dp.Ledger(PURE, account=pure, **columns).rest()))
    (run,) = read_account(str(pure)).runs.values()
    assert run.use == use


def test_what_was_protected_may_be_given_up(pure: Path) -> None:
    apply(at_clock(dp.Ledger(PURE, account=pure, **COLUMNS).rest()))
    ledger = dp.Ledger(PURE, account=pure, **COLUMNS, allow_public=[":presence", "page", "at"])
    apply(per_element(ledger.rest()))
    account = read_account(str(pure))
    assert "Nothing is claimed about :presence, at, page, which run 1 protected" in holds(account)
    assert account.spent == Charge(Fraction(3))  # ticks cost two changes from now on


def test_an_account_for_people_takes_transforms_for_them_alone(file: Path) -> None:
    create(str(file), dp.PureDP(3.0), "who")
    ledger = dp.Ledger(PURE, account=file)
    for users in (
        None,
        dp.Users("session", events=5, per_key=1),
        dp.Users(lambda e: e["who"], events=5, per_key=1),
    ):
        said = "has 'session'" if users and users.by == "session" else "has none"
        with pytest.raises(AccountError, match=f"{said}: nothing would follow for that person"):
            apply(at_clock(ledger.share(0.1), value=lambda _: 1, users=users))
    with pytest.raises(AccountError, match="for one person"):
        ledger.share(0.1).claim("by hand", Protection("one person", 2))
    assert not spent(file)
    whose = dp.Users("who", events=5, per_key=1)
    apply(at_clock(ledger.share(0.25), value=lambda _: 1, users=whose))
    assert spent(file) == Charge(Fraction(1, 4))
    (run,) = read_account(str(file)).runs.values()
    assert "who" in run.use.protected


# The same id


def test_an_id_that_starts_anew_is_charged_anew(pure: Path) -> None:
    """Its noise is new: two outputs over the same rows cost two budgets."""
    for n in (1, 2):
        apply(at_clock(dp.Ledger(PURE, account=pure, run="May").rest()))
        assert spent(pure) == Charge(Fraction(n))


def test_the_same_replayable_noise_is_refused(pure: Path, secret: str) -> None:
    """Nobody compares rows or releases: both outputs together may show where rows differ."""

    def once(run_id: str, **more: Any) -> None:
        entropy = dp.ReplayableEntropy("COUNTING_SECRET", run_id=run_id)
        apply(at_clock(dp.Ledger(PURE, account=pure, **more).rest(), entropy=entropy))

    once("May")
    with pytest.raises(AccountError, match=r"would draw the same noise as run 1.*another run_id"):
        once("May")
    once("June", run="mine")
    ids = [run.id for run in read_account(str(pure)).runs.values()]
    assert ids == ["May", "mine"]
    assert secret not in pure.read_text()
    once("May", resumes=True)  # goes on from its state, by its user's word
    assert spent(pure) == Charge(Fraction(2))


def test_without_its_secret_replayable_noise_has_no_account(pure: Path) -> None:
    entropy = dp.ReplayableEntropy("NO_SUCH_SECRET", run_id="May")
    with pytest.raises(dp.errors.SecretError, match="NO_SUCH_SECRET is not set here"):
        apply(at_clock(dp.Ledger(PURE, account=pure).rest(), entropy=entropy))
    assert not spent(pure)


def test_a_job_that_goes_on_from_its_state_costs_nothing_more(pure: Path) -> None:
    def started(**more: Any) -> dp.Ledger:
        ledger = dp.Ledger(PURE, account=pure, run="shop", **COLUMNS, **more)
        apply(at_clock(ledger.share(0.5, "clicks")), at_clock(ledger.share(0.25)))
        return ledger

    assert "runs 1, 2 cost epsilon = 0.75." in str(started())
    for _ in range(3):
        ledger = started(resumes=True)
        assert spent(pure) == Charge(Fraction(3, 4))
    assert "cost nothing; runs 1, 2 may go on." in str(ledger)
    account = read_account(str(pure))
    assert [run.again for run in account.runs.values()] == [None, None, *[1, 2] * 3]
    assert "only if run 3 started from the last state of run 1, as it was said to." in holds(
        account
    )
    assert "nothing: run 1 again" in statement(account)


def test_what_is_not_the_same_does_not_go_on(pure: Path) -> None:
    share = dp.Ledger(PURE, account=pure, run="shop").share(0.25)
    apply(at_clock(share))

    def resumed(fraction: float = 0.25, *, label: str = "A", **more: Any) -> Charge:
        before, columns = spent(pure), more.pop("columns", {})
        ledger = dp.Ledger(PURE, account=pure, run="shop", resumes=True, **columns)
        apply(TickNumbers(ledger.share(fraction), **CLOCK | more), labels=label)
        return spent(pure) - before

    assert not resumed()
    assert resumed(0.5) == Charge(Fraction(1, 2))
    assert resumed(label="B") == Charge(Fraction(1, 4))
    assert resumed(horizon=5) == Charge(Fraction(1, 4))
    assert resumed(relation="replace_one") == Charge(Fraction(1, 4))
    assert resumed(columns=COLUMNS) == Charge(Fraction(1, 4))
    for other in ({"keys": ["b"]}, {"start": 5}, {"value": len}, {"value": lambda _: 2}):
        assert resumed(**other) == Charge(Fraction(1, 4)), other
    assert not resumed()
    ledger = dp.Ledger(PURE, account=pure, run="shop", resumes=True)
    apply(at_clock(ledger.share(0.25)))
    before = spent(pure)
    apply(at_clock(ledger.share(0.25)))  # one state goes on once
    assert spent(pure) - before == Charge(Fraction(1, 4))
    with pytest.raises(AccountError, match="has no run 'shp' that could go on: give the run="):
        apply(at_clock(dp.Ledger(PURE, account=pure, run="shp", resumes=True).rest()))
    with pytest.raises(AccountError, match="has no run ''"):
        apply(at_clock(dp.Ledger(PURE, account=pure, resumes=True).rest()))


HOURS = dp.Clock("1h", start=0, ticks=4)


@pytest.mark.parametrize("views", [HOURS, [HOURS, HOURS.each()]], ids=["one", "several"])
def test_a_sentence_that_says_anything_else_does_not_go_on(views: Any, pure: Path) -> None:
    def applied(what: Any = dp.Sum("v", 0, 1), *, resumes: bool = True, **other: Any) -> Charge:
        before = spent(pure)
        ledger = dp.Ledger(PURE, account=pure, run="shop", resumes=resumes)
        given = {"keys": ["a"], "key": "k", "time": "t", **other}
        count = dp.TickCount(ledger.share(0.25), views, what, **given)
        apply(count, elements=dict[str, Any])
        return spent(pure) - before

    assert applied(resumes=False) == Charge(Fraction(1, 4))
    assert not applied()
    others: list[Any] = [{"key": "x"}, {"time": "x"}, {"keys": ["b"]}, {"what": dp.Sum("w", 0, 1)}]
    for other in others:
        assert applied(**other) == Charge(Fraction(1, 4)), other
    assert not applied()


@pytest.mark.parametrize(
    ("total", "budget"),
    [(dp.ZCDP(9), RHO), (dp.PureDP(9), PURE), (dp.ApproxDP(9, 1e-5), BOTH), (dp.ZCDP(9), PURE)],
)
@pytest.mark.parametrize("users", [None, dp.Users("u", 3)], ids=["event", "person"])
def test_several_views_are_charged_no_less_than_one(
    users: Any, total: Any, budget: Any, tmp_path: Path
) -> None:
    """A row that goes from one person to another changes two people."""
    charged = []
    for number, views in enumerate(([HOURS.last(2)], [HOURS.each(), HOURS.last(2)])):
        file = tmp_path / f"{number}.jsonl"
        create(str(file), total, None)
        ledger = dp.Ledger(budget, account=file, **COLUMNS)
        given = {"keys": ["a"], "key": "k", "time": "t", "users": users}
        apply(dp.TickCount(ledger.share(1), views, dp.Sum("v", -1, 1), **given), elements=dict)
        (run,) = read_account(str(file)).runs.values()
        charged.append(run.charges)
    one, several = charged
    for each in ("presence", "replacement"):
        for part in ("epsilon", "delta", "rho"):
            least = getattr(getattr(one, each), part)
            assert getattr(getattr(several, each), part) >= least, (each, part)


def test_a_ledger_that_goes_on_pays_for_what_is_new_in_full(file: Path) -> None:
    create(str(file), dp.ApproxDP(3.0, 1e-5), None)
    old = dp.Ledger(BOTH, account=file, run="shop")
    apply(at_clock(old.share(0.5)), at_clock(old.share(0.5)))
    new = dp.Ledger(BOTH, account=file, run="shop", resumes=True)
    apply(at_clock(new.share(0.5)))
    assert spent(file) == Charge(Fraction(1), Fraction(1, 10**6))
    apply(at_clock(new.share(0.5)), labels="C")
    assert spent(file) == Charge(Fraction(2), Fraction(2, 10**6))


# The file, shared


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.csv"
    path.write_text("page,what,who,at\n" + "a,buy,ann,0\na,view,bob,5\nb,buy,cid,9\n" * 5)
    return path


def test_commands_and_pipelines_share_an_account(file: Path, log: Path) -> None:
    succeed(file, "--create", "--epsilon", 2, main=printing.main)
    words = ["--input", log, "--key", "page", "--where", "what=buy", "--horizon", 20]
    words += ["--epsilon", 1, "--account", file, "--output"]
    succeed(*words, log.parent / "one.csv", main=count.main)
    ledger = dp.Ledger(PURE, "shop", account=str(file), run="May", **COLUMNS)
    apply(per_element(ledger.share(0.75)), labels=["Clicks"])
    said = fail(
        *words, log.parent / "two.csv", run=partial(command, main=count.main), started=False
    )
    assert "this run costs epsilon = 1, but of its epsilon = 2 only epsilon = 0.25 is left" in said
    printed = succeed(file, main=printing.main)
    assert "Clicks   epsilon = 0.75  ?         pipeline May" in printed
    assert "did not end well" not in printed
    clock = ["--timestamp", "at", "--tick", 5, "--start", 0, "--keys", "a", "--epsilon", 0.1]
    conflict = ["--input", log, "--key", "page", *clock, "--horizon", 4, "--account", file]
    said = fail(
        *conflict,
        "--output",
        log.parent / "t.csv",
        run=partial(command, main=ticks.main),
        started=False,
    )
    assert "protects what others publish: :presence (that a row exists), 'page'" in said
    assert "(runs 1, 2)" in said


def test_ledgers_at_once_do_not_overspend(pure: Path) -> None:
    ended: list[str] = []
    together = threading.Barrier(8)

    def once() -> None:
        share = dp.Ledger(PURE, account=pure, **COLUMNS).rest()
        together.wait()
        try:
            share.claim("mine")
            ended.append("charged")
        except dp.errors.OverspentError:
            ended.append("refused")

    threads = [threading.Thread(target=once) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ended) == ["charged"] * 3 + ["refused"] * 5
    assert spent(pure) == Charge(Fraction(3))


PROCESS = """
    import sys
    import beam_dpcount as dp
    ledger = dp.Ledger(dp.PureDP(1.0), account=sys.argv[1], public=["page"], protected=[])
    sys.stdin.readline()
    try:
        ledger.rest().claim("mine")
    except dp.errors.OverspentError:
        print("refused")
"""


def test_processes_at_once_do_not_overspend(pure: Path) -> None:
    program = [sys.executable, "-c", textwrap.dedent(PROCESS), str(pure)]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    started = [subprocess.Popen(program, **pipes) for _ in range(4)]
    ended = sorted(process.communicate("go\n")[0] for process in started)
    assert ended == ["", "", "", "refused\n"]
    assert spent(pure) == Charge(Fraction(3))


def test_the_file_has_nothing_of_the_data(pure: Path) -> None:
    """It is the same to the byte, but for times, whatever the rows are."""
    lines = []
    for rows in ([("a", 1)], [("a", 2), ("secret", 3)]):
        pure.unlink()
        create(str(pure), PURE, None)
        with beam.Pipeline() as pipeline:
            pairs = pipeline | beam.Create(rows).with_output_types(tuple[str, int])
            pairs | per_element(dp.Ledger(PURE, account=pure, run="May").rest(), bounds=(0, 3))
        parsed = [json.loads(line) for line in pure.read_text().splitlines()]
        lines.append([{**line, "time": ""} for line in parsed])
    assert lines[0] == lines[1]
    assert len(lines[0]) == 2


# How it is asked for


def test_an_account_must_be_here(file: Path) -> None:
    with pytest.raises(AccountError, match=r"there is no account .*: make one with `beam-dpcount"):
        dp.Ledger(PURE, account=file)
    assert not file.exists()  # a name that is mistyped would forget what was spent
    for path in ("gs://bucket/a.jsonl", "s3://bucket/a.jsonl"):
        with pytest.raises(AccountError, match=f"must be a local file, got '{path}': .* locked"):
            dp.Ledger(PURE, account=path)
    file.write_text("key,step\n")
    with pytest.raises(AccountError, match="not a line of an account"):
        dp.Ledger(PURE, account=file)


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"run": "May"}, ValueError, "run is about an account, got 'May': give account="),
        ({"resumes": True}, ValueError, "resumes is about an account"),
        ({"public": []}, ValueError, "public is about an account"),
        ({"account": None, "allow_public": ["a"]}, ValueError, "allow_public is about an account"),
    ],
)
def test_what_is_about_an_account_needs_one(given: Any, error: Any, said: str) -> None:
    with pytest.raises(error, match=said):
        dp.Ledger(PURE, **given)


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"run": 5}, TypeError, "run must be a text that names the run, got 5"),
        ({"run": " "}, TypeError, "run must be a text"),
        ({"resumes": 1}, TypeError, "resumes must be True or False, got 1"),
        ({"public": "page"}, TypeError, "public must be a sequence of str, got str"),
        ({"protected": [1]}, TypeError, "protected must be a sequence of str"),
        ({"public": ["a"], "protected": ["a"]}, ValueError, "both name 'a'"),
    ],
)
def test_mistakes(given: Any, error: Any, said: str, pure: Path) -> None:
    with pytest.raises(error, match=said):
        dp.Ledger(PURE, account=pure, **given)


def test_a_mistyped_column_is_refused(pure: Path) -> None:
    ledger = dp.Ledger(PURE, account=pure, **COLUMNS, allow_public=["pgae"])
    with pytest.raises(AccountError, match="no run uses a column 'pgae'"):
        apply(at_clock(ledger.rest()))


def test_copies_do_not_carry_the_account(pure: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = dp.Ledger(PURE, account=pure)
    share = ledger.rest()
    assert pickle.loads(pickle.dumps(share)) is share
    assert str(pure).encode() not in pickle.dumps(ledger)
    assert "Account " in str(ledger)
    assert "nothing was charged yet" in ledger._repr_html_()
    assert str(pure) not in repr(ledger) + repr(share.describe()) + repr(ledger.describe())
    assert isinstance(read_account(str(pure)), Account)

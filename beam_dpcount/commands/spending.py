"""An account: what runs over one set of rows cost in all, in a file of JSON lines.

The first line is the total. A run adds a line with its cost before anything is counted, under an
exclusive lock, and one more at its end. What was added stays: a run without an end counts, and one
that failed counts unless it is certain that it released nothing.

How costs add up is fixed when the account is made, as the rule must not depend on what was seen:

- a total of epsilon, with or without delta: epsilons add up, and deltas [basic composition];
- a total of rho: rhos add up [Bun, Steinke 2016]; a run by epsilon (and delta) costs the rho of
  its noise, whatever it is.

Both hold too where the budget of a run was chosen after looking at releases of runs before it, as
long as the total is fixed [Rogers, Roth, Ullman, Vadhan 2016; Feldman, Zrnic 2021].

An account is for one row or for one person. Its neighbours are two inputs of which one lacks what
the row says (at a clock: the row), or what all rows of the person say; every command protects at
least that, a graph or a bound on people perhaps in two changes, see `times`.
"""

from __future__ import annotations

import argparse
import datetime as dt
import glob
import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import beam_dpcount as dp
from beam_dpcount.budget.budgets import Budget
from beam_dpcount.budget.conversions import float_up, rounded_up, zcdp_epsilon
from beam_dpcount.budget.costs import GaussianCost, PureCost
from beam_dpcount.commands import options as opt
from beam_dpcount.commands import stop
from beam_dpcount.commands.files.formats import InputError
from beam_dpcount.noise.replay import NOISE_FORMAT, ReplayableEntropy

if TYPE_CHECKING:
    from beam_dpcount.commands.task import Task
    from beam_dpcount.counters.counter import Counter

FORMAT = 1
_USUAL_DELTA = 1e-6
_MOST = 300  # characters of an amount
_BLOCK = 1 << 20
_BEGINNING = b'{"account":'
_DONE, _NOTHING = "done", "nothing was released"
_COUNTS = "it did not end well, and counts"


@dataclass(frozen=True)
class Cost:
    """What a run costs: epsilon and delta, or rho; the others are 0. Exact."""

    epsilon: Fraction = Fraction(0)
    delta: Fraction = Fraction(0)
    rho: Fraction = Fraction(0)

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.epsilon + other.epsilon, self.delta + other.delta, self.rho + other.rho)

    def __sub__(self, other: Cost) -> Cost:
        parts = zip(self.parts, other.parts, strict=True)
        return Cost(*(max(mine - theirs, Fraction(0)) for mine, theirs in parts))

    @property
    def parts(self) -> tuple[Fraction, Fraction, Fraction]:
        return self.epsilon, self.delta, self.rho

    def __bool__(self) -> bool:
        return any(self.parts)

    def exceeds(self, other: Cost) -> bool:
        return any(mine > theirs for mine, theirs in zip(self.parts, other.parts, strict=True))

    def __str__(self) -> str:
        if self.rho:
            return f"rho = {rounded_up(float_up(self.rho))}"
        delta = f", delta = {rounded_up(float_up(self.delta))}" if self.delta else ""
        return f"epsilon = {rounded_up(float_up(self.epsilon))}{delta}" if self else "nothing"

    def packed(self) -> dict[str, str]:
        named = zip(("epsilon", "delta", "rho"), self.parts, strict=True)
        return {name: str(amount) for name, amount in named if amount}

    @staticmethod
    def unpacked(data: Mapping[str, str]) -> Cost:
        return Cost(**{name: _amount(text) for name, text in data.items()})


def _amount(text: object) -> Fraction:
    if not isinstance(text, str) or len(text) > _MOST:
        raise ValueError("not an amount")
    made = Fraction(text)
    if made < 0:
        raise ValueError("not an amount")
    return made


def written(number: float) -> Fraction:
    """The decimal number that was written: 0.1 is a tenth, and ten of them are 1."""
    return Fraction(repr(float(number)))


def cost_of_budget(budget: Budget) -> Cost:
    """A budget as it was written."""
    if isinstance(budget, dp.ZCDP):
        return Cost(rho=written(budget.rho))
    delta = written(budget.delta) if isinstance(budget, dp.ApproxDP) else Fraction(0)
    return Cost(written(budget.epsilon), delta)


# What a run costs


def times(counter: Counter, for_person: bool) -> int:
    """How many times the rho of its releases a row (or person) costs: 1, 2 or 4.

    2 or 4 where a row is two changes: behind a bound on people others of its person's may count in
    its place; and in a graph others may insert the same edge. Else what is protected holds a row.
    """
    if for_person:
        return 1
    change = counter.change
    return max(change.event_cost(counter.mechanism), change.for_element**2)


def cost_of(
    budget: Budget, counter: Counter, keys_delta: float, account: Account
) -> tuple[Cost, str]:
    """What all releases of a run cost, in the unit of an account; and why it is more than the
    budget, if it is; or an InputError where it has none there.

    Two changes that are (epsilon, delta)-DP each are (2 epsilon, (1 + e^epsilon) delta)-DP.
    """
    factor, of_rho = times(counter, account.user is not None), bool(account.total.rho)
    if of_rho:
        if keys_delta:
            raise InputError(
                f"account {account.path!r} adds up rho, and has no delta for --select-keys: make "
                "one by --epsilon and --delta, or list --keys"
            )
        why = "" if factor == 1 else f" (up to 4 times its rho: {_TWO})"
        return Cost(rho=_rho(budget, counter, factor)), why
    if isinstance(budget, dp.ZCDP):
        raise InputError(
            f"account {account.path!r} adds up epsilon, and this run has --rho: give --epsilon "
            "and --delta in its place, or make an account by --rho"
        )
    cost = cost_of_budget(budget)
    if keys_delta:
        cost = replace(cost, delta=written(keys_delta))
    if cost.delta and not account.total.delta:
        raise InputError(
            f"account {account.path!r} has no delta, and this run takes one: give --epsilon alone "
            "and no --select-keys, or make an account by --epsilon and --delta"
        )
    if factor == 1:
        return cost, ""
    more = 1 + Fraction(math.exp(min(budget.epsilon, 600.0)) * (1 + 1e-12))
    delta = Fraction(float_up(cost.delta * more)) if cost.delta else Fraction(0)
    return Cost(2 * cost.epsilon, delta), f" (two times its budget: {_TWO})"


_TWO = "without one row others may count in its place, so that for a row this run is two changes"


def _rho(budget: Budget, counter: Counter, factor: int) -> Fraction:
    """The rho of all releases of a run, so many times."""
    # Two changes are 2 epsilon of Laplace noise, whatever their products: four times its rho.
    of_pure = 1 if factor == 1 else 4
    if isinstance(budget, dp.ZCDP):
        return written(budget.rho) * factor
    rho = Fraction(0)
    for part in counter.costs():
        if isinstance(part, GaussianCost):  # a Gaussian's is (Delta_2 / sigma)^2 / 2
            rho += part.ratio_squared / 2 * factor
        elif isinstance(part, PureCost):
            rho += part.rho * of_pure
        else:
            rho += part.rho * factor
    return Fraction(float_up(rho))


# The file


def is_account(path: str) -> bool:
    """Whether a file begins as accounts do."""
    with suppress(OSError), open(path, "rb") as file:
        return file.read(len(_BEGINNING)) == _BEGINNING
    return False


@dataclass(frozen=True)
class Run:
    """A line of an account, with what its later lines say."""

    number: int
    time: str
    command: str
    cost: Cost
    said: str  # the budget and what else it is about, in words
    output: str
    inputs: tuple[tuple[str, int, str], ...]  # path, bytes, digest
    again: int | None = None  # the run that it replayed
    end: str = ""
    mark: str = ""  # of what was counted, where another run would release the same

    @property
    def counts(self) -> bool:
        return self.end != _NOTHING


@dataclass
class Account:
    """An account as its file has it.

    Raises:
      InputError: it is not there, or is no account.
    """

    path: str
    total: Cost = field(default_factory=Cost)
    user: str | None = None  # the column that says whose a row is; None: it is for one row
    time: str = ""
    runs: dict[int, Run] = field(default_factory=dict)

    @property
    def spent(self) -> Cost:
        return sum((run.cost for run in self.runs.values() if run.counts), Cost())

    @property
    def left(self) -> Cost:
        return self.total - self.spent

    @property
    def whose(self) -> str:
        if self.user is None:
            return (
                "one row: that it says what it says, and for counts at a clock (ticks) that it is "
                "there at all; not for all rows of a person"
            )
        return f"one person, a cell of {self.user!r} to the letter, with all rows"

    @classmethod
    def read(cls, path: str) -> Account:
        try:
            with open(path, "rb") as file:
                return cls.parsed(path, file.read())
        except OSError as error:
            raise _no_account(path, error) from None

    @classmethod
    def parsed(cls, path: str, data: bytes) -> Account:
        """An account of all lines that are whole: the last one may have been cut off, and then no
        run has begun on the strength of it."""
        made, number = cls(path), 0
        try:
            for number, line in enumerate(data[: data.rfind(b"\n") + 1].splitlines(), 1):
                made._take(number, json.loads(line))
        except _OtherFormatError as error:
            raise InputError(f"account {path!r} {error}") from None
        except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError):
            raise InputError(
                f"{path!r}, line {number}: not a line of an account; restore the file, or make "
                "another account and count what was spent against it"
            ) from None
        if not made.total:
            raise InputError(
                f"{path!r} is not an account: make one with `beam-dpcount account FILE --create`"
            )
        return made

    def _take(self, number: int, line: dict[str, Any]) -> None:
        if number == 1:
            if line["account"] != FORMAT:
                raise _OtherFormatError(
                    f"is of format {int(line['account'])}, and this version knows {FORMAT}: "
                    "install the one that wrote it, or a later one"
                )
            self.total, self.user = Cost.unpacked(line["total"]), line["user"]
            self.time = str(line["time"])
            return
        run = int(line["run"])
        if "end" in line:
            ended = self.runs[run]
            cost = Cost.unpacked(line["cost"]) if "cost" in line else ended.cost
            self.runs[run] = replace(ended, end=line["end"], mark=line.get("mark", ""), cost=cost)
            return
        if run != len(self.runs) + 1:
            raise ValueError("a line is missing")
        self.runs[run] = Run(
            run,
            str(line["time"]),
            str(line["command"]),
            Cost.unpacked(line["cost"]),
            str(line["said"]),
            str(line["output"]),
            tuple((str(path), int(size), str(digest)) for path, size, digest in line["inputs"]),
            line.get("again"),
        )

    def replayed(self, mark: str) -> int | None:
        """The run that released what a run of this mark would release."""
        if not mark:
            return None
        same = (n for n, run in self.runs.items() if run.mark == mark and run.end == _DONE)
        return next(same, None)

    def check(self, cost: Cost, why: str, user: str | None) -> None:
        """Raise InputError for a run that is for others, or exceeds what is left."""
        if self.user is not None and user != self.user:
            given = "has none" if user is None else f"has --user {user}"
            raise InputError(
                f"account {self.path!r} is for one person, a cell of {self.user!r} (--user), and "
                f"this run {given}: nothing would follow for that person; give --user {self.user}, "
                "or another account"
            )
        if not (self.spent + cost).exceeds(self.total):
            return
        left = f"{self.left} is left" if self.left else "nothing is left"
        runs = sum(run.counts for run in self.runs.values())
        after = f" after {runs} run{'s' * (runs != 1)}" if runs else ""
        raise InputError(
            f"account {self.path!r} would be overspent: this run costs {cost}{why}, but of its "
            f"{self.total} only {left}{after}: give this run less, or count nothing more of these "
            "rows (`beam-dpcount account FILE` lists the runs); a higher total is a weaker "
            "promise, to be made by those who answer for the data"
        )

    def __str__(self) -> str:
        """What was spent on what, and what holds of all of it."""
        inputs: dict[Any, str] = {}
        rows = [("run", "time", "command", "costs", "of input", "output")]
        for run in self.runs.values():
            names = [inputs.setdefault(one[1:], f"{len(inputs) + 1}") for one in run.inputs]
            costs = str(run.cost)
            if run.again is not None and not run.cost:
                costs = f"nothing: run {run.again} again"
            elif not run.counts:
                costs = f"nothing ({run.end})"
            elif run.end != _DONE:
                costs += f" ({_COUNTS})"
            where = "+".join(names) or "?"
            rows.append((str(run.number), run.time, run.command, costs, where, run.output))
        wide = [max(map(len, column)) for column in zip(*rows, strict=True)]
        table = [
            "  ".join(f"{cell:<{width}}" for cell, width in zip(row, wide, strict=True)).rstrip()
            for row in rows
        ]
        paths = {one[1:]: one[0] for run in self.runs.values() for one in run.inputs}
        named = [f"input {name}: {paths[key]}, {key[0]:,} bytes" for key, name in inputs.items()]
        adds = "rhos" if self.total.rho else "epsilons and deltas" * bool(self.total.delta)
        return "\n".join(
            [
                f"account {self.path} (private: it has digests of the input), since {self.time}",
                f"for {self.whose}",
                "",
                *(table if self.runs else ["no runs yet"]),
                *named,
                "",
                f"total: {self.total}; {adds or 'epsilons'} of runs add up",
                f"spent: {self.spent}",
                f"left:  {self.left}",
                "",
                self.holds(),
            ]
        )

    def holds(self) -> str:
        """What holds of all runs together."""
        spent, delta = self.spent, _USUAL_DELTA
        if not spent:
            return "Nothing was released yet."
        also = ""
        if spent.rho:
            epsilon = zcdp_epsilon(float_up(spent.rho), delta)
            also = f" (zCDP), and so epsilon = {rounded_up(epsilon, 4)} at delta = {delta:g},"
        return (
            f"All that these runs released satisfies {spent}{also} for {self.whose}. It holds for "
            "rows that no other account, and no run without one, has counted."
        )


class _OtherFormatError(ValueError):
    """A later format."""


def _no_account(path: str, error: OSError) -> InputError:
    if isinstance(error, FileNotFoundError):
        return InputError(
            f"there is no account {path!r}: make one with `beam-dpcount account "
            f"{path} --create --epsilon 3 --delta 1e-5`, the most that all runs over these rows "
            "may cost together"
        )
    return InputError(f"account {path!r} cannot be read: {error.strerror or error}")


def create(path: str, budget: Budget, user: str | None) -> Account:
    """Make an account, of mode 0600; an InputError where the file is there or cannot be made."""
    if any(len(str(part)) > _MOST for part in cost_of_budget(budget).parts):
        raise InputError(f"{budget} is too small for an account: no run could be made with it")
    line = {
        "account": FORMAT,
        "total": cost_of_budget(budget).packed(),
        "user": user,
        "time": now(),
        "version": dp.__version__,
    }
    try:
        file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError:
        raise InputError(
            f"account {path!r} is there already: `beam-dpcount account {path}` prints it; a new "
            "one for the same rows would forget what was spent"
        ) from None
    except OSError as error:
        raise InputError(f"account {path!r} cannot be made: {error.strerror or error}") from None
    try:
        _append(path, file, 0, line)
    except BaseException:
        os.unlink(path)
        raise
    finally:
        os.close(file)
    return Account.read(path)


@contextmanager
def _locked(path: str) -> Iterator[tuple[Account, Any]]:
    """The account, and a function that adds a line to it; no other run reads or adds meanwhile."""
    try:
        import fcntl
    except ImportError:  # Windows
        raise InputError("--account needs a system that locks files (flock), as Linux") from None
    try:
        file = os.open(path, os.O_RDWR)
    except OSError as error:
        raise _no_account(path, error) from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        data = b"".join(iter(lambda: os.read(file, _BLOCK), b""))
        end = data.rfind(b"\n") + 1
        account = Account.parsed(path, data)

        def add(line: Mapping[str, Any]) -> None:
            nonlocal end
            end = _append(path, file, end, line)

        yield account, add
    finally:
        os.close(file)  # which unlocks it


def _append(path: str, file: int, end: int, line: Mapping[str, Any]) -> int:
    """Add a line at the end of what is whole, and wait until it is on the disk; the new end."""
    data = json.dumps(line).encode() + b"\n"
    try:
        os.ftruncate(file, end)
        os.lseek(file, end, os.SEEK_SET)
        if os.write(file, data) < len(data):
            raise OSError(28, "No space left on device")
        os.fsync(file)
    except OSError as error:
        with suppress(OSError):
            os.ftruncate(file, end)
        raise InputError(
            f"account {path!r} cannot be written: {error.strerror or error}; without it nothing "
            "is counted"
        ) from None
    return end + len(data)


def now() -> str:
    return dt.datetime.now(dt.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


# A run


def check_place(path: str, others: Sequence[str]) -> None:
    """Raise InputError for an account that is not here, or is an input or an output as well."""
    if "://" in path:
        raise InputError(f"--account must be a local file, got {path!r}")
    if os.path.realpath(path) in map(os.path.realpath, others):
        raise InputError(f"--account {path!r} is an input or an output as well; name another file")


@contextmanager
def entered(
    task: Task, place: str, paths: Mapping[str, str], flags: Sequence[str]
) -> Iterator[list[str]]:
    """Enters a run into its --account around the counting, and yields what is to be said of it.

    Args:
      task: whose transform is made.
      place: of the output, until it is whole.
      paths: of all input files, and what they are called.
      flags: options for Beam.

    Raises:
      InputError: the run exceeds what is left, or the account is none; before anything is counted.
    """
    options = task.options
    if options.account is None:
        yield []
        return
    path, before = options.account, _states(place)
    inputs = _looked_at(paths)
    mark = _mark(task, inputs, flags)
    with _locked(path) as (account, add):
        full, why = cost_of(opt.budget_of(options), task.counter, _beside(options), account)
        again = account.replayed(mark)
        cost = full if again is None else Cost()
        account.check(cost, why, options.user)
        number = len(account.runs) + 1
        line: dict[str, Any] = {"run": number, "time": now(), "command": task.name}
        # A repeat costs nothing when it is known to have been one: its rows may yet change.
        line |= {"cost": full.packed(), "output": options.output, "inputs": inputs}
        line |= {"said": task.guarantee(), "version": dp.__version__}
        add(line if again is None else line | {"again": again})
    # Not what is left, nor how many runs there were: whether one failed may depend on its rows.
    task.account = (
        f"This run costs {full}{why} of an account of {account.total} for {account.whose}."
        if again is None
        else f"This repeats a run of an account of {account.total}: the same releases, at no cost."
    )
    try:
        yield [_entered(path, account, cost, why, again)]
    except Exception:
        # Beam's own runner in this process, and no file begun: then nobody has seen a release. (How
        # many there were so far may have been shown, which is one where keys are selected; and what
        # on-reject raise says is one.)
        shows = bool(flags) or getattr(options, "select_keys", False) or stop.wrote
        shows = shows or options.on_reject == "raise"
        if not shows and before is not None and _states(place) == before:
            with suppress(InputError):  # it then counts
                _end(path, {"run": number, "end": _NOTHING, "time": now()})
        raise
    line = {"run": number, "end": _DONE, "time": now()}
    unchanged = _looked_at(paths) == inputs
    if unchanged:
        line |= {"mark": mark} if mark else {}
        line |= {} if again is None else {"cost": cost.packed()}
    _end(path, line)
    if again is not None and not unchanged:
        raise InputError(
            f"the input changed during the run, which was to repeat run {again} at no cost: it "
            f"costs {full}, and account {path!r} has it"
        )


def foretold(task: Task) -> list[str]:
    """What a run would cost its --account, and whether there is as much; nothing is entered.

    Raises:
      InputError: as `entered`.
    """
    options, path = task.options, task.options.account
    if path is None:
        return []
    with _locked(path) as (account, _):
        cost, why = cost_of(opt.budget_of(options), task.counter, _beside(options), account)
        account.check(cost, why, options.user)
    again = ""
    if opt.entropy_of(options).is_replayable:
        again = ", or nothing, if it repeats one with the same secret, options and rows"
    left = account.left - cost
    return [f"account {path}: the run would cost {cost}{why}{again}; left after it: {left}"]


def _entered(path: str, account: Account, cost: Cost, why: str, again: int | None) -> str:
    if again is not None:
        return (
            f"account {path}: this is run {again} again, with the same secret, options and rows: "
            f"the same releases, at no cost; left: {account.left}"
        )
    return f"account {path}: this run costs {cost}{why}; left after it: {account.left - cost}"


def _end(path: str, line: Mapping[str, Any]) -> None:
    with _locked(path) as (_, add):
        add(line)


def _beside(options: argparse.Namespace) -> float:
    """The delta that comes beside a budget which has none, or is for --select-keys."""
    if not getattr(options, "select_keys", False):
        return 0.0
    return float(options.select_delta or 0.0) if options.delta is None else float(options.delta)


def _states(path: str) -> list[Any] | None:
    """What there is at an output's place; None where that cannot be known."""
    if "://" in path:
        return None
    place = os.path.realpath(path)
    found: list[Any] = sorted(glob.glob(f"{glob.escape(place)}.*.partial"))
    with suppress(FileNotFoundError):
        seen = os.stat(place)
        found.append((seen.st_ino, seen.st_mtime_ns, seen.st_size))
    return found


def _looked_at(paths: Mapping[str, str]) -> list[list[Any]]:
    """Name, size and digest of each local file; nothing where one is remote."""
    found = []
    for path, name in paths.items():
        if "://" in path:
            return []
        digest, size = hashlib.blake2b(digest_size=32), 0
        try:
            with open(path, "rb") as file:
                while block := file.read(_BLOCK):
                    digest.update(block)
                    size += len(block)
        except OSError as error:
            raise InputError(f"{name}: cannot be read: {error.strerror or error}") from None
        found.append([name, size, digest.hexdigest()])
    return found


def _mark(task: Task, inputs: list[list[Any]], flags: Sequence[str]) -> str:
    """A keyed digest of all that the releases of a run with replayable noise follow from.

    Empty where another run might release something else: noise of the system, files that are not
    here, a runner of the user's choice, --path streaming, where order and lateness count, and a
    file of public texts that was not read through the task.
    """
    options = task.options
    entropy = opt.entropy_of(options)
    if not isinstance(entropy, ReplayableEntropy) or flags or not inputs:
        return ""
    if options.path == "streaming":
        return ""
    counted = {name: x for name, x in options.given.items() if name not in opt.NOT_COUNTED}
    files = {name.removesuffix("_file") for name in counted if name.endswith("_file")}
    if not files <= {*task.lists}:
        return ""
    # The lists as they were counted. Their files may have changed, or can be read only once.
    what = (
        *(task.name, dp.__version__, NOISE_FORMAT, task.counter.fingerprint),
        *(sorted((name, repr(x)) for name, x in counted.items()), sorted(task.lists.items())),
        inputs,
    )
    return entropy.mark(repr(what))

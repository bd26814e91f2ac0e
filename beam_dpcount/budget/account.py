"""An account: what runs over one set of rows cost in all, in a file of JSON lines.

The first line is the total. A run adds a line with its charge and its columns before anything is
counted, under an exclusive lock, and one more at its end. A run is charged when it starts. It is
refunded only if nothing can have been released.

How charges add up is fixed when the account is made. The rule must not depend on what was seen:

- a total of epsilon, with or without delta: epsilons add up, and deltas [basic composition];
- a total of rho: rhos add up [Bun, Steinke 2016]; a run by epsilon (and delta) costs the rho of
  its noise, whatever it is.

Both hold too where the budget of a run was chosen after looking at releases of runs before it, as
long as the total is fixed [Rogers, Roth, Ullman, Vadhan 2016; Feldman, Zrnic 2021].

An account is for one row or for one person. It claims something about the columns that some run
protects and no run publishes; `odometer.py` keeps track of them. Charges never shrink: not if a run
publishes a protected column, and not if the claim becomes one of replacement.

Files of format 1 can be read. They do not say which columns a run used, so a run that conflicts
with one of theirs conflicts at `:unknown`.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import beam_dpcount as dp
from beam_dpcount.budget.budgets import Budget
from beam_dpcount.budget.charges import MOST_DIGITS, Charge, Charges, charge_of
from beam_dpcount.budget.conversions import float_up, rounded_up, zcdp_epsilon
from beam_dpcount.budget.odometer import (
    MEANINGS,
    PRESENCE,
    UNKNOWN,
    ColumnUse,
    Odometer,
    listed,
    ordered,
    runs,
)
from beam_dpcount.checks import Error, ParameterError

FORMAT = 2
_WITHOUT_COLUMNS = 1  # the previous format
_USUAL_DELTA = 1e-6
_BLOCK = 1 << 20
_BEGINNING = b'{"account":'
DONE, NOTHING = "done", "nothing was released"
_COUNTS = "it did not end well, and counts"
# What a run of format 1 may have used, by its command: ticks publish no column.
_OLD_TICKS = ColumnUse(protected=frozenset([PRESENCE, UNKNOWN]))
_OLD = ColumnUse(frozenset([PRESENCE, UNKNOWN]), frozenset([UNKNOWN]))


class AccountError(ParameterError):
    """An account that cannot be used, or a run that it refuses."""


def _error(problem: str, remedy: str = "", name: str = "account") -> AccountError:
    return AccountError(name, problem, remedy, True)


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
    charges: Charges
    use: ColumnUse
    said: str  # the budget and what else it is about, in words
    output: str
    inputs: tuple[tuple[str, int, str], ...]  # path, bytes, digest
    again: int | None = None  # the run that it replayed
    end: str = ""
    mark: str = ""  # of what was counted, where another run would release the same
    changed: bool = False  # whether the inputs changed while it ran, so that no digest is theirs
    released: Mapping[int, str] = field(default_factory=dict)  # digests, by tick
    noise: str = ""  # of replayable noise: runs that share it draw the same from equal histories

    @property
    def counts(self) -> bool:
        return self.end != NOTHING

    def charged(self, of_replacement: bool) -> Charge:
        return self.charges.replacement if of_replacement else self.charges.presence


@dataclass
class Account:
    """An account as its file has it.

    Raises:
      AccountError: the file does not exist, or is not an account.
    """

    path: str
    total: Charge = field(default_factory=Charge)
    user: str | None = None  # the column that says whose a row is; None: it is for one row
    time: str = ""
    format: int = FORMAT
    runs: dict[int, Run] = field(default_factory=dict)

    @property
    def _counted(self) -> list[Run]:
        return [run for run in self.runs.values() if run.counts]

    @property
    def odometer(self) -> Odometer:
        return Odometer({run.number: run.use for run in self._counted})

    @property
    def spent(self) -> Charge:
        """What all runs cost together, for what is still claimed."""
        return self._spent(self.odometer.is_of_replacement)

    def _spent(self, of_replacement: bool) -> Charge:
        return sum((run.charged(of_replacement) for run in self._counted), Charge())

    @property
    def left(self) -> Charge:
        return self.total - self.spent

    @property
    def whose(self) -> str:
        if self.user is None:
            return "one row"
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
        account, number = cls(path), 0
        try:
            for number, line in enumerate(data[: data.rfind(b"\n") + 1].splitlines(), 1):
                account._take(number, json.loads(line))
        except _OtherFormatError as error:
            raise _error(f"account {path!r} {error}") from None
        except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError):
            raise _error(
                f"{path!r}, line {number}: not a line of an account",
                "restore the file, or make another account and count what was spent against it",
            ) from None
        if not account.total:
            raise _error(f"{path!r} is not an account", "make a new one", "create")
        return account

    def _take(self, number: int, line: dict[str, Any]) -> None:
        if number == 1:
            self.format = _format(line)
            self.total, self.user = Charge.unpacked(line["total"]), line["user"]
            self.time = str(line["time"])
            return
        if "account" in line:  # from here on lines are of a later format
            self.format = _format(line)
            return
        run = int(line["run"])
        if "end" in line:
            ended = self.runs[run]
            charges = _charges(line) if "cost" in line else ended.charges
            end, mark, changed = line["end"], line.get("mark", ""), bool(line.get("changed"))
            released = {int(tick): str(x) for tick, x in line.get("released", {}).items()}
            ended = replace(ended, end=end, mark=mark, changed=changed, charges=charges)
            self.runs[run] = replace(ended, released=released)
            return
        if run != len(self.runs) + 1:
            raise ValueError("a line is missing")
        known = self.format != _WITHOUT_COLUMNS
        self.runs[run] = Run(
            run,
            str(line["time"]),
            str(line["command"]),
            _charges(line) if known else _charges_of_old(line),
            _use(line) if known else _OLD_TICKS if line["command"] == "ticks" else _OLD,
            str(line["said"]),
            str(line["output"]),
            tuple((str(path), int(size), str(digest)) for path, size, digest in line["inputs"]),
            line.get("again"),
            noise=str(line.get("noise", "")),
        )

    def replayed(self, mark: str) -> int | None:
        """The run that released what a run of this mark would release."""
        if not mark:
            return None
        same = (n for n, run in self.runs.items() if run.mark == mark and run.end == DONE)
        return next(same, None)

    def check_noise(self, noise: str, inputs: Sequence[Sequence[Any]]) -> None:
        """Raise AccountError where a run drew this noise for other rows, or may have.

        Releases of both then differ only where rows do: whoever has both sees which, whatever they
        cost. `inputs` are path, size and digest of each file, or none where they are not known.
        """
        files = [(size, digest) for _, size, digest in inputs]
        for run in self._counted:
            counted = None if run.changed else [(size, digest) for _, size, digest in run.inputs]
            if noise and run.noise == noise and not (files and counted == files):
                raise _error(
                    f"account {self.path!r}: this run would draw the same noise as run "
                    f"{run.number}, but the rows have changed since, or may have: both outputs "
                    "together would show which",
                    "give another {run_id=}, which makes it a run of its own, at its full cost",
                    "run_id",
                )

    def price(self, charges: Charges, use: ColumnUse) -> Charge:
        """What one more run would cost, for what is still claimed after it."""
        after = self.odometer.with_run(0, use)
        return charges.replacement if after.is_of_replacement else charges.presence

    def left_after(self, charges: Charges, use: ColumnUse) -> Charge:
        after = self.odometer.with_run(0, use).is_of_replacement
        return self.total - self._spent(after) - self.price(charges, use)

    def check_names(self, use: ColumnUse, allowed: Collection[str]) -> None:
        """Raise AccountError for an allowed column that neither this run nor one before it uses.

        A mistyped name would give up nothing, and seem to.
        """
        uses = [use, *(run.use for run in self._counted)]
        names = {PRESENCE, UNKNOWN}.union(*(each.public | each.protected for each in uses))
        for name in allowed:
            if name not in names:
                remedy = f"give {{allow_public=}}columns of its runs, such as {PRESENCE}"
                raise _error(
                    f"account {self.path!r}: no run uses a column {name!r}", remedy, "allow_public"
                )

    def dearer(self, use: ColumnUse) -> str:
        """That earlier runs then cost more, if one more run makes it so; continues a sentence."""
        after = self._spent(self.odometer.with_run(0, use).is_of_replacement)
        if not after.exceeds(self.spent):
            return ""
        return f", and earlier runs then cost {after}, not {self.spent} ({_DEARER})"

    def check(
        self,
        charges: Charges,
        use: ColumnUse,
        user: str | None,
        allowed: Collection[str] = (),
        why: str = "",
    ) -> None:
        """Raise AccountError for a run that may not be added.

        Args:
          charges: what it costs.
          use: its columns.
          user: the column of the person it protects; None if it protects a row.
          allowed: columns about which the account may claim nothing from now on.
          why: why the run costs more than its budget, if it does.
        """
        if self.user is not None and user != self.user:
            given = "has none" if user is None else f"has {user!r}"
            raise _error(
                f"account {self.path!r} is for one person, a cell of {self.user!r}, and this run "
                f"{given}: nothing would follow for that person",
                f"give {{user=}}{self.user}, or another account",
                "user",
            )
        self._check_columns(use, allowed)
        self._check_total(charges, use, why)

    def _check_columns(self, use: ColumnUse, allowed: Collection[str]) -> None:
        conflicts = self.odometer.conflicts(use)
        refused = {name: numbers for name, numbers in conflicts.items() if name not in allowed}
        if not refused:
            return
        published = {name: numbers for name, numbers in refused.items() if name in use.public}
        protected = {name: numbers for name, numbers in refused.items() if name in use.protected}
        problems = [
            f"this run publishes what others protect: {_with_runs(published)}" * bool(published),
            f"this run protects what others publish: {_with_runs(protected)}" * bool(protected),
        ]
        if UNKNOWN in refused:
            numbers = refused[UNKNOWN]
            problems = [*problems, f"it is not known which columns {runs(numbers)} used"]
        other = ", or count at a clock, where no column is public" * bool(published)
        raise _error(
            f"account {self.path!r}: {'; '.join(filter(None, problems))}; no guarantee would hold "
            "for such a column",
            f"give {{allow_public=}}{' '.join(map(shlex.quote, conflicts))}, and the account "
            f"claims nothing about it any more{other}",
            "allow_public",
        )

    def _check_total(self, charges: Charges, use: ColumnUse, why: str) -> None:
        price = self.price(charges, use)
        spent = self._spent(self.odometer.with_run(0, use).is_of_replacement)
        if not (spent + price).exceeds(self.total):
            return
        left = f"{self.left} is left" if self.left else "nothing is left"
        count = sum(run.counts for run in self.runs.values())
        so_far = f" after {count} run{'s' * (count != 1)}" if count else ""
        raise _error(
            f"account {self.path!r} would be overspent: this run costs {price}{why}"
            f"{self.dearer(use)}, but "
            f"of its {self.total} only {left}{so_far}",
            "give this run less, or count nothing more of these rows (the account lists the runs); "
            "a higher total is a weaker promise, to be made by those who answer for the data",
            "total",
        )

    # In words

    def __str__(self) -> str:
        """What was spent on what, and what holds of all of it."""
        inputs: dict[Any, str] = {}
        rows = [("run", "time", "command", "costs", "of input", "output")]
        of_replacement = self.odometer.is_of_replacement
        for run in self.runs.values():
            names = [inputs.setdefault(one[1:], f"{len(inputs) + 1}") for one in run.inputs]
            charged = run.charged(of_replacement)
            costs = str(charged)
            if run.again is not None and not charged:
                costs = f"nothing: run {run.again} again"
            elif not run.counts:
                costs = f"nothing ({run.end})"
            elif run.end != DONE:
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
                f"for {self.whose}{', not for all rows of a person' * (self.user is None)}",
                "",
                *(table if self.runs else ["no runs yet"]),
                *named,
                *self._uses(),
                "",
                f"total: {self.total}; {adds or 'epsilons'} of runs add up",
                f"spent: {self.spent}",
                f"left:  {self.left}",
                "",
                self.holds(),
            ]
        )

    def _uses(self) -> list[str]:
        """Which columns which runs use."""
        same: dict[ColumnUse, list[int]] = {}
        for run in self._counted:
            same.setdefault(run.use, []).append(run.number)
        return [
            f"{runs(numbers)}: public {listed(ordered(use.public))}; "
            f"protected {listed(ordered(use.protected))}"
            for use, numbers in same.items()
        ]

    def holds(self) -> str:
        """What holds of all runs together."""
        odometer = self.odometer
        if not self._counted:
            return "Nothing was released yet."
        sentences = [f"Nothing is claimed for {self.whose}."]
        if odometer.claimed:
            released = f"All that these runs released satisfies {self._in_words()}"
            sentences = [f"{released} for {self.whose}: {self._claim(odometer)}."]
        if odometer.public:
            columns = listed(ordered(odometer.public - {UNKNOWN}))
            sentences.append(f"Public: {columns}.")
        for (protecting, publishing), names in odometer.lost_to.items():
            sentences.append(
                f"Nothing is claimed about {listed(names)}, which {runs(protecting)} protected and "
                f"{runs(publishing)} published."
            )
        if odometer.is_of_replacement and odometer.claimed:
            sentences.append(f"Costs are those of {_DEARER}.")
        if odometer.unknown and odometer.claimed:
            sentences.append(
                f"This holds only if {runs(odometer.unknown)}, whose columns are not known, "
                "published none of these columns."
            )
        return " ".join([*sentences, _ELSEWHERE])

    def _in_words(self) -> str:
        spent, also = self.spent, ""
        if spent.rho:
            epsilon = zcdp_epsilon(float_up(spent.rho), _USUAL_DELTA)
            also = (
                f" (zCDP), and so epsilon = {rounded_up(epsilon, 4)} at delta = {_USUAL_DELTA:g},"
            )
        return f"{spent}{also}"

    def _claim(self, odometer: Odometer) -> str:
        """What is protected about a row (or person)."""
        presence, content = (
            ("that it exists", "what it says")
            if self.user is None
            else ("that they have rows", "what these say")
        )
        names = listed(ordered(odometer.claimed - {*MEANINGS}), "")
        cells = [f"{content} in {names}"] if names else []
        if UNKNOWN in odometer.claimed:
            cells.append(f"{content} in columns that are not known")
        if PRESENCE in odometer.claimed:
            return " and ".join([presence, *cells])
        anything = odometer.is_of_replacement or self._spent(True) == self._spent(False)
        other = "anything else" if anything else "nothing"
        return f"{' and '.join(cells)}, rather than {other}, all else equal"


_DEARER = "replacing a row, as it is public that the row exists"
_ELSEWHERE = (
    "This is only for rows that were not counted under another account or without one. Columns are "
    "compared by name: a copy under another name, nested in another column or computed from it, is "
    "not detected."
)


def _with_runs(conflicts: Mapping[str, Sequence[int]]) -> str:
    """Columns in conflict, and the runs that use them."""
    same: dict[tuple[int, ...], list[str]] = {}
    for name, numbers in conflicts.items():
        same.setdefault(tuple(numbers), []).append(
            f"{name} ({MEANINGS[name]})" if name in MEANINGS else repr(name)
        )
    return "; ".join(f"{listed(names)} ({runs(numbers)})" for numbers, names in same.items())


class _OtherFormatError(Error, ValueError):
    """A later format."""


def _format(line: Mapping[str, Any]) -> int:
    number = int(line["account"])
    if number not in (_WITHOUT_COLUMNS, FORMAT):
        raise _OtherFormatError(
            f"is of format {number}, and this version knows {FORMAT}: install the one that wrote "
            "it, or a later one"
        )
    return number


def _charges(line: Mapping[str, Any]) -> Charges:
    charge = Charge.unpacked(line["cost"])
    return Charges(charge, Charge.unpacked(line["replaced"]) if "replaced" in line else charge)


def _charges_of_old(line: Mapping[str, Any]) -> Charges:
    charge = Charge.unpacked(line["cost"])
    return Charges(charge, charge.of_two())


def _use(line: Mapping[str, Any]) -> ColumnUse:
    return ColumnUse(_names(line["public"]), _names(line["protected"]))


def _names(names: Sequence[str]) -> frozenset[str]:
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("not names of columns")
    return frozenset(names)


def run_line(charges: Charges, use: ColumnUse, **more: Any) -> dict[str, Any]:
    """A run's line: its charge, its columns, and `more`."""
    line: dict[str, Any] = {"cost": charges.presence.packed()}
    if charges.replacement != charges.presence:
        line["replaced"] = charges.replacement.packed()
    columns = {"public": ordered(use.public), "protected": ordered(use.protected)}
    return line | columns | more


# The file


def _no_account(path: str, error: OSError) -> AccountError:
    if isinstance(error, FileNotFoundError):
        return _error(f"there is no account {path!r}", "make one first", "create")
    return _error(f"account {path!r} cannot be read: {error.strerror or error}")


def create(path: str, budget: Budget, user: str | None) -> Account:
    """Make an account, of mode 0600; an AccountError if the file is there or cannot be made."""
    if any(len(str(part)) > MOST_DIGITS for part in charge_of(budget).parts):
        raise _error(f"{budget} is too small for an account: no run could be made with it")
    line = {
        "account": FORMAT,
        "total": charge_of(budget).packed(),
        "user": user,
        "time": now(),
        "version": dp.__version__,
    }
    try:
        file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError:
        raise _error(
            f"account {path!r} is there already",
            "print it; a new one for the same rows would forget what was spent",
        ) from None
    except OSError as error:
        raise _error(f"account {path!r} cannot be made: {error.strerror or error}") from None
    try:
        _append(path, file, 0, line)
    except BaseException:
        os.unlink(path)
        raise
    finally:
        os.close(file)
    return Account.read(path)


@contextmanager
def locked(path: str) -> Iterator[tuple[Account, Any]]:
    """The account, and a function that adds a line to it; no other run reads or adds meanwhile."""
    try:
        import fcntl
    except ImportError:  # Windows
        raise _error("an account needs a system that locks files (flock), as Linux") from None
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
            if account.format != FORMAT:  # so that no earlier version adds to it
                account.format = FORMAT
                end = _append(path, file, end, {"account": FORMAT, "time": now()})
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
        raise _error(
            f"account {path!r} cannot be written: {error.strerror or error}",
            "without it nothing is counted",
        ) from None
    return end + len(data)


def now() -> str:
    return dt.datetime.now(dt.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")

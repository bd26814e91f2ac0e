"""The file of an account: JSON lines, added under an exclusive lock and never changed.

The first line is the total. A run adds a line with its charge and its columns before anything is
counted, and one more at its end.

Files of format 1 can be read. They do not say which columns a run used, so a run that conflicts
with one of theirs conflicts at `:unknown`. An account for one person's rows of a period has format
3, as earlier versions know nothing of periods, and would charge too little.

A run with a state is charged once, for all runs that go on from it: its line names the state. Each
of these runs adds a line when it begins, and one when its releases may leave. Such an account has
format 4.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields, replace
from typing import Any

from beam_dpcount.budget.account import (
    FORMAT,
    OF_PERIODS,
    OF_STATES,
    Account,
    AccountError,
    AccountPeriods,
    Run,
    StateEntry,
    account_error,
)
from beam_dpcount.budget.budgets import Budget
from beam_dpcount.budget.charges import MOST_DIGITS, Charge, Charges, charge_of
from beam_dpcount.budget.odometer import PRESENCE, UNKNOWN, ColumnUse, ordered
from beam_dpcount.errors import Error
from beam_dpcount.version import __version__

_WITHOUT_COLUMNS = 1  # the previous format
_BLOCK = 1 << 20
_BEGINNING = b'{"account":'
_MAKE = (
    "make one with `beam-dpcount account FILE --create --epsilon 3 --delta 1e-5`, the most that "
    "all runs over these rows may cost together; or give another path"
)
# What a run of format 1 may have used, by its command: ticks publish no column.
_OLD_TICKS = ColumnUse(protected=frozenset([PRESENCE, UNKNOWN]))
_OLD = ColumnUse(frozenset([PRESENCE, UNKNOWN]), frozenset([UNKNOWN]))


def check_local(path: str) -> None:
    """Raise AccountError for an account that is not on this machine, where files can be locked."""
    if "://" in path:
        raise account_error(
            f"an account must be a local file, got {path!r}",
            "it is locked while a run is added; keep it on a disk of the machine that starts runs",
        )


def is_account(path: str) -> bool:
    """Whether a file begins as accounts do."""
    if not os.path.isfile(path):  # reading a pipe would wait for its writer
        return False
    with suppress(OSError), open(path, "rb") as file:
        return file.read(len(_BEGINNING)) == _BEGINNING
    return False


def is_to_be_made(path: str) -> bool:
    """Whether `create` makes an account here: there is no file, or the beginning of one."""
    if not os.path.isfile(path):
        return not os.path.lexists(path)
    with suppress(OSError), open(path, "rb") as file:
        return _is_cut_off(file.read(_BLOCK))
    return False


def read_account(path: str) -> Account:
    """The account of a file; an AccountError if it does not exist, or is not an account."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except (OSError, ValueError) as error:  # the latter of a path that none can have
        raise _no_account(path, error) from None
    return _parsed(path, data)


def _parsed(path: str, data: bytes) -> Account:
    """An account of all lines that are whole: the last one may have been cut off, and then no run
    has begun on the strength of it."""
    account, number = Account(path), 0
    try:
        for number, line in enumerate(data[: data.rfind(b"\n") + 1].splitlines(), 1):
            _take(account, number, json.loads(line))
    except _OtherFormatError as error:
        raise account_error(f"account {path!r} {error}") from None
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError):
        raise account_error(
            f"{path!r}, line {number}: not a line of an account",
            "restore the file, or make another account and count what was spent against it",
        ) from None
    if not account.total:
        raise account_error(f"{path!r} is not an account", _MAKE)
    return account


def _take(account: Account, number: int, line: dict[str, Any]) -> None:
    if number == 1:
        account.format = _format(line)
        account.total, account.user = Charge.unpacked(line["total"]), line["user"]
        if account.format == OF_PERIODS:
            account.periods = _periods(line["periods"])
        account.time = str(line["time"])
        return
    if "account" in line:  # from here on lines are of a later format
        account.format = _format(line)
        return
    if "generation" in line:
        _take_of_state(account, line)
        return
    run = int(line["run"])
    if "end" in line:
        ended = account.runs[run]
        charges = _charges(line) if "cost" in line else ended.charges
        end, mark, changed = line["end"], line.get("mark", ""), bool(line.get("changed"))
        released = {int(tick): str(x) for tick, x in line.get("released", {}).items()}
        ended = replace(ended, end=end, mark=mark, changed=changed, charges=charges)
        if "cost" in line:
            ended = replace(ended, several={})
        account.runs[run] = replace(ended, released=released)
        return
    if run != len(account.runs) + 1:
        raise ValueError("a line is missing")
    known = account.format != _WITHOUT_COLUMNS
    account.runs[run] = Run(
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
        id=str(line.get("id", "")),
        claim=str(line.get("claim", "")),
        several={
            str(name): None if each is None else _charges(each)
            for name, each in line.get("several", {}).items()
        },
        time_is_known=bool(line.get("timed", True)),
    )
    if "state" in line:
        state = line["state"]
        entry = StateEntry(str(state["id"]), run, str(state["digest"]))
        account.states[entry.id] = replace(entry, time=str(line["time"]))


def _take_of_state(account: Account, line: Mapping[str, Any]) -> None:
    """A run that goes on from a state: it began, or it finished."""
    entry = replace(account.states[str(line["state"])], generation=int(line["generation"]))
    if "finished" in line:
        entry = replace(
            entry,
            digest=str(line["finished"]),
            tick=int(line["tick"]),
            nights=entry.nights + 1,
            time=str(line["time"]),
        )
    account.states[entry.id] = entry


class _OtherFormatError(Error, ValueError):
    """A later format."""


def _format(line: Mapping[str, Any]) -> int:
    number = int(line["account"])
    if number not in (_WITHOUT_COLUMNS, FORMAT, OF_PERIODS, OF_STATES):
        raise _OtherFormatError(
            f"is of format {number}, and this version knows {OF_STATES}: install the one that "
            "wrote it, or a later one"
        )
    return number


def _charges(line: Mapping[str, Any]) -> Charges:
    charge = Charge.unpacked(line["cost"])
    return Charges(charge, Charge.unpacked(line["replaced"]) if "replaced" in line else charge)


def _charges_of_old(line: Mapping[str, Any]) -> Charges:
    charge = Charge.unpacked(line["cost"])
    return Charges(charge, charge.of_two())


def _periods(packed: Mapping[str, Any]) -> AccountPeriods:
    zone, time = packed["zone"], packed["time"]
    return AccountPeriods(
        str(packed["per"]),
        int(packed["start"]),
        None if zone is None else str(zone),
        tuple(_texts(time)),
        str(packed["word"]),
    )


def _use(line: Mapping[str, Any]) -> ColumnUse:
    return ColumnUse(_names(line["public"]), _names(line["protected"]))


def _names(names: Sequence[str]) -> frozenset[str]:
    return frozenset(_texts(names))


def _texts(names: Sequence[str]) -> Sequence[str]:
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError("not names of columns")
    return names


def new_run(
    account: Account,
    command: str,
    charges: Charges,
    use: ColumnUse,
    noise: str = "",
    allowed: Collection[str] = (),
    several: Mapping[str, Charges | None] | None = None,
    **more: object,
) -> dict[str, Any]:
    """The line of one more run: its charge, its columns, its noise's mark, and `more`.

    `several` is what several periods of one person cost.
    """
    line: dict[str, Any] = {"run": len(account.runs) + 1, "time": now(), "command": command}
    line |= run_line(charges, use, **more)
    if several:
        line["several"] = {
            name: None if each is None else _costs(each) for name, each in several.items()
        }
    line |= {"noise": noise} if noise else {}
    return line | {"allowed": ordered(allowed), "version": __version__}


def state_line(entry: StateEntry, generation: int, **more: object) -> dict[str, Any]:
    """The line of a run that goes on from a state; `more` says whether it begins or finished."""
    return {"state": entry.id, "generation": generation, "time": now(), **more}


def run_line(charges: Charges, use: ColumnUse, **more: object) -> dict[str, Any]:
    """A run's line: its charge, its columns, and `more`."""
    columns = {"public": ordered(use.public), "protected": ordered(use.protected)}
    return _costs(charges) | columns | more


def _costs(charges: Charges) -> dict[str, Any]:
    line: dict[str, Any] = {"cost": charges.presence.packed()}
    if charges.replacement != charges.presence:
        line["replaced"] = charges.replacement.packed()
    return line


def _no_account(path: str, error: OSError | ValueError) -> AccountError:
    if isinstance(error, FileNotFoundError):
        return account_error(f"there is no account {path!r}", _MAKE)
    problem = getattr(error, "strerror", None) or error
    return account_error(f"account {path!r} cannot be read: {problem}", "give the path of its file")


def create(
    path: str, budget: Budget, user: str | None, periods: AccountPeriods | None = None
) -> Account:
    """Make an account, of mode 0600; an AccountError if the file is there or cannot be made."""
    if any(len(str(part)) > MOST_DIGITS for part in charge_of(budget).parts):
        raise account_error(f"{budget} is too small for an account: no run could be made with it")
    line: dict[str, Any] = {"account": FORMAT if periods is None else OF_PERIODS}
    line |= {"total": charge_of(budget).packed(), "user": user}
    if periods is not None:
        if user is None:
            raise account_error("an account of periods is for one person", "give {user}")
        line["periods"] = {one.name: getattr(periods, one.name) for one in fields(periods)}
    line |= {"time": now(), "version": __version__}
    try:
        file = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    except OSError as error:
        raise account_error(f"account {path!r} cannot be made: {error.strerror or error}") from None
    try:
        _lock(file)
        if not stat.S_ISREG(os.fstat(file).st_mode) or not _is_cut_off(os.read(file, _BLOCK)):
            raise account_error(
                f"account {path!r} is there already",
                "print it; a new one for the same rows would forget what was spent",
            )
        os.fchmod(file, 0o600)
        _append(path, file, 0, line)
    finally:
        os.close(file)
    return read_account(path)


def _is_cut_off(data: bytes) -> bool:
    """Whether an account ended before its first line was whole, so that no run is in it."""
    size = len(_BEGINNING)
    return data[:size] == _BEGINNING[: len(data)] and b"\n" not in data and len(data) < _BLOCK


def _lock(file: int) -> None:
    """Waits until no other process has a file's lock, which ends when it is closed."""
    try:
        import fcntl
    except ImportError:  # Windows
        raise account_error(
            "an account needs a system that locks files (flock), as Linux"
        ) from None
    fcntl.flock(file, fcntl.LOCK_EX)


@contextmanager
def locked(path: str) -> Iterator[tuple[Account, Any]]:
    """The account, and a function that adds a line to it; no other run reads or adds meanwhile."""
    try:
        file = os.open(path, os.O_RDWR)
    except OSError as error:
        raise _no_account(path, error) from None
    try:
        _lock(file)
        data = b"".join(iter(lambda: os.read(file, _BLOCK), b""))
        end = data.rfind(b"\n") + 1
        account = _parsed(path, data)

        def add(line: Mapping[str, Any]) -> None:
            nonlocal end
            needed = OF_STATES if "state" in line else FORMAT
            if account.format < needed:  # so that no earlier version adds to it
                account.format = needed
                end = _append(path, file, end, {"account": needed, "time": now()})
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
        raise account_error(
            f"account {path!r} cannot be written: {error.strerror or error}",
            "without it nothing is counted",
        ) from None
    return end + len(data)


def now() -> str:
    return dt.datetime.now(dt.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")

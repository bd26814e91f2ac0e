"""Where a state lies: which of its files is the last, and the steps by which another follows it.

A run holds the lock, and goes these steps. Wherever it is stopped, the next run finishes it or
starts from where it started:

1. The account says that it begins, from the one state that may go on.
2. The new state, with what the run released, is written whole under another name.
3. The account says that it finished, with a digest of the new state. Until here nothing has left.
4. The new state takes its name.
5. The output gets the releases.
6. The state is written without them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from beam_dpcount.budget.account import Account, StateEntry
from beam_dpcount.budget.account_file import locked, read_account, state_line
from beam_dpcount.commands.files.beside import sync_folder
from beam_dpcount.commands.files.formats import InputError
from beam_dpcount.states.envelope import StateError
from beam_dpcount.states.state_file import StateFile

_NEXT = ".next"
_LOCK = ".lock"
Add = Callable[[Mapping[str, Any]], None]


def beside(path: str) -> list[str]:
    """All files that a state may have beside it, but for its account."""
    return [path, path + _NEXT, path + _LOCK]


@contextmanager
def alone(path: str) -> Iterator[None]:
    """Within, no other run counts on from this state.

    Raises:
      InputError: another one does, or there can be no lock.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        raise InputError("--state needs a system that locks files (flock), as Linux") from None
    try:
        lock = os.open(path + _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
    except OSError as error:
        raise _unwritten(path, error) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise InputError(
            f"--state {path!r}: another run is using it; run again once it has ended"
        ) from None
    finally:
        os.close(lock)  # which unlocks it


def recorded(path: str, other: str) -> str:
    """How a state names another file: from its own folder, so that both may move."""
    return os.path.relpath(os.path.realpath(other), os.path.dirname(os.path.realpath(path)))


def account_of(path: str, given: str | None) -> str:
    """The account of a state: that which is given, that which the state names, or one beside it."""
    if given is not None:
        return given
    for name in (path, path + _NEXT):
        with suppress(InputError, StateError):
            if (state := _read(name)) is not None:
                return os.path.join(os.path.dirname(path), state.account)
    return f"{path}.account"


def is_there(path: str) -> bool:
    """Whether there is a state, if only one that a run was about to put in its place."""
    return os.path.exists(path) or os.path.exists(path + _NEXT)


def last_state(path: str, account: str, look: bool = False) -> StateFile | None:
    """The state that may go on; None if there is none yet.

    Args:
      path, account: where they are.
      look: nothing is changed.

    Raises:
      InputError, AccountError: there is one, and it is not the one of the last run.
    """
    state = _read(path)
    with suppress(StateError):  # one that a run had not finished writing
        following = _read(path + _NEXT)
        if following is not None and (state is None or state.digest != following.digest):
            if state is None and not os.path.exists(account):
                return None  # a run died before it was charged
            entry = _account(path, account).states.get(following.id)
            if entry is not None and entry.digest == following.digest:
                if not look:
                    _rename(path)
                state = following
    if state is None:
        return None
    _entry(_account(path, account), path, state)
    return state


def begin(path: str, state: StateFile, account: str) -> int:
    """Has the account say that a run begins from a state; the run's number.

    Raises:
      InputError: another run has gone on from it meanwhile, from a copy.
    """
    with locked(account) as (found, add):
        entry = _entry(found, path, state)
        add(state_line(entry, entry.generation + 1, begun=state.digest))
        return entry.generation + 1


def create(path: str, state: StateFile, add: Add, line: Mapping[str, Any]) -> None:
    """Makes a state, of which the account has this line."""
    _write(path, state)
    add(line)
    _rename(path)


def finish(path: str, state: StateFile, account: str, generation: int) -> None:
    """Makes a state the last one: from here on what it holds may leave.

    Raises:
      InputError: another run has begun meanwhile, from a copy; nothing of this one has left.
    """
    _write(path, state)
    with locked(account) as (found, add):
        entry = found.states[state.id]
        if entry.generation != generation:
            raise InputError(
                f"--state {path!r}: another run has begun from a copy of it, and this one ends "
                "without a release: keep one of the two, and delete the other with its output"
            )
        add(state_line(entry, generation, finished=state.digest, tick=state.ticks))
    _rename(path)


def replace(path: str, state: StateFile) -> None:
    """Puts a state in the place of one with the same digest."""
    _write(path, state)
    _rename(path)


def _entry(account: Account, path: str, state: StateFile) -> StateEntry:
    """What the account says of a state, which must be the last one."""
    entry = account.states.get(state.id)
    if entry is None:
        raise InputError(
            f"account {account.path!r} does not know --state {path!r}: give the --account of the "
            "runs before"
        )
    if entry.digest != state.digest:
        raise InputError(
            f"--state {path!r} is not the one that the last run left ({entry.nights:,} runs "
            f"released {entry.tick:,} ticks): restore that one; an older one would count and "
            "release the same ticks again"
        )
    return entry


def _account(path: str, account: str) -> Account:
    if not os.path.exists(account):
        raise InputError(
            f"the account {account!r} of --state {path!r} is missing: restore it, or give its path "
            "by --account; without it nobody can tell whether this state is the last one"
        )
    return read_account(account)


def _read(path: str) -> StateFile | None:
    try:
        with open(path, "rb") as file:
            return StateFile.unpacked(file.read())
    except FileNotFoundError:
        return None
    except StateError as error:
        raise StateError(f"--state {path!r}: {error}") from None
    except OSError as error:
        raise InputError(f"--state {path!r} cannot be read: {error.strerror or error}") from None


def _write(path: str, state: StateFile) -> None:
    """Writes a state whole under the name of the next one."""
    try:
        with suppress(FileNotFoundError):
            os.remove(path + _NEXT)
        file = os.open(path + _NEXT, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with os.fdopen(file, "wb") as opened:
            opened.write(state.packed())
            opened.flush()
            os.fsync(opened.fileno())
        sync_folder(path)
    except OSError as error:
        raise _unwritten(path, error) from None


def _rename(path: str) -> None:
    try:
        os.rename(path + _NEXT, path)
        sync_folder(path)
    except OSError as error:
        raise _unwritten(path, error) from None


def _unwritten(path: str, error: OSError) -> InputError:
    return InputError(
        f"--state {path!r} cannot be written: {error.strerror or error}; make room, or give "
        "yourself the right to write there, and run again"
    )

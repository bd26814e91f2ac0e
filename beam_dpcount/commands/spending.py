"""Charges a run to its account: what it costs, which columns it uses, and whether it is a repeat.

The account itself is in `budget.account`, and what a counter costs in `counters.charged`.
"""

from __future__ import annotations

import argparse
import glob
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import beam_dpcount as dp
from beam_dpcount.budget import account_file as accounts
from beam_dpcount.budget.account import DONE, NOTHING, Account, AccountError
from beam_dpcount.budget.charges import Charge, Charges
from beam_dpcount.budget.odometer import PRESENCE, ColumnUse, listed, ordered
from beam_dpcount.commands import options as opt
from beam_dpcount.commands import repeats, stop
from beam_dpcount.commands.files.addresses import is_afar
from beam_dpcount.commands.files.formats import InputError
from beam_dpcount.noise.replay import NOISE_FORMAT, ReplayableEntropy

if TYPE_CHECKING:
    from beam_dpcount.commands.task import Task

_BLOCK = 1 << 20
_FREE = "account {}: this run costs nothing, as no tick has ended, and nothing is released"
# Options that choose which releases are written.
CHOOSING = frozenset(("top", "all", "min_count"))


# A run


def check_place(path: str, others: Sequence[str]) -> None:
    """Raise InputError for an account that is not here, or is an input or an output as well."""
    accounts.check_local(path)
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
      InputError: before anything is counted, if the run costs more than is left, if its columns
        conflict with those of another run, or if the file is not an account.
    """
    options = task.options
    if options.account is None:
        _check_unneeded(options)
        yield []
        return
    if task.releases_nothing:
        yield [_FREE.format(options.account)]
        return
    path, before = options.account, _states(place)
    inputs = _looked_at(paths)
    mark, noise = _mark(task, inputs, flags), task.entropy.noise_mark
    use, allowed = task.column_use(), options.allow_public or ()
    with _named(options), accounts.locked(path) as (account, add):
        asked = opt.budget_of(options), _beside(options), account
        full, why = task.spender.charges(*asked)
        several = task.spender.protects.several(*asked)
        again = account.replayed(mark)
        charges = full if again is None else Charges(Charge(), Charge())
        if again is None:  # else it uses the columns of the run that it repeats
            account.admit(charges, use, options.user, allowed, why, noise, inputs)
        own = {"output": options.output, "inputs": inputs, "said": task.guarantee()}
        # A repeat costs nothing when it is known to have been one: its rows may yet change.
        line = accounts.new_run(account, task.name, full, use, noise, allowed, several, **own)
        add(line if again is None else line | {"again": again})
        number = line["run"]
    # Nothing on what is left, or on other runs: whether one of them failed may depend on its rows.
    task.account = (
        _of_account(task, account, full, why)
        if again is None
        else f"This repeats a run of an account of {account.total}: the same releases, at no cost."
    )
    try:
        yield [_entered(path, account, charges, task, why, again)]
    except Exception:
        # Beam's own runner in this process, and no file begun: then nobody has seen a release. (How
        # many there were so far may have been shown, which is one where keys are selected; and what
        # on-reject raise says is one.)
        shows = bool(flags) or getattr(options, "select_keys", False) or stop.wrote
        shows = shows or options.on_reject == "raise"
        if not shows and before is not None and _states(place) == before:
            with suppress(AccountError):  # it then stays charged
                _end(path, {"run": number, "end": NOTHING, "time": accounts.now()})
        raise
    line = {"run": number, "end": DONE, "time": accounts.now()}
    unchanged = _looked_at(paths) == inputs
    same = unchanged and (again is None or repeats.agrees(task, account.runs[again].released))
    if same:
        line |= {"mark": mark, "released": repeats.digests(task)} if mark else {}
        line |= {} if again is None else {"cost": charges.presence.packed()}
    else:
        line["changed"] = True
    with _named(options):
        _end(path, line)
    if again is not None and not same:
        problem = "it released something else" if unchanged else "the input changed during the run"
        raise InputError(
            f"this run was to repeat run {again} at no cost, but {problem}: it costs "
            f"{account.price(full, use)}, and account {path!r} has it"
        )


def charge(
    task: Task, account: Account, add: Callable[[Mapping[str, Any]], None], **own: object
) -> list[str]:
    """Adds the line of a count that goes on, which is charged at once for all of its runs.

    Args:
      task: whose transform is made.
      account: locked.
      add: adds a line to it.
      own: what the line has beside its charge and its columns.

    Returns:
      What to say of it.

    Raises:
      AccountError: it costs more than is left, or its columns conflict with another run's.
    """
    options, noise = task.options, task.entropy.noise_mark
    asked = opt.budget_of(options), _beside(options), account
    full, why = task.spender.charges(*asked)
    several = task.spender.protects.several(*asked)
    use, allowed = task.column_use(), options.allow_public or ()
    account.admit(full, use, options.user, allowed, why, noise)
    own = {"output": options.output, "inputs": [], "said": task.guarantee(), **own}
    add(accounts.new_run(account, task.name, full, use, noise, allowed, several, **own))
    return [_costs(account, full, use, "this and all later runs cost", why)]


def of_count(task: Task, account: Account) -> str:
    """What the report says of the account of a count that goes on."""
    full, why = task.spender.charges(opt.budget_of(task.options), _beside(task.options), account)
    return _of_account(task, account, full, why)


def foretold(task: Task, paths: Mapping[str, str]) -> list[str]:
    """What a run would cost its --account, and whether there is as much; nothing is entered.

    `paths` and errors are those of `entered`.
    """
    options, path = task.options, task.options.account
    if path is None:
        _check_unneeded(options)
        return []
    if task.releases_nothing:
        return [_FREE.format(path)]
    use, noise = task.column_use(), task.entropy.noise_mark
    with _named(options), accounts.locked(path) as (account, _):
        charges, why = task.spender.charges(opt.budget_of(options), _beside(options), account)
        inputs = _looked_at(paths) if noise else []
        account.admit(charges, use, options.user, options.allow_public or (), why, noise, inputs)
    again = ""
    if noise:
        again = ", or nothing, if it repeats one with the same secret, options and rows"
    return [_costs(account, charges, use, "the run would cost", f"{why}{again}")]


def _entered(
    path: str, account: Account, charges: Charges, task: Task, why: str, again: int | None
) -> str:
    if again is not None:
        return (
            f"account {path}: this is run {again} again, with the same secret, options and rows: "
            f"the same releases, at no cost; left: {account.left}"
        )
    return _costs(account, charges, task.column_use(), "this run costs", why)


def _costs(account: Account, charges: Charges, use: ColumnUse, verb: str, why: str) -> str:
    cost, left = account.price(charges, use), account.total - account.spent_after(charges, use)
    more = f"{why}{account.dearer(use)}"
    return f"account {account.path}: {verb} {cost}{more}; left after it: {left}"


def _of_account(task: Task, account: Account, charges: Charges, why: str) -> str:
    """What the report says. It depends on this run, its options and the account's total alone."""
    use, allowed = task.column_use(), task.options.allow_public
    protects = "no column"
    if use.protected:
        protects = f"{listed(ordered(use.protected))}, each unless another run publishes it"
    lines = [
        f"This run costs {charges.presence}{why} of an account of {account.total} for "
        f"{account.whose}; it protects {protects}."
    ]
    if PRESENCE in use.protected and charges.replacement != charges.presence:
        lines.append(
            f"If another run publishes that a row exists, this run costs {charges.replacement} "
            "and protects only what the row says in columns that no run publishes."
        )
    if allowed:
        lines.append(f"The account claims nothing about {listed(ordered(allowed))}.")
    return " ".join(lines)


def _check_unneeded(options: argparse.Namespace) -> None:
    if options.allow_public:
        raise InputError(
            "--allow-public is about what an account claims: give --account FILE as well"
        )


def _named(options: argparse.Namespace) -> Any:
    return opt.named_as_options(options)


def _end(path: str, line: Mapping[str, Any]) -> None:
    with accounts.locked(path) as (_, add):
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

    Empty if another run might release something else: with noise of the system, files that are not
    here, a runner of the user's choice, --path streaming (where order and lateness count), or a
    file of public texts that was not read through the task.
    """
    options = task.options
    entropy = opt.entropy_of(options)
    if not isinstance(entropy, ReplayableEntropy) or flags or not inputs:
        return ""
    if options.path == "streaming" or is_afar(options.output):
        return ""
    counted = {
        name: x for name, x in options.given.items() if name in options.counted or name in CHOOSING
    }
    files = {name.removesuffix("_file") for name in counted if name.endswith("_file")}
    if not files <= {*task.lists}:
        return ""
    # The lists as this run read them. Their files may change, or can be read only once.
    what = (
        *(task.name, dp.__version__, NOISE_FORMAT, task.fingerprint),
        *(sorted((name, repr(x)) for name, x in counted.items()), sorted(task.lists.items())),
        inputs,
    )
    return entropy.mark(repr(what))

"""Where engines are kept, outside the repository.

$BEAM_DPCOUNT_ENGINES, or ~/.cache/beam_dpcount/engines.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path


class UnavailableError(Exception):
    """An engine cannot be had here; the text says in one line what is missing."""


def cache() -> Path:
    """The directory of all engines; it need not exist."""
    given = os.environ.get("BEAM_DPCOUNT_ENGINES")
    chosen = Path(given) if given else Path.home() / ".cache" / "beam_dpcount" / "engines"
    return chosen.resolve()


def once(target: Path, make: Callable[[Path], Path]) -> Path:
    """The target; made, if it does not exist, in a scratch directory that `make` is given."""
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        made = make(Path(scratch))
        try:
            # Whole or not at all, whoever else makes it at the same time.
            made.replace(target)
        except OSError:
            if not target.exists():
                raise
    return target


def need(what: str, *command: str, **environment: str) -> None:
    """Run the command that gets it.

    Raises:
      UnavailableError: there is no such command, or it failed.
    """
    if shutil.which(command[0]) is None:
        raise UnavailableError(f"{Path(command[0]).name} is not installed: it is needed for {what}")
    done = subprocess.run(
        command,
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        # What Go downloads comes first.
        said = [line for line in done.stdout.splitlines() if not line.startswith("go: down")]
        reason = " ".join(said)[:500] or f"exit status {done.returncode}"
        raise UnavailableError(f"{what} could not be had: {reason}")


def said(*command: str) -> str:
    """What a command prints, its last line end aside."""
    done = subprocess.run(
        command, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    return done.stdout.strip()

"""A server of PostgreSQL for tests, on a socket in a folder of its own; or why there is none."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

USERS = ("postgres", "nobody")  # initdb refuses root
# Debian keeps these beside each other, and only clients on the path.
PLACES = ("/usr/lib/postgresql", "/usr/pgsql", "/opt/homebrew/opt")


class MissingError(Exception):
    """Why there is no server."""


def programs() -> dict[str, str]:
    """The paths of initdb and pg_ctl; a MissingError if they are not here."""
    folders = [os.environ.get("PATH", "")]
    folders += sorted((str(p) for place in PLACES for p in Path(place).glob("*/bin")), reverse=True)
    found = {name: shutil.which(name, path=":".join(folders)) for name in ("initdb", "pg_ctl")}
    if missing := [name for name, path in found.items() if path is None]:
        raise MissingError(f"no {' and no '.join(missing)}: install Debian's package postgresql")
    return {name: str(path) for name, path in found.items()}


def as_user() -> dict[str, Any]:
    """Arguments of subprocess that make it another user's, where this one is root."""
    if os.geteuid() != 0:
        return {}
    for name in USERS:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    raise MissingError(f"this is root, and there is no user {' or '.join(USERS)}")


@contextmanager
def server() -> Iterator[str]:
    """The folder of the socket of a server that trusts everybody; its user is `tester`."""
    paths, how = programs(), as_user()
    folder = tempfile.mkdtemp(prefix="pg-", dir="/tmp")  # a socket's path is short
    try:
        if how:
            os.chown(folder, how["user"], how["group"])
        started = False
        options = f"-k {folder} -c listen_addresses='' -c fsync=off"
        begin = [paths["pg_ctl"], "start", "-w", "-D", f"{folder}/data", "-l", f"{folder}/log"]
        init = [paths["initdb"], "-D", f"{folder}/data", "-A", "trust", "-U", "tester", "--no-sync"]
        try:
            for words in ([*init, "-E", "UTF8", "--locale", "C"], [*begin, "-o", options]):
                # Files, not pipes: the server would keep a pipe open.
                with tempfile.TemporaryFile() as out:
                    ended = subprocess.run(
                        words, stdout=out, stderr=out, cwd=folder, check=False, timeout=120, **how
                    )
                    out.seek(0)
                    said = out.read().decode(errors="replace").strip()
                if ended.returncode:
                    raise MissingError(f"{Path(words[0]).name} failed: {said[-300:]}")
            started = True
            yield folder
        finally:
            if started:
                stop = [paths["pg_ctl"], "stop", "-m", "immediate", "-D", f"{folder}/data"]
                subprocess.run(stop, cwd=folder, check=False, capture_output=True, **how)
    finally:
        shutil.rmtree(folder, ignore_errors=True)

"""`ticks --user` on an event log that is made up here: how many people saw the pages of a web shop.

A day of 40,000 page views and purchases on 20 pages, counted for three of them, hour by hour. What
is protected is a session: that it is there at all, and every page that it saw.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
from collections.abc import Sequence

from beam_dpcount.arguments.argument import parsed
from beam_dpcount.commands import door, eventlog, stop
from beam_dpcount.commands.app import say
from beam_dpcount.commands.files.formats import InputError
from beam_dpcount.commands.options import Parser

EXAMPLE = "beam-dpcount demo --directory out/demo"

OWN = parsed(
    "",
    """
    directory DIRECTORY: text, default=out/demo
        where files go (default out/demo)
    """,
)


def arguments() -> Parser:
    return Parser("demo", __doc__, EXAMPLE, OWN)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command. InputError: the directory cannot be written to."""
    directory = arguments().parse_ours(argv).directory
    log, out, picture, report = (
        os.path.join(directory, name)
        for name in ("events.csv", "ticks.csv", "ticks.png", "ticks.html")
    )
    stop.expect(log)
    try:
        os.makedirs(directory, exist_ok=True)
        eventlog.write(log)
    except OSError as error:
        reason = error.strerror or "not possible"
        raise InputError(f"cannot write to --directory {directory!r}: {reason}") from None
    words = ["--input", log, "--key", "page", "--keys", "/home", "/cart", "/deals"]
    words += ["--timestamp", "timestamp", "--tick", "1h"]
    words += ["--start", "2026-01-15T00:00:00Z", "--horizon", "24"]
    words += ["--metric", "people", "--user", "session", "--per-user", "3"]
    words += ["--epsilon", "1", "--delta", "1e-6"]
    words += ["--output", out, "--report", report, "--overwrite"]
    without = []
    if importlib.util.find_spec("matplotlib") is not None:
        words += ["--plot", picture]
    else:
        without = ["note: no picture without matplotlib: pip install 'beam-dpcount[plots]'"]
    say([f"event log (made up): {log}", f"$ beam-dpcount ticks {shlex.join(words)}", *without])
    door.main(["ticks", *words])

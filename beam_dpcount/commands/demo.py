"""`count` on an event log that is made up here: private purchase counts of a web shop.

A day of 40,000 page views and purchases on 20 pages, Zipf-distributed. How many people view a
page is public here; whether a visit ended in a purchase is not.
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
    log, out, picture = (
        os.path.join(directory, name) for name in ("events.csv", "counts.csv", "counts.png")
    )
    stop.expect(log)
    try:
        os.makedirs(directory, exist_ok=True)
        eventlog.write(log)
    except OSError as error:
        reason = error.strerror or "not possible"
        raise InputError(f"cannot write to --directory {directory!r}: {reason}") from None
    words = ["--input", log, "--key", "page", "--where", "action=purchase"]
    words += ["--timestamp", "timestamp", "--timestamp-format", "iso"]
    words += ["--epsilon", "1", "--delta", "1e-6", "--horizon", "20000", "--overwrite"]
    words += ["--output", out]
    if importlib.util.find_spec("matplotlib") is not None:
        words += ["--plot", picture, "--show-truth"]
        without = []
    else:
        without = ["note: no picture without matplotlib: pip install 'beam-dpcount[plots]'"]
    say([f"made event log: {log}", f"$ beam-dpcount count {shlex.join(words)}", *without])
    door.main(["count", *words])

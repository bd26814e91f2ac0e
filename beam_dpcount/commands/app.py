"""How a command starts and ends: errors take one line, and nothing runs before options are parsed.

Neither this file nor a command's own imports Beam, so help and errors in options come at once.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from beam_dpcount.commands import stop
from beam_dpcount.commands.files import streams
from beam_dpcount.errors import Error, WeakBudgetWarning

Main = Callable[[Sequence[str] | None], None]

_format_warning = warnings.formatwarning

# Beam warns at import about Google's libraries, whether they are used or not.
logging.getLogger().addFilter(lambda record: "apitools not found" not in record.getMessage())


READER_GONE = 128 + 13  # the status of a process that SIGPIPE ends


def run_main(main: Main) -> None:
    """Run a command; an error that the user can fix takes one line on stderr, with exit status 2.

    A signal takes a line too, and ends the process with its own status, 130 for Ctrl-C.

    A module started by `python -m` is imported anew, by its name: workers in other processes cannot
    find what is defined in __main__.
    """
    started = sys.modules["__main__"]
    named = vars(started).get(main.__name__) is main  # not under a profiler
    if named and started.__spec__ is not None:
        main = getattr(importlib.import_module(started.__spec__.name), main.__name__)
    warnings.filterwarnings("ignore", category=WeakBudgetWarning)  # `run` prints it
    logging.getLogger().setLevel(logging.ERROR)
    logging.getLogger("apache_beam").setLevel(logging.CRITICAL)
    warnings.formatwarning = format_warning
    stop.begin()
    with stop.signals():
        try:
            main(None)
            say([])
        except BrokenPipeError as error:  # whoever reads has seen enough, as of any other tool
            streams.unwritten(error)
            sys.exit(READER_GONE)
        except (ValueError, TypeError, OSError, RuntimeError) as error:
            if os.environ.get("BEAM_DPCOUNT_TRACEBACK"):
                raise
            print(f"error: {explain(error)}", file=sys.stderr)
            sys.exit(2)
        except Exception as error:  # ours, or Beam's: what it says may show data
            if os.environ.get("BEAM_DPCOUNT_TRACEBACK"):
                raise
            what = f"an unexpected {type(error).__name__}; what was done may have cost its budget"
            again = "BEAM_DPCOUNT_TRACEBACK=1 shows where, which may show rows"
            print(f"error: {what}: {again}", file=sys.stderr)
            sys.exit(3)
        finally:
            stop.clean()


def say(lines: Sequence[str]) -> None:
    """Print lines at once, so that one who cannot read them is told.

    Raises:
      OSError: standard output cannot be written to: its disk is full, or its reader is gone.
    """
    try:
        print(*lines, sep="\n", end="\n" * bool(lines), flush=True)
    except OSError as error:
        raise streams.unwritten(error) from None


def warn(lines: Sequence[str]) -> None:
    """Print what a user should act on to standard error, whatever becomes of the output."""
    with suppress(OSError):  # nobody reads it, and so nobody can be told
        print(*lines, sep="\n", end="\n" * bool(lines), file=sys.stderr, flush=True)


def format_warning(message: Any, category: type[Warning], *args: Any, **kwargs: Any) -> str:
    """This library's warnings take one line; others are shown as Python shows them."""
    if category.__module__.split(".")[0] == "beam_dpcount":
        return f"warning: {message}\n"
    return _format_warning(message, category, *args, **kwargs)


def explain(error: BaseException) -> str:
    """An error's own words, without Beam's wrapping."""
    # The innermost error, unless one of ours has said it better since.
    chain = [error]
    while (cause := chain[-1].__cause__) is not None:
        chain.append(cause)
    ours = [e for e in chain if isinstance(e, Error)]
    text = str([*chain, *ours][-1])
    if "Traceback (most recent call last)" in text:  # from a remote worker: its last line counts
        lines = [line for line in text.splitlines() if line and not line.startswith(" ")]
        text = [text, *lines][-1].split(": ", 1)[-1]
    return text.split(" [while running ", 1)[0]

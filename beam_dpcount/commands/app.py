"""How a command starts and ends: errors in one line, and no pipeline before its options are read.

Nothing here, nor in a command's own file, imports Beam, so that help and mistakes come at once.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
import warnings
from collections.abc import Callable, Sequence

from beam_dpcount.budget.budgets import WeakBudgetWarning

Main = Callable[[Sequence[str] | None], None]

_format_warning = warnings.formatwarning


def _ours(record: logging.LogRecord) -> bool:
    """Beam warns about Google's libraries at import, even of those who never use them."""
    return "apitools not found" not in record.getMessage()


logging.getLogger().addFilter(_ours)


def run_main(main: Main) -> None:
    """Run a command: what a user can mend ends in one line on stderr and exit status 2.

    A module that was started by `python -m` is imported anew, by its name: workers in other
    processes find nothing that is defined in __main__.
    """
    spec = sys.modules["__main__"].__spec__
    named = vars(sys.modules["__main__"]).get(main.__name__) is main  # not under a profiler
    if named and spec is not None:
        main = getattr(importlib.import_module(spec.name), main.__name__)
    warnings.filterwarnings("ignore", category=WeakBudgetWarning)  # the runner says it
    logging.getLogger().setLevel(logging.ERROR)
    logging.getLogger("apache_beam").setLevel(logging.CRITICAL)
    warnings.formatwarning = format_warning
    try:
        main(None)
    except KeyboardInterrupt:
        sys.exit(130)
    except (ValueError, TypeError, OSError, RuntimeError) as error:
        if os.environ.get("BEAM_DPCOUNT_TRACEBACK"):
            raise
        print(f"error: {explain(error)}", file=sys.stderr)
        sys.exit(2)


def format_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    line: str | None = None,
) -> str:
    """A warning of this library in one line, as a command's own; others as Python shows them."""
    if category.__module__.split(".")[0] == "beam_dpcount":
        return f"warning: {message}\n"
    return _format_warning(message, category, filename, lineno, line)


def explain(error: BaseException) -> str:
    """An error's own words, without Beam's wrapping."""
    # The innermost error is the first one, unless one of ours has said it better since.
    chain = [error]
    while (cause := chain[-1].__cause__) is not None:
        chain.append(cause)
    ours = [e for e in chain if type(e).__module__.split(".")[0] in ("beam_dpcount", "pipelines")]
    text = str([*chain, *ours][-1])
    if "Traceback (most recent call last)" in text:  # from a remote worker: its last line counts
        lines = [line for line in text.splitlines() if line and not line.startswith(" ")]
        text = lines[-1] if lines else text
        text = text.split(": ", 1)[-1]
    return text.split(" [while running ", 1)[0]

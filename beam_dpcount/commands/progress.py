"""How far a run has come: on a terminal alone, for whoever started it."""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

from beam_dpcount.commands import stop

_UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "bytes"))
_WIDTH = 72


class Progress:
    """Shows the phase of a run, what was read and what was released, if it takes a few seconds.

    On a terminal alone, which is private to its user: how much was read tells of the input, which
    per tick is protected, down to when its last row came. So no metric or log has it, and it is of
    this process's workers only. The number of releases is public wherever this is used, as one per
    element, or per tick and key; or, of keys that nobody listed, released itself: which are shown
    follows from what is written of them. It is a metric, too.

    Args:
      phase: what the run does, unless workers of this process say that they read or write.
      size: of all input files, in bytes.
    """

    read = 0  # bytes, as they are in files, maybe compressed
    writing = False
    _seen = 0  # in this process; other workers report by the metric below

    def __init__(
        self,
        phase: str = "counting",
        size: int = 0,
        out: Any = None,
        after: float = 3.0,
        every: float = 1.0,
    ) -> None:
        self._phase, self._size = phase, size
        self._out, self._after, self._every = out or sys.stderr, after, every
        self._done = threading.Event()
        self._result: Any = None

    def __enter__(self) -> Progress:
        Progress.read, Progress.writing, Progress._seen = 0, False, 0
        self._start = time.monotonic()
        self._thread = threading.Thread(target=self._show, daemon=True)
        if self._out.isatty():
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        if self._thread.is_alive():
            self._thread.join()
        if stop.on_a_line:
            stop.on_a_line = False
            print(file=self._out)

    @staticmethod
    def releases(many: int) -> None:
        """So many more were made."""
        Progress._seen += many

    def watch(self, result: Any) -> Any:
        """Takes and returns the result of a running pipeline, whose metrics count all releases."""
        self._result = result
        return result

    def _show(self) -> None:
        wait = self._after
        while not self._done.wait(wait):
            wait = self._every
            seen = Progress._seen
            if self._result is not None:
                seen = max(seen, counted(self._result, "releases"))
            phase = "writing" if Progress.writing else self._phase
            line = described(phase, Progress.read, self._size, seen, time.monotonic() - self._start)
            stop.on_a_line = True
            print(f"\r{line:<{_WIDTH}}", end="", file=self._out, flush=True)


def described(phase: str, read: int, size: int, seen: int, seconds: float) -> str:
    """A line of progress."""
    parts = [phase]
    if phase == "counting" and 0 < read < size:
        unit, name = next((u, n) for u, n in _UNITS if size >= u)
        parts = [f"reading {read / unit:,.1f} of {size / unit:,.1f} {name} ({read / size:.0%})"]
    if seen:
        parts.append(f"{seen:,} releases")
    return ", ".join([*parts, f"{seconds:.0f} s"])


def counted(result: Any, name: str) -> int:
    """The value of one of our public counters, 0 where the runner has no metrics."""
    from apache_beam.metrics.metric import MetricsFilter  # here: it imports Beam

    try:
        ours = MetricsFilter().with_namespace("beam_dpcount").with_name(name)
        # The result is None where the runner knows of the counter, but not its value.
        return sum(metric.result or 0 for metric in result.metrics().query(ours)["counters"])
    except Exception:  # each runner fails in its own way, and none of them matters here
        return 0

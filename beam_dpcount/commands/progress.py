"""How many releases a run has made so far."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
from apache_beam.metrics.metric import Metrics, MetricsFilter


class Progress:
    """Counts releases, and shows how many there are in runs of more than a few seconds.

    Their number is public wherever this is used, as one per element, or per tick and key; or, of
    keys that nobody listed, released itself: which are shown follows from what is written of them.
    """

    _seen = 0  # in this process; other workers report by the metric below

    def __init__(self, out: Any = None, after: float = 3.0, every: float = 2.0) -> None:
        self._out, self._after, self._every = out or sys.stderr, after, every
        self._done = threading.Event()
        self._result: Any = None
        self._shown = False

    def __enter__(self) -> Progress:
        Progress._seen = 0
        self._start = time.monotonic()
        self._thread = threading.Thread(target=self._show, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        if self._shown:
            print(file=self._out)

    def watch(self, result: Any) -> Any:
        """Takes and returns the result of a running pipeline, whose metrics count all releases."""
        self._result = result
        return result

    def _show(self) -> None:
        wait = self._after
        while not self._done.wait(wait):
            wait = self._every
            seen = max(Progress._seen, counted(self._result, "releases"))
            elapsed = time.monotonic() - self._start
            line = f"{seen:,} releases in {elapsed:.0f} s ({seen / elapsed:,.0f}/s)"
            end = "" if self._out.isatty() else "\n"
            print(f"\r{line:<60}" if not end else line, end=end, file=self._out, flush=True)
            self._shown = not end


class CountReleases(beam.DoFn):
    """Passes releases on, and counts them for `Progress`."""

    def __init__(self) -> None:
        self._counter = Metrics.counter("beam_dpcount", "releases")

    def start_bundle(self) -> None:
        self._pending = 0

    def process(self, release: Any) -> Iterator[Any]:
        self._pending += 1
        if self._pending == 1000:
            self.finish_bundle()
        yield release

    def finish_bundle(self) -> None:
        Progress._seen += self._pending
        self._counter.inc(self._pending)
        self._pending = 0


def counted(result: Any, name: str) -> int:
    """The value of one of our public counters, 0 where the runner has no metrics."""
    try:
        ours = MetricsFilter().with_namespace("beam_dpcount").with_name(name)
        # The result is None where the runner knows of the counter, but not its value.
        return sum(metric.result or 0 for metric in result.metrics().query(ours)["counters"])
    except Exception:  # each runner fails in its own way, and none of them matters here
        return 0

"""What leaves: whole ticks, in order, at whole seconds, into a file of record and to the page.

An engine gives releases when it comes to them, in an order that may depend on the data. Here a tick
is published when all its keys are there, the keys in the order of their list, not before `DELAY`
after its end, and at a whole second. So number, order and time of what is published follow the
clock, as long as the machine keeps up.
"""

from __future__ import annotations

import math
import threading
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from examples.live.settings import append, append_text, whole_lines

DELAY = 3  # seconds after a tick's end; a tick takes half of it, from its last request to here
_COLUMNS = ("values", "stddevs", "lows", "highs", "notes")

Row = dict[str, Any]


class ConflictError(ValueError):
    """A release was seen with two values: something has changed the past."""


class Ticks:
    """Whole ticks, made of releases in any order, each seen once or again.

    Args:
      keys: the public list of them.
      published: ticks of before.
    """

    def __init__(self, keys: Sequence[str], published: Sequence[Row] = ()) -> None:
        self._keys = tuple(keys)
        self._rows: dict[int, dict[str, Row]] = {}
        self._next = 1
        for tick in published:
            if tick["step"] != self._next or [*tick["keys"]] != [*self._keys]:
                raise ConflictError("the record has a gap, or other keys: it is of another run")
            self._rows[self._next] = dict(zip(self._keys, _rows_of(tick), strict=True))
            self._next += 1

    def see(self, release: Mapping[str, Any]) -> None:
        """Take a release, as `count.Keep` writes it.

        Raises:
          ConflictError: it was there before, and was another one.
        """
        row = {name: value for name, value in release.items() if name not in ("life", "key")}
        rows = self._rows.setdefault(row["step"], {})
        before = rows.setdefault(release["key"], row)
        if repr(before) != repr(row):  # to the last bit: floats' texts are exact
            raise ConflictError(
                f"tick {row['step']} was released before, with other values: the log's past, the "
                "secret or the run id has changed. Nothing more is published"
            )

    def ready(self, now: float = math.inf) -> Iterator[Row]:
        """Ticks that may be published at this time, in seconds since 1970, each once, in order."""
        while (rows := self._rows.get(self._next, {})).keys() >= set(self._keys):
            tick = _tick_of(self._keys, [rows[key] for key in self._keys])
            if now < tick["end"] / 1e6 + DELAY:
                return
            self._next += 1
            yield tick


def _tick_of(keys: Sequence[str], rows: Sequence[Row]) -> Row:
    """One line of the record."""
    first = rows[0]
    public = {"step": first["step"], "start": first["start"], "end": first["timestamp"]}
    columns = {name: [row[name] for row in rows] for name in _COLUMNS}
    return {**public, "keys": list(keys), "names": first["names"], **columns}


def _rows_of(tick: Row) -> Iterator[Row]:
    """The releases that `_tick_of` was given."""
    for place in range(len(tick["keys"])):
        values = {name: tick[name][place] for name in _COLUMNS}
        public = {"step": tick["step"], "start": tick["start"], "timestamp": tick["end"]}
        yield {**public, "names": tick["names"], **values}


class Publisher(threading.Thread):
    """Publishes, until the last tick is out, or `stop`.

    Args:
      keys, horizon: of the run.
      seen: where releases come from.
      record: where ticks go.
      messages: where errors go in full: a private file.

    Attributes:
      failed: why nothing more is published, in words that may be shown; None: it goes on.
    """

    def __init__(
        self, keys: Sequence[str], horizon: int, seen: Path, record: Path, messages: Path
    ) -> None:
        super().__init__(daemon=True)
        self._horizon, self._seen, self._record = horizon, seen, record
        self._messages = messages
        self.published, _ = whole_lines(record)
        self._ticks = Ticks(keys, self.published)
        self._offset = 0
        self.changed = threading.Condition()
        self.failed: str | None = None
        self._stopped = threading.Event()

    @property
    def over(self) -> bool:
        """Whether the last tick is out."""
        return len(self.published) >= self._horizon

    def run(self) -> None:
        try:
            while not self._stopped.is_set():
                self.publish(time.time())
                if self.over:
                    return
                now = time.time()
                self._stopped.wait(math.floor(now) + 1 - now)
        except ConflictError as error:
            self.failed = str(error)
        except Exception as error:  # its words may show data
            self.failed = (
                f"publishing has failed: {type(error).__name__}; {self._messages}, which is "
                "private, says why"
            )
            with suppress(OSError):  # the disk may be full
                append_text(self._messages, traceback.format_exc(), mode=0o600)
        finally:
            with self.changed:
                self.changed.notify_all()

    def publish(self, now: float) -> None:
        """All ticks that are ready at this time."""
        lines, self._offset = whole_lines(self._seen, self._offset)
        for line in lines:
            self._ticks.see(line)
        ticks = list(self._ticks.ready(now))
        if ticks:
            append(self._record, ticks)  # on disk before anybody sees them
            with self.changed:
                self.published.extend(ticks)
                self.changed.notify_all()

    def stop(self) -> None:
        """Publish nothing more."""
        self._stopped.set()

    def after(self, step: int, seconds: float) -> list[Row]:
        """The ticks after this one; if there are none yet, wait so long for one."""
        with self.changed:
            if len(self.published) <= step and self.failed is None and not self.over:
                self.changed.wait(seconds)
            return self.published[step:]

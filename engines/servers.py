"""Servers that jobs are sent to: started for a block, and ended where a job hangs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from typing_extensions import Self

from engines.flink.cluster import Process, free_port, listening, wait


class Server:
    """Serves jobs at `endpoint` while the block lasts; it ends with this process, too.

    Args:
      name: for messages.
      command: its words, given the port.
      log: where its output goes.
    """

    def __init__(self, name: str, command: Callable[[int], list[str]], log: Path) -> None:
        self._name, self._command, self._log = name, command, log
        self._port = free_port()
        self._process: Process | None = None
        self.endpoint = f"localhost:{self._port}"

    def __enter__(self) -> Self:
        self._process = Process(self._command(self._port), self._log)
        try:
            wait(lambda: listening(self._port), (self._process,), self._name)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End it, if it still runs."""
        if self._process is not None:
            self._process.kill()

    def running(self) -> bool:
        """Whether it was started, and has not ended."""
        return self._process is not None and self._process.running()

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """A block that a job which hangs fails in, after so long, as the server ends.

        The next block starts it anew, at the same endpoint.
        """
        if not self.running():
            self.__enter__()
        watchdog = threading.Timer(seconds, self.stop)
        watchdog.daemon = True
        watchdog.start()
        try:
            yield
        finally:
            watchdog.cancel()
            # If it has begun, it ends first: else the server seems to run, and is not started anew.
            watchdog.join()

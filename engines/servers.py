"""Processes that end with this one, and servers that jobs are sent to, ended where a job hangs."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from typing_extensions import Self

ROOT = Path(__file__).resolve().parents[1]
# Become the command that follows, to be killed when the process that started it ends, however that
# ends. Not by Popen's preexec_fn, which has to fork: gRPC's threads do not survive that.
_DIE_WITH_PARENT = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
os.execvp(sys.argv[1], sys.argv[1:])
"""


def bound(command: Iterable[str]) -> list[str]:
    """The command, its process bound to end with this one."""
    return [sys.executable, "-ISc", _DIE_WITH_PARENT, *command]


class Process:
    """A process with a log; it ends when the block does, and all that it started."""

    def __init__(
        self, command: Iterable[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        with log.open("ab") as out:
            self._popen = subprocess.Popen(
                bound(command),
                cwd=ROOT,
                env=os.environ | (environment or {}),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.log = log
        self.pid = self._popen.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def running(self) -> bool:
        """Whether it has not ended."""
        return self._popen.poll() is None

    def kill(self) -> None:
        """End it and all that it started at once, as a machine that fails would."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._popen.wait()


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


def wait(
    ready: Callable[[], bool], processes: Iterable[Process], what: str, seconds: float = 60
) -> None:
    """Wait until it is ready.

    Raises:
      RuntimeError: one of the processes ended, or it took longer.
    """
    processes, end = tuple(processes), time.monotonic() + seconds
    while time.monotonic() < end:
        for process in processes:
            if not process.running():
                raise RuntimeError(f"{what}: a process ended; {tail(process.log)}")
        try:
            if ready():
                return
        except OSError:
            pass
        time.sleep(0.1)
    logs = "\n".join(tail(process.log) for process in processes)
    raise RuntimeError(f"{what}: not ready in {seconds:g} seconds; {logs}")


def tail(log: Path) -> str:
    """The end of a log."""
    return f"{log.name} ends in\n{log.read_text(errors='replace')[-2000:]}"


def listening(port: int) -> bool:
    """Whether something answers at the port."""
    with socket.create_connection(("localhost", port), timeout=1):
        return True


def free_port() -> int:
    """A port of loopback that is free now."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return int(probe.getsockname()[1])

"""Prism, Beam's portable local runner: built from source once, and served while a block lasts.

    python -m engines.prism

builds it, unless that was done, and prints its path, and on stderr the versions in use.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import TracebackType

import apache_beam

from engines.cache import UnavailableError, cache, need, once, said
from engines.flink.cluster import free_port

MODULE = "github.com/apache/beam/sdks/v2/go/cmd/prism"


def location() -> Path:
    """Where the binary of the installed Beam's version is, once it is built."""
    return cache() / f"prism-{apache_beam.__version__}"


def build() -> Path:
    """The binary, built if need be.

    Raises:
      UnavailableError: Go is not installed, or could not build it.
    """
    wanted = f"{MODULE}@v{apache_beam.__version__}"

    def install(scratch: Path) -> Path:
        need(wanted, "go", "install", wanted, GOBIN=str(scratch))
        return scratch / "prism"

    return once(location(), install)


def versions() -> str:
    """Prism's module, and the Go that built it, in one line."""
    if shutil.which("go") is None:
        return "Prism, its version not known without Go"
    info = [line.split() for line in said("go", "version", "-m", str(location())).splitlines()]
    (module,) = (" ".join(words[1:]) for words in info if words[0] == "mod")
    return f"Prism {module}, built with {info[0][-1]}"


class Server:
    """Serves jobs at `endpoint` while the block lasts, but no longer than `seconds` from `renew`.

    A pipeline that hangs then fails. Should the tests be killed, Prism ends by itself once it has
    had no job for an hour.
    """

    def __init__(self, binary: Path, log: Path, seconds: float) -> None:
        self._binary, self._log, self._seconds = binary, log, seconds
        port = free_port()
        self.endpoint = f"localhost:{port}"
        self._command = [
            str(binary),
            f"-job_port={port}",
            "-serve_http=false",
            "-idle_shutdown_timeout=1h",
            "-log_kind=text",
        ]

    def __enter__(self) -> Server:
        with self._log.open("ab") as out:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT
            )
        self._watchdog = self._started()
        try:
            self._wait()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def renew(self) -> None:
        """Let it serve for as long again."""
        self._watchdog.cancel()
        self._watchdog = self._started()

    def _started(self) -> threading.Timer:
        watchdog = threading.Timer(self._seconds, self._process.kill)
        watchdog.daemon = True
        watchdog.start()
        return watchdog

    def stop(self) -> None:
        """End it, if it still runs."""
        self._watchdog.cancel()
        self._process.kill()
        self._process.wait()

    def running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def _wait(self, seconds: float = 30) -> None:
        end = time.monotonic() + seconds
        host, port = self.endpoint.split(":")
        while time.monotonic() < end and self.running():
            try:
                socket.create_connection((host, int(port)), timeout=1).close()
                return
            except OSError:
                time.sleep(0.05)
        tail = self._log.read_text(errors="replace")[-2000:]
        raise RuntimeError(f"Prism did not start; its log ends in\n{tail}")


def main() -> None:
    """The command: exit status 3 where Prism cannot be had."""
    try:
        binary = build()
    except UnavailableError as missing:
        print(missing, file=sys.stderr)
        sys.exit(3)
    print(binary)
    print(versions(), file=sys.stderr)


if __name__ == "__main__":
    main()

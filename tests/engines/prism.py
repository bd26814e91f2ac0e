"""Prism, Beam's portable local runner: built from source once, and served while a block lasts.

    python -m tests.engines.prism

builds it, unless that was done, and prints its path, and on stderr the versions in use. The cache
is outside the repository: $BEAM_DPCOUNT_ENGINES, or ~/.cache/beam_dpcount/engines.
"""

from __future__ import annotations

import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import TracebackType

import apache_beam

MODULE = "github.com/apache/beam/sdks/v2/go/cmd/prism"


class UnavailableError(Exception):
    """Prism cannot be had here; the text says in one line what is missing."""


def location() -> Path:
    """Where the binary of the installed Beam's version is, once it is built."""
    given = os.environ.get("BEAM_DPCOUNT_ENGINES")
    cache = Path(given) if given else Path.home() / ".cache" / "beam_dpcount" / "engines"
    return cache.resolve() / f"prism-{apache_beam.__version__}"


def build() -> Path:
    """The binary, built if need be.

    Raises:
      UnavailableError: Go is not installed, or could not build it.
    """
    target = location()
    if target.exists():
        return target
    wanted = f"{MODULE}@v{apache_beam.__version__}"
    if shutil.which("go") is None:
        raise UnavailableError(f"Go is not installed: it is needed to build {wanted}")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        done = subprocess.run(
            ["go", "install", wanted],
            env=os.environ | {"GOBIN": scratch},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode:
            # What it downloads comes first.
            said = [line for line in done.stdout.splitlines() if not line.startswith("go: down")]
            reason = " ".join(said)[:500] or f"exit status {done.returncode}"
            raise UnavailableError(f"go install {wanted} failed: {reason}")
        # Whole or not at all, whoever else builds it at the same time.
        Path(scratch, "prism").replace(target)
    return target


def versions(binary: Path) -> str:
    """Beam's, Prism's, Go's and Python's, in one line."""
    module, go = "its module is not known without Go", "not installed"
    if shutil.which("go"):
        # The go.mod of a directory could name another toolchain.
        go = _said("go", "env", "GOVERSION")
        info = [line.split() for line in _said("go", "version", "-m", str(binary)).splitlines()]
        (module,) = (" ".join(words[1:]) for words in info if words[0] == "mod")
        module += f", built with {info[0][-1]}"
    return (
        f"Beam {apache_beam.__version__}; Prism: {module}; Go: {go}; "
        f"Python {platform.python_version()}"
    )


def _said(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


class Server:
    """Serves jobs at `endpoint` while the block lasts, but no longer than `seconds`.

    A pipeline that hangs then fails. Should the tests be killed, Prism ends by itself once it has
    had no job for a minute.
    """

    def __init__(self, binary: Path, log: Path, seconds: float) -> None:
        self._binary, self._log, self._seconds = binary, log, seconds
        port = _free_port()
        self.endpoint = f"localhost:{port}"
        self._command = [
            str(binary),
            f"-job_port={port}",
            "-serve_http=false",
            "-idle_shutdown_timeout=1m",
            "-log_kind=text",
        ]

    def __enter__(self) -> Server:
        with self._log.open("ab") as out:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT
            )
        self._watchdog = threading.Timer(self._seconds, self._process.kill)
        self._watchdog.daemon = True
        self._watchdog.start()
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


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return int(probe.getsockname()[1])


def main() -> None:
    """The command: exit status 3 where Prism cannot be had."""
    try:
        binary = build()
    except UnavailableError as missing:
        print(missing, file=sys.stderr)
        sys.exit(3)
    print(binary)
    print(versions(binary), file=sys.stderr)


if __name__ == "__main__":
    main()

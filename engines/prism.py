"""Prism, Beam's portable local runner: built from source once, and served while a block lasts.

    python -m engines.prism

builds it, unless that was done, and prints what to give as --prism_location, and on stderr the
versions in use.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

import apache_beam

from engines.cache import UnavailableError, cache, need, once, said
from engines.servers import Server, bound

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


def launcher(binary: Path) -> Path:
    """A program beside the binary that starts it, to end with whatever process started it.

    Beam's PrismRunner starts Prism as a process of its own, which outlives a submitter that is
    killed by `kill -9`, and goes on with the job.
    """
    command = shlex.join(bound([str(binary)]))
    target = binary.with_name(f"{binary.name}-with-parent")
    scratch = target.with_name(f"{target.name}.{os.getpid()}")
    scratch.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    scratch.chmod(0o755)
    scratch.replace(target)  # anew each time, as this Python may be another
    return target


def versions() -> str:
    """Prism's module, and the Go that built it, in one line."""
    if shutil.which("go") is None:
        return "Prism, its version not known without Go"
    info = [line.split() for line in said("go", "version", "-m", str(location())).splitlines()]
    (module,) = (" ".join(words[1:]) for words in info if words[0] == "mod")
    return f"Prism {module}, built with {info[0][-1]}"


def server(binary: Path, log: Path) -> Server:
    """Prism; its HTTP interface is off."""

    def command(port: int) -> list[str]:
        return [str(binary), f"-job_port={port}", "-serve_http=false", "-log_kind=text"]

    return Server("Prism", command, log)


def main() -> None:
    """The command: exit status 3 where Prism cannot be had."""
    try:
        binary = build()
    except UnavailableError as missing:
        print(missing, file=sys.stderr)
        sys.exit(3)
    print(launcher(binary))
    print(versions(), file=sys.stderr)


if __name__ == "__main__":
    main()

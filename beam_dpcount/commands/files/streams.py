"""Standard input and output in place of files: whole before anything is counted, or given out."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from typing import IO, Any

from beam_dpcount.commands import stop
from beam_dpcount.commands.files.addresses import is_file, is_table
from beam_dpcount.commands.files.beside import beside
from beam_dpcount.commands.files.formats import STANDARD, InputError

# How files begin that say by a suffix what they are.
_SUFFIXES = {b"\x1f\x8b": ".gz", b"BZh": ".bz2", b"\x28\xb5\x2f\xfd": ".zst", b"PAR1": ".parquet"}
_out: IO[str] | None = None  # standard output, while notes go elsewhere


def spooled() -> str:
    """A copy of standard input that only this user can read, and that goes when the run ends.

    Workers read a file again where a runner tries again, and look at it before anything is counted.

    Raises:
      InputError: it cannot be read, or is empty.
    """
    try:
        source: Any = getattr(sys.stdin, "buffer", sys.stdin)
        begin = source.read(4)
        if not begin:
            raise InputError("standard input is empty; --input - reads it: pipe a file into it")
        suffix = next((s for magic, s in _SUFFIXES.items() if begin.startswith(magic)), "")
        path = os.path.join(stop.temporary(), f"input{suffix}")
        with open(path, "xb") as file:
            file.write(begin)
            shutil.copyfileobj(source, file, 1 << 20)
    except (OSError, AttributeError) as error:  # it may be closed
        reason = getattr(error, "strerror", None) or "it is closed"
        raise InputError(f"standard input cannot be copied: {reason}") from None
    return path


def place_of(output: str, kind: str | None) -> str:
    """Where an output is written first."""
    if is_file(output):
        return output
    kind = "parquet" if is_table(output) else kind or "csv"
    return os.path.join(stop.temporary(), f"out.{kind}")


@contextmanager
def notes_aside(output: str | None) -> Iterator[None]:
    """Within, what is printed goes to standard error, if the output goes to standard output."""
    global _out
    if output != STANDARD:
        yield
        return
    _out = sys.stdout
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _out = None


def check(kind: str | None) -> None:
    """Raise InputError where an output of this kind should not go to standard output."""
    if kind == "parquet" and _out is not None and _out.isatty():
        raise InputError(
            "--output - is a terminal, which cannot show Parquet: pipe it on, or leave "
            "--output-format out"
        )


def give_out(path: str) -> None:
    """A whole file, to standard output.

    Raises:
      OSError: standard output cannot be written to.
    """
    out: Any = _out or sys.stdout
    stop.note(STANDARD, "part of the counts may have gone to standard output")
    try:
        with open(path, "rb") as file:
            shutil.copyfileobj(file, out.buffer)
        out.flush()
    except OSError as error:
        spent = "; some of the counts may be out, and the budget is spent"
        raise unwritten(error, out, spent) from None
    stop.note(STANDARD, "all of the counts went to standard output")


def spared(place: str, name: str) -> str:
    """The path of a copy of a whole output that could not be given out, in the working directory.

    Its budget is spent: without the copy it would be lost.

    Raises:
      InputError: it cannot be written.
    """
    path = f"{re.sub(r'[^A-Za-z0-9_.-]', '_', name)}-{stop.RUN[:8]}{os.path.splitext(place)[1]}"
    with beside(path) as unfinished:
        shutil.copyfile(place, unfinished)
    return path


def unwritten(error: OSError, out: Any = None, more: str = "") -> OSError:
    """An error in words, for a standard output that is full or has nobody to read it."""
    # Python tries again when it ends, and would complain without words.
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), (out or sys.stdout).fileno())
    # Only where nothing else is to be said of it does a reader that has gone stay apart.
    kind = BrokenPipeError if isinstance(error, BrokenPipeError) and not more else OSError
    return kind(f"standard output cannot be written: {error.strerror}{more}")

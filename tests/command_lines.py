"""Command lines as tests run them, in this process or in one of its own, and what they wrote."""

from __future__ import annotations

import contextlib
import csv
import datetime as dt
import io
import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from beam_dpcount.commands import app as cli
from beam_dpcount.commands import count

ROOT = Path(__file__).resolve().parents[1]
# A number and a text that turn up nowhere by chance.
SECRET, SECRET_TEXT = 77_431, "s3cr3t"
PNG = b"\x89PNG\r\n\x1a\n"
# A budget so large that the noise is 0.
EXACT = ("--rho", "1e12", "--mechanism", "SmoothBinary")
BUDGET = ("--epsilon", "1", "--delta", "1e-6")
GRPC = ("--direct_running_mode", "multi_threading")
BUNDLES = ("--runner", "BundleBasedDirectRunner")
HEALTH_TIME = ("--timestamp-format", "%Y%m%d-%H:%M:%S:%L")
NOT_NOISE = "What is left out is not noise, and no standard deviation covers it: "

each_path = pytest.mark.parametrize("path", ["bounded", "streaming"])


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    status: int
    out: str
    err: str


def command(
    *words: object,
    main: Callable[..., None] = count.main,
    overwrite: bool = True,
    verbose: bool = True,
) -> Ended:
    """Run a command in this process, as its module would.

    Tests run it again for the same outputs; `overwrite=False` has it refused. They read the exact
    statements; `verbose=False` leaves it at the summary of them.
    """
    if verbose and "--output" in words:
        words = (*words, "--verbose")
    if overwrite and "--output" in words and "--overwrite" not in words:
        words = (*words, "--overwrite")
    loggers = [logging.getLogger(name) for name in (None, "apache_beam")]
    levels = [logger.level for logger in loggers]
    out, err, status = io.StringIO(), io.StringIO(), 0
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            cli.run_main(lambda _: main([str(word) for word in words]))
    except SystemExit as end:
        status = int(end.code or 0)
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
    return Ended(status, out.getvalue(), err.getvalue())


def process(*words: object, name: str = "count", **environment: str) -> Ended:
    """Run a command in a process of its own, from another directory."""
    ended = subprocess.run(
        [sys.executable, "-m", "beam_dpcount", name, *map(str, words)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr)


def succeed(*words: object, **options: Any) -> str:
    """What a command printed that must succeed: first warnings, which alone are on stderr."""
    ended = command(*words, **options)
    # A slow machine may show how far it has come.
    said = re.sub(r"(?m)^[\d,]+ releases in .*\n", "", ended.err)
    assert (ended.status, re.sub(r"(?m)^warning: .*\n", "", said)) == (0, "")
    assert "Traceback" not in ended.out
    assert "--output" not in words or "--dry-run" in words or "warning: " not in ended.out
    return said + ended.out


def fail(*words: object, run: Callable[..., Ended] = command, started: bool = True) -> str:
    """The one error that a command printed that must fail; all, where it must not start."""
    ended = run(*words)
    said = re.sub(r"(?m)^warning: .*\n", "", ended.err)
    assert started or not ended.out + ended.err.removesuffix(said)
    assert "Traceback" not in said
    assert ended.status == 2, said
    assert said.startswith("error: ")
    assert said.endswith("\n")
    assert len(said.splitlines()) == 1
    assert SECRET_TEXT not in ended.err
    assert str(SECRET) not in ended.err
    return said


def without(words: Sequence[object], *options: str) -> list[object]:
    """The words without these options and their values."""
    left: list[object] = []
    kept = True
    for word in words:
        if isinstance(word, str) and re.match("--|-k$", word):
            kept = word not in options
        left += [word] * kept
    return left


def of(main: Callable[..., None]) -> tuple[Any, Any, Any]:
    """`succeed`, `command` and `fail` of one command."""

    def run(*words: object) -> Ended:
        return command(*words, main=main)

    def fails(*words: object, started: bool = True) -> str:
        return fail(*words, run=run, started=started)

    return lambda *words: succeed(*words, main=main), run, fails


Line = tuple[str, int, int | None, float]


def written(path: Path, column: str | None = None) -> list[Line]:
    """Key, step, timestamp and value of every release in a file, sorted.

    At a clock the column is the first, unless it is named, and times are in microseconds here.
    """
    if path.suffix == ".parquet":
        rows: Any = pq.read_table(path).to_pylist()
    else:
        with open(path, encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file, strict=True))
    if rows and column is None:
        column = value_column([*rows[0]])
    return sorted(
        (row["key"], int(row["step"]), micros(row["timestamp"]), float(row[column])) for row in rows
    )


def value_column(names: Sequence[str]) -> str:
    """The first column of numbers."""
    placed = {"key", "step", "start", "timestamp", "restart"}
    return next(name for name in names if name not in placed)


def micros(cell: object) -> int | None:
    """A time as commands write it, in microseconds."""
    if cell in ("", None):
        return None
    text = str(cell)
    if text.lstrip("-").isdigit():
        return int(text)
    moment = dt.datetime.fromisoformat(text.removesuffix("Z"))
    return (moment - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)


def written_vectors(
    path: Path, columns: Sequence[str], noise: float = 1e-3
) -> list[tuple[str, int, int | None, tuple[float, ...]]]:
    """Key, step, timestamp and numbers of every release in a file, sorted; there is no noise."""
    rows: list[Any]
    if path.suffix == ".parquet":
        table = pq.read_table(path)
        names, rows = table.column_names, [list(row.values()) for row in table.to_pylist()]
    else:
        with open(path, encoding="utf-8", newline="") as file:
            names, *rows = csv.reader(file, strict=True)
    assert names == ["key", "step", "timestamp", *columns, "stddev"]
    assert all(float(row[-1]) < noise for row in rows)
    return sorted(
        (
            row[0],
            int(row[1]),
            None if row[2] in ("", None) else int(row[2]),
            tuple(map(float, row[3:-1])),
        )
        for row in rows
    )


def stddevs(path: Path) -> dict[tuple[str, int], float]:
    with open(path, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    name = next(name for name in rows[0] if name.endswith("stddev"))
    return {(row["key"], int(row["step"])): float(row[name]) for row in rows}


def health_micros(text: str) -> int:
    day, hour, minute, second, milli = map(int, re.split("[-:]", text))
    date = dt.date(day // 10_000, day // 100 % 100, day % 100)
    days = (date - dt.date(1970, 1, 1)).days
    return ((((days * 24 + hour) * 60 + minute) * 60 + second) * 1000 + milli) * 1000

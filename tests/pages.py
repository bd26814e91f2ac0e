"""Reports of outputs that are written by hand, and what is on them."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np

from beam_dpcount.commands import graph, histogram, sequences, ticks
from beam_dpcount.commands.files import tables
from beam_dpcount.commands.files.formats import Places
from beam_dpcount.commands.page import write
from beam_dpcount.commands.start import Command
from beam_dpcount.commands.task import Task
from beam_dpcount.counters.moments import instant

DAY = 1_768_435_200_000_000  # 2026-01-15T00:00Z in microseconds
EVIL = (
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "\"'&amp;<b>",
    "\u202egnp.exe",
    "a\x00b\x1b[31m\r\nc",
    "مرحبا",
    "東京" * 40,
    "",
    "\u2066\u200f\ufeff",
)


class Parsed(HTMLParser):
    """The elements of a page, with their attributes and their own texts."""

    EMPTY = ("meta", "br")

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in self.EMPTY:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open:
            self.texts.append((self._open[-1], data))

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def said(self, tag: str) -> list[str]:
        return [text for name, text in self.texts if name == tag]


def task_of(kind: Command, output: Path, *words: object) -> Task:
    """A task whose output is there."""
    given = ["--input", "in.csv", "--output", output, "--report", output.parent / "r.html", *words]
    task = kind.of(kind.parser().parse_args([str(word) for word in given]))
    task.check()
    task.source()
    task.counter = task.transform(Places([])).counter
    task.output = tables.Output(str(output), task.table())
    return task


def page_of(task: Task, warnings: Sequence[str] = ()) -> str:
    return write.page(task, task.picture(), warnings)


def written(path: Path, header: Sequence[str], rows: Sequence[Sequence[object]]) -> Path:
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


RELEASE = ("key", "step", "timestamp", "value", "stddev")
TICKED = ("key", "step", "start", "timestamp", "count", "count_stddev", "count_low", "count_high")


def ticked(path: Path, rows: Sequence[tuple[str, int, int, float, float]]) -> Path:
    """Releases at a clock, as `ticks` writes them, from rows of RELEASE."""
    half = 1.96
    cells = [
        (key, step, instant(end), instant(end), x, s, x - half * s, x + half * s)
        for key, step, end, x, s in rows
    ]
    return written(path, TICKED, cells)


def counted(path: Path, keys: Sequence[str], steps: int) -> Task:
    """Ticks of these keys: the value of step t of key k is 100 k + t."""
    rows = [
        (key, t, DAY + t * 600_000_000, 100.0 * k + t, 3.0)
        for k, key in enumerate(keys)
        for t in range(1, steps + 1)
    ]
    clock = "--tick", "10m", "--start", "2026-01-15T00:00:00Z", "--horizon", steps
    column = "--key", "who", "--timestamp", "at", "--keys", *keys
    return task_of(ticks.Ticks, ticked(path / "out.csv", rows), *clock, *column, "--rho", 1)


def samples(path: Path) -> dict[str, str]:
    """A page of each kind, with names of all lengths."""
    chance = np.random.default_rng(1)
    paths = iter(path / f"{i}.csv" for i in range(99))
    names, about = [*EVIL, "x" * 200], ("key", "step", "timestamp")
    made = {"keys": page_of(counted(path, names, 300)), "key": page_of(counted(path, ["a"], 9))}
    usual = "--horizon", 9, "--rho", 1

    values = 1000 * chance.random(len(names))
    output = written(
        next(paths), (*about, *names, "stddev"), [(k, 9, "", *values, 30.0) for k in names[:4]]
    )
    words: tuple[object, ...] = "--key", "k", "--item", "i", "--domain", *names
    made["items"] = page_of(task_of(histogram.Histogram, output, *words, *usual))
    columns = *about, "rank", "word", "value", "low", "high"
    ranked = [("all", 9, "", i + 1, w, 900.0 - i, 800.0, 1000.0) for i, w in enumerate(names)]
    words = "--letter", "l", "--domain", "a", "b", "--max-length", 2
    output = written(next(paths), columns, ranked)
    made["words"] = page_of(task_of(sequences.Sequences, output, *words, *usual))
    for what, vertices, more in (("degrees", 90, ("--max-degree", 80)), ("cuts", 45, ())):
        words = "--edge", "u", "v", "--vertices", vertices, "--what", what, *more
        output = next(paths)
        task = task_of(graph.Graph, output, *words, *usual)
        domain = task.labels  # type: ignore[attr-defined]
        values = chance.normal(size=len(domain))
        written(output, (*about, *domain, "stddev"), [("all", 9, "", *values, 0.5)])
        made[what] = page_of(task)
    return made

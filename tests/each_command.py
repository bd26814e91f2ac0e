"""A command line of each command that counts, and a made log that all of them read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from beam_dpcount.commands import count, graph, histogram, sequences, ticks

KEYS = ("ann", "bob", "</script><b>", "\u202eevil", "東京" * 30, "x" * 200)
MODULE: dict[str, Any] = {
    "count": count,
    "ticks": ticks,
    "histogram": histogram,
    "sequences": sequences,
    "graph": graph,
    "cuts": graph,
    "select": ticks,
}
MAIN = {kind: module.main for kind, module in MODULE.items()}
TASK = {
    kind: getattr(module, module.__name__.split(".")[-1].title()) for kind, module in MODULE.items()
}
CLOCK = ("--timestamp", "time", "--tick", 10, "--start", 100, "--horizon", 6)
MORE: dict[str, tuple[object, ...]] = {
    "count": ("--key", "who", "--where", "letter=a", "--timestamp", "time", "--horizon", 60),
    "ticks": ("--key", "who", "--keys", *KEYS, *CLOCK),
    "histogram": ("--key", "who", "--item", "letter", "--domain", "a", "b", "--horizon", 60),
    "sequences": ("--letter", "letter", "--alphabet", "a", "b", "--max-length", 2, "--horizon", 60),
    "graph": ("--edge", "u", "v", "--vertices", 5, "--what", "edges", "--horizon", 60),
    "cuts": ("--edge", "u", "v", "--vertices", 5, "--what", "cuts", "--horizon", 60),
    "select": ("--key", "who", "--select-keys", *CLOCK),
}


def row(second: int, key: str, letter: str = "a") -> str:
    return f'{second},"{key}",{letter},{second % 5},{(second // 5 + 1) % 5}'


def rows() -> list[str]:
    return [row(100 + i, KEYS[i % len(KEYS)], "ab"[i % 2]) for i in range(58)]


def log(path: Path, lines: list[str]) -> Path:
    path.write_text("\n".join(["time,who,letter,u,v", *lines, ""]), encoding="utf-8")
    return path

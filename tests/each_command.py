"""The table of commands that count: command lines of each, what they write, and a log for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
    "metrics": ticks,
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
    "sequences": ("--letter", "letter", "--domain", "a", "b", "--max-length", 2, "--horizon", 60),
    "graph": ("--edge", "u", "v", "--vertices", 5, "--what", "edges", "--horizon", 60),
    "cuts": ("--edge", "u", "v", "--vertices", 5, "--what", "cuts", "--horizon", 60),
    "select": ("--key", "who", "--select-keys", *CLOCK),
    "metrics": (
        "--key",
        "who",
        "--keys",
        *KEYS,
        *CLOCK,
        "--metric",
        "count",
        "--metric",
        "items(letter, a, b)",
    ),
}


def row(second: int, key: str, letter: str = "a") -> str:
    return f'{second},"{key}",{letter},{second % 5},{(second // 5 + 1) % 5}'


def rows() -> list[str]:
    return [row(100 + i, KEYS[i % len(KEYS)], "ab"[i % 2]) for i in range(58)]


def log(path: Path, lines: list[str]) -> Path:
    path.write_text("\n".join(["time,who,letter,u,v", *lines, ""]), encoding="utf-8")
    return path


RELEASE = ("key", "step", "timestamp", "value", "stddev")
PEOPLE = ("--user", "v", "--per-user", 3, "--per-key", 2, "--max-keys", 2)
ALONE = (*MORE["graph"][:5], "--horizon", 60)


@dataclass(frozen=True)
class Kind:
    """One way to count.

    Fields:
      command: its entry in `each_command`.
      words: instead of those there.
      columns: what is written.
      private: those of them that hold values, or follow from them.
      relations: what --relation may be; the first is the default.
      said: what is said of the guarantee, and in no other kind.
    """

    command: str
    words: tuple[object, ...]
    columns: tuple[str, ...] = RELEASE
    private: tuple[str, ...] = ("value",)
    relations: tuple[str, ...] = ("replace_one",)
    said: tuple[str, ...] = ()

    @property
    def at_ticks(self) -> bool:
        return "--tick" in self.words

    @property
    def selects(self) -> bool:
        return "--select-keys" in self.words


def of(name: str, *columns: str, words: Sequence[object] | None = None, **more: Any) -> Kind:
    """A kind whose vectors have these columns."""
    given = {"words": MORE[name] if words is None else tuple(words), **more}
    if columns:
        given |= {"columns": ("key", "step", "timestamp", *columns, "stddev"), "private": columns}
    return Kind(name, **given)


def measured(
    names: Sequence[str],
    words: Sequence[object],
    restarts: bool = False,
    command: str = "metrics",
    said: tuple[str, ...] = ("public: the keys and the clock",),
) -> Kind:
    """A kind with metrics or views, whose columns have these names."""
    public = [name for name in names if name.startswith(("count", "people"))]
    ends = {
        name: ("", "_stddev", "_low", "_high") if name in public else ("", "_low", "_high")
        for name in names
    }
    cells = [f"{name}{end}" for name, some in ends.items() for end in some]
    placed = ("key", "step", "start", "timestamp", *(("restart",) if restarts else ()))
    private = tuple(name for name in cells if not name.endswith("_stddev"))
    said = (*said, "note: of rows within the clock: ")
    return Kind(command, tuple(words), (*placed, *cells), private, BOTH, said)


def of_graph(what: str, *more: object, columns: tuple[str, ...] = (), **how: Any) -> Kind:
    return of("graph", *columns, words=(*ALONE, "--what", what, *more), **how)


BOTH, EITHER = ("add_remove", "replace_one"), ("replace_one", "add_remove")
PAIRS = tuple(f"{u}-{v}" for u in range(5) for v in range(u + 1, 5))
CLOCKED = ("public: the keys and the clock", "the largest error of all 36 releases")
WORDS = ("key", "step", "timestamp", "rank", "word", "value", "low", "high")
KINDS = {
    "count": of("count"),
    "values": of("count", words=("--key", "who", "--value", "u", "--bounds", 0, 4,
                                 "--timestamp", "time", "--horizon", 60)),
    "count of people": of("count", words=(*MORE["count"], *PEOPLE)),
    "ticks": measured(("count",), MORE["ticks"], command="ticks", said=CLOCKED),
    "ticks of people": measured(("count",), (*MORE["ticks"], *PEOPLE), command="ticks",
                                said=CLOCKED),
    "select": measured(("count",), MORE["select"], command="select", said=()),
    "metrics": measured(("count", "count_a", "count_b"), MORE["metrics"]),
    "views": measured(
        ("count_each", "count_last_2", "count"),
        (*MORE["ticks"], "--view", "each", "--view", "last 2", "--view", "restart 3"), True),
    "metrics of people": measured(
        ("people_each", "count_each", "mean_u_each", "rate_each", "p50_u_each"),
        (*MORE["ticks"], *PEOPLE, "--view", "each", "--metric", "people", "--metric", "count",
         "--metric", "mean(u, 0, 4)", "--metric", "rate(letter = a)", "--metric",
         "quantiles(u, 0, 4, 0.5)")),
    "histogram": of("histogram", "a", "b", relations=EITHER),
    "histogram of people": of("histogram", "a", "b", words=(*MORE["histogram"], *PEOPLE),
                              relations=EITHER),
    "sequences": Kind("sequences", MORE["sequences"], WORDS, WORDS[4:], EITHER,
                      said=("of 6 words after each of 60 rows",)),
    "graph": of_graph("edges", relations=("edge",)),
    "triangles": of_graph("triangles", "--max-degree", 4, "--asserted",
                          relations=("edge", "node"), said=("It rests on your word",)),
    "degrees": of_graph("degrees", "--max-degree", 3, columns=("1", "2", "3+"),
                        relations=("edge",)),
    "forest": of_graph("forest", "--max-weight", 5, "--weight", "u", relations=("edge",)),
    "cuts": of("cuts", *PAIRS, relations=EITHER, said=("cuts: add up the weights",)),
}  # fmt: skip

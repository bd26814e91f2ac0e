"""beam-dpcount graph, end to end."""

from __future__ import annotations

import csv
from collections import Counter as Tally
from collections.abc import Callable, Sequence
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beam_dpcount.commands import graph
from beam_dpcount.commands.figures.pictures import Panel
from tests import command_lines, pictures
from tests.command_lines import (
    EXACT,
    SECRET,
    SECRET_TEXT,
    each_path,
    without,
    written_vectors,
)
from tests.real_data import real

succeed, run, fail = command_lines.of(graph.main)


# Key, step, timestamp and values of a release.
Line = tuple[str, int, int | None, tuple[float, ...]]
Weighted = dict[frozenset[str], list[float]]  # the weights of each pair, in order


def written(path: Path, columns: Sequence[str] = ("value",)) -> list[Line]:
    return written_vectors(path, columns, noise=1e-2)


# What the rows insert, restated: None is no vertex.

NAMES = ("ann", "bob", "cem", "dan", "eve")
PAIRS = [(u, v) for i, u in enumerate(NAMES) for v in NAMES[i + 1 :]]
Fact = tuple[int | None, str, Any, Any, Any]  # microseconds, key, two vertices, weight


def running(
    facts: Sequence[Fact],
    value: Callable[[Weighted], Sequence[float]],
    by_time: bool,
    good: Callable[[float], bool] = lambda weight: weight == 1,
    every: int = 1,
) -> list[Line]:
    """The exact values that the facts, in the order of the file, should give."""
    if by_time:
        facts = sorted(facts, key=lambda fact: fact[0] or 0)
    graphs: dict[str, Weighted] = {}
    steps: Tally[str] = Tally()
    lines: list[Line] = []
    for micros, key, u, v, weight in facts:
        pairs = graphs.setdefault(key, {})
        steps[key] += 1
        if u in NAMES and v in NAMES and u != v and isinstance(weight, float) and good(weight):
            pairs.setdefault(frozenset((u, v)), []).append(weight)
        if steps[key] % every == 0:
            lines.append((key, steps[key], micros, tuple(map(float, value(pairs)))))
    return sorted(lines)


def degrees(pairs: Weighted) -> dict[str, int]:
    return Tally(end for pair in pairs for end in pair)


def ruled(pairs: Weighted, D: int) -> Weighted:
    """The pairs that are among the first D of both their ends."""
    first: dict[str, list[frozenset[str]]] = {name: [] for name in NAMES}
    for pair in pairs:
        for end in pair:
            first[end].append(pair)
    return {p: w for p, w in pairs.items() if all(p in first[end][:D] for end in p)}


def triangles(pairs: Weighted) -> int:
    names = list(NAMES)
    return sum(
        {frozenset(p) for p in ((a, b), (a, c), (b, c))} <= pairs.keys()
        for i, a in enumerate(names)
        for j, b in enumerate(names[:i])
        for c in names[:j]
    )


def forest(pairs: Weighted) -> float:
    """Kruskal's."""
    tree, cost = {name: name for name in NAMES}, 0.0
    for (weight, *_), pair in sorted((w, sorted(p)) for p, w in pairs.items()):
        u, v = (tree[end] for end in pair)
        if u != v:
            tree = {name: v if top == u else top for name, top in tree.items()}
            cost += weight
    return cost


WHAT: dict[str, tuple[list[object], Sequence[str], Callable[[Weighted], Sequence[float]]]] = {
    "edges": ([], ["value"], lambda g: [len(g)]),
    "edges ruled": (["--max-degree", 1], ["value"], lambda g: [len(ruled(g, 1))]),
    "triangles": (["--max-degree", 4], ["value"], lambda g: [triangles(g)]),
    "triangles ruled": (["--max-degree", 2], ["value"], lambda g: [triangles(ruled(g, 2))]),
    "triangles asserted": (
        ["--max-degree", 4, "--asserted", "--relation", "node"],
        ["value"],
        lambda g: [triangles(g)],
    ),
    "kstars": (
        ["--max-degree", 3, "-k", 2],
        ["value"],
        lambda g: [sum(comb(min(d, 3), 2) for d in degrees(g).values())],
    ),
    "highdegree": (
        ["--threshold", 2],
        ["value"],
        lambda g: [sum(d >= 2 for d in degrees(g).values())],
    ),
    "degrees": (
        ["--max-degree", 3],
        ["1", "2", "3+"],
        lambda g: [sum(min(d, 3) == column for d in degrees(g).values()) for column in (1, 2, 3)],
    ),
    "forest": (["--max-weight", 9, "--weight", "how"], ["value"], lambda g: [forest(g)]),
    "cuts": (
        ["--weight", "how", "--unit", 0.25, "--every", 1],
        [f"{u}-{v}" for u, v in PAIRS],
        lambda g: [sum(g.get(frozenset(pair), [])) for pair in PAIRS],
    ),
}
each_what = pytest.mark.parametrize("what", WHAT)

# Time, key, the two vertices and the weight, as cells.
ROWS: list[tuple[int, str, str, str, str]] = [
    (10, "x", "ann", "bob", "3"),
    (30, "x", "bob", "cem", "1"),
    (20, "x", "cem", "ann", "9"),
    (40, "y", "ann", "bob", "0.5"),
    (41, "x", "ann", "ann", "1"),
    (50, "x", SECRET_TEXT, "ann", "1"),
    (51, "x", "", "ann", "1"),
    (60, "x", "bob", "ann", "-0.25"),
    (70, "x", "cem", "dan", SECRET_TEXT),
    (71, "x", "dan", "cem", "1"),
    (72, "x", "dan", "eve", "1e0"),
    (73, "x", "ann", "eve", "1.01"),
    (80, "y", "eve", "bob", str(SECRET)),
    (90, "y", "eve", "bob", "1"),
    (91, "x", "ann", "dan", "10"),
    (92, "x", "ann", "dan", "2"),
]


def number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None


def facts(what: str, keyed: bool = True) -> list[Fact]:
    """Without a column of weights each row has the weight 1."""
    weights = "--weight" in WHAT[what][0]
    return [
        (time * 1_000_000, key if keyed else "all", u, v, number(w) if weights else 1.0)
        for time, key, u, v, w in ROWS
    ]


def good(what: str) -> Callable[[float], bool]:
    if what == "forest":
        return lambda weight: weight in range(1, 10)
    return lambda weight: -1 <= weight <= 1


@pytest.fixture
def events(tmp_path: Path) -> Path:
    """A small file, out of order in time, with rows that are no edge."""
    path = tmp_path / "events.csv"
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("time", "who", "from", "to", "how"), *ROWS])
    (tmp_path / "names.txt").write_text("\n".join(NAMES))
    return path


def arguments(path: Path, *more: object) -> list[object]:
    return [
        *("--input", path, "--key", "who", "--edge", "from", "to", "--timestamp", "time"),
        *("--vertices-file", path.parent / "names.txt", "--horizon", 20),
        *("--output", path.parent / "out.csv", *more),
    ]


def asked(what: str) -> list[object]:
    return ["--what", what.split()[0], *WHAT[what][0]]


@each_path
@each_what
def test_exact_values(what: str, path: str, events: Path) -> None:
    target = events.parent / ("out.parquet" if path == "bounded" else "out.csv")
    out = succeed(*arguments(events, *asked(what), *EXACT, "--path", path, "--output", target))
    _, columns, value = WHAT[what]
    by_time = path == "bounded"
    assert written(target, columns) == running(facts(what), value, by_time, good(what))
    assert f": {target}" in out
    assert "public: the keys, the vertices, and the number, order and times" in out
    assert out.startswith("warning: weak budget: ")


@each_path
def test_one_graph_without_a_key(path: str, events: Path) -> None:
    words = without(arguments(events, *asked("forest"), *EXACT, "--path", path), "--key")
    out = succeed(*words, "--every", 4)
    expected = running(
        facts("forest", keyed=False), WHAT["forest"][2], path == "bounded", good("forest"), every=4
    )
    assert len(expected) == 4
    assert written(events.parent / "out.csv") == expected
    assert "public: the vertices, and" in out
    assert "a release after every 4 rows of a key (--every), up to 5;" in out


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize("keyed", [True, False], ids=["key", "no key"])
def test_numbered_vertices(suffix: str, keyed: bool, tmp_path: Path) -> None:
    """From 0 to N-1; nulls, which make floats of a column, are none."""
    u = [0, 1, None, 3, 4, 2, 2, -1]
    v = [1, 2, 1, 0, 1, 0, 2, 1]
    source, output = tmp_path / f"in.{suffix}", tmp_path / "out.csv"
    if suffix == "parquet":
        columns = {"u": pa.array(u, pa.float64()), "v": v, "k": ["a"] * 8}
        pq.write_table(pa.table(columns), source)
    else:
        cells = [f"{'' if a is None else a},{b:02},a" for a, b in zip(u, v, strict=True)]
        source.write_text("\n".join(["u,v,k", *cells]))
    words = ["--input", source, "--edge", "u", "v", "--vertices", 4, "--horizon", 9, *EXACT]
    flags = ["--key", "k"] if keyed else []
    succeed(*words, *flags, "--what", "triangles", "--max-degree", 3, "--output", output)
    counts = [0, 0, 0, 0, 0, 1, 1, 1]
    expected = [
        ("a" if keyed else "all", step, None, (n,)) for step, n in enumerate(counts, start=1)
    ]
    assert written(output) == expected


@pytest.mark.parametrize("cell", ["1_0", " 1", "1.0", "٣", "+1", "1" * 30, "0x1", "one"])
def test_what_is_no_vertex_number(cell: str, tmp_path: Path) -> None:
    source, output = tmp_path / "in.csv", tmp_path / "out.csv"
    source.write_text(f"u,v\n0,{cell}\n0,2\n", encoding="utf-8")
    words = ["--input", source, "--edge", "u", "v", "--vertices", 20, "--horizon", 9, *EXACT]
    succeed(*words, "--what", "edges", "--output", output)
    assert [value for *_, value in written(output)] == [(0,), (1,)]


def test_every_of_cuts_is_a_hundredth_of_the_horizon(events: Path) -> None:
    words = arguments(events, "--what", "cuts", *EXACT, "--horizon", 500)
    assert "a release after every 5 rows of a key (--every), up to 100;" in succeed(*words)
    columns = WHAT["cuts"][1]
    assert {step for _, step, *_ in written(events.parent / "out.csv", columns)} == {5, 10}


# Pictures


@pytest.mark.parametrize("what", ["edges", "degrees", "cuts"])
def test_what_is_drawn(what: str, events: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = pictures.caught(monkeypatch)
    picture = events.parent / "out.png"
    succeed(*arguments(events, *asked(what), *EXACT, "--plot", picture))
    (how,) = drawn
    assert how["title"].endswith(" by who")
    assert how["guarantee"].startswith("Guarantee: ")
    lines = running(facts(what), WHAT[what][2], True, good(what))
    if what == "edges":
        releases = how["columns"]
        assert sorted(zip(releases["key"], releases["step"], releases["value"], strict=True)) == [
            (key, step, value) for key, step, _, (value,) in lines
        ]
    else:
        names, panels = how["vertices" if what == "cuts" else "domain"], how["panels"]
        assert list(names) == list(NAMES if what == "cuts" else WHAT[what][1])
        last = {key: (step, value) for key, step, _, value in lines}
        assert [(panel.name, panel.note, tuple(panel.values)) for panel in panels] == [
            (key, f"after {last[key][0]} rows", last[key][1]) for key in ("x", "y")
        ]
    assert how["path"] == str(picture)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.exhaustive("n", "panels")
@pytest.mark.parametrize("n", [2, 25, 130])
@pytest.mark.parametrize("panels", [1, 3])
def test_pictures_of_any_size(n: int, panels: int, tmp_path: Path) -> None:
    chance = np.random.default_rng(1)
    names = [f"vertex {i} {'$_%' * (i % 9)}" for i in range(n)]
    counts = [Panel(f"key {i}", "", chance.normal(size=n).tolist(), 1) for i in range(panels)]
    pairs = n * (n - 1) // 2
    edges = [Panel(f"key {i}", "", [0.0] * pairs, 0) for i in range(panels)]
    domain = [str(i + 1) for i in range(n)]
    pictures.degrees(domain, counts, tmp_path / "d.png")
    pictures.weights(names, edges, tmp_path / "w.png")
    assert all((tmp_path / name).stat().st_size > 2000 for name in ("d.png", "w.png"))


@pytest.mark.parametrize("draw", [pictures.degrees, pictures.weights])
def test_values_and_their_names_must_agree(draw: Any, tmp_path: Path) -> None:
    panel = Panel("a", "", [1.0, 2.0], 1.0)
    with pytest.raises(ValueError, match="must have one"):
        draw(["1", "2", "3"], [panel], tmp_path / "c.png")


# Real data


@pytest.mark.exhaustive
@each_path
def test_real_data(path: str, tmp_path: Path) -> None:
    """The busiest 30 students' messages, both ways added up."""
    source, output, listed = real("collegemsg.txt"), tmp_path / "o.csv", tmp_path / "v"
    with open(source, encoding="utf-8", newline="") as lines:
        ends = [line.split()[:2] for line in lines][1:]
    busy = [name for name, _ in Tally(end for edge in ends for end in edge).most_common(30)]
    listed.write_text("\n".join(busy))
    ended = run(
        *("--input", source, "--delimiter", " ", "--edge", "src", "dst", "--timestamp", "time"),
        *("--vertices-file", listed, "--horizon", 60_000, "--every", 59_835, "--what", "cuts"),
        *(*EXACT, "--path", path, "--output", output),
    )
    assert ended.status == 0
    pairs = [(u, v) for i, u in enumerate(busy) for v in busy[i + 1 :]]
    ((_, step, _, values),) = written(output, [f"{u}-{v}" for u, v in pairs])
    sent = Tally(frozenset(edge) for edge in ends)
    assert step == len(ends) == 59_835
    assert list(values) == [sent[frozenset(pair)] for pair in pairs]


# Bad input

"""The pipelines of pipelines/, small: what they are given, and what must come out without noise."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from pipelines import count_file, select_keys, several_numbers, triangles, unbounded
from tests.side_doors import SECRET

# Of the day of the log: hour, page, session and action. Sessions s0 to s3 come twice.
VIEWS = [
    (hour, "/home" if i % 3 else "/cart", f"s{i % 12}", "view" if i % 4 else "purchase")
    for i, hour in enumerate([0, 0, 1, 2, 2, 2, 5, 5, 9, 12, 12, 20, 20, 20, 20, 23])
]
LOG = [f"2026-01-15T{hour:02}:30:00Z,{','.join(rest)}" for hour, *rest in VIEWS]
EDGES = [f"2026-01-15T00:00:{i:02}Z,{a},{b}" for i, (a, b) in enumerate(combinations(range(5), 2))]
# At a clock these are no events; no text of them may ever be seen.
HOSTILE = [
    b"",
    b"\xff\xfe,\x00",
    b",,,",
    f"{SECRET},/home,s,view".encode(),
    f"2026-01-15T00:30:00Z,/home,{SECRET}".encode(),
    f"2026-01-15T00:30:00Z,/home,s,view,{SECRET}".encode(),
    f"2026-99-99T00:30:00Z,/home,{SECRET},view".encode(),
    f"0001-01-01T00:00:00+23:59,/home,{SECRET},view".encode(),
    f"9999-12-31T23:59:59-23:59,/home,{SECRET},view".encode(),
    f"2026-01-15T00:30:00Z,{SECRET},s,view".encode(),
    f'2026-01-15T00:30:00Z,"/home,{SECRET},view'.encode(),
    f"2026-01-15T00:30:00Z,/ho\rme,{SECRET},view".encode(),
    b"2026-01-15T00:30:00Z," + b"x" * 200_000 + b",s,view",
    f"2026-01-14T23:59:59Z,/home,{SECRET},view".encode(),
    f"2026-01-16T00:00:00Z,/home,{SECRET},view".encode(),
]
EXACT = ("--epsilon", "1e9")

Rows = dict[tuple[str, int], tuple[float | None, ...]]  # by key and step; None: an empty cell


@dataclass(frozen=True)
class Start:
    """A pipeline.

    Fields:
      main: runs it.
      lines: of its input.
      expected: its rows, by key and step.
      words: of its command line.
      columns: of its output, which has them as a header unless it is unbounded.
    """

    main: Callable[[Sequence[str] | None], None]
    lines: Sequence[str]
    expected: Callable[[], Rows]
    words: Sequence[str] = ()
    columns: Sequence[str] = ("key", "step", "timestamp", "value", "stddev")
    header: bool = True

    def run(self, directory: Path, *words: str, more: Sequence[bytes] = ()) -> Rows:
        """What it writes of its lines and of `more`, by key and step."""
        log, out = directory / "in.csv", directory / "out.csv"
        log.write_bytes(b"\n".join([b"header", *map(str.encode, self.lines), *more, b""]))
        self.main(["--input", str(log), "--output", str(out), *EXACT, *self.words, *words])
        return self.written(out)

    def written(self, out: Path) -> Rows:
        with out.open(newline="", encoding="utf-8") as file:
            rows = [*csv.reader(file)]
        if self.header:
            assert rows.pop(0) == [*self.columns]
            assert [(key, int(step)) for key, step, *_ in rows] == sorted(
                (key, int(step)) for key, step, *_ in rows
            )
        found: Rows = {}
        for key, step, _, *cells in rows:
            values = cells[:-1] if self.columns[-1] == "stddev" else cells
            assert (key, int(step)) not in found
            found[key, int(step)] = tuple(float(cell) if cell else None for cell in values)
        return found


def _by_page(pages: Sequence[str]) -> dict[tuple[str, int], list[tuple[int, str, str, str]]]:
    """The events so far of each page and hour."""
    return {
        (page, step): [view for view in VIEWS if view[1] == page and view[0] < step]
        for page in pages
        for step in range(1, 25)
    }


def _counts(pages: Sequence[str] = tuple(count_file.PAGES)) -> Rows:
    """Of each session one event counts a page."""
    return {
        place: (len({session for *_, session, _ in seen}),)
        for place, seen in _by_page(pages).items()
    }


def _selected() -> Rows:
    """A key of one session is never shown, even without noise."""
    return {place: count for place, count in _counts(["/cart", "/home"]).items() if count != (1,)}


def _numbers() -> Rows:
    return {
        place: (
            len(seen),
            len({session for *_, session, _ in seen}),
            sum(action == "purchase" for *_, action in seen) / len(seen) if seen else None,
        )
        for place, seen in _by_page(several_numbers.PAGES).items()
    }


def _triangles() -> Rows:
    pairs = [*combinations(range(5), 2)]
    triangles = [{*combinations(corners, 2)} for corners in combinations(range(5), 3)]
    return {
        ("all", step): (sum(triangle <= {*pairs[:step]} for triangle in triangles),)
        for step in range(2, 11, 2)
    }


def _ticks() -> Rows:
    """Ten lines a second in turn, of which each session counts once a page, thrice in all."""
    found: Rows = {}
    counted: set[tuple[str, str]] = set()
    for tick in range(2):
        for i in range(tick * 20, tick * 20 + 20):
            _, page, session, _ = VIEWS[i % len(VIEWS)]
            counted.add((page, session))
        for page in unbounded.PAGES:
            found[page, tick + 1] = (sum(seen == page for seen, _ in counted),)
    return found


GRAPH = ("--vertices", "5", "--max-degree", "4", "--horizon", "10", "--every", "2")
LIVE = ("--start", "1000000000", "--seconds", "4", "--tick", "2")
STARTS = {
    "count_file": Start(count_file.main, LOG, _counts),
    "unbounded": Start(unbounded.main, LOG, _ticks, LIVE, header=False),
    "select_keys": Start(select_keys.main, LOG, _selected),
    "several_numbers": Start(
        several_numbers.main,
        LOG,
        _numbers,
        columns=("key", "step", "timestamp", "views", "sessions", "share_bought"),
    ),
    "triangles": Start(triangles.main, EDGES, _triangles, GRAPH),
}

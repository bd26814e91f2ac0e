"""Hostile rows of files that are counted per element: in columns and row by row alike.

Keys, times and the number of rows are public, so that a row which cannot be read ends the run, in
the same words; what else a row holds is protected, and stops nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from beam_dpcount.commands import count
from beam_dpcount.commands.files import formats
from beam_dpcount.commands.files.formats import Source
from beam_dpcount.statistics.numbers import Numbers
from tests import lanes
from tests.command_lines import BUDGET, command
from tests.hostile_files import (
    BROKEN_CSV,
    BROKEN_JSON,
    BROKEN_PARQUET,
    FILES,
    ONE_BY_ONE,
    SOUND,
    TEXTS,
    cells_of,
    csv_of,
    interspersed,
    json_of,
    not_text,
    odd,
    parquet_of,
    table_of,
)
from tests.side_doors import SECRET
from tests.whole import temporary

# Cells of what is protected: of numbers, people and texts that rows are counted by.
CELLS: dict[str, dict[str, Any]] = {
    f"{name} as {column}": {column: cell}
    for column in ("n", "who")
    for name, cell in {
        **{name: next(iter(cells.values())) for name, cells in TEXTS.items()},
        **{
            "a number": "1",
            "with a sign": "+1",
            "exponent": "1e0",
            "a point": "1.",
            "zeros": "001",
        },
        **{
            "zeros": "001",
            "negative": "-7",
            "half": "0.5",
            "blanks": " 1 ",
            "null": "null",
            "quotes": '"1"',
        },
    }.items()
}
ODD_CELLS = {
    "n": odd("n", pa.array([float("nan"), None])),
    "who": odd("who", not_text(pa.binary())),
}
MORE: dict[str, tuple[str, ...]] = {
    "values": ("--value", "n", "--bounds", "0", "2"),
    "where": ("--where", "n=1"),
    "people": (
        *("--value", "n", "--bounds", "0", "2", "--unit", "0.5", "--user", "who"),
        *("--per-user", "3", "--per-key", "2"),
    ),
}


def read(path: Path, timed: bool, measure: Sequence[str | None]) -> Any:
    """What both lanes read of a file, which is the same: rows, or why there are none."""
    columns, measured = formats.counted(*measure)
    how: dict[str, Any] = {"timestamp": "at" if timed else None, "user": "who"}
    source = Source([str(path)], "key", columns, measured, **how)
    found = [lanes.elements_read(source, path, Numbers(0, 2, 0.5), way) for way in (True, False)]
    assert found[0] == found[1]
    if isinstance(found[0], str):
        assert SECRET not in found[0]
        assert found[0].startswith(str(path))
        assert len(found[0].splitlines()) == 1
    return found[0]


@pytest.mark.parametrize("timed", [True, False])
@pytest.mark.parametrize("measure", [("n", None), (None, "n=1")])
def test_each_hostile_row_is_read_alike(
    timed: bool, measure: Sequence[str | None], tmp_path: Path
) -> None:
    """Alone among many that are sound: it is refused, or read as both readers read it."""
    path, refused, many = tmp_path / "in.csv", 0, SOUND * 20
    rows: list[Any] = [*BROKEN_CSV, *cells_of(TEXTS), *cells_of(CELLS)]
    for row in rows:
        path.write_bytes(csv_of([*many, row, *many]))
        found = read(path, timed, measure)
        refused += isinstance(found, str)
        if row in cells_of(CELLS):
            assert len(found) == 2 * len(many) + 1
    assert refused > 8
    path = tmp_path / "in.jsonl"
    for row in (*BROKEN_JSON, *cells_of(TEXTS), *cells_of(CELLS)):
        path.write_bytes(json_of([*SOUND, row, *SOUND]))
        read(path, timed, measure)


@pytest.mark.parametrize("timed", [True, False])
@pytest.mark.parametrize("column", ["n", "who"])
@pytest.mark.parametrize("name", BROKEN_PARQUET)
def test_hostile_columns_are_read_alike(
    name: str, column: str, timed: bool, tmp_path: Path
) -> None:
    path, table = tmp_path / "in.parquet", table_of(SOUND)
    for add in (BROKEN_PARQUET[name], ODD_CELLS[column]):
        path.write_bytes(parquet_of(add(table)))
        for measure in (("n", None), (None, "n=1")):
            found = read(path, timed, measure)
            if add is ODD_CELLS[column]:
                assert len(found) == len(SOUND) + 4


def shown(path: Path, words: Sequence[str]) -> dict[str, Any]:
    """All that a run shows of a file: status, outputs, what is said, what is left."""
    place = path.parent
    secret, out = place / "secret", place / "out.csv"
    secret.write_text("0123456789abcdef" * 4)
    how = ("--key", "key", "--horizon", "99", *BUDGET, "--secret-file", secret, "--run-id", "r")
    with temporary() as left:
        ended = command("--input", path, *how, *words, "--output", out, main=count.main)
        temporaries = sorted(str(file.relative_to(left)) for file in left.rglob("*"))
    about = place / "out.csv.manifest.json"
    time = r"\d{4}-\d\d-\d\dT[\d:.+Z]+"
    seen = {
        "status": ended.status,
        "said": re.sub(time, "#", ended.out + ended.err),
        "output": out.read_bytes() if out.exists() else None,
        "manifest": re.sub(time, "#", about.read_text()) if about.exists() else None,
        "files": sorted(file.name for file in place.iterdir()),
        "temporaries": temporaries,
    }
    assert SECRET not in f"{seen['said']} {seen['manifest']}"
    for file in (out, about):
        file.unlink(missing_ok=True)
    return seen


@pytest.mark.pipeline
@pytest.mark.exhaustive("name", "more", "timed")
@pytest.mark.parametrize("timed", [True, False])
@pytest.mark.parametrize("more", MORE)
@pytest.mark.parametrize("name", FILES)
def test_runs_do_not_tell_the_lane(name: str, more: str, timed: bool, tmp_path: Path) -> None:
    file, sound, hostile = FILES[name]
    path = tmp_path / file
    words = (*MORE[more], *(("--timestamp", "at") if timed else ()))
    for content in (sound, hostile):
        path.write_bytes(content)
        columns, rows = (shown(path, (*words, *lane)) for lane in ((), ONE_BY_ONE))
        assert columns == rows
        if content is sound and name != "csv, no end":  # whose last line cannot be read
            assert columns["status"] == 0
        elif columns["status"]:
            assert columns["status"] == 2
            assert columns["files"] == sorted([file, "secret"])


@pytest.mark.pipeline
@pytest.mark.parametrize("more", MORE)
def test_cells_that_are_protected_stop_no_lane(more: str, tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_bytes(csv_of(interspersed(SOUND, cells_of(CELLS))))
    words = (*MORE[more], "--timestamp", "at")
    columns, rows = (shown(path, (*words, *lane)) for lane in ((), ONE_BY_ONE))
    assert columns == rows
    assert columns["status"] == 0, columns["said"]
    assert len(columns["output"].splitlines()) > 40

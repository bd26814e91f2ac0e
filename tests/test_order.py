"""The order of what comes out is public: it is a function of the public keys, as they were given.

Elsewhere outputs are sorted before they are compared. Here they are not.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.orders import (
    EVERY,
    EXPECTED,
    KEYS,
    SECRET,
    TICK,
    TOUCHED,
    VARIABLE,
    check,
    in_a_process,
)

# By what was seen to differ: several give other orders of sets, and of the stages of a pipeline.
SEEDS = range(12)


@pytest.mark.long
@pytest.mark.parametrize(
    ("seed", "runners"),
    [
        (1, ("fn",)),
        pytest.param(1, ("bundles",), marks=pytest.mark.exhaustive),
        pytest.param(2, ("grpc",), marks=pytest.mark.exhaustive),
    ],
)
def test_the_order_of_releases_is_public(seed: int, runners: tuple[str, ...]) -> None:
    check(json.loads(in_a_process(seed, "-m", "tests.orders", *runners)), set(EXPECTED))


@pytest.mark.audit
@pytest.mark.parametrize("seed", SEEDS)
def test_the_order_of_releases_is_public_whatever_the_seed(seed: int) -> None:
    check(
        json.loads(in_a_process(seed, "-m", "tests.orders", "fn", "bundles", "grpc")), set(EXPECTED)
    )


PROGRAM = f"""
import sys
from pathlib import Path
from beam_dpcount.commands import ticks
events, output, rows = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
for row in rows:
    events.write_text("time,who\\n" + row.replace(";", "\\n"))
    ticks.main(["--input", str(events), "--key", "who", "--timestamp", "time", "--tick", "10",
        "--start", "0", "--horizon", "6", "--keys", *{KEYS!r}, "--epsilon", "1", "--delta", "1e-6",
        "--secret-env", {VARIABLE!r}, "--run-id", "files", "--output", str(output), "--overwrite"])
    print(output.read_text(), end="\\0")
"""


def files(directory: Path, seed: int, suffix: str) -> list[str]:
    """The files that `beam-dpcount ticks` writes of two neighbours, and what it says meanwhile."""
    words = [str(directory / "events.csv"), str(directory / f"out{suffix}")]
    neighbours = ("7,bert;33,anna;20,bert;", "1,carl;7,bert;33,anna;20,bert;")
    return in_a_process(seed, "-c", PROGRAM, *words, *neighbours).split("\0")[:2]


def check_files(without: str, carls: str) -> None:
    """That all lines but those of carl's releases are the same, and in the public order."""
    one, other = ([line.split(",") for line in text.splitlines()] for text in (without, carls))
    assert [line[:2] for line in one] == [line[:2] for line in other]
    cells = [line[:2] for line in one if len(line) == 8][1:]
    assert cells == [[key, str(step)] for key in KEYS for step in EVERY]
    assert [line for line in one if line[0] != TOUCHED] == [
        line for line in other if line[0] != TOUCHED
    ]
    assert one != other


@pytest.mark.exhaustive
def test_files_are_in_the_public_order(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(VARIABLE, SECRET)
    check_files(*files(tmp_path, 0, ".csv"))


@pytest.mark.audit
def test_twelve_seeds_write_the_same_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(VARIABLE, SECRET)
    written = [files(tmp_path, seed, ".csv") for seed in SEEDS]
    check_files(*written[0])
    assert all(texts == written[0] for texts in written)


def test_the_windows_that_are_expected() -> None:
    """Of the constants above: a tick's release lies at its end."""
    ends = [step * TICK for step in EVERY]
    last = {end // (2 * TICK): step for step, end in zip(EVERY, ends, strict=True)}
    assert list(last.values()) == [1, 3, 5, 6]

"""Real data, which stand beside the repository."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

DATA = Path(__file__).resolve().parents[1] / ".." / "shared" / "data"


def real(name: str) -> Path:
    """A file of real data; a test is skipped where it is not there."""
    path = DATA / name
    if not path.exists():
        pytest.skip(f"{name} is not in ../shared/data beside the repository")
    return path


def real_rows(name: str, delimiter: str = ",") -> list[dict[str, str]]:
    """Its rows, by column."""
    with real(name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter=delimiter))

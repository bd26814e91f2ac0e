"""The pipelines of pipelines/ on Prism, as they are started there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engines.conftest import Engine
from tests.start_pipelines import EXACT, STARTS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", STARTS)
def test_it_counts_what_it_says(name: str, tmp_path: Path, on_prism: Engine) -> None:
    start = STARTS[name]
    log, out = tmp_path / "in.csv", tmp_path / "out.csv"
    log.write_text("\n".join(["header", *start.lines, ""]))
    words = "--input", str(log), "--output", str(out), *EXACT, *start.words
    done = subprocess.run(
        [sys.executable, "-m", f"pipelines.{name}", *words, *on_prism.command],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found, expected = start.written(out), start.expected()
    assert found.keys() == expected.keys()
    for place, values in expected.items():
        assert found[place] == pytest.approx(values, abs=0.01), place

"""The live example on Prism, killed in the middle: `make live`, shorter."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks import live
from engines import prism


def test_live_on_prism_goes_on_after_a_kill(
    binary: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Of the whole run LIVE_SECONDS, a minute by default, and a log that is read twice more."""
    assert binary == prism.location()
    seconds = os.environ.get("LIVE_SECONDS", "60")
    directory = tmp_path / "live"
    status = live.main(["--seconds", seconds, "--keep", str(directory)])
    said = capfd.readouterr().out
    assert status == 0, said
    assert "no gap, and no changed value" in said

    # Nothing that is public holds a person, a request's field, or the secret.
    secret = (directory / "private" / "secret").read_text().strip()
    for name in ("run.json", "releases.jsonl"):
        public = (directory / name).read_text()
        assert secret not in public
        assert '"person"' not in public
    assert {path.name for path in directory.iterdir()} == {"run.json", "releases.jsonl", "private"}
    assert secret not in said

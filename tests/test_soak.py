"""The soak, small: memory stays, states keep their size, and growth is noticed."""

from __future__ import annotations

import pytest

from benchmarks import soak


@pytest.mark.parametrize("skewed", [False, True])
def test_a_small_soak_reports_flat_memory(
    skewed: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["--events", "3000", "--keys", "50", *(["--skewed"] if skewed else [])]
    monkeypatch.setattr(soak, "resident", lambda: 100.0)  # the test's own process is not quiet
    assert soak.main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 13
    sizes = {line.split()[-1] for line in lines[2:-1]}
    assert sizes == {lines[-1].split()[-2]}  # all of one size, so none above


def test_growth_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = iter(range(100, 200, 10))
    monkeypatch.setattr(soak, "resident", lambda: float(next(memory)))
    assert soak.main(["--events", "1000", "--keys", "10"]) == 1

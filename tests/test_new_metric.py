"""A metric is one file and one entry: that of CONTRIBUTING.md is in every door."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CODE = r"<!-- statistics/metrics/above.py -->\n```python\n(.*?)```"
NAME = "above"


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package with the page's file and its entry; all else is as here."""
    place = tmp_path_factory.mktemp("tree")
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "beam_dpcount", place / "beam_dpcount", ignore=ignored)
    for name in ("tests", "docs", "setup.cfg", "benchmarks"):
        (place / name).symlink_to(ROOT / name)
    metrics = place / "beam_dpcount" / "statistics" / "metrics"
    (code,) = re.findall(CODE, (ROOT / "CONTRIBUTING.md").read_text("utf-8"), re.DOTALL)
    (metrics / f"{NAME}.py").write_text(code)
    entry = metrics / "__init__.py"
    text = entry.read_text().replace(
        "from beam_dpcount.statistics.metrics.base",
        f"from beam_dpcount.statistics.metrics.{NAME} import Above\n"
        "from beam_dpcount.statistics.metrics.base",
        1,
    )
    entry.write_text(text.replace('    "Count",\n', '    "Above",\n    "Count",\n', 1))
    return place


def python(tree: Path, *words: str) -> str:
    """What Python prints with this copy of the package."""
    done = subprocess.run(
        [sys.executable, *words],
        cwd=tree,
        env={"PYTHONPATH": str(tree), "PATH": "", "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


@pytest.mark.long
@pytest.mark.pipeline
def test_it_holds_to_the_contract_in_every_door(tree: Path) -> None:
    """Python, YAML, command, sizing, help and reference: each is a check of the suite."""
    assert str(tree) in python(tree, "-c", "import beam_dpcount; print(beam_dpcount.__file__)")
    words = ("-m", "pytest", "-q", "-p", "no:xdist", f"tests/test_each_metric.py::{NAME}")
    chosen = ("tests/test_each_metric.py", "-k", f"[{NAME}-")
    out = python(tree, *words[:-1], "-rA", *chosen)
    for name in ("yaml_takes_it", "a_command_counts_it", "python_counts_it_in_every_view"):
        assert re.search(rf"PASSED .*\[{NAME}-{name}\]", out)
    assert len(re.findall(rf"PASSED .*\[{NAME}-", out)) == 10


def test_it_is_refused_as_others_are(tree: Path) -> None:
    code = "from beam_dpcount.arguments.metrics import metric_of\nmetric_of('above(latency)')"
    with pytest.raises(AssertionError, match=r"needs more arguments: give e.g. above\(latency, 2"):
        python(tree, "-c", code)

"""What is built installs and runs where nothing else is: python tests/smoke.py [PYTHON ...].

Builds the sdist, of it the wheel, and installs that into a new environment with pictures: only
beam_dpcount is then there, and the first commands of the README give files of the right shape. The
sdist holds the tests as well. Needs what pip needs; nothing of the checkout.
"""

from __future__ import annotations

import csv
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CLOCK = "--timestamp timestamp --timestamp-format iso --start 2026-01-15T00:00:00Z --horizon 24"
BUDGET = "--epsilon 1 --delta 1e-6"
KEYS = "--key page --keys /home /cart /deals"
COMMANDS = (
    "demo",
    "count --input out/demo/events.csv --key page --where action=purchase --horizon 20000 "
    f"{BUDGET} --output out/counts.csv --plot out/counts.png --report out/counts.html",
    f"ticks --input out/demo/events.csv {KEYS} {CLOCK} --tick 1h --user session --per-user 3 "
    "--metric people "
    f"{BUDGET} --output out/ticks.csv --plot out/ticks.png --report out/ticks.html",
    f"errors --ticks 24 {BUDGET}",
)
MADE = {
    "out/demo/ticks.csv": b"key,step,start,timestamp,people,people_stddev",
    "out/demo/ticks.png": b"\x89PNG",
    "out/demo/ticks.html": b"<!doctype html>",
    "out/counts.csv": b"key,step,timestamp,value,stddev",
    "out/counts.png": b"\x89PNG",
    "out/counts.html": b"<!doctype html>",
    "out/ticks.csv": b"key,step,start,timestamp,people,people_stddev",
    "out/ticks.csv.manifest.json": b"{",
    "out/ticks.png": b"\x89PNG",
    "out/ticks.html": b"<!doctype html>",
}


def run(*words: object, place: Path) -> str:
    """What a command prints; its own words where it fails."""
    done = subprocess.run(
        [*map(str, words)], cwd=place, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"failed: {' '.join(map(str, words))}\n{done.stdout}{done.stderr}")
    return done.stdout


def build(place: Path) -> tuple[Path, Path]:
    """The sdist, and the wheel that is built from it, in dist/."""
    source, dist, tools = place / "source", ROOT / "dist", place / "tools"
    shutil.copytree(
        ROOT,
        source,
        symlinks=True,
        ignore=shutil.ignore_patterns(".git", ".venv", "out", "dist", "build", "*.so", ".*_cache"),
    )
    shutil.rmtree(dist, ignore_errors=True)
    run(sys.executable, "-m", "venv", tools, place=place)
    run(tools / "bin" / "pip", "install", "--quiet", "build", place=place)
    run(tools / "bin" / "python", "-m", "build", "--outdir", dist, source, place=place)
    (wheel,), (sdist,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
    return wheel, sdist


def check(python: str, built: Path, place: Path) -> str:
    """Install one of them for a Python, run the commands, and say what was done."""
    venv = place / f"{Path(python).name}-{built.suffix[1:]}"
    home = venv / "home"
    run(python, "-m", "venv", venv, place=place)
    began = time.monotonic()
    run(venv / "bin" / "pip", "install", "--quiet", f"{built}[plots]", place=place)
    installed = time.monotonic() - began
    home.mkdir()
    packages = run(venv / "bin" / "pip", "show", "--files", "beam-dpcount", place=home)
    files = [line.strip() for line in packages.partition("Files:\n")[2].splitlines()]
    tops = {name.split("/")[0] for name in files if not name.startswith("..")}
    tops = {name for name in tops if not name.endswith(".dist-info")}
    assert tops == {"beam_dpcount"}, tops
    began = time.monotonic()
    for command in COMMANDS:
        run(venv / "bin" / "beam-dpcount", *command.split(), place=home)
    for name, start in MADE.items():
        assert (home / name).read_bytes().startswith(start), name
    with (home / "out" / "ticks.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3 * 24, len(rows)
    version = run(venv / "bin" / "python", "--version", place=home).strip()
    twin = any("_blt" in name and name.endswith((".so", ".pyd")) for name in files)
    return (
        f"{version}, {built.name}: installed in {installed:.0f} s, {len(COMMANDS)} commands in "
        f"{time.monotonic() - began:.0f} s, {'with' if twin else 'without'} the compiled twin"
    )


def tests_of(sdist: Path, place: Path) -> int:
    """How many modules of tests the sdist has; an AssertionError where the checkout has more."""
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for room in ("tests", "docs", "examples", "engines", "benchmarks", "pipelines"):
        here = {
            str(path.relative_to(ROOT))
            for path in (ROOT / room).rglob("*")
            if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".so"
        }
        assert here <= names, sorted(here - names)[:9]
    return sum(name.startswith("tests/") and "/test_" in name for name in names)


def main(pythons: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        wheel, sdist = build(place)
        print(f"{sdist.name}: {tests_of(sdist, place)} modules of tests", flush=True)
        for python in pythons:
            print(check(python, wheel, place), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] or [sys.executable])

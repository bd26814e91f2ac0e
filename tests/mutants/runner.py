"""Applies mutants to copies of the checkout, runs their checks there, and judges.

A mutant is killed only if its check passes without it, and with it fails by an assertion of a test:
no failed import, no other error, no time-out.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from typing import Any

from tests.mutants.table import Mutant
from tests.mutants.witness import MODULE, WHERE

ROOT = Path(__file__).resolve().parents[2]

KILLED, ALIVE, BROKEN = "killed", "alive", "broken"
_LONGEST = 300.0  # seconds of one check
_LEFT = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "out", "*.egg-info")
_TWIN = "beam_dpcount/mechanisms/_blt.abi3.so"


class TableError(Exception):
    """A mutant that does not fit the code."""


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant: killed, alive, or broken, which proves nothing; and why."""

    fate: str
    said: str = ""


def mutated(mutant: Mutant, root: Path = ROOT) -> str:
    """The text of its file with the mutant in it.

    Raises:
      TableError: what it changes is not there, or not just once.
    """
    text = (root / mutant.file).read_text("utf-8")
    times = text.count(mutant.old)
    if times != 1:
        raise TableError(f"{mutant.name}: what it changes is {times} times in {mutant.file}")
    return text.replace(mutant.old, mutant.new)


def judged(mutants: Sequence[Mutant], jobs: int = 2) -> Iterator[tuple[Mutant, Verdict]]:
    """All of them in their order, so many at a time.

    Raises:
      TableError: a mutant does not fit the code.
    """
    for mutant in mutants:
        mutated(mutant)
    with tempfile.TemporaryDirectory(prefix="mutants.") as scratch:
        copies: Queue[Copy] = Queue()
        for number in range(jobs):
            copies.put(Copy(Path(scratch, str(number))))

        def in_a_copy(work: Callable[[Copy], Any]) -> Any:
            copy = copies.get()
            try:
                return work(copy)
            finally:
                copies.put(copy)

        with ThreadPoolExecutor(jobs) as pool:
            troubles: dict[tuple[str, bool], str] = {}
            for twin in (True, False):
                checks = sorted({mutant.check for mutant in mutants if mutant.twin == twin})
                parts = filter(None, (checks[i::jobs] for i in range(jobs)))
                for found in pool.map(
                    lambda part, twin=twin: in_a_copy(lambda copy: copy.troubles(part, twin)), parts
                ):
                    troubles |= {(check, twin): trouble for check, trouble in found.items()}

            def verdict(mutant: Mutant) -> Verdict:
                trouble = troubles[mutant.check, mutant.twin]
                return in_a_copy(lambda copy: copy.judge(mutant, trouble))  # type: ignore[no-any-return]

            yield from zip(mutants, pool.map(verdict, mutants), strict=True)


class Copy:
    """A copy of the checkout, in which one mutant at a time is put."""

    _moments = iter(range(10**9, 2 * 10**9))
    _lock = threading.Lock()

    def __init__(self, place: Path) -> None:
        self._place = place
        shutil.copytree(ROOT, place, ignore=_LEFT)

    def troubles(self, checks: Sequence[str], twin: bool = True) -> dict[str, str]:
        """Why checks say nothing without a mutant, each; empty if one passes."""
        seen, said, status = self._run(checks, "beam_dpcount", twin)
        if status not in (0, 1) and len(checks) > 1:  # one that is not there stops them all
            return {
                c: trouble for one in checks for c, trouble in self.troubles([one], twin).items()
            }
        names = [name for name, _ in seen["failed"]]
        found = dict.fromkeys(checks, "")
        for check in checks:
            if _has(names, check) or not _has(seen["passed"], check):
                found[check] = f"without the mutant {check} does not pass (status {status})\n{said}"
        return found

    def judge(self, mutant: Mutant, trouble: str = "") -> Verdict:
        """What becomes of it; `trouble` is what its check has without it."""
        if trouble:
            return Verdict(BROKEN, trouble)
        path = self._place / mutant.file
        before = path.read_text("utf-8")
        self._write(path, mutated(mutant, self._place))
        try:
            seen, said, status = self._run(["-x", mutant.check], mutant.module, mutant.twin)
        finally:
            self._write(path, before)
        if status == 0:
            return Verdict(ALIVE, said)
        if status != 1 or not seen["failed"]:
            return Verdict(BROKEN, f"the check ended with status {status}\n{said}")
        if seen["imported"] != str(path):
            return Verdict(BROKEN, f"not the mutant was imported, but {seen['imported']}")
        faults = [fault for _, fault in seen["failed"] if fault]
        return Verdict(BROKEN, f"{', '.join(faults)}\n{said}") if faults else Verdict(KILLED)

    def _write(self, path: Path, text: str) -> None:
        path.write_text(text, "utf-8")
        # Python knows bytecode by the time and size of its source: no two versions share a time.
        with self._lock:
            moment = next(self._moments)
        os.utime(path, (moment, moment))

    def _run(
        self, words: Sequence[str], module: str, twin: bool
    ) -> tuple[dict[str, Any], str, int]:
        """What the plugin wrote down, what was printed, and how it ended."""
        compiled, aside = self._place / _TWIN, self._place / "twin.aside"
        if not twin and compiled.exists():
            compiled.rename(aside)
        try:
            return self._checked(words, module)
        finally:
            if aside.exists():
                aside.rename(compiled)

    def _checked(self, words: Sequence[str], module: str) -> tuple[dict[str, Any], str, int]:
        witness = self._place / "witness.json"
        witness.unlink(missing_ok=True)
        environment = {
            **os.environ,
            "PYTHONPATH": str(self._place),  # before an editable installation's finder
            "OPENBLAS_NUM_THREADS": "1",
            WHERE: str(witness),
            MODULE: module,
        }
        environment.pop("PYTEST_ADDOPTS", None)
        plugin = ["-m", "", "-p", "tests.mutants.witness"]
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", *plugin, *words],
            cwd=self._place,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            said, _ = process.communicate(timeout=_LONGEST * len(words))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return {"passed": [], "failed": []}, "it took too long", -1
        found = json.loads(witness.read_text("utf-8")) if witness.exists() else {}
        seen = {"passed": [], "failed": [], "imported": None, **found}
        return seen, said[-3000:], process.returncode


def _has(names: Sequence[str], check: str) -> bool:
    return any(name == check or name.startswith(f"{check}[") for name in names)

"""The parameters of a run, all public, and where its files are."""

from __future__ import annotations

import json
import os
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

SERVICES = ("search", "browse", "cart", "pay")
ENDS = "end when standard input ends, as it does when whoever holds it is killed"


@dataclass(frozen=True)
class Settings:
    """What a run counts, for whom, and when. The same after a restart, to the last letter.

    Args:
      start: of the clock: seconds since 1970.
      tick: seconds.
      horizon: how many ticks.
      epsilon, delta: for each person, and all that is ever released.
      events, per_key: how many requests of a person count, and how many of them in one service.
      services: the keys.
      rate: requests a second of the made log.
      run_id: of replayable noise.
    """

    start: int
    tick: int
    horizon: int
    epsilon: float = 1.0
    delta: float = 1e-6
    events: int = 4
    per_key: int = 2
    services: Sequence[str] = SERVICES
    rate: float = 60
    run_id: str = "live"

    @property
    def stop(self) -> int:
        """When the clock ends: seconds since 1970."""
        return self.start + self.horizon * self.tick


@dataclass(frozen=True)
class Home:
    """The directory of a run."""

    path: Path

    @property
    def settings(self) -> Path:
        """All public parameters."""
        return self.path / "run.json"

    @property
    def record(self) -> Path:
        """What was published: public."""
        return self.path / "releases.jsonl"

    @property
    def private(self) -> Path:
        """What only we may read."""
        return self.path / "private"

    @property
    def log(self) -> Path:
        """The log."""
        return self.private / "requests.jsonl"

    @property
    def key_file(self) -> Path:
        """The secret of replayable noise."""
        return self.private / "secret"

    @property
    def seen(self) -> Path:
        """All releases of all lives, in the order of the engine, which is private."""
        return self.private / "seen.jsonl"

    def messages(self, name: str) -> Path:
        """Where the messages of a process go: engines may show data in them."""
        return self.private / f"{name}.log"

    def begin(self, wanted: dict[str, Any], seconds: int) -> Settings:
        """The settings of the run that lives here; of a new one, where there is none.

        Args:
          wanted: fields of Settings; what is not among them is as it was, or the default.
          seconds: for how long a new run goes.

        Raises:
          ValueError: the run that lives here has others.
        """
        self.private.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.private.chmod(0o700)  # if it was there before
        if not self.settings.exists():
            tick = wanted["tick"]
            start = (int(time.time()) // tick + 1) * tick
            run = {"start": start, "horizon": max(1, seconds // tick)}
            made = Settings(**run, **{"run_id": f"live, {secrets.token_hex(4)}", **wanted})
            write_whole(self.key_file, secrets.token_hex(32) + "\n", mode=0o600)
            write_whole(self.settings, json.dumps(asdict(made), indent=2) + "\n")
        found = self.load()
        for name, value in wanted.items():
            if getattr(found, name) != value:
                raise ValueError(
                    f"the run in {self.path} has {name} = {getattr(found, name)!r}, not {value!r}: "
                    "give the same, or another directory for another run"
                )
        return found

    def load(self) -> Settings:
        """The settings of the run that lives here."""
        found = json.loads(self.settings.read_text("utf-8"))
        return Settings(**{**found, "services": tuple(found["services"])})


def end_with_input(first: Callable[[], object] = bool) -> None:
    """End this process when its standard input ends, and do this first."""

    def wait() -> None:
        while os.read(0, 1 << 12):
            pass
        first()
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()


def write_whole(path: Path, text: str, mode: int = 0o644) -> None:
    """The whole file or none, on disk when this returns."""
    made = path.with_name(path.name + ".partial")
    made.unlink(missing_ok=True)
    out = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        os.write(out, text.encode())
        os.fsync(out)
    finally:
        os.close(out)
    made.replace(path)


def append(path: Path, lines: Sequence[dict[str, Any]], mode: int = 0o644) -> None:
    """One line of JSON each, on disk when this returns.

    A line that a kill has cut short before is ended first, so that it spoils no other.
    """
    append_text(path, "".join(json.dumps(line) + "\n" for line in lines), mode)


def append_text(path: Path, text: str, mode: int = 0o644) -> None:
    """The same of whole lines of text."""
    out = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, mode)
    try:
        size = os.fstat(out).st_size
        if size and os.pread(out, 1, size - 1) != b"\n":
            text = "\n" + text
        os.write(out, text.encode())
        os.fsync(out)
    finally:
        os.close(out)


def whole_lines(path: Path, offset: int = 0) -> tuple[list[dict[str, Any]], int]:
    """The whole lines of a file from an offset on, and where the next one will begin."""
    if not path.exists():
        return [], offset
    with open(path, "rb") as file:
        file.seek(offset)
        data = file.read()
    end = data.rfind(b"\n") + 1  # what follows is still to come, or cut short
    found = []
    for line in data[:end].splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:  # cut short by a kill, and ended when the next one was written
            continue
    return found, offset + end

"""How a command ends before its time: outputs whole or not there, nothing temporary, one line.

A signal ends the process from within its handler. An exception in its place would go through
Beam, which may wrap it, try again, or first finish what other threads are at.
"""

from __future__ import annotations

import atexit
import glob
import os
import shutil
import signal
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

RUN = uuid.uuid4().hex  # in the names of files that this run has not finished
_SIGNALS = {
    signal.SIGINT: (130, "interrupted"),
    signal.SIGTERM: (143, "terminated"),
    signal.SIGHUP: (129, "the terminal is gone"),
    signal.SIGQUIT: (131, "quit"),
}
_PATIENCE = 5.0  # seconds, for what others do at the end: servers of runners, file systems afar

_lock = threading.RLock()  # held while a file takes its name
_outputs: dict[str, object] = {}  # local paths, and what was there before
_directories: list[str] = []  # temporary ones
_deletions: dict[str, Callable[[], None]] = {}  # of unfinished files, afar
_stopped = False
_notes: dict[str, str] = {}  # what else to say, by what it is about
wrote = False  # whether this process has begun to write releases
on_a_line = False  # whether progress is on a line of the terminal that has not ended


# What a run makes


def begin() -> None:
    """Forget the outputs of what ran before in this process."""
    global wrote
    wrote = False
    _outputs.clear()
    _notes.clear()


def writes() -> None:
    """From here on releases may have been seen, as a half-written file can be."""
    global wrote
    wrote = True


def expect(*paths: str) -> None:
    """Outputs that will be written, whole."""
    for path in paths:
        if "://" not in path:
            _outputs[path] = _state(path)


def note(about: str, text: str) -> None:
    """What to say as well if the run is stopped, in place of what was to be said about this."""
    _notes[about] = text


def temporary() -> str:
    """A directory of this process's own, that nobody else may read; it goes when the run ends."""
    _directories.append(tempfile.mkdtemp(prefix="beam-dpcount-"))
    return _directories[-1]


@contextmanager
def others_temporary() -> Iterator[None]:
    """Within, what others make that is temporary goes with the run: Beam leaves some of it."""
    before, variable = tempfile.tempdir, os.environ.get("TMPDIR")
    tempfile.tempdir = os.environ["TMPDIR"] = temporary()
    try:
        yield
    finally:
        tempfile.tempdir = before
        if variable is None:
            del os.environ["TMPDIR"]
        else:
            os.environ["TMPDIR"] = variable


def unfinished(place: str, run: str = "") -> str:
    """A name beside the place of an output, for a file of a run (default: this one)."""
    return f"{place}.{run or RUN}-{uuid.uuid4().hex[:8]}.partial"


@contextmanager
def afar(name: str, delete: Callable[[], None]) -> Iterator[None]:
    """Within, an unfinished file is on a file system that is not local."""
    _deletions[name] = delete
    try:
        yield
    finally:
        del _deletions[name]


@contextmanager
def naming() -> Iterator[None]:
    """Within, a whole file takes its name; a RuntimeError once the run is being stopped."""
    with _lock:
        if _stopped:
            raise RuntimeError("the run is being stopped")
        yield


def clean() -> None:
    """Remove what is temporary, of this process and of its workers'."""
    for path in _outputs:
        for name in glob.glob(f"{glob.escape(os.path.realpath(path))}.{RUN}-*.partial"):
            with suppress(OSError):
                os.remove(name)
    while _directories:
        shutil.rmtree(_directories.pop(), ignore_errors=True)


atexit.register(clean)


def complete() -> str:
    """What is there of a run that was stopped, in words."""
    made = [path for path, before in _outputs.items() if _state(path) != before]
    said = "nothing was written"
    if made:
        said = f"complete {'is' if len(made) == 1 else 'are'} {', '.join(made)}, and nothing else"
    return "; ".join([said, *_notes.values()])


def _state(path: str) -> object:
    """What changes if a file is replaced."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


# Signals


def install() -> None:
    """Have signals end this process; those that are ignored, as under nohup, stay so."""
    if threading.current_thread() is not threading.main_thread():
        return
    for number in _SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end)


@contextmanager
def signals() -> Iterator[None]:
    """Within, signals end this process."""
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    install()
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in before.items():
                signal.signal(number, signal.SIG_DFL if handler is None else handler)


_ours = os.getpid()


def _end(number: int, frame: FrameType | None) -> None:
    if os.getpid() != _ours:  # a worker that was forked
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        return
    for other in _SIGNALS:
        signal.signal(other, signal.SIG_IGN)
    status, word = _SIGNALS[signal.Signals(number)]
    with _lock:
        global _stopped
        _stopped = True
        clean()
        line = f"{word}: {complete()}\n"
    with suppress(OSError, ValueError):
        os.write(sys.stderr.fileno(), ("\n" * on_a_line + line).encode())
    last = threading.Thread(target=_others, daemon=True)
    last.start()
    last.join(_PATIENCE)
    clean()  # again: a worker may have begun another file
    os._exit(status)


def _others() -> None:
    for delete in list(_deletions.values()):
        with suppress(Exception):
            delete()
    atexit._run_exitfuncs()  # as Python does where a process ends by itself: Beam stops its servers

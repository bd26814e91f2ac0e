"""A file written beside its place and then renamed: there is never half a file."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

from beam_dpcount.commands import stop
from beam_dpcount.commands.files.formats import InputError


@contextmanager
def beside(path: str, run: str = "") -> Iterator[str]:
    """A name to write to in the block, on any file system that Beam knows.

    An existing file is replaced only at the end of the block; it keeps its mode, and links to it
    stay. If the block raises, or the run is stopped, nothing is left behind.

    Args:
      run: whose file it is, as `stop.RUN` has it there; default: this process's.

    Raises:
      InputError: the file system fails, as a full disk does.
    """
    local = "://" not in path
    place = os.path.realpath(path) if local else path
    name = stop.unfinished(place, run)
    try:
        with ExitStack() as within:
            if not local:
                within.enter_context(stop.afar(name, lambda: _delete(name, local)))
            elif os.path.exists(place):
                os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
                shutil.copymode(place, name)
            yield name
            if local:
                _sync(name)
            with stop.naming():
                _rename(name, place, local)
    except BaseException as error:
        with suppress(OSError):
            _delete(name, local)
        if isinstance(error, OSError):
            raise InputError(
                f"{path!r} cannot be written: {_reason(error)}; make room, or name a file "
                "elsewhere (nothing of it is left, and a file that was there is as it was)"
            ) from error
        raise


def _rename(name: str, place: str, local: bool) -> None:
    if local:
        os.rename(name, place)
        return
    from apache_beam.io.filesystems import FileSystems  # here: it imports Beam

    FileSystems.rename([name], [place])


def _delete(name: str, local: bool) -> None:
    """Raises OSError where there is no such file, or where it stays."""
    if local:
        os.remove(name)
        return
    from apache_beam.io.filesystems import FileSystems  # here: it imports Beam

    FileSystems.delete([name])


def _sync(name: str) -> None:
    """Wait until the file is on the disk: some find out only then that they are full."""
    with open(name, "rb+") as file:
        os.fsync(file.fileno())


def _reason(error: OSError) -> str:
    """What the system says; Beam wraps it."""
    details = getattr(error, "exception_details", None) or {}
    inner = [one for one in (*details.values(), *error.args) if isinstance(one, OSError)]
    return _reason(inner[0]) if inner else error.strerror or type(error).__name__

"""A file written beside its place and then renamed: there is never half a file."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import IO

from beam_dpcount.commands import stop
from beam_dpcount.commands.files.formats import InputError

# It can only be read by setting it, which is for the whole process: once, before there are threads.
_UMASK = os.umask(0o077)
os.umask(_UMASK)


@contextmanager
def beside(path: str, run: str = "", private: bool = False) -> Iterator[str]:
    """A name to write to in the block, on any file system that Beam knows.

    An existing file is replaced only at the end of the block; it keeps its mode, but that a private
    one is its owner's alone, and links to it stay. Until then nobody else can read what is there:
    if the block raises, or the run is stopped, nothing is left behind, and nothing was seen.

    Args:
      run: whose file it is, as `stop.RUN` has it there; default: this process's.
      private: nobody else may read the file, whoever could read one that was there.

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
            else:
                os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            yield name
            if local:
                _sync(name)
                os.chmod(name, _mode(place, private))
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


def _mode(place: str, private: bool) -> int:
    """That of the file which is replaced, else what new files have; its owner's part if private."""
    mode = 0o666 & ~_UMASK
    with suppress(OSError):
        mode = stat.S_IMODE(os.stat(place).st_mode)
    return mode & 0o700 if private else mode


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


@contextmanager
def created(name: str) -> Iterator[IO[bytes]]:
    """A new file, to be written in the block, on any file system that Beam knows."""
    if "://" not in name:
        with open(name, "wb") as file:
            yield file
        return
    from apache_beam.io.filesystem import CompressionTypes  # here: it imports Beam
    from apache_beam.io.filesystems import FileSystems

    kind = CompressionTypes.UNCOMPRESSED
    with FileSystems.create(name, "application/octet-stream", kind) as file:
        yield file


def _sync(name: str) -> None:
    """Wait until the file is on the disk: some find out only then that they are full."""
    with open(name, "rb+") as file:
        os.fsync(file.fileno())


def sync_folder(path: str) -> None:
    """Wait until the name of a file is on the disk."""
    folder = os.open(os.path.dirname(path) or ".", os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _reason(error: OSError) -> str:
    """What the system says; Beam wraps it."""
    details = getattr(error, "exception_details", None) or {}
    inner = [one for one in (*details.values(), *error.args) if isinstance(one, OSError)]
    return _reason(inner[0]) if inner else error.strerror or type(error).__name__

"""A file written beside its place and then renamed: there is never half a file."""

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems

from beam_dpcount.commands.files.formats import InputError


@contextmanager
def beside(path: str) -> Iterator[str]:
    """A name to write to in the block, on any file system that Beam knows.

    An existing file is replaced only at the end of the block; it keeps its mode, and links to it
    stay. If the block raises, nothing is left behind.

    Raises:
      InputError: the file system fails, as a full disk does.
    """
    local = "://" not in path
    place = os.path.realpath(path) if local else path
    name = f"{place}.{uuid.uuid4().hex}.partial"
    try:
        if local and os.path.exists(place):
            os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            shutil.copymode(place, name)
        yield name
        if local:
            _sync(name)
        FileSystems.rename([name], [place])
    except BaseException as error:
        with suppress(BeamIOError, OSError):
            FileSystems.delete([name])
        if isinstance(error, OSError):
            raise InputError(
                f"{path!r} cannot be written: {_reason(error)}; make room, or name a file "
                "elsewhere (nothing of it is left, and a file that was there is as it was)"
            ) from error
        raise


def _sync(name: str) -> None:
    """Wait until the file is on the disk: some find out only then that they are full."""
    with open(name, "rb+") as file:
        os.fsync(file.fileno())


def _reason(error: OSError) -> str:
    """What the system says; Beam wraps it."""
    details = getattr(error, "exception_details", None) or {}
    inner = [one for one in (*details.values(), *error.args) if isinstance(one, OSError)]
    return _reason(inner[0]) if inner else error.strerror or type(error).__name__

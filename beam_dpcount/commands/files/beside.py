"""A file written beside its place and then renamed: there is never half a file."""

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems


@contextmanager
def beside(path: str) -> Iterator[str]:
    """A name to write to in the block, on any file system that Beam knows.

    An existing file is replaced only at the end of the block; it keeps its mode, and links to it
    stay. If the block raises, nothing is left behind.
    """
    local = "://" not in path
    place = os.path.realpath(path) if local else path
    name = f"{place}.{uuid.uuid4().hex}.partial"
    try:
        if local and os.path.exists(place):
            os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            shutil.copymode(place, name)
        yield name
        FileSystems.rename([name], [place])
    except BaseException:
        with suppress(BeamIOError, OSError):
            FileSystems.delete([name])
        raise

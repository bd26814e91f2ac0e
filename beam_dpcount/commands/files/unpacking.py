"""Files as they are stored, and the contents of compressed ones."""

from __future__ import annotations

import bz2
import lzma
import os
import zlib
from collections.abc import Callable
from typing import IO, Any

BLOCK = 1 << 18  # bytes
GZIP = ".gz"
_DAMAGED = "the compressed data are damaged"
_CUT = "the compressed data end too early"


def _zstd() -> Any:
    import zstandard  # here: it comes with Beam, and few files need it

    # As large a window as there is, so that all files are read.
    return zstandard.ZstdDecompressor(max_window_size=1 << 31).decompressobj()


_CODECS: dict[str, Callable[[], Any]] = {
    GZIP: lambda: zlib.decompressobj(zlib.MAX_WBITS | 16),
    ".deflate": zlib.decompressobj,
    ".bz2": bz2.BZ2Decompressor,
    ".xz": lzma.LZMADecompressor,
    ".lzma": lzma.LZMADecompressor,
    ".zst": _zstd,
    ".zstd": _zstd,
}


def stored(path: str) -> IO[bytes]:
    """A file as it is stored, on any file system that Beam knows."""
    if "://" not in path:
        return open(path, "rb")
    from apache_beam.io.filesystem import CompressionTypes  # here: few files are elsewhere
    from apache_beam.io.filesystems import FileSystems

    afar: IO[bytes] = FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED)
    return afar


def compression_of(path: str) -> str:
    """The suffix of a file's compression; empty if its name has none."""
    suffix = os.path.splitext(path.lower())[1]
    return suffix if suffix in _CODECS else ""


class Unpacked:
    """Reads the contents of a file, block by block.

    Args:
      file: as it is stored, from its start.
      kind: the suffix of its compression; empty: it has none.

    Raises:
      OSError: when read, if it cannot be read; without a number if it is damaged or cut.
    """

    def __init__(self, file: IO[bytes], kind: str) -> None:
        self._file, self._kind = file, kind
        self._codec = _CODECS[kind or GZIP]()  # unused where there is none

    def read(self) -> bytes:
        """The next bytes; none at the end."""
        if not self._kind:
            return self._file.read(BLOCK)
        while True:
            data = self._codec.unused_data or self._file.read(BLOCK)
            if not data:
                if not self._codec.eof:
                    raise OSError(_CUT)
                return b""
            if self._codec.eof:  # several compressed files, one after the other
                self._codec = _CODECS[self._kind]()
            try:
                contents: bytes = self._codec.decompress(data)
            except Exception as error:  # each codec has its own
                raise OSError(_DAMAGED) from error
            if contents:
                return contents


def unpacks(file: IO[bytes]) -> bool:
    """Whether a whole file is gzip; it is at its start before and after."""
    source = Unpacked(file, GZIP)
    try:
        while source.read():
            pass
    except OSError as error:
        if error.errno is not None:  # of the storage
            raise
        return False
    finally:
        file.seek(0)
    return True

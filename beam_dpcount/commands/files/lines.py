"""Physical lines of text files: CSV and JSON lines have one record a line.

A line ends with \\n, \\r\\n or \\r, even within quotes. So no line affects how another one is read:
not with an open quote, and not with bytes that are not UTF-8.

A file whose name does not say so may be gzip, too. With a header line (`has_header`), which is
public, its first bytes tell. Without one they are somebody's row, and so the whole file must unpack
as gzip; else its lines are read as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from apache_beam.io.fileio import ReadableFile
from apache_beam.io.filesystem import CompressedFile, CompressionTypes
from apache_beam.io.filesystems import FileSystems

from beam_dpcount.commands.progress import Progress

BLOCK = 1 << 18  # bytes
_MARK = b"\xef\xbb\xbf"  # the byte order mark of UTF-8
_GZIP = b"\x1f\x8b\x08"


def texts(readable: ReadableFile, has_header: bool) -> Iterator[str | None]:
    """Lines without their ends; None for one that is not UTF-8.

    Raises:
      OSError: the file cannot be read, or its compression is damaged or cut.
    """
    for data in _blocks(readable, has_header):
        try:
            text = data.decode()
        except UnicodeDecodeError:
            yield from map(_decoded, data.splitlines())
            continue
        if "\r" in text:
            text = text.replace("\r\n", "\n").replace("\r", "\n")
        lines = text.split("\n")
        if not lines[-1]:  # the end of the last line
            lines.pop()
        yield from lines


def with_ends(readable: ReadableFile) -> Iterator[tuple[str, bool]]:
    """Lines after a header, with their ends, and whether they are UTF-8.

    Other bytes become lone surrogates.
    """
    for data in _blocks(readable, has_header=True):
        for line in data.splitlines(keepends=True):
            text = _decoded(line)
            yield (line.decode(errors="surrogateescape"), False) if text is None else (text, True)


def check(readable: ReadableFile, has_header: bool) -> None:
    """Read a compressed file to its end; an OSError if it is damaged or cut."""
    source, kind, _ = _opened(readable, has_header)
    with source:
        while kind != CompressionTypes.UNCOMPRESSED and _read(source):
            pass


def _decoded(line: bytes) -> str | None:
    try:
        return line.decode()
    except UnicodeDecodeError:
        return None


def _blocks(readable: ReadableFile, has_header: bool) -> Iterator[bytes]:
    """The whole file, in blocks of whole lines."""
    source, _, file = _opened(readable, has_header)
    at, is_first = 0, True
    with source:
        parts: list[bytes] = []
        while data := _read(source):
            before, at = at, file.tell()  # in the file as stored, perhaps compressed
            Progress.read += at - before
            # A \r may be half of a line end, unless more follows it.
            end = 1 + max(data.rfind(b"\n"), data.rfind(b"\r", 0, -1))
            if not end:
                parts.append(data)
                continue
            block, parts = b"".join([*parts, data[:end]]), [data[end:]]
            yield block.removeprefix(_MARK) if is_first else block
            is_first = False
        if rest := b"".join(parts):
            yield rest.removeprefix(_MARK) if is_first else rest


def _opened(readable: ReadableFile, has_header: bool) -> tuple[Any, str, Any]:
    """The decompressed file, its compression (by its name or content), and the file itself."""
    path, plain = readable.metadata.path, CompressionTypes.UNCOMPRESSED
    file = FileSystems.open(path, compression_type=plain)
    kind = CompressionTypes.detect_compression_type(path)
    if kind == plain:
        begin = file.read(len(_GZIP))
        file.seek(0)
        if begin == _GZIP and (has_header or _unpacks(file)):
            kind = CompressionTypes.GZIP
    return file if kind == plain else CompressedFile(file, compression_type=kind), kind, file


def _unpacks(file: Any) -> bool:
    """Whether a whole file is gzip; it is at its start before and after."""
    source = CompressedFile(file, compression_type=CompressionTypes.GZIP)
    try:
        while _read(source):
            pass
    except OSError as error:
        if isinstance(error.__cause__, OSError):  # of the storage
            raise
        return False
    finally:
        file.seek(0)
    return True


def _read(source: Any) -> bytes:
    try:
        data: bytes = source.read(BLOCK)
    except Exception as error:  # each codec has its own
        if not isinstance(source, CompressedFile) and isinstance(error, OSError):
            raise
        raise OSError("the compressed data are damaged") from error
    # Beam accepts a file that was cut off; its decompressor knows better.
    if not data and not getattr(getattr(source, "_decompressor", None), "eof", True):
        raise OSError("the compressed data end too early")
    return data

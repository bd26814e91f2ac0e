"""Physical lines of text files: CSV and JSON lines have one record a line.

A line ends with \\n, \\r\\n or \\r, even within quotes. So no line affects how another one is read:
not with an open quote, and not with bytes that are not UTF-8.

A file whose name does not say so may be gzip, too. With a header line (`has_header`), which is
public, its first bytes tell. Without one they are somebody's row, and so the whole file must unpack
as gzip; else its lines are read as they are.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import IO

from beam_dpcount.commands.files.formats import InputFile
from beam_dpcount.commands.files.unpacking import GZIP, Unpacked, compression_of, stored, unpacks
from beam_dpcount.commands.progress import Progress

MARK = b"\xef\xbb\xbf"  # the byte order mark of UTF-8
_GZIP = b"\x1f\x8b\x08"


def texts(file: InputFile, has_header: bool) -> Iterator[str | None]:
    """Lines without their ends; None for one that is not UTF-8.

    Raises:
      OSError: the file cannot be read, or its compression is damaged or cut.
    """
    for data in blocks(file, has_header):
        try:
            text = data.decode()
        except UnicodeDecodeError:
            yield from map(decoded, data.splitlines())
            continue
        if "\r" in text:
            text = text.replace("\r\n", "\n").replace("\r", "\n")
        lines = text.split("\n")
        if not lines[-1]:  # the end of the last line
            lines.pop()
        yield from lines


def with_ends(file: InputFile) -> Iterator[tuple[str, bool]]:
    """Lines after a header, with their ends, and whether they are UTF-8.

    Other bytes become lone surrogates.
    """
    for data in blocks(file, has_header=True):
        for line in data.splitlines(keepends=True):
            text = decoded(line)
            yield (line.decode(errors="surrogateescape"), False) if text is None else (text, True)


def check(file: InputFile, has_header: bool) -> None:
    """Read a compressed file to its end; an OSError if it is damaged or cut."""
    source, kind = _opened(file, has_header)
    with source:
        contents = Unpacked(source, kind)
        while kind and contents.read():
            pass


def decoded(line: bytes) -> str | None:
    """The text of a line; None if it is not UTF-8."""
    try:
        return line.decode()
    except UnicodeDecodeError:
        return None


def blocks(file: InputFile, has_header: bool, size: int = 1) -> Iterator[bytes]:
    """The whole file, in blocks of whole lines, of about so many bytes or more."""
    source, kind = _opened(file, has_header)
    at, is_first = 0, True
    with source:
        parts, held = list[bytes](), 0
        contents = Unpacked(source, kind)
        while data := contents.read():
            before, at = at, source.tell()  # in the file as stored, perhaps compressed
            Progress.read += at - before
            held += len(data)
            # A \r may be half of a line end, unless more follows it.
            end = 1 + max(data.rfind(b"\n"), data.rfind(b"\r", 0, -1)) if held >= size else 0
            if not end:
                parts.append(data)
                continue
            block, parts = b"".join([*parts, data[:end]]), [data[end:]]
            held = len(parts[0])
            yield block.removeprefix(MARK) if is_first else block
            is_first = False
        rest = b"".join(parts)
        if file.may_grow:
            rest = rest[: 1 + max(rest.rfind(b"\n"), rest.rfind(b"\r"))]
        if rest:
            yield rest.removeprefix(MARK) if is_first else rest


def ends_whole(file: InputFile) -> bool:
    """Whether the last line of a file that is here ends in a line break."""
    source, kind = _opened(file, True)
    with source:
        if not kind:
            size = source.seek(0, os.SEEK_END)
            source.seek(max(size - 1, 0))
            return source.read() in (b"", b"\n", b"\r")
        contents, last = Unpacked(source, kind), b""
        while data := contents.read():
            last = data[-1:]
        return last in (b"", b"\n", b"\r")


def _opened(file: InputFile, has_header: bool) -> tuple[IO[bytes], str]:
    """A file as it is stored, and its compression by its name or content."""
    source, kind = stored(file.path), compression_of(file.path)
    if not kind:
        begin = source.read(len(_GZIP))
        source.seek(0)
        if begin == _GZIP and (has_header or unpacks(source)):
            kind = GZIP
    return source, kind

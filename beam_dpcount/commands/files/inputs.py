"""Which files are read: paths, patterns and folders, on any file system that Beam knows."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress

from apache_beam.io.filesystem import FileMetadata
from apache_beam.io.filesystems import FileSystems

from beam_dpcount.commands.files.formats import (
    STANDARD,
    InputError,
    Source,
    is_data,
    unreadable,
)

# What Beam needs for some file systems.
_EXTRAS = {"s3": "aws", "gs": "gcp", "hdfs": "hadoop", "azfs": "azure"}


def files_of(source: Source) -> list[FileMetadata]:
    """The files of a source, each once: an event that is read twice would count twice."""
    files: dict[object, FileMetadata] = {}
    for given in source.inputs:
        pattern = source.spool if given == STANDARD else given
        if _is_folder(pattern):
            found = _folder(pattern, source.format)
        else:
            found = _match(_escaped(pattern) if os.path.exists(pattern) else pattern)
        for metadata in sorted(found, key=lambda metadata: metadata.path):
            files.setdefault(_identity(metadata.path), metadata)
    for metadata in files.values():
        source.kind(metadata.path)  # may be of none that is read
    return list(files.values())


def _is_folder(pattern: str) -> bool:
    return pattern.endswith("/") if "://" in pattern else os.path.isdir(pattern)


def _folder(folder: str, format: str | None) -> list[FileMetadata]:
    """The data files of a folder, by their names, or all where there is a format.

    Not those that writers leave beside them, whose names begin with a dot or an underscore.
    """
    within = f"{folder.rstrip('/')}/"
    if "://" in folder:
        found = _match(f"{within}*", missing=True)
    else:
        found = list(_entries(folder))
    found = [one for one in found if not os.path.basename(one.path).startswith((".", "_"))]
    if any("://" not in one.path and os.path.isdir(one.path) for one in found):
        raise InputError(
            f"--input {folder!r} has folders within it, which are not read: name them, or give a "
            f"pattern such as '{within}*/*.parquet'"
        )
    found = [one for one in found if format is not None or is_data(one.path)]
    if not found:
        raise InputError(
            f"--input {folder!r} is a folder without files named .csv, .jsonl, .parquet or the "
            "like: give --format for others"
        )
    return found


def _entries(folder: str) -> Iterator[FileMetadata]:
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                path = os.path.join(folder, entry.name)
                yield FileMetadata(path, entry.stat().st_size, entry.stat().st_mtime)
    except OSError as error:
        raise unreadable(folder, error) from error


def _escaped(path: str) -> str:
    """A path as a pattern: Beam's take a star, a question mark and brackets."""
    return path if "://" in path else re.sub(r"([*?[])", r"[\1]", path)


def _match(pattern: str, missing: bool = False) -> list[FileMetadata]:
    # Beam finds nothing for a pattern with a star in its first part.
    full = f"./{pattern}" if re.match(r"[^/]*[*?[]", pattern) else pattern
    try:
        found: list[FileMetadata] = []
        if pattern:
            found = FileSystems.match([full])[0].metadata_list
    except Exception as error:  # each file system has its own
        raise InputError(f"cannot look for {pattern!r}: {remedy(pattern, error)}") from None
    if not found and not missing:
        raise InputError(f"no file matches {pattern!r}")
    return found


def remedy(path: str, error: Exception) -> str:
    """What to do where a file system fails, which says it in its own way, if at all."""
    scheme, between, _ = path.partition("://")
    if not between:
        return str(error)
    if scheme in ("http", "https"):
        return "Beam does not reach it; take a local file"
    if scheme in _EXTRAS:
        extra = f"pip install 'apache-beam[{_EXTRAS[scheme]}]'"
        return f"it needs {extra} and access to it; or take local files"
    return f"Beam knows no file system {scheme!r}; take local files"


def _identity(path: str) -> object:
    """What names of one file have in common: links, hard ones too."""
    if "://" not in path:
        with suppress(OSError):
            found = os.stat(path)
            return found.st_dev, found.st_ino
    return path

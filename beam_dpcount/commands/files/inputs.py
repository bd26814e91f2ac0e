"""Which files are read: paths, patterns and folders, on any file system that Beam knows."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress

from beam_dpcount.commands.files.formats import (
    STANDARD,
    InputError,
    InputFile,
    Source,
    is_data,
    unreadable,
)

# What Beam needs for some file systems.
_EXTRAS = {"s3": "aws", "gs": "gcp", "hdfs": "hadoop", "azfs": "azure"}


def files_of(source: Source) -> list[InputFile]:
    """The files of a source, each once: an event that is read twice would count twice."""
    files: dict[object, InputFile] = {}
    for given in source.inputs:
        pattern = source.spool if given == STANDARD else given
        if _is_folder(pattern):
            matches = _folder(pattern, source.format)
        else:
            matches = _one(pattern) if os.path.exists(pattern) else _match(pattern)
        for metadata in sorted(matches, key=lambda metadata: metadata.path):
            files.setdefault(_identity(metadata.path), metadata)
    for metadata in files.values():
        source.kind(metadata.path)  # an error for a kind that is not read
    return list(files.values())


def _is_folder(pattern: str) -> bool:
    return pattern.endswith("/") if "://" in pattern else os.path.isdir(pattern)


def _folder(folder: str, format: str | None) -> list[InputFile]:
    """The files of a folder with the suffix of a data file, or all if there is a format.

    Files that begin with a dot or an underscore are skipped: writers leave them beside the data.
    """
    within = f"{folder.rstrip('/')}/"
    if "://" in folder:
        entries = _match(f"{within}*", missing=True)
    else:
        entries = list(_entries(folder))
    entries = [one for one in entries if not os.path.basename(one.path).startswith((".", "_"))]
    if any("://" not in one.path and os.path.isdir(one.path) for one in entries):
        raise InputError(
            f"--input {folder!r} has subfolders, which are not read: name them, or give a "
            f"pattern such as '{within}*/*.parquet'"
        )
    files = [one for one in entries if format is not None or is_data(one.path)]
    if not entries:
        raise InputError(f"--input {folder!r} is an empty folder: name one with files")
    if not files:
        raise InputError(
            f"--input {folder!r} is a folder without files named .csv, .jsonl, .parquet or the "
            "like: give --format for others"
        )
    return files


def _entries(folder: str) -> Iterator[InputFile]:
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                path = os.path.join(folder, entry.name)
                yield InputFile(path, entry.stat().st_size)
    except OSError as error:
        raise unreadable(folder, error) from error


def _one(path: str) -> list[InputFile]:
    """A file that is here, whatever its name has in it."""
    try:
        return [InputFile(path, os.stat(path).st_size)]
    except OSError as error:
        raise unreadable(path, error) from error


def _match(pattern: str, missing: bool = False) -> list[InputFile]:
    from apache_beam.io.filesystems import FileSystems  # here: most files are named

    # Beam finds nothing for a pattern with a star in its first part.
    full = f"./{pattern}" if re.match(r"[^/]*[*?[]", pattern) else pattern
    try:
        found = FileSystems.match([full])[0].metadata_list if pattern else []
        matches = [InputFile(one.path, one.size_in_bytes) for one in found]
    except Exception as error:  # each file system raises its own errors
        raise InputError(f"cannot look for {pattern!r}: {remedy(pattern, error)}") from None
    if not matches and not missing:
        raise InputError(f"no file matches {pattern!r}")
    return matches


def exists_afar(path: str) -> bool:
    """Whether there is a file on a file system that is not local."""
    from apache_beam.io.filesystems import FileSystems  # here: it imports Beam

    return bool(FileSystems.exists(path))


def remedy(path: str, error: Exception) -> str:
    """What to do if a file system fails; not all of them say so themselves."""
    scheme, between, _ = path.partition("://")
    if not between:
        return str(error)
    if scheme in ("http", "https"):
        return "Beam cannot read it; use a local file"
    if scheme in _EXTRAS:
        extra = f"pip install 'apache-beam[{_EXTRAS[scheme]}]'"
        return f"it needs {extra} and access to it; or use local files"
    return f"Beam knows no file system {scheme!r}; use local files"


def _identity(path: str) -> object:
    """What names of one file have in common: links, hard ones too."""
    if "://" not in path:
        with suppress(OSError):
            found = os.stat(path)
            return found.st_dev, found.st_ino
    return path

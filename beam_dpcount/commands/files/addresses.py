"""Outputs that are not files: standard output, and tables in databases, by their addresses.

The address of a table is the URL of its database with one more parameter, `table`. In the path it
could not be told from the database, which may be left to PGDATABASE or a service.
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from beam_dpcount.commands.files.formats import STANDARD, InputError

# How the URL of a table's database begins, with a driver's name as SQLAlchemy has it.
_DATABASE = re.compile(r"(postgres(ql)?|sqlite)(\+\w+)?://", re.IGNORECASE)
_HOST = re.compile(r"(\[[^]]*\]|[^:\[\]]*)(:[0-9]*)?")

PASSWORDS = "PGPASSWORD, ~/.pgpass or PGSERVICEFILE"
CREDENTIALS = (
    "output: a URL with a password is refused, as others may see a command line: leave the "
    f"password to {PASSWORDS} (and write %40 for any other @)"
)
UNNAMED = (
    "output: a table is postgresql://user@host/db?table=NAME or sqlite:///file.db?table=NAME, "
    "with four slashes before a path from the root"
)
ODD = (
    "output: the name of the table is NAME, or SCHEMA.NAME of PostgreSQL, without quotes: they "
    "are put around it as needed"
)


def is_table(output: str) -> bool:
    """Whether an output is a table in a database: `databases.address_of` has its parts."""
    return _DATABASE.match(output) is not None


def is_file(output: str) -> bool:
    """Whether an output is a file. Others are given a whole one: standard output, and tables."""
    return output != STANDARD and not is_table(output)


def is_afar(output: str) -> bool:
    """Whether an output is a file that is not on this machine, and is not read back."""
    return "://" in output and is_file(output)


class Address(NamedTuple):
    """A table in a database.

    Fields:
      database: a URL of PostgreSQL, which has no password, or the path of a file of SQLite.
      names: of the table, after that of its schema if there is one.
      sqlite: whether it is in a file of SQLite.
    """

    database: str
    names: tuple[str, ...]
    sqlite: bool


def address_of(output: str) -> Address:
    """The parts of an address, or an InputError, which does not show it."""
    scheme, _, rest = output.partition("://")
    sqlite = scheme.lower().startswith("sqlite")
    # Wherever it stands: a password may have characters that end its part of a URL.
    before, at, _ = rest.rpartition("@")
    if at and ":" in before and not sqlite:
        raise InputError(CREDENTIALS)
    try:
        parts = urlsplit(f"postgresql://{rest}")
    except ValueError:
        raise InputError(UNNAMED) from None
    given = parse_qsl(parts.query, keep_blank_values=True)
    if any("password" in name.lower() for name, _ in given):
        raise InputError(CREDENTIALS)
    name, *more = [value for name, value in given if name == "table"] or [""]
    others = urlencode([one for one in given if one[0] != "table"], quote_via=quote)
    hosts = parts.netloc.rpartition("@")[2].split(",")
    if more or not name or parts.fragment or not all(map(_HOST.fullmatch, hosts)):
        raise InputError(UNNAMED)
    names = (name,) if sqlite else tuple(name.split("."))
    if '"' in name or not name.isprintable() or len(names) > 2 or "" in names:
        raise InputError(ODD)
    if sqlite:
        if parts.netloc or len(parts.path) < 2 or others:
            raise InputError(UNNAMED)
        return Address(unquote(parts.path[1:]), names, sqlite)
    database = f"postgresql://{parts.netloc}{parts.path}" + f"?{others}" * bool(others)
    return Address(database, names, sqlite)


def name_of(output: str) -> str:
    """What an output is called, without where it is: a table, or a file."""
    if is_table(output):
        return ".".join(address_of(output).names)
    return os.path.basename(output)

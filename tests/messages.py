"""The package's messages, as regular expressions: tests quote none of them."""

from __future__ import annotations

import re
from string import Formatter


def says(message: str, **fields: object) -> str:
    """An expression for a message: its fields in braces are as given, or else anything."""
    parts = []
    for text, name, _, conversion in Formatter().parse(message):
        parts.append(re.escape(text))
        if name in fields:
            value = fields[name]
            parts.append(re.escape(repr(value) if conversion == "r" else str(value)))
        elif name is not None:
            parts.append(".*")
    return "".join(parts)

"""How notebooks and terminals show public parameters: one small table, whatever is shown."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from html import escape

_LEFT = ' style="text-align:left"'


def table(
    title: str, rows: Iterable[Sequence[str]], heading: Sequence[str] = (), note: str = ""
) -> str:
    """HTML of a table. All text in it is escaped, as names and keys may hold anything.

    Args:
      title, note: what stands above and below.
      rows: the cells of each, the first of which names it.
      heading: of the columns.
    """
    parts = [f"<table><caption{_LEFT}>{escape(title)}</caption>"]
    if heading:
        parts.append(f"<thead><tr>{_cells('th', heading)}</tr></thead>")
    parts.append("<tbody>")
    for name, *others in rows:
        parts.append(f"<tr>{_cells('th', [name])}{_cells('td', others)}</tr>")
    parts.append("</tbody></table>")
    if note:
        parts.append(f'<p style="white-space:pre-wrap">{escape(note)}</p>')
    return "".join(parts)


def aligned(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """Lines of text for the rows of a table, the heading among them; `right` are the places of
    columns that are aligned to the right."""
    wide = [max(map(len, column)) for column in zip(*rows, strict=True)]
    sides = [">" if place in right else "<" for place, _ in enumerate(wide)]
    return [
        "  ".join(
            f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, wide, strict=True)
        ).rstrip()
        for row in rows
    ]


def described(title: str, parameters: Mapping[str, str]) -> str:
    """HTML of what a `describe` says, name by name."""
    return table(title, ((name.replace("_", " "), text) for name, text in parameters.items()))


def _cells(tag: str, texts: Iterable[str]) -> str:
    return "".join(f"<{tag}{_LEFT}>{escape(text)}</{tag}>" for text in texts)

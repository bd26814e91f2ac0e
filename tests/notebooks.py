"""What a notebook shows, read back; and notebooks, run without one."""

from __future__ import annotations

import ast
import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any


class _Reader(HTMLParser):
    """Caption, rows and the text below of one table; any tag that a table has not is an error."""

    def __init__(self) -> None:
        super().__init__()
        self.caption, self.note, self.rows = "", "", [[]]
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        assert tag in {"table", "caption", "thead", "tbody", "tr", "th", "td", "p"}, tag
        assert {name for name, _ in attrs} <= {"style"}
        if tag == "tr":
            self.rows.append([])
        elif tag in ("th", "td"):
            self.rows[-1].append("")
        self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open[-1] in ("th", "td"):
            self.rows[-1][-1] += data
        elif self._open[-1] == "caption":
            self.caption += data
        else:
            assert self._open == ["p"]
            self.note += data

    def close(self) -> None:
        super().close()
        assert self._open == []


def read(html: str) -> tuple[str, list[list[str]], str]:
    """The caption, the rows with the heading, and the text below of a table that is well formed."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    return reader.caption, reader.rows[1:], reader.note


def named(html: str) -> dict[str, str]:
    """A table of two columns, as `describe` names the first one's cells."""
    _, rows, note = read(html)
    assert note == ""
    made = {name.replace(" ", "_"): text for name, text in rows}
    assert len(made) == len(rows)
    return made


def cells(path: Path, kind: str) -> list[dict[str, Any]]:
    """A notebook's cells of this kind: "code" or "markdown"."""
    notebook = json.loads(path.read_text("utf-8"))
    assert (notebook["nbformat"], notebook["metadata"]["kernelspec"]["name"]) == (4, "python3")
    return [cell for cell in notebook["cells"] if cell["cell_type"] == kind]


def run(path: Path) -> tuple[dict[str, Any], list[Any]]:
    """Run all code cells in order: their names, and what the last line of each shows."""
    names: dict[str, Any] = {"__name__": "__main__"}
    shown = []
    for number, cell in enumerate(cells(path, "code")):
        tree = ast.parse("".join(cell["source"]))
        last: Any = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, f"cell {number}", "exec"), names)
        value = None
        if last is not None:
            value = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), names)
        shown.append(value)
    return names, shown

"""HTML and SVG whose texts are escaped by construction: keys are texts out of data."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Sequence

# Part of some scripts' spelling and of emoji; other characters without a look of their own are not.
_JOINERS = "\u200c\u200d"


class Html(str):
    """Markup: `el` takes it as it is, and escapes all other texts."""

    __slots__ = ()


def el(tag: str, *children: object, **attributes: object) -> Html:
    """An element. An attribute that is None is left out; `class_` is class, `a_b` is a-b."""
    named = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{html.escape(_value(value))}"'
        for name, value in attributes.items()
        if value is not None
    )
    if tag in ("meta", "link", "br", "input"):
        return Html(f"<{tag}{named}>")
    return Html(f"<{tag}{named}>{joined(children)}</{tag}>")


def joined(parts: Iterable[object]) -> Html:
    return Html("".join(part if isinstance(part, Html) else _escaped(part) for part in parts))


def visible(text: str) -> str:
    """A text without characters that act unseen, as those that turn the direction of others.

    They are shown as Python writes them; a blank text in quotes.
    """
    if not text.strip():
        return ascii(text)
    return "".join(
        letter
        if letter.isprintable() or letter in _JOINERS
        else letter.encode("unicode_escape").decode()
        for letter in text
    )


def name(text: str) -> Html:
    """A key or an item, whose direction is nobody else's."""
    return el("bdi", visible(text), class_="name")


def table(head: Sequence[str], rows: Iterable[Sequence[str]], kind: str | None = None) -> Html:
    """A table: a name first, and numbers beside it."""

    def row(tag: str, first: str, *numbers: str) -> Html:
        return el("tr", el(tag, first), *(el(tag, text, class_="number") for text in numbers))

    body = el("tbody", *(row("td", *cells) for cells in rows))
    return el("table", el("thead", row("th", *head)), body, class_=kind)


def details(head: Sequence[str], rows: Sequence[Sequence[str]], number: int) -> Html:
    """A table to be opened, of these rows out of a number of them."""
    some = f", {len(rows)} of {number:,}" if len(rows) < number else ""
    return el("details", el("summary", f"In numbers{some}"), table(head, rows))


def data(value: object) -> str:
    """JSON that can stand in an attribute."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def _escaped(part: object) -> str:
    text = str(part)
    return html.escape(visible(text)) if text else ""


def _value(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.1f}".removesuffix(".0")
    return visible(str(value)) if str(value) else ""

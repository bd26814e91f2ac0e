"""Fonts for names in scripts that matplotlib's own font lacks, as Chinese, Japanese and Korean."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from matplotlib import font_manager
from matplotlib.figure import Figure
from matplotlib.ft2font import FT2Font
from matplotlib.text import Text

# Looked at first: they have tens of thousands of characters, in one style.
_WIDE = (
    "Noto Sans CJK JP",
    "Noto Sans CJK SC",
    "Noto Sans JP",
    "Noto Sans SC",
    "Source Han Sans",
    "Hiragino Sans",
    "PingFang SC",
    "Yu Gothic",
    "Microsoft YaHei",
    "Malgun Gothic",
    "WenQuanYi Micro Hei",
    "WenQuanYi Zen Hei",
    "Arial Unicode MS",
    "IPAexGothic",
    "Droid Sans Fallback",
)
_UNFIT = ("lastresort", "last resort", "emoji")  # boxes for everything; bitmaps in colour


def cover(figure: Figure) -> set[str]:
    """Gives the texts of a figure the fonts they need; returns characters that no font has."""
    missing: set[str] = set()
    for text in figure.findobj(Text):
        if isinstance(text, Text) and (lacking := _lacking(text)):
            families, left = fonts_for(frozenset(lacking))
            text.set_fontfamily([*text.get_fontfamily(), *families])
            missing |= left
    return missing


def _lacking(text: Text) -> set[str]:
    shown = {letter for letter in text.get_text() if not letter.isspace()}
    if all(letter < "\u0250" for letter in shown):  # Latin, which every font has
        return set()
    path = font_manager.findfont(font_manager.FontProperties(family=text.get_fontfamily()))
    return {letter for letter in shown if ord(letter) not in _characters(path)}


@lru_cache(maxsize=64)
def fonts_for(letters: frozenset[str]) -> tuple[tuple[str, ...], frozenset[str]]:
    """Names of installed fonts that together have these characters; and those that none has."""
    chosen, left = [], set(letters)
    for name, path in _installed():
        if not left:
            break
        found = {letter for letter in left if ord(letter) in _characters(path)}
        if found:
            chosen.append(name)
            left -= found
    return tuple(chosen), frozenset(left)


def _installed() -> Iterator[tuple[str, str]]:
    """Names and files of upright fonts of usual weight: first wide ones, then by name."""
    files = {
        entry.name: entry.fname
        for entry in font_manager.fontManager.ttflist
        if entry.style == "normal"
        and entry.weight in (400, "normal", "regular", "book")
        and not any(part in entry.name.lower() for part in _UNFIT)
    }
    for name in (*(name for name in _WIDE if name in files), *sorted({*files} - {*_WIDE})):
        yield name, files[name]


@lru_cache(maxsize=512)
def _characters(path: str) -> frozenset[int]:
    try:
        return frozenset(FT2Font(path).get_charmap())
    except (OSError, RuntimeError):  # a damaged file has none
        return frozenset()

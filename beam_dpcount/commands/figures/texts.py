"""Texts and numbers as figures show them."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Hashable

TITLE_WIDTH = 30  # narrow characters


def written(value: float, _: float | None) -> str:
    """A number on an axis."""
    return f"{value:,.10g}".replace("-", "\N{MINUS SIGN}")


def with_band(value: float, half: float) -> str:
    """A private count with half the width of its band; small bands keep their digits."""
    digits = 0 if half >= 10 or not math.isfinite(half) else 1 if half >= 0.5 or not half else 2
    text = f"{value:,.{digits}f}"
    text = text if float(text.replace(",", "")) else text.lstrip("-")
    text = text.replace("-", "\N{MINUS SIGN}")
    return f"{text} ± {half:,.{digits}f}" if math.isfinite(half) else text


def shortened(key: Hashable, middle: bool = False, width: int = TITLE_WIDTH) -> str:
    """The key as printable text, cut to so many narrow characters at its end or in the middle.

    In the middle suits texts that begin alike: they often end differently.
    """
    text = key.decode("utf-8", "replace") if isinstance(key, bytes) else str(key)
    text = "".join(letter if letter.isprintable() else "\ufffd" for letter in text)
    if not text.strip():
        return repr(text)
    if _head(text, width) == text:
        return text
    tail = _head(text[::-1], width // 2)[::-1].lstrip() if middle else ""
    return _head(text, width // (2 if middle else 1)).rstrip() + "…" + tail


def _head(text: str, most: int) -> str:
    """The start of a text, as far as `most` narrow characters would reach."""
    width = 0
    for position, letter in enumerate(text):
        width += 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        if width > most:
            return text[:position]
    return text


def marks(n: int, most: int = 20) -> list[int]:
    """Which of 1 .. n have names on an axis: about `most`, and always the first and the last."""
    step = math.ceil(n / most)
    return [1, *range(1 + step, n - step + 1, step), n] if n > 1 else [1]

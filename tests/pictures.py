"""What commands draw as PNG files, caught before matplotlib draws it; and pictures made by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy.typing as npt
import pytest

from beam_dpcount.commands.figures import pictures, png, running

LABELS: dict[str, Any] = {"covers": "", "remark": "", "choice": [], "keys": ()}


def caught(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The fields of the pictures that --plot would draw, with what is said above and below them."""
    drawn: list[dict[str, Any]] = []

    def note(picture: pictures.Picture, path: str, said: str, truth: Any = None) -> None:
        title = picture.title
        if isinstance(picture, pictures.Running):
            title = running.counts_of(picture, 6, truth=truth).title
        below = {"guarantee": f"{said} {picture.footer}", "truth": truth}
        drawn.append({**vars(picture), **below, "title": title, "path": path})

    monkeypatch.setattr(png, "draw", note)
    return drawn


def prefix_counts(
    columns: Mapping[str, Any],
    path: Path,
    *,
    title: str,
    guarantee: str,
    truth: Mapping[Any, npt.ArrayLike] | None = None,
    **how: Any,
) -> None:
    """Draws running counts."""
    picture = pictures.Running(title, **LABELS, columns=columns, **how)
    png.draw(picture, path, guarantee, truth)


def histograms(
    items: Sequence[str], panels: Sequence[pictures.Panel], path: Path, **how: Any
) -> None:
    """Draws histograms."""
    png.draw(pictures.Bars("T", **LABELS, items=items, panels=panels, **how), path, "G")


def degrees(domain: Sequence[str], panels: Sequence[pictures.Panel], path: Path) -> None:
    """Draws degrees."""
    png.draw(pictures.Degrees("T", **LABELS, domain=domain, panels=panels), path, "G")


def weights(vertices: Sequence[str], panels: Sequence[pictures.Panel], path: Path) -> None:
    """Draws weights of pairs."""
    png.draw(pictures.Weights("T", **LABELS, vertices=vertices, panels=panels), path, "G")

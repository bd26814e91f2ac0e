"""Colours and dashes. Lines are told apart by colour, and by dashes where colours are alike.

Twelve colours and four kinds of dashes. Two of the first twelve lines that have the same dashes
differ in colour to all kinds of colour vision, and all stand out from the ground.
"""

from __future__ import annotations

LIGHT = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#000000",
    "#882255",
    "#CC79A7",
    "#857A1E",
    "#3D9BD9",
    "#C98A00",
    "#6B3A12",
    "#332288",
    "#7F7F7F",
)
DARK = (
    "#4DA3E0",
    "#F08A4B",
    "#A58BF0",
    "#E3A0C4",
    "#E0567E",
    "#9AD4F5",
    "#2BC49A",
    "#C9CF6A",
    "#C98A5A",
    "#A6A6A6",
    "#F2C14E",
    "#FFFFFF",
)
WEIGHTS = (
    "#67001F",
    "#B2182B",
    "#D6604D",
    "#F4A582",
    "#FDDBC7",
    "#F7F7F7",
    "#D1E5F0",
    "#92C5DE",
    "#4393C3",
    "#2166AC",
    "#053061",
)
"""ColorBrewer's RdBu, negative to positive."""
NONE = "#9A9A9A"
"""Of what has no weight."""
DASHES: tuple[tuple[float, ...], ...] = ((), (6, 2.5), (1.5, 1.8), (7, 2, 1.5, 2))
"""On and off, in widths of a line; none: solid. The line after the fourth begins anew."""

"""Which keys a picture draws: as asked for, or chosen by public facts, never by private values.

Keys chosen for their noisy values are chosen for their noise too: bands that hold 95 % of the time
for a key named beforehand miss more often for them.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection, Mapping
from typing import Any

from beam_dpcount.commands.report import many

ASKED = "Keys as asked for: bands are for keys that were not chosen by their counts."
SELECTED = "Keys as asked for, those of them that are shown."
_MOST = 24


def check(options: argparse.Namespace) -> None:
    """Raise ValueError where --plot-keys does not fit the other options."""
    if options.plot_keys is None:
        return
    if not (options.plot or options.report):
        raise ValueError("--plot-keys needs --plot PNG or --report HTML")
    if options.key is None:
        raise ValueError("--plot-keys needs --key: without it there is one key for all rows")
    if len(set(options.plot_keys)) < len(options.plot_keys):
        raise ValueError("--plot-keys: a key is there twice; give it once")
    if len(options.plot_keys) > _MOST:
        got = len(options.plot_keys)
        raise ValueError(f"--plot-keys: a picture has room for {_MOST} keys, got {got}")


def check_listed(options: argparse.Namespace, keys: Collection[str]) -> None:
    """Raise ValueError where a key to draw is not one of the public keys."""
    for key in options.plot_keys or ():
        if key not in keys:
            raise ValueError(f"--plot-keys: {key!r} is not one of --keys; add it there")


def missing(options: argparse.Namespace, keys: Collection[str]) -> list[str]:
    """Warnings about keys without releases. Which have some is public, or itself released."""
    return [
        f"warning: --plot-keys: {key!r} has no releases, and is not drawn"
        for key in options.plot_keys or ()
        if key not in keys
    ]


def of_most_rows(
    options: argparse.Namespace, last: Mapping[str, Any], most: int
) -> tuple[list[tuple[str, str, Any]], list[str]]:
    """Title, note and rows of the keys to draw; and how they were chosen, if not all are drawn.

    `last` has the last releases of all keys, most rows first; their numbers of rows are public.
    Without --plot-keys the first `most` are drawn.
    """
    if options.plot_keys is not None:
        shown, choice = [key for key in options.plot_keys if key in last], [ASKED]
    else:
        shown, choice = list(last)[:most], []
        if len(shown) < len(last):
            choice = [f"Of {len(last):,} keys the {len(shown)} with most rows."]
    panels = []
    for key in shown:
        rows = f"after {many(last[key].step, 'row')}"
        name = (rows, "") if options.key is None else (key, rows)
        panels.append((*name, last[key].rows))
    return panels, choice

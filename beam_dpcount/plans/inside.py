"""What a TickCount inside another transform knows beside its public arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Inside:
    """What the transform around a TickCount tells it; one that stands alone has the defaults.

    Args:
      names: the columns of releases; None: what is counted says.
      numbered: releases have the number of the restart that they are of.
      time_columns: those of the time of events, for accounts; empty: they have no name.
      fingerprint: what else decides which events count, for replayable noise.
      present: the time by which ticks must have ended if `until` is not given; None: that of this
        call.
      bounds: whether each person's events are bounded here; False: `BoundUsers` does it.
      bound_before: how `BoundUsers` bounds each person's events before they come here, for
        replayable noise; None: it does not.
    """

    names: Sequence[str] | None = None
    numbered: bool = False
    time_columns: tuple[str, ...] = ()
    fingerprint: Any = None
    present: int | None = None
    bounds: bool = True
    bound_before: str | None = None

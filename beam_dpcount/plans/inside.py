"""What a TickCount inside another transform knows beside its public arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

Split = Callable[[Any], Iterable[Any]]  # an event to its (key, value) pairs


@dataclass(frozen=True)
class Inside:
    """What the transform around a TickCount tells it; one that stands alone has the defaults.

    Args:
      restart: the count starts anew after so many ticks, which are windows of its own.
      last: releases are sums over the last so many ticks; None: over all so far.
      names: the columns of releases; None: what is counted says.
      numbered: releases have the number of the restart that they are of.
      split: makes (key, value) pairs of an event that is not one; None: events are pairs. It is
        used where people are bounded here: elsewhere events come as pairs.
      fingerprint: what else decides which events count, for replayable noise.
      present: the time by which ticks must have ended if `until` is not given; None: that of this
        call.
      bounds: whether each person's events are bounded here; False: `BoundUsers` does it.
      bound_before: how `BoundUsers` bounds each person's events before they come here, for
        replayable noise; None: it does not.
    """

    restart: int | None = None
    last: int | None = None
    names: Sequence[str] | None = None
    numbered: bool = False
    split: Split | None = None
    fingerprint: Any = None
    present: int | None = None
    bounds: bool = True
    bound_before: str | None = None

"""What `ticks` takes, and what is public of it, without Beam: `--help` reads this alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from beam_dpcount.arguments.table import ALL_KEYS, Changes
from beam_dpcount.commands import select
from beam_dpcount.commands.task import Task


class TickTask(Task):
    """Metrics and views of rows, by key, at the ticks of a public clock."""

    name = "ticks"
    known = "the keys and the clock, and with them the number and times of the releases."
    people_are_public = False
    names: ClassVar[Mapping[str, str]] = {
        **select.NAMES,
        **{"ticks": "horizon", "levels": "key", "leaves": "hierarchy_file"},
        **{"shares": "level_shares", "what": "metric", "clock": "view", "budget": "epsilon"},
    }

    counts = "ticks sentence several people select truth"
    changes: ClassVar[Changes] = {
        "key": {"help": "the keys; default: one count of all rows"},
    }
    titles: ClassVar[Mapping[str, str]] = {"budget": ALL_KEYS}
